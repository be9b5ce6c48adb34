"""Twenty questions to a served lake, in the words of each engine, and the commits in between.

A condition is a tuple: `("=", column, value)` and the other comparisons, `("in", column, values)`,
`("begins", column, text)`, `("null", column)`, `("known", column)`, `("and", …)`, `("or", …)` and
`("not", condition)`.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
from pyiceberg import expressions as ie

import lakebed

BEGIN = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
KINDS = ("click", "view", "buy", "z/%=ä", None)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("n", pa.int64()),
        ("small", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(9, 2)),
        ("big", pa.decimal128(38, 10)),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
        ("date", pa.date32()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
PLAIN = SCHEMA.names[3:12]  # columns that are null now and then
Condition = tuple[Any, ...]


def event(number: int, **more: Any) -> dict[str, Any]:
    """Return a row; each has a null somewhere, and some have NaN."""
    moment = BEGIN + dt.timedelta(hours=7 * number, microseconds=number)
    row: dict[str, Any] = {
        "id": f"u{number:04d}",
        "kind": KINDS[number % len(KINDS)],
        "n": None if number % 13 == 4 else number - 50,
        "small": number % 7,
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "price": decimal.Decimal(number * 37) / 100,
        "big": decimal.Decimal(f"{number}{10**20}.0000000001"),
        "ratio": float("nan") if number % 11 == 5 else number / 8 - 3,
        "flag": number % 3 == 0,
        "date": moment.date() - dt.timedelta(days=16_000),
        "raw": bytes([0, 255, number % 5]),
        "tags": [None, "ä", ""][: number % 4],
        "place": {"x": number, "y": None},
    }
    lost = PLAIN[number % len(PLAIN)]
    return {**row, lost: row[lost] if lost == "at" else None, **more}


def fill(lake: lakebed.Repository, name: str, properties: dict[str, str]) -> lakebed.Dataset:
    """Create the dataset that is asked for."""
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA,
        partition_by=["kind", "date(at) as day"],
        index=["id"],
        properties=properties,
    )
    dataset = lake.create(name, descriptor)
    for begin in range(0, 120, 40):
        dataset.append([event(number) for number in range(begin, begin + 40)], run=f"r{begin}")
    return dataset


def _remember(dataset: lakebed.Dataset) -> None:
    if "note" not in {field.name for field in dataset.descriptor.schema.fields}:
        dataset.evolve(lambda old: old.add_field("note", "string"))
    dataset.append([event(300, note="new"), event(301)])


# What other writers do, one before each question, round and round.
COMMITS: tuple[Callable[[lakebed.Dataset], object], ...] = (
    lambda dataset: dataset.append([event(200), event(201), event(202)]),
    lambda dataset: dataset.where("kind = 'buy' AND n < -20").delete(),
    lambda dataset: dataset.overwrite([event(203), event(204)]),
    lambda dataset: dataset.rerun(
        [event(number) for number in range(30, 80)], run="r40", replace_all=True
    ),
    lambda dataset: dataset.merge([event(30, n=7), event(999)], ["id"]),
    lambda dataset: dataset.compact(gather=True),
    _remember,
)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        name: Name of the test.
        condition: The condition; None for all rows.
        columns: The columns to read.
        is_past: True to ask the version that was there first.
        is_empty: True if no row is to be found.
    """

    name: str
    condition: Condition | None = None
    columns: tuple[str, ...] = ("id", "n")
    is_past: bool = False
    is_empty: bool = False


def _day(number: int) -> dt.date:
    return (BEGIN + dt.timedelta(days=number)).date()


QUESTIONS = (
    Question(name="one id", condition=("=", "id", "u0032")),
    Question(name="three ids", condition=("in", "id", ["u0001", "u0070", "u0203", "gone"])),
    Question(name="no such id", condition=("=", "id", "u5000"), is_empty=True),
    Question(name="kind", condition=("=", "kind", "z/%=ä"), columns=("id", "kind", "day")),
    Question(name="no kind", condition=("null", "kind"), columns=("id", "kind", "tags")),
    Question(name="day", condition=("=", "day", _day(9)), columns=("id", "at", "day")),
    Question(
        name="days",
        condition=("and", (">=", "day", _day(12)), ("!=", "kind", "click")),
        columns=("id", "kind", "day", "local"),
    ),
    Question(name="range", condition=("and", (">", "n", -9), ("<=", "n", 11)), columns=("n",)),
    Question(name="few", condition=("in", "small", [0, 5]), columns=("id", "small", "place")),
    Question(name="price", condition=("=", "price", decimal.Decimal("11.47")), columns=("price",)),
    Question(
        name="big",
        condition=("<", "big", decimal.Decimal(f"20{10**20}.0000000001")),
        columns=("id", "big"),
    ),
    Question(name="instant", condition=(">=", "at", BEGIN + dt.timedelta(days=20, microseconds=1))),
    Question(
        name="clock",
        condition=("<", "local", BEGIN.replace(tzinfo=None) + dt.timedelta(days=2)),
        columns=("id", "local", "ratio"),
    ),
    Question(name="ratio", condition=("<", "ratio", 2.5), columns=("id", "ratio")),
    Question(name="flag", condition=("=", "flag", True), columns=("id", "flag", "raw")),
    Question(name="begins", condition=("begins", "id", "u003"), columns=("id", "price", "date")),
    Question(name="unknown", condition=("null", "n"), columns=("id", "n", "kind")),
    Question(
        name="neither",
        condition=("not", ("or", ("=", "flag", True), ("=", "kind", "view"))),
        columns=("id", "kind", "flag"),
    ),
    Question(name="an id of then", condition=("=", "id", "u0012"), is_past=True),
    Question(
        name="a kind of then",
        condition=("=", "kind", "buy"),
        columns=("id", "kind", "n"),
        is_past=True,
    ),
    Question(name="new field", condition=("null", "note"), columns=("id", "note", "kind")),
    Question(name="date", condition=("<", "date", dt.date(1969, 3, 30)), columns=("id", "date")),
    Question(name="all", columns=(*SCHEMA.names, "day")),
)


