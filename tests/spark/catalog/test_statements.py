"""Statements on the tables of a catalog: the rows that each gives, or the error that refuses it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from catalog_statements import CASES, COUNT, DAY_1, flights
from pyspark.sql.functions import expr

import lakebed
from lakebed.errors import (
    InvalidInputError,
    LakebedError,
    PredicateError,
    SchemaMismatchError,
    VersionNotFoundError,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[lakebed.Repository]:
    lake = lakebed.open_repository(tmp_path)
    lake.write("flights", flights(range(20)), run="first", partition_by="day")
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield lake


def rows(spark: Any, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements, and return the rows of the last one."""
    frames = [spark.sql(statement) for statement in statements]
    return [tuple(row) for row in frames[-1].collect()]


ALL_COLUMNS = pytest.mark.since_spark("4.1", "an INSERT names each column")
CONSTRAINT = pytest.mark.since_spark("4.1", "SQL has no constraints")
# Statements that a release of Spark does not know.
SINCE = {
    "create what was shown": pytest.mark.since_spark("4.2", "CREATE TABLE LIKE is of Spark alone"),
    "default": ALL_COLUMNS,
    "insert some columns": ALL_COLUMNS,
    "SHOW PROCEDURES IN lake.sales": pytest.mark.since_spark("4.1", "no SHOW PROCEDURES"),
    "constraint of a key": CONSTRAINT,
    "constraint of a function": CONSTRAINT,
    "constraint of the current day": CONSTRAINT,
    "constraint that is missing": CONSTRAINT,
    "constraint of a replaced table": CONSTRAINT,
    "constraint that rows fail": CONSTRAINT,
    "constraint that is not enforced": CONSTRAINT,
}


def marked(names: Iterable[str]) -> list[Any]:
    """Return names of cases, each with the release that it needs."""
    return [pytest.param(name, marks=SINCE.get(name, ()), id=name) for name in names]


@pytest.mark.parametrize("name", marked(CASES))
def test_statement_gives_the_rows_of_sql(spark: Any, lake: lakebed.Repository, name: str):
    case = CASES[name]
    try:
        assert rows(spark, *case.statements) == case.expected
    finally:
        spark.sql("USE spark_catalog")
        spark.catalog.clearCache()


class Refusal(NamedTuple):
    """A statement, the class of its error, and words of its remedy."""

    statement: str
    error: type[LakebedError]
    remedy: str


