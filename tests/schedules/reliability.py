"""Write `docs/reliability.md` from the results of a run on this machine.

From `tests/`: `python -m schedules.reliability`, or `make reliability`. It plays orders of pairs for
a quarter of an hour, random schedules, and the schedule of each seeded bug; what earlier runs of the
same code have added to the results counts, too. `--only-write` plays nothing. Sections with results
of their own, of `python -m protocol`, `damage` and `judge` and of `make chaos`, stay as they are
without these.
"""

from __future__ import annotations

import argparse
import collections
import json
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import chaos.results
import crash_points
import damage.section
import judge.results
import protocol.results

import lakebed
from schedules.bugs import BUGS, NOT_CAUGHT, TEXTS, finds, is_caught
from schedules.interleavings import SINGLE, short_tier, tried
from schedules.model import MOST_TURNS
from schedules.plans import schedule_of
from schedules.play import play, simulated
from schedules.prove import (
    RESULTS,
    WAYS,
    Found,
    class_of,
    code_sum,
    is_of_this,
    prove,
    read,
    units,
)
from schedules.sections import paragraph, section_of, table, with_section
from schedules.triples import SHARING

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


class Section(NamedTuple):
    """A part of the page that results of their own make: file, first line, and what writes it."""

    results: str
    title: str
    text: Callable[[Path], str]


SECTIONS = {
    "model": Section("model.json", protocol.results.TITLE, protocol.results.text_of),
    "power": Section("power.json", crash_points.TITLE, crash_points.text_of),
    "damage": Section("damage.json", damage.section.TITLE, damage.section.text_of),
    "judge": Section("judge.jsonl", judge.results.TITLE, judge.results.text_of),
    "chaos": Section("chaos.jsonl", chaos.results.TITLE, chaos.results.text_of),
}
HEAD = """\
# Reliability

*Also known as:* fault injection, simulation testing, crash consistency, linearizability.

This page shows what was proven about Lakebed's verbs, how, and what was not. A command writes it from
results of runs; each section names the run that it is of. [The threat model](threat-model.md) is about harm on purpose.

"""
METHOD = f"""\
## What is checked

The real code of each verb runs on a store in memory, under a scheduler that decides which process sends
its next request, what time it is for each, and which request fails. A reference model, in
`tests/schedules/model.py`, judges each run:

- What was acknowledged is in the history once, and stays there.
- What was refused is not visible. What has an unknown outcome is there once, or not at all.
- Versions grow by one. Each commit changes the rows that it states, and no others.
- A reader sees one version. Each version that is kept can be read.
- No update is lost: what a commit replaces is what its writer had seen.
- No live file is deleted, and nothing that was discarded becomes visible.
- An index hides no row. A published table shows whole versions.
- An epoch of a stream counts once. Rows of raw files, their record and the quarantine agree.
- Rows that were erased are in no version.
- Once faults have ended, each verb ends within {MOST_TURNS} of its turns.

**Orders of pairs.** Of two verbs, all orders of their requests with at most two switches between them are
played, for datasets whose head is a document and for those whose head is a tree that folds every few
commits. Orders that differ only in requests that do not touch the same object come to the same, and are
played once. A request that deletes many objects is played in three parts: the first object, the last one, and
those between. With faults, each write of the one verb fails in each way, with the other verb right
before it or right after it. A failing schedule is made small, and printed as a text that plays it again.

**Killed in the middle.** `make proof` also plays each verb with a move of the head in the middle of it that is killed
after each of its writes. On HDFS, a conditional put first claims its object, and another process may finish it: so each
verb is killed after each of its claims, and another verb meets the claim. `make test` plays some of these orders.

**Threads.** Two verbs also run as threads of one process, whose commits share puts of the head, beside a reader.

**Orders of three.** Of {len(SHARING)} verbs that share an invariant, `make proof` plays any three, too. The first gives way once, to the
second, which gives way at most once, to the third; those that have given way go on in either order. Each of
the three is the first, the second and the third once. With faults, each write of the first fails in four ways,
and the others come right after it.

**Answers that came before.** A verb of these orders is decided by what it is answered: its process has a clock, ids
and random numbers of its own. So `make proof` remembers what the code of a verb did after each sequence of answers.
Where the same answers come again, the same requests are carried out without the code; at the first other answer, the
code runs. Every request of every schedule reaches the store. Results in which the judge sees no difference are judged
once. One schedule of 256 is played with the code of all verbs, too, and must have the same requests, outcomes and
objects. Threads of one process share more than the store, so their code always runs.

**Random schedules** have two to four processes, up to six verbs each, clocks that are wrong by up to 30
days, writers that stand still for days, and several faults.
"""
REST = """\
## What is not covered

- **Other stores.** The figures of schedules are of the simulated store, and those beside others of moto's
  S3. `make servers` and `make test` race and kill real processes on directories and on other servers of S3,
  without a count on this page.
- **Spark** is not part of the schedules. Its faults come one at a time, each at one moment of a verb, on one
  machine and in a directory. Executors on other hosts, broken networks and external shuffle services were not tried.
- **More switches.** Orders of pairs with three or more switches, and other orders of three verbs than
  those above, are only met by random schedules.
- **Reads of data files** happen at one moment of a schedule: others cannot come between two files.
- **Moments of objects.** In orders of pairs and of three, the clock of the storage has whole seconds, as that of S3, so
  what is written in a schedule has one time, unless a process stands still. In random schedules it has milliseconds.
- **Storage whose servers disagree about the time.** Cleanup and erasure compare times that the storage gave to objects,
  so it must have one clock. If its servers differ by more than it takes to send a request, an erasure may delete a
  segment of the history that a commit beside it is about to name.
- **Time within a request.** A request happens at one moment. A listing is one request.
- **Damage** of the simulated store happens between calls, and not while one runs. `tests/fuzz` mutates what is parsed.
- **Power** is lost in a model of a directory, and not on a machine. Torn pages within one write, NFS and disks that report a
  sync before it is done are not part of it.
- **Other formats** were put under the judge of rows alone, and not under the model of schedules.
"""


