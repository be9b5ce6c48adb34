"""A program of a user, on a cluster: does what it is asked for, a line of JSON at a time.

Takes the settings of its session as JSON. Answers `{"answer": …}`, or `{"failed": traceback}`.
"""

from __future__ import annotations

import json
import sys
import time
import traceback

import pyarrow as pa

import lakebed
from lakebed.errors import LakebedError
from lakebed.spark.java import ensure_java
from lakebed.spark.session import local_settings

SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("text", pa.string())])


def begin_session(settings):
    import os

    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(ensure_java().path)
    builder = SparkSession.builder.appName("cluster-tests").master(settings.pop("master"))
    given = {
        "spark.driver.memory": "600m",
        "spark.driver.extraJavaOptions": SMALL_JVM,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": SMALL_JVM,
        "spark.cores.max": "2",
        "spark.sql.shuffle.partitions": "4",
        "spark.default.parallelism": "2",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        **settings,
    }
    for name, value in local_settings(given).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Functions:
    """What it can be asked for. A dataset is named by the URI of its repository and its name."""

    def __init__(self, spark):
        self.spark = spark

    def master(self):
        return self.spark.sparkContext.master

    def rows(self, start, count, tasks=4):
        """Rows that only tasks can make, so that the driver does not write them by itself."""
        frame = self.spark.range(start, start + count, 1, tasks)
        return frame.selectExpr(
            "id AS n", "concat('p', id % 40) AS part", "repeat(cast(id AS string), 20) AS text"
        )

    def append(self, dataset, start, count, scattered=None, times=1, **storage_options):
        target = self.dataset(dataset, storage_options)
        for number in range(times):
            options = lakebed.WriteOptions(cluster=scattered)
            target.with_options(write=options).append(self.rows(start + number * count, count))
        return target.version

    def append_scattered(self, dataset, start, count):
        return self.append(dataset, start, count, scattered=True)

    def append_natively(self, dataset, start, count):
        return self.dataset(dataset).append(self.rows(start, count)).version

    def append_behind(self, dataset, start, count, code):
        """Append rows that come out of a Python function: the one that `code` calls `run`."""
        names = {}
        exec(code, names)
        frame = self.rows(start, count)
        frame = frame.mapInArrow(names["run"], frame.schema)
        options = lakebed.WriteOptions(cluster=names.get("CLUSTER"))
        return self.dataset(dataset).with_options(write=options).append(frame).version

    def save_behind(self, dataset, start, count, code):
        names = {}
        exec(code, names)
        frame = self.rows(start, count)
        frame = frame.mapInArrow(names["run"], frame.schema)
        frame.write.format("lakebed").mode("append").save(dataset)

    def merge(self, dataset, start, count):
        frame = self.rows(start, count).selectExpr("n", "part", "'merged' AS text")
        report = self.dataset(dataset).merge(frame, on=["n"], spark=self.spark)
        return [report.updated_row_count, report.inserted_row_count]

    def ingest(self, dataset, paths):
        """Read files in twice: nothing is read again."""
        ingest = lakebed.Ingest(name="raw", into=dataset, source=lakebed.FromFiles(paths=paths))
        return [ingest.run(spark=self.spark).row_count for _ in range(2)]

    def ingest_once(self, dataset, paths):
        ingest = lakebed.Ingest(name="raw", into=dataset, source=lakebed.FromFiles(paths=paths))
        return ingest.run(spark=self.spark).row_count

    def read(self, dataset, way="arrow", **storage_options):
        frame = self.dataset(dataset, storage_options).spark(self.spark, way=way)
        return frame.selectExpr("count(*)", "sum(n)", "count(distinct n)").first()[:]

    def compact(self, dataset):
        report = self.dataset(dataset).compact(spark=self.spark)
        return [report.files_before, report.files_after]

    def build_index(self, dataset, column):
        self.dataset(dataset).indices.build(column, self.spark)

    def promote(self, dataset, allowed):
        return self.dataset(dataset).dimensions.promote(allowed, self.spark).rewritten_file_count

    def check(self, dataset):
        return [
            str(one) for one in self.dataset(dataset).check(deep=True, spark=self.spark).problems
        ]

    def cleanup(self, dataset):
        report = self.dataset(dataset).cleanup(
            "0s", dry_run=False, clock_skew="0s", spark=self.spark
        )
        return sum(report.counts.values())

    def load(self, dataset):
        """Read by the data source."""
        frame = self.spark.read.format("lakebed").load(dataset)
        return frame.selectExpr("count(*)", "sum(n)", "count(distinct n)").first()[:]

    def save(self, dataset, start, count):
        """Write by the data source."""
        frame = self.rows(start, count)
        frame.write.format("lakebed").mode("append").save(dataset)

    def stream(self, source, into, checkpoint):
        """Carry the commits of one dataset to another."""
        rows = self.spark.readStream.format("lakebed").option("startingVersion", "0").load(source)
        writer = rows.writeStream.format("lakebed").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(into).awaitTermination()

    def error_of(self, function, **arguments):
        """Return the error of a function: its class, its text, and how long it took."""
        began = time.monotonic()
        try:
            getattr(self, function)(**arguments)
        except Exception as exc:  # noqa: BLE001 - whatever it is
            code = str(exc.code) if isinstance(exc, LakebedError) else ""
            return {
                "class": type(exc).__name__,
                "code": code,
                "text": str(exc),
                "seconds": time.monotonic() - began,
            }
        return None

    def attach(self, lake):
        lakebed.spark.attach(self.spark, lakebed.open_repository(lake), catalog="lake")

    def sql(self, statement):
        return [list(row) for row in self.spark.sql(statement).collect()]

    def driver_process(self):
        return self.spark._jvm.java.lang.ProcessHandle.current().pid()

    def workers(self, location=None):
        from lakebed.spark import look_at_workers

        fields = (
            "host",
            "executable",
            "python",
            "lakebed",
            "pyarrow",
            "clock_s",
            "store",
            "problems",
        )
        reports = look_at_workers(self.spark, location)
        return [{name: getattr(report, name) for name in fields} for report in reports]

    def dataset(self, uri, storage_options=None):
        location, _, name = uri.rpartition("/")
        return lakebed.open_repository(location, storage_options=storage_options or {}).open(name)


def main(kind=Functions) -> None:
    functions = kind(begin_session(json.loads(sys.argv[1])))
    for line in iter(sys.stdin.readline, "\n"):
        name, arguments = json.loads(line)
        try:
            answer = {"answer": getattr(functions, name)(**arguments)}
        except Exception:  # noqa: BLE001 - the test shows it
            answer = {"failed": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer, default=str) + "\n")
        sys.stdout.flush()
    functions.spark.stop()


if __name__ == "__main__":
    main()
