"""Statements of Spark that change rows, carried out by a rewrite of the files of these rows.

Spark decides: it hands over the new values of changed and new rows, and names old rows by file and
position. The rewrite reads the files again. So rows that do not change keep their values, their run
and their raw file, even if Spark has other values of them; changed rows keep their run and their raw file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.arrow.conform import Conformer
from lakebed.arrow.held_rows import HeldRows, StoredPart, StoredRows, put_part
from lakebed.arrow.kernel import MIB, BatchTarget, WriteOptions, write_batches
from lakebed.arrow.matching import is_identical, surely_equal, with_rows
from lakebed.arrow.partitioning import admitted_values
from lakebed.arrow.rewrite import (
    RewriteJob,
    Routed,
    file_partition,
    kept_parts,
    rewrite_all,
    works_on,
)
from lakebed.arrow.scan import scan
from lakebed.arrow.workers import Workers
from lakebed.commit import Commit
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Layout, staging_folder
from lakebed.plan.plan import DataFile, Scan
from lakebed.spark.decided_rows import (
    FILE,
    OPERATION,
    ROW,
    RowOperation,
    RowStatement,
    file_number,
    numbered_files,
)
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table
from lakebed.state.committing import CommitOptions
from lakebed.state.history import MERGE
from lakebed.state.scope import MergedFiles, Unchanged
from lakebed.state.state import Change
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store, delete_or_leave
from lakebed.work.writer import target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_THREADS = 4
FEW_ROWS = 100_000  # new ones; this process writes them faster than a Spark job
# Files that this process rewrites faster than a Spark job.
FEW_FILES, FEW_BYTES = 64, 64 * MIB
_NO_FILE = -1  # in the place of the number of a file, for new rows


def change_rows(
    store: Store,
    frame: DataFrame,
    statement: RowStatement,
    *,
    options: WriteOptions | None = None,
    commit_options: CommitOptions | None = None,
) -> Commit | None:
    """Carry out a statement.

    Args:
        store: Store of the dataset.
        frame: Effect on each row, the values of changed and new rows, and the names of old
            ones; see `lakebed.spark.decided_rows`. It is evaluated once.
        statement: The statement.
        options: Sizes of files.
        commit_options: Settings of the commit.

    Returns:
        The commit; None if no row changes: then there is no new version.

    Raises:
        CommitConflictError: Another commit since the version that the statement has read touched
            files that it read, or partitions that may hold rows that it changes or matches.
        SchemaMismatchError: A new value does not fit its field.
        ChecksFailedError: A declared check refuses a changed or a new row.
        LakebedError: The store failed. In all cases nothing became visible.

    Cost:
        The job of the frame, with a shuffle of the rows that it hands over, which are written once
        to the store; the files with changed rows are read once more, and written. Few files are
        rewritten by this process, more by tasks.
    """
    name, base = statement.base.name, statement.base
    with ExitStack() as stack:
        parts = stack.enter_context(_staged(store, frame, statement, commit_options))
        outcome = _Outcome.of(store, statement, parts)
        if not (outcome.changed or outcome.inserted_count):
            return None
        transaction = stack.enter_context(
            Transaction.begin(store, name, statement.operation, options=commit_options, base=base)
        )
        change = _Rewriting(
            transaction, frame, statement, parts, outcome, options or WriteOptions()
        )
        transaction.add(*change.rewrite())
        inserted = change.insert()
        transaction.add(inserted)
        transaction.require_checks()
        if not (outcome.changed or inserted.labels or inserted.has_failures):
            return None
        is_matching = statement.operation == MERGE  # rows that it has seen decide what is new
        others = [file.label for file in statement.read if file.label not in outcome.changed]
        levels = base.layout.partition_level_types
        committed = transaction.commit(
            Change(
                scope=MergedFiles(
                    labels=frozenset(outcome.changed),
                    matched=frozenset(others if is_matching else ()),
                    partitions=Unchanged(
                        base.layout.sure_strategy.project(
                            statement.condition, base.descriptor.schema, levels, strict=False
                        ),
                        levels,
                    ),
                    known=frozenset(),
                ),
                inserted_row_count=inserted.row_count,
                updated_row_count=outcome.updated_count,
                deleted_row_count=outcome.deleted_count,
            )
        )
        return Commit.of(committed, base)


class _Part(msgspec.Struct, frozen=True):
    """Rows that a task has received, in an object of the store; sent to the driver.

    Attributes:
        part: The object.
        schema: Schema of the rows.
        copied: Number of unchanged rows, by number of the file.
        updated: Number of changed rows, by number of the file.
        inserted: Number of new rows.
    """

    part: StoredPart
    schema: bytes
    copied: dict[int, int]
    updated: dict[int, int]
    inserted: int

    def rows(self, store: Store) -> StoredRows:
        """Return the rows, for tasks."""
        return StoredRows(store, pa.ipc.read_schema(pa.py_buffer(self.schema)), (self.part,))


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one part, with their numbers.

    Attributes:
        rows: The rows: in memory, or in the store.
        counts: Numbers of rows by what happens to them.
    """

    rows: HeldRows | StoredRows
    counts: _Counts


