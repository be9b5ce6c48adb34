"""`lakebed.spark.session`: a session whose current catalog is a repository."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    lake = lakebed.open_repository(tmp_path)
    lake.write("numbers", pa.table({"n": [1, 2]}))
    return lake


@pytest.fixture(autouse=True)
def _detached(spark: Any, lake: lakebed.Repository) -> Iterator[None]:
    yield
    for name in ("lake", "hall"):  # the one that takes its place
        lakebed.spark.attach(spark, lake, catalog=name).detach()


def test_names_are_those_of_the_repository(spark: Any, lake: lakebed.Repository):
    session = lakebed.spark.session(lake.uri, catalog="hall")

    assert session.catalog.currentCatalog() == "hall"
    assert session.table("numbers").count() == 2
    session.sql("CREATE TABLE made AS SELECT 1 AS n")
    assert lake.list() == ["made", "numbers"]


def test_repository_and_path_are_taken_and_a_second_call_changes_the_repository(
    spark: Any, lake: lakebed.Repository, tmp_path: Path
):
    lakebed.spark.session(tmp_path / "other")
    assert spark.sql("SHOW TABLES").count() == 0

    lakebed.spark.session(lake)

    assert spark.sql("SHOW TABLES").count() == 1


def test_settings_name_catalogs(spark: Any, lake: lakebed.Repository):
    spark.conf.set("spark.lakebed.catalog.hall", lake.uri)
    try:
        session = lakebed.spark.session()
    finally:
        spark.conf.unset("spark.lakebed.catalog.hall")

    assert session.catalog.currentCatalog() == "spark_catalog"
    assert session.table("hall.numbers").count() == 2


def test_no_repository_at_all_is_refused(spark: Any):
    with pytest.raises(InvalidInputError, match=r"no repository for a catalog"):
        lakebed.spark.session()


def test_module_and_function_have_one_name(spark: Any):
    from lakebed.spark.session import local_session, session

    assert lakebed.spark.session.local_session is local_session
    assert lakebed.spark.session.session is session


@pytest.mark.thorough
def test_program_of_spark_submit_has_the_catalog_of_the_setting(
    lake: lakebed.Repository, tmp_path: Path
):
    program = tmp_path / "program.py"
    program.write_text(
        "import lakebed\n"
        "spark = lakebed.spark.session()\n"
        "print('rows', spark.table('numbers').count())\n"
    )
    settings = {
        "spark.lakebed.catalog.hall": lake.uri,
        "spark.sql.defaultCatalog": "hall",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]

    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            "--master",
            "local[1]",
            *pairs,
            program,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "PYSPARK_PYTHON": sys.executable,
        },
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows 2" in done.stdout
