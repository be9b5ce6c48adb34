"""Reading with Spark from S3 that is far away: Spark's own reader through Lakebed, beside Spark alone.

A dataset of many small files is served as a bucket whose every request takes 20 ms, and read with
one column summed, all columns, and one row of a hundred. From the call to the result, as ratios to
`spark.read.parquet(directory)`, which lists by itself:

- native: `dataset.where(…).spark(way="native")`
- attached: a table that `lakebed.spark.attach` has made, as a query in SQL has it
- arrow: `dataset.where(…).spark(way="arrow")`

`create` is what passes before the first task. What each asked the server stands beside it. The jars
of the connector are fetched by Spark. So many tasks run at once as are asked for: they wait for the
server, and not for a core.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed.spark.session import local_session

BASE = "spark alone"
NAMES = (BASE, "native", "attached", "arrow")
Read = Callable[[float, list[str] | None], DataFrame]


class Server:
    """The bucket."""

    def __init__(self, directory: Path, ms: float) -> None:
        command = [sys.executable, str(Path(__file__).with_name("far_server.py")), str(directory)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self._ms = ms

    def reset(self) -> None:
        self._ask(f"reset?ms={self._ms}")

    def counts(self) -> dict[str, int]:
        return self._ask("counts")

    def _ask(self, what: str) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.url}/-/{what}") as answer:
            return json.load(answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def write(directory: Path, spark: SparkSession, files: int, rows: int) -> None:
    """Write a dataset of so many files of so many rows, in the order of `event_id`."""
    number = F.col("id")
    frame = spark.range(0, files * rows, 1, files).select(
        number.alias("event_id"),
        (number * 7919 % 1_000_003).cast("int").alias("user_id"),
        F.timestamp_micros(1_356_998_400_000_000 + number * 6_311_000).alias("happened_at"),
        F.concat(F.lit("N"), F.lpad((number * 31 % 4043).cast("string"), 5, "0")).alias("tail"),
        (number % 1000 / 7).alias("delay"),
        (number % 97 / 3).alias("distance"),
    )
    descriptor = lakebed.DatasetDescriptor(schema=frame)
    dataset = lakebed.open_repository(directory).create("events", descriptor)
    dataset.append(frame, options=lakebed.WriteOptions(cluster=False))
    if len(dataset.files()) != files:
        raise SystemExit(f"{len(dataset.files())} files in place of {files}")


def hadoop_version() -> str:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def sum_of_one(frame: DataFrame) -> object:
    return frame.agg(F.sum("user_id")).collect()[0][0]


def read_all(frame: DataFrame) -> object:
    return frame.write.format("noop").mode("overwrite").save()


ACTIONS: dict[str, tuple[float, list[str] | None, Callable[[DataFrame], object]]] = {
    "create": (1.0, None, lambda frame: frame.schema),
    "1 column": (1.0, ["user_id"], sum_of_one),
    "all columns": (1.0, None, read_all),
    "1 % of rows": (0.01, None, lambda frame: frame.agg(F.sum("delay")).collect()[0][0]),
}


@contextmanager
def readers(
    spark: SparkSession, repository: lakebed.Repository, rows: int
) -> Iterator[dict[str, Read]]:
    """Yield how each reads a share of the rows, and some columns."""
    dataset = repository.open("events")

    def of_way(way: str) -> Read:
        def read(share: float, columns: list[str] | None) -> DataFrame:
            view = dataset if share == 1 else dataset.where(f"event_id < {int(rows * share)}")
            return view.spark(spark, columns, way=way)

        return read

    def narrowed(frame: DataFrame, share: float, columns: list[str] | None) -> DataFrame:
        frame = frame if share == 1 else frame.where(f"event_id < {int(rows * share)}")
        return frame if columns is None else frame.select(*columns)

    def alone(share: float, columns: list[str] | None) -> DataFrame:
        return narrowed(spark.read.parquet("s3a://lake/events/data"), share, columns)

    def attached(share: float, columns: list[str] | None) -> DataFrame:
        return narrowed(spark.table("events"), share, columns)

    with lakebed.spark.attach(spark, repository):
        yield {
            BASE: alone,
            "native": of_way("native"),
            "attached": attached,
            "arrow": of_way("arrow"),
        }


def measure(
    server: Server, read_by: dict[str, Read], rounds: int
) -> dict[str, dict[str, tuple[float, int]]]:
    """Return median seconds and requests, by action and reader."""
    found: dict[str, dict[str, tuple[float, int]]] = {}
    for action, (share, columns, act) in ACTIONS.items():
        seconds: dict[str, list[float]] = {name: [] for name in NAMES}
        requests: dict[str, int] = {}
        for number in range(rounds):
            answers = {}
            for place in range(len(NAMES)):
                name = NAMES[(place + number) % len(NAMES)]
                server.reset()
                start = time.perf_counter()
                answers[name] = act(read_by[name](share, columns))
                seconds[name].append(time.perf_counter() - start)
                requests[name] = sum(server.counts().values())
            if action in ("1 column", "1 % of rows") and len(set(answers.values())) != 1:
                raise SystemExit(f"the readers disagree: {answers}")
        found[action] = {name: (statistics.median(seconds[name]), requests[name]) for name in NAMES}
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[100, 2_000, 10_000])
    parser.add_argument("--rows", type=int, default=1_000, help="in a file")
    parser.add_argument("--ms", type=float, default=20, help="that each request takes")
    parser.add_argument("--tasks", type=int, default=8, help="at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jars", help="directory with the jars, which else Spark fetches")
    arguments = parser.parse_args()
    connector = {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{hadoop_version()}"}
    if arguments.jars:
        connector = {"spark.jars": ",".join(map(str, Path(arguments.jars).glob("*.jar")))}
    directory = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    # Hadoop keeps what opened a bucket for as long as Spark runs: one endpoint, one server.
    (directory / "lake").mkdir()
    server = Server(directory / "lake", arguments.ms)
    try:
        repository = lakebed.open_repository(
            "s3://lake",
            storage_options={
                "endpoint": server.url,
                "allow_http": "true",
                "region": "us-east-1",
                "access_key_id": "bench",
                "secret_access_key": "bench",
            },
        )
        settings = {
            "spark.driver.memory": "3g",
            **connector,
            **lakebed.spark.hadoop_options(repository),
            "spark.sql.shuffle.partitions": "8",
        }
        spark = local_session(str(arguments.tasks), settings=settings)
        print(f"{'files x rows':14} {'what':12} {BASE:>20}", *[f"{n:>18}" for n in NAMES[1:]])
        for files in arguments.files:
            shutil.rmtree(directory / "lake")
            write(directory / "lake", spark, files, arguments.rows)
            server.reset()
            with readers(spark, repository, files * arguments.rows) as read_by:
                for name in NAMES:  # warms up
                    read_by[name](0.01, None).count()
                found = measure(server, read_by, arguments.rounds if files < 10_000 else 1)
            for action, by_name in found.items():
                base, requests = by_name[BASE]
                others = "  ".join(
                    f"{seconds / base:>8.2f} ({asked:>6})"
                    for seconds, asked in (by_name[name] for name in NAMES[1:])
                )
                case = f"{files:>6} x {arguments.rows:<5}"
                print(f"{case} {action:12} {base:>9.2f} s ({requests:>6})  {others}", flush=True)
    finally:
        server.close()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
