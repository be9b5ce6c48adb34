"""Recognition of raw files: those read before, those that replace others, those left out.

An archived file is identified by its id; see `lineages` for files of folders. It replaces another
only if the user has declared so. If two archived files have the same metadata (what, where, start, work
id and path) but different contents, one may be a correction of the other or a file of its own:
reading both could double rows, and replacing one could lose some. So the later one is kept back
until the user declares which it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lakebed.archive import ArchiveRecord
from lakebed.pipeline.attempts import Attempts, PastFiles
from lakebed.pipeline.candidates import Candidates, Supersede, real_slots
from lakebed.pipeline.lineages import find_due_in_folders
from lakebed.state.sources import Hold, SourceFile, Sources
from lakebed.work.ingest.due import Candidate, Due, LeftOut, Why

_Key = tuple[object, ...]


def find_due(
    candidates: Candidates,
    known: Sources,
    labels: Iterable[str] = (),
    attempts: Attempts | None = None,
) -> Due:
    """Choose the raw files to read.

    Args:
        candidates: The files of the source.
        known: The record of files that were read before.
        labels: Labels of the data files of the dataset.
        attempts: Outcomes of earlier attempts.

    Raises:
        InvalidInputError: A file that is to be read again is not among the candidates.
    """
    attempts = attempts or Attempts()
    attempts.again.check(candidates.files)
    current = frozenset(file.key for file in known.current().values())
    # After a rollback of some partitions, a file that is not current may still have rows.
    row_counts = Counter[str]()
    for label in labels:
        for key, row_count in known.runs.get(label, ()):
            row_counts[key] += row_count
    alive = tuple(file for file in known.files if file.key in current or file.key in row_counts)
    past = PastFiles(
        known=known,
        alive=alive,
        current=current,
        row_counts=row_counts,
        batch_ids=frozenset(file.batch_id for file in known.files),
        attempts=attempts,
    )
    free, left_out = _without_held(candidates.files, known)
    archived = [candidate for candidate in free if candidate.record is not None]
    if archived:
        may_be_read = {candidate.file.location for candidate in free}
        withheld = [
            candidate
            for candidate in (*candidates.files, *candidates.retracted)
            if candidate.file.location not in may_be_read
        ]
        originals = _held_originals(archived, withheld, past, candidates.supersede)
        reasons = {entry.location: entry.detail for entry in (*left_out, *candidates.left_out)}
        left_out = (*left_out, *_copies_left_out(archived, originals, reasons))
        archived = [candidate for candidate in archived if candidate.name not in originals]
        due = _Archived(archived, withheld, past, candidates.supersede).due()
    else:
        due = find_due_in_folders(free, past, candidates.supersede)
    due = replace(due, left_out=(*due.left_out, *left_out, *candidates.left_out))
    kept_back = map(attempts.kept_back, due.files)
    return due.without({file.location: file for file in kept_back if file})


def _without_held(
    candidates: Sequence[Candidate], known: Sources
) -> tuple[Sequence[Candidate], Sequence[LeftOut]]:
    """Divide raw files into those that may be read, and reports of the others."""
    held = known.held
    if not held:
        return candidates, ()
    real_held = {real: held[name] for name, real in real_slots(held).items()}
    real = real_slots(candidate.name for candidate in candidates)
    free: list[Candidate] = []
    left_out: list[LeftOut] = []
    for candidate in candidates:
        hold = real_held.get(real[candidate.name])
        if hold is None:
            free.append(candidate)
        else:
            left_out.append(LeftOut.of(candidate, "held", _why_held(hold, candidate)))
    return free, left_out


def _why_held(hold: Hold, candidate: Candidate) -> str:
    text = f"held since {hold.held_at:%Y-%m-%d %H:%M}"
    if hold.fingerprint not in (None, candidate.fingerprint):
        text += ", and changed since"
    return f"{text}: {hold.reason}" if hold.reason else text


def _held_originals(
    candidates: Sequence[Candidate],
    withheld: Sequence[Candidate],
    past: PastFiles,
    supersede: Supersede | None,
) -> Mapping[str, Candidate]:
    """Return the held or retracted originals of files that are unchanged copies, by name of the copy.

    A resend of such a file has another id, but would bring the same rows. A file whose rows are in
    the dataset does not count as a copy, and is treated as before.
    """
    originals = {(group_of(one, supersede), *_content(one)): one for one in withheld}
    alive = {file.file_id for file in past.alive}
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        original = originals.get((group_of(candidate, supersede), *_content(candidate)))
        is_wanted = past.attempts.again.named(candidate)
        if original and _record(candidate).id not in alive and not is_wanted:
            found[candidate.name] = original
    return found


def _copies_left_out(
    candidates: Sequence[Candidate], originals: Mapping[str, Candidate], reasons: Mapping[str, str]
) -> Sequence[LeftOut]:
    left_out: list[LeftOut] = []
    for candidate in candidates:
        if candidate.name in originals:
            location = originals[candidate.name].file.location
            detail = f"a copy of {location}, which is {reasons[location]}"
            left_out.append(LeftOut.of(candidate, "held", detail))
    return left_out


class _Archived:
    """The archived files to read, chosen by groups of files that may represent the same data."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        withheld: Sequence[Candidate],
        past: PastFiles,
        supersede: Supersede | None,
    ) -> None:
        """Group the files.

        Args:
            candidates: Files that may be read.
            withheld: Files that are held or retracted.
            past: The files that were read before.
            supersede: The rule by which files replace others.
        """
        self._past, self._supersede = past, supersede
        self._records = {_record(candidate).id: _record(candidate) for candidate in candidates}
        self._read_before = {file.file_id for file in past.known.files}
        self._groups: dict[_Key, list[Candidate]] = {}
        for candidate in sorted(candidates, key=_age):
            self._groups.setdefault(self._key(_record(candidate)), []).append(candidate)
        # Files that a withheld file has replaced stay replaced.
        self._withheld = {
            self._key(_record(candidate)): candidate
            for candidate in sorted(withheld, key=_age)
            if _record(candidate).id in self._read_before
        }
        self._alive: dict[_Key, list[SourceFile]] = {}
        # A file of unknown path may be any file of its time.
        self._unknown: dict[_Key, SourceFile] = {}
        # Of years of files, only those of the same starts can be in the groups.
        starts = {_record(candidate).metadata.start for candidate in candidates}
        for file in past.alive:
            if file.file_id is None:
                continue
            is_named = file.file_id in self._records
            if not is_named and (supersede == "id" or _start_ms(file) not in starts):
                continue
            key = self._key_of_file(file)
            if key is not None:
                self._alive.setdefault(key, []).append(file)
            if key is None or (supersede is None and _stands_for_span(file)):
                self._unknown[_span_of_file(file)] = file
        self._files: list[Candidate] = []
        self._replaces: dict[str, tuple[SourceFile, ...]] = {}
        self._supersedes: dict[str, tuple[str, ...]] = {}
        self._unchanged_count = 0
        self._left_out: list[LeftOut] = []

    def due(self) -> Due:
        for key, group in self._groups.items():
            alive = self._alive.get(key, [])
            withheld = self._withheld.get(key)
            if self._supersede is None:
                self._each_is_itself(group, alive)
            elif withheld is None or self._is_after(group[-1], withheld):
                self._last_counts(group, alive)
            else:
                self._none_counts(group, alive, withheld)
        return Due(
            files=tuple(self._files),
            replaces=self._replaces,
            supersedes=self._supersedes,
            unchanged_count=self._unchanged_count,
            left_out=tuple(self._left_out),
            known=self._past.known,
        )

    def _key(self, record: ArchiveRecord) -> _Key:
        return _key_of_record(record, self._supersede)

    def _key_of_file(self, file: SourceFile) -> _Key | None:
        """Return the group of a file that was read; None if its path is not known."""
        if file.file_id in self._records:
            return self._key(
                self._records[file.file_id]
            )  # even if its metadata was corrected since
        if self._supersede == "span":
            return _span_of_file(file)
        return None if file.path is None else (*_span_of_file(file), file.path)

    def _last_counts(self, group: Sequence[Candidate], alive: Sequence[SourceFile]) -> None:
        *others, last = group
        detail = f"{_description(last)} was stored later, and replaces it"
        self._left_out += [LeftOut.of(candidate, "superseded", detail) for candidate in others]
        unknown = self._unknown.get(_span_of(last))
        if not alive and unknown is not None:
            self._left_out.append(LeftOut.of(last, "unclear", _claimed(unknown)))
        elif self._past.holds(alive, last):
            self._unchanged_count += 1
        else:
            slot = self._slot(_record(last))
            self._read(last, slot, alive)
            self._supersedes[slot] = tuple(candidate.file.location for candidate in others)

    def _is_after(self, candidate: Candidate, withheld: Candidate) -> bool:
        """Return whether a file was stored after a withheld one, or is to be read by request."""
        return _age(candidate) > _age(withheld) or bool(self._past.attempts.again.named(candidate))

    def _none_counts(
        self, group: Sequence[Candidate], alive: Sequence[SourceFile], withheld: Candidate
    ) -> None:
        """Leave out files that are older than a file that was read and may not be read again."""
        detail = (
            f"{_description(withheld)} was stored later and read before, and is held or retracted"
        )
        for candidate in group:
            own = [file for file in alive if file.file_id == _record(candidate).id]
            if self._past.holds(own, candidate):
                self._unchanged_count += 1
            else:
                self._left_out.append(LeftOut.of(candidate, "superseded", detail))

    def _each_is_itself(self, group: Sequence[Candidate], alive: Sequence[SourceFile]) -> None:
        contents: list[_Key] = [(file.fingerprint, file.size_bytes) for file in alive]
        others: list[Candidate] = []
        again: dict[str, list[Candidate]] = {}
        for candidate in group:
            own = [file for file in alive if file.file_id == _record(candidate).id]
            if self._past.holds(own, candidate):
                self._unchanged_count += 1
            elif own:
                again.setdefault(own[-1].slot, []).append(candidate)
            else:
                others.append(candidate)
        for slot, rivals in again.items():
            # If there are several, a rollback of some partitions has left rows of each: they
            # represent the same data.
            ids = {_record(candidate).id for candidate in rivals}
            files = [file for file in alive if file.slot == slot or file.file_id in ids]
            self._read(rivals[-1], slot, files)
            others += rivals[:-1]
        if others and not alive:
            first = others.pop(0)
            unknown = self._unknown.get(_span_of(first))
            if unknown is None:
                self._read(first, self._slot(_record(first)), ())
                contents.append(_content(first))
            else:
                self._left_out.append(LeftOut.of(first, "unclear", _claimed(unknown)))
        self._leave_out(others, contents)

    def _leave_out(self, candidates: Sequence[Candidate], contents: Sequence[_Key]) -> None:
        """Leave out files of a group if others of the group are or were read."""
        for candidate in candidates:
            why: Why = "unclear"
            detail = f"{_description(candidate)} was pushed before, with another content"
            if _content(candidate) in contents:
                why, detail = "copy", f"{_description(candidate)} was pushed before, as it is"
            elif _record(candidate).id in self._read_before:
                why, detail = "superseded", f"{_description(candidate)} was replaced before"
            self._left_out.append(LeftOut.of(candidate, why, detail))

    def _read(self, candidate: Candidate, slot: str, replaced: Sequence[SourceFile]) -> None:
        self._files.append(replace(candidate, slot=slot))
        if replaced:
            self._replaces[slot] = tuple(replaced)

    def _slot(self, record: ArchiveRecord) -> str:
        """Return the text that identifies the data of a file.

        The location of the archive is not part of it: a copy of an archive holds the same files.
        """
        if self._supersede == "id":
            return f"id:{record.id}"
        span = f"{record.what}|{record.where}|{record.metadata.start}|{record.work_id or ''}"
        return f"span:{span}" if self._supersede == "span" else f"path:{span}|{record.path}"


