"""The values that were used last, up to a number, for the threads of a process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Recent(Generic[_Key, _Value]):
    """A bounded mapping, which forgets the value that was not used for the longest time.

    >>> recent = Recent[str, int](2)
    >>> for key in "abac":
    ...     recent.put(key, ord(key))
    >>> recent.get("a"), recent.get("b")
    (97, None)
    """

    def __init__(self, most: int) -> None:
        """Begin without values.

        Args:
            most: Number of values that are kept.
        """
        self._most = most
        self._values: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: _Key) -> _Value | None:
        """Return a value; None if it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        """Keep a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)
