"""Write postings together with data files, and merge their segments.

The task that has the rows writes the postings. A commit merges segments in small, `lakebed compact`
in large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.errors import CorruptMetadataError
from lakebed.index.segment import (
    GROUP_ROWS,
    PAGED_PAIRS,
    Footer,
    SegmentWriter,
    file_ids_of,
    footer_of,
    homes_at,
    open_segment,
    read_groups,
    size_of,
    with_directory,
)
from lakebed.index.value_order import is_repetitive, sorted_pairs
from lakebed.model.keys import file_id, split_label
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import EncodedSegment, Segment, compact, due_end, end_within

# Limits for the merges of a commit, for each column: a commit must be fast.
COMMIT_BYTES = 16 * 2**20
COMMIT_PAIRS = 4_000_000  # repeated values take few bytes and the same time
COMMIT_RAW_BYTES = 128 * 2**20  # in memory: long texts may take few bytes in the store
# A segment of this size is not merged any more: a merged segment is built in memory.
LARGE_BYTES = 256 * 2**20
_CHUNK_BYTES = 32 * 2**20  # memory for values of all segments during a merge
_THREADS = 8

# Measured: an entry of the directory of row groups takes about 80 times the bytes of a pair.
_PAIRS_A_ROOT = 80

HomesOf = Callable[[np.ndarray], Sequence[str]]
"""Function that returns the directories of files by their ids."""
Postings = Mapping[str, tuple[Segment, ...]]
"""Segments by indexed column."""
# Above this size the values of a file are sorted and encoded part by part: a data file of a few
# MiB can contain GiB of texts.
PART_BYTES = 128 * 2**20
_PART = "part"
_SMALL_REST = 64 * 2**10  # bytes of an array that may be held beside the values that are kept
_MOST_BYTES = 2**30  # of texts in one array, which Arrow limits to 2 GiB


class MergeSource:
    """The pairs of one segment, a few row groups at a time."""

    def __init__(
        self,
        store: Store,
        footer: Footer,
        kind: pa.DataType,
        kept_ids: np.ndarray,
        chunk_bytes: int,
    ) -> None:
        """Start before the first row group.

        Args:
            store: The store that holds the segment.
            footer: Footer of the segment.
            kind: Type in which values are returned.
            kept_ids: Ids of the files whose pairs are kept, ascending. Pairs refer to files by
                positions in it.
            chunk_bytes: Maximum size of values in memory, unless one row group is larger.
        """
        footer, _ = with_directory(store, footer)
        self._store = store
        self._footer = footer
        self._chunk_bytes = chunk_bytes
        self._raw_sizes = footer.raw_sizes
        self._kind = kind
        ids, _ = file_ids_of(store, footer)
        positions = np.searchsorted(kept_ids, ids).astype(np.int32)
        is_kept = np.isin(ids, kept_ids)
        self._positions = np.where(is_kept, positions, np.int32(-1))
        self._left = list(range(footer.regular_count))
        self.values = pa.array([], kind)
        self.files = np.zeros(0, dtype=np.int32)

    @property
    def has_more(self) -> bool:
        """True if some row groups are not read yet."""
        return bool(self._left)

    def fill(self) -> None:
        """Read the next row groups if all pairs that were read are taken."""
        while not len(self.values) and self._left:
            sizes = np.cumsum(self._raw_sizes[self._left])
            count = max(1, int(np.searchsorted(sizes, self._chunk_bytes)))
            numbers, self._left = self._left[:count], self._left[count:]
            self.values, self.files = self._read(numbers)

    def _read(self, numbers: Sequence[int]) -> tuple[pa.Array, np.ndarray]:
        pairs, _ = read_groups(self._store, self._footer, numbers)
        values = pairs.column("value").cast(self._kind).combine_chunks()
        files = self._positions[pairs.column("file").to_numpy()]
        is_kept = files >= 0
        return (
            (values, files) if is_kept.all() else (values.filter(pa.array(is_kept)), files[is_kept])
        )

    def specials(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of the files with NaN, and of those with null."""
        if not self._footer.has_specials:
            return self.files[:0], self.files[:0]
        values, files = self._read([self._footer.regular_count])
        is_null = np.asarray(values.is_null())
        return files[~is_null], files[is_null]

    def take(self, count: int) -> tuple[pa.Array, np.ndarray]:
        """Remove and return the first pairs that were read."""
        values, files = self.values[:count], self.files[:count]
        self.values, self.files = self.values[count:], self.files[count:]
        return values, files


def merge_sources(
    store: Store, footers: Sequence[Footer], kind: pa.DataType, kept_ids: np.ndarray
) -> list[MergeSource]:
    """Return sources of segments for `merged_pairs`; their memory is bounded together."""
    share = _CHUNK_BYTES // max(1, len(footers))
    return [MergeSource(store, footer, kind, kept_ids, share) for footer in footers]


