"""A transaction holds what was written for a change, and at its end leaves all of it or nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from heads import head_key

import lakebed
from lakebed.arrow.kernel import write_batches
from lakebed.errors import CommitConflictError, CommitUnknownError, StorageError
from lakebed.model.layout import Folder
from lakebed.model.predicate import TRUE
from lakebed.state import file_table
from lakebed.state.committing import CommitOptions
from lakebed.state.lists import FILES, Edit
from lakebed.state.protections import Protection
from lakebed.state.reader import read_own_head
from lakebed.state.scope import Nothing, WholeView
from lakebed.state.state import Change
from lakebed.state.transaction import Suspended, Transaction
from lakebed.state.written import Written
from lakebed.store import Store, open_store
from lakebed.store.segments import Segment
from lakebed.testing import DelegatingStore, FailingStore
from lakebed.work.writer import target_of

ROWS = [pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}])]
SHORT = CommitOptions(deadline_s=0)


def refused() -> StorageError:
    return StorageError("No.", hint="None.", retryable=False)


class DeletesNothing(DelegatingStore):
    """Notes what is to be deleted, and fails to do so."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.asked: list[list[str]] = []

    def _delete(self, keys: Sequence[str]) -> None:
        self.asked.append(list(keys))
        raise refused()


class MistakeError(Exception):
    """What a caller does wrong."""


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    store = open_store(f"memory://transaction-{request.node.name}")
    schema = pa.schema([("n", pa.int64())])
    repository = lakebed.Repository(store)
    repository.create("d", lakebed.DatasetDescriptor(schema=schema, index=["n"]))
    return store


def keys(store: Store) -> set[str]:
    return {info.key for info in store.list("")}


def write(store: Store, transaction: Transaction) -> Written:
    return write_batches(store, target_of(transaction, None), ROWS)


def begin(store: Store) -> Transaction:
    return Transaction.begin(store, "d", "append", options=SHORT)


@pytest.mark.parametrize("error", [None, MistakeError, KeyboardInterrupt])
def test_block_that_does_not_commit_leaves_nothing(store, error) -> None:
    before = keys(store)

    def block() -> None:
        with begin(store) as transaction:
            transaction.add(write(store, transaction), write(store, transaction))
            transaction.put("d/files/other", b"x")
            if error is not None:
                raise error

    if error is None:
        block()
    else:
        with pytest.raises(error):
            block()

    assert keys(store) == before


def test_all_is_deleted_in_one_request_and_the_reservation_only_after_that(store) -> None:
    failing = DeletesNothing(store)

    with begin(failing) as transaction:
        written = write(store, transaction)
        transaction.add(written)
        transaction.put("d/files/other", b"x")

    (asked,) = failing.asked
    assert set(asked) == {"d/files/other", *written.keys(transaction.base.layout)}
    assert Folder.BATCHES.of("d", f"{transaction.batch_id}.json") in keys(store)


def test_commit_that_fails_for_sure_leaves_nothing(store) -> None:
    before = keys(store)
    failing = FailingStore(
        store, fail_on="replace", matching="by-dataset-metadata", error=refused()
    )

    def block() -> None:
        with begin(failing) as transaction:
            transaction.add(write(store, transaction))
            transaction.commit()

    with pytest.raises(StorageError, match="No"):
        block()

    assert keys(store) == before


def test_commit_of_which_nobody_knows_deletes_nothing(store) -> None:
    class LosesAnswers(DelegatingStore):
        is_lost = False

        def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
            etag = super()._replace(key, data, if_match=if_match)
            self.is_lost = key == head_key("d")
            if self.is_lost:
                raise StorageError("The answer was lost.", hint="None.", retryable=True)
            return etag

        def _get(self, key: str) -> Any:
            if self.is_lost:
                raise StorageError("No answer.", hint="None.", retryable=True)
            return super()._get(key)

        def _get_if_changed(self, key: str, etag: str) -> Any:
            if self.is_lost:
                raise StorageError("No answer.", hint="None.", retryable=True)
            return super()._get_if_changed(key, etag)

    losing = LosesAnswers(store)

    def block() -> None:
        with begin(losing) as transaction:
            transaction.add(write(store, transaction))
            transaction.commit()

    with pytest.raises(CommitUnknownError):
        block()

    dataset = lakebed.Repository(store).open("d")
    assert dataset.count() == 2
    assert dataset.check(deep=True).is_ok


