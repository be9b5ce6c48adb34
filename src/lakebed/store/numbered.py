"""Compare-and-swap where storage only moves files: the next version lies under the number of the last.

The storage is a tree of files, each with a number that no other file ever has again. It writes a
file under a name that nobody else has, it moves a file or a directory to a name that is free, and
it moves a file over another one; each move is decided by the storage in one step. It compares
nothing. What keeps two writers apart is the number of the file that both want to replace:

1. The next version is written whole, where nobody looks: `.lakebed/<id>.tmp/<id>.new/<name>`.
2. It is **claimed**: the directory `<id>.tmp` is moved to `.lakebed/<number>`, where the number is
   that of the file that is to be replaced. Of all that try, the storage lets one.
3. The claim is **good** if the file at its name still has the number, looked up after the claim was
   there. Then nothing but this claim can take its place, since whoever else wants to needs the same
   claim; and as it has not changed yet, it did not change before.
4. The new version is moved over the old one. Whoever finds a good claim does that, its owner or
   anybody after him: the source has a name of its own, so that the move happens once.
5. The owner removes what is left of the claim. If the storage refuses him step 4, he takes the claim
   back before he says so: he moves the new version away, to where nobody looks.

A removal is claimed in the same way, by `<id>.gone/<name>/`, into which the file is then moved, to
a name that is free only once. An object is created by a move to its name, if that is free.

So the object at its name is the truth at every moment, for everybody: a reader needs to know nothing
of this. A claim that came too late is of a number that no file has any more; it is void for ever,
whatever has been cleaned up meanwhile, and its owner learns so before he moves anything. A writer who
died before step 2 has left what nobody looks at; after it, what the next writer finishes.
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
_REMOVED = "removed"  # what a removal has moved away
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.tmp")
_NUMBER = re.compile(r"[0-9]+")
_MOST_LOOKS = 50  # at an object that others write all the time
_MOST_WRITES = 3  # of one content, each under a name of its own
_DELETES_AT_ONCE = 8


class Moved(Enum):
    """What became of a move.

    `MISSING` says that there was no source, or no directory for the target. `MAYBE` says the same
    of a move that was sent before and not answered: it may be the one that has moved the source.
    """

    DONE = auto()
    TAKEN = auto()
    MISSING = auto()
    MAYBE = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """A file or a directory.

    Attributes:
        name: Within its directory.
        number: Of the file, which no other one ever has; 0 where the storage has none.
        is_directory: Which of both.
        size_bytes: Of a file.
        modified_at: When it was last written, or an entry of the directory came or went.
        entry_count: What a directory holds, hidden entries included.
    """

    name: str
    number: int
    is_directory: bool
    size_bytes: int
    modified_at: datetime
    entry_count: int = 0

    @property
    def etag(self) -> str:
        """What is different for any two contents of a name."""
        # Size and time tell of tools that write into a file, which keeps its number.
        return f"{self.number}-{self.size_bytes}-{int(self.modified_at.timestamp() * 1000)}"


class Tree(ABC):
    """What a storage must do, under paths without a slash at either end; the root is empty."""

    @abstractmethod
    def find(self, path: str) -> TreeEntry | None:
        """Look at a file or directory; None if there is none."""

    @abstractmethod
    def entries(self, path: str) -> list[TreeEntry]:
        """Return what is in a directory, in any order; nothing if there is no such directory."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read from a file, fewer bytes where it ends before.

        Raises:
            ObjectNotFoundError: There is no such file.
        """

    @abstractmethod
    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        """Write a file of a new name, and make its directories; it is whole when this returns.

        Raises:
            StorageError: A part of it may be there, or come to be.
        """

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Make a directory, and those above, unless it is there."""

    @abstractmethod
    def move(self, source: str, target: str) -> Moved:
        """Move a file or a directory to a name that is free, in a directory that is there."""

    @abstractmethod
    def move_over(self, source: str, target: str) -> Moved:
        """Move a file to a name, in the place of the file that has it, if one has."""

    @abstractmethod
    def remove(self, path: str, *, recursive: bool = False) -> bool:
        """Remove a file or directory.

        Args:
            path: Which.
            recursive: Also a directory with something in it, in one step.

        Returns:
            False if there was none, or a directory that is not empty.
        """


@dataclass(frozen=True, slots=True)
class _Claim:
    """The one successor that a file can have.

    Attributes:
        place: Its directory, which is named by the number of the file.
        token: The directory in it, of a name that nobody else ever has.
        name: Of the object.
    """

    place: str
    token: str
    name: str

    @property
    def removes(self) -> bool:
        return self.token.endswith(_GONE)

    @property
    def directory(self) -> str:
        return f"{self.place}/{self.token}"

    @property
    def content(self) -> str:
        """Where the next version is, until it is moved; of a removal, a directory."""
        return f"{self.directory}/{self.name}"

    @property
    def removed(self) -> str:
        """Where a removal moves the file."""
        return f"{self.content}/{_REMOVED}"


