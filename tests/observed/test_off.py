"""Without telemetry nothing of it is imported or wrapped, and afterwards nothing of it is left."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import lakebed
from lakebed.store.base import Store
from lakebed.telemetry.observed import FUNCTIONS, VERBS
from lakebed.telemetry.watching import Call, SentRequest, unwatch, watch

ROOT = Path(__file__).parents[2]


class Silent:
    def begin(self, call: Call) -> None:
        pass

    def end(self, call: Call) -> None:
        pass

    def request(self, request: SentRequest, call: Call | None) -> None:
        pass


def bindings() -> dict[tuple[str, str], int]:
    """Return the identity of each function and method of Lakebed, by where it is bound."""
    found = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "lakebed":
            continue
        for attribute, value in list(vars(module).items()):
            if inspect.isfunction(value):
                found[name, attribute] = id(value)
            elif inspect.isclass(value) and value.__module__.startswith("lakebed"):
                for method, function in vars(value).items():
                    if inspect.isfunction(function):
                        found[f"{name}:{attribute}", method] = id(function)
    return found


def test_without_telemetry_none_of_it_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys, lakebed\n"
        f"lake = lakebed.open_repository({str(tmp_path)!r})\n"
        "lake.write('d', [{'n': 1}]); lake.open('d').arrow(); lake.open('d').publish('delta')\n"
        "print(*(name for name in sys.modules if name.startswith("
        "('lakebed.telemetry', 'opentelemetry', 'openlineage'))))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"LAKEBED_LINEAGE": "true"},  # for the command line alone
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip() == ""


def test_wrappers_are_gone_with_the_last_observer() -> None:
    first, second = Silent(), Silent()
    watch(first)  # loads what it wraps
    unwatch(first)
    before = bindings()

    watch(first)
    watch(second)
    wrapped = {place for place, value in bindings().items() if before.get(place) != value}
    unwatch(first)
    still = {place for place, value in bindings().items() if before.get(place) != value}
    unwatch(second)

    assert len(before) > 1000
    assert len(wrapped) > 80
    assert still == wrapped
    assert bindings() == before


class Ends(Silent):
    """Keeps the calls whose beginning and end it sees; the first may bring in another observer."""

    def __init__(self, successor: Ends | None = None) -> None:
        self.successor = successor
        self.begun: list[str] = []
        self.ended: list[str] = []

    def begin(self, call: Call) -> None:
        self.begun.append(call.name)
        if self.successor is not None:
            watch(self.successor)
            unwatch(self)

    def end(self, call: Call) -> None:
        self.ended.append(call.name)


def test_an_observer_sees_both_ends_of_a_call_or_none(tmp_path: Path) -> None:
    second = Ends()
    first = Ends(second)
    lake = lakebed.open_repository(tmp_path)
    watch(first)
    try:
        lake.write("sales", [{"n": 1}])  # begins under the first, ends under the second
        lake.open("sales").count()
    finally:
        unwatch(first)
        unwatch(second)

    assert first.begun == first.ended == ["write"]
    assert "count" in second.begun
    assert sorted(second.begun) == sorted(second.ended)


def test_each_verb_and_function_that_is_observed_exists() -> None:
    for verbs in VERBS:
        owner = getattr(importlib.import_module(verbs.module), verbs.owner)
        assert [name for name in verbs.names if name not in vars(owner)] == [], verbs.owner
    for one in FUNCTIONS:
        assert inspect.isfunction(getattr(importlib.import_module(one.module), one.name)), one


# Calls that show what is known, open or narrow something, or hand out what does the work later.
NO_VERBS = {
    "Repository": {"open", "exists", "list"},
    "View": {"plan", "select", "limit", "where", "snapshot", "with_options"},
    "Dataset": {"at", "batches", "files", "history", "sink", "transaction", "change_type"},
    "Readable": {"plan", "limit", "record_batches", "dataset", "files", "count"},
    "TreeGroup": {"follow_metadata"},
    "IndexGroup": {"list"},
    "DimensionGroup": set(),
    "ProtectionGroup": {"list"},
    "SourceGroup": {"list", "holds"},
    "StagedGroup": {"list", "open"},
    "Staged": set(),
    "Archive": {
        *("init", "push_many", "push_prepared", "list", "page", "latest", "record", "open"),
        *("open_record", "fetch", "spark", "ingest", "close", "whats"),
    },
    "_Reading": {"run", "finish"},  # parts of `Ingest.run` and `Dataset.load`
    "Ingest": {"from_toml", "dataset", "hold", "release", "batches_of", "sources", "follow"},
    "TableIngest": {"dataset", "run_of"},
    "Pipeline": {"from_toml", "last_run", "runs"},
}


@pytest.mark.parametrize("verbs", VERBS, ids=lambda verbs: f"{verbs.module}.{verbs.owner}")
def test_a_new_verb_is_observed_or_left_out_on_purpose(verbs) -> None:
    owner = getattr(importlib.import_module(verbs.module), verbs.owner)
    of_owner = [one for one in VERBS if one.owner == verbs.owner]
    observed = {name for one in of_owner for name in one.names}
    public = {
        name
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, classmethod))
    }

    assert public - observed - NO_VERBS[verbs.owner] == set()


def test_every_request_to_a_store_is_observed() -> None:
    observer = Silent()
    before = dict(vars(Store))
    watch(observer)
    try:
        wrapped = {name for name, value in vars(Store).items() if before.get(name) is not value}
    finally:
        unwatch(observer)
    costly = {
        name
        for name, method in vars(Store).items()
        if inspect.isfunction(method)
        and not name.startswith("_")
        and re.search(r"\b(GET|PUT|HEAD|LIST|request for each|rename)", method.__doc__ or "")
    }

    assert costly - {"list"} <= wrapped
    assert {"get", "list", "adopt", "delete"} <= wrapped


def test_the_entry_point_is_there() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (named,) = settings["project"]["entry-points"]["opentelemetry_instrumentor"].values()
    module, _, name = named.partition(":")

    assert getattr(importlib.import_module(module), name) is lakebed.telemetry.LakebedInstrumentor
