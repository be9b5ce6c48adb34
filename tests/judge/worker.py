"""A writer, and a reader, in the environment of the system that is judged.

From `tests/`: `python -m judge.worker write GIVEN` makes the steps of one writer; `read` prints all rows and versions;
`create` makes the table. GIVEN is a JSON object: the system, the table, the endpoint, the seed.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from judge.steps import DONE, REFUSED, UNKNOWN, Entry, Journal, next_step

_TOLD = 300  # characters of an error


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def write(table: Any, given: dict[str, Any]) -> None:
    """Make the steps that the journal lacks."""
    journal = Journal(Path(given["journal"]))
    entries = journal.read()
    _say({"ready": True})
    sys.stdin.readline()  # all writers begin at once
    while len(entries) < given["steps"]:
        step = next_step(given["seed"], given["writer"], entries, table.verbs)
        entry = Entry(step)
        journal.begin(step)
        _say({"begun": len(entries)})
        if step.verb in table.verbs:
            _take(table, entry)
        else:
            entry.outcome = DONE
        journal.end(entry)
        entries.append(entry)


def _take(table: Any, entry: Entry) -> None:
    is_open = False
    try:
        opened = table.open()
        is_open = True
        found = table.do(opened, entry.step)
    except BaseException as exc:  # noqa: BLE001 - each library has its own, panics among them
        entry.outcome = table.outcome_of(exc)
        if not is_open and entry.outcome == UNKNOWN:
            entry.outcome = REFUSED  # to open a table changes nothing
        entry.error = f"{type(exc).__name__}: {exc}"[:_TOLD]
    else:
        entry.outcome = DONE
        entry.version, entry.commit = found or (None, "")


def read(table: Any, given: dict[str, Any]) -> None:
    """Print all rows, and the versions; or why they cannot be read."""
    try:
        _say({"rows": table.rows(), "history": table.history(), "error": ""})
    except BaseException as exc:  # noqa: BLE001 - told to the judge
        traceback.print_exc()
        _say({"rows": [], "history": {}, "error": f"{type(exc).__name__}: {exc}"[:_TOLD]})


def _main() -> None:
    action, text = sys.argv[1:]
    given = json.loads(text)
    table = importlib.import_module(f"judge.adapters.{given['system']}").Table(given)
    if action == "create":
        table.create()
        _say({"version": table.release})
    else:
        {"write": write, "read": read}[action](table, given)


if __name__ == "__main__":
    _main()
