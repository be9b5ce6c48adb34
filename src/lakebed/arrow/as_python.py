"""Rows of Arrow as Python objects, whose dates are limited to the years 1 to 9999."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from lakebed.common.plain import to_plain
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    import pandas as pd


def python_rows(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Return rows as mappings from the names of their columns.

    Raises:
        InvalidInputError: A date or time is outside the years 1 to 9999.

    >>> python_rows(pa.table({"n": [1, 2]}))
    [{'n': 1}, {'n': 2}]
    """
    try:
        return list(rows.to_pylist(maps_as_pydicts="strict"))
    except OverflowError as exc:
        raise _out_of_range(rows, lambda column: column.to_pylist()) from exc


def plain_columns(rows: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """Return the values of each column in the forms of `lakebed.common.plain`.

    Dates and times outside the years 1 to 9999 are texts, too, unless they are inside a list or a
    record.

    Raises:
        InvalidInputError: A list or a record holds such a date or time.

    >>> plain_columns(pa.table({"n": [1, 2], "x": [0.5, float("nan")]}))
    [[1, 2], [0.5, 'NaN']]
    """
    return [_plain(rows, place) for place in range(rows.num_columns)]


def _plain(rows: pa.RecordBatch | pa.Table, place: int) -> list[Any]:
    column, kind = rows.column(place), rows.schema.field(place).type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return list(column.to_pylist())
    try:
        values = column.to_pylist(maps_as_pydicts="strict")
    except OverflowError as exc:
        if pa.types.is_nested(kind):
            raise _out_of_range(rows, lambda each: each.to_pylist()) from exc
        values = column.cast(pa.string()).to_pylist()
    return [to_plain(value) for value in values]


DtypeBackend = Literal["numpy_nullable", "pyarrow"]


def pandas_frame(rows: pa.Table, dtype_backend: DtypeBackend | None = None) -> pd.DataFrame:
    """Return rows as a DataFrame of pandas, which holds days as dates of Python.

    Args:
        rows: Rows of any types.
        dtype_backend: As for `Readable.pandas`.

    Raises:
        InvalidInputError: A date or time is outside the years 1 to 9999, or the backend is unknown.
    """
    to_dtype = _to_dtype(dtype_backend)
    try:
        frame: pd.DataFrame = rows.to_pandas(types_mapper=to_dtype)
    except (OverflowError, ValueError) as exc:
        if isinstance(exc, pa.ArrowException):
            raise
        raise _out_of_range(rows, lambda column: column.to_pandas()) from exc
    return frame


def _to_dtype(dtype_backend: DtypeBackend | None) -> Callable[[pa.DataType], Any] | None:
    """Return the function that pyarrow asks for the dtype of a type; it returns None for the usual one.

    Raises:
        InvalidInputError: The backend is unknown.
    """
    if dtype_backend is None:
        return None
    import pandas as pd

    match dtype_backend:
        case "pyarrow":
            return pd.ArrowDtype
        case "numpy_nullable":
            return {
                pa.bool_(): pd.BooleanDtype(),
                pa.int32(): pd.Int32Dtype(),
                pa.int64(): pd.Int64Dtype(),
                pa.float32(): pd.Float32Dtype(),
                pa.float64(): pd.Float64Dtype(),
                pa.string(): pd.StringDtype(),
            }.get
    raise InvalidInputError(
        f"dtype_backend is {shown(dtype_backend)}.",
        hint="Give 'numpy_nullable' or 'pyarrow', or leave it out.",
    )


def _out_of_range(
    rows: pa.RecordBatch | pa.Table, convert: Callable[[Any], object]
) -> InvalidInputError:
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        try:
            convert(column)
        except (OverflowError, ValueError):
            return InvalidInputError(
                f"Column {name!r} holds a date or time outside the years 1 to 9999, for which "
                "Python has no object.",
                hint="Read it as Arrow or Polars, leave the column out, or ask for it in SQL as a "
                "text: CAST(… AS VARCHAR).",
            )
    raise AssertionError  # one of them could not be converted a moment ago
