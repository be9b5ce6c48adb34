"""Writer for single entities, and commits of staged files."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Self

import msgspec

from lakebed.arrow.entity_rows import EntityRows
from lakebed.arrow.kernel import BatchTarget, KernelWriter, WriteOptions
from lakebed.arrow.partitioning import admitted_values
from lakebed.commit import Commit
from lakebed.common.given import check_given
from lakebed.common.shown import counted
from lakebed.errors import (
    DatasetExistsError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
)
from lakebed.model.keys import partition_of_label
from lakebed.state import runs
from lakebed.state.conflicts import Read
from lakebed.state.creation import create
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.rerun_guard import check_rerun
from lakebed.state.scope import Nothing, RunFiles, Scope, ThesePartitions, WholeView
from lakebed.state.state import Change, State, epoch_of
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.local_days import check_local_days

_log = logging.getLogger(__name__)

_MOST_NAMES = 3

ENTITIES_PER_BATCH = 1_000  # an entity writer buffers so many before it passes them to the kernel


def target_of(transaction: Transaction, options: WriteOptions | None) -> BatchTarget:
    """Return the target for the files of a transaction's batch.

    Raises:
        InvalidInputError: The options are not `WriteOptions`.
    """
    check_given("options", options, WriteOptions, "Give WriteOptions, or leave it out.")
    return target_in(transaction.base, transaction.batch_id, options or WriteOptions())


def target_in(base: State, batch_id: int, options: WriteOptions) -> BatchTarget:
    """Return the target for the files of a batch."""
    return BatchTarget(
        dataset=base.name,
        batch_id=batch_id,
        descriptor=base.descriptor,
        options=options,
        schema_number=base.lineage.number,
        field_ids=base.layout.field_ids,
        admitted=admitted_values(base),
        is_tree=base.is_tree,
    )


def commit_staged(
    transaction: Transaction,
    scope: Scope | None,
    base: State | None = None,
    *,
    beside_others: bool = False,
) -> Commit:
    """Check the staged files against the scope, and commit them.

    Args:
        transaction: The transaction that holds the files.
        scope: The scope that the files replace; None for the partitions that they touch.
        base: No other commit since this state may have touched the scope, or for an append its
            partitions; None for the base of the transaction.
        beside_others: Whether rows of other runs are expected in the same partitions, so that they
            are worth no note.

    Raises:
        ChecksFailedError: A declared check refuses the rows.
        InvalidInputError: The files lie outside the scope, there is neither a scope nor a file, or
            rows of another time zone would remove others; see `check_local_days`.
        LakebedError: See `Transaction.commit`.
    """
    transaction.require_checks()
    written = transaction.written
    settled = settled_scope(transaction.base.name, written.partitions, scope)
    check_local_days(transaction.store, transaction.base, written, settled)
    reads = []
    if base is not None:
        is_append = isinstance(settled, Nothing)
        touched = ThesePartitions(written.partitions) if is_append else settled
        reads.append(Read(state=base, scope=touched))
    made = transaction.commit(Change(scope=settled), reads=reads)
    notes: tuple[str, ...] = ()
    if not beside_others:
        notes = notes_of_run(transaction.store, transaction.base, settled, made.entry)
    return Commit.of(made, transaction.base, notes)


def write_first(
    store: Store,
    first: State,
    stage: Callable[[BatchTarget], Written],
    scope: Scope,
    run: str | None,
) -> Commit:
    """Write the first rows of a dataset, create it, and commit them.

    If the write fails, there is no dataset. If another writer has created the dataset meanwhile with
    an equal descriptor, the rows are committed to that one.

    Args:
        store: The store of the repository.
        first: The first state of the dataset.
        stage: Writes the rows.
        scope: The rows to replace, if another writer was first.
        run: Name of the run; None for a plain append.

    Raises:
        DatasetExistsError: Another writer has created it with another descriptor.
        LakebedError: See `lakebed.state.creation.create` and `Transaction.commit`.
    """
    operation = "append" if run is None else "rerun"
    with ExitStack() as stack:
        transaction = Transaction.begin_first(store, first, operation, run=run)
        stack.enter_context(transaction)
        written = stage(target_of(transaction, None))
        transaction.add(written)
        try:
            base = create(store, first.name, lambda: first)
        except ObjectExistsError as exc:
            base = read_head(store, first.name).state
            if base.descriptor != first.descriptor:
                raise DatasetExistsError(
                    f"Dataset {first.name!r} was just created by another writer, with another "
                    "descriptor.",
                    hint="Write again: the rows are then checked against it.",
                ) from exc
        if base.created_at != first.created_at:
            suspended = msgspec.structs.replace(
                transaction.suspend(), created_at=base.created_at, base_version=base.version
            )
            transaction = Transaction.resume(store, suspended)
            transaction.add(written)
            stack.pop_all()  # the former one would delete the rows
            stack.enter_context(transaction)
        return commit_staged(transaction, scope)


def notes_of_run(store: Store, base: State, scope: Scope, entry: Entry) -> tuple[str, ...]:
    """Return a note if rows of a run were added where they may have been meant to replace rows.

    An append adds to earlier rows of its run. A rerun adds to rows of others, in its partitions, if
    it is the first of its run, or if another commit has removed the earlier rows. The note is
    logged, too. The commit stands: if what the note depends on cannot be read, there is no note.

    Args:
        store: The store that holds the dataset.
        base: State of the dataset before the commit.
        scope: The scope that the commit has replaced.
        entry: The entry of the commit.

    Cost:
        For an append of a named run, and for a rerun in partitions with other rows, the few objects
        of the list of runs; else nothing.
    """
    note = ""
    try:
        if entry.operation == "append":
            note = _note_of_append(store, base, entry)
        elif isinstance(scope, RunFiles) and scope.replaces:
            note = _note_of_rerun(store, base, scope.run, entry)
    except LakebedError as exc:
        _log.warning("no note of a run, not all could be read dataset=%s: %s", base.name, exc)
    if not note:
        return ()
    _log.warning("%s dataset=%s: %s", entry.operation, base.name, note)
    return (note,)


def _note_of_append(store: Store, base: State, entry: Entry) -> str:
    """Return a note if the run of an append had rows before; an empty text otherwise."""
    run = entry.run
    if run is None or epoch_of(run) is not None or not base.lists.runs or not entry.added:
        return ""
    known = runs.read(store, base.lists)
    if run not in {*known.batches.values(), *known.carried.values()}:
        return ""  # without the labels of all files, for which a tree reads all leaves
    if not known.live_files_of(run, base.live):
        return ""
    return (
        f"Run {run!r} has rows already; append adds to them. To replace them, use `rerun`, or "
        "`write` with the name of the run."
    )


def _note_of_rerun(store: Store, base: State, run: str, entry: Entry) -> str:
    """Return a note if a rerun replaced nothing beside rows of others; an empty text otherwise."""
    removed, partitions = frozenset(entry.removed), frozenset(map(partition_of_label, entry.added))
    beside = [label for label in base.live.of(partitions) if label not in removed]
    if not beside:
        return ""
    known = runs.read(store, base.lists)
    is_new = run not in known.batches.values()
    if not is_new and known.live_files_of(run, base.live):
        return ""
    others: dict[str, set[str]] = {}
    for label in beside:
        other = runs.shown_run(known.of(label))
        name = repr(other) if other else "no named run"
        others.setdefault(name, set()).add(partition_of_label(label))
    shared = sorted(set().union(*others.values()))
    why = "is new" if is_new else "had no rows left, since another commit has removed them"
    return (
        f"The run {run!r} {why}: its rows were added to those of "
        f"{_listed(sorted(others))} in {_listed([name or 'the whole dataset' for name in shared])}. "
        "To replace these, rerun it with partitions=True, or --partitions."
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def keep_staged(
    transaction: Transaction,
    scope: Scope | None,
    lease: dt.timedelta,
    base: State | None = None,
) -> None:
    """Check the staged files against the scope, and keep them for a later commit.

    Args:
        transaction: The transaction that holds the files.
        scope: As for `commit_staged`.
        lease: Time for which they are kept.
        base: Other commits since this state can conflict with that of the batch; None for the base
            of the transaction.

    Raises:
        InvalidInputError: As for `commit_staged`; or a rerun would take out rows that the new ones
            do not stand for.
        LakebedError: See `Transaction.stage`.
    """
    transaction.require_checks()
    written = transaction.written
    settled = settled_scope(transaction.base.name, written.partitions, scope)
    check_local_days(transaction.store, transaction.base, written, settled)
    if isinstance(settled, RunFiles) and not settled.replaces_all:
        # The commit checks it again, on the state that it finds.
        state, store = transaction.base, transaction.store
        own = runs.read(store, state.lists).live_files_of(settled.run, state.live)
        known = replace(settled, labels=frozenset(own))
        check_rerun(store, state, known, written.labels, written.facts, is_large=False)
    transaction.stage(settled, lease, base)


def settled_scope(dataset: str, touched: frozenset[str], scope: Scope | None) -> Scope:
    """Return the scope that rows of some partitions replace; see `commit_staged`.

    Raises:
        InvalidInputError: The rows lie outside the scope, or there is neither a scope nor a row.
    """
    if scope is None:
        if not touched:
            raise InvalidInputError(
                f"Cannot overwrite {dataset!r} with no rows: the partitions to replace are unknown.",
                hint="Overwrite a view; or name them by --where, by REPLACE WHERE in SQL, or by the "
                "option replaceWhere of the data source.",
            )
        return ThesePartitions(touched)
    if isinstance(scope, RunFiles) and scope.partitions is None:
        return replace(scope, partitions=frozenset(touched))
    if isinstance(scope, WholeView):
        outside = sorted(partition for partition in touched if not scope.holds(partition))
        if outside:
            raise InvalidInputError(
                f"Data of partition {outside[0]!r} lies outside the view {scope.predicate}.",
                hint="Filter the data, or widen the view.",
            )
    return scope


class EntityWriter:
    """Writes entities one by one and commits them as one batch on a clean exit.

    The writer is open from the start, as `is_open` shows, and ends once: closed, when its entities
    are committed, or aborted, when they are deleted. `close` in the `finally` of a block that fails
    aborts it. An entity that does not fit is refused, and the writer stays usable. A store that
    fails ends the writer, and nothing is committed. Entities become visible only by the commit, so
    any error before it leaves no trace.
    """

    def __init__(
        self,
        store: Store,
        transaction: Transaction,
        target: BatchTarget,
        base: State | None = None,
    ) -> None:
        """Use `View.kite.writer` instead."""
        self._transaction = transaction
        self._base = base
        self._kernel = KernelWriter(store, target)
        self._waiting = EntityRows(target, self._kernel.check)
        self._end = ""
        self._entity_count = 0
        self._earlier_errors = _errors_in_flight()
        self.commit: Commit | None = None

    def write(self, entity: object) -> None:
        """Add an entity: a dict, as of an Avro generic record, or an object with fields.

        Such an object is an instance of a dataclass, of a class of attrs, pydantic or msgspec, a
        named tuple, or any other whose public attributes are the fields.

        Raises:
            SchemaMismatchError: The entity does not fit the schema; the writer stays usable.
            PartitionSpecError: It lacks a partition source, or the path of its partition is too
                long; the writer stays usable.
            InvalidInputError: It lies outside the view, and the writer stays usable; or the writer
                is closed.
            StorageError: The store failed; the writer is aborted.
            CommitConflictError: A cleanup has declared the writer dead; it is aborted.
        """
        self._check_open()
        self._waiting.add(entity)
        self._entity_count += 1
        if len(self._waiting) >= ENTITIES_PER_BATCH or self._kernel.is_roll_due:
            with self._aborting():
                self._transaction.keep_alive()
                self._kernel.write(self._waiting.take())

    def open(self) -> Self:
        """Return this writer, which is open from the start; for users of Kite.

        Raises:
            InvalidInputError: The writer is closed.
        """
        self._check_open()
        return self

    @property
    def is_open(self) -> bool:
        """True if entities can be written."""
        return not self._end

    def flush(self) -> None:
        """Write all entities so far to the storage.

        Afterwards every entity is in a complete file that the store has acknowledged. No reader
        sees it before `close`; if this process dies before that, no reader ever will, and a cleanup
        deletes the files. Each call ends one file in each partition: many calls make many small
        files.

        Raises:
            InvalidInputError: The writer is closed.
            StorageError: The store failed; the writer is aborted.
            CommitConflictError: A cleanup has declared the writer dead; it is aborted.
        """
        self._check_open()
        with self._aborting():
            self._transaction.keep_alive()
            if len(self._waiting):
                self._kernel.write(self._waiting.take())
            self._kernel.roll()

    def close(self, *, ignore_error: bool = False) -> None:
        """Commit the entities; a second call does nothing, nor does one after `abort`.

        If an exception is being handled that was raised after the writer was opened, as in a
        `finally` or an `except` block, the rows may be incomplete. Then the writer is aborted with
        a warning in the log, and the exception is raised again, so no rows are lost silently. An
        exception that was already being handled when the writer was opened has no such effect, nor
        has one of another thread.

        Without entities there is nothing to commit, and no file is left.

        Args:
            ignore_error: Commit also in that case: the rows are complete in spite of the error.

        Raises:
            LakebedError: The store failed, and nothing was committed; or see `Transaction.commit`.
            BaseException: The exception that is being handled.
        """
        if self._end:
            return
        if not ignore_error:
            self._abort_half_a_job()
        self._commit()

    def _abort_half_a_job(self) -> None:
        error = sys.exception()
        if error is None or not self._entity_count:
            return
        if any(error is earlier for earlier in self._earlier_errors):
            return
        self.abort()
        message = (
            f"The writer of {self._transaction.base.name!r} was closed while this exception was being "
            f"handled, so nothing was committed ({counted(self._entity_count, 'entity', 'entities')}). "
            "If the data is complete in spite of it, call close(ignore_error=True)."
        )
        error.add_note(message)
        _log.warning("%s error=%s", message, type(error).__name__)
        raise error

    def _commit(self) -> None:
        with self._aborting():
            if len(self._waiting):
                self._kernel.write(self._waiting.take())
            written = self._kernel.finish()
        self._end, self._earlier_errors = "closed", ()
        with self._transaction:
            self._transaction.add(written)
            if written.labels or written.has_failures:
                self.commit = commit_staged(self._transaction, Nothing(), self._base)

    def abort(self) -> None:
        """Delete the written files; nothing becomes visible."""
        if self._end:
            return
        self._end, self._earlier_errors = "aborted", ()
        self._kernel.abort()
        self._transaction.abort()

    def _check_open(self) -> None:
        if self._end:
            raise InvalidInputError(f"The writer is {self._end}.", hint="Open another one.")

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.abort()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close(ignore_error=True)  # an error can only be of an outer block
        else:
            self.abort()


def _errors_in_flight() -> tuple[BaseException, ...]:
    """Return the exceptions that are being handled now, the innermost first."""
    errors: list[BaseException] = []
    error = sys.exception()
    while error is not None and not any(error is known for known in errors):
        errors.append(error)
        error = error.__context__
    return tuple(errors)
