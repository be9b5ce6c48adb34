"""Entities, tables and Arrow data of other libraries as streams of record batches, and back."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.arrow.conform import check_nulls, check_shapes, default_of, unknown_field
from lakebed.arrow.documents import compact
from lakebed.arrow.reasons import VALUE_ERRORS, reason_of
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import (
    field_to_arrow,
    find_arrow_schema,
    schema_from_arrow,
    type_to_arrow,
)
from lakebed.model.dataclass_types import declares_types, schema_from_dataclass
from lakebed.model.descriptor import DOCUMENT, UUID, DatasetDescriptor, find_schema_of_rows
from lakebed.model.drift import with_fields_of
from lakebed.model.names import nearest
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
from lakebed.model.values import check_value

ENTITIES_PER_BATCH = 10_000
_KEY = Primitive(Kind.STRING)

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


def to_batches(data: object, descriptor: DatasetDescriptor) -> Iterator[pa.RecordBatch]:
    """Yield record batches of rows in any supported form.

    Args:
        data: A pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a pandas
            DataFrame, a LazyFrame of Polars, a table of deltalake or pyiceberg, any other object with
            `__arrow_c_stream__` or `__arrow_c_array__`, such as a frame of Polars or a relation of
            DuckDB; or an iterable of dicts, dataclass instances or other objects with fields, or of
            any of these tables and frames.
        descriptor: Descriptor of the dataset that receives the rows.

    Raises:
        InvalidInputError: `data` is none of these.
        SchemaMismatchError: An entity does not fit; the message names the field.
        PartitionSpecError: All entities lack the source of a partition function, which is known
            only after the last one.
    """
    data = opened(data)
    if type(data).__module__.startswith("pandas.") and hasattr(data, "columns"):
        yield from _from_pandas(data, descriptor).to_batches()
    elif is_arrow(data):
        yield from batches_of(stream_of(data))
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        yield from _from_iterable(data, descriptor)
    else:
        raise _not_rows(data)


def opened(data: Any) -> Any:
    """Return the rows of what is read on demand as Arrow data, and every other object unchanged.

    A LazyFrame is collected into memory; a table of deltalake or pyiceberg, a pyarrow Dataset and a
    Scanner are streamed.
    """
    kind = type(data)
    match kind.__module__.partition(".")[0], kind.__name__:
        case "polars", "LazyFrame":
            return data.collect()
        case "deltalake", "DeltaTable":
            # Since 1.6 it also reads deletion vectors and mapped columns.
            scan = getattr(data, "scan", None)
            return data.to_pyarrow_dataset().scanner().to_reader() if scan is None else scan()
        case "pyiceberg", "Table" | "StaticTable":
            return data.scan().to_arrow_batch_reader()
        case "pyiceberg", "DataScan":
            return data.to_arrow_batch_reader()
    # The caller that has a Dataset has imported the module; to import it takes a while. Another
    # thread may be about to.
    module = sys.modules.get("pyarrow.dataset")
    dataset: Any = getattr(module, "Dataset", ())
    scanner: Any = getattr(module, "Scanner", ())
    if isinstance(data, dataset):
        return data.scanner().to_reader()
    return data.to_reader() if isinstance(data, scanner) else data


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
    schema = find_schema_of_rows(data)
    if schema is not None:
        return schema, data
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        raise _not_rows(data)
    remaining = iter(data)
    chunk = list(itertools.islice(remaining, ENTITIES_PER_BATCH))
    if not chunk:
        raise InvalidInputError(
            "The schema cannot be inferred: there are no rows.",
            hint="Create the dataset first, with a schema: `repository.create(name, schema)`.",
        )
    is_whole = isinstance(data, Sequence)
    return _schema_of_items(chunk), data if is_whole else itertools.chain(chunk, remaining)


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
    schema = _schema_beside(declared, data)
    if schema is not None:
        return schema, data
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | Mapping):
        raise _not_rows(data)
    remaining = iter(data)
    chunk = list(itertools.islice(remaining, ENTITIES_PER_BATCH))
    rows = data if isinstance(data, Sequence) else itertools.chain(chunk, remaining)
    if not chunk:
        return None, rows
    first = _schema_beside(declared, chunk[0])
    if first is not None:
        return first, rows
    if declares_types(type(chunk[0])):
        return schema_from_dataclass(type(chunk[0])), rows
    entities = [as_mapping(item) for item in chunk]
    names = list(dict.fromkeys(name for entity in entities for name in entity))
    fields = []
    for name in names:
        field = declared.find(name) if isinstance(name, str) else None
        if field is None:
            (field,) = schema_from_arrow(pa.schema([_inferred(name, entities)])).fields
        else:
            field = dataclasses.replace(field, type=_type_of_values(field, entities))
        fields.append(field)
    return Schema(fields=tuple(fields)), rows


def _type_of_values(field: Field, entities: Sequence[Mapping[str, Any]]) -> Type:
    """Return the type of a field that its values fit: the declared one, if they fit that."""
    try:
        inferred = schema_from_arrow(pa.schema([_inferred(field.name, entities)])).fields[0].type
    except SchemaMismatchError:
        return field.type  # null alone, or the write names the value
    more = with_fields_of(field.type, inferred)
    if more != field.type:
        return more
    try:
        pa.array([entity.get(field.name) for entity in entities], type_to_arrow(field.type))
    except VALUE_ERRORS:
        return inferred
    return field.type


def _schema_beside(declared: Schema, data: object) -> Schema | None:
    """Return the schema of a frame or table; a column of nulls alone has the declared type."""
    is_spark = type(data).__module__.startswith("pyspark.")
    arrow = None if is_spark else find_arrow_schema(data)
    if arrow is None:
        return find_schema_of_rows(data)
    for number, column in enumerate(arrow):
        field = declared.find(column.name) if pat.is_null(column.type) else None
        if field is not None:
            arrow = arrow.set(number, field_to_arrow(field))
    return schema_from_arrow(arrow)


def _schema_of_items(items: Sequence[object]) -> Schema:
    first = find_schema_of_rows(items[0])
    if first is not None:
        return first
    kind = type(items[0])
    if declares_types(kind):
        return schema_from_dataclass(kind)
    entities = [as_mapping(item) for item in items]
    names = list(dict.fromkeys(name for entity in entities for name in entity))
    return schema_from_arrow(pa.schema([_inferred(name, entities) for name in names]))


def _inferred(name: object, entities: Sequence[Mapping[str, Any]]) -> pa.Field:
    if not isinstance(name, str):
        raise SchemaMismatchError(
            f"The rows have a field {name!r}, whose name is not a text.", hint="Rename it."
        )
    try:
        column = pa.array([entity.get(name) for entity in entities])
    except VALUE_ERRORS as exc:
        raise SchemaMismatchError(
            f"The type of field {name!r} cannot be inferred: {reason_of(exc)}.",
            hint="Give all its values one type, or create the dataset first, with a schema.",
        ) from exc
    if pat.is_null(column.type):
        raise SchemaMismatchError(
            f"The type of field {name!r} cannot be inferred: its first {len(entities):,} values are "
            "null.",
            hint="Create the dataset first, with a schema: `repository.create(name, schema)`.",
        )
    return pa.field(name, column.type)


def _not_rows(data: object) -> InvalidInputError:
    return InvalidInputError(
        f"Cannot write {type(data).__name__}.",
        hint="Give a frame of Spark, pandas or Polars, a pyarrow Table, RecordBatch, "
        "RecordBatchReader or Dataset, a relation of DuckDB, a table of deltalake or pyiceberg, "
        "another object with __arrow_c_stream__, or an iterable of dicts, dataclass instances or "
        "other objects.",
    )


def _from_pandas(frame: Any, descriptor: DatasetDescriptor) -> pa.Table:
    """Return a frame as a table, with those levels of its index that are fields.

    An index without a name, or with a name that is not a field, only numbers the rows.
    """
    try:
        fields = [
            name
            for name in frame.index.names
            if name in descriptor.schema.names and name not in frame.columns
        ]
        rows = frame.reset_index(level=fields) if fields else frame
        return pa.Table.from_pandas(rows, preserve_index=False)
    except VALUE_ERRORS as exc:
        # For a column, Arrow gives the reason first, and then the column.
        reason = ": ".join(map(str, reversed(exc.args))) if len(exc.args) > 1 else reason_of(exc)
        raise SchemaMismatchError(
            f"The pandas frame cannot be read: {reason}.",
            hint="Give each column a name of its own, and one type that Arrow has, such as text.",
        ) from exc


def _from_iterable(
    items: Iterable[object], descriptor: DatasetDescriptor
) -> Iterator[pa.RecordBatch]:
    remaining = iter(items)
    names: set[str] | None = None
    for first in remaining:
        if is_arrow(first):
            yield from to_batches(first, descriptor)
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
        raise InvalidInputError(
            f"Cannot read an entity of type {type(entity).__name__}: {str(entity)[:80]!r}.",
            hint="Give dicts, dataclass instances, or other objects with public attributes.",
        )
    return fields


def fields_of(value: object) -> Mapping[str, Any] | None:
    """Return the fields of a mapping or an object; None if it has none.

    Classes that declare their fields have the declared ones. Other objects have the public
    attributes of the instance, so that an object without public attributes, such as a pandas
    Series, is not taken for an entity without fields.
    """
    if isinstance(value, Mapping):
        return value
    kind = type(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, type) or kind.__module__ == "builtins":
        return None  # classes, functions and modules have attributes too
    for give in ("model_dump", "_asdict"):  # of pydantic; of named tuples
        if callable(getattr(kind, give, None)):
            given: Mapping[str, Any] = getattr(value, give)()
            return given
    declared = getattr(kind, "__attrs_attrs__", None)
    names = (
        [field.name for field in declared]
        if declared is not None
        else getattr(kind, "__struct_fields__", None)  # of msgspec
        or [name for name in getattr(value, "__dict__", ()) if not name.startswith("_")]
    )
    return {name: getattr(value, name) for name in names} or None


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
        return check_value(value.item() if isinstance(value, np.generic) else value, kind, place)
    match kind:
        case ListOf():
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
                raise _no_fit(value, kind, place)
            return [_checked(element, kind.element, f"{place}[]") for element in value]
        case MapOf():
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                raise _no_fit(value, kind, place)
            return [
                (check_value(key, _KEY, f"{place}{{}}"), _checked(item, kind.value, f"{place}{{}}"))
                for key, item in value.items()
            ]
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


def is_arrow(data: object) -> bool:
    """Return whether an object gives Arrow data by Arrow's PyCapsule protocol."""
    # Ask the class: for a relation of DuckDB, any attribute may be one of its columns.
    kind = type(data)
    return hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")