def merged_pairs(
    sources: Sequence[MergeSource], file_count: int
) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Yield the pairs of several segments in order, without all of them in memory."""
    while True:
        for source in sources:
            source.fill()
        filled = [source for source in sources if len(source.values)]
        if not filled:
            return
        # Beyond the smallest of the last values, a segment may have pairs that are not read yet.
        ends = [source.values[-1:] for source in filled if source.has_more]
        cut = pc.min(_comparable(pa.concat_arrays(ends))) if ends else None
        taken = []
        for source in filled:
            count = len(source.values)
            if cut is not None:
                count = pc.sum(pc.less_equal(_comparable(source.values), cut)).as_py()
            taken.append(source.take(count))
        values = pa.concat_arrays([values for values, _ in taken])
        yield sorted_pairs(values, np.concatenate([files for _, files in taken]), file_count)


def _comparable(values: pa.Array) -> pa.Array:
    """Return values that Arrow compares in the order of the segment."""
    if pat.is_boolean(values.type):
        return values.cast(pa.uint8())
    return values.cast(pa.binary()) if pat.is_string(values.type) else values


def merge_segments(
    store: Store,
    dataset: str,
    column: str,
    segments: Sequence[Segment],
    kind: pa.DataType,
    *,
    kept_ids: np.ndarray | None = None,
    homes_of: HomesOf | None = None,
) -> EncodedSegment:
    """Merge several segments into one, which the caller writes.

    Args:
        store: The store that holds the segments.
        dataset: Name of the dataset.
        column: Name of the indexed column.
        segments: The segments to merge, at least one.
        kind: The current type of the column, which may be wider than theirs.
        kept_ids: Ids of the files to keep, ascending; None for all.
        homes_of: Function that returns the directories of files by their ids; None for those that
            all of the segments have, if they have any.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        At least one GET for each segment, and one for every few MiB; memory for the result, and
        for 32 MiB of values, or a row group of each segment if that is more.
    """
    opened = at_once(lambda segment: open_segment(store, segment), segments, _THREADS)
    footers = [footer for footer, _ in opened]
    return merge_footers(
        store, dataset, column, footers, kind, kept_ids=kept_ids, homes_of=homes_of
    )


def merge_footers(
    store: Store,
    dataset: str,
    column: str,
    footers: Sequence[Footer],
    kind: pa.DataType,
    *,
    kept_ids: np.ndarray | None = None,
    homes_of: HomesOf | None = None,
) -> EncodedSegment:
    """Merge several segments whose footers were read; see `merge_segments`."""
    all_ids = np.unique(np.concatenate([file_ids_of(store, footer)[0] for footer in footers]))
    if kept_ids is not None:
        all_ids = np.intersect1d(all_ids, kept_ids)
    sources = merge_sources(store, footers, kind, all_ids)
    homes = _homes_in(store, footers, all_ids) if homes_of is None else homes_of(all_ids)
    pair_count = sum(footer.pair_count for footer in footers)
    writer = new_writer(kind, all_ids, pair_count, homes)
    try:
        for values, files in merged_pairs(sources, len(all_ids)):
            writer.add(values, files)
        specials = [source.specials() for source in sources]
    except (pa.ArrowException, IndexError) as exc:
        keys = ", ".join(footer.key for footer in footers)
        raise CorruptMetadataError(
            f"Index segments {keys} cannot be merged: {exc}.",
            hint="Reads are correct without them; `lakebed check --repair` rebuilds them.",
        ) from exc
    nan_files, null_files = (
        np.unique(np.concatenate(files)) for files in zip(*specials, strict=True)
    )
    return writer.finish(dataset, column, nan_files, null_files)


def new_writer(
    kind: pa.DataType, file_ids: np.ndarray, pair_count: int, homes: Sequence[str] | None
) -> SegmentWriter:
    """Start a segment.

    A lookup reads the directory of row groups and one of them, so that both grow as the square root
    of the number of pairs. Beyond some number, it is better to read a page of the directory.

    Args:
        kind: Type of the values.
        file_ids: Ids of the covered files, ascending and distinct.
        pair_count: Number of pairs, at most.
        homes: Directory of each of these files, for a dataset whose head is a tree.
    """
    if homes is None or pair_count > PAGED_PAIRS:
        return SegmentWriter(kind, file_ids, GROUP_ROWS, homes, is_paged=homes is not None)
    group_rows = max(GROUP_ROWS, math.isqrt(_PAIRS_A_ROOT * pair_count))
    return SegmentWriter(kind, file_ids, group_rows, homes)


def _homes_in(store: Store, footers: Sequence[Footer], ids: np.ndarray) -> Sequence[str] | None:
    """Return the directories of files from the segments that have them; None if some are missing."""
    found_ids, found = [np.zeros(0, np.int64)], list[str]()
    for footer in footers:
        if footer.homes is not None:
            own, homes, _ = homes_at(store, footer, np.arange(footer.files.count))
            found_ids.append(own)
            found += homes
    known = np.concatenate(found_ids)
    order = np.argsort(known, kind="stable")
    places = np.searchsorted(known, ids, sorter=order)
    if not found or (places == len(known)).any():
        return None
    at = order[places]
    return [found[place] for place in at.tolist()] if (known[at] == ids).all() else None


def compact_list(
    store: Store,
    dataset: str,
    column: str,
    segments: Sequence[Segment],
    kind: pa.DataType,
    written: list[str],
) -> tuple[Segment, ...]:
    """Merge the end of a column's list if a level is full, within the limits of a commit.

    A damaged segment is left unchanged: an index is optional, and must not make a commit fail.

    Args:
        store: The store that holds the segments.
        dataset: Name of the dataset.
        column: Name of the indexed column.
        segments: The list of segments.
        kind: Type of the values.
        written: Receives the key of the merged segment before it is written.

    Returns:
        The list to name in the head.

    Cost:
        Nothing, or a few GETs for each merged segment, of 16 MiB in total, and one PUT.
    """
    return compact(
        store,
        segments,
        lambda tail: merge_segments(store, dataset, column, tail, kind),
        written,
        find_due=lambda every: _full_end(store, every, kind),
    )


def _full_end(store: Store, segments: Sequence[Segment], kind: pa.DataType) -> Sequence[Segment]:
    """Return the segments at the end of a list that are due, within the limits of a commit.

    Segments beyond the limits do not count: they would keep a level full at every commit.
    """
    tail = end_within(
        end_within(segments, size_of, COMMIT_BYTES), lambda segment: segment.weight, COMMIT_PAIRS
    )
    tail = due_end(tail)
    if not tail or not (pat.is_string(kind) or pat.is_binary(kind)):
        return tail
    # Due segments are read anyway; the length of their texts is only in their footers.
    tail = end_within(
        tail, lambda segment: open_segment(store, segment)[0].raw_bytes, COMMIT_RAW_BYTES
    )
    return due_end(tail)


def groups_to_merge(segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return groups of segments to merge, so that few large segments are left.

    Raises:
        CorruptMetadataError: The name of a segment does not contain its size.
    """
    groups: list[list[Segment]] = []
    room = 0
    for segment in sorted(segments, key=size_of):
        if size_of(segment) > room:
            groups.append([])
            room = LARGE_BYTES
        groups[-1].append(segment)
        room -= size_of(segment)
    return [group for group in groups if len(group) > 1]


