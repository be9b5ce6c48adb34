"""A head moves to the other format beside readers, writers, crashes and sleepers."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zstandard

import lakebed
from lakebed import by
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidInputError,
    StorageError,
)
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.posix import PosixStore
from lakebed.testing import CountingStore, DelegatingStore, FailingStore

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("tag", pa.string())]), partition_by=[by.identity("p")]
)
JSON, MSGPACK = HeadFormat.JSON, HeadFormat.MSGPACK
BOTH_WAYS = [(JSON, MSGPACK), (MSGPACK, JSON)]
OTHER = {JSON: MSGPACK, MSGPACK: JSON}

both_ways = pytest.mark.parametrize(("old", "new"), BOTH_WAYS, ids=["json", "msgpack"])
_names = itertools.count()


class SteppedStore(DelegatingStore):
    """Calls a hook before and after each call that reads, writes or removes an object."""

    def __init__(self, inner: Store, hook: Callable[[int, bool, str, str], None]) -> None:
        super().__init__(inner)
        self.calls = 0
        self._hook = hook

    def _step(self, operation: str, key: str, call: Callable[[], Any]) -> Any:
        self.calls += 1
        number = self.calls
        self._hook(number, False, operation, key)
        try:
            return call()
        finally:
            self._hook(number, True, operation, key)

    def _get(self, key: str) -> Any:
        return self._step("get", key, lambda: self.inner.get(key))

    def _get_if_changed(self, key: str, etag: str) -> Any:
        return self._step("get", key, lambda: self.inner.get_if_changed(key, etag=etag))

    def _create(self, key: str, data: memoryview) -> Any:
        return self._step("create", key, lambda: self.inner.create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> Any:
        swap = lambda: self.inner.replace(key, data, if_match=if_match)  # noqa: E731 - read once
        return self._step("replace", key, swap)

    def _put(self, key: str, data: memoryview) -> Any:
        return self._step("put", key, lambda: self.inner.put(key, data))

    def _delete(self, keys: Any) -> Any:
        return self._step("delete", keys[0], lambda: self.inner.delete(keys))

    def _delete_if_match(self, key: str, etag: str) -> Any:
        return self._step("delete", key, lambda: self.inner.delete_if_match(key, etag=etag))


class Killed(BaseException):
    """The process is gone."""


class Lake:
    """A dataset of one batch in a store of its own."""

    def __init__(self, head_format: HeadFormat) -> None:
        self.store = open_store(f"memory://handover-{next(_names)}")
        self.tags = ["first"]
        created = lakebed.Repository(self.store).create("d", DESCRIPTOR, head_format=head_format)
        created.append([{"p": "a", "tag": "first"}])

    def append(self, tag: str) -> None:
        lakebed.Repository(self.store).open("d").append([{"p": "a", "tag": tag}])
        self.tags.append(tag)

    def heads(self) -> list[str]:
        return [info.key for info in self.store.list("", recursive=False)]

    def assert_whole(self) -> int:
        """Check what a reader sees, with the cache of this process and without."""
        versions = []
        for clears in (False, True):
            if clears:
                PROCESS_CACHE.clear()
            dataset = lakebed.Repository(self.store).open("d")
            assert sorted(dataset.arrow().column("tag").to_pylist()) == sorted(self.tags)
            versions.append(dataset.version)
            assert [one.version for one in dataset.history()] == list(range(dataset.version + 1))
        assert len(set(versions)) == 1
        return versions[0]

    def assert_settled(self, head_format: HeadFormat) -> None:
        """Check that there is one head, and that commits go on."""
        assert self.heads() == [head_format.key("d")]
        before = self.assert_whole()
        self.append(f"after-{before}")
        assert self.assert_whole() == before + 1
        assert self.heads() == [head_format.key("d")]


@both_ways
def test_a_handed_over_head_says_the_same_in_the_other_format(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)
    before = read_head(lake.store, "d").state

    entry = hand_over(lake.store, "d", new)

    after = read_head(lake.store, "d").state
    assert (entry.operation, entry.version) == ("hand-over", before.version + 1)
    assert (after.version, after.head_format, after.moves_to) == (entry.version, new, None)
    assert (after.labels, after.descriptor, after.lists.files) == (
        before.labels,
        before.descriptor,
        before.lists.files,
    )
    lake.assert_settled(new)


@both_ways
def test_a_head_goes_there_and_back_any_number_of_times(old: HeadFormat, new: HeadFormat) -> None:
    lake = Lake(old)

    for number in range(3):
        hand_over(lake.store, "d", new)
        lake.append(f"{number}-there")
        hand_over(lake.store, "d", old)
        lake.append(f"{number}-back")

    lake.assert_settled(old)


@both_ways
def test_a_head_that_has_the_format_stays_as_it_is(old: HeadFormat, new: HeadFormat) -> None:
    lake = Lake(old)
    hand_over(lake.store, "d", new)
    lake.append("later")
    version = lake.assert_whole()

    entry = hand_over(lake.store, "d", new)

    assert (entry.operation, entry.version) == ("append", version)
    assert lake.assert_whole() == version


def test_what_cannot_be_handed_over_is_refused_before_anything_changed() -> None:
    lake = Lake(JSON)
    document = json.loads(lake.store.get(JSON.key("d")).data)
    document["metadata"]["theirs"] = 10**30  # msgpack ends at 2**64
    lake.store.put(JSON.key("d"), json.dumps(document).encode())

    with pytest.raises(InvalidInputError, match=r"as msgpack\.zstd"):
        hand_over(lake.store, "d", MSGPACK)

    lake.assert_settled(JSON)
    with pytest.raises(DatasetNotFoundError):
        hand_over(lake.store, "e", MSGPACK)


def steps_of(old: HeadFormat, new: HeadFormat) -> list[tuple[str, str]]:
    lake, steps = Lake(old), list[tuple[str, str]]()
    store = SteppedStore(
        lake.store,
        lambda _, is_after, operation, key: None if is_after else steps.append((operation, key)),
    )
    hand_over(store, "d", new)
    return steps


@both_ways
def test_a_hand_over_announces_then_creates_then_confirms_then_removes(
    old: HeadFormat, new: HeadFormat
) -> None:
    changes = [(operation, key) for operation, key in steps_of(old, new) if operation != "get"]

    assert [changes[0][0], *changes[1:]] == [
        "put",
        ("replace", old.key("d")),
        ("create", new.key("d")),
        ("replace", new.key("d")),
        ("delete", old.key("d")),
    ]


@both_ways
def test_releases_that_confirm_nothing_refuse_a_head_while_it_moves(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)
    told: list[list[str]] = []

    def note(*_: object) -> None:
        now = sorted(_format_version(lake.store, key) for key in lake.heads())
        if now not in told:
            told.append(now)

    hand_over(SteppedStore(lake.store, note), "d", new)
    lake.append("later")

    # As it was; announced; a new one beside it; that one confirmed; that one alone.
    assert told == [["1"], ["3"], ["3", "3"], ["2", "3"], ["2"]]
    assert _format_version(lake.store, new.key("d")) == "1"


def _format_version(store: Store, key: str) -> str:
    data = store.get(key).data
    if key.endswith(".json"):
        head = json.loads(data)
    else:
        head = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data))
    return str(head["metadata"]["lakebed.format_version"])


@pytest.mark.thorough
@both_ways
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_readers_read_on_and_the_next_writer_finishes(
    old: HeadFormat, new: HeadFormat, is_after: bool
) -> None:
    for nth in range(1, len(steps_of(old, new)) + 1):
        lake, landed = Lake(old), False
        version = lake.assert_whole()

        def die(number: int, after: bool, operation: str, key: str, nth: int = nth) -> None:
            nonlocal landed
            landed = landed or (after and operation == "replace")
            if number > nth or (number == nth and after is is_after):
                raise Killed

        with pytest.raises(Killed):
            hand_over(SteppedStore(lake.store, die), "d", new)

        assert lake.assert_whole() == version + landed
        lake.append("next")
        assert lake.assert_whole() == version + landed + 1
        lake.assert_settled(new if landed else old)


@pytest.mark.thorough
@both_ways
def test_whatever_others_do_between_two_calls_nothing_is_lost(
    old: HeadFormat, new: HeadFormat
) -> None:
    def append(lake: Lake) -> None:
        lake.append("other")

    def finish(lake: Lake) -> None:
        hand_over(lake.store, "d", new)
        lake.append("other")

    def go_on_and_return(lake: Lake) -> None:
        hand_over(lake.store, "d", new)
        lake.append("there")
        hand_over(lake.store, "d", old)
        lake.append("back")

    def return_twice(lake: Lake) -> None:
        go_on_and_return(lake)
        hand_over(lake.store, "d", new)
        lake.append("there again")

    for others in (append, finish, go_on_and_return, return_twice):
        nth = 0
        while True:
            nth += 1
            lake, has_run = Lake(old), False

            def interfere(number: int, after: bool, *_: str) -> None:
                nonlocal has_run
                if number == nth and not after and not has_run:  # noqa: B023 - run at once
                    has_run = True
                    lake.assert_whole()  # noqa: B023
                    others(lake)  # noqa: B023
                    lake.assert_whole()  # noqa: B023

            hand_over(SteppedStore(lake.store, interfere), "d", new)
            if not has_run:
                break
            ended = read_head(lake.store, "d").state.head_format
            lake.append("last")
            lake.assert_settled(ended)


@both_ways
def test_a_head_written_long_after_its_time_misleads_nobody(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)

    def sleep(_: int, after: bool, operation: str, key: str) -> None:
        if (after, operation, key) == (False, "create", new.key("d")) and len(lake.tags) == 1:
            lake.append("finished by another")
            hand_over(lake.store, "d", old)
            lake.append("and handed back")

    hand_over(SteppedStore(lake.store, sleep), "d", new)

    assert lake.assert_whole() >= 5
    lake.append("later")
    hand_over(lake.store, "d", new)
    lake.assert_settled(new)


class LateStore(DelegatingStore):
    """Keeps the creation of one object back; it lands when it is told to."""

    def __init__(self, inner: Store, key: str) -> None:
        super().__init__(inner)
        self._key = key
        self.land: Callable[[], object] | None = None

    def _create(self, key: str, data: memoryview) -> str:
        if key == self._key and self.land is None:
            kept = bytes(data)
            self.land = lambda: self.inner.create(key, kept)
            raise StorageError("timed out", retryable=True)
        return super()._create(key, data)


@both_ways
def test_a_head_that_lands_long_after_its_time_is_deleted_as_a_check_says(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)
    late = LateStore(lake.store, new.key("d"))
    with pytest.raises(StorageError):
        hand_over(late, "d", new)
    lake.append("finished by another")
    hand_over(lake.store, "d", old)
    lake.append("and handed back")
    assert late.land is not None
    late.land()
    assert len(lake.heads()) == 2
    dataset = lakebed.Repository(lake.store).open("d")

    (problem,) = dataset.check().problems
    if "next commit" in problem.remedy:
        lake.append("the next commit")
    else:
        assert "repair" in problem.remedy
        assert dataset.check(repair=True).is_ok

    assert dataset.check().is_ok
    lake.assert_settled(old)


@both_ways
def test_a_head_removed_long_after_its_time_is_still_there(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)

    def sleep(_: int, after: bool, operation: str, key: str) -> None:
        if (after, operation, key) == (False, "delete", old.key("d")) and len(lake.tags) == 1:
            lake.append("finished by another")
            hand_over(lake.store, "d", old)
            lake.append("and handed back")

    hand_over(SteppedStore(lake.store, sleep), "d", new)

    lake.assert_settled(old)


@both_ways
def test_of_two_datasets_of_one_name_the_later_one_is_read(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)

    def drop(_: int, after: bool, operation: str, key: str) -> None:
        if (after, operation, key) == (False, "create", new.key("d")) and len(lake.tags) == 1:
            repository = lakebed.Repository(lake.store)
            repository.drop("d")
            repository.create("d", DESCRIPTOR, head_format=old)
            lake.tags.clear()
            lake.append("of the new dataset")

    hand_over(SteppedStore(lake.store, drop), "d", new)

    lake.assert_whole()
    lake.append("later")
    hand_over(lake.store, "d", new)
    lake.assert_settled(new)


@pytest.mark.thorough
@both_ways
@pytest.mark.parametrize("landed", [False, True], ids=["lost", "landed"])
@pytest.mark.parametrize("operation", ["get", "put", "replace", "create", "delete"])
def test_a_lost_answer_leaves_a_hand_over_that_can_be_repeated(
    old: HeadFormat, new: HeadFormat, operation: Any, landed: bool
) -> None:
    for nth in range(1, 8):
        lake = Lake(old)
        store = FailingStore(lake.store, fail_on=operation, nth=nth, landed=landed)

        try:
            hand_over(store, "d", new)
        except StorageError:
            lake.assert_whole()
            hand_over(store, "d", new)

        lake.assert_settled(new)


@both_ways
def test_a_put_to_a_head_that_has_moved_since_is_known_to_be_lost(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)

    def move_before_put(_: int, after: bool, operation: str, key: str) -> None:
        if (after, operation, key) == (False, "replace", old.key("d")):
            hand_over(lake.store, "d", new)
            lake.append("other")
            raise StorageError("The put got lost.", retryable=True)

    dataset = lakebed.Repository(SteppedStore(lake.store, move_before_put)).open("d")

    with pytest.raises(CommitConflictError, match="both touch p=a"):
        dataset.overwrite([{"p": "a", "tag": "mine"}])

    lake.assert_settled(new)
    held = {info.key for info in lake.store.list("d/data/") if info.key.endswith(".parquet")}
    assert held == {file.key for file in lakebed.Repository(lake.store).open("d").files()}


def spoil_labels(lake: Lake, head_format: HeadFormat, write_as: HeadFormat, label: str) -> None:
    """Add a file as plateau does: into the head, which keeps our entries."""
    data = lake.store.get(head_format.key("d")).data
    if head_format is MSGPACK:
        document = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(data))
    else:
        document = json.loads(data)
    theirs = {"files": {"data": f"d/data/{label}.parquet"}}
    document["partitions"][label] = theirs
    assert write_as is JSON  # it writes no other
    lake.store.put(JSON.key("d"), json.dumps(document).encode())


LABEL = "p=a/batch_id=1/0123456789abcdef0123456789abcdef"


def announce(lake: Lake, new: HeadFormat) -> None:
    """Leave a hand-over that was announced, and no more."""

    def die(_: int, after: bool, operation: str, key: str) -> None:
        if operation == "create":
            raise Killed

    with pytest.raises(Killed):
        hand_over(SteppedStore(lake.store, die), "d", new)


@both_ways
def test_what_plateau_changed_after_the_announcement_comes_along(
    old: HeadFormat, new: HeadFormat
) -> None:
    lake = Lake(old)
    announce(lake, new)
    spoil_labels(lake, old, JSON, LABEL)
    assert LABEL in read_head(lake.store, "d").state.labels

    lakebed.Repository(lake.store).open("d").append([{"p": "b", "tag": "ours"}])

    head = read_head(lake.store, "d")
    assert (head.state.head_format, head.stale) == (new, None)
    assert LABEL in head.state.labels
    operations = [one.operation for one in lakebed.Repository(lake.store).open("d").history()]
    assert operations == ["create", "append", "hand-over", "foreign", "append"]
    assert lake.heads() == [new.key("d")]


def test_what_plateau_changed_after_the_new_head_was_written_comes_along() -> None:
    lake = Lake(JSON)

    def change(_: int, after: bool, operation: str, key: str) -> None:
        if (after, operation, key) == (True, "create", MSGPACK.key("d")):
            spoil_labels(lake, JSON, JSON, LABEL)

    hand_over(SteppedStore(lake.store, change), "d", MSGPACK)

    head = read_head(lake.store, "d")
    assert (head.state.head_format, head.stale) == (MSGPACK, None)
    assert LABEL in head.state.labels
    assert lake.heads() == [MSGPACK.key("d")]


def test_two_heads_that_each_hold_what_the_other_lacks_are_for_a_person() -> None:
    lake = Lake(JSON)
    announce(lake, MSGPACK)
    announced = lake.store.get(JSON.key("d")).data
    lake.append("in the new head")
    lake.store.put(JSON.key("d"), announced)
    spoil_labels(lake, JSON, JSON, LABEL)

    with pytest.raises(CorruptMetadataError, match="two heads"):
        read_head(lake.store, "d")


def test_a_dataset_is_dropped_in_the_midst_of_a_hand_over() -> None:
    lake = Lake(JSON)
    announce(lake, MSGPACK)

    lakebed.Repository(lake.store).drop("d")

    assert not list(lake.store.list())


def test_a_hand_over_costs_a_commit_and_a_few_requests() -> None:
    lake = Lake(JSON)
    store = CountingStore(lake.store)

    hand_over(store, "d", MSGPACK)

    assert (store.counts.put, store.counts.delete, store.counts.list) == (4, 1, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_writers_and_readers_go_on_while_the_head_moves_to_and_fro(
    kind: str, tmp_path: Any
) -> None:
    if kind == "memory":
        store = open_store(f"memory://handover-{next(_names)}")
    else:
        store = PosixStore(tmp_path, durable=False)
    lakebed.Repository(store).create("d", DESCRIPTOR)
    writers, commits = 3, 6
    ended = threading.Event()

    def write(number: int) -> list[int]:
        dataset = lakebed.Repository(store).open("d")
        rows = [[{"p": "a", "tag": f"{number}-{n}"}] * 2 for n in range(commits)]
        return [dataset.append(one).version for one in rows]

    def move() -> int:
        moves = 0
        for target in itertools.cycle([MSGPACK, JSON]):
            hand_over(store, "d", target)
            moves += 1
            # A head that moves all the time leaves no room for commits: so it moves less and less.
            if ended.wait(0.02 * moves):
                return moves
        return moves

    def read() -> Iterator[tuple[int, int]]:
        while not ended.is_set():
            dataset = lakebed.Repository(store).open("d")
            yield dataset.version, dataset.count()

    with ThreadPoolExecutor(writers + 2) as pool:
        mover, reader = pool.submit(move), pool.submit(lambda: list(read()))
        acknowledged = [pool.submit(write, number) for number in range(writers)]
        try:
            versions = [version for one in acknowledged for version in one.result()]
        finally:
            ended.set()
        moves, seen = mover.result(), reader.result()

    dataset = lakebed.Repository(store).open("d")
    assert len(set(versions)) == len(versions) == writers * commits
    assert dataset.count() == 2 * writers * commits
    operations = [one.operation for one in dataset.history()]
    assert operations.count("append") == writers * commits
    assert [one.version for one in dataset.history()] == list(range(len(operations)))
    assert moves >= 2
    assert len(list(store.list("", recursive=False))) == 1
    assert seen == sorted(seen)
    assert all(count % 2 == 0 for _, count in seen)
