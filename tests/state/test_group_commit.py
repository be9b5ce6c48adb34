"""Commits of threads that share a store: one put of the head for all that wait."""

from __future__ import annotations

import collections
import datetime as dt
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed
from lakebed import by
from lakebed.arrow.kernel import write_batches
from lakebed.errors import AccessDeniedError, CommitConflictError, LakebedError, StorageError
from lakebed.state import group_commit, reservation
from lakebed.state.codec import to_document
from lakebed.state.committing import Merges
from lakebed.state.head import encode_head
from lakebed.state.history import read
from lakebed.state.reader import read_head
from lakebed.state.sources import SourceFile, Sources
from lakebed.state.state import HeldFor
from lakebed.state.transaction import Transaction
from lakebed.state.waiting_line import Seat, WaitingLine, WaitingLines
from lakebed.store import Store
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import FANOUT, Segment
from lakebed.testing import DelegatingStore
from lakebed.work.writer import target_of

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("id", pa.int64())]), partition_by=[by.identity("p")]
)
HEADS = ["document", "tree"]
PATIENCE_S = 20.0
_names = itertools.count()

Work = Callable[[lakebed.Dataset], Any]


class Calls(DelegatingStore):
    """Notes each call, and raises what is planned at a call of the thread that leads."""

    def __init__(self, inner: Store, *, is_near: bool = True) -> None:
        super().__init__(inner)
        self.is_near = is_near
        self.calls: list[tuple[str, str]] = []
        self.leader: threading.Thread | None = None
        self.fails_at = -1
        self.is_after = False
        self.error: BaseException | None = None
        self.of_leader: list[tuple[str, str]] = []

    def _do(self, name: str, key: str, call: Callable[[], Any]) -> Any:
        self.calls.append((name, key))
        is_due = False
        if threading.current_thread() is self.leader:
            is_due = len(self.of_leader) == self.fails_at
            self.of_leader.append((name, key))
        if is_due and not self.is_after:
            raise self.error or AssertionError
        answer = call()
        if is_due:
            raise self.error or AssertionError
        return answer

    def _get(self, key: str) -> Any:
        return self._do("get", key, lambda: self.inner.get(key))

    def _get_if_changed(self, key: str, etag: str) -> Any:
        return self._do("get", key, lambda: self.inner.get_if_changed(key, etag=etag))

    def _create(self, key: str, data: memoryview) -> Any:
        return self._do("create", key, lambda: self.inner.create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> Any:
        swap = lambda: self.inner.replace(key, data, if_match=if_match)  # noqa: E731 - read once
        return self._do("replace", key, swap)

    def _put(self, key: str, data: memoryview) -> Any:
        return self._do("put", key, lambda: self.inner.put(key, data))

    def swaps(self) -> int:
        """Return how often a head was put."""
        return sum(name == "replace" and "/" not in key for name, key in self.calls)


@pytest.fixture(params=HEADS)
def store(request: pytest.FixtureRequest) -> Calls:
    store = Calls(MemoryStore(f"group-{next(_names)}"))
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR, head=request.param)
    dataset.append([{"p": "a", "id": 0}, {"p": "b", "id": 0}])
    store.calls.clear()
    return store


@contextmanager
def together(count: int, store: Store) -> Iterator[None]:
    """Let the first leader wait until so many commits have come, its own included."""
    real = group_commit.Member.begin
    line = group_commit.LINES.of(store.group_key, "d")
    has_begun = threading.Event()

    def begin(member: group_commit.Member) -> None:
        if not has_begun.is_set():
            end = time.monotonic() + PATIENCE_S
            while line.waiting_count < count - 1:
                assert time.monotonic() < end
                time.sleep(0.001)
            has_begun.set()
            if isinstance(store, Calls):
                store.calls.clear()
                store.leader = threading.current_thread()
        real(member)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit.Member, "begin", begin)
        yield


