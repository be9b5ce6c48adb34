"""Rows that two sequences have in common at corresponding places."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow import aligned_rows
from lakebed.arrow.aligned_rows import unlike_rows as remaining_rows

Row = tuple[int | None, str | None]
ROWS = st.lists(st.tuples(st.integers(0, 3) | st.none(), st.sampled_from("ab") | st.none()))


def batches(rows: Sequence[Row], size: int) -> list[pa.RecordBatch]:
    numbers, texts = ([row[number] for row in rows] for number in (0, 1))
    table = pa.table({"n": pa.array(numbers, pa.int64()), "t": pa.array(texts, pa.string())})
    return table.to_batches(max_chunksize=size)


def unlike_rows(
    one: Sequence[pa.RecordBatch], other: Sequence[pa.RecordBatch], most: int = 10**6
) -> list[np.ndarray]:
    """Return the positions of all remaining rows of each sequence."""
    counts = [sum(batch.num_rows for batch in batches) for batches in (one, other)]
    return [
        np.concatenate([places, np.arange(rest, count)])
        for (places, rest), count in zip(remaining_rows(one, other, most), counts, strict=True)
    ]


@given(
    one=ROWS,
    other=ROWS,
    sizes=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    most=st.integers(0, 9),
)
@examples(1)
def test_as_many_equal_rows_are_left_out_of_both(
    one: list[Row], other: list[Row], sizes: tuple[int, int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aligned_rows, "ALIKE", 2)
        patch.setattr(aligned_rows, "ROWS_AT_ONCE", 5)
        left, right = unlike_rows(batches(one, sizes[0]), batches(other, sizes[1]), most)

    left_out = []
    for rows, remaining in ((one, left), (other, right)):
        assert remaining.tolist() == sorted(set(remaining.tolist()))
        assert not len(remaining) or 0 <= remaining[0] <= remaining[-1] < len(rows)
        left_out.append(Counter(np.delete(np.arange(len(rows)), remaining).tolist()))
        left_out[-1] = Counter(rows[place] for place in left_out[-1])
    assert left_out[0] == left_out[1]


def many(count: int) -> list[Row]:
    return [(number * 7919 % 100_003, f"text {number % 50}") for number in range(count)]


def test_only_changed_rows_remain_of_long_sequences() -> None:
    old = many(90_000)
    new: list[Row] = [(number, "other") if i % 100 == 3 else (number, text)
                      for i, (number, text) in enumerate(old)]  # fmt: skip

    left, right = unlike_rows(batches(old, 10_000), batches(new, 7_000))

    assert left.tolist() == right.tolist() == list(range(3, 90_000, 100))


def test_rows_after_a_gap_are_found_again() -> None:
    old = many(90_000)
    gone = [0, 1, 2, 500, 70_000, 70_001, 89_990]
    more: list[Row] = [(-1, "new"), (-2, "new")]
    new = [row for place, row in enumerate(old) if place not in gone]
    new[40_000:40_000] = more

    left, right = unlike_rows(batches(old, 10_000), batches(new, 7_000))

    places = {new.index(row) for row in more}
    # Near the end too few rows follow to show where both go on, so some equal ones may remain.
    assert set(gone) <= set(left.tolist()) <= {*gone, *range(89_980, 90_000)}
    assert places <= set(right.tolist()) <= {*places, *range(89_975, 90_000)}


def test_few_positions_are_held_of_sequences_with_much_unlike() -> None:
    old = many(90_000)
    new: list[Row] = [(number, "other") if i % 2 else (number, text)
                      for i, (number, text) in enumerate(old)]  # fmt: skip

    for places, rest in remaining_rows(batches(old, 10_000), batches(new, 7_000), 5_000):
        assert len(places) <= 5_000 + 10_000
        assert 0 < rest < 60_000


def test_sequences_without_anything_in_common_remain_whole() -> None:
    left, right = unlike_rows(batches(many(20_000), 999), batches([(-1, "x")] * 20_000, 999))

    assert left.tolist() == right.tolist() == list(range(20_000))


def test_values_are_compared_as_they_are_stored() -> None:
    nested = pa.list_(pa.float64())
    old = pa.record_batch(
        {
            "f": pa.array([0.0, math.nan, None, 1.0, 1.0]),
            "l": pa.array([[1.0], [math.nan], None, [], [None]], nested),
        }
    )
    new = pa.record_batch(
        {
            "f": pa.array([-0.0, math.nan, None, None, 1.0]),
            "l": pa.array([[1.0], [math.nan], None, [], [2.0]], nested),
        }
    )

    left, right = unlike_rows([old], [new])

    assert left.tolist() == right.tolist() == [0, 3, 4]
