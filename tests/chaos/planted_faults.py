"""A fault that one process of a cluster meets at one of its writes, planted from outside.

Each Python of a cluster imports this module as it starts. Before and after each write to a
directory it looks for `fault.json` in the folder that `CHAOS` names, and does what that says if it
is the one that is meant: its role is in `CHAOS_ROLE`. A file beside it notes each time that this
happened.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WRITES = ("_put", "_put_stream", "_adopt", "_create", "_replace")
_LONGEST_S = 120.0
_STEP_S = 0.02


def plant() -> None:
    """Let the writes of this process look for faults, if it belongs to a cluster with faults."""
    if "CHAOS" not in os.environ:
        return
    from lakebed.store.posix import PosixStore

    for operation in _WRITES:
        setattr(PosixStore, operation, _watched(operation, getattr(PosixStore, operation)))


def _watched(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def write(self: Any, *arguments: Any, **options: Any) -> Any:
        key = str(arguments[1] if operation == "_adopt" else arguments[0])
        strike("before", key)
        result = method(self, *arguments, **options)
        strike("after", key)
        return result

    return write


def strike(when: str, key: str) -> None:
    """Meet the planted fault, if it is for this process, this moment and this key."""
    folder = Path(os.environ["CHAOS"])
    try:
        fault = json.loads((folder / "fault.json").read_text())
    except FileNotFoundError:
        return
    role = os.environ["CHAOS_ROLE"]
    if role not in fault["roles"] or fault["part"] not in key:
        return
    if fault["does"] == "race":
        _race(folder, when)
    elif when == fault["when"] and (fault["does"] != "fail" or _attempt()[1] == 0):
        number = _note(folder, fault["times"])
        if number is not None:
            _do(fault, folder, key)


def _note(folder: Path, times: int) -> int | None:
    """Note that the fault happens, in a file of its own; None if it has happened often enough."""
    for number in range(times):
        with contextlib.suppress(FileExistsError):
            (folder / f"met-{number}").touch(exist_ok=False)
            return number
    return None


def _do(fault: dict[str, Any], folder: Path, key: str) -> None:
    match fault["does"]:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill executor":
            os.kill(_executor(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill driver":
            _kill_session(fault["session"])
        case "fail":
            raise RuntimeError(f"planted at {key}")
        case "fill":
            from lakebed.store.posix import translating_os_errors

            with translating_os_errors(Path(key), writing=True):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        case "slow":
            time.sleep(fault["seconds"])
        case "meet":
            _meet(folder, fault["roles"])


def _race(folder: Path, when: str) -> None:
    """Hold the first attempt of one task until another attempt has written, and the other way round."""
    partition, attempt = _attempt()
    if when == "before" and attempt == 0 and _note(folder, 1) is not None:
        (folder / "held").write_text(str(partition))
        _wait_for(folder / "second")
        return
    with contextlib.suppress(FileNotFoundError):
        is_held = (folder / "held").read_text() == str(partition)
        if when == "after" and is_held and attempt == 0:
            (folder / "first").touch()
        elif when == "after" and is_held:
            (folder / "second").touch()
            _wait_for(folder / "first")


def _meet(folder: Path, roles: list[str]) -> None:
    """Wait until the other process has come as far."""
    (folder / f"there-{os.environ['CHAOS_ROLE']}").touch()
    for role in roles:
        _wait_for(folder / f"there-{role}")


def _wait_for(path: Path) -> None:
    end = time.monotonic() + _LONGEST_S
    while not path.exists() and time.monotonic() < end:
        time.sleep(_STEP_S)


def _attempt() -> tuple[int, int]:
    """Return the partition and the attempt of the running task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context.partitionId(), context.attemptNumber()


def _executor() -> int:
    """Return the process of the executor that this process works for."""
    pid = os.getppid()
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def _kill_session(session: int) -> None:
    """Kill a driver with its JVM, and last this process, if it is one of them."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)
