"""The local writer: the kernel in this process."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.state.written import Written
from lakebed.store.base import Store


def write_batches(store: Store, target: BatchTarget, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write record batches as the data files of one batch.

    Raises:
        LakebedError: The data does not fit, or the store failed. What was written is deleted.
    """
    writer = KernelWriter(store, target)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise
