"""Stage, audit, publish: a batch that is looked at before anybody sees it."""

import contextlib
import datetime as dt
import json
import math
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from copies import copy_of

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, by, checks
from lakebed.errors import (
    ChecksFailedError,
    CommitConflictError,
    CommitUnknownError,
    CorruptMetadataError,
    InvalidInputError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
    StaleRerunError,
    StorageError,
    VersionNotFoundError,
)
from lakebed.store.base import Store, StoredObject
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore
from lakebed.testing.stores import DelegatingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


@pytest.fixture(scope="session")
def made_once() -> Store:
    """A lake to be copied."""
    store = MemoryStore(uuid.uuid4().hex)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")], index=["n"])
    dataset = Repository(store).create("d", descriptor)
    dataset.append(rows(("a", 1), ("b", 1)), run="first")
    return store


@pytest.fixture
def store(made_once: Store) -> Store:
    return copy_of(made_once)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return Repository(store).open("d")


def rows(*pairs: tuple[str, int | None]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n, "x": None if n is None else n / 2} for p, n in pairs]


def content(view: lakebed.View) -> list[tuple[str, int]]:
    return sorted((row["p"], row["n"]) for row in view.arrow().to_pylist())


def keys(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


def test_staged_batch_is_seen_by_nobody_but_those_who_ask(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2), ("c", 2)), run="second")

    assert dataset.version == 1
    assert content(dataset) == [("a", 1), ("b", 1)]
    assert content(staged.dataset) == [("a", 1), ("a", 2), ("b", 1), ("c", 2)]
    assert content(dataset.at(batch_id=staged.batch_id)) == content(staged.dataset)
    assert content(staged.rows) == [("a", 2), ("c", 2)]
    assert content(staged.dataset.where("n = 2")) == [("a", 2), ("c", 2)]
    assert dataset.diff(1, staged.batch_id).rows_added == 2
    with pytest.raises(ReadOnlyError):
        staged.dataset.append([])
    assert (staged.row_count, staged.run, staged.operation) == (2, "second", "append")


def test_commit_makes_it_visible_once(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)), run="second")
    dataset.append(rows(("a", 7)))

    commit = staged.commit()

    assert (commit.version, commit.operation, commit.run) == (3, "append", "second")
    assert (commit.batch_id, commit.row_count) == (staged.batch_id, 1)
    assert content(dataset) == [("a", 1), ("a", 2), ("a", 7), ("b", 1)]
    assert staged.commit() == commit
    assert dataset.version == 3
    assert dataset.staged.list() == ()


@pytest.mark.parametrize("operation", ["append", "overwrite", "rerun"])
def test_staged_batch_looks_as_its_commit_will(dataset: Dataset, operation: Any) -> None:
    staged = dataset.staged.add(
        rows(("a", 2)), operation, run="first", replace_all=operation == "rerun"
    )
    seen = content(staged.dataset)

    commit = staged.commit()

    assert content(dataset) == seen
    assert (
        seen
        == {
            "append": [("a", 1), ("a", 2), ("b", 1)],
            "overwrite": [("a", 2), ("b", 1)],
            "rerun": [("a", 2)],
        }[operation]
    )
    assert commit.operation == operation
    assert [one.row_count for one in dataset.files()] == [1] * len(seen)  # facts came along
    if operation == "rerun":
        assert dataset.rerun([], "first", replace_all=True).files_removed == commit.files_added


def test_view_is_overwritten_also_by_nothing(dataset: Dataset) -> None:
    staged = dataset.staged.add([], "overwrite", view=dataset.where("p = 'a'"))

    assert content(staged.dataset) == [("b", 1)]
    assert content(staged.rows) == []
    staged.commit()
    assert content(dataset) == [("b", 1)]


