"""Work of the tasks of a writer, and their messages to the process that commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from lakebed.arrow.kernel import BatchTarget, write_batches
from lakebed.errors import LakebedError
from lakebed.spark.task_results import encode_result, results, write_error
from lakebed.state.written import Written
from lakebed.store.base import Store


@dataclass
class TaskMessage(WriterCommitMessage):
    """Files that a task has written, or its error.

    An error of Lakebed is a message too, since Spark would only retry the task.

    Attributes:
        answer: A `Written` in the form of `encode_result`.
        error: An error in the form of `write_error`.
    """

    answer: bytes | None = None
    error: str | None = None


def write_in_task(
    store: Store, target: BatchTarget, batches: Iterable[pa.RecordBatch]
) -> TaskMessage:
    """Write the rows of a task; its files are deleted if it fails."""
    try:
        written = write_batches(store, target, batches)
    except LakebedError as exc:
        return TaskMessage(error=write_error(exc))
    return TaskMessage(answer=encode_result(written))


def written_by(messages: Sequence[WriterCommitMessage | None]) -> Iterator[Written]:
    """Yield the results of tasks, then raise the first error of a task.

    Raises:
        LakebedError: The error of a task.
    """
    return results((one for one in messages if isinstance(one, TaskMessage)), Written)
