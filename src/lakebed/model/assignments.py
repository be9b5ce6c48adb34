"""Terms that a field is set to: columns of two rows, constants, and functions of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakebed.model.values import Scalar


class Function(StrEnum):
    """Functions of terms."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    COALESCE = "coalesce"
    GREATEST = "greatest"
    LEAST = "least"


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


Term = OfColumn | Constant | Computed


def columns_in(term: Term) -> tuple[str, ...]:
    """Return the distinct columns of a term, in order of appearance."""
    match term:
        case OfColumn(name):
            return (name,)
        case Constant():
            return ()
        case Computed(parts=parts):
            return tuple(dict.fromkeys(name for part in parts for name in columns_in(part)))
