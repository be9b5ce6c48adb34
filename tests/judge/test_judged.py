"""Processes write to one dataset on S3 with faults, some are killed, and the judge reads the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from judge.proxy import far_proxy
from judge.trial import Trial, play


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with far_proxy() as found:
        yield found


@pytest.mark.parametrize(
    "system", ["lakebed", pytest.param("lakebed_tree", marks=pytest.mark.thorough)]
)
def test_two_writers_with_faults_and_a_kill(endpoint: str, tmp_path: Path, system: str) -> None:
    outcome = play(
        Trial(system=system, seed=4, writers=2, steps=6, kills=1), endpoint, tmp_path / "run"
    )

    assert outcome.verdict.violations == []
    assert outcome.stuck == []
    assert outcome.killed == 1
    # Their number depends on the moment of the kill.
    assert sum(outcome.faults["injected"].values()) >= 1
    assert any(entry.outcome == "done" for entry in outcome.entries)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
@pytest.mark.parametrize("system", ["lakebed", "lakebed_tree"])
def test_four_writers_with_faults_and_kills(
    endpoint: str, tmp_path: Path, system: str, seed: int
) -> None:
    trial = Trial(system=system, seed=seed, writers=4, steps=25, kills=4, versions=10)

    outcome = play(trial, endpoint, tmp_path / "run")

    assert outcome.verdict.violations == []
    assert outcome.stuck == []
