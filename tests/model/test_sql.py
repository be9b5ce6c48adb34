"""Predicates from SQL text."""

import datetime as dt
import decimal
import math

import pytest
import sqlglot
import time_machine
from hypothesis import given
from hypothesis import strategies as st
from strategies import leaves_of

from lakebed.errors import PredicateError
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Formula,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    all_of,
    any_of,
    bind,
)
from lakebed.model.schema import Decimal, Kind, ListOf, Primitive
from lakebed.model.sql_predicates import READ_ARGUMENTS, check_arguments, parse_sql

TYPES = {
    "b": Primitive(Kind.BOOLEAN),
    "i": Primitive(Kind.INT),
    "n": Primitive(Kind.LONG),
    "u": Primitive(Kind.UNSIGNED_LONG),
    "f": Primitive(Kind.FLOAT),
    "x": Primitive(Kind.DOUBLE),
    "s": Primitive(Kind.STRING),
    "raw": Primitive(Kind.BYTES),
    "d": Primitive(Kind.DATE),
    "t": Primitive(Kind.TIMESTAMP),
    "w": Primitive(Kind.TIMESTAMP_NTZ),
    "q": Decimal(5, 2),
    "tags": ListOf(Primitive(Kind.STRING)),
    "select": Primitive(Kind.STRING),
    "3e5": Primitive(Kind.LONG),
}
N5 = Comparison("n", Op.EQ, 5)
T0 = dt.datetime(2013, 6, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("n = 5", N5),
        ("n == 5", N5),
        ("n=5", N5),
        ("(n) = (5)", N5),
        ("5 = n", N5),
        ("`n` = 5", N5),
        ("n = +5", N5),
        ("n != 5", Comparison("n", Op.NE, 5)),
        ("n <> 5", Comparison("n", Op.NE, 5)),
        ("n < -5", Comparison("n", Op.LT, -5)),
        ("-5 < n", Comparison("n", Op.GT, -5)),
        ("5 >= n", Comparison("n", Op.LE, 5)),
        ("u = 18446744073709551615", Comparison("u", Op.EQ, 2**64 - 1)),
        ("x > 1", Comparison("x", Op.GT, 1.0)),
        ("x > -1.5e-7", Comparison("x", Op.GT, -1.5e-7)),
        ("x = 'Inf'", Comparison("x", Op.EQ, math.inf)),
        ("f = 0.1", Comparison("f", Op.EQ, 0.10000000149011612)),
        ("q = 1.5", Comparison("q", Op.EQ, decimal.Decimal("1.50"))),
        ("q IN (1, -2.25)", Membership("q", (decimal.Decimal(1), decimal.Decimal("-2.25")))),
        ("s = 'UA'", Comparison("s", Op.EQ, "UA")),
        ('s = "UA"', Comparison("s", Op.EQ, "UA")),
        (r"s = 'it\'s'", Comparison("s", Op.EQ, "it's")),
        ("s = '5'", Comparison("s", Op.EQ, "5")),
        ("raw = X'00ff'", Comparison("raw", Op.EQ, b"\x00\xff")),
        ("d = '2013-06-01'", Comparison("d", Op.EQ, dt.date(2013, 6, 1))),
        ("d = DATE '2013-06-01'", Comparison("d", Op.EQ, dt.date(2013, 6, 1))),
        ("t = '2013-06-01'", Comparison("t", Op.EQ, T0)),
        ("t = DATE '2013-06-01'", Comparison("t", Op.EQ, T0)),
        ("t = TIMESTAMP '2013-06-01 00:00:00'", Comparison("t", Op.EQ, T0)),
        ("t = CAST('2013-06-01' AS TIMESTAMP)", Comparison("t", Op.EQ, T0)),
        ("t = '2013-06-01T02:00:00+02:00'", Comparison("t", Op.EQ, T0)),
        (
            "w = TIMESTAMP_NTZ '2013-06-01 00:00:00'",
            Comparison("w", Op.EQ, dt.datetime(2013, 6, 1)),
        ),
        ("b", Comparison("b", Op.EQ, value=True)),
        ("NOT b", Comparison("b", Op.NE, value=True)),
        ("b = FALSE", Comparison("b", Op.EQ, value=False)),
        ("b IS TRUE", And((Comparison("b", Op.EQ, value=True), NullCheck("b", negated=True)))),
        ("b IS NOT TRUE", Or((Comparison("b", Op.NE, value=True), NullCheck("b")))),
        ("n IS NULL", NullCheck("n")),
        ("n IS NOT NULL", NullCheck("n", negated=True)),
        ("NOT n IS NULL", NullCheck("n", negated=True)),
        ("tags IS NULL", NullCheck("tags")),
        ("n IN (5)", Membership("n", (5,))),
        ("n IN (5, 6, 5)", Membership("n", (5, 6))),
        ("n NOT IN (5, 6)", Membership("n", (5, 6), negated=True)),
        ("n BETWEEN 1 AND 5", And((Comparison("n", Op.GE, 1), Comparison("n", Op.LE, 5)))),
        ("n NOT BETWEEN 1 AND 5", Or((Comparison("n", Op.LT, 1), Comparison("n", Op.GT, 5)))),
        ("n = 5 AND b", And((N5, Comparison("b", Op.EQ, value=True)))),
        (
            "n = 5 OR b AND s = 'a'",
            Or((N5, And((Comparison("b", Op.EQ, value=True), Comparison("s", Op.EQ, "a"))))),
        ),
        ("NOT (n = 5 OR s < 'a')", And((Comparison("n", Op.NE, 5), Comparison("s", Op.GE, "a")))),
        ("TRUE", TRUE),
        ("NOT TRUE", FALSE),
        ("n = 5 AND TRUE", N5),
        ("n = 5 -- five", N5),
        ("`select` = 'a'", Comparison("select", Op.EQ, "a")),
        ("`3e5` = 1", Comparison("3e5", Op.EQ, 1)),
    ],
)
def test_text_is_read(text: str, predicate: Predicate) -> None:
    assert parse_sql(text, TYPES) == predicate


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Cannot read"),
        ("   ", "Cannot read"),
        ("n =", "Cannot read"),
        ("n = 5 AND", "Cannot read"),
        ("n = 5; DROP TABLE x", "Cannot read"),
        ("SELECT 1", "Cannot"),
        ("(" * 5000 + "b" + ")" * 5000, "Cannot read"),
        ("nn = 5", "Unknown column 'nn'.*Did you mean"),
        ("x.n = 5", "Unknown column 'x.n'"),
        ("lower(s) = 'A'", "never true.*ILIKE"),
        ("upper(s) = 'a'", "never true.*'A'"),
        ("s LIKE n", "needs a text"),
        (r"s LIKE 'a\\'", "ends with a backslash"),
        ("s LIKE 'a' ESCAPE '!!'", "Cannot compute"),
        ("t > now() - 7", "Cannot compute"),
        ("t > now() - INTERVAL 1.5 DAY", "Cannot read the interval"),
        ("t > now() - INTERVAL '1' FORTNIGHT", "Cannot read"),
        ("t > now() - INTERVAL 9999 YEARS", "outside the years"),
        ("n > current_date", "Cannot compute"),
        ("n = ?", "has 1 parameter.*and 0 were given"),
        ("n = :x", "no parameter 'x'"),
        ("n IN (SELECT 1)", "Cannot use"),
        ("n IN ()", "Cannot"),
        ("n = 'five'", "does not fit"),
        ("n = DATE '2013-06-01'", "Cannot compute"),
        ("n < 5 < 6", "Cannot compute"),
        ("n", "used as a condition"),
        ("n = NULL", "IS NULL"),
        ("d = 5", "does not fit"),
        ("b = 1", "does not fit"),
        ("d = '2013-02-30'", "not a valid date.*2013-06-01"),
        ("t = 'yesterday'", "not a valid timestamp"),
        ("tags = 'a'", "does not fit"),
        ("s = DE", "neither a literal nor a column.*single quotes, as in \"s = 'DE'\""),
        ("s IN (DE, 'FR')", "single quotes"),
        ("d >= yesterday", "Put text into single quotes"),
        ("n = five", "neither a literal nor a column"),
        ("DE = s", "neither a literal nor a column.*single quotes"),
        ("FR != DE", "Unknown column 'FR'"),
        ("d = 2013-06-01", "quotes: '2013-06-01'"),
        ("t BETWEEN 2013-06-01 AND 2013-7-1", "quotes: '2013-06-01'"),
        ("s IN (2013-06-01)", "quotes: '2013-06-01'"),
        ("d = 2013-06", "Cannot compute"),
        ("s = 'it", "a quote is not closed"),
        ("n = 5 AND", "incomplete or wrong near 'AND'"),
        ("d = " + "9" * 5000, "does not fit column 'd'"),
        ("n = " + "9" * 5000, "not a valid long"),
        ("x = " + "9" * 5000, "does not fit"),
    ],
)
def test_text_that_is_no_predicate_says_why(text: str, message: str) -> None:
    with pytest.raises(PredicateError, match=message) as caught:
        parse_sql(text, TYPES)

    assert caught.value.hint
    assert len(str(caught.value)) < 1000
    assert "sqlglot" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "n = i",
        "n + 1 = 5",
        "lower(n) = 'a'",
        "lower(s) < 'a'",
        "n LIKE 'a%'",
        "d > now()",
        "s <=> 'a'",
        "n = CAST(5.7 AS INT)",
        "s = CAST(5 AS STRING)",
        "n IN (1, NULL)",
        "n = '5'",
        "n = 1e5",
        "s = 5",
        "s = 1e5",
        "b = 'true'",
        "x = '1.5'",
        "f = 1e300",
        "q = 1.234",
        "d = TIMESTAMP '2013-06-01 12:00:00'",
        "t = '2013-06-01T00:00:00.0000001'",
        "w = '2013-06-01T00:00:00Z'",
        "raw = X'0'",
        "raw = 'a'",
        "n = 2013-06-01",
        "5 = 5",
        "s LIKE ANY ('a', 'b')",
        "n = 1L",
        "s ILIKE 'a_%'",
        "lower(s) = 'a_b'",
        "'A' = upper(s)",
        "upper(s) LIKE 'A%'",
        "lower(s) IN ('a', 'b')",
    ],
)
def test_any_expression_is_a_formula(text: str) -> None:
    """It is computed for each row, and may be negated."""
    formula = parse_sql(text, TYPES)

    assert isinstance(formula, Formula)
    assert set(formula.columns) <= set(TYPES)
    assert isinstance(parse_sql(f"NOT ({text})", TYPES), Formula)
    assert parse_sql(str(formula), TYPES) == formula


