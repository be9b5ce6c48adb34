"""Lakebed beside Delta Lake and Apache Iceberg, in one session of Spark, on the same frame.

Run by `make bench-peers-spark`, in an environment of its own: the newest Spark for which both peers
have published jars. Spark fetches these from Maven Central. Iceberg takes a catalog of directories
(`hadoop`), and plain Parquet stands beside. Every round does all that is compared in turns, each
system at each place, after rounds that do not count. Answers of all systems are compared. Times are
medians, and ratios the medians of the rounds' ratios; below 1 Lakebed is ahead.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed import by
from lakebed.spark.java import ensure_java

JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
)
WARM_UP_ROUNDS = 2
SETTINGS = {
    "spark.jars.packages": ",".join(JARS),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
START = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
STEP_US = 6_311_000  # between two rows: 3 million are 219 days
DAY = "happened_at >= '2013-01-{0:02d}' AND happened_at < '2013-01-{1:02d}'"

Answer = tuple[object, ...]
Action = Callable[[], Answer | None]


@dataclass(kw_only=True)
class Case:
    """What all systems do in a round.

    Attributes:
        name: What it is called.
        actions: By system; each returns what must be equal, or None.
        seconds: By system, of the rounds that count.
    """

    name: str
    actions: dict[str, Action]
    seconds: dict[str, list[float]] = field(default_factory=dict)


def start(directory: Path) -> SparkSession:
    """Start the session that has all of them."""
    os.environ["JAVA_HOME"] = str(ensure_java().path)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("peers")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.sql.catalog.ice.warehouse", str(directory / "iceberg"))
    builder = builder.config("spark.sql.warehouse.dir", str(directory / "warehouse"))
    return builder.config(
        "spark.driver.extraJavaOptions", f'"-Dderby.system.home={directory}/derby"'
    ).getOrCreate()


def source(spark: SparkSession, rows: int, directory: Path) -> DataFrame:
    """Return a frame of seven columns in order of time, stored so that making it costs nobody."""
    number = F.col("id")
    begin = int(START.timestamp()) * 1_000_000
    frame = spark.range(rows).select(
        number.alias("event_id"),
        (number * 7919 % 1_000_003).cast("int").alias("user_id"),
        F.timestamp_micros(F.lit(begin) + number * STEP_US).alias("happened_at"),
        F.concat(F.lit("N"), F.lpad((number * 31 % 4043).cast("string"), 5, "0")).alias("tail"),
        F.element_at(
            F.array(*map(F.lit, ("UA", "B6", "EV", "DL", "AA"))), (number % 5 + 1).cast("int")
        ).alias("carrier"),
        F.when(number % 11 != 0, F.rand(7) * 1000 - 100).alias("delay"),
        (number % 100_000 / 100).cast("decimal(12,2)").alias("price"),
    )
    frame.write.parquet(str(directory))
    return spark.read.parquet(str(directory))


class Lakebed:
    """Datasets of Lakebed."""

    name = "lakebed"

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._repository = lakebed.open_repository(directory / "lakebed")

    def create(self, name: str, frame: DataFrame, *, by_day: bool) -> None:
        strategy = [by.date("happened_at", name="dt")] if by_day else []
        # The codec of the others' Parquet would be snappy or zstd: each has its own default.
        descriptor = lakebed.DatasetDescriptor(schema=frame, partition_by=strategy)
        self._repository.create(name, descriptor)

    def append(self, name: str, frame: DataFrame) -> None:
        self._repository.open(name).append(frame)

    def overwrite_day(self, name: str, frame: DataFrame, _: str) -> None:
        self._repository.open(name).overwrite(frame)

    def merge(self, name: str, frame: DataFrame) -> bool:
        dataset = self._repository.open(name)
        if not hasattr(dataset, "upsert"):
            return False
        dataset.upsert(frame, on=["event_id"])
        return True

    def index(self, name: str, column: str) -> None:
        self._repository.open(name).indices.build(column)

    def read(self, name: str, where: str | None = None) -> DataFrame:
        dataset = self._repository.open(name)
        view = dataset if where is None else dataset.where(where)
        return view.spark(self._spark)


class Delta:
    """Tables of Delta Lake by path; the day is a column that Delta derives from the time."""

    name = "delta"

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._root = directory / "delta"

    def _table(self, name: str) -> str:
        return f"delta.`{self._root}/{name}`"

    def create(self, name: str, frame: DataFrame, *, by_day: bool) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
        if by_day:
            columns += ", dt date GENERATED ALWAYS AS (CAST(happened_at AS DATE))"
        partitioned = " PARTITIONED BY (dt)" if by_day else ""
        self._spark.sql(f"CREATE TABLE {self._table(name)} ({columns}) USING delta{partitioned}")

    def append(self, name: str, frame: DataFrame) -> None:
        frame.write.format("delta").mode("append").save(f"{self._root}/{name}")

    def overwrite_day(self, name: str, frame: DataFrame, day: str) -> None:
        writer = (
            frame.write.format("delta").mode("overwrite").option("replaceWhere", f"dt = '{day}'")
        )
        writer.save(f"{self._root}/{name}")

    def merge(self, name: str, frame: DataFrame) -> bool:
        return _merge_by_sql(self._spark, self._table(name), frame)

    def index(self, name: str, column: str) -> None:
        """Do nothing: there is none."""

    def read(self, name: str, where: str | None = None) -> DataFrame:
        frame = self._spark.read.format("delta").load(f"{self._root}/{name}").drop("dt")
        return frame if where is None else frame.where(where)


class Iceberg:
    """Tables of Iceberg in a catalog of directories, with hidden partitions by day."""

    name = "iceberg"

    def __init__(self, spark: SparkSession, directory: Path) -> None:  # noqa: ARG002 - as the others
        self._spark = spark
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")

    def create(self, name: str, frame: DataFrame, *, by_day: bool) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in frame.dtypes)
        partitioned = " PARTITIONED BY (days(happened_at))" if by_day else ""
        self._spark.sql(f"CREATE TABLE ice.db.{name} ({columns}) USING iceberg{partitioned}")

    def append(self, name: str, frame: DataFrame) -> None:
        frame.writeTo(f"ice.db.{name}").append()

    def overwrite_day(self, name: str, frame: DataFrame, _: str) -> None:
        frame.writeTo(f"ice.db.{name}").overwritePartitions()

    def merge(self, name: str, frame: DataFrame) -> bool:
        return _merge_by_sql(self._spark, f"ice.db.{name}", frame)

    def index(self, name: str, column: str) -> None:
        """Do nothing: there is none."""

    def read(self, name: str, where: str | None = None) -> DataFrame:
        frame = self._spark.table(f"ice.db.{name}")
        return frame if where is None else frame.where(where)


class Parquet:
    """Directories of plain Parquet: no commits, and nothing that can be changed."""

    name = "parquet"

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._root = directory / "parquet"
        self._by_day: dict[str, bool] = {}

    def create(self, name: str, frame: DataFrame, *, by_day: bool) -> None:  # noqa: ARG002
        self._by_day[name] = by_day

    def append(self, name: str, frame: DataFrame) -> None:
        writer = frame
        if self._by_day[name]:
            writer = frame.withColumn("dt", F.to_date("happened_at"))
        output = writer.write.mode("append")
        if self._by_day[name]:
            output = output.partitionBy("dt")
        output.parquet(f"{self._root}/{name}")

    def read(self, name: str, where: str | None = None) -> DataFrame:
        frame = self._spark.read.parquet(f"{self._root}/{name}").drop("dt")
        return frame if where is None else frame.where(where)


def _merge_by_sql(spark: SparkSession, table: str, frame: DataFrame) -> bool:
    frame.createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {table} AS t USING changes AS s ON t.event_id = s.event_id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    return True


Transactional = Lakebed | Delta | Iceberg
System = Transactional | Parquet


def answer_of(frame: DataFrame) -> Answer:
    """Return what three columns add up to."""
    sums = (F.count("*"), F.sum("event_id"), F.sum("price"), F.round(F.sum("delay"), 3))
    return tuple(frame.agg(*sums).collect()[0])


def in_turns(cases: list[Case], rounds: int) -> None:
    """Run all cases in every round, each system at every place in turn.

    Raises:
        SystemExit: Two systems gave other answers.
    """
    for number in range(-WARM_UP_ROUNDS, rounds):
        for case in cases:
            names = list(case.actions)
            first = number % len(names)
            answers = {}
            for name in names[first:] + names[:first]:
                begin = time.perf_counter()
                answers[name] = case.actions[name]()
                if number >= 0:
                    case.seconds.setdefault(name, []).append(time.perf_counter() - begin)
            if len(set(answers.values())) > 1:
                raise SystemExit(f"{case.name}: answers differ: {answers}")


def results(cases: list[Case]) -> Iterator[dict[str, object]]:
    """Yield for each case the median of Lakebed's seconds, and its ratios to the others."""
    for case in cases:
        ours = case.seconds["lakebed"]
        result: dict[str, object] = {
            "case": case.name,
            "rounds": len(ours),
            "lakebed_s": round(statistics.median(ours), 3),
        }
        for name, theirs in case.seconds.items():
            if name != "lakebed":
                ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
                result[f"{name}_s"] = round(statistics.median(theirs), 3)
                result[f"to_{name}"] = round(statistics.median(ratios), 2)
        yield result


