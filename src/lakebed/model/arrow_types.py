"""Schemas from and to Arrow."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types as pat

from lakebed.errors import SchemaMismatchError
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

COMMENT = b"comment"  # key of a field's metadata, as deltalake and others have it

FIELD_ID = b"PARQUET:field_id"  # key of a field's metadata, which Arrow writes to the file's schema

_TO_ARROW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.LONG: pa.int64(),
    Kind.UNSIGNED_LONG: pa.uint64(),
    Kind.FLOAT: pa.float32(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BYTES: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.TIMESTAMP_NTZ: pa.timestamp("us"),
}

_NARROW = {8: pa.int8(), 16: pa.int16()}

_FROM_ARROW = (
    (pat.is_boolean, Kind.BOOLEAN),
    (pat.is_uint64, Kind.UNSIGNED_LONG),
    (lambda t: pat.is_int64(t) or pat.is_uint32(t), Kind.LONG),
    (lambda t: pat.is_int32(t) or pat.is_uint16(t), Kind.INT),
    (pat.is_float64, Kind.DOUBLE),
    (pat.is_floating, Kind.FLOAT),
    (lambda t: pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t), Kind.STRING),
    (
        lambda t: (
            pat.is_binary(t)
            or pat.is_large_binary(t)
            or pat.is_binary_view(t)
            or pat.is_fixed_size_binary(t)
        ),
        Kind.BYTES,
    ),
    (pat.is_date, Kind.DATE),
    (lambda t: pat.is_timestamp(t) and t.tz is not None, Kind.TIMESTAMP),
    (pat.is_timestamp, Kind.TIMESTAMP_NTZ),
)


def schema_from_arrow(schema: pa.Schema, *, strict_names: bool = True) -> Schema:
    """Read a schema from Arrow.

    Unsigned and half types become the next wider type, as in Spark; dictionaries become their value
    type. The value of `comment` in the metadata of a field becomes its comment.

    Raises:
        SchemaMismatchError: A type is not supported or nested too deep, or a column has the null
            type.
        InvalidNameError: A field name is not legal and `strict_names` is set.
    """
    try:
        return Schema(fields=_fields(schema, "", strict_names))
    except RecursionError:
        raise SchemaMismatchError(
            "Types are nested hundreds of levels deep.",
            hint="Flatten the schema, or store the inner part as a string.",
        ) from None


def schema_of_rows(schema: pa.Schema) -> Schema:
    """Return the schema of a dataset that takes rows of an Arrow schema, in any layout.

    Raises:
        SchemaMismatchError: See `schema_from_arrow`.
        InvalidNameError: A field name is not legal.
    """
    return schema_from_arrow(plain_schema(schema))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the plain types of its fields; see `plain_type`."""
    try:
        plain = [field.with_type(plain_type(field.type)) for field in schema]
    except RecursionError:
        return schema  # whose depth is refused
    return pa.schema(plain, schema.metadata)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has in a layout that Arrow's kernels and Parquet support.

    `lakebed.arrow.entities.to_plain` converts the values.

    >>> plain_type(pa.run_end_encoded(pa.int32(), pa.string_view()))
    DataType(string)
    """
    if isinstance(kind, pa.BaseExtensionType):
        return _STORED_EXTENSIONS.get(str(kind.extension_name), kind)
    if pat.is_string_view(kind):
        return pa.string()
    if pat.is_binary_view(kind):
        return pa.binary()
    if pat.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pat.is_dictionary(kind):
        inner = plain_type(kind.value_type)
        return kind if inner == kind.value_type else inner
    if pat.is_struct(kind):
        parts = [field.with_type(plain_type(field.type)) for field in kind]
        return pa.struct(parts)
    if pat.is_map(kind):
        item = kind.item_field.with_type(plain_type(kind.item_type))
        return pa.map_(plain_type(kind.key_type), item)
    if not (pat.is_nested(kind) and hasattr(kind, "value_field")):
        return kind
    element = kind.value_field.with_type(plain_type(kind.value_type))
    if pat.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return pa.list_(element) if pat.is_list(kind) else pa.large_list(element)


# The values of these are texts and booleans, stored in another form.
_STORED_EXTENSIONS = {
    "arrow.json": pa.string(),
    "arrow.uuid": pa.string(),
    "arrow.bool8": pa.bool_(),
}


def without_uuids(kind: pa.DataType) -> pa.DataType:
    """Return a type in which UUIDs are their bytes, as most readers of Parquet have them."""
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name == "arrow.uuid":
        return kind.storage_type
    if pat.is_struct(kind):
        return pa.struct([field.with_type(without_uuids(field.type)) for field in kind])
    if pat.is_map(kind):
        item = kind.item_field.with_type(without_uuids(kind.item_type))
        return pa.map_(without_uuids(kind.key_type), item)
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(without_uuids(kind.value_type)))
    return kind


def _fields(
    parent: pa.Schema | pa.StructType,
    place: str,
    strict_names: bool,  # noqa: FBT001 - passed down unchanged
) -> tuple[Field, ...]:
    return tuple(_field(field, place, strict_names) for field in parent)


def _field(field: pa.Field, place: str, strict_names: bool) -> Field:  # noqa: FBT001 - passed down unchanged
    if strict_names:
        check_field_name(field.name)
    here = f"{place}.{field.name}" if place else field.name
    comment = (field.metadata or {}).get(COMMENT, b"")
    return Field(
        name=field.name,
        type=type_from_arrow(field.type, place=here, strict_names=strict_names),
        nullable=field.nullable,
        doc=comment.decode(errors="replace"),
    )


def type_from_arrow(kind: pa.DataType, *, place: str = "", strict_names: bool = True) -> Type:
    """Read one type from Arrow; `place` names it in errors.

    Raises:
        SchemaMismatchError: The type is not supported.
    """
    if pat.is_dictionary(kind):
        return type_from_arrow(kind.value_type, place=place, strict_names=strict_names)
    if pat.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return Decimal(kind.precision, kind.scale)
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        element = type_from_arrow(kind.value_type, place=f"{place}[]", strict_names=strict_names)
        return ListOf(element, kind.value_field.nullable)
    if pat.is_map(kind):
        inner = type_from_arrow(kind.key_type, place=f"{place}{{key}}", strict_names=strict_names)
        key = check_map_key(inner, place)
        value = type_from_arrow(kind.item_type, place=f"{place}{{}}", strict_names=strict_names)
        return MapOf(value, kind.item_field.nullable, key)
    if pat.is_struct(kind):
        return Struct(_fields(kind, place, strict_names))
    if pat.is_int8(kind):
        return TINYINT
    if pat.is_int16(kind) or pat.is_uint8(kind):
        return SMALLINT
    for matches, primitive in _FROM_ARROW:
        if matches(kind):
            return Primitive(primitive)
    if pat.is_null(kind):
        raise SchemaMismatchError(
            f"Column {place!r} has the null type: all its values are null.",
            hint="Cast it to the type that it should have.",
        )
    raise SchemaMismatchError(
        f"Unsupported Arrow type {kind} of column {place!r}.", hint=remedy_for(_family_of(kind))
    )


def _family_of(kind: pa.DataType) -> str:
    if pat.is_time(kind):
        return "time"
    if pat.is_duration(kind) or pat.is_interval(kind):
        return "duration"
    return ""


def schema_to_arrow(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of the entities of a dataset."""
    return pa.schema([field_to_arrow(f) for f in schema.fields])


