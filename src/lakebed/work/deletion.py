"""Deletion of the entities of a view: whole files by metadata alone, others by a rewrite."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
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
from lakebed.arrow.workers import Threads, Workers
from lakebed.common.grouping import balanced_groups
from lakebed.model.predicate import roots_of
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state import file_table
from lakebed.state.written import Written, joined
from lakebed.store.base import Store

READERS = 8  # threads; each holds a few row groups of the columns of the filter
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


def find_deleted(
    store: Store, plan: ScanPlan, workers: Workers | None = None
) -> tuple[DeletedFile, ...]:
    """Return the files that hold entities of a view, in the order of the plan.

    Args:
        store: The store that holds the files.
        plan: Plan of the view.
        workers: The workers that read files; None for threads.

    Cost:
        The few objects of the file table. Of files that may also hold other entities, the columns
        of the filter.
    """
    if not plan.files:
        return ()
    counts = file_table.read_counts(store, plan.file_table)
    known = {file.label: counts.get(file.label, (None, 0)) for file in plan.files}
    read = [file for file in plan.files if file.is_filtered or known[file.label][0] is None]
    found = _count_rows(store, plan, read, {label: size for label, (_, size) in known.items()},
                        workers or Threads(READERS))  # fmt: skip
    inspected = (
        DeletedFile(
            key=file.key,
            label=file.label,
            partition=file_partition(file),
            row_count=found.get(file.label, known[file.label][0] or 0),
            is_whole=not file.is_filtered or found[file.label] == known[file.label][0],
        )
        for file in plan.files
    )
    # An empty file that belongs to the view is deleted too.
    return tuple(file for file in inspected if file.row_count or file.is_whole)


def _count_rows(
    store: Store,
    plan: ScanPlan,
    files: Sequence[DataFile],
    sizes: Mapping[str, int],
    workers: Workers,
) -> dict[str, int]:
    """Return the number of rows of a view in each of some files, by label."""
    by_label = {file.label: file for file in files}
    bare = replace(plan, files=())  # it travels to tasks

    def count(labels: list[str]) -> dict[str, int]:
        return {
            label: scan.count(store, replace(bare, files=(by_label[label],))) for label in labels
        }

    # Threads take one file at a time, to balance the load. Tasks take groups of equal size.
    groups = [[label] for label in by_label]
    if not isinstance(workers, Threads) and files:
        chosen = {label: sizes[label] for label in by_label}
        groups = balanced_groups(chosen, workers.count_for(sum(chosen.values()), len(chosen)))
    counts: dict[str, int] = {}
    for part in workers.map(count, groups, dict[str, int]):
        counts.update(part)
    return counts


def write_rest(
    store: Store,
    plan: ScanPlan,
    deleted: Sequence[DeletedFile],
    target: BatchTarget,
    workers: Workers | None = None,
) -> Written:
    """Write the rows of files that are outside the view as new files of the same partitions.

    Every row is kept for which the predicate is not true; this includes unknown, as for null.
    Rows of different runs stay in different files, and keep their link to the raw files.

    Args:
        store: The store that holds the files.
        plan: Plan of the view.
        deleted: Files of the plan, as `find_deleted` returns them.
        target: Target of the new files.
        workers: The workers that write; None for some threads.

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
    if workers is None:
        workers = Threads(min(_WRITERS, os.cpu_count() or 1, enough))
    works = works_on(store, plan.state.lists, rewritten, workers)
    if isinstance(workers, Threads):
        workers = Threads(min(workers.count, len(works)))
    memory_bytes = workers.share_of(target.options.memory_bytes)
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
