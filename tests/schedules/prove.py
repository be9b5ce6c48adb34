"""Play verbs beside each other in all orders, on several cores; a run that was stopped goes on.

From `tests/`: `python -m schedules.prove`, or `make proof`. Each line of the results is what the
orders of one pair or triple came to; those of another Lakebed than that which is here are left out,
but with `--any-code`.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import lakebed
from schedules.interleavings import (
    KINDS,
    SINGLE,
    Pair,
    claimed_orders,
    claims,
    failing_orders,
    killed_orders,
    moves,
    orders,
    pairs,
    standing_orders,
    sum_of,
    threads,
)
from schedules.play import Played, shrunk, simulated
from schedules.replays import Memory, recalling
from schedules.triples import Triple, failing_orders_of_three, orders_of_three, triples

RESULTS = Path("build/proof.jsonl")
_PLAYED = ("world", "verbs", "model", "play", "interleavings", "replays", "triples")
_TOLD = 3  # violations of a pair that are made small and told; the others are counted
_MEMORY = Memory()  # of a worker, for all that it plays
# By the outcome of the call that it became.
NO_FAULT = "no fault: requests in another order"
_CLASSES = {
    "interrupted": "thread interrupted before or after a request",
    "killed after its claim": "process killed between a claim and what it claims, as on HDFS",
    "killed before": "process killed before a request",
    "killed after": "process killed after a request",
    "the answer is lost": "request carried out, answer lost",
    "answer: lost": "request lost on the way",
    "under way": "request arrives late, after its answer was given up",
    "sent twice": "request repeated on its way, so that the second answer counts",
}


class Way(NamedTuple):
    """A way to play verbs beside each other: what it is called, of which verbs, and how."""

    told: str
    of: Callable[[Sequence[str], Sequence[str]], Iterator[Any]]
    play: Callable[[Any], Iterator[Played]]


WAYS = {
    "orders": Way("two verbs", pairs, orders),
    "faults": Way("two verbs, one of which has a fault", pairs, failing_orders),
    "standing": Way("two verbs, one of which stands still for days", pairs, standing_orders),
    "killed": Way("a verb, and a move of the head that is killed within it", moves, killed_orders),
    "claimed": Way("two verbs, one of which is killed after a claim", claims, claimed_orders),
    "threads": Way("two threads of a process, and a reader", threads, orders),
    "failing threads": Way(
        "two threads of a process with a fault, and a reader", threads, failing_orders
    ),
    "three": Way("three verbs", triples, orders_of_three),
    "failing three": Way("three verbs, one of which has a fault", triples, failing_orders_of_three),
}


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does at a time: a pair or a triple, and the way to play it."""

    way: str
    verbs: Pair | Triple

    def __str__(self) -> str:
        return f"{self.way} of {self.verbs}"


@dataclass(slots=True)
class Found:
    """What a unit came to.

    Attributes:
        unit: Its text.
        code: The sums of Lakebed and of the code that played it.
        kind: The kind of head.
        way: One of `WAYS`.
        runs: Number of schedules.
        distinct: Those that differ in more than the order of what does not conflict.
        switched: Number of runs by their number of switches.
        injected: Number of runs by fault class.
        longest: Most turns that a verb took after its last fault.
        seconds: Processor time.
        broken: Number of runs that broke a rule, by fault class.
        violations: Rules that were broken, with the text of a schedule that breaks them.
        recalled: Number of runs of actors that did what they had done after the same answers.
        executed: Number of runs of actors with their code.
        twice: Number of schedules that were played with the code of all verbs, too.
    """

    unit: str
    code: str
    kind: str
    way: str
    runs: int = 0
    distinct: int = 0
    switched: dict[str, int] = field(default_factory=dict)
    injected: dict[str, int] = field(default_factory=dict)
    broken: dict[str, int] = field(default_factory=dict)
    longest: int = 0
    seconds: float = 0.0
    violations: list[dict[str, str]] = field(default_factory=list)
    recalled: int = 0
    executed: int = 0
    twice: int = 0


@cache
def code_sum() -> str:
    """Return sums of Lakebed and of the code that plays and judges it, as they were at the first call.

    They are separated by a hyphen.
    """
    here = Path(__file__).parent
    played = [here / f"{name}.py" for name in _PLAYED]
    return f"{_sum_of(sorted(Path(lakebed.__file__).parent.rglob('*.py')))}-{_sum_of(played)}"


def _sum_of(paths: Sequence[Path]) -> str:
    found = hashlib.sha256()
    for path in paths:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def is_of_this(found: Found) -> bool:
    """Return whether a unit was played with the Lakebed that is here."""
    return found.code.split("-")[0] == code_sum().split("-")[0]


def units(
    seed: int,
    kinds: Sequence[str] = KINDS,
    verbs: Sequence[str] = SINGLE,
    ways: Sequence[str] = tuple(WAYS),
) -> list[Unit]:
    """Return all units, those of pairs first; in an order by chance, so that a run that is stopped has seen some of all."""
    stages: dict[object, list[Unit]] = {}
    for way in ways:
        of = WAYS[way].of
        stages.setdefault(of, []).extend(Unit(way, one) for one in of(kinds, verbs))
    rng = random.Random(seed)
    return [unit for stage in stages.values() for unit in rng.sample(stage, len(stage))]


