"""Index files that plateau reads: its answers with them are those of a look at every row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.state.reader import read_head

pytestmark = pytest.mark.interop

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("tail", pa.string()),
        ("small", pa.int32()),
        ("large", pa.uint64()),
        ("delay", pa.float64()),
        ("day", pa.date32()),
        ("is_late", pa.bool_()),
        ("sparse", pa.string()),
    ]
)
INDEXED = ["tail", "small", "large", "delay", "day", "is_late", "sparse"]


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "carrier": f"c {number % 3}",
        "tail": f"N{number % 7} ä/%",
        "small": number % 5 - 2,
        "large": 2**64 - 1 - number % 4,
        "delay": number % 6 / 4,
        "day": dt.date(2013, 1, 1) + dt.timedelta(days=number % 9),
        "is_late": number % 40 < 20,
        "sparse": None if number == 11 else f"s{number % 8}",
    }


ROWS = [row(number) for number in range(60)]


def make_flights(location: Path) -> lakebed.Dataset:
    """Write three batches, index what is there, and what comes."""
    repository = lakebed.open_repository(location)
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="carrier", index=INDEXED[:3])
    dataset = repository.create("flights", descriptor)
    for start in range(0, 60, 20):
        dataset.append(ROWS[start : start + 20])
    for column in INDEXED[3:]:
        dataset.indices.build(column)
    dataset.compact(metadata=True)
    return dataset


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that no test changes."""
    location = tmp_path_factory.mktemp("indices")
    make_flights(location)
    return location


@pytest.fixture
def flights(tmp_path: Path) -> lakebed.Dataset:
    return make_flights(tmp_path)


def test_plateau_knows_the_indices_that_are_right(lake: Path, plateau: Any) -> None:
    # The null of one row has no place in an index of plateau, which would lose the row.
    assert plateau.indices(lake, "flights") == sorted(set(INDEXED) - {"sparse"})


@pytest.mark.parametrize("column", INDEXED)
@pytest.mark.parametrize("op", ["==", "<", ">=", "in"])
def test_plateau_finds_the_rows_of_a_predicate_on_an_indexed_column(
    lake: Path, plateau: Any, column: str, op: str
) -> None:
    wanted = ROWS[3][column]
    if column in ("is_late", "sparse") and op in ("<", ">="):
        op = "=="
    holds = {
        "==": lambda value: value == wanted,
        "<": lambda value: value < wanted,
        ">=": lambda value: value >= wanted,
        "in": lambda value: value in (wanted, ROWS[5][column]),
    }[op]
    value = [wanted, ROWS[5][column]] if op == "in" else wanted

    found = plateau.ids(lake, "flights", predicates=[[(column, op, value)]])

    assert found == [one["id"] for one in ROWS if one[column] is not None and holds(one[column])]


def test_plateau_looks_a_value_up_in_the_index(lake: Path, plateau: Any) -> None:
    wanted = ROWS[3]["tail"]

    labels = plateau.query_index(lake, "flights", column="tail", value=wanted)

    live = read_head(lakebed.open_repository(lake).store, "flights").state.labels
    assert labels == sorted(
        label
        for label in live
        if wanted
        in pq.ParquetFile(lake / f"flights/data/{label}.parquet").read(["tail"])["tail"].to_pylist()
    )


COMMITS: dict[str, Callable[[lakebed.Dataset], object]] = {
    "append": lambda flights: flights.append([{**row(100), "tail": "N100"}]),
    "overwrite": lambda flights: flights.overwrite([row(3), row(6)]),
    "delete of rows": lambda flights: flights.delete(flights.where("id < 30")),
    "compaction": lambda flights: flights.compact(),
    "rollback": lambda flights: flights.rollback(version=1),
}


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS.keys())
def test_plateau_looks_up_by_index_after_every_commit(
    flights: lakebed.Dataset,
    tmp_path: Path,
    plateau: Any,
    commit: Callable[[lakebed.Dataset], object],
) -> None:
    commit(flights)

    # The nulls of a rollback's state are those of its files: it has none in the first version.
    assert set(plateau.indices(tmp_path, "flights")) >= set(INDEXED) - {"sparse"}
    for where in (
        [[("tail", "==", ROWS[3]["tail"])]],
        [[("tail", "==", "N100")], [("small", "==", -2), ("day", ">", dt.date(2013, 1, 5))]],
        [[("large", "==", ROWS[3]["large"]), ("is_late", "==", True)]],
    ):
        dispatched = set(plateau.dispatch(tmp_path, "flights", predicates=where))
        expected = sorted(one["id"] for one in flights.where(where).kite.reader())
        assert plateau.ids(tmp_path, "flights", predicates=where) == expected
        # What has no match is not opened by it, where one value is asked for.
        if len(where) == len(where[0]) == 1:
            assert dispatched == {file.label for file in flights.where(where).plan().files}


def test_plateau_updates_beside_an_index_of_large_texts_and_both_find_the_rows(
    tmp_path: Path, plateau: Any
) -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA,
        partition_by="carrier",
        index=["tail", "small"],
        properties={"kartothek.indices": "large_string"},
    )
    flights = lakebed.open_repository(tmp_path).create("flights", descriptor)
    flights.append(ROWS[:20])

    plateau.update(tmp_path, "flights", rows=[{**row(200), "tail": "N200", "batch_id": 1}])
    flights.append([{**row(201), "tail": "N200"}])
    plateau.update(tmp_path, "flights", rows=[{**row(202), "tail": "N200", "batch_id": 2}])

    where = [[("tail", "==", "N200")]]
    assert plateau.indices(tmp_path, "flights") == ["small", "tail"]
    assert plateau.ids(tmp_path, "flights", predicates=where) == [200, 201, 202]
    assert sorted(one["id"] for one in flights.where(where).kite.reader()) == [200, 201, 202]
    assert len(flights.where(where).plan().files) == 3


