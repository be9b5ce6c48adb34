"""Filters of other engines as predicates: never stronger than the filter."""

import datetime as dt
import decimal
import math
import operator
import uuid
from functools import reduce

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.arrow.pushed import CallNode, fields_of, parse_expression, weaker_predicate
from lakebed.model.evaluate import matches
from lakebed.model.predicate import TRUE
from lakebed.model.schema import Decimal, Kind, Primitive

UTC = dt.UTC
T0 = dt.datetime(2013, 6, 1, tzinfo=UTC)
TYPES = {
    "n": Primitive(Kind.INT),
    "f": Primitive(Kind.DOUBLE),
    "s": Primitive(Kind.STRING),
    "t": Primitive(Kind.TIMESTAMP),
    "d": Primitive(Kind.DATE),
    "p": Decimal(8, 2),
    "b": Primitive(Kind.BOOLEAN),
}
SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("d", pa.date32()),
        ("p", pa.decimal128(8, 2)),
        ("b", pa.bool_()),
    ]
)
VALUES = {
    "n": [-1, 0, 1, 7],
    "f": [-1.5, 0.0, -0.0, 1.0, math.nan, math.inf],
    "s": ["", "a", "b'", "call: 'x'\nend: 'x'", "é"],
    "t": [T0, T0 + dt.timedelta(hours=1)],
    "d": [dt.date(2013, 6, 1), dt.date(2014, 1, 1)],
    "p": [decimal.Decimal("1.50"), decimal.Decimal("-2.00")],
    "b": [True, False],
}
field = pc.field


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (field("n") > 1, "n > 1"),
        (pc.scalar(1) < field("n"), "n > 1"),
        ((field("n") >= 1) & (field("s") == "a"), "n >= 1 AND s = 'a'"),
        ((field("n") < 1) | field("s").is_null(), "n < 1 OR s IS NULL"),
        (field("s").isin(["a", "b'"]), "s IN ('a', 'b\\'')"),
        (
            pc.if_else(field("n").is_valid(), field("n").isin([1, 7]), pc.scalar(None)),
            "n IN (1, 7)",
        ),
        (~field("s").is_null(), "s IS NOT NULL"),
        (field("d") == dt.date(2013, 6, 1), "d = '2013-06-01'"),
        (field("t") >= T0, "t >= '2013-06-01 00:00:00+00:00'"),
        (field("p") == decimal.Decimal("1.5"), "p = 1.50"),
        (field("f") > 1, "f > 1.0"),
        # What is not understood is left out of an AND, and leaves nothing of an OR.
        ((field("n") > 1) & pc.starts_with(field("s"), "a"), "n > 1"),
        ((field("n") > 1) | pc.starts_with(field("s"), "a"), "TRUE"),
        (~(field("n") > 1), "TRUE"),
        (field("n") > 1.5, "TRUE"),
        (field("p") == 1.5, "TRUE"),
        (field("f") < math.nan, "TRUE"),
        (field("n").isin([1, None]), "TRUE"),
        (field("n").cast(pa.int64()) > 1, "TRUE"),
        (field("n") + 1 > 5, "TRUE"),
        (field("n") > pc.scalar(pa.scalar(None, pa.int32())), "TRUE"),
        (field("x", "y") == 5, "TRUE"),
        (field(0) == 3, "TRUE"),
        (field("f").is_null(nan_is_null=True), "TRUE"),
        (pc.scalar(False), "FALSE"),
    ],
)
def test_filter_is_understood_or_made_weaker(expression, told: str) -> None:
    assert str(weaker_predicate(expression, TYPES)) == told


def test_columns_of_a_filter_are_told_where_they_can_be() -> None:
    assert fields_of((field("n") > 1) & field("s").is_null(), TYPES) == {"n", "s"}
    assert fields_of(pc.starts_with(field("s"), "a"), TYPES) == {"s"}
    assert fields_of(field("x", "y") == 5, TYPES) is None


def test_name_that_looks_like_the_text_of_a_filter_is_no_trap() -> None:
    name = "s'\nliteral: '0"
    types = {name: Primitive(Kind.LONG)}

    assert weaker_predicate(field(name) == 5, types) == TRUE


def leaf(column: str):
    values = st.sampled_from(VALUES[column])
    literal = values.map(lambda value: pc.scalar(pa.scalar(value, SCHEMA.field(column).type)))
    compared = st.tuples(
        st.sampled_from(["__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"]), literal
    ).map(lambda pair: getattr(field(column), pair[0])(pair[1]))
    lists = st.lists(values, min_size=1, max_size=3).map(
        lambda members: field(column).isin(pa.array(members, SCHEMA.field(column).type))
    )
    nulls = st.sampled_from([field(column).is_null(), field(column).is_valid()])
    return compared | lists | nulls


EXPRESSIONS = st.recursive(
    st.sampled_from(sorted(VALUES)).flatmap(leaf),
    lambda inner: (
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1])
        | st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1])
        | inner.map(lambda one: ~one)
    ),
    max_leaves=5,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {name: st.sampled_from([None, *values]) for name, values in VALUES.items()}
    ),
    min_size=1,
    max_size=12,
)


@examples(1)
@given(expression=EXPRESSIONS, rows=ROWS)
def test_every_row_that_arrow_selects_meets_the_predicate(expression, rows) -> None:
    table = pa.Table.from_pylist(
        [{**row, "at": number} for number, row in enumerate(rows)],
        SCHEMA.append(pa.field("at", pa.int64())),
    )
    selected = ds.dataset(table).to_table(filter=expression)["at"].to_pylist()

    told = weaker_predicate(expression, TYPES)

    assert [number for number in selected if not matches(told, rows[number])] == []


@pytest.mark.parametrize("count", [600, 1_000])
def test_a_long_pushed_filter_reads_the_right_rows(count: int) -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    lake.write("t", pa.table({"i": range(9), "s": [f"x{n}" for n in range(9)]}))
    text = " OR ".join(f"(i = {n} AND s = 'x{n}')" for n in range(3, count))
    column = pl.col("i")

    assert lake.sql(f"SELECT i FROM t WHERE {text}")["i"].to_pylist() == [*range(3, 9)]
    scan = pl.scan_pyarrow_dataset(lake["t"].dataset())
    found = scan.filter(reduce(operator.or_, [column == n for n in range(3, count)])).collect()
    assert found["i"].to_list() == [*range(3, 9)]


def test_a_chain_of_one_word_is_one_call() -> None:
    i = pc.field("i")
    chain = (i == 1) | (i == 2) | ((i == 3) | ~((i == 4) & (i == 5) & (i == 6)))

    node = parse_expression(chain, {"i": Primitive(Kind.LONG)})

    assert isinstance(node, CallNode)
    assert (node.function, len(node.arguments)) == ("or_kleene", 4)
    inner = node.arguments[3].arguments[0]
    assert (inner.function, len(inner.arguments)) == ("and_kleene", 3)
