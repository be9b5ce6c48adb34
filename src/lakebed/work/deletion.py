"""Deletion of the entities of a view: whole files by metadata alone, others by a rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.rewrite import (
    RewriteJob,
    Routed,
    file_partition,
    keep,
    rewrite_all,
    works_on,
)
from lakebed.arrow.workers import Threads
from lakebed.model.predicate import Predicate, complement, roots_of
from lakebed.model.schema import Type
from lakebed.plan.expression import to_arrow_expression
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state import file_table
from lakebed.state.written import Written, joined
from lakebed.store.base import Store

_FILES_AT_ONCE = 8  # each holds a few row groups of the columns of the filter
_POSITION = "lakebed.position"  # no field has a dot in its name


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
        The files, read and written once, and the few objects that record the run of each file.
    """
    types = plan.layout.predicate_types
    rest = complement(plan.predicate)
    job = RewriteJob(
        layout=plan.layout,
        target=target,
        route=_Rest(rest, types),
        columns=roots_of(rest, types),
        is_checked=False,
    )
    by_label = {file.label: file for file in plan.files}
    rewritten = [by_label[file.label] for file in deleted if not file.is_whole]
    works = works_on(store, plan.state.lists, rewritten, 1)
    nothing = Written.nothing(target.descriptor.file_schema)
    return joined([nothing, *rewrite_all(Threads(1), store, job, works)])


@dataclass(frozen=True, slots=True)
class _Rest:
    """Keeps the rows of a predicate in their partition, and drops the others."""

    predicate: Predicate
    types: Mapping[str, Type]

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterable[Routed]:
        numbered = batch.append_column(_POSITION, pa.array(np.arange(batch.num_rows)))
        kept = numbered.filter(to_arrow_expression(self.predicate, self.types)).column(_POSITION)
        if len(kept) == batch.num_rows:
            return keep(file, batch, start)
        return (Routed(file_partition(file), kept.to_numpy()),)
