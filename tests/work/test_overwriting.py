"""An overwrite says beforehand, in its commit and in the history how much it replaces."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import Dataset, DatasetDescriptor
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
)
from lakebed.testing import DelegatingStore

SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "carrier": pa.string(), "n": pa.int64()})
FIRST = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


def row(day: int, carrier: str = "UA") -> dict[str, Any]:
    return {"ts": FIRST + dt.timedelta(days=day), "carrier": carrier, "n": day}


def create(partition_by: str) -> Dataset:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    return lake.create("flights", DatasetDescriptor(schema=SCHEMA, partition_by=partition_by))


@pytest.fixture
def days() -> Dataset:
    """Two rows in each of ten days, written in two commits."""
    dataset = create("date(ts) as dt")
    for carrier in ("UA", "B6"):
        dataset.append([row(day, carrier) for day in range(10)])
    return dataset


@pytest.mark.filterwarnings("ignore:Partitions of .* repeat:lakebed.errors.LakebedWarning")
def test_one_row_that_would_replace_an_hour_of_all_days_is_told_before_and_after() -> None:
    flights = create("hour(ts)")
    flights.append([row(day) for day in range(365)])

    found = flights.overwrite([row(0)], dry_run=True)
    commit = flights.overwrite([row(0)], base=found.version)

    assert "1 row in place of 365 rows in 1 file of 1 partition" in repr(found)
    assert "1 row inserted, 365 deleted in 1 partition, +1 -1 files" in repr(commit)
    assert repr(flights.history()[-1]) == repr(commit)


def test_it_tells_each_partition_and_writes_nothing(days: Dataset) -> None:
    found = days.overwrite([row(3), row(3), row(20)], dry_run=True)

    assert [
        (one.partition, one.inserted_row_count, one.deleted_row_count, one.removed_file_count)
        for one in found.partitions
    ] == [("dt=2013-01-04", 2, 2, 2), ("dt=2013-01-21", 1, 0, 0)]
    assert found.replaced_partitions == ("dt=2013-01-04",)
    assert (found.version, days.version, days.count()) == (2, 2, 20)
    assert "rows inserted" in repr(found.partitions)
    assert "partitions replaced" in found._repr_html_()


def test_view_is_replaced_as_a_whole_also_by_no_rows(days: Dataset) -> None:
    january = days.where("ts >= '2013-01-01' AND ts < '2013-01-05'")

    by_view = january.overwrite([], dry_run=True)
    by_dataset = days.overwrite([row(1)], january, dry_run=True)

    assert (by_view.inserted_row_count, by_view.deleted_row_count) == (0, 8)
    assert len(by_view.replaced_partitions) == 4
    assert (by_dataset.inserted_row_count, by_dataset.deleted_row_count) == (1, 8)
    assert "deleted in 4 partitions" in repr(january.overwrite([]))


def test_it_refuses_what_the_overwrite_refuses(days: Dataset) -> None:
    one_day = days.where("ts >= '2013-01-01' AND ts < '2013-01-02'")

    with pytest.raises(InvalidInputError, match="no rows"):
        days.overwrite([], dry_run=True)
    with pytest.raises(InvalidInputError):
        one_day.overwrite([row(5)], dry_run=True)
    with pytest.raises(PredicateError, match="not aligned"):
        days.where("n = 1").overwrite([row(1)], dry_run=True)
    with pytest.raises(SchemaMismatchError):
        days.overwrite([{"ts": "soon"}], dry_run=True)
    with pytest.raises(ReadOnlyError):
        days.at(version=1).overwrite([row(1)], dry_run=True)
    assert "find_overwrite" not in dir(days.at(version=1))


def test_its_version_as_base_keeps_what_others_commit_meanwhile(days: Dataset) -> None:
    found = days.overwrite([row(3)], dry_run=True)
    days.append([row(3, "AA")])

    with pytest.raises(CommitConflictError):
        days.overwrite([row(3)], base=found.version)


def test_no_request_writes(days: Dataset) -> None:
    class Watched(DelegatingStore):
        def __getattribute__(self, name: str) -> Any:
            assert name not in ("create", "put", "replace", "delete", "begin_file"), name
            return super().__getattribute__(name)

    lake = lakebed.Repository(Watched(lakebed.open_repository(days.uri.rpartition("/")[0]).store))

    assert lake.open("flights").overwrite([row(3)], dry_run=True).deleted_row_count == 2


def test_unpartitioned_dataset_is_replaced_as_one() -> None:
    flights = create("")
    flights.append([row(day) for day in range(3)])

    found = flights.overwrite([row(0)], dry_run=True)

    assert [one.partition for one in found.partitions] == [""]
    assert "1 row inserted, 3 deleted, +1 -1 files" in repr(flights.overwrite([row(0)]))


ROWS = st.lists(
    st.builds(row, st.integers(0, 40), st.sampled_from(["UA", "B6", "AA", ""])), max_size=12
)


def batches(rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield batches of two rows, after one without any."""
    yield pa.RecordBatch.from_pylist([], SCHEMA)
    yield from pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=2)


@examples(0.4)
@given(
    st.lists(ROWS, max_size=3),
    ROWS.filter(bool),
    st.sampled_from(["date(ts) as dt", "carrier", "date_format(ts, 'yyyy-MM') as m, carrier", ""]),
)
def test_it_tells_what_the_commit_then_does(
    before: list[list[dict]], rows: list[dict], partition_by: str
) -> None:
    flights = create(partition_by)
    for some in before:
        flights.append(some)

    found = flights.overwrite(
        pa.RecordBatchReader.from_batches(SCHEMA, batches(rows)), dry_run=True
    )
    commit = flights.overwrite(rows)

    assert found.inserted_row_count == commit.inserted_row_count
    assert found.deleted_row_count == commit.deleted_row_count
    assert found.removed_file_count == len(commit.files_removed)
    assert set(found.replaced_partitions) == set(commit.replaced_partitions)
    assert {one.partition for one in found.partitions} == set(commit.partitions)


def test_values_beyond_the_cap_of_a_dimension_count_where_they_go() -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    descriptor = DatasetDescriptor(
        schema=SCHEMA, partition_by=[lakebed.by.dimension("carrier", "*", cap=2)]
    )
    flights = lake.create("flights", descriptor)
    flights.append([row(0, "UA"), row(1, "B6"), row(2, "AA"), row(3, "AS")])
    rows = [row(0, "UA"), row(1, "HA")]

    found = flights.overwrite(rows, dry_run=True)
    commit = flights.overwrite(rows)

    assert found.deleted_row_count == commit.deleted_row_count == 3
    assert set(found.replaced_partitions) == set(commit.replaced_partitions)
