"""Holds: a commit that takes long beside writers that commit all the time."""

from __future__ import annotations

import collections
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflictError, StorageError
from lakebed.state import patience
from lakebed.state.codec import to_document
from lakebed.state.head import HeadFormat, decode_head, encode_head
from lakebed.state.reader import Head, read_head
from lakebed.state.state import HeldFor, State
from lakebed.store import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore

DESCRIPTOR = lakebed.DatasetDescriptor(schema=pa.schema([("id", pa.int64())]))
HEADS = ["document", "tree"]
OTHER = {"document": "tree", "tree": "document"}
_names = itertools.count()


class OfProcess(DelegatingStore):
    """A store as one process has it, which may call a function before each put of a head."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.before_head: Callable[[memoryview], None] = lambda _data: None
        self._name = f"{inner.cache_name}#{next(_names)}"

    @property
    def cache_name(self) -> str:
        return self._name

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if ".by-dataset-metadata." in key:
            self.before_head(data)
        return super()._replace(key, data, if_match=if_match)


class Rival:
    """Appends a row each time it is asked, in a thread of its own as another process would."""

    def __init__(self, store: Store) -> None:
        self.acknowledged: list[int] = []
        self._store = store
        self._dataset = lakebed.Repository(OfProcess(store)).open("d")
        self._is_asked = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._work)

    def ask(self, _data: memoryview) -> None:
        """Let it append; return when it has, or soon if it is to wait."""
        done = len(self.acknowledged)
        self._is_asked.set()
        end = time.monotonic() + (0.3 if state_in(self._store).held else 60)
        while len(self.acknowledged) == done and time.monotonic() < end:
            time.sleep(0.002)

    def _work(self) -> None:
        for number in itertools.count():
            self._is_asked.wait()
            self._is_asked.clear()
            if self._is_over:
                return
            self._dataset.append(pa.table({"id": [number]}))
            self.acknowledged.append(number)

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._is_over = True
            self._is_asked.set()
            self._thread.join()


@pytest.fixture
def bucket() -> MemoryStore:
    return MemoryStore(f"holding-{next(_names)}")


def created(bucket: Store, head: str = "document") -> lakebed.Dataset:
    repository = lakebed.Repository(OfProcess(bucket))
    # Only a head in msgpack can become a tree by one commit.
    dataset = repository.create("d", DESCRIPTOR, head_format="msgpack.zstd", head=head)
    dataset.append(pa.table({"id": [-1]}))
    return dataset


def state_in(bucket: Store) -> State:
    return read_head(OfProcess(bucket), "d").state


def hold(bucket: Store, seconds: int, commit_id: str = "of another") -> None:
    head = read_head(bucket, "d")
    held = replace(head.state, held=HeldFor(commit_id, seconds))
    data = encode_head(to_document(held), held.head_format)
    bucket.replace(head.key, data, if_match=head.etag)


def fail_to_move(
    store: OfProcess, before: Callable[[], object] = lambda: None, head: str = "tree"
) -> list[bytes]:
    """Change the head through a store that fails at the put after that of the hold.

    Returns:
        The heads before both puts.
    """
    contents: list[bytes] = []
    key = read_head(store.inner, "d").key

    def failing(_data: memoryview) -> None:
        contents.append(bytes(store.inner.get(key).data))
        if len(contents) == 2:
            before()
            raise StorageError("There is no answer.", retryable=False)

    store.before_head = failing
    with pytest.raises(StorageError, match="no answer"):
        lakebed.Repository(store).open("d").compact(head=head)
    return contents


@pytest.mark.parametrize("head", HEADS)
def test_change_of_the_head_lands_beside_a_writer_that_is_faster_each_time(
    bucket: MemoryStore, head: str
) -> None:
    dataset = created(bucket, head)
    store = OfProcess(bucket)
    mover = lakebed.Repository(store).open("d")
    mover = mover.with_options(commit=lakebed.CommitOptions(deadline_s=60))
    rival = Rival(bucket)
    lost = 0

    def overtaken(data: memoryview) -> None:
        # The first attempt loses. The put of the note wins, since it takes no longer than others.
        nonlocal lost
        is_held = state_in(bucket).held is not None
        if is_held or not lost:
            lost += not is_held
            rival.ask(data)

    store.before_head = overtaken
    with rival.working():
        mover.compact(head=OTHER[head])

    state = state_in(bucket)
    assert state.is_tree is (head == "document")
    assert lost == 1
    assert state.held is None
    there = collections.Counter(dataset.arrow().column("id").to_pylist())
    assert there == collections.Counter([-1, *rival.acknowledged])
    assert [entry.version for entry in dataset.history()] == list(range(dataset.version + 1))
    # The rival was asked once more before the last put, and its row came after that.
    operations = [entry.operation for entry in dataset.history()]
    assert operations[2:] == ["append", "hand-over", "append"]


def test_change_of_the_head_of_very_many_files_asks_before_its_first_attempt(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    created(bucket)
    store = OfProcess(bucket)
    held: list[bool] = []
    store.before_head = lambda _data: held.append(state_in(bucket).held is not None)

    lakebed.Repository(store).open("d").compact(head="tree")

    assert held == [False, True]
    assert state_in(bucket).held is None


@pytest.mark.parametrize("head", HEADS)
def test_commit_waits_for_one_that_never_comes_only_once(bucket: MemoryStore, head: str) -> None:
    dataset = created(bucket, head)
    hold(bucket, seconds=1)

    began = time.monotonic()
    dataset.append(pa.table({"id": [1]}))
    first_s = time.monotonic() - began
    dataset.append(pa.table({"id": [2]}))
    second_s = time.monotonic() - began - first_s

    assert first_s >= 1
    assert second_s < 1
    assert state_in(bucket).held is None
    assert dataset.count() == 3


def test_wait_leaves_a_commit_the_time_to_be_made(bucket: MemoryStore) -> None:
    dataset = created(bucket)
    hold(bucket, seconds=300)
    dataset = dataset.with_options(commit=lakebed.CommitOptions(deadline_s=1))

    dataset.append(pa.table({"id": [1]}))

    assert dataset.count() == 2


def test_commit_that_fails_removes_its_hold(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    created(bucket)
    held: list[HeldFor | None] = []

    fail_to_move(OfProcess(bucket), lambda: held.append(state_in(bucket).held))

    (before,) = held
    assert before is not None
    assert state_in(bucket).held is None
    assert not state_in(bucket).is_tree


@pytest.mark.parametrize("head", HEADS)
def test_head_after_a_failure_is_none_that_was_there_before(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    dataset = created(bucket, head)
    key = read_head(bucket, "d").key

    contents = fail_to_move(OfProcess(bucket), head=OTHER[head])

    # A put that has failed under the etag of one of them can never land.
    assert bytes(bucket.get(key).data) not in contents
    assert state_in(bucket).held is None
    dataset.append(pa.table({"id": [1]}))
    assert "lakebed.held" not in decode_head(bucket.get(key).data, HeadFormat.MSGPACK, key).metadata


def test_hold_whose_answer_was_lost_is_removed_too(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    created(bucket)

    class Losing(OfProcess):
        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            etag = super()._replace(key, data, if_match=if_match)
            if state_in(bucket).held is not None:
                raise StorageError("The answer is lost.", retryable=True)
            return etag

    held: list[HeldFor | None] = []

    fail_to_move(Losing(bucket), lambda: held.append(state_in(bucket).held))

    (before,) = held
    assert before is not None
    assert state_in(bucket).held is None


def test_commit_that_fails_does_not_wait_for_the_hold_of_another(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    created(bucket)

    began = time.monotonic()
    # A commit has removed the hold, and one has placed its own.
    fail_to_move(OfProcess(bucket), lambda: hold(bucket, seconds=30))

    assert time.monotonic() - began < 15
    assert state_in(bucket).held == HeldFor("of another", 30)


def test_hold_of_another_commit_is_not_replaced_but_waited_for(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    created(bucket)
    hold(bucket, seconds=1)
    store = OfProcess(bucket)

    began = time.monotonic()
    lakebed.Repository(store).open("d").compact(head="tree")

    assert time.monotonic() - began >= 1
    assert state_in(bucket).is_tree
    assert state_in(bucket).held is None


def test_hold_of_a_process_that_died_is_waited_for_once(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    waits: list[str] = []

    def wait(head: Head, one: HeldFor, _until: float, _read: Callable[[], Head]) -> Head:
        waits.append(one.commit_id)
        return head

    monkeypatch.setattr(patience, "wait", wait)
    created(bucket)
    hold(bucket, seconds=9, commit_id="dead")

    lakebed.Repository(OfProcess(bucket)).open("d").compact(head="tree")

    assert waits == ["dead"] * 2  # before it asks itself, and before its attempt
    assert state_in(bucket).is_tree


def test_without_a_hold_the_change_would_lose_every_race(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience.Holding, "begin", lambda _self: False)
    created(bucket)
    store = OfProcess(bucket)
    mover = lakebed.Repository(store).open("d")
    mover = mover.with_options(commit=lakebed.CommitOptions(deadline_s=0.5))
    rival = Rival(bucket)
    store.before_head = rival.ask

    with rival.working(), pytest.raises(CommitConflictError, match="lost"):
        mover.compact(head="tree")

    assert not state_in(bucket).is_tree


def test_erasure_asks_for_patience_too(
    bucket: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "MOST_LISTED", 0)
    created(bucket, "tree")
    store = OfProcess(bucket)
    held: list[bool] = []
    store.before_head = lambda _data: held.append(state_in(bucket).held is not None)

    lakebed.Repository(store).open("d").erase("id = -1", reason="asked for")

    assert True in held
    assert state_in(bucket).held is None
