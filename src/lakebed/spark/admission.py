"""Dimensions as Spark columns, and the choice of the values that a Spark write admits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.conform import Conformer
from lakebed.arrow.formats.submissions import with_document_fields
from lakebed.arrow.kernel import BatchTarget
from lakebed.errors import InvalidInputError
from lakebed.model.allowed import OTHER, TOKENS, UNKNOWN, AnyValue, Between, OneOf
from lakebed.model.partition import Dimension
from lakebed.model.schema import Field, Kind, Primitive, Schema, Type, dotted_types
from lakebed.spark.column import column_of, literal
from lakebed.spark.travel import in_tasks, travelling
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_STRING = Primitive(Kind.STRING)


def with_admitted(frame: DataFrame, target: BatchTarget) -> BatchTarget:
    """Return the target with all values that may have a partition; tasks admit no others.

    Tasks cannot see one another. So the most frequent values are admitted here, up to the caps. All
    other values go to `OTHER` in the tasks, even if the frame has other rows each time that it is
    computed.

    Cost:
        One Spark job over the sources of the dimensions, if one has room left; the driver
        receives at most as many values as the caps allow.
    """
    descriptor = target.descriptor
    caps = descriptor.partition_by.caps(descriptor.schema)
    if not caps:
        return target
    room = {name: cap - len(target.admitted.get(name, ())) for name, cap in caps.items()}
    values_by_name = {name: set(target.admitted.get(name, ())) for name in caps}
    wanted = [
        function
        for function in descriptor.partition_by
        if isinstance(function, Dimension) and room.get(function.name, 0) > 0
    ]
    if wanted:
        read = _pairs_of_documents if descriptor.format == "submissions" else _pairs
        for name, value in _most_frequent(read(frame, wanted, target), target, room):
            values_by_name[name].add(value)
    admitted = {name: frozenset(values) for name, values in values_by_name.items()}
    return replace(target, admitted=admitted, admitting_writers=0)


def _pairs(frame: DataFrame, wanted: list[Dimension], target: BatchTarget) -> DataFrame:
    """Return a row of `name` and `value` for each row and dimension."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    schema = target.descriptor.schema
    pairs = [
        F.struct(F.lit(function.name).alias("name"), _value(function, schema).alias("value"))
        for function in wanted
    ]
    return frame.select(F.explode(F.array(*pairs)).alias("pair")).select("pair.name", "pair.value")


def _value(function: Dimension, schema: Schema) -> Column:
    """Return a dimension of a frame, whose source casts to the type that the schema gives it."""
    kind = function.source_type(schema)
    (field,) = struct_type(Schema(fields=(Field(name="value", type=kind),))).fields
    source = column_of(function.source, dotted_types(schema)).cast(field.dataType)
    return dimension_column(function, source, kind)


def _pairs_of_documents(
    frame: DataFrame, wanted: list[Dimension], target: BatchTarget
) -> DataFrame:
    """Return the same for submissions, whose fields are in their documents."""
    descriptor, provided = target.descriptor, target.provided
    names = [function.name for function in descriptor.partition_by]
    chosen = {function.name for function in wanted}

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            try:
                rows = with_document_fields(batch, descriptor)
                rows = Conformer(rows.schema, descriptor).conform(rows)
                columns = descriptor.partition_by.arrays(rows, descriptor.schema, provided)
            except InvalidInputError:
                continue  # the write itself will report it
            for name, column in zip(names, columns, strict=True):
                if name in chosen:
                    repeated = pa.repeat(pa.scalar(name), len(column))
                    yield pa.record_batch({"name": repeated, "value": column})

    return in_tasks(frame, run, "name string, value string")


def _most_frequent(
    pairs: DataFrame, target: BatchTarget, room: dict[str, int]
) -> list[tuple[str, str]]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    counted = pairs.where(~F.col("value").isin(*TOKENS)).groupBy("name", "value").count()
    in_turn = Window.partitionBy("name").orderBy(F.col("count").desc(), F.col("value"))
    is_kept = F.lit(False)  # noqa: FBT003 - Spark's signature
    for name in (name for name, places in room.items() if places > 0):
        admitted = target.admitted.get(name, ())
        # Values that have a partition do not count; they are filtered out here, since a filter on
        # so many values is less work than ranking them.
        is_new = ~F.col("value").isin(*admitted) if admitted else F.lit(True)  # noqa: FBT003
        counted = counted.where((F.col("name") != name) | is_new)
        is_kept = is_kept | ((F.col("name") == name) & (F.col("turn") <= room[name]))
    ranked = counted.select("name", "value", F.row_number().over(in_turn).alias("turn"))
    return [(row["name"], row["value"]) for row in ranked.where(is_kept).collect()]


def dimension_column(function: Dimension, column: Column, kind: Type) -> Column:
    """Return the result of `Dimension.array` for a column, as a Spark column.

    Regular expressions, and texts that are read as numbers or days, go through Python: Spark's
    own engine has another dialect and no time limit, and its casts have other rules.

    Args:
        function: Partition function of the dimension.
        column: Column with the declared type of the source.
        kind: Declared type of the source.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    text = column.cast("string")
    allowed = _allowed(function, column, kind)
    if allowed is None:
        return _through_python(function, column)
    # \A and \z: a dollar sign also matches before a final newline.
    escaped = F.when(text.rlike(r"\A~*(OTHER|UNKNOWN)\z"), F.concat(F.lit("~"), text)).otherwise(
        text
    )
    plain = F.length(F.regexp_replace(escaped, "[^A-Za-z0-9_.~-]", ""))
    # Percent-encoded, a byte of any other letter takes three.
    fits = F.octet_length(escaped) * 3 - plain * 2 <= function.room_bytes
    return (
        F.when(column.isNull(), F.lit(UNKNOWN))
        .when(allowed & fits, escaped)
        .otherwise(F.lit(OTHER))
    )


def _allowed(function: Dimension, column: Column, kind: Type) -> Column | None:
    """Return the condition that a value is allowed; None if Spark cannot evaluate it."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    match function.bound(kind):
        case AnyValue():
            return F.lit(True)  # noqa: FBT003 - Spark's signature
        case OneOf(values):
            if not values:
                return F.lit(False)  # noqa: FBT003 - Spark's signature
            return column.isin(*[literal(value, kind) for value in values])
        case Between(read_as=None) as ends:
            condition = F.lit(True)  # noqa: FBT003 - Spark's signature
            if ends.min is not None:
                condition = condition & (column >= literal(ends.min, kind))
            if ends.max is not None:
                condition = condition & (column <= literal(ends.max, kind))
            return condition
    return None


def _through_python(function: Dimension, column: Column) -> Column:
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def values_of(texts: pd.Series) -> pd.Series:
        given = pa.Array.from_pandas(texts, type=pa.string())
        values: pd.Series = function.array(given, _STRING).to_pandas()
        return values

    run = travelling(values_of)
    # Spark resolves annotations by the names of the module, which has no pandas.
    run.__annotations__ = {"argument": pd.Series, "return": pd.Series}
    return pandas_udf(run, "string")(column)  # type: ignore[call-overload,no-any-return]  # as documented
