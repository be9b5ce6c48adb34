"""Java's hash codes, by the vectors that were checked against Kite."""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.hashing import java_hash, java_hash_array
from lakebed.model.partition import Hash
from lakebed.model.schema import Kind, Primitive

VECTORS = [
    # value, kind, hash code, and modulo 2, 16, 50, 53
    (-1, Kind.INT, -1, (1, 15, 47, 20)),
    (-2147483648, Kind.INT, -2147483648, (0, 0, 0, 0)),
    (-1, Kind.LONG, 0, (0, 0, 0, 0)),
    (4294967296, Kind.LONG, 1, (1, 1, 1, 1)),
    (9223372036854775807, Kind.LONG, -2147483648, (0, 0, 0, 0)),
    ("", Kind.STRING, 0, (0, 0, 0, 0)),
    ("a", Kind.STRING, 97, (1, 1, 47, 44)),
    ("b", Kind.STRING, 98, (0, 2, 48, 45)),
    ("green", Kind.STRING, 98619139, (1, 3, 39, 25)),
    ("orange", Kind.STRING, -1008851410, (0, 14, 38, 7)),
    ("jane", Kind.STRING, 3254574, (0, 14, 24, 3)),
    ("polygenelubricants", Kind.STRING, -2147483648, (0, 0, 0, 0)),
    ("héllo", Kind.STRING, 103094734, (0, 14, 34, 35)),
    (True, Kind.BOOLEAN, 1231, (1, 15, 31, 12)),
    (False, Kind.BOOLEAN, 1237, (1, 5, 37, 18)),
    (1.5, Kind.FLOAT, 1069547520, (0, 0, 20, 47)),
    (1.5, Kind.DOUBLE, 1073217536, (0, 0, 36, 25)),
    (0.0, Kind.DOUBLE, 0, (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("value", "kind", "code", "buckets"), VECTORS)
def test_hash_code_is_javas(value, kind: Kind, code: int, buckets: tuple[int, ...]) -> None:
    found = java_hash(value, kind)

    assert found == code % 2**32
    for count, bucket in zip((2, 16, 50, 53), buckets, strict=True):
        function = Hash(source="a", name="a_hash", buckets=count)
        assert function.value(value, Primitive(kind)) == bucket


@pytest.mark.parametrize("kind", [Kind.INT, Kind.LONG])
def test_user_1234_of_the_design_draft_is_in_bucket_15(kind: Kind) -> None:
    function = Hash(source="user_id", name="user_id_hash", buckets=53)

    assert function.value(1234, Primitive(kind)) == 15


def test_all_nan_hash_alike() -> None:
    other_nan = np.array([0x7FF8000000000001], dtype=np.uint64).view(np.float64)[0]

    codes = {java_hash(number, Kind.DOUBLE) for number in (math.nan, -math.nan, float(other_nan))}

    assert codes == {java_hash(math.nan, Kind.DOUBLE)}


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_texts_of_a_column_hash_as_each_alone(texts: list[str]) -> None:
    column = pa.array(texts, type_to_arrow(Primitive(Kind.STRING)))

    codes = java_hash_array(column, Kind.STRING)

    assert codes.tolist() == [java_hash(text, Kind.STRING) for text in texts]
