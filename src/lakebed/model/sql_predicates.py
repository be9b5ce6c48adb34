"""Predicates from SQL text, read by sqlglot in Spark's dialect."""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
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
    check_columns,
    negate,
)
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.model.values import (
    FLOATS,
    INTEGERS,
    TIMES,
    Scalar,
    check_value,
    parse_value,
)

if TYPE_CHECKING:
    from sqlglot import expressions as exp


@dataclass(frozen=True, slots=True)
class Compared:
    """Two columns that a condition compares, as in `source.seen > target.seen`."""

    left: str
    op: Op
    right: str


def parse_sql(
    text: str, types: Mapping[str, Type], compared: dict[str, Compared] | None = None
) -> Predicate:
    """Read a predicate from SQL text, its literals typed by the columns they meet.

    Understood are AND, OR, NOT, the comparisons, IN, BETWEEN, IS NULL, and literals: numbers,
    text, TRUE, FALSE, DATE '…', TIMESTAMP '…', X'…'. Text that meets a date or timestamp column is
    read as one; a timestamp without zone is UTC.

    Args:
        text: What would stand behind WHERE.
        types: Columns that may appear.
        compared: Takes the comparisons of two columns, each under the name of a boolean column that
            stands for it in the predicate. None refuses them.

    Raises:
        PredicateError: The text does not parse, holds something else, names an unknown
            column, or a literal does not fit its column.
    """
    tree = _tree_of(text)
    try:
        return _Reader(text, types, compared).read(tree)
    except RecursionError as exc:
        raise _unreadable(text, "it is nested too deeply") from exc


def _tree_of(text: str) -> exp.Expr:
    # Loaded on first use: a quarter of a second that only SQL predicates need to pay.
    import sqlglot
    from sqlglot.errors import ParseError, SqlglotError

    try:
        return sqlglot.parse_one(text, into=sqlglot.expressions.Condition, dialect="spark")
    except ParseError as exc:
        place = exc.errors[0] if exc.errors else {}
        near = f" near {shown(place['highlight'])}" if place.get("highlight") else ""
        raise _unreadable(text, f"it is incomplete or wrong{near}") from exc
    except SqlglotError as exc:
        raise _unreadable(text, "a quote is not closed") from exc
    except RecursionError as exc:
        raise _unreadable(text, "it is nested too deeply") from exc


def _unreadable(text: str, reason: str) -> PredicateError:
    return PredicateError(
        f"Cannot read the predicate {shown(text)}: {reason}.",
        hint="Write what would stand behind WHERE, for example \"carrier = 'UA'\".",
    )


_QUOTED = TIMES | {Kind.STRING}
_COMPARED = "lakebed.compared."  # no field has a dot in its name
# Where the words of `check_value` are for Python and not for SQL.
_LITERAL_HINTS: Mapping[Kind | None, str] = {
    Kind.STRING: "Write text in single quotes, as in 'UA'.",
    Kind.BYTES: "Write bytes as hexadecimal digits, as in X'0aff'.",
    Kind.BOOLEAN: "Write TRUE or FALSE.",
    Kind.DATE: "Write it as '2013-06-01'.",
    Kind.TIMESTAMP: "Write it as '2013-06-01T12:30:00'; without a zone it is UTC, and it has up to "
    "six digits of a second.",
    Kind.TIMESTAMP_NTZ: "Write it as '2013-06-01T12:30:00', without a zone and with up to six "
    "digits of a second.",
}


