"""Upkeep that is killed with signal 9 at its writes, and several at once: the next call does the rest."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import CleanupRule, DatasetDescriptor

SOURCE = Path(lakebed.__file__).parents[1]
SCHEMA = pa.schema([("day", pa.date32()), ("n", pa.int64())])
TODAY = dt.datetime.now(dt.UTC).date()
NAMES = ("a", "b")

pytestmark = pytest.mark.crash

Rows = Counter[tuple[dt.date, int]]


class Worker:
    """A process that does upkeep in forked children."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "upkeep_worker.py")],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def run(self, *children: dict[str, Any]) -> list[str | int]:
        """Run children at once, and return their ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(children) + "\n")
        self._process.stdin.flush()
        ends: list[str | int] = json.loads(self._process.stdout.readline())
        return ends


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


class Lake:
    """Two datasets in which each step has something to do, one with a protected version."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.saved = root.with_name("saved")
        self.kept: dict[str, Rows] = {}
        self.all: dict[str, Rows] = {}
        lake = self.open()
        for name in NAMES:
            properties = {
                "retention.keep": "30d",
                "retention.delete_where": "n = 5",
                "publish.delta": "true",
            }
            descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="day", properties=properties)
            dataset = lake.create(name, descriptor)
            self.kept[name], self.all[name] = Counter(), Counter()
            for n in range(8):
                days = (TODAY - dt.timedelta(days=age) for age in (1, 100))
                rows = [{"day": day, "n": n} for day in days]
                dataset.append(rows)
                self.all[name].update((row["day"], n) for row in rows)
                self.kept[name].update((row["day"], n) for row in rows[:1] if n != 5)
        lake.open("a").protections.add(version=8, reason="audit")
        shutil.copytree(self.root, self.saved)

    def open(self) -> lakebed.Repository:
        return lakebed.open_repository(self.root, storage_options={"durable": "false"})

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.saved, self.root)

    def rows(self, name: str, version: int | None = None) -> Rows:
        dataset: Any = self.open().open(name)
        view = dataset if version is None else dataset.at(version=version)
        return Counter((row["day"], row["n"]) for row in view.arrow().to_pylist())

    def check_whole(self) -> None:
        """Check what a reader sees: all rows that stay, once, and none that nobody wrote."""
        for name in NAMES:
            rows = self.rows(name)
            assert self.kept[name] <= rows <= self.all[name]

    def check_next_call_does_the_rest(self) -> None:
        lake = self.open()
        lake.maintain(cleanup=CleanupRule(older_than="0s"))
        for name in NAMES:
            assert self.rows(name) == self.kept[name]
            assert lake.open(name).check(deep=True).is_ok
        assert self.rows("a", version=8) == self.all["a"]
        again = lake.maintain(cleanup=CleanupRule(older_than="0s"))
        others = [step.status for step in again.steps if step.step != "cleanup"]
        assert set(others) == {"nothing"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("upkeep") / "lake")


@pytest.mark.parametrize(
    "stride", [pytest.param(7, id="some"), pytest.param(1, id="each", marks=pytest.mark.long)]
)
def test_killed_at_a_write_the_next_call_does_the_rest(
    worker: Worker, lake: Lake, stride: int
) -> None:
    kills = 0

    for at in range(1, 400, stride):
        lake.restore()
        (end,) = worker.run({"lake": str(lake.root), "at": at, "older_than": "0s"})
        kills += end == "killed"
        lake.check_whole()
        lake.check_next_call_does_the_rest()
        if end == 0:
            break

    assert end == 0
    assert kills > 40 / stride


def test_several_at_once_of_which_one_is_killed(worker: Worker, lake: Lake) -> None:
    ends: set[str | int] = set()
    for at in (3, 17, 31):
        lake.restore()
        one = {"lake": str(lake.root)}

        first, *others = worker.run({**one, "at": at}, one, one)

        ends.add(first)
        assert others == [0, 0]
        lake.check_whole()
        lake.check_next_call_does_the_rest()
    assert "killed" in ends


def test_raw_files_of_a_killed_run_go_in_the_next_one(worker: Worker, tmp_path: Path) -> None:
    from raw_files import Raw, lines

    raw = Raw(tmp_path / "work")
    for count in (1, 2, 3):
        raw.push(0, lines(0, range(count)))
        raw.push(count, lines(count, range(2)))
        raw.ingest.run()
    rows = [row for row in raw.rows() if row[1] != 0]
    file = raw.directory / "events.toml"
    file.write_text(
        '[source]\nstorage = "raw"\nwhat = "events"\nformat = "json"\n'
        '[dataset]\ninto = "lake/events"\n'
        '[ingest]\nstart = "2013-01-01"\nend = "2013-12-31"\nsupersede = "path"\n'
        '[retention]\nraw = "30d"\ndelete_where = "n = 0"\n'
    )
    saved = tmp_path / "saved"
    shutil.copytree(raw.directory, saved)
    kills = 0

    for at in range(1, 100):
        shutil.rmtree(raw.directory)
        shutil.copytree(saved, raw.directory)
        (end,) = worker.run({"file": str(file), "at": at})
        kills += end == "killed"
        # A run that reads but deletes nothing sees no older state of a file come back.
        read = lakebed.Pipeline.from_toml(file).run(only="ingest")
        assert read["ingest"].status == "nothing"
        assert worker.run({"file": str(file)}, {"file": str(file)}) == [0, 0]
        assert raw.rows() == rows
        archive = lakebed.open_archive(raw.storage)
        assert not list(archive.index.records())
        assert not list(archive.store.list())
        if end == 0:
            break

    assert end == 0
    assert kills >= 8
