"""Raw files that were read into a dataset, and the rows of its data files that come from them.

The commit that adds the rows records both, in segments that the head names, so one is never known
without the other. A rollback records there the raw files that it brought back or removed, and a
hold the files that no ingest may read.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError
from lakebed.model.keys import BatchId
from lakebed.model.layout import Folder
from lakebed.state.history import Entry
from lakebed.store.base import Store, StoredObject
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import Segment, pack, read_segment, unpack

SUFFIX = ".json.zst"
_LOSS = "Data files are not affected; only the record of the origin of their rows is."

_BYTES_OF_ENTRY = 1_000  # in memory: the text of a file or an origin, and its marks

_Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]

Origins = tuple[tuple[str, int], ...]
"""Sources of the rows of a data file, in order: each with its number of consecutive rows."""


class FileRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Reason why a raw file, or a part of it, was not read; a change of schema or rule allows a retry.

    Attributes:
        why: As `LeftOut.why` for a file that was kept back; `unknown` if lines of a file that was
            read have fields that the dataset lacked.
        schema: Number of the dataset's schema at that time.
        rule: The rule that refused it, as text.
        detail: The reason in a sentence.

    >>> FileRefusal(why="refused", schema=1, rule="csv").detail
    ''
    """

    why: str
    schema: int
    rule: str
    detail: str = ""


class RawContent(msgspec.Struct, frozen=True, kw_only=True):
    """The uncompressed bytes of a raw file of a folder, or the first of them.

    Attributes:
        size_bytes: Number of bytes.
        hash: First 16 bytes of their SHA-256, in hex.

    >>> RawContent(size_bytes=0, hash="e3b0c44298fc1c149afbf4c8996fb924").size_bytes
    0
    """

    size_bytes: int
    hash: str


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A raw file that was read into a dataset.

    Attributes:
        key: Unique key of the record in its dataset.
        location: Path or URL.
        slot: The identity of the file for an ingest. A later file of the same slot replaces it.
        fingerprint: Version of the content: the hash of an archived file, otherwise size and time
            of the last change. Files of a slot with the same fingerprint are the same.
        size_bytes: Size of the file as stored.
        batch_id: Id of the batch that it was read into.
        run: Name of the run that read it.
        row_count: Number of rows that were loaded.
        rejected_count: Number of lines, or remainders of damaged files, that were not loaded.
        file_id: Id in the archive; None for a file of a folder.
        what: As recorded in the archive.
        where: As recorded in the archive.
        work_id: As recorded in the archive.
        start: As recorded in the archive; aware, UTC.
        end: As recorded in the archive; aware, UTC.
        path: The path that it was pushed to the archive with. Older records lack it.
        content: Size and hash of the bytes that were read of a file of a folder; None of an archived file.
        refusal: Reason why a part of it waits for another schema or rule; None if none does.
        attempt: In a quarantine, the batch that the file was read for.
        is_held: Whether it is held, so that no ingest reads it; set by `Dataset.sources.list`, and not
            stored.

    >>> SourceFile(
    ...     key="1-0", location="in/a.jsonl", slot="file:in/a.jsonl", fingerprint="9@2015-03-20",
    ...     size_bytes=9, batch_id=1, run="daily", row_count=2, rejected_count=0,
    ... ).file_id is None
    True
    """

    key: str
    location: str
    slot: str
    fingerprint: str
    size_bytes: int
    batch_id: BatchId
    run: str
    row_count: int
    rejected_count: int
    file_id: str | None = None
    what: str | None = None
    where: str | None = None
    work_id: str | None = None
    start: _Time | None = None
    end: _Time | None = None
    path: str | None = None
    content: RawContent | None = None
    refusal: FileRefusal | None = None
    attempt: int | None = None
    is_held: bool = False

    @property
    def name(self) -> str:
        """The name of the file apart from its content: the id in the archive, else the path or URL."""
        return name_of(self.location, self.file_id)

    def _row_(self) -> dict[str, object]:
        return {
            "location": self.location,
            "batch_id": self.batch_id,
            "run": self.run,
            "rows": self.row_count,
            "rejected": self.rejected_count,
            "held": "yes" if self.is_held else "",
        }


class Hold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A raw file that no ingest may read until it is released, even if its content changes.

    Attributes:
        name: Unique name in its dataset: `id:` and the id of an archived file, `file:` and the path
            or URL of another file.
        location: Path or URL.
        held_at: Time of the hold; aware, UTC.
        commit_id: Id of the commit that recorded the hold.
        reason: Reason for the hold.
        fingerprint: Fingerprint of its content at that time, if known; see `SourceFile`.
        is_released: Whether the file may be read again.

    >>> now = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
    >>> Hold(
    ...     name="file:in/a.jsonl", location="in/a.jsonl", held_at=now, commit_id="c", reason="torn"
    ... ).reason
    'torn'
    """

    name: str
    location: str
    held_at: _Time
    commit_id: str
    reason: str = ""
    fingerprint: str | None = None
    is_released: bool = False

    def _row_(self) -> dict[str, object]:
        return {"location": self.location, "held at": self.held_at, "reason": self.reason}


