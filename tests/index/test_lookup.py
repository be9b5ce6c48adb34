"""Lookups: an index answers as a look at every value would, or says that it cannot."""

import datetime as dt
import math
import random
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError
from lakebed.index.lookup import lookup
from lakebed.index.postings_writer import ColumnValues, encode_segment, merge_segments
from lakebed.index.segment import open_segment, size_of
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.predicate import Comparison, Membership, NullCheck, Op, bind
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import Segment
from lakebed.testing import CountingStore
from tests.strategies import leaves_of

LONG = Primitive(Kind.LONG)
_TEXTS = st.text(st.sampled_from("ab\0é😀"), max_size=3) | st.text(
    st.sampled_from("x\uffff"), min_size=62, max_size=70
)
VALUES: dict[Type, st.SearchStrategy] = {
    Primitive(Kind.BOOLEAN): st.booleans(),
    Primitive(Kind.INT): st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    LONG: st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    Primitive(Kind.UNSIGNED_LONG): st.integers(0, 3) | st.integers(0, 2**64 - 1),
    Primitive(Kind.FLOAT): st.sampled_from([0.0, -0.0, 1.5, math.nan]) | st.floats(width=32),
    Primitive(Kind.DOUBLE): st.sampled_from([0.0, -0.0, 1.5, math.nan]) | st.floats(),
    Primitive(Kind.STRING): _TEXTS,
    Primitive(Kind.BYTES): st.binary(max_size=2)
    | st.binary(min_size=62, max_size=70)
    | st.integers(62, 66).map(lambda length: b"\xff" * length),
    Primitive(Kind.DATE): st.dates(),
    Primitive(Kind.TIMESTAMP): st.datetimes(timezones=st.just(dt.UTC)),
    Primitive(Kind.TIMESTAMP_NTZ): st.datetimes(),
    Decimal(9, 2): st.decimals(-9, 9, places=2),
    Decimal(38, 10): st.decimals(-(10**20), 10**20, places=10),
}


def a_store() -> Store:
    """Return an empty store, whose objects are in no cache."""
    return MemoryStore(uuid.uuid4().hex)


def put_segment(
    store: Store, kind: Type, files: dict[int, list], *, group_rows: int = 10_000
) -> Segment:
    """Index some files, given as the values of each."""
    values = {}
    for number, held in files.items():
        values[number] = ColumnValues()
        for part in (held[: len(held) // 2], held[len(held) // 2 :]):
            values[number].add(pa.chunked_array([pa.array(part, type_to_arrow(kind))]))
    encoded = encode_segment("d", "c", type_to_arrow(kind), values, group_rows=group_rows)
    store.put(encoded.segment.key, encoded.data)
    return encoded.segment


@pytest.mark.parametrize("kind", VALUES, ids=str)
@examples(0.15)
@given(data=st.data())
def test_every_condition_is_answered_as_by_a_look_at_every_value(kind: Type, data: st.DataObject):
    value = VALUES[kind]
    pool = data.draw(st.lists(value, min_size=1, max_size=12))
    held = st.lists(st.sampled_from([*pool, None]), max_size=15)
    files = data.draw(st.dictionaries(st.integers(0, 2**63 - 1), held, max_size=6))
    leaf = bind(data.draw(leaves_of("c", st.sampled_from(pool) | value)), {"c": kind})
    if not isinstance(leaf, Comparison | Membership | NullCheck):
        return  # an empty list is no condition any more
    store = a_store()
    cut = data.draw(st.integers(0, len(files)))
    parts = [dict(list(files.items())[:cut]), dict(list(files.items())[cut:])]
    group_rows = data.draw(st.sampled_from([1, 2, 10_000]))
    segments = [put_segment(store, kind, part, group_rows=group_rows) for part in parts]

    answer = lookup(store, segments, leaf, kind)

    stored = {
        number: pa.array(one, type_to_arrow(kind)).to_pylist() for number, one in files.items()
    }
    expected = [n for n, one in stored.items() if any(matches(leaf, {"c": v}) for v in one)]
    assert answer.covered.tolist() == sorted(files)
    assert answer.found.tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        (Primitive(Kind.INT), LONG),
        (Primitive(Kind.INT), Primitive(Kind.DOUBLE)),
        (Primitive(Kind.FLOAT), Primitive(Kind.DOUBLE)),
        (Primitive(Kind.DATE), Primitive(Kind.TIMESTAMP_NTZ)),
        (Decimal(9, 2), Decimal(30, 4)),
    ],
    ids=str,
)
@examples(0.15)
@given(data=st.data())
def test_a_segment_of_an_earlier_type_answers_for_the_wider_one(
    held: Type, kind: Type, data: st.DataObject
):
    values = data.draw(st.lists(VALUES[held], min_size=1, max_size=9))
    arrow = type_to_arrow(kind)
    widened = pa.array(values, type_to_arrow(held)).cast(arrow).to_pylist()
    other = st.sampled_from(widened)
    leaf = data.draw(st.builds(Comparison, st.just("c"), st.sampled_from(Op), other))
    store = a_store()
    files = {number: [value] for number, value in enumerate(values)}
    segment = put_segment(store, held, files, group_rows=2)

    answer = lookup(store, [segment], bind(leaf, {"c": kind}), kind)

    assert answer.found.tolist() == [
        number for number, value in enumerate(widened) if matches(leaf, {"c": value})
    ]