class NumberedStore(Store):
    """A store over a tree of numbered files.

    Attributes:
        tree: The storage; paths are the keys of the store.
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
                continue  # its blocks went with it
            except ObjectNotFoundError:
                continue
            # Only if it was the same before and after is this what has the etag.
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
            # A range that starts at the end or later is refused.
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

    # Writing

    def _put(self, key: str, data: memoryview) -> None:
        self._move_over(self._written([data], lambda token: _beside(key, token)), key)

    def _put_stream(
        self,
        key: str,
        pieces: Iterator[memoryview],
        *,
        attributes: Mapping[str, str],  # noqa: ARG002 - files have none
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
            # What was sent before and got no answer finds nothing to move any more.
            self.tree.remove(temporary)
            entry = self.tree.find(key)
            if entry is not None and entry.is_directory:
                raise _is_a_directory(key)
            raise ObjectExistsError(f"Object {key!r} exists in {self.uri}.")
        return written.etag

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        current = self.tree.find(key)
        # Most losers of a race are found here, before they write for nothing.
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
        """Remove an object unless it is replaced before."""
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
        for directory, there in by_directory.items():
            # Where nobody has ever created or replaced an object, there are no claims to mind.
            has_claims = self.tree.find(_join(directory, _HIDDEN)) is not None
            delete = self._delete_claimed if has_claims else self._delete_plainly
            for _ in at_once(delete, there, _DELETES_AT_ONCE):
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
        # Object stores have no empty directories; Hive and Spark read a meaning into them.
        with contextlib.suppress(StorageError):
            while directory and self._remove_if_empty(directory):
                directory = _directory_of(directory)

    def _remove_if_empty(self, directory: str) -> bool:
        if self.tree.remove(directory):
            return True
        entry = self.tree.find(directory)
        # Not before there is nothing else: that it is there says that there may be claims.
        if entry is None or entry.entry_count > 1 or not self.tree.remove(f"{directory}/{_HIDDEN}"):
            return False
        return self.tree.remove(directory)

    # Claims

    def _claimed(self, key: str, number: int, prepared: str) -> _Claim | None:
        """Claim the place of a file for what is prepared; None if somebody else has it."""
        hidden, token, kind, name = prepared.rsplit("/", 3)
        place = f"{hidden}/{number}"
        moved = self.tree.move(f"{hidden}/{token}", place)
        if moved is Moved.TAKEN:
            self._settle(key, number, place)
            self._remove_or_leave(f"{hidden}/{token}")
            return None
        claim = _Claim(place, kind, name)
        if moved is Moved.MISSING or (
            moved is Moved.MAYBE and self.tree.find(claim.directory) is None
        ):
            raise self._vanished(prepared, key)
        return claim

    def _finish(self, key: str, number: int, claim: _Claim) -> bool:
        """Do what a claim of ours is for, and say whether that was done, by whomever."""
        try:
            is_done = self._carry_out(key, number, claim) or self._was_carried_out(key, claim)
        except LakebedError as exc:
            if not (isinstance(exc, StorageError) and exc.retryable):
                self._take_back(key, claim, exc)
            raise
        self._remove_or_leave(claim.place)
        return is_done

    def _take_back(self, key: str, claim: _Claim, refusal: LakebedError) -> None:
        """Take back a claim that its owner may not carry out, before he is told that it failed.

        Whoever may would carry it out for him, and bring up what he has deleted since.
        """
        place = f"{_directory_of(claim.place)}/{_token()}{_TMP}"
        try:
            is_back = self.tree.move(claim.content, place) is Moved.DONE
            if claim.removes and is_back:
                is_back = self.tree.find(f"{place}/{_REMOVED}") is None
        except LakebedError:
            is_back = False
        if not is_back:
            raise self._unknown(key) from refusal
        self._remove_or_leave(claim.place)
        self._remove_or_leave(place)

    def _carry_out(self, key: str, number: int, claim: _Claim) -> bool:
        """Do what a claim is for if it is good; whether that was done, if it is known."""
        current = self.tree.find(key)
        if current is None or current.number != number:
            return False
        if not claim.removes:
            # A good claim is what takes the place: if it is not there any more, it has taken it.
            moved = self.tree.move_over(claim.content, key)
            if moved is Moved.TAKEN:
                raise _is_a_directory(key)
            return True
        return self.tree.move(key, claim.removed) is Moved.DONE

    def _was_carried_out(self, key: str, claim: _Claim) -> bool:
        """Whether others have done what a claim of ours is for; else it is void."""
        if claim.removes:
            # What is moved there was the object: nothing else ever comes to be there.
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

    def _settle(self, key: str, number: int, place: str) -> None:
        """Finish what somebody else has claimed, who may be dead."""
        for claim in self._claims_at(place):
            # Whether it is good is looked up after it was read.
            self._carry_out(key, number, claim)

    def _claims_at(self, place: str) -> list[_Claim]:
        """Return the claim of a number, if it is not carried out yet."""
        return [
            _Claim(place, held.name, entry.name)
            for held in self.tree.entries(place)
            for entry in self.tree.entries(f"{place}/{held.name}")
        ]

    # What is left behind

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
        """Write a content under a name that nobody else has, and return its path."""
        for attempt in itertools.count(1):
            # A new name each time: what was not answered may still be writing to the last one.
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
            f"{self.uri} can only be read: the service does not tell the number of the file of "
            f"{key!r}, and concurrent writers would lose data.",
            hint="Ask the NameNode itself: gateways such as HttpFS do not tell it.",
        )

    def _changed(self, key: str) -> PreconditionFailedError:
        return PreconditionFailedError(
            f"Object {key!r} in {self.uri} changed since it was read, or is gone."
        )

    def _unknown(self, key: str) -> StorageError:
        return StorageError(
            f"What became of a write to {key!r} in {self.uri} is not known: others have written "
            "since, or cleaned up after it.",
            retryable=True,
        )

    def _vanished(self, path: str, key: str) -> StorageError:
        return StorageError(
            f"{path!r} in {self.uri}, which was to become {key!r}, was removed by somebody else.",
            hint="Did a cleanup run whose retention is shorter than a write takes?",
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
        hint="On a file system a name is an object or a directory, not both.",
    )