def page(results: dict[str, Found], measured: dict[str, Any]) -> str:
    """Return the text of the page without the sections of results of their own."""
    total = _sums("", results.values())
    pair_count = len(SINGLE) * (len(SINGLE) + 1) // 2
    parts = [
        HEAD,
        METHOD,
        "\n## The run\n\n",
        paragraph(
            f"Python {measured['python']} on {measured['machine']}, {measured['day']}. {total[2]} schedules were "
            f"played of pairs, threads and triples, as follows. {measured['short']:,} more are of the "
            f"short tier, which has each of the {pair_count:,} pairs of {len(SINGLE)} verbs once, and "
            f"{measured['random']:,} are random. {_of_codes(results)}"
        ),
        table(
            ("what", "units played", "schedules", "distinct", "minutes of a processor"),
            [*(_sums(way, results.values()) for way in WAYS), total],
        ),
        "\n",
        paragraph(
            "A unit is a pair in one order, two threads, or a triple in all orders, on one kind of head. Where not "
            "all units were played, those that were are chosen by chance, of three verbs mostly among those with a drop and a "
            "creation, which have most orders; `make proof` plays the others. Schedules are "
            "distinct if requests to one object came in another order, or had another outcome; they are compared "
            f"within their unit. {_of_recalls(results.values())}The longest verb took {measured['longest']:,} turns after its last fault."
        ),
        "## Faults\n\n",
        table(
            ("fault class", "schedules with it", "that broke a rule"),
            [
                (name, measured["injected"].get(name, 0), measured["violations"].get(name, 0))
                for name in sorted(measured["injected"])
            ],
        ),
        "\n",
        paragraph(
            "All of them on the simulated store, with documents and with trees as heads. A schedule of several "
            "faults counts in the class of its first one, and also where a clock is wrong or a process stands "
            "still. To repeat the run: `make reliability`. To repeat one schedule: "
            "`cd tests && python -m schedules 'document: append | delete ; ann 9'`."
        ),
        "## Seeded bugs\n\n",
        paragraph(
            "A proof that finds nothing may be blind. So bugs are put into Lakebed or its store, one at a time: "
            f"{measured['caught']} of {len(BUGS)} are found, each by the schedule beside it, which `make test` "
            "plays."
        ),
        bug_tables(),
        REST,
    ]
    return "".join(parts)


def bug_tables() -> str:
    """Return the tables of seeded bugs: by the schedule that finds them, or why none does."""
    found = [(name, f"`{text}`".replace("|", "\\|")) for name, text in TEXTS.items()]
    missed = table(("bug", "why"), NOT_CAUGHT.items())
    why = "\nNot caught by orders of pairs, and why:\n\n"
    return f"{table(('bug', 'found by'), found)}{why}{missed}\n"


def _sums(way: str, results: Iterable[Found]) -> tuple[str, ...]:
    """Return a row about the units of a way, or of all."""
    done = [one for one in results if way in ("", one.way)]
    runs, distinct = (sum(getattr(one, name) for one in done) for name in ("runs", "distinct"))
    minutes = sum(one.seconds for one in done) / 60
    all_units = len(units(0, ways=(way,) if way else tuple(WAYS)))
    told = WAYS[way].told if way else "**all**"
    counts = (f"{len(done):,} of {all_units:,}", f"{runs:,}", f"{distinct:,}", f"{minutes:,.0f}")
    return (told, *counts)


