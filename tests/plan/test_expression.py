"""Predicates as Arrow expressions select the rows that `matches` says."""

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import TYPES, VALUES, predicates

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.predicate import (
    Comparison,
    Membership,
    Op,
    Predicate,
    bind,
)
from lakebed.plan.expression import for_row_groups, to_arrow_expression

PREDICATES = predicates(VALUES, max_leaves=6)
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
    ),
    max_size=8,
)
SCHEMA = pa.schema([(name, type_to_arrow(kind)) for name, kind in TYPES.items()])


def select(rows: list[dict], predicate: Predicate) -> list[int]:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    numbered = table.append_column("row", pa.array(range(len(rows)), pa.int64()))
    return numbered.filter(to_arrow_expression(predicate, TYPES))["row"].to_pylist()


@examples(2)
@given(ROWS, PREDICATES)
def test_arrow_selects_what_matches_says(rows: list[dict], predicate: Predicate) -> None:
    expected = [number for number, row in enumerate(rows) if matches(predicate, row)]

    assert select(rows, predicate) == expected
    assert select(rows, bind(predicate, TYPES)) == expected


@pytest.mark.parametrize("column", sorted(TYPES))
def test_arrow_agrees_on_every_pair_of_values(column: str) -> None:
    rows = [dict.fromkeys(TYPES) | {column: value} for value in (*VALUES[column], None)]
    for wanted in VALUES[column]:
        for predicate in (
            *[Comparison(column, op, wanted) for op in Op],
            *[
                Membership(column, (wanted, other), negated)
                for other in VALUES[column]
                for negated in (False, True)
            ],
        ):
            expected = [number for number, row in enumerate(rows) if matches(predicate, row)]

            assert select(rows, predicate) == expected, predicate


@given(ROWS, PREDICATES)
def test_predicate_for_row_groups_is_weaker(rows: list[dict], predicate: Predicate) -> None:
    weaker = for_row_groups(predicate, TYPES)

    assert all(matches(weaker, row) for row in rows if matches(predicate, row))


@given(PREDICATES)
def test_predicate_for_row_groups_says_of_nan_only_that_it_is_there(predicate: Predicate) -> None:
    weaker = for_row_groups(predicate, TYPES)

    assert for_row_groups(weaker, TYPES) == weaker
