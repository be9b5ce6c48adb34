"""Retention of raw files: those of an archive that are old enough, and that the dataset has read.

Files that may stand for the same, such as a file and its correction, go together or stay together:
if the one that was read went alone, the next ingest would take an older one for its replacement.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakebed.archive.record import ArchiveRecord
from lakebed.archive.removal import files_read_by, is_in, portions, remove, why_needed
from lakebed.archive.times import to_epoch_ms
from lakebed.common.ages import parse_age
from lakebed.common.shown import counted, human_size
from lakebed.errors import CommitConflictError
from lakebed.model.retention import RetentionRule
from lakebed.pipeline.attempts import Again
from lakebed.pipeline.candidates import Candidates, FromArchive, find_candidates
from lakebed.pipeline.ingest import Ingest
from lakebed.pipeline.recognition import group_of
from lakebed.state import sources as source_list
from lakebed.state.reader import read_head
from lakebed.state.sources import SourceFile
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.work.ingest.due import Candidate, Due

_log = logging.getLogger(__name__)

_REQUESTS_A_PORTION = 2
_SETTLED = frozenset(("superseded", "copy"))  # as `LeftOut.why`: another file has been read instead


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRetention:
    """The raw files that a retention has deleted, or would delete.

    Attributes:
        cutoff: Files whose last event was before it are old enough; aware, UTC.
        files: Records of the deleted files.
        kept: Numbers of files that are old enough but stay, by reason.
    """

    cutoff: dt.datetime
    files: tuple[ArchiveRecord, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)

    @property
    def file_count(self) -> int:
        """Number of the files."""
        return len(self.files)

    @property
    def size_bytes(self) -> int:
        """Their total size."""
        return sum(record.size_bytes for record in self.files)

    @property
    def summary(self) -> str:
        """Their number and size, in words."""
        if not self.files:
            return "no raw file is past the retention"
        return f"{counted(self.file_count, 'raw file')} of {human_size(self.size_bytes)}"

    def to_record(self) -> dict[str, object]:
        """Return the counts as a record for JSON."""
        return {
            "cutoff": self.cutoff.isoformat(),
            "file_count": self.file_count,
            "size_bytes": self.size_bytes,
            "request_count": _REQUESTS_A_PORTION * sum(1 for _ in portions(self.files)),
            "kept": dict(self.kept),
        }


def retain_raw(
    ingest: Ingest, store: Store, rule: RetentionRule, now: dt.datetime, *, is_dry_run: bool
) -> RawRetention:
    """Delete the raw files that are past a retention, and that have been read.

    Args:
        ingest: The ingest whose dataset must have read a file, and whose archive holds it.
        store: The store of the repository.
        rule: The rule, with an age of raw files.
        now: The moment from which ages count.
        is_dry_run: Whether to delete nothing.

    Raises:
        DatasetNotFoundError: One of the datasets that must have read a file does not exist.
        CommitConflictError: Raw files were read or taken out meanwhile; some may be deleted.
        StorageError: The storage or the index failed; a repetition deletes the rest.

    Cost:
        The record of the files read, and the query of the index for all files from the oldest one
        that was read up to the age; two requests and a write to the index for 500 files.
    """
    source = ingest.source
    assert isinstance(source, FromArchive)  # a pipeline refuses it for others
    assert rule.raw is not None
    cutoff = now - parse_age(rule.raw)
    state = read_head(store, ingest._address()[1]).state
    known = source_list.read(store, state.lists.sources)
    read = [file for file in known.current().values() if file.file_id is not None]
    began_at = min((file.start for file in read if file.start is not None), default=None)
    if began_at is None or began_at >= cutoff:
        return RawRetention(cutoff=cutoff)
    within = source if source.work_id else replace(source, start=began_at, end=cutoff)
    candidates = find_candidates(within, ingest.format)
    due = ingest._due(store, state, candidates, Again.of(None))
    others = [files_read_by(store, name) for name in rule.raw_read_by]
    old = _Old(candidates, due, read, others, to_epoch_ms(cutoff))
    with source.open() as archive:
        found = RawRetention(
            cutoff=cutoff,
            files=tuple(record for record in old.settled() if is_in(archive, record)),
            kept=dict(sorted(old.kept.items())),
        )
        if not is_dry_run:
            for records in portions(found.files):
                _check_unmoved(store, state)
                remove(archive, records)
                _log.info("raw files deleted dataset=%s files=%d", state.name, len(records))
    return found


def _check_unmoved(store: Store, state: State) -> None:
    """Check that the dataset has the same record of raw files as before.

    Raises:
        CommitConflictError: It has another one: a rollback may have taken files out.
    """
    now = read_head(store, state.name).state
    if now.lists.sources != state.lists.sources:
        raise CommitConflictError(
            f"Raw files were read into {state.name!r}, or taken out of it, meanwhile.",
            hint="Try again.",
            expected=state.version,
            actual=now.version,
        )


class _Old:
    """The archived files that are old enough, in groups of those that may stand for the same."""

    def __init__(
        self,
        candidates: Candidates,
        due: Due,
        read: Iterable[SourceFile],
        others: Sequence[Mapping[str, SourceFile]],
        cutoff_ms: int,
    ) -> None:
        self._supersede = candidates.supersede
        self._to_read = {candidate.file.location for candidate in due.files}
        self._left_out = {one.location: one.why for one in due.left_out}
        self._read = {file.file_id: file for file in read}
        self._others = others
        self._cutoff_ms = cutoff_ms
        self._groups: dict[object, list[Candidate]] = {}
        for candidate in (*candidates.files, *candidates.retracted):
            key = group_of(candidate, candidates.supersede)
            self._groups.setdefault(key, []).append(candidate)
        self.kept: Counter[str] = Counter()

    def settled(self) -> list[ArchiveRecord]:
        """Return the records of all files that may go, and count those that stay."""
        found: list[ArchiveRecord] = []
        for group in self._groups.values():
            reasons = [self._why_kept(candidate) for candidate in group]
            is_read = any(_record(candidate).id in self._read for candidate in group)
            if is_read and not any(reasons):
                found += map(_record, group)
                continue
            for candidate, reason in zip(group, reasons, strict=True):
                if _record(candidate).last_ms < self._cutoff_ms:
                    self.kept[reason or "beside one that stays"] += 1
        return found

    def _why_kept(self, candidate: Candidate) -> str | None:
        """Return the reason why a file stays; None if it has none of its own."""
        record, location = _record(candidate), candidate.file.location
        if record.last_ms >= self._cutoff_ms:
            return "young"
        if record.retraction is not None or self._left_out.get(location) == "held":
            return "held or retracted"
        if location in self._to_read:
            return "not read"
        if self._left_out.get(location) in _SETTLED and record.id not in self._read:
            return None
        file = self._read.get(record.id)
        why = why_needed(record, file)
        if file is None or why is not None:
            return why
        if file.path is None and self._supersede not in ("id", "span"):
            return "of unknown path"  # later files of its time would be taken for it
        is_needed = any(why_needed(record, read.get(record.id)) for read in self._others)
        return "not read by all datasets" if is_needed else None


def _record(candidate: Candidate) -> ArchiveRecord:
    assert candidate.record is not None  # it is an archived file
    return candidate.record
