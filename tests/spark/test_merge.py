"""Merging on Spark: the same answers as in one process, by tasks."""

from __future__ import annotations

import math
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inside import store_of

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, by
from lakebed.errors import DuplicateKeyError, InvalidInputError, SchemaMismatchError
from lakebed.store.memory import MemoryStore

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("v", pa.float64()),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("spot", pa.struct([("y", pa.int64())])),
    ]
)


def row(id_: int | None, p: str | None = "a", v: float | None = 0.0) -> dict[str, Any]:
    return {"id": id_, "p": p, "v": v, "at": None, "spot": {"y": id_}}


OLD = [row(n, "abc"[n % 3]) for n in range(20)] + [row(None), row(30, v=math.nan)]
DATA = [
    row(3, v=1.0),  # moves to another partition
    row(4, "b", 2.0),
    row(5, "c", -1.0),
    row(None, "b", 3.0),
    row(50, "b", 4.0),
    row(51, None, -1.0),
]
CLAUSES: list[dict[str, Any]] = [
    {},
    {
        "delete_where": "source.v < 0",
        "update": {"v": "target.v * 2 + 1", "spot": "source.spot"},
        "insert_where": "source.v > 3",
        "missing": "delete",
        "missing_where": "target.p = 'c'",
    },
    {"matched": "ignore", "missing": "update", "missing_update": {"p": "'z'"}},
]


def content(dataset: Dataset) -> list[str]:
    return sorted(repr(sorted(one.items())) for one in dataset.arrow().to_pylist())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path)


def make(repository: Repository, name: str, *functions: Any) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=list(functions), index=["id"])
    dataset = repository.create(name, descriptor)
    for start in range(0, len(OLD), 8):
        dataset.append(pa.Table.from_pylist(OLD[start : start + 8], schema=SCHEMA), run="old")
    return dataset


@pytest.mark.parametrize("number", range(len(CLAUSES)))
def test_tasks_do_what_one_process_does(spark, repository, monkeypatch, number: int) -> None:
    if number < 2:  # else this process inserts, as there are few rows
        monkeypatch.setattr("lakebed.work.merge._FEW_ROWS", 0)
    here, there = (make(repository, name, by.identity("p")) for name in ("here", "there"))
    data = pa.Table.from_pylist(DATA, schema=SCHEMA)

    expected = here.merge(data, "id", run="new", **CLAUSES[number])
    report = there.merge(
        spark.createDataFrame(data).repartition(3), "id", run="new", **CLAUSES[number]
    )

    assert content(there) == content(here)
    counts = (
        "inserted_row_count", "updated_row_count", "deleted_row_count", "read_file_count",
        "rewritten_file_count",
    )  # fmt: skip
    assert [getattr(report, name) for name in counts] == [
        getattr(expected, name) for name in counts
    ]
    assert there.check(deep=True).is_ok
    # What tasks have left for each other is gone, and so is what was reserved for it.
    assert not list(store_of(there).list("there/staging"))
    assert len(list(store_of(there).list("there/batches"))) == there.version
    for dataset in (here, there):
        dataset.rerun([], "old", replace_all=True)
    assert content(there) == content(here)


def test_a_frame_may_lack_fields_and_have_others(spark, repository) -> None:
    dataset = make(repository, "d")
    frame = spark.sql("SELECT 3L AS id, 9.0D AS v, 'U' AS op UNION ALL SELECT 4L, 1.0D, 'D'")

    report = dataset.merge(
        frame, "id", delete_where="source.op = 'D'", insert_where="source.op != 'D'"
    )

    assert (report.updated_row_count, report.deleted_row_count) == (1, 1)
    assert dataset.where("id = 3").arrow().to_pylist() == [{**row(3), "v": 9.0}]


def test_tables_are_merged_by_tasks_of_a_session_that_is_given(spark, repository) -> None:
    dataset = make(repository, "d", by.hash("id", 4))

    planned = dataset.merge(
        pa.Table.from_pylist(DATA, schema=SCHEMA), "id", spark=spark, dry_run=True
    )
    report = dataset.merge(pa.Table.from_pylist(DATA, schema=SCHEMA), "id", spark=spark)

    assert (planned.inserted_row_count, planned.updated_row_count) == (3, 3)
    assert (report.inserted_row_count, report.updated_row_count) == (3, 3)
    with pytest.raises(InvalidInputError, match="it would delete all rows"):
        dataset.merge([], "id", spark=spark, missing="delete")
    emptied = dataset.merge([], "id", spark=spark, missing="delete", missing_where="TRUE")
    assert emptied.deleted_row_count == 25
    assert dataset.count() == 0


@pytest.mark.classic("its rows are counted by an accumulator")
def test_a_frame_is_evaluated_once(spark, repository) -> None:
    dataset = make(repository, "d")
    seen = spark.sparkContext.accumulator(0)

    def count(batches):
        for batch in batches:
            seen.add(batch.num_rows)
            yield batch

    frame = spark.range(0, 100, 1, 2).mapInArrow(count, "id long")
    dataset.merge(frame, "id")

    assert seen.value == 100


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (
            "SELECT 7L AS id, 1.0D AS v UNION ALL SELECT 7L, 2.0D",
            DuplicateKeyError,
            "id = 7 2 times",
        ),
        ("SELECT '7' AS id", SchemaMismatchError, "'id'"),
        ("SELECT 7L AS id, 1 AS w", SchemaMismatchError, "'w'"),
    ],
)
def test_errors_of_tasks_arrive_and_nothing_is_left(
    spark, repository, query: str, error: type[Exception], message: str
) -> None:
    dataset = make(repository, "d")
    before = {info.key for info in repository.store.list("")}

    with pytest.raises(error, match=message):
        dataset.merge(spark.sql(query), "id")

    assert {info.key for info in repository.store.list("")} == before


def test_a_store_that_tasks_cannot_see_is_merged_into_by_this_process(spark) -> None:
    dataset = make(Repository(MemoryStore(uuid.uuid4().hex)), "d")

    report = dataset.merge(spark.sql("SELECT 3L AS id, 9.0D AS v"), "id")

    assert (report.updated_row_count, report.rewritten_file_count) == (1, 1)


@pytest.mark.parametrize("inserts_by_tasks", [True, False])
def test_parts_that_records_of_a_frame_lack_stay(
    spark, repository, monkeypatch, inserts_by_tasks: bool
) -> None:
    if inserts_by_tasks:
        monkeypatch.setattr("lakebed.work.merge._FEW_ROWS", 0)
    whole = pa.struct([("y", pa.int64()), ("z", pa.struct([("a", pa.int64()), ("b", pa.int64())]))])
    schema = pa.schema([("id", pa.int64()), ("spot", whole)])
    dataset = repository.create("t", DatasetDescriptor(schema=schema))
    dataset.append([{"id": 1, "spot": {"y": 1, "z": {"a": 2, "b": 3}}}])

    dataset.upsert(
        spark.sql("SELECT id, named_struct('z', named_struct('b', 9L)) spot FROM range(1, 3)"),
        on="id",
    )

    assert sorted(dataset.arrow().to_pylist(), key=lambda one: one["id"]) == [
        {"id": 1, "spot": {"y": 1, "z": {"a": 2, "b": 9}}},
        {"id": 2, "spot": {"y": None, "z": {"a": None, "b": 9}}},
    ]
