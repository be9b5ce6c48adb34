"""Small objects that lead readers of a table to its newest metadata.

Their keys are fixed by the format, so that every publisher writes the same one. It is replaced
under a condition: a write that lands late finds another content than it was meant for.
"""

from __future__ import annotations

from collections.abc import Callable

from lakebed.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.store.base import Store

_TRIES = 10  # against others, each of which has written a pointer


def read(store: Store, key: str) -> bytes | None:
    """Return what a pointer says; None if it is not there.

    Cost:
        One GET.
    """
    try:
        return store.get(key).data
    except ObjectNotFoundError:
        return None


def point(store: Store, key: str, data: bytes, *, is_enough: Callable[[bytes], bool]) -> None:
    """Write a pointer, unless what it says is enough.

    Args:
        store: Where it is.
        key: Of the pointer.
        data: The new content.
        is_enough: Whether a content leads readers as far.

    Raises:
        StorageError: Others write it again and again.

    Cost:
        One GET and one PUT; the same again for each writer that comes between.
    """
    for _ in range(_TRIES):
        try:
            stored = store.get(key)
        except ObjectNotFoundError:
            stored = None
        if stored is not None and is_enough(stored.data):
            return
        try:
            if stored is None:
                store.create(key, data)
            else:
                store.replace(key, data, if_match=stored.etag)
        except (ObjectExistsError, PreconditionFailedError):
            continue
        return
    raise StorageError(
        f"Others write {key!r} at the same time.", hint="Publish again.", retryable=True
    )
