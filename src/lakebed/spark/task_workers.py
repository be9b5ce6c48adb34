"""Spark tasks as workers; see `lakebed.arrow.workers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pyarrow as pa

from lakebed.arrow.workers import Threads, Workers
from lakebed.common.progress import NO_PROGRESS
from lakebed.errors import LakebedError
from lakebed.spark.raw_files import Parallelism
from lakebed.spark.session import described, get_session
from lakebed.spark.task_results import ANSWER, answer, refusal, results
from lakebed.spark.travel import in_tasks
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def workers_for(
    spark: SparkSession | Literal[True] | None,
    store: Store,
    *,
    threads: int,
    purpose: str = "work on files",
) -> Workers:
    """Return Spark tasks; threads without a session, or if tasks cannot access the store.

    Args:
        spark: The session; True for the running one.
        store: The store that holds the dataset.
        threads: Number of threads otherwise.
        purpose: Description of the jobs, such as "compact flights".
    """
    if spark is None or not store.is_shared:
        return Threads(threads)
    return Tasks(get_session(None if spark is True else spark), purpose)


class Tasks(Workers):
    """Tasks of a session, one per item."""

    def __init__(self, spark: SparkSession, purpose: str) -> None:
        """Use some tasks per core of the cluster."""
        self._spark = spark
        self._purpose = purpose
        self._raised: list[BaseException] = []  # by listeners
        self._parallelism = Parallelism.of(spark)
        self.count = self._parallelism.task_count

    def count_for(self, size_bytes: int, file_count: int) -> int:
        """Return the number of tasks for some files; see `Workers.count_for`."""
        return self._parallelism.tasks_for(size_bytes, file_count)

    def map(
        self,
        task: Callable[[_Item], _Result],
        items: Sequence[_Item],
        kind: type[_Result],
    ) -> Iterator[_Result]:
        """Yield the results of `task`; see `Workers.map`. Its variables are sent to all tasks.

        Cost:
            One Spark job with one task per item.
        """
        if not items:
            return

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    message = _message(task, items[number])
                    yield message.append_column("number", pa.array([number], pa.int64()))

        numbers = self._spark.range(0, len(items), 1, len(items))
        with described(self._spark, self._purpose):
            rows = in_tasks(numbers, run, f"{ANSWER}, number long").collect()
        yield from results(sorted(rows, key=lambda row: row.number), kind)
        if self._raised:
            raise self._raised.pop(0)

    def share_of(self, memory_bytes: int) -> int:
        """Return all of it: each task has a process of its own."""
        return memory_bytes

    def listening(self, listener: Callable[..., None]) -> Callable[..., None]:
        """Return a function that adds to an accumulator; on Connect, it does nothing."""
        if listener is NO_PROGRESS:
            return NO_PROGRESS
        # Imported here: it needs pyspark, which is installed, since there is a session.
        from lakebed.spark.accumulated import accumulator_of

        def listen(*report: Any) -> None:
            # Called by a thread of Spark's, which must not end: `map` raises the error.
            if not self._raised:
                try:
                    listener(*report)
                except BaseException as exc:  # noqa: BLE001 - see above
                    self._raised.append(exc)

        return accumulator_of(self._spark, listen) or NO_PROGRESS


def _message(task: Callable[[_Item], object], item: _Item) -> pa.RecordBatch:
    try:
        return answer(task(item))
    except LakebedError as exc:
        return refusal(exc)
