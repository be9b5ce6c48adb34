"""Reading with Spark from far away: Spark's own reader through Lakebed, beside Spark alone.

A dataset of many small files is served as a bucket of S3, or from HDFS, where every question takes
20 ms, and read with one column summed, all columns, and one row of a hundred. From the call to the
result, as ratios to `spark.read.parquet(directory)`, which lists by itself:

- native: `dataset.where(…).spark(way="native")`
- attached: a table that `lakebed.spark.attach` has made, as a query in SQL has it
- arrow: `dataset.where(…).spark(way="arrow")`

`create` is what passes before the first task. What each asked stands beside it: requests of S3,
messages to a NameNode and a DataNode. The jars of the connector of S3 are fetched by Spark. So many
tasks run at once as are asked for: they wait for the server, and not for a core.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from far_places import Place, place
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed.spark.session import local_session

BASE = "spark alone"
NAMES = (BASE, "native", "attached", "arrow")
Read = Callable[[float, list[str] | None], DataFrame]


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
    dataset.with_options(write=lakebed.WriteOptions(cluster=False)).append(frame)
    if len(dataset.files()) != files:
        raise SystemExit(f"{len(dataset.files())} files in place of {files}")


def sum_of_one(frame: DataFrame) -> object:
    return frame.agg(F.sum("user_id")).collect()[0][0]


def sum_of_delays(frame: DataFrame) -> object:
    # Of whole numbers, whose sum is the same in any order.
    return frame.agg(F.sum(F.floor("delay"))).collect()[0][0]


def read_all(frame: DataFrame) -> object:
    return frame.write.format("noop").mode("overwrite").save()


ACTIONS: dict[str, tuple[float, list[str] | None, Callable[[DataFrame], object]]] = {
    "create": (1.0, None, lambda frame: frame.schema),
    "1 column": (1.0, ["user_id"], sum_of_one),
    "all columns": (1.0, None, read_all),
    "1 % of rows": (0.01, None, sum_of_delays),
}


@contextmanager
def readers(
    spark: SparkSession, repository: lakebed.Repository, directory: str, rows: int
) -> Iterator[dict[str, Read]]:
    """Yield how each reads a share of the rows, and some columns.

    Spark alone reads the directory of the data files.
    """
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
        return narrowed(spark.read.parquet(directory), share, columns)

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
    server: Place, read_by: dict[str, Read], rounds: int
) -> Iterator[tuple[str, dict[str, tuple[float, int]]]]:
    """Yield each action with the median seconds and the questions of each reader."""
    for action, (share, columns, act) in ACTIONS.items():
        seconds: dict[str, list[float]] = {name: [] for name in NAMES}
        questions: dict[str, int] = {}
        for number in range(rounds):
            answers = {}
            for turn in range(len(NAMES)):
                name = NAMES[(turn + number) % len(NAMES)]
                server.reset()
                start = time.perf_counter()
                answers[name] = act(read_by[name](share, columns))
                seconds[name].append(time.perf_counter() - start)
                questions[name] = server.asked()
            if action in ("1 column", "1 % of rows") and len(set(answers.values())) != 1:
                raise SystemExit(f"the readers disagree: {answers}")
        yield (
            action,
            {name: (statistics.median(seconds[name]), questions[name]) for name in NAMES},
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--on", choices=("s3", "hdfs"), default="s3")
    parser.add_argument("--files", type=int, nargs="+", default=[100, 2_000, 10_000])
    parser.add_argument("--rows", type=int, default=1_000, help="in a file")
    parser.add_argument("--ms", type=float, default=20, help="that each request takes")
    parser.add_argument("--tasks", type=int, default=8, help="at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jars", help="directory with those of S3, which else Spark fetches")
    arguments = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    try:
        with place(arguments.on, home, arguments.ms, arguments.jars) as server:
            _measure_on(server, home / "made", arguments)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _measure_on(server: Place, made: Path, arguments: argparse.Namespace) -> None:
    repository = lakebed.open_repository(server.url, storage_options=server.storage_options)
    settings = {
        "spark.driver.memory": "3g",
        **server.settings(repository),
        "spark.sql.shuffle.partitions": "8",
    }
    spark = local_session(str(arguments.tasks), settings=settings)
    print(f"{'files x rows':14} {'what':12} {BASE:>20}", *[f"{n:>18}" for n in NAMES[1:]])
    for files in arguments.files:
        write(made, spark, files, arguments.rows)
        server.take(made)
        server.reset()
        directory = f"{server.hadoop_url}/events/data"
        with readers(spark, repository, directory, files * arguments.rows) as read_by:
            for name in NAMES:  # warms up
                read_by[name](0.01, None).count()
            rounds = arguments.rounds if files < 10_000 else 1
            for action, by_name in measure(server, read_by, rounds):
                base, asked = by_name[BASE]
                others = "  ".join(
                    f"{seconds / base:>8.2f} ({number:>6})"
                    for seconds, number in (by_name[name] for name in NAMES[1:])
                )
                case = f"{files:>6} x {arguments.rows:<5}"
                print(f"{case} {action:12} {base:>9.2f} s ({asked:>6})  {others}", flush=True)


if __name__ == "__main__":
    main()
