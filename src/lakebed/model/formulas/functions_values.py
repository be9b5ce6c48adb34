"""Functions of any values: choices, comparisons and conversions."""

from __future__ import annotations

from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, simple
from lakebed.model.formulas.typed import (
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
    Typed,
    joined,
    places,
)
from lakebed.model.schema import SMALLINT, TINYINT, MapOf, Type

declare = declarer("Any values")


def _coalesce(call: FunctionCall) -> Typed:
    values = call.compiler.in_one_type(call.values(1, 1_000), call.node)
    return joined(f"coalesce({places(values)})", values, values[0].type)


def _extreme(name: str) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        values = call.compiler.in_one_type(call.values(2, 1_000), call.node)
        if isinstance(values[0].type, MapOf):
            raise call.refused("maps have no order")
        return joined(f"{name}({places(values)})", values, values[0].type)

    return call_it


def _if(call: FunctionCall) -> Typed:
    if len(call.arguments) != 3:
        raise call.refused("if takes 3 arguments")
    condition = call.compiler.condition(call.arguments[0])
    values = [call.compiler.read(argument) for argument in call.arguments[1:]]
    return call.compiler.choice([condition], values, call.node)


def _nullif(call: FunctionCall) -> Typed:
    value, other = call.values(2)
    one, two = call.compiler.in_one_type([value, other], call.node)
    equal = joined("({0} = {1})", [one, two], BOOLEAN)
    return joined("CASE WHEN {0} THEN NULL ELSE {1} END", [equal, value], value.type)


def _nvl2(call: FunctionCall) -> Typed:
    asked, *values = call.values(3)
    is_given = joined("({0} IS NOT NULL)", [asked], BOOLEAN)
    return call.compiler.choice([is_given], values, call.node)


def _with_zero(call: FunctionCall) -> list[Typed]:
    """Return a number and 0, in one type."""
    (value,) = call.values(1)
    zero = Typed(sql="CAST(0 AS INTEGER)", type=INT, constant=0)
    return call.compiler.in_one_type([value, zero], call.node)


def _zero_if_null(call: FunctionCall) -> Typed:
    values = _with_zero(call)
    return joined("coalesce({0}, {1})", values, values[0].type)


def _null_if_zero(call: FunctionCall) -> Typed:
    (value,) = call.values(1)
    equal = joined("({0} = {1})", _with_zero(call), BOOLEAN)
    return joined("CASE WHEN {0} THEN NULL ELSE {1} END", [equal, value], value.type)


def _equal_null(call: FunctionCall) -> Typed:
    one, other = call.compiler.in_one_type(call.values(2), call.node)
    return joined("({0} IS NOT DISTINCT FROM {1})", [one, other], BOOLEAN)


def decode_choice(call: FunctionCall) -> Typed:
    """Read `decode(x, a, 1, b, 2, 0)`, a choice by equality in which NULL equals NULL."""
    value, *rest = call.values(3, 1_000)
    searched, chosen = rest[0 : len(rest) // 2 * 2 : 2], rest[1::2]
    default = rest[-1] if len(rest) % 2 else NULL
    conditions = []
    for item in searched:
        one, other = call.compiler.in_one_type([value, item], call.node)
        conditions.append(joined("({0} IS NOT DISTINCT FROM {1})", [one, other], BOOLEAN))
    return call.compiler.choice(conditions, [*chosen, default], call.node)


def _cast_to(kind: Type) -> SqlFunction:
    return lambda call: cast(call.values(1)[0], kind)


declare("coalesce nvl ifnull", _coalesce)
declare("greatest", _extreme("greatest"))
declare("least", _extreme("least"))
declare("if", _if)
declare("nullif", _nullif)
declare("nvl2", _nvl2)
declare("nullifzero", _null_if_zero)
declare("zeroifnull", _zero_if_null)
declare("equal_null", _equal_null)
declare("isnull", simple("any", BOOLEAN, "({0} IS NULL)"))
declare("isnotnull", simple("any", BOOLEAN, "({0} IS NOT NULL)"))
for _names, _kind in (
    ("boolean", BOOLEAN), ("tinyint", TINYINT), ("smallint", SMALLINT), ("int", INT),
    ("bigint", LONG), ("float", FLOAT), ("double", DOUBLE), ("string", TEXT), ("binary", BYTES),
    ("date", DATE), ("timestamp", TIMESTAMP),
):  # fmt: skip
    declare(_names, _cast_to(_kind))
