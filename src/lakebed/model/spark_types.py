"""Schemas from and to Spark's own JSON form, which does not need pyspark."""

from __future__ import annotations

import re
import reprlib
import warnings
from collections.abc import Collection
from typing import Any

from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.names import check_field_name
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
    check_map_key,
    remedy_for,
)

_NARROW = {"byte": TINYINT, "short": SMALLINT}
_FROM_SPARK = {
    "boolean": Kind.BOOLEAN,
    "integer": Kind.INT,
    "long": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "string": Kind.STRING,
    "binary": Kind.BYTES,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP_NTZ,
}
_TO_SPARK = {
    **{kind: name for name, kind in _FROM_SPARK.items()},
    # Spark reads Parquet's unsigned 64 bits as this.
    Kind.UNSIGNED_LONG: "decimal(20,0)",
}
_NULLABLE = frozenset({"nullable", "containsNull", "valueContainsNull"})
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_CHAR = re.compile(r"(?:var)?char\(\d+\)")
_COLLATED = re.compile(r"string collate (\w+)")
_PLAIN_COLLATION = "UTF8_BINARY"


def spark_frame_of(data: Any, levels: Collection[str] | None = None) -> Any:
    """Return a frame of pandas-on-Spark as a frame of Spark, and every other object unchanged.

    Args:
        data: Rows.
        levels: Names of levels of its index that are columns as well; None for all that have a name.
    """
    if not type(data).__module__.startswith("pyspark.pandas."):
        return data
    if type(data).__name__ != "DataFrame":
        raise InvalidInputError(
            f"A {type(data).__name__} of pandas-on-Spark is not rows.",
            hint="Give a frame: data.to_frame().",
        )
    known = set(data.columns)
    chosen = [
        name
        for name in data.index.names
        if name is not None and name not in known and (levels is None or name in levels)
    ]
    rows = data.reset_index(level=chosen) if chosen else data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the index, which only numbers the rows, is left out
        return rows.to_spark()


def schema_from_spark(document: object, declared: Schema | None = None) -> Schema:
    """Read a schema from the result of `StructType.jsonValue()`.

    Args:
        document: The schema as Spark has it.
        declared: Schema of the dataset that takes the rows: a part of type `void`, which is always
            null, has the type of its field. Without one, `void` is not supported.

    Raises:
        SchemaMismatchError: A type is not supported; the message names the column.
        InvalidNameError: A field name is not legal.
    """
    match document:
        case {"type": "struct", "fields": [*fields]}:
            known = () if declared is None else declared.fields
            return Schema(fields=tuple(_field(field, "", known) for field in fields))
    raise SchemaMismatchError(
        f"Not a Spark struct type: {reprlib.repr(document)}.", hint="Give a StructType."
    )


def as_nullable(document: Any) -> Any:
    """Return the JSON form of a Spark type in which every part may be null.

    >>> as_nullable({"name": "id", "type": "long", "nullable": False})
    {'name': 'id', 'type': 'long', 'nullable': True}
    """
    if isinstance(document, list):
        return [as_nullable(part) for part in document]
    if not isinstance(document, dict):
        return document
    return {
        name: name in _NULLABLE or (value if name == "metadata" else as_nullable(value))
        for name, value in document.items()
    }


def _field(document: object, place: str, known: tuple[Field, ...]) -> Field:
    match document:
        case {"name": str(name), "type": kind, "nullable": bool(nullable)}:
            here = f"{place}.{check_field_name(name)}" if place else check_field_name(name)
            _check_collations(document, here)
            declared = next((field.type for field in known if field.name == name), None)
            return Field(
                name=name,
                type=_type(kind, here, declared),
                nullable=nullable,
                doc=_comment(document),
            )
    raise SchemaMismatchError(
        f"A field of {place or 'the schema'} is not valid: {reprlib.repr(document)}.",
        hint="Spark writes a field with its name, type and nullable.",
    )


def _check_collations(document: Any, place: str) -> None:
    """Check that no text of a field has a collation, which Spark keeps in the field's metadata.

    Raises:
        SchemaMismatchError: One has: conditions and keys would find other rows than in Spark.
    """
    match document:
        case {"metadata": {"__COLLATIONS": {**collations}}}:
            for collation in collations.values():
                name = str(collation).rpartition(".")[2]
                if name != _PLAIN_COLLATION:
                    raise _collation_error(name, place)


