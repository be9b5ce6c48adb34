"""Reruns, rollbacks and staged batches on a store that fails at any of its writing calls."""

import functools
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from copies import copy_of
from writing_calls import writing_calls

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, by
from lakebed.errors import AccessDeniedError, LakebedError, StorageError
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

pytestmark = pytest.mark.thorough

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
QUICK = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
LOST = StorageError("The answer was lost.", retryable=True)
DENIED = AccessDeniedError("Access was denied.")
OLD, NEW = [("a", 1), ("b", 1)], [("c", 2)]


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for p, n in pairs]


def content(dataset: Dataset) -> list[tuple[str, int]]:
    return sorted((row["p"], row["n"]) for row in dataset.arrow().to_pylist())


def lake() -> tuple[Store, Dataset]:
    """Version 1 holds what a rollback goes to; version 2 is current; batch 3 is staged."""
    store = copy_of(two_versions())
    return store, Repository(store).open("d")


@functools.cache
def two_versions() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")], index=["n"])
    dataset = Repository(store).create("d", descriptor)
    dataset.rerun(rows(*NEW), "daily", replace_all=True)
    dataset.rerun(rows(*OLD), "daily", replace_all=True)
    dataset.staged.add(rows(*NEW), "rerun", run="daily", replace_all=True)
    return store


def commit_staged(dataset: Dataset) -> None:
    dataset.with_options(commit=QUICK).staged.list()[0].commit()


ACTS: dict[str, Callable[[Dataset], object]] = {
    "rerun": lambda dataset: dataset.with_options(commit=QUICK).rerun(
        rows(*NEW), "daily", replace_all=True
    ),
    "rollback": lambda dataset: dataset.with_options(commit=QUICK).rollback(version=1),
    "commit": commit_staged,
}


def calls_of(act: Callable[[Dataset], object]) -> list[tuple[str, int]]:
    store, _ = lake()
    return writing_calls(store, lambda repository: act(repository.open("d")))


def run_failing(
    act: Callable[[Dataset], object], name: Any, nth: int, error: StorageError, landed: bool
) -> tuple[Store, Dataset, LakebedError | None]:
    store, dataset = lake()
    failing = FailingStore(store, fail_on=name, nth=nth, landed=landed, error=error)
    failure: LakebedError | None = None
    try:
        act(Repository(failing).open("d"))
    except LakebedError as exc:
        failure = exc
    assert failing.has_failed
    return store, dataset, failure


KINDS = pytest.mark.parametrize(
    ("error", "landed"), [(LOST, False), (LOST, True), (DENIED, False)], ids=["lost", "late", "no"]
)


@pytest.mark.parametrize("verb", ACTS)
@KINDS
def test_it_happens_once_or_not_at_all(
    subtests: pytest.Subtests, verb: str, error: StorageError, landed: bool
) -> None:
    for name, nth in calls_of(ACTS[verb]):
        with subtests.test(call=name, nth=nth):
            check_once_or_not_at_all(verb, *run_failing(ACTS[verb], name, nth, error, landed))


def check_once_or_not_at_all(
    verb: str, store: Store, dataset: Dataset, failure: LakebedError | None
) -> None:
    assert content(dataset) == (NEW if failure is None else OLD)
    assert dataset.version == (3 if failure is None else 2)
    for batch in dataset.staged.list():
        assert content(batch.rows) == NEW  # whole, whatever happened
    for file in dataset.files():
        store.size(file.key)
    # And the dataset can be used on.
    if verb == "commit" and failure is not None:
        commit_staged(dataset)
    else:
        ACTS["rerun" if verb == "commit" else verb](dataset)
    assert content(dataset) == NEW


@KINDS
def test_staging_on_a_failing_store_leaves_a_whole_batch_or_none(
    subtests: pytest.Subtests, error: StorageError, landed: bool
) -> None:
    for name, nth in calls_of(stage):
        with subtests.test(call=name, nth=nth):
            check_staged_or_not(*run_failing(stage, name, nth, error, landed), landed=landed)


def stage(dataset: Dataset) -> None:
    dataset.staged.add(rows(("z", 9)), "overwrite")


def check_staged_or_not(
    store: Store, dataset: Dataset, failure: LakebedError | None, *, landed: bool
) -> None:
    assert content(dataset) == OLD
    new = dataset.staged.list()[1:]
    assert len(new) == (failure is None)
    for batch in new:
        assert content(batch.rows) == [("z", 9)]
        batch.discard()
    known = {key for commit in dataset.history() for key in commit.files_added}
    known |= {file.key for file in dataset.staged.list()[0].rows.plan().files}
    found = {info.key for info in store.list("d/data/p=")}
    # Of a put that landed after all, nothing refers to what it left.
    assert found <= known or landed


@pytest.mark.parametrize("name", ["replace", "delete"])
@KINDS
def test_discard_on_a_failing_store_can_be_done_again(
    name: str, error: StorageError, landed: bool
) -> None:
    _, dataset, _ = run_failing(lambda one: one.staged.list()[0].discard(), name, 1, error, landed)

    for batch in dataset.staged.list():
        batch.discard()

    assert dataset.staged.list() == ()
    assert content(dataset) == OLD


def test_matrix_holds_every_kind_of_call() -> None:
    assert {name for name, _ in calls_of(ACTS["rerun"])} == {"create", "put", "replace"}
    # They keep up the index files for plateau, each under a key that nobody else takes.
    assert {name for name, _ in calls_of(ACTS["rollback"])} == {"create", "put", "replace"}
    assert {name for name, _ in calls_of(ACTS["commit"])} == {"create", "put", "replace"}
