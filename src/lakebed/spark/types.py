"""Schemas as Spark's own objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.model.schema import Schema
from lakebed.model.spark_types import schema_to_spark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def struct_type(schema: Schema) -> StructType:
    """Return a schema as a StructType."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(schema_to_spark(schema))
