"""Predicates on entities as predicates on partitions.

The law: *strict ⊆ predicate ⊆ permissive*. A partition that the permissive projection drops holds
no match; in one that the strict projection keeps, everything matches.
"""

import datetime as dt
import math
import random
from collections.abc import Sequence

import pytest
from effort import cases, examples
from hypothesis import given
from hypothesis import strategies as st
from partition_cases import CASES, accepted, random_predicate, values_of
from partition_cases import EDGES as EDGES_OF
from strategies import predicates

from lakebed import by
from lakebed.model.evaluate import matches
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import (
    Comparison,
    Membership,
    Op,
    Predicate,
    bind,
)
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct
from lakebed.model.sql_predicates import parse_sql

MICRO = dt.timedelta(microseconds=1)
EDGES = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31),
    dt.datetime(1970, 1, 1),
    dt.datetime(2012, 2, 29),
    dt.datetime(2012, 12, 31, 23),
    dt.datetime(2013, 1, 1),
    dt.datetime(2013, 2, 1, 5),
    dt.datetime(2013, 2, 1, 5, 30),
    dt.datetime(9999, 12, 31, 23, 59),
]
NTZ = [
    *EDGES,
    *[edge + MICRO for edge in EDGES],
    *[edge - MICRO for edge in EDGES[1:]],
    dt.datetime.max,
]
VALUES = {
    "ts": [moment.replace(tzinfo=dt.UTC) for moment in NTZ],
    "wall": NTZ,
    "d": sorted({moment.date() for moment in NTZ}),
    "n": [-(2**63), -1, 0, 1, 2, 53, 2**63 - 1],
    "s": ["", "a", "b", "héllo", "a/b", "polygenelubricants"],
    "f": [-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, math.inf, math.nan],
    "g": [-1.0, -0.0, 0.0, 0.10000000149011612, math.nan],
    "b": [True, False],
}
SCHEMA = Schema(
    fields=tuple(
        Field(name=name, type=Primitive(kind))
        for name, kind in {
            "ts": Kind.TIMESTAMP,
            "wall": Kind.TIMESTAMP_NTZ,
            "d": Kind.DATE,
            "n": Kind.LONG,
            "s": Kind.STRING,
            "f": Kind.DOUBLE,
            "g": Kind.FLOAT,
            "b": Kind.BOOLEAN,
            "free": Kind.LONG,
        }.items()
    )
)
VALUES["free"] = VALUES["n"]
STRATEGIES = [
    "year(ts), month(ts), day(ts), hour(ts), minute(ts)",
    "year(ts), month(ts), day(ts)",
    "year(wall), month(wall)",
    "year(d), month(d), day(d)",
    "month(ts)",
    "day(d)",
    "hour(ts), minute(ts)",
    "year(ts), day(ts)",
    "minute(wall), year(wall), hour(wall), month(wall)",
    "date(ts) as dt",
    "date(ts) as dt, hour(ts)",
    "hour(wall), date(wall) as dt, minute(wall), year(wall)",
    "date(ts) as dt, year(ts), month(ts), hash(ts, 3)",
    "date(d) as dt",
    "hash(n, 3)",
    "n, hash(n, 5)",
    "identity(n) as copy, hash(n, 2)",
    "hash(s, 2), s",
    "f, hash(f, 3)",
    "g, identity(f) as f_copy, hash(g, 2)",
    "b, hash(d, 4), month(d)",
    "ts, identity(wall) as w, d",
]


ENTITIES = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
)


def sources_of(strategy: PartitionStrategy) -> set[str]:
    return {function.source for function in strategy}


def check_law(strategy: PartitionStrategy, predicate: Predicate, entity: dict) -> None:
    own = strategy.types(SCHEMA)
    partition = strategy.values(entity, SCHEMA)
    permissive = strategy.project(predicate, SCHEMA, own, strict=False)
    strict = strategy.project(predicate, SCHEMA, own, strict=True)
    exact = strategy.exact(predicate, SCHEMA, own)

    is_match = matches(predicate, {**entity, **partition})

    assert matches(permissive, partition) or not is_match
    assert is_match or not matches(strict, partition)
    if exact is not None:
        assert matches(exact, partition) == is_match


