"""What an export has left in a tree, so that the next one adds what is new and doubles nothing.

Beside the tree, where neither its readers nor a listing look, lie a note of the directories that
were exported and, during an export, the files that are yet to be shown. An export

1. claims the note, so that of two at once one is refused;
2. writes all files out of sight;
3. writes down in the note what it is about to show;
4. moves the files to where they belong, and removes those that they replace;
5. notes that it is done.

A process that dies before step 3 has changed nothing. After it, the next export finishes its work.
"""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Self

import msgspec

from lakebed.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.store.base import Store, validate_key
from lakebed.store.locate import open_store
from lakebed.store.memory import MemoryStore

_log = logging.getLogger(__name__)

_NOTES = ".lakebed-export"  # begins with a dot, so that readers and listings pass over it
_NOTE = "tree.json"
_STAGED = "staged"
_DIGEST_BYTES = 16
_MODULUS = 1 << (8 * _DIGEST_BYTES)


class Contents(msgspec.Struct, frozen=True):
    """What a directory of a tree holds, or the files of one beginning of names.

    Attributes:
        lines: How many.
        digest: Of all lines, whatever their order.
        files: Path to size in bytes.
    """

    lines: int
    digest: str
    files: dict[str, int] = {}

    def is_of(self, other: Contents) -> bool:
        """Whether both hold the same lines."""
        return (self.lines, self.digest) == (other.lines, other.digest)


_NOTHING = Contents(lines=0, digest="")


class _Pending(msgspec.Struct, frozen=True):
    """What an export is about to show; of a directory that goes there are no lines."""

    id: str
    places: dict[str, Contents]


