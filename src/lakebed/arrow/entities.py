"""Entities, tables and Arrow data of other libraries as streams of record batches, and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import reprlib
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.arrow.conform import check_nulls, check_shapes, default_of, unknown_field
from lakebed.arrow.documents import compact
from lakebed.arrow.pandas_rows import column_of_type, table_of_pandas
from lakebed.arrow.reasons import VALUE_ERRORS, reason_of
from lakebed.arrow.row_sources import is_tabular, opened, read_stream, stream_of
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import (
    field_to_arrow,
    plain_type,
    schema_from_arrow,
    schema_of_rows,
    type_to_arrow,
)
from lakebed.model.dataclass_types import declares_types, schema_from_dataclass
from lakebed.model.descriptor import (
    DOCUMENT,
    UUID,
    DatasetDescriptor,
    find_schema_of_rows,
    find_schema_unread,
)
from lakebed.model.drift import with_fields_of
from lakebed.model.given_rows import (
    fields_of,
    find_arrow_schema,
    find_declared_schema,
    infer_type,
    is_pandas,
    to_python,
)
from lakebed.model.names import nearest
from lakebed.model.read_once import begin_reading, check_still_has_rows, remember_rows
from lakebed.model.schema import (
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
)
from lakebed.model.spark_types import spark_frame_of
from lakebed.model.values import check_value, integer_limits

ENTITIES_PER_BATCH = 10_000

_Fits = Callable[[Any], bool]
# A value of exactly this Python type that fits is stored as it is; others are checked closely.
_PLAIN: dict[Kind, tuple[type, _Fits]] = {
    Kind.BOOLEAN: (bool, lambda _: True),
    Kind.INT: (int, lambda value: -(2**31) <= value < 2**31),
    Kind.LONG: (int, lambda value: -(2**63) <= value < 2**63),
    Kind.DOUBLE: (float, lambda _: True),
    Kind.STRING: (str, str.isascii),
    Kind.BYTES: (bytes, lambda _: True),
    Kind.TIMESTAMP: (dt.datetime, lambda value: value.tzinfo is dt.UTC),
    Kind.TIMESTAMP_NTZ: (dt.datetime, lambda value: value.tzinfo is None),
}

# Other libraries may give all rows as one batch, and a plain column of text ends at 2 GiB.
_ROWS_AT_ONCE, _ALL_ROWS = 131_072, 2**62


def to_batches(
    data: object, descriptor: DatasetDescriptor, *, is_dry_run: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield record batches of rows in any supported form.

    Args:
        data: A pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas
            DataFrame, a LazyFrame of Polars, a table of deltalake or pyiceberg, any other object with
            `__arrow_c_stream__` or `__arrow_c_array__`, such as a frame of Polars or a relation of
            DuckDB; or an iterable of dicts, dataclass instances or other objects with fields, or of
            any of these tables and frames.
        descriptor: Descriptor of the dataset that receives the rows.
        is_dry_run: Whether the rows are not written. What gives its rows once is refused afterwards.

    Raises:
        InvalidInputError: `data` is none of these, or gives its rows once and has been read.
        SchemaMismatchError: An entity does not fit; the message names the field.
        PartitionSpecError: All entities lack the source of a partition function, which is known
            only after the last one.
    """
    if is_pandas(data):
        yield from table_of_pandas(data, descriptor.schema, to_column).to_batches()
    elif is_tabular(data):
        yield from batches_of(stream_of(opened(data)), data, is_dry_run=is_dry_run)
    else:
        items = read_items(data, is_dry_run=is_dry_run)
        yield from _from_iterable(items, descriptor, is_dry_run=is_dry_run)


