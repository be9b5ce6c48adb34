"""Filters that other engines push down, as predicates for the planner.

An engine passes Arrow's own expressions, which cannot be inspected. But they can be pickled: then
Arrow writes them as a record batch that holds the literals, with the names of functions and fields
as metadata, in order. This module reads that. An unknown part becomes a weaker condition, or none:
the predicate only decides which files need not be opened, and Arrow applies the whole filter to
the rows.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import PredicateError
from lakebed.model.arrow_types import type_to_arrow
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
    bind,
)
from lakebed.model.schema import Decimal, Primitive, Type
from lakebed.model.values import Scalar
from lakebed.plan.expression import LONGEST_CHAIN, join

_TOKEN = re.compile(r"(call|field_ref|nested_field_ref|literal|options|end): '([^'\n]*)'")
_METADATA = "-- schema metadata --\n"
COMPARISONS = {
    "equal": Op.EQ,
    "not_equal": Op.NE,
    "less": Op.LT,
    "less_equal": Op.LE,
    "greater": Op.GT,
    "greater_equal": Op.GE,
}
_JOINS = ("and_kleene", "or_kleene", "and", "or")
_BRACKETS = re.compile(r"[()]")
_FEW_LEVELS = 40  # fit into every stack
_MOST_LEVELS = 200
_STACK_BYTES = 64 * 2**20  # for about 80,000 levels; what is not used takes no memory
_STACK_LOCK = threading.Lock()
TURNED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.GT: Op.LT, Op.GE: Op.LE}  # where the field is right


@dataclass(frozen=True, slots=True)
class FieldNode:
    """A column in an expression."""

    name: str


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """A literal in an expression."""

    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class CallNode:
    """A call of a function of Arrow, with its options."""

    function: str
    arguments: tuple[ExpressionNode, ...]
    options: Mapping[str, object]


ExpressionNode = FieldNode | LiteralNode | CallNode | None
"""A part of an expression; None for one that is not understood."""


def weaker_predicate(expression: pc.Expression, types: Mapping[str, Type]) -> Predicate:
    """Return a bound predicate that is true for every row for which the expression is true.

    Args:
        expression: Filter that is pushed down.
        types: Types of the columns that it may name.

    Returns:
        The strongest such predicate that is understood; TRUE if there is none.
    """
    node = parse_expression(expression, types)
    try:
        return _weaker(node, types) if node is not None else TRUE
    except RecursionError:
        return TRUE


def fields_of(expression: pc.Expression, types: Mapping[str, Type]) -> frozenset[str] | None:
    """Return the columns that an expression names; None if they are unknown."""
    node = parse_expression(expression, types)
    try:
        return None if node is None else _fields(node)
    except RecursionError:
        return None


def _fields(node: ExpressionNode) -> frozenset[str] | None:
    match node:
        case FieldNode(name):
            return frozenset([name])
        case LiteralNode():
            return frozenset()
        case CallNode(arguments=arguments):
            parts = [_fields(argument) for argument in arguments]
            known = [part for part in parts if part is not None]
            return frozenset().union(*known) if len(known) == len(parts) else None
    return None


def parse_expression(expression: pc.Expression, types: Mapping[str, Type]) -> ExpressionNode:
    """Parse Arrow's text form of an expression; None if it cannot be parsed."""
    if any("'" in name or "\n" in name for name in types):
        return None  # a name that could be confused with the syntax
    written = _written(expression)
    try:
        return None if written is None else _read(*written)
    except (LookupError, StopIteration, ValueError):
        return None


def _written(
    expression: pc.Expression,
) -> tuple[list[tuple[str, str]], pa.RecordBatch] | None:
    """Return an expression as a list of tokens, and its literals; None if it cannot be written."""
    try:
        _, (buffer,) = on_large_stack(expression.__reduce__)
        with pa.ipc.open_file(buffer) as file:
            batch = file.get_batch(0)
    except (pa.ArrowException, TypeError, ValueError):  # for example, fields by number
        return None
    # As a mapping, metadata has each name once.
    text = batch.schema.to_string(
        show_field_metadata=False, show_schema_metadata=True, truncate_metadata=False
    )
    tokens = [_TOKEN.fullmatch(line) for line in text.partition(_METADATA)[2].splitlines()]
    if not all(tokens):
        return None
    return [(token[1], token[2]) for token in tokens if token is not None], batch


