"""Rows of each partition, counted by Spark tasks without a write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.conform import check_columns, check_types
from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.partition_counts import (
    PartitionCounts,
    count_by_partition,
    joined_counts,
)
from lakebed.errors import LakebedError
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.admission import with_admitted
from lakebed.spark.few import Task
from lakebed.spark.session import described
from lakebed.spark.task_kernel import check_for_tasks, check_frame, zones_of_frame
from lakebed.spark.task_results import ANSWER, answer, refusal, results
from lakebed.spark.travel import in_tasks
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_frame_by_partition(
    frame: DataFrame, store: Store, target: BatchTarget
) -> PartitionCounts:
    """Return how many rows of a DataFrame a write would put into each partition.

    Raises:
        SchemaMismatchError: The frame or a value in it does not fit.
        WorkerEnvironmentError: Spark's workers run a Python in which Lakebed cannot work.
        LakebedError: A row has no partition, or lies outside the view that is written.

    Cost:
        One Spark job, and before it one over the sources of dimensions with a cap. The driver
        receives a number, and bounds of times, for each partition of each task.
    """
    check_frame(frame)
    check_for_tasks(frame)
    check_columns(tuple(frame.columns), target.descriptor)
    given = schema_from_spark(frame.schema.jsonValue(), target.descriptor.schema)
    check_types(given, target.descriptor)
    if not store.is_shared:
        # Tasks cannot access a store in the memory of this process.
        counts = count_by_partition(store, target, frame.toArrow().to_batches())
        return replace(counts, zones=zones_of_frame(frame, given, target))
    with described(frame.sparkSession, f"count rows by partition of {target.dataset}"):
        target = with_admitted(frame, target)
        answers = in_tasks(frame, _counting_task(store, target), ANSWER).collect()
    counts = joined_counts(results(answers, PartitionCounts))
    return replace(counts, zones=zones_of_frame(frame, given, target))


def _counting_task(store: Store, target: BatchTarget) -> Task:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield answer(count_by_partition(store, target, batches))
        except LakebedError as exc:
            yield refusal(exc)

    return run
