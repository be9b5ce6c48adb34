"""Changes of a dataset since the version that a table shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.state import history
from lakebed.state.history import Entry
from lakebed.state.state import State
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True)
class Since:
    """The changes between two versions.

    Attributes:
        entries: Entries of the history, oldest first.
    """

    entries: Sequence[Entry]

    @property
    def partitions(self) -> frozenset[str]:
        """The paths of all changed partitions."""
        return frozenset(path for entry in self.entries for path in entry.partitions)

    @property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files added and the files removed; files that were added and removed are left out."""
        return history.net_labels(self.entries)


def find_since(
    store: Store, state: State, version: int, created_at: str, commit_id: str
) -> Since | None:
    """Return the changes after a version; None if the history does not hold all of them.

    It is also None if the version is not part of this history: it is of another dataset of the same
    name, or of this one before its head was restored from a copy, or the table came with a copy of
    the directory.

    Args:
        store: The store that holds the dataset.
        state: State of the head.
        version: Version that a table shows.
        created_at: Time at which the dataset of the table was created, as its head records it.
        commit_id: Id of the commit of that version; empty if the table does not record it.

    Cost:
        Nothing if it is the current version; else the newest segments of the history.
    """
    if created_at != state.created_at or state.is_changed_by_others or version > state.version:
        return None
    if version == state.version:
        return Since(()) if commit_id in ("", state.commit_id) else None
    entries = history.read(store, state.lists.history, after=version - bool(commit_id))
    entries = tuple(entry for entry in entries if entry.version <= state.version)
    if commit_id:
        if not entries or (entries[0].version, entries[0].commit_id) != (version, commit_id):
            return None
        entries = entries[1:]
    if [entry.version for entry in entries] != list(range(version + 1, state.version + 1)):
        return None  # the history does not reach back so far
    if any(entry.erased for entry in entries):
        return None  # files were exchanged in all versions, which no entry lists
    return Since(entries)
