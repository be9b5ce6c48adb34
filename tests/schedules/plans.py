"""Schedules of seeds: which verbs meet, what fails, who stands still, whose clock is wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from schedules.world import Fault, FaultKind, Part, Schedule, Stall, Step

ACTORS = ("ann", "bob", "cyn", "dan", "eve", "fay")


@dataclass(frozen=True, slots=True)
class Theme:
    """Verbs that have to do with each other, so that they meet.

    Attributes:
        verbs: That all actors draw from; what is named twice is drawn twice as often, and what is
            joined by `+` is done one after the other.
        leads: By place of the actor: with one of these it begins.
        is_corner: The verbs of `leads` are all, for a meeting that is seldom else.
        setup: What has been done before.
        is_shared: Some actors are threads of one process, whose commits are grouped.
    """

    verbs: tuple[str, ...]
    leads: tuple[tuple[str, ...], ...]
    is_corner: bool = False
    setup: tuple[str, ...] = ("create", "append", "append")
    is_shared: bool = False

    @classmethod
    def of(cls, verbs: str, lead: str) -> Theme:
        return cls(tuple(verbs.split()), (tuple(lead.split()),))

    @classmethod
    def shared(cls, verbs: str, setup: str = "create append append") -> Theme:
        drawn = tuple(verbs.split())
        return cls(drawn, (drawn,), setup=tuple(setup.split()), is_shared=True)

    @classmethod
    def corner(cls, *leads: str, setup: str = "create append append") -> Theme:
        told = tuple(tuple(one.split()) for one in leads)
        verbs = tuple(sorted({verb for one in told for verb in one}))
        return cls(verbs, told, is_corner=True, setup=tuple(setup.split()))


THEMES = {
    "rows": Theme.of(
        "append append+undo overwrite overwrite_view rerun delete rollback compact",
        "overwrite delete rerun rollback",
    ),
    "reads": Theme.of(
        """transact transact write_from write_from append+undo overwrite delete rerun rollback
        compact promote""",
        "transact write_from",
    ),
    "staging": Theme.of(
        "stage commit_staged commit_staged discard_staged cleanup overwrite compact",
        "stage stage commit_staged discard_staged",
    ),
    "descriptor": Theme.of(
        "add_field add_field set_property build_index drop_index promote append",
        "build_index drop_index set_property add_field promote",
    ),
    "moving": Theme.of("append+undo append+undo append delete rollback rerun promote", "promote"),
    "upkeep": Theme.of(
        """cleanup cleanup protect unprotect rollback overwrite compact read build_index
        compact_metadata delete""",
        "cleanup compact read rollback build_index",
    ),
    "names": Theme.of("drop create create append move_head overwrite read", "drop create"),
    "heads": Theme.of(
        "move_head append cleanup set_property overwrite stage commit_staged", "move_head"
    ),
    "a creation beside another": Theme.corner("create", "create", setup="create drop"),
    "an index beside an update": Theme.corner(
        "build_index drop_index", "add_field add_field set_property"
    ),
    "a promotion beside what comes and goes": Theme.corner("promote", "append+undo"),
    "a discard beside a commit": Theme.corner("commit_staged", "discard_staged"),
    "a stage beside a commit": Theme.corner("stage", "commit_staged+commit_staged"),
}
_ALL = tuple(sorted({verb for theme in THEMES.values() for verb in theme.verbs}))
THEMES["all"] = Theme(_ALL, ())
# Behind `all`, so that the seeds of that one draw what they have always drawn.
THEMES["merges"] = Theme.of(
    "merge merge merge append+undo rerun delete rollback compact promote add_field cleanup", "merge"
)
THEMES["publications"] = Theme.of(
    """publish publish publish append overwrite rerun merge delete rollback compact promote cleanup
    add_field""",
    "publish",
)
THEMES["a promotion beside a merge"] = Theme.corner("promote", "merge merge+publish publish")
THEMES["unpublications"] = Theme.of(
    "publish publish unpublish append overwrite rerun delete compact cleanup", "unpublish publish"
)
THEMES["iceberg"] = Theme.of(
    """publish_iceberg publish_iceberg unpublish_iceberg append overwrite rerun delete compact
    cleanup""",
    "unpublish_iceberg publish_iceberg",
)
THEMES["a drop beside a published namesake"] = Theme.corner(
    "drop",
    "create+append+publish+append+publish create+append+publish_iceberg+append+publish_iceberg",
    setup="create append publish publish_iceberg overwrite publish publish_iceberg",
)
THEMES["an unpublication beside publications"] = Theme.corner(
    "unpublish unpublish_iceberg",
    "append+publish+publish_iceberg overwrite+publish+cleanup publish_iceberg+cleanup",
    setup="create append publish publish_iceberg overwrite publish publish_iceberg",
)
_GROUPED = """append append append append+append overwrite delete rerun merge transact write_from
    compact promote commit_staged cleanup set_property rollback"""
THEMES["threads of a process"] = Theme.shared(_GROUPED)
THEMES["threads that commit to a tree"] = Theme.shared(
    "append append append append+append overwrite delete rerun merge transact compact cleanup",
    setup="create_tree append append",
)
THEMES["threads that merge and overwrite"] = Theme.shared(
    "merge merge overwrite overwrite append rerun rerun transact"
)

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_SKEWS_S = (
    *(0.0, 0.0, 0.0, 2 * _MINUTE_S, 13 * _MINUTE_S, -13 * _MINUTE_S, 3 * _HOUR_S),
    *(-2 * _DAY_S, 2 * _DAY_S, 30 * _DAY_S),
)
_PAUSES_S = (0.0, 0.0, 0.0, 13 * _MINUTE_S, 3 * _HOUR_S, 2 * _DAY_S)
_LANDING: tuple[FaultKind, ...] = ("landed", "late")
_KINDS: tuple[FaultKind, ...] = ("kill", "kill after", "lost", *_LANDING, *_LANDING)
# Of outages: some calls are tried five times before they fail.
_LENGTHS = (1, 1, 1, 2, 4, 5, 5, 6, 9)


def schedule_of(seed: int, theme: str | None = None) -> Schedule:
    """Return the schedule of a seed.

    Args:
        seed: Any number.
        theme: One of `THEMES`; None for the one that the seed draws.
    """
    name = theme or random.Random(-1 - seed).choice(list(THEMES))
    chosen = THEMES[name]
    rng = random.Random(seed)

    def step(verb: str) -> Step:
        return Step(verb, rng.getrandbits(32))

    actors = ACTORS[: len(chosen.leads) if chosen.is_corner else rng.choice((2, 3, 3, 4))]
    setup = [step(verb) for verb in chosen.setup]
    # A corner may be about a batch that only an actor stages.
    if "commit_staged" in chosen.verbs and not (chosen.is_corner and rng.random() < 0.5):
        setup.append(step("stage"))
    is_skewed = rng.random() < 0.5
    parts = []
    for place, actor in enumerate(actors):
        count = 1 if chosen.is_corner else rng.randint(1, 3)
        drawn = [rng.choice(chosen.verbs) for _ in range(count)]
        if place < len(chosen.leads):
            drawn[0] = rng.choice(chosen.leads[place])
        verbs = [verb for one in drawn for verb in one.split("+")]
        skew_s = rng.choice(_SKEWS_S) if is_skewed else 0.0
        parts.append(Part(actor, skew_s, tuple(map(step, verbs))))
    if chosen.is_shared:
        return _shared(_schedule(rng, chosen, name, seed, parts, setup))
    return _schedule(rng, chosen, name, seed, parts, setup)


def _shared(schedule: Schedule) -> Schedule:
    """Let actors be threads of one process or of two, and interrupt some in place of a kill."""
    rng = random.Random(schedule.seed + 1)
    processes = rng.choice((("p",), ("p", "p", "q"), ("p", "q")))
    skews = {process: rng.choice(_SKEWS_S) for process in processes}
    parts = []
    for part in schedule.parts:
        process = rng.choice(processes)
        parts.append(replace(part, process=process, skew_s=skews[process] if part.skew_s else 0.0))
    faults = tuple(
        replace(fault, kind=fault.kind.replace("kill", "interrupt"))
        if rng.random() < 0.5
        else fault
        for fault in schedule.faults
    )
    return replace(
        schedule,
        parts=tuple(parts),
        faults=faults,
        is_far=rng.random() < 0.5,
        gathers_s=rng.choice((0.0, 0.3, 1.0, 1.0)),
    )


def _schedule(
    rng: random.Random,
    chosen: Theme,
    name: str,
    seed: int,
    parts: Sequence[Part],
    setup: Sequence[Step],
) -> Schedule:
    actors = tuple(part.actor for part in parts)
    return Schedule(
        seed=seed,
        theme=name,
        parts=tuple(parts),
        setup=tuple(setup),
        faults=tuple(
            _fault(rng, actors, is_corner=chosen.is_corner)
            for _ in range(rng.choice((0, 1, 1) if chosen.is_corner else (0, 0, 1, 1, 2, 3)))
        ),
        stalls=tuple(_stalls(rng, actors, is_corner=chosen.is_corner)),
        stickiness=rng.choice((0.0, 0.5, 0.9, 0.98)),
        fanout=rng.choice((2, 8)),
    )


def _fault(rng: random.Random, actors: tuple[str, ...], *, is_corner: bool) -> Fault:
    if rng.random() < (0.6 if is_corner else 0.25):
        # A long outage of one request, soon: what is tried again and again fails for good.
        kind = rng.choice(_LANDING)
        return Fault(actors[0], rng.randrange(2, 8), "writes", kind, 9, is_stubborn=True)
    actor, kind = rng.choice(actors), rng.choice(_KINDS)
    if kind != "late" and rng.random() < 0.3:
        return Fault(actor, rng.randrange(60), "calls", kind, rng.choice(_LENGTHS))
    nth, is_stubborn = rng.randrange(rng.choice((6, 16))), rng.random() < 0.5
    return Fault(actor, nth, "writes", kind, rng.choice(_LENGTHS), is_stubborn)


def _stalls(rng: random.Random, actors: tuple[str, ...], *, is_corner: bool) -> list[Stall]:
    """Let somebody stand still once, or again and again; more often who leads."""
    found: list[Stall] = []
    nth = 0
    actor = actors[0] if rng.random() < (0.8 if is_corner else 0.5) else rng.choice(actors)
    for _ in range(rng.choice((1, 2, 2, 3) if is_corner else (0, 1, 1, 2, 3))):
        verbs = 1 if is_corner else rng.choice((1, 1, 2))
        seconds = rng.choice(_PAUSES_S)
        if rng.random() < 0.3:
            found.append(Stall(actor, rng.randrange(12), "calls", verbs, seconds))
            continue
        nth += rng.randrange(rng.choice((3, 10)))
        found.append(Stall(actor, nth, "writes", verbs, seconds))
        nth += 1
        if not is_corner and rng.random() < 0.3:
            actor, nth = rng.choice(actors), 0
    return found