class _Reader:
    def __init__(
        self, text: str, types: Mapping[str, Type], compared: dict[str, Compared] | None = None
    ) -> None:
        from sqlglot import expressions as exp

        self._exp = exp
        self._text = text
        self._types = types
        self._compared = compared
        self._comparisons: dict[type[exp.Expr], tuple[Op, Op]] = {
            exp.EQ: (Op.EQ, Op.EQ),
            exp.NEQ: (Op.NE, Op.NE),
            exp.LT: (Op.LT, Op.GT),
            exp.LTE: (Op.LE, Op.GE),
            exp.GT: (Op.GT, Op.LT),
            exp.GTE: (Op.GE, Op.LE),
        }

    def read(self, node: exp.Expr) -> Predicate:
        exp = self._exp
        match node:
            case exp.Paren():
                return self.read(node.this)
            case exp.And():
                return all_of([self.read(node.left), self.read(node.right)])
            case exp.Or():
                return any_of([self.read(node.left), self.read(node.right)])
            case exp.Not():
                return negate(self.read(node.this))
            case exp.Boolean():
                return TRUE if node.this else FALSE
            case exp.Is():
                return self._is(node)
            case exp.In() if node.expressions:
                column = self._column(node.this)
                values = tuple(self._literal(item, column) for item in node.expressions)
                return Membership(column, tuple(dict.fromkeys(values)))
            case exp.Between():
                column = self._column(node.this)
                low = self._literal(node.args["low"], column)
                high = self._literal(node.args["high"], column)
                return all_of([Comparison(column, Op.GE, low), Comparison(column, Op.LE, high)])
            case exp.Column() | exp.Dot():
                return self._bare_column(node)
        if type(node) in self._comparisons:
            return self._comparison(node)
        raise self._refused(node)

    def _comparison(self, node: exp.Expr) -> Predicate:
        op, flipped = self._comparisons[type(node)]
        left, right = node.args["this"], node.args["expression"]
        columns = (self._exp.Column, self._exp.Dot)
        if self._compared is not None and isinstance(left, columns) and isinstance(right, columns):
            return self._two_columns(Compared(self._column(left), op, self._column(right)))
        # Of a column and text without quotes, the column is the one that is known.
        if isinstance(right, columns) and (
            not isinstance(left, columns) or (self._knows(right) and not self._knows(left))
        ):
            left, right, op = right, left, flipped
        column = self._column(left)
        return Comparison(column, op, self._literal(right, column))

    def _two_columns(self, pair: Compared) -> Predicate:
        left, right = self._types[pair.left], self._types[pair.right]
        are_numbers = all(_kind_of(kind) in INTEGERS | FLOATS for kind in (left, right))
        if not are_numbers and (left != right or not isinstance(left, Primitive | Decimal)):
            raise PredicateError(
                f"Column {pair.left!r} of type {left} is compared with {pair.right!r} of type "
                f"{right} in {shown(self._text)}.",
                hint="Compare columns of one type, or two of numbers.",
            )
        assert self._compared is not None  # else it is refused
        name = f"{_COMPARED}{len(self._compared)}"
        self._compared[name] = pair
        return Comparison(name, Op.EQ, value=True)

    def _knows(self, node: exp.Column | exp.Dot) -> bool:
        return ".".join(part.name for part in node.parts) in self._types

    def _is(self, node: exp.Expr) -> Predicate:
        column = self._column(node.this)
        if isinstance(node.expression, self._exp.Null):
            return NullCheck(column)
        if isinstance(node.expression, self._exp.Boolean):
            # IS TRUE never is unknown, so its negation must select nulls: two leaves each way.
            wanted = bool(node.expression.this)
            return all_of([Comparison(column, Op.EQ, wanted), NullCheck(column, negated=True)])
        raise self._refused(node)

    def _bare_column(self, node: exp.Expr) -> Predicate:
        column = self._column(node)
        if self._types[column] != Primitive(Kind.BOOLEAN):
            raise PredicateError(
                f"Column {column!r} of type {self._types[column]} stands alone in {self._text!r}.",
                hint=f"Only a boolean column is a condition; compare it, as in {column} = ….",
            )
        return Comparison(column, Op.EQ, value=True)

    def _column(self, node: exp.Expr) -> str:
        while isinstance(node, self._exp.Paren):
            node = node.this
        if not isinstance(node, self._exp.Column | self._exp.Dot):
            raise self._refused(node)
        # A column of five names and more is a Dot, each part of it an identifier.
        parts = node.parts
        if not all(isinstance(part, self._exp.Identifier) for part in parts):
            raise self._refused(node)
        name = ".".join(part.name for part in parts)
        check_columns(NullCheck(name), self._types)
        return name

    def _literal(self, node: exp.Expr, column: str) -> Scalar:
        try:
            return self._value(node, column)
        except PredicateError:
            raise
        except InvalidInputError as exc:
            hint = _LITERAL_HINTS.get(_kind_of(self._types[column]), exc.hint)
            raise PredicateError(exc.message, hint=hint) from exc

    def _no_literal(self, node: exp.Column | exp.Dot, column: str) -> PredicateError:
        """Return the error for a column, or for text without quotes, in the place of a literal."""
        text = ".".join(part.name for part in node.parts)
        if text in self._types:
            return PredicateError(
                f"Column {column!r} is compared with the column {text!r} in {shown(self._text)}.",
                hint="Compare a column with a literal; columns are compared after reading.",
            )
        example = f"{column} = '{text}'"
        return PredicateError(
            f"{text!r}, which column {column!r} is compared with, is neither a literal nor a "
            f"column in {shown(self._text)}.",
            hint=f"Put text into single quotes, as in {shown(example)}."
            if _kind_of(self._types[column]) in _QUOTED
            else _LITERAL_HINTS.get(_kind_of(self._types[column]), "Write a number."),
        )

    def _value(self, node: exp.Expr, column: str) -> Scalar:
        exp = self._exp
        kind = self._types[column]
        match node:
            case exp.Paren():
                return self._value(node.this, column)
            case exp.Null():
                raise PredicateError(
                    f"Column {column!r} is compared with NULL, which is never true.",
                    hint=f"Write {column} IS NULL.",
                )
            case exp.Boolean():
                return check_value(bool(node.this), kind, column)
            case exp.Column() | exp.Dot():
                raise self._no_literal(node, column)
            case exp.Neg(this=exp.Literal(is_string=False) as number):
                return _number("-" + number.name, kind, column)
            case exp.Literal(is_string=False):
                return _number(node.name, kind, column)
            case exp.Literal():
                return _text_value(node.name, kind, column)
            case exp.HexString():
                return check_value(_bytes(node.name, column), kind, column)
            case exp.Cast(this=exp.Literal(is_string=True) as text) if self._is_time(node):
                # DATE '2013-06-01' is parsed as a cast; the column's own type decides the reading.
                if _is_timely(kind):
                    return parse_value(text.name, kind, column)
            case exp.Sub() if _kind_of(kind) in _QUOTED:
                raise self._unquoted_date(node, column)
        raise self._refused(node)

    def _unquoted_date(self, node: exp.Sub, column: str) -> PredicateError:
        """Return the error for a difference, which a date without quotes is in SQL."""
        text = node.sql(dialect="spark").replace(" ", "")
        if not re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}", text):
            return self._refused(node)
        return PredicateError(
            f"Column {column!r} is compared with {text} without quotes, which is a difference of "
            f"numbers, in {shown(self._text)}.",
            hint=f"Put dates and times into single quotes: '{text}'.",
        )

    def _is_time(self, cast: exp.Cast) -> bool:
        return bool(cast.to.is_type(*self._exp.DataType.TEMPORAL_TYPES))

    def _refused(self, node: exp.Expr) -> PredicateError:
        hint = "Compare a column with a literal; AND, OR, NOT, IN, BETWEEN and IS NULL combine."
        return PredicateError(
            f"Cannot use {shown(node.sql(dialect='spark'))} in the predicate {shown(self._text)}.",
            hint=self._hint_of_pattern(node) or hint,
        )

    def _hint_of_pattern(self, node: exp.Expr) -> str:
        """Return what to write in the place of LIKE and its kin; empty for anything else."""
        exp = self._exp
        if not isinstance(node, exp.Like | exp.ILike | exp.RegexpLike | exp.RegexpILike):
            return ""
        pattern = node.expression.name if isinstance(node.expression, exp.Literal) else ""
        start = pattern.removesuffix("%")
        is_start = pattern == f"{start}%" and re.fullmatch(r"[A-Za-z0-9 .:/-]*[A-Za-z0-9]", start)
        if is_start and isinstance(node, exp.Like) and isinstance(node.this, exp.Column):
            column, end = node.this.sql(dialect="spark"), start[:-1] + chr(ord(start[-1]) + 1)
            return (
                f"For texts that begin with it, write {column} >= '{start}' AND {column} < '{end}'."
            )
        return "Patterns are asked after reading, as by Spark, DuckDB or pandas."


