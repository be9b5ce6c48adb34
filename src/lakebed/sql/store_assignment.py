"""Conversion of the result of a query to the types of fields: exactly, or with a named error.

The rules are those of Spark's store assignment where a value stays itself; a value that does not
fit is an error, and never cut. Types that only a guess could convert, such as text for a number,
are refused: the statement must convert them by CAST.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.arrow.reasons import reason_of
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import quoted_name
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.model.values import FLOATS, INTEGERS
from lakebed.tables.hive.table import ddl_type

_NUMBERS = INTEGERS | FLOATS


def converted(rows: pa.Table, wanted: Mapping[str, Type], keys: Collection[str] = ()) -> pa.Table:
    """Return a table whose columns have the types of fields.

    Args:
        rows: Result of a query.
        wanted: Type of some of the columns; the others stay as they are.
        keys: Columns that are compared with fields: a number is not compared with text.

    Raises:
        SchemaMismatchError: A type is not converted, or a value does not fit.
    """
    for number, field in enumerate(rows.schema):
        kind = wanted.get(field.name)
        if kind is None:
            continue
        target = type_to_arrow(kind)
        if field.type == target:
            continue
        column = rows.column(number)
        _check(column, kind, field.name, is_key=field.name in keys)
        try:
            cast = _cast(column, target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
            raise SchemaMismatchError(
                f"Column {field.name!r} of type {field.type} does not fit {kind}: "
                f"{reason_of(exc)}.",
                hint="Widen the field, if it holds too few values: ALTER TABLE … ALTER COLUMN … TYPE "
                "…; or correct the rows, or convert them by CAST or ROUND.",
            ) from exc
        rows = rows.set_column(number, pa.field(field.name, cast.type), cast)
    return rows


def _check(column: pa.ChunkedArray, kind: Type, name: str, *, is_key: bool) -> None:
    given = column.type
    is_empty = column.null_count == len(column) or pat.is_null(given)
    if is_empty or _is_taken(given, kind, is_key=is_key):
        return
    raise _unconverted(name, given, kind)


def _unconverted(name: str, given: object, kind: Type) -> SchemaMismatchError:
    return SchemaMismatchError(
        f"Column {name!r} of type {given} is not converted to {kind}.",
        hint=f"Write how, such as CAST({name} AS {_sql_name(kind)}).",
    )


def _is_taken(given: pa.DataType, kind: Type, *, is_key: bool) -> bool:
    """Return whether values of one type may be kept in a field of another one.

    A key of a text must be text: 7 would not match '007', and as a new row stand beside it.
    """
    is_number = pat.is_integer(given) or pat.is_floating(given) or pat.is_decimal(given)
    match kind:
        case Decimal():
            return bool(is_number and not pat.is_floating(given))
        case Primitive(kind=wanted) if wanted in _NUMBERS:
            return bool(is_number)
        case Primitive(kind=Kind.STRING):
            is_text = pat.is_string(given) or pat.is_large_string(given)
            if is_text or is_key:
                return bool(is_text)
            return bool(pat.is_integer(given) or pat.is_boolean(given) or pat.is_date(given))
        case Primitive(kind=Kind.BYTES):
            return bool(pat.is_binary(given) or pat.is_large_binary(given))
        case Primitive(kind=Kind.DATE):
            return bool(pat.is_date(given))
        case Primitive(kind=Kind.TIMESTAMP):
            return bool(pat.is_date(given) or pat.is_timestamp(given))
        case Primitive(kind=Kind.TIMESTAMP_NTZ):
            return bool(pat.is_date(given) or (pat.is_timestamp(given) and given.tz is None))
        case Primitive(kind=Kind.BOOLEAN):
            return bool(pat.is_boolean(given))
    return bool(pat.is_nested(given))  # whose parts the write converts, or names


def _cast(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    given = column.type
    if pat.is_nested(given) and pat.is_nested(target):
        return column.cast(target) if _differ_in_width(given, target) else column
    if pat.is_decimal(target) and pat.is_integer(given):
        column = column.cast(pa.decimal128(38, target.scale))  # Arrow judges by the type alone
    if pat.is_decimal(given) and pat.is_floating(target):
        return column.cast(pa.float64()).cast(target)
    if pat.is_timestamp(target) and target.tz and pat.is_timestamp(given) and given.tz is None:
        return pc.assume_timezone(column.cast(pa.timestamp(target.unit)), "UTC")
    cast = column.cast(target)
    if pat.is_float32(target) and pat.is_float64(given):
        changed = pc.and_(pc.not_equal(column, cast.cast(given)), pc.is_finite(column))
        if pc.any(changed).as_py():
            value = column.filter(changed)[0].as_py()
            msg = f"{value} is not exactly a value of type float"
            raise pa.ArrowInvalid(msg)
    return cast


def _differ_in_width(given: pa.DataType, target: pa.DataType) -> bool:
    """Return whether two types with parts differ in nothing but the width of whole numbers."""
    if pat.is_list(given) and pat.is_list(target):
        return _differ_in_width(given.value_type, target.value_type)
    if pat.is_map(given) and pat.is_map(target):
        keys, values = (given.key_type, target.key_type), (given.item_type, target.item_type)
        return _differ_in_width(*keys) and _differ_in_width(*values)
    if pat.is_struct(given) and pat.is_struct(target):
        names = [field.name for field in given]
        return names == [field.name for field in target] and all(
            _differ_in_width(one.type, other.type) for one, other in zip(given, target, strict=True)
        )
    return bool(given == target or (pat.is_integer(given) and pat.is_integer(target)))


def converted_frame(frame: Any, wanted: Mapping[str, Type], keys: Collection[str] = ()) -> Any:
    """Return a Spark frame whose columns have the types of fields; see `converted`.

    A value that does not fit fails the job, with the name of the column.
    """
    expressions, own = [], frame.schema
    for field in own.fields:
        kind = wanted.get(field.name)
        quoted = quoted_name(field.name)
        given = field.dataType.simpleString()
        if not isinstance(kind, Primitive | Decimal) or given == ddl_type(kind):
            expressions.append(quoted)
            continue
        # TIMESTAMP alone may stand for another type in a session.
        name = "TIMESTAMP_LTZ" if kind == Primitive(Kind.TIMESTAMP) else _sql_name(kind)
        _check_frame(given, kind, field.name, is_key=field.name in keys)
        text = f"CAST({quoted} AS {name})"
        if _may_lose(given, kind):
            message = f"A value of column {field.name} does not fit {kind}".replace("'", "")
            attempt = f"try_cast({quoted} AS {name})"
            text = (
                f"CASE WHEN {quoted} IS NULL THEN NULL WHEN {attempt} = {quoted} THEN {attempt} "
                f"ELSE CAST(raise_error('{message}') AS {name}) END"
            )
        expressions.append(f"{text} AS {quoted}")
    return frame.selectExpr(*expressions)


def _check_frame(given: str, kind: Type, name: str, *, is_key: bool) -> None:
    plain = given.split("(")[0]
    arrow = _ARROW_OF_SPARK.get(plain)
    if arrow is None and plain == "decimal":
        arrow = pa.decimal128(38, 0)
    if plain == "void" or (arrow is not None and _is_taken(arrow, kind, is_key=is_key)):
        return
    raise _unconverted(name, given, kind)


_ARROW_OF_SPARK = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def _may_lose(given: str, kind: Primitive | Decimal) -> bool:
    """Return whether a number may not fit."""
    widths = {"tinyint": 1, "smallint": 2, "int": 4, "bigint": 8, "float": 5, "double": 9}
    if isinstance(kind, Decimal):
        return True
    if kind.kind not in _NUMBERS:
        return False
    if given.startswith("decimal"):
        return kind.kind not in FLOATS
    exact = {(1, 4), (2, 4), (4, 8), (1, 8), (2, 8), (4, 9), (5, 9), (1, 5), (2, 5), (1, 9), (2, 9)}
    return (widths.get(given, 0), widths.get(ddl_type(kind), 0)) not in {(1, 2), *exact}


def _sql_name(kind: Type) -> str:
    return ddl_type(kind).upper() if isinstance(kind, Primitive | Decimal) else str(kind)