def _record(candidate: Candidate) -> ArchiveRecord:
    assert candidate.record is not None  # it is an archived file
    return candidate.record


def group_of(candidate: Candidate, supersede: Supersede | None) -> _Key:
    """Return what the archived files that may stand for the same have in common."""
    return _key_of_record(_record(candidate), supersede)


def _key_of_record(record: ArchiveRecord, supersede: Supersede | None) -> _Key:
    """Return what the files that may stand for the same have in common."""
    if supersede == "id":
        return (record.id,)
    span = _span(record.what, record.where, record.metadata.start, record.work_id)
    return span if supersede == "span" else (*span, record.path)


def _content(candidate: Candidate) -> _Key:
    return candidate.fingerprint, candidate.file.size_bytes


def _age(candidate: Candidate) -> tuple[int, str]:
    return _record(candidate).create_time_ms, _record(candidate).id


def _span(what: str | None, where: str | None, start_ms: int, work_id: str | None) -> _Key:
    return what, where, start_ms, work_id or ""


def _span_of(candidate: Candidate) -> _Key:
    record = _record(candidate)
    return _span(record.what, record.where, record.metadata.start, record.work_id)


def _start_ms(file: SourceFile) -> int:
    return 0 if file.start is None else round(file.start.timestamp() * 1000)


def _span_of_file(file: SourceFile) -> _Key:
    return _span(file.what, file.where, _start_ms(file), file.work_id)


def _stands_for_span(file: SourceFile) -> bool:
    return file.slot.startswith("span:")


def _description(candidate: Candidate) -> str:
    record = _record(candidate)
    return f"{record.path} of {record.where}, {record.start:%Y-%m-%d %H:%M}"


def _claimed(file: SourceFile) -> str:
    return f"{file.location} was read for all files of its what, where, start and work id"
