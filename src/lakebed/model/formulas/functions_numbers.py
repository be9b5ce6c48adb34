"""Functions of numbers and of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, simple, taken
from lakebed.model.formulas.operators import arithmetic, negative
from lakebed.model.formulas.typed import (
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    TEXT,
    Typed,
    bounded,
    duck_type,
    is_float,
    is_number,
    is_whole,
    joined,
)
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, Type

declare = declarer("Numbers")

# Libraries of mathematics differ in the last bits. Java's own differ, too, from machine to machine.
NEARLY: Final = "the last two bits may differ"

_BITS: Final[dict[Type | None, int]] = {TINYINT: 8, SMALLINT: 16, INT: 32, LONG: 64}


def _real(template: str) -> SqlFunction:
    return simple("double", DOUBLE, template)


def _abs(call: FunctionCall) -> Typed:
    value = taken(call.values(1)[0], "number", call)
    return joined("abs({0})", [value], value.type, raises=is_whole(value.type))


def _negative(call: FunctionCall) -> Typed:
    return negative(call.values(1)[0], call.refused)


def _positive(call: FunctionCall) -> Typed:
    return taken(call.values(1)[0], "number", call)


def _operation(sign: str) -> SqlFunction:
    """Return the function of an operator."""

    def call_it(call: FunctionCall) -> Typed:
        left, right = call.values(2)
        return arithmetic(sign, left, right, call.refused)

    return call_it


def _tried(sign: str) -> SqlFunction:
    """Return an operator that gives NULL in the place of an error."""

    def call_it(call: FunctionCall) -> Typed:
        left, right = call.values(2)
        if left.may_raise or right.may_raise:
            raise call.refused("an argument may raise an error of its own")
        if not all(value.type is None or is_number(value.type) for value in (left, right)):
            raise call.refused("it takes numbers here")
        if sign in "/%":
            right = Typed(sql=f"nullif({right.sql}, 0)", type=right.type, constant=right.constant)
            result = arithmetic(sign, left, right, call.refused)
            if isinstance(result.type, Decimal) and result.type.precision == 38:
                raise call.refused("the result may have more than 38 digits")
            return Typed(sql=result.sql, type=result.type)
        result = arithmetic(sign, left, right, call.refused)
        return Typed(sql=f"TRY({result.sql})", type=result.type)

    return call_it


def _pmod(call: FunctionCall) -> Typed:
    left, right = (taken(value, "number", call) for value in call.values(2))
    remainder = arithmetic("%", left, right, call.refused)
    kind = remainder.type
    assert kind is not None  # a remainder is a number
    if isinstance(kind, Decimal):
        shifted = arithmetic("+", remainder, right, call.refused)
        again = arithmetic("%", shifted, right, call.refused)
        template = f"CASE WHEN {{0}} < 0 THEN CAST({{1}} AS {duck_type(kind)}) ELSE {{0}} END"
        return joined(template, [remainder, again], kind, raises=True)
    right = cast(right, kind)
    if is_float(kind):
        again_sql = "CASE WHEN {0} < 0 THEN ({0} + {1}) % {1} ELSE {0} END"
        return joined(
            f"CAST({again_sql} AS {duck_type(kind)})", [remainder, right], kind, raises=True
        )
    # In Java the sum leaves the type silently.
    bits = _BITS[kind]
    again_sql = "(CAST({0} AS HUGEINT) + {1})"
    if bits >= 32:
        limit = 2 ** (bits - 1)
        again_sql = f"({again_sql} + CASE WHEN {again_sql} < -{limit} THEN {2**bits} ELSE 0 END)"
    template = (
        f"CAST(CASE WHEN {{0}} < 0 THEN {again_sql} % {{1}} ELSE {{0}} END AS {duck_type(kind)})"
    )
    return joined(template, [remainder, right], kind, raises=True)


def _to_whole(name: str) -> SqlFunction:
    """Return the function to the next whole number above or below."""

    def call_it(call: FunctionCall) -> Typed:
        (value,) = call.values(1)
        value = taken(value, "number", call)
        if is_float(value.type):
            return joined(
                f"CASE WHEN isnan({{0}}) THEN 0 ELSE CAST({name}({{0}}) AS BIGINT) END",
                [cast(value, DOUBLE)],
                LONG,
                raises=True,
            )
        if isinstance(value.type, Decimal):
            kind = value.type
            if kind.scale:
                kind = bounded(kind.precision - kind.scale + 1, 0)
            return joined(f"CAST({name}({{0}}) AS {duck_type(kind)})", [value], kind)
        return cast(value, LONG)

    return call_it


def _rounded(*, is_even: bool) -> SqlFunction:
    """Return the function that rounds halves up, or to even digits."""

    def call_it(call: FunctionCall) -> Typed:
        value, *rest = call.values(1, 2)
        scale = rest[0].constant if rest else 0
        value = taken(value, "number", call)
        if isinstance(scale, bool) or not isinstance(scale, int) or not -400 <= scale <= 400:
            raise call.refused("the number of digits is not a literal between -400 and 400")
        word = "'ROUND_HALF_EVEN'" if is_even else "'ROUND_HALF_UP'"
        if is_float(value.type):
            sql = f"lakebed_round_{value.type}({{0}}, {scale}, {word})"
            return joined(sql, [value], value.type)
        if is_whole(value.type):
            if scale >= 0:
                return value
            sql = f"CAST(lakebed_round_exact(CAST({{0}} AS VARCHAR), {scale}, {word}) AS {duck_type(value.type)})"
            return joined(sql, [value], value.type, raises=True)
        assert isinstance(value.type, Decimal)  # there are no other numbers
        kind = _decimal_of_rounded(value.type, scale)
        if value.type.precision == 38:
            raise call.refused("the result may have more than 38 digits")
        if scale >= 0 and not is_even:
            return joined(f"CAST({{0}} AS {duck_type(kind)})", [value], kind)
        sql = f"CAST(lakebed_round_exact(CAST({{0}} AS VARCHAR), {scale}, {word}) AS {duck_type(kind)})"
        return joined(sql, [value], kind)

    return call_it


def _decimal_of_rounded(kind: Decimal, scale: int) -> Decimal:
    """Return the type that Spark gives a decimal that is rounded: with one digit more before the point."""
    digits = kind.precision - kind.scale + 1
    if scale < 0:
        return Decimal(min(max(digits, -scale + 1), 38), 0)
    return Decimal(min(digits + min(scale, kind.scale), 38), min(scale, kind.scale))


def _of_bits(template_of: Callable[[int], str], *, takes: str = "int") -> SqlFunction:
    """Return a function of an int or bigint, and of a number of bits."""

    def call_it(call: FunctionCall) -> Typed:
        value, count = call.values(2)
        value = taken(value, "whole", call)
        if value.type != LONG:
            value = taken(value, "int", call)
        sql = f"CAST({template_of(_BITS[value.type])} AS {duck_type(value.type)})"
        return joined(sql, [value, taken(count, takes, call)], value.type)

    return call_it


def _bit_count(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    if value.type == BOOLEAN:
        return joined("CAST({0} AS INTEGER)", [value], INT)
    value = taken(value, "bigint", call)
    return joined("CAST(bit_count({0}) AS INTEGER)", [value], INT)


def _bit_get(call: FunctionCall) -> Typed:
    value, place = call.values(2)
    value, place = taken(value, "whole", call), taken(place, "int", call)
    if value.type not in _BITS:
        raise call.refused("it takes whole numbers")
    sql = f"CAST((CAST({{0}} AS BIGINT) >> spark_bit({{0}}, {{1}}, {_BITS[value.type]})) & 1 AS TINYINT)"
    return joined(sql, [value, place], TINYINT, raises=True)


def _inverted(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    value = taken(value, "whole", call)
    return joined("(~{0})", [value], value.type)


def _nanvl(call: FunctionCall) -> Typed:
    values = call.values(2)
    kind: Type = FLOAT if all(value.type == FLOAT for value in values) else DOUBLE
    word = "double" if kind == DOUBLE else "any"
    parts = [taken(value, word, call) for value in values]
    return joined("CASE WHEN isnan({0}) THEN {1} ELSE {0} END", parts, kind)


def _isnan(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    value = value if value.type == FLOAT else taken(value, "double", call)
    return joined("coalesce(isnan({0}), false)", [value], BOOLEAN)


def _log(call: FunctionCall) -> Typed:
    values = [taken(value, "double", call) for value in call.values(1, 2)]
    if len(values) == 1:
        return joined("spark_ln({0})", values, DOUBLE)
    return joined("CASE WHEN {0} > 0 AND {1} > 0 THEN ln({1}) / ln({0}) END", values, DOUBLE)


# Signs and remainders
declare("abs", _abs)
declare("negative", _negative)
declare("positive", _positive)
declare("sign signum", _real("spark_sign({0})"))
declare("mod", _operation("%"))
declare("pmod", _pmod)
declare("try_add", _tried("+"))
declare("try_subtract", _tried("-"))
declare("try_multiply", _tried("*"))
declare("try_divide", _tried("/"))
declare("try_mod", _tried("%"))

# Rounding
declare("ceil ceiling", _to_whole("ceil"), "without a number of digits")
declare("floor", _to_whole("floor"), "without a number of digits")
declare("round", _rounded(is_even=False))
declare("bround", _rounded(is_even=True))
declare("rint", _real("round_even({0}, 0)"))

# Powers and logarithms
declare("sqrt", _real("sqrt({0})"))
declare("cbrt", _real("lakebed_cbrt({0})"))
declare("pow power", simple("double double", DOUBLE, "spark_pow({0}, {1})"), NEARLY)
declare("exp", _real("exp({0})"), NEARLY)
declare("expm1", _real("lakebed_expm1({0})"), NEARLY)
declare("ln", _real("spark_ln({0})"), NEARLY)
declare("log", _log, NEARLY)
declare("log10", _real("CASE WHEN {0} > 0 THEN log10({0}) END"), NEARLY)
declare("log2", _real("CASE WHEN {0} > 0 THEN ln({0}) / ln(2) END"), NEARLY)
declare("log1p", _real("CASE WHEN {0} > -1 THEN lakebed_log1p({0}) END"), NEARLY)
declare("e", simple("", DOUBLE, "CAST(2.718281828459045 AS DOUBLE)"))
declare("pi", simple("", DOUBLE, "CAST(3.141592653589793 AS DOUBLE)"))
declare(
    "factorial",
    simple("int", LONG, "CASE WHEN {0} BETWEEN 0 AND 20 THEN CAST(factorial({0}) AS BIGINT) END"),
)

# Angles
declare("sin", _real("sin({0})"), NEARLY)
declare("cos", _real("cos({0})"), NEARLY)
declare("tan", _real("tan({0})"), NEARLY)
declare("cot", _real("lakebed_cot({0})"), NEARLY)
declare("sec", _real("lakebed_sec({0})"), NEARLY)
declare("csc", _real("lakebed_csc({0})"), NEARLY)
declare("asin", _real("asin({0})"), NEARLY)
declare("acos", _real("acos({0})"), NEARLY)
declare("atan", _real("atan({0})"), NEARLY)
declare("atan2", simple("double double", DOUBLE, "atan2({0} + 0.0, {1} + 0.0)"), NEARLY)
declare("sinh", _real("sinh({0})"), NEARLY)
declare("cosh", _real("cosh({0})"), NEARLY)
declare("tanh", _real("tanh({0})"), NEARLY)
declare("asinh", _real("lakebed_asinh({0})"), NEARLY)
declare("acosh", _real("lakebed_acosh({0})"), NEARLY)
declare("atanh", _real("lakebed_atanh({0})"), NEARLY)
declare("degrees", _real("({0} * 57.29577951308232)"))
declare("radians", _real("({0} * CAST(0.017453292519943295 AS DOUBLE))"))
declare("hypot", simple("double double", DOUBLE, "lakebed_hypot({0}, {1})"), NEARLY)

# NaN
declare("isnan", _isnan)
declare("nanvl", _nanvl)

# Bits
declare("bit_count", _bit_count)
declare("bit_get getbit", _bit_get)
declare("shiftleft <<", _of_bits(lambda bits: f"lakebed_shift_left({{0}}, {{1}}, {bits})"))
declare("shiftright >>", _of_bits(lambda bits: f"({{0}} >> ({{1}} & {bits - 1}))"))
declare("shiftrightunsigned", _of_bits(lambda bits: f"lakebed_shift_right({{0}}, {{1}}, {bits})"))
declare("~", _inverted)

# Forms
declare("conv", simple("text int int", TEXT, "lakebed_conv({0}, {1}, {2})", raises=True))
declare(
    "width_bucket",
    simple("double double double bigint", LONG, "lakebed_width_bucket({0}, {1}, {2}, {3})"),
)
