"""Predicates from SQL text, read by sqlglot in Spark's dialect."""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from typing import TYPE_CHECKING

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
from lakebed.model.values import FLOATS, INTEGERS, Scalar, check_value, parse_value

if TYPE_CHECKING:
    from sqlglot import expressions as exp


def parse_sql(text: str, types: Mapping[str, Type]) -> Predicate:
    """Read a predicate from SQL text, its literals typed by the columns they meet.

    Understood are AND, OR, NOT, the comparisons, IN, BETWEEN, IS NULL, and literals: numbers,
    text, TRUE, FALSE, DATE '…', TIMESTAMP '…'. Text that meets a date or timestamp column is
    read as one; a timestamp without zone is UTC.

    Args:
        text: What would stand behind WHERE.
        types: Columns that may appear.

    Raises:
        PredicateError: The text does not parse, holds something else, names an unknown
            column, or a literal does not fit its column.
    """
    # Loaded on first use: a quarter of a second that only SQL predicates need to pay.
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        tree = sqlglot.parse_one(text, into=sqlglot.expressions.Condition, dialect="spark")
        predicate = _Reader(text, types).read(tree)
    except (SqlglotError, RecursionError) as exc:
        raise PredicateError(
            f"Cannot read the predicate {text!r}: {str(exc).splitlines()[0]}",
            hint="Write what would stand behind WHERE, for example \"carrier = 'UA'\".",
        ) from exc
    return predicate


class _Reader:
    def __init__(self, text: str, types: Mapping[str, Type]) -> None:
        from sqlglot import expressions as exp

        self._exp = exp
        self._text = text
        self._types = types
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
                values = tuple(self._literal(one, column) for one in node.expressions)
                return Membership(column, tuple(dict.fromkeys(values)))
            case exp.Between():
                column = self._column(node.this)
                low = self._literal(node.args["low"], column)
                high = self._literal(node.args["high"], column)
                return all_of([Comparison(column, Op.GE, low), Comparison(column, Op.LE, high)])
            case exp.Column():
                return self._bare_column(node)
        if type(node) in self._comparisons:
            return self._comparison(node)
        raise self._refused(node)

    def _comparison(self, node: exp.Expr) -> Predicate:
        op, flipped = self._comparisons[type(node)]
        left, right = node.args["this"], node.args["expression"]
        if not isinstance(left, self._exp.Column) and isinstance(right, self._exp.Column):
            left, right, op = right, left, flipped
        column = self._column(left)
        return Comparison(column, op, self._literal(right, column))

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
        if not isinstance(node, self._exp.Column):
            raise self._refused(node)
        name = ".".join(part.name for part in node.parts)
        check_columns(NullCheck(name), self._types)
        return name

    def _literal(self, node: exp.Expr, column: str) -> Scalar:
        exp = self._exp
        kind = self._types[column]
        negative = isinstance(node, exp.Neg)
        inner = node.this if negative else node
        # DATE '2013-06-01' is parsed as a cast; the column's own type decides the reading.
        if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal):
            inner = inner.this
        try:
            if isinstance(inner, exp.Null):
                raise PredicateError(
                    f"Column {column!r} is compared with NULL, which is never true.",
                    hint=f"Write {column} IS NULL.",
                )
            if isinstance(inner, exp.Boolean):
                return check_value(bool(inner.this), kind, column)
            if isinstance(inner, exp.Literal):
                if inner.is_string:
                    return self._text_value(inner.name, kind, column)
                return self._number(("-" if negative else "") + inner.name, kind, column)
        except PredicateError:
            raise
        except InvalidInputError as exc:
            raise PredicateError(exc.message, hint=exc.hint) from exc
        raise self._refused(node)

    def _text_value(self, text: str, kind: Type, column: str) -> Scalar:
        timely = isinstance(kind, Primitive) and kind.kind in (
            Kind.DATE,
            Kind.TIMESTAMP,
            Kind.TIMESTAMP_NTZ,
        )
        not_a_number = isinstance(kind, Primitive) and kind.kind in FLOATS and text.lower() == "nan"
        if timely or not_a_number:
            return parse_value(text, kind, column)
        return check_value(text, kind, column)

    def _number(self, text: str, kind: Type, column: str) -> Scalar:
        if isinstance(kind, Decimal):
            return decimal.Decimal(text)
        if isinstance(kind, Primitive) and kind.kind in FLOATS:
            return float(text)
        if isinstance(kind, Primitive) and kind.kind in INTEGERS:
            return parse_value(text, kind, column)
        return check_value(float(text) if "." in text else int(text), kind, column)

    def _refused(self, node: exp.Expr) -> PredicateError:
        return PredicateError(
            f"Cannot use {node.sql(dialect='spark')!r} in the predicate {self._text!r}.",
            hint="Compare a column with a literal; AND, OR, NOT, IN, BETWEEN and IS NULL combine.",
        )
