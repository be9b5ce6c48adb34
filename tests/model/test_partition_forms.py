"""The forms of the partition functions: short text, Kite's JSON, and `lakebed.by`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import by
from lakebed.errors import PartitionSpecError
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Field, Kind, Primitive, Schema

DOCUMENT = [
    {"type": "provided", "name": "release", "values": "int"},
    {"type": "hash", "source": "user", "name": "user_hash", "buckets": 16},
    {"type": "range", "source": "user", "name": "user_range", "size": 100},
    {"type": "month", "source": "seen", "name": "month"},
    {"type": "dateFormat", "source": "seen", "name": "stamp", "format": "yyyy 'o''clock'"},
    {"type": "range", "source": "user", "name": "user_bound", "bounds": [5, 10]},
    {"type": "range", "source": "city", "name": "city_bound", "bounds": ["g", "it's", "z\\~"]},
    {"type": "values", "source": "user", "name": "user_set", "sets": [[7, 14], [11]]},
    {"type": "values", "source": "city", "name": "city_set", "sets": [["a, b", ""], ["c'"]]},
    {"type": "year", "source": "position.seen", "name": "y", "unit": "s"},
]


def test_behaviour_39_every_function_survives_json_and_text() -> None:
    strategy = PartitionStrategy.from_document(DOCUMENT)

    assert strategy.to_document() == DOCUMENT
    assert PartitionStrategy.from_json(strategy.to_json()) == strategy
    assert PartitionStrategy.parse(str(strategy)) == strategy


def test_kites_own_example_is_read() -> None:
    text = """
    [ {"type": "provided", "name": "release", "values": "int"},
      {"type": "hash", "source": "user", "buckets": 16},
      {"type": "range", "source": "user", "size": 100},
      {"type": "month", "source": "seen"},
      {"type": "dateFormat", "source": "seen", "name": "stamp", "format": "yyyyMMdd"} ]
    """

    assert PartitionStrategy.from_json(text) == PartitionStrategy(
        (
            by.provided("release", "int"),
            by.hash("user", 16),
            by.fixed_range("user", 100),
            by.month("seen"),
            by.date_format("seen", "yyyyMMdd", name="stamp"),
        )
    )


def test_default_names_are_kites() -> None:
    functions = [
        by.hash("a", 3),
        by.range("a", [1]),
        by.fixed_range("a", 3),
        by.values("a", [[1]]),
        by.year("a"),
        by.identity("a"),
        by.hash("a.b", 3),
    ]

    names = "a_hash a_bound a_range a_set year a a_b_hash".split()
    assert [function.name for function in functions] == names


TEXT = st.text(st.characters(codec="utf-8"))


@given(texts=st.lists(TEXT, min_size=1, max_size=5), source=TEXT.filter(bool))
def test_any_text_survives_the_short_form_and_json(texts: list[str], source: str) -> None:
    strategy = PartitionStrategy((by.values(source, [texts, texts[:1]], name="p"),))

    assert PartitionStrategy.parse(str(strategy)) == strategy
    assert PartitionStrategy.from_json(strategy.to_json()) == strategy


def test_text_form_reads_lists_words_and_named_arguments() -> None:
    strategy = PartitionStrategy.parse(
        "values( n ,[7,14] , [11] ), year(ts, unit=s), range(s, g, 'it''s'), provided(v)"
    )

    assert strategy == PartitionStrategy(
        (
            by.values("n", [[7, 14], [11]]),
            by.year("ts", unit="s"),
            by.range("s", ["g", "it's"]),
            by.provided("v"),
        )
    )


@pytest.mark.parametrize(
    "document",
    [
        {"type": "hash", "source": True, "buckets": 3},
        {"type": "range", "source": "a"},
        {"type": "range", "source": "a", "size": 0},
        {"type": "range", "source": "a", "size": "5"},
        {"type": "range", "source": "a", "size": 1e3},
        {"type": "range", "source": "a", "size": 2**63},
        {"type": "range", "source": "a", "size": 5, "bounds": [1]},
        {"type": "range", "source": "a", "bounds": []},
        {"type": "range", "source": "a", "bounds": "abc"},
        {"type": "range", "source": "a", "bounds": {"1": 2}},
        {"type": "range", "source": "a", "bounds": [1, 1]},
        {"type": "range", "source": "a", "bounds": [2, 1]},
        {"type": "range", "source": "a", "bounds": [1, "b"]},
        {"type": "range", "source": "a", "bounds": [True]},
        {"type": "range", "source": "a", "bounds": [1.5]},
        {"type": "range", "source": "a", "bounds": [2**63]},
        {"type": "range", "source": "a", "bounds": ["m", "z", "M", "Z"]},  # defect 20.14
        {"type": "range", "source": "a", "bounds": ["\ue000", "\U0001f600"]},  # not in UTF-16
        {"type": "range", "source": "a", "bounds": ["\ud800"]},
        {"type": "values", "source": "a"},
        {"type": "values", "source": "a", "sets": []},
        {"type": "values", "source": "a", "sets": [[]]},
        {"type": "values", "source": "a", "sets": [1, 2]},
        {"type": "values", "source": "a", "sets": ["ab"]},
        {"type": "values", "source": "a", "sets": [[1], ["b"]]},
        {"type": "values", "source": "a", "sets": [[[1]]]},
        {"type": "values", "source": "a", "sets": [[None]]},
        {"type": "dateFormat", "source": "a", "name": "x"},
        {"type": "dateFormat", "source": "a", "name": "x", "format": 5},
        {"type": "dateFormat", "source": "a", "name": "x", "format": "yyyy/MM"},
        {"type": "provided"},
        {"type": "provided", "name": 5},
        {"type": "provided", "name": "x", "values": "date"},
        {"type": "provided", "name": "x", "values": ["int"]},
        {"type": "provided", "name": "x", "source": "a"},
        {"type": "provided", "name": "_x"},
        {"type": "year", "source": "a", "unit": "h"},
        {"type": "year", "source": "a", "unit": ["s"]},
        {"type": "year", "source": "a", "part": "month"},
        {"type": ["year"], "source": "a"},
    ],
)
def test_behaviour_45_malformed_json_is_refused_with_its_place(document: dict) -> None:
    good = {"type": "date", "source": "a"}

    with pytest.raises(ValueError, match=r"^\[1\]"):
        PartitionStrategy.from_document([good, document])


@pytest.mark.parametrize(
    "text",
    [
        "range(a)",
        "range(a, 2, 1)",
        "range(a, 'x",
        "range(a, [1, 2])",
        "fixed_range(a, 0)",
        "values(a)",
        "values(a, 1, 2)",
        "values(a, [1, 2)",
        "values(a, [])",
        "values(a, [1,])",
        "year(a, unit=h)",
        "year(a, unit=s, s)",
        "year(a, s, ms)",
        "year(a, part=month)",
        "provided(v, date)",
        "provided(v, int) as w",
        "a b",
        "a as b c",
        "hash(a, 3) hash(b, 3)",
        "hash(, 3)",
        "hash(a, 3",
        "date_format(t)",
        "date_format(t, 'yyyy', h)",
        "`a",
        "a; b",
    ],
)
def test_text_that_is_no_strategy_is_refused(text: str) -> None:
    with pytest.raises(PartitionSpecError):
        PartitionStrategy.parse(text)


@pytest.mark.parametrize("text", ["", " \n", str(PartitionStrategy())])
def test_no_text_is_the_strategy_without_functions(text: str) -> None:
    assert PartitionStrategy.parse(text) == PartitionStrategy()


SCHEMA = Schema(
    fields=tuple(
        Field(name=name, type=Primitive(kind))
        for name, kind in {
            "s": Kind.STRING,
            "number": Kind.INT,
            "ts": Kind.TIMESTAMP,
            "d": Kind.DATE,
            "x": Kind.DOUBLE,
        }.items()
    )
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("range(s, 1, 2)", "has numbers for bounds, but field 's' is a string"),
        ("range(number, 'a')", "has texts for bounds, but field 'number' is a int"),
        ("range(ts, 1)", "does not take field 'ts'"),
        ("values(s, [1])", "has lists of numbers, but field 's' is a string"),
        ("values(number, ['a'])", "has lists of texts"),
        ("fixed_range(s, 5)", "does not take"),
        ("fixed_range(x, 5)", "does not take"),
        ("date_format(s, 'yyyy')", "does not take"),
        ("month(ts, s)", "only numbers have one"),
        ("date_format(d, 'yyyy', us)", "only numbers have one"),
        ("hour(d)", "is a date"),
        ("provided(s)", "has the name of a data field"),
    ],
)
def test_function_that_does_not_fit_the_schema_is_refused(text: str, message: str) -> None:
    with pytest.raises(PartitionSpecError, match=message):
        PartitionStrategy.parse(text).check(SCHEMA)
