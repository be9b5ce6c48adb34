"""What many writers of one dataset get done, at some time per request.

    python bench/contention.py                              all cases, six seconds each
    python bench/contention.py --writers 64 --ms 20 --seconds 10
    python bench/contention.py --processes 2                the same in processes, on a directory

Each writer appends ten rows again and again. The store is in memory, and each request waits before
it takes effect and after it; conditional puts are decided one at a time, as in a bucket. `grouped`
writers are threads that share a store, as in a server; `alone` ones have a store and a cache each,
as processes have. `raw` ones append nothing: each reads an object of the size of the head and puts
another in its place under the condition that it is the same, without any wait. So their swaps a
second are the bound for writers alone on this machine; `in_turn` is the number if one began after
the other.

A ratio of two rows of one run holds on any machine, as long as the processor is not the limit: `cpu`
is the share of one core that was used. Reports an error for each append that fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa

import lakebed
from lakebed.store import Store, open_store
from lakebed.store.base import ObjectInfo, StoredObject
from lakebed.testing import CountingStore, DelegatingStore

WRITERS = (1, 16, 64, 200)
MILLISECONDS = (0, 20, 60)
_SCHEMA = pa.schema([("writer", pa.int64()), ("number", pa.int64())])
_PATIENT = lakebed.CommitOptions(deadline_s=600)
_RAW, _RAW_BYTES = "raw", 4_000
_names = itertools.count()


class FarStore(DelegatingStore):
    """A store each of whose requests takes some time, half of it before it takes effect."""

    def __init__(self, inner: Store, ms: float, name: str = "") -> None:
        super().__init__(inner)
        self.is_near = ms == 0
        self._half_s = ms / 2000
        self._name = name

    @property
    def cache_name(self) -> str:
        """A cache of its own for each name."""
        return f"{self.inner.cache_name}#{self._name}"

    @contextmanager
    def _trip(self) -> Iterator[None]:
        self._wait()
        yield
        self._wait()  # not after an error

    def _wait(self) -> None:
        if self._half_s:
            time.sleep(self._half_s)

    def _get(self, key: str) -> StoredObject:
        with self._trip():
            return super()._get(key)

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        with self._trip():
            return super()._get_if_changed(key, etag)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        with self._trip():
            return super()._get_range(key, start, length)

    def _create(self, key: str, data: memoryview) -> str:
        with self._trip():
            return super()._create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        with self._trip():
            return super()._replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        with self._trip():
            super()._put(key, data)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        self._wait()
        yield from super()._list(begins_with, recursive=recursive)

    def _delete(self, keys: Any) -> None:
        with self._trip():
            super()._delete(keys)


class Writers:
    """Threads that append until the time is over.

    Attributes:
        took_s: How long each append took.
        errors: Appends that have failed.
    """

    def __init__(self, stores: list[Store], seconds: float, *, are_raw: bool = False) -> None:
        self._are_raw = are_raw
        self.took_s: list[float] = []
        self.errors: list[str] = []
        self._stores = stores
        self._seconds = seconds
        self._lock = threading.Lock()
        self._end = 0.0

    def run(self) -> float:
        """Return the time that they took, until the last commit."""
        # Whoever comes late to the start would have the store for itself.
        start = threading.Barrier(len(self._stores) + 1)

        def write(number: int) -> None:
            if self._are_raw:
                start.wait()
                self._swap(self._stores[number])
                return
            dataset = lakebed.Repository(self._stores[number]).open("d")
            dataset = dataset.with_options(commit=_PATIENT)
            start.wait()
            for turn in itertools.count():
                if time.perf_counter() > self._end:
                    return
                self._append(dataset, number, turn)

        with ThreadPoolExecutor(len(self._stores)) as threads:
            done = [threads.submit(write, number) for number in range(len(self._stores))]
            began = time.perf_counter()
            self._end = began + self._seconds
            start.wait()
        for one in done:
            one.result()
        return time.perf_counter() - began

    def _swap(self, store: Store) -> None:
        began = time.perf_counter()
        while time.perf_counter() < self._end:
            stored = store.get(_RAW)
            try:
                # Other content each time: on a directory the etag is that of the content.
                store.replace(_RAW, os.urandom(_RAW_BYTES), if_match=stored.etag)
            except lakebed.errors.PreconditionFailedError:
                continue
            with self._lock:
                self.took_s.append(time.perf_counter() - began)
            began = time.perf_counter()

    def _append(self, dataset: lakebed.Dataset, number: int, turn: int) -> None:
        began = time.perf_counter()
        rows = pa.table({"writer": [number] * 10, "number": range(turn, turn + 10)}, _SCHEMA)
        try:
            dataset.append(rows)
        except lakebed.errors.LakebedError as exc:
            with self._lock:
                self.errors.append(f"{type(exc).__name__}: {exc}")
            return
        with self._lock:
            self.took_s.append(time.perf_counter() - began)


def measure(
    root: str,
    writers: int,
    ms: float,
    seconds: float,
    *,
    how: str,
    head: Literal["document", "tree"],
) -> dict[str, Any]:
    """Return what some writers get done in a new dataset, or in one that is there."""
    inner = open_store(root)
    near = lakebed.Repository(inner)
    if not near.exists("d"):
        near.create("d", lakebed.DatasetDescriptor(schema=_SCHEMA), head=head)
        near.open("d").append(pa.table({"writer": [0], "number": [0]}, _SCHEMA))
    version = near.open("d").version
    counting = CountingStore(inner)
    shared = FarStore(counting, ms)
    stores: list[Store] = [
        shared if how == "grouped" else FarStore(counting, ms, str(number))
        for number in range(writers)
    ]
    if how == "raw":
        inner.put(_RAW, bytes(_RAW_BYTES))
    team = Writers(stores, seconds, are_raw=how == "raw")
    cpu = time.process_time()
    took_s = team.run()
    cpu = time.process_time() - cpu
    done = len(team.took_s)
    ordered = sorted(team.took_s) or [0.0]
    return {
        "writers": writers,
        "ms": ms,
        "how": how,
        "head": head,
        "commits": done,
        "failed": len(team.errors),
        "errors": team.errors[:3],
        "per_s": round(done / took_s, 1),
        "in_turn": round(1000 / (2 * ms), 1) if ms else None,
        "p50_ms": round(1000 * statistics.median(ordered)),
        "p99_ms": round(1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]),
        "requests": round(counting.counts.total / max(1, done), 1),
        "cpu": round(cpu / took_s, 2),
        "lost": near.open("d").version - version - done
        if root.startswith("memory") and how != "raw"
        else None,
    }


def _told(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _in_processes(
    given: argparse.Namespace,
    writers: int,
    ms: float,
    how: str,
    head: Literal["document", "tree"],
) -> None:
    """Let processes share a directory; each has its part of the writers."""
    with tempfile.TemporaryDirectory() as directory:
        near = lakebed.open_repository(directory)
        near.create("d", lakebed.DatasetDescriptor(schema=_SCHEMA), head=head)
        near.open("d").append(pa.table({"writer": [0], "number": [0]}, _SCHEMA))
        each = [
            *(sys.executable, __file__, "--root", directory, "--how", how, "--head", head),
            *("--writers", str(max(1, writers // given.processes)), "--ms", str(ms)),
            *("--seconds", str(given.seconds)),
        ]
        running = [
            subprocess.Popen(each, stdout=subprocess.PIPE, text=True)
            for _ in range(given.processes)
        ]
        parts = [json.loads(one.communicate()[0]) for one in running]
        done = sum(part["commits"] for part in parts)
        _told(
            {
                **parts[0],
                "processes": given.processes,
                "writers": writers,
                "commits": done,
                "failed": sum(part["failed"] for part in parts),
                "per_s": round(sum(part["per_s"] for part in parts), 1),
                "p99_ms": max(part["p99_ms"] for part in parts),
                "cpu": round(sum(part["cpu"] for part in parts), 2),
                "lost": near.open("d").version - 1 - done,
            }
        )


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--writers", type=int, nargs="*", default=WRITERS)
    parser.add_argument("--ms", type=float, nargs="*", default=MILLISECONDS)
    parser.add_argument("--how", nargs="*", default=["raw", "grouped", "alone"])
    parser.add_argument("--head", nargs="*", default=["document", "tree"])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--root", default="")
    given = parser.parse_args()
    logging.getLogger("lakebed").setLevel(logging.ERROR)
    for head, ms, writers, how in itertools.product(given.head, given.ms, given.writers, given.how):
        if given.processes > 1:
            _in_processes(given, writers, ms, how, head)
            continue
        root = given.root or f"memory://contention-{next(_names)}"
        _told(measure(root, writers, ms, given.seconds, how=how, head=head))


if __name__ == "__main__":
    main()
