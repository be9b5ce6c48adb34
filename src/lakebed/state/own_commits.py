"""The commits of this process, for views that must not show an older version."""

from __future__ import annotations

import itertools

_numbers = itertools.count(1)
_last: dict[tuple[str, str], int] = {}


def note_commit(uri: str, dataset: str) -> None:
    """Record that this process has put a head.

    Args:
        uri: URI of the store.
        dataset: Name of the dataset.
    """
    _last[uri, dataset] = next(_numbers)


def last_commits(uri: str) -> dict[str, int]:
    """Return a number for each dataset of a store that was committed to; it grows with each commit."""
    return {dataset: number for (store, dataset), number in list(_last.items()) if store == uri}
