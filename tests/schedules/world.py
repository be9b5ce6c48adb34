"""A world in which one seed decides all: who goes on at each store call, what fails, what time it is.

Actors are threads, each a process of its own with its own store, cache and clock. Whoever wants to
call the store waits for its turn, so that exactly one of them runs at any time. Real are the verbs
and all that is under them; simulated are the order of calls, their answers, clocks and sleep.
"""

from __future__ import annotations

import collections
import copy
import datetime as dt
import functools
import logging
import os
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import pyarrow as pa
import pytest
import time_machine
from heads import SMALL_SIZES
from pyiceberg.manifest import clear_manifest_cache

from lakebed.errors import LakebedError, ObjectExistsError, PreconditionFailedError, StorageError
from lakebed.model.layout import JSON_SUFFIX, MSGPACK_SUFFIX
from lakebed.pipeline import declared_dataset
from lakebed.repository import Repository
from lakebed.state import group_commit, history, waiting_line
from lakebed.state.codec import from_document
from lakebed.state.head import HeadFormat, decode_head
from lakebed.state.state import State
from lakebed.store import base, open_store
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing import DelegatingStore

if TYPE_CHECKING:
    from schedules.replays import Recall

_T = TypeVar("_T")

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()
MOST_STEPS = 4_000
FaultKind = Literal[
    "kill",
    "kill after",
    "claimed",
    "lost",
    "landed",
    "late",
    "twice",
    "interrupt",
    "interrupt after",
]


class KilledError(BaseException):
    """The process is gone: nothing that it does from now on reaches the store."""


class InterruptError(BaseException):
    """Somebody has pressed Ctrl-C: one thread is interrupted, and its process lives on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of some calls of an actor.

    Attributes:
        actor: Which.
        nth: At which of its calls, from 0 on.
        of: Whether all calls count, or only those that write.
        kind: `kill` before the call or after it; `claimed`, for a kill after a claim, as on HDFS: the
            write lands once another one wants to, or somebody finishes it; `lost` on the way to the store; `landed`, but
            the answer is lost; `late`, so that it lands some time after the answer was lost;
            `twice`, so that a client or proxy repeats a write, and answers what came of the second;
            `interrupt` of the thread before the call or after it.
        length: How many calls; all but the first are lost on the way.
        is_stubborn: Only calls of the same kind with the same key fail, while others get through.
        delay: Of what is late: the number of turns until it lands; None for a random one.
    """

    actor: str
    nth: int
    of: Literal["calls", "writes"]
    kind: FaultKind
    length: int = 1
    is_stubborn: bool = False
    delay: int | None = None


AT_ITS_END = -1
_CLAIMED = frozenset({"replace", "delete_if_match"})  # what HDFS does by claims
WRITES = frozenset({"create", "replace", "put", "put_stream", "delete", "delete_if_match"})


class Switch(NamedTuple):
    """An actor gives way before one of its turns, until the others end, rest or give way.

    Attributes:
        actor: Which.
        nth: Before which of its turns, from 0 on; or `AT_ITS_END`.
        to: Who goes on, if it can; else the next one that can.
    """

    actor: str
    nth: int
    to: str = ""


class Call(NamedTuple):
    """What an actor did in one of its turns; `open` is the read of data files after a plan.

    Of a request that deletes several objects, `key` has all of them, separated by spaces.
    """

    actor: str
    nth: int
    operation: str
    key: str
    outcome: str

    @property
    def keys(self) -> list[str]:
        return self.key.split(" ")


@dataclass(frozen=True, slots=True)
class Stall:
    """An actor stands still before one of its calls, until others have done some verbs.

    Attributes:
        actor: Which.
        nth: Before which of its calls, from 0 on.
        of: Whether all calls count, or only those that write.
        verbs: How many verbs others end meanwhile, if they can.
        seconds: How much later it is for everybody at once.
    """

    actor: str
    nth: int
    of: Literal["calls", "writes"]
    verbs: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A verb, and what its choices are drawn from."""

    verb: str
    salt: int


@dataclass(frozen=True, slots=True)
class Part:
    """What one actor does, and how far its clock is from that of the storage.

    Actors of one `process` share its store, cache and end; others are a process each.
    """

    actor: str
    skew_s: float
    steps: tuple[Step, ...]
    process: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All that decides a run; see `schedules.plans` for how one comes of a seed."""

    seed: int
    parts: tuple[Part, ...]
    setup: tuple[Step, ...]
    faults: tuple[Fault, ...] = ()
    stalls: tuple[Stall, ...] = ()
    stickiness: float = 0.0
    fanout: int = 8
    theme: str = ""
    is_far: bool = False  # so that independent requests are sent at once
    gathers_s: float = 0.0  # a leader lets others come for up to this time, so that groups are made
    # Where actors give way, besides where they rest, wait or end: then nothing is left to chance.
    switches: tuple[Switch, ...] | None = None
    is_small: bool = False  # trees fold every few commits
    text: str = ""  # what it was read from

    @property
    def name(self) -> str:
        """What `python -m schedules` takes to play it."""
        if self.switches is not None:
            return repr(self.text)
        return f"{self.seed} --theme {self.theme!r}"


