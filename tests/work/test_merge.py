"""Merging data into a dataset by its keys."""

import datetime as dt
import functools
import math
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from copies import copy_of
from heads import ON_TREES
from inside import store_of
from merge_model import Meddling, Model
from writing_calls import writing_calls

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, by
from lakebed.arrow import held_rows
from lakebed.errors import (
    AccessDeniedError,
    CommitConflictError,
    DuplicateKeyError,
    InvalidInputError,
    LakebedError,
    PartitionSpecError,
    ReadOnlyError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.state.tree import stored_folds
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore, DelegatingStore, FailingStore

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("p", pa.string()),
        pa.field("v", pa.float64()),
        pa.field("name", pa.string()),
        pa.field("spot", pa.struct([("y", pa.int64())])),
    ]
)
ONE_ROW_A_FILE = lakebed.WriteOptions(target_bytes=1, row_group_bytes=1)


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def make(store: Store, *functions: Any, **others: Any) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=list(functions), **others)
    return Repository(store).create("d", descriptor)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return make(store)


def row(id_: int | None, **others: Any) -> dict[str, Any]:
    return {"id": id_, "p": "a", "v": 0.0, "name": f"n{id_}", "spot": None, **others}


def values(view: lakebed.View, name: str = "v") -> dict[Any, Any]:
    return {one["id"]: one[name] for one in view.arrow().to_pylist()}


def test_rows_that_match_are_updated_and_others_inserted_in_one_commit(dataset: Dataset) -> None:
    dataset.append([row(1), row(2)])

    report = dataset.merge([row(2, v=2.0), row(3, v=3.0)], on=["id"])

    assert values(dataset) == {1: 0.0, 2: 2.0, 3: 3.0}
    assert (report.inserted_row_count, report.updated_row_count, report.deleted_row_count) == (
        1,
        1,
        0,
    )
    assert (report.read_file_count, report.rewritten_file_count, report.added_file_count) == (
        1,
        1,
        2,
    )
    assert report.commit == dataset.history()[-1]
    assert report.commit is not None
    assert (report.commit.operation, report.commit.version) == ("merge", 2)
    assert (report.commit.inserted_row_count, report.commit.updated_row_count) == (1, 1)
    assert values(dataset.at(version=1)) == {1: 0.0, 2: 0.0}


def test_upsert_is_the_short_form(dataset: Dataset) -> None:
    dataset.append([row(1)])

    planned = dataset.upsert([row(1, v=1.0), row(2)], "id", dry_run=True)
    report = dataset.upsert([row(1, v=1.0), row(2)], "id", run="daily")

    assert (planned.is_dry_run, planned.commit) == (True, None)
    assert (planned.inserted_row_count, planned.updated_row_count) == (1, 1)
    assert values(dataset) == {1: 1.0, 2: 0.0}
    assert report.commit is not None
    assert report.commit.run == "daily"


def _reader(table: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=1))


@pytest.mark.parametrize(
    "form",
    [
        lambda table: table,
        _reader,
        lambda table: table.to_pylist(),
        lambda table: iter(table.to_batches(max_chunksize=1)),
        lambda table: pd.DataFrame({"id": table["id"].to_pylist(), "v": table["v"].to_pylist()}),
        lambda table: table.set_column(0, "id", table["id"].cast(pa.int32()).dictionary_encode()),
    ],
    ids=["table", "reader", "dicts", "batches", "pandas", "narrower"],
)
def test_data_of_any_kind_is_merged(dataset: Dataset, form: Callable[[pa.Table], object]) -> None:
    dataset.append([row(1), row(2, v=9.0)])
    data = pa.table({"id": pa.array([1, 3], pa.int64()), "v": [1.0, 3.0]})

    dataset.merge(form(data), "id")

    assert values(dataset) == {1: 1.0, 2: 9.0, 3: 3.0}
    assert values(dataset, "name") == {1: "n1", 2: "n2", 3: None}


def test_fields_that_the_data_lacks_stay_as_they_are(dataset: Dataset) -> None:
    dataset.append([row(1, spot={"y": 5}), row(2)])

    dataset.merge([{"id": 1, "v": 1.0}, {"id": 2, "name": "new"}], "id")

    # Of dicts, the data has the fields that any of them has.
    assert values(dataset, "spot") == {1: {"y": 5}, 2: None}
    assert values(dataset) == {1: 1.0, 2: None}
    assert values(dataset, "name") == {1: None, 2: "new"}


PLACES = pa.schema(
    {
        "id": pa.int64(),
        "at": pa.struct(
            {
                "x": pa.int64(),
                "y": pa.int64(),
                "on": pa.struct({"a": pa.string(), "b": pa.string()}),
            }
        ),
        "steps": pa.list_(pa.struct({"x": pa.int64(), "y": pa.int64()})),
    }
)
WHOLE = {
    "id": 1,
    "at": {"x": 1, "y": 2, "on": {"a": "a", "b": "b"}},
    "steps": [{"x": 1, "y": 2}],
}
PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a part": ({"at": {"x": 9}}, {"at": {"x": 9, "y": 2, "on": {"a": "a", "b": "b"}}}),
    "in a part": (
        {"at": {"on": {"b": "B"}}},
        {"at": {"x": 1, "y": 2, "on": {"a": "a", "b": "B"}}},
    ),
    "a null part": (
        {"at": {"y": None}},
        {"at": {"x": 1, "y": None, "on": {"a": "a", "b": "b"}}},
    ),
    "null": ({"at": None}, {"at": None}),
    "in a list": ({"steps": [{"x": 5}]}, {"steps": [{"x": 5, "y": None}]}),
}
PART_TYPES: dict[str, dict[str, pa.DataType]] = {
    "a part": {"at": pa.struct({"x": pa.int64()})},
    "in a part": {"at": pa.struct({"on": pa.struct({"b": pa.string()})})},
    "a null part": {"at": pa.struct({"y": pa.null()})},
    "null": {"at": PLACES.field("at").type},
    "in a list": {"steps": pa.list_(pa.struct({"x": pa.int64()}))},
}


