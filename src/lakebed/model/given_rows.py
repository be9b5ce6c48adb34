"""Schemas of rows that Python and other libraries give."""

from __future__ import annotations

import dataclasses
import datetime as dt
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as pat

from lakebed.errors import InvalidInputError, LakebedError, SchemaMismatchError
from lakebed.model.arrow_types import plain_type
from lakebed.model.read_once import remember_rows


def infer_type(values: Sequence[object], *, from_pandas: bool = False) -> pa.DataType:
    """Return the type of values of Python.

    Decimals have the type of Spark, `decimal(38,18)`, so that later ones fit. Its scale changes where
    the values need more digits on one side.

    Args:
        values: The values.
        from_pandas: Whether NaN stands for null.

    Raises:
        pyarrow.ArrowException: The values have no type, or several.

    >>> from decimal import Decimal
    >>> infer_type([Decimal("1.5")])
    Decimal128Type(decimal128(38, 18))
    """
    known = [_as_record(value) for value in values]
    try:
        kind = pa.array(known, from_pandas=from_pandas).type
    except pa.ArrowNotImplementedError:
        # Arrow takes no UUID inside lists and records.
        kind = pa.array([_with_texts(value) for value in known], from_pandas=from_pandas).type
    return _with_room(plain_type(kind))


_SCALARS = frozenset({bool, int, float, str, bytes, type(None), dt.date, dt.datetime})


