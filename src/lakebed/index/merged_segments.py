"""Merge index segments: few and small ones in a commit, all in `lakebed compact`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.errors import CorruptMetadataError
from lakebed.index.segment import (
    Footer,
    SegmentWriter,
    open_segment,
    read_groups,
    size_of,
)
from lakebed.index.value_order import sorted_pairs
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import EncodedSegment, Segment, compact, due_end

# Limits for the merges of a commit, for each column: a commit must be fast.
COMMIT_BYTES = 16 * 2**20
COMMIT_PAIRS = 4_000_000  # repeated values take few bytes and the same time
COMMIT_RAW_BYTES = 128 * 2**20  # in memory: long texts may take few bytes in the store
# A segment of this size is not merged any more: a merged segment is built in memory.
LARGE_BYTES = 256 * 2**20
_CHUNK_BYTES = 32 * 2**20  # memory for values of all segments during a merge
_THREADS = 8


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
        self._store = store
        self._footer = footer
        self._chunk_bytes = chunk_bytes
        self._raw_sizes = footer.raw_sizes
        self._kind = kind
        positions = np.searchsorted(kept_ids, footer.file_ids).astype(np.int32)
        is_kept = np.isin(footer.file_ids, kept_ids)
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
) -> EncodedSegment:
    """Merge several segments into one, which the caller writes.

    Args:
        store: The store that holds the segments.
        dataset: Name of the dataset.
        column: Name of the indexed column.
        segments: The segments to merge, at least one.
        kind: The current type of the column, which may be wider than theirs.
        kept_ids: Ids of the files to keep, ascending; None for all.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        At least one GET for each segment, and one for every few MiB; memory for the result, and
        for 32 MiB of values, or a row group of each segment if that is more.
    """
    opened = at_once(lambda segment: open_segment(store, segment), segments, _THREADS)
    footers = [footer for footer, _ in opened]
    return merge_footers(store, dataset, column, footers, kind, kept_ids=kept_ids)


def merge_footers(
    store: Store,
    dataset: str,
    column: str,
    footers: Sequence[Footer],
    kind: pa.DataType,
    *,
    kept_ids: np.ndarray | None = None,
) -> EncodedSegment:
    """Merge several segments whose footers were read; see `merge_segments`."""
    all_ids = np.unique(np.concatenate([footer.file_ids for footer in footers]))
    if kept_ids is not None:
        all_ids = np.intersect1d(all_ids, kept_ids)
    sources = merge_sources(store, footers, kind, all_ids)
    writer = SegmentWriter(kind, all_ids)
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
    tail = _within(
        _within(segments, size_of, COMMIT_BYTES), lambda segment: segment.weight, COMMIT_PAIRS
    )
    tail = due_end(tail)
    if not tail or not (pat.is_string(kind) or pat.is_binary(kind)):
        return tail
    # Due segments are read anyway; the length of their texts is only in their footers.
    tail = _within(
        tail, lambda segment: int(open_segment(store, segment)[0].raw_sizes.sum()), COMMIT_RAW_BYTES
    )
    return due_end(tail)


def _within(
    segments: Sequence[Segment], measure: Callable[[Segment], int], limit: int
) -> Sequence[Segment]:
    """Return the longest end of a list that does not exceed a limit."""
    length, total = 0, 0
    for segment in reversed(segments):
        total += measure(segment)
        if total > limit:
            break
        length += 1
    return segments[len(segments) - length :]


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
