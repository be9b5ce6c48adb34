"""Large segments of trees: their directory is in pages, of which a lookup reads few."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError
from lakebed.index import paged_root, postings_writer
from lakebed.index import segment as segment_module
from lakebed.index.lookup import find_homes, lookup
from lakebed.index.postings_writer import merge_segments, new_writer
from lakebed.index.segment import (
    SegmentWriter,
    file_ids_of,
    homes_at,
    open_segment,
    read_groups,
    with_directory,
)
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import Comparison, Membership, NullCheck, Op
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import EncodedSegment, Segment, compress
from lakebed.testing import CountingStore
from lakebed.work.check import _trouble_of_postings

LONG, DOUBLE, STRING = Primitive(Kind.LONG), Primitive(Kind.DOUBLE), Primitive(Kind.STRING)
FILES = 9_000
NOTHING = np.zeros(0, np.int64)


def a_store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


def some_ids(count: int) -> np.ndarray:
    return np.sort(np.random.default_rng(count).integers(0, 2**63 - 1, count))


def home_of(place: int) -> str:
    return f"day={place % 700:03d}/batch_id={place % 3}"


def encoded(
    kind: Type,
    values: list[Any],
    *,
    is_paged: bool = True,
    group_rows: int = 10,
    ids: np.ndarray | None = None,
    nan: np.ndarray = NOTHING,
    null: np.ndarray = NOTHING,
) -> EncodedSegment:
    """Encode values in order; each is in the file of its place, modulo the number of files."""
    known = some_ids(7) if ids is None else ids
    homes = [home_of(place) for place in range(len(known))]
    writer = SegmentWriter(type_to_arrow(kind), known, group_rows, homes, is_paged=is_paged)
    places = np.arange(len(values), dtype=np.int32) % len(known)
    writer.add(pa.array(values, type_to_arrow(kind)), places.astype(np.int32))
    return writer.finish("d", "c", nan, null)


def put(store: Store, one: EncodedSegment) -> Segment:
    store.put(one.segment.key, one.data)
    return one.segment


@pytest.fixture
def few_in_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_root, "PAGE_GROUPS", 3)
    monkeypatch.setattr(segment_module, "SMALL_BYTES", 0)


VALUES: dict[Type, st.SearchStrategy[Any]] = {
    LONG: st.integers(-9, 9),
    DOUBLE: st.floats(allow_nan=False, width=16).map(lambda one: one + 0.0),
    STRING: st.text("ab\xff", max_size=3).map(lambda one: 64 * "z" + one),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
@examples(0.5)
def test_it_answers_as_a_segment_with_one_directory_does(kind: Type, data: st.DataObject) -> None:
    values = sorted(data.draw(st.lists(VALUES[kind], max_size=60)), key=_bytes_of)
    nan = np.array([1, 3]) if kind is DOUBLE and data.draw(st.booleans()) else NOTHING
    null = np.array([0, 3, 5]) if data.draw(st.booleans()) else NOTHING
    rows = data.draw(st.integers(1, 4))
    store = a_store()
    leaf = data.draw(
        st.builds(Comparison, st.just("c"), st.sampled_from(Op), VALUES[kind])
        | st.builds(Membership, st.just("c"), st.lists(VALUES[kind], max_size=4).map(tuple))
        | st.builds(NullCheck, st.just("c"), st.booleans())
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_root, "PAGE_GROUPS", 3)
        patch.setattr(segment_module, "SMALL_BYTES", data.draw(st.sampled_from([0, 2**19])))
        plain, paged = (
            put(
                store,
                encoded(kind, values, is_paged=one, group_rows=rows, nan=nan, null=null),
            )
            for one in (False, True)
        )
        answers = [lookup(store, [one], leaf, kind) for one in (plain, paged)]
        homes = [find_homes(store, [one], leaf, kind) for one in (plain, paged)]
        footers = [open_segment(store, one)[0] for one in (plain, paged)]

    assert answers[0].found.tolist() == answers[1].found.tolist()
    assert answers[0].covered.tolist() == answers[1].covered.tolist()
    assert homes[0] is not None
    assert homes[1] is not None
    assert homes[0].ids.tolist() == homes[1].ids.tolist()
    assert homes[0].directories == homes[1].directories
    for name in ("value_count", "pair_count", "regular_pair_count", "kind", "raw_bytes"):
        assert getattr(footers[0], name) == getattr(footers[1], name), name


def _bytes_of(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def test_a_lookup_reads_the_root_a_page_a_row_group_and_a_page_of_directories(
    few_in_a_page: None,
) -> None:
    store = CountingStore(a_store())
    ids = some_ids(FILES)
    one = put(store, encoded(LONG, list(range(20_000)), ids=ids))
    store.reset()

    homes = find_homes(store, [one], Comparison("c", Op.EQ, 8_123), LONG)

    assert homes is not None
    assert (homes.ids.tolist(), list(homes.directories)) == ([ids[8_123]], [home_of(8_123)])
    assert (homes.requests, store.counts.total) == (4, 4)
    size = open_segment(store, one)[0].size_bytes
    assert store.reset().bytes_read < size / 4
    again = find_homes(store, [one], Comparison("c", Op.EQ, 8_124), LONG)
    assert again is not None
    assert (again.requests, store.counts.total) == (1, 1)


def test_a_small_segment_takes_one_request() -> None:
    store = CountingStore(a_store())
    one = put(store, encoded(LONG, list(range(100))))
    store.reset()

    found = lookup(store, [one], Comparison("c", Op.EQ, 8), LONG)

    assert (found.requests, store.counts.total) == (1, 1)


def test_ids_and_their_sums_take_one_request_more(few_in_a_page: None) -> None:
    store = CountingStore(a_store())
    ids = some_ids(FILES)
    one = put(store, encoded(LONG, list(range(FILES)), ids=ids))
    plain = put(store, encoded(LONG, list(range(FILES)), ids=ids, is_paged=False))
    store.reset()

    footer, requests = open_segment(store, one)

    assert requests == store.counts.total == 2
    assert (footer.files.sums == open_segment(store, plain)[0].files.sums).all()
    assert file_ids_of(store, footer)[0].tolist() == ids.tolist()
    assert open_segment(store, one) == (footer, 0)


@pytest.mark.parametrize("pairs", [100, 1_000])
def test_the_number_of_pairs_decides(monkeypatch: pytest.MonkeyPatch, pairs: int) -> None:
    monkeypatch.setattr(postings_writer, "PAGED_PAIRS", 500)
    ids = some_ids(3)
    for homes in (None, ["a", "b", "c"]):
        writer = new_writer(pa.int64(), ids, pairs, homes)
        writer.add(pa.array(range(pairs), pa.int64()), np.zeros(pairs, np.int32))
        store = a_store()
        footer, _ = open_segment(store, put(store, writer.finish("d", "c", NOTHING, NOTHING)))
        assert (footer.root is not None) == (homes is not None and pairs > 500)


@pytest.mark.parametrize("most", [0, 10**9])
def test_merges_read_and_write_it(
    few_in_a_page: None, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(postings_writer, "PAGED_PAIRS", most)
    store = a_store()
    parts = [
        put(store, encoded(LONG, list(range(begin, 400, 2)), ids=some_ids(count), null=null))
        for begin, count, null in ((0, 7, np.array([2])), (1, 5, NOTHING))
    ]

    merged = put(store, merge_segments(store, "d", "c", parts, type_to_arrow(LONG)))

    footer, _ = open_segment(store, merged)
    assert (footer.root is not None) == (not most)
    for leaf in (Comparison("c", Op.EQ, 123), Comparison("c", Op.LT, 9), NullCheck("c")):
        apart, together = (
            find_homes(store, segments, leaf, LONG) for segments in (parts, [merged])
        )
        assert apart is not None
        assert together is not None
        assert dict(zip(apart.ids.tolist(), apart.directories, strict=True)) == dict(
            zip(together.ids.tolist(), together.directories, strict=True)
        )


# --- Damage


@examples(0.6)
@given(place=st.integers(0, 10**9), flip=st.integers(1, 255), is_held=st.booleans())
def test_a_damaged_byte_gives_an_error_or_the_right_answer(
    place: int, flip: int, is_held: bool
) -> None:
    store = a_store()
    values = [f"value {n:05d}" for n in range(300)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paged_root, "PAGE_GROUPS", 3)
        patch.setattr(segment_module, "SMALL_BYTES", 2**19 if is_held else 0)
        one = encoded(STRING, values, null=np.array([2]))
        data = bytearray(one.data)
        data[place % len(data)] ^= flip
        store.put(one.segment.key, bytes(data))
        leaf = Comparison("c", Op.EQ, "value 00123")
        try:
            homes = find_homes(store, [one.segment], leaf, STRING)
            found = lookup(store, [one.segment], leaf, STRING)
        except CorruptMetadataError:
            pass
        else:
            assert found.found.tolist() == [some_ids(7)[123 % 7]]
            assert homes is None or homes.ids.tolist() == found.found.tolist()
        assert _trouble_of_postings(store, one.segment, is_deep=True)


def test_a_damaged_page_of_directories_has_an_error(few_in_a_page: None) -> None:
    store = a_store()
    one = encoded(LONG, list(range(100)))
    footer = open_segment(store, put(store, one))[0]
    assert footer.root is not None
    data = bytearray(one.data)
    data[footer.root.homes_start + 3] ^= 1
    store.put(one.segment.key, bytes(data))
    with pytest.raises(CorruptMetadataError, match="page 0"):
        homes_at(store, footer, np.array([1]))


def with_root(one: EncodedSegment, **changes: Any) -> EncodedSegment:
    """Return a segment whose root states something else, by a name that has its hash."""
    footer = segment_module.footer_of(one)
    assert footer.root is not None
    return renamed(one, paged_root.encode(replace(footer.root, **changes)))


def renamed(one: EncodedSegment, root: bytes) -> EncodedSegment:
    folder, _, name = one.segment.key.rpartition("/")
    weight, digits, size, tail, _, files = name.removesuffix(".parquet").split("-")
    data = one.data[: int(size, 16) - int(tail, 16)] + root
    parts = (weight, digits, f"{len(data):x}", f"{len(root):x}", segment_module._hash(root).hex())
    key = f"{folder}/{'-'.join((*parts, files))}.parquet"
    return EncodedSegment(Segment(key, one.segment.weight), data)


def pages_of(one: EncodedSegment) -> pa.Table:
    footer = segment_module.footer_of(one)
    assert footer.root is not None
    return footer.root.pages


def hostile_roots() -> Iterator[tuple[str, dict[str, Any]]]:
    pages = pages_of(encoded(LONG, list(range(100))))
    far = pa.array([2**62] * pages.num_rows)
    yield "files", {"file_count": 2**40}
    yield "homes outside", {"homes_start": 2**62}
    yield "ids outside", {"ids_start": 2**62}
    yield "buckets outside", {"buckets": paged_root.Part(2**62, 2**62, b"x")}
    yield "specials", {"special_count": 10**6}
    yield "start", {"pages": pages.set_column(2, "start", far)}
    yield "size", {"pages": pages.set_column(3, "size", far)}
    yield "raw below 0", {"pages": pages.set_column(4, "raw", pa.array([-1] * pages.num_rows))}
    yield "columns", {"pages": pages.drop_columns(["hash"])}
    yield "kind", {"kind": pa.string()}
    for name, kind in (("hash", pa.binary(16)), ("first", pa.int64())):
        nothing = pa.array([None] * pages.num_rows, kind)
        at = pages.schema.get_field_index(name)
        yield f"no {name}", {"pages": pages.set_column(at, name, nothing)}
    yield (
        "no number",
        {"pages": pages.set_column(2, "start", pa.array([None] * pages.num_rows, pa.int64()))},
    )


@pytest.mark.parametrize(
    "changes", [one for _, one in hostile_roots()], ids=[n for n, _ in hostile_roots()]
)
def test_a_root_that_does_not_fit_its_object_is_refused_by_name(changes: dict[str, Any]) -> None:
    one = with_root(encoded(LONG, list(range(100))), **changes)
    store = a_store()
    with pytest.raises(CorruptMetadataError, match="cannot be used") as raised:
        open_segment(store, put(store, one))
    assert one.segment.key in raised.value.message


@pytest.mark.parametrize(
    "root",
    [
        paged_root.MAGIC,
        paged_root.MAGIC + b"\x00" * 40,
        paged_root.MAGIC + compress(b"\x93\x01\x02\x03", level=1),
        paged_root.MAGIC + compress(b"\xc1", level=1),
        paged_root.MAGIC + compress(msgspec.msgpack.encode([b""] * 11), level=1),
    ],
    ids=["empty", "no frame", "short", "no msgpack", "types"],
)
def test_a_root_that_is_malformed_is_refused_by_name(root: bytes) -> None:
    one = renamed(encoded(LONG, [1]), root)
    store = a_store()
    with pytest.raises(CorruptMetadataError, match="cannot be used"):
        open_segment(store, put(store, one))


def test_a_row_group_of_very_many_rows_is_refused_before_it_is_read(
    few_in_a_page: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = a_store()
    one = put(store, encoded(LONG, [5] * 1_000, group_rows=500))
    footer, _ = with_directory(store, open_segment(store, one)[0])
    assert read_groups(store, footer, [0])[0].num_rows == 500
    monkeypatch.setattr(segment_module, "_MAX_GROUP_ROWS", 400)
    with pytest.raises(CorruptMetadataError, match="500 rows"):
        read_groups(store, footer, [0])


def test_a_page_with_a_directory_of_another_type_is_refused(few_in_a_page: None) -> None:
    store = a_store()
    texts = encoded(STRING, ["a", "b"])
    footer, _ = with_directory(store, segment_module.footer_of(texts))
    (_, page), *_ = paged_root.encode_pages(footer.groups, 0)
    one = encoded(LONG, [1, 2])
    known = segment_module.footer_of(one)
    assert known.root is not None
    start = len(one.data) - segment_module._tail_size(one.segment.key)
    pages = known.root.pages
    for name, value in (("start", start), ("size", len(page))):
        at = pages.schema.get_field_index(name)
        pages = pages.set_column(at, name, pa.array([value], pa.int64()))
    hashes = pa.array([segment_module._hash(page)], pa.binary(16))
    pages = pages.set_column(pages.schema.get_field_index("hash"), "hash", hashes)
    longer = EncodedSegment(one.segment, one.data[:start] + page + one.data[start:])
    weight, digits, _, tail, root_hash, files = longer.segment.key.rpartition("/")[2].split("-")
    folder = longer.segment.key.rpartition("/")[0]
    name = "-".join((weight, digits, f"{len(longer.data):x}", tail, root_hash, files))
    changed = with_root(EncodedSegment(Segment(f"{folder}/{name}", 2), longer.data), pages=pages)
    footer = open_segment(store, put(store, changed))[0]
    with pytest.raises(CorruptMetadataError, match="other columns"):
        with_directory(store, footer)


def test_a_check_reads_the_directory_from_the_store(few_in_a_page: None) -> None:
    store = a_store()
    one = encoded(LONG, list(range(100)))
    put(store, one)
    assert _trouble_of_postings(store, one.segment, is_deep=True) == ""
    page = pages_of(one).column("start")[1].as_py()
    data = bytearray(one.data)
    data[page + 5] ^= 1
    store.put(one.segment.key, bytes(data))
    assert "page 1 of its directory" in _trouble_of_postings(store, one.segment, is_deep=True)
    PROCESS_CACHE.clear()