def described(data: object) -> tuple[Schema, object]:
    """Return the schema of rows in any supported form, and the rows.

    The schema of entities is that of their class if it declares types, else it is inferred from the
    first of them, where every field is nullable.

    Args:
        data: As for `to_batches`, or a Spark DataFrame.

    Returns:
        The schema, and the rows to write in place of `data`, of which some may have been read.

    Raises:
        InvalidInputError: There are no rows to infer the schema from, or `data` is not rows.
        SchemaMismatchError: A field has values of several types, or of none.
    """
    data = spark_frame_of(data)
    schema = find_schema_unread(data)
    if schema is not None:
        return schema, data
    if is_tabular(data):
        data = opened(data)
        schema = find_schema_of_rows(data)
        assert schema is not None  # of opened rows
        return schema, data
    remaining = iter(read_items(data))
    first = next(remaining, _NOTHING)
    if first is _NOTHING:
        raise InvalidInputError(
            "The schema cannot be inferred: there are no rows.",
            hint="Create the dataset first, with a schema: `repository.create(name, schema)`.",
        )
    if is_tabular(first):
        schema, first = described(first)
        return schema, itertools.chain([first], remaining)
    chunk = [first, *itertools.islice(remaining, ENTITIES_PER_BATCH - 1)]
    return _schema_of_entities(chunk), itertools.chain(chunk, remaining)


def find_fields(data: object, declared: Schema) -> tuple[Schema | None, object]:
    """Return the fields that rows have, to compare them with those of a dataset, and the rows.

    Of entities such as dicts the first are examined. A field of theirs has the declared type if all
    of these values fit it.

    Args:
        data: As for `to_batches`, or a Spark DataFrame.
        declared: The schema of the dataset.

    Returns:
        The fields, None without rows; and the rows to write in place of `data`.

    Raises:
        InvalidInputError: `data` is not rows.
        SchemaMismatchError: A field that the dataset lacks has values of several types, or of none.
    """
    data = spark_frame_of(data)
    if is_tabular(data):
        if not type(data).__module__.startswith("pyspark."):
            data = opened(data)
        return _schema_beside(declared, data), data
    remaining = iter(read_items(data))
    first = next(remaining, _NOTHING)
    if first is _NOTHING:
        return None, []
    if is_tabular(first):
        schema, first = find_fields(first, declared)
        return schema, itertools.chain([first], remaining)
    chunk = [first, *itertools.islice(remaining, ENTITIES_PER_BATCH - 1)]
    rows = itertools.chain(chunk, remaining)
    if declares_types(type(first)):
        return schema_from_dataclass(type(first)), rows
    entities = [as_mapping(item) for item in chunk]
    names = list(dict.fromkeys(name for entity in entities for name in entity))
    fields = []
    for name in names:
        field = declared.find(name) if isinstance(name, str) else None
        if field is None:
            inferred = _inferred(name, [entity.get(name) for entity in entities])
            (field,) = schema_from_arrow(pa.schema([inferred])).fields
        else:
            field = dataclasses.replace(field, type=_type_of_values(field, entities))
        fields.append(field)
    return Schema(fields=tuple(fields)), rows


def _type_of_values(field: Field, entities: Sequence[Mapping[str, Any]]) -> Type:
    """Return the type of a field that its values fit: the declared one, if they fit that."""
    values = [entity.get(field.name) for entity in entities]
    try:
        inferred = schema_from_arrow(pa.schema([_inferred(field.name, values)])).fields[0].type
    except SchemaMismatchError:
        return field.type  # null alone, or the write names the value
    more = with_fields_of(field.type, inferred)
    if more != field.type:
        return more
    try:
        pa.array(values, type_to_arrow(field.type))
    except VALUE_ERRORS:
        return inferred
    return field.type


def _schema_beside(declared: Schema, data: object) -> Schema | None:
    """Return the schema of a frame or table; a column of nulls alone has the declared type."""
    is_spark = type(data).__module__.startswith("pyspark.")
    arrow = None if is_spark else find_declared_schema(data) or find_arrow_schema(data)
    if arrow is None:
        return find_schema_unread(data)
    for number, column in enumerate(arrow):
        field = declared.find(column.name) if pat.is_null(column.type) else None
        if field is not None:
            arrow = arrow.set(number, field_to_arrow(field))
    return schema_of_rows(arrow)