@examples(5)
@given(st.data())
def test_strict_implies_predicate_implies_permissive(data) -> None:
    strategy = PartitionStrategy.parse(data.draw(st.sampled_from(STRATEGIES)))
    strategy.check(SCHEMA)
    columns = {name: VALUES[name] for name in (*sources_of(strategy), "free")}
    entity = data.draw(ENTITIES)
    for name, value in strategy.values(entity, SCHEMA).items():
        if value is not None:  # conditions on the partition fields themselves, too
            columns.setdefault(name, [value])
    predicate = bind(
        data.draw(predicates(columns, max_leaves=5)),
        {**{f.name: f.type for f in SCHEMA}, **strategy.types(SCHEMA)},
    )

    check_law(strategy, predicate, entity)


@pytest.mark.thorough
@pytest.mark.parametrize("text", STRATEGIES)
def test_law_holds_for_every_comparison_by_brute_force(text: str) -> None:
    strategy = PartitionStrategy.parse(text)

    for column in sources_of(strategy):
        for op in Op:
            for wanted in VALUES[column]:
                predicate = Comparison(column, op, wanted)
                for value in (*VALUES[column], None):
                    check_law(strategy, predicate, {column: value})


# What the projections are good for

TYPES = {f.name: f.type for f in SCHEMA}


def project(strategy: str, text: str, partition: dict, *, strict: bool) -> bool:
    found = PartitionStrategy.parse(strategy)
    own = found.types(SCHEMA)
    predicate = parse_sql(text, {**TYPES, **own})
    return matches(found.project(predicate, SCHEMA, own, strict=strict), partition)


@pytest.mark.parametrize(
    ("text", "permissive", "strict"),
    [
        ("ts > '2013-09-01' AND ts < '2013-11-01'", [2013], []),
        ("ts > '2012-09-01' AND ts < '2014-11-01'", [2012, 2013, 2014], [2013]),
        ("ts <= '2012-12-31 23:59:59.999999'", [2011, 2012], [2011, 2012]),
        ("ts < '2013-01-01'", [2011, 2012], [2011, 2012]),
        ("ts >= '2013-01-01'", [2013, 2014, 2015], [2013, 2014, 2015]),
        ("ts = '2013-01-01'", [2013], []),
        ("ts IN ('2013-01-01', '2015-02-03')", [2013, 2015], []),
        ("ts != '2013-01-01'", [2011, 2012, 2013, 2014, 2015], [2011, 2012, 2014, 2015]),
        ("ts NOT IN ('2013-01-01')", [2011, 2012, 2013, 2014, 2015], [2011, 2012, 2014, 2015]),
        ("ts IS NULL", [], []),
        ("NOT ts > '2012-12-31 23:59:59.999999'", [2011, 2012], [2011, 2012]),
    ],
)
def test_year_is_projected_as_in_kite(text: str, permissive: list, strict: list) -> None:
    years = [2011, 2012, 2013, 2014, 2015]

    may = [y for y in years if project("year(ts)", text, {"year": y}, strict=False)]
    surely = [y for y in years if project("year(ts)", text, {"year": y}, strict=True)]

    assert (may, surely) == (permissive, strict)


@pytest.mark.parametrize(
    ("day", "is_kept"),
    [
        ((2013, 4, 10), True),
        ((2013, 7, 1), True),
        ((2013, 10, 4), True),
        ((2013, 4, 9), False),
        ((2013, 10, 5), False),
        ((2012, 12, 31), False),
    ],
)
def test_year_month_and_day_prune_together(day: tuple[int, int, int], is_kept: bool) -> None:
    text = "ts >= '2013-04-10' AND ts <= '2013-10-04 20:17:00'"
    partition = dict(zip(("year", "month", "day"), day, strict=True))

    assert project("year(ts), month(ts), day(ts)", text, partition, strict=False) is is_kept


@pytest.mark.parametrize("month", range(1, 13))
def test_month_without_its_year_prunes_no_range(month: int) -> None:
    text = "ts >= '2012-11-15' AND ts <= '2013-02-10'"

    assert project("month(ts)", text, {"month": month}, strict=False)


