"""Schemas from and to Avro's JSON form, which is also how descriptors store them."""

from __future__ import annotations

import datetime as dt
import decimal
import reprlib
from collections.abc import Mapping
from typing import Any

from lakebed.errors import InvalidInputError, InvalidNameError, SchemaMismatchError
from lakebed.model.names import check_field_name, is_avro_name
from lakebed.model.schema import (
    MISSING,
    TEXT,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    avro_name,
    walk,
)
from lakebed.model.values import EPOCH, check_value, to_micros

MAX_DEPTH = 50  # levels of nested types; deeper ones may be an attack
_MAX_GROUPS = 99  # Arrow's reader of Parquet accepts 100 levels; a list or map counts as two

STORED_AS = "lakebed.stored_as"  # of a renamed field: the name of its column in data files
_BITS = "lakebed.bits"  # of an int: the width of a tinyint or smallint, for which Avro has no type
_EPOCH_DAY = dt.date(1970, 1, 1)

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
    # Avro requires readers to ignore logical types that they do not know, so this one is safe.
    ("long", "unsigned-long"): Kind.UNSIGNED_LONG,
}
# The usual context has 28 digits, and would round longer decimals.
_ALL_DIGITS = decimal.Context(prec=38)
_TO_LOGICAL = {
    Kind.DATE: {"type": "int", "logicalType": "date"},
    Kind.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
    Kind.TIMESTAMP_NTZ: {"type": "long", "logicalType": "local-timestamp-micros"},
    Kind.UNSIGNED_LONG: {"type": "long", "logicalType": "unsigned-long"},
}


def schema_from_avro(document: object) -> Schema:
    """Read a schema from parsed Avro JSON.

    Enums become strings of these symbols and fixed becomes bytes of this size. A union of null and
    one type is a nullable field; any other union raises an error.

    Args:
        document: A record schema.

    Raises:
        SchemaMismatchError: The document is not a record, or a type in it is not supported;
            the message names the place.
        InvalidNameError: A field name is not legal.
    """
    if not isinstance(document, Mapping) or document.get("type") != "record":
        raise SchemaMismatchError(
            f"Not an Avro record schema: {_shown(document)}.",
            hint='A schema is an object with "type": "record" and "fields".',
        )
    struct = _Reader().record(document, place="", namespace="")
    name = document.get("name")
    return Schema(fields=struct.fields, name=name if isinstance(name, str) else "entity")


