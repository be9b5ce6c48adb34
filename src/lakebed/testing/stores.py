"""Wrappers of a store: one that counts requests, and one that fails on request."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NoReturn

from lakebed.errors import StorageError
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject

StoreOperation = Literal[
    "get", "get_range", "size", "stat", "create", "replace", "put", "put_stream", "list", "delete"
]

_PAGE = 1000  # objects in one LIST, keys in one DeleteObjects of S3


class DelegatingStore(Store):
    """A store that delegates to another one. Subclasses override methods.

    `open_input` reads through `get_range` of the wrapper, so that it is counted or fails, too;
    reads of a `local_path` or a `hadoop_uri` bypass the wrapper.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.supports_compare_and_swap = inner.supports_compare_and_swap
        self.keeps_attributes = inner.keeps_attributes
        self.is_shared = inner.is_shared
        self.is_near = inner.is_near

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def _check_conditions(self) -> None:
        self.inner.check_writable()

    def _try_conditions(self) -> None:
        self.inner.try_conditions()

    def _get(self, key: str) -> StoredObject:
        return self.inner.get(key)

    @property
    def cache_name(self) -> str:
        """Cache name of the inner store."""
        return self.inner.cache_name

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        return self.inner.get_if_changed(key, etag=etag)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def _size(self, key: str) -> int:
        return self.inner.size(key)

    def _stat(self, key: str) -> ObjectStat:
        return self.inner.stat(key)

    def _create(self, key: str, data: memoryview) -> str:
        return self.inner.create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        return self.inner.replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        self.inner.put(key, data)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,
    ) -> None:
        self.inner.put_stream(key, pieces, attributes=attributes, size_bytes=size_bytes)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        return self.inner.list(begins_with, recursive=recursive)

    def _folders(self, begins_with: str) -> Sequence[str]:
        return self.inner.folders(begins_with)

    def _delete(self, keys: Sequence[str]) -> None:
        self.inner.delete(keys)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        return self.inner.delete_if_match(key, etag=etag)

    def _make_durable(self, key: str) -> None:
        self.inner.make_durable(key)

    def _finish_claim(self, key: str, etag: str) -> bool:
        return self.inner.finish_claim(key, etag=etag)

    def _local_path(self, key: str) -> Path | None:
        return self.inner.local_path(key)

    def _hadoop_uri(self, key: str) -> str | None:
        return self.inner.hadoop_uri(key)

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings of the inner store."""
        return self.inner.hadoop_settings()

    def _remove_leftovers(
        self, begins_with: str, *, older_than: timedelta, dry_run: bool
    ) -> tuple[str, ...]:
        return self.inner.remove_leftovers(begins_with, older_than=older_than, dry_run=dry_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Numbers of requests to a store, as an object store would bill them.

    Attributes:
        get: Whole objects and ranges.
        put: Conditional and unconditional writes, refused ones included; a stream counts once.
        list: Pages of 1,000 objects.
        head: Sizes and attributes.
        delete: Bulk deletions of up to 1,000 keys.
        bytes_read: Total size of the content that reads returned.
        bytes_written: Total size of the content that writes received.
    """

    get: int = 0
    put: int = 0
    list: int = 0
    head: int = 0
    delete: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def total(self) -> int:
        """Requests of all kinds."""
        return self.get + self.put + self.list + self.head + self.delete


