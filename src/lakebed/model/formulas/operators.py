"""Operators on numbers, times and any comparable values."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from lakebed.errors import PredicateError
from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.typed import (
    BOOLEAN,
    CLOCK,
    DATE,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    TIMESTAMP,
    Typed,
    bounded,
    common_type,
    decimal_for,
    duck_type,
    is_float,
    is_number,
    is_whole,
    joined,
    ordered,
)
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, MapOf, Type
from lakebed.model.sql_moments import FIXED, MONTHS, amounts_of

Refusal = Callable[[str], PredicateError]


def compared(sign: str, left: Typed, right: Typed, refusal: Refusal) -> Typed:
    """Return the comparison of two values, in the type that is common to them."""
    if left.type is None and right.type is None:
        kind: Type | None = BOOLEAN
    else:
        kind = common_type(left.type, right.type)
    if kind is None or isinstance(kind, MapOf):
        raise refusal(f"{left.type} is compared with {right.type}")
    template, one, other = f"({{0}} {sign} {{1}})", cast(left, kind), cast(right, kind)
    if sign.startswith("IS"):
        return joined(template, [one, other], BOOLEAN)
    return ordered(template, one, other, BOOLEAN)


def arithmetic(sign: str, left: Typed, right: Typed, refusal: Refusal) -> Typed:
    """Return the sum, difference, product, quotient or remainder of two values."""
    if DATE in (left.type, right.type) and sign in "+-":
        return _days(sign, left, right, refusal)
    left, right = _as_number(left, right, refusal), _as_number(right, left, refusal)
    if sign == "div":
        return _whole_quotient(left, right, refusal)
    kinds = {left.type, right.type}
    if any(isinstance(kind, Decimal) for kind in kinds) and not any(map(is_float, kinds)):
        return _exact(sign, left, right, refusal)
    kind = DOUBLE if sign == "/" else common_type(left.type, right.type) or DOUBLE
    one, other = cast(left, kind), cast(right, kind)
    if sign == "/":
        return _divided("spark_divide({0}, {1})", one, other, kind)
    if sign == "%":
        template = f"CAST(spark_remainder({{0}}, {{1}}) AS {duck_type(kind)})"
        return _divided(template, one, other, kind)
    # Whole numbers that leave their type raise, here as there.
    template = f"CAST({{0}} {sign} {{1}} AS {duck_type(kind)})"
    return ordered(template, one, other, kind, raises=is_whole(kind))


def _divided(template: str, dividend: Typed, divisor: Typed, kind: Type) -> Typed:
    """Return a quotient or remainder; Spark computes the divisor first."""
    return ordered(template, divisor, dividend, kind, raises=True, is_swapped=True)


def _as_number(value: Typed, other: Typed, refusal: Refusal) -> Typed:
    """Return an operand as a number: a text becomes one as the other operand asks."""
    if value.type is None:
        return cast(
            value, other.type if other.type is not None and is_number(other.type) else DOUBLE
        )
    if value.type == TEXT:
        return cast(value, LONG if is_whole(other.type) else DOUBLE)
    if not is_number(value.type):
        raise refusal(f"{value.type} is not a number")
    if str(value.type) == "unsigned long":
        return cast(value, Decimal(20, 0))
    return value


def _whole_quotient(left: Typed, right: Typed, refusal: Refusal) -> Typed:
    if is_float(left.type) or is_float(right.type):
        raise refusal("div takes exact numbers")
    if isinstance(left.type, Decimal) or isinstance(right.type, Decimal):
        return _exact_whole_quotient(left, right, refusal)
    one, other = cast(left, LONG), cast(right, LONG)
    return _divided("CAST(spark_quotient({0}, {1}) AS BIGINT)", one, other, LONG)


def _exact_whole_quotient(left: Typed, right: Typed, refusal: Refusal) -> Typed:
    one, other = _decimal_of(left, refusal), _decimal_of(right, refusal)
    scale = max(one.scale, other.scale)
    if max(one.precision, other.precision) + scale + 1 > 38:
        raise refusal("the quotient needs more than 38 digits on the way")
    above, below = (f"CAST({{{number}}} * {_power(scale)} AS HUGEINT)" for number in (0, 1))
    # Spark takes the last 64 bits of a quotient that has more.
    template = f"spark_low_bits(spark_quotient({above}, {below}))"
    return _divided(template, cast(left, one), cast(right, other), LONG)


def _exact(sign: str, left: Typed, right: Typed, refusal: Refusal) -> Typed:
    one, other = _decimal_of(left, refusal), _decimal_of(right, refusal)
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale)
    if sign in "+-":
        wanted = (digits + scale + 1, scale)
    elif sign == "*":
        wanted = (one.precision + other.precision + 1, one.scale + other.scale)
    elif sign == "%":
        wanted = (min(one.precision - one.scale, other.precision - other.scale) + scale, scale)
    else:
        scale = max(6, one.scale + other.precision + 1)
        wanted = (one.precision - one.scale + other.scale + scale, scale)
    result = bounded(*wanted)
    if result.scale < wanted[1]:
        raise refusal("the result has more than 38 digits")
    name = duck_type(result)
    first, second = cast(left, one), cast(right, other)
    if sign in "+-":
        template = f"CAST(CAST({{0}} AS {name}) {sign} CAST({{1}} AS {name}) AS {name})"
        return ordered(template, first, second, result, raises=True)
    if sign == "*":
        if max(one.precision, other.precision) <= 18 < one.precision + other.precision:
            # DuckDB multiplies in 64 bits where both have them.
            first = joined(f"CAST({{0}} AS DECIMAL(19, {one.scale}))", [first], one)
        return ordered(f"CAST({{0}} * {{1}} AS {name})", first, second, result, raises=True)
    if sign == "%":
        if digits + scale > 38:
            raise refusal("the remainder needs more than 38 digits on the way")
        common = duck_type(Decimal(digits + scale, scale))
        template = (
            f"CAST(spark_remainder(CAST({{0}} AS {common}), CAST({{1}} AS {common})) AS {name})"
        )
        return _divided(template, first, second, result)
    return _exact_quotient(first, second, one, other, result, refusal)


def _exact_quotient(
    first: Typed, second: Typed, one: Decimal, other: Decimal, result: Decimal, refusal: Refusal
) -> Typed:
    """Return the quotient of two decimals, whose halves are rounded away from zero.

    DuckDB divides decimals as binary numbers. Whole numbers of 38 digits have the digits exactly.
    """
    shift = result.scale + other.scale - one.scale
    digits = max(one.precision + one.scale + 1, one.precision + shift + 1)
    if max(digits, result.precision + result.scale + 1, other.precision + other.scale + 1) > 38:
        raise refusal("the quotient needs more than 38 digits on the way")
    above = f"CAST({{0}} * {_power(one.scale)} AS HUGEINT) * {10**shift}"
    below = f"CAST({{1}} * {_power(other.scale)} AS HUGEINT)"
    quotient = f"CAST(spark_exact_quotient({above}, {below}) AS DECIMAL({result.precision}, 0))"
    point = f"CAST('{decimal.Decimal(1).scaleb(-result.scale):f}' AS DECIMAL({result.scale + 1}, {result.scale}))"
    template = f"CAST({quotient} * {point} AS {duck_type(result)})"
    return _divided(template, first, second, result)


def _power(scale: int) -> str:
    return f"CAST('{10**scale}' AS DECIMAL({scale + 1}, 0))"


def _decimal_of(value: Typed, refusal: Refusal) -> Decimal:
    """Return the decimal that holds a whole number or decimal; of a literal, just its digits."""
    if isinstance(value.type, Decimal):
        return value.type
    if isinstance(value.constant, int):
        if value.type != INT and abs(value.constant) < 2**31:
            # Spark counts the digits of 1L and those of the type of CAST(1 AS BIGINT).
            raise refusal(f"a decimal meets {value.constant} of type {value.type}")
        return Decimal(len(str(abs(value.constant))), 0)
    assert value.type is not None  # as checked by the caller
    return decimal_for(value.type)


def _days(sign: str, left: Typed, right: Typed, refusal: Refusal) -> Typed:
    """Return a date that is some days from another, or the days between two of them."""
    if sign == "+" and right.type == DATE:
        left, right = right, left
    if left.type == DATE and right.type in (TINYINT, SMALLINT, INT):
        template = f"spark_in_years(CAST({{0}} {sign} CAST({{1}} AS INTEGER) AS DATE))"
        return ordered(template, left, right, DATE, raises=True)
    raise refusal("only whole days are added to a date")


MICROSECONDS: Final = {unit: span // timedelta(microseconds=1) for unit, span in FIXED.items()}
_OF_DATES: Final = (*MONTHS, "WEEK", "DAY")
# Intervals such as '1-2' YEAR TO MONTH and '1 02:03:04.5' DAY TO SECOND, by their units.
_SPANS: Final = {
    ("YEAR", "MONTH"): r"(\d+)-(\d+)",
    ("DAY", "HOUR"): r"(\d+) (\d+)",
    ("DAY", "MINUTE"): r"(\d+) (\d+):(\d+)",
    ("DAY", "SECOND"): r"(\d+) (\d+):(\d+):(\d+(?:\.\d{1,6})?)",
    ("HOUR", "MINUTE"): r"(\d+):(\d+)",
    ("HOUR", "SECOND"): r"(\d+):(\d+):(\d+(?:\.\d{1,6})?)",
    ("MINUTE", "SECOND"): r"(\d+):(\d+(?:\.\d{1,6})?)",
}
_ORDER: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def shifted(value: Typed, interval: Any, sign: str, refusal: Refusal) -> Typed:
    """Return a date or time that an interval is added to or taken from."""
    kind = value.type
    if kind not in (DATE, TIMESTAMP, CLOCK):
        raise refusal(f"an interval is added to {kind}")
    amounts = _amounts(interval)
    if kind == DATE and any(unit not in _OF_DATES for _, unit in amounts):
        kind = TIMESTAMP
    # All months are added as one number: two steps would end on another day of a short month.
    months = sum(count * MONTHS[unit] for count, unit in amounts if unit in MONTHS)
    rest = sum(count * MICROSECONDS[unit] for count, unit in amounts if unit not in MONTHS)
    if months and rest:
        raise refusal("an interval has months and a time")
    text = f"to_months({int(months)})" if months else f"to_microseconds({int(rest)})"
    template = f"CAST({{0}} {sign} {text} AS {duck_type(kind)})"
    moved = joined(template, [cast(value, kind)], kind, raises=True)
    return joined("spark_in_years({0})", [moved], kind)


def _amounts(interval: Any) -> Sequence[tuple[int | decimal.Decimal, str]]:
    """Return the amounts of an interval, each with its unit."""
    unit, text = interval.args.get("unit"), interval.this.name.strip()
    first, last = getattr(unit, "this", None), getattr(unit, "expression", None)
    if first is not None and last is not None and hasattr(first, "name"):
        span = (first.name.upper(), last.name.upper())
        found = re.fullmatch(rf"([+-]?){_SPANS.get(span, '$')}", text)
        if found is not None:
            units = _ORDER[_ORDER.index(span[0]) : _ORDER.index(span[1]) + 1]
            factor = -1 if found[1] == "-" else 1
            numbers = [factor * decimal.Decimal(part) for part in found.groups()[1:]]
            return list(zip(numbers, units, strict=True))
    is_seconds = unit is not None and unit.name.upper() in ("SECOND", "SECONDS")
    if is_seconds and re.fullmatch(r"[+-]?\d+\.\d{1,6}", text):
        return [(decimal.Decimal(text), "SECOND")]
    return amounts_of(interval)


def bitwise(sign: str, left: Typed, right: Typed, refusal: Refusal) -> Typed:
    """Return the bits of two whole numbers, joined."""
    kind = common_type(left.type, right.type)
    if kind is None or not is_whole(kind):
        raise refusal("bits are those of whole numbers")
    template = "xor({0}, {1})" if sign == "^" else f"({{0}} {sign} {{1}})"
    return ordered(template, cast(left, kind), cast(right, kind), kind)


def negative(value: Typed, refusal: Refusal) -> Typed:
    """Return a number with the other sign."""
    if value.type in (TEXT, None):
        value = cast(value, DOUBLE)
    if not is_number(value.type):
        raise refusal(f"{value.type} is not a number")
    # DuckDB computes the sign of a constant ahead of the rows, and would raise where none is asked.
    sign = "0 - " if is_whole(value.type) else "-"
    template = f"CAST(({sign}{{0}}) AS {duck_type(value.type)})"
    return joined(template, [value], value.type, raises=is_whole(value.type))
