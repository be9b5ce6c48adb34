"""Read, edit, write: a write that names what it was made from loses nobody's rows."""

from __future__ import annotations

import concurrent.futures
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from copies import copy_of

import lakebed
import lakebed.testing
from lakebed import Dataset, DatasetDescriptor, Repository, by
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    ReadOnlyError,
    VersionNotFoundError,
)
from lakebed.store.memory import MemoryStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
DESCRIPTOR = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for p, n in pairs]


def content(dataset: Dataset) -> list[tuple[str, int]]:
    return sorted((row["p"], row["n"]) for row in dataset.arrow().to_pylist())


@pytest.fixture(scope="session")
def made_once() -> MemoryStore:
    """A lake to be copied."""
    store = MemoryStore(uuid.uuid4().hex)
    Repository(store).create("d", DESCRIPTOR).rerun(
        rows(("a", 1), ("b", 1)), "daily", replace_all=True
    )
    return store


@pytest.fixture
def repository(made_once: MemoryStore) -> Repository:
    return Repository(copy_of(made_once))


@pytest.fixture
def dataset(repository: Repository) -> Dataset:
    return repository.open("d")


def write_with_writer(dataset: Dataset, base: Any) -> None:
    with dataset.kite.writer(base=base) as writer:
        writer.write({"p": "a", "n": 9})


WRITES: dict[str, Callable[[Dataset, Any], Any]] = {
    "append": lambda one, base: one.append(rows(("a", 9)), base=base),
    "overwrite": lambda one, base: one.overwrite(rows(("a", 9)), base=base),
    "overwrite of a view": lambda one, base: one.overwrite(
        rows(("a", 9)), one.where("p = 'a'"), base=base
    ),
    "rerun": lambda one, base: one.rerun(rows(("a", 9)), "daily", base=base, replace_all=True),
    "delete": lambda one, base: one.delete(one.where("p = 'a'"), base=base),
    "writer": write_with_writer,
    "rollback": lambda one, base: one.rollback(version=0, view=one.where("p = 'a'"), base=base),
    "stage": lambda one, base: one.staged.add(rows(("a", 9)), "overwrite", base=base).commit(),
}
# What touches the partition, and what the run has written there.
TOUCHES: dict[str, Callable[[Dataset], Any]] = {
    "delete": lambda one: one.delete(one.where("p = 'a' AND n = 1")),
    "rollback": lambda one: one.rollback(version=0, view=one.where("p = 'a'")),
}


@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize("verb", WRITES)
def test_commit_since_the_base_that_touched_what_is_written_is_a_conflict(
    dataset: Dataset, verb: str, touch: str
) -> None:
    dataset.append(rows(("a", 5)))
    base = dataset.version
    other = TOUCHES[touch](dataset)
    dataset.append(rows(("a", 7)))  # so that there is something to delete and to roll back
    before = content(dataset)

    with pytest.raises(CommitConflictError) as caught:
        WRITES[verb](dataset, base)

    assert caught.value.expected == base
    told = str(caught.value)
    assert other.commit_id in told or dataset.history()[-1].commit_id in told
    assert content(dataset) == before


@pytest.mark.parametrize("verb", WRITES)
def test_commits_elsewhere_and_compactions_since_the_base_are_none(
    dataset: Dataset, verb: str
) -> None:
    dataset.append(rows(("a", 5)))
    base = dataset.version
    dataset.append(rows(("b", 6)))
    dataset.compact()
    before = dataset.version

    WRITES[verb](dataset, base)

    assert dataset.version == before + 1


def test_rows_that_were_appended_since_they_were_read_are_not_lost(
    repository: Repository, dataset: Dataset
) -> None:
    read = dataset.where("p = 'a'").snapshot()
    edited = [row | {"n": 100} for row in read.arrow().to_pylist()]
    commit = repository.open("d").append(rows(("a", 2)))
    # Reading again has no influence on what the write is checked against.
    assert read.count() == 1
    assert dataset.where("p = 'a'").count() == 2

    with pytest.raises(CommitConflictError, match=commit.commit_id) as caught:
        dataset.overwrite(edited, base=read)

    assert caught.value.partitions == ("p=a",)
    assert content(dataset) == [("a", 1), ("a", 2), ("b", 1)]
    read = dataset.where("p = 'a'").snapshot()
    dataset.overwrite([row | {"n": 100} for row in read.arrow().to_pylist()], base=read)
    assert content(dataset) == [("a", 100), ("a", 100), ("b", 1)]


