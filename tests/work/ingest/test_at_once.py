"""Of two ingests of the same files, or two loads of one run, one counts; nothing comes twice."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from heads import head_key
from raw_files import EVENTS, MeanwhileStore, Raw, lines, run_through

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository
from lakebed.errors import CommitConflictError, LakebedError
from lakebed.store import open_store

EVENTS_HEAD = head_key("events")
QUARANTINE_HEAD = head_key("events_quarantine")


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    """Return two raw files with a bad line each, of which nothing has been read."""
    found = Raw(tmp_path)
    for day in range(2):
        found.push(day, lines(day, range(3), bad=[day]))
    lakebed.open_repository(tmp_path / "lake").create("events", EVENTS)
    return found


REJECTED = [b"damaged 0 0", b"damaged 1 1"]


@pytest.mark.thorough
@pytest.mark.parametrize("key", [QUARANTINE_HEAD, EVENTS_HEAD])
@pytest.mark.parametrize("name", ["events", "other"])
def test_an_ingest_that_was_overtaken_is_refused_and_no_reject_is_there_twice(
    raw: Raw, key: str, name: str
) -> None:
    other = dataclasses.replace(raw.ingest, name=name)
    store = MeanwhileStore(open_store(f"{raw.directory}/lake"), key, other.run)

    with pytest.raises(CommitConflictError):
        run_through(store, raw.ingest)

    assert store.has_happened
    assert len(raw.rows()) == 6
    assert raw.rejected() == REJECTED
    assert raw.ingest.run().unchanged_count == 2


@pytest.mark.parametrize("name", ["events", "other"])
def test_an_ingest_finds_what_another_has_set_aside_since_it_began(raw: Raw, name: str) -> None:
    other = dataclasses.replace(raw.ingest, name=name)

    def meanwhile(progress: object) -> None:
        if progress.file_count == 2:
            other.run()

    with pytest.raises(CommitConflictError, match=r"read .* meanwhile"):
        raw.ingest.run(on_progress=meanwhile)

    assert raw.rejected() == REJECTED


def test_ingests_of_other_files_with_rejects_and_one_name_do_not_hinder_each_other(
    raw: Raw,
) -> None:
    raw.push(2, lines(2, range(3), bad=[2]), where="other")
    one, two = (
        dataclasses.replace(raw.ingest, source=dataclasses.replace(raw.ingest.source, where=where))
        for where in ("box", "other")
    )
    store = MeanwhileStore(open_store(f"{raw.directory}/lake"), QUARANTINE_HEAD, two.run)

    run_through(store, one)

    assert store.has_happened
    assert raw.rejected() == [*REJECTED, b"damaged 2 2"]
    assert len(raw.rows()) == 9


def test_the_quarantine_tells_of_which_raw_files_it_is(raw: Raw) -> None:
    raw.ingest.run()

    quarantine = lakebed.open_repository(raw.directory / "lake").open("events_quarantine")

    assert {(one.location, one.run, one.row_count) for one in quarantine.sources.list()} == {
        (one.location, "events", 1) for one in raw.events.sources.list()
    }


# Loads.

NUMBERS = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))


class Loads:
    """A dataset of numbers and a file to load, with one bad line."""

    def __init__(self, folder: Path) -> None:
        self.lake = str(folder / "lake")
        self.file = folder / "a.jsonl"
        self.file.write_text('{"n": 1}\n{"n": 2}\nbad\n')
        lakebed.open_repository(self.lake).create("numbers", NUMBERS)

    def load(self, run: str | None = "daily") -> lakebed.LoadReport:
        return lakebed.open_repository(self.lake).open("numbers").load(self.file, run=run)

    def load_overtaken(self, head: str, act: Callable[[], object]) -> lakebed.LoadReport:
        store = MeanwhileStore(open_store(self.lake), head_key(head), act)
        report = Repository(store).open("numbers").load(self.file, run="daily")
        assert store.has_happened
        return report

    @property
    def dataset(self) -> Dataset:
        return lakebed.open_repository(self.lake).open("numbers")

    def content(self) -> tuple[list[int], int]:
        quarantine = lakebed.open_repository(self.lake).open("numbers_quarantine")
        return sorted(self.dataset.arrow()["n"].to_pylist()), quarantine.count()


@pytest.fixture
def loads(tmp_path: Path) -> Loads:
    return Loads(tmp_path)


@pytest.mark.parametrize("head", ["numbers", "numbers_quarantine"])
def test_a_load_that_was_overtaken_by_its_own_run_finds_its_work_done(
    loads: Loads, head: str
) -> None:
    report = loads.load_overtaken(head, loads.load)

    assert (report.is_repeated, report.row_count, report.rejected_count) == (True, 2, 1)
    assert loads.content() == ([1, 2], 1)
    assert loads.dataset.version == 1


def test_a_load_that_a_load_of_its_run_may_still_overtake_is_refused(loads: Loads) -> None:
    def set_aside_alone() -> None:
        # Another load is as far as its quarantine, and has not committed its rows.
        store = MeanwhileStore(open_store(loads.lake), head_key("numbers"), fail)
        with pytest.raises(KeyboardInterrupt):
            Repository(store).open("numbers").load(loads.file, run="daily")

    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(CommitConflictError):
        loads.load_overtaken("numbers_quarantine", set_aside_alone)

    assert not loads.load().is_repeated
    assert loads.content() == ([1, 2], 1)


@pytest.mark.thorough
def test_loads_of_other_runs_and_of_none_do_not_hinder_each_other(loads: Loads) -> None:
    loads.load_overtaken("numbers", lambda: (loads.load("weekly"), loads.load(None)))

    assert loads.content() == ([1, 1, 1, 2, 2, 2], 3)


def test_a_load_takes_nothing_out_that_its_run_has_appended(loads: Loads) -> None:
    loads.dataset.append([{"n": 7}], run="daily")

    loads.load()

    assert loads.content() == ([1, 2, 7], 1)


def test_of_two_loads_after_a_rollback_one_replaces_what_is_left(loads: Loads) -> None:
    loads.load()
    loads.dataset.rollback(version=0)

    report = loads.load_overtaken("numbers", loads.load)

    assert report.is_repeated
    assert loads.content() == ([1, 2], 1)


# With real threads.


def at_once(*acts: Callable[[], object]) -> list[str]:
    """Let things happen at once, and say how each of them ended."""
    begin, ends = threading.Barrier(len(acts)), []

    def go(act: Callable[[], object]) -> None:
        begin.wait()
        try:
            act()
        except LakebedError as exc:
            ends.append(type(exc).__name__)
        else:
            ends.append("done")

    threads = [threading.Thread(target=go, args=(act,)) for act in acts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sorted(ends)


TIMES = [pytest.param(2, id="2"), pytest.param(60, id="60", marks=pytest.mark.long)]


@pytest.mark.thorough
@pytest.mark.parametrize("times", TIMES)
def test_threads_that_ingest_the_same_files_at_once_bring_all_of_it_once(
    tmp_path: Path, times: int
) -> None:
    ends: Counter[str] = Counter()
    for number in range(times):
        (tmp_path / str(number)).mkdir()
        raw = Raw(tmp_path / str(number))
        for day in range(3):
            raw.push(day, lines(day, [day], bad=[day]))
        ends.update(at_once(raw.ingest.run, raw.ingest.run, raw.ingest.run))

        raw.ingest.run()

        assert raw.rows() == [(day, day) for day in range(3)]
        assert raw.rejected() == [b"damaged %d %d" % (day, day) for day in range(3)]
    assert ends["done"] >= times
    assert set(ends) <= {"done", "CommitConflictError"}


@pytest.mark.thorough
@pytest.mark.parametrize("times", TIMES)
def test_threads_that_load_one_run_at_once_bring_all_of_it_once(tmp_path: Path, times: int) -> None:
    for number in range(times):
        (tmp_path / str(number)).mkdir()
        loads = Loads(tmp_path / str(number))
        ends = at_once(loads.load, loads.load, loads.load)

        loads.load()

        assert loads.content() == ([1, 2], 1)
        assert set(ends) <= {"done", "CommitConflictError", "StaleRerunError"}