class _Counts:
    """Numbers of rows by what happens to them."""

    def __init__(self) -> None:
        self.copied: Counter[int] = Counter()
        self.updated: Counter[int] = Counter()
        self.inserted = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch.

        Raises:
            CorruptMetadataError: Something else happens to a row.
        """
        operations = _numbers(batch.column(OPERATION))
        files = _numbers(batch.column(FILE))
        others = ~np.isin(operations, [int(known) for known in RowOperation])
        is_new = operations == RowOperation.INSERT
        if others.any() or (files[~is_new] == _NO_FILE).any():
            raise CorruptMetadataError(
                f"Spark handed over {int(np.count_nonzero(others))} rows with an operation that "
                "Lakebed does not know, or old rows without their file.",
                hint="Nothing was changed. Give the statement to lake.sql(text, spark, write=True).",
            )
        for operation, counter in (
            (RowOperation.COPY, self.copied),
            (RowOperation.UPDATE, self.updated),
        ):
            distinct, counts = np.unique(files[operations == operation], return_counts=True)
            counter.update(dict(zip(distinct.tolist(), counts.tolist(), strict=True)))
        self.inserted += int(np.count_nonzero(is_new))


def _numbers(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return a column of whole numbers, with -1 for null."""
    numbers: np.ndarray = column.fill_null(_NO_FILE).to_numpy(zero_copy_only=False)
    return numbers


@contextmanager
def _staged(
    store: Store, frame: DataFrame, statement: RowStatement, options: CommitOptions | None
) -> Iterator[list[_Rows]]:
    """Evaluate a frame, and keep its rows where those that rewrite files find them.

    In the store they belong to a batch of its own, which is never committed: so a cleanup
    recognizes it.
    """
    rows = _needed_columns(frame, statement)
    if not store.is_shared:  # tasks cannot access it
        counts = _Counts()
        table = rows.toArrow()
        batches = table.to_batches()
        for batch in batches:
            counts.add(batch)
        yield [_Rows(HeldRows(table.schema, batches), counts)] if batches else []
        return
    name = statement.base.name
    with Transaction.begin(store, name, statement.operation, options=options) as holding:
        folder = staging_folder(name, holding.batch_id)
        try:
            yield _put_rows(rows, store, folder, name)
        finally:
            with suppress(LakebedError):  # objects that cannot be deleted are invisible garbage
                delete_or_leave(store, [info.key for info in store.list(folder)])