class _Reader:
    def __init__(self) -> None:
        self._depth = 0
        self._named: dict[str, Type | None] = {}  # None: still being read, so a use is recursive

    def record(self, document: Mapping[str, Any], *, place: str, namespace: str) -> Struct:
        fields = document.get("fields")
        if not isinstance(fields, list) or not fields:
            raise SchemaMismatchError(
                f'Record{_at(place)} has no "fields".', hint="Give at least one field."
            )
        name, namespace = _full_name(document, namespace)
        self._named[name] = None
        struct = Struct(tuple(self._field(field, place, namespace) for field in fields))
        self._named[name] = struct
        return struct

    def _field(self, document: object, place: str, namespace: str) -> Field:
        if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
            raise SchemaMismatchError(
                f"A field{_at(place)} is not an object with a name: {_shown(document)}.",
                hint='Write it as {"name": "…", "type": "…"}.',
            )
        name = check_field_name(document["name"])
        here = f"{place}.{name}" if place else name
        kind, nullable = self._nullable(document.get("type"), here, namespace)
        doc = document.get("doc")
        default = document.get("default", MISSING)
        stored = None if place else document.get(STORED_AS)
        return Field(
            name=name,
            type=kind,
            nullable=nullable,
            default=default
            if default is MISSING or (default is None and nullable)
            else _default_from_avro(default, kind, document.get("type"), here),
            doc=doc if isinstance(doc, str) else "",
            stored_as=None if stored is None else check_field_name(stored),
        )

    def _nullable(self, document: object, place: str, namespace: str) -> tuple[Type, bool]:
        if not isinstance(document, list):
            return self._type(document, place, namespace), False
        others = [member for member in document if member != "null"]
        if len(others) != 1:
            raise SchemaMismatchError(
                f"Union{_at(place)} of {len(others)} types is not supported: {_shown(document)}.",
                hint="Use one type, or null and one type.",
            )
        return self._type(others[0], place, namespace), len(others) < len(document)

    def _type(self, document: object, place: str, namespace: str) -> Type:
        if isinstance(document, str):
            return self._by_name(document, place, namespace)
        if not isinstance(document, Mapping):
            raise _unsupported(document, place)
        if self._depth >= MAX_DEPTH:
            raise _too_deep(place)
        self._depth += 1
        try:
            return self._complex(document, place, namespace)
        finally:
            self._depth -= 1

    def _complex(self, document: Mapping[str, Any], place: str, namespace: str) -> Type:
        name = document.get("type")
        logical = document.get("logicalType")
        if name == "record":
            return self.record(document, place=place, namespace=namespace)
        if name == "array":
            elements = ListOf(*self._nullable(document.get("items"), f"{place}[]", namespace))
            return _as_map(elements) if logical == "map" else elements
        if name == "map":
            return MapOf(*self._nullable(document.get("values"), f"{place}{{}}", namespace))
        if name == "int" and document.get(_BITS) in (8, 16):
            return Primitive(Kind.INT, document[_BITS])
        if name in ("enum", "fixed") or (logical == "decimal" and name == "bytes"):
            return self._leaf(document, place, namespace)
        if isinstance(name, str) and isinstance(logical, str):
            if (name, logical) in _LOGICAL:
                return Primitive(_LOGICAL[name, logical])
            if logical.startswith("time-"):
                raise _unsupported(document, place)
        return self._type(name, place, namespace)

    def _leaf(self, document: Mapping[str, Any], place: str, namespace: str) -> Type:
        is_decimal = document.get("logicalType") == "decimal" and document["type"] != "enum"
        kind = _decimal(document, place) if is_decimal else _limited(document, place)
        if document["type"] != "bytes":
            self._named[_full_name(document, namespace)[0]] = kind
        return kind

    def _by_name(self, name: str, place: str, namespace: str) -> Type:
        if name in _PLAIN:
            return Primitive(_PLAIN[name])
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        known = self._named.get(full)
        if known is not None:
            return known
        if full in self._named:
            raise SchemaMismatchError(
                f"Type {name!r}{_at(place)} contains itself.",
                hint="Recursive records have no columns; flatten it or store it as a string.",
            )
        raise _unsupported(name, place)


def _as_map(entries: ListOf) -> Type:
    """Return the map that a list of entries stands for, as Iceberg has it; other lists unchanged."""
    match entries:
        case ListOf(
            Struct(
                (
                    Field(name="key", type=Primitive() | Decimal() as key, nullable=False),
                    Field(name="value") as item,
                )
            ),
            False,
        ) if key != TEXT:
            plain = key if isinstance(key, Decimal) else Primitive(key.kind, key.bits)
            return MapOf(item.type, item.nullable, plain)
    return entries