@pytest.mark.parametrize(
    ("strategy", "text", "partition"),
    [
        ("month(ts)", "ts >= '2013-02-01' AND ts < '2013-03-01'", {"month": 2}),
        ("day(ts)", "ts >= '2013-02-01' AND ts < '2013-02-02'", {"day": 1}),
        ("hour(ts)", "ts >= '2013-02-01 05:00:00' AND ts < '2013-02-01 06:00:00'", {"hour": 5}),
    ],
)
def test_part_without_its_parent_promises_nothing(strategy, text, partition) -> None:
    assert not project(strategy, text, partition, strict=True)


def test_equality_prunes_by_hash_and_ranges_do_not() -> None:
    kept = [b for b in range(53) if project("hash(n, 53)", "n = 1234", {"n_hash": b}, strict=False)]

    assert kept == [15]
    for bucket in range(53):
        assert project("hash(n, 53)", "n > 5", {"n_hash": bucket}, strict=False)
        assert not project("hash(n, 53)", "n = 1234", {"n_hash": bucket}, strict=True)


def test_null_partition_is_dropped_by_every_comparison() -> None:
    for text in ("n = 1", "n > 5", "n != 1", "n NOT IN (1)", "n IS NOT NULL"):
        assert not project("hash(n, 53)", text, {"n_hash": None}, strict=False)
    assert project("hash(n, 53)", "n IS NULL", {"n_hash": None}, strict=True)


def test_empty_not_in_keeps_the_null_partition() -> None:
    strategy = PartitionStrategy.parse("hash(n, 53)")
    own = strategy.types(SCHEMA)

    found = strategy.project(Membership("n", (), negated=True), SCHEMA, own, strict=False)

    assert matches(found, {"n_hash": None})


def test_hour_prunes_below_a_date() -> None:
    text = "ts >= '2013-02-01 05:00:00' AND ts < '2013-02-01 07:00:00'"
    day = dt.date(2013, 2, 1)

    kept = [
        hour
        for hour in range(24)
        if project("date(ts) as dt, hour(ts)", text, {"dt": day, "hour": hour}, strict=False)
    ]

    assert kept == [5, 6]


YMD = "year(ts), month(ts), day(ts), s"


@pytest.mark.parametrize(
    "text",
    [
        "ts >= '2013-09-01 00:00:00'",
        "ts < '2013-09-01 00:00:00'",
        "ts <= '2013-09-12 23:59:59.999999'",
        "ts > '2013-09-11 23:59:59.999999'",
        "ts >= '2013-10-12' AND ts <= '2013-10-12 23:59:59.999999'",
        "s IN ('a', 'b', 'c')",
        "s > 'b'",
        "year = 2013 AND month = 9 AND day = 1",
        "ts IS NULL",
        "ts IS NOT NULL",
        "ts < '2013-01-01' OR (s != 'x' AND year > 2014)",
        "TRUE",
        "FALSE",
    ],
)
def test_view_on_partition_boundaries_is_aligned(text: str) -> None:
    strategy = PartitionStrategy.parse(YMD)
    own = strategy.types(SCHEMA)

    assert strategy.exact(parse_sql(text, {**TYPES, **own}), SCHEMA, own) is not None


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (YMD, "ts >= '2013-09-01 12:00:00'"),
        (YMD, "ts > '2013-09-01 00:00:00'"),
        (YMD, "ts <= '2013-09-01 00:00:00'"),
        (YMD, "ts <= '2013-09-12 23:59:57.999'"),
        (YMD, "ts <= '2013-09-12 23:59:59.999'"),
        (YMD, "ts >= '2013-10-12 00:01:00' AND ts <= '2013-10-12 23:59:59.999999'"),
        (YMD, "year = 2013 AND month = 9 AND day = 1 AND ts >= '2013-09-01 12:00:00'"),
        (YMD, "n = 5"),
        (YMD, "s = 'a' OR n = 5"),
        (YMD, "ts = '2013-09-01'"),
        ("hash(n, 32)", "n = 5"),
        ("hash(n, 32)", "n IN (1, 2)"),
        ("hash(n, 32)", "n != 5"),
        ("month(ts)", "ts >= '2013-02-01' AND ts < '2013-03-01'"),
        ("month(d)", "d >= '2013-02-01' AND d < '2013-03-01'"),
    ],
)
def test_view_inside_partitions_is_not_aligned(strategy: str, text: str) -> None:
    found = PartitionStrategy.parse(strategy)
    own = found.types(SCHEMA)

    assert found.exact(parse_sql(text, {**TYPES, **own}), SCHEMA, own) is None


