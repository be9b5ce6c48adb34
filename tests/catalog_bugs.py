"""Bugs that are put into the catalog of Spark, to see that random statements find them.

Each takes a rule of its reads and writes out. `TEXTS` has the place, the seed and the steps of a
`Model` that find it; from `tests/`, `python -m catalog_bugs` looks for these again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from catalog_changes import started

from lakebed.model.predicate import TRUE
from lakebed.spark.catalog import row_operations, scans
from lakebed.spark.catalog.scans import GroupScan, LakeScan, LakeScanBuilder
from lakebed.spark.catalog.streams import TableStream
from lakebed.spark.decided_rows import IDENTITY
from lakebed.work import matched_rows

Put = Callable[[pytest.MonkeyPatch], None]
ROWS = "other rows"


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, how it is put in, and where it is looked for.

    Attributes:
        name: What goes wrong.
        put: Function that puts it in.
        plays: Places with steps that are to find it, with any seed.
        sign: Pattern of what is found: other rows, or the error of a statement that has none.
    """

    name: str
    put: Put
    plays: tuple[str, ...]
    sign: str


BUGS: list[Bug] = []


def bug(name: str, *plays: str, sign: str = ROWS) -> Callable[[Put], Put]:
    def note(put: Put) -> Put:
        BUGS.append(Bug(name, put, plays, sign))
        return put

    return note


# --- Rows that are written


@bug("a rewrite forgets runs", "part: update", "part: update rerun")
def _(patch: pytest.MonkeyPatch) -> None:
    divide = matched_rows.works_on
    patch.setattr(
        matched_rows, "works_on", lambda *given: [replace(one, run=None) for one in divide(*given)]
    )


@bug("rows that an update does not hand over are deleted", "part: update")
def _(patch: pytest.MonkeyPatch) -> None:
    statement = row_operations.RowStatement
    patch.setattr(
        row_operations, "RowStatement", lambda **given: statement(**{**given, "may_delete": True})
    )


@bug("a statement notes files whose rows it has not read", "day: merge", "part: merge")
def _(patch: pytest.MonkeyPatch) -> None:
    def to_batch(self: GroupScan) -> Any:
        batch = LakeScan.toBatch(self)
        self._group.note(str(id(self)), self._planned.files)
        return batch

    patch.setattr(GroupScan, "toBatch", to_batch)


# --- Rows that are read


@bug("the reader in Python leaves out rows of files that are rewritten", "part: evolve delete")
def _(patch: pytest.MonkeyPatch) -> None:
    build, conditions = LakeScanBuilder.build, [TRUE]

    def build_noting(self: LakeScanBuilder) -> Any:
        conditions[:] = [self._predicate]
        return build(self)

    def rows_of_condition(jvm: Any, opened: Any, names: Any, identity: Any) -> Any:
        return scans._local_frame(jvm, opened, opened.choose(*conditions), [*names, *identity])

    patch.setattr(LakeScanBuilder, "build", build_noting)
    patch.setattr(scans, "_scan_in_python", rows_of_condition)
    patch.setattr(TableStream, "of_scan", TableStream.of_rows)


@bug("a read in this process leaves out rows of files that are rewritten", "memory: update")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scans, "_with_all_rows", lambda plan: plan)