def table_of(data: object, *, is_dry_run: bool = False) -> pa.Table:
    """Return rows in any supported form as a table, in plain layouts.

    A column of entities has one type, and all of them have the columns that any of them has.

    Args:
        data: As for `to_batches`.
        is_dry_run: As for `to_batches`.

    Raises:
        InvalidInputError: `data` is not rows, or gives its rows once and has been read.
        SchemaMismatchError: A column has no type, or several.
    """
    if is_pandas(data):
        data = table_of_pandas(data, None, to_column)
    if is_tabular(data):
        stream = batches_of(stream_of(opened(data)), data, is_dry_run=is_dry_run)
        return _for_queries(pa.Table.from_batches(stream))
    items = list(read_items(data, is_dry_run=is_dry_run))
    if items and is_tabular(items[0]):
        tables = [table_of(item, is_dry_run=is_dry_run) for item in items]
        return pa.concat_tables(tables, promote_options="default")
    entities = [as_mapping(item) for item in items]
    names = dict.fromkeys(name for entity in entities for name in entity)
    columns = {}
    for name in names:
        values = [entity.get(name) for entity in entities]
        inferred = _inferred(name, values)
        columns[inferred.name] = column_of_type(inferred.name, values, inferred.type, to_column)
    return pa.table(columns)


def _for_queries(rows: pa.Table) -> pa.Table:
    """Return a table without the types that DuckDB lacks, where others hold the same values."""
    for number, field in enumerate(rows.schema):
        kind = field.type
        if pat.is_float16(kind):
            kind = pa.float32()
        elif pat.is_decimal256(kind) and kind.precision <= 38:
            kind = pa.decimal128(kind.precision, kind.scale)
        if kind != field.type:
            rows = rows.set_column(number, field.with_type(kind), rows.column(number).cast(kind))
    return rows


_NOTHING = object()


def _schema_of_entities(items: Sequence[object]) -> Schema:
    kind = type(items[0])
    if declares_types(kind):
        return schema_from_dataclass(kind)
    entities = [as_mapping(item) for item in items]
    names = list(dict.fromkeys(name for entity in entities for name in entity))
    fields = [_inferred(name, [entity.get(name) for entity in entities]) for name in names]
    for field in fields:
        if pat.is_null(field.type):
            raise SchemaMismatchError(
                f"The type of field {field.name!r} cannot be inferred: its first "
                f"{len(entities):,} values are null.",
                hint="Create the dataset first, with a schema: `repository.create(name, schema)`.",
            )
    return schema_from_arrow(pa.schema(fields))


def _inferred(name: object, values: Sequence[object]) -> pa.Field:
    if not isinstance(name, str):
        raise SchemaMismatchError(
            f"The rows have a field {name!r}, whose name is not a text.", hint="Rename it."
        )
    try:
        return pa.field(name, infer_type(values))
    except VALUE_ERRORS as exc:
        raise SchemaMismatchError(
            f"The type of field {name!r} cannot be inferred: {reason_of(exc)}.",
            hint="Give all its values one type, or create the dataset first, with a schema.",
        ) from exc


def read_items(data: object, *, is_dry_run: bool = False) -> Iterator[object]:
    """Yield the entities, tables or frames of an iterable.

    Raises:
        InvalidInputError: It is not an iterable of rows, or gives its items once and has been read.
    """
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        raise _not_rows(data)
    begin_reading(data)
    is_empty = True
    for item in data:
        if is_empty and is_dry_run:
            remember_rows(data)
        is_empty = False
        yield item
    if is_empty:
        check_still_has_rows(data)


def _not_rows(data: object) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot write {type(data).__name__}.",
        hint="Give a frame of Spark, pandas or Polars, a pyarrow Table, RecordBatch, "
        "RecordBatchReader or Dataset, a relation of DuckDB, a table of deltalake or pyiceberg, "
        "another object with __arrow_c_stream__, or an iterable of dicts, dataclass instances or "
        "other objects.",
    )


def _from_iterable(
    remaining: Iterator[object], descriptor: DatasetDescriptor, *, is_dry_run: bool
) -> Iterator[pa.RecordBatch]:
    names: set[str] | None = None
    for first in remaining:
        if is_tabular(first):
            yield from to_batches(first, descriptor, is_dry_run=is_dry_run)
        else:
            chunk = [first, *itertools.islice(remaining, ENTITIES_PER_BATCH - 1)]
            entities = [as_mapping(item) for item in chunk]
            names = (names or set()).union(*entities)
            for alike in _alike(entities, descriptor):
                yield entities_to_batch(alike, descriptor)
    if names is not None:
        check_sources(names, descriptor)


