"""The history of a dataset, as far back as a cleanup needs it.

A history grows for ever, and a cleanup judges objects that recent commits have taken out. So it
reads the history from its newest segment back, and stops early. One entry stands for all older
ones: it adds the files of its version, which follow from those of the head. Whoever needs more than
these entries show calls `extend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self

from lakebed.state.history import Entry, entries_of
from lakebed.state.lists import Segments
from lakebed.state.past import labels_before
from lakebed.state.state import State
from lakebed.store.base import Store

EARLIER = "earlier"  # operation of the entry that stands for those which were not read


class KnownHistory:
    """The last commits of a dataset until a version, or all of them.

    Attributes:
        read: The entries that were read, oldest first.
        entries: The same, after one that stands for all older ones unless all were read.
    """

    def __init__(self, read: tuple[Entry, ...]) -> None:
        """Hold a history that is known as a whole; see `of` for one that is read as needed."""
        self.read = self.entries = read
        self._state: State | None = None
        self._store: Store | None = None
        self._unread: Segments = ()

    @classmethod
    def of(cls, store: Store, state: State) -> Self:
        """Return the history of a state, of which nothing is read yet.

        Cost:
            Nothing; the whole history if another tool has changed the files of the state.
        """
        known = cls(())
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
            self.read = (*entries_of(self._store, unread[-1]), *self.read)
            unread = self._unread = unread[:-1]
            self._stand_for_older()

    def _stand_for_older(self) -> None:
        self.entries = self.read
        if not self._unread or not self.read or self._state is None:
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


def reads_back_to(version: int) -> Callable[[KnownHistory], bool]:
    """Return the condition that the files of a version, and of all later ones, are known."""
    return lambda known: known.oldest <= version


def has_batches(batches: Sequence[int] | frozenset[int]) -> Callable[[KnownHistory], bool]:
    """Return the condition that the commits of some batches are known."""
    return lambda known: set(batches) <= {entry.batch_id for entry in known.read}
