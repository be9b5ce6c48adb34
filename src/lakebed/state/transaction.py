"""The transaction: reserve, stage, complete, commit."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence

import msgspec

from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    LakebedError,
    PreconditionFailedError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import schema_number_of
from lakebed.state import conflicts, file_table
from lakebed.state import sources as source_list
from lakebed.state.commit import CommitOptions, commit_change
from lakebed.state.conflicts import Read
from lakebed.state.history import Entry
from lakebed.state.lists import Lists
from lakebed.state.reader import Head, read_head, read_own_head
from lakebed.state.reservation import (
    ManifestFile,
    Reservation,
    ScopeNote,
    Staging,
    reserve,
)
from lakebed.state.scope import Nothing, Scope
from lakebed.state.sources import Sources
from lakebed.state.state import Change, State
from lakebed.state.succession import foreign_entry
from lakebed.state.written import Written
from lakebed.store.base import Store, delete_or_leave


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
        written: Written,
        scope: Scope,
        sources: Sources | None = None,
        *,
        descriptor: DatasetDescriptor | None = None,
        deleted_row_count: int = 0,
        reads: Sequence[Read] = (),
    ) -> Entry:
        """Make the batch visible.

        Args:
            written: All that was staged.
            scope: The partitions that the batch replaces.
            sources: Which raw files were read in, if that is to be known; of which of them the
                rows are, `written` says.
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
        self._check_schema(written)
        segment = file_table.new_segment(self._base.name, written.facts)
        if sources is not None or written.origins:
            sources = msgspec.structs.replace(sources or Sources(), runs=dict(written.origins))
        noted = None if sources is None else source_list.new_segment(self._base.name, sources)
        brought = Lists(
            files=(segment,) if segment else (),
            sources=(noted,) if noted else (),
            postings=dict(written.postings),
        )
        change = Change(
            operation=self._operation,
            commit_id=self._commit_id,
            base_version=self._base.version,
            batch_id=self.batch_id,
            run=self._run,
            added=written.labels,
            row_count=written.row_count,
            deleted_row_count=deleted_row_count,
            caught=written.caught,
            edits=brought.additions(),
            scope=scope,
            carried=written.carried,
            descriptor=descriptor,
            lineage=self._base.lineage,
        )
        unused = [one.key for one in (segment, noted) if one is not None]
        try:
            self._complete(written)
            if segment is not None:
                self._store.put(segment.key, file_table.encode(written.facts))
            if noted is not None and sources is not None:
                self._store.put(noted.key, source_list.encode(sources))
            committed = commit_change(
                self._store,
                self._base,
                change,
                self._options,
                sources=sources,
                reads=reads,
                unused=unused,
            )
        except CommitUnknownError:
            raise
        except LakebedError:
            # Every other error proves that no head refers to what was written.
            self.abort(written, others=unused)
            raise
        return committed.entry

    def _complete(
        self,
        written: Written,
        staging: Staging | None = None,
        lease: dt.timedelta | None = None,
    ) -> None:
        try:
            self._reservation.complete(_manifest(written), staging=staging, lease=lease)
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
        self, written: Written, scope: Scope, lease: dt.timedelta, base: State | None = None
    ) -> None:
        """Note what was written, so that anybody can commit it later; nothing becomes visible.

        Args:
            written: All of it.
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
        self._check_schema(written)
        segment = file_table.new_segment(self._base.name, written.facts)
        noted = ScopeNote.of(scope)
        base = base or self._base
        try:
            conflicts.check_same_dataset(base, self._base)
            # An append conflicts with nothing, whoever did it.
            foreign = None if isinstance(scope, Nothing) else foreign_entry(self._store, base)
            staging = Staging(
                created_at=base.created_at,
                base_version=base.version,
                staged_at=dt.datetime.now(dt.UTC),
                row_count=written.row_count,
                scope=noted,
                facts=None if segment is None else segment.key,
                postings={
                    column: tuple(one.key for one in segments)
                    for column, segments in written.postings.items()
                },
                caught=written.caught,
                foreign_added=foreign.added if foreign else (),
                foreign_removed=foreign.removed if foreign else (),
            )
            if segment is not None:
                self._store.put(segment.key, file_table.encode(written.facts))
            self._complete(written, staging, lease)
        except LakebedError as exc:
            # Should the manifest have landed, somebody may have found the batch and committed it.
            if self._reservation.give_up():
                self.abort(written, others=[] if segment is None else [segment.key])
            else:
                exc.add_note(f"Batch {self.batch_id} may be staged nevertheless; see staged().")
            raise

    def _check_schema(self, written: Written) -> None:
        current = self._base.lineage.number
        numbers = {schema_number_of(label, newest=current) for label in written.labels}
        if not numbers <= {None, current}:
            # Files of a wrong number would read as other values than were written.
            message = f"Files were staged for another schema than {current}: see BatchTarget."
            raise TypeError(message)

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

    def discard(self, *parts: Written, others: Sequence[str] = ()) -> bool:
        """Delete a part of what was staged, and go on; see `abort`.

        Returns:
            Whether all of it could be deleted.
        """
        keys = [*others, *(key for part in parts for key in part.keys(self._base.layout))]
        return delete_or_leave(self._store, keys)

    def abort(self, *parts: Written, others: Sequence[str] = ()) -> None:
        """Delete what was staged; an object that cannot be deleted stays invisible garbage.

        Args:
            parts: All that was staged.
            others: Keys of other objects that only this transaction knows.
        """
        if self.discard(*parts, others=others) and self._owns_batch:
            delete_or_leave(self._store, [self._reservation.key])


def _manifest(written: Written) -> tuple[ManifestFile, ...]:
    names = ("label", "row_count", "size_bytes", "checksum")
    columns = [written.facts.column(name).to_pylist() for name in names]
    return tuple(ManifestFile(*row) for row in zip(*columns, strict=True))
