"""Schemas from and to Avro's JSON form, which is also how descriptors store them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lakebed.errors import SchemaMismatchError
from lakebed.model.names import check_field_name
from lakebed.model.schema import (
    MISSING,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
)

_PLAIN = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
}
_LOGICAL = {
    ("int", "date"): Kind.DATE,
    ("long", "timestamp-millis"): Kind.TIMESTAMP,
    ("long", "timestamp-micros"): Kind.TIMESTAMP,
    ("long", "local-timestamp-millis"): Kind.TIMESTAMP_NTZ,
    ("long", "local-timestamp-micros"): Kind.TIMESTAMP_NTZ,
    ("string", "uuid"): Kind.STRING,
    # Avro tells readers to ignore logical types that they do not know, so this one is safe.
    ("long", "unsigned-long"): Kind.UNSIGNED_LONG,
}
_TO_LOGICAL = {
    Kind.DATE: {"type": "int", "logicalType": "date"},
    Kind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    Kind.TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
    Kind.UNSIGNED_LONG: {"type": "long", "logicalType": "unsigned-long"},
}


def schema_from_avro(document: object, *, strict_names: bool = True) -> Schema:
    """Read a schema from parsed Avro JSON.

    Enums become strings and fixed becomes bytes. A union of null and one type is a nullable
    field; any other union is refused.

    Args:
        document: A record schema.
        strict_names: Whether field names must be legal for a new dataset.

    Raises:
        SchemaMismatchError: The document is no record, or a type in it is not supported;
            the message names the place.
        InvalidNameError: A field name is not legal.
    """
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise SchemaMismatchError(
            f"Not an Avro record schema: {str(document)[:80]!r}.",
            hint='A schema is an object with "type": "record" and "fields".',
        )
    reader = _Reader(strict_names=strict_names)
    struct = reader.record(document, place="")
    return Schema(fields=struct.fields, name=str(document.get("name", "entity")))


class _Reader:
    def __init__(self, *, strict_names: bool) -> None:
        self._strict_names = strict_names
        self._named: dict[str, Type | None] = {}  # None: being read, so a use is a recursion

    def record(self, document: Mapping[str, Any], *, place: str) -> Struct:
        fields = document.get("fields")
        if not isinstance(fields, list) or not fields:
            raise SchemaMismatchError(
                f'Record{_at(place)} has no "fields".', hint="Give at least one field."
            )
        name = document.get("name")
        if isinstance(name, str):
            self._named[name] = None
        struct = Struct(tuple(self._field(one, place) for one in fields))
        if isinstance(name, str):
            self._named[name] = struct
        return struct

    def _field(self, document: object, place: str) -> Field:
        if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
            raise SchemaMismatchError(
                f"A field{_at(place)} is no object with a name: {str(document)[:80]!r}.",
                hint='Write it as {"name": "…", "type": "…"}.',
            )
        name: str = document["name"]
        if self._strict_names:
            check_field_name(name)
        here = f"{place}.{name}" if place else name
        kind, nullable = self._nullable(document.get("type"), here)
        return Field(
            name=name,
            type=kind,
            nullable=nullable,
            default=document.get("default", MISSING),
            doc=str(document.get("doc", "")),
        )

    def _nullable(self, document: object, place: str) -> tuple[Type, bool]:
        if not isinstance(document, list):
            return self._type(document, place), False
        others = [one for one in document if one != "null"]
        if len(others) != 1:
            raise SchemaMismatchError(
                f"Union{_at(place)} of {len(others)} types is not supported: {document!r}.",
                hint="Use one type, or null and one type.",
            )
        return self._type(others[0], place), len(others) < len(document)

    def _type(self, document: object, place: str) -> Type:
        if isinstance(document, str):
            return self._by_name(document, place)
        if not isinstance(document, Mapping):
            raise _unsupported(document, place)
        name = document.get("type")
        logical = document.get("logicalType")
        if name == "record":
            return self.record(document, place=place)
        if name == "array":
            return ListOf(*self._nullable(document.get("items"), f"{place}[]"))
        if name == "map":
            return MapOf(*self._nullable(document.get("values"), f"{place}{{}}"))
        if logical == "decimal" and name in ("bytes", "fixed"):
            return self._decimal(document, place)
        if name in ("enum", "fixed"):
            kind = Primitive(Kind.STRING if name == "enum" else Kind.BYTES)
            self._named[str(document.get("name"))] = kind
            return kind
        if isinstance(name, str) and isinstance(logical, str):
            if (name, logical) in _LOGICAL:
                return Primitive(_LOGICAL[name, logical])
            if logical.startswith("time-"):
                raise _unsupported(document, place)
        return self._type(name, place)

    def _by_name(self, name: str, place: str) -> Type:
        if name in _PLAIN:
            return Primitive(_PLAIN[name])
        known = self._named.get(name)
        if known is not None:
            return known
        if name in self._named:
            raise SchemaMismatchError(
                f"Type {name!r}{_at(place)} contains itself.",
                hint="Recursive records have no columns; flatten it or store it as a string.",
            )
        raise _unsupported(name, place)

    def _decimal(self, document: Mapping[str, Any], place: str) -> Decimal:
        precision, scale = document.get("precision"), document.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int):
            raise _unsupported(document, place)
        return Decimal(precision, scale)


def _at(place: str) -> str:
    return f" at {place!r}" if place else ""


def _unsupported(document: object, place: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Unsupported Avro type{_at(place)}: {str(document)[:120]}.",
        hint="Use a primitive, record, array, map, enum or fixed, or the logical types "
        "date, timestamp, decimal and uuid.",
    )


def schema_to_avro(schema: Schema) -> dict[str, Any]:
    """Return `schema` as Avro JSON; `schema_from_avro` gives it back unchanged."""
    return {
        "type": "record",
        "name": _avro_name(schema.name),
        "fields": [_field_to_avro(f, schema.name) for f in schema.fields],
    }


def _field_to_avro(field: Field, path: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": field.name,
        "type": _maybe_null(field.type, field.nullable, f"{path}_{field.name}"),
    }
    if field.default is not MISSING:
        document["default"] = field.default
    if field.doc:
        document["doc"] = field.doc
    return document


def _maybe_null(kind: Type, nullable: bool, path: str) -> Any:  # noqa: FBT001 - a pair of schema.Field
    document = _type_to_avro(kind, path)
    return ["null", document] if nullable else document


def _type_to_avro(kind: Type, path: str) -> Any:
    match kind:
        case Primitive(kind=primitive):
            return _TO_LOGICAL.get(primitive, str(primitive))
        case Decimal(precision=precision, scale=scale):
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": precision,
                "scale": scale,
            }
        case ListOf(element=element, element_nullable=nullable):
            return {"type": "array", "items": _maybe_null(element, nullable, f"{path}_item")}
        case MapOf(value=value, value_nullable=nullable):
            return {"type": "map", "values": _maybe_null(value, nullable, f"{path}_value")}
        case Struct(fields=fields):
            return {
                "type": "record",
                "name": _avro_name(path),
                "fields": [_field_to_avro(f, path) for f in fields],
            }


def _avro_name(text: str) -> str:
    """Avro names start with a letter or `_`; ours may start with a digit."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return name if not name[:1].isdigit() else f"_{name}"
