"""Deletion of the entities of a view: whole files by metadata alone, others by a rewrite."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.rewrite import (
    LEAST_AT_ONCE,
    RewriteJob,
    Routed,
    file_partition,
    kept_parts,
    rewrite_all,
    works_on,
)
from lakebed.arrow.sieve import RowFilter
from lakebed.arrow.workers import Threads
from lakebed.model.predicate import roots_of
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state import file_table
from lakebed.state.written import Written, joined
from lakebed.store.base import Store

_FILES_AT_ONCE = 8  # each holds a few row groups of the columns of the filter
_WRITERS = 4  # that share the memory of one


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFile:
    """A data file that a delete removes.

    Attributes:
        key: Path of the file in the repository.
        label: Name of the file in the head.
        partition: Path of its partition; empty if unpartitioned.
        row_count: Number of entities that are deleted from it.
        is_whole: True if all its entities are deleted; else the others are rewritten.
    """

    key: str
    label: str
    partition: str
    row_count: int
    is_whole: bool


def find_deleted(store: Store, plan: ScanPlan) -> tuple[DeletedFile, ...]:
    """Return the files that hold entities of a view, in the order of the plan.

    Args:
        store: The store that holds the files.
        plan: Plan of the view.

    Cost:
        The few objects of the file table. Of files that may also hold other entities, the columns
        of the filter.
    """
    if not plan.files:
        return ()
    counts = file_table.read_counts(store, plan.file_table)

    def inspect(file: DataFile) -> DeletedFile:
        known, _ = counts.get(file.label, (None, None))
        if file.is_filtered or known is None:
            row_count = scan.count(store, replace(plan, files=(file,)))
        else:
            row_count = known
        return DeletedFile(
            key=file.key,
            label=file.label,
            partition=file_partition(file),
            row_count=row_count,
            is_whole=not file.is_filtered or row_count == known,
        )

    inspected = Threads(_FILES_AT_ONCE).map(inspect, plan.files, DeletedFile)
    # An empty file that belongs to the view is deleted too.
    return tuple(file for file in inspected if file.row_count or file.is_whole)


def write_rest(
    store: Store, plan: ScanPlan, deleted: Sequence[DeletedFile], target: BatchTarget
) -> Written:
    """Write the rows of files that are outside the view as new files of the same partitions.

    Every row is kept for which the predicate is not true; this includes unknown, as for null.
    Rows of different runs stay in different files, and keep their link to the raw files.

    Raises:
        LakebedError: A file cannot be read, or the store failed. The new files are deleted.

    Cost:
        The files, read and written once, by up to four threads if they are not small, and the few
        objects that record the run of each file. Memory: that of one writer, which the threads
        share, and one compressed file a thread.
    """
    types = plan.layout.predicate_types
    columns = roots_of(plan.predicate, types)
    by_label = {file.label: file for file in plan.files}
    rewritten = [by_label[file.label] for file in deleted if not file.is_whole]
    counts = file_table.read_counts(store, plan.file_table) if rewritten else {}
    size_bytes = sum(counts[file.label][1] for file in rewritten if file.label in counts)
    enough = max(1, size_bytes // LEAST_AT_ONCE)
    workers = Threads(min(_WRITERS, os.cpu_count() or 1, enough))
    works = works_on(store, plan.state.lists, rewritten, workers)
    memory_bytes = Threads(min(workers.count, len(works))).share_of(target.options.memory_bytes)
    job = RewriteJob(
        layout=plan.layout,
        target=replace(target, options=replace(target.options, memory_bytes=memory_bytes)),
        route=_Rest(RowFilter.of(plan.predicate, types), columns),
        columns=columns,
        is_checked=False,
    )
    nothing = Written.nothing(target.descriptor.file_schema)
    return joined([nothing, *rewrite_all(workers, store, job, works)])


@dataclass(frozen=True, slots=True)
class _Rest:
    """Drops the rows that meet a condition, and keeps the others in their partition.

    Attributes:
        dropped: Chooses the rows to drop.
        columns: Columns that it needs.
    """

    dropped: RowFilter
    columns: tuple[str, ...]

    def __call__(self, file: DataFile, batch: pa.RecordBatch, _: int) -> Iterable[Routed]:
        partition = file_partition(file)
        parts = kept_parts(~self.dropped.mask(batch.select(self.columns)))
        return [Routed(partition, rows) for rows in parts]
