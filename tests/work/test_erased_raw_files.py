"""Raw files without the rows of planted keys, in every format that an ingest reads."""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import io
import json
import lzma
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from planted import MARK, found_in, key

import lakebed
from lakebed.arrow.reading.files import codec_of, uncompressed
from lakebed.model.key_rows import condition_of
from lakebed.model.predicate import Comparison, Op
from lakebed.store.base import Store
from lakebed.testing.stores import DelegatingStore
from lakebed.work.raw_contents import RowTest, UnreadableRowsError, without_rows

ROWS: list[dict[str, Any]] = [
    {"user": "bob", "n": 1, "note": "plain"},
    {"user": key(1), "n": 2, "note": "gone"},
    {"user": 'cyd, the "second"\nof two lines', "n": 3, "note": "quoted"},
    {"user": key(2), "n": 4, "note": "gone\ntoo"},
    {"user": "eve", "n": 5, "note": "last"},
]
KEPT = [row for row in ROWS if MARK not in row["user"]]
TEST = RowTest.of(condition_of({"user": [key(1), key(2)]}))
assert TEST is not None


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def csv_text(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["user", "n", "note"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="zstd", row_group_size=2)
    return sink.getvalue()


def avro(rows: list[dict[str, Any]]) -> bytes:
    fields = [{"name": "user", "type": "string"}, {"name": "n", "type": "long"}]
    schema = {
        "type": "record",
        "name": "r",
        "fields": [*fields, {"name": "note", "type": "string"}],
    }
    sink = io.BytesIO()
    fastavro.writer(sink, schema, rows, codec="deflate")
    return sink.getvalue()


def rows_in(data: bytes) -> list[dict[str, Any]]:
    if data[:4] == b"PAR1":
        return pq.read_table(io.BytesIO(data)).to_pylist()
    if data[:4] == b"Obj\x01":
        return list(fastavro.reader(io.BytesIO(data)))
    if data[:1] == b"[":
        return json.loads(data)
    if data[:1] == b"{":
        return [json.loads(line) for line in data.splitlines()]
    rows = csv.DictReader(io.StringIO(data.decode(), newline=""))
    return [{**row, "n": int(row["n"])} for row in rows]


@pytest.mark.parametrize(
    "write",
    [json_lines, csv_text, parquet, avro, lambda rows: json.dumps(rows).encode()],
    ids=["json", "csv", "parquet", "avro", "array"],
)
@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        (bytes, bytes),
        (gzip.compress, gzip.decompress),
        (bz2.compress, bz2.decompress),
        (lzma.compress, lzma.decompress),
        (zstandard.compress, zstandard.decompress),
    ],
    ids=["plain", "gzip", "bz2", "xz", "zstd"],
)
def test_rows_leave_and_others_stay(write: Any, pack: Any, unpack: Any) -> None:
    rest, count = without_rows(pack(write(ROWS)), TEST)

    assert count == 2
    assert rows_in(unpack(rest)) == KEPT
    assert MARK.encode() not in unpack(rest)
    assert without_rows(rest, TEST) == (rest, 0)


def lz4(data: bytes) -> bytes:
    return pa.compress(data, codec="lz4", asbytes=True)


def all_frames(data: bytes) -> bytes:
    codec = codec_of(data)
    assert codec is not None
    with uncompressed(pa.BufferReader(data), codec) as stream:
        return stream.read()


@pytest.mark.parametrize(
    "pack",
    [gzip.compress, bz2.compress, lzma.compress, zstandard.compress, lz4],
    ids=["gzip", "bz2", "xz", "zstd", "lz4"],
)
def test_rows_of_all_frames_are_searched_and_kept(pack: Any) -> None:
    first, second = json_lines(ROWS[:3]), json_lines(ROWS[3:])

    rest, count = without_rows(pack(first) + pack(second), TEST)

    assert count == 2
    assert rows_in(all_frames(rest)) == KEPT


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress])
def test_truncated_file_is_named(pack: Any) -> None:
    with pytest.raises(UnreadableRowsError, match="cannot be unpacked"):
        without_rows(pack(json_lines(ROWS))[:-9], TEST)


