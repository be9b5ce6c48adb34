"""The format of an index segment: postings of many values, of which a reader needs few.

A segment is one Parquet object of pairs (`value`, `file`), sorted by value and then by file, in row
groups of `GROUP_ROWS`. `file` is a position in the segment's own table of file ids, which is also
its coverage: all values of a file in that table are in the segment. NaN and null have a row group
of their own at the end. The ids of few files are in the footer. Those of many are between the last
row group and the footer, in buckets that are read separately; see `lakebed.index.covered_files`.

A large segment of a tree is several Parquet objects, one for each row group, and has a root in place
of the footer; see `lakebed.index.paged_root`.

All parts of a segment are verified. The key contains the size of the object, and the size and the
hash of its footer; the footer has a directory with the offset, the first and last value, and the
hash of every row group. So a reader fetches the footer and the row groups that can match, and
notices damage in any byte of them.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import uuid
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pat

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.index import file_homes, paged_root
from lakebed.index.covered_files import BUCKETS, counts_of, sums_of
from lakebed.index.paged_root import PagedRoot
from lakebed.index.value_order import is_first
from lakebed.model.layout import postings_folder, segment_key
from lakebed.store.base import SeekableReader, Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import EncodedSegment, Segment

GROUP_ROWS = 10_000
# More rows than any release writes; the group of NaN and null has up to two rows for each file.
_MAX_GROUP_ROWS = 2**20
_GROUP_BYTES = 8 * 2**20  # in memory: row groups of long texts have fewer rows
# Measured: up to this size, one request for all takes less time than one for the footer and another.
SMALL_BYTES = 512 * 1024
# A gap between two row groups up to this size is fetched, since another request would take longer.
_GAP_BYTES = 256 * 1024
_BOUND_BYTES = 64  # of a text in the directory; longer ones are cut
# Of a text in memory, if a segment of an earlier release does not record it.
_GUESSED_BYTES = 64
_HASH_BYTES = paged_root.HASH_TYPE.byte_width
_ID_BYTES = 8
_MEMORY_OF_BYTE = 10  # of Parquet's metadata: what its objects take in memory
_BUCKET_BYTES = 256  # what a bucket of ids takes in memory beside them
_VERSION = "1"
_VERSION_WITH_BUCKETS = "2"
_VERSION_WITH_HOMES = "3"
MANY_FILES = 4096  # from this number on, ids are apart from the footer
# Of a segment with directories of files: beyond so many, which no commit merges, its own directory
# is in pages. A lookup then makes one request more, and reads less.
PAGED_PAIRS = 4 * 2**20
_FORMAT, _FILES, _BUCKETS, _DIRECTORY, _VALUES = (
    f"lakebed.postings.{name}" for name in ("format", "files", "buckets", "groups", "values")
)
_HOMES, _HOMES_START = "lakebed.postings.homes", "lakebed.postings.homes_start"
_NAME = re.compile(
    r"[0-9]{10,18}-[0-9a-f]{32}-(?P<size>[0-9a-f]{1,12})-(?P<footer>[0-9a-f]{1,8})"
    rf"-(?P<hash>[0-9a-f]{{{2 * _HASH_BYTES}}})(?:-(?P<files>[0-9a-f]{{1,8}}))?\.parquet"
)


def _hash(data: bytes | memoryview | pa.Buffer) -> bytes:
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).digest()


class _Sink(io.RawIOBase):
    """A writable file in memory whose content can be read while it grows."""

    def __init__(self) -> None:
        super().__init__()
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.data += data
        return len(data)


@dataclass(frozen=True, slots=True)
class _Group:
    """A written row group; the special one, of NaN and null, has no bounds."""

    first: Any
    last: Any
    start: int
    size: int
    raw: int
    hash: bytes


class SegmentWriter:
    """Builds a segment from sorted pairs, step by step."""

    def __init__(
        self,
        kind: pa.DataType,
        file_ids: np.ndarray,
        group_rows: int = GROUP_ROWS,
        homes: Sequence[str] | None = None,
        *,
        is_paged: bool = False,
    ) -> None:
        """Start a segment.

        Args:
            kind: Type of the values.
            file_ids: Ids of the covered files, ascending and distinct.
            group_rows: Maximum number of pairs in a row group.
            homes: Directory of each of these files, for a dataset whose head is a tree.
            is_paged: Whether its directory is in pages; only with `homes`.
        """
        self._homes = homes
        self._group_rows = group_rows
        self._file_ids = file_ids
        self._schema = pa.schema(
            [pa.field("value", kind), pa.field("file", pa.int32(), nullable=False)]
        )
        self._sink = _Sink()
        encoding = _encoding(kind)
        self._options = {
            # Deltas of sorted numbers cannot be compressed further; texts have more in common
            # than their beginnings.
            "compression": "none" if encoding == "DELTA_BINARY_PACKED" else "zstd",
            "use_dictionary": False,
            "column_encoding": {"value": encoding, "file": "DELTA_BINARY_PACKED"},
            "write_statistics": False,
            "store_schema": False,
            "store_decimal_as_integer": True,
        }
        self._writer = None if is_paged else self._write_to(pa.PythonFile(self._sink, mode="w"))
        self._groups: list[_Group] = []
        self._waiting: list[pa.Table] = []
        self._row_count = 0
        self._value_count = 0
        self._last: pa.Array | None = None

    def _write_to(self, sink: pa.NativeFile) -> pq.ParquetWriter:
        return pq.ParquetWriter(sink, self._schema, **self._options)

    def add(self, values: pa.Array, files: np.ndarray) -> None:
        """Add pairs that follow all earlier ones in order, without NaN and null."""
        if len(values):
            rows = pa.table([values, pa.array(files, pa.int32())], schema=self._schema)
            self._waiting.append(rows)
            self._write_groups(at_least=self._group_rows)

    def _write_groups(self, *, at_least: int) -> None:
        size_bytes = sum(rows.nbytes for rows in self._waiting)
        row_count = sum(rows.num_rows for rows in self._waiting)
        if row_count < at_least and size_bytes < _GROUP_BYTES:
            return
        rows = pa.concat_tables(self._waiting).combine_chunks()
        count = max(1, min(self._group_rows, _GROUP_BYTES * row_count // size_bytes))
        while rows.num_rows >= min(at_least, count):
            self._write_group(rows.slice(0, count), is_special=False)
            rows = rows.slice(count)
        self._waiting = [rows]

    def _write_group(self, rows: pa.Table, *, is_special: bool) -> None:
        start = len(self._sink.data)
        if self._writer is not None:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        else:
            sink = pa.BufferOutputStream()
            with self._write_to(sink) as writer:
                writer.write_table(rows, row_group_size=rows.num_rows)
            self._sink.data += sink.getvalue()
        values = rows.column("value").combine_chunks()
        if not is_special:
            before = [] if self._last is None else [self._last]
            self._value_count += int(is_first(pa.concat_arrays([*before, values])).sum())
            self._value_count -= len(before)
            self._last = values[-1:]
        with memoryview(self._sink.data) as written:
            group = _Group(
                first=None if is_special else _lower(values[0].as_py()),
                last=None if is_special else _upper(values[-1].as_py()),
                start=start,
                size=len(written) - start,
                raw=rows.nbytes,
                hash=_hash(written[start:]),
            )
        self._groups.append(group)
        self._row_count += rows.num_rows

    def finish(
        self, dataset: str, column: str, nan_files: np.ndarray, null_files: np.ndarray
    ) -> EncodedSegment:
        """Return the segment.

        Args:
            dataset: Name of the dataset.
            column: Name of the indexed column.
            nan_files: Positions of the files with NaN, ascending.
            null_files: Positions of the files with null, ascending.
        """
        if any(rows.num_rows for rows in self._waiting):
            self._write_groups(at_least=1)
        kind = self._schema.field("value").type
        specials = [
            pa.table(
                [pa.array([value] * len(files), kind), pa.array(files, pa.int32())],
                schema=self._schema,
            )
            for value, files in ((float("nan"), nan_files), (None, null_files))
            if len(files)
        ]
        if specials:
            self._write_group(pa.concat_tables(specials).combine_chunks(), is_special=True)
        if self._writer is None:
            return self._finish_paged(dataset, column, kind, len(nan_files) + len(null_files))
        ids = self._file_ids.astype("<i8")
        of_homes = {} if self._homes is None else self._write_homes(ids, self._homes)
        if len(ids) < MANY_FILES:
            files = {_FORMAT: _VERSION, _FILES: _to_text(ids.tobytes())}
        else:
            files = {_FORMAT: _VERSION_WITH_BUCKETS, _BUCKETS: _to_text(_encode_buckets(ids))}
            # Parquet finds row groups by their positions, and the footer from the end.
            self._sink.data += ids.tobytes()
        footer_start = len(self._sink.data)
        self._writer.add_key_value_metadata(
            {
                **files,
                **of_homes,
                _DIRECTORY: _to_text(paged_root.to_stream(_directory_of(self._groups, kind))),
                _VALUES: str(self._value_count),
            }
        )
        self._writer.close()
        return self._named(dataset, column, footer_start)

    def _named(self, dataset: str, column: str, footer_start: int) -> EncodedSegment:
        data = bytes(self._sink.data)
        footer = data[footer_start:]
        name = f"{uuid.uuid4().hex}-{len(data):x}-{len(footer):x}-{_hash(footer).hex()}"
        name += f"-{len(self._file_ids):x}" if self._homes is not None else ""
        key = segment_key(postings_folder(dataset, column), self._row_count, f"{name}.parquet")
        return EncodedSegment(Segment(key, self._row_count), data)

    def _finish_paged(
        self, dataset: str, column: str, kind: pa.DataType, special_count: int
    ) -> EncodedSegment:
        assert self._homes is not None  # only segments of trees are paged
        data, ids = self._sink.data, self._file_ids.astype("<i8")
        pages = []
        groups = _directory_of(self._groups, kind)
        for rows, page in paged_root.encode_pages(groups, 1 if special_count else 0):
            pages.append(_entry_of_page(rows, page, len(data)))
            data += page
        homes_start = len(data)
        homes = list(file_homes.encode(ids, self._homes, is_compact=True))
        for page in homes:
            data += page
        ids_start = len(data)
        data += ids.tobytes()
        buckets_start, buckets = len(data), _encode_buckets(ids)
        data += buckets
        root = paged_root.PagedRoot(
            kind=kind,
            value_count=self._value_count,
            pair_count=self._row_count,
            special_count=special_count,
            file_count=len(ids),
            ids_start=ids_start,
            buckets=paged_root.Part(buckets_start, len(buckets), _hash(buckets)),
            homes_start=homes_start,
            home_sizes=np.array([len(page) for page in homes], np.int64),
            home_hashes=[_hash(page)[: paged_root.SHORT_HASH_BYTES] for page in homes],
            pages=_directory_of(pages, kind),
        )
        footer_start = len(data)
        data += paged_root.encode(root)
        return self._named(dataset, column, footer_start)

    def _write_homes(self, ids: np.ndarray, homes: Sequence[str]) -> dict[str, str]:
        """Write the pages with the directories of the files; return the entries that lead to them."""
        start = len(self._sink.data)
        pages = list(file_homes.encode(ids, homes))
        for page in pages:
            self._sink.data += page
        table = pa.table(
            {
                "size": pa.array(map(len, pages), pa.int32()),
                "hash": pa.array(map(_hash, pages), paged_root.HASH_TYPE),
            }
        )
        return {
            _FORMAT: _VERSION_WITH_HOMES,
            _HOMES: _to_text(paged_root.to_stream(table)),
            _HOMES_START: str(start),
        }


def _encoding(kind: pa.DataType) -> str:
    if pat.is_string(kind) or pat.is_binary(kind):
        return "DELTA_BYTE_ARRAY"
    is_whole = pat.is_integer(kind) or pat.is_temporal(kind)
    return "DELTA_BINARY_PACKED" if is_whole or _is_short_decimal(kind) else "PLAIN"


def _is_short_decimal(kind: pa.DataType) -> bool:
    return bool(pat.is_decimal(kind)) and kind.precision <= 18  # stored in 64 bits


def _lower(value: Any) -> Any:
    """Return a lower bound of the value; texts as bytes, whose order is the same."""
    data = value.encode() if isinstance(value, str) else value
    return data[:_BOUND_BYTES] if isinstance(data, bytes) else data


def _upper(value: Any) -> Any:
    """Return an upper bound of the value; a cut text becomes the next one of its length."""
    data = value.encode() if isinstance(value, str) else value
    if not isinstance(data, bytes) or len(data) <= _BOUND_BYTES:
        return data
    stem = data[:_BOUND_BYTES].rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else data


def _encode_buckets(ids: np.ndarray) -> bytes:
    counts, sums = counts_of(ids), sums_of(ids)
    pieces = np.split(ids, np.cumsum(counts)[:-1])
    return paged_root.to_stream(
        pa.table(
            {
                "count": pa.array(counts, pa.int64()),
                **{f"sum_{lane}": pa.array(sums[:, lane], pa.uint64()) for lane in range(2)},
                "hash": pa.array(
                    [_hash(piece.tobytes()) for piece in pieces], paged_root.HASH_TYPE
                ),
            }
        )
    )


def _directory_of(groups: Sequence[_Group], kind: pa.DataType) -> pa.Table:
    """Return the entries for row groups, or for the pages of them."""
    schema = paged_root.schema_of_entries(kind)
    columns = [
        pa.array([getattr(group, field.name) for group in groups], field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def _entry_of_page(rows: pa.Table, page: bytes, start: int) -> _Group:
    """Return the entry for a page of the directory, which has the form of that for a row group."""
    return _Group(
        first=rows.column("first")[0].as_py(),
        last=rows.column("last")[-1].as_py(),
        start=start,
        size=len(page),
        raw=sum(rows.column("raw").to_pylist()),
        hash=_hash(page),
    )


def _to_text(data: bytes) -> str:
    """Return bytes as text, since the metadata of Parquet files holds only text."""
    return base64.b64encode(data).decode()


def _from_text(text: bytes) -> pa.Table:
    return paged_root.from_stream(base64.b64decode(text, validate=True))


@dataclass(frozen=True)
class CoveredFiles:
    """The files that a segment covers, as its footer describes them.

    Attributes:
        count: Number of files.
        ids: Their ids, ascending; None if they are stored apart from the footer.
        start: Position of the stored ids in the object.
        counts: Number of stored ids in each bucket.
        hashes: Hash of the stored ids of each bucket.
        stored_sums: Checksums of each bucket of stored ids.
    """

    count: int
    ids: np.ndarray | None = None
    start: int = 0
    counts: np.ndarray | None = None
    hashes: Sequence[bytes] = ()
    stored_sums: np.ndarray | None = None

    @cached_property
    def sums(self) -> np.ndarray:
        """The checksums of each bucket."""
        if self.ids is not None:
            return sums_of(self.ids)
        assert self.stored_sums is not None  # it has the ids or the sums
        return self.stored_sums

    @cached_property
    def ends(self) -> np.ndarray:
        """The position after the last id of each bucket."""
        counts = counts_of(self.ids) if self.ids is not None else self.counts
        assert counts is not None  # it has the ids or the counts
        return np.cumsum(counts)

    @property
    def size_bytes(self) -> int:
        """Size in memory."""
        return 8 * self.count if self.ids is not None else 48 * BUCKETS


@dataclass(frozen=True, slots=True)
class HomePages:
    """The pages with the directories of the covered files.

    Attributes:
        starts: Position of each page in the object.
        sizes: Size of each page.
        hashes: Hash of each page.
    """

    starts: np.ndarray
    sizes: np.ndarray
    hashes: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Footer:
    """The verified footer of a segment.

    Attributes:
        key: Key of the segment.
        size_bytes: Size of the object.
        kind: Type of the values.
        files: The covered files.
        listed: The directory: columns `first`, `last`, `start`, `size`, `raw`, `hash`; segments of
            earlier releases lack `raw`. None if it is in pages that are not read.
        value_count: Number of distinct values, without NaN and null.
        pair_count: Number of pairs of a value and a file, including those of NaN and null.
        special_count: Number of pairs of NaN and null, which have the last row group.
        metadata: Metadata of the Parquet file; None if each row group is one of its own.
        held: The whole object if it is small; else None.
        homes: The pages with the directories of the covered files; None if it has none.
        root: The root of a segment whose directory is in pages; else None.
    """

    key: str
    size_bytes: int
    kind: pa.DataType
    files: CoveredFiles
    listed: pa.Table | None
    value_count: int
    pair_count: int
    special_count: int
    metadata: pq.FileMetaData | None
    held: bytes | None
    homes: HomePages | None = None
    root: PagedRoot | None = None

    @property
    def groups(self) -> pa.Table:
        """The directory: of all row groups, or of those in the pages that were read."""
        assert self.listed is not None  # `with_directory` reads it
        return self.listed

    @property
    def has_specials(self) -> bool:
        """True if the last row group of the directory is that of NaN and null."""
        return has_specials(self.groups)

    @property
    def regular_count(self) -> int:
        """Number of row groups without that of NaN and null."""
        return int(self.groups.num_rows) - self.has_specials

    @property
    def regular_pair_count(self) -> int:
        """Number of pairs without those of NaN and null."""
        return self.pair_count - self.special_count

    @property
    def raw_sizes(self) -> np.ndarray:
        """Size of each row group in memory; estimated if the segment does not record it."""
        if "raw" in self.groups.column_names:
            sizes: np.ndarray = self.groups.column("raw").to_numpy()
            return sizes
        is_text = pat.is_string(self.kind) or pat.is_binary(self.kind)
        width = 4 + (_GUESSED_BYTES if is_text else max(1, self.kind.bit_width // 8))
        assert self.metadata is not None  # a directory in pages has the sizes
        groups = (self.metadata.row_group(number) for number in range(self.groups.num_rows))
        return np.array(
            [max(width * group.num_rows, group.total_byte_size) for group in groups], dtype=np.int64
        )

    @property
    def raw_bytes(self) -> int:
        """Size of all row groups in memory."""
        if self.root is not None:
            return int(self.root.pages.column("raw").to_numpy().sum())
        return int(self.raw_sizes.sum())


def has_specials(directory: pa.Table) -> bool:
    """Return whether the last entry of a directory is that of NaN and null, which has no bounds."""
    return directory.num_rows > 0 and not directory.column("first")[-1].is_valid


def size_of(segment: Segment) -> int:
    """Return the length of a segment's object in bytes, from its name.

    Raises:
        CorruptMetadataError: The name is of another form.
    """
    return int(_match_name(segment.key)["size"], 16)


def is_small(segment: Segment) -> bool:
    """Return whether one request fetches the whole segment, judged by its name."""
    match = _NAME.fullmatch(segment.key.rpartition("/")[2])
    return match is not None and int(match["size"], 16) <= SMALL_BYTES


def file_count_of(segment: Segment) -> int | None:
    """Return the number of files that a segment covers, by its name; None if it has no directories."""
    match = _NAME.fullmatch(segment.key.rpartition("/")[2])
    return None if match is None or match["files"] is None else int(match["files"], 16)


def _match_name(key: str) -> re.Match[str]:
    match = _NAME.fullmatch(key.rpartition("/")[2])
    if match is None:
        raise _damaged(key, "its name is not that of an index segment")
    return match


def _tail_size(key: str) -> int:
    return int(_match_name(key)["footer"], 16)


def _damaged(key: str, cause: object) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Index segment {key!r} cannot be used: {cause}.",
        hint="Reads are correct without it, only slower; `lakebed check --repair` rebuilds it.",
    )


def open_segment(
    store: Store, segment: Segment, *, is_fresh: bool = False, needs_ids: bool = True
) -> tuple[Footer, int]:
    """Read the footer of a segment.

    Args:
        store: The store that holds the segment.
        segment: The segment to open.
        is_fresh: Read it from the store even if it is cached.
        needs_ids: Whether the ids of covered files will be asked for, or their sums.

    Returns:
        The footer, and the number of requests that it took.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        One GET: of the footer, or of a small segment as a whole; nothing while it is cached. One
        more for the ids if the directory is in pages.
    """
    name = ("postings", store.cache_name, segment.key)
    footer = None if is_fresh else PROCESS_CACHE.find(name, Footer)
    requests = 0
    if footer is None:
        footer, requests = _open(store, segment), 1
        _hold(name, footer)
    if needs_ids and footer.root is not None and footer.files.counts is None:
        part = footer.root.buckets
        place = np.array([part.start]), np.array([part.size])
        (piece,), more = _read_pieces(store, footer, [0], *place)
        footer = _with_buckets(footer, piece)
        _hold(name, footer)
        requests += more
    return footer, requests


def _hold(name: tuple[str, ...], footer: Footer) -> None:
    directory = footer.listed if footer.root is None else footer.root.pages
    assert directory is not None  # one of the two has it
    size = len(footer.held) if footer.held is not None else _tail_size(footer.key)
    size += footer.files.size_bytes + directory.nbytes
    if footer.metadata is not None:
        size += _MEMORY_OF_BYTE * footer.metadata.serialized_size
    PROCESS_CACHE.hold(name, footer, size_bytes=size)


def _open(store: Store, segment: Segment) -> Footer:
    match = _match_name(segment.key)
    size, tail_size = int(match["size"], 16), int(match["footer"], 16)
    is_small = size <= SMALL_BYTES
    start = 0 if is_small else size - tail_size
    data = _fetch(store, segment.key, start, size - start)
    tail = data[max(0, len(data) - tail_size) :]
    if len(data) != size - start or _hash(tail).hex() != match["hash"]:
        raise _damaged(segment.key, "its footer is damaged")
    return _read_footer(segment.key, size, tail, data if is_small else None)


def footer_of(encoded: EncodedSegment) -> Footer:
    """Return the footer of an encoded segment, which need not be in a store."""
    data = encoded.data
    tail_size = _tail_size(encoded.segment.key)
    footer = _read_footer(encoded.segment.key, len(data), data[-tail_size:], data)
    if footer.root is None:
        return footer
    part = footer.root.buckets
    return _with_buckets(footer, memoryview(data)[part.start : part.start + part.size])


def with_directory(
    store: Store,
    footer: Footer,
    choose: Callable[[pa.Table], Sequence[int]] | None = None,
    *,
    is_fresh: bool = False,
) -> tuple[Footer, int]:
    """Return a footer with its directory of row groups, and the number of requests.

    Args:
        store: The store that holds the segment.
        footer: Footer of the segment.
        choose: Function that returns the numbers of the pages that are needed, ascending. It
            receives the entries for the pages. None for all.
        is_fresh: Read them from the store even if they are cached.

    Returns:
        The footer, whose directory has the row groups of these pages only; they are numbered anew.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        Nothing, unless the directory is in pages: then one GET for each set of pages that are close
        together, unless the process has read them.
    """
    root = footer.root
    if root is None:
        return footer, 0
    numbers = range(root.pages.num_rows) if choose is None else choose(root.pages)
    known: dict[int, pa.Table] = {}
    for number in () if is_fresh else numbers:
        held = PROCESS_CACHE.find(_name_of_page(store, footer, number), pa.Table)
        if held is not None:
            known[number] = held
    missing = [number for number in numbers if number not in known]
    starts, sizes = (root.pages.column(name).to_numpy() for name in ("start", "size"))
    pieces, requests = _read_pieces(store, footer, missing, starts, sizes)
    for number, piece in zip(missing, pieces, strict=True):
        if _hash(piece) != root.pages.column("hash")[number].as_py():
            raise _damaged(footer.key, f"page {number} of its directory is damaged")
        try:
            known[number] = paged_root.decode_page(bytes(piece), footer.kind, footer.size_bytes)
        except paged_root.ERRORS as exc:
            raise _damaged(footer.key, exc) from exc
        PROCESS_CACHE.hold(
            _name_of_page(store, footer, number), known[number], size_bytes=known[number].nbytes
        )
    nothing = paged_root.schema_of_entries(footer.kind).empty_table()
    listed = pa.concat_tables([nothing, *(known[number] for number in numbers)]).combine_chunks()
    return replace(footer, listed=listed), requests


def _name_of_page(store: Store, footer: Footer, number: int) -> tuple[str, ...]:
    return ("directory", store.cache_name, footer.key, str(number))


def _with_buckets(footer: Footer, piece: memoryview) -> Footer:
    """Return the footer of a segment in pages with the buckets of the covered files."""
    root = footer.root
    assert root is not None  # other footers have them, or the ids
    if _hash(piece) != root.buckets.hash:
        raise _damaged(footer.key, "the buckets of its files are damaged")
    try:
        with pa.ipc.open_stream(bytes(piece)) as stream:
            table = stream.read_all().combine_chunks()
        files = _files_of(table, root.file_count, root.ids_start)
    except paged_root.ERRORS as exc:
        raise _damaged(footer.key, exc) from exc
    return replace(footer, files=files)


def _fetch(store: Store, key: str, start: int, length: int) -> bytes:
    try:
        return store.get_range(key, start, length)
    except ObjectNotFoundError as exc:
        raise _damaged(key, "it is missing") from exc


def _read_footer(key: str, size: int, tail: bytes, held: bytes | None) -> Footer:
    """Read a footer whose hash is correct; an error means that another program wrote it."""
    if tail.startswith(paged_root.MAGIC):
        return _read_root(key, size, tail, held)
    try:
        metadata = pq.read_metadata(pa.BufferReader(tail))
        texts = {name.decode(): text for name, text in (metadata.metadata or {}).items()}
        kind = metadata.schema.to_arrow_schema().field("value").type
        groups = _from_text(texts[_DIRECTORY])
        _check_directory(groups, kind, metadata, size)
        match texts.get(_FORMAT, b"").decode():
            case version if version in (_VERSION, _VERSION_WITH_BUCKETS):
                files, homes = _read_files(texts, groups, size - len(tail)), None
            case version if version == _VERSION_WITH_HOMES:
                files = _read_files(texts, groups, size - len(tail))
                homes = _read_home_pages(texts, files.count, size - len(tail))
            case _:
                raise _damaged(key, "it has a format that this release does not know")
        _check_counts(metadata, files.count)
        named = _match_name(key)["files"]
        if (named is None) != (homes is None) or (named and int(named, 16) != files.count):
            raise _damaged(key, "its name states another number of files")
        return Footer(
            key=key,
            size_bytes=size,
            kind=kind,
            files=files,
            listed=groups,
            value_count=int(texts[_VALUES]),
            pair_count=metadata.num_rows,
            special_count=_special_count(groups, metadata),
            metadata=metadata,
            held=held,
            homes=homes,
        )
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError) as exc:
        raise _damaged(key, exc) from exc


def _special_count(groups: pa.Table, metadata: pq.FileMetaData) -> int:
    last = groups.num_rows - 1
    return int(metadata.row_group(last).num_rows) if has_specials(groups) else 0


def _read_root(key: str, size: int, tail: bytes, held: bytes | None) -> Footer:
    try:
        root = paged_root.decode(tail, size - len(tail))
    except paged_root.ERRORS as exc:
        raise _damaged(key, exc) from exc
    if file_count_of(Segment(key, root.pair_count)) != root.file_count:
        raise _damaged(key, "its name states another number of files")
    sizes = root.home_sizes
    return Footer(
        key=key,
        size_bytes=size,
        kind=root.kind,
        files=CoveredFiles(root.file_count),
        listed=None,
        value_count=root.value_count,
        pair_count=root.pair_count,
        special_count=root.special_count,
        metadata=None,
        held=held,
        homes=HomePages(root.homes_start + np.cumsum(sizes) - sizes, sizes, root.home_hashes),
        root=root,
    )


def _read_files(texts: Mapping[str, bytes], groups: pa.Table, end: int) -> CoveredFiles:
    if _FILES not in texts:
        return _read_buckets(_from_text(texts[_BUCKETS]), groups, end)
    ids = np.frombuffer(base64.b64decode(texts[_FILES], validate=True), dtype="<i8")
    return CoveredFiles(count=len(ids), ids=ids.astype(np.int64))


def _read_home_pages(texts: Mapping[str, bytes], count: int, end: int) -> HomePages:
    """Return the pages with the directories of the covered files.

    Raises:
        ValueError: They do not fit into the object, or their number is wrong.
    """
    table, start = _from_text(texts[_HOMES]), int(texts[_HOMES_START])
    _check_columns(table, {"size": pa.int32(), "hash": paged_root.HASH_TYPE})
    sizes = table.column("size").to_numpy().astype(np.int64)
    is_possible = len(sizes) == file_homes.page_count(count) and (sizes >= 0).all()
    if not is_possible or not 0 <= start <= start + int(sizes.sum()) <= end:
        message = "the directories of its files do not fit into it"
        raise ValueError(message)
    return HomePages(start + np.cumsum(sizes) - sizes, sizes, table.column("hash").to_pylist())


def homes_at(
    store: Store, footer: Footer, positions: np.ndarray, *, is_fresh: bool = False
) -> tuple[np.ndarray, list[str], int]:
    """Return the ids and the directories of the files at some positions, and the number of requests.

    Args:
        store: The store that holds the segment.
        footer: Footer of a segment with directories.
        positions: Positions of covered files, ascending.
        is_fresh: Read them from the store even if they are cached.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        One GET for each set of pages that are close together, unless the process has read them.
    """
    pages = footer.homes
    assert pages is not None
    numbers = np.unique(positions // file_homes.PAGE_FILES).tolist()
    known: dict[int, file_homes.HomePage] = {}
    for number in () if is_fresh else numbers:
        held = PROCESS_CACHE.find(_name_of_homes(store, footer, number), file_homes.HomePage)
        if held is not None:
            known[number] = held
    missing = [number for number in numbers if number not in known]
    pieces, requests = _read_pieces(store, footer, missing, pages.starts, pages.sizes)
    for number, piece in zip(missing, pieces, strict=True):
        known_hash = pages.hashes[number]
        if _hash(piece)[: len(known_hash)] != known_hash:
            raise _damaged(footer.key, f"the directories of its files are damaged (page {number})")
        known[number] = _read_page(footer, bytes(piece), number)
        PROCESS_CACHE.hold(
            _name_of_homes(store, footer, number),
            known[number],
            size_bytes=known[number].memory_bytes,
        )
    ids, homes = [np.zeros(0, np.int64)], list[str]()
    for number in numbers:
        own = positions[positions // file_homes.PAGE_FILES == number] % file_homes.PAGE_FILES
        ids.append(known[number].ids[own])
        homes += known[number].homes(own)
    return np.concatenate(ids), homes, requests


def _read_page(footer: Footer, data: bytes, number: int) -> file_homes.HomePage:
    count = min(file_homes.PAGE_FILES, footer.files.count - number * file_homes.PAGE_FILES)
    try:
        return file_homes.decode(data, count, is_compact=footer.root is not None)
    except file_homes.ERRORS as exc:
        raise _damaged(footer.key, exc) from exc


def _name_of_homes(store: Store, footer: Footer, number: int) -> tuple[str, ...]:
    return ("homes", store.cache_name, footer.key, str(number))


def _read_buckets(table: pa.Table, groups: pa.Table, end: int) -> CoveredFiles:
    """Return the covered files of a segment whose ids are stored before its footer.

    Raises:
        ValueError: The numbers of ids do not fit into the object.
    """
    counts = _counts_in(table)
    last = groups.slice(max(0, groups.num_rows - 1))
    room = end - sum(last.column("start").to_pylist() + last.column("size").to_pylist())
    count = int(counts.sum()) if counts.max() <= room else -1
    if not 0 <= _ID_BYTES * count <= room:
        message = f"the ids of its files do not fit into the {room:,} bytes before its footer"
        raise ValueError(message)
    return _files_of(table, count, end - _ID_BYTES * count)


def _files_of(table: pa.Table, count: int, start: int) -> CoveredFiles:
    """Return covered files whose ids are stored apart.

    Args:
        table: The buckets.
        count: Number of files.
        start: Position of the ids.

    Raises:
        ValueError: The buckets have another number of files.
    """
    counts = _counts_in(table)
    if counts.max() > count or int(counts.sum()) != count:
        message = f"the buckets of its files do not have {count:,} ids"
        raise ValueError(message)
    return CoveredFiles(
        count=count,
        start=start,
        counts=counts,
        hashes=table.column("hash").to_pylist(),
        stored_sums=np.column_stack([table.column(f"sum_{lane}").to_numpy() for lane in range(2)]),
    )


def _counts_in(table: pa.Table) -> np.ndarray:
    """Return the number of ids in each bucket.

    Raises:
        ValueError: It has other columns or another number of buckets, or one is null or below 0.
        KeyError: A column is missing.
    """
    lanes = {f"sum_{lane}": pa.uint64() for lane in range(2)}
    _check_columns(table, {"count": pa.int64(), **lanes, "hash": paged_root.HASH_TYPE})
    if any(table.column(name).null_count for name in table.column_names):
        message = "a bucket of its files is null"
        raise ValueError(message)
    counts: np.ndarray = table.column("count").to_numpy()
    if len(counts) != BUCKETS or counts.min() < 0:
        message = f"its files are not in {BUCKETS:,} buckets"
        raise ValueError(message)
    return counts


def _check_columns(table: pa.Table, wanted: Mapping[str, pa.DataType]) -> None:
    """Check that a table has columns of these types.

    Raises:
        ValueError: A column is missing, or has another type.
    """
    for name, kind in wanted.items():
        if table.schema.field(name).type != kind:
            message = f"its directory has {name} as {table.schema.field(name).type}"
            raise ValueError(message)


def _check_directory(
    groups: pa.Table, kind: pa.DataType, metadata: pq.FileMetaData, size: int
) -> None:
    """Check the directory of a segment against the object.

    Raises:
        ValueError: It has other row groups, or they do not fit into the object.
        KeyError: A column is missing.
    """
    of_entries = paged_root.schema_of_entries(kind)
    bounds = {name: of_entries.field(name).type for name in ("first", "last")}
    numbers = dict.fromkeys(("start", "size"), pa.int64())
    if "raw" in groups.column_names:  # segments of earlier releases lack it
        numbers["raw"] = pa.int64()
    _check_columns(groups, {**bounds, **numbers, "hash": paged_root.HASH_TYPE})
    regular = groups.slice(0, max(0, groups.num_rows - 1))
    has_nulls = any(regular.column(name).null_count for name in bounds) or any(
        groups.column(name).null_count for name in (*numbers, "hash")
    )
    firsts, lasts = (groups.column(name) for name in bounds)
    starts, sizes = (groups.column(name).to_numpy() for name in ("start", "size"))
    if (
        has_nulls
        or firsts.null_count != lasts.null_count
        or groups.num_rows != metadata.num_row_groups
        or not ((starts >= 0) & (sizes >= 0) & (starts <= size) & (sizes <= size - starts)).all()
    ):
        message = "its directory does not fit its row groups"
        raise ValueError(message)
    if metadata.schema.to_arrow_schema().field("file").type != pa.int32():
        message = "its files are not numbers of 32 bits"
        raise ValueError(message)


def _check_counts(metadata: pq.FileMetaData, file_count: int) -> None:
    """Check the row counts of all row groups, before any rows are read.

    Raises:
        ValueError: A row group has too many. Its file may be small: a run of equal values takes no
            space, however long.
    """
    most = max(_MAX_GROUP_ROWS, 2 * file_count)
    for number in range(metadata.num_row_groups):
        count = metadata.row_group(number).num_rows
        if count > most:
            message = f"row group {number} has {count:,} rows according to its footer"
            raise ValueError(message)


class _Pieces(SeekableReader):
    """Some pieces of an object, for a reader that needs only these."""

    def __init__(self, pieces: Sequence[tuple[int, memoryview]], size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._pieces = pieces

    def read(self, size: int = -1, /) -> bytes:
        index = bisect_right(self._pieces, self.position, key=lambda piece: piece[0]) - 1
        if index < 0:
            return b""
        start, data = self._pieces[index]
        chunk = bytes(data[self.position - start :][: size if size >= 0 else None])
        self.position += len(chunk)
        return chunk


def file_ids_of(store: Store, footer: Footer, *, is_fresh: bool = False) -> tuple[np.ndarray, int]:
    """Return the ids of the files that a segment covers, ascending, and the number of requests.

    Args:
        store: The store that holds the segment.
        footer: Footer of the segment.
        is_fresh: Read them from the store even if they are cached.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        One GET if the ids are stored apart from the footer, unless the process has read them.
    """
    return file_ids_in(store, footer, range(BUCKETS), is_fresh=is_fresh)


def file_ids_in(
    store: Store, footer: Footer, buckets: Sequence[int], *, is_fresh: bool = False
) -> tuple[np.ndarray, int]:
    """Return the ids of covered files, at least of those in some buckets, and the requests.

    Args:
        store: The store that holds the segment.
        footer: Footer of the segment.
        buckets: Numbers of buckets, ascending.
        is_fresh: Read them from the store even if they are cached.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        One GET for each set of buckets that are close together, unless the process has read them.
    """
    if footer.files.ids is not None:
        return footer.files.ids, 0
    pieces, requests = _read_ids(store, footer, buckets, is_fresh=is_fresh)
    return np.concatenate([np.zeros(0, np.int64), *pieces]), requests


def file_ids_at(store: Store, footer: Footer, positions: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the ids of the files at some positions, and the number of requests.

    Args:
        store: The store that holds the segment.
        footer: Footer of the segment.
        positions: Positions of covered files, ascending.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        As `file_ids_in`, for the buckets of these files.
    """
    if footer.files.ids is not None:
        return footer.files.ids[positions], 0
    ends = footer.files.ends
    buckets = np.unique(np.searchsorted(ends, positions, side="right"))
    pieces, requests = _read_ids(store, footer, buckets.tolist())
    known = np.concatenate([np.zeros(0, np.int64), *pieces])
    # The buckets stand one behind the other in `known`, without those that were not read.
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    starts = np.cumsum(lengths) - lengths
    places = np.searchsorted(buckets, np.searchsorted(ends, positions, side="right"))
    return known[starts[places] + positions - (ends[buckets] - lengths)[places]], requests


