"""Workers in threads: what was done comes back, also where something failed."""

from __future__ import annotations

import threading
import uuid

import pytest

from lakebed.arrow.workers import Threads, gather
from lakebed.errors import StorageError
from lakebed.store import open_store

COUNTS = [1, 2, 8]


@pytest.mark.parametrize("count", COUNTS)
def test_results_come_in_the_order_of_items(count: int) -> None:
    assert list(Threads(count).map(lambda n: n * n, range(50), int)) == [n * n for n in range(50)]
    assert list(Threads(count).map(lambda n: n, [], int)) == []


@pytest.mark.parametrize("count", [0, -3])
def test_there_is_one_thread_at_least(count: int) -> None:
    assert Threads(count).count == 1


def test_what_was_done_comes_before_the_error_and_nothing_begins_after_it() -> None:
    has_failed, begun = threading.Event(), []

    def work(n: int) -> int:
        begun.append(n)
        if n == 1:
            has_failed.set()
            raise StorageError("The disk is away.")
        assert has_failed.wait(10)
        return n

    done: list[int] = []
    with pytest.raises(StorageError, match="away"):
        done.extend(Threads(2).map(work, range(50), int))

    assert done == [n for n in sorted(begun) if n != 1]
    assert len(begun) < 50


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("error", [StorageError("The disk is away."), KeyboardInterrupt()])
def test_what_others_have_written_is_deleted_when_one_fails(
    count: int, error: BaseException
) -> None:
    store = open_store(f"memory://workers-{uuid.uuid4().hex}")

    def write(n: int) -> str:
        if n == 3:
            raise error
        store.put(f"key-{n}", b"done")
        return f"key-{n}"

    with pytest.raises(type(error)):
        gather(store, Threads(count).map(write, range(8), str), lambda key: [key])

    assert list(store.list()) == []


def test_threads_have_their_memory_in_common() -> None:
    assert [Threads(count).share_of(12) for count in (1, 4, 100)] == [12, 3, 1]