def run(store: Store, *works: Work, options: lakebed.CommitOptions | None = None) -> list[Any]:
    """Do work in a thread each, so that the first leads; return what came of each."""
    results: list[Any] = [None] * len(works)
    line = group_commit.LINES.of(store.group_key, "d")

    def do(number: int) -> None:
        dataset = lakebed.Repository(store).open("d")
        if options is not None:
            dataset = dataset.with_options(commit=options)
        try:
            results[number] = works[number](dataset)
        except BaseException as exc:  # noqa: BLE001 - looked at by the test
            results[number] = exc

    threads = [
        threading.Thread(target=do, args=(number,), daemon=True) for number in range(len(works))
    ]
    with together(len(works), store):
        for number, thread in enumerate(threads):
            thread.start()
            end = time.monotonic() + PATIENCE_S
            while line.is_idle or line.waiting_count < number:
                assert time.monotonic() < end
                if not thread.is_alive():
                    break
                time.sleep(0.001)
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a commit was stranded"
    assert line.is_idle
    return results


def append(number: int, p: str = "a") -> Work:
    return lambda dataset: dataset.append([{"p": p, "id": number}])


def ids(store: Store) -> list[int]:
    table = lakebed.Repository(store).open("d").arrow(["id"])
    return sorted(table.column("id").to_pylist())


def versions(store: Store) -> list[int]:
    return [commit.version for commit in lakebed.Repository(store).open("d").history()]


def assert_sound(store: Store) -> None:
    dataset = lakebed.Repository(store).open("d")
    assert dataset.check(deep=True).problems == ()
    counts = collections.Counter(commit.commit_id for commit in dataset.history())
    assert max(counts.values()) == 1
    assert versions(store) == list(range(len(counts)))


def test_commits_that_wait_are_made_by_one_put(store: Calls) -> None:
    made = run(store, *(append(number) for number in range(1, 9)))

    assert store.swaps() == 1
    assert [commit.version for commit in made] == list(range(2, 10))
    assert ids(store) == [0, 0, *range(1, 9)]
    history = {commit.version: commit for commit in lakebed.Repository(store).open("d").history()}
    for commit in made:
        assert history[commit.version].commit_id == commit.commit_id
        assert history[commit.version].batch_id == commit.batch_id
    assert len({commit.batch_id for commit in made}) == 8
    assert_sound(store)


def test_a_group_waits_for_a_hold_no_longer_than_each_of_its_commits_would(store: Calls) -> None:
    head = read_head(store, "d")
    held = replace(head.state, held=HeldFor("of another", 60))
    data = encode_head(to_document(held), held.head_format)
    store.inner.replace(head.key, data, if_match=head.etag)

    def hasty(dataset: lakebed.Dataset) -> Any:
        return append(2)(dataset.with_options(commit=lakebed.CommitOptions(deadline_s=2)))

    began = time.monotonic()
    first, second = run(store, append(1), hasty, options=lakebed.CommitOptions(deadline_s=60))

    assert time.monotonic() - began < 15  # and not the half of sixty
    assert {first.version, second.version} == {2, 3}
    assert_sound(store)


def test_each_version_of_a_group_can_be_read_and_compared(store: Calls) -> None:
    run(store, *(append(number) for number in range(1, 5)))

    dataset = lakebed.Repository(store).open("d")
    for version in range(2, 6):
        rows = dataset.at(version=version).arrow(["id"]).column("id").to_pylist()
        assert sorted(rows) == [0, 0, *range(1, version)]
        assert len(dataset.diff(version - 1, version).files_added) == 1
    assert dataset.changes(1, 5).commit_count == 4
    dataset.rollback(version=3)
    assert ids(store) == [0, 0, 1, 2]


def overwrite(number: int) -> Work:
    return lambda dataset: dataset.overwrite([{"p": "a", "id": number}])


def upsert(number: int, p: str = "a") -> Work:
    return lambda dataset: dataset.upsert(
        [{"p": p, "id": 7}, {"p": p, "id": number}], on=["p", "id"]
    )