def _read_ids(
    store: Store, footer: Footer, buckets: Sequence[int], *, is_fresh: bool = False
) -> tuple[list[np.ndarray], int]:
    """Return the stored ids of some buckets, and the number of requests."""
    files = footer.files
    assert files.counts is not None  # the ids are not in the footer
    sizes = files.counts * _ID_BYTES
    starts = files.start + files.ends * _ID_BYTES - sizes
    known: dict[int, np.ndarray] = {}
    for bucket in buckets:
        held = PROCESS_CACHE.find(_name_of_ids(store, footer, bucket), np.ndarray)
        if held is not None and not is_fresh:
            known[bucket] = held
    missing = [bucket for bucket in buckets if bucket not in known]
    pieces, requests = _read_pieces(store, footer, missing, starts, sizes)
    for bucket, piece in zip(missing, pieces, strict=True):
        if _hash(piece) != files.hashes[bucket]:
            raise _damaged(footer.key, f"the ids of its files are damaged (bucket {bucket})")
        ids = np.frombuffer(bytes(piece), dtype="<i8").astype(np.int64, copy=False)
        known[bucket] = ids
        PROCESS_CACHE.hold(
            _name_of_ids(store, footer, bucket), ids, size_bytes=len(piece) + _BUCKET_BYTES
        )
    return [known[bucket] for bucket in buckets], requests