@pytest.mark.parametrize("verb", WRITES)
def test_view_that_is_not_pinned_is_refused_as_a_base_with_the_way_to_do_it(
    dataset: Dataset, verb: str
) -> None:
    view = dataset.where("p = 'a'")
    view.arrow()
    dataset.arrow()

    for base in (view, dataset):
        with pytest.raises(InvalidInputError, match="not pinned to a version") as caught:
            WRITES[verb](dataset, base)
        assert "Make a `snapshot` of it before you read" in (caught.value.hint or "")

    assert dataset.version == 1


def test_snapshot_shows_one_version_in_all_threads_and_processes(
    tmp_path: Path,
) -> None:
    on_disk = lakebed.open_repository(tmp_path).create("d", DESCRIPTOR)
    on_disk.append(rows(("a", 1), ("b", 1)))
    whole, narrow = on_disk.snapshot(), on_disk.where("p = 'a'").snapshot()
    on_disk.append(rows(("a", 2)))

    def look(_: int) -> tuple[int, int, int]:
        on_disk.count()
        return whole.count(), narrow.count(), narrow.version

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(look, range(40)))
    (tmp_path / "snapshots").write_bytes(pickle.dumps([whole, narrow]))
    program = (
        "import pickle, sys\n"
        "whole, narrow = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(whole.count(), narrow.count(), narrow.version, whole.version)\n"
        "whole.where('n > 0').arrow()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "snapshots")],
        capture_output=True,
        text=True,
        check=True,
    )

    assert answers == {(2, 1, 1)}
    assert done.stdout.split() == ["2", "1", "1", "1"]
    for base in (whole, narrow, pickle.loads(pickle.dumps(narrow))):
        with pytest.raises(CommitConflictError, match="made version 2"):
            on_disk.overwrite(rows(("a", 9)), base=base)


def test_snapshot_is_read_only_and_its_own_snapshot(dataset: Dataset) -> None:
    snapshot, view = dataset.snapshot(), dataset.where("p = 'a'").snapshot()
    (part,) = view.kite.covering_partitions()

    assert snapshot.snapshot() is snapshot
    assert view.snapshot() is view
    assert part.snapshot() is part
    assert (repr(view), view.version) == ("<View of 'd' at version 1: p = 'a'>", 1)
    old = dataset.at(version=0)
    assert old.snapshot() is old
    for act in (
        lambda: snapshot.append(rows(("a", 1))),
        lambda: view.delete(),
        lambda: snapshot.evolve(lambda now: now),
    ):
        with pytest.raises(ReadOnlyError, match="is a snapshot") as caught:
            act()
        assert "base=snapshot" in (caught.value.hint or "")


def test_snapshot_of_a_partition_keeps_its_path(dataset: Dataset) -> None:
    first, _ = dataset.kite.covering_partitions()
    snapshot = first.snapshot()
    dataset.append(rows(("a", 2)))

    assert (snapshot.path, snapshot.count(), first.count()) == (first.path, 1, 2)


def test_base_may_be_all_that_can_be_read(dataset: Dataset) -> None:
    whole, view = dataset.where("n > 0"), dataset.where("p = 'a'")
    commit = dataset.history()[-1]
    bases: list[Any] = [1, commit, view.plan(), dataset.at(version=1)]
    bases += [dataset.at(version=1).where("p = 'a'"), dataset.snapshot().where("p = 'a'")]
    bases += [dataset.snapshot(), view.snapshot(), whole.snapshot()]

    for base in bases:
        dataset.staged.add(rows(("a", 9)), "overwrite", base=base)
    dataset.append(rows(("a", 2)))

    for base, staged in zip(bases, dataset.staged.list(), strict=True):
        with pytest.raises(CommitConflictError, match="made version 2"):
            dataset.overwrite(rows(("a", 9)), base=base)
        with pytest.raises(CommitConflictError, match="made version 2"):
            staged.commit()
    assert content(dataset) == [("a", 1), ("a", 2), ("b", 1)]


def test_what_is_no_base_is_refused_before_anything_is_written(
    repository: Repository, dataset: Dataset
) -> None:
    other = repository.create("other", DESCRIPTOR)
    namesake = Repository(MemoryStore(uuid.uuid4().hex)).create("d", DESCRIPTOR)
    held = {info.key for info in repository.store.list("d/")}

    for foreign in (other, other.snapshot(), other.plan(), other.history()[-1]):
        with pytest.raises(InvalidInputError, match=r"dataset 'other'.* write to 'd'"):
            dataset.overwrite(rows(("a", 9)), base=foreign)
    for foreign in (namesake, namesake.snapshot(), namesake.plan()):
        with pytest.raises(InvalidInputError) as refused:
            dataset.overwrite(rows(("a", 9)), base=foreign)
        assert namesake.uri.removesuffix("/d") in str(refused.value)
        assert repository.uri in str(refused.value)
    for base in (dataset.arrow(), True, "1", dataset.where("n = 1"), dataset.select("n")):
        with pytest.raises(InvalidInputError, match="base") as caught:
            dataset.overwrite(rows(("a", 9)), base=base)  # type: ignore[arg-type]
        assert len(str(caught.value)) < 300  # a plan and a table are long
    with pytest.raises(VersionNotFoundError, match="no version 7"):
        dataset.overwrite(rows(("a", 9)), base=7)
    with pytest.raises(InvalidInputError, match="Cannot stage append with a base"):
        dataset.staged.add(rows(("a", 9)), base=1)
    with pytest.raises(ReadOnlyError):
        dataset.at(version=1).overwrite(rows(("a", 9)), base=1)

    assert {info.key for info in repository.store.list("d/")} == held


