"""Write and read over Spark Connect, in a process of its own; prints what it found as JSON."""

import json
import os
import sys

from lakebed.spark.java import ensure_java

os.environ["JAVA_HOME"] = str(ensure_java().path)
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["SPARK_TESTING"] = "1"  # the server takes a port that is free

import session_statements
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed


def through_the_data_source(spark: SparkSession, path: str) -> list[int]:
    """Return the rows of a dataset before an append, and after it."""
    before = spark.read.format("lakebed").load(path)
    counts = [before.count()]
    few = spark.read.format("lakebed").option("where", "id < 10").load(path)
    few.write.format("lakebed").mode("append").option("run", "again").save(path)
    return [*counts, spark.read.format("lakebed").load(path).count()]


def main(directory: str) -> None:
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    frame = spark.range(1000).select(
        "id",
        F.timestamp_micros(F.col("id") * 3_600_000_000).alias("at"),
        F.concat(F.lit("é"), (F.col("id") % 3).cast("string")).alias("k"),
    )
    repository = lakebed.open_repository(directory)
    plain = repository.create("plain", lakebed.DatasetDescriptor(schema=frame))
    plain.append(frame)
    strategy = "k, date(at) as dt"
    parts = repository.create(
        "parts", lakebed.DatasetDescriptor(schema=frame, partition_by=strategy)
    )
    parts.append(frame)
    view = parts.where("k = 'é1' AND at < '1970-01-10T05:00:00'")
    found = {
        "session": type(spark).__module__,
        "plain": plain.spark(spark).count(),
        "active": parts.spark().agg(F.sum("id")).collect()[0][0],
        "local": view.count(),
        "native": view.spark(spark, way="native").count(),
        "arrow": view.spark(spark, way="arrow").count(),
    }
    found["source"] = through_the_data_source(spark, f"{directory}/parts")
    with lakebed.spark.attach(spark, repository, prefix="t_") as attached:
        found["attached"] = attached.versions
        condition = "k = 'é1' AND dt < '1970-01-11' AND at < timestamp'1970-01-10 05:00:00Z'"
        found["sql"] = spark.sql(f"SELECT count(*) FROM t_parts WHERE {condition}").collect()[0][0]
    found["statements"] = session_statements.run(spark, f"{directory}-of-statements")
    try:
        plain.spark(spark, way="prepared")
    except lakebed.errors.InvalidInputError as error:
        found["prepared"] = str(error)
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