class Numbers:
    """Counts up, so that each table of a case has a name of its own."""

    def __init__(self) -> None:
        self._next = 0

    def next(self) -> int:
        self._next += 1
        return self._next


def appends(systems: list[System], frame: DataFrame, *, by_day: bool) -> Case:
    """Return the case of a whole frame that is appended to a new table."""
    numbers = Numbers()

    def of(system: System) -> Action:
        def append() -> None:
            name = f"{'days' if by_day else 'flat'}_{numbers.next()}"
            system.create(name, frame, by_day=by_day)
            system.append(name, frame)

        return append

    name = f"append {'by day' if by_day else 'flat'}"
    return Case(name=name, actions={system.name: of(system) for system in systems})


def small_appends(systems: list[System], name: str, small: DataFrame, table: str) -> Case:
    """Return the case of few rows that are appended to a table which has rows."""
    actions = {
        system.name: lambda system=system: system.append(table, small)  # type: ignore[misc]
        for system in systems
    }
    return Case(name=name, actions=actions)


def overwrites(systems: list[Transactional], frame: DataFrame, table: str) -> Case:
    """Return the case of a day that is replaced."""
    day = frame.where(DAY.format(5, 6))
    return Case(
        name="overwrite a day",
        actions={
            system.name: lambda system=system: system.overwrite_day(table, day, "2013-01-05")  # type: ignore[misc]
            for system in systems
        },
    )


