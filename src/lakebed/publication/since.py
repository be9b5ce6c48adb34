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
        added: dict[str, None] = {}
        removed: dict[str, None] = {}
        for entry in self.entries:
            for label in entry.removed:
                if label in added:
                    del added[label]
                else:
                    removed[label] = None
            for label in entry.added:
                if label in removed:
                    del removed[label]
                else:
                    added[label] = None
        return tuple(added), tuple(removed)


def find_since(store: Store, state: State, version: int, created_at: str) -> Since | None:
    """Return what happened after a version; None if the history does not tell all of it.

    Args:
        store: Where the dataset is.
        state: What the head says.
        version: That a table shows.
        created_at: When the dataset that the table shows was created, as its head says.

    Cost:
        Nothing if it is the current version; else the newest segments of the history.
    """
    if created_at != state.created_at or state.is_changed_by_others or version > state.version:
        return None
    if version == state.version:
        return Since(())
    entries = history.read(store, state.lists.history, after=version)
    entries = tuple(entry for entry in entries if entry.version <= state.version)
    if [entry.version for entry in entries] != list(range(version + 1, state.version + 1)):
        return None  # the history does not reach back so far
    return Since(entries)
