"""How long a publication to Delta and to Iceberg takes after a commit of one file.

    python bench/doors_publish.py [--files 1000 10000 100000] [--rounds 30] [--head tree]

The datasets are those of `bench/scale`: all that Lakebed keeps of so many files, of which none
exists. In each round one file is appended and published, then one is overwritten and published,
to either format, in this process and with a dataset opened anew: 60 publications in a row, among
them those that write a checkpoint or merge manifests. Medians and the most of seconds, on the
clock and of CPU, of requests and of bytes that were read and written. The first publication, which
names all files, is measured once; so is one after a delete of an old day, which a leaf of a tree
holds among others.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebed import Dataset, Repository
from lakebed.store import open_store
from lakebed.testing import CountingStore

SCALE = Path(__file__).parent / "scale"
SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("amount", pa.float64())])
NAME = "t"
DAY = dt.date(2000, 1, 2)
Measured = tuple[float, float, int, int, int]  # seconds, of CPU, requests, bytes read and written
TARGETS: Mapping[str, Callable[[Dataset], object]] = {
    "delta": lambda dataset: dataset.publish("delta"),
    "iceberg": lambda dataset: dataset.publish("iceberg"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--head", choices=["document", "tree"], default="document")
    given = parser.parse_args()
    print(
        f"{'files':>8} {'target':8} {'what':12} {'':>7}{'seconds':>9} {'of CPU':>7} {'requests':>8} {'read':>11} {'written':>11}"
    )
    for count in given.files:
        with tempfile.TemporaryDirectory() as folder:
            measure(folder, count, given.rounds, given.head)


def measure(folder: str, count: int, rounds: int, head: str) -> None:
    wanted = {
        "location": folder,
        "count": count,
        "head": "msgpack.zstd",
        "index": False,
        "storage": {},
    }
    worker = [sys.executable, str(SCALE / "lakebed_worker.py"), "prepare", json.dumps(wanted)]
    subprocess.run(worker, check=True, stdout=subprocess.DEVNULL)
    store = CountingStore(open_store(folder))
    Repository(store).open(NAME).compact(head=head)
    for target, publish in TARGETS.items():
        tell(count, target, "first", [timed(store, publish)])
    series: dict[tuple[str, str], list[Measured]] = {}
    for number in range(rounds):
        for what, change in (("append", append), ("overwrite", overwrite)):
            change(Repository(store).open(NAME), count + number)
            for target, publish in TARGETS.items():
                series.setdefault((target, what), []).append(timed(store, publish))
    for (target, what), measured in sorted(series.items()):
        tell(count, target, what, measured)
    dataset = Repository(store).open(NAME)
    day = min(file.key for file in dataset.files()).split("/")[2].partition("=")[2]
    dataset.where(f"day = '{day}'").delete()
    for target, publish in TARGETS.items():
        tell(count, target, "delete", [timed(store, publish)])


def new_rows(number: int) -> pa.Table:
    """Return the rows of one more file, of a day in the middle."""
    rows = {"day": [DAY] * 10, "id": range(number * 10, number * 10 + 10), "amount": [1.5] * 10}
    return pa.table({name: list(values) for name, values in rows.items()}, schema=SCHEMA)


def append(dataset: Dataset, number: int) -> None:
    dataset.append(new_rows(number))


def overwrite(dataset: Dataset, number: int) -> None:
    """Replace the one file that the last run of this name has written."""
    dataset.rerun(new_rows(number), run="again", replace_all=True)


def timed(store: CountingStore, publish: Callable[..., Any]) -> Measured:
    dataset = Repository(store).open(NAME)
    store.reset()
    began, worked = time.perf_counter(), time.process_time()
    publish(dataset)
    seconds, cpu = time.perf_counter() - began, time.process_time() - worked
    counts = store.reset()
    return seconds, cpu, counts.total, counts.bytes_read, counts.bytes_written


def tell(count: int, target: str, what: str, measured: list[Measured]) -> None:
    for name, of in (("median", statistics.median), ("most", max)):
        figures = (of(values) for values in zip(*measured, strict=True))
        seconds, cpu, requests, read, written = figures
        print(
            f"{count:8} {target:8} {what:12} {name:>7}{seconds:9.3f} {cpu:7.3f} {requests:8.0f} {read:11,.0f} {written:11,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