def stream_of(data: Any) -> pa.RecordBatchReader:
    """Return the Arrow data of an object as a stream of record batches.

    Raises:
        InvalidInputError: It gives one column instead of rows.
    """
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(
        type(data), "record_batches"
    ):  # a view: through the protocol, its errors would lose their class
        own: pa.RecordBatchReader = data.record_batches()
        return own
    try:
        if hasattr(type(data), "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        batch = pa.record_batch(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError) as exc:
        raise InvalidInputError(
            f"{type(data).__name__} gives no rows: {reason_of(exc)}.",
            hint="Give a table or a frame with named columns, not a single column.",
        ) from exc
    return pa.RecordBatchReader.from_batches(batch.schema, [batch])


def batches_of(stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a stream in plain layouts; at least one batch.

    Raises:
        SchemaMismatchError: A column cannot be brought into a plain layout.
    """
    is_empty = True
    rows_at_once = _ROWS_AT_ONCE
    if all(_is_plain(field.type) for field in stream.schema):
        rows_at_once = _ALL_ROWS
    for batch in stream:
        for start in range(0, batch.num_rows, rows_at_once):
            is_empty = False
            yield to_plain(batch.slice(start, rows_at_once))
    if is_empty:  # its shape is checked too
        yield to_plain(pa.RecordBatch.from_pylist([], schema=stream.schema))


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


def _is_plain(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return not _is_text_in_disguise(kind)
    if pat.is_dictionary(kind):
        return _is_plain(kind.value_type)
    if pat.is_map(kind):
        return pat.is_string(kind.key_type) and _is_plain(kind.item_type)
    if pat.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    if pat.is_list(kind) or pat.is_large_list(kind) or pat.is_fixed_size_list(kind):
        return _is_plain(kind.value_type)
    return not (
        pat.is_string_view(kind)
        or pat.is_binary_view(kind)
        or pat.is_list_view(kind)
        or pat.is_large_list_view(kind)
        or pat.is_run_end_encoded(kind)
    )


def _is_text_in_disguise(kind: pa.BaseExtensionType) -> bool:
    return str(kind.extension_name) == "arrow.json"


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    if _is_plain(kind):
        return array
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(array.storage)
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
        if pat.is_large_string(keys.type):  # others are not text, and their type is refused
            keys = keys.cast(pa.string())
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
