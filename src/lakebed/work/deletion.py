"""Deleting the entities of a view: whole files by metadata alone, others by writing the rest anew."""

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
_PLACE = "lakebed.place"  # no field has a dot in its name


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedFile:
    """A data file that a delete takes out.

    Attributes:
        key: Where it is, relative to the repository.
        label: Its name in the head.
        partition: Path of its partition; empty if unpartitioned.
        row_count: Entities in it that are deleted.
        is_whole: Whether these are all; else the others are written anew.
    """

    key: str
    label: str
    partition: str
    row_count: int
    is_whole: bool


def find_deleted(store: Store, plan: ScanPlan) -> tuple[DeletedFile, ...]:
    """Return the files that hold entities of a view, in the order of the plan.

    Args:
        store: Where the files are.
        plan: Of the view.

    Cost:
        The file table, of which there are few objects. Of files that may also hold others, the
        columns of the filter.
    """
    if not plan.files:
        return ()
    counts = file_table.read_counts(store, plan.file_table)

    def look_at(file: DataFile) -> DeletedFile:
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

    looked_at = Threads(_FILES_AT_ONCE).map(look_at, plan.files, DeletedFile)
    # A file without rows that is of the view goes too.
    return tuple(file for file in looked_at if file.row_count or file.is_whole)


def write_rest(
    store: Store, plan: ScanPlan, deleted: Sequence[DeletedFile], target: BatchTarget
) -> Written:
    """Write what files hold besides the view as new files, in the partitions where it is.

    Kept is every row for which the predicate is not true: also where it is unknown, as of null.
    Rows of different runs stay in different files, and it stays known of which raw files they are.

    Raises:
        LakebedError: A file cannot be read, or the store failed. What was written is deleted.

    Cost:
        The files, read and written once, and what tells whose rows they hold, of which there are
        few objects.
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
    nothing = Written.nothing(target.descriptor.stored_schema)
    return joined([nothing, *rewrite_all(Threads(1), store, job, works)])


@dataclass(frozen=True, slots=True)
class _Rest:
    """Leaves the rows that belong to a predicate where they are, and leaves out the others."""

    predicate: Predicate
    types: Mapping[str, Type]

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterable[Routed]:
        places = batch.append_column(_PLACE, pa.array(np.arange(batch.num_rows)))
        kept = places.filter(to_arrow_expression(self.predicate, self.types)).column(_PLACE)
        if len(kept) == batch.num_rows:
            return keep(file, batch, start)
        return (Routed(file_partition(file), kept.to_numpy()),)
