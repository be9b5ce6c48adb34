"""Evaluation of predicates on one entity or one partition, in three-valued logic."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakebed.model.predicate import (
    And,
    Comparison,
    Formula,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    formulas_of,
    lower_case,
    pieces_of,
)
from lakebed.model.values import Scalar, is_nan

# Also for Arrow expressions and Spark columns, which overload the operators.
OPERATORS: dict[Op, Callable[[Any, Any], Any]] = {
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.GT: operator.gt,
    Op.GE: operator.ge,
}


def matches(predicate: Predicate, values: Mapping[str, Any]) -> bool:
    """Return whether the predicate is true, which is neither false nor unknown.

    Args:
        predicate: A bound predicate, whose values have the types of the columns.
        values: One value for each column; a missing one is null. Nested columns have a dotted
            name, or lie in nested mappings.
    """
    return _truth(predicate, values) is True


def matches_each(
    predicate: Predicate, columns: Sequence[str], rows: Sequence[tuple[Scalar, ...]]
) -> list[bool]:
    """Return for each row of values of some columns whether the predicate is true."""
    named: list[dict[str, Any]] = [dict(zip(columns, row, strict=True)) for row in rows]
    for formula in formulas_of(predicate):
        from lakebed.model.formulas.computation import truths_of_rows  # only then: it loads DuckDB

        for values, truth in zip(named, truths_of_rows(formula, columns, rows), strict=True):
            values[formula.name] = truth
    return [matches(predicate, values) for values in named]


def _truth(predicate: Predicate, values: Mapping[str, Any]) -> bool | None:
    match predicate:
        case And(parts):
            truths = [_truth(part, values) for part in parts]
            return False if False in truths else None if None in truths else True
        case Or(parts):
            truths = [_truth(part, values) for part in parts]
            return True if True in truths else None if None in truths else False
        case NullCheck(column, negated):
            return (value_of(values, column) is None) is not negated
        case Comparison(column, op, wanted):
            value = value_of(values, column)
            return None if value is None else compare(value, op, wanted)
        case Membership(column, members, negated):
            value = value_of(values, column)
            if value is None:
                # Nothing is in an empty list, not even null.
                return None if members else negated
            return predicate.lists(value) is not negated
        case Formula(name=name):
            return values[name] if name in values else _computed(predicate, values)
        case Like(column, pattern, ignores_case, negated):
            value = value_of(values, column)
            if value is None:
                return None
            return fits(value, pattern, ignores_case=ignores_case) is not negated


def _computed(formula: Formula, values: Mapping[str, Any]) -> bool | None:
    from lakebed.model.formulas.computation import truths_of_rows  # only then: it loads DuckDB

    row = tuple(value_of(values, column) for column in formula.columns)
    return truths_of_rows(formula, formula.columns, [row])[0]


def fits(text: str, pattern: str, *, ignores_case: bool = False) -> bool:
    """Return whether a text fits a pattern of LIKE, or of ILIKE."""
    if ignores_case:
        text, pattern = lower_case(text), lower_case(pattern)
    return _expression_of(pattern).fullmatch(text) is not None


@functools.lru_cache(maxsize=64)
def _expression_of(pattern: str) -> re.Pattern[str]:
    wild = {"%": ".*", "_": "."}
    parts = [wild.get(piece) or re.escape(piece[1:]) for piece in pieces_of(pattern)]
    return re.compile("".join(parts), re.DOTALL)


def value_of(values: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, which may be nested; None if it or its parent is missing."""
    if column in values or "." not in column:
        return values.get(column)
    root, _, path = column.partition(".")
    inner = values.get(root)
    return value_of(inner, path) if isinstance(inner, Mapping) else None


def compare(value: Scalar, op: Op, wanted: Scalar) -> bool:
    """Compare two values of one type; NaN equals itself and is greater than every number."""
    if is_nan(value) or is_nan(wanted):
        return bool(OPERATORS[op]((is_nan(value), 0), (is_nan(wanted), 0)))
    is_met: bool = OPERATORS[op](value, wanted)
    return is_met
