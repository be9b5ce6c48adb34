"""Predicates as Spark columns, which Spark pushes down to row groups."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakebed.model.evaluate import OPERATORS
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
    escaped,
    lower_case,
    pieces_of,
)
from lakebed.model.schema import Decimal, Kind, Primitive, Type, path_of
from lakebed.model.values import FLOATS, Scalar, is_nan, to_micros
from lakebed.plan.expression import join

if TYPE_CHECKING:
    from pyspark.sql import Column


def to_spark_column(predicate: Predicate, types: Mapping[str, Type]) -> Column:
    """Return a bound predicate as a condition that selects the same rows.

    Args:
        predicate: Bound to `types`.
        types: Type of each column.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    match predicate:
        case And(parts):
            conditions = [to_spark_column(part, types) for part in parts]
            return join(operator.and_, conditions) if conditions else F.lit(True)  # noqa: FBT003 - Spark's signature
        case Or(parts):
            conditions = [to_spark_column(part, types) for part in parts]
            return join(operator.or_, conditions) if conditions else F.lit(False)  # noqa: FBT003 - Spark's signature
        case Formula(text):
            return F.expr(text)
        case NullCheck(name, negated):
            column = column_of(name, types)
            return column.isNotNull() if negated else column.isNull()
        case Comparison(name, op, value):
            return _comparison(column_of(name, types), op, value, types[name])
        case Membership(name, values, negated):
            return _membership(column_of(name, types), values, types[name], negated=negated)
        case Like(name, pattern, ignores_case, negated):
            is_like = _like(column_of(name, types), pattern, ignores_case=ignores_case)
            return ~is_like if negated else is_like


def column_of(name: str, types: Mapping[str, Type]) -> Column:
    """Return the column of a frame by name; a dotted name is a field of a record."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    return F.col(".".join(f"`{part}`" for part in path_of(name, types)))


def _comparison(column: Column, op: Op, value: Scalar, kind: Type) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    condition: Column = OPERATORS[op](column, literal(value, kind))
    if _is_float(kind):
        if is_nan(value) and op in (Op.EQ, Op.GE):
            # Parquet's bounds ignore NaN, so row groups that hold one would be dropped.
            return F.isnan(column)
        if is_nan(value):
            return condition
        if op in (Op.NE, Op.GT, Op.GE):
            # True for NaN, which Parquet's bounds ignore: without this, row groups that hold one
            # would be dropped. Spark does not push down a condition with isnan.
            return condition | F.isnan(column)
    return condition


def _membership(column: Column, values: tuple[Scalar, ...], kind: Type, *, negated: bool) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if not values:
        return F.lit(negated)
    is_member = column.isin(*[literal(value, kind) for value in values])
    if not negated:
        has_nan = _is_float(kind) and any(is_nan(value) for value in values)
        return is_member | F.isnan(column) if has_nan else is_member
    wanted = ~is_member
    if _is_float(kind) and not any(is_nan(value) for value in values):
        return wanted | F.isnan(column)
    return wanted


def _like(column: Column, pattern: str, *, ignores_case: bool) -> Column:
    """Return a condition that compares letters one by one, where Spark's `lower` may change many."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if ignores_case:
        column, pattern = F.translate(column, *_cases()), lower_case(pattern)
    # Spark takes a backslash before other characters for a mistake.
    pieces = (piece if piece in "%_" else escaped(piece[1:]) for piece in pieces_of(pattern))
    return column.like("".join(pieces))


@functools.cache
def _cases() -> tuple[str, str]:
    """Return all letters whose lower case is another one, and these."""
    letters = (chr(point) for point in range(sys.maxunicode + 1) if not 0xD800 <= point < 0xE000)
    pairs = [(letter, lower_case(letter)) for letter in letters if lower_case(letter) != letter]
    return "".join(pair[0] for pair in pairs), "".join(pair[1] for pair in pairs)


def literal(value: Scalar, kind: Type) -> Column:
    """Return a literal that does not depend on the session's time zone."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if isinstance(kind, Primitive) and kind.kind is Kind.TIMESTAMP:
        return F.timestamp_micros(F.lit(to_micros(value)))  # type: ignore[arg-type]  # bound
    if isinstance(kind, Primitive) and kind.kind is Kind.TIMESTAMP_NTZ:
        return F.lit(str(value)).cast("timestamp_ntz")
    if isinstance(kind, Primitive) and kind.kind is Kind.DATE:
        # pyspark passes a date as text without leading zeros, which Java refuses before 1000.
        return F.lit(str(value)).cast("date")
    if isinstance(kind, Decimal):
        return F.lit(value)
    if isinstance(kind, Primitive) and kind.kind is Kind.UNSIGNED_LONG:
        return F.lit(str(value)).cast("decimal(20,0)")
    return F.lit(value)


def _is_float(kind: Type) -> bool:
    return isinstance(kind, Primitive) and kind.kind in FLOATS
