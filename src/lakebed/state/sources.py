"""Which raw files were read into a dataset, and which rows of its data files are theirs.

Both are noted by the commit that brings the rows, in segments that the head names: there is no
moment at which one is known without the other. A rollback notes there which raw files it has
brought back or taken out, and a hold which no ingest may read.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from lakebed.model.keys import BatchId
from lakebed.model.layout import Folder
from lakebed.state.history import Entry
from lakebed.state.packed import pack, unpack
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import Segment, read_segment

SUFFIX = ".json.zst"
_LOSS = "Data files are not affected; only what is known of where rows came from is."

_Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]

Origins = tuple[tuple[str, int], ...]
"""Rows of a data file from its begin on: so many of this source, so many of the next."""


class FileRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a raw file, or a part of it, was not taken, and what would be a reason to try again.

    Attributes:
        why: As of `LeftOut.why` for a file that was kept back; `unknown` where lines of a file
            that was read have fields that the dataset lacked.
        schema: Number of the dataset's schema at that time.
        rule: By which it was refused, as text.
        detail: The reason in a sentence.

    >>> FileRefusal(why="refused", schema=1, rule="csv").detail
    ''
    """

    why: str
    schema: int
    rule: str
    detail: str = ""


class SourceFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A raw file that was read into a dataset.

    Attributes:
        key: Names it in its dataset.
        location: Path or URL.
        slot: What it stands for. A later file of the same slot takes its place.
        fingerprint: Tells whether a file of the slot is the same: the hash of an archived file,
            else size and time of the last change.
        size_bytes: As it lay there.
        batch_id: Of the batch that it was read into.
        run: Name of the run that read it.
        row_count: Rows that were loaded.
        rejected_count: Lines, or rests of damaged files, that were not.
        file_id: In the archive; None for a file of a folder.
        what: In the archive.
        where: In the archive.
        work_id: In the archive.
        start: In the archive; aware, UTC.
        end: In the archive; aware, UTC.
        path: In the archive: the path that it was pushed with. Older notes lack it.
        refusal: Why something of it waits for another schema or rule; None if nothing does.
        attempt: In a quarantine: the batch that the file was read for.
        is_held: Whether it is held, so that no ingest reads it; told by `Dataset.sources`, and not
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
    refusal: FileRefusal | None = None
    attempt: int | None = None
    is_held: bool = False

    @property
    def name(self) -> str:
        """Names it apart from its content: the id in the archive, else what it stands for."""
        return name_of(self.slot, self.file_id)

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
    """A raw file that no ingest may read, whatever its content is, until it is released.

    Attributes:
        name: Names it in its dataset: `id:` and the id of an archived file, `file:` and the path or
            URL of another.
        location: Path or URL.
        held_at: When; aware, UTC.
        commit_id: Of the commit.
        reason: Why.
        fingerprint: Of the content that it had, where that was known; see `SourceFile`.
        is_released: Whether it may be read again.

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


def name_of(slot: str, file_id: str | None) -> str:
    """Return what names a raw file, whatever its content is and whatever it stands for."""
    return slot if file_id is None else f"id:{file_id}"


class Restored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which raw files are current since a commit, whatever was read in before it.

    A rollback brings some back and takes others out. An ingest takes out so what it has replaced
    by a file that stands for something else, as where the rule of superseding has changed.

    Attributes:
        commit_id: Of the commit.
        current: By slot: key of the file. Empty where there is none, so that it is read again.
        after: How many of the files beside it had been read in before.
    """

    commit_id: str
    current: dict[str, str]
    after: int = 0


class Sources(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one or several commits read in.

    Attributes:
        files: Raw files, in the order in which they were read in.
        runs: By label of a data file: of which raw files its rows are.
        restored: What was made of it by other means than being read in, in that order.
        holds: Which raw files may not be read, or may be again, in that order.
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
        """Return the file of each slot that is current: the last one, but for rollbacks.

        Args:
            entries: Of the history, up to the version that is meant; None for all.
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


def folder(dataset: str) -> str:
    """Return where the segments of a dataset lie."""
    return Folder.SOURCES.of(dataset)


def new_segment(dataset: str, sources: Sources) -> Segment:
    """Return the segment that the sources of one commit go to."""
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
        CorruptMetadataError: It is truncated or of a wrong form.
    """
    return unpack(data, Sources, f"Sources {key!r}", _LOSS)


def merge(parts: Sequence[StoredObject]) -> bytes:
    """Return several segments as one."""
    return encode(_joined(decode(part.data, part.key) for part in parts))


def read(store: Store, segments: Iterable[Segment]) -> Sources:
    """Return all that the segments hold, oldest first.

    Cost:
        One GET a segment, of which there are few.
    """
    parts = (read_segment(store, segment, "Sources", _LOSS) for segment in segments)
    return _joined(decode(part.data, part.key) for part in parts)


def _joined(parts: Iterable[Sources]) -> Sources:
    files: list[SourceFile] = []
    runs: dict[str, Origins] = {}
    restored: list[Restored] = []
    holds: dict[str, Hold] = {}  # the last one of a file counts
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
    """Say what has changed for a slot that is also in `mine`; None if nothing has.

    Args:
        known: What was read in before.
        latest: What is read in now.
        mine: What a commit reads in.
    """
    slots = {file.slot for file in mine.files}
    # One archived file may stand for several things, by the rule that an ingest goes by.
    ids = {file.file_id for file in mine.files if file.file_id is not None}
    slots.update(slot for restoration in mine.restored for slot in restoration.current)
    held = latest.held.keys() - known.held.keys()
    for file in mine.files:
        if file.name in held:
            return f"a hold of {file.location}, which was noted meanwhile"
    keys = {file.key for file in known.files}
    for file in latest.files:
        if file.key not in keys and (file.slot in slots or file.file_id in ids):
            return f"run {file.run!r}, which read {file.location} meanwhile"
    commits = {restoration.commit_id for restoration in known.restored}
    for restoration in latest.restored:
        if restoration.commit_id not in commits and not slots.isdisjoint(restoration.current):
            changed = "which of the same raw files are current"
            return f"commit {restoration.commit_id}, which changed {changed}"
    return None
