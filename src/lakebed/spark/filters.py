"""Filters that Spark pushes to a source, as predicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pyspark.sql import datasource as spark
from pyspark.sql.datasource import Filter

from lakebed.errors import InvalidInputError
from lakebed.model.predicate import (
    FALSE,
    And,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    bind,
    negate,
)
from lakebed.model.schema import Type

_OPS: Mapping[type[Filter], Op] = {
    spark.EqualTo: Op.EQ,
    spark.GreaterThan: Op.GT,
    spark.GreaterThanOrEqual: Op.GE,
    spark.LessThan: Op.LT,
    spark.LessThanOrEqual: Op.LE,
}
_LAST_CHARACTER = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)  # stand for no character


def predicate_of(filters: Iterable[Filter], types: Mapping[str, Type]) -> Predicate:
    """Return what filters say together, as far as it can be said.

    A row for which all filters are true is one for which the predicate is, too. It may say less:
    Spark filters again.

    Args:
        filters: All of them hold.
        types: Of the columns that a predicate may name.
    """
    said = (said_by(one, types) for one in filters)
    return all_of([predicate for predicate in said if predicate is not None])


def said_by(one: Filter, types: Mapping[str, Type]) -> Predicate | None:
    """Return exactly what one filter says, bound; None where that cannot be said."""
    predicate = _predicate_of(one)
    if predicate is None:
        return None
    try:
        return bind(predicate, types)
    except InvalidInputError:
        return None  # a column of another kind, or by our lights a value of another type


def _predicate_of(one: Filter) -> Predicate | None:
    if isinstance(one, spark.Not):
        return _negation_of(one.child)
    column = ".".join(one.attribute)  # type: ignore[attr-defined]  # all others have it
    match one:
        case spark.IsNull():
            return NullCheck(column)
        case spark.IsNotNull():
            return NullCheck(column, negated=True)
        case spark.EqualNullSafe(value=None):
            return NullCheck(column)
        case spark.EqualNullSafe(value=value):
            return Comparison(column, Op.EQ, value)
        case spark.In(value=values):
            # Nothing is equal to null.
            return Membership(column, tuple(value for value in values if value is not None))
        case spark.StringStartsWith(value=str(prefix)):
            return _begins_with(column, prefix)
    op = _OPS.get(type(one))
    value = getattr(one, "value", None)
    return None if op is None or value is None else Comparison(column, op, value)


def _negation_of(one: Filter) -> Predicate | None:
    match one:
        case spark.EqualNullSafe(value=value) if value is not None:
            column = ".".join(one.attribute)
            return any_of([NullCheck(column), Comparison(column, Op.NE, value)])
        case spark.In(value=values) if None in values:
            return FALSE  # unknown for each value that is not listed
    said = _predicate_of(one)
    return None if said is None else negate(said)


def _begins_with(column: str, prefix: str) -> Predicate | None:
    """Return the range of texts with a prefix, in the order of their characters."""
    if not prefix or prefix.endswith(_LAST_CHARACTER):
        return None
    following = ord(prefix[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    end = prefix[:-1] + chr(following)
    return And((Comparison(column, Op.GE, prefix), Comparison(column, Op.LT, end)))
