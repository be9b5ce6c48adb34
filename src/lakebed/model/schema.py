"""The one internal form of a schema: a tree of frozen values.

The other modules of this package read Avro, Arrow, Spark and dataclass schemas into it. It has only
types that all of these can represent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, Literal

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
    TIMESTAMP_NTZ = "timestamp_ntz"  # microseconds of a wall clock without zone


@dataclass(frozen=True, slots=True)
class Primitive:
    """A type without parts.

    Two types of one kind and width are equal, even if they allow other values: only writers look at
    these.

    Attributes:
        kind: The kind of the values.
        bits: The width of whole numbers that are narrower than an int: 8 of a tinyint, 16 of a
            smallint; None for all other types.
        symbols: The allowed texts of an enum of Avro; empty for all texts.
        size: The number of bytes of each value of a fixed of Avro; None for any.
    """

    kind: Kind
    bits: Literal[8, 16] | None = None
    symbols: tuple[str, ...] = field(default=(), compare=False)
    size: int | None = field(default=None, compare=False)

    @property
    def is_limited(self) -> bool:
        """True if not all values of the kind are allowed."""
        return bool(self.symbols) or self.size is not None

    def holds(self, other: Primitive) -> bool:
        """Return whether both are types of whole numbers of 32 bits or less, and this is not narrower."""
        is_whole = self.kind is other.kind is Kind.INT
        return is_whole and (self.bits or 32) >= (other.bits or 32)

    def __str__(self) -> str:
        return _NARROW_NAMES[self.bits] if self.bits else str(self.kind)


_NARROW_NAMES: Final = {8: "tinyint", 16: "smallint"}
TINYINT: Final = Primitive(Kind.INT, bits=8)
SMALLINT: Final = Primitive(Kind.INT, bits=16)
TEXT: Final = Primitive(Kind.STRING)


@dataclass(frozen=True, slots=True)
class Decimal:
    """An exact number of `precision` digits, `scale` of them after the decimal point."""

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= 38 or not 0 <= self.scale <= self.precision:
            raise InvalidInputError(
                f"Illegal decimal({self.precision}, {self.scale}).",
                hint="Precision is 1 to 38, scale is 0 to precision, as in Spark.",
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
    """A map from keys of one type, which are never null, to values of one type."""

    value: Type
    value_nullable: bool = True
    key: Primitive | Decimal = TEXT

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True, slots=True)
class Struct:
    """A record inside a record."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaMismatchError("A record has no fields.", hint="Give at least one field.")
        _check_distinct(self.fields)

    def __str__(self) -> str:
        return "struct<" + ", ".join(f"{f.name}: {f.type}" for f in self.fields) + ">"


Type = Primitive | Decimal | ListOf | MapOf | Struct


class Missing(StrEnum):
    """The marker of a field without default; None is an ordinary default."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a record.

    Attributes:
        name: Name of the field, unique in its record.
        type: Type of the values.
        nullable: Whether values may be null.
        default: Value for data that lacks the field, of the field's type; or `MISSING`. A list or
            map can only default to an empty one.
        doc: The comment on the field: its meaning, for readers of the schema.
        stored_as: Name of the column that holds the field in data files, statistics and indices, if
            the field was renamed; None if it is the name of the field.
    """

    name: str
    type: Type
    nullable: bool = True
    default: object = MISSING
    doc: str = ""
    stored_as: str | None = None

    def __hash__(self) -> int:
        # Defaults may be lists and maps, which do not hash; equality still compares them.
        return hash((self.name, self.type, self.nullable))

    @property
    def stored_name(self) -> str:
        """The name of the column that holds the field in data files."""
        return self.name if self.stored_as is None else self.stored_as


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Schema:
    """The fields of an entity, in order.

    Attributes:
        fields: At least one, with distinct names.
        name: Record name, for Avro; characters that Avro does not allow in a name become `_`.
        renamed: Names of the columns that hold renamed fields in data files, by field.

    >>> schema = Schema(fields=(Field(name="n", type=Primitive(Kind.LONG)),), name="my.entity")
    >>> schema.names, schema.name
    (('n',), 'my_entity')
    """

    fields: tuple[Field, ...]
    name: str = "entity"
    _by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)
    renamed: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaMismatchError("The schema has no fields.", hint="Give at least one field.")
        _check_distinct(self.fields)
        object.__setattr__(self, "name", avro_name(self.name))
        object.__setattr__(self, "_by_name", {f.name: f for f in self.fields})
        renamed = {f.name: f.stored_name for f in self.fields if f.stored_name != f.name}
        object.__setattr__(self, "renamed", renamed)

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
            SchemaMismatchError: The field is unknown; the message names the nearest.
        """
        field = self._by_name.get(name)
        if field is None:
            raise SchemaMismatchError(f"Unknown column {name!r}.", hint=self.hint_for(name))
        return field

    def hint_for(self, name: str) -> str:
        """Return a hint for an unknown name: the new name of a renamed field, or the nearest name."""
        for new, stored in self.renamed.items():
            if stored == name:
                return f"It was renamed to {new!r}."
        return nearest(name, self.names) or f"Columns are: {', '.join(self.names)}."

    @property
    def is_renamed(self) -> bool:
        """True if data files hold some field under another name."""
        return bool(self.renamed)

    def stored_name(self, name: str) -> str:
        """Return the name of a column in data files; another name than that of a field is itself."""
        return self.renamed.get(name, name)

    def find_stored(self, column: str) -> Field | None:
        """Return the field that a column of data files holds, or None."""
        if not self.renamed:
            return self._by_name.get(column)
        return next((field for field in self.fields if field.stored_name == column), None)

    def as_stored(self) -> Schema:
        """Return the schema with the names that data files have."""
        if not self.renamed:
            return self
        fields = tuple(replace(f, name=f.stored_name, stored_as=None) for f in self.fields)
        return Schema(fields=fields, name=self.name)

    def select(self, names: tuple[str, ...]) -> Schema:
        """Return the schema of these fields, in this order.

        Raises:
            SchemaMismatchError: A field is unknown.
        """
        return Schema(fields=tuple(self.get(name) for name in names), name=self.name)


def _field_text(field: Field) -> str:
    return f"{field.name}: {_type_text(field)}"


def _type_text(field: Field) -> str:
    return f"{field.type}" if field.nullable else f"{field.type}, not null"


def walk(fields: Iterable[Field], place: str = "") -> Iterator[tuple[str, Field]]:
    """Yield all fields with their paths, such as `a`, `a.b`, `a[].b` and `a{}.b`.

    Args:
        fields: Fields of a record.
        place: Prefix of their paths.
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
    """Return the types of fields and of those in their records, as in `position.latitude`.

    Fields in a list or a map are left out: they do not have one value per entity.
    """
    types: dict[str, Type] = {}
    for member in fields:
        types[member.name] = member.type
        if isinstance(member.type, Struct):
            inner = dotted_types(member.type.fields)
            types.update({f"{member.name}.{name}": kind for name, kind in inner.items()})
    return types