@dataclass(eq=False)
class Attempt:
    """One verb that an actor has tried, and what came of it."""

    actor: str
    verb: str
    began: int
    ended: int = -1
    outcome: str = "running"
    error: BaseException | None = None
    answers: list[Any] = field(default_factory=list)
    intent: dict[str, Any] = field(default_factory=dict)
    # Etags of the heads that it has read, and by commit id those that were current to it then.
    seen: list[str] = field(default_factory=list)
    bases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lost: int = 0  # calls of which there was no answer
    turns: int = 0  # since the last of these
    # By the clock of the actor.
    began_at: float = 0.0
    ended_at: float = 0.0

    def __str__(self) -> str:
        told = {name: value for name, value in self.intent.items() if value is not None}
        error = f"{type(self.error).__name__}: {self.error}" if self.error else ""
        return f"{self.actor}: {self.verb} {told} -> {self.outcome} {error}".rstrip()


@dataclass(frozen=True, slots=True)
class HeadEvent:
    """A head was put or deleted; `state` is what it says, or what it said.

    `commit_ids` are those of the versions that the put has made: of several, if it is of a group.
    """

    step: int
    attempt: Attempt
    is_put: bool
    key: str
    etag: str
    state: State
    commit_ids: tuple[str, ...] = ()


class Actor:
    """A thread that runs verbs one after the other; after a kill, in a new process."""

    def __init__(self, world: World, part: Part, *, is_alone: bool = False) -> None:
        self.world = world
        self.name = part.actor
        self.skew_s = part.skew_s
        self.steps = part.steps
        self.process = part.process or part.actor
        self.is_alone = is_alone
        self.is_done = False
        self.go = threading.Lock()
        self.go.acquire()
        self.calls = self.writes = self.turns = 0
        self.outage = 0
        self.fails: tuple[str, str] | None = None  # the only call that the outage is of
        self.waits_for = 0
        self.waits_on: tuple[threading.Event, float] | None = None  # an event, and until when
        self.attempt: Attempt | None = None
        self.store = ScheduledStore(world.inner, self)
        self.last_heads: dict[str, str] = {}
        self.last_append: tuple[Any, Any, str | None] | None = None
        self.own_s = 0.0  # of its clock, besides what goes by for all
        self.numbers: collections.Counter[str] = collections.Counter()
        self.recall: Recall | None = None
        self.is_recalling = False  # no code of its own runs

    def restart(self) -> None:
        """Begin anew as another process, which knows nothing."""
        self.outage = 0
        self.last_heads = {}
        self.store = ScheduledStore(self.world.inner, self)

    def run(self) -> None:
        _CURRENT.world = self.world
        self.go.acquire()
        self.world.running = self
        self.world.set_clock(self)
        try:
            if self.recall is None or not self.recall.play():
                for step in self.steps:
                    self.do(step)
                if self.recall is not None:
                    self.recall.stop()
        except BaseException as exc:  # noqa: BLE001 - told by the thread that waits for all
            self.world.trouble = exc
        finally:
            self.is_done = True
            self.world.hand_on(self)

    def do(self, step: Step) -> Attempt:
        """Try a verb and note what comes of it."""
        attempt = None if self.recall is None else self.recall.begun(step)
        self.attempt = attempt = attempt or self.begins(step)
        is_killed = False
        try:
            self.world.play(self, step, attempt)
            attempt.outcome = "done"
        except KilledError:
            attempt.outcome, is_killed = "killed", True
            self.restart()
        except InterruptError:
            attempt.outcome = "killed"
        except LakebedError as exc:
            attempt.error = exc
            attempt.outcome = "unknown" if exc.code == "commit-unknown" else "refused"
        except (AssertionError, *_PROGRAM_ERRORS) as exc:
            attempt.error = exc
            attempt.outcome = "broken"
        if isinstance(attempt.error, LakebedError):
            # As if it had been handled: what it holds by its traceback is let go of, and closed.
            _cut(attempt.error)
        if self.recall is None or not self.recall.has_ended(attempt, is_killed=is_killed):
            self.ends(attempt)
        return attempt

    def begins(self, step: Step) -> Attempt:
        """Note that a verb begins."""
        world = self.world
        now = world.clock_of(self)
        self.attempt = attempt = Attempt(self.name, step.verb, world.step, began_at=now)
        world.attempts.append(attempt)
        world.tell(self, "begins", step.verb, "")
        return attempt

    def ends(self, attempt: Attempt) -> None:
        """Note that a verb has ended."""
        world = self.world
        attempt.ended, attempt.ended_at = world.step, world.clock_of(self)
        world.verbs_done += 1
        told = f"{type(attempt.error).__name__}: {attempt.error}" if attempt.error else ""
        world.tell(self, "ends", attempt.verb, f"{attempt.outcome} {told}".rstrip())

    def opens(self) -> None:
        """Let others go on between a plan and the read of its data files."""
        self.world.turn(self)
        self.world.calls.append(Call(self.name, self.turns - 1, "open", "", "ok"))

    def number(self, of: str) -> int:
        """Return a number that nobody else has: of rows, or of fields."""
        world = self.world
        if self.is_alone or not world.is_systematic:
            world.notes[of] = world.notes.get(of, 0) + 1
            return int(world.notes[of])
        # What an actor gives does not depend on when it does so.
        self.numbers[of] += 1
        return 300 * (world.actors.index(self) + 1) + self.numbers[of]


def _cut(error: BaseException) -> None:
    error.__traceback__ = error.__cause__ = error.__context__ = None