def _as_record(value: Any) -> Any:
    """Return a value whose objects with fields, at any depth, are dicts.

    Arrow would take a named tuple, or a row of Spark, for a list.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, np.generic) and value.dtype.names is None:
        return to_python(value)
    fields = fields_of(value)
    if fields is not None:
        return {name: _as_record(each) for name, each in fields.items()}
    return [_as_record(each) for each in value] if isinstance(value, list | tuple) else value


def _with_texts(value: object) -> object:
    """Return a value in which UUIDs are texts, at any depth."""
    match value:
        case uuid.UUID():
            return str(value)
        case list():
            return [_with_texts(each) for each in value]
        case dict():
            return {key: _with_texts(each) for key, each in value.items()}
    return value


def _with_room(kind: pa.DataType) -> pa.DataType:
    """Return a type whose decimals have all digits, at any depth."""
    if pat.is_decimal(kind) and kind.precision <= _DIGITS:
        whole = kind.precision - kind.scale
        scale = max(kind.scale, min(_SCALE, _DIGITS - whole))
        return pa.decimal128(_DIGITS, scale)
    if pat.is_struct(kind):
        return pa.struct([field.with_type(_with_room(field.type)) for field in kind])
    if pat.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_room(kind.value_type)))
    return kind


_DIGITS, _SCALE = 38, 18  # of a decimal of Spark


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
    if isinstance(value, np.void) and value.dtype.names is not None:
        return {name: value[name] for name in value.dtype.names}
    # Of pydantic, of named tuples, and of rows of Spark, which have no names if made without any.
    for give in ("model_dump", "_asdict", "asDict"):
        if callable(getattr(kind, give, None)):
            if give == "asDict" and not hasattr(value, "__fields__"):
                return None
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


def find_declared_schema(source: Any) -> pa.Schema | None:
    """Return the Arrow schema that an object has without reading rows; None if it has none."""
    kind = type(source)
    match kind.__module__.partition(".")[0], kind.__name__:
        case "deltalake", "DeltaTable":
            return pa.schema(source.schema())
        case "pyiceberg", "Table" | "StaticTable":
            return source.schema().as_arrow()
        case "pyiceberg", "DataScan":
            return source.projection().as_arrow()
        case (("pandas" | "polars"), _):
            return None  # to ask a LazyFrame for its schema is a warning
    for name in ("projected_schema", "schema"):  # of a scanner; of others
        declared = getattr(source, name, None)
        if isinstance(declared, pa.Schema):
            return declared
    return None


def find_arrow_schema(source: Any) -> pa.Schema | None:
    """Return the schema of a frame or stream that has to be opened for it; None of other objects.

    Raises:
        SchemaMismatchError: The columns of a pandas frame have no Arrow types.
        InvalidInputError: It gives no rows.
        Exception: Errors of the library that owns the object.
    """
    kind = type(source)
    match kind.__module__.partition(".")[0], kind.__name__:
        case "polars", "LazyFrame" | "DataFrame":
            return _schema_of_polars(source)
        case (("duckdb" | "_duckdb"), "DuckDBPyRelation"):
            source = source.limit(0)  # runs nothing
            return pa.RecordBatchReader.from_stream(source).schema
    if is_pandas(source):
        return pandas_schema(source)
    if is_structured(source):
        return table_of_structured(source).schema
    if isinstance(source, pa.StructArray | pa.StructScalar):
        return pa.schema(list(source.type))
    if hasattr(kind, "__arrow_c_schema__"):
        return _from_protocol(source, pa.schema)
    if hasattr(kind, "__arrow_c_stream__"):
        return _from_protocol(source, _schema_of_stream)
    if hasattr(kind, "__arrow_c_array__"):
        return _from_protocol(source, lambda given: pa.record_batch(given).schema)
    return None


def _schema_of_polars(source: Any) -> pa.Schema:
    frame = source.head(0)
    if type(source).__name__ == "LazyFrame":
        frame = frame.collect()
    check_polars_types(frame)
    schema: pa.Schema = frame.to_arrow().schema
    return schema


def _schema_of_stream(source: Any) -> pa.Schema:
    """Return the schema of a stream, which may be the only one that its source gives."""
    stream = pa.RecordBatchReader.from_stream(source)
    if any(batch.num_rows for batch in stream):
        remember_rows(source)
    return stream.schema


def _from_protocol(source: object, read: Callable[[Any], pa.Schema]) -> pa.Schema:
    try:
        return read(source)
    except LakebedError:
        raise
    except Exception as exc:
        # Any error of the library, such as that of a stream which has been released.
        raise InvalidInputError(
            f"{type(source).__name__} gives no schema of rows: {exc}",
            hint="Give a table or a frame with named columns. A stream gives its rows once: give a "
            "new one.",
        ) from exc


def check_polars_types(frame: Any) -> None:
    """Check that Arrow has the types of a frame of Polars.

    Raises:
        SchemaMismatchError: A column has objects of Python, whose addresses Polars would give, or
            integers of 128 bits.
    """
    for name, dtype in frame.schema.items():
        _check_polars_type(dtype, name)


def _check_polars_type(dtype: Any, place: str) -> None:
    kind = str(dtype.base_type().__name__)
    remedy = _POLARS_REMEDIES.get(kind)
    if remedy is not None:
        raise SchemaMismatchError(
            f"Column {place!r} of the Polars frame has type {kind}, which Arrow lacks.",
            hint=remedy,
        )
    for name in ("inner", "key", "value"):
        inner = getattr(dtype, name, None)
        if inner is not None and hasattr(inner, "base_type"):
            _check_polars_type(inner, f"{place}[]")
    for field in getattr(dtype, "fields", ()):
        _check_polars_type(field.dtype, f"{place}.{field.name}")


_TO_WHOLE = "Cast it to pl.Int64 or pl.Decimal(38, 0)."
_POLARS_REMEDIES = {
    "Object": "Make it a column of another type, such as text: "
    "pl.Series([str(value) for value in column]).",
    "Unknown": "Cast it to the type that it should have.",
    "Int128": _TO_WHOLE,
    "UInt128": _TO_WHOLE,
}


# What pandas calls the values of a column of objects, where Arrow takes all of them or none.
_UNIFORM = ("string", "bytes", "boolean", "empty")


def is_pandas(data: object) -> bool:
    """Return whether an object is a frame of pandas, or of a class derived from it."""
    return is_of(data, "pandas", "DataFrame")


def is_of(data: object, module: str, name: str) -> bool:
    """Return whether an object is of a class of a library, which this does not import."""
    # The caller that has such an object has imported the module; to import it takes a while.
    # Another thread may be about to.
    found: Any = getattr(sys.modules.get(module), name, ())
    return isinstance(data, found)


def pandas_columns(frame: Any, levels: Collection[str] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the columns of a pandas frame.

    Args:
        frame: The frame.
        levels: Names of levels of its index that are columns as well; None for all that have a name.
    """
    known = set(frame.columns)
    chosen = [
        name
        for name in frame.index.names
        if name is not None and name not in known and (levels is None or name in levels)
    ]
    if chosen:
        frame = frame.reset_index(level=chosen)
    for number, name in enumerate(frame.columns):
        yield name if isinstance(name, str) else str(name), frame.iloc[:, number]


