"""Terms that a field is set to: columns of two rows, constants, and functions of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from lakebed.model.predicate import Predicate, columns_of
from lakebed.model.schema import Type
from lakebed.model.sql_predicates import Compared
from lakebed.model.values import Scalar


class Function(StrEnum):
    """Functions of terms, in the type of the result."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"
    COALESCE = "coalesce"
    GREATEST = "greatest"
    LEAST = "least"
    ABS = "abs"
    UPPER = "upper"
    LOWER = "lower"
    TRIM = "trim"
    LTRIM = "ltrim"
    RTRIM = "rtrim"
    CONCAT = "||"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCondition:
    """A condition on a pair of matching rows, or on one row of the data.

    Attributes:
        predicate: A predicate on columns `target.x` and `source.x`, and on comparisons of two of
            them.
        compared: These comparisons, by their names in the predicate.
        types: Types of all columns that the predicate names, and of the two rows as records.
    """

    predicate: Predicate
    compared: Mapping[str, Compared]
    types: Mapping[str, Type]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        named = dict.fromkeys(
            name for name in columns_of(self.predicate) if name not in self.compared
        )
        for pair in self.compared.values():
            named.update(dict.fromkeys((pair.left, pair.right)))
        return tuple(named)


@dataclass(frozen=True, slots=True)
class OfColumn:
    """A column, as `target.x` or `source.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """One value for all rows."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Computed:
    """A function of other terms, computed in the type of the field that it sets."""

    function: Function
    parts: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Rounded:
    """A number rounded to some decimal places; halves are rounded away from zero."""

    part: Term
    places: int


@dataclass(frozen=True, slots=True)
class Converted:
    """A term of its own type, converted to another one where the value stays the same."""

    part: Term
    own: Type
    kind: Type


@dataclass(frozen=True, slots=True)
class Choice:
    """The term of the first condition that is true; only that one is evaluated."""

    branches: tuple[tuple[PairCondition, Term], ...]
    otherwise: Term


Term = OfColumn | Constant | Computed | Rounded | Converted | Choice


def columns_in(term: Term) -> tuple[str, ...]:
    """Return the distinct columns of a term and its conditions, in order of appearance."""
    return tuple(dict.fromkeys(_columns(term)))


def _columns(term: Term) -> Iterator[str]:
    if isinstance(term, OfColumn):
        yield term.name
    if isinstance(term, Choice):
        for condition, _ in term.branches:
            yield from condition.names
    for part in parts_of(term):
        yield from _columns(part)


def columns_of_type(term: Term) -> tuple[str, ...]:
    """Return the distinct columns that are taken in the type of the term itself."""
    if isinstance(term, OfColumn):
        return (term.name,)
    if isinstance(term, Converted):
        return ()
    names = (name for part in parts_of(term) for name in columns_of_type(part))
    return tuple(dict.fromkeys(names))


def parts_of(term: Term) -> tuple[Term, ...]:
    """Return the terms that a term is made of."""
    match term:
        case Computed(parts=parts):
            return parts
        case Rounded(part=part) | Converted(part=part):
            return (part,)
        case Choice(branches, otherwise):
            return (*(part for _, part in branches), otherwise)
    return ()