def _name_of_ids(store: Store, footer: Footer, bucket: int) -> tuple[str, ...]:
    return ("ids", store.cache_name, footer.key, str(bucket))


def read_groups(store: Store, footer: Footer, numbers: Sequence[int]) -> tuple[pa.Table, int]:
    """Read row groups.

    Args:
        store: The store that holds the segment.
        footer: Footer of the segment.
        numbers: Numbers of the row groups, ascending.

    Returns:
        Their pairs, and the number of requests that it took.

    Raises:
        CorruptMetadataError: The object is missing or damaged.

    Cost:
        One GET for each set of row groups that are close together.
    """
    starts = footer.groups.column("start").to_numpy()
    sizes = footer.groups.column("size").to_numpy()
    hashes = footer.groups.column("hash")
    found, requests = _read_pieces(store, footer, numbers, starts, sizes)
    for number, piece in zip(numbers, found, strict=True):
        if _hash(piece) != hashes[number].as_py():
            raise _damaged(footer.key, f"row group {number} is damaged")
    pieces = [(int(starts[number]), piece) for number, piece in zip(numbers, found, strict=True)]
    if footer.metadata is None:
        return _rows_of(footer, numbers, found), requests
    try:
        source = pa.PythonFile(_Pieces(pieces, footer.size_bytes), mode="r")
        # Without read-ahead, which would also fetch the gaps between the pieces.
        file = pq.ParquetFile(source, metadata=footer.metadata, pre_buffer=False)
        return file.read_row_groups(list(numbers), use_threads=False), requests
    except (pa.ArrowException, OSError, ValueError, IndexError) as exc:
        raise _damaged(footer.key, exc) from exc


