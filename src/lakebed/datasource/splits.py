"""Which task reads what: files and parts of files, about as many bytes for each."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from lakebed.plan.plan import DataFile, Share

MIB = 2**20

# Without a say: a task for each 64 MiB, but for a dataset that would keep few cores busy so. How
# many there are, the process that plans does not know.
_SPLIT_BYTES = 64 * MIB
_LEAST_SPLIT_BYTES = 4 * MIB
_ENOUGH_TASKS = 32
# Opening a file takes about as long as reading so much of one.
_OPENING_BYTES = MIB // 2
_MOST_SHARES = 1024


def split(
    files: Sequence[DataFile],
    sizes: Sequence[int | None],
    *,
    split_bytes: int | None,
    is_divisible: bool,
) -> list[list[DataFile]]:
    """Share files out to tasks.

    Args:
        files: To read.
        sizes: Of the files in bytes; of one that nobody knows the size of, None.
        split_bytes: About so many bytes go to one task; None to judge by the files.
        is_divisible: Whether a part of a file can be read without the rest.

    Returns:
        For each task its files, or parts of them.
    """
    known = [size for size in sizes if size is not None]
    usual = sum(known) // len(known) if known else _SPLIT_BYTES // 8
    weights = [usual if size is None else size for size in sizes]
    total = sum(weights) + _OPENING_BYTES * len(files)
    target = split_bytes or max(_LEAST_SPLIT_BYTES, min(_SPLIT_BYTES, total // _ENOUGH_TASKS))
    units: list[tuple[int, DataFile]] = []
    for file, weight, size in zip(files, weights, sizes, strict=True):
        count = min(-(-weight // target), _MOST_SHARES)
        if not is_divisible or size is None or count < 2:
            units.append((weight + _OPENING_BYTES, file))
            continue
        units += [
            (weight // count + _OPENING_BYTES, replace(file, share=Share(number, count)))
            for number in range(count)
        ]
    return _balanced(units, -(-total // target))


def _balanced(units: list[tuple[int, DataFile]], count: int) -> list[list[DataFile]]:
    """Give the largest unit that is left to the task that has the least, again and again."""
    tasks: list[list[DataFile]] = [[] for _ in range(max(1, min(count, len(units))))]
    loads = [(0, number) for number in range(len(tasks))]
    for weight, file in sorted(units, key=lambda unit: -unit[0]):
        load, number = heapq.heappop(loads)
        tasks[number].append(file)
        heapq.heappush(loads, (load + weight, number))
    return [files for files in tasks if files]