def merges(systems: list[Transactional], frame: DataFrame, table: str) -> Case | None:
    """Return the case of a thousandth of the rows, spread over all, that are changed."""
    changes = frame.where("event_id % 1000 = 3").withColumn("delay", F.lit(0.0))
    able = [system for system in systems if system.merge(table, changes)]
    if not any(system.name == "lakebed" for system in able):
        return None
    return Case(
        name="merge of 0.1 % of the keys, spread over all files",
        actions={
            system.name: lambda system=system: system.merge(table, changes)  # type: ignore[misc]
            for system in able
        },
    )


def reads(systems: list[System], name: str, table: str, where: str | None) -> Case:
    """Return the case of a query."""
    return Case(
        name=name,
        actions={
            system.name: lambda system=system: answer_of(system.read(table, where))  # type: ignore[misc]
            for system in systems
        },
    )


def run(spark: SparkSession, directory: Path, arguments: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases, after their last round."""
    frame = source(spark, arguments.rows, directory / "source")
    transactional: list[Transactional] = [
        kind(spark, directory) for kind in (Lakebed, Delta, Iceberg)
    ]
    systems: list[System] = [*transactional, Parquet(spark, directory)]
    for system in systems:
        for name, by_day in (("flat", False), ("days", True)):
            system.create(name, frame, by_day=by_day)
            system.append(name, frame)

    if not arguments.small:
        yield from played([reads(systems, "read all", "days", None)], arguments.rounds)
        two_days = DAY.format(5, 7)
        yield from played([reads(systems, "two days by time", "days", two_days)], arguments.rounds)
        for system in transactional:
            system.index("flat", "user_id")
        one_id = reads(systems, "one id of an unsorted column", "flat", "user_id = 4711")
        yield from played([one_id], arguments.rounds)
    if arguments.reads:
        return
    yield from played([overwrites(transactional, frame, "days")], arguments.small_rounds)
    few = frame.where("event_id >= 1000 AND event_id < 1100")
    kinds = {
        "of a query": few,
        "of a limit": frame.limit(100),
        "in memory": spark.createDataFrame(few.toArrow(), few.schema),
    }
    small = [
        small_appends(systems, f"append 100 rows {kind}, {layout}", rows, table)
        for kind, rows in kinds.items()
        for layout, table in (("flat", "flat"), ("by day", "days"))
    ]
    yield from played(small, arguments.small_rounds)
    if arguments.small:
        return
    merge = merges(transactional, frame, "flat")
    if merge is None:
        print("merge: this Lakebed has none", file=sys.stderr)
    else:
        yield from played([merge], arguments.rounds)
    same = reads(list(transactional), "the whole table after all that", "flat", None)
    yield from played([same], 1)
    yield from played([appends(systems, frame, by_day=False)], arguments.rounds)
    yield from played([appends(systems, frame, by_day=True)], arguments.rounds)


def played(cases: list[Case], rounds: int) -> list[Case]:
    """Return cases after so many rounds that count."""
    in_turns(cases, rounds)
    return cases


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small-rounds", type=int, default=12)
    parser.add_argument("--small", action="store_true", help="only overwrites and small appends")
    parser.add_argument("--reads", action="store_true", help="only queries")
    parser.add_argument("--work", type=Path, help="where the tables are made; a temporary folder")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="lakebed-peers-", dir=arguments.work))
    spark = start(directory)
    try:
        print(json.dumps({"spark": spark.version, "rows": arguments.rows, "jars": JARS}))
        for case in run(spark, directory, arguments):
            for result in results([case]):
                print(json.dumps(result), flush=True)
    finally:
        spark.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
