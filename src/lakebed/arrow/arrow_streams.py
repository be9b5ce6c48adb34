"""Arrow data of other libraries, converted to the layouts that Lakebed uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.arrow.reasons import reason_of
from lakebed.errors import InvalidInputError, SchemaMismatchError

# Other libraries may give all rows as one batch, and a plain column of text ends at 2 GiB.
_ROWS_AT_ONCE, _ALL_ROWS = 131_072, 2**62


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
        return pa.MapArray.from_arrays(offsets_of(array), keys, items, type=made)
    if pat.is_fixed_size_list(kind):
        size = kind.list_size
        values = _plain(array.values.slice(array.offset * size, len(array) * size))
        made = pa.list_(kind.value_field.with_type(values.type), size)
        return pa.FixedSizeListArray.from_arrays(values, type=made, mask=array.is_null())
    values = _plain(array.values)
    field = kind.value_field.with_type(values.type)
    if pat.is_large_list(kind):
        made = pa.large_list(field)
        return pa.LargeListArray.from_arrays(offsets_of(array), values, type=made)
    return pa.ListArray.from_arrays(offsets_of(array), values, type=pa.list_(field))


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
    """Return the begin of each list among all values; null for a list that is null."""
    is_there = pa.concat_arrays([array.is_valid(), pa.array([True])])
    return pc.if_else(is_there, array.offsets, pa.scalar(None, array.offsets.type))