@pytest.mark.parametrize("text", ["d = '2013-02-01'", "d IN ('2013-02-01')", "d > '2013-02-01'"])
def test_date_of_a_date_is_the_date_itself(text: str) -> None:
    strategy = PartitionStrategy.parse("date(d) as dt")
    own = strategy.types(SCHEMA)

    assert strategy.exact(parse_sql(text, {**TYPES, **own}), SCHEMA, own) is not None


# The law for every function, on sources of every kind

LAWS = [
    *CASES,
    *[
        (text, Kind.LONG)
        for text in (
            "year(a), month(a), day(a), hour(a), minute(a)",
            "date(a, s) as d, hour(a, s), minute(a, s)",
            "year(a, s), month(a)",
            "date_format(a, 'yyyy-MM') as f, day(a), hour(a)",
            "range(a, -5, 0, 5, 1000) as r, fixed_range(a, 3), hash(a, 4)",
            "values(a, [1, 2, 3, 7], [0, -1]) as v, a",
            "fixed_range(a, 2), range(a, 1, 2, 3, 4, 5)",
        )
    ],
    ("date_format(a, 'yyyyMMdd') as f, hour(a), minute(a)", Kind.TIMESTAMP),
    ("range(a, 'a', 'm', '\ue000') as r, hash(a, 2)", Kind.STRING),
]


