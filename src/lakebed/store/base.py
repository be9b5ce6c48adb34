"""The base class of all stores: bytes under keys, with compare-and-swap.

A back end implements the methods that begin with an underscore and inherits the public ones,
so that keys and arguments are checked in one place and every back end raises the same errors.
`lakebed.testing.StoreContract` is the test suite of this interface.
"""

from __future__ import annotations

import io
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    ObjectNotFoundError,
    ReadOnlyError,
)
from lakebed.store.growing import GrowingFile
from lakebed.store.last_reads import READS

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger(__name__)

MAX_COMPONENT_BYTES = 255  # NAME_MAX of the common POSIX file systems


class SeekableReader(io.RawIOBase):
    """A seekable stream with a position; subclasses implement `read`."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.size_bytes = size_bytes
        self.position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position and return it; one before the start means the start."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size_bytes}
        self.position = max(0, origin[whence] + offset)
        return self.position


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """Key, size and time of one object in a listing.

    Attributes:
        key: Key of the object, relative to the root of the store.
        size_bytes: Length in bytes.
        modified_at: Time of the last write, by the clock of the storage; aware, UTC.
    """

    key: str
    size_bytes: int
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object with the token that a later `Store.replace` compares.

    Attributes:
        key: Key of the object, relative to the root of the store.
        data: The whole content.
        etag: Opaque; the same that `Store.create` or `Store.replace` returned for this content.
        modified_at: Time of the last write, by the clock of the storage; aware, UTC. None if the
            storage does not return it with the content.
    """

    key: str
    data: bytes
    etag: str
    modified_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStat(ObjectInfo):
    """Metadata of one object, read without its content.

    Attributes:
        attributes: Attributes that `Store.put_stream` stored with it; empty if the store keeps
            none.
    """

    attributes: Mapping[str, str] = field(default_factory=dict)


# Most keys: nothing in them is forbidden, and no component is too long. It is matched in a fraction of
# the time that the rules below take.
_PLAIN_KEY = re.compile(
    r"(?:[A-Za-z0-9_=][A-Za-z0-9_=.%+-]{0,127}/)*[A-Za-z0-9_=][A-Za-z0-9_=.%+-]{0,127}"
)
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\\\x7f]")


def validate_key(key: str) -> str:
    """Return `key` unchanged if every store can hold it.

    A key is relative and separated by `/`. Nothing in it is decoded: `%20` is three characters.
    Components that begin with a dot are reserved for the stores themselves.

    Raises:
        InvalidNameError: A component is empty, begins with a dot, is longer than 255 bytes, or
            holds a backslash, a control character or half a surrogate pair.
    """
    if _PLAIN_KEY.fullmatch(key):
        return key
    for component in key.split("/"):
        problem = _problem_of_component(component)
        if problem:
            msg = f"Key {key!r} is not valid: {problem}."
            hint = "Keys are relative paths such as 'flights/data/a.parquet'."
            raise InvalidNameError(msg, hint=hint)
    return key


def _problem_of_component(component: str) -> str:
    if not component:
        return "it is empty or has an empty component"
    if component in {".", ".."}:
        return f"{component!r} is not a name"
    if component.startswith("."):
        return f"{component!r} begins with a dot, which is reserved for the store itself"
    if _NOT_IN_KEYS.search(component):
        return f"{component!r} contains a backslash or a control character"
    try:
        size_bytes = len(component.encode())
    except UnicodeEncodeError:
        return f"{component!r} cannot be written as UTF-8"
    if size_bytes > MAX_COMPONENT_BYTES:
        return f"a component of {size_bytes} bytes is longer than {MAX_COMPONENT_BYTES}"
    return ""


def is_listed(key: str) -> bool:
    """Return whether a listing shows `key`: it does if `validate_key` accepts it."""
    return not any(_problem_of_component(component) for component in key.split("/"))


def directory_prefix(prefix: str) -> str:
    """Return the text that all keys under `prefix` begin with: empty, or with one final slash."""
    if not prefix:
        return ""
    return validate_key(prefix.removesuffix("/")) + "/"


