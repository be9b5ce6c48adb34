"""The state that a commit puts, and the put itself; `lakebed.state.group_commit` decides when."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import msgspec
import pyarrow as pa

from lakebed.common.given import check_given
from lakebed.errors import (
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
from lakebed.state.moving import remove_or_leave
from lakebed.state.own_commits import note_commit
from lakebed.state.reader import Head, remember
from lakebed.state.rerun_guard import check_rerun
from lakebed.state.reservation import LEASE
from lakebed.state.scope import RunFiles, Scope
from lakebed.state.state import Change, HeadKind, State, adopt, apply
from lakebed.store import segments
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, StoredObject
from lakebed.store.cache import cached_get
from lakebed.store.segments import EncodedSegment, Segment, compact, due_end

_log = logging.getLogger(__name__)

_MOST_UNMERGED = 4  # times the number of segments that are due to merge; see `Merges`
_REQUESTS_AT_ONCE = 8

MOST_COUNTED_FILES = 100_000  # entries of a file table that a commit reads to count removed rows
_MOST_AHEAD = dt.timedelta(days=1)  # a scheduler's clock may be fast, or in a wrong time zone


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOptions:
    """Retry and lease settings of a commit.

    Attributes:
        deadline_s: Give up after this many seconds of lost races.
        first_wait_ms: Wait at least this many milliseconds after a lost race, and at random up to
            three times as long as the time before.
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


@dataclass(frozen=True, slots=True)
class _Put:
    """A put of the head whose outcome is not known from its answer alone.

    Attributes:
        key: Key of the head.
        etag: Etag of the head that it was to replace.
        state: The state of that head.
        history: The segments of the history that the put named.
        is_refused: Whether the store has refused it, which may be due to a put that was repeated.
    """

    key: str
    etag: str
    state: State
    history: Segments
    is_refused: bool = False

    def is_refuted_by(self, now: State, batch_id: int | None) -> bool:
        """Return whether a state alone proves that the put has not landed before it."""
        before = self.state.lists.history
        is_next = not now.is_tree and before and now.lists.history[:-1] == before
        return (
            now.version == self.state.version
            # Each put of a head adds a segment, and an erasure rewrites some: so it was one put.
            or (is_next and now.lists.history != self.history)
            or (batch_id is not None and now.last_batch_id < batch_id)
        )


class Swaps:
    """The puts of the head that would make one commit visible, and their known outcomes.

    While a put may still land, nothing proves that the commit did not happen, and no object is
    deleted that its head would name.
    """

    def __init__(self) -> None:
        # The puts that may still land, or have landed: several, if attempts met the same head.
        self._pending: tuple[_Put, ...] = ()
        # Keys of segments that are named only by heads that did not win.
        self.unused: list[str] = []

    @property
    def may_land(self) -> bool:
        """Return whether an unseen put may still land, or has landed."""
        return bool(self._pending)

    @property
    def are_refused(self) -> bool:
        """Return whether all puts were refused, so that one has hardly landed."""
        return all(put.is_refused for put in self._pending)

    @property
    def known_history(self) -> Segments:
        """The segments of the history before the oldest of the puts."""
        states = (put.state for put in self._pending)
        oldest = min(states, key=lambda state: state.version, default=None)
        return () if oldest is None else oldest.lists.history

    def unproven_after(self, now: State, batch_id: int | None) -> int:
        """Return the version after which the history may show the commit; that of `now` for none.

        Args:
            now: The current state.
            batch_id: The batch that the commit makes visible.
        """
        unclear = (put for put in self._pending if not put.is_refuted_by(now, batch_id))
        return min((put.state.version for put in unclear), default=now.version)

    def settle(self, head: Head) -> None:
        """Record what the head proves about the earlier puts, since it lacks our commit."""
        now = {copy.key: copy.etag for copy in (head, head.stale) if copy is not None}
        # A condition that failed once can never hold again; a head that has moved is gone.
        self._pending = tuple(put for put in self._pending if now.get(put.key) == put.etag)

    def begin(self, head: Head, new: State) -> None:
        """Record that a put on a head may land from now on."""
        put = _Put(head.key, head.etag, head.state, new.lists.history)
        self._pending = (*self._pending, put)

    def refuse(self) -> None:
        """Record that the store has refused the last put."""
        *others, last = self._pending
        self._pending = (*others, replace(last, is_refused=True))

    def end(self, keys: Collection[str]) -> None:
        """Record that no put on the heads of some keys can land any more."""
        self._pending = tuple(put for put in self._pending if put.key not in keys)

    def take_back(self) -> None:
        """Forget the last put: the store reports that it has not landed."""
        self._pending = self._pending[:-1]


