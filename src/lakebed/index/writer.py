"""Writing postings along with data files: by the task that has the rows at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.index.merge import merge_footers
from lakebed.index.order import is_repetitive, sorted_pairs
from lakebed.index.postings import Postings, joined
from lakebed.index.segment import GROUP_ROWS, SegmentWriter, footer_of
from lakebed.model.keys import file_id
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import EncodedSegment, Segment

# Values of one file beyond it are sorted and encoded, part by part: a data file of a few MiB can
# hold GiB of texts.
PART_BYTES = 128 * 2**20
_PART = "part"
_MOST_BYTES = 2**30  # of texts in one array, which Arrow lets have 2 GiB


class ColumnValues:
    """The values of one column in one file, some of them perhaps more than once."""

    def __init__(self) -> None:
        """Begin without values."""
        self.chunks: list[pa.Array] = []
        self.parts: list[EncodedSegment] = []
        self.has_nan = False
        self.has_null = False
        self.chunk_bytes = 0
        self.size_bytes = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add values; they are copied, so that nothing else of their batch is held."""
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
        """Hold the values that came since the last part as a segment, which takes less memory.

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
    """The values of the indexed columns in one file in the making."""

    def __init__(self, columns: Sequence[str], number: int | None) -> None:
        """Begin without values.

        Args:
            columns: That are indexed.
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
        """Bytes that are held."""
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
        dataset: That they are of.
        column: Whose values they are.
        kind: Of the values.
        files: By id of the file, all the values that it holds.
        group_rows: Pairs in a row group.
    """
    ids = sorted(files)
    chunks = [chunk for number in ids for chunk in files[number].chunks]
    counts = [sum(map(len, files[number].chunks)) for number in ids]
    values = pa.concat_arrays([*chunks, pa.array([], kind)])
    places = np.repeat(np.arange(len(ids), dtype=np.int32), counts)
    writer = SegmentWriter(kind, np.array(ids, dtype=np.int64), group_rows)
    writer.add(*sorted_pairs(values, places, len(ids)))
    return writer.finish(
        dataset,
        column,
        nan_files=np.flatnonzero([files[number].has_nan for number in ids]),
        null_files=np.flatnonzero([files[number].has_null for number in ids]),
    )


class PostingsWriter:
    """Writes the postings of the files of one writer: a segment a column, or several of many."""

    def __init__(
        self, store: Store, dataset: str, types: Mapping[str, pa.DataType], max_bytes: int
    ) -> None:
        """Begin without files.

        Args:
            store: Where the dataset is.
            dataset: Its name.
            types: Of the indexed columns.
            max_bytes: Of values to hold, but for one file. Beyond it a segment is written, and
                another one begun.
        """
        self._store = store
        self._dataset = dataset
        self._types = types
        self._max_bytes = min(max_bytes, _MOST_BYTES)
        self._files: dict[int, FileValues] = {}
        self._size_bytes = 0
        self._written: list[Postings] = []
        # Also of those whose writing failed: the store may hold them all the same.
        self._keys: list[str] = []

    def new_file(self, label: str) -> FileValues:
        """Return what takes the values of a file that is begun."""
        return FileValues(tuple(self._types), file_id(label))

    def add(self, label: str, values: FileValues) -> None:
        """Add a file that has all its values.

        A file is never in two segments: one of them alone would seem to know all of it.
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
        # A thread for each, so that all begin, whatever becomes of the others: see `at_once`.
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
        """Write what is left, and return all segments.

        Raises:
            StorageError: The store failed.
        """
        self._flush()
        return joined(self._written)

    def abort(self) -> None:
        """Delete what was written; what cannot be deleted stays invisible garbage."""
        delete_or_leave(self._store, self._keys)
        self._keys.clear()
        self._files.clear()
        self._written.clear()
        self._size_bytes = 0
