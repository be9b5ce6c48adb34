"""A directory as a store, safe for threads, processes and, where locks reach, machines.

Every write goes to a hidden temporary file beside its target and becomes visible by one link or
rename, so a reader needs no lock and a killed writer leaves at most a temporary file. Symbolic links
under the root are refused: the user who made one may not have the rights of the process. A
storage option allows them, so that data may be stored elsewhere; but files behind a link are then
still neither listed nor deleted, since they may belong to others. `create` is a hard link, which the
file system refuses if the name is taken. `replace` compares and renames under an advisory lock;
the locks are a few files that are never removed.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from lakebed.errors import (
    AccessDeniedError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
)
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject, is_listed
from lakebed.store.growing import GrowingFile

try:
    import fcntl
except ImportError:  # Windows has no advisory locks of this kind
    fcntl = None  # type: ignore[assignment]  # a module or nothing; every use checks first

_LOCK_DIRECTORY = ".lakebed/locks"
_LOCK_COUNT = 64  # so many that commits to different datasets seldom wait for each other
_ETAG_BYTES = 16
_LONGEST_NAME_IN_TEMPORARY = 40  # characters; with 4 bytes each the whole name is under 255 bytes
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp\Z", re.DOTALL)
_ATTEMPTS_TO_FIND_DIRECTORY = 100  # a cleanup may remove the empty directory before each

_NOT_FOUND = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_NAME_CLASH = {errno.ENOTDIR, errno.EISDIR, errno.EEXIST}
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


@contextlib.contextmanager
def translating_os_errors(path: str | Path, *, writing: bool) -> Iterator[None]:
    """Raise the most specific error of Lakebed for an `OSError` about `path`."""
    try:
        yield
    except OSError as exc:
        raise _translated(path, exc, writing=writing) from exc


def _translated(path: str | Path, exc: OSError, *, writing: bool) -> LakebedError:
    reason = exc.strerror or str(exc)
    if not writing and exc.errno in _NOT_FOUND:
        return ObjectNotFoundError(f"No object {str(path)!r}: {reason}.")
    if exc.errno in _DENIED:
        hint = "Check the owner and the mode of the directory, and how it is mounted."
        return AccessDeniedError(f"Access to {str(path)!r} was denied: {reason}.", hint=hint)
    if exc.errno == errno.ENAMETOOLONG:
        return InvalidNameError(f"Path {str(path)!r} is too long for this file system.")
    if writing and exc.errno in _NAME_CLASH:
        hint = "On a file system a name is either an object or a directory, not both."
        return InvalidNameError(f"Path {str(path)!r} cannot be written: {reason}.", hint=hint)
    if exc.errno in _FULL:
        hint = "This object was not written. Free some space and try again."
        return StorageFullError(f"No space to write {str(path)!r}: {reason}.", hint=hint)
    return StorageError(f"The file system failed on {str(path)!r}: {reason}.", retryable=True)


def content_etag(data: bytes | memoryview) -> str:
    """Return the etag of a content.

    It is a hash because no metadata of a file is safe to compare: inode numbers are reused, and
    two writes can have the same timestamp.
    """
    # Most processors have instructions for this hash; a commit hashes a head several times.
    return hashlib.sha256(data).hexdigest()[: 2 * _ETAG_BYTES]


class PosixStore(Store):
    """A directory. The first write creates it, not the opening of the store.

    Paths are texts: to make a `Path` of one takes about as long as a request of a small object.

    All writers must open the same root: it contains the locks, under `.lakebed/`.
    """

    is_near = True

    def __init__(
        self, root: str | os.PathLike[str], *, durable: bool = True, links: bool = False
    ) -> None:
        """Open the store.

        Args:
            root: The directory; a relative one is resolved now, from the current directory.
            durable: True if a write returns only when it would survive a loss of power. False is
                faster and equally safe against a crash of the process.
            links: True to read and write through symbolic links under the root. The root itself may
                always be one.

        Raises:
            InvalidInputError: `root` is a file.
        """
        self._root = Path(os.path.abspath(root))
        # A Path raises if access is denied; the first request reports that better.
        if os.path.isfile(self._root):
            raise InvalidInputError(
                f"{self._root} is a file.", hint="Give the directory that contains the datasets."
            )
        self._durable = durable
        self._links = links
        self._begin = os.path.join(self._root, "")  # paths of keys begin with it
        self.uri = self._root.as_uri()
        self.supports_compare_and_swap = fcntl is not None

    @property
    def group_key(self) -> Hashable:
        """The directory, and whether writes are synced."""
        return str(self._root), self._durable, self._links

    def __reduce__(self) -> tuple[Callable[..., PosixStore], tuple[str, bool, bool]]:
        return _reopen, (str(self._root), self._durable, self._links)

    def _refusal_hint(self) -> str:
        return "Use Linux, macOS or WSL, which have file locks; on Windows use an object store."

    def _local_path(self, key: str) -> Path:
        return Path(self._path(key))

    def _local_paths(self, keys: Sequence[str]) -> list[str]:
        if self._links:
            return [self._begin + key for key in keys]
        # Most files share directories with others: each is looked at once.
        directories: set[str] = set()
        for key in keys:
            link = self._find_link(key, directories)
            if link is not None:
                raise _refused(link)
        return [self._begin + key for key in keys]

    def _path(self, key: str) -> str:
        """Return the path of an object that is read or written; a link on it is refused."""
        if not self._links:
            link = self._find_link(key)
            if link is not None:
                raise _refused(link)
        return self._begin + key

    def _open_input(self, key: str, size_bytes: int | None) -> pa.NativeFile:  # noqa: ARG002 - Arrow asks the file
        path = self._path(key)
        with translating_os_errors(path, writing=False):
            _file_status(path)  # Arrow's errors distinguish a directory only by text; a pipe waits
            return pa.OSFile(path, mode="r")

    def _get(self, key: str) -> StoredObject:
        path = self._path(key)
        with translating_os_errors(path, writing=False), _opened(path) as file:
            data = file.read()
            modified = os.fstat(file.fileno()).st_mtime
        return StoredObject(
            key=key,
            data=data,
            etag=content_etag(data),
            modified_at=datetime.fromtimestamp(modified, UTC),
        )

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        path = self._path(key)
        with translating_os_errors(path, writing=False), _opened(path) as file:
            file.seek(start)
            return file.read(length)

    def _size(self, key: str) -> int:
        path = self._path(key)
        with translating_os_errors(path, writing=False):
            return _file_status(path).st_size

    def _stat(self, key: str) -> ObjectStat:
        path = self._path(key)
        with translating_os_errors(path, writing=False):
            status = _file_status(path)
        return ObjectStat(
            key=key,
            size_bytes=status.st_size,
            modified_at=datetime.fromtimestamp(status.st_mtime, UTC),
        )

    def _create(self, key: str, data: memoryview) -> str:
        target = self._path(key)
        with (
            translating_os_errors(target, writing=True),
            self._temporary(target, [data]) as temporary,
        ):
            if not self._appear(target, temporary, key):
                msg = f"Object {key!r} exists in {self.uri}."
                raise ObjectExistsError(msg)
        self._make_name_durable(target)
        return content_etag(data)

    def _appear(self, target: str, temporary: str, key: str) -> bool:
        """Give the temporary file the name `target`, unless it is taken."""
        try:
            os.link(temporary, target)
        except FileExistsError:
            # A network file system may repeat a link whose answer was lost, and then finds its
            # own link: only that one gives the temporary file a second name.
            return os.stat(temporary).st_nlink > 1
        except OSError as exc:
            if exc.errno not in _NO_HARD_LINKS:
                raise
            return self._appear_under_lock(target, temporary, key)
        return True

    def _appear_under_lock(self, target: str, temporary: str, key: str) -> bool:
        with self._locked(key):
            if os.path.lexists(target):
                return False
            os.rename(temporary, target)
        return True

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        target = self._path(key)
        with translating_os_errors(target, writing=True), contextlib.ExitStack() as stack:
            try:
                current = stack.enter_context(_opened(target))
            except _NO_FILE as exc:
                raise self._changed(key) from exc
            status = os.fstat(current.fileno())
            # Most losers of a race end here, before a useless write and sync.
            if content_etag(current.read()) != if_match:
                raise self._changed(key)
            with self._temporary(target, [data]) as temporary, self._locked(key):
                if not _is_unchanged(target, status):
                    raise self._changed(key)
                os.replace(temporary, target)
        self._make_name_durable(target)
        return content_etag(data)

    def _changed(self, key: str) -> PreconditionFailedError:
        msg = f"Object {key!r} in {self.uri} was changed or deleted since it was read."
        return PreconditionFailedError(msg)

    def _current_etag(self, target: str) -> str:
        try:
            with _opened(target) as file:
                return content_etag(file.read())
        except _NO_FILE:
            return ""

    def _put(self, key: str, data: memoryview) -> None:
        target = self._path(key)
        with (
            translating_os_errors(target, writing=True),
            self._temporary(target, [data]) as temporary,
        ):
            os.replace(temporary, target)
        self._make_name_durable(target)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],  # noqa: ARG002 - not every file system stores attributes
        size_bytes: int | None,  # noqa: ARG002 - a file grows as it is written
    ) -> None:
        target = self._path(key)
        with (
            translating_os_errors(target, writing=True),
            self._temporary(target, pieces) as temporary,
        ):
            os.replace(temporary, target)
        self._make_name_durable(target)

    def _begin_file(self, key: str) -> GrowingFile:
        path = _hidden_beside(self._path(key))
        translating = functools.partial(translating_os_errors, path, writing=True)
        with translating():
            return GrowingFile(Path(path), self._open_new(path), translating)

    def _adopt(self, path: Path, key: str) -> None:
        target = self._path(key)
        with translating_os_errors(target, writing=True):
            if path.stat().st_dev != self._root.stat().st_dev:
                super()._adopt(path, key)
                return
            if self._durable:
                self._sync_file(path)
            self._make_directory(os.path.dirname(target))
            os.replace(path, target)
        self._make_name_durable(target)

    def _sync_file(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | _O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _find_link(self, key: str, directories: set[str] | None = None) -> str | None:
        """Return the symbolic link on the way from the root to a key; None without one.

        Args:
            key: The key.
            directories: Directories that are no links, which are not looked at again; receives
                the others on the way.
        """
        # Texts: this is called for each read of a small object.
        text = self._begin + key
        begin = len(self._begin)
        while begin < len(text):
            end = text.find("/", begin)
            part = text if end == -1 else text[:end]
            if directories is not None and end != -1:
                if part in directories:
                    begin = end + 1
                    continue
                directories.add(part)
            try:
                if stat.S_ISLNK(os.lstat(part).st_mode):
                    return part
            except OSError:
                return None  # what does not exist has no links below it
            if end == -1:
                return None
            begin = end + 1
        return None

    def _check_not_linked(self, key: str) -> None:
        link = self._find_link(key)
        if link is not None:
            raise _behind(link)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        with translating_os_errors(self._root / begins_with, writing=False):
            self._check_not_linked(begins_with)
            yield from self._walk(begins_with, recursive=recursive)

    def _folders(self, begins_with: str) -> list[str]:
        with translating_os_errors(self._root / begins_with, writing=False):
            self._check_not_linked(begins_with)
            entries = _sorted_entries(self._root / begins_with)
        return [name.removesuffix("/") for name, _ in entries if name.endswith("/")]

    def _walk(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        for name, entry in _sorted_entries(self._root / begins_with):
            if name.endswith("/"):
                if recursive:
                    yield from self._walk(begins_with + name, recursive=True)
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # deleted since its directory was read
                continue
            yield ObjectInfo(
                key=begins_with + name,
                size_bytes=status.st_size,
                modified_at=datetime.fromtimestamp(status.st_mtime, UTC),
            )

    def _delete(self, keys: Sequence[str]) -> None:
        links: dict[str, str | None] = {}
        emptied = set()
        for key in keys:
            target = self._begin + key
            directory = os.path.dirname(target)
            with translating_os_errors(target, writing=True):
                if directory not in links:
                    links[directory] = self._find_link(key.rpartition("/")[0])
                if links[directory] is None and _is_file_or_link(target):
                    with self._locked(key):
                        _unlink(target)
                    emptied.add(directory)
        for directory in emptied:
            self._remove_if_empty(directory)
        # Also for missing files: the process that removed them may not have synced the directory.
        self._make_removal_durable(path for path, link in links.items() if link is None)
        for link in filter(None, links.values()):
            raise _behind(link)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        target = self._begin + key
        with translating_os_errors(target, writing=True):
            self._check_not_linked(key.rpartition("/")[0])
            is_removed = False
            if self._current_etag(target) == etag:
                with self._locked(key):
                    is_removed = self._current_etag(target) == etag
                    if is_removed:
                        os.unlink(target)
            if is_removed:
                self._remove_if_empty(os.path.dirname(target))
        if is_removed:
            self._make_removal_durable([os.path.dirname(target)])
        return is_removed

    def _remove_leftovers(
        self, begins_with: str, *, older_than: timedelta, dry_run: bool
    ) -> tuple[str, ...]:
        newest = (datetime.now(UTC) - older_than).timestamp()
        removed = []
        with translating_os_errors(self._root / begins_with, writing=True):
            self._check_not_linked(begins_with)
            for directory, _, names in os.walk(self._root / begins_with):
                for path in (Path(directory, name) for name in names if _TEMPORARY.match(name)):
                    with contextlib.suppress(FileNotFoundError):
                        if path.lstat().st_mtime > newest:
                            continue
                        if not dry_run:
                            path.unlink()
                        removed.append(path.relative_to(self._root).as_posix())
        return tuple(sorted(removed))

    def _remove_if_empty(self, directory: str) -> None:
        # Object stores have no empty directories; Hive and Spark give them a meaning.
        with contextlib.suppress(OSError):
            while directory.startswith(self._begin):
                os.rmdir(directory)
                _SYNCED_DIRECTORIES.pop(directory, None)
                directory = os.path.dirname(directory)

    @contextlib.contextmanager
    def _temporary(self, target: str, pieces: Iterable[memoryview]) -> Iterator[str]:
        """Write the pieces to a hidden file beside `target`; it is removed on exit."""
        temporary = _hidden_beside(target)
        descriptor = self._open_new(temporary)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(pieces)
                file.flush()
                if self._durable:
                    os.fsync(file.fileno())
            yield temporary
        finally:
            with contextlib.suppress(OSError):
                _unlink(temporary)

    def _open_new(self, path: str) -> int:
        for _ in range(_ATTEMPTS_TO_FIND_DIRECTORY):
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _O_CLOEXEC, 0o666)
            self._make_directory(os.path.dirname(path))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.path.dirname(path))

    def _make_directory(self, directory: str) -> None:
        missing = []
        while not _exists(directory) and directory != os.path.dirname(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for path in reversed(missing):
            # File systems reuse inode numbers: a new directory may look like one that was removed.
            _SYNCED_DIRECTORIES.pop(path, None)
            try:
                os.mkdir(path)
            except FileExistsError:
                if os.path.isfile(path):
                    raise
            except FileNotFoundError:  # an empty parent was removed meanwhile; the caller retries
                return

    def _make_name_durable(self, target: str) -> None:
        """Sync the directory of a new name, and the names of the directories above it."""
        if not self._durable:
            return
        try:
            directory = os.path.dirname(target)
            _sync_names_above(directory)
            _sync_directory(directory)
        except FileNotFoundError:  # deleted since, together with its directory
            return
        except OSError as exc:
            # The new name is already visible, so the outcome is unknown.
            _NAMES_NOT_SYNCED.add(target)
            msg = f"{target} was written, but may not survive a loss of power: {exc}."
            raise StorageError(msg, retryable=True) from exc
        _NAMES_NOT_SYNCED.discard(target)

    def _make_durable(self, key: str) -> None:
        target = self._path(key)
        if target not in _NAMES_NOT_SYNCED:
            self._make_name_durable(target)
            return
        # After a sync that failed, the next one may report success without having written the
        # name. So the name is made again, with the same content, and then synced.
        with translating_os_errors(target, writing=True), _opened(target) as file:
            data = file.read()
        try:
            self._replace(key, memoryview(data), if_match=content_etag(data))
        except PreconditionFailedError:  # another writer has made the name again
            self._make_name_durable(target)

    def _make_removal_durable(self, directories: Iterable[str]) -> None:
        """Sync what remains of directories from which files were removed."""
        if not self._durable:
            return
        for directory in {self._nearest_directory(directory) for directory in directories}:
            try:
                _sync_directory(directory)
            except FileNotFoundError:  # removed since by a caller that syncs its parent
                continue
            except OSError as exc:
                msg = f"Files of {directory} were deleted, but a loss of power may restore them: {exc}."
                raise StorageError(msg, retryable=True) from exc

    def _nearest_directory(self, directory: str) -> str:
        while directory.startswith(self._begin) and not _exists(directory):
            directory = os.path.dirname(directory)
        return directory

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Prevent all other threads and processes from replacing or removing `key`."""
        number = hashlib.blake2b(key.encode(), digest_size=1).digest()[0] % _LOCK_COUNT
        path = self._path(f"{_LOCK_DIRECTORY}/{number:02d}")
        descriptor = self._open_locked(path)
        try:
            yield
        finally:
            # Closing is not enough: a process forked meanwhile may have the same open file.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _open_locked(self, path: str) -> int:
        while True:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                # A lock on a file that was removed meanwhile does not exclude other writers.
                if _is_same_file(descriptor, path):
                    return descriptor
            except OSError as exc:
                os.close(descriptor)
                if exc.errno not in _NO_LOCKS:
                    raise
                msg = f"The file system of {self.uri} has no file locks: {exc}."
                hint = "Mount it with locks enabled, or use an object store."
                raise ReadOnlyError(msg, hint=hint) from exc
            os.close(descriptor)


