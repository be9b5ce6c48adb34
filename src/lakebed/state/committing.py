"""The commit: the loop around the conditional put of the head, and the state that is put.

A stable commit id makes it safe to try again: before a lost race or a lost answer is called a
conflict, the history is asked for the id.
"""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import pyarrow as pa

from lakebed.common.given import check_given
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.index.postings_writer import compact_list
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import FIRST_MOMENT
from lakebed.model.totals import known_total
from lakebed.state import conflicts, file_table, history, index_files, runs, sources
from lakebed.state.after import NotPublished
from lakebed.state.codec import to_document
from lakebed.state.conflicts import Terms
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.lists import FILES, HISTORY, RUNS, SOURCES, Edit, Lists, Segments, column_of
from lakebed.state.moving import remove_or_leave, settled
from lakebed.state.reader import Head, read_head, remember
from lakebed.state.reservation import LEASE
from lakebed.state.scope import RunFiles, Scope
from lakebed.state.state import Change, State, adopt, apply
from lakebed.store.base import Store, StoredObject, delete_or_leave
from lakebed.store.segments import EncodedSegment, Segment, compact

_log = logging.getLogger(__name__)

MOST_COUNTED_FILES = 100_000  # entries of a file table that a commit reads to count removed rows
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
            head = read_head(store, base.name)
            if not head.is_settled:
                head = settled(store, head)
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


class Swaps:
    """The attempts of one commit to swap the head, and what is known of them.

    While a put may still land, nothing proves that the commit did not happen, and nothing is
    deleted that its head would name.
    """

    def __init__(self, store: Store, terms: Terms) -> None:
        self._store = store
        self._terms = terms
        # Etags, by key, of the heads under which a put of ours may still land, or has landed.
        self._pending: dict[str, str] = {}
        # Keys of segments that only heads name which did not win.
        self.unused: list[str] = []

    @property
    def may_land(self) -> bool:
        """Whether a put may still land, or has landed, that has not been seen."""
        return bool(self._pending)

    def settle(self, head: Head) -> None:
        """Note what the head proves of the swaps before, since it does not have our commit."""
        now = {copy.key: copy.etag for copy in (head, head.stale) if copy is not None}
        # A condition that does not hold can never hold again; a head that has moved is gone.
        self._pending = {key: etag for key, etag in self._pending.items() if now.get(key) == etag}
        self._delete_unused()

    def swap(self, head: Head) -> tuple[Entry, State] | None:
        """Put the next head in the place of one; None if another was faster."""
        written: list[str] = []
        is_done = False
        try:
            state, entry = successor(self._store, head.state, self._terms, written)
            is_done = self._replace(head, state)
        finally:
            if not is_done:
                self.unused += written
        if not is_done:
            return None
        if head.stale is not None and remove_or_leave(self._store, head.stale):
            self._pending.pop(head.stale.key, None)
        self._pending.pop(head.key, None)
        self._delete_unused()
        return entry, state

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
        if self._terms.change.new_descriptor is None:
            remember(self._store, head.key, etag, new)
        return True

    def _delete_unused(self) -> None:
        if self.unused and not self._pending:
            delete_or_leave(self._store, self.unused)
            self.unused.clear()


def successor(store: Store, state: State, terms: Terms, written: list[str]) -> tuple[State, Entry]:
    """Return the state after a change, to be named by the head, and the entry of the change.

    Args:
        store: Where the dataset is.
        state: What the head says.
        terms: With the change, already checked for conflicts.
        written: Takes the key of each segment before it is written.

    Cost:
        One PUT for the history, one for the runs if there are any to note, what the lists cost
        that have become too long, and the index files of other tools that are kept up. Of what
        replaces files in a dataset of up to `MOST_COUNTED_FILES` also the file table.
    """
    entries = []
    foreign = foreign_entry(store, state)
    if foreign is not None:
        entries.append(foreign)
        state = replace(state, version=foreign.version, committed_at=foreign.committed_at)
    before, own = state, []
    now = dt.datetime.now(dt.UTC)
    changes = (*terms.change.earlier, _change_for(store, state, terms))
    for change in changes:
        following, entry = apply(state, change, now)
        entry = _counted(store, state, entry)
        own.append(entry)
        state = following
    if any(entry.added or entry.removed for entry in own):
        indices = index_files.kept_up(store, before, state, changes, own, written)
        state = replace(state, indices=indices)
    return _with_segments(store, state, [*entries, *own], written), entry


