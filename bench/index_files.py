"""What it costs a commit of one file to keep an index as plateau and kartothek read it.

    python bench/index_files.py [--pairs 10000 50000 200000 1000000] [--rounds 5]

A dataset has an index of so many pairs of value and file, in four files. Then one file of ten rows
is appended at a time: with `kartothek.indices` off, and with the index file that each commit writes
anew, whatever the limit of `lakebed.index.kartothek_file` is. Printed are medians of CPU, in
milliseconds, their ratio, and the bytes of the index file.
"""

from __future__ import annotations

import argparse
import statistics
import time
import uuid

import pyarrow as pa

import lakebed
from lakebed.index import kartothek_file

FILES = 4
KINDS = {"long": lambda n: n, "text": lambda n: f"{n:012}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--pairs", type=int, nargs="+", default=[10_000, 50_000, 200_000, 1_000_000]
    )
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    kartothek_file._COMMIT_PAIRS = kartothek_file._MOST_COMMIT_PAIRS = kartothek_file.MAX_PAIRS
    print(f"{'pairs':>9} {'values':7}{'off':>8}{'kept':>8}{'ratio':>7}{'bytes':>12}")
    for pairs in given.pairs:
        for name, value in KINDS.items():
            off, _ = measure(pairs, value, given.rounds, "off")
            kept, size = measure(pairs, value, given.rounds, "string")
            print(f"{pairs:9} {name:7}{off:8.1f}{kept:8.1f}{kept / off:7.1f}{size:12,}", flush=True)


def measure(pairs: int, value, rounds: int, indices: str) -> tuple[float, int]:  # noqa: ANN001
    """Return the median CPU of a commit, in milliseconds, and the size of the index file."""
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    kind = pa.array([value(0)]).type
    dataset = repository.create(
        "d",
        lakebed.DatasetDescriptor(
            schema=pa.schema([("k", kind), ("part", pa.int64())]),
            partition_by="part",
            index="k",
            properties={"kartothek.indices": indices},
        ),
    )
    keys = pa.array([value(n) for n in range(pairs)], kind)
    parts = pa.array([n * FILES // pairs for n in range(pairs)], pa.int64())
    dataset.append(pa.table({"k": keys, "part": parts}))
    times = []
    for number in range(rounds + 1):
        rows = {
            "k": [value(pairs + 10 * number + n) for n in range(10)],
            "part": [FILES + number] * 10,
        }
        began = time.process_time()
        dataset.append(pa.table(rows))
        times.append((time.process_time() - began) * 1000)
    sizes = [
        info.size_bytes
        for info in repository.store.list("d/indices/")
        if info.key.endswith(".by-dataset-index.parquet")
    ]
    return statistics.median(times[1:]), max(sizes, default=0)


if __name__ == "__main__":
    main()