def test_what_cannot_be_staged_is_refused_and_leaves_nothing(
    dataset: Dataset, store: Store
) -> None:
    before = keys(store)

    with pytest.raises(InvalidInputError, match="the partitions to replace are unknown"):
        dataset.staged.add([], "overwrite")
    with pytest.raises(InvalidInputError, match="lies outside"):
        dataset.staged.add(rows(("b", 1)), "overwrite", view=dataset.where("p = 'a'"))
    with pytest.raises(PredicateError, match="not aligned"):
        dataset.staged.add([], "overwrite", view=dataset.where("n = 1"))
    with pytest.raises(InvalidInputError, match="Name the run"):
        dataset.staged.add([], "rerun", replace_all=True)
    with pytest.raises(InvalidInputError, match=r"Cannot stage .* for a view"):
        dataset.staged.add(
            [], "rerun", run="first", view=dataset.where("p = 'a'"), replace_all=True
        )
    with pytest.raises(InvalidInputError, match="Cannot stage"):
        dataset.staged.add([], "delete")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="a positive duration"):
        dataset.staged.add([], lease=dt.timedelta())
    with pytest.raises(SchemaMismatchError):
        dataset.staged.add([{"z": 1}])
    with pytest.raises(ReadOnlyError):
        dataset.at(version=1).staged.add([])

    assert keys(store) == before


@pytest.mark.thorough
def test_it_survives_the_process_and_can_be_committed_by_another(tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")], index=["n"])
    repository.create("d", descriptor).append(rows(("a", 1)))
    program = (
        "import lakebed, sys\n"
        "dataset = lakebed.open_repository(sys.argv[1]).open('d')\n"
        "dataset.staged.add([{'p': 'a', 'n': 2, 'x': None}], 'overwrite', run='nightly')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    dataset = repository.open("d")

    (staged,) = dataset.staged.list()

    assert (staged.operation, staged.run, staged.row_count) == ("overwrite", "nightly", 1)
    assert content(staged.dataset) == [("a", 2)]
    assert repr(dataset.staged.open(staged.batch_id)) == repr(staged)
    staged.commit(checks=[checks.row_count(min=1)])
    assert content(dataset.where("n = 2")) == [("a", 2)]
    assert [batch.is_staged for batch in dataset.batches()] == [False, False]


def test_committed_batch_is_shown_as_its_commit_left_the_dataset(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    commit = staged.commit()
    dataset.append(rows(("a", 2), ("a", 7)))

    for batch in (staged, dataset.staged.open(staged.batch_id)):
        assert content(batch.dataset) == [("a", 1), ("a", 2), ("b", 1)]
        assert content(batch.rows) == [("a", 2)]
        assert batch.check(checks.unique("n", "p", of="dataset")).has_passed
        # Checks have nothing to say any more.
        assert batch.commit(checks=[checks.row_count(min=9), checks.unique("p")]) == commit
    assert dataset.version == 3


def test_batch_that_is_committed_while_it_is_looked_for_is_shown_once(
    dataset: Dataset, store: Store
) -> None:
    staged = dataset.staged.add(rows(("a", 2)))

    class Committing(DelegatingStore):
        """Lets somebody commit the batch as soon as its manifest has been read."""

        def _get(self, key: str) -> StoredObject:
            found = super()._get(key)
            if key.startswith("d/batches/"):
                staged.commit()
            return found

    found = Repository(Committing(store)).open("d").at(batch_id=staged.batch_id)

    assert content(found) == [("a", 1), ("a", 2), ("b", 1)]


def test_discard_leaves_nothing(dataset: Dataset, store: Store) -> None:
    before = keys(store)
    staged = dataset.staged.add(rows(("a", 2)))
    assert keys(store) > before

    staged.discard()

    left = keys(store) - before
    assert all(key.startswith("d/history/") for key in left), "the version of the discard"
    assert before <= keys(store)
    assert dataset.staged.list() == ()
    for act in (staged.discard, staged.commit):
        with pytest.raises(VersionNotFoundError, match="no staged batch"):
            act()
    with pytest.raises(VersionNotFoundError):
        dataset.at(batch_id=staged.batch_id)


def test_committed_batch_is_not_discarded(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    staged.commit()

    with pytest.raises(InvalidInputError, match="is committed, as version 2"):
        staged.discard()

    assert content(dataset) == [("a", 1), ("a", 2), ("b", 1)]


def test_conflicts_are_judged_from_when_it_was_staged(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)), "overwrite")
    untouched = dataset.staged.add(rows(("b", 2)), "overwrite")
    dataset.append(rows(("a", 7)))

    with pytest.raises(CommitConflictError) as caught:
        staged.commit()
    untouched.commit()

    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert caught.value.partitions == ("p=a",)
    assert content(dataset) == [("a", 1), ("a", 7), ("b", 2)]
    # It stays staged, and whole.
    assert [one.batch_id for one in dataset.staged.list()] == [staged.batch_id]
    assert content(staged.rows) == [("a", 2)]
    staged.discard()


def test_staged_rerun_is_stale_after_a_newer_one(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)), "rerun", run="first", replace_all=True)
    newer = dataset.rerun(rows(("c", 3)), "first", replace_all=True)

    with pytest.raises(StaleRerunError) as caught:
        staged.commit()

    assert caught.value.batch_id == newer.batch_id
    assert content(dataset) == [("c", 3)]


