"""Nothing acknowledged is lost, whatever the order of store calls, whoever dies, whatever is late."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import lakebed
from schedules.plans import THEMES, schedule_of
from schedules.play import Played, failures, play, shrunk, simulated
from schedules.verbs import play as play_verb
from schedules.world import World, running

SHORT = range(50)
MANY = range(0, 20_000, 250)  # the first of each slice: a minute's work for one of the workers
_DIGEST = "from schedules.play import digest_of; print(digest_of(range(30)))"
_TOLD = 3  # failing schedules that are made small and told; the others by their seed


def tell(failing: list[Played]) -> str:
    """Say what went wrong: which rules, of which seeds, and some schedules call by call."""
    lines = [
        f"Seed {played.schedule.seed}: {violation}"
        for played in failing
        for violation in played.violations
    ]
    with simulated():
        lines += [str(shrunk(played)) for played in failing[:_TOLD]]
    return "\n".join(lines)


@pytest.mark.thorough
def test_no_schedule_breaks_a_rule() -> None:
    failing = list(failures(SHORT))

    assert not failing, tell(failing)


@pytest.mark.long
@pytest.mark.parametrize("first", MANY)
def test_no_schedule_of_many_breaks_a_rule(first: int) -> None:
    failing = list(failures(range(first, first + MANY.step)))

    assert not failing, tell(failing)


@pytest.mark.thorough
@pytest.mark.parametrize("theme", sorted(THEMES))
def test_a_schedule_is_a_function_of_its_seed(theme: str) -> None:
    with simulated():
        first, second = (play(schedule_of(7, theme)) for _ in range(2))

    assert first.trace == second.trace
    assert first.steps > 5


@pytest.mark.long
def test_a_schedule_does_not_depend_on_the_order_of_sets() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(lakebed.__file__).parents[1]), str(Path(__file__).parents[1])]
                ),
            },
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        digests.add(answer.stdout)

    assert len(digests) == 1


def test_threads_that_are_of_no_actor_keep_their_own_time() -> None:
    told: list[float] = []

    def sleep_for_real() -> None:
        began = time.perf_counter()
        time.sleep(0.02)
        told.append(time.perf_counter() - began)

    with simulated(), running(World(schedule_of(0), play_verb)):
        thread = threading.Thread(target=sleep_for_real)
        thread.start()
        thread.join()

    assert told[0] >= 0.02
