"""The tree of predicates: three-valued logic, binding, and Kartothek's lists."""

import copy
import datetime as dt
import decimal
import math
import pickle

import pytest

from lakebed.errors import PredicateError
from lakebed.model.evaluate import compare, matches
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Or,
    all_of,
    any_of,
    bind,
    columns_of,
    from_dnf,
    negate,
    sql_literal,
    sql_name,
)
from lakebed.model.schema import Decimal, Kind, ListOf, Primitive

TYPES = {
    "n": Primitive(Kind.LONG),
    "x": Primitive(Kind.DOUBLE),
    "s": Primitive(Kind.STRING),
    "t": Primitive(Kind.TIMESTAMP),
    "q": Decimal(5, 2),
    "tags": ListOf(Primitive(Kind.STRING)),
}
N1 = Comparison("n", Op.EQ, 1)
S1 = Comparison("s", Op.EQ, "a")


@pytest.mark.parametrize(
    ("predicate", "value", "expected"),
    [
        (N1, 1, True),
        (N1, 2, False),
        (N1, None, False),
        (negate(N1), None, False),
        (Comparison("n", Op.NE, 1), None, False),
        (Membership("n", (1, 2)), 2, True),
        (Membership("n", (1, 2)), None, False),
        (Membership("n", (1, 2), negated=True), 3, True),
        (Membership("n", (1, 2), negated=True), None, False),
        (Membership("n", ()), 1, False),
        (Membership("n", ()), None, False),
        (Membership("n", (), negated=True), 1, True),
        (Membership("n", (), negated=True), None, True),
        (NullCheck("n"), None, True),
        (NullCheck("n"), 1, False),
        (NullCheck("n", negated=True), 1, True),
        (TRUE, None, True),
        (FALSE, 1, False),
        (And((N1, FALSE)), None, False),
        (negate(And((N1, FALSE))), None, True),
        (negate(And((N1, TRUE))), None, False),
        (Or((N1, TRUE)), None, True),
        (negate(Or((N1, FALSE))), None, False),
    ],
)
def test_unknown_is_not_selected(predicate, value: object, expected: bool) -> None:
    assert matches(predicate, {"n": value}) is expected


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, True],
        [0.0, -0.0, 1.0, math.nan, -math.inf],
        [decimal.Decimal("1.00"), decimal.Decimal("-0.00")],
        ["", "a", "1"],
        [b"", b"a"],
        [dt.date(2013, 1, 1), dt.datetime(2013, 1, 1), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)],
        [dt.datetime(2013, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_value_is_among_those_that_it_equals(values: list) -> None:
    candidates = [*values, *map(copy.copy, values), float("nan"), 0, 1, 3, dt.date(2013, 1, 2)]
    for members in [tuple(values), *((one,) for one in values)]:
        for value in candidates:
            is_among = any(compare(value, Op.EQ, member) for member in members)

            assert matches(Membership("x", members), {"x": value}) is is_among
            assert matches(Membership("x", members, negated=True), {"x": value}) is not is_among


class Counted(str):
    """A text that counts how often it is compared."""

    comparisons = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_long_list_costs_no_comparison_of_each_value() -> None:
    members = Membership("s", tuple(Counted(n) for n in range(1_000)))

    found = [n for n in range(2_000) if matches(members, {"s": str(n)})]

    assert found == list(range(1_000))
    assert Counted.comparisons < 10_000  # one by one it would be more than a million


def test_list_pickles_after_it_was_asked() -> None:
    members = Membership("n", (1, 2))
    assert matches(members, {"n": 2})

    again = pickle.loads(pickle.dumps(members))

    assert (again, hash(again), str(again)) == (members, hash(members), str(members))
    assert matches(again, {"n": 2})


def test_missing_value_is_null() -> None:
    assert matches(NullCheck("n"), {})


@pytest.mark.parametrize(
    ("op", "of_two_nan", "of_nan_and_one", "of_one_and_nan"),
    [
        (Op.EQ, True, False, False),
        (Op.NE, False, True, True),
        (Op.LT, False, False, True),
        (Op.LE, True, False, True),
        (Op.GT, False, True, False),
        (Op.GE, True, True, False),
    ],
)
def test_nan_equals_itself_and_is_the_greatest(
    op: Op, of_two_nan: bool, of_nan_and_one: bool, of_one_and_nan: bool
) -> None:
    assert compare(math.nan, op, math.nan) is of_two_nan
    assert compare(math.nan, op, 1.0) is of_nan_and_one
    assert compare(1.0, op, math.nan) is of_one_and_nan
    assert compare(math.inf, Op.LT, math.nan)


def test_conjunctions_are_flat_and_without_repetition() -> None:
    assert all_of([N1, all_of([S1, N1]), TRUE]) == And((N1, S1))
    assert all_of([N1, N1]) == N1
    assert all_of([N1, FALSE, S1]) == FALSE
    assert all_of([]) == TRUE


def test_disjunctions_are_flat_and_without_repetition() -> None:
    assert any_of([N1, any_of([S1, N1]), FALSE]) == Or((N1, S1))
    assert any_of([N1, N1]) == N1
    assert any_of([N1, TRUE, S1]) == TRUE
    assert any_of([]) == FALSE


@pytest.mark.parametrize(
    "predicate",
    [N1, Membership("n", (1,)), NullCheck("n"), And((N1, S1)), Or((N1, And((S1, NullCheck("n")))))],
)
def test_negation_undoes_itself(predicate) -> None:
    assert negate(negate(predicate)) == predicate


def test_columns_are_named_once_in_order() -> None:
    assert columns_of(Or((S1, And((N1, S1))))) == ("s", "n")


def test_predicate_pickles() -> None:
    predicate = Or((N1, And((S1, Membership("n", (1, 2), negated=True)))))

    assert pickle.loads(pickle.dumps(predicate)) == predicate


# Binding


def test_binding_gives_values_the_form_of_their_column() -> None:
    predicate = And(
        (
            Comparison("x", Op.GT, 1),
            Comparison("t", Op.LT, dt.date(2013, 1, 1)),
            Membership("q", (1, decimal.Decimal("1.00"), decimal.Decimal("2.5"))),
        )
    )

    x, t, q = bind(predicate, TYPES).parts

    assert isinstance(x.value, float)
    assert t.value == dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    assert [str(value) for value in q.values] == ["1.00", "2.50"]


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (Comparison("nn", Op.EQ, 1), "Unknown column 'nn'.*Did you mean 'n'"),
        (Comparison("n", Op.EQ, "1"), r"Value '1' \(str\) does not fit column 'n' of type long"),
        (Comparison("n", Op.EQ, True), "does not fit"),
        (Comparison("n", Op.EQ, None), "does not fit"),
        (Membership("n", (1, 1.5)), "does not fit"),
        (Comparison("q", Op.EQ, decimal.Decimal("1.234")), "does not fit"),
        (Comparison("tags", Op.EQ, "a"), "does not fit"),
    ],
)
def test_binding_refuses_what_does_not_fit(predicate, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        bind(predicate, TYPES)


def test_null_check_takes_a_nested_column() -> None:
    assert bind(NullCheck("tags"), TYPES) == NullCheck("tags")


def test_empty_lists_become_true_and_false() -> None:
    assert bind(Membership("n", ()), TYPES) == FALSE
    assert bind(Membership("n", (), negated=True), TYPES) == TRUE


# Kartothek's lists


@pytest.mark.parametrize(
    ("dnf", "predicate"),
    [
        ([[("n", "==", 1)]], N1),
        ([[("n", "=", 1)]], N1),
        ([(("n", "==", 1), ["s", "==", "a"])], And((N1, S1))),
        ([[("n", "==", 1)], [("s", "==", "a")]], Or((N1, S1))),
        ([[("n", "!=", 1)]], Comparison("n", Op.NE, 1)),
        ([[("n", "<", 1)]], Comparison("n", Op.LT, 1)),
        ([[("n", "<=", 1)]], Comparison("n", Op.LE, 1)),
        ([[("n", ">", 1)]], Comparison("n", Op.GT, 1)),
        ([[("n", ">=", 1)]], Comparison("n", Op.GE, 1)),
        ([[("n", "in", [1, 2])]], Membership("n", (1, 2))),
        ([[("n", "in", {1})]], Membership("n", (1,))),
        ([[("n", "not in", (1, 2))]], Membership("n", (1, 2), negated=True)),
        ([[("n", "==", None)]], NullCheck("n")),
        ([[("n", "!=", None)]], NullCheck("n", negated=True)),
        ([[("n", "in", [1, None])]], Or((Membership("n", (1,)), NullCheck("n")))),
        (
            [[("n", "not in", [1, None])]],
            And((Membership("n", (1,), negated=True), NullCheck("n", negated=True))),
        ),
    ],
)
def test_lists_are_an_or_of_ands(dnf, predicate) -> None:
    assert from_dnf(dnf) == predicate


@pytest.mark.parametrize(
    ("dnf", "message"),
    [
        ([], "empty"),
        ([[]], "empty"),
        ([[("n", "==", 1)], []], "empty"),
        ("n == 1", "Malformed"),
        (5, "Malformed"),
        (None, "Malformed"),
        ({"n": 1}, "Malformed"),
        ([5], "Malformed"),
        (["n == 1"], "Malformed"),
        ([[("n", "==")]], "Malformed"),
        ([["n"]], "Malformed"),
        ([[(5, "==", 1)]], "Malformed"),
        ([[("n", "===", 1)]], "Unknown operator '==='.*== = != <"),
        ([[("n", ["=="], 1)]], "Unknown operator"),
        ([[("n", "<", None)]], "Null has no order"),
        ([[("n", "in", 1)]], "needs a list"),
        ([[("s", "in", "abc")]], "needs a list"),
    ],
)
def test_malformed_lists_are_refused(dnf, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        from_dnf(dnf)


# Text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "-5"),
        (1.5, "1.5"),
        (math.nan, "'nan'"),
        (-math.inf, "'-inf'"),
        (decimal.Decimal("1E+2"), "100"),
        (b"\x00\xff", "X'00ff'"),
        ("it's a \\", "'it\\'s a \\\\'"),
        (dt.date(2013, 1, 2), "'2013-01-02'"),
        (dt.datetime(2013, 1, 2, tzinfo=dt.UTC), "'2013-01-02 00:00:00+00:00'"),
    ],
)
def test_literal_is_sql_in_sparks_dialect(value, text: str) -> None:
    assert sql_literal(value) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [("carrier", "carrier"), ("3x", "`3x`"), ("Select", "`Select`"), ("a`", "`a```")],
)
def test_name_is_quoted_where_it_must_be(name: str, text: str) -> None:
    assert sql_name(name) == text


def test_predicate_prints_as_sql() -> None:
    predicate = Or((N1, And((S1, Membership("n", (1, 2), negated=True))), NullCheck("s")))

    assert str(predicate) == "n = 1 OR (s = 'a' AND n NOT IN (1, 2)) OR s IS NULL"
    assert (str(TRUE), str(FALSE)) == ("TRUE", "FALSE")
