"""Cleanup beside writers, readers, rollbacks and protections, at every step; and killed at each."""

import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from upkeep_lake import (
    DESCRIPTOR,
    SHORT,
    DyingStore,
    HaltingStore,
    Killed,
    age,
    content,
    data_keys,
    live_keys,
    new_lake,
    row,
    sweep,
)

import lakebed
from lakebed.errors import CommitConflictError, DatasetNotFoundError, VersionNotFoundError
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.state.transaction import Transaction
from lakebed.testing import FailingStore
from lakebed.work.writer import target_of

pytestmark = pytest.mark.thorough

# Where somebody else comes in: an operation, a part of its key, and whether before or after it.
WRITER_STEPS = [
    ("create", "batches", False),
    ("create", "batches", True),
    ("put", "data/p=", False),
    ("put", "data/p=", True),
    ("replace", "batches", False),
    ("replace", "batches", True),
    ("put", "d/files", True),
    ("put", "d/history", True),
    ("replace", "by-dataset-metadata", False),
    ("replace", "by-dataset-metadata", True),
]
CLEANUP_STEPS = [
    ("list", "d/", False),
    ("list", "d/", True),
    ("list", "d/batches", True),
    ("put", "d/history", True),
    ("replace", "by-dataset-metadata", False),
    ("replace", "by-dataset-metadata", True),
    ("put", "d/cleanups", True),
    ("delete", "", False),
]


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    lake = new_lake(tmp_path / "lake")
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(3):
        dataset.overwrite([row("a", n), row("b", n)])
    return lake


def check_whole(lake: lakebed.Repository) -> None:
    """Check that nothing is missing, and that a cleanup leaves nothing dead."""
    dataset = lake.open("d")
    sweep(dataset)
    assert dataset.check(deep=True).problems == ()
    assert live_keys(dataset) <= data_keys(lake.store)
    assert sweep(dataset).files == ()


@pytest.mark.parametrize("operation", ["append", "overwrite", "delete"])
@pytest.mark.parametrize(("call", "key", "after"), WRITER_STEPS)
def test_cleanup_takes_nothing_from_a_writer_at_work(lake, call, key, after, operation) -> None:
    store = HaltingStore(lake.store, call, key, after=after)
    writer = lakebed.Repository(store).open("d")
    reports = []
    store.then = lambda: reports.append(sweep(lake.open("d")))

    if operation == "delete":
        commit = writer.where("p = 'b' or n = 2").delete()
        wanted = []
    else:
        commit = getattr(writer, operation)([row("a", 7), row("c", 7)])
        rest = [("b", 2)] if operation == "overwrite" else [("a", 2), ("b", 2)]
        wanted = sorted([("a", 7), ("c", 7), *rest])

    assert commit is not None
    assert reports or operation == "delete"
    assert content(lake.open("d")) == wanted
    check_whole(lake)


@pytest.mark.parametrize("landed", [False, True])
def test_cleanup_between_a_lost_answer_and_the_next_look_loses_nothing(lake, landed) -> None:
    failing = FailingStore(
        lake.store, fail_on="replace", matching="by-dataset-metadata", landed=landed
    )
    store = HaltingStore(failing, "get", "by-dataset-metadata")
    writer = lakebed.Repository(store).open("d")

    def rows():
        yield row("c", 1)
        store.then = lambda: sweep(lake.open("d"))

    writer.append(rows())

    assert failing.has_failed
    assert store.then is None
    assert ("c", 1) in content(lake.open("d"))
    check_whole(lake)


@pytest.mark.parametrize(("call", "key", "after"), CLEANUP_STEPS)
def test_rollback_beside_a_cleanup_is_whole_or_refused(lake, call, key, after) -> None:
    store = HaltingStore(lake.store, call, key, after=after)
    refused = []

    def roll_back() -> None:
        try:
            lake.open("d").rollback(version=1)
        except VersionNotFoundError as exc:
            refused.append(exc)

    store.then = roll_back
    sweep(lakebed.Repository(store).open("d"))

    assert store.then is None  # the step was reached
    is_late = call in ("delete",) or key == "d/cleanups" or (call == "replace" and after)
    assert bool(refused) == is_late
    assert content(lake.open("d")) == ([("a", 2), ("b", 2)] if refused else [("a", 0), ("b", 0)])
    check_whole(lake)


@pytest.mark.parametrize(("call", "key", "after"), CLEANUP_STEPS)
def test_protect_beside_a_cleanup_keeps_all_or_is_refused(lake, call, key, after) -> None:
    store = HaltingStore(lake.store, call, key, after=after)
    refused = []

    def protect() -> None:
        try:
            lake.open("d").protections.add(version=1, reason="in time?")
        except VersionNotFoundError as exc:
            refused.append(exc)

    store.then = protect
    sweep(lakebed.Repository(store).open("d"))

    assert store.then is None
    is_late = call in ("delete",) or key == "d/cleanups" or (call == "replace" and after)
    assert bool(refused) == is_late
    if not refused:
        assert content(lake.open("d").at(version=1)) == [("a", 0), ("b", 0)]
    check_whole(lake)


@pytest.mark.parametrize(
    ("call", "key", "after"),
    [
        ("get", "by-dataset-metadata", False),
        ("put", "d/history", True),
        ("replace", "by-dataset-metadata", False),
    ],
)
@pytest.mark.parametrize("operation", ["protect", "rollback"])
def test_cleanup_beside_a_rollback_or_protect_decides_by_the_head(
    lake, operation, call, key, after
) -> None:
    """The other way round: the cleanup comes while the other has begun."""
    store = HaltingStore(lake.store, call, key, after=after)
    store.then = lambda: sweep(lake.open("d"))
    dataset = lakebed.Repository(store).open("d")

    calls = {
        "protect": lambda: dataset.protections.add(version=1, reason="too late"),
        "rollback": lambda: dataset.rollback(version=1),
    }
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        calls[operation]()

    assert content(lake.open("d")) == [("a", 2), ("b", 2)]
    check_whole(lake)