REFUSALS = {
    "version that is missing": Refusal(f"{COUNT} VERSION AS OF 999", VersionNotFoundError, "last"),
    "version that is no number": Refusal(
        f"{COUNT} VERSION AS OF 'x'", InvalidInputError, "history"
    ),
    "replace where rows lie in other partitions": Refusal(
        f"INSERT INTO lake.flights REPLACE WHERE {DAY_1} SELECT 1L, 'R', DATE '2026-01-02'",
        InvalidInputError,
        "view",
    ),
    "replace where cuts a partition": Refusal(
        "INSERT INTO lake.flights REPLACE WHERE flight = 1 SELECT 1L, 'R', DATE '2026-01-01'",
        PredicateError,
        "partitions",
    ),
    "replace where a function is true": Refusal(
        "INSERT INTO lake.flights REPLACE WHERE length(carrier) = 2 SELECT 1L, 'RR', "
        "DATE '2026-01-01'",
        InvalidInputError,
        "overwrite(frame, view)",
    ),
    "drop": Refusal("DROP TABLE lake.flights", InvalidInputError, "PURGE"),
    "rename": Refusal(
        "ALTER TABLE lake.flights RENAME TO lake.other", InvalidInputError, "AS SELECT"
    ),
    "column that is not the last": Refusal(
        "ALTER TABLE lake.flights ADD COLUMNS (note STRING FIRST)", InvalidInputError, "evolve"
    ),
    "partition that is dropped": Refusal(
        "ALTER TABLE lake.flights DROP COLUMN day", LakebedError, "day"
    ),
    "location of a table": Refusal(
        "ALTER TABLE lake.flights SET LOCATION '/elsewhere'", InvalidInputError, "repository"
    ),
    "property of the catalog": Refusal(
        "ALTER TABLE lake.flights SET TBLPROPERTIES ('lakebed.version' = '9')",
        InvalidInputError,
        "Leave",
    ),
    "location": Refusal(
        "CREATE TABLE lake.new (n INT) LOCATION '/elsewhere'", InvalidInputError, "LOCATION"
    ),
    "other format": Refusal(
        "CREATE TABLE lake.new (n INT) USING delta", InvalidInputError, "USING"
    ),
    "other transform": Refusal(
        "CREATE TABLE lake.new (n INT) PARTITIONED BY (truncate(2, n))",
        InvalidInputError,
        "partition_by",
    ),
    "default that is not plain": Refusal(
        "CREATE TABLE lake.new (n INT, d DATE DEFAULT current_date())",
        InvalidInputError,
        "single value",
    ),
    "replace with other partitions": Refusal(
        "CREATE OR REPLACE TABLE lake.flights AS SELECT * FROM lake.flights",
        InvalidInputError,
        "PURGE",
    ),
    "replace with another type": Refusal(
        "CREATE OR REPLACE TABLE lake.flights PARTITIONED BY (day) AS "
        "SELECT 'x' AS flight, carrier, day FROM lake.flights",
        SchemaMismatchError,
        "flight",
    ),
    "constraint of a key": Refusal(
        "ALTER TABLE lake.flights ADD CONSTRAINT key PRIMARY KEY (flight)",
        InvalidInputError,
        "checks.unique",
    ),
    "constraint of a function": Refusal(
        "ALTER TABLE lake.flights ADD CONSTRAINT sure CHECK (length(carrier) = 2)",
        InvalidInputError,
        "constants",
    ),
    "constraint of the current day": Refusal(
        "ALTER TABLE lake.flights ADD CONSTRAINT sure CHECK (day <= current_date())",
        InvalidInputError,
        "constants",
    ),
    "constraint that is missing": Refusal(
        "ALTER TABLE lake.flights DROP CONSTRAINT sure", InvalidInputError, "sure"
    ),
    "constraint of a replaced table": Refusal(
        "CREATE OR REPLACE TABLE lake.flights (n INT, CONSTRAINT sure CHECK (n > 0))",
        InvalidInputError,
        "ADD CONSTRAINT",
    ),
    "option of a table": Refusal(
        "CREATE TABLE lake.new (n INT) OPTIONS ('compression' 'zstd')",
        InvalidInputError,
        "overwriteMode",
    ),
}


@pytest.mark.parametrize("name", marked(REFUSALS))
def test_statement_is_refused_by_name_and_changes_nothing(
    spark: Any, lake: lakebed.Repository, name: str
):
    refusal = REFUSALS[name]
    before = lake.open("flights").version

    with pytest.raises(refusal.error) as caught:
        spark.sql(refusal.statement).collect()

    assert refusal.remedy in str(caught.value)
    assert "lakebed-error" not in str(caught.value)
    assert lake.list() == ["flights"]
    assert lake.open("flights").version == before
    assert lake.open("flights").count() == 20


def frame(spark: Any, numbers: range) -> Any:
    return spark.createDataFrame(
        flights(numbers).to_pandas(), "flight LONG, carrier STRING, day DATE"
    )


WRITERS = {
    "saveAsTable": (lambda new: new.write.saveAsTable("lake.new"), 0, 5),
    "saveAsTable by a partition": (
        lambda new: new.write.partitionBy("day").saveAsTable("lake.new"),
        0,
        5,
    ),
    "saveAsTable of a format": (
        lambda new: new.write.format("lakebed").saveAsTable("lake.new"),
        0,
        5,
    ),
    "saveAsTable append": (
        lambda new: new.write.partitionBy("day").mode("append").saveAsTable("lake.flights"),
        25,
        0,
    ),
    "saveAsTable ignore": (lambda new: new.write.mode("ignore").saveAsTable("lake.flights"), 20, 0),
    "saveAsTable overwrite": (
        lambda new: new.write.partitionBy("day").mode("overwrite").saveAsTable("lake.flights"),
        5,
        0,
    ),
    "insertInto": (lambda new: new.write.insertInto("lake.flights"), 25, 0),
    "insertInto overwrite": (
        lambda new: new.write.insertInto("lake.flights", overwrite=True),
        5,
        0,
    ),
    "create": (lambda new: new.writeTo("lake.new").using("lakebed").create(), 0, 5),
    "append": (lambda new: new.writeTo("lake.flights").append(), 25, 0),
    "overwrite": (
        lambda new: (
            new.where("day = '2026-01-01'")
            .writeTo("lake.flights")
            .overwrite(expr("day = DATE '2026-01-01'"))
        ),
        17,
        0,
    ),
    "overwritePartitions": (
        lambda new: new.where("day = '2026-01-01'").writeTo("lake.flights").overwritePartitions(),
        17,
        0,
    ),
    "overwritePartitions without rows": (
        lambda new: new.where("flight < 0").writeTo("lake.flights").overwritePartitions(),
        20,
        0,
    ),
    "createOrReplace": (lambda new: new.writeTo("lake.new").createOrReplace(), 0, 5),
}


