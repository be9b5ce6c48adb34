"""Typed expressions of DuckDB, and the types that Spark gives to two values that meet."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lakebed.errors import PredicateError
from lakebed.model.schema import (
    SMALLINT,
    TINYINT,
    Decimal,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Struct,
    Type,
)
from lakebed.model.values import FLOATS, Scalar

BOOLEAN, INT, LONG = Primitive(Kind.BOOLEAN), Primitive(Kind.INT), Primitive(Kind.LONG)
FLOAT, DOUBLE = Primitive(Kind.FLOAT), Primitive(Kind.DOUBLE)
TEXT, BYTES = Primitive(Kind.STRING), Primitive(Kind.BYTES)
DATE, TIMESTAMP = Primitive(Kind.DATE), Primitive(Kind.TIMESTAMP)
CLOCK = Primitive(Kind.TIMESTAMP_NTZ)

_MOST_CHARACTERS = 100_000
# DuckDB takes 0.2 s to read 20 values with names within each other, and twice that for two more.
_MOST_NAMES = 20
_SIMPLE: Final = re.compile(r"\w+|'[^']*'|CAST\((?:'[^']*'|-?[\w.]+) AS [\w(), ]+\)")
_MOST_DIGITS = 38
_LEAST_SCALE = 6  # which Spark keeps where a result has too many digits
_DIGITS: Final = {TINYINT: 3, SMALLINT: 5, INT: 10, LONG: 20, Primitive(Kind.UNSIGNED_LONG): 20}
WIDTHS: Final = (TINYINT, SMALLINT, INT, LONG)  # of whole numbers, the narrowest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """An expression of DuckDB with its type in Spark.

    Attributes:
        sql: The expression.
        type: Its type; None of a bare NULL.
        may_raise: Whether some rows may end the evaluation by an error, such as a division by zero.
        constant: Its value, if it is a literal.
        depth: How many values with names are within each other.
    """

    sql: str
    type: Type | None
    may_raise: bool = False
    constant: Scalar = None
    depth: int = 0

    def __post_init__(self) -> None:
        if len(self.sql) > _MOST_CHARACTERS or self.depth > _MOST_NAMES:
            raise PredicateError(
                "The expression is nested too deeply.",
                hint="Compute a part of it in a column of its own, or in Spark.",
            )


NULL: Final = Typed(sql="NULL", type=None)


def places(values: Sequence[object], first: int = 0) -> str:
    """Return `{0}, {1}` for as many values."""
    return ", ".join(f"{{{number}}}" for number in range(first, first + len(values)))


def joined(
    template: str, parts: Iterable[Typed], type_: Type | None, *, raises: bool = False
) -> Typed:
    """Return an expression whose `{0}`, `{1}` are others."""
    listed = list(parts)
    texts = [part.sql for part in listed]
    bound: dict[str, str] = {}
    # Macros write their arguments more than once, so that texts would grow by powers of the depth. The
    # body of a lambda stays where its variables are.
    may_bind = "lambda " not in template
    for number, text in enumerate(texts):
        repeats = may_bind and ("spark_" in template or template.count(f"{{{number}}}") > 1)
        if repeats and not _SIMPLE.fullmatch(text):
            texts[number] = name_of(text)
            bound[texts[number]] = text
    return Typed(
        sql=_with_names(template.format(*texts), bound),
        type=type_,
        may_raise=raises or any(part.may_raise for part in listed),
        depth=max((part.depth for part in listed), default=0) + len(bound),
    )


def named(value: Typed, use: Callable[[Typed], Typed]) -> Typed:
    """Return an expression that uses a value more than once, and computes it once.

    Args:
        value: The value.
        use: Returns the expression; it receives a name for the value.
    """
    if _SIMPLE.fullmatch(value.sql):
        return use(value)
    name = name_of(value.sql)
    inner = use(replace(value, sql=name, may_raise=False, depth=0))
    return replace(
        inner,
        sql=_with_names(inner.sql, {name: value.sql}),
        may_raise=inner.may_raise or value.may_raise,
        depth=inner.depth + value.depth + 1,
    )


def name_of(sql: str) -> str:
    """Return the name of a value within an expression: the same for the same value."""
    return f"v_{hashlib.blake2b(sql.encode(), digest_size=8).hexdigest()}"


def _with_names(sql: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        sql = f"list_transform([{value}], lambda {name}: {sql})[1]"
    return sql


def ordered(
    template: str,
    first: Typed,
    second: Typed,
    type_: Type | None,
    *,
    raises: bool = False,
    is_swapped: bool = False,
) -> Typed:
    """Return an expression of two values, of which the second is not computed if the first is null.

    Args:
        template: The expression, of `{0}` and `{1}`.
        first: The value that Spark computes first.
        second: The other one.
        type_: Type of the result.
        raises: Whether some values are errors.
        is_swapped: `{0}` is the second value.
    """

    def use(one: Typed) -> Typed:
        parts = [second, one] if is_swapped else [one, second]
        return joined(template, parts, type_, raises=raises)

    if first.may_raise and second.sql.startswith("CAST(NULL AS "):
        # DuckDB leaves out a value beside NULL, which may be an error.
        null = f"CAST(NULL AS {duck_type(type_)})"
        return joined(f"CASE WHEN {{0}} IS NULL THEN {null} ELSE {null} END", [first], type_)
    if not second.may_raise or first.constant is not None:
        return use(first)

    def use_guarded(one: Typed) -> Typed:
        result = use(one)
        return replace(result, sql=f"CASE WHEN {one.sql} IS NOT NULL THEN {result.sql} END")

    return named(first, use_guarded)


def is_number(type_: Type | None) -> bool:
    """Return whether values are numbers."""
    return is_whole(type_) or isinstance(type_, Decimal) or is_float(type_)


def is_whole(type_: Type | None) -> bool:
    """Return whether values are whole numbers."""
    return type_ in _DIGITS


def is_float(type_: Type | None) -> bool:
    """Return whether values are binary floating point numbers."""
    return isinstance(type_, Primitive) and type_.kind in FLOATS


def is_atomic(type_: Type | None) -> bool:
    """Return whether values have no parts."""
    return isinstance(type_, Primitive | Decimal)


def decimal_for(type_: Type) -> Decimal:
    """Return the decimal that holds all numbers of an exact type."""
    if isinstance(type_, Decimal):
        return type_
    assert isinstance(type_, Primitive)  # no other type is exact
    return Decimal(_DIGITS[type_], 0)


def bounded(precision: int, scale: int) -> Decimal:
    """Return the decimal that Spark gives a result, which keeps digits before the point first."""
    if precision > _MOST_DIGITS:
        scale = max(_MOST_DIGITS - (precision - scale), min(scale, _LEAST_SCALE))
    return Decimal(min(precision, _MOST_DIGITS), min(scale, _MOST_DIGITS))


def common_type(left: Type | None, right: Type | None) -> Type | None:
    """Return the type in which Spark compares two values, by the rules of its ANSI mode.

    Returns:
        The type; None if there is none, or both are bare NULLs.
    """
    if left == right or right is None:
        return left
    if left is None:
        return right
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if TEXT in (left, right):
        other = right if left == TEXT else left
        if is_whole(other):
            return LONG
        if is_number(other):
            return DOUBLE
        return other if is_atomic(other) else None
    times = {left, right}
    if times <= {DATE, TIMESTAMP, CLOCK}:
        return TIMESTAMP if TIMESTAMP in times else CLOCK
    match left, right:
        case ListOf(element=one), ListOf(element=other):
            element = common_type(one, other)
            return None if element is None else ListOf(element)
        case MapOf(value=one, key=key), MapOf(value=other, key=others_key) if key == others_key:
            value = common_type(one, other)
            return None if value is None else MapOf(value, key=key)
        case Struct(fields), Struct(others) if len(fields) == len(others):
            return left if [f.type for f in fields] == [o.type for o in others] else None
    return None


def _common_number(left: Type, right: Type) -> Type:
    if is_float(left) or is_float(right):
        return FLOAT if left == right == FLOAT else DOUBLE
    if left in WIDTHS and right in WIDTHS:
        return max(left, right, key=WIDTHS.index)
    one, other = decimal_for(left), decimal_for(right)
    scale = max(one.scale, other.scale)
    return bounded(max(one.precision - one.scale, other.precision - other.scale) + scale, scale)


def duck_type(type_: Type | None) -> str:
    """Return how DuckDB names a type."""
    match type_:
        case Decimal(precision, scale):
            return f"DECIMAL({precision}, {scale})"
        case ListOf(element=element):
            return f"{duck_type(element)}[]"
        case MapOf(value=value, key=key):
            return f"MAP({duck_type(key)}, {duck_type(value)})"
        case Struct(fields):
            inner = ", ".join(
                f"{duck_name(field.name)} {duck_type(field.type)}" for field in fields
            )
            return f"STRUCT({inner})"
        case Primitive(kind=Kind.INT, bits=bits):
            return {None: "INTEGER", 8: "TINYINT", 16: "SMALLINT"}[bits]
        case Primitive(kind=kind):
            return _NAMES[kind]
    return "INTEGER"  # of a bare NULL


_NAMES: Final = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.LONG: "BIGINT",
    Kind.UNSIGNED_LONG: "DECIMAL(20, 0)",
    Kind.FLOAT: "REAL",
    Kind.DOUBLE: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.BYTES: "BLOB",
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP",  # of UTC: DuckDB computes with clocks, and Spark's zone is UTC
    Kind.TIMESTAMP_NTZ: "TIMESTAMP",
}


def duck_name(name: str) -> str:
    """Return a name as DuckDB quotes it."""
    return '"{}"'.format(name.replace('"', '""'))


def duck_text(text: str) -> str:
    """Return a text as a literal of DuckDB."""
    if "\0" in text:
        parts = text.split("\0")
        return "(" + " || chr(0) || ".join(duck_text(part) for part in parts) + ")"
    return "'{}'".format(text.replace("'", "''"))