@pytest.mark.parametrize(("call", "key", "after"), CLEANUP_STEPS)
def test_append_beside_a_cleanup_stays(lake, call, key, after) -> None:
    store = HaltingStore(lake.store, call, key, after=after)
    store.then = lambda: lake.open("d").append([row("c", 1)])

    sweep(lakebed.Repository(store).open("d"))

    assert content(lake.open("d")) == [("a", 2), ("b", 2), ("c", 1)]
    check_whole(lake)


@pytest.mark.parametrize(("call", "key", "after"), CLEANUP_STEPS)
def test_two_cleanups_at_once_delete_what_one_would(lake, call, key, after) -> None:
    store = HaltingStore(lake.store, call, key, after=after)
    store.then = lambda: sweep(lake.open("d"))

    sweep(lakebed.Repository(store).open("d"))

    assert data_keys(lake.store) == live_keys(lake.open("d"))
    check_whole(lake)


@pytest.mark.parametrize(("call", "key", "after"), CLEANUP_STEPS[:-1])
def test_writer_whose_lease_is_over_commits_before_the_cleanup_or_not_at_all(
    lake, call, key, after
) -> None:
    dataset = lake.open("d")
    transaction = Transaction.begin(lake.store, "d", "append", options=SHORT)
    written = dataset._stage([row("x", 1)], target_of(transaction, None))
    time.sleep(0.01)
    store = HaltingStore(lake.store, call, key, after=after)
    refused = []

    def commit() -> None:
        try:
            with transaction:
                transaction.add(written)
                transaction.commit()
        except CommitConflictError as exc:
            refused.append(exc)

    store.then = commit
    sweep(lakebed.Repository(store).open("d"))

    assert (("x", 1) in content(lake.open("d"))) == (not refused)
    check_whole(lake)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_each_call_a_cleanup_is_finished_by_the_next(lake, tmp_path, after) -> None:
    dead = Transaction.begin(lake.store, "d", "append", options=SHORT)
    lake.store.put(f"d/data/p=a/batch_id={dead.batch_id}/part-{'0' * 32}.parquet", b"x")
    lake.open("d").protections.add(version=2, reason="audit")
    time.sleep(0.01)
    deaths = []
    for call in itertools.count(1):
        root = tmp_path / f"{call}"
        shutil.copytree(tmp_path / "lake", root)
        copy = new_lake(root)
        dying = DyingStore(copy.store, nth=call, after=after)
        try:
            sweep(lakebed.Repository(dying).open("d"))
            break
        except Killed:
            deaths.append(dying.died_at)
        assert content(copy.open("d")) == [("a", 2), ("b", 2)]
        assert content(copy.open("d").at(version=2)) == [("a", 1), ("b", 1)]
        assert copy.open("d").check().problems == ()
        check_whole(copy)
        assert data_keys(copy.store) == {
            *live_keys(copy.open("d")),
            *live_keys(copy.open("d").at(version=2)),
        }
        shutil.rmtree(root)

    assert {"_list", "_get", "_put", "_replace", "_delete"} <= set(deaths)
    assert len(deaths) > 8


@pytest.mark.parametrize("verb", ["hand over", "drop"])
def test_head_that_moves_or_goes_while_a_cleanup_looks_at_it_is_no_missing_object(
    lake, verb
) -> None:
    store = HaltingStore(lake.store, "list", "d/published", after=True)
    sweep(lake.open("d"))
    lake.store.put(f"d/history/0000000001-{'0' * 32}.json", b"of a commit that did not win")
    old = 1_400_000_000
    os.utime(lake.store.local_path(f"d/history/0000000001-{'0' * 32}.json"), (old, old))
    store.then = lambda: (
        lake.drop("d") if verb == "drop" else hand_over(lake.store, "d", HeadFormat.MSGPACK)
    )

    with contextlib.suppress(DatasetNotFoundError):
        report = sweep(lakebed.Repository(store).open("d"))

    assert lake.list() == ([] if verb == "drop" else ["d"])
    if verb == "hand over":
        assert report.counts["unreferenced"] >= 1
        check_whole(lake)


@pytest.mark.parametrize(
    ("work", "written"),
    [
        (lambda dataset: dataset.compact(metadata=True), "d/files"),
        (lambda dataset: dataset.indices.build("n"), "d/postings"),
    ],
    ids=["compact_metadata", "build_index"],
)
def test_what_was_written_long_before_a_cleanup_is_not_named_after_it(
    lake, tmp_path, work: Callable[[lakebed.Dataset], object], written: str
) -> None:
    """No reservation keeps it: its writer slept for days, and the cleanup took it for garbage."""
    dataset = lake.open("d")
    store = HaltingStore(lake.store, "put", written, after=True)

    def sleep_beside_a_cleanup() -> None:
        age(tmp_path / "lake", 3)
        assert any(written in file.key for file in sweep(dataset).files)

    store.then = sleep_beside_a_cleanup
    with pytest.raises(CommitConflictError, match="the cleanup that made version"):
        work(lakebed.Repository(store).open("d"))

    assert store.then is None
    assert dataset.check(deep=True).problems == ()
    work(dataset)
    assert dataset.check(deep=True).problems == ()
