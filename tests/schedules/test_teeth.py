"""The schedules find what they are for: with a rule taken out, some of them fail."""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.state import conflicts, creation, updates
from lakebed.state.committing import Succession
from lakebed.state.reader import read_own_head
from lakebed.state.reservation import Reservation
from lakebed.store.base import delete_or_leave
from lakebed.store.memory import MemoryStore
from lakebed.tables.delta.log import Log
from lakebed.work import indexing, staging
from schedules.plans import schedule_of
from schedules.play import play, simulated

pytestmark = pytest.mark.thorough

MOST_SEEDS = 200
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


def test_a_store_that_ignores_conditions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(self: MemoryStore, key: str, data: memoryview, *, if_match: str) -> str:
        self._put(key, data)
        return self._get(key).etag

    monkeypatch.setattr(MemoryStore, "_replace", replace)

    assert first_failure({"what is acknowledged stays in the history"}, "rows") is not None


def test_a_store_that_creates_what_exists_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(self: MemoryStore, key: str, data: memoryview) -> str:
        self._put(key, data)
        return self._get(key).etag

    monkeypatch.setattr(MemoryStore, "_create", create)

    rule = "what is acknowledged is not lost with its dataset"
    assert first_failure({rule}, "a creation beside another") is not None


def test_a_creator_that_is_told_before_it_has_the_name_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(creation, "_claim_name", creation._own_first_head)

    rule = "what is acknowledged is not lost with its dataset"
    assert first_failure({rule}, "a creation beside another") is not None


def test_an_index_that_undoes_an_update_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def update(store: Any, dataset: str, edit: Any, *rest: Any) -> Any:
        # What was read before is written, whatever has come since.
        outdated = edit(read_own_head(store, dataset).state.descriptor)
        return updates.update(store, dataset, lambda _: outdated, *rest)

    monkeypatch.setattr(indexing, "update", update)

    assert first_failure(UNDONE, "an index beside an update") is not None


def test_a_promotion_that_trusts_equal_labels_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost_or_missed(scope: Any, since: Any) -> dict[str, Any]:
        before, labels = since.state.labels, since.now.labels
        if before == labels:
            return {}
        gone = scope.labels.intersection(before).difference(labels)
        new = filter(scope.misses, set(labels).difference(before))
        return {conflicts.partition_of_label(label): None for label in (*gone, *new)}

    monkeypatch.setattr(conflicts, "_lost_or_missed", lost_or_missed)

    rule = "a commit changes the rows that it says, and no others"
    assert first_failure({rule}, "a promotion beside what comes and goes") is not None


def test_a_discard_without_a_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_shut_out", lambda *_: None)

    rule = "what is discarded is never visible"
    assert first_failure({rule}, "a discard beside a commit") is not None


def test_a_stage_that_deletes_what_was_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(self: Reservation) -> bool:
        return delete_or_leave(self._store, [self.key])

    monkeypatch.setattr(Reservation, "give_up", give_up)

    rule = "a version that is kept can be read"
    assert first_failure({rule}, "a stage beside a commit", start=35) is not None


def test_a_rerun_that_looks_for_no_other_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "_check_run", lambda *_: None)

    rule = "a rerun replaces nothing that it has not seen"
    assert first_failure({rule}, "rows", start=30) is not None


def test_a_writer_that_outlasts_its_lease_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "check_in_time", lambda *_: None)

    rules = {"what is discarded is never visible", "a version that is kept can be read"}
    assert first_failure(rules, "staging") is not None


def test_a_transaction_that_rests_on_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check = conflicts.check

    def check_without_reads(base: Any, now: Any, change: Any, since: Any, _reads: Any) -> None:
        check(base, now, change, since)

    monkeypatch.setattr(conflicts, "check", check_without_reads)

    assert first_failure({"no update is lost"}, "reads") is not None


def test_a_group_that_checks_nothing_against_itself_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grouped: set[str] = set()
    add, finish, check = Succession.add, Succession.finish, conflicts.Terms.check

    def noted(self: Succession, terms: conflicts.Terms) -> Any:
        entry = add(self, terms)
        grouped.add(entry.commit_id)
        return entry

    def finished(self: Succession) -> Any:
        grouped.clear()
        return finish(self)

    def check_alone(self: conflicts.Terms, store: Any, now: Any, since: Any) -> None:
        check(self, store, now, [one for one in since if one.commit_id not in grouped])

    monkeypatch.setattr(Succession, "add", noted)
    monkeypatch.setattr(Succession, "finish", finished)
    monkeypatch.setattr(conflicts.Terms, "check", check_alone)

    rules = {"no update is lost", "a rerun replaces nothing that it has not seen"}
    assert first_failure(rules, "threads that merge and overwrite", start=0) is not None


def test_publications_that_overwrite_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: Log, number: int, lines: Any) -> bool:
        self._store.put(self.key(number), b"\n".join(lines) + b"\n")
        return True

    monkeypatch.setattr(Log, "add", add)

    rule = "a table shows whole versions"
    assert first_failure({rule}, "publications", start=165) is not None
