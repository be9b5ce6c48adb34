"""Conditions of Iceberg's REST protocol as predicates, without pyiceberg.

Engines differ in how they treat nulls, NaN and signed zeros, so each condition becomes two
predicates: one that holds for every row that some engine selects, and one that holds only for rows
that all engines select. Files are chosen by the first. What cannot be translated becomes TRUE and
FALSE, which leaves it to the client.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakebed.arrow.pushed import TURNED
from lakebed.errors import LakebedError
from lakebed.model.partition.calendar import as_source
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    begins_with,
    bind,
    complement,
    negate,
    with_lists,
)
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.model.values import (
    EPOCH,
    FLOATS,
    INTEGERS,
    TIMESTAMPS,
    Scalar,
    check_value,
    from_micros,
)

# What lies deeper, or comes after as many conditions, is left to the client.
MAX_DEPTH = 200  # of conjunctions and disjunctions that alternate
MAX_LEAVES = 5000

_COMPARISONS = {
    "eq": Op.EQ,
    "not-eq": Op.NE,
    "lt": Op.LT,
    "lt-eq": Op.LE,
    "gt": Op.GT,
    "gt-eq": Op.GE,
}
_PAIRS = (
    ("eq", "not-eq"),
    ("lt", "gt-eq"),
    ("gt", "lt-eq"),
    ("in", "not-in"),
    ("is-null", "not-null"),
    ("is-nan", "not-nan"),
    ("starts-with", "not-starts-with"),
)
_OPPOSITE = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(Z|[+-]\d{2}:\d{2})?"
)
_DECIMAL = re.compile(r"-?\d{1,76}(?:\.\d{1,76})?")
_DAY, _HOUR = dt.timedelta(days=1), dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pushed:
    """A condition of a client.

    Attributes:
        may: Holds for all rows that the client may select.
        must: Holds only for rows that the client selects.
    """

    may: Predicate = TRUE
    must: Predicate = FALSE

    @property
    def is_exact(self) -> bool:
        """True if both are the same, so that nothing is left to the client."""
        return self.may == self.must


UNKNOWN = Pushed()
_EVERYTHING, _NOTHING = Pushed(TRUE, TRUE), Pushed(FALSE, FALSE)


class _UnknownError(Exception):
    """A part of a condition cannot be translated."""


def translate(document: Any, types: Mapping[str, Type], *, ignores_case: bool = False) -> Pushed:
    """Return a condition as predicates that are bound to the columns.

    Args:
        document: The condition, decoded from JSON.
        types: Types of the columns that it may name; what names another one is left to the client.
        ignores_case: True if names of columns are compared without regard to case.

    >>> from lakebed.model.schema import Kind, Primitive
    >>> asked = {"type": "not-eq", "term": "n", "value": 5}
    >>> str(translate(asked, {"n": Primitive(Kind.LONG)}).may)
    'n != 5 OR n IS NULL'
    """
    pushed = _Reader(types, ignores_case=ignores_case).read(document, 0)
    return Pushed(with_lists(pushed.may), with_lists(pushed.must))  # the leaves are bound


def columns_in(document: Any) -> Iterator[str]:
    """Yield the names of all columns in a condition, as the client spells them."""
    todo = [document]
    while todo:
        node = todo.pop()
        if not isinstance(node, dict):
            continue
        name = node.get("term", node.get("name"))
        if isinstance(name, str):
            yield name
        todo += [node.get(part) for part in ("term", "left", "right", "child", "value")]


class _Reader:
    def __init__(self, types: Mapping[str, Type], *, ignores_case: bool) -> None:
        self._types = types
        self._leaf_count = 0
        self._by_case: dict[str, list[str]] = {}
        if ignores_case:
            for name in types:
                self._by_case.setdefault(name.casefold(), []).append(name)

    def read(self, node: Any, depth: int, *, negated: bool = False) -> Pushed:
        """Return the predicates of a part, or of its negation.

        A negation is pushed down to the leaves, so that many of them do not add up.
        """
        if depth > MAX_DEPTH:
            return UNKNOWN
        match node:
            case True | {"type": True | "true"}:
                return _NOTHING if negated else _EVERYTHING
            case False | {"type": False | "false"}:
                return _EVERYTHING if negated else _NOTHING
            case {"type": "and" | "or" as kind}:
                operands = _operands(node, kind)
                parts = [self.read(part, depth + 1, negated=negated) for part in operands]
                is_and = (kind == "and") is not negated
                join: Callable[[list[Predicate]], Predicate] = all_of if is_and else any_of
                return Pushed(join([p.may for p in parts]), join([p.must for p in parts]))
            case {"type": "not", "child": child}:
                return self.read(child, depth + 1, negated=not negated)
            case {"type": str(kind)}:
                return self._leaf(kind, node, negated=negated)
        return UNKNOWN

    def _leaf(self, kind: str, node: Mapping[str, Any], *, negated: bool) -> Pushed:
        self._leaf_count += 1
        if self._leaf_count > MAX_LEAVES:
            return UNKNOWN
        try:
            pushed = self._condition(kind, node)
            if negated:
                pushed = _negated(pushed, self._condition(_OPPOSITE[kind], node))
            return Pushed(bind(pushed.may, self._types), bind(pushed.must, self._types))
        except (_UnknownError, OverflowError, ValueError, LakebedError):
            return UNKNOWN

    def _condition(self, kind: str, node: Mapping[str, Any]) -> Pushed:
        left, right = node.get("left"), node.get("right")
        term = node.get("term", node.get("child", left))
        value = node.get("value", right)
        op = _COMPARISONS.get(kind)
        if op is not None and _is_literal(left) and right is not None:
            term, value, op = right, left, TURNED.get(op, op)
        name, transform = self._term(term)
        if transform is not None:
            return self._transformed(name, transform, op, value)
        column, type_ = name, self._types[name]
        match kind:
            case "is-null" | "not-null":
                check = NullCheck(column, negated=kind == "not-null")
                return Pushed(check, check)
            case "is-nan" | "not-nan":
                return _nan_check(column, type_, negated=kind == "not-nan")
            case "in" | "not-in":
                listed = node.get("values")
                if not isinstance(listed, list):
                    raise _UnknownError
                values = tuple(value_of(each, type_) for each in listed)
                return _membership(column, values, type_, negated=kind == "not-in")
            case "starts-with" | "not-starts-with":
                return _prefix(column, value, type_, negated=kind == "not-starts-with")
        if op is None:
            raise _UnknownError
        return _comparison(column, op, value_of(value, type_), type_)

    def _term(self, term: Any) -> tuple[str, str | None]:
        """Return the column of a term, and its transform."""
        match term:
            case str(name):
                return self._column(name), None
            case {"type": "transform", "transform": str(transform), "term": inner}:
                name, other = self._term(inner)
                if other is not None:
                    raise _UnknownError
                return name, None if transform == "identity" else transform
            case {"type": "reference", "term": str(name)} | {
                "type": "reference",
                "name": str(name),
            }:
                return self._column(name), None
        raise _UnknownError

    def _column(self, name: str) -> str:
        if name in self._types:
            return name
        alike = self._by_case.get(name.casefold(), [])
        if len(alike) != 1:
            raise _UnknownError
        return alike[0]

    def _transformed(self, column: str, transform: str, op: Op | None, value: Any) -> Pushed:
        """Return a condition on a part of a time as a range of times."""
        kind = self._types[column]
        if op is None or not isinstance(kind, Primitive):
            raise _UnknownError
        begin, end = _span(transform, _unwrapped(value), kind)
        match op:
            case Op.EQ | Op.NE:
                inside = all_of([Comparison(column, Op.GE, begin), Comparison(column, Op.LT, end)])
                if op is Op.EQ:
                    return Pushed(inside, inside)
                return Pushed(any_of([negate(inside), NullCheck(column)]), negate(inside))
            case Op.LT | Op.GE:
                bounded = Comparison(column, op, begin)
            case Op.LE:
                bounded = Comparison(column, Op.LT, end)
            case Op.GT:
                bounded = Comparison(column, Op.GE, end)
        return Pushed(bounded, bounded)


def _operands(node: Mapping[str, Any], kind: str) -> Iterator[Any]:
    """Yield the operands of a chain of conjunctions or disjunctions, however deep it is nested."""
    todo: list[Any] = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, dict) and part.get("type") == kind and "left" in part:
            todo += [part.get("right"), part["left"]]
        else:
            yield part


def _negated(pushed: Pushed, opposite: Pushed) -> Pushed:
    """Return NOT of a condition, which some engines evaluate, and others read as the opposite.

    They differ in nulls, for which the condition is unknown or false, and in NaN.
    """
    return Pushed(
        any_of([complement(pushed.must), opposite.may]),
        all_of([negate(pushed.may), opposite.must]),
    )


def _comparison(column: str, op: Op, value: Scalar, kind: Type) -> Pushed:
    plain = Comparison(column, op, value)
    if op is Op.NE:
        return Pushed(any_of([plain, NullCheck(column)]), FALSE if _is_float(kind) else plain)
    if not _is_float(kind):
        return Pushed(plain, plain)
    if value == 0:
        # Some engines order -0.0 below 0.0.
        wide = {Op.LT: Op.LE, Op.GT: Op.GE}.get(op, op)
        return Pushed(Comparison(column, wide, value), FALSE)
    if op in (Op.GT, Op.GE):
        # NaN is the greatest number here and in Spark, and greater than none in Arrow.
        return Pushed(plain, FALSE)
    return Pushed(plain, plain)


def _membership(column: str, values: tuple[Scalar, ...], kind: Type, *, negated: bool) -> Pushed:
    plain = Membership(column, values, negated)
    sure: Predicate = FALSE if _is_float(kind) else plain
    if negated:
        return Pushed(any_of([plain, NullCheck(column)]), sure)
    return Pushed(plain, sure)


def _nan_check(column: str, kind: Type, *, negated: bool) -> Pushed:
    if not _is_float(kind):
        raise _UnknownError
    if negated:
        number = Comparison(column, Op.LE, math.inf)
        return Pushed(any_of([number, NullCheck(column)]), number)
    nan = Comparison(column, Op.GT, math.inf)
    return Pushed(nan, nan)


def _prefix(column: str, value: Any, kind: Type, *, negated: bool) -> Pushed:
    if kind != Primitive(Kind.STRING):
        raise _UnknownError
    prefix = value_of(value, kind)
    assert isinstance(prefix, str)
    within = begins_with(column, prefix)
    if within is None:
        raise _UnknownError
    if negated:
        return Pushed(complement(within), negate(within))
    return Pushed(within, within)


def _is_float(kind: Type) -> bool:
    return isinstance(kind, Primitive) and kind.kind in FLOATS


def _is_literal(node: Any) -> bool:
    return isinstance(node, dict) and node.get("type") == "literal"


def _unwrapped(node: Any) -> Any:
    return node.get("value") if _is_literal(node) else node


def value_of(node: Any, kind: Type) -> Scalar:
    """Return a literal, which the type of its column explains.

    A value that some client could read as another one is an unknown part of the condition.
    """
    value = _unwrapped(node)
    if isinstance(kind, Decimal):
        return _decimal(value)
    if not isinstance(kind, Primitive):
        raise _UnknownError
    name = kind.kind
    if name is Kind.BOOLEAN and isinstance(value, bool):
        return value
    if isinstance(value, bool):
        raise _UnknownError
    if name in INTEGERS and isinstance(value, int):
        return value
    if name in FLOATS and isinstance(value, int | float):
        return _float(value, kind)
    if name is Kind.STRING and isinstance(value, str):
        return value
    if name is Kind.DATE:
        return _date(value)
    if name in TIMESTAMPS:
        return _moment(value, zoned=name is Kind.TIMESTAMP)
    raise _UnknownError  # bytes have several spellings


def _decimal(value: Any) -> decimal.Decimal:
    if isinstance(value, int) and not isinstance(value, bool):
        return decimal.Decimal(value)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return decimal.Decimal(value)
    raise _UnknownError


def _float(value: float, kind: Primitive) -> Scalar:
    # Of a number that does not fit, engines compare either the rounded one or the wide one.
    number = check_value(value, kind, "")
    if number != value or not math.isfinite(value):
        raise _UnknownError
    return number


def _date(value: Any) -> dt.date:
    if isinstance(value, int):
        return EPOCH.date() + value * _DAY
    if isinstance(value, str) and _DATE.fullmatch(value):
        return dt.date.fromisoformat(value)
    raise _UnknownError


def _moment(value: Any, *, zoned: bool) -> dt.datetime:
    if isinstance(value, int):
        moment = from_micros(value)
        return moment if zoned else moment.replace(tzinfo=None)
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[1] and not zoned):
        raise _UnknownError
    moment = dt.datetime.fromisoformat(value)
    # pyiceberg leaves the zone out, which is always UTC.
    return moment.replace(tzinfo=dt.UTC) if zoned and moment.tzinfo is None else moment


def _span(transform: str, value: Any, kind: Primitive) -> tuple[Scalar, Scalar]:
    """Return the first moment of a year, month, day or hour, and that after its last one."""
    if transform == "day" and isinstance(value, str):
        value = (_date(value) - EPOCH.date()).days
    if isinstance(value, bool) or not isinstance(value, int):
        raise _UnknownError
    match transform:
        case "year":
            begin, end = _month(12 * value), _month(12 * value + 12)
        case "month":
            begin, end = _month(value), _month(value + 1)
        case "day":
            begin = EPOCH + value * _DAY
            end = begin + _DAY
        case "hour":
            begin = EPOCH + value * _HOUR
            end = begin + _HOUR
        case _:
            raise _UnknownError
    if kind.kind not in TIMESTAMPS and (kind.kind is not Kind.DATE or transform == "hour"):
        raise _UnknownError
    return as_source(begin, kind, ""), as_source(end, kind, "")


def _month(number: int) -> dt.datetime:
    return dt.datetime(1970 + number // 12, 1 + number % 12, 1, tzinfo=dt.UTC)
