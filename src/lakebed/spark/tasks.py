"""Work of Spark tasks that write: the kernel, and the exchange that brings rows of a partition together.

Rows of many partitions that lie scattered over many tasks would make as many small files as there
are pairs of both. Only a task sees how its rows lie, so that the task decides: it writes its rows,
or gives them on as Arrow streams, each with the rows of one *place*. Spark shuffles these by their
place as bytes, and does not take the rows apart. All rows of a partition have the same place.

Where an executor dies after its tasks have given rows on, Spark runs these once more for those who
have not fetched them yet. The rows may come in another order then, and the task may decide
otherwise: its rows would be there twice, or not at all. So tasks report how many rows they gave on and
how many they were given, and a write in which that differs fails; see `balanced`.
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.arrow.kernel import BatchTarget, KernelWriter, write_batches
from lakebed.errors import ConflictError, LakebedError
from lakebed.spark.few import Task
from lakebed.spark.task_results import (
    ANSWER,
    ANSWER_SCHEMA,
    answer,
    refusal,
    table_from_bytes,
    table_to_bytes,
)
from lakebed.state.written import Written
from lakebed.store.base import Store

PLACED = f"place int, rows binary, {ANSWER}"
PLACED_SCHEMA = pa.schema([("place", pa.int32()), ("rows", pa.binary()), *ANSWER_SCHEMA])

# Of a message between the JVM and a task.
ROWS_A_MESSAGE = 2_000
# A task that writes into up to so many partitions may write for itself.
FEW_PARTITIONS = 32
# Rows in order of time stay in few partitions for so long; scattered ones do not.
_ROWS_TO_DECIDE = 50_000
_BYTES_TO_DECIDE = 32 * 2**20

_PLACES = 256  # the most tasks that scattered rows are gathered by
_BYTES_TO_SORT = 32 * 2**20  # of rows that a task holds before it gives them on
# At most, unless a row is larger: a message to the gathering tasks holds `ROWS_A_MESSAGE` streams,
# and Spark does not measure it.
_BYTES_A_STREAM = 16 * 2**10
_BYTES_TO_WRITE = 2**20  # of streams that the kernel is given at once, for it works by batches


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswer:
    """Answer of a task that writes.

    Attributes:
        written: Files that it has written.
        rows: Rows that it leaves to the driver, as a stream of Arrow's format; see `giving_few`.
        balance: Rows that it has given on, less those that it was given; 0 over all tasks.
    """

    written: Written | None = None
    rows: bytes | None = None
    balance: int = 0


def balanced(answers: Iterable[TaskAnswer]) -> Iterator[TaskAnswer]:
    """Yield the answers of all tasks, and see at the end that each row was written once.

    Raises:
        ConflictError: It was not: Spark has run a task twice, which gave other rows each time.
    """
    balance = 0
    for one in answers:
        balance += one.balance
        yield one
    if balance:
        raise ConflictError(
            "Executors have died, and Spark has run tasks again whose rows others had taken already. "
            f"They gave other rows then: {abs(balance)} "
            f"{'are missing' if balance > 0 else 'came twice'}.",
            hint="Nothing became visible. Write again.",
        )


def writing_task(store: Store, target: BatchTarget) -> Task:
    """Return the task that writes its rows and answers with what it has written."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield answer(TaskAnswer(written=write_batches(store, target, batches)))
        except LakebedError as exc:
            yield refusal(exc)

    return run


def placing_task(store: Store, target: BatchTarget) -> Task:
    """Return the task that writes its rows, or gives them on to `gathering_task`.

    Its output has the columns of `PLACED`.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places = _Places(store, target)
        waiting = iter(batches)
        try:
            first: list[pa.RecordBatch] = []
            gives_on = target.options.cluster or places.are_scattered(waiting, first)
            rows = itertools.chain(first, waiting)
            if not gives_on:
                yield _placed(answer(TaskAnswer(written=write_batches(store, target, rows))))
                return
            given = 0
            for chunk in _chunks(rows, _BYTES_TO_SORT):
                given += sum(batch.num_rows for batch in chunk)
                yield from places.streams(chunk)
            yield _placed(answer(TaskAnswer(balance=given)))
        except LakebedError as exc:
            yield _placed(refusal(exc))

    return run


def gathering_task(store: Store, target: BatchTarget) -> Task:
    """Return the task that writes the rows it is given, and passes answers on."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answers: list[pa.RecordBatch] = []
        given = _without_answers(batches, answers)
        taken = 0

        def rows_of(stream: pa.BinaryScalar) -> list[pa.RecordBatch]:
            nonlocal taken
            table = table_from_bytes(stream.as_buffer())
            taken += table.num_rows
            batches: list[pa.RecordBatch] = table.to_batches()
            return batches

        streams = (
            batch for stream in itertools.chain.from_iterable(given) for batch in rows_of(stream)
        )
        rows = (
            batch
            for chunk in _chunks(streams, _BYTES_TO_WRITE)
            for batch in pa.Table.from_batches(chunk).combine_chunks().to_batches()
        )
        try:
            written = write_batches(store, target, rows)
            yield answer(TaskAnswer(written=written, balance=-taken))
        except LakebedError as exc:
            # The driver must know all files to delete them: also of answers that come later.
            deque(given, maxlen=0)
            yield refusal(exc)
        yield from answers

    return run


