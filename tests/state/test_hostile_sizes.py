"""What is small on storage and claims to be large takes no more memory than it is worth."""

from __future__ import annotations

import io
import struct
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from lakebed.archive import FileMetadata, open_bundle
from lakebed.arrow.formats import submissions
from lakebed.errors import CorruptMetadataError, FormatError
from lakebed.index import segment as index_segment
from lakebed.state import file_table, head
from lakebed.state.head import HeadFormat
from lakebed.store import segments
from lakebed.store.segments import pack, unpack

MB = 2**20


@contextmanager
def at_most(megabytes: int) -> Iterator[None]:
    """Fail if Python's objects take more meanwhile; what Arrow holds is not counted."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < megabytes * MB


def frame(size_bytes: int, *, claimed: int | None) -> bytes:
    """Return a zstd frame of zeros, four bytes for each 128 KiB of them."""
    blocks = []
    count, rest = divmod(size_bytes, 2**17)
    lengths = [2**17] * count + ([rest] if rest or not count else [])
    for number, length in enumerate(lengths):
        is_last = number == len(lengths) - 1
        blocks.append((is_last | 1 << 1 | length << 3).to_bytes(3, "little") + b"\0")
    told = b"\xe0" + struct.pack("<Q", claimed) if claimed is not None else b"\x00\x88"
    return b"\x28\xb5\x2f\xfd" + told + b"".join(blocks)


def test_frame_of_the_test_is_one() -> None:
    assert zstandard.ZstdDecompressor().decompress(frame(3 * MB, claimed=3 * MB)) == bytes(3 * MB)


def decode_document(data: bytes) -> object:
    return unpack(data, list[int], "Runs 'd/runs/1'", "Restore it.")


def decode_head(data: bytes) -> object:
    return head.decode_head(data, HeadFormat.MSGPACK, "d.by-dataset-metadata.msgpack.zstd")


DECODERS = pytest.mark.parametrize("decode", [decode_document, decode_head])


@DECODERS
@pytest.mark.parametrize("size_bytes", [1, 2**33], ids=["lies", "is so large"])
def test_frame_that_says_it_holds_gigabytes_is_refused_before_it_is_unpacked(
    decode, size_bytes: int
) -> None:
    data = frame(size_bytes, claimed=2**33)

    with at_most(1), pytest.raises(CorruptMetadataError, match="unpacks to more than"):
        decode(data)


@DECODERS
def test_frame_that_says_more_than_its_bytes_can_hold_is_refused(decode) -> None:
    with at_most(1), pytest.raises(CorruptMetadataError, match="cannot"):
        decode(frame(1, claimed=2**29))


@pytest.mark.thorough
@DECODERS
def test_frame_that_does_not_say_is_unpacked_up_to_the_limit(
    decode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MAX_DOCUMENT_BYTES", 8 * MB)
    monkeypatch.setattr(head, "MAX_HEAD_BYTES", 8 * MB)

    with at_most(40), pytest.raises(CorruptMetadataError, match="unpacks to more than 8388608"):
        decode(frame(2**33, claimed=None))


@pytest.mark.parametrize("is_told", [True, False])
def test_frame_within_the_limit_is_read_either_way(is_told: bool) -> None:
    numbers = list(range(100_000))
    compressor = zstandard.ZstdCompressor(write_content_size=is_told).compressobj()
    data = compressor.compress(msgspec.json.encode(numbers)) + compressor.flush()

    assert decode_document(data) == numbers
    assert decode_document(pack(numbers)) == numbers


@DECODERS
@pytest.mark.parametrize("cut", [1, 5, 20])
def test_frame_that_is_cut_is_refused(decode, cut: int) -> None:
    data = frame(MB, claimed=MB)

    with pytest.raises(CorruptMetadataError):
        decode(data[:-cut])


# Parquet: runs of equal values take no room


def of_equal_rows(row_count: int, columns: dict[str, object]) -> bytes:
    table = pa.table({name: pa.array([value] * 1_000) for name, value in columns.items()})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, data_page_size=2**30) as writer:
        rows = pa.concat_tables([table] * (row_count // 1_000))
        writer.write_table(rows, row_group_size=row_count)
    return sink.getvalue().to_pybytes()


def test_file_table_of_more_rows_than_its_bytes_can_hold_is_refused() -> None:
    data = of_equal_rows(2_000_000, {"label": "x", "row_count": 1, "size_bytes": 1})
    assert len(data) < 2_000_000 / 16

    with pytest.raises(CorruptMetadataError, match="2,000,000 rows"):
        file_table.decode(data, "d/files/1.parquet")


def test_file_table_of_the_most_alike_files_is_read() -> None:
    count = 100_000
    facts = pa.table(
        {
            "label": [f"a/{number}" for number in range(count)],
            "row_count": pa.array([1] * count, pa.int64()),
            "size_bytes": pa.array([1] * count, pa.int64()),
            "checksum": ["sha256:" + "0" * 64] * count,
        }
    )

    assert file_table.decode(file_table.encode(facts), "d/files/1.parquet").equals(facts)


def test_index_segment_with_a_row_group_of_any_length_is_refused() -> None:
    writer = index_segment.SegmentWriter(pa.int64(), np.array([1]), group_rows=2_000_000)
    count = 1_500_000
    table = pa.table(
        {
            "value": pa.array(np.zeros(count, dtype=np.int64)),
            "file": pa.array(np.zeros(count, dtype=np.int32)),
        },
        schema=pa.schema([("value", pa.int64()), pa.field("file", pa.int32(), nullable=False)]),
    )
    writer._write_group(table, is_special=False)
    nothing = np.array([], dtype=np.int32)
    encoded = writer.finish("d", "c", nothing, nothing)

    with pytest.raises(CorruptMetadataError, match="row group 0 has 1,500,000 rows"):
        index_segment.footer_of(encoded)


# Lines


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
def test_submissions_without_an_end_of_line_are_read_up_to_the_limit(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "_MAX_LINE_BYTES", 8 * MB)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as out:
        for _ in range(32):
            out.write(bytes(MB))
    source = pa.BufferReader(sink.getvalue())

    with at_most(40), pytest.raises(CorruptMetadataError, match="longer than 8388608"):
        submissions.SubmissionsReader().count(source)


# Bundles

METADATA = {
    "version": 0,
    "id": "old",
    "start": 1_420_000_000_000,
    "end": None,
    "path": "/a",
    "where": "w",
    "what": "x",
    "work_id": None,
    "hash": "0" * 32,
}


def bundle_with(path: Path, *extra: tarfile.TarInfo) -> Path:
    members = {
        "content": b"content",
        "version": b"0",
        "datalake-metadata.json": FileMetadata(METADATA).to_json().encode(),
    }
    with tarfile.open(path, "w") as tar:
        for info in extra:
            tar.addfile(info)
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.thorough
def test_bundle_with_any_number_of_members_is_looked_at_no_further_than_a_few(
    tmp_path: Path,
) -> None:
    others = [tarfile.TarInfo(f"other-{number}") for number in range(20_000)]
    path = bundle_with(tmp_path / "b.tar", *others)

    with at_most(1), pytest.raises(FormatError, match="not a bundle"), open_bundle(path):
        pass


def test_content_made_of_holes_is_no_content(tmp_path: Path) -> None:
    path = bundle_with(tmp_path / "b.tar")
    data = bytearray(path.read_bytes())
    # The first header becomes that of a sparse file of 8 GiB without a single piece of data.
    header = tarfile.TarInfo("content")
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[156:157] = tarfile.GNUTYPE_SPARSE
    block[483:495] = b"77777777777\0"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    del data[512:1024]
    data[:512] = block
    path.write_bytes(data)

    with pytest.raises(FormatError, match="not a plain file"), open_bundle(path):
        pass
