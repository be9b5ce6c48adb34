"""Merges: what the segments said apart, they say together."""

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError, StorageFullError
from lakebed.index.lookup import lookup
from lakebed.index.postings_writer import (
    COMMIT_BYTES,
    COMMIT_PAIRS,
    COMMIT_RAW_BYTES,
    compact_list,
    groups_to_merge,
    merge_segments,
)
from lakebed.index.segment import size_of
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import Like, bind
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.store.segments import FANOUT, Segment
from lakebed.testing import CountingStore, DelegatingStore
from tests.index.test_lookup import LONG, VALUES, a_store, put_segment
from tests.strategies import leaves_of


def read_pairs(store, segment: Segment) -> list[tuple]:
    table = pa.parquet.read_table(pa.BufferReader(store.get(segment.key).data))
    return list(zip(*table.to_pydict().values(), strict=True))


@pytest.mark.parametrize("kind", VALUES, ids=str)
@examples(0.12)
@given(data=st.data())
def test_a_merged_segment_answers_as_its_parts_do(kind: Type, data: st.DataObject):
    pool = data.draw(st.lists(VALUES[kind], min_size=1, max_size=9))
    held = st.lists(st.sampled_from([*pool, None]), max_size=12)
    parts = data.draw(
        st.lists(st.dictionaries(st.integers(0, 99), held, max_size=3), min_size=1, max_size=4)
    )
    seen: set[int] = set()
    for part in parts:
        for number in seen & part.keys():
            del part[number]
        seen |= part.keys()
    leaf = bind(
        data.draw(
            leaves_of("c", st.sampled_from(pool)).filter(
                lambda one: getattr(one, "values", True) and not isinstance(one, Like)
            )
        ),
        {"c": kind},
    )
    store = a_store()
    group_rows = data.draw(st.sampled_from([1, 3]))
    segments = [put_segment(store, kind, part, group_rows=group_rows) for part in parts]
    apart = lookup(store, segments, leaf, kind)

    merged = merge_segments(store, "d", "c", segments, type_to_arrow(kind))

    store.put(merged.segment.key, merged.data)
    together = lookup(store, [merged.segment], leaf, kind)
    assert together.covered.tolist() == apart.covered.tolist() == sorted(seen)
    assert together.found.tolist() == apart.found.tolist()
    assert merged.segment.weight == sum(segment.weight for segment in segments)


@pytest.mark.thorough
def test_a_merge_of_many_row_groups_is_the_segment_of_all_files():
    store = a_store()
    files = {n: list(range(n, 300_000, 7 + n)) for n in range(6)}
    parts = [{n: held} for n, held in files.items()]
    segments = [put_segment(store, LONG, part) for part in parts]

    merged = merge_segments(store, "d", "c", segments, pa.int64())

    store.put(merged.segment.key, merged.data)
    assert read_pairs(store, merged.segment) == read_pairs(store, put_segment(store, LONG, files))


def test_segments_of_an_earlier_type_merge_into_one_of_the_type_now():
    store = a_store()
    segments = [
        put_segment(store, Primitive(Kind.INT), {1: [3, None]}),
        put_segment(store, LONG, {2: [2**40, 3]}),
    ]

    merged = merge_segments(store, "d", "c", segments, pa.int64())

    store.put(merged.segment.key, merged.data)
    assert read_pairs(store, merged.segment) == [(3, 0), (3, 1), (2**40, 1), (None, 0)]


def test_a_list_is_merged_when_a_level_is_full_and_not_before():
    store = CountingStore(a_store())
    segments = [put_segment(store, LONG, {n: [n]}) for n in range(FANOUT)]
    written: list[str] = []

    few = compact_list(store, "d", "c", segments[1:], pa.int64(), written)
    assert (few, written) == (tuple(segments[1:]), [])

    many = compact_list(store, "d", "c", segments, pa.int64(), written)
    assert [one.key for one in many] == written
    assert many[0].weight == FANOUT


def test_a_damaged_segment_stays_as_it_is_and_the_commit_goes_on(caplog):
    store = a_store()
    segments = tuple(put_segment(store, LONG, {n: [n]}) for n in range(FANOUT))
    store.put(segments[3].key, b"damaged")
    written: list[str] = []

    kept = compact_list(store, "d", "c", segments, pa.int64(), written)

    assert (kept, written) == (segments, [])
    assert segments[3].key in caplog.text
    with pytest.raises(CorruptMetadataError, match="cannot be used"):
        merge_segments(store, "d", "c", segments, pa.int64())


class FullStore(DelegatingStore):
    """Takes nothing more."""

    def _put(self, key: str, data: memoryview) -> None:
        raise StorageFullError(f"No room to write {key!r}.")


def test_segments_stay_apart_where_there_is_no_room_for_the_merged_one(caplog):
    store = a_store()
    segments = tuple(put_segment(store, LONG, {n: [n]}) for n in range(FANOUT))
    written: list[str] = []

    kept = compact_list(FullStore(store), "d", "c", segments, pa.int64(), written)

    assert kept == segments
    assert written[0] in caplog.text


def named(size: int, weight: int = 1) -> Segment:
    """Return a segment that no store has."""
    key = f"d/postings/c/{weight:010d}-{'0' * 32}-{size:x}-10-{'0' * 32}.parquet"
    return Segment(key, weight)


@pytest.mark.parametrize("large", [named(COMMIT_BYTES), named(1, COMMIT_PAIRS)])
def test_what_is_too_large_for_a_commit_is_left_to_a_compaction(large: Segment):
    segments = (large,) * FANOUT

    assert compact_list(a_store(), "d", "c", segments, pa.int64(), []) == segments
    assert groups_to_merge(segments) == [list(segments)]


@pytest.mark.parametrize("large", [named(COMMIT_BYTES // 4), named(1, COMMIT_PAIRS // 4)])
def test_small_segments_behind_large_ones_merge_when_they_are_due(large: Segment):
    store = a_store()
    small = [put_segment(store, LONG, {n: [n]}) for n in range(FANOUT)]
    beyond = (Segment(large.key, 1_000_000),) * FANOUT

    for count in range(1, FANOUT):
        # A level of large segments stays full, and is no reason to merge a part of it.
        kept = compact_list(store, "d", "c", (*beyond, *small[:count]), pa.int64(), [])
        assert kept == (*beyond, *small[:count])
    merged = compact_list(store, "d", "c", (*beyond, *small), pa.int64(), [])

    assert merged[:-1] == beyond
    assert merged[-1].weight == FANOUT


@pytest.mark.thorough
def test_long_texts_are_left_to_a_compaction_however_small_their_segments_are():
    store = a_store()
    count = COMMIT_RAW_BYTES // (4 * 20_000)
    kind = Primitive(Kind.STRING)
    segments = tuple(
        put_segment(store, kind, {n: [f"{n} {i:05d}" + "x" * 20_000 for i in range(count)]})
        for n in range(FANOUT)
    )

    assert sum(map(size_of, segments)) < COMMIT_BYTES
    assert compact_list(store, "d", "c", segments, pa.string(), []) == segments


def test_a_compaction_makes_segments_up_to_a_size():
    small, middle, large = named(1), named(2**27), named(2**30)

    assert groups_to_merge([large, small, middle]) == [[small, middle]]
    assert groups_to_merge([large]) == []
