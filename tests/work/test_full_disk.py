"""Cleanup where there is no room to write: it is what makes room, so it must not need any."""

import json
import logging
import uuid
from collections.abc import Sequence

import pytest
import zstandard
from copies import copy_of
from heads import head_key
from upkeep_lake import DESCRIPTOR, content, data_keys, live_keys, row, sweep

import lakebed
from lakebed.errors import StorageFullError
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore


class SmallStore(DelegatingStore):
    """Holds so many bytes and no more; what is deleted makes room."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.room = 0
        self.refused: list[str] = []

    def _take(self, key: str, data: memoryview) -> None:
        if len(data) > self.room:
            self.refused.append(key)
            raise StorageFullError(f"No room to write {key!r}.")
        self.room -= len(data)

    def _create(self, key: str, data: memoryview) -> str:
        self._take(key, data)
        return super()._create(key, data)

    def _put(self, key: str, data: memoryview) -> None:
        self._take(key, data)
        super()._put(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self._take(key, data)  # the old content stays until the new one is there
        return super()._replace(key, data, if_match=if_match)

    def _delete(self, keys: Sequence[str]) -> None:
        held = {info.key: info.size_bytes for info in self.inner.list("")}
        super()._delete(keys)
        self.room += sum(held.get(key, 0) for key in keys)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def dataset(store: MemoryStore) -> lakebed.Dataset:
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR)
    for n in range(3):
        dataset.overwrite([row("a", n), row("b", n)])
    return dataset


def full(store: MemoryStore) -> tuple[SmallStore, lakebed.Dataset]:
    small = SmallStore(store)
    return small, lakebed.Repository(small).open("d")


def give_up_without_deleting(dataset: lakebed.Dataset, store: MemoryStore) -> None:
    """Clean up as one that is killed between its commit and its first deletion."""
    from lakebed.errors import StorageError
    from lakebed.testing import FailingStore

    failing = FailingStore(store, fail_on="delete", matching="/data/")
    with pytest.raises(StorageError):
        sweep(lakebed.Repository(failing).open("d"))


def test_what_an_earlier_cleanup_has_given_up_is_deleted_though_nothing_can_be_written(
    dataset, store, caplog
) -> None:
    give_up_without_deleting(dataset, store)
    small, of_small = full(store)

    report = sweep(of_small)

    assert report.counts == {"superseded": 4}
    assert data_keys(store) == live_keys(dataset)
    assert content(dataset) == [("a", 2), ("b", 2)]
    assert small.refused == [key for key in small.refused if key.startswith("d/cleanups/")]


def test_room_that_it_makes_is_used_to_give_up_the_rest(dataset, store) -> None:
    for n in (1, 2):  # files that are larger than a head
        dataset.overwrite([row("a", n * k) for k in range(2_000)])
    give_up_without_deleting(dataset, store)
    dataset.overwrite([row("a", 9)])  # takes out one more, which no commit has given up
    small, of_small = full(store)

    report = sweep(of_small)

    assert small.refused != []
    assert report.counts == {"superseded": 7}
    assert {file.version for file in report.files} >= {dataset.version - 1}
    assert report.version == dataset.version
    assert data_keys(store) == live_keys(dataset)
    assert [commit.operation for commit in dataset.history()][-1] == "cleanup"


def test_cleanup_that_can_neither_free_nor_give_up_says_so_and_loses_nothing(
    dataset, store
) -> None:
    before = {info.key for info in store.list("")}
    _, of_small = full(store)

    with pytest.raises(StorageFullError, match="no room for the commit") as info:
        sweep(of_small)

    assert "run it again" in info.value.hint
    assert {one.key for one in store.list("")} == before
    assert content(dataset.at(version=1)) == [("a", 0), ("b", 0)]
    assert len(of_small.cleanup("0s").files) == 4  # a dry run writes nothing


def test_what_was_deleted_is_written_down_once_there_is_room(dataset, store) -> None:
    give_up_without_deleting(dataset, store)
    store.delete([one.key for one in store.list("d/cleanups/")])
    _, of_small = full(store)

    report = sweep(of_small)

    (log,) = store.list("d/cleanups/")
    document = json.loads(zstandard.ZstdDecompressor().decompress(store.get(log.key).data))
    assert [one["key"] for one in document["files"]] == [file.key for file in report.files]


def test_log_that_cannot_be_written_at_all_is_told_as_a_warning(dataset, store, caplog) -> None:
    give_up_without_deleting(dataset, store)

    class Stuffed(SmallStore):
        def _delete(self, keys: Sequence[str]) -> None:
            DelegatingStore._delete(self, keys)  # others take the room at once

    with caplog.at_level(logging.WARNING, logger="lakebed"):
        report = sweep(lakebed.Repository(Stuffed(store)).open("d"))

    assert report.counts == {"superseded": 4}
    assert "deletions not logged dataset=d objects=4" in caplog.text


def test_commit_of_a_cleanup_leaves_out_what_it_has_no_room_for(store) -> None:
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR)
    many = [row(f"p{n}", n) for n in range(40)]
    for rows in (*[many] * 5, [row("a", 0)]):
        dataset.where("TRUE").overwrite(rows)
    small, of_small = full(store)
    # The merged history, with the labels of many files, is larger than the head.
    head = store.size(head_key("d"))
    small.room = head + 600

    report = sweep(of_small)

    assert report.counts == {"superseded": 200}
    assert content(dataset) == [("a", 0)]
    assert dataset.check().is_ok
    # The history was not merged, and nothing of the attempt is left over.
    assert any(key.startswith("d/history/") for key in small.refused)
    assert len(list(store.list("d/history/"))) == 8


@pytest.mark.thorough
def test_cleanup_needs_room_for_its_commit_and_for_nothing_else(store) -> None:
    """What it does beside that, such as to prune the file table, takes room too."""
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR)
    dataset.overwrite([row(f"{p}", p) for p in range(20)])
    for n in range(3):
        dataset.overwrite([row(f"{p}", n) for p in range(19)])
    step, outcomes = 400, []
    for room in range(0, 16_000, step):
        copy = copy_of(store)
        small, of_small = full(copy)
        small.room = room
        try:
            report = sweep(of_small)
        except StorageFullError:
            assert {one.key for one in copy.list("")} == {one.key for one in store.list("")}
            outcomes.append(False)
        else:
            assert report.counts == {"superseded": 57}
            assert of_small.check().is_ok
            outcomes.append(True)
            if outcomes.count(True) == 1:
                written = (head_key("d"), _newest(copy, "d/history/"))
                assert room < sum(map(copy.size, written)) + step

    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}


def _newest(store: Store, folder: str) -> str:
    return max(store.list(folder), key=lambda info: info.modified_at).key
