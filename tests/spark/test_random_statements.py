"""Random conditions of statements choose the rows that Spark's SELECT shows, or are refused by name.

Spark evaluates each condition on a plain Parquet file, as a value and not as a filter, so that it
pushes nothing to the file.
"""

from __future__ import annotations

import collections
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_conditions import Conditions, make_rows

import lakebed
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.sql_dialect import parse_condition
from lakebed.sql.session_meaning import SessionMeaning, column_types_of
from lakebed.sql.statement_columns import Sides

pytestmark = pytest.mark.spark

_log = logging.getLogger(__name__)

ROW_COUNT = 60
AT_ONCE = 25  # conditions of one statement or query
ZONES = ("UTC", "America/New_York", "Asia/Tokyo", "Pacific/Apia")
LAYOUTS: dict[str, dict[str, Any]] = {
    "one partition": {},
    "partitions by a value": {"partition_by": "b", "index": ["s", "i"]},
    "partitions by a day": {"partition_by": "date(t) as day", "index": ["d"]},
}
# Each query is asked once: to compile it takes longer than to interpret it.
CHEAP_PLANS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
Answer = frozenset[int] | str
"""Ids of the rows, or why there are none."""
Ask = Callable[[Sequence[str]], list[Answer]]


def make_lake(directory: Path, seed: int, layout: str) -> lakebed.Repository:
    """Make the dataset `t`, and `tagged`, which has its rows once for each `k`."""
    lake = lakebed.open_repository(directory)
    rows = make_rows(ROW_COUNT, seed)
    tags = pa.array(range(AT_ONCE), pa.int64())
    copies = [rows.append_column("k", pa.repeat(tag, len(rows))) for tag in tags]
    for start in range(0, ROW_COUNT, 12):
        lake.write("t", rows.slice(start, 12), **LAYOUTS[layout])
        part = pa.concat_tables([copy.slice(start, 12) for copy in copies])
        lake.write("tagged", part, **LAYOUTS[layout])
    return lake


def as_values(spark: Any) -> Ask:
    """Return what evaluates conditions as columns of one query of Spark."""

    def ask(conditions: Sequence[str]) -> list[Answer]:
        columns = ", ".join(f"({text}) AS c{n}" for n, text in enumerate(conditions))
        rows = spark.sql(f"SELECT id, {columns} FROM whole").collect()
        return [frozenset(row.id for row in rows if row[1 + n]) for n in range(len(conditions))]

    return ask


def as_filters(spark: Any) -> Ask:
    """Return what evaluates conditions as filters of the attached dataset."""

    def ask(conditions: Sequence[str]) -> list[Answer]:
        parts = [f"SELECT {n} AS n, id FROM t WHERE {text}" for n, text in enumerate(conditions)]
        rows = spark.sql(" UNION ALL ".join(parts)).collect()
        return [frozenset(row.id for row in rows if row.n == n) for n in range(len(conditions))]

    return ask


def as_statement(spark: Any, lake: lakebed.Repository, verb: str) -> Ask:
    """Return what evaluates conditions by a DELETE or UPDATE, each on the rows of its tag."""

    dataset = lake["tagged"]

    def ask(conditions: Sequence[str]) -> list[Answer]:
        version = dataset.version
        tagged = " OR ".join(f"(k = {n} AND {text})" for n, text in enumerate(conditions))
        lake.sql(f"{verb} WHERE {tagged}", spark, write=True)
        rest = {tuple(row.values()) for row in dataset.arrow(["k", "id"]).to_pylist()}
        if dataset.version != version:
            dataset.rollback(version=version)
        return [
            frozenset(row for row in range(ROW_COUNT) if (n, row) not in rest)
            for n in range(len(conditions))
        ]

    return ask


