"""Raw files that may be read in, and those that are due as of a state of the dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from lakebed.archive import ArchiveRecord
from lakebed.arrow.reading.files import RawFile
from lakebed.commit import Commit
from lakebed.state.scope import Nothing, Scope
from lakebed.state.sources import SourceFile, Sources, name_of

FILE = "file:"

Why = Literal["superseded", "copy", "held", "unclear", "damaged", "refused", "truncated", "rejects"]
"""Why a raw file is left out.

`superseded`: another one takes its place, as was asked for. `copy`: it was pushed again as it was.
`held`: it is held, or its record is retracted.
The others want somebody to look at them. `unclear`: it says that it is a file that was read, and has
another content. `damaged`: it has not the hash of its record. `refused`: its header or schema does
not fit the dataset. `truncated`: it cannot be read to its end. `rejects`: too much of it does not
fit.
"""
_KEPT_BACK = frozenset[Why](["unclear", "damaged", "refused", "truncated", "rejects"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A raw file that may be read in.

    Attributes:
        file: The file.
        slot: What it stands for; of an archived file that is told by what was read before.
        fingerprint: Tells whether a file of the slot is the same.
        record: Of the archive, if it is from one.
    """

    file: RawFile
    slot: str
    fingerprint: str
    record: ArchiveRecord | None = None

    @property
    def name(self) -> str:
        """Names it apart from its content; see `lakebed.state.sources.name_of`."""
        return name_of(self.slot, None if self.record is None else self.record.id)

    @classmethod
    def of_file(cls, file: RawFile) -> Self:
        """Return a file of a folder or a store, which stands for its path."""
        changed = file.modified_at.isoformat() if file.modified_at else "unknown"
        return cls(
            file=file, slot=f"{FILE}{file.location}", fingerprint=f"{file.size_bytes}@{changed}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A raw file that is not read.

    Attributes:
        location: Path or URL.
        why: See `Why`.
        detail: The same in a sentence.
        pushed_from: Path that an archived file was pushed from.
        where: Place that an archived file is of.
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
        """Return the name by which a person knows the file."""
        if self.pushed_from is None:
            return self.location
        return f"{self.pushed_from} of {self.where} ({self.location})"

    @property
    def is_kept_back(self) -> bool:
        """Whether somebody has to look at it; every run does again."""
        return self.why in _KEPT_BACK


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """What there is to read, as of one state of the dataset.

    Attributes:
        files: To be read.
        replaces: By slot of a file to be read: what was read before, is current or has rows in the
            dataset, and gives way to it. After a rollback of some partitions that can be several
            states of one file.
        supersedes: By slot of a file to be read: locations of files that it takes the place of,
            whether they were read before or kept back.
        unchanged_count: Files that were read before, as they are.
        left_out: Files that are not read.
        known: All that was read before.
        scope: What the rows replace beside that; None for the partitions that they touch.
        before: The commit that has read all of it before, where the run has been loaded.
    """

    files: tuple[Candidate, ...]
    replaces: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict)
    supersedes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unchanged_count: int = 0
    left_out: tuple[LeftOut, ...] = ()
    known: Sources = field(default_factory=Sources)
    scope: Scope | None = field(default_factory=Nothing)
    before: Commit | None = None

    @property
    def replaced(self) -> tuple[SourceFile, ...]:
        """All that gives way."""
        return tuple(file for files in self.replaces.values() for file in files)

    @property
    def taken_out(self) -> tuple[str, ...]:
        """Locations of files to be read that a rollback took out as they are."""
        known = self.known
        current = {file.key for file in known.current().values()}
        slots = {slot for restored in known.restored for slot in restored.current}
        gone = {
            (file.name, file.fingerprint)
            for file in known.files
            if file.row_count and file.slot in slots and file.key not in current
        }
        return tuple(
            candidate.file.location
            for candidate in self.files
            if (candidate.name, candidate.fingerprint) in gone
        )

    def without(self, left_out: Mapping[str, LeftOut]) -> Due:
        """Return it without files at some locations: what they would replace stays."""
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
