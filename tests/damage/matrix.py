"""Each kind of object that Lakebed writes, damaged in each way, and what each call makes of it."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import inside
from every_object import Lake, Shared, lake_of, objects_of, rows, small_trees, store_of

import lakebed
from lakebed import Dataset
from lakebed.errors import LakebedError
from lakebed.state import runs
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.work.check import Severity

MOST_FLIPS = 3  # of one object


@dataclass(frozen=True)
class Kind:
    """A kind of object.

    Attributes:
        name: Its name in the table.
        pattern: Keys of its objects.
        lakes: The lakes that have it; the first one is tried by default.
        changes: True if objects of the kind are replaced.
        holds: Bytes in the objects of the kind.
    """

    name: str
    pattern: str
    lakes: tuple[str, ...] = ("document", "tree")
    changes: bool = False
    holds: bytes = b""


KINDS = (
    Kind("head, JSON", r"d\.by-dataset-metadata\.json", ("document",), changes=True),
    Kind("head, msgpack", r"d\.by-dataset-metadata\.msgpack\.zstd", ("packed",), changes=True),
    Kind("head, tree", r"d\.by-dataset-metadata\.msgpack\.zstd", ("tree",), changes=True),
    Kind("leaf of a tree", r"d/leaves/.*", ("tree",)),
    Kind("copy of the root", r"d/roots/.*", ("tree",)),
    Kind("history, document", r"d/history/.*\.json\.zst", ("document",)),
    Kind("history, tree", r"d/history/.*\.msgpack\.zst", ("tree",)),
    Kind("file table", r"d/files/.*", ("document",)),
    Kind("runs", r"d/runs/.*"),
    Kind("raw files (sources)", r"d/sources/.*"),
    Kind("index segment (postings)", r"d/postings/.*"),
    Kind("index file for other tools", r"d/indices/.*", ("document",)),
    Kind("schema file for other tools", r"d/data/_common_metadata", changes=True),
    Kind("data file", r"d/data/p=.*\.parquet"),
    Kind("manifest of a committed batch", r"d/batches/.*", holds=b'"completed_at"'),
    Kind("manifest of a staged batch", r"d/batches/.*", holds=b'"staging"'),
    Kind("log of a cleanup", r"d/cleanups/.*"),
    Kind("certificate of an erasure", r"d/erasures/.*"),
    Kind("note of a published table", r"d/published/.*", changes=True),
    Kind("ready signal", r"d/signals/.*", changes=True),
    Kind("Delta log", r"d/data/_delta_log/.*\.json"),
    Kind("Iceberg metadata", r"d/iceberg/metadata/.*\.json"),
    Kind("Iceberg manifest or list", r"d/iceberg/metadata/.*\.avro"),
    Kind("Kartothek head", r"d-kartothek\.by-dataset.*", ("document",), changes=True),
    Kind("head of the quarantine", r"d_quarantine\.by-dataset.*", ("document",), changes=True),
)
FEW = ("flipped bit", "swapped", "lost", "older copy")
DAMAGES = ("flipped bit", "cut", "swapped", "lost", "emptied", "older copy")


@dataclass(frozen=True)
class Damage:
    """One damaged object.

    Attributes:
        kind: Kind of the object.
        how: One of `DAMAGES`.
        lake: Lake that has it.
        key: Its key.
        data: Its bytes by now; None if it is lost.
    """

    kind: Kind
    how: str
    lake: str
    key: str
    data: bytes | None

    def store(self) -> MemoryStore:
        """Return the lake with the damage."""
        now = dict(lake_of(self.lake).now)
        if self.data is None:
            del now[self.key]
        else:
            now[self.key] = self.data
        return store_of(now)


def damages(*, thorough: bool = False, ways: Sequence[str] = FEW) -> Iterator[Damage]:
    """Yield damages.

    Args:
        thorough: All objects of each kind in each lake, in each way; else one of each kind.
        ways: How objects are damaged.
    """
    for kind in KINDS:
        for name in kind.lakes if thorough else kind.lakes[:1]:
            lake = lake_of(name)
            keys = _named_first(lake, [*_keys_of(kind, lake)])
            assert keys, kind.name
            for how in DAMAGES if thorough else ways:
                for key in keys if thorough else keys[:1]:
                    for data in _damaged(kind, lake, how, key, keys, thorough=thorough):
                        yield Damage(kind, how, name, key, data)


def _keys_of(kind: Kind, lake: Lake) -> Iterator[str]:
    for key, data in lake.now.items():
        is_staged = b'"staging"' in data and b'"staging"' not in kind.holds
        if re.fullmatch(kind.pattern, key) and kind.holds in data and not is_staged:
            yield key


def _named_first(lake: Lake, keys: Sequence[str]) -> list[str]:
    """Return keys, those first that the newest version needs, and newer ones before older ones."""
    live = {file.key for file in _opened(lake.store()).files()}
    head = next(data for key, data in lake.now.items() if key.startswith("d.by-dataset"))
    newest = sorted(keys, reverse=True)
    return sorted(newest, key=lambda key: key not in live and key.encode() not in head)


def _damaged(
    kind: Kind, lake: Lake, how: str, key: str, keys: Sequence[str], *, thorough: bool
) -> Iterator[bytes | None]:
    data = lake.now[key]
    match how:
        case "flipped bit":
            count = MOST_FLIPS if thorough else 1
            for number in range(count):
                place = len(data) * (2 * number + 1) // (2 * count)
                yield data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        case "cut":
            yield data[: len(data) * 2 // 3]
        case "swapped":
            others = [lake.now[one] for one in keys if lake.now[one] != data]
            # As if a program had mixed up two objects: the more they are alike, the worse.
            others.sort(key=lambda one: abs(len(one) - len(data)))
            yield from others[:1]
        case "lost":
            yield None
        case "emptied":
            yield b""
        case "older copy" if kind.changes and lake.before.get(key, data) != data:
            yield lake.before[key]


def _opened(store: MemoryStore) -> Dataset:
    return lakebed.Repository(Shared(store)).open("d")


def _sorted(dataset: Any) -> str:
    return repr(sorted(repr(sorted(row.items())) for row in dataset.arrow().to_pylist()))


def _published(dataset: Dataset, kind: Literal["delta", "iceberg"]) -> tuple[object, ...]:
    """Return what a publication would change, after a look at the table."""
    found = dataset.publish(kind, check=True)
    return found.version, found.added_count, found.removed_count


def _quarantine(dataset: Dataset) -> Dataset:
    return lakebed.Repository(inside.store_of(dataset)).open("d_quarantine")


def _files_of_run(dataset: Dataset, run: str) -> list[str]:
    """Return the files that a rerun replaces."""
    state = inside.state_of(dataset)
    return sorted(runs.read(inside.store_of(dataset), state.lists).live_files_of(run, state.live))


# Calls by the stage at which they find out. Each returns a text that must be that of the sound lake.
Probe = Callable[[Dataset], object]
PROBES: Mapping[str, Mapping[str, Probe]] = {
    "open": {"open": lambda dataset: dataset.version},
    "plan": {
        "files": lambda dataset: sorted(file.key for file in dataset.files()),
        "plan": lambda dataset: dataset.where("n > 0 AND p = 'c'").plan() and "",
    },
    "read": {
        "all rows": _sorted,
        "by the index": lambda dataset: _sorted(dataset.where("n = 22")),
        "by a range": lambda dataset: _sorted(dataset.where("n > 100 AND x < 1000")),
        "count": lambda dataset: dataset.count(),
    },
    "other ranges": {"another partition": lambda dataset: _sorted(dataset.where("p = 'd'"))},
    "older": {
        "older version": lambda dataset: _sorted(dataset.at(version=2)),
        "version before": lambda dataset: _sorted(dataset.at(version=dataset.version - 1)),
        "history": lambda dataset: [
            (one.version, one.operation, one.run) for one in dataset.history()
        ],
    },
    "notes": {
        "batches": lambda dataset: [(one.batch_id, one.run) for one in dataset.batches()],
        "files of a run": lambda dataset: _files_of_run(dataset, "second"),
        "raw files": lambda dataset: dataset.sources.list(),
        "staged": lambda dataset: [one.batch_id for one in dataset.staged.list()],
        "protections": lambda dataset: dataset.protections.list(),
        "signal": lambda dataset: dataset.where("p = 'a'").kite.ready_at(),
        "published": lambda dataset: [
            (one.kind, one.version) for one in dataset.inspect.publications()
        ],
        "quarantine": lambda dataset: _quarantine(dataset).count(),
    },
    "tables": {
        "Delta": lambda dataset: _published(dataset, "delta"),
        "Iceberg": lambda dataset: _published(dataset, "iceberg"),
    },
}


@dataclass
class Outcome:
    """What became of one damage.

    Attributes:
        damage: The damage.
        errors: The class of the error by stage and probe.
        others: Probes that gave another answer than that of the sound lake, without an error.
        check: What a check has found: the highest severity, the class of an error, or nothing.
        deep: The same of a deep check.
        is_written_to: Whether the lake was repaired, cleaned up and written to.
        is_repaired: True if all probes give the answers of the sound lake after a repair.
        deleted: Objects that a cleanup deletes because of the damage.
        written: What is wrong after an append.
    """

    damage: Damage
    errors: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    check: str = ""
    deep: str = ""
    is_written_to: bool = False
    is_repaired: bool = False
    deleted: tuple[str, ...] = ()
    written: str = ""

    @property
    def first_error(self) -> str:
        """The stage that an error has named first, with the class of the error."""
        for stage in PROBES:
            for name, error in self.errors.items():
                if name.startswith(f"{stage}:"):
                    return f"{stage}: {error}"
        return ""


@cache
def truth(lake: str) -> Mapping[str, str]:
    """Return the answers of the sound lake by probe."""
    found, errors = _answers(lake_of(lake).store())
    assert not errors, errors
    return found


def _answers(store: MemoryStore) -> tuple[dict[str, str], dict[str, str]]:
    """Return the answers of probes, and the errors of the others."""
    PROCESS_CACHE.clear()
    found: dict[str, str] = {}
    errors: dict[str, str] = {}
    for stage, probes in PROBES.items():
        for name, probe in probes.items():
            try:
                found[name] = str(probe(_opened(store)))
            except LakebedError as exc:
                errors[f"{stage}: {name}"] = type(exc).__name__
    return found, errors


def tried(damage: Damage, *, is_written_to: bool = True) -> Outcome:
    """Ask a damaged lake, and check it; repair another copy of it, clean it up, and write to it."""
    outcome = Outcome(damage)
    found, outcome.errors = _answers(damage.store())
    sound = truth(damage.lake)
    outcome.others = {name: text for name, text in found.items() if text != sound[name]}
    outcome.check = _severity(damage, deep=False)
    outcome.deep = _severity(damage, deep=True)
    outcome.is_written_to = is_written_to
    if is_written_to:
        outcome.is_repaired = _is_repaired(damage)
        outcome.deleted = tuple(sorted(_deleted_with(damage)))
        outcome.written = _written(damage)
    return outcome


def _severity(damage: Damage, *, deep: bool) -> str:
    """Return the highest severity of a finding that the sound lake has not."""
    usual = _findings(damage.lake, deep)
    try:
        report = _opened(damage.store()).check(deep=deep)
    except LakebedError as exc:
        return type(exc).__name__
    found = {one.severity for one in report.findings if (one.key, one.what) not in usual}
    return next((str(one) for one in Severity if one in found), "")


@cache
def _findings(lake: str, deep: bool) -> frozenset[tuple[str, str]]:
    report = _opened(lake_of(lake).store()).check(deep=deep)
    return frozenset((one.key, one.what) for one in report.findings)


# A repair is a commit of its own, and tables of other formats are behind it.
_OF_THE_NEWEST = {"open", "history", "version before", "Delta", "Iceberg"}


def _is_repaired(damage: Damage) -> bool:
    store = damage.store()
    before = objects_of(store)
    with contextlib.suppress(LakebedError), small_trees():
        _opened(store).check(repair=True)
    gone = before.keys() - objects_of(store).keys()
    assert not any("/data/p=" in key for key in gone), gone
    found, errors = _answers(store)
    sound = truth(damage.lake)
    return not errors and all(found[one] == sound[one] for one in found.keys() - _OF_THE_NEWEST)


def _deleted_with(damage: Damage) -> set[str]:
    with_damage = _deleted(damage.store())
    return with_damage - _usually_deleted(damage.lake) - {damage.key}


@cache
def _usually_deleted(lake: str) -> frozenset[str]:
    return frozenset(_deleted(lake_of(lake).store()))


def _deleted(store: MemoryStore) -> set[str]:
    before = set(objects_of(store))
    PROCESS_CACHE.clear()
    with contextlib.suppress(LakebedError), small_trees():
        _opened(store).cleanup("0s", dry_run=False, clock_skew=dt.timedelta(), published="noted")
    return before - set(objects_of(store))


def _written(damage: Damage) -> str:
    """Append rows: they must be there beside those of before, or an error must name the damage.

    Returns:
        What is wrong; an empty text if nothing is.
    """
    store = damage.store()
    if damage.kind.name.startswith("head") and damage.how == "older copy":
        return ""  # the rows are those of the older version
    PROCESS_CACHE.clear()
    changed = [(row["p"], row["n"]) for row in rows(900, 902)]
    with small_trees():
        try:
            _opened(store).append(rows(900, 902))
            PROCESS_CACHE.clear()
            found = _live_rows(store)
        except LakebedError:
            return ""
    wanted = sorted([*_live(damage.lake), *changed])
    return "" if found == wanted else f"{len(found)} rows after a write, and not {len(wanted)}"


def _live_rows(store: MemoryStore) -> list[tuple[str, int]]:
    table = _opened(store).arrow(["p", "n"])
    return sorted((row["p"], row["n"]) for row in table.to_pylist())


@cache
def _live(lake: str) -> Sequence[tuple[str, int]]:
    return _live_rows(lake_of(lake).store())
