"""Equal floating-point values with equal bytes."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc


def with_one_zero_and_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column in which values that Spark takes for equal are equal in Arrow.

    Arrow groups by bytes, of which there are two for zero, and many for NaN. Columns of other types
    come back as they are.
    """
    if not pa.types.is_floating(column.type):
        return column
    is_nan = pc.is_nan(column)
    column = pc.add(column, pa.scalar(0, column.type))
    return pc.if_else(is_nan, pa.scalar(math.nan, column.type), column)
