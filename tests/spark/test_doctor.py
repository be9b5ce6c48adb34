"""What the workers of a session tell, by the library and on the command line."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click.testing
import pyarrow as pa
import pytest

import lakebed
from lakebed.cli import main
from lakebed.errors import InvalidInputError
from lakebed.spark import look_at_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def doctor(*arguments: str, exit_code: int = 0) -> list[dict[str, str]]:
    result = click.testing.CliRunner().invoke(main, ["doctor", *arguments, "-o", "json"])
    assert result.exit_code == exit_code, result.output
    rows: list[dict[str, str]] = json.loads(result.stdout)
    return rows


def test_a_worker_tells_what_it_runs_and_that_it_reaches_the_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    (report,) = look_at_workers(spark, str(tmp_path))

    assert report.host == platform.node()
    assert report.python == platform.python_version()
    assert report.executable == sys.executable
    assert (report.lakebed, report.pyarrow) == (lakebed.__version__, pa.__version__)
    assert report.clock_s == 0.0
    assert report.store == "reads and writes"
    assert report.problems == ()
    assert [path.name for path in tmp_path.iterdir()] == [".lakebed"]  # the locks of the store
    assert lakebed.open_repository(tmp_path).list() == []


def test_no_store_is_asked_for_where_none_is_named(spark: SparkSession) -> None:
    (report,) = look_at_workers(spark)

    assert report.store is None
    assert report.problems == ()


@pytest.mark.parametrize(
    ("location", "problem"),
    [("memory://lake", "memory of this process"), ("nowhere", "does not exist")],
)
def test_a_store_that_workers_cannot_reach_is_refused(
    spark: SparkSession, tmp_path: Path, location: str, problem: str
) -> None:
    place = location if "://" in location else str(tmp_path / location)

    with pytest.raises(InvalidInputError, match=problem):
        look_at_workers(spark, place)

    assert list(tmp_path.iterdir()) == []


def test_doctor_has_a_row_for_the_session_and_for_each_worker(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = {row["name"]: row for row in doctor(str(tmp_path), "--spark")}

    assert rows["spark"]["value"] == spark.version
    assert rows["worker"]["status"] == "ok"
    assert rows["worker"]["value"] == platform.node()
    for fact in (sys.executable, f"lakebed {lakebed.__version__}", "reads and writes the store"):
        assert fact in rows["worker"]["detail"]


def test_doctor_fails_where_workers_cannot_be_asked(spark: SparkSession) -> None:
    rows = {row["name"]: row for row in doctor("memory://lake", "--spark", exit_code=1)}

    assert rows["workers"]["status"] == "failed"
    assert "memory of this process" in rows["workers"]["detail"]
