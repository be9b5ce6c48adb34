"""Spark frames of Arrow tables, rows as text to compare them, and what a query has read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql.types import StructType

import lakebed
from lakebed.model.spark_types import schema_to_spark
from lakebed.spark.session import is_classic


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


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def files_read(frame: Any) -> int:
    """Run a query, and say how many files its scans took; on Connect the test ends here."""
    if not is_classic(frame.sparkSession):
        pytest.skip("Not on Spark Connect: nobody can look at the plan on Connect")
    frame.collect()
    waiting, count = [frame._jdf.queryExecution().executedPlan()], 0
    while waiting:
        plan = waiting.pop()
        name = plan.getClass().getSimpleName()
        if name == "AdaptiveSparkPlanExec":
            waiting.append(plan.executedPlan())
        elif name.endswith("QueryStageExec"):
            waiting.append(plan.plan())
        elif name == "FileSourceScanExec":
            count += plan.metrics().apply("numFiles").value()
        waiting += [plan.children().apply(i) for i in range(plan.children().size())]
    return count
