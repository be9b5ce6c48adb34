"""Partitions as a tree, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakebed.commit import Partition

COLUMNS = ("partition", "files", "rows", "bytes", "size")
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


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
    size_bytes = _total([partition.size_bytes for partition in partitions])
    return {
        "partition": label,
        "files": sum(partition.file_count for partition in partitions),
        "rows": _total([partition.row_count for partition in partitions]),
        "bytes": size_bytes,
        "size": None if size_bytes is None else human_size(size_bytes),
    }


def _total(numbers: Sequence[int | None]) -> int | None:
    """Add up; None where a file of another tool is not counted."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def human_size(size_bytes: int) -> str:
    """Return a size in the largest unit that leaves a number of at least 1.

    >>> human_size(0), human_size(1023), human_size(1024), human_size(5 * 2**30)
    ('0 B', '1023 B', '1.0 KiB', '5.0 GiB')
    """
    size, unit = float(size_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size_bytes} B"
