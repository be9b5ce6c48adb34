"""Partitions as a tree, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakebed.commit import Partition
from lakebed.common.shown import human_size
from lakebed.model.totals import known_total

COLUMNS = ("partition", "files", "rows", "bytes", "size")


def tree_rows(name: str, partitions: Sequence[Partition]) -> Iterator[dict[str, object]]:
    """Yield the dataset, then each directory level with its totals, indented by depth.

    Args:
        name: Of the dataset.
        partitions: In order of path.
    """
    yield _row(name, partitions)
    yield from _below(partitions, depth=0)


def _below(partitions: Sequence[Partition], depth: int) -> Iterator[dict[str, object]]:
    groups: dict[str, list[Partition]] = {}
    for partition in partitions:
        levels = partition.path.split("/") if partition.path else []
        if len(levels) > depth:
            groups.setdefault(levels[depth], []).append(partition)
    for level, inside in groups.items():
        yield _row("  " * (depth + 1) + level, inside)
        yield from _below(inside, depth + 1)


def _row(label: str, partitions: Sequence[Partition]) -> dict[str, object]:
    size_bytes = known_total([partition.size_bytes for partition in partitions])
    return {
        "partition": label,
        "files": sum(partition.file_count for partition in partitions),
        "rows": known_total([partition.row_count for partition in partitions]),
        "bytes": size_bytes,
        "size": None if size_bytes is None else human_size(size_bytes),
    }
