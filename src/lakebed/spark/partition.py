"""Partition functions as Spark columns.

Spark computes what it can compute exactly, whatever the session's time zone: numbers, days and
the calendar. The rest goes through the Arrow face in Python: texts in Java's order or hash codes,
bits of floats, patterns of times.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.partition import (
    CalendarPart,
    Date,
    Dimension,
    FixedRange,
    Hash,
    Identity,
    PartitionFunction,
    Provided,
    Range,
    Values,
)
from lakebed.model.partition.function import kind_of
from lakebed.model.schema import Field, Kind, Schema, Type, dotted_types, path_of
from lakebed.model.values import TIMES, Scalar
from lakebed.spark.answers import read_error, write_error
from lakebed.spark.dimension import dimension_column
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import Column

_INTEGERS = frozenset({Kind.INT, Kind.LONG})
_REFUSAL = "lakebed refuses "
_LEAST_LONG = -(2**63)
# Days since 1970 of 0000-03-01, and days of 400 years, after which the calendar repeats itself.
_CYCLE_START, _CYCLE_DAYS = -719_468, 146_097


def partition_column(
    function: PartitionFunction, schema: Schema, provided: Mapping[str, Scalar] | None = None
) -> Column:
    """Return what `PartitionFunction.array` gives of a frame's column, row by row.

    A value without a partition, such as one above the last bound of a range, fails the Spark job
    that computes the column. Run that job inside `refusals_as_errors`, and it fails with the error
    that the other faces raise.

    Args:
        function: Of a strategy that fits the schema.
        schema: The dataset's; the frame has its fields, of types that cast to theirs.
        provided: The values of provided partition fields.

    Returns:
        A column of the function's result type, made of public PySpark alone.

    Raises:
        PartitionSpecError: The value of a provided field is missing.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    kind = function.source_type(schema)
    result = function.result_type(kind)
    if isinstance(function, Provided):
        if function.name not in (provided or {}):
            raise PartitionSpecError(
                f"Partition field {function.name!r} gets its value with each write, and has none.",
                hint=f"Write through a view that sets it, as in with_({function.name!r}, …).",
            )
        return F.lit((provided or {})[function.name]).cast(_spark_type(result))
    kinds = dotted_types(schema)
    path = path_of(function.source, kinds)
    column = F.col(".".join(f"`{part}`" for part in path)).cast(_spark_type(kind))
    if isinstance(function, Dimension):
        return dimension_column(function, column, kind)
    if isinstance(function, Identity):
        return column
    found = _native(function, column, kind)
    if found is None:
        found = _through_python(function, column, kind, result)
    return F.when(column.isNotNull(), found.cast(_spark_type(result)))


@contextlib.contextmanager
def refusals_as_errors() -> Iterator[None]:
    """Raise the refusal of a value inside a Spark job as the error of ours that it is.

    For whoever computes columns of `partition_column`, which Lakebed's own writer does not: its
    tasks answer with their errors.

    Raises:
        PartitionSpecError: A partition function has no partition for a value.
    """
    try:
        yield
    except Exception as exc:
        _, mark, rest = str(exc).partition(_REFUSAL)
        if not mark:
            raise
        text = json.dumps(json.JSONDecoder().raw_decode(rest)[0])
        raise read_error(text) from exc


def _spark_type(kind: Type) -> str:
    fields = (Field(name="value", type=kind),)
    return struct_type(Schema(fields=fields)).fields[0].dataType.simpleString()


def _native(function: PartitionFunction, column: Column, kind: Type) -> Column | None:
    """Return the partition value of what is not null, or None if Spark cannot compute it."""
    match function:
        case Hash():
            return _hash(function, column, kind)
        case FixedRange():
            return _fixed_range(function, column.cast("long"))
        case Range() if kind_of(kind) in _INTEGERS:
            return _range(function, column, kind)
        case Values():
            return _values(function, column, kind)
        case Date() if kind_of(kind) is Kind.DATE:
            return column
        case Date() | CalendarPart():
            return _calendar(function, column, kind)
    return None


def _hash(function: Hash, column: Column, kind: Type) -> Column | None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    match kind_of(kind):
        case Kind.BOOLEAN:
            return F.when(column, 1231 % function.buckets).otherwise(1237 % function.buckets)
        case Kind.INT:
            code = column
        case Kind.DATE:
            code = F.unix_date(column)
        case Kind.LONG | Kind.TIMESTAMP | Kind.TIMESTAMP_NTZ:
            ticks = _ticks(column, kind)
            code = ticks.bitwiseXOR(F.shiftrightunsigned(ticks, 32))
        case _:
            return None
    return code.cast("long").bitwiseAND(F.lit(0x7FFFFFFF)) % function.buckets


