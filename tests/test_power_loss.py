"""A loss of power after each change of a directory: what was acknowledged is there afterwards."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from unittest import mock

import pytest
from crash_points import (
    HEADS,
    SCHEMA,
    Rows,
    lose_power_of_a_dataset,
    lose_power_of_an_archive,
    rows_of,
    some,
)
from power_loss import Disk, Recorder

import lakebed
from lakebed import by
from lakebed.errors import CommitUnknownError, LakebedError, NotFoundError


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path / "lake")


@pytest.fixture(autouse=True)
def _as_a_new_process() -> Iterator[None]:
    """Forget which directories this process has synced before, in other tests."""
    from lakebed.store import posix

    with (
        mock.patch.object(posix, "_SYNCED_DIRECTORIES", {}),
        mock.patch.object(posix, "_NAMES_NOT_SYNCED", set()),
    ):
        yield


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(
    "nth", [pytest.param(40, id="few"), pytest.param(1, id="every", marks=pytest.mark.thorough)]
)
def test_what_a_verb_acknowledged_is_there_after_a_loss_of_power(
    tmp_path: Path, head: str, nth: int
) -> None:
    tried = lose_power_of_a_dataset(tmp_path, head, nth)

    assert tried.wrong == []
    assert len(tried.verbs) == 19


def test_what_an_archive_acknowledged_is_there_after_a_loss_of_power(tmp_path: Path) -> None:
    tried = lose_power_of_an_archive(tmp_path)

    assert tried.wrong == []
    assert tried.states > 50


# Syncs that fail, and directories of others


@pytest.fixture
def dataset(recorder: Recorder) -> Iterator[lakebed.Dataset]:
    recorder.root.mkdir()
    lake = lakebed.open_repository(str(recorder.root))
    with recorder.recording():
        dataset = lake.create(
            "t", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("g")])
        )
        dataset.append(some(1, 2, "a"))
        yield dataset


def after_a_loss_of_power(recorder: Recorder, tmp_path: Path) -> Rows:
    with recorder.paused():
        Disk(recorder.changes, recorder.contents).build(tmp_path / "after")
        return rows_of(lakebed.open_repository(str(tmp_path / "after")).open("t"))


def failing_sync(path: Path, times: int, error: BaseException) -> AbstractContextManager[object]:
    """Let the next syncs of a directory fail."""
    real, left = os.fsync, [times]

    def sync(descriptor: int) -> None:
        if left[0] and Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            left[0] -= 1
            raise error
        real(descriptor)

    return mock.patch.object(os, "fsync", sync)


def test_a_commit_whose_directory_was_not_synced_is_made_durable_before_it_is_acknowledged(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    before = len(recorder.changes)
    with failing_sync(recorder.root, 1, OSError(errno.EIO, "broken")):
        assert dataset.append(some(2, 3, "a")).version == 2

    assert after_a_loss_of_power(recorder, tmp_path) == [(1, "a", 0), (2, "a", 0)]
    # A name whose sync failed is made again: a second sync alone may report success for nothing.
    head = "t.by-dataset-metadata.json"
    assert sum(change[-1] == head for change in recorder.changes[before:]) == 2


def test_a_commit_that_cannot_be_synced_is_unknown(
    recorder: Recorder, dataset: lakebed.Dataset
) -> None:
    with (
        failing_sync(recorder.root, 100, OSError(errno.EIO, "broken")),
        pytest.raises(CommitUnknownError, match="loss of power"),
    ):
        dataset.append(some(2, 3, "a"))


def test_a_batch_that_another_process_committed_is_made_durable_before_it_is_acknowledged(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    staged = dataset.staged.add(some(2, 3, "a"))
    with (
        failing_sync(recorder.root, 1, KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        staged.commit()

    dataset.staged.open(staged.batch_id).commit()

    assert after_a_loss_of_power(recorder, tmp_path) == [(1, "a", 0), (2, "a", 0)]


def test_a_directory_of_a_writer_that_was_killed_before_its_sync_is_synced_by_the_next(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    with (
        failing_sync(recorder.root / "t/data", 1, KeyboardInterrupt()),
        pytest.raises(KeyboardInterrupt),
    ):
        dataset.append(some(2, 3, "b"))

    lakebed.open_repository(str(recorder.root)).open("t").append(some(2, 3, "b"))

    assert after_a_loss_of_power(recorder, tmp_path) == [(1, "a", 0), (2, "b", 0)]


def test_a_directory_of_a_slow_writer_is_synced_by_whoever_commits_below_it(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    made, go, real = threading.Event(), threading.Event(), os.fsync

    def sync(descriptor: int) -> None:
        is_data = Path(f"/proc/self/fd/{descriptor}").readlink() == recorder.root / "t/data"
        if is_data and not made.is_set():
            made.set()
            go.wait(30)
        real(descriptor)

    with mock.patch.object(os, "fsync", sync):
        slow = threading.Thread(target=lambda: dataset.append(some(3, 4, "b")))
        slow.start()
        try:
            assert made.wait(30)
            lakebed.open_repository(str(recorder.root)).open("t").append(some(2, 3, "b"))
            assert (2, "b", 0) in after_a_loss_of_power(recorder, tmp_path)
        finally:
            go.set()
            slow.join()


def test_a_deletion_that_could_not_be_synced_is_synced_when_it_is_repeated(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    store = lakebed.open_repository(str(recorder.root)).store
    store.put("x/one", b"1")
    store.put("x/two", b"2")
    with (
        failing_sync(recorder.root / "x", 1, OSError(errno.EIO, "broken")),
        pytest.raises(LakebedError, match="loss of power"),
    ):
        store.delete(["x/one"])

    store.delete(["x/one"])

    Disk(recorder.changes, recorder.contents).build(tmp_path / "after")
    assert [path.name for path in (tmp_path / "after/x").iterdir()] == ["two"]
    with pytest.raises(NotFoundError):
        store.get("x/one")


def test_a_directory_that_is_made_again_is_synced_again(
    recorder: Recorder, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    store = lakebed.open_repository(str(recorder.root)).store

    # File systems give the number of a directory that was removed to the next one.
    for number in range(3):
        store.put(f"x/y/{number}", b"1")
        Disk(recorder.changes, recorder.contents).build(tmp_path / "after")
        assert [path.name for path in (tmp_path / "after/x/y").iterdir()] == [str(number)]
        store.delete([f"x/y/{number}"])
