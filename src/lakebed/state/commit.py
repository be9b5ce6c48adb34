"""The commit: the loop around the conditional put of the head.

A stable commit id makes it safe to try again: before a lost race or a lost answer is called a
conflict, the history is asked for the id.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import random
import time
from dataclasses import dataclass

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.state import conflicts
from lakebed.state.codec import to_document
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.moving import read_settled_head, remove_or_leave
from lakebed.state.reader import Head, remember
from lakebed.state.reservation import LEASE
from lakebed.state.state import State
from lakebed.state.succession import successor
from lakebed.state.terms import Terms
from lakebed.store.base import Store, delete_or_leave

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """How long a commit fights for the head.

    Attributes:
        deadline_s: Give up after this many seconds of lost races.
        first_wait_ms: Wait up to this many milliseconds after the first lost race, then twice
            as long each time.
        longest_wait_ms: But never longer than this.
        lease: For so long no cleanup may take the writer for dead. A batch that takes longer
            than that, with a cleanup after it, is refused when it is committed.

    >>> CommitOptions(deadline_s=30).longest_wait_ms
    1000.0
    """

    deadline_s: float = 120.0
    first_wait_ms: float = 10.0
    longest_wait_ms: float = 1000.0
    lease: dt.timedelta = LEASE

    def __post_init__(self) -> None:
        if self.lease <= dt.timedelta():
            raise InvalidInputError(f"lease is {self.lease}.", hint="Give more than no time.")


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was made.

    Attributes:
        entry: In the history.
        state: What the head said right after it; None if an answer was lost and somebody has
            committed since.
    """

    entry: Entry
    state: State | None


def commit_change(
    store: Store, terms: Terms, options: CommitOptions, unused: list[str]
) -> Committed:
    """Commit a change; see `lakebed.state.transaction`, which alone calls this.

    Args:
        store: Where the dataset is.
        terms: The change, and what it rests on. What it names is there already.
        options: How long to fight for the head.
        unused: Takes the keys of segments that were written in vain, if the commit fails for sure.

    Raises:
        CommitConflictError: A commit since the base changed a partition in its scope or read in
            one of the raw files, or one since a read changed what was read, or the race was lost
            until the deadline; nothing has changed.
        PreconditionFailedError: The dataset is no longer in the state that it may be committed
            on; nothing has changed.
        CommitUnknownError: The store stopped answering. What the change names may be live.
        StorageError: The store failed before the change could become visible.

    Cost:
        A read of the head for each attempt, one PUT, one conditional PUT.
    """
    attempts = _Attempts(store, terms.with_runs(store), options)
    try:
        return attempts.run()
    except CommitUnknownError:
        raise
    except LakebedError:
        unused += attempts.unused
        raise


