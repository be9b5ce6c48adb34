"""A store for dry runs: it reads another store, and keeps every write in this process.

So a verb that runs on it makes the same checks as on the real store, raises the same errors, and
computes the same result, while the real store receives no write at all. Contents that only readers
of data need are counted and dropped.
"""

from __future__ import annotations

import heapq
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakebed.errors import (
    InvalidInputError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.model.layout import is_data_key
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject
from lakebed.store.growing import GrowingFile

_SERIALS = count(1)  # of all dry runs: names and etags that the cache of the process keeps
_DROPPED_BYTES = 2**20  # larger objects are data, which a dry run does not read again


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """An object of the dry run.

    Attributes:
        data: The content; None if it was dropped.
    """

    data: bytes | None
    size_bytes: int
    etag: str
    modified_at: datetime
    attributes: Mapping[str, str] = field(default_factory=dict)


class DryRunStore(Store):
    """A store over another one, whose writes and deletions stay in this object.

    They end with it. A pickled copy, as in a task of Spark, begins without any. Whether
    the real store could be written is checked only as far as that takes no write.

    Examples:
        >>> from lakebed.store import open_store
        >>> real = open_store("memory://doctest-dry-run")
        >>> dry = DryRunStore(real)
        >>> dry.put("a", b"12")
        >>> dry.size("a"), list(real.list())
        (2, [])
    """

    is_dry_run = True
    is_near = True  # writes are

    def __init__(self, inner: Store, *, keeps_contents: bool = True) -> None:
        """Begin without any writes.

        Args:
            inner: The real store; only its reading methods are called.
            keeps_contents: False to keep only the sizes of immutable objects.
        """
        self.inner = inner
        self.uri = inner.uri
        self.supports_compare_and_swap = inner.supports_compare_and_swap
        self.keeps_attributes = inner.keeps_attributes
        self.is_shared = inner.is_shared
        self._keeps_contents = keeps_contents
        self._lock = threading.RLock()
        self._serial = next(_SERIALS)
        self._changed: dict[str, _Held | None] = {}  # None: deleted

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.inner,)

    @property
    def cache_name(self) -> str:
        """A name of its own: the cache of the process must not mix its objects with real ones."""
        return f"dry-run-{self._serial}:{self.inner.cache_name}"

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings of the real store."""
        return self.inner.hadoop_settings()

    def _is_dropped(self, key: str, size_bytes: int = 0) -> bool:
        return not self._keeps_contents or size_bytes > _DROPPED_BYTES or is_data_key(key)

    def written_bytes(self, keys: Sequence[str]) -> int:
        """Return the total size of those objects that the dry run has written."""
        with self._lock:
            held = [self._changed.get(key) for key in keys]
        return sum(one.size_bytes for one in held if one is not None)

    @property
    def written(self) -> dict[str, int]:
        """Sizes of the objects that the real run would leave, by key."""
        with self._lock:
            return {key: held.size_bytes for key, held in sorted(self._changed.items()) if held}

    @property
    def etags(self) -> dict[str, str]:
        """Etags of the same objects, by key; one that is written again has another."""
        with self._lock:
            return {key: held.etag for key, held in self._changed.items() if held}

    def _find(self, key: str) -> _Held | None:
        """Return the object if the dry run wrote it, None if it did not touch the key.

        Raises:
            ObjectNotFoundError: The dry run deleted it.
        """
        with self._lock:
            if key not in self._changed:
                return None
            held = self._changed[key]
        if held is None:
            raise ObjectNotFoundError(f"No object {key!r} in {self.uri}.")
        return held

    def _content(self, key: str, held: _Held) -> bytes:
        if held.data is None:
            raise InvalidInputError(
                f"The content of {key!r} is not kept in a dry run.",
                hint="Only sizes and counts of the rows to write are known: run it without dry_run.",
            )
        return held.data

    def _hold(
        self,
        key: str,
        size_bytes: int,
        data: bytes | None,
        attributes: Mapping[str, str] | None = None,
    ) -> str:
        with self._lock:
            etag = f"dry-run-{next(_SERIALS)}"
            self._changed[key] = _Held(
                data=data,
                size_bytes=size_bytes,
                etag=etag,
                modified_at=datetime.now(UTC),
                attributes=attributes or {},
            )
        return etag

    def _why_read_only(self) -> str:
        return self.inner._why_read_only()

    def _refusal_hint(self) -> str:
        return self.inner._refusal_hint()

    def _check_conditions(self) -> None:
        """Do nothing: a trial of the service would write."""

    def _get(self, key: str) -> StoredObject:
        held = self._find(key)
        if held is None:
            return self.inner.get(key)
        return StoredObject(
            key=key,
            data=self._content(key, held),
            etag=held.etag,
            modified_at=held.modified_at,
        )

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        held = self._find(key)
        if held is None:
            return self.inner.get_if_changed(key, etag=etag)
        return None if held.etag == etag else self._get(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        held = self._find(key)
        if held is None:
            return self.inner.get_range(key, start, length)
        return self._content(key, held)[start : start + length]

    def _size(self, key: str) -> int:
        held = self._find(key)
        return self.inner.size(key) if held is None else held.size_bytes

    def _stat(self, key: str) -> ObjectStat:
        held = self._find(key)
        if held is None:
            return self.inner.stat(key)
        return ObjectStat(
            key=key,
            size_bytes=held.size_bytes,
            modified_at=held.modified_at,
            attributes=held.attributes,
        )

    def _exists(self, key: str) -> bool:
        try:
            self._size(key)
        except ObjectNotFoundError:
            return False
        return True

    def _create(self, key: str, data: memoryview) -> str:
        with self._lock:
            if self._exists(key):
                raise ObjectExistsError(f"Object {key!r} exists in {self.uri}.")
            return self._hold(key, len(data), bytes(data))

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        with self._lock:
            if not self._matches(key, if_match):
                raise PreconditionFailedError(
                    f"Object {key!r} in {self.uri} was changed or deleted since it was read."
                )
            return self._hold(key, len(data), bytes(data))

    def _matches(self, key: str, etag: str) -> bool:
        try:
            held = self._find(key)
            if held is not None:
                return held.etag == etag
            return self.inner.get_if_changed(key, etag=etag) is None
        except ObjectNotFoundError:
            return False

    def _put(self, key: str, data: memoryview) -> None:
        self._hold(key, len(data), None if self._is_dropped(key) else bytes(data))

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,  # noqa: ARG002 - it is counted
    ) -> None:
        kept: list[bytes] = []
        total = 0
        for piece in pieces:
            total += len(piece)
            if self._is_dropped(key, total):
                kept.clear()
            else:
                kept.append(bytes(piece))
        data = None if self._is_dropped(key, total) else b"".join(kept)
        self._hold(key, total, data, attributes if self.keeps_attributes else None)

    def _begin_file(self, key: str) -> GrowingFile | None:
        """Begin a file outside the store if the real one has files, so that as many are written."""
        if self.inner.local_path(key) is None:
            return None
        descriptor, path = tempfile.mkstemp(prefix="lakebed-dry-run-")
        return GrowingFile(Path(path), descriptor, nullcontext)

    def _adopt(self, path: Path, key: str) -> None:
        size = path.stat().st_size
        data = None if self._is_dropped(key, size) else path.read_bytes()
        path.unlink()
        self._hold(key, size, data)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        with self._lock:
            changed = {
                key: held
                for key, held in self._changed.items()
                if key.startswith(begins_with) and (recursive or "/" not in key[len(begins_with) :])
            }
        ours = (
            ObjectInfo(key=key, size_bytes=held.size_bytes, modified_at=held.modified_at)
            for key, held in sorted(changed.items())
            if held is not None
        )
        theirs = (
            info
            for info in self.inner.list(begins_with, recursive=recursive)
            if info.key not in changed
        )
        return heapq.merge(ours, theirs, key=attrgetter("key"))

    def _folders(self, begins_with: str) -> set[str]:
        with self._lock:
            keys = [key for key, held in self._changed.items() if held is not None]
        own = {
            key[len(begins_with) :].partition("/")[0]
            for key in keys
            if key.startswith(begins_with) and "/" in key[len(begins_with) :]
        }
        return own.union(self.inner.folders(begins_with))

    def _delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            self._changed.update(dict.fromkeys(keys))

    def _delete_if_match(self, key: str, etag: str) -> bool:
        with self._lock:
            if not self._matches(key, etag):
                return False
            self._changed[key] = None
        return True

    def _remove_leftovers(
        self,
        begins_with: str,
        *,
        older_than: timedelta,
        dry_run: bool,  # noqa: ARG002 - always
    ) -> tuple[str, ...]:
        return self.inner.remove_leftovers(begins_with, older_than=older_than, dry_run=True)

    def _is_real(self, key: str) -> bool:
        with self._lock:
            return key not in self._changed

    def _local_path(self, key: str) -> Path | None:
        return self.inner.local_path(key) if self._is_real(key) else None

    def _hadoop_uri(self, key: str) -> str | None:
        return self.inner.hadoop_uri(key) if self._is_real(key) else None

    def _open_input(self, key: str, size_bytes: int | None) -> pa.NativeFile:
        held = self._find(key)
        if held is None:
            return self.inner.open_input(key, size_bytes=size_bytes)
        return pa.BufferReader(self._content(key, held))
