"""The results of runs, and the part of docs/reliability.md that is written of them."""

from __future__ import annotations

import collections
import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from schedules.sections import paragraph, table

import lakebed
from judge import verdict
from judge.faults import FAULTS, Fault, Kind
from judge.steps import DONE

_JUDGING = ("faults", "proxy", "steps", "worker", "verdict", "trial")
RESULTS = Path(__file__).parents[2] / "build" / "judge.jsonl"


@cache
def code_sum(system: str, *more: str) -> str:
    """Return a sum of the judge and the adapter of a system; of Lakebed, also of its own code.

    `more` names modules of the judge that only some results are of.
    """
    found = hashlib.sha256()
    here = Path(__file__).parent
    own = Path(lakebed.__file__).parent.rglob("*.py") if system.startswith("lakebed") else ()
    judging = (here / f"{name}.py" for name in (*_JUDGING, *more))
    for path in (*sorted(own), *judging, here / "adapters" / f"{system}.py"):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def read(path: Path) -> list[dict[str, Any]]:
    """Return the runs of the code that is here."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = {one["run"]: one for one in map(json.loads, lines)}.values()
    return [one for one in found if one["code"] == code_sum(one["system"], *one.get("more", ()))]


TITLE = "## On S3, with faults, beside others\n"
_SYSTEMS = {
    "lakebed": "Lakebed, document",
    "lakebed_tree": "Lakebed, tree",
    "deltalake": "deltalake",
    "pyiceberg": "pyiceberg",
    "lance": "Lance",
    "ducklake": "DuckLake",
}
_METHOD = """\

Processes write to one table on S3, with the HTTP clients that users have. A proxy loses, repeats, delays
and refuses their requests by a seed, and some of the processes are killed by signal 9 in the middle of a
change, and started again. Each notes whether a change was acknowledged, refused, or is unknown, before it
goes on. At the end, without faults, one judge reads all rows, and looks for each change: what was
acknowledged must be there once, what was refused must not be there, and what is unknown must be there once
or not at all, and whole. Each system has the same seeds: the same verbs are drawn, the n-th request
of a class has the same fault, and the same writer is killed in the same change.
"""
_FAIR = """\

