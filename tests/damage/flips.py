"""Single bits of one file flipped, one after another, each judged by a process of its own."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import random
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed import by

SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("d", pa.date32()),
        ("m", pa.decimal128(9, 2)),
        ("b", pa.bool_()),
        ("l", pa.list_(pa.int64())),
    ]
)
MASKS = (0x01, 0x80)
STILL_S = 60  # without a step of the process: it waits for something that does not come
BUSY_S = 120  # of processor time for a flip, which takes a twentieth of a second


def some_rows(count: int) -> pa.Table:
    at = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    return pa.Table.from_pylist(
        [
            {
                "p": "a",
                "n": number,
                "x": number / 4,
                "s": None if number % 5 == 4 else f"text {number % 3}",
                "at": at + dt.timedelta(hours=number),
                "d": at.date() + dt.timedelta(days=number),
                "m": decimal.Decimal(number) / 100,
                "b": number % 2 == 0,
                "l": [number, number + 1],
            }
            for number in range(count)
        ],
        schema=SCHEMA,
    )


def _make_dataset(lake: Path, pattern: str, *, head: str = "document", **options: Any) -> Path:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("p")], index=["n"], **options
    )
    lakebed.open_repository(str(lake)).create("t", descriptor, head=head).append(some_rows(30))
    (file,) = lake.glob(pattern)
    return file


def _adopt_dataset(lake: Path) -> Path:
    (lake / "t").mkdir()
    file = lake / "t/a.parquet"
    pq.write_table(some_rows(30).drop(["p"]), file, compression="none")
    lakebed.open_repository(str(lake)).adopt("t")
    return file


_HEAD = "t.by-dataset-metadata.*"
_DATA = "t/data/p=a/batch_id=*/part-*"
ADOPTED = "adopted data file of another tool"
# How the dataset `t` of a lake is made; returns the file whose bits are flipped.
FILES: Mapping[str, Callable[[Path], Path]] = {
    "head of a document": lambda lake: _make_dataset(lake, _HEAD),
    "head of a tree": lambda lake: _make_dataset(lake, _HEAD, head="tree"),
    "data file, zstd": lambda lake: _make_dataset(lake, _DATA, compression="zstd"),
    "data file, uncompressed": lambda lake: _make_dataset(lake, _DATA, compression="uncompressed"),
    "data file, Avro": lambda lake: _make_dataset(lake, _DATA, format="avro"),
    ADOPTED: _adopt_dataset,
}


@dataclass
class Flips:
    """What became of flips of one file.

    Attributes:
        size: Bytes of the file.
        counts: Number of flips by outcome: `same`, `error`, `other`, `unnamed`, `hang` or `death`.
        wrong: Flips that led to neither the same answers nor a named error.
    """

    size: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def flip_bits(name: str, lake: Path, count: int | None) -> Flips:
    """Make a lake and flip bits of one of its files.

    Args:
        name: One of `FILES`.
        lake: An empty directory.
        count: Number of flips, chosen by chance; None flips every byte by each of `MASKS`.
    """
    file = FILES[name](lake)
    size = file.stat().st_size
    flips = [(offset, mask) for offset in range(size) for mask in MASKS]
    chosen = flips if count is None else random.Random(5).sample(flips, min(count, len(flips)))
    return _judge(Flips(size), lake, file, chosen)


def flip_footer(name: str, lake: Path, *, every: int) -> Flips:
    """Make a lake and flip the lowest bit of some bytes of the footer of one of its files."""
    file = FILES[name](lake)
    size = file.stat().st_size
    begin = size - 8 - int.from_bytes(file.read_bytes()[-8:-4], "little")
    return _judge(Flips(size), lake, file, [(n, 0x01) for n in range(begin, size, every)])


def _judge(found: Flips, lake: Path, file: Path, flips: Iterable[tuple[int, int]]) -> Flips:
    child = _Child(lake, file)
    try:
        for offset, mask in flips:
            answer = child.flip(offset, mask)
            found.counts[answer.partition(" ")[0]] += 1
            if not answer.startswith(("same", "error")):
                found.wrong.append(f"byte {offset} ^ {mask:#x}: {answer}")
    finally:
        child.stop()
    return found


class _Child:
    """A process that flips bits; it is started again where it ends or does not answer."""

    def __init__(self, lake: Path, file: Path) -> None:
        self._command = [sys.executable, "-m", "damage.flipped_file", str(lake), str(file)]
        self._whole, self._file = file.read_bytes(), file
        self._start()

    def _start(self) -> None:
        self._file.write_bytes(self._whole)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def flip(self, offset: int, mask: int) -> str:
        self._process.stdin.write(f"{offset} {mask}\n")
        found = self._process.stdout.readline().strip() if self._is_answered() else "hang"
        if found in ("", "hang"):
            self.stop()
            found = found or f"death {self._process.returncode}"
            self._start()
        return found

    def _is_answered(self) -> bool:
        """Wait for an answer while the process goes on: by its own time, since a machine may be busy."""
        process = psutil.Process(self._process.pid)
        begin = before = process.cpu_times().user
        while not select.select([self._process.stdout], [], [], STILL_S)[0]:
            now = process.cpu_times().user
            is_waiting = process.status() == psutil.STATUS_SLEEPING and now == before
            if is_waiting or now - begin > BUSY_S:
                return False
            before = now
        return True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)
        self._process.stdin.close()
        self._process.stdout.close()
