"""The models of the protocol hold, find bugs that are put in, and are met by the real code."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest
from schedules.world import simulated

from protocol.checker import LIVENESS, Checker, Model, Next, Program, get, put
from protocol.commits import Commits
from protocol.models import BUGS, CASES, Case, Seeded
from protocol.replay import (
    UnknownRequestError,
    ended_in_model,
    replayed,
)

SHORT = [case for case in CASES if not case.is_long]
LONG = [case for case in CASES if case.is_long]
REPLAYED = 40


def check(case: Case) -> None:
    found = case.check()
    sys.stdout.write(f"{found}\n")
    assert found.broken is None, str(found.broken)
    assert found.states == case.states, "the model has other states: is that meant?"
    unmet = {name for name in case.model().probes() if not found.met[name]}
    assert unmet == case.unmet


@pytest.mark.parametrize("case", SHORT, ids=str)
def test_a_model_holds(case: Case) -> None:
    check(case)


@pytest.mark.long
@pytest.mark.parametrize("case", LONG, ids=str)
def test_a_model_with_wide_bounds_holds(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("one", [one for one in BUGS if not one.is_long], ids=str)
def test_a_bug_breaks_its_invariant(one: Seeded) -> None:
    check_bug(one)


@pytest.mark.long
@pytest.mark.parametrize("one", [one for one in BUGS if one.is_long], ids=str)
def test_a_bug_of_a_wide_model_breaks_its_invariant(one: Seeded) -> None:
    check_bug(one)


def check_bug(one: Seeded) -> None:
    found = Checker(one.case.model(one.bug)).check(one.invariant).broken

    assert found is not None
    assert found.invariant == one.invariant
    assert found.told in str(found)  # which shows each step on the way


def test_each_bug_of_each_model_has_a_case() -> None:
    kinds = {case.kind for case in CASES}

    assert sorted(one.bug for one in BUGS) == sorted(bug for kind in kinds for bug in kind.bugs)
    assert len(BUGS) >= 15


def test_each_probe_is_met_by_some_case() -> None:
    for kind in {case.kind for case in CASES}:
        cases = [case for case in CASES if case.kind is kind]
        probes = {name for case in cases for name in case.model().probes()}
        met = {name for case in cases for name in case.model().probes() if name not in case.unmet}
        assert probes == met


class Waiting(Model):
    name = "waiting"

    def actors(self) -> dict[str, Next]:
        return {"ann": Next("look"), "bob": Next("write")}

    def look(self) -> Program:
        return ("done",) if (yield get("x")) else Next("look")

    def write(self) -> Program:
        yield put("x", "there")
        return ("done",)


def test_an_actor_that_may_wait_forever_is_found() -> None:
    found = Checker(Waiting()).check().broken

    assert found is not None
    assert found.invariant == LIVENESS


# --- The real code


@pytest.fixture(scope="module")
def commits() -> Checker:
    # Deadlines of the real code are times: here nobody gives up.
    checker = Checker(Commits(crashes=1, losses=1, may_give_up=False))
    assert checker.check().broken is None
    return checker


def traces(checker: Checker) -> Iterator[int]:
    ends = list(checker.ends)
    random.Random(7).shuffle(ends)
    return iter(ends[:REPLAYED])


def test_the_real_code_does_what_the_model_does(commits: Checker) -> None:
    kinds: set[str] = set()
    outcomes: set[str] = set()
    with simulated():
        for number in traces(commits):
            steps = commits.way_to(number)
            model = commits.model
            assert isinstance(model, Commits)
            ended, met = replayed(model, steps)
            told = "\n".join(map(str, steps))
            assert ended == ended_in_model(commits, number), told
            kinds |= set(met)
            outcomes |= {outcome.split()[0] for outcome in ended.outcomes.values()}

    assert {"head", "swap", "reserve", "complete", "stage", "segment", "remove"} <= kinds
    assert outcomes >= {"acknowledged", "refused", "killed"}


@pytest.mark.long
def test_the_real_code_does_what_the_model_does_at_each_end(commits: Checker) -> None:
    model = commits.model
    assert isinstance(model, Commits)
    with simulated():
        for number in commits.ends:
            steps = commits.way_to(number)
            ended, _ = replayed(model, steps)
            assert ended == ended_in_model(commits, number), "\n".join(map(str, steps))
    sys.stdout.write(f"{len(commits.ends)} traces were played with the real code\n")


def test_a_new_kind_of_request_is_noticed(
    commits: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from protocol import replay

    known = [one for one in replay.KINDS if "d/files/" not in one[0]]
    monkeypatch.setattr(replay, "KINDS", known)

    with pytest.raises(UnknownRequestError, match="put d/files/"), simulated():
        replayed(commits.model, commits.way_to(next(traces(commits))))  # type: ignore[arg-type]


def test_real_code_with_a_bug_differs_from_the_model(
    commits: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from schedules.bugs import PUT

    PUT["a refused put of the head counts as done"](monkeypatch)

    with simulated():
        assert any(differs(commits, number) for number in commits.ends)


def differs(checker: Checker, number: int) -> bool:
    model = checker.model
    assert isinstance(model, Commits)
    try:
        ended, _ = replayed(model, checker.way_to(number))
    except AssertionError:
        return True
    return ended != ended_in_model(checker, number)