@pytest.mark.parametrize("call", ["upsert", "update", "coalesce"])
@pytest.mark.parametrize("form", ["dicts", "arrow", "polars", "pandas", "reader"])
@pytest.mark.parametrize("case", PARTS)
def test_parts_that_a_record_lacks_stay(store: Store, case: str, form: str, call: str) -> None:
    change, expected = PARTS[case]
    rows = [{"id": key, **change} for key in (1, 2, 3)]
    table = pa.Table.from_pylist(rows, pa.schema({"id": pa.int64(), **PART_TYPES[case]}))
    if form == "pandas" and case in ("null", "a null part"):
        pytest.skip("pandas has no type for it")
    data: Any = {
        "dicts": lambda: rows,
        "arrow": lambda: table,
        "polars": lambda: pytest.importorskip("polars").from_arrow(table),
        "pandas": table.to_pandas,
        "reader": table.to_reader,
    }[form]()
    dataset = Repository(store).create("t", DatasetDescriptor(schema=PLACES))
    dataset.append([WHOLE, {"id": 2, "at": None, "steps": None}])
    (name,) = change

    if call == "upsert":
        dataset.upsert(data, on="id")
    elif call == "update":
        dataset.merge(data, on="id", update={name: f"source.{name}"})
    else:
        dataset.merge(data, on="id", update={name: f"coalesce(source.{name}, target.{name})"})

    found = {row["id"]: row for row in dataset.arrow().to_pylist()}
    if not (call == "coalesce" and case == "null"):
        assert found[1] == WHOLE | expected
    alone = pa.array([change[name]], PART_TYPES[case][name]).to_pylist()[0]
    for key in (2, 3):
        assert without_null(found[key][name]) == without_null(alone)


def without_null(value: object) -> object:
    match value:
        case dict():
            parts = {name: without_null(part) for name, part in value.items()}
            return {name: part for name, part in parts.items() if part is not None}
        case list():
            return [without_null(part) for part in value]
    return value


def test_required_part_that_a_record_lacks_stays_and_is_needed_by_a_new_one(store: Store) -> None:
    part = pa.field("x", pa.int64(), nullable=False)
    schema = pa.schema({"id": pa.int64(), "at": pa.struct([part, ("y", pa.int64())])})
    dataset = Repository(store).create("t", DatasetDescriptor(schema=schema))
    dataset.append([{"id": 1, "at": {"x": 1, "y": 2}}])

    dataset.upsert([{"id": 1, "at": {"y": 3}}], on="id")
    with pytest.raises(SchemaMismatchError, match=r"lacks field 'at.x'.*would be new"):
        dataset.upsert([{"id": 1, "at": {"y": 4}}, {"id": 2, "at": {"y": 4}}], on="id")
    with pytest.raises(SchemaMismatchError, match="'at' have no parts"):
        dataset.upsert([{"id": 1, "at": {}}], on="id")

    assert dataset.arrow().to_pylist() == [{"id": 1, "at": {"x": 1, "y": 3}}]


def test_named_columns_are_updated_under_a_condition(dataset: Dataset) -> None:
    dataset.append([row(1, v=5.0), row(2, v=1.0), row(3, v=None)])
    data = [row(n, v=3.0, name="new") for n in (1, 2, 3, 4)]

    dataset.merge(
        data, "id", update=["v"], update_where="source.v > target.v", not_matched="ignore"
    )

    assert values(dataset) == {1: 5.0, 2: 3.0, 3: None}
    assert values(dataset, "name") == {1: "n1", 2: "n2", 3: "n3"}


def test_values_are_computed_of_both_rows(dataset: Dataset) -> None:
    dataset.append([row(1, v=5.0), row(2, v=None, spot={"y": 2})])

    dataset.merge(
        [{"id": 1, "v": 2.0}, {"id": 2, "v": 7.0}],
        "id",
        update={
            "v": "COALESCE(target.v, 0) + source.v * 10 - 1",
            "name": r"'it\'s'",
            "p": None,
            "spot": "target.spot",
        },
    )

    assert values(dataset) == {1: 24.0, 2: 69.0}
    assert values(dataset, "name") == {1: "it's", 2: "it's"}
    assert values(dataset, "p") == {1: None, 2: None}
    assert values(dataset, "spot") == {1: None, 2: {"y": 2}}


def test_greatest_and_least_know_nan_and_pass_over_null(dataset: Dataset) -> None:
    dataset.append([row(1, v=math.nan), row(2, v=None), row(3, v=1.0)])
    data = [{"id": n, "v": 2.0} for n in (1, 2, 3)]

    dataset.merge(data, "id", update={"v": "GREATEST(target.v, source.v)"})
    assert repr(values(dataset)) == "{1: nan, 2: 2.0, 3: 2.0}"

    dataset.merge(data, "id", update={"v": "LEAST(target.v, source.v, 1.5)"})
    assert values(dataset) == {1: 1.5, 2: 1.5, 3: 1.5}


