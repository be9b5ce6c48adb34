"""The record of exports to a tree, so that the next export adds new rows and repeats none.

A hidden folder beside the tree holds a note of the exported directories and, during an export, the
files that are not shown yet. An export

1. claims the note, so that one of two concurrent exports fails;
2. writes all files out of sight;
3. records in the note the files that it is about to show;
4. moves the files to their directories, and removes those that they replace;
5. records that it is done.

If a process dies before step 3, nothing has changed. After step 3, the next export finishes the
work.
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

from lakebed.common.decoding import UNREADABLE, from_json
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
from lakebed.store.dry_run import DryRunStore
from lakebed.store.locate import open_store
from lakebed.store.memory import MemoryStore

_log = logging.getLogger(__name__)

_NOTES = ".lakebed-export"  # begins with a dot, so that readers and listings skip it
_NOTE = "tree.json"
_STAGED = "staged"
_DIGEST_BYTES = 16
_MODULUS = 1 << (8 * _DIGEST_BYTES)


class Contents(msgspec.Struct, frozen=True):
    """The contents of a directory of a tree, or of the files with one name prefix.

    Attributes:
        lines: Number of lines.
        digest: Digest of all lines in any order.
        files: Sizes in bytes by path.
    """

    lines: int
    digest: str
    files: dict[str, int] = {}

    def is_of(self, other: Contents) -> bool:
        """Return whether both hold the same lines."""
        return (self.lines, self.digest) == (other.lines, other.digest)


_NOTHING = Contents(lines=0, digest="")


class _Pending(msgspec.Struct, frozen=True):
    """Contents that an export is about to show; a directory to remove has no lines."""

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
    """Sums up lines to the count and the digest of `Contents`."""

    lines: int = 0
    _total: int = 0

    def add(self, line: str) -> None:
        """Add a line."""
        digest = blake2b(line.encode(), digest_size=_DIGEST_BYTES).digest()
        self.lines += 1
        self._total = (self._total + int.from_bytes(digest)) % _MODULUS

    def contents(self, files: Mapping[str, int] | None = None) -> Contents:
        """Return the contents of all added lines, with their files."""
        return Contents(self.lines, f"{self._total:0{2 * _DIGEST_BYTES}x}", dict(files or {}))


@dataclass(frozen=True, slots=True)
class Difference:
    """Differences between the rows of an export and a tree, by directory.

    Attributes:
        new: Directories that the tree lacks.
        changed: Directories that hold other lines, or whose files were altered since.
        removed: Directories without rows in the export.
        unchanged: Directories that hold exactly the lines of the export.
    """

    new: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
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
        *,
        is_dry_run: bool = False,
    ) -> Self:
        """Claim a tree for an export, and first finish an export that died while showing files.

        A dry run writes nothing: it takes the files of an export that died as if they were shown.

        Raises:
            AlreadyExistsError: The target is not empty, and no export has written to it.
            InvalidInputError: The tree has other levels.
            ConflictError: Another export claims the tree at the same time.
            CorruptMetadataError: The note is damaged.
        """
        notes = _notes_of(target, storage_options)
        if is_dry_run:
            notes = DryRunStore(notes)
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
                    f"{target.uri} is not empty, and was not written by an export.",
                    hint="Export to a new directory, or to the tree of an earlier export.",
                )
        if (note.levels, note.named) != (fresh.levels, fresh.named):
            raise InvalidInputError(
                f"{target.uri} has the levels {', '.join(note.levels)}, {note.named} of them in "
                f"names, instead of {', '.join(fresh.levels)}, {fresh.named} in names.",
                hint="Export with the same dimensions and options, or to another directory.",
            )
        export_id = secrets.token_hex(8)
        staged = _staged(notes, export_id, storage_options)
        if is_dry_run:
            staged = DryRunStore(staged, keeps_contents=False)
        tree = cls(target, notes, export_id, staged, note, etag)
        tree._save(msgspec.structs.replace(note, claimed_by=export_id))
        if is_dry_run:
            tree._take_as_shown(note)
            return tree
        if note.pending is not None:
            _log.warning("finishing an export that has died tree=%s", target.uri)
            tree._show(note.pending, storage_options)
        elif note.claimed_by:
            _remove(_staged(notes, note.claimed_by, storage_options))
        tree._listed = {info.key: info.size_bytes for info in target.list("")}
        return tree

    def _take_as_shown(self, note: _Note) -> None:
        """Take the files of an export that died as if they were in their directories."""
        pending = {} if note.pending is None else note.pending.places
        places = {prefix: one for prefix, one in {**note.places, **pending}.items() if one.files}
        self._note = msgspec.structs.replace(note, places=places, pending=None)
        self._listed = {info.key: info.size_bytes for info in self.target.list("")}
        for contents in pending.values():
            self._listed.update(contents.files)

    @property
    def is_new(self) -> bool:
        """True if nothing was exported to the tree before."""
        return not self._note.places

    def difference(self, found: Mapping[str, Contents], *, is_whole: bool) -> Difference:
        """Compare an export with the tree.

        Args:
            found: Contents of each directory in the export.
            is_whole: True if the export has all rows, so that other directories can be removed.
        """
        known = self._note.places
        new = sorted(found.keys() - known.keys())
        same = {
            prefix
            for prefix in found.keys() & known.keys()
            if known[prefix].is_of(found[prefix]) and self._is_intact(known[prefix])
        }
        changed = sorted((found.keys() & known.keys()) - same)
        removed = sorted(known.keys() - found.keys()) if is_whole else []
        return Difference(tuple(new), tuple(changed), tuple(removed), tuple(sorted(same)))

    def _is_intact(self, contents: Contents) -> bool:
        return all(self._listed.get(path) == size for path, size in contents.files.items())

    def show(
        self,
        places: Mapping[str, Contents],
        removed: Collection[str],
        storage_options: Mapping[str, str] | None,
    ) -> None:
        """Show files that were written to `staged`.

        Args:
            places: New contents of directories.
            removed: Directories to remove.
            storage_options: Settings of the object store.

        Raises:
            AlreadyExistsError: A directory holds a file that no export has written.
            ConflictError: Another export has claimed the tree meanwhile.
        """
        self._refuse_strays(places)
        if self.notes.is_dry_run:
            return
        # A task that was killed and repeated may have left other files.
        shown = {path for contents in places.values() for path in contents.files}
        self.staged.delete([info.key for info in self.staged.list("") if info.key not in shown])
        pending = _Pending(self.id, {**places, **dict.fromkeys(removed, _NOTHING)})
        self._save(msgspec.structs.replace(self._note, pending=pending))
        self._show(pending, storage_options)

    def _refuse_strays(self, places: Collection[str]) -> None:
        ours = {path for contents in self._note.places.values() for path in contents.files}
        for path in self._listed.keys() - ours:
            if _prefix_of(path, self._note.named) in places:
                raise AlreadyExistsError(
                    f"{path!r} of {self.target.uri} was not written by an export.",
                    hint="Move it away, or export to another directory.",
                )

    def _show(self, pending: _Pending, storage_options: Mapping[str, str] | None) -> None:
        """Move pending files that are not moved yet to their directories, and update the note."""
        staged = _staged(self.notes, pending.id, storage_options)
        for prefix, contents in self._one_by_one(pending, staged):
            before = self._note.places.get(prefix, _NOTHING).files.keys()
            self.target.delete(sorted(before - contents.files.keys()))
            for path in contents.files:
                _move(staged, self.target, path)
        places = {**self._note.places, **pending.places}
        kept = {prefix: contents for prefix, contents in places.items() if contents.files}
        self._save(msgspec.structs.replace(self._note, places=kept, pending=None))
        _remove(staged)

    def _one_by_one(self, pending: _Pending, staged: Store) -> Iterator[tuple[str, Contents]]:
        """Rename whole directories, and yield those whose files must be moved one by one."""
        for top, places in _by_top(pending.places).items():
            if _rename(staged, self.target, top):
                continue
            for prefix, contents in places.items():
                if not _rename(staged, self.target, prefix):
                    yield prefix, contents

    def discard(self) -> None:
        """Remove files that will not be shown, and the claim if nothing was ever exported."""
        if self._note.pending is None and not self.notes.is_dry_run:
            _remove(self.staged)
            if self.is_new:
                with suppress(LakebedError):
                    self.notes.delete_if_match(_NOTE, etag=self._etag)

    def _save(self, note: _Note) -> None:
        """Replace the note.

        Raises:
            ConflictError: Another export has replaced it.
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
    """Open the store that holds the files of an export until they are shown."""
    return open_store(_beside(notes, f"{_STAGED}-{export_id}"), storage_options=storage_options)


