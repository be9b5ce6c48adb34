"""Facts of the files in the buffer of a root, in a form that takes few bytes for few files.

Parquet takes kilobytes for one file. So the facts of a commit are lists of plain values: numbers,
texts and bytes. Values of other types are numbers or texts, with the name of their type.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from lakebed.errors import CorruptMetadataError

_STATS = "stats"
# Types of bounds by their names, and the type that they are stored as.
_PLAIN: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "bool": (pa.bool_(), pa.bool_()),
    "int32": (pa.int32(), pa.int32()),
    "int64": (pa.int64(), pa.int64()),
    "uint64": (pa.uint64(), pa.uint64()),
    "float": (pa.float32(), pa.float32()),
    "double": (pa.float64(), pa.float64()),
    "string": (pa.string(), pa.string()),
    "binary": (pa.binary(), pa.binary()),
    "date": (pa.date32(), pa.int32()),
    "timestamp": (pa.timestamp("us", tz="UTC"), pa.int64()),
    "local timestamp": (pa.timestamp("us"), pa.int64()),
}
_NAMES = {kind: name for name, (kind, _) in _PLAIN.items()}
_DECIMAL = re.compile(r"decimal\(([1-9][0-9]?),([0-9]{1,2})\)")
Value = Any  # a number, a text, bytes or None; each is checked against the type when it is read


class InlineBounds(msgspec.Struct, frozen=True, array_like=True):
    """Bounds of one column in the files of a commit.

    Attributes:
        kind: Name of the type of the values.
        low: The lower bounds, as plain values.
        high: The upper bounds, as plain values.
        nulls: Numbers of nulls.
    """

    kind: str
    low: list[Value]
    high: list[Value]
    nulls: list[int | None]


class InlineFacts(msgspec.Struct, frozen=True, array_like=True):
    """Facts of the files of a commit, in the order in which the commit names them.

    Attributes:
        rows: Number of entities in each; None for an unknown number.
        sizes: Length of each; None for an unknown one.
        checksums: Checksum of each; None for an unknown one.
        columns: Bounds by column, under its name in data files.
    """

    rows: list[int | None]
    sizes: list[int | None]
    checksums: list[str | None]
    columns: dict[str, InlineBounds] = {}

    @property
    def count(self) -> int:
        """Number of the files."""
        return len(self.rows)


def inline(facts: pa.Table) -> InlineFacts:
    """Return the facts of some files.

    Args:
        facts: Table in the form of `lakebed.state.facts`.
    """
    columns = {}
    if _STATS in facts.column_names:
        stats = facts.column(_STATS).combine_chunks()
        if isinstance(stats, pa.ChunkedArray):
            stats = pa.concat_arrays(stats.chunks) if stats.num_chunks else pa.array([], stats.type)
        columns = {
            field.name: _column(stats, field)
            for field in stats.type
            if _name_of(field.type.field("min").type) is not None
        }
    rows, sizes, checksums = (
        facts.column(name).to_pylist() for name in ("row_count", "size_bytes", "checksum")
    )
    return InlineFacts(rows, sizes, checksums, columns)


def _column(stats: pa.StructArray, field: pa.Field) -> InlineBounds:
    import pyarrow.compute as pc

    low, high, nulls = (
        pc.struct_field(stats, [field.name, fact]) for fact in ("min", "max", "null_count")
    )
    name = _name_of(low.type)
    return InlineBounds(str(name), _stored(low), _stored(high), nulls.to_pylist())


def _name_of(kind: pa.DataType) -> str | None:
    """Return the name of a type; None if its values are not kept."""
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES.get(kind)


def _types(name: str) -> tuple[pa.DataType, pa.DataType]:
    """Return the type of a name, and the type that its values are stored as."""
    match = _DECIMAL.fullmatch(name)
    if match is not None:
        return pa.decimal128(int(match[1]), int(match[2])), pa.string()
    return _PLAIN[name]


def _stored(values: pa.Array) -> list[Value]:
    _, stored = _types(str(_name_of(values.type)))
    plain: list[Value] = values.cast(stored).to_pylist()
    return plain


def facts_table(parts: Sequence[InlineFacts], key: str) -> list[pa.Table]:
    """Return the checksums and bounds of the files of some commits, as section `B` of a leaf holds them.

    They are in the order of the commits, as tables of the same columns.

    Raises:
        CorruptMetadataError: A value is not of its type.
    """
    try:
        return [_table(part) for part in _grouped(parts)]
    except (pa.ArrowException, KeyError, ValueError, TypeError, OverflowError) as exc:
        raise CorruptMetadataError(
            f"Head {key!r} holds facts of files that cannot be read: {exc}.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc


def _grouped(parts: Sequence[InlineFacts]) -> list[InlineFacts]:
    """Return the facts with those of neighbours of the same columns and types in one.

    A commit has few files, and an array of Arrow takes as long for few values as for many.
    """
    grouped: list[InlineFacts] = []
    for _, group in itertools.groupby(parts, _form_of):
        alike = list(group)
        columns = {
            name: InlineBounds(
                bounds.kind,
                *(
                    [value for part in alike for value in getattr(part.columns[name], side)]
                    for side in ("low", "high", "nulls")
                ),
            )
            for name, bounds in alike[0].columns.items()
        }
        rows, sizes, checksums = (
            [value for part in alike for value in getattr(part, name)]
            for name in ("rows", "sizes", "checksums")
        )
        grouped.append(InlineFacts(rows, sizes, checksums, columns))
    return grouped


def _form_of(part: InlineFacts) -> list[tuple[str, str]]:
    return [(name, bounds.kind) for name, bounds in part.columns.items()]


def _table(part: InlineFacts) -> pa.Table:
    columns: dict[str, Any] = {"checksum": pa.array(part.checksums, pa.string())}
    if part.columns:
        structs = [_struct(column, part.count) for column in part.columns.values()]
        columns[_STATS] = pa.StructArray.from_arrays(structs, names=list(part.columns))
    return pa.table(columns)


def _struct(column: InlineBounds, count: int) -> pa.StructArray:
    kind, stored = _types(column.kind)
    low, high = (pa.array(side, stored).cast(kind) for side in (column.low, column.high))
    nulls = pa.array(column.nulls, pa.int64())
    if not len(low) == len(high) == len(nulls) == count:
        message = "the number of bounds is not that of the files"
        raise ValueError(message)
    return pa.StructArray.from_arrays([low, high, nulls], names=["min", "max", "null_count"])