def _rows_of(footer: Footer, numbers: Sequence[int], pieces: Sequence[memoryview]) -> pa.Table:
    """Return the pairs of row groups, each of which is a Parquet file."""
    schema = pa.schema([pa.field("value", footer.kind), pa.field("file", pa.int32())])
    parts = [schema.empty_table()]
    for number, piece in zip(numbers, pieces, strict=True):
        try:
            file = pq.ParquetFile(pa.BufferReader(piece), pre_buffer=False)
            _check_counts(file.metadata, footer.files.count)
            parts.append(file.read(use_threads=False).cast(schema))
        except (pa.ArrowException, OSError, ValueError, IndexError) as exc:
            raise _damaged(footer.key, f"row group {number}: {exc}") from exc
    return pa.concat_tables(parts)


def _read_pieces(
    store: Store, footer: Footer, numbers: Sequence[int], starts: np.ndarray, sizes: np.ndarray
) -> tuple[list[memoryview], int]:
    """Return parts of a segment in the order of their numbers, and the number of requests."""
    pieces: list[memoryview] = []
    requests = 0
    for span in _near(numbers, starts, sizes):
        begin, end = int(starts[span[0]]), int(starts[span[-1]] + sizes[span[-1]])
        if footer.held is not None:
            data = memoryview(footer.held)[begin:end]
        else:
            data = memoryview(_fetch(store, footer.key, begin, end - begin))
            requests += 1
        for number in span:
            offset = int(starts[number]) - begin
            pieces.append(data[offset : offset + int(sizes[number])])
    return pieces, requests


def _near(numbers: Sequence[int], starts: np.ndarray, sizes: np.ndarray) -> list[list[int]]:
    """Split parts of a segment into those that one request fetches."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and starts[number] - (starts[spans[-1][-1]] + sizes[spans[-1][-1]]) <= _GAP_BYTES:
            spans[-1].append(number)
        else:
            spans.append([number])
    return spans