def as_view(lake: lakebed.Repository, way: str) -> Ask:
    """Return what evaluates one condition without Spark."""

    def ask(conditions: Sequence[str]) -> list[Answer]:
        (text,) = conditions
        if way == "where":
            rows = lake["t"].where(text).arrow(["id"])
        else:
            rows = lake.sql(f"SELECT id FROM t WHERE {text}")
        return [frozenset(rows["id"].to_pylist())]

    return ask


@contextlib.contextmanager
def settings(spark: Any, values: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name) for name in values}
    for name, value in values.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def answers(ask: Ask, conditions: Sequence[str], size: int) -> list[Answer]:
    """Ask for many conditions at once; where one is refused, for each alone."""
    from pyspark.errors import PySparkException

    found: list[Answer] = []
    for start in range(0, len(conditions), size):
        chunk = conditions[start : start + size]
        try:
            found += ask(chunk)
        except (InvalidInputError, PredicateError, PySparkException) as error:
            why = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            found += [why] if len(chunk) == 1 else answers(ask, chunk, 1)
    return found


def refusals(spark: Any, dataset: lakebed.Dataset, conditions: Sequence[str]) -> list[str]:
    """Return why a statement of the session refuses each condition; empty if it takes it."""
    types = column_types_of(dataset)
    meaning = SessionMeaning(spark, Sides(dataset.name, types), types)
    reasons = []
    for text in conditions:
        try:
            meaning.condition(parse_condition(text))
            reasons.append("")
        except PredicateError as error:
            reasons.append(error.message)
    return reasons


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        (AT_ONCE, 1),
        *(pytest.param(2_000, seed, marks=pytest.mark.long) for seed in (2, 3, 4)),
    ],
)
@pytest.mark.parametrize("zone", ZONES)
def test_each_statement_chooses_the_rows_that_spark_shows_in_its_zone(
    spark: Any, tmp_path: Path, zone: str, count: int, seed: int
) -> None:
    layout = list(LAYOUTS)[(seed + ZONES.index(zone)) % len(LAYOUTS)]
    lake = make_lake(tmp_path / "lake", seed, layout)
    pq.write_table(lake["t"].arrow(), tmp_path / "whole.parquet")
    spark.read.parquet(str(tmp_path / "whole.parquet")).createOrReplaceTempView("whole")
    generator = Conditions(seed + 10 * ZONES.index(zone))
    conditions = [generator.make() for _ in range(count)]
    found: dict[str, list[Answer]] = {}

    with settings(spark, {**CHEAP_PLANS, "spark.sql.session.timeZone": zone}):
        wanted = dict(zip(conditions, answers(as_values(spark), conditions, 100), strict=True))
        with lakebed.spark.attach(spark, lake):
            found["SELECT"] = answers(as_filters(spark), conditions, AT_ONCE)
            reasons = refusals(spark, lake["tagged"], conditions)
            taken = [text for text, why in zip(conditions, reasons, strict=True) if not why]
            for verb in ("DELETE FROM tagged", "UPDATE tagged SET id = -1 - id"):
                ask = as_statement(spark, lake, verb)
                by_text = dict(zip(taken, answers(ask, taken, AT_ONCE), strict=True))
                found[verb] = [
                    why or by_text[text] for text, why in zip(conditions, reasons, strict=True)
                ]
    if zone == "UTC":  # what Lakebed means without a session
        for way in ("where", "sql"):
            found[way] = answers(as_view(lake, way), conditions, 1)

    assert not [
        (way, text, answer, wanted[text])
        for way, answers_ in found.items()
        for text, answer in zip(conditions, answers_, strict=True)
        if answer != wanted[text] and not isinstance(answer, str)
    ]
    kinds = collections.Counter(
        (way, answer.split(": ")[-1])
        for way, answers_ in found.items()
        for answer in answers_
        if isinstance(answer, str)
    )
    _log.info(
        "%s, %s, %d conditions by %s; refused: %s", zone, layout, count, [*found], dict(kinds)
    )
    assert sum(kinds.values()) < 0.4 * count * len(found)
    assert all(isinstance(answer, frozenset) for answer in found["SELECT"])