def test_a_conflict_within_a_group_refuses_one_commit_alone(store: Calls) -> None:
    first, second, third, fourth = run(store, overwrite(1), overwrite(2), append(3), append(4, "b"))

    assert first.version == 2
    assert isinstance(second, CommitConflictError)
    assert first.commit_id in second.message
    assert (third.version, fourth.version) == (3, 4)
    assert store.swaps() == 1
    assert ids(store) == [0, 1, 3, 4]
    assert_sound(store)


def test_an_overwrite_after_an_append_to_its_partition_is_refused(store: Calls) -> None:
    first, second = run(store, append(1), overwrite(2))

    assert first.version == 2
    assert isinstance(second, CommitConflictError)
    assert ids(store) == [0, 0, 1]
    assert_sound(store)


def test_a_leader_that_is_refused_lets_the_others_go_on(store: Calls) -> None:
    base = lakebed.Repository(store).open("d").snapshot()
    lakebed.Repository(store).open("d").append([{"p": "a", "id": 5}])

    def write(dataset: lakebed.Dataset) -> Any:
        return dataset.overwrite([{"p": "a", "id": 9}], base=base)

    first, second, third = run(store, write, append(1), append(2))

    assert isinstance(first, CommitConflictError)
    assert {second.version, third.version} == {3, 4}
    assert ids(store) == [0, 0, 1, 2, 5]
    assert_sound(store)


def test_merges_of_one_key_within_a_group_insert_it_once(store: Calls) -> None:
    made = run(store, upsert(1), upsert(2), append(3, "b"))

    assert not any(isinstance(one, BaseException) for one in made)
    assert ids(store) == [0, 0, 1, 2, 3, 7]
    assert_sound(store)


def test_reruns_of_one_run_within_a_group_leave_the_rows_of_one(store: Calls) -> None:
    def rerun(number: int) -> Work:
        return lambda dataset: dataset.rerun(
            [{"p": "a", "id": number}], run="daily", replace_all=True
        )

    made = run(store, rerun(1), rerun(2))

    refused = [one for one in made if isinstance(one, CommitConflictError)]
    assert len(refused) == 1
    assert len(ids(store)) == 3
    assert_sound(store)


def test_threads_that_commit_one_staged_batch_make_one_commit(store: Calls) -> None:
    staged = lakebed.Repository(store).open("d").staged
    batch_id = staged.add([{"p": "a", "id": 1}]).batch_id
    store.calls.clear()

    def commit(dataset: lakebed.Dataset) -> lakebed.Commit:
        return dataset.staged.open(batch_id).commit()

    made = run(store, commit, append(2), commit)

    assert made[0] == made[2]
    assert len({made[0].version, made[1].version}) == 2
    assert ids(store) == [0, 0, 1, 2]
    assert len(versions(store)) == 4
    assert_sound(store)


def test_a_rerun_replaces_what_a_commit_before_it_in_the_group_moved(store: Calls) -> None:
    dataset = lakebed.Repository(store).open("d")
    dataset.rerun([{"p": "a", "id": 1}], run="daily", replace_all=True)
    dataset.append([{"p": "a", "id": 2}])

    _, second = run(
        store,
        lambda dataset: dataset.compact(),
        lambda dataset: dataset.rerun([{"p": "a", "id": 3}], run="daily", replace_all=True),
    )

    assert not isinstance(second, BaseException)
    assert ids(store) == [0, 0, 2, 3]
    assert_sound(store)


def works(count: int = 4) -> list[Work]:
    return [append(number) for number in range(1, count + 1)]


def calls_of_a_leader(head: str) -> int:
    store = new_store(head)
    run(store, *works())
    return len(store.of_leader)


def new_store(head: str) -> Calls:
    store = Calls(MemoryStore(f"group-{next(_names)}"))
    lakebed.Repository(store).create("d", DESCRIPTOR, head=head).append([{"p": "a", "id": 0}])
    return store


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_a_leader_that_is_interrupted_at_any_request_strands_nobody(
    head: str, is_after: bool
) -> None:
    count = calls_of_a_leader(head)
    assert count >= 2
    landed = set()
    for call in range(count):
        store = new_store(head)
        store.fails_at, store.is_after, store.error = call, is_after, KeyboardInterrupt()

        first, *others = run(store, *works())

        assert isinstance(first, KeyboardInterrupt)
        assert all(isinstance(one, lakebed.Commit) for one in others)
        rows = ids(store)
        assert rows in ([0, 2, 3, 4], [0, 1, 2, 3, 4])
        landed.add(1 in rows)
        assert [one.version for one in others] == [
            next(c.version for c in history(store) if c.commit_id == one.commit_id)
            for one in others
        ]
        assert_sound(store)
    assert landed == ({False, True} if is_after else {False})


