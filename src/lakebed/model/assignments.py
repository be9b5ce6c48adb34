"""Terms that a field is set to: a column of one of two rows, a constant, or an expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.model.predicate import Predicate, columns_of
from lakebed.model.schema import Type
from lakebed.model.values import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCondition:
    """A condition on a pair of matching rows, or on one row of the data.

    Attributes:
        predicate: A predicate on columns `target.x` and `source.x`.
        types: Types of all columns that the predicate names, and of the two rows as records.
    """

    predicate: Predicate
    types: Mapping[str, Type]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return columns_of(self.predicate)


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
    """An expression of Spark SQL, converted to the type of the field that it sets.

    Attributes:
        text: The expression.
        types: The columns that it reads, with their types.
        kind: Type of the field.
        prefix: Beginning of the names of columns in a pair of rows, which the text lacks.
    """

    text: str
    types: tuple[tuple[str, Type], ...]
    kind: Type
    prefix: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the pair that it reads."""
        return tuple(self.prefix + name for name, _ in self.types)


Term = OfColumn | Constant | Computed


def columns_in(term: Term) -> tuple[str, ...]:
    """Return the distinct columns of a term, in order of appearance."""
    match term:
        case OfColumn(name):
            return (name,)
        case Computed():
            return term.columns
    return ()
