"""The commit: the loop around the conditional put of the head, and the state that is put.

A stable commit id makes a retry safe: before a lost race or a lost answer is reported as a
conflict, the history is searched for the id.
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
from lakebed.state.after import NotPublished, judged
from lakebed.state.check_results import unmet_after
from lakebed.state.codec import to_document
from lakebed.state.conflicts import Terms
from lakebed.state.erased_files import entry_without
from lakebed.state.erasing import lists_without
from lakebed.state.head import HeadFormat, encode_head
from lakebed.state.history import Entry
from lakebed.state.lists import FILES, HISTORY, RUNS, SOURCES, Edit, Lists, Segments, column_of
from lakebed.state.moving import remove_or_leave, settled
from lakebed.state.reader import Head, read_head, remember
from lakebed.state.reservation import LEASE
from lakebed.state.scope import RunFiles, Scope
from lakebed.state.state import Change, HeadKind, State, adopt, apply
from lakebed.store.base import Store, StoredObject, delete_or_leave
from lakebed.store.segments import EncodedSegment, Segment, compact, due_end

_log = logging.getLogger(__name__)

MOST_COUNTED_FILES = 100_000  # entries of a file table that a commit reads to count removed rows
_MOST_AHEAD = dt.timedelta(days=1)  # a scheduler's clock may be fast, or in a wrong time zone


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Retry and lease settings of a commit.

    Attributes:
        deadline_s: Give up after this many seconds of lost races.
        first_wait_ms: Wait up to this many milliseconds after the first lost race, then twice
            as long each time.
        longest_wait_ms: Upper limit of the wait.
        lease: For this long, no cleanup treats the writer as dead. A batch that takes longer, with
            a cleanup after the lease has ended, is refused when it is committed.
        begun_at: Start time of the process that writes the batch, with a time zone; the batch id
            encodes it. Ids only grow: if others are as high already, the next free id is used.
            None, or a time less than a day ahead, stands for the time of the reservation.

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
            raise InvalidInputError(f"lease is {self.lease}.", hint="Give a positive duration.")


def _check_begin(begun_at: dt.datetime) -> None:
    if begun_at.tzinfo is None:
        raise InvalidInputError(
            f"begun_at is {begun_at}, without a time zone.",
            hint="Give an aware datetime, such as datetime.now(UTC) when the process begins.",
        )
    if begun_at < FIRST_MOMENT:
        raise InvalidInputError(
            f"begun_at is {begun_at.isoformat()}, before 1990, which a batch id cannot always encode.",
            hint="Give the time when the process began.",
        )
    if begun_at > dt.datetime.now(dt.UTC) + _MOST_AHEAD:
        raise InvalidInputError(
            f"begun_at is {begun_at.isoformat()}, which is in the future.",
            hint="Give the time when the process began; clocks may differ by less than a day.",
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that was made.

    Attributes:
        entry: The entry in the history.
        state: The state right after the commit; None if an answer was lost and another writer has
            committed since.
        not_published: Tables that the dataset is published to by its properties, and that do not
            show the commit.
        attempts: Number of attempts: one, and one more for each lost race and each failure of the
            store.
    """

    entry: Entry
    state: State | None
    not_published: tuple[NotPublished, ...] = ()
    attempts: int = 1


def commit_change(store: Store, terms: Terms, options: CommitOptions, swaps: Swaps) -> Committed:
    """Commit a change; only `lakebed.state.transaction` calls this.

    Args:
        store: The store that holds the dataset.
        terms: The change and its preconditions. The objects that it names exist already.
        options: Retry and lease settings of the commit.
        swaps: The attempts of these terms. If the commit certainly fails, it has the keys of the
            segments that were written in vain.

    Raises:
        CommitConflictError: A commit since the base changed a partition in its scope or read in
            one of the raw files, or a commit since a read changed the data that was read, or the
            race was lost until the deadline; nothing has changed.
        PreconditionFailedError: The dataset is no longer in the state that the change requires;
            nothing has changed.
        CommitUnknownError: The store stopped answering. The objects that the change names may be
            live.
        StorageError: The store failed before the change could become visible.

    Cost:
        A read of the head for each attempt, one PUT, one conditional PUT.
    """
    base, commit_id = terms.base, terms.change.commit_id
    version = base.version
    made_on = base
    trouble: StorageError | None = None  # the error that left the last attempt undecided
    for attempt, is_late in _attempts(base.name, options):
        committed = None
        try:
            # The order matters: first look for our own commit, then for conflicts. The last look
            # comes after the last put, so a commit that it does not find has not landed.
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
                made_on = head.state
            trouble = None
        except DatasetNotFoundError:
            raise  # a conditional put cannot land on a missing head
        except LakebedError as exc:
            if isinstance(exc, StorageError) and exc.retryable and not is_late:
                trouble = exc
            elif swaps.may_land:
                raise _unknown(terms, exc) from exc
            else:
                raise
        if committed is not None:
            _log_commit(base.name, committed.entry, attempt)
            if committed.state is not None and committed.state.is_tree:
                from lakebed.state.tree.stored_folds import fold_after

                fold_after(store, made_on, committed.state)
            return committed if attempt == 1 else replace(committed, attempts=attempt)
    raise AssertionError  # there is always another attempt


