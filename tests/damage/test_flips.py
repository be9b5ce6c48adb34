"""A flipped bit in a data file or a head: a named error or the same rows, and the process goes on."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import random
import select
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
PATIENCE_S = 60  # of a question; a machine may be busy


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


class Child:
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
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        found = self._process.stdout.readline().strip() if ready else "hang"
        if found in ("", "hang"):
            self.stop()
            found = found or f"death {self._process.returncode}"
            self._start()
        return found

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)
        self._process.stdin.close()
        self._process.stdout.close()


def wrong_after_flips(lake: Path, file: Path, flips: Iterable[tuple[int, int]]) -> list[str]:
    child, counts, wrong = Child(lake, file), Counter(), []
    try:
        for offset, mask in flips:
            found = child.flip(offset, mask)
            counts[found.partition(" ")[0]] += 1
            if not found.startswith(("same", "error")):
                wrong.append(f"byte {offset} ^ {mask:#x}: {found}")
    finally:
        child.stop()
    sys.stdout.write(f"{dict(counts)}\n")
    assert counts["error"], "no flip was noticed"
    return wrong


def chosen_flips(file: Path, count: int | None) -> list[tuple[int, int]]:
    size = file.stat().st_size
    flips = [(offset, mask) for offset in range(size) for mask in MASKS]
    return flips if count is None else random.Random(5).sample(flips, count)


HOW_MANY = pytest.mark.parametrize(
    "count",
    [pytest.param(250, id="some"), pytest.param(None, id="every", marks=pytest.mark.long)],
)


def make_dataset(lake: Path, compression: str = "zstd", head: str = "document") -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("p")], compression=compression, index=["n"]
    )
    lakebed.open_repository(str(lake)).create("t", descriptor, head=head).append(some_rows(30))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("head", ["document", "tree"])
@HOW_MANY
def test_a_flipped_bit_of_a_head_gives_no_other_answer(
    tmp_path: Path, head: str, count: int | None
) -> None:
    make_dataset(tmp_path, head=head)
    (file,) = tmp_path.glob("t.by-dataset-metadata.*")

    assert not wrong_after_flips(tmp_path, file, chosen_flips(file, count))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("compression", ["zstd", "uncompressed"])
@HOW_MANY
def test_a_flipped_bit_of_a_file_gives_no_other_answer_and_ends_no_process(
    tmp_path: Path, compression: str, count: int | None
) -> None:
    make_dataset(tmp_path, compression)
    (file,) = (tmp_path / "t/data").rglob("part-*.parquet")

    assert not wrong_after_flips(tmp_path, file, chosen_flips(file, count))


@pytest.mark.timeout(3600)
@HOW_MANY
def test_a_flipped_bit_of_a_file_of_another_tool_ends_no_process(
    tmp_path: Path, count: int | None
) -> None:
    (tmp_path / "t").mkdir()
    file = tmp_path / "t/a.parquet"
    pq.write_table(some_rows(30).drop(["p"]), file, compression="none")
    lakebed.open_repository(str(tmp_path)).adopt("t")

    wrong = wrong_after_flips(tmp_path, file, chosen_flips(file, count))

    # Nothing says what another tool has written: its bytes are believed if they can be read.
    assert not [one for one in wrong if ": other" not in one]
