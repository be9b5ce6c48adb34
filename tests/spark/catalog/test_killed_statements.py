"""Statements on a catalog whose driver ends at one of its writes: it happened or not, and can run again."""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from heads import head_key

import lakebed

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import numbered_writes  # noqa: E402 - lies beside this module
from numbered_writes import CopyingStore, kill_session, session_pids, writes_of  # noqa: E402

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("the objects of a catalog are in the process of the JVM's driver"),
]

SOURCE = Path(lakebed.__file__).parents[1]
HEAD = f"replace {head_key('t')}"
LATER = dt.timedelta(days=2)  # more than a lease
Rows = list[tuple[int, int, str]]


@dataclass(frozen=True)
class Statement:
    """A statement that gives the same rows each time, and the rows before and after."""

    text: str
    after: dict[int, tuple[int, str]]


BEFORE = {n: (n % 3, f"t{n}") for n in range(20)}
STATEMENTS = {
    "merge": Statement(
        "MERGE INTO lake.t t USING (SELECT * FROM VALUES (3L, 0L, 'new'), (4L, 1L, NULL), "
        "(100L, 1L, 'new') AS s(n, part, text)) s ON t.n = s.n "
        "WHEN MATCHED AND s.text IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET text = s.text "
        "WHEN NOT MATCHED AND s.text IS NOT NULL THEN INSERT *",
        {
            **{n: row for n, row in BEFORE.items() if n != 4},
            3: (0, "new"),
            100: (1, "new"),
        },
    ),
    "update": Statement(
        "UPDATE lake.t SET text = 'new' WHERE n % 2 = 1",
        {n: (part, "new" if n % 2 else text) for n, (part, text) in BEFORE.items()},
    ),
    "insert overwrite": Statement(
        "INSERT OVERWRITE lake.t SELECT n, part, 'new' AS text FROM VALUES (3L, 0L), (4L, 1L) "
        "AS s(n, part)",
        {3: (0, "new"), 4: (1, "new")},
    ),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a lake before a statement."""
    root = tmp_path_factory.mktemp("killed") / "lake"
    rows = [{"n": n, "part": part, "text": text} for n, (part, text) in BEFORE.items()]
    lake = open_lake(root)
    lake.write("t", pa.Table.from_pylist(rows[:15]), run="first", partition_by="part")
    lake.write("t", pa.Table.from_pylist(rows[15:]), run="second")
    return root


@pytest.fixture(autouse=True, scope="module")
def _stores_travel() -> Iterator[None]:
    """Let tasks of this session have the stores of the tests, whose module they cannot import."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(numbered_writes)
    yield
    cloudpickle.unregister_pickle_by_value(numbered_writes)


def open_lake(root: Path) -> lakebed.Repository:
    return lakebed.open_repository(root, storage_options={"durable": "false"})


def rows_of(rows: dict[int, tuple[int, str]]) -> Rows:
    return sorted((n, *row) for n, row in rows.items())


def stored_rows(root: Path) -> Rows:
    return sorted((r["n"], r["part"], r["text"]) for r in open_lake(root)["t"].arrow().to_pylist())


def files_of(root: Path) -> Counter[str]:
    """Return how many files of each kind there are."""
    paths = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    kinds = (re.sub(r"[0-9a-f]{32}|\d{10,13}", "#", str(path)) for path in paths)
    return Counter(kind for kind in kinds if not kind.startswith(".lakebed/locks/"))


def clean_up(root: Path) -> None:
    """Delete what is dead, when the leases of all writers are over."""
    with time_machine.travel(dt.datetime.now(dt.UTC) + LATER):
        open_lake(root)["t"].cleanup("0s", dry_run=False, clock_skew=dt.timedelta())


@dataclass(frozen=True)
class Control:
    """What a statement does if nobody dies.

    Attributes:
        statement: The statement.
        writes: Its writes.
        files: Files of each kind after a cleanup, by the version.
        folder: Copies of the lake at each write.
    """

    statement: Statement
    writes: list[str]
    files: dict[int, Counter[str]]
    folder: Path

    @property
    def number_of_head(self) -> int:
        """Number of the write that makes the rows visible."""
        return self.writes.index(HEAD) + 1

    def rows_at(self, at: int) -> Rows:
        """Return the rows of a lake whose writer has ended as it began its nth write."""
        return rows_of(self.statement.after if at > self.number_of_head else BEFORE)


@pytest.fixture(scope="module")
def control_of(
    spark: Any, template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Control]:
    """Run a statement to its end on copies of a lake, once and twice; keep a copy at each write."""

    @functools.cache
    def run(name: str) -> Control:
        statement, folder = STATEMENTS[name], tmp_path_factory.mktemp("control")
        files = {}
        for times in (2, 1):
            root, writes = folder / f"lake-{times}", folder / f"writes-{times}"
            shutil.copytree(template, root)
            lake = lakebed.Repository(CopyingStore(root, writes))
            with lakebed.spark.attach(spark, lake, catalog="lake"):
                for _ in range(times):
                    spark.sql(statement.text)
            assert stored_rows(root) == rows_of(statement.after)
            version = lake["t"].version
            clean_up(root)
            files[version] = files_of(root)
        assert len(files) == 2
        return Control(statement, writes_of(writes), files, writes)

    return run


def check_after_death(spark: Any, root: Path, control: Control, at: int) -> None:
    """Check what a driver has left that died as it began its nth write."""
    after = rows_of(control.statement.after)
    assert stored_rows(root) == control.rows_at(at)
    with lakebed.spark.attach(spark, open_lake(root), catalog="lake"):
        assert collected(spark.table("lake.t")) == control.rows_at(at)
        spark.sql(control.statement.text)
        reader = spark.table("lake.t")
        version = open_lake(root)["t"].version
        clean_up(root)
        assert collected(reader) == after
    assert stored_rows(root) == after
    assert open_lake(root)["t"].check(deep=True).is_ok
    assert files_of(root) == control.files[version]


def collected(frame: Any) -> Rows:
    return sorted(map(tuple, frame.collect()))


@pytest.mark.parametrize(
    ("name", "is_thorough"),
    [
        ("merge", False),
        ("insert overwrite", False),
        *(pytest.param(name, True, marks=pytest.mark.long) for name in STATEMENTS),
    ],
)
def test_what_a_statement_has_written_at_each_write_is_whole(
    spark: Any, control_of: Callable[[str], Control], tmp_path: Path, name: str, is_thorough: bool
):
    """A copy of the directory is what a process leaves that ends there; it needs no other JVM."""
    control = control_of(name)
    head = control.number_of_head

    for at in range(1, len(control.writes) + 1):
        root = tmp_path / str(at)
        shutil.copytree(control.folder / f"copy-{at}", root)
        assert stored_rows(root) == control.rows_at(at)
        if is_thorough or at in (head, head + 1):
            check_after_death(spark, root, control, at)


class Driver:
    """A process with a JVM that runs one statement and is killed at a write."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder = root, folder
        folder.mkdir()

    def run(self, statement: Statement, at: int) -> bool:
        """Run the statement, and return whether it was killed."""
        order = {
            "root": str(self._root),
            "writes": str(self._folder / "writes"),
            "at": at,
            "statement": statement.text,
        }
        with (self._folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "statement_driver.py"), json.dumps(order)],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}"},
                start_new_session=True,
            )
            try:
                code = process.wait(300)
                # The process that dies last may be a task, which nobody waits for.
                wait_until(lambda: set(session_pids(process.pid)) <= {process.pid})
            finally:
                kill_session(process.pid)
        assert code in (0, -signal.SIGKILL), (self._folder / "log").read_text()[-2000:]
        assert len(writes_of(self._folder / "writes")) >= at or code == 0
        return code != 0


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_merge_whose_driver_is_killed_by_a_task_did_not_happen(
    spark: Any, template: Path, control_of: Callable[[str], Control], tmp_path: Path
):
    """The rows that Spark hands over are written by its tasks, in processes of their own."""
    control = control_of("merge")
    at = 1 + next(n for n, write in enumerate(control.writes) if write.startswith("put t/staging/"))
    root = tmp_path / "lake"
    shutil.copytree(template, root)

    assert Driver(root, tmp_path / "driver").run(control.statement, at)

    assert writes_of(tmp_path / "driver" / "writes")[at - 1].startswith("put t/staging/")
    check_after_death(spark, root, control, at)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STATEMENTS)
def test_killed_at_each_write_a_statement_happened_only_if_the_head_was_swapped(
    spark: Any, template: Path, control_of: Callable[[str], Control], tmp_path: Path, name: str
):
    control = control_of(name)
    deaths = 0

    for at in itertools.count(1):
        root = tmp_path / f"lake-{at}"
        shutil.copytree(template, root)
        if not Driver(root, tmp_path / f"driver-{at}").run(control.statement, at):
            break
        deaths += 1
        check_after_death(spark, root, control, at)

    assert deaths == len(control.writes)
    assert stored_rows(root) == rows_of(control.statement.after)
