"""The page about reliability says what is played now, whatever run its figures are of."""

from __future__ import annotations

import pytest
from damage.matrix import KINDS
from protocol.models import BUGS as MODEL_BUGS
from protocol.models import CASES

from schedules import reliability
from schedules.bugs import BUGS, TEXTS
from schedules.interleavings import SINGLE
from schedules.plans import schedule_of

PAGE = reliability.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["HEAD", "METHOD", "REST"])
def test_page_has_what_the_command_writes_whatever_the_run(name: str) -> None:
    assert getattr(reliability, name) in PAGE, "write it: tests/schedules/reliability.py"


def test_page_lists_each_seeded_bug_with_its_schedule_or_the_reason() -> None:
    assert reliability.bug_tables() in PAGE
    assert f": {len(TEXTS)} of {len(BUGS)} are found" in " ".join(PAGE.split())


def test_page_lists_each_short_model_with_its_states_and_each_bug_of_it() -> None:
    section = PAGE.partition("## The model\n")[2].partition("\n## ")[0]

    for case in CASES:
        assert case.is_long or f"\n| {case} | {case.states:,} |" in section, case
    for bug in MODEL_BUGS:
        assert bug.is_long or f"\n| {bug.bug} |" in section, bug.bug


def test_page_has_a_row_of_each_kind_of_object_that_is_damaged() -> None:
    assert [kind.name for kind in KINDS if f"\n| {kind.name} |" not in PAGE] == []
    assert f"{len(KINDS)} kinds of objects" in " ".join(PAGE.split())


def test_page_has_the_number_of_verbs_of_pairs() -> None:
    pairs = len(SINGLE) * (len(SINGLE) + 1) // 2

    assert f"each of the {pairs:,} pairs of {len(SINGLE)} verbs once" in " ".join(PAGE.split())


def test_random_schedules_have_the_bounds_of_the_page() -> None:
    schedules = [schedule_of(seed) for seed in range(1_500)]
    parts = [part for schedule in schedules for part in schedule.parts]

    assert {len(schedule.parts) for schedule in schedules} == {2, 3, 4}
    assert max(len(part.steps) for part in parts) == 6
    assert max(abs(part.skew_s) for part in parts) == 30 * 86_400
    assert max(len(schedule.faults) for schedule in schedules) > 1