def test_a_fraction_beside_whole_numbers_is_a_whole_number() -> None:
    assert parse_sql("n = 5.0", TYPES) == parse_sql("n = 5", TYPES)
    assert parse_sql("n > 1.5", TYPES) == parse_sql("n > 1", TYPES)
    assert parse_sql("n >= 1.5", TYPES) == parse_sql("n >= 2", TYPES)
    assert parse_sql("n <= -1.5", TYPES) == parse_sql("n <= -2", TYPES)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("levensteinn(s, 'a') = 1", "Did you mean"),
        ("n > d", "compute it in Spark"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_sql(text, TYPES)

    assert hint in caught.value.hint


PREFIX = And((Comparison("s", Op.GE, "N7"), Comparison("s", Op.LT, "N8")))


@pytest.mark.parametrize(
    ("text", "predicate"),
    [
        ("s LIKE 'N7%'", PREFIX),
        ("startswith(s, 'N7')", PREFIX),
        ("s LIKE 'N7'", Comparison("s", Op.EQ, "N7")),
        ("s LIKE 'N7%x'", And((*PREFIX.parts, Like("s", "N7%x")))),
        ("s LIKE '%'", Like("s", "%")),
        ("s NOT LIKE '%a'", Like("s", "%a", negated=True)),
        ("NOT s LIKE '%a'", Like("s", "%a", negated=True)),
        (r"s LIKE '%50\\%'", Like("s", r"%50\%")),
        ("s LIKE '%50!%' ESCAPE '!'", Like("s", r"%50\%")),
        ("endswith(s, 'a_')", Like("s", r"%a\_")),
        ("contains(s, '%')", Like("s", r"%\%%")),
    ],
)
def test_patterns_are_comparisons_as_far_as_they_can_be(text: str, predicate: Predicate) -> None:
    assert parse_sql(text, TYPES) == predicate
    assert parse_sql(str(predicate), TYPES) == predicate


NOW = dt.datetime(2026, 3, 31, 12, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("t > now()", NOW),
        ("t > current_timestamp", NOW),
        ("t > current_timestamp() - INTERVAL '1' HOUR", NOW - dt.timedelta(hours=1)),
        ("t > now() - INTERVAL '1 day 2 hours'", NOW - dt.timedelta(days=1, hours=2)),
        ("t > INTERVAL 5 MINUTES + now()", NOW + dt.timedelta(minutes=5)),
        ("t > current_date", dt.datetime(2026, 3, 31, tzinfo=dt.UTC)),
        ("w > now()", NOW.replace(tzinfo=None)),
        ("d > current_date", NOW.date()),
        ("d > current_date() - 7", dt.date(2026, 3, 24)),
        ("d > date_sub(current_date, 7)", dt.date(2026, 3, 24)),
        ("d > date_add(DATE '2026-03-01', 7)", dt.date(2026, 3, 8)),
        ("d > current_date - INTERVAL 1 MONTH", dt.date(2026, 2, 28)),
        ("d > DATE '2024-02-29' + INTERVAL 1 YEAR", dt.date(2025, 2, 28)),
        ("d > current_date - INTERVAL '2' WEEKS - INTERVAL 1 DAY", dt.date(2026, 3, 16)),
        ("t > TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '90' SECOND", "2026-01-01 00:01:30"),
    ],
)
def test_moments_are_computed_at_the_time_of_the_call(text: str, value: object) -> None:
    if isinstance(value, str):
        value = dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC)

    with time_machine.travel(NOW, tick=False):
        predicate = parse_sql(text, TYPES)

    assert predicate == Comparison(text[0], Op.GT, value)


