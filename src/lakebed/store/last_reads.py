"""Shutdown of the process while threads of Arrow still read through Python files.

An abandoned scan keeps reading ahead. A thread that returns from a read during interpreter
shutdown cannot get the interpreter's lock: Arrow then aborts the process, although its work is
done. So at exit, further reads are refused, and the running ones are waited for.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from pathlib import Path

from lakebed.errors import StorageError

_QUIET_S = 0.05  # a scan whose read is refused begins the next one within this time, or none
_LONGEST_S = 10.0  # maximum wait for a store that does not answer
_LONGEST_WITHOUT_S = 2.0  # maximum wait if no read is running, and other threads may be working
_PAUSE_S = 0.002
_LOOKS = 3  # consecutive checks that must find all threads idle
_TASKS = Path("/proc/self/task")  # on Linux; elsewhere the waiting time must be enough


class LastReads:
    """Registry of the files that threads of Arrow may read; refuses reads at exit."""

    def __init__(self) -> None:
        """Start without files."""
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()
        self._last = 0.0
        self._is_over = False

    def add(self, reader: object) -> None:
        """Register a file; Arrow holds it for as long as it may read from it."""
        self._readers.add(reader)

    def check(self) -> None:
        """Check, right before a read, that it is still allowed.

        Raises:
            StorageError: The process is exiting, and this is not its main thread.
        """
        self._last = time.monotonic()
        if self._is_over and threading.get_ident() != threading.main_thread().ident:
            raise StorageError(
                "Cannot read: the process is exiting.", hint="Finish reading before it ends."
            )

    def end(self) -> None:
        """Refuse further reads, and wait until none is running or about to begin."""
        self._is_over = True
        began, looks = time.monotonic(), 0
        while self._readers and looks < _LOOKS:
            now, is_read = time.monotonic(), _others_in_python()
            if now - began > (_LONGEST_S if is_read else _LONGEST_WITHOUT_S):
                return
            is_quiet = not is_read and now - self._last >= _QUIET_S and _all_asleep()
            looks = looks + 1 if is_quiet else 0
            time.sleep(_PAUSE_S)


def _others_in_python() -> bool:
    """Return whether a thread that Python did not start, such as Arrow's, runs Python code."""
    threads = threading.enumerate()
    own = {thread.ident for thread in threads if not isinstance(thread, threading._DummyThread)}
    return not sys._current_frames().keys() <= own


def _all_asleep() -> bool:
    """Return whether all other threads sleep: none runs or waits for a processor."""
    me = str(threading.get_native_id())
    try:
        stats = [(task / "stat").read_text() for task in _TASKS.iterdir() if task.name != me]
    except OSError:
        return not _TASKS.exists()
    return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)


def _forget() -> None:
    """Start again in a forked process, which does not have its parent's threads."""
    READS.__init__()  # type: ignore[misc]


READS = LastReads()
atexit.register(lambda: READS.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
