"""Frames of pandas as Arrow tables, by the types of the fields that take them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.reasons import VALUE_ERRORS
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import type_from_arrow, type_to_arrow
from lakebed.model.given_rows import (
    arrow_of_pandas,
    holds_objects,
    infer_type,
    pandas_columns,
    pandas_error,
    pandas_objects,
)
from lakebed.model.schema import Field, ListOf, MapOf, Primitive, Schema, Struct, Type
from lakebed.model.values import FLOATS, INTEGERS

_EXACT = 2**53  # a larger integer that pandas has made a float may have been another one


def table_of_pandas(
    frame: Any, schema: Schema | None, to_column: Callable[[Sequence[Any], Field], pa.Array]
) -> pa.Table:
    """Return a frame of pandas as a table, with those levels of its index that are fields.

    An index without a name, or with a name that is not a field, only numbers the rows. NaN is null,
    as it is in pandas; where it has made a column of integers floats, they are integers again.

    Args:
        frame: The frame.
        schema: Fields of the dataset; None for types that the values have by themselves.
        to_column: Converts values of Python to a column of a field.

    Raises:
        SchemaMismatchError: A column has no type that Arrow has, or a value does not fit its field.
    """
    names, columns = [], []
    for name, column in pandas_columns(frame, None if schema is None else schema.names):
        field = None if schema is None else schema.find(name)
        try:
            if holds_objects(column):
                values = pandas_objects(column)
                if field is None:
                    kind = infer_type(values, from_pandas=True)
                    arrow = column_of_type(name, values, kind, to_column, from_pandas=True)
                else:
                    arrow = to_column([_as_field(value, field.type) for value in values], field)
            else:
                arrow = arrow_of_pandas(column)
                if field is not None:
                    arrow = _without_floats(arrow, field.type)
        except SchemaMismatchError as exc:
            if exc.unknown:
                raise
            raise SchemaMismatchError(
                f"The pandas frame cannot be read: {exc.message}", hint=exc.hint
            ) from exc
        except VALUE_ERRORS as exc:
            raise pandas_error("The pandas frame cannot be read", column, name, exc) from exc
        if name in names:
            raise SchemaMismatchError(
                f"The pandas frame cannot be read: column {name!r} appears twice.",
                hint="Drop or rename one of them.",
            )
        names.append(name)
        columns.append(arrow)
    if not columns:
        return pa.table({})
    return pa.Table.from_arrays(columns, names=names)


def column_of_type(
    name: str,
    values: Sequence[Any],
    kind: pa.DataType,
    to_column: Callable[[Sequence[Any], Field], pa.Array],
    *,
    from_pandas: bool = False,
) -> pa.Array:
    """Return values of Python as a column of the type that `infer_type` has found for them.

    Raises:
        SchemaMismatchError: A value is of another type.
    """
    try:
        type_ = type_from_arrow(kind, place=name, strict_names=False)
    except SchemaMismatchError:  # no field has the type, but a query may use it
        return pa.array(values, kind, from_pandas=from_pandas)
    field = Field(name=name, type=type_, nullable=True)
    if from_pandas:
        values = [_as_field(value, type_) for value in values]
    return to_column(values, field)


def _without_floats(column: pa.Array | pa.ChunkedArray, kind: Type) -> pa.Array | pa.ChunkedArray:
    """Return integers, or nothing but null, that pandas holds as floats in their own type."""
    if not pa.types.is_floating(column.type):
        return column
    wanted = kind.kind if isinstance(kind, Primitive) else None
    if column.null_count == len(column) and wanted not in FLOATS:
        return pa.nulls(len(column))
    if wanted is None or wanted not in INTEGERS:
        return column
    limit = pa.scalar(float(_EXACT), column.type)
    is_exact = pc.and_(pc.less_equal(pc.abs(column), limit), pc.equal(pc.floor(column), column))
    if not pc.all(is_exact).as_py():
        return column  # which is refused as floats
    return column.cast(type_to_arrow(kind))


def _as_field(value: Any, kind: Type) -> Any:
    """Return a value that pandas holds in the form that a field of a type has in Python.

    In lists, pandas makes null NaN, and integers beside it floats. A map is a list of pairs.
    """
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return None
    match kind:
        case Primitive(kind=name) if name in INTEGERS and isinstance(value, float | np.floating):
            number = float(value)
            is_exact = number.is_integer() and abs(number) <= _EXACT
            return int(number) if is_exact else value
        case ListOf(element) if _is_list(value):
            return [_as_field(each, element) for each in value]
        case MapOf(item) if isinstance(value, Mapping):
            return {key: _as_field(each, item) for key, each in value.items()}
        case MapOf(item) if _is_list(value) and all(_is_pair(each) for each in value):
            known = {key: _as_field(each, item) for key, each in value}
            return known if len(known) == len(value) else value
        case Struct(fields) if isinstance(value, Mapping):
            types = {field.name: field.type for field in fields}
            return {
                name: _as_field(each, types[name]) if name in types else each
                for name, each in value.items()
            }
    return value


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2
