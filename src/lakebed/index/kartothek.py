"""Kartothek's index file: one Parquet object a column, which plateau and kartothek look values up in.

They believe that it knows every row. So it is made only where that is so: all files are covered,
and none holds null or NaN in the column, which have no place in it. It is made of the postings of
all files (`encode`), or, by a commit, of the one before and the postings of new files (`extended`).

Those that they have made are read, and believed less: of a file that one lists it knows all values
but null and NaN, and of any other file nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types as pat

from lakebed.errors import CorruptMetadataError, InvalidNameError, ObjectNotFoundError
from lakebed.index.lookup import match_values
from lakebed.index.merge import MergeSource, merge_sources, merged_pairs
from lakebed.index.order import is_first, sorted_pairs
from lakebed.index.segment import GROUP_ROWS, SMALL_BYTES, open_segment
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import KARTOTHEK_LABELS
from lakebed.model.predicate import Leaf
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import Segment

# Every reader of such a file has to hold all of it.
MAX_PAIRS = 5_000_000
MAX_BYTES = 2**30  # of the values and labels of all pairs
FILE_REQUESTS = 2  # that it takes to read one
# What a commit keeps up, in pairs: it must not take much longer than without.
_COMMIT_PAIRS = 50_000
_PAIRS_OF_NEW = 8  # for each that the commit brings: who writes much can wait for more
_MOST_COMMIT_PAIRS = 1_000_000
_COMMIT_SEGMENTS = 64  # of new postings, each of which takes a request
_BYTES_OF_PAIR = 8  # of the object, beyond a small one: many labels of short values
_THREADS = 8
# Of a stored byte, in memory: about what sorted numbers and a repeated label take.
_MEMORY_OF_BYTE = 4

# Types that they look up rightly. Times of an index break their updates; they compare 32-bit
# floats in 64 bits; and decimals and bytes have no place in their index.
_TYPES: Mapping[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.LONG: pa.int64(),
    Kind.UNSIGNED_LONG: pa.uint64(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.DATE: pa.date32(),
}


class _Types(NamedTuple):
    """The type of the values of an index, while it is made and in the file."""

    made: pa.DataType
    stored: pa.DataType

    @classmethod
    def of(cls, kind: Type, texts: pa.DataType) -> _Types | None:
        """Return those of a column; None where there can be no index."""
        if not isinstance(kind, Primitive) or kind.kind not in _TYPES:
            return None
        made = _TYPES[kind.kind]
        return cls(made, texts if kind.kind is Kind.STRING else made)


def encode(
    store: Store,
    column: str,
    segments: Sequence[Segment],
    kind: Type,
    labels: Mapping[int, str],
    texts: pa.DataType,
) -> bytes | None:
    """Return the index file of a column; None where there can be none that is right.

    Args:
        store: Where the segments are.
        column: That they are of.
        segments: All of the column.
        kind: Of the column.
        labels: Of all live files, by id.
        texts: The type that texts have in it.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        All segments, read once; memory for `MAX_PAIRS` pairs, of `MAX_BYTES` together.
    """
    types = _Types.of(kind, texts)
    if types is None:
        return None
    ids = np.array(sorted(labels), dtype=np.int64)
    sources = _sources(store, segments, types.made, ids)
    if sources is None:
        return None
    values: list[pa.Array] = [pa.array([], types.made)]
    files = [np.zeros(0, dtype=np.int32)]
    names = [labels[int(number)] for number in ids]
    lengths = np.array([len(name.encode()) for name in names], dtype=np.int64)
    count = size_bytes = 0
    for distinct, places in merged_pairs(sources, len(ids)):
        count += len(places)
        size_bytes += distinct.nbytes + int(lengths[places].sum())
        if count > MAX_PAIRS or size_bytes > MAX_BYTES:
            return None
        values.append(distinct)
        files.append(places)
    return _encode(column, pa.concat_arrays(values), np.concatenate(files), names, types.stored)


def _sources(
    store: Store, segments: Sequence[Segment], kind: pa.DataType, ids: np.ndarray
) -> list[MergeSource] | None:
    """Return where the pairs of some files come from.

    None if a file is not covered, or if one holds null or NaN, which have no place in the file.
    """
    opened = at_once(lambda segment: open_segment(store, segment), segments, _THREADS)
    footers = [footer for footer, _ in opened]
    covered = [footer.file_ids for footer in footers]
    if len(ids) and not np.isin(ids, np.concatenate([ids[:0], *covered])).all():
        return None
    sources = merge_sources(store, footers, kind, ids)
    if any(len(files) for source in sources for files in source.specials()):
        return None
    return sources


def most_pairs(new: Sequence[Segment]) -> int:
    """Return how many pairs an index may have that a commit writes anew.

    Args:
        new: Segments of the column that it brings.
    """
    return min(max(_COMMIT_PAIRS, _PAIRS_OF_NEW * weight_of(new)), _MOST_COMMIT_PAIRS)


def most_bytes(new: Sequence[Segment]) -> int:
    """Return in how many bytes of memory such an index may be read; see `read_index_file`."""
    return _BYTES_OF_PAIR * _MEMORY_OF_BYTE * most_pairs(new)


def extended(
    store: Store,
    column: str,
    base: IndexFile | None,
    removed: Sequence[str],
    segments: Sequence[Segment],
    kind: Type,
    labels: Mapping[int, str],
    texts: pa.DataType,
) -> bytes | None:
    """Return the index file that comes after another one; None where it is wrong or too dear.

    Args:
        store: Where the segments are.
        column: That they are of.
        base: That knows every file that was there; None if there was none.
        removed: Labels of files that are there no more.
        segments: Of the column, which know the new files.
        kind: Of the column.
        labels: Of the new files, by id.
        texts: The type that texts have in it.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        A GET for each segment that is not held; memory and time for `most_pairs`.
    """
    types = _Types.of(kind, texts)
    most = most_pairs(segments)
    before = 0 if base is None else len(base.places)
    if types is None or max(before, weight_of(segments)) > most or len(segments) > _COMMIT_SEGMENTS:
        return None
    ids = np.array(sorted(labels), dtype=np.int64)
    sources = _sources(store, segments, types.made, ids)
    if sources is None:
        return None
    values, files, names = _kept_pairs(base, removed, types.made)
    new = [pair for pair in merged_pairs(sources, len(ids)) if len(pair[1])]
    values = pa.concat_arrays([values, *(distinct for distinct, _ in new)])
    files = np.concatenate([files, *(places + len(names) for _, places in new)])
    names += [labels[int(number)] for number in ids]
    if len(values) > most or _has_specials(values):
        return None
    values, files = sorted_pairs(values, files, len(names))
    data = _encode(column, values, files, names, types.stored)
    return data if len(data) <= max(SMALL_BYTES, _BYTES_OF_PAIR * most) else None


def _kept_pairs(
    base: IndexFile | None, removed: Sequence[str], kind: pa.DataType
) -> tuple[pa.Array, np.ndarray, list[str]]:
    """Return the pairs of an index file without those of some files, and the labels left."""
    if base is None:
        return pa.array([], kind), np.zeros(0, dtype=np.int32), []
    is_kept = ~np.asarray(pc.is_in(base.labels, value_set=pa.array(removed, base.labels.type)))
    numbers = np.cumsum(is_kept, dtype=np.int32) - 1
    of_kept = is_kept[base.files]
    values = base.values.cast(kind).combine_chunks().take(pa.array(base.places[of_kept]))
    names: list[str] = base.labels.filter(pa.array(is_kept)).to_pylist()
    return values, numbers[base.files[of_kept]], names


def _has_specials(values: pa.Array) -> bool:
    if values.null_count:
        return True
    return bool(pat.is_floating(values.type)) and bool(pc.any(pc.is_nan(values)).as_py())


def weight_of(segments: Sequence[Segment]) -> int:
    """Return the pairs of segments, by their names."""
    return sum(segment.weight for segment in segments)


def _encode(
    column: str, values: pa.Array, files: np.ndarray, labels: Sequence[str], kind: pa.DataType
) -> bytes:
    """Return the file of sorted pairs: a row for each value, with the list of its labels."""
    starts = np.flatnonzero(is_first(values))
    offsets = pa.array(np.append(starts, len(values)), pa.int32())
    texts = pa.array(labels, pa.string()).take(pa.array(files))
    table = pa.table(
        {
            column: values.take(pa.array(starts)).cast(kind),
            KARTOTHEK_LABELS: pa.ListArray.from_arrays(offsets, texts),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression="zstd", row_group_size=GROUP_ROWS, write_page_checksum=True
    )
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An index file that was read.

    Attributes:
        values: Distinct ones, of the column's type.
        labels: Of the files that it lists, distinct.
        places: For each pair of a value and a file that holds it: of the value.
        files: For each pair: of the label.
    """

    values: pa.ChunkedArray
    labels: pa.Array
    places: np.ndarray
    files: np.ndarray

    @property
    def size_bytes(self) -> int:
        """In memory."""
        arrays = self.values.nbytes + self.labels.nbytes
        return int(arrays + self.places.nbytes + self.files.nbytes)

    def may(self, leaves: Sequence[Leaf], labels: pa.Array) -> np.ndarray:
        """Return for each of some files whether it may hold a value that meets all conditions.

        It may if the index lists it with such a value, or does not list it at all, or if null or
        NaN would do.
        """
        truths = match_values(self.values, leaves)
        if truths is None:
            return np.ones(len(labels), dtype=bool)
        is_found = np.zeros(len(self.labels) + 1, dtype=bool)
        matching = truths.fill_null(fill_value=False).to_numpy()
        is_found[self.files[matching[self.places]]] = True
        is_found[-1] = True  # where the place of what is not listed points to
        places = pc.index_in(labels.cast(self.labels.type), value_set=self.labels)
        answers: np.ndarray = is_found[places.fill_null(-1).to_numpy(zero_copy_only=False)]
        return answers


