"""Sources of rows that can be read once: a second use is an error, instead of no rows."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import pyarrow as pa

from lakebed.errors import InvalidInputError

_lock = threading.Lock()
_begun: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_had_rows: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
# Iterators of Python's own classes have no weak references. Of these the last ones are known.
_begun_builtins: deque[Any] = deque(maxlen=8)
_builtins_with_rows: deque[Any] = deque(maxlen=8)

_REMEDY = "Give a new one, or rows that can be read again: a table, a frame or a list."


def begin_reading(source: object) -> None:
    """Record that the rows of a source are read now.

    Raises:
        InvalidInputError: It can be read only once, and has been read before, as for a dry run, or
            it is a generator that has ended.
    """
    if not is_read_once(source):
        return
    if isinstance(source, GeneratorType) and source.gi_frame is None:
        raise InvalidInputError(
            f"This {type(source).__name__} has ended: its rows have been read before.",
            hint=_REMEDY,
        )
    with _lock:
        is_second = _begun.get(id(source)) is source or any(
            begun is source for begun in _begun_builtins
        )
        try:
            _begun[id(source)] = source
        except TypeError:
            _begun_builtins.append(source)
    if is_second:
        raise InvalidInputError(
            f"The rows of this {type(source).__name__} have been read before, as for a dry run, and "
            "it gives them only once.",
            hint=_REMEDY,
        )


def is_read_once(source: object) -> bool:
    """Return whether a source gives its rows once, and none afterwards."""
    if isinstance(source, pa.RecordBatchReader | GeneratorType):
        return True
    # An iterator of another class may begin again, such as a consumer of a queue.
    return isinstance(source, Iterator) and type(source).__module__ in ("builtins", "itertools")


def remember_rows(source: object) -> None:
    """Record that a source gave rows which were not written: for a dry run, or for its schema."""
    with _lock:
        try:
            _had_rows[id(source)] = source
        except TypeError:
            _builtins_with_rows.append(source)


def check_still_has_rows(source: object) -> None:
    """Check that a source that gives no rows now gave none before.

    Raises:
        InvalidInputError: It gave rows for a dry run, or when its schema was read.
    """
    with _lock:
        had_rows = _had_rows.get(id(source)) is source or any(
            given is source for given in _builtins_with_rows
        )
    if had_rows:
        raise InvalidInputError(
            f"This {type(source).__name__} gave rows before, for its schema or for a dry run, and "
            "gives none now.",
            hint=_REMEDY,
        )
