"""What lies under a dataset's prefix, and what can be proven of each object.

Only what is proven dead may be deleted. The proof is from the head, the history and the
reservations, all of which were read after the objects were listed; see docs/design/005-cleanup.md.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.model.keys import (
    TABLE,
    batch_id_of,
    decode_path,
    is_adopted,
    is_own_name,
    split_label,
)
from lakebed.state import history, published, reservation
from lakebed.state.history import Entry
from lakebed.state.protections import kept_files, protected_batches, protected_versions
from lakebed.state.published import Shown
from lakebed.state.reader import Head
from lakebed.state.reservation import LEASE, BatchRecord
from lakebed.state.state import State
from lakebed.state.transaction import read_own_head
from lakebed.store.base import ObjectInfo, Store

REQUESTS_AT_ONCE = 8
LOG_FOLDER = "cleanups"
KEEP_LOGS = dt.timedelta(days=366)

_SEGMENT = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}[^/]*")
_LISTS = frozenset({"files", "history", "runs", "sources"})
_INDEX_SUFFIX = ".by-dataset-index.parquet"
_NUMBER = re.compile(r"[0-9]{1,18}")
_SCHEMA_FILE = "_common_metadata"


class Reason(StrEnum):
    """Why an object is dead, or why it is kept."""

    SUPERSEDED = "superseded"
    ABANDONED = "abandoned"
    DEBRIS = "debris"
    UNREFERENCED = "unreferenced"
    TEMPORARY = "temporary"
    LIVE = "live"
    RETAINED = "retained"
    PROTECTED = "protected"
    PUBLISHED = "published"
    RESERVED = "reserved"
    YOUNG = "too young"
    UNKNOWN = "unknown"

    @property
    def is_dead(self) -> bool:
        """Whether a cleanup deletes the object."""
        return self in _DEAD


_DEAD = frozenset(
    {
        Reason.SUPERSEDED,
        Reason.ABANDONED,
        Reason.DEBRIS,
        Reason.UNREFERENCED,
        Reason.TEMPORARY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One object under the prefix of a dataset, and what is known of it.

    Attributes:
        key: Where it is, relative to the repository.
        size_bytes: Length; None for a temporary file, which no listing shows.
        reason: Why it is dead, or why it is kept.
        version: The version that took it out; None where no commit did.
        since: From when on it is dead, or when it was written; aware, UTC. None if unknown.
        note: What else there is to say.
    """

    key: str
    size_bytes: int | None
    reason: Reason
    version: int | None = None
    since: dt.datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The times by which objects are judged.

    Attributes:
        now: Aware, UTC.
        retention: For so long, what was superseded is kept.
        clock_skew: How far the clocks of writers and of the storage may be apart.
    """

    now: dt.datetime
    retention: dt.timedelta
    clock_skew: dt.timedelta

    @property
    def cutoff(self) -> dt.datetime:
        """What was superseded by then is dead."""
        return self.now - self.retention

    @property
    def longest_commit(self) -> dt.timedelta:
        """Nothing that is younger is taken for a leftover: its writer may still be at work."""
        return LEASE + self.clock_skew

    @property
    def oldest_lease(self) -> dt.datetime:
        """What is older has no lease, unless it says so."""
        return self.now - self.longest_commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Everything under the prefix, and what was read of it afterwards.

    Attributes:
        objects: As listed.
        head: As read after the listing.
        entries: The history of that head.
        records: Reservations of batches that are not committed; None where one cannot be read.
        published: What tables of a metastore may show.
    """

    objects: tuple[ObjectInfo, ...]
    head: Head
    entries: tuple[Entry, ...]
    records: Mapping[int, BatchRecord | None]
    published: tuple[Shown, ...] = ()


