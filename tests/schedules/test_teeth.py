"""The schedules find what they are for: with a rule taken out, some of them fail."""

from __future__ import annotations

import pytest

from lakebed.store.memory import MemoryStore
from schedules.plans import schedule_of
from schedules.play import play, simulated

MOST_SEEDS = 200


def first_failure(rules: set[str], theme: str, *, first_seed: int = 0) -> int | None:
    """Return the first seed of a theme under which one of some rules is broken."""
    with simulated():
        for seed in range(first_seed, first_seed + MOST_SEEDS):
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

    # Two creators must meet at one step, which the seeds below show to no avail.
    rules = {"what is acknowledged is not lost with its dataset"}
    assert first_failure(rules, "names", first_seed=60) is not None
