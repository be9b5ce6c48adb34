"""Dimensions as partition functions: their values, their projections, their forms."""

import datetime as dt
from collections.abc import Iterable

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

from lakebed import PartitionStrategy, by
from lakebed.errors import PartitionSpecError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.keys import decode_path, encode_path
from lakebed.model.partition import Dimension
from lakebed.model.predicate import Comparison, Membership, NullCheck, Op, Predicate, bind
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.model.sql_predicates import parse_sql

LONG = 300 * "x"
TEXTS = [
    "",
    "A",
    "B",
    "DL",
    "UA",
    "ÜA",
    "OTHER",
    "UNKNOWN",
    "~OTHER",
    "~",
    "~~",
    "~~UNKNOWN",
    "\x7f",
]
VALUES = {
    "s": [*TEXTS, "9", "10", "a/b", "__HIVE_DEFAULT_PARTITION__", "日本", LONG],
    "n": [-(2**31), -5, 0, 9, 10, 447, 448, 500, 2**31 - 1],
    "l": [-(2**63), -1, 0, 9, 10, 2**63 - 1],
    "u": [0, 9, 10, 2**63, 2**64 - 1],
    "b": [True, False],
    "d": [dt.date.min, dt.date(2013, 6, 6), dt.date(2013, 6, 7), dt.date(2013, 6, 8), dt.date.max],
}
KINDS = {
    "s": Kind.STRING,
    "n": Kind.INT,
    "l": Kind.LONG,
    "u": Kind.UNSIGNED_LONG,
    "b": Kind.BOOLEAN,
    "d": Kind.DATE,
}
SCHEMA = Schema(
    fields=tuple(Field(name=name, type=Primitive(kind)) for name, kind in KINDS.items())
)
DIMENSIONS = {
    "any text": by.dimension("s", "*"),
    "a list": by.dimension("s", ["UA", "B", "OTHER", "~", LONG]),
    "an empty list": by.dimension("s", []),
    "a text": by.dimension("s", "UA"),
    "a range of texts": by.dimension("s", {"min": "A", "max": "OTHER"}),
    "texts from": by.dimension("s", {"min": "9"}),
    "texts as numbers": by.dimension("s", {"min": 9, "type": "long"}),
    "a pattern": by.dimension("s", {"regex": "[A-Z]+|~.*"}),
    "any int": by.dimension("n", "*"),
    "ints": by.dimension("n", [9, 448]),
    "a short range of ints": by.dimension("n", {"min": 448, "max": 500}),
    "an open range of ints": by.dimension("n", {"min": 9}),
    "a short range below a cap": by.dimension("n", {"min": 448, "max": 500}, cap=2),
    "any long": by.dimension("l", "*"),
    "a long range": by.dimension("l", {"max": 9}),
    "any unsigned": by.dimension("u", "*"),
    "any boolean": by.dimension("b", "*"),
    "a boolean": by.dimension("b", [True]),
    "any day": by.dimension("d", "*"),
    "days": by.dimension("d", ["2013-06-07", dt.date(2013, 6, 8)]),
    "a range of days": by.dimension("d", {"min": "2013-06-07", "max": "2013-06-08"}),
    "days up to": by.dimension("d", {"max": "2013-06-07"}),
}


def source_type(function: Dimension) -> Primitive:
    return Primitive(KINDS[function.source])


def partitions_of(function: Dimension, value: object) -> set:
    """All partitions that an entity may be in: below a cap, its own or OTHER."""
    kind = source_type(function)
    found = {function.value(value, kind)} if value is not None else {"UNKNOWN"}
    capped = function.capped_at(kind) is not None and value is not None
    return found | {"OTHER"} if capped else found


