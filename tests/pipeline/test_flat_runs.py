"""Runs of a pipeline cost the same after many runs: requests, objects and bytes of the head."""

from __future__ import annotations

import importlib.util
import statistics
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.thorough

DAYS, EVERY, KEEP = 40, 3, 6  # days of runs, hours between them, days of rows that are kept


def year() -> Any:
    """Return the simulation of a year, which counts requests and compares each dry run."""
    path = Path(__file__).parents[2] / "bench" / "year.py"
    spec = importlib.util.spec_from_file_location("bench_year", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_runs_after_forty_days_cost_what_runs_after_ten_days_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = year()
    counts = simulation.count_requests(monkeypatch.setattr)

    runs = list(simulation.simulate(DAYS, EVERY, tmp_path, counts, KEEP))

    a_day = 24 // EVERY
    early = [run for run in runs if 8 * a_day <= run["run"] < 14 * a_day]
    late = [run for run in runs if run["run"] >= (DAYS - 6) * a_day]
    assert len(early) > 40
    assert len(late) > 40

    def median(runs: list[dict[str, Any]], key: str) -> float:
        return statistics.median(run[key] for run in runs)

    for key in ("files", "rows", "lists", "writes", "deletes"):
        assert median(late, key) <= 1.1 * median(early, key) + 1, key
    for key in ("reads", "head_bytes"):  # lists have a few more segments
        assert median(late, key) <= 1.15 * median(early, key), key
    # A run and its cleanup are recorded until there are 500 of them.
    for run in runs:
        run["others"] = run["objects"] - run["records"]
    assert median(late, "others") <= 1.15 * median(early, "others")
