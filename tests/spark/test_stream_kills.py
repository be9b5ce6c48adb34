"""Streaming queries whose driver or workers are killed with signal 9: each row comes once."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import pytest
from stream_rows import DESCRIPTOR, numbers_of, push

import lakebed

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(3600)]

DRIVER = Path(__file__).with_name("stream_driver.py")
SINK_KILLS = int(os.environ.get("STREAM_SINK_KILLS", "30"))
SOURCE_KILLS = int(os.environ.get("STREAM_SOURCE_KILLS", "20"))
PAIR_KILLS = int(os.environ.get("STREAM_PAIR_KILLS", "10"))


class Drivers:
    """Runs the driver again and again, and kills it, or its workers, at random moments."""

    def __init__(self, queries: list[dict[str, str]], log: IO[str]) -> None:
        self._order = json.dumps({"queries": queries})
        self._log = log
        self._rng = random.Random(time.time_ns())
        self._takes_s = 0.0  # from the begin of the queries to their end
        self.killed: Counter[str] = Counter()

    def run(self, *, is_killed: bool) -> None:
        """Run it to its end, or until a kill ends it."""
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), self._order],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])},
            start_new_session=True,
        )
        try:
            assert process.stdout is not None  # it is a pipe
            assert process.stdout.readline() == "begun\n"
            began = time.monotonic()
            if not is_killed:
                assert process.wait(600) == 0
                self._takes_s = time.monotonic() - began
                return
            time.sleep(self._rng.uniform(0, self._takes_s))
            if process.poll() is not None:
                self.killed["too late"] += 1
                return
            if self._rng.random() < 0.5:
                self.killed["driver"] += 1
                return
            self.killed["workers"] += bool(_kill_workers(process.pid))
            assert process.wait(600) == 0
        finally:
            _kill_group(process)


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill the driver, its JVM, and all that they have started."""
    _kill(pid for pid, _ in _of_session(process.pid))
    process.communicate(timeout=60)


def _kill_workers(session: int) -> int:
    """Kill the Python processes that Spark has started, and return how many there were."""
    workers = [
        pid
        for pid, command in _of_session(session)
        if pid != session and b"pyspark" in command and b"java" not in command.split(b"\0")[0]
    ]
    _kill(workers)
    return len(workers)


def _of_session(session: int) -> Iterator[tuple[int, bytes]]:
    """Yield the processes of a session with their commands: Spark makes groups of its own in it."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.getsid(int(entry.name)) == session:
                yield int(entry.name), (entry / "cmdline").read_bytes()


def _kill(pids: Iterable[int]) -> None:
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


def test_a_sink_takes_each_row_once_whatever_is_killed(lake, tmp_path, capsys):
    dataset = lake.create("numbers", DESCRIPTOR)
    queries = [_query(tmp_path, "in", dataset.uri)]
    fresh = itertools.count()
    with (tmp_path / "log").open("w") as log:
        drivers = Drivers(queries, log)
        for _ in range(5):
            _push(tmp_path / "in", fresh)
        drivers.run(is_killed=False)  # to see how long it takes
        while drivers.killed["driver"] + drivers.killed["workers"] < SINK_KILLS:
            for _ in range(5):
                _push(tmp_path / "in", fresh)
            drivers.run(is_killed=True)
        drivers.run(is_killed=False)

    _tell(capsys, drivers, dataset)
    assert numbers_of(dataset) == list(range(next(fresh)))


def test_a_source_gives_each_row_once_whatever_is_killed(lake, tmp_path, capsys):
    dataset, copy = lake.create("numbers", DESCRIPTOR), lake.create("copy", DESCRIPTOR)
    query = {
        "dataset": dataset.uri,
        "into": copy.uri,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    fresh = itertools.count()
    with (tmp_path / "log").open("w") as log:
        drivers = Drivers([query], log)
        _append(dataset, fresh)
        drivers.run(is_killed=False)
        while drivers.killed["driver"] + drivers.killed["workers"] < SOURCE_KILLS:
            _append(dataset, fresh)
            drivers.run(is_killed=True)
            dataset.compact()
        drivers.run(is_killed=False)

    _tell(capsys, drivers, copy)
    assert numbers_of(copy) == numbers_of(dataset) == list(range(next(fresh)))


def test_two_streams_into_one_dataset_beside_a_compaction_and_a_cleanup(lake, tmp_path, capsys):
    dataset = lake.create("numbers", DESCRIPTOR)
    queries = [_query(tmp_path, name, dataset.uri) for name in ("left", "right")]
    fresh = itertools.count()
    is_over = threading.Event()
    beside: list[lakebed.LakebedError] = []

    def keep_up() -> None:
        mine = lakebed.open_repository(tmp_path / "lake").open("numbers")
        while not is_over.wait(0.2):
            try:
                mine.compact()
                mine.cleanup(older_than="0s", dry_run=False)
            except lakebed.errors.ConflictError:
                continue  # with the compaction of the queries
            except lakebed.LakebedError as error:
                beside.append(error)
                return

    keeper = threading.Thread(target=keep_up)
    keeper.start()
    try:
        with (tmp_path / "log").open("w") as log:
            drivers = Drivers(queries, log)
            for name in ("left", "right") * 4:
                _push(tmp_path / name, fresh)
            drivers.run(is_killed=False)
            while drivers.killed["driver"] + drivers.killed["workers"] < PAIR_KILLS:
                for name in ("left", "right") * 4:
                    _push(tmp_path / name, fresh)
                drivers.run(is_killed=True)
            drivers.run(is_killed=False)
    finally:
        is_over.set()
        keeper.join()

    _tell(capsys, drivers, dataset)
    assert beside == []
    assert numbers_of(dataset) == list(range(next(fresh)))


def _query(directory: Path, name: str, into: str) -> dict[str, str]:
    folder = directory / name
    folder.mkdir()
    return {
        "folder": str(folder),
        "into": into,
        "checkpoint": str(directory / f"{name}-checkpoint"),
    }


def _push(folder: Path, fresh: itertools.count[int]) -> None:
    numbers = list(itertools.islice(fresh, 3))
    push(folder, f"{numbers[0]:06d}", *numbers)


def _append(dataset: lakebed.Dataset, fresh: itertools.count[int]) -> None:
    for _ in range(5):
        dataset.append([{"p": f"p{n % 2}", "n": n} for n in itertools.islice(fresh, 3)])


def _tell(capsys, drivers: Drivers, dataset: lakebed.Dataset) -> None:
    with capsys.disabled():
        told = f"{dict(drivers.killed)} {_operations(dataset)}"
        sys.stdout.write(f"\n{told}\n")


def _operations(dataset: lakebed.Dataset) -> dict[str, int]:
    return dict(Counter(commit.operation for commit in dataset.history()))
