"""The stores that other tests are built on."""

from __future__ import annotations

import pickle
import uuid

import pytest

from lakebed.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from lakebed.store import Store, open_store
from lakebed.testing import CountingStore, FailingStore, RequestCounts


@pytest.fixture
def inner() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


def test_requests_and_bytes_are_counted_by_kind(inner: Store) -> None:
    store = CountingStore(inner)

    etag = store.create("a", b"123")
    store.replace("a", b"12345", if_match=etag)
    store.put("b", b"1")
    store.get("a")
    store.get_range("a", 1, 2)
    store.size("a")
    list(store.list())
    store.delete(["a", "b"])

    assert store.counts == RequestCounts(
        get=2, put=3, list=1, head=1, delete=1, bytes_read=7, bytes_written=9
    )
    assert store.counts.total == 8


def test_refused_and_missing_requests_are_counted_too(inner: Store) -> None:
    store = CountingStore(inner)
    inner.put("a", b"x")

    with pytest.raises(ObjectExistsError):
        store.create("a", b"x")
    with pytest.raises(ObjectNotFoundError):
        store.get("missing")

    assert (store.counts.put, store.counts.get, store.counts.bytes_read) == (1, 1, 0)


def test_lists_and_deletions_are_counted_in_thousands(inner: Store) -> None:
    store = CountingStore(inner)
    keys = [f"k{number}" for number in range(1001)]
    for key in keys:
        inner.put(key, b"")

    list(store.list())
    store.delete(keys)

    assert (store.counts.list, store.counts.delete) == (2, 2)


def test_reset_returns_the_counts_and_begins_again(inner: Store) -> None:
    store = CountingStore(inner)
    store.put("a", b"x")

    counts = store.reset()

    assert counts.put == 1
    assert store.counts == RequestCounts()


def test_reads_of_arrow_are_counted(inner: Store) -> None:
    inner.put("a", b"0123456789")
    store = CountingStore(inner)

    with store.open_input("a") as file:
        file.read(4)

    assert (store.counts.head, store.counts.get, store.counts.bytes_read) == (1, 1, 4)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("operation", ["create", "replace", "put", "delete"])
def test_write_fails_before_or_after_it_took_place(
    inner: Store, operation: str, *, landed: bool
) -> None:
    inner.put("old", b"old")
    etag = inner.get("old").etag
    store = FailingStore(inner, fail_on=operation, landed=landed)
    write, has_landed = {
        "create": (lambda: store.create("new", b"x"), lambda: "new" in keys(inner)),
        "put": (lambda: store.put("new", b"x"), lambda: "new" in keys(inner)),
        "replace": (
            lambda: store.replace("old", b"x", if_match=etag),
            lambda: inner.get("old").data == b"x",
        ),
        "delete": (lambda: store.delete(["old"]), lambda: keys(inner) == []),
    }[operation]

    with pytest.raises(StorageError) as caught:
        write()

    assert caught.value.retryable
    assert store.has_failed
    assert has_landed() is landed


def keys(store: Store) -> list[str]:
    return [entry.key for entry in store.list()]


@pytest.mark.parametrize("operation", ["get", "get_range", "size", "list"])
def test_read_fails_once(inner: Store, operation: str) -> None:
    inner.put("a", b"x")
    store = FailingStore(inner, fail_on=operation)
    read = {
        "get": lambda: store.get("a").data,
        "get_range": lambda: store.get_range("a", 0, 1),
        "size": lambda: store.size("a"),
        "list": lambda: keys(store),
    }[operation]

    with pytest.raises(StorageError):
        read()

    assert read() in (b"x", 1, ["a"])


def test_only_the_call_that_was_named_fails(inner: Store) -> None:
    store = FailingStore(inner, fail_on="put", nth=2, matching="data/")

    store.put("head", b"x")
    store.put("data/1", b"x")
    store.put("head", b"x")
    with pytest.raises(StorageError):
        store.put("data/2", b"x")
    store.put("data/3", b"x")

    assert keys(inner) == ["data/1", "data/3", "head"]


def test_error_can_be_chosen(inner: Store) -> None:
    store = FailingStore(inner, fail_on="put", error=KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        store.put("a", b"x")


def test_wrapped_stores_pickle_with_their_instructions(inner: Store) -> None:
    store = CountingStore(FailingStore(inner, fail_on="put", nth=2))
    store.put("a", b"x")

    copy = pickle.loads(pickle.dumps(store))

    copy.put("a", b"x")
    with pytest.raises(StorageError):
        copy.put("a", b"x")
    assert copy.counts.put == 2
