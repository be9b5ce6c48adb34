"""What small changes take in one process, beside deltalake (delta-rs) on the same data.

    python bench/small_changes.py                         5 million rows, five rounds
    python bench/small_changes.py --rows 1000000 --rounds 3

A table of 12 partitions with one file each, its rows in no order of `id`. Measured are an upsert of
1 % of the ids, which touches all files, and a delete of 50 ids, which are in all files too; then
the same for ids that are in one file (`near`). Lakebed does each with an index of `id` and without.

All systems work in this process, in turns, each time on a fresh copy of its table, and what they
hold afterwards is compared. `to_delta` is the quotient of the medians, `cpu_to_delta` that of the
processor time, which is the same however busy the machine is. Files are compressed by snappy, which
is deltalake's default.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

import lakebed

PARTS = 12
_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("amount", pa.float64()),
        ("delay", pa.int32()),
        ("month", pa.int32()),
    ]
)
_CARRIERS = np.array(["UA", "AA", "B6", "DL", "EV", "MQ", "US", "9E", "WN", "VX", "FL", "AS"])


def rows_of(ids: np.ndarray, amount: float) -> pa.Table:
    """Return rows by their ids, the same each time."""
    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)
    return pa.table(
        {
            "id": ids,
            "carrier": pa.array(_CARRIERS[(mixed % len(_CARRIERS)).astype(np.int64)]),
            "amount": (mixed % 100_000) / 100 * amount,
            "delay": (mixed % 600).astype(np.int32),
            "month": (mixed % PARTS + 1).astype(np.int32),
        },
        schema=_SCHEMA,
    )


class System(Protocol):
    """A table format under measurement."""

    def build(self, path: Path, rows: pa.Table) -> None:
        """Write the table."""
        ...

    def upsert(self, path: Path, data: pa.Table) -> None:
        """Merge rows by `id`."""
        ...

    def delete(self, path: Path, ids: list[int]) -> None:
        """Delete rows by `id`."""
        ...

    def total(self, path: Path) -> tuple[int, float]:
        """Return the number of rows, and the sum of their amounts."""
        ...


class Lakebed:
    """This library, with or without an index of `id`."""

    def __init__(self, *, is_indexed: bool) -> None:
        self._index = ("id",) if is_indexed else ()

    def build(self, path: Path, rows: pa.Table) -> None:
        descriptor = lakebed.DatasetDescriptor(
            schema=_SCHEMA, partition_by="month", index=self._index, compression="snappy"
        )
        lakebed.open_repository(path).create("d", descriptor).append(rows)

    def upsert(self, path: Path, data: pa.Table) -> None:
        lakebed.open_repository(path).open("d").upsert(data, on="id")

    def delete(self, path: Path, ids: list[int]) -> None:
        named = ", ".join(map(str, ids))
        lakebed.open_repository(path).open("d").where(f"id IN ({named})").delete()

    def total(self, path: Path) -> tuple[int, float]:
        amounts = lakebed.open_repository(path).open("d").arrow(["amount"])["amount"]
        return len(amounts), pc.sum(amounts).as_py()


class Delta:
    """deltalake, which is delta-rs."""

    def build(self, path: Path, rows: pa.Table) -> None:
        write_deltalake(str(path), rows, partition_by=["month"])

    def upsert(self, path: Path, data: pa.Table) -> None:
        merging = DeltaTable(str(path)).merge(
            data, "target.id = source.id", source_alias="source", target_alias="target"
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, path: Path, ids: list[int]) -> None:
        DeltaTable(str(path)).delete(f"id IN ({', '.join(map(str, ids))})")

    def total(self, path: Path) -> tuple[int, float]:
        amounts = DeltaTable(str(path)).to_pyarrow_table(columns=["amount"])["amount"]
        return len(amounts), pc.sum(amounts).as_py()


def measure(rows: int, rounds: int, directory: Path) -> Iterator[dict[str, Any]]:
    """Let the systems do all cases, in turns, and yield the median of each."""
    systems: dict[str, System] = {
        "deltalake": Delta(),
        "lakebed": Lakebed(is_indexed=False),
        "lakebed-indexed": Lakebed(is_indexed=True),
    }
    rng = np.random.default_rng(7)
    ids = rng.permutation(rows).astype(np.int64)
    table = rows_of(ids, 1.0)
    for name, system in systems.items():
        system.build(directory / "built" / name, table)
    near = ids[table["month"].to_numpy() == 1]
    spread = np.sort(rng.choice(rows, rows // 100, replace=False)).astype(np.int64)
    changes = {"spread": rows_of(spread, 2.0), "near": rows_of(near[: rows // 100], 2.0)}
    gone = {
        "spread": spread[:: max(1, len(spread) // 50)][:50].tolist(),
        "near": near[:50].tolist(),
    }
    cases: dict[str, Callable[[System, Path], None]] = {}
    for kind in ("spread", "near"):
        cases[f"upsert of 1 %, {kind}"] = lambda system, path, kind=kind: system.upsert(
            path, changes[kind]
        )
        cases[f"delete of 50 ids, {kind}"] = lambda system, path, kind=kind: system.delete(
            path, gone[kind]
        )
    for case, change in cases.items():
        seconds: dict[str, list[float]] = {name: [] for name in systems}
        cpu: dict[str, list[float]] = {name: [] for name in systems}
        for number in range(rounds + 1):
            totals = {}
            for name, system in systems.items():
                path = directory / "run"
                shutil.rmtree(path, ignore_errors=True)
                shutil.copytree(directory / "built" / name, path)
                start, start_cpu = time.perf_counter(), time.process_time()
                change(system, path)
                if number:  # the first is to warm up
                    seconds[name].append(time.perf_counter() - start)
                    cpu[name].append(time.process_time() - start_cpu)
                totals[name] = system.total(path)
            first = totals["deltalake"]
            for name, total in totals.items():
                if not np.allclose(total, first, rtol=1e-9):
                    raise SystemExit(f"{name} holds {total} after {case}, not {first}")
        of_delta, cpu_of_delta = (statistics.median(all_["deltalake"]) for all_ in (seconds, cpu))
        for name, taken in seconds.items():
            middle, own_cpu = statistics.median(taken), statistics.median(cpu[name])
            yield {
                "case": case,
                "system": name,
                "rows": rows,
                "seconds": round(middle, 3),
                "fastest": round(min(taken), 3),
                "to_delta": round(middle / of_delta, 2),
                "cpu": round(own_cpu, 3),
                "cpu_to_delta": round(own_cpu / cpu_of_delta, 2),
            }


def main() -> None:
    """Run, and print a line of JSON for each result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for result in measure(options.rows, options.rounds, Path(directory)):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
