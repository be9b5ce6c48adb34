"""A world in which the same operations write the same bytes: ids, clock, host and threads.

An id is made of the operation that asks for it, of what it is for, and of how many were asked for
before. So it does not change when something else takes an id less or more. The clock stands still
within an operation. Threads take turns: how work is divided among them is on the machine, and the
order in which they write is chance.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import getpass
import hashlib
import inspect
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from unittest import mock

import time_machine

BEGIN = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)

_CALLERS = 2
_BY_THE_WAY = ("/state/transaction.py", "/functools.py")


class Ids:
    """Ids that are the same in every run."""

    def __init__(self) -> None:
        self._operation = ""
        self._counts: collections.Counter[str] = collections.Counter()

    def begin(self, operation: str) -> None:
        self._operation = operation
        self._counts.clear()

    def uuid4(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._next(_purpose(inspect.currentframe()))[:16], version=4)

    def random_bytes(self, count: int) -> bytes:
        return (self._next("bytes") * (count // 32 + 1))[:count]

    def _next(self, purpose: str) -> bytes:
        self._counts[purpose] += 1
        text = f"{self._operation} {purpose} {self._counts[purpose]}"
        return hashlib.sha256(text.encode()).digest()


def _purpose(frame: Any) -> str:
    """Return what an id is for: a file of a partition, an object of a folder, or something else.

    It is told by what the two functions know that have asked for it, not by where they are.
    """
    callers = []
    while len(callers) < _CALLERS:
        frame = frame.f_back
        # Who commits asks for the id of a commit, by a transaction.
        if not frame.f_code.co_filename.endswith(_BY_THE_WAY):
            callers.append(frame)
    for name in ("partition", "folder", "column"):
        for caller in callers:
            value = caller.f_locals.get(name)
            if isinstance(value, str):
                return f"{name} {value}"
    return "one"


def _submit_now(
    _: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **options: Any
) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(function(*args, **options))
    except BaseException as exc:  # noqa: BLE001 - as a pool does
        future.set_exception(exc)
    return future


@contextlib.contextmanager
def fixed_world() -> Iterator[tuple[Ids, time_machine.Traveller]]:
    """Let ids, clock, host and threads be those of no machine."""
    ids = Ids()
    with (
        mock.patch.object(uuid, "uuid4", ids.uuid4),
        mock.patch.object(os, "urandom", ids.random_bytes),
        mock.patch.object(os, "getpid", return_value=4711),
        mock.patch.object(os, "cpu_count", return_value=4),
        mock.patch.object(socket, "gethostname", return_value="writer"),
        mock.patch.object(getpass, "getuser", return_value="ops"),
        mock.patch.object(ThreadPoolExecutor, "submit", _submit_now),
        time_machine.travel(BEGIN, tick=False) as traveller,
    ):
        yield ids, traveller
