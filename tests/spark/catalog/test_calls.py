"""Statements on a catalog call the JVM from Python seldom: each call takes a tenth of a millisecond."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jvm_calls import count_jvm_calls

import lakebed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the calls of one process into its JVM are counted"),
]

FIRST = dt.date(2026, 1, 1)


def write_days(lake: Any, name: str, count: int) -> None:
    days = [FIRST + dt.timedelta(days=number) for number in range(count)]
    table = pa.table({"n": list(range(count)), "day": days, "v": [0] * count})
    lake.write(name, table, partition_by="day")


def count_calls(spark: Any, patch: pytest.MonkeyPatch, statement: str) -> int:
    with count_jvm_calls(patch) as calls:
        spark.sql(statement).collect()
    return len(calls)


def test_a_query_of_a_day_calls_the_jvm_seldom(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lake = lakebed.open_repository(tmp_path)
    write_days(lake, "days", 20)
    query = "SELECT sum(n), max(v) FROM lake.days WHERE day = '{}'"
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        for number in range(3):  # what all queries need is kept
            spark.sql(query.format(FIRST + dt.timedelta(days=number))).collect()

        found = count_calls(spark, monkeypatch, query.format(FIRST + dt.timedelta(days=9)))

    # There were 790: an iterator of Java that ended by an exception took 200. Then there were 140,
    # and as many calls back, of which objects of Java now answer most by themselves.
    assert found < 70


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE lake.{t} SET v = v + 1 WHERE n % 2 = 1",
        "MERGE INTO lake.{t} AS t USING (SELECT 3 AS n, 4 AS v) AS s ON t.n = s.n"
        " WHEN MATCHED THEN UPDATE SET v = s.v",
    ],
)
def test_a_change_calls_the_jvm_seldom_for_each_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
):
    lake = lakebed.open_repository(tmp_path)
    counts = {}
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        for file_count in (40, 160):
            write_days(lake, f"of_{file_count}", file_count)
            of_table = statement.format(t=f"of_{file_count}")
            spark.sql(of_table).collect()
            counts[file_count] = count_calls(spark, monkeypatch, of_table)

    # There were 50 for each file. A path in a list takes two, for each scan.
    assert counts[160] - counts[40] < 5 * (160 - 40)