def check_law(function: Dimension, predicate: Predicate, values: Iterable[object]) -> None:
    strategy = PartitionStrategy((function,))
    own = strategy.types(SCHEMA)
    permissive = strategy.project(predicate, SCHEMA, own, strict=False)
    strict = strategy.project(predicate, SCHEMA, own, strict=True)
    exact = strategy.exact(predicate, SCHEMA, own)

    for value in values:
        for text in partitions_of(function, value):
            partition = {function.name: text}
            is_match = matches(predicate, {function.source: value, **partition})

            assert matches(permissive, partition) or not is_match
            assert is_match or not matches(strict, partition)
            if exact is not None:
                assert matches(exact, partition) == is_match


@examples(3, long=10_000)
@given(st.data())
def test_strict_implies_predicate_implies_permissive(data) -> None:
    function = data.draw(st.sampled_from(list(DIMENSIONS.values())))
    names = VALUES[function.source]
    texts = [t for value in (*names, None) for t in partitions_of(function, value)]
    columns = {function.source: names, function.name: sorted(set(texts))}
    predicate = bind(
        data.draw(predicates(columns, max_leaves=5)),
        {function.source: source_type(function), function.name: Primitive(Kind.STRING)},
    )

    check_law(function, predicate, [data.draw(st.none() | st.sampled_from(names))])


@pytest.mark.parametrize("name", DIMENSIONS)
def test_law_holds_for_every_condition_by_brute_force(name: str) -> None:
    function = DIMENSIONS[name]
    values = VALUES[function.source]
    conditions: list[Predicate] = [
        Comparison(function.source, op, wanted) for op in Op for wanted in values
    ]
    for negated in (False, True):
        conditions.append(NullCheck(function.source, negated))
        conditions += [
            Membership(function.source, chosen, negated)
            for chosen in ((), (values[0],), tuple(values[1:3]), tuple(values))
        ]

    for condition in conditions:
        check_law(function, condition, (*values, None))


@pytest.mark.parametrize("name", DIMENSIONS)
def test_column_gives_what_each_value_gives(name: str) -> None:
    function = DIMENSIONS[name]
    kind = source_type(function)
    values = [*VALUES[function.source], None, *VALUES[function.source]]

    found = function.array(pa.array(values, type_to_arrow(kind)), kind)
    part = function.array(pa.array(values, type_to_arrow(kind))[3:], kind)

    alone = ["UNKNOWN" if value is None else function.value(value, kind) for value in values]
    assert found.type == pa.string()
    assert found.to_pylist() == alone
    assert part.to_pylist() == alone[3:]


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=30), max_size=20))
def test_column_of_any_text_gives_what_each_value_gives(values) -> None:
    function, kind = DIMENSIONS["any text"], Primitive(Kind.STRING)

    found = function.array(pa.array(values, pa.string()), kind).to_pylist()

    assert found == [
        "UNKNOWN" if value is None else function.value(value, kind) for value in values
    ]


SHORT = st.text(st.characters(codec="utf-8"), max_size=20)


@given(SHORT | st.sampled_from(TEXTS), SHORT | st.sampled_from(TEXTS))
def test_values_never_share_a_partition_and_none_is_a_token(one: str, other: str) -> None:
    function, kind = DIMENSIONS["any text"], Primitive(Kind.STRING)
    partitions = [function.value(text, kind) for text in (one, other)]

    paths = [encode_path({"p": partition}) for partition in partitions]

    assert {"p=OTHER", "p=UNKNOWN"}.isdisjoint(paths)
    assert [decode_path(path, {"p": kind})["p"] for path in paths] == partitions
    assert (one == other) is (paths[0] == paths[1])