def test_base_of_an_earlier_dataset_of_the_name_is_a_conflict(
    repository: Repository, dataset: Dataset
) -> None:
    dataset.arrow()
    bases = dataset.plan(), dataset.history()[-1], dataset.snapshot(), dataset.at(version=1)
    repository.drop("d")
    again = repository.create("d", DESCRIPTOR)
    again.append(rows(("a", 1)))

    for base in bases:
        with pytest.raises(CommitConflictError, match="created again"):
            again.overwrite(rows(("a", 9)), base=base)
        with pytest.raises(CommitConflictError, match="created again"):
            again.staged.add(rows(("a", 9)), "overwrite", base=base)
    assert content(again) == [("a", 1)]


def test_staged_batch_that_was_never_committed_is_no_base(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    seen = staged.dataset
    dataset.append(rows(("a", 3)))  # is of the version that the batch would have been

    with pytest.raises(CommitConflictError, match="never committed"):
        dataset.overwrite(rows(("a", 9)), base=seen)


@pytest.mark.parametrize("touch", ["delete of its rows", "rollback of its rows"])
def test_rerun_with_a_base_keeps_what_others_did_to_its_run(dataset: Dataset, touch: str) -> None:
    dataset.rerun(rows(("a", 2), ("b", 2)), "daily", replace_all=True)
    base = dataset.version
    if touch == "delete of its rows":
        dataset.where("p = 'a' AND n = 2").delete()
    else:
        dataset.rollback(version=1)
    before = content(dataset)

    with pytest.raises(CommitConflictError, match="touched what the run has written"):
        dataset.rerun(rows(("a", 3)), "daily", base=base, replace_all=True)

    assert content(dataset) == before
    dataset.rerun(
        rows(("a", 3)), "daily", replace_all=True
    )  # knows what it wants, whatever was there
    assert content(dataset) == [("a", 3)]


def test_rerun_with_a_base_does_not_mind_other_runs_in_its_partitions(dataset: Dataset) -> None:
    base = dataset.version
    dataset.append(rows(("a", 2)), run="other")
    dataset.where("n = 2").delete()

    dataset.rerun(rows(("a", 3)), "daily", base=base, replace_all=True)

    assert content(dataset) == [("a", 3)]


def test_delete_with_a_base_counts_every_partition_of_the_view(dataset: Dataset) -> None:
    view = dataset.where("n = 1")
    snapshot = view.snapshot()
    dataset.append(rows(("c", 1)))

    with pytest.raises(CommitConflictError) as caught:
        view.delete(base=snapshot)

    assert caught.value.partitions == ("p=c",)


def test_rollback_with_a_base_does_not_undo_what_nobody_has_seen(dataset: Dataset) -> None:
    dataset.overwrite(rows(("a", -1)))
    seen = dataset.history()[-1]
    dataset.append(rows(("a", 2)))

    with pytest.raises(CommitConflictError, match="the append that made version 3"):
        dataset.rollback(version=1, base=seen)

    assert content(dataset) == [("a", -1), ("a", 2), ("b", 1)]


def test_base_before_an_update_takes_data_of_the_schema_that_there_is(dataset: Dataset) -> None:
    dataset.arrow()
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    dataset.evolve(lambda old: DatasetDescriptor(schema=wider, partition_by=old.partition_by))

    dataset.overwrite([{"p": "a", "n": 1, "more": 2}], base=1)

    assert dataset.where("p = 'a'").arrow().to_pylist() == [{"p": "a", "n": 1, "more": 2}]


def test_lost_answer_of_a_write_with_a_base_is_found_and_no_conflict(
    repository: Repository, dataset: Dataset
) -> None:
    dataset.append(rows(("b", 4)))
    lost = lakebed.testing.FailingStore(
        repository.store,
        fail_on="replace",
        nth=2,  # the first completes the manifest
        landed=True,
        error=lakebed.errors.StorageError("The answer was lost.", retryable=True),
    )

    commit = Repository(lost).open("d").overwrite(rows(("a", 9)), base=1)

    assert lost.has_failed
    assert commit.version == dataset.version == 3
