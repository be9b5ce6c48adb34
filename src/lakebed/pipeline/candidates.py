"""Sources of raw files, and the identity of their files."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from lakebed.archive import Archive, ArchiveRecord, open_archive
from lakebed.archive.frames import stored_file
from lakebed.archive.query import ArchiveQuery
from lakebed.archive.retraction import find_retraction, key_of_retraction, retractions_in
from lakebed.arrow.reading.files import STDIN, FileFormat, find_files
from lakebed.common.ages import parse_age
from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError
from lakebed.model.locations import refuse_credentials
from lakebed.model.moments import bound_to_epoch_ms
from lakebed.state.sources import FILE, Sought
from lakebed.work.ingest.due import Candidate, LeftOut

Supersede = Literal["path", "span", "id"]
"""The rule by which an archived file replaces another.

`path`: the last stored of the files with the same what, where, start, work id and path replaces the
others. `span`: the same, for any paths. `id`: no file replaces another.
"""

SupersedePath = Literal["path", "id"]
"""The rules of `Supersede` that files of folders have."""

_AGO = re.compile(r"-[0-9]{1,6}\s*[smhdw]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FromArchive:
    """Raw files of an archive, found by time or work id.

    Attributes:
        storage: The path or URL of the archive.
        what: The program or process to search for.
        index: The URL of the index; see `open_archive`.
        start: Start of the time range; give `start` and `end`, or `work_id`. A text such as `-7d`
            is the time so long before each run.
        end: End of the time range, included; may be `now`, or before it as for `start`.
        where: The place or machine; None for all.
        work_id: The work id to search for.
        supersede: The rule by which files replace others: `path`, `span` or `id`; see `Supersede`.
            None for no rule: unclear files are kept back.
        storage_options: Settings of the object store; secrets are never displayed.

    >>> FromArchive(storage="raw", what="flights", start="2013-01-01", end="2013-12-31",
    ...             supersede="path").supersede
    'path'
    """

    storage: str | os.PathLike[str]
    what: str
    index: str | None = None
    start: object = None
    end: object = None
    where: str | None = None
    work_id: str | None = None
    supersede: Supersede | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = get_args(Supersede)
        if self.supersede is not None and self.supersede not in known:
            raise InvalidInputError(
                f"supersede is {self.supersede!r}.",
                hint=f"Give {', '.join(map(repr, known[:-1]))} or {known[-1]!r}, or leave it out.",
            )
        refuse_credentials(os.fspath(self.storage))
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))
        _query(self)

    def open(self) -> Archive:
        """Open the archive."""
        return open_archive(self.storage, index=self.index, storage_options=self.storage_options)


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFiles:
    """Raw files of folders or stores; see `Dataset.load` for what a path may be.

    Attributes:
        paths: Paths, patterns, directories or URLs.
        storage_options: Settings of the object store of a URL; secrets are never displayed.
        may_be_empty: Allow that there are no files yet, such as for `Ingest.follow`.
        levels: Whether folders `name=value` hold values of the rows, or are plain folders.
        supersede: The meaning of other content at the path of a file that was read, if it does not
            begin with the content that was read. `path`: it replaces the rows. `id`: it is a file of
            its own, as is a copy of another file. None for no rule: the file is kept back.

    >>> FromFiles(paths=["in/*.jsonl.gz"]).paths
    ('in/*.jsonl.gz',)
    """

    paths: tuple[str, ...]
    storage_options: Mapping[str, str] = field(default_factory=dict)
    may_be_empty: bool = False
    levels: bool = True
    supersede: SupersedePath | None = None

    def __init__(
        self,
        *,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        storage_options: Mapping[str, str] | None = None,
        may_be_empty: bool = False,
        levels: bool = True,
        supersede: SupersedePath | None = None,
    ) -> None:
        """Name the files.

        Raises:
            InvalidInputError: No path is given, or it is standard input, which cannot be read
                again. Or the rule of superseding is unknown.
        """
        if supersede not in (None, *get_args(SupersedePath)):
            raise InvalidInputError(
                f"supersede is {supersede!r}, which is not a rule for files of folders.",
                hint="Give 'path' or 'id', or leave it out.",
            )
        given = [paths] if isinstance(paths, str | os.PathLike) else paths
        texts = tuple(refuse_credentials(os.fspath(path)) for path in given)
        if not texts or STDIN in texts:
            raise InvalidInputError(
                f"Files to ingest are {', '.join(texts) or 'none'}.",
                hint="Give paths, patterns, directories or URLs.",
            )
        object.__setattr__(self, "paths", texts)
        object.__setattr__(self, "storage_options", StorageOptions(storage_options or {}))
        object.__setattr__(self, "may_be_empty", may_be_empty)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "supersede", supersede)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The raw files of a source.

    Attributes:
        format: Format of all files.
        files: The files, each once.
        supersede: The rule by which files replace others.
        retracted: Archived files that are retracted.
        left_out: The retracted files for the report.
    """

    format: FileFormat
    files: tuple[Candidate, ...]
    supersede: Supersede | None = None
    retracted: tuple[Candidate, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def sought(self, labels: Collection[str]) -> Sought | None:
        """Return what to ask the record of raw files for; None for all of it.

        Files of a folder need all: another path may lead to the same file.

        Args:
            labels: Labels of the data files of the dataset.
        """
        records = [one.record for one in (*self.files, *self.retracted) if one.record is not None]
        if len(records) < len(self.files) + len(self.retracted):
            return None
        return Sought(
            file_ids=frozenset(record.id for record in records),
            starts=frozenset(record.start for record in records),
            labels=labels,
        )


def find_candidates(
    source: FromArchive | FromFiles,
    format: FileFormat | None,  # noqa: A002 - the word of the option
) -> Candidates:
    """Find the raw files of a source.

    Raises:
        InvalidInputError: A file is missing, the format is unknown, or the query of the archive is
            wrong.

    Cost:
        The query of the index and a LIST; or one stat of each file, or a LIST for each URL.
    """
    if isinstance(source, FromFiles):
        found_format, files = find_files(
            source.paths,
            format,
            storage_options=source.storage_options,
            may_be_empty=source.may_be_empty,
            levels=source.levels,
            is_continued=True,
        )
        by_slot = {candidate.slot: candidate for candidate in map(Candidate.of_file, files)}
        first: dict[str, Candidate] = {}
        for slot, real in real_slots(by_slot).items():
            first.setdefault(real, by_slot[slot])
        return Candidates(
            format=found_format, files=tuple(first.values()), supersede=source.supersede
        )
    if format is None:
        raise InvalidInputError(
            "The format of archived files is missing.", hint="Give format, such as 'json'."
        )
    return _of_archive(source, format)


def find_candidates_of(
    source: FromArchive | FromFiles,
    format: FileFormat | None,  # noqa: A002 - the word of the option
    text: str,
) -> tuple[Candidate, ...]:
    """Find the files that a text refers to: those of a path, or the one with an id or a URL.

    Raises:
        InvalidInputError: A file is missing.
        RecordNotFoundError: There is no such file in the archive.

    Cost:
        One stat of each file.
    """
    if isinstance(source, FromArchive):
        with source.open() as archive:
            return (_of_record(archive, archive.record(text)),)
    _, files = find_files([text], format, storage_options=source.storage_options, levels=False)
    return tuple(map(Candidate.of_file, files))


def real_slots(slots: Iterable[str]) -> dict[str, str]:
    """Return each slot with the links in its folder resolved; URLs stay.

    Several paths may lead to one folder; resolved, they are equal. The last name stays: a file that
    is a link is identified by its own name, not by its target.

    Cost:
        One realpath of each folder.
    """
    given = list(slots)
    paths = {
        slot: os.path.split(slot.removeprefix(FILE))
        for slot in given
        if slot.startswith(FILE) and "://" not in slot
    }
    folders = {
        folder: os.path.realpath(folder) for folder in {folder for folder, _ in paths.values()}
    }
    real = {
        slot: f"{FILE}{os.path.join(folders[folder], name)}"  # noqa: PTH118 - many, and text
        for slot, (folder, name) in paths.items()
    }
    return {slot: real.get(slot, slot) for slot in given}


def _of_archive(
    source: FromArchive,
    format: FileFormat,  # noqa: A002 - the word of the option
) -> Candidates:
    files: list[Candidate] = []
    without: list[Candidate] = []
    left_out: list[LeftOut] = []
    with source.open() as archive:
        records = archive.list(
            source.what,
            start=moment_of(source.start),
            end=moment_of(source.end),
            work_id=source.work_id,
            where=source.where,
            retracted=True,
        )
        # The index may lack a retraction, if one process has retracted and another has indexed.
        retracted = retractions_in(archive.store)
        for record in records:
            candidate = _of_record(archive, record)
            if key_of_retraction(record.id) in retracted:
                without.append(candidate)
                left_out.append(LeftOut.of(candidate, "held", _why_retracted(archive, record)))
            else:
                files.append(candidate)
    return Candidates(
        format=format,
        files=tuple(files),
        supersede=source.supersede,
        retracted=tuple(without),
        left_out=tuple(left_out),
    )


def _why_retracted(archive: Archive, record: ArchiveRecord) -> str:
    note = record.retraction or find_retraction(archive.store, record.id)
    if note is None:
        return "retracted until just now"
    return f"retracted since {note.retracted_at:%Y-%m-%d %H:%M}: {note.reason}"


def _of_record(archive: Archive, record: ArchiveRecord) -> Candidate:
    return Candidate(
        file=stored_file(archive.store, record),
        slot=f"id:{record.id}",
        fingerprint=record.hash,
        record=record,
    )


def _query(source: FromArchive) -> ArchiveQuery:
    return ArchiveQuery.of(
        source.what,
        where=source.where,
        work_id=source.work_id,
        start=moment_of(source.start),
        end=moment_of(source.end),
    )


def check_bound(value: object) -> None:
    """Check the start or the end of a time range.

    Raises:
        InvalidInputError: It is not a time.
    """
    bound_to_epoch_ms(moment_of(value))


def moment_of(value: object) -> object:
    """Return a day as its start, and an age as the time so long before now.

    TOML has days, the archive only times.
    """
    if isinstance(value, str) and _AGO.fullmatch(value.strip()):
        return dt.datetime.now(dt.UTC) - parse_age(value.strip().removeprefix("-"))
    is_day = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
    return dt.datetime.combine(value, dt.time(), dt.UTC) if is_day else value  # type: ignore[arg-type]  # checked
