"""What commits have done since the version that a table shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.state import history
from lakebed.state.history import Entry
from lakebed.state.state import State
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True)
class Since:
    """What happened between two versions, oldest first.

    Attributes:
        entries: Of the history.
    """

    entries: Sequence[Entry]

    @property
    def partitions(self) -> frozenset[str]:
        """The paths of all partitions that were touched."""
        return frozenset(path for entry in self.entries for path in entry.partitions)

    @property
    def labels(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The files that came, and those that went; what did both is in neither."""
        return history.net_labels(self.entries)


def find_since(
    store: Store, state: State, version: int, created_at: str, commit_id: str
) -> Since | None:
    """Return what happened after a version; None if the history does not tell all of it.

    Nor does it where that version was another one: of a dataset of the same name, or of this one
    before its head was restored from a copy, or where the table came with a copy of the directory.

    Args:
        store: Where the dataset is.
        state: What the head says.
        version: That a table shows.
        created_at: When the dataset that the table shows was created, as its head says.
        commit_id: Of that version; empty if the table does not say it.

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
    return Since(entries)