def add_file_as_another_tool_would(store: Store, name: str, *, like: str) -> None:
    """Write a file of partition a, with the rows of another one, into the head."""
    key = "d.by-dataset-metadata.json"
    head = json.loads(store.get(key).data)
    label = f"p=a/batch_id=5/{name}"
    store.put(f"d/data/{label}.parquet", store.get(like).data)
    head["partitions"][label] = {"files": {"data": f"d/data/{label}.parquet"}}
    store.put(key, json.dumps(head).encode())


def test_what_another_tool_added_since_it_was_staged_is_a_conflict(
    dataset: Dataset, store: Store
) -> None:
    file = next(one.key for one in dataset.files() if one.partition == "p=a")
    staged = dataset.staged.add(rows(("a", 2)), "overwrite")
    other = dataset.staged.add(rows(("b", 2)), "overwrite")
    add_file_as_another_tool_would(store, "theirs", like=file)

    with pytest.raises(CommitConflictError, match="a change by another tool"):
        staged.commit()
    other.commit()

    assert content(dataset) == [("a", 1), ("a", 1), ("b", 2)]


def test_what_another_tool_had_added_before_it_was_staged_is_replaced(
    dataset: Dataset, store: Store
) -> None:
    file = next(one.key for one in dataset.files() if one.partition == "p=a")
    add_file_as_another_tool_would(store, "theirs", like=file)
    staged = dataset.staged.add(rows(("a", 2)), "overwrite")
    dataset.append(rows(("b", 7)))  # adopts the file in an entry of its own

    staged.commit()

    assert content(dataset) == [("a", 2), ("b", 1), ("b", 7)]
    assert [one.operation for one in dataset.history()][1:] == [
        "append",
        "foreign",
        "append",
        "overwrite",
    ]


def test_what_another_tool_added_before_and_after_are_told_apart(
    dataset: Dataset, store: Store
) -> None:
    file = next(one.key for one in dataset.files() if one.partition == "p=a")
    add_file_as_another_tool_would(store, "before", like=file)
    staged = dataset.staged.add(rows(("a", 2)), "overwrite")
    add_file_as_another_tool_would(store, "after", like=file)
    dataset.append(rows(("b", 7)))

    with pytest.raises(CommitConflictError) as caught:
        staged.commit()

    assert caught.value.partitions == ("p=a",)
    assert dataset.count() == 5


def test_schema_may_grow_in_between(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    schema = pa.schema([*SCHEMA, ("more", pa.string())])
    dataset.evolve(
        DatasetDescriptor(schema=schema, partition_by=[by.identity("p")], index=["n"]),
        base=dataset.version,
    )

    assert staged.rows.arrow(["n", "more"]).to_pylist() == [{"n": 2, "more": None}]
    staged.commit()

    assert content(dataset) == [("a", 1), ("a", 2), ("b", 1)]


def test_lost_answer_is_made_up_by_committing_again(dataset: Dataset, store: Store) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    lost = StorageError("The answer was lost.", retryable=True)
    failing = FailingStore(store, fail_on="replace", nth=2, landed=True, error=lost)
    quick = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
    hasty = Repository(failing).open("d").with_options(commit=quick)
    again = hasty.staged.open(staged.batch_id)

    try:
        again.commit()
    except CommitUnknownError:
        with pytest.raises(InvalidInputError, match="is committed"):
            staged.discard()

    assert staged.commit().version == 2
    assert content(dataset) == [("a", 1), ("a", 2), ("b", 1)]


@contextlib.contextmanager
def clock_ahead(apart: dt.timedelta) -> Iterator[None]:
    """Let the clock of this process run ahead."""
    clock = dt.datetime

    class Ahead(clock):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return clock.now(tz) + apart

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dt, "datetime", Ahead)
        yield