def _alike(
    entities: list[Mapping[str, Any]], descriptor: DatasetDescriptor
) -> Iterator[list[Mapping[str, Any]]]:
    """Yield entities that can form one batch, in order.

    A column in a batch of submissions is compared with the documents. So an entity that does not
    give the field must not get null there.
    """
    if descriptor.format != "submissions":
        yield entities
        return
    for _, alike in itertools.groupby(entities, key=frozenset):
        yield list(alike)


def as_mapping(entity: object) -> Mapping[str, Any]:
    """Return an entity as a mapping.

    Raises:
        InvalidInputError: It is neither a mapping nor an object with fields.
    """
    fields = fields_of(entity)
    if fields is None:
        hint = "Give dicts, dataclass instances, or other objects with public attributes."
        if isinstance(entity, str):
            hint += (
                " If the text is the name of a column, the data is a frame of another library: "
                "convert it, such as by compute(), to_arrow() or to_pandas()."
            )
        raise InvalidInputError(
            f"Cannot read an entity of type {type(entity).__name__}: {str(entity)[:80]!r}.",
            hint=hint,
        )
    return fields


def check_sources(names: Collection[str], descriptor: DatasetDescriptor) -> None:
    """Check the names of all fields that some entity has.

    A source may be missing everywhere if its partition function has a value for null.

    Raises:
        SchemaMismatchError: See `check_shapes`.
        PartitionSpecError: All entities lack the source of a partition function.
    """
    needing = [function for function in descriptor.partition_by if function.null_value is None]
    check_shapes([tuple(names)], descriptor, needing)


def entities_to_batch(
    entities: Sequence[Mapping[str, Any]], descriptor: DatasetDescriptor
) -> pa.RecordBatch:
    """Return entities as one record batch of the dataset's schema.

    A nullable field that an entity lacks is null, also the source of a partition function: other
    entities of the same data may have it, see `check_sources`. The document of a submission may
    be a dict.

    Raises:
        SchemaMismatchError: An entity has an unknown field, lacks one, or holds a value of
            another type; the message names it.
    """
    check_shapes({tuple(entity) for entity in entities}, descriptor)
    fields: Sequence[Field] = descriptor.schema.fields
    if descriptor.format == "submissions":
        # The kernel reads the other fields from the documents, and compares those that are given.
        entities = [_with_text(entity) for entity in entities]
        given = {UUID, DOCUMENT}.union(*entities)
        fields = [field for field in fields if field.name in given]
    columns = []
    for field in fields:
        default = default_of(field)
        columns.append(to_column([entity.get(field.name, default) for entity in entities], field))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(map(field_to_arrow, fields)))