_PROGRAM_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)


class World:
    """The store, the clock and the actors of one schedule."""

    def __init__(self, schedule: Schedule, play: Callable[[Actor, Step, Attempt], None]) -> None:
        self.schedule = schedule
        self.play = play
        self.rng = random.Random(schedule.seed)
        self.inner = open_store("memory://schedule")  # which is empty: see `close`
        self.now = START
        self.step = 0
        self.verbs_done = 0
        self.running: Actor | None = None
        self.trouble: BaseException | None = None
        self.trace: list[tuple[int, str, str, str, str]] = []
        self.attempts: list[Attempt] = []
        self.commits: dict[str, Attempt] = {}
        self.events: list[HeadEvent] = []
        self.states: dict[str, State] = {}  # by etag of a head
        self.notes: dict[str, Any] = {}  # what verbs know of each other
        self.calls: list[Call] = []
        self.live_deleted: list[tuple[Attempt, str]] = []  # data files of the current version
        self.first_version = 0  # versions from this one on are of the actors
        self.in_flight: list[tuple[int, Actor, Attempt, str, str, Callable[[], object]]] = []
        self.claims: dict[str, tuple[Actor, Attempt, str, Callable[[], object]]] = {}  # by key
        self.generations: dict[str, object] = {}  # of each process, until it is killed
        self.all_done = threading.Lock()
        self.all_done.acquire()
        self.actors = [Actor(self, part) for part in schedule.parts]
        self._heads: dict[str, str] = {}  # etag of the head at each key
        self._stalls = {(one.actor, one.of, one.nth): one for one in schedule.stalls}
        self._faults = {(one.actor, one.of, one.nth): one for one in schedule.faults}
        self._switches: dict[tuple[str, int], str] | None = None  # who goes on instead
        if schedule.switches is not None:
            self._switches = {(one.actor, one.nth): one.to for one in schedule.switches}
        self._ids: dict[str, random.Random] = {}
        self.sums: dict[str, int] = {}  # of what heads were, by etag
        self._sender: Actor | None = None  # of what lands now
        self._etags: collections.Counter[str] = collections.Counter()
        if self.is_systematic:
            for place, actor in enumerate(self.actors):
                actor.own_s = 0.001 * place
            object.__setattr__(self.inner._space, "serial", self._serials())  # type: ignore[attr-defined]

    def run(self) -> None:
        """Let all actors do what they have to do."""
        self._set_up()
        threads = [threading.Thread(target=actor.run, daemon=True) for actor in self.actors]
        for thread in threads:
            thread.start()
        if self.actors:
            self.hand_on()
            self.all_done.acquire()
        for thread in threads:
            thread.join()
        self.running = None
        if self.trouble is not None:
            raise self.trouble
        self.now += max((actor.own_s for actor in self.actors), default=0.0)
        for actor in self.actors:
            actor.own_s = 0.0
        for due in sorted(self.in_flight, key=lambda one: one[0]):
            # What is still on its way lands now, or never.
            if self.is_systematic or self.rng.random() < 0.5:
                self._land(*due[1:])
        self.in_flight.clear()
        for key in list(self.claims):
            self.finish_claim(key)

    @property
    def is_systematic(self) -> bool:
        """Whether the schedule says who goes on; else chance does."""
        return self._switches is not None

    @property
    def objects(self) -> Mapping[str, Any]:
        """What the store holds, by its keys."""
        return self.inner._space.objects  # type: ignore[attr-defined, no-any-return]

    def _set_up(self) -> None:
        """Do what comes before, or take what it came to in another run."""
        schedule = self.schedule
        if not self.is_systematic:
            self.alone("setup", schedule.setup)
            return
        named = (schedule.setup, schedule.seed, schedule.is_small, schedule.fanout)
        kept = _SETUPS.get(named)
        if kept is None:
            self.alone("setup", schedule.setup)
            _SETUPS[named] = _Kept.of(self)
        else:
            kept.give(self)
        self.now += 1.0
        self.first_version = max((one.version for one in self.states.values()), default=-1) + 1

    def alone(self, name: str, steps: Iterable[Step], *, skew_s: float = 0.0) -> list[Attempt]:
        """Let somebody do something while nobody else does."""
        actor = Actor(self, Part(name, skew_s, tuple(steps)), is_alone=True)
        self.running = actor
        self.set_clock(actor)
        return [actor.do(step) for step in actor.steps]

    def close(self) -> None:
        """Give the memory back."""
        self.inner.delete([info.key for info in self.inner.list()])
        PROCESS_CACHE.clear()
        clear_manifest_cache()  # which goes by names alone, and these come again

    def tell(self, actor: Actor, operation: str, key: str, outcome: str) -> None:
        self.trace.append((self.step, actor.name, operation, key, outcome))

    def clock_of(self, actor: Actor | None) -> float:
        """Return what time it is for an actor, or for the storage.

        In a systematic schedule the clock of the storage stands still, but for what goes by for
        all: it has seconds, as that of S3.
        """
        return self.now + (0.0 if actor is None else actor.skew_s + actor.own_s)

    def set_clock(self, actor: Actor | None) -> None:
        assert _CLOCK.traveller is not None
        _CLOCK.traveller.move_to(self.clock_of(actor))

    def _serials(self) -> Iterator[str]:
        """Yield etags: what an actor writes has the same ones whenever it does so."""
        while True:
            actor = self._sender or self.running
            name = "" if actor is None else actor.name
            self._etags[name] += 1
            yield f"-{name}-{self._etags[name]}"

    def sleep(self, seconds: float) -> None:
        """Let time go by, and others go on."""
        actor = self.running
        if actor is not None and actor.recall is not None:
            actor.recall.sleeps(seconds)
        else:
            self.rest(actor, seconds)

    def rest(self, actor: Actor | None, seconds: float) -> None:
        """Let an actor sleep."""
        if actor is not None and self.is_systematic:
            actor.own_s += max(0.0, seconds)
        else:
            self.now += max(0.0, seconds)
        if actor is not None and not actor.is_alone:
            if not self.is_systematic and actor.outage and seconds and self.rng.random() < 0.5:
                actor.waits_for = self.verbs_done + 1
            self.turn(actor, is_resting=seconds > 0)

    def pause(self, event: threading.Event, seconds: float) -> bool:
        """Wait until another thread of the process sets an event, or time is over."""
        actor = self.running
        assert actor is not None
        if actor.recall is not None:
            actor.recall.pauses()
        until = self.now + actor.own_s + seconds
        while not (event.is_set() or self.now + actor.own_s >= until or actor.is_alone):
            actor.waits_on = (event, until)
            self.turn(actor)
            actor.waits_on = None
        return event.is_set()

    def gather(self) -> None:
        """Let a leader stand still for a while before it begins, so that others join it."""
        if self.schedule.gathers_s and self.running is not None:
            share = 1.0 if self.is_systematic else self.rng.random()
            self.pause(threading.Event(), self.schedule.gathers_s * share)

    def forget_luck(self, actor: Actor) -> None:
        """Let an actor be given the same ids and random numbers from the start."""
        self._ids.pop(actor.name, None)
        self._ids.pop(f"{actor.name} luck", None)

    def generation_of(self, actor: Actor) -> object:
        """Return what the actors of one process have in common until it is killed."""
        return self.generations.setdefault(actor.process, object())

    def kill(self, actor: Actor) -> None:
        """End a process: no store of its threads gets through any more."""
        self.generations.pop(actor.process, None)

    def turn(self, actor: Actor, *, is_resting: bool = False) -> None:
        """Choose who goes on, and wait until it is this actor."""
        self.step += 1
        if self.is_systematic:
            # Its clock goes on with what it does, and with what it waits for.
            for one in self.actors:
                if one is actor or one.waits_on is not None:
                    one.own_s += 0.005
        else:
            self.now += 0.001 + 0.01 * self.rng.random()
        for due in [one for one in self.in_flight if one[0] <= self.step]:
            self.in_flight.remove(due)
            self._land(*due[1:])
        chosen = self._choose(actor, is_resting=is_resting)
        if chosen is not actor:
            chosen.go.release()
            actor.go.acquire()
        self.running = actor
        if not actor.is_recalling:
            self.set_clock(actor)
        actor.turns += 1
        if actor.attempt is not None:
            actor.attempt.turns += 1
        if self.step > MOST_STEPS:
            raise RuntimeError(f"Nobody comes to an end in {MOST_STEPS} steps.")

    def hand_on(self, ended: Actor | None = None) -> None:
        """Let another actor go on, for the one that calls has come to its end."""
        left = [one for one in self.actors if not one.is_done]
        if not left:
            self.all_done.release()
            return
        self._choose(ended).go.release()

    def _choose(self, current: Actor | None, *, is_resting: bool = False) -> Actor:
        left = [one for one in self.actors if not one.is_done]
        ready = [one for one in left if one.waits_for <= self.verbs_done and self._can_go(one)]
        if not ready:
            for one in left:
                one.waits_for = 0
            ready = [one for one in left if self._can_go(one)]
        if not ready:
            # All wait for each other, until the first has waited long enough.
            waits = [(one, one.waits_on[1]) for one in left if one.waits_on is not None]
            self.now = min(until - one.own_s for one, until in waits)
            ready = [one for one in left if self._can_go(one)]
        if self._switches is not None:
            return self._choose_by_switches(current, ready, is_resting=is_resting)
        others = [one for one in ready if one is not current]
        if is_resting and others:
            return self.rng.choice(others)
        if current in ready and self.rng.random() < self.schedule.stickiness:
            assert current is not None
            return current
        return self.rng.choice(ready)

    def _choose_by_switches(
        self, current: Actor | None, ready: Sequence[Actor], *, is_resting: bool
    ) -> Actor:
        """Let the current actor go on, unless it rests, waits, has ended or is to give way."""
        assert self._switches is not None
        if current is None:
            return ready[0]
        place = self.actors.index(current)
        others = [*self.actors[place + 1 :], *self.actors[:place]]
        to = self._switches.get((current.name, AT_ITS_END if current.is_done else current.turns))
        if current in ready and not is_resting and to is None:
            return current
        others.sort(key=lambda one: one.name != to)
        return next((one for one in others if one in ready), current)

    def _can_go(self, actor: Actor) -> bool:
        if actor.waits_on is None:
            return True
        event, until = actor.waits_on
        return event.is_set() or self.now + actor.own_s >= until

    def fault_of(self, actor: Actor, *, is_write: bool) -> Fault | None:
        """Return what becomes of the next call of an actor, and count it."""
        found = self._faults.get((actor.name, "calls", actor.calls))
        actor.calls += 1
        if is_write:
            found = self._faults.get((actor.name, "writes", actor.writes)) or found
            actor.writes += 1
        return found

    def stall_of(self, actor: Actor, *, is_write: bool) -> Stall | None:
        """Return how an actor stands still before its next call."""
        found = self._stalls.pop((actor.name, "calls", actor.calls), None)
        if is_write:
            found = self._stalls.pop((actor.name, "writes", actor.writes), None) or found
        return found

    def send(
        self,
        actor: Actor,
        attempt: Attempt,
        operation: str,
        key: str,
        run: Callable[[], object],
        delay: int | None = None,
    ) -> None:
        """Let a call land some time later, whatever has become of who made it."""
        if delay is None:
            delay = self.rng.randrange(self.rng.choice((3, 10, 30, 100)))
        due = self.step + 1 + delay
        self.in_flight.append((due, actor, attempt, operation, key, run))

    def _land(
        self, actor: Actor, attempt: Attempt, operation: str, key: str, run: Callable[[], object]
    ) -> None:
        try:
            self.execute(actor, attempt, operation, key, run)
            outcome = "lands late"
        except LakebedError as exc:
            outcome = f"lands late: {type(exc).__name__}"
        self.tell(actor, operation, key, outcome)
        self.calls.append(Call(f"late {actor.name}", -1, operation, key, outcome))

    def finish_claim(self, key: str) -> bool:
        """Let a write that was claimed land."""
        claim = self.claims.pop(key, None)
        if claim is not None:
            actor, attempt, operation, run = claim
            self._land(actor, attempt, operation, key, run)
        return claim is not None

    def execute(
        self, actor: Actor, attempt: Attempt, operation: str, key: str, run: Callable[[], _T]
    ) -> _T:
        """Carry a call out by the storage's clock, and note what it does to a head."""
        has_moment = operation in WRITES or not self.is_systematic
        if has_moment:
            self.set_clock(None)
        self._sender = actor
        keys = key.split(" ")
        if operation in _CLAIMED:
            self.finish_claim(key)
        if self.is_systematic and operation.startswith("delete"):
            for one in keys:
                self._note_live(attempt, one)
        try:
            answer = run()
        finally:
            self._sender = None
            if has_moment and not actor.is_recalling:
                self.set_clock(actor)
        for one in filter(_is_head, keys):
            self._note(attempt, operation, one, answer)
        return answer

    def _note_live(self, attempt: Attempt, key: str) -> None:
        """Note a data file of the current version that somebody deletes."""
        if not key.endswith(".parquet") or "/batch_id=" not in key:
            return
        for etag in self._heads.values():
            state = self.states[etag]
            if not key.startswith(f"{state.layout.name}/") or state.is_tree:
                continue
            if any(state.layout.naming.key(label) == key for label in state.labels):
                self.live_deleted.append((attempt, key))

    def _note(self, attempt: Attempt, operation: str, key: str, answer: object) -> None:
        if operation in ("create", "replace"):
            stored = self.inner.get(key)
            state = _state_of(key, stored.data)
            before = self.states.get(self._heads.get(key, ""))
            self.states[stored.etag] = state
            self.sums[stored.etag] = hash(stored.data)
            self._heads[key] = stored.etag
            made = [state.commit_id]
            if before is not None and state.version > before.version + 1:
                made = [
                    entry.commit_id
                    for entry in history.read(self.inner, state.lists.history, after=before.version)
                ]
            event = HeadEvent(self.step, attempt, True, key, stored.etag, state, tuple(made))
            self.events.append(event)
        elif operation in ("delete", "delete_if_match") and answer is not False:
            etag = self._heads.pop(key, None)
            if etag is not None:
                self.events.append(
                    HeadEvent(self.step, attempt, False, key, etag, self.states[etag])
                )

    def uuid(self) -> uuid.UUID:
        """Return an id, and note which verb asked for it: it may become that of a commit."""
        actor = self.running
        found = uuid.UUID(int=self._chance().getrandbits(128), version=4)
        if actor is not None and actor.attempt is not None:
            self.commits[found.hex] = actor.attempt
            actor.attempt.bases[found.hex] = tuple(actor.last_heads.values())
        return found

    def random_bytes(self, size: int) -> bytes:
        """Return what nobody guesses."""
        return self._chance().randbytes(size)

    def luck(self) -> Any:
        """Return what code of Lakebed asks for random numbers."""
        return self._chance(" luck") if self.is_systematic else _RANDOM

    def _chance(self, of: str = "") -> random.Random:
        actor = self.running
        if actor is None or not self.is_systematic:
            return self.rng
        # What an actor calls its objects does not depend on when it does so.
        seed = f"{self.schedule.seed} {actor.name}{of}"
        return self._ids.setdefault(actor.name + of, random.Random(seed))


