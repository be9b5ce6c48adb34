"""The file table: facts of many files, found by label, damaged or not."""

import dataclasses
import itertools
import logging
import uuid

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.errors import CorruptMetadataError
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.state import file_table
from lakebed.state.facts import (
    MAX_BOUND_LENGTH,
    ColumnFacts,
    FileFacts,
    facts_table,
    lower_bound,
    upper_bound,
)
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import Segment
from lakebed.testing import CountingStore

_names = itertools.count()
NUMBERS = Schema(fields=(Field(name="n", type=Primitive(Kind.LONG)),))

texts = st.text(st.characters(codec="utf-8"), max_size=2 * MAX_BOUND_LENGTH)
high_texts = st.text("\ud7ff\ue000\U0010ffff", max_size=2 * MAX_BOUND_LENGTH)
blobs = st.binary(max_size=2 * MAX_BOUND_LENGTH)
high_blobs = st.lists(st.sampled_from([b"\xff", b"\xfe"]), max_size=300).map(b"".join)


@given(texts | high_texts | blobs | high_blobs)
def test_bounds_of_long_values_are_short_and_still_bounds(value: str | bytes) -> None:
    low, high = lower_bound(value), upper_bound(value)

    assert low <= value
    assert high is None or high >= value
    assert len(low) <= MAX_BOUND_LENGTH
    assert high is None or len(high) <= MAX_BOUND_LENGTH
    assert (low == value == high) is (len(value) <= MAX_BOUND_LENGTH)
    if isinstance(high, str):
        high.encode()  # no half of a surrogate pair


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a" * 129, "a" * 127 + "b"),
        ("a" * 127 + "\U0010ffff" * 2, "a" * 126 + "b"),
        ("a" * 127 + "\ud7ff" * 2, "a" * 127 + "\ue000"),
        ("\U0010ffff" * 129, None),
        (b"a" * 127 + b"\xff" * 2, b"a" * 126 + b"b"),
        (b"\xff" * 129, None),
        ("a" * 128, "a" * 128),
        (7, 7),
        (None, None),
    ],
    ids=repr,
)
def test_upper_bound_is_the_next_short_value(value: object, expected: object) -> None:
    assert upper_bound(value) == expected


def facts(labels: list[str], schema: Schema = NUMBERS, **columns: ColumnFacts) -> pa.Table:
    told = [
        FileFacts(label=label, row_count=10, size_bytes=100, checksum="", columns=columns)
        for label in labels
    ]
    return facts_table(told, schema)


def put(store: Store, table: pa.Table) -> Segment:
    segment = file_table.new_segment("d", table)
    store.put(segment.key, file_table.encode(table))
    return segment


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(open_store(f"memory://file-table-{next(_names)}"))


def find(store: Store, segments: list[Segment], labels: list[str]) -> file_table.KnownFacts:
    return file_table.find(store, segments, pa.array(labels, pa.large_string()), {"n": pa.int64()})


def test_facts_are_found_by_label_in_the_order_asked_for(store: CountingStore) -> None:
    one = put(store, facts(["a", "b"], n=ColumnFacts(min=1, max=2, null_count=0)))
    other = put(store, facts(["c"], n=ColumnFacts(min=5, max=6, null_count=3)))

    found = find(store, [one, other], ["c", "unknown", "a"])

    assert found.row_count.to_pylist() == [10, None, 10]
    assert found.columns["n"].min.to_pylist() == [5, None, 1]
    assert found.columns["n"].max.to_pylist() == [6, None, 2]
    assert found.columns["n"].null_count.to_pylist() == [3, None, 0]


def test_few_files_of_many_are_found(store: CountingStore) -> None:
    many = put(store, facts([f"f{n}" for n in range(100)], n=ColumnFacts(min=1, max=2)))

    assert find(store, [many], ["f7", "f99"]).row_count.to_pylist() == [10, 10]


def test_segments_are_read_once_in_a_process(store: CountingStore) -> None:
    segments = [put(store, facts([f"f{n}"])) for n in range(20)]
    store.reset()

    first, second = (find(store, segments, ["f3"]) for _ in range(2))

    assert (first.requests, second.requests) == (20, 0)
    assert store.counts.get == 20