def test_other_separators_of_unicode_are_part_of_a_row() -> None:
    rows = [{**row, "note": f"a{separator}b"} for separator in "\x85\u2028\x0c" for row in ROWS]

    rest, count = without_rows(csv_text(rows), TEST)

    assert count == 6
    assert rows_in(rest) == [row for row in rows if MARK not in row["user"]]


def test_lines_without_fields_are_judged_by_their_words() -> None:
    text = f"10:00 {key(1)} in\n10:01 bob in\n10:02 x{key(1)} in\n".encode()

    rest, count = without_rows(text, TEST)

    assert count == 1
    assert rest == f"10:01 bob in\n10:02 x{key(1)} in\n".encode()


def test_row_that_only_mentions_a_key_stays() -> None:
    line = json.dumps({"user": "bob", "friend": key(1)}).encode() + b"\n"

    assert without_rows(line, TEST) == (line, 0)


def test_all_columns_of_a_key_must_agree() -> None:
    test = RowTest.of(condition_of({"user": ["bob", "eve"], "n": [1, 9]}))

    rest, count = without_rows(json_lines(ROWS), test)

    assert count == 1
    assert rows_in(rest) == ROWS[1:]


def test_file_that_cannot_be_divided_is_named() -> None:
    with pytest.raises(UnreadableRowsError, match="several lines"):
        without_rows(b'{"a":\n"' + key(1).encode() + b'"}{\n}', TEST)
    with pytest.raises(UnreadableRowsError, match="Parquet"):
        without_rows(b"PAR1xxxxPAR1", TEST)
    assert RowTest.of(Comparison("n", Op.GT, 1)) is None


WRITERS = {
    "jsonl": json_lines,
    "jsonl.gz": lambda rows: gzip.compress(json_lines(rows)),
    "csv": csv_text,
    "parquet": parquet,
    "avro": avro,
}
FORMATS = {"jsonl": "json", "jsonl.gz": "json", "csv": "csv", "parquet": "parquet", "avro": "avro"}


def ingested(
    tmp_path: Path, ending: str
) -> tuple[lakebed.Dataset, lakebed.Archive, lakebed.Ingest]:
    path = tmp_path / f"visits.{ending}"
    path.write_bytes(WRITERS[ending](ROWS))
    archive = lakebed.open_archive(str(tmp_path / "raw"))
    archive.push(path, where="web", what="visits", start="2026-01-01")
    path.unlink()
    ingest = lakebed.Ingest(
        name="visits",
        into=str(tmp_path / "lake" / "visits"),
        source=lakebed.FromArchive(
            storage=str(tmp_path / "raw"), what="visits", start="2026-01-01", end="2026-12-31"
        ),
        format=FORMATS[ending],
        create=lakebed.DatasetDescriptor(
            schema=pa.schema([("user", pa.string()), ("n", pa.int64()), ("note", pa.string())]),
            index=["user"],
        ),
    )
    ingest.run()
    return lakebed.open_repository(str(tmp_path / "lake")).open("visits"), archive, ingest


