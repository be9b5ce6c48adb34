"""Spark frames of Arrow tables, and rows as text to compare them."""

import datetime as dt

from pyspark.sql.types import StructType

import lakebed
from lakebed.model.spark_types import schema_to_spark


def frame_of(spark, data):
    schema = lakebed.DatasetDescriptor(schema=data.schema).schema
    return spark.createDataFrame(data, StructType.fromJson(schema_to_spark(schema)))


def comparable(found):
    """Rows as text, so that NaN equals itself, in any order."""
    return sorted(repr(_plain(row)) for row in found.to_pylist(maps_as_pydicts="strict"))


def spark_rows(frame):
    return comparable(frame.toArrow())


def _plain(value):
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in sorted(value.items())}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dt.datetime) and value.tzinfo:
        return value.astimezone(dt.UTC).isoformat()
    return value
