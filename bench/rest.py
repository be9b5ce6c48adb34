"""How long clients of the Iceberg catalog take: by their own plans, and by those of Lakebed.

    python bench/rest.py [--files 400 10000] [--head tree] [--clients pyiceberg spark] [--rounds 5]

A dataset of so many small files, 200 rows each, in days of 100 files, with an inverted index on
`id`, is published beside its data and served by a process of its own. pyiceberg, and Spark in the
environment of `make doors-env`, look up one id, read one day, and read a column of all rows: with
`scan-planning-mode` client and server, by turns. Each lookup loads the table anew. Medians of
seconds. Then the length of an answer for all files, as it is and compressed.

`--metadata-only 1000000` asks for plans of a dataset without data files; `--tables 100` measures the
memory of the server before and after so many tables were loaded and planned, and after further
requests; `--far-ms 20` counts and times the requests to a store where each takes so long.
"""

from __future__ import annotations

import argparse
import datetime as dt
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakebed

ROWS = 200
FILES_A_DAY = 100
FILES_A_COMMIT = 1000
SCHEMA = pa.schema([("id", pa.string()), ("at", pa.timestamp("us")), ("amount", pa.float64())])
PLANNERS = ("client", "server")
MOST_OWN = 100_000  # files that pyiceberg plans by itself: more take it many minutes


ROOT = Path(__file__).parents[1]
DOORS = ROOT / ".venv-doors" / "bin" / "python"
PLAN = "/v1/lake/namespaces/lake/tables/{}/plan"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", type=int, nargs="*", default=[400, 10_000])
    parser.add_argument("--head", choices=["document", "tree"], default="document")
    parser.add_argument(
        "--clients", nargs="*", choices=["pyiceberg", "spark"], default=["pyiceberg"]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--whole-rounds", type=int, default=2, help="rounds of reading all rows; 0 for none"
    )
    parser.add_argument("--metadata-only", type=int, nargs="*", default=[], metavar="FILES")
    parser.add_argument("--tables", type=int, default=0, help="to measure the memory of the server")
    parser.add_argument("--requests", type=int, default=1000, help="further ones, for the memory")
    parser.add_argument("--far-ms", type=float, help="of a request to the store, for its requests")
    given = parser.parse_args()
    if given.files:
        print(
            f"{'files':>7} {'client':9} {'question':8} {'own plan':>9} {'/plan':>9} {'times':>7} "
            f"{'planned':>8}",
            flush=True,
        )
    for count in given.files:
        with tempfile.TemporaryDirectory() as folder:
            make(folder, count, given.head)
            with served(folder) as server:
                for client in given.clients:
                    measure(client, server.place, count, given.rounds, given.whole_rounds)
                sizes(server.place)
    for count in given.metadata_only:
        plans_without_data(count, given.rounds)
    if given.tables:
        memory(given.tables, given.requests)
    if given.far_ms is not None:
        far(given.far_ms)


