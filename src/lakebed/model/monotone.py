"""Functions that keep the order of their argument: a condition on one is a range of the argument.

So `date(seen) = '2024-03-01'` chooses files as `seen >= '2024-03-01' AND seen < '2024-03-02'` does.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakebed.model.predicate import (
    Comparison,
    Op,
    Predicate,
    all_of,
    begins_with,
    negate,
)
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import INTEGERS, TIMES, TIMESTAMPS, Scalar

if TYPE_CHECKING:
    from sqlglot import expressions as exp

ReadValue = Callable[[Type], Scalar]
"""Reads the value that a function is compared with, as one of a type."""


def find_range(
    node: exp.Expr, kind_of: Callable[[exp.Expr], tuple[str, Type] | None], op: Op, value: ReadValue
) -> Predicate | None:
    """Return the condition on a column that is equal to one on a function of it.

    Args:
        node: The function.
        kind_of: Returns the name and the type of a column; None for another node.
        op: The comparison.
        value: Reads the other side.

    Returns:
        The condition; None if the function has no such range.

    Raises:
        PredicateError: The value is not of the type that the function gives.
    """
    name, arguments = _call_of(node)
    column = kind_of(arguments[0]) if arguments else None
    if column is None or not isinstance(column[1], Primitive):
        return None
    path, kind = column[0], column[1].kind
    if name in ("date", "to_date") and kind in TIMESTAMPS and len(arguments) == 1:
        day = value(Primitive(Kind.DATE))
        return None if not isinstance(day, dt.date) else _of_day(path, op, day, kind)
    if name == "year" and kind in TIMES and len(arguments) == 1:
        year = value(Primitive(Kind.INT))
        if isinstance(year, int) and dt.MINYEAR <= year < dt.MAXYEAR:
            ends = (dt.date(year, 1, 1), dt.date(year + 1, 1, 1))
            return _between(path, op, _as(ends[0], kind), _as(ends[1], kind))
        return None
    if name in ("left", "substr", "substring") and kind is Kind.STRING and op in (Op.EQ, Op.NE):
        length = _length_of(name, arguments[1:])
        text = value(Primitive(Kind.STRING)) if length else None
        if isinstance(text, str) and len(text) == length:
            begins = begins_with(path, text)
            return None if begins is None else begins if op is Op.EQ else negate(begins)
        return None
    if name == "bigint" and kind in INTEGERS and column[1] != Primitive(Kind.UNSIGNED_LONG):
        return Comparison(path, op, value(Primitive(Kind.LONG)))
    return None


def _call_of(node: Any) -> tuple[str, list[Any]]:
    """Return the name and the arguments of a function; a cast is one that has the name of the type."""
    from sqlglot import expressions as exp

    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast) and not node.to.expressions:
        return str(node.to.this.name).lower(), [node.this]
    if isinstance(node, exp.Substring):
        parts = (node.args.get(name) for name in ("this", "start", "length"))
        return "substring", [part for part in parts if part is not None]
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), list(node.expressions)
    return "", []


def _length_of(name: str, arguments: list[Any]) -> int:
    """Return how many characters from the first are taken; 0 if it is not known."""
    numbers = [getattr(argument, "name", "") for argument in arguments]
    if name == "left" and len(numbers) == 1 and numbers[0].isdigit():
        return int(numbers[0])
    is_from_first = len(numbers) == 2 and numbers[0] == "1" and numbers[1].isdigit()
    return int(numbers[1]) if is_from_first else 0


def _of_day(column: str, op: Op, day: dt.date, kind: Kind) -> Predicate | None:
    if day >= dt.date.max:
        return None
    return _between(column, op, _as(day, kind), _as(day + dt.timedelta(days=1), kind))


def _as(day: dt.date, kind: Kind) -> Scalar:
    if kind is Kind.DATE:
        return day
    zone = dt.UTC if kind is Kind.TIMESTAMP else None
    return dt.datetime.combine(day, dt.time(), zone)


def _between(column: str, op: Op, low: Scalar, end: Scalar) -> Predicate:
    """Return a condition on a function that has one value from `low` up to before `end`."""
    within = all_of([Comparison(column, Op.GE, low), Comparison(column, Op.LT, end)])
    return {
        Op.EQ: within,
        Op.NE: negate(within),
        Op.LT: Comparison(column, Op.LT, low),
        Op.LE: Comparison(column, Op.LT, end),
        Op.GT: Comparison(column, Op.GE, end),
        Op.GE: Comparison(column, Op.GE, low),
    }[op]
