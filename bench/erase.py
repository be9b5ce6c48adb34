"""What an erasure takes beside rewriting every data file, in processor time and bytes.

    python bench/erase.py                         50 versions of 40,000 rows, three rounds
    python bench/erase.py --rows 10000 --rounds 1

Each version of a dataset appends rows of 200 users to one of 50 days, and of the users to erase: 20
new ones each, or all of them on the last day alone (`near`). `erase` removes 1,000 users from all
versions by an index. It is compared with reading the current rows, filtering them and overwriting
the dataset, which leaves every older version as it was, so that the rows are not gone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakebed

VERSIONS, ERASED, USERS = 50, 1_000, 200
_SCHEMA = pa.schema([("day", pa.int32()), ("user", pa.string()), ("n", pa.int64())])
_GONE = [f"gone-{number:04}" for number in range(ERASED)]


def build(folder: Path, rows: int, *, is_near: bool) -> None:
    """Write the dataset, a version a day."""
    descriptor = lakebed.DatasetDescriptor(schema=_SCHEMA, partition_by="day", index=["user"])
    visits = lakebed.open_repository(folder).create("visits", descriptor)
    per_day = ERASED // VERSIONS
    for day in range(VERSIONS):
        gone = _GONE[day * per_day : (day + 1) * per_day]
        if is_near:
            gone = _GONE if day == VERSIONS - 1 else []
        users = np.array([f"user-{number}" for number in range(USERS)])
        names = np.concatenate([users[np.arange(rows) % USERS], gone])
        numbers = np.arange(len(names)) * 2_654_435_761 % 1_000_003
        columns = {"day": np.full(len(names), day, np.int32), "user": names, "n": numbers}
        visits.append(pa.table(columns, schema=_SCHEMA), run=f"day {day}")


def erase(folder: Path) -> None:
    """Erase the users from every version."""
    visits = lakebed.open_repository(folder).open("visits")
    keys = pa.table({"user": _GONE})
    done = visits.erase(keys, reason="measurement", grace="0s")
    assert done.is_finished, done.left


def rewrite(folder: Path) -> None:
    """Write all rows but those of the users, as one new version."""
    visits = lakebed.open_repository(folder).open("visits")
    rows = visits.arrow()
    gone = pc.is_in(rows["user"], value_set=pa.array(_GONE))
    visits.overwrite(rows.filter(pc.invert(gone)))


def measured(call: Callable[[Path], None], built: Path, to: Path) -> tuple[float, float, int]:
    """Return the seconds of a call on a copy, by the clock and of the processor, and new bytes."""
    shutil.copytree(built, to)
    before = {path for path in to.rglob("*") if path.is_file()}
    began, used = time.perf_counter(), time.process_time()
    call(to)
    ended = time.perf_counter() - began, time.process_time() - used
    new = [path for path in to.rglob("*.parquet") if path not in before]
    written = sum(path.stat().st_size for path in new)
    shutil.rmtree(to)
    return *ended, written


def main() -> None:
    """Measure, and print a record for each form."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=40_000, help="of one day")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    calls = {"erase": erase, "rewrite": rewrite}
    for is_near in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            built = Path(folder) / "built"
            build(built, given.rows, is_near=is_near)
            found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in calls}
            for _ in range(given.rounds):
                for name, call in calls.items():
                    found[name].append(measured(call, built, Path(folder) / "copy"))
        medians = {
            name: [statistics.median(values) for values in zip(*rounds, strict=True)]
            for name, rounds in found.items()
        }
        ratios = [
            round(ours / other, 2)
            for ours, other in zip(medians["erase"], medians["rewrite"], strict=True)
        ]
        record = {
            "users": "in one file" if is_near else "in every file",
            "rows": given.rows * VERSIONS,
            **dict(zip(("wall", "cpu", "bytes"), ratios, strict=True)),
        }
        print(json.dumps(record), flush=True)


if __name__ == "__main__":
    main()
