"""Inventory of the objects of a dataset, with a verdict on each: dead or kept.

Only objects that are proven dead may be deleted. The proof uses the head, the history and the
reservations, all read after the objects were listed; see docs/design/005-cleanup.md.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.model.keys import (
    batch_id_of,
    decode_path,
    is_adopted,
    is_own_name,
    split_label,
    started_ms,
)
from lakebed.model.layout import (
    DELTA_LOG,
    INDEX_SUFFIX,
    SCHEMA_FILE,
    TABLE,
    Folder,
    is_copy_name,
    is_segment_name,
)
from lakebed.model.schema import Type
from lakebed.state import history, published, reservation
from lakebed.state.handover import OPERATION as HAND_OVER
from lakebed.state.history import Entry
from lakebed.state.published import OldMetadata, Shown
from lakebed.state.readable import kept_files, protected_batches, protected_versions
from lakebed.state.reader import read_own_head
from lakebed.state.reservation import LEASE, BatchRecord
from lakebed.state.state import State, descriptor_from
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, Store
from lakebed.work.cleanup_log import Observation, logs_in, observation_before, surplus
from lakebed.work.known_history import EARLIER, KnownHistory, has_batches, reads_back_to

if TYPE_CHECKING:
    from lakebed.state.tree.tree_objects import TreeObjects

REQUESTS_AT_ONCE = 8
KEEP_LOGS = dt.timedelta(days=366)
_MOST_UNKNOWN = 16  # batches whose records are read before the whole history is

_OF_TREES = (Folder.LEAVES, Folder.ROOTS)
_LISTS = (Folder.FILES, Folder.HISTORY, Folder.RUNS, Folder.SOURCES)
FOLDERS_OF_LISTS = (*_LISTS, Folder.POSTINGS)
_NUMBER = re.compile(r"[0-9]{1,18}")
_EVER = dt.datetime.min.replace(tzinfo=dt.UTC)
_NEVER = dt.datetime.max.replace(tzinfo=dt.UTC)


FindDeadMetadata = Callable[[Store, str, Sequence[ObjectInfo], dt.datetime], OldMetadata]
"""Judges the metadata of published tables; receives a dataset, its objects and a moment.

Metadata is dead if no reader of a table that began after that moment can need it.
"""

AskTables = Callable[[Sequence[str]], Mapping[str, str]]
"""Receives tables, as `database.table`, and returns the directories that they show.

