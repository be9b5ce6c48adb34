"""A commit on a store that fails at any of its calls."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zstandard
from copies import copy_of

import lakebed
from lakebed import by
from lakebed.errors import (
    AccessDeniedError,
    CommitConflictError,
    CommitUnknownError,
    LakebedError,
    ObjectExistsError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.state import reservation
from lakebed.store import Store, open_store, segments
from lakebed.testing import DelegatingStore, FailingStore

pytestmark = pytest.mark.thorough

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("tag", pa.string())]), partition_by=[by.identity("p")]
)
HEAD = "d.by-dataset-metadata.json"
# Long enough for a second attempt on a busy machine.
QUICK = lakebed.CommitOptions(deadline_s=0.2, first_wait_ms=1, longest_wait_ms=5)
LOST = StorageError("The answer was lost.", retryable=True)
MERGE_AT = 2
FULL = StorageError("No room.")
DENIED = AccessDeniedError("Access was denied.")

_names = itertools.count()


@pytest.fixture(autouse=True)
def _merge_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commit merge segments, so that its reads and writes fail too."""
    monkeypatch.setattr(segments, "FANOUT", MERGE_AT)
    monkeypatch.setattr(reservation, "_WAITS_S", (0.0, 0.001))


class HookedStore(DelegatingStore):
    """Calls a hook before and after each call; what the hook raises, the call raises."""

    def __init__(
        self,
        inner: Store,
        before: Callable[[str, str], None] = lambda operation, key: None,
        after: Callable[[str, str], None] = lambda operation, key: None,
    ) -> None:
        super().__init__(inner)
        self._before = before
        self._after = after

    def _hooked(self, operation: str, key: str, call: Callable[[], Any]) -> Any:
        self._before(operation, key)
        answer = call()
        self._after(operation, key)
        return answer

    def _get(self, key: str) -> Any:
        return self._hooked("get", key, lambda: self.inner.get(key))

    def _get_if_changed(self, key: str, etag: str) -> Any:
        return self._hooked("get", key, lambda: self.inner.get_if_changed(key, etag=etag))

    def _size(self, key: str) -> Any:
        return self._hooked("size", key, lambda: self.inner.size(key))

    def _create(self, key: str, data: memoryview) -> Any:
        return self._hooked("create", key, lambda: self.inner.create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> Any:
        swap = lambda: self.inner.replace(key, data, if_match=if_match)  # noqa: E731 - read once
        return self._hooked("replace", key, swap)

    def _put(self, key: str, data: memoryview) -> Any:
        return self._hooked("put", key, lambda: self.inner.put(key, data))

    def _delete(self, keys: Any) -> Any:
        return self._hooked("delete", keys[0], lambda: self.inner.delete(keys))

    def _delete_if_match(self, key: str, etag: str) -> Any:
        return self._hooked("delete", key, lambda: self.inner.delete_if_match(key, etag=etag))


@functools.cache
def one_batch() -> Store:
    store = open_store(f"memory://faults-{next(_names)}")
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR)
    dataset.append([{"p": "a", "tag": "old"}, {"p": "b", "tag": "old"}])
    return store


class Lake:
    """A store of its own with a dataset of one batch."""

    def __init__(self) -> None:
        self.store = copy_of(one_batch())
        self.dataset = lakebed.Repository(self.store).open("d")
        self.tags_before = self.tags()
        self.version = self.dataset.version

    def through(self, store: Store) -> lakebed.Dataset:
        return lakebed.Repository(store).open("d")

    def tags(self) -> list[tuple[str, str]]:
        rows = lakebed.Repository(self.store).open("d").arrow().to_pylist()
        return sorted((row["p"], row["tag"]) for row in rows)

    def tags_after(self, operation: str) -> list[tuple[str, str]]:
        kept = [one for one in self.tags_before if operation == "append" or one[0] != "a"]
        return sorted([*kept, ("a", "new")])

    def orphans(self) -> set[str]:
        """Data files that no commit has ever made visible."""
        commits = self.dataset.history()
        known = {key for commit in commits for key in commit.files_added}
        held = {info.key for info in self.store.list("d/data/")}
        return {key for key in held - known if not key.endswith("_common_metadata")}

    def assert_untouched(self, *, but_orphans: bool = False) -> None:
        assert self.tags() == self.tags_before
        assert self.dataset.version == self.version
        assert but_orphans or not self.orphans()
        self.assert_works()

    def assert_committed_once(self, operation: str) -> None:
        assert self.tags() == self.tags_after(operation)
        assert self.dataset.version == self.version + 1
        assert len(self.dataset.history()) == self.version + 2
        assert not self.orphans()
        self.assert_works()

    def assert_works(self) -> None:
        """Every version can be read, and the next commit succeeds."""
        tags = self.tags()
        for version in range(self.dataset.version + 1):
            self.dataset.at(version=version).arrow()
        self.dataset.append([{"p": "c", "tag": "next"}])
        assert self.tags() == sorted([*tags, ("c", "next")])


