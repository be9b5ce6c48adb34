"""Reads published tables by engines that live in an environment of their own (make doors-env).

Each line of its input is a JSON document, `{"engine": …, "root": …, "out": …}`; what the engine
reads is written to `out` as Arrow IPC, and the answer is a line of JSON.
"""

# ruff: noqa: T201 - printing is how it answers

import json
import sys
from functools import cache
from pathlib import Path

import duckdb
import duckdb_ext
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
    (home,) = duckdb_ext.__path__
    for name in ("httpfs", "icu", "avro", "iceberg", "delta"):
        (path,) = Path(home).glob(f"extensions/v{duckdb.__version__}/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def of_spark(kind: str, path: str, where: str) -> pa.Table:
    return spark().read.format(kind).load(path).where(where).toArrow()


def of_duck(function: str, path: str, where: str) -> pa.Table:
    query = f"SELECT * FROM {function}('{path}') WHERE {where}"
    return duck().execute(query).fetch_arrow_table()


@cache
def duck_catalog(url: str) -> str:
    name = f"lb{url.rpartition(':')[2]}"
    duck().execute(
        f"ATTACH '' AS {name} (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')"
    )
    return name


@cache
def spark_catalog(url: str, token: str | None = None) -> str:
    name = f"lb{url.rpartition(':')[2]}"
    catalog = f"spark.sql.catalog.{name}"
    spark().conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
    spark().conf.set(f"{catalog}.type", "rest")
    spark().conf.set(f"{catalog}.uri", url)
    spark().conf.set(f"{catalog}.cache-enabled", "false")
    if token is not None:
        spark().conf.set(f"{catalog}.token", token)
    return name


def of_catalog(engine: str, address: str, where: str) -> pa.Table:
    """Read a table of a served lake, whose address is the URL and the name."""
    url, _, table = address.partition(" ")
    if engine == "duckdb":
        query = f"SELECT * FROM {duck_catalog(url)}.{table} WHERE {where}"
        return duck().execute(query).fetch_arrow_table()
    return spark().table(f"{spark_catalog(url)}.{table}").where(where).toArrow()


ENGINES = {
    "duckdb catalog": lambda root, where: of_catalog("duckdb", root, where),
    "spark catalog": lambda root, where: of_catalog("spark", root, where),
    "delta-spark": lambda root, where: of_spark("delta", f"{root}/data", where),
    "iceberg-spark": lambda root, where: of_spark("iceberg", f"{root}/iceberg", where),
    "duckdb delta": lambda root, where: of_duck("delta_scan", f"{root}/data", where),
    "duckdb iceberg": lambda root, where: of_duck("iceberg_scan", f"{root}/iceberg", where),
}


def sql(root: str, text: str) -> str:
    """Run a statement of Spark on the Delta table, and say what came of it."""
    try:
        spark().sql(text.format(table=f"delta.`{root}/data`")).collect()
    except Exception as exc:  # noqa: BLE001 - the test looks at it
        return str(exc)
    return ""


def run_in_catalog(url: str, token: str, text: str) -> str:
    """Run a statement on tables of a catalog, and say what came of it."""
    try:
        spark().sql(text.format(catalog=spark_catalog(url, token))).collect()
    except Exception as exc:  # noqa: BLE001 - the test looks at it
        return str(exc)
    return ""


def main() -> None:
    for line in sys.stdin:
        given = json.loads(line)
        try:
            if "catalog" in given:
                answer = {"said": run_in_catalog(given["catalog"], given["token"], given["sql"])}
            elif "sql" in given:
                answer = {"said": sql(given["root"], given["sql"])}
            else:
                table = ENGINES[given["engine"]](given["root"], given["where"])
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
