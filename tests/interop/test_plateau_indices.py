"""Index files that plateau reads: its answers with them are those of a look at every row."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.state.reader import read_head

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
        dataset.build_index(column)
    dataset.compact_metadata()
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


def test_an_index_is_no_longer_named_after_an_append(
    flights: lakebed.Dataset, tmp_path: Path, plateau: Any
) -> None:
    new = {**row(100), "tail": "N100"}

    flights.append([new])

    assert plateau.indices(tmp_path, "flights") == []
    assert plateau.ids(tmp_path, "flights", predicates=[[("tail", "==", "N100")]]) == [100]


def test_what_plateau_adds_is_found_by_both(
    flights: lakebed.Dataset, tmp_path: Path, plateau: Any
) -> None:
    new = {**row(200), "tail": "N200", "batch_id": 1}

    plateau.update(tmp_path, "flights", rows=[new])

    where = [[("tail", "==", "N200")]]
    assert plateau.ids(tmp_path, "flights", predicates=where) == [200]
    assert [one["id"] for one in flights.where(where).reader()] == [200]
    assert flights.where([[("tail", "==", ROWS[3]["tail"])]]).count() == len(
        [one for one in ROWS if one["tail"] == ROWS[3]["tail"]]
    )
