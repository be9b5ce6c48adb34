"""Added and removed fields of a schema: how they are named and typed by a user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import type_from_arrow
from lakebed.model.avro import schema_from_avro, schema_to_avro
from lakebed.model.names import nearest
from lakebed.model.schema import (
    SMALLINT,
    TINYINT,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    dotted_types,
)

_DOCUMENTED = (
    "boolean, tinyint, smallint, int, long, float, double, string, bytes, date, timestamp, "
    "timestamp_ntz"
)
_BY_NAME = {
    str(kind): kind
    for kind in (TINYINT, SMALLINT, *map(Primitive, Kind))
    if kind.kind is not Kind.UNSIGNED_LONG
}


def with_added(schema: Schema, field: Field) -> Schema:
    """Return a schema with another field at its end.

    Raises:
        SchemaMismatchError: There is such a field, or its default does not fit its type.
        InvalidInputError: The name has a dot: fields are added to the top level only.
        InvalidNameError: The name is not legal.
    """
    if field.name in schema:
        raise SchemaMismatchError(
            f"Field {field.name!r} cannot be added: the dataset has it, of type "
            f"{schema.get(field.name).type}.",
            hint="Write it as it is, or choose another name.",
        )
    if "." in field.name:
        raise InvalidInputError(
            f"Field {field.name!r} cannot be added: only top-level fields can.",
            hint="For a field of a record, evolve the dataset with the complete schema.",
        )
    # The form in which it is stored is read as strictly as the schema of any user.
    (checked,) = schema_from_avro(schema_to_avro(Schema(fields=(field,)))).fields
    return Schema(fields=(*schema.fields, checked), name=schema.name)


def with_type(schema: Schema, name: str, kind: Type) -> Schema:
    """Return a schema with another type of a top-level field.

    Raises:
        SchemaMismatchError: There is no such field.
        InvalidInputError: The field lies in a record.
    """
    if name not in schema and name in dotted_types(schema):
        raise InvalidInputError(
            f"{name!r} lies in a record, and only the types of top-level fields can change so.",
            hint="Evolve the dataset with the complete schema.",
        )
    schema.get(name)
    fields = tuple(replace(field, type=kind) if field.name == name else field for field in schema)
    return replace(schema, fields=fields)


def without(schema: Schema, name: str) -> Schema:
    """Return a schema without a top-level field.

    Raises:
        SchemaMismatchError: There is no such field, or no other one.
        InvalidInputError: The field lies in a record.
    """
    if name not in schema and name in dotted_types(schema):
        raise InvalidInputError(
            f"{name!r} lies in a record, and only top-level fields can be dropped so.",
            hint="Evolve the dataset with the complete schema, with a base, as base= or --base.",
        )
    schema.get(name)
    kept = tuple(field for field in schema if field.name != name)
    if not kept:
        raise SchemaMismatchError(
            f"Field {name!r} is the only one, and cannot be dropped.", hint="Add another one first."
        )
    return Schema(fields=kept, name=schema.name)


def read_type(source: object) -> Type:
    """Return a type in one of the forms that `DatasetDescriptor.add_field` takes.

    Raises:
        SchemaMismatchError: The form is unknown.

    >>> str(read_type("timestamp")), str(read_type("decimal(10, 2)"))
    ('timestamp', 'decimal(10, 2)')
    >>> str(read_type('{"type": "array", "items": "string"}')), str(read_type(pa.int16()))
    ('list<string>', 'smallint')
    """
    if isinstance(source, Primitive | Decimal | ListOf | MapOf | Struct):
        return source
    if isinstance(source, pa.DataType):
        return type_from_arrow(source)
    if isinstance(source, Mapping):
        return _from_avro(source)
    if not isinstance(source, str):
        raise SchemaMismatchError(
            f"{source!r} is not a type.",
            hint=f"Give one of {_DOCUMENTED}, decimal(10, 2), a type of pyarrow or one of Avro.",
        )
    text = source.strip()
    if text in _BY_NAME:
        return _BY_NAME[text]
    word, _, rest = text.partition("(")
    numbers = [number.strip() for number in rest.removesuffix(")").split(",")]
    if word == "decimal" and rest.endswith(")") and all(map(str.isdecimal, numbers)):
        if len(numbers) == 2:
            return Decimal(precision=int(numbers[0]), scale=int(numbers[1]))
    elif text.startswith("{"):
        try:
            return _from_avro(json.loads(text))
        except (ValueError, RecursionError) as exc:
            raise SchemaMismatchError(
                f"The type is not JSON: {text[:80]!r}.", hint=str(exc)
            ) from exc
    raise SchemaMismatchError(
        f"Unknown type {source[:80]!r}.",
        hint=f"{nearest(text, _BY_NAME)} Types are {_DOCUMENTED}, decimal(10, 2), or a type of Avro "
        "as JSON.".strip(),
    )


def _from_avro(document: object) -> Type:
    record = {"type": "record", "name": "entity", "fields": [{"name": "field", "type": document}]}
    return schema_from_avro(record).fields[0].type


def read_default(text: str, kind: Type) -> object:
    """Return the default that a text of the command line means for a type.

    Raises:
        InvalidInputError: It is not a value of the type, or such a type takes no text.
    """
    try:
        match kind:
            case Primitive(kind=Kind.STRING):
                return text
            case Primitive(kind=Kind.INT | Kind.LONG):
                return int(text)
            case Primitive(kind=Kind.FLOAT | Kind.DOUBLE):
                return float(text)
            case Primitive(kind=Kind.BOOLEAN) if text in ("true", "false"):
                return text == "true"
    except ValueError:
        pass
    raise InvalidInputError(
        f"{text!r} cannot be the default of a field of type {kind}.",
        hint="Give a text, a number, or true or false, as the type asks for; for other types, evolve "
        "in Python, or leave the default out.",
    )
