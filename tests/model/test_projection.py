"""Predicates on entities as predicates on partitions.

The law: *strict ⊆ predicate ⊆ permissive*. A partition that the permissive projection drops holds
no match; in one that the strict projection keeps, everything matches.
"""

import datetime as dt
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import predicates

from lakebed.model.evaluate import matches
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import (
    Comparison,
    Membership,
    Op,
    Predicate,
    bind,
)
from lakebed.model.schema import Field, Kind, Primitive, Schema
from lakebed.model.sql import parse_sql

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


@settings(max_examples=5 * settings().max_examples)
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
