"""Play a trace of the model of commits with the real code: same requests, same order, same faults.

Each request of the real code is of a kind: a step of the model, part of a step, or a request that
the model leaves out, for a reason that `KINDS` states. A request that is of none is an error, so
that the model does not fall behind the code.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from schedules.world import (
    Actor,
    Attempt,
    Fault,
    Part,
    Schedule,
    ScheduledStore,
    World,
    running,
)
from schedules.world import Step as Verb

import lakebed
from lakebed.state.committing import CommitOptions
from protocol.checker import Checker, Step
from protocol.commits import Commits, entries_of

NAME = "d"
BEGUN_AT = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
# Which kind each request of the real code is, in the order of the patterns; see `kind_of`.
KINDS: Sequence[tuple[str, str, str]] = (
    (r"(get|replace) d\.by-dataset-metadata\.json", "head", "a step of the model, by its place"),
    (r"create d/batches/\d+\.json", "reserve", "a step of the model"),
    (r"replace d/batches/\d+\.json", "complete", "a step of the model"),
    (r"get d/batches/\d+\.json", "look at the batch", "a step of the model"),
    (r"delete d/batches/\d+\.json", "release", "a step of the model"),
    (r"put(_stream)? d/data/.*\.parquet", "stage", "a step of the model"),
    (r"delete d/data/.*\.parquet", "remove", "a step of the model"),
    (r"put d/history/.*", "segment", "a step of the model"),
    (r"get d/history/.*", "", "segments are immutable: the model reads them with the head"),
    (r"put d/files/.*", "", "facts: of the model of cleanups, since nothing here deletes them"),
    (r"get d/files/.*", "", "segments are immutable"),
    (r"delete d/(history|files)/.*", "", "segments that no head has named"),
)


class UnknownRequestError(AssertionError):
    """The real code makes a request that the model knows nothing of."""


@dataclass(frozen=True)
class Turn:
    """A request of the model: the actor, its kind, and how it fails."""

    actor: str
    kind: str
    outcome: str = "ok"


_FAULTS: dict[str, Any] = {
    "lost": "lost",
    "landed, answer lost": "landed",
    "under way": "late",
    "killed before it": "kill",
    "killed after it": "kill after",
}


def kind_of(operation: str, key: str) -> str:
    """Return the kind of a request of the real code; empty for one that the model leaves out.

    >>> kind_of("create", "d/batches/17.json"), kind_of("get", "d/history/1.json.zst")
    ('reserve', '')
    """
    for pattern, kind, _ in KINDS:
        if re.fullmatch(pattern, f"{operation} {key}"):
            return "swap" if kind == "head" and operation == "replace" else kind
    raise UnknownRequestError(f"The model has no kind of request for: {operation} {key}")


def turns_of(steps: Sequence[Step]) -> list[Turn]:
    """Return the requests of a trace of the model."""
    found = []
    for step in steps:
        kind = _kind_in_model(step)
        if kind:
            actor = step.actor if step.actor != "late" else "late"
            found.append(Turn(actor, kind, step.outcome))
    return found


def _kind_in_model(step: Step) -> str:
    request = step.request
    if request is None or request.op in ("choose", "get all"):
        return ""
    key = request.key if isinstance(request.key, str) else request.key[0]
    names = {
        ("get", "head"): "head",
        ("replace", "head"): "swap",
        ("create", "batch"): "reserve",
        ("replace", "batch"): "complete",
        ("get", "batch"): "look at the batch",
        ("delete", "batch"): "release",
        ("put", "data"): "stage",
        ("delete", "data"): "remove",
        ("put", "history"): "segment",
    }
    return names[request.op, key.partition("/")[0]]


class ReplayError(AssertionError):
    """The real code makes a request where the model has another one."""


class ScriptedStore(ScheduledStore):
    """A store whose calls wait until it is their turn in the trace."""

    def _call(self, operation: str, key: str, run: Any, *, is_write: bool = False) -> Any:
        world = self._actor.world
        if isinstance(world, ScriptedWorld) and not self._actor.is_alone:
            world.announce(self._actor, operation, key)
        return super()._call(operation, key, run, is_write=is_write)


class ScriptedWorld(World):
    """A world in which a trace decides who goes on, and what fails."""

    def __init__(self, schedule: Schedule, turns: Sequence[Turn]) -> None:
        super().__init__(schedule, _play)
        self.turns_left = list(turns)
        self.next_kinds: dict[str, str] = {}
        self.last_kinds: dict[str, str] = {}
        self.met: list[str] = []  # kinds of all requests
        self.mismatch: AssertionError | None = None
        for actor in self.actors:
            actor.store = ScriptedStore(self.inner, actor)

    def announce(self, actor: Actor, operation: str, key: str) -> None:
        """Note which request an actor is about to make."""
        try:
            kind = kind_of(operation, key)
        except UnknownRequestError as exc:
            self._differs(exc)
            return
        if kind == "head" and actor.calls == 0:
            kind = ""  # the dataset is opened: the verb itself reads the head again
        if kind == self.last_kinds.get(actor.name) == "remove":
            kind = ""  # the model deletes what was staged at once
        self.next_kinds[actor.name] = kind
        self.last_kinds[actor.name] = kind or self.last_kinds.get(actor.name, "")
        self.met.append(kind)

    def _differs(self, exc: AssertionError) -> None:
        """Keep the first difference, and let everything else go on as it comes."""
        self.mismatch = self.mismatch or exc
        self.turns_left.clear()

    def _choose(self, current: Actor | None, *, is_resting: bool = False) -> Actor:
        """Let the actor of the next request go on; first all go on to their first request."""
        left = [one for one in self.actors if not one.is_done]
        while self.turns_left and self.turns_left[0].actor == "late":
            self.turns_left.pop(0)
            self._land(*self.in_flight.pop(0)[1:])
        if self.mismatch is not None:
            return current if current in left and current is not None else left[0]
        for one in left:
            if not self.next_kinds.get(one.name):
                return one  # at a request that the model leaves out, at rest, or not begun
        if not self.turns_left:
            told = ", ".join(f"{one.name} at {self.next_kinds[one.name]!r}" for one in left)
            self._differs(ReplayError(f"The trace is over, and the real code goes on: {told}"))
            return left[0]
        turn = self.turns_left[0]
        actor = next((one for one in left if one.name == turn.actor), None)
        if actor is None or self.next_kinds[turn.actor] != turn.kind:
            there = None if actor is None else self.next_kinds[turn.actor]
            told = f"The model has {turn}, and the real code is at {there!r}"
            self._differs(ReplayError(told))
            return left[0]
        return actor

    def fault_of(self, actor: Actor, *, is_write: bool) -> Fault | None:
        """Return what becomes of a request in the trace."""
        actor.calls += 1
        kind, self.next_kinds[actor.name] = self.next_kinds[actor.name], ""
        if not kind or not self.turns_left:
            return None
        turn = self.turns_left.pop(0)
        if turn.outcome == "ok":
            return None
        return Fault(actor.name, 0, "calls", _FAULTS[turn.outcome], delay=10**9)


@dataclass(frozen=True)
class Ended:
    """What actors have come to, and the commits that are visible, oldest first."""

    outcomes: dict[str, str]
    visible: tuple[str, ...]


def ended_in_model(checker: Checker, number: int) -> Ended:
    """Return what a trace of the model has come to."""
    view = checker.view_at(number)
    outcomes = {
        name: f"{outcome[0]} {outcome[1]}" if outcome[0] == "acknowledged" else str(outcome[0])
        for name, outcome in view.outcomes.items()
    }
    return Ended(outcomes, tuple(entry.commit for entry in entries_of(view)[1:]))


def replayed(model: Commits, steps: Sequence[Step]) -> tuple[Ended, list[str]]:
    """Play a trace with the real code; inside `simulated()`.

    Returns:
        What it has come to, and the kinds of requests that were met.
    """
    names = ("ann", "bob", "cyn", "dan")
    parts = tuple(
        Part(name, 0.0, (Verb(f"{verb} {partition}", 0),))
        for name, (verb, partition) in zip(names, model.verbs, strict=False)
    )
    schedule = Schedule(seed=1, parts=parts, setup=(Verb("begin", 0),), switches=(), theme="replay")
    world = ScriptedWorld(schedule, turns_of(steps))
    with running(world):
        world.run()
        if world.mismatch is not None:
            raise world.mismatch
        # A world lets everything that is under way land once all have ended.
        if any(turn.actor != "late" for turn in world.turns_left):
            raise ReplayError(f"The real code has ended before {world.turns_left[0]}")
        history = lakebed.Repository(world.inner).open(NAME).history()
        visible = tuple(world.commits[one.commit_id].actor for one in history if one.version >= 2)
    outcomes = {one.actor: _told(one) for one in world.attempts if one.actor in names}
    return Ended(outcomes, visible), world.met


def _told(attempt: Attempt) -> str:
    if attempt.outcome == "done":
        return f"acknowledged {attempt.answers[0].version}"
    if attempt.outcome == "broken":
        raise ReplayError(f"The real code has failed: {attempt}") from attempt.error
    return attempt.outcome


def _play(actor: Actor, step: Verb, attempt: Attempt) -> None:
    """Do a verb of the model with the public interface."""
    repository = lakebed.Repository(actor.store)
    if step.verb == "begin":
        descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p")
        dataset = repository.create(NAME, descriptor)
        dataset.append([{"p": "a", "n": 1}])
        return
    verb, partition = step.verb.split()
    # So long ago that the id of the batch is the one after the last, as in the model.
    options = CommitOptions(deadline_s=600.0, begun_at=BEGUN_AT)
    dataset = repository.open(NAME).with_options(commit=options)
    rows = [{"p": partition, "n": 2}]
    attempt.answers.append(dataset.append(rows) if verb == "append" else dataset.overwrite(rows))
