"""History: one small entry a commit, from which every older state can be told."""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from lakebed.errors import CorruptMetadataError, VersionNotFoundError
from lakebed.model.keys import BatchId
from lakebed.model.layout import Folder
from lakebed.state.caught import Caught
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import Segment, read_segment

_LOSS = "The current version is not affected; older versions and conflicts are."

SUFFIX = ".json"


def folder(dataset: str) -> str:
    """Return where the entries of a dataset lie."""
    return Folder.HISTORY.of(dataset)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit did.

    Attributes:
        version: The version that it made.
        commit_id: Stable over retries.
        operation: Such as `append` or `cleanup`, or `foreign` for changes of other tools; docs/format.md lists them.
        committed_at: By the committer's clock, never before the commit before.
        batch_id: The batch that it made visible, if any.
        run: Name of the run, if it had one.
        row_count: Entities in the files that it added.
        deleted_row_count: Entities that a delete or a merge took out.
        inserted_row_count: Entities that a merge added, or a rollback that takes no file out.
        updated_row_count: Entities that a merge changed.
        rewritten_row_count: Of `row_count`, those of an ingest or a transaction that were there
            before, in files that it took out, and are as they were.
        removed_row_count: Entities in the files that it took out; None where they are not counted,
            or where the other counts say it: of a delete, a merge, a compaction, a promotion.
        added: Labels of the files that it added.
        removed: Labels of the files that it took out.
        partitions: Partitions that it touched.
        carried: By label of a file that was written anew: the run whose rows it holds.
        horizon: Of a cleanup: versions before it can only be read if they are protected.
        protected: What a protection keeps from now on, in words.
        unprotected: What lost its protection, in words.
        restores: Of a rollback: the version that it went back to. Older releases noted none.
        caught: What the caps of dimensions sent to `OTHER`.
        descriptor: The descriptor from this version on, where it changed.
        stored_at: When the storage took the entry, by the clock of the storage. A commit cannot
            know that: who reads the entry's own segment learns it, and a merge writes it down.
    """

    version: Annotated[int, msgspec.Meta(ge=0)]
    commit_id: str
    operation: str
    committed_at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    batch_id: BatchId | None = None
    run: str | None = None
    row_count: int = 0
    deleted_row_count: int = 0
    inserted_row_count: int = 0
    updated_row_count: int = 0
    rewritten_row_count: int = 0
    removed_row_count: int | None = None
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    caught: tuple[Caught, ...] = ()
    carried: dict[str, str] = {}
    horizon: int | None = None
    protected: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    restores: Annotated[int, msgspec.Meta(ge=0)] | None = None
    descriptor: dict[str, Any] | None = None
    stored_at: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastState:
    """What is needed to read an older version."""

    labels: tuple[str, ...]
    descriptor: dict[str, Any]
    entry: Entry


def encode(entries: Sequence[Entry]) -> bytes:
    """Return the bytes of a segment."""
    return msgspec.json.encode({"entries": entries})


class _Document(msgspec.Struct):
    entries: tuple[Entry, ...]


def decode(data: bytes, key: str, stored_at: dt.datetime | None = None) -> tuple[Entry, ...]:
    """Read a segment.

    Args:
        data: Its bytes.
        key: For errors.
        stored_at: When the storage took it, if that is known. It is the time of the newest entry,
            unless that says so itself; of those that an earlier release has merged with it, it
            says nothing.

    Raises:
        CorruptMetadataError: It is truncated or of a wrong form.
    """
    try:
        entries = msgspec.json.decode(data, type=_Document).entries
        if not entries or entries[-1].stored_at is not None:
            return entries
        return (*entries[:-1], msgspec.structs.replace(entries[-1], stored_at=stored_at))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise CorruptMetadataError(
            f"History {key!r} cannot be read: {exc}.",
            hint=_LOSS,
        ) from exc


def merge(parts: Sequence[StoredObject]) -> bytes:
    """Return several segments as one, with the time at which the storage took each."""
    return encode([entry for part in parts for entry in _entries_in(part)])


def _entries_in(segment: StoredObject) -> tuple[Entry, ...]:
    return decode(segment.data, segment.key, segment.modified_at)


def read(store: Store, segments: Sequence[Segment], *, after: int = -1) -> tuple[Entry, ...]:
    """Return the entries of versions above `after`, oldest first.

    Segments are read from the newest back, as far as needed.

    Cost:
        One GET a segment; for recent versions usually one.
    """
    parts: list[tuple[Entry, ...]] = []
    for segment in reversed(segments):
        entries = _entries_in(read_segment(store, segment, "History", _LOSS))
        parts.append(tuple(entry for entry in entries if entry.version > after))
        if entries and entries[0].version <= after + 1:
            break
    return tuple(entry for entries in reversed(parts) for entry in entries)


def landing_times(entries: Sequence[Entry]) -> dict[int, dt.datetime]:
    """Return when each version became current, as far as can be told without trusting a writer.

    That is the time at which the storage took the entry. Entries of earlier releases lack it, and
    so do those of other tools: theirs is what the committer said, between the times of the entries
    around them. And no version became current after a later one did, whatever a clock said.

    Args:
        entries: Oldest first.
    """
    times: list[dt.datetime] = []
    floor: dt.datetime | None = None
    for entry in entries:
        told = max(entry.committed_at, floor) if floor else entry.committed_at
        times.append(entry.stored_at or told)
        floor = entry.stored_at or floor
    for place in range(len(times) - 2, -1, -1):
        times[place] = min(times[place], times[place + 1])
    return {entry.version: moment for entry, moment in zip(entries, times, strict=True)}


def labels_of(entries: Sequence[Entry], versions: Collection[int]) -> frozenset[str]:
    """Return the files of any of some versions, in one pass over the history.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    missing = frozenset(versions).difference(entry.version for entry in entries)
    if missing:
        raise _no_version(entries, min(missing))
    wanted = sorted(versions)
    added_in: dict[str, int] = {}  # of the files that are there
    labels = set()
    for entry in entries:
        for label in entry.removed:
            added = added_in.pop(label, entry.version)
            place = bisect.bisect_left(wanted, added)
            if place < len(wanted) and wanted[place] < entry.version:
                labels.add(label)
        for label in entry.added:
            added_in.setdefault(label, entry.version)
    last = wanted[-1] if wanted else -1
    labels.update(label for label, added in added_in.items() if added <= last)
    return frozenset(labels)


