"""Rows that wait for their files.

Batches are kept whole, and sorted by partition all at once: that costs one sort and at most one copy
for thousands of partitions, while a list of small batches for each would take many times their bytes.
Rows that do not fit into memory are kept, sorted, in temporary files until their partitions are
written.
"""

from __future__ import annotations

import bisect
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakebed.errors import StorageError

_CHUNK_BYTES = 2**20  # of a temporary file; one of each file is in memory while partitions are read
# Measured: parts of at least so many rows cost less than a copy of the rows, so long as they are few:
# the rows of each partition are looked for among all parts.
_LONG_PART, _MOST_PARTS = 64, 1_024
# Measured: where the batches, each sorted by itself, have parts of so many rows on average, that takes
# half the time of a sort of all rows, which first puts each column into one array.
_LONG_SORTED_PART = 1_024


@dataclass(frozen=True, slots=True)
class SortedRows:
    """Rows in the order of their partitions.

    Attributes:
        rows: Rows; those of one partition keep their order.
        numbers: Numbers of the partitions that have rows, ascending.
        starts: Begin of each partition, and finally the end of the last one.
    """

    rows: pa.Table
    numbers: np.ndarray
    starts: np.ndarray

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """Yield the number of each partition, its begin and its end."""
        starts = self.starts.tolist()
        return zip(self.numbers.tolist(), starts[:-1], starts[1:], strict=True)


