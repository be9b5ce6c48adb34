"""Few rows of a Spark frame: the driver writes them, and no Python need start for it.

A task of Python costs more than to write a hundred rows: its process starts and imports, and rows
of many partitions travel once more. So rows come to the driver instead, in two cases. Where the
plan *proves* that there are few, Spark collects them, and no task of ours runs at all. Where it
does not, each task sees how many rows it has: it gives few of them to the driver in its answer, and
writes more by itself.

The query of the caller runs once in each case, since it may give other rows each time. What the
driver receives is bounded: by the proof, or by the number of tasks that may give rows times what
each may give.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A task of few rows imports this module of Lakebed and `jars`, and no other: the kernel takes longer
# to load than to write them.

FEW_ROWS = 2_000
_FEW_BYTES = 256 * 2**10  # of a task
_GIVING_TASKS = 64  # the first of them; so that the driver receives at most 16 MiB

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def rows_if_few(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a frame that surely has few; None of any other, and then nothing has run.

    Cost:
        To look at the plan; where it has few rows, the Spark job of the frame itself.
    """
    bound = _bound(frame)
    if bound is not None:
        if bound > FEW_ROWS or (_may_be_large(frame) and not _is_local(frame)):
            return None
        return frame.toArrow()
    if not _is_local(frame):
        return None
    # Its rows are values in the plan: there is no query that could run twice.
    rows = frame.limit(FEW_ROWS + 1).toArrow()
    return rows if rows.num_rows <= FEW_ROWS else None


def _may_be_large(frame: DataFrame) -> bool:
    """Whether rows of a frame hold bytes, such as images: few of them may be more than a driver takes.

    A task looks at their size before it gives them.
    """
    return '"binary"' in frame.schema.json()


def _bound(frame: DataFrame) -> int | None:
    """Return how many rows a frame has at most, as its plan proves it; None if nobody knows.

    It is what lets Spark's optimizer take a limit out of a plan, and no estimate. Without a JVM in
    this process, as on Spark Connect, nobody can be asked.
    """
    try:
        bound = frame._jdf.queryExecution().analyzed().maxRows()
        return int(bound.get()) if bound.isDefined() else None
    except Exception:  # noqa: BLE001 - internals of Spark, which each release may change
        return None


def _is_local(frame: DataFrame) -> bool:
    """Whether the rows of a frame are values that its plan holds."""
    try:
        return frame.isLocal()
    except Exception:  # noqa: BLE001 - what is wrong with the frame shows when it is used
        return False


def giving_few(task: Task, message: pa.Schema) -> Task:
    """Return a task that gives few rows to the driver, and leaves more of them to another task.

    What the other task needs is loaded only where it runs.

    Args:
        task: That takes what is more.
        message: The columns of its messages. Rows come as the `answer` of one: as what
            `lakebed.spark.tasks.TaskAnswer` is on the wire.
    """
    from pyspark import cloudpickle

    pickled = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]  # of pyspark

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting = iter(batches)
        first, is_few = _first(waiting)
        if not is_few:
            yield from pickle.loads(pickled)(itertools.chain(first, waiting))
        elif first:
            yield _giving(first, message)

    return run


def _first(waiting: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """Return the first batches that hold rows, and whether they are all, and few."""
    first: list[pa.RecordBatch] = []
    if not _may_give():
        return first, False
    row_count = size_bytes = 0
    for batch in waiting:
        if batch.num_rows:
            first.append(batch)
            row_count += batch.num_rows
            size_bytes += batch.nbytes
        if row_count > FEW_ROWS or size_bytes > _FEW_BYTES:
            return first, False
    return first, True


def _may_give() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.partitionId() < _GIVING_TASKS


def _giving(batches: Sequence[pa.RecordBatch], message: pa.Schema) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    given = msgspec.msgpack.encode({"rows": memoryview(sink.getvalue())})
    columns = [
        pa.array([given if field.name == "answer" else None], field.type) for field in message
    ]
    return pa.RecordBatch.from_arrays(columns, schema=message)