class Interrupted(DelegatingStore):
    """Lets somebody else act once, right before or after a call on a key."""

    def __init__(self, inner: Store, call: str, part: str, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self._due, self._act = (call, part), act

    def _meet(self, call: str, key: str) -> None:
        due, part = self._due
        if call == due and part in key:
            self._due = ("", "")
            self._act()

    def _get(self, key: str) -> StoredObject:
        found = super()._get(key)
        self._meet("after get", key)
        return found

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        found = super()._get_if_changed(key, etag)
        self._meet("after get", key)
        return found

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self._meet("before replace", key)
        etag = super()._replace(key, data, if_match=if_match)
        self._meet("after replace", key)
        return etag

    def _delete(self, keys: Any) -> None:
        self._meet("before delete", keys[0])
        super()._delete(keys)


@pytest.mark.parametrize(
    ("call", "part"),
    [
        ("after get", "d.by-dataset-metadata"),
        ("after get", "d/batches/"),
        ("before replace", "d.by-dataset-metadata"),
        ("after replace", "d.by-dataset-metadata"),
    ],
)
@pytest.mark.parametrize("apart", [dt.timedelta(), dt.timedelta(minutes=13), dt.timedelta(days=9)])
def test_beside_a_commit_a_discard_deletes_nothing_that_is_acknowledged(
    dataset: Dataset, store: Store, call: str, part: str, apart: dt.timedelta
) -> None:
    """The clock of who discards may be ahead, or the committer may have stood still for long."""
    staged = dataset.staged.add(rows(("a", 2)))

    def discard() -> None:
        with contextlib.suppress(InvalidInputError), clock_ahead(apart):
            dataset.staged.open(staged.batch_id).discard()

    slow = Repository(Interrupted(store, call, part, discard)).open("d")
    try:
        version = slow.staged.open(staged.batch_id).commit().version
    except (CommitConflictError, VersionNotFoundError):
        assert content(dataset) == [("a", 1), ("b", 1)]
    else:
        assert content(dataset.at(version=version)) == [("a", 1), ("a", 2), ("b", 1)]
    assert not dataset.check().problems
    assert dataset.staged.list() == ()


@pytest.mark.parametrize("call", ["after get", "before replace", "after replace", "before delete"])
def test_beside_a_discard_a_commit_is_refused_or_stands(
    dataset: Dataset, store: Store, call: str
) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    acknowledged: list[int] = []

    def commit() -> None:
        with contextlib.suppress(CommitConflictError):
            acknowledged.append(dataset.staged.open(staged.batch_id).commit().version)

    part = "d/data/" if call == "before delete" else "d.by-dataset-metadata"
    slow = Repository(Interrupted(store, call, part, commit)).open("d")
    try:
        slow.staged.open(staged.batch_id).discard()
    except InvalidInputError:
        assert len(acknowledged) == 1
        assert content(dataset) == [("a", 1), ("a", 2), ("b", 1)]
    else:
        assert acknowledged == []
        assert content(dataset) == [("a", 1), ("b", 1)]
    assert not dataset.check().problems


def test_discard_gives_up_one_batch_and_no_other(dataset: Dataset) -> None:
    others = [dataset.staged.add(rows(("a", 2)))]
    writer = dataset.kite.writer()
    writer.write({"p": "b", "n": 3, "x": None})
    staged = dataset.staged.add(rows(("a", 4)))
    others.append(dataset.staged.add(rows(("a", 5))))

    staged.discard()

    assert [one.batch_id for one in dataset.staged.list()] == [one.batch_id for one in others]
    for one in others:
        one.commit()
    writer.close()
    assert content(dataset) == [("a", 1), ("a", 2), ("a", 5), ("b", 1), ("b", 3)]
    assert dataset.history()[2].operation == "discard"


def test_discard_that_died_is_finished_by_the_next(dataset: Dataset, store: Store) -> None:
    before = keys(store)
    staged = dataset.staged.add(rows(("a", 2)))

    class Died(BaseException):
        pass

    def die() -> None:
        raise Died

    slow = Repository(Interrupted(store, "before delete", "d/data/", die)).open("d")
    with pytest.raises(Died):
        slow.staged.open(staged.batch_id).discard()

    assert dataset.staged.list() == ()
    with pytest.raises(CommitConflictError, match="discarded"):
        staged.commit()
    version = dataset.version
    staged.discard()
    assert dataset.version == version
    assert {key for key in keys(store) if not key.startswith("d/history/")} == {
        key for key in before if not key.startswith("d/history/")
    }


def test_failed_commit_can_be_discarded_at_once(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("a", 2)), "overwrite")
    dataset.append(rows(("a", 7)))
    with pytest.raises(CommitConflictError):
        staged.commit()

    staged.discard()

    assert dataset.staged.list() == ()


