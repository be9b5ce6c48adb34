"""Schedules of seeds: which verbs meet, what fails, who stands still, whose clock is wrong."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from schedules.world import Fault, Part, Schedule, Stall, Step

ACTORS = ("ann", "bob", "cyn", "dan")


@dataclass(frozen=True, slots=True)
class Theme:
    """Verbs that have to do with each other, so that they meet.

    Attributes:
        leads: With one of these the first actor begins.
        verbs: All others are drawn from these; what is named twice is drawn twice as often, and
            what is joined by `+` is done one after the other.
    """

    leads: tuple[str, ...]
    verbs: tuple[str, ...]

    @classmethod
    def of(cls, leads: str, verbs: str) -> Theme:
        return cls(tuple(leads.split()), tuple(verbs.split()))


THEMES = {
    "rows": Theme.of(
        "overwrite delete rerun rollback",
        "append append+undo overwrite overwrite_view rerun delete rollback compact",
    ),
    "staging": Theme.of(
        "stage stage commit_staged discard_staged",
        "stage commit_staged commit_staged discard_staged cleanup overwrite compact",
    ),
    "descriptor": Theme.of(
        "build_index drop_index set_property add_field promote",
        "add_field add_field set_property build_index drop_index promote append",
    ),
    "moving": Theme.of("promote", "append+undo append+undo append delete rollback rerun promote"),
    "upkeep": Theme.of(
        "cleanup compact read rollback build_index",
        """cleanup cleanup protect unprotect rollback overwrite compact read build_index
        compact_metadata delete""",
    ),
    "names": Theme.of("drop create", "drop create create append move_head overwrite read"),
    "heads": Theme.of(
        "move_head", "move_head append cleanup set_property overwrite stage commit_staged"
    ),
}
_ALL = tuple(sorted({verb for theme in THEMES.values() for verb in theme.verbs}))
THEMES["all"] = Theme(_ALL, _ALL)

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
_SKEWS_S = (
    *(0.0, 0.0, 0.0, 2 * _MINUTE_S, 13 * _MINUTE_S, -13 * _MINUTE_S, 3 * _HOUR_S),
    *(-2 * _DAY_S, 2 * _DAY_S, 30 * _DAY_S),
)
_PAUSES_S = (0.0, 0.0, 0.0, 13 * _MINUTE_S, 3 * _HOUR_S, 2 * _DAY_S)
# Of outages: some calls are tried five times before they fail.
_LENGTHS = (1, 1, 1, 2, 4, 5, 5, 6, 9)


def schedule_of(seed: int, theme: str | None = None) -> Schedule:
    """Return the schedule of a seed.

    Args:
        seed: Any number.
        theme: One of `THEMES`; None for the one that the seed draws.
    """
    rng = random.Random(seed)
    by_chance = rng.choice(list(THEMES))
    chosen = THEMES[theme or by_chance]

    def step(verb: str) -> Step:
        return Step(verb, rng.getrandbits(32))

    actors = ACTORS[: rng.choice((2, 3, 3, 4))]
    setup = [step("create"), step("append"), step("append")]
    if "commit_staged" in chosen.verbs:
        setup.append(step("stage"))
    is_skewed = rng.random() < 0.5
    parts = []
    for name in actors:
        drawn = [rng.choice(chosen.verbs) for _ in range(rng.randint(1, 3))]
        if name == actors[0]:
            drawn[0] = rng.choice(chosen.leads)
        verbs = [verb for one in drawn for verb in one.split("+")]
        skew_s = rng.choice(_SKEWS_S) if is_skewed else 0.0
        parts.append(Part(name, skew_s, tuple(map(step, verbs))))
    return Schedule(
        seed=seed,
        parts=tuple(parts),
        setup=tuple(setup),
        faults=tuple(
            _fault(rng, rng.choice(actors)) for _ in range(rng.choice((0, 0, 1, 1, 2, 3)))
        ),
        stalls=tuple(_stalls(rng, actors)),
        stickiness=rng.choice((0.0, 0.5, 0.9, 0.98)),
        fanout=rng.choice((2, 8)),
        theme=theme,
    )


def _fault(rng: random.Random, actor: str) -> Fault:
    kinds: tuple[Literal["kill", "kill after", "lost", "landed", "late"], ...]
    kinds = ("kill", "kill after", "lost", "landed", "landed", "late", "late")
    kind = rng.choice(kinds)
    if kind != "late" and rng.random() < 0.3:
        return Fault(actor, rng.randrange(60), "calls", kind, rng.choice(_LENGTHS))
    nth, is_stubborn = rng.randrange(rng.choice((6, 16))), rng.random() < 0.5
    return Fault(actor, nth, "writes", kind, rng.choice(_LENGTHS), is_stubborn)


def _stalls(rng: random.Random, actors: tuple[str, ...]) -> list[Stall]:
    """Let somebody stand still once, or again and again; more often who leads."""
    found = []
    nth = 0
    actor = actors[0] if rng.random() < 0.5 else rng.choice(actors)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        nth += rng.randrange(rng.choice((3, 10)))
        found.append(Stall(actor, nth, rng.choice((1, 1, 2)), rng.choice(_PAUSES_S)))
        nth += 1
        if rng.random() < 0.3:
            actor, nth = rng.choice(actors), 0
    return found
