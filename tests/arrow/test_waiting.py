"""Rows that wait for their files, sorted by partition."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.waiting import SortedRows, WaitingRows

_SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
# Of one partition: some runs are kept as parts of batches, others are too short for that.
_RUNS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), min_size=1, max_size=30)


def wait(runs: list[tuple[int, int]], sizes: list[int]) -> tuple[WaitingRows, np.ndarray]:
    """Return rows that wait, in batches of the sizes in turns, and the number of each row's partition."""
    numbers = np.repeat([number for number, _ in runs], [count for _, count in runs])
    numbers = numbers.astype(np.int32)
    texts = pa.array([f"text {row}" if row % 7 else None for row in range(len(numbers))])
    rows = pa.RecordBatch.from_arrays([pa.array(np.arange(len(numbers))), texts], schema=_SCHEMA)
    waiting, start = WaitingRows(_SCHEMA), 0
    while start < len(numbers):
        end = min(len(numbers), start + sizes[0])
        sizes = [*sizes[1:], sizes[0]]
        waiting.add(rows.slice(start, end - start), numbers[start:end])
        start = end
    return waiting, numbers


def rows_by_number(taken: SortedRows) -> dict[int, list[dict]]:
    return {number: taken.rows.slice(a, b - a).to_pylist() for number, a, b in taken}


def expected(numbers: np.ndarray, kept: set[int]) -> dict[int, list[dict]]:
    rows: dict[int, list[dict]] = {}
    for row, number in enumerate(numbers.tolist()):
        if number in kept:
            text = f"text {row}" if row % 7 else None
            rows.setdefault(number, []).append({"n": row, "text": text})
    return dict(sorted(rows.items()))


@given(
    runs=_RUNS,
    sizes=st.lists(st.integers(1, 1_000), min_size=1, max_size=4),
    kept=st.sets(st.integers(0, 5)),
)
def test_rows_of_a_partition_keep_their_order_however_long_its_runs_are(runs, sizes, kept) -> None:
    waiting, numbers = wait(runs, sizes)

    taken = waiting.take()
    found = rows_by_number(taken)
    waiting.put_back(taken, [entry for entry in taken if entry[0] in kept])
    again = rows_by_number(waiting.take()) if kept & set(numbers.tolist()) else {}

    assert found == expected(numbers, set(numbers.tolist()))
    assert list(found) == sorted(found)
    assert again == expected(numbers, kept)


def test_rows_in_long_runs_are_not_copied_and_short_runs_are() -> None:
    held = []
    for length in (500, 2):
        waiting, _ = wait([(number % 5, length) for number in range(20_000 // length)], [1_000])
        before = pa.total_allocated_bytes()
        taken = waiting.take()
        held.append(pa.total_allocated_bytes() - before)
        del taken

    assert held[0] < 10_000 < held[1]


def test_large_batches_are_sorted_by_themselves_in_the_order_of_all_rows() -> None:
    numbers = [row * row % 7 % 3 for row in range(60_000)]
    waiting, of_rows = wait([(number, 1) for number in numbers], [20_000, 12_345])

    taken = waiting.take()

    assert rows_by_number(taken) == expected(of_rows, {0, 1, 2})
    assert taken.rows.column("n").num_chunks == 4 * 3  # parts of batches, without a copy of all


def test_rows_that_are_put_back_do_not_hold_those_that_were_written() -> None:
    before = pa.total_allocated_bytes()
    waiting = WaitingRows(_SCHEMA)
    for batch in range(50):
        rows = [{"n": batch, "text": "x" * 100}] * 1_000
        numbers = np.repeat([1, 0], [900, 100]).astype(np.int32)
        waiting.add(pa.RecordBatch.from_pylist(rows, _SCHEMA), numbers)
    all_bytes = pa.total_allocated_bytes() - before

    taken = waiting.take()
    waiting.put_back(taken, [entry for entry in taken if entry[0] == 0])
    del taken

    assert pa.total_allocated_bytes() - before < all_bytes / 5
    assert sum(map(len, rows_by_number(waiting.take()).values())) == 50 * 100
