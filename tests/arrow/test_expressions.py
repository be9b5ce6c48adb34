"""Expressions of pyarrow and Polars are conditions of a view, read exactly or refused."""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from strategies import predicates

import lakebed
from lakebed.arrow.expressions import (
    READ_OPTIONS,
    READ_PARTS,
    check_options,
    check_parts,
    exact_predicate,
    read_node,
)
from lakebed.arrow.pushed import CallNode, FieldNode
from lakebed.errors import PredicateError
from lakebed.model.evaluate import fits
from lakebed.model.predicate import bind, lower_case
from lakebed.model.schema import Kind, Primitive
from lakebed.model.sql_predicates import parse_sql
from lakebed.plan.expression import to_arrow_expression

DAY = dt.date(2026, 3, 1)
NOON = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
ROWS = [
    {"n": n, "s": s, "d": DAY + dt.timedelta(days=n), "t": NOON + dt.timedelta(hours=n), "b": n > 1}
    for n, s in enumerate(["ab", "a%b", "B", None, "ç"])
]


@pytest.fixture(scope="module")
def visits() -> lakebed.Dataset:
    repository = lakebed.open_repository("memory://expressions")
    repository.write("visits", ROWS)
    return repository.open("visits")


f, c = pc.field, pl.col


def odd(number: int) -> bool:
    while number > 1:
        number -= 2
    return number == 1


BOTH: list[tuple[Any, Any, str]] = [
    (f("n") == 2, c("n") == 2, "n = 2"),
    (pc.scalar(2) < f("n"), pl.lit(2) < c("n"), "n > 2"),
    ((f("n") >= 1) & (f("s") == "B"), (c("n") >= 1) & (c("s") == "B"), "n >= 1 AND s = 'B'"),
    ((f("n") == 1) | (f("n") == 2), (c("n") == 1) | (c("n") == 2), "n IN (1, 2)"),
    (~(f("s") == "B"), ~(c("s") == "B"), "s != 'B'"),
    (f("n").isin([1, 3]), c("n").is_in([1, 3]), "n IN (1, 3)"),
    (
        pc.is_in(f("s"), pa.array(["B", None]), skip_nulls=True),
        c("s").is_in(["B", None]),
        "s IN ('B')",
    ),
    (
        f("s").isin(["B", None]),
        c("s").is_in(["B", None], nulls_equal=True),
        "s IN ('B') OR s IS NULL",
    ),
    (
        ~f("s").isin(["B", None]),
        ~c("s").is_in(["B", None], nulls_equal=True),
        "s NOT IN ('B') AND s IS NOT NULL",
    ),
    (f("n").isin(pa.array([1, 3])), c("n").is_in(pl.Series([1, 3])), "n IN (1, 3)"),
    (f("s").is_null(), c("s").is_null(), "s IS NULL"),
    (f("s").is_valid(), c("s").is_not_null(), "s IS NOT NULL"),
    (f("d") >= DAY, c("d") >= DAY, "d >= '2026-03-01'"),
    (f("t") < NOON, c("t") < NOON, "t < '2026-03-01 12:00'"),
    (f("b"), c("b"), "b"),
    (~f("b"), ~c("b"), "NOT b"),
    (pc.starts_with(f("s"), "a%"), c("s").str.starts_with("a%"), "startswith(s, 'a%')"),
    (pc.ends_with(f("s"), "b"), c("s").str.ends_with("b"), "endswith(s, 'b')"),
    (
        pc.match_substring(f("s"), "%"),
        c("s").str.contains("%", literal=True),
        "contains(s, '%')",
    ),
]


