"""Deleting the entities of a view: whole files by metadata alone, others by writing the rest anew."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.model.keys import partition_of, split_label
from lakebed.model.predicate import complement
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state import file_table
from lakebed.store.base import Store

_FILES_AT_ONCE = 8  # each holds a few row groups of the columns of the filter


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
    counts = file_table.read_counts(store, plan.state.files)

    def look_at(file: DataFile) -> DeletedFile:
        known, _ = counts.get(file.label, (None, None))
        if file.is_filtered or known is None:
            found = scan.count(store, replace(plan, files=(file,)))
        else:
            found = known
        return DeletedFile(
            key=file.key,
            label=file.label,
            partition=partition_of(split_label(file.label)[0]),
            row_count=found,
            is_whole=not file.is_filtered or found == known,
        )

    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        looked_at = pool.map(look_at, plan.files)
        # A file without rows that is of the view goes too.
        return tuple(one for one in looked_at if one.row_count or one.is_whole)


def write_rest(
    store: Store, plan: ScanPlan, deleted: Sequence[DeletedFile], target: BatchTarget
) -> pa.Table:
    """Write what files hold besides the view as new files, in the partitions where it is.

    Kept is every row for which the predicate is not true: also where it is unknown, as of null.

    Returns:
        The facts of the new files; see `lakebed.state.facts`.

    Raises:
        LakebedError: A file cannot be read, or the store failed. What was written is deleted.
    """
    by_label = {file.label: replace(file, is_filtered=True) for file in plan.files}
    by_partition: dict[str, list[DataFile]] = {}
    for file in deleted:
        if not file.is_whole:
            by_partition.setdefault(file.partition, []).append(by_label[file.label])
    rest = complement(plan.predicate)
    writer = KernelWriter(store, target)
    try:
        for partition, files in by_partition.items():
            for batch in scan.scan(store, replace(plan, files=tuple(files), residual=rest)):
                writer.write_to(partition, batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise
