"""Lakebed reads datasets of plateau and kartothek, and leaves them alone."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import DatasetExistsError, DatasetNotFoundError, ReadOnlyError

NAMES = ["empty", "flat", "indexed", "indexed-msgpack", "keys", "updated"]


def sorted_rows(view):
    return sorted(view.arrow().to_pylist(), key=lambda row: row["id"])


def ids(view):
    return sorted(view.arrow(["id"]).column("id").to_pylist())


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_rows_and_columns_are_those_that_were_written(golden):
    dataset = golden.open()

    rows = sorted_rows(dataset)

    assert rows == golden.rows
    assert [list(row) for row in rows] == [list(golden.types)] * len(golden.rows)
    assert dataset.arrow().column_names == list(golden.types)
    assert dataset.count() == len(golden.rows)


def test_types_are_the_logical_ones(golden):
    schema = golden.open().arrow().schema

    found = {field.name: str(field.type) for field in schema}

    names = {"date32[day]": "date32", "double": "float64", "list<element: string>": "list<string>"}
    assert {name: names.get(kind, kind) for name, kind in found.items()} == golden.types


def test_partition_keys_are_known(golden):
    partitions = golden.open().inspect.partitions()

    assert {tuple(partition.values) for partition in partitions} <= {tuple(golden.partition_keys)}
    assert sum(partition.file_count for partition in partitions) == len(golden.open().files())


def test_every_query_selects_the_right_rows(golden):
    dataset = golden.open()

    found = {query.sql: ids(dataset.where(query.dnf)) for query in golden.queries}

    assert found == {query.sql: query.ids for query in golden.queries}


@pytest.mark.thorough
def test_every_query_counts_the_right_rows(golden):
    dataset = golden.open()

    found = {query.sql: dataset.where(query.dnf).count() for query in golden.queries}

    assert found == {query.sql: len(query.ids) for query in golden.queries}


@pytest.mark.thorough
def test_every_query_as_sql_selects_the_same_rows(golden):
    dataset = golden.open()

    found = {query.sql: ids(dataset.where(query.sql)) for query in golden.queries}

    assert found == {query.sql: query.ids for query in golden.queries}


@pytest.mark.spark
def test_spark_reads_the_same_rows(golden, spark):
    frame = golden.open().spark(spark)

    rows = sorted(frame.toArrow().to_pylist(), key=lambda row: row["id"])

    assert rows == golden.rows


@pytest.mark.spark
@pytest.mark.parametrize("name", NAMES)
def test_every_query_in_spark_selects_the_right_rows(golden_of, name, spark):
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    golden = golden_of("plateau-4.6.2", name)
    dataset = golden.open()
    frames = [
        dataset.where(query.dnf).spark(spark, ["id"]).withColumn("query", F.lit(number))
        for number, query in enumerate(golden.queries)
    ]

    found = reduce(lambda one, other: one.unionAll(other), frames).collect()  # one job for all

    for number, query in enumerate(golden.queries):
        assert sorted(row.id for row in found if row.query == number) == query.ids, query.sql


@pytest.mark.parametrize("writer", ["plateau-4.6.2", "kartothek-5.3.0"])
def test_files_that_the_head_does_not_name_are_not_read(golden_of, writer):
    golden = golden_of(writer, "updated")
    lying = {
        str(path.relative_to(golden.store))
        for path in (golden.store / "updated").rglob("*.parquet")
    }
    head = json.loads((golden.store / "updated.by-dataset-metadata.json").read_text())

    live = {file.key for file in golden.open().files()}

    named = {key for entry in head["partitions"].values() for key in entry["files"].values()}
    assert live == named
    assert len(lying - live - set(head["indices"].values())) == 7
    assert {file.key for file in golden.open().plan().files} == live


def test_pruning_reads_the_partitions_that_can_match(golden_of):
    dataset = golden_of("plateau-4.6.2", "keys").open()

    plan = dataset.where("label = 'a=b'").plan()

    assert 0 < len(plan.files) < len(dataset.files())
    assert {file.partition["label"] for file in plan.files} == {"a=b"}


def test_names_that_begin_alike_are_kept_apart(golden_of, copied_store):
    repository = lakebed.open_repository(copied_store)

    names = repository.list()

    assert names == NAMES
    assert repository.open("indexed").count() == 40
    assert repository.open("indexed-msgpack").count() == 24
    assert all(file.key.startswith("indexed/") for file in repository.open("indexed").files())
    with pytest.raises(DatasetNotFoundError, match="indexed"):
        repository.open("indexe")


def test_dropping_one_leaves_the_others(copied_store):
    repository = lakebed.open_repository(copied_store)
    others = {key: data for key, data in files_of(copied_store).items() if "indexed-msgpack" in key}

    repository.drop("indexed")

    assert repository.list() == [name for name in NAMES if name != "indexed"]
    assert not repository.exists("indexed")
    assert repository.open("indexed-msgpack").count() == 24
    left = files_of(copied_store)
    assert {key: data for key, data in left.items() if key.startswith("indexed")} == others


@pytest.mark.parametrize("name", NAMES)
def test_writing_to_a_dataset_of_another_tool_is_refused_and_leaves_no_trace(copied_store, name):
    dataset = lakebed.open_repository(copied_store).open(name)
    before = files_of(copied_store)
    entity = {"id": 1}

    with pytest.raises(ReadOnlyError, match=f"'{name}' was not created by Lakebed"):
        dataset.append([entity])
    with pytest.raises(ReadOnlyError):
        dataset.overwrite([entity])
    with pytest.raises(ReadOnlyError):
        dataset.overwrite([], dataset)
    with pytest.raises(ReadOnlyError):
        dataset.kite.writer()

    assert files_of(copied_store) == before


@pytest.mark.parametrize("if_exists", ["error", "open"])
def test_creating_over_a_dataset_of_another_tool_is_refused(copied_store, if_exists):
    repository = lakebed.open_repository(copied_store)
    before = files_of(copied_store)
    descriptor = lakebed.DatasetDescriptor(schema=repository.open("keys").arrow().schema)

    with pytest.raises(DatasetExistsError, match="flat"):
        repository.create("flat", descriptor, if_exists)

    assert files_of(copied_store) == before


def test_dataset_of_ours_lives_beside_theirs_and_takes_their_rows(copied_store):
    repository = lakebed.open_repository(copied_store)
    theirs = repository.open("keys")

    ours = repository.create(
        "keys2",
        lakebed.DatasetDescriptor(schema=theirs.arrow().schema, partition_by="label, num, day"),
    )
    ours.append(theirs.arrow())

    assert repository.list() == sorted([*NAMES, "keys2"])
    assert sorted_rows(ours) == sorted_rows(theirs)


def test_reading_changes_nothing(golden_of):
    store = golden_of("plateau-4.6.2", "flat").store
    before = files_of(store)

    repository = lakebed.open_repository(store)
    for name in repository.list():
        dataset = repository.open(name)
        dataset.arrow()
        dataset.history()
        dataset.inspect.partitions()

    assert files_of(store) == before
