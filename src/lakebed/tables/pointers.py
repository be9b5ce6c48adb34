"""Small objects that lead readers of a table to its newest metadata.

The format fixes their keys, so every publisher of a table writes the same object. Each write is
conditional: a late write fails because the content has changed.
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

_TRIES = 10  # each is lost to another writer of the pointer


def read(store: Store, key: str) -> bytes | None:
    """Return the content of a pointer; None if it is missing.

    Cost:
        One GET.
    """
    try:
        return store.get(key).data
    except ObjectNotFoundError:
        return None


def point(store: Store, key: str, data: bytes, *, is_enough: Callable[[bytes], bool]) -> None:
    """Write a pointer, unless its present content is enough.

    Args:
        store: The store that holds the pointer.
        key: Key of the pointer.
        data: The new content.
        is_enough: Returns whether a content leads readers at least as far as the new one.

    Raises:
        StorageError: Other writers keep writing the pointer.

    Cost:
        One GET and one PUT; the same again for each concurrent writer.
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
        f"Other publishers keep writing {key!r}.", hint="Publish again.", retryable=True
    )
