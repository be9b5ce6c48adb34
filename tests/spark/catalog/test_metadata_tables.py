"""Facts of a dataset as tables below its name."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError, VersionNotFoundError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

JANUARY = dt.date(2026, 1, 1)


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    days = [JANUARY + dt.timedelta(days=number % 3) for number in range(12)]
    flights = pa.table({"n": list(range(12)), "day": pa.array(days, pa.date32())})
    lake.write("flights", flights, run="first", partition_by="day")
    lake.open("flights").delete(f"day = '{JANUARY}'")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def rows(spark: Any, statement: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(statement).collect()]


def equal_rows(spark: Any, table: str, items: Any) -> None:
    """Compare each column of a table with the attribute of the same name."""
    frame = spark.table(table)
    found = [row.asDict() for row in frame.collect()]
    assert len(found) == len(items)
    for row, item in zip(found, items, strict=True):
        for name, value in row.items():
            expected = getattr(item, name)
            if isinstance(expected, tuple):
                expected = list(expected)
            if isinstance(expected, dt.datetime):
                expected = expected.replace(tzinfo=None)  # the session's zone is UTC
            if name == "values":
                value = value.asDict()
            assert value == expected, name


def test_facts_are_those_of_the_dataset(spark: Any, lake: lakebed.Repository):
    flights = lake.open("flights")

    equal_rows(spark, "lake.flights.history", flights.history())
    equal_rows(spark, "lake.flights.files", flights.files())
    equal_rows(spark, "lake.flights.partitions", flights.inspect.partitions())
    equal_rows(spark, "lake.flights.runs", flights.batches())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "SELECT values.day, row_count FROM lake.flights.partitions ORDER BY 1 DESC LIMIT 1",
            [(dt.date(2026, 1, 3), 4)],
        ),
        ("SELECT operation FROM lake.flights.history WHERE version = 2", [("delete",)]),
        ("SELECT count(*) FROM lake.flights.files", [(2,)]),
        ("SELECT count(*) FROM lake.flights.files VERSION AS OF 1", [(3,)]),
        ("SELECT count(*) FROM lake.flights.partitions VERSION AS OF 1", [(3,)]),
        ("SELECT max(version) FROM lake.flights.history VERSION AS OF 1", [(1,)]),
        ("SELECT live_file_count FROM lake.flights.runs VERSION AS OF 1", [(3,)]),
        (
            "SELECT count(*) FROM lake.flights.files TIMESTAMP AS OF current_timestamp()",
            [(2,)],
        ),
        (
            "SELECT count(*) FROM lake.flights.files f JOIN lake.flights.runs r USING (batch_id)",
            [(2,)],
        ),
    ],
)
def test_facts_are_queried_as_any_table(
    spark: Any, lake: lakebed.Repository, query: str, expected: list[tuple[Any, ...]]
):
    assert rows(spark, query) == expected


def test_dataset_without_partition_fields_has_one_partition(spark: Any, lake: lakebed.Repository):
    lake.write("plain", pa.table({"n": [1, 2]}))

    assert rows(spark, "SELECT path, row_count FROM lake.plain.partitions") == [("", 2)]


def test_quarantine_has_the_rejects(spark: Any, lake: lakebed.Repository, tmp_path: Path):
    lines = tmp_path / "numbers.jsonl"
    lines.write_text('{"n": 1}\n{"n": "x"}\n', encoding="utf-8")
    lake.write("numbers", pa.table({"n": [1]}))
    assert rows(spark, "SELECT * FROM lake.numbers.quarantine") == []
    lake.open("numbers").load([str(lines)], run="r1")

    now = "TIMESTAMP AS OF current_timestamp()"
    assert rows(spark, "SELECT line_number, run FROM lake.numbers.quarantine") == [(2, "r1")]
    assert rows(spark, f"SELECT count(*) FROM lake.numbers.quarantine {now}") == [(1,)]
    assert lake.open("numbers").inspect.quarantines() == ("numbers_quarantine",)
    with pytest.raises(InvalidInputError, match="numbers_quarantine"):
        spark.sql("SELECT * FROM lake.numbers.quarantine VERSION AS OF 1")


def test_quarantine_of_another_name_is_found_and_two_are_refused(
    spark: Any, lake: lakebed.Repository, tmp_path: Path
):
    lake.write("numbers", pa.table({"n": [1]}))
    for name in ("rest", "more"):
        lines = tmp_path / f"{name}.jsonl"
        lines.write_text(f'{{"n": "{name}"}}\n', encoding="utf-8")
        lake.open("numbers").load([str(lines)], run=name, quarantine=name)
        found = lake.open("numbers").inspect.quarantines()
        if name == "rest":
            assert found == ("rest",)
            assert rows(spark, "SELECT run FROM lake.numbers.quarantine") == [("rest",)]

    assert found == ("more", "rest")
    with pytest.raises(InvalidInputError, match="more, rest"):
        spark.sql("SELECT * FROM lake.numbers.quarantine")


def test_missing_names_are_named(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import AnalysisException

    with pytest.raises(InvalidInputError, match="history, files, partitions, runs, quarantine"):
        spark.sql("SELECT * FROM lake.flights.snapshots")
    with pytest.raises(InvalidInputError, match="'history'"):
        spark.sql("SELECT * FROM lake.flights.hystory")
    with pytest.raises(VersionNotFoundError):
        spark.sql("SELECT * FROM lake.flights.history VERSION AS OF 99")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.nothing.history")
    assert spark.catalog.tableExists("lake.flights.history")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.flights.history SELECT * FROM lake.flights.history",
        "DELETE FROM lake.flights.history WHERE version = 1",
        "DELETE FROM lake.numbers.quarantine WHERE line_number = 1",
        "INSERT INTO lake.numbers.quarantine SELECT * FROM lake.numbers.quarantine",
        "TRUNCATE TABLE lake.flights.files",
        "UPDATE lake.flights.files SET key = 'x'",
        "INSERT OVERWRITE lake.flights.files SELECT * FROM lake.flights.files",
        "MERGE INTO lake.flights.files t USING (SELECT 'x' AS key) s ON t.key = s.key "
        "WHEN MATCHED THEN DELETE",
        "DROP TABLE lake.flights.history",
        "DROP TABLE lake.flights.history PURGE",
        "ALTER TABLE lake.flights.files ADD COLUMNS (n INT)",
    ],
)
def test_facts_cannot_be_changed(
    spark: Any, lake: lakebed.Repository, tmp_path: Path, statement: str
):
    lines = tmp_path / "numbers.jsonl"
    lines.write_text('{"n": "x"}\n', encoding="utf-8")
    lake.write("numbers", pa.table({"n": [1]}))
    lake.open("numbers").load([str(lines)], run="r1")
    before = {name: lake.open(name).version for name in lake.list()}

    with pytest.raises(InvalidInputError, match="cannot be changed"):
        spark.sql(statement)

    assert {name: lake.open(name).version for name in lake.list()} == before
