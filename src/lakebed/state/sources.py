"""Which raw files were read into a dataset, and which rows of its data files are theirs.

Both are noted by the commit that brings the rows, in segments that the head names: there is no
moment at which one is known without the other.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from lakebed.state.packed import pack, unpack
from lakebed.store.base import Store
from lakebed.store.segments import Segment

SUFFIX = ".json.zst"
_LOSS = "Data files are not affected; only what is known of where rows came from is."

_Time = Annotated[dt.datetime, msgspec.Meta(tz=True)]

Runs = tuple[tuple[str, int], ...]
"""Rows of a data file from its begin on: so many of this source, so many of the next."""


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
    batch_id: int
    run: str
    row_count: int
    rejected_count: int
    file_id: str | None = None
    what: str | None = None
    where: str | None = None
    work_id: str | None = None
    start: _Time | None = None
    end: _Time | None = None


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """What one or several commits read in.

    Attributes:
        files: Raw files, in the order in which they were read in.
        runs: By label of a data file: of which raw files its rows are.
    """

    files: tuple[SourceFile, ...] = ()
    runs: dict[str, Runs] = {}

    def current(self) -> dict[str, SourceFile]:
        """Return the last file of each slot."""
        return {file.slot: file for file in self.files}


def folder(dataset: str) -> str:
    """Return where the segments of a dataset lie."""
    return f"{dataset}/sources"


def new_segment(dataset: str, sources: Sources) -> Segment:
    """Return the segment that the sources of one commit go to."""
    return Segment.new(folder(dataset), len(sources.files) + len(sources.runs), SUFFIX)


def encode(sources: Sources) -> bytes:
    """Return the bytes of a segment."""
    return pack(sources)


def decode(data: bytes, key: str) -> Sources:
    """Read a segment.

    Raises:
        CorruptMetadataError: It is truncated or of a wrong form.
    """
    return unpack(data, Sources, f"Sources {key!r}", _LOSS)


def merge(parts: Sequence[bytes]) -> bytes:
    """Return several segments as one."""
    return encode(_joined(decode(part, "sources segment") for part in parts))


def read(store: Store, segments: Iterable[Segment]) -> Sources:
    """Return all that the segments hold, oldest first.

    Cost:
        One GET a segment, of which there are few.
    """
    return _joined(decode(store.get(one.key).data, one.key) for one in segments)


def _joined(parts: Iterable[Sources]) -> Sources:
    files: list[SourceFile] = []
    runs: dict[str, Runs] = {}
    for part in parts:
        files += part.files
        runs.update(part.runs)
    return Sources(files=tuple(files), runs=runs)


def read_meanwhile(
    store: Store, before: Sequence[Segment], now: Sequence[Segment], mine: Sources
) -> SourceFile | None:
    """Return a file that somebody else has read in since, for a slot that is also in `mine`.

    Cost:
        Nothing if nobody has read anything in; else one GET a segment of both lists.
    """
    if tuple(before) == tuple(now):
        return None
    slots = {file.slot for file in mine.files}
    known = {file.key for file in read(store, before).files}
    for file in read(store, now).files:
        if file.slot in slots and file.key not in known:
            return file
    return None