def history(store: Store) -> list[lakebed.Commit]:
    return list(lakebed.Repository(store).open("d").history())


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_a_lost_answer_to_any_request_of_a_leader_loses_and_repeats_nothing(
    head: str, is_after: bool
) -> None:
    for call in range(calls_of_a_leader(head)):
        store = new_store(head)
        store.fails_at, store.is_after = call, is_after
        store.error = StorageError("No answer.", retryable=True)

        made = run(store, *works())

        assert all(isinstance(one, lakebed.Commit) for one in made), made
        assert ids(store) == [0, 1, 2, 3, 4]
        assert sorted(one.version for one in made) == [2, 3, 4, 5]
        assert_sound(store)


@pytest.mark.parametrize("head", HEADS)
def test_an_error_that_is_final_is_that_of_the_leader_alone(head: str) -> None:
    for call in range(calls_of_a_leader(head)):
        store = new_store(head)
        store.fails_at, store.error = call, AccessDeniedError("Access was denied.")

        first, *others = run(store, *works())

        assert isinstance(first, LakebedError)
        assert all(isinstance(one, lakebed.Commit) for one in others), others
        assert ids(store) == [0, 2, 3, 4]
        assert_sound(store)


def test_two_processes_each_with_a_group_lose_nothing(store: Calls) -> None:
    other = Calls(store.inner)
    threads = []
    results: list[Any] = []
    errors: list[Exception] = []
    for number in range(1, 41):
        chosen = (store, other)[number % 2]
        work = append(number) if number % 10 else upsert(number, "b")

        def do(chosen: Calls = chosen, work: Work = work, number: int = number) -> None:
            for _ in range(20):  # a merge gives up after a few rounds
                try:
                    work(lakebed.Repository(chosen).open("d"))
                except CommitConflictError as exc:
                    if number % 10:
                        errors.append(exc)
                        return
                else:
                    results.append(number)
                    return

        threads.append(threading.Thread(target=do))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert errors == []
    assert len(results) == 40
    assert versions(store) == list(range(42))
    assert ids(store) == [0, 0, *sorted([7, *range(1, 41)])]
    assert_sound(store)


