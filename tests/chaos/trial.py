"""Verbs, the faults that they meet, and what a dataset must hold afterwards."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import time_machine
from judge.steps import DONE, REFUSED, UNKNOWN, Entry, Step
from judge.verdict import Verdict, judge
from standalone import Driver

import lakebed
from lakebed import Dataset
from lakebed.errors import ErrorCode, LakebedError

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("text", pa.string())])
_ROWS = 1_200  # of each step
STRAY = "stray files after a cleanup"
MISSING = "live files that a cleanup has deleted"
COMMITS = "another number of commits than the verb makes"
KEPT = "erased, and in an older version"
_LATER = dt.timedelta(days=3)  # no lease of a killed writer lasts as long


def rows_of(number: int) -> tuple[int, int]:
    """Return the bounds of the rows of a step, by its number."""
    return number * _ROWS, (number + 1) * _ROWS


def keys_of(*ranges: tuple[int, int]) -> tuple[str, ...]:
    return tuple(str(n) for bounds in ranges for n in range(*bounds))


BASE = tuple(
    Step(name, "append", keys=keys_of(rows_of(number)))
    for number, name in enumerate(("kept-0", "kept-1", "target"))
)
_KEPT_PARTS, _TARGET_PARTS = "k", "p"


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb as `program.py` has it.

    Attributes:
        function: Its name there.
        kind: `append`, `overwrite`, `merge`, `delete` or `compact`: what it does to the rows.
        commits: The number of its commits; None where it depends on the moment.
        rows: Ranges of the rows that it writes.
        is_plain: Whether it takes a dataset without partitions and index.
        from_files: The number of raw files that it reads, each with a range of rows.
    """

    function: str
    kind: str = "append"
    commits: int | None = 1
    rows: tuple[tuple[int, int], ...] = (rows_of(10),)
    is_plain: bool = False
    from_files: int = 0

    def steps(self, name: str = "new") -> list[Step]:
        """Return what it changes, for the judge: a step for each commit that writes rows."""
        if self.function in ("for_each_batch", "stream"):
            return [
                Step(f"{name}-{number}", "append", keys=keys_of(rows_of(10 + number)))
                for number in range(self.from_files)
            ]
        rows = [rows_of(10 + number) for number in range(self.from_files)] or self.rows
        target = "" if self.kind in ("append", "compact") else "target"
        keys = () if self.kind in ("delete", "compact") else keys_of(*rows)
        return [Step(name, self.kind, keys=keys, target=target)]

    def arguments(self, dataset: Dataset, folder: Path, name: str = "new") -> dict[str, Any]:
        """Return the arguments of the function."""
        if self.from_files:
            return {"dataset": dataset.uri, "folder": str(folder)}
        if self.kind in ("delete", "compact"):
            return {"dataset": dataset.uri}
        part = _KEPT_PARTS if self.kind == "append" else _TARGET_PARTS
        return {"dataset": dataset.uri, "rows": self.rows, "op": name, "part": part}


_OF_TARGET = (rows_of(2), rows_of(10))
VERBS = {
    verb.function: verb
    for verb in (
        Verb("append"),
        Verb("append_scattered"),
        Verb("append_natively", is_plain=True),
        Verb("save"),
        Verb("overwrite", kind="overwrite"),
        Verb("rerun", kind="overwrite"),
        Verb("merge", kind="merge", rows=_OF_TARGET),
        Verb("for_each_batch", commits=2, from_files=2),
        Verb("stream", commits=2, from_files=2),
        Verb("ingest", from_files=4),
        Verb("compact", kind="compact", commits=None),
        Verb("erase", kind="delete", commits=None),
    )
}


def prepare(folder: Path, verb: Verb) -> Dataset:
    """Create a dataset with the rows of `BASE`, and write the raw files of a verb."""
    descriptor = (
        lakebed.DatasetDescriptor(schema=SCHEMA)
        if verb.is_plain
        else lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="part", index=["n"])
    )
    dataset = lakebed.open_repository(folder / "lake").create("d", descriptor)
    for number, step in enumerate(BASE):
        part = _TARGET_PARTS if step.name == "target" else _KEPT_PARTS
        run = step.name.partition("-")[0]  # a compaction keeps runs apart
        dataset.append(pa.Table.from_pylist(_rows(number, step.name, part), SCHEMA), run)
    for number, step in enumerate(_of_files(verb)):
        path = folder / "in" / f"{number}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = _rows(10 + number, step, _KEPT_PARTS)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return dataset


def _of_files(verb: Verb) -> Iterator[str]:
    """Yield the name of the step of each raw file."""
    names = [step.name for step in verb.steps()]
    yield from names if len(names) == verb.from_files else names * verb.from_files


def _rows(number: int, op: str, part: str) -> list[dict[str, Any]]:
    return [{"n": n, "part": f"{part}{n % 4}", "text": op} for n in range(*rows_of(number))]


def entries_of(steps: Iterable[Step], answer: Mapping[str, Any] | None) -> list[Entry]:
    """Return what the caller of a verb knows of its steps.

    Args:
        steps: Of the verb.
        answer: Of `Functions.attempt`; None if the driver was killed.
    """
    if answer is None:
        outcome = UNKNOWN
    elif "answer" in answer:
        outcome = DONE
    else:
        # Spark wraps the error of a sink, and an earlier epoch may have been committed.
        outcome = UNKNOWN if answer["code"] == ErrorCode.COMMIT_UNKNOWN else REFUSED
    version, commit = (answer or {}).get("answer") or (None, "")
    return [Entry(step, outcome, version, commit=commit) for step in steps]


