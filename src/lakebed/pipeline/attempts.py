"""Outcomes of earlier runs for raw files, and the choice of files to try again.

A file that was kept back is tried again when the file, the schema of the dataset or the reading
rules have changed. So is a file that was read, if some of its lines have fields that the dataset
lacked. All other files are tried again only by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

from lakebed.arrow.reading.files import without_parents
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.given import FileNames, given_files
from lakebed.errors import InvalidInputError
from lakebed.state.sources import SourceFile, Sources
from lakebed.work.ingest.due import Candidate, LeftOut, Why

REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Raw files to read again, even if they were read unchanged.

    Attributes:
        names: Their locations, or ids or paths in the archive.
        rejected: Read all files again of which something was set aside.
    """

    names: frozenset[str] = frozenset()
    rejected: bool = False

    @classmethod
    def of(cls, given: FileNames | None) -> Self:
        """Parse the argument of a caller: `rejected`, or names of files, or several of these.

        Raises:
            InvalidInputError: It is none of these.
        """
        names = frozenset(() if given is None else given_files("again", given))
        return cls(names=names - {REJECTED}, rejected=REJECTED in names)

    def named(self, candidate: Candidate) -> frozenset[str]:
        """Return the names that refer to a file."""
        record, location = candidate.record, candidate.file.location
        own = {location} if record is None else {location, record.id, record.path}
        return frozenset(
            name
            for name in self.names
            if name in own
            or (record is None and without_parents(str(Path(name).absolute())) == location)
        )

    def check(self, candidates: Iterable[Candidate]) -> None:
        """Check that each name refers to one of the files.

        Raises:
            InvalidInputError: A name does not.
        """
        found: set[str] = set()
        for candidate in candidates if self.names else ():
            found |= self.named(candidate)
        missing = sorted(self.names - found)
        if missing:
            raise InvalidInputError(
                f"{missing[0]!r} is not among the raw files of the ingest.",
                hint="Give the path or URL of one of them, its id in the archive, or 'rejected'.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Outcomes of earlier runs for raw files, as of one state of the dataset.

    Attributes:
        schema: Number of the dataset's schema.
        rule: The reading rules of the present run, as text.
        unknown: Present handling of fields that the dataset lacks.
        set_aside: Notes of the quarantine about files, by location.
        again: Files to read again.
    """

    schema: int = 0
    rule: str = ""
    unknown: Unknown = "reject"
    set_aside: Mapping[str, SourceFile] = field(default_factory=dict)
    again: Again = field(default_factory=Again)

    def is_wanted(self, candidate: Candidate, file: SourceFile) -> bool:
        """Return whether an unchanged file that was read is to be read again by request."""
        if self.again.named(candidate):
            return True
        note = self.set_aside.get(candidate.file.location)
        is_rejected = file.rejected_count > 0 or (note is not None and note.row_count > 0)
        return self.again.rejected and is_rejected

    def waits(self, candidate: Candidate, file: SourceFile, batch_ids: frozenset[int]) -> bool:
        """Return whether a file that was read may give more rows now.

        This is the case if some of its lines have fields that the dataset lacked, and the schema or
        the rule has changed; and if an attempt to read it again ended between the commit of its
        rejects and that of its rows.

        Args:
            candidate: The file.
            file: The record of its last read.
            batch_ids: Ids of all batches that files were read into.
        """
        refusal = file.refusal
        if refusal is not None and (refusal.schema, refusal.rule) != (self.schema, self.unknown):
            return True
        note = self.set_aside.get(candidate.file.location)
        return (
            note is not None
            and note.attempt is not None
            and note.refusal is None
            and note.fingerprint == candidate.fingerprint
            and note.attempt > file.batch_id
            and note.attempt not in batch_ids
        )

    def kept_back(self, candidate: Candidate) -> LeftOut | None:
        """Return the reason to keep back a file that was tried before; None to try it now."""
        location = candidate.file.location
        note = self.set_aside.get(location)
        refusal = None if note is None else note.refusal
        if note is None or refusal is None or note.fingerprint != candidate.fingerprint:
            return None
        # A damaged file may have been restored, which only reading it shows.
        is_same = (refusal.schema, refusal.rule) == (self.schema, self.rule)
        if not is_same or refusal.why == "damaged":
            return None
        if self.again.rejected or self.again.named(candidate):
            return None
        return LeftOut.of(candidate, cast(Why, refusal.why), refusal.detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastFiles:
    """The files that were read before.

    Attributes:
        known: The whole record of them.
        alive: Files that are current, or have rows in the dataset.
        current: Keys of the files that are current.
        row_counts: Rows in the dataset of each file, by key.
        batch_ids: Ids of all batches that files were read into.
        attempts: Outcomes of earlier attempts.
    """

    known: Sources
    alive: tuple[SourceFile, ...]
    current: frozenset[str]
    row_counts: Mapping[str, int]
    batch_ids: frozenset[int]
    attempts: Attempts

    def holds(self, files: Sequence[SourceFile], candidate: Candidate) -> bool:
        """Return whether an unchanged raw file is the only one of `files`, and is fully read."""
        return (
            len(files) == 1
            and files[0].key in self.current
            and files[0].fingerprint == candidate.fingerprint
            and not self.attempts.is_wanted(candidate, files[0])
            and not self._gives_more(files[0], candidate)
        )

    def _gives_more(self, file: SourceFile, candidate: Candidate) -> bool:
        """Return whether a file is read again without request, since it may give more rows.

        If rows of it were deleted or changed, reading it again would bring these back.
        """
        return (
            self.attempts.waits(candidate, file, self.batch_ids)
            and self.row_counts.get(file.key, 0) == file.row_count
        )
