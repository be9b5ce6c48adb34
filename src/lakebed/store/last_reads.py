"""The end of the process, while threads of Arrow still read through files of Python.

A scan that was left in the middle goes on reading ahead. A thread that comes back from a read when
the interpreter goes cannot have its lock any more: Arrow then aborts the process, which has done
its work. So the interpreter, before it goes, refuses reads and waits for those that have begun.
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

_QUIET_S = 0.05  # within this time a scan whose reads are refused begins another one, or none
_LONGEST_S = 10.0  # of waiting for a store that does not answer
_LONGEST_WITHOUT_S = 2.0  # of waiting where no read is under way, and threads of others may work
_PAUSE_S = 0.002
_LOOKS = 3  # in a row that must find nobody at work
_TASKS = Path("/proc/self/task")  # of Linux; elsewhere the time alone must do


class LastReads:
    """Knows whether threads of Arrow may still read, and refuses that at the end."""

    def __init__(self) -> None:
        """Begin without any."""
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()
        self._last = 0.0
        self._is_over = False

    def add(self, reader: object) -> None:
        """Note a file that Arrow holds for as long as it may read from it."""
        self._readers.add(reader)

    def check(self) -> None:
        """Check that there may be one more, right before it.

        Raises:
            StorageError: The process ends, and this is not its main thread.
        """
        self._last = time.monotonic()
        if self._is_over and threading.get_ident() != threading.main_thread().ident:
            raise StorageError("The process ends.", hint="Read all that is wanted before.")

    def end(self) -> None:
        """Refuse more, and wait until none is under way nor about to be."""
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
    """Whether a thread that is none of Python's own, as those of Arrow, is in a function of it."""
    threads = threading.enumerate()
    own = {thread.ident for thread in threads if not isinstance(thread, threading._DummyThread)}
    return not sys._current_frames().keys() <= own


def _all_asleep() -> bool:
    """Whether no other thread works or waits for a processor, as it may for long on a busy machine."""
    me = str(threading.get_native_id())
    try:
        stats = [(task / "stat").read_text() for task in _TASKS.iterdir() if task.name != me]
    except OSError:
        return not _TASKS.exists()
    return all(stat.rpartition(")")[2].split()[0] == "S" for stat in stats)


def _forget() -> None:
    """Begin anew in a process that was forked: the threads stayed behind."""
    READS.__init__()  # type: ignore[misc]


READS = LastReads()
atexit.register(lambda: READS.end())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
