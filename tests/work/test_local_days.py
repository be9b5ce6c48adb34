"""Rows of another zone that are written over the partitions that they touch."""

import contextlib
import datetime as dt
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.work.local_days import find_zone

START = dt.datetime(2024, 3, 8, tzinfo=dt.UTC)  # New York changes its clocks on the 10th
ZONES = ["America/New_York", "Asia/Tokyo", "Asia/Kolkata", "+05:45", "Etc/UTC", "UTC"]
STRATEGIES = [
    "date(t) as dt",
    "year(t), month(t), day(t)",
    "year(t), month(t), day(t), hour(t)",
    "date_format(t, 'yyyy-MM-dd') as d",
]


def table(zone: str, hours: range) -> pa.Table:
    times = pa.array([START + dt.timedelta(hours=hour) for hour in hours])
    return pa.table({"n": pa.array(hours), "t": times.cast(pa.timestamp("us", tz=zone))})


def local_day(moment: dt.datetime, zone: str) -> dt.date:
    return moment.astimezone(find_zone(zone)).date()


@given(st.sampled_from(ZONES), st.sampled_from(STRATEGIES), st.integers(1, 3))
def test_local_day_removes_rows_of_no_other_day(zone: str, strategy: str, day: int) -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4()}")
    days = lake.create("days", table(zone, range(120)).schema, partition_by=strategy)
    days.append(table(zone, range(120)))
    wanted = START.date() + dt.timedelta(days=day)
    hours = [
        hour for hour in range(120) if local_day(START + dt.timedelta(hours=hour), zone) == wanted
    ]
    local = table(zone, range(hours[0], hours[-1] + 1))

    with contextlib.suppress(InvalidInputError):
        days.overwrite(local)

    assert days.count() == 120


@given(st.sampled_from(ZONES), st.sampled_from(STRATEGIES), st.integers(0, 4))
def test_whole_day_of_utc_is_never_refused(zone: str, strategy: str, day: int) -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4()}")
    days = lake.create("days", table(zone, range(120)).schema, partition_by=strategy)
    days.append(table("UTC", range(120)))

    days.overwrite(table(zone, range(24 * day, 24 * day + 24)))

    assert days.count() == 120


def test_day_without_neighbours_is_not_refused(tmp_path: Path) -> None:
    days = lakebed.open_repository(tmp_path).create(
        "days", table("UTC", range(1)).schema, partition_by="date(t) as dt"
    )
    local = table("America/New_York", range(5, 29))
    days.append(local)

    days.overwrite(local)
    days.rerun(local, "day")
    # Rows of the run itself on other days are meant to go.
    few = table("America/New_York", range(5, 8))
    days.rerun(few, "day", partitions=True, replace_all=True)

    assert days.count() == 3 + 5


def test_zone_that_is_unknown_is_named() -> None:
    with pytest.raises(InvalidInputError, match="time zone 'Mars/Olympus' of the rows is unknown"):
        find_zone("Mars/Olympus")


def refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except InvalidInputError as error:
        return error.message
    return ""


@given(st.sampled_from(ZONES), st.sampled_from(STRATEGIES), st.integers(1, 3), st.booleans())
def test_a_dry_run_refuses_what_the_write_refuses(
    zone: str, strategy: str, day: int, is_renamed: bool
) -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4()}")
    days = lake.create("days", table(zone, range(120)).schema, partition_by=strategy)
    days.append(table(zone, range(120)))
    local = table(zone, range(24 * day + 5, 24 * day + 29))
    if is_renamed:
        days.evolve(lambda old: old.rename_field("t", "moment"))
        local = local.rename_columns(["n", "moment"])
    acts: list[Callable[[bool], object]] = [
        lambda is_dry: days.overwrite(local, dry_run=is_dry),
        lambda is_dry: days.rerun(local, "day", partitions=True, dry_run=is_dry),
    ]

    for act in acts:
        expected = refusal(lambda act=act: act(True))
        assert refusal(lambda act=act: act(False)) == expected
        assert zone not in ("UTC", "Etc/UTC") or not expected