class AwayStore(DelegatingStore):
    """Loses the answers to manifests; from the `away_at`th put of one on, nothing lands."""

    def __init__(self, inner: Store, landed: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.puts, self._landed, self._meanwhile = 0, landed, meanwhile

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if "/batches/" not in key:
            return super()._replace(key, data, if_match=if_match)
        self.puts += 1
        if self.puts == self._landed:
            super()._replace(key, data, if_match=if_match)
        if self.puts == 4:
            self._meanwhile()
        raise StorageError("The request ended without an answer.", retryable=True)


@pytest.mark.parametrize("landed", [0, 1, 3])
@pytest.mark.parametrize("act", ["commit", "discard", "nothing"])
def test_stage_that_fails_leaves_a_batch_that_others_may_have_committed(
    dataset: Dataset, store: Store, act: str, landed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.state.reservation._WAITS_S", (0.0, 0.0, 0.0, 0.0))
    acknowledged: list[int] = []

    def meanwhile() -> None:
        for one in dataset.staged.list():
            if act == "commit":
                acknowledged.append(one.commit().version)
            elif act == "discard":
                one.discard()

    with pytest.raises(StorageError):
        Repository(AwayStore(store, landed, meanwhile)).open("d").staged.add(rows(("a", 2)))

    assert len(acknowledged) == (1 if landed and act == "commit" else 0)
    expected = [("a", 1), ("a", 2), ("b", 1)] if acknowledged else [("a", 1), ("b", 1)]
    assert content(dataset) == expected
    assert not dataset.check().problems
    for one in dataset.staged.list():
        assert content(one.rows) == [("a", 2)]
        one.commit()


def test_stage_that_fails_for_sure_leaves_nothing(
    dataset: Dataset, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.state.reservation._WAITS_S", ())
    before = keys(store)
    refused = StorageError("Refused.")
    failing = FailingStore(store, fail_on="replace", matching="/batches/", error=refused)

    with pytest.raises(StorageError, match="Refused"):
        Repository(failing).open("d").staged.add(rows(("a", 2)))

    assert keys(store) == before


def test_cleanup_keeps_a_staged_batch_until_its_lease_is_over(dataset: Dataset) -> None:
    kept = dataset.staged.add(rows(("a", 2)))
    brief = dataset.staged.add(rows(("a", 3)), lease=dt.timedelta(microseconds=1))
    dataset.overwrite(rows(("a", 4)))

    dataset.cleanup(older_than="0s", dry_run=False, clock_skew=dt.timedelta())

    with pytest.raises(VersionNotFoundError, match="A cleanup deletes a batch after its lease"):
        brief.commit()
    kept.commit(checks=[checks.row_count(min=1)])
    assert content(dataset) == [("a", 2), ("a", 4), ("b", 1)]


def test_batch_that_a_cleanup_gave_up_is_refused_by_its_own_lease(
    dataset: Dataset, store: Store
) -> None:
    staged = dataset.staged.add(rows(("a", 2)), lease=dt.timedelta(microseconds=1))
    dataset.append(rows(("a", 3)))
    failing = FailingStore(store, fail_on="delete", error=StorageError("Gone for a while."))

    # What it has given up is committed, and nothing is deleted yet.
    with pytest.raises(StorageError):
        Repository(failing).open("d").cleanup(
            older_than="0s", dry_run=False, clock_skew=dt.timedelta()
        )
    with pytest.raises(CommitConflictError) as caught:
        staged.commit()

    assert f"its lease ended at {staged.lease_until.isoformat()[:19]}" in caught.value.message
    assert "a day" not in caught.value.message
    assert caught.value.hint == "Stage the data again, with a longer lease if necessary."
    assert dataset.count() == 3


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"label":"p=a/', b'"label":"../../x/'),
        (b"batch_id=", b"batch_id=9"),
        (b'"facts":"d/', b'"facts":"e/'),
        (b'"staging":{', b'"staging":{{'),
    ],
)
def test_manifest_that_was_tampered_with_leads_nowhere(
    dataset: Dataset, store: Store, old: bytes, new: bytes
) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    key = f"d/batches/{staged.batch_id}.json"
    data = bytes(store.get(key).data)
    assert old in data
    store.put(key, data.replace(old, new))
    before = keys(store)

    for act in (staged.commit, staged.discard, lambda: dataset.staged.open(staged.batch_id).rows):
        with pytest.raises(CorruptMetadataError):
            act()

    assert keys(store) == before
    assert dataset.version == 1


def test_manifest_of_a_dropped_namesake_is_no_batch_of_the_new_dataset(
    dataset: Dataset, store: Store
) -> None:
    staged = dataset.staged.add(rows(("a", 2)))
    key = f"d/batches/{staged.batch_id}.json"
    data = bytes(store.get(key).data)
    repository = Repository(store)
    repository.drop("d")
    again = repository.create("d", DatasetDescriptor(schema=SCHEMA))
    store.put(key, data)

    assert again.staged.list() == ()
    with pytest.raises(VersionNotFoundError):
        again.staged.open(staged.batch_id)


def test_batches_tell_of_staged_and_superseded_ones(dataset: Dataset) -> None:
    second = dataset.overwrite(rows(("a", 2), ("b", 2)), run="second")
    staged = dataset.staged.add(rows(("a", 3)))

    first, now, waiting = dataset.batches()

    assert (first.run, first.version, first.is_live, first.file_count) == ("first", 1, False, 2)
    assert first.superseded_at == second.committed_at == now.committed_at
    assert (now.batch_id, now.is_live, now.live_file_count) == (second.batch_id, True, 2)
    assert (now.superseded_at, now.row_count) == (None, 2)
    assert (now.size_bytes or 0) > 0
    assert (waiting.batch_id, waiting.is_staged, waiting.version) == (staged.batch_id, True, None)
    assert waiting.row_count == 1
    for one in (first, now, waiting):
        assert abs(one.started_at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert [one.batch_id for one in dataset.at(version=1).batches()] == [first.batch_id]
    assert dataset.at(version=1).batches()[0].is_live

    dataset.rollback(version=1)
    back = dataset.batches()[0]
    assert (back.is_live, back.superseded_at) == (True, None)


def test_protected_batches_say_so(dataset: Dataset) -> None:
    dataset.overwrite(rows(("a", 2), ("b", 2)))
    dataset.overwrite(rows(("a", 3), ("b", 3)))
    first = dataset.batches()[0]
    dataset.protections.add(batch_id=first.batch_id, reason="audit")
    dataset.protections.add(version=2, reason="audit")

    assert [one.is_protected for one in dataset.batches()] == [True, True, False]


# Checks


@pytest.fixture
def staged(dataset: Dataset) -> lakebed.Staged[Dataset]:
    """Of a dataset with n = 1 twice: 1, 2, 2 and null."""
    return dataset.staged.add(rows(("a", 1), ("a", 2), ("c", 2), ("c", None)))


@pytest.mark.parametrize(
    ("check", "passes", "count", "detail"),
    [
        (checks.row_count(min=4, max=4), True, 4, ""),
        (checks.row_count(min=5), False, 4, "4 rows"),
        (checks.row_count(max=3), False, 4, "4 rows"),
        (checks.row_count(min=6, max=6, of="dataset"), True, 6, ""),
        (checks.not_null("p"), True, 0, ""),
        (checks.not_null("p", "n"), False, 1, "1 null in n"),
        (checks.unique("n", "p"), True, 0, ""),
        (checks.unique("n"), False, 2, "2 rows share a key"),
        (checks.unique("n", of="dataset"), False, 5, "5 rows share a key"),
        (checks.condition("n >= 1 OR n IS NULL"), True, 0, ""),
        (checks.condition("n >= 1"), False, 1, "1 row fails it"),
        (checks.condition("n > 1 AND p <> 'c'"), False, 3, "3 rows fail it"),
        (checks.condition("p IN ('a', 'b', 'c')", of="dataset"), True, 0, ""),
        (checks.custom(lambda view: view.count() == 4, name="four"), True, None, ""),
        (checks.custom(lambda view: view.count(), name="n"), False, None, "it returned 4"),
        (checks.custom(lambda _: np.True_, name="numpy"), True, None, ""),
        (checks.custom(lambda _: np.False_, name="no"), False, None, f"it returned {np.False_!r}"),
        (checks.custom(lambda _: pa.scalar(True), name="arrow"), True, None, ""),
        (
            checks.custom(lambda _: pa.scalar(None, pa.bool_()), name="unknown"),
            False,
            None,
            "it returned <pyarrow.BooleanScalar: None>",
        ),
    ],
    ids=str,
)
def test_check_tells_what_it_finds(
    staged: lakebed.Staged[Dataset], check: Any, passes: bool, count: Any, detail: str
) -> None:
    audit = staged.check(check)

    (result,) = audit.results
    assert (result.has_passed, result.count, result.detail) == (passes, count, detail)
    assert result.check == str(check)
    assert result.of == (check.of or "batch")
    assert audit.has_passed is passes


def test_function_fails_by_an_assertion_and_other_errors_are_its_own(
    staged: lakebed.Staged[Dataset],
) -> None:
    def dense(view: lakebed.View) -> None:
        if view.count() < 10:
            raise AssertionError("too few")

    def broken(view: lakebed.View) -> None:
        raise ZeroDivisionError

    (result,) = staged.check(dense).results
    assert (result.check, result.has_passed, result.detail) == ("dense", False, "too few")
    with pytest.raises(ZeroDivisionError):
        staged.check(broken)


def test_commit_happens_only_if_all_checks_pass(
    staged: lakebed.Staged[Dataset], dataset: Dataset
) -> None:
    with pytest.raises(ChecksFailedError) as caught:
        staged.commit(checks=[checks.row_count(min=1), checks.not_null("n"), checks.unique("n")])

    assert dataset.version == 1
    assert content(dataset) == [("a", 1), ("b", 1)]
    assert [one.batch_id for one in dataset.staged.list()] == [staged.batch_id]
    assert caught.value.failed == ("not_null(n): 1 null in n", "unique(n): 2 rows share a key")
    assert "fails 2 of 3 checks" in caught.value.message
    assert staged.commit(checks=[checks.not_null("p")]).version == 2


def checked_while(act: Callable[[], object], *, times: int) -> tuple[Any, list[int]]:
    """Return a check of the dataset that passes while others commit, and what it has counted."""
    counted: list[int] = []

    def look(view: lakebed.View) -> bool:
        counted.append(view.count())
        if len(counted) <= times:
            act()
        return True

    return look, counted


def test_of_two_batches_that_break_a_check_together_one_is_committed(dataset: Dataset) -> None:
    one, other = dataset.staged.add(rows(("c", 7))), dataset.staged.add(rows(("d", 7)))
    is_unique = checks.unique("n", "x", of="dataset")
    dataset.overwrite(rows(("a", 1), ("b", 2)))
    look, counted = checked_while(lambda: other.commit(checks=[is_unique]), times=1)

    with pytest.raises(ChecksFailedError) as caught:
        one.commit(checks=[checks.custom(look, of="dataset"), is_unique])

    assert caught.value.failed == ("unique(n, x): 2 rows share a key",)
    assert counted == [3, 4]
    assert content(dataset) == [("a", 1), ("b", 2), ("d", 7)]
    assert [batch.batch_id for batch in dataset.staged.list()] == [one.batch_id]


def test_checks_of_the_dataset_are_done_again_after_a_commit_in_between(
    dataset: Dataset, store: Store
) -> None:
    file = next(one.key for one in dataset.files() if one.partition == "p=a")
    by_us, by_others = dataset.staged.add(rows(("c", 7))), dataset.staged.add(rows(("c", 8)))
    of_batch, batch_counted = checked_while(lambda: None, times=0)
    for staged, act in (
        (by_us, lambda: dataset.append(rows(("a", 9)))),
        (by_others, lambda: add_file_as_another_tool_would(store, "theirs", like=file)),
    ):
        before = dataset.count()
        look, counted = checked_while(act, times=1)

        staged.commit(checks=[checks.custom(look, of="dataset"), of_batch])

        assert counted == [before + 1, before + 2]
        assert dataset.count() == before + 2
    assert batch_counted == [1, 1]  # a batch does not change


def test_commit_gives_up_where_others_commit_during_each_round_of_checks(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("c", 7)))
    look, counted = checked_while(lambda: dataset.append(rows(("a", 9))), times=99)

    with pytest.raises(CommitConflictError, match="passed its checks") as caught:
        staged.commit(checks=[checks.custom(look, of="dataset")])

    assert 1 < len(counted) < 20
    assert caught.value.actual == dataset.version
    assert [batch.batch_id for batch in dataset.staged.list()] == [staged.batch_id]
    staged.commit(checks=[checks.row_count(min=1)])


def test_checks_of_the_batch_alone_do_not_mind_other_commits(dataset: Dataset) -> None:
    staged = dataset.staged.add(rows(("c", 7)))
    look, counted = checked_while(lambda: dataset.append(rows(("a", 9))), times=99)

    staged.commit(checks=[look])

    assert counted == [1]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_zeros_are_one_key_and_so_are_values_that_are_no_numbers(store: Store, kind: Any) -> None:
    dataset = Repository(store).create("f", DatasetDescriptor(schema=pa.schema([("x", kind)])))
    zeros = dataset.staged.add([{"x": 0.0}, {"x": -0.0}, {"x": 1.0}])
    nans = dataset.staged.add([{"x": math.nan}, {"x": -math.nan}, {"x": None}])

    for staged in (zeros, nans):
        (result,) = staged.check(checks.unique("x")).results
        assert (result.has_passed, result.count) == (False, 2)


def test_wrong_checks_are_refused(staged: lakebed.Staged[Dataset]) -> None:
    for make in (checks.row_count, checks.not_null, checks.unique):
        with pytest.raises(InvalidInputError, match="needs"):
            make()
    with pytest.raises(InvalidInputError, match="'batch' or 'dataset'"):
        checks.not_null("n", of="all")  # type: ignore[arg-type]
    with pytest.raises(PredicateError):
        staged.check(checks.condition("nothing = 1"))
    with pytest.raises(SchemaMismatchError):
        staged.check(checks.unique("nothing"))


def test_nested_keys_are_for_spark(store: Store) -> None:
    schema = pa.schema([("spot", pa.struct([("y", pa.int64())]))])
    dataset = Repository(store).create("s", DatasetDescriptor(schema=schema))
    staged = dataset.staged.add([{"spot": {"y": 1}}])

    with pytest.raises(InvalidInputError, match="nested"):
        staged.check(checks.unique("spot"))
    assert staged.check(checks.not_null("spot.y")).has_passed


def test_staged_batch_and_audit_show_themselves(staged: lakebed.Staged[Dataset]) -> None:
    assert f"Staged batch {staged.batch_id}" in staged._repr_html_()
    audit = staged.check(checks.not_null("n"), checks.row_count(min=1))
    shown = audit._repr_html_()
    assert "<td>1 null in n</td>" in shown
    assert "<td>passed</td>" in shown
    assert repr(staged) == f"<Staged append {staged.batch_id} in 'd'>"


@pytest.mark.spark
def test_spark_stages_and_checks(tmp_path: Path, spark: Any) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    dataset = lakebed.open_repository(tmp_path).create("d", descriptor)
    frame = spark.createDataFrame(
        [("a", 1, 0.5), ("b", 1, None), ("b", 2, 1.0)], "p string, n bigint, x double"
    )

    staged = dataset.staged.add(frame, "rerun", run="daily", replace_all=True)

    assert dataset.spark(spark).count() == 0
    assert staged.dataset.spark(spark).count() == 3
    audit = staged.check(
        checks.unique("n"),
        checks.unique("n", "p"),
        checks.not_null("x"),
        checks.condition("n > 0"),
        checks.row_count(min=3),
        spark=spark,
    )
    assert [one.count for one in audit.results] == [2, 0, 1, 0, 3]
    zeros = dataset.staged.add([{"p": "z", "n": 1, "x": 0.0}, {"p": "z", "n": 2, "x": -0.0}])
    assert zeros.check(checks.unique("x"), spark=spark) == zeros.check(checks.unique("x"))
    zeros.discard()
    staged.commit(checks=[checks.condition("n > 0")], spark=spark)
    assert dataset.spark(spark).count() == 3
    dataset.rerun(frame.where("n = 2"), "daily", replace_all=True)
    assert content(dataset) == [("b", 2)]
