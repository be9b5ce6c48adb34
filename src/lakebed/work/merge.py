"""Merge: updates, deletes and inserts rows of a dataset by the keys of some data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.arrow.conform import check_columns, check_types, narrowed
from lakebed.arrow.held_rows import HeldRows, StoredRows, data_batches, hold, put_part
from lakebed.arrow.kernel import BatchTarget, WriteOptions, write_batches
from lakebed.arrow.matching import FileChanges, KeyValues, Matcher, Merging
from lakebed.arrow.partitioning import admitted_values
from lakebed.arrow.rewrite import RewriteJob, rewrite_all, works_on
from lakebed.arrow.workers import Workers
from lakebed.commit import Commit
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    LakebedError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import field_to_arrow, type_from_arrow
from lakebed.model.assignments import OfColumn, columns_in
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import staging_folder
from lakebed.model.merging import (
    Assignment,
    MergeClauses,
    MergeRules,
    OrderedClauses,
    RowUpdate,
    Side,
    bind_clauses,
    bind_ordered,
    bind_update,
)
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Membership,
    Op,
    Predicate,
    all_of,
    any_of,
    bind,
)
from lakebed.model.read_once import is_read_once
from lakebed.model.schema import Field, Primitive, Schema, Struct, Type, dotted_types
from lakebed.model.spark_types import schema_from_spark
from lakebed.model.values import TIMES, Scalar, is_nan
from lakebed.plan.plan import DataFile
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table, history
from lakebed.state.committing import CommitOptions
from lakebed.state.conflicts import Read
from lakebed.state.history import MERGE
from lakebed.state.reader import read_head, read_own_head
from lakebed.state.scope import MergedFiles, Unchanged
from lakebed.state.state import Change, State, have_same_files, new_labels
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store, delete_or_leave
from lakebed.work.writer import target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATCHING_UP = 16  # passes over files that others have added meanwhile
_ROUNDS = 4  # attempts, each from the start, if another commit wins the race at the last moment
_THREADS = 4
_FILES_AT_ONCE = 32  # that one task inspects
# Rows whose keys are looked up together: each lookup builds a table of all keys of the data.
_ROWS_AT_ONCE, _MOST_ROWS_AT_ONCE = 2**20, 2**22
MOST_KEPT = 2**25  # changed rows whose positions stay in memory between inspection and rewriting
_FEW_ROWS = 100_000  # of the data; this process handles them faster than a Spark job
# Values of a key column that are listed to find files; for more, the range of the values is used.
_MOST_VALUES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """The result of a merge, or the expected result of a dry run.

    Attributes:
        dataset: Name of the dataset.
        is_dry_run: True if nothing was changed.
        commit: The commit; None in a dry run, or if no row changes: then there is no new version.
        inserted_row_count: Number of inserted entities.
        updated_row_count: Number of updated entities.
        deleted_row_count: Number of deleted entities.
        rewritten_row_count: Number of unchanged entities in rewritten files; None in a dry run,
            which writes no files.
        read_file_count: Number of data files that were inspected; only the columns that the
            clauses need were read.
        rewritten_file_count: Number of inspected files with an updated or deleted entity.
        added_file_count: Number of new files; 0 in a dry run.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    >>> repository = open_repository("memory://doctest-merge")
    >>> people = repository.create("people", DatasetDescriptor(schema=schema))
    >>> commit = people.append([{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}])
    >>> report = people.merge([{"id": 2, "name": "Bo"}, {"id": 3, "name": "Cy"}], on=["id"])
    >>> report.inserted_row_count, report.updated_row_count, report.rewritten_file_count
    (1, 1, 1)
    >>> sorted(person["name"] for person in people.kite.reader())
    ['Ann', 'Bo', 'Cy']
    """

    dataset: str
    is_dry_run: bool
    commit: Commit | None = None
    inserted_row_count: int = 0
    updated_row_count: int = 0
    deleted_row_count: int = 0
    rewritten_row_count: int | None = None
    read_file_count: int = 0
    rewritten_file_count: int = 0
    added_file_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTarget:
    """The target of a merge: a dataset or a view of it.

    Attributes:
        store: The store that holds the dataset.
        name: Name of the dataset.
        constraint: Predicate of the view: no row outside can match, be missing or be inserted.
        operation: Operation of the commit.
        provided: Returns the values of provided partition fields in the view, for a state.
        read: The state that the data was made from; None for the state at the start.
        run: Name of the run.
    """

    store: Store
    name: str
    constraint: Predicate = TRUE
    operation: str = MERGE
    provided: Callable[[State], Mapping[str, Scalar]] = lambda _: {}
    read: State | None = None
    run: str | None = None


def merge(
    target: MergeTarget,
    data: object,
    clauses: MergeClauses | OrderedClauses,
    *,
    spark: SparkSession | Literal[True] | None = None,
    is_dry_run: bool = False,
    options: WriteOptions | None = None,
    commit_options: CommitOptions | None = None,
) -> MergeReport:
    """Merge data into a dataset; see `View.merge`."""
    store, state = target.store, read_own_head(target.store, target.name).state
    if state.descriptor.format == "submissions":
        raise InvalidInputError(
            f"Cannot merge into dataset {target.name!r}: it holds submissions.",
            hint="Their fields are in the document: repeat the run that wrote them, or delete and "
            "append.",
        )
    frame = _frame_of(data, state.descriptor)
    if is_dry_run:
        spark = None  # rows for tasks would have to lie in the store
    elif frame is not None and spark is None:
        spark = frame.sparkSession
    workers = workers_for(spark, store, threads=min(_THREADS, os.cpu_count() or 1))
    is_distributed = spark is not None and store.is_shared
    of_data = _with_null_keys(state.descriptor, clauses.on)
    with ExitStack() as stack:
        rows: HeldRows | StoredRows
        if is_distributed:
            rows = stack.enter_context(_stored(target, data, frame, of_data, commit_options))
        else:
            if frame is not None:  # Arrow has no collations: they would be lost unseen
                schema_from_spark(frame.schema.jsonValue(), state.descriptor.schema)
            plain = data if frame is None else frame.toArrow()
            batches = data_batches(plain, of_data, is_dry_run=is_dry_run or store.is_dry_run)
            rows = stack.enter_context(hold(batches))
        if not len(rows):
            _check_deletes_some(target, clauses, data)
        if not rows.schema.names:
            rows, clauses = _no_rows(clauses, state.descriptor.schema)
        work = _Merge(target, clauses, rows, workers, options, spark if is_distributed else None)
        return work.dry_run(state) if is_dry_run else _in_rounds(work, target, commit_options)


def _with_null_keys(descriptor: DatasetDescriptor, keys: Sequence[str]) -> DatasetDescriptor:
    """Return the descriptor of the data of a merge, in which a key may be null.

    A row with a null key matches nothing. Only where it is inserted, the field must allow null.
    """
    fields = tuple(
        replace(field, nullable=True) if field.name in keys else field
        for field in descriptor.schema
    )
    return replace(descriptor, schema=Schema(fields=fields))


def update_rows(
    target: MergeTarget,
    update: RowUpdate,
    *,
    spark: SparkSession | Literal[True] | None = None,
    options: WriteOptions | None = None,
    commit_options: CommitOptions | None = None,
) -> MergeReport:
    """Set fields of the rows of a view; see `View.update_rows`.

    It is a merge without data, in which all rows of the view are missing. Unlike that of a merge,
    the view only selects rows: they may leave it, as in SQL.
    """
    store, state = target.store, read_own_head(target.store, target.name).state
    if state.descriptor.format == "submissions":
        raise InvalidInputError(
            f"Dataset {target.name!r} is of submissions, whose fields cannot be set.",
            hint="Their fields stand in the document: rerun what wrote them, or delete and append.",
        )
    workers = workers_for(spark, store, threads=min(_THREADS, os.cpu_count() or 1))
    is_distributed = spark is not None and store.is_shared
    rows = HeldRows(pa.schema([]), [])
    work = _Merge(target, update, rows, workers, options, spark if is_distributed else None)
    return _in_rounds(work, target, commit_options)


def _in_rounds(
    work: _Merge, target: MergeTarget, commit_options: CommitOptions | None
) -> MergeReport:
    for round_ in range(_ROUNDS):
        try:
            with Transaction.begin(
                target.store,
                target.name,
                target.operation,
                run=target.run,
                options=commit_options,
            ) as transaction:
                return work.run(transaction)
        except CommitConflictError:
            # Others rewrote a file with matching rows, or added one at the last moment.
            if target.read is not None or round_ == _ROUNDS - 1:
                raise
    raise AssertionError  # the last round returns or raises


def _no_rows(
    clauses: MergeClauses | OrderedClauses, schema: Schema
) -> tuple[HeldRows, MergeClauses | OrderedClauses]:
    """Return empty data with the key columns only, and the clauses that still apply.

    The other columns of data without rows are unknown.
    """
    keys = pa.schema([field_to_arrow(schema.get(name)) for name in clauses.on])
    if isinstance(clauses, OrderedClauses):
        return HeldRows(keys, []), OrderedClauses(on=clauses.on, missing=clauses.missing)
    left = replace(
        clauses,
        matched="ignore",
        update=None,
        update_where=None,
        delete_where=None,
        not_matched="ignore",
        insert_where=None,
    )
    return HeldRows(keys, []), left


def _check_deletes_some(
    target: MergeTarget, clauses: MergeClauses | OrderedClauses, data: object
) -> None:
    """Check that data without rows does not delete the whole dataset by an option.

    The clauses of a SQL statement say what is deleted, as does a condition or a view. Of a view the
    rows go only if the data surely has none: a reader may have been read before.

    Raises:
        InvalidInputError: It would, or the data may have had rows.
    """
    if not isinstance(clauses, MergeClauses) or clauses.missing != "delete":
        return
    if clauses.missing_where is not None:
        return
    if is_read_once(data):
        raise InvalidInputError(
            f"Cannot merge the {type(data).__name__}, which gives no rows, into {target.name!r} with "
            "missing='delete': it may have been read before.",
            hint="Give its rows as a table or a list. To delete what has no row in it, say so by "
            'missing_where="TRUE".',
        )
    if target.constraint == TRUE:
        raise InvalidInputError(
            f"Cannot merge no rows into {target.name!r} with missing='delete': it would delete all rows.",
            hint='Check the data. To delete all rows, say so by missing_where="TRUE".',
        )


def _frame_of(data: object, descriptor: DatasetDescriptor) -> Any:
    """Return rows of Spark as a frame of Spark that can be read; None of other rows."""
    if type(data).__module__.startswith("pyspark."):
        from lakebed.spark.task_kernel import check_frame, find_spark_frame

        frame = find_spark_frame(data, descriptor.schema.names)
        if frame is not None:
            check_frame(frame)
        return frame
    return None


@contextmanager
def _stored(
    target: MergeTarget,
    data: object,
    frame: Any,
    descriptor: DatasetDescriptor,
    options: CommitOptions | None,
) -> Iterator[HeldRows | StoredRows]:
    """Keep the data in the store, where tasks can read it, for the duration of the merge.

    It belongs to a batch of its own, which is never committed: so a cleanup recognizes it.
    """
    store = target.store
    with Transaction.begin(store, target.name, MERGE, run=target.run, options=options) as holding:
        folder = staging_folder(target.name, holding.batch_id)
        try:
            if frame is not None:
                from lakebed.spark.data_rows import put_frame

                yield put_frame(frame, store, folder, descriptor)
                return
            with hold(data_batches(data, descriptor)) as held:
                if not len(held):
                    yield held  # empty: it is sent to tasks directly
                    return
                everything = np.ones(len(held), dtype=bool)
                batches = held.slices(everything, held.schema.names)
                part = put_part(store, folder, held.schema, batches)
            yield StoredRows(store, held.schema, (part,))
        finally:
            with suppress(LakebedError):  # objects that cannot be deleted are invisible garbage
                delete_or_leave(store, [info.key for info in store.list(folder)])


class _Inspected(msgspec.Struct, frozen=True):
    """Summary of the changes to a file, sent from Spark tasks to the driver.

    Attributes:
        label: Label of the file.
        is_changed: True if a row of it is updated or deleted.
        is_gone: True if all its rows are deleted.
        updated_count: Number of updated rows.
        deleted_count: Number of deleted rows.
        matched: Positions of the matching rows of the data, as bytes.
    """

    label: str
    is_changed: bool
    is_gone: bool
    updated_count: int
    deleted_count: int
    matched: bytes

    @classmethod
    def of(cls, changes: FileChanges) -> _Inspected:
        return cls(
            label=changes.label,
            is_changed=changes.is_changed,
            is_gone=changes.is_gone,
            updated_count=changes.updated_count,
            deleted_count=len(changes.deleted),
            matched=changes.matched.astype(np.int64).tobytes(),
        )

    @property
    def positions(self) -> np.ndarray:
        return np.frombuffer(self.matched, np.int64)


class _Outcome:
    """The results of a round of a merge so far.

    Attributes:
        results: Summaries of the inspected files, by label.
        changes: The changes in full, by label, if this process has found them.
        is_matched: For each row of the data, whether it matches an entity.
        new: Labels of the files that others have added since the base, and that were inspected
            or need not be.
    """

    def __init__(self, row_count: int) -> None:
        self.results: dict[str, _Inspected] = {}
        self.changes: dict[str, FileChanges] = {}
        self.is_matched = np.zeros(row_count, dtype=bool)
        self.new: frozenset[str] = frozenset()
        self._kept_count = 0

    def keep(self, changes: FileChanges) -> None:
        """Keep the changes of a file, unless there are very many: it is looked at again then."""
        count = changes.updated_count + len(changes.deleted)
        if self._kept_count + count <= MOST_KEPT:
            self._kept_count += count
            self.changes[changes.label] = changes

    def add(self, results: Sequence[_Inspected]) -> bool:
        """Add results, and return whether more rows of the data match than before."""
        before = int(np.count_nonzero(self.is_matched))
        for inspected in results:
            self.results[inspected.label] = inspected
            self.is_matched[inspected.positions] = True
        return int(np.count_nonzero(self.is_matched)) > before

    def labels(self, *, changed: bool) -> frozenset[str]:
        """Return the files that change, or the unchanged files with a row that matches."""
        return frozenset(
            label
            for label, inspected in self.results.items()
            if inspected.is_changed is changed and (changed or inspected.matched)
        )


class _Merge:
    """Merges data into a dataset, in one or more rounds."""

    def __init__(
        self,
        target: MergeTarget,
        clauses: MergeClauses | OrderedClauses | RowUpdate,
        rows: HeldRows | StoredRows,
        workers: Workers,
        options: WriteOptions | None,
        spark: SparkSession | Literal[True] | None,
    ) -> None:
        self._target = target
        self._clauses = clauses
        self._rows = rows
        self._workers = workers
        self._options = options or WriteOptions()
        self._spark = spark
        self._values: KeyValues | None = None

    def dry_run(self, state: State) -> MergeReport:
        """Return the expected result of a merge into a state."""
        matcher = self._matcher(state)
        outcome = _Outcome(len(self._rows))
        files = self._candidates(state, self._predicate(matcher, state))
        outcome.add(self._inspect(matcher, state, files, outcome))
        new_count = self._count_new(matcher, outcome)
        self._check_new(matcher, state, new_count)
        return self._report(outcome, new_count, is_dry_run=True)

    def run(self, transaction: Transaction) -> MergeReport:
        """Find the changes, write them, and commit them."""
        base = state = transaction.base
        matcher = self._matcher(base)
        predicate = self._predicate(matcher, base)
        outcome = _Outcome(len(self._rows))
        inserted: Written | None = None
        written: list[Written] = []
        # Concurrent appends may continue: inspect their files too, until a commit has a chance.
        for _ in range(_CATCHING_UP):
            files: Sequence[DataFile] = self._candidates(state, predicate)
            if state is not base:
                late = self._late_files(base, state) - outcome.new
                files = [f for f in files if f.label in late and f.label not in outcome.results]
                outcome.new |= late
            results = self._inspect(matcher, state, files, outcome)
            has_more = outcome.add(results)
            if self._lacked(matcher, base) is not None:
                self._check_new(matcher, base, self._count_new(matcher, outcome))
            rewritten = self._rewrite(transaction, state, matcher, files, outcome, written)
            transaction.add(*rewritten)
            written += rewritten
            if inserted is None or has_more:
                if inserted is not None:
                    transaction.discard(inserted)
                inserted = self._insert(transaction, matcher, outcome, written)
                transaction.add(inserted)
            now = read_head(self._target.store, base.name).state
            if have_same_files(now, state) or now.descriptor != base.descriptor:
                break
            state = now
            transaction.keep_alive()
        assert inserted is not None  # there is at least one pass
        transaction.require_checks()
        report = self._report(outcome, inserted.row_count, is_dry_run=False)
        if not (inserted.labels or inserted.has_failures or outcome.labels(changed=True)):
            return replace(report, rewritten_row_count=0)
        partitions = _partitions_of(predicate, base)
        read = self._target.read
        committed = transaction.commit(
            Change(
                scope=MergedFiles(
                    labels=outcome.labels(changed=True),
                    matched=outcome.labels(changed=False),
                    partitions=partitions,
                    known=outcome.new,
                ),
                inserted_row_count=report.inserted_row_count,
                updated_row_count=report.updated_row_count,
                deleted_row_count=report.deleted_row_count,
            ),
            reads=() if read is None else [Read(state=read, scope=partitions)],
        )
        commit = Commit.of(committed, base)
        return replace(
            report,
            commit=commit,
            rewritten_row_count=commit.rewritten_row_count,
            added_file_count=len(commit.files_added),
        )

    def _matcher(self, state: State) -> Matcher:
        return Matcher(self._rules(state), self._rows, state.layout)

    def _lacked(self, matcher: Matcher, state: State) -> InvalidInputError | None:
        """Return the error if the data lacks a column that new entities need, else None."""
        if matcher.rules.inserted is None:
            return None
        try:
            check_columns(tuple(matcher.rules.inserted), state.descriptor)
            check_types(self._inserted_schema(matcher, state.descriptor), state.descriptor)
        except (SchemaMismatchError, PartitionSpecError) as exc:
            return exc
        return None

    def _inserted_schema(self, matcher: Matcher, descriptor: DatasetDescriptor) -> Schema:
        """Return the fields of new entities, with those parts that the data has."""
        names = matcher.rules.inserted or {}
        return Schema(
            fields=tuple(
                replace(field, type=_part_of(field, self._rows.schema.field(names[field.name])))
                for field in descriptor.schema.select(tuple(names))
            )
        )

    def _check_new(self, matcher: Matcher, state: State, new_count: int) -> None:
        """Check that the data has the columns that its new entities need.

        Raises:
            SchemaMismatchError: The data lacks a column that is not nullable and has no default.
            PartitionSpecError: The data lacks the source of a partition field.
        """
        lacked = self._lacked(matcher, state) if new_count else None
        if lacked is not None:
            rows = "row matches" if new_count == 1 else "rows match"
            raise type(lacked)(
                f"{lacked.message[:-1]}, and {new_count:,} of its {rows} no entity and would be new.",
                hint=f'{lacked.hint} To leave such rows out, give not_matched="ignore".',
            )

    def _rules(self, state: State) -> MergeRules:
        schema = state.descriptor.schema
        data, columns = _types_of(self._rows.schema, schema), state.layout.predicate_types
        constraint = bind(self._target.constraint, columns)
        if isinstance(self._clauses, RowUpdate):
            rules = bind_update(self._clauses, schema, columns, constraint)
        elif isinstance(self._clauses, OrderedClauses):
            rules = bind_ordered(self._clauses, data, schema, columns, constraint)
        else:
            rules = bind_clauses(self._clauses, data, schema, columns, constraint)
        for assignment in rules.assignments:
            for name in _checked_columns(assignment, schema):
                side, _, column = name.partition(".")
                kind = data[column] if side == Side.SOURCE else columns[column]
                given = Schema(fields=(Field(name=assignment.name, type=kind),))
                try:
                    check_types(given, state.descriptor, may_lack_parts=True)
                except SchemaMismatchError as exc:
                    if column == assignment.name:
                        raise
                    wanted = schema.get(assignment.name).type
                    raise SchemaMismatchError(
                        f"Field {assignment.name!r} of type {wanted} is set by column {column!r} "
                        f"of type {kind}.",
                        hint="Convert it by CAST where the value stays the same, or widen the "
                        "field.",
                    ) from exc
        return rules

    def _predicate(self, matcher: Matcher, state: State) -> Predicate:
        """Return a predicate that holds for every entity that the merge may change."""
        rules = matcher.rules
        if not len(self._rows):
            of_keys: Predicate = FALSE
        else:
            if self._values is None and len(self._rows) <= _FEW_ROWS:
                self._values = matcher.key_values(_MOST_VALUES)
            elif self._values is None:
                (self._values,) = self._workers.map(
                    lambda most: matcher.key_values(most), [_MOST_VALUES], KeyValues
                )
            of_keys = _condition_on(rules.on, self._values, state.layout.predicate_types)
        of_keys = all_of([of_keys, rules.match_target])
        if rules.missing:
            of_keys = any_of([of_keys, rules.missing_where])
        return all_of([rules.constraint, of_keys])

    def _candidates(self, state: State, predicate: Predicate) -> tuple[DataFile, ...]:
        """Return the files that may hold entities of a predicate, by metadata alone."""
        return plan(state, predicate, requests=0, store=self._target.store).files

    def _inspect(
        self, matcher: Matcher, state: State, files: Sequence[DataFile], outcome: _Outcome
    ) -> list[_Inspected]:
        """Read the columns that the clauses need, and return the changes to each file."""
        store, keeps = self._target.store, outcome.changes if self._spark is None else None

        def of_chunk(chunk: Sequence[DataFile]) -> list[_Inspected]:
            changes = matcher.look(store, chunk)
            if keeps is not None:
                for change in changes:
                    outcome.keep(change)
            return [_Inspected.of(change) for change in changes]

        chunks = self._chunks(files, state)
        if keeps is not None and chunks:
            _ = matcher.data, matcher.keys  # compute once, before threads use them
        parts = self._workers.map(of_chunk, chunks, list[_Inspected])
        return [inspected for part in parts for inspected in part]

    def _chunks(self, files: Sequence[DataFile], state: State) -> list[list[DataFile]]:
        """Divide files: enough rows for each table of all keys, and enough chunks for all workers."""
        if not files:
            return []
        labels = [file.label for file in files]
        counts = file_table.read_counts(self._target.store, state.lists.files, labels)
        at_most = max(1, min(_FILES_AT_ONCE, len(files) // self._workers.count))
        enough = min(max(len(self._rows), _ROWS_AT_ONCE), _MOST_ROWS_AT_ONCE)
        chunks: list[list[DataFile]] = []
        room = 0
        for file in files:
            if room <= 0 or len(chunks[-1]) >= at_most:
                chunks.append([])
                room = enough
            chunks[-1].append(file)
            room -= counts[file.label][0] if file.label in counts else enough
        return chunks

    def _rewrite(
        self,
        transaction: Transaction,
        state: State,
        matcher: Matcher,
        files: Sequence[DataFile],
        outcome: _Outcome,
        written: Sequence[Written],
    ) -> list[Written]:
        """Rewrite the files that hold changed rows."""
        changed = [
            file
            for file in files
            if outcome.results[file.label].is_changed and not outcome.results[file.label].is_gone
        ]
        works = works_on(self._target.store, state.lists, changed, self._workers)
        if not works:
            return []
        target = self._write_target(transaction, matcher, written)
        memory_bytes = self._workers.share_of(self._options.memory_bytes)
        job = RewriteJob(
            layout=state.layout,
            target=replace(
                target,
                options=replace(self._options, memory_bytes=memory_bytes),
                admitting_writers=len(works),
            ),
            route=Merging(matcher, self._target.store, outcome.changes),
            columns=_read_beside(matcher),
            is_checked=False,
        )
        return rewrite_all(self._workers, self._target.store, job, works)

    def _late_files(self, base: State, state: State) -> frozenset[str]:
        """Return the files of a later state that the base lacks."""
        if not state.is_tree:
            return new_labels(base.labels, state.labels)
        newer = history.read(
            self._target.store, state.lists.history, after=base.version, until=state.version
        )
        return frozenset(history.net_labels(newer)[0])

    def _write_target(
        self, transaction: Transaction, matcher: Matcher, written: Sequence[Written]
    ) -> BatchTarget:
        base = transaction.base
        # The cap of a dimension also counts values that this merge has written.
        labels = [label for part in written for label in part.labels]
        return replace(
            target_of(transaction, self._options),
            constraint=matcher.rules.constraint,
            provided=self._target.provided(base),
            admitted=admitted_values(base, labels),
        )

    def _insert(
        self,
        transaction: Transaction,
        matcher: Matcher,
        outcome: _Outcome,
        written: Sequence[Written],
    ) -> Written:
        """Write the rows of the data that match no entity, as rows of the merge's own run."""
        target = self._write_target(transaction, matcher, written)
        names = matcher.rules.inserted
        # If the data lacks columns that new entities need, there are none: `run` has checked it.
        is_lacking = self._lacked(matcher, transaction.base) is not None
        if names is None or outcome.is_matched.all() or is_lacking:
            return Written.nothing(target.descriptor.file_schema)
        new_count = len(outcome.is_matched) - int(np.count_nonzero(outcome.is_matched))
        if isinstance(self._rows, StoredRows) and new_count > _FEW_ROWS:
            inserted = self._insert_by_tasks(matcher, outcome, target, names)
        else:
            data = matcher.data
            is_new = matcher.inserted(data, outcome.is_matched)
            batches = _renamed(data.slices(is_new, tuple(names.values())), tuple(names))
            inserted = write_batches(self._target.store, target, batches)
        run = self._target.run
        return replace(inserted, carried=dict.fromkeys(inserted.labels, run) if run else {})

    def _insert_by_tasks(
        self, matcher: Matcher, outcome: _Outcome, target: BatchTarget, names: Mapping[str, str]
    ) -> Written:
        from lakebed.spark.data_rows import frame_of
        from lakebed.spark.session import get_session
        from lakebed.spark.task_kernel import write_frame

        assert isinstance(self._rows, StoredRows)
        packed = _packed(outcome.is_matched, self._rows.part_counts)

        def chosen(number: int, part: HeldRows) -> Iterator[pa.RecordBatch]:
            is_matched = np.unpackbits(packed[number], count=len(part)).astype(bool)
            chosen_rows = part.slices(matcher.inserted(part, is_matched), tuple(names.values()))
            yield from _renamed(chosen_rows, tuple(names))

        session = get_session(None if self._spark is True else self._spark)
        schema = self._inserted_schema(matcher, target.descriptor)
        frame = frame_of(session, self._rows, schema, chosen)
        return write_frame(frame, self._target.store, target)

    def _count_new(self, matcher: Matcher, outcome: _Outcome) -> int:
        rows, packed = self._rows, _packed(outcome.is_matched, self._rows.part_counts)

        def of_part(number: int) -> int:
            part = rows.part(number)
            is_matched = np.unpackbits(packed[number], count=len(part)).astype(bool)
            return int(np.count_nonzero(matcher.inserted(part, is_matched)))

        return sum(self._workers.map(of_part, range(len(packed)), int))

    def _report(
        self, outcome: _Outcome, inserted_row_count: int, *, is_dry_run: bool
    ) -> MergeReport:
        results = outcome.results.values()
        return MergeReport(
            dataset=self._target.name,
            is_dry_run=is_dry_run,
            inserted_row_count=inserted_row_count,
            updated_row_count=sum(inspected.updated_count for inspected in results),
            deleted_row_count=sum(inspected.deleted_count for inspected in results),
            read_file_count=len(results),
            rewritten_file_count=sum(inspected.is_changed for inspected in results),
        )


