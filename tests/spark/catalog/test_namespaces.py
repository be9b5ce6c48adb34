"""Namespaces by SQL: folders of the repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

ROWS = pa.table({"n": [1, 2]})


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    lake.write("flights", ROWS)
    lake.namespaces.create("sales").write("orders", ROWS)
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def rows(spark: Any, *statements: str) -> list[tuple[Any, ...]]:
    frames = [spark.sql(statement) for statement in statements]
    return [tuple(row) for row in frames[-1].collect()]


def test_tables_of_a_namespace_are_its_datasets(spark: Any, lake: lakebed.Repository):
    assert rows(spark, "SHOW NAMESPACES IN lake") == [("sales",)]
    assert rows(spark, "SHOW TABLES IN lake.sales") == [("sales", "orders", False)]
    assert rows(spark, "SHOW TABLES IN lake") == [("", "flights", False)]
    assert rows(spark, "SELECT sum(n) FROM lake.sales.orders") == [(3,)]
    assert rows(spark, "SELECT max(version) FROM lake.sales.orders.history") == [(1,)]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (
            [
                "CREATE NAMESPACE lake.ops",
                "CREATE TABLE lake.ops.t PARTITIONED BY (n) AS SELECT 1 AS m, 2 AS n",
                "INSERT INTO lake.ops.t VALUES (3, 4)",
                "SELECT count(*), sum(n) FROM lake.ops.t",
            ],
            [(2, 6)],
        ),
        (
            [
                "CREATE NAMESPACE lake.sales.eu",
                "CREATE TABLE lake.sales.eu.t (n INT)",
                "SHOW TABLES IN lake.sales.eu",
            ],
            [("sales.eu", "t", False)],
        ),
        (["CREATE NAMESPACE lake.sales.eu", "SHOW NAMESPACES IN lake.sales"], [("sales.eu",)]),
        (["CREATE NAMESPACE IF NOT EXISTS lake.sales", "SHOW NAMESPACES IN lake"], [("sales",)]),
        (
            ["CREATE NAMESPACE lake.ops", "DROP NAMESPACE lake.ops", "SHOW NAMESPACES IN lake"],
            [("sales",)],
        ),
        (
            [
                "DROP TABLE lake.sales.orders PURGE",
                "DROP NAMESPACE lake.sales CASCADE",
                "SHOW NAMESPACES IN lake",
            ],
            [],
        ),
        (["DROP NAMESPACE IF EXISTS lake.nothing", "SHOW NAMESPACES IN lake"], [("sales",)]),
        (
            [
                "USE lake.sales",
                "INSERT INTO orders VALUES (3)",
                "CALL compact('orders')",
                "SELECT count(*), current_schema() FROM orders",
            ],
            [(3, "sales")],
        ),
        (
            [
                "INSERT INTO lake.sales.orders VALUES (3)",
                "CALL lake.rollback('sales.orders', 1)",
                "SELECT count(*) FROM lake.sales.orders",
            ],
            [(2,)],
        ),
    ],
)
def test_statement_with_a_namespace(
    spark: Any, lake: lakebed.Repository, statements: list[str], expected: list[tuple[Any, ...]]
):
    try:
        assert rows(spark, *statements) == expected
    finally:
        spark.sql("USE spark_catalog.default")


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("DROP NAMESPACE lake.sales CASCADE", InvalidInputError, "orders"),
        ("CREATE NAMESPACE lake.flights", AlreadyExistsError, "dataset"),
        ("CREATE TABLE lake.sales (n INT)", InvalidInputError, "repository"),
        ("CREATE TABLE lake.sales AS SELECT 1 AS n", InvalidInputError, "repository"),
        ("CREATE NAMESPACE lake.`a.b`", InvalidNameError, "a.b"),
        ("CREATE NAMESPACE lake.`..`", InvalidNameError, ".."),
        ("CREATE NAMESPACE lake.`_lakebed`", InvalidNameError, "_lakebed"),
        ("CREATE NAMESPACE lake.`größe`", InvalidNameError, "letters"),
        ("CREATE NAMESPACE lake.ops LOCATION '/x'", InvalidInputError, "LOCATION"),
        ("ALTER NAMESPACE lake.sales SET LOCATION '/x'", InvalidInputError, "LOCATION"),
        ("CALL lake.compact('nothing.orders')", DatasetNotFoundError, "orders"),
        ("CALL lake.compact('flights.orders')", DatasetNotFoundError, "orders"),
        ("DROP TABLE lake.sales.orders", InvalidInputError, "PURGE"),
    ],
)
def test_statement_is_refused_and_changes_nothing(
    spark: Any,
    lake: lakebed.Repository,
    statement: str,
    error: type[LakebedError],
    words: str,
):
    with pytest.raises(error) as caught:
        spark.sql(statement)

    assert words in str(caught.value)
    assert lake.list() == ["flights"]
    assert lake.namespaces.list() == ["sales"]
    assert lake["sales"]["orders"].count() == 2


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("DROP NAMESPACE lake.sales", "SCHEMA_NOT_EMPTY"),
        ("DROP NAMESPACE lake.nothing", "SCHEMA_NOT_FOUND"),
        ("CREATE NAMESPACE lake.sales", "SCHEMA_ALREADY_EXISTS"),
        ("CREATE NAMESPACE lake.no.where", "SCHEMA_NOT_FOUND"),
        ("CREATE TABLE lake.nothing.t (n INT)", "SCHEMA_NOT_FOUND"),
        ("CREATE TABLE lake.nothing.t AS SELECT 1 AS n", "SCHEMA_NOT_FOUND"),
        ("SELECT * FROM lake.nothing.t", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SELECT * FROM lake.`..`.t", "TABLE_OR_VIEW_NOT_FOUND"),
        ("SHOW TABLES IN lake.flights", "SCHEMA_NOT_FOUND"),
        ("USE lake.flights", "SCHEMA_NOT_FOUND"),
        ("SELECT * FROM lake.flights.data.x", "TABLE_OR_VIEW_NOT_FOUND"),
    ],
)
def test_spark_s_own_errors_name_missing_namespaces(
    spark: Any, lake: lakebed.Repository, statement: str, condition: str
):
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=condition):
        spark.sql(statement).collect()


def test_datasets_of_one_name_are_apart(spark: Any, lake: lakebed.Repository, tmp_path: Path):
    """A copied folder has the same commits; its rows are those of its own files."""
    import shutil

    shutil.copytree(tmp_path / "sales", tmp_path / "copy")
    assert rows(spark, "SELECT count(*) FROM lake.sales.orders") == [(2,)]
    shutil.rmtree(tmp_path / "sales")

    assert rows(spark, "SELECT count(*) FROM lake.copy.orders") == [(2,)]
    assert rows(spark, "SHOW NAMESPACES IN lake") == [("copy",)]


def test_properties_of_a_namespace(spark: Any, lake: lakebed.Repository):
    spark.sql("CREATE NAMESPACE lake.ops COMMENT 'all' WITH DBPROPERTIES ('a' = '1', 'b' = '2')")
    spark.sql("ALTER NAMESPACE lake.ops SET PROPERTIES ('a' = '3')")
    spark.sql("ALTER NAMESPACE lake.ops UNSET PROPERTIES ('b')")

    properties = lake.namespaces.properties("ops")
    described = dict(rows(spark, "DESCRIBE NAMESPACE EXTENDED lake.ops"))
    assert (properties["comment"], properties["a"], "b" in properties) == ("all", "3", False)
    assert described["Comment"] == "all"
    assert described["Location"] == f"{lake.uri}/ops"
    assert "(a,3)" in described["Properties"]
