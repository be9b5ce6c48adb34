"""How long clients of the Iceberg catalog take: by their own plans, and by those of Lakebed.

    python bench/rest.py [--files 400 10000] [--rounds 5]

A dataset of so many small files, 200 rows each, in days of 100 files, with an inverted index on
`id`, is published beside its data and served by a process of its own. pyiceberg looks up one id,
reads one day, and reads a column of all rows: with `scan-planning-mode` client and server, by
turns. Each lookup loads the table anew. Then the length of an answer for all files, as it is and
compressed. Medians of seconds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

import lakebed

ROWS = 200
FILES_A_DAY = 100
FILES_A_COMMIT = 1000
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.timestamp("us")), ("amount", pa.float64())])
PLANNERS = ("client", "server")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, nargs="+", default=[400, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--whole-rounds", type=int, default=2, help="rounds of reading all rows; 0 for none"
    )
    given = parser.parse_args()
    print(f"{'files':>7} {'question':10} {'own plan':>9} {'/plan':>9} {'times':>7} {'planned':>8}")
    for count in given.files:
        with tempfile.TemporaryDirectory() as folder:
            make(folder, count)
            with served(folder) as place:
                measure(place, count, given.rounds, given.whole_rounds)
                sizes(place)


def make(folder: str, count: int) -> None:
    dataset = lakebed.open_repository(folder).create(
        "t",
        lakebed.DatasetDescriptor(
            schema=SCHEMA,
            partition_by=["date(at) as day", "hash(id, 100) as part"],
            index=["id"],
            properties={"publish.iceberg": "true"},
        ),
    )
    per_commit = FILES_A_COMMIT // FILES_A_DAY
    days = count // FILES_A_DAY
    for first in range(0, days, per_commit):
        tables = [rows_of(day) for day in range(first, min(first + per_commit, days))]
        dataset.append(pa.concat_tables(tables))


def rows_of(day: int) -> pa.Table:
    """Return the rows of one day, which go to FILES_A_DAY files."""
    count = ROWS * FILES_A_DAY
    begin = dt.datetime(2013, 1, 1) + dt.timedelta(days=day)
    return pa.table(
        {
            "id": [name_of(day, number) for number in range(count)],
            "at": pa.array([begin] * count, pa.timestamp("us")),
            "amount": pa.array(range(count), pa.float64()),
        }
    )


def name_of(day: int, number: int) -> str:
    return f"u{(day * 1_000_003 + number * 7919) % 10**9:09d}-{day}-{number}"


@contextmanager
def served(folder: str) -> Iterator[str]:
    command = [sys.executable, "-m", "lakebed", "serve", folder, "--iceberg", "--port", "0"]
    process = subprocess.Popen([*command, "--output", "json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        yield json.loads(text)["url"].removeprefix("http://")
    finally:
        process.terminate()
        process.wait()


def measure(place: str, count: int, rounds: int, whole_rounds: int) -> None:
    from pyiceberg.catalog import load_catalog

    days = count // FILES_A_DAY
    catalogs = {
        planner: load_catalog(
            planner, type="rest", uri=f"http://{place}", **{"scan-planning-mode": planner}
        )
        for planner in PLANNERS
    }

    def asking(condition: str, column: str) -> Callable[[str], int]:
        def ask(planner: str) -> int:
            scan = catalogs[planner].load_table("lake.t").scan(condition)
            return scan.select("day", column).to_arrow().num_rows

        return ask

    found = name_of(days // 2, 77)
    day = dt.date(2013, 1, 1) + dt.timedelta(days=days // 2)
    questions = {
        "id": (f"id = '{found}'", 1, rounds),
        "day": (f"day = '{day}'", ROWS * FILES_A_DAY, rounds),
        "all": ("amount >= 0", ROWS * count, whole_rounds),
    }
    for name, (condition, wanted, times) in questions.items():
        if times:
            seconds = by_turns(asking(condition, "amount"), wanted, times)
            own, planned = (statistics.median(seconds[planner]) for planner in PLANNERS)
            table = catalogs["server"].load_table("lake.t")
            files = len(list(table.scan(condition).plan_files()))
            print(
                f"{count:>7} {name:10} {own:>8.3f}s {planned:>8.3f}s {own / planned:>6.1f}x {files:>8}"
            )


def by_turns(ask: Callable[[str], int], wanted: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each planner, after one round that does not count."""
    seconds: dict[str, list[float]] = {planner: [] for planner in PLANNERS}
    for number in range(rounds + 1):
        for planner in PLANNERS:
            begin = time.perf_counter()
            rows = ask(planner)
            assert rows == wanted, (planner, rows, wanted)
            if number:
                seconds[planner].append(time.perf_counter() - begin)
    return seconds


def sizes(place: str) -> None:
    for coding in ("identity", "gzip"):
        connection = http.client.HTTPConnection(place)
        begin = time.perf_counter()
        path = "/v1/lake/namespaces/lake/tables/t/plan"
        connection.request("POST", path, "{}", {"accept-encoding": coding})
        data = connection.getresponse().read()
        taken = time.perf_counter() - begin
        print(f"{'':7} answer for all files, {coding}: {len(data):,} bytes in {taken:.3f} s")


if __name__ == "__main__":
    main()