def pandas_schema(frame: Any) -> pa.Schema:
    """Return the schema of a pandas frame; the named levels of its index are columns.

    Raises:
        SchemaMismatchError: A column has no type that Arrow has.
    """
    return pa.schema(
        [pa.field(name, _pandas_type(column, name)) for name, column in pandas_columns(frame)]
    )


def _pandas_type(column: Any, name: str) -> pa.DataType:
    try:
        if holds_objects(column):
            return infer_type(pandas_objects(column), from_pandas=True)
        return arrow_of_pandas(column).type
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
        raise pandas_error(
            "The columns of the pandas frame have no types", column, name, exc
        ) from exc


def holds_objects(column: Any) -> bool:
    """Return whether the values of a column of pandas are objects of Python that differ in type."""
    if column.dtype != np.dtype(object):
        return False
    import pandas as pd

    return pd.api.types.infer_dtype(column, skipna=True) not in _UNIFORM


def arrow_of_pandas(column: Any) -> pa.Array | pa.ChunkedArray:
    """Return a column of pandas whose values have one type.

    Raises:
        pyarrow.ArrowException: Arrow lacks the type.
    """
    if hasattr(column.dtype, "fill_value"):
        raise TypeError("it is sparse; make it dense by .sparse.to_dense()")
    return pa.array(column, from_pandas=True)


def pandas_objects(column: Any) -> list[object]:
    """Return the values of a column of objects; None where pandas takes one for missing."""
    import pandas as pd

    return [None if _is_missing(value, pd) else value for value in column]


def _is_missing(value: object, pd: Any) -> bool:
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def pandas_error(beginning: str, column: Any, name: str, cause: Exception) -> SchemaMismatchError:
    """Return the error for a column of pandas that Arrow lacks a type for."""
    # Arrow gives the reason first, and then the column.
    first = cause.args[0] if isinstance(cause, pa.ArrowException) and cause.args else cause
    reason = " ".join(str(first).split()).rstrip(".")
    return SchemaMismatchError(
        f"{beginning}: column {name!r} of dtype {column.dtype}: {reason or type(cause).__name__}.",
        hint="Give it one type that Arrow has, such as text: frame[name].astype(str).",
    )


def to_python(value: np.generic) -> object:
    """Return a scalar of NumPy as a value of Python; unchanged if none is equal to it."""
    if isinstance(value, np.timedelta64):
        return value
    if not isinstance(value, np.datetime64):
        return value.item()
    if np.isnat(value):
        return None
    is_day = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
    converted = value.astype("datetime64[D]" if is_day else "datetime64[us]")
    item = converted.item()
    is_same = isinstance(item, dt.date) and converted.astype(value.dtype) == value
    return item if is_same else value


def is_structured(data: object) -> bool:
    """Return whether an object is an array of records of NumPy."""
    return isinstance(data, np.ndarray) and data.dtype.names is not None


def table_of_structured(rows: np.ndarray) -> pa.Table:
    """Return a structured array of NumPy as a table."""
    if rows.ndim != 1:
        raise InvalidInputError(
            f"The array has {rows.ndim} dimensions.", hint="Give one dimension of records."
        )
    columns = {}
    for name in rows.dtype.names or ():
        try:
            columns[name] = pa.array(np.ascontiguousarray(rows[name]))
        except (pa.ArrowException, TypeError, ValueError) as exc:
            raise SchemaMismatchError(
                f"Column {name!r} of type {rows.dtype[name]} cannot be read: {exc}.",
                hint="Convert the column to a type that Arrow has, such as text.",
            ) from exc
    return pa.table(columns)
