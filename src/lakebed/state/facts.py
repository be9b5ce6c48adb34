"""File facts: what is known of a data file without opening it.

Facts of many files are one Arrow table, the same in memory, in a task's answer and in a segment
of the file table. Columns: `label`, `row_count`, `size_bytes`, `checksum`, and `stats`, a struct
with one struct of `min`, `max` and `null_count` for each column of a primitive type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.schema import Decimal, Primitive, Schema
from lakebed.model.values import Scalar

# Longer bounds are left out: an unknown bound never drops a file, and heads of text stay small.
MAX_BOUND_LENGTH = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """Bounds and nulls of one column in one file.

    Attributes:
        min: Smallest value, NaN and null aside; None if unknown or if there is none.
        max: Largest value, NaN and null aside; None if unknown or if there is none.
        null_count: Number of nulls, or None if unknown.
    """

    min: Scalar = None
    max: Scalar = None
    null_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """One data file.

    Attributes:
        label: Its key without the table's prefix and the suffix.
        row_count: Number of entities.
        size_bytes: Length of the file.
        checksum: Of the whole file, as `algorithm:hex`.
        columns: Facts by column.
    """

    label: str
    row_count: int
    size_bytes: int
    checksum: str
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)


def facts_schema(stored: Schema) -> pa.Schema:
    """Return the schema of a facts table for files of `stored` fields."""
    stats = [
        pa.field(
            f.name,
            pa.struct(
                [
                    pa.field("min", type_to_arrow(f.type)),
                    pa.field("max", type_to_arrow(f.type)),
                    pa.field("null_count", pa.int64()),
                ]
            ),
        )
        for f in stored.fields
        if isinstance(f.type, Primitive | Decimal)
    ]
    return pa.schema(
        [
            pa.field("label", pa.string(), nullable=False),
            pa.field("row_count", pa.int64(), nullable=False),
            pa.field("size_bytes", pa.int64(), nullable=False),
            pa.field("checksum", pa.string(), nullable=False),
            *([pa.field("stats", pa.struct(stats))] if stats else []),
        ]
    )


def facts_table(facts: Sequence[FileFacts], stored: Schema) -> pa.Table:
    """Return facts as a table, in the order given."""
    schema = facts_schema(stored)
    rows = [
        {
            "label": one.label,
            "row_count": one.row_count,
            "size_bytes": one.size_bytes,
            "checksum": one.checksum,
            "stats": {
                name: {
                    "min": _bound(column.min),
                    "max": _bound(column.max),
                    "null_count": column.null_count,
                }
                for name, column in one.columns.items()
            },
        }
        for one in facts
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _bound(value: Scalar) -> Scalar:
    return None if isinstance(value, str | bytes) and len(value) > MAX_BOUND_LENGTH else value
