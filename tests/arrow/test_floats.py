"""Floating-point values that are equal are equal bytes."""

import math

import pyarrow as pa
import pytest

from lakebed.arrow.conform import with_one_zero_and_nan


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_equal_values_are_grouped_together_and_others_stay_as_they_are(kind: pa.DataType) -> None:
    values = [0.0, -0.0, math.nan, -math.nan, None, 1.5, -1.5, math.inf, -math.inf]
    column = pa.chunked_array([values[:3], values[3:]], kind)

    found = with_one_zero_and_nan(column)

    assert found.type == kind
    assert found.null_count == 1
    table = pa.table({"x": found}).group_by("x").aggregate([([], "count_all")])
    counts = {repr(row["x"]): row["count_all"] for row in table.to_pylist()}
    assert counts == {
        "0.0": 2,
        "nan": 2,
        "None": 1,
        "1.5": 1,
        "-1.5": 1,
        "inf": 1,
        "-inf": 1,
    }


def test_columns_of_other_types_come_back() -> None:
    column = pa.chunked_array([["a", None]])

    assert with_one_zero_and_nan(column) is column