@pytest.mark.parametrize("name", WRITERS)
def test_writers_of_frames_write_the_dataset(spark: Any, lake: lakebed.Repository, name: str):
    write, in_flights, in_new = WRITERS[name]

    write(frame(spark, range(100, 105)))

    assert lake.open("flights").count() == (in_flights or 20)
    assert lake.exists("new") == bool(in_new)
    if in_new:
        assert lake.open("new").count() == in_new


@pytest.mark.parametrize("partition", ["day", "days(at)"])
def test_dynamic_overwrite_replaces_the_partitions_of_its_rows(
    spark: Any, lake: lakebed.Repository, partition: str
):
    spark.sql(
        f"CREATE TABLE lake.new PARTITIONED BY ({partition}) AS SELECT id, "
        "date_add(DATE '2026-01-01', CAST(id % 4 AS INT)) AS day, "
        "timestamp_seconds(1767225600 + id % 4 * 86400) AS at FROM range(12)"
    )
    spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        spark.sql(
            "INSERT OVERWRITE lake.new VALUES (100, DATE '2026-01-02', TIMESTAMP '2026-01-02 00:00:00')"
        )
    finally:
        spark.conf.unset("spark.sql.sources.partitionOverwriteMode")

    found = rows(spark, "SELECT day, count(*) FROM lake.new GROUP BY day ORDER BY day")
    assert [count for _, count in found] == [3, 1, 3, 3]


def test_run_of_a_write_names_its_rows_and_a_rerun_replaces_them(
    spark: Any, lake: lakebed.Repository
):
    new = frame(spark, range(100, 105))
    writer = new.writeTo("lake.flights").option("run", "second")

    writer.append()
    new.writeTo("lake.flights").option("run", "second").option("overwriteMode", "run").append()

    dataset = lake.open("flights")
    assert dataset.count() == 25
    assert {batch.run for batch in dataset.batches()} >= {"first", "second"}


def test_second_append_of_a_run_adds_rows_and_says_so(spark: Any, lake: lakebed.Repository):
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame(spark, range(100, 105)).writeTo("lake.flights").option("run", "second").append()

    assert lake.open("flights").count() == 30
    (said,) = (one for one in caught if one.category is lakebed.LakebedWarning)
    assert "overwriteMode=run" in str(said.message)


@pytest.mark.parametrize(
    "options",
    [{"rnu": "x"}, {"mergeSchema": "true"}, {"overwriteMode": "run"}, {"overwriteMode": "all"}],
)
def test_unknown_option_of_a_write_is_refused(
    spark: Any, lake: lakebed.Repository, options: dict[str, str]
):
    with pytest.raises(InvalidInputError, match=f"(?i){next(iter(options))}"):
        frame(spark, range(2)).write.options(**options).insertInto("lake.flights")

    assert lake.open("flights").count() == 20


@pytest.mark.parametrize("name", ["where", "columns", "version"])
def test_unknown_option_of_a_read_is_refused(spark: Any, lake: lakebed.Repository, name: str):
    with pytest.raises(InvalidInputError, match=name):
        spark.read.option(name, "flight").table("lake.flights").collect()


@pytest.mark.parametrize("options", [{"versionAsOf": "1"}, {"timestampAsOf": "9999-01-01"}])
def test_read_at_a_moment_is_an_option_of_spark(
    spark: Any, lake: lakebed.Repository, options: dict[str, str]
):
    assert spark.read.options(**options).table("lake.flights").count() == 20


@pytest.mark.parametrize(
    "statement",
    marked(
        [
            "SHOW TABLES IN lake.sales",
            "SHOW TABLE EXTENDED IN lake.sales LIKE '*'",
            "SHOW NAMESPACES IN lake.sales",
            "SHOW PROCEDURES IN lake.sales",
            "DESCRIBE NAMESPACE lake.sales",
            "USE lake.sales",
        ]
    ),
)
def test_namespace_that_is_missing_is_missing_to_spark(
    spark: Any, lake: lakebed.Repository, statement: str
):
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        spark.sql(statement).collect()