def _entries_since(store: Store, terms: Terms, head: Head, swaps: Swaps) -> tuple[Entry, ...]:
    try:
        conflicts.check_same_dataset(terms.base, head.state)
    except CommitConflictError:
        swaps.settle(head)  # the head that a put was meant for is gone, or another one is current
        raise
    return terms.entries_since(store, head.state)


def _attempts(dataset: str, options: CommitOptions) -> Iterator[tuple[int, bool]]:
    """Yield the number of each attempt and whether it is the last; wait in between."""
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
        f"The store did not report the outcome of commit {commit_id} to "
        f"{terms.base.name!r}: {cause.message}",
        hint="Look for this commit id in the dataset's history before writing again.",
        commit_id=commit_id,
    )


def _lost(terms: Terms, options: CommitOptions, attempts: int, version: int) -> CommitConflictError:
    return CommitConflictError(
        f"Commit to {terms.base.name!r} lost {attempts} races for the head in "
        f"{options.deadline_s:g} s.",
        hint="Run fewer writers at a time, or set a longer deadline.",
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
    """The attempts of one commit to swap the head, and their known outcomes.

    While a put may still land, nothing proves that the commit did not happen, and no object is
    deleted that its head would name.
    """

    def __init__(self, store: Store, terms: Terms) -> None:
        self._store = store
        self._terms = terms
        # Etags, by key, of the heads on which a put of ours may still land, or has landed.
        self._pending: dict[str, str] = {}
        # Keys of segments that are named only by heads that did not win.
        self.unused: list[str] = []

    @property
    def may_land(self) -> bool:
        """Return whether an unseen put may still land, or has landed."""
        return bool(self._pending)

    def settle(self, head: Head) -> None:
        """Record what the head proves about the earlier swaps, since it lacks our commit."""
        now = {copy.key: copy.etag for copy in (head, head.stale) if copy is not None}
        # A condition that failed once can never hold again; a head that has moved is gone.
        self._pending = {key: etag for key, etag in self._pending.items() if now.get(key) == etag}
        self._delete_unused()

    def swap(self, head: Head) -> tuple[Entry, State] | None:
        """Replace a head by the next one; return None if another writer was faster."""
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
        """Put the head under its condition; return False if the race was lost."""
        data = encode_head(to_document(new), new.head_format)
        before = dict(self._pending)
        self._pending[head.key] = head.etag
        try:
            etag = self._store.replace(head.key, data, if_match=head.etag)
        except PreconditionFailedError:
            # Either refused, or landed by a put that the client repeated: the next look decides.
            return False
        except StorageError as exc:
            if not exc.retryable:
                self._pending = before  # the store reports that this put did not land
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
        store: The store that holds the dataset.
        state: The current state.
        terms: The terms with the change, already checked for conflicts.
        written: Receives the key of each segment before it is written.

    Cost:
        One PUT for the history, one for the runs if there are any to record, the merges of lists
        that have become too long, and the index files of other tools that are kept up. A change
        that replaces files in a dataset of up to `MOST_COUNTED_FILES` also reads the file table.
    """
    entries = []
    foreign = foreign_entry(store, state)
    if foreign is not None:
        entries.append(foreign)
        unmet = unmet_after(
            state.unmet, state.descriptor.checks, foreign.checks, replaces_all=False
        )
        state = replace(
            state, version=foreign.version, committed_at=foreign.committed_at, unmet=unmet
        )
    before, own = state, []
    now = dt.datetime.now(dt.UTC)
    if terms.change.head is HeadKind.TREE and state.head_format is not HeadFormat.MSGPACK:
        raise conflicts.moved_meanwhile(terms.base, state)
    if terms.change.head is HeadKind.DOCUMENT and state.is_tree:
        from lakebed.state.tree.planting import to_listing

        state = to_listing(store, state, written)
    changes = (*terms.change.earlier, _change_for(store, state, terms, written))
    for change in changes:
        following, entry = apply(state, change, now)
        if state.is_tree:
            # Most datasets have no tree: a commit to them must not import it.
            from lakebed.state.tree.tree_commit import entered

            following, entry = entered(store, state, following, change, entry, terms.facts, written)
        else:
            entry = _counted(store, state, entry)
        own.append(entry)
        state = following
    if not state.is_tree and any(entry.added or entry.removed for entry in own):
        indices = index_files.kept_up(store, before, state, changes, own, written)
        state = replace(state, indices=indices)
    for change in changes:
        if change.erases or change.rewritten_sources:
            lists = lists_without(store, state, change, written)
            state = replace(state, lists=lists)
            entries = [entry_without(entry, change.erases) for entry in entries]
    state = _with_segments(store, state, [*entries, *own], written)
    if terms.change.head is HeadKind.TREE and not state.is_tree:
        from lakebed.state.tree.planting import to_tree

        state = to_tree(store, state, written)
    return state, entry


def _counted(store: Store, state: State, entry: Entry) -> Entry:
    """Return an entry with the row count of the removed files, unless the entry implies it.

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
    """Return an entry for changes by other tools since our last commit; None if there are none."""
    if not state.is_changed_by_others:
        return None
    past = history.replay(history.read(store, state.lists.history), state.version)
    return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)


