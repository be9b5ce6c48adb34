"""The judge: what a table holds at the end, against what its writers were told.

Each step has rows of its own, and at most one later step of the same writer replaces them. So what
was acknowledged, refused or left open of these two says which rows there must be.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from judge.steps import DONE, REFUSED, UNKNOWN, Entry

# Rules, with the words of the page.
LOST = "acknowledged, and not there"
DOUBLED = "there more than once"
REFUSED_IS_THERE = "refused, and there"
CAME_BACK = "deleted or replaced, and there"
TORN = "there in part"
FROM_NOWHERE = "from nowhere"
UNREADABLE = "table cannot be read"
VERSIONS = "versions do not grow by one"
COMMITS = "acknowledged commit not once in the history"
OBJECTS = "objects do not fit the metadata"
BROKEN = "error without a name"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, and by what."""

    rule: str
    told: str


@dataclass(slots=True)
class Verdict:
    """What the judge has found.

    Attributes:
        violations: Rules that were broken.
        counts: Number of steps by verb and outcome; and of those with an unknown outcome, how many
            are there.
    """

    violations: list[Violation] = field(default_factory=list)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)

    def say(self, rule: str, told: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(rule, told))


def judge(
    entries: Sequence[Entry],
    found: dict[str, Any],
    verbs: frozenset[str] | None = None,
) -> Verdict:
    """Compare what was read at the end with the journals of all writers.

    Args:
        entries: Of all journals.
        found: What the reader printed.
        verbs: Those of the system; steps of others were not taken.
    """
    verdict = Verdict()
    for entry in entries:
        if verbs is None or entry.step.verb in verbs:
            verdict.counts[f"{entry.step.verb} {entry.outcome}"] += 1
        if entry.outcome == "broken":
            verdict.say(BROKEN, f"{entry.step.verb} {entry.step.name}: {entry.error}")
    if found["error"]:
        verdict.say(UNREADABLE, found["error"])
        return verdict
    _judge_rows(verdict, entries, found["rows"])
    _judge_history(verdict, entries, found["history"])
    return verdict


def _judge_rows(verdict: Verdict, entries: Sequence[Entry], rows: Iterable[Sequence[str]]) -> None:
    counts = collections.Counter((key, op) for key, op in rows)
    replaced_by = {entry.step.target: entry for entry in entries if entry.step.target}
    known = {(key, entry.step.name) for entry in entries for key in entry.step.keys}
    for key, op in sorted(set(counts) - known):
        verdict.say(FROM_NOWHERE, f"row {key} of {op}")
    for entry in entries:
        if entry.step.keys:
            _judge_step(verdict, entry, replaced_by.get(entry.step.name), counts)


def _judge_step(
    verdict: Verdict,
    entry: Entry,
    later: Entry | None,
    counts: collections.Counter[tuple[str, str]],
) -> None:
    """Judge the rows of a step, where `later` was to replace them."""
    told = f"{entry.step.verb} {entry.step.name}, {entry.outcome}"
    if later is not None:
        told += f", then {later.step.verb} {later.step.name}, {later.outcome}"
    seen = [counts[key, entry.step.name] for key in entry.step.keys]
    if max(seen) > 1:
        verdict.say(DOUBLED, told)
    is_there, is_whole = any(seen), all(seen)
    if is_there and not is_whole:
        verdict.say(TORN, told)
        return
    if entry.outcome == UNKNOWN:
        verdict.counts["unknown, and there" if is_there else "unknown, and not there"] += 1
    elif entry.outcome == REFUSED:
        if is_there:
            verdict.say(REFUSED_IS_THERE, told)
    elif later is None or later.outcome == REFUSED:
        if not is_there:
            verdict.say(LOST, told)
    elif later.outcome == DONE:
        if is_there:
            verdict.say(CAME_BACK, told)
    elif later.step.keys:
        has_landed = all(counts[key, later.step.name] for key in later.step.keys)
        if is_there and has_landed:
            verdict.say(CAME_BACK, told)
        if not (is_there or has_landed):
            verdict.say(LOST, told)


def _judge_history(verdict: Verdict, entries: Sequence[Entry], history: dict[str, Any]) -> None:
    versions = history["versions"]
    steps = {after - before for before, after in itertools.pairwise(versions)}
    if steps - {1}:
        verdict.say(VERSIONS, f"{versions}")
    for problem in history.get("problems", ()):
        verdict.say(OBJECTS, problem)
    if "commits" not in history:
        return
    by_version = dict(zip(versions, history["commits"], strict=True))
    taken = collections.Counter(history["commits"])
    for entry in entries:
        if not entry.commit:
            continue
        is_once = taken[entry.commit] == 1
        if not is_once or by_version.get(entry.version or 0) != entry.commit:
            verdict.say(COMMITS, f"{entry.step.name}, version {entry.version}")