class CountingStore(DelegatingStore):
    """Counts requests and bytes; an unpickled copy has its own counts, from zero.

    Examples:
        >>> from lakebed.store import open_store
        >>> store = CountingStore(open_store("memory://counted"))
        >>> _ = store.create("a", b"12")
        >>> store.counts.put, store.counts.bytes_written
        (1, 2)
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self._counts = RequestCounts()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)

    @property
    def counts(self) -> RequestCounts:
        """Counts since the start or the last `reset`."""
        return self._counts

    def reset(self) -> RequestCounts:
        """Set the counts to zero, and return the earlier ones."""
        with self._lock:
            counts, self._counts = self._counts, RequestCounts()
        return counts

    def _add(self, **more: int) -> None:
        with self._lock:
            sums = {name: getattr(self._counts, name) + number for name, number in more.items()}
            self._counts = dataclasses.replace(self._counts, **sums)

    def _get(self, key: str) -> StoredObject:
        self._add(get=1)
        stored = super()._get(key)
        self._add(bytes_read=len(stored.data))
        return stored

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        self._add(get=1)
        stored = super()._get_if_changed(key, etag)
        if stored is not None:
            self._add(bytes_read=len(stored.data))
        return stored

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        self._add(get=1)
        data = super()._get_range(key, start, length)
        self._add(bytes_read=len(data))
        return data

    def _size(self, key: str) -> int:
        self._add(head=1)
        return super()._size(key)

    def _stat(self, key: str) -> ObjectStat:
        self._add(head=1)
        return super()._stat(key)

    def _create(self, key: str, data: memoryview) -> str:
        self._add(put=1, bytes_written=len(data))
        return super()._create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self._add(put=1, bytes_written=len(data))
        return super()._replace(key, data, if_match=if_match)

    def _put(self, key: str, data: memoryview) -> None:
        self._add(put=1, bytes_written=len(data))
        super()._put(key, data)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,
    ) -> None:
        self._add(put=1)
        super()._put_stream(
            key, self._counted(pieces), attributes=attributes, size_bytes=size_bytes
        )

    def _counted(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        for piece in pieces:
            self._add(bytes_written=len(piece))
            yield piece

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        self._add(list=1)
        for number, entry in enumerate(super()._list(begins_with, recursive=recursive)):
            if number and number % _PAGE == 0:
                self._add(list=1)
            yield entry

    def _folders(self, begins_with: str) -> Sequence[str]:
        self._add(list=1)
        return super()._folders(begins_with)

    def _delete(self, keys: Sequence[str]) -> None:
        self._add(delete=-(-len(keys) // _PAGE))
        super()._delete(keys)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        self._add(get=1, delete=1)
        return super()._delete_if_match(key, etag)


class FailingStore(DelegatingStore):
    """Fails once, at the nth call of one operation, before or after the operation took place.

    An unpickled copy counts its own calls, from zero.

    Examples:
        >>> from lakebed.store import open_store
        >>> inner = open_store("memory://failing")
        >>> store = FailingStore(inner, fail_on="create", landed=True)
        >>> store.create("a", b"12")
        Traceback (most recent call last):
        lakebed.errors.StorageError: The answer to create of 'a' was lost.
        >>> inner.get("a").data
        b'12'
    """

    def __init__(
        self,
        inner: Store,
        *,
        fail_on: StoreOperation,
        nth: int = 1,
        landed: bool = False,
        error: BaseException | None = None,
        matching: str = "",
    ) -> None:
        """Wrap `inner`.

        Args:
            inner: The store that carries out the operations.
            fail_on: The operation that fails.
            nth: Number of the call that fails, from 1 on.
            landed: Carry out the operation before the error, as if its answer was lost.
            error: The error to raise; a retryable `StorageError` by default.
            matching: Count only calls whose key (or prefix) contains this text.
        """
        super().__init__(inner)
        self.has_failed = False
        self._arguments = {
            "fail_on": fail_on,
            "nth": nth,
            "landed": landed,
            "error": error,
            "matching": matching,
        }
        self._fail_on = fail_on
        self._left = nth
        self._landed = landed
        self._error = error
        self._matching = matching
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_failing_store, (self.inner, self._arguments)

    def _is_due(self, operation: StoreOperation, *keys: str) -> bool:
        if operation != self._fail_on or not any(self._matching in key for key in keys):
            return False
        with self._lock:
            self._left -= 1
            due = self._left == 0
            self.has_failed = self.has_failed or due
        return due

    def _fail(self, operation: StoreOperation, key: str) -> NoReturn:
        lost = f"The answer to {operation} of {key!r} was lost."
        raise self._error or StorageError(lost, retryable=True)

    def _get(self, key: str) -> StoredObject:
        if self._is_due("get", key):
            self._fail("get", key)
        return super()._get(key)

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        if self._is_due("get", key):
            self._fail("get", key)
        return super()._get_if_changed(key, etag)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        if self._is_due("get_range", key):
            self._fail("get_range", key)
        return super()._get_range(key, start, length)

    def _size(self, key: str) -> int:
        if self._is_due("size", key):
            self._fail("size", key)
        return super()._size(key)

    def _stat(self, key: str) -> ObjectStat:
        if self._is_due("stat", key):
            self._fail("stat", key)
        return super()._stat(key)

    def _create(self, key: str, data: memoryview) -> str:
        due = self._is_due("create", key)
        etag = super()._create(key, data) if self._landed or not due else ""
        if due:
            self._fail("create", key)
        return etag

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        due = self._is_due("replace", key)
        etag = super()._replace(key, data, if_match=if_match) if self._landed or not due else ""
        if due:
            self._fail("replace", key)
        return etag

    def _put(self, key: str, data: memoryview) -> None:
        due = self._is_due("put", key)
        if self._landed or not due:
            super()._put(key, data)
        if due:
            self._fail("put", key)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,
    ) -> None:
        due = self._is_due("put_stream", key)
        if self._landed or not due:
            super()._put_stream(key, pieces, attributes=attributes, size_bytes=size_bytes)
        if due:
            self._fail("put_stream", key)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        if self._is_due("list", begins_with):
            self._fail("list", begins_with)
        return super()._list(begins_with, recursive=recursive)

    def _folders(self, begins_with: str) -> Sequence[str]:
        if self._is_due("list", begins_with):
            self._fail("list", begins_with)
        return super()._folders(begins_with)

    def _delete(self, keys: Sequence[str]) -> None:
        due = self._is_due("delete", *keys)
        if self._landed or not due:
            super()._delete(keys)
        if due:
            self._fail("delete", keys[0])

    def _delete_if_match(self, key: str, etag: str) -> bool:
        due = self._is_due("delete", key)
        done = super()._delete_if_match(key, etag) if self._landed or not due else False
        if due:
            self._fail("delete", key)
        return done


def _rebuild_failing_store(inner: Store, arguments: dict[str, Any]) -> FailingStore:
    return FailingStore(inner, **arguments)
