"""The page of costs says what the docstrings say, and its figures are those of a counting store.

`python tests/docs/test_costs.py` writes both into the page anew. A call that is new there gets its
line by hand.
"""

from __future__ import annotations

import inspect
import itertools
import operator
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hops import TickingStore, counted

import lakebed
import lakebed.spark
from lakebed.batches.dataset_transaction import DatasetTransaction
from lakebed.batches.diff import Diff
from lakebed.batches.staged import Staged
from lakebed.groups.dimension_group import DimensionGroup
from lakebed.groups.index_group import IndexGroup
from lakebed.groups.inspect_group import InspectGroup
from lakebed.groups.namespace_group import NamespaceGroup
from lakebed.groups.protection_group import ProtectionGroup
from lakebed.groups.source_group import SourceGroup
from lakebed.groups.staged_group import StagedGroup
from lakebed.kite_words import KiteGroup
from lakebed.pipeline.declared_dataset import DeclaredDataset
from lakebed.repository import Repository, TreeGroup
from lakebed.selection import Readable, ViewSelection
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore
from lakebed.testing.stores import RequestCounts

PAGE = Path(__file__).parents[2] / "docs" / "costs.md"
CLASSES = (
    Repository,
    lakebed.Dataset,
    lakebed.View,
    Readable,
    ViewSelection,
    DatasetTransaction,
    Staged,
    Diff,
    lakebed.Ingest,
    lakebed.TableIngest,
    lakebed.Pipeline,
    lakebed.Archive,
)
GROUPS = {
    "Repository.trees": TreeGroup,
    "Repository.namespaces": NamespaceGroup,
    "Dataset.indices": IndexGroup,
    "Dataset.protections": ProtectionGroup,
    "Dataset.staged": StagedGroup,
    "Dataset.sources": SourceGroup,
    "Dataset.dimensions": DimensionGroup,
    "Dataset.inspect": InspectGroup,
    "View.kite": KiteGroup,
}
SIZES = (10, 100)  # data files of the two datasets that are measured

_MEASURED = re.compile(r"^\| `([^`]+)` \| ([\d →]+) \| ([\d →]+) \| ([\d →]+) \|$", re.MULTILINE)
# Calls, and how many requests wait for each other: at first, once more, and after the data.
_HOPS = re.compile(r"^\| `([^`]+)` \| (\d+), then (\d+) \| (\d+|none) \|$", re.MULTILINE)
_TOLD = re.compile(r"^\| `([A-Za-z_.]+)` \| ([^|]+) \|$", re.MULTILINE)
_FREE = re.compile(r"^No request: (.+?)\.\n\n", re.MULTILINE | re.DOTALL)
_COST = re.compile(r"^Cost:\n((?:    .*\n?|\n)+)", re.MULTILINE)

_ROWS_A_DAY = 20
_SCHEMA = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "day", "type": "long"},
        {"name": "id", "type": "string"},
        {"name": "delay", "type": "long"},
    ],
}
_names = itertools.count()


def text() -> str:
    return PAGE.read_text(encoding="utf-8")


# What docstrings say


def calls() -> Iterator[tuple[str, str | None]]:
    """Yield each public call with what its docstring says of its cost, if it does."""
    for owner, cls in ({cls.__name__: cls for cls in CLASSES} | GROUPS).items():
        inherited = vars(DeclaredDataset) if issubclass(cls, DeclaredDataset) else {}
        for name, member in {**inherited, **vars(cls)}.items():
            call = member.fget if isinstance(member, property) else member
            call = getattr(call, "__func__", call)
            if not name.startswith("_") and inspect.isroutine(call):
                yield f"{owner}.{name}", _cost_of(call)
    for package in (lakebed, lakebed.spark):
        for name in package.__all__:
            if inspect.isfunction(function := getattr(package, name)):
                yield f"{package.__name__}.{name}", _cost_of(function)


def _cost_of(call: object) -> str | None:
    said = _COST.search(inspect.getdoc(call) or "")
    return " ".join(said[1].split()) if said else None


def _free() -> set[str]:
    return {name for told in _FREE.findall(text()) for name in re.findall(r"`([\w.]+)`", told)}


def test_every_public_call_is_on_the_page():
    told = {name for name, _ in _TOLD.findall(text())} | _free()

    names = {name for name, _ in calls()}

    assert len(names) > 120
    assert told == names


def test_the_page_says_what_docstrings_say():
    told = dict(_TOLD.findall(text()))

    said = {name: cost for name, cost in calls() if cost is not None}

    assert len(said) > 60
    assert {name: told.get(name) for name in said} == said


# What a store counts


