"""Runs of a pipeline that are killed with signal 9 at each of their writes, and runs at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sales_days import KEEP_DAYS, Sales, rows_in
from table_doors import by_deltalake, by_pyiceberg

import lakebed

SOURCE = Path(lakebed.__file__).parents[1]
TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.crash


class Worker:
    """A process that runs pipelines in forked children."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "pipeline_worker.py")],
            env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{TESTS}"},
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


def before_a_run_of_all_steps(root: Path) -> Sales:
    """Make a dataset in which the next run has something to do in each step."""
    sales = Sales(root=root)
    pipeline = sales.declare()
    sales.write_day("a", 1, 2)
    pipeline.run()
    sales.write_day("b", 1, 2, KEEP_DAYS + 3)
    sales.write_day("a", 1, 2, 3)  # in place of its earlier rows
    sales.checks = 'sane = "amount >= 0"\n'
    sales.declare()
    return sales


class Again:
    """A folder that is put back into one state again and again; tables hold absolute paths."""

    def __init__(self, sales: Sales) -> None:
        self._root = sales.root
        self._saved = sales.root.with_name("saved")
        shutil.copytree(self._root, self._saved)

    def restore(self) -> None:
        shutil.rmtree(self._root)
        shutil.copytree(self._saved, self._root)


def assert_nothing_is_lost_or_twice(sales: Sales) -> None:
    """Check what a reader sees: no row twice, and none that no file has."""
    written = [row for rows in sales.files.values() for row in rows]
    rows = sales.rows()
    assert set(rows) <= set(written)
    assert set(rows.values()) <= {1}


def assert_next_run_does_the_rest(sales: Sales) -> None:
    pipeline = lakebed.Pipeline.from_toml(sales.file)

    report = pipeline.run()

    assert report.is_ok
    expected = sales.expected()
    assert sales.rows() == expected
    assert set(sales.dataset().descriptor.checks) == set(pipeline.checks or ())
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()) == expected
    assert rows_in(by_pyiceberg(sales.lake / "sales").to_pylist()) == expected
    *others, cleanup = pipeline.run().steps
    assert {one.status for one in others} == {"nothing"}
    # Metadata of tables that readers might have held until just now.
    assert cleanup.status in ("nothing", "done")
    assert sales.dataset().check(deep=True).is_ok


@pytest.mark.parametrize(
    "is_done",
    [
        pytest.param(True, id="after"),  # which is before the next one
        pytest.param(False, id="before", marks=pytest.mark.long),
    ],
)
def test_killed_at_each_write_the_next_run_does_the_rest(
    worker: Worker, tmp_path: Path, is_done: bool
) -> None:
    sales = before_a_run_of_all_steps(tmp_path / "sales")
    again = Again(sales)
    kills = 0

    for at in range(1, 200):
        again.restore()
        (end,) = worker.run({"file": str(sales.file), "at": at, "is_done": is_done})
        assert_nothing_is_lost_or_twice(sales)
        if end == "killed":
            kills += 1
            last, *_ = lakebed.Pipeline.from_toml(sales.file).runs()
            # The first write and the last are those of the log.
            assert last.state in ("unfinished", "ok")
        assert_next_run_does_the_rest(sales)
        if end == 0:
            break

    assert end == 0
    assert kills > 30


def test_killed_at_random_moments_the_next_run_does_the_rest(
    worker: Worker, tmp_path: Path
) -> None:
    sales = before_a_run_of_all_steps(tmp_path / "sales")
    again = Again(sales)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    dice = random.Random(seed)
    ends = []

    for _ in range(12):
        again.restore()
        ends += worker.run({"file": str(sales.file), "delay_s": dice.uniform(0, 0.8)})
        assert_nothing_is_lost_or_twice(sales)
        assert_next_run_does_the_rest(sales)

    assert "killed" in ends


def test_of_two_runs_at_once_one_may_be_killed_at_any_write(worker: Worker, tmp_path: Path) -> None:
    sales = before_a_run_of_all_steps(tmp_path / "sales")
    again = Again(sales)

    for at in range(1, 40, 4):
        again.restore()
        killed, end = worker.run({"file": str(sales.file), "at": at}, {"file": str(sales.file)})
        assert killed in ("killed", 0)
        assert end == 0
        assert_nothing_is_lost_or_twice(sales)
        assert_next_run_does_the_rest(sales)


def test_runs_of_several_processes_at_once_read_each_file_once(
    worker: Worker, tmp_path: Path
) -> None:
    sales = Sales(root=tmp_path / "sales")
    sales.declare()

    for round_ in range(4):
        for number in range(3):
            sales.write_day(f"file-{round_}-{number}", 1, 2, KEEP_DAYS + 3)
        ends = worker.run(*[{"file": str(sales.file)}] * 3)
        assert ends == [0, 0, 0]
        assert sales.rows() == sales.expected()

    assert_next_run_does_the_rest(sales)