def test_append_by_other_partitions_is_refused(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import IllegalArgumentException

    writer = frame(spark, range(2)).write.partitionBy("carrier").mode("append")
    with pytest.raises(IllegalArgumentException, match="do not match"):
        writer.saveAsTable("lake.flights")

    assert lake.open("flights").count() == 20


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("day = DATE '2026-01-02'", 1),
        ("day > DATE '2026-01-03'", 2),
        ("flight >= 0", 5),
        ("flight > 19", 0),
        ("length(carrier) = 2", 5),
    ],
)
def test_query_reads_the_files_of_our_plan(
    spark: Any, lake: lakebed.Repository, condition: str, count: int
):
    plan = rows(spark, f"EXPLAIN SELECT * FROM lake.flights WHERE {condition}")[0][0]

    expected = f"{count} of 5 files" if count else "LocalTableScan"
    assert expected in plan


def test_planner_knows_the_number_of_rows(spark: Any, lake: lakebed.Repository):
    query = spark.sql("SELECT flight FROM lake.flights WHERE day = DATE '2026-01-02'")

    statistics = query._jdf.queryExecution().optimizedPlan().collectLeaves().head().stats()
    assert statistics.sizeInBytes() == 4 * 8  # a number; the date is that of whole files


def test_missing_table_is_missing_to_spark(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import AnalysisException

    assert not spark.catalog.tableExists("lake.nothing")
    assert spark.catalog.tableExists("lake.flights")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.nothing")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql("SELECT * FROM lake.`a.b`")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("CREATE TABLE lake.flights (n INT)")


OF_SPARK = {
    "replace what is missing": (
        "REPLACE TABLE lake.no AS SELECT 1 AS a",
        "TABLE_OR_VIEW_NOT_FOUND",
    ),
    "statistics": ("ANALYZE TABLE lake.flights COMPUTE STATISTICS", "NOT_SUPPORTED_COMMAND_FOR_V2"),
    # Spark 4.0 has no name for this error.
    "view": (
        "CREATE VIEW lake.v AS SELECT 1 AS a",
        "MISSING_CATALOG_ABILITY|does not support views",
    ),
    "constraint that rows fail": (
        "ALTER TABLE lake.flights ADD CONSTRAINT sure CHECK (flight > 0)",
        "CHECK_CONSTRAINT_VIOLATION",
    ),
    "constraint that is not enforced": (
        "ALTER TABLE lake.flights ADD CONSTRAINT sure CHECK (flight >= 0) NOT ENFORCED",
        "UNSUPPORTED_CONSTRAINT_CHARACTERISTIC",
    ),
    "drop": ("DROP TABLE lake.nothing", "TABLE_OR_VIEW_NOT_FOUND"),
    "name": ("SELECT * FROM lake.`a.b`", "TABLE_OR_VIEW_NOT_FOUND"),
    "number of columns": ("INSERT INTO lake.flights VALUES (1, 'X')", "NOT_ENOUGH_DATA_COLUMNS"),
}


@pytest.mark.parametrize("name", marked(OF_SPARK))
def test_statement_is_refused_by_spark_and_changes_nothing(
    spark: Any, lake: lakebed.Repository, name: str
):
    from pyspark.errors import PySparkException

    statement, condition = OF_SPARK[name]

    with pytest.raises(PySparkException, match=condition):
        spark.sql(statement).collect()

    assert lake.list() == ["flights"]
    assert lake.open("flights").version == 1


def test_query_that_fails_leaves_no_table(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="USER_RAISED_EXCEPTION"):
        spark.sql(
            "CREATE TABLE lake.new AS SELECT CAST(raise_error('x') AS INT) AS a FROM range(3)"
        )

    assert not lake.exists("new")


def test_writers_of_frames_keep_what_is_there(spark: Any, lake: lakebed.Repository):
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        frame(spark, range(2)).write.saveAsTable("lake.flights")
    with pytest.raises(AnalysisException, match="NOT_FOUND"):
        frame(spark, range(2)).writeTo("lake.nothing").replace()

    assert lake.open("flights").count() == 20


def test_catalog_of_the_session_shows_the_tables(spark: Any, lake: lakebed.Repository):
    lake.namespaces.create("sales").write("orders", flights(range(2)))

    assert [table.name for table in spark.catalog.listTables("lake.sales")] == ["orders"]
    assert spark.catalog.getTable("lake.flights").name == "flights"
    assert [column.name for column in spark.catalog.listColumns("lake.flights")] == [
        *("flight", "carrier", "day")
    ]
