"""Totals of the live files of each partition, without an object for each file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.keys import split_label
from lakebed.plan.paths import Paths
from lakebed.state import file_table
from lakebed.state.state import State
from lakebed.store.base import Store

if TYPE_CHECKING:
    from lakebed.state.tree.tree_files import TreeFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTotals:
    """The number, the rows and the bytes of the live files of a partition.

    Attributes:
        path: Directory relative to the table; empty if unpartitioned.
        file_count: Number of live data files.
        row_count: Number of entities; None if that of a file is unknown.
        size_bytes: Bytes of the files; None if that of a file is unknown.
    """

    path: str
    file_count: int
    row_count: int | None
    size_bytes: int | None


def partition_totals(store: Store, state: State) -> list[PartitionTotals]:
    """Return the totals of each partition that holds a live file, ordered by path.

    Args:
        store: The store that holds the file table.
        state: The state whose files are counted.

    Raises:
        CorruptMetadataError: A directory of the head does not fit the schema.

    Cost:
        One GET a segment of the file table, eight at a time; of a tree one GET of a range for each
        leaf, or two. None for those that the process has read before. Time and memory for the
        labels and two numbers of each file.
    """
    if not state.live.count:
        return []
    if state.is_tree:
        return _of_tree(cast("TreeFiles", state.live))
    facts = file_table.find(store, state.lists.files, Paths(state).labels, {})
    paths, numbers = _partitions(state)
    columns = {"partition": numbers, "rows": facts.row_count, "bytes": facts.size_bytes}
    # The sum of a partition with an unknown number is unknown.
    every = pc.ScalarAggregateOptions(skip_nulls=False)
    totals = (
        pa.table(columns)
        .group_by("partition", use_threads=False)
        .aggregate([("rows", "sum", every), ("bytes", "sum", every), ([], "count_all")])
    )
    names = ("partition", "count_all", "rows_sum", "bytes_sum")
    rows = zip(*(totals.column(name).to_pylist() for name in names), strict=True)
    return sorted(
        (
            PartitionTotals(
                path=paths[number], file_count=count, row_count=row_count, size_bytes=size_bytes
            )
            for number, count, row_count, size_bytes in rows
        ),
        key=lambda one: one.path,
    )


def _of_tree(tree: TreeFiles) -> list[PartitionTotals]:
    totals = [
        PartitionTotals(
            path=one.path,
            file_count=one.files,
            row_count=None if one.unknown else one.rows,
            size_bytes=None if one.unknown else one.bytes,
        )
        for one in tree.partitions()
    ]
    return sorted(totals, key=lambda one: one.path)


def _partitions(state: State) -> tuple[list[str], np.ndarray]:
    """Return the paths of the partitions, and for each live file the number of its partition.

    The files of a batch are ordered by directory, so that few labels need a lookup.
    """
    layout = state.layout
    by_path: dict[str, int] = {}
    by_directory: dict[str, int] = {}
    starts: list[int] = []
    numbers: list[int] = []
    begin = ""
    for position, label in enumerate(state.labels):
        if begin and label.startswith(begin) and label.find("/", len(begin)) < 0:
            continue
        directory = split_label(label)[0]
        if directory not in by_directory:
            if layout.is_ours:
                layout.directory_values(directory)  # raises an error that names it
            path = layout.partition_of(label)
            by_directory[directory] = by_path.setdefault(path, len(by_path))
        starts.append(position)
        numbers.append(by_directory[directory])
        begin = f"{directory}/"
    lengths = np.diff([*starts, len(state.labels)])
    return list(by_path), np.repeat(np.array(numbers, dtype=np.int64), lengths)