def field_to_arrow(field: Field) -> pa.Field:
    """Return one field as an Arrow field, without its comment, which is not part of the data."""
    return pa.field(field.name, type_to_arrow(field.type), nullable=field.nullable)


def commented(field: Field) -> pa.Field:
    """Return one field as Arrow, with its comment in the metadata."""
    metadata = {COMMENT: field.doc.encode(errors="replace")} if field.doc else None
    return field_to_arrow(field).with_metadata(metadata)


def type_to_arrow(kind: Type) -> pa.DataType:
    """Return one type as an Arrow type; timestamps are in microseconds."""
    match kind:
        case Primitive(kind=primitive, bits=bits):
            return _NARROW[bits] if bits else _TO_ARROW[primitive]
        case Decimal(precision=precision, scale=scale):
            return pa.decimal128(precision, scale)
        case ListOf(element=element, element_nullable=nullable):
            return pa.list_(pa.field("element", type_to_arrow(element), nullable=nullable))
        case MapOf(value=value, value_nullable=nullable, key=key):
            item = pa.field("value", type_to_arrow(value), nullable=nullable)
            return pa.map_(type_to_arrow(key), item)
        case Struct(fields=fields):
            return pa.struct([field_to_arrow(f) for f in fields])


def with_field_ids(schema: pa.Schema, ids: Mapping[str, int]) -> pa.Schema:
    """Return a schema whose fields, and their parts, have ids in Parquet files.

    Args:
        schema: Schema of a file.
        ids: Ids by path, as of `lakebed.model.field_ids.FieldIds`.
    """
    return pa.schema([_with_id(field, field.name, ids) for field in schema])


def _with_id(field: pa.Field, path: str, ids: Mapping[str, int]) -> pa.Field:
    kind = _with_ids_inside(field.type, path, ids)
    return field.with_type(kind).with_metadata({FIELD_ID: str(ids[path])})


def _with_ids_inside(kind: pa.DataType, path: str, ids: Mapping[str, int]) -> pa.DataType:
    if pat.is_struct(kind):
        return pa.struct([_with_id(field, f"{path}.{field.name}", ids) for field in kind])
    if pat.is_list(kind):
        return pa.list_(_with_id(kind.value_field, f"{path}[]", ids))
    if pat.is_map(kind):
        return pa.map_(
            _with_id(kind.key_field, f"{path}{{key}}", ids),
            _with_id(kind.item_field, f"{path}{{}}", ids),
        )
    return kind


def has_field_ids(schema: pa.Schema) -> bool:
    """Return whether the first field of a schema has an id; either all of a file have one, or none."""
    return FIELD_ID in (schema.field(0).metadata or {})


def field_ids_in(schema: pa.Schema) -> dict[str, int | None]:
    """Return the ids of the fields of a file and of their parts, by path; None for a field without."""
    ids: dict[str, int | None] = {}
    for field in schema:
        _collect_ids(field, field.name, ids)
    return ids


def _collect_ids(field: pa.Field, path: str, ids: dict[str, int | None]) -> None:
    text = (field.metadata or {}).get(FIELD_ID, b"").decode(errors="replace")
    # Writers that have no ids may store 0 or -1.
    ids[path] = int(text) if text.isdecimal() else None
    kind = field.type
    if pat.is_struct(kind):
        for inner in kind:
            _collect_ids(inner, f"{path}.{inner.name}", ids)
    elif pat.is_map(kind):
        _collect_ids(kind.key_field, f"{path}{{key}}", ids)
        _collect_ids(kind.item_field, f"{path}{{}}", ids)
    elif pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        _collect_ids(kind.value_field, f"{path}[]", ids)
