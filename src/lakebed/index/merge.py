"""Merging index segments: a commit does it in small, `lakebed compact` in large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.errors import CorruptMetadataError
from lakebed.index.order import sorted_pairs
from lakebed.index.segment import (
    Footer,
    SegmentWriter,
    open_segment,
    read_groups,
    size_of,
)
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import EncodedSegment, Segment, compact, due_end

# What a commit merges at most, of one column: it must not keep its caller waiting.
COMMIT_BYTES = 16 * 2**20
COMMIT_PAIRS = 4_000_000  # repeated values take few bytes and the same time
COMMIT_RAW_BYTES = 128 * 2**20  # in memory: long texts may take few bytes in the store
# A segment of this size is not merged any more: it is held in memory while it is made.
LARGE_BYTES = 256 * 2**20
_CHUNK_BYTES = 32 * 2**20  # of all segments that is held while they are merged
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
        """Begin with nothing read.

        Args:
            store: Where the segment is.
            footer: Of the segment.
            kind: To read the values in.
            kept_ids: Of the files whose pairs are wanted, ascending. Pairs are told with places
                in it.
            chunk_bytes: To hold in memory, or one row group.
        """
        self._store = store
        self._footer = footer
        self._chunk_bytes = chunk_bytes
        self._raw_sizes = footer.raw_sizes
        self._kind = kind
        places = np.searchsorted(kept_ids, footer.file_ids).astype(np.int32)
        is_kept = np.isin(footer.file_ids, kept_ids)
        self._places = np.where(is_kept, places, np.int32(-1))
        self._left = list(range(footer.regular_count))
        self.values = pa.array([], kind)
        self.files = np.zeros(0, dtype=np.int32)

    @property
    def has_more(self) -> bool:
        """Whether there are row groups that are not here yet."""
        return bool(self._left)

    def fill(self) -> None:
        """Read the next row groups, if none are here."""
        while not len(self.values) and self._left:
            sizes = np.cumsum(self._raw_sizes[self._left])
            count = max(1, int(np.searchsorted(sizes, self._chunk_bytes)))
            numbers, self._left = self._left[:count], self._left[count:]
            self.values, self.files = self._read(numbers)

    def _read(self, numbers: Sequence[int]) -> tuple[pa.Array, np.ndarray]:
        pairs, _ = read_groups(self._store, self._footer, numbers)
        values = pairs.column("value").cast(self._kind).combine_chunks()
        files = self._places[pairs.column("file").to_numpy()]
        is_kept = files >= 0
        return (
            (values, files) if is_kept.all() else (values.filter(pa.array(is_kept)), files[is_kept])
        )

    def specials(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the files that hold NaN, and of those that hold null."""
        if not self._footer.has_specials:
            return self.files[:0], self.files[:0]
        values, files = self._read([self._footer.regular_count])
        is_null = np.asarray(values.is_null())
        return files[~is_null], files[is_null]

    def take(self, count: int) -> tuple[pa.Array, np.ndarray]:
        """Take the first pairs that are here."""
        values, files = self.values[:count], self.files[:count]
        self.values, self.files = self.values[count:], self.files[count:]
        return values, files


def merge_sources(
    store: Store, footers: Sequence[Footer], kind: pa.DataType, kept_ids: np.ndarray
) -> list[MergeSource]:
    """Return segments as what `merged_pairs` takes; together they hold a bounded part of them."""
    share = _CHUNK_BYTES // max(1, len(footers))
    return [MergeSource(store, footer, kind, kept_ids, share) for footer in footers]


def merged_pairs(
    sources: Sequence[MergeSource], file_count: int
) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Yield the pairs of several segments in order, without holding them all."""
    while True:
        for source in sources:
            source.fill()
        filled = [source for source in sources if len(source.values)]
        if not filled:
            return
        # Beyond the least of their last values, a segment may have pairs that are not here yet.
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
    """Make one segment of several; it is not put yet.

    Args:
        store: Where they are.
        dataset: That they are of.
        column: That they are of.
        segments: At least one.
        kind: The column's type now, which may be wider than theirs.
        kept_ids: Of files, ascending: others are left out; None for all.

    Raises:
        CorruptMetadataError: One is missing or damaged.

    Cost:
        A GET for some MiB of each segment, at least one; memory for the result, and for 32 MiB of
        values, or a row group of each segment where that is more.
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
    """Make one segment of several whose footers are here; see `merge_segments`."""
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
            hint="Answers are right without them; `lakebed check --repair` builds them anew.",
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
    """Merge the end of a column's list if a level is full, as far as a commit may take the time.

    A damaged segment stays as it is: an index is a help, and no reason for a commit to fail.

    Args:
        store: Where the segments are.
        dataset: That they are of.
        column: That they are of.
        segments: The list.
        kind: Of the values.
        written: Takes the key of the merged segment before it is written.

    Returns:
        The list to name in the head.

    Cost:
        Nothing, or a few GETs a merged segment, of 16 MiB together, and one PUT.
    """
    return compact(
        store,
        segments,
        lambda tail: merge_segments(store, dataset, column, tail, kind),
        written,
        find_due=lambda every: _full_end(store, every, kind),
    )


def _full_end(store: Store, segments: Sequence[Segment], kind: pa.DataType) -> Sequence[Segment]:
    """Return the end of a list that is due, of what a commit can merge at all.

    What is beyond that is no part of the question: it would fill the same level at every commit.
    """
    tail = _within(
        _within(segments, size_of, COMMIT_BYTES), lambda segment: segment.weight, COMMIT_PAIRS
    )
    tail = due_end(tail)
    if not tail or not (pat.is_string(kind) or pat.is_binary(kind)):
        return tail
    # What is due is read anyway; how long its texts are, only its footers tell.
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
    """Return the segments that shall become one each, so that few large ones are left.

    Raises:
        CorruptMetadataError: The name of one tells no size.
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
