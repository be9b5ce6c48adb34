"""The section of docs/reliability.md that is written of the results of the judge."""

from __future__ import annotations

from typing import Any

from schedules.sections import section_of, with_section

from judge import verdict
from judge.faults import FAULTS, Fault, Kind
from judge.results import TITLE, section

PAGE = "# Reliability\n\n## Seeded bugs\n\nMany.\n\n## What is not covered\n\n- Spark.\n"


def run_of(system: str, seed: int, **more: Any) -> dict[str, Any]:
    return {
        "system": system,
        "seed": seed,
        "release": "1.2.3",
        "counts": {"append done": 7, "merge done": 2, "append unknown": 1, "unknown, and there": 1},
        "violations": [],
        "asked": {"GET": 1000, "PUT": 234},
        "injected": {"GET: answer cut off in its body": 3},
        "is_calm": False,
        "killed": 2,
        "seconds": 90.0,
        **more,
    }


def test_section_counts_what_the_runs_have() -> None:
    lost = [{"rule": verdict.LOST, "told": "append w0-1"}]
    runs = [run_of("lakebed", 1), run_of("lakebed", 2), run_of("lance", 1), run_of("lance", 2)]
    runs[3]["violations"] = lost

    text = section(runs)

    assert "| requests | 2,468 | 2,468 |" in text
    assert "| changes acknowledged | 18 | 18 |" in text
    assert "| of them appends | 14 | 14 |" in text
    assert f"| **{verdict.LOST}** | 0 | 1 |" in text
    assert "2 seeds, 6 minutes" in text
    assert "Lance broke a rule with the seeds 2." in text


def test_single_faults_of_commits_are_a_table_of_their_own() -> None:
    told = {str(fault): ["done", 3, ""] for fault in FAULTS[Kind.CONDITIONAL_PUT]}
    told[Fault.EXPIRED] = ["refused", 0, "AccessDeniedError"]

    text = section([run_of("lakebed", 1), {"system": "lakebed", "commits": told}])

    assert f"| {Fault.LOST_ANSWER} | acknowledged, 3 |" in text
    assert f"| {Fault.EXPIRED} | refused, 0 |" in text
    assert "| runs | 1 |" in text


def test_seeds_that_not_all_systems_have_played_do_not_count() -> None:
    runs = [run_of("lakebed", 1), run_of("lakebed", 2), run_of("deltalake", 2)]

    assert "| runs | 1 | 1 |" in section(runs)


def test_runs_without_faults_do_not_count() -> None:
    runs = [run_of("lakebed", 1), run_of("lakebed", 2, is_calm=True)]

    assert "| runs | 1 |" in section(runs)


def test_section_is_written_into_a_page_and_again_and_the_rest_stays() -> None:
    first, second = section([run_of("lakebed", 1)]), section([run_of("lakebed", 2, killed=9)])

    page = with_section(PAGE, TITLE, first)
    assert section_of(page, TITLE) == first
    assert page.replace(first, "") == PAGE
    assert with_section(with_section(page, TITLE, second), TITLE, first) == page