def _with_text(submission: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a submission whose document, if it was given as an object, is JSON text."""
    document = submission.get(DOCUMENT)
    return (
        {**submission, DOCUMENT: compact(document)} if isinstance(document, Mapping) else submission
    )


def to_column(given: Sequence[Any], field: Field) -> pa.Array:
    """Return the values of a field as a column.

    Raises:
        SchemaMismatchError: A value is of another type, or null in a required field.
    """
    kind, fits = plain_values(field.type)
    try:
        # Arrow silently takes 1.5 for a long, and drops unknown fields of a struct.
        values = [
            value
            if type(value) is kind and fits(value)
            else _checked(value, field.type, field.name)
            for value in given
        ]
        column = pa.array(values, type_to_arrow(field.type))
    except SchemaMismatchError:
        raise
    except InvalidInputError as exc:
        raise SchemaMismatchError(exc.message, hint=exc.hint) from exc
    except VALUE_ERRORS as exc:
        raise SchemaMismatchError(
            f"Field {field.name!r} of type {field.type} does not take a value: {reason_of(exc)}.",
            hint="Correct the entity, or evolve the schema.",
        ) from exc
    check_nulls(column, field.type, field.name, nullable=field.nullable)
    return column


def plain_values(kind: Type) -> tuple[type | None, _Fits]:
    """Return the Python type whose values a column takes unchanged, and a test whether one fits."""
    if isinstance(kind, Primitive) and kind.bits:
        low, high = integer_limits(kind)
        return int, lambda value: low <= value <= high
    if isinstance(kind, Primitive) and kind.kind in _PLAIN:
        return _PLAIN[kind.kind]
    return None, lambda _: False


def check_field(value: Any, field: Field) -> Any:
    """Return a copy of a field's value that Arrow stores exactly.

    Raises:
        SchemaMismatchError: It is of another type, or null in a required field.
    """
    try:
        checked = _checked(value, field.type, field.name)
    except SchemaMismatchError:
        raise
    except InvalidInputError as exc:
        raise SchemaMismatchError(exc.message, hint=exc.hint) from exc
    if checked is None or not isinstance(field.type, Primitive | Decimal):
        column = pa.array([checked], type_to_arrow(field.type))
        check_nulls(column, field.type, field.name, nullable=field.nullable)
    return checked


def _checked(value: Any, kind: Type, place: str) -> Any:
    """Return a value in the form for Arrow; nulls are checked afterwards."""
    if value is None:
        return None
    if isinstance(kind, Primitive | Decimal):
        if isinstance(value, np.generic):
            value = to_python(value)
            if value is None:
                return None
        elif isinstance(value, uuid.UUID) and kind == TEXT:
            return str(value)
        return check_value(value, kind, place)
    match kind:
        case ListOf():
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
                raise _no_fit(value, kind, place)
            return [_checked(element, kind.element, f"{place}[]") for element in value]
        case MapOf():
            if not isinstance(value, Mapping):
                raise _no_fit(value, kind, place)
            checked = {
                check_value(key, kind.key, f"{place}{{key}}"): _checked(
                    item, kind.value, f"{place}{{}}"
                )
                for key, item in value.items()
            }
            if len(checked) < len(value):  # such as a moment in two zones
                raise SchemaMismatchError(
                    f"Two keys of {reprlib.repr(value)} are equal in column {place!r} of type {kind}.",
                    hint="Give each key once.",
                )
            return list(checked.items())
        case Struct(fields):
            given = fields_of(value)
            if given is None:
                raise _no_fit(value, kind, place)
            return _checked_struct(given, fields, place)


def _checked_struct(
    value: Mapping[str, Any], fields: tuple[Field, ...], place: str
) -> dict[str, Any]:
    names = [field.name for field in fields]
    for name in value:
        if name not in names:
            raise unknown_field(
                f"{place}.{name}",
                f"Unknown field '{place}.{name}' in the data.",
                nearest(str(name), names) or f"Fields are: {', '.join(names)}.",
            )
    return {
        field.name: _checked(
            value.get(field.name, default_of(field)), field.type, f"{place}.{field.name}"
        )
        for field in fields
    }


def _no_fit(value: object, kind: Type, place: str) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Value {reprlib.repr(value)} ({type(value).__name__}) does not fit column {place!r} "
        f"of type {kind}.",
        hint=f"Give a value of type {kind}.",
    )


def batches_of(
    stream: pa.RecordBatchReader, source: object = None, *, is_dry_run: bool = False
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stream in plain layouts; at least one batch.

    Args:
        stream: The stream.
        source: Object that gave the stream; None for the stream itself.
        is_dry_run: Whether the rows are not written.

    Raises:
        InvalidInputError: The rows have been read before, or cannot be read.
        SchemaMismatchError: A column cannot be brought into a plain layout.
    """
    is_empty = True
    rows_at_once = _ROWS_AT_ONCE
    if all(_is_plain(field.type) for field in stream.schema):
        rows_at_once = _ALL_ROWS
    source = stream if source is None else source
    for batch in read_stream(stream, source, is_dry_run=is_dry_run):
        for start in range(0, batch.num_rows, rows_at_once):
            is_empty = False
            yield to_plain(batch.slice(start, rows_at_once))
    if is_empty:  # its shape is checked too
        yield to_plain(_empty_batch(stream.schema))


def to_plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same values in layouts that Arrow's kernels and Parquet support.

    Views, run ends and dictionaries of views become plain columns; no value changes.

    Raises:
        SchemaMismatchError: A column is too large, or its layout is unknown.
    """
    if all(_is_plain(field.type) for field in batch.schema):
        return batch
    columns, fields = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            plain = column if _is_plain(field.type) else _plain(column)
        except pa.ArrowException as exc:
            raise SchemaMismatchError(
                f"Column {field.name!r} of type {field.type} cannot be read: {reason_of(exc)}.",
                hint="Cast the column before writing.",
            ) from exc
        columns.append(plain)
        fields.append(pa.field(field.name, plain.type, field.nullable))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(plain_type(kind) == kind)


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if _is_plain(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        if str(kind.extension_name) == "arrow.uuid":
            return _uuid_texts(array.storage)
        return array.storage.cast(plain_type(kind))
    if pat.is_string_view(kind):
        return array.cast(pa.string())
    if pat.is_binary_view(kind):
        return array.cast(pa.binary())
    if pat.is_dictionary(kind):
        return _plain(array.dictionary).take(array.indices)
    if pat.is_run_end_encoded(kind):
        return _plain(_decoded(array))
    if pat.is_list_view(kind) or pat.is_large_list_view(kind):
        return _lists_in_order(array)
    if pat.is_struct(kind):
        parts = [_plain(array.field(number)) for number in range(kind.num_fields)]
        fields = [field.with_type(part.type) for field, part in zip(kind, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=array.is_null())
    return _plain_lists(array)


def _uuid_texts(array: pa.Array) -> pa.Array:
    """Return UUIDs, which are 16 bytes, as texts."""
    raw = np.frombuffer(b"".join(value or bytes(16) for value in array.to_pylist()), np.uint8)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    letters = digits[np.stack([raw >> 4, raw & 15], axis=1)].reshape(-1, 32)
    texts = np.full((len(letters), 36), ord("-"), np.uint8)
    taken = 0
    for start, end in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36)):
        texts[:, start:end] = letters[:, taken : taken + end - start]
        taken += end - start
    offsets = pa.py_buffer(np.arange(0, 36 * len(texts) + 1, 36, dtype=np.int32))
    plain = pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(texts))
    return pc.if_else(array.is_valid(), plain, pa.scalar(None, pa.string()))


def _decoded(array: pa.Array) -> pa.Array:
    """Return the values of runs; Arrow's own kernel does not support views as values."""
    values = _plain(array.values)
    runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, values)
    return pc.run_end_decode(runs).slice(array.offset, len(array))


