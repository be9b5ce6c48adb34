"""The judge has teeth: it finds each way in which rows and journals differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judge import verdict
from judge.steps import DONE, REFUSED, UNKNOWN, Entry, Journal, Step, next_step
from judge.verdict import judge

A = Step("w0-0", "append", "a", ("k0", "k1"))
MERGE = Step("w0-1", "merge", "a", ("k0", "k1", "k2"), "w0-0")
DELETE = Step("w0-1", "delete", "a", (), "w0-0")


def rows(*steps: Step) -> list[list[str]]:
    return [[key, step.name] for step in steps for key in step.keys]


def rules(entries: list[Entry], found: list[list[str]], **history: Any) -> list[str]:
    given = {"rows": found, "error": "", "history": {"versions": [0, 1], **history}}
    return [one.rule for one in judge(entries, given).violations]


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([Entry(A, DONE)], rows(A)),
        ([Entry(A, REFUSED)], []),
        ([Entry(A, UNKNOWN)], []),
        ([Entry(A, UNKNOWN)], rows(A)),
        ([Entry(A, DONE), Entry(DELETE, DONE)], []),
        ([Entry(A, DONE), Entry(DELETE, REFUSED)], rows(A)),
        ([Entry(A, DONE), Entry(DELETE, UNKNOWN)], []),
        ([Entry(A, DONE), Entry(DELETE, UNKNOWN)], rows(A)),
        ([Entry(A, DONE), Entry(MERGE, DONE)], rows(MERGE)),
        ([Entry(A, DONE), Entry(MERGE, REFUSED)], rows(A)),
        ([Entry(A, DONE), Entry(MERGE, UNKNOWN)], rows(A)),
        ([Entry(A, DONE), Entry(MERGE, UNKNOWN)], rows(MERGE)),
    ],
)
def test_right_tables_pass(entries: list[Entry], found: list[list[str]]) -> None:
    assert rules(entries, found) == []


@pytest.mark.parametrize(
    ("entries", "found", "rule"),
    [
        ([Entry(A, DONE)], [], verdict.LOST),
        ([Entry(A, DONE)], rows(A)[:1], verdict.TORN),
        ([Entry(A, DONE)], rows(A, A), verdict.DOUBLED),
        ([Entry(A, UNKNOWN)], rows(A, A), verdict.DOUBLED),
        ([Entry(A, UNKNOWN)], rows(A)[:1], verdict.TORN),
        ([Entry(A, REFUSED)], rows(A), verdict.REFUSED_IS_THERE),
        ([], rows(A), verdict.FROM_NOWHERE),
        ([Entry(A, DONE), Entry(DELETE, DONE)], rows(A), verdict.CAME_BACK),
        ([Entry(A, DONE), Entry(DELETE, REFUSED)], [], verdict.LOST),
        ([Entry(A, DONE), Entry(MERGE, DONE)], [], verdict.LOST),
        ([Entry(A, DONE), Entry(MERGE, DONE)], rows(A, MERGE), verdict.CAME_BACK),
        ([Entry(A, DONE), Entry(MERGE, UNKNOWN)], rows(A, MERGE), verdict.CAME_BACK),
        ([Entry(A, DONE), Entry(MERGE, UNKNOWN)], [], verdict.LOST),
        ([Entry(A, DONE), Entry(MERGE, REFUSED)], rows(MERGE), verdict.REFUSED_IS_THERE),
        ([Entry(A, "broken", error="KeyError")], [], verdict.BROKEN),
    ],
)
def test_wrong_tables_are_found(entries: list[Entry], found: list[list[str]], rule: str) -> None:
    assert rule in rules(entries, found)


def test_gap_in_versions_is_found() -> None:
    assert rules([], [], versions=[0, 2]) == [verdict.VERSIONS]


def test_acknowledged_commit_is_looked_for_in_the_history() -> None:
    entry = Entry(A, DONE, version=1, commit="c1")

    assert rules([entry], rows(A), commits=["c0", "c1"]) == []
    assert rules([entry], rows(A), commits=["c0", "other"]) == [verdict.COMMITS]
    assert rules([entry], rows(A), versions=[0, 1, 2], commits=["c0", "c1", "c1"]) == [
        verdict.COMMITS
    ]


def test_lost_objects_and_unreadable_tables_are_found() -> None:
    assert rules([], [], problems=["file is gone"]) == [verdict.OBJECTS]
    found = judge([], {"rows": [], "history": {}, "error": "OSError: gone"})
    assert [one.rule for one in found.violations] == [verdict.UNREADABLE]


def test_unknown_steps_are_counted_by_whether_they_are_there() -> None:
    found = {"rows": rows(A), "error": "", "history": {"versions": [0]}}

    assert judge([Entry(A, UNKNOWN)], found).counts["unknown, and there"] == 1


def test_journal_of_a_killed_writer_leaves_its_last_step_open(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "w0.jsonl")
    journal.begin(A)
    journal.end(Entry(A, DONE, version=1, commit="c1"))
    journal.begin(MERGE)

    assert journal.read() == [Entry(A, DONE, version=1, commit="c1"), Entry(MERGE)]


def test_steps_replace_only_what_stands_and_each_once() -> None:
    verbs = frozenset({"append", "delete", "merge", "overwrite", "compact", "clean"})
    entries: list[Entry] = []
    for _ in range(300):
        step = next_step(5, "w0", entries, verbs)
        entries.append(Entry(step, (DONE, DONE, DONE, REFUSED, UNKNOWN)[len(entries) % 5]))

    targets = [entry.step.target for entry in entries if entry.step.target]
    by_name = {entry.step.name: entry for entry in entries}
    assert len(targets) == len(set(targets)) > 50
    assert all(by_name[name].outcome == DONE and by_name[name].step.keys for name in targets)
    assert {entry.step.verb for entry in entries} == verbs