Writers open the table before each change, as separate jobs do (those of DuckLake keep their connection), and
never repeat a change by themselves.
The settings are the defaults, except that DuckLake writes each row to S3 instead of its catalog, and that
its SQLite catalog has a write-ahead log and waits up to five seconds for other writers. The catalogs of
pyiceberg and DuckLake are SQLite files, which the proxy is not before: their commits see no faults of S3, and
only their files do. An error of Lakebed counts as the outcome that it states. One of the others counts as
refused where it names a conflict, or is from opening the table, and as unknown else, also where nothing was
sent: so these two kinds of outcomes are not to be compared between systems. pyiceberg has no compaction: that
step changes nothing, and counts as acknowledged. Lance replaces no partition in one commit, and appends instead.
"""


def text_of(path: Path) -> str:
    """Return the section of the page."""
    return section(read(path))


def section(runs: Sequence[dict[str, Any]]) -> str:
    """Return the section: of the seeds that all systems have played; empty if there are none."""
    commits = [one for one in runs if "commits" in one]
    runs = [one for one in runs if "commits" not in one and not one["is_calm"]]
    systems = [name for name in _SYSTEMS if any(one["system"] == name for one in runs)]
    if "lakebed" not in systems:
        return ""
    seeds = set.intersection(
        *({one["seed"] for one in runs if one["system"] == name} for name in systems)
    )
    if not seeds:
        return ""
    of = {
        name: [one for one in runs if one["system"] == name and one["seed"] in seeds]
        for name in systems
    }
    minutes = sum(one["seconds"] for found in of.values() for one in found) / 60
    released = "; ".join(f"{_SYSTEMS[name]} {of[name][0]['release']}" for name in systems)
    of_duck = " (of DuckLake, the release of DuckDB)" if "ducklake" in systems else ""
    absent = ", ".join(_SYSTEMS[name] for name in _SYSTEMS if name not in systems)
    parts = [
        TITLE,
        _METHOD,
        _FAIR,
        "\n",
        paragraph(
            f"This run: {len(seeds)} seed{'s' * (len(seeds) != 1)}, {minutes:.0f} minutes. {released}{of_duck}."
            f"{f' Not tried: {absent}.' if absent else ''} The same again: "
            "`make judge`, then `make reliability`."
        ),
        table(("", *(_SYSTEMS[name] for name in systems)), _figures(of)),
        "\nFaults injected, of all classes of requests:\n\n",
        table(("fault", *(_SYSTEMS[name] for name in systems)), _injected(of)),
        "\n",
        *_found(of),
        *_one_by_one(commits),
    ]
    return "".join(parts)


def _figures(of: dict[str, list[dict[str, Any]]]) -> Iterable[tuple[object, ...]]:
    counts = {name: _counted(found) for name, found in of.items()}

    def row(told: str, *endings: str) -> tuple[object, ...]:
        return (
            told,
            *(
                sum(n for what, n in one.items() if what.endswith(endings))
                for one in counts.values()
            ),
        )

    def sums(told: str, key: str) -> tuple[object, ...]:
        return (told, *(sum(sum(one[key].values()) for one in found) for found in of.values()))

    yield ("runs", *(len(found) for found in of.values()))
    yield sums("requests", "asked")
    yield sums("faults injected", "injected")
    yield ("processes killed", *(sum(one["killed"] for one in found) for found in of.values()))
    yield row("changes acknowledged", " done")
    yield row("of them appends", "append done")
    yield row("refused: the user sees that nothing was changed", " refused")
    yield row("unknown: the user sees another error, or was killed", " unknown")
    yield row("rows of unknown changes that were there", "unknown, and there")
    for rule in (
        verdict.LOST,
        verdict.DOUBLED,
        verdict.REFUSED_IS_THERE,
        verdict.CAME_BACK,
        verdict.TORN,
        verdict.FROM_NOWHERE,
        verdict.UNREADABLE,
        verdict.VERSIONS,
    ):
        yield (f"**{rule}**", *(_broken(found, rule) for found in of.values()))
    rest = (verdict.COMMITS, verdict.OBJECTS, verdict.BROKEN)
    yield (
        "**history, objects or an error not as promised** (Lakebed alone)",
        *(sum(_broken(found, rule) for rule in rest) for found in of.values()),
    )


def _counted(found: Iterable[dict[str, Any]]) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for one in found:
        counts.update(one["counts"])
    return counts


def _broken(found: Iterable[dict[str, Any]], rule: str) -> int:
    return sum(told["rule"] == rule for one in found for told in one["violations"])


def _injected(of: dict[str, list[dict[str, Any]]]) -> Iterable[tuple[object, ...]]:
    for fault in Fault:
        yield (
            fault,
            *(
                sum(
                    n
                    for one in found
                    for what, n in one["injected"].items()
                    if what.endswith(fault)
                )
                for found in of.values()
            ),
        )


def _found(of: dict[str, list[dict[str, Any]]]) -> Iterable[str]:
    """Yield a paragraph for each system that broke a rule."""
    for name, found in of.items():
        seeds = sorted({one["seed"] for one in found if one["violations"]})
        if seeds:
            told = ", ".join(map(str, seeds))
            yield paragraph(
                f"{_SYSTEMS[name]} broke a rule with the seeds {told}. {NOTES.get(name, '')}"
            )


def _one_by_one(commits: Sequence[dict[str, Any]]) -> Iterable[str]:
    """Yield the table of single faults of commits."""
    of = {name: one["commits"] for name in _SYSTEMS for one in commits if one["system"] == name}
    if not of:
        return
    yield paragraph(
        "Where commits are conditional puts on S3, each fault was also put to one commit alone: the put that "
        "commits an append of one writer. The cells have the outcome for the writer, and the number of the three rows "
        "that were there afterwards; six would be an append that came twice."
    )
    yield table(
        ("fault of the commit", *(_SYSTEMS[name] for name in of)),
        [
            (fault, *(_cell(found, fault) for found in of.values()))
            for fault in FAULTS[Kind.CONDITIONAL_PUT]
        ],
    )
    yield "\n"


def _cell(found: dict[str, Any], fault: Fault) -> str:
    outcome, rows, _ = found[fault]
    return f"{'acknowledged' if outcome == DONE else outcome}, {rows}"


# What was found when these runs were looked into.
NOTES: dict[str, str] = {}
