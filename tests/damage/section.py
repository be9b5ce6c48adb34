"""The section about damage in `docs/reliability.md`, from the results of a run."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schedules.sections import table

TITLE = "## Damaged objects\n"

_WAYS = {
    "flipped bit": "a bit flipped",
    "cut": "the end cut off",
    "swapped": "the content of another object of the kind in its place",
    "lost": "lost",
    "emptied": "emptied",
    "older copy": "an older copy put back, where objects are replaced",
}
_INTRODUCTION = """\
Then the dataset was opened, planned, read by value, range and index, read at older versions, checked, repaired, cleaned
up and written to, and each answer was compared with that of the sound lake. `make test` takes one object of each kind
in some ways, and `make thorough` every object in each way.
"""
_RULES = """\
In the table, *noticed* is the first step that raised an error: `open`; `plan`; `read` of the current version; `older`
versions and the history; `notes` about batches, runs and raw files; `tables` of other formats. *Check* is the severity
of what `check` found, or its error; in brackets that of `check --deep` if it is another one. *Repaired* means that
`check --repair` made all answers right again; otherwise the object must be restored from a copy. A dash stands for
nothing.
"""
_NEVER = """\
No call gives other rows than the sound lake without an error, except where a number leads to a reason. No repair deletes
a data file. Rows of other partitions stay readable wherever the head can be read.
"""
_FLIPS = """\
Then single bits: each byte of a file was changed by two masks, its lowest and its highest bit, one flip at a time. A
process of its own asked for the version, the schema, the history, an older version, all rows, ranges, nulls, times,
counts and what a delete would remove, by Lakebed and by the object that other engines read. `make test` flips 100 bits
of each of these files, `make test-long` all of them.
"""
_OUTCOMES = (
    "file",
    "bytes",
    "flips",
    "named error",
    "same answers",
    "another answer",
    "other error, hang or end of the process",
)
_OTHERS = """\
Nothing says what another tool has written, so its files are believed where they can be read: see
[what other engines do not verify](threat-model.md#what-other-engines-do-not-verify).
"""


def text_of(path: Path) -> str:
    """Return the section.

    Args:
        path: File with what `python -m damage` has recorded.
    """
    results = json.loads(path.read_text(encoding="utf-8"))
    rows = results["rows"]
    kinds = dict.fromkeys(row["kind"] for row in rows)
    reasons: dict[str, int] = {}
    lines = [
        "| object | damage | noticed | check | repaired |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in kinds:
        by_cells: dict[tuple[str, ...], list[str]] = {}
        for how in dict.fromkeys(row["how"] for row in rows if row["kind"] == kind):
            those = [row for row in rows if (row["kind"], row["how"]) == (kind, how)]
            by_cells.setdefault(_cells(those, reasons), []).append(how)
        for cells, ways in by_cells.items():
            lines.append(f"| {kind} | {', '.join(ways)} | {' | '.join(cells)} |")
    changed = sum(bool(row["others"]) for row in rows)
    ways = "; ".join(_WAYS[how] for how in dict.fromkeys(row["how"] for row in rows))
    figures = (
        f"Python {results['python']} on {results['machine']}, {results['day']}: {len(rows):,} damaged lakes of "
        f"{len(kinds):,} kinds of objects. In {sum(bool(row['first_error']) for row in rows):,} a call raised a "
        f"named error; in {changed:,} a call gave another answer, for the reasons below the table. In "
        f"{sum(row['deleted'] > 0 for row in rows):,} a cleanup deleted more than it does in the sound lake, and in "
        f"{sum(bool(row['written']) for row in rows):,} a write gave wrong rows, for one of these reasons."
    )
    listed = "\n".join(
        textwrap.fill(f"{number}. {reason}", 118, subsequent_indent="   ", break_on_hyphens=False)
        for reason, number in reasons.items()
    )
    return "\n".join(
        [
            TITLE,
            textwrap.fill(f"Objects of each kind that Lakebed writes were damaged: {ways}.", 118)
            + "\n",
            _INTRODUCTION,
            textwrap.fill(figures, 118, break_on_hyphens=False) + "\n",
            _RULES,
            _NEVER,
            "\n".join(lines) + "\n",
            listed + "\n",
            _flips(results["flips"]),
            "To repeat the run: `make reliability`, or `cd tests && python -m damage --results FILE`.\n\n",
        ]
    )


def _flips(flips: Mapping[str, Mapping[str, Any]]) -> str:
    """Return what became of each flip of a bit of a file."""
    return "\n".join(
        [_FLIPS, table(_OUTCOMES, [_row(name, found) for name, found in flips.items()]), _OTHERS]
    )


def _row(name: str, found: Mapping[str, Any]) -> list[object]:
    counts = found["counts"]
    wrong = sum(counts.get(outcome, 0) for outcome in ("unnamed", "hang", "death"))
    return [
        name,
        found["size"],
        sum(counts.values()),
        *(counts.get(outcome, 0) for outcome in ("error", "same", "other")),
        wrong,
    ]


def _cells(rows: Sequence[Mapping[str, Any]], reasons: dict[str, int]) -> tuple[str, ...]:
    """Return what became of a kind and a damage; of several objects the weakest answer."""
    noticed = dict.fromkeys(row["first_error"] for row in rows if row["first_error"])
    checks = dict.fromkeys(
        row["check"] if row["check"] == row["deep"] else f"{row['check'] or '—'} ({row['deep']})"
        for row in rows
    )
    reason = next((row["reason"] for row in rows if row["reason"]), "")
    sign = f" ({reasons.setdefault(reason, len(reasons) + 1)})" if reason else ""
    wrong = any(row["others"] for row in rows)
    stages = dict.fromkeys(name.replace(": ", ": `") + "`" for name in noticed)
    parts = [*stages, *(["another answer"] if wrong else [])]
    if not all(row["first_error"] for row in rows) and stages:
        parts.append("or —")
    repaired = {row["is_repaired"] for row in rows if row["first_error"] or row["check"]}
    return (
        (", ".join(parts) or "—") + sign,
        ", ".join(one or "—" for one in checks),
        {True: "yes", False: "no"}[next(iter(repaired))]
        if len(repaired) == 1
        else "in part"
        if repaired
        else "—",
    )