def look(store: Store, dataset: str) -> Sight:
    """List a dataset, then read what is needed to judge each object.

    The order is part of the proof: a reservation is older than the files of its batch, and a
    commit is in the head before anything can be said of what it brought.

    Cost:
        One LIST for each 1,000 objects, the head, the history, and one GET for each batch that is
        not committed.
    """
    read_own_head(store, dataset)  # a name that is no dataset of ours is refused before the LIST
    objects = tuple(store.list(f"{dataset}/"))
    reserved = _reserved_ids(store.list(reservation.folder(dataset)), dataset)
    head, entries = read_history(store, dataset)
    open_ids = sorted(reserved - _committed(entries))
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
        found = pool.map(lambda one: _read_record(store, dataset, one), open_ids)
        records = {
            batch_id: record
            for batch_id, (exists, record) in zip(open_ids, found, strict=True)
            if exists
        }
    return Sight(
        objects=objects,
        head=head,
        entries=entries,
        records=records,
        published=published.read(store, dataset),
    )


def read_history(store: Store, dataset: str) -> tuple[Head, tuple[Entry, ...]]:
    """Return the head of a dataset of ours, and its whole history."""
    head = read_own_head(store, dataset)
    return head, history.read(store, head.state.history)


def _reserved_ids(objects: Iterable[ObjectInfo], dataset: str) -> set[int]:
    prefix = f"{reservation.folder(dataset)}/"
    names = (one.key.removeprefix(prefix).removesuffix(reservation.SUFFIX) for one in objects)
    return {int(name) for name in names if _NUMBER.fullmatch(name)}


def _read_record(store: Store, dataset: str, batch_id: int) -> tuple[bool, BatchRecord | None]:
    key = f"{reservation.folder(dataset)}/{batch_id}{reservation.SUFFIX}"
    try:
        record = reservation.read_record(store, key)
        return True, record if record.batch_id == batch_id else None
    except ObjectNotFoundError:
        return False, None  # given back meanwhile
    except CorruptMetadataError:
        return True, None  # of a batch of which nothing can be proven


def _committed(entries: Iterable[Entry]) -> set[int]:
    return {entry.batch_id for entry in entries if entry.batch_id is not None}


