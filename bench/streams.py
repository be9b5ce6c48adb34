"""A stream with a commit a second: does an epoch take as long at the end as at the beginning?

The rate source gives rows, the data source writes them, and small files are compacted beside. Told
are the latency of the epochs as Spark measures it, and what the head names while it goes on: it
must not grow with the commits. Exits with 1 where a limit is passed or a row is missing.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.spark.session import local_session
from lakebed.state.reader import read_head

LIMIT = 1.5  # of the last epochs against the first
EPOCHS = 30  # that are compared
STAGES = ("latestOffset", "queryPlanning", "addBatch", "walCommit", "commitOffsets")


@dataclass(frozen=True)
class Sample:
    """What the head named at a moment.

    Attributes:
        version: Of the dataset.
        files: Live data files.
        head_bytes: Size of the head.
        segments: Objects of the lists that the head names.
    """

    version: int
    files: int
    head_bytes: int
    segments: int

    @classmethod
    def of(cls, dataset: lakebed.Dataset) -> Sample:
        store = dataset._source.store
        head = read_head(store, dataset.name)
        size = store.size(head.key)
        state = head.state
        return cls(state.version, len(state.labels), size, len(state.lists.keys))


def main() -> None:
    """Stream, and tell what was seen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000, help="a second")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--compact-every", type=int, default=20, help="epochs; 0 for never")
    parser.add_argument("--cores", default="2")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    try:
        is_good = run(directory, arguments)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    raise SystemExit(0 if is_good else 1)


def run(directory: Path, arguments: argparse.Namespace) -> bool:
    """Stream into a dataset, and return whether everything was as it should be."""
    settings = {
        "spark.sql.streaming.numRecentProgressUpdates": "10000",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = local_session(arguments.cores, settings=settings)
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("value", pa.int64())])
    repository = lakebed.open_repository(directory / "lake")
    dataset = repository.create("rates", lakebed.DatasetDescriptor(schema=schema))
    rates = spark.readStream.format("rate").option("rowsPerSecond", arguments.rows)
    query = (
        rates.option("numPartitions", 2)
        .load()
        .writeStream.format("lakebed")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .option("compactEvery", arguments.compact_every)
        .trigger(processingTime="1 second")
        .start(dataset.uri)
    )
    samples = []
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        if query.awaitTermination(5):
            raise SystemExit("The query ended by itself.")
        samples.append(Sample.of(dataset))
    query.stop()
    progress = [dict(one) for one in query.recentProgress]
    epochs = [one for one in progress if one["numInputRows"]]
    spark.stop()
    return tell(dataset, epochs, samples)


def tell(dataset: lakebed.Dataset, epochs: list[dict[str, Any]], samples: list[Sample]) -> bool:
    """Print what was seen, and return whether it is within the limits."""
    epochs = epochs[1:]  # the first one starts Python
    latencies = [one["durationMs"]["triggerExecution"] for one in epochs]
    first, last = latencies[:EPOCHS], latencies[-EPOCHS:]
    ratio = statistics.median(last) / statistics.median(first)
    print(f"epochs: {len(latencies)}, rows: {sum(one['numInputRows'] for one in epochs):,}")
    for name, part in (("first", epochs[:EPOCHS]), ("last", epochs[-EPOCHS:])):
        took = sorted(one["durationMs"]["triggerExecution"] for one in part)
        stages = ", ".join(
            f"{stage} {statistics.median(one['durationMs'].get(stage, 0) for one in part):.0f}"
            for stage in STAGES
        )
        print(
            f"{name} {len(part)}: median {statistics.median(took):.0f} ms, "
            f"longest {took[-1]} ms ({stages})"
        )
    print(f"last against first: {ratio:.2f} (at most {LIMIT})")
    for sample in samples[:: max(1, len(samples) // 8)]:
        print(
            f"version {sample.version:5}: {sample.files:4} files, head {sample.head_bytes:7,} bytes, "
            f"{sample.segments:3} segments"
        )
    values = dataset.arrow(["value"]).column("value").to_numpy()
    is_whole = len(values) == len(set(values.tolist())) == int(values.max()) + 1
    operations = [commit.operation for commit in dataset.history()]
    compactions = operations.count("compact")
    print(
        f"rows in the dataset: {len(values):,}, each once: {is_whole}; compactions: {compactions}"
    )
    # Between two compactions files gather, as many as epochs have; not more than that.
    middle = len(samples) // 2
    is_bounded = max(s.files for s in samples[middle:]) <= 2 * max(
        s.files for s in samples[:middle]
    )
    print(f"files bounded: {is_bounded}")
    return is_whole and is_bounded and ratio <= LIMIT


if __name__ == "__main__":
    main()
