"""Keys of data are found in the columns of files, whether these are in order or not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow.matching import Keys

TYPES = [pa.int64(), pa.int32(), pa.uint64(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.float64()]  # fmt: skip
NUMBERS = st.integers(0, 40)
FILES = st.lists(st.tuples(st.lists(NUMBERS, max_size=30), st.booleans()), max_size=4)


def column_of(numbers: list[int | None], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_temporal(kind):
        return pa.array(numbers, kind)
    return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(keys=st.lists(NUMBERS, unique=True, max_size=20), files=FILES)
def test_rows_are_found_where_their_keys_are(
    kind: pa.DataType, keys: list[int], files: list[tuple[list[int], bool]]
) -> None:
    known = Keys(pa.table({"k": column_of(keys, kind)}))
    parts = [sorted(numbers) if is_sorted else numbers for numbers, is_sorted in files]
    chunks = [column_of(part, kind) for part in parts]

    rows, places = known.find([pa.chunked_array(chunks, kind)])

    everything = [number for part in parts for number in part]
    expected = [(row, keys.index(n)) for row, n in enumerate(everything) if n in keys]
    assert list(zip(rows.tolist(), places.tolist(), strict=True)) == expected


def test_null_is_found_nowhere_though_the_rest_is_in_order() -> None:
    known = Keys(pa.table({"k": pa.array([1, None, 3])}))

    rows, places = known.find([pa.chunked_array([pa.array([None, 1, 2, 3, None])])])

    assert (rows.tolist(), places.tolist()) == ([1, 3], [0, 2])


def test_second_part_of_a_key_is_asked_where_the_first_is_there() -> None:
    known = Keys(pa.table({"k": [2, 2, 5], "s": ["a", "b", "a"]}))
    files = [pa.chunked_array([np.array([1, 2, 2, 2]), np.array([4, 5, 5])]), pa.chunked_array([list("aabcaab")])]  # fmt: skip

    rows, places = known.find(files)

    assert (rows.tolist(), places.tolist()) == ([1, 2, 5], [0, 1, 2])