def shallow(expression: pc.Expression) -> pc.Expression:
    """Return an expression that is true for the same rows, with few levels.

    Arrow walks an expression by recursion, also in threads of its own, whose stacks it chooses. One
    that would overflow them ends the process.

    Raises:
        PredicateError: It has too many levels that are not a chain of ANDs or ORs.
    """
    written = _written(expression)
    if written is None:
        text = on_large_stack(lambda: _text_of(expression))
        if _depth(text) > _MOST_LEVELS:
            raise too_deep()
        return expression
    tokens, batch = written
    depth = deepest = 0
    for kind, _ in tokens:
        depth += (kind == "call") - (kind == "end")
        deepest = max(deepest, depth)
    if deepest <= _FEW_LEVELS:
        return expression
    schema = batch.schema.with_metadata(pa.KeyValueMetadata(_with_short_chains(tokens)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as file:
        file.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    read, _ = pc.scalar(1).__reduce__()
    result: pc.Expression = read(sink.getvalue())
    return result


def _text_of(expression: pc.Expression) -> str:
    try:
        return str(expression)
    except UnicodeDecodeError as exc:
        return exc.object.decode("utf-8", "replace")


def _depth(text: str) -> int:
    """Return how deep parentheses are nested in a text, or more."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket == "(" else -1
        deepest = max(deepest, depth)
    return deepest


@dataclass(slots=True)
class _OpenTokens:
    """A call whose tokens are still to be read; see `_OpenCall`."""

    function: str
    arguments: list[list[tuple[str, str]]] = field(default_factory=list)
    inner_count: int = 0


def _with_short_chains(tokens: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the tokens of the same expression, whose chains of ANDs and ORs have few levels.

    Raises:
        PredicateError: It still has too many levels.
    """
    whole = _OpenTokens("")
    open_calls = [whole]
    for kind, text in tokens:
        last = open_calls[-1]
        if kind == "call" and text in _JOINS and text == last.function:
            last.inner_count += 1
        elif kind == "call":
            open_calls.append(_OpenTokens(text))
            if len(open_calls) > _MOST_LEVELS:
                raise too_deep()
        elif kind == "end" and last.inner_count:
            last.inner_count -= 1
        elif kind == "end":
            open_calls.pop()
            if last.function in _JOINS:
                call = _short_chains(last.function, last.arguments)
            else:
                call = _called(last.function, *last.arguments)
            open_calls[-1].arguments.append(call)
        else:
            last.arguments.append([(kind, text)])
    return [token for part in whole.arguments for token in part]


def _short_chains(function: str, parts: list[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    """Return the tokens of parts that are joined by AND or OR, of which Arrow makes short chains."""
    while len(parts) > LONGEST_CHAIN:
        parts = [
            # Twice negated, it is the same, but no part of a longer chain.
            _called("invert", _called("invert", _chain(function, parts[at : at + LONGEST_CHAIN])))
            for at in range(0, len(parts), LONGEST_CHAIN)
        ]
    return _chain(function, parts)


def _chain(function: str, parts: Sequence[list[tuple[str, str]]]) -> list[tuple[str, str]]:
    return join(lambda left, right: _called(function, left, right), parts)


def _called(function: str, *arguments: list[tuple[str, str]]) -> list[tuple[str, str]]:
    inside = [token for argument in arguments for token in argument]
    return [("call", function), *inside, ("end", function)]


def too_deep() -> PredicateError:
    """Return the error for a condition with too many levels."""
    return PredicateError(
        "The condition is nested too deeply.",
        hint="List the values of a column by is_in or isin. Give other alternatives as lists: "
        '[[("day", "==", 1), ("carrier", "==", "UA")], …], or join a table of them.',
    )


_Result = TypeVar("_Result")


def on_large_stack(
    call: Callable[[], _Result], stop: Callable[[], object] | None = None
) -> _Result:
    """Return the result of a call that a library answers by recursion, on a stack of its own.

    In a thread with a small one, a long expression would end the process.

    Args:
        call: The call.
        stop: Ends the call early; used where the wait for it is interrupted.
    """
    with ThreadPoolExecutor(1) as executor:
        with _STACK_LOCK:
            former = threading.stack_size(_STACK_BYTES)
            try:
                result = executor.submit(call)  # starts the thread
            finally:
                threading.stack_size(former)
        try:
            return result.result()
        except BaseException:
            if stop is not None and not result.done():
                stop()
            raise


@dataclass(slots=True)
class _OpenCall:
    """A call of which arguments are still to be read.

    Attributes:
        inner_count: Number of calls in it that are open, and whose arguments became its own.
    """

    function: str
    arguments: list[ExpressionNode] = field(default_factory=list)
    options: Mapping[str, object] = field(default_factory=dict)
    inner_count: int = 0


def _read(tokens: Sequence[tuple[str, str]], batch: pa.RecordBatch) -> ExpressionNode:
    """Return the tree of a list of tokens; a chain of ANDs or ORs becomes one call."""
    parts = iter(tokens)
    open_calls: list[_OpenCall] = []
    for kind, text in parts:
        node: ExpressionNode = None
        match kind:
            case "call":
                last = open_calls[-1] if open_calls else None
                if last is not None and text in _JOINS and text == last.function:
                    last.inner_count += 1
                else:
                    open_calls.append(_OpenCall(text))
                continue
            case "options":
                open_calls[-1].options = dict(batch.column(int(text))[0].items())
                continue
            case "end":
                last = open_calls[-1]
                if last.inner_count:
                    last.inner_count -= 1
                    continue
                open_calls.pop()
                node = CallNode(last.function, tuple(last.arguments), last.options)
            case "field_ref":
                node = FieldNode(text)
            case "nested_field_ref":
                for _ in range(int(text)):
                    next(parts)
            case "literal":
                node = LiteralNode(batch.column(int(text))[0])
        if not open_calls:
            return node
        open_calls[-1].arguments.append(node)
    raise ValueError(tokens)


def _weaker(node: ExpressionNode, types: Mapping[str, Type]) -> Predicate:
    match node:
        case CallNode("and_kleene" | "and", arguments):
            return all_of([_weaker(argument, types) for argument in arguments])
        case CallNode("or_kleene" | "or", arguments):
            return any_of([_weaker(argument, types) for argument in arguments])
        case CallNode("if_else", (_, then, LiteralNode(otherwise))) if otherwise.as_py() in (
            None,
            False,
        ):
            return _weaker(then, types)
        case CallNode("is_valid", (FieldNode(name),)) if name in types:
            return NullCheck(name, negated=True)
        case CallNode("is_null", (FieldNode(name),), options) if name in types:
            return TRUE if _value(options, "nan_is_null") is not False else NullCheck(name)
        case CallNode("invert", (CallNode("is_null", (FieldNode(name),), _),)) if name in types:
            return NullCheck(name, negated=True)
        case CallNode("invert", (CallNode("is_valid", (FieldNode(name),)),)) if name in types:
            return NullCheck(name)
        case CallNode("is_in", (FieldNode(name),), options) if name in types:
            return _membership(name, options, types)
        case CallNode(function, (FieldNode(name), LiteralNode(value))) if function in COMPARISONS:
            return _comparison(name, COMPARISONS[function], value, types)
        case CallNode(function, (LiteralNode(value), FieldNode(name))) if function in COMPARISONS:
            op = COMPARISONS[function]
            return _comparison(name, TURNED.get(op, op), value, types)
        case LiteralNode(value) if pa.types.is_boolean(value.type):
            return TRUE if value.as_py() else FALSE
    return TRUE


def _value(options: Mapping[str, object], name: str) -> object:
    value = options.get(name)
    return value.as_py() if isinstance(value, pa.Scalar) else None


def _membership(name: str, options: Mapping[str, object], types: Mapping[str, Type]) -> Predicate:
    value_set = options.get("value_set")
    if not isinstance(value_set, pa.ListScalar):
        return TRUE
    values: list[Scalar] = []
    for given in value_set.values or ():
        value = _as_value(given, types[name])
        if value is None:  # null is in the list, too; or it is of another type
            return TRUE
        values.append(value)
    return _bound(Membership(name, tuple(values)), types)


def _comparison(name: str, op: Op, given: pa.Scalar, types: Mapping[str, Type]) -> Predicate:
    if name not in types:
        return TRUE
    value = _as_value(given, types[name])
    return TRUE if value is None else _bound(Comparison(name, op, value), types)


def _as_value(given: pa.Scalar, kind: Type) -> Scalar:
    """Return a literal as a value of a column's type; None if it is null or not such a value."""
    if not given.is_valid or not isinstance(kind, Primitive | Decimal):
        return None
    if isinstance(kind, Decimal) and pa.types.is_floating(given.type):
        return None  # Arrow compares them as floats, and one float equals many decimals
    try:
        cast = given.cast(type_to_arrow(kind))
        if not cast.cast(given.type).equals(given):
            return None
        value: Scalar = cast.as_py()
    except (pa.ArrowException, OverflowError, ValueError):
        return None
    # Arrow compares with NaN in its own way.
    return None if isinstance(value, float) and math.isnan(value) else value


def _bound(leaf: Comparison | Membership, types: Mapping[str, Type]) -> Predicate:
    try:
        return bind(leaf, types)
    except PredicateError:
        return TRUE
