"""Two datasets under verbs that change rows for an hour: memory, files and head must stay as they are.

    python bench/soak.py [--minutes 60] [--pause 0.2] [--seed 1]

One process changes a document and a tree by turns, as a job that never ends would: it appends, reruns
a run, merges, deletes by id, overwrites a day, drops days that are past the retention, compacts,
publishes to Delta and Iceberg, and cleans up by a clock that is two days ahead. Another one looks up
ids and reads older versions with datasets that it has opened once, and a third is the server, asked
for pages and for the Iceberg catalog. The cache of each is small, so that it is full within minutes.
A model in memory knows which rows must be there: they are compared after each cleanup. A line of
JSON a minute has the memory of each process in MiB, and, right after a cleanup, files, objects
without logs of cleanups, and bytes of the heads. The last lines have the ratios of the last third of
the time to the middle one, and what was wrong; a ratio above 1.1, or anything that is wrong, fails.
"""

from __future__ import annotations

import argparse
import collections
import datetime as dt
import itertools
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import time_machine

import lakebed
from lakebed import Dataset, DatasetDescriptor
from lakebed.cli import main as run_command
from lakebed.model.layout import Folder
from lakebed.store.cache import PROCESS_CACHE

SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.string()), ("value", pa.int64())])
FIRST_DAY = dt.date(2026, 1, 1)
KEPT_DAYS = 4
ROUNDS_A_DAY = 30
ROUNDS_A_CLEANUP = 15
ROWS = 20
MOST_GROWTH = 1.1
LEASES = dt.timedelta(days=2)
CACHE_BYTES = 16 * 2**20  # of each process, instead of 256 MiB, so that it is soon full
HEADS: tuple[Literal["document", "tree"], ...] = ("document", "tree")

Row = dict[str, Any]