def _of_recalls(results: Collection[Found]) -> str:
    """Return how much was remembered of verbs, if anything was."""
    recalled, executed, twice = (
        sum(getattr(one, name) for one in results) for name in ("recalled", "executed", "twice")
    )
    if not recalled:
        return ""
    return (
        f"Of {recalled + executed:,} verbs of schedules that could remember, the code of {executed:,} ran; {twice:,} of "
        "these schedules were played with the code of all verbs, too, and came to the same. "
    )


def _of_codes(results: dict[str, Found]) -> str:
    """Return how many units were played with another Lakebed than the present one, if any were."""
    older = sum(not is_of_this(one) for one in results.values())
    if older:
        which = "All units" if older == len(results) else f"{older:,} units"
        return (
            f"{which} were played before the last change of the code; a unit that broke a rule counts "
            "once it was played again after the mend. "
        )
    played = sum(one.code != code_sum() for one in results.values())
    if not played:
        return ""
    which = "the units" if played == len(results) else f"{played:,} units"
    return f"The code that plays schedules has changed since {which} were played, and Lakebed has not. "


def measure(given: Any) -> dict[str, Any]:
    """Play what the page is about besides pairs, and return the figures."""
    injected: collections.Counter[str] = collections.Counter()
    violations: collections.Counter[str] = collections.Counter()
    with simulated():
        short = [tried(one) for one in short_tier()]
        chance = [play(schedule_of(seed)) for seed in range(given.random)]
    for played in (*short, *chance):
        for one in played.violations:
            sys.stdout.write(f"{played.schedule.name}: {one}\n")
        names = [class_of(played)]
        if any(part.skew_s for part in played.schedule.parts):
            names.append("clock of a process wrong by up to 30 days")
        stands = "process stands still for days before a request"
        if played.schedule.stalls and stands not in names:
            names.append(stands)
        for name in names:
            injected[name] += 1
            violations[name] += bool(played.violations)
    return {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "day": time.strftime("%Y-%m-%d"),
        "short": len(short),
        "random": len(chance),
        "injected": dict(injected),
        "violations": dict(violations),
        "longest": max(one.longest for one in short),
        "caught": sum(is_caught(finds(one, TEXTS[one.name])) for one in BUGS if one.name in TEXTS),
    }


def merged(measured: dict[str, Any], results: dict[str, Found]) -> dict[str, Any]:
    """Add the figures of pairs to the others."""
    injected = collections.Counter(measured["injected"])
    violations = collections.Counter(measured["violations"])
    for one in results.values():
        injected.update(one.injected)
        violations.update(one.broken)
    longest = max([measured["longest"], *(one.longest for one in results.values())])
    return {
        **measured,
        "injected": dict(injected),
        "violations": dict(violations),
        "longest": longest,
    }


def _with_sections(page: str, results: Path, only: str | None = None) -> str:
    """Return a page with the sections of which there are results in a folder."""
    for name, section in SECTIONS.items():
        path = results / section.results
        if only in (None, name) and path.exists():
            text = section.text(path)
            page = with_section(page, section.title, text) if text else page
    return page


def _main() -> None:
    parser = argparse.ArgumentParser(prog="schedules.reliability", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--minutes", type=float, default=15.0, help="for the orders of pairs")
    parser.add_argument("--random", type=int, default=500, help="number of random schedules")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--any-code", action="store_true", help="also results of older code")
    parser.add_argument("--only-write", action="store_true", help="of what is recorded")
    parser.add_argument("--only", choices=SECTIONS, help="write this section, and nothing else")
    given = parser.parse_args()
    if given.only:
        text = _with_sections(PAGE.read_text(encoding="utf-8"), given.results.parent, given.only)
        PAGE.write_text(text, encoding="utf-8")
        return
    todo = units(0, ways=["orders", "faults", "standing"])
    of_any = given.any_code
    recorded = given.results.with_suffix(".measured.json")
    if not given.only_write:
        run = prove(todo, given.results, jobs=given.jobs, minutes=given.minutes, of_any=of_any)
        for found in run:
            sys.stdout.write(
                f"{found.unit}: {found.runs} schedules, {len(found.violations)} violations\n"
            )
        recorded.write_text(json.dumps(measure(given)))
    results = read(given.results, of_any=of_any)
    measured = merged(json.loads(recorded.read_text()), results)
    new = page(results, measured)
    old = PAGE.read_text(encoding="utf-8")
    for section in SECTIONS.values():
        new = with_section(new, section.title, section_of(old, section.title))
    PAGE.write_text(_with_sections(new, given.results.parent), encoding="utf-8")
    sys.stdout.write(f"{PAGE}: of Lakebed {lakebed.__version__}\n")


if __name__ == "__main__":
    _main()
