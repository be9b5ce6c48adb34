"""Rows of Arrow as objects of Python, whose dates are of the years 1 to 9999 only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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


def pandas_frame(rows: pa.Table) -> pd.DataFrame:
    """Return rows as a DataFrame of pandas, which holds days as dates of Python.

    Raises:
        InvalidInputError: A date or time is outside the years 1 to 9999.
    """
    try:
        frame: pd.DataFrame = rows.to_pandas()
    except (OverflowError, ValueError) as exc:
        if isinstance(exc, pa.ArrowException):
            raise
        raise _out_of_range(rows, lambda column: column.to_pandas()) from exc
    return frame


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
