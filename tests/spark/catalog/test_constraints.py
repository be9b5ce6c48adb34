"""CHECK constraints by the catalog mean what they mean in SQL, for writers of every kind."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import checks
from lakebed.errors import ChecksFailedError, InvalidInputError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
    pytest.mark.since_spark("4.1", "SQL has no constraints"),
]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


CONDITIONS = [
    *("n > 0", "n >= 1 AND n != 5", "NOT (n > 0 AND x < 5)", "NOT n IN (1, 7)", "n > 0.5"),
    *("x >= 1", "x < 1", "NOT x > 1", "n <=> 5", "n IS NOT NULL", "n BETWEEN 1 AND 5"),
    *("s LIKE 'a%'", "NOT s LIKE 'a%'", "n IN (1, 5) OR s IS NULL", "at > '2026-01-01'"),
    *("at BETWEEN TIMESTAMP '2026-01-01' AND '2026-01-01 05:00:00'", "flag", "NOT flag"),
]
VALUES = {
    "n": (None, 0, 1, 5),
    "x": (None, 1.0, 6.0, float("nan")),
    "s": (None, "a", "b"),
    "at": (None, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 2, tzinfo=dt.UTC)),
    "flag": (None, True, False),
}
COLUMNS = "n INT, x DOUBLE, s STRING, at TIMESTAMP, flag BOOLEAN"


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_stored_check_refuses_the_rows_for_which_the_condition_is_false(
    spark: Any, lake: lakebed.Repository, zone: str
):
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        constraints = (f"CONSTRAINT c{i} CHECK ({one})" for i, one in enumerate(CONDITIONS))
        spark.sql(f"CREATE TABLE lake.t ({COLUMNS}, {', '.join(constraints)})")
        rows = [dict(zip(VALUES, row, strict=True)) for row in itertools.product(*VALUES.values())]
        false = [f"({one}) IS FALSE AS c{i}" for i, one in enumerate(CONDITIONS)]
        frame = spark.createDataFrame([tuple(row.values()) for row in rows], COLUMNS)
        expected = [row.asDict() for row in frame.selectExpr(*false).collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    with pytest.raises(ChecksFailedError) as caught:
        lake.open("t").append(rows)

    assert caught.value.counts == {
        name: sum(row[name] for row in expected)
        for name in expected[0]
        if any(row[name] for row in expected)
    }


def test_constraint_holds_for_each_writer_and_lets_null_pass(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import PySparkException

    spark.sql("CREATE TABLE lake.t (id INT, n INT)")
    spark.sql("INSERT INTO lake.t VALUES (1, 1), (2, NULL)")
    spark.sql("ALTER TABLE lake.t ADD CONSTRAINT positive CHECK (n > 0)")

    spark.sql("INSERT INTO lake.t VALUES (3, NULL)")
    for statement in (
        "INSERT INTO lake.t VALUES (4, 0)",
        "UPDATE lake.t SET n = -1 WHERE id = 1",
        "MERGE INTO lake.t USING (SELECT 5 AS k) s ON t.id = s.k WHEN NOT MATCHED THEN INSERT "
        "(id, n) VALUES (5, 0)",
    ):
        with pytest.raises(PySparkException, match="CHECK_CONSTRAINT_VIOLATION"):
            spark.sql(statement)
    with pytest.raises(ChecksFailedError, match="positive"):
        lake.open("t").append([{"id": 4, "n": 0}])
    with pytest.raises(InvalidInputError, match="positive"):
        spark.sql("ALTER TABLE lake.t ADD CONSTRAINT positive CHECK (n >= 1)")
    assert lake.open("t").count() == 3

    spark.sql("ALTER TABLE lake.t DROP CONSTRAINT IF EXISTS other")
    spark.sql("ALTER TABLE lake.t DROP CONSTRAINT positive")
    spark.sql("INSERT INTO lake.t VALUES (4, 0)")


def test_check_of_python_is_a_constraint_if_it_refuses_and_all_rows_pass(
    spark: Any, lake: lakebed.Repository
):
    lake.write("t", [{"n": 1}, {"n": 9}])
    dataset = lake.open("t")
    for name, check in {
        "strict": checks.condition("n > 0"),
        "warned": checks.condition("n < 8", on_failure="warn"),
        "keys": checks.unique("n"),
    }.items():
        dataset.evolve(lambda old, name=name, check=check: old.with_check(name, check))
    failing = checks.condition("n < 5")
    dataset.evolve(lambda old: old.with_check("unmet", failing), existing="unchecked")

    ((text,),) = spark.sql("SHOW CREATE TABLE lake.t").collect()

    assert [line.split()[1] for line in text.splitlines() if "CONSTRAINT" in line] == ["strict"]
    spark.sql(text.replace("lake.t ", "lake.u ", 1))
    with pytest.raises(ChecksFailedError, match="strict"):
        lake.open("u").append([{"n": None}])
    spark.sql("DELETE FROM lake.t WHERE n = 9 AND hash(n) IS NOT NULL")
    assert dataset.count() == 1


@pytest.mark.parametrize("condition", ["true", "1 < 2", "n > 0 OR true", "null"])
def test_constraint_that_no_row_can_fail_is_refused_by_name(
    spark: Any, lake: lakebed.Repository, condition: str
):
    spark.sql("CREATE TABLE lake.t (n INT)")
    spark.sql("INSERT INTO lake.t VALUES (1)")

    with pytest.raises(InvalidInputError, match=r"no row can fail the constraint sure, CHECK \("):
        spark.sql(f"ALTER TABLE lake.t ADD CONSTRAINT sure CHECK ({condition})")

    assert lake.open("t").descriptor.checks == {}


def test_constraint_of_a_table_without_rows_is_added(spark: Any, lake: lakebed.Repository):
    spark.sql("CREATE TABLE lake.t (n INT)")

    spark.sql("ALTER TABLE lake.t ADD CONSTRAINT positive CHECK (n > 0)")

    with pytest.raises(ChecksFailedError, match="positive"):
        lake.open("t").append([{"n": 0}])
