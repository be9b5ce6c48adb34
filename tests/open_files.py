"""The files that this process holds open."""

import gc
import os
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
CAN_TELL = _DESCRIPTORS.is_dir()  # Linux; elsewhere nothing is found
_READ_AHEAD_S = 5.0


def open_files() -> list[str]:
    """Return the path of each open file, as often as it is open."""
    if not CAN_TELL:
        return []
    found = []
    for descriptor in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - fewer objects, for each command
        with suppress(FileNotFoundError):  # closed meanwhile, as that of the listing
            path = os.readlink(_DESCRIPTORS / descriptor)  # noqa: PTH115
            if path.startswith("/"):
                found.append(path)
    return sorted(found)


def files_left_open(before: Collection[str]) -> list[str]:
    """Return the open files that were not open before, except those that Arrow still reads ahead."""
    deadline = time.monotonic() + _READ_AHEAD_S
    while left := [path for path in open_files() if path not in before]:
        if time.monotonic() > deadline:
            break
        gc.collect()
        time.sleep(0.01)
    return left
