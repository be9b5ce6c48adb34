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
from collections.abc import Iterator
from dataclasses import dataclass

from lakebed.common.given import check_given
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    StorageError,
)
from lakebed.model.batch_ids import FIRST_MOMENT
from lakebed.state import conflicts
from lakebed.state.after import NotPublished
from lakebed.state.history import Entry
from lakebed.state.moving import read_settled_head
from lakebed.state.reader import Head
from lakebed.state.reservation import LEASE
from lakebed.state.state import State
from lakebed.state.swap import Swaps
from lakebed.state.terms import Terms
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

_MOST_AHEAD = dt.timedelta(days=1)  # of the clock of a scheduler, or by a wrong zone


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
        begun_at: When the process began that writes the batch, with a time zone: the batch id tells
            that time. Ids only grow: where others are as high already, it is the next one. None,
            or a time to come, by less than a day, for when the batch is reserved.

    >>> CommitOptions(deadline_s=30).longest_wait_ms
    1000.0
    """

    deadline_s: float = 120.0
    first_wait_ms: float = 10.0
    longest_wait_ms: float = 1000.0
    lease: dt.timedelta = LEASE
    begun_at: dt.datetime | None = None

    def __post_init__(self) -> None:
        check_given("begun_at", self.begun_at, (dt.datetime,), "Give an aware datetime.")
        if self.begun_at is not None:
            _check_begin(self.begun_at)
        if self.lease <= dt.timedelta():
            raise InvalidInputError(f"lease is {self.lease}.", hint="Give more than no time.")


def _check_begin(begun_at: dt.datetime) -> None:
    if begun_at.tzinfo is None:
        raise InvalidInputError(
            f"begun_at is {begun_at}, without a time zone.",
            hint="Give an aware datetime, such as datetime.now(UTC) when the process begins.",
        )
    if begun_at < FIRST_MOMENT:
        raise InvalidInputError(
            f"begun_at is {begun_at.isoformat()}, before 1990, which not every batch id can tell.",
            hint="Give when the process began.",
        )
    if begun_at > dt.datetime.now(dt.UTC) + _MOST_AHEAD:
        raise InvalidInputError(
            f"begun_at is {begun_at.isoformat()}, which is yet to come.",
            hint="Give when the process began; clocks may differ, but not by a day.",
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was made.

    Attributes:
        entry: In the history.
        state: What the head said right after it; None if an answer was lost and somebody has
            committed since.
        not_published: Tables that the dataset is published to by its properties, and that do not
            show the commit.
    """

    entry: Entry
    state: State | None
    not_published: tuple[NotPublished, ...] = ()


def commit_change(store: Store, terms: Terms, options: CommitOptions, swaps: Swaps) -> Committed:
    """Commit a change; see `lakebed.state.transaction`, which alone calls this.

    Args:
        store: Where the dataset is.
        terms: The change, and what it rests on. What it names is there already.
        options: How long to fight for the head.
        swaps: Of these terms. It has the keys of segments that were written in vain, if the commit
            fails for sure.

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
    base, commit_id = terms.base, terms.change.commit_id
    version = base.version
    trouble: StorageError | None = None  # what kept the last attempt from being decided
    for attempt, is_late in _attempts(base.name, options):
        committed = None
        try:
            # The order matters: first look for our own commit, then for conflicts. So the last
            # look comes after the last put, and what it does not find has not landed.
            head = read_settled_head(store, base.name)
            version = head.state.version
            since = _entries_since(store, terms, head, swaps)
            own = next((entry for entry in since if entry.commit_id == commit_id), None)
            if own is not None:
                committed = Committed(own, head.state if version == own.version else None)
            else:
                swaps.settle(head)
                if is_late:
                    raise trouble or _lost(terms, options, attempt - 1, version)
                terms.check(store, head.state, since)
                swapped = swaps.swap(head)
                committed = swapped and Committed(*swapped)
            trouble = None
        except DatasetNotFoundError:
            raise  # a put under a condition does not land where nothing is
        except LakebedError as exc:
            if isinstance(exc, StorageError) and exc.retryable and not is_late:
                trouble = exc
            elif swaps.may_land:
                raise _unknown(terms, exc) from exc
            else:
                raise
        if committed is not None:
            _log_commit(base.name, committed.entry, attempt)
            return committed
    raise AssertionError  # there is always another attempt


def _entries_since(store: Store, terms: Terms, head: Head, swaps: Swaps) -> tuple[Entry, ...]:
    try:
        conflicts.check_same_dataset(terms.base, head.state)
    except CommitConflictError:
        swaps.settle(head)  # the head that a put was meant for is gone, or stands beside
        raise
    return terms.entries_since(store, head.state)


def _attempts(dataset: str, options: CommitOptions) -> Iterator[tuple[int, bool]]:
    """Yield the number of each attempt, and whether it is the last; wait in between."""
    deadline = time.monotonic() + options.deadline_s
    for attempt in itertools.count(1):
        yield attempt, attempt > 1 and time.monotonic() >= deadline
        doubled_ms = options.first_wait_ms * 2.0 ** min(attempt - 1, 30)
        wait_s = random.uniform(0, min(doubled_ms, options.longest_wait_ms)) / 1000
        wait_s = min(wait_s, max(0.0, deadline - time.monotonic()))
        _log.warning(
            "commit retries dataset=%s attempt=%d wait_ms=%.0f", dataset, attempt, wait_s * 1000
        )
        time.sleep(wait_s)


def _unknown(terms: Terms, cause: LakebedError) -> CommitUnknownError:
    commit_id = terms.change.commit_id
    return CommitUnknownError(
        f"The store did not say what became of commit {commit_id} to "
        f"{terms.base.name!r}: {cause.message}",
        hint="Look for this commit id in the dataset's history before writing again.",
        commit_id=commit_id,
    )


def _lost(terms: Terms, options: CommitOptions, attempts: int, version: int) -> CommitConflictError:
    return CommitConflictError(
        f"Commit to {terms.base.name!r} lost {attempts} races for the head in "
        f"{options.deadline_s:g} s.",
        hint="Use fewer writers at a time, or a longer deadline.",
        expected=terms.base.version,
        actual=version,
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
