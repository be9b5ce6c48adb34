"""What a writer does, one step after the other, and the journal that it keeps of it.

This module runs in the environment of each system that is judged, so it imports nothing of them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SHARED = ("a", "b")  # partitions that all writers write to
_ROWS = 3
# In a hundred; a step that needs rows to change is an append where there are none.
_VERBS = (
    ("append", 44),
    ("own", 16),
    ("delete", 12),
    ("merge", 12),
    ("overwrite", 8),
    ("compact", 5),
    ("clean", 3),
)
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One change of a table.

    Attributes:
        name: Unique: the writer and the number of the step. It is in each row that the step makes.
        verb: `append`; `delete`, `merge` and `overwrite`, which replace all rows of an earlier
            step; `compact` and `clean`, which change no row.
        partition: Of the rows.
        keys: Of the rows that it makes. Those of a merge are the keys of its target, and a new one.
        target: Name of the step whose rows it replaces.
    """

    name: str
    verb: str
    partition: str = ""
    keys: tuple[str, ...] = ()
    target: str = ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that it makes."""
        return [
            {"k": key, "op": self.name, "p": self.partition, "n": number}
            for number, key in enumerate(self.keys)
        ]


@dataclass(slots=True)
class Entry:
    """A step in the journal, with what its writer knows of its outcome."""

    step: Step
    outcome: str = UNKNOWN  # a killed writer writes no other
    version: int | None = None
    error: str = ""
    commit: str = ""


class Journal:
    """A file of what a writer has begun, and of what came of it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, step: Step) -> None:
        """Note a step before it is sent."""
        self._add({"step": asdict(step)})

    def end(self, entry: Entry) -> None:
        """Note the outcome of a step before the next one."""
        told = {name: value for name, value in asdict(entry).items() if name != "step"}
        self._add({"ended": entry.step.name, **told})

    def _add(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def read(self) -> list[Entry]:
        """Return the steps that were begun, in their order."""
        found: dict[str, Entry] = {}
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            told = json.loads(line)
            if "step" in told:
                step = Step(**{**told["step"], "keys": tuple(told["step"]["keys"])})
                found[step.name] = Entry(step)
            else:
                entry = found[told.pop("ended")]
                for name, value in told.items():
                    setattr(entry, name, value)
        return list(found.values())


def next_step(seed: int, writer: str, entries: Sequence[Entry], verbs: frozenset[str]) -> Step:
    """Return the step of a writer after those of its journal."""
    number = len(entries)
    dice = random.Random(f"{seed} {writer} {number}")
    names, weights = zip(*_VERBS, strict=True)
    verb = dice.choices(names, weights)[0]
    name = f"{writer}-{number}"
    keys = tuple(f"{name}-{key}" for key in range(_ROWS))
    if verb in ("compact", "clean"):
        return Step(name, verb)
    here = list(standing(entries))
    if verb == "overwrite":
        here = [one for one in here if one.partition not in SHARED]
    # A system without the verb changes nothing else, so that its other steps are those of all.
    if verb in ("delete", "merge", "overwrite") and verb in verbs and here:
        target = dice.choice(here)
        if verb == "delete":
            keys = ()
        elif verb == "merge":
            keys = (*target.keys, keys[0])
        return Step(name, verb, target.partition, keys, target.name)
    partition = name if verb == "own" else dice.choice(SHARED)
    return Step(name, "append", partition, keys)


def standing(entries: Iterable[Entry]) -> Iterator[Step]:
    """Yield the steps whose rows were acknowledged, and which none has tried to replace."""
    entries = list(entries)
    targets = {entry.step.target for entry in entries}
    for entry in entries:
        if entry.outcome == DONE and entry.step.keys and entry.step.name not in targets:
            yield entry.step
