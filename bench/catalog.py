"""Lakebed's catalog for Spark SQL beside Delta Lake, plain Parquet, an attached view and the format.

Run by `make bench-catalog`, in the environment and the session of `bench/peers_spark.py`. A table of
a year has a file of a thousand rows for each day. Queries and statements are the same text for all
systems that take them, and their answers are compared. All is done in turns, as there; ratios are
medians of the rounds' ratios, below 1 the catalog is ahead.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from peers_spark import Action, Answer, Case, played, results, start
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed

DAYS = 365
ROWS_OF_DAY = 1000
FIRST_DAY = dt.date(2025, 1, 1)
SUMS = "count(*) AS n, sum(id) AS ids, round(sum(amount), 2) AS amounts"
SUMS_OF_DAY = f"SELECT {SUMS} FROM {{t}} WHERE day = '{{day}}'"


def day(number: int) -> str:
    return str(FIRST_DAY + dt.timedelta(days=number % DAYS))


def year_of_rows(spark: SparkSession) -> DataFrame:
    """Return the rows of a year; a task for each day, so that each system writes a file a day."""
    id_ = F.col("id")
    return spark.range(0, DAYS * ROWS_OF_DAY, 1, DAYS).select(
        id_,
        F.date_add(F.lit(FIRST_DAY), (id_ / ROWS_OF_DAY).cast("int")).alias("day"),
        (id_ % 977).cast("int").alias("user"),
        (id_ % 1000 / 8).alias("amount"),
        F.concat(F.lit("note of "), id_ % 5000).alias("note"),
    )


def make_tables(spark: SparkSession, directory: Path) -> dict[str, str]:
    """Return the name of the table in SQL, by system."""
    rows = year_of_rows(spark)
    lake = lakebed.open_repository(directory / "lake")
    descriptor = lakebed.DatasetDescriptor(schema=rows, partition_by="day")
    lake.create("year", descriptor).append(rows)
    lakebed.spark.attach(spark, lake, catalog="lake")
    lakebed.spark.attach(spark, lake)

    delta, parquet = directory / "delta", directory / "parquet"
    rows.write.format("delta").partitionBy("day").save(str(delta))
    rows.write.partitionBy("day").parquet(str(parquet))
    # Of a table of files Spark keeps the listing, as it does for the others' metadata.
    spark.read.schema(rows.schema).parquet(str(parquet)).createOrReplaceTempView("plain")
    spark.read.format("lakebed").load(str(directory / "lake" / "year")).createOrReplaceTempView(
        "formatted"
    )
    return {
        "lakebed": "lake.year",
        "delta": f"delta.`{delta}`",
        "parquet": "plain",
        "view": "year",
        "format": "formatted",
    }


class Statements:
    """Statements of a session on some of the tables.

    Each use of a case takes the next number, so that no two rounds ask for the same day.
    """

    def __init__(self, spark: SparkSession, tables: dict[str, str]) -> None:
        self._spark = spark
        self._tables = tables

    def case(self, name: str, text: str, systems: str, *, repeated: int = 1) -> Case:
        """Return the case of a text in which `{t}` is the table and `{day}` a day."""
        return Case(
            name=name,
            actions={
                system: self._action(self._tables[system], text, repeated)
                for system in systems.split()
            },
        )

    def _action(self, table: str, text: str, repeated: int) -> Action:
        numbers = count(7, 11)

        def run() -> Answer:
            answers = []
            for _ in range(repeated):
                number = next(numbers)
                asked = text.format(t=table, day=day(number), id=number % DAYS * ROWS_OF_DAY)
                answers.append(tuple(map(tuple, self._spark.sql(asked).collect())))
            return tuple(answers)

        return run

    def changing_case(self, name: str, text: str, systems: str) -> Case:
        """Return the case of a statement whose answer is not the same in all systems."""
        case = self.case(name, text, systems)
        return Case(name=name, actions={k: _silent(v) for k, v in case.actions.items()})


def _silent(action: Action) -> Action:
    def run() -> None:
        action()

    return run


def run(
    spark: SparkSession, directory: Path, rounds: int, small_rounds: int
) -> Iterator[list[Case]]:
    """Yield cases after their last round."""
    statements = Statements(spark, make_tables(spark, directory))
    every = "lakebed delta parquet view"
    a_day = statements.case("a day", SUMS_OF_DAY, every)
    queries = [
        statements.case("a key in a day", "SELECT id, day, user, amount, note FROM {t} WHERE day = '{day}' AND id = {id}", every),
        statements.case("all, GROUP BY", f"SELECT user % 7 AS u, {SUMS} FROM {{t}} GROUP BY 1 ORDER BY 1", every),
        statements.case("count(*)", "SELECT count(*) FROM {t}", every),
    ]  # fmt: skip
    many = statements.case("50 small queries", SUMS_OF_DAY, every, repeated=50)
    yield played([a_day, *queries], small_rounds)
    yield played([many], rounds)
    # A query of the format takes seconds: its rows come from Python.
    by_format = statements.case("a day", SUMS_OF_DAY, "lakebed format")
    yield played([by_format], 1)
    both = "lakebed delta"
    year_of_rows(spark).where("id < 1000").createOrReplaceTempView("thousand")
    changes = [
        statements.changing_case(
            "INSERT of 1,000 rows",
            "INSERT INTO {t} SELECT id + 1000000, DATE'{day}', user, amount, note FROM thousand",
            both,
        ),
        statements.changing_case(
            "MERGE of 1,000 keys of a day",
            "MERGE INTO {t} AS t USING (SELECT id + {id} AS id, DATE'{day}' AS day, user, amount + 1 AS amount, note"
            " FROM thousand) AS s ON t.id = s.id AND t.day = s.day"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            both,
        ),
        statements.changing_case(
            "UPDATE of 73 files",
            "UPDATE {t} SET amount = amount + 1 WHERE id % 100 = 3 AND day BETWEEN DATE'2025-03-01' AND DATE'2025-05-12'",
            both,
        ),
    ]
    yield played(changes, rounds)
    yield played([statements.case("all rows after that", f"SELECT {SUMS} FROM {{t}}", both)], 1)


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small-rounds", type=int, default=9)
    given = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-catalog-"))
    spark = start(directory)
    try:
        for cases in run(spark, directory, given.rounds, given.small_rounds):
            for result in results(cases):
                print(json.dumps(result), flush=True)
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
