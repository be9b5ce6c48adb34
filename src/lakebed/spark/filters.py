"""Filters that Spark pushes to a source, as predicates.

They are recognised by the names of their classes: Spark 4.0 has them only in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError
from lakebed.model.predicate import (
    FALSE,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    begins_with,
    bind,
    negate,
)
from lakebed.model.schema import Type

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_OPS: Mapping[str, Op] = {
    "EqualTo": Op.EQ,
    "GreaterThan": Op.GT,
    "GreaterThanOrEqual": Op.GE,
    "LessThan": Op.LT,
    "LessThanOrEqual": Op.LE,
}


@dataclass(frozen=True, slots=True)
class ColumnFilter:
    """A filter on one column.

    Attributes:
        kind: The name of Spark's class.
        column: Name of the column; with dots for a field in a record.
        value: Value that the column is compared with; the values of an `In`.
    """

    kind: str
    column: str
    value: Any = None


def predicate_of(filters: Iterable[Filter], types: Mapping[str, Type]) -> Predicate:
    """Return the conjunction of filters, as far as it can be expressed.

    The predicate is true for every row for which all filters are true. It may be weaker: Spark
    filters again.

    Args:
        filters: Filters that Spark pushes down.
        types: Types of the columns that a predicate may name.
    """
    said = (_said_by_filter(pushed, types) for pushed in filters)
    return all_of([predicate for predicate in said if predicate is not None])


def _said_by_filter(pushed: Any, types: Mapping[str, Type]) -> Predicate | None:
    is_negated = False
    while type(pushed).__name__ == "Not":
        pushed, is_negated = pushed.child, not is_negated
    value = getattr(pushed, "value", None)
    leaf = ColumnFilter(type(pushed).__name__, ".".join(pushed.attribute), value)
    return said_by(leaf, types, is_negated=is_negated)


def said_by(
    leaf: ColumnFilter, types: Mapping[str, Type], *, is_negated: bool = False
) -> Predicate | None:
    """Return the exact bound predicate of a filter or its negation; None if there is none."""
    predicate = _negation_of(leaf) if is_negated else _predicate_of(leaf)
    if predicate is None:
        return None
    try:
        return bind(predicate, types)
    except InvalidInputError:
        return None  # a column of another kind, or a value of another type by our rules


def _predicate_of(leaf: ColumnFilter) -> Predicate | None:
    column = leaf.column
    match leaf:
        case ColumnFilter("IsNull"):
            return NullCheck(column)
        case ColumnFilter("IsNotNull"):
            return NullCheck(column, negated=True)
        case ColumnFilter("EqualNullSafe", value=None):
            return NullCheck(column)
        case ColumnFilter("EqualNullSafe", value=value):
            return Comparison(column, Op.EQ, value)
        case ColumnFilter("In", value=values):
            # Nothing is equal to null.
            return Membership(column, tuple(value for value in values if value is not None))
        case ColumnFilter("StringStartsWith", value=str(prefix)):
            return begins_with(column, prefix)
    op = _OPS.get(leaf.kind)
    return None if op is None or leaf.value is None else Comparison(column, op, leaf.value)


def _negation_of(leaf: ColumnFilter) -> Predicate | None:
    match leaf:
        case ColumnFilter("EqualNullSafe", value=value) if value is not None:
            column = leaf.column
            return any_of([NullCheck(column), Comparison(column, Op.NE, value)])
        case ColumnFilter("In", value=values) if None in values:
            return FALSE  # unknown for each value that is not listed
    said = _predicate_of(leaf)
    return None if said is None else negate(said)