def path_of(column: str, types: Mapping[str, Type]) -> tuple[str, ...]:
    """Return the path of names to a column; for a nested one, it begins with the top-level field.

    Args:
        column: Name of the column, as in `dotted_types`.
        types: Types of at least the fields.
    """
    root, *_ = path = column.split(".")
    # Datasets of other tools may have a dot in the name of a field.
    return tuple(path) if isinstance(types.get(root), Struct) else (column,)


def limits_of(kind: Type) -> tuple[object, ...]:
    """Return the symbols of enums and the sizes of fixed in a type, in order; empty without any."""
    match kind:
        case Primitive(symbols=symbols, size=size):
            return ((symbols, size),) if kind.is_limited else ()
        case ListOf(element=inner) | MapOf(value=inner):
            return limits_of(inner)
        case Struct(fields):
            return tuple((one.name, limits) for one in fields if (limits := limits_of(one.type)))
    return ()


def has_limits(kind: Type) -> bool:
    """Return whether a type is or holds an enum or a fixed of Avro."""
    return bool(limits_of(kind))


def without_limits(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields whose types allow all values of their kinds."""
    return tuple(replace(member, type=_without_limits(member.type)) for member in fields)


def _without_limits(kind: Type) -> Type:
    match kind:
        case Primitive(kind=own, bits=bits):
            return Primitive(own, bits)
        case ListOf(element=inner):
            return replace(kind, element=_without_limits(inner))
        case MapOf(value=inner):
            return replace(kind, value=_without_limits(inner))
        case Struct(fields):
            return Struct(without_limits(fields))
    return kind


def find_alike_fields(types: Mapping[str, Type]) -> tuple[str, str] | None:
    """Return two fields of one record, at any depth, that differ only in case; None without any.

    Many readers cannot distinguish such fields.
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
                f"Field {name!r} appears twice in one record.", hint="Rename one of them."
            )


def check_map_key(kind: Type, place: str) -> Primitive | Decimal:
    """Return the type of a map's keys.

    Raises:
        SchemaMismatchError: The keys have parts.
    """
    if isinstance(kind, Primitive | Decimal):
        return kind
    raise SchemaMismatchError(
        f"Map {place!r} has keys of type {kind}, which have parts.", hint=remedy_for("map")
    )


_REMEDIES = {
    "time": "A time of day is stored as a text, such as 06:30:00, or as a long of microseconds since "
    "midnight: cast it.",
    "duration": "A duration is stored as a long of a unit that the name says, such as seconds: cast "
    "it.",
    "map": "The keys of a map are single values, such as texts, numbers and dates: cast them, or give "
    "a list of records of key and value.",
}


def remedy_for(unsupported: str) -> str:
    """Return how to store values of a type that no dataset has.

    Args:
        unsupported: `time`, `duration` or `map`; anything else for other types.
    """
    return _REMEDIES.get(unsupported, "Cast it to a supported type, for example a string.")


def avro_name(text: str) -> str:
    """Return `text` as an Avro name, which begins with a letter or `_`."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text) or "entity"
    return f"_{name}" if name[0].isdecimal() else name
