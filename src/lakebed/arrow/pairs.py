"""Conditions and values over pairs of rows, for many pairs at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.reasons import reason_of
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.assignments import (
    Choice,
    Computed,
    Constant,
    Converted,
    Function,
    OfColumn,
    PairCondition,
    Rounded,
    Term,
    columns_of_type,
)
from lakebed.model.merging import Assignment, Side
from lakebed.model.predicate import Op, Predicate
from lakebed.model.schema import Struct, Type
from lakebed.plan.expression import to_arrow_expression

_PLACE = "lakebed.place"  # no field has a dot in its name
_MAX_DIGITS = 76  # of a decimal of 256 bits

Pairs = Mapping[Side, pa.RecordBatch]
"""Columns of each side, with one row for each pair."""


def column_of(sides: Pairs, name: str) -> pa.Array:
    """Return a column by its name in a condition, as `target.x`; a nested one by dots."""
    side, _, path = name.partition(".")
    batch = sides[Side(side)]
    root, *inner = path.split(".")
    position = batch.schema.get_field_index(path)
    if position >= 0:
        return batch.column(position)
    column = batch.column(root)
    return pc.struct_field(column, inner)


def met_by(condition: PairCondition, sides: Pairs) -> np.ndarray:
    """Return a mask of the pairs for which a condition is true, neither false nor unknown."""
    arrays, names = [], []
    for side, batch in sides.items():
        if batch.num_columns:
            columns = [batch.column(number) for number in range(batch.num_columns)]
            arrays.append(pa.StructArray.from_arrays(columns, names=batch.schema.names))
            names.append(str(side))
    for name, pair in condition.compared.items():
        left, right = column_of(sides, pair.left), column_of(sides, pair.right)
        arrays.append(compared(left, pair.op, right))
        names.append(name)
    count = next(iter(sides.values())).num_rows
    if not arrays:  # such as TRUE
        arrays, names = [pa.nulls(count)], ["lakebed.nothing"]
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    return rows_that_meet(condition.predicate, batch, condition.types)


def rows_that_meet(
    predicate: Predicate, batch: pa.RecordBatch, types: Mapping[str, Type]
) -> np.ndarray:
    """Return a mask of the rows of a batch for which a predicate is true."""
    numbered = batch.append_column(_PLACE, pa.array(np.arange(batch.num_rows)))
    places = numbered.filter(to_arrow_expression(predicate, types)).column(_PLACE)
    is_met = np.zeros(batch.num_rows, dtype=bool)
    is_met[places.to_numpy()] = True
    return is_met


def compared(left: pa.Array, op: Op, right: pa.Array) -> pa.Array:
    """Compare two columns; null where one of them is. NaN equals itself and is the greatest."""
    left_nan, right_nan = _is_nan(left), _is_nan(right)
    match op:
        case Op.EQ | Op.NE:
            both = pc.and_(left_nan, right_nan)
            truths = pc.or_(pc.equal(left, right), both)
        case Op.LT | Op.GE:
            truths = pc.or_(pc.less(left, right), pc.and_(pc.invert(left_nan), right_nan))
        case Op.GT | Op.LE:
            truths = pc.or_(pc.greater(left, right), pc.and_(left_nan, pc.invert(right_nan)))
    return pc.invert(truths) if op in (Op.NE, Op.GE, Op.LE) else truths


def _is_nan(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return pc.is_nan(column)
    return pa.repeat(pa.scalar(value=False), len(column))


def value_of(assignment: Assignment, kind: Type, sides: Pairs) -> pa.Array:
    """Return the value of an assignment for each pair.

    Args:
        assignment: Assignment to evaluate.
        kind: Type of the field.
        sides: Columns of the pairs.

    Raises:
        SchemaMismatchError: A value is out of the range of the type.
    """
    count = next(iter(sides.values())).num_rows
    try:
        whole = _with_whole_records(assignment, kind, sides)
        return _computed(assignment.term, type_to_arrow(kind), whole, count)
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
    for column in Side.SOURCE.own(columns_of_type(assignment.term)):
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


def _computed(term: Term, kind: pa.DataType, sides: Pairs, count: int) -> pa.Array:
    match term:
        case OfColumn(name):
            column = column_of(sides, name)
            return column if column.type == kind else column.cast(kind)
        case Constant(value):
            return pa.repeat(pa.scalar(value, kind), count)
        case Computed(function, parts):
            columns = [_computed(part, kind, sides, count) for part in parts]
            return _applied(function, columns).cast(kind)
        case Rounded(part, places):
            # As in SQL, 2.5 becomes 3 and -2.5 becomes -3.
            column = _computed(part, kind, sides, count)
            if pa.types.is_decimal(kind):
                # Arrow 26 reports a value that the precision cannot hold only where no other
                # follows, and else rounds it to 0. The conversion back checks each value.
                column = column.cast(pa.decimal256(_MAX_DIGITS, kind.scale))
            rounded = pc.round(column, places, "half_towards_infinity").cast(kind)
            # As in SQL, -0.3 becomes 0, without a sign.
            return pc.add(rounded, pa.scalar(0, kind)) if pa.types.is_floating(kind) else rounded
        case Converted(part, own, _):
            return _converted(_computed(part, type_to_arrow(own), sides, count), kind)
        case Choice(branches, otherwise):
            return _first_true(branches, otherwise, kind, sides, count)


def _first_true(
    branches: Sequence[tuple[PairCondition, Term]],
    otherwise: Term,
    kind: pa.DataType,
    sides: Pairs,
    count: int,
) -> pa.Array:
    """Evaluate each term for the pairs that it is for, so that others cannot raise its errors."""
    left, places, values = np.arange(count), [], []
    for condition, part in branches:
        is_met = met_by(condition, _taken(sides, left))
        rows, left = left[is_met], left[~is_met]
        places.append(rows)
        values.append(_computed(part, kind, _taken(sides, rows), len(rows)))
    places.append(left)
    values.append(_computed(otherwise, kind, _taken(sides, left), len(left)))
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(values).take(pa.array(order))


def _taken(sides: Pairs, rows: np.ndarray) -> Pairs:
    return {side: batch.take(pa.array(rows)) for side, batch in sides.items()}


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert values to another type; raise for a value that the type cannot hold exactly."""
    if pa.types.is_decimal(kind) and pa.types.is_integer(column.type):
        column = column.cast(pa.decimal128(38, kind.scale))  # Arrow judges by the type alone
    converted = column.cast(kind)
    if pa.types.is_float32(kind) and pa.types.is_float64(column.type):
        _check_same(column, converted.cast(column.type), kind)
    return converted


