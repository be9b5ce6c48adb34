"""Reads published tables by engines that live in an environment of their own (make doors-env).

Each line of its input is a JSON document, `{"engine": …, "root": …, "out": …}`; what the engine
reads is written to `out` as Arrow IPC, and the answer is a line of JSON. Engines of a catalog also
take `columns` and `snapshot`. `rows_after` asks for the rows after a statement of Spark with Delta, and
`statement` for those of a statement on a served lake; `on_flights` for those of statements on tables
of flights.
"""

# ruff: noqa: T201 - printing is how it answers

import datetime
import json
import operator
import re
import sys
import tempfile
from decimal import Decimal
from functools import cache, partial, reduce
from importlib import import_module
from pathlib import Path

import duckdb
import pyarrow as pa

PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)


@cache
def spark():
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", ",".join(PACKAGES))
        .config(
            "spark.sql.extensions",
            "io.delta.sql.DeltaSparkSessionExtension,"
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        )
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .config("spark.sql.warehouse.dir", tempfile.mkdtemp(prefix="warehouse-"))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


@cache
def duck():
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("httpfs", "icu", "avro", "iceberg", "delta"):
        (home,) = import_module(f"duckdb_extension_{name}").__path__
        (path,) = Path(home).rglob(f"v{duckdb.__version__}/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def of_spark(kind: str, path: str, where: str) -> pa.Table:
    return spark().read.format(kind).load(path).where(where).toArrow()


def of_duck(function: str, path: str, where: str) -> pa.Table:
    query = f"SELECT * FROM {function}('{path}') WHERE {where}"
    return duck().execute(query).fetch_arrow_table()


@cache
def duck_catalog(url: str, token: str | None = None) -> str:
    name = f"lb{url.rpartition(':')[2]}"
    access = "AUTHORIZATION_TYPE 'none'"
    if token is not None:  # to write; else it asks for a region of S3, also in a directory
        access = f"TOKEN '{token}', ACCESS_DELEGATION_MODE 'none'"
    duck().execute(f"ATTACH '' AS {name} (TYPE iceberg, ENDPOINT '{url}', {access})")
    return name


@cache
def spark_catalog(url: str, planner: str = "", token: str | None = None) -> str:
    name = f"lb{url.rpartition(':')[2]}{planner}"
    catalog = f"spark.sql.catalog.{name}"
    spark().conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    spark().conf.set(f"{catalog}.type", "rest")
    spark().conf.set(f"{catalog}.uri", url)
    spark().conf.set(f"{catalog}.cache-enabled", "false")
    if token is not None:
        spark().conf.set(f"{catalog}.token", token)
    if planner:
        spark().conf.set(f"{catalog}.scan-planning-mode", planner)
    return name


@cache
def daft_catalog(url: str):
    from pyiceberg.catalog import load_catalog

    # Daft finds no column in partition specs that leave out those that are null.
    return load_catalog(url, type="rest", uri=url, **{"scan-planning-mode": "client"})


def by_spark(url, table, where, *, columns="*", snapshot=None, planner="") -> pa.Table:
    past = "" if snapshot is None else f" VERSION AS OF {snapshot}"
    name = f"{spark_catalog(url, planner)}.{table}"
    return spark().sql(f"SELECT {columns} FROM {name}{past} WHERE {where}").toArrow()


def by_duck(url, table, where, *, columns="*", snapshot=None) -> pa.Table:
    past = "" if snapshot is None else f" AT (VERSION => {snapshot})"
    query = f"SELECT {columns} FROM {duck_catalog(url)}.{table}{past} WHERE {where}"
    return duck().execute(query).fetch_arrow_table()


def daft_of(condition: tuple):
    """Return a condition of tests/engine_questions.py as Daft takes it."""
    import daft

    kind, *rest = condition
    if kind in ("and", "or"):
        return reduce({"and": operator.and_, "or": operator.or_}[kind], map(daft_of, rest))
    if kind == "not":
        return ~daft_of(rest[0])
    column = daft.col(rest[0])
    if kind in ("null", "known"):
        return column.is_null() if kind == "null" else column.not_null()
    if kind == "begins":
        return column.startswith(rest[1])
    return column.is_in(rest[1]) if kind == "in" else OPERATORS[kind](column, daft.lit(rest[1]))


OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def by_daft(url, table, where, *, columns, snapshot=None) -> pa.Table:
    import daft

    loaded = daft_catalog(url).load_table(table)
    frame = daft.read_iceberg(loaded, snapshot_id=snapshot)
    condition = eval(where, {"datetime": datetime, "Decimal": Decimal})
    if condition is not None:
        frame = frame.where(daft_of(condition))
    return frame.select(*columns.split(", ")).to_arrow()


CATALOG_ENGINES = {
    "duckdb catalog": by_duck,
    "spark catalog": by_spark,
    "spark planning": partial(by_spark, planner="client"),
    "daft catalog": by_daft,
}
ENGINES = {
    "delta-spark": lambda root, where: of_spark("delta", f"{root}/data", where),
    "iceberg-spark": lambda root, where: of_spark("iceberg", f"{root}/iceberg", where),
    "duckdb delta": lambda root, where: of_duck("delta_scan", f"{root}/data", where),
    "duckdb iceberg": lambda root, where: of_duck("iceberg_scan", f"{root}/iceberg", where),
}


def read(given: dict) -> pa.Table:
    """Return what the engine reads; a table of a served lake is at its URL and its name."""
    if given["engine"] not in CATALOG_ENGINES:
        return ENGINES[given["engine"]](given["root"], given["where"])
    url, _, table = given["root"].partition(" ")
    more = {name: given[name] for name in ("columns", "snapshot") if name in given}
    return CATALOG_ENGINES[given["engine"]](url, table, given["where"], **more)


def run_page(engine: str, blocks: list[list[str]]) -> str:
    """Run the blocks of a page, and return the rows of the last one as a text."""
    names: dict = {}
    for language, text in blocks:
        if language == "python":
            exec(text, names)
        elif language == "text":
            for line in text.splitlines():
                spark().conf.set(*line.split("=", 1))
        elif engine == "Spark":
            names["rows"] = spark().sql(text).toArrow()
        else:
            names["rows"] = duck().execute(text).fetch_arrow_table()
    return str(names["rows"].to_pylist())


def run_in_catalog(engine: str, url: str, token: str, text: str) -> pa.Table:
    """Run a statement on a served lake that may be changed, and return its rows."""
    if engine == "duckdb":
        found = duck().execute(text.format(catalog=duck_catalog(url, token)))
        return found.fetch_arrow_table()
    return rows_of(spark().sql(text.format(catalog=spark_catalog(url, token=token))))


def rows_of(frame) -> pa.Table:
    """Return the rows of a statement of Spark, which may have no columns."""
    return frame.toArrow() if frame.columns else pa.table({})


def said_of(text: str) -> str:
    """Run a statement of Spark, and say what came of it."""
    try:
        spark().sql(text).collect()
    except Exception as exc:  # noqa: BLE001 - the test looks at it
        return str(exc)
    return ""


@cache
def make_sources(folder: str) -> None:
    """Make the tables of Delta that statements only read, once, and a view of the first rows."""
    for name in ("news", "more"):
        spark().read.parquet(f"{folder}/{name}.parquet").write.format("delta").saveAsTable(name)
    spark().read.parquet(f"{folder}/people.parquet").createOrReplaceTempView("first_people")


def rows_after(folder: str, statement: str, table: str) -> pa.Table:
    """Run a statement on new tables of Delta, and return the rows of one, or of the statement.

    Version 0 of `people` is empty, and version 1 has the rows.
    """
    make_sources(folder)
    for name in ("people", "cars"):
        spark().sql(f"DROP TABLE IF EXISTS {name}")
    spark().sql(
        "CREATE TABLE people (id BIGINT, name STRING, age BIGINT, city STRING, seen DATE) "
        "USING delta PARTITIONED BY (city)"
    )
    spark().sql("INSERT INTO people SELECT * FROM first_people")
    found = spark().sql(statement).toArrow()
    return spark().table(table).toArrow() if table else found


# Places of tables of flights, and settings that let Delta do what it does not by itself.
PLACES = {"delta": "flown", "iceberg": "ice.flown"}
DELTA_FEATURES = {
    "columnMapping.mode": "name",
    "feature.allowColumnDefaults": "supported",
    "enableTypeWidening": "true",
}


@cache
def make_places(folder: str) -> None:
    """Make the places of tables of flights."""
    spark().conf.set("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog")
    spark().conf.set("spark.sql.catalog.ice.type", "hadoop")
    spark().conf.set("spark.sql.catalog.ice.warehouse", f"{folder}/ice")
    for name, text in DELTA_FEATURES.items():
        spark().conf.set(f"spark.databricks.delta.properties.defaults.{name}", text)
    for place in PLACES.values():
        spark().sql(f"CREATE NAMESPACE {place}")


def rows_on_flights(format_: str, folder: str, statements: list[str]) -> pa.Table:
    """Run statements on the catalog `lake` on tables of a format instead, and return the last rows.

    The table `flights` is made first, empty, and filled by its next version.
    """
    make_places(folder)
    place = PLACES[format_]
    spark().conf.set("spark.sql.sources.default", format_)
    for name in ("flights", "new"):
        spark().sql(f"DROP TABLE IF EXISTS {place}.{name}")
    flights = f"{place}.flights"
    spark().sql(
        f"CREATE TABLE {flights} (flight BIGINT, carrier STRING, day DATE) USING {format_} "
        "PARTITIONED BY (day)"
    )
    spark().sql(f"INSERT INTO {flights} SELECT * FROM parquet.`{folder}/flights.parquet`")
    try:
        for statement in statements:
            text = re.sub(r"\blakebed\b", format_, re.sub(r"\blake\b", place, statement))
            found = rows_of(spark().sql(text))
    finally:
        spark().sql("USE spark_catalog")
        spark().sql("USE default")
        spark().catalog.clearCache()
    return found


def main() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        try:
            if "catalog" in given:
                name = spark_catalog(given["catalog"], token=given["token"])
                answer = {"said": said_of(given["sql"].format(catalog=name))}
            elif "page" in given:
                answer = {"rows": run_page(given["page"], given["blocks"])}
            elif "sql" in given:
                table = f"delta.`{given['root']}/data`"
                answer = {"said": said_of(given["sql"].format(table=table))}
            else:
                if "rows_after" in given:
                    table = rows_after(*given["rows_after"])
                elif "on_flights" in given:
                    table = rows_on_flights(*given["on_flights"])
                elif "statement" in given:
                    table = run_in_catalog(*given["statement"])
                else:
                    table = read(given)
                with (
                    pa.OSFile(given["out"], "wb") as sink,
                    pa.ipc.new_file(sink, table.schema) as f,
                ):
                    f.write_table(table)
                answer = {"rows": table.num_rows}
        except Exception as exc:  # noqa: BLE001 - the test looks at it
            answer = {"error": f"{type(exc).__name__}: {exc}"[:2000]}
        print("\n" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