def test_error_after_the_commit_deletes_nothing(store) -> None:
    def block() -> None:
        with begin(store) as transaction:
            transaction.add(write(store, transaction))
            transaction.commit()
            raise MistakeError

    with pytest.raises(MistakeError):
        block()

    dataset = lakebed.Repository(store).open("d")
    assert dataset.count() == 2
    assert dataset.check(deep=True).is_ok


def test_discarded_part_is_neither_committed_nor_there(store) -> None:
    with begin(store) as transaction:
        first, second = write(store, transaction), write(store, transaction)
        transaction.add(first, second)
        transaction.discard(first)
        committed = transaction.commit()

    assert committed.entry.added == second.labels
    assert keys(store).isdisjoint(first.keys(transaction.base.layout))
    assert lakebed.Repository(store).open("d").check(deep=True).is_ok


def test_files_that_are_left_out_are_neither_committed_nor_there(store) -> None:
    with begin(store) as transaction:
        first, second = write(store, transaction), write(store, transaction)
        transaction.add(first, second)
        transaction.leave_out(frozenset(first.labels))
        committed = transaction.commit()

    assert committed.entry.added == second.labels
    assert keys(store).isdisjoint(map(transaction.base.layout.key, first.labels))
    assert lakebed.Repository(store).open("d").check(deep=True).is_ok


def test_staged_batch_stays(store) -> None:
    with begin(store) as transaction:
        transaction.add(write(store, transaction))
        transaction.stage(Nothing(), SHORT.lease)

    (staged,) = lakebed.Repository(store).open("d").staged.list()
    assert staged.rows.count() == 2


def change_of_the_file_table(store: Store, transaction: Transaction) -> tuple[Segment, Change]:
    """Put a new segment beside one that is there, both in the place of that one."""
    base = transaction.base
    (there,) = base.lists.files
    table = file_table.decode(store.get(there.key).data, there.key)
    new = file_table.new_segment("d", table)
    assert new is not None
    transaction.put(new.key, file_table.encode(table))
    edit = Edit(
        name=FILES, removed=(there,), added=(there, new), is_in_place=True, is_for_base=True
    )
    return new, Change(edits=(edit,))


def test_change_that_fails_deletes_no_segment_that_its_base_names(store) -> None:
    dataset = lakebed.Repository(store).open("d")
    dataset.append([{"n": 1}])
    before = keys(store)
    base = read_own_head(store, "d").state
    failing = FailingStore(store, fail_on="replace", error=refused())

    def block() -> None:
        with Transaction.on(failing, base, "cleanup", options=SHORT) as transaction:
            _, change = change_of_the_file_table(store, transaction)
            transaction.commit(change)

    with pytest.raises(StorageError, match="No"):
        block()

    assert keys(store) == before
    assert dataset.check(deep=True).is_ok


def test_edit_that_did_nothing_leaves_no_segment_of_its_own_and_all_of_others(store) -> None:
    dataset = lakebed.Repository(store).open("d")
    dataset.append([{"n": 1}])
    base = read_own_head(store, "d").state
    dataset.append([{"n": 2}])  # so that the edit, which is for its base alone, does nothing
    dataset.compact(
        metadata=True
    )  # the head names the segment of the base no more, which is read yet

    with Transaction.on(store, base, "cleanup") as transaction:
        new, change = change_of_the_file_table(store, transaction)
        transaction.commit(change)

    assert new.key not in keys(store)
    assert {segment.key for segment in base.lists.files} <= keys(store)
    assert dataset.check(deep=True).is_ok


