"""Drift of a schema: the columns and types that data has and a dataset lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.evolution import check_schema
from lakebed.model.schema import (
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
from lakebed.model.values import FLOATS

UnknownColumns = Literal["reject", "keep"]
"""Handling of columns that a dataset lacks: refuse the data, or add them as nullable fields."""
Types = Literal["strict", "widen"]
"""Handling of wider types: refuse the data, or widen the fields where every value stays itself."""

_MOST_DIGITS = 38


def check_drift(unknown: object, types: object) -> bool:
    """Check the two settings, and return whether one of them lets a schema grow.

    Raises:
        InvalidInputError: One of them is not valid.
    """
    if unknown not in ("reject", "keep"):
        raise InvalidInputError(f"unknown is {unknown!r}.", hint="Give 'reject' or 'keep'.")
    if types not in ("strict", "widen"):
        raise InvalidInputError(f"types is {types!r}.", hint="Give 'strict' or 'widen'.")
    return unknown == "keep" or types == "widen"


def grown(declared: Schema, given: Schema, unknown: UnknownColumns, types: Types) -> Schema:
    """Return a schema that takes data of another one, as far as the settings allow.

    What does not fit stays as it is declared, so that the write names it.

    Args:
        declared: The schema of the dataset.
        given: The schema of the data.
        unknown: With `keep`, columns of the data become nullable fields, also within records.
        types: With `widen`, fields get a wider type where the rules of evolution allow it.
    """
    record = Struct(fields=declared.fields)
    fields = _grown_struct(record, given.fields, unknown, types).fields
    return declared if fields == declared.fields else replace(declared, fields=fields)


def _grown_struct(
    declared: Struct, given: Sequence[Field], unknown: UnknownColumns, types: Types
) -> Struct:
    by_name = {field.name: field for field in given}
    fields = []
    for field in declared.fields:
        other = by_name.get(field.name)
        if other is not None:
            field = replace(field, type=_grown_type(field.type, other.type, unknown, types))
        fields.append(field)
    if unknown == "keep":
        known = {field.name.lower() for field in declared.fields}
        known |= {field.stored_name.lower() for field in declared.fields}  # renamed, not unknown
        fields += [
            Field(name=field.name, type=field.type, nullable=True, doc=field.doc)
            for field in given
            if field.name.lower() not in known
        ]
    return replace(declared, fields=tuple(fields))


def _grown_type(declared: Type, given: Type, unknown: UnknownColumns, types: Types) -> Type:
    if declared == given:
        return declared
    match declared, given:
        case Struct(), Struct():
            return _grown_struct(declared, given.fields, unknown, types)
        case ListOf(), ListOf():
            element = _grown_type(declared.element, given.element, unknown, types)
            return replace(declared, element=element)
        case MapOf(), MapOf():
            return replace(declared, value=_grown_type(declared.value, given.value, unknown, types))
    return (widened(declared, given) or declared) if types == "widen" else declared


def with_fields_of(declared: Type, given: Type) -> Type:
    """Return a type with the fields that records of another type have more."""
    return _grown_type(declared, given, "keep", "strict")


def widened(declared: Type, given: Type) -> Type | None:
    """Return the type that holds the values of both types; None if a field cannot become it.

    >>> str(widened(Primitive(Kind.INT), Primitive(Kind.LONG)))
    'long'
    >>> widened(Primitive(Kind.LONG), Primitive(Kind.DOUBLE)) is None
    True
    """
    wanted = given
    match declared, given:
        case Decimal(), Decimal():
            scale = max(declared.scale, given.scale)
            whole = max(declared.precision - declared.scale, given.precision - given.scale)
            if whole + scale > _MOST_DIGITS:
                return None
            wanted = Decimal(precision=whole + scale, scale=scale)
        case Primitive(kind=Kind.INT), Primitive(kind=have) if have in FLOATS:
            wanted = Primitive(Kind.DOUBLE)
    if wanted == declared or not _may_become(declared, wanted):
        return None
    return wanted


def _may_become(old: Type, new: Type) -> bool:
    before, after = (Schema(fields=(Field(name="x", type=kind),)) for kind in (old, new))
    try:
        check_schema(before, after, 1)
    except SchemaMismatchError:
        return False
    return True


def hint_for_type(place: str, given: Type, declared: Type) -> str:
    """Return advice on a column of another type: the evolution first, and never a lossy cast."""
    if place.endswith("{key}"):
        return (
            f"The keys of a map stay of type {declared}: cast them, or add a field of another name."
        )
    wanted = widened(declared, given)
    if wanted is not None and not any(sign in place for sign in ".[{"):
        return (
            f"To widen the field, for all rows: types='widen' in the write; or "
            f"evolve(lambda d: d.change_type({place!r}, '{wanted}')); on the command line: "
            f"lakebed schema change-type DATASET {place} {str(wanted)!r}."
        )
    if wanted is not None:
        return "Give types='widen' in the write: it widens the field for all rows."
    return (
        f"A field of type {declared} cannot become {given}. Write a column of the field's type, or "
        "add a field of another name; nothing is converted where a value could change."
    )
