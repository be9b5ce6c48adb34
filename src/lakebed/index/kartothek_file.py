"""Kartothek's index files: one Parquet object per column, for lookups by plateau and kartothek.

They assume that the file covers every row. So Lakebed writes it only if that is true: all files
are covered, and none has null or NaN in the column, which the format cannot represent. It is made
from the postings of all files (`encode`), or, by a commit, from the previous one and the postings
of new files (`extended`).

Index files of other tools are read with fewer assumptions: for a file that one lists, it has all
values except null and NaN; for other files it has no information.
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
from lakebed.index.postings_writer import MergeSource, merge_sources, merged_pairs
from lakebed.index.segment import GROUP_ROWS, SMALL_BYTES, file_ids_of, open_segment
from lakebed.index.value_order import is_first, sorted_pairs
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import KARTOTHEK_LABELS
from lakebed.model.predicate import Leaf
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import Segment

# Every reader of such a file must have all of it in memory.
MAX_PAIRS = 5_000_000
MAX_BYTES = 2**30  # of the values and labels of all pairs
FILE_REQUESTS = 2  # number of requests to read one
# Limits for an index that a commit maintains, in pairs: the commit must not become much slower.
COMMIT_PAIRS = 50_000
PAIRS_OF_NEW = 8  # for each new pair: larger commits may take longer
_MOST_COMMIT_PAIRS = 1_000_000
_COMMIT_SEGMENTS = 64  # number of new segments, each of which needs a request
_BYTES_OF_PAIR = 8  # in the object, unless it is small: many labels of short values
_THREADS = 8
# Memory for a stored byte: about as much as sorted numbers and a repeated label take.
_MEMORY_OF_BYTE = 4

# Types that other tools look up correctly. Times in an index break their updates; they compare
# 32-bit floats in 64 bits; and they do not support decimals and bytes in an index.
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
    """The type of the values of an index, while it is built and in the file."""

    made: pa.DataType
    stored: pa.DataType

    @classmethod
    def of(cls, kind: Type, texts: pa.DataType) -> _Types | None:
        """Return the types for a column; None if it cannot have an index."""
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
    """Return the index file of a column; None if it would be incorrect or too large.

    Args:
        store: The store that holds the segments.
        column: Name of the indexed column.
        segments: All segments of the column.
        kind: Type of the column.
        labels: Labels of all live files, by id.
        texts: Arrow type of texts in the file.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        Reads all segments once; memory for `MAX_PAIRS` pairs of at most `MAX_BYTES` in total.
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
    for distinct, positions in merged_pairs(sources, len(ids)):
        count += len(positions)
        size_bytes += distinct.nbytes + int(lengths[positions].sum())
        if count > MAX_PAIRS or size_bytes > MAX_BYTES:
            return None
        values.append(distinct)
        files.append(positions)
    return _encode(column, pa.concat_arrays(values), np.concatenate(files), names, types.stored)


def _sources(
    store: Store, segments: Sequence[Segment], kind: pa.DataType, ids: np.ndarray
) -> list[MergeSource] | None:
    """Return the sources of the pairs of some files.

    None if a file is not covered, or has null or NaN, which the index file cannot represent.
    """
    opened = at_once(lambda segment: open_segment(store, segment), segments, _THREADS)
    footers = [footer for footer, _ in opened]
    covered = [file_ids_of(store, footer)[0] for footer in footers]
    if len(ids) and not np.isin(ids, np.concatenate([ids[:0], *covered])).all():
        return None
    sources = merge_sources(store, footers, kind, ids)
    if any(len(files) for source in sources for files in source.specials()):
        return None
    return sources


def most_pairs(new: Sequence[Segment]) -> int:
    """Return the maximum number of pairs in an index that a commit rewrites.

    Args:
        new: Segments of the column that the commit adds.
    """
    return min(max(COMMIT_PAIRS, PAIRS_OF_NEW * weight_of(new)), _MOST_COMMIT_PAIRS)


