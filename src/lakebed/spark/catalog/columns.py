"""Partitions and columns of tables, between Spark's transforms and Lakebed's functions."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.layout import Layout
from lakebed.model.partition import (
    CalendarPart,
    Date,
    DateFormat,
    Hash,
    Identity,
    PartitionFunction,
)
from lakebed.model.predicate import quoted_name
from lakebed.model.schema import (
    MISSING,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
)
from lakebed.model.spark_types import schema_from_spark
from lakebed.model.sql_dialect import parse_condition
from lakebed.model.values import EPOCH, from_micros
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from lakebed.spark.catalog.session_jvm import Jvm

_MONTH, _HOUR = "yyyy-MM", "yyyy-MM-dd-HH"
# Types whose values need no conversion.
_PLAIN = ("boolean", "byte", "short", "integer", "long", "float", "double")
_TEXTS = ("string", "char", "varchar")  # types of columns that take a text as it is
_MOVING_WORDS = ("now", "today", "tomorrow", "yesterday")  # texts that Spark takes as times
_DEFAULT = "CURRENT_DEFAULT"  # Spark's: what INSERT gives to a column that it leaves out


def table_columns(layout: Layout) -> tuple[str, ...]:
    """Return the columns that a table shows: fields, and partition fields that a writer provides."""
    provided = (level.name for level in layout.descriptor.partition_by if not level.takes_source)
    return (*layout.descriptor.schema.names, *provided)


def hidden_levels(layout: Layout) -> tuple[str, ...]:
    """Return the columns that a query may name, but `*` leaves out: derived levels, `batch_id`."""
    shown = table_columns(layout)
    return tuple(name for name in layout.column_types if name not in shown)


def table_struct(layout: Layout, names: Sequence[str], *, has_required: bool = False) -> StructType:
    """Return columns as a table declares them, with the default of an INSERT.

    Args:
        layout: Layout of the dataset.
        names: The columns.
        has_required: Whether fields that are not nullable are declared NOT NULL.
    """
    from pyspark.sql.types import StructType

    struct = struct_type(layout.fields_of(tuple(names))) if names else StructType([])
    for column in struct.fields:
        field = layout.descriptor.schema.find(column.name)
        text = _default_text(field)
        if text:
            column.metadata = {**(column.metadata or {}), _DEFAULT: text, "EXISTS_DEFAULT": text}
        if has_required and field is not None:
            column.nullable = field.nullable
            _add_comments(column.dataType, field.type)
    return struct


def _add_comments(declared: DataType, type_: Type) -> None:
    """Give the parts of records their comments."""
    match type_:
        case Struct(fields=fields):
            for part, field in zip(declared.fields, fields, strict=True):  # type: ignore[attr-defined]
                part.metadata = {"comment": field.doc} if field.doc else {}
                _add_comments(part.dataType, field.type)
        case ListOf(element=element):
            _add_comments(declared.elementType, element)  # type: ignore[attr-defined]
        case MapOf(value=value):
            _add_comments(declared.valueType, value)  # type: ignore[attr-defined]


def level_type(type_: Type) -> pa.DataType:
    """Return the type of Arrow that Spark reads values of a partition field from."""
    if type_ == Primitive(Kind.UNSIGNED_LONG):
        return pa.decimal128(20, 0)  # Spark has no unsigned numbers
    return type_to_arrow(type_)


def _default_text(field: Field | None) -> str:
    """Return the default of a field as a literal of SQL; empty if an INSERT must name the column."""
    if field is None:
        return ""
    if field.default in (MISSING, None):
        return "NULL" if field.nullable else ""
    match field.default:
        case bool() | int():
            return str(field.default).lower()
        case float() as number if math.isfinite(number):
            return f"{number!r}D"
        case Decimal() as number:
            return f"{number:f}BD"
        case str() as text:
            escaped = text.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"
        case bytes() as content:
            return f"X'{content.hex()}'"
        case dt.datetime() as time:
            return f"TIMESTAMP{'_NTZ' if time.tzinfo is None else ''} '{time.isoformat(' ')}'"
        case dt.date() as day:
            return f"DATE '{day.isoformat()}'"
    return ""  # Spark asks for the column


def schema_of(struct: Any, defaults: Mapping[str, object]) -> Schema:
    """Return a schema of the JVM as a schema.

    Args:
        struct: The schema of the JVM.
        defaults: Defaults by the name of their column.

    Raises:
        SchemaMismatchError: A type is not supported.
    """
    schema = schema_from_spark(json.loads(struct.json()))
    fields = (
        replace(field, default=defaults[field.name]) if field.name in defaults else field
        for field in schema
    )
    return replace(schema, fields=tuple(fields))


def defaults_of(jvm: Jvm, columns: Iterable[Any]) -> dict[str, object]:
    """Return the defaults of the columns of a new table, by name.

    Args:
        jvm: The JVM of the session.
        columns: The columns as Spark's JVM has them.

    Raises:
        InvalidInputError: A default is not a constant.
    """
    defaults = {}
    for column in columns:
        default = column.defaultValue()
        if default is not None:
            name = str(column.name())
            defaults[name] = constant_of(jvm, default, name, column.dataType())
    return {name: value for name, value in defaults.items() if value is not None}


def constant_of(jvm: Jvm, default: Any, name: str, type_: Any) -> object:
    """Return the value of a default of Spark's JVM; None for null.

    Args:
        jvm: The JVM of the session.
        default: The default.
        name: Name of its column.
        type_: Type of its column, of Spark's JVM.

    Raises:
        InvalidInputError: The default is not a plain constant.
    """
    literal = default.getValue()
    if literal is not None and not _is_moving(str(default.getSql())):
        if literal.value() is None:
            return None
        constant = _constant(*_converted(jvm, literal, type_))
        if constant is not None:
            return constant
    raise InvalidInputError(
        f"Column {name!r} has the default {default.getSql()}.",
        hint="A single value that stays the same can be a default: a finite number, a text, a truth "
        "value, a date or a time.",
    )


def _converted(jvm: Jvm, literal: Any, type_: Any) -> tuple[Any, str]:
    """Return the value of a literal as a type has it, and the name of the type."""
    value, type_name, wanted = literal.value(), str(literal.dataType().typeName()), type_.typeName()
    is_text = type_name.startswith("string") and wanted.startswith(_TEXTS)
    if type_name == wanted or is_text:
        return value, type_name
    # Spark 4.0 hands over the literal as written, such as the decimal 0.1 for a FLOAT.
    return jvm.cast_literal(literal, type_), str(wanted)


def _constant(value: Any, type_name: str) -> object | None:
    """Return a value of Spark's own form in Python; None if it cannot be a default."""
    if type_name.startswith("string"):
        return str(value.toString())
    if type_name.startswith("decimal"):
        return Decimal(str(value.toString()))
    match type_name:
        case "date":
            return EPOCH.date() + dt.timedelta(days=int(value))
        case "timestamp":
            return from_micros(int(value))
        case "timestamp_ntz":
            return from_micros(int(value)).replace(tzinfo=None)
        case "binary":
            return bytes(value)
    is_plain = type_name in _PLAIN and not (isinstance(value, float) and not math.isfinite(value))
    return value if is_plain else None


