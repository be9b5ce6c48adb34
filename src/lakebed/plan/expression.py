"""Predicates as Arrow expressions, which Arrow also applies to row groups."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import OPERATORS, matches
from lakebed.model.predicate import (
    And,
    Comparison,
    Formula,
    Leaf,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    leaves,
    lower_case,
    map_leaves,
)
from lakebed.model.schema import Primitive, Type, path_of
from lakebed.model.values import FLOATS, Scalar, is_nan


def to_arrow_expression(predicate: Predicate, types: Mapping[str, Type]) -> pc.Expression:
    """Return a bound predicate as an Arrow expression that selects the same rows.

    Args:
        predicate: A predicate bound to `types`. The truth of a formula is a column of its name.
        types: Type of each column.
    """
    match predicate:
        case And(parts):
            expressions = [to_arrow_expression(part, types) for part in parts]
            return _joined(operator.and_, expressions) if expressions else pc.scalar(True)  # noqa: FBT003 - Arrow's signature
        case Or(parts):
            expressions = [to_arrow_expression(part, types) for part in parts]
            return _joined(operator.or_, expressions) if expressions else pc.scalar(False)  # noqa: FBT003 - Arrow's signature
        case Formula(name=name):
            return pc.field(name)
        case NullCheck(column, negated):
            field = pc.field(*path_of(column, types))
            return field.is_valid() if negated else field.is_null()
        case Comparison(column, op, value):
            field = pc.field(*path_of(column, types))
            return _comparison(field, op, value, types[column])
        case Membership(column, values, negated):
            field = pc.field(*path_of(column, types))
            return _membership(field, values, types[column], negated=negated)
        case Like(column, pattern, ignores_case, negated):
            field = pc.field(*path_of(column, types))
            is_like = _like(field, pattern, ignores_case=ignores_case)
            return ~is_like if negated else is_like


_Condition = TypeVar("_Condition")


def join(
    operation: Callable[[_Condition, _Condition], _Condition], parts: Sequence[_Condition]
) -> _Condition:
    """Return conditions joined by AND or OR, in order, as a tree of little depth.

    Arrow and Spark walk a tree by recursion: one with a level for each of a thousand parts would
    overflow the stack of a thread, which ends the process.
    """
    joined = list(parts)
    while len(joined) > 1:
        pairs = [operation(*joined[at : at + 2]) for at in range(0, len(joined) - 1, 2)]
        joined = pairs + joined[len(pairs) * 2 :]
    return joined[0]


# Arrow makes one chain of parts that are joined by the same word, with a level for each part. A
# level takes up to 1 KiB of the stack, which has 512 KiB in a thread on macOS.
LONGEST_CHAIN = 16


def _joined(
    operation: Callable[[pc.Expression, pc.Expression], pc.Expression],
    parts: Sequence[pc.Expression],
) -> pc.Expression:
    """Return expressions joined by AND or OR, of which Arrow makes short chains only."""
    while len(parts) > LONGEST_CHAIN:
        chains = [
            join(operation, parts[at : at + LONGEST_CHAIN])
            for at in range(0, len(parts), LONGEST_CHAIN)
        ]
        parts = [~~chain for chain in chains]  # the same, but no part of a longer chain
    return join(operation, parts)


def has_truthful_bounds(predicate: Predicate, types: Mapping[str, Type]) -> bool:
    """Return whether the bounds of a row group are true for all its values that are not null.

    Bounds of floats ignore NaN, so that Arrow would treat NaN as a value between them.
    """
    return not any(
        _is_float(types[leaf.column]) and not isinstance(leaf, NullCheck)
        for leaf in leaves(predicate)
    )


def for_row_groups(predicate: Predicate, types: Mapping[str, Type]) -> Predicate:
    """Return a weaker predicate that lets Arrow skip row groups safely.

    If all numbers of a row group are equal, Arrow assumes that every row has this value, and would
    lose NaN, which bounds ignore. So conditions that NaN meets become IS NOT NULL.
    """

    def weaken(leaf: Leaf) -> Predicate:
        if not _is_float(types[leaf.column]) or matches(leaf, {}):
            return leaf
        is_met_by_nan = matches(leaf, {leaf.column: math.nan})
        return NullCheck(leaf.column, negated=True) if is_met_by_nan else leaf

    return map_leaves(predicate, weaken)


def _like(field: pc.Expression, pattern: str, *, ignores_case: bool) -> pc.Expression:
    if ignores_case:
        # Arrow's own way of ignoring case takes the Kelvin sign for a k.
        field, pattern = pc.utf8_lower(field), lower_case(pattern)
    return pc.match_like(field, pattern)


def _comparison(field: pc.Expression, op: Op, value: Scalar, kind: Type) -> pc.Expression:
    if not _is_float(kind):
        return OPERATORS[op](field, pc.scalar(pa.scalar(value, type_to_arrow(kind))))
    # Arrow compares as IEEE does; here NaN equals itself and is greater than every number.
    if is_nan(value):
        match op:
            case Op.EQ | Op.GE:
                return field.is_nan()
            case Op.NE | Op.LT:
                return ~field.is_nan()
            case Op.LE:
                return field.is_valid()
            case Op.GT:
                return field.is_valid() & pc.scalar(False)  # noqa: FBT003 - Arrow's signature
    plain = OPERATORS[op](field, pc.scalar(pa.scalar(value, type_to_arrow(kind))))
    return plain | field.is_nan() if op in (Op.GT, Op.GE) else plain


def _membership(
    field: pc.Expression, values: tuple[Scalar, ...], kind: Type, *, negated: bool
) -> pc.Expression:
    plain = [value for value in values if not is_nan(value)]
    holds_nan = len(plain) < len(values)
    if _is_float(kind) and 0.0 in plain:
        plain += [0.0, -0.0]  # equal, but Arrow's sets distinguish them
    is_member = field.isin(pa.array(plain, type_to_arrow(kind)))
    if holds_nan:
        is_member = is_member | field.is_nan()
    if not negated:
        return is_member
    # For Arrow, null is not in any list; here that is unknown, unless the list is empty.
    return ~is_member & field.is_valid() if values else pc.scalar(True)  # noqa: FBT003 - Arrow's signature


def _is_float(kind: Type) -> bool:
    return isinstance(kind, Primitive) and kind.kind in FLOATS
