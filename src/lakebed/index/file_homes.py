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
        ids: Ids of the files, as int64, little-endian; in a compact page each less the one before,
            the first bytes of all, then the second bytes, and so on.
        directories: The directories, each once, in order of their text.
        numbers: For each file the number of its directory, as uint16, little-endian; in a compact
            page the first bytes of all, then the second ones.
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


def encode(ids: np.ndarray, homes: Sequence[str], *, is_compact: bool = False) -> Iterator[bytes]:
    """Yield the pages of the directories of some files.

    Args:
        ids: Ids of the files, ascending.
        homes: Directory of each.
        is_compact: Whether to write compact pages.

    >>> (data,) = encode(np.array([3, 5]), ["day=b", "day=a"])
    >>> decode(data, 2).homes(np.array([0, 1]))
    ['day=b', 'day=a']
    >>> (data,) = encode(np.array([3, 5]), ["day=b", "day=a"], is_compact=True)
    >>> decode(data, 2, is_compact=True).ids.tolist()
    [3, 5]
    """
    for start in range(0, len(ids), PAGE_FILES):
        own = homes[start : start + PAGE_FILES]
        directories = sorted(set(own))
        numbers = {directory: number for number, directory in enumerate(directories)}
        stored = _encode_page(
            ids[start : start + PAGE_FILES],
            directories,
            np.array([numbers[directory] for directory in own], "<u2"),
            is_compact=is_compact,
        )
        yield compress(msgspec.msgpack.encode(stored), level=1)


def _encode_page(
    ids: np.ndarray, directories: list[str], numbers: np.ndarray, *, is_compact: bool
) -> _Stored:
    if not is_compact:
        return _Stored(ids.astype("<i8").tobytes(), directories, numbers.tobytes())
    steps = np.diff(ids, prepend=0)
    return _Stored(_planes(steps.astype("<i8")), directories, _planes(numbers))


def _planes(numbers: np.ndarray) -> bytes:
    """Return the first bytes of all numbers, then the second bytes, and so on."""
    return numbers.view(np.uint8).reshape(len(numbers), numbers.itemsize).T.tobytes()


def _from_planes(data: bytes, kind: str) -> np.ndarray:
    """Return the numbers; raise ValueError if the bytes are not whole numbers."""
    width = np.dtype(kind).itemsize
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).reshape(-1).view(kind).astype(np.int64)


def decode(data: bytes, count: int, *, is_compact: bool = False) -> HomePage:
    """Read a page.

    Args:
        data: The page.
        count: Number of files in it.
        is_compact: Whether it is a compact page.

    Raises:
        ValueError: It is malformed; also the other errors of `ERRORS`.
    """
    stored = from_msgpack(decompress(data, _MOST_BYTES), _Stored)
    if is_compact:
        ids, numbers = _from_planes(stored.ids, "<i8").cumsum(), _from_planes(stored.numbers, "<u2")
    else:
        ids = np.frombuffer(stored.ids, "<i8").astype(np.int64)
        numbers = np.frombuffer(stored.numbers, "<u2").astype(np.int64)
    if not len(ids) == len(numbers) == count or (numbers >= len(stored.directories)).any():
        message = "a page of directories does not fit its files"
        raise ValueError(message)
    return HomePage(ids, stored.directories, numbers)
