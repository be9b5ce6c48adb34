"""What earlier runs have made of raw files, and which of them are to be tried again.

A file that was kept back is tried again when it has changed, or the schema of the dataset, or the
rules that it is read by; and so is one that was read, if some of its lines have fields that the
dataset lacked. Everything else is tried again only by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, cast

from lakebed.arrow.reading.files import without_parents
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.given import FileNames, given_files
from lakebed.errors import InvalidInputError
from lakebed.state.sources import SourceFile
from lakebed.work.ingest.due import Candidate, LeftOut, Why

REJECTED = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Raw files that are to be read again, though they were read as they are.

    Attributes:
        names: Their locations, or ids or paths in the archive.
        rejected: Whether all are of which something was set aside.
    """

    names: frozenset[str] = frozenset()
    rejected: bool = False

    @classmethod
    def of(cls, given: FileNames | None) -> Self:
        """Read what a caller gave: `rejected`, or names of files, or several of these.

        Raises:
            InvalidInputError: It is something else.
        """
        names = frozenset(() if given is None else given_files("again", given))
        return cls(names=names - {REJECTED}, rejected=REJECTED in names)

    def named(self, candidate: Candidate) -> frozenset[str]:
        """Return the names that mean a file."""
        record, location = candidate.record, candidate.file.location
        own = {location} if record is None else {location, record.id, record.path}
        return frozenset(
            name
            for name in self.names
            if name in own
            or (record is None and without_parents(str(Path(name).absolute())) == location)
        )

    def check(self, candidates: Iterable[Candidate]) -> None:
        """Check that each name means one of some files.

        Raises:
            InvalidInputError: One does not.
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
    """What earlier runs have made of raw files, as of one state of the dataset.

    Attributes:
        schema: Number of the dataset's schema.
        rule: By which files are read now.
        unknown: What becomes now of fields that the dataset lacks.
        set_aside: What the quarantine notes of files, by location.
        again: Files that are to be read again.
    """

    schema: int = 0
    rule: str = ""
    unknown: Unknown = "reject"
    set_aside: Mapping[str, SourceFile] = field(default_factory=dict)
    again: Again = field(default_factory=Again)

    def is_wanted(self, candidate: Candidate, file: SourceFile) -> bool:
        """Whether a file is named to be read again that was read as it is."""
        if self.again.named(candidate):
            return True
        note = self.set_aside.get(candidate.file.location)
        is_rejected = file.rejected_count > 0 or (note is not None and note.row_count > 0)
        return self.again.rejected and is_rejected

    def waits(self, candidate: Candidate, file: SourceFile, batch_ids: frozenset[int]) -> bool:
        """Whether a file that was read may give more rows now.

        That is so where lines of it have fields that the dataset lacked, and schema or rule have
        changed; and where an attempt to read it again has ended between the commit of what does
        not fit and that of its rows.

        Args:
            candidate: The file.
            file: As it was read.
            batch_ids: Of all batches that files were read into.
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
        """Return why a file is kept back that was tried before; None if it is to be tried now."""
        location = candidate.file.location
        note = self.set_aside.get(location)
        refusal = None if note is None else note.refusal
        if note is None or refusal is None or note.fingerprint != candidate.fingerprint:
            return None
        # What has not its hash may have been restored, which nothing but a look at it shows.
        is_same = (refusal.schema, refusal.rule) == (self.schema, self.rule)
        if not is_same or refusal.why == "damaged":
            return None
        if self.again.rejected or self.again.named(candidate):
            return None
        return LeftOut.of(candidate, cast(Why, refusal.why), refusal.detail)
