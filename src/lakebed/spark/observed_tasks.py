"""Observation of tasks: a hook by which telemetry counts what the workers of Spark do.

While nothing observes, tasks are sent as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.spark.few import Task

TaskObserver = Callable[["SparkSession", "Task"], "Task"]
"""Function that returns a task which does the same, and reports to this process."""

OnRowsWritten = Callable[[int], None]
"""Callback that receives the number of rows that a task has written."""

_observers: list[tuple[TaskObserver, OnRowsWritten]] = []


def observe_tasks(observer: TaskObserver, on_rows_written: OnRowsWritten) -> Callable[[], None]:
    """Observe all tasks that are sent from now on; return the function that ends it."""
    entry = (observer, on_rows_written)
    _observers.append(entry)
    return lambda: _observers.remove(entry)


def observed(spark: SparkSession, task: Task) -> Task:
    """Return a task as it is sent: itself, or one that is observed."""
    for observer, _ in _observers:
        task = observer(spark, task)
    return task


def note_rows_written(row_count: int) -> None:
    """Note the rows that a task has written, as its answer reports."""
    for _, on_rows_written in _observers:
        on_rows_written(row_count)