def _fixed_range(function: FixedRange, number: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    size, least = F.lit(function.size).cast("long"), F.lit(str(_LEAST_LONG)).cast("long")
    remainder = number % size
    steps = F.when(remainder < 0, remainder + size).otherwise(remainder)
    return F.when(number < least + steps, least).otherwise(number - steps)


def _range(function: Range, number: Column, kind: Type) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    bounds = F.array(*[F.lit(bound).cast("long") for bound in function.bounds])
    below = F.size(F.filter(bounds, lambda bound: bound < number))
    fits = number <= F.lit(function.bounds[-1]).cast("long")
    return F.when(fits, below).otherwise(_refuse(function, number, kind))


def _values(function: Values, column: Column, kind: Type) -> Column | None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if kind_of(kind) is Kind.STRING:
        return None
    found = F.lit(None).cast("int")
    # The first set wins, so that it is asked first: the last condition that is added.
    for index, members in reversed(list(enumerate(function.sets))):
        wide = [F.lit(member).cast("long") for member in members]
        found = F.when(column.isin(*wide), index).otherwise(found)
    return F.coalesce(found, _refuse(function, column, kind).cast("int"))


def _calendar(function: Date | CalendarPart, column: Column, kind: Type) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    ticks, a_day = _ticks(column, kind), function.ticks_a_day(kind)
    part = function.type_name
    if part in ("hour", "minute"):
        of_day = F.pmod(ticks, F.lit(a_day).cast("long"))
        number = _floor(of_day, a_day // (24 if part == "hour" else 1440))
        return number if part == "hour" else number % 60
    days = _floor(ticks, a_day)
    if part == "date":
        found = F.date_add(F.lit(dt.date(1970, 1, 1)), days.cast("int"))
    else:
        # A day of the same place in a cycle that Spark's dates hold, however far the real one is.
        shifted = days - _CYCLE_START
        of_cycle = F.pmod(shifted, F.lit(_CYCLE_DAYS).cast("long")).cast("int")
        day = F.date_add(F.lit(dt.date(2000, 3, 1)), of_cycle)
        found = {"year": F.year, "month": F.month, "day": F.day}[part](day)
        if part == "year":
            found = found + (_floor(shifted, _CYCLE_DAYS) - 5) * 400
    limits = function.limits(kind)
    if limits is None:
        return found
    low, high = (F.lit(str(limit)).cast("long") for limit in limits)
    return F.when(ticks.between(low, high), found).otherwise(_refuse(function, ticks, kind))


def _ticks(column: Column, kind: Type) -> Column:
    """Return a number as long, and a time as whole days or microseconds since 1970."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    match kind_of(kind):
        case Kind.DATE:
            return F.unix_date(column).cast("long")
        case Kind.TIMESTAMP:
            return F.unix_micros(column)
        case Kind.TIMESTAMP_NTZ:
            # Part by part, since to be a count it would become a time in the session's zone.
            days = F.unix_date(column.cast("date")).cast("long")
            minutes = (days * 24 + F.hour(column)) * 60 + F.minute(column)
            micros = F.date_part(F.lit("SECOND"), column) * 1_000_000
            return minutes * 60_000_000 + micros.cast("long")
    return column.cast("long")


def _floor(number: Column, divisor: int) -> Column:
    """Divide whole numbers, downwards: Spark's own division is inexact, or goes towards zero."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    by = F.lit(divisor).cast("long")
    return F.call_function("div", number, by) - (number % by < 0).cast("long")


class _Here:
    """Stands for the value in the text of a refusal."""

    text = "<value>"

    def __repr__(self) -> str:
        return self.text


def _refuse(function: PartitionFunction, number: Column, kind: Type) -> Column:
    """Return a column that fails wherever it is asked for."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    error = write_error(function.refusal(_Here(), kind))  # type: ignore[arg-type]  # for its repr
    before, _, after = error.partition(_Here.text)
    return F.raise_error(F.concat(F.lit(_REFUSAL + before), number.cast("string"), F.lit(after)))


def _through_python(
    function: PartitionFunction, column: Column, kind: Type, result: Type
) -> Column:
    import pandas as pd
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention
    from pyspark.sql.pandas.functions import pandas_udf

    arrow = type_to_arrow(kind)
    name = kind_of(kind)
    if name in _INTEGERS or name in TIMES:
        # pandas would turn whole numbers with nulls into floats; where null is, the result is not
        # looked at.
        column = F.coalesce(_ticks(column, kind), F.lit(0).cast("long"))
    elif name in (Kind.FLOAT, Kind.DOUBLE):
        column = F.coalesce(column, F.lit(0.0))
    elif name is Kind.UNSIGNED_LONG:
        column = column.cast("string")

    def run(values: pd.Series) -> pd.Series:
        given = pa.array(values.to_numpy(), from_pandas=name not in (Kind.FLOAT, Kind.DOUBLE))
        if name is Kind.DATE:
            given = given.cast(pa.int32())
        try:
            image: pd.Series = function.array(given.cast(arrow), kind).to_pandas()
        except PartitionSpecError as exc:
            raise RuntimeError(f"{_REFUSAL}{write_error(exc)}") from exc
        return image

    # Spark resolves annotations by the names of the module, which has no pandas.
    run.__annotations__ = {"values": pd.Series, "return": pd.Series}
    found: Column = pandas_udf(run, _spark_type(result))(column)  # type: ignore[call-overload]  # as documented
    return found