class Judge:
    """Says of every object under the prefix whether it is dead, and why.

    It goes by what one state of the head says: the current one, or the one that a cleanup is
    about to commit.
    """

    def __init__(
        self,
        state: State,
        entries: Sequence[Entry],
        records: Mapping[int, BatchRecord | None],
        rules: Rules,
        shown: Sequence[Shown] = (),
    ) -> None:
        self._state = state
        self._entries = entries
        self._records = records
        self._rules = rules
        self._committed = _committed(entries)
        self._live = frozenset(state.labels)
        kept = kept_files(entries, state)
        self._retained, self._protected = kept.retained, kept.protected
        versions = {version for one in shown for version in one.versions}
        self._shown = history.labels_of(
            entries, [version for version in versions if version <= state.version]
        )
        self._batches = protected_batches(state)
        self._removed: dict[str, Entry] = {}
        self._ever: set[str] = set()
        for entry in entries:
            self._ever.update(entry.added)
            self._ever.update(entry.removed)
            self._removed.update(dict.fromkeys(entry.removed, entry))
        self._referenced = frozenset(state.side_keys)
        # Files that were there before the dataset lie anywhere in its directory.
        self._adopted = {
            state.key(label): label
            for label in (
                *self._ever,
                *self._live,
                *self._retained,
                *self._protected,
                *self._shown,
            )
            if is_adopted(label)
        }
        self._given_back: set[int] = set()
        starts = [batch_id for batch_id in records if not self._is_expired(batch_id)]
        self._oldest_start = _moment(min(starts)) if starts else rules.now

    @property
    def expired_batches(self) -> frozenset[int]:
        """Batches that were not committed and whose writers are dead.

        Their leases are over, or they were given back, but for files that `judge` has met.
        """
        expired = (one for one in self._records if self._is_expired(one))
        return frozenset((*expired, *self._given_back))

    @property
    def kept_labels(self) -> frozenset[str]:
        """Labels of the data files that must stay."""
        of_batches = (label for label in self._ever if batch_id_of(label) in self._batches)
        return frozenset((*self._retained, *self._protected, *self._shown, *of_batches))

    def judge(self, objects: Sequence[ObjectInfo]) -> list[StoredFile]:
        """Judge every object, in the order given."""
        named = [one for one in objects if one.key in self._referenced]
        by_folder: dict[str, list[dt.datetime]] = {}
        for one in named:
            by_folder.setdefault(split_label(one.key)[0], []).append(one.modified_at)
        return [self._judge(one, by_folder) for one in objects]

    def _judge(
        self, info: ObjectInfo, named_in_folder: Mapping[str, Sequence[dt.datetime]]
    ) -> StoredFile:
        folder, _, rest = info.key.removeprefix(f"{self._state.name}/").partition("/")
        if info.key in self._referenced:
            return _found(info, Reason.LIVE)
        if info.key in self._adopted:
            return self._judge_known(info, self._adopted[info.key])
        if folder == TABLE:
            return self._judge_data(info, rest)
        if folder == "batches":
            return self._judge_reservation(info, rest)
        if folder == "staging":
            return self._judge_staged(info, rest.partition("/")[0])
        if folder in ("signals", published.FOLDER):
            return _found(info, Reason.LIVE)
        if folder == LOG_FOLDER and _SEGMENT.fullmatch(rest):
            age = max(KEEP_LOGS, self._rules.retention)
            is_old = info.modified_at < self._rules.now - age
            return _found(info, Reason.UNREFERENCED if is_old else Reason.LIVE)
        if (folder in _LISTS and _SEGMENT.fullmatch(rest)) or _is_of_index(folder, rest):
            return self._judge_unnamed(info, named_in_folder.get(split_label(info.key)[0], ()))
        return _found(info, Reason.UNKNOWN, note="No object of a dataset has such a key.")

    def _judge_data(self, info: ObjectInfo, rest: str) -> StoredFile:
        if rest == _SCHEMA_FILE:
            return _found(info, Reason.LIVE)
        label = rest.removesuffix(self._state.descriptor.file_suffix)
        if label == rest:
            return _found(info, Reason.UNKNOWN, note="Data files have another suffix.")
        if (
            label in self._live
            or label in self._ever
            or label in self._retained
            or label in self._protected
        ):
            return self._judge_known(info, label)
        batch_id = batch_id_of(label)
        if batch_id is None or not is_own_name(label) or not self._has_levels(label):
            return _found(
                info, Reason.UNKNOWN, note="No commit brought it, and its name is no own."
            )
        return self._judge_staged(info, str(batch_id))

    def _judge_known(self, info: ObjectInfo, label: str) -> StoredFile:
        """Judge a file that a commit has brought."""
        if label in self._live:
            return _found(info, Reason.LIVE)
        if label in self._protected or (self._batches and batch_id_of(label) in self._batches):
            return self._taken_out(info, label, Reason.PROTECTED)
        if label in self._retained:
            return self._taken_out(info, label, Reason.RETAINED)
        if label in self._shown:
            return self._taken_out(info, label, Reason.PUBLISHED)
        return self._taken_out(info, label, Reason.SUPERSEDED)

    def _has_levels(self, label: str) -> bool:
        try:
            decode_path(split_label(label)[0], self._state.partition_types)
        except CorruptMetadataError:
            return False
        return True

    def _taken_out(self, info: ObjectInfo, label: str, reason: Reason) -> StoredFile:
        entry = self._removed.get(label)
        if entry is None:
            return _found(info, reason)
        return StoredFile(
            key=info.key,
            size_bytes=info.size_bytes,
            reason=reason,
            version=entry.version,
            since=entry.committed_at,
            note=f"Taken out by the {entry.operation} that made version {entry.version}.",
        )

    def _judge_staged(self, info: ObjectInfo, batch: str) -> StoredFile:
        """Judge a file that no commit has brought, by its batch."""
        if not _NUMBER.fullmatch(batch):
            return _found(info, Reason.UNKNOWN, note="It lies in no directory of a batch.")
        batch_id = int(batch)
        is_young = info.modified_at > self._rules.oldest_lease
        if batch_id in self._committed:
            note = f"Batch {batch_id} was committed without it."
            return _found(info, Reason.YOUNG if is_young else Reason.DEBRIS, note=note)
        if batch_id in self._records:
            return self._judge_reserved(info, batch_id)
        # Given back by its writer, whose tasks may have been slower than itself.
        if not self._may_commit(batch_id):
            note = f"Batch {batch_id} was given up."
            return _found(info, Reason.ABANDONED, since=info.modified_at, note=note)
        started = _moment(batch_id)
        if not is_young and started is not None and started < self._rules.oldest_lease:
            self._given_back.add(batch_id)
        return _found(info, Reason.YOUNG, note=f"Batch {batch_id} was given up not long ago.")

    def _judge_reservation(self, info: ObjectInfo, rest: str) -> StoredFile:
        name = rest.removesuffix(reservation.SUFFIX)
        if name == rest or not _NUMBER.fullmatch(name):
            return _found(info, Reason.UNKNOWN, note="No reservation has such a key.")
        if int(name) in self._committed:
            return _found(info, Reason.LIVE)
        if int(name) in self._records:
            return self._judge_reserved(info, int(name))
        return _found(info, Reason.YOUNG, note="It was given back while this cleanup looked.")

    def _judge_reserved(self, info: ObjectInfo, batch_id: int) -> StoredFile:
        record = self._records[batch_id]
        if record is None:
            return _found(info, Reason.UNKNOWN, note="The reservation cannot be read.")
        who = f"{record.operation} by {record.writer}"
        until = record.lease_until.isoformat()
        if not self._is_expired(batch_id):
            return _found(info, Reason.RESERVED, note=f"For the {who}, with a lease until {until}.")
        if self._may_commit(batch_id):
            return _found(info, Reason.YOUNG, note=f"Batch {batch_id} is not shut out yet.")
        note = f"The {who} was not committed; its lease was over at {until}."
        return _found(info, Reason.ABANDONED, since=record.lease_until, note=note)

    def _may_commit(self, batch_id: int) -> bool:
        state = self._state
        return batch_id >= state.oldest_batch or batch_id in state.open_batches

    def _is_expired(self, batch_id: int) -> bool:
        record = self._records[batch_id]
        if record is None:
            return False
        return record.lease_until <= self._rules.now - self._rules.clock_skew

    def _judge_unnamed(self, info: ObjectInfo, named: Sequence[dt.datetime]) -> StoredFile:
        """Judge a segment that the head does not name.

        It was merged, or a commit wrote it that did not win, or one that is at work. What took a
        merged one in is the first that is still named among those written later. Whoever has read
        an older head may still need it, as long as that is younger than the retention.
        """
        rules = self._rules
        age = max(rules.retention, rules.longest_commit)
        oldest_start = self._oldest_start or info.modified_at
        if info.modified_at >= min(rules.now - age, oldest_start - rules.clock_skew):
            return _found(info, Reason.YOUNG, note="A commit may still be about to name it.")
        successors = [moment for moment in named if moment >= info.modified_at]
        if successors and min(successors) > rules.cutoff:
            return _found(info, Reason.RETAINED, note="A reader of an older head may need it.")
        note = "The head does not name it."
        return _found(info, Reason.UNREFERENCED, since=info.modified_at, note=note)


def _found(
    info: ObjectInfo, reason: Reason, *, since: dt.datetime | None = None, note: str = ""
) -> StoredFile:
    return StoredFile(
        key=info.key, size_bytes=info.size_bytes, reason=reason, since=since, note=note
    )


def _is_of_index(folder: str, rest: str) -> bool:
    column, _, name = rest.partition("/")
    if not column or not name or "/" in name:
        return False
    if folder == "postings":
        return _SEGMENT.fullmatch(name) is not None
    return folder == "indices" and name.endswith(_INDEX_SUFFIX)


def _moment(batch_id: int) -> dt.datetime | None:
    """Return when a batch was reserved, by its writer's clock; None if no clock shows that."""
    try:
        return dt.datetime.fromtimestamp(batch_id / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def horizon_of(state: State, entries: Sequence[Entry], rules: Rules) -> int:
    """Return the oldest version that was current at some moment of the retention."""
    old = [entry.version for entry in entries if entry.committed_at <= rules.cutoff]
    return max(state.horizon, max(old, default=0))


__all__ = [
    "Judge",
    "Reason",
    "Rules",
    "Sight",
    "StoredFile",
    "horizon_of",
    "look",
    "protected_versions",
    "read_history",
]
