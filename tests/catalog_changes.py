"""Random statements on a table of a catalog, with reruns and evolutions, and its rows in plain Python."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import SparkRuntimeException

import lakebed
from lakebed.arrow.scan import scan
from lakebed.errors import VersionNotFoundError
from lakebed.plan.plan import Scan
from lakebed.state import runs

SCHEMA = pa.schema(
    [
        *(("n", pa.int64()), ("a", pa.int64()), ("part", pa.int64()), ("b", pa.int64())),
        *(("at", pa.timestamp("us", "UTC")), ("i", pa.int32()), ("x", pa.float64())),
        *(("text", pa.string()),),
    ]
)
PLACES = {  # partitions of a table; those of "memory" are in this process, where no task gets
    "part": "part",
    "day": "date(at) as day",
    "bucket": "hash(n, 3) as bucket",
    "memory": "part",
}
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
Row = dict[str, Any]


@contextmanager
def started(spark: Any, folder: Path, place: str, seed: int) -> Iterator[Model]:
    """Attach a catalog, and write a table at one of `PLACES`, with its rows in a model."""
    uri = f"memory://{uuid.uuid4().hex}" if place == "memory" else folder
    lake = lakebed.open_repository(uri)
    with lakebed.spark.attach(spark, lake, catalog="lake"):
        yield Model(spark, lake, seed, PLACES[place])
    if place == "memory":
        lake.drop("t")


class Model:
    """A dataset, and its rows with their runs as plain Python has them.

    Attributes:
        rows: The rows by their key, which no statement changes.
        runs: Run of each row.
        names: Present name of each field, by its name at the start.
    """

    def __init__(self, spark: Any, lake: lakebed.Repository, seed: int, partition_by: str) -> None:
        self.spark = spark
        self.lake = lake
        self.random = random.Random(seed)
        self.rows: dict[int, Row] = {}
        self.runs: dict[int, str | None] = {}
        self.names = {name: name for name in SCHEMA.names}
        self.written: dict[str, list[int]] = {}
        self.type_of_i = "INT"
        self.added: list[str] = []
        self.log: list[str] = []
        for number, run in enumerate(("first", "second")):
            keys = list(range(number * 30, number * 30 + 30))
            rows = [self.make_row(key) for key in keys]
            lake.write("t", pa.Table.from_pylist(rows, SCHEMA), run=run, partition_by=partition_by)
            self.put(rows, run)
            self.written[run] = keys

    def make_row(self, key: int) -> Row:
        choose = self.random
        return {
            "n": key,
            "a": choose.choice([None, *range(5)]),
            "part": choose.choice([None, *range(4)]),
            "b": choose.randrange(100),
            "at": START + dt.timedelta(hours=choose.randrange(96)),
            "i": choose.choice([None, *range(10)]),
            "x": choose.choice([None, float("nan"), -0.5, 0.0, 1.5, 1e300]),
            "text": choose.choice([None, "", "one", "zwölf", "a'b"]),
        }

    def put(self, rows: list[Row], run: str | None) -> None:
        for row in rows:
            self.rows[row["n"]] = dict(row)
            self.runs[row["n"]] = run

    # Conditions: the text of SQL, and what it is for a row; None is unknown, as in SQL.

    def condition(self, side: str = "", depth: int = 0) -> tuple[str, Any]:
        choose = self.random
        kind = choose.randrange(11 if depth < 2 else 9)
        prefix = f"{side}." if side else ""

        def column(name: str) -> str:
            return f"{prefix}`{self.names[name]}`"

        if kind == 0:
            limit = choose.randrange(60)
            return f"{column('n')} < {limit}", lambda row: row["n"] < limit
        if kind == 1:
            value = choose.randrange(5)
            return (
                f"{column('a')} = {value}",
                lambda row: None if row["a"] is None else row["a"] == value,
            )
        if kind == 2:
            modulus = choose.randrange(2, 7)
            return f"{column('n')} % {modulus} = 1", lambda row: row["n"] % modulus == 1
        if kind == 3:
            limit = choose.choice([-1.0, 0.0, 1.0, 1e10])

            def greater(row: Row) -> bool | None:
                x = row["x"]
                return None if x is None else x != x or x > limit

            return f"{column('x')} > {limit!r}D", greater
        if kind == 4:
            return f"{column('part')} IS NULL", lambda row: row["part"] is None
        if kind == 5:
            moment = START + dt.timedelta(hours=choose.randrange(96))
            return (
                f"{column('at')} >= TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S}+00:00'",
                lambda row: row["at"] >= moment,
            )
        if kind == 6:
            length = choose.choice([3, 30])  # no text is that long: then no file is read
            return (
                f"length({column('text')}) = {length}",
                lambda row: None if row["text"] is None else len(row["text"]) == length,
            )
        if kind == 7:
            return (
                f"{column('text')} LIKE '%e'",
                lambda row: None if row["text"] is None else row["text"].endswith("e"),
            )
        if kind == 8:
            return (
                f"{column('text')} LIKE 'on%'",
                lambda row: None if row["text"] is None else row["text"].startswith("on"),
            )
        (one, is_one), (other, is_other) = (self.condition(side, depth + 1) for _ in range(2))
        if kind == 9:
            return f"({one} AND {other})", lambda row: both(is_one(row), is_other(row))
        return f"({one} OR NOT {other})", lambda row: either(is_one(row), opposite(is_other(row)))

    def assignment(self) -> tuple[str, Any]:
        """Return what a SET sets, and the new values of a row."""
        choose, names = self.random, self.names
        value = choose.randrange(4)
        return choose.choice(
            [
                (f"`{names['b']}` = `{names['b']}` + 1000", lambda row: {"b": row["b"] + 1000}),
                (f"`{names['part']}` = {value}", lambda row: {"part": value}),
                (
                    f"`{names['at']}` = `{names['at']}` + INTERVAL 1 DAY, `{names['x']}` = NULL",
                    lambda row: {"at": row["at"] + dt.timedelta(days=1), "x": None},
                ),
                (
                    f"`{names['a']}` = `{names['b']}`, `{names['b']}` = coalesce(`{names['a']}`, 0)",
                    lambda row: {"a": row["b"], "b": row["a"] or 0},
                ),
                (
                    f"`{names['text']}` = concat(`{names['text']}`, '!')",
                    lambda row: {"text": None if row["text"] is None else row["text"] + "!"},
                ),
            ]
        )

    def run(self, statement: str) -> None:
        self.log.append(statement)
        self.spark.sql(statement)

    def update(self) -> None:
        text, is_met = self.condition()
        assigned, values = self.assignment()
        self.run(f"UPDATE lake.t SET {assigned} WHERE {text}")
        for row in self.rows.values():
            if is_met(row):
                row.update(values(dict(row)))

    def delete(self) -> None:
        text, is_met = self.condition()
        key = self.random.randrange(60)
        text, is_chosen = self.random.choice(
            [
                (text, is_met),
                (
                    f"`n` IN (SELECT `n` FROM lake.t WHERE `n` % 10 = {key % 10}) AND {text}",
                    lambda row: row["n"] % 10 == key % 10 and is_met(row),
                ),
            ]
        )
        self.run(f"DELETE FROM lake.t WHERE {text}")
        for n in [n for n, row in self.rows.items() if is_chosen(row)]:
            del self.rows[n], self.runs[n]

    def merge(self) -> None:
        choose = self.random
        given = [self.make_row(key) for key in choose.sample(range(100), choose.randrange(1, 8))]
        fields = ["n LONG", "a LONG", "part LONG", "b LONG", "at TIMESTAMP"]
        columns = ", ".join([*fields, f"i {self.type_of_i}", "x DOUBLE", "text STRING"])
        frame = self.spark.createDataFrame([tuple(row.values()) for row in given], columns)
        frame = frame.toDF(*[self.names[name] for name in SCHEMA.names])
        for name in self.added:
            frame = frame.selectExpr("*", f"CAST(5 AS BIGINT) AS `{name}`")
        frame.createOrReplaceTempView("given")
        by_key = {row["n"]: {**row, **dict.fromkeys(self.added, 5)} for row in given}
        clauses, rules = [], []
        for _ in range(choose.randrange(3)):
            text, is_met = self.condition("t")
            if choose.random() < 0.4:
                clauses.append(f"WHEN MATCHED AND {text} THEN DELETE")
                rules.append((True, is_met, None))
            else:
                clauses.append(f"WHEN MATCHED AND {text} THEN UPDATE SET *")
                rules.append((True, is_met, lambda _row, new: new))
        inserts = choose.random() < 0.7 or not clauses
        if inserts:
            clauses.append("WHEN NOT MATCHED THEN INSERT *")
        if choose.random() < 0.5:
            text, is_met = self.condition("t")
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND {text} THEN DELETE")
            rules.append((False, is_met, None))
        self.run(f"MERGE INTO lake.t t USING given s ON t.`n` = s.`n` {' '.join(clauses)}")
        new = {key: row for key, row in by_key.items() if key not in self.rows}
        for key, row in list(self.rows.items()):
            for is_matched, is_met, change in rules:
                if (key in by_key) is not is_matched or not is_met(row):
                    continue
                if change is None:
                    del self.rows[key], self.runs[key]
                else:
                    row.update(by_key[key])
                break
        if inserts:
            self.put(list(new.values()), None)

    def rerun(self) -> None:
        """Write a run again: all rows of the run are replaced, and those of others stay."""
        run = self.random.choice(sorted(self.written))
        rows = [self.make_row(key) for key in self.written[run]]
        # Rows that another statement has inserted under the same key would be there twice.
        taken = {n for n in self.rows if self.runs[n] != run}
        rows = [row for row in rows if row["n"] not in taken]
        if not rows:
            return
        self.log.append(f"rerun {run}")
        table = pa.Table.from_pylist(rows, SCHEMA)
        if self.type_of_i == "LONG":
            table = table.set_column(5, "i", table.column("i").cast(pa.int64()))
        table = table.rename_columns([self.names[name] for name in SCHEMA.names])
        for name in self.added:
            table = table.append_column(name, pa.array([7] * len(rows), pa.int64()))
            rows = [{**row, name: 7} for row in rows]
        self.lake.open("t").rerun(table, run, replace_all=True)
        for n in [n for n, known in self.runs.items() if known == run]:
            del self.rows[n], self.runs[n]
        self.put(rows, run)

    def evolve(self) -> None:
        dataset, kind = self.lake.open("t"), self.random.randrange(3)
        self.log.append(f"evolve {kind}")
        if kind == 0:
            one, other = self.names["a"], self.names["b"]
            dataset.evolve(
                lambda old: (
                    old.rename_field(one, "between")
                    .rename_field(other, one)
                    .rename_field("between", other)
                )
            )
            self.names.update(a=other, b=one)
        elif kind == 1:
            dataset.evolve(lambda old: old.change_type("i", "long"))
            self.type_of_i = "LONG"
        else:
            name = f"added{len(self.added)}"
            dataset.evolve(lambda old: old.add_field(name, "long", default=7))
            self.added.append(name)
            for row in self.rows.values():
                row[name] = 7

    def compact(self) -> None:
        self.log.append("compact")
        self.lake.open("t").compact()

    def select(self) -> None:
        """Read rows by the catalog: those of a condition, or those that a join needs."""
        text, is_met = self.condition("t")
        if self.random.random() < 0.5:
            key = self.random.randrange(100)  # of a row that may be gone: then no file is read
            part = self.rows[key]["part"] if key in self.rows else None
            text = f"{text} AND s.`n` = {key}"
            source = (
                f"lake.t t JOIN lake.t s ON t.`{self.names['part']}` = s.`{self.names['part']}`"
            )
            wanted = [row for row in self.rows.values() if is_met(row) and row["part"] == part]
            wanted = [] if part is None else wanted
        else:
            source = "lake.t t"
            wanted = [row for row in self.rows.values() if is_met(row)]
        self.log.append(f"SELECT t.* FROM {source} WHERE {text}")
        found = self.spark.sql(self.log[-1]).toArrow().to_pylist()
        texts = sorted(text_of(self.at_the_start(row)) for row in found)
        assert texts == sorted(map(text_of, wanted)), self.log[-3:]

    def fail(self) -> None:
        """Give a statement that fails: the error is what Spark or Lakebed raised, no row changes."""
        name, failing = self.names["text"], "CAST(raise_error('no') AS STRING)"
        text, error = self.random.choice(
            [
                (
                    f"INSERT INTO lake.t SELECT * FROM lake.t WHERE {failing} = `{name}`",
                    SparkRuntimeException,
                ),
                (f"UPDATE lake.t SET `{name}` = {failing} WHERE `n` < 100", SparkRuntimeException),
                ("SELECT * FROM lake.t VERSION AS OF 10000", VersionNotFoundError),
            ]
        )
        with pytest.raises(error):
            self.run(text)

    def play(self, steps: Iterable[str]) -> None:
        """Do some steps by their names, and compare the rows after each."""
        self.check()
        for step in steps:
            getattr(self, step)()
            self.check()

    def at_the_start(self, row: Row) -> Row:
        """Return a row with the names that its columns had at the start."""
        own = {present: name for name, present in self.names.items()}
        return {own.get(name, name): value for name, value in row.items()}

    def check(self) -> None:
        """Compare all rows, and the run of each."""
        dataset = self.lake.open("t")
        chosen = dataset.plan()
        state, store = chosen.state, chosen.store
        known = runs.read(store, state.lists)
        found: list[tuple[str, str | None]] = []
        for file in chosen.files:
            alone = Scan(layout=state.layout, files=(file,))
            for row in scan(store, alone).read_all().to_pylist():
                text = text_of(self.at_the_start(row))
                found.append((text, runs.shown_run(known.of(file.label))))
        expected = [(text_of(row), self.runs[n]) for n, row in self.rows.items()]
        assert sorted(found, key=repr) == sorted(expected, key=repr), self.log[-3:]


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if None in (one, other) else True


def either(one: bool | None, other: bool | None) -> bool | None:
    return opposite(both(opposite(one), opposite(other)))


def opposite(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def text_of(row: Row) -> str:
    return repr(sorted({**row, "at": row["at"].isoformat()}.items()))
