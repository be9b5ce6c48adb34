"""What this process has read and may need again: one cache with a bound, for all stores.

It holds immutable objects under their keys, which hold an id that is never used again, and what
was decoded from objects that change, with the etag that it was decoded from; whoever asks for
those asks the store first whether the etag still holds.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeVar

from lakebed.store.base import Store

MAX_CACHE_BYTES = 256 * 1024 * 1024

_T = TypeVar("_T")


class Cache:
    """Values up to a number of bytes; what was not asked for the longest goes first.

    Safe for threads. A value that alone is larger than the bound is not held.

    Examples:
        >>> cache = Cache(max_bytes=10)
        >>> cache.hold(("a",), b"12345678", size_bytes=8)
        >>> cache.hold(("b",), b"1234", size_bytes=4)
        >>> cache.find(("a",), bytes), cache.find(("b",), bytes), cache.size_bytes
        (None, b'1234', 4)
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        """Begin empty."""
        self.max_bytes = max_bytes
        self._held: OrderedDict[tuple[str, ...], tuple[object, int]] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Sum of what is held."""
        return self._size_bytes

    def find(self, name: tuple[str, ...], kind: type[_T]) -> _T | None:
        """Return what is held under `name` if it is of `kind`, or None."""
        with self._lock:
            held = self._held.get(name)
            if held is None:
                return None
            self._held.move_to_end(name)
        return held[0] if isinstance(held[0], kind) else None

    def hold(self, name: tuple[str, ...], value: object, *, size_bytes: int) -> None:
        """Keep a value, in the place of an earlier one, and let go what has no room."""
        with self._lock:
            self._drop(name)
            if size_bytes > self.max_bytes:
                return
            self._held[name] = (value, size_bytes)
            self._size_bytes += size_bytes
            while self._size_bytes > self.max_bytes:
                self._drop(next(iter(self._held)))

    def clear(self) -> None:
        """Forget everything, as a new process would begin."""
        with self._lock:
            self._held.clear()
            self._size_bytes = 0

    def _drop(self, name: tuple[str, ...]) -> None:
        _, size_bytes = self._held.pop(name, (None, 0))
        self._size_bytes -= size_bytes


PROCESS_CACHE = Cache()


def cached_get(store: Store, key: str) -> bytes:
    """Read an immutable object: a segment, whose key holds an id that is never used again.

    Raises:
        ObjectNotFoundError: There is no object under `key`, and it is not held either.

    Cost:
        One GET the first time; nothing while it is held.
    """
    name = ("object", store.cache_name, key)
    data = PROCESS_CACHE.find(name, bytes)
    if data is None:
        data = store.get(key).data
        PROCESS_CACHE.hold(name, data, size_bytes=len(data))
    return data


def is_cached(store: Store, key: str) -> bool:
    """Whether `cached_get` would ask for nothing, for whoever counts requests."""
    return PROCESS_CACHE.find(("object", store.cache_name, key), bytes) is not None
