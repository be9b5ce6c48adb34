"""Work of Spark tasks that write: the kernel, and the exchange that gathers rows of a partition.

Rows of many partitions that are scattered over many tasks would make one small file for each pair
of partition and task. Only a task knows the order of its rows, so the task decides: it writes its
rows, or passes them on as Arrow streams, each with the rows of one *place*. Spark shuffles the
streams by place, as bytes, without decoding the rows. All rows of a partition have the same place,
where one task writes them. A partition with most of the rows would keep that task busy long after
all others, so a task writes its own rows of such a hot partition itself.

If an executor dies after its tasks have passed rows on, Spark runs these tasks again for tasks that
have not fetched the rows yet. The rows may be in another order then, and the task may decide
otherwise: its rows would be written twice, or not at all. So tasks report how many rows they passed
on and how many they received, and a write in which the sums differ fails; see `balanced`.
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

# Rows of a message between the JVM and a task.
ROWS_A_MESSAGE = 2_000
# A task with rows of at most so many partitions may write them itself.
FEW_PARTITIONS = 32
# So many rows in order of time are in few partitions; scattered rows are not.
_ROWS_TO_DECIDE = 50_000
_BYTES_TO_DECIDE = 32 * 2**20

_PLACES = 256  # maximal number of tasks that gather scattered rows
_BYTES_TO_SORT = 32 * 2**20  # of rows that a task holds before it passes them on
# The limit, unless a row is larger: a message to the gathering tasks holds `ROWS_A_MESSAGE`
# streams, and Spark does not measure it.
_BYTES_A_STREAM = 16 * 2**10
_BYTES_TO_WRITE = 2**20  # of streams that the kernel receives at once, since it works by batches
# A partition with so many bytes among the first `_BYTES_TO_SORT` is hot: a file of them is not tiny.
_HOT_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAnswer:
    """Answer of a task that writes.

    Attributes:
        written: Files that it has written.
        rows: Rows that it sends to the driver, as an Arrow stream; see `giving_few`.
        balance: Rows that it has passed on, minus those that it has received; 0 over all tasks.
    """

    written: Written | None = None
    rows: bytes | None = None
    balance: int = 0


def balanced(answers: Iterable[TaskAnswer]) -> Iterator[TaskAnswer]:
    """Yield the answers of all tasks, and check at the end that each row was written once.

    Raises:
        ConflictError: Spark has run a task twice, which produced other rows the second time.
    """
    balance = 0
    for one in answers:
        balance += one.balance
        yield one
    if balance:
        raise ConflictError(
            "Executors died, and Spark has repeated tasks after other tasks had received their "
            f"rows. The repeated tasks produced other rows: {abs(balance)} "
            f"{'are missing' if balance > 0 else 'appear twice'}.",
            hint="Nothing became visible. Write again.",
        )


def writing_task(store: Store, target: BatchTarget) -> Task:
    """Return the task that writes its rows and answers with its files."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield answer(TaskAnswer(written=write_batches(store, target, batches)))
        except LakebedError as exc:
            yield refusal(exc)

    return run


