"""Conversions between types, by the rules of Spark's ANSI mode: a value that does not fit is an error."""

from __future__ import annotations

from typing import Final

from lakebed.errors import PredicateError
from lakebed.model.formulas.typed import (
    BOOLEAN,
    BYTES,
    CLOCK,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    TEXT,
    TIMESTAMP,
    WIDTHS,
    Typed,
    decimal_for,
    duck_type,
    is_float,
    is_number,
    is_whole,
    joined,
)
from lakebed.model.schema import Decimal, ListOf, Type

_INSTANTS = (TIMESTAMP, CLOCK)


def cast(value: Typed, to: Type, *, safe: bool = False) -> Typed:
    """Return a value in another type.

    Args:
        value: The value.
        to: The type.
        safe: Give NULL in the place of an error, as TRY_CAST does.

    Raises:
        PredicateError: Spark has no such conversion, or it is not among those here.
    """
    if value.type == to:
        return value
    name, word = duck_type(to), "TRY_CAST" if safe else "CAST"
    if value.type is None:
        return Typed(sql=f"CAST(NULL AS {name})", type=to)
    if value.type == TEXT:
        return _read_text(value, to, safe=safe)
    template = _template_of(value.type, to, safe=safe)
    if template is None:
        raise PredicateError(
            f"A value of type {value.type} cannot be converted to {to} without Spark.",
            hint="Convert it to a type between them, or compute the value in Spark.",
        )
    # A moment that we cannot hold is an error even in a TRY_CAST, which gives it in Spark.
    raises = (to == TIMESTAMP and is_number(value.type)) or not (safe or _holds_all(to, value.type))
    return joined(f"{word}({template} AS {name})", [value], to, raises=raises)


# The macro that reads the text of a type.
_READERS: Final = {
    BOOLEAN: "spark_truth",
    DATE: "spark_day",
    TIMESTAMP: "spark_instant",
    CLOCK: "spark_clock",
}


def _read_text(value: Typed, to: Type, *, safe: bool) -> Typed:
    name = duck_type(to)
    if to == BYTES:
        return joined("encode({0})", [value], to)
    if is_whole(to):
        reader = "spark_whole({0})"
    elif is_float(to):
        reader = "spark_real({0})"
    elif isinstance(to, Decimal):
        reader = "spark_exact({0})"
    elif to in _READERS:
        reader = f"{_READERS[to]}({{0}})"
        if to != BOOLEAN:  # a moment that we do not read is an error even in a TRY_CAST
            value = joined("spark_readable({0})", [value], TEXT, raises=True)
    else:
        raise PredicateError(
            f"A text cannot be converted to {to}.", hint="Compute the value in Spark."
        )
    if safe:
        return joined(f"TRY_CAST({reader} AS {name})", [value], to)
    checked = f"spark_given({reader}, {{0}}, 'is not a value of type {to}')"
    return joined(f"CAST({checked} AS {name})", [value], to, raises=True)


def _holds_all(to: Type, own: Type) -> bool:
    """Return whether a type holds all values of another one."""
    if to == TEXT or (is_whole(own) and is_float(to)) or (is_float(own) and is_float(to)):
        return True
    if own in (DATE, *_INSTANTS):
        return to in (DATE, *_INSTANTS) or is_float(to)
    if BOOLEAN in (own, to):
        return True
    if own in WIDTHS and to in WIDTHS:
        return WIDTHS.index(own) <= WIDTHS.index(to)
    if isinstance(to, Decimal) and not is_float(own):
        exact = decimal_for(own)
        return to.scale >= exact.scale and to.precision - to.scale >= exact.precision - exact.scale
    return isinstance(own, Decimal) and is_float(to)


def _template_of(own: Type, to: Type, *, safe: bool = False) -> str | None:
    """Return the expression that DuckDB converts as Spark does; None if there is none."""
    if to == TEXT:
        return _text_of(own)
    if is_number(own) and is_number(to):
        return _number_of(own, to, safe=safe)
    if to == BOOLEAN and is_number(own):
        return "{0} <> 0"
    if own == BOOLEAN and is_number(to):
        return "CAST({0} AS INTEGER)"
    if own in (DATE, *_INSTANTS) and to in (DATE, *_INSTANTS):
        return "{0}"
    if own == TIMESTAMP and is_float(to):
        return "epoch_us({0}) / 1e6"
    if own == TIMESTAMP and isinstance(to, Decimal):
        return "CAST(epoch_us({0}) / 1e6 AS VARCHAR)"
    if own == TIMESTAMP and is_whole(to):
        return "spark_seconds_since({0})"
    if to == TIMESTAMP and is_number(own):
        return _time_of(own, safe=safe)
    match own, to:
        case ListOf(element=one), ListOf(element=other):
            inner = None if one == TEXT else _template_of(one, other)
            return "{0}" if one == other or inner == "{0}" else None
    return None


def _number_of(own: Type, to: Type, *, safe: bool) -> str:
    if isinstance(own, Decimal) and is_float(to):
        return "CAST({0} AS VARCHAR)"  # DuckDB would compute with a quotient of two numbers
    if is_float(own) and to == LONG:
        return "spark_try_long({0})" if safe else "spark_long({0})"
    if is_whole(to) and (is_float(own) or isinstance(own, Decimal)):
        return "trunc({0})"  # DuckDB would round
    if (own, to) == (DOUBLE, FLOAT):
        return "spark_float({0})"
    if isinstance(to, Decimal) and is_float(own):
        # By its shortest text, as in Spark: 1.005 has a half that its binary form lacks.
        return "CASE WHEN isfinite({0}) THEN CAST(CAST({0} AS DOUBLE) AS VARCHAR) END"
    return "{0}"


def _time_of(own: Type, *, safe: bool) -> str:
    """Return the time that is a number of seconds after 1970."""
    if is_whole(own):
        return "spark_time_at(CAST({0} AS HUGEINT) * 1000000)"
    if isinstance(own, Decimal):
        return "spark_time_at(trunc(CAST({0} AS DECIMAL(38, 10)) * 1000000))"
    finite = "CASE WHEN isfinite({0}) THEN {0} * CAST(1000000 AS DOUBLE)"
    rest = " END" if safe else " WHEN {0} IS NOT NULL THEN error('a time is no number') END"
    return f"spark_time_at(trunc({finite}{rest}))"


def _text_of(own: Type) -> str | None:
    if own in _INSTANTS:
        return "spark_moment_text({0})"
    if own == DATE:
        return "strftime({0}, '%Y-%m-%d')"
    if own in (FLOAT, DOUBLE):
        return f"lakebed_{own}_text({{0}})"
    if own == BYTES:
        return "decode({0})"
    if isinstance(own, Decimal) and own.precision == own.scale:
        return r"regexp_replace(CAST({0} AS VARCHAR), '^(-?)\.', '\10.')"  # DuckDB writes .5
    return "CAST({0} AS VARCHAR)" if is_number(own) or own == BOOLEAN else None
