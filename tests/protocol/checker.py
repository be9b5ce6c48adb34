"""A small explicit-state checker: visits every state that a model can reach, breadth first.

A model has actors. Each runs a program: a generator that yields requests to a store, one at a time,
and receives their answers, as the code does that it stands for. Between two requests an actor does
nothing that others could notice, so a state is determined by the objects in the store, by the
answers that each actor has received, and by the requests that are under way. The checker tries each
actor as the next one in each state, and lets each request of a write fail in each way, as far as
the bounds of the model allow.

States are tuples of small numbers: objects, requests and the positions of actors are numbered when
they are met first, and each step of an actor and each request on a store is computed once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

Value = Any  # hashable
LOST = "no answer"
INTERRUPTED = "interrupted"
BLOCKED = object()
_WRITES = frozenset({"create", "replace", "put", "delete", "delete if"})
_ANSWERED = frozenset({"create", "replace", "put"})  # requests whose answers may be lost


class Request(NamedTuple):
    """A request to the store, or a choice; see the functions below."""

    op: str
    key: Value = ""
    value: Value = None
    match: Value = None

    def __str__(self) -> str:
        parts = [self.op, shown(self.key)]
        if self.value is not None:
            parts.append(shown(self.value))
        if self.match is not None:
            parts.append(f"if it is {shown(self.match)}")
        return " ".join(parts)


class Next(NamedTuple):
    """What a program returns to go on as another one, which forgets the answers so far."""

    program: str
    args: tuple[Value, ...] = ()


Program = Generator[Request, Value, Value]


def get(key: str) -> Request:
    """Read an object; the answer is its content, or None."""
    return Request("get", key)


def get_all(keys: Sequence[str]) -> Request:
    """Read immutable objects; the answer is a tuple of their contents, None for a missing one."""
    return Request("get all", tuple(keys))


def get_timed(keys: Sequence[str]) -> Request:
    """Read objects with the times when they were stored, None for a missing one."""
    return Request("get timed", tuple(keys))


def put(key: str, value: Value) -> Request:
    """Write an object."""
    return Request("put", key, value)


def written(key: str, value: Value) -> Program:
    """Write an object until there is an answer, as the client of a store does with plain puts."""
    answer = yield put(key, value)
    while answer is LOST:
        answer = yield put(key, value)
    return answer


def create(key: str, value: Value) -> Request:
    """Put if absent; the answer is False if the object exists."""
    return Request("create", key, value)


def replace(key: str, value: Value, match: Value) -> Request:
    """Replace if the content is `match`, which stands for its etag; the answer is False if not."""
    return Request("replace", key, value, match)


def delete(*keys: str) -> Request:
    """Delete objects, by one request."""
    return Request("delete", keys)


def delete_if(key: str, match: Value) -> Request:
    """Delete an object if its content is `match`; the answer is False if not."""
    return Request("delete if", key, None, match)


def list_(prefix: str = "") -> Request:
    """List objects; the answer is a tuple of keys and times."""
    return Request("list", prefix)


def clock() -> Request:
    """Read the clock of the actor."""
    return Request("clock")


def choose(*options: Value) -> Request:
    """Do one of several things; all are tried."""
    return Request("choose", options)


_T = TypeVar("_T", bound=Callable[..., Value])
_INTERNAL: set[Callable[..., Value]] = set()


def internal(function: _T) -> _T:
    """Declare that the order of a function of `do` with what others do does not matter."""
    _INTERNAL.add(function)
    return function


def _is_internal(request: Request) -> bool:
    return request.op == "choose" or (request.op == "do" and request.key in _INTERNAL)


def do(function: Callable[..., Value], *args: Value) -> Request:
    """Change what threads of a process share, in one step; `BLOCKED` lets the actor wait."""
    return Request("do", function, args)


class _Local(NamedTuple):
    """The position of an actor: its program, and the answers that it has received."""

    program: str
    args: tuple[Value, ...]
    answers: tuple[Value, ...] = ()


class State(NamedTuple):
    """A state, in numbers; see `View`."""

    store: int
    actors: tuple[int, ...]
    late: tuple[int, ...]
    crashes: int
    losses: int
    clock: int


class Step(NamedTuple):
    """What led from one state to the next.

    Attributes:
        actor: The actor; empty for the clock.
        request: Its request; None for the clock.
        outcome: `ok`, or how it failed.
        answer: The answer that the actor has received.
    """

    actor: str
    request: Request | None
    outcome: str = "ok"
    answer: Value = None

    @property
    def is_fault(self) -> bool:
        """True if something failed."""
        return self.outcome not in ("ok", "lands late")

    def __str__(self) -> str:
        if self.request is None:
            return "a unit of time passes"
        if self.request.op == "choose":
            return f"{self.actor:6} chooses {shown(self.answer)}"
        told = "" if self.outcome == "ok" else f"  [{self.outcome}]"
        answer = "" if self.request.op in _WRITES and self.answer is True else shown(self.answer)
        name = self.request
        if self.request.op == "do":
            told_args = " ".join(map(shown, self.request.value))
            name = f"{self.request.key.__name__.strip('_')} {told_args}"  # type: ignore[assignment]
        return f"{self.actor:6} {name}{' -> ' if answer else ''}{answer}{told}"


def shown(value: Value) -> str:
    """Return a short text of a value."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        parts = (
            f"{name}={shown(part)}"
            for name, part in zip(value._fields, value, strict=True)
            if part not in ((), frozenset(), None, False, "")
        )
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(shown, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))})"
    return str(value)


