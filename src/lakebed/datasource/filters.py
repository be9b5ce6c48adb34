"""Filters that Spark pushes to a source, as predicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def predicate_of(filters: Sequence[Filter], types: Mapping[str, Type]) -> Predicate:
    """Return what filters say together, as far as it can be said.

    A row for which all filters are true is one for which the predicate is, too. Spark filters
    again what it gets, so that the predicate may say less.

    Args:
        filters: All of them hold.
        types: Of the columns that a predicate may name.
    """
    parts = []
    for one in filters:
        said = _predicate_of(one)
        if said is None:
            continue
        try:
            parts.append(bind(said, types))
        except InvalidInputError:
            continue  # a value that is not of its column's type, by our lights
    return all_of(parts)


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
        case spark.StringStartsWith(value=str(prefix)) if prefix:
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


def _begins_with(column: str, prefix: str) -> Predicate:
    """Return the range of texts with a prefix, in the order of their characters."""
    least = Comparison(column, Op.GE, prefix)
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return least
    following = ord(stem[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    return And((least, Comparison(column, Op.LT, stem[:-1] + chr(following))))
