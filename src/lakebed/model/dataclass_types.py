"""Schemas from dataclasses, and entities from dataclass instances."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing

from lakebed.errors import SchemaMismatchError
from lakebed.model.names import check_field_name
from lakebed.model.schema import Field, Kind, ListOf, MapOf, Primitive, Schema, Struct, Type

_FROM_PYTHON: dict[object, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.LONG,
    float: Kind.DOUBLE,
    str: Kind.STRING,
    bytes: Kind.BYTES,
    datetime.date: Kind.DATE,
    datetime.datetime: Kind.TIMESTAMP,
}


def schema_from_dataclass(cls: type) -> Schema:
    """Read a schema from a dataclass.

    `int` is 64 bits, `datetime` is an instant. `X | None` is nullable, every other field is not.

    Raises:
        SchemaMismatchError: An annotation has no type here; the message names the field.
    """
    return Schema(fields=_fields(cls, ""), name=cls.__name__)


def _fields(cls: type, place: str) -> tuple[Field, ...]:
    hints = typing.get_type_hints(cls)
    found = []
    for one in dataclasses.fields(cls):
        name = check_field_name(one.name)
        here = f"{place}.{name}" if place else name
        kind, nullable = _nullable(hints[one.name], here)
        found.append(Field(name=name, type=kind, nullable=nullable))
    return tuple(found)


def _nullable(hint: object, place: str) -> tuple[Type, bool]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        others = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
        if len(others) == 1:
            return _type(others[0], place), True
    return _type(hint, place), False


def _type(hint: object, place: str) -> Type:
    if hint in _FROM_PYTHON:
        return Primitive(_FROM_PYTHON[hint])
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Struct(_fields(hint, place))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list or (origin is tuple and arguments[1:] == (Ellipsis,)):
        return ListOf(*_nullable(arguments[0], f"{place}[]"))
    if origin is dict and arguments[0] is str:
        return MapOf(*_nullable(arguments[1], f"{place}{{}}"))
    if hint is decimal.Decimal:
        raise SchemaMismatchError(
            f"Field {place!r} is a Decimal without precision and scale.",
            hint="Give the schema as Avro or Arrow, which name both.",
        )
    raise SchemaMismatchError(
        f"Unsupported annotation {hint!r} of field {place!r}.",
        hint="Use bool, int, float, str, bytes, date, datetime, list[…], dict[str, …], "
        "another dataclass, or one of these with '| None'.",
    )
