"""Verbs run by Spark on a standalone cluster keep their promises under faults.

`make chaos` plays all of it, and keeps the figures for docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest
from judge.steps import DONE, REFUSED, Entry, Step
from judge.verdict import Verdict
from standalone import (
    PACKAGES,
    SOURCE,
    Cluster,
    Driver,
    eventually,
    of_session,
    python_environment,
)

from chaos.trial import VERBS, Fault, Verb, again, base_entries, entries_of, judged, prepare
from lakebed import Dataset

pytestmark = [pytest.mark.spark, pytest.mark.long]

HERE = Path(__file__).parent
RESULTS = os.environ.get("CHAOS_RESULTS")  # the file that the figures are added to
_PROGRAM = (
    "import runpy, sys; "
    f"sys.path[:0] = {[str(SOURCE), str(HERE.parent), str(HERE)]!r}; "
    "runpy.run_module('chaos.program', run_name='__main__')"
)
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
    # Otherwise a stage of one task has no second attempt.
    "spark.speculation.task.duration.threshold": "1s",
}


class Chaos:
    """A cluster of two workers, in which faults are planted."""

    def __init__(self, directory: Path) -> None:
        self.faults = directory / "faults"
        self.faults.mkdir()
        hook = directory / "hook"
        hook.mkdir()
        shutil.copy(HERE / "planted_faults.py", hook)
        self.cluster = Cluster(directory / "processes")
        self._programs = [
            python_environment(directory / name, SOURCE, PACKAGES, hook) for name in ("one", "two")
        ]
        for programs in self._programs:
            (packages,) = programs.parent.glob("lib/python*/site-packages")
            (packages / "plant.pth").write_text("import planted_faults; planted_faults.plant()\n")
        # Spark speculates on other hosts only.
        for programs, host in zip(self._programs, ("127.0.0.1", "127.0.0.2"), strict=True):
            self.cluster.add_worker(programs.parent.name, programs, host)
        self._count = 0

    def driver(self, role: str, settings: dict[str, str] | None = None) -> Driver:
        self._count += 1
        environ = {"CHAOS": str(self.faults), "CHAOS_ROLE": role}
        return Driver(
            self.cluster,
            f"{role}-{self._count}",
            self.cluster.url,
            programs=self._programs[0],
            program=_PROGRAM,
            settings={
                "spark.executorEnv.CHAOS": str(self.faults),
                "spark.executorEnv.CHAOS_ROLE": "executor",
                "spark.ui.showConsoleProgress": "false",
                **(settings or {}),
            },
            environ=environ,
        )

    def of_workers(self) -> set[int]:
        """Return the processes of the workers, such as executors and their Pythons."""
        return {pid for one in self.cluster.worker_sessions for pid, _ in of_session(one)}


@pytest.fixture(scope="module")
def chaos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chaos]:
    chaos = Chaos(tmp_path_factory.mktemp("chaos"))
    yield chaos
    chaos.cluster.end()


@pytest.fixture(scope="module")
def driver(chaos: Chaos) -> Iterator[Driver]:
    with chaos.driver("left") as driver:
        yield driver


@pytest.fixture(scope="module")
def other(chaos: Chaos) -> Iterator[Driver]:
    with chaos.driver("right") as driver:
        yield driver


@pytest.fixture(scope="module")
def speculating(chaos: Chaos) -> Iterator[Driver]:
    with chaos.driver("speculating", _SPECULATION) as driver:
        yield driver


def close(
    fault: str, verb: str, met: int, verdicts: Sequence[Verdict], entries: Sequence[Entry]
) -> None:
    """Record what came of a fault, and check it."""
    violations = [one for verdict in verdicts for one in verdict.violations]
    if RESULTS:
        told = {
            "fault": fault,
            "verb": verb,
            "met": met,
            "outcome": entries[-1].outcome,
            "spark": pyspark.__version__,
            "python": platform.python_version(),
            "day": time.strftime("%Y-%m-%d"),
            "violations": [[one.rule, one.told] for one in violations],
        }
        with Path(RESULTS).open("a") as file:
            file.write(json.dumps(told) + "\n")
    assert violations == []


def conclude(
    fault: str,
    verb: Verb,
    met: int,
    driver: Driver,
    dataset: Dataset,
    folder: Path,
    entries: Sequence[Entry],
    found: Sequence[Entry],
    commits: Iterable[int] | None,
) -> None:
    """Judge what came of a fault, let the verb run again, and judge that, too."""
    verdicts = [judged(dataset, [*entries, *found], commits)]
    repeated = again(driver, verb, dataset, folder)
    verdicts.append(judged(dataset, [*entries, *repeated]))
    close(fault, verb.function, met, verdicts, repeated)


# What executors meet. A task may fail four times.
OF_EXECUTORS = (
    Fault("Python worker killed after a write of a task", "kill"),
    Fault("Python worker killed before a write of a task", "kill", when="before"),
    Fault("executor killed after a write of a task", "kill executor"),
    Fault("task fails after its write, and is tried again", "fail"),
    Fault("two attempts of a task have written (speculation)", "race"),
    Fault("slow store: each write takes 0.2 s longer", "slow", times=999, seconds=0.2),
    Fault(
        "no space for a write of a task (ENOSPC)",
        "fill",
        when="before",
        outcome=REFUSED,
        apart=frozenset({"append_natively"}),  # its tasks run no code of Lakebed
    ),
)


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for name in VERBS for fault in OF_EXECUTORS if fault.concerns(VERBS[name])],
    ids=lambda one: getattr(one, "name", one),
)
def test_a_fault_of_executors(
    chaos: Chaos, driver: Driver, speculating: Driver, tmp_path: Path, name: str, fault: Fault
) -> None:
    verb = VERBS[name]
    dataset = prepare(tmp_path, verb)
    entries = base_entries(dataset)
    arguments = verb.arguments(dataset, tmp_path)
    asked = speculating if fault.does == "race" else driver

    fault.plant(chaos.faults)
    answer = asked.ask("attempt", verb=name, arguments=arguments)
    met = fault.lift(chaos.faults)

    found = entries_of(verb.steps(), answer)
    assert met >= 1, answer
    assert {one.outcome for one in found} == {fault.outcome}, answer
    commits = None
    if verb.commits is not None:
        commits = [verb.commits if fault.outcome == DONE else 0]
    conclude(fault.name, verb, met, driver, dataset, tmp_path, entries, found, commits)


# A driver commits by replacing the head. A start of a driver takes seconds: verbs that write or commit
# as others do are left out.
_COMMIT = "by-dataset-metadata"
_LIKE_APPEND = frozenset({"append_natively", "overwrite", "rerun"})
OF_DRIVERS = (
    Fault("driver killed before its commit", "kill driver", "before", _COMMIT, ("victim",)),
    Fault(
        "driver killed after its commit",
        "kill driver",
        "after",
        _COMMIT,
        ("victim",),
        apart=_LIKE_APPEND | {"append_scattered"},
    ),
    Fault(
        "driver killed while its tasks write",
        "kill driver",
        apart=_LIKE_APPEND | {"append", "compact"},
    ),
)


@pytest.mark.parametrize(
    ("name", "fault"),
    [(name, fault) for fault in OF_DRIVERS for name in VERBS if fault.concerns(VERBS[name])],
    ids=lambda one: getattr(one, "name", one),
)
def test_a_killed_driver(
    chaos: Chaos, driver: Driver, tmp_path: Path, name: str, fault: Fault
) -> None:
    verb = VERBS[name]
    dataset = prepare(tmp_path, verb)
    entries = base_entries(dataset)
    driver.ask("settle")
    others = chaos.of_workers()
    victim = chaos.driver("victim", {"spark.cores.max": "1"})
    victim.ask("settle")

    fault.plant(chaos.faults, session=victim.process.pid)
    victim.begin("attempt", verb=name, arguments=verb.arguments(dataset, tmp_path))
    victim.process.wait(300)
    eventually(lambda: chaos.of_workers() <= others, "executors outlast their driver")
    met = fault.lift(chaos.faults)

    assert met == 1
    found = entries_of(verb.steps(), None)
    has_landed = fault.part == _COMMIT and fault.when == "after"
    conclude(fault.name, verb, met, driver, dataset, tmp_path, entries, found, [has_landed])


# The data source commits in a Python process beside the JVM of the driver; then Spark lets another
# one abort.
OF_COMMITTERS = tuple(
    Fault(
        f"process that commits for the data source killed {when} its commit",
        "kill",
        when=when,
        part=_COMMIT,
        roles=("left",),
    )
    for when in ("before", "after")
)


@pytest.mark.parametrize("fault", OF_COMMITTERS, ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", ["save", "stream"])
def test_a_killed_committer(
    chaos: Chaos, driver: Driver, tmp_path: Path, fault: Fault, name: str
) -> None:
    verb = VERBS[name]
    dataset = prepare(tmp_path, verb)
    entries = base_entries(dataset)

    fault.plant(chaos.faults)
    arguments = verb.arguments(dataset, tmp_path)
    answer = driver.ask("attempt", verb=name, arguments=arguments)
    met = fault.lift(chaos.faults)

    assert met == 1
    assert answer.get("code") == "spark", answer
    found = entries_of(verb.steps(), None)
    conclude(
        fault.name, verb, met, driver, dataset, tmp_path, entries, found, [fault.when == "after"]
    )


_USED_UP = 8 * 2**10  # bytes that are left for a verb


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory, whose size `resize` sets."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() or subprocess.call(["mount", "-t", "tmpfs", "chaos", path]):
        pytest.skip("mounting a small file system takes a superuser")
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def resize(path: Path, size_bytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size_bytes}", path], check=True)


@pytest.mark.parametrize("name", VERBS)
def test_a_full_disk(chaos: Chaos, driver: Driver, disk: Path, name: str) -> None:
    verb = VERBS[name]
    dataset = prepare(disk, verb)
    entries = base_entries(dataset)
    resize(disk, shutil.disk_usage(disk).used + _USED_UP)

    answer = driver.ask("attempt", verb=name, arguments=verb.arguments(dataset, disk))
    resize(disk, 2**26)

    assert "No space left" in answer.get("error", ""), answer
    found = entries_of(verb.steps(), answer)
    conclude(
        "a file system of few MiB is full", verb, 1, driver, dataset, disk, entries, found, [0]
    )


TWO_DRIVERS = Fault(
    "two drivers commit at once",
    "meet",
    when="before",
    part="by-dataset-metadata",
    roles=("left", "right"),
    times=2,
)
EPOCH = Verb("epoch")
# What the second of two may be told besides that it has committed.
RACES = (
    (VERBS["append"], VERBS["append"], {DONE}),
    (VERBS["append_scattered"], VERBS["save"], {DONE}),
    (VERBS["append_natively"], VERBS["append_natively"], {DONE}),
    (VERBS["rerun"], VERBS["rerun"], {REFUSED}),
    (VERBS["overwrite"], VERBS["overwrite"], {REFUSED}),
    (VERBS["merge"], VERBS["merge"], {DONE}),
    (EPOCH, EPOCH, {DONE, REFUSED}),
    (VERBS["ingest"], VERBS["ingest"], {REFUSED}),
    (VERBS["compact"], VERBS["append"], {DONE}),
    (VERBS["compact"], VERBS["merge"], {DONE, REFUSED}),
    (VERBS["compact"], VERBS["compact"], {DONE, REFUSED}),
    (VERBS["erase"], VERBS["append"], {DONE}),
    (VERBS["erase"], VERBS["compact"], {DONE, REFUSED}),
)
SAME = ("epoch", "ingest")  # both drivers bring the same rows, which are there once


@pytest.mark.parametrize(
    ("left", "right", "second"), RACES, ids=lambda one: getattr(one, "function", "")
)
def test_two_drivers(
    chaos: Chaos,
    driver: Driver,
    other: Driver,
    tmp_path: Path,
    left: Verb,
    right: Verb,
    second: set[str],
) -> None:
    dataset = prepare(tmp_path, left if left.is_plain or left.from_files else right)
    entries = base_entries(dataset)
    is_same = left.function in SAME
    names = ("new", "new") if is_same else ("left", "right")
    driver.ask("settle")
    other.ask("settle")

    TWO_DRIVERS.plant(chaos.faults)
    sides = list(zip((driver, other), (left, right), names, strict=True))
    for asked, verb, name in sides:
        arguments = verb.arguments(dataset, tmp_path, name)
        asked.begin("attempt", verb=verb.function, arguments=arguments)
    answers = [asked.end() for asked, _, _ in sides]
    met = TWO_DRIVERS.lift(chaos.faults)

    assert met == 2, answers
    found = [
        entry
        for (_, verb, name), answer in zip(sides, answers, strict=True)
        for entry in entries_of(verb.steps(name), answer)
    ]
    assert DONE in {one.outcome for one in found}, answers
    assert {one.outcome for one in found} - {DONE} <= second, answers
    if second == {REFUSED}:
        assert REFUSED in {one.outcome for one in found}, answers
    if is_same:
        found = [next(one for one in found if one.outcome == DONE)]
    verdicts = [judged(dataset, [*entries, *in_order(found)])]
    if is_same:
        found = again(other, right, dataset, tmp_path)
        verdicts.append(judged(dataset, [*entries, *found]))
    close(TWO_DRIVERS.name, f"{left.function}, {right.function}", 1, verdicts, found)


def in_order(found: Iterable[Entry]) -> list[Entry]:
    """Return the steps of two drivers: the later one replaces what the other has put in place."""
    ordered = sorted(found, key=lambda one: (one.outcome != DONE, one.version or 0))
    last = ""
    placed = []
    for entry in ordered:
        step = entry.step
        if step.target and step.keys:
            target = step.target if not last else last if entry.outcome == DONE else ""
            step = Step(step.name, step.verb, keys=step.keys, target=target)
            last = step.name
        placed.append(replace(entry, step=step))
    return placed
