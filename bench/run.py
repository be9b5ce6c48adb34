"""Lakebed against Spark's own Parquet reader and writer, on the same frame, in the same run.

Writing: `df.write.parquet` against `Dataset.append`, 5 million rows, 9 columns of mixed types; and
`Dataset.append` into partitions against the same append without: 16 hash buckets, a dimension of
5 values, and the 365 days of rows in order of time.
Reading: every column of every row of the same files, `spark.read.parquet` against `Dataset.spark`.
Every round does all of them, in turns, so that what else the machine does falls on all; the median
of the rounds' ratios is compared with the limit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed import by
from lakebed.model.partition import PartitionFunction
from lakebed.spark.session import local_session

WARM_UP_ROUNDS = 2
WRITE_LIMIT = 1.0  # time of Lakebed over time of Spark, at most
READ_LIMIT = 1.15
PARTITIONED_LIMIT = 1.3  # time of a partitioned append over time of the same one without
PARTITIONED = {
    "hash into 16 buckets": by.hash("user_id", 16),
    "dimension of 5 values": by.dimension("carrier", ["UA", "B6", "EV", "DL", "AA"]),
    "date, 365 days in order": by.date("happened_at", name="dt"),
}
# What `df.write.parquet` does for who sets nothing; Lakebed's session helper chooses otherwise.
SPARK_AS_IT_COMES = {
    "spark.driver.memory": "4g",
    "spark.sql.parquet.outputTimestampType": "INT96",
}

Seconds = dict[str, float]
Result = dict[str, object]


def mixed_frame(spark: SparkSession, rows: int, directory: Path) -> DataFrame:
    """Return a frame of nine columns, stored as Parquet so that making it costs neither side."""
    number = F.col("id")
    frame = spark.range(rows).select(
        number.alias("event_id"),
        (number * 7919 % 1_000_003).cast("int").alias("user_id"),
        F.timestamp_micros(1_356_998_400_000_000 + number * 6_311_000).alias("happened_at"),
        F.date_add(F.lit("2013-01-01").cast("date"), (number % 365).cast("int")).alias("day"),
        F.concat(F.lit("N"), F.lpad((number * 31 % 4043).cast("string"), 5, "0")).alias("tail"),
        F.element_at(F.array(*[F.lit(c) for c in ("UA", "B6", "EV", "DL", "AA")]),
                     (number % 5 + 1).cast("int")).alias("carrier"),
        F.when(number % 11 != 0, F.rand(7) * 1000 - 100).alias("delay"),
        (number % 3 == 0).alias("cancelled"),
        (number % 100_000 / 100).cast("decimal(12,2)").alias("price"),
    )  # fmt: skip
    frame.write.parquet(str(directory))
    return spark.read.parquet(str(directory))


def touch_all(frame: DataFrame) -> None:
    """Read every column of every row, and throw it away."""
    frame.write.format("noop").mode("overwrite").save()


def alternate(actions: Mapping[str, Callable[[int], object]], rounds: int) -> list[Seconds]:
    """Run all actions in every round, each at every place in turn, after rounds that do not count.

    Args:
        actions: By name; each takes the number of the round.
        rounds: That count.

    Returns:
        Seconds by name, of each round that counts.
    """
    found = []
    names = list(actions)
    for number in range(-WARM_UP_ROUNDS, rounds):
        first = number % len(names)
        seconds = {}
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            actions[name](number)
            seconds[name] = time.perf_counter() - start
        if number >= 0:
            found.append(seconds)
    return found


def compare(case: str, rounds: list[Seconds], ours: str, base: str, limit: float) -> Result:
    """Return the median of the rounds' ratios, and their range."""
    ratios = [seconds[ours] / seconds[base] for seconds in rounds]
    ratio = statistics.median(ratios)
    return {
        "case": case,
        "rounds": len(rounds),
        "ratio": round(ratio, 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "seconds": round(statistics.median(seconds[ours] for seconds in rounds), 2),
        "limit": limit,
        "met": ratio <= limit,
    }


def run(rows: int, rounds: int, directory: Path, spark: SparkSession) -> list[Result]:
    """Return all comparisons."""
    frame = mixed_frame(spark, rows, directory / "source")
    repository = lakebed.open_repository(directory / "lake")

    def append(name: str, partition_by: PartitionFunction | None) -> Callable[[int], object]:
        # The codec that Spark takes by itself, so that both do the same work.
        descriptor = lakebed.DatasetDescriptor(
            schema=frame,
            partition_by=[partition_by] if partition_by else [],
            compression="snappy",
        )
        datasets = {
            number: repository.create(f"{name}-{number}", descriptor)
            for number in range(-WARM_UP_ROUNDS, rounds)
        }
        return lambda number: datasets[number].append(frame)

    spark_writes, plain = "df.write.parquet", "append"
    actions: dict[str, Callable[[int], object]] = {
        spark_writes: lambda number: frame.write.parquet(str(directory / f"native-{number}")),
        plain: append("events", None),
    }
    for position, (case, function) in enumerate(PARTITIONED.items()):
        actions[case] = append(f"partitioned-{position}", function)
    found = alternate(actions, rounds)
    results = [compare("append / df.write.parquet", found, plain, spark_writes, WRITE_LIMIT)]
    results += [
        compare(f"{case} / append", found, case, plain, PARTITIONED_LIMIT) for case in PARTITIONED
    ]

    events = repository.open("events-0")
    paths = [str(directory / "lake" / file.key) for file in events.files()]
    found = alternate(
        {
            "read": lambda _: touch_all(events.spark(spark)),
            "spark.read": lambda _: touch_all(spark.read.parquet(*paths)),
        },
        rounds,
    )
    results.append(
        compare("read all / spark.read.parquet", found, "read", "spark.read", READ_LIMIT)
    )
    names = ["events-0", *(f"partitioned-{position}-0" for position in range(len(PARTITIONED)))]
    for name in names:
        dataset = repository.open(name)
        if dataset.count() != rows or dataset.spark(spark).count() != rows:
            sys.exit(f"{name} does not hold {rows} rows")
    return results


def main() -> None:
    """Print the ratios; exit with 1 if one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    try:
        spark = local_session(settings=SPARK_AS_IT_COMES)
        results = run(arguments.rows, arguments.rounds, directory, spark)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for result in results:
        if arguments.json:
            print(json.dumps(result))
        else:
            print(
                f"{result['case']:34} {result['ratio']:>6} of the time "
                f"(limit {result['limit']}, {result['rounds']} rounds, "
                f"{result['ratio_min']} to {result['ratio_max']}, {result['seconds']} s) "
                f"{'ok' if result['met'] else 'MISSED'}"
            )
    sys.exit(not all(result["met"] for result in results))


if __name__ == "__main__":
    main()
