"""Fields whose names change: files keep their columns, and every way of reading finds them."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from heads import ON_TREES
from pyarrow import acero

import lakebed
from lakebed import DatasetDescriptor
from lakebed.dataset import Dataset
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    PartitionSpecError,
    PredicateError,
    SchemaMismatchError,
)
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.state.state import descriptor_from

_names = itertools.count()
NUMBERS = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])
Rows = list[dict[str, Any]]


def new(**more: Any) -> Dataset:
    repository = lakebed.open_repository(f"memory://renaming-{next(_names)}")
    return repository.create("numbers", DatasetDescriptor(**{"schema": NUMBERS, **more}))


def repository_of(dataset: Dataset) -> lakebed.Repository:
    return lakebed.open_repository(dataset.uri.rpartition("/")[0])


def rename(dataset: Dataset, **names: str) -> None:
    for old, now in names.items():
        dataset.evolve(lambda known, old=old, now=now: known.rename_field(old, now))


def exchange(dataset: Dataset) -> None:
    """Exchange the names of two fields of one type: a reader by the wrong name sees wrong values."""
    dataset.evolve(
        lambda known: known.rename_field("a", "t").rename_field("b", "a").rename_field("t", "b")
    )


def by_number(rows: Rows, name: str = "b") -> Rows:
    return sorted(rows, key=lambda row: row[name])


def exchanged(**more: Any) -> tuple[Dataset, Rows]:
    """Return a dataset with files of before and after an exchange and a rename, and its rows."""
    dataset = new(**more)
    dataset.append([{"a": 1, "b": 10, "s": "x"}, {"a": 2, "b": 20, "s": None}])
    exchange(dataset)
    rename(dataset, s="text")
    dataset.append([{"b": 3, "a": 30, "text": "z"}])
    return dataset, [
        {"b": 1, "a": 10, "text": "x"},
        {"b": 2, "a": 20, "text": None},
        {"b": 3, "a": 30, "text": "z"},
    ]


FORMS = pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="plain"),
        pytest.param({"format": "avro"}, id="avro"),
        pytest.param({"partition_by": "hash(s, 4) as part"}, id="partitioned"),
        pytest.param({"index": ["a", "s"]}, id="indexed"),
        pytest.param(
            {"format": "avro", "partition_by": "range(a, 2, 1000) as part", "index": ["b"]},
            id="avro, partitioned and indexed",
        ),
    ],
)

WAYS: dict[str, Callable[[Dataset], Any]] = {
    "arrow": lambda dataset: dataset.arrow().to_pylist(),
    "columns of arrow": lambda dataset: dataset.arrow(["text", "a", "b"]).to_pylist(),
    "pandas": lambda dataset: (
        dataset.pandas().astype(object).where(lambda frame: frame.notna(), None).to_dict("records")
    ),
    "polars": lambda dataset: dataset.polars().to_dicts(),
    "record_batches": lambda dataset: dataset.record_batches().read_all().to_pylist(),
    "stream": lambda dataset: pa.table(dataset.plan()).to_pylist(),
    "reader": lambda dataset: list(dataset.kite.reader()),
    "head": lambda dataset: dataset.head(10).to_pylist(),
    "selection": lambda dataset: dataset.select("text", "b", "a").arrow().to_pylist(),
    "limit": lambda dataset: dataset.limit(100).arrow().to_pylist(),
    "snapshot": lambda dataset: dataset.snapshot().arrow().to_pylist(),
    "partitions": lambda dataset: [
        row for view in dataset.kite.covering_partitions() for row in view.arrow().to_pylist()
    ],
    "changes": lambda dataset: (
        dataset.changes(0)
        .arrow()
        .drop_columns(["_change", "_version", "_committed_at"])
        .to_pylist()
    ),
    "diff": lambda dataset: dataset.diff(0, dataset.version).rows().to_pylist(),
    "sql": lambda dataset: repository_of(dataset).sql("SELECT text, a, b FROM numbers").to_pylist(),
}
OF_PARQUET: dict[str, Callable[[Dataset], Any]] = {
    "dataset": lambda dataset: dataset.dataset().to_table().to_pylist(),
    "dataset with a filter": lambda dataset: (
        dataset.dataset().to_table(filter=pc.field("b") < 4).to_pylist()
    ),
    "lazy frame": lambda dataset: (
        polars.scan_pyarrow_dataset(dataset.dataset())
        .filter(polars.col("b") < 4)
        .collect()
        .to_dicts()
    ),
    "DuckDB": lambda dataset: (
        duckdb.from_arrow(dataset.dataset())
        .filter("b < 4")
        .select("text, a, b")
        .to_arrow_table()
        .to_pylist()
    ),
    "scanner": lambda dataset: dataset.dataset().scanner(["text", "a", "b"]).to_table().to_pylist(),
}


@pytest.mark.parametrize("way", [*WAYS, *OF_PARQUET])
@FORMS
def test_every_way_of_reading_finds_the_columns(more: dict[str, Any], way: str) -> None:
    dataset, rows = exchanged(**more)
    if way in OF_PARQUET and dataset.descriptor.format != "parquet":
        pytest.skip("pyarrow reads datasets of Parquet only")

    read = (WAYS | OF_PARQUET)[way](dataset)

    assert by_number([{name: row[name] for name in ("b", "a", "text")} for row in read]) == rows


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("b = 3", [3]),
        ("b >= 2", [2, 3]),
        ("a = 10", [1]),
        ("a < 25", [1, 2]),
        ("text = 'z'", [3]),
        ("text IS NULL", [2]),
        ("text IN ('x', 'z') AND a > 10", [3]),
        ("a = 1", []),
    ],
)
@FORMS
def test_conditions_ask_the_right_columns(
    more: dict[str, Any], condition: str, numbers: list[int]
) -> None:
    dataset, _ = exchanged(**more)
    view = dataset.where(condition)

    assert sorted(view.arrow(["b"]).column(0).to_pylist()) == numbers
    assert view.count() == len(numbers)
    assert view.kite.is_empty() is not bool(numbers)
    if dataset.descriptor.format == "parquet":
        assert sorted(view.dataset().to_table(["b"]).column(0).to_pylist()) == numbers


@FORMS
def test_rows_are_changed_by_their_new_names(more: dict[str, Any]) -> None:
    dataset, _ = exchanged(**more)

    dataset.where("b = 1").update_rows({"a": "a + 1", "text": "upper(text)"})
    dataset.where("a = 20").delete()
    dataset.upsert([{"b": 3, "a": 31, "text": "w"}, {"b": 4, "a": 40, "text": "v"}], on="b")
    dataset.merge([{"b": 4, "a": 41}], on="b", not_matched="ignore")
    dataset.compact()

    assert by_number(dataset.arrow().to_pylist()) == [
        {"b": 1, "a": 11, "text": "X"},
        {"b": 3, "a": 31, "text": "w"},
        {"b": 4, "a": 41, "text": "v"},
    ]
    assert dataset.check(deep=True).problems == ()


@FORMS
def test_versions_show_their_own_names(more: dict[str, Any]) -> None:
    dataset, rows = exchanged(**more)

    first = dataset.at(version=1)
    assert by_number(first.arrow().to_pylist(), "a") == [
        {"a": 1, "b": 10, "s": "x"},
        {"a": 2, "b": 20, "s": None},
    ]
    assert first.where("s = 'x'").count() == 1
    assert [known.schema.names for known in dataset.inspect.schemas()] == [
        ("a", "b", "s"),
        ("b", "a", "s"),
        ("b", "a", "text"),
    ]
    dataset.append([{"b": 9, "a": 9, "text": "nine"}])
    dataset.rollback(version=4)
    assert by_number(dataset.arrow().to_pylist()) == rows
    dataset.rollback(version=1)
    assert by_number(dataset.arrow().to_pylist()) == rows[:2]


def test_files_indices_and_statistics_keep_their_names() -> None:
    dataset, _ = exchanged(index=["a", "s"], partition_by="range(a, 2, 1000) as part")
    store = repository_of(dataset).store
    before = {info.key for info in store.list("numbers/") if "/batches/" not in info.key}

    rename(dataset, text="words")

    after = {info.key for info in store.list("numbers/") if "/batches/" not in info.key}
    assert {key.split("/")[1] for key in after - before} == (set() if ON_TREES else {"history"})
    assert before - after == set()
    for file in dataset.files():
        held = pq.read_schema(pa.BufferReader(store.get(file.key).data)).names
        assert held == ["a", "b", "s"]
    assert {index.column for index in dataset.indices.list()} == {"b", "words"}
    assert str(dataset.descriptor.partition_by) == "range(b, 2, 1000) as part"
    shown = pq.read_schema(pa.BufferReader(store.get("numbers/data/_common_metadata").data))
    assert {"a", "b", "s"} < set(shown.names)


def test_an_index_finds_files_of_before_and_after() -> None:
    dataset = new(index=["a"])
    for number in range(4):
        dataset.append([{"a": number, "b": 1, "s": None}, {"a": number + 100, "b": 2, "s": None}])
    exchange(dataset)
    for number in range(4, 8):
        dataset.append([{"b": number, "a": 1}])
        dataset.append([{"b": number + 100, "a": 1}])

    for number in (2, 6):
        plan = dataset.where(f"b = {number}").plan()
        assert len(plan.files) == 1
        assert plan.explain().indices.keys() == {"b"}
        assert dataset.where(f"b = {number}").arrow(["b"]).column(0).to_pylist() == [number]
    built = dataset.indices.build("a")
    assert built.covered_count == len(dataset.files())
    assert dataset.where("a = 2").count() == 4


def test_statistics_of_files_of_before_and_after_drop_files() -> None:
    dataset = new()
    for number in range(6):
        dataset.append([{"a": number, "b": -number, "s": None}])
    exchange(dataset)
    for number in range(6, 12):
        dataset.append([{"b": number, "a": -number, "s": None}])

    assert [len(dataset.where(f"b = {n}").plan().files) for n in (2, 8)] == [1, 1]
    assert [len(dataset.where(f"a = {n}").plan().files) for n in (-2, -8, 2)] == [1, 1, 0]


def test_a_frame_under_the_old_name_is_refused_with_the_new_one() -> None:
    dataset = new()
    rename(dataset, s="text")

    for rows in ([{"a": 1, "s": "x"}], pa.table({"a": [1], "s": ["x"]})):
        with pytest.raises(SchemaMismatchError, match="Unknown column 's'") as caught:
            dataset.append(rows)
        assert "renamed to 'text'" in caught.value.hint
    with pytest.raises(SchemaMismatchError, match="'s'") as caught:
        dataset.upsert([{"a": 1, "s": "x"}], on="a")
    with pytest.raises(SchemaMismatchError, match="'s'") as caught:
        dataset.arrow(["s"])
    assert "renamed to 'text'" in caught.value.hint
    with pytest.raises(PredicateError, match="'s'"):
        dataset.where("s = 'x'")


def test_a_name_that_was_renamed_away_is_that_of_another_field() -> None:
    dataset = new(index=["a"])
    dataset.append([{"a": 1, "b": 10, "s": "x"}])
    rename(dataset, a="first")
    added = Field(name="a", type=Primitive(Kind.STRING), default="none")
    dataset.evolve(
        lambda old: dataclasses.replace(old, schema=Schema(fields=(*old.schema.fields, added)))
    )
    dataset.append([{"first": 2, "b": 20, "s": "y", "a": "here"}])

    assert by_number(dataset.arrow(["first", "a"]).to_pylist(), "first") == [
        {"first": 1, "a": "none"},
        {"first": 2, "a": "here"},
    ]
    assert dataset.where("a = 'here'").arrow(["first"]).to_pylist() == [{"first": 2}]
    assert dataset.where("first = 1").arrow(["a"]).to_pylist() == [{"a": "none"}]
    assert dataset.descriptor.schema.get("a").stored_name == "a_2"
    rename(dataset, a="c", first="a")
    assert by_number(dataset.arrow(["a", "c"]).to_pylist(), "a") == [
        {"a": 1, "c": "none"},
        {"a": 2, "c": "here"},
    ]
    assert dataset.descriptor.schema.get("a").stored_as is None


def test_a_schema_without_stored_names_keeps_them() -> None:
    dataset, rows = exchanged()
    plain = pa.schema([("b", pa.int64()), ("a", pa.int64()), ("text", pa.string())])

    dataset.evolve(
        lambda old: dataclasses.replace(old, schema=DatasetDescriptor(schema=plain).schema)
    )

    assert dataset.inspect.schemas()[-1].number == 3
    assert by_number(dataset.arrow().to_pylist()) == rows


def test_a_copy_of_the_descriptor_makes_a_dataset_with_plain_names() -> None:
    dataset, _ = exchanged()
    repository = repository_of(dataset)

    copied = repository.create("copy", dataset.descriptor)
    copied.append(dataset)

    assert copied.arrow().to_pylist() == dataset.arrow().to_pylist()
    assert not copied.descriptor.schema.is_renamed
    (file,) = copied.files()
    data = repository.store.get(file.key).data
    assert pq.read_schema(pa.BufferReader(data)).names == ["b", "a", "text"]
    again = repository.create("numbers", dataset.descriptor, if_exists="open")
    assert again.arrow().to_pylist() == dataset.arrow().to_pylist()


def test_parts_of_a_renamed_record_change_too() -> None:
    place = pa.struct([("x", pa.int32()), ("y", pa.int64())])
    dataset = new(schema=pa.schema([("n", pa.int64()), ("place", place)]))
    dataset.append([{"n": 1, "place": {"x": 1, "y": 2}}])
    rename(dataset, place="point")
    wider = pa.struct([("x", pa.int64()), ("z", pa.int64()), ("y", pa.int64())])
    schema = pa.schema([("n", pa.int64()), ("point", wider)])
    dataset.evolve(
        lambda old: dataclasses.replace(old, schema=DatasetDescriptor(schema=schema).schema)
    )
    dataset.append([{"n": 2, "point": {"x": 2**40, "z": 7, "y": 4}}])

    assert by_number(dataset.arrow().to_pylist(), "n") == [
        {"n": 1, "point": {"x": 1, "z": None, "y": 2}},
        {"n": 2, "point": {"x": 2**40, "z": 7, "y": 4}},
    ]
    assert dataset.where("point.x = 1").arrow(["n"]).to_pylist() == [{"n": 1}]
    assert dataset.where("point.z = 7").arrow(["n"]).to_pylist() == [{"n": 2}]
    rename(dataset, point="place")
    assert dataset.where("place.y > 2").arrow(["n"]).to_pylist() == [{"n": 2}]


def test_a_partition_function_of_a_renamed_record_finds_its_source() -> None:
    place = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    dataset = new(
        schema=pa.schema([("n", pa.int64()), ("place", place)]),
        partition_by="range(place.x, 10, 1000) as part, hash(n, 2) as half",
    )
    dataset.append([{"n": n, "place": {"x": n, "y": -n}} for n in (1, 2)])
    rename(dataset, place="point", n="number")
    dataset.append([{"number": n, "point": {"x": n, "y": -n}} for n in (30, 40)])

    assert str(dataset.descriptor.partition_by) == (
        "range(point.x, 10, 1000) as part, hash(number, 2) as half"
    )
    found = dataset.where("point.x = 30")
    assert found.plan().explain().dropped_by_partition > 0
    assert found.arrow(["number"]).to_pylist() == [{"number": 30}]
    assert dataset.where("point.x < 10 AND point.y = -2").arrow(["number"]).to_pylist() == [
        {"number": 2}
    ]


def test_an_append_that_began_before_the_rename_commits() -> None:
    dataset = new(index=["a"], partition_by="range(a, 2, 1000) as part")
    batch = dataset.staged.add([{"a": 1, "b": 10, "s": "x"}, {"a": 3, "b": 30, "s": "z"}])
    exchange(dataset)
    rename(dataset, s="text")

    batch.commit()

    assert by_number(dataset.arrow().to_pylist()) == [
        {"b": 1, "a": 10, "text": "x"},
        {"b": 3, "a": 30, "text": "z"},
    ]
    assert dataset.where("b = 3").arrow(["a"]).to_pylist() == [{"a": 30}]


def test_a_rename_beside_another_update_is_applied_again() -> None:
    dataset = new()

    def racing(known: DatasetDescriptor) -> DatasetDescriptor:
        if "b" in known.schema:
            dataset_again = repository_of(dataset).open("numbers")
            rename(dataset_again, b="second")
        return known.rename_field("a", "first")

    dataset.evolve(racing)
    assert dataset.columns == ("first", "second", "s")
    snapshot = dataset.snapshot()
    rename(dataset, s="text")
    with pytest.raises(CommitConflictError):
        dataset.evolve(lambda known: known.rename_field("first", "a"), base=snapshot)


@pytest.mark.parametrize(
    ("more", "old", "now", "error", "said"),
    [
        ({}, "c", "d", SchemaMismatchError, "Unknown column 'c'"),
        ({}, "a", "b", SchemaMismatchError, "there is such a field"),
        ({}, "a", "batch_id", PartitionSpecError, "batch_id"),
        ({}, "a", "", InvalidNameError, "name"),
        ({}, "s.part", "t", SchemaMismatchError, "Unknown column 's.part'"),
        (
            {"schema": pa.schema([("s", pa.struct([("part", pa.int64())]))])},
            "s.part",
            "t",
            InvalidInputError,
            "lies in a record",
        ),
        ({"partition_by": "s"}, "s", "t", PartitionSpecError, "names of directories"),
        ({"partition_by": "hash(s, 4) as h"}, "a", "h", PartitionSpecError, "partition field"),
        ({"format": "avro"}, "a", "ä", InvalidNameError, "Avro"),
        ({"properties": {"publish.delta": "true"}}, "a", "c", InvalidInputError, "Delta cannot"),
        (
            {"properties": {"publish.hive": "true", "publish.hive.table": "lake.numbers"}},
            "a",
            "c",
            InvalidInputError,
            "Hive cannot",
        ),
    ],
)
def test_a_rename_that_cannot_be_is_refused_by_name(
    more: dict[str, Any], old: str, now: str, error: type[LakebedError], said: str
) -> None:
    dataset = new(**more)
    version, descriptor = dataset.version, dataset.descriptor

    with pytest.raises(error, match=said):
        rename(dataset, **{old: now})

    assert (dataset.version, dataset.descriptor) == (version, descriptor)


def test_no_partition_field_has_the_name_of_a_column() -> None:
    fields = (
        Field(name="b", type=Primitive(Kind.LONG), stored_as="a"),
        Field(name="c", type=Primitive(Kind.LONG)),
    )

    with pytest.raises(PartitionSpecError, match="the column that holds 'b'"):
        DatasetDescriptor(schema=Schema(fields=fields), partition_by="hash(c, 4) as a")


def test_documents_of_submissions_keep_their_names() -> None:
    schema = pa.schema([("uuid", pa.string()), ("document", pa.string()), ("n", pa.int64())])
    fields = [pa.field("uuid", pa.string(), False), pa.field("document", pa.string(), False)]
    dataset = new(format="submissions", schema=pa.schema([*fields, schema.field("n")]))

    with pytest.raises(InvalidInputError, match="documents of submissions"):
        rename(dataset, n="number")


def test_publication_of_a_renamed_field_by_name_is_refused() -> None:
    dataset = new()
    dataset.append([{"a": 1, "b": 2, "s": "x"}])
    rename(dataset, s="text")
    keys = {info.key for info in repository_of(dataset).store.list("numbers/")}

    with pytest.raises(InvalidInputError, match="Delta cannot show the renamed field 'text'"):
        dataset.publish("delta")
    with pytest.raises(InvalidInputError, match="Delta cannot show"):
        dataset.evolve(lambda old: dataclasses.replace(old, properties={"publish.delta": "true"}))
    assert {info.key for info in repository_of(dataset).store.list("numbers/")} == keys
    rename(dataset, text="s")
    dataset.publish("delta")


def test_a_head_with_a_renamed_field_says_so_to_earlier_releases() -> None:
    dataset, _ = exchanged()
    store = repository_of(dataset).store
    document = store.get("numbers.by-dataset-metadata.json").data.decode()
    assert '"lakebed.format_version":"4"' in document
    rename(dataset, text="s")
    exchange(dataset)
    # Older versions still have other names than their files.
    assert (
        '"lakebed.format_version":"4"'
        in store.get("numbers.by-dataset-metadata.json").data.decode()
    )


@pytest.mark.parametrize("stored", ["b", 7, "", ["a"]])
def test_a_head_with_a_wrong_stored_name_is_corrupt(stored: object) -> None:
    dataset = new()
    rename(dataset, a="first")
    descriptor = dataset.descriptor.to_document()
    assert descriptor_from(descriptor, "head")[0] == dataset.descriptor
    descriptor["schema"]["fields"][0]["lakebed.stored_as"] = stored

    with pytest.raises(CorruptMetadataError, match=r"lakebed\.descriptor"):
        descriptor_from(descriptor, "head")


def test_a_file_that_lacks_the_column_is_damaged_and_not_null() -> None:
    dataset = new()
    dataset.append([{"a": 1, "b": 2, "s": "x"}])
    rename(dataset, s="text")
    store = repository_of(dataset).store
    (file,) = dataset.files()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1], "b": [2], "text": ["x"]}), sink)
    store.put(file.key, sink.getvalue().to_pybytes())

    with pytest.raises(CorruptMetadataError, match="no column 's'"):
        dataset.arrow()


def test_pyarrow_itself_cannot_read_files_by_wrong_names() -> None:
    dataset, rows = exchanged()
    planned = dataset.dataset()
    other = ds.dataset(pa.table({"b": [1, 3], "more": ["one", "three"]}))

    assert planned.sort_by("b").to_table().to_pylist() == rows
    joined = planned.join(other, "b", join_type="inner").to_table()
    assert by_number(joined.to_pylist()) == [
        rows[0] | {"more": "one"},
        rows[2] | {"more": "three"},
    ]
    assert planned.filter(pc.field("a") > 15).sort_by("b").to_table().to_pylist() == rows[1:]
    for hand_out in (
        lambda: list(planned.get_fragments()),
        lambda: planned.replace_schema(planned.schema),
        lambda: ds.dataset([planned, planned]),
        lambda: other.join(planned, "b"),
        lambda: acero.Declaration("scan", acero.ScanNodeOptions(planned, columns=["b"])).to_table(),
    ):
        with pytest.raises((ValueError, LakebedError)):
            hand_out()
    again = ds.dataset(planned.to_table())
    assert again.to_table().to_pylist() == rows


def test_files_of_other_tools_are_read_by_the_names_that_they_have(tmp_path: Path) -> None:
    """They may lack columns, so a wrong name would read as null."""
    held = {"a": [1, 2], "b": [10, 20], "s": ["x", None]}
    for number, columns in enumerate((held, {"a": [3], "b": [30]})):
        (tmp_path / "plain" / f"dt={number}").mkdir(parents=True)
        pq.write_table(pa.table(columns), tmp_path / "plain" / f"dt={number}" / "file.parquet")
    repository = lakebed.open_repository(tmp_path)
    repository.adopt("plain", partition_by="dt int")
    dataset = repository.open("plain")
    exchange(dataset)
    rename(dataset, s="text")
    dataset.append([{"b": 4, "a": 40, "text": "w", "dt": 1}])
    added = Field(name="more", type=Primitive(Kind.LONG), default=7)
    dataset.evolve(
        lambda old: dataclasses.replace(old, schema=Schema(fields=(*old.schema.fields, added)))
    )
    texts = ["x", None, None, "w"]
    wanted = [
        {"b": n, "a": 10 * n, "text": texts[n - 1], "dt": int(n == 3), "more": 7}
        for n in (1, 2, 3, 4)
    ]
    wanted[3]["dt"] = 1

    assert by_number(dataset.arrow().to_pylist()) == wanted
    assert by_number(dataset.dataset().to_table().to_pylist()) == wanted
    assert by_number(dataset.where("a < 25").arrow().to_pylist()) == wanted[:2]
    assert dataset.where("text = 'x'").arrow(["b"]).to_pylist() == [{"b": 1}]
    dataset.indices.build("b")
    assert dataset.where("b = 3").arrow(["a"]).to_pylist() == [{"a": 30}]
    dataset.compact(gather=True)
    assert by_number(dataset.arrow().to_pylist()) == wanted
    assert dataset.check(deep=True).problems == ()


def test_writers_and_transactions_write_under_the_names_of_their_start() -> None:
    dataset = new(index=["a"])
    with dataset.kite.writer() as writer:
        writer.write({"a": 1, "b": 10, "s": "x"})
        exchange(dataset)
        rename(dataset, s="text")
    with dataset.transaction() as transaction:
        transaction.append([{"b": 2, "a": 20, "text": "y"}])

    assert by_number(dataset.arrow().to_pylist()) == [
        {"b": 1, "a": 10, "text": "x"},
        {"b": 2, "a": 20, "text": "y"},
    ]
    assert [dataset.where(f"b = {number}").count() for number in (1, 2)] == [1, 1]


@pytest.mark.parametrize("condition", ["{} = 1", "{} % 7 = 1"])
def test_a_view_stays_ready(condition: str) -> None:
    dataset = new()
    dataset.where(condition.format("a")).kite.signal_ready()
    exchange(dataset)

    assert dataset.where(condition.format("b")).kite.is_ready()
    assert not dataset.where(condition.format("a")).kite.is_ready()


def test_a_catalog_of_descriptors_follows_a_rename(tmp_path: Path) -> None:
    catalog = lakebed.FileMetadataProvider(str(tmp_path / "catalog"))
    lake = lakebed.open_repository(tmp_path / "lake", metadata=catalog)
    dataset = lake.create("numbers", DatasetDescriptor(schema=NUMBERS))
    dataset.append([{"a": 1, "b": 10, "s": "x"}])
    exchange(dataset)

    assert catalog.load("numbers") == dataset.descriptor
    assert lake.trees.follow_metadata() == ()
    plain = DatasetDescriptor(schema=pa.schema([NUMBERS.field(name) for name in ("b", "a")]))
    catalog.save("numbers", plain)
    assert lake.trees.follow_metadata() == ("numbers",)
    assert lake.open("numbers").arrow().to_pylist() == [{"b": 1, "a": 10}]
    assert lake.trees.follow_metadata() == ()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_any_history_reads_as_a_model_of_it(format_: str, seed: int) -> None:
    """Rename, add, drop, promote and rewrite at random, with few names, and compare the rows."""
    chance = random.Random(seed)
    pool = ["a", "b", "c", "d", "e"]
    dataset = new(format=format_, schema=pa.schema([("key", pa.int64()), ("a", pa.int64())]))
    names, rows, ids = {0: "key", 1: "a"}, [], itertools.count(2)
    numbers = itertools.count()
    versions: dict[int, Rows] = {}

    def shown() -> Rows:
        return [{name: row[field] for field, name in names.items()} for row in rows]

    def add_field() -> None:
        free = [name for name in pool if name not in names.values()]
        if not free:
            return
        name, default = chance.choice(free), chance.choice([None, next(numbers)])
        added = Field(
            name=name,
            type=Primitive(chance.choice([Kind.INT, Kind.LONG])),
            **({} if default is None else {"default": default}),
        )
        dataset.evolve(
            lambda old: dataclasses.replace(old, schema=Schema(fields=(*old.schema.fields, added)))
        )
        field = next(ids)
        names[field] = name
        for row in rows:
            row[field] = default

    def drop_field() -> None:
        if len(names) < 3:
            return
        field = chance.choice([field for field in names if field])
        kept = tuple(one for one in dataset.descriptor.schema if one.name != names[field])
        index = [name for name in dataset.descriptor.index if name != names[field]]
        dataset.evolve(
            lambda old: dataclasses.replace(old, schema=Schema(fields=kept), index=index)
        )
        del names[field]

    def promote_field() -> None:
        fields = tuple(
            dataclasses.replace(one, type=Primitive(Kind.LONG)) for one in dataset.descriptor.schema
        )
        dataset.evolve(lambda old: dataclasses.replace(old, schema=Schema(fields=fields)))

    def rename_field() -> None:
        field = chance.choice(list(names))
        free = [name for name in (*pool, "key") if name not in names.values()]
        if not free:
            return
        now = chance.choice(free)
        rename(dataset, **{names[field]: now})
        names[field] = now

    def exchange_fields() -> None:
        one, other = chance.sample(list(names), 2)
        first, second = names[one], names[other]
        dataset.evolve(
            lambda old: (
                old.rename_field(first, "z").rename_field(second, first).rename_field("z", second)
            )
        )
        names[one], names[other] = second, first

    def append() -> None:
        added = [{field: next(numbers) for field in names} for _ in range(3)]
        rows.extend(added)
        dataset.append([{names[field]: value for field, value in row.items()} for row in added])

    def delete() -> None:
        if rows:
            value = chance.choice(rows)[0]
            dataset.where(f"{names[0]} = {value}").delete()
            rows[:] = [row for row in rows if row[0] != value]

    def set_values() -> None:
        field = chance.choice([field for field in names if field])
        if rows:
            value, number = chance.choice(rows)[0], next(numbers)
            dataset.where(f"{names[0]} = {value}").update_rows({names[field]: number})
            for row in rows:
                row[field] = number if row[0] == value else row[field]

    def index() -> None:
        name = chance.choice(list(names.values()))
        if name in dataset.descriptor.index:
            dataset.indices.drop(name)
        else:
            dataset.indices.build(name)

    steps = [add_field, drop_field, promote_field, rename_field, rename_field, exchange_fields]
    steps += [append, append, delete, set_values, index, dataset.compact]
    for _ in range(14):
        chance.choice(steps)()
        versions[dataset.version] = [dict(row) for row in shown()]
        expected = by_number(shown(), names[0])
        assert by_number(dataset.arrow().to_pylist(), names[0]) == expected
        for name in names.values():
            values = [row[name] for row in expected]
            wanted = chance.choice(values) if values else 0
            condition = f"{name} IS NULL" if wanted is None else f"{name} >= {wanted}"
            found = dataset.where(condition)
            right = [
                row
                for row in expected
                if (row[name] is None) is (wanted is None)
                and (wanted is None or row[name] >= wanted)
            ]
            assert by_number(found.arrow().to_pylist(), names[0]) == right
            assert found.count() == len(right)
            if wanted is not None:
                exact = [row for row in expected if row[name] == wanted]
                assert (
                    by_number(dataset.where(f"{name} = {wanted}").arrow().to_pylist(), names[0])
                    == exact
                )
            if format_ == "parquet":
                table = found.dataset().to_table()
                assert by_number(table.to_pylist(), names[0]) == right
    for version, then in versions.items():
        read = dataset.at(version=version).arrow().to_pylist()
        assert sorted(map(repr, map(sorted_items, read))) == sorted(
            map(repr, map(sorted_items, then))
        )
    assert dataset.check(deep=True).problems == ()


def sorted_items(row: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())