# The words of each engine


def _joined(word: str, parts: tuple[Any, ...], one: Callable[[Any], str]) -> str:
    return "(" + f" {word.upper()} ".join(map(one, parts)) + ")"


def columns_of(names: Sequence[str], dialect: str) -> str:
    """Return a list of columns; `at` is a word of DuckDB."""
    return ", ".join(f'"{name}"' if dialect == "duckdb" else name for name in names)


def sql_of(condition: Condition | None, dialect: str) -> str:
    """Return a condition as SQL of `lakebed`, `spark` or `duckdb`; for `daft` as a Python literal."""
    if dialect == "daft":
        return repr(condition)
    if condition is None:
        return "n IS NULL OR n IS NOT NULL" if dialect == "lakebed" else "true"
    kind, *rest = condition
    inner = functools.partial(sql_of, dialect=dialect)
    if kind in ("and", "or"):
        return _joined(kind, tuple(rest), inner)
    if kind == "not":
        return f"NOT ({inner(rest[0])})"
    column, value = columns_of(rest[:1], dialect), rest[-1]
    if kind == "null":
        return f"{column} IS NULL"
    if kind == "known":
        return f"{column} IS NOT NULL"
    if kind == "begins":
        return f"{column} LIKE '{value}%'"
    if kind == "in":
        return f"{column} IN ({', '.join(_literal(one, dialect) for one in value)})"
    return f"{column} {kind} {_literal(value, dialect)}"


def _literal(value: Any, dialect: str) -> str:
    if isinstance(value, dt.datetime):
        return _moment(value, dialect)
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    if isinstance(value, decimal.Decimal):
        text = f"{value:f}"
        return text if dialect == "lakebed" else f"CAST('{text}' AS DECIMAL(38, 10))"
    if isinstance(value, str):
        return f"'{value}'"
    return str(value).lower()


def _moment(value: dt.datetime, dialect: str) -> str:
    if dialect == "spark":
        return f"TIMESTAMP{'_NTZ' if value.tzinfo is None else ''} '{value}'"
    if dialect == "duckdb":
        return f"TIMESTAMP{'' if value.tzinfo is None else 'TZ'} '{value}'"
    return f"TIMESTAMP '{value}'"


_OPERATORS = {
    "=": (ie.EqualTo, operator.eq),
    "!=": (ie.NotEqualTo, operator.ne),
    "<": (ie.LessThan, operator.lt),
    "<=": (ie.LessThanOrEqual, operator.le),
    ">": (ie.GreaterThan, operator.gt),
    ">=": (ie.GreaterThanOrEqual, operator.ge),
}


def iceberg_of(condition: Condition | None) -> Any:
    """Return a condition as pyiceberg takes it, for which null differs from every value."""
    if condition is None:
        return ie.AlwaysTrue()
    kind, *rest = condition
    if kind in ("and", "or"):
        return functools.reduce({"and": ie.And, "or": ie.Or}[kind], map(iceberg_of, rest))
    if kind == "not":
        return iceberg_of(_negated(rest[0]))
    if kind in ("null", "known"):
        return {"null": ie.IsNull, "known": ie.NotNull}[kind](rest[0])
    column, value = rest
    if kind == "begins":
        return ie.StartsWith(column, value)
    if kind == "in":
        return ie.In(column, set(value))
    found = _OPERATORS[kind][0](column, value)
    return ie.And(found, ie.NotNull(column)) if kind == "!=" else found


_OPPOSITE = {"and": "or", "or": "and", "=": "!=", "!=": "=", "null": "known", "known": "null"}


def _negated(condition: Condition) -> Condition:
    kind, *rest = condition
    if kind in ("and", "or"):
        rest = [_negated(one) for one in rest]
    return (_OPPOSITE[kind], *rest)


def polars_of(condition: Condition | None) -> pl.Expr:
    """Return a condition as Polars takes it."""
    if condition is None:
        return pl.lit(value=True)
    kind, *rest = condition
    if kind in ("and", "or"):
        join = {"and": operator.and_, "or": operator.or_}[kind]
        return functools.reduce(join, map(polars_of, rest))
    if kind == "not":
        return ~polars_of(rest[0])
    column = pl.col(rest[0])
    if kind in ("null", "known"):
        return column.is_null() if kind == "null" else column.is_not_null()
    if kind == "begins":
        return column.str.starts_with(rest[1])
    if kind == "in":
        return column.is_in(rest[1])
    found: pl.Expr = _OPERATORS[kind][1](column, pl.lit(rest[1]))
    return found