@pytest.mark.parametrize(("arrow", "polars", "text"), BOTH, ids=[text for *_, text in BOTH])
def test_expressions_select_what_the_text_selects(
    visits: lakebed.Dataset, arrow: Any, polars: Any, text: str
) -> None:
    wanted = visits.where(text)

    for view in (visits.where(arrow), visits.where(polars)):
        assert str(view.constraint) == str(wanted.constraint)
        assert view.arrow().equals(wanted.arrow())


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f("n") + 1 == 2, "Cannot use"),
        (c("n") + 1 == 2, "Cannot use"),
        (f("n") == f("b"), "Cannot use"),
        (c("n").map_elements(odd, return_dtype=pl.Boolean), "Cannot use"),
        (c("n").sum() > 1, "Cannot use"),
        (c("s").str.contains("a.b"), "Cannot use"),
        (c("d").dt.year() == 2026, "Cannot use"),
        (c("zzz") == 1, "Unknown column 'zzz'"),
        (f("zzz") == 1, "Unknown column 'zzz'|Cannot use"),
        (c("n") == "x", "'x'"),
        (f("n") == 1.5, "1.5"),
        (c("n") == pl.lit(None), "compared with null"),
        (pc.field(0) == 1, "Cannot use"),
        (c("n") == float("nan"), "NaN and infinite numbers"),
        (c("n") < float("inf"), "NaN and infinite numbers"),
        (c("n") == pl.lit(float("-inf"), pl.Float32), "NaN and infinite numbers"),
        (c("n").is_between(0, float("inf")), "NaN and infinite numbers"),
        (c("n") == dt.time(0), "Cannot use"),
        (c("n") == dt.timedelta(0), "Cannot use"),
        (c("n").eq_missing(1), "Cannot use"),
        (c("n") == pl.Series([1]), "Cannot use"),
        (f("s").is_null(nan_is_null=True), "Cannot use"),
        (f("t") > pa.scalar(2**62, pa.timestamp("us", "UTC")), "Cannot use"),
        (f("t").isin(pa.array([2**62], pa.timestamp("us", "UTC"))), "Cannot use"),
        (f("s") == pa.array([b"\xff"]).cast(pa.string(), safe=False)[0], "Cannot use"),
        (c("t") > pl.lit(2**62, dtype=pl.Datetime("us")), "Cannot use"),
        (c("d") == pl.lit(10**9).cast(pl.Date), "Cannot use"),
        (5, "not a condition"),
        (object(), "not a condition"),
    ],
)
def test_expressions_that_cannot_be_read_exactly_are_refused(
    visits: lakebed.Dataset, expression: Any, message: str
) -> None:
    with pytest.raises(PredicateError, match=message):
        visits.where(expression)


class TestArguments:
    """No argument of a part is left out of account: each is read, or refused by name."""

    FORMS = (
        c("n") == 1,
        ~(c("n") != 1),
        c("n").is_in([1]),
        c("n").is_between(1, 2),
        c("s").str.contains("a", literal=True),
        c("s").str.starts_with("a"),
    )

    @pytest.mark.parametrize("form", FORMS, ids=str)
    def test_each_part_of_polars_refuses_an_argument_that_is_not_read(self, form: pl.Expr) -> None:
        document = json.loads(form.meta.serialize(format="json"))
        check_parts(document, form)

        for parts in _parts_of(document):
            for name, part in parts.items():
                if name in READ_PARTS and isinstance(part, dict):
                    part["other"] = 1
                    with pytest.raises(PredicateError, match=f"other of {name}"):
                        check_parts(document, form)
                    del part["other"]

    @pytest.mark.parametrize("closed", ["both", "left", "right", "none"])
    def test_the_ends_of_between_are_read(self, visits: lakebed.Dataset, closed: Any) -> None:
        form = c("n").is_between(1, 3, closed=closed)

        assert visits.where(form).arrow()["n"].to_pylist() == (
            pl.DataFrame(ROWS).filter(form)["n"].to_list()
        )

    @pytest.mark.parametrize("function", sorted(READ_OPTIONS))
    def test_each_function_of_arrow_refuses_an_option_that_is_not_read(self, function: str) -> None:
        call = CallNode(function, (FieldNode("s"),), {"other": pa.scalar(1)})

        with pytest.raises(PredicateError, match=f"other of {function}"):
            check_options(CallNode("invert", (call,), {}), f("s") == "a")

    @pytest.mark.parametrize("way", range(4))
    def test_ways_to_match_null_in_a_list_are_read_or_refused(self, way: int) -> None:
        options = {
            "value_set": pa.scalar(["B", None]),
            "null_matching_behavior": pa.scalar(way, pa.uint32()),
        }
        call = CallNode("is_in", (FieldNode("s"),), options)
        wanted = {0: "s IN ('B') OR s IS NULL", 1: "s IN ('B')"}

        if way in wanted:
            assert bind(read_node(call, f("s")), TYPES) == parse_sql(wanted[way], TYPES)
        else:
            with pytest.raises(PredicateError, match="is_in"):
                read_node(call, f("s"))


