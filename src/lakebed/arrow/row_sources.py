"""Rows of other libraries as Arrow data. A source is opened once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lakebed.arrow.reasons import reason_of
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.given_rows import (
    check_polars_types,
    is_of,
    is_pandas,
    is_structured,
    table_of_structured,
)
from lakebed.model.read_once import begin_reading, check_still_has_rows, remember_rows
from lakebed.model.spark_types import spark_frame_of


def is_arrow(data: object) -> bool:
    """Return whether an object gives Arrow data by Arrow's PyCapsule protocol."""
    # Ask the class: for a relation of DuckDB, any attribute may be one of its columns.
    kind = type(data)
    return hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")


def is_tabular(data: object) -> bool:
    """Return whether an object is rows with columns, and not an iterable of entities."""
    kind = type(data)
    if is_arrow(data) or is_pandas(data) or is_structured(data):
        return True
    if is_of(data, "pandas", "Series"):  # which is refused
        return True
    if kind.__module__.startswith("pyspark.") and any(
        hasattr(kind, name) for name in ("toArrow", "to_spark", "to_frame")
    ):
        return True
    match kind.__module__.partition(".")[0], kind.__name__:
        case ("polars", "LazyFrame") | ("deltalake", "DeltaTable"):
            return True
        case "pyiceberg", "Table" | "StaticTable" | "DataScan":
            return True
    return is_of(data, "pyarrow.dataset", "Dataset") or is_of(data, "pyarrow.dataset", "Scanner")


def opened(data: Any) -> Any:
    """Return the rows of what has columns as Arrow data; entities and frames of pandas unchanged.

    A source is opened only here: a second stream of it may be empty, an error, or other rows. A
    LazyFrame is collected into memory; all others are streamed.

    Returns:
        A Table, RecordBatch or RecordBatchReader of pyarrow, a view of Lakebed, or `data`.

    Raises:
        InvalidInputError: It gives one column instead of rows, or cannot be opened.
        SchemaMismatchError: A column has a type that Arrow lacks.
    """
    if is_of(data, "polars", "Series") or is_of(data, "pandas", "Series"):
        raise InvalidInputError(
            f"{type(data).__name__} gives no rows: it is a single column.",
            hint="Give a frame: data.to_frame(); in Polars also data.struct.unnest().",
        )
    data = spark_frame_of(data)
    kind = type(data)
    if kind.__module__.startswith("pyspark.sql.") and hasattr(kind, "toArrow"):
        return data.toArrow()
    if is_pandas(data) or isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return data
    if is_structured(data):
        return table_of_structured(data)
    match kind.__module__.partition(".")[0], kind.__name__:
        case "polars", "LazyFrame":
            with _naming(data):
                data = data.collect()
            return opened(data)
        case "deltalake", "DeltaTable":
            # Since 1.6 it also reads deletion vectors and mapped columns.
            scan = getattr(data, "scan", None)
            return opened(data.to_pyarrow_dataset() if scan is None else scan())
        case "pyiceberg", "Table" | "StaticTable":
            return data.scan().to_arrow_batch_reader()
        case "pyiceberg", "DataScan":
            return data.to_arrow_batch_reader()
    if is_of(data, "pyarrow.dataset", "Dataset"):
        return data.scanner().to_reader()
    if is_of(data, "pyarrow.dataset", "Scanner"):
        return data.to_reader()
    if hasattr(kind, "record_batches") or not is_arrow(data):
        return data  # a view of Lakebed, or entities
    return _stream_of_protocol(data)


def _stream_of_protocol(data: Any) -> Any:
    if is_of(data, "polars", "DataFrame"):
        check_polars_types(data)
    with _naming(data):
        if isinstance(data, pa.StructArray):
            return _batch_of_records(data)
        if isinstance(data, pa.ChunkedArray):
            batches = [_batch_of_records(chunk) for chunk in data.chunks]
            return pa.Table.from_batches(batches, schema=pa.schema(list(data.type)))
        if hasattr(type(data), "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        return pa.record_batch(data)


@contextmanager
def _naming(data: object) -> Iterator[None]:
    """Name any error of the library, such as the one of a stream that has been released."""
    try:
        yield
    except LakebedError:
        raise
    except Exception as exc:
        raise InvalidInputError(
            f"{type(data).__name__} gives no rows: {reason_of(exc)}.",
            hint="Give a table or a frame with named columns, not a single column. A stream gives "
            "its rows once: give a new one.",
        ) from exc


def _batch_of_records(records: pa.StructArray) -> pa.RecordBatch:
    if records.null_count:
        raise InvalidInputError(
            f"{records.null_count} of {len(records)} records are null, and a row cannot be null.",
            hint="Drop them: records.drop_null().",
        )
    return pa.RecordBatch.from_struct_array(records)


def stream_of(data: Any) -> pa.RecordBatchReader:
    """Return what `opened` has opened as a stream of record batches."""
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(data.schema, [data])
    if hasattr(type(data), "record_batches"):
        # Through the protocol, the errors of a view would lose their class.
        own: pa.RecordBatchReader = data.record_batches()
        return own
    stream: pa.RecordBatchReader = data
    return stream


def read_stream(
    stream: pa.RecordBatchReader, source: object, *, is_dry_run: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of the stream that a source gave.

    Args:
        stream: The stream.
        source: Object that gave the stream.
        is_dry_run: Whether the rows are not written.

    Raises:
        InvalidInputError: The rows have been read before, or cannot be read.
    """
    begin_reading(stream)
    row_count = 0
    try:
        for batch in stream:
            if is_dry_run and batch.num_rows and not row_count and not _is_live(source):
                remember_rows(source)
            row_count += batch.num_rows
            yield batch
    except (pa.ArrowException, OSError) as exc:
        raise InvalidInputError(
            f"The rows of {type(source).__name__} cannot be read: {reason_of(exc)}.",
            hint="The library that gives the rows reports this error.",
        ) from exc
    if not row_count:
        check_still_has_rows(source)


def _is_live(source: object) -> bool:
    """Return whether a source gives what is there now: later there may be no rows."""
    is_view = hasattr(type(source), "record_batches")
    return is_view or type(source).__module__.partition(".")[0] in ("duckdb", "_duckdb")
