"""Schemas from dataclasses, and instances of them from rows."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable
from typing import Any

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
        SchemaMismatchError: An annotation is not supported; the message names the field.
    """
    return Schema(fields=_fields(cls, "", ()), name=cls.__name__)


def _hints(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except NameError as exc:
        raise SchemaMismatchError(
            f"An annotation of {cls.__name__} cannot be resolved: {exc}.",
            hint="Define the dataclass at the top of a module, where its names are known.",
        ) from exc


def _fields(cls: type, place: str, outer: tuple[type, ...]) -> tuple[Field, ...]:
    if cls in outer:
        raise SchemaMismatchError(
            f"Dataclass {cls.__name__} at {place!r} contains itself.",
            hint="Recursive records have no columns; flatten it or store it as a string.",
        )
    hints = _hints(cls)
    fields = []
    for field in dataclasses.fields(cls):
        name = check_field_name(field.name)
        here = f"{place}.{name}" if place else name
        kind, nullable = _nullable(hints[field.name], here, (*outer, cls))
        fields.append(Field(name=name, type=kind, nullable=nullable))
    return tuple(fields)


def _without_none(hint: object) -> object:
    """Return `X` for `X | None`, and every other annotation unchanged."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        others = [arg for arg in typing.get_args(hint) if arg is not types.NoneType]
        if len(others) == 1:
            return others[0]
    return hint


def _nullable(hint: object, place: str, outer: tuple[type, ...]) -> tuple[Type, bool]:
    inner = _without_none(hint)
    return _type(inner, place, outer), inner is not hint


def _type(hint: object, place: str, outer: tuple[type, ...]) -> Type:
    if hint in _FROM_PYTHON:
        return Primitive(_FROM_PYTHON[hint])
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return Struct(_fields(hint, place, outer))
    if element := _element_of(hint):
        return ListOf(*_nullable(element[0], f"{place}[]", outer))
    if value := _map_value_of(hint):
        return MapOf(*_nullable(value[0], f"{place}{{}}", outer))
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


def _element_of(hint: object) -> tuple[object, ...]:
    """Return the annotation of a list's elements, or an empty tuple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    is_list = origin is list or (origin is tuple and arguments[1:] == (Ellipsis,))
    return arguments[:1] if is_list else ()


def _map_value_of(hint: object) -> tuple[object, ...]:
    """Return the annotation of a map's values, or an empty tuple."""
    arguments = typing.get_args(hint)
    return arguments[1:] if typing.get_origin(hint) is dict and arguments[0] is str else ()


def builder(cls: type) -> Callable[[dict[str, Any]], Any]:
    """Return a function that builds an instance of a dataclass from a row, also nested ones."""
    hints = _hints(cls)
    converters = {
        field.name: _converter(hints[field.name]) for field in dataclasses.fields(cls) if field.init
    }

    def build(row: dict[str, Any]) -> Any:
        return cls(**{name: convert(row[name]) for name, convert in converters.items()})

    return build


def _converter(hint: object) -> Callable[[Any], Any]:
    hint = _without_none(hint)
    convert = _converter_of_values(hint)
    return lambda value: None if value is None else convert(value)


def _converter_of_values(hint: object) -> Callable[[Any], Any]:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return builder(hint)
    if element := _element_of(hint):
        convert = _converter(element[0])
        collect = tuple if typing.get_origin(hint) is tuple else list
        return lambda items: collect(convert(item) for item in items)
    if value := _map_value_of(hint):
        convert = _converter(value[0])
        return lambda items: {key: convert(item) for key, item in items.items()}
    return lambda value: value