def most_requests_of(store: Store) -> int:
    """Return how many independent requests of a commit are sent at once."""
    return 1 if store.is_near else _REQUESTS_AT_ONCE


def put_head(
    store: Store, head: Head, new: State, every: Sequence[Swaps], *, is_remembered: bool
) -> bool:
    """Put the next head under the condition of the current one.

    Args:
        store: The store that holds the dataset.
        head: The current head.
        new: The next state.
        every: The attempts of all commits that the put makes visible.
        is_remembered: Whether the next read of this process may find the state in its cache.

    Returns:
        False if the race was lost, or if the head is not confirmed.

    Raises:
        StorageError: If retryable, the put may land.

    Cost:
        One conditional PUT; one DELETE if there is a second head that is out of date.
    """
    if not _is_valid(head):
        return False
    data = encode_head(to_document(new), new.head_format)
    for swaps in every:
        swaps.begin(head, new)
    try:
        etag = store.replace(head.key, data, if_match=head.etag)
    except PreconditionFailedError:
        # Either refused, or landed by a put that was repeated on its way: the next look decides.
        for swaps in every:
            swaps.refuse()
        return False
    except StorageError as exc:
        if not exc.retryable:
            for swaps in every:
                swaps.take_back()
        raise
    note_commit(store.uri, new.layout.name)
    if is_remembered:
        remember(store, head.key, etag, new)
    replaced = [head.key]
    if head.stale is not None and remove_or_leave(store, head.stale):
        replaced.append(head.stale.key)
    for swaps in every:
        swaps.end(replaced)
    return True


def _is_valid(head: Head) -> bool:
    """Return whether commits may follow a head: an unconfirmed one may be of a dropped dataset."""
    return not head.state.is_unconfirmed


def successor(store: Store, state: State, terms: Terms, written: list[str]) -> State:
    """Return the state after one change, to be named by the head; see `Succession`."""
    following = Succession(store, state, written)
    following.add(terms)
    return following.finish()


