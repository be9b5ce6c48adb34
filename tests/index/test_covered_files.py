"""Segments of many files: a lookup knows which files they cover, and reads few of the ids."""

import random
import uuid
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError
from lakebed.index import segment as segment_module
from lakebed.index.covered_files import BUCKETS, bucket_of, sums_of
from lakebed.index.lookup import LiveIds, Lookup, lookup
from lakebed.index.postings_writer import ColumnValues, encode_segment, merge_segments
from lakebed.index.segment import SegmentWriter, file_ids_at, file_ids_of, open_segment
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import Comparison, Op
from lakebed.model.schema import Kind, Primitive
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import Segment
from lakebed.testing import CountingStore

LONG = Primitive(Kind.LONG)
MANY = 100_000
ids = st.integers(0, 2**63 - 1)


def put(store: Store, files: dict[int, list[int | None]], *, few: int = 1) -> Segment:
    """Index some files, whose ids are apart from the footer if there are at least `few`."""
    values = {number: ColumnValues() for number in files}
    for number, held in files.items():
        values[number].add(pa.chunked_array([pa.array(held, pa.int64())]))
    with mock.patch.object(segment_module, "MANY_FILES", few):
        encoded = encode_segment("d", "c", type_to_arrow(LONG), values, group_rows=4)
    store.put(encoded.segment.key, encoded.data)
    return encoded.segment


def put_many(store: Store, numbers: np.ndarray) -> Segment:
    """Index many files; each holds the value of its place, and a value that all share."""
    writer = SegmentWriter(pa.int64(), numbers)
    places = np.arange(len(numbers), dtype=np.int32)
    writer.add(pa.array(places.astype(np.int64)), places)
    writer.add(pa.array(np.full(len(numbers), 10**9)), places)
    nothing = np.zeros(0, dtype=np.int64)
    encoded = writer.finish("d", "c", nothing, nothing)
    store.put(encoded.segment.key, encoded.data)
    return encoded.segment


def some_ids(count: int, seed: int = 1) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.unique(generator.integers(0, 2**63 - 1, count, dtype=np.int64))


def live_of(candidates: Any, every: Any = None) -> LiveIds:
    """Return live files, all of which are candidates unless they are given too."""
    numbers = np.array(sorted(candidates), dtype=np.int64)
    known = numbers if every is None else np.array(sorted(every), dtype=np.int64)
    return LiveIds(numbers, lambda: known)


def ask(store: Store, segments: list[Segment], value: int, **more: Any) -> Lookup:
    return lookup(store, segments, Comparison("c", Op.EQ, value), LONG, **more)


@given(data=st.data())
@examples(0.5)
def test_a_lookup_for_live_files_knows_which_of_them_are_covered(data: st.DataObject) -> None:
    held = st.lists(st.integers(0, 5) | st.none(), max_size=4)
    parts = data.draw(st.lists(st.dictionaries(ids, held, max_size=30), min_size=1, max_size=3))
    covered = sorted({number for part in parts for number in part})
    others = data.draw(st.lists(ids, max_size=8))
    # Live files are covered or not, and covered ones live or not.
    live = data.draw(st.sets(st.sampled_from(covered + others))) if covered + others else set()
    if data.draw(st.booleans()):
        live = set(covered)
    candidates = {number for number in live if data.draw(st.booleans())} or live
    value = data.draw(st.integers(0, 6))
    store = MemoryStore(uuid.uuid4().hex)
    few = data.draw(st.sampled_from([1, 5, 100]))
    segments = [put(store, part, few=few) for part in parts]

    answer = ask(store, segments, value, live=live_of(candidates, live))

    plain = ask(store, segments, value)
    assert plain.covered.tolist() == covered
    assert answer.found.tolist() == plain.found.tolist()
    assert plain.found.tolist() == sorted(
        {number for part in parts for number, values in part.items() if value in values}
    )
    assert candidates & set(answer.covered.tolist()) == candidates & set(covered)
    assert set(answer.covered.tolist()) <= set(covered)


@given(st.sets(ids, max_size=50), st.sets(ids, max_size=50))
def test_sums_are_equal_only_for_equal_files(one: set[int], other: set[int]) -> None:
    def sums(numbers: set[int]) -> np.ndarray:
        return sums_of(np.array(sorted(numbers), dtype=np.int64))

    assert bool((sums(one) == sums(other)).all()) is (one == other)
    assert bool((sums(one) + sums(other - one) == sums(one | other)).all())
    assert len({bytes(lane) for lane in sums({1}).T}) == 2, "the two lanes are independent"


def test_a_lookup_of_one_value_reads_the_ids_of_one_bucket() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    numbers = some_ids(MANY)
    segment = put_many(store, numbers)
    store.reset()

    answer = ask(store, [segment], 777, live=live_of(numbers))

    counts = store.reset()
    assert answer.found.tolist() == [numbers[777]]
    assert answer.covered.tolist() == numbers.tolist()
    # The footer, a row group, and the ids of a bucket, of which there are 800 kB.
    assert (answer.requests, counts.get) == (3, 3)
    assert counts.bytes_read < 80_000
    again = ask(store, [segment], 777, live=live_of(numbers))
    assert (again.requests, store.reset().bytes_read < 30_000) == (1, True)


