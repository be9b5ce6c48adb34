"""What many writers of one table get done: Lakebed, deltalake and pyiceberg on one store.

    python bench/contention_peers.py                        1, 16 and 64 writers at 20 ms, ten seconds
    python bench/contention_peers.py --writers 16 --ms 60 --seconds 20

The store is moto's S3 in a process of its own: each request waits, and is then answered alone. The
writers are threads of one process; each appends ten rows again and again to a table that it has
opened, with the retries that its library makes by itself. `lakebed` writers share the process, so
that their commits are grouped; `lakebed, alone` ones do not know of each other, as processes do.
pyiceberg has its catalog in SQLite, which is not behind the delay. An append that raises an error
counts as failed, and the writer goes on with the table opened anew, as a program would.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed.store import open_store
from lakebed.testing import DelegatingStore

sys.path.insert(0, str(Path(__file__).parent / "scale"))
import run as scale

_SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
_PATIENT = lakebed.CommitOptions(deadline_s=600)

Append = Callable[[pa.Table], None]
Open = Callable[[int], Append]
"""Open the table for one of the writers; return what appends rows to it."""


class _Alone(DelegatingStore):
    """A store that no other writer shares."""

    def __init__(self, location: str, storage: dict[str, str], number: int) -> None:
        super().__init__(open_store(location, storage_options=storage))
        self._number = number

    @property
    def cache_name(self) -> str:
        return f"{self.inner.cache_name}#{self._number}"


def _lakebed(location: str, endpoint: str, *, is_alone: bool) -> tuple[Open, Callable[[], int]]:
    storage = scale.storage_of("lakebed", endpoint)
    repository = lakebed.open_repository(location, storage_options=storage)
    repository.create("d", lakebed.DatasetDescriptor(schema=_SCHEMA))

    def open_one(number: int) -> Append:
        mine = lakebed.Repository(_Alone(location, storage, number)) if is_alone else repository
        dataset = mine.open("d").with_options(commit=_PATIENT)

        def append(rows: pa.Table) -> None:
            dataset.append(rows)

        return append

    return open_one, lambda: int(repository.open("d").count())


def _deltalake(location: str, endpoint: str) -> tuple[Open, Callable[[], int]]:
    from deltalake import DeltaTable, write_deltalake

    storage = scale.storage_of("deltalake", endpoint)
    DeltaTable.create(location, schema=_SCHEMA, storage_options=storage)

    def open_one(_: int) -> Append:
        table = DeltaTable(location, storage_options=storage)

        def append(rows: pa.Table) -> None:
            write_deltalake(table, rows, mode="append")

        return append

    def count() -> int:
        actions = DeltaTable(location, storage_options=storage).get_add_actions(flatten=True)
        return sum(pa.table(actions).column("num_records").to_pylist())

    return open_one, count


def _pyiceberg(location: str, endpoint: str, catalog: Path) -> tuple[Open, Callable[[], int]]:
    from pyiceberg.catalog.sql import SqlCatalog

    storage = scale.storage_of("pyiceberg", endpoint)
    uri = f"sqlite:///{catalog}"
    made = SqlCatalog("bench", uri=uri, warehouse=location, **storage)
    made.create_namespace("bench")
    made.create_table("bench.t", _SCHEMA, location=location)

    def open_one(_: int) -> Append:
        table = SqlCatalog("bench", uri=uri, warehouse=location, **storage).load_table("bench.t")

        def append(rows: pa.Table) -> None:
            table.append(rows)

        return append

    return open_one, lambda: int(made.load_table("bench.t").scan().count())


def measure(system: str, endpoint: str, writers: int, ms: float, seconds: float) -> dict[str, Any]:
    """Return what so many writers get done."""
    location = f"s3://{scale.BUCKET}/{system.replace(', ', '-')}-{writers}-{ms:g}"
    scale._ask(f"{endpoint}/-/reset?ms=0")
    with tempfile.TemporaryDirectory() as directory:
        if system == "deltalake":
            open_one, count = _deltalake(location, endpoint)
        elif system == "pyiceberg":
            open_one, count = _pyiceberg(location, endpoint, Path(directory, "catalog.db"))
        else:
            open_one, count = _lakebed(location, endpoint, is_alone="alone" in system)
        open_one(0)(_rows(0, 0))
        scale._ask(f"{endpoint}/-/reset?ms={ms:g}")
        took_s, errors, elapsed_s = _let_write(open_one, writers, seconds)
        asked = sum(scale._ask(f"{endpoint}/-/counts").values())
        scale._ask(f"{endpoint}/-/reset?ms=0")
        lost = 10 * (len(took_s) + 1) - count()
    ordered = sorted(took_s) or [0.0]
    return {
        "system": system,
        "writers": writers,
        "ms": ms,
        "commits": len(took_s),
        "per_s": round(len(took_s) / elapsed_s, 2),
        "failed": len(errors),
        "error": errors[0] if errors else None,
        "p50_s": round(ordered[len(ordered) // 2], 2),
        "p99_s": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 2),
        "requests": round(asked / max(1, len(took_s)), 1),
        "lost_rows": lost,
    }


def _rows(writer: int, turn: int) -> pa.Table:
    return pa.table({"writer": [writer] * 10, "number": range(turn, turn + 10)}, _SCHEMA)


def _let_write(
    open_one: Open, writers: int, seconds: float
) -> tuple[list[float], list[str], float]:
    took_s: list[float] = []
    errors: list[str] = []
    start = threading.Barrier(writers + 1)
    end = threading.Event()

    def write(number: int) -> None:
        append, turn = open_one(number), 0
        start.wait()
        while not end.is_set():
            began = time.perf_counter()
            try:
                append(_rows(number, turn))
            except Exception as exc:  # noqa: BLE001 - each library has its own errors
                errors.append(f"{type(exc).__name__}: {exc}"[:200])
                append = open_one(number)
                continue
            took_s.append(time.perf_counter() - began)
            turn += 1

    with ThreadPoolExecutor(writers) as threads:
        done = [threads.submit(write, number) for number in range(writers)]
        start.wait()
        began = time.perf_counter()
        end.wait(seconds)
        end.set()
    for one in done:
        one.result()
    return took_s, errors, time.perf_counter() - began


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--writers", type=int, nargs="*", default=(1, 16, 64))
    parser.add_argument("--ms", type=float, nargs="*", default=(20,))
    parser.add_argument("--seconds", type=float, default=10.0)
    systems = ("lakebed", "lakebed, alone", "deltalake", "pyiceberg")
    parser.add_argument("--systems", nargs="*", default=systems)
    given = parser.parse_args()
    logging.getLogger("lakebed").setLevel(logging.ERROR)
    with scale.far_store() as endpoint:
        for ms in given.ms:
            for writers in given.writers:
                for system in given.systems:
                    found = measure(system, endpoint, writers, ms, given.seconds)
                    sys.stdout.write(json.dumps(found) + "\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