def _renamed(batches: Iterable[pa.RecordBatch], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return (batch.rename_columns(list(names)) for batch in batches)


def _packed(truths: np.ndarray, counts: Sequence[int]) -> list[np.ndarray]:
    """Return booleans of rows as bits, part by part."""
    return (
        [np.packbits(part) for part in np.split(truths, np.cumsum(counts)[:-1])] if counts else []
    )


def _types_of(given: pa.Schema, schema: Schema) -> dict[str, Type]:
    """Return the types of the columns of data; nested ones have dotted names."""
    fields = []
    for column in given:
        declared = schema.find(column.name)
        kind = (
            type_from_arrow(column.type, place=column.name, strict_names=False)
            if declared is None
            else _part_of(declared, column)
        )
        fields.append(Field(name=column.name, type=kind))
    return dotted_types(fields)


def _part_of(declared: Field, column: pa.Field) -> Type:
    """Return the type of a field with those parts of its records that a column of data has."""
    return narrowed(
        declared.type, type_from_arrow(column.type, place=column.name, strict_names=False)
    )


def _read_beside(matcher: Matcher) -> tuple[str, ...]:
    """Return the partition fields that the clauses read; all schema fields are read anyway."""
    own = matcher.layout.partition_types
    return tuple(name for name in matcher.rules.taken(Side.TARGET) if name in own)


def _partitions_of(predicate: Predicate, state: State) -> Unchanged:
    """Return the partitions that may hold entities of a predicate."""
    levels = state.layout.partition_level_types
    schema = state.descriptor.schema
    return Unchanged(
        state.layout.sure_strategy.project(predicate, schema, levels, strict=False), levels
    )


def _condition_on(on: Sequence[str], keys: KeyValues, types: Mapping[str, Type]) -> Predicate:
    """Return a predicate that holds for every entity with one of the keys."""
    terms: list[Predicate] = []
    for name, table, is_listed in zip(on, keys.columns, keys.are_listed, strict=True):
        if name not in types:
            continue  # a computed key, which no fact about a file decides
        try:
            values: list[Any] = table.column("value").to_pylist()
        except (OverflowError, ValueError):
            continue  # times that Python cannot represent: they drop no file
        if is_listed:
            listed = Membership(name, tuple(values))
            # Values have the type of their column; but a predicate accepts only one form of times.
            terms.append(bind(listed, types) if _is_time(types[name]) or not values else listed)
            continue
        low, high = values[:2]
        terms.append(bind(Comparison(name, Op.GE, low), types))
        if not any(is_nan(value) for value in values):  # NaN is the greatest value
            terms.append(bind(Comparison(name, Op.LE, high), types))
    return all_of(terms)


def _checked_columns(assignment: Assignment, schema: Schema) -> tuple[str, ...]:
    """Return the columns that a field takes as they are, or records that become parts of it."""
    if isinstance(assignment.term, OfColumn):
        return (assignment.term.name,)
    is_record = isinstance(schema.get(assignment.name).type, Struct)
    names = columns_in(assignment.term) if is_record else ()
    return tuple(name for name in names if name.startswith(f"{Side.SOURCE}."))


def _is_time(kind: Type) -> bool:
    return isinstance(kind, Primitive) and kind.kind in TIMES
