"""Compare-and-swap on storage that only moves files, by claims on numbered files.

The storage is a tree of files, each with a number that is never reused. It writes a file under a
unique name, it moves a file or a directory to a free name, and it moves a file over another one;
each move is one atomic step of the storage. It cannot compare. Two writers are kept apart by the
number of the file that both want to replace:

1. The next version is written completely, under a hidden name: `.lakebed/<id>.tmp/<id>.new/<name>`.
2. It is **claimed**: the directory `<id>.tmp` is moved to `.lakebed/<number>`, with the number of
   the file to replace. Only one of the competing moves succeeds.
3. The claim is **good** if the file at its name still has the number, looked up after the claim was
   there. Then only this claim can replace the file, since every other writer needs the same claim;
   and as the file has not changed yet, it did not change before.
4. The new version is moved over the old one. Any writer that finds a good claim does that, its
   owner or a later writer: the source has a unique name, so the move happens once.
5. The owner removes the rest of the claim. If the storage refuses step 4 to the owner, it takes the
   claim back before it reports the error: it moves the new version away, to a hidden name.

A removal is claimed in the same way, by `<id>.gone/<name>/`, into which the file is then moved, to
a name that is free only once. An object is created by a move to its name, if that is free.

So the object at its name is current at every moment, for all readers. But a writer that ended after
step 3 leaves a claim that the next writer will carry out, perhaps days later. Who must know the
outcome of a write, as every reader of a head, finishes the claim before it believes what it has
read (`finish_claim`).

A claim that came too late has a number that no file has any more. It is void for ever, even after a
cleanup, and its owner learns so before it moves anything. A writer that died before step 2 leaves
only hidden files.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import re
import uuid
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, auto

from lakebed.errors import (
    AccessDeniedError,
    InvalidNameError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
)
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, ObjectStat, Store, StoredObject, is_listed

_log = logging.getLogger(__name__)

_HIDDEN = ".lakebed"
_NEW = ".new"
_GONE = ".gone"
_TMP = ".tmp"
_REMOVED = "removed"  # name of the file that a removal has moved away
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_NUMBER = re.compile(r"[0-9]+")
_MOST_LOOKS = 50  # attempts to read an object that others write all the time
_MOST_WRITES = 3  # attempts to write a content, each under a name of its own
_DELETES_AT_ONCE = 8


class Moved(Enum):
    """Result of a move.

    `MISSING` means that there was no source, or no directory for the target. `MAYBE` means the
    same for a move that was sent before without an answer: that one may have moved the source.
    """

    DONE = auto()
    TAKEN = auto()
    MISSING = auto()
    MAYBE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file or a directory.

    Attributes:
        name: Name within its directory.
        number: Number of the file, never reused; 0 if the storage has none.
        is_directory: True for a directory, False for a file.
        size_bytes: Size of a file.
        modified_at: Time of the last write of a file, or of the last change to the entries of a
            directory.
        entry_count: Number of entries of a directory, hidden ones included.
    """

    name: str
    number: int
    is_directory: bool
    size_bytes: int
    modified_at: datetime
    entry_count: int = 0

    @property
    def etag(self) -> str:
        """Text that differs between any two contents of a name."""
        # Size and time show writes of tools into a file, which keeps its number.
        return f"{self.number}-{self.size_bytes}-{int(self.modified_at.timestamp() * 1000)}"