def a_million(seed: int = 7) -> np.ndarray:
    """Return a million distinct numbers in no order."""
    return np.random.default_rng(seed).choice(2**40, 1_000_000, replace=False)


def put_million(store: Store) -> Segment:
    """Index a million values in 100 files, each in one."""
    numbers = a_million()
    return put_segment(store, LONG, {n: numbers[n::100].tolist() for n in range(100)})


@pytest.mark.thorough
def test_a_lookup_of_one_value_reads_the_footer_and_one_row_group():
    store = CountingStore(a_store())
    segment = put_million(store)
    wanted = int(a_million()[42])
    store.reset()

    answer = lookup(store, [segment], Comparison("c", Op.EQ, wanted), LONG)

    used = store.counts
    assert answer.found.tolist() == [42]
    assert answer.requests == used.total == 2
    assert used.bytes_read < 0.1 * size_of(segment)


@pytest.mark.thorough
def test_what_was_read_of_a_footer_is_not_asked_for_again():
    store = CountingStore(a_store())
    segment = put_million(store)
    wanted = a_million()[:2].tolist()
    lookup(store, [segment], Comparison("c", Op.EQ, wanted[0]), LONG)
    store.reset()

    answer = lookup(store, [segment], Comparison("c", Op.EQ, wanted[1]), LONG)

    assert answer.requests == store.counts.total == 1


@pytest.mark.thorough
def test_a_thousand_values_are_found_by_few_requests():
    store = CountingStore(a_store())
    segment = put_million(store)
    wanted = a_million()[:1000]

    answer = lookup(store, [segment], Membership("c", tuple(wanted.tolist())), LONG)

    assert answer.found.tolist() == list(range(100))
    assert answer.requests <= 10


def test_a_small_segment_takes_one_request():
    store = CountingStore(a_store())
    segment = put_segment(store, LONG, {1: [5, 6], 2: [6, None]})

    answers = [
        lookup(store, [segment], leaf, LONG) for leaf in (Comparison("c", Op.EQ, 6), NullCheck("c"))
    ]

    assert [answer.found.tolist() for answer in answers] == [[1, 2], [2]]
    assert [answer.requests for answer in answers] == [1, 0]


@examples(0.6)
@given(place=st.integers(0, 10**9), flip=st.integers(1, 255), seed=st.integers(0, 3))
def test_a_damaged_byte_gives_an_error_or_the_right_answer(place: int, flip: int, seed: int):
    store = a_store()
    files = {n: [f"value {n * i:05d}" for i in range(200)] for n in range(5)}
    segment = put_segment(store, Primitive(Kind.STRING), files, group_rows=50)
    data = bytearray(store.get(segment.key).data)
    data[place % len(data)] ^= flip
    store.put(segment.key, data)
    wanted = random.Random(seed).choice(files[3])

    told = []
    leaf = Comparison("c", Op.EQ, wanted)

    answer = lookup(
        store, [segment], leaf, Primitive(Kind.STRING), on_damage=lambda *one: told.append(one[0])
    )

    if told:
        assert told == [segment]
        assert answer.covered.tolist() == []
    else:
        assert answer.found.tolist() == [n for n, held in files.items() if wanted in held]


@pytest.mark.parametrize("length", [0, 1, 100, -100, -1])
def test_a_truncated_segment_is_an_error_that_names_it(length: int):
    store = a_store()
    segment = put_segment(store, LONG, {1: list(range(1000))})
    store.put(segment.key, store.get(segment.key).data[:length])

    with pytest.raises(CorruptMetadataError, match=r"postings/c/.*cannot be used"):
        lookup(store, [segment], NullCheck("c"), LONG)


def test_a_missing_segment_is_told_and_the_others_answer():
    store = a_store()
    here, gone = (put_segment(store, LONG, {n: [n]}) for n in (1, 2))
    store.delete([gone.key])
    told = []

    answer = lookup(
        store,
        [here, gone],
        NullCheck("c", negated=True),
        LONG,
        on_damage=lambda segment, error: told.append((segment, str(error))),
    )

    assert answer.covered.tolist() == answer.found.tolist() == [1]
    assert [segment for segment, _ in told] == [gone]
    assert "missing" in told[0][1]