@pytest.mark.parametrize("ending", WRITERS)
def test_raw_file_is_rewritten_with_a_note_and_not_read_again(tmp_path: Path, ending: str) -> None:
    visits, archive, ingest = ingested(tmp_path, ending)
    (before,) = archive.list("visits", start="2026-01-01", end="now")
    planned = visits.erase(
        {"user": [key(1), key(2)]}, reason="request", archive=archive, dry_run=True
    )

    done = visits.erase({"user": [key(1), key(2)]}, reason="request", grace="0s", archive=archive)

    assert done.is_finished, done.left
    (place,) = (one for one in done.places if one.place == "raw files")
    assert place == next(one for one in planned.places if one.place == "raw files")
    assert (place.row_count, place.rewritten) == (2, 1)
    assert found_in(tmp_path / "lake", tmp_path / "raw") == []
    (record,) = archive.list("visits", start="2026-01-01", end="now")
    assert record.hash != before.hash
    (note,) = record.metadata["lakebed:erased"]
    assert note["rows"] == 2
    with archive.open(record.id) as stream:
        assert stream.read(), "the hash in the record is that of the content"
    version = visits.version
    ingest.run()
    assert visits.version == version, "the file counts as read"
    assert [source.fingerprint for source in visits.sources.list()] == [record.hash]
    assert visits.arrow().to_pylist() == KEPT
    ingest.run(again=[record.id])
    assert visits.arrow().to_pylist() == KEPT


def test_without_the_archive_raw_files_are_named(tmp_path: Path) -> None:
    visits, _, _ = ingested(tmp_path, "jsonl")

    done = visits.erase({"user": [key(1), key(2)]}, reason="request", grace="0s")

    assert [one.place for one in done.left] == ["raw files"]
    assert "--archive" in done.left[0].remedy
    done = visits.erase({"user": key(1)}, reason="request", grace="0s", raw_files=False)
    assert done.is_finished


def test_raw_file_that_cannot_be_rewritten_is_named(tmp_path: Path) -> None:
    visits, archive, _ = ingested(tmp_path, "parquet")
    (record,) = archive.list("visits", start="2026-01-01", end="now")
    (tmp_path / "raw" / record.id / "data").write_bytes(b"PAR1 damaged PAR1")

    done = visits.erase({"user": key(1)}, reason="request", grace="0s", archive=archive)

    (left,) = done.left
    assert "cannot be rewritten" in left.what
    assert record.id in left.what


class _KilledError(BaseException):
    """The process is dead."""


@pytest.mark.parametrize("last", range(3))
def test_kill_while_a_raw_file_is_rewritten(tmp_path: Path, last: int) -> None:
    visits, archive, ingest = ingested(tmp_path, "csv")

    class Mortal(DelegatingStore):
        left = last

        def __init__(self, inner: Store) -> None:
            super().__init__(inner)

        def _put(self, key: str, data: memoryview) -> None:
            self._count()
            super()._put(key, data)

        def _put_stream(self, *args: Any, **more: Any) -> Any:
            self._count()
            return super()._put_stream(*args, **more)

        def _stat(self, key: str) -> Any:
            if self.left < last:
                self._count()
            return super()._stat(key)

        def _count(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise _KilledError

    dying = lakebed.Archive(Mortal(archive.store), archive.index)
    with pytest.raises(_KilledError):
        visits.erase({"user": [key(1), key(2)]}, reason="request", archive=dying, grace="0s")

    done = visits.erase({"user": [key(1), key(2)]}, reason="request", archive=archive, grace="0s")

    assert done.is_finished, done.left
    assert found_in(tmp_path / "lake", tmp_path / "raw") == []
    (record,) = archive.list("visits", start="2026-01-01", end="now")
    with archive.open(record.id) as stream:
        assert rows_in(stream.read()) == KEPT
    version = visits.version
    ingest.run()
    assert visits.version == version


@pytest.mark.parametrize("last", ["1677-09-21", "9999-12-31"])
def test_times_in_int96_of_the_rows_that_stay_are_the_same(last: str) -> None:
    times = [dt.datetime(2020, 1, 1), dt.datetime.fromisoformat(last)]
    at = pa.array(times, pa.timestamp("us"))
    sink = io.BytesIO()
    table = pa.table({"user": [key(1), "bob"], "at": at})
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)

    kept, count = without_rows(sink.getvalue(), TEST)

    file = pq.ParquetFile(io.BytesIO(kept), coerce_int96_timestamp_unit="us")
    assert count == 1
    assert file.metadata.schema.column(1).physical_type == "INT96"
    assert file.read().column("at").to_pylist() == times[1:]