class Tree(ABC):
    """Interface of the storage; paths have no slash at either end, and the root is empty."""

    @abstractmethod
    def find(self, path: str) -> TreeEntry | None:
        """Return the entry of a file or directory; None if there is none."""

    @abstractmethod
    def entries(self, path: str) -> list[TreeEntry]:
        """Return the entries of a directory, in any order; none if there is no such directory."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read from a file, fewer bytes at its end.

        Raises:
            ObjectNotFoundError: There is no such file.
        """

    @abstractmethod
    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        """Write a file of a new name, and make its directories; it is complete on return.

        Raises:
            StorageError: A part of the file may exist, or appear later.
        """

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Make a directory and its parents, unless it exists."""

    @abstractmethod
    def move(self, source: str, target: str) -> Moved:
        """Move a file or a directory to a free name in an existing directory."""

    @abstractmethod
    def move_over(self, source: str, target: str) -> Moved:
        """Move a file to a name, replacing the file of that name, if any."""

    @abstractmethod
    def remove(self, path: str, *, recursive: bool = False) -> bool:
        """Remove a file or directory.

        Args:
            path: Path of the file or directory.
            recursive: Remove a directory with its entries, in one step.

        Returns:
            False if there was none, or if the directory is not empty.
        """


@dataclass(frozen=True, slots=True)
class _Claim:
    """The only successor that a file can have.

    Attributes:
        root: Directory of the claim, named by the number of the file.
        token: Name of the directory in it, which is unique.
        name: Name of the object.
    """

    root: str
    token: str
    name: str

    @property
    def removes(self) -> bool:
        return self.token.endswith(_GONE)

    @property
    def directory(self) -> str:
        return f"{self.root}/{self.token}"

    @property
    def content(self) -> str:
        """Path of the next version, until it is moved; for a removal, a directory."""
        return f"{self.directory}/{self.name}"

    @property
    def removed(self) -> str:
        """Path to which a removal moves the file."""
        return f"{self.content}/{_REMOVED}"


class NumberedStore(Store):
    """A store over a tree of numbered files.

    Attributes:
        tree: The storage; its paths are the keys of the store.
    """

    tree: Tree

    # Reading

    def _missing(self, key: str) -> ObjectNotFoundError:
        return ObjectNotFoundError(f"No object {key!r} in {self.uri}.")

    def _existing(self, key: str) -> TreeEntry:
        entry = self.tree.find(key)
        if entry is None or entry.is_directory:
            raise self._missing(key)
        return entry

    def _get(self, key: str) -> StoredObject:
        for _ in range(_MOST_LOOKS):
            entry = self._existing(key)
            try:
                data = self.tree.read(key)
            except StorageError:
                if self.tree.find(key) == entry:
                    raise
                continue  # it was replaced, and its blocks were deleted
            except ObjectNotFoundError:
                continue
            # The data belongs to the etag only if the entry was the same before and after.
            if self.tree.find(key) == entry and len(data) == entry.size_bytes:
                return StoredObject(
                    key=key, data=data, etag=entry.etag, modified_at=entry.modified_at
                )
        raise StorageError(
            f"Object {key!r} in {self.uri} changes faster than it can be read.",
            hint="Use fewer writers at a time.",
            retryable=True,
        )

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        return None if self._existing(key).etag == etag else self._get(key)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        try:
            return self.tree.read(key, start, length)
        except ObjectNotFoundError as exc:
            raise self._missing(key) from exc
        except StorageError as exc:
            # The service refuses a range that starts at the end or later.
            if not exc.retryable and start >= self._size(key):
                return b""
            raise

    def _size(self, key: str) -> int:
        return self._existing(key).size_bytes

    def _stat(self, key: str) -> ObjectStat:
        entry = self._existing(key)
        return ObjectStat(key=key, size_bytes=entry.size_bytes, modified_at=entry.modified_at)

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        named = [
            (f"{entry.name}/" if entry.is_directory else entry.name, entry)
            for entry in self.tree.entries(begins_with.removesuffix("/"))
            if is_listed(entry.name)
        ]
        for name, entry in sorted(named, key=lambda item: item[0]):
            if not entry.is_directory:
                yield ObjectInfo(
                    key=begins_with + name,
                    size_bytes=entry.size_bytes,
                    modified_at=entry.modified_at,
                )
            elif recursive:
                yield from self._list(begins_with + name, recursive=True)

    def _folders(self, begins_with: str) -> list[str]:
        entries = self.tree.entries(begins_with.removesuffix("/"))
        return [entry.name for entry in entries if entry.is_directory]

    # Writing

    def _put(self, key: str, data: memoryview) -> None:
        self._move_over(self._written([data], lambda token: _beside(key, token)), key)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],  # noqa: ARG002 - files have no attributes
        size_bytes: int | None,  # noqa: ARG002 - a file grows as it is written
    ) -> None:
        temporary = _beside(key, _token())
        try:
            self.tree.write(temporary, pieces)
        except Exception:
            self._remove_or_leave(temporary)
            raise
        self._move_over(temporary, key)

    def _move_over(self, temporary: str, key: str) -> None:
        try:
            moved = self.tree.move_over(temporary, key)
        except StorageError as exc:
            if not exc.retryable:
                self._remove_or_leave(temporary)
            raise
        if moved is Moved.TAKEN:
            self._remove_or_leave(temporary)
            raise _is_a_directory(key)
        if moved is Moved.MISSING or (moved is Moved.MAYBE and self.tree.find(key) is None):
            raise self._vanished(temporary, key)

    def _create(self, key: str, data: memoryview) -> str:
        hidden = _join(_directory_of(key), _HIDDEN)
        temporary = self._written([data], lambda token: f"{hidden}/{token}{_TMP}")
        written = self._numbered(temporary, key)
        moved = self.tree.move(temporary, key)
        if moved is Moved.MAYBE:
            entry = self.tree.find(key)
            if entry is None or entry.number != written.number:
                raise self._unknown(key)
        if moved is Moved.MISSING:
            raise self._vanished(temporary, key)
        if moved is Moved.TAKEN:
            # Afterwards an earlier request without an answer has nothing to move.
            self.tree.remove(temporary)
            entry = self.tree.find(key)
            if entry is not None and entry.is_directory:
                raise _is_a_directory(key)
            raise ObjectExistsError(f"Object {key!r} exists in {self.uri}.")
        return written.etag

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        current = self.tree.find(key)
        # Most losers of a race end here, before a useless write.
        if current is None or current.etag != if_match:
            raise self._changed(key)
        directory, name = _directory_of(key), _name_of(key)
        hidden = _join(directory, _HIDDEN)
        prepared = self._written(
            [data], lambda token: f"{hidden}/{token}{_TMP}/{token}{_NEW}/{name}"
        )
        etag = self._numbered(prepared, key).etag
        claim = self._claimed(key, current.number, prepared)
        if claim is None:
            raise self._changed(key)
        if not self._finish(key, current.number, claim):
            raise self._changed(key)
        return etag

    def _delete_if_match(self, key: str, etag: str) -> bool:
        current = self.tree.find(key)
        if current is None or current.is_directory or current.etag != etag:
            return False
        is_removed = self._remove_numbered(key, current)
        if is_removed:
            self._remove_empty(_directory_of(key))
        return is_removed

    def _remove_numbered(self, key: str, current: TreeEntry) -> bool:
        """Remove an object unless it was replaced meanwhile."""
        if not current.number:
            raise self._numberless(key)
        directory, name, token = _directory_of(key), _name_of(key), _token()
        prepared = f"{_join(directory, _HIDDEN)}/{token}{_TMP}/{token}{_GONE}/{name}"
        self.tree.make_directory(prepared)
        claim = self._claimed(key, current.number, prepared)
        return claim is not None and self._finish(key, current.number, claim)

    def _delete(self, keys: Sequence[str]) -> None:
        by_directory = defaultdict(list)
        for key in keys:
            by_directory[_directory_of(key)].append(key)
        for directory, in_directory in by_directory.items():
            # A directory in which no object was ever created or replaced has no claims.
            has_claims = self.tree.find(_join(directory, _HIDDEN)) is not None
            delete = self._delete_claimed if has_claims else self._delete_plainly
            for _ in at_once(delete, in_directory, _DELETES_AT_ONCE):
                pass
            self._remove_empty(directory)

    def _delete_plainly(self, key: str) -> None:
        self.tree.remove(key)

    def _delete_claimed(self, key: str) -> None:
        for _ in range(_MOST_LOOKS):
            current = self.tree.find(key)
            if current is None or current.is_directory or self._remove_numbered(key, current):
                return
        raise StorageError(
            f"Object {key!r} in {self.uri} changes faster than it can be deleted.", retryable=True
        )

    def _remove_empty(self, directory: str) -> None:
        # Object stores have no empty directories; Hive and Spark give them a meaning.
        with contextlib.suppress(StorageError):
            while directory and self._remove_if_empty(directory):
                directory = _directory_of(directory)

    def _remove_if_empty(self, directory: str) -> bool:
        if self.tree.remove(directory):
            return True
        entry = self.tree.find(directory)
        # Only once there is nothing else: the hidden directory means that there may be claims.
        if entry is None or entry.entry_count > 1 or not self.tree.remove(f"{directory}/{_HIDDEN}"):
            return False
        return self.tree.remove(directory)

    # Claims

    def _claimed(self, key: str, number: int, prepared: str) -> _Claim | None:
        """Claim a file for its prepared successor; None if another writer has the claim."""
        hidden, token, claim_token, name = prepared.rsplit("/", 3)
        root = f"{hidden}/{number}"
        moved = self.tree.move(f"{hidden}/{token}", root)
        if moved is Moved.TAKEN:
            self._settle(key, number, root)
            self._remove_or_leave(f"{hidden}/{token}")
            return None
        claim = _Claim(root, claim_token, name)
        if moved is Moved.MISSING or (
            moved is Moved.MAYBE and self.tree.find(claim.directory) is None
        ):
            raise self._vanished(prepared, key)
        return claim

    def _finish(self, key: str, number: int, claim: _Claim) -> bool:
        """Carry out a claim of this writer, and return whether it was done, by any writer."""
        try:
            is_done = self._carry_out(key, number, claim) or self._was_carried_out(key, claim)
        except LakebedError as exc:
            if not (isinstance(exc, StorageError) and exc.retryable):
                self._take_back(key, claim, exc)
            raise
        self._remove_or_leave(claim.root)
        return is_done

    def _take_back(self, key: str, claim: _Claim, refusal: LakebedError) -> None:
        """Take back a claim that its owner may not carry out, before the error is raised.

        Otherwise a writer with more rights would carry it out later, and bring back a content that
        the owner has deleted since.
        """
        hidden = f"{_directory_of(claim.root)}/{_token()}{_TMP}"
        try:
            is_back = self.tree.move(claim.content, hidden) is Moved.DONE
            if claim.removes and is_back:
                is_back = self.tree.find(f"{hidden}/{_REMOVED}") is None
        except LakebedError:
            is_back = False
        if not is_back:
            raise self._unknown(key) from refusal
        self._remove_or_leave(claim.root)
        self._remove_or_leave(hidden)

    def _carry_out(self, key: str, number: int, claim: _Claim) -> bool:
        """Carry out a claim if it is good, and return whether it is known to be done."""
        current = self.tree.find(key)
        if current is None or current.number != number:
            return False
        if not claim.removes:
            # Only a good claim replaces the file: if it is not there any more, it has done so.
            moved = self.tree.move_over(claim.content, key)
            if moved is Moved.TAKEN:
                raise _is_a_directory(key)
            return True
        return self.tree.move(key, claim.removed) is Moved.DONE

    def _was_carried_out(self, key: str, claim: _Claim) -> bool:
        """Return whether another writer has carried out a claim of this one; else it is void."""
        if claim.removes:
            # Only the object is ever moved to this path.
            if self.tree.find(claim.removed) is not None:
                return True
            is_there = self.tree.find(claim.content) is not None
        else:
            if self.tree.find(claim.content) is not None:
                return False
            is_there = self.tree.find(claim.directory) is not None
            if is_there:
                return True
        if not is_there:
            raise self._unknown(key)
        return False

    def _settle(self, key: str, number: int, root: str) -> bool:
        """Finish the claim of another writer, which may be dead; return whether there was one."""
        claims = self._claims_at(root)
        for claim in claims:
            # Checked after the claim was read: `_carry_out` looks up whether it is good.
            self._carry_out(key, number, claim)
        return bool(claims)

    def _finish_claim(self, key: str, etag: str) -> bool:
        number = int(etag.partition("-")[0])
        root = f"{_join(_directory_of(key), _HIDDEN)}/{number}"
        try:
            if not self._settle(key, number, root):
                return False
            current = self.tree.find(key)
            return current is None or current.etag != etag
        except AccessDeniedError as exc:
            _log.warning("claim stays key=%s store=%s error=%s", key, self.uri, exc)
            return False  # only for a caller that cannot write here either

    def _claims_at(self, root: str) -> list[_Claim]:
        """Return the claim of a number, if it is not carried out yet."""
        return [
            _Claim(root, held.name, entry.name)
            for held in self.tree.entries(root)
            for entry in self.tree.entries(f"{root}/{held.name}")
        ]

    # Leftovers

    def _remove_leftovers(
        self, begins_with: str, *, older_than: timedelta, dry_run: bool
    ) -> tuple[str, ...]:
        newest = datetime.now(UTC) - older_than
        directory = begins_with.removesuffix("/")
        doomed = list(self._leftovers_under(directory, newest))
        if directory:
            above, name = _directory_of(directory), _name_of(directory)
            doomed += self._claims_beside(_join(above, _HIDDEN), f"{name}.", newest)
        if not dry_run:
            for path in doomed:
                self._settle_and_remove(path)
        return tuple(sorted(doomed))

    def _leftovers_under(self, directory: str, newest: datetime) -> Iterator[str]:
        for entry in self.tree.entries(directory):
            path = _join(directory, entry.name)
            is_old = entry.modified_at <= newest
            if entry.name == _HIDDEN:
                yield from (
                    f"{path}/{held.name}"
                    for held in self.tree.entries(path)
                    if held.modified_at <= newest
                )
            elif entry.is_directory:
                yield from self._leftovers_under(path, newest)
            elif is_old and _TEMPORARY.fullmatch(entry.name):
                yield path

    def _claims_beside(self, hidden: str, stem: str, newest: datetime) -> Iterator[str]:
        """Yield old claims on objects beside a directory, whose names begin with its own."""
        for held in self.tree.entries(hidden):
            if held.modified_at > newest or not held.is_directory:
                continue
            path = f"{hidden}/{held.name}"
            claims = self._claims_at(path)
            is_carried_out = not claims and _NUMBER.fullmatch(held.name)
            if is_carried_out or any(claim.name.startswith(stem) for claim in claims):
                yield path

    def _settle_and_remove(self, path: str) -> None:
        name = _name_of(path)
        if _NUMBER.fullmatch(name):
            directory = _directory_of(_directory_of(path))
            for claim in self._claims_at(path):
                self._carry_out(_join(directory, claim.name), int(name), claim)
        self.tree.remove(path, recursive=True)

    def _remove_or_leave(self, path: str) -> None:
        try:
            self.tree.remove(path, recursive=True)
        except LakebedError as exc:
            _log.warning("leftover stays behind path=%s store=%s error=%s", path, self.uri, exc)

    # Helpers

    def _written(self, pieces: Sequence[memoryview], path_of: Callable[[str], str]) -> str:
        """Write a content under a unique name, and return its path."""
        for attempt in itertools.count(1):
            # A new name each time: a request without an answer may still write to the last one.
            path = path_of(_token())
            try:
                self.tree.write(path, pieces)
            except StorageError as exc:
                self._remove_or_leave(path)
                if not exc.retryable or attempt == _MOST_WRITES:
                    raise
                _log.warning("write is tried again path=%s error=%s", path, exc)
                continue
            return path
        raise AssertionError  # there is always another attempt

    def _numbered(self, path: str, key: str) -> TreeEntry:
        entry = self.tree.find(path)
        if entry is None:
            raise self._vanished(path, key)
        if not entry.number:
            self._remove_or_leave(path)
            raise self._numberless(key)
        return entry

    def _numberless(self, key: str) -> ReadOnlyError:
        return ReadOnlyError(
            f"{self.uri} is read-only: the service does not return the number of the file of "
            f"{key!r}, and concurrent writers would lose data.",
            hint="Connect to the NameNode itself: gateways such as HttpFS do not return it.",
        )

    def _changed(self, key: str) -> PreconditionFailedError:
        return PreconditionFailedError(
            f"Object {key!r} in {self.uri} was changed or deleted since it was read."
        )

    def _unknown(self, key: str) -> StorageError:
        return StorageError(
            f"The outcome of a write to {key!r} in {self.uri} is not known: another writer has "
            "written it since, or cleaned up after it.",
            retryable=True,
        )

    def _vanished(self, path: str, key: str) -> StorageError:
        return StorageError(
            f"Another process removed {path!r} in {self.uri} before it could become {key!r}.",
            hint="Check whether a cleanup ran with a retention shorter than the write.",
        )


def _token() -> str:
    return uuid.uuid4().hex


def _join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def _beside(key: str, token: str) -> str:
    return _join(_directory_of(key), f".{token}{_TMP}")


def _is_a_directory(key: str) -> InvalidNameError:
    return InvalidNameError(
        f"{key!r} cannot be written: there is a directory of that name.",
        hint="On a file system a name is either an object or a directory, not both.",
    )