def make_store(files: int) -> CountingStore:
    """Return a store with a dataset of so many days, a file each, from two named runs."""
    store = CountingStore(MemoryStore(f"costs-{next(_names)}"))
    descriptor = lakebed.DatasetDescriptor(schema=_SCHEMA, partition_by="day", index=["id"])
    flights = Repository(store).create("flights", descriptor)
    flights.append(rows(range(files // 2)), run="first")
    flights.append(rows(range(files // 2, files)), run="second")
    return store


def rows(days: range) -> list[dict[str, object]]:
    return [
        {"day": day, "id": f"N{day * 1009 + number * 31}", "delay": 10 * day + number}
        for day in days
        for number in range(_ROWS_A_DAY)
    ]


def measure(call: str, files: int) -> RequestCounts:
    """Do what the page shows, as a process that has read nothing yet, and count."""
    store = make_store(files)
    PROCESS_CACHE.clear()
    repository = Repository(store)
    names = {"repository": repository, "row": rows(range(3, 4))[0], "days": rows(range(5))}
    if not call.startswith("repository"):
        names["flights"] = repository.open("flights")
    store.reset()
    eval(call, {}, names)
    return store.reset()


def requests_of(counts: list[RequestCounts]) -> list[str]:
    """Return how often a call reads and writes, as the page has it."""
    reads = [one.get + one.head + one.list for one in counts]
    return [_cell(reads), _cell([one.put + one.delete for one in counts])]


def kib_of(counts: list[RequestCounts]) -> list[float]:
    return [(one.bytes_read + one.bytes_written) / 1024 for one in counts]


def _cell(figures: list[int]) -> str:
    return f"{figures[0]}" if len(set(figures)) == 1 else " → ".join(map(str, figures))


@pytest.mark.parametrize("row", _MEASURED.findall(text()), ids=lambda row: row[0])
def test_a_call_takes_what_the_page_says(row: tuple[str, str, str, str]):
    call, reads, writes, kib = row

    counts = [measure(call, files) for files in SIZES]

    assert [reads, writes] == requests_of(counts)
    # Ids, times and compression make some bytes of difference.
    told = [int(figure) for figure in kib.split(" → ")] * 2
    assert told[:2] == pytest.approx(kib_of(counts), abs=0.9, rel=0.05)


def hops_of(call: str) -> tuple[str, str, str]:
    """Return the hops of a call as the first of its process, as the second, and after its data."""
    found: list[str] = []
    for is_first in (True, False):
        store = TickingStore(make_store(SIZES[0]).inner)
        PROCESS_CACHE.clear()
        flights = Repository(store).open("flights")
        names = {"flights": flights, "row": rows(range(3, 4))[0], "days": rows(range(5))}
        names["repository"] = Repository(store)
        with counted():
            if not is_first:
                eval(call, {}, names)
            store.reset()
            eval(call, {}, names)
        found.append(str(store.last))
    puts = [tick for tick, name, key in store.requests if name == "put" and _is_data(key)]
    return (*found, str(store.last - max(puts)) if puts else "none")


def _is_data(key: str) -> bool:
    return key.startswith(("flights/data/", "flights/postings/"))


@pytest.mark.parametrize("row", _HOPS.findall(text()), ids=lambda row: row[0])
def test_requests_wait_for_each_other_as_the_page_says(row: tuple[str, str, str, str]):
    call, *told = row

    assert tuple(told) == hops_of(call)


def test_the_hops_of_writing_calls_are_on_the_page():
    calls = [row[0] for row in _HOPS.findall(text())]

    assert sum("append" in call for call in calls) >= 2
    assert len(calls) >= 8


def test_many_calls_are_measured_and_some_grow():
    measured = _MEASURED.findall(text())

    assert len(measured) > 25
    assert any("→" in requests for _, requests, _, _ in measured)


def test_calls_that_are_told_to_be_free_ask_the_store_nothing():
    store = make_store(4)
    repository = Repository(store)
    flights = repository.open("flights")
    arguments = {
        "where": ("delay > 3",),
        "with_": ("delay", 3),
        "limit": (3,),
        "is_of": (flights,),
        "includes": (rows(range(1))[0],),
    } | dict.fromkeys(("from_", "from_after", "to", "to_before"), ("delay", 3))
    owners = {"Repository": repository, "Dataset": flights, "View": flights.where("day = 1")}
    store.reset()

    asked = []
    for name in sorted(_free()):
        owner, _, verb = name.partition(".")
        if owner in owners:
            member = operator.attrgetter(verb)(owners[owner])
            if inspect.isroutine(member):
                member(*arguments.get(verb.rpartition(".")[2], ()))
            asked += [name] * bool(store.reset().total)

    assert {"Dataset.uri", "View.where"} <= _free()
    assert asked == []


def written_anew() -> str:
    """Return the page with what is said and counted now."""
    said = {name: cost for name, cost in calls() if cost is not None}

    def told(row: re.Match[str]) -> str:
        return f"| `{row[1]}` | {said.get(row[1], row[2])} |"

    def measured(row: re.Match[str]) -> str:
        counts = [measure(row[1], files) for files in SIZES]
        cells = [*requests_of(counts), _cell([round(kib) for kib in kib_of(counts)])]
        return f"| `{row[1]}` | {' | '.join(cells)} |"

    def waiting(row: re.Match[str]) -> str:
        first, again, after = hops_of(row[1])
        return f"| `{row[1]}` | {first}, then {again} | {after} |"

    return _HOPS.sub(waiting, _MEASURED.sub(measured, _TOLD.sub(told, text())))


if __name__ == "__main__":
    PAGE.write_text(written_anew(), encoding="utf-8")
