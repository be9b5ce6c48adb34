"""Dimensions as Spark columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.model.allowed import OTHER, UNKNOWN, AnyValue, Between, OneOf
from lakebed.model.partition import Dimension
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.spark.column import literal
from lakebed.spark.travel import travelling

if TYPE_CHECKING:
    from pyspark.sql import Column

_STRING = Primitive(Kind.STRING)


def dimension_column(function: Dimension, column: Column, kind: Type) -> Column:
    """Return what `Dimension.array` gives of a column, as Spark computes it.

    Regular expressions, and texts that are read as numbers or days, go through Python: Spark's
    own engine has another dialect and no bound on its time, and its casts have other rules.

    Args:
        function: The dimension.
        column: Of the declared type of the source.
        kind: That type.
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
    """Return the condition that a value is allowed; None if Spark cannot say."""
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