class _Note(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    levels: list[str]
    named: int
    places: dict[str, Contents] = {}
    claimed_by: str = ""
    pending: _Pending | None = None


@dataclass(slots=True)
class LineDigest:
    """Adds up lines to what `Contents` says of them."""

    lines: int = 0
    _total: int = 0

    def add(self, line: str) -> None:
        """Add a line."""
        digest = blake2b(line.encode(), digest_size=_DIGEST_BYTES).digest()
        self.lines += 1
        self._total = (self._total + int.from_bytes(digest)) % _MODULUS

    def contents(self, files: Mapping[str, int] | None = None) -> Contents:
        """Return what was added, in these files."""
        return Contents(self.lines, f"{self._total:0{2 * _DIGEST_BYTES}x}", dict(files or {}))


@dataclass(frozen=True, slots=True)
class Difference:
    """How the rows of an export differ from what a tree holds.

    Attributes:
        new: Directories that are yet to be.
        changed: Those that hold other lines, or whose files are not as they were written.
        gone: Those of which there are no rows any more.
        unchanged: Those that hold just these lines.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    unchanged: tuple[str, ...]


@dataclass(slots=True)
class ExportedTree:
    """A tree and its note, claimed by this export."""

    target: Store
    notes: Store
    id: str
    staged: Store
    _note: _Note
    _etag: str
    _listed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def claim(
        cls,
        target: Store,
        levels: Collection[str],
        named: int,
        storage_options: Mapping[str, str] | None,
    ) -> Self:
        """Claim a tree for an export, and finish what one that died has begun to show.

        Raises:
            AlreadyExistsError: There is something in the place, and no export has noted it.
            InvalidInputError: The tree has other levels.
            ConflictError: Another export claims it at the same time.
            CorruptMetadataError: The note is damaged.
        """
        notes = _notes_of(target, storage_options)
        fresh = _Note(levels=list(levels), named=named)
        try:
            stored = notes.get(_NOTE)
            note, etag = _read(stored.data, notes), stored.etag
        except ObjectNotFoundError:
            note, etag = fresh, ""
        if not (note.places or note.pending):
            note = fresh
            if next(iter(target.list("")), None) is not None:
                raise AlreadyExistsError(
                    f"{target.uri} is not empty, and no export has noted what is there.",
                    hint="Export to a directory that is yet to be, or to a tree of an export.",
                )
        if (note.levels, note.named) != (fresh.levels, fresh.named):
            raise InvalidInputError(
                f"{target.uri} has the levels {', '.join(note.levels)}, {note.named} of them in "
                f"names, and not {', '.join(fresh.levels)}, {fresh.named} in names.",
                hint="Export with the same dimensions and options, or to another directory.",
            )
        export_id = secrets.token_hex(8)
        staged = _staged(notes, export_id, storage_options)
        tree = cls(target, notes, export_id, staged, note, etag)
        tree._save(msgspec.structs.replace(note, claimed_by=export_id))
        if note.pending is not None:
            _log.warning("finishing an export that has died tree=%s", target.uri)
            tree._show(note.pending, storage_options)
        elif note.claimed_by:
            _remove(_staged(notes, note.claimed_by, storage_options))
        tree._listed = {info.key: info.size_bytes for info in target.list("")}
        return tree

    @property
    def is_new(self) -> bool:
        """Whether nothing was exported to it."""
        return not self._note.places

    def difference(self, found: Mapping[str, Contents], *, is_whole: bool) -> Difference:
        """Compare rows with what is there.

        Args:
            found: What each directory would hold.
            is_whole: Whether these are all rows that there are, so that others have gone.
        """
        known = self._note.places
        new = sorted(found.keys() - known.keys())
        same = {
            place
            for place in found.keys() & known.keys()
            if known[place].is_of(found[place]) and self._is_intact(known[place])
        }
        changed = sorted((found.keys() & known.keys()) - same)
        gone = sorted(known.keys() - found.keys()) if is_whole else []
        return Difference(tuple(new), tuple(changed), tuple(gone), tuple(sorted(same)))

    def _is_intact(self, contents: Contents) -> bool:
        return all(self._listed.get(path) == size for path, size in contents.files.items())

    def show(
        self,
        places: Mapping[str, Contents],
        gone: Collection[str],
        storage_options: Mapping[str, str] | None,
    ) -> None:
        """Show files that were written to `staged`.

        Args:
            places: What directories hold from now on.
            gone: Directories that are removed.
            storage_options: Settings of the object store.

        Raises:
            AlreadyExistsError: A file that no export has written lies where one is to be shown.
            ConflictError: Another export has claimed the tree meanwhile.
        """
        self._refuse_strays(places)
        pending = _Pending(self.id, {**places, **dict.fromkeys(gone, _NOTHING)})
        self._save(msgspec.structs.replace(self._note, pending=pending))
        self._show(pending, storage_options)

    def _refuse_strays(self, places: Collection[str]) -> None:
        ours = {path for place in self._note.places.values() for path in place.files}
        for path in self._listed.keys() - ours:
            if _place_of(path, self._note.named) in places:
                raise AlreadyExistsError(
                    f"{path!r} of {self.target.uri} was not written by an export.",
                    hint="Move it away, or export to another directory.",
                )

    def _show(self, pending: _Pending, storage_options: Mapping[str, str] | None) -> None:
        """Bring what is pending where it belongs, as far as that is not done, and note it."""
        staged = _staged(self.notes, pending.id, storage_options)
        for place, contents in self._one_by_one(pending, staged):
            before = self._note.places.get(place, _NOTHING).files.keys()
            self.target.delete(sorted(before - contents.files.keys()))
            for path in contents.files:
                _move(staged, self.target, path)
        places = {**self._note.places, **pending.places}
        kept = {place: contents for place, contents in places.items() if contents.files}
        self._save(msgspec.structs.replace(self._note, places=kept, pending=None))
        _remove(staged)

    def _one_by_one(self, pending: _Pending, staged: Store) -> Iterator[tuple[str, Contents]]:
        """Yield what cannot be shown by the rename of a whole directory."""
        for top, places in _by_top(pending.places).items():
            if _rename(staged, self.target, top):
                continue
            for place, contents in places.items():
                if not _rename(staged, self.target, place):
                    yield place, contents

    def discard(self) -> None:
        """Remove what is not to be shown; of a tree that is yet to be, the claim too."""
        if self._note.pending is None:
            _remove(self.staged)
            if self.is_new:
                with suppress(LakebedError):
                    self.notes.delete_if_match(_NOTE, etag=self._etag)

    def _save(self, note: _Note) -> None:
        """Replace the note, unless another export has done that.

        Raises:
            ConflictError: It has.
        """
        data = msgspec.json.encode(note)
        try:
            if self._etag:
                self._etag = self.notes.replace(_NOTE, data, if_match=self._etag)
            else:
                self._etag = self.notes.create(_NOTE, data)
        except (PreconditionFailedError, ObjectExistsError, ObjectNotFoundError) as exc:
            raise ConflictError(
                f"Another export has claimed {self.target.uri} meanwhile.",
                hint="Let one export write a tree at a time, and export again.",
            ) from exc
        self._note = note


def _notes_of(target: Store, storage_options: Mapping[str, str] | None) -> Store:
    return open_store(_beside(target, _NOTES), storage_options=storage_options)


def _staged(notes: Store, export_id: str, storage_options: Mapping[str, str] | None) -> Store:
    """Open where the files of an export lie until they are shown."""
    return open_store(_beside(notes, f"{_STAGED}-{export_id}"), storage_options=storage_options)


def _beside(store: Store, name: str) -> str:
    """Return the URL of what no listing of a store shows."""
    # A store in memory has no directories that could be hidden.
    return f"{store.uri}{name}" if isinstance(store, MemoryStore) else f"{store.uri}/{name}"


def _read(data: bytes, notes: Store) -> _Note:
    try:
        note = msgspec.json.decode(data, type=_Note)
        pending = {} if note.pending is None else note.pending.places
        for place, contents in (*note.places.items(), *pending.items()):
            for path in contents.files:
                validate_key(path)
                if _place_of(path, note.named) != place:
                    raise InvalidInputError(f"{path!r} does not lie in {place!r}.")
        for export_id in (note.claimed_by, "" if note.pending is None else note.pending.id):
            if not (export_id.isalnum() or export_id == ""):
                raise InvalidInputError(f"{export_id!r} is not the id of an export.")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInputError) as exc:
        raise CorruptMetadataError(
            f"The note of exports {notes.uri}/{_NOTE} is damaged: {exc}.",
            hint="Export to another directory, or remove the tree together with the note.",
        ) from exc
    return note


def _place_of(path: str, named: int) -> str:
    """Return the directory of a file, or the beginning of its name that its values are."""
    directory, _, name = path.rpartition("/")
    if not named:
        return directory
    beginning = name.rpartition(".log")[0].rpartition(".v")[0]
    return f"{directory}/{beginning}" if directory else beginning


def _by_top(places: Mapping[str, Contents]) -> dict[str, dict[str, Contents]]:
    grouped: dict[str, dict[str, Contents]] = {}
    for place, contents in places.items():
        grouped.setdefault(place.partition("/")[0], {})[place] = contents
    return grouped


def _rename(source: Store, target: Store, directory: str) -> bool:
    """Rename a directory to where nothing is, so that it appears at once; False if that cannot be."""
    begin, end = source.local_path(directory), target.local_path(directory)
    if begin is None or end is None or end.exists() or not begin.is_dir():
        return False
    try:
        end.parent.mkdir(parents=True, exist_ok=True)
        begin.rename(end)
    except OSError:
        return False  # file by file, then
    return True


def _move(source: Store, target: Store, path: str) -> None:
    """Move a file, unless that was done."""
    local = source.local_path(path)
    if local is not None:
        if local.exists():
            target.adopt(local, path)
        return
    try:
        data = source.get(path).data
    except ObjectNotFoundError:
        return
    target.put(path, data)
    source.delete([path])


def _remove(staged: Store) -> None:
    local = staged.local_path("x")
    with suppress(LakebedError):
        if local is not None:
            shutil.rmtree(Path(local).parent, ignore_errors=True)
        else:
            staged.delete([info.key for info in staged.list("")])


__all__ = ["Contents", "Difference", "ExportedTree", "LineDigest"]