def _needed_columns(frame: DataFrame, statement: RowStatement) -> DataFrame:
    """Return a frame without the values of rows that do not change, as these are read again."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    own = (OPERATION, FILE, ROW)
    names = [name for name in frame.columns if name not in own]
    if statement.operation == "delete":
        return frame.select(*[f"`{name}`" for name in own])
    is_changed = F.col(f"`{OPERATION}`") != int(RowOperation.COPY)
    return frame.select(
        *[f"`{name}`" for name in own],
        *[F.when(is_changed, F.col(f"`{name}`")).alias(name) for name in names],
    )


def _put_rows(frame: DataFrame, store: Store, folder: str, dataset: str) -> list[_Rows]:
    """Let each task keep its rows as one object, with all rows of a file in the same one.

    New rows stay in the task that has them.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    from lakebed.spark.session import described
    from lakebed.spark.task_results import ANSWER, answer, refusal, results
    from lakebed.spark.travel import in_tasks

    names = list(frame.columns)
    place = F.coalesce(f"c{names.index(FILE)}", -1 - F.spark_partition_id())
    # Spark finds columns by name, and would look for the parts of a record in a name with a dot.
    plain = frame.toDF(*[f"c{number}" for number in range(len(names))])

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stream = (batch.rename_columns(names) for batch in batches)
        first = next((batch for batch in stream if batch.num_rows), None)
        if first is None:
            return
        counts = _Counts()

        def counted() -> Iterator[pa.RecordBatch]:
            assert first is not None
            counts.add(first)
            yield first
            for batch in stream:
                counts.add(batch)
                yield batch

        try:
            part = put_part(store, folder, first.schema, counted())
        except LakebedError as exc:
            yield refusal(exc)
            return
        schema = first.schema.serialize().to_pybytes()
        yield answer(
            _Part(part, schema, dict(counts.copied), dict(counts.updated), counts.inserted)
        )

    with described(frame.sparkSession, f"change rows of {dataset}"):
        answers = in_tasks(plain.repartition(place), run, ANSWER).collect()
    parts = []
    for one in results(answers, _Part):
        counts = _Counts()
        counts.copied.update(one.copied)
        counts.updated.update(one.updated)
        counts.inserted = one.inserted
        parts.append(_Rows(one.rows(store), counts))
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The effect of a statement.

    Attributes:
        changed: Files with a changed or a deleted row, by label.
        gone: Labels of those whose rows are all deleted.
        inserted_count: Number of new rows.
        updated_count: Number of changed rows.
        deleted_count: Number of deleted rows.
    """

    changed: Mapping[str, DataFile]
    gone: frozenset[str]
    inserted_count: int
    updated_count: int
    deleted_count: int

    @classmethod
    def of(cls, store: Store, statement: RowStatement, parts: Sequence[_Rows]) -> _Outcome:
        """Compare the rows of a statement with the files that it has read.

        Raises:
            CorruptMetadataError: There are more rows than the files have, or rows of other files.
        """
        copied: Counter[int] = Counter()
        updated: Counter[int] = Counter()
        for part in parts:
            copied += part.counts.copied
            updated += part.counts.updated
        files = numbered_files(statement.read)
        if not (copied.keys() | updated.keys()) <= files.keys():
            raise _disagree(statement, "rows of files that it did not read")
        deleted: dict[int, int] = {}
        if statement.may_delete:
            for number, count in _row_counts(store, statement, files).items():
                deleted[number] = count - copied[number] - updated[number]
                if deleted[number] < 0:
                    raise _disagree(statement, "more rows than the files have")
        is_changed = {n: bool(updated[n] or deleted.get(n)) for n in files}
        changed = {file.label: file for number, file in files.items() if is_changed[number]}
        gone = [
            file.label
            for number, file in files.items()
            if deleted.get(number) and not (copied[number] or updated[number])
        ]
        return cls(
            changed=changed,
            gone=frozenset(gone),
            inserted_count=sum(part.counts.inserted for part in parts),
            updated_count=updated.total(),
            deleted_count=sum(deleted.values()),
        )


def _disagree(statement: RowStatement, what: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"The {statement.operation} of {statement.base.name!r} got {what}.",
        hint="Nothing was changed. Run check; files may have been replaced from outside.",
    )


def _row_counts(
    store: Store, statement: RowStatement, files: Mapping[int, DataFile]
) -> dict[int, int]:
    """Return the number of rows of files; a file of another tool is read for it."""
    base = statement.base
    labels = [file.label for file in files.values()]
    recorded = file_table.read_counts(store, base.lists.files, labels)
    counts = {}
    for number, file in files.items():
        if file.label in recorded:
            counts[number] = recorded[file.label][0]
            continue
        alone = Scan(layout=base.layout, files=(replace(file, is_filtered=False),))
        with scan(store, alone, base.descriptor.schema.names[:1]) as batches:
            counts[number] = sum(batch.num_rows for batch in batches)
    return counts


class _Rewriting:
    """Writes the rows of a statement for its transaction."""

    def __init__(
        self,
        transaction: Transaction,
        frame: DataFrame,
        statement: RowStatement,
        parts: Sequence[_Rows],
        outcome: _Outcome,
        options: WriteOptions,
    ) -> None:
        self._transaction = transaction
        self._frame = frame
        self._statement = statement
        self._parts = parts
        self._outcome = outcome
        self._options = options

    def rewrite(self) -> list[Written]:
        """Rewrite the files with changed rows, as rows of their runs and raw files."""
        store, base = self._transaction.store, self._statement.base
        outcome = self._outcome
        files = [file for file in outcome.changed.values() if file.label not in outcome.gone]
        if not files:
            return []
        workers = self._workers(files)
        works = works_on(store, base.lists, files, workers)
        numbers = {file_number(file.label) for file in files}
        options = replace(self._options, memory_bytes=workers.share_of(self._options.memory_bytes))
        job = RewriteJob(
            layout=base.layout,
            target=replace(target_of(self._transaction, options), admitting_writers=len(works)),
            route=_ChangedRows(
                layout=base.layout,
                may_delete=self._statement.may_delete,
                parts={
                    number: part.rows
                    for part in self._parts
                    for number in part.counts.copied.keys() | part.counts.updated.keys()
                    if number in numbers
                },
            ),
            is_checked=False,
        )
        return rewrite_all(workers, store, job, works)

    def _workers(self, files: Sequence[DataFile]) -> Workers:
        store, base = self._transaction.store, self._statement.base
        counts = file_table.read_counts(store, base.lists.files, [file.label for file in files])
        size_bytes = sum(size for _, size in counts.values())
        is_small = len(files) <= FEW_FILES and size_bytes <= FEW_BYTES
        return workers_for(
            None if is_small else self._frame.sparkSession,
            store,
            threads=min(_THREADS, os.cpu_count() or 1, len(files)),
            purpose=f"change rows of {base.name}",
        )

    def insert(self) -> Written:
        """Write new rows, which belong to the statement's own batch."""
        store, base = self._transaction.store, self._statement.base
        parts = [part.rows for part in self._parts if part.counts.inserted]
        if not parts:
            return Written.nothing(base.descriptor.file_schema)
        # The cap of a dimension also counts values of changed rows.
        labels = self._transaction.written.labels
        target = replace(
            target_of(self._transaction, self._options), admitted=admitted_values(base, labels)
        )
        if self._outcome.inserted_count <= FEW_ROWS or not store.is_shared:
            rows = (batch for part in parts for batch in _new_rows(part.open(), base.descriptor))
            return write_batches(store, target, rows)
        return self._insert_by_tasks(target, [one for one in parts if isinstance(one, StoredRows)])

    def _insert_by_tasks(self, target: BatchTarget, parts: Sequence[StoredRows]) -> Written:
        from lakebed.spark.data_rows import frame_of
        from lakebed.spark.task_kernel import write_frame

        store, descriptor = self._transaction.store, self._statement.base.descriptor
        together = StoredRows(store, parts[0].schema, tuple(p for one in parts for p in one.parts))

        def chosen(_number: int, part: HeldRows) -> Iterator[pa.RecordBatch]:
            for batch in _new_rows(part, descriptor):
                yield Conformer(batch.schema, descriptor).conform(batch)

        frame = frame_of(self._frame.sparkSession, together, descriptor.schema, chosen)
        return write_frame(frame, store, target)