def test_changes_with_a_mark_are_applied(dataset: Dataset) -> None:
    dataset.append([row(1), row(2), row(3)])
    changes = [
        {"id": 1, "v": 1.0, "op": "U"},
        {"id": 2, "v": None, "op": "D"},
        {"id": 8, "v": None, "op": "D"},
        {"id": 9, "v": 9.0, "op": "I"},
    ]

    report = dataset.merge(
        changes, "id", delete_where="source.op = 'D'", insert_where="source.op != 'D'"
    )

    assert values(dataset) == {1: 1.0, 3: 0.0, 9: 9.0}
    assert report.commit is not None
    assert (report.deleted_row_count, report.commit.deleted_row_count) == (1, 1)


def test_rows_that_match_are_deleted(dataset: Dataset) -> None:
    dataset.append([row(n, v=float(n)) for n in range(4)])

    dataset.merge(
        [{"id": 1}, {"id": 3}, {"id": 7}],
        "id",
        matched="delete",
        delete_where="target.v < 3",
        not_matched="ignore",
    )

    assert values(dataset) == {0: 0.0, 2: 2.0, 3: 3.0}


def test_only_what_is_missing_is_inserted(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1)])
    before = {info.key for info in store.list("d/data")}

    report = dataset.merge([row(1, v=1.0), row(2, v=2.0)], "id", matched="ignore")

    assert values(dataset) == {1: 0.0, 2: 2.0}
    assert report.rewritten_file_count == 0
    assert before < {info.key for info in store.list("d/data")}


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ({"missing": "delete"}, {1: 1.0}),
        ({"missing": "delete", "missing_where": "target.p = 'b'"}, {1: 1.0, 2: 0.0}),
        (
            {"missing": "update", "missing_update": {"v": "target.v - 1"}},
            {1: 1.0, 2: -1.0, 3: -1.0},
        ),
        (
            {"missing": "update", "missing_update": {"v": 5}, "missing_where": "target.id = 3"},
            {1: 1.0, 2: 0.0, 3: 5.0},
        ),
    ],
)
def test_rows_that_the_data_lacks(
    dataset: Dataset, clauses: dict[str, Any], expected: dict[int, float]
) -> None:
    dataset.append([row(1), row(2), row(3, p="b")])

    dataset.merge([row(1, v=1.0)], "id", **clauses)

    assert values(dataset) == expected


def test_data_without_rows_leaves_all_missing(dataset: Dataset) -> None:
    dataset.append([row(1), row(2, p="b")])

    dataset.merge(
        [], "id", missing="delete", missing_where="target.p = 'b'", delete_where="source.op = 'D'"
    )
    assert values(dataset) == {1: 0.0}

    report = dataset.merge(pa.table({"id": pa.array([], pa.int64())}), "id", not_matched="ignore")
    assert (report.commit, dataset.version) == (None, 2)


def test_where_nothing_changes_there_is_no_new_version(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1)])
    before = {info.key for info in store.list("")}

    report = dataset.merge([row(1, v=1.0)], "id", update_where="target.v > 5")

    assert report.commit is None
    assert (report.read_file_count, report.rewritten_file_count) == (1, 0)
    assert dataset.version == 1
    assert {info.key for info in store.list("")} == before


def test_dry_run_says_what_would_be_and_writes_nothing(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1), row(2)])
    before = {info.key for info in store.list("")}
    data = [row(1, v=1.0), row(2, v=-1.0), row(3)]

    planned = dataset.merge(data, "id", delete_where="source.v < 0", dry_run=True)

    assert {info.key for info in store.list("")} == before
    done = dataset.merge(data, "id", delete_where="source.v < 0")
    counts = (
        "inserted_row_count",
        "updated_row_count",
        "deleted_row_count",
        "rewritten_file_count",
    )
    assert [getattr(planned, name) for name in counts] == [1, 1, 1, 1]
    assert [getattr(planned, name) for name in counts] == [getattr(done, name) for name in counts]
    assert (planned.is_dry_run, planned.commit, planned.added_file_count) == (True, None, 0)