def _check_same(before: pa.Array, after: pa.Array, kind: pa.DataType) -> None:
    differs = pc.and_(pc.not_equal(before, after), pc.is_finite(before))
    if pc.any(differs).as_py():
        value = before.filter(differs)[0].as_py()
        msg = f"{value} is not exactly a value of type {kind}"
        raise pa.ArrowInvalid(msg)


def _applied(function: Function, columns: list[pa.Array]) -> pa.Array:
    match function:
        case Function.ADD:
            return pc.add_checked(*columns)
        case Function.SUBTRACT:
            return pc.subtract_checked(*columns)
        case Function.MULTIPLY:
            return pc.multiply_checked(*columns)
        case Function.DIVIDE:
            return pc.divide_checked(*columns)
        case Function.COALESCE:
            return pc.coalesce(*columns)
        case Function.GREATEST:
            return functools.reduce(lambda one, two: _chosen(one, Op.GE, two), columns)
        case Function.LEAST:
            return functools.reduce(lambda one, two: _chosen(one, Op.LE, two), columns)
        case Function.ABS:
            return pc.abs_checked(*columns)
        case Function.UPPER:
            return _in_case(columns[0], pc.ascii_upper, str.upper)
        case Function.LOWER:
            return _in_case(columns[0], pc.ascii_lower, str.lower)
        case Function.TRIM:
            return pc.utf8_trim(*columns, " ")
        case Function.LTRIM:
            return pc.utf8_ltrim(*columns, " ")
        case Function.RTRIM:
            return pc.utf8_rtrim(*columns, " ")
        case Function.CONCAT:
            return pc.binary_join_element_wise(*columns, "")


def _in_case(
    column: pa.Array, of_ascii: Callable[[pa.Array], pa.Array], of_any: Callable[[str], str]
) -> pa.Array:
    """Return texts in upper or lower case; as in SQL, a letter may become several: ß becomes SS."""
    if pc.all(pc.string_is_ascii(column)).as_py() is not False:
        return of_ascii(column)
    texts = [None if text is None else of_any(text) for text in column.to_pylist()]
    return pa.array(texts, column.type)


def _chosen(one: pa.Array, op: Op, two: pa.Array) -> pa.Array:
    """Return the value of each pair that compares so with the other; null only where both are."""
    return pc.coalesce(pc.if_else(compared(one, op, two), one, two), one, two)