def _beside(store: Store, name: str) -> str:
    """Return a URL that listings of a store do not show."""
    # A store in memory has no directories that could be hidden.
    return f"{store.uri}{name}" if isinstance(store, MemoryStore) else f"{store.uri}/{name}"


def _read(data: bytes, notes: Store) -> _Note:
    try:
        note = from_json(data, _Note)
        pending = {} if note.pending is None else note.pending.places
        for prefix, contents in (*note.places.items(), *pending.items()):
            for path in contents.files:
                validate_key(path)
                if _prefix_of(path, note.named) != prefix:
                    raise InvalidInputError(f"{path!r} does not lie in {prefix!r}.")
        for export_id in (note.claimed_by, "" if note.pending is None else note.pending.id):
            if not (export_id.isalnum() or export_id == ""):
                raise InvalidInputError(f"{export_id!r} is not the id of an export.")
    except (*UNREADABLE, InvalidInputError) as exc:
        raise CorruptMetadataError(
            f"The note of exports {notes.uri}/{_NOTE} is damaged: {exc}.",
            hint="Export to another directory, or remove the tree together with the note.",
        ) from exc
    return note


def _prefix_of(path: str, named: int) -> str:
    """Return the directory of a file, or the part of its path that holds the dimension values."""
    directory, _, name = path.rpartition("/")
    if not named:
        return directory
    beginning = name.rpartition(".log")[0].rpartition(".v")[0]
    return f"{directory}/{beginning}" if directory else beginning


def _by_top(places: Mapping[str, Contents]) -> dict[str, dict[str, Contents]]:
    grouped: dict[str, dict[str, Contents]] = {}
    for prefix, contents in places.items():
        grouped.setdefault(prefix.partition("/")[0], {})[prefix] = contents
    return grouped


def _rename(source: Store, target: Store, directory: str) -> bool:
    """Rename a directory to a free path, so that it appears at once; return False if impossible."""
    begin, end = source.local_path(directory), target.local_path(directory)
    if begin is None or end is None or end.exists() or not begin.is_dir():
        return False
    try:
        end.parent.mkdir(parents=True, exist_ok=True)
        begin.rename(end)
    except OSError:
        return False  # then the files are moved one by one
    target.make_durable(directory)
    return True


def _move(source: Store, target: Store, path: str) -> None:
    """Move a file, unless it was moved before."""
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