def write(dataset: lakebed.Dataset, operation: str) -> lakebed.Commit:
    commit: lakebed.Commit = getattr(dataset.with_options(commit=QUICK), operation)(
        [{"p": "a", "tag": "new"}]
    )
    return commit


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a commit to its store: what, on which key, and as the how manieth of its name."""

    name: Any
    key: str
    nth: int

    @property
    def kind(self) -> tuple[str, str]:
        return self.name, self.key.split("/")[1] if "/" in self.key else "head"


@functools.cache
def calls_of(operation: str) -> tuple[Call, ...]:
    seen: list[tuple[str, str]] = []
    recording = HookedStore(Lake().store, before=lambda name, key: seen.append((name, key)))
    write(lakebed.Repository(recording).open("d"), operation)
    counts = collections.Counter[str]()
    calls = []
    for name, key in seen:
        counts[name] += 1
        calls.append(Call(name, key, counts[name]))
    return tuple(calls[1:])  # the first one opened the dataset


each_operation = pytest.mark.parametrize("operation", ["append", "overwrite"])


def test_matrix_holds_every_kind_of_call() -> None:
    kinds = {call.kind for name in ("append", "overwrite") for call in calls_of(name)}

    assert kinds >= {
        ("create", "batches"),
        ("put", "data"),
        ("replace", "batches"),
        ("put", "files"),
        ("get", "head"),
        ("put", "history"),
        ("get", "history"),
        ("get", "files"),
        ("replace", "head"),
    }


@each_operation
@pytest.mark.parametrize("landed", [False, True], ids=["refused", "landed"])
def test_lost_answer_leaves_one_commit_or_none(
    subtests: pytest.Subtests, operation: str, landed: bool
) -> None:
    for call in calls_of(operation):
        with subtests.test(call=call):
            lake = Lake()
            failing = FailingStore(
                lake.store, fail_on=call.name, nth=call.nth, landed=landed, error=LOST
            )

            failure = failure_of(write, lake.through(failing), operation)

            assert failing.has_failed
            if failure is None:
                lake.assert_committed_once(operation)
            else:
                assert failure is LOST  # not CommitUnknownError: the store answers again
                lake.assert_untouched()


def failure_of(act: Callable[..., object], *arguments: Any) -> LakebedError | None:
    try:
        act(*arguments)
    except LakebedError as error:
        return error
    return None


@each_operation
@pytest.mark.parametrize("refusal", [FULL, DENIED], ids=["full", "denied"])
def test_refusal_leaves_nothing_and_is_told_as_it_is(
    subtests: pytest.Subtests, operation: str, refusal: StorageError
) -> None:
    for call in calls_of(operation):
        with subtests.test(call=call):
            lake = Lake()
            failing = FailingStore(lake.store, fail_on=call.name, nth=call.nth, error=refusal)
            dataset = lake.through(failing)

            with pytest.raises(StorageError) as caught:
                write(dataset, operation)

            assert caught.value is refusal
            lake.assert_untouched()


@each_operation
@pytest.mark.parametrize("landed", [False, True], ids=["refused", "landed"])
def test_silent_store_makes_a_commit_unknown_only_once_the_head_was_put(
    subtests: pytest.Subtests, operation: str, landed: bool
) -> None:
    for call in calls_of(operation):
        with subtests.test(call=call):
            fall_silent(call, operation, landed=landed)


def fall_silent(call: Call, operation: str, *, landed: bool) -> None:
    lake = Lake()
    counts = collections.Counter[str]()
    is_silent = False

    def before(called: str, _: str) -> None:
        nonlocal is_silent
        counts[called] += 1
        if is_silent and called != "delete":  # so that a wrong deletion does its damage
            raise LOST
        is_silent = (called, counts[called]) == (call.name, call.nth)
        if is_silent and not landed:
            raise LOST

    def after(called: str, _: str) -> None:
        if is_silent and called != "delete":
            raise LOST

    dataset = lake.through(HookedStore(lake.store, before, after))

    with pytest.raises(LakebedError) as caught:
        write(dataset, operation)

    is_swap = (call.name, call.key) == ("replace", HEAD)
    assert isinstance(caught.value, CommitUnknownError) is is_swap
    if not is_swap:
        assert caught.value is LOST
        lake.assert_untouched()
        return
    commits = [commit.commit_id for commit in lake.dataset.history()]
    assert (caught.value.commit_id in commits) is landed
    assert caught.value.commit_id in str(caught.value)
    if landed:
        lake.assert_committed_once(operation)
    else:
        assert lake.orphans()  # the put might still have landed
        lake.assert_untouched(but_orphans=True)


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_put_that_lands_late_is_found_and_not_repeated(operation: str) -> None:
    lake = Lake()

    class LateStore(DelegatingStore):
        """Carries out the first swap of the head only when the second one comes."""

        late: tuple[bytes, str] | None = None

        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key == HEAD and self.late is None:
                self.late = (bytes(data), if_match)
                raise LOST
            if key == HEAD:
                self.inner.replace(key, self.late[0], if_match=self.late[1])
            return super()._replace(key, data, if_match=if_match)

    write(lake.through(LateStore(lake.store)), operation)

    lake.assert_committed_once(operation)


def test_commit_that_landed_is_found_under_commits_of_others() -> None:
    lake = Lake()

    def after(name: str, key: str) -> None:
        if (name, key) == ("replace", HEAD) and len(lake.dataset.history()) == 3:
            for _ in range(5):
                lake.dataset.append([{"p": "z", "tag": "other"}])
            raise LOST

    commit = write(lake.through(HookedStore(lake.store, after=after)), "overwrite")

    assert commit.version == 2
    assert lake.tags() == [("a", "new"), ("b", "old"), *[("z", "other")] * 5]
    assert not lake.orphans()


def test_put_that_the_client_repeated_is_no_conflict_even_when_time_is_up() -> None:
    lake = Lake()

    def after(name: str, key: str) -> None:
        if (name, key) == ("replace", HEAD):
            raise PreconditionFailedError("The second put found the first.")

    dataset = lake.through(HookedStore(lake.store, after=after))

    commit = dataset.with_options(commit=lakebed.CommitOptions(deadline_s=0)).append(
        [{"p": "a", "tag": "new"}]
    )

    assert commit.version == 2
    lake.assert_committed_once("append")


def test_put_that_the_client_repeated_is_unknown_if_the_head_cannot_be_read_again() -> None:
    lake = Lake()
    has_put = False

    def before(name: str, key: str) -> None:
        if has_put and name == "get":
            raise LOST

    def after(name: str, key: str) -> None:
        nonlocal has_put
        if (name, key) == ("replace", HEAD):
            has_put = True
            raise PreconditionFailedError("The second put found the first.")

    with pytest.raises(CommitUnknownError):
        write(lake.through(HookedStore(lake.store, before, after)), "append")

    lake.assert_committed_once("append")


def test_conflict_is_not_told_while_a_put_may_still_land_on_a_twin() -> None:
    """Our put to the msgpack head is under way when plateau writes a JSON head beside it."""
    store = open_store(f"memory://faults-{next(_names)}")
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR, head_format="msgpack.zstd")
    dataset.append([{"p": "a", "tag": "old"}])

    def before(name: str, key: str) -> None:
        if name == "replace" and key == HEAD.replace("json", "msgpack.zstd"):
            write_twin(store)
            document = msgspec.json.decode(store.get(HEAD).data)
            document["partitions"].clear()
            store.put(HEAD, msgspec.json.encode(document))
            raise LOST

    with pytest.raises(CommitUnknownError, match="conflicts with a change by another tool"):
        write(lakebed.Repository(HookedStore(store, before)).open("d"), "overwrite")

    assert sum(info.key.endswith(".parquet") for info in store.list("d/data/")) == 2


def test_endless_races_are_lost_with_a_conflict_and_leave_nothing() -> None:
    lake = Lake()
    is_other = False

    def before(name: str, key: str) -> None:
        nonlocal is_other
        if (name, key) == ("replace", HEAD) and not is_other:
            is_other = True
            lake.dataset.append([{"p": "z", "tag": "other"}])
            is_other = False

    with pytest.raises(CommitConflictError, match=r"lost \d+ races") as caught:
        write(lake.through(HookedStore(lake.store, before)), "append")

    assert caught.value.expected == 1
    assert caught.value.actual == lake.dataset.version > 1
    assert {tag for _, tag in lake.tags()} == {"old", "other"}
    assert not lake.orphans()
    assert_no_segment_is_left_over(lake)


def test_lost_races_leave_no_segments() -> None:
    lake = Lake()
    left = 3

    def before(name: str, key: str) -> None:
        nonlocal left
        if (name, key) == ("replace", HEAD) and left:
            left -= 1
            lake.dataset.append([{"p": "z", "tag": "other"}])

    commit = lake.through(HookedStore(lake.store, before)).append([{"p": "a", "tag": "new"}])

    assert commit.version == 5
    assert_no_segment_is_left_over(lake)


def assert_no_segment_is_left_over(lake: Lake) -> None:
    """Every commit of a dataset that never merges has one segment of each kind."""
    commits = len(lake.dataset.history())
    history = sum(1 for _ in lake.store.list("d/history/"))
    assert history <= 2 * commits  # its own segment, and at most one that merged it


def test_commit_is_not_undone_by_what_follows_it() -> None:
    """A stale twin that cannot be deleted must not make the commit look like a failure."""
    store = open_store(f"memory://faults-{next(_names)}")
    repository = lakebed.Repository(store)
    dataset = repository.create("d", DESCRIPTOR, head_format="msgpack.zstd")
    dataset.append([{"p": "a", "tag": "old"}])
    write_twin(store)

    def before(name: str, key: str) -> None:
        if name == "delete":
            raise DENIED

    guarded = lakebed.Repository(HookedStore(store, before)).open("d")
    commit = guarded.with_options(commit=QUICK).append([{"p": "a", "tag": "new"}])

    assert commit.version == 2
    tags = sorted(repository.open("d").arrow(["tag"]).column("tag").to_pylist())
    assert tags == ["new", "old"]


def write_twin(store: Store) -> None:
    """Write the JSON head that plateau writes beside a msgpack head."""
    packed = store.get("d.by-dataset-metadata.msgpack.zstd").data
    document = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(packed))
    store.create(HEAD, msgspec.json.encode(document))


def test_dataset_that_was_dropped_meanwhile_is_not_found_and_nothing_is_left() -> None:
    lake = Lake()

    def rows() -> Iterator[dict[str, str]]:
        lakebed.Repository(lake.store).drop("d")
        yield {"p": "a", "tag": "new"}

    with pytest.raises(lakebed.errors.DatasetNotFoundError):
        lake.dataset.append(rows())

    assert list(lake.store.list()) == []


def test_dataset_that_was_created_again_meanwhile_takes_nothing_of_the_old() -> None:
    lake = Lake()
    repository = lakebed.Repository(lake.store)

    def rows() -> Iterator[dict[str, str]]:
        repository.drop("d")
        repository.create("d", DESCRIPTOR).append([{"p": "a", "tag": "fresh"}])
        yield {"p": "a", "tag": "new"}

    with pytest.raises(CommitConflictError, match="dropped and created again"):
        lake.dataset.append(rows())

    assert lake.tags() == [("a", "fresh")]
    assert not lake.orphans()


def test_drop_spares_a_dataset_that_is_created_in_its_midst() -> None:
    lake = Lake()
    repository = lakebed.Repository(lake.store)

    def after(name: str, key: str) -> None:
        if (name, key) == ("delete", HEAD):
            repository.create("d", DESCRIPTOR).append([{"p": "a", "tag": "fresh"}])

    lakebed.Repository(HookedStore(lake.store, after=after)).drop("d")

    assert lake.tags() == [("a", "fresh")]
    assert lake.store.size("d/data/_common_metadata")
    assert len(lake.dataset.history()) == 2


@pytest.mark.parametrize("landed", [False, True], ids=["refused", "landed"])
def test_creation_with_a_lost_answer_happens_once(landed: bool) -> None:
    store = open_store(f"memory://faults-{next(_names)}")
    failing = FailingStore(store, fail_on="create", landed=landed, matching=HEAD)

    dataset = lakebed.Repository(failing).create("d", DESCRIPTOR)

    assert failing.has_failed
    assert [commit.operation for commit in dataset.history()] == ["create"]
    # That of the other put stays until a cleanup: for all that is known it may still land.
    assert sum(1 for _ in store.list("d/history/")) == 2


def test_creation_that_landed_and_was_dropped_is_made_again_with_its_history() -> None:
    store = open_store(f"memory://faults-{next(_names)}")
    dropped = []

    def after(name: str, key: str) -> None:
        if name == "create" and key == HEAD and not dropped:
            dropped.append(lakebed.Repository(store).drop("d"))
            raise LOST

    dataset = lakebed.Repository(HookedStore(store, after=after)).create("d", DESCRIPTOR)

    assert dropped
    assert [commit.operation for commit in dataset.history()] == ["create"]
    assert lakebed.Repository(store).open("d").check().problems == ()


def test_creation_on_a_store_that_falls_silent_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakebed.state.creation, "_CREATE_WAITS_S", (0.0, 0.0))
    store = open_store(f"memory://faults-{next(_names)}")

    def after(name: str, key: str) -> None:
        if name == "create":
            raise LOST

    def before(name: str, key: str) -> None:
        if name == "get" and HEAD in {info.key for info in store.list()}:
            raise LOST

    with pytest.raises(CommitUnknownError, match="did not confirm the creation"):
        lakebed.Repository(HookedStore(store, before, after)).create("d", DESCRIPTOR)

    assert len(lakebed.Repository(store).open("d").history()) == 1


def test_creators_in_both_head_formats_never_leave_two_heads() -> None:
    store = open_store(f"memory://faults-{next(_names)}")
    repository = lakebed.Repository(store)

    def before(name: str, key: str) -> None:
        if (name, key) == ("create", HEAD):
            repository.create("d", DESCRIPTOR, head_format="msgpack.zstd").append(
                [{"p": "a", "tag": "first"}]
            )

    with pytest.raises(lakebed.errors.DatasetExistsError):
        lakebed.Repository(HookedStore(store, before)).create("d", DESCRIPTOR)

    heads = [info.key for info in store.list(recursive=False)]
    assert heads == ["d.by-dataset-metadata.msgpack.zstd"]
    assert repository.open("d").count() == 1


def test_reservation_of_another_batch_is_left_alone() -> None:
    lake = Lake()

    def before(name: str, key: str) -> None:
        if name == "create" and "/batches/" in key and taken == []:
            taken.append(key)
            lake.store.create(key, b"somebody else's")

    taken: list[str] = []

    commit = write(lake.through(HookedStore(lake.store, before)), "append")

    assert lake.store.get(taken[0]).data == b"somebody else's"
    assert taken != [f"d/batches/{commit.batch_id}.json"]
    with pytest.raises(ObjectExistsError):
        lake.store.create(f"d/batches/{commit.batch_id}.json", b"")


def test_batch_ids_and_times_grow_although_the_clock_of_the_writer_runs_behind() -> None:
    lake = Lake()
    stored = lake.store.get(HEAD)
    document = msgspec.json.decode(stored.data)
    document["metadata"]["lakebed.batch"] = "5000000000000"
    document["metadata"]["lakebed.committed_at"] = "2128-06-11T08:53:20+00:00"
    lake.store.replace(HEAD, msgspec.json.encode(document), if_match=stored.etag)

    commits = [write(lake.dataset, "append") for _ in range(3)]

    assert [one.batch_id for one in commits] == [5000000000001, 5000000000002, 5000000000003]
    assert {one.committed_at.year for one in commits} == {2128}
    assert lake.dataset.at(batch_id=5000000000002).version == 3


def test_batch_that_was_taken_away_is_not_committed_and_not_released() -> None:
    lake = Lake()

    def rows() -> Iterator[dict[str, str]]:
        (key,) = {info.key for info in lake.store.list("d/batches/")} - known
        lake.store.put(key, b"somebody else's")
        yield {"p": "a", "tag": "new"}

    known = {info.key for info in lake.store.list("d/batches/")}

    with pytest.raises(CommitConflictError, match="taken away"):
        lake.dataset.append(rows())

    (key,) = {info.key for info in lake.store.list("d/batches/")} - known
    assert lake.store.get(key).data == b"somebody else's"
    lake.assert_untouched()
