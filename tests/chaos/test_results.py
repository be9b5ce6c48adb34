"""The section of docs/reliability.md that is written of the results of `make chaos`."""

from __future__ import annotations

from typing import Any

from chaos.results import section


def run_of(fault: str, verb: str, met: int = 1, *violations: list[str]) -> dict[str, Any]:
    return {
        "fault": fault,
        "verb": verb,
        "met": met,
        "outcome": "done",
        "spark": "4.3.0",
        "python": "3.11.7",
        "day": "2026-11-26",
        "violations": list(violations),
    }


def test_section_counts_the_faults_of_each_verb() -> None:
    told = [
        run_of("task fails", "append"),
        run_of("slow store", "append", 12),
        run_of("slow store", "merge", 7, ["there in part", "merge new"]),
    ]

    text = section(told)

    assert "3 runs, of which 1 broke a rule" in text
    assert "1. task fails\n2. slow store\n" in text
    assert "| append | 1 | 12 |\n| merge | — | 7 |\n" in text


def test_the_last_run_of_a_fault_counts() -> None:
    told = [
        run_of("task fails", "append", 1, ["there in part", ""]),
        run_of("task fails", "append"),
    ]

    assert "1 runs, of which 0 broke a rule" in section(told)


def test_two_drivers_are_named_beside_the_table() -> None:
    text = section([run_of("slow store", "merge"), run_of("two drivers", "compact, append")])

    assert "two drivers" not in text.partition("| verb |")[0]
    assert "In 1 more runs, two drivers" in text
    assert "compaction and append" in text


def test_without_results_there_is_no_section() -> None:
    assert section([]) == ""