class _Token:
    """Equal only to itself; a copy in another process is another one."""


class Store(ABC):
    """Objects under one root, safe for any number of threads, processes and machines.

    Every write is atomic: a reader sees the old object or the new one, never a mixture. `create`
    and `replace` decide races: exactly one of the competing calls wins. Stores can be pickled.

    Every method may raise `StorageError`. If its `retryable` is true, the outcome is unknown or
    the same call may succeed later.

    Attributes:
        uri: The root as a normalised URL without a final slash, such as `file:///data/lake`.
            `lakebed.store.open_store` opens it again.
        supports_compare_and_swap: True if `create` and `replace` are safe here. Without it the
            store can only be read: every write raises `ReadOnlyError`.
        keeps_attributes: True if `put_stream` stores attributes with an object.
        is_shared: True if other processes see the same objects.
        is_dry_run: True if writes stay in this process: see `lakebed.store.dry_run`.
        is_near: True if a request takes less time than to hand it to another thread, as in memory
            and in a directory of this machine. Elsewhere independent requests are sent at once.
    """

    uri: str
    supports_compare_and_swap: bool = True
    keeps_attributes: bool = False
    is_shared: bool = True
    is_dry_run: bool = False
    is_near: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    @property
    def cache_name(self) -> str:
        """Name of the store in the cache of the process; see `lakebed.store.cache`."""
        return self.uri

    @property
    def group_key(self) -> Hashable:
        """Equal for stores that send the same requests with the same rights.

        Their commits to one dataset are grouped; see `lakebed.state.group_commit`.
        """
        # An id may be that of another store later; this object is not.
        token: _Token = self.__dict__.setdefault("_group_key", _Token())
        return token

    def check_writable(self) -> None:
        """Check that the store is safe for concurrent writers.

        `create` and `replace` make this check themselves. Call it before other writes, or to find
        out.

        Raises:
            ReadOnlyError: The store is not safe; the message gives the reason.
            StorageError: The service does not answer.

        Cost:
            On an object store one small request the first time in a process, and none afterwards;
            six for the first process of all.
        """
        self._require_compare_and_swap("writing")
        self._check_conditions()
        self._require_compare_and_swap("writing")

    def try_conditions(self) -> None:
        """Check the store as `check_writable` does, but ignore earlier results.

        Raises:
            ReadOnlyError: The store is not safe for concurrent writers.
            StorageError: The service does not answer.

        Cost:
            On an object store four small requests.
        """
        if self.supports_compare_and_swap:
            self._try_conditions()
        self._require_compare_and_swap("writing")

    def get(self, key: str) -> StoredObject:
        """Read a whole object.

        Raises:
            ObjectNotFoundError: There is no object under `key`.

        Cost:
            One GET.
        """
        validate_key(key)
        self._log_call("get", key)
        return self._get(key)

    def get_if_changed(self, key: str, *, etag: str) -> StoredObject | None:
        """Read a whole object, or return None if it still has `etag`.

        Raises:
            ObjectNotFoundError: There is no object under `key`.

        Cost:
            One GET, which object stores answer without content if nothing changed.
        """
        validate_key(key)
        self._log_call("get_if_changed", key)
        return self._get_if_changed(key, etag)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Read `length` bytes from `start` on, fewer at the end of the object, as a slice does.

        Raises:
            ObjectNotFoundError: There is no object under `key`.
            InvalidInputError: `start` or `length` is negative.

        Cost:
            One GET of `length` bytes; another HEAD if the range is empty.
        """
        validate_key(key)
        if start < 0 or length < 0:
            msg = f"The range of {length} bytes from {start} of {key!r} is negative."
            raise InvalidInputError(
                msg, hint="Positions count from the start of the object; see Store.size."
            )
        self._log_call("get_range", key)
        if length == 0:
            self._size(key)
            return b""
        return self._get_range(key, start, length)

    def size(self, key: str) -> int:
        """Return the length of an object in bytes.

        Raises:
            ObjectNotFoundError: There is no object under `key`.

        Cost:
            One HEAD.
        """
        validate_key(key)
        self._log_call("size", key)
        return self._size(key)

    def stat(self, key: str) -> ObjectStat:
        """Return size, time and attributes of an object.

        Raises:
            ObjectNotFoundError: There is no object under `key`.

        Cost:
            One HEAD.
        """
        validate_key(key)
        self._log_call("stat", key)
        return self._stat(key)

    def create(self, key: str, data: Buffer) -> str:
        """Write an object if there is none, and return its etag.

        Raises:
            ObjectExistsError: There is an object under `key`; nothing was written.
            ReadOnlyError: This store has no compare-and-swap.
            StorageError: If retryable, the object may or may not have been written.

        Cost:
            One conditional PUT; before the first of a process, see `check_writable`.
        """
        self._begin_conditional_write("create", key)
        return self._create(key, memoryview(data).cast("B"))

    def replace(self, key: str, data: Buffer, *, if_match: str) -> str:
        """Write an object if it still has the etag `if_match`, and return the new etag.

        Raises:
            PreconditionFailedError: The object changed or was deleted; nothing was written.
            ReadOnlyError: This store has no compare-and-swap.
            StorageError: If retryable, the object may or may not have been written.

        Cost:
            One conditional PUT; before the first of a process, see `check_writable`.
        """
        self._begin_conditional_write("replace", key)
        return self._replace(key, memoryview(data).cast("B"), if_match=if_match)

    def put(self, key: str, data: Buffer) -> None:
        """Write an immutable object under a key of its own; an existing object is replaced.

        Raises:
            ReadOnlyError: This store has no compare-and-swap.

        Cost:
            One PUT, or a multipart upload.
        """
        self._begin_write("put", key)
        self._put(key, memoryview(data).cast("B"))

    def put_stream(
        self,
        key: str,
        pieces: Iterable[Buffer],
        *,
        attributes: Mapping[str, str] | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Write an immutable object piece by piece; an existing object is replaced, as by `put`.

        An error that `pieces` raises is passed to the caller, and nothing is written.

        Args:
            key: Key of the object; no other writer uses it.
            pieces: The content, in order.
            attributes: Short ASCII texts to store with the object, under lower-case names; ignored
                if the store keeps none, see `keeps_attributes`.
            size_bytes: The length if the caller knows it; above 64 GiB object stores need it.

        Raises:
            ReadOnlyError: This store has no compare-and-swap.

        Cost:
            One PUT up to 8 MiB, else a multipart upload; memory for a few parts.
        """
        self._begin_write("put_stream", key)
        source = _Pieces(pieces)
        try:
            self._put_stream(key, source, attributes=dict(attributes or {}), size_bytes=size_bytes)
        except Exception:
            # An error of the source must not be reported as an error of the storage.
            if source.error is not None:
                raise source.error from None
            raise

    def begin_file(self, key: str) -> GrowingFile | None:
        """Begin a file for `adopt`, hidden beside the object; None if the store has no files.

        The caller adopts or discards it. The file of a killed process stays hidden until
        `remove_leftovers` removes it.

        Raises:
            ReadOnlyError: This store has no compare-and-swap.

        Cost:
            A new file; no request.
        """
        self._begin_write("begin_file", key)
        return self._begin_file(key)

    def adopt(self, path: Path, key: str) -> None:
        """Turn a file of this machine into an immutable object under a key of its own.

        The file does not exist afterwards: a directory renames it, other stores upload and remove
        it.

        Raises:
            ReadOnlyError: This store has no compare-and-swap.

        Cost:
            A rename within one file system; else as `put`.
        """
        self._begin_write("adopt", key)
        self._adopt(path, key)

    def list(self, prefix: str = "", *, recursive: bool = True) -> Iterator[ObjectInfo]:
        """Yield the objects under the directory `prefix`, in key order.

        Internal files of a store are never shown, nor are objects whose keys `validate_key`
        rejects.

        Args:
            prefix: A directory, with or without a final slash; empty for the root. `pre` shows
                `pre/a`, but neither `pre` nor `pre2/a`.
            recursive: False shows only the objects directly in the directory.

        Cost:
            One LIST for each 1,000 objects; on a file system one `scandir` for each directory.
        """
        begins_with = directory_prefix(prefix)
        self._log_call("list", prefix)
        return self._list(begins_with, recursive=recursive)

    def folders(self, prefix: str = "") -> Sequence[str]:
        """Return the names of the folders directly in the directory `prefix`, sorted.

        A folder is the first part of the keys of objects under it. On a file system it is a
        directory, also one without objects. Internal folders of a store are not returned, nor are
        names that `validate_key` rejects, nor symbolic links.

        Args:
            prefix: A directory, as in `list`.

        Cost:
            One LIST with a delimiter for each 1,000 folders and objects in the directory; on a file
            system one `scandir`.
        """
        begins_with = directory_prefix(prefix)
        self._log_call("folders", prefix)
        return sorted(name for name in self._folders(begins_with) if is_listed(name))

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects. Missing and repeated keys are ignored.

        Raises:
            ReadOnlyError: This store has no compare-and-swap.

        Cost:
            One request for each 1,000 keys on S3, for each 256 on Azure, else one for each key.
        """
        if isinstance(keys, str):
            msg = f"delete takes an iterable of keys, not a string; write [{keys!r}]"
            raise TypeError(msg)
        unique = tuple(dict.fromkeys(validate_key(key) for key in keys))
        self._require_compare_and_swap("delete")
        for key in unique:
            self._log_call("delete", key)
        if unique:
            self._delete(unique)

    def delete_if_match(self, key: str, *, etag: str) -> bool:
        """Remove an object if it still has `etag`, and return whether it was removed.

        A directory and memory do that in one step. On object stores it is a read and then a
        delete that is sent once, so a write between the two would be lost: delete only objects
        that no other writer writes again. If one may, first replace the object, under the same
        condition, with a content that marks the deletion.

        Raises:
            ReadOnlyError: This store has no compare-and-swap.

        Cost:
            One GET and one DELETE.
        """
        self._begin_write("delete_if_match", key)
        return self._delete_if_match(key, etag)

    def make_durable(self, key: str) -> None:
        """Make sure that an object that exists survives a loss of power, whoever wrote it.

        A caller that acknowledges what it has only read calls it: the writer may have been killed
        between making the name and syncing it, or the sync may have failed.

        Raises:
            StorageError: It may not survive.

        Cost:
            Nothing on object stores, which acknowledge durable objects only; a sync of the
            directory of a file.
        """
        self._make_durable(validate_key(key))

    def finish_claim(self, key: str, *, etag: str) -> bool:
        """Finish a write to an object that its writer has claimed, and may never finish.

        HDFS replaces and removes objects by claims. A claim decides what follows the object, so a
        caller that must know the outcome of a write finishes it before it believes what it read.

        Args:
            key: Key of the object.
            etag: Etag of the object as it was read.

        Returns:
            Whether the object has changed, so that it must be read again.

        Raises:
            StorageError: There is a claim, and it cannot be finished now.

        Cost:
            Nothing; on HDFS one request, and four more if there is a claim.
        """
        return self._finish_claim(validate_key(key), etag)

    def remove_leftovers(
        self, prefix: str = "", *, older_than: timedelta, dry_run: bool = False
    ) -> tuple[str, ...]:
        """Remove hidden temporary files of killed writers, and return their paths.

        Stores without such files, or whose service removes them, return nothing.

        Args:
            prefix: A directory, as in `list`.
            older_than: Younger files are kept, since their writers may still be running.
            dry_run: Return the paths without removing the files.

        Cost:
            A walk through the directory on a file system; elsewhere nothing.
        """
        begins_with = directory_prefix(prefix)
        return self._remove_leftovers(begins_with, older_than=older_than, dry_run=dry_run)

    def local_path(self, key: str) -> Path | None:
        """Return the path of the object on the local file system; None if it is not on one.

        Cost:
            Nothing; the object need not exist.
        """
        validate_key(key)
        return self._local_path(key)

    def local_paths(self, keys: Sequence[str]) -> Sequence[str] | None:
        """Return the paths of objects on the local file system; None if they are not on one.

        Cost:
            As `local_path` of each, in less time where many share a directory.
        """
        for key in keys:
            validate_key(key)
        return self._local_paths(keys)

    def hadoop_uri(self, key: str) -> str | None:
        """Return the URI of the object for Hadoop's file systems; None if none of them has it.

        Spark takes the text as a path (`s3a://bucket/lake/d/a`, `file:///lake/d/a`).
        Nothing in it is percent-encoded: `%20` stays three characters, as it is in the key.

        Cost:
            Nothing; neither the object nor a connector of the session is checked.
        """
        validate_key(key)
        return self._hadoop_uri(key)

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the Hadoop configuration that opens the store with the options of this process.

        It may include secrets. It is empty if no options were given, or only ones that Hadoop
        finds by itself.
        """
        return {}

    def open_input(self, key: str, *, size_bytes: int | None = None) -> pa.NativeFile:
        """Open an object as a seekable file for Arrow. Close it, or use it in a `with`.

        Args:
            key: Key of the object.
            size_bytes: Its length if the caller knows it, which saves a HEAD.

        Raises:
            ObjectNotFoundError: There is no object under `key`; with `size_bytes` some stores
                notice only on the first read.

        Cost:
            One HEAD without `size_bytes`; then one GET for each read.
        """
        validate_key(key)
        return self._open_input(key, size_bytes)

    @abstractmethod
    def _get(self, key: str) -> StoredObject: ...

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        stored = self._get(key)
        return None if stored.etag == etag else stored

    @abstractmethod
    def _get_range(self, key: str, start: int, length: int) -> bytes:
        """Read a range; `start` is not negative, `length` is positive."""

    @abstractmethod
    def _size(self, key: str) -> int: ...

    @abstractmethod
    def _stat(self, key: str) -> ObjectStat: ...

    @abstractmethod
    def _create(self, key: str, data: memoryview) -> str:
        """Write in one step of the storage: a check followed by a write is a race."""

    @abstractmethod
    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        """Write in one step of the storage: a check followed by a write is a race."""

    @abstractmethod
    def _put(self, key: str, data: memoryview) -> None: ...

    @abstractmethod
    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],
        size_bytes: int | None,
    ) -> None:
        """Write a stream; nothing may be visible before `pieces` ends."""

    def _begin_file(self, key: str) -> GrowingFile | None:  # noqa: ARG002 - most have no files
        return None

    def _adopt(self, path: Path, key: str) -> None:
        self._put(key, memoryview(path.read_bytes()))
        path.unlink()

    @abstractmethod
    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        """List objects; `begins_with` is empty or ends with a slash, see also `is_listed`."""

    def _folders(self, begins_with: str) -> Iterable[str]:
        """Return the names of the folders in a directory, in any order; see `_list`.

        A store of another package inherits this one, which lists all objects under the directory.
        """
        keys = (info.key[len(begins_with) :] for info in self._list(begins_with, recursive=True))
        return {key.partition("/")[0] for key in keys if "/" in key}

    @abstractmethod
    def _delete(self, keys: Sequence[str]) -> None:
        """Delete objects; `keys` are valid and distinct, and there is at least one."""

    def _delete_if_match(self, key: str, etag: str) -> bool:
        try:
            if self._get_if_changed(key, etag) is not None:
                return False
        except ObjectNotFoundError:
            return False
        self._delete((key,))
        return True

    def _make_durable(self, key: str) -> None:  # noqa: B027 - most stores show durable objects only
        pass

    def _finish_claim(self, key: str, etag: str) -> bool:  # noqa: ARG002 - most stores have none
        return False

    def _remove_leftovers(
        self,
        begins_with: str,  # noqa: ARG002 - for stores that use temporary files
        *,
        older_than: timedelta,  # noqa: ARG002
        dry_run: bool,  # noqa: ARG002
    ) -> tuple[str, ...]:
        return ()

    def _local_path(self, key: str) -> Path | None:  # noqa: ARG002 - most stores have no paths
        return None

    def _local_paths(self, keys: Sequence[str]) -> Sequence[str] | None:
        paths = [self._local_path(key) for key in keys]
        return None if None in paths else [str(path) for path in paths]

    def _hadoop_uri(self, key: str) -> str | None:
        path = self._local_path(key)
        return None if path is None else f"file://{path}"

    def _open_input(self, key: str, size_bytes: int | None) -> pa.NativeFile:
        known = self._size(key) if size_bytes is None else size_bytes
        return pa.PythonFile(_RangeReader(self, key, known), mode="r")

    def _refusal_hint(self) -> str:
        """Return the hint for users of a store without compare-and-swap."""
        return "Open a store that has compare-and-swap."

    def _why_read_only(self) -> str:
        """Return the known reason why the store cannot be written safely; empty for none."""
        if self.supports_compare_and_swap:
            return ""
        return "the store has no compare-and-swap, and concurrent writers would lose data."

    def _check_conditions(self) -> None:  # noqa: B027 - most stores decide races themselves
        """Determine the result of `_why_read_only`, if that needs requests."""

    def _try_conditions(self) -> None:
        """Determine the result of `_why_read_only` again."""
        self._check_conditions()

    def _begin_write(self, operation: str, key: str) -> None:
        validate_key(key)
        self._require_compare_and_swap(operation)
        self._log_call(operation, key)

    def _begin_conditional_write(self, operation: str, key: str) -> None:
        validate_key(key)
        self._require_compare_and_swap(operation)
        self._check_conditions()
        self._begin_write(operation, key)

    def _require_compare_and_swap(self, operation: str) -> None:
        reason = self._why_read_only()
        if reason:
            msg = f"{self.uri} is read-only, so {operation} was refused: {reason}"
            raise ReadOnlyError(msg, hint=self._refusal_hint())

    def _log_call(self, operation: str, key: str) -> None:
        _log.debug("store call operation=%s key=%s store=%s", operation, key, self.uri)


