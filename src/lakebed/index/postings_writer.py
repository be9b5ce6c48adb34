"""Write postings together with data files, in the task that has the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.index.merged_segments import merge_footers
from lakebed.index.postings import Postings, joined
from lakebed.index.segment import GROUP_ROWS, SegmentWriter, footer_of
from lakebed.index.value_order import is_repetitive, sorted_pairs
from lakebed.model.keys import file_id
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import EncodedSegment, Segment

# Above this size the values of a file are sorted and encoded part by part: a data file of a few
# MiB can contain GiB of texts.
PART_BYTES = 128 * 2**20
_PART = "part"
_MOST_BYTES = 2**30  # of texts in one array, which Arrow limits to 2 GiB


class ColumnValues:
    """The values of one column in one file, perhaps with duplicates."""

    def __init__(self) -> None:
        """Start without values."""
        self.chunks: list[pa.Array] = []
        self.parts: list[EncodedSegment] = []
        self.has_nan = False
        self.has_null = False
        self.chunk_bytes = 0
        self.size_bytes = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add values; they are copied, so that the rest of their batch can be freed."""
        if column.null_count:
            self.has_null = True
            column = column.drop_null()
        if is_repetitive(column):
            values = column.unique()
        else:
            values = pa.concat_arrays([*column.chunks, pa.array([], column.type)])
        if pat.is_floating(values.type) and np.isnan(np.max(np.asarray(values), initial=-np.inf)):
            self.has_nan = True
            values = values.filter(pc.invert(pc.is_nan(values)))
        if len(values):
            self.chunks.append(values)
            self.chunk_bytes += values.nbytes
            self.size_bytes += values.nbytes

    def encode_part(self, number: int) -> None:
        """Encode the values since the last part as a segment, which takes less memory.

        Args:
            number: Id of the file.
        """
        if not self.chunks:
            return
        part = ColumnValues()
        part.chunks, self.chunks = self.chunks, []
        encoded = encode_segment(_PART, _PART, part.chunks[0].type, {number: part})
        self.parts.append(encoded)
        self.size_bytes += len(encoded.data) - self.chunk_bytes
        self.chunk_bytes = 0


class FileValues:
    """The values of the indexed columns in one file that is being written."""

    def __init__(self, columns: Sequence[str], number: int | None) -> None:
        """Start without values.

        Args:
            columns: Names of the indexed columns.
            number: Id of the file; None if it has none.
        """
        self.columns = {column: ColumnValues() for column in columns if number is not None}
        self._number = number

    def add(self, rows: pa.Table) -> None:
        """Add the values of some rows."""
        for name, values in self.columns.items():
            values.add(rows.column(name))
            if self._number is not None and values.chunk_bytes > PART_BYTES:
                values.encode_part(self._number)

    @property
    def size_bytes(self) -> int:
        """Size of the values in memory."""
        return sum(values.size_bytes for values in self.columns.values())


def encode_segment(
    dataset: str,
    column: str,
    kind: pa.DataType,
    files: Mapping[int, ColumnValues],
    *,
    group_rows: int = GROUP_ROWS,
) -> EncodedSegment:
    """Return the segment of some files.

    Args:
        dataset: Name of the dataset.
        column: Name of the indexed column.
        kind: Type of the values.
        files: All values of each file, by id of the file.
        group_rows: Maximum number of pairs in a row group.
    """
    ids = sorted(files)
    chunks = [chunk for number in ids for chunk in files[number].chunks]
    counts = [sum(map(len, files[number].chunks)) for number in ids]
    values = pa.concat_arrays([*chunks, pa.array([], kind)])
    positions = np.repeat(np.arange(len(ids), dtype=np.int32), counts)
    writer = SegmentWriter(kind, np.array(ids, dtype=np.int64), group_rows)
    writer.add(*sorted_pairs(values, positions, len(ids)))
    return writer.finish(
        dataset,
        column,
        nan_files=np.flatnonzero([files[number].has_nan for number in ids]),
        null_files=np.flatnonzero([files[number].has_null for number in ids]),
    )


class PostingsWriter:
    """Writes the postings for the files of one writer, in one or several segments per column."""

    def __init__(
        self, store: Store, dataset: str, types: Mapping[str, pa.DataType], max_bytes: int
    ) -> None:
        """Start without files.

        Args:
            store: The store that holds the dataset.
            dataset: Name of the dataset.
            types: Types of the indexed columns.
            max_bytes: Maximum size of values in memory, unless one file has more. When it is
                exceeded, a segment is written and another one begun.
        """
        self._store = store
        self._dataset = dataset
        self._types = types
        self._max_bytes = min(max_bytes, _MOST_BYTES)
        self._files: dict[int, FileValues] = {}
        self._size_bytes = 0
        self._written: list[Postings] = []
        # Includes segments whose writing failed: they may be in the store nevertheless.
        self._keys: list[str] = []

    def new_file(self, label: str) -> FileValues:
        """Return the collector for the values of a new file."""
        return FileValues(tuple(self._types), file_id(label))

    def add(self, label: str, values: FileValues) -> None:
        """Add a file with all its values.

        A file is never in two segments: each of them would seem to have all its values.
        """
        number = file_id(label)
        if number is None or not self._types:
            return
        self._files[number] = values
        self._size_bytes += values.size_bytes
        if self._size_bytes > self._max_bytes:
            self._flush()

    def _flush(self) -> None:
        files, self._files, self._size_bytes = self._files, {}, 0
        if not files:
            return
        # One thread for each, so that all begin even if others fail, unlike in `at_once`.
        with ThreadPoolExecutor(len(self._types), thread_name_prefix="lakebed-index") as threads:
            segments = threads.map(lambda column: self._write(column, files), self._types)
            self._written.append(
                {column: (segment,) for column, segment in zip(self._types, segments, strict=True)}
            )

    def _write(self, column: str, files: Mapping[int, FileValues]) -> Segment:
        values = {number: file_values.columns[column] for number, file_values in files.items()}
        kind = self._types[column]
        for number, column_values in values.items():
            if column_values.parts:
                column_values.encode_part(number)
        encoded = encode_segment(self._dataset, column, kind, values)
        parts = [part for column_values in values.values() for part in column_values.parts]
        if parts:
            footers = [footer_of(part) for part in (encoded, *parts)]
            encoded = merge_footers(self._store, self._dataset, column, footers, kind)
        self._keys.append(encoded.segment.key)
        self._store.put(encoded.segment.key, encoded.data)
        return encoded.segment

    def finish(self) -> dict[str, tuple[Segment, ...]]:
        """Write the remaining files, and return all segments.

        Raises:
            StorageError: The store failed.
        """
        self._flush()
        return joined(self._written)

    def abort(self) -> None:
        """Delete the written segments; those that cannot be deleted stay as invisible garbage."""
        delete_or_leave(self._store, self._keys)
        self._keys.clear()
        self._files.clear()
        self._written.clear()
        self._size_bytes = 0
