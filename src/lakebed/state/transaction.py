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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.index.merge import compact_list
from lakebed.index.postings import keys_of, postings_in
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import schema_number_of
from lakebed.state import conflicts, file_table, history
from lakebed.state import runs as run_list
from lakebed.state import sources as source_list
from lakebed.state.caps import caught_in
from lakebed.state.codec import to_document
from lakebed.state.conflicts import Read
from lakebed.state.head import encode_head
from lakebed.state.history import Entry
from lakebed.state.moving import read_settled_head, remove_or_leave
from lakebed.state.readable import check_readable, is_readable
from lakebed.state.reader import Head, read_head, read_own_head, remember
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
from lakebed.state.state import Change, State, adopt, apply
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
            keys += [self._base.key(label) for label in facts.column("label").to_pylist()]
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