def _plain_lists(array: pa.Array) -> pa.Array:
    """Return lists or maps whose values are plain."""
    kind = array.type
    if pat.is_map(kind):
        keys, items = _plain(array.keys), _plain(array.items)
        made = pa.map_(keys.type, kind.item_field.with_type(items.type))
        return pa.MapArray.from_arrays(
            offsets_of(array), keys, items, type=made, mask=array.is_null()
        )
    if pat.is_fixed_size_list(kind):
        size = kind.list_size
        values = _plain(array.values.slice(array.offset * size, len(array) * size))
        made = pa.list_(kind.value_field.with_type(values.type), size)
        return pa.FixedSizeListArray.from_arrays(values, type=made, mask=array.is_null())
    values = _plain(array.values)
    field = kind.value_field.with_type(values.type)
    if pat.is_large_list(kind):
        made = pa.large_list(field)
        return pa.LargeListArray.from_arrays(
            offsets_of(array), values, type=made, mask=array.is_null()
        )
    made = pa.list_(field)
    return pa.ListArray.from_arrays(offsets_of(array), values, type=made, mask=array.is_null())


def _lists_in_order(array: pa.Array) -> pa.Array:
    """Return lists with values in any order as lists whose values follow each other."""
    values = _plain(array.flatten())
    lengths = pc.fill_null(array.sizes, 0).cast(pa.int64())
    if array.null_count:
        lengths = pc.if_else(array.is_valid(), lengths, 0)
    ends = pc.cumulative_sum(lengths)
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    is_there = pa.concat_arrays([array.is_valid(), pa.array([True])])
    offsets = pc.if_else(is_there, starts, pa.scalar(None, pa.int64()))
    made = pa.large_list(array.type.value_field.with_type(values.type))
    return pa.LargeListArray.from_arrays(offsets, values, type=made)


def offsets_of(array: pa.Array) -> pa.Array:
    """Return the begin of each list among all values, for `from_arrays` with a mask of null lists.

    With null in its place, the list before would take over the values that a null list hides.
    """
    return pa.array(array.offsets.to_numpy())
