"""Conditions that a user gives as expressions of pyarrow or Polars.

Unlike a filter that an engine pushes down, such a condition is read exactly or refused.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.pushed import (
    COMPARISONS,
    TURNED,
    CallNode,
    ExpressionNode,
    FieldNode,
    LiteralNode,
    on_large_stack,
    parse_expression,
    too_deep,
)
from lakebed.common.shown import shown
from lakebed.errors import PredicateError
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Like,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    escaped,
    negate,
    normalise,
)
from lakebed.model.schema import Type
from lakebed.model.values import Scalar

_HINT = (
    "Compare a column with a literal; &, |, ~, is_in, is_null, is_between and the functions for "
    "beginnings and ends of text combine. SQL text has more: see docs/views.md."
)
_Moment = TypeVar("_Moment", dt.date, dt.datetime)
_BRACKETS = re.compile(r'[][{}]|"(?:[^"\\]|\\.)*"')
_MOST_LEVELS = 400
_EPOCH = dt.date(1970, 1, 1)
_NUMBER = re.compile(r"U?Int(8|16|32|64|128)|Float(32|64)")


def exact_predicate(expression: Any, types: Mapping[str, Type]) -> Predicate:
    """Return a bound predicate for an expression of pyarrow or Polars.

    It has the logic of SQL: a comparison with null is unknown, and its negation too.

    Raises:
        PredicateError: A part of it is not understood, a column is unknown, or a literal is not of
            the type of its column.
    """
    try:
        return normalise(_read(expression, types), types)
    except RecursionError as exc:
        raise too_deep() from exc


def _read(expression: Any, types: Mapping[str, Type]) -> Predicate:
    if isinstance(expression, pc.Expression):
        node = parse_expression(expression, types)
        check_options(node, expression)
        return read_node(node, expression)
    if type(expression).__module__.startswith("polars.") and hasattr(expression, "meta"):
        document = _document_of(expression)
        check_parts(document, expression)
        return _Polars(expression).read(document)
    raise PredicateError(
        f"{shown(expression)} is not a condition.",
        hint="Give SQL text such as \"carrier = 'UA'\", or an expression of pyarrow or Polars.",
    )


def _refused(expression: object, part: object = None) -> PredicateError:
    what = f"{shown(part)} in " if part is not None else ""
    try:
        text = on_large_stack(lambda: str(expression))
    except UnicodeDecodeError:
        text = "with a text that is not UTF-8"
    return PredicateError(f"Cannot use {what}the expression {shown(text)}.", hint=_HINT)


def read_node(node: ExpressionNode, whole: pc.Expression) -> Predicate:
    """Return the predicate of a part of Arrow's expression.

    Raises:
        PredicateError: A part of it is not understood.
    """
    match node:
        case CallNode("and_kleene" | "and", arguments):
            return all_of([read_node(argument, whole) for argument in arguments])
        case CallNode("or_kleene" | "or", arguments):
            return any_of([read_node(argument, whole) for argument in arguments])
        case CallNode("invert", (argument,)):
            return negate(read_node(argument, whole))
        case CallNode("is_valid", (FieldNode(name),)):
            return NullCheck(name, negated=True)
        case CallNode("is_null", (FieldNode(name),), options) if not _option(
            options, "nan_is_null"
        ):
            return NullCheck(name)
        case CallNode("is_in", (FieldNode(name),), options):
            given = options.get("value_set")
            values = _python(given, whole) if isinstance(given, pa.ListScalar) else None
            # 0 and 1: null in the list equals null, or is passed over; others are half unknown.
            way = _option(options, "null_matching_behavior")
            if isinstance(values, list) and (way in (0, 1) or None not in values):
                return _among(name, values, null_equals_null=way == 0)
        case CallNode("starts_with" | "ends_with" | "match_substring" as function, _, options):
            return _of_text(node, function, options, whole)
        case CallNode("match_like", (FieldNode(name),), options):
            ignores_case = bool(_option(options, "ignore_case"))
            return Like(name, str(_option(options, "pattern")), ignores_case)
        case CallNode(function, (FieldNode(name), LiteralNode(value))) if function in COMPARISONS:
            return _compared(name, COMPARISONS[function], _python(value, whole))
        case CallNode(function, (LiteralNode(value), FieldNode(name))) if function in COMPARISONS:
            op = COMPARISONS[function]
            return _compared(name, TURNED.get(op, op), _python(value, whole))
        case LiteralNode(value) if pa.types.is_boolean(value.type) and value.is_valid:
            return TRUE if value.as_py() else FALSE
        case FieldNode(name):
            return Comparison(name, Op.EQ, value=True)
        case CallNode(function):
            raise _refused(whole, function)
    raise _refused(whole)


def _python(value: pa.Scalar, whole: pc.Expression) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError) as exc:  # outside of Python's years, or a text not of UTF-8
        raise _refused(whole) from exc


# The options of each function that `read_node` reads.
READ_OPTIONS: Mapping[str, frozenset[str]] = {
    "is_null": frozenset({"nan_is_null"}),
    "is_in": frozenset({"value_set", "null_matching_behavior"}),
    **dict.fromkeys(
        ("starts_with", "ends_with", "match_substring", "match_like"),
        frozenset({"pattern", "ignore_case"}),
    ),
}


def check_options(node: ExpressionNode, whole: pc.Expression) -> None:
    """Check that no call has an option that would be left out of account.

    Raises:
        PredicateError: One has.
    """
    if not isinstance(node, CallNode):
        return
    for name in node.options:
        # A name such as `_type_name` is of the form, and not of the function.
        if not name.startswith("_") and name not in READ_OPTIONS.get(node.function, ()):
            raise _refused(whole, f"{name} of {node.function}")
    for argument in node.arguments:
        check_options(argument, whole)


def _option(options: Mapping[str, object], name: str) -> object:
    value = options.get(name)
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _of_text(
    node: CallNode, function: str, options: Mapping[str, object], whole: pc.Expression
) -> Predicate:
    (argument,) = node.arguments
    pattern = _option(options, "pattern")
    if not isinstance(argument, FieldNode) or not isinstance(pattern, str | bytes):
        raise _refused(whole, function)
    text = escaped(pattern if isinstance(pattern, str) else pattern.decode("utf-8"))
    before = "" if function == "starts_with" else "%"
    after = "" if function == "ends_with" else "%"
    ignores_case = bool(_option(options, "ignore_case"))
    return Like(argument.name, f"{before}{text}{after}", ignores_case)


def _compared(name: str, op: Op, value: Any) -> Predicate:
    if value is None:
        raise PredicateError(
            f"Column {name!r} is compared with null, which is never true.",
            hint="Use is_null, or ~ of it.",
        )
    return Comparison(name, op, value)


def _among(name: str, values: Sequence[Any], *, null_equals_null: bool) -> Predicate:
    """Return the condition that a value is in a list."""
    present = tuple(value for value in values if value is not None)
    member = Membership(name, present) if present else FALSE
    if null_equals_null and len(present) < len(values):
        return any_of([member, NullCheck(name)])
    return member


def _document_of(expression: Any) -> Any:
    try:
        text = on_large_stack(lambda: expression.meta.serialize(format="json"))
    except Exception as exc:
        # Polars has an exception of its own for what it cannot write, such as a Python function.
        raise _refused(expression) from exc
    depth = deepest = 0
    for bracket in _BRACKETS.finditer(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(bracket[0], 0)
        deepest = max(deepest, depth)
    if deepest > _MOST_LEVELS:  # reading them would take much of the stack
        raise too_deep()
    return json.loads(text)


# What each part of Polars' JSON has, as far as `_Polars` reads it.
READ_PARTS: Mapping[str, frozenset[str]] = {
    "BinaryExpr": frozenset({"left", "op", "right"}),
    "Function": frozenset({"input", "function"}),
    "IsIn": frozenset({"nulls_equal"}),
    "IsBetween": frozenset({"closed"}),
    "Contains": frozenset({"literal", "strict"}),  # strict is about patterns that are not literal
}


def check_parts(node: Any, whole: object) -> None:
    """Check that no part of Polars' JSON has an argument that would be left out of account.

    Raises:
        PredicateError: One has.
    """
    for part in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        if isinstance(part, dict | list):
            check_parts(part, whole)
    if isinstance(node, dict):
        for name, part in node.items():
            read = READ_PARTS.get(name)
            if read is None or not isinstance(part, dict):
                continue
            others = [key for key in part if key not in read]
            if others or len(node) > 1:
                raise _refused(whole, f"{', '.join(others or node)} of {name}")


class _Polars:
    """Reads the JSON form of an expression of Polars."""

    _OPS: Mapping[str, Op] = {
        "Eq": Op.EQ,
        "NotEq": Op.NE,
        "Lt": Op.LT,
        "LtEq": Op.LE,
        "Gt": Op.GT,
        "GtEq": Op.GE,
    }

    def __init__(self, expression: object) -> None:
        self._expression = expression

    def read(self, node: Any) -> Predicate:
        """Return the predicate of a part."""
        match node:
            case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
                return all_of([self.read(left), self.read(right)])
            case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
                return any_of([self.read(left), self.read(right)])
            case {"BinaryExpr": {"left": {"Column": name}, "op": op, "right": right}} if (
                op in self._OPS
            ):
                return _compared(name, self._OPS[op], self._value(right))
            case {"BinaryExpr": {"left": left, "op": op, "right": {"Column": name}}} if (
                op in self._OPS
            ):
                turned = TURNED.get(self._OPS[op], self._OPS[op])
                return _compared(name, turned, self._value(left))
            case {"Function": {"input": inputs, "function": {"Boolean": function}}}:
                return self._boolean(function, inputs)
            case {
                "Function": {"input": [{"Column": name}, text], "function": {"StringExpr": what}}
            }:
                return self._text(name, text, what)
            case {"Column": name}:
                return Comparison(name, Op.EQ, value=True)
            case {"Literal": {"Scalar": {"Boolean": bool(value)}}}:
                return TRUE if value else FALSE
        raise self._refused(node)

    def _boolean(self, function: Any, inputs: Sequence[Any]) -> Predicate:
        match function, inputs:
            case "Not", [node]:
                return negate(self.read(node))
            case "IsNull", [{"Column": name}]:
                return NullCheck(name)
            case "IsNotNull", [{"Column": name}]:
                return NullCheck(name, negated=True)
            case (
                {"IsIn": {"nulls_equal": bool(null_equals_null)}},
                [{"Column": name}, {"Literal": {"Scalar": {"List": data}} | {"Series": data}}],
            ):
                values = pa.ipc.open_stream(bytes(data)).read_all()[0].to_pylist()
                return self._among(name, values, null_equals_null=null_equals_null)
            case "IsNan", [{"Column": name}]:
                return Comparison(name, Op.EQ, math.nan)
            case "IsNotNan", [{"Column": name}]:
                return Comparison(name, Op.NE, math.nan)
            case {"IsBetween": {"closed": closed}}, [{"Column": name}, low, high]:
                above = Op.GE if closed in ("Both", "Left") else Op.GT
                below = Op.LE if closed in ("Both", "Right") else Op.LT
                return all_of(
                    [
                        _compared(name, above, self._value(low)),
                        _compared(name, below, self._value(high)),
                    ]
                )
        raise self._refused(function)

    def _among(self, name: str, values: Sequence[Any], *, null_equals_null: bool) -> Predicate:
        """Return the condition that a value is in a list; Polars takes null for a value, if asked."""
        if null_equals_null and None not in values:
            return all_of(
                [_among(name, values, null_equals_null=True), NullCheck(name, negated=True)]
            )
        return _among(name, values, null_equals_null=null_equals_null)

    def _text(self, name: str, node: Any, function: Any) -> Predicate:
        match function:
            case "StartsWith":
                before, after = "", "%"
            case "EndsWith":
                before, after = "%", ""
            case {"Contains": {"literal": True}}:
                before = after = "%"
            case _:
                raise self._refused(function)
        text = self._value(node)
        if not isinstance(text, str):
            raise self._refused(function)
        return Like(name, f"{before}{escaped(text)}{after}")

    def _value(self, node: Any) -> Scalar:
        match node:
            case {"Literal": {"Dyn": {"Int": int(value)} | {"Float": float(value) | int(value)}}}:
                return value
            case {"Literal": {"Dyn": {"Str": str(text)}}}:
                return text
            case {
                "Literal": {"Dyn": {"Float": None}}
                | {"Scalar": {"Float32": None} | {"Float64": None}}
            }:
                raise PredicateError(
                    f"NaN and infinite numbers are not in what Polars writes of the expression "
                    f"{shown(on_large_stack(lambda: str(self._expression)))}.",
                    hint="Write is_nan() or is_not_nan(), is_in([float('inf')]), or SQL text: "
                    "\"delay < 'inf'\".",
                )
            case {"Literal": {"Scalar": "Null" | {"Null": _}}}:
                return None
            case {"Literal": {"Scalar": scalar}} if isinstance(scalar, dict):
                ((kind, value),) = scalar.items()
                return self._scalar(kind, value, node)
        raise self._refused(node)

    def _scalar(self, kind: str, value: Any, node: Any) -> Scalar:
        match kind, value:
            case "Binary" | "BinaryOwned", [*_]:
                return bytes(value)
            case "Date", int():
                return self._moved(_EPOCH, node, days=value)
            case "Datetime" | "DatetimeOwned", [int(count), str(unit), zone]:
                per_second = {"Nanoseconds": 10**9, "Microseconds": 10**6, "Milliseconds": 10**3}
                seconds, fraction = divmod(count, per_second[unit])
                micros, lost = divmod(fraction * 10**6, per_second[unit])
                if lost:
                    raise self._refused(node)
                moment = self._moved(
                    dt.datetime(1970, 1, 1), node, seconds=seconds, microseconds=micros
                )
                return moment if zone is None else moment.replace(tzinfo=dt.UTC)
            case "Boolean", bool():
                return bool(value)
            case "String" | "StringOwned", str():
                return str(value)
            case _, int() | float() if _NUMBER.fullmatch(kind) and not isinstance(value, bool):
                number: Scalar = value
                return number
        raise self._refused(node)

    def _moved(self, start: _Moment, node: Any, **amount: int) -> _Moment:
        try:
            return start + dt.timedelta(**amount)
        except OverflowError as exc:  # Python's years are 1 to 9999
            raise self._refused(node) from exc

    def _refused(self, part: Any) -> PredicateError:
        text = part if isinstance(part, str) else json.dumps(part)
        return _refused(self._expression, text)
