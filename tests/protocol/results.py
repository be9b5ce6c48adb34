"""The section of `docs/reliability.md` about the models, from the results of a run."""

from __future__ import annotations

import json
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
RESULTS = Path(__file__).parents[2] / "build" / "model.json"
BEGIN, END = "## The model\n", "## What is not covered\n"


def section(results: Path = RESULTS) -> str:
    """Return the section; that of the page, if there are no results of a run."""
    if not results.exists():
        return _on_page(PAGE.read_text(encoding="utf-8"))
    known = json.loads(results.read_text(encoding="utf-8"))
    cases, bugs = known["cases"], known["bugs"]
    broken = sum(bool(told) for *_, told in cases)
    found = sum(bool(steps) for *_, steps in bugs)
    lines = [
        BEGIN.rstrip(),
        "",
        f"[Models](design/014-model.md) of the protocol are searched exhaustively within bounds. A run of {known['day']}",
        f"visited {sum(one[1] for one in cases):,} states of {len(cases)} models with bounds; {broken} broke a rule, and {found} of {len(bugs)} bugs that were put",
        "in broke the rule that they were to break. To repeat it: `cd tests && python -m protocol`.",
        "",
        "| model | states | steps | seconds |",
        "| --- | --- | --- | --- |",
        *(f"| {name} | {states:,} | {steps:,} | {s} |" for name, states, steps, s, _ in cases),
        "",
        "| bug in a model | broken rule | after steps |",
        "| --- | --- | --- |",
        *(f"| {bug} | {rule} | {steps or 'not found'} |" for bug, rule, steps in bugs),
        "",
    ]
    return "\n".join(lines) + "\n"


def written_into_page(results: Path) -> None:
    """Replace the section in the page, and nothing else."""
    text = PAGE.read_text(encoding="utf-8")
    old = _on_page(text)
    new = section(results)
    text = text.replace(old, new) if old else text.replace(END, new + END)
    PAGE.write_text(text, encoding="utf-8")


def _on_page(text: str) -> str:
    if BEGIN not in text:
        return ""
    return text[text.index(BEGIN) : text.index(END)]