def base_entries(dataset: Dataset) -> list[Entry]:
    commits = list(dataset.history())[1:4]
    return [
        Entry(step, DONE, one.version, commit=str(one.commit_id))
        for step, one in zip(BASE, commits, strict=True)
    ]


def judged(
    dataset: Dataset, entries: Sequence[Entry], commits: Iterable[int] | None = None
) -> Verdict:
    """Compare a dataset with what is known of each step, before a cleanup of it and after.

    Args:
        dataset: The dataset.
        entries: All steps, those of `BASE` among them.
        commits: How many commits there may be after those of `BASE`; None for any number.
    """
    found = _found(dataset)
    verdict = judge(entries, found)
    if found["error"]:
        return verdict
    if commits is not None and dataset.version - len(BASE) not in set(commits):
        verdict.say(COMMITS, f"version {dataset.version}")
    for entry in entries:
        if entry.step.verb == "delete" and entry.outcome == DONE:
            _judge_older(verdict, dataset, entry.step.target)
    with time_machine.travel(dt.datetime.now(dt.UTC) + _LATER):
        dataset.cleanup("0s", dry_run=False, clock_skew=dt.timedelta(0))
    after = judge(entries, {**_found(dataset), "history": {"versions": []}})
    verdict.violations += after.violations
    for problem in dataset.check(deep=True).problems:
        verdict.say(MISSING, str(problem))
    _judge_files(verdict, dataset)
    return verdict


def _found(dataset: Dataset) -> dict[str, Any]:
    try:
        table = dataset.arrow(columns=["n", "text"])
    except LakebedError as exc:
        return {"error": f"{type(exc).__name__}: {exc}"}
    commits = list(dataset.history())
    return {
        "error": "",
        "rows": [
            (str(n), text)
            for n, text in zip(*(table[name].to_pylist() for name in ("n", "text")), strict=True)
        ],
        "history": {
            "versions": [one.version for one in commits],
            "commits": [str(one.commit_id) for one in commits],
            "problems": [str(one) for one in dataset.check(deep=True).problems],
        },
    }


def _judge_older(verdict: Verdict, dataset: Dataset, erased: str) -> None:
    for commit in dataset.history():
        if dataset.at(version=commit.version).where(f"text = '{erased}'").count():
            verdict.say(KEPT, f"version {commit.version}")


def _judge_files(verdict: Verdict, dataset: Dataset) -> None:
    """Compare the data files of the directory with those that are live."""
    lake = Path(dataset.uri.removeprefix("file://")).parent
    there = {path for path in lake.glob("d/data/**/*.parquet") if path.is_file()}
    live = {lake / one.key for one in dataset.files()}
    for path in sorted(live - there):
        verdict.say(MISSING, str(path))
    for path in sorted((there - live).union(lake.rglob(".*.tmp"))):
        verdict.say(STRAY, str(path))


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, as `planted_faults.py` reads it.

    Attributes:
        name: For the page.
        does: What happens.
        when: `before` or `after` a write.
        part: Part of the key that is written.
        roles: The processes that may meet it.
        times: How often it happens at most.
        seconds: For which a slow write waits.
        outcome: What the caller must see, where there is only one possibility.
        apart: Verbs that do not meet it.
    """

    name: str
    does: str
    when: str = "after"
    part: str = "/data/"
    roles: tuple[str, ...] = ("executor",)
    times: int = 1
    seconds: float = 0.0
    outcome: str = DONE
    apart: frozenset[str] = frozenset()

    def concerns(self, verb: Verb) -> bool:
        """Return whether a verb may meet it: no task of Spark erases."""
        is_in_driver = verb.kind == "delete" and "executor" in self.roles
        return verb.function not in self.apart and not is_in_driver

    def plant(self, folder: Path, session: int = 0) -> None:
        """Let the next process that is meant meet the fault.

        Args:
            folder: That all processes look into.
            session: Session of the driver that is killed.
        """
        self.lift(folder)
        names = ("does", "when", "part", "roles", "times", "seconds")
        told = {"session": session, **{name: getattr(self, name) for name in names}}
        made = folder / "fault.new"
        made.write_text(json.dumps(told))
        made.rename(folder / "fault.json")

    def lift(self, folder: Path) -> int:
        """End the fault, and return how often it has happened."""
        met = len(list(folder.glob("met-*")))
        if self.does == "race":
            met = int((folder / "first").exists() and (folder / "second").exists())
        for path in folder.glob("*"):
            path.unlink()
        return met


def again(driver: Driver, verb: Verb, dataset: Dataset, folder: Path) -> list[Entry]:
    """Run a verb again under the same name, and return its steps, which are all there."""
    arguments = {**verb.arguments(dataset, folder), "again": True}
    answer = driver.ask("attempt", verb=verb.function, arguments=arguments)
    assert "answer" in answer, answer
    return [replace(one, version=None, commit="") for one in entries_of(verb.steps(), answer)]
