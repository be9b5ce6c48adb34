"""The cache of the process: one for all stores, with a bound on its size.

It holds immutable objects under their keys, which contain an id that is never reused. It also
holds values decoded from objects that change, with the etag of that object; callers ask the store
first whether the etag is still current.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TypeVar

from lakebed.store.base import Store

MAX_CACHE_BYTES = 256 * 1024 * 1024

_T = TypeVar("_T")


class Cache:
    """Values up to a total number of bytes; the least recently used is dropped first.

    Safe for threads. A value larger than the bound is not kept.

    Examples:
        >>> cache = Cache(max_bytes=10)
        >>> cache.hold(("a",), b"12345678", size_bytes=8)
        >>> cache.hold(("b",), b"1234", size_bytes=4)
        >>> cache.find(("a",), bytes), cache.find(("b",), bytes), cache.size_bytes
        (None, b'1234', 4)
    """

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        """Start empty."""
        self.max_bytes = max_bytes
        self._held: OrderedDict[tuple[str, ...], tuple[object, int]] = OrderedDict()
        self._size_bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Total size of the values."""
        return self._size_bytes

    def find(self, name: tuple[str, ...], kind: type[_T]) -> _T | None:
        """Return the value under `name` if it is of type `kind`, or None."""
        with self._lock:
            held = self._held.get(name)
            if held is None:
                return None
            self._held.move_to_end(name)
        return held[0] if isinstance(held[0], kind) else None

    def hold(self, name: tuple[str, ...], value: object, *, size_bytes: int) -> None:
        """Store a value, replacing an earlier one, and drop the values that exceed the bound."""
        with self._lock:
            self._drop(name)
            if size_bytes > self.max_bytes:
                return
            self._held[name] = (value, size_bytes)
            self._size_bytes += size_bytes
            while self._size_bytes > self.max_bytes:
                self._drop(next(iter(self._held)))

    def clear(self) -> None:
        """Drop all values, as in a new process."""
        with self._lock:
            self._held.clear()
            self._size_bytes = 0

    def _drop(self, name: tuple[str, ...]) -> None:
        _, size_bytes = self._held.pop(name, (None, 0))
        self._size_bytes -= size_bytes


PROCESS_CACHE = Cache()


def cached_get(store: Store, key: str) -> bytes:
    """Read an immutable object, such as a segment, whose key contains an id that is never reused.

    Raises:
        ObjectNotFoundError: The object is neither in the cache nor in the store.

    Cost:
        One GET the first time; nothing while it is in the cache.
    """
    data = PROCESS_CACHE.find(_name_of(store, key), bytes)
    if data is None:
        data = store.get(key).data
        hold_object(store, key, data)
    return data


def _name_of(store: Store, key: str) -> tuple[str, str, str]:
    return "object", store.cache_name, key


def hold_object(store: Store, key: str, data: bytes) -> None:
    """Keep an immutable object that is written, for `cached_get`."""
    PROCESS_CACHE.hold(_name_of(store, key), data, size_bytes=len(data))


def is_cached(store: Store, key: str) -> bool:
    """Return whether `cached_get` would make no request; for callers that count requests."""
    return PROCESS_CACHE.find(_name_of(store, key), bytes) is not None