def _new_rows(rows: HeldRows, descriptor: DatasetDescriptor) -> Iterator[pa.RecordBatch]:
    operations = _numbers(rows.columns([OPERATION]).column(OPERATION))
    for batch in rows.slices(operations == RowOperation.INSERT, descriptor.schema.names):
        yield _from_spark_types(batch, descriptor)


def _from_spark_types(batch: pa.RecordBatch, descriptor: DatasetDescriptor) -> pa.RecordBatch:
    """Cast decimals, which Spark has for unsigned whole numbers of 64 bits, back to these.

    Raises:
        SchemaMismatchError: A value is not such a number.
    """
    for number, name in enumerate(batch.schema.names):
        field = descriptor.schema.get(name)
        if "unsigned" not in str(field.type):
            continue
        try:
            column = batch.column(number).cast(type_to_arrow(field.type))
        except pa.ArrowInvalid as exc:
            raise SchemaMismatchError(
                f"A value of field {name!r} is not of type {field.type}: {exc}",
                hint="Give whole numbers from 0 to 2**64 - 1.",
            ) from exc
        batch = batch.set_column(number, name, column)
    return batch


@dataclass(frozen=True, slots=True)
class _FileRows:
    """The rows of one file that a statement has handed over, by position.

    Attributes:
        copied: Positions of unchanged rows, ascending.
        updated: Positions of changed rows, ascending.
        places: Positions of the changed rows among those of the part.
    """

    copied: np.ndarray
    updated: np.ndarray
    places: np.ndarray


class _OldRows:
    """The old rows of a part, found by their file."""

    def __init__(self, rows: HeldRows) -> None:
        self.rows = rows
        columns = rows.columns([FILE, ROW, OPERATION])
        files, positions = _numbers(columns.column(FILE)), _numbers(columns.column(ROW))
        self._order = np.lexsort((positions, files))
        self._files, self._positions = files[self._order], positions[self._order]
        self._operations = _numbers(columns.column(OPERATION))[self._order]

    def of_file(self, label: str) -> _FileRows:
        """Return the rows of a file.

        Raises:
            CorruptMetadataError: A row was handed over twice.
        """
        number = file_number(label)
        low, high = np.searchsorted(self._files, [number, number + 1])
        positions, is_updated = (
            self._positions[low:high],
            self._operations[low:high] == RowOperation.UPDATE,
        )
        if len(positions) and not (np.diff(positions) > 0).all():
            raise CorruptMetadataError(
                f"A row of data file {label} was handed over twice.",
                hint="Nothing was changed. Give the statement to lake.sql(text, spark, write=True).",
            )
        return _FileRows(
            copied=positions[~is_updated],
            updated=positions[is_updated],
            places=self._order[low:high][is_updated],
        )