def class_of(played: Played) -> str:
    """Return the class of the first fault that a run met."""
    for call in played.calls:
        for told, name in _CLASSES.items():
            if told in call.outcome:
                return name
    if played.schedule.stalls:
        return "process stands still for days before a request"
    return NO_FAULT


def work(unit: Unit) -> Found:
    """Play all schedules of a unit."""
    found = Found(str(unit), code_sum(), unit.verbs.kind, unit.way)
    sums: set[str] = set()
    injected: collections.Counter[str] = collections.Counter()
    switched: collections.Counter[str] = collections.Counter()
    broken: collections.Counter[str] = collections.Counter()
    begun = time.process_time()
    recalled, executed, twice = _MEMORY.recalled, _MEMORY.executed, _MEMORY.twice
    with simulated(), recalling(_MEMORY):
        for played in _played(unit, found):
            found.runs += 1
            sums.add(sum_of(played))
            switched[str(len(played.schedule.switches or ()))] += 1
            injected[class_of(played)] += 1
            if played.violations:
                broken[class_of(played)] += 1
            found.longest = max(found.longest, played.longest)
            found.violations += _told(played, is_small=len(found.violations) < _TOLD)
    found.seconds = round(time.process_time() - begun, 3)
    found.distinct = len(sums)
    found.recalled = _MEMORY.recalled - recalled
    found.executed = _MEMORY.executed - executed
    found.twice = _MEMORY.twice - twice
    found.injected, found.switched = dict(injected), dict(switched)
    found.broken |= broken
    return found


def _played(unit: Unit, found: Found) -> Iterator[Played]:
    """Play the schedules of a unit; an error of the player itself is told, and ends them."""
    try:
        yield from WAYS[unit.way].play(unit.verbs)
    except Exception as exc:  # noqa: BLE001 - a run of days goes on
        found.broken["the unit came to an end by an error"] = 1
        told = "".join(traceback.format_exception(exc)[-2:])
        rule = "all schedules of a unit can be played"
        found.violations.append({"rule": rule, "told": told, "text": str(unit)})


def _told(played: Played, *, is_small: bool) -> list[dict[str, str]]:
    if not played.violations:
        return []
    smallest = shrunk(played, tries=30) if is_small else played
    return [
        {"rule": one.rule, "told": one.told, "text": smallest.schedule.text}
        for one in smallest.violations
    ]


def read(path: Path, *, of_any: bool = False) -> dict[str, Found]:
    """Return the results of a run, by unit; unless `of_any`, of the Lakebed that is here."""
    if not path.exists():
        return {}
    found = (Found(**json.loads(line)) for line in path.read_text().splitlines())
    return {one.unit: one for one in found if of_any or is_of_this(one)}


def prove(
    todo: list[Unit],
    path: Path,
    *,
    jobs: int,
    minutes: float | None = None,
    of_any: bool = False,
) -> Iterator[Found]:
    """Work off what the results lack, add it and yield it; until time is over.

    Units that broke a rule are played again once the code is another one.
    """
    done = read(path, of_any=of_any)
    known = {unit for unit, one in done.items() if not one.broken or one.code == code_sum()}
    left = [unit for unit in todo if str(unit) not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * minutes if minutes else float("inf")
    context = multiprocessing.get_context("spawn")
    with path.open("a") as file, context.Pool(jobs) as pool:
        for found in pool.imap_unordered(work, left):
            file.write(f"{json.dumps(asdict(found))}\n")
            file.flush()
            yield found
            if time.monotonic() > until:
                pool.terminate()
                return


def _main() -> None:
    parser = argparse.ArgumentParser(prog="schedules.prove", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--minutes", type=float, help="stop after this time; default: never")
    parser.add_argument("--seed", type=int, default=0, help="of the order of pairs")
    parser.add_argument(
        "--any-code", action="store_true", help="go on with a run although the code has changed"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--verbs", nargs="+", choices=SINGLE, default=list(SINGLE))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--having", choices=SINGLE, help="only units that have this verb")
    given: Any = parser.parse_args()
    todo = [
        unit
        for unit in units(given.seed, given.kinds, given.verbs, given.ways)
        if given.having is None or given.having in str(unit.verbs).split(": ")[1].split(" | ")
    ]
    broken = 0
    of_any = given.any_code
    run = prove(todo, given.results, jobs=given.jobs, minutes=given.minutes, of_any=of_any)
    for found in run:
        for one in found.violations:
            broken += 1
            sys.stdout.write(f"{one['rule']}: {one['told']}\n  {one['text']}\n")
            sys.stdout.flush()
    done = read(given.results, of_any=of_any)
    runs, distinct = (
        sum(getattr(one, name) for one in done.values()) for name in ("runs", "distinct")
    )
    sys.stdout.write(
        f"{len(done)} of {len(todo)} units; {runs} schedules, {distinct} distinct; "
        f"{broken} violations in this run\n"
    )
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    _main()
