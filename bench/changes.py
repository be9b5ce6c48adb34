"""What `changes` takes, beside the change data feed of deltalake (delta-rs) on the same commits.

    python bench/changes.py                         2 million rows, five rounds
    python bench/changes.py --rows 500000 --rounds 3

A table of 12 partitions gets the same commits in both formats: ten appends of 1 %, an upsert of 1 %
and a delete of 50 ids, both spread over all files. Delta writes what changed beside the data files,
in a table with its feed enabled. Lakebed writes nothing for it, and compares files when the changes
are read. So there is also what the commit itself took: `write` is of the commits, `read` of the
changes, and `both` is their sum, for changes that are read once.

Both work in this process, in turns. All rows that they return are compared, with the kind of change
and the number of the commit. `to_delta` is the quotient of the medians, `cpu_to_delta` that of the
processor time. Files are compressed by snappy, which is deltalake's default.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from small_changes import rows_of

import lakebed

APPENDS = 10
_COLUMNS = ("id", "carrier", "amount", "delay", "month")
_WORDS = {"update_preimage": "update_before", "update_postimage": "update_after"}


class System(Protocol):
    """A table format under measurement. Its version 1 is the first that holds rows."""

    def build(self, path: Path, rows: pa.Table) -> None:
        """Write the table, as version 1."""
        ...

    def append(self, path: Path, rows: pa.Table) -> None:
        """Append rows."""
        ...

    def upsert(self, path: Path, rows: pa.Table) -> None:
        """Merge rows by `id`."""
        ...

    def delete(self, path: Path, ids: list[int]) -> None:
        """Delete rows by `id`."""
        ...

    def changes(self, path: Path, before: int, after: int) -> pa.Table:
        """Return the changes after one version, up to another: `_COLUMNS`, `change`, `version`."""
        ...


class Lakebed:
    """This library."""

    def _opened(self, path: Path) -> lakebed.Dataset:
        return lakebed.open_repository(path).open("d")

    def build(self, path: Path, rows: pa.Table) -> None:
        descriptor = lakebed.DatasetDescriptor(
            schema=rows.schema, partition_by="month", compression="snappy"
        )
        lakebed.open_repository(path).create("d", descriptor).append(rows)

    def append(self, path: Path, rows: pa.Table) -> None:
        self._opened(path).append(rows)

    def upsert(self, path: Path, rows: pa.Table) -> None:
        self._opened(path).upsert(rows, on="id")

    def delete(self, path: Path, ids: list[int]) -> None:
        self._opened(path).where(f"id IN ({', '.join(map(str, ids))})").delete()

    def changes(self, path: Path, before: int, after: int) -> pa.Table:
        found = self._opened(path).changes(before, after, on="id").arrow()
        return found.select([*_COLUMNS, "_change", "_version"])


class Delta:
    """deltalake, which is delta-rs, with its change data feed."""

    def build(self, path: Path, rows: pa.Table) -> None:
        feed = {"delta.enableChangeDataFeed": "true"}
        write_deltalake(str(path), rows, partition_by=["month"], configuration=feed)

    def append(self, path: Path, rows: pa.Table) -> None:
        write_deltalake(str(path), rows, mode="append")

    def upsert(self, path: Path, rows: pa.Table) -> None:
        merging = DeltaTable(str(path)).merge(
            rows, "target.id = source.id", source_alias="source", target_alias="target"
        )
        merging.when_matched_update_all().when_not_matched_insert_all().execute()

    def delete(self, path: Path, ids: list[int]) -> None:
        DeltaTable(str(path)).delete(f"id IN ({', '.join(map(str, ids))})")

    def changes(self, path: Path, before: int, after: int) -> pa.Table:
        # Its first version with rows is 0, and the first of a feed is included.
        feed = DeltaTable(str(path)).load_cdf(starting_version=before, ending_version=after - 1)
        found = pa.table(feed.read_all())
        return found.select([*_COLUMNS, "_change_type", "_commit_version"])


def plain(found: pa.Table, *, first_version: int) -> pa.Table:
    """Return changes in one order and form, whichever system they come from."""
    words = [_WORDS.get(word, word) for word in found.column(5).to_pylist()]
    columns = [found.column(number) for number in range(5)]
    types = (pa.int64(), pa.string(), pa.float64(), pa.int32(), pa.int32())
    table = pa.table(
        [
            *(column.cast(kind) for column, kind in zip(columns, types, strict=True)),
            pa.array(words, pa.string()),
            pa.array(found.column(6).to_numpy() - first_version, pa.int64()),
        ],
        names=[*_COLUMNS, "change", "version"],
    )
    return table.sort_by([("version", "ascending"), ("id", "ascending"), ("change", "ascending")])


def timed(work: Callable[[], Any]) -> tuple[np.ndarray, Any]:
    """Return how long a call took, by the clock and of the processor, and its result."""
    start, start_cpu = time.perf_counter(), time.process_time()
    result = work()
    return np.array([time.perf_counter() - start, time.process_time() - start_cpu]), result


def measure(rows: int, rounds: int, directory: Path) -> Iterator[dict[str, Any]]:
    """Let both systems make the commits and return their changes, in turns; yield the medians."""
    systems: dict[str, System] = {"deltalake": Delta(), "lakebed": Lakebed()}
    rng = np.random.default_rng(7)
    ids = rng.permutation(rows).astype(np.int64)
    base = rows_of(ids, 1.0)
    share = rows // 100
    added = [rows_of(rows + np.arange(n * share, (n + 1) * share), 1.0) for n in range(APPENDS)]
    spread = np.sort(rng.choice(rows, share, replace=False)).astype(np.int64)
    updated = rows_of(spread, 2.0)
    updated = updated.set_column(2, "amount", pa.array(updated["amount"].to_numpy() + 1))
    gone = spread[:: max(1, share // 50)][:50].tolist()
    # By case the versions that it makes, and its commits.
    cases: dict[str, tuple[int, int, Callable[[System, Path], None]]] = {
        f"{APPENDS} appends of 1 %": (
            1,
            1 + APPENDS,
            lambda system, path: [system.append(path, part) for part in added],
        ),
        "upsert of 1 %": (
            1 + APPENDS,
            2 + APPENDS,
            lambda system, path: system.upsert(path, updated),
        ),
        "delete of 50 ids": (
            2 + APPENDS,
            3 + APPENDS,
            lambda system, path: system.delete(path, gone),
        ),
    }
    writes: dict[tuple[str, str], list[np.ndarray]] = {}
    reads: dict[tuple[str, str], list[np.ndarray]] = {}
    for number in range(rounds + 1):  # the first is to warm up
        paths = {name: directory / str(number) / name for name in systems}
        for name, system in systems.items():
            system.build(paths[name], base)
        for case, (before, after, make) in cases.items():
            found = {}
            for name, system in systems.items():
                seconds, _ = timed(lambda: make(system, paths[name]))  # noqa: B023 - called here
                writes.setdefault((case, name), []).append(seconds)
            for name, system in systems.items():
                seconds, found[name] = timed(
                    lambda: system.changes(paths[name], before, after)  # noqa: B023 - called here
                )
                reads.setdefault((case, name), []).append(seconds)
            of_delta = plain(found["deltalake"], first_version=0)
            if not plain(found["lakebed"], first_version=1).equals(of_delta):
                raise SystemExit(f"the changes of {case} are not those of deltalake")
    for case in cases:
        for kind, of_kind in (("write", writes), ("read", reads)):
            yield from _results(case, kind, rows, systems, of_kind)
        both = {
            key: [sum(pair) for pair in zip(writes[key], reads[key], strict=True)] for key in reads
        }
        yield from _results(case, "both", rows, systems, both)


def _results(
    case: str,
    kind: str,
    rows: int,
    systems: dict[str, System],
    seconds: dict[tuple[str, str], list[np.ndarray]],
) -> Iterator[dict[str, Any]]:
    of_delta = np.median(seconds[case, "deltalake"][1:], axis=0)
    for name in systems:
        taken = seconds[case, name][1:]
        middle, cpu = np.median(taken, axis=0)
        yield {
            "case": case,
            "measured": kind,
            "system": name,
            "rows": rows,
            "seconds": round(float(middle), 3),
            "fastest": round(float(min(one[0] for one in taken)), 3),
            "to_delta": round(float(middle / of_delta[0]), 2),
            "cpu": round(float(cpu), 3),
            "cpu_to_delta": round(float(cpu / of_delta[1]), 2),
        }


def main() -> None:
    """Run, and print a line of JSON for each result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        for result in measure(options.rows, options.rounds, Path(directory)):
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