def _counted(store: Store, state: State, entry: Entry) -> Entry:
    """Return an entry with the number of rows in the files that it took out, where it lacks that.

    The file table of a large dataset is not read for it: a commit should not wait for that.

    Args:
        store: The store that holds the dataset.
        state: The state before the change.
        entry: The entry of the change.
    """
    is_known = entry.removed_row_count is not None or entry.operation in runs.REWRITING
    size = sum(segment.weight for segment in state.lists.files)
    if not entry.removed or is_known or size > MOST_COUNTED_FILES:
        return entry
    labels = pa.array(entry.removed, pa.large_string())
    known = file_table.find(store, state.lists.files, labels, {}).row_count
    return msgspec.structs.replace(entry, removed_row_count=known_total(known.to_pylist()))


def foreign_entry(store: Store, state: State) -> Entry | None:
    """Return the entry for what other tools have changed since our last commit, if they have."""
    if not state.is_changed_by_others:
        return None
    past = history.replay(history.read(store, state.lists.history), state.version)
    return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)


def _change_for(store: Store, state: State, terms: Terms) -> Change:
    """Return the change without what it knows of fields that are others by now.

    A field that was dropped and added again has its old name, and in files of the base's schema
    other values than the new field. Index files are of one schema, as `apply` has it.
    """
    base, change = terms.base.lineage.number, terms.change

    def known(edit: Edit) -> Edit:
        column = column_of(edit.name)
        is_other = column is not None and state.lineage.lacks(column, base)
        return replace(edit, added=()) if is_other else edit

    indices = {
        column: key
        for column, key in change.indices.items()
        if state.lineage.number == base and column in state.descriptor.index
    }
    return msgspec.structs.replace(
        change,
        edits=tuple(map(known, change.edits)),
        indices=indices,
        scope=_scope_for(store, state, change.scope),
    )


def _scope_for(store: Store, state: State, scope: Scope) -> Scope:
    if not isinstance(scope, RunFiles) or not scope.replaces:
        return scope
    known = runs.read(store, state.lists)
    return replace(scope, labels=frozenset(known.files_of(scope.run, state.labels)))


def _with_segments(
    store: Store, state: State, entries: Sequence[Entry], written: list[str]
) -> State:
    """Write down what the commit did, and merge the lists that have become too long."""

    def put(segment: Segment, data: bytes) -> None:
        written.append(segment.key)
        store.put(segment.key, data)

    lists = state.lists
    first = Segment.new(history.folder(state.name), len(entries), history.SUFFIX)
    put(first, history.encode(entries))
    noted = runs.to_note(store, lists, entries)
    lists = replace(lists, history=(*lists.history, first))
    if noted.batches or noted.carried:
        segment = runs.new_segment(state.name, noted)
        put(segment, runs.encode(noted))
        lists = replace(lists, runs=(*lists.runs, segment))
    return replace(state, lists=merged_ends(store, replace(state, lists=lists), written))


class ListCodec(Protocol):
    """A module that knows what the segments of a list hold."""

    SUFFIX: str  # of a key

    def folder(self, dataset: str) -> str:
        """Return where the segments of a dataset lie."""
        ...

    def decode(self, data: bytes, key: str) -> object:
        """Read a segment; raise `CorruptMetadataError` if it is damaged."""
        ...

    def merge(self, parts: Sequence[StoredObject]) -> bytes:
        """Return several segments as one; raise `CorruptMetadataError` if one is damaged."""
        ...


# Those of postings are of a type, that of their column: `lakebed.index` merges them.
CODECS: Mapping[str, ListCodec] = {
    HISTORY: history,
    FILES: file_table,
    SOURCES: sources,
    RUNS: runs,
}


def merged_ends(store: Store, state: State, written: list[str]) -> Lists:
    """Merge the end of each list whose levels are full, as far as a commit may take the time.

    Args:
        store: Where the dataset is.
        state: That is about to be committed.
        written: Takes the key of each merged segment before it is written.

    Returns:
        The lists to name in the head. What cannot be merged stays as it is.

    Cost:
        Nothing, or one GET a merged segment and one PUT for each list that has become too long.
    """
    types = state.descriptor.column_types

    def merged_end(name: str, segments: Segments) -> Segments:
        column = column_of(name)
        if column is not None:
            kind = type_to_arrow(types[column])
            return compact_list(store, state.name, column, segments, kind, written)
        codec = CODECS[name]

        def merge(tail: Sequence[Segment]) -> EncodedSegment:
            data = codec.merge([store.get(segment.key) for segment in tail])
            weight = sum(segment.weight for segment in tail)
            merged = Segment.new(codec.folder(state.name), weight, codec.SUFFIX)
            return EncodedSegment(merged, data)

        return compact(store, segments, merge, written)

    lists = {name: merged_end(name, segments) for name, segments in state.lists.items()}
    return Lists.by_name(lists)
