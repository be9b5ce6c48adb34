"""Expressions that a field is set to, converted to its type by the rules of Spark's assignments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from lakebed.errors import PredicateError
from lakebed.model.assignments import Computed, Constant, OfColumn, Term
from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.compiler import Compiler
from lakebed.model.formulas.type_names import sql_type_of
from lakebed.model.formulas.typed import CLOCK, DATE, TEXT, TIMESTAMP, Typed, is_atomic, is_number
from lakebed.model.schema import Struct, Type
from lakebed.model.sql_dialect import parse_condition, to_text
from lakebed.model.sql_predicates import (
    OtherFormError,
    check_quotes,
    read_literal,
    read_tree,
    with_values,
)

if TYPE_CHECKING:
    from sqlglot import expressions as exp

_TIMES = (DATE, TIMESTAMP, CLOCK)


def parse_term(
    text: str, types: Mapping[str, Type], kind: Type, column: str, *, prefix: str = ""
) -> Term:
    """Read the term that a field is set to from SQL text.

    Args:
        text: The term, as after `SET x =`.
        types: Types of the columns that the text may name.
        kind: The type of the field.
        column: The name of the field.
        prefix: Put before the names of columns in the term, such as `target.`.

    Raises:
        PredicateError: It cannot be read or computed, or is not of the type of the field.
    """
    try:
        tree = read_tree(text)
        check_quotes(text, types)
        try:
            return Constant(read_literal(tree, text, {**types, column: kind}, column))
        except PredicateError as refusal:
            return _computed(tree, text, types, kind, prefix, refusal)
    except RecursionError as exc:
        raise PredicateError(
            f"Cannot read the value of column {column!r}: it is nested too deeply.",
            hint="Split it into several updates.",
        ) from exc
    except PredicateError as exc:
        message = exc.message.replace("the predicate", f"the value of column {column!r},", 1)
        if message.startswith("Unknown column"):
            name = message.split("'")[1]
            message = f"Unknown column {name!r} in the value of {column!r}."
            if kind == TEXT and name.isidentifier():
                quoted = f"'{name}'"
                raise PredicateError(
                    message, hint=f'{exc.hint} A text stands in single quotes: "{quoted}".'
                ) from exc
        raise PredicateError(message, hint=exc.hint) from exc


def _computed(
    tree: exp.Expr,
    text: str,
    types: Mapping[str, Type],
    kind: Type,
    prefix: str,
    refusal: PredicateError,
) -> Term:
    plain = with_values(tree, text, types)
    if isinstance(kind, Struct):
        # Records of the data may lack parts, which stay as they are: they are made whole before.
        types = {name: _whole(name, own, kind) for name, own in types.items()}
    compiler = Compiler(text, types)
    try:
        value = compiler.read(plain)
    except PredicateError as exc:
        is_unknown = exc.message.startswith("Unknown column")
        is_other = is_unknown or bool(compiler.named) or isinstance(refusal, OtherFormError)
        raise (exc if is_other else refusal) from exc
    is_column = compiler.is_column(plain)
    column = OfColumn(prefix + next(iter(compiler.named))) if is_column else None
    if column is not None and (value.type == kind or not is_atomic(kind)):
        return column
    try:
        _stored(value, kind)
    except PredicateError as exc:
        if column is not None:
            return column  # whose type is judged with the data
        raise (exc if compiler.named or isinstance(refusal, OtherFormError) else refusal) from exc
    if value.type is None:
        return Constant(None)
    return Computed(to_text(plain), tuple(compiler.named.items()), kind, prefix)


def _whole(name: str, own: Type, kind: Struct) -> Type:
    is_of_data = name.startswith("source.") and name.count(".") == 1
    return kind if is_of_data and isinstance(own, Struct) else own


def expression_of(term: Computed) -> str:
    """Return the expression of DuckDB that computes a term, over its columns in the pair."""
    return _expression(term.text, term.types, term.kind, term.prefix)


@lru_cache(maxsize=256)
def _expression(text: str, types: tuple[tuple[str, Type], ...], kind: Type, prefix: str) -> str:
    compiler = Compiler(text, dict(types), prefix=prefix)
    return _stored(compiler.read(parse_condition(text)), kind).sql


def _stored(value: Typed, kind: Type) -> Typed:
    """Return a value in the type of its field, as Spark assigns it: a text is never read as a number.

    Raises:
        PredicateError: Spark would not assign it.
    """
    own = value.type
    is_assigned = (
        own in (kind, None)
        or (is_number(own) and is_number(kind))
        or (is_atomic(own) and kind == TEXT)
        or (own in _TIMES and kind in _TIMES)
        or not is_atomic(own)
    )
    if not is_assigned:
        raise PredicateError(
            f"A value of type {own} is assigned to a field of type {kind}.",
            hint=f"Convert it by CAST(… AS {sql_type_of(kind)})."
            if is_atomic(kind)
            else "Give a value of it.",
        )
    return cast(value, kind)
