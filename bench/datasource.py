"""The ways from SQL to the rows, beside each other: attached views, the data source, mapInArrow.

The same rows lie in a dataset and in a directory of plain Parquet that Spark has written. Each action
is done by each way, in turns, in one session; printed are medians, in seconds for plain Parquet
and for the others as ratios to it. Answers are compared.

The filter keeps one row in a hundred by `happened_at`, from which the partitions by day are derived.
Plain Parquet is given the day too, as somebody must who writes such a query without Lakebed: a filter
on `happened_at` alone would have it read every file.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed.spark.session import local_session

DAYS = 100
BASE = "parquet"
START_S = 1_356_998_400  # 2013-01-01
KEPT = "happened_at >= timestamp'2013-02-10 00:00:00Z' AND happened_at < timestamp'2013-02-11 00:00:00Z'"

Way = Callable[[str], DataFrame]


def rows(spark: SparkSession, count: int, files: int) -> DataFrame:
    number = F.col("id")
    return spark.range(0, count, 1, files).select(
        number.alias("event_id"),
        (number * 7919 % 1_000_003).cast("int").alias("user_id"),
        F.timestamp_micros(
            F.lit(START_S * 1_000_000) + F.floor(number * (DAYS * 86_400_000_000 / count))
        ).alias("happened_at"),
        F.concat(F.lit("N"), F.lpad((number * 31 % 4043).cast("string"), 5, "0")).alias("tail"),
        (number % 1000 / 7).alias("delay"),
    )


def sum_of_one(frame: DataFrame) -> object:
    return frame.agg(F.sum("user_id")).collect()[0][0]


def all_columns(frame: DataFrame) -> object:
    names = ("event_id", "user_id", "happened_at", "tail", "delay")
    row = frame.agg(*[F.max(name) for name in names]).collect()[0]
    return tuple(row)


def count_rows(frame: DataFrame) -> object:
    return frame.count()


ACTIONS: Mapping[str, tuple[Callable[[DataFrame], object], str]] = {
    "one column": (sum_of_one, ""),
    "all columns": (all_columns, ""),
    "count": (count_rows, ""),
    "filter 1 %": (all_columns, KEPT),
}


def ways_of(
    spark: SparkSession, dataset: lakebed.Dataset, plain: Path, *, is_by_day: bool
) -> dict[str, Way]:
    """Return for each way what makes a frame of a condition."""
    path = dataset.uri.removeprefix("file://")

    def narrowed(frame: DataFrame, condition: str) -> DataFrame:
        return frame.where(condition) if condition else frame

    # Once, as the views of the datasets are made: what is compared is queries.
    spark.read.parquet(str(plain)).createOrReplaceTempView(plain.name)

    def parquet(condition: str) -> DataFrame:
        frame = narrowed(spark.table(plain.name), condition)
        return frame.where("dt = '2013-02-10'") if condition and is_by_day else frame

    def source(condition: str) -> DataFrame:
        reader = spark.read.format("lakebed")
        if condition:
            reader = reader.option(
                "where", "happened_at >= '2013-02-10' AND happened_at < '2013-02-11'"
            )
        return reader.load(path)

    def through_arrow(condition: str) -> DataFrame:
        view = dataset
        if condition:
            view = view.where("happened_at >= '2013-02-10' AND happened_at < '2013-02-11'")
        return view.spark(spark, way="arrow")

    return {
        BASE: parquet,
        "attach": lambda condition: narrowed(spark.table(dataset.name), condition),
        "source": source,
        "arrow": through_arrow,
    }


def measure(
    action: Callable[[DataFrame], object], way: Way, condition: str
) -> tuple[float, object]:
    begun = time.perf_counter()
    answer = action(way(condition))
    return time.perf_counter() - begun, answer


def compare(spark: SparkSession, root: Path, count: int, rounds: int, *, is_by_day: bool) -> None:
    frame = rows(spark, count, 8)
    name = "by_day" if is_by_day else "flat"
    descriptor = lakebed.DatasetDescriptor(
        schema=frame, partition_by="date(happened_at) as dt" if is_by_day else ()
    )
    repository = lakebed.open_repository(root / "lake")
    dataset = repository.create(name, descriptor)
    dataset.append(frame)
    plain = root / f"plain_{name}"
    with_day = frame.withColumn("dt", F.to_date("happened_at"))
    if is_by_day:
        with_day.write.partitionBy("dt").parquet(str(plain), compression="zstd")
    else:
        frame.write.parquet(str(plain), compression="zstd")
    ways = ways_of(spark, dataset, plain, is_by_day=is_by_day)
    with lakebed.spark.attach(spark, repository, datasets=[name]):
        print(f"\n{name}: {count:,} rows, {len(dataset.files())} files, medians of {rounds}")
        print(f"{'':12} {'parquet':>9} " + " ".join(f"{way:>8}" for way in ways if way != BASE))
        for action_name, (action, condition) in ACTIONS.items():
            times: dict[str, list[float]] = {way: [] for way in ways}
            for turn in range(rounds + 1):
                answers = {}
                for way, make in ways.items():
                    seconds, answers[way] = measure(action, make, condition)
                    if turn:  # the first one warms up
                        times[way].append(seconds)
                if len(set(answers.values())) != 1:
                    raise SystemExit(f"{action_name}: the answers differ: {answers}")
            medians = {way: statistics.median(found) for way, found in times.items()}
            ratios = " ".join(f"{medians[way] / medians[BASE]:8.2f}" for way in ways if way != BASE)
            print(f"{action_name:12} {medians[BASE]:7.2f} s {ratios}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", default="*")
    parser.add_argument("--only", choices=["flat", "by_day"])
    arguments = parser.parse_args()
    spark = local_session(arguments.cores, settings={"spark.sql.shuffle.partitions": "4"})
    root = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    try:
        for is_by_day in (False, True):
            if arguments.only in (None, "by_day" if is_by_day else "flat"):
                compare(spark, root, arguments.rows, arguments.rounds, is_by_day=is_by_day)
    finally:
        spark.stop()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
