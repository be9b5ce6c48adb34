"""What facts say of a condition: surely implies met by every row, met by a row implies may."""

import itertools
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import TYPES, VALUES, leaves_of

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.predicate import Comparison, Leaf, Membership, NullCheck, Op, bind
from lakebed.model.schema import Field, Schema
from lakebed.model.values import is_nan
from lakebed.state import file_table
from lakebed.state.facts import ColumnFacts, FileFacts, facts_table
from lakebed.state.statistics import Evidence, evidence_of
from lakebed.store import open_store

_names = itertools.count()
CHOICES = {
    **VALUES,
    "string": [*VALUES["string"], "z" * 200, "z" * 127 + "\ud7ff" * 9, "\U0010ffff" * 130],
    "bytes": [*VALUES["bytes"], b"a" * 200, b"\xff" * 130, b"a" * 127 + b"\xff" * 9],
}


def facts_of(values: list[Any]) -> ColumnFacts:
    ordered = [value for value in values if value is not None and not is_nan(value)]
    return ColumnFacts(
        min=min(ordered, default=None),
        max=max(ordered, default=None),
        null_count=sum(value is None for value in values),
    )


def judge(column: str, files: list[list[Any]], leaf: Leaf, facts: list[ColumnFacts]) -> Evidence:
    """Keep the facts in a file table, and ask what they say."""
    kind = TYPES[column]
    told = [
        FileFacts(
            label=f"f{n}", row_count=len(rows), size_bytes=1, checksum="", columns={column: one}
        )
        for n, (rows, one) in enumerate(zip(files, facts, strict=True))
    ]
    table = facts_table(told, Schema(fields=(Field(name=column, type=kind),)))
    store = open_store(f"memory://statistics-{next(_names)}")
    segment = file_table.new_segment("d", table)
    store.put(segment.key, file_table.encode(table))
    labels = pa.array([one.label for one in told], pa.large_string())
    found = file_table.find(store, (segment,), labels, {column: type_to_arrow(kind)})
    return evidence_of(leaf, found.columns[column], found.row_count, kind)


CASES = st.sampled_from(sorted(TYPES)).flatmap(
    lambda column: st.tuples(
        st.just(column),
        st.lists(st.lists(st.none() | st.sampled_from(CHOICES[column]), max_size=3), min_size=1),
        leaves_of(column, st.sampled_from(CHOICES[column])),
        st.booleans(),
    )
)


@examples(4)
@given(CASES)
def test_facts_never_say_more_than_the_rows(
    case: tuple[str, list[list[Any]], Leaf, bool],
) -> None:
    column, files, leaf, is_known = case
    if bind(leaf, TYPES) != leaf:
        return  # an empty list, which is no condition any more
    facts = [facts_of(rows) if is_known else ColumnFacts() for rows in files]

    told = judge(column, files, leaf, facts)

    for rows, may, surely in zip(files, told.may.tolist(), told.surely.tolist(), strict=True):
        truths = [matches(leaf, {column: value}) for value in rows]
        assert may or not any(truths)
        assert not surely or all(truths)


@pytest.mark.parametrize(
    ("column", "rows", "leaf", "may", "surely"),
    [
        ("long", [5, 5], Comparison("long", Op.EQ, 5), True, True),
        ("long", [5, 5], Comparison("long", Op.NE, 5), False, False),
        ("long", [5, None], Comparison("long", Op.EQ, 5), True, False),
        ("long", [1, 9], Comparison("long", Op.LT, 1), False, False),
        ("long", [1, 9], Comparison("long", Op.LE, 9), True, True),
        ("long", [1, 9], Membership("long", (0, 10)), False, False),
        ("long", [1, 9], Membership("long", (0, 10), negated=True), True, True),
        ("long", [None], Comparison("long", Op.NE, 5), False, False),
        ("long", [None], NullCheck("long"), True, True),
        ("long", [1], NullCheck("long"), False, False),
        ("double", [1.0, float("nan")], Comparison("double", Op.GT, 5.0), True, False),
        ("double", [1.0, float("nan")], Comparison("double", Op.LT, 1.0), False, False),
        ("double", [1.0], Comparison("double", Op.LE, 5.0), True, False),
        ("double", [1.0], Comparison("double", Op.GE, 1.0), True, True),
        ("double", [1.0], Comparison("double", Op.GT, float("nan")), False, False),
        ("double", [0.0], Comparison("double", Op.NE, -0.0), True, False),
        ("string", ["a" * 200], Comparison("string", Op.EQ, "a" * 128), True, False),
        ("string", ["a" * 200], Comparison("string", Op.LT, "b"), True, True),
        ("string", ["\U0010ffff" * 200], Comparison("string", Op.GT, "b"), True, True),
        ("string", ["\U0010ffff" * 200], Comparison("string", Op.LT, "b"), False, False),
        ("bytes", [b"\xff" * 200], Comparison("bytes", Op.GT, b"\xff" * 200), True, False),
    ],
    ids=str,
)
def test_facts_say_what_they_can(
    column: str, rows: list[Any], leaf: Leaf, *, may: bool, surely: bool
) -> None:
    told = judge(column, [rows], leaf, [facts_of(rows)])

    assert (told.may.tolist(), told.surely.tolist()) == ([may], [surely])


def test_file_without_rows_holds_no_match() -> None:
    told = judge("long", [[]], Comparison("long", Op.EQ, 5), [ColumnFacts()])

    assert (told.may.tolist(), told.surely.tolist()) == ([False], [True])


@pytest.mark.parametrize("column", ["long", "string", "date", "timestamp", "decimal", "double"])
def test_long_list_is_judged_as_a_short_one(column: str) -> None:
    values = sorted(value for value in VALUES[column] if not is_nan(value))
    files = [[value] for value in values] + [[values[0], values[-1]], [None]]
    wanted = values[1::2]
    facts = [facts_of(rows) for rows in files]
    short = Membership(column, tuple(wanted))

    for leaf in (short, Membership(column, tuple(wanted * 20))):
        told = judge(column, files, leaf, facts)

        assert [bool(may) for may in told.may] == [
            rows != [None] and any(min(rows) <= value <= max(rows) for value in wanted)
            for rows in files
        ]
