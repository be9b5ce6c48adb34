"""On what terms a change may be committed: what must not have happened since it was computed.

The rules themselves are in `lakebed.state.conflicts`; here is read what they are asked about.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from lakebed.state import conflicts, history, runs
from lakebed.state import sources as source_list
from lakebed.state.conflicts import Read
from lakebed.state.history import Entry
from lakebed.state.readable import check_readable, is_readable
from lakebed.state.scope import RunFiles
from lakebed.state.sources import Sources
from lakebed.state.state import Change, State
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A change, and what it rests on.

    Attributes:
        base: The state that the change was computed from.
        change: What is to be committed.
        lease: Of its writer.
        sources: What the segment of the change says of raw files.
        reads: What else it rests on.
        only_on: The state that it may be committed on; None for any without a conflict.
        staged_until: When the lease of a batch ends that was staged before.
    """

    base: State
    change: Change
    lease: dt.timedelta
    sources: Sources | None = None
    reads: tuple[Read, ...] = ()
    only_on: State | None = None
    staged_until: dt.datetime | None = None

    def with_runs(self, store: Store) -> Self:
        """Note which run wrote what, where it matters who has touched what a run wrote."""

        def known(read: Read) -> Read:
            is_of_run = isinstance(read.scope, RunFiles)
            return replace(read, runs=runs.read(store, self.base.lists)) if is_of_run else read

        return replace(self, reads=tuple(map(known, self.reads)))

    def entries_since(self, store: Store, now: State) -> tuple[Entry, ...]:
        """Return what was committed since the base, and since what was read before."""
        oldest = min((self.base.version, *(read.state.version for read in self.reads)))
        if now.version == oldest:
            return ()
        return history.read(store, now.lists.history, after=oldest)

    def check(self, store: Store, now: State, since: Sequence[Entry]) -> None:
        """Check that nothing stands in the way.

        Args:
            store: Where the dataset is.
            now: What the head says.
            since: What `entries_since` gave.

        Raises:
            CommitConflictError: Something does.
            PreconditionFailedError: It is not the state that the change is meant for.
            VersionNotFoundError: A cleanup has given up the version that it restores.
        """
        base, change = self.base, self.change
        conflicts.check_in_time(base, now, change, self.lease, self.staged_until)
        if change.restores is not None and not is_readable(now, change.restores):
            check_readable(now, history.read(store, now.lists.history), change.restores)
        if self.sources is not None and base.lists.sources != now.lists.sources:
            known, latest = (source_list.read(store, state.lists.sources) for state in (base, now))
            conflicts.check_sources(base, now, change, self.sources, known, latest)
        conflicts.check(base, now, change, since, self.reads)
        if self.only_on is not None:
            conflicts.check_unchanged(self.only_on, now, change)
