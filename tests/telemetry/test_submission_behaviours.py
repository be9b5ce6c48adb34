"""Behaviours of telemetry's storage of submissions, by their numbers in its tests.

14 is here a partition directory: the last dimension is not in the name of a file. 16 and 17 are a
rolled file and a commit: nothing is renamed or compressed later. 31 is the wire format of another
tool.
"""

import gzip
import hashlib
import json
import lzma

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, WriteOptions
from lakebed.arrow.reading.files import RawFile, lines_of
from lakebed.errors import InvalidInputError

SCHEMA = pa.schema(
    [
        ("uuid", pa.string()),
        ("document", pa.string()),
        ("reason", pa.string()),
        ("app", pa.string()),
    ]
)


def create(lake, **others):
    return lake.create("pings", DatasetDescriptor(schema=SCHEMA, format="submissions", **others))


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


@pytest.mark.parametrize("document", ['{"bar":"baz"}', {"bar": "baz"}], ids=["text", "dict"])
def test_behaviour_13_line_is_uuid_tab_json_newline(lake, document) -> None:
    dataset = create(lake, compression="uncompressed")

    dataset.append([{"uuid": "foo", "document": document}])

    data = lake.store.get(dataset.files()[0].key).data
    assert data == b'foo\t{"bar":"baz"}\n'
    assert hashlib.md5(data).hexdigest() == "0ea91df239ea79ed2ebab34b46d455fc"


def test_behaviour_14_dimensions_say_where_the_file_lies(lake) -> None:
    dataset = create(lake, partition_by="reason, app")

    dataset.append([{"uuid": "foo", "document": {"reason": "r1", "app": "a1"}}])

    assert [one.path for one in dataset.inspect.partitions()] == ["reason=r1/app=a1"]
    assert dataset.files()[0].key.startswith("pings/data/reason=r1/app=a1/batch_id=")


def test_behaviour_15_line_breaks_become_spaces(lake) -> None:
    dataset = create(lake, compression="uncompressed")

    dataset.append([{"uuid": "foo", "document": '{"ab":\n\n"cd"}\r\n'}])

    assert lake.store.get(dataset.files()[0].key).data == b'foo\t{"ab":  "cd"}  \n'
    assert dataset.arrow(["document"])["document"].to_pylist() == ['{"ab":  "cd"}  ']


def test_behaviour_16_files_are_rolled_at_their_size(lake) -> None:
    dataset = create(lake, compression="uncompressed")
    # A key of 50, a tab, a value of 48 and a newline: 100 bytes.
    entities = [{"uuid": f"{n:050}", "document": f'{{"v":"{n:040}"}}'} for n in range(1_000)]
    assert {len(one["uuid"]) + len(one["document"]) + 2 for one in entities} == {100}

    dataset.with_options(write=WriteOptions(target_bytes=10_000)).append(entities)

    sizes = [file.size_bytes for file in dataset.files()]
    assert sum(sizes) == 100_000
    assert len(sizes) >= 9
    assert max(sizes) <= 11_000
    assert {row["uuid"] for row in dataset.kite.reader()} == {one["uuid"] for one in entities}


def test_behaviour_17_only_finished_files_are_left_and_they_round_trip(lake, tmp_path) -> None:
    dataset = create(lake, compression="xz")

    dataset.append([{"uuid": f"u{n}", "document": {"n": n}} for n in range(100)])

    files = [one for one in (tmp_path / "lake" / "pings" / "data").rglob("*") if one.is_file()]
    (written,) = [one for one in files if not one.name.startswith("_")]
    assert written.name.endswith(".tsv.xz")
    lines = lzma.decompress(written.read_bytes()).splitlines()
    assert [json.loads(line.partition(b"\t")[2])["n"] for line in lines] == list(range(100))
    assert not list((tmp_path / "lake" / "pings").rglob("staging/*/*"))


LINES = b"".join(b'u%d\t{"reason":"r"}\n' % n for n in range(1_000))
COMPRESSED = {
    "gz": gzip.compress(LINES),
    "xz": lzma.compress(LINES),
    "lzma": lzma.compress(LINES, format=lzma.FORMAT_ALONE),
    "lz4": pa.compress(LINES, "lz4", asbytes=True),
    "zst": pa.compress(LINES, "zstd", asbytes=True),
}


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_behaviour_18_codec_is_told_by_the_suffix(lake, tmp_path, suffix: str) -> None:
    path = tmp_path / f"pings.tsv.{suffix}"
    path.write_bytes(COMPRESSED[suffix])
    assert len(COMPRESSED[suffix]) < len(LINES)

    report = create(lake).load(path)

    assert (report.row_count, report.rejected_count) == (1_000, 0)


def test_behaviour_18_format_that_no_suffix_tells_is_found_by_the_content(lake, tmp_path) -> None:
    path = tmp_path / "001.lz4"
    path.write_bytes(COMPRESSED["lz4"])
    dataset = create(lake)

    assert dataset.load(path).row_count == 1_000


def test_behaviour_18_unknown_compression_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="brotli"):
        DatasetDescriptor(schema=SCHEMA, format="submissions", compression="brotli")


def test_behaviour_18_parts_of_a_compressed_file_may_follow_each_other(tmp_path) -> None:
    for suffix in ("gz", "xz", "lz4", "zst"):
        path = tmp_path / f"pings.tsv.{suffix}"
        path.write_bytes(COMPRESSED[suffix] * 2)

        lines = list(lines_of(RawFile(location=str(path), size_bytes=path.stat().st_size)))

        assert len(lines) == 2_000, suffix
        assert not any(line.problem for line in lines)


def test_behaviour_32_line_that_is_no_utf8_is_kept_as_it_is(lake, tmp_path) -> None:
    # Where the original puts U+FFFD in place of the bytes, they go to quarantine unchanged.
    path = tmp_path / "pings.tsv"
    path.write_bytes(b'a\t{"reason":"\xff"}\nb\t{"reason":"ok"}\n')

    report = create(lake).load(path)

    assert (report.row_count, report.rejected_count) == (1, 1)
    (kept,) = lake.open("pings_quarantine").kite.reader()
    assert kept["line"] == b'a\t{"reason":"\xff"}'
    assert "UTF-8" in kept["reason"]


def test_behaviour_32_json_with_large_numbers_is_read(lake) -> None:
    dataset = create(lake)
    document = '{"reason":"r","n":' + "9" * 3_000 + ',"x":1e400}'

    dataset.append([{"uuid": "a", "document": document}])

    assert dataset.arrow(["document", "reason"]).to_pylist() == [
        {"document": document, "reason": "r"}
    ]


def test_behaviour_32_nested_fields_are_read(lake) -> None:
    nested = pa.struct([("nested", pa.struct([("test", pa.int64())]))])
    schema = pa.schema([*SCHEMA, ("f2", nested)])
    dataset = lake.create("nested", DatasetDescriptor(schema=schema, format="submissions"))

    dataset.append([{"uuid": "a", "document": {"f2": {"nested": {"test": 1, "more": 2}}}}])

    assert dataset.arrow(["f2"]).to_pylist() == [{"f2": {"nested": {"test": 1}}}]
