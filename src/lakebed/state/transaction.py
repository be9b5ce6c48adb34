"""The transaction: reserve, stage, complete, commit.

`commit` puts one object under a condition. A stable commit id makes it safe to try again: before
a lost race or a lost answer is called a conflict, the history is asked for the id.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
)
from lakebed.index.merge import compact_list
from lakebed.index.postings import keys_of, postings_in
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import check_update
from lakebed.model.keys import schema_number_of
from lakebed.model.layout import Folder
from lakebed.model.schema import Schema
from lakebed.state import conflicts, file_table, history
from lakebed.state import runs as run_list
from lakebed.state import sources as source_list
from lakebed.state.caps import caught_in
from lakebed.state.conflicts import Read
from lakebed.state.creation import first_segment
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.moving import read_settled_head, remove_leftover, remove_or_leave
from lakebed.state.protections import check_readable, is_readable
from lakebed.state.reader import Head, read_head, remember
from lakebed.state.reservation import (
    LEASE,
    ManifestFile,
    Reservation,
    ScopeNote,
    Staging,
    reserve,
)
from lakebed.state.scope import Nothing, RunFiles, Scope
from lakebed.state.sources import Sources
from lakebed.state.state import (
    CREATION,
    Change,
    State,
    adopt,
    apply,
    descriptor_from,
    to_document,
)
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment, compact, of_contents

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


_UPDATES = 5  # so often an edit is applied to a descriptor that others have just changed


class Transaction:
    """One batch on its way to being visible.

    `begin` reserves the batch id. The caller writes data files under it, then calls `commit`
    once, or `abort`. Until then nothing refers to the files.
    """

    def __init__(
        self,
        store: Store,
        head: Head,
        operation: str,
        run: str | None,
        options: CommitOptions,
        base: State | None = None,
    ) -> None:
        self._store = store
        self._base = base or head.state
        self._operation = operation
        self._run = run
        self._options = options
        self._commit_id = uuid.uuid4().hex
        self._owns_batch = True
        self._reservation: Reservation = reserve(
            store,
            head.state.name,
            # Also above what a cleanup has shut out, however far this clock is behind.
            above=max(head.state.last_batch_id, head.state.oldest_batch),
            lease=options.lease,
            commit_id=self._commit_id,
            operation=operation,
            run=run,
        )

    @classmethod
    def begin(
        cls,
        store: Store,
        dataset: str,
        operation: str,
        *,
        run: str | None = None,
        options: CommitOptions | None = None,
        base: State | None = None,
    ) -> Transaction:
        """Read the head and reserve a batch id.

        Args:
            store: Where the dataset is.
            dataset: Its name.
            operation: For the history.
            run: Name of the run, if it has one.
            options: How long to fight for the head.
            base: A state that the head had earlier, on which the transaction is based; None for
                the one that it has now.

        Raises:
            DatasetNotFoundError: There is no such dataset.
            ReadOnlyError: Another tool created the dataset, or the store cannot swap.

        Cost:
            A read of the head and one PUT.
        """
        head = read_own_head(store, dataset)
        return cls(store, head, operation, run, options or CommitOptions(), base)

    @property
    def base(self) -> State:
        """The state that the transaction is based on."""
        return self._base

    @property
    def batch_id(self) -> int:
        """The reserved batch id."""
        return self._reservation.batch_id

    @property
    def commit_id(self) -> str:
        """Names the commit, whatever happens to it."""
        return self._commit_id

    def commit(
        self,
        facts: pa.Table,
        scope: Scope,
        sources: Sources | None = None,
        *,
        carried: Mapping[str, str] | None = None,
        descriptor: DatasetDescriptor | None = None,
        deleted_row_count: int = 0,
        reads: Sequence[Read] = (),
    ) -> Entry:
        """Make the batch visible.

        Args:
            facts: Of every file that was staged; see `lakebed.state.facts`.
            scope: The partitions that the batch replaces.
            sources: Which raw files the rows are of, if that is to be known.
            carried: By label of a file whose rows were there before: the run that wrote them,
                where it has a name. No file holds rows of several runs.
            descriptor: What the dataset is from now on, of the same schema; None if it stays as
                it is.
            deleted_row_count: Entities that are deleted by it.
            reads: What else the batch rests on.

        Returns:
            The entry in the history.

        Raises:
            CommitConflictError: A commit since the base changed a partition in the scope or
                read in one of the raw files, or one since a read changed what was read, or the
                race was lost until the deadline. The staged files have been deleted.
            CommitUnknownError: The store stopped answering. Nothing has been deleted.
            StorageError: The store failed before the batch could become visible. The staged
                files have been deleted, as far as the store let them.

        Cost:
            Three PUTs (manifest, facts, history entry), one conditional PUT, and a read of the
            head for each attempt.
        """
        labels, rows = self._labels_and_rows(facts)
        segment = file_table.new_segment(self._base.name, facts)
        postings = postings_in(facts)
        noted = None if sources is None else source_list.new_segment(self._base.name, sources)
        change = Change(
            operation=self._operation,
            commit_id=self._commit_id,
            base_version=self._base.version,
            batch_id=self.batch_id,
            run=self._run,
            added=labels,
            row_count=rows,
            deleted_row_count=deleted_row_count,
            caught=caught_in(facts),
            facts=segment,
            sources=noted,
            postings=postings,
            scope=scope,
            carried=carried or {},
            descriptor=descriptor,
            lineage=self._base.lineage,
        )
        attempts = _Attempts(self._store, self._base, change, self._options, sources, reads=reads)
        try:
            attempts.learn_runs()
            self._complete(facts)
            if segment is not None:
                self._store.put(segment.key, file_table.encode(facts.replace_schema_metadata(None)))
            if noted is not None and sources is not None:
                self._store.put(noted.key, source_list.encode(sources))
            return attempts.run()
        except CommitUnknownError:
            raise
        except LakebedError:
            # Every other error proves that no head refers to what was written.
            own_segments = [one.key for one in (segment, noted) if one is not None]
            self.abort(facts, others=[*own_segments, *attempts.unused_segments])
            raise

    def _complete(
        self,
        facts: pa.Table,
        staging: Staging | None = None,
        lease: dt.timedelta | None = None,
    ) -> None:
        try:
            self._reservation.complete(_manifest(facts), staging=staging, lease=lease)
        except PreconditionFailedError as exc:
            raise self._taken_away() from exc

    def _taken_away(self) -> CommitConflictError:
        self._owns_batch = False
        state = read_head(self._store, self._base.name).state
        conflicts.check_same_dataset(self._base, state)
        return CommitConflictError(
            f"Batch {self.batch_id} of {self._base.name!r} was taken away from its writer: "
            f"{conflicts.outlasted(self._options.lease)}",
            hint=conflicts.LONGER_LEASE,
            expected=self._base.version,
            actual=state.version,
        )

    def stage(
        self, facts: pa.Table, scope: Scope, lease: dt.timedelta, base: State | None = None
    ) -> None:
        """Note what was written, so that anybody can commit it later; nothing becomes visible.

        Args:
            facts: Of every file; see `lakebed.state.facts`.
            scope: What the batch is to replace.
            lease: How long from now on it is kept.
            base: From which on other commits conflict with that of the batch; None for the base
                of the transaction.

        Raises:
            CommitConflictError: A cleanup has taken the writer for dead; what was written has
                been deleted.
            StorageError: The store failed. What was written has been deleted, unless the batch
                may be staged, because only an answer was lost.

        Cost:
            Two PUTs; the history if another tool has changed the base.
        """
        _, rows = self._labels_and_rows(facts)
        segment = file_table.new_segment(self._base.name, facts)
        noted = ScopeNote.of(scope)
        base = base or self._base
        try:
            conflicts.check_same_dataset(base, self._base)
            # An append conflicts with nothing, whoever did it.
            foreign = None if isinstance(scope, Nothing) else _foreign_entry(self._store, base)
            staging = Staging(
                created_at=base.created_at,
                base_version=base.version,
                staged_at=dt.datetime.now(dt.UTC),
                row_count=rows,
                scope=noted,
                facts=None if segment is None else segment.key,
                postings={
                    column: tuple(one.key for one in segments)
                    for column, segments in postings_in(facts).items()
                },
                caught=caught_in(facts),
                foreign_added=foreign.added if foreign else (),
                foreign_removed=foreign.removed if foreign else (),
            )
            if segment is not None:
                self._store.put(segment.key, file_table.encode(facts.replace_schema_metadata(None)))
            self._complete(facts, staging, lease)
        except LakebedError as exc:
            # Should the manifest have landed, somebody may have found the batch and committed it.
            if self._reservation.give_up():
                self.abort(facts, others=[] if segment is None else [segment.key])
            else:
                exc.add_note(f"Batch {self.batch_id} may be staged nevertheless; see staged().")
            raise

    def _labels_and_rows(self, facts: pa.Table) -> tuple[tuple[str, ...], int]:
        labels, rows = file_table.labels_and_rows(facts)
        current = self._base.lineage.number
        if any(schema_number_of(label, newest=current) not in (None, current) for label in labels):
            # Files of a wrong number would read as other values than were written.
            message = f"Files were staged for another schema than {current}: see BatchTarget."
            raise TypeError(message)
        return labels, rows

    def keep_alive(self) -> None:
        """Renew the lease once half of it is over; a long write calls it now and then.

        Raises:
            CommitConflictError: A cleanup has taken the writer for dead.
            StorageError: The store failed, and nothing is left of the lease.

        Cost:
            Nothing, or one PUT.
        """
        try:
            self._reservation.renew_if_due(self._options.lease)
        except PreconditionFailedError as exc:
            raise self._taken_away() from exc

    def discard(self, *written: pa.Table, others: Sequence[str] = ()) -> bool:
        """Delete a part of what was staged, and go on; see `abort`.

        Returns:
            Whether all of it could be deleted.
        """
        keys = [*others]
        for facts in written:
            keys += [self._base.layout.key(label) for label in facts.column("label").to_pylist()]
            keys += keys_of(postings_in(facts))
        return delete_or_leave(self._store, keys)

    def abort(self, *written: pa.Table, others: Sequence[str] = ()) -> None:
        """Delete what was staged; an object that cannot be deleted stays invisible garbage.

        Args:
            written: Facts of the files that were staged, with the postings that they carry.
            others: Keys of other objects that only this transaction knows.
        """
        if self.discard(*written, others=others) and self._owns_batch:
            delete_or_leave(self._store, [self._reservation.key])


def read_own_head(store: Store, dataset: str) -> Head:
    head = read_head(store, dataset)
    if not head.state.is_ours:
        raise ReadOnlyError(
            f"Dataset {dataset!r} was not created by Lakebed, so that it has no batches.",
            hint="It can be read; create a dataset of your own and append its rows there.",
        )
    return head


def _manifest(facts: pa.Table) -> tuple[ManifestFile, ...]:
    names = ("label", "row_count", "size_bytes", "checksum")
    columns = [facts.column(name).to_pylist() for name in names]
    return tuple(ManifestFile(*row) for row in zip(*columns, strict=True))


class _Attempts:
    """The loop around the conditional put."""

    def __init__(
        self,
        store: Store,
        base: State,
        change: Change,
        options: CommitOptions,
        sources: Sources | None = None,
        *,
        reads: Sequence[Read] = (),
        only_on: State | None = None,
        staged_until: dt.datetime | None = None,
    ) -> None:
        self._store = store
        self._base = base
        self._change = change
        self._sources = sources
        self._reads = list(reads)
        self._only_on = only_on
        self._staged_until = staged_until
        self._options = options
        self._seen_version = base.version
        # Etags, by key, of the heads under which a put of ours may still land, or has landed.
        self._pending: dict[str, str] = {}
        # What kept the last attempt from being decided, if it was the store.
        self._trouble: StorageError | None = None
        # Segments that only heads name which did not win.
        self.unused_segments: list[str] = []
        # What the head said right after the commit; None if it was not seen.
        self.made: State | None = None

    def learn_runs(self) -> None:
        """Read which run wrote what, where it matters who has touched what a run wrote."""
        for place, read in enumerate(self._reads):
            if isinstance(read.scope, RunFiles):
                known = run_list.read(self._store, self._base)
                self._reads[place] = replace(read, runs=known)

    def run(self) -> Entry:
        deadline = time.monotonic() + self._options.deadline_s
        attempt = 0
        while True:
            attempt += 1
            is_late = attempt > 1 and time.monotonic() >= deadline
            entry = self._once_or_trouble(attempt, is_late=is_late)
            if entry is not None:
                self._log_commit(entry, attempt)
                return entry
            wait_s = min(self._wait_s(attempt), max(0.0, deadline - time.monotonic()))
            _log.warning(
                "commit retries dataset=%s attempt=%d wait_ms=%.0f",
                self._base.name,
                attempt,
                wait_s * 1000,
            )
            time.sleep(wait_s)

    def _once_or_trouble(self, attempt: int, *, is_late: bool) -> Entry | None:
        """Try once, and decide what an error means while a put of ours may still land."""
        try:
            entry = self._once(attempt, is_late=is_late)
        except DatasetNotFoundError:
            raise  # a put under a condition does not land where nothing is
        except StorageError as exc:
            if not self._pending and (is_late or not exc.retryable):
                raise
            if is_late or not exc.retryable:
                raise self._unknown(exc) from exc
            self._trouble = exc
            return None
        except LakebedError as exc:
            if not self._pending:
                raise
            raise self._unknown(exc) from exc
        self._trouble = None
        return entry

    def _log_commit(self, entry: Entry, attempt: int) -> None:
        _log.info(
            "committed dataset=%s version=%d operation=%s batch_id=%s rows=%d attempt=%d",
            self._base.name,
            entry.version,
            entry.operation,
            entry.batch_id,
            entry.row_count,
            attempt,
        )

    def _wait_s(self, attempt: int) -> float:
        limit_ms = min(
            self._options.first_wait_ms * 2.0 ** min(attempt - 1, 30),
            self._options.longest_wait_ms,
        )
        return random.uniform(0, limit_ms) / 1000

    def _unknown(self, cause: LakebedError) -> CommitUnknownError:
        return CommitUnknownError(
            f"The store did not say what became of commit {self._change.commit_id} to "
            f"{self._base.name!r}: {cause.message}",
            hint="Look for this commit id in the dataset's history before writing again.",
            commit_id=self._change.commit_id,
        )

    def _lost(self, attempts: int) -> LakebedError:
        if self._trouble is not None:
            return self._trouble
        return CommitConflictError(
            f"Commit to {self._base.name!r} lost {attempts} races for the head in "
            f"{self._options.deadline_s:g} s.",
            hint="Use fewer writers at a time, or a longer deadline.",
            expected=self._base.version,
            actual=self._seen_version,
        )

    def _once(self, attempt: int, *, is_late: bool) -> Entry | None:
        """Try once; None if the race was lost.

        The order matters: first look for our own commit, then for conflicts. So the last look
        comes after the last put, and what it does not find has not landed.
        """
        head = read_settled_head(self._store, self._base.name)
        self._seen_version = head.state.version
        try:
            conflicts.check_same_dataset(self._base, head.state)
        except CommitConflictError:
            self._settle(head)  # the head that a put was meant for is gone, or stands beside
            raise
        since = self._entries_since(head.state)
        for entry in since:
            if entry.commit_id == self._change.commit_id:
                self.made = head.state if head.state.version == entry.version else None
                return entry
        self._settle(head)
        if is_late:
            raise self._lost(attempt - 1)
        self._check_conflicts(since, head.state)
        return self._swap(head, _foreign_entry(self._store, head.state))

    def _settle(self, head: Head) -> None:
        """Note what the absence of our commit proves of the attempts before."""
        now = {one.key: one.etag for one in (head, head.stale) if one is not None}
        # A condition that does not hold can never hold again; a head that has moved is gone.
        self._pending = {key: etag for key, etag in self._pending.items() if now.get(key) == etag}
        self._delete_unused_segments()

    def _entries_since(self, state: State) -> tuple[Entry, ...]:
        """Return what was committed since the base, and since what was read before."""
        oldest = min((self._base.version, *(read.state.version for read in self._reads)))
        if state.version == oldest:
            return ()
        return history.read(self._store, state.history, after=oldest)

    def _check_conflicts(self, since: Sequence[Entry], state: State) -> None:
        change = self._change
        conflicts.check_in_time(self._base, state, change, self._options.lease, self._staged_until)
        if change.restores is not None and not is_readable(state, change.restores):
            check_readable(state, history.read(self._store, state.history), change.restores)
        self._check_sources(state)
        conflicts.check(self._base, state, since, change, self._reads)
        if self._only_on is not None:
            conflicts.check_unchanged(self._only_on, state, change)

    def _check_sources(self, state: State) -> None:
        """Check that nobody else has read in the same raw files: rows would come twice."""
        if self._sources is None:
            return
        base, mine = self._base, self._sources
        other = source_list.changed_meanwhile(self._store, base.sources, state.sources, mine)
        if other is not None:
            raise CommitConflictError(
                f"{self._change.operation} of {base.name!r}, based on version {base.version}, "
                f"conflicts with {other}.",
                hint="Run it again: it takes what is left.",
                expected=base.version,
                actual=state.version,
            )

    def _swap(self, head: Head, foreign: Entry | None) -> Entry | None:
        now = dt.datetime.now(dt.UTC)
        state = head.state
        if foreign is not None:
            state = replace(state, version=foreign.version, committed_at=foreign.committed_at)
        entries = [foreign] if foreign else []
        for change in (*self._change.earlier, self._change_for(state)):
            state, entry = apply(state, change, now)
            entries.append(entry)
        new = state
        written: list[str] = []
        has_won = False
        try:
            new = self._with_segments(new, entries, written)
            has_won = self._replace(head, new)
        finally:
            if not has_won:
                self.unused_segments += written
        if not has_won:
            return None
        self.made = new
        self._tidy(head)
        return entry

    def _change_for(self, state: State) -> Change:
        """Return the change without what it knows of fields that are others by now.

        A field that was dropped and added again has its old name, and in files of the base's
        schema other values than the new field. Index files are of one schema, as `apply` has it.
        """
        base, change = self._base.lineage.number, self._change
        postings = {
            column: segments
            for column, segments in change.postings.items()
            if not state.lineage.lacks(column, base)
        }
        indices = {
            column: key
            for column, key in change.indices.items()
            if state.lineage.number == base and column in state.descriptor.index
        }
        return replace(change, postings=postings, indices=indices, scope=self._scope_for(state))

    def _scope_for(self, state: State) -> Scope:
        scope = self._change.scope
        if not isinstance(scope, RunFiles) or not scope.replaces:
            return scope
        known = run_list.read(self._store, state)
        return RunFiles(scope.run, frozenset(run_list.live_files_of_run(state, known, scope.run)))

    def _tidy(self, head: Head) -> None:
        """Delete what the head that has just won makes useless."""
        if head.stale is not None and remove_or_leave(self._store, head.stale):
            self._pending.pop(head.stale.key, None)
        self._pending.pop(head.key, None)
        self._delete_unused_segments()

    def _delete_unused_segments(self) -> None:
        if self.unused_segments and not self._pending:
            delete_or_leave(self._store, self.unused_segments)
            self.unused_segments.clear()

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
        if self._change.descriptor is None:
            remember(self._store, head.key, etag, new)
        return True

    def _with_segments(self, new: State, entries: Sequence[Entry], written: list[str]) -> State:
        """Write the history entry, and merge what has become too long."""
        name = new.name
        first = Segment.new(history.folder(name), len(entries), history.SUFFIX)
        written.append(first.key)
        self._store.put(first.key, history.encode_entries(entries))
        noted = run_list.to_note(self._store, new, entries)
        if noted.batches or noted.carried:
            segment = run_list.new_segment(name, noted)
            written.append(segment.key)
            self._store.put(segment.key, run_list.encode(noted))
            new = replace(new, runs=(*new.runs, segment))
        lists = [
            compact(self._store, segments, merge, module.folder(name), module.SUFFIX, written)
            for segments, module, merge in (
                ((*new.history, first), history, history.merge),
                (new.files, file_table, of_contents(file_table.merge)),
                (new.sources, source_list, of_contents(source_list.merge)),
                (new.runs, run_list, of_contents(run_list.merge)),
            )
        ]
        new = replace(new, history=lists[0], files=lists[1], sources=lists[2], runs=lists[3])
        return replace(new, postings=self._compact_postings(new, written))

    def _compact_postings(self, new: State, written: list[str]) -> dict[str, tuple[Segment, ...]]:
        types = new.descriptor.column_types
        return {
            column: compact_list(
                self._store, new.name, column, segments, type_to_arrow(types[column]), written
            )
            for column, segments in new.postings.items()
        }


def _foreign_entry(store: Store, state: State) -> Entry | None:
    """Return the entry for what other tools have changed since our last commit, if they have."""
    if not state.is_changed_by_others:
        return None
    past = history.replay(history.read(store, state.history), state.version)
    return adopt(state, past.labels, dt.datetime.now(dt.UTC), uuid.uuid4().hex)


Edit = Callable[[DatasetDescriptor], DatasetDescriptor]
"""Says what changes in a descriptor, whichever it is: it may be asked several times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What became of an update.

    Attributes:
        entry: In the history; of the current version if the descriptor is what it was.
        base: The state that the change was based on.
        descriptor: What the dataset is now.
    """

    entry: Entry
    base: State
    descriptor: DatasetDescriptor

    @property
    def made(self) -> State:
        """The state to make the next descriptor from; of it only what it is, not what it holds."""
        lineage = self.base.lineage.after(self.base.descriptor, self.descriptor)
        return replace(self.base.as_of(self.descriptor, lineage), version=self.entry.version)


def update(
    store: Store,
    dataset: str,
    edit: Edit,
    options: CommitOptions | None = None,
    *,
    made_from: State | None = None,
) -> Update:
    """Change what a dataset is.

    Args:
        store: Where it is.
        dataset: Its name.
        edit: What it shall be, made of what it is.
        options: How long to fight for the head.
        made_from: The state whose descriptor the new one was made from: no other update may have
            come since. None for an edit that is right for every descriptor, and so is applied
            anew after another update.

    Raises:
        InvalidInputError: The rules of evolution do not allow it; nothing has changed.
        CommitConflictError: Somebody else changed the descriptor meanwhile, again and again where
            the edit was applied anew, or the race was lost until the deadline; nothing has
            changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A read of the head and of the whole history, one PUT, one conditional PUT.
    """
    for left in reversed(range(_UPDATES)):
        base = read_own_head(store, dataset).state
        descriptor = edit(base.descriptor)
        if not isinstance(descriptor, DatasetDescriptor):
            raise InvalidInputError(
                f"Dataset {dataset!r} cannot become a {type(descriptor).__name__}.",
                hint="Give a DatasetDescriptor, or a function that takes one and returns one.",
            )
        if descriptor == base.descriptor:
            last = history.read(store, base.history, after=base.version - 1)[-1]
            return Update(entry=last, base=base, descriptor=descriptor)
        entries = history.read(store, base.history)
        if made_from is not None:
            conflicts.check_same_dataset(made_from, base)
            conflicts.check_descriptor_kept(made_from, base, entries, "update")
        check_update(base.descriptor, descriptor, _schemas(entries, dataset))
        change = Change(
            operation="update",
            commit_id=uuid.uuid4().hex,
            base_version=base.version,
            descriptor=descriptor,
            lineage=base.lineage.after(base.descriptor, descriptor),
        )
        try:
            entry = commit_change(store, base, change, options)
        except CommitConflictError:
            now = read_own_head(store, dataset).state
            is_outdated = (now.descriptor, now.lineage) != (base.descriptor, base.lineage)
            if made_from is not None or not is_outdated or not left:
                raise
        else:
            return Update(entry=entry, base=base, descriptor=descriptor)
    raise AssertionError  # the last round returned or raised


def commit_change(
    store: Store,
    base: State,
    change: Change,
    options: CommitOptions | None = None,
    *,
    sources: Sources | None = None,
    reads: Sequence[Read] = (),
    only_on: State | None = None,
    staged_until: dt.datetime | None = None,
) -> Entry:
    """Commit a change that brings no batch of its own, or one that was staged before.

    Args:
        store: Where the dataset is.
        base: The state that the change was computed from.
        change: What it does.
        options: How long to fight for the head.
        sources: What the segment of the change says of raw files.
        reads: What else the change rests on.
        only_on: The state that it may be committed on; None for any without a conflict.
        staged_until: When the lease of a batch ends that was staged before, for the error.

    Returns:
        The entry in the history.

    Raises:
        CommitConflictError: A commit since the base changed a partition in its scope or read in
            one of the raw files, or the race was lost until the deadline; nothing has changed.
        PreconditionFailedError: The dataset is no longer in the state that it may be committed
            on; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A read of the head for each attempt, one PUT, one conditional PUT.
    """
    attempts = _Attempts(
        store,
        base,
        change,
        options or CommitOptions(),
        sources,
        reads=reads,
        only_on=only_on,
        staged_until=staged_until,
    )
    return _run(store, attempts)


def commit_and_tell(
    store: Store, base: State, change: Change, options: CommitOptions | None = None
) -> tuple[Entry, State | None]:
    """Commit a change, and tell what the head said right after it; see `commit_change`.

    Returns:
        The entry in the history, and the state; None for that if an answer was lost and somebody
        has committed since.
    """
    attempts = _Attempts(store, base, change, options or CommitOptions())
    return _run(store, attempts), attempts.made


def _run(store: Store, attempts: _Attempts) -> Entry:
    try:
        return attempts.run()
    except CommitUnknownError:
        raise
    except LakebedError:
        delete_or_leave(store, attempts.unused_segments)
        raise


def _schemas(entries: Sequence[Entry], dataset: str) -> dict[int, Schema]:
    """Return every schema that a dataset ever had, by number."""
    found = {}
    for entry in entries:
        if entry.descriptor is not None:
            descriptor, lineage = descriptor_from(entry.descriptor, Folder.HISTORY.of(dataset))
            found[lineage.number] = descriptor.schema
    return found


_CREATE_WAITS_S = (0.0, 0.1, 0.4, 1.0)  # before each put of a first head


def create(store: Store, state: State) -> State:
    """Write the first head of a dataset, put-if-absent.

    Args:
        store: Where the dataset shall be.
        state: Without history; version 0.

    Returns:
        The state with its history.

    Raises:
        ObjectExistsError: The name is taken; nothing became visible.
        DatasetNotFoundError: It has been dropped in the same moment.
        CommitUnknownError: The store stopped answering; the dataset may exist or not.

    Cost:
        One PUT, two conditional PUTs, and up to three GETs.
    """
    written: dict[str, State] = {}
    try:
        return _create_head(store, state, written)
    except CommitUnknownError:
        raise
    except LakebedError:
        delete_or_leave(store, [one.key for first in written.values() for one in first.history])
        raise


def _with_history(store: Store, state: State, written: dict[str, State]) -> State:
    """Return a first state with the entry of its creation, which is stored and noted."""
    entry = Entry(
        version=0,
        commit_id=state.commit_id,
        operation="create",
        committed_at=state.committed_at or dt.datetime.now(dt.UTC),
        descriptor=state.descriptor.to_document(),
    )
    segment = first_segment(state)
    first = replace(state, history=(segment,))
    written[state.created_at] = first
    store.put(segment.key, history.encode_entries([entry]))
    return first


def _as_another(state: State) -> State:
    """Return a first state as that of another dataset, by the same commit.

    The head that was put before may have landed and been dropped since, and whoever drops it
    deletes its history, also while the next head is put.
    """
    created_at = dt.datetime.fromisoformat(state.created_at) + dt.timedelta(microseconds=1)
    return replace(state, created_at=created_at.isoformat())


def _create_head(store: Store, state: State, written: dict[str, State]) -> State:
    key = state.head_format.key(state.name)
    first = _with_history(store, state, written)
    trouble: StorageError | None = None
    for wait_s in _CREATE_WAITS_S:
        time.sleep(wait_s)
        etag = None
        try:
            if trouble is not None:
                first = _with_history(store, _as_another(first), written)
            document = to_document(replace(first, moved_from=CREATION))
            etag = store.create(key, encode_head(document, state.head_format))
        except ObjectExistsError:
            if _is_free(store, state) and remove_leftover(store, state.name, state.head_format):
                continue
            # Perhaps it is ours, from a put whose answer was lost.
        except StorageError as exc:
            if not exc.retryable and trouble is None:
                raise
            trouble = exc
            continue
        try:
            claimed = _claim_name(store, first, etag)
        except ObjectExistsError:
            # Where there is a commit, nobody looks for what has lost against it, nor commits to it.
            if etag is not None:
                store.delete_if_match(key, etag=etag)
            raise
        return written.get(claimed.state.created_at, first)
    raise _unknown_creation(state, trouble) from trouble


def _claim_name(store: Store, state: State, etag: str | None) -> Head:
    """Let the name be that of the dataset, also where others create it at the same time.

    The head has said so far that its creator may have overlooked another one. It has looked now,
    after it put its own; so whoever puts another one from now on sees that it came later.
    """
    trouble: StorageError | None = None
    for wait_s in _CREATE_WAITS_S:
        time.sleep(wait_s)
        head = _own_first_head(store, state, etag)
        if head.state.moved_from != CREATION:
            return (
                head  # from an answer that was lost; or somebody has committed to it, or moved it
            )
        data = encode_head(to_document(replace(head.state, moved_from="")), head.state.head_format)
        try:
            store.replace(head.key, data, if_match=head.etag)
        except (ObjectNotFoundError, PreconditionFailedError):
            continue  # others act on it: the next look tells what they have done
        except StorageError as exc:
            trouble = exc
            continue
        return head
    raise _unknown_creation(state, trouble) from trouble


def _own_first_head(store: Store, state: State, etag: str | None) -> Head:
    """Return the head of a dataset that is being created, unless another one has the name."""
    try:
        head = read_settled_head(store, state.name)
        if any(one is not None and not one.state.is_ours for one in (head, head.stale)):
            raise _taken(state)  # by another tool, which knows no such rules
        if head.state.commit_id == state.commit_id:
            return head
        entries = history.read(store, head.state.history)
    except DatasetNotFoundError as exc:
        if etag is None:
            raise _taken(state) from exc
        raise  # it was there, and was dropped again
    except StorageError as exc:
        raise _unknown_creation(state, exc) from exc
    except LakebedError as exc:
        # Something is damaged. What was just written is not, and somebody may have committed to it.
        raise (_taken(state) if etag is None else _unknown_creation(state, exc)) from exc
    if all(entry.commit_id != state.commit_id for entry in entries):
        raise _taken(state)
    return head


def _is_free(store: Store, state: State) -> bool:
    try:
        read_head(store, state.name)
    except DatasetNotFoundError:
        return True
    except LakebedError:
        return False
    return False


def _taken(state: State) -> ObjectExistsError:
    return ObjectExistsError(f"Dataset {state.name!r} was just created by somebody else.")


def _unknown_creation(state: State, cause: LakebedError | None) -> CommitUnknownError:
    return CommitUnknownError(
        f"The store did not say whether dataset {state.name!r} was created: "
        f"{cause.message if cause else 'no answer'}",
        hint="Open it, or create it again and let it be opened if it exists.",
        commit_id=state.commit_id,
    )


__all__ = ["CommitOptions", "Nothing", "Transaction", "commit_change", "create", "update"]