def test_change_without_a_batch_reserves_none(store) -> None:
    base = read_own_head(store, "d").state
    keep = Protection(reason="audit", by="me", at=base.committed_at, version=0)

    with Transaction.on(store, base, "protect") as transaction:
        committed = transaction.commit(Change(protect=(keep,)))

    assert committed.entry.batch_id is None
    assert committed.entry.commit_id == transaction.commit_id
    assert not list(store.list(Folder.BATCHES.of("d")))
    assert read_own_head(store, "d").state.protections == (keep,)


def suspended(store: Store) -> tuple[Suspended, Written]:
    """Begin, write, and give on what another process needs, as bytes."""
    transaction = begin(store)
    given_on = pickle.loads(pickle.dumps(transaction.suspend()))
    return given_on, write(store, transaction)


def test_suspended_transaction_is_committed_where_it_is_resumed(store) -> None:
    dataset = lakebed.Repository(store).open("d")
    given_on, written = suspended(store)
    dataset.append([{"n": 3}])

    with Transaction.resume(store, given_on, options=SHORT) as transaction:
        transaction.add(written)
        entry = transaction.commit(Change(scope=Nothing())).entry

    assert (entry.version, entry.commit_id) == (2, given_on.record.commit_id)
    assert transaction.base.version == 0
    assert dataset.count() == 3
    assert dataset.check().problems == ()


def test_commit_since_a_transaction_was_begun_conflicts_also_where_it_is_resumed(store) -> None:
    dataset = lakebed.Repository(store).open("d")
    given_on, written = suspended(store)
    before = keys(store)
    dataset.append([{"n": 3}])
    everything = WholeView(TRUE, {})
    transaction = Transaction.resume(store, given_on, options=SHORT)
    transaction.add(written)

    with transaction, pytest.raises(CommitConflictError, match="version 1"):
        transaction.commit(Change(scope=everything))

    assert dataset.count() == 1
    assert not keys(store) & {*written.keys(transaction.base.layout)}
    assert before - keys(store) == {
        *written.keys(transaction.base.layout),
        f"d/batches/{given_on.record.batch_id}.json",
    }


def test_transaction_is_not_resumed_on_a_namesake_of_its_dataset(store) -> None:
    repository = lakebed.Repository(store)
    given_on, _ = suspended(store)
    descriptor = repository.open("d").descriptor
    repository.drop("d")
    repository.create("d", descriptor)

    with pytest.raises(CommitConflictError, match="dropped and created again"):
        Transaction.resume(store, given_on)


def test_transaction_that_nobody_tried_to_commit_is_given_up_with_its_files(store) -> None:
    before = keys(store)
    given_on, written = suspended(store)

    transaction = Transaction.resume(store, given_on)
    transaction.add(written)

    assert transaction.give_up()
    assert keys(store) == before


def test_transaction_that_may_be_committed_is_not_given_up(store) -> None:
    dataset = lakebed.Repository(store).open("d")
    given_on, written = suspended(store)
    with Transaction.resume(store, given_on) as transaction:
        transaction.add(written)
        transaction.commit(Change(scope=Nothing()))
    after = keys(store)

    late = Transaction.resume(store, given_on)
    late.add(written)

    assert not late.give_up()
    assert keys(store) == after
    assert dataset.count() == 2


@pytest.mark.parametrize("landed", [True, False], ids=["landed", "lost"])
def test_reservation_whose_answer_is_lost_is_made_once(store: Store, landed: bool) -> None:
    failing = FailingStore(store, fail_on="create", landed=landed, matching="/batches/")

    commit = lakebed.Repository(failing).open("d").append([{"n": 3}])

    assert failing.has_failed
    made = [info.key for info in store.list(Folder.BATCHES.of("d", ""))]
    assert made == [Folder.BATCHES.of("d", f"{commit.batch_id}.json")]
