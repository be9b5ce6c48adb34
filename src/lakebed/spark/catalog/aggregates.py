"""Counts, minima and maxima of whole files from the file table, where they are exact.

They are not taken from there, but computed by Spark, if a file was written by another tool, or has
no facts; for floats, whose bounds leave NaN out; for texts and bytes whose bound was cut; and for
columns that older files do not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.older import OlderFiles
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import Predicate
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.plan.search import count_known_rows
from lakebed.spark.native_read import find_odd
from lakebed.state import file_table
from lakebed.state.facts import MAX_BOUND_LENGTH

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import TableVersion
    from lakebed.spark.catalog.session_jvm import Jvm

_FUNCTIONS = ("COUNT(", "MIN(", "MAX(")
_EXACT = frozenset(
    {
        Kind.BOOLEAN,
        Kind.INT,
        Kind.LONG,
        Kind.DATE,
        Kind.TIMESTAMP,
        Kind.TIMESTAMP_NTZ,
        Kind.STRING,
        Kind.BYTES,
    }
)


@dataclass(frozen=True, slots=True)
class ColumnFunction:
    """A function of a column.

    Attributes:
        function: `count`, `min` or `max`.
        column: Name of the column; None for `count(*)`.
    """

    function: str
    column: str | None


def aggregates_of(jvm: Jvm, aggregation: Any) -> list[ColumnFunction] | None:
    """Return the functions of an aggregation of Spark's JVM; None if there are others.

    Args:
        jvm: The JVM of the session.
        aggregation: An `org.apache.spark.sql.connector.expressions.aggregate.Aggregation`.
    """
    functions = aggregation.aggregateExpressions()
    # One text first, since a call for each part would take longer.
    is_known = all(text.startswith(_FUNCTIONS) for text in jvm.to_lines(functions).split("\n"))
    if not is_known or len(aggregation.groupByExpressions()):
        return None
    aggregates = []
    for function in functions:
        kind = str(function.getClass().getSimpleName())
        if kind == "CountStar":
            aggregates.append(ColumnFunction("count", None))
            continue
        if kind not in ("Count", "Min", "Max") or (kind == "Count" and function.isDistinct()):
            return None
        column = function.column()
        if str(column.getClass().getSimpleName()) != "FieldReference":
            return None  # an expression
        names = list(column.fieldNames())
        if len(names) != 1:
            return None
        aggregates.append(ColumnFunction(kind.lower(), str(names[0])))
    return aggregates


def find_aggregates(
    opened: TableVersion, aggregates: Sequence[ColumnFunction], condition: Predicate
) -> pa.Table | None:
    """Return the values of functions over rows, as one row; None if some are not known exactly.

    Args:
        opened: Version of the table.
        aggregates: The functions.
        condition: Condition on levels of paths, for which all rows of a file match, or none.

    Cost:
        One GET for each segment of the file table, unless the process has read it before.
    """
    names = {one.column for one in aggregates if one.column is not None}
    columns = _find_columns(opened, names, condition) if names else {}
    if columns is None:
        return None
    if any(one.column is None for one in aggregates):
        count, rest = count_known_rows(opened.state, condition, opened.store)
        if rest.files:
            return None
    else:
        count = 0
    arrays = []
    for one in aggregates:
        if one.column is None:
            arrays.append(pa.array([count], pa.int64()))
        elif one.function == "count":
            arrays.append(pa.array([columns[one.column].count], pa.int64()))
        else:
            found = columns[one.column]
            value = found.min if one.function == "min" else found.max
            if not found.has_bounds or _is_cut(value):
                return None
            arrays.append(pa.array([value], found.type))
    titles = [f"{one.function}_{position}" for position, one in enumerate(aggregates)]
    return pa.Table.from_arrays(arrays, names=titles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnTotals:
    """The exact facts of a column.

    Attributes:
        type: Its type.
        count: Number of values that are not null.
        min: Smallest value; None if there is none.
        max: Largest value; None if there is none.
        has_bounds: Whether these two are exact, unless one was cut.
    """

    type: pa.DataType
    count: int
    min: object = None
    max: object = None
    has_bounds: bool


def _find_columns(
    opened: TableVersion, names: Iterable[str], condition: Predicate
) -> dict[str, _ColumnTotals] | None:
    """Return what is known of columns; None if something that every function needs is unknown."""
    layout = opened.layout
    chosen = opened.choose(condition)
    levels = layout.partition_level_types
    stored = [name for name in names if name not in levels]
    schema = layout.stored_schema
    if not layout.is_ours or any(find_odd(file) for file in chosen.files):
        return None
    if any(name not in schema.names for name in stored):
        return None
    for number in {file.schema_number for file in chosen.files}:
        reading = OlderFiles.of(layout, number).for_columns(stored).reading
        if reading.rebuilt or reading.constants:
            return None
    types = {name: schema.get(name).type for name in stored}
    if not all(isinstance(type_, Primitive | Decimal) for type_ in types.values()):
        return None
    held = {schema.stored_name(name): type_to_arrow(type_) for name, type_ in types.items()}
    labels = pa.array([file.label for file in chosen.files], pa.large_string())
    segments = chosen.file_table or opened.state.lists.files
    facts = file_table.find(opened.store, segments, labels, held)
    if facts.row_count.null_count:
        return None
    rows = facts.row_count.to_pylist()
    found: dict[str, _ColumnTotals] = {}
    for name in names:
        if name in levels:
            values = [file.partition.get(name) for file in chosen.files]
            found[name] = _of_level(values, rows, levels[name])
            continue
        known = _of_bounds(facts.columns[schema.stored_name(name)], rows, types[name])
        if known is None:
            return None
        found[name] = known
    return found


def _of_level(values: Sequence[Any], rows: Sequence[int], type_: Type) -> _ColumnTotals:
    """Return what is known of a partition field, from the values in the paths of files."""
    present = [value for value, count in zip(values, rows, strict=True) if count]
    known = [value for value in present if value is not None]
    pairs = zip(values, rows, strict=True)
    return _ColumnTotals(
        type=type_to_arrow(type_),
        count=sum(count for value, count in pairs if value is not None),
        min=min(known, default=None),
        max=max(known, default=None),
        has_bounds=_is_exact(type_),
    )


def _of_bounds(bounds: file_table.Bounds, rows: Sequence[int], type_: Type) -> _ColumnTotals | None:
    """Return what is known of a column by its bounds in files; None if nulls were not counted."""
    if bounds.null_count.null_count:
        return None
    nulls = bounds.null_count.to_pylist()
    has_values = [count > null for count, null in zip(rows, nulls, strict=True)]
    low, high = (side.filter(pa.array(has_values, pa.bool_())) for side in (bounds.min, bounds.max))
    is_known = _is_exact(type_) and not (low.null_count or high.null_count)
    smallest = largest = None
    if is_known and len(low):
        smallest, largest = pc.min(low).as_py(), pc.max(high).as_py()
    return _ColumnTotals(
        type=type_to_arrow(type_),
        count=sum(rows) - sum(nulls),
        min=smallest,
        max=largest,
        has_bounds=is_known,
    )


def _is_exact(type_: Type) -> bool:
    return isinstance(type_, Decimal) or (isinstance(type_, Primitive) and type_.kind in _EXACT)


def _is_cut(value: object) -> bool:
    """Return whether a bound may be shorter than the value: others lie within the bounds."""
    return isinstance(value, str | bytes) and len(value) >= MAX_BOUND_LENGTH