def _collation_error(name: str, place: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {place!r} has the collation {name}, which no dataset keeps: texts would be equal "
        "and in order by their bytes.",
        hint=f"Give it that of bytes in your query: {place.split('.')[0]} COLLATE UTF8_BINARY, or a "
        "CAST to the same type with STRING for a list, a map or a record.",
    )


def _comment(document: Any) -> str:
    match document:
        case {"metadata": {"comment": str(comment)}}:
            return comment
    return ""


def _type(document: object, place: str, declared: Type | None) -> Type:
    match document:
        case "void" if declared is not None:
            return declared
        case str() if document in _NARROW:
            return _NARROW[document]
        case str() if document in _FROM_SPARK:
            return Primitive(_FROM_SPARK[document])
        case str() if match := _DECIMAL.fullmatch(document):
            return Decimal(int(match[1]), int(match[2]))
        case str() if _CHAR.fullmatch(document):
            return Primitive(Kind.STRING)
        case str() if match := _COLLATED.fullmatch(document):
            if match[1] != _PLAIN_COLLATION:
                raise _collation_error(match[1], place)
            return Primitive(Kind.STRING)
        case {"type": "array", "elementType": element, "containsNull": bool(nullable)}:
            inner = declared.element if isinstance(declared, ListOf) else None
            return ListOf(_type(element, f"{place}[]", inner), nullable)
        case {
            "type": "map",
            "keyType": key,
            "valueType": value,
            "valueContainsNull": bool(nullable),
        }:
            known_key, inner = (
                (declared.key, declared.value) if isinstance(declared, MapOf) else (None, None)
            )
            keys = check_map_key(_type(key, f"{place}{{key}}", known_key), place)
            return MapOf(_type(value, f"{place}{{}}", inner), nullable, keys)
        case {"type": "struct", "fields": [*fields]}:
            known = declared.fields if isinstance(declared, Struct) else ()
            return Struct(tuple(_field(field, place, known) for field in fields))
    raise SchemaMismatchError(
        f"Unsupported Spark type {reprlib.repr(document)} of column {place!r}.",
        hint=_remedy_of(document),
    )


def _remedy_of(document: object) -> str:
    match document:
        case str() if document.startswith("interval"):
            return remedy_for("duration")
        case str() if document.startswith("time("):
            return remedy_for("time")
    return remedy_for("")


def has_void(document: Any) -> bool:
    """Return whether a type of Spark is or holds `void`, in the form of `jsonValue()`."""
    match document:
        case "void":
            return True
        case {"type": "struct", "fields": [*fields]}:
            return any(has_void(field["type"]) for field in fields)
        case {"keyType": key, "valueType": inner}:
            return has_void(key) or has_void(inner)
        case {"elementType": inner}:
            return has_void(inner)
    return False


def schema_to_spark(schema: Schema) -> dict[str, Any]:
    """Return `schema` in the form that `StructType.fromJson` reads."""
    return {
        "type": "struct",
        "fields": [
            # Not the comments of inner fields: Spark would take the types for different ones.
            {**_field_to_spark(f), **({"metadata": {"comment": f.doc}} if f.doc else {})}
            for f in schema.fields
        ],
    }


def _field_to_spark(field: Field) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type_to_spark(field.type),
        "nullable": field.nullable,
        "metadata": {},
    }


def _type_to_spark(kind: Type) -> Any:
    match kind:
        case Primitive(bits=int()):
            return "byte" if kind == TINYINT else "short"
        case Primitive(kind=primitive):
            return _TO_SPARK[primitive]
        case Decimal(precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
        case ListOf(element=element, element_nullable=nullable):
            return {
                "type": "array",
                "elementType": _type_to_spark(element),
                "containsNull": nullable,
            }
        case MapOf(value=value, value_nullable=nullable, key=key):
            return {
                "type": "map",
                "keyType": _type_to_spark(key),
                "valueType": _type_to_spark(value),
                "valueContainsNull": nullable,
            }
        case Struct(fields=fields):
            return {"type": "struct", "fields": [_field_to_spark(f) for f in fields]}