def test_texts_of_an_index_are_of_the_type_that_both_others_read(lake: Path) -> None:
    state = read_head(lakebed.open_repository(lake).store, "flights").state

    types = {
        column: pq.ParquetFile(lake / key).schema_arrow.field(column).type
        for column, key in state.indices.items()
    }

    # kartothek 5.3 refuses large_string in an index.
    assert types["tail"] == pa.string()
    assert (types["small"], types["large"]) == (pa.int64(), pa.uint64())


def test_what_plateau_adds_is_found_by_both(
    flights: lakebed.Dataset, tmp_path: Path, plateau: Any
) -> None:
    flights.indices.drop("tail")
    new = {**row(200), "small": 77, "tail": "N200", "batch_id": 1}

    plateau.update(tmp_path, "flights", rows=[new])

    where = [[("small", "==", 77)]]
    assert plateau.ids(tmp_path, "flights", predicates=where) == [200]
    assert [one["id"] for one in flights.where(where).kite.reader()] == [200]
    assert flights.where([[("small", "==", ROWS[3]["small"])]]).count() == len(
        [one for one in ROWS if one["small"] == ROWS[3]["small"]]
    )


def test_plans_go_by_what_plateau_notes_of_its_own_files(
    flights: lakebed.Dataset, tmp_path: Path, plateau: Any
) -> None:
    flights.indices.drop("tail")
    rows = [{**row(200 + n), "small": 77 + n, "batch_id": 1 + n} for n in range(3)]
    plateau.update(tmp_path, "flights", rows=rows)

    found = {value: flights.where(f"small = {value}").plan() for value in (78, 79, 1000)}

    # Files of ours by our postings, files of plateau by its index.
    assert {value: len(one.files) for value, one in found.items()} == {78: 1, 79: 1, 1000: 0}
    assert flights.where("small = 78").count() == 1
    flights.append([{**row(300), "small": 78}])
    assert sorted(one["id"] for one in flights.where("small = 78").kite.reader()) == [201, 300]


def test_plateau_refuses_to_update_beside_an_index_of_texts_and_changes_nothing(
    flights: lakebed.Dataset, tmp_path: Path, plateau: Any
) -> None:
    head = (tmp_path / "flights.by-dataset-metadata.json").read_bytes()

    with pytest.raises(plateau.Error, match="Expected `string` but got `large_string`"):
        plateau.update(tmp_path, "flights", rows=[{**row(200), "batch_id": 1}])

    assert (tmp_path / "flights.by-dataset-metadata.json").read_bytes() == head
    assert flights.count() == plateau_count(plateau, tmp_path) == len(ROWS)


def plateau_count(plateau: Any, location: Path) -> int:
    return len(plateau.ids(location, "flights"))


@pytest.mark.parametrize("partition_on", [["carrier"], ["batch_id"], ["batch_id", "carrier"]])
def test_what_plateau_calls_batch_id_is_a_column(
    tmp_path: Path, plateau: Any, partition_on: list[str]
) -> None:
    rows = [{**row(n), "batch_id": f"b{n % 4}"} for n in range(20)]

    plateau.store(
        tmp_path, "theirs", rows=rows, partition_on=partition_on, secondary_indices=["tail"]
    )

    theirs = lakebed.open_repository(tmp_path).open("theirs")
    found = {one["id"]: one["batch_id"] for one in theirs.kite.reader()}
    assert found == {one["id"]: one["batch_id"] for one in rows}
    assert theirs.where("batch_id = 'b1'").count() == 5
    plan = theirs.where([[("tail", "==", "no such")]]).plan()
    assert (len(plan.files), plan.account.dropped_by_index) == (0, len(theirs.files()))
    assert theirs.where([[("tail", "==", rows[3]["tail"])]]).count() == len(
        [one for one in rows if one["tail"] == rows[3]["tail"]]
    )


@pytest.mark.parametrize("head", ["json", "msgpack"])
def test_plans_keep_the_files_that_plateau_dispatches(
    tmp_path: Path, plateau: Any, head: str
) -> None:
    rows = [{**row(n), "carrier": f"c {n % 12}", "sparse": "s"} for n in range(240)]
    plateau.store(
        tmp_path,
        "theirs",
        rows=rows,
        partition_on=["carrier"],
        secondary_indices=["id", "tail", "day"],
        metadata_storage_format=head,
    )
    theirs = lakebed.open_repository(tmp_path).open("theirs")

    for where in (
        [[("id", "==", 77)]],
        [[("id", "in", [5, 100, 239])]],
        [[("tail", "==", rows[3]["tail"]), ("carrier", "==", "c 3")]],
        [[("id", "<", 7)]],
        [[("id", "==", 1)], [("id", "==", 200), ("carrier", "==", "c 8")]],
        [[("day", "==", rows[4]["day"]), ("id", ">", 200)]],
        [[("id", "==", 10_000)]],
    ):
        kept = {file.label for file in theirs.where(where).plan().files}
        assert kept == set(plateau.dispatch(tmp_path, "theirs", predicates=where)), where
        found = sorted(one["id"] for one in theirs.where(where).kite.reader())
        assert found == plateau.ids(tmp_path, "theirs", predicates=where)