@pytest.mark.parametrize(
    ("value", "partition"),
    [
        (None, "UNKNOWN"),
        ("UA", "UA"),
        ("XX", "OTHER"),
        ("OTHER", "~OTHER"),
        ("UNKNOWN", "~UNKNOWN"),
        ("~OTHER", "~~OTHER"),
        ("~", "~"),
        ("~UA", "~UA"),
        ("other", "other"),
        ("", ""),
    ],
)
def test_tokens_are_kept_apart_from_genuine_values(value: str | None, partition: str) -> None:
    allowed = ["UA", "OTHER", "UNKNOWN", "~OTHER", "~", "~UA", "other", ""]
    strategy = PartitionStrategy((by.dimension("s", allowed, name="p"),))

    assert strategy.values({"s": value}, SCHEMA) == {"p": partition}
    assert strategy.values({}, SCHEMA) == {"p": "UNKNOWN"}


def test_value_too_long_for_a_directory_goes_to_other() -> None:
    function, kind = by.dimension("s", "*", name="p"), Primitive(Kind.STRING)

    assert function.value("x" * 253, kind) == "x" * 253
    assert function.value("x" * 254, kind) == "OTHER"
    assert function.value("é" * 43, kind) == "OTHER"  # six bytes each, once encoded


@pytest.mark.parametrize(
    ("name", "text", "permissive", "strict"),
    [
        ("a list", "s = 'UA'", ["UA"], ["UA"]),
        ("a list", "s = 'DL'", ["OTHER"], []),
        ("a list", "s IN ('UA', 'B')", ["UA", "B"], ["UA", "B"]),
        ("a list", "s IN ('UA', 'DL')", ["UA", "OTHER"], ["UA"]),
        ("a list", "s != 'UA'", ["B", "~OTHER", "OTHER"], ["B", "~OTHER", "OTHER"]),
        ("a list", "s != 'DL'", ["UA", "B", "~OTHER", "OTHER"], ["UA", "B", "~OTHER"]),
        ("a list", "s NOT IN ('UA', 'B')", ["~OTHER", "OTHER"], ["~OTHER", "OTHER"]),
        ("a list", "s >= 'C'", ["UA", "~OTHER", "OTHER"], ["UA", "~OTHER"]),
        ("a list", "s IS NULL", ["UNKNOWN"], ["UNKNOWN"]),
        ("a list", "s IS NOT NULL", ["UA", "B", "~OTHER", "OTHER"], ["UA", "B", "~OTHER", "OTHER"]),
        ("a list", "s = 'OTHER'", ["~OTHER"], ["~OTHER"]),
        ("any text", "s = 'UA'", ["UA", "OTHER"], ["UA"]),
        ("any text", "s = 'OTHER'", ["~OTHER", "OTHER"], ["~OTHER"]),
        ("any text", "s != 'UA'", ["B", "~OTHER", "OTHER"], ["B", "~OTHER"]),
        ("any text", "s < 'C'", ["B", "~OTHER", "OTHER"], ["B"]),
        ("any text", "s IS NULL", ["UNKNOWN"], ["UNKNOWN"]),
        ("a pattern", "s = 'lower'", ["OTHER"], []),
        ("texts as numbers", "s = '8'", ["OTHER"], []),
    ],
)
def test_what_is_read_for_a_condition(name: str, text: str, permissive, strict) -> None:
    function = DIMENSIONS[name]
    strategy = PartitionStrategy((function,))
    own = strategy.types(SCHEMA)
    predicate = parse_sql(text, {"s": Primitive(Kind.STRING), **own})
    there = ["UA", "B", "~OTHER", "OTHER", "UNKNOWN"]

    def kept(*, strict: bool) -> list[str]:
        found = strategy.project(predicate, SCHEMA, own, strict=strict)
        return [one for one in there if matches(found, {function.name: one})]

    assert (kept(strict=False), kept(strict=True)) == (permissive, strict)


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("a short range of ints", "n = 450", ["450"]),
        ("a short range of ints", "n > 498", ["499", "500", "OTHER"]),
        ("a short range of ints", "n = 9", ["OTHER"]),
        ("a range of days", "d <= '2013-06-07'", ["2013-06-07", "OTHER"]),
        ("any day", "d >= '2013-06-08'", ["2013-06-08", "OTHER"]),
        ("any boolean", "b = true", ["true"]),
        ("any boolean", "b != true", ["false", "OTHER"]),
    ],
)
def test_ranges_prune_by_the_type_of_the_field(name: str, text: str, kept: list[str]) -> None:
    function = DIMENSIONS[name]
    strategy = PartitionStrategy((function,))
    own = strategy.types(SCHEMA)
    types = {field.name: field.type for field in SCHEMA}
    found = strategy.project(parse_sql(text, {**types, **own}), SCHEMA, own, strict=False)
    own_of = {
        "n": ["450", "499", "500"],
        "d": ["2013-06-07", "2013-06-08"],
        "b": ["true", "false"],
    }
    there = [*own_of[function.source], "OTHER", "UNKNOWN"]

    assert [one for one in there if matches(found, {function.name: one})] == kept


