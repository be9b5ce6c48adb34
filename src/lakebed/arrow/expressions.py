"""Conditions that a user gives as expressions of pyarrow or Polars.

Unlike a filter that an engine pushes down, such a condition is read exactly or refused.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.pushed import (
    COMPARISONS,
    TURNED,
    CallNode,
    ExpressionNode,
    FieldNode,
    LiteralNode,
    parse_expression,
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
    bind,
    escaped,
    negate,
)
from lakebed.model.schema import Type
from lakebed.model.values import Scalar

_HINT = (
    "Compare a column with a literal; &, |, ~, is_in, is_null, is_between and the functions for "
    "beginnings and ends of text combine. SQL text has more: see docs/views.md."
)
_EPOCH = dt.date(1970, 1, 1)


def exact_predicate(expression: Any, types: Mapping[str, Type]) -> Predicate:
    """Return a bound predicate for an expression of pyarrow or Polars.

    It has the logic of SQL: a comparison with null is unknown, and its negation too.

    Raises:
        PredicateError: A part of it is not understood, a column is unknown, or a literal is not of
            the type of its column.
    """
    if isinstance(expression, pc.Expression):
        node = parse_expression(expression, types)
        predicate = _of_arrow(node, expression)
    elif type(expression).__module__.startswith("polars.") and hasattr(expression, "meta"):
        predicate = _Polars(expression).read(_document_of(expression))
    else:
        raise PredicateError(
            f"{shown(expression)} is not a condition.",
            hint="Give SQL text such as \"carrier = 'UA'\", or an expression of pyarrow or Polars.",
        )
    return bind(predicate, types)


def _refused(expression: object, part: object = None) -> PredicateError:
    what = f"{shown(part)} in " if part is not None else ""
    return PredicateError(f"Cannot use {what}the expression {shown(str(expression))}.", hint=_HINT)


def _of_arrow(node: ExpressionNode, whole: pc.Expression) -> Predicate:
    match node:
        case CallNode("and_kleene" | "and", arguments):
            return all_of([_of_arrow(argument, whole) for argument in arguments])
        case CallNode("or_kleene" | "or", arguments):
            return any_of([_of_arrow(argument, whole) for argument in arguments])
        case CallNode("invert", (argument,)):
            return negate(_of_arrow(argument, whole))
        case CallNode("is_valid", (FieldNode(name),)):
            return NullCheck(name, negated=True)
        case CallNode("is_null", (FieldNode(name),), options) if not _option(
            options, "nan_is_null"
        ):
            return NullCheck(name)
        case CallNode("is_in", (FieldNode(name),), options):
            values = _option(options, "value_set")
            return _among(name, values if isinstance(values, list) else [])
        case CallNode("starts_with" | "ends_with" | "match_substring" as function, _, options):
            return _of_text(node, function, options, whole)
        case CallNode("match_like", (FieldNode(name),), options):
            ignores_case = bool(_option(options, "ignore_case"))
            return Like(name, str(_option(options, "pattern")), ignores_case)
        case CallNode(function, (FieldNode(name), LiteralNode(value))) if function in COMPARISONS:
            return _compared(name, COMPARISONS[function], value.as_py())
        case CallNode(function, (LiteralNode(value), FieldNode(name))) if function in COMPARISONS:
            op = COMPARISONS[function]
            return _compared(name, TURNED.get(op, op), value.as_py())
        case LiteralNode(value) if pa.types.is_boolean(value.type) and value.is_valid:
            return TRUE if value.as_py() else FALSE
        case FieldNode(name):
            return Comparison(name, Op.EQ, value=True)
        case CallNode(function):
            raise _refused(whole, function)
    raise _refused(whole)


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


def _among(name: str, values: Sequence[Any]) -> Predicate:
    """Return the condition that a value is in a list; null in it is never equal to anything."""
    present = tuple(value for value in values if value is not None)
    return Membership(name, present) if present else FALSE


def _document_of(expression: Any) -> Any:
    try:
        return json.loads(expression.meta.serialize(format="json"))
    except Exception as exc:
        # Polars has an exception of its own for what it cannot write, such as a Python function.
        raise _refused(expression) from exc


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
            case {"IsIn": _}, [{"Column": name}, {"Literal": {"Scalar": {"List": data}}}]:
                return _among(name, pa.ipc.open_stream(bytes(data)).read_all()[0].to_pylist())
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
            case {"Literal": {"Dyn": {"Int": value} | {"Float": value} | {"Str": value}}}:
                found: Scalar = value
                return found
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
                return _EPOCH + dt.timedelta(days=value)
            case "Datetime" | "DatetimeOwned", [int(count), str(unit), zone]:
                per_second = {"Nanoseconds": 10**9, "Microseconds": 10**6, "Milliseconds": 10**3}
                seconds, fraction = divmod(count, per_second[unit])
                micros, lost = divmod(fraction * 10**6, per_second[unit])
                if lost:
                    raise self._refused(node)
                moment = dt.datetime(1970, 1, 1) + dt.timedelta(
                    seconds=seconds, microseconds=micros
                )
                return moment if zone is None else moment.replace(tzinfo=dt.UTC)
            case _, bool() | int() | float() | str():
                scalar: Scalar = value
                return scalar
        raise self._refused(node)

    def _refused(self, part: Any) -> PredicateError:
        text = part if isinstance(part, str) else json.dumps(part)
        return _refused(self._expression, text)
