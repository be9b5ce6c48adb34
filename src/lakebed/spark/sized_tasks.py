"""Frames whose rows tasks read from files, with the size of the files for Spark's planner.

The tasks receive lists of files. Spark would estimate the size of the rows by the size of the list,
some bytes, and broadcast the rows in each join, however many they are.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from lakebed.spark.session import is_classic
from lakebed.spark.spark_errors import spark_errors
from lakebed.spark.travel import in_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from lakebed.spark.few import Task

_log = logging.getLogger(__name__)

_THRESHOLD = "spark.sql.autoBroadcastJoinThreshold"
_BYTES = re.compile(r"\s*(-?\d+)\s*([kmgtp]?)i?b?\s*", re.I)
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_UNKNOWN_BYTES = 2**60  # near Spark's own default, the largest long; it multiplies sizes in a join
_ROW_BYTES = 8  # what Spark adds for a row


def in_sized_tasks(
    frame: DataFrame,
    task: Task,
    schema: str | StructType,
    size_bytes: int | None,
    *,
    task_count: int | None = None,
) -> DataFrame:
    """Return the rows that tasks read, as `in_tasks`, with a size for Spark's planner.

    In a classic session, Spark learns the size. Elsewhere, a hint keeps it from a broadcast of more
    than `spark.sql.autoBroadcastJoinThreshold`.

    Args:
        frame: List that the tasks receive, such as names of files. It has no shuffle.
        task: Function that reads the rows.
        schema: Schema of the rows.
        size_bytes: Size of what is read; None if it is unknown, then it is not broadcast.
        task_count: Number of tasks to shuffle the list to; None to leave its partitions.

    Cost:
        No Spark job.
    """
    spark = frame.sparkSession
    listed = _with_size(spark, frame, size_bytes)
    chosen = frame if listed is None else listed
    rows = in_tasks(chosen if task_count is None else chosen.repartition(task_count), task, schema)
    return rows if listed is not None else _hinted(spark, rows, size_bytes)


def hinted(frame: DataFrame, size_bytes: int | None) -> DataFrame:
    """Return a union of frames of `in_sized_tasks` and others, which has lost their hints."""
    spark = frame.sparkSession
    return frame if is_classic(spark) else _hinted(spark, frame, size_bytes)


def _hinted(spark: SparkSession, frame: DataFrame, size_bytes: int | None) -> DataFrame:
    threshold = _threshold_of(spark)
    if threshold is None or (size_bytes is not None and size_bytes <= threshold):
        return frame
    return frame.hint("merge")


def _threshold_of(spark: SparkSession) -> int | None:
    """Return the size up to which Spark broadcasts; None if it never does."""
    parts = _BYTES.fullmatch(spark.conf.get(_THRESHOLD, None) or "10m")
    size = 0 if parts is None else int(parts[1]) * 1024 ** _UNITS[parts[2].lower()]
    return None if size < 0 else size


def _with_size(spark: Any, frame: Any, size_bytes: int | None) -> DataFrame | None:
    """Return the same list, such that the rows read by it have the size; None if that is impossible.

    The interfaces are not public, so they are used only if all of them are found.
    """
    if not is_classic(spark):
        return None
    try:
        return _listed_by_rdd(spark, frame, size_bytes)
    except spark_errors(AttributeError, TypeError) as exc:
        _log.info("no size for the planner in this release of Spark reason=%s", exc)
        return None


def _listed_by_rdd(spark: Any, frame: Any, size_bytes: int | None) -> DataFrame:
    from py4j.protocol import Py4JError

    jvm = spark._jvm
    row_bytes = _ROW_BYTES + frame._jdf.schema().defaultSize()
    wanted = _UNKNOWN_BYTES if size_bytes is None else size_bytes
    # Spark scales the size of a range, 8 bytes for rows of 16, by the size of a row of the list, and
    # takes the size of the list for the size of the rows. One row more, for what it rounds down.
    row_count = 2 * wanted // row_bytes + 1
    sized = spark.range(0, row_count).selectExpr(
        *[
            f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`"
            for field in frame.schema
        ]
    )
    logical = getattr(getattr(jvm.org.apache.spark.sql.execution, "LogicalRDD$"), "MODULE$")
    datasets = getattr(getattr(jvm.org.apache.spark.sql.classic, "Dataset$"), "MODULE$")
    rows = frame._jdf.queryExecution().toRdd()
    try:
        plan = logical.fromDataset(rows, sized._jdf, False, False)  # noqa: FBT003 - Spark's signature
    except Py4JError:  # Spark before 4.3
        plan = logical.fromDataset(rows, sized._jdf, False)  # noqa: FBT003 - Spark's signature
    made: DataFrame = type(frame)(datasets.ofRows(spark._jsparkSession, plan), spark)
    return made


__all__ = ["hinted", "in_sized_tasks"]
