"""A verb of several commits that fails after the first reports what has landed, on its error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflictError, StorageError
from lakebed.state.state import HeadKind
from lakebed.state.transaction import Transaction
from lakebed.store.memory import MemoryStore
from lakebed.work import erased_objects


@pytest.fixture
def dataset() -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    store = MemoryStore("reported-commits")
    store.delete([info.key for info in store.list()])
    made = lakebed.Repository(store).create("d", descriptor, head="document", head_format="json")
    made.append([{"n": 1}])
    return made


def test_change_to_a_tree_that_fails_reports_the_move_to_msgpack(
    dataset: lakebed.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Transaction.commit

    def fail(self: Transaction, change: Any, *given: Any, **named: Any) -> Any:
        if change.head is HeadKind.TREE:
            raise CommitConflictError("The race was lost.", expected=2, actual=3)
        return commit(self, change, *given, **named)

    monkeypatch.setattr(Transaction, "commit", fail)

    with pytest.raises(CommitConflictError) as caught:
        dataset.compact(head="tree")

    (note,) = caught.value.__notes__
    assert note.startswith("Version 2 has moved the head to msgpack")
    assert dataset.history()[-1].version == 2
    with pytest.raises(CommitConflictError) as again:
        dataset.compact(head="tree")
    assert not hasattr(again.value, "__notes__")


def test_erasure_that_fails_reports_its_commits(
    dataset: lakebed.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise StorageError("The store is away.")

    monkeypatch.setattr(erased_objects, "delete_erased", fail)

    with pytest.raises(StorageError) as caught:
        dataset.erase("n = 1", reason="asked for", grace="0s")

    (note,) = caught.value.__notes__
    assert note == "Committed so far: version 2. Erase again to continue."