def _without_answers(
    batches: Iterable[pa.RecordBatch], answers: list[pa.RecordBatch]
) -> Iterator[pa.Array]:
    """Yield streams of rows, and put what is already an answer aside."""
    for batch in batches:
        mine = batch.filter(batch.column("place").is_null()).select(ANSWER_SCHEMA.names)
        # The session may have asked for large texts and bytes.
        answers.append(mine.cast(ANSWER_SCHEMA))
        yield batch.column("rows").drop_null()


class _Places:
    """Names the task for rows, by the partitions that the kernel finds for them."""

    def __init__(self, store: Store, target: BatchTarget) -> None:
        # It writes nothing: it is asked for the partitions of rows.
        self._kernel = KernelWriter(store, target)
        self._by_number = np.zeros(0, dtype=np.uint16)

    def are_scattered(self, waiting: Iterator[pa.RecordBatch], first: list[pa.RecordBatch]) -> bool:
        """Look at the first rows, and keep them in `first`."""
        row_count = size_bytes = 0
        while row_count < _ROWS_TO_DECIDE and size_bytes < _BYTES_TO_DECIDE:
            batch = next(waiting, None)
            if batch is None:
                break
            first.append(batch)
            self._kernel.checked(batch)
            if len(self._kernel.partitions) > FEW_PARTITIONS:
                return True
            row_count += batch.num_rows
            size_bytes += batch.nbytes
        return False

    def streams(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Give rows on, in the columns of `PLACED`."""
        table = pa.Table.from_batches(batches)
        places = np.concatenate([self._of_rows(batch) for batch in batches])
        order = np.argsort(places, kind="stable")
        columns = [column.combine_chunks().take(pa.array(order)) for column in table.columns]
        rows = pa.Table.from_arrays(columns, schema=table.schema)
        distinct, starts = np.unique(places[order], return_index=True)
        # A stream repeats its schema, which of hundreds of columns is longer than few rows.
        size_bytes = max(_BYTES_A_STREAM, 4 * len(table_to_bytes(rows.slice(0, 0))))
        length = max(1, int(size_bytes * rows.num_rows / max(rows.nbytes, 1)))
        for place, start, end in zip(distinct, starts, [*starts[1:], len(order)], strict=True):
            pieces = [
                table_to_bytes(rows.slice(at, min(length, end - at)))
                for at in range(start, end, length)
            ]
            yield _batch(
                place=pa.array([place] * len(pieces), pa.int32()),
                rows=pa.array(pieces, pa.binary()),
                answer=pa.nulls(len(pieces), pa.binary()),
                error=pa.nulls(len(pieces), pa.string()),
            )

    def _of_rows(self, batch: pa.RecordBatch) -> np.ndarray:
        numbers = self._kernel.checked(batch).numbers
        new = self._kernel.partitions[len(self._by_number) :]
        if new:
            # Not Python's hash, which differs from process to process.
            more = [zlib.crc32(path.encode()) % _PLACES for path in new]
            self._by_number = np.append(self._by_number, np.array(more, dtype=np.uint16))
        return np.broadcast_to(self._by_number[numbers], batch.num_rows)


def _chunks(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Bring batches together, until they have a size."""
    chunk: list[pa.RecordBatch] = []
    room_bytes = size_bytes
    for batch in batches:
        if batch.num_rows:
            chunk.append(batch)
            room_bytes -= batch.nbytes
        if room_bytes <= 0:
            yield chunk
            chunk, room_bytes = [], size_bytes
    if chunk:
        yield chunk


def _placed(message: pa.RecordBatch) -> pa.RecordBatch:
    return _batch(
        place=pa.nulls(1, pa.int32()),
        rows=pa.nulls(1, pa.binary()),
        answer=message.column("answer"),
        error=message.column("error"),
    )


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)
