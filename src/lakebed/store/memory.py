"""Objects in the memory of this process, for tests and experiments."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from types import MappingProxyType

import pyarrow as pa

from lakebed.errors import (
    InvalidInputError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject, validate_key

_AFTER_SLASH = chr(ord("/") + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    data: bytes
    etag: str
    modified_at: datetime
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Space:
    """Objects that all stores of one name share. Every access holds `lock`.

    Attributes:
        objects: The objects by their keys.
        keys: The same keys in order: a listing takes time for what it finds, as on other stores.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, _Held] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    serial: Iterator[int] = field(default_factory=lambda: count(1))

    def hold(
        self, key: str, data: memoryview, attributes: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        etag = f"m{next(self.serial)}"
        if key not in self.objects:
            insort(self.keys, key)
        self.objects[key] = _Held(
            data=bytes(data), etag=etag, modified_at=datetime.now(UTC), attributes=attributes
        )
        return etag

    def drop(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def find(self, begins_with: str, *, recursive: bool) -> list[tuple[str, _Held]]:
        found, keys = [], self.keys
        place = bisect_left(keys, begins_with)
        while place < len(keys) and (key := keys[place]).startswith(begins_with):
            slash = -1 if recursive else key.find("/", len(begins_with))
            if slash < 0:
                found.append((key, self.objects[key]))
                place += 1
            else:
                place = bisect_left(keys, key[:slash] + _AFTER_SLASH, lo=place)
        return found

    def find_folders(self, begins_with: str) -> list[str]:
        names, keys = [], self.keys
        position = bisect_left(keys, begins_with)
        while position < len(keys) and (key := keys[position]).startswith(begins_with):
            slash = key.find("/", len(begins_with))
            if slash < 0:
                position += 1
            else:
                names.append(key[len(begins_with) : slash])
                position = bisect_left(keys, key[:slash] + _AFTER_SLASH, lo=position)
        return names


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


class MemoryStore(Store):
    """A named store of this process: all stores of the name share their objects.

    It exists until the process ends. A pickled store opens the store of the same name in the
    process that loads it; in another process that store is empty.
    """

    keeps_attributes = True
    is_shared = False
    is_near = True

    def __init__(self, location: str) -> None:
        """Open the store.

        Args:
            location: A name, or a name and a directory in it: `lake`, `lake/flights`.

        Raises:
            InvalidInputError: The name is missing or not valid.
        """
        name, _, directory = location.strip("/").partition("/")
        if not name:
            msg = f"memory://{location} has no name."
            raise InvalidInputError(msg, hint="Write memory://NAME with a name of your choice.")
        validate_key(location.strip("/"))
        self.uri = f"memory://{location.strip('/')}"
        self._location = location.strip("/")
        self._begins_with = f"{directory}/" if directory else ""
        with _spaces_lock:
            self._space = _spaces.setdefault(name, _Space())

    @property
    def group_key(self) -> Hashable:
        """The URI."""
        return self.uri

    def __reduce__(self) -> tuple[Callable[[str], MemoryStore], tuple[str]]:
        return type(self), (self._location,)

    def _held(self, key: str) -> _Held:
        with self._space.lock:
            held = self._space.objects.get(self._begins_with + key)
        if held is None:
            msg = f"No object {key!r} in {self.uri}."
            raise ObjectNotFoundError(msg)
        return held

    def _get(self, key: str) -> StoredObject:
        held = self._held(key)
        return StoredObject(key=key, data=held.data, etag=held.etag, modified_at=held.modified_at)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        return self._held(key).data[start : start + length]

    def _size(self, key: str) -> int:
        return len(self._held(key).data)

    def _stat(self, key: str) -> ObjectStat:
        held = self._held(key)
        return ObjectStat(
            key=key,
            size_bytes=len(held.data),
            modified_at=held.modified_at,
            attributes=held.attributes,
        )

    def _create(self, key: str, data: memoryview) -> str:
        with self._space.lock:
            if self._begins_with + key not in self._space.objects:
                return self._space.hold(self._begins_with + key, data)
        msg = f"Object {key!r} exists in {self.uri}."
        raise ObjectExistsError(msg)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        with self._space.lock:
            held = self._space.objects.get(self._begins_with + key)
            if held is not None and held.etag == if_match:
                return self._space.hold(self._begins_with + key, data)
        msg = f"Object {key!r} in {self.uri} was changed or deleted since it was read."
        raise PreconditionFailedError(msg)

    def _put(self, key: str, data: memoryview) -> None:
        with self._space.lock:
            self._space.hold(self._begins_with + key, data)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,  # noqa: ARG002 - memory needs no parts
    ) -> None:
        data = memoryview(b"".join(pieces))
        with self._space.lock:
            self._space.hold(self._begins_with + key, data, attributes)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        full = self._begins_with + begins_with
        with self._space.lock:
            items = self._space.find(full, recursive=recursive)
        for key, held in items:
            yield ObjectInfo(
                key=key.removeprefix(self._begins_with),
                size_bytes=len(held.data),
                modified_at=held.modified_at,
            )

    def _folders(self, begins_with: str) -> list[str]:
        with self._space.lock:
            return self._space.find_folders(self._begins_with + begins_with)

    def _delete(self, keys: Sequence[str]) -> None:
        with self._space.lock:
            for key in keys:
                self._space.drop(self._begins_with + key)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        with self._space.lock:
            held = self._space.objects.get(self._begins_with + key)
            if held is None or held.etag != etag:
                return False
            self._space.drop(self._begins_with + key)
        return True

    def _open_input(self, key: str, size_bytes: int | None) -> pa.NativeFile:  # noqa: ARG002 - known
        return pa.BufferReader(self._held(key).data)