@pytest.mark.parametrize("name", DIMENSIONS)
def test_dimension_survives_its_forms(name: str) -> None:
    strategy = PartitionStrategy((DIMENSIONS[name],))

    from_json = PartitionStrategy.from_json(strategy.to_json())
    from_text = PartitionStrategy.parse(str(strategy))

    for found in (from_json, from_text):
        again = PartitionStrategy.from_json(found.to_json())
        assert again == found
        (function,) = found
        for value in VALUES[function.source]:
            kind = source_type(function)
            assert function.value(value, kind) == DIMENSIONS[name].value(value, kind)
        assert function.capped_at(kind) == DIMENSIONS[name].capped_at(kind)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("dimension(carrier)", by.dimension("carrier")),
        ("dimension(carrier, 'UA', 'B6')", by.dimension("carrier", ["UA", "B6"])),
        ("dimension(carrier, 'it''s, (so)') as c", by.dimension("carrier", "it's, (so)", name="c")),
        ("dimension(n, 1, 2)", by.dimension("n", [1, 2])),
        ("dimension(v, cap=50)", by.dimension("v", cap=50)),
        ("dimension(n, min=448, max=500)", by.dimension("n", {"min": 448, "max": 500})),
        (
            "dimension(m, min='448', type='long', cap=9)",
            by.dimension("m", {"min": "448", "type": "long"}, cap=9),
        ),
        (r"dimension(v, regex='2\\d[.].*')", by.dimension("v", {"regex": r"2\d[.].*"})),
        ("dimension(v, '*')", by.dimension("v", "*")),
        ("dimension(v, ['*'])", by.dimension("v", ["*"])),
        ("dimension(v, [])", by.dimension("v", [])),
        ("dimension(v, ['a', 'b'])", by.dimension("v", ["a", "b"])),
    ],
)
def test_text_form_of_a_dimension(text: str, function: Dimension) -> None:
    (found,) = PartitionStrategy.parse(text)

    assert found == function
    assert PartitionStrategy.parse(str(found)) == PartitionStrategy((function,))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: by.dimension("s", ["a"], cap=5), "a list and cap 5"),
        (lambda: by.dimension("s", "*", cap=0), "cap 0"),
        (lambda: by.dimension("s", "*", cap=True), "cap True"),
        (lambda: by.dimension("s", None), r"dimension\(s\): None"),
        (lambda: by.dimension("s", 5), r"dimension\(s\): 5"),
        (lambda: PartitionStrategy((by.dimension("s", [1]),)).check(SCHEMA), "Value 1"),
        (lambda: PartitionStrategy((by.dimension("l", ["x"]),)).check(SCHEMA), "Text 'x'"),
        (lambda: PartitionStrategy.parse("dimension(s, least=5)"), "least"),
        (lambda: PartitionStrategy.parse("dimension(s, 'a', min=5)"), "values and 'min'"),
        (lambda: PartitionStrategy.parse("dimension()"), "dimension"),
    ],
)
def test_dimension_that_means_nothing_is_refused(build, message: str) -> None:
    with pytest.raises(PartitionSpecError, match=message):
        build()
