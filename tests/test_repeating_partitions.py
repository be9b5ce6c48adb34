"""Partitions that come again, such as those by the hour alone, are warned of at creation."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
import warnings
from pathlib import Path

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import DatasetDescriptor, LakebedWarning, PartitionStrategy, Repository
from lakebed.model.partition.repeating import find_repetition
from lakebed.model.schema import Field, Kind, Primitive, Schema

SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us", "UTC"),
        "day_of": pa.date32(),
        "n": pa.int64(),
        "small": pa.int32(),
        "carrier": pa.string(),
    }
)
FIRST = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)

SAFE = [
    "date(ts) as dt",
    "date(ts) as dt, hour(ts)",
    "hour(ts), date(ts) as dt",
    "year(ts)",
    "year(ts), month(ts), day(ts), hour(ts), minute(ts)",
    "date_format(ts, 'yyyy-MM')",
    "date_format(ts, 'yyyy-MM') as m, day(ts)",
    "day_of, hour(ts)",  # a date of another field keeps days apart, too
    "date(n, s) as dt, hour(n, s)",
    "hash(n, 4), carrier",
]
# With the unit of time after which they come again, and what to write instead.
REPEATING = [
    ("hour(ts)", "day", "date(ts), hour(ts)"),
    ("month(ts) as m", "year", "date_format(ts, 'yyyy-MM')"),
    ("day(ts)", "month", "date(ts)"),
    ("minute(ts)", "hour", "date(ts), hour(ts), minute(ts)"),
    ("year(ts), hour(ts)", "day", "date(ts), hour(ts)"),
    ("month(ts), day(ts)", "year", "date(ts)"),
    ("date(ts) as dt, minute(ts)", "hour", "date(ts), hour(ts), minute(ts)"),
    ("day_of, minute(ts)", "hour", "date(ts), hour(ts), minute(ts)"),
    ("date_format(ts, 'HH') as h", "day", "date(ts), hour(ts)"),
    ("date_format(ts, 'MM-dd') as d", "year", "date(ts)"),
    ("date_format(ts, 'yyyy-MM-dd hh') as h", "half day", "date(ts), hour(ts)"),
    ("month(day_of)", "year", "date_format(day_of, 'yyyy-MM')"),
    ("month(n, s)", "year", "date_format(n, 'yyyy-MM', s)"),
    ("hour(small)", "day", "date(small), hour(small)"),
    ("carrier, hour(ts)", "day", "date(ts), hour(ts)"),
]


@pytest.fixture
def lake() -> Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")


def descriptor(partition_by: str) -> DatasetDescriptor:
    return DatasetDescriptor(schema=SCHEMA, partition_by=partition_by)


@pytest.mark.parametrize("partition_by", SAFE)
def test_partitions_that_keep_times_apart_are_created_without_a_word(
    lake: Repository, partition_by: str
) -> None:
    lake.create("flights", descriptor(partition_by))


@pytest.mark.parametrize(("partition_by", "period", "remedy"), REPEATING)
def test_partitions_that_come_again_are_warned_of_with_the_safe_form(
    lake: Repository, partition_by: str, period: str, remedy: str
) -> None:
    with pytest.warns(LakebedWarning) as caught:
        lake.create("flights", descriptor(partition_by))

    (warning,) = caught
    assert warning.filename == __file__
    assert f"repeat every {period}" in str(warning.message)
    assert f"Partition by {remedy} instead." in str(warning.message)
    lake.create("safe", descriptor(remedy))  # without a word


def test_warning_says_what_an_overwrite_does(lake: Repository) -> None:
    with pytest.warns(LakebedWarning, match="rows of one day also replaces rows of all others"):
        flights = lake.create("flights", descriptor("hour(ts)"))
    flights.append([{"ts": FIRST + dt.timedelta(days=day)} for day in range(365)])

    flights.overwrite([{"ts": FIRST}])

    assert flights.count() == 1


def test_where_another_field_may_tell_the_day_the_warning_says_so(lake: Repository) -> None:
    with pytest.warns(LakebedWarning, match="unless another partition field separates the days"):
        lake.create("flights", descriptor("carrier, hour(ts)"))


def test_dataset_that_is_there_is_opened_without_a_word(lake: Repository) -> None:
    hours = descriptor("hour(ts)")
    with pytest.warns(LakebedWarning):
        lake.create("flights", hours)

    lake.create("flights", hours, if_exists="open")
    lake.open("flights").evolve(lambda old: old)


def test_warning_that_is_made_an_error_creates_nothing(lake: Repository) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", LakebedWarning)
        with pytest.raises(LakebedWarning):
            lake.create("flights", descriptor("hour(ts)"))

    assert not lake.exists("flights")


def test_ingest_that_creates_its_dataset_warns_too(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.jsonl").write_text('{"ts": "2013-01-01T05:00:00Z"}\n')
    ingest = lakebed.Ingest(
        name="hours",
        source=lakebed.FromFiles(paths=raw),
        into=str(tmp_path / "lake" / "flights"),
        create=descriptor("hour(ts)"),
    )

    with pytest.warns(LakebedWarning, match="every day"):
        ingest.run()


FUNCTIONS = [
    *("year(ts)", "month(ts)", "day(ts)", "hour(ts)", "minute(ts)", "date(ts) as dt"),
    *("date_format(ts, 'yyyy') as f1", "date_format(ts, 'yyyy-MM') as f2"),
    *("date_format(ts, 'MM-dd') as f3", "date_format(ts, 'E') as f4"),
    *("date_format(ts, 'yyyy-DDD') as f5", "date_format(ts, 'a') as f6"),
    *("date_format(ts, 'kk:mm:ss') as f7", "date_format(ts, 'yyyyMMddHHmmss') as f8"),
]
STEPS = (
    *((dt.timedelta(seconds=seconds), 65) for seconds in (1, 60, 3600)),
    *((dt.timedelta(days=days), most) for days, most in ((1, 65), (7, 10), (31, 100))),
)
TIMES = pa.record_batch(
    {
        "ts": pa.array(
            sorted({FIRST + step * count for step, most in STEPS for count in range(most)}),
            pa.timestamp("us", "UTC"),
        )
    }
)
ONE_TIME = Schema(fields=(Field(name="ts", type=Primitive(Kind.TIMESTAMP)),))


@pytest.mark.thorough
@examples(50)
@given(st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=6, unique=True))
def test_they_are_those_that_hold_times_with_other_partitions_in_between(texts: list[str]) -> None:
    strategy = PartitionStrategy.parse(", ".join(texts))
    columns = (column.to_pylist() for column in strategy.arrays(TIMES, ONE_TIME))
    partitions = list(zip(*columns, strict=True))
    in_turn = [partition for partition, _ in itertools.groupby(partitions)]

    comes_again = len(in_turn) > len(set(partitions))

    assert (find_repetition(strategy, ONE_TIME) is not None) == comes_again
