"""The one internal form of a schema: a tree of frozen values.

Avro, Arrow, Spark and dataclass schemas are read into it by the modules beside this one.
All types are those that every one of these worlds can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.names import nearest


class Kind(StrEnum):
    """Primitive types."""

    BOOLEAN = "boolean"
    INT = "int"  # 32 bits
    LONG = "long"  # 64 bits
    UNSIGNED_LONG = "unsigned long"  # 64 bits; Kartothek datasets have it
    FLOAT = "float"  # 32 bits
    DOUBLE = "double"  # 64 bits
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"  # days since 1970-01-01
    TIMESTAMP = "timestamp"  # microseconds since 1970-01-01T00:00Z: an instant
    TIMESTAMP_NTZ = "timestamp_ntz"  # microseconds of a wall clock that names no zone


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts."""

    kind: Kind

    def __str__(self) -> str:
        return str(self.kind)


@dataclass(frozen=True, slots=True)
class Decimal:
    """An exact number of `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= 38 or not 0 <= self.scale <= self.precision:
            raise InvalidInputError(
                f"Illegal decimal({self.precision}, {self.scale}).",
                hint="Precision is 1 to 38, scale is 0 to precision: Spark takes no more.",
            )

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one element type."""

    element: Type
    element_nullable: bool = True

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from strings to one value type; Avro knows no other keys."""

    value: Type
    value_nullable: bool = True

    def __str__(self) -> str:
        return f"map<string, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """A record inside a record."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return "struct<" + ", ".join(f"{f.name}: {f.type}" for f in self.fields) + ">"


Type = Primitive | Decimal | ListOf | MapOf | Struct


class Missing(StrEnum):
    """Marks a field without default; None is a default like any other."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record.

    Attributes:
        name: Its name, unique in its record.
        type: Its type.
        nullable: Whether it may be null.
        default: Value for files that lack the field; plain JSON, or `MISSING`.
        doc: What it means.
    """

    name: str
    type: Type
    nullable: bool = True
    default: object = MISSING
    doc: str = ""

    def __hash__(self) -> int:
        # Defaults may be lists and dicts, which do not hash; equality still compares them.
        return hash((self.name, self.type, self.nullable))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The fields of an entity, in order.

    Attributes:
        fields: At least one, with distinct names.
        name: Record name, for Avro.
    """

    fields: tuple[Field, ...]
    name: str = "entity"
    _by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaMismatchError("A schema without fields.", hint="Give at least one field.")
        by_name = {f.name: f for f in self.fields}
        if len(by_name) < len(self.fields):
            names = [f.name for f in self.fields]
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatchError(
                f"Field {twice!r} stands twice in the schema.", hint="Rename one of them."
            )
        object.__setattr__(self, "_by_name", by_name)

    @property
    def names(self) -> tuple[str, ...]:
        """Field names in order."""
        return tuple(self._by_name)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def find(self, name: str) -> Field | None:
        """Return the field of this name, or None."""
        return self._by_name.get(name)

    def get(self, name: str) -> Field:
        """Return the field of this name.

        Raises:
            SchemaMismatchError: There is none; the message names the nearest.
        """
        found = self._by_name.get(name)
        if found is None:
            raise SchemaMismatchError(
                f"Unknown column {name!r}.",
                hint=nearest(name, self.names) or f"Columns are: {', '.join(self.names)}.",
            )
        return found

    def select(self, names: tuple[str, ...]) -> Schema:
        """Return the schema of these fields, in this order.

        Raises:
            SchemaMismatchError: One is unknown.
        """
        return Schema(fields=tuple(self.get(name) for name in names), name=self.name)
