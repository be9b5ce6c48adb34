"""Every order in which the requests of two verbs can meet, with a few switches between them.

A schedule of this kind leaves nothing to chance: an actor goes on until it ends, rests, waits, or
comes to one of the switches of the schedule. All schedules of two verbs with at most two switches
are played, but for those that differ only in the order of requests that do not touch the same
object: these come to the same.

A schedule has a text, from which it can be played again:

    document: append | overwrite+read ; ann 5, bob 3 ; ann write 2 landed

The kind of head, `new` where it has no commit, or `dropped` where there is none; verbs of actors, beside each other (`|`), of threads of one process (`&`), one after
the other (`+`), with `#7` to draw other choices; before which of their turns actors give way; and
what fails: the second write of ann, which lands, but is not answered. Who gives way lets the next
one go on, and so does who has ended. `ann 5, bob 3, cyn, bob` names who goes on: cyn does until it
ends, and then bob.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from schedules.plans import ACTORS
from schedules.play import Played, play
from schedules.verbs import VERBS
from schedules.world import (
    AT_ITS_END,
    WRITES,
    Call,
    Fault,
    FaultKind,
    Part,
    Schedule,
    Stall,
    Step,
    Switch,
)

SETUPS = {
    "document": "begin_document append#9 append#4 append#8 overwrite#8 stage#2",
    "tree": "begin_tree append#9 append#4 append#8 overwrite#8 stage#2",
    "dropped": "begin_document append#9 drop",
    "new": "begin_packed",
}
KINDS = ("document", "tree")
SINGLE = (
    *("append", "overwrite", "merge", "delete", "rerun", "epoch", "ingest", "append&append"),
    *("stage", "commit_staged", "discard_staged", "rollback", "compact", "compact_metadata"),
    *("cleanup", "build_index", "drop_index", "publish", "publish_iceberg", "erase", "add_field"),
    *("promote", "drop", "drop+create", "move_head", "change_kind", "read"),
)
# Choices that let verbs meet: rows of the same partitions, an old version, the tightest retention.
_SALTS = {"append": 9, "cleanup": 1, "create": 1, "delete": 9, "merge": 1, "rerun": 8}
_SALTS |= {"rollback": 1, "stage": 5}
AT_END = 1_000_000  # of what is late: it lands when all else is over
SOON = 2
OUTAGE = 200  # calls without an answer: longer than a verb tries
_TEXT = re.compile(r"(\w+) (write|call) (\d+) ([a-z ]+?)(?: x(\d+))?(?: after (\d+))?")
_STAND = re.compile(r"(\w+) call (\d+) stands (\d+)")
STANDS_S = 8 * 86_400  # longer than any lease


class TextError(ValueError):
    """A text is not one of a schedule."""


# --- Texts


def schedule_from(text: str) -> Schedule:
    """Return the schedule of a text.

    >>> schedule = schedule_from("tree: append | delete ; ann 3, bob 1 ; ann write 2 late after 5")
    >>> schedule.switches
    (Switch(actor='ann', nth=3, to=''), Switch(actor='bob', nth=1, to=''))
    >>> text_of(schedule)
    'tree: append | delete ; ann 3, bob 1 ; ann write 2 late after 5'
    >>> text_of(schedule_from("tree: append | read | read ; ann 3, cyn, ann"))
    'tree: append | read | read ; ann 3, cyn, ann'
    """
    sections = [one.strip() for one in text.split(";")]
    kind, _, verbs = sections[0].partition(":")
    if kind not in SETUPS:
        raise TextError(f"{kind!r} is not one of {', '.join(SETUPS)}: {text!r}")
    parts = tuple(_parts(verbs))
    switches = sections[1] if len(sections) > 1 else ""
    schedule = Schedule(
        seed=1,
        parts=parts,
        setup=tuple(map(_step, SETUPS[kind].split())),
        faults=tuple(_fault(one) for one in sections[2:] if not _STAND.fullmatch(one)),
        stalls=tuple(_stall(one) for one in sections[2:] if _STAND.fullmatch(one)),
        switches=_switches([one.split() for one in switches.split(",") if one.strip(" -")]),
        is_small=kind == "tree",
        gathers_s=1.0 if "&" in verbs else 0.0,
        theme=kind,
    )
    return named(schedule)


def _parts(verbs: str) -> Iterator[Part]:
    names = iter(ACTORS)
    for place, process in enumerate(verbs.split("|")):
        for thread in process.split("&"):
            steps = tuple(_step(one.strip()) for one in thread.split("+"))
            yield Part(next(names), 0.0, steps, process=f"p{place}")


def _step(text: str) -> Step:
    verb, _, salt = text.partition("#")
    if verb not in VERBS:
        raise TextError(f"{verb!r} is not a verb.")
    return Step(verb, int(salt) if salt else _SALTS.get(verb, 0))


def _switches(given: Sequence[Sequence[str]]) -> tuple[Switch, ...]:
    if all(len(one) == 2 for one in given):
        return tuple(Switch(actor, int(nth)) for actor, nth in given)
    # Each lets the one that is named next go on.
    return tuple(
        Switch(one[0], int(one[1]) if one[1:] else AT_ITS_END, after[0])
        for one, after in itertools.pairwise(given)
    )


def _fault(text: str) -> Fault:
    found = _TEXT.fullmatch(text)
    if found is None:
        raise TextError(f"{text!r} is not a fault.")
    actor, of, nth, name, length, delay = found.groups()
    kind: Any = name
    if kind not in get_args(FaultKind):
        raise TextError(f"{kind!r} is not one of {', '.join(get_args(FaultKind))}.")
    return Fault(
        actor,
        int(nth),
        "writes" if of == "write" else "calls",
        kind,
        length=int(length or 1),
        delay=int(delay) if delay else None,
    )


def _stall(text: str) -> Stall:
    found = _STAND.fullmatch(text)
    assert found is not None
    return Stall(found[1], int(found[2]), "calls", 1, float(found[3]))


def text_of(schedule: Schedule) -> str:
    """Return the text of a systematic schedule."""
    processes = itertools.groupby(schedule.parts, key=lambda part: part.process)
    verbs = " | ".join(
        " & ".join("+".join(map(_told_step, part.steps)) for part in parts)
        for _, parts in processes
    )
    given = schedule.switches or ()
    names = [one.actor if one.nth == AT_ITS_END else f"{one.actor} {one.nth}" for one in given]
    switches = ", ".join([*names, *(one.to for one in given[-1:] if one.to)])
    stalls = (f"{one.actor} call {one.nth} stands {one.seconds:.0f}" for one in schedule.stalls)
    sections = [f"{schedule.theme}: {verbs}", *map(_told_fault, schedule.faults), *stalls]
    if switches or len(sections) > 1:
        sections.insert(1, switches or "-")
    return " ; ".join(sections)


def _told_step(step: Step) -> str:
    is_usual = step.salt == _SALTS.get(step.verb, 0)
    return step.verb if is_usual else f"{step.verb}#{step.salt}"


def _told_fault(fault: Fault) -> str:
    text = f"{fault.actor} {fault.of[:-1]} {fault.nth} {fault.kind}"
    text += f" x{fault.length}" if fault.length > 1 else ""
    return text if fault.delay is None else f"{text} after {fault.delay}"


def named(schedule: Schedule) -> Schedule:
    """Return a schedule that knows its text."""
    return replace(schedule, text=text_of(schedule))


# --- What comes to the same


def do_conflict(one: Call, other: Call) -> bool:
    """Return whether the order of two requests matters.

    >>> get, put = Call("ann", 0, "get", "d/x", "ok"), Call("bob", 0, "put", "d/x", "ok")
    >>> do_conflict(get, put), do_conflict(get, get)
    (True, False)
    >>> do_conflict(put, Call("ann", 0, "list", "d/", "ok"))
    True
    """
    are_writes = [call.operation in WRITES for call in (one, other)]
    if not any(are_writes):
        return False
    for call, beside in ((one, other), (other, one)):
        if call.operation == "list":
            return any(key.startswith(call.key) for key in beside.keys)
        if call.operation == "open":  # any data files
            return _takes_data(beside)
    return not set(one.keys).isdisjoint(other.keys)


class _Before:
    """The last place of each actor at which it touched something, for calls that come after."""

    def __init__(self) -> None:
        self._touched: dict[str, dict[str, int]] = {}  # by key
        self._written: dict[str, dict[str, int]] = {}
        self._listed: dict[str, dict[str, int]] = {}  # by what keys begin with
        self._opened: dict[str, int] = {}  # any data files
        self._deleted: dict[str, int] = {}

    def of(self, call: Call) -> list[tuple[str, int]]:
        """Return the last place of each other actor that conflicts with a call."""
        last: dict[str, int] = {}
        for places in self._conflicting(call):
            for actor, place in places.items():
                if actor != call.actor:
                    last[actor] = max(place, last.get(actor, 0))
        return sorted(last.items())

    def _conflicting(self, call: Call) -> Iterator[dict[str, int]]:
        if call.operation == "list":
            yield from (at for key, at in self._written.items() if key.startswith(call.key))
        elif call.operation == "open":
            yield self._deleted
        elif call.operation in WRITES:
            for key in call.keys:
                yield self._touched.get(key, {})
                yield from (at for begins, at in self._listed.items() if key.startswith(begins))
            if _takes_data(call):
                yield self._opened
        else:
            yield self._written.get(call.key, {})

    def add(self, call: Call, place: int) -> None:
        """Record a call."""
        if call.operation == "open":
            self._opened[call.actor] = place
            return
        by_key = self._listed if call.operation == "list" else self._touched
        for key in call.keys:
            by_key.setdefault(key, {})[call.actor] = place
            if call.operation in WRITES:
                self._written.setdefault(key, {})[call.actor] = place
        if _takes_data(call):
            self._deleted[call.actor] = place


def _takes_data(call: Call) -> bool:
    return call.operation.startswith("delete") and ".parquet" in call.key


def sum_of(played: Played) -> str:
    """Return a sum that runs share if they differ only in the order of what does not conflict.

    Who is called ann, and who bob, does not matter.
    """
    found = hashlib.sha256(str(played.schedule.theme).encode())
    names = _names(played.schedule.parts)
    before = _Before()
    parts: dict[str, list[str]] = {}
    for called in played.calls:
        late, _, actor = called.actor.rpartition(" ")
        call = called._replace(actor=f"{late} {names[actor]}".lstrip())
        of_actor = parts.setdefault(call.actor, [])
        of_actor.append(
            f"{call.operation} {call.key.split('/')[0:2]} {call.outcome} {before.of(call)}"
        )
        before.add(call, len(of_actor))
    found.update(repr(sorted(names.values())).encode())
    found.update(repr(sorted(parts.items())).encode())
    return found.hexdigest()[:20]


def _names(parts: Sequence[Part]) -> dict[str, str]:
    """Return a name for each actor by what it does, with a number for those that do the same."""
    found: dict[str, str] = {}
    counts: collections.Counter[tuple[Step, ...]] = collections.Counter()
    for part in parts:
        counts[part.steps] += 1
        found[part.actor] = f"{'+'.join(map(_told_step, part.steps))} {counts[part.steps]}"
    return found


# --- All orders of two verbs


@dataclass(frozen=True, slots=True)
class Pair:
    """Two verbs, or what stands for one in a text, of which the first begins."""

    kind: str
    first: str
    second: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.first} | {self.second}"

    @property
    def schedule(self) -> Schedule:
        return schedule_from(str(self))

    @property
    def actors(self) -> tuple[str, str]:
        """The names of who begins and of who comes in between."""
        return ACTORS[0], ACTORS[self.first.count("&") + 1]


def pairs(kinds: Sequence[str] = KINDS, verbs: Sequence[str] = SINGLE) -> Iterator[Pair]:
    """Yield each pair of verbs, in both orders, of each kind of head; and pairs of creators."""
    for first, second in itertools.product(("create+append", "create"), repeat=2):
        yield Pair("dropped", first, second)
    for kind in kinds:
        for one, other in itertools.product(verbs, repeat=2):
            yield Pair(kind, one, other)


def moves(kinds: Sequence[str] = KINDS, verbs: Sequence[str] = SINGLE) -> Iterator[Pair]:
    """Yield each verb beside a move of the head, of datasets with commits and without any."""
    for first in verbs if "document" in kinds else ():
        yield Pair("document", first, "move_head")
        if first != "erase":  # which erases a row that is written at first
            yield Pair("new", first, "move_head#1")


def claims(kinds: Sequence[str] = KINDS, verbs: Sequence[str] = SINGLE) -> Iterator[Pair]:
    """Yield each verb beside those that meet a claim which it has left: they look, or write."""
    finders = ("append_lost", "append", "read", "cleanup", "drop+create", "move_head", "erase")
    for kind in kinds:
        for first, second in itertools.product(verbs, finders):
            if "&" not in first:
                yield Pair(kind, first, second)


def threads(kinds: Sequence[str] = KINDS, verbs: Sequence[str] = SINGLE) -> Iterator[Pair]:
    """Yield each pair of verbs as threads of one process, with a reader beside them."""
    single = [verb for verb in verbs if "&" not in verb]
    for kind in kinds:
        for one, other in itertools.combinations_with_replacement(single, 2):
            yield Pair(kind, f"{one}&{other}", "read")


def orders(pair: Pair) -> Iterator[Played]:
    """Play all orders of a pair in which the first begins, with at most two switches."""
    ann, bob = pair.actors
    schedule = pair.schedule
    yield play(schedule)
    nth, skipped = 1, 0
    while True:
        played = switched(schedule, Switch(ann, nth))
        if played.turns[ann] <= nth:
            return
        yield played
        between = [call for call in calls_between(played.calls, ann, nth) if call.actor == bob]
        yield from _second_switches(schedule, Switch(ann, nth), between, skipped)
        mine = {call.nth: call for call in played.calls if call.actor == ann}
        while nth < played.turns[ann]:
            call = mine.get(nth)
            nth += 1
            meets = [place for place, one in enumerate(between) if call and do_conflict(call, one)]
            if meets:
                # What comes before that request has been played with the switch before.
                skipped = meets[0]
                break


def _second_switches(
    schedule: Schedule, first: Switch, between: Sequence[Call], skipped: int
) -> Iterator[Played]:
    place = skipped + 1
    while place < len(between):
        second = Switch(between[place].actor, between[place].nth)
        played = switched(schedule, first, second)
        yield played
        others = calls_between(played.calls, second.actor, second.nth)
        rest = [call for call in others if call.actor == first.actor]
        mine = {call.nth: call for call in played.calls if call.actor == second.actor}
        while place < len(between):
            call = mine.get(between[place].nth)
            place += 1
            if call is None or any(do_conflict(call, one) for one in rest):
                break


def calls_between(calls: Sequence[Call], actor: str, nth: int) -> list[Call]:
    """Return what others did right before an actor came to one of its turns."""
    end = next(
        (place for place, one in enumerate(calls) if one.actor == actor and one.nth >= nth),
        len(calls),
    )
    found = itertools.takewhile(lambda one: one.actor != actor, reversed(calls[:end]))
    return list(found)[::-1]


def switched(schedule: Schedule, *switches: Switch, faults: tuple[Fault, ...] = ()) -> Played:
    """Play a schedule with other switches and faults."""
    return tried(named(replace(schedule, switches=switches, faults=faults)))


def tried(schedule: Schedule) -> Played:
    """Play a schedule; a sixth of all, by their text, with what comes when all is over."""
    share = hashlib.sha256(schedule.text.encode()).digest()[0] % 6
    return play(schedule, settles=share == 0)


def failing_orders(pair: Pair) -> Iterator[Played]:
    """Play a pair with each write of the first one failing in each way, and the second around it.

    The second verb comes right before the write that fails, or right after it.
    """
    ann, _ = pair.actors
    schedule = pair.schedule
    alone = play(schedule)
    writes = [call for call in alone.calls if call.actor == ann and call.operation in WRITES]
    for number, call in reversed(list(enumerate(writes))):
        before, after = Switch(ann, call.nth), Switch(ann, call.nth + 1)
        for switch, kind, delay, length in (
            (before, "kill", None, 1),
            (before, "kill after", None, 1),
            (after, "kill after", None, 1),
            (before, "landed", None, 1),
            (after, "landed", None, 1),
            (after, "landed", None, OUTAGE),
            (after, "lost", None, 1),
            (after, "twice", None, 1),
            (before, "late", SOON, 1),
            (after, "late", SOON, 1),
            (after, "late", AT_END, OUTAGE),
        ):
            fault = Fault(ann, number, "writes", kind, length, delay=delay)  # type: ignore[arg-type]
            yield switched(schedule, switch, faults=(fault,))


def claimed_orders(pair: Pair) -> Iterator[Played]:
    """Play a pair with the first one killed after each of its claims, and the second after that.

    So nobody carries a claim out but the second one, when it looks or writes.
    """
    ann, _ = pair.actors
    schedule = pair.schedule
    writes = [call for call in play(schedule).calls if call.actor == ann]
    writes = [call for call in writes if call.operation in WRITES]
    for number, call in enumerate(writes):
        if call.operation in ("replace", "delete_if_match"):
            yield switched(schedule, faults=(Fault(ann, number, "writes", "claimed"),))


def killed_orders(pair: Pair) -> Iterator[Played]:
    """Play a pair with the second one killed after each of its writes, within the first.

    So the first goes on beside what the other one has left half done since it looked.
    """
    ann, bob = pair.actors
    schedule = pair.schedule
    nth = 1
    while True:
        played = switched(schedule, Switch(ann, nth))
        if played.turns[ann] <= nth:
            return
        between = [call for call in calls_between(played.calls, ann, nth) if call.actor == bob]
        for number in range(sum(call.operation in WRITES for call in between)):
            fault = Fault(bob, number, "writes", "kill after")
            yield switched(schedule, Switch(ann, nth), faults=(fault,))
        mine = {call.nth: call for call in played.calls if call.actor == ann}
        while nth < played.turns[ann]:
            call = mine.get(nth)
            nth += 1
            if call and any(do_conflict(call, other) for other in between):
                break


def standing_orders(pair: Pair) -> Iterator[Played]:
    """Play a pair with the first one standing still for days before each of its requests."""
    ann, _ = pair.actors
    schedule = pair.schedule
    calls = sum(call.actor == ann and call.operation != "open" for call in play(schedule).calls)
    for nth in range(1, calls):
        stall = Stall(ann, nth, "calls", 1, float(STANDS_S))
        yield tried(named(replace(schedule, stalls=(stall,))))


def short_tier(seed: int = 0) -> list[Schedule]:
    """Return schedules of all pairs, each in one order of one kind of head, by a seed."""
    rng = random.Random(seed)
    found = []
    for first, second in itertools.combinations_with_replacement(SINGLE, 2):
        verbs = [first, second]
        rng.shuffle(verbs)
        found.append(_walked(Pair(rng.choice(KINDS), *verbs), rng))
    return found


def _walked(pair: Pair, rng: random.Random) -> Schedule:
    ann, bob = pair.actors
    switches = [Switch(ann, rng.randrange(1, 24))]
    if rng.random() < 0.5:
        switches.append(Switch(bob, rng.randrange(1, 16)))
    faults: tuple[Fault, ...] = ()
    if rng.random() < 0.3:
        kind: Any = rng.choice(("kill", "kill after", "landed", "lost", "late", "twice"))
        delay = rng.choice((SOON, AT_END)) if kind == "late" else None
        faults = (Fault(rng.choice((ann, bob)), rng.randrange(8), "writes", kind, delay=delay),)
    return named(replace(pair.schedule, switches=tuple(switches), faults=faults))