def hold_index_file(store: Store, key: str, data: bytes, digest: str) -> None:
    """Keep an index file that was just written, of which the next commit makes another one.

    Args:
        store: Where it is.
        key: Of the object. It is a time: where a clock stands still, another process may have it
            again for what it writes, once this object is deleted.
        data: What was written.
        digest: Of the labels of all files that it knows.
    """
    PROCESS_CACHE.hold(("index-bytes", store.cache_name, key, digest), data, size_bytes=len(data))


def read_index_file(
    store: Store, dataset: str, column: str, key: str, kind: Type, *, digest: str, max_bytes: int
) -> tuple[IndexFile | None, int]:
    """Read an index file of another tool, or of ours as others have extended it.

    Args:
        store: Where it is.
        dataset: That it is of.
        column: That it is of.
        key: Of the object, which is of a new name whenever it changes.
        kind: Of the column.
        digest: Of the labels that the head names beside it; what the process holds is of these.
        max_bytes: In memory. What may need more is not read, but for a small object.

    Returns:
        What it holds, None if that is too much, and the number of requests.

    Raises:
        CorruptMetadataError: It is missing or damaged, of another column or type, or it lies
            outside of the dataset.

    Cost:
        One HEAD and one GET of the whole object, unless the process holds it.
    """
    name = ("index-file", store.cache_name, key, digest)
    held = PROCESS_CACHE.find(name, IndexFile)
    if held is not None and held.values.type == type_to_arrow(kind):
        return held, 0
    # Datasets of long ago have them beside their directory.
    if not key.startswith((f"{dataset}/", f"{dataset}.")) or ".." in key.split("/"):
        raise CorruptMetadataError(f"Index file {key!r} of {column!r} is not of {dataset!r}.")
    try:
        limit = max(SMALL_BYTES, min(max_bytes, MAX_BYTES) // _MEMORY_OF_BYTE)
        written = PROCESS_CACHE.find(("index-bytes", store.cache_name, key, digest), bytes)
        if written is not None:  # a commit of this process has just written it
            data, requests = written, 0
        elif store.size(key) > limit:
            return None, 1
        else:
            data, requests = store.get(key).data, FILE_REQUESTS
    except (InvalidNameError, ObjectNotFoundError) as exc:
        raise CorruptMetadataError(f"Index file {key!r} of {column!r} is missing.") from exc
    index_file = _decode(data, column, key, type_to_arrow(kind))
    PROCESS_CACHE.hold(name, index_file, size_bytes=index_file.size_bytes)
    return index_file, requests


# Of a pair: a label as text, and its places among values and labels.
_MEMORY_OF_PAIR = 48


def _decode(data: bytes, column: str, key: str, kind: pa.DataType) -> IndexFile:
    try:
        # Without read-ahead and threads: Arrow ends the process where a damaged footer is told in one.
        file = pq.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False
        )
        _check_sizes(file.metadata, key)
        table = file.read([column, KARTOTHEK_LABELS], use_threads=False)
        values, lists = table.column(column), table.column(KARTOTHEK_LABELS)
        if not _are_alike(values.type, kind):
            raise CorruptMetadataError(
                f"Index file {key!r} holds values of type {values.type}; {column!r} is {kind}."
            )
        values = values.cast(kind)
        if pat.is_floating(kind):
            values = pc.add(values, 0.0)  # of the two zeros, conditions name the positive one
        rows = lists.combine_chunks().cast(pa.list_(pa.string()))
        labels = pc.list_flatten(rows).dictionary_encode()
    # Arrow raises KeyError for a column that is not there, and ValueError and OSError for much.
    except (pa.ArrowException, KeyError, ValueError, OSError) as exc:
        raise CorruptMetadataError(f"Index file {key!r} cannot be read: {exc}") from exc
    if labels.null_count:
        raise CorruptMetadataError(f"Index file {key!r} names a file by null.")
    return IndexFile(
        values=values,
        labels=labels.dictionary,
        places=pc.list_parent_indices(rows).to_numpy(),
        files=labels.indices.to_numpy(),
    )


def _check_sizes(footer: pq.FileMetaData, key: str) -> None:
    """Check that an index fits into the memory, before it is there.

    Raises:
        CorruptMetadataError: It does not; a run of equal labels takes no room, however long.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size_bytes = sum(group.total_byte_size for group in groups)
    pairs = sum(
        max(group.column(place).num_values for place in range(group.num_columns))
        for group in groups
    )
    if size_bytes > MAX_BYTES or pairs > MAX_BYTES // _MEMORY_OF_PAIR:
        raise CorruptMetadataError(
            f"Index file {key!r} unpacks to {size_bytes:,} bytes and {pairs:,} pairs."
        )


def _are_alike(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of a stored type are surely those of the column."""
    if pat.is_dictionary(stored):
        stored = stored.value_type
    if pat.is_timestamp(stored) and pat.is_timestamp(kind):
        return bool(stored.tz == kind.tz)
    return stored == kind or any(
        matches(stored) and matches(kind) for matches in (_is_text, pat.is_integer, pat.is_floating)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))
