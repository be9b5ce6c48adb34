"""A fast first look for rows with listed values."""

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed.arrow import sieve
from lakebed.arrow.sieve import RowFilter
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.predicate import And, Comparison, Membership, NullCheck, Op, Or, bind
from lakebed.model.schema import Kind, Primitive, Type

TYPES: dict[str, Type] = {
    "int": Primitive(Kind.INT),
    "long": Primitive(Kind.LONG),
    "unsigned": Primitive(Kind.UNSIGNED_LONG),
    "date": Primitive(Kind.DATE),
    "time": Primitive(Kind.TIMESTAMP),
    "text": Primitive(Kind.STRING),
    "double": Primitive(Kind.DOUBLE),
}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-2, 2) | st.sampled_from([-(2**31), 2**31 - 1]),
    "long": st.integers(-2, 2) | st.sampled_from([-(2**63), 2**63 - 1]),
    "unsigned": st.integers(0, 3) | st.just(2**64 - 1),
    "date": st.sampled_from([dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 5, 6)]),
    "time": st.sampled_from([dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1900, 2024)]),
    "text": st.sampled_from(["", "a", "b"]),
    "double": st.sampled_from([0.0, 1.5]),
}


@given(data=st.data())
@examples(1)
def test_it_chooses_the_rows_that_meet_the_predicate(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TYPES)))
    values = VALUES[name]
    listed = Membership(name, tuple(data.draw(st.lists(values, min_size=1, max_size=3))))
    single = Comparison(name, data.draw(st.sampled_from(list(Op))), data.draw(values))
    absent = NullCheck(name)
    predicate = data.draw(
        st.sampled_from(
            [listed, single, And((single, listed)), Or((listed, absent)), absent,
             Membership(name, listed.values, negated=True)]
        )
    )  # fmt: skip
    predicate = bind(predicate, TYPES)
    column = data.draw(st.lists(values | st.none(), min_size=2, max_size=20))
    array = pa.array(column, type_to_arrow(TYPES[name]))
    batch = pa.record_batch({name: array, "n": pa.array(range(len(array)))}).slice(1)
    expected = [matches(predicate, {name: value}) for value in column[1:]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sieve, "_LEAST_ROWS", 1)
        rows = RowFilter.of(predicate, TYPES)
        assert rows.mask(batch).tolist() == expected
        chosen = rows.filter(batch)
    assert chosen.schema == batch.schema
    assert chosen["n"].to_pylist() == [n + 1 for n, is_met in enumerate(expected) if is_met]


def test_it_looks_up_few_of_many_rows() -> None:
    numbers = np.random.default_rng(1).permutation(100_000)
    batch = pa.record_batch({"long": numbers})
    rows = RowFilter.of(Membership("long", (5, 77)), TYPES)

    candidates = rows._candidates(batch)

    assert candidates is not None
    assert len(candidates) < 100
    assert sorted(numbers[rows.mask(batch)].tolist()) == [5, 77]


def test_values_of_another_type_are_looked_up_exactly() -> None:
    times = pa.array(range(10_000), pa.timestamp("ms", "UTC"))
    wanted = dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC)
    rows = RowFilter.of(Membership("time", (wanted,)), TYPES)

    assert np.flatnonzero(rows.mask(pa.record_batch({"time": times}))).tolist() == [5_000]