def test_only_buckets_in_which_files_came_or_went_are_read() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    numbers = some_ids(MANY)
    segment = put_many(store, numbers)
    open_segment(store, segment)
    gone, new = numbers[12_345], np.int64(numbers[20_000] + 1)
    live = np.unique(np.append(np.delete(numbers, 12_345), new))
    store.reset()

    answer = ask(store, [segment], 777, live=live_of(live))

    assert set(answer.covered.tolist()) >= set(live.tolist()) - {int(new)}
    assert int(new) not in answer.covered.tolist()
    assert int(gone) in answer.covered.tolist(), "its bucket was read"
    assert len({int(bucket_of(number)) for number in (gone, new, numbers[777])}) == 3
    # A row group, the bucket of the file that was found, and two that one request fetches.
    assert answer.requests == 3
    assert store.reset().bytes_read < 250_000


def test_a_lookup_for_few_files_needs_no_other_live_file() -> None:
    store = CountingStore(MemoryStore(uuid.uuid4().hex))
    numbers = some_ids(MANY)
    segment = put_many(store, numbers)

    def too_many() -> np.ndarray:
        raise AssertionError("the ids of all live files were computed")

    chosen = np.sort(numbers[[5, 20_000]])
    answer = ask(store, [segment], 5, live=LiveIds(chosen, too_many))

    assert set(chosen.tolist()) <= set(answer.covered.tolist())
    assert answer.found.tolist() == [numbers[5]]
    assert store.counts.bytes_read < 100_000


def test_a_segment_that_covers_files_of_another_proves_nothing_but_answers() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    numbers = some_ids(MANY)
    segments = [put_many(store, numbers), put_many(store, numbers[: MANY // 2])]

    answer = ask(store, segments, 777, live=live_of(numbers))

    assert answer.covered.tolist() == numbers.tolist()
    assert answer.found.tolist() == [numbers[777]]


def test_files_of_a_lost_segment_are_not_covered() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    one, other = some_ids(MANY, 1), some_ids(MANY, 2)
    segments = [put_many(store, one), put_many(store, other)]
    store.delete([segments[0].key])
    lost: list[Segment] = []

    answer = ask(
        store,
        segments,
        777,
        live=live_of(np.union1d(one, other)),
        on_damage=lambda segment, error: lost.append(segment),
    )

    assert lost == segments[:1]
    assert answer.covered.tolist() == other.tolist()


@pytest.mark.parametrize("place", [0, 1, 1000, 8 * MANY - 1])
def test_damaged_ids_cover_nothing_and_are_named(place: int) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    numbers = some_ids(MANY)
    segment = put_many(store, numbers)
    footer, _ = open_segment(store, segment)
    data = bytearray(store.get(segment.key).data)
    data[footer.files.start + place] ^= 1
    store.put(segment.key, data)
    lost: list[Segment] = []

    answer = ask(store, [segment], 777, live=None, on_damage=lambda one, error: lost.append(one))

    assert (lost, answer.covered.tolist()) == ([segment], [])
    with pytest.raises(CorruptMetadataError, match=r"ids of its files are damaged"):
        file_ids_of(store, footer, is_fresh=True)


def test_ids_at_places_are_those_that_were_written() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    numbers = np.concatenate([some_ids(5_000) >> 40, some_ids(MANY)])
    numbers = np.unique(numbers)
    footer, _ = open_segment(store, put_many(store, numbers))
    generator = random.Random(5)

    for count in (0, 1, 3, 500):
        places = np.array(sorted(generator.sample(range(len(numbers)), count)), dtype=np.int64)
        found, _ = file_ids_at(store, footer, places)
        assert found.tolist() == numbers[places].tolist()
    assert len(footer.files.ends) == BUCKETS


@pytest.mark.parametrize("count", [1, 300, MANY])
def test_merged_segments_cover_all_files(count: int) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    one, other = some_ids(count, 1), some_ids(MANY, 2)
    segments = [put_many(store, one), put_many(store, other)]

    merged = merge_segments(store, "d", "c", segments, pa.int64())
    store.put(merged.segment.key, merged.data)
    PROCESS_CACHE.clear()

    footer, _ = open_segment(store, merged.segment)
    assert file_ids_of(store, footer)[0].tolist() == np.union1d(one, other).tolist()
    answer = ask(store, [merged.segment], 10**9, live=live_of(np.union1d(one, other)))
    assert len(answer.found) == len(np.union1d(one, other))


def test_numbers_of_ids_that_do_not_fit_are_refused_by_name() -> None:
    numbers = some_ids(MANY)
    too_many = np.bincount([3] * (MANY + 1), minlength=BUCKETS)
    store = MemoryStore(uuid.uuid4().hex)
    with mock.patch.object(segment_module, "counts_of", return_value=too_many):
        segment = put_many(store, numbers)

    with pytest.raises(CorruptMetadataError, match="do not fit into the 800,000 bytes"):
        open_segment(store, segment)