class TestKeys:
    def test_null_equals_nothing_and_is_inserted_each_time(self, dataset: Dataset) -> None:
        dataset.append([row(None, v=1.0), row(1)])

        for _ in range(2):
            dataset.merge([row(None, v=2.0), row(None, v=3.0), row(1, v=4.0)], "id")

        told = sorted(one["v"] for one in dataset.kite.reader() if one["id"] is None)
        assert told == [1.0, 2.0, 2.0, 3.0, 3.0]
        assert values(dataset)[1] == 4.0

    def test_nan_equals_itself_and_the_two_zeros_each_other(self, dataset: Dataset) -> None:
        dataset.append([row(1, v=math.nan), row(2, v=0.0), row(3, v=-0.0), row(4, v=1.0)])

        dataset.merge(
            [{"v": math.nan, "name": "nan"}, {"v": -0.0, "name": "zero"}], "v", update=["name"]
        )

        assert values(dataset, "name") == {1: "nan", 2: "zero", 3: "zero", 4: "n4"}

    @pytest.mark.parametrize(
        "twice", [[row(5), row(5)], [row(1), row(5), row(7), row(7), row(5)]], ids=["one", "two"]
    )
    def test_a_key_that_comes_twice_is_an_error_that_shows_it(
        self, dataset: Dataset, store: Store, twice: list[Any]
    ) -> None:
        dataset.append([row(1)])
        before = {info.key for info in store.list("")}

        with pytest.raises(DuplicateKeyError, match=r"id = 5 2 times") as caught:
            dataset.merge(twice, "id")

        assert caught.value.key == "id = 5"
        assert ("1 other key more than once" in str(caught.value)) == (len(twice) > 2)
        assert {info.key for info in store.list("")} == before

    def test_keys_of_several_columns_match_as_a_whole(self, dataset: Dataset) -> None:
        dataset.append([row(n, p=p) for n in (1, 2) for p in "ab"] + [row(3, p=None)])

        dataset.merge(
            [row(1, p="b", v=1.0), row(2, p="a", v=2.0), row(3, p=None, v=3.0)], ["id", "p"]
        )

        told = sorted((one["id"], one["p"] or "", one["v"]) for one in dataset.kite.reader())
        assert told == [
            (1, "a", 0.0), (1, "b", 1.0), (2, "a", 2.0), (2, "b", 0.0), (3, "", 0.0), (3, "", 3.0),
        ]  # fmt: skip

    def test_several_rows_of_the_dataset_may_match_one_of_the_data(self, dataset: Dataset) -> None:
        dataset.append([row(1, name="x"), row(1, name="y")])

        report = dataset.merge([{"id": 1, "v": 1.0}], "id")

        assert report.updated_row_count == 2
        assert [one["v"] for one in dataset.kite.reader()] == [1.0, 1.0]

    @pytest.mark.parametrize(
        ("kind", "known", "new"),
        [
            (pa.bool_(), True, False),
            (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
            (pa.timestamp("us", tz="UTC"), dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
             dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
            (pa.decimal128(20, 3), 5, 7),
            (pa.binary(), b"", b"\x00\xff"),
            (pa.float32(), 0.1, math.inf),
            (pa.uint64(), 2**64 - 1, 0),
            (pa.string(), "é/☺", "e"),
        ],
        ids=str,
    )  # fmt: skip
    @pytest.mark.parametrize("is_indexed", [False, True])
    def test_keys_of_any_plain_type(
        self, store: Store, kind: pa.DataType, known: Any, new: Any, is_indexed: bool
    ) -> None:
        schema = pa.schema([("k", kind), ("v", pa.int64())])
        index = ["k"] if is_indexed else []
        dataset = Repository(store).create("d", DatasetDescriptor(schema=schema, index=index))
        dataset.append(pa.table({"k": [known], "v": [1]}, schema=schema))

        report = dataset.merge(pa.table({"k": [known, new], "v": [2, 3]}, schema=schema), "k")

        assert (report.updated_row_count, report.inserted_row_count) == (1, 1)
        assert sorted(dataset.arrow()["v"].to_pylist()) == [2, 3]

    def test_times_that_python_does_not_know_are_keys_all_the_same(self, store: Store) -> None:
        schema = pa.schema([("k", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
        dataset = Repository(store).create("d", DatasetDescriptor(schema=schema))
        far = pa.array([2**62, 5], pa.timestamp("us", tz="UTC"))
        dataset.append(pa.table([far, [1, 2]], schema=schema))

        dataset.merge(pa.table([far, [3, 4]], schema=schema), "k")

        assert dataset.arrow(["v"])["v"].to_pylist() == [3, 4]

    def test_more_keys_than_are_named_one_by_one(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lakebed.work.merge._MOST_VALUES", 3)
        dataset = make(store, index=["id"])
        dataset.with_options(write=ONE_ROW_A_FILE).append(
            [row(n, v=math.nan if n == 9 else float(n)) for n in range(20)]
        )

        report = dataset.merge([row(n, v=-1.0) for n in range(5, 10)], "id")
        assert (report.read_file_count, report.updated_row_count) == (5, 5)

        keys = [{"v": v, "name": "m"} for v in (15.0, 16.0, 17.0, math.nan, 18.0)]
        report = dataset.merge(keys, "v")
        assert (report.updated_row_count, report.inserted_row_count) == (4, 1)


class TestFiles:
    def test_only_files_with_a_key_are_rewritten_and_of_others_only_keys_are_read(
        self, store: Store
    ) -> None:
        dataset = make(store)
        for first in (0, 10, 20):
            dataset.append([row(first + n, v=0.0) for n in (0, 5)])
        before = dataset.files()

        # Between the bounds of two files, but in one only.
        report = dataset.merge([row(5, v=5.0), row(12, v=12.0)], "id")

        assert (report.read_file_count, report.rewritten_file_count) == (2, 1)
        assert len(set(before) & set(dataset.files())) == 2

    def test_files_are_found_by_partitions_that_keys_tell(self, store: Store) -> None:
        dataset = make(store, by.hash("id", 8), by.identity("p"))
        dataset.append([row(n) for n in range(40)])

        report = dataset.merge([row(3, v=1.0)], "id")

        assert len(dataset.inspect.partitions()) > 5
        assert report.read_file_count == 1

    def test_files_are_found_by_an_index(self, store: Store) -> None:
        dataset = make(store, index=["name"])
        for start in range(6):
            # Bounds of all files are the same.
            dataset.append([row(1, name="a"), row(2, name=f"k{start}"), row(3, name="z")])
        counting = CountingStore(store)

        report = Repository(counting).open("d").merge([row(7, name="k3", v=1.0)], "name")

        assert (report.read_file_count, report.rewritten_file_count) == (1, 1)
        assert values(dataset)[7] == 1.0

    def test_a_file_without_rows_left_goes_without_being_read_as_a_whole(
        self, store: Store
    ) -> None:
        dataset = make(store, by.identity("p"))
        dataset.append([row(1, p="x"), row(2, p="x"), row(3, p="y")])

        report = dataset.merge([{"id": 1}, {"id": 2}], "id", matched="delete", not_matched="ignore")

        assert report.commit is not None
        assert (report.commit.files_added, len(report.commit.files_removed)) == ((), 1)
        assert values(dataset) == {3: 0.0}

    def test_rows_move_to_the_partition_of_their_new_values(self, store: Store) -> None:
        dataset = make(store, by.identity("p"), by.provided("source"))
        dataset.kite.with_("source", "web").append([row(1), row(2), row(3, p="b")])

        dataset.kite.with_("source", "web").merge(
            [row(1, p="b", v=1.0), row(2, p="a", v=2.0)], "id"
        )

        assert values(dataset.kite.with_("p", "b").kite.with_("source", "web")) == {1: 1.0, 3: 0.0}
        assert values(dataset.kite.with_("p", "a")) == {2: 2.0}
        assert {one.path for one in dataset.inspect.partitions()} == {
            "p=a/source=web",
            "p=b/source=web",
        }

    def test_rows_keep_their_order_where_they_stay(self, store: Store) -> None:
        dataset = make(store)
        dataset.append([row(n) for n in range(50)])

        dataset.merge([row(n, v=1.0) for n in (40, 7, 3)], "id")

        assert dataset.arrow()["id"].to_pylist() == list(range(50))

    def test_capped_dimensions_keep_their_cap(self, store: Store) -> None:
        dataset = make(store, by.dimension("p", "*", cap=2))
        dataset.append([row(1, p="a"), row(2, p="a")])

        report = dataset.merge([row(1, p="b"), row(2, p="c"), row(3, p="d")], "id")

        assert len([one for one in dataset.inspect.partitions() if "OTHER" not in one.path]) <= 2
        assert values(dataset, "p") == {1: "b", 2: "c", 3: "d"}
        assert report.commit is not None
        assert report.commit.caught

    def test_damaged_files_are_not_written_anew_as_if_they_were_right(self, tmp_path: Path) -> None:
        dataset = lakebed.open_repository(tmp_path).create("d", DatasetDescriptor(schema=SCHEMA))
        dataset.append([row(n, name="x" * 200) for n in range(50)])
        (file,) = dataset.files()
        path = tmp_path / file.key
        data = bytearray(path.read_bytes())
        data[-200] ^= 0xFF
        path.write_bytes(data)

        with pytest.raises(LakebedError, match=r"damaged|read|not what"):
            dataset.merge([row(3, v=1.0)], "id")

        assert dataset.version == 1


class TestViews:
    def test_only_what_is_in_the_view_matches_and_is_missing(self, store: Store) -> None:
        dataset = make(store, by.identity("p"))
        dataset.append([row(1), row(1, p="b"), row(2, p="b"), row(3)])

        dataset.where("p = 'b'").merge(
            [row(1, p="b", v=1.0), row(4, p="b")], "id", missing="delete"
        )

        told = sorted((one["id"], one["p"], one["v"]) for one in dataset.kite.reader())
        assert told == [(1, "a", 0.0), (1, "b", 1.0), (3, "a", 0.0), (4, "b", 0.0)]

    @pytest.mark.parametrize("where", ["p = 'b'", "v < 5"])
    @pytest.mark.parametrize("id_", [1, 9], ids=["updated", "inserted"])
    @pytest.mark.parametrize("function", [by.identity("p"), by.hash("id", 2)], ids=str)
    def test_what_is_written_must_be_in_the_view(
        self, store: Store, where: str, id_: int, function: Any
    ) -> None:
        dataset = make(store, function)
        dataset.append([row(1, p="b")])

        with pytest.raises(InvalidInputError, match="outside the view"):
            dataset.where(where).merge([row(id_, p="a", v=7.0)], "id")

        assert dataset.version == 1

    def test_older_states_and_snapshots_are_read_only(self, dataset: Dataset) -> None:
        dataset.append([row(1)])

        with pytest.raises(ReadOnlyError):
            dataset.at(version=1).merge([row(1)], "id")
        with dataset.transaction() as t, pytest.raises(ReadOnlyError):
            t.merge([row(1)], "id")


class TestRefusals:
    @pytest.mark.parametrize(
        ("clauses", "message"),
        [
            ({"on": []}, "at least one column"),
            ({"on": ["id", "id"]}, "twice"),
            ({"on": 3}, "on is 3"),
            ({"on": "ID"}, "Did you mean 'id'"),
            ({"on": ["spot"]}, "cannot be a key"),
            ({"on": ["ID"]}, "'ID'"),
            ({"on": "id, name"}, "Give on=['id', 'name']."),
            ({"on": ["id,name"]}, "Give on=['id', 'name']."),
            ({"on": [3]}, "names 3"),
            ({"matched": "upsert"}, "matched is 'upsert'"),
            ({"missing": "drop"}, "missing is 'drop'"),
            ({"matched": "delete", "update": ["v"]}, "update is given, but matched is 'delete'"),
            ({"matched": "ignore", "delete_where": "TRUE"}, "delete_where is given"),
            ({"not_matched": "ignore", "insert_where": "TRUE"}, "insert_where is given"),
            ({"missing_where": "target.v = 1"}, "missing_where is given"),
            ({"missing": "update"}, "no new values are given"),
            ({"update": []}, "names no column"),
            ({"update": "w"}, "'w'"),
            ({"update": ["w"]}, "'w'"),
            ({"update": ["spot"]}, "lacks column 'spot'"),
            ({"update": {"w": 1}}, "'w'"),
            ({"update": {"v": "far"}}, "far"),
            ({"update": {"v": [1]}}, "does not fit"),
            ({"update": {"v": "source.name"}}, "is set by column 'name' of type string"),
            ({"update": {"spot": "target.v"}}, "of type double"),
            ({"update": {"name": "source.name + 'x'"}}, "is not a value of type"),
            ({"update": {"v": "upper(source.name)"}}, "assigned to a field"),
            ({"update": {"name": "uuid()"}}, "without Spark"),
            ({"update_where": "v > 3"}, "Unknown column 'v'"),
            ({"update_where": "source.v > target.spot"}, "is compared with"),
            ({"insert_where": "target.v = 1"}, "target.v"),
            ({"missing": "delete", "missing_where": "source.v = 1"}, "source.v"),
            ({"delete_where": True}, "delete_where is True"),
            ({"update": True}, "update is True"),
            ({"update": [True]}, "update names True"),
            ({"missing": "update", "missing_update": "target.v + 1"}, "missing_update is"),
        ],
    )  # fmt: skip
    def test_clauses_that_mean_nothing_are_refused_by_name(
        self, dataset: Dataset, clauses: dict[str, Any], message: str
    ) -> None:
        dataset.append([row(1)])
        data = pa.table({"id": [1], "v": [2.0], "name": ["x"]})

        with pytest.raises(InvalidInputError) as caught:
            dataset.merge(data, **{"on": ["id"], **clauses})

        assert message in str(caught.value)
        assert caught.value.hint
        assert dataset.version == 1

    @pytest.mark.parametrize(
        ("data", "error"),
        [
            ([{"id": 1, "w": 2}], SchemaMismatchError),
            ([{"v": 1.0}], SchemaMismatchError),
            ([{"id": "one"}], SchemaMismatchError),
            (pa.table({"id": ["one"]}), SchemaMismatchError),
            (pa.table({"id": [1.5]}), SchemaMismatchError),
            # It would be looked for within a column `v`, and pass as one that a condition names.
            (pa.table({"id": [1], "v.x": [1.5]}), SchemaMismatchError),
            ([{"id": 1, "v.x": 1.5}], SchemaMismatchError),
            ({"id": 1}, InvalidInputError),
            (5, InvalidInputError),
            ([{"id": 1}, pa.table({"id": ["x"]})], SchemaMismatchError),
        ],
    )
    def test_data_that_does_not_fit_is_refused(
        self, dataset: Dataset, data: Any, error: type[LakebedError]
    ) -> None:
        dataset.append([row(1)])

        with pytest.raises(error):
            dataset.merge(data, "id")

        assert dataset.version == 1

    def test_columns_of_the_data_that_only_conditions_name_are_taken(
        self, dataset: Dataset
    ) -> None:
        dataset.append([row(1)])

        dataset.merge(pa.table({"id": [1], "seen": [3.0]}), "id", update={"v": "source.seen"})

        assert values(dataset) == {1: 3.0}

    def test_new_rows_need_what_an_append_needs(self, store: Store) -> None:
        dataset = make(store, by.identity("p"))
        dataset.append([row(1)])

        before = {info.key for info in store.list("")}
        data = [{"id": 1, "v": 1.0}, {"id": 5, "v": 5.0}, {"id": 6, "v": 6.0}]

        for is_dry_run in (True, False):
            with pytest.raises(
                PartitionSpecError, match=r"lacks 'p'.* 2 of its rows match no"
            ) as e:
                dataset.merge(data, "id", dry_run=is_dry_run)
            assert 'not_matched="ignore"' in e.value.hint

        assert {info.key for info in store.list("")} == before
        dataset.merge(data, "id", not_matched="ignore")
        assert values(dataset) == {1: 1.0}

    @pytest.mark.parametrize("clauses", [{}, {"insert_where": "source.v > 10"}])
    def test_data_that_brings_no_new_rows_may_lack_what_these_would_need(
        self, store: Store, clauses: dict[str, Any]
    ) -> None:
        schema = pa.schema([*SCHEMA, pa.field("must", pa.int64(), nullable=False)])
        descriptor = DatasetDescriptor(schema=schema, partition_by=[by.identity("p")])
        dataset = Repository(store).create("d", descriptor)
        dataset.append([row(1, must=1), row(2, p="b", must=2)])
        more = [{"id": 9, "v": 9.0}] if clauses else []

        report = dataset.merge([{"id": 1, "v": 1.0}, {"id": 2, "v": 2.0}, *more], "id", **clauses)

        assert (report.updated_row_count, report.inserted_row_count) == (2, 0)
        assert values(dataset) == {1: 1.0, 2: 2.0}
        assert values(dataset, "must") == {1: 1, 2: 2}
        assert values(dataset, "p") == {1: "a", 2: "b"}
        with pytest.raises(
            SchemaMismatchError, match="'must', which is not nullable, and 1 of its"
        ):
            dataset.upsert([{"id": 9, "p": "a"}], "id")

    def test_values_beyond_the_type_are_refused(self, store: Store) -> None:
        schema = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int32(), nullable=False)])
        dataset = Repository(store).create("d", DatasetDescriptor(schema=schema))
        dataset.append([{"id": 1, "n": 2**31 - 1}])

        with pytest.raises(SchemaMismatchError, match="'n'"):
            dataset.merge([{"id": 1, "n": 1}], "id", update={"n": "target.n + source.n"})
        with pytest.raises(SchemaMismatchError, match="not nullable"):
            dataset.merge([{"id": 1, "n": 1}], "id", update={"n": None})

        assert dataset.version == 1

    def test_submissions_are_refused(self, store: Store) -> None:
        schema = pa.schema([("uuid", pa.string()), ("document", pa.string())])
        descriptor = DatasetDescriptor(schema=schema, format="submissions")

        with pytest.raises(InvalidInputError, match="submissions"):
            Repository(store).create("d", descriptor).merge(
                [{"uuid": "u", "document": "{}"}], "uuid"
            )


class TestRuns:
    def test_an_updated_row_stays_with_its_run_and_a_new_one_is_of_the_merges(
        self, dataset: Dataset
    ) -> None:
        dataset.append([row(1), row(2)], run="monday")
        dataset.append([row(3)])
        dataset.merge([row(n, v=1.0) for n in (2, 3, 4)], "id", run="changes")

        dataset.rerun([row(1, v=5.0), row(2, v=5.0)], "monday", replace_all=True)
        assert values(dataset) == {1: 5.0, 2: 5.0, 3: 1.0, 4: 1.0}

        dataset.rerun([], "changes", replace_all=True)
        assert values(dataset) == {1: 5.0, 2: 5.0, 3: 1.0}

    def test_rows_stay_with_their_raw_file(self, tmp_path: Path) -> None:
        raw = tmp_path / "in"
        raw.mkdir()
        (raw / "a.jsonl").write_text('{"id": 1, "v": 1.0}\n{"id": 2, "v": 2.0}\n')
        ingest = lakebed.Ingest(
            name="changes",
            into=f"{tmp_path}/lake/d",
            source=lakebed.FromFiles(paths=f"{raw}/", supersede="path"),
            create=DatasetDescriptor(schema=SCHEMA),
        )
        ingest.run()
        dataset = lakebed.open_repository(tmp_path / "lake").open("d")
        dataset.merge([{"id": 2, "v": 9.0}, {"id": 3, "v": 3.0}], "id")

        (raw / "a.jsonl").write_text('{"id": 1, "v": 7.0}\n')
        os.utime(raw / "a.jsonl", (0, 0))
        ingest.run()

        # What the file had brought is gone with it, also where a merge has changed it.
        assert values(dataset) == {1: 7.0, 3: 3.0}

    def test_indices_and_facts_are_those_of_the_new_files(self, store: Store) -> None:
        dataset = make(store, by.identity("p"), index=["name"])
        dataset.append([row(n) for n in range(10)])

        dataset.merge([row(3, name="new"), row(11, p="b", name="more")], "id")

        assert values(dataset.where("name IN ('new', 'more', 'n3')"), "name") == {
            3: "new",
            11: "more",
        }
        assert dataset.where("name = 'new'").count() == 1
        assert dataset.check(deep=True).is_ok


class TestOthers:
    """What others do meanwhile."""

    def _beside(
        self, store: Store, before: str, act: Callable[[Dataset], object], **others: Any
    ) -> Dataset:
        meddling = Meddling(store)
        beside = Repository(store).open("d")
        meddling.before, meddling.act = before, functools.partial(act, beside)
        return Repository(meddling).open("d")

    @pytest.mark.parametrize("before", ["head", "file"])
    def test_a_key_that_another_adds_meanwhile_is_updated_and_not_inserted_again(
        self, dataset: Dataset, store: Store, before: str
    ) -> None:
        dataset.append([row(1)])
        merging = self._beside(store, before, lambda one: one.append([row(2), row(7)]))

        report = merging.merge([row(1, v=1.0), row(2, v=2.0)], "id")

        assert (report.inserted_row_count, report.updated_row_count) == (0, 2)
        assert values(dataset) == {1: 1.0, 2: 2.0, 7: 0.0}
        assert dataset.count() == 3

    @pytest.mark.parametrize("before", ["head", "file"])
    @pytest.mark.parametrize(
        "act",
        [
            lambda one: one.where("id = 2").delete(),
            lambda one: one.merge([row(2, v=7.0)], "id"),
            lambda one: one.rerun([row(5)], "monday", replace_all=True),
            lambda one: one.compact(),
            lambda one: one.overwrite([row(8)]),
        ],
        ids=["delete", "merge", "rerun", "compact", "overwrite"],
    )
    def test_what_others_rewrite_meanwhile_is_merged_into(
        self, dataset: Dataset, store: Store, before: str, act: Callable[[Dataset], object]
    ) -> None:
        dataset.append([row(1)], run="monday")
        dataset.append([row(2), row(3)], run="monday")
        expected = Repository(copy_of(store)).open("d")
        act(expected)
        expected.merge([row(1, v=1.0), row(2, v=2.0)], "id")

        merging = self._beside(store, before, act)
        merging.merge([row(1, v=1.0), row(2, v=2.0)], "id")

        assert values(dataset) == values(expected)
        assert dataset.count() == expected.count()

    def test_a_match_that_goes_meanwhile_is_inserted(self, dataset: Dataset, store: Store) -> None:
        dataset.append([row(1)])
        merging = self._beside(store, "head", lambda one: one.where("id = 1").delete())

        merging.merge([row(1, v=1.0), row(2, v=2.0)], "id", matched="ignore")

        assert values(dataset) == {1: 1.0, 2: 2.0}

    def test_appends_to_partitions_where_no_key_may_be_hinder_nobody(self, store: Store) -> None:
        dataset = make(store, by.identity("p"))
        dataset.append([row(1), row(2, p="b")])
        merging = self._beside(store, "head", lambda one: one.append([row(3, p="b")]))
        counting = store_of(merging)

        report = merging.where("p = 'a'").merge([row(1, v=1.0)], "id")

        assert report.read_file_count == 1
        assert isinstance(counting, Meddling)
        assert values(dataset) == {1: 1.0, 2: 0.0, 3: 0.0}

    def test_two_upserts_of_one_new_key_leave_one_row(self, dataset: Dataset, store: Store) -> None:
        merging = self._beside(store, "head", lambda one: one.upsert([row(1, v=1.0)], "id"))

        merging.upsert([row(1, v=2.0)], "id")

        assert [one["v"] for one in dataset.kite.reader()] == [2.0]

    def test_with_a_base_a_commit_since_that_may_have_touched_a_key_is_a_conflict(
        self, store: Store
    ) -> None:
        dataset = make(store, by.identity("p"))
        dataset.append([row(1), row(2, p="b")])
        view = dataset.where("p = 'a'")
        snapshot = view.snapshot()
        dataset.append([row(3, p="b")])
        view.merge([row(1, v=1.0)], "id", base=snapshot)

        dataset.append([row(4)])
        with pytest.raises(CommitConflictError, match="p=a"):
            view.merge([row(1, v=2.0)], "id", base=2)

        assert values(dataset)[1] == 1.0

    def test_others_that_are_faster_each_time_are_a_conflict(
        self, dataset: Dataset, store: Store
    ) -> None:
        dataset.append([row(1)])

        class Busy(DelegatingStore):
            is_busy = True

            def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
                if self.is_busy:
                    dataset.merge([row(1, v=7.0)], "id")
                return super()._replace(key, data, if_match=if_match)

        with pytest.raises(CommitConflictError):
            Repository(Busy(store)).open("d").merge([row(1, v=1.0)], "id")

        assert values(dataset) == {1: 7.0}

    def test_a_field_that_is_added_meanwhile_is_there(self, dataset: Dataset, store: Store) -> None:
        dataset.append([row(1)])
        wider = DatasetDescriptor(schema=SCHEMA.append(pa.field("more", pa.int64())))
        merging = self._beside(store, "file", lambda one: one.evolve(wider, base=one.version))

        merging.merge([row(1, v=1.0), row(2)], "id")

        assert values(Repository(store).open("d"), "more") == {1: None, 2: None}
        assert values(dataset)[1] == 1.0


class TestLargeData:
    def test_data_beyond_memory_waits_in_a_file(
        self, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(held_rows, "MEMORY_BYTES", 1)
        dataset.append([row(n) for n in range(100)])
        data = pa.Table.from_pylist([row(n, v=float(n)) for n in range(50, 150)], schema=SCHEMA)

        with held_rows.hold(data.to_batches(max_chunksize=7), memory_bytes=100) as held:
            assert len(held) == 100
            places = pa.array([99, 0, 50, 50]).to_numpy()
            assert held.take(places, ["id"])["id"].to_pylist() == [149, 50, 100, 100]
            assert held.columns(["v"])["v"].to_pylist() == data["v"].to_pylist()
        report = dataset.merge(_reader(data), "id")

        assert (report.updated_row_count, report.inserted_row_count) == (50, 50)


class TestRandom:
    @pytest.mark.parametrize("first", range(0, 40, 10))
    def test_merges_do_what_the_model_does(self, first: int) -> None:
        for seed in range(first, first + 10):
            play(seed)

    @pytest.mark.long
    @pytest.mark.parametrize("first", range(1_000, 2_000, 100))
    def test_a_thousand_times(self, first: int) -> None:
        for seed in range(first, first + 100):
            play(seed)


def play(seed: int) -> None:
    model = Model(seed)
    for _ in range(6):
        model.step()
        model.check()
    model.check_sound()


DENIED = AccessDeniedError("Access was denied.")
LOST = StorageError("The answer was lost.", retryable=True)
QUICK = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)


@functools.cache
def filled() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    dataset = make(store, by.identity("p"), index=["id"])
    dataset.append([row(n, p="ab"[n % 2]) for n in range(6)], run="monday")
    return store


def merge_all(repository: Repository) -> None:
    data = [row(1, p="a", v=1.0), row(2, v=-1.0), row(9, v=9.0)]
    repository.open("d").with_options(commit=QUICK).merge(
        data, "id", delete_where="source.v < 0", run="m"
    )


AFTER = {0: 0.0, 1: 1.0, 3: 0.0, 4: 0.0, 5: 0.0, 9: 9.0}
BEFORE = dict.fromkeys(range(6), 0.0)
CALLS = writing_calls(copy_of(filled()), merge_all)


@pytest.mark.parametrize(("name", "nth"), CALLS)
def test_a_store_that_refuses_a_call_leaves_all_as_it_was(
    name: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, unfolded = copy_of(filled()), copy_of(filled())
    before = {info.key for info in store.list("")}

    try:
        merge_all(Repository(FailingStore(store, fail_on=name, nth=nth, error=DENIED)))
    except AccessDeniedError:
        expected = BEFORE
        assert {info.key for info in store.list("")} == before
    else:  # the fold of a tree, after the commit, leaves nothing of its own
        assert ON_TREES
        expected = AFTER
        monkeypatch.setattr(stored_folds, "fold_stored", lambda *_: False)
        merge_all(Repository(unfolded))
        assert len(list(store.list(""))) == len(list(unfolded.list("")))

    assert values(Repository(store).open("d")) == expected


@pytest.mark.parametrize(("name", "nth"), CALLS)
def test_an_answer_that_is_lost_leaves_the_old_state_or_the_new(name: str, nth: int) -> None:
    store = copy_of(filled())
    failing = FailingStore(store, fail_on=name, nth=nth, error=LOST, landed=True)

    try:
        merge_all(Repository(failing))
        expected = [AFTER]
    except LakebedError:
        expected = [BEFORE, AFTER]

    dataset = Repository(store).open("d")
    assert values(dataset) in expected
    assert dataset.count() == len(values(dataset))
