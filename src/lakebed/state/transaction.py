"""The transaction: the objects written for one change, and the only way to commit to the head."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property, partial
from typing import Self

import msgspec

from lakebed.common.given import check_given, check_run_name
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    LakebedError,
    PreconditionFailedError,
)
from lakebed.model.keys import BatchIds, schema_number_of
from lakebed.state import conflicts, file_table, history
from lakebed.state import sources as source_list
from lakebed.state.after import Gathered, Pending, after_commit, before_commit, quarantine
from lakebed.state.check_results import require, total_of_checks
from lakebed.state.committing import CommitOptions, Committed, Swaps, foreign_entry
from lakebed.state.conflicts import Read, Terms
from lakebed.state.group_commit import commit_change
from lakebed.state.lists import Edit, Lists
from lakebed.state.past import base_as_of
from lakebed.state.reader import read_head, read_own_head
from lakebed.state.reservation import (
    BatchRecord,
    Reservation,
    ScopeNote,
    Staging,
    key_of,
    reserve,
)
from lakebed.state.scope import Nothing, RewrittenFiles, Scope
from lakebed.state.sources import Sources
from lakebed.state.state import Change, Epoch, State, epoch_of
from lakebed.state.written import Written, joined
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.cache import hold_object

_COMPACT = "compact"
_GATHERINGS = 3  # attempts of a commit that also gathers files; the last one gathers none


class Suspended(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that has reserved its batch, for another process to resume. Travels.

    Attributes:
        dataset: Name of the dataset.
        created_at: Time of creation of the dataset; it distinguishes a later dataset of the name.
        base_version: Version that the transaction is based on.
        foreign_added: Labels of files that other tools had added to that version by then.
        foreign_removed: Labels of files that other tools had removed from it by then.
        record: Record of the batch.
        etag: Etag of the reservation.
    """

    dataset: str
    created_at: str
    base_version: int
    record: BatchRecord
    etag: str
    foreign_added: tuple[str, ...] = ()
    foreign_removed: tuple[str, ...] = ()


class _Condition(Enum):
    OPEN = "nothing refers to the written objects"
    KEPT = "a head or another process may refer to them"
    OVER = "the written objects are deleted"


@dataclass(frozen=True, slots=True)
class _Brought:
    """The segments of a commit besides data files: their facts, and the records of raw files.

    Attributes:
        written: The data files.
        sources: The records of raw files; None if there are none.
        lists: The segments of both, and the postings.
    """

    written: Written
    sources: Sources | None
    lists: Lists

    @classmethod
    def of(cls, base: State, written: Written, sources: Sources | None) -> Self:
        """Name the segments; `put` writes them. A tree holds the facts in its root."""
        dataset = base.name
        if sources is not None or written.origins:
            sources = msgspec.structs.replace(sources or Sources(), runs=dict(written.origins))
        facts = None if base.is_tree else file_table.new_segment(dataset, written.facts)
        noted = None if sources is None else source_list.new_segment(dataset, sources)
        lists = Lists(
            files=(facts,) if facts else (),
            sources=(noted,) if noted else (),
            postings=dict(written.postings),
        )
        return cls(written, sources, lists)

    @property
    def keys(self) -> list[str]:
        """Keys of the segments that `put` writes."""
        return [segment.key for segment in (*self.lists.files, *self.lists.sources)]

    def puts(self, store: Store) -> list[Callable[[], None]]:
        """Return functions that write the facts and the records of raw files.

        The commit may merge these segments while they are written, so the cache has them before.

        Cost:
            One PUT each, if there are any.
        """
        encoded = [
            (segment.key, file_table.encode(self.written.facts)) for segment in self.lists.files
        ]
        for segment in self.lists.sources:
            assert self.sources is not None  # otherwise it has no segment
            encoded.append((segment.key, source_list.encode(self.sources)))
        for key, data in encoded:
            hold_object(store, key, data)
        return [partial(store.put, key, data) for key, data in encoded]