class _Attempts:
    """What is known of the attempts to commit a change."""

    def __init__(self, store: Store, terms: Terms, options: CommitOptions) -> None:
        self._store = store
        self._terms = terms
        self._name = terms.base.name
        self._options = options
        self._seen_version = terms.base.version
        # Etags, by key, of the heads under which a put of ours may still land, or has landed.
        self._pending: dict[str, str] = {}
        # What kept the last attempt from being decided, if it was the store.
        self._trouble: StorageError | None = None
        # Keys of segments that only heads name which did not win.
        self.unused: list[str] = []

    def run(self) -> Committed:
        """Try until it is decided."""
        deadline = time.monotonic() + self._options.deadline_s
        for attempt in itertools.count(1):
            is_late = attempt > 1 and time.monotonic() >= deadline
            committed = self._once_or_trouble(attempt, is_late=is_late)
            if committed is not None:
                _log_commit(self._name, committed.entry, attempt)
                return committed
            wait_s = min(self._wait_s(attempt), max(0.0, deadline - time.monotonic()))
            _log.warning(
                "commit retries dataset=%s attempt=%d wait_ms=%.0f",
                self._name,
                attempt,
                wait_s * 1000,
            )
            time.sleep(wait_s)
        raise AssertionError  # there is always another attempt

    def _wait_s(self, attempt: int) -> float:
        limit_ms = min(
            self._options.first_wait_ms * 2.0 ** min(attempt - 1, 30),
            self._options.longest_wait_ms,
        )
        return random.uniform(0, limit_ms) / 1000

    def _once_or_trouble(self, attempt: int, *, is_late: bool) -> Committed | None:
        """Try once, and decide what an error means while a put of ours may still land."""
        try:
            committed = self._once(attempt, is_late=is_late)
        except DatasetNotFoundError:
            raise  # a put under a condition does not land where nothing is
        except LakebedError as exc:
            if isinstance(exc, StorageError) and exc.retryable and not is_late:
                self._trouble = exc
                return None
            if self._pending:
                raise self._unknown(exc) from exc
            raise
        self._trouble = None
        return committed

    def _once(self, attempt: int, *, is_late: bool) -> Committed | None:
        """Try once; None if the race was lost.

        The order matters: first look for our own commit, then for conflicts. So the last look
        comes after the last put, and what it does not find has not landed.
        """
        head = read_settled_head(self._store, self._name)
        self._seen_version = head.state.version
        try:
            conflicts.check_same_dataset(self._terms.base, head.state)
        except CommitConflictError:
            self._settle(head)  # the head that a put was meant for is gone, or stands beside
            raise
        since = self._terms.entries_since(self._store, head.state)
        for entry in since:
            if entry.commit_id == self._terms.change.commit_id:
                return Committed(entry, head.state if head.state.version == entry.version else None)
        self._settle(head)
        if is_late:
            raise self._lost(attempt - 1)
        self._terms.check(self._store, head.state, since)
        return self._swap(head)

    def _settle(self, head: Head) -> None:
        """Note what the absence of our commit proves of the attempts before."""
        now = {one.key: one.etag for one in (head, head.stale) if one is not None}
        # A condition that does not hold can never hold again; a head that has moved is gone.
        self._pending = {key: etag for key, etag in self._pending.items() if now.get(key) == etag}
        self._delete_unused()

    def _swap(self, head: Head) -> Committed | None:
        """Put the next head in the place of one; None if another was faster."""
        written: list[str] = []
        committed = None
        try:
            state, entry = successor(self._store, head.state, self._terms, written)
            if self._replace(head, state):
                committed = Committed(entry, state)
        finally:
            if committed is None:
                self.unused += written
        if committed is not None:
            self._tidy(head)
        return committed

    def _replace(self, head: Head, new: State) -> bool:
        """Put the head under its condition; False if the race was lost."""
        data = encode_head(to_document(new), new.head_format)
        before = dict(self._pending)
        self._pending[head.key] = head.etag
        try:
            etag = self._store.replace(head.key, data, if_match=head.etag)
        except PreconditionFailedError:
            # Refused, or landed by a put that the client repeated: the next look will tell.
            return False
        except StorageError as exc:
            if not exc.retryable:
                self._pending = before  # the store says that this one did not land
            raise
        if self._terms.change.descriptor is None:
            remember(self._store, head.key, etag, new)
        return True

    def _tidy(self, head: Head) -> None:
        """Delete what the head that has just won makes useless."""
        if head.stale is not None and remove_or_leave(self._store, head.stale):
            self._pending.pop(head.stale.key, None)
        self._pending.pop(head.key, None)
        self._delete_unused()

    def _delete_unused(self) -> None:
        if self.unused and not self._pending:
            delete_or_leave(self._store, self.unused)
            self.unused.clear()

    def _unknown(self, cause: LakebedError) -> CommitUnknownError:
        commit_id = self._terms.change.commit_id
        return CommitUnknownError(
            f"The store did not say what became of commit {commit_id} to "
            f"{self._name!r}: {cause.message}",
            hint="Look for this commit id in the dataset's history before writing again.",
            commit_id=commit_id,
        )

    def _lost(self, attempts: int) -> LakebedError:
        if self._trouble is not None:
            return self._trouble
        return CommitConflictError(
            f"Commit to {self._name!r} lost {attempts} races for the head in "
            f"{self._options.deadline_s:g} s.",
            hint="Use fewer writers at a time, or a longer deadline.",
            expected=self._terms.base.version,
            actual=self._seen_version,
        )


def _log_commit(dataset: str, entry: Entry, attempt: int) -> None:
    _log.info(
        "committed dataset=%s version=%d operation=%s batch_id=%s rows=%d attempt=%d",
        dataset,
        entry.version,
        entry.operation,
        entry.batch_id,
        entry.row_count,
        attempt,
    )