def placing_task(store: Store, target: BatchTarget) -> Task:
    """Return the task that writes its rows, or passes them on to `gathering_task`.

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
            own = KernelWriter(store, target)
            try:
                for chunk in _chunks(rows, _BYTES_TO_SORT):
                    hot, others = places.divided(chunk)
                    for batch in hot:
                        own.write(batch)
                    given += sum(rows.batch.num_rows for rows in others)
                    yield from places.streams(others)
                written = own.finish() if places.has_hot else None
            except BaseException:
                own.abort()
                raise
            yield _placed(answer(TaskAnswer(written=written, balance=given)))
        except LakebedError as exc:
            yield _placed(refusal(exc))

    return run


def gathering_task(store: Store, target: BatchTarget) -> Task:
    """Return the task that writes the rows that it receives, and passes answers on."""

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
            # The driver must know all files to delete them, including those of later answers.
            deque(given, maxlen=0)
            yield refusal(exc)
        yield from answers

    return run


def _without_answers(
    batches: Iterable[pa.RecordBatch], answers: list[pa.RecordBatch]
) -> Iterator[pa.Array]:
    """Yield streams of rows, and set aside the answers of other tasks."""
    for batch in batches:
        mine = batch.filter(batch.column("place").is_null()).select(ANSWER_SCHEMA.names)
        # The session may have asked for large texts and bytes.
        answers.append(mine.cast(ANSWER_SCHEMA))
        yield batch.column("rows").drop_null()


@dataclass(frozen=True, slots=True)
class _PlacedRows:
    """Rows, and the number of the partition of each."""

    batch: pa.RecordBatch
    numbers: np.ndarray


class _Places:
    """Assignment of rows to gathering tasks, by the partitions that the kernel computes."""

    def __init__(self, store: Store, target: BatchTarget) -> None:
        # It writes nothing, and only computes the partitions of rows.
        self._kernel = KernelWriter(store, target)
        self._by_number = np.zeros(0, dtype=np.uint16)
        # Numbers of hot partitions; None until the first rows are known. The caller may want each
        # partition in one file, at the price of one task.
        self._hot = np.zeros(0, dtype=np.int64) if target.options.cluster else None

    def are_scattered(self, waiting: Iterator[pa.RecordBatch], first: list[pa.RecordBatch]) -> bool:
        """Return whether the first rows are scattered, and keep them in `first`."""
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

    @property
    def has_hot(self) -> bool:
        """True if some partitions are hot."""
        return self._hot is not None and len(self._hot) > 0

    def divided(
        self, batches: list[pa.RecordBatch]
    ) -> tuple[list[pa.RecordBatch], list[_PlacedRows]]:
        """Divide rows into those of hot partitions, and others.

        The first rows decide which partitions are hot. So all rows of a partition take one way, and
        a repeated task that decides otherwise passes on another number of rows; see `balanced`.
        """
        placed = [self._place(batch) for batch in batches]
        if self._hot is None:
            numbers = np.concatenate([rows.numbers for rows in placed])
            size_bytes = sum(batch.nbytes for batch in batches)
            counts = np.bincount(numbers)
            self._hot = np.flatnonzero(counts * (size_bytes / len(numbers)) >= _HOT_BYTES)
        if not self.has_hot:
            return [], placed
        hot, others = [], []
        for rows in placed:
            is_hot = np.isin(rows.numbers, self._hot)
            hot.append(rows.batch.filter(pa.array(is_hot)))
            if not is_hot.all():
                kept = rows.batch.filter(pa.array(~is_hot))
                others.append(_PlacedRows(kept, rows.numbers[~is_hot]))
        return [batch for batch in hot if batch.num_rows], others

    def streams(self, placed: list[_PlacedRows]) -> Iterator[pa.RecordBatch]:
        """Pass rows on, in the columns of `PLACED`."""
        if not placed:
            return
        table = pa.Table.from_batches([rows.batch for rows in placed])
        places = np.concatenate([self._by_number[rows.numbers] for rows in placed])
        order = np.argsort(places, kind="stable")
        columns = [column.combine_chunks().take(pa.array(order)) for column in table.columns]
        rows = pa.Table.from_arrays(columns, schema=table.schema)
        distinct, starts = np.unique(places[order], return_index=True)
        # A stream repeats its schema, which with hundreds of columns is longer than few rows.
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

    def _place(self, batch: pa.RecordBatch) -> _PlacedRows:
        numbers = self._kernel.checked(batch).numbers
        new = self._kernel.partitions[len(self._by_number) :]
        if new:
            # Not Python's hash, which differs from process to process.
            more = [zlib.crc32(path.encode()) % _PLACES for path in new]
            self._by_number = np.append(self._by_number, np.array(more, dtype=np.uint16))
        return _PlacedRows(batch, np.broadcast_to(numbers, batch.num_rows))


def _chunks(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Collect batches until they reach a size."""
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