class _ChangedRows:
    """Applies the changes of a statement to the rows of data files. Travels to Spark tasks."""

    def __init__(
        self, layout: Layout, parts: Mapping[int, HeldRows | StoredRows], *, may_delete: bool
    ) -> None:
        self._layout = layout
        self._parts = parts
        self._may_delete = may_delete
        self._opened: tuple[HeldRows | StoredRows, _OldRows] | None = None
        self._last: tuple[str, _FileRows] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None, "_last": None}

    @cached_property
    def _moving(self) -> list[str]:
        """Fields that partitions derive from."""
        functions = self._layout.descriptor.partition_by
        roots = {f.source.split(".")[0] for f in functions if f.takes_source}
        return [name for name in self._layout.descriptor.schema.names if name in roots]

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterator[Routed]:
        """Yield the rows that stay in their partition, then those that move."""
        old, rows = self._rows_of(file)
        end = start + batch.num_rows
        low, high = np.searchsorted(rows.updated, [start, end])
        updated = rows.updated[low:high] - start
        places: np.ndarray | None = None
        is_kept = np.ones(batch.num_rows, dtype=bool)
        if self._may_delete:
            first, last = np.searchsorted(rows.copied, [start, end])
            is_kept[:] = False
            is_kept[rows.copied[first:last] - start] = True
            is_kept[updated] = True
        changed, is_moved = None, np.zeros(batch.num_rows, dtype=bool)
        if low < high:
            new = self._new_values(file, old, rows.places[low:high])
            changed, places = _with_new_values(batch, updated, new), updated
            if self._moving:
                before = batch.select(self._moving).take(pa.array(updated))
                for name in self._moving:
                    is_equal = surely_equal(before.column(name), new.column(name))
                    is_moved[updated[~is_equal]] = True
        is_kept &= ~is_moved
        for kept in kept_parts(is_kept) if is_kept.any() else ():
            yield Routed(file_partition(file), kept, changed, places)
            places = None
        if is_moved.any():
            yield Routed(None, is_moved, changed, places)

    def _rows_of(self, file: DataFile) -> tuple[_OldRows, _FileRows]:
        part = self._parts[file_number(file.label)]
        if self._opened is None or self._opened[0] is not part:
            self._opened, self._last = (part, _OldRows(part.open())), None
        old = self._opened[1]
        if self._last is None or self._last[0] != file.label:
            self._last = (file.label, old.of_file(file.label))
        return old, self._last[1]

    def _new_values(self, file: DataFile, old: _OldRows, places: np.ndarray) -> pa.RecordBatch:
        """Return the new values of changed rows, in the types of the dataset.

        Raises:
            SchemaMismatchError: A value does not fit its field.
            InvalidInputError: The value of a provided partition field was set.
        """
        descriptor = self._layout.descriptor
        for function in descriptor.partition_by:
            if function.takes_source:
                continue
            set_to = old.rows.take(places, [function.name]).column(0).unique().to_pylist()
            if set_to != [file.partition[function.name]]:
                raise InvalidInputError(
                    f"Cannot set the partition field {function.name!r}, which writers provide.",
                    hint="Delete the rows, and append them to the other partition.",
                )
        given = _from_spark_types(old.rows.take(places, descriptor.schema.names), descriptor)
        return Conformer(given.schema, descriptor).conform(given)


def _with_new_values(
    batch: pa.RecordBatch, rows: np.ndarray, new: pa.RecordBatch
) -> pa.RecordBatch:
    """Return a batch with other values in some rows, whose positions are ascending."""
    before = batch.take(pa.array(rows))
    for number, name in enumerate(batch.schema.names):
        if name not in new.schema.names or is_identical(before.column(number), new.column(name)):
            continue
        values = new.column(name)
        if values.type != batch.column(number).type:
            values = values.cast(batch.column(number).type)
        whole = with_rows(batch.column(number), rows, values)
        batch = batch.set_column(number, batch.schema.field(number), whole)
    return batch


__all__ = ["change_rows"]
