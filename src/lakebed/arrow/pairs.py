"""Conditions and values over pairs of rows, for many pairs at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from lakebed.arrow.reasons import reason_of
from lakebed.arrow.sieve import RowFilter
from lakebed.errors import PredicateError, SchemaMismatchError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.assignments import (
    Computed,
    Constant,
    OfColumn,
    PairCondition,
    Term,
    columns_in,
)
from lakebed.model.formulas.computation import column_at, evaluate
from lakebed.model.formulas.storing import expression_of
from lakebed.model.merging import Assignment, Side
from lakebed.model.schema import Struct, Type

_MAX_DIGITS = 76  # of a decimal of 256 bits

Pairs = Mapping[Side, pa.RecordBatch]
"""Columns of each side, with one row for each pair."""


def column_of(sides: Pairs, name: str) -> pa.Array:
    """Return a column by its name in a condition, as `target.x`; a nested one by dots."""
    side, _, path = name.partition(".")
    return column_at(sides[Side(side)], path)


def met_by(condition: PairCondition, sides: Pairs) -> np.ndarray:
    """Return a mask of the pairs for which a condition is true, neither false nor unknown."""
    arrays, names = [], []
    for side, batch in sides.items():
        if batch.num_columns:
            columns = [batch.column(number) for number in range(batch.num_columns)]
            arrays.append(pa.StructArray.from_arrays(columns, names=batch.schema.names))
            names.append(str(side))
    count = next(iter(sides.values())).num_rows
    if not arrays:  # such as TRUE
        arrays, names = [pa.nulls(count)], ["lakebed.nothing"]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    return RowFilter.of(condition.predicate, condition.types).mask(batch)


def value_of(assignment: Assignment, kind: Type, sides: Pairs) -> pa.Array:
    """Return the value of an assignment for each pair.

    Args:
        assignment: Assignment to evaluate.
        kind: Type of the field.
        sides: Columns of the pairs.

    Raises:
        SchemaMismatchError: A value is out of the range of the type.
    """
    try:
        whole = _with_whole_records(assignment, kind, sides)
        return value_of_term(assignment.term, type_to_arrow(kind), whole)
    except PredicateError as exc:
        raise SchemaMismatchError(
            f"Field {assignment.name!r} of type {kind} cannot be set: {exc.message}", hint=exc.hint
        ) from exc
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise SchemaMismatchError(
            f"Field {assignment.name!r} of type {kind} cannot be set: {reason_of(exc)}.",
            hint="Correct the data or the value, or widen the field.",
        ) from exc


def _with_whole_records(assignment: Assignment, kind: Type, sides: Pairs) -> Pairs:
    """Return the pairs, in which records of the data have the parts that the data lacks.

    They keep the parts of the field that is set.
    """
    if not isinstance(kind, Struct) or Side.SOURCE not in sides:
        return sides
    rows, old = sides[Side.SOURCE], column_of(sides, Side.TARGET.named(assignment.name))
    for column in Side.SOURCE.own(columns_in(assignment.term)):
        number = rows.schema.get_field_index(column)
        if number >= 0 and pa.types.is_struct(rows.schema.field(number).type):
            whole = _with_parts_of(old, rows.column(number), type_to_arrow(kind))
            rows = rows.set_column(number, column, whole)
    return {**sides, Side.SOURCE: rows}


def _with_parts_of(old: pa.StructArray, new: pa.StructArray, kind: pa.StructType) -> pa.StructArray:
    """Return records of a type, with the parts of old records that new ones lack."""
    if new.type == kind:
        return new
    parts = []
    old_parts, new_parts = old.flatten(), new.flatten()
    for field, before in zip(kind, old_parts, strict=True):
        number = new.type.get_field_index(field.name)
        part = before if number < 0 else new_parts[number]
        is_record = number >= 0 and pa.types.is_struct(field.type)
        parts.append(
            _with_parts_of(before, part, field.type) if is_record else part.cast(field.type)
        )
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=new.is_null())


def value_of_term(term: Term, kind: pa.DataType, sides: Pairs) -> pa.Array:
    """Return the value of a term for each pair, in a type.

    Raises:
        PredicateError: A value is an error, such as a division by zero.
    """
    count = next(iter(sides.values())).num_rows
    match term:
        case OfColumn(name):
            column = column_of(sides, name)
            return column if column.type == kind else column.cast(kind)
        case Constant(value):
            return pa.repeat(pa.scalar(value, kind), count)
        case Computed():
            columns = {name: column_of(sides, name) for name in term.columns}
            (value,) = evaluate([expression_of(term)], columns, count)
            return value if value.type == kind else value.cast(kind)