@pytest.mark.parametrize(
    ("text", "parameters", "predicate"),
    [
        ("n = ?", [5], N5),
        ("n = :n", {"n": 5}, N5),
        ("n = :n OR i = :n", {"n": 5}, Or((N5, Comparison("i", Op.EQ, 5)))),
        ("n IN ?", [[5, 6]], Membership("n", (5, 6))),
        ("n IN (?)", [(5, 6)], Membership("n", (5, 6))),
        ("n IN (?, 7, ?)", [5, [6]], Membership("n", (5, 7, 6))),
        ("n IN ?", [[]], FALSE),
        ("n NOT IN ?", [{5}], Membership("n", (5,), negated=True)),
        ("s = ?", ["it's; DROP"], Comparison("s", Op.EQ, "it's; DROP")),
        ("s LIKE ?", ["%a"], Like("s", "%a")),
        ("t >= ?", [T0], Comparison("t", Op.GE, T0)),
        ("t >= ?", ["2013-06-01"], Comparison("t", Op.GE, T0)),
        ("n BETWEEN ? AND ?", [1, 2], And((Comparison("n", Op.GE, 1), Comparison("n", Op.LE, 2)))),
        ("s = '?' AND n = ?", [5], And((Comparison("s", Op.EQ, "?"), N5))),
    ],
)
def test_parameters_stand_for_values(text: str, parameters: object, predicate: Predicate) -> None:
    assert parse_sql(text, TYPES, parameters) == predicate


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("n = ?", [1, 2], "has 1 parameter of the form `[?]`, and 2 were given"),
        ("n = 1", [1], "has 0 parameters"),
        ("n = ?", {"n": 1}, "has 1 parameter"),
        ("n = :n", [1], "no parameter 'n'"),
        ("n = :n", {"n": 1, "m": 2}, "parameter 'm' does not stand in"),
        ("n = :number", {"numbr": 1}, "no parameter 'number'.*Did you mean 'numbr'"),
        ("n = ?", [None], "compared with NULL"),
        ("n = ?", ["5"], "'5'"),
        ("n IN ?", [[None]], "compared with NULL"),
        ("n = ?", "5", "The parameters of"),
        ("n = ?", 5, "The parameters of"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    text: str, parameters: object, message: str
) -> None:
    with pytest.raises(PredicateError, match=message):
        parse_sql(text, TYPES, parameters)


