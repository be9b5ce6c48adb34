"""Schemas as Spark's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.model.schema import Schema
from lakebed.model.spark_types import schema_to_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def struct_type(schema: Schema) -> StructType:
    """Return a schema as a StructType."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(schema_to_spark(schema))


def commented(frame: DataFrame, schema: StructType) -> DataFrame:
    """Return a frame whose columns have the comments of a schema of the same columns."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if not any(field.metadata for field in schema):
        return frame
    return frame.select(
        *[
            F.col(f"`{field.name}`").alias(field.name, metadata=field.metadata)
            if field.metadata
            else F.col(f"`{field.name}`")
            for field in schema
        ]
    )
