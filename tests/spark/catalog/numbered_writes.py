"""Stores that number the writes of all processes of a statement, and end or copy at them."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakebed.store.posix import PosixStore
from lakebed.testing import DelegatingStore


class NumberedStore(DelegatingStore):
    """A directory whose writes have numbers from 1, also those of tasks, one after the other.

    It travels to tasks, so its state is in a folder: a file for each write, with its key.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        super().__init__(PosixStore(root, durable=False))
        self._root, self._folder = root, folder
        folder.mkdir(exist_ok=True)

    def begin_write(self, number: int) -> None:
        """Do something before a write."""

    @contextlib.contextmanager
    def _step(self, operation: str, key: str) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            number = next(n for n in itertools.count(1) if not (self._folder / str(n)).exists())
            (self._folder / str(number)).write_text(f"{operation} {key}")
            self.begin_write(number)
            yield

    def _create(self, key: str, data: memoryview) -> str:
        with self._step("create", key):
            return super()._create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        with self._step("replace", key):
            return super()._replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        with self._step("put", key):
            super()._put(key, data)

    def _put_stream(self, key: str, *arguments: Any, **options: Any) -> None:
        with self._step("put", key):
            super()._put_stream(key, *arguments, **options)

    def _delete(self, keys: Any) -> None:
        with self._step("delete", keys[0]):
            super()._delete(keys)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        with self._step("delete", key):
            return super()._delete_if_match(key, etag)


class CopyingStore(NumberedStore):
    """Copies the directory before each write: what a process leaves that ends there."""

    def begin_write(self, number: int) -> None:
        shutil.copytree(self._root, self._folder / f"copy-{number}", symlinks=True)


class EndingStore(NumberedStore):
    """Kills the driver, its JVM and all that they have started, by signal 9, at the nth write."""

    def __init__(self, root: Path, folder: Path, at: int) -> None:
        super().__init__(root, folder)
        self._at = at

    def begin_write(self, number: int) -> None:
        if number == self._at:
            kill_session(os.getsid(0))


def kill_session(session: int) -> None:
    """Kill all processes of a session, and last this one, if it is one of them."""
    for pid in sorted(session_pids(session), key=lambda pid: pid == os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def session_pids(session: int) -> list[int]:
    """Return the processes of a session: Spark makes groups of its own in it."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                pids.append(int(entry.name))
    return pids


def writes_of(folder: Path) -> list[str]:
    """Return the writes that had a number, in their order."""
    numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return [(folder / str(number)).read_text() for number in numbers]