def net_labels(entries: Sequence[Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that came with some commits in a row, and those that went.

    A file that came and went again, or went and came back, is in neither.

    Args:
        entries: Of the commits, oldest first.
    """
    added: dict[str, None] = {}
    removed: dict[str, None] = {}
    for entry in entries:
        for label in entry.removed:
            if label in added:
                del added[label]
            else:
                removed[label] = None
        for label in entry.added:
            if label in removed:
                del removed[label]
            else:
                added[label] = None
    return tuple(added), tuple(removed)


def _no_version(entries: Sequence[Entry], version: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"There is no version {version}.",
        hint=f"Versions are 0 to {max((entry.version for entry in entries), default=0)}.",
    )


def replay(entries: Sequence[Entry], version: int) -> PastState:
    """Return the state after the commit that made `version`.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    labels: dict[str, None] = {}
    descriptor: dict[str, Any] = {}
    last: Entry | None = None
    for entry in entries:
        if entry.version > version:
            break
        for label in entry.removed:
            labels.pop(label, None)
        labels.update(dict.fromkeys(entry.added))
        descriptor = entry.descriptor or descriptor
        last = entry
    if last is None or last.version != version:
        raise _no_version(entries, version)
    return PastState(labels=tuple(labels), descriptor=descriptor, entry=last)
