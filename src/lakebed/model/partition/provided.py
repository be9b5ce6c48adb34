"""Partitions that the writer names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.partition.function import PartitionFunction
from lakebed.model.predicate import Leaf, Predicate
from lakebed.model.schema import Kind, Primitive, Schema, Type
from lakebed.model.values import Scalar

_KINDS = {"string": Kind.STRING, "int": Kind.INT, "long": Kind.LONG}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided(PartitionFunction):
    """A value that comes with each write and is in no field of an entity.

    Attributes:
        values: Its type: string, int or long.
    """

    source: str = ""
    values: str = "string"

    type_name = "provided"
    kinds = frozenset(_KINDS.values())
    optional = ("values",)
    words = frozenset({"values"})
    takes_source = False

    def __post_init__(self) -> None:
        super(Provided, self).__post_init__()
        if not isinstance(self.values, str) or self.values not in _KINDS:
            raise PartitionSpecError(
                f"{self.call} of type {self.values!r}.", hint=f"Types are: {', '.join(_KINDS)}."
            )

    @classmethod
    def from_parameters(
        cls, type_name: str, source: str, name: str | None, parameters: Mapping[str, Any]
    ) -> Self:
        """Build it; what stands in the place of the source is the name.

        Raises:
            PartitionSpecError: Two names are given, or the type is unknown.
            InvalidNameError: The name is not legal.
        """
        if name not in (None, source):
            raise PartitionSpecError(
                f"{type_name}({source}) has two names, {source!r} and {name!r}.",
                hint="Give one of them.",
            )
        return cls(name=source, **parameters)

    @property
    def call(self) -> str:
        """The function and its name, as errors name it."""
        return f"{self.type_name}({self.name})"

    def __str__(self) -> str:
        return f"{self.type_name}({self.name}, {self.values})"

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        return {"type": self.type_name, "name": self.name, "values": self.values}

    def source_type(self, schema: Schema) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return its type: it has no source."""
        return Primitive(_KINDS[self.values])

    def result_type(self, source: Type) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return its type."""
        return Primitive(_KINDS[self.values])

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the value that was given."""
        return value

    def array(self, array: pa.Array, source: Type) -> pa.Array:  # noqa: ARG002 - see PartitionFunction
        """Return the values that were given."""
        return array

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:  # noqa: ARG002 - no source
        """Return None: no condition on a field says anything of it."""
        return None
