"""The text of SHOW CREATE TABLE makes the same table in another namespace."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    lake.namespaces.create("copies")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


DEFINITIONS = {
    "required": "(id BIGINT NOT NULL COMMENT 'the key', name STRING NOT NULL DEFAULT 'x')",
    "comments": r"(a INT COMMENT 'it\'s a \"comment\"') COMMENT 'all of it\'s rows'",
    "backslashes": r"(a INT COMMENT 'a \\ b') COMMENT 'all \\ rows'",
    "names": "(`a b` INT NOT NULL, `select` INT, `x-y` INT DEFAULT 1)",
    "numbers": "(a TINYINT DEFAULT -3, b SMALLINT DEFAULT 4, c INT DEFAULT 7L, d BIGINT DEFAULT "
    "-9223372036854775808, e FLOAT DEFAULT 0.1, f DOUBLE DEFAULT 1e300D, "
    "g DECIMAL(10, 4) DEFAULT -1.5, h DECIMAL(38, 20) DEFAULT 0.00000000000000000001)",
    "texts": r"(a STRING DEFAULT 'it\'s', b STRING DEFAULT 'a\\b\nc', c BINARY DEFAULT X'00ff', "
    "d BOOLEAN DEFAULT true)",
    "times": "(a DATE NOT NULL DEFAULT DATE '0099-12-31', b TIMESTAMP DEFAULT "
    "TIMESTAMP '2026-07-01 00:00:00.000001+02:00', "
    "c TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ '2026-07-01 00:00:00')",
    "records": "(s STRUCT<a: INT NOT NULL COMMENT 'inner', b: ARRAY<STRUCT<c: INT COMMENT 'deep'>>> "
    "NOT NULL, m MAP<STRING, STRUCT<d: STRING COMMENT 'value'>>)",
    "partitions": "(id BIGINT NOT NULL, day DATE NOT NULL, at TIMESTAMP) "
    "PARTITIONED BY (day, hours(at), bucket(4, id))",
    "constraints": "(n INT, x DOUBLE, at TIMESTAMP, CONSTRAINT a CHECK (n > 0 OR NOT x < 2.5), "
    "CONSTRAINT b CHECK (at >= '2026-01-01' AND n IS NOT NULL))",
    "properties": r"(n INT) TBLPROPERTIES ('team' = 'it\'s', 'a.b' = '1')",
}


# Definitions that a release of Spark does not take.
SINCE = {"constraints": pytest.mark.since_spark("4.1", "CREATE TABLE takes no CONSTRAINT")}
# Definitions that a release of Spark shows as others.
SHOWN_SINCE = {
    "backslashes": pytest.mark.since_spark(
        "4.3", "SHOW CREATE TABLE escapes no backslash in comments, also of Spark's own tables"
    )
}


def definitions(**others: pytest.MarkDecorator) -> list[Any]:
    """Return the names of definitions, each with the releases that it needs."""
    marks = {**SINCE, **others}
    return [pytest.param(name, marks=marks.get(name, ()), id=name) for name in DEFINITIONS]


def show(spark: Any, table: str) -> str:
    ((text,),) = spark.sql(f"SHOW CREATE TABLE {table}").collect()
    return str(text)


@pytest.mark.parametrize("name", definitions(**SHOWN_SINCE))
def test_shown_statement_makes_the_same_table(
    spark: Any, lake: lakebed.Repository, tmp_path: Path, name: str
):
    spark.sql(f"CREATE TABLE lake.t {DEFINITIONS[name]}")

    spark.sql(show(spark, "lake.t").replace("lake.t ", "lake.copies.t ", 1))

    copy = lakebed.open_repository(tmp_path / "copies").open("t").descriptor
    assert copy == lake.open("t").descriptor
    assert [field.doc for field in copy.schema] == [
        field.doc for field in lake.open("t").descriptor.schema
    ]


@pytest.mark.parametrize("name", definitions())
def test_declared_table_takes_rows_and_gives_them(spark: Any, lake: lakebed.Repository, name: str):
    spark.sql(f"CREATE TABLE lake.t {DEFINITIONS[name]}")
    struct = spark.table("lake.t").schema
    values = {
        "tinyint": 1,
        "smallint": 1,
        "int": 1,
        "bigint": 1,
        "float": 1.0,
        "double": 1.0,
        "string": "x",
        "binary": bytearray(b"x"),
        "boolean": False,
        "date": dt.date(2026, 1, 1),
        "timestamp": dt.datetime(2026, 1, 1),
        "timestamp_ntz": dt.datetime(2026, 1, 1),
        "decimal(10,4)": Decimal("1.0000"),
        "decimal(38,20)": Decimal("1." + "0" * 20),
        "struct<a:int,b:array<struct<c:int>>>": (1, [(2,)]),
        "map<string,struct<d:string>>": {"k": ("v",)},
    }
    row = tuple(values[field.dataType.simpleString()] for field in struct)

    spark.createDataFrame([row], struct).writeTo("lake.t").append()

    assert [tuple(found) for found in spark.table("lake.t").collect()] == [row]


@pytest.mark.since_spark("4.1", "an INSERT names each column")
def test_column_that_is_left_out_gets_its_default(spark: Any, lake: lakebed.Repository):
    spark.sql(
        "CREATE TABLE lake.t (n INT, a TINYINT DEFAULT -3, b DECIMAL(10, 4) DEFAULT 1.5, "
        "c BINARY DEFAULT X'00ff', d DATE DEFAULT DATE '2026-01-01', e DOUBLE DEFAULT 0.1)"
    )

    spark.sql("INSERT INTO lake.t (n) VALUES (1)")

    ((*row,),) = spark.sql("SELECT * FROM lake.t").collect()
    expected = [1, -3, Decimal("1.5000"), b"\0\xff", dt.date(2026, 1, 1), 0.1]
    assert row == expected


def test_default_has_the_type_of_its_column(spark: Any, lake: lakebed.Repository):
    """Spark 4.0 hands over the literals as they are written."""
    spark.sql(
        "CREATE TABLE lake.t (a BIGINT DEFAULT 1, b DOUBLE DEFAULT 1, c FLOAT DEFAULT 0.5, "
        "d DECIMAL(10, 4) DEFAULT 1.5, e STRING DEFAULT 5, f CHAR(3) DEFAULT 'x')"
    )
    spark.sql("ALTER TABLE lake.t ADD COLUMNS (g DOUBLE DEFAULT 1.5)")

    defaults = [field.default for field in lake.open("t").schema]
    assert defaults == [1, 1.0, 0.5, Decimal("1.5000"), "5", "x", 1.5]
    assert [type(value) for value in defaults] == [int, float, float, Decimal, str, str, float]


@pytest.mark.parametrize("default", ["DOUBLE('NaN')", "DOUBLE('-Infinity')", "rand()"])
def test_default_that_is_not_one_value_is_refused(
    spark: Any, lake: lakebed.Repository, default: str
):
    from pyspark.errors import AnalysisException

    with pytest.raises((InvalidInputError, AnalysisException), match=r"(?i)default"):
        spark.sql(f"CREATE TABLE lake.t (n DOUBLE DEFAULT {default})")

    assert not lake.exists("t")


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO lake.t VALUES (NULL, 1)",
        "UPDATE lake.t SET id = NULL",
        "MERGE INTO lake.t USING (SELECT 1 AS n) s ON t.n = s.n WHEN MATCHED THEN UPDATE SET id = "
        "CAST(NULL AS BIGINT)",
    ],
)
def test_null_of_a_required_column_is_refused_by_spark(
    spark: Any, lake: lakebed.Repository, statement: str
):
    from pyspark.errors import PySparkException

    spark.sql("CREATE TABLE lake.t (id BIGINT NOT NULL, n INT)")
    spark.sql("INSERT INTO lake.t VALUES (7, 1)")

    with pytest.raises(PySparkException, match="NOT_NULL_ASSERT_VIOLATION"):
        spark.sql(statement)

    assert lake.open("t").pandas().values.tolist() == [[7, 1]]