@bug(
    "columns have the order of the table, not that of the reader",
    "part: update",
    sign=".*NullPointerException",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def read_schema(self: LakeScan) -> Any:
        order = {name: number for number, name in enumerate(self._opened.columns)}
        names = sorted(self._native.names, key=lambda name: order.get(name, len(order)))
        return self._jvm.to_schema(scans._struct_with_identity(self._chosen, names))

    patch.setattr(LakeScan, "readSchema", read_schema)


@bug(
    "a filter at run time changes the reader",
    "part: update",
    "day: select",
    sign=".*(ClassCastException|AssertionError)",
)
def _(patch: pytest.MonkeyPatch) -> None:
    scan = LakeScan._scan

    def scan_again(self: LakeScan) -> Any:
        if self._first is None:
            return scan(self)
        names = [name for name in self._native.names if name not in IDENTITY]
        identity = [name for name in self._native.names if name in IDENTITY]
        return scans._scan_in_python(self._jvm, self._opened, names, identity)

    patch.setattr(LakeScan, "_scan", scan_again)


@bug(
    "a filter at run time leaves no file to the reader",
    "part: delete",
    sign=".*IndexError: tuple index out of range",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LakeScan, "_without_files", LakeScan._scan)


@bug("a condition that is weaker than a statement's deletes rows", "part: delete")
def _(patch: pytest.MonkeyPatch) -> None:
    find = scans._find_exact
    patch.setattr(scans, "_find_exact", lambda *given: find(*given) or TRUE)


@bug("filters name columns by names that files do not have", "part: evolve select")
def _(patch: pytest.MonkeyPatch) -> None:
    find = scans.find_native_columns

    def find_all(*given: Any) -> Any:
        native = find(*given)
        return native and replace(native, unpushed=frozenset())

    patch.setattr(scans, "find_native_columns", find_all)


# --- Looking for them


def play(spark: Any, folder: Path, text: str, one: Bug | None = None) -> tuple[str, int]:
    """Play a place, a seed and steps, such as "part 3: update rerun", with a bug put in.

    Returns:
        What is found: other rows, or an error; empty for nothing. And the number of steps to it.
    """
    place, seed, *steps = text.replace(":", "").split()
    with started(spark, folder, place, int(seed)) as model, pytest.MonkeyPatch.context() as patch:
        if one is not None:
            one.put(patch)
        for number, step in enumerate(steps, 1):
            try:
                model.play([step])
            except AssertionError:
                return ROWS, number
            except Exception as exc:  # noqa: BLE001 - what the bug has made of a right statement
                return f"{type(exc).__name__}: {exc}", number
    return "", len(steps)


def shows(one: Bug, found: str) -> bool:
    """Return whether what was found is what a bug does, and not a fault of its patch."""
    return re.match(one.sign, found, re.DOTALL) is not None


TEXTS: Mapping[str, str] = {
    "a rewrite forgets runs": "part 0: update",
    "rows that an update does not hand over are deleted": "part 0: update",
    "a statement notes files whose rows it has not read": "day 7: merge",
    "the reader in Python leaves out rows of files that are rewritten": "part 26: evolve delete",
    "a read in this process leaves out rows of files that are rewritten": "memory 1: update",
    "columns have the order of the table, not that of the reader": "part 0: update",
    "a filter at run time changes the reader": "part 0: update",
    "a filter at run time leaves no file to the reader": "part 48: delete",
    "a condition that is weaker than a statement's deletes rows": "part 32: delete",
    "filters name columns by names that files do not have": "part 42: evolve select",
}


def _main() -> None:
    from lakebed.spark.session import local_session

    parser = argparse.ArgumentParser(prog="catalog_bugs", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; default: all bugs")
    parser.add_argument("--first", type=int, default=0, help="seed to begin with")
    parser.add_argument("--most", type=int, default=8, help="seeds to try of each play")
    given = parser.parse_args()
    settings = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    spark = local_session("2", settings=settings)
    for one in BUGS:
        if given.names and not any(part in one.name for part in given.names):
            continue
        tried = (
            (place, seed, steps)
            for seed in range(given.first, given.first + given.most)
            for place, steps in (play.split(": ") for play in one.plays)
        )
        for count, (place, seed, steps) in enumerate(tried, 1):
            with tempfile.TemporaryDirectory() as folder:
                found, number = play(spark, Path(folder), f"{place} {seed}: {steps}", one)
            if found:
                text = f"{place} {seed}: {' '.join(steps.split()[:number])}"
                told = f'"{text}",  # {count} {found[:300]!r}'
                break
        else:
            told = f"None,  # {count}"
        sys.stdout.write(f'    "{one.name}": {told}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
