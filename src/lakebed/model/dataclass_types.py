"""Schemas from classes that declare their fields, and instances of them from rows."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable, Mapping
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


def declared_fields(cls: object) -> tuple[str, ...] | None:
    """Return the names of the fields that a class declares; None if it declares none.

    Dataclasses, classes of attrs, models of pydantic, structs of msgspec and named tuples do.
    """
    if not isinstance(cls, type):
        return None
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if (attributes := getattr(cls, "__attrs_attrs__", None)) is not None:
        return tuple(attribute.name for attribute in attributes)
    if isinstance(fields := getattr(cls, "model_fields", None), Mapping):
        return tuple(fields)
    names = getattr(cls, "__struct_fields__", None) or getattr(cls, "_fields", None)
    return tuple(names) if isinstance(names, tuple) else None


def declares_types(cls: type) -> bool:
    """Return whether a class declares fields, and a type for each."""
    names = declared_fields(cls)
    return names is not None and all(
        any(name in getattr(base, "__annotations__", ()) for base in cls.__mro__) for name in names
    )


def schema_from_dataclass(cls: type) -> Schema:
    """Read a schema from a dataclass, or another class that declares fields with types.

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
            hint="Define the class at the top of a module, where its names are known.",
        ) from exc


def _fields(cls: type, place: str, outer: tuple[type, ...]) -> tuple[Field, ...]:
    if cls in outer:
        raise SchemaMismatchError(
            f"Class {cls.__name__} at {place!r} contains itself.",
            hint="Recursive records have no columns; flatten it or store it as a string.",
        )
    hints = _hints(cls)
    fields = []
    for name in declared_fields(cls) or ():
        here = f"{place}.{check_field_name(name)}" if place else check_field_name(name)
        if name not in hints:
            raise SchemaMismatchError(
                f"Field {here!r} of {cls.__name__} has no type.",
                hint="Annotate it, as in `delay: int | None`.",
            )
        kind, nullable = _nullable(hints[name], here, (*outer, cls))
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
    if isinstance(hint, type) and declared_fields(hint) is not None:
        return Struct(_fields(hint, place, outer))
    if element := _element_of(hint):
        return ListOf(*_nullable(element[0], f"{place}[]", outer))
    if parts := _map_parts_of(hint):
        key, value = parts
        return MapOf(*_nullable(value, f"{place}{{}}", outer), Primitive(_FROM_PYTHON[key]))
    if hint is decimal.Decimal:
        raise SchemaMismatchError(
            f"Field {place!r} is a Decimal without precision and scale.",
            hint="Give the schema as Avro or Arrow, which name both.",
        )
    raise SchemaMismatchError(
        f"Unsupported annotation {hint!r} of field {place!r}.",
        hint="Use bool, int, float, str, bytes, date, datetime, list[…], dict[…, …], "
        "another class with fields, or one of these with '| None'.",
    )


def _element_of(hint: object) -> tuple[object, ...]:
    """Return the annotation of a list's elements, or an empty tuple."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    is_list = origin is list or (origin is tuple and arguments[1:] == (Ellipsis,))
    return arguments[:1] if is_list else ()


def _map_parts_of(hint: object) -> tuple[object, ...]:
    """Return the annotations of a map's keys and values, or an empty tuple."""
    arguments = typing.get_args(hint)
    is_map = typing.get_origin(hint) is dict and arguments[0] in _FROM_PYTHON
    return arguments if is_map else ()


def builder(cls: type) -> Callable[[dict[str, Any]], Any]:
    """Return a function that builds an instance of a class from a row, also nested ones."""
    hints = _hints(cls)
    converters = {
        name: (argument, _converter(hints[name]))
        for name, argument in constructor_arguments(cls).items()
    }

    def build(row: dict[str, Any]) -> Any:
        return cls(
            **{argument: convert(row[name]) for name, (argument, convert) in converters.items()}
        )

    return build


def constructor_arguments(cls: type) -> dict[str, str]:
    """Return the argument of the constructor for each field that it takes."""
    if dataclasses.is_dataclass(cls):
        return {field.name: field.name for field in dataclasses.fields(cls) if field.init}
    if (attributes := getattr(cls, "__attrs_attrs__", None)) is not None:
        return {field.name: field.alias for field in attributes if field.init}
    if isinstance(fields := getattr(cls, "model_fields", None), Mapping):
        return {name: field.alias or name for name, field in fields.items()}
    return {name: name for name in declared_fields(cls) or ()}


def _converter(hint: object) -> Callable[[Any], Any]:
    hint = _without_none(hint)
    convert = _converter_of_values(hint)
    return lambda value: None if value is None else convert(value)


def _converter_of_values(hint: object) -> Callable[[Any], Any]:
    if isinstance(hint, type) and declared_fields(hint) is not None:
        return builder(hint)
    if element := _element_of(hint):
        convert = _converter(element[0])
        collect = tuple if typing.get_origin(hint) is tuple else list
        return lambda items: collect(convert(item) for item in items)
    if parts := _map_parts_of(hint):
        convert = _converter(parts[1])
        return lambda items: {key: convert(item) for key, item in items.items()}
    return lambda value: value
