"""History: one small entry per commit, from which every older state can be reconstructed."""

from __future__ import annotations

import bisect
import datetime as dt
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError, VersionNotFoundError
from lakebed.model.keys import BatchId
from lakebed.model.layout import Folder
from lakebed.state.caught import Caught
from lakebed.state.check_results import CheckOutcome
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import Segment, due_end, end_within, pack, read_segment, unpack

LOSS = "The current version is not affected; older versions and the check for conflicts are."

MERGE = "merge"
UPDATE_ROWS = "update_rows"
# Operations that rewrite files: they copy rows which other commits, and other runs, have written.
REWRITING = frozenset({"compact", "delete", MERGE, "promote", UPDATE_ROWS})
SUFFIX = ".json.zst"
PLAIN_SUFFIX = ".json"  # of segments of early releases, which are not compressed
# Weight of the segments that a commit merges, together: about a megabyte. A heavier segment stays
# as it is, so a commit after a load of a million files does not write their labels again.
MOST_MERGED = 2**16
# Weight of the segments that a compaction merges, together: a third of the largest document.
MOST_COMPACTED = 2**22


def folder(dataset: str) -> str:
    """Return the folder of the entries of a dataset."""
    return Folder.HISTORY.of(dataset)


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of one commit.

    Attributes:
        version: The version that it made.
        commit_id: Stable over retries.
        operation: Such as `append` or `cleanup`, or `foreign` for changes by other tools; docs/format.md lists them.
        committed_at: By the committer's clock, never before the previous commit.
        batch_id: The batch that it made visible, if any.
        run: Name of the run, if it had one.
        row_count: Number of entities in the files that it added.
        deleted_row_count: Number of entities that a delete or a merge removed.
        inserted_row_count: Number of entities that a merge added, or a rollback that removes no file.
        updated_row_count: Number of entities that a merge changed.
        rewritten_row_count: The part of `row_count` that an ingest or a transaction copied unchanged
            from files that it removed.
        removed_row_count: Number of entities in the files that it removed; None if they are not
            counted, or if the other counts imply it: for a delete, merge, compaction or promotion.
        added: Labels of the files that it added.
        removed: Labels of the files that it removed.
        partitions: Partitions that it touched.
        carried: The run whose rows a rewritten file holds, by label of the file.
        horizon: Set by a cleanup: earlier versions can only be read if they are protected.
        protected: Targets that gained a protection, in words.
        unprotected: Targets that lost their protection, in words.
        restores: The version that a rollback went back to. Older releases did not record it.
        caught: Values that the caps of dimensions sent to `OTHER`.
        checks: Results of the declared checks for the rows of the commit.
        descriptor: The descriptor from this version on, if it changed.
        stored_at: Time when the storage stored the entry, by the clock of the storage. The commit
            itself cannot know it: readers take it from the entry's own segment, and a merge
            records it. Of a tree they take it from the head, and the next commit records it.
        erased: Marks of the files that an erasure has taken out of all versions; see
            `lakebed.state.erasing`.
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
    checks: tuple[CheckOutcome, ...] = ()
    descriptor: dict[str, Any] | None = None
    stored_at: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None
    erased: tuple[str, ...] = ()

    @property
    def checks_all_added(self) -> bool:
        """True if its results of checks are for all rows of the files that it adds."""
        is_write = any(not result.is_of_all for result in self.checks)
        return is_write and not self.rewritten_row_count and self.operation not in REWRITING


@dataclass(frozen=True, slots=True, kw_only=True)
class PastState:
    """The labels, the descriptor and the entry of an older version."""

    labels: tuple[str, ...]
    descriptor: dict[str, Any]
    entry: Entry


class OtherEntries(Segment, ABC):
    """A segment that is not an object of the usual form, such as the last commits in a root."""

    __slots__ = ()

    @abstractmethod
    def read(self, store: Store, *, labels_after: int = -1) -> tuple[Entry, ...]:
        """Return the entries, oldest first.

        Args:
            store: The store that holds the dataset.
            labels_after: Entries up to this version need not have all labels of their files.

        Raises:
            CorruptMetadataError: They cannot be read.
        """


def weight_of(entries: Iterable[Entry]) -> int:
    """Return the weight of a segment: the number of its entries and of the labels in them."""
    return sum(1 + len(entry.added) + len(entry.removed) + len(entry.carried) for entry in entries)


