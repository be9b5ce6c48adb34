"""The codec of a large segment of an index: its root, and the pages of its directory.

The directory of all row groups would be larger than what a lookup needs. So it is in pages, and the
root has an entry for each page, of the form of those for row groups. A lookup reads the root, the
pages that can match, and the row groups that can match. A row group is a Parquet file of its own,
since the footer of one file would list all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import zstandard

from lakebed.common.decoding import from_msgpack
from lakebed.index.file_homes import page_count
from lakebed.store.segments import compress, decompress

MAGIC = b"lakebed.postings.4\n"
PAGE_GROUPS = 128  # row groups in a page of the directory
HASH_TYPE = pa.binary(16)
SHORT_HASH_BYTES = 8  # of a page with directories of files: its root has one for each 4,096 files
_MOST_BYTES = 2**26  # of the root or a page, uncompressed
_LEVEL = 3
ERRORS = (
    ValueError,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    OSError,
    pa.ArrowException,
    msgspec.MsgspecError,
    zstandard.ZstdError,
)

_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """A part of the object.

    Attributes:
        start: Its position.
        size: Its size.
        hash: Its hash.
    """

    start: _Count
    size: _Count
    hash: bytes


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The root as it is stored.

    Attributes:
        kind: Schema of Arrow with the field `value`, as it is in a stream.
        values: Number of distinct values.
        pairs: Number of pairs.
        specials: Number of pairs of NaN and null.
        files: Number of covered files.
        ids: Position of the ids of the covered files.
        buckets: The table of the buckets of these ids.
        homes: Position of the pages with the directories of the covered files.
        home_sizes: Sizes of these pages, as uint32, little-endian.
        home_hashes: Their hashes, one behind the other.
        pages: The entries for the pages of the directory: a stream of Arrow, as that of row groups.
    """

    kind: bytes
    values: _Count
    pairs: _Count
    specials: _Count
    files: _Count
    ids: _Count
    buckets: Part
    homes: _Count
    home_sizes: bytes
    home_hashes: bytes
    pages: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedRoot:
    """The root of a large segment.

    Attributes:
        kind: Type of the values.
        value_count: Number of distinct values, without NaN and null.
        pair_count: Number of pairs, including those of NaN and null.
        special_count: Number of pairs of NaN and null.
        file_count: Number of covered files.
        ids_start: Position of the ids of the covered files.
        buckets: The table of the buckets of these ids.
        homes_start: Position of the pages with the directories of the covered files.
        home_sizes: Sizes of these pages.
        home_hashes: Their hashes.
        pages: For each page of the directory `first`, `last`, `start`, `size`, `raw` and `hash`.
    """

    kind: pa.DataType
    value_count: int
    pair_count: int
    special_count: int
    file_count: int
    ids_start: int
    buckets: Part
    homes_start: int
    home_sizes: np.ndarray
    home_hashes: Sequence[bytes]
    pages: pa.Table


def encode(root: PagedRoot) -> bytes:
    """Return the bytes of a root."""
    stored = _Stored(
        kind=pa.schema([("value", root.kind)]).serialize().to_pybytes(),
        values=root.value_count,
        pairs=root.pair_count,
        specials=root.special_count,
        files=root.file_count,
        ids=root.ids_start,
        buckets=root.buckets,
        homes=root.homes_start,
        home_sizes=root.home_sizes.astype("<u4").tobytes(),
        home_hashes=b"".join(root.home_hashes),
        pages=to_stream(root.pages),
    )
    return MAGIC + compress(msgspec.msgpack.encode(stored), level=_LEVEL)


