"""The report of one dataset of 100,000 files, and of a lake of 500 datasets: time, memory, bytes.

Each is written by a process of its own, so that nothing is remembered from another; printed are the
clock, the processor's time, the peak of the memory, and the size of the page. The 100,000 files are
there, but empty: a report lists them, and reads what the file table says of them.

With --check it ends with 1 where a page takes more than 5 s of the processor or has more than 3 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

import lakebed

MAX_S, MAX_BYTES = 5.0, 3_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--commits", type=int, default=30, help="that each add a file to these")
    parser.add_argument("--datasets", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--of", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of:
        print(json.dumps(measured(given.of)))
        return
    home = Path(tempfile.mkdtemp(prefix="lakebed-bench-report-"))
    try:
        prepare_files(home / "files", given.files, given.commits)
        prepare_datasets(home / "datasets", given.datasets)
        is_within = True
        for lake, what in (
            (home / "files", f"{given.files:,} files"),
            (home / "datasets", f"{given.datasets:,} datasets"),
        ):
            for _ in range(given.rounds):
                command = [sys.executable, __file__, "--of", str(lake)]
                answer = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
                figures = json.loads(answer)
                is_within &= figures["cpu_s"] <= MAX_S and figures["bytes"] <= MAX_BYTES
                print(
                    f"{what:>16}: {figures['clock_s']:6.2f} s, of the processor "
                    f"{figures['cpu_s']:5.2f} s, {figures['peak_mb']:5.0f} MB of memory, "
                    f"{figures['bytes'] / 1e6:5.2f} MB of page"
                )
        sys.exit(given.check and not is_within)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def prepare_files(lake: Path, count: int, commits: int) -> None:
    """Make a dataset of many files in a thousand partitions, and some commits more."""
    lake.mkdir()
    arguments = {
        "location": str(lake),
        "count": count,
        "head": "msgpack.zstd",
        "index": False,
        "storage": {},
    }
    worker = Path(__file__).parent / "scale" / "lakebed_worker.py"
    command = [sys.executable, str(worker), "prepare", json.dumps(arguments)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    (name,) = lakebed.open_repository(lake).list()
    dataset = lakebed.open_repository(lake).open(name)
    for file in dataset.files():
        path = lake / file.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for _ in range(commits):
        dataset.append([{"day": None, "id": 1, "amount": 0.5}])


def prepare_datasets(lake: Path, count: int) -> None:
    repository = lakebed.open_repository(lake)
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("name", pa.string())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by="day", index=["id"])
    for number in range(count):
        dataset = repository.create(f"dataset{number:04}", descriptor)
        for run in range(3):
            dataset.append([{"day": None, "id": run, "name": "a"}], run=f"run {run}")


def measured(lake: Path) -> dict[str, float]:
    page = lake.parent / "lake.html"
    lakebed.open_repository(lake)
    began, before = time.perf_counter(), time.process_time()
    lakebed.open_repository(lake).report(page)
    clock_s, cpu_s = time.perf_counter() - began, time.process_time() - before
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "clock_s": clock_s,
        "cpu_s": cpu_s,
        "peak_mb": peak_kb / 1000,
        "bytes": page.stat().st_size,
    }


if __name__ == "__main__":
    main()