FILE = "file:"


def name_of(location: str, file_id: str | None) -> str:
    """Return the name of a raw file, independent of its content."""
    return f"{FILE}{location}" if file_id is None else f"id:{file_id}"


class Restored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Raw files that a commit made current, in place of those that were read in before it.

    A rollback brings some files back and removes others. An ingest removes a file in this way if it
    replaced it by a file of another slot, for example after the rule of superseding has changed.

    Attributes:
        commit_id: Id of the commit.
        current: Key of the current file by slot; empty for none, so that the slot is read again.
        after: How many files of the same segment had been read in before the commit.
    """

    commit_id: str
    current: dict[str, str]
    after: int = 0


class Sources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The raw files that one or several commits read in.

    Attributes:
        files: Raw files, in the order in which they were read in.
        runs: The raw files of the rows of a data file, by its label.
        restored: Changes of the current files other than by reading them in, in order.
        holds: Holds of raw files and their releases, in order.
    """

    files: tuple[SourceFile, ...] = ()
    runs: dict[str, Origins] = {}
    restored: tuple[Restored, ...] = ()
    holds: tuple[Hold, ...] = ()

    @property
    def held(self) -> dict[str, Hold]:
        """The raw files that no ingest may read, by name."""
        last = {hold.name: hold for hold in self.holds}
        return {name: hold for name, hold in last.items() if not hold.is_released}

    def current(self, entries: Iterable[Entry] | None = None) -> dict[str, SourceFile]:
        """Return the current file of each slot: the last one, except after rollbacks.

        Args:
            entries: Entries of the history, up to the wanted version; None for all.
        """
        ids = (
            None if entries is None else {key for e in entries for key in (e.batch_id, e.commit_id)}
        )
        by_key = {file.key: file for file in self.files}
        by_slot: dict[str, SourceFile] = {}
        start = 0
        for restoration in (
            *self.restored,
            Restored(commit_id="", current={}, after=len(self.files)),
        ):
            for file in self.files[start : restoration.after]:
                if ids is None or file.batch_id in ids:
                    by_slot[file.slot] = file
            start = restoration.after
            if ids is None or restoration.commit_id in ids:
                for slot, key in restoration.current.items():
                    by_slot.pop(slot, None)
                    if key in by_key:
                        by_slot[slot] = by_key[key]
        return by_slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Archived files, and data files, that the record of raw files is asked for.

    Attributes:
        file_ids: Ids in the archive.
        starts: Starts of files; those of the same start may stand for the same.
        labels: Labels of data files.
    """

    file_ids: frozenset[str]
    starts: frozenset[dt.datetime]
    labels: Collection[str]


class _Mark(msgspec.Struct, frozen=True, gc=False):
    """Fields that decide whether a raw file is sought; times stay text, which compares faster."""

    slot: str
    file_id: str | None = None
    start: str | None = None


class _Marked(msgspec.Struct, frozen=True):
    """A segment of which only the marks are decoded."""

    files: tuple[_Mark, ...] = ()
    runs: dict[str, msgspec.Raw] = {}
    restored: tuple[Restored, ...] = ()
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    stored: StoredObject
    marked: _Marked


def folder(dataset: str) -> str:
    """Return the folder of the segments of a dataset."""
    return Folder.SOURCES.of(dataset)


def new_segment(dataset: str, sources: Sources) -> Segment:
    """Return the segment for the sources of one commit."""
    weight = len(sources.files) + len(sources.runs)
    weight += sum(len(restoration.current) for restoration in sources.restored)
    weight += len(sources.holds)
    return Segment.new(folder(dataset), weight, SUFFIX)


def encode(sources: Sources) -> bytes:
    """Return the bytes of a segment."""
    return pack(sources)


def decode(data: bytes, key: str) -> Sources:
    """Read a segment.

    Raises:
        CorruptMetadataError: The segment is truncated or malformed.
    """
    return unpack(data, Sources, f"Sources {key!r}", _LOSS)


def merge(parts: Sequence[StoredObject]) -> bytes:
    """Merge several segments into one."""
    return encode(_joined(decode(part.data, part.key) for part in parts))


def read(store: Store, segments: Iterable[Segment]) -> Sources:
    """Return the sources of all segments, oldest first.

    Cost:
        One GET a segment, of which there are few.
    """
    parts = (read_segment(store, segment, "Sources", _LOSS) for segment in segments)
    return _joined(decode(part.data, part.key) for part in parts)


def read_sought(store: Store, segments: Iterable[Segment], sought: Sought) -> Sources:
    """Return the sources of all segments as far as they are about some files.

    These are the files with one of the ids or starts, those without a start, all files of the slots
    of these, and the origins of the data files; of restorations and holds, all.

    Cost:
        As `read`, but of segments without such a file little is decoded, which takes about half the
        time. The process keeps it, so that the next call reads new segments only.
    """
    file_ids = sought.file_ids
    starts = {None, *msgspec.to_builtins(sought.starts)}  # a file without a start may have any
    parts = [_marked(store, segment) for segment in segments]
    slots = {
        mark.slot
        for part in parts
        for mark in part.marked.files
        if mark.start in starts or mark.file_id in file_ids
    }
    return _joined(_only(part, slots, sought.labels) for part in parts)


def _marked(store: Store, segment: Segment) -> _Part:
    name = ("sources", store.cache_name, segment.key)
    part = PROCESS_CACHE.find(name, _Part)
    if part is None:
        stored = read_segment(store, segment, "Sources", _LOSS)
        marked = unpack(stored.data, _Marked, f"Sources {stored.key!r}", _LOSS)
        part = _Part(stored=stored, marked=marked)
        PROCESS_CACHE.hold(name, part, size_bytes=segment.weight * _BYTES_OF_ENTRY)
    return part


def _only(part: _Part, slots: Collection[str], labels: Collection[str]) -> Sources:
    """Return a segment without the files of other slots and the origins of other data files."""
    stored, marked = part.stored, part.marked
    places = [place for place, mark in enumerate(marked.files) if mark.slot in slots]
    files = decode(stored.data, stored.key).files if places else ()
    encoded = {label: marked.runs[label] for label in labels if label in marked.runs}
    try:
        runs = {label: from_json(origins, Origins) for label, origins in encoded.items()}
    except UNREADABLE as exc:
        message = f"Sources {stored.key!r} cannot be read: {exc}."
        raise CorruptMetadataError(message, hint=_LOSS) from exc
    restored = (
        msgspec.structs.replace(restoration, after=bisect_left(places, restoration.after))
        for restoration in marked.restored
    )
    return Sources(
        files=tuple(files[place] for place in places),
        runs=runs,
        restored=tuple(restored),
        holds=marked.holds,
    )


def _joined(parts: Iterable[Sources]) -> Sources:
    files: list[SourceFile] = []
    runs: dict[str, Origins] = {}
    restored: list[Restored] = []
    holds: dict[str, Hold] = {}  # by name; the last hold or release of a file counts
    for part in parts:
        restored += (
            msgspec.structs.replace(restoration, after=len(files) + restoration.after)
            for restoration in part.restored
        )
        files += part.files
        runs.update(part.runs)
        holds.update((hold.name, hold) for hold in part.holds)
    return Sources(
        files=tuple(files), runs=runs, restored=tuple(restored), holds=tuple(holds.values())
    )


def changed_meanwhile(known: Sources, latest: Sources, mine: Sources) -> str | None:
    """Return a description of a change to a slot that is also in `mine`; None if there is none.

    Args:
        known: The sources at the base of a commit.
        latest: The current sources.
        mine: The sources that the commit reads in.
    """
    slots = {file.slot for file in mine.files}
    # One archived file may have several slots, depending on the rule of the ingest.
    ids = {file.file_id for file in mine.files if file.file_id is not None}
    slots.update(slot for restoration in mine.restored for slot in restoration.current)
    contents = {file.content for file in mine.files if file.content is not None}
    held = latest.held.keys() - known.held.keys()
    for file in mine.files:
        if file.name in held:
            return f"a hold of {file.location}, which was recorded meanwhile"
    keys = {file.key for file in known.files}
    for file in latest.files:
        if file.key in keys:
            continue
        if file.slot in slots or file.file_id in ids or file.content in contents:
            return f"run {file.run!r}, which read {file.location} meanwhile"
    commits = {restoration.commit_id for restoration in known.restored}
    for restoration in latest.restored:
        if restoration.commit_id not in commits and not slots.isdisjoint(restoration.current):
            changed = "which of the same raw files are current"
            return f"commit {restoration.commit_id}, which changed {changed}"
    return None