VALUES = {
    Kind.BOOLEAN: st.booleans(),
    Kind.INT: st.integers(-(2**31), 2**31 - 1),
    Kind.LONG: st.integers(-(2**63), 2**63 - 1),
    Kind.UNSIGNED_LONG: st.integers(0, 2**64 - 1),
    Kind.FLOAT: st.floats(width=32, allow_nan=False),
    Kind.DOUBLE: st.floats(allow_nan=False),
    Kind.STRING: st.text(st.characters(codec="utf-8"), max_size=10),
    Kind.BYTES: st.binary(max_size=5),
    Kind.DATE: st.dates(),
    Kind.TIMESTAMP: st.datetimes(timezones=st.just(dt.UTC)),
    Kind.TIMESTAMP_NTZ: st.datetimes(),
}
WORDS = st.sampled_from(
    """
    all and any array between boolean by case cast current_date date day delete desc distinct div
    end exists false filter for from group having hour if in index int interval is key left like
    limit map merge minute month not null on option or order over partition range right row select
    set struct table then time timestamp to true type union unique unnest update use using values
    view when where window with year nan inf x b r n 1 1e5 2d 3foo 0x1f 5l _ __
    """.split()
)
NAMES = st.from_regex(r"[A-Za-z0-9_]{1,6}", fullmatch=True) | WORDS | WORDS.map(str.upper)
DECIMAL = Decimal(9, 3)


