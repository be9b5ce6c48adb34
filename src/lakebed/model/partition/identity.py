"""The value itself as its partition."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from lakebed.model.partition.function import PartitionFunction, flat
from lakebed.model.predicate import Leaf, Predicate
from lakebed.model.schema import Kind, Type
from lakebed.model.values import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity(PartitionFunction):
    """The value itself. Under its own name the field leaves the data file for the path."""

    type_name = "identity"
    kinds = frozenset(Kind) - {Kind.BYTES}

    @classmethod
    def default_name(cls, type_name: str, source: str) -> str:  # noqa: ARG003 - see PartitionFunction
        """Return the source's own name."""
        return flat(source)

    @property
    def stores_source(self) -> bool:
        """Whether the source stays in the data file."""
        return self.name != self.source

    def result_type(self, source: Type) -> Type:
        """Return the type of the source."""
        return source

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the value."""
        return value

    def array(self, array: pa.Array, source: Type) -> pa.Array:  # noqa: ARG002 - see PartitionFunction
        """Return the column."""
        return array

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:  # noqa: ARG002 - exact both ways
        """Return the same condition: it holds for a partition as for its entities."""
        return replace(leaf, column=self.name)
