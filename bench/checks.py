"""What declared checks add to an append.

    python bench/checks.py                          2 million rows, seven rounds
    python bench/checks.py --rows 500000 --rounds 3

A dataset gets the same rows with five conditions declared as without a check, and with a unique key
that an index finds; in turns, each time into a fresh dataset that holds as many rows already.
`to_plain` is the quotient of the medians, `cpu_to_plain` that of the processor time, which is the
same however busy the machine is.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from small_changes import _SCHEMA, rows_of

import lakebed
from lakebed import checks

_CONDITIONS = {
    "known": checks.condition("carrier IS NOT NULL AND carrier <> ''"),
    "sane": checks.condition("delay >= -120 AND delay < 1000", on_failure="quarantine"),
    "paid": checks.condition("amount >= 0", on_failure="reject"),
    "month": checks.condition("month BETWEEN 1 AND 12"),
    "id": checks.not_null("id"),
}
_KINDS: dict[str, dict[str, checks.Check]] = {
    "plain": {},
    "five conditions": _CONDITIONS,
    "unique": {"ids": checks.unique("id")},
    "indexed": {},
    "indexed unique": {"ids": checks.unique("id")},
}


def measured(kind: str, count: int, folder: Path) -> tuple[float, float]:
    """Return the seconds of an append, by the clock and of the processor."""
    descriptor = lakebed.DatasetDescriptor(
        schema=_SCHEMA, checks=_KINDS[kind], index=("id",) if "indexed" in kind else ()
    )
    dataset = lakebed.open_repository(folder).create("d", descriptor)
    # Every second id, so that the bounds of the files do not tell the new ids from the known ones.
    dataset.append(rows_of(np.arange(0, 2 * count, 2), 1.0))
    rows = rows_of(np.arange(1, 2 * count, 2), 1.0)
    began, used = time.perf_counter(), time.process_time()
    dataset.append(rows)
    return time.perf_counter() - began, time.process_time() - used


def main() -> None:
    """Measure, and print one record for each kind."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--kind", action="append", choices=_KINDS, help="only some")
    given = parser.parse_args()
    kinds = given.kind or list(_KINDS)
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(given.rounds):
        for kind in kinds:
            with tempfile.TemporaryDirectory() as folder:
                found[kind].append(measured(kind, given.rows, Path(folder)))
    medians = {
        kind: [statistics.median(times) for times in zip(*rounds, strict=True)]
        for kind, rounds in found.items()
    }
    for kind, (wall_s, cpu_s) in medians.items():
        plain = medians["indexed" if "indexed" in kind else "plain"]
        record = {
            "kind": kind,
            "rows": given.rows,
            "wall_s": round(wall_s, 3),
            "cpu_s": round(cpu_s, 3),
            "to_plain": round(wall_s / plain[0], 3),
            "cpu_to_plain": round(cpu_s / plain[1], 3),
        }
        print(json.dumps(record))


if __name__ == "__main__":
    main()
