"""Partitions whose value the writer provides."""

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
    """A value that is given with each write and is not in a field of an entity.

    Attributes:
        values: Type of the value: string, int or long.
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
                f"{self.call} cannot have type {self.values!r}.",
                hint=f"Types are: {', '.join(_KINDS)}.",
            )

    @classmethod
    def from_parameters(
        cls, type_name: str, source: str, name: str | None, parameters: Mapping[str, Any]
    ) -> Self:
        """Build the function; the name is given in the position of the source.

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
        """The function and its name, as shown in errors."""
        return f"{self.type_name}({self.name})"

    def __str__(self) -> str:
        return f"{self.type_name}({self.name}, {self.values})"

    def to_document(self) -> dict[str, Any]:
        """Return Kite's JSON form."""
        return {"type": self.type_name, "name": self.name, "values": self.values}

    def source_type(self, schema: Schema) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return the type of the value: a provided field has no source."""
        return Primitive(_KINDS[self.values])

    def result_type(self, source: Type) -> Type:  # noqa: ARG002 - see PartitionFunction
        """Return the type of the value."""
        return Primitive(_KINDS[self.values])

    def value(self, value: Scalar, source: Type) -> Scalar:  # noqa: ARG002 - see PartitionFunction
        """Return the given value."""
        return value

    def array(self, array: pa.Array, source: Type) -> pa.Array:  # noqa: ARG002 - see PartitionFunction
        """Return the given values."""
        return array

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:  # noqa: ARG002 - no source
        """Return None: no condition on a field restricts the value."""
        return None
