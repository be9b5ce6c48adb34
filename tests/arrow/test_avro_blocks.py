"""Blocks of Avro unpack to no more than a limit, and claim no memory that they do not fill."""

from __future__ import annotations

import io
import lzma
import tracemalloc
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import lakebed
from lakebed.arrow import avro_blocks
from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.arrow.formats.avro_files import AvroReader
from lakebed.errors import CorruptMetadataError
from lakebed.model.arrow_types import schema_from_arrow

MB = 2**20
CODECS = ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]
PACKED = [codec for codec in CODECS if codec != "null"]
SCHEMA: Any = {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}]}
ROWS = [{"s": f"text {number}"} for number in range(5_000)]
WANTED = schema_from_arrow(pa.schema([pa.field("s", pa.string(), nullable=False)]))


def avro(rows: list[dict[str, str]], codec: str, **options: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, SCHEMA, rows, codec=codec, **options)
    return sink.getvalue()


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read_as_without_the_limit(codec: str) -> None:
    data = avro(ROWS, codec, sync_interval=4_000, metadata={"made": "by a test"})

    reader = fastavro.reader(UncompressedAvro(io.BytesIO(data)))

    assert list(reader) == ROWS
    assert reader.metadata["made"] == "by a test"
    assert AvroReader().count(pa.BufferReader(data)) == len(ROWS)


def test_file_without_rows_or_codec_is_read() -> None:
    assert list(fastavro.reader(UncompressedAvro(io.BytesIO(avro([], "deflate"))))) == []
    written = avro(ROWS, "null")
    start = written.index(b"\x14avro.codec")
    bare = written[:4] + b"\x02" + written[5:start] + written[start + 16 :]

    assert list(fastavro.reader(UncompressedAvro(io.BytesIO(bare)))) == ROWS


@pytest.mark.thorough
@pytest.mark.parametrize("codec", PACKED)
def test_block_that_unpacks_to_too_much_is_refused_and_takes_no_more(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = avro([{"s": "x" * (64 * MB)}], codec)
    monkeypatch.setattr(avro_blocks, "MAX_BLOCK_BYTES", 16 * MB)
    tracemalloc.start()

    with pytest.raises(CorruptMetadataError):
        AvroReader().count(pa.BufferReader(data))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60 * MB


def test_block_that_says_it_is_long_takes_no_memory_for_it() -> None:
    data = avro([], "null")
    count, size = b"\x02", avro_blocks.varint(2**33)
    tracemalloc.start()

    with pytest.raises(CorruptMetadataError):
        AvroReader().count(pa.BufferReader(data + count + size + b"short"))

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * MB


@pytest.mark.parametrize("codec", CODECS)
def test_file_that_is_cut_anywhere_is_no_whole_file(codec: str) -> None:
    data = avro(ROWS[:50], codec, sync_interval=200)

    for end in range(0, len(data), 7):
        try:
            rows = [
                row
                for batch in AvroReader().batches(pa.BufferReader(data[:end]), WANTED)
                for row in batch.to_pylist()
            ]
        except CorruptMetadataError:
            continue
        # Avro has no end: a file cut between two blocks is a shorter file.
        assert data[:end].endswith(data[-16:])
        assert rows == ROWS[: len(rows)]


@pytest.mark.parametrize("suffix", ["xz", "gz", "zst"])
def test_compressed_file_that_is_cut_is_not_a_shorter_one(tmp_path: Path, suffix: str) -> None:
    codec = {"xz": "xz", "gz": "gzip", "zst": "zstd"}[suffix]
    data = avro(ROWS, "null", sync_interval=4_000)
    if codec == "xz":
        packed = lzma.compress(data)
    else:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            out.write(data)
        packed = sink.getvalue().to_pybytes()
    (tmp_path / f"a.avro.{suffix}").write_bytes(packed[: len(packed) // 2])
    dataset = lakebed.open_repository(f"memory://{uuid.uuid4().hex}").create(
        "texts", lakebed.DatasetDescriptor(schema=WANTED)
    )

    report = dataset.load(tmp_path / f"a.avro.{suffix}")

    assert report.row_count < len(ROWS)
    assert report.rejected_count == 1


def test_rows_before_a_bomb_are_loaded_and_the_rest_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [*ROWS[:100], {"s": "x" * (4 * MB)}]
    (tmp_path / "a.avro").write_bytes(avro(rows, "deflate", sync_interval=200))
    dataset = lakebed.open_repository(f"memory://{uuid.uuid4().hex}").create(
        "texts", lakebed.DatasetDescriptor(schema=WANTED)
    )
    monkeypatch.setattr(avro_blocks, "MAX_BLOCK_BYTES", MB)

    report = dataset.load(tmp_path / "a.avro")

    assert report.rejected_count == 1
    assert 0 < report.row_count <= 100