@dataclass(frozen=True)
class View:
    """A state as invariants see it.

    Attributes:
        objects: The content of each object.
        outcomes: What each actor has come to; None while it is at work.
    """

    objects: Mapping[str, Value]
    outcomes: Mapping[str, Value]

    def ended(self, kind: str) -> Iterator[tuple[str, Value]]:
        """Yield the actors whose outcome is of a kind, with the rest of it."""
        for actor, outcome in self.outcomes.items():
            if outcome is not None and outcome[0] == kind:
                yield actor, outcome[1:]


Invariant = Callable[[View], object]
StepInvariant = Callable[[Mapping[str, Value], Mapping[str, Value]], object]


class Model:
    """A model, with its bounds; a subclass has the programs, as methods.

    Invariants and probes return a false value, or a text that says what is wrong or was met.

    Attributes:
        name: Its name.
        bugs: Names of bugs that can be put into it, each with the invariant that it breaks.
        crashes: How many crashes there may be.
        losses: How many requests may have no answer.
        lates: How many of these may land late.
        ticks: How far the clock may go.
        skews: How far the clocks of actors are off.
        processes: The process of an actor; a crash ends all actors of one. Default: its own.
        interrupts: Whether a thread may be interrupted where it counts as a crash.
    """

    name: ClassVar[str]
    bugs: ClassVar[Mapping[str, str]] = {}
    crashes: int = 0
    losses: int = 0
    lates: int = 1
    ticks: int = 0
    interrupts: bool = False

    def __init__(self, bug: str = "", **bounds: Any) -> None:
        assert not bug or bug in self.bugs, f"{self.name} has no bug {bug!r}"
        self.bug = bug
        self.skews: Mapping[str, int] = {}
        self.processes: Mapping[str, str] = {}
        for name, value in bounds.items():
            setattr(self, name, value)

    def objects(self) -> Mapping[str, Value]:
        """Return the objects at the beginning."""
        return {}

    def actors(self) -> Mapping[str, Next]:
        """Return the actors, each with the program that it begins."""
        raise NotImplementedError

    def is_timed(self, key: str) -> bool:
        """Return whether it matters when an object was stored."""
        return False

    def invariants(self) -> Mapping[str, Invariant]:
        """Return the rules of each state, by name."""
        return {}

    def step_invariants(self) -> Mapping[str, StepInvariant]:
        """Return the rules of each change of the store, by name."""
        return {}

    def probes(self) -> Mapping[str, Callable[[Step, View, View], object]]:
        """Return the interesting steps that have to be met, by name."""
        return {}


LIVENESS = "every actor comes to an end once faults have ended"


@dataclass(frozen=True)
class Broken:
    """An invariant that does not hold, with a shortest way to it."""

    model: str
    invariant: str
    told: str
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"{self.model}: {self.invariant!r} is broken after {len(self.steps)} steps:"]
        lines += [f"{number:4} {step}" for number, step in enumerate(self.steps, 1)]
        lines.append(f"     {self.told}")
        return "\n".join(lines)