@st.composite
def bound_predicates(draw) -> tuple[Predicate, dict]:
    kinds = st.sampled_from(Kind).map(Primitive) | st.just(DECIMAL)
    types = draw(st.dictionaries(NAMES, kinds, min_size=1, max_size=4))

    def value_of(name: str) -> st.SearchStrategy:
        if types[name] == DECIMAL:
            return st.decimals(-999, 999, places=3)
        return VALUES[types[name].kind]

    tree = st.recursive(
        st.sampled_from(sorted(types)).flatmap(lambda name: leaves_of(name, value_of(name))),
        lambda inner: (
            st.lists(inner, max_size=3).map(all_of) | st.lists(inner, max_size=3).map(any_of)
        ),
        max_leaves=6,
    )
    return bind(draw(tree), types), types


@given(bound_predicates())
def test_predicate_survives_its_text(pair: tuple[Predicate, dict]) -> None:
    predicate, types = pair

    assert parse_sql(str(predicate), types) == predicate


def test_nan_survives_its_text() -> None:
    predicate = parse_sql("x = 'NaN'", TYPES)

    assert math.isnan(parse_sql(str(predicate), TYPES).value)


@pytest.mark.parametrize("negated", [False, True])
def test_text_of_an_empty_list_is_read_back_as_what_it_selects(negated: bool) -> None:
    empty = Membership("n", (), negated=negated)

    for predicate in (empty, And((empty, Comparison("n", Op.GT, 1)))):
        assert parse_sql(str(predicate), TYPES) == bind(predicate, TYPES)


