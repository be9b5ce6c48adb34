"""Orders of three verbs that share an invariant.

The first gives way once, to the second, which gives way at most once, to the third; those that have
given way go on in either order. Each of the three is the first, the second and the third once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schedules.interleavings import (
    AT_END,
    KINDS,
    OUTAGE,
    SOON,
    calls_between,
    do_conflict,
    schedule_from,
    switched,
)
from schedules.play import Played, play
from schedules.world import AT_ITS_END, WRITES, Call, Fault, FaultKind, Schedule, Switch

# Each changes what another one rests on: the history, live files, an index, a note or the head.
SHARING = (
    *("append", "overwrite", "merge", "promote", "compact", "compact_metadata", "rollback"),
    *("discard_staged", "drop+create", "move_head", "cleanup", "build_index", "publish"),
    *("ingest", "epoch", "erase", "append&append"),
)
_FAULTS: tuple[tuple[FaultKind, int, int | None], ...] = (
    ("kill after", 1, None),
    ("landed", 1, None),
    ("late", 1, SOON),
    ("late", OUTAGE, AT_END),
)


@dataclass(frozen=True, slots=True)
class Triple:
    """Three verbs, or what stands for one in a text, in no order."""

    kind: str
    verbs: tuple[str, str, str]

    def __str__(self) -> str:
        return f"{self.kind}: {' | '.join(self.verbs)}"

    @property
    def in_turn(self) -> Iterator[Triple]:
        """The same verbs, with each of them as the first, the second and the third."""
        for verbs in dict.fromkeys(itertools.permutations(self.verbs)):
            yield Triple(self.kind, verbs)

    @property
    def schedule(self) -> Schedule:
        return schedule_from(str(self))


# Of a dataset without a commit, whose head moves to the form that is looked for first.
_OF_NEW = ("append", "move_head#1", "drop", "drop+create")


def triples(kinds: Sequence[str] = KINDS, verbs: Sequence[str] = SHARING) -> Iterator[Triple]:
    """Yield all triples of verbs in `SHARING`, those that have a verb more than once included."""
    if "document" in kinds:
        for of_new in itertools.combinations(_OF_NEW, 3):
            yield Triple("new", of_new)
    sharing = [verb for verb in SHARING if verb in verbs]
    for kind in kinds:
        for chosen in itertools.combinations_with_replacement(sharing, 3):
            yield Triple(kind, chosen)


def orders_of_three(triple: Triple) -> Iterator[Played]:
    """Play all orders of a triple, as above; most of those that come to the same are left out."""
    begun: set[str] = set()
    for verbs in triple.in_turn:
        # Of two that give way before they have met, either may begin: that has been played.
        yield from _orders_of_three(verbs.schedule, is_mirrored=verbs.verbs[1] in begun)
        begun.add(verbs.verbs[0])


def _orders_of_three(schedule: Schedule, *, is_mirrored: bool) -> Iterator[Played]:
    ann, bob, _ = _actors(schedule)
    yield play(schedule)
    nth = 1
    while True:
        played = switched(schedule, Switch(ann, nth))
        if played.turns[ann] <= nth:
            return
        yield played
        yield switched(schedule, Switch(ann, nth, bob), Switch(bob, AT_ITS_END, ann))
        between = calls_between(played.calls, ann, nth)
        theirs = [call for call in between if call.actor == bob]
        before = [call for call in played.calls if call.actor == ann and call.nth < nth]
        for place, call in enumerate(theirs):
            if not is_mirrored or any(do_conflict(call, one) for one in before):
                turns = [one.nth for one in theirs[place:]]
                for is_back in (False, True):
                    yield from _second_switches(schedule, nth, turns, is_back=is_back)
                break
        nth = _next_cut(played.calls, ann, nth, between)


def _second_switches(
    schedule: Schedule, nth: int, turns: Sequence[int], *, is_back: bool
) -> Iterator[Played]:
    """Play the orders in which the second gives way after the first of some turns or later."""
    ann, bob, cyn = _actors(schedule)
    second = turns[0] + 1
    while second <= turns[-1]:
        switches: tuple[Switch, ...] = (Switch(ann, nth), Switch(bob, second))
        if is_back:
            switches = (
                Switch(ann, nth, bob),
                Switch(bob, second, cyn),
                Switch(cyn, AT_ITS_END, bob),
            )
        played = switched(schedule, *switches)
        yield played
        second = _next_cut(played.calls, bob, second, calls_between(played.calls, bob, second))


def failing_orders_of_three(triple: Triple) -> Iterator[Played]:
    """Play a triple with each write of the first one failing, and the others right after that."""
    for verbs in triple.in_turn:
        schedule = verbs.schedule
        ann = schedule.parts[0].actor
        alone = play(schedule)
        writes = [call for call in alone.calls if call.actor == ann and call.operation in WRITES]
        for number, call in enumerate(writes):
            for kind, length, delay in _FAULTS:
                fault = Fault(ann, number, "writes", kind, length, delay=delay)
                yield switched(schedule, Switch(ann, call.nth + 1), faults=(fault,))


def _actors(schedule: Schedule) -> list[str]:
    """Return the first actor of each process."""
    return list({part.process: part.actor for part in reversed(schedule.parts)}.values())[::-1]


def _next_cut(calls: Sequence[Call], actor: str, nth: int, between: Sequence[Call]) -> int:
    """Return the turn after the next request of an actor whose order with others matters."""
    last = nth
    for call in calls:
        if call.actor == actor and call.nth >= nth:
            last = call.nth + 1
            if any(do_conflict(call, one) for one in between):
                return last
    return last + 1
