"""Changes, differences and streams of versions whose directories have other levels."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest
from dimension_lake import descriptor, new_store, row, three
from effort import cases
from inside import store_of

import lakebed
from lakebed import Dataset, DimensionSchema
from lakebed.arrow.scan import scan
from lakebed.errors import PredicateError, SchemaMismatchError
from lakebed.model.allowed import read_allowed
from lakebed.model.dimensions import DimensionRule
from lakebed.model.predicate import Predicate
from lakebed.model.sql_predicates import parse_sql
from lakebed.plan.search import plan
from lakebed.web.comparison import compare
from lakebed.work.commits import CommitStream

FIELDS = ("channel", "n", "id")


def schema_of(**allowed: Any) -> DimensionSchema:
    rules = (
        DimensionRule(field_name=name, allowed=read_allowed(rule, name))
        for name, rule in allowed.items()
    )
    return DimensionSchema(dimensions=tuple(rules))


RULES = {
    "replaced": schema_of(n="*"),
    "added": schema_of(channel=["beta"], n="*"),
    "removed": schema_of(channel=["beta"]),
    "swapped": schema_of(n=[0], channel=["beta"]),
    "narrower": schema_of(channel=["esr"], n="*"),
}
EVOLVED: dict[str, Any] = {
    "as it was": lambda known: known,
    "field added": lambda known: known.add_field("m", "string"),
    "field of the name of a former level": lambda known: known.add_field(
        "channel_dimension", "string"
    ),
    "field renamed": lambda known: known.rename_field("channel", "c"),
    "field dropped": lambda known: known.drop_field("channel"),
}


def of_two_levels() -> Dataset:
    """A dataset of three batches of four rows, in directories of channel and n."""
    dataset = lakebed.Repository(new_store()).create("d", descriptor(n="*"))
    for number in range(3):
        dataset.append([row(one, number) for one in ("beta", "esr", "own", None)])
    return dataset


def rerouted(rule: str) -> Dataset:
    dataset = three() if rule in ("replaced", "added") else of_two_levels()
    dataset.dimensions.promote(RULES[rule], reroute=True)
    return dataset


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        *itertools.product(RULES, ["as it was", "field added", "field renamed"]),
        ("replaced", "field of the name of a former level"),
        ("replaced", "field dropped"),
    ],
)
def test_changes_and_differences_reach_behind_other_levels(rule: str, change: str) -> None:
    dataset = rerouted(rule)
    dataset.evolve(EVOLVED[change])
    dataset.append([{"n": 7, "id": 99}])
    last = dataset.version

    assert dataset.changes(2).arrow().select(["id", "_version"]).to_pylist() == [
        *[{"id": 2, "_version": 3}] * 4,
        {"id": 99, "_version": last},
    ]
    every = dataset.changes(0).arrow()
    assert tuple(every.schema.names[:-3]) == dataset.descriptor.schema.names
    shown = every.select(list(dataset.descriptor.schema.names)).to_pylist()
    assert Counter(map(str, shown)) == Counter(map(str, dataset.arrow().to_pylist()))
    assert dataset.changes(3, net=True).arrow()["id"].to_pylist() == [99]
    assert dataset.diff(3).rows("id").to_pylist() == [{"operation": "added", "id": 99}]
    assert dataset.diff(last, 3).rows().num_rows == 1


def test_changes_and_differences_add_up_to_the_versions() -> None:
    numbers = random.Random(1)
    for _ in range(cases(2)):
        dataset = three()
        for step in range(3):
            dataset.append([row("esr", 100 + step, step)])
            dataset.where(f"id IN (0, {99 + step})").update_rows({"n": "n + 1"})
            dataset.dimensions.promote(numbers.choice(list(RULES.values())), reroute=True)
            dataset.where(f"id = {numbers.randrange(3)}").delete()
        versions = [rows_at(dataset, version) for version in range(dataset.version + 1)]
        for first, last in itertools.combinations(range(len(versions)), 2):
            for net in (False, True):
                changes = dataset.changes(first, last, net=net)
                assert sums(changes, "_change", "insert") == between(versions, first, last)
            for start, end in ((first, last), (last, first)):
                rows = dataset.diff(start, end).rows().to_pylist()
                assert sums(rows, "operation", "added") == between(versions, start, end)


def rows_at(dataset: Dataset, version: int) -> Counter[str]:
    return Counter(map(str, dataset.at(version=version).arrow().to_pylist()))


def sums(rows: Any, column: str, plus: str) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in rows:
        total[str({name: one[name] for name in FIELDS})] += 1 if one[column] == plus else -1
    return {text: count for text, count in total.items() if count}


def between(versions: list[Counter[str]], start: int, end: int) -> dict[str, int]:
    total = Counter(versions[end])
    total.subtract(versions[start])
    return {text: count for text, count in total.items() if count}


def test_columns_are_those_of_the_newer_version_and_missing_levels_are_null() -> None:
    replaced, narrower = rerouted("replaced"), rerouted("narrower")

    rows = replaced.diff(4, 3).rows(["id", "n_dimension"]).to_pylist()
    values = narrower.diff(4, 3).rows("channel_dimension").to_pylist()

    assert {"operation": "removed", "id": 0, "n_dimension": "0"} in rows
    assert {"operation": "added", "id": 0, "n_dimension": None} in rows
    with pytest.raises(SchemaMismatchError, match="channel_dimension"):
        replaced.diff(4, 3).rows("channel_dimension")
    assert {"operation": "added", "channel_dimension": "beta"} in values


@pytest.mark.parametrize("rule", RULES)
def test_condition_on_a_comparison_loses_no_row_of_a_side(rule: str) -> None:
    dataset = rerouted(rule)
    dataset.append([row("esr", 99)])

    for channel in ("beta", "esr", "own"):
        compared = compare(dataset, 3, 5, f"channel = '{channel}'")
        assert (compared.added_count, compared.removed_count) == (channel == "esr", 0)


def test_condition_on_a_level_that_older_directories_lack_is_refused() -> None:
    with pytest.raises(PredicateError, match="levels channel_dimension, batch_id") as caught:
        compare(rerouted("replaced"), 3, 4, "n_dimension = '0'")

    assert caught.value.hint == "Name the field 'n', which it is made of, instead."


@pytest.mark.parametrize("rule", [*RULES, "wider"])
def test_stream_from_before_loses_no_row(rule: str) -> None:
    if rule == "wider":
        dataset = three()
        dataset.dimensions.promote({"channel": ["beta", "esr"]})
    else:
        dataset = rerouted(rule)
    dataset.append([row("esr", 99, 7)])
    stream = CommitStream(store_of(dataset), "d")
    deliveries = list(stream.between(stream.start_at_version(2), stream.end()))
    state = stream.holding(deliveries)

    def read(text: str) -> list[int]:
        condition: Predicate = parse_sql(text, state.layout.predicate_types)
        planned = plan(state, condition, requests=0, store=store_of(dataset))
        ids: list[int] = scan(store_of(dataset), planned, ["id"]).read_all()["id"].to_pylist()
        return sorted(ids)

    assert read("id >= 0") == [*[1] * 4, *[2] * 4, 99]
    assert read("channel = 'esr'") == [1, 2, 99]
    assert read("channel = 'beta' OR n = 7") == [1, 2, 99]


@pytest.mark.spark
def test_spark_reads_across_levels_too(spark: Any, tmp_path: Any) -> None:
    dataset = lakebed.open_repository(tmp_path).create("d", descriptor())
    dataset.append([row("beta", 1), row("own", 2)])
    dataset.dimensions.promote(RULES["replaced"], reroute=True)
    dataset.append([row("own", 3, 7)])

    changes = dataset.changes(0).spark(spark).select("id", "_version").collect()
    shown = dataset.diff(2, 1).spark(spark, ["id", "n_dimension"]).collect()
    stream = spark.readStream.format("lakebed").option("startingVersion", 1)
    stream = stream.option("where", "channel = 'own'").option("columns", "id,n_dimension")
    query = stream.load(dataset.uri).writeStream.format("memory").queryName("across_levels")
    query.trigger(availableNow=True).start().awaitTermination()

    assert sorted(map(tuple, changes)) == [(1, 1), (2, 1), (3, 3)]
    assert sorted(map(str, map(tuple, shown))) == [
        "('added', 1, None)",
        "('added', 2, None)",
        "('removed', 1, '0')",
        "('removed', 2, '0')",
    ]
    read = spark.table("across_levels").collect()
    assert sorted(map(tuple, read)) == [(2, None), (3, "7")]