def keys_of_postings(postings: Postings) -> tuple[str, ...]:
    """Return the keys of all segments."""
    return tuple(segment.key for segments in postings.values() for segment in segments)


def joined_postings(parts: Sequence[Postings]) -> dict[str, tuple[Segment, ...]]:
    """Return the segments that several writers added, by column."""
    by_column: dict[str, tuple[Segment, ...]] = {}
    for part in parts:
        for column, segments in part.items():
            by_column[column] = (*by_column.get(column, ()), *segments)
    return by_column


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
        """Add values; parts of longer arrays are copied, so that the rest can be freed."""
        if column.null_count:
            self.has_null = True
            column = column.drop_null()
        if is_repetitive(column):
            values = column.unique()
        elif column.num_chunks == 1 and _is_whole(column.chunk(0)):
            values = column.chunk(0)
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


def _is_whole(array: pa.Array) -> bool:
    """Return whether an array holds hardly more memory than its values need."""
    held, used = int(array.get_total_buffer_size()), int(array.nbytes)
    return held <= used + max(_SMALL_REST, used // 8)


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
    homes: Mapping[int, str] | None = None,
) -> EncodedSegment:
    """Return the segment of some files.

    Args:
        dataset: Name of the dataset.
        column: Name of the indexed column.
        kind: Type of the values.
        files: All values of each file, by id of the file.
        group_rows: Maximum number of pairs in a row group.
        homes: Directory of each file, by id; None to leave them out.
    """
    ids = sorted(files)
    chunks = [chunk for number in ids for chunk in files[number].chunks]
    counts = [sum(map(len, files[number].chunks)) for number in ids]
    values = pa.concat_arrays([*chunks, pa.array([], kind)])
    positions = np.repeat(np.arange(len(ids), dtype=np.int32), counts)
    known = None if homes is None else [homes[number] for number in ids]
    writer = SegmentWriter(kind, np.array(ids, dtype=np.int64), group_rows, known)
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
        self,
        store: Store,
        dataset: str,
        types: Mapping[str, pa.DataType],
        max_bytes: int,
        *,
        with_homes: bool = False,
    ) -> None:
        """Start without files.

        Args:
            store: The store that holds the dataset.
            dataset: Name of the dataset.
            types: Types of the indexed columns.
            max_bytes: Maximum size of values in memory, unless one file has more. When it is
                exceeded, a segment is written and another one begun.
            with_homes: Whether the head is a tree, so that segments have the directories of files.
        """
        self._homes: dict[int, str] | None = {} if with_homes else None
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
        if self._homes is not None:
            self._homes[number] = split_label(label)[0]
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
        encoded = encode_segment(self._dataset, column, kind, values, homes=self._homes)
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
        return joined_postings(self._written)

    def abort(self) -> None:
        """Delete the written segments; those that cannot be deleted stay as invisible garbage."""
        delete_or_leave(self._store, self._keys)
        self._keys.clear()
        self._files.clear()
        self._written.clear()
        self._size_bytes = 0
