"""Files that an erasure takes out of all versions, and the files that take their place. No I/O.

The history keeps a hash of the key of each file that was taken out. A commit that was computed
before the erasure, and that would bring such a file back or has read it, is refused by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from lakebed.model.keys import partition_of_label
from lakebed.state.caught import without_values
from lakebed.state.check_results import without_examples
from lakebed.state.history import Entry
from lakebed.state.reservation import Staging

OPERATION = "erase"
_Sampled = TypeVar("_Sampled", Entry, Staging)
Erases = Mapping[str, tuple[str, ...]]
"""Labels of the files that hold erased rows; each with the labels that take its place."""


def mark_of(key: str) -> str:
    """Return the mark of a file that was taken out, which does not show its partition.

    >>> len(mark_of("visits/data/user=ada/batch_id=1/part-0a.parquet"))
    32
    """
    return hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def marks_in(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the marks of all files that erasures have taken out."""
    return frozenset(mark for entry in entries for mark in entry.erased)


def replaced(labels: Iterable[str], erases: Erases) -> tuple[str, ...]:
    """Return labels after an erasure, in their order.

    >>> replaced(["a", "b", "c"], {"a": ("d",), "b": ()})
    ('d', 'c')
    """
    return tuple(new for label in labels for new in erases.get(label, (label,)))


def has_samples(entry: Entry) -> bool:
    """Return whether an entry has values of rows, as samples of dimensions or of failed checks."""
    return any(one.values for one in entry.caught) or any(one.examples for one in entry.checks)


def without_samples(record: _Sampled) -> _Sampled:
    """Return an entry, or a note of a staged batch, without samples of values of rows."""
    return msgspec.structs.replace(
        record, caught=without_values(record.caught), checks=without_examples(record.checks)
    )


def entry_without(entry: Entry, erases: Erases) -> Entry:
    """Return an entry of the history after an erasure; the same object if nothing changes.

    Its counts stay: they state what the commit did then. Samples of values do not state which row
    they are of, so none is kept.

    Args:
        entry: The entry.
        erases: Files that are taken out, with those that take their place.
    """
    if has_samples(entry):
        entry = without_samples(entry)
    named = (*entry.added, *entry.removed, *entry.carried)
    if erases.keys().isdisjoint(named):
        return entry
    added, removed = replaced(entry.added, erases), replaced(entry.removed, erases)
    left = {partition_of_label(label) for label in (*added, *removed)}
    lost = {partition_of_label(label) for label in named} - left
    return msgspec.structs.replace(
        entry,
        added=added,
        removed=removed,
        partitions=tuple(path for path in entry.partitions if path not in lost),
        carried={
            new: run for label, run in entry.carried.items() for new in replaced((label,), erases)
        },
    )
