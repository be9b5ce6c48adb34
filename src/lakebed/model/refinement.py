"""Refinements of a view: one more condition on one field, which must lie inside the constraint.

The rules are Kite's. A set replaces the set that contains it, a range is cut at the new end, and an
end outside the view is an error, since it is probably a mistake.
"""

from __future__ import annotations

from lakebed.errors import PredicateError
from lakebed.model.evaluate import matches
from lakebed.model.predicate import (
    FALSE,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    columns_of,
    conjuncts,
)
from lakebed.model.values import Scalar

# What a refinement may be; patterns are given by SQL text.
Refinement = Comparison | Membership | NullCheck

LOWER = (Op.GT, Op.GE)
UPPER = (Op.LT, Op.LE)


def refine(constraint: Predicate, leaf: Refinement) -> Predicate:
    """Return the constraint, narrowed by one condition.

    Args:
        constraint: The constraint of the view.
        leaf: A bound condition: a set (not negated, not empty), one end of a range, or IS NOT NULL.

    Raises:
        PredicateError: A value lies outside the constraint.
    """
    parts = conjuncts(constraint)
    same = [part for part in parts if columns_of(part) == (leaf.column,)]
    _check_inside(same, leaf)
    refined = _refine_field(same, leaf)
    if not same:
        return all_of([constraint, *refined])
    position = parts.index(same[0])
    before = [part for part in parts[:position] if part not in same]
    after = [part for part in parts[position:] if part not in same]
    return all_of([*before, *refined, *after])


def _check_inside(same: list[Predicate], leaf: Refinement) -> None:
    """Check that the values of a condition are in the view; an open end may be that of the view."""
    if isinstance(leaf, NullCheck):
        if NullCheck(leaf.column) in same:
            raise _outside(str(leaf), NullCheck(leaf.column))
        return
    is_open_end = isinstance(leaf, Comparison) and leaf.op in (Op.GT, Op.LT)
    for part in same:
        if is_open_end and part == leaf:
            continue
        for value in _values_of(leaf):
            if not matches(part, {leaf.column: value}):
                raise _outside(str(Comparison(leaf.column, Op.EQ, value)), part)


def _values_of(leaf: Comparison | Membership) -> tuple[Scalar, ...]:
    return leaf.values if isinstance(leaf, Membership) else (leaf.value,)


def _outside(what: str, part: Predicate) -> PredicateError:
    return PredicateError(
        f"{what} is outside the view, where {part}.",
        hint="A refinement can only narrow a view; start from the dataset for another view.",
    )


def _refine_field(same: list[Predicate], leaf: Refinement) -> list[Predicate]:
    """Return the conditions on one field, narrowed by one more that lies inside them."""
    match leaf:
        case NullCheck(column):
            excludes_null = any(not matches(part, {column: None}) for part in same)
            return same if excludes_null else [*same, leaf]
        case Membership():
            return [leaf]
        case Comparison():
            return _refine_range(same, leaf)


def _refine_range(same: list[Predicate], leaf: Comparison) -> list[Predicate]:
    for part in same:
        values = set_of(part)
        if values is not None:
            rule = all_of([*same, leaf])
            kept = tuple(value for value in values if matches(rule, {leaf.column: value}))
            return [Membership(leaf.column, kept)] if kept else [FALSE]
    ends = LOWER if leaf.op in LOWER else UPPER
    # The new end lies inside, so it replaces the old one. No range holds null.
    others = [
        part
        for part in same
        if not (isinstance(part, Comparison) and part.op in ends)
        and part != NullCheck(leaf.column, negated=True)
    ]
    return [leaf, *others] if leaf.op in LOWER else [*others, leaf]


def set_of(part: Predicate) -> tuple[Scalar, ...] | None:
    """Return the values that a condition lists; None if it is of another kind."""
    match part:
        case Membership(_, values, False) if values:
            return values
        case Comparison(_, Op.EQ, value):
            return (value,)
    return None
