"""A condition on levels of paths decides on whole files: Spark neither applies nor compiles it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakebed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

DAYS = [dt.date(2026, 1, 1), dt.date(2026, 1, 2), None, dt.date(1969, 12, 31)]
REGIONS = ["a", "b", None, "it's", "é", "__"]
ROWS = [
    {"n": 10 * i + k, "day": day, "region": region, "part": float(i)}
    for i, day in enumerate(DAYS)
    for k, region in enumerate(REGIONS)
]
SCHEMA = pa.schema(
    [("n", pa.int64()), ("day", pa.date32()), ("region", pa.string()), ("part", pa.float64())]
)


@pytest.fixture(scope="module")
def lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path_factory.mktemp("lake"))
    rows = pa.Table.from_pylist(ROWS, SCHEMA)
    lake.write("days", rows, partition_by=["day", "region"])
    lake.write("parts", rows, partition_by=["part"])
    spark.createDataFrame(
        [tuple(row.values()) for row in ROWS], "n bigint, day date, region string, part double"
    ).createOrReplaceTempView("rows_of_days")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def ask(spark: Any, text: str, table: str) -> tuple[list[Any], str]:
    """Return the sorted rows of a query, and its plan without the word RuntimeFilters."""
    frame = spark.sql(text.format(t=table))
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return sorted(map(str, frame.collect())), plan.replace("RuntimeFilters", "")


DECIDED = [
    "day = '2026-01-01'",
    "day <> '2026-01-01'",
    "day IS NULL",
    "day <=> NULL",
    "NOT (day <=> DATE'2026-01-02')",
    "day > '2026-01-01' OR day IS NULL",
    "day IN ('2026-01-01', '1969-12-31')",
    "NOT day IN ('2026-01-01', '1969-12-31')",
    "day < '2026-01-01' AND region = 'a'",
    "region = 'it\\'s' OR day = '2026-01-02'",
    "region LIKE 'i%'",
    "day = '2030-01-01'",
]


@pytest.mark.parametrize("condition", DECIDED)
@pytest.mark.parametrize("columns", ["n, part", "n, day", "count(n), min(n), max(part)"])
def test_spark_has_no_filter_and_the_rows_are_those_of_spark(
    spark: Any, lake: Any, condition: str, columns: str
):
    text = f"SELECT {columns} FROM {{t}} WHERE {condition}"

    rows, plan = ask(spark, text, "lake.days")

    assert rows == ask(spark, text, "rows_of_days")[0]
    assert "Filter" not in plan


@pytest.mark.parametrize(
    "condition",
    [
        "day = '2026-01-01' AND n % 2 = 1",
        "day = '2026-01-01' OR n = 3",
        "region LIKE '%s'",
        "year(day) = 2026 AND region <> 'b'",
        "day = '2026-01-01' AND region > 'a' AND n > 2",
    ],
)
def test_spark_applies_what_paths_do_not_decide(spark: Any, lake: Any, condition: str):
    text = f"SELECT * FROM {{t}} WHERE {condition}"

    rows, plan = ask(spark, text, "lake.days")

    assert rows == ask(spark, text, "rows_of_days")[0]
    assert "Filter" in plan


def test_spark_applies_a_condition_on_a_float_of_a_path(spark: Any, lake: Any):
    # NaN is greater than every number in Spark, and our predicates leave it out.
    text = "SELECT n FROM {t} WHERE part > 1"

    rows, plan = ask(spark, text, "lake.parts")

    assert rows == ask(spark, text, "rows_of_days")[0]
    assert "Filter" in plan


def test_files_that_are_read_in_python_are_filtered_there(spark: Any, lake: Any):
    # Spark would read the accent of a path as other characters.
    text = "SELECT n, region FROM {t} WHERE region >= 'b' AND n > 3"

    rows, plan = ask(spark, text, "lake.days")

    assert rows == ask(spark, text, "rows_of_days")[0]
    assert "é" in "".join(rows)
    assert "region >= b" not in plan


@pytest.mark.parametrize("functions", ["count(*)", "count(*), count(n), min(n), max(day)"])
def test_counts_of_whole_files_come_from_the_file_table(spark: Any, lake: Any, functions: str):
    text = f"SELECT {functions} FROM {{t}} WHERE day = '2026-01-02' OR day IS NULL"

    rows, plan = ask(spark, text, "lake.days")

    assert rows == ask(spark, text, "rows_of_days")[0]
    assert "BatchScan" not in plan


def test_statements_change_the_rows_of_a_condition_on_paths(spark: Any, lake: Any):
    lake.write("changed", pa.Table.from_pylist(ROWS, SCHEMA), partition_by="day")

    spark.sql("UPDATE lake.changed SET part = -1 WHERE day = '2026-01-01' AND n % 2 = 0")
    spark.sql("DELETE FROM lake.changed WHERE day IS NULL AND n % 2 = 1")

    left = {row.n: row.part for row in spark.table("lake.changed").collect()}
    assert left == {
        row["n"]: -1.0 if row["day"] == DAYS[0] and row["n"] % 2 == 0 else row["part"]
        for row in ROWS
        if not (row["day"] is None and row["n"] % 2 == 1)
    }