_O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)  # Windows has none and needs none
_O_NONBLOCK = getattr(os, "O_NONBLOCK", 0)

# Directories whose names this process has synced, all the way up, with what they were then: one
# that was removed and made again is another one. Of all stores of this process.
_SYNCED_DIRECTORIES: dict[str, tuple[int, int]] = {}
_MOST_SYNCED_DIRECTORIES = 100_000
# Names that this process has made, and whose sync failed.
_NAMES_NOT_SYNCED: set[str] = set()


def _sync_names_above(directory: str) -> None:
    """Sync the names of a directory and of all above it, up to the root of the file system.

    Another writer may have made one of them without having synced it yet, or was killed before.
    """
    status = os.stat(directory)
    known = (status.st_dev, status.st_ino)
    if _SYNCED_DIRECTORIES.get(directory) == known:
        return
    parent = os.path.dirname(directory)
    if parent != directory and os.stat(parent).st_dev == status.st_dev:
        _sync_names_above(parent)
        # Others' directories far above cannot always be opened, and are older than any dataset.
        with contextlib.suppress(PermissionError):
            _sync_directory(parent)
    if len(_SYNCED_DIRECTORIES) >= _MOST_SYNCED_DIRECTORIES:
        _SYNCED_DIRECTORIES.clear()
    _SYNCED_DIRECTORIES[directory] = known


