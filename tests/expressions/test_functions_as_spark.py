"""Each function gives what Spark gives, on values at the edges of their types."""

import re
from typing import Any

import pytest
from function_calls import CALLS
from nasty_rows import COLUMNS, TYPES
from spark_values import RAISES, Answers, ask_lakebed, ask_spark, same

from lakebed.errors import PredicateError
from lakebed.model.formulas.compiler import compiled
from lakebed.model.formulas.functions import FUNCTIONS, NOTES, REFUSED
from lakebed.model.formulas.functions_numbers import NEARLY

pytestmark = pytest.mark.since_spark("4.3", "the functions are those of this release")

_NEARLY = {name for name, note in NOTES.items() if note == NEARLY}
_MAPS = re.compile(r"map|transform_keys|str_to_map")
# What is called by another syntax.
_SIGNS = {"||": "||", "[]": "[", "~": "~", "<<": "<<", ">>": ">>", "position": "position("}


def _called(call: str) -> set[str]:
    names = {name.lower() for name in re.findall(r"(\w+)\(", call)}
    return names | set(re.findall(r" (rlike) ", call))


@pytest.fixture(scope="module")
def ours() -> dict[str, Answers]:
    return ask_lakebed(CALLS, COLUMNS, TYPES)


@pytest.fixture(scope="module")
def theirs(spark: Any, ours: dict[str, Answers]) -> dict[str, Answers]:
    alone = {
        text: [row for row, value in enumerate(answers.values) if value == RAISES]
        for text, answers in ours.items()
        if _MAPS.match(text)
    }
    return ask_spark(spark, CALLS, COLUMNS, alone)


def test_values_are_those_of_spark(ours: dict[str, Answers], theirs: dict[str, Answers]) -> None:
    wrong = []
    for call in CALLS:
        nearly = bool(_called(call) & _NEARLY)
        for row, (one, other) in enumerate(
            zip(ours[call].values, theirs[call].values, strict=True)
        ):
            if not same(one, other, nearly=nearly):
                inputs = {
                    name: column[row].as_py()
                    for name, column in COLUMNS.items()
                    if re.search(rf"\b{re.escape(name)}\b", call) and "ts" not in name
                }
                wrong.append(f"{call} of {inputs}: {one!r}, Spark has {other!r}")

    assert not wrong, "\n".join(wrong[:400])


def test_types_are_those_of_spark(ours: dict[str, Answers], theirs: dict[str, Answers]) -> None:
    wrong = [
        f"{call}: {ours[call].type}, Spark has {theirs[call].type}"
        for call in CALLS
        if ours[call].type not in ("", theirs[call].type)
    ]

    assert not wrong, "\n".join(wrong[:400])


def test_each_function_is_called_here() -> None:
    called = set().union(*map(_called, CALLS))
    called |= {name for name, sign in _SIGNS.items() if any(sign in call for call in CALLS)}

    assert set(FUNCTIONS) - called == set()


def test_errors_are_among_the_values(ours: dict[str, Answers]) -> None:
    raising = [call for call, answers in ours.items() if RAISES in answers.values]

    assert len(raising) > 50
    assert len(CALLS) == len(set(CALLS))


def test_each_function_of_spark_is_computed_or_refused(spark: Any) -> None:
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect() if row[0][0].isalpha()}
    syntax = {
        "and", "or", "not", "in", "like", "ilike", "between", "case", "when", "cast", "div", "extract",
        "now", "current_date", "current_timestamp", "localtimestamp",
    }  # fmt: skip

    assert names - set(FUNCTIONS) - set(REFUSED) - syntax == set()
    assert set(FUNCTIONS) & set(REFUSED) == set()


@pytest.mark.parametrize(
    "text",
    [
        "s rlike '(?=a)'", "s rlike '(a)\\\\1'", "s rlike 'a++'", "s rlike '\\\\p{L}'", "s rlike '\\\\bx'",
        "s rlike '[a-z&&[^b]]'", "s rlike t", "s rlike '(?m)^a'", "s rlike 'a{1'", "s rlike '('",
        "regexp_replace(s, 'a*', 'b')", "regexp_replace(s, 'a', t)", "regexp_extract(s, 'a', 1)",
        "date_format(ts, 'GGGG')", "date_format(ts, s)", "to_date(s, 'yy-MM-dd')", "to_date(s, 'HH')",
        "trunc(day, s)", "sort_array(array(ai))", "array()", "map(d, 1)", "rand()", "uuid()",
        "exists(ai, x -> 1 / x > 0)", "aggregate(ai, 0, (a, x) -> a + 1.5)", "round(d, i)", "nope(s)",
        "sum(i)", "levenshtein(s, t, k)", "encode(s, 'UTF-16')", "substring(y, 1)", "try_add(1 / i, 2)",
    ],
)  # fmt: skip
def test_what_may_differ_is_refused(text: str) -> None:
    with pytest.raises(PredicateError) as caught:
        compiled(text, tuple(TYPES.items()))

    assert caught.value.hint
