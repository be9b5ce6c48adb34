"""The ways to read many files in Spark, beside each other: where one overtakes another.

For each number of files, and for each way of `view.spark(way=…)`: the time to make the DataFrame,
and from the call to the result, with one column summed, all columns read, and rows counted. Files
lie in one directory, or each in a directory of its own. Every round does all, in turns; printed are
medians, and their ratios to `paths`, which is what Spark does by itself. What `auto` takes, and its
ratio to the fastest way, stands last.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed import by
from lakebed.errors import InvalidInputError
from lakebed.spark.session import local_session

WAYS = ("paths", "prepared", "arrow", "auto")
BASE = "paths"


def write(
    repository: lakebed.Repository, spark: SparkSession, files: int, rows: int, *, scattered: bool
) -> lakebed.Dataset:
    """Return a dataset of so many files of so many rows."""
    number = F.col("id")
    frame = spark.range(0, files * rows, 1, files).select(
        number.alias("event_id"),
        F.floor(number / rows).cast("int").alias("part"),
        (number * 7919 % 1_000_003).cast("int").alias("user_id"),
        F.timestamp_micros(1_356_998_400_000_000 + number * 6_311_000).alias("happened_at"),
        F.concat(F.lit("N"), F.lpad((number * 31 % 4043).cast("string"), 5, "0")).alias("tail"),
        (number % 1000 / 7).alias("delay"),
    )
    where = "scattered" if scattered else "together"
    partition_by = [by.identity("part")] if scattered else []
    descriptor = lakebed.DatasetDescriptor(schema=frame, partition_by=partition_by)
    dataset = repository.create(f"{where}_{files}_{rows}", descriptor)
    # Rows of a partition lie together, so that they need not be looked at.
    dataset.with_options(write=lakebed.WriteOptions(cluster=False)).append(frame)
    found = len(dataset.files())
    if found != files:
        raise SystemExit(f"{dataset.name} has {found} files in place of {files}")
    return dataset


def sum_of_one(frame: DataFrame) -> object:
    return frame.agg(F.sum("user_id")).collect()[0][0]


def read_all(frame: DataFrame) -> object:
    return frame.write.format("noop").mode("overwrite").save()


ACTIONS: dict[str, tuple[list[str] | None, Callable[[DataFrame], object]]] = {
    "create": (None, lambda frame: frame.schema),
    "1 column": (["user_id"], sum_of_one),
    "all columns": (None, read_all),
    "count": (None, DataFrame.count),
}


def measure(
    dataset: lakebed.Dataset, spark: SparkSession, rounds: int
) -> dict[str, dict[str, float]]:
    """Return median seconds by action and way; a way that cannot read the files is left out."""
    ways = []
    for way in WAYS:
        try:
            dataset.spark(spark, way=way)  # also warms up
            ways.append(way)
        except InvalidInputError:
            continue
    seconds: dict[str, dict[str, list[float]]] = {
        action: {way: [] for way in ways} for action in ACTIONS
    }
    for number in range(-1, rounds):
        for action, (columns, act) in ACTIONS.items():
            answers = {}
            for place in range(len(ways)):
                way = ways[(place + number) % len(ways)]
                start = time.perf_counter()
                answers[way] = act(dataset.spark(spark, columns, way=way))
                if number >= 0:
                    seconds[action][way].append(time.perf_counter() - start)
            if action in ("1 column", "count") and len(set(answers.values())) != 1:
                raise SystemExit(f"{dataset.name}: the ways disagree: {answers}")
    return {
        action: {way: statistics.median(found) for way, found in of_ways.items()}
        for action, of_ways in seconds.items()
    }


def report(files: int, rows: int, where: str, found: dict[str, dict[str, float]]) -> None:
    for action, seconds in found.items():
        base = seconds[BASE]
        ratios = "  ".join(
            f"{seconds[way] / base:>11.2f}" if way in seconds else f"{'-':>11}" for way in WAYS
        )
        print(f"{files:>6} x {rows:<8} {where:9} {action:11} {base:>8.2f} s  {ratios}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--rows", type=int, default=1_000, help="in a file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scattered", action="store_true", help="only files far apart")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    try:
        spark = local_session(settings={"spark.driver.memory": "2g"})
        repository = lakebed.open_repository(directory / "lake")
        print(f"{'files x rows':17} {'where':9} {'what':11} {BASE:>10}", end="  ")
        print("  ".join(f"{way:>11}" for way in WAYS), flush=True)
        for files in arguments.files:
            for scattered in (True,) if arguments.scattered else (False, True):
                dataset = write(repository, spark, files, arguments.rows, scattered=scattered)
                found = measure(dataset, spark, arguments.rounds)
                report(files, arguments.rows, "scattered" if scattered else "together", found)
                repository.drop(dataset.name)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