class TestArguments:
    """No argument of a node is left out of account: each is read, or refused by name."""

    @pytest.mark.parametrize("name", sorted(READ_ARGUMENTS))
    def test_each_node_refuses_an_argument_that_is_not_read(self, name: str) -> None:
        kind = getattr(sqlglot.exp, name)
        for argument in kind.arg_types.keys() - READ_ARGUMENTS[name]:
            this = "0a" if kind is sqlglot.exp.HexString else sqlglot.exp.to_identifier("n")
            node = kind(this=this)
            if "to" in READ_ARGUMENTS[name]:
                node.set("to", sqlglot.exp.DataType.build("int"))
            node.set(argument, sqlglot.exp.Literal.number(1))
            with pytest.raises(PredicateError, match="is not supported"):
                check_arguments(sqlglot.exp.Not(this=node), "the text")

    @pytest.mark.parametrize(
        "text",
        [
            "current_timestamp(3) > t",
            "current_date('UTC') > d",
            "t > now(0)",
            "n = CAST('5' AS INT FORMAT '9')",
            "t > CAST('2013-06-01 12:30:00.5' AS TIMESTAMP(0))",
            "t > current_date - INTERVAL '1' YEAR TO MONTH",
            "n IN (SELECT 1)",
            "n IN UNNEST(tags)",
            "s = 'a' COLLATE UNICODE_CI",
            "EXISTS (SELECT 1)",
        ],
    )
    def test_forms_with_arguments_of_their_own_are_refused(self, text: str) -> None:
        with pytest.raises(
            PredicateError, match=r"Cannot|not computed without Spark|is not a type"
        ):
            parse_sql(text, TYPES)

    @pytest.mark.parametrize(
        ("text", "same"),
        [
            ("n BETWEEN SYMMETRIC 3 AND 1", "n BETWEEN 3 AND 1 OR n BETWEEN 1 AND 3"),
            ("n NOT BETWEEN SYMMETRIC 3 AND 1", "NOT (n BETWEEN 3 AND 1 OR n BETWEEN 1 AND 3)"),
            ("s NOT LIKE 'a%'", "NOT s LIKE 'a%'"),
            ("b IS NOT TRUE", "NOT b IS TRUE"),
            ("n IS NOT NULL", "NOT n IS NULL"),
        ],
    )
    def test_arguments_are_read(self, text: str, same: str) -> None:
        assert parse_sql(text, TYPES) == parse_sql(same, TYPES)


@pytest.mark.parametrize(
    "literal",
    [
        "CAST('2013-06-01 12:30:00' AS DATE)",
        "'2013-06-01T12:30:00.25' :: DATE",
        "DATE '2013-06-01 12:30'",
        "DATE('2013-06-01 23:30:00-05:00')",
        "DATE '2013-05-31 23:59' + 1",
        "date_sub(DATE '2013-06-02 01:00', 1)",
        "TIMESTAMP '2013-06-01'",
    ],
)
@pytest.mark.parametrize("column", ["t", "w", "d"])
def test_a_date_keeps_no_time(column: str, literal: str) -> None:
    assert parse_sql(f"{column} < {literal}", TYPES) == parse_sql(f"{column} < '2013-06-01'", TYPES)


@pytest.mark.parametrize("literal", ["DATE '2013-06-01 25:00'", "DATE '2013-06-01 noon'"])
def test_a_date_with_something_else_behind_it_is_refused(literal: str) -> None:
    with pytest.raises(PredicateError, match="not a valid"):
        parse_sql(f"t < {literal}", TYPES)