def _sync_directory(directory: str) -> None:
    descriptor = os.open(directory, os.O_RDONLY | _O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reopen(root: str, durable: bool, links: bool) -> PosixStore:  # noqa: FBT001 - pickle's form
    return PosixStore(root, durable=durable, links=links)


def _opened(path: str) -> BinaryIO:
    """Open a file; a pipe is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | _O_CLOEXEC | _O_NONBLOCK)
    try:
        _check_regular(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def _file_status(path: str) -> os.stat_result:
    status = os.stat(path)
    _check_regular(status)
    return status


def _check_regular(status: os.stat_result) -> None:
    """Raise an error for a pipe, a socket or a device: it is no object, and no listing shows it."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(errno.ENOENT, "it is not a regular file")


def _hidden_beside(target: str) -> str:
    directory, name = os.path.split(target)
    stem = name[:_LONGEST_NAME_IN_TEMPORARY]
    return f"{directory}{os.sep}.{stem}.{uuid.uuid4().hex}.tmp"


def _exists(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _behind(link: str) -> StorageError:
    return StorageError(
        f"{link!r} is a symbolic link: files behind it are neither listed nor deleted.",
        hint="Replace the link with the directory itself, or open a repository at its target.",
    )


def _refused(link: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"{link!r} is a symbolic link, which is not followed: it may lead to files of others.",
        hint="Replace the link with what it leads to, open a repository at its target, or allow "
        "links by the storage option links=true.",
    )


def _is_file_or_link(path: str) -> bool:
    return os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path))


def _is_unchanged(path: str, before: os.stat_result) -> bool:
    """Return whether an open file is still at its path, unchanged since `before`.

    While it is open, its inode number is not reused. Size and time show writes of other tools
    into the file. The path is opened again because network file systems ask their server only
    then.
    """
    try:
        with _opened(path) as file:
            now = os.fstat(file.fileno())
    except _NO_FILE:
        return False
    return os.path.samestat(before, now) and (before.st_size, before.st_mtime_ns) == (
        now.st_size,
        now.st_mtime_ns,
    )


def _is_same_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sorted_entries(directory: Path) -> list[tuple[str, os.DirEntry[Any]]]:
    """Return files and, with a final slash, directories, so sorted that a walk is in key order.

    Symbolic links are left out; a listing that followed them could leave the root.
    """
    named_entries = []
    with (
        contextlib.suppress(FileNotFoundError, NotADirectoryError),
        os.scandir(directory) as entries,
    ):
        for entry in entries:
            if not is_listed(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                named_entries.append((f"{entry.name}/", entry))
            elif entry.is_file(follow_symlinks=False):
                named_entries.append((entry.name, entry))
    return sorted(named_entries, key=lambda item: item[0])
