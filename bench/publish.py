"""Publishing 1,000 changed partitions, beside as many statements ALTER TABLE … SET LOCATION.

Both move the same partitions of a table in Spark's embedded metastore (Derby) in one run, in
turn; printed are medians. `publish` also reads the head and the history, lists every directory
that it is about to show, and notes the version; the statements only move the locations.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed.tables.hive.jvm import JvmCatalog
from lakebed.tables.hive.metastore_session import session_of


def timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="lakebed-bench-publish-"))
    try:
        measure(home, given.partitions, given.rounds)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def measure(home: Path, partition_count: int, rounds: int) -> None:
    spark = session_of(home / "hive")
    repository = lakebed.open_repository(home / "lake")
    schema = pa.schema([("k", pa.string()), ("batch", pa.int64())])
    dataset = repository.create("many", lakebed.DatasetDescriptor(schema=schema, partition_by="k"))
    keys = [f"k{n:05}" for n in range(partition_count)]

    def overwrite(batch: int) -> dict[str, str]:
        """Write all partitions anew; return where each is."""
        dataset.overwrite([{"k": key, "batch": batch} for key in keys])
        root = repository.uri
        return {
            file.partition.partition("=")[2]: f"{root}/{file.key.rpartition('/')[0]}"
            for file in dataset.files()
        }

    def by_statements(locations: dict[str, str]) -> None:
        for key, location in locations.items():
            spark.sql(f"ALTER TABLE bench.many PARTITION (k='{key}') SET LOCATION '{location}'")

    overwrite(0)
    created = timed(lambda: dataset.publish("hive", spark, table="bench.many"))
    spark.sql("SELECT count(*) FROM bench.many").collect()
    times: dict[str, list[float]] = {"publish": [], "publish, SQL alone": [], "statements": []}
    calls = {}
    for number in range(rounds):
        overwrite(3 * number + 1)
        began = time.perf_counter()
        done = dataset.publish("hive", spark, table="bench.many")
        times["publish"].append(time.perf_counter() - began)
        calls["publish"] = done.calls
        assert len(done.changed) == partition_count

        overwrite(3 * number + 2)
        find, JvmCatalog.find = JvmCatalog.find, lambda *_: None
        try:
            began = time.perf_counter()
            done = dataset.publish("hive", spark, table="bench.many")
            times["publish, SQL alone"].append(time.perf_counter() - began)
            calls["publish, SQL alone"] = done.calls
        finally:
            JvmCatalog.find = find

        locations = overwrite(3 * number + 3)
        times["statements"].append(timed(lambda locations=locations: by_statements(locations)))
        calls["statements"] = len(locations)
        assert dataset.publish("hive", spark, table="bench.many", check=True).is_in_step
        shown = spark.sql("SELECT min(batch), count(*) FROM bench.many").first()
        assert tuple(shown) == (3 * number + 3, partition_count), shown
        seconds = ", ".join(f"{name} {found[-1]:.2f} s" for name, found in times.items())
        print(f"round {number + 1}: {seconds}", file=sys.stderr)
    checked = timed(lambda: dataset.publish("hive", spark, table="bench.many", check=True))
    spark.stop()
    slow = statistics.median(times["statements"])
    print(f"{partition_count:,} partitions, {rounds} rounds, medians")
    print(f"{'':32} {'seconds':>8} {'calls':>6} {'of statements':>14}")
    print(f"{'first publication':32} {created:8.2f}")
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:32} {median:8.2f} {calls[name]:6,} {median / slow:13.0%}")
    print(f"{'check':32} {checked:8.2f}")


if __name__ == "__main__":
    main()
