"""Play schedules: run, judge, and make a failing one small."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from schedules.model import Violation, judge
from schedules.plans import schedule_of
from schedules.replays import DivergedError, Memory, active, can_be_recalled, seen_by_judge
from schedules.verbs import play as play_verb
from schedules.world import Call, Schedule, Step, World, running, simulated

_YEARS_S = 5 * 366 * 86400.0


@dataclass(frozen=True, slots=True)
class Played:
    """What a schedule came to."""

    schedule: Schedule
    violations: tuple[Violation, ...]
    trace: tuple[tuple[int, str, str, str, str], ...]
    steps: int
    calls: tuple[Call, ...] = ()
    turns: Mapping[str, int] = field(default_factory=dict)  # of each actor
    longest: int = 0  # turns of a verb after its last fault
    seen: int | None = None  # a sum of what the judge could see

    def __str__(self) -> str:
        lines = [f"{self.schedule.text or f'Seed {self.schedule.seed}'}, {self.steps} steps."]
        lines += [f"  {part}" for part in self.schedule.parts]
        lines += [f"  {one}" for one in (*self.schedule.faults, *self.schedule.stalls)]
        lines += [
            f"{step:5} {who:7} {what:12} {key[-70:]:70} {how}"
            for step, who, what, key, how in self.trace
        ]
        lines += [f"VIOLATED {one}" for one in self.violations]
        lines.append(f"Again: cd tests && python -m schedules {self.schedule.name}")
        return "\n".join(lines)


def play(schedule: Schedule, *, settles: bool = True) -> Played:
    """Run a schedule, and judge what has come of it; inside `simulated()`.

    Args:
        schedule: What to play.
        settles: Judge once more after somebody has gone on, and all that is dead has been deleted.
    """
    memory = active()
    if memory is None or not can_be_recalled(schedule):
        return _play(schedule, None, settles=settles)
    try:
        played = _play(schedule, memory, settles=settles)
    except DivergedError:
        memory.diverged += 1
        return _play(schedule, None, settles=settles)
    if not played.violations and not is_played_twice(schedule):
        return played
    memory.twice += 1
    executed = _play(schedule, None, settles=settles)
    if (executed.calls, executed.turns, executed.seen) == (played.calls, played.turns, played.seen):
        return executed
    return replace(executed, violations=(*executed.violations, _differs(executed, played)))


def _play(schedule: Schedule, memory: Memory | None, *, settles: bool) -> Played:
    world = World(schedule, play_verb)
    if memory is not None:
        memory.attach(world)
    with running(world):
        world.run()
        seen = seen_by_judge(world) if world.is_systematic else None
        known = None if memory is None else memory.verdicts.get((seen, settles))
        violations = _judged(world, settles=settles) if known is None else known
    if memory is not None and known is None:
        memory.judged += 1
        memory.verdicts[seen, settles] = violations
    return Played(
        schedule,
        violations,
        tuple(world.trace),
        world.step,
        tuple(world.calls),
        {actor.name: actor.turns for actor in world.actors},
        max((one.turns for one in world.attempts), default=0),
        seen,
    )


def _judged(world: World, *, settles: bool) -> tuple[Violation, ...]:
    violations = judge(world)
    if settles:
        world.alone("settle", [Step("settle", 1)])
        world.alone("sweep", [Step("sweep", 1)], skew_s=_YEARS_S)
        known = set(violations)
        rules = {one.rule for one in violations}
        violations += [
            one
            for one in judge(world, is_settled=True)
            if one not in known and one.rule not in rules
        ]
    return tuple(violations)


def is_played_twice(schedule: Schedule) -> bool:
    """Return whether a schedule is one of those that are played with the code of all verbs, too."""
    return hashlib.sha256(schedule.text.encode()).digest()[1] == 0


def _differs(executed: Played, played: Played) -> Violation:
    pairs = enumerate(itertools.zip_longest(executed.calls, played.calls))
    place, both = next(((n, pair) for n, pair in pairs if pair[0] != pair[1]), (-1, ()))
    return Violation("what is recalled is what a verb does", f"at {place}: {both}")


def failures(seeds: Iterable[int], theme: str | None = None) -> Iterator[Played]:
    """Play the schedules of seeds, and yield those that break a rule."""
    with simulated():
        for seed in seeds:
            played = play(schedule_of(seed, theme))
            if played.violations:
                yield played


def digest_of(seeds: Iterable[int]) -> str:
    """Return a sum of all that happens in the schedules of seeds."""
    found = hashlib.sha256()
    with simulated():
        for seed in seeds:
            found.update(repr(play(schedule_of(seed)).trace).encode())
    return found.hexdigest()


def shrunk(played: Played, *, tries: int = 60) -> Played:
    """Leave out of a failing schedule what it can fail without, as far as that is cheap."""
    rules = {one.rule for one in played.violations}
    smallest = played
    left = tries
    again = True
    while again:
        again = False
        for smaller in _smaller(smallest.schedule):
            if not left:
                return smallest
            left -= 1
            candidate = play(smaller)
            if rules & {one.rule for one in candidate.violations}:
                smallest, again = candidate, True
                break
    return smallest


def _smaller(schedule: Schedule) -> Iterator[Schedule]:
    for smaller in _with_less(schedule):
        if schedule.switches is None:
            yield smaller
        elif smaller.parts:
            from schedules.interleavings import schedule_from, text_of

            # Its text names actors by their places, which may be others by now.
            yield schedule_from(text_of(smaller))


def _with_less(schedule: Schedule) -> Iterator[Schedule]:
    switches = schedule.switches or ()
    # Halves of the switches first, then fewer of them: delta debugging.
    size = len(switches) // 2
    while size:
        for at in range(0, len(switches), size):
            yield replace(schedule, switches=switches[:at] + switches[at + size :])
        size //= 2
    for at in range(len(schedule.parts)):
        yield replace(schedule, parts=schedule.parts[:at] + schedule.parts[at + 1 :])
    for at, part in enumerate(schedule.parts):
        for place in range(len(part.steps)):
            if len(part.steps) > 1:
                steps = part.steps[:place] + part.steps[place + 1 :]
                parts = (
                    *schedule.parts[:at],
                    replace(part, steps=steps),
                    *schedule.parts[at + 1 :],
                )
                yield replace(schedule, parts=parts)
    if len(switches) == 1:
        yield replace(schedule, switches=())
    for at in range(len(schedule.faults)):
        yield replace(schedule, faults=schedule.faults[:at] + schedule.faults[at + 1 :])
    for at in range(len(schedule.stalls)):
        yield replace(schedule, stalls=schedule.stalls[:at] + schedule.stalls[at + 1 :])
    for at, part in enumerate(schedule.parts):
        if part.skew_s:
            parts = (*schedule.parts[:at], replace(part, skew_s=0.0), *schedule.parts[at + 1 :])
            yield replace(schedule, parts=parts)


__all__ = ["Played", "digest_of", "failures", "play", "shrunk", "simulated"]
