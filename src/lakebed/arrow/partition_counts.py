"""Rows of each partition, counted by the write kernel without a write."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.store.base import Store


def count_by_partition(
    store: Store, target: BatchTarget, batches: Iterable[pa.RecordBatch]
) -> dict[str, int]:
    """Return how many rows a write would put into each partition, by path.

    Raises:
        LakebedError: The data does not fit; see `KernelWriter.write`.
    """
    kernel = KernelWriter(store, target)  # it only checks rows
    counts = np.zeros(0, dtype=np.int64)
    for batch in batches:
        checked = kernel.checked(batch)
        numbers = np.broadcast_to(checked.numbers, checked.rows.num_rows)
        judged = kernel.judge(checked)
        if judged is not None:
            numbers = numbers[judged.is_kept]
        more = np.bincount(numbers, minlength=len(kernel.partitions))
        more[: len(counts)] += counts
        counts = more
    kernel.require_checks()
    return dict(zip(kernel.partitions, counts.tolist(), strict=True))
