"""How many requests of a commit wait for each other, and how many a lost race costs."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hops import TickingStore, counted

import lakebed
from lakebed import by
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore, DelegatingStore

_names = itertools.count()
HEADS = ["json", "msgpack.zstd", "tree"]
ROWS = [{"p": "a", "id": number} for number in range(100)]


def descriptor(*, index: bool = False) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(
        schema=pa.schema([("p", pa.string()), ("id", pa.int64())]),
        partition_by=[by.identity("p")],
        index=["id"] if index else [],
    )


def new_store(head: str, *, index: bool = False) -> MemoryStore:
    store = MemoryStore(f"hops-{next(_names)}")
    kind = {"head": "tree"} if head == "tree" else {"head_format": head}
    dataset = lakebed.Repository(store).create("d", descriptor(index=index), **kind)
    dataset.append(ROWS)
    dataset.append(ROWS)
    return store


def hops_of(head: str, *, is_cold: bool, index: bool = False) -> tuple[TickingStore, int]:
    """Append 100 rows; return the store, and the hops after the data."""
    store = TickingStore(new_store(head, index=index))
    dataset = lakebed.Repository(store).open("d")
    if not is_cold:
        dataset.append(ROWS)
    if is_cold:
        PROCESS_CACHE.clear()
    store.reset()
    with counted():
        dataset.append(ROWS)
    data = max(store.ended("put", "d/data/"), store.ended("put", "d/postings/") if index else 0)
    return store, store.last - data


@pytest.mark.parametrize("head", HEADS)
def test_an_append_takes_two_hops_after_its_data(head: str) -> None:
    for is_cold in (True, False):
        store, hops = hops_of(head, is_cold=is_cold)

        # Until it is known, a head in msgpack is looked for after one in JSON.
        assert hops == 2, store.requests
        # The head, the reservation, the data.
        assert store.last == (6 if is_cold and head != "json" else 5), store.requests


def test_an_append_to_an_indexed_dataset_takes_few_hops_more() -> None:
    _, cold = hops_of("json", is_cold=True, index=True)
    _, warm = hops_of("json", is_cold=False, index=True)

    # The index file of other tools, if it is not known, and the new one, beside the history.
    assert (cold, warm) == (5, 3)


@pytest.mark.parametrize("head", HEADS)
def test_all_that_a_head_names_is_put_before_it(head: str) -> None:
    store, _ = hops_of(head, is_cold=True)

    names = [key for _, name, key in store.requests if name == "put"]
    assert "/" not in names[-1]
    ends = {key: tick for tick, name, key in store.requests if name == "put"}
    assert all(ends[key] < ends[names[-1]] for key in names[:-1])


def test_the_clock_counts_what_waits_and_not_what_is_sent_at_once() -> None:
    store = TickingStore(MemoryStore(f"hops-{next(_names)}"))
    store.put("a", b"1")
    with counted(), ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(store.get, "a") for _ in range(4)]:
            future.result()
        assert store.last == 2
        store.get("a")
        assert store.last == 3


class Rival(DelegatingStore):
    """Lets another writer commit right before the first swaps of the head."""

    def __init__(self, inner: MemoryStore, *, rivals: int, times: int) -> None:
        super().__init__(inner)
        self.rivals = rivals
        self.left = times
        self.main = threading.current_thread()
        self.counts: list[tuple[str, str]] = []

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if "/" not in key and self.left:
            self.left -= 1
            dataset = lakebed.Repository(self.inner).open("d")
            for _ in range(self.rivals):
                dataset.append([{"p": "b", "id": 1}])
        return super()._replace(key, data, if_match=if_match)


def requests_of_append(head: str, *, rivals: int, times: int) -> tuple[int, int]:
    """Return the reads and the writes of an append that loses some races."""
    counting = CountingStore(Rival(new_store(head), rivals=rivals, times=times))
    dataset = lakebed.Repository(counting).open("d")
    dataset = dataset.with_options(commit=lakebed.CommitOptions(first_wait_ms=0.1))
    counting.reset()
    commit = dataset.append(ROWS)
    assert commit.version == 3 + rivals * times
    return counting.counts.get, counting.counts.put


@pytest.mark.parametrize(
    ("head", "rivals", "reads", "writes"),
    [
        ("tree", 1, 1, 1),
        ("tree", 3, 1, 1),
        # The history names the version, so its segment is written again.
        ("json", 1, 1, 2),
        ("json", 3, 4, 2),
        # The head in JSON is looked for as well: another tool may have written one.
        ("msgpack.zstd", 1, 2, 2),
    ],
)
def test_a_lost_race_of_an_append_costs_a_read_and_a_swap(
    head: str, rivals: int, reads: int, writes: int
) -> None:
    once = requests_of_append(head, rivals=0, times=0)
    again = requests_of_append(head, rivals=rivals, times=1)

    assert (again[0] - once[0], again[1] - once[1]) == (reads, writes)
