"""The section of `docs/reliability.md` about the models, from the results of a run."""

from __future__ import annotations

import json
from pathlib import Path

from schedules.sections import paragraph, table

RESULTS = Path(__file__).parents[2] / "build" / "model.json"
TITLE = "## The model\n"


def text_of(results: Path) -> str:
    """Return the section, of the results of `python -m protocol`."""
    known = json.loads(results.read_text(encoding="utf-8"))
    cases, bugs = known["cases"], known["bugs"]
    broken = sum(bool(told) for *_, told in cases)
    found = sum(bool(steps) for *_, steps in bugs)
    states = sum(one[1] for one in cases)
    parts = [
        TITLE,
        "\n",
        paragraph(
            "[Models](design/014-model.md) of the protocol are searched exhaustively within bounds. A run of "
            f"{known['day']} visited {states:,} states of {len(cases)} models with bounds; {broken} broke a rule, "
            f"and {found} of {len(bugs)} bugs that were put in broke the rule that they were to break. To repeat "
            "it: `cd tests && python -m protocol --short`; without `--short` also models and bugs that take "
            "minutes."
        ),
        table(("model", "states", "steps", "seconds"), (one[:4] for one in cases)),
        "\n",
        table(
            ("bug in a model", "broken rule", "after steps"),
            ((bug, rule, steps or "not found") for bug, rule, steps in bugs),
        ),
        "\n",
    ]
    return "".join(parts)