def read_tree(text: str) -> exp.Expr:
    """Return the tree of SQL text that stands behind WHERE, or behind `SET x =`.

    Raises:
        PredicateError: The text does not parse.
    """
    return _tree_of(text)


def read_predicate(
    node: exp.Expr, text: str, types: Mapping[str, Type], compared: dict[str, Compared]
) -> Predicate:
    """Read a predicate from a part of a tree; see `parse_sql`."""
    return _Reader(text, types, compared).read(node)


def read_column(node: exp.Expr, text: str, types: Mapping[str, Type]) -> str:
    """Read the name of a known column from a part of a tree."""
    return _Reader(text, types)._column(node)


def read_literal(node: exp.Expr, text: str, types: Mapping[str, Type], column: str) -> Scalar:
    """Read a literal from a part of a tree, in the type of a column."""
    return _Reader(text, types)._literal(node, column)


def _bytes(digits: str, column: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as exc:
        raise PredicateError(
            f"X'{digits}' is no sequence of bytes (column {column!r}).",
            hint="Write two hexadecimal digits a byte.",
        ) from exc


def _text_value(text: str, kind: Type, column: str) -> Scalar:
    is_number_by_name = _is_float(kind) and text.lower() in ("nan", "inf", "-inf")
    if _is_timely(kind) or is_number_by_name:
        return parse_value(text, kind, column)
    return check_value(text, kind, column)


def _number(text: str, kind: Type, column: str) -> Scalar:
    if isinstance(kind, Decimal):
        return check_value(decimal.Decimal(text), kind, column)
    if _is_float(kind):
        number = float(text)
        if math.isfinite(number):
            return check_value(number, kind, column)
    elif isinstance(kind, Primitive) and kind.kind in INTEGERS:
        return parse_value(text, kind, column)
    raise InvalidInputError(
        f"The number {shown(text)[1:-1]} does not fit column {column!r} of type {kind}.",
        hint=f"Give a value of type {kind}.",
    )


def _kind_of(kind: Type) -> Kind | None:
    return kind.kind if isinstance(kind, Primitive) else None


def _is_float(kind: Type) -> bool:
    return _kind_of(kind) in FLOATS


def _is_timely(kind: Type) -> bool:
    return _kind_of(kind) in TIMES
