"""Sets of values, each of which is a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.partition.function import PartitionFunction, flat, is_in, kind_of, primitive_of
from lakebed.model.partition.ranges import is_long, is_text
from lakebed.model.predicate import FALSE, TRUE, Leaf, Membership, NullCheck, Predicate, any_of
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import INTEGERS, Scalar, integer_limits

_NUMBERS = frozenset({Kind.INT, Kind.LONG})


@dataclass(frozen=True, slots=True, kw_only=True)
class Values(PartitionFunction):
    """The index of the first set that holds the value; a value in no set has no partition.

    Attributes:
        sets: Sets of values, none of them empty, all numbers or all texts. If sets overlap, the
            first one wins.
    """

    sets: tuple[tuple[int, ...], ...] | tuple[tuple[str, ...], ...]

    type_name = "values"
    kinds = _NUMBERS | {Kind.STRING}
    required = ("sets",)
    gathers = True

    def __post_init__(self) -> None:
        super(Values, self).__post_init__()
        given = self.sets
        if (
            not _is_list(given)
            or not given
            or not all(_is_list(group) and group for group in given)
        ):
            raise self._refuse_sets("Give at least one list of values, and none empty.")
        sets = tuple(tuple(group) for group in given)
        object.__setattr__(self, "sets", sets)
        values = [value for group in sets for value in group]
        if not (all(map(is_long, values)) or all(map(is_text, values))):
            raise self._refuse_sets("All values must be numbers, or all must be texts.")

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:  # noqa: ARG003 - see PartitionFunction
        """Return Kite's name."""
        return f"{flat(source)}_set"

    def _refuse_sets(self, hint: str) -> PartitionSpecError:
        return PartitionSpecError(f"{self.call} cannot have sets {self.sets!r}.", hint=hint)

    @property
    def cardinality(self) -> int:
        """The number of sets."""
        return len(self.sets)

    def result_type(self, source: Type) -> Type:
        """Return int.

        Raises:
            PartitionSpecError: The values do not have the type of the source.
        """
        is_of_texts = isinstance(self.sets[0][0], str)
        if is_of_texts is not (kind_of(source) is Kind.STRING):
            kind = "texts" if is_of_texts else "numbers"
            raise PartitionSpecError(
                f"{self.call} has lists of {kind}, but field {self.source!r} is a {source}.",
                hint=f"Give values of type {source}.",
            )
        return Primitive(Kind.INT)

    def _own(self, source: Type) -> dict[Scalar, int]:
        """Return the set index of each value that a source of this type can have."""
        return _first_sets(self.sets, primitive_of(source))

    def accepts(self, value: Scalar, source: Type) -> bool:
        """Return whether a set holds the value."""
        return value in self._own(source)

    def refusal(self, value: Scalar, source: Type) -> PartitionSpecError:  # noqa: ARG002 - see PartitionFunction
        """Return the error for a value that no set holds."""
        return PartitionSpecError(
            f"{self.call}: no set holds the value {value!r}.",
            hint="Correct the value, or create the dataset with a set that holds it.",
        )

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the index."""
        index = self._own(source).get(value)
        if index is None:
            raise self.refusal(value, source)
        return index

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the indices."""
        import pyarrow.compute as pc

        own = self._own(source)
        members = pa.array(list(own), type_to_arrow(source))
        positions = pc.index_in(array, members)
        missing = array.filter(pc.and_(positions.is_null(), array.is_valid()))
        if len(missing):
            raise self.refusal(missing[0].as_py(), source)
        return pa.array(np.array(list(own.values()), np.int32)).take(positions)

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project the condition by evaluating it for each value."""
        if isinstance(leaf, NullCheck):
            return NullCheck(self.name, leaf.negated)
        if isinstance(leaf, Membership) and not leaf.values:
            return TRUE if leaf.negated else FALSE
        return self._ask(leaf, source, strict=strict)

    def project_jointly(self, predicate: Predicate, source: Type, *, strict: bool) -> Predicate:
        """Project the conditions by evaluating them for each value, and for null."""
        projection = self._ask(predicate, source, strict=strict)
        if matches(predicate, {self.source: None}):
            return any_of([projection, NullCheck(self.name)])
        return projection

    def _ask(self, predicate: Predicate, source: Type, *, strict: bool) -> Predicate:
        answers: dict[int, list[bool]] = {}
        for member, index in self._own(source).items():
            answers.setdefault(index, []).append(matches(predicate, {self.source: member}))
        kept = [i for i, truths in answers.items() if (all(truths) if strict else any(truths))]
        return is_in(self.name, kept)


@lru_cache(maxsize=256)
def _first_sets(sets: tuple[tuple[Any, ...], ...], source: Primitive) -> dict[Scalar, int]:
    low, high = integer_limits(source) if source.kind in INTEGERS else (None, None)
    indices: dict[Scalar, int] = {}
    for value, index in [(value, index) for index, group in enumerate(sets) for value in group]:
        if low is None or low <= value <= high:
            indices.setdefault(value, index)
    return indices


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