class Transaction:
    """A change of a dataset that is not yet visible, and all objects that were written for it.

    A context manager. At the end of the block, the objects are deleted unless they are committed or
    staged, or may be. Other writers see none of them before the commit.

        with Transaction.begin(store, "flights", "append") as transaction:
            transaction.add(write_batches(store, target_of(transaction), batches))
            transaction.commit(scope=Nothing())
    """

    def __init__(
        self,
        store: Store,
        base: State,
        operation: str,
        run: str | None = None,
        options: CommitOptions | None = None,
    ) -> None:
        """Use `begin` or `on` instead."""
        # The history must only contain names that can be read back.
        check_run_name(run)
        check_given(
            "commit_options", options, CommitOptions, "Give CommitOptions, or leave it out."
        )
        self._store = store
        self._base = base
        self._operation = operation
        self._run = run
        self._options = options or CommitOptions()
        self._reservation: Reservation | None = None
        self._owns_batch = True
        self._condition = _Condition.OPEN
        self._parts: list[Written] = []
        self._beside: Written | None = None  # gathered files, current before its own rows
        self._segments: list[str] = []  # keys of the last attempt to commit
        self._keys: list[str] = []  # keys of other objects that were written for it

    @classmethod
    def begin(
        cls,
        store: Store,
        dataset: str,
        operation: str,
        *,
        run: str | None = None,
        epoch: Epoch | None = None,
        options: CommitOptions | None = None,
        base: State | None = None,
    ) -> Self:
        """Read the head and reserve a batch id.

        Args:
            store: The store that holds the dataset.
            dataset: Name of the dataset.
            operation: Operation for the history.
            run: Name of the run, if it has one.
            epoch: Epoch of a streaming query, which replaces `run`.
            options: Retry and lease settings of the commit.
            base: An earlier state of the head that the transaction is based on; None for the
                current one.

        Raises:
            DatasetNotFoundError: The dataset does not exist.
            ReadOnlyError: Another tool created the dataset, or the store cannot swap.
            InvalidInputError: The run has the name of an epoch.

        Cost:
            A read of the head and one PUT.
        """
        check_run_name(run)
        if epoch_of(run) is not None:
            raise InvalidInputError(
                f"The run {run!r} has the name of an epoch of a streaming query.",
                hint="Only its query may write it: give the run another name.",
            )
        run = run if epoch is None else epoch.run
        state = read_own_head(store, dataset).state
        transaction = cls(store, base or state, operation, run, options)
        transaction._reserve(state)
        return transaction

    @classmethod
    def begin_first(
        cls,
        store: Store,
        first: State,
        operation: str,
        *,
        run: str | None = None,
        options: CommitOptions | None = None,
    ) -> Self:
        """Reserve a batch id of a dataset that is created before the commit.

        Args:
            store: The store that will hold the dataset.
            first: The first state of the dataset.
            operation: Operation for the history.
            run: Name of the run, if it has one.
            options: Retry and lease settings of the commit.

        Cost:
            One PUT.
        """
        transaction = cls(store, first, operation, run, options)
        transaction._reserve(first)
        return transaction

    @classmethod
    def on(
        cls, store: Store, base: State, operation: str, *, options: CommitOptions | None = None
    ) -> Self:
        """Change a dataset without a batch of new rows.

        Args:
            store: The store that holds the dataset.
            base: The state that the change is computed from.
            operation: Operation for the history.
            options: Retry and lease settings of the commit.
        """
        return cls(store, base, operation, options=options)

    def suspend(self) -> Suspended:
        """Return the transaction for another process to resume; do not use this object again.

        The written parts must reach that process in another way.

        Cost:
            Nothing; the history if another tool has changed the base.
        """
        foreign = foreign_entry(self._store, self._base)
        return Suspended(
            dataset=self._base.name,
            created_at=self._base.created_at,
            base_version=self._base.version,
            record=self._reserved.record,
            etag=self._reserved.etag,
            foreign_added=foreign.added if foreign else (),
            foreign_removed=foreign.removed if foreign else (),
        )

    @classmethod
    def resume(
        cls,
        store: Store,
        suspended: Suspended,
        *,
        epoch: Epoch | None = None,
        options: CommitOptions | None = None,
    ) -> Self:
        """Resume a transaction that another process has begun.

        Args:
            store: The store that holds the dataset.
            suspended: The suspended transaction from the other process.
            epoch: Epoch of a streaming query, if it was not known before.
            options: Retry and lease settings of the commit.

        Raises:
            DatasetNotFoundError: The dataset was dropped meanwhile.
            CommitConflictError: The dataset was dropped, and another one created under its name.

        Cost:
            A read of the head, and of the history since the transaction began.
        """
        state = read_own_head(store, suspended.dataset).state
        conflicts.check_same_dataset(replace(state, created_at=suspended.created_at), state)
        base = base_as_of(
            store,
            state,
            suspended.base_version,
            foreign_added=suspended.foreign_added,
            foreign_removed=suspended.foreign_removed,
        )
        record = suspended.record
        run = record.run if epoch is None else epoch.run
        transaction = cls(store, base, record.operation, run, options)
        transaction.commit_id = record.commit_id
        key = key_of(suspended.dataset, record.batch_id)
        transaction._reservation = Reservation(store, key, suspended.etag, record)
        return transaction

    def _reserve(self, state: State) -> None:
        self._reservation = reserve(
            self._store,
            state.name,
            # Also above the ids that a cleanup has shut out, even if this clock is slow.
            above=max(state.last_batch_id, state.oldest_batch),
            lease=self._options.lease,
            form=BatchIds.named_by(state.descriptor.properties),
            begun_at=self._options.begun_at,
            commit_id=self.commit_id,
            operation=self._operation,
            run=self._run,
        )

    @property
    def store(self) -> Store:
        """The store that holds the dataset."""
        return self._store

    @property
    def base(self) -> State:
        """The state that the transaction is based on."""
        return self._base

    @property
    def batch_id(self) -> int:
        """The reserved batch id."""
        return self._reserved.batch_id

    @property
    def _reserved(self) -> Reservation:
        assert self._reservation is not None, "begin reserves a batch, on does not"
        return self._reservation

    @cached_property
    def commit_id(self) -> str:
        """Unique id of the commit, stable over retries."""
        return uuid.uuid4().hex

    @property
    def written(self) -> Written:
        """All parts that it holds, as one."""
        if len(self._parts) == 1:
            return self._parts[0]
        return joined([Written.nothing(self._base.descriptor.file_schema), *self._parts])

    def add(self, *parts: Written) -> None:
        """Add parts that were written for the transaction, to be committed or deleted with it."""
        self._parts += parts

    def hold(self, written: Written) -> None:
        """Replace all parts so far by the same files, with more facts about them."""
        self._parts = [written]

    def put(self, key: str, data: bytes) -> None:
        """Write another object, which the commit will name.

        Raises:
            StorageError: The store failed.

        Cost:
            One PUT.
        """
        self.note(key)
        self._store.put(key, data)

    def note(self, key: str) -> None:
        """Hold another object that was written for the transaction, which the commit will name."""
        self._keys.append(key)

    def discard(self, *parts: Written, keys: Collection[str] = ()) -> None:
        """Delete some of the parts and objects that it holds."""
        self._parts = [kept for kept in self._parts if all(kept is not part for part in parts)]
        self._keys = [key for key in self._keys if key not in keys]
        of_parts = (key for part in parts for key in part.keys(self._base.layout))
        delete_or_leave(self._store, [*keys, *of_parts])

    def leave_out(self, labels: frozenset[str]) -> None:
        """Delete some of the data files that it holds; their postings stay."""
        self._parts = [part.without(labels) for part in self._parts]
        delete_or_leave(self._store, [self._base.layout.key(label) for label in sorted(labels)])

    def commit(
        self,
        change: Change | None = None,
        *,
        sources: Sources | None = None,
        reads: Sequence[Read] = (),
    ) -> Committed:
        """Make all parts that it holds visible, together with other changes.

        Args:
            change: Other changes of the commit. The transaction sets the commit id, the base, the
                run, the batch, and the files that were added to it. Files that the change adds
                existed before; its `edits` and `indices` name objects that were written for it.
            sources: The raw files that were read in, if they are to be recorded; the written parts
                record the raw files of each row.
            reads: Other reads that the change depends on.

        Raises:
            ChecksFailedError: Rows fail a declared check that refuses the write.
            CommitConflictError: A commit since the base changed a partition in the scope or read in
                one of the raw files, or a commit since a read changed the data that was read, or
                the race was lost until the deadline; nothing has changed.
            VersionNotFoundError: A cleanup has given up the version that it restores.
            CommitUnknownError: The store stopped answering. Nothing will be deleted.
            StorageError: The store failed before anything could become visible.

        Cost:
            One PUT for the history, one conditional PUT, and a read of the head for each attempt.
            For a batch one PUT for its manifest, and one each for the facts of files and for the
            records of raw files, if there are any.
        """
        change = change or Change()
        self._settle_checks()
        gathered = self._gather(change)
        for tries_left in reversed(range(_GATHERINGS)):
            try:
                return self._commit_beside(gathered, sources, reads, change)
            except CommitConflictError:
                if gathered is None:
                    raise
                # Any conflict: the commit must not fail because of files that it only gathers.
                is_lost = self._discard_gathered(gathered)
                gathered = self._gather(change) if is_lost and tries_left > 1 else None
        raise AssertionError  # the last round returned or raised

    def require_checks(self) -> None:
        """Check that no declared check refuses the rows that it holds; `commit` does so, too.

        Raises:
            ChecksFailedError: One does; the message has the check, the count and examples.
        """
        results = [result for part in self._parts for result in part.checks]
        if results:
            require(self._base.name, total_of_checks(results))

    def _settle_checks(self) -> None:
        """Refuse rows that fail a declared check, and quarantine those that are set aside."""
        if self._reservation is None:
            return
        self.require_checks()
        set_aside = tuple(key for part in self._parts for key in part.set_aside)
        if set_aside:
            record = msgspec.structs.replace(self._reserved.record, run=self._run)
            quarantine(self._store, self._base, record, set_aside)
            self._parts = [replace(part, set_aside=()) for part in self._parts]

    def _gather(self, change: Change) -> Gathered | None:
        """Rewrite the files that a published table needs beside the new batch."""
        operation = change.operation or self._operation
        if self._reservation is None or change.earlier or operation == _COMPACT:
            return None
        pending = Pending(
            base=self._base,
            scope=change.scope,
            written=self.written,
            batch_id=self.batch_id,
            run=self._run,
        )
        gathered = before_commit(self._store, pending)
        self._beside = None if gathered is None else gathered.written
        return gathered

    def _discard_gathered(self, gathered: Gathered) -> bool:
        """Delete the gathered files; return whether other commits removed some of their originals."""
        self._beside = None
        self.discard(gathered.written, keys=self._segments)
        live = read_head(self._store, self._base.name).state.live
        return live.holding(gathered.labels) != gathered.labels

    def _commit_beside(
        self,
        gathered: Gathered | None,
        sources: Sources | None,
        reads: Sequence[Read],
        change: Change,
    ) -> Committed:
        """Commit all parts, and by the same put the version before them that gathers files."""
        written = self.written
        if not change.erases:
            self._check_schema(written)
        steps = tuple(self._of_this(step, uuid.uuid4().hex) for step in change.earlier)
        everything = written
        if gathered is not None:
            everything = written + gathered.written
            rewritten = RewrittenFiles(gathered.labels)
            steps = (self._gathering(gathered, rewritten),)
            reads = (*reads, Read(state=gathered.state, scope=rewritten))
        brought = _Brought.of(self._base, everything, sources)
        batch_id = None if self._reservation is None else self._reservation.batch_id
        change = msgspec.structs.replace(
            self._of_this(change, self.commit_id),
            batch_id=batch_id if change.batch_id is None else change.batch_id,
            added=(*written.labels, *change.added),
            row_count=written.row_count + change.row_count,
            edits=(*brought.lists.additions(), *change.edits),
            caught=written.caught,
            checks=(*written.checks, *change.checks),
            carried=dict(written.carried),
            earlier=steps,
        )
        terms = Terms(
            base=self._base,
            change=change,
            lease=self._options.lease,
            sources=brought.sources,
            reads=tuple(reads),
            facts=everything.facts,
        )
        self._keys += change.brought_keys
        self._segments = brought.keys
        with self._deciding():
            puts = brought.puts(self._store)
            if self._reservation is not None:
                puts.insert(0, partial(self._complete, written))
            committed = self._commit(terms, puts)
        if committed.state is not None:
            self._delete_undone(change.edits, committed.state)
        failures = after_commit(self._store, committed.state or self._base)
        return replace(committed, not_published=failures)

    def _gathering(self, gathered: Gathered, scope: RewrittenFiles) -> Change:
        """Return the change that makes the version before: the same rows in other files."""
        written = gathered.written
        return Change(
            commit_id=uuid.uuid4().hex,
            operation=_COMPACT,
            base_version=self._base.version,
            scope=scope,
            added=written.labels,
            row_count=written.row_count,
            carried=dict(written.carried),
        )

    def commit_staged(
        self, change: Change, *, only_on: State | None, until: dt.datetime
    ) -> Committed:
        """Commit a batch that was staged before, by another transaction.

        Args:
            change: The change of its commit. The objects that it names stay if the commit fails.
            only_on: The state that it may be committed on; None for any without a conflict.
            until: Time when the lease of the batch ends.

        Raises:
            PreconditionFailedError: The dataset is no longer in the state that the commit requires;
                nothing has changed.
            LakebedError: As for `commit`.

        Cost:
            As for `commit` without a batch.
        """
        terms = Terms(
            base=self._base,
            change=change,
            lease=self._options.lease,
            only_on=only_on,
            staged_until=until,
        )
        with self._deciding():
            committed = self._commit(terms)
        failures = after_commit(self._store, committed.state or self._base)
        return replace(committed, not_published=failures)

    def _of_this(self, change: Change, commit_id: str) -> Change:
        """Return a change with the operation, base and run of the transaction."""
        return msgspec.structs.replace(
            change,
            commit_id=commit_id,
            operation=change.operation or self._operation,
            base_version=self._base.version,
            run=self._run,
        )

    def _commit(self, terms: Terms, before: Sequence[Callable[[], None]] = ()) -> Committed:
        terms = terms.with_runs(self._store)
        swaps = Swaps()
        try:
            return commit_change(self._store, terms, self._options, swaps, before)
        finally:
            self._keys += swaps.unused

    @contextmanager
    def _deciding(self) -> Iterator[None]:
        """Keep everything from now on, unless an error proves that no head refers to it."""
        self._keep()
        try:
            yield
        except CommitUnknownError:
            raise
        except LakebedError:
            self._condition = _Condition.OPEN
            raise

    def _keep(self) -> None:
        assert self._condition is _Condition.OPEN, "a transaction is committed or staged once"
        self._condition = _Condition.KEPT

    def _delete_undone(self, edits: Sequence[Edit], state: State) -> None:
        """Delete the segments of edits that had no effect.

        Segments that the commit has named stay, even if later commits no longer name them: a reader
        may have read the head in between. If it is unknown what the commit has named, a cleanup
        decides.
        """
        brought = {
            segment.key
            for edit in edits
            if edit.is_in_place or edit.is_for_base
            for segment in edit.added
        }
        if not brought:
            return  # of a tree the keys of all leaves would be made in vain
        named = {*self._base.lists.keys, *state.lists.keys}
        delete_or_leave(self._store, sorted(brought - named))

    def _complete(
        self,
        written: Written,
        staging: Staging | None = None,
        lease: dt.timedelta | None = None,
    ) -> None:
        try:
            self._reserved.complete(written.manifest, staging=staging, lease=lease)
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

    def stage(self, scope: Scope, lease: dt.timedelta, base: State | None = None) -> None:
        """Record the batch, so that any process can commit it later; nothing becomes visible.

        Args:
            scope: The scope that the batch will replace.
            lease: How long from now on the batch is kept.
            base: State since which other commits conflict with that of the batch; None for the base
                of the transaction.

        Raises:
            CommitConflictError: A cleanup has treated the writer as dead; or rows may have other
                partitions than at the base.
            StorageError: The store failed. The batch may be staged nevertheless if only an answer
                was lost.

        Cost:
            Two PUTs; the history if another tool has changed the base, and that since an older base.
        """
        self._settle_checks()
        written = self.written
        self._check_schema(written)
        facts = file_table.new_segment(self._base.name, written.facts)
        noted = ScopeNote.of(scope)
        base = base or self._base
        self._keep()
        try:
            conflicts.check_same_dataset(base, self._base)
            if base.version < self._base.version:
                since = history.read(
                    self._store,
                    self._base.lists.history,
                    after=base.version,
                    until=self._base.version,
                )
                conflicts.check_base_of_batch(base, self._base, self._operation, scope, since)
            # An append conflicts with no change, not even by another tool.
            foreign = None if isinstance(scope, Nothing) else foreign_entry(self._store, base)
            staging = Staging(
                created_at=base.created_at,
                base_version=base.version,
                staged_at=dt.datetime.now(dt.UTC),
                row_count=written.row_count,
                scope=noted,
                facts=None if facts is None else facts.key,
                postings={
                    column: tuple(segment.key for segment in segments)
                    for column, segments in written.postings.items()
                },
                caught=written.caught,
                checks=written.checks,
                foreign_added=foreign.added if foreign else (),
                foreign_removed=foreign.removed if foreign else (),
            )
            if facts is not None:
                self.put(facts.key, file_table.encode(written.facts))
            self._complete(written, staging, lease)
        except LakebedError as exc:
            # If the manifest has landed, another process may have committed the batch.
            if self._reserved.give_up():
                self._condition = _Condition.OPEN
            else:
                exc.add_note(f"Batch {self.batch_id} may be staged nevertheless; see staged().")
            raise

    def _check_schema(self, written: Written) -> None:
        current = self._base.lineage.number
        numbers = {schema_number_of(label, newest=current) for label in written.labels}
        if not numbers <= {None, current}:
            # Files with a wrong number would be read as other values than were written.
            message = f"Files were staged for another schema than {current}: see BatchTarget."
            raise TypeError(message)

    def keep_alive(self) -> None:
        """Renew the lease once half of it is over; a long write calls this regularly.

        Raises:
            CommitConflictError: A cleanup has treated the writer as dead.
            StorageError: The store failed, and the lease has ended.

        Cost:
            Nothing, or one PUT.
        """
        try:
            self._reserved.renew_if_due(self._options.lease)
        except PreconditionFailedError as exc:
            raise self._taken_away() from exc

    def abort(self) -> None:
        """Delete all objects that it holds, unless something may refer to them.

        Objects that cannot be deleted stay. The reservation is deleted last: from it, a cleanup
        knows to whom the remaining objects belong.
        """
        if self._condition is not _Condition.OPEN:
            return
        self._condition = _Condition.OVER
        layout, named = self._base.layout, frozenset(self._base.side_keys)
        parts = self._parts if self._beside is None else [*self._parts, self._beside]
        keys = [*self._keys, *(key for part in parts for key in part.keys(layout))]
        doomed = [key for key in dict.fromkeys(keys) if key not in named]
        if delete_or_leave(self._store, doomed) and self._owns_batch and self._reservation:
            delete_or_leave(self._store, [self._reservation.key])

    def give_up(self) -> bool:
        """Delete all objects that it holds, after another process may have tried to commit them.

        Returns:
            False if the batch may be committed; then nothing is deleted, and a cleanup decides.

        Cost:
            One PUT, and bulk deletes.
        """
        if not self._reserved.give_up():
            return False
        self.abort()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.abort()
