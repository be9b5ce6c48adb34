"""A small lake for the tests of protection, cleanup and check, and a store that dies."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import by
from lakebed.store.base import Store
from lakebed.store.posix import PosixStore
from lakebed.testing import DelegatingStore
from lakebed.work.cleanup import CleanupReport

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by=[by.identity("p")]
)
NO_SKEW = dt.timedelta()
SHORT = lakebed.CommitOptions(lease=dt.timedelta(milliseconds=1))


def new_lake(root: Path) -> lakebed.Repository:
    """Return a repository in a directory."""
    return lakebed.Repository(PosixStore(root, durable=False))


def row(p: str, n: int) -> dict[str, Any]:
    return {"p": p, "n": n}


def content(dataset: lakebed.Dataset) -> list[tuple[str, int]]:
    """Return the rows, sorted."""
    return sorted((one["p"], one["n"]) for one in dataset.kite.reader())


def reasons(report: CleanupReport) -> dict[str, str]:
    """Return the reason of every object of a report, dead or kept, by key."""
    return {file.key: str(file.reason) for file in (*report.files, *report.kept)}


def data_keys(store: Store, dataset: str = "d") -> set[str]:
    """Return the keys of all data files."""
    return {one.key for one in store.list(f"{dataset}/data/") if "batch_id=" in one.key}


def live_keys(dataset: lakebed.Dataset) -> set[str]:
    return {file.key for file in dataset.files()}


def sweep(dataset: lakebed.Dataset, older_than: str = "0s", **options: Any) -> CleanupReport:
    """Delete what is dead, with clocks that agree."""
    return dataset.cleanup(older_than, dry_run=False, clock_skew=NO_SKEW, **options)


def age(root: Path, days: float) -> None:
    """Make every file look as if it was written so many days ago."""
    moment = dt.datetime.now().timestamp() - days * 86_400
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (moment, moment))


class Killed(BaseException):
    """The process died here; nothing of it runs on."""


_OPERATIONS = (
    "_get",
    "_get_if_changed",
    "_get_range",
    "_size",
    "_stat",
    "_create",
    "_replace",
    "_put",
    "_put_stream",
    "_list",
    "_delete",
    "_delete_if_match",
    "_remove_leftovers",
)


class DyingStore(DelegatingStore):
    """Dies before or after its nth call; a dead one does nothing at all."""

    def __init__(self, inner: Store, *, nth: int, after: bool) -> None:
        super().__init__(inner)
        self._left = nth
        self._after = after
        self._lock = threading.Lock()
        self.died_at = ""

    def call(self, operation: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        with self._lock:
            self._left -= 1
            left = self._left
        if left < 0 or (left == 0 and not self._after):
            self.died_at = self.died_at or operation
            raise Killed
        found = getattr(super(), operation)(*arguments, **options)
        if isinstance(found, Iterator):
            found = iter(list(found))
        if left == 0:
            self.died_at = operation
            raise Killed
        return found


def _dying(operation: str) -> Any:
    def method(self: DyingStore, *arguments: Any, **options: Any) -> Any:
        return self.call(operation, arguments, options)

    return method


for _operation in _OPERATIONS:
    setattr(DyingStore, _operation, _dying(_operation))


class HaltingStore(DelegatingStore):
    """Calls a function once, before or after the first call of an operation on such a key."""

    def __init__(self, inner: Store, operation: str, matching: str, *, after: bool = False) -> None:
        super().__init__(inner)
        self._operation = f"_{operation}"
        self._matching = matching
        self._after = after
        self.then: Any = None

    def call(self, operation: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        is_due = (
            operation in (self._operation, f"{self._operation}_if_changed")
            and self.then is not None
            and self._matching in str(arguments[0])
        )
        then, self.then = (self.then, None) if is_due else (None, self.then)
        if then is not None and not self._after:
            then()
        found = getattr(super(), operation)(*arguments, **options)
        if then is not None and self._after:
            found = iter(list(found)) if isinstance(found, Iterator) else found
            then()
        return found


def _halting(operation: str) -> Any:
    def method(self: HaltingStore, *arguments: Any, **options: Any) -> Any:
        return self.call(operation, arguments, options)

    return method


for _operation in _OPERATIONS:
    setattr(HaltingStore, _operation, _halting(_operation))


class Interfering(DelegatingStore):
    """Lets somebody else do something before some call."""

    def __init__(self, inner: Store, when: Callable[[str, str], bool], act: Callable[[], Any]):
        super().__init__(inner)
        self._when, self._act = when, act
        self.acted = 0

    def _look(self, operation: str, key: str) -> None:
        if not self.acted and self._when(operation, key):
            self.acted += 1
            self._act()

    def _create(self, key: str, data: memoryview) -> str:
        self._look("create", key)
        return super()._create(key, data)

    def _put(self, key: str, data: memoryview) -> None:
        self._look("put", key)
        super()._put(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self._look("replace", key)
        return super()._replace(key, data, if_match=if_match)