def test_bounds_of_older_types_are_widened(store: CountingStore) -> None:
    narrow = Schema(fields=(Field(name="n", type=Primitive(Kind.INT)),))
    segment = put(store, facts(["a"], narrow, n=ColumnFacts(min=1, max=2, null_count=0)))

    assert find(store, [segment], ["a"]).columns["n"].max.to_pylist() == [2]


def test_bounds_of_a_dropped_field_of_that_name_are_unknown(store: CountingStore) -> None:
    other = Schema(fields=(Field(name="n", type=Primitive(Kind.STRING)),))
    old = put(store, facts(["a"], other, n=ColumnFacts(min="x", max="y", null_count=0)))
    new = put(store, facts(["b"], n=ColumnFacts(min=1, max=2, null_count=0)))
    merged = file_table.merge([store.get(one.key) for one in (old, new)])
    store.put("d/files/2-merged.parquet", merged)

    for segments in ([old, new], [Segment("d/files/2-merged.parquet", 2)]):
        found = find(store, segments, ["a", "b"])

        assert found.columns["n"].min.to_pylist() == [None, 1]
        assert found.row_count.to_pylist() == [10, 10]


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_damaged_segment_is_named_and_its_facts_are_unknown(
    store: CountingStore, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost, whole = put(store, facts(["a"])), put(store, facts(["b"]))
    data = bytearray(store.get(lost.key).data)
    store.delete([lost.key])
    data[len(data) // 2] ^= 1
    if damage != "gone":
        store.put(lost.key, bytes(data[:50] if damage == "cut" else data))

    with caplog.at_level(logging.WARNING):
        found = find(store, [lost, whole], ["a", "b"])

    assert found.row_count.to_pylist() == [None, 10]
    assert list(found.lost) == [lost.key]
    assert lost.key in caplog.text
    assert file_table.read_counts(store, [lost, whole]) == {"b": (10, 100)}


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_no_byte_of_a_segment_can_change_unnoticed(place: int, change: int) -> None:
    table = facts(["a", "b"], n=ColumnFacts(min=1, max=2, null_count=0))
    data = bytearray(file_table.encode(table))
    data[place % len(data)] ^= change

    try:
        assert file_table.decode(bytes(data), "d/files/x.parquet").equals(table)
    except CorruptMetadataError:
        return


def test_segments_without_a_hash_are_read(store: CountingStore) -> None:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(facts(["a"]), sink, write_page_checksum=True)

    assert file_table.decode(sink.getvalue().to_pybytes(), "x").num_rows == 1


def test_pruning_rewrites_only_what_loses_something(store: CountingStore) -> None:
    kept, half, dead = (put(store, facts(labels)) for labels in (["a", "b"], ["c", "d"], ["e"]))
    gone = dataclasses.replace(kept, key=kept.key.replace("000-", "000-0"))

    left = file_table.prune(store, [kept, half, dead, gone], {"a", "b", "d"})

    assert left[0] == kept
    assert left[1].key != half.key
    assert left[2:] == (gone,)
    assert left[1].weight == 1
    assert set(file_table.read_counts(store, left)) == {"a", "b", "d"}


def test_pruning_to_nothing_leaves_no_segment(store: CountingStore) -> None:
    PROCESS_CACHE.clear()

    assert file_table.prune(store, [put(store, facts(["a"]))], set()) == ()


@pytest.mark.parametrize("folder", ["files", "history", "postings"])
def test_a_lost_segment_stops_no_commit_that_would_merge_it(folder: str) -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    descriptor = lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]), index=["n"])
    dataset = repository.create("numbers", descriptor)
    dataset.append([{"n": 0}])
    lost = next(repository.store.list(f"numbers/{folder}/")).key
    repository.store.delete([lost])
    PROCESS_CACHE.clear()  # who wrote it holds it, and would merge what it holds

    for n in range(1, 12):
        dataset.append([{"n": n}])

    assert sorted(row["n"] for row in dataset.kite.reader()) == list(range(12))
    assert dataset.where("n = 0").count() == 1
    assert lost in {finding.key for finding in dataset.check().problems}
