"""The difference of two versions for a page: partitions, files, and rows as far as limits allow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.batches.diff import ADDED, Diff, PartitionDiff, rows_apart
from lakebed.commit import Commit
from lakebed.dataset import Dataset
from lakebed.model.keys import decode_path
from lakebed.model.predicate import Comparison, NullCheck, Op, Predicate, all_of
from lakebed.model.schema import Type
from lakebed.view import View
from lakebed.web.first_rows import Deadline, unhurried
from lakebed.web.limits import (
    MAX_COLUMNS,
    MAX_COMPARED_BYTES,
    MAX_COMPARED_ROWS,
    MAX_PARTITIONS,
    MAX_ROWS,
    READ_SECONDS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRows:
    """The difference of two versions.

    Attributes:
        diff: The difference in partitions and files.
        commits: The commits between the versions, newest first, at most MAX_ROWS.
        partitions: Partitions that differ, those with most files first, at most MAX_PARTITIONS.
        added: Rows that only the second version has, at most MAX_ROWS; None if rows were not
            compared, for the reason in `note`.
        removed: Rows that only the first version has, at most MAX_ROWS.
        added_count: Number of such rows of the second version.
        removed_count: Number of such rows of the first version.
        note: Reason why rows were not compared.
    """

    diff: Diff
    commits: Sequence[Commit]
    partitions: Sequence[PartitionDiff]
    added: pa.Table | None = None
    removed: pa.Table | None = None
    added_count: int = 0
    removed_count: int = 0
    note: str = ""


def compare(dataset: Dataset, from_version: int, to_version: int, where: str) -> ComparedRows:
    """Compare two versions of a dataset.

    Args:
        dataset: The dataset.
        from_version: The first version.
        to_version: The second version.
        where: Condition for the rows to compare; empty for all.

    Raises:
        VersionNotFoundError: A version does not exist, or was cleaned up.
        PredicateError: The condition is not valid.
        CorruptMetadataError: A data file is missing or damaged.

    Cost:
        The head, the history and the file table; then the files that only one of the versions has,
        up to MAX_COMPARED_ROWS, MAX_COMPARED_BYTES and READ_SECONDS for each version.
    """
    diff = dataset.diff(from_version, to_version)
    low, high = sorted((from_version, to_version))
    commits = [commit for commit in dataset.history() if low < commit.version <= high]
    by_files = sorted(diff.partitions, key=lambda each: -(each.files_added + each.files_removed))
    known: dict[str, Any] = {
        "diff": diff,
        "commits": commits[::-1][:MAX_ROWS],
        "partitions": by_files[:MAX_PARTITIONS],
    }
    views = [view.where(where) if where else view for view in (diff._added, diff._removed)]
    counts = (diff.rows_added, diff.rows_removed)
    is_large = not where and any(count and count > MAX_COMPARED_ROWS for count in counts)
    sides = [] if is_large else [_held(view) for view in views]
    added, removed = (*sides, None, None)[:2]
    if added is None or removed is None:
        return ComparedRows(
            **known,
            note="The files that differ hold more rows than a page compares, which are "
            f"{MAX_COMPARED_ROWS:,} rows or {MAX_COMPARED_BYTES >> 20} MiB of each version, read "
            f"within {READ_SECONDS:.0f} seconds. Choose a partition, or give a condition.",
        )
    apart, words = rows_apart(added, removed)
    is_added = pa.array([word == ADDED for word in words], pa.bool_())
    mine, others = apart.filter(is_added), apart.filter(pc.invert(is_added))
    return ComparedRows(
        **known,
        added=mine.slice(0, MAX_ROWS),
        removed=others.slice(0, MAX_ROWS),
        added_count=mine.num_rows,
        removed_count=others.num_rows,
    )


def _held(view: View) -> pa.Table | None:
    """Return the rows of a view; None if they are beyond a limit."""
    deadline = Deadline()
    held: list[pa.RecordBatch] = []
    row_count = size = 0
    with closing(unhurried(view)) as batches:
        for batch in batches:
            held.append(batch)
            row_count += batch.num_rows
            size += batch.nbytes
            if row_count > MAX_COMPARED_ROWS or size > MAX_COMPARED_BYTES or deadline.is_over:
                return None
        return pa.Table.from_batches(held, batches.schema)


def shown_columns(rows: pa.Table) -> pa.Table:
    """Return the first columns of a table, as many as a page shows."""
    return rows.select(rows.column_names[:MAX_COLUMNS])


def condition_of(path: str, level_types: dict[str, Type]) -> str:
    """Return the condition that selects a partition, as SQL; empty for the only partition.

    Args:
        path: Path of the partition.
        level_types: Types of the directory levels.
    """
    terms: list[Predicate] = [
        NullCheck(name) if value is None else Comparison(name, Op.EQ, value)
        for name, value in decode_path(path, level_types).items()
    ]
    return str(all_of(terms)) if terms else ""
