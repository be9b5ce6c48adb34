"""Cleanup beside clocks that are wrong: none of them stops it, and none makes it delete too early."""

import dataclasses
import datetime as dt
import threading
import time
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import time_machine
from inside import store_of
from upkeep_lake import DESCRIPTOR, content, data_keys, live_keys, reasons, row

import lakebed
from lakebed.state.transaction import Transaction
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore
from lakebed.work.metadata_compaction import compact_metadata

DAY = dt.timedelta(days=1)
HOUR = dt.timedelta(hours=1)
WRITES = ("_create", "_replace", "_put", "_put_stream")


class RightClock(DelegatingStore):
    """A storage whose own clock is right, whatever that of its writer is."""

    def __init__(self, inner: Any, clock: Any, ahead: dt.timedelta) -> None:
        super().__init__(inner)
        self._clock, self._ahead = clock, ahead

    def timed(self, operation: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self._clock.shift(-self._ahead)
        try:
            return getattr(super(), operation)(*arguments, **options)
        finally:
            self._clock.shift(self._ahead)


def _timed(operation: str) -> Any:
    def method(self: RightClock, *arguments: Any, **options: Any) -> Any:
        return self.timed(operation, arguments, options)

    return method


for _operation in WRITES:
    setattr(RightClock, _operation, _timed(_operation))


class Wrong:
    """Runs what is given by a clock that is wrong by so much; the storage's clock stays right."""

    def __init__(self, clock: Any, store: MemoryStore, ahead: dt.timedelta) -> None:
        self._clock, self._ahead = clock, ahead
        self.lake = lakebed.Repository(RightClock(store, clock, ahead))

    def __enter__(self) -> lakebed.Dataset:
        self._clock.shift(self._ahead)
        return self.lake.open("d")

    def __exit__(self, *_: object) -> None:
        self._clock.shift(-self._ahead)


@pytest.fixture
def clock() -> Iterator[Any]:
    with time_machine.travel(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), tick=True) as traveller:
        yield traveller


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture(params=["document", "tree"])
def dataset(clock: Any, store: MemoryStore, request: pytest.FixtureRequest) -> lakebed.Dataset:
    descriptor = dataclasses.replace(DESCRIPTOR, index=("n",))
    return lakebed.Repository(store).create("d", descriptor, head=request.param)


@pytest.mark.parametrize("ahead_h", [0, 30, 72])
def test_facts_and_postings_of_a_staged_batch_stay_for_its_lease_whatever_its_id_says(
    dataset, store, clock, ahead_h
) -> None:
    # From then on, all batch ids are ahead of every clock.
    with Wrong(clock, store, ahead_h * HOUR) as ahead:
        ahead.append([row("a", -1)])
    staged = dataset.staged.add([row("a", n) for n in range(1_000)], lease="7d")
    clock.shift(27 * HOUR)

    report = dataset.cleanup("1d", dry_run=False)
    dataset.staged.open(staged.batch_id).commit()

    assert report.files == ()
    assert {"files", "postings"} <= {
        key.split("/")[1] for key, reason in reasons(report).items() if reason == "reserved"
    }
    assert dataset.check().problems == ()
    assert dataset.where("n = 5").count() == 1


def test_postings_of_a_writer_at_work_stay_whatever_its_clock_says(dataset, store, clock) -> None:
    with Wrong(clock, store, 3 * DAY) as ahead:
        ahead.append([row("a", -1)])

    def rows() -> Iterator[dict[str, Any]]:
        yield row("b", 1)
        # As a task of a long job puts them, before the commit names them.
        store.put(key, b"postings of a task")
        clock.shift(30 * HOUR)
        reported.append(dataset.cleanup("1d", dry_run=False, clock_skew=dt.timedelta()))

    key = f"d/postings/n/0000000001-{'a' * 32}.parquet"
    reported: list[Any] = []
    options = lakebed.CommitOptions(lease=3 * DAY)
    dataset.with_options(commit=options).append(rows())

    assert reasons(reported[0])[key] == "too young"
    assert ("b", 1) in content(dataset)


def test_staged_batch_that_is_given_up_loses_its_facts_and_postings_too(
    dataset, store, clock
) -> None:
    dataset.staged.add([row("a", n) for n in range(9)], lease="1h")
    clock.shift(3 * DAY)

    dataset.cleanup("1d", dry_run=False)
    clock.shift(3 * DAY)
    dataset.cleanup("1d", dry_run=False)

    left = [one.key for one in store.list("d/") if one.key.split("/")[1] in ("files", "postings")]
    assert left == []
    assert data_keys(store) == set()