def make(folder: str, count: int, head: str, options: Mapping[str, str] | None = None) -> None:
    lake = lakebed.open_repository(folder, storage_options=options)
    dataset = lake.create(
        "t",
        lakebed.DatasetDescriptor(
            schema=SCHEMA,
            partition_by=["date(at) as day", "hash(id, 100) as part"],
            index=["id"],
            properties={"publish.iceberg": "true"},
        ),
        head=head,
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


@dataclass(frozen=True)
class Server:
    """A process that serves a lake."""

    place: str
    process: int

    @property
    def memory_mib(self) -> float:
        for line in Path(f"/proc/{self.process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError

    def ask(self, path: str, body: str | None = None, coding: str = "gzip") -> bytes:
        connection = http.client.HTTPConnection(self.place)
        method = "GET" if body is None else "POST"
        connection.request(method, path, body, {"accept-encoding": coding})
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status == 200, data
        connection.close()
        return data


@contextmanager
def served(folder: str, *more: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "lakebed", "serve", folder, "--iceberg", "--port", "0", *more]
    process = subprocess.Popen([*command, "--output", "json"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            text += process.stdout.readline()
        yield Server(json.loads(text)["url"].removeprefix("http://"), process.pid)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def by_pyiceberg(place: str) -> Iterator[Callable[[str, str], tuple[float, int]]]:
    from pyiceberg.catalog import load_catalog

    catalogs = {
        planner: load_catalog(
            planner, type="rest", uri=f"http://{place}", **{"scan-planning-mode": planner}
        )
        for planner in PLANNERS
    }

    def ask(planner: str, condition: str) -> tuple[float, int]:
        begin = time.perf_counter()
        scan = catalogs[planner].load_table("lake.t").scan(condition)
        rows = scan.select("day", "amount").to_arrow().num_rows
        return time.perf_counter() - begin, rows

    yield ask


@contextmanager
def by_spark(place: str) -> Iterator[Callable[[str, str], tuple[float, int]]]:
    command = [str(DOORS), str(ROOT / "bench" / "rest_spark.py")]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **streams) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(planner: str, condition: str) -> tuple[float, int]:
            question = {"url": f"http://{place}", "planner": planner, "condition": condition}
            process.stdin.write(f"{json.dumps(question)}\n")
            process.stdin.flush()
            while not (line := process.stdout.readline()).startswith("{"):
                assert line, "Spark has ended"
            answer = json.loads(line)
            return answer["seconds"], answer["rows"]

        yield ask
        process.stdin.close()


def measure(client: str, place: str, count: int, rounds: int, whole_rounds: int) -> None:
    from pyiceberg.catalog import load_catalog

    days = count // FILES_A_DAY
    found = name_of(days // 2, 77)
    day = dt.date(2013, 1, 1) + dt.timedelta(days=days // 2)
    questions = {
        "id": (f"id = '{found}'", 1, rounds),
        "day": (f"day = '{day}'", ROWS * FILES_A_DAY, rounds),
        "all": ("amount >= 0", ROWS * count, whole_rounds),
    }
    table = load_catalog("x", type="rest", uri=f"http://{place}").load_table("lake.t")
    with {"pyiceberg": by_pyiceberg, "spark": by_spark}[client](place) as asking:
        for name, (condition, wanted, times) in questions.items():
            if not times:
                continue
            seconds = by_turns(lambda one, text=condition: asking(one, text), wanted, times)
            own, planned = (statistics.median(seconds[planner]) for planner in PLANNERS)
            files = len(list(table.scan(condition).plan_files()))
            print(
                f"{count:>7} {client:9} {name:8} {own:>8.3f}s {planned:>8.3f}s "
                f"{own / planned:>6.2f}x {files:>8}",
                flush=True,
            )


def by_turns(
    ask: Callable[[str], tuple[float, int]], wanted: int, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of each planner, after one round that does not count."""
    seconds: dict[str, list[float]] = {planner: [] for planner in PLANNERS}
    for number in range(rounds + 1):
        for planner in PLANNERS:
            taken, rows = ask(planner)
            assert rows == wanted, (planner, rows, wanted)
            if number:
                seconds[planner].append(taken)
    return seconds


def sizes(place: str) -> None:
    server = Server(place, 0)
    for coding in ("identity", "gzip"):
        begin = time.perf_counter()
        data = server.ask(PLAN.format("t"), "{}", coding)
        taken = time.perf_counter() - begin
        print(f"{'':7} answer for all files, {coding}: {len(data):,} bytes in {taken:.3f} s")


def plans_without_data(count: int, rounds: int) -> None:
    """Time loads and plans of a tree whose data files do not exist.

    Up to MOST_OWN files it gets metadata on storage, and pyiceberg plans by the manifests, too.
    """
    sys.path.insert(0, str(ROOT / "bench" / "scale"))
    import layout

    day, found = layout.day_to_ask(count), layout.ids_to_ask(count, 1)[0]
    bodies = {
        "load": None,
        "plan of an id": json.dumps({"filter": {"type": "eq", "term": "id", "value": found}}),
        "plan of a day": json.dumps({"filter": {"type": "eq", "term": "day", "value": str(day)}}),
        "plan of all, first page": "{}",
    }
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps({"location": folder, "count": count, "index": True})
        worker = str(ROOT / "bench" / "scale" / "tree_worker.py")
        subprocess.run(
            [sys.executable, worker, "prepare", given], check=True, stdout=subprocess.DEVNULL
        )
        with served(folder) as server:
            for name, body in bodies.items():
                path = PLAN.format("t").removesuffix("/plan" if body is None else "")
                seconds = []
                for _ in range(rounds + 1):
                    begin = time.perf_counter()
                    data = server.ask(path, body)
                    seconds.append(time.perf_counter() - begin)
                print(
                    f"{count:>9} files without data, {name}: first {seconds[0]:.3f} s, then "
                    f"{statistics.median(seconds[1:]):.3f} s, {len(data):,} bytes, "
                    f"server {server.memory_mib:.0f} MiB",
                    flush=True,
                )
        if count <= MOST_OWN:
            with served(folder, "--iceberg-metadata", f"{folder}-cache") as server:
                plans_by_pyiceberg(server.place, count, rounds, found, day)
            shutil.rmtree(f"{folder}-cache")


def plans_by_pyiceberg(place: str, count: int, rounds: int, found: int, day: dt.date) -> None:
    """Compare plans alone, of the server and of manifests; nothing is read."""
    from pyiceberg.catalog import load_catalog

    catalogs = {
        planner: load_catalog(
            f"{planner} {place}",
            type="rest",
            uri=f"http://{place}",
            **{"scan-planning-mode": planner},
        )
        for planner in PLANNERS
    }
    for name, condition, is_exact in (
        ("id", f"id = {found}", False),
        ("day", f"day = '{day}'", True),
        ("all", "amount >= 0", True),
    ):
        counts: dict[str, int] = {}

        def ask(
            planner: str, text: str = condition, counts: dict[str, int] = counts
        ) -> tuple[float, int]:
            begin = time.perf_counter()
            scan = catalogs[planner].load_table("lake.t").scan(text)
            counts[planner] = sum(1 for _ in scan.plan_files())
            return time.perf_counter() - begin, 0

        seconds = by_turns(ask, 0, rounds)
        assert not is_exact or counts["client"] == counts["server"], counts
        own, planned = (statistics.median(seconds[planner]) for planner in PLANNERS)
        print(
            f"{count:>9} files without data, plan alone of {name}: {own:.3f} s, {planned:.3f} s, "
            f"{own / planned:.2f}x, {counts['client']:,} and {counts['server']:,} files",
            flush=True,
        )


def memory(tables: int, requests: int) -> None:
    """Print the memory of a server, before and after tables were loaded and planned."""
    with tempfile.TemporaryDirectory() as folder:
        lake = lakebed.open_repository(f"{folder}/lake")
        descriptor = lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=["date(at) as day"], index=["id"]
        )
        names = [f"t{number}" for number in range(tables)]
        for name in names:
            lake.create(name, descriptor).append(rows_of(0).slice(0, 2000))
        one = json.dumps({"filter": {"type": "eq", "term": "id", "value": name_of(0, 77)}})
        with served(f"{folder}/lake", "--iceberg-metadata", f"{folder}/cache") as server:
            server.ask("/v1/config")
            found = {"before": server.memory_mib}

            def load_and_plan(name: str) -> None:
                server.ask(PLAN.format(name).removesuffix("/plan"))
                server.ask(PLAN.format(name), one)

            for name in names:
                load_and_plan(name)
            found[f"after {tables} tables"] = server.memory_mib
            for share in (1, 2):
                for number in range(requests // 4):
                    load_and_plan(names[number % tables])
                found[f"after {share * requests // 2} further requests"] = server.memory_mib
    print("; ".join(f"{name}: {mib:.0f} MiB" for name, mib in found.items()), flush=True)


def far(ms: float) -> None:
    """Print the requests of loads and plans to a store where each takes so long, and their time."""
    sys.path.insert(0, str(ROOT / "bench" / "scale"))
    from run import BUCKET, _ask, far_store, storage_of

    body = json.dumps({"filter": {"type": "eq", "term": "id", "value": name_of(1, 77)}})
    calls = {
        "load, first": None,
        "load, again": None,
        "plan of an id, first": body,
        "plan of an id, again": body,
        "plan of all": "{}",
    }
    with far_store() as endpoint:
        options, place = storage_of("lakebed", endpoint), f"s3://{BUCKET}/lake"
        make(place, 400, "document", options)
        pairs = [f"--storage-option={name}={value}" for name, value in options.items()]
        with served(place, *pairs) as server:
            for name, sent in calls.items():
                path = PLAN.format("t").removesuffix("/plan" if sent is None else "")
                _ask(f"{endpoint}/-/reset?ms={ms:g}")
                begin = time.perf_counter()
                server.ask(path, sent)
                taken = time.perf_counter() - begin
                print(f"{ms:g} ms a request, {name}: {taken:.3f} s, {_ask(f'{endpoint}/-/counts')}")


if __name__ == "__main__":
    main()
