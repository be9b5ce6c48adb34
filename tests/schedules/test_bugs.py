"""The schedules find what they are for: with a bug put in, the one that is named breaks a rule."""

from __future__ import annotations

import pytest

from schedules.bugs import BUGS, NOT_CAUGHT, TEXTS, Bug, finds, is_caught
from schedules.interleavings import schedule_from
from schedules.play import play, simulated

CAUGHT = [one for one in BUGS if one.name in TEXTS]


@pytest.mark.parametrize("one", CAUGHT, ids=lambda one: one.name)
def test_bug_is_found(one: Bug) -> None:
    assert is_caught(finds(one, TEXTS[one.name]))


@pytest.mark.parametrize("text", sorted(set(TEXTS.values())))
def test_schedule_that_finds_a_bug_breaks_no_rule_without_it(text: str) -> None:
    with simulated():
        played = play(schedule_from(text))

    assert not played.violations, str(played)


def test_each_bug_is_found_or_listed_with_the_reason_why_not() -> None:
    names = [one.name for one in BUGS]

    assert len(names) == len(set(names))
    assert sorted(names) == sorted([*TEXTS, *NOT_CAUGHT])
    assert len(CAUGHT) >= 40
