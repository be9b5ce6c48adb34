"""What verbs do after the same answers, so that schedules need not run their code again.

A verb of a systematic schedule is decided by what it was answered: its clock, ids and numbers are
its own. So what an actor did is kept in a tree, whose branches are answers. In another schedule the
actor carries out the same requests as long as it is answered the same, and its code runs once it is
not: from its beginning, with what was answered so far. All requests are carried out, in all
schedules. What is judged is kept by all that the judge can see.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from lakebed.errors import LakebedError, ObjectNotFoundError
from lakebed.store.base import Store, StoredObject
from schedules.model import MOST_TURNS, Violation
from schedules.world import (
    Actor,
    Attempt,
    InterruptError,
    KilledError,
    Schedule,
    ScheduledStore,
    Step,
    World,
)

_T = TypeVar("_T")
_MOST_EVENTS = 120_000
_MOST_VERDICTS = 100_000


class DivergedError(BaseException):
    """A verb does something else after the same answers."""


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str  # begin, inputs, call, open, sleep, end or stop
    name: str = ""
    key: str = ""
    run: Callable[[], object] | None = None
    is_write: bool = False
    seconds: float = 0.0
    notes: str | None = None  # what verbs know of each other, if the actor has changed it
    ended: _Ended | None = None

    @property
    def what(self) -> tuple[str, str, str]:
        return self.kind, self.name, self.key


class _Ended(NamedTuple):
    attempt: Attempt
    is_killed: bool


class _Node:
    """What an actor does next, and where that leads to by the answer."""

    __slots__ = ("after", "event")

    def __init__(self) -> None:
        self.event: _Event | None = None
        self.after: dict[object, _Node] = {}


class _Past(NamedTuple):
    event: _Event
    answer: Any
    notes: str
    now: float
    own_s: float


@dataclass
class Memory:
    """What was seen of verbs and of the judge.

    Attributes:
        executed: How many actors have run their code.
        recalled: How many have not.
        judged: How many results were judged.
        diverged: How many schedules were played again since a verb did something else.
        twice: How many schedules were played with the code of all verbs, too.
    """

    executed: int = 0
    recalled: int = 0
    judged: int = 0
    diverged: int = 0
    twice: int = 0
    events: int = 0
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: dict[object, tuple[Violation, ...]] = field(default_factory=dict)
    _roots: dict[object, _Node] = field(default_factory=dict)

    def attach(self, world: World) -> None:
        """Let the actors of a world recall what they did."""
        if self.events > _MOST_EVENTS:
            self._roots.clear()
            self.notes.clear()
            self.events = 0
        if len(self.verdicts) > _MOST_VERDICTS:
            self.verdicts.clear()
        for actor in world.actors:
            root = self._roots.setdefault(_key_of(world.schedule, actor), _Node())
            actor.recall = Recall(self, actor, root)

    def notes_of(self, world: World) -> str:
        """Return what verbs know of each other as a text, and remember it."""
        text = repr(world.notes)
        if text not in self.notes:
            self.notes[text] = copy.deepcopy(world.notes)
        return text


def can_be_recalled(schedule: Schedule) -> bool:
    """Return whether each verb of a schedule is decided by what it was answered.

    Threads of a process have more in common than the store.
    """
    processes = [part.process for part in schedule.parts]
    has_claims = any(fault.kind == "claimed" for fault in schedule.faults)
    is_alone = len(set(processes)) == len(processes) and not has_claims
    return schedule.switches is not None and is_alone


def _key_of(schedule: Schedule, actor: Actor) -> object:
    how = (schedule.setup, schedule.seed, schedule.is_small, schedule.is_far, schedule.fanout)
    return *how, actor.name, actor.skew_s, actor.steps


class Recall:
    """What an actor of a schedule has done before: it plays that, and adds to it."""

    def __init__(self, memory: Memory, actor: Actor, root: _Node) -> None:
        self._memory = memory
        self._actor = actor
        self._world = actor.world
        self._node: _Node | None = root
        self._notes = ""
        self._inputs: set[str] = set()
        self._past: collections.deque[_Past] = collections.deque()
        self._made: list[Attempt] = []  # of what is behind
        self._next = 0

    # --- What is known

    def play(self) -> bool:
        self._notes = self._memory.notes_of(self._world)
        node = self._node
        assert node is not None
        self._actor.is_recalling = True
        while node.event is not None:
            event = node.event
            self._set_notes(event.notes)
            if event.kind == "stop":
                self._memory.recalled += 1
                return True
            answer = self._do(event)
            label = self._label(answer)
            world, actor = self._world, self._actor
            self._past.append(_Past(event, answer, self._notes, world.now, actor.own_s))
            node = node.after.setdefault(label, _Node())
        self._memory.executed += 1
        self._actor.is_recalling = False
        self._world.set_clock(self._actor)
        self._node = node
        self._get_ready()
        return False

    def _do(self, event: _Event) -> Any:
        actor = self._actor
        match event.kind:
            case "begin":
                self._made.append(actor.begins(actor.steps[len(self._made)]))
            case "inputs":
                return self._contents(event.key.split(" "))
            case "call":
                assert event.run is not None
                try:
                    return actor.store.send(
                        event.name, event.key, event.run, is_write=event.is_write
                    )
                except (LakebedError, KilledError, InterruptError) as exc:
                    return exc.with_traceback(None)
            case "open":
                actor.opens()
            case "sleep":
                self._world.rest(actor, event.seconds)
            case "end":
                assert event.ended is not None
                self._end(event.ended)
        return None

    def _end(self, ended: _Ended) -> None:
        attempt, known = self._made[-1], ended.attempt
        attempt.outcome, attempt.error = known.outcome, known.error
        attempt.intent, attempt.answers = dict(known.intent), list(known.answers)
        attempt.seen, attempt.bases = list(known.seen), dict(known.bases)
        for commit_id in attempt.bases:
            self._world.commits[commit_id] = attempt
        if ended.is_killed:
            self._actor.restart()
        self._actor.ends(attempt)

    def _get_ready(self) -> None:
        """Let the code of an actor begin, which is going to be answered what was answered."""
        actor = self._actor
        actor.store = ScheduledStore(self._world.inner, actor)
        actor.last_heads = {}
        actor.numbers.clear()
        self._world.forget_luck(actor)
        for attempt in self._made:
            attempt.outcome, attempt.error = "running", None
            attempt.intent, attempt.answers, attempt.seen, attempt.bases = {}, [], [], {}

    # --- What the code of an actor does

    def _is_behind(self) -> bool:
        if len(self._past) == 1 and self._past[0].event.kind == "inputs":
            self._past.popleft()
        return bool(self._past)

    def begun(self, step: Step) -> Attempt | None:
        event = _Event("begin", step.verb)
        if self._is_behind():
            self._recalled(event)
            self._next += 1
            return self._made[self._next - 1]
        self._reach(event)
        self._answered(None)
        return None

    def has_ended(self, attempt: Attempt, *, is_killed: bool) -> bool:
        event = _Event("end", ended=_Ended(copy.copy(attempt), is_killed))
        if self._is_behind():
            self._recalled(event)
            return True
        self._reach(event)
        self._answered(None)
        return False

    def stop(self) -> None:
        if self._is_behind():
            raise DivergedError
        self._reach(_Event("stop"))

    def call(
        self,
        store: ScheduledStore,
        operation: str,
        key: str,
        run: Callable[[], _T],
        *,
        is_write: bool,
    ) -> _T:
        if store.is_dead:
            raise KilledError
        event = _Event("call", operation, key, run, is_write)
        return self._once(event, lambda: store.send(operation, key, run, is_write=is_write))

    def opens(self) -> None:
        self._once(_Event("open"), self._actor.opens)

    def sleeps(self, seconds: float) -> None:
        event = _Event("sleep", seconds=seconds)
        self._once(event, lambda: self._world.rest(self._actor, seconds))

    def _once(self, event: _Event, do: Callable[[], _T]) -> _T:
        """Do something, and add it to what is known; or return what came of it before."""
        if self._is_behind():
            return self._recalled(event)  # type: ignore[no-any-return]
        self._reach(event)
        try:
            answer = do()
        except (LakebedError, KilledError, InterruptError) as exc:
            self._answered(exc)
            raise
        self._answered(answer)
        return answer

    def pauses(self) -> None:
        raise DivergedError

    def open_input(self, inner: Store, key: str, size_bytes: int | None) -> pa.NativeFile:
        if not self._past:
            self._inputs.add(key)
            return inner.open_input(key, size_bytes=size_bytes)
        past = self._past[0]
        if past.event.kind != "inputs" or key not in past.answer:
            raise DivergedError
        data = past.answer[key]
        if data is None:
            raise ObjectNotFoundError(f"No object {key!r} in {inner.uri}.")
        return pa.BufferReader(data)

    def _recalled(self, event: _Event) -> Any:
        """Return what was answered, at the time at which it was."""
        if self._past[0].event.kind == "inputs":
            self._past.popleft()
        past = self._past.popleft()
        if past.event.what != event.what:
            raise DivergedError
        world, actor = self._world, self._actor
        world.now, actor.own_s = past.now, past.own_s
        world.set_clock(actor)
        self._set_notes(past.notes)
        if isinstance(past.answer, KilledError):
            world.kill(actor)
        answer = past.answer
        if isinstance(answer, BaseException):
            del past  # which would keep the error, and the error this frame
            try:
                raise answer
            finally:
                del answer
        return answer

    # --- What is added

    def _reach(self, event: _Event) -> None:
        node = self._node
        if node is None:
            return
        if self._inputs:
            keys = sorted(self._inputs)
            self._inputs.clear()
            self._add(node, _Event("inputs", key=" ".join(keys)))
            if self._node is None:
                return
            label = self._label(self._contents(keys))
            self._node = node = node.after.setdefault(label, _Node())
        self._add(node, event)

    def _add(self, node: _Node, event: _Event) -> None:
        text = self._memory.notes_of(self._world)
        if node.event is None:
            has_changed = text != self._notes
            node.event = replace(event, notes=text) if has_changed else event
            self._memory.events += 1
        elif node.event.what != event.what:
            self._node = None  # what comes next is not known by the answers
        self._notes = text

    def _answered(self, answer: Any) -> None:
        if self._node is not None:
            self._node = self._node.after.setdefault(self._label(answer), _Node())

    def _label(self, answer: Any) -> object:
        now = round(self._world.clock_of(self._actor), 4)
        self._notes = self._memory.notes_of(self._world)
        return _sum_of(answer), now, self._notes

    def _set_notes(self, text: str | None) -> None:
        if text is not None and text != self._memory.notes_of(self._world):
            self._world.notes = copy.deepcopy(self._memory.notes[text])

    def _contents(self, keys: list[str]) -> dict[str, bytes | None]:
        objects = self._world.objects
        return {key: objects[key].data if key in objects else None for key in keys}


def _sum_of(answer: Any) -> object:
    if answer is None or isinstance(answer, bool | int | str):
        return answer
    if isinstance(answer, bytes):
        return hash(answer)
    if isinstance(answer, StoredObject):
        return hash(answer.data), answer.etag, answer.modified_at
    if isinstance(answer, dict):
        return tuple((key, hash(data)) for key, data in answer.items())
    if isinstance(answer, BaseException):
        return type(answer).__name__, str(answer)
    return repr(answer)


def seen_by_judge(world: World) -> int:
    """Return a sum of all that a judge can see of what has come to an end, and those who come after it."""
    objects = tuple(
        (key, held.etag, held.modified_at, hash(held.data)) for key, held in world.objects.items()
    )
    places = {id(attempt): place for place, attempt in enumerate(world.attempts)}
    attempts = tuple(
        (
            *(one.actor, one.verb, one.outcome, repr(one.error), repr(one.intent)),
            *(tuple((answer.commit_id, answer.version) for answer in one.answers), tuple(one.seen)),
            *(repr(one.bases), one.turns > MOST_TURNS),
        )
        for one in world.attempts
    )
    events = tuple(
        (places[id(one.attempt)], one.is_put, one.key, world.sums[one.etag], one.commit_ids)
        for one in world.events
    )
    deleted = tuple((places[id(attempt)], key) for attempt, key in world.live_deleted)
    how = (world.schedule.theme, round(world.now, 4), repr(world.notes))
    return hash((tuple(sorted(objects)), attempts, events, deleted, how))


class _Active:
    memory: Memory | None = None


def active() -> Memory | None:
    """Return what is recalled now, if anything is."""
    return _Active.memory


@contextmanager
def recalling(memory: Memory) -> Iterator[Memory]:
    """Let schedules recall what verbs did in others."""
    before, _Active.memory = _Active.memory, memory
    try:
        yield memory
    finally:
        _Active.memory = before


__all__ = [
    "DivergedError",
    "Memory",
    "Recall",
    "active",
    "can_be_recalled",
    "recalling",
    "seen_by_judge",
]
