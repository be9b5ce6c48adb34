"""Partitions by SQL: shown, dropped and emptied, each statement in one commit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

DAY = dt.date(2026, 1, 1)
TYPES = {
    "d": pa.array([DAY, DAY + dt.timedelta(days=1), None, DAY], pa.date32()),
    "s": pa.array(["a/b", None, "ü ' %", ""], pa.string()),
    "b": pa.array([True, False, None, True], pa.bool_()),
    "i": pa.array([-1, 2**31 - 1, None, 0], pa.int32()),
    "l": pa.array([-1, 2**63 - 1, None, 0], pa.int64()),
    "u": pa.array([1, 2**64 - 1, None, 0], pa.uint64()),
    "f": pa.array([0.5, float("nan"), None, float("inf")], pa.float64()),
    "t": pa.array([dt.datetime(1969, 12, 31, 23, 59, 59, 1), None, None, None], pa.timestamp("us")),
    "z": pa.array(
        [dt.datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=dt.UTC), None, None, None],
        pa.timestamp("us", tz="UTC"),
    ),
}
LITERALS = {
    "d": ["DATE '2026-01-01'", "'2026-01-02'", "null"],
    "s": ["'a/b'", "null", '"ü \' %"'],
    "b": ["true", "false", "null"],
    "i": ["-1", "2147483647", "null"],
    "l": ["-1", "9223372036854775807", "null"],
    "u": ["1", "18446744073709551615", "null"],
    "f": ["0.5", "'NaN'", "null"],
    "t": ["'1969-12-31 23:59:59.000001'", "null"],
    "z": ["'2026-01-01 01:02:03.000004'", "null"],
}
CASES = [(name, position) for name, texts in LITERALS.items() for position in range(len(texts))]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    days = [DAY + dt.timedelta(days=number % 5) for number in range(20)]
    flights = pa.table({"n": list(range(20)), "day": pa.array(days, pa.date32())})
    lake.write("flights", flights, partition_by="day")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def texts(spark: Any, statement: str) -> list[str]:
    return [row[0] for row in spark.sql(statement).collect()]


@pytest.mark.parametrize(("name", "position"), CASES)
def test_partition_of_each_type_is_shown_and_dropped(
    spark: Any, lake: lakebed.Repository, name: str, position: int
):
    rows = pa.table({"n": [0, 1, 2, 3], name: TYPES[name]})
    lake.write("typed", rows, partition_by=name)
    spec = f"PARTITION ({name} = {LITERALS[name][position]})"
    meant = [
        number
        for number, value in enumerate(TYPES[name].to_pylist())
        if repr(value) == repr(TYPES[name].to_pylist()[position])
    ]

    shown = texts(spark, f"SHOW PARTITIONS lake.typed {spec}")
    spark.sql(f"ALTER TABLE lake.typed DROP {spec}")

    left = set(range(4)) - set(meant)
    assert len(shown) == 1
    assert set(lake.open("typed").to_arrow()["n"].to_pylist()) == left
    assert texts(spark, f"SHOW PARTITIONS lake.typed {spec}") == []
    assert lake.open("typed").version == 2


def test_partitions_of_several_levels_are_shown_by_some_of_them(
    spark: Any, lake: lakebed.Repository
):
    spark.sql(
        "CREATE TABLE lake.new PARTITIONED BY (days(at), bucket(2, id)) AS "
        "SELECT id, timestamp_seconds(1767225600 + id * 43200) AS at FROM range(4)"
    )
    all_shown = texts(spark, "SHOW PARTITIONS lake.new")

    assert len(all_shown) == len(lake.open("new").inspect.partitions())
    for day in ("2026-01-01", "2026-01-02"):
        shown = texts(spark, f"SHOW PARTITIONS lake.new PARTITION (at_day = '{day}')")
        assert shown == [text for text in all_shown if f"at_day={day}" in text]
    spark.sql("TRUNCATE TABLE lake.new PARTITION (at_day = '2026-01-01')")
    assert sorted(lake.open("new").to_arrow()["id"].to_pylist()) == [2, 3]


def test_partitions_are_dropped_in_one_commit(spark: Any, lake: lakebed.Repository):
    spark.sql(
        "ALTER TABLE lake.flights DROP PARTITION (day = '2026-01-01'), "
        "PARTITION (day = '2026-01-02')"
    )

    flights = lake.open("flights")
    assert flights.version == 2
    assert flights.count() == 12
    assert flights.at(version=1).count() == 20
    assert flights.history()[-1].operation == "delete"


def test_missing_partition_is_missing_to_spark(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import AnalysisException

    missing = "PARTITION (day = '2027-01-01')"
    for statement in (
        f"ALTER TABLE lake.flights DROP {missing}",
        f"ALTER TABLE lake.flights DROP PARTITION (day = '2026-01-01'), {missing}",
        f"TRUNCATE TABLE lake.flights {missing}",
    ):
        with pytest.raises(AnalysisException, match="PARTITIONS_NOT_FOUND"):
            spark.sql(statement)
    assert lake.open("flights").version == 1
    spark.sql(f"ALTER TABLE lake.flights DROP IF EXISTS PARTITION (day = '2026-01-01'), {missing}")
    assert lake.open("flights").count() == 16


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("ADD PARTITION (day = '2027-01-01')", "Insert rows"),
        ("ADD PARTITION (day = '2027-01-01') PARTITION (day = '2027-01-02')", "Insert rows"),
        ("DROP PARTITION (day = '2026-01-01') PURGE", "cleanup"),
        (
            "DROP PARTITION (day = '2026-01-01'), PARTITION (day = '2026-01-02') PURGE",
            "cleanup",
        ),
        ("PARTITION (day = '2026-01-01') RENAME TO PARTITION (day = '2027-01-01')", "UPDATE"),
    ],
)
def test_other_statements_on_partitions_are_refused_by_name(
    spark: Any, lake: lakebed.Repository, statement: str, remedy: str
):
    with pytest.raises(InvalidInputError, match=remedy):
        spark.sql(f"ALTER TABLE lake.flights {statement}")

    assert lake.open("flights").version == 1


def test_partition_that_another_writer_changed_is_a_conflict(spark: Any, lake: lakebed.Repository):
    """The rows that a statement drops are those of the version that it has found."""
    from lakebed.errors import CommitConflictError

    statement = (
        spark._jsparkSession.sessionState()
        .sqlParser()
        .parsePlan("ALTER TABLE lake.flights DROP PARTITION (day = '2026-01-01')")
    )
    query = spark._jsparkSession.sessionState().executePlan(
        statement, spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    )
    query.analyzed()
    lake.open("flights").append(
        pa.table({"n": [100], "day": pa.array([DAY], pa.date32())}),
    )

    with pytest.raises(CommitConflictError):
        query.executedPlan().executeCollect()
    assert lake.open("flights").count() == 21


def test_partition_has_its_facts(spark: Any, lake: lakebed.Repository):
    spec = "PARTITION (day = '2026-01-01')"
    (row,) = spark.sql(f"SHOW TABLE EXTENDED IN lake LIKE 'flights' {spec}").collect()

    assert "row_count: 4" in row["information"]


def test_table_is_described_as_it_is_created(spark: Any, lake: lakebed.Repository):
    spark.sql(
        "CREATE TABLE lake.new (id BIGINT COMMENT 'key', at TIMESTAMP, n INT DEFAULT 7) "
        "PARTITIONED BY (days(at), bucket(4, id)) TBLPROPERTIES ('team' = 'ops')"
    )
    (created,) = texts(spark, "SHOW CREATE TABLE lake.new")
    described = {row[0]: row[1] for row in spark.sql("DESCRIBE EXTENDED lake.new").collect()}
    before = lake.open("new").descriptor
    lake.drop("new")

    spark.sql(created)

    assert lake.open("new").descriptor == before
    assert described["Part 0"] == "days(at)"
    assert described["Provider"] == "lakebed"
    assert described["Type"] == "MANAGED"
    assert described["Location"] == f"{lake.uri}/new"
    assert texts(spark, "SHOW COLUMNS IN lake.new") == ["id", "at", "n"]
    properties = dict(tuple(row) for row in spark.sql("SHOW TBLPROPERTIES lake.new").collect())
    assert properties == {"team": "ops", "lakebed.version": "0"}
