"""Raw files that may be read in, and those that are due for a state of the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from lakebed.archive import ArchiveRecord
from lakebed.arrow.reading.files import RawFile
from lakebed.commit import Commit
from lakebed.state.scope import Nothing, Scope
from lakebed.state.sources import FILE, RawContent, SourceFile, Sources, name_of

Why = Literal["superseded", "copy", "held", "unclear", "damaged", "refused", "truncated", "rejects"]
"""Reason why a raw file is left out.

`superseded`: another file replaces it, as requested. `copy`: it was pushed again unchanged, or has
the content of another file. `held`: it is held, or its record is retracted.
The other reasons need a person's attention. `unclear`: it has the identity of a file that was read,
but other content, which does not begin with the one that was read. `damaged`: it does not have the
hash of its record. `refused`: its header or schema does not fit the dataset. `truncated`: it cannot
be read to its end. `rejects`: too many of its lines do not fit.
"""
_KEPT_BACK = frozenset[Why](["unclear", "damaged", "refused", "truncated", "rejects"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A raw file that may be read in.

    Attributes:
        file: The file.
        slot: Identity of the file across changes of its content; for an archived file it depends
            on the files that were read before.
        fingerprint: Identifies the content among files of the slot.
        record: Record of the archive, if the file is from one.
        continues: The content that it begins with, if its rows replace those of that content alone.
    """

    file: RawFile
    slot: str
    fingerprint: str
    record: ArchiveRecord | None = None
    continues: RawContent | None = None

    @property
    def name(self) -> str:
        """Name of the file, independent of its content; see `lakebed.state.sources.name_of`."""
        return name_of(self.file.location, None if self.record is None else self.record.id)

    @classmethod
    def of_file(cls, file: RawFile) -> Self:
        """Return a candidate for a file of a folder or a store; its path is its slot."""
        changed = file.modified_at.isoformat() if file.modified_at else "unknown"
        return cls(
            file=file, slot=f"{FILE}{file.location}", fingerprint=f"{file.size_bytes}@{changed}"
        )


ContentKey = tuple[RawContent, tuple[str, ...]]
"""The content of a file of a folder, and the folders `name=value` above it."""


def content_key(content: RawContent, location: str) -> ContentKey:
    """Return what decides the rows of a file: its content, and the folders `name=value` above it."""
    return content, tuple(folder for folder in location.split("/")[:-1] if "=" in folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A raw file that is not read.

    Attributes:
        location: Path or URL.
        why: Reason, as a code; see `Why`.
        detail: Reason, as text.
        pushed_from: Path that an archived file was pushed from.
        where: Machine or place that an archived file comes from, by its record.
    """

    location: str
    why: Why
    detail: str
    pushed_from: str | None = None
    where: str | None = None

    @classmethod
    def of(cls, candidate: Candidate, why: Why, detail: str) -> Self:
        """Leave out a candidate."""
        record = candidate.record
        return cls(
            location=candidate.file.location,
            why=why,
            detail=detail,
            pushed_from=None if record is None else record.path,
            where=None if record is None else record.where,
        )

    @property
    def name(self) -> str:
        """Name of the file for display."""
        if self.pushed_from is None:
            return self.location
        return f"{self.pushed_from} of {self.where} ({self.location})"

    @property
    def is_kept_back(self) -> bool:
        """True if a person has to inspect it; every run tries it again."""
        return self.why in _KEPT_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The files to read, for one state of the dataset.

    Attributes:
        files: The files to read.
        replaces: The earlier raw files that a file replaces, by its slot: they are current or have
            rows in the dataset. After a rollback of some partitions these can be several states of
            one file.
        supersedes: The locations of files that a file replaces, by its slot; includes files that
            were kept back.
        unchanged_count: Number of files that were read before and are unchanged.
        left_out: Files that are not read.
        known: All raw files that were read before.
        contents: Locations of the files with rows in the dataset, by content, so that no copy of one
            is read; of those of a folder.
        scope: Additional scope that the rows replace; None for the partitions that they touch.
        before: The commit of an earlier load of the run, if it was loaded.
    """

    files: tuple[Candidate, ...]
    replaces: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict)
    supersedes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unchanged_count: int = 0
    left_out: tuple[LeftOut, ...] = ()
    known: Sources = field(default_factory=Sources)
    contents: Mapping[ContentKey, str] | None = None
    scope: Scope | None = field(default_factory=Nothing)
    before: Commit | None = None

    @property
    def replaced(self) -> tuple[SourceFile, ...]:
        """All earlier raw files that are replaced."""
        return tuple(file for files in self.replaces.values() for file in files)

    @property
    def taken_out(self) -> tuple[str, ...]:
        """Locations of files to read that a rollback removed in the same state."""
        known = self.known
        current = {file.key for file in known.current().values()}
        slots = {slot for restored in known.restored for slot in restored.current}
        removed = {
            (file.name, file.fingerprint)
            for file in known.files
            if file.row_count and file.slot in slots and file.key not in current
        }
        return tuple(
            candidate.file.location
            for candidate in self.files
            if (candidate.name, candidate.fingerprint) in removed
        )

    def without(self, left_out: Mapping[str, LeftOut]) -> Due:
        """Return a copy without files at some locations: rows that they would replace stay."""
        files = tuple(
            candidate for candidate in self.files if candidate.file.location not in left_out
        )
        slots = {candidate.slot for candidate in files}
        return replace(
            self,
            files=files,
            replaces={slot: replaced for slot, replaced in self.replaces.items() if slot in slots},
            left_out=(*self.left_out, *left_out.values()),
        )