def _is_head(key: str) -> bool:
    return key.endswith((JSON_SUFFIX, MSGPACK_SUFFIX)) and "/" not in key


@functools.lru_cache(maxsize=10_000)
def _state_of(key: str, data: bytes) -> State:
    head_format = HeadFormat.JSON if key.endswith(JSON_SUFFIX) else HeadFormat.MSGPACK
    return from_document(decode_head(data, head_format, key), head_format, key)


class ScheduledStore(DelegatingStore):
    """The store of one process: each call waits for its turn, and may fail."""

    def __init__(self, inner: Store, actor: Actor) -> None:
        super().__init__(inner)
        self.is_near = not actor.world.schedule.is_far
        self._actor = actor
        self._generation = actor.world.generation_of(actor)

    @property
    def cache_name(self) -> str:
        """Processes share no cache."""
        return f"{self.inner.cache_name}#{self._actor.process}.{id(self._generation)}"

    @property
    def group_key(self) -> object:
        """Threads of a process commit together."""
        return self._generation

    @property
    def is_dead(self) -> bool:
        return self._actor.world.generations.get(self._actor.process) is not self._generation

    def _call(
        self, operation: str, key: str, run: Callable[[], _T], *, is_write: bool = False
    ) -> _T:
        recall = self._actor.recall
        if recall is None:
            return self.send(operation, key, run, is_write=is_write)
        return recall.call(self, operation, key, run, is_write=is_write)

    def send(self, operation: str, key: str, run: Callable[[], _T], *, is_write: bool) -> _T:
        """Carry out a call once it is its turn, unless it fails."""
        actor, world = self._actor, self._actor.world
        if self.is_dead:
            raise KilledError
        attempt = actor.attempt
        assert attempt is not None
        if actor.is_alone:
            return world.execute(actor, attempt, operation, key, run)
        stall = world.stall_of(actor, is_write=is_write)
        if stall is not None:
            actor.waits_for = world.verbs_done + stall.verbs
            world.now += stall.seconds
            world.tell(actor, "stalls", operation, f"{stall.verbs} verbs, {stall.seconds:g} s")
        world.turn(actor)
        if self.is_dead:  # another thread of the process was killed
            raise KilledError
        fault = world.fault_of(actor, is_write=is_write)
        kind: str | None = None if fault is None else fault.kind
        if actor.outage and actor.fails in (None, (operation, key)):
            actor.outage -= 1
            kind = kind if kind and kind.startswith(("kill", "interrupt")) else "lost"
        elif fault is not None:
            actor.outage = fault.length - 1
            actor.fails = (operation, key) if fault.is_stubborn else None
        if kind is not None:
            attempt.lost += 1
            attempt.turns = 0
        nth = actor.turns - 1

        def told(outcome: str) -> None:
            world.tell(actor, operation, key, outcome)
            world.calls.append(Call(actor.name, nth, operation, key, outcome))

        if kind == "kill" or (kind == "claimed" and operation not in _CLAIMED):
            told("killed before it")
            self._die()
        if kind == "claimed" and operation in _CLAIMED:
            world.claims[key] = (actor, attempt, operation, run)
            told("killed after its claim")
            self._die()
        if kind == "interrupt":
            told("interrupted before it")
            raise InterruptError
        if kind == "late" and is_write:
            world.send(actor, attempt, operation, key, run, fault.delay if fault else None)
        if kind == "lost" or (kind == "late" and is_write):
            told("no answer: " + ("under way" if kind == "late" else "lost"))
            raise StorageError(f"There was no answer to {operation} of {key!r}.", retryable=True)
        how = ""
        if kind == "twice":
            kind = None
            if is_write:
                how = ", sent twice"
                with suppress(LakebedError):
                    world.execute(actor, attempt, operation, key, run)
        try:
            answer = world.execute(actor, attempt, operation, key, run)
            outcome = "ok" if answer is not False else "it is another one"
        except LakebedError as exc:
            outcome = type(exc).__name__
            if kind is None:
                told(outcome + how)
                raise
        if kind == "kill after":
            told(f"{outcome}, killed after it")
            self._die()
        if kind == "interrupt after":
            told(f"{outcome}, interrupted after it")
            raise InterruptError
        if kind is not None:
            told(f"{outcome}, but the answer is lost")
            raise StorageError(f"The answer to {operation} of {key!r} was lost.", retryable=True)
        told(outcome + how)
        return answer

    def _die(self) -> None:
        self._actor.world.kill(self._actor)
        raise KilledError

    def _see(self, key: str, etag: str) -> None:
        if _is_head(key) and self._actor.attempt is not None:
            self._actor.last_heads[key] = etag
            self._actor.attempt.seen.append(etag)

    def _get(self, key: str) -> StoredObject:
        inner = self.inner
        found = self._call("get", key, lambda: inner.get(key))
        self._see(key, found.etag)
        return found

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        inner = self.inner
        found = self._call("get", key, lambda: inner.get_if_changed(key, etag=etag))
        self._see(key, etag if found is None else found.etag)
        return found

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        inner = self.inner
        return self._call("get_range", key, lambda: inner.get_range(key, start, length))

    def _size(self, key: str) -> int:
        inner = self.inner
        return self._call("size", key, lambda: inner.size(key))

    def _stat(self, key: str) -> ObjectStat:
        inner = self.inner
        return self._call("stat", key, lambda: inner.stat(key))

    def _create(self, key: str, data: memoryview) -> str:
        inner = self.inner
        kept = bytes(data)
        return self._call("create", key, lambda: inner.create(key, kept), is_write=True)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        inner = self.inner
        kept = bytes(data)
        etag = self._call(
            "replace",
            key,
            lambda: inner.replace(key, kept, if_match=if_match),
            is_write=True,
        )
        self._see(key, etag)
        return etag

    def _put(self, key: str, data: memoryview) -> None:
        inner = self.inner
        kept = bytes(data)
        self._call("put", key, lambda: inner.put(key, kept), is_write=True)

    def _put_stream(self, key: str, pieces: Iterator[memoryview], **options: Any) -> None:
        inner = self.inner
        kept = [bytes(piece) for piece in pieces]
        self._call("put_stream", key, lambda: inner.put_stream(key, kept, **options), is_write=True)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        inner = self.inner
        return iter(
            self._call(
                "list",
                begins_with,
                lambda: list(inner.list(begins_with, recursive=recursive)),
            )
        )

    def _folders(self, begins_with: str) -> list[str]:
        inner = self.inner
        return self._call("list", begins_with, lambda: inner.folders(begins_with))

    def _delete(self, keys: Sequence[str]) -> None:
        inner = self.inner
        # One request may carry many keys, but each of them is deleted by itself. Of all orders,
        # those are played in which others meet a state before the first, after it, before the last
        # or after it.
        is_cut = self._actor.world.is_systematic and len(keys) > 2
        parts = [keys[:1], keys[1:-1], keys[-1:]] if is_cut else [[key] for key in keys]
        for part in parts:
            self._call(
                "delete", " ".join(part), lambda part=part: inner.delete(part), is_write=True
            )

    def _delete_if_match(self, key: str, etag: str) -> bool:
        inner = self.inner
        return self._call(
            "delete_if_match",
            key,
            lambda: inner.delete_if_match(key, etag=etag),
            is_write=True,
        )

    def _finish_claim(self, key: str, etag: str) -> bool:
        world = self._actor.world
        if key not in world.claims:
            return False  # which takes no turn: most stores have no claims
        return self._call("finish_claim", key, lambda: world.finish_claim(key))

    def _open_input(self, key: str, size_bytes: int | None) -> pa.NativeFile:
        # Arrow opens data files from threads of its own, whose order nobody decides.
        if self._actor.recall is not None:
            return self._actor.recall.open_input(self.inner, key, size_bytes)
        return self.inner.open_input(key, size_bytes=size_bytes)

    def _local_path(self, key: str) -> None:
        # Asked before data files are read: others may go on between a plan and its files.
        actor = self._actor
        if key == "x" and not self.is_dead and not actor.is_alone:
            opens = actor.opens if actor.recall is None else actor.recall.opens
            opens()

    def _remove_leftovers(
        self, begins_with: str, *, older_than: timedelta, dry_run: bool
    ) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """What a setup has come to, for other runs that begin with it."""

    objects: dict[str, Any]
    keys: list[str]
    now: float
    step: int
    attempts: list[Attempt]
    commits: dict[str, Attempt]
    events: list[HeadEvent]
    states: dict[str, State]
    heads: dict[str, str]
    sums: dict[str, int]
    notes: dict[str, Any]
    trace: list[tuple[int, str, str, str, str]]

    @classmethod
    def of(cls, world: World) -> _Kept:
        space = world.inner._space  # type: ignore[attr-defined]
        return cls(
            objects=dict(space.objects),
            keys=list(space.keys),
            now=world.now,
            step=world.step,
            attempts=list(world.attempts),
            commits=dict(world.commits),
            events=list(world.events),
            states=dict(world.states),
            heads=dict(world._heads),
            sums=dict(world.sums),
            notes=copy.deepcopy(world.notes),
            trace=list(world.trace),
        )

    def give(self, world: World) -> None:
        space = world.inner._space  # type: ignore[attr-defined]
        space.objects.update(self.objects)
        space.keys[:] = self.keys
        world.now, world.step = self.now, self.step
        world.attempts[:] = self.attempts
        world.verbs_done = len(self.attempts)
        world.commits |= self.commits
        world.events[:] = self.events
        world.states |= self.states
        world._heads |= self.heads
        world.sums |= self.sums
        world.notes |= copy.deepcopy(self.notes)
        world.trace[:] = self.trace


