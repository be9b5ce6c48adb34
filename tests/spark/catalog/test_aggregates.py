"""Counts, minima and maxima from the file table: exact, or computed by Spark."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

NAN = float("nan")
LONG_TEXT = "a" * 200
FIRST, LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
COLUMNS = {
    "whole": pa.array([-(2**63), 2**63 - 1, None, 0], pa.int64()),
    "small": pa.array([-128, 127, None, 0], pa.int8()),
    "word": pa.array(["z", "zz", None, ""]),
    "accent": pa.array(["é", "z", "Z", "\U0010ffff"]),
    "number": pa.array([decimal.Decimal("1.50"), None, decimal.Decimal("-3.25"), None]),
    "bytes": pa.array([b"\xff", b"a", None, b""]),
    "clock": pa.array([FIRST, LAST, None, None], pa.timestamp("us")),
    "time": pa.array(
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC), None, None, None],
        pa.timestamp("us", tz="UTC"),
    ),
    "truth": pa.array([True, None, False, None]),
    "nothing": pa.array([None, None, None, None], pa.int32()),
}
PART = pa.array([dt.date(2026, 1, 1), dt.date(2026, 1, 2), None, dt.date(2026, 1, 1)], pa.date32())


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path / "lake")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def compute(spark: Any, functions: str, table: str = "lake.t") -> tuple[Any, ...]:
    """Return the values of functions by a scan: a filter keeps them from the file table."""
    query = spark.sql(f"SELECT {functions} FROM {table} WHERE rand() >= 0")
    return tuple(query.collect()[0])


def ask(spark: Any, functions: str, table: str = "lake.t") -> tuple[tuple[Any, ...], bool]:
    """Return the values of functions, and whether no file is read for them."""
    query = spark.sql(f"SELECT {functions} FROM {table}")
    plan = query._jdf.queryExecution().executedPlan().toString()
    return tuple(query.collect()[0]), "LocalTableScan" in plan and "BatchScan" not in plan


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("partition", [None, "part"])
def test_facts_are_exact_for_each_type(
    spark: Any, lake: lakebed.Repository, name: str, partition: str | None
):
    rows = pa.table({name: COLUMNS[name], "part": PART})
    lake.write("t", rows.slice(0, 2), partition_by=partition)
    lake.open("t").append(rows.slice(2))
    functions = f"count(*), count({name}), min({name}), max({name})"

    values, is_from_facts = ask(spark, functions)

    assert is_from_facts
    assert values == compute(spark, functions)
    assert values[0] == 4


def test_facts_of_partition_fields(spark: Any, lake: lakebed.Repository):
    lake.write("t", pa.table({"n": [1, 2, 3, 4], "part": PART}), partition_by="part")
    functions = "min(part), max(part), count(part), max(n)"

    assert ask(spark, functions) == ((dt.date(2026, 1, 1), dt.date(2026, 1, 2), 3, 4), True)
    lake.open("t").delete("part = DATE '2026-01-02'")
    assert ask(spark, functions) == ((dt.date(2026, 1, 1), dt.date(2026, 1, 1), 2, 4), True)


def test_rows_that_were_deleted_do_not_count(spark: Any, lake: lakebed.Repository):
    lake.write("t", pa.table({"n": list(range(10))}))
    lake.open("t").delete("n = 9 OR n = 0")

    assert ask(spark, "count(*), min(n), max(n)") == ((8, 1, 8), True)
    assert ask(spark, "count(*), max(n)", "lake.t VERSION AS OF 1") == ((10, 9), True)
    lake.open("t").delete("n >= 0")
    assert ask(spark, "count(*), count(n), min(n), max(n)")[0] == (0, 0, None, None)


@pytest.mark.parametrize(
    ("values", "functions"),
    [
        (pa.array([1.0, NAN, None]), "max(x)"),
        (pa.array([1.0, NAN, None], pa.float32()), "min(x)"),
        (pa.array([-0.0, 0.0]), "min(x)"),
        (pa.array([LONG_TEXT, "b"]), "min(x)"),
        (pa.array(["a", "b" * 200]), "max(x)"),
        (pa.array([b"\xff" * 200, b"a"]), "max(x)"),
        (pa.array([1, 2, 2]), "count(DISTINCT x)"),
        (pa.array([1, 2, 2]), "sum(x)"),
        (pa.array([1, 2, 2]), "count_if(x = 2)"),
        (pa.array([1, 2, 2]), "max(x + 1), count(*)"),
        (pa.array([1, 2, 2]), "min(CAST(x AS STRING))"),
        (pa.array([{"y": 1}, {"y": 2}]), "max(x.y)"),
        (pa.array([[1], [2]]), "count(x)"),
    ],
)
def test_what_facts_do_not_say_is_computed(
    spark: Any, lake: lakebed.Repository, values: pa.Array, functions: str
):
    lake.write("t", pa.table({"x": values}))

    found, is_from_facts = ask(spark, functions)

    assert not is_from_facts
    assert repr(found) == repr(compute(spark, functions))


def test_text_beside_a_cut_one_is_exact(spark: Any, lake: lakebed.Repository):
    lake.write("t", pa.table({"x": ["a", "c"]}))
    lake.open("t").append(pa.table({"x": ["b" * 200]}))

    assert ask(spark, "min(x), max(x)") == (("a", "c"), True)


def test_columns_that_changed(spark: Any, lake: lakebed.Repository):
    lake.write("t", pa.table({"n": pa.array([1, 2], pa.int32()), "m": [5, 6]}))
    table = lake.open("t")
    table.evolve(lambda old: old.rename_field("n", "k").change_type("k", "long"))
    table.append(pa.table({"k": [2**40], "m": [7]}))
    assert ask(spark, "min(k), max(k), count(*)") == ((1, 2**40, 3), True)

    table.evolve(lambda old: old.drop_field("m"))
    table.evolve(lambda old: old.add_field("m", "long"))
    table.append(pa.table({"k": [3], "m": [1]}))
    assert ask(spark, "max(m), count(m)") == ((1, 1), False)

    table.evolve(lambda old: old.add_field("d", "long", default=7))
    assert ask(spark, "min(d), count(d)") == ((7, 4), False)
    assert ask(spark, "count(*), max(k)") == ((4, 2**40), True)


def test_files_of_other_tools_are_read(spark: Any, lake: lakebed.Repository, tmp_path: Path):
    folder = tmp_path / "lake" / "t"
    folder.mkdir(parents=True)
    moment = pa.array([dt.datetime(1500, 1, 1), dt.datetime(2026, 1, 1)], pa.timestamp("us"))
    pq.write_table(
        pa.table({"at": moment}), folder / "x.parquet", use_deprecated_int96_timestamps=True
    )
    lake.adopt("t")

    found, is_from_facts = ask(spark, "min(at), max(at)")

    assert not is_from_facts
    assert found == compute(spark, "min(at), max(at)")


def test_conditions_and_groups_are_computed(spark: Any, lake: lakebed.Repository):
    lake.write("t", pa.table({"n": [1, 2, 3], "part": ["a", "a", "b"]}), partition_by="part")

    grouped = spark.sql("SELECT part, count(*) FROM lake.t GROUP BY part ORDER BY part")
    assert [tuple(row) for row in grouped.collect()] == [("a", 2), ("b", 1)]
    assert spark.sql("SELECT count(*) FROM lake.t WHERE n > 1").collect()[0][0] == 2
    assert spark.sql("SELECT count(*) FILTER (WHERE n > 1) FROM lake.t").collect()[0][0] == 2
    assert spark.sql("SELECT count(*) FROM (SELECT * FROM lake.t LIMIT 2)").collect()[0][0] == 2
    assert spark.table("lake.t").count() == 3