def _is_moving(text: str) -> bool:
    """Return whether a default may have another value later: Spark computes `current_date()` at once."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_condition(text)
    except SqlglotError:
        return True
    return any(
        not isinstance(part, exp.Cast) or part.this.name.lower().strip() in _MOVING_WORDS
        for part in tree.find_all(exp.Func)
    )


def functions_of(transforms: Iterable[Any]) -> tuple[PartitionFunction, ...]:
    """Return the partition functions that PARTITIONED BY names.

    Raises:
        InvalidInputError: A transform has no counterpart.
    """
    return tuple(_function_of(transform) for transform in transforms)


def _function_of(transform: Any) -> PartitionFunction:
    kind = str(transform.name())
    references = list(transform.references())
    if len(references) == 1:
        source = ".".join(references[0].fieldNames())
        match kind:
            case "identity":
                return Identity(source=source, name=Identity.default_name(kind, source))
            case "years":
                return CalendarPart(source=source, name=f"{source}_year", part="year")
            case "months":
                return DateFormat(source=source, name=f"{source}_month", format=_MONTH)
            case "days":
                return Date(source=source, name=f"{source}_day")
            case "hours":
                return DateFormat(source=source, name=f"{source}_hour", format=_HOUR)
            case "bucket":
                count = int(transform.arguments()[0].value())
                return Hash(source=source, name=f"{source}_hash", buckets=count)
    raise InvalidInputError(
        f"Cannot partition a dataset by {transform.toString()}.",
        hint="Write columns, years(c), months(c), days(c), hours(c) or bucket(n, c); or create the "
        "dataset in Python, by lake.create(name, schema, partition_by=...), which has more.",
    )


def transforms_of(jvm: Jvm, layout: Layout) -> Any:
    """Return the partitions of a dataset as Spark's transforms."""
    expressions = jvm.connector.expressions
    to = expressions.Expressions
    transforms = []
    for function in layout.descriptor.partition_by:
        name = function.source if function.takes_source else function.name
        # Spark parses the names of partitions.
        source = ".".join(quoted_name(part) for part in name.split("."))
        match function:
            case Hash(buckets=buckets):
                transforms.append(to.bucket(buckets, jvm.to_texts([source])))
            case Date():
                transforms.append(to.days(source))
            case CalendarPart(part="year"):
                transforms.append(to.years(source))
            case DateFormat(format="yyyy-MM"):
                transforms.append(to.months(source))
            case DateFormat(format="yyyy-MM-dd-HH"):
                transforms.append(to.hours(source))
            case Identity():
                transforms.append(to.identity(source))
            case _ if not function.takes_source:
                transforms.append(to.identity(source))
            case _:
                column = jvm.to_array(expressions.Expression, [to.column(source)])
                transforms.append(to.apply(function.type_name, column))
    return jvm.to_array(expressions.Transform, transforms)


def check_same_partitions(
    name: str, wanted: Sequence[PartitionFunction], existing: Sequence[PartitionFunction]
) -> None:
    """Check that a replaced table keeps its partitions; their names do not matter.

    Raises:
        InvalidInputError: They differ.
    """
    if [replace(one, name="level") for one in wanted] == [
        replace(one, name="level") for one in existing
    ]:
        return
    before, after = (
        ", ".join(one.call for one in functions) or "none" for functions in (existing, wanted)
    )
    raise InvalidInputError(
        f"Cannot replace {name!r}: its partitions are {before}, and the new ones are {after}.",
        hint="Name the same partitions, or DROP TABLE … PURGE, which ends the history.",
    )
