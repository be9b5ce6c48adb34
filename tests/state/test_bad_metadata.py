"""Heads and segments that are damaged, hostile or of another time."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from copies import copy_of
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import by
from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    LakebedError,
    UnsupportedVersionError,
    VersionNotFoundError,
)
from lakebed.state import file_table, head, history
from lakebed.state.codec import from_document
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.store import Store, open_store
from lakebed.store.base import StoredObject

FORMATS = list(HeadFormat)
COUNTS = ["label", "row_count", "size_bytes"]
KEYS = {one: one.key("d") for one in FORMATS}
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("v", pa.int64()), ("t", pa.timestamp("us", tz="UTC"))]),
    partition_by=[by.identity("p"), by.date("t", name="dt")],
    properties={"owner": "ops"},
)

_names = itertools.count()


def make_store(head_format: HeadFormat = HeadFormat.JSON) -> Store:
    """Return a store with a dataset of three commits in two partitions."""
    return copy_of(sound_store(head_format))


@functools.cache
def sound_store(head_format: HeadFormat) -> Store:
    store = open_store(f"memory://bad-{next(_names)}")
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR, head_format=head_format.value)
    for number in range(3):
        moment = dt.datetime(2013, 1, 1 + number, tzinfo=dt.UTC)
        dataset.append([{"p": "ab"[number % 2], "v": number, "t": moment}])
    return store


def stored(data: bytes) -> StoredObject:
    return StoredObject(key="d/files/x.parquet", data=data, etag="e")


def content_of(store: Store) -> dict[str, bytes]:
    return {info.key: store.get(info.key).data for info in store.list()}


def unpack(data: bytes, head_format: HeadFormat) -> dict[str, Any]:
    if head_format is HeadFormat.JSON:
        return json.loads(data)
    return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data))


def pack(document: object, head_format: HeadFormat) -> bytes:
    """Encode a document as whoever means it; without the checksum of what it was before."""
    if isinstance(document, dict) and isinstance(document.get("metadata"), dict):
        document["metadata"].pop("lakebed.checksum", None)
    if head_format is HeadFormat.JSON:
        return json.dumps(document).encode()
    return zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(document))


def assert_refused(store: Store, *, error: type[FormatError], match: str) -> FormatError:
    """Reading and writing raise the error, and not a byte changes."""
    repository = lakebed.Repository(store)
    before = content_of(store)

    with pytest.raises(error, match=match) as caught:
        repository.open("d")
    with pytest.raises(error, match=match):
        repository.create("d", DESCRIPTOR)
    with pytest.raises(error, match=match):
        repository.drop("d")

    assert content_of(store) == before
    assert caught.value.hint
    return caught.value


def spoil(head_format: HeadFormat, change: Callable[[dict[str, Any]], object]) -> Store:
    store = make_store(head_format)
    document = unpack(store.get(KEYS[head_format]).data, head_format)
    replaced = change(document)
    spoilt = document if replaced is None else replaced
    store.put(KEYS[head_format], pack(spoilt, head_format))
    return store


both_formats = pytest.mark.parametrize("head_format", FORMATS)


@both_formats
@pytest.mark.parametrize("version", [3, 5, 2**40])
def test_another_version_of_the_specification(head_format: HeadFormat, version: int) -> None:
    store = spoil(head_format, lambda head: head.update(dataset_metadata_version=version))

    assert_refused(store, error=UnsupportedVersionError, match=f"metadata_version {version}")


@both_formats
def test_a_newer_version_that_differs_in_everything_else(head_format: HeadFormat) -> None:
    store = spoil(head_format, lambda _: {"dataset_metadata_version": 5, "partitions": [1, 2]})

    assert_refused(store, error=UnsupportedVersionError, match="metadata_version 5")


@both_formats
def test_a_newer_format_of_ours(head_format: HeadFormat) -> None:
    newer = {"lakebed.format_version": "6"}
    store = spoil(head_format, lambda head: head["metadata"].update(newer))

    error = assert_refused(store, error=UnsupportedVersionError, match=r"format_version 6\b")

    assert "Upgrade" in error.hint


WRONG_TYPES: list[tuple[str, object]] = [
    ("dataset_metadata_version", "4"),
    ("dataset_metadata_version", 4.5),
    ("dataset_metadata_version", True),
    ("dataset_metadata_version", None),
    ("dataset_uuid", 7),
    ("dataset_uuid", None),
    ("indices", ["v"]),
    ("indices", {"v": 1}),
    ("metadata", "x"),
    ("metadata", []),
    ("partitions", []),
    ("partitions", {"x": "y"}),
    ("partitions", {"x": {"files": ["y"]}}),
    ("partitions", {"x": {"files": {"data": 1}}}),
    ("partitions", {"x": {}}),
    ("partition_keys", "p"),
    ("partition_keys", [1]),
    ("partition_keys", ["p"]),
    ("partition_keys", ["p", "dt", "batch_id", "other"]),
    ("partition_keys", ["dt", "p", "batch_id"]),
]


@both_formats
@pytest.mark.parametrize(("key", "value"), WRONG_TYPES, ids=str)
def test_a_wrong_type_names_its_key_and_is_not_converted(
    head_format: HeadFormat, key: str, value: object
) -> None:
    store = spoil(head_format, lambda head: head.update({key: value}))

    assert_refused(store, error=CorruptMetadataError, match=key)


@both_formats
@pytest.mark.parametrize("key", ["dataset_metadata_version", "dataset_uuid", "partition_keys"])
def test_a_missing_key_is_named(head_format: HeadFormat, key: str) -> None:
    store = spoil(head_format, lambda head: head.pop(key) and None)

    assert_refused(store, error=CorruptMetadataError, match=key)


OWN_ENTRIES = ["version", "commit", "committed_at", "batch", "descriptor", "files", "history"]
HOSTILE = [
    None,
    1,
    [],
    {},
    "",
    "x\x00",
    "-1",
    "²",
    "٣",
    "9" * 5000,
    "1e3",
    "0001-01-01T00:00:00+23:59",
    "2013-01-01T00:00:00",
    "[" * 100_000,
    "[1]",
    '["../x"]',
    '["e/files/0000000001-x.parquet"]',
    '["d/files/../../0000000001-x.parquet"]',
    '["d/files/.0000000001-x.parquet"]',
    '["d/files/x.parquet"]',
    '["d/files/' + "9" * 5000 + '-x.parquet"]',
    '{"schema": ' + "[" * 50_000,
    '{"schema": {"type": "record", "fields": [{"name": "v", "type": {}}]}}',
    '{"schema": {"type": "record", "fields": [{"name": "v", "type": {"type": []}}]}}',
    '{"schema": {"type": "record", "fields": [{"name": "v", "type": "long"}]},'
    ' "partition_by": [{"type": "hash", "source": "v", "buckets": 0}]}',
]


@both_formats
@pytest.mark.parametrize("entry", [*OWN_ENTRIES, "streams"])
def test_a_hostile_entry_of_ours_is_refused(head_format: HeadFormat, entry: str) -> None:
    store = make_store(head_format)
    whole = store.get(KEYS[head_format]).data

    for value in HOSTILE:
        if entry == "commit" and isinstance(value, str) and value:
            continue  # any text names a commit
        document = unpack(whole, head_format)
        document["metadata"][f"lakebed.{entry}"] = value
        store.put(KEYS[head_format], pack(document, head_format))

        error = assert_refused(store, error=CorruptMetadataError, match=r"\w")

        points_elsewhere = str(value).startswith('["') and entry in ("files", "history")
        assert points_elsewhere or f"lakebed.{entry}" in str(error), value


@both_formats
def test_protections_of_any_depth_are_refused(head_format: HeadFormat) -> None:
    deep = '[{"other": ' + "[" * 50_000
    store = spoil(head_format, lambda head: head["metadata"].update({"lakebed.protections": deep}))

    assert_refused(store, error=CorruptMetadataError, match=r"lakebed\.protections")


@both_formats
@pytest.mark.parametrize("entry", OWN_ENTRIES)
def test_a_missing_entry_of_ours_is_named(head_format: HeadFormat, entry: str) -> None:
    store = spoil(head_format, lambda head: head["metadata"].pop(f"lakebed.{entry}") and None)

    assert_refused(store, error=CorruptMetadataError, match=f"lakebed.{entry}")


@both_formats
@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("p=a/dt=2013-01-01/batch_id=1/x", "e/data/p=a/dt=2013-01-01/batch_id=1/x.parquet"),
        ("p=a/dt=2013-01-01/batch_id=1/x", "d/data/p=a/dt=2013-01-01/batch_id=1/y.parquet"),
        ("../../e/data/x", "d/data/../../e/data/x.parquet"),
        ("p=a/../x", "d/data/p=a/../x.parquet"),
        ("/etc/passwd", "d/data//etc/passwd.parquet"),
        ("p=a/./x", "d/data/p=a/./x.parquet"),
        ("", "d/data/.parquet"),
    ],
)
def test_a_label_that_points_elsewhere_is_refused(
    head_format: HeadFormat, label: str, key: str
) -> None:
    store = spoil(
        head_format, lambda head: head["partitions"].update({label: {"files": {"data": key}}})
    )

    error = assert_refused(store, error=CorruptMetadataError, match="refers to")

    assert repr(label) in str(error)


@both_formats
def test_a_head_under_the_name_of_another_dataset(head_format: HeadFormat) -> None:
    store = spoil(head_format, lambda head: head.update(dataset_uuid="other"))

    assert_refused(store, error=CorruptMetadataError, match="'other'")


@both_formats
def test_a_segment_list_of_another_kind_or_gone(head_format: HeadFormat) -> None:
    store = make_store(head_format)
    dataset = lakebed.Repository(store).open("d")
    document = unpack(store.get(KEYS[head_format]).data, head_format)
    entries = document["metadata"]
    entries["lakebed.history"], entries["lakebed.files"] = (
        entries["lakebed.files"],
        entries["lakebed.history"],
    )
    store.put(KEYS[head_format], pack(document, head_format))

    for call in (dataset.history, lambda: dataset.at(version=1)):
        with pytest.raises(CorruptMetadataError):
            call()
    assert {file.row_count for file in dataset.files()} == {None}

    store.delete([info.key for info in store.list("d/history/")])
    store.delete([info.key for info in store.list("d/files/")])
    for call in (dataset.history, lambda: dataset.at(version=1)):
        with pytest.raises(LakebedError):
            call()
    assert {file.row_count for file in dataset.files()} == {None}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{",
        b'{"dataset_metadata_version": 4, "dataset_uuid": "\xff"}',
        b'{"dataset_metadata_version": 4, "dataset_uuid": "\\ud800"}',
        b'{"dataset_metadata_version": 4, "dataset_uuid": "d", "metadata": {"x": NaN}}',
        b'{"dataset_metadata_version": ' + b"9" * 5000 + b"}",
        b'{"dataset_metadata_version": 4, "metadata": {"x": ' + b"[" * 200_000,
        b"[" * 200_000,
        b'{"a":' * 200_000,
    ],
    ids=lambda data: str(data[:20]),
)
def test_json_that_is_none(data: bytes) -> None:
    store = make_store()
    store.put(KEYS[HeadFormat.JSON], data)

    assert_refused(store, error=CorruptMetadataError, match=r"by-dataset-metadata\.json")


def zstd(payload: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(payload)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\x28\xb5\x2f\xfd",
        zstd(b""),
        zstd(b"\xc1"),
        zstd(b"\x81\xa1x"),
        zstd(b"\x91" * 200_000),
        zstd(b"\xdf\xff\xff\xff\xff"),
        zstd(b"\xc6\xff\xff\xff\xff"),
        zstd(b"\x81\xd9\xff"),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_msgpack_that_is_none(data: bytes) -> None:
    store = make_store(HeadFormat.MSGPACK)
    store.put(KEYS[HeadFormat.MSGPACK], data)

    assert_refused(store, error=CorruptMetadataError, match=r"by-dataset-metadata\.msgpack")


@pytest.mark.thorough
@pytest.mark.parametrize("is_size_known", [True, False])
def test_a_head_that_unpacks_to_too_much(
    monkeypatch: pytest.MonkeyPatch,
    is_size_known: bool,
) -> None:
    monkeypatch.setattr(head, "MAX_HEAD_BYTES", 2**20)
    compressor = zstandard.ZstdCompressor().compressobj(size=2**30 if is_size_known else -1)
    bomb = b"".join(compressor.compress(bytes(2**20)) for _ in range(2**10)) + compressor.flush()
    assert len(bomb) < 2**18
    store = make_store(HeadFormat.MSGPACK)
    store.put(KEYS[HeadFormat.MSGPACK], bomb)

    assert_refused(store, error=CorruptMetadataError, match="unpacks to more than")


def test_a_key_that_stands_twice_is_read_as_every_json_reader_does() -> None:
    store = make_store()
    data = store.get(KEYS[HeadFormat.JSON]).data
    store.put(KEYS[HeadFormat.JSON], b'{"partitions": {}, ' + data[1:])

    assert lakebed.Repository(store).open("d").count() == 3


def test_metadata_of_other_tools_is_kept_as_it_is() -> None:
    odd = {"big": 10**30, "nested": {"x": [None, 1.5, "é☺", {}]}, "lake": "bed"}
    store = spoil(HeadFormat.JSON, lambda head: head["metadata"].update(odd))

    lakebed.Repository(store).open("d").append([{"p": "a", "v": 1, "t": None}])

    kept = unpack(store.get(KEYS[HeadFormat.JSON]).data, HeadFormat.JSON)["metadata"]
    assert {name: kept[name] for name in odd} == odd


@pytest.mark.parametrize("descriptor", [{}, {"schema": 1}, {"schema": {"type": "record"}}, None])
def test_a_history_with_a_hostile_descriptor(descriptor: object) -> None:
    store = make_store()
    for info in store.list("d/history/"):
        document = json.loads(zstandard.decompress(store.get(info.key).data))
        for entry in document["entries"]:
            if "descriptor" in entry:
                entry["descriptor"] = descriptor
        store.put(info.key, zstandard.compress(json.dumps(document).encode()))

    with pytest.raises(CorruptMetadataError, match="descriptor"):
        lakebed.Repository(store).open("d").at(version=1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"entries": 1}',
        b'{"entries": [{"version": "1"}]}',
        b'{"entries": [{"descriptor": ' + b"[" * 200_000,
        b'{"entries": [{"version": 1, "commit_id": "x", "operation": "append",'
        b' "committed_at": "2013-01-01T00:00:00"}]}',
        b'{"entries": [{"version": ' + b"9" * 5000 + b"}]}",
    ],
    ids=lambda data: str(data[:40]),
)
def test_a_history_segment_that_is_none(data: bytes) -> None:
    packed = zstandard.compress(data)

    for key, content in (
        ("d/history/x.json.zst", packed),
        ("d/history/x.json.zst", packed[:-1]),
        ("d/history/x.json.zst", data),
        ("d/history/x.json", data),  # of an early release
        ("d/history/x.json", packed),
    ):
        with pytest.raises(CorruptMetadataError, match="'d/history/x"):
            history.decode(content, key)


@pytest.mark.parametrize(
    "table",
    [
        {"label": ["x"]},
        {"label": [1], "row_count": [1], "size_bytes": [1]},
        {"label": ["x"], "row_count": ["1"], "size_bytes": [1]},
        {},
    ],
    ids=str,
)
def test_a_file_table_of_another_form(table: dict[str, list[object]]) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(table), sink)

    with pytest.raises(CorruptMetadataError, match="it has no column"):
        file_table.decode(sink.getvalue().to_pybytes(), "d/files/x.parquet")


@pytest.mark.parametrize("stats", [7, {"v": 7}, {"v": {"min": 1}, "w": "x"}], ids=str)
def test_a_file_table_whose_stats_are_none(stats: object) -> None:
    table = {"label": ["x"], "row_count": [1], "size_bytes": [1], "checksum": [""]}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({**table, "stats": [stats]}), sink)
    data = sink.getvalue().to_pybytes()

    with pytest.raises(CorruptMetadataError, match="is not a struct of columns"):
        file_table.decode(data, "d/files/x.parquet")
    with pytest.raises(CorruptMetadataError, match="is not a struct of columns"):
        file_table.merge([stored(data), stored(data)])


@pytest.mark.parametrize("version", [-1, 4, 2**70])
def test_a_version_that_is_not_there(version: int) -> None:
    dataset = lakebed.Repository(make_store()).open("d")

    with pytest.raises(VersionNotFoundError, match=rf"no version {version}\b"):
        dataset.at(version=version)


@dataclasses.dataclass(frozen=True)
class Damage:
    """Some bytes of an object, changed or cut off."""

    flips: list[tuple[float, int]]
    cut: float | None

    def apply(self, data: bytes) -> bytes:
        spoilt = bytearray(data)
        for place, mask in self.flips:
            spoilt[int(place * (len(spoilt) - 1))] ^= mask
        return bytes(spoilt if self.cut is None else spoilt[: int(self.cut * len(spoilt))])


_places = st.floats(0, 1)
damages = st.builds(
    Damage,
    flips=st.lists(st.tuples(_places, st.integers(1, 255)), max_size=3),
    cut=st.none() | _places,
)


@both_formats
@given(damage=damages)
@examples(3)
def test_a_damaged_head_is_read_or_refused_by_name(head_format: HeadFormat, damage: Damage) -> None:
    store = sound_store(head_format)
    key = KEYS[head_format]
    data = store.get(key).data
    expected = read_head(store, "d").state
    spoilt = open_store(f"memory://bad-{next(_names)}")
    spoilt.put(key, damage.apply(data))

    try:
        found = read_head(spoilt, "d").state
    except LakebedError:
        return

    # What is read is sound; as msgpack it carries a checksum, so that it is also right.
    for directory in found.directories():
        if found.is_ours:
            check_directory(found, directory)
    if head_format is HeadFormat.MSGPACK:
        assert found == expected


def check_directory(state: Any, directory: str) -> None:
    try:
        state.layout.directory_values(directory)
    except CorruptMetadataError:
        return


@given(damage=damages)
@examples(3)
def test_a_damaged_history_is_read_or_refused_by_name(damage: Damage) -> None:
    store = sound_store(HeadFormat.JSON)
    segment = read_head(store, "d").state.lists.history[0]

    try:
        entries = history.decode(damage.apply(store.get(segment.key).data), segment.key)
        history.replay(entries, 0)
    except LakebedError:
        return


@given(damage=damages)
@examples(3)
def test_a_damaged_file_table_is_read_or_refused_by_name(damage: Damage) -> None:
    store = sound_store(HeadFormat.JSON)
    segment = read_head(store, "d").state.lists.files[0]
    data = store.get(segment.key).data

    try:
        file_table.decode(damage.apply(data), segment.key, COUNTS).to_pylist()
        file_table.merge([stored(damage.apply(data)), stored(data)])
    except LakebedError:
        return


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_any_json_in_the_place_of_a_head_is_refused(document: object) -> None:
    store = open_store(f"memory://bad-{next(_names)}")
    store.put(KEYS[HeadFormat.JSON], json.dumps(document).encode())

    with pytest.raises(FormatError):
        read_head(store, "d")


def test_round_trip_keeps_every_entry() -> None:
    for head_format in FORMATS:
        store = make_store(head_format)
        stored = store.get(KEYS[head_format])

        document = head.decode_head(stored.data, head_format, stored.key)

        state = from_document(document, head_format, stored.key)
        assert state == read_head(store, "d").state
        assert head.decode_head(head.encode_head(document, head_format), head_format, "x") == (
            document
        )


@pytest.mark.parametrize("batch_id", [-5, 10**18, 2**63, 2**70])
def test_batch_id_that_none_can_have_is_refused_by_name(batch_id: int) -> None:
    store = make_store()
    for info in store.list("d/history/"):
        document = json.loads(zstandard.decompress(store.get(info.key).data))
        for entry in document["entries"]:
            entry["batch_id"] = batch_id
        store.put(info.key, zstandard.compress(json.dumps(document).encode()))
    dataset = lakebed.Repository(store).open("d")

    for read in (dataset.history, dataset.batches, lambda: dataset.at(version=1)):
        with pytest.raises(CorruptMetadataError, match="batch_id"):
            read()


def test_batch_whose_id_is_no_time_is_listed_without_one() -> None:
    store = make_store()
    for info in store.list("d/history/"):
        document = json.loads(zstandard.decompress(store.get(info.key).data))
        for entry in document["entries"]:
            if entry["version"] == 2:
                entry["batch_id"] = 20151210235959999
        store.put(info.key, zstandard.compress(json.dumps(document).encode()))

    batches = lakebed.Repository(store).open("d").batches()

    assert [batch.started_at is None for batch in batches] == [False, True, False]


@pytest.mark.parametrize(
    "key", ["other.by-dataset-metadata.json", "other/data/_common_metadata", "d/../other/x"]
)
def test_drop_deletes_nothing_outside_whatever_the_head_names_as_an_index(key: str) -> None:
    store = make_store()
    lakebed.Repository(store).create("other", DESCRIPTOR)
    before = {name for name in content_of(store) if name.startswith("other")}
    document = json.loads(store.get(KEYS[HeadFormat.JSON]).data)
    store.put(KEYS[HeadFormat.JSON], json.dumps({**document, "indices": {"v": key}}).encode())

    lakebed.Repository(store).drop("d")

    assert set(content_of(store)) == before