def test_a_far_store_commits_groups_in_the_same_way() -> None:
    inner = MemoryStore(f"group-{next(_names)}")
    lakebed.Repository(inner).create("d", DESCRIPTOR).append([{"p": "a", "id": 0}])
    store = Calls(inner, is_near=False)
    threads = [
        threading.Thread(target=lambda n=number: append(n)(lakebed.Repository(store).open("d")))
        for number in range(1, 31)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert ids(store) == [0, *range(1, 31)]
    assert versions(store) == list(range(32))
    assert_sound(store)


@pytest.mark.parametrize("folder", ["files", "sources"])
def test_a_far_store_merges_a_segment_that_is_still_being_written(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(DelegatingStore):
        """A store that takes longest to write the segments of a folder."""

        def _put(self, key: str, data: memoryview) -> None:
            if key.startswith(f"d/{folder}/"):
                time.sleep(0.03)
            self.inner.put(key, data)

    inner = MemoryStore(f"group-{next(_names)}")
    store = Slow(inner)
    store.is_near = False  # the segment is written while the commit is prepared
    lakebed.Repository(inner).create("d", DESCRIPTOR)
    for number in range(FANOUT):
        source = SourceFile(
            key=f"{number}-0",
            location=f"{number}.csv",
            slot=f"file:{number}.csv",
            fingerprint="1",
            size_bytes=1,
            batch_id=1,
            run="",
            row_count=1,
            rejected_count=0,
        )
        with Transaction.begin(store, "d", "append") as transaction:
            row = pa.RecordBatch.from_pylist([{"p": "a", "id": number}])
            transaction.add(write_batches(store, target_of(transaction, None), [row]))
            transaction.commit(sources=Sources(files=(source,)))

    lists = read_head(store, "d").state.lists
    assert len(lists.sources) == 1
    assert ON_TREES or len(lists.files) == 1
    assert ids(store) == list(range(FANOUT))
    assert "unmerged" not in caplog.text


def test_a_commit_that_is_late_in_the_line_goes_on_by_itself(store: Calls) -> None:
    line = group_commit.LINES.of(store.group_key, "d")
    seat: Any = Seat()
    seat.thread = threading.Thread(target=lambda: None)
    blocker = threading.Event()
    alive = threading.Thread(target=blocker.wait)
    alive.start()
    seat.thread = alive
    assert line.try_lead(seat)
    try:
        dataset = lakebed.Repository(store).open("d")
        dataset = dataset.with_options(commit=lakebed.CommitOptions(deadline_s=0.05))
        commit = dataset.append([{"p": "a", "id": 1}])
    finally:
        line.leave(seat)
        blocker.set()
        alive.join()

    assert commit.version == 2
    assert ids(store) == [0, 0, 1]


def test_a_commit_within_a_commit_does_not_wait_for_itself(store: Calls) -> None:
    line = group_commit.LINES.of(store.group_key, "d")
    seat: Any = Seat()
    assert line.try_lead(seat)
    try:
        began = time.monotonic()
        append(1)(lakebed.Repository(store).open("d"))
        assert time.monotonic() - began < PATIENCE_S
    finally:
        line.leave(seat)

    assert ids(store) == [0, 0, 1]


def test_the_next_leads_if_the_thread_of_a_leader_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lakebed.state.waiting_line.LOOK_S", 0.01)
    line: WaitingLine[Seat] = WaitingLine()
    gone = threading.Thread(target=lambda: line.try_lead(Seat()))
    gone.start()
    gone.join()
    seat = Seat()

    assert line.wait(seat, time.monotonic() + PATIENCE_S)
    line.leave(seat)
    assert line.is_idle


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform has no fork")
def test_a_child_process_has_no_line_of_its_parent() -> None:
    lines: WaitingLines[Seat] = WaitingLines()
    line = lines.of("store", "d")
    line.try_lead(Seat())
    child = os.fork()
    if child == 0:
        os._exit(0 if lines.of("store", "d").is_idle else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not lines.of("store", "d").is_idle


def test_all_versions_of_a_put_have_its_time_of_storage() -> None:
    store = new_store("document")
    run(store, *works())

    state = read_head(store, "d").state
    entries = read(store, state.lists.history, after=1)
    times = {entry.stored_at for entry in entries}
    assert [entry.version for entry in entries] == [2, 3, 4, 5]
    assert len(times) == 1
    assert None not in times


def test_threads_that_begin_at_one_moment_do_not_try_one_batch_id(store: Calls) -> None:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    given = {"above": 0, "commit_id": "1", "operation": "append", "run": None}

    reserved = [reservation.reserve(store, "d", begun_at=moment, **given) for _ in range(5)]

    assert len({one.batch_id for one in reserved}) == 5
    assert sum(name == "create" for name, _ in store.calls) == 5


def test_a_later_attempt_uses_the_segments_that_an_earlier_one_has_merged() -> None:
    parts = tuple(Segment(f"d/runs/1-{number}", 1) for number in range(4))
    merged = Segment("d/runs/3-m", 3)
    merges = Merges()
    merges.note(parts, (parts[0], merged))
    later = Segment("d/runs/1-later", 1)

    assert merges.applied_to((*parts, later)) == (parts[0], merged, later)
    # Another writer has merged some of them already.
    others = (parts[0], Segment("d/runs/2-o", 2), parts[3])
    assert merges.applied_to(others) == others