_SETUPS: dict[tuple[tuple[Step, ...], int, bool, int], _Kept] = {}


# What reads have given, by what was asked and the objects that were read.
ANSWERS: dict[tuple[object, ...], Any] = {}


def forget_setups() -> None:
    """Let setups be done again, since the code that does them has changed."""
    _SETUPS.clear()
    ANSWERS.clear()
    _state_of.cache_clear()


_RANDOM: Any = random.random.__self__  # type: ignore[attr-defined]  # what the module draws from


class _Clock:
    traveller: Any = None


_CLOCK = _Clock()


def _do_now(work: Callable[..., _T], *arguments: Any, **named: Any) -> futures.Future[_T]:
    """Do in the thread that asks what a pool would do in an order of its own."""
    future: futures.Future[_T] = futures.Future()
    future.set_running_or_notify_cancel()
    try:
        future.set_result(work(*arguments, **named))
    except BaseException as exc:  # noqa: BLE001 - as an executor does
        future.set_exception(exc)
    return future


class _Current(threading.local):
    """The world of a thread; other threads of the process, such as those of Spark, are of none."""

    world: World | None = None


_CURRENT = _Current()


@contextmanager
def simulated() -> Iterator[None]:
    """Let clocks, sleep, ids and threads of Lakebed be those of the world that runs."""
    real_sleep, real_monotonic, real_uuid4 = time.sleep, time.monotonic, uuid.uuid4
    real_urandom = os.urandom
    real_pause, real_begin = waiting_line.pause, group_commit.Member.begin
    real_submit, real_map = futures.ThreadPoolExecutor.submit, futures.ThreadPoolExecutor.map

    def sleep(seconds: float) -> None:
        world = _CURRENT.world
        return real_sleep(seconds) if world is None else world.sleep(seconds)

    def monotonic() -> float:
        world = _CURRENT.world
        if world is None:
            return real_monotonic()
        return world.now + (world.running.own_s if world.running is not None else 0.0)

    def pause(event: threading.Event, seconds: float) -> bool:
        world = _CURRENT.world
        return real_pause(event, seconds) if world is None else world.pause(event, seconds)

    def begin(member: Any) -> None:
        if _CURRENT.world is not None:
            _CURRENT.world.gather()
        real_begin(member)

    def uuid4() -> uuid.UUID:
        world = _CURRENT.world
        return real_uuid4() if world is None else world.uuid()

    def urandom(size: int) -> bytes:
        world = _CURRENT.world
        return real_urandom(size) if world is None else world.random_bytes(size)

    def uniform(first: float, last: float) -> float:
        world = _CURRENT.world
        return (_RANDOM if world is None else world.luck()).uniform(first, last)

    def randint(first: int, last: int) -> int:
        world = _CURRENT.world
        return (_RANDOM if world is None else world.luck()).randint(first, last)

    def token_hex(size: int = 32) -> str:
        return urandom(size).hex()

    def submit(
        pool: futures.ThreadPoolExecutor, work: Callable[..., _T], /, *arguments: Any, **named: Any
    ) -> futures.Future[_T]:
        if _CURRENT.world is None:
            return real_submit(pool, work, *arguments, **named)
        return _do_now(work, *arguments, **named)

    def map_(
        pool: futures.ThreadPoolExecutor, work: Callable[..., _T], *items: Iterable[Any]
    ) -> Iterator[_T]:
        if _CURRENT.world is None:
            return real_map(pool, work, *items)
        return iter([work(*one) for one in zip(*items, strict=False)])

    real_store, real_repository = declared_dataset.open_store, declared_dataset.open_repository

    def open_store_(*given: Any, **named: Any) -> Store:
        world = _CURRENT.world
        if world is None or world.running is None:
            return real_store(*given, **named)
        return world.running.store

    def open_repository_(*given: Any, **named: Any) -> Any:
        world = _CURRENT.world
        if world is None or world.running is None:
            return real_repository(*given, **named)
        return Repository(world.running.store)

    log = logging.getLogger("lakebed")
    level = log.level
    state = random.getstate()
    threads = pa.cpu_count(), pa.io_thread_count()
    with pytest.MonkeyPatch.context() as patch, time_machine.travel(START, tick=False) as traveller:
        # Of all pools, also of modules that a verb is going to load.
        patch.setattr(futures.ThreadPoolExecutor, "submit", submit)
        patch.setattr(futures.ThreadPoolExecutor, "map", map_)
        patch.setattr(time, "sleep", sleep)
        patch.setattr(time, "monotonic", monotonic)
        patch.setattr(uuid, "uuid4", uuid4)
        patch.setattr(os, "urandom", urandom)
        patch.setattr(random, "uniform", uniform)
        patch.setattr(random, "randint", randint)
        patch.setattr(secrets, "token_hex", token_hex)
        # The same few thousand keys come again and again.
        patch.setattr(base, "validate_key", functools.lru_cache(100_000)(base.validate_key))
        patch.setattr(waiting_line, "pause", pause)
        patch.setattr(group_commit.Member, "begin", begin)
        patch.setattr(os, "cpu_count", lambda: 2)
        # What is declared names its location, not a store.
        patch.setattr(declared_dataset, "open_store", open_store_)
        patch.setattr(declared_dataset, "open_repository", open_repository_)
        # Every schedule would warn of what it does to the store.
        log.setLevel(logging.CRITICAL + 1)
        _CLOCK.traveller = traveller
        # Tiny files: threads of Arrow would only wait for each other.
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        try:
            yield
        finally:
            _CLOCK.traveller = None
            log.setLevel(level)
            pa.set_cpu_count(threads[0])
            pa.set_io_thread_count(threads[1])
            random.setstate(state)


@contextmanager
def running(world: World) -> Iterator[World]:
    """Make a world the one that all asks, until it is looked at."""
    from lakebed.state.tree.tree_commit import SIZES
    from lakebed.store import segments

    random.seed(world.schedule.seed)
    _CURRENT.world = world
    fanout, segments.FANOUT = segments.FANOUT, world.schedule.fanout
    small = SMALL_SIZES if world.schedule.is_small else {}
    sizes = {name: getattr(SIZES, name) for name in small}
    for name, size in small.items():
        object.__setattr__(SIZES, name, size)
    try:
        yield world
    finally:
        segments.FANOUT = fanout
        for name, size in sizes.items():
            object.__setattr__(SIZES, name, size)
        _CURRENT.world = None
        world.close()


__all__ = [
    "Actor",
    "Attempt",
    "Call",
    "Fault",
    "InterruptError",
    "KilledError",
    "ObjectExistsError",
    "Part",
    "PreconditionFailedError",
    "Schedule",
    "Stall",
    "Step",
    "Switch",
    "World",
    "forget_setups",
    "running",
    "simulated",
]