@dataclass
class Checked:
    """What a check has come to.

    Attributes:
        states: Number of distinct states.
        steps: Number of steps between them.
        depth: Length of the longest shortest way.
        broken: The first invariant that was found broken; None if all hold.
        met: How often each probe was met.
    """

    model: str
    states: int = 0
    steps: int = 0
    depth: int = 0
    seconds: float = 0.0
    broken: Broken | None = None
    met: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        found = f", BROKEN: {self.broken.invariant}" if self.broken else ""
        return (
            f"{self.model}: {self.states:,} states, {self.steps:,} steps, depth {self.depth}, "
            f"{self.seconds:.1f} s{found}"
        )


class Checker:
    """Explores a model."""

    def __init__(self, model: Model) -> None:
        self.model = model
        begun = model.actors()
        self.names = tuple(begun)
        self._stores: list[Mapping[str, tuple[Value, int]]] = []
        self._store_ids: dict[Value, int] = {}
        self._locals: list[_Local] = []
        self._local_ids: dict[_Local, int] = {}
        self._pending: list[Value] = []  # a request, or the outcome in a list
        self._requests: list[Request] = []
        self._request_ids: dict[Request, int] = {}
        self._applied: dict[tuple[int, Request, int], tuple[int, Value]] = {}
        self._answered: dict[tuple[int, Value], int] = {}
        self._killed = self._intern_ended(("killed",))
        self._interrupted = self._intern_ended(("interrupted",))
        self._views: dict[Value, View] = {}
        self._processes = tuple(model.processes.get(name, name) for name in self.names)
        objects = {key: (value, 0) for key, value in model.objects().items()}
        self.first = State(
            self._intern_store(objects),
            tuple(self._go(_Local(one.program, one.args)) for one in begun.values()),
            (),
            model.crashes,
            model.losses,
            0,
        )
        self._parents: list[tuple[int, Step] | None] = [None]
        self._order: list[State] = [self.first]

    # --- Numbers

    def _intern_store(self, objects: Mapping[str, tuple[Value, int]]) -> int:
        name = frozenset(objects.items())
        known = self._store_ids.get(name)
        if known is None:
            known = self._store_ids[name] = len(self._stores)
            self._stores.append(dict(objects))
        return known

    def _intern_request(self, request: Request) -> int:
        known = self._request_ids.get(request)
        if known is None:
            known = self._request_ids[request] = len(self._requests)
            self._requests.append(request)
        return known

    def _intern_ended(self, outcome: Value) -> int:
        return self._go(_Local("", outcome))

    def _go(self, local: _Local) -> int:
        """Return the number of a position, at which the actor has a request or has ended."""
        known = self._local_ids.get(local)
        if known is not None:
            return known
        pending = self._run(local)
        if isinstance(pending, Next):
            found = self._go(_Local(pending.program, pending.args))
        elif isinstance(pending, Request):
            found = len(self._locals)
            self._locals.append(local)
            self._pending.append(pending)
        else:
            # Ended: what has led there no longer matters.
            ended = _Local("", pending)
            known = self._local_ids.get(ended)
            found = len(self._locals) if known is None else known
            if known is None:
                self._locals.append(ended)
                self._pending.append([pending])
                self._local_ids[ended] = found
        self._local_ids[local] = found
        return found

    def _run(self, local: _Local) -> Value:
        if not local.program:
            return local.args
        program = getattr(self.model, local.program)(*local.args)
        try:
            pending = next(program)
            for answer in local.answers:
                pending = program.send(answer)
        except StopIteration as stop:
            return stop.value
        return pending

    def _after(self, actor: int, answer: Value) -> int:
        known = self._answered.get((actor, answer))
        if known is None:
            local = self._locals[actor]
            known = self._go(local._replace(answers=(*local.answers, answer)))
            self._answered[actor, answer] = known
        return known

    # --- The store

    def _apply(self, store: int, request: Request, now: int) -> tuple[int, Value]:
        name = (store, request, now)
        known = self._applied.get(name)
        if known is None:
            known = self._applied[name] = self._apply_once(store, request, now)
        return known

    def _apply_once(self, store: int, request: Request, now: int) -> tuple[int, Value]:
        objects = self._stores[store]
        op, key = request.op, request.key
        if op == "do":
            changed = dict(objects)
            answer = key(changed, *request.value)
            return (store if answer is BLOCKED else self._intern_store(changed)), answer
        if op == "get all":
            return store, tuple(objects[one][0] if one in objects else None for one in key)
        if op == "get timed":
            return store, tuple(objects.get(one) for one in key)
        if op == "list":
            found = ((one, at) for one, (_, at) in objects.items() if one.startswith(key))
            return store, tuple(sorted(found))
        if op == "delete":
            left = {one: item for one, item in objects.items() if one not in key}
            return self._intern_store(left), True
        there = objects[key][0] if key in objects else None
        if op == "get":
            return store, there
        if op == "create" and there is not None:
            return store, False
        if op in ("replace", "delete if") and there != request.match:
            return store, False
        left = dict(objects)
        if op == "delete if":
            del left[key]
        else:
            left[key] = (request.value, now if self.model.is_timed(key) else 0)
        return self._intern_store(left), True

    # --- Steps

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield each step that is possible, and the state after it.

        An internal step comes first, and alone: its order with the steps of others does not matter,
        and invariants ask nothing of an actor that has not ended.
        """
        for place, actor in enumerate(state.actors):
            pending = self._pending[actor]
            if isinstance(pending, Request) and _is_internal(pending):
                yield from self._steps_of(state, place, pending)
                return
        for place, actor in enumerate(state.actors):
            pending = self._pending[actor]
            if isinstance(pending, Request):
                yield from self._steps_of(state, place, pending)
        for number in set(state.late):
            request = self._requests[number]
            store, _ = self._apply(state.store, request, state.clock)
            late = list(state.late)
            late.remove(number)
            step = Step("late", request, "lands late")
            yield step, state._replace(store=store, late=tuple(late))
        if state.clock < self.model.ticks:
            yield Step("", None), state._replace(clock=state.clock + 1)

    def _steps_of(self, state: State, place: int, request: Request) -> Iterator[tuple[Step, State]]:
        name, op = self.names[place], request.op
        if op == "choose":
            for option in request.key:
                yield self._moved(state, place, Step(name, request, "ok", option))
            return
        if op == "clock":
            now = state.clock + self.model.skews.get(name, 0)
            yield self._moved(state, place, Step(name, request, "ok", now))
            return
        store, answer = self._apply(state.store, request, state.clock)
        if answer is BLOCKED:
            return
        after = state._replace(store=store)
        yield self._moved(after, place, Step(name, request, "ok", answer))
        if op == "do":
            return
        if state.crashes:
            yield from self._crashes(state, after, place, request)
        if state.losses and op in _ANSWERED:
            yield from self._losses(state, after, place, request)

    def _moved(self, state: State, place: int, step: Step) -> tuple[Step, State]:
        actors = list(state.actors)
        actors[place] = self._after(actors[place], step.answer)
        return step, state._replace(actors=tuple(actors))

    def _crashes(
        self, state: State, after: State, place: int, request: Request
    ) -> Iterator[tuple[Step, State]]:
        name, process = self.names[place], self._processes[place]
        ways = [("killed before it", state)]
        if request.op in _WRITES:
            ways.append(("killed after it", after))
        for outcome, there in ways:
            actors = tuple(
                self._killed
                if self._processes[at] == process and isinstance(self._pending[actor], Request)
                else actor
                for at, actor in enumerate(there.actors)
            )
            left = there._replace(actors=actors, crashes=state.crashes - 1)
            yield Step(name, request, outcome), left
            if self.model.interrupts:
                told = outcome.replace("killed", "interrupted")
                step = Step(name, request, told, INTERRUPTED)
                _, moved = self._moved(there, place, step)
                yield step, moved._replace(crashes=state.crashes - 1)

    def _losses(
        self, state: State, after: State, place: int, request: Request
    ) -> Iterator[tuple[Step, State]]:
        name, losses = self.names[place], state.losses - 1
        ways = [("lost", state), ("landed, answer lost", after)]
        if len(state.late) < self.model.lates:
            late = tuple(sorted((*state.late, self._intern_request(request))))
            ways.append(("under way", state._replace(late=late)))
        for outcome, there in ways:
            step, moved = self._moved(there, place, Step(name, request, outcome, LOST))
            yield step, moved._replace(losses=losses)

    # --- The search

    def view(self, state: State) -> View:
        """Return a state as invariants see it."""
        ended = tuple(
            None if isinstance(self._pending[actor], Request) else actor for actor in state.actors
        )
        name = (state.store, ended)
        known = self._views.get(name)
        if known is None:
            objects = {key: value for key, (value, _) in self._stores[state.store].items()}
            outcomes = {
                actor: None if at is None else self._pending[at][0]
                for actor, at in zip(self.names, ended, strict=True)
            }
            known = self._views[name] = View(objects, outcomes)
        return known

    def check(self, only: str = "", most: int = 10_000_000) -> Checked:
        """Visit all states; stop at the first invariant that is broken.

        Args:
            only: The invariant that is checked; all by default.
            most: Number of states above which something is wrong with the bounds.
        """
        began = time.process_time()
        found = Checked(self.model.name)
        invariants = _only(only, self.model.invariants())
        step_invariants = _only(only, self.model.step_invariants())
        probes = self.model.probes()
        known: dict[State, int] = {self.first: 0}
        order, parents = self._order, self._parents
        judged: set[int] = set()
        changes: set[tuple[int, int]] = set()
        met: set[Value] = set()
        without_fault: list[list[int]] = []
        depths = [0]
        number = 0
        while number < len(order) and found.broken is None:
            state = order[number]
            view = self.view(state)
            if id(view) not in judged:
                judged.add(id(view))
                for name, rule in invariants.items():
                    told = rule(view)
                    if told:
                        found.broken = self._broken(name, told, number)
                        break
            is_stuck, onward = True, []
            for step, after in self.successors(state):
                found.steps += 1
                at = known.get(after)
                if at is None:
                    at = known[after] = len(order)
                    order.append(after)
                    parents.append((number, step))
                    depths.append(depths[number] + 1)
                if not step.is_fault:
                    onward.append(at)
                    is_stuck = is_stuck and step.actor in ("", "late")
                if state.store != after.store and step_invariants:
                    change = (state.store, after.store)
                    if change not in changes:
                        changes.add(change)
                        for name, judge in step_invariants.items():
                            told = judge(view.objects, self.view(after).objects)
                            if told and found.broken is None:
                                found.broken = self._broken(name, told, number, step)
                if probes:
                    seen = (id(view), step, id(self.view(after)))
                    if seen not in met:
                        met.add(seen)
                        for name, probe in probes.items():
                            if probe(step, view, self.view(after)):
                                found.met[name] += 1
            without_fault.append(onward)
            at_work = [name for name, outcome in view.outcomes.items() if outcome is None]
            if is_stuck and at_work and found.broken is None and only in ("", LIVENESS):
                told = f"{' and '.join(at_work)} cannot go on"
                found.broken = self._broken(LIVENESS, told, number)
            number += 1
            assert len(order) < most, f"{self.model.name} has more than {most:,} states"
        if found.broken is None and only in ("", LIVENESS):
            at = _in_cycle(without_fault)
            if at is not None:
                found.broken = self._broken(LIVENESS, "a state comes again and again", at)
        found.states, found.depth = len(order), max(depths)
        found.seconds = time.process_time() - began
        return found

    def _broken(
        self, invariant: str, told: object, number: int, step: Step | None = None
    ) -> Broken:
        steps = self.way_to(number)
        return Broken(
            self.model.name, invariant, str(told), (*steps, *(() if step is None else (step,)))
        )

    def way_to(self, number: int) -> tuple[Step, ...]:
        """Return a shortest way to a state, by its number."""
        steps: list[Step] = []
        parent = self._parents[number]
        while parent is not None:
            steps.append(parent[1])
            parent = self._parents[parent[0]]
        return tuple(reversed(steps))

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The numbers of states in which all actors have ended, and nothing is under way."""
        return tuple(
            number
            for number, state in enumerate(self._order)
            if not state.late
            and not any(isinstance(self._pending[actor], Request) for actor in state.actors)
        )

    def view_at(self, number: int) -> View:
        """Return a state by its number."""
        return self.view(self._order[number])


def _only(name: str, rules: Mapping[str, Any]) -> Mapping[str, Any]:
    return rules if not name else {one: rule for one, rule in rules.items() if one == name}


def _in_cycle(onward: Sequence[Sequence[int]]) -> int | None:
    """Return a node of a cycle of a graph; None if it has none."""
    comes = [0] * len(onward)
    for targets in onward:
        for at in targets:
            comes[at] += 1
    free = [at for at, count in enumerate(comes) if not count]
    left = len(onward)
    while free:
        left -= 1
        for at in onward[free.pop()]:
            comes[at] -= 1
            if not comes[at]:
                free.append(at)
    if not left:
        return None
    return next(at for at, count in enumerate(comes) if count)


def check(model: Model, only: str = "") -> Checked:
    """Visit all states of a model; see `Checker.check`."""
    return Checker(model).check(only)