def _full_name(document: Mapping[str, Any], enclosing: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace that applies inside it."""
    name, namespace = document.get("name"), document.get("namespace")
    if not isinstance(name, str):
        name = ""
    if "." in name:
        return name, name.rpartition(".")[0]
    space = namespace if isinstance(namespace, str) else enclosing
    return (f"{space}.{name}" if space else name), space


def _limited(document: Mapping[str, Any], place: str) -> Primitive:
    """Return the type of an enum or a fixed; of bytes, without a limit."""
    match document:
        case {"type": "enum", "symbols": [*symbols]} if symbols and all(
            isinstance(symbol, str) for symbol in symbols
        ):
            return Primitive(Kind.STRING, symbols=tuple(dict.fromkeys(symbols)))
        case {"type": "fixed", "size": int(size)} if size >= 0 and not isinstance(size, bool):
            return Primitive(Kind.BYTES, size=size)
        case {"type": "bytes"}:
            return Primitive(Kind.BYTES)
    raise SchemaMismatchError(
        f"An enum{_at(place)} has no symbols, or a fixed no size: {_shown(document)}.",
        hint='Write {"type": "enum", "name": "…", "symbols": […]}, or "fixed" with a "size".',
    )


def _decimal(document: Mapping[str, Any], place: str) -> Decimal:
    precision, scale = document.get("precision"), document.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        raise _unsupported(document, place)
    try:
        return Decimal(precision, scale)
    except InvalidInputError as exc:
        raise SchemaMismatchError(f"{exc.message.rstrip('.')}{_at(place)}.", hint=exc.hint) from exc


def _default_from_avro(default: object, kind: Type, document: object, place: str) -> object:
    """Read a default that is not null; Avro writes bytes as text and times as numbers."""
    try:
        match kind:
            case ListOf() if default == []:
                return []
            case MapOf() if default in ({}, []):
                return {}
            case Decimal(scale=scale) if isinstance(default, str):
                unscaled = int.from_bytes(default.encode("latin-1"), "big", signed=True)
                value = decimal.Decimal(unscaled).scaleb(-scale, _ALL_DIGITS)
                return check_value(value, kind, place)
            case Primitive(kind=Kind.BYTES) if isinstance(default, str):
                return default.encode("latin-1")
            case Primitive(kind=Kind.DATE) if type(default) is int:
                return _EPOCH_DAY + dt.timedelta(days=default)
            case Primitive(kind=Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ as time) if (
                type(default) is int
            ):
                unit = "milliseconds" if _is_in_millis(document) else "microseconds"
                moment = EPOCH + dt.timedelta(**{unit: default})
                return moment if time is Kind.TIMESTAMP else moment.replace(tzinfo=None)
            case Primitive(kind=primitive) if primitive not in _TO_LOGICAL or (
                primitive is Kind.UNSIGNED_LONG
            ):
                return check_value(default, kind, place)
    except (InvalidInputError, UnicodeEncodeError, OverflowError) as exc:
        raise _wrong_default(default, kind, place) from exc
    raise _wrong_default(default, kind, place)


def _is_in_millis(document: object) -> bool:
    documents = document if isinstance(document, list) else [document]
    logical = [member.get("logicalType") for member in documents if isinstance(member, Mapping)]
    return any(isinstance(name, str) and name.endswith("-millis") for name in logical)


def _wrong_default(
    default: object,
    kind: Type,
    place: str,
    hint: str = "Write it as Avro does; a list or map may only have an empty default.",
) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"The default {_shown(default)}{_at(place)} is not valid for type {kind}.", hint=hint
    )


def _default_to_avro(default: object, kind: Type, place: str) -> object:
    """Return a default as Avro writes it.

    Raises:
        SchemaMismatchError: It would not be read back: a default of another type, or with more digits
            than the scale, left a dataset that could not be opened, or had another value.
    """
    if default is None or (isinstance(kind, ListOf | MapOf) and default in ([], {})):
        return default
    try:
        value = check_value(default, kind, place)
    except InvalidInputError as exc:
        hint = "Give a value of the type; a list or map may only have an empty default."
        raise _wrong_default(default, kind, place, hint) from exc
    match value:
        case bytes():
            return value.decode("latin-1")
        case decimal.Decimal():
            exponent = value.as_tuple().exponent
            unscaled = int(value.scaleb(-int(exponent), _ALL_DIGITS))
            length = unscaled.bit_length() // 8 + 1
            return unscaled.to_bytes(length, "big", signed=True).decode("latin-1")
        case dt.datetime():
            return to_micros(value)
        case dt.date():
            return (value - _EPOCH_DAY).days
    return value


def _at(place: str) -> str:
    return f" at {place!r}" if place else ""


def _unsupported(document: object, place: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Unsupported Avro type{_at(place)}: {_shown(document)}.",
        hint="Use a primitive, record, array, map, enum or fixed, or the logical types "
        "date, timestamp, decimal and uuid.",
    )


def _too_deep(place: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Types are nested more than {MAX_DEPTH} deep{_at(place)}.",
        hint="Flatten the schema, or store that part as a string.",
    )


def _shown(document: object) -> str:
    """Return a short text of a document of any size and depth."""
    return reprlib.repr(document)


def check_depth(schema: Schema, *, is_parquet: bool) -> None:
    """Check that a schema can be read back from Avro JSON, and its files if they are Parquet.

    Raises:
        SchemaMismatchError: The types are nested too deeply.
    """
    # Without recursion: the types may be deeper than Python's stack.
    waiting = [(field.type, field.name, 0, 0) for field in schema.fields]
    while waiting:
        kind, place, depth, groups = waiting.pop()
        if isinstance(kind, Primitive) and isinstance(_type_to_avro(kind, ""), str):
            continue
        depth += 1
        groups += 1 if isinstance(kind, Struct) else 2
        match kind:
            case ListOf(element):
                waiting.append((element, f"{place}[]", depth, groups))
            case MapOf(value, key=key):
                depth += key != TEXT  # a list of records in JSON
                waiting.append((key, f"{place}{{key}}", depth, groups))
                waiting.append((value, f"{place}{{}}", depth, groups))
            case Struct(fields):
                waiting += [(one.type, f"{place}.{one.name}", depth, groups) for one in fields]
            case _:
                groups = 0
        if depth > MAX_DEPTH or (is_parquet and groups > _MAX_GROUPS):
            raise _too_deep(place)


def check_avro_names(schema: Schema) -> None:
    """Check that files of Avro can hold the names of all fields.

    Raises:
        InvalidNameError: A name is not valid in Avro; the message has its path.
    """
    for path, field in walk(schema.fields):
        if not is_avro_name(field.name):
            raise InvalidNameError(
                f"Files of Avro cannot hold the field name {path!r}.",
                hint="Avro takes letters of ASCII, digits and '_', and no digit first: rename the "
                f"field, such as to {avro_name(field.name)!r}, or use the format parquet.",
            )


def schema_to_avro(schema: Schema) -> dict[str, Any]:
    """Return `schema` as Avro JSON; `schema_from_avro` gives it back unchanged."""
    return {
        "type": "record",
        "name": schema.name,
        "fields": [_field_to_avro(f, schema.name) for f in schema.fields],
    }


def _field_to_avro(field: Field, path: str) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": field.name,
        "type": _maybe_null(field.type, field.nullable, f"{path}_{field.name}"),
    }
    if field.default is not MISSING:
        document["default"] = _default_to_avro(field.default, field.type, field.name)
        if document["default"] == {} and has_entries(field.type):
            document["default"] = []
        if field.nullable and field.default is not None:
            document["type"].reverse()  # Avro: a default has the type of the first branch
    if field.doc:
        document["doc"] = field.doc
    if field.stored_as is not None:
        document[STORED_AS] = field.stored_as
    return document


def _maybe_null(kind: Type, nullable: bool, path: str) -> Any:  # noqa: FBT001 - a pair of schema.Field
    document = _type_to_avro(kind, path)
    return ["null", document] if nullable else document


def has_entries(kind: Type) -> bool:
    """Return whether a type is a map that Avro holds as a list of entries: its own have texts as keys."""
    return isinstance(kind, MapOf) and kind.key != TEXT


def _type_to_avro(kind: Type, path: str) -> Any:
    match kind:
        case Primitive(symbols=symbols) if symbols:
            return {"type": "enum", "name": avro_name(path), "symbols": list(symbols)}
        case Primitive(size=int(size)):
            return {"type": "fixed", "name": avro_name(path), "size": size}
        case Primitive(bits=int(bits)):
            return {"type": "int", _BITS: bits}
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
        case MapOf(value=value, value_nullable=nullable, key=key):
            values = _maybe_null(value, nullable, f"{path}_value")
            if not has_entries(kind):
                return {"type": "map", "values": values}
            entry = [
                {"name": "key", "type": _type_to_avro(key, f"{path}_key")},
                {"name": "value", "type": values},
            ]
            items = {"type": "record", "name": avro_name(f"{path}_entry"), "fields": entry}
            return {"type": "array", "logicalType": "map", "items": items}
        case Struct(fields=fields):
            return {
                "type": "record",
                "name": avro_name(path),
                "fields": [_field_to_avro(f, path) for f in fields],
            }