def new_segment(dataset: str, entries: Sequence[Entry]) -> Segment:
    """Return a new segment for some entries of a dataset."""
    return Segment.new(folder(dataset), weight_of(entries), SUFFIX)


def find_due(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments at the end of a list that a commit merges; empty if no level is full.

    Segments of early releases are not merged. They are weighed by their commits alone, and a light
    one may hold a million labels.
    """

    def size(segment: Segment) -> int:
        return segment.weight if segment.key.endswith(SUFFIX) else MOST_MERGED + 1

    return due_end(end_within(segments, size, MOST_MERGED))


def encode(entries: Sequence[Entry]) -> bytes:
    """Return the bytes of a segment."""
    return pack({"entries": entries}, level=1)


class _Document(msgspec.Struct):
    entries: tuple[Entry, ...]


def decode(data: bytes, key: str, stored_at: dt.datetime | None = None) -> tuple[Entry, ...]:
    """Read a segment.

    Args:
        data: The bytes of the segment.
        key: Key of the segment, for errors.
        stored_at: Time when the storage stored the segment, if known. It becomes the time of the
            newest entry, unless that has one itself, and of those that the same put made: they have
            the same time of the committer. For older entries that an earlier release merged with
            it, the time is unknown.

    Raises:
        CorruptMetadataError: The segment is truncated or malformed.
    """
    what = f"History {key!r}"
    is_packed = key.endswith(SUFFIX)
    document = unpack(data, _Document, what, LOSS) if is_packed else _read_plain(data, what)
    entries = document.entries
    if not entries or entries[-1].stored_at is not None:
        return entries
    newest = entries[-1].committed_at
    return tuple(
        msgspec.structs.replace(entry, stored_at=stored_at)
        if entry.committed_at == newest and entry.stored_at is None
        else entry
        for entry in entries
    )


def _read_plain(data: bytes, what: str) -> _Document:
    """Read a segment of an early release, which is not compressed."""
    try:
        return from_json(data, _Document)
    except UNREADABLE as exc:
        raise CorruptMetadataError(f"{what} cannot be read: {exc}.", hint=LOSS) from exc


def merge(parts: Sequence[StoredObject]) -> bytes:
    """Merge several segments into one, with the time when the storage stored each."""
    return encode(joined(parts))


def joined(parts: Iterable[StoredObject]) -> tuple[Entry, ...]:
    """Return the entries of several segments, with the time when the storage stored each."""
    return tuple(entry for part in parts for entry in _entries_in(part))


def _entries_in(segment: StoredObject) -> tuple[Entry, ...]:
    return decode(segment.data, segment.key, segment.modified_at)


def read(
    store: Store,
    segments: Sequence[Segment],
    *,
    after: int = -1,
    labels_after: int = -1,
    until: int | None = None,
) -> tuple[Entry, ...]:
    """Return the entries of versions above `after`, oldest first.

    Segments are read from the newest back, as far as needed. Entries up to `labels_after` need not
    have all labels of their files: those of a tree name leaves instead of many labels.

    Args:
        store: The store that holds the segments.
        segments: The segments, oldest first.
        after: Version after which entries are needed.
        labels_after: Version up to which entries need not have all labels.
        until: Version of the state that names the segments, which must have its entry. None for
            segments that are not all of a state.

    Raises:
        CorruptMetadataError: A segment is missing or damaged, or holds the entries of another one.

    Cost:
        One GET a segment; for recent versions usually one. Of a tree also the leaves that commits
        above `labels_after` name.
    """
    parts: list[tuple[Entry, ...]] = []
    for segment in reversed(segments):
        entries = entries_of(store, segment, labels_after=max(after, labels_after))
        parts.append(entries)
        if entries and entries[0].version <= after + 1:
            break
    found = tuple(entry for entries in reversed(parts) for entry in entries)
    # With those up to `after`: a segment of other entries may have nothing else.
    check_whole(segments, found, after=after, until=until)
    return tuple(entry for entry in found if entry.version > after)


def check_whole(
    segments: Sequence[Segment], entries: Sequence[Entry], *, after: int = -1, until: int | None
) -> None:
    """Check that entries follow each other, up to a version; see `read`.

    Raises:
        CorruptMetadataError: A segment holds the entries of another one.
    """
    last = entries[-1].version if entries else after
    if segments and until is not None and last < until:
        raise _not_whole(segments, f"its last version is {last}, and not {until}")
    for one, other in itertools.pairwise(entries):
        if other.version != one.version + 1:
            raise _not_whole(segments, f"version {other.version} follows version {one.version}")


def _not_whole(segments: Sequence[Segment], problem: str) -> CorruptMetadataError:
    folder = segments[0].key.rpartition("/")[0]  # the last commits of a tree have no key
    return CorruptMetadataError(
        f"History {folder!r} cannot be read: {problem}.",
        hint=f"An object has taken the place of another one: restore it from a copy. {LOSS}",
    )


def read_bare(store: Store, segments: Sequence[Segment]) -> tuple[Entry, ...]:
    """Return all entries, oldest first, which need not have the labels of their files.

    Cost:
        One GET a segment.
    """
    return read(store, segments, labels_after=2**63)


def read_at_once(store: Store, segments: Sequence[Segment], threads: int) -> tuple[Entry, ...]:
    """Return all entries of some segments, oldest first, of which all are needed.

    Args:
        store: The store that holds them.
        segments: The segments, oldest first.
        threads: Number of requests at a time.

    Cost:
        One GET a segment.
    """
    parts = at_once(functools.partial(entries_of, store), segments, threads)
    return tuple(entry for entries in parts for entry in entries)


def entries_of(store: Store, segment: Segment, *, labels_after: int = -1) -> tuple[Entry, ...]:
    """Return the entries of one segment, oldest first; for `labels_after` see `read`.

    Raises:
        CorruptMetadataError: The segment is missing or damaged.

    Cost:
        One GET; nothing for the commits in the root of a tree.
    """
    if isinstance(segment, OtherEntries):
        return segment.read(store, labels_after=labels_after)
    return _entries_in(read_segment(store, segment, "History", LOSS))


def landing_times(
    entries: Sequence[Entry], manifests: Mapping[int, dt.datetime] | None = None
) -> dict[int, dt.datetime]:
    """Return the time when each version became current, by the clock of the storage if possible.

    This is the time when the storage stored the entry. Entries of earlier releases and of other
    tools lack it, and some of a tree: for these it is the committer's time, limited by the times of
    the entries around them, and by that of the manifest of the batch, which is written before. No
    version became current after a later one, even if a clock claims so.

    Args:
        entries: Entries of the history, oldest first.
        manifests: When the storage stored the manifests of batches, as far as that is known.
    """
    written = manifests or {}
    times: list[dt.datetime] = []
    floor: dt.datetime | None = None
    for entry in entries:
        least = None if entry.batch_id is None else written.get(entry.batch_id)
        if least is not None and entry.stored_at is None:
            floor = max(floor, least) if floor else least
        reported = max(entry.committed_at, floor) if floor else entry.committed_at
        times.append(entry.stored_at or reported)
        floor = entry.stored_at or floor
    for index in range(len(times) - 2, -1, -1):
        times[index] = min(times[index], times[index + 1])
    return {entry.version: moment for entry, moment in zip(entries, times, strict=True)}


def labels_of(entries: Sequence[Entry], versions: Collection[int]) -> frozenset[str]:
    """Return the labels of all files in any of the versions, in one pass over the history.

    Raises:
        VersionNotFoundError: The version does not exist.
    """
    missing = frozenset(versions).difference(entry.version for entry in entries)
    if missing:
        raise _no_version(entries, min(missing))
    wanted = sorted(versions)
    added_in: dict[str, int] = {}  # of the files that are live
    labels = set()
    for entry in entries:
        for label in entry.removed:
            added = added_in.pop(label, entry.version)
            index = bisect.bisect_left(wanted, added)
            if index < len(wanted) and wanted[index] < entry.version:
                labels.add(label)
        for label in entry.added:
            added_in.setdefault(label, entry.version)
    last = wanted[-1] if wanted else -1
    labels.update(label for label, added in added_in.items() if added <= last)
    return frozenset(labels)


def net_labels(entries: Sequence[Entry]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the files that consecutive commits added in total, and those that they removed.

    A file that was added and removed again, or removed and added back, is in neither.

    Args:
        entries: Entries of the commits, oldest first.
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
        f"The dataset has no version {version}.",
        hint=f"Versions are 0 to {max((entry.version for entry in entries), default=0)}.",
    )


def replay(entries: Sequence[Entry], version: int) -> PastState:
    """Return the state after the commit that made `version`.

    Raises:
        VersionNotFoundError: The version does not exist.
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
