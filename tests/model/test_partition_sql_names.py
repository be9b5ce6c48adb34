"""Partition functions by the names that SQL has for them."""

import datetime as dt
import uuid

import pyarrow as pa
import pytest

from lakebed import PartitionStrategy, by, open_repository
from lakebed.errors import PartitionSpecError
from lakebed.model.partition.registry import FUNCTIONS, SQL_NAMES

SAME = {
    "years(ts)": ("year(ts) as ts_year", by.years("ts")),
    "months(ts)": ("date_format(ts, 'yyyy-MM') as ts_month", by.months("ts")),
    "days(ts)": ("date(ts) as ts_day", by.days("ts")),
    "hours(ts)": ("date_format(ts, 'yyyy-MM-dd-HH') as ts_hour", by.hours("ts")),
    "bucket(4, id)": ("hash(id, 4) as id_hash", by.bucket(4, "id")),
    "days(`a b`)": ("date(`a b`) as `a b_day`", by.days("a b")),
    "days(r.ts)": ("date(r.ts) as r_ts_day", by.days("r.ts")),
    "bucket(4, `a b`)": ("hash(`a b`, 4) as `a b_hash`", by.bucket(4, "a b")),
}
FORMS = SAME | {
    "days(ts) as dt": ("date(ts) as dt", by.days("ts", name="dt")),
    "hours(id, s)": ("date_format(id, 'yyyy-MM-dd-HH', s) as id_hour", by.hours("id", unit="s")),
}


@pytest.mark.parametrize("text", FORMS)
def test_a_name_of_sql_is_one_of_our_functions(text: str) -> None:
    canonical, function = FORMS[text]
    strategy = PartitionStrategy.parse(text)
    assert str(strategy) == canonical
    assert list(strategy) == [function]
    assert PartitionStrategy.parse(str(strategy)) == strategy
    assert PartitionStrategy.from_json(strategy.to_json()) == strategy


@pytest.mark.parametrize("text", SAME)
def test_python_and_sql_make_the_same_partitions(text: str) -> None:
    lake = open_repository(f"memory://{uuid.uuid4().hex}")
    lake.sql(
        "CREATE TABLE t (id BIGINT, ts TIMESTAMP, `a b` TIMESTAMP, r STRUCT<ts: TIMESTAMP>) "
        f"PARTITIONED BY ({text})",
        write=True,
    )
    assert lake["t"].descriptor.partition_by == PartitionStrategy.parse(text)


@pytest.mark.parametrize("name", SQL_NAMES)
def test_rows_are_written_and_found_by_each_of_them(name: str) -> None:
    lake = open_repository(f"memory://{uuid.uuid4().hex}")
    first = dt.datetime(2026, 11, 1, 10, 30)
    times = [first, first.replace(hour=11), first.replace(month=12), first.replace(year=2027)]
    rows = pa.table({"id": pa.array(range(4)), "ts": times})
    lake.write("t", rows, partition_by="bucket(2, id)" if name == "bucket" else f"{name}(ts)")
    paths = {partition.path for partition in lake["t"].inspect.partitions()}
    expected = {"years": 2, "months": 3, "days": 3, "hours": 4, "bucket": 2}
    assert len(paths) == expected[name]
    assert sorted(lake["t"].where("ts >= '2026-12-01'").arrow()["id"].to_pylist()) == [2, 3]


REPEATING = ("month", "day", "hour", "minute")


@pytest.mark.parametrize(
    "typed",
    [
        *("dayss", "dyas", "daily", "Days", "DAY", "monthss", "mnoths", "monthly", "hourss"),
        *("hourly", "minutes", "min", "yeras", "monht", "minute_of"),
    ],
)
def test_a_hint_for_a_time_says_what_each_name_means(typed: str) -> None:
    with pytest.raises(PartitionSpecError, match="Unknown partition function") as raised:
        PartitionStrategy.parse(f"{typed}(ts)")
    hint = raised.value.hint
    assert not any(hint == f"Did you mean {part!r}?" for part in REPEATING)
    assert "is the" in hint


def test_names_of_functions_are_listed_where_none_is_near() -> None:
    with pytest.raises(PartitionSpecError) as raised:
        PartitionStrategy.parse("truncate(4, id)")
    assert all(name in raised.value.hint for name in (*FUNCTIONS, *SQL_NAMES))


def test_the_arguments_of_a_bucket_in_the_order_of_hash_are_refused_in_python() -> None:
    with pytest.raises(PartitionSpecError, match="is not the name of a field") as raised:
        by.bucket("id", 4)  # type: ignore[arg-type]
    assert "by.bucket(8, 'id')" in raised.value.hint