def location_exists(store: Store) -> bool:
    """Return whether the directory of a store exists; a bucket is assumed to exist.

    Raises:
        AccessDeniedError: This user may not read the directories above it.

    Cost:
        No request.
    """
    path = store.local_path("x")
    if path is None:
        return True
    try:
        return path.parent.is_dir()
    except PermissionError as exc:
        raise AccessDeniedError(
            f"Access to {str(path.parent)!r} was denied: {exc.strerror}.",
            hint="Check the owner and the mode of the directories above it.",
        ) from exc


def delete_or_leave(store: Store, keys: Sequence[str]) -> bool:
    """Delete objects that no head refers to, and return whether that worked.

    It never raises a `LakebedError`, which could hide a more important error of the caller.
    """
    if not keys:
        return True
    try:
        store.delete(keys)
    except LakebedError as exc:
        _log.warning(
            "objects stay behind store=%s count=%d first=%s error=%s",
            store.uri,
            len(keys),
            keys[0],
            exc,
        )
        return False
    return True


class _Pieces(Iterator[memoryview]):
    """The pieces of a stream as bytes, and the error that ended the stream, if any."""

    def __init__(self, pieces: Iterable[Buffer]) -> None:
        self._pieces = iter(pieces)
        self.error: Exception | None = None

    def __next__(self) -> memoryview:
        try:
            return memoryview(next(self._pieces)).cast("B")
        except StopIteration:
            raise
        except Exception as exc:
            self.error = exc
            raise


class _RangeReader(SeekableReader):
    """A seekable file over `Store.get_range`; each read is one request for exactly its bytes."""

    def __init__(self, store: Store, key: str, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._store = store
        self._key = key
        READS.add(self)

    def read(self, size: int = -1, /) -> bytes:
        bytes_left = max(0, self.size_bytes - self.position)
        wanted = bytes_left if size < 0 else min(size, bytes_left)
        READS.check()
        data = self._store.get_range(self._key, self.position, wanted) if wanted else b""
        self.position += len(data)
        return data

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)
