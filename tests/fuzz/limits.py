"""Limits for a process that parses hostile input: memory, time, and no effect outside of it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lakebed

SECONDS = 10  # of processors, for one input
MEMORY_BYTES = (
    4 * 2**30
)  # address space, beside what libraries have reserved: DuckDB 1.5 takes 20 GiB
GROWTH_BYTES = 512 * 2**20  # resident, of one input

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = (
    "os.remove os.rename os.mkdir os.rmdir os.link os.symlink os.truncate os.chmod os.system "
    "os.exec os.posix_spawn os.fork subprocess.Popen shutil.rmtree shutil.copyfile shutil.move "
    "socket.connect socket.bind socket.getaddrinfo pickle.find_class ctypes.dlopen exec"
).split()
_SOURCE = os.path.dirname(lakebed.__file__)  # noqa: PTH120 - compared as text
_guarded = False


class ForbiddenError(BaseException):
    """Input has led to a write, a process, a connection, a pickle or code. No parser catches it."""


class TooLongError(BaseException):
    """An input took more than `SECONDS`. No parser catches it."""


class TooLargeError(BaseException):
    """An input took more memory than `GROWTH_BYTES`."""


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _guarded:
        return
    if event == "open":
        path, mode, flags = arguments
        is_writing = (isinstance(mode, str) and set(mode) & set("wax+")) or (flags or 0) & _WRITING
        if is_writing and str(path) != os.devnull:
            raise ForbiddenError(f"open {path!r} for writing")
    elif event in _FORBIDDEN:
        # Python and its libraries run code that they make: modules, named tuples, annotations.
        if event == "exec" and not sys._getframe(1).f_code.co_filename.startswith(_SOURCE):
            return
        if event == "ctypes.dlopen" and arguments[0] is None:
            return
        raise ForbiddenError(f"{event} {arguments!r}"[:300])


def _ring(number: int, frame: object) -> None:
    raise TooLongError(f"more than {SECONDS} s of processors")


def install() -> None:
    """Limit this process from now on; it cannot be undone."""
    sys.dont_write_bytecode = True
    sys.addaudithook(_refuse)
    signal.signal(signal.SIGPROF, _ring)
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status_bytes("VmSize", 0) + MEMORY_BYTES, most))


def resident_bytes() -> int:
    """Return the peak of the resident memory of this process.

    That of `getrusage` begins with the peak of the process that has started this one.
    """
    return _status_bytes("VmHWM", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _status_bytes(name: str, otherwise: int) -> int:
    """Return a size of this process as Linux states it; other systems state none."""
    status = Path("/proc/self/status")
    if not status.exists():
        return otherwise
    (size,) = (line for line in status.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(size.split()[1]) * 1024


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Run one input under the limits.

    Raises:
        ForbiddenError: It has an effect.
        TooLongError: It takes too long.
        TooLargeError: The process has grown by it.
    """
    global _guarded
    before = resident_bytes()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    _guarded = True
    try:
        yield
    finally:
        _guarded = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Also where a parser refuses what it has unpacked.
        if resident_bytes() - before > GROWTH_BYTES:
            raise TooLargeError(f"{(resident_bytes() - before) >> 20} MiB more")