def test_a_segment_is_an_ordinary_parquet_object():
    store = a_store()
    segment = put_segment(store, LONG, {7: [3, 1, 1], 9: [1, None]})

    table = pq.read_table(pa.BufferReader(store.get(segment.key).data))

    assert table.to_pydict() == {"value": [1, 1, 3, None], "file": [0, 1, 0, 1]}


def test_without_segments_nothing_is_covered():
    answer = lookup(a_store(), [], Comparison("c", Op.EQ, 1), LONG)

    assert (len(answer.covered), len(answer.found), answer.requests) == (0, 0, 0)


@examples(0.3)
@given(
    values=st.lists(st.integers(-20, 20), min_size=1, max_size=30),
    low=st.integers(-22, 22),
    high=st.integers(-22, 22),
)
def test_two_bounds_are_met_by_one_value(values: list[int], low: int, high: int):
    store = a_store()
    files = {number: values[number::3] for number in range(3)}
    segment = put_segment(store, LONG, files, group_rows=2)

    answer = lookup(
        store, [segment], (Comparison("c", Op.GE, low), Comparison("c", Op.LT, high)), LONG
    )

    assert answer.found.tolist() == [
        number for number, held in files.items() if any(low <= value < high for value in held)
    ]


@pytest.mark.thorough
def test_a_range_that_all_files_meet_reads_little_of_the_index():
    store = CountingStore(a_store())
    segment = put_million(store)
    lookup(store, [segment], NullCheck("c"), LONG)  # the footer
    store.reset()

    answer = lookup(store, [segment], Comparison("c", Op.GE, 1000), LONG)

    assert answer.found.tolist() == answer.covered.tolist() == list(range(100))
    assert store.counts.bytes_read < 0.3 * size_of(segment)


def test_very_many_values_that_all_files_have_read_little_of_the_index():
    store = CountingStore(a_store())
    numbers = a_million()[:400_000]
    segment = put_segment(store, LONG, {n: numbers[n::4].tolist() for n in range(4)})
    lookup(store, [segment], NullCheck("c"), LONG)  # the footer
    store.reset()

    answer = lookup(store, [segment], Membership("c", tuple(numbers[::7].tolist())), LONG)

    assert answer.found.tolist() == [0, 1, 2, 3]
    assert 0 < store.counts.bytes_read < 0.5 * size_of(segment)
    alone = numbers[1::4][:50_000].tolist()
    assert lookup(store, [segment], Membership("c", tuple(alone)), LONG).found.tolist() == [1]


def test_segments_with_too_many_values_that_match_are_not_read():
    store = CountingStore(a_store())
    small, large = (
        put_segment(store, LONG, {n: list(range(n, 2 * count, 2))})
        for n, count in ((0, 10_000), (1, 500_000))
    )
    PROCESS_CACHE.clear()

    answer = lookup(store, [large, small], Comparison("c", Op.GE, 0), LONG, max_bytes=200_000)

    assert (answer.covered.tolist(), answer.found.tolist(), answer.refused) == ([0], [0], 1)
    assert answer.requests == store.counts.get == 2


@pytest.mark.thorough
def test_row_groups_of_long_texts_are_small_in_memory():
    store = a_store()
    texts = [f"{n:05d}" + "x" * 20_000 for n in range(2_000)]
    segment = put_segment(store, Primitive(Kind.STRING), {1: texts})

    footer, _ = open_segment(store, segment)

    assert footer.size_bytes < 2**20
    assert footer.raw_sizes.sum() >= 2_000 * 20_005
    assert footer.raw_sizes.max() <= 2**23
    leaf = Comparison("c", Op.EQ, texts[1234])
    assert lookup(store, [segment], leaf, Primitive(Kind.STRING)).found.tolist() == [1]


def test_a_segment_of_an_earlier_release_does_not_tell_its_bytes_and_answers():
    store = a_store()
    (path,) = (Path(__file__).parent.parent / "data" / "format-v1-postings").iterdir()
    segment = Segment(f"d/postings/c/{path.name}", 4)
    store.put(segment.key, path.read_bytes())
    kind = Primitive(Kind.STRING)

    assert "raw" not in open_segment(store, segment)[0].groups.column_names
    assert lookup(store, [segment], Comparison("c", Op.EQ, "b"), kind).found.tolist() == [7, 9]
    assert lookup(store, [segment], NullCheck("c"), kind).found.tolist() == [9]
    merged = merge_segments(store, "d", "c", [segment], pa.string())
    assert merged.segment.weight == 4


def test_metadata_of_segments_count_in_the_cache() -> None:
    """Its objects take several times the bytes that it is decoded from."""
    store = a_store()
    before = PROCESS_CACHE.size_bytes
    segment = put_segment(store, LONG, {0: list(range(100))})
    footer = open_segment(store, segment)[0]

    assert footer.metadata is not None
    assert PROCESS_CACHE.size_bytes - before > 8 * footer.metadata.serialized_size
