"""Conditions and values over pairs of rows, for many pairs at once."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.reasons import reason_of
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.assignments import Computed, Constant, Function, OfColumn, Term
from lakebed.model.merging import Assignment, PairCondition, Side
from lakebed.model.predicate import Op, Predicate
from lakebed.model.schema import Type
from lakebed.plan.expression import to_arrow_expression

_PLACE = "lakebed.place"  # no field has a dot in its name

Pairs = Mapping[Side, pa.RecordBatch]
"""Columns of each side, with one row for each pair."""


def column_of(sides: Pairs, name: str) -> pa.Array:
    """Return a column by its name in a condition, as `target.x`; a nested one by dots."""
    side, _, path = name.partition(".")
    batch = sides[Side(side)]
    root, *inner = path.split(".")
    if path in batch.schema.names:
        return batch.column(path)
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
        return _computed(assignment.term, type_to_arrow(kind), sides, count)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise SchemaMismatchError(
            f"Field {assignment.name!r} of type {kind} cannot be set: {reason_of(exc)}.",
            hint="Correct the data or the value, or widen the field.",
        ) from exc


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


def _applied(function: Function, columns: list[pa.Array]) -> pa.Array:
    match function:
        case Function.ADD:
            return pc.add_checked(*columns)
        case Function.SUBTRACT:
            return pc.subtract_checked(*columns)
        case Function.MULTIPLY:
            return pc.multiply_checked(*columns)
        case Function.COALESCE:
            return pc.coalesce(*columns)
        case Function.GREATEST:
            return functools.reduce(lambda one, two: _chosen(one, Op.GE, two), columns)
        case Function.LEAST:
            return functools.reduce(lambda one, two: _chosen(one, Op.LE, two), columns)


def _chosen(one: pa.Array, op: Op, two: pa.Array) -> pa.Array:
    """Return the value of each pair that compares so with the other; null only where both are."""
    return pc.coalesce(pc.if_else(compared(one, op, two), one, two), one, two)