@pytest.mark.parametrize("days", [-300, 30])
def test_retention_is_of_the_clock_of_the_storage_not_of_the_writers(
    dataset, store, clock, days
) -> None:
    dataset.append([row("a", 0)])
    clock.shift(60 * DAY)  # a clock that is behind is not behind the commit before
    with Wrong(clock, store, days * DAY) as wrong:
        wrong.overwrite([row("a", 1)])
    for n in range(2, 5):
        dataset.overwrite([row("a", n)])

    clock.shift(6 * DAY)
    early = dataset.cleanup("7d", dry_run=False)
    clock.shift(2 * DAY)
    due = dataset.cleanup("7d", dry_run=False)

    retained = [one.key for one in early.kept if str(one.reason) == "retained"]
    assert (early.files, len([key for key in retained if "/data/" in key])) == ((), 4)
    superseded = [one.key for one in due.files if one.reason == "superseded"]
    assert len([key for key in superseded if "/data/" in key]) == 4
    assert len([key for key in superseded if "/batches/" in key]) == 4  # their manifests
    assert data_keys(store) == live_keys(dataset)


@pytest.mark.parametrize("merged_by", ["commits", "compact"])
def test_merged_history_still_tells_when_the_storage_took_each_entry(
    dataset, store, clock, merged_by
) -> None:
    with Wrong(clock, store, 30 * DAY) as ahead:
        ahead.append([row("a", 0)])
    first = clock_now()
    dataset.overwrite([row("a", 1)])
    clock.shift(5 * DAY)
    for n in range(2, 20 if merged_by == "commits" else 4):
        dataset.overwrite([row("a", n)])
    if merged_by == "compact":
        compact_metadata(store, "d")
    clock.shift(3 * DAY)

    report = dataset.cleanup("7d")

    assert [file.version for file in report.files if "/data/" in file.key] == [2]
    assert abs(report.files[0].since - first) < HOUR


def test_batch_that_was_staged_long_before_lands_when_it_is_committed(
    dataset, store, clock
) -> None:
    dataset.overwrite([row("a", 0)])
    staged = dataset.staged.add([row("a", 1)], "overwrite", lease="30d")
    clock.shift(9 * DAY)
    committed = dataset.staged.open(staged.batch_id).commit()
    clock.shift(6 * DAY)

    early = dataset.cleanup("7d")
    clock.shift(2 * DAY)
    due = dataset.cleanup("7d")

    assert not [file for file in early.files if "/data/" in file.key]
    assert [file.version for file in due.files if "/data/" in file.key] == [committed.version]


@pytest.mark.parametrize("has_moved", [False, True])
@pytest.mark.parametrize("is_with_others", [False, True])
def test_batch_staged_long_before_lands_when_a_process_commits_it_by_a_clock_that_is_behind(
    dataset, store, clock, is_with_others, has_moved
) -> None:
    dataset.overwrite([row("a", 0)])
    staged = dataset.staged.add([row("a", 1)], "overwrite", lease="900d")
    if has_moved:
        dataset.append([row("b", 1)])
    clock.shift(300 * DAY)

    with Wrong(clock, store, -300 * DAY) as behind:
        commits = [
            behind.staged.open(staged.batch_id).commit,
            partial(behind.append, [row("b", 2)]),
        ]
        if is_with_others:
            in_one_put(commits)
        else:
            for commit in commits:
                commit()
        behind.append([row("b", 3)])
    clock.shift(HOUR)

    assert not [file for file in dataset.cleanup("7d").files if "/data/" in file.key]
    clock.shift(8 * DAY)
    assert [file.version for file in dataset.cleanup("7d").files if "/data/" in file.key] == [
        2 + has_moved
    ]


def in_one_put(commits: list[Any]) -> None:
    """Let some commits meet, as those that one put of the head makes."""
    from lakebed.state import group_commit

    taken, begin = threading.Event(), group_commit.Member.begin

    def begin_(self: Any) -> None:
        taken.set()
        time.sleep(1)  # until the others have come
        begin(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit.Member, "begin", begin_)
        threads = [threading.Thread(target=commit) for commit in commits]
        for thread in threads:
            thread.start()
            taken.wait()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("dataset", ["tree"], indirect=True)
