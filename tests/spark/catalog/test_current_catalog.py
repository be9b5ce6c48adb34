"""`lakebed.spark.session`: a session whose current catalog is a repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
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


CATALOG_CALLS: dict[str, Callable[[Any], Any]] = {
    "tables": lambda catalog: names(catalog.listTables()),
    "tables like": lambda catalog: names(catalog.listTables(pattern="num*|'")),
    "tables of nothing": lambda catalog: names(catalog.listTables("nothing")),
    "namespace of nothing": lambda catalog: catalog.getDatabase("nothing"),
    "exists": lambda catalog: [
        catalog.tableExists(name) for name in ("numbers", "made", "nothing", "nothing.numbers")
    ],
    "table": lambda catalog: catalog.getTable("numbers").tableType,
    "table that is missing": lambda catalog: catalog.getTable("nothing"),
    "columns": lambda catalog: catalog.listColumns("made"),
    "columns that are missing": lambda catalog: catalog.listColumns("nothing"),
    "refresh": lambda catalog: catalog.refreshTable("numbers"),
    "refresh of nothing": lambda catalog: catalog.refreshTable("nothing"),
    "cache": lambda catalog: (
        catalog.cacheTable("numbers"),
        catalog.isCached("numbers"),
        catalog.uncacheTable("numbers"),
        catalog.isCached("numbers"),
    ),
    "temporary view": lambda catalog: (
        catalog.tableExists("shown_view"),
        catalog.getTable("shown_view").isTemporary,
        [column.name for column in catalog.listColumns("shown_view")],
        catalog.refreshTable("shown_view"),
        catalog.dropTempView("shown_view"),
        catalog.dropTempView("shown_view"),
        catalog.tableExists("shown_view"),
    ),
    "no temporary view": lambda catalog: catalog.dropTempView("numbers"),
    "functions": lambda catalog: [catalog.functionExists(name) for name in ("abs", "nothing")],
    "functions listed": lambda catalog: functions(catalog.listFunctions()),
    "functions like": lambda catalog: functions(catalog.listFunctions(pattern="ab*")),
    "functions of nothing": lambda catalog: catalog.listFunctions("nothing"),
    "namespace": lambda catalog: (
        catalog.databaseExists("shown_below"),
        catalog.setCurrentDatabase("shown_below"),
        catalog.currentDatabase(),
        names(catalog.listTables()),
        functions(catalog.listFunctions()),
        catalog.tableExists("numbers"),
    ),
    "namespace to use that is missing": lambda catalog: catalog.setCurrentDatabase("nothing"),
}


def names(tables: list[Any]) -> list[tuple[str, str]]:
    return [(table.name, table.tableType) for table in tables if not table.isTemporary]


def functions(listed: list[Any]) -> list[tuple[str, str, str | None]]:
    assert listed
    return sorted((one.name, one.className, one.namespace) for one in listed)


def answer(spark: Any, call: str) -> Any:
    from pyspark.errors import PySparkException

    spark.range(1).createOrReplaceTempView("shown_view")
    try:
        return CATALOG_CALLS[call](spark.catalog)
    except PySparkException as error:
        return error.getCondition()
    finally:
        spark.catalog.dropTempView("shown_view")


@pytest.fixture(scope="module")
def own_database(spark: Any) -> Iterator[str]:
    """A database of Spark with tables of the same names as `lake` gets, and one without tables."""
    spark.catalog.setCurrentCatalog("spark_catalog")
    for database in ("shown_own", "shown_below"):
        spark.sql(f"CREATE DATABASE {database}")
    spark.sql("CREATE TABLE shown_own.numbers (n BIGINT) USING parquet")
    spark.sql(f"CREATE TABLE shown_own.made {MADE}")
    yield "shown_own"
    spark.catalog.setCurrentCatalog("spark_catalog")
    spark.catalog.setCurrentDatabase("default")
    spark.sql("DROP DATABASE shown_own CASCADE")
    spark.sql("DROP DATABASE IF EXISTS shown_below CASCADE")


MADE = "(n INT COMMENT 'a number', day DATE) USING parquet PARTITIONED BY (day)"


@pytest.mark.parametrize("call", CATALOG_CALLS)
def test_catalog_of_the_session_answers_as_of_tables_of_spark(
    spark: Any, lake: lakebed.Repository, own_database: str, call: str
):
    spark.catalog.setCurrentDatabase(own_database)
    own = answer(spark, call)
    spark.catalog.setCurrentDatabase("default")
    session = lakebed.spark.session(lake, catalog="hall")
    session.sql(f"CREATE TABLE made {MADE}")
    lake.namespaces.create("shown_below")

    assert answer(session, call) == own


def test_default_namespace_is_listed_by_the_name_of_the_catalog(
    spark: Any, lake: lakebed.Repository
):
    lake.namespaces.create("sales", properties={"comment": "orders"}).write(
        "orders", pa.table({"id": [1]})
    )
    lakebed.spark.attach(spark, lake, catalog="hall")

    (table,) = spark.catalog.listTables("hall")
    assert (table.name, table.catalog, table.namespace) == ("numbers", "hall", [])
    assert [table.name for table in spark.catalog.listTables("hall.sales")] == ["orders"]
    spark.catalog.setCurrentCatalog("hall")
    (database,) = spark.catalog.listDatabases()
    assert (database.name, database.catalog, database.description) == ("sales", "hall", "orders")
    assert spark.catalog.listTables("hall") == [table]
    spark.catalog.setCurrentDatabase("sales")
    assert [table.name for table in spark.catalog.listTables()] == ["orders"]


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
