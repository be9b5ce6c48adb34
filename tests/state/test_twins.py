"""Several hands on one name: creators in both head formats, and a drop beside others."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from inside import cached_state_of

import lakebed
from lakebed import by
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    DatasetExistsError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.state.moving import read_settled_head
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.testing import DelegatingStore, FailingStore
from lakebed.work.check import Severity

pytestmark = pytest.mark.thorough

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("tag", pa.string())]), partition_by=[by.identity("p")]
)
JSON, MSGPACK = HeadFormat.JSON, HeadFormat.MSGPACK
OTHER = {JSON: MSGPACK, MSGPACK: JSON}
both_ways = pytest.mark.parametrize("form", [JSON, MSGPACK], ids=["json", "msgpack"])
READS = 3  # requests for the head, at the begin of a drop
_names = itertools.count()


class Died(BaseException):
    """The process is gone: nothing of it runs any more."""


class SteppedStore(DelegatingStore):
    """Lets others act right before one call, and its user die right before or after another."""

    def __init__(
        self, inner: Store, at: int, act: Callable[[], None], dies_at: float = 10**9
    ) -> None:
        super().__init__(inner)
        self.calls, self._at, self._act, self._dies_at = 0, at, act, dies_at

    def _step(self, call: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls > self._dies_at:
            raise Died
        if self.calls == self._at:
            self._act()
        found = call()
        if self.calls + 0.5 == self._dies_at:
            raise Died
        return found

    def _get(self, key: str) -> Any:
        return self._step(lambda: self.inner.get(key))

    def _get_if_changed(self, key: str, etag: str) -> Any:
        return self._step(lambda: self.inner.get_if_changed(key, etag=etag))

    def _size(self, key: str) -> Any:
        return self._step(lambda: self.inner.size(key))

    def _create(self, key: str, data: memoryview) -> Any:
        return self._step(lambda: self.inner.create(key, data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> Any:
        return self._step(lambda: self.inner.replace(key, data, if_match=if_match))

    def _put(self, key: str, data: memoryview) -> Any:
        return self._step(lambda: self.inner.put(key, data))

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[Any]:
        listed = lambda: list(self.inner.list(begins_with, recursive=recursive))  # noqa: E731
        return iter(self._step(listed))

    def _delete(self, keys: Sequence[str]) -> Any:
        return self._step(lambda: self.inner.delete(keys))

    def _delete_if_match(self, key: str, etag: str) -> Any:
        return self._step(lambda: self.inner.delete_if_match(key, etag=etag))


def new_store() -> Store:
    return open_store(f"memory://twins-{next(_names)}")


def create(store: Store, form: HeadFormat) -> lakebed.Dataset:
    return lakebed.Repository(store).create("d", DESCRIPTOR, head_format=form.value)


def append(store: Store, tag: str) -> None:
    lakebed.Repository(store).open("d").append([{"p": "a", "tag": tag}])


def tags(store: Store) -> list[str]:
    dataset = lakebed.Repository(store).open("d")
    assert not [one for one in dataset.check().findings if one.severity is Severity.ERROR]
    return sorted(row["tag"] for row in dataset.arrow().to_pylist())


def heads(store: Store) -> list[str]:
    return [info.key for info in store.list("", recursive=False)]


def is_alive(store: Store) -> bool:
    return lakebed.Repository(store).exists("d")


@both_ways
@pytest.mark.parametrize("commits", [True, False], ids=["with a commit", "empty"])
def test_of_two_creators_at_once_one_is_told_that_the_name_is_taken(
    form: HeadFormat, commits: bool
) -> None:
    """Who was told of success keeps the name, though nobody has committed, whoever began first."""
    for at in itertools.count(1):
        store = new_store()
        done: dict[str, str] = {}

        def other() -> None:
            with contextlib.suppress(DatasetExistsError):
                (first,) = create(store, OTHER[form]).history()  # noqa: B023 - called at once
                done[first.commit_id] = "other"  # noqa: B023
                if commits:
                    append(store, "other")  # noqa: B023

        stepped = SteppedStore(store, at, other)
        with contextlib.suppress(DatasetExistsError):
            created = create(stepped, form)
            done[cached_state_of(created).commit_id] = "own"
        if stepped.calls < at:
            break

        assert len(done) == 1
        append(store, "last")
        has_other = commits and "other" in done.values()
        assert tags(store) == (["last", "other"] if has_other else ["last"])
        assert lakebed.Repository(store).open("d").history()[0].commit_id in done
        assert len(heads(store)) == 1
    assert at > 5


@both_ways
@pytest.mark.parametrize("is_told_after", [0.0, 0.5], ids=["before", "after"])
def test_creator_that_died_hides_nothing_that_was_acknowledged(
    form: HeadFormat, is_told_after: float
) -> None:
    for at, dies_at in itertools.product(range(1, 15), range(1, 15)):
        if dies_at < at:
            continue
        store = new_store()
        acknowledged: list[str] = []

        def other() -> None:
            with contextlib.suppress(DatasetExistsError):
                create(store, OTHER[form])  # noqa: B023 - called at once
                append(store, "other")  # noqa: B023
                acknowledged.append("other")  # noqa: B023

        with contextlib.suppress(Died, DatasetExistsError):
            create(SteppedStore(store, at, other, dies_at + is_told_after), form)

        if acknowledged:
            assert tags(store) == ["other"]
        if is_alive(store):
            append(store, "last")
            assert tags(store) == sorted(["last", *acknowledged])
            # Beside a JSON head with commits nobody looks for what has lost against it.
            assert len(heads(store)) == 1 or heads(store)[0] == JSON.key("d")


@both_ways
def test_of_two_writers_to_two_new_heads_one_is_refused(form: HeadFormat) -> None:
    """Whoever finds a head before its creator has looked for a twin may commit to it at once."""
    for at in itertools.count(1):
        store = new_store()
        with contextlib.suppress(Died):
            create(Dying(store, form), form)
        assert heads(store) == [form.key("d")]
        early = lakebed.Repository(store).open("d")
        acknowledged: list[str] = []

        def other() -> None:
            with contextlib.suppress(Died, DatasetExistsError):
                late = FindingNothing(store)  # noqa: B023 - called at once
                create(Dying(late, OTHER[form]), OTHER[form])
            with contextlib.suppress(CommitConflictError):
                append(store, "other")  # noqa: B023
                acknowledged.append("other")  # noqa: B023

        stepped = SteppedStore(store, at, other)
        with contextlib.suppress(CommitConflictError):
            lakebed.Repository(stepped).open(early.name).append([{"p": "a", "tag": "own"}])
            acknowledged.append("own")
        if stepped.calls < at:
            break

        assert acknowledged
        assert tags(store) == sorted(acknowledged)
        append(store, "last")
        assert len(heads(store)) == 1
    assert at > 5


class Dying(DelegatingStore):
    """The process dies right after it has put a head."""

    def __init__(self, inner: Store, form: HeadFormat) -> None:
        super().__init__(inner)
        self._key = form.key("d")

    def _create(self, key: str, data: memoryview) -> str:
        etag = super()._create(key, data)
        if key == self._key:
            raise Died
        return etag


class FindingNothing(DelegatingStore):
    """Shows no head, as to one who looked long ago."""

    def _get(self, key: str) -> Any:
        return self.inner.get(f"{key}.none" if "metadata" in key else key)

    def _get_if_changed(self, key: str, etag: str) -> Any:
        return self._get(key)


def test_two_datasets_of_one_name_that_were_both_committed_to_are_for_a_person() -> None:
    store, elsewhere = new_store(), new_store()
    create(store, JSON)
    append(store, "one")
    create(elsewhere, MSGPACK)
    append(elsewhere, "two")
    for info in elsewhere.list(""):
        with contextlib.suppress(lakebed.errors.LakebedError):
            store.create(info.key, elsewhere.get(info.key).data)
    before = {info.key for info in store.list("")}
    data = store.get(JSON.key("d")).data
    store.put(
        JSON.key("d"), data.replace(b'"lakebed.head":"json"', b'"lakebed.head":"msgpack.zstd"')
    )

    repository = lakebed.Repository(store)
    for act in (lambda: repository.open("d"), lambda: repository.drop("d")):
        with pytest.raises(CorruptMetadataError, match="Two datasets have the name"):
            act()

    assert {info.key for info in store.list("")} == before


@both_ways
@pytest.mark.parametrize("to_other", [False, True], ids=["same", "other"])
def test_drop_takes_nothing_of_a_namesake_that_was_created_meanwhile(
    form: HeadFormat, to_other: bool
) -> None:
    for at in itertools.count(1):
        store = new_store()
        create(store, form)
        append(store, "old")
        acknowledged: list[str] = []

        def other() -> None:
            with contextlib.suppress(DatasetNotFoundError):
                lakebed.Repository(store).drop("d")  # noqa: B023 - called at once
            create(store, OTHER[form] if to_other else form)  # noqa: B023
            append(store, "namesake")  # noqa: B023
            acknowledged.append("namesake")  # noqa: B023

        stepped = SteppedStore(store, at, other)
        try:
            lakebed.Repository(stepped).drop("d")
        except (CommitConflictError, DatasetNotFoundError):
            assert acknowledged
        if stepped.calls < at:
            break
        # What was dropped when the namesake had come is the namesake, or the old one alone.
        assert not is_alive(store) or tags(store) == ["namesake"]
        assert is_alive(store) or at <= READS
    assert at > 4


@both_ways
@pytest.mark.parametrize("acts", ["append", "hand-over", "hand-over, append", "there and back"])
def test_drop_beside_commits_and_hand_overs_leaves_nothing(form: HeadFormat, acts: str) -> None:
    for at in itertools.count(1):
        store = new_store()
        create(store, form)
        append(store, "old")

        def other() -> None:
            with contextlib.suppress(DatasetNotFoundError):
                if acts != "append":
                    hand_over(store, "d", OTHER[form])  # noqa: B023 - called at once
                if acts == "there and back":
                    hand_over(store, "d", form)  # noqa: B023
                if "append" in acts:
                    append(store, "late")  # noqa: B023

        stepped = SteppedStore(store, at, other)
        lakebed.Repository(stepped).drop("d")
        if stepped.calls < at:
            break

        assert not is_alive(store)
        left = {info.key.split("/")[1] for info in store.list("d/")}
        assert left <= {"runs", "history", "batches"}
    assert at > 4


@both_ways
@pytest.mark.parametrize("has_commit", [False, True])
def test_creation_that_died_beside_a_dataset_is_whole_when_that_is_dropped(
    form: HeadFormat, has_commit: bool
) -> None:
    """Nobody was told that it happened, nor that it did not; its creator may still be at work."""
    store = new_store()
    create(store, form)
    if has_commit:
        append(store, "old")
    with contextlib.suppress(Died):
        create(Dying(FindingNothing(store), OTHER[form]), OTHER[form])
    assert len(heads(store)) == 2
    assert tags(store) == (["old"] if has_commit else [])

    lakebed.Repository(store).drop("d")

    assert heads(store) == [OTHER[form].key("d")]
    append(store, "new")
    assert tags(store) == ["new"]
    lakebed.Repository(store).drop("d")
    assert not list(store.list(""))


@pytest.mark.parametrize("landed", [False, True], ids=["refused", "landed"])
def test_drop_whose_answer_was_lost_is_done_again(landed: bool) -> None:
    store = new_store()
    create(store, JSON)
    append(store, "old")
    failing = FailingStore(store, fail_on="delete", matching="metadata.json", landed=landed)

    lakebed.Repository(failing).drop("d")

    assert failing.has_failed
    assert not list(store.list(""))


def test_drop_that_the_store_refuses_leaves_the_dataset() -> None:
    store = new_store()
    create(store, JSON)
    append(store, "old")
    refused = StorageError("Not allowed.")
    failing = FailingStore(store, fail_on="delete", matching="metadata.json", error=refused)

    with pytest.raises(StorageError, match="Not allowed"):
        lakebed.Repository(failing).drop("d")

    assert tags(store) == ["old"]


def test_namesake_whose_creation_was_under_way_keeps_its_history() -> None:
    store = new_store()

    def drop_another() -> None:
        create(store, JSON)
        lakebed.Repository(Late(store)).drop("d")

    class Late(DelegatingStore):
        """The head of the namesake is put before the drop deletes what it has listed."""

        def _delete(self, keys: Sequence[str]) -> None:
            if not pending.is_done:
                pending.is_done = True
                pending.land()
            super()._delete(keys)

    class Pending(DelegatingStore):
        """Puts a head, and meanwhile another dataset of the name comes and goes."""

        is_done = False

        def land(self) -> None:
            raise NotImplementedError

        def _create(self, key: str, data: memoryview) -> str:
            if not key.endswith(JSON.key("d")):
                return super()._create(key, data)
            copy = bytes(data)
            etags: list[str] = []
            self.land = lambda: etags.append(self.inner.create(key, copy))  # type: ignore[method-assign]
            drop_another()
            return etags[0]

    pending = Pending(store)
    dataset = create(pending, JSON)

    assert [commit.operation for commit in dataset.history()] == ["create"]
    append(store, "first")
    assert tags(store) == ["first"]
    lakebed.Repository(store).drop("d")
    assert not list(store.list(""))


@both_ways
@pytest.mark.parametrize("again", [None, JSON, MSGPACK], ids=["gone", "json", "msgpack"])
@pytest.mark.parametrize("dies_after", [None, 0.0, 0.5, 1.0, 1.5], ids=str)
def test_hand_over_that_slept_through_a_drop_brings_nothing_back(
    form: HeadFormat, again: HeadFormat | None, dies_after: float | None
) -> None:
    for at in itertools.count(1):
        store = new_store()
        create(store, form)
        append(store, "old")

        def other() -> None:
            lakebed.Repository(store).drop("d")  # noqa: B023 - called at once
            if again is not None:
                create(store, again)  # noqa: B023

        dies_at = 10**9 if dies_after is None else at + dies_after
        stepped = SteppedStore(store, at, other, dies_at)
        with contextlib.suppress(Died, DatasetNotFoundError, CommitConflictError):
            hand_over(stepped, "d", OTHER[form])
        if stepped.calls < at:
            break

        if again is None:
            assert not is_alive(store)
            for one in (form, OTHER[form]):
                create(store, one)
                append(store, "new")
                assert tags(store) == ["new"]
                lakebed.Repository(store).drop("d")
        else:
            append(store, "new")
            assert tags(store) == ["new"]
            lakebed.Repository(store).drop("d")
        assert not is_alive(store)
    assert at > 8


@both_ways
def test_a_creation_is_told_of_where_the_answer_to_it_was_lost(form: HeadFormat) -> None:
    for landed in (True, False):
        store = new_store()
        failing = FailingStore(store, fail_on="replace", matching="metadata", landed=landed)

        create(failing, form)

        assert failing.has_failed
        # Whoever creates it in the other format, and has begun long ago, comes too late.
        with pytest.raises(DatasetExistsError):
            create(FindingNothingAtFirst(store), OTHER[form])
        assert heads(store) == [form.key("d")]


class FindingNothingAtFirst(FindingNothing):
    """Shows no head until one was put."""

    has_put = False

    def _get(self, key: str) -> Any:
        return self.inner.get(key) if self.has_put else super()._get(key)

    def _create(self, key: str, data: memoryview) -> str:
        self.has_put = True
        return super()._create(key, data)


def test_a_schema_file_that_a_drop_takes_before_the_head_is_there_is_written_again() -> None:
    for at in itertools.count(1):
        store = new_store()

        def delete_as_a_drop_does() -> None:
            if not is_alive(store):  # noqa: B023 - called at once
                store.delete(["d/data/_common_metadata"])  # noqa: B023

        stepped = SteppedStore(store, at, delete_as_a_drop_does)
        assert not create(stepped, JSON).check().problems
        if stepped.calls < at:
            break
    assert at > 8


def test_a_schema_file_that_a_drop_has_taken_is_written_again() -> None:
    for at in itertools.count(1):
        store = new_store()
        create(store, JSON)
        stepped = SteppedStore(store, at, lambda: create(store, MSGPACK))  # noqa: B023 - at once
        with contextlib.suppress(DatasetExistsError):
            lakebed.Repository(stepped).drop("d")
        if stepped.calls < at:
            break
        if is_alive(store):
            assert not lakebed.Repository(store).open("d").check().problems
    assert at > 8


@both_ways
def test_drop_leaves_no_head_that_is_confirmed_behind_its_back(form: HeadFormat) -> None:
    target = OTHER[form].key("d")

    class Slow(DelegatingStore):
        """The process dies before the new head, or waits right before it is confirmed."""

        def __init__(self, inner: Store, *, dies: bool) -> None:
            super().__init__(inner)
            self._dies = dies
            self.confirm: Callable[[], object] = lambda: None

        def _create(self, key: str, data: memoryview) -> str:
            if key == target and self._dies:
                raise Died
            return super()._create(key, data)

        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            if key != target:
                return super()._replace(key, data, if_match=if_match)
            copy = bytes(data)
            self.confirm = lambda: self.inner.replace(key, copy, if_match=if_match)
            raise Died

    for starts, confirms in itertools.product(range(1, 7), range(1, 20)):
        if confirms <= starts:
            continue
        store = new_store()
        create(store, form)
        append(store, "old")
        with contextlib.suppress(Died):
            hand_over(Slow(store, dies=True), "d", OTHER[form])
        slow = Slow(store, dies=False)

        def start() -> None:
            with contextlib.suppress(Died, DatasetNotFoundError):
                read_settled_head(slow, "d")  # noqa: B023 - called at once

        def confirm() -> None:
            with contextlib.suppress(PreconditionFailedError, ObjectNotFoundError):
                slow.confirm()  # noqa: B023 - called at once

        late = SteppedStore(store, confirms, confirm)
        lakebed.Repository(SteppedStore(late, starts, start)).drop("d")
        assert not is_alive(store)
        assert late.calls >= READS


def hand_overs_beside(act: Callable[[Store], None]) -> Iterator[Store]:
    """Move a head, while others act right before one of the requests; each in turn."""
    for at in itertools.count(1):
        store = new_store()
        create(store, JSON)
        append(store, "earlier")
        stepped = SteppedStore(store, at, lambda store=store: act(store))
        with contextlib.suppress(DatasetNotFoundError, CommitConflictError):
            hand_over(stepped, "d", MSGPACK)
        if stepped.calls < at:
            break
        yield store
    assert at > 8


@pytest.mark.parametrize("form", [JSON, MSGPACK], ids=["moved", "created in msgpack"])
def test_head_that_was_dropped_is_not_beside_that_of_a_later_dataset(form: HeadFormat) -> None:
    """Between two reads of a hand-over, its dataset is dropped, and another one takes the name."""

    def drop_and_create(store: Store) -> None:
        lakebed.Repository(store).drop("d")
        create(store, form)
        append(store, "later")
        if form is JSON:
            hand_over(store, "d", MSGPACK)

    for store in hand_overs_beside(drop_and_create):
        assert tags(store) == ["later"]


def test_new_head_of_a_dropped_dataset_is_not_confirmed_beside_that_of_a_later_one() -> None:
    """A drop stands still between the two heads of a hand-over, and another takes the name."""
    created: list[Store] = []

    def drop_by_half_and_create(store: Store) -> None:
        for dies_at in itertools.count(1):
            one = SteppedStore(store, 10**9, lambda: None, dies_at)
            with contextlib.suppress(Died, DatasetNotFoundError):
                lakebed.Repository(one).drop("d")
            if "d.by-dataset-metadata.json" not in heads(store):
                break
        with contextlib.suppress(DatasetExistsError):
            create(store, JSON)
            created.append(store)

    for store in hand_overs_beside(drop_by_half_and_create):
        if store in created:
            assert tags(store) == []
    assert created