def check_random_law(text: str, kind: Kind, count: int) -> None:
    """Check predicates at random against entities at random, nested and with a provided value."""
    rng = random.Random(f"{text} {kind}")
    position = Struct((Field(name="a", type=Primitive(kind)),))
    schema = Schema(
        fields=(
            Field(name="a", type=Primitive(kind)),
            Field(name="inner", type=position),
            Field(name="free", type=Primitive(Kind.LONG)),
        )
    )
    is_nested = rng.random() < 0.5
    text = text.replace("(a,", "(inner.a,").replace("(a)", "(inner.a)") if is_nested else text
    strategy = PartitionStrategy.parse(f"{text}, provided(version, int)")
    strategy.check(schema)
    own = strategy.types(schema)
    candidates = values_of(kind, 40, seed=count)
    columns = {"inner.a" if is_nested else "a": candidates, "free": [1, 2], "version": [6, 7]}

    for _ in range(count // 20):
        predicate = random_predicate(rng, columns)
        permissive = strategy.project(predicate, schema, own, strict=False)
        strict = strategy.project(predicate, schema, own, strict=True)
        exact = strategy.exact(predicate, schema, own)
        checked = 0
        while checked < 20:
            value = rng.choice([None, *rng.choices(candidates, k=9)])
            source = strategy.functions[0].source_type(schema)
            if value is not None and not all(
                f.accepts(value, source) for f in strategy if f.takes_source
            ):
                continue
            checked += 1
            holder = None if value is None and rng.random() < 0.5 else {"a": value}
            entity = {"a": value, "inner": holder, "free": rng.choice([None, 1, 2])}
            partition = strategy.values(entity, schema, {"version": rng.choice((6, 7))})
            is_match = matches(predicate, {**entity, **partition})
            case = (text, str(predicate), value, partition)
            assert matches(permissive, partition) or not is_match, case
            assert is_match or not matches(strict, partition), case
            assert exact is None or matches(exact, partition) == is_match, case


@pytest.mark.parametrize(("text", "kind"), LAWS)
def test_law_holds_for_every_function(text: str, kind: Kind) -> None:
    check_random_law(text, kind, cases(300))


@pytest.mark.long
@pytest.mark.parametrize(("text", "kind"), LAWS)
def test_law_holds_for_every_function_in_ten_thousand_cases(text: str, kind: Kind) -> None:
    check_random_law(text, kind, 10_000)


@pytest.mark.parametrize(("text", "kind"), CASES)
def test_law_holds_at_every_edge(text: str, kind: Kind) -> None:
    strategy = PartitionStrategy.parse(text)
    schema = Schema(
        fields=(Field(name="a", type=Primitive(kind)), Field(name="b", type=Primitive(kind)))
    )
    own = strategy.types(schema)
    (function,) = strategy
    edges = EDGES_OF[kind][:: max(1, len(EDGES_OF[kind]) // cases(24))]
    entities = [{"a": value} for value in (*accepted(function, kind, EDGES_OF[kind]), None)]
    partitions = [strategy.values(entity, schema) for entity in entities]

    for op in Op:
        for wanted in edges:
            predicate = Comparison("a", op, wanted)
            permissive = strategy.project(predicate, schema, own, strict=False)
            strict = strategy.project(predicate, schema, own, strict=True)
            for entity, partition in zip(entities, partitions, strict=True):
                is_match = matches(predicate, entity)
                assert matches(permissive, partition) or not is_match, (predicate, entity)
                assert is_match or not matches(strict, partition), (predicate, entity)


# Kite's vectors 19.5 and 19.6


def kept(strategy: str, text: str, name: str, values: Sequence, *, strict: bool) -> list:
    found = PartitionStrategy.parse(strategy)
    schema = Schema(
        fields=(
            Field(name="n", type=Primitive(Kind.LONG)),
            Field(name="i", type=Primitive(Kind.INT)),
            Field(name="s", type=Primitive(Kind.STRING)),
        )
    )
    found.check(schema)
    own = found.types(schema)
    predicate = parse_sql(text, {**{f.name: f.type for f in schema}, **own})
    projected = found.project(predicate, schema, own, strict=strict)
    return [value for value in values if matches(projected, {name: value})]


FIVES = list(range(-20, 40, 5))


@pytest.mark.parametrize(
    ("text", "permissive", "strict"),
    [
        ("n > -2 AND n < 15", [-5, 0, 5, 10], [0, 5, 10]),
        ("n >= 4 AND n <= 15", [0, 5, 10, 15], [5, 10]),
        ("n > 5 AND n < 15", [5, 10], [10]),
        ("n > 5 AND n < 14", [5, 10], []),
        ("n <= 15", [-20, -15, -10, -5, 0, 5, 10, 15], [-20, -15, -10, -5, 0, 5, 10]),
        ("n < 21", [-20, -15, -10, -5, 0, 5, 10, 15, 20], [-20, -15, -10, -5, 0, 5, 10, 15]),
        ("n >= 14", [10, 15, 20, 25, 30, 35], [15, 20, 25, 30, 35]),
        ("n IN (5, 6, 15, 16)", [5, 15], []),
        ("n IN (5, 6, 7, 8, 9, 15, 16)", [5, 15], [5]),
        ("n NOT IN (5, 6, 7, 8, 9)", [v for v in FIVES if v != 5], [v for v in FIVES if v != 5]),
    ],
)
def test_vectors_19_5_of_ranges_of_one_size(text: str, permissive: list, strict: list) -> None:
    call = "fixed_range(n, 5)"

    assert kept(call, text, "n_range", FIVES, strict=False) == permissive
    assert kept(call, text, "n_range", FIVES, strict=True) == strict


@pytest.mark.parametrize(
    ("text", "permissive", "strict"),
    [
        ("n >= 0 AND n <= 50", [0, 1, 2], [0, 1, 2]),
        ("n >= 5 AND n <= 12", [0, 1], []),
        ("n > 7 AND n < 14", [1, 2], []),
        ("n < 5", [], []),
        ("n >= 11 AND n <= 44", [0, 1, 2], [1, 2]),
        ("n > 11 AND n < 44", [0, 1, 2], [2]),
        ("n >= 20 AND n <= 30", [0, 1, 2], []),
        ("n IN (7, 11, 22, 33, 44, 13)", [0, 1, 2], [1]),
        ("n < 12 OR n > 20", [0, 1, 2], [1]),
        ("n = 8", [], []),
        ("n != 8", [0, 1, 2], [0, 1, 2]),
    ],
)
def test_vectors_19_5_of_value_lists(text: str, permissive: list, strict: list) -> None:
    call = "values(n, [7, 14, 21, 28, 35, 42, 49], [11, 22, 33, 44], [13, 26, 39])"

    assert kept(call, text, "n_set", range(3), strict=False) == permissive
    assert kept(call, text, "n_set", range(3), strict=True) == strict


@pytest.mark.parametrize(
    ("text", "permissive", "strict"),
    [
        ("i < 15", [0, 1, 2], [0, 1]),  # bucket 2 holds 15
        ("i <= 14", [0, 1, 2], [0, 1]),
        ("i <= 15", [0, 1, 2], [0, 1, 2]),
        ("i < 16", [0, 1, 2], [0, 1, 2]),
        ("i <= 3", [0], []),
        ("i > 5", [1, 2, 3], [1, 2, 3]),
        ("i >= 5", [0, 1, 2, 3], [1, 2, 3]),
        ("i <= 20", [0, 1, 2, 3], [0, 1, 2, 3]),
        ("i <= 99", [0, 1, 2, 3], [0, 1, 2, 3]),
        ("i > 20", [], []),
        ("i = 21", [], []),
        ("i != 21", [0, 1, 2, 3], [0, 1, 2, 3]),
        ("i IN (6, 7, 21)", [1], []),
        ("i IN (6, 7, 8, 9, 10)", [1], [1]),
    ],
)
def test_defect_20_1_bounded_ranges_are_not_off_by_one(text, permissive, strict) -> None:
    call = "range(i, 5, 10, 15, 20)"

    assert kept(call, text, "i_bound", range(4), strict=False) == permissive
    assert kept(call, text, "i_bound", range(4), strict=True) == strict


@pytest.mark.parametrize(
    ("text", "permissive", "strict"),
    [
        ("s >= '0' AND s < 'a'", ["a"], []),
        ("s >= 'aa' AND s <= 'b'", ["b"], []),
        ("s > 'a' AND s <= 'b'", ["b"], ["b"]),
        ("s <= 'd'", ["a", "b", "c"], ["a", "b", "c"]),
        ("s > 'c'", [], []),
        ("s = 'x'", [], []),
        ("s IN ('aa', 'x')", ["b"], []),
        ("s != 'x'", ["a", "b", "c"], ["a", "b", "c"]),
        ("s >= ''", ["a", "b", "c"], ["a", "b", "c"]),
    ],
)
def test_defect_20_4_text_ranges_take_every_constraint(text, permissive, strict) -> None:
    call = "range(s, 'a', 'b', 'c')"

    assert kept(call, text, "s_bound", "abc", strict=False) == permissive
    assert kept(call, text, "s_bound", "abc", strict=True) == strict


def test_defect_20_3_unsortable_date_format_prunes_no_range() -> None:
    text = "ts >= '2013-09-12' AND ts < '2013-10-12'"
    call = "date_format(ts, 'dd-MM-yyyy') as day"

    assert project(call, text, {"day": "30-09-2013"}, strict=False)
    assert not project(call, text, {"day": "30-09-2013"}, strict=True)
    assert not project(call, "ts = '2013-09-12'", {"day": "30-09-2013"}, strict=False)


@pytest.mark.parametrize(
    ("pattern", "is_pruned"),
    [
        ("yyyy-MM-dd", True),
        ("yyyyMMdd", True),
        ("yyyyDDD", True),
        ("'y='yyyy' m='MM", True),
        ("yyyy-MM-dd EEE", True),
        ("yyyy-MM-dd HHmmssSSS", True),
        ("yy-MM", False),
        ("yyy-MM", False),
        ("yyyy-M", False),
        ("yyyy-MMM", False),
        ("yyyy-dd", False),
        ("MM-yyyy", False),
        ("yyyy-MM-dd hh", False),
        ("yyyy-MM-dd kk", False),
        ("yyyy-MM-dd mm", False),
        ("E yyyy-MM-dd", False),
        ("YYYY-ww", False),
    ],
)
def test_patterns_prune_ranges_where_texts_sort_as_times(pattern: str, is_pruned: bool) -> None:
    strategy = PartitionStrategy((by.date_format("ts", pattern, name="f"),))
    own = strategy.types(SCHEMA)
    early = dt.datetime(2013, 1, 5, tzinfo=dt.UTC)
    predicate = parse_sql("ts >= '2014-06-01'", {**TYPES, **own})

    permissive = strategy.project(predicate, SCHEMA, own, strict=False)

    assert matches(permissive, strategy.values({"ts": early}, SCHEMA)) is not is_pruned


def test_format_of_days_is_aligned_at_midnight() -> None:
    strategy = PartitionStrategy.parse("date_format(ts, 'yyyy-MM-dd') as day, hour(ts)")
    own = strategy.types(SCHEMA)

    for text, is_aligned in [
        ("ts >= '2013-09-12'", True),
        ("ts < '2013-09-12 05:00:00'", True),
        ("ts < '2013-09-12 05:30:00'", False),
    ]:
        predicate = parse_sql(text, {**TYPES, **own})
        assert (strategy.exact(predicate, SCHEMA, own) is not None) is is_aligned


@pytest.mark.parametrize(
    ("strategy", "text", "is_aligned"),
    [
        ("year(n), month(n), day(n)", "n >= 1377993600000", True),  # 2013-09-01T00:00
        ("year(n), month(n), day(n)", "n < 1377993600000", True),
        ("year(n), month(n), day(n)", "n >= 1378036800000", False),  # noon
        ("year(n), month(n), day(n)", "n > 1377993600000", False),
        ("year(n), month(n), day(n)", "n <= 1377993600000", False),
        ("year(n), month(n), day(n)", "n <= 1379030399999", True),  # 2013-09-12T23:59:59.999
        ("year(n), month(n), day(n)", "n <= 1379030397999", False),
        ("date(n, s) as d", "n >= 1377993600 AND n < 1378080000", True),
        ("fixed_range(n, 5)", "n >= 10 AND n < 15", True),
        ("fixed_range(n, 5)", "n >= 10 AND n < 14", False),
        ("fixed_range(n, 5)", "n IN (5, 6, 7, 8, 9)", True),
        ("fixed_range(n, 5)", "n IN (5, 6, 7, 8)", False),
        ("fixed_range(n, 1)", "n = 7", True),
        ("range(i, 5, 10, 15, 20)", "i < 15", False),
        ("range(i, 5, 10, 15, 20)", "i <= 15", True),
        ("range(i, 5, 10, 15, 20)", "i <= 99", True),
        ("range(s, 'g', 'p', '~')", "s > 'g' AND s <= 'p'", True),
        ("range(s, 'g', 'p', '~')", "s >= 'g' AND s <= 'p'", False),
        ("values(n, [7, 14], [11])", "n IN (7, 14)", True),
        ("values(n, [7, 14], [11])", "n > 11", False),
        ("values(n, [7, 14], [11])", "n IN (11)", True),
        ("provided(version, int), hash(n, 2)", "version = 6", True),
        ("provided(version, int), hash(n, 2)", "version = 6 AND n = 5", False),
    ],
)
def test_vectors_19_6_alignment_of_every_function(strategy, text, is_aligned) -> None:
    found = PartitionStrategy.parse(strategy)
    schema = Schema(
        fields=(
            Field(name="n", type=Primitive(Kind.LONG)),
            Field(name="i", type=Primitive(Kind.INT)),
            Field(name="s", type=Primitive(Kind.STRING)),
        )
    )
    own = found.types(schema)
    predicate = parse_sql(text, {**{f.name: f.type for f in schema}, **own})

    assert (found.exact(predicate, schema, own) is not None) is is_aligned


def test_parts_of_different_units_are_not_taken_together() -> None:
    found = PartitionStrategy.parse("year(n), month(n, s)")
    schema = Schema(fields=(Field(name="n", type=Primitive(Kind.LONG)),))
    own = found.types(schema)
    predicate = parse_sql("n >= 1377993600000", {"n": Primitive(Kind.LONG), **own})

    projected = found.project(predicate, schema, own, strict=False)

    assert matches(projected, {"year": 2013, "month": 1})