def _parts_of(document: Any) -> Iterator[dict[str, Any]]:
    for part in document.values() if isinstance(document, dict) else document:
        if isinstance(part, dict | list):
            yield from _parts_of(part)
    if isinstance(document, dict):
        yield document


@pytest.mark.parametrize(
    "form",
    [
        c("x").is_nan(),
        ~c("x").is_nan(),
        c("x").is_not_nan(),
        c("x").is_in([float("nan"), 1.0]),
        c("x").is_in([float("inf")]),
        ~c("x").is_in([float("-inf"), None]),
        c("x").is_in([1.0], nulls_equal=True),
        ~c("x").is_in([1.0], nulls_equal=True),
        ~c("x").is_in([1.0, None], nulls_equal=True),
        c("x") > 1,
    ],
    ids=str,
)
def test_nan_infinity_and_null_are_those_of_polars(form: pl.Expr) -> None:
    rows = pl.DataFrame({"k": range(6), "x": [1.0, math.nan, math.inf, -math.inf, None, 2.5]})
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    repository.write("numbers", rows)

    found = repository["numbers"].where(form).arrow()["k"].to_pylist()

    assert found == rows.filter(form)["k"].to_list()


@pytest.mark.parametrize("parameters", [[1], {"n": 1}])
def test_parameters_beside_an_expression_are_refused(
    visits: lakebed.Dataset, parameters: object
) -> None:
    with pytest.raises(PredicateError, match="Only SQL text has parameters"):
        visits.where(f("n") == 1, parameters)


TYPES = {"n": Primitive(Kind.LONG), "s": Primitive(Kind.STRING)}


@given(predicates({"n": [0, 1, 5], "s": ["", "a", "aB", "ç%"]}, max_leaves=4))
def test_arrow_expression_of_a_predicate_is_read_back_as_what_selects_the_same(predicate: Any):
    expression = to_arrow_expression(predicate, TYPES)
    try:
        again = exact_predicate(expression, TYPES)
    except PredicateError:
        return  # such as a cast, or the lower case that ILIKE compares
    rows = pa.table({"n": [0, 1, 5, None] * 5, "s": ["", "a", "aB", "ç%", None] * 4})

    assert rows.filter(to_arrow_expression(again, TYPES)).equals(rows.filter(expression))


def test_parameters_and_patterns_reach_rows(visits: lakebed.Dataset) -> None:
    assert visits.where("n IN ? AND s LIKE ?", [[0, 1], "a%"]).count() == 2
    assert visits.where("s LIKE :s", {"s": r"a\%%"}).arrow()["n"].to_pylist() == [1]
    assert visits.where("upper(s) = 'AB' OR lower(s) = 'b'").arrow()["n"].to_pylist() == [0, 2]
    assert visits.where("s ILIKE 'Ç'").count() == 1
    assert visits.where("s NOT LIKE '%b'").arrow()["n"].to_pylist() == [2, 4]


def test_lower_case_is_arrows_for_every_letter_that_python_knows() -> None:
    letters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    arrow = pc.utf8_lower(pa.array(letters)).to_pylist()

    # Arrow's table of letters may be of another version of Unicode.
    differing = [
        (letter, lower_case(letter), other)
        for letter, other in zip(letters, arrow, strict=True)
        if lower_case(letter) not in (letter, other)
    ]

    assert differing == []


@pytest.mark.parametrize(
    ("text", "pattern", "is_fit"),
    [
        ("a\nb", "a_b", True),
        ("😀", "_", True),
        ("ab", "a_b", False),
        ("", "%", True),
        ("%", r"\%", True),
    ],
)
def test_patterns_fit_whole_texts_by_character(text: str, pattern: str, is_fit: bool) -> None:
    assert fits(text, pattern) is is_fit
    assert pc.match_like(pa.array([text]), pattern).to_pylist() == [is_fit]
