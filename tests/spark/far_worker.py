"""Runs cases of far_cases on a session with the connector for S3, in a process of its own.

Its argument is a JSON document: `{"endpoint": …, "remote": …}`, and `"cases"` where not all of them
are run. It prints a line of JSON for each, `{"case": …, "error": …}`, as it is done. Spark fetches
the jars.
"""

# ruff: noqa: T201 - printing is how it answers

import json
import os
import sys
import traceback
import uuid
from pathlib import Path

import pyspark
import pytest
from far_cases import CASES, create, is_native, table, ways_of
from frames import comparable, spark_rows

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.spark.java import ensure_java
from lakebed.spark.session import is_classic, local_settings

GIVEN_TO_LAKEBED_ONLY = "a-secret-of-lakebed"


def hadoop_version() -> str:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def session(endpoint: str, *, remote: bool):
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(ensure_java().path)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["SPARK_TESTING"] = "1"  # a free port on Connect
    keys = {"access_key_id": "of-the-session", "secret_access_key": "of-the-session"}
    settings = {
        **lakebed.spark.hadoop_options(lake_at(endpoint, "lake", **keys)),
        "spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.hadoop.fs.s3a.attempts.maximum": "1",
        "spark.hadoop.fs.s3a.retry.limit": "0",
    }
    builder = SparkSession.builder
    for name, value in local_settings(settings).items():
        builder = builder.config(name, value)
    return (builder.remote("local[2]") if remote else builder.master("local[2]")).getOrCreate()


def lake_at(endpoint: str, place: str, **options: str) -> lakebed.Repository:
    given = {
        "endpoint": endpoint,
        "allow_http": "true",
        "region": "us-east-1",
        "access_key_id": "of-lakebed",
        "secret_access_key": GIVEN_TO_LAKEBED_ONLY,
        **options,
    }
    return lakebed.open_repository(f"s3://{place}", storage_options=given)


def nothing_given_to_lakebed_is_told_to_spark(spark, lake) -> None:
    dataset = create(lake, "keys")
    dataset.append(table())
    told = []
    for way in [*ways_of(spark), "arrow"]:
        frame = dataset.spark(spark, way=way)
        assert frame.count() == 60
        if is_classic(spark):
            told.append(frame._jdf.queryExecution().toString())
    told += [str(tuple(row)) for row in spark.sql("SET -v").collect()]
    told += [str(tuple(row)) for row in spark.sql("SET").collect()]
    if is_classic(spark):
        told += [str(pair) for pair in spark.sparkContext.getConf().getAll()]
        configuration = spark.sparkContext._jsc.hadoopConfiguration().iterator()
        while configuration.hasNext():
            told.append(configuration.next().toString())
        assert "of-the-session" in str(told)

    assert not [text for text in told if GIVEN_TO_LAKEBED_ONLY in text]
    given = lakebed.spark.hadoop_options(lake)
    assert GIVEN_TO_LAKEBED_ONLY in given.values()
    assert GIVEN_TO_LAKEBED_ONLY not in repr(given)


def a_bucket_that_the_session_does_not_reach_is_read_through_arrow(spark, lake) -> None:
    """The session knows no endpoint for it."""
    endpoint = lake.store.hadoop_settings()["fs.s3a.bucket.lake.endpoint"]
    other = lake_at(endpoint, f"versioned/{uuid.uuid4().hex}")
    dataset = create(other, "hidden", "date(at) as dt")
    dataset.append(table())
    wanted = comparable(dataset.arrow())

    assert not is_native(dataset.spark(spark))
    assert spark_rows(dataset.spark(spark)) == wanted
    with pytest.raises(InvalidInputError, match="Spark does not reach s3://versioned/") as caught:
        dataset.spark(spark, way="native")
    assert GIVEN_TO_LAKEBED_ONLY not in str(caught.value)
    for name, value in lakebed.spark.hadoop_options(other, prefix="").items():
        spark.conf.set(name, value)
    assert spark_rows(dataset.spark(spark, way="native")) == wanted
    assert is_native(dataset.spark(spark))


def main() -> None:
    """Run all cases."""
    question = json.loads(sys.argv[1])
    spark = session(question["endpoint"], remote=question["remote"])
    own = (
        nothing_given_to_lakebed_is_told_to_spark,
        a_bucket_that_the_session_does_not_reach_is_read_through_arrow,
    )
    checks = {**CASES, **{check.__name__: check for check in own}}
    for name in question.get("cases", checks):
        # What a bucket takes for a name, and Hadoop for a path.
        lake = lake_at(question["endpoint"], f"lake/a lake é, 100%/x%20y=1/{uuid.uuid4().hex}")
        try:
            checks[name](spark, lake)
            error = ""
        except BaseException:  # noqa: BLE001 - also what pytest raises
            error = traceback.format_exc()[-3000:]
        print(json.dumps({"case": name, "error": error}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
