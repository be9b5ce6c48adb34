"""A cleanup of a dataset with a long past: what it reads, and the records that it lets go."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import time_machine
from upkeep_lake import DESCRIPTOR, DyingStore, Killed, content, data_keys, live_keys, row

import lakebed
from lakebed.errors import CommitConflictError
from lakebed.state import reservation
from lakebed.state.reader import read_head
from lakebed.state.transaction import Suspended, Transaction
from lakebed.store.base import Store
from lakebed.testing import CountingStore, DelegatingStore
from lakebed.work.cleanup_log import MOST_LOGS
from lakebed.work.inventory import (
    KEEP_LOGS,
    Inventory,
    JudgedFile,
    Rules,
    read_history,
    take_inventory,
)

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


class Past:
    """A dataset in memory whose days pass by the clock of the test."""

    def __init__(self, clock: time_machine.Traveller, **descriptor: Any) -> None:
        self._clock = clock
        self.now = START
        self.lake = lakebed.open_repository(f"memory://{uuid.uuid4()}")
        self.dataset = self.lake.create("d", replace(DESCRIPTOR, **descriptor))

    @property
    def store(self) -> Store:
        return self.lake.store

    def wait(self, **span: float) -> None:
        self.now += dt.timedelta(**span)
        self._clock.move_to(self.now)

    def run(self, number: int) -> None:
        """Write a row of an hour, and take out what is older than two days."""
        self.wait(hours=1)
        self.dataset.append([row(f"{number:05d}", number)], run=f"run {number}")
        if number >= 48:
            self.dataset.where(f"p < '{number - 47:05d}'").delete()

    def manifests(self) -> set[int]:
        return set(reservation.listed(self.store, "d"))

    def live_batches(self) -> set[int]:
        return {file.batch_id for file in self.dataset.files() if file.batch_id is not None}


@pytest.fixture
def past() -> Iterator[Past]:
    with time_machine.travel(START, tick=False) as clock:
        yield Past(clock)


def rules_of(older_than: dt.timedelta) -> Rules:
    skew = dt.timedelta(hours=1)
    return Rules(now=dt.datetime.now(dt.UTC), retention=older_than, clock_skew=skew)


def verdicts(inventory: Inventory, rules: Rules) -> list[JudgedFile]:
    return inventory.judge_by(inventory.state, rules).judge(inventory.objects)


def raised(inventory: Inventory, horizon: int) -> Inventory:
    return replace(inventory, state=replace(inventory.state, horizon=horizon))


def test_manifests_go_with_the_last_file_of_their_batch(past: Past) -> None:
    for number in range(120):
        past.run(number)
        told = past.dataset.cleanup("1d")
        done = past.dataset.cleanup("1d", dry_run=False)
        assert [(one.key, one.reason) for one in done.files] == [
            (one.key, one.reason) for one in told.files
        ]

    assert past.live_batches() <= past.manifests()
    # Of two days that are live, one that is retained, and an hour of the skew of clocks.
    assert len(past.manifests()) <= 48 + 24 + 26
    assert len(content(past.dataset)) == 48
    assert past.dataset.check(deep=True).problems == ()


def test_manifest_goes_in_the_same_cleanup_as_the_file_and_is_reported(past: Past) -> None:
    first = past.dataset.append([row("a", 1)])
    past.wait(days=3)
    past.dataset.overwrite([row("a", 2)])
    past.wait(days=3)

    report = past.dataset.cleanup("1d", dry_run=False)

    (manifest,) = (one for one in report.files if "/batches/" in one.key)
    assert manifest.reason == "superseded"
    assert manifest.version == 2
    assert manifest.note == f"No version that can be read has a file of batch {first.batch_id}."
    assert past.manifests() == past.live_batches()
    again = past.dataset.cleanup("1d", dry_run=False)
    assert (again.files, again.version) == ((), None)


@pytest.mark.parametrize("kept", ["version", "batch", "published", "retained", "young"])
def test_manifest_of_a_file_that_may_be_read_stays(past: Past, kept: str) -> None:
    first = past.dataset.append([row("a", 1)])
    if kept == "version":
        past.dataset.protections.add(version=first.version, reason="x")
    if kept == "batch":
        past.dataset.protections.add(batch_id=first.batch_id, reason="x")
    if kept == "published":
        past.dataset.publish("delta")
    past.wait(hours=20 if kept == "young" else 72)
    past.dataset.overwrite([row("a", 2)])
    past.wait(hours=2 if kept in ("retained", "young") else 72)

    report = past.dataset.cleanup("0s" if kept == "young" else "1d", dry_run=False)

    assert first.batch_id in past.manifests()
    if kept in ("version", "batch"):
        alone = past.dataset.at(batch_id=first.batch_id)
        assert content(alone) == [("a", 1)]
    assert bool(report.files) == (kept == "young")


def test_last_epoch_of_a_stream_keeps_its_manifest(past: Past) -> None:
    from lakebed.state.state import QueryProgress

    first = past.dataset.append([row("a", 1)])
    past.wait(days=3)
    past.dataset.overwrite([row("a", 2)])
    past.wait(days=3)
    rules = rules_of(dt.timedelta(days=1))
    inventory = take_inventory(past.store, "d", rules=rules)
    state = replace(inventory.state, horizon=2, oldest_batch=inventory.state.last_batch_id)
    assert first.batch_id is not None
    key = reservation.key_of("d", first.batch_id)

    def reason_of(state: Any) -> str:
        judged = inventory.judge_by(state, rules).judge(inventory.objects)
        return str(next(one.reason for one in judged if one.key == key))

    last = QueryProgress(query="q", epoch=3, batch_id=first.batch_id)
    assert reason_of(state) == "superseded"
    assert reason_of(replace(state, streams=(last,))) == "live"


def test_id_of_a_manifest_that_is_gone_cannot_be_committed_again(past: Past) -> None:
    first = past.dataset.append([row("a", 1)])
    past.wait(days=3)
    past.dataset.overwrite([row("a", 2)])
    past.wait(days=3)
    past.dataset.cleanup("1d", dry_run=False)
    state = read_head(past.store, "d").state
    assert first.batch_id is not None
    assert not state.may_commit(first.batch_id)

    # A writer elsewhere that slept since it read the head, and whose clock is behind.
    late = reservation.reserve(
        DelegatingStore(past.store),
        "d",
        above=first.batch_id - 1,
        commit_id="c",
        operation="append",
        run=None,
        begun_at=START,
    )
    assert late.batch_id == first.batch_id
    transaction = Transaction.resume(
        past.store,
        Suspended(
            dataset="d",
            created_at=state.created_at,
            base_version=state.version,
            record=late.record,
            etag=late.etag,
        ),
    )
    with pytest.raises(CommitConflictError, match="comes too late"), transaction:
        transaction.commit()
    assert content(past.dataset) == [("a", 2)]


def test_rerun_of_a_run_without_a_manifest_replaces_what_is_left_of_it(past: Past) -> None:
    past.dataset.append([row("a", 1), row("b", 1)], run="r")
    past.wait(days=3)
    past.dataset.compact()
    past.dataset.where("p = 'a'").delete()
    past.wait(days=3)
    past.dataset.cleanup("1d", dry_run=False)

    past.dataset.rerun([row("b", 2)], run="r", replace_all=True)

    assert content(past.dataset) == [("b", 2)]


@pytest.mark.thorough
def test_killed_at_each_call_a_cleanup_with_manifests_is_finished_by_the_next() -> None:
    nth = 0
    while True:
        nth += 1
        for after in (False, True):
            with time_machine.travel(START, tick=False) as clock:
                past = Past(clock)
                for n in range(3):
                    past.wait(days=3)
                    past.dataset.overwrite([row("a", n), row("b", n)])
                past.wait(days=3)
                store = DyingStore(past.store, nth=nth, after=after)
                try:
                    lakebed.Repository(store).open("d").cleanup("1d", dry_run=False)
                    is_over = True
                except Killed:
                    is_over = False
                past.dataset.cleanup("1d", dry_run=False)
                assert content(past.dataset) == [("a", 2), ("b", 2)]
                assert data_keys(past.store) == live_keys(past.dataset)
                assert past.manifests() == past.live_batches()
                left = past.dataset.cleanup("1d", dry_run=False).files
                assert {one.reason for one in left} <= {"unreferenced"}
                assert past.dataset.check(deep=True).problems == ()
        if is_over:
            break
    assert nth > 10


STRAYS: dict[str, Callable[[Past], None]] = {
    "none": lambda past: None,
    "debris": lambda past: past.store.put(
        f"d/data/p=a/batch_id={min(past.live_batches())}/part-{'0' * 32}.parquet", b"x"
    ),
    "of no batch": lambda past: past.store.put(
        f"d/data/p=a/batch_id=7/part-{'0' * 32}.parquet", b"x"
    ),
    "of another program": lambda past: past.store.put("d/data/p=a/strange.parquet", b"x"),
    "elsewhere": lambda past: past.store.put("d/elsewhere/x", b"x"),
    "staged": lambda past: past.store.put("d/staging/7/x", b"x"),
    "protected version": lambda past: past.dataset.protections.add(
        version=past.dataset.version - 3, reason="x"
    ),
    "old protected version": lambda past: past.dataset.protections.add(version=0, reason="x"),
    "protected batch": lambda past: past.dataset.protections.add(
        batch_id=max(past.live_batches()), reason="x"
    ),
    "rolled back": lambda past: past.dataset.rollback(version=past.dataset.version - 2),
    "stage": lambda past: past.dataset.staged.add([row("a", 1)]),
    "published": lambda past: past.dataset.publish("delta"),
}


@pytest.mark.parametrize("stray", STRAYS)
@pytest.mark.parametrize("index", [False, True])
def test_verdicts_by_the_last_commits_are_those_by_the_whole_history(
    stray: str, index: bool
) -> None:
    with time_machine.travel(START, tick=False) as clock:
        past = Past(clock, index=("n",) if index else ())
        for number in range(90):
            past.run(number)
            if number == 60:
                STRAYS[stray](past)
            if number % 7 == 6:
                past.dataset.cleanup("12h", dry_run=False)
        for older_than in (dt.timedelta(hours=12), dt.timedelta(days=2), dt.timedelta()):
            rules = rules_of(older_than)
            known = take_inventory(past.store, "d", rules=rules)
            whole = replace(take_inventory(past.store, "d"), observed=known.observed)
            assert whole.history.is_whole
            assert known.reserved == whole.reserved
            versions = known.state.horizon, known.state.version - 1, known.state.version
            for horizon in versions:
                assert verdicts(raised(known, horizon), rules) == verdicts(
                    raised(whole, horizon), rules
                ), (older_than, horizon)


def test_file_that_an_interrupted_cleanup_left_long_ago_is_found(past: Past) -> None:
    past.dataset.append([row("a", 1)])
    (file,) = past.dataset.files()
    data = past.store.get(file.key).data
    past.wait(days=2)
    past.dataset.overwrite([row("a", 2)])
    past.wait(days=2)
    past.dataset.cleanup("1d", dry_run=False)
    past.store.put(file.key, data)  # as if its deletion had failed
    for number in range(60):
        past.run(number)

    report = past.dataset.cleanup("1d")

    (found,) = (one for one in report.files if one.key == file.key)
    assert (found.reason, found.version) == ("superseded", 2)


def test_cleanup_reads_the_last_commits_alone(past: Past) -> None:
    requests = []
    for number in range(420):
        past.run(number)
        if number % 3:
            continue
        counting = CountingStore(past.store)
        lakebed.Repository(counting).open("d").cleanup("12h", dry_run=False)
        requests.append(counting.counts)
        _, known, _ = read_history(past.store, "d", rules_of(dt.timedelta(hours=12)))
        if number > 300:
            assert not known.is_whole
    early, late = requests[30:60], requests[-30:]
    assert max(one.get for one in late) <= max(one.get for one in early) + 3
    assert max(one.list for one in late) <= max(one.list for one in early)
    assert len(past.manifests()) <= 48 + 12 + 32  # live, retained, and a lease with skew


def test_logs_of_cleanups_are_kept_for_a_year_and_no_more_than_a_number_of_them(
    past: Past,
) -> None:
    past.dataset.append([row("a", 1)])
    for number in range(MOST_LOGS + 20):
        past.wait(minutes=1)
        past.store.put(f"d/cleanups/{number:010d}-{uuid.uuid4().hex}.json.zst", b"x")
    assert past.dataset.cleanup("1d").files == ()  # a later cleanup may need them
    past.wait(days=2)

    report = past.dataset.cleanup("1d", dry_run=False)

    assert len(report.files) == 20
    assert all(int(one.key.split("/")[2].split("-")[0]) < 20 for one in report.files)
    assert len(list(past.store.list("d/cleanups"))) == MOST_LOGS  # and no log of their deletion
    past.wait(seconds=KEEP_LOGS.total_seconds() + 1)
    assert len(past.dataset.cleanup("1d").files) == MOST_LOGS
