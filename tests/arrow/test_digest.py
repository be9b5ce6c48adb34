"""Digests of rows: the same for the same rows in any order, another for any other."""

import decimal
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.digest import RowDigest, row_hashes

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy]] = {
    "n": (pa.int64(), st.integers(-3, 3)),
    "small": (pa.int8(), st.integers(0, 2)),
    "f": (pa.float64(), st.sampled_from([0.0, 1.5, -2.0])),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "aa", "é", "x" * 256, "x" * 257, "y" * 257])),
    "raw": (pa.binary(), st.sampled_from([b"", b"\x00", b"\x00\x00", b"\x01"])),
    "d": (pa.decimal128(20, 2), st.sampled_from([decimal.Decimal("1.25"), decimal.Decimal(-1)])),
    "many": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 2), max_size=3)),
    "map": (
        pa.map_(pa.string(), pa.int8()),
        st.lists(st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 1)), max_size=2),
    ),
    "struct": (
        pa.struct([("x", pa.int32()), ("s", pa.list_(pa.string()))]),
        st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(0, 1),
                "s": st.none() | st.lists(st.sampled_from("ab"), max_size=2),
            }
        ),
    ),
    "nothing": (pa.null(), st.none()),
}
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
rows = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in COLUMNS.items()}),
    max_size=6,
)


def batch_of(some: list) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(some, schema=SCHEMA)


def digest(some: list) -> RowDigest:
    return RowDigest.of(row_hashes(batch_of(some)))


@given(rows, rows)
def test_digests_are_equal_exactly_if_the_multisets_of_rows_are(one: list, other: list) -> None:
    is_same = sorted(map(repr, one)) == sorted(map(repr, other))

    assert (digest(one) == digest(other)) == is_same


@given(rows, st.integers(0, 6), st.randoms(use_true_random=False))
def test_order_and_division_into_batches_do_not_matter(
    some: list, cut: int, dice: random.Random
) -> None:
    shuffled = dice.sample(some, len(some))
    sliced = batch_of(shuffled)

    parts = RowDigest.of(row_hashes(sliced.slice(cut))) + RowDigest.of(
        row_hashes(sliced.slice(0, min(cut, len(some))))
    )

    assert parts == digest(some)


def test_rows_of_large_batches_are_hashed_as_those_of_small_ones() -> None:
    table = pa.table({"s": [f"{n}" * (n % 50) for n in range(60_000)], "n": range(60_000)})
    (batch,) = table.to_batches()

    hashes = row_hashes(batch)

    assert hashes[1234:1240].tolist() == row_hashes(batch.slice(1234, 6)).tolist()
    assert len(set(hashes.tolist())) == 60_000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"s": "ab", "raw": b"c"}, {"s": "a", "raw": b"bc"}),
        ({"n": 0}, {"n": None}),
        ({"n": 1, "small": 2}, {"n": 2, "small": 1}),
        ({"many": []}, {"many": None}),
        ({"many": [None]}, {"many": []}),
        ({"f": 0.0}, {"f": -0.0}),
    ],
)
def test_rows_that_look_alike_differ(one: dict, other: dict) -> None:
    assert digest([one]) != digest([other])


def test_two_errors_do_not_cancel_out() -> None:
    assert digest([{"n": 1}, {"n": 4}]) != digest([{"n": 2}, {"n": 3}])