def most_bytes(new: Sequence[Segment]) -> int:
    """Return the maximum memory for reading such an index; see `read_index_file`."""
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
    """Return the next index file of a column; None if it would be incorrect or too expensive.

    Args:
        store: The store that holds the segments.
        column: Name of the indexed column.
        base: The previous index file, which covers all files before; None if there were none.
        removed: Labels of the files that the commit removes.
        segments: Segments of the column that cover the new files.
        kind: Type of the column.
        labels: Labels of the new files, by id.
        texts: Arrow type of texts in the file.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        A GET for each segment that is not cached; memory and time for `most_pairs`.
    """
    types = _Types.of(kind, texts)
    most = most_pairs(segments)
    before = 0 if base is None else len(base.positions)
    if types is None or max(before, weight_of(segments)) > most or len(segments) > _COMMIT_SEGMENTS:
        return None
    ids = np.array(sorted(labels), dtype=np.int64)
    sources = _sources(store, segments, types.made, ids)
    if sources is None:
        return None
    values, files, names = _kept_pairs(base, removed, types.made)
    new = [pair for pair in merged_pairs(sources, len(ids)) if len(pair[1])]
    values = pa.concat_arrays([values, *(distinct for distinct, _ in new)])
    files = np.concatenate([files, *(positions + len(names) for _, positions in new)])
    names += [labels[int(number)] for number in ids]
    if len(values) > most or _has_specials(values):
        return None
    values, files = sorted_pairs(values, files, len(names))
    data = _encode(column, values, files, names, types.stored)
    return data if len(data) <= max(SMALL_BYTES, _BYTES_OF_PAIR * most) else None


def relabelled(
    index_file: IndexFile, column: str, kind: Type, labels: Mapping[str, str], texts: pa.DataType
) -> bytes | None:
    """Return an index file under other labels of its data files; None if it cannot be represented.

    Args:
        index_file: The index file.
        column: Name of the indexed column.
        kind: Type of the column.
        labels: New labels by old ones; data files without a new label are left out.
        texts: Arrow type of texts in the file.
    """
    types = _Types.of(kind, texts)
    if types is None or _has_specials(index_file.values.combine_chunks()):
        return None
    gone = [label for label in index_file.labels.to_pylist() if label not in labels]
    values, files, names = _kept_pairs(index_file, gone, types.made)
    values, files = sorted_pairs(values, files, len(names))
    return _encode(column, values, files, [labels[name] for name in names], types.stored)


def _kept_pairs(
    base: IndexFile | None, removed: Sequence[str], kind: pa.DataType
) -> tuple[pa.Array, np.ndarray, list[str]]:
    """Return the pairs of an index file without some files, and the remaining labels."""
    if base is None:
        return pa.array([], kind), np.zeros(0, dtype=np.int32), []
    is_kept = ~np.asarray(pc.is_in(base.labels, value_set=pa.array(removed, base.labels.type)))
    numbers = np.cumsum(is_kept, dtype=np.int32) - 1
    of_kept = is_kept[base.files]
    values = base.values.cast(kind).combine_chunks().take(pa.array(base.positions[of_kept]))
    names: list[str] = base.labels.filter(pa.array(is_kept)).to_pylist()
    return values, numbers[base.files[of_kept]], names


def _has_specials(values: pa.Array) -> bool:
    if values.null_count:
        return True
    return bool(pat.is_floating(values.type)) and bool(pc.any(pc.is_nan(values)).as_py())


def weight_of(segments: Sequence[Segment]) -> int:
    """Return the number of pairs in segments, from their names."""
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
    """The content of an index file.

    Attributes:
        values: Distinct values, of the column's type.
        labels: Distinct labels of the listed files.
        positions: For each pair of a value and a file that has it, the position of the value.
        files: For each pair, the position of the label.
    """

    values: pa.ChunkedArray
    labels: pa.Array
    positions: np.ndarray
    files: np.ndarray

    @property
    def size_bytes(self) -> int:
        """Size in memory."""
        arrays = self.values.nbytes + self.labels.nbytes
        return int(arrays + self.positions.nbytes + self.files.nbytes)

    def may(self, leaves: Sequence[Leaf], labels: pa.Array) -> np.ndarray:
        """Return for each of some files whether it may have a value that meets all conditions.

        It may if the index lists it with such a value, or does not list it at all, or if null or
        NaN meets the conditions.
        """
        truths = match_values(self.values, leaves)
        if truths is None:
            return np.ones(len(labels), dtype=bool)
        is_found = np.zeros(len(self.labels) + 1, dtype=bool)
        matching = truths.fill_null(fill_value=False).to_numpy()
        is_found[self.files[matching[self.positions]]] = True
        is_found[-1] = True  # for labels that are not listed, whose position is -1
        positions = pc.index_in(labels.cast(self.labels.type), value_set=self.labels)
        answers: np.ndarray = is_found[positions.fill_null(-1).to_numpy(zero_copy_only=False)]
        return answers