Directories are keys without a final slash, each with the name of a table that shows it.
"""


class Reason(StrEnum):
    """Reason why an object is dead or kept."""

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
        """True if a cleanup deletes the object."""
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
class JudgedFile:
    """One object under the prefix of a dataset, with its verdict.

    Attributes:
        key: Path of the object in the repository.
        size_bytes: Length; None for a temporary file, which no listing shows.
        reason: Reason why it is dead or kept.
        version: The version that removed it; None if no commit did.
        since: Time since which it is dead, or when it was written; aware, UTC. None if unknown.
        note: Details of the reason.
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
        now: Current time; aware, UTC.
        retention: Superseded files are kept for this long.
        clock_skew: Largest difference between the clocks of writers and of the storage.
        settled_at: Time of an erasure, by the clock of the storage, after which readers may not need
            segments from before it any more; None for none. A commit that wrote segments without a
            reservation before it is refused, so that those which no head names are dead.
    """

    now: dt.datetime
    retention: dt.timedelta
    clock_skew: dt.timedelta
    settled_at: dt.datetime | None = None

    @property
    def cutoff(self) -> dt.datetime:
        """Time by which a superseded file is dead."""
        return self.now - self.retention

    @property
    def longest_commit(self) -> dt.timedelta:
        """Age below which no object counts as a leftover: its writer may still be at work."""
        return LEASE + self.clock_skew

    @property
    def oldest_lease(self) -> dt.datetime:
        """Time before which an object has no lease, unless its reservation names a later end."""
        return self.now - self.longest_commit


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """A batch that is not committed.

    Attributes:
        record: Its reservation; None if it cannot be read.
        modified_at: Time of the last write of the reservation, by the clock of the storage.
        problem: Reason why the reservation cannot be read.
    """

    record: BatchRecord | None
    modified_at: dt.datetime
    problem: str = ""

    @property
    def is_staged(self) -> bool:
        """True if it is completely written, and its record names all its segments."""
        return self.record is not None and self.record.staging is not None

    @property
    def base_version(self) -> int | None:
        """A version such that a later one would have committed it; None if that is unknown.

        A writer completes the record before it commits, so an incomplete one was not committed.
        """
        if self.record is None or (self.record.files is not None and self.record.staging is None):
            return None
        return sys.maxsize if self.record.staging is None else self.record.staging.base_version

    @property
    def segments(self) -> frozenset[str]:
        """The keys of facts and postings that the commit of a staged batch will name."""
        staging = self.record.staging if self.record is not None else None
        if staging is None:
            return frozenset()
        postings = (key for keys in staging.postings.values() for key in keys)
        return frozenset((*postings, *((staging.facts,) if staging.facts else ())))

    def began_at(self, clock_skew: dt.timedelta) -> dt.datetime:
        """Return a moment before which its writer has written nothing, by the clock of the storage.

        The writer last wrote the reservation at most `_span` after its start, for which its clock is
        used only for durations. A negative span gives no bound. If the storage stored it after the
        lease, the writer has stood still, or the request was under way for long: then the start
        counts, too.

        Args:
            clock_skew: Largest difference between the clocks of writers and of the storage.
        """
        by_span = _EVER if self._span < dt.timedelta() else _before(self.modified_at, self._span)
        record = self.record
        if record is None or self.modified_at < _before(record.lease_until, clock_skew):
            return by_span
        return min(by_span, self._started(clock_skew))

    def began_after(self, clock_skew: dt.timedelta) -> dt.datetime:
        """Return the latest moment before which its writer has surely written nothing.

        Args:
            clock_skew: As for `began_at`.
        """
        return max(self.began_at(clock_skew), self._started(clock_skew))

    def _started(self, clock_skew: dt.timedelta) -> dt.datetime:
        if self.record is None:
            return _EVER
        return min(_before(self.record.started_at, clock_skew), self.modified_at)

    def lease_is_over(self, rules: Rules) -> bool:
        """Return whether the writer may be considered dead.

        The times of the record decide; if its start is in the future, the clock of the storage.
        """
        if self.record is None:
            return False
        now = _before(rules.now, rules.clock_skew)
        if self.record.started_at <= rules.now + rules.clock_skew:
            return self.record.lease_until <= now
        return self.modified_at <= _before(now, self._span)

    @property
    def _span(self) -> dt.timedelta:
        """Time from the start to the end of the lease, by the clock of the writer alone."""
        if self.record is None:
            return dt.timedelta.max
        return self.record.lease_until - self.record.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All objects under the prefix of a dataset, and the metadata that was read afterwards.

    Attributes:
        objects: The listed objects.
        state: State of the dataset, read after the listing.
        history: The history of that state, as far as it is known.
        reserved: The batches that are not committed, by id.
        published: The versions that tables may show, as recorded by publications.
        tree: The objects that a head which is a tree refers to; None for a document.
        shown: Directories that tables of a metastore show, each with the name of one of the tables.
        metadata: Dead and unreadable metadata of published tables.
        observed: The segments that a head before the retention named; None if that is unknown.
        manifests: When the storage stored the manifest of each batch of a tree: no later than the
            commit.
        landed: The same of batches that were committed at once, as far as the committer's time
            differs from it.
    """

    objects: tuple[ObjectInfo, ...]
    state: State
    history: KnownHistory
    reserved: Mapping[int, Reserved]
    published: tuple[Shown, ...] = ()
    tree: TreeObjects | None = None
    shown: Mapping[str, str] = field(default_factory=dict)
    metadata: OldMetadata = field(default_factory=OldMetadata)
    observed: Observation | None = None
    manifests: Mapping[int, dt.datetime] = field(default_factory=dict)
    landed: Mapping[int, dt.datetime] = field(default_factory=dict)

    @property
    def times(self) -> dict[int, dt.datetime]:
        """The time when each known version became current."""
        entries = (
            msgspec.structs.replace(entry, stored_at=self.landed.get(entry.batch_id))
            if entry.stored_at is None and entry.batch_id is not None
            else entry
            for entry in self.entries
        )
        return history.landing_times(tuple(entries), self.manifests)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of the history that are known."""
        return self.history.entries

    def judge_by(self, state: State, rules: Rules) -> Judge:
        """Return a judge of these objects by one state of the head."""
        return Judge(self, state, rules)

    def may_be_named(self, keys: Collection[str]) -> bool:
        """Return whether a stalled commit may still name one of the unreferenced segments.

        Only the commit of a cleanup or of an erasure prevents that: a commit that finds one since
        its base rewrites the segments that no reservation held. After any other commit, the stalled
        one reads the head again and names its segments.
        """
        written = [info.modified_at for info in self.objects if info.key in keys]
        if not written:
            return False
        fences = [
            entry.stored_at
            for entry in self.entries
            if entry.operation == "cleanup" or entry.erased
        ]
        return not fences or fences[-1] is None or max(written) >= fences[-1]


def take_inventory(
    store: Store, dataset: str, ask: AskTables | None = None, *, rules: Rules | None = None
) -> Inventory:
    """List a dataset, then read the metadata that is needed to judge each object.

    The order is part of the proof: a reservation is older than the files of its batch, and a
    commit is in the head before its files are judged. Tables are queried last.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        ask: Queries the metastore; None to rely on the records of publications.
        rules: The times by which the objects will be judged: the history is then read as far back
            as they need; None for the whole history.

    Cost:
        One LIST for each 1,000 objects, the head, the history, and one GET for each batch that is
        not committed. With `rules` one GET for the log of an earlier cleanup. The query of the
        metastore, if the dataset is published.
    """
    read_own_head(store, dataset)  # raises before the LIST if it is not a dataset of Lakebed
    objects = tuple(store.list(f"{dataset}/"))
    listed = reservation.listed(store, dataset)
    state, known, tree = read_history(store, dataset, rules)
    reserved = _reserved(store, state, known, listed)
    manifests = {one: info.modified_at for one, info in listed.items() if state.is_tree}
    notes = published.read(store, dataset)
    tables = [note.table for note in notes if note.kind == "hive"]
    logs = logs_in(objects, dataset)
    return Inventory(
        objects=objects,
        state=state,
        history=known,
        reserved=reserved,
        published=notes,
        tree=tree,
        shown=ask(tables) if ask is not None and tables else {},
        observed=None if rules is None else observation_before(store, logs, rules.cutoff),
        manifests=manifests,
        landed={} if rules is None else _landed(store, dataset, known.read, manifests, rules),
    )


def read_history(
    store: Store,
    dataset: str,
    rules: Rules | None = None,
    *,
    back_to: int = sys.maxsize,
    earlier: Inventory | None = None,
) -> tuple[State, KnownHistory, TreeObjects | None]:
    """Return the state of a dataset of Lakebed, its history, and the objects of a tree.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        rules: The times by which objects will be judged; None to read the whole history.
        back_to: A version whose files must be known, with those of all later ones.
        earlier: An inventory that was taken before: what it has read is not read again.
    """
    state = read_own_head(store, dataset).state
    known = KnownHistory.of(store, state, None if earlier is None else earlier.history)
    known.extend(lambda so_far: rules is not None and _is_enough(so_far, state, rules))
    known.extend(reads_back_to(back_to))
    if not state.is_tree:
        return state, known, None
    from lakebed.state.tree.tree_objects import find_objects

    return state, known, find_objects(store, state, None if earlier is None else earlier.tree)


def _is_enough(known: KnownHistory, state: State, rules: Rules) -> bool:
    """Return whether the last commits show what the next cleanup can give up.

    Older entries must not change the horizon; and an index file is judged by the last two commits of
    the time before the retention.
    """
    times = history.landing_times(known.read)
    old = [entry for entry in known.read if times[entry.version] <= rules.cutoff]
    if not old and known.oldest > state.horizon:
        return False
    return not state.indices or sum(1 for one in old if one.added or one.removed) >= 2


def _landed(
    store: Store,
    dataset: str,
    entries: Sequence[Entry],
    manifests: Mapping[int, dt.datetime],
    rules: Rules,
) -> dict[int, dt.datetime]:
    """Return when batches of a tree were committed whose committers claim a much later time.

    The manifest of a batch is written right before the commit, unless the batch was staged.

    Cost:
        One GET for each of them: none, unless a clock was wrong, or a batch was staged.
    """
    doubtful = [
        entry.batch_id
        for entry in entries
        if entry.stored_at is None
        and entry.batch_id is not None
        and entry.batch_id in manifests
        and entry.committed_at > manifests[entry.batch_id] + rules.clock_skew
    ]

    def moment_of(batch_id: int) -> dt.datetime | None:
        key = reservation.key_of(dataset, batch_id)
        try:
            stored = store.get(key)
            record = reservation.decode_record(stored.data, key)
        except (ObjectNotFoundError, CorruptMetadataError):
            return None
        is_at_once = record.completed_at is not None and record.staging is None
        return stored.modified_at if is_at_once else None

    found = at_once(moment_of, doubtful, REQUESTS_AT_ONCE)
    return {one: moment for one, moment in zip(doubtful, found, strict=True) if moment}


def _reserved(
    store: Store, state: State, known: KnownHistory, listed: Mapping[int, ObjectInfo]
) -> dict[int, Reserved]:
    """Return the listed batches that are not committed; read older commits if that is unclear."""

    def open_ids() -> list[int]:
        return sorted(listed.keys() - _committed(known, state))

    if len(open_ids()) > _MOST_UNKNOWN:
        known.extend(lambda _: False)
    ids = open_ids()
    read = at_once(lambda batch_id: _read(store, listed[batch_id]), ids, REQUESTS_AT_ONCE)
    reserved = {
        batch_id: batch for batch_id, batch in zip(ids, read, strict=True) if batch is not None
    }
    for batch in reserved.values():
        base = batch.base_version
        known.extend(reads_back_to(-1 if base is None else base))
    committed = _committed(known, state)
    return {batch_id: one for batch_id, one in reserved.items() if batch_id not in committed}


def _read(store: Store, info: ObjectInfo) -> Reserved | None:
    try:
        record = reservation.read_record(store, info.key)
    except ObjectNotFoundError:
        return None  # given back meanwhile
    except CorruptMetadataError as exc:
        return Reserved(record=None, modified_at=info.modified_at, problem=exc.message)
    return Reserved(record=record, modified_at=info.modified_at)


def _committed(known: KnownHistory, state: State) -> frozenset[int]:
    """Return the batches that are committed, as far as the known history and the files show.

    A name of Lakebed's form is that of a file of a batch, and only the commit of the batch adds it.
    """
    entries = known.entries
    ids = {entry.batch_id for entry in entries if entry.batch_id is not None}
    if not known.is_whole:
        labels = (*entries[0].added, *state.labels)
        ids |= batches_of(one for one in labels if is_own_name(one) or is_adopted(one))
    return frozenset(ids)


def batches_of(labels: Iterable[str]) -> set[int]:
    """Return the batches in whose directories data files lie."""
    directories = {label[: label.rfind("/") + 1] for label in labels}  # few of many labels
    ids = (batch_id_of(f"{directory}x") for directory in directories)
    return {batch_id for batch_id in ids if batch_id is not None}


class _OlderNeeded(Exception):  # noqa: N818 - no error: `Judge` reads older commits
    """The known part of the history does not decide about an object."""


class Judge:
    """Decides for every object under the prefix whether it is dead, and why.

    It judges by one state of the head: the current one, or the one that a cleanup is about to
    commit.
    """

    def __init__(self, inventory: Inventory, state: State, rules: Rules) -> None:
        self._inventory = inventory
        self._state = state
        self._rules = rules
        versions = {version for note in inventory.published for version in note.versions}
        for note in inventory.published:
            # A reader that has opened a table continues with the version that it showed.
            held = note.held_since(rules.cutoff)
            if held is not None:
                versions.update(range(held, state.version + 1))
        self._versions = frozenset(version for version in versions if version <= state.version)
        inventory.history.extend(
            reads_back_to(min((*protected_versions(state), *versions), default=sys.maxsize))
        )
        if protected_batches(state):
            inventory.history.extend(has_batches(protected_batches(state)))
        self._prepare()

    def _prepare(self) -> None:
        """Derive from the known history which objects are needed."""
        for name in ("_needed_batches", "_last_removals", "_oldest_index"):
            self.__dict__.pop(name, None)  # of fewer commits
        inventory, state, rules = self._inventory, self._state, self._rules
        known = inventory.history
        entries = self._entries = known.entries
        self._is_whole = known.is_whole
        # Files of older versions that can be read are not known otherwise.
        self._has_horizon = known.oldest <= state.horizon
        self._reserved = inventory.reserved
        self._committed = _committed(known, state)
        self._live = frozenset(state.labels)
        horizon = max(state.horizon, known.oldest)
        kept = kept_files(entries, replace(state, horizon=horizon))
        self._retained, self._protected = kept.retained, kept.protected
        self._directories = inventory.shown
        self._shown = history.labels_of(entries, self._versions)
        self._metadata = inventory.metadata
        self._batches = protected_batches(state)
        self._removed: dict[str, Entry] = {}
        self._ever: set[str] = set()
        for entry in entries:
            self._ever.update(entry.added)
            self._ever.update(entry.removed)
            self._removed.update(dict.fromkeys(entry.removed, entry))
        self._referenced = frozenset(state.side_keys)
        if inventory.tree is not None:
            wanted = (*protected_versions(state), *self._versions)
            self._referenced |= inventory.tree.needed_by(state.horizon, wanted)
        # Adopted files may lie anywhere in the directory of the dataset.
        self._adopted = {
            state.layout.key(label): label
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
        self._spent: set[int] = set()
        self._times = inventory.times
        # When the head stopped being a tree, or began to be one.
        self._moves = [
            self._times[entry.version] for entry in entries if entry.operation == HAND_OVER
        ]
        living = [
            batch
            for batch_id, batch in inventory.reserved.items()
            if self._state.may_commit(batch_id) or not self._is_expired(batch_id)
        ]
        self._staged_segments = frozenset(key for batch in living for key in batch.segments)
        writing = [batch for batch in living if not batch.is_staged]
        starts = (batch.began_at(rules.clock_skew) for batch in writing)
        self._oldest_start = _before(min(starts, default=rules.now), rules.clock_skew)
        # No writer at work has written a segment that is older.
        begun = (batch.began_after(rules.clock_skew) for batch in writing)
        self._first_start = min(begun, default=_NEVER)

    @property
    def expired_batches(self) -> frozenset[int]:
        """Batches that were not committed and whose writers are dead.

        Either their leases are over, or their reservations were given back and `judge` has found
        leftover files of them.
        """
        expired = (batch_id for batch_id in self._reserved if self._is_expired(batch_id))
        return frozenset((*expired, *self._given_back))

    @property
    def spent_batches(self) -> frozenset[int]:
        """Committed batches whose manifests `judge` found to be needed no longer, once shut out.

        An id below all ids that may be committed cannot be reserved again for another commit.
        """
        return frozenset(self._spent)

    @property
    def kept_labels(self) -> frozenset[str]:
        """Labels of the data files that must stay."""
        if not self._has_horizon:
            self._read_older()
        return self._kept_labels

    @property
    def _kept_labels(self) -> frozenset[str]:
        of_batches = (label for label in self._ever if batch_id_of(label) in self._batches)
        return frozenset((*self._retained, *self._protected, *self._shown, *of_batches))

    def observe(self) -> Observation | None:
        """Return which segments the state names, for later cleanups; None if that proves nothing.

        A segment is settled once a cleanup could delete it, if it were not for readers: no writer
        can still be about to name it, and the commit of a cleanup is younger.
        """
        fences = [entry.stored_at for entry in self._entries if entry.operation == "cleanup"]
        if not fences or fences[-1] is None:
            return None
        return Observation(
            named=frozenset((*self._state.lists.keys, *self._staged_segments)),
            settled_at=min(self._rules.oldest_lease, self._oldest_start, fences[-1]),
        )

    def judge(self, objects: Sequence[ObjectInfo]) -> list[JudgedFile]:
        """Judge every object, in the order given.

        Cost:
            Nothing, or older commits than those that are known: for a stray object, which is not of
            a recent commit, or one whose deletion was interrupted.
        """
        while True:
            try:
                return self._judge_all(objects)
            except _OlderNeeded:
                self._read_older()

    def _read_older(self) -> None:
        """Read back to the horizon of the head; if that is known already, read the whole history."""
        known, horizon = self._inventory.history, self._inventory.state.horizon
        known.extend(reads_back_to(horizon if known.oldest > horizon else -1))
        self._prepare()

    def _judge_all(self, objects: Sequence[ObjectInfo]) -> list[JudgedFile]:
        named = [info for info in objects if info.key in self._referenced]
        by_folder: dict[str, list[dt.datetime]] = {}
        for info in named:
            by_folder.setdefault(split_label(info.key)[0], []).append(info.modified_at)
        return [self._spared(self._judge(info, by_folder)) for info in objects]

    def _spared(self, file: JudgedFile) -> JudgedFile:
        """Keep an object in a directory that a table shows, regardless of its own verdict."""
        if not self._directories or not (file.reason.is_dead or file.reason is Reason.RETAINED):
            return file
        directory = file.key
        while directory:
            directory = directory.rpartition("/")[0]
            if directory in self._directories:
                note = f"Table {self._directories[directory]} shows the directory."
                return replace(file, reason=Reason.PUBLISHED, note=note)
        return file

    def _judge(
        self, info: ObjectInfo, named_in_folder: Mapping[str, Sequence[dt.datetime]]
    ) -> JudgedFile:
        folder, _, rest = info.key.removeprefix(f"{self._state.name}/").partition("/")
        if info.key in self._referenced:
            return _found(info, Reason.LIVE)
        if info.key in self._adopted:
            return self._judge_known(info, self._adopted[info.key])
        if folder == TABLE:
            return self._judge_data(info, rest)
        if folder == Folder.BATCHES:
            return self._judge_reservation(info, rest)
        if folder == Folder.STAGING:
            return self._judge_staged(info, rest.partition("/")[0])
        if folder in (Folder.SIGNALS, Folder.PUBLISHED, Folder.ERASURES):
            return _found(info, Reason.LIVE)
        if folder == Folder.ICEBERG:
            return self._judge_metadata(info)
        if folder == Folder.CLEANUPS and is_segment_name(rest):
            age = max(KEEP_LOGS, self._rules.retention)
            is_old = info.modified_at < self._rules.now - age or info.key in self._surplus_logs
            return _found(info, Reason.UNREFERENCED if is_old else Reason.LIVE)
        if folder in _OF_TREES and _is_of_tree(folder, rest):
            # The next copy of the head stands for what a fold has merged: each fold leaves one.
            copies = (*named_in_folder.get(Folder.ROOTS.of(self._state.name), ()), *self._moves)
            return self._judge_unnamed(info, copies)
        if (folder in _LISTS and is_segment_name(rest)) or _is_of_index(folder, rest):
            if folder == Folder.INDICES and info.modified_at < self._oldest_index:
                return self._replaced(info)
            return self._judge_unnamed(info, named_in_folder.get(split_label(info.key)[0], ()))
        return self._unknown(info, "No object of a dataset has such a key.")

    def _unknown(self, info: ObjectInfo, note: str) -> JudgedFile:
        """Return that nothing proves who wrote an object; older commits might."""
        self._require_whole()
        return _found(info, Reason.UNKNOWN, note=note)

    def _require_whole(self) -> None:
        if not self._is_whole:
            raise _OlderNeeded

    @cached_property
    def _surplus_logs(self) -> frozenset[str]:
        """Logs of cleanups that are not among the newest."""
        logs = logs_in(self._inventory.objects, self._state.name)
        return surplus(logs, self._rules.cutoff)

    def _judge_data(self, info: ObjectInfo, rest: str) -> JudgedFile:
        if rest == SCHEMA_FILE:
            return _found(info, Reason.LIVE)
        if rest.startswith(f"{DELTA_LOG}/"):
            return self._judge_metadata(info)
        label = rest.removesuffix(self._state.descriptor.file_suffix)
        if label == rest:
            return self._unknown(info, "Data files have another suffix.")
        if (
            label in self._live
            or label in self._ever
            or label in self._retained
            or label in self._protected
        ):
            return self._judge_known(info, label)
        batch_id = batch_id_of(label)
        if batch_id is None or not is_own_name(label) or not self._has_levels(label):
            return self._unknown(info, "No commit added it, and its name is not Lakebed's.")
        if batch_id not in self._reserved:
            self._require_whole()  # an earlier commit may have added and removed it
        return self._judge_staged(info, str(batch_id))

    def _judge_metadata(self, info: ObjectInfo) -> JudgedFile:
        """Judge a metadata file of a published table."""
        if info.key in self._metadata.unreadable:
            return _found(info, Reason.UNKNOWN, note=self._metadata.unreadable[info.key])
        if info.key not in self._metadata.dead:
            return _found(info, Reason.LIVE)
        note = "A later version of the published table has taken its place."
        if info.key.startswith(f"{Folder.ICEBERG.of(self._state.name, 'uploads')}/"):
            note = "A client of the Iceberg catalog has uploaded it, and is done."
        return _found(info, Reason.UNREFERENCED, since=info.modified_at, note=note)

    def _judge_known(self, info: ObjectInfo, label: str) -> JudgedFile:
        """Judge a file that a commit has added."""
        if label in self._live:
            return _found(info, Reason.LIVE)
        if label in self._protected or (self._batches and batch_id_of(label) in self._batches):
            return self._taken_out(info, label, Reason.PROTECTED)
        if label in self._shown:
            return self._taken_out(info, label, Reason.PUBLISHED)
        if label in self._retained:
            return self._taken_out(info, label, Reason.RETAINED)
        if not self._has_horizon:
            raise _OlderNeeded
        return self._taken_out(info, label, Reason.SUPERSEDED)

    def _has_levels(self, label: str) -> bool:
        """Return whether a file lies in a directory of the dataset as it is, or as it ever was."""
        directory = split_label(label)[0]
        if _fits(directory, self._state.layout.partition_types):
            return True
        self._require_whole()
        return any(_fits(directory, types) for types in self._former_levels)

    @cached_property
    def _former_levels(self) -> list[Mapping[str, Type]]:
        folder = Folder.HISTORY.of(self._state.name)
        return [
            descriptor_from(entry.descriptor, folder)[0].partition_types
            for entry in self._entries
            if entry.descriptor is not None
        ]

    def _taken_out(self, info: ObjectInfo, label: str, reason: Reason) -> JudgedFile:
        entry = self._removed.get(label)
        if entry is None:
            return _found(info, reason)
        return JudgedFile(
            key=info.key,
            size_bytes=info.size_bytes,
            reason=reason,
            version=entry.version,
            since=self._times[entry.version],
            note=f"Taken out by the {entry.operation} that made version {entry.version}.",
        )

    def _judge_staged(self, info: ObjectInfo, batch: str) -> JudgedFile:
        """Judge a file that no commit has added, by its batch."""
        if not _NUMBER.fullmatch(batch):
            return self._unknown(info, "It is not in the directory of a batch.")
        batch_id = int(batch)
        is_young = info.modified_at > self._rules.oldest_lease
        if batch_id in self._committed:
            note = f"Batch {batch_id} was committed without it."
            return _found(info, Reason.YOUNG if is_young else Reason.DEBRIS, note=note)
        if batch_id in self._reserved:
            return self._judge_reserved(info, batch_id)
        self._require_whole()
        # Its writer gave it back, but tasks of the writer may have been slower.
        if not self._state.may_commit(batch_id):
            note = f"Batch {batch_id} was given up."
            return _found(info, Reason.ABANDONED, since=info.modified_at, note=note)
        if not is_young and self._is_past(batch_id):
            self._given_back.add(batch_id)
        return _found(info, Reason.YOUNG, note=f"Batch {batch_id} was given up not long ago.")

    def _judge_reservation(self, info: ObjectInfo, rest: str) -> JudgedFile:
        name = rest.removesuffix(reservation.SUFFIX)
        if name == rest or not _NUMBER.fullmatch(name):
            return self._unknown(info, "No reservation has such a key.")
        if int(name) in self._committed:
            return self._judge_manifest(info, int(name))
        if int(name) in self._reserved:
            return self._judge_reserved(info, int(name))
        self._require_whole()
        return _found(info, Reason.YOUNG, note="It was given back during this cleanup.")

    def _judge_manifest(self, info: ObjectInfo, batch_id: int) -> JudgedFile:
        """Judge the manifest of a committed batch: it goes after the batch's last file.

        The history has the commit, so that the batch counts as committed without it.
        """
        if batch_id in self._needed_batches:
            return _found(info, Reason.LIVE)
        if not self._has_horizon:
            raise _OlderNeeded
        rules = self._rules
        age = max(rules.retention, rules.longest_commit)
        if info.modified_at >= rules.now - age or batch_id > self._state.last_batch_id:
            return _found(info, Reason.LIVE)
        if self._state.may_commit(batch_id):
            self._spent.add(batch_id)
            return _found(info, Reason.YOUNG, note=f"Batch {batch_id} is not shut out yet.")
        entry = self._last_removals.get(batch_id)
        return JudgedFile(
            key=info.key,
            size_bytes=info.size_bytes,
            reason=Reason.SUPERSEDED,
            version=None if entry is None else entry.version,
            since=info.modified_at if entry is None else self._times[entry.version],
            note=f"No version that can be read has a file of batch {batch_id}.",
        )

    @cached_property
    def _needed_batches(self) -> frozenset[int]:
        """Batches with files that may be read, protected ones, and the last ones of streams."""
        streams = (progress.batch_id for progress in self._state.streams)
        return frozenset((*batches_of(self._kept_labels), *self._batches, *streams))

    @cached_property
    def _last_removals(self) -> dict[int, Entry]:
        """The last commit that removed a file of a batch, by batch."""
        last: dict[int, Entry] = {}
        for entry in self._entries:
            last.update(dict.fromkeys(batches_of(entry.removed), entry))
        return last

    def _judge_reserved(self, info: ObjectInfo, batch_id: int) -> JudgedFile:
        record = self._reserved[batch_id].record
        if record is None:
            return _found(info, Reason.UNKNOWN, note="The reservation cannot be read.")
        who = f"{record.operation} by {record.writer}"
        until = record.lease_until.isoformat()
        if not self._is_expired(batch_id):
            return _found(info, Reason.RESERVED, note=f"For the {who}, with a lease until {until}.")
        if self._state.may_commit(batch_id):
            return _found(info, Reason.YOUNG, note=f"Batch {batch_id} is not shut out yet.")
        note = f"The {who} was not committed; its lease was over at {until}."
        return _found(info, Reason.ABANDONED, since=record.lease_until, note=note)

    def _is_expired(self, batch_id: int) -> bool:
        """Return whether no writer can still be at work on a batch.

        The lease of an unreadable reservation is unknown. It counts as over after a day, so a
        damaged reservation does not keep garbage forever; the files of the batch stay.
        """
        batch, rules = self._reserved[batch_id], self._rules
        if batch.record is None:
            return batch.modified_at <= rules.oldest_lease and self._is_past(batch_id)
        return batch.lease_is_over(rules) and self._is_past(batch_id, rules.now + rules.clock_skew)

    def _is_past(self, batch_id: int, moment: dt.datetime | None = None) -> bool:
        """Return whether new batches have greater ids anyway, so the batch can be shut out.

        Shutting out any other batch would move the ids of all new batches ahead of the clock.

        Args:
            batch_id: Id of the batch.
            moment: Ids until this time are past; None for one lease ago.
        """
        if batch_id <= self._state.last_batch_id:
            return True
        started = _moment(batch_id)
        return started is not None and started <= (moment or self._rules.oldest_lease)

    def _judge_unnamed(self, info: ObjectInfo, named: Sequence[dt.datetime]) -> JudgedFile:
        """Judge a segment that the head does not name.

        It was merged into another segment, or written by a commit that lost the race or is still
        at work. The first named segment that was written later stands for the one that replaced
        it: while that is younger than the retention, a reader of an older head may need this one.
        """
        rules = self._rules
        if info.key in self._staged_segments:
            return _found(info, Reason.RESERVED, note="For a staged batch, whose commit names it.")
        if self._is_settled(info.modified_at):
            note = "An erasure has written another one in its place."
            return _found(info, Reason.UNREFERENCED, since=info.modified_at, note=note)
        age = max(rules.retention, rules.longest_commit)
        if info.modified_at >= min(rules.now - age, self._oldest_start):
            return _found(info, Reason.YOUNG, note="A commit may still be about to name it.")
        observed, folder = self._inventory.observed, info.key.split("/")[1]
        if observed is not None and folder in FOLDERS_OF_LISTS and observed.shows_unnamed(info):
            return self._replaced(info)
        successors = [moment for moment in named if moment >= info.modified_at]
        if successors and min(successors) > rules.cutoff:
            return _found(info, Reason.RETAINED, note="A reader of an older head may need it.")
        return self._replaced(info)

    def _is_settled(self, stored_at: dt.datetime) -> bool:
        """Return whether a segment that no head names is from before an erasure, or its second."""
        settled_at = self._rules.settled_at
        return settled_at is not None and stored_at <= settled_at and stored_at < self._first_start

    def _replaced(self, info: ObjectInfo) -> JudgedFile:
        note = "The head does not name it."
        return _found(info, Reason.UNREFERENCED, since=info.modified_at, note=note)

    @cached_property
    def _oldest_index(self) -> dt.datetime:
        """Time before which an index file was replaced longer ago than the retention.

        Each commit that changes files names another index file, which it writes after the commit
        before it. So the file that was current at the cutoff is younger than the last but one of the
        commits until then.
        """
        rules = self._rules
        until = [
            self._times[entry.version]
            for entry in self._entries
            if (entry.added or entry.removed)
            and entry.operation != EARLIER
            and self._times[entry.version] <= rules.cutoff
        ]
        if len(until) < 2:
            return _EVER
        age = max(rules.retention, rules.longest_commit)
        oldest = min(_before(until[-2], rules.clock_skew), _before(rules.now, age))
        return min(oldest, self._oldest_start)


def _fits(directory: str, levels: Mapping[str, Type]) -> bool:
    try:
        decode_path(directory, levels)
    except CorruptMetadataError:
        return False
    return True


def _found(
    info: ObjectInfo, reason: Reason, *, since: dt.datetime | None = None, note: str = ""
) -> JudgedFile:
    return JudgedFile(
        key=info.key, size_bytes=info.size_bytes, reason=reason, since=since, note=note
    )


def _is_of_tree(folder: str, rest: str) -> bool:
    return is_segment_name(rest) if folder == Folder.LEAVES else is_copy_name(rest)


def _is_of_index(folder: str, rest: str) -> bool:
    column, _, name = rest.partition("/")
    if not column or not name or "/" in name:
        return False
    if folder == Folder.POSTINGS:
        return is_segment_name(name)
    return folder == Folder.INDICES and name.endswith(INDEX_SUFFIX)


def _before(moment: dt.datetime, span: dt.timedelta) -> dt.datetime:
    try:
        return moment - span
    except OverflowError:
        return _EVER


def _moment(batch_id: int) -> dt.datetime | None:
    """Return the time when a batch was reserved, by its writer's clock; None if out of range."""
    try:
        return dt.datetime.fromtimestamp(started_ms(batch_id) / 1000, dt.UTC)
    except (ValueError, OverflowError, OSError):
        return None


def horizon_of(state: State, times: Mapping[int, dt.datetime], rules: Rules) -> int:
    """Return the oldest version that was current at some moment of the retention.

    Without a retention this is the current version, regardless of the clocks.
    """
    if not rules.retention:
        return state.version
    old = [version for version, moment in times.items() if moment <= rules.cutoff]
    return max(state.horizon, max(old, default=0))


__all__ = [
    "AskTables",
    "Inventory",
    "Judge",
    "JudgedFile",
    "Reason",
    "Rules",
    "horizon_of",
    "read_history",
    "take_inventory",
]
