"""The one internal form of a schema: a tree of frozen values.

Avro, Arrow, Spark and dataclass schemas are read into it by the modules beside this one.
All types are those that every one of these worlds can hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from lakebed.common.html import MAX_ITEMS, facts_to_html, shortened
from lakebed.common.shown import cut
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.names import find_alike, nearest


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

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaMismatchError("A record without fields.", hint="Give at least one field.")
        _check_distinct(self.fields)

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
        default: Value for data that lacks the field, of the field's type; or `MISSING`. Of a
            list or map only the empty one.
        doc: The comment on it: what it means.
    """

    name: str
    type: Type
    nullable: bool = True
    default: object = MISSING
    doc: str = ""

    def __hash__(self) -> int:
        # Defaults may be lists and maps, which do not hash; equality still compares them.
        return hash((self.name, self.type, self.nullable))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schema:
    """The fields of an entity, in order.

    Attributes:
        fields: At least one, with distinct names.
        name: Record name, for Avro; what Avro does not take in a name becomes `_`.

    >>> schema = Schema(fields=(Field(name="n", type=Primitive(Kind.LONG)),), name="my.entity")
    >>> schema.names, schema.name
    (('n',), 'my_entity')
    """

    fields: tuple[Field, ...]
    name: str = "entity"
    _by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaMismatchError("A schema without fields.", hint="Give at least one field.")
        _check_distinct(self.fields)
        object.__setattr__(self, "name", avro_name(self.name))
        object.__setattr__(self, "_by_name", {f.name: f for f in self.fields})

    def __repr__(self) -> str:
        return f"<Schema {self.name!r}: {shortened(map(_field_text, self.fields))}>"

    def _repr_html_(self) -> str:
        rows = [*self.fields][: MAX_ITEMS * 5]
        facts: dict[str, object] = {
            field.name: _type_text(field) + (f" · {cut(field.doc)}" if field.doc else "")
            for field in rows
        }
        if len(rows) < len(self.fields):
            facts["…"] = f"{len(self.fields) - len(rows):,} more"
        return facts_to_html(f"Schema {self.name}", facts)

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
        field = self._by_name.get(name)
        if field is None:
            raise SchemaMismatchError(
                f"Unknown column {name!r}.",
                hint=nearest(name, self.names) or f"Columns are: {', '.join(self.names)}.",
            )
        return field

    def select(self, names: tuple[str, ...]) -> Schema:
        """Return the schema of these fields, in this order.

        Raises:
            SchemaMismatchError: One is unknown.
        """
        return Schema(fields=tuple(self.get(name) for name in names), name=self.name)


def _field_text(field: Field) -> str:
    return f"{field.name}: {_type_text(field)}"


def _type_text(field: Field) -> str:
    return f"{field.type}" if field.nullable else f"{field.type}, not null"


def walk(fields: Iterable[Field], place: str = "") -> Iterator[tuple[str, Field]]:
    """Yield all fields with their paths, such as `a`, `a.b`, `a[].b` and `a{}.b`.

    Args:
        fields: Of a record.
        place: What their paths begin with.
    """
    for member in fields:
        path = f"{place}{member.name}"
        yield path, member
        kind, inner = member.type, path
        while isinstance(kind, ListOf | MapOf):
            inner += "[]" if isinstance(kind, ListOf) else "{}"
            kind = kind.element if isinstance(kind, ListOf) else kind.value
        if isinstance(kind, Struct):
            yield from walk(kind.fields, f"{inner}.")


def dotted_types(fields: Iterable[Field]) -> dict[str, Type]:
    """Return the types of fields and of all that lies in their records, as in `position.latitude`.

    What lies in a list or a map has no one value for an entity, and so no place here.
    """
    types: dict[str, Type] = {}
    for member in fields:
        types[member.name] = member.type
        if isinstance(member.type, Struct):
            inner = dotted_types(member.type.fields)
            types.update({f"{member.name}.{name}": kind for name, kind in inner.items()})
    return types


def path_of(column: str, types: Mapping[str, Type]) -> tuple[str, ...]:
    """Return the names that lead to a column: of a nested one first the field that holds it.

    Args:
        column: As `dotted_types` names it.
        types: Of the fields at least.
    """
    root, *_ = path = column.split(".")
    # Datasets of other tools may have a dot in the name of a field.
    return tuple(path) if isinstance(types.get(root), Struct) else (column,)


def find_alike_fields(types: Mapping[str, Type]) -> tuple[str, str] | None:
    """Return two fields of one record that differ in nothing but case; None if there are none.

    Many readers do not tell them apart, at any depth.

    Args:
        types: Of the columns.
    """
    inner = (find_alike_fields(record) for kind in types.values() for record in _records_in(kind))
    return find_alike(types) or next((pair for pair in inner if pair), None)


def _records_in(kind: Type) -> list[dict[str, Type]]:
    """Return the fields of each record that lies in a type, but not in another record."""
    match kind:
        case Struct(fields):
            return [{member.name: member.type for member in fields}]
        case ListOf(element=inner) | MapOf(value=inner):
            return _records_in(inner)
    return []


def _check_distinct(fields: tuple[Field, ...]) -> None:
    names = [field.name for field in fields]
    for name in names if len(set(names)) < len(names) else ():
        if names.count(name) > 1:
            raise SchemaMismatchError(
                f"Field {name!r} stands twice in one record.", hint="Rename one of them."
            )


def avro_name(text: str) -> str:
    """Return `text` as a name of Avro, which begins with a letter or `_`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text) or "entity"
    return f"_{name}" if name[0].isdecimal() else name