def hold_index_file(store: Store, key: str, data: bytes, digest: str) -> None:
    """Cache an index file that was just written, for the next commit, which extends it.

    Args:
        store: The store that holds the index file.
        key: Key of the object. It contains a time: if a clock stands still, another process may
            use the key again, once this object is deleted.
        data: Content of the object.
        digest: Digest of the labels of all files that it covers.
    """
    PROCESS_CACHE.hold(("index-bytes", store.cache_name, key, digest), data, size_bytes=len(data))


def read_index_file(
    store: Store, dataset: str, column: str, key: str, kind: Type, *, digest: str, max_bytes: int
) -> tuple[IndexFile | None, int]:
    """Read an index file, of another tool or of Lakebed.

    Args:
        store: The store that holds the index file.
        dataset: Name of the dataset.
        column: Name of the indexed column.
        key: Key of the object; a changed index file has a new key.
        kind: Type of the column.
        digest: Digest of the labels in the same head; a cached file is used only for the same
            labels.
        max_bytes: Limit for the memory. An object that may need more is not read, unless it is
            small.

    Returns:
        The content, None if it is too large, and the number of requests.

    Raises:
        CorruptMetadataError: The object is missing or damaged, has another column or type, or is
            outside the dataset.

    Cost:
        One HEAD and one GET of the whole object, unless it is cached.
    """
    name = ("index-file", store.cache_name, key, digest)
    held = PROCESS_CACHE.find(name, IndexFile)
    if held is not None and held.values.type == type_to_arrow(kind):
        return held, 0
    # Old datasets have them beside their directory.
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


# Bytes of a pair: a label as text, and its positions among values and labels.
_MEMORY_OF_PAIR = 48


def _decode(data: bytes, column: str, key: str, kind: pa.DataType) -> IndexFile:
    try:
        # Without read-ahead and threads: Arrow aborts the process if a thread finds a damaged footer.
        file = pq.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, pre_buffer=False
        )
        _check_sizes(file.metadata, key)
        table = file.read([column, KARTOTHEK_LABELS], use_threads=False)
        values, lists = table.column(column), table.column(KARTOTHEK_LABELS)
        if not _are_alike(values.type, kind):
            raise CorruptMetadataError(
                f"Index file {key!r} has values of type {values.type}; {column!r} is {kind}."
            )
        values = values.cast(kind)
        if pat.is_floating(kind):
            values = pc.add(values, 0.0)  # turns negative zero to zero, as in conditions
        rows = lists.combine_chunks().cast(pa.list_(pa.string()))
        labels = pc.list_flatten(rows).dictionary_encode()
    # Arrow raises KeyError for a missing column, and ValueError or OSError for many other errors.
    except (pa.ArrowException, KeyError, ValueError, OSError) as exc:
        raise CorruptMetadataError(f"Index file {key!r} cannot be read: {exc}") from exc
    if labels.null_count:
        raise CorruptMetadataError(f"Index file {key!r} has a null file label.")
    return IndexFile(
        values=values,
        labels=labels.dictionary,
        positions=pc.list_parent_indices(rows).to_numpy(),
        files=labels.indices.to_numpy(),
    )


def _check_sizes(footer: pq.FileMetaData, key: str) -> None:
    """Check that an index fits into memory, before it is read.

    Raises:
        CorruptMetadataError: It does not. Its file may be small: a run of equal labels takes no
            space, however long.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    size_bytes = sum(group.total_byte_size for group in groups)
    pairs = sum(
        max(group.column(position).num_values for position in range(group.num_columns))
        for group in groups
    )
    if size_bytes > MAX_BYTES or pairs > MAX_BYTES // _MEMORY_OF_PAIR:
        raise CorruptMetadataError(
            f"Index file {key!r} unpacks to {size_bytes:,} bytes and {pairs:,} pairs."
        )


def _are_alike(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a stored type can represent exactly the values of the column."""
    if pat.is_dictionary(stored):
        stored = stored.value_type
    if pat.is_timestamp(stored) and pat.is_timestamp(kind):
        return bool(stored.tz == kind.tz)
    return stored == kind or any(
        matches(stored) and matches(kind) for matches in (_is_text, pat.is_integer, pat.is_floating)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pat.is_string(kind) or pat.is_large_string(kind))
