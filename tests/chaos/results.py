"""The results of `make chaos`, and the part of docs/reliability.md that is written of them."""

from __future__ import annotations

import collections
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schedules.sections import paragraph, table

TITLE = "## Verbs by Spark, with faults\n"
_METHOD = """\

A standalone cluster of Spark, with a master and two workers as processes of one machine, runs verbs on a
directory. A fault is planted at one write of a task, or at the commit of the driver, so that it happens at
that moment and not at a random one. The rows are counted by the test. After each fault:

- What was acknowledged is there exactly once, and what was refused is not there.
- What is unknown, since the driver was killed, is there as a whole or not at all.
- Versions grow by one for each commit, and a verb has made no more commits than it makes without faults.
- `check --deep` finds nothing.
- A cleanup leaves the live data files and no others, and the rows as they were.

Then the verb runs again, with the same run, checkpoint or raw files, and everything is judged once more: no
row is there twice, and rows that were erased are in no version.
"""
_REST = """\

An erasure runs in the driver alone, so no fault of executors concerns it. Tasks of an append by Spark's own
writer run no code of Lakebed: there the fault is in the function that makes the rows. `tests/cluster` also
kills executors at random moments. To repeat the run: `make chaos`, then `make reliability`, or
`cd tests && python -m schedules.reliability --only chaos`.

"""


def text_of(path: Path) -> str:
    """Return the section of the page."""
    return section([json.loads(line) for line in path.read_text().splitlines()])


def section(told: Sequence[dict[str, Any]]) -> str:
    """Return the section of what `test_chaos.py` has recorded; empty if that is nothing."""
    found = list({(one["fault"], one["verb"]): one for one in told}.values())
    if not found:
        return ""
    of_pairs = [one for one in found if ", " in one["verb"]]
    of_verbs = [one for one in found if one not in of_pairs]
    faults = list(dict.fromkeys(one["fault"] for one in of_verbs))
    verbs = list(dict.fromkeys(one["verb"] for one in of_verbs))
    met = collections.Counter[tuple[str, str]]()
    for one in of_verbs:
        met[one["verb"], one["fault"]] += one["met"]
    broken = sum(bool(one["violations"]) for one in found)
    listed = [
        textwrap.fill(f"{number}. {fault}", 118) for number, fault in enumerate(faults, start=1)
    ]
    pairs = "; ".join(" and ".join(map(_named, one["verb"].split(", "))) for one in of_pairs)
    last = found[-1]
    return "".join(
        [
            TITLE,
            _METHOD,
            "\n",
            paragraph(
                f"Spark {last['spark']}, Python {last['python']}, {last['day']}: {len(found):,} runs, of which "
                f"{broken:,} broke a rule. The table counts the faults that each verb met:"
            ),
            "\n".join(listed),
            "\n\n",
            table(
                ("verb", *range(1, len(faults) + 1)),
                [(_named(verb), *(met[verb, fault] or "—" for fault in faults)) for verb in verbs],
            ),
            "\n",
            paragraph(
                f"In {len(of_pairs):,} more runs, two drivers reach the commit to one dataset at the same moment: "
                f"{pairs}. The two appends are of different runs, and the two reruns of the same run."
            )
            if of_pairs
            else "",
            _REST.removeprefix("\n"),
        ]
    )


_NAMES = {
    "append": "append",
    "append_scattered": "append, rows shuffled",
    "append_natively": "append by Spark's writer",
    "save": "data source, batch",
    "for_each_batch": "stream by `foreachBatch`",
    "stream": "data source, stream",
    "epoch": "the same epoch",
    "ingest": "ingest of raw files",
    "compact": "compaction",
    "erase": "erasure",
}


def _named(verb: str) -> str:
    return _NAMES.get(verb, verb)
