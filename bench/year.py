"""A year of hourly runs of one pipeline, by a clock that the program sets.

    python bench/year.py                     365 days of 24 runs
    python bench/year.py --days 60 --every 6
    python bench/year.py --days 120 --keep 20
    python bench/year.py --beside 2160 8760  two pipelines in turns, with so many files read before

Each hour a raw file is pushed to an archive, and the pipeline runs: it reads the file, checks its
rows, deletes days that are past the retention, merges small files, updates a Delta table and
deletes dead files. Lake and archive are in the memory of this process, so that requests are counted
and nothing waits. A line of JSON a month gives medians of a run: requests of each kind, processor
time, live files, bytes of the head, objects and bytes of the lake. Before each tenth run a dry run
of the cleanup states what it would delete; what is then deleted must be the same.

The last line has the ratio of the last month to the third, in which the retention first deletes.
`cpu_units` is the processor time of a run over that of a fixed piece of work that follows it: on a
busy machine both get slower together.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import functools
import io
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import time_machine

import lakebed
from lakebed.store.memory import MemoryStore

START = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
KEEP_DAYS = 60
ROWS = 50
RECORDS = ("_lakebed.runs/", "events/cleanups/")  # of runs and of cleanups: up to 500 of each
_REQUESTS = (
    "get",
    "get_if_changed",
    "get_range",
    "size",
    "stat",
    "create",
    "replace",
    "put",
    "put_stream",
    "list",
    "delete",
    "open_input",
)
_READS = {"get", "get_if_changed", "get_range", "size", "stat", "open_input"}

SCHEMA = """\
{"type": "record", "name": "event", "fields": [
  {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
  {"name": "sensor", "type": "string"},
  {"name": "value", "type": "long"}
]}
"""

DECLARATION = """\
[source]
storage = "memory://year-raw"
what = "events"
format = "json"

[dataset]
into = "memory://year-lake/events"
schema = "event.avsc"
partition_by = "date(at) as day"
index = ["sensor"]

[checks]
values = {rows = "value >= 0", on_failure = "quarantine"}

[ingest]
start = "-2d"
supersede = "path"

[layout]
min_files = 8

[publish]
delta = true

[retention]
keep = "KEEPd"

[cleanup]
older_than = "1d"
"""


def count_requests(patch: Callable[[type, str, Any], None] = setattr) -> Counter[str]:
    """Count the calls of all stores in memory from now on."""
    counts: Counter[str] = collections.Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def call_counted(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return call(*arguments, **named)

        return call_counted

    for name in _REQUESTS:
        patch(MemoryStore, name, counted(name, getattr(MemoryStore, name)))
    return counts


def push(archive: lakebed.Archive, hour: dt.datetime, part: int = 0) -> None:
    """Push the file of an hour, or one of several."""
    lines = (
        json.dumps(
            {
                "at": (hour + dt.timedelta(seconds=60 * number)).isoformat(),
                "sensor": f"s{number % 7}",
                "value": number,
            }
        )
        for number in range(ROWS)
    )
    archive.push(
        io.BytesIO("".join(f"{line}\n" for line in lines).encode()),
        path=f"/log/{hour:%Y-%m-%dT%H}{part or ''}.jsonl",
        what="events",
        where="here",
        start=hour,
        end=hour + dt.timedelta(minutes=59),
    )


def fixed_work() -> float:
    """Return the processor time of a piece of work that is the same in each run, in seconds."""
    began = time.process_time()
    for _ in range(20):
        json.loads(json.dumps([{"sensor": f"s{number % 7}"} for number in range(500)]))
    return time.process_time() - began


def simulate(
    days: int, every: int, directory: Path, counts: Counter[str], keep: int = KEEP_DAYS
) -> Iterator[dict[str, Any]]:
    """Run the pipeline by the clock, and yield what each run was."""
    (directory / "event.avsc").write_text(SCHEMA)
    (directory / "events.toml").write_text(DECLARATION.replace("KEEPd", f"{keep}d"))
    with time_machine.travel(START, tick=False) as clock:
        archive = lakebed.open_archive("memory://year-raw")
        pipeline = lakebed.Pipeline.from_toml(directory / "events.toml")
        lake = lakebed.open_repository("memory://year-lake")
        for number in range(days * 24 // every):
            now = START + dt.timedelta(hours=number * every)
            clock.move_to(now + dt.timedelta(hours=1, seconds=1))
            push(archive, now)
            predicted = None
            if number and number % 10 == 0:
                pipeline.run(only=["ingest", "retain", "compact", "publish"])
                predicted = pipeline.run(dry_run=True, only=["cleanup"])["cleanup"].facts
            counts.clear()
            began = time.process_time()
            report = pipeline.run()
            seconds = time.process_time() - began
            requests = dict(counts)
            if report.exit_code:
                raise SystemExit(f"run {number} ended with {report.exit_code}: {report}")
            if predicted is not None:
                deleted = report["cleanup"].facts
                same = ("object_count", "size_bytes")
                if [predicted[key] for key in same] != [deleted[key] for key in same]:
                    raise SystemExit(f"run {number}: predicted {predicted}, deleted {deleted}")
                continue  # its run had nothing left to read
            events = lake.open("events")
            stored = list(lake.store.list(""))
            yield {
                "run": number,
                "month": number * every // (24 * 30),
                "cpu_s": seconds,
                "cpu_units": seconds / fixed_work(),
                "reads": sum(count for name, count in requests.items() if name in _READS),
                "lists": requests.get("list", 0),
                "writes": sum(requests.get(name, 0) for name in ("create", "replace", "put")),
                "deletes": requests.get("delete", 0),
                "files": len(events.files()),
                "rows": events.count(),
                "head_bytes": len(lake.store.get("events.by-dataset-metadata.json").data),
                "objects": len(stored),
                "records": sum(1 for info in stored if info.key.startswith(RECORDS)),
                "lake_bytes": sum(info.size_bytes for info in stored),
            }


class Beside:
    """A pipeline that has read some raw files before its first measured run."""

    def __init__(self, directory: Path, count: int, clock: Any) -> None:
        """Read so many files, the last 90 in a run each."""
        folder = directory / str(count)
        folder.mkdir()
        declared = DECLARATION.replace("KEEPd", "2d")
        for name in ("year-raw", "year-lake"):
            declared = declared.replace(name, f"{name}-{count}")
        (folder / "event.avsc").write_text(SCHEMA)
        (folder / "events.toml").write_text(declared)
        self._archive = lakebed.open_archive(f"memory://year-raw-{count}")
        self._pipeline = lakebed.Pipeline.from_toml(folder / "events.toml")
        self._clock = clock
        self._hours = 0
        while count > 90:
            self.run(min(365, count - 90))
            count -= 365
        for _ in range(90):
            self.run()

    def run(self, files: int = 1) -> float:
        """Read the files of the next hour; return the processor time of the run in seconds."""
        now = START + dt.timedelta(hours=self._hours)
        self._hours += 1
        self._clock.move_to(now + dt.timedelta(hours=1, seconds=1))
        for part in range(files):
            push(self._archive, now, part)
        began = time.process_time()
        self._pipeline.run()
        return time.process_time() - began


def compare(few: int, many: int, runs: int = 41) -> dict[str, Any]:
    """Let two pipelines run in turns, of which one has read more files before."""
    with (
        tempfile.TemporaryDirectory() as directory,
        time_machine.travel(START, tick=False) as clock,
    ):
        beside = [Beside(Path(directory), count, clock) for count in (few, many)]
        pairs = [tuple(one.run() for one in beside) for _ in range(runs)]
    medians = [statistics.median(times) for times in zip(*pairs, strict=True)]
    return {
        "files": [few, many],
        "runs": runs,
        "cpu_s": [round(median, 4) for median in medians],
        "ratio": round(medians[1] / medians[0], 2),
        "ratio_of_pairs": round(statistics.median(late / early for early, late in pairs), 2),
    }


def main() -> None:
    """Run, and print a line of JSON for each month."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--every", type=int, default=1, help="hours between runs")
    parser.add_argument("--keep", type=int, default=KEEP_DAYS, help="days of rows that are kept")
    parser.add_argument("--beside", type=int, nargs=2, metavar=("FEW", "MANY"))
    options = parser.parse_args()
    if options.beside:
        print(json.dumps(compare(*options.beside)))
        return
    months: dict[int, list[dict[str, Any]]] = {}
    medians: dict[int, dict[str, float]] = {}

    def close(month: int) -> None:
        keys = [key for key in months[month][0] if key not in ("run", "month")]
        medians[month] = {
            key: round(statistics.median(run[key] for run in months[month]), 4) for key in keys
        }
        print(
            json.dumps({"month": month, "runs": len(months[month]), **medians[month]}), flush=True
        )

    with tempfile.TemporaryDirectory() as directory:
        runs = simulate(
            options.days, options.every, Path(directory), count_requests(), options.keep
        )
        for run in runs:
            if run["month"] not in months and months:
                close(max(months))
            months.setdefault(run["month"], []).append(run)
        close(max(months))
    last = max(month for month in months if len(months[month]) > 5)
    if last > 3:
        ratios = {
            key: round(value / medians[3][key], 2)
            for key, value in medians[last].items()
            if medians[3][key]
        }
        print(json.dumps({"month": f"{last} / 3", **ratios}))


if __name__ == "__main__":
    main()
