"""The history of a dataset, as far back as a cleanup needs it.

A history grows for ever, and a cleanup judges objects that recent commits have taken out. So it
reads the history from its newest segment back, and stops early. One entry stands for all older
ones: it adds the files of its version, which follow from those of the head. Whoever needs more than
these entries show calls `extend`.

The oldest entry that is shown has the time at which the storage stored it. That time and those of
all later entries do not depend on older ones. Entries before it, of which a tree has many, may have
become current later than they claim, by clocks that only older entries correct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from lakebed.state.history import Entry, entries_of
from lakebed.state.lists import Segments
from lakebed.state.past import labels_before
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.segments import Segment

EARLIER = "earlier"  # operation of the entry that stands for those which were not read


class KnownHistory:
    """The last commits of a dataset until a version, or all of them.

    Attributes:
        read: The entries that are shown, oldest first: all that were read, or those from the first
            one on that has a time of storage.
        entries: The same, after one that stands for all older ones unless `read` has them all.
    """

    def __init__(self, read: tuple[Entry, ...]) -> None:
        """Hold a history that is known as a whole; see `of` for one that is read as needed."""
        self.read = self.entries = self._all = read
        self._state: State | None = None
        self._store: Store | None = None
        self._unread: Segments = ()
        self._parts: dict[str, tuple[Entry, ...]] = {}  # entries of each segment that was read

    @classmethod
    def of(cls, store: Store, state: State, earlier: KnownHistory | None = None) -> Self:
        """Return the history of a state, of which nothing is read yet.

        Args:
            store: The store that holds the dataset.
            state: The state.
            earlier: The history of an earlier state, whose segments are not read again.

        Cost:
            Nothing; the whole history if another tool has changed the files of the state.
        """
        known = cls(())
        known._parts = {} if earlier is None else dict(earlier._parts)
        known._store, known._state, known._unread = store, state, state.lists.history
        if state.is_changed_by_others:
            known.extend(lambda _: False)  # the head does not show what files there were before
        return known

    @property
    def is_whole(self) -> bool:
        """True if no older entry exists than those that were read."""
        return not self._unread

    @property
    def oldest(self) -> int:
        """The oldest version whose files are known."""
        return 0 if self.is_whole else self.entries[0].version

    def extend(self, is_enough: Callable[[Self], bool]) -> None:
        """Read older entries until they are enough, or until none is left.

        Raises:
            CorruptMetadataError: A segment is missing or damaged.

        Cost:
            One GET for each segment that is read.
        """
        unread = self._unread
        while unread and not (self.read and is_enough(self)):
            assert self._store is not None  # a history that is known as a whole has no segments
            self._all = (*self._read(self._store, unread[-1]), *self._all)
            unread = self._unread = unread[:-1]
            self._stand_for_older()

    def _read(self, store: Store, segment: Segment) -> tuple[Entry, ...]:
        """Return the entries of a segment; one in the root of a tree has no key, and costs nothing."""
        if segment.key not in self._parts:
            entries = entries_of(store, segment)
            if not segment.key:
                return entries
            self._parts[segment.key] = entries
        return self._parts[segment.key]

    def _stand_for_older(self) -> None:
        self.read = self.entries = self._all if self.is_whole else _from_time_of_storage(self._all)
        if self.is_whole or not self.read or self._state is None:
            return
        first = self.read[0]
        before = Entry(
            version=max(first.version - 1, 0),
            commit_id="",
            operation=EARLIER,
            committed_at=first.committed_at,
            added=labels_before(self._state, self.read),
        )
        self.entries = (before, *self.read)


def _from_time_of_storage(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the entries from the first one on whose time of storage is known."""
    known = (at for at, entry in enumerate(entries) if entry.stored_at is not None)
    return entries[next(known, len(entries)) :]


def reads_back_to(version: int) -> Callable[[KnownHistory], bool]:
    """Return the condition that the files of a version, and of all later ones, are known."""
    return lambda known: known.oldest <= version


def has_batches(batches: Sequence[int] | frozenset[int]) -> Callable[[KnownHistory], bool]:
    """Return the condition that the commits of some batches are known."""
    return lambda known: set(batches) <= {entry.batch_id for entry in known.read}
