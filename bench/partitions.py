"""One Spark write that touches 10,000 partitions: speed, files a partition, and memory.

The rows of every partition lie scattered over all tasks. What each process held at most is taken
from /proc, so that this runs on Linux.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed.spark.session import local_session

_EVERY_S = 0.05


@contextmanager
def peaks_mib(root: int) -> Iterator[dict[str, float]]:
    """Watch the resident memory of a process and of all that it has started.

    Args:
        root: Process id of the driver.

    Yields:
        The most MiB of the driver's Python, of the JVM, and of the largest Python worker; filled
        in while the block runs.
    """
    found: dict[str, float] = {"driver": 0.0, "jvm": 0.0, "worker": 0.0}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_EVERY_S):
            for kind, size in _sizes_mib(root):
                found[kind] = max(found[kind], round(size, 1))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def _sizes_mib(root: int) -> list[tuple[str, float]]:
    parents, sizes, names = {}, {}, {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            status = (directory / "status").read_text(encoding="utf-8")
        except OSError:  # it has ended
            continue
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        process = int(directory.name)
        parents[process] = int(lines["PPid"])
        sizes[process] = int(lines.get("VmRSS", "0 kB").split()[0]) / 1024
        names[process] = lines["Name"].strip()
    return [
        ("driver" if process == root else "jvm" if names[process] == "java" else "worker", size)
        for process, size in sizes.items()
        if _descends(process, root, parents)
    ]


def _descends(process: int, root: int, parents: dict[int, int]) -> bool:
    while process in parents and process != root:
        process = parents[process]
    return process == root


def run(rows: int, partitions: int, tasks: int, directory: Path) -> dict[str, object]:
    """Write, and return what it took."""
    spark = local_session(settings={"spark.driver.memory": "2g"})
    number = F.col("id")
    frame = spark.range(0, rows, 1, tasks).select(
        "id",
        (number * 7919 % partitions).cast("int").alias("key"),
        F.timestamp_micros(1_356_998_400_000_000 + number * 6_311_000).alias("happened_at"),
        F.concat(F.lit("N"), F.lpad((number * 31 % 4043).cast("string"), 5, "0")).alias("tail"),
        (F.rand(7) * 1000).alias("delay"),
    )
    repository = lakebed.open_repository(directory / "lake")
    descriptor = lakebed.DatasetDescriptor(schema=frame, partition_by="key")
    small = repository.create("small", descriptor)
    small.append(frame.limit(1_000))  # the workers start, and the JVM compiles
    dataset = repository.create("keys", descriptor)
    with peaks_mib(os.getpid()) as peaks:
        start = time.perf_counter()
        commit = dataset.append(frame)
        seconds = time.perf_counter() - start
    if commit.row_count != rows or dataset.count() != rows:
        raise SystemExit(f"the dataset does not hold {rows} rows")
    return {
        "rows": rows,
        "tasks": tasks,
        "partitions": len(commit.partitions),
        "files_a_partition": round(len(commit.files_added) / len(commit.partitions), 3),
        "seconds": round(seconds, 2),
        "rows_a_second": round(rows / seconds),
        **{f"{kind}_peak_mib": size for kind, size in peaks.items()},
    }


def main() -> None:
    """Print what the write took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=8)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-bench-"))
    try:
        print(
            json.dumps(run(arguments.rows, arguments.partitions, arguments.tasks, directory)),
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
