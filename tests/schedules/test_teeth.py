"""The schedules find what they are for: with a rule taken out, some of them fail."""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.state import conflicts
from lakebed.state.reservation import Reservation
from lakebed.store.base import delete_or_leave
from schedules.bugs import PUT
from schedules.plans import schedule_of
from schedules.play import play, simulated

pytestmark = pytest.mark.thorough

MOST_SEEDS = 200
LOST = {"what is acknowledged is not lost with its dataset"}
UNDONE = {
    "fields are never undone by another verb",
    "indices are never undone by another verb",
    "properties are never undone by another verb",
}


def first_failure(rules: set[str], theme: str, *, start: int = 0) -> int | None:
    """Return the first seed of a theme under which one of some rules is broken.

    Args:
        rules: Of which one is to be broken.
        theme: Of the schedules.
        start: The first seed, where it is known that those before it find nothing.
    """
    with simulated():
        for seed in range(start, start + MOST_SEEDS):
            broken = {one.rule for one in play(schedule_of(seed, theme)).violations}
            if broken & rules:
                return seed
    return None


@pytest.mark.parametrize(
    ("bug", "theme", "rules", "start"),
    [
        (
            "the store skips the etag of a put",
            "rows",
            {"what is acknowledged stays in the history"},
            0,
        ),
        ("the store creates what exists", "a creation beside another", LOST, 0),
        ("a creator is told before it has the name", "a creation beside another", LOST, 0),
        (
            "an update writes the descriptor that it read at first",
            "an index beside an update",
            UNDONE,
            0,
        ),
        (
            "a promotion trusts equal labels",
            "a promotion beside what comes and goes",
            {"a commit changes the rows that it says, and no others"},
            0,
        ),
        (
            "a discard makes no commit",
            "a discard beside a commit",
            {"what is discarded is never visible"},
            0,
        ),
        (
            "a rerun does not look for another one",
            "rows",
            {"a rerun replaces nothing that it has not seen"},
            30,
        ),
        (
            "a writer may outlast its lease",
            "staging",
            {"what is discarded is never visible", "a version that is kept can be read"},
            0,
        ),
        (
            "members of a group are not checked against each other",
            "threads that merge and overwrite",
            {"no update is lost", "a rerun replaces nothing that it has not seen"},
            0,
        ),
        (
            "publications overwrite each other",
            "publications",
            {"a table shows whole versions"},
            1150,
        ),
    ],
)
def test_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: str, theme: str, rules: set[str], start: int
) -> None:
    PUT[bug](monkeypatch)

    assert first_failure(rules, theme, start=start) is not None


def test_a_stage_that_deletes_what_was_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(self: Reservation) -> bool:
        return delete_or_leave(self._store, [self.key])

    monkeypatch.setattr(Reservation, "give_up", give_up)

    rule = "a version that is kept can be read"
    assert first_failure({rule}, "a stage beside a commit", start=35) is not None


def test_a_transaction_that_rests_on_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check = conflicts.check

    def check_without_reads(base: Any, now: Any, change: Any, since: Any, _reads: Any) -> None:
        check(base, now, change, since)

    monkeypatch.setattr(conflicts, "check", check_without_reads)

    assert first_failure({"no update is lost"}, "reads") is not None
