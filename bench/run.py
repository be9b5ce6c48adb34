"""Lakebed against Spark's own Parquet reader and writer, on the same frame, in the same run.

Writing: `df.write.parquet` against `Dataset.append`, 5 million rows, 9 columns of mixed types.
Reading: every column of every row of the same files, `spark.read.parquet` against `Dataset.spark`.
The rounds alternate, so that what else the machine does falls on both; the median of the rounds'
ratios is compared with the limit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed.spark.session import local_session

WARM_UP_ROUNDS = 2
WRITE_LIMIT = 1.0  # time of Lakebed over time of Spark, at most
READ_LIMIT = 1.15
# What `df.write.parquet` does for who sets nothing; Lakebed's session helper chooses otherwise.
SPARK_AS_IT_COMES = {
    "spark.driver.memory": "4g",
    "spark.sql.parquet.outputTimestampType": "INT96",
}


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


def compare(
    name: str,
    ours: Callable[[int], object],
    spark: Callable[[int], object],
    rounds: int,
) -> dict[str, object]:
    """Run both in turns, each first as often as the other, after rounds that do not count.

    Args:
        name: Of the case.
        ours: Takes the number of the round.
        spark: Takes the number of the round.
        rounds: That count.

    Returns:
        The median of the rounds' ratios, and their range.
    """
    ratios = []
    for number in range(-WARM_UP_ROUNDS, rounds):
        seconds: dict[Callable[[int], object], float] = {}
        for action in (ours, spark) if number % 2 else (spark, ours):
            start = time.perf_counter()
            action(number)
            seconds[action] = time.perf_counter() - start
        if number >= 0:
            ratios.append(seconds[ours] / seconds[spark])
    return {
        "case": name,
        "rounds": rounds,
        "ratio": round(statistics.median(ratios), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
    }


def run(rows: int, rounds: int, directory: Path, spark: SparkSession) -> list[dict[str, object]]:
    """Return both comparisons."""
    frame = mixed_frame(spark, rows, directory / "source")
    repository = lakebed.open_repository(directory / "lake")
    # The codec that Spark takes by itself, so that both do the same work.
    descriptor = lakebed.DatasetDescriptor(schema=frame, compression="snappy")
    datasets = {
        number: repository.create(f"events-{number}", descriptor)
        for number in range(-WARM_UP_ROUNDS, rounds)
    }
    results = [
        compare(
            "append / df.write.parquet",
            lambda number: datasets[number].append(frame),
            lambda number: frame.write.parquet(str(directory / f"native-{number}")),
            rounds,
        )
    ]
    events = datasets[0]
    paths = [str(directory / "lake" / file.key) for file in events.files()]
    results.append(
        compare(
            "read all / spark.read.parquet",
            lambda _: touch_all(events.spark(spark)),
            lambda _: touch_all(spark.read.parquet(*paths)),
            rounds,
        )
    )
    if events.count() != rows or events.spark(spark).count() != rows:
        sys.exit(f"the dataset does not hold {rows} rows")
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
    missed = False
    for result, limit in zip(results, (WRITE_LIMIT, READ_LIMIT), strict=True):
        met = float(str(result["ratio"])) <= limit
        missed |= not met
        if arguments.json:
            print(json.dumps({**result, "limit": limit, "met": met}))
        else:
            print(
                f"{result['case']:32} {result['ratio']:>6} of Spark's time "
                f"(limit {limit}, {result['rounds']} rounds, "
                f"{result['ratio_min']} to {result['ratio_max']}) {'ok' if met else 'MISSED'}"
            )
    sys.exit(missed)


if __name__ == "__main__":
    main()
