"""File facts: metadata of a data file that is known without opening the file.

The facts of many files are one Arrow table, the same in memory, in a task's answer and in a segment
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

# Characters or bytes of a bound; longer ones are cut, so that the file table stays small.
MAX_BOUND_LENGTH = 128
_LAST_CHARACTER = "\U0010ffff"
_SURROGATES = range(0xD800, 0xE000)  # code points that are not characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts:
    """Bounds and nulls of one column in one file.

    The file table cuts long texts and bytes: a bound then need not equal a value, but no value
    lies outside the bounds. A cut bound never equals the other one, so equal bounds are exact.

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
    """Facts of one data file.

    Attributes:
        label: Key of the file without the table's prefix and the suffix.
        row_count: Number of entities.
        size_bytes: Length of the file.
        checksum: Checksum of the whole file, as `algorithm:hex`.
        columns: Facts by column.
    """

    label: str
    row_count: int
    size_bytes: int
    checksum: str
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Size and checksum of a data file, recorded when it was written.

    Attributes:
        size_bytes: Length of the file.
        checksum: Checksum of the whole file, as `algorithm:hex`; empty if unknown.
    """

    size_bytes: int
    checksum: str

    @property
    def sha256(self) -> str | None:
        """The expected SHA-256 of the content; None if unknown or of another algorithm."""
        algorithm, _, wanted = self.checksum.partition(":")
        return wanted if algorithm == "sha256" else None


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
            "label": file.label,
            "row_count": file.row_count,
            "size_bytes": file.size_bytes,
            "checksum": file.checksum,
            "stats": {
                name: {
                    "min": lower_bound(column.min),
                    "max": upper_bound(column.max),
                    "null_count": column.null_count,
                }
                for name, column in file.columns.items()
            },
        }
        for file in facts
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def lower_bound(value: Scalar) -> Scalar:
    """Return a value that is at most `value`, and short enough to keep.

    >>> len(lower_bound("a" * 1000))
    128
    """
    return value[:MAX_BOUND_LENGTH] if isinstance(value, str | bytes) else value


def upper_bound(value: Scalar) -> Scalar:
    """Return a value that is at least `value`, and short enough to keep; None if there is none.

    >>> upper_bound("a" * 1000) == "a" * 127 + "b"
    True
    """
    if not isinstance(value, str | bytes) or len(value) <= MAX_BOUND_LENGTH:
        return value
    cut = value[:MAX_BOUND_LENGTH]
    return _next_text(cut) if isinstance(cut, str) else _next_bytes(cut)


def _next_text(text: str) -> str | None:
    """Return the smallest text that is greater than all that begin with `text`."""
    head = text.rstrip(_LAST_CHARACTER)
    if not head:
        return None
    following = ord(head[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return head[:-1] + chr(following)


def _next_bytes(text: bytes) -> bytes | None:
    head = text.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