class Succession:
    """The versions that one put of the head makes, one after the other.

    Attributes:
        first: The state before them.
        state: The state after those that were added so far; after `finish`, the one to put.
        entries: The entries of these versions.
        spoiled: Keys of objects that were written for changes that could not be added.
    """

    def __init__(
        self, store: Store, state: State, written: list[str], merges: Merges | None = None
    ) -> None:
        """Begin with a state.

        Args:
            store: The store that holds the dataset.
            state: The current state.
            written: Receives the key of each segment before it is written.
            merges: The segments that earlier attempts have merged.

        Cost:
            Nothing; the history if another tool has changed the files.
        """
        self.first = self.state = state
        self.entries: list[Entry] = []
        self.spoiled: list[str] = []
        self._store = store
        self._written = written
        self._merges = merges or Merges()
        self._now = dt.datetime.now(dt.UTC)
        self._changes: list[Change] = []
        self._foreign = foreign_entry(store, state)
        if self._foreign is not None:
            unmet = unmet_after(
                state.unmet, state.descriptor.checks, self._foreign.checks, replaces_all=False
            )
            self.state = replace(
                state,
                version=self._foreign.version,
                committed_at=self._foreign.committed_at,
                unmet=unmet,
            )
        self._before = self.state

    def add(self, terms: Terms) -> Entry:
        """Make the next version, and return its entry; if that fails, nothing was added.

        Args:
            terms: The terms with the change, already checked for conflicts.

        Cost:
            For a large commit to a tree, a PUT for each of its leaves. A change that replaces files
            in a dataset of up to `MOST_COUNTED_FILES` also reads the file table.
        """
        store, state, written = self._store, self.state, self._written
        count = len(written)
        if self._foreign is not None:
            conflicts.check_foreign_loss(self.first, self._foreign, terms.change)
        try:
            own, changes = [], []
            if terms.change.head is HeadKind.TREE and state.head_format is not HeadFormat.MSGPACK:
                raise conflicts.moved_meanwhile(terms.base, state)
            if terms.change.head is HeadKind.DOCUMENT and state.is_tree:
                from lakebed.state.tree.planting import to_listing

                state = to_listing(store, state, written)
            settled = _change_for(store, state, terms, written, self.entries)
            facts = terms.facts
            for change in (*terms.change.earlier, settled):
                following, entry = apply(state, change, self._now)
                if state.is_tree:
                    # Most datasets have no tree: a commit to them must not import it.
                    from lakebed.state.tree.tree_commit import entered, new_facts

                    if not facts and settled.edits:  # those of all versions are in its objects
                        tables = new_facts(store, settled)
                        facts = file_table.joined(tables) if tables else None
                    following, entry = entered(
                        store, state, following, change, entry, facts, written
                    )
                else:
                    entry = _counted(store, state, entry)
                own.append(entry)
                changes.append(change)
                state = following
        except LakebedError:
            self.spoiled += written[count:]
            raise
        self.state = state
        self.entries += own
        self._changes += changes
        return own[-1]

    def finish(self) -> State:
        """Write the segments of the versions that were added, and return the state to put.

        Cost:
            One PUT for the history, one for the runs if there are any to record, the merges of
            lists that have become too long, and the index files of other tools that are kept up.
        """
        tasks: tuple[Callable[[], State], ...] = (self._with_indices, self._with_lists)
        of_indices, of_lists = at_once(lambda task: task(), tasks, most_requests_of(self._store))
        state = of_lists
        if of_indices is not self.state:  # most datasets have no index files of other tools
            state = replace(state, indices=of_indices.indices)
        if self._changes[-1].head is HeadKind.TREE and not state.is_tree:
            from lakebed.state.tree.planting import to_tree

            state = to_tree(self._store, state, self._written)
        self.state = state
        return state

    def _with_indices(self) -> State:
        """Keep up the index files of other tools."""
        state, own = self.state, self.entries
        if state.is_tree or not any(entry.added or entry.removed for entry in own):
            return state
        indices = index_files.kept_up(
            self._store, self._before, state, self._changes, own, self._written
        )
        return state if indices == state.indices else replace(state, indices=indices)

    def _with_lists(self) -> State:
        """Write the segments of the lists."""
        state = self.state
        entries = [] if self._foreign is None else [self._foreign]
        for change in self._changes:
            if change.erases or change.rewritten_sources:
                lists = lists_without(self._store, state, change, self._written)
                state = replace(state, lists=lists)
                entries = [entry_without(entry, change.erases) for entry in entries]
        entries += self.entries
        return _with_segments(self._store, state, entries, self._written, self._merges)


def _counted(store: Store, state: State, entry: Entry) -> Entry:
    """Return an entry with the row count of the removed files, unless the entry implies it.

    The file table of a large dataset is not read for it: a commit should not wait for that.

    Args:
        store: The store that holds the dataset.
        state: The state before the change.
        entry: The entry of the change.
    """
    is_known = entry.removed_row_count is not None or entry.operation in history.REWRITING
    if not entry.removed or is_known or _is_too_large_to_count(state):
        return entry
    labels = pa.array(entry.removed, pa.large_string())
    known = file_table.find(store, state.lists.files, labels, {}).row_count
    return msgspec.structs.replace(entry, removed_row_count=known_total(known.to_pylist()))


def _is_too_large_to_count(state: State) -> bool:
    return sum(segment.weight for segment in state.lists.files) > MOST_COUNTED_FILES


def foreign_entry(store: Store, state: State) -> Entry | None:
    """Return an entry for changes by other tools since our last commit; None if there are none."""
    if not state.is_changed_by_others:
        return None
    past = history.replay(history.read(store, state.lists.history), state.version)
    return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)


def _change_for(
    store: Store, state: State, terms: Terms, written: list[str], pending: Sequence[Entry]
) -> Change:
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
        scope=_scope_for(store, state, change.scope, pending),
    )
    if isinstance(settled.scope, RunFiles):
        facts: pa.Table | list[Segment] | None = terms.facts
        if facts is None:
            facts = [one for edit in settled.edits if edit.name == FILES for one in edit.added]
        is_large = _is_too_large_to_count(state)
        check_rerun(store, state, settled.scope, settled.added, facts, is_large=is_large)
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