def _change_for(store: Store, state: State, terms: Terms, written: list[str]) -> Change:
    """Return the change without its postings and indices of fields that were replaced since.

    A field that was dropped and added again keeps its name, but files of the base's schema hold
    other values in it than the new field. Index files belong to one schema, as `apply` has it.
    """
    base, change = terms.base.lineage.number, terms.change

    def known(edit: Edit) -> Edit:
        column = column_of(edit.name)
        field = None if column is None else state.descriptor.schema.find_stored(column)
        is_other = field is not None and state.lineage.lacks(field.name, base)
        return replace(edit, added=()) if is_other else edit

    indices = {
        column: key
        for column, key in change.indices.items()
        if state.lineage.number == base and column in state.descriptor.stored_index
    }
    edits = map(known, change.edits)
    settled = msgspec.structs.replace(
        change,
        edits=(*edits, *_facts_edits(store, state, terms, written)),
        indices=indices,
        scope=_scope_for(store, state, change.scope),
    )
    return msgspec.structs.replace(settled, checks=judged(store, state, settled))


def _facts_edits(store: Store, state: State, terms: Terms, written: list[str]) -> tuple[Edit, ...]:
    """Return the edit that adds the facts of the files if the head was a tree, and is none now.

    A tree holds them in its root, so its writers write no segment.
    """
    if state.is_tree or not terms.base.is_tree or terms.facts is None:
        return ()
    segment = file_table.new_segment(state.name, terms.facts)
    if segment is None:
        return ()
    written.append(segment.key)
    store.put(segment.key, file_table.encode(terms.facts))
    return (Edit(name=FILES, added=(segment,)),)


def _scope_for(store: Store, state: State, scope: Scope) -> Scope:
    if not isinstance(scope, RunFiles) or not scope.replaces:
        return scope
    known = runs.read(store, state.lists)
    return replace(scope, labels=frozenset(known.live_files_of(scope.run, state.live)))


def _with_segments(
    store: Store, state: State, entries: Sequence[Entry], written: list[str]
) -> State:
    """Record the commit in its lists, and merge the lists that have become too long."""

    def put(segment: Segment, data: bytes) -> None:
        written.append(segment.key)
        store.put(segment.key, data)

    lists = state.lists
    noted_in: Segments = ()
    if not state.is_tree:  # else the root has the entries
        first = history.new_segment(state.name, entries)
        put(first, history.encode(entries))
        noted_in = (first,)
    noted = runs.to_note(store, lists, entries)
    lists = replace(lists, history=(*lists.history, *noted_in))
    if noted.batches or noted.carried:
        segment = runs.new_segment(state.name, noted)
        put(segment, runs.encode(noted))
        lists = replace(lists, runs=(*lists.runs, segment))
    return replace(state, lists=merged_ends(store, replace(state, lists=lists), written))


class ListCodec(Protocol):
    """A module that reads and writes the segments of a list."""

    SUFFIX: str  # of a key

    def folder(self, dataset: str) -> str:
        """Return the folder of the segments of a dataset."""
        ...

    def decode(self, data: bytes, key: str) -> object:
        """Read a segment; raise `CorruptMetadataError` if it is damaged."""
        ...

    def merge(self, parts: Sequence[StoredObject]) -> bytes:
        """Return several segments as one; raise `CorruptMetadataError` if one is damaged."""
        ...


# Segments of postings have the type of their column: `lakebed.index` merges them.
CODECS: Mapping[str, ListCodec] = {
    HISTORY: history,
    FILES: file_table,
    SOURCES: sources,
    RUNS: runs,
}


def merged_ends(store: Store, state: State, written: list[str]) -> Lists:
    """Merge the end of each list whose levels are full, within the time that a commit may take.

    Args:
        store: The store that holds the dataset.
        state: The state that is about to be committed.
        written: Receives the key of each merged segment before it is written.

    Returns:
        The lists to name in the head. A list that cannot be merged stays unchanged.

    Cost:
        Nothing, or one GET a merged segment and one PUT for each list that has become too long.
    """
    types = state.layout.file_column_types

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

        find_due = history.find_due if name == HISTORY else due_end
        return compact(store, segments, merge, written, find_due=find_due)

    in_tree = (HISTORY, FILES) if state.is_tree else ()  # folds merge these
    lists = {
        name: segments if name in in_tree else merged_end(name, segments)
        for name, segments in state.lists.items()
    }
    return Lists.by_name(lists)
