"""Play all orders of all pairs of verbs, on several cores; a run that was stopped goes on.

From `tests/`: `python -m schedules.prove`, or `make proof`. Each line of the results is what the
orders of one pair came to; lines of other code than that which is here are left out, but with `--any-code`.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import lakebed
from schedules.interleavings import (
    KINDS,
    SINGLE,
    Pair,
    failing_orders,
    orders,
    pairs,
    standing_orders,
    sum_of,
)
from schedules.play import Played, shrunk, simulated

RESULTS = Path("build/proof.jsonl")
_WAYS = {"orders": orders, "faults": failing_orders, "standing": standing_orders}
_PLAYED = ("world", "verbs", "model", "play", "interleavings")
_TOLD = 3  # violations of a pair that are made small and told; the others are counted
# By the outcome of the call that it became.
NO_FAULT = "no fault: requests in another order"
_CLASSES = {
    "interrupted": "thread interrupted before or after a request",
    "killed before": "process killed before a request",
    "killed after": "process killed after a request",
    "the answer is lost": "request carried out, answer lost",
    "answer: lost": "request lost on the way",
    "under way": "request arrives late, after its answer was given up",
    "sent twice": "request repeated on its way, so that the second answer counts",
}


@dataclass(frozen=True, slots=True)
class Unit:
    """What one worker does at a time: a pair, and one way to play it."""

    pair: Pair
    way: str

    def __str__(self) -> str:
        return f"{self.way} of {self.pair}"


@dataclass(slots=True)
class Found:
    """What a unit came to.

    Attributes:
        unit: Its text.
        code: The sum of the code that was played.
        kind: The kind of head.
        way: `orders`, `faults` or `standing`.
        runs: Number of schedules.
        distinct: Those that differ in more than the order of what does not conflict.
        switched: Number of runs by their number of switches.
        injected: Number of runs by fault class.
        longest: Most turns that a verb took after its last fault.
        seconds: Processor time.
        broken: Number of runs that broke a rule, by fault class.
        violations: Rules that were broken, with the text of a schedule that breaks them.
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


@cache
def code_sum() -> str:
    """Return a sum of the code that schedules play and judge, as it was at the first call."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    played = (here / f"{name}.py" for name in _PLAYED)
    for path in (*sorted(Path(lakebed.__file__).parent.rglob("*.py")), *played):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def units(kinds: tuple[str, ...], seed: int, verbs: tuple[str, ...] = SINGLE) -> list[Unit]:
    """Return all units in an order by chance, so that a run that is stopped has seen some of all."""
    found = [Unit(pair, way) for pair in pairs(kinds, verbs) for way in _WAYS]
    random.Random(seed).shuffle(found)
    return found


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
    found = Found(str(unit), code_sum(), unit.pair.kind, unit.way)
    sums: set[str] = set()
    injected: collections.Counter[str] = collections.Counter()
    switched: collections.Counter[str] = collections.Counter()
    broken: collections.Counter[str] = collections.Counter()
    begun = time.process_time()
    with simulated():
        for played in _WAYS[unit.way](unit.pair):
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
    found.injected, found.switched = dict(injected), dict(switched)
    found.broken = dict(broken)
    return found


def _told(played: Played, *, is_small: bool) -> list[dict[str, str]]:
    if not played.violations:
        return []
    smallest = shrunk(played, tries=30) if is_small else played
    return [
        {"rule": one.rule, "told": one.told, "text": smallest.schedule.text}
        for one in smallest.violations
    ]


def read(path: Path, code: str | None = None) -> dict[str, Found]:
    """Return the results of a run, by unit; of some code only, if that is given."""
    if not path.exists():
        return {}
    found = (Found(**json.loads(line)) for line in path.read_text().splitlines())
    return {one.unit: one for one in found if code in (None, one.code)}


def prove(
    todo: list[Unit],
    path: Path,
    *,
    jobs: int,
    minutes: float | None = None,
    code: str | None = None,
) -> Iterator[Found]:
    """Work off what the results of some code lack, add it and yield it; until time is over.

    Units of other code that broke a rule are played again.
    """
    done = read(path, code)
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
    given: Any = parser.parse_args()
    todo = units(tuple(given.kinds), given.seed, tuple(given.verbs))
    broken = 0
    code = None if given.any_code else code_sum()
    run = prove(todo, given.results, jobs=given.jobs, minutes=given.minutes, code=code)
    for found in run:
        for one in found.violations:
            broken += 1
            sys.stdout.write(f"{one['rule']}: {one['told']}\n  {one['text']}\n")
            sys.stdout.flush()
    done = read(given.results, code)
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
