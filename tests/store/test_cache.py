"""The cache of the process: bounded, and never stale."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import ObjectNotFoundError
from lakebed.state.reader import read_head
from lakebed.store import open_store
from lakebed.store.cache import MAX_CACHE_BYTES, PROCESS_CACHE, Cache, cached_get
from lakebed.store.object import ObjectStore
from lakebed.store.posix import PosixStore
from lakebed.testing import CountingStore

DESCRIPTOR = lakebed.DatasetDescriptor(schema=pa.schema([("v", pa.int64())]))

_names = itertools.count()


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(open_store(f"memory://cache-{next(_names)}"))


def test_what_was_not_asked_for_the_longest_goes_first() -> None:
    cache = Cache(max_bytes=30)
    for name in "abc":
        cache.hold((name,), name, size_bytes=10)
    cache.find(("a",), str)

    cache.hold(("d",), "d", size_bytes=10)

    assert [cache.find((name,), str) for name in "abcd"] == ["a", None, "c", "d"]
    assert cache.size_bytes == 30


def test_a_value_in_the_place_of_another_counts_once() -> None:
    cache = Cache(max_bytes=30)
    for size_bytes in (10, 20, 5):
        cache.hold(("a",), size_bytes, size_bytes=size_bytes)

    assert (cache.size_bytes, cache.find(("a",), int)) == (5, 5)


def test_what_is_too_large_is_not_held_and_takes_the_old_one_out() -> None:
    cache = Cache(max_bytes=30)
    cache.hold(("a",), "old", size_bytes=10)

    cache.hold(("a",), "new", size_bytes=31)

    assert (cache.size_bytes, cache.find(("a",), str)) == (0, None)


def test_many_threads_keep_to_the_bound() -> None:
    cache, start = Cache(max_bytes=100), threading.Barrier(4)

    def use(number: int) -> None:
        start.wait()
        for serial in range(500):
            cache.hold((str((number * serial) % 17),), serial, size_bytes=serial % 40)
            cache.find((str(serial % 17),), int)
            assert 0 <= cache.size_bytes <= 100

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(use, range(4)))

    cache.clear()
    assert cache.size_bytes == 0


def test_an_immutable_object_is_read_once(store: CountingStore) -> None:
    store.put("d/files/x", b"content")

    assert [cached_get(store, "d/files/x") for _ in range(3)] == [b"content"] * 3

    assert store.counts.get == 1


def test_a_missing_object_is_not_remembered(store: CountingStore) -> None:
    with pytest.raises(ObjectNotFoundError):
        cached_get(store, "d/files/x")
    store.put("d/files/x", b"content")

    assert cached_get(store, "d/files/x") == b"content"


def test_stores_of_other_places_do_not_share_objects(store: CountingStore) -> None:
    other = open_store(f"memory://cache-{next(_names)}")
    store.put("x", b"one")
    other.put("x", b"two")

    assert (cached_get(store, "x"), cached_get(other, "x")) == (b"one", b"two")


def test_buckets_of_two_endpoints_do_not_share_objects() -> None:
    pytest.importorskip("obstore")
    names = {
        ObjectStore(url, options=options).cache_name
        for url in ("s3://one", "s3://one/under")
        for options in ({"endpoint": "http://a:1"}, {"endpoint": "http://b:1"})
    }

    assert len(names) == 4
    assert not any("http" in str(name) for name in names)


def test_opening_an_unchanged_dataset_again_reads_no_content(store: CountingStore) -> None:
    repository = lakebed.Repository(store)
    repository.create("d", DESCRIPTOR).append([{"v": 1}])
    repository.open("d")
    store.reset()

    repository.open("d")

    assert (store.counts.total, store.counts.get, store.counts.bytes_read) == (1, 1, 0)


def test_a_commit_of_another_process_is_seen(store: CountingStore) -> None:
    lakebed.Repository(store).create("d", DESCRIPTOR)
    elsewhere = lakebed.Repository(store).open("d")
    assert elsewhere.version == 0
    PROCESS_CACHE.clear()
    lakebed.Repository(store).open("d").append([{"v": 1}])

    assert lakebed.Repository(store).open("d").version == 1


def test_what_a_commit_remembers_is_what_it_wrote(store: CountingStore) -> None:
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR)
    dataset.append([{"v": 1}])
    dataset.append([{"v": 2}], run="r")
    remembered = read_head(store, "d").state

    PROCESS_CACHE.clear()

    assert read_head(store, "d").state == remembered


@pytest.mark.parametrize("kind", ["memory", "directory"])
def test_a_dataset_made_anew_under_its_old_name_is_not_the_old_one(kind: str, tmp_path) -> None:
    name = f"memory://cache-{next(_names)}"
    store = open_store(name) if kind == "memory" else PosixStore(tmp_path, durable=False)
    for number in range(5):
        repository = lakebed.Repository(store)
        repository.create("d", DESCRIPTOR).append([{"v": number}])
        assert repository.open("d").arrow().to_pylist() == [{"v": number}]
        repository.drop("d")
        assert not repository.exists("d")


def test_the_cache_of_the_process_is_bounded() -> None:
    assert PROCESS_CACHE.max_bytes == MAX_CACHE_BYTES
    assert PROCESS_CACHE.size_bytes <= MAX_CACHE_BYTES
