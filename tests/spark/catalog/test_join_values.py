"""Values that Spark finds in one side of a join choose the files of the other side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jvm_calls import count_jvm_calls

import lakebed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

FILES, ROWS_OF_FILE = 4, 10
# Keys in SQL of a number, in the order of the numbers.
KEYS = {
    "long": "id",
    "decimal": "CAST(id AS DECIMAL(12, 2))",
    "text": "concat('é\"', lpad(CAST(id AS STRING), 8, '0'))",
    "double": "CAST(id AS DOUBLE)",
    "date": "date_add(DATE '2000-01-01', CAST(id AS INT))",
    "time": "timestamp_seconds(id)",
}


@pytest.fixture(autouse=True)
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def fill(spark: Any, key: str, files: int = FILES) -> None:
    """Make a table `lake.facts` with a file for each ten thousand numbers."""
    for number in range(files):
        numbers = spark.range(number * 10_000, number * 10_000 + ROWS_OF_FILE, numPartitions=1)
        frame = numbers.selectExpr(f"{key} AS k", "id AS n")
        if number:
            frame.writeTo("lake.facts").append()
        else:
            frame.writeTo("lake.facts").create()


def join(spark: Any, key: str, numbers: range) -> tuple[int, str]:
    """Return how many rows of the table have a key of some numbers, and the plan after that."""
    keys = spark.range(numbers.start, numbers.stop, numbers.step, 1)
    keys.selectExpr(f"{key} AS k", "id AS n").createOrReplaceTempView("keys")
    query = spark.sql(
        "SELECT /*+ BROADCAST(s) */ f.n FROM lake.facts f "
        "JOIN (SELECT k FROM keys WHERE n >= 0) s ON f.k = s.k"  # a choice, or Spark passes none
    )
    count = len(query.collect())
    return count, query._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize("count", [5, 500, 5000])
@pytest.mark.parametrize("kind", KEYS)
def test_values_of_a_join_lose_no_row(spark: Any, kind: str, count: int):
    fill(spark, KEYS[kind])

    rows, plan = join(spark, KEYS[kind], range(20_000, 20_000 + count))

    assert rows == min(count, ROWS_OF_FILE)
    assert "dynamicpruning" in plan  # so Spark has passed the values
    # No bounds of floats choose files, and many dates are not compared one by one.
    if kind != "double" and (count == 5 or kind not in ("date", "time")):
        assert f"1 of {FILES} files" in plan


def test_many_values_of_a_join_take_few_calls_into_the_jvm(
    spark: Any, monkeypatch: pytest.MonkeyPatch
):
    fill(spark, KEYS["long"])

    with count_jvm_calls(monkeypatch) as calls:
        rows, plan = join(spark, KEYS["long"], range(20_000, 30_000))

    assert rows == ROWS_OF_FILE
    assert "dynamicpruning" in plan
    assert len(calls) < 2000  # with calls for each of the values, more than 30,000


def test_table_of_one_file_asks_for_no_values_of_a_join(spark: Any):
    fill(spark, KEYS["long"], files=1)

    rows, plan = join(spark, KEYS["long"], range(5))

    assert rows == 5
    assert "dynamicpruning" not in plan