def _scope_for(store: Store, state: State, scope: Scope, pending: Sequence[Entry]) -> Scope:
    """Return a scope with the files of its run, those of versions before it in the put included."""
    if not isinstance(scope, RunFiles) or not scope.replaces:
        return scope
    known = runs.with_noted(runs.read(store, state.lists), pending)
    known.check_replaceable(state.name, scope.run, state.live)
    return replace(scope, labels=frozenset(known.live_files_of(scope.run, state.live)))


def _with_segments(
    store: Store, state: State, entries: Sequence[Entry], written: list[str], merges: Merges
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
    return replace(state, lists=merged_ends(store, state, lists, written, merges))


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


def _part(store: Store, name: str, segment: Segment) -> StoredObject:
    """Return the object of a segment that is merged; this process may have written it lately."""
    if name == HISTORY:
        return store.get(segment.key)  # with the time of storage
    return StoredObject(key=segment.key, data=cached_get(store, segment.key), etag="")


class Merges:
    """Segments that earlier attempts of a commit have merged; they stand for the same parts.

    Attributes:
        most: Number of segments that a list may have before its end is merged. A first attempt
            merges what is due; later ones do so only if a list is very long, since other writers
            win the race meanwhile.
    """

    def __init__(self) -> None:
        self.most = 0
        self._merged: list[tuple[Segments, Segment]] = []

    def begin_again(self) -> None:
        """Begin another attempt."""
        self.most = _MOST_UNMERGED * segments.FANOUT

    def applied_to(self, listed: Segments) -> Segments:
        """Return a list in which segments that were merged before are replaced."""
        for parts, merged in self._merged:
            for at in range(len(listed) - len(parts) + 1):
                if listed[at : at + len(parts)] == parts:
                    listed = (*listed[:at], merged, *listed[at + len(parts) :])
                    break
        return listed

    def note(self, before: Segments, after: Segments) -> None:
        """Record a merge of the end of a list."""
        if len(after) < len(before):
            self._merged.append((before[len(after) - 1 :], after[-1]))


def merged_ends(
    store: Store, state: State, lists: Lists, written: list[str], merges: Merges
) -> Lists:
    """Merge the end of each list whose levels are full, within the time that a commit may take.

    Args:
        store: The store that holds the dataset.
        state: The state that is about to be committed, whose lists may be older.
        lists: Its lists.
        written: Receives the key of each merged segment before it is written.
        merges: The merges of earlier attempts; receives those that are made.

    Returns:
        The lists to name in the head. A list that cannot be merged stays unchanged.

    Cost:
        Nothing, or one GET a merged segment and one PUT for each list that has become too long.
    """
    types = state.layout.file_column_types
    threads = most_requests_of(store)

    def merged_end(name: str, listed: Segments) -> Segments:
        column = column_of(name)
        if column is not None:
            kind = type_to_arrow(types[column])
            return compact_list(store, state.name, column, listed, kind, written)
        codec = CODECS[name]

        def merge(tail: Sequence[Segment]) -> EncodedSegment:
            parts = list(at_once(partial(_part, store, name), tail, threads))
            weight = sum(segment.weight for segment in tail)
            merged = Segment.new(codec.folder(state.name), weight, codec.SUFFIX)
            return EncodedSegment(merged, codec.merge(parts))

        find_due = history.find_due if name == HISTORY else due_end
        return compact(store, listed, merge, written, find_due=find_due)

    def settled_end(item: tuple[str, Segments]) -> Segments:
        name, listed = item
        if name in in_tree:
            return listed
        known = merges.applied_to(listed)
        if len(known) < merges.most:
            return known
        merged = merged_end(name, known)
        merges.note(known, merged)
        return merged

    in_tree = (HISTORY, FILES) if state.is_tree else ()  # folds merge these
    items = list(lists.items())
    ends = at_once(settled_end, items, threads)
    return Lists.by_name({name: end for (name, _), end in zip(items, ends, strict=True)})
