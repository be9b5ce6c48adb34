"""Declared checks on the doors of Spark: each holds bad rows back, by tasks and by the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from declared_doors import BAD, GOOD, SANE, created, ids_of

import lakebed
from lakebed import Dataset, Repository, WriteOptions, checks

pytestmark = pytest.mark.spark

COLUMNS = "id long, delay long, carrier string"
# More than the driver writes itself, spread over tasks; two rows of them are bad.
MANY = 40_000


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path / "lake")


def _frame(spark: Any) -> Any:
    return spark.createDataFrame([tuple(row.values()) for row in BAD], COLUMNS)


def _few(spark: Any, flights: Dataset, _: Path) -> object:
    return flights.append(_frame(spark))


def _tasks(spark: Any, flights: Dataset, _: Path) -> object:
    frame = _frame(spark).repartition(3)
    # With a choice of the caller, the driver does not ask for few rows.
    return flights.with_options(write=WriteOptions(cluster=False)).append(frame)


def _gathered(spark: Any, flights: Dataset, _: Path) -> object:
    frame = _frame(spark).repartition(3)
    return flights.with_options(write=WriteOptions(cluster=True)).append(frame)


def _rerun(spark: Any, flights: Dataset, _: Path) -> object:
    return flights.rerun(_frame(spark), run="monday", replace_all=True)


def _merge(spark: Any, flights: Dataset, _: Path) -> object:
    return flights.upsert(_frame(spark), on="id")


def _data_source(spark: Any, flights: Dataset, _: Path) -> object:
    _frame(spark).write.format("lakebed").mode("append").save(flights.uri)
    return flights.history()[-1]


def _sink(spark: Any, flights: Dataset, _: Path) -> object:
    return flights.sink(_frame(spark), 0, query="q")


def _stream(spark: Any, flights: Dataset, path: Path) -> object:
    from lakebed.spark.types import struct_type

    folder = path / "in"
    pa.parquet.write_table(pa.Table.from_pylist(list(BAD)), _made(folder) / "a.parquet")
    frame = spark.readStream.schema(struct_type(flights.schema)).parquet(str(folder))
    writer = frame.writeStream.format("lakebed").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(path / "check")).start(flights.uri)
    query.awaitTermination()
    return flights.history()[-1]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


DOORS: dict[str, Callable[[Any, Dataset, Path], object]] = {
    "few rows": _few,
    "tasks": _tasks,
    "gathering tasks": _gathered,
    "rerun": _rerun,
    "merge": _merge,
    "data source": _data_source,
    "sink": _sink,
    "stream": _stream,
}


@pytest.mark.parametrize("door", DOORS)
def test_door_refuses_rows_that_fail_a_check(
    spark: Any, lake: Repository, tmp_path: Path, door: str
) -> None:
    partition_by = "carrier" if door == "gathering tasks" else None
    flights = created(lake, {"sane": checks.condition(SANE)}, partition_by=partition_by)

    # The data source and streams report the error through the JVM.
    with pytest.raises(Exception, match=r"sane, condition\(.*2 rows fail, such as delay = -[57]00"):
        DOORS[door](spark, flights, tmp_path)

    assert flights.version == 1
    assert ids_of(flights) == [1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize("door", DOORS)
def test_door_quarantines_rows_that_fail_a_check(
    spark: Any, lake: Repository, tmp_path: Path, door: str
) -> None:
    partition_by = "carrier" if door == "gathering tasks" else None
    check = checks.condition(SANE, on_failure="quarantine")
    flights = created(lake, {"sane": check}, partition_by=partition_by)

    DOORS[door](spark, flights, tmp_path)

    (result,) = flights.history()[-1].checks
    assert (result.outcome, result.count) == ("quarantined", 2)
    assert ids_of(flights) == [1, 2, 12]
    rows = lake["flights_quarantine"].arrow().to_pylist()
    assert sorted("-500" in row["text"] for row in rows) == [False, True]


@pytest.mark.thorough
@pytest.mark.classic("Spark's own writer needs the JVM")
@pytest.mark.parametrize("action", ["refuse", "warn", "reject"])
def test_rows_of_the_own_writer_of_spark_are_checked(
    spark: Any, lake: Repository, action: checks.OnFailure
) -> None:
    flights = created(
        lake, {"sane": checks.condition(SANE, on_failure=action), "ids": checks.unique("id")}
    )
    frame = spark.range(100, 100 + MANY).selectExpr(
        "id", "if(id % 20000 = 7, -500, 3L) AS delay", "'UA' AS carrier"
    )

    if action == "refuse":
        with pytest.raises(lakebed.errors.ChecksFailedError, match="2 rows fail"):
            flights.append(frame)
        assert flights.count() == len(GOOD)
        return
    commit = flights.append(frame)
    assert [(one.name, one.outcome, one.count) for one in commit.checks] == [
        ("sane", "warned" if action == "warn" else "rejected", 2),
        ("ids", "passed", 0),
    ]
    new_count = MANY - (2 if action == "reject" else 0)
    assert flights.count() == len(GOOD) + new_count
    with pytest.raises(lakebed.errors.ChecksFailedError, match=rf"ids, .* {new_count:,} rows fail"):
        flights.append(frame)
