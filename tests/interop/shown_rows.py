"""Rows as pandas shows them, to compare with what plateau and kartothek give."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import pyarrow as pa


def as_pandas_sees(table: pa.Table, keys: Collection[str]) -> list[dict[str, Any]]:
    """Return the rows as they must give them.

    pandas has no null but NaN, which makes floats of whole numbers; they have no zone in keys.
    """
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_integer(field.type) and column.null_count:
            table = table.set_column(position, field.name, column.cast(pa.float64(), safe=False))
        elif pa.types.is_timestamp(field.type) and field.name in keys:
            table = table.set_column(position, field.name, column.cast(pa.timestamp("us")))
    return [{name: seen(value) for name, value in row.items()} for row in table.to_pylist()]


def seen(value: Any) -> Any:
    """Return a value as it is seen there."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, list | tuple):
        return [seen(one) for one in value]
    if isinstance(value, dict):
        return {key: seen(one) for key, one in value.items()}
    return value


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows in an order of their own."""
    return sorted(rows, key=lambda row: (row["id"], row["batch_id"], row.get("price") or 0))