class WaitingRows:
    """Rows in memory, each with the number of its partition."""

    def __init__(self, schema: pa.Schema) -> None:
        """Start without rows."""
        self._schema = schema
        self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self._batches: list[pa.RecordBatch] = []
        self._numbers: list[np.ndarray] = []
        self._has_rows = np.zeros(0, dtype=bool)
        self.size_bytes = 0

    @property
    def partition_count(self) -> int:
        """Number of partitions that have rows."""
        return int(np.count_nonzero(self._has_rows))

    def add(self, rows: pa.RecordBatch, numbers: np.ndarray) -> None:
        """Add rows, at least one.

        Args:
            rows: Rows of the stored schema.
            numbers: Number of the partition of each row, or one number for all.
        """
        self._batches.append(rows)
        self._numbers.append(numbers)
        self.size_bytes += rows.nbytes
        highest = int(numbers.max())
        if highest >= len(self._has_rows):
            more = np.zeros(2 * highest + 1 - len(self._has_rows), dtype=bool)
            self._has_rows = np.concatenate([self._has_rows, more])
        self._has_rows[numbers] = True

    def take(self) -> SortedRows:
        """Remove all rows, and return them sorted.

        Cost:
            One copy of the rows, a column at a time; none where they are in order, or come in a few
            long runs of one partition, as rows do that are in the order of time.
        """
        table, batches = pa.Table.from_batches(self._batches, self._schema), self._batches
        numbers, partition_count = self._row_numbers(), self.partition_count
        self.clear()
        is_sorted = bool(np.all(numbers[1:] >= numbers[:-1]))
        starts = None if is_sorted else _starts_of_parts(numbers, batches)
        most = min(_MOST_PARTS, len(numbers) // _LONG_SORTED_PART)
        if not is_sorted and starts is None and 1 < len(batches) <= most // partition_count:
            batches, numbers = _sort_each(batches, numbers)
            starts = _starts_of_parts(numbers, batches)
            assert starts is not None  # at most as many as partitions in all batches
        if starts is not None:
            order = np.argsort(numbers[starts], kind="stable")
            lengths = np.diff(starts, append=len(numbers))[order]
            numbers = np.repeat(numbers[starts[order]], lengths)
            parts = _parts_of(batches, starts[order].tolist(), lengths.tolist())
            table = pa.Table.from_batches(parts, self._schema)
        elif not is_sorted:
            order = np.argsort(numbers, kind="stable")
            numbers = numbers[order]
            places = pa.array(order)
            columns = [column.combine_chunks().take(places) for column in table.columns]
            table = pa.Table.from_arrays(columns, schema=self._schema)
        is_first = np.ones(len(numbers), dtype=bool)
        is_first[1:] = numbers[1:] != numbers[:-1]
        starts = np.flatnonzero(is_first)
        return SortedRows(table, numbers[starts], np.append(starts, len(numbers)))

    def _row_numbers(self) -> np.ndarray:
        # Numpy sorts 16 bits by counting, and more bits many times slower.
        is_small = len(self._has_rows) <= 2**16
        row_numbers = np.empty(
            sum(batch.num_rows for batch in self._batches), "u2" if is_small else "u4"
        )
        start = 0
        for batch, numbers in zip(self._batches, self._numbers, strict=True):
            row_numbers[start : start + batch.num_rows] = numbers
            start += batch.num_rows
        return row_numbers

    def put_back(self, taken: SortedRows, ranges: list[tuple[int, int, int]]) -> None:
        """Keep some of the removed rows.

        Args:
            taken: Rows that were removed.
            ranges: Number, start and end of the rows to keep for each partition, in order.

        Cost:
            One copy of the kept rows of a batch that is not kept as a whole, or is a part of a larger
            one, so that the rest can be freed.
        """
        if not ranges:
            return
        numbers, starts, ends = (np.array(column) for column in zip(*ranges, strict=True))
        kept = np.repeat(numbers, ends - starts)
        is_kept = np.zeros(taken.rows.num_rows + 1, dtype=np.int8)
        is_kept[starts] += 1  # ranges are disjoint, but may adjoin
        is_kept[ends] -= 1
        is_kept = np.cumsum(is_kept[:-1], dtype=np.int8).astype(bool)
        row = start = 0
        for batch in taken.rows.to_batches():
            is_here = is_kept[row : row + batch.num_rows]
            row += batch.num_rows
            count = int(np.count_nonzero(is_here))
            if count:
                is_kept_whole = count == batch.num_rows and _is_whole(batch)
                rows = batch if is_kept_whole else batch.filter(pa.array(is_here))
                self.add(rows, kept[start : start + count])
                start += count


def _starts_of_parts(numbers: np.ndarray, batches: Sequence[pa.RecordBatch]) -> np.ndarray | None:
    """Return the first row of each run of a partition within a batch; None if the runs are short."""
    is_first = np.ones(len(numbers), dtype=bool)
    np.not_equal(numbers[1:], numbers[:-1], out=is_first[1:])
    first_rows = np.cumsum([0, *(batch.num_rows for batch in batches[:-1])])
    is_first[first_rows] = True
    count = int(np.count_nonzero(is_first))
    if count > min(_MOST_PARTS, len(numbers) // _LONG_PART):
        return None
    return np.flatnonzero(is_first)


def _sort_each(
    batches: Sequence[pa.RecordBatch], numbers: np.ndarray
) -> tuple[list[pa.RecordBatch], np.ndarray]:
    """Return batches, each sorted by itself, and the numbers of their rows."""
    sorted_batches, sorted_numbers, start = [], [], 0
    for batch in batches:
        here = numbers[start : start + batch.num_rows]
        start += batch.num_rows
        order = np.argsort(here, kind="stable")
        sorted_batches.append(batch.take(pa.array(order)))
        sorted_numbers.append(here[order])
    return sorted_batches, np.concatenate(sorted_numbers)


def _parts_of(
    batches: Sequence[pa.RecordBatch], starts: Sequence[int], lengths: Sequence[int]
) -> list[pa.RecordBatch]:
    """Return parts of batches, without a copy; each begins at a row of all batches together."""
    ends = list(itertools.accumulate(batch.num_rows for batch in batches))
    parts = []
    for start, length in zip(starts, lengths, strict=True):
        batch = batches[position := bisect.bisect_right(ends, start)]
        parts.append(batch.slice(start - ends[position] + batch.num_rows, length))
    return parts


def _is_whole(rows: pa.RecordBatch) -> bool:
    """Return whether rows hold hardly more memory than they need, as a part of a batch does."""
    used = int(rows.nbytes)
    return int(rows.get_total_buffer_size()) <= used + used // 8


class SpilledRows:
    """Sorted rows in temporary files, which vanish with the process."""

    def __init__(self) -> None:
        """Start without files."""
        self._runs: list[_Run] = []
        self._bytes_by_number: dict[int, int] = {}

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the partitions that have rows."""
        return frozenset(self._bytes_by_number)

    def size_bytes(self, number: int) -> int:
        """Bytes of a partition in memory, once they are read."""
        return self._bytes_by_number.get(number, 0)

    def add(self, sorted_rows: SortedRows) -> None:
        """Write rows to a temporary file.

        Raises:
            StorageError: There is not enough space.
        """
        bytes_a_row = sorted_rows.rows.nbytes / sorted_rows.rows.num_rows
        try:
            self._runs.append(_Run(sorted_rows, max(1, int(_CHUNK_BYTES / bytes_a_row))))
        except OSError as exc:
            raise StorageError(
                f"Cannot hold waiting rows in {tempfile.gettempdir()}: {exc}",
                hint="Make room there, set TMPDIR to another directory, or give more memory_bytes.",
            ) from exc
        for number, start, end in sorted_rows:
            size = self._bytes_by_number.get(number, 0) + int((end - start) * bytes_a_row)
            self._bytes_by_number[number] = size

    def take(self, number: int) -> list[pa.Table]:
        """Remove the rows of a partition, and return them in their order."""
        if self._bytes_by_number.pop(number, None) is None:
            return []
        tables = [run.take(number) for run in self._runs if number in run.places]
        for run in self._runs:
            if not run.places:
                run.close()
        self._runs = [run for run in self._runs if run.places]
        return tables

    def clear(self) -> None:
        """Drop all rows."""
        for run in self._runs:
            run.close()
        self._runs.clear()
        self._bytes_by_number.clear()


class _Run:
    """Rows of one sort. Reading partitions in order reads the file once, from start to end."""

    def __init__(self, sorted_rows: SortedRows, rows_a_chunk: int) -> None:
        self.places = {number: (start, end) for number, start, end in sorted_rows}
        self._rows_a_chunk = rows_a_chunk
        self._chunk: tuple[int, pa.RecordBatch] | None = None
        self._file = tempfile.TemporaryFile(prefix="lakebed-")  # noqa: SIM115 - lives as long as the run
        try:
            self._write(sorted_rows.rows.combine_chunks())
            self._reader = pa.ipc.open_file(pa.PythonFile(self._file, "r"))
        except BaseException:
            self.close()  # a reference to the error would keep the space of the file
            raise

    def _write(self, rows: pa.Table) -> None:
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(pa.PythonFile(self._file, "w"), rows.schema, options=options) as sink:
            sink.write_table(rows, max_chunksize=self._rows_a_chunk)

    def take(self, number: int) -> pa.Table:
        start, end = self.places.pop(number)
        pieces = []
        while start < end:
            position, offset = divmod(start, self._rows_a_chunk)
            length = min(end - start, self._rows_a_chunk - offset)
            pieces.append(self._read(position).slice(offset, length))
            start += length
        return pa.Table.from_batches(pieces)

    def close(self) -> None:
        self._chunk = None
        self._file.close()

    def _read(self, position: int) -> pa.RecordBatch:
        if self._chunk is None or self._chunk[0] != position:
            self._chunk = (position, self._reader.get_batch(position))
        return self._chunk[1]