class Job:
    """One dataset, what is done to it, and the rows that it must have.

    Attributes:
        wrong: What was found wrong.
    """

    def __init__(self, lake: lakebed.Repository, head: Literal["document", "tree"], seed: int):
        descriptor = DatasetDescriptor(
            schema=SCHEMA,
            partition_by="day",
            index=["id"],
            properties={"publish.delta": "true", "publish.iceberg": "true"},
        )
        self.dataset: Dataset = lake.create(head, descriptor, head=head)
        self.wrong: list[str] = []
        self._random = random.Random(seed)
        self._rows: dict[str, Row] = {}
        self._runs: dict[str, set[str]] = {}
        self._ids = itertools.count()

    def turn(self, number: int) -> None:
        """Do what is due in a round."""
        day = FIRST_DAY + dt.timedelta(days=number // ROUNDS_A_DAY)
        self._append(day, run=f"run {number}")
        if number % 3 == 1:
            self._rerun(day, f"run {number}")
        if number % 4 == 2:
            self._merge(day)
        if number % 5 == 3:
            self._delete()
        if number % ROUNDS_A_DAY == ROUNDS_A_DAY - 1:
            self._overwrite(day)
            self._drop(day - dt.timedelta(days=KEPT_DAYS))
        if number % ROUNDS_A_CLEANUP == ROUNDS_A_CLEANUP - 1:
            self.dataset.compact()
            # No writer can be at work after that, so all goes that nothing names.
            with time_machine.travel(dt.datetime.now(dt.UTC) + LEASES):
                self.dataset.cleanup(older_than="0s", dry_run=False)
            self.compare()

    def compare(self) -> None:
        """Note it if the rows are not those of the model."""
        there = self.dataset.arrow().select(SCHEMA.names).to_pylist()
        found = collections.Counter(tuple(row.values()) for row in there)
        wanted = collections.Counter(tuple(row.values()) for row in self._rows.values())
        if found != wanted:
            lost, more = wanted - found, found - wanted
            self.wrong.append(f"{len(lost)} rows are lost, {len(more)} are there too often")

    def _new(self, day: dt.date) -> list[Row]:
        return [
            {"day": day, "id": f"i{next(self._ids)}", "value": self._random.randrange(1000)}
            for _ in range(ROWS)
        ]

    def _know(self, rows: list[Row], run: str) -> None:
        self._rows |= {row["id"]: row for row in rows}
        self._runs[run] = {row["id"] for row in rows}

    def _append(self, day: dt.date, run: str) -> None:
        rows = self._new(day)
        self.dataset.append(rows, run=run)
        self._know(rows, run)

    def _rerun(self, day: dt.date, run: str) -> None:
        rows = self._new(day)
        self.dataset.rerun(rows, run=run, replace_all=True)
        for old in self._runs[run]:
            self._rows.pop(old, None)
        self._know(rows, run)

    def _merge(self, day: dt.date) -> None:
        known = [one for one in self._rows if self._rows[one]["day"] == day]
        changed = self._random.sample(known, min(5, len(known)))
        rows = [{"day": day, "id": one, "value": -1} for one in changed] + self._new(day)[:5]
        self.dataset.merge(rows, on="id")
        self._rows |= {row["id"]: row for row in rows}

    def _delete(self) -> None:
        gone = self._random.choice(list(self._rows))
        self.dataset.delete(f"id = '{gone}'")
        del self._rows[gone]

    def _overwrite(self, day: dt.date) -> None:
        rows = self._new(day)
        self.dataset.overwrite(rows, self.dataset.kite.with_("day", day))
        self._forget(day)
        self._rows |= {row["id"]: row for row in rows}

    def _drop(self, day: dt.date) -> None:
        if self.dataset.delete(f"day <= date '{day}'") is not None:
            for each in {row["day"] for row in self._rows.values() if row["day"] <= day}:
                self._forget(each)
        self._runs = {
            run: left for run, ids in self._runs.items() if (left := ids & self._rows.keys())
        }

    def _forget(self, day: dt.date) -> None:
        self._rows = {key: row for key, row in self._rows.items() if row["day"] != day}


def read(location: str) -> None:
    """Look up ids and older versions of both datasets until the input ends."""
    lake = lakebed.open_repository(location)
    datasets = [lake.open(head) for head in HEADS]
    for line in sys.stdin:
        for dataset in datasets:
            now = dataset.at(version=dataset.version)
            rows = now.where(f"id = 'i{line.strip()}'").arrow().num_rows
            older = now.at(version=max(0, now.version - 1))
            older.count()
            assert rows <= 1, line
        sys.stdout.write("\n")
        sys.stdout.flush()


def memory_of(pid: int) -> float:
    """Return the memory of a process that is in use, in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def ask(url: str) -> None:
    """Ask the server once for each kind of answer."""
    for head in HEADS:
        for path in (f"/v1/lake/namespaces/lake/tables/{head}", f"/datasets/{head}", "/"):
            with urllib.request.urlopen(f"{url}{path}") as answer:
                answer.read()


def sizes_of(root: Path) -> Row:
    """Return the number of files of a lake, by what they are, and the length of its heads.

    Without the logs of cleanups: their number grows to `lakebed.work.cleanup_log.MOST_LOGS`, for
    which the time is too short.
    """
    logs = {root / Folder.CLEANUPS.of(head) for head in HEADS}
    found = [path for path in root.rglob("*") if path.is_file() and path.parent not in logs]
    data = [path for path in found if path.suffix == ".parquet" and "batch_id=" in str(path)]
    heads = [path.stat().st_size for head in HEADS for path in root.glob(f"{head}.by-dataset-*")]
    return {"objects": len(found), "files": len(data), "heads_kb": round(sum(heads) / 1000, 1)}


def soak(root: Path, minutes: float, pause: float, seed: int) -> bool:
    """Work for some minutes, print the figures, and return whether all stayed as it was."""
    lake = lakebed.open_repository(str(root))
    jobs = [Job(lake, head, seed + at) for at, head in enumerate(HEADS)]
    for job in jobs:
        job.turn(0)
    command = [sys.executable, __file__, "--read", str(root)]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    serve = [sys.executable, __file__, "serve", str(root), "--iceberg", "--port", "0"]
    server = subprocess.Popen([*serve, "--output", "json"], stdout=subprocess.PIPE, text=True)
    assert reader.stdin is not None
    assert reader.stdout is not None
    assert server.stdout is not None
    text = ""
    while not text.rstrip().endswith("}"):
        line = server.stdout.readline()
        if not line:
            raise RuntimeError(f"the server has ended: {text}")
        text += line
    url = json.loads(text)["url"]
    own = int(Path("/proc/self").resolve().name)
    samples: list[Row] = []
    began = told = time.monotonic()
    number = 0
    try:
        while time.monotonic() - began < 60 * minutes:
            number += 1
            for job in jobs:
                job.turn(number)
            reader.stdin.write(f"{number * ROWS}\n")
            reader.stdin.flush()
            reader.stdout.readline()
            ask(url)
            if number % ROUNDS_A_CLEANUP == ROUNDS_A_CLEANUP - 1:
                pids = {"writer": own, "reader": reader.pid, "server": server.pid}
                memory = {f"{name}_mib": round(memory_of(pid), 1) for name, pid in pids.items()}
                samples.append({"at_s": round(time.monotonic() - began), "round": number})
                samples[-1] |= memory | sizes_of(root)
                if time.monotonic() - told > 60:
                    told = time.monotonic()
                    _print(samples[-1])
            time.sleep(pause)
    finally:
        reader.stdin.close()
        server.terminate()
        reader.wait()
        server.wait()
    wrong = [f"{job.dataset.name}: {one}" for job in jobs for one in job.wrong]
    for job in jobs:
        wrong += [f"check: {one}" for one in job.dataset.check().problems]
    ratios = _ratios(samples)
    if not ratios:
        wrong.append("the time was too short for three cleanups")
    _print({"rounds": number, "versions": [job.dataset.version for job in jobs]} | ratios)
    grown = [name for name, ratio in ratios.items() if ratio > MOST_GROWTH]
    _print({"wrong": wrong, "grown": grown})
    return not (wrong or grown)


def _ratios(samples: list[Row]) -> dict[str, float]:
    """Return the last third over the middle one: medians of memory, and the most of all else.

    Files and objects come and go with each day, so that a median would be that of a few hours.
    """
    third = len(samples) // 3
    if not third:
        return {}
    middle, last = samples[third : 2 * third], samples[2 * third :]
    ratios = {}
    for name in (name for name in samples[0] if name not in ("at_s", "round")):
        of = statistics.median if name.endswith("_mib") else max
        before, after = (of([one[name] for one in part]) for part in (middle, last))
        ratios[name] = round(after / before, 3)
    return ratios


def _print(figures: Row) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Work as the arguments ask."""
    PROCESS_CACHE.max_bytes = CACHE_BYTES
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2])
        return
    if sys.argv[1:2] == ["serve"]:
        run_command(prog_name="lakebed")
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds after each round")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-soak-") as directory:
        if not soak(Path(directory), given.minutes, given.pause, given.seed):
            sys.exit(1)


if __name__ == "__main__":
    main()