def test_commit_to_a_tree_records_when_the_storage_took_the_one_before(
    dataset, store, clock
) -> None:
    from lakebed.state.reader import read_head
    from lakebed.store.cache import PROCESS_CACHE

    with Wrong(clock, store, -300 * DAY) as behind:
        first = behind.append([row("a", 0)])
    moment = clock_now()
    clock.shift(5 * DAY)
    for n in range(1, 3):
        PROCESS_CACHE.clear()  # as another process
        dataset.append([row("a", n)])

    entries = [one.entry for one in read_head(store, "d").state.live.root.buffer]
    (stored_at,) = (one.stored_at for one in entries if one.version == first.version)
    assert abs(stored_at - moment) < HOUR
    assert [one.version for one in entries if one.stored_at is None] == [dataset.version]


def clock_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


@pytest.mark.parametrize("dataset", ["document"], indirect=True)
def test_history_without_times_of_the_storage_is_bounded_by_what_came_later(
    dataset, store, clock
) -> None:
    """As earlier releases have merged it: the times are those of the writers."""
    from lakebed.state import history
    from lakebed.state.reader import read_head

    with Wrong(clock, store, 30 * DAY) as ahead:
        ahead.overwrite([row("a", 0)])
    for n in range(1, 6):
        dataset.overwrite([row("a", n)])
    compact_metadata(store, "d")
    for segment in read_head(store, "d").state.lists.history:
        document = history.decode(store.get(segment.key).data, segment.key)
        plain = [_without_time(entry) for entry in document]
        store.put(segment.key, history.encode(plain))
    clock.shift(8 * DAY)

    dead = [file.key for file in dataset.cleanup("7d").files if file.reason == "superseded"]
    assert len([key for key in dead if "/data/" in key]) == 5


def _without_time(entry: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(entry, stored_at=None)


def test_dead_writer_whose_clock_was_ahead_holds_its_files_for_its_lease_and_no_longer(
    dataset, store, clock
) -> None:
    key = die_ahead(clock, store, and_commit=True)

    clock.shift(20 * HOUR)
    living = dataset.cleanup("1h", dry_run=False)
    clock.shift(10 * HOUR)
    dead = dataset.cleanup("1h", dry_run=False)

    assert reasons(living)[key] == "reserved"
    assert reasons(dead)[key] == "abandoned"


def die_ahead(clock: Any, store: MemoryStore, *, and_commit: bool) -> str:
    """Stage a file by a clock that is 30 days ahead, and die; return its key."""
    with Wrong(clock, store, 30 * DAY) as ahead:
        transaction = Transaction.begin(store_of(ahead), "d", "append")
        key = f"d/data/p=a/batch_id={transaction.batch_id}/part-{'0' * 32}.parquet"
        store_of(ahead).put(key, b"half a file")
        if and_commit:
            ahead.append([row("a", 0)])
    return key


def test_dead_writer_whose_clock_was_ahead_does_not_drive_the_ids_of_new_batches_there(
    dataset, store, clock
) -> None:
    key = die_ahead(clock, store, and_commit=False)
    clock.shift(3 * DAY)

    early = dataset.cleanup("1h", dry_run=False)
    commit = dataset.append([row("a", 1)])
    clock.shift(30 * DAY)
    due = dataset.cleanup("1h", dry_run=False)

    assert reasons(early)[key] == "reserved"
    assert commit.batch_id <= (clock_now() - 29 * DAY).timestamp() * 1000
    assert reasons(due)[key] == "abandoned"


def test_living_writer_is_not_taken_for_dead_because_the_clock_of_the_storage_is_behind(
    dataset, store, clock
) -> None:
    behind = RightClock(store, clock, 3 * DAY)
    transaction = Transaction.begin(behind, "d", "append")
    key = f"d/batches/{transaction.batch_id}.json"
    clock.shift(HOUR)

    assert reasons(dataset.cleanup("1h", dry_run=False))[key] == "reserved"


def test_no_retention_needs_no_clock(dataset, store, clock) -> None:
    for n in range(3):
        dataset.overwrite([row("a", n)])
    clock.shift(-HOUR)  # of who cleans up

    assert dataset.cleanup("0s").counts["superseded"] == 2


def test_file_of_a_batch_that_was_given_back_by_a_clock_ahead_goes_when_it_is_old(
    dataset, store, clock
) -> None:
    with Wrong(clock, store, 30 * DAY) as ahead:
        ahead.append([row("a", -1)])
        given_back = Transaction.begin(store_of(ahead), "d", "append")
        ahead.append([row("a", -2)])
    given_back.abort()
    key = f"d/data/p=a/batch_id={given_back.batch_id}/part-{'1' * 32}.parquet"
    store.put(key, b"of a slow task")
    clock.shift(3 * DAY)

    assert reasons(dataset.cleanup("1d", dry_run=False))[key] == "abandoned"