def decode(data: bytes, end: int) -> PagedRoot:
    """Read a root.

    Args:
        data: Its bytes.
        end: Its position in the object.

    Raises:
        ValueError: It is malformed, or leads outside the object; also the other errors of `ERRORS`.
    """
    stored = from_msgpack(decompress(data[len(MAGIC) :], _MOST_BYTES), _Stored)
    sizes = np.frombuffer(stored.home_sizes, "<u4").astype(np.int64)
    hashes = stored.home_hashes
    pages = page_count(stored.files)
    if len(sizes) != pages or len(hashes) != SHORT_HASH_BYTES * pages:
        message = "the directories of its files do not fit their number"
        raise ValueError(message)
    root = PagedRoot(
        kind=pa.ipc.read_schema(pa.BufferReader(stored.kind)).field("value").type,
        value_count=stored.values,
        pair_count=stored.pairs,
        special_count=stored.specials,
        file_count=stored.files,
        ids_start=stored.ids,
        buckets=stored.buckets,
        homes_start=stored.homes,
        home_sizes=sizes,
        home_hashes=[
            hashes[at : at + SHORT_HASH_BYTES] for at in range(0, len(hashes), SHORT_HASH_BYTES)
        ],
        pages=from_stream(stored.pages),
    )
    _check_entries(root.pages, root.kind, end)
    ids, homes, buckets = 8 * root.file_count, int(sizes.sum()), root.buckets
    for start, size in ((root.ids_start, ids), (root.homes_start, homes)):
        if start + size > end:
            message = f"{size:,} bytes at {start:,} do not fit into it"
            raise ValueError(message)
    if buckets.start + buckets.size > end or root.special_count > root.pair_count:
        message = "its numbers do not fit each other"
        raise ValueError(message)
    return root


def encode_pages(groups: pa.Table, special_count: int) -> Iterator[tuple[pa.Table, bytes]]:
    """Yield the pages of a directory: the entries in each, and its bytes.

    Args:
        groups: The entries of all row groups.
        special_count: Number of row groups at the end with a page of their own: that of NaN and null.
    """
    regular = groups.num_rows - special_count
    for start in range(0, regular, PAGE_GROUPS):
        rows = groups.slice(start, min(PAGE_GROUPS, regular - start))
        yield rows, compress(to_stream(rows), level=_LEVEL)
    if special_count:
        rows = groups.slice(regular)
        yield rows, compress(to_stream(rows), level=_LEVEL)


def decode_page(data: bytes, kind: pa.DataType, end: int) -> pa.Table:
    """Read a page of the directory.

    Args:
        data: Its bytes.
        kind: Type of the values.
        end: Position after the last row group that there may be.

    Raises:
        ValueError: It is malformed, or leads outside the object; also the other errors of `ERRORS`.
    """
    table = from_stream(decompress(data, _MOST_BYTES))
    _check_entries(table, kind, end)
    return table


def schema_of_entries(kind: pa.DataType) -> pa.Schema:
    """Return the schema of the entries for row groups, or for pages of them."""
    bound = pa.binary() if pa.types.is_string(kind) else kind
    numbers = [pa.field(name, pa.int64()) for name in ("start", "size", "raw")]
    return pa.schema(
        [pa.field("first", bound), pa.field("last", bound), *numbers, ("hash", HASH_TYPE)]
    )


def _check_entries(table: pa.Table, kind: pa.DataType, end: int) -> None:
    if not table.schema.equals(schema_of_entries(kind)):
        message = "its directory has other columns"
        raise ValueError(message)
    for name in ("start", "size", "raw"):
        numbers = table.column(name)
        if numbers.null_count or (numbers.to_numpy() < 0).any():
            message = f"its directory has a {name} below 0"
            raise ValueError(message)
    starts, sizes = (table.column(name).to_numpy() for name in ("start", "size"))
    if (starts > end).any() or (sizes > end - starts).any():
        message = "its directory leads outside the object"
        raise ValueError(message)
    regular = table.slice(0, max(0, table.num_rows - 1))
    firsts, lasts = (table.column(name) for name in ("first", "last"))
    if (
        firsts.null_count != lasts.null_count
        or any(regular.column(name).null_count for name in ("first", "last"))
        or table.column("hash").null_count
    ):
        message = "its directory lacks a bound, or a hash"
        raise ValueError(message)


def to_stream(table: pa.Table) -> bytes:
    """Return a table as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def from_stream(data: bytes) -> pa.Table:
    """Read a table that may come from anywhere.

    Raises:
        ValueError: It is malformed; also the other errors of `ERRORS`.
    """
    with pa.ipc.open_stream(data) as stream:
        table = stream.read_all().combine_chunks()
    table.validate(full=True)
    return table
