"""Lists of combinations of several columns' values: one lookup, and files by each column's values."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
import uuid
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.arrow.sieve import RowFilter
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.predicate import And, Comparison, Op, Or, bind, key_list
from lakebed.model.schema import Decimal, Kind, Primitive, Type

TYPES: dict[str, Type] = {
    "long": Primitive(Kind.LONG),
    "text": Primitive(Kind.STRING),
    "double": Primitive(Kind.DOUBLE),
    "float": Primitive(Kind.FLOAT),
    "flag": Primitive(Kind.BOOLEAN),
    "bytes": Primitive(Kind.BYTES),
    "date": Primitive(Kind.DATE),
    "time": Primitive(Kind.TIMESTAMP),
    "number": Decimal(precision=8, scale=2),
}
VALUES: dict[str, list[Any]] = {
    "long": [-(2**63), -1, 0, 1, 2, 2**63 - 1],
    "text": ["", "a", "A", "b", "\x00"],
    "double": [-0.0, 0.0, 0.1, -math.inf, math.inf, math.nan],
    "float": [-0.0, 0.0, 0.5, math.nan],
    "flag": [True, False],
    "bytes": [b"", b"\xff", b"a"],
    "date": [dt.date(1, 1, 1), dt.date(2024, 5, 6)],
    "time": [dt.datetime(year, 10, 10, 1, 2, 3, 4, dt.UTC) for year in (1582, 2024)],
    "number": [decimal.Decimal(text) for text in ("-1.50", "0.00", "1.10")],
}


@given(data=st.data())
@examples(2)
def test_a_lookup_chooses_the_rows_of_the_condition(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=4, unique=True))
    row = st.tuples(*(st.sampled_from(VALUES[name]) for name in names))
    count = min(17, math.prod(len(VALUES[name]) for name in names))
    combinations = data.draw(st.lists(row, min_size=count, max_size=40))
    listed = Or(
        tuple(
            And(tuple(Comparison(n, Op.EQ, v) for n, v in zip(names, values, strict=True)))
            for values in combinations
        )
    )
    predicate = bind(listed, TYPES)
    cells = {name: st.sampled_from([*VALUES[name], None]) for name in names}
    rows = data.draw(st.lists(st.fixed_dictionaries(cells), max_size=30))
    columns = {
        name: pa.array([row[name] for row in rows], type_to_arrow(TYPES[name])) for name in names
    }
    batch = pa.record_batch({**columns, "n": pa.array(range(len(rows)), pa.int64())})
    # One by one, which the lists of single columns and the lookup take no part in.
    parts = [bind(part, TYPES) for part in listed.parts]
    exact = [any(matches(part, row) for part in parts) for row in rows]

    chosen = RowFilter.of(predicate, TYPES)

    assert [matches(predicate, row) for row in rows] == exact
    assert chosen.mask(batch).tolist() == exact
    assert chosen.filter(batch)["n"].to_pylist() == [n for n, is_in in enumerate(exact) if is_in]


def test_forms_that_are_no_lists_of_combinations() -> None:
    pairs = [And((Comparison("long", Op.EQ, n), Comparison("text", Op.EQ, "a"))) for n in range(20)]
    other = And((Comparison("long", Op.EQ, 1), Comparison("flag", Op.EQ, True)))
    greater = And((Comparison("long", Op.GT, 1), Comparison("text", Op.EQ, "a")))
    twice = And((Comparison("long", Op.EQ, 1), Comparison("long", Op.EQ, 2)))

    assert key_list(Or(tuple(pairs))) is not None
    assert key_list(Or(tuple(pairs[:16]))) is None
    assert key_list(And(tuple(pairs))) is None
    for odd in (other, greater, twice, Comparison("long", Op.EQ, 1)):
        assert key_list(Or((*pairs, odd))) is None


COUNT = 3_000
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "by one of the columns": {"partition_by": "fixed_range(a, 500) as part"},
    "by both": {"partition_by": "fixed_range(a, 500) as part, b"},
    "with an index": {"index": ["a"]},
}


@pytest.fixture(params=LAYOUTS)
def dataset(request: pytest.FixtureRequest) -> lakebed.Dataset:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    rows = pa.table(
        {
            "a": pa.array(range(COUNT), pa.int64()),
            "b": [f"b{n % 3}" for n in range(COUNT)],
            "r": [{"c": n % 7} for n in range(COUNT)],
        }
    )
    for start in range(0, COUNT, 500):
        lake.write("t", rows.slice(start, 500), **LAYOUTS[request.param])
    return lake["t"]


def test_each_door_finds_the_rows_of_many_combinations(dataset: lakebed.Dataset) -> None:
    # Of 1,200 combinations every second one exists; all lie in the first files.
    pairs = [(n, f"b{(n + n % 2) % 3}") for n in range(1_200)]
    wanted = list(range(0, 1_200, 2))
    text = " OR ".join(f"(a = {a} AND b = '{b}')" for a, b in pairs)
    views = {
        "lists": dataset.where([[("a", "==", a), ("b", "==", b)] for a, b in pairs]),
        "text": dataset.where(text),
        "Arrow": dataset.where(
            reduce(operator.or_, [(pc.field("a") == a) & (pc.field("b") == b) for a, b in pairs])
        ),
        "and another": dataset.where(f"({text}) AND a >= 0"),
    }

    for name, view in views.items():
        assert sorted(view.arrow(["a"])["a"].to_pylist()) == wanted, name
        assert view.count() == len(wanted), name
        assert len(view.plan().files) < len(dataset.plan().files), name
    assert dataset.where(f"NOT ({text})").count() == COUNT - len(wanted)
    assert dataset.where(f"({text}) OR a = 2999").count() == len(wanted) + 1
    parts = " OR ".join(f"(a = {n} AND r.c = {n % 7})" for n in range(300))
    assert dataset.where(parts).count() == 300
    views["lists"].delete()
    assert dataset.count() == COUNT - len(wanted)
    assert views["lists"].count() == 0


def test_combinations_with_a_field_that_older_files_lack(dataset: lakebed.Dataset) -> None:
    dataset.evolve(lambda old: old.add_field("d", "int", default=5))
    dataset.append([{"a": COUNT, "b": "new", "r": None, "d": 6}])
    pairs = [
        [("a", "==", n), ("d", "==", 5 if n % 2 else 6)] for n in range(COUNT - 300, COUNT + 1)
    ]

    found = dataset.where(pairs).arrow(["a"])["a"].to_pylist()

    assert sorted(found) == [*range(COUNT - 299, COUNT, 2), COUNT]
