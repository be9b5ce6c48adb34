"""The directories of the files that a segment of an index covers, in pages that are read alone.

A lookup finds the ids of files. The labels of all files lead from an id to its file, and a tree does
not list them. With the directory of a file, its leaf is found by its range, and the file in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import zstandard

from lakebed.common.decoding import from_msgpack
from lakebed.store.segments import compress, decompress

PAGE_FILES = 4096
_MOST_BYTES = 2**26  # of a page, uncompressed: no storage takes directories of more than 4 KiB
ERRORS = (ValueError, MemoryError, OverflowError, msgspec.MsgspecError, zstandard.ZstdError)


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A page as it is stored.

    Attributes:
        ids: Ids of the files, as int64, little-endian.
        directories: The directories, each once, in order of their text.
        numbers: For each file the number of its directory, as uint16, little-endian.
    """

    ids: bytes
    directories: list[str]
    numbers: bytes


@dataclass(frozen=True, slots=True)
class HomePage:
    """A page.

    Attributes:
        ids: Ids of the files.
        directories: The directories.
        numbers: For each file the number of its directory.
    """

    ids: np.ndarray
    directories: Sequence[str]
    numbers: np.ndarray

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory."""
        return 16 * len(self.ids) + sum(60 + len(name) for name in self.directories)

    def homes(self, places: np.ndarray) -> list[str]:
        """Return the directories of the files at some positions."""
        return [self.directories[number] for number in self.numbers[places].tolist()]


def page_count(files: int) -> int:
    """Return the number of pages for a number of files."""
    return -(-files // PAGE_FILES)


def encode(ids: np.ndarray, homes: Sequence[str]) -> Iterator[bytes]:
    """Yield the pages of the directories of some files.

    Args:
        ids: Ids of the files.
        homes: Directory of each.

    >>> (data,) = encode(np.array([3, 5]), ["day=b", "day=a"])
    >>> decode(data, 2).homes(np.array([0, 1]))
    ['day=b', 'day=a']
    """
    for start in range(0, len(ids), PAGE_FILES):
        own = homes[start : start + PAGE_FILES]
        directories = sorted(set(own))
        numbers = {directory: number for number, directory in enumerate(directories)}
        stored = _Stored(
            ids[start : start + PAGE_FILES].astype("<i8").tobytes(),
            directories,
            np.array([numbers[directory] for directory in own], "<u2").tobytes(),
        )
        yield compress(msgspec.msgpack.encode(stored), level=1)


def decode(data: bytes, count: int) -> HomePage:
    """Read a page.

    Args:
        data: The page.
        count: Number of files in it.

    Raises:
        ValueError: It is malformed; also the other errors of `ERRORS`.
    """
    stored = from_msgpack(decompress(data, _MOST_BYTES), _Stored)
    ids = np.frombuffer(stored.ids, "<i8").astype(np.int64)
    numbers = np.frombuffer(stored.numbers, "<u2").astype(np.int64)
    if not len(ids) == len(numbers) == count or (numbers >= len(stored.directories)).any():
        message = "a page of directories does not fit its files"
        raise ValueError(message)
    return HomePage(ids, stored.directories, numbers)
