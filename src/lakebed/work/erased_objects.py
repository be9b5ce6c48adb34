"""Deletion of the objects that held erased rows, once no head and no reader needs them.

The history keeps a mark of each file that an erasure took out. No commit can bring such a file
back; see `lakebed.state.conflicts`. So every listed object with a mark is dead, in each later call
too, until none is left. Segments that no head names are dead if they were written before the
erasure, or longer ago than a writer may work, and not by a writer that is still at work. If a
stalled commit could name one nevertheless, a commit comes first that refuses it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import urllib.parse
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import zstandard

from lakebed.common.decoding import UNREADABLE
from lakebed.common.shown import counted
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    LakebedError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.model.key_rows import named_values
from lakebed.model.keys import batch_id_of
from lakebed.model.layout import TABLE, Folder
from lakebed.model.values import format_value
from lakebed.state import reservation
from lakebed.state.caught import without_values
from lakebed.state.check_results import without_examples
from lakebed.state.committing import CommitOptions
from lakebed.state.conflicts import check_same_dataset
from lakebed.state.erased_files import mark_of
from lakebed.state.history import Entry
from lakebed.state.reservation import BatchRecord
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.base import ObjectInfo, Store, StoredObject
from lakebed.store.segments import MAX_DOCUMENT_BYTES, decompress
from lakebed.work.certificate import ErasedPlace, LeftPlace
from lakebed.work.cleanup import KEYS_PER_REQUEST
from lakebed.work.defaults import CLOCK_SKEW
from lakebed.work.erased_rows import (
    ErasureCondition,
    Schemas,
    names_partitions,
    search,
    told_by_path,
)
from lakebed.work.inventory import (
    Inventory,
    Judge,
    JudgedFile,
    Reason,
    Rules,
    read_history,
    take_inventory,
)

_SEGMENTS = (
    Folder.FILES,
    Folder.HISTORY,
    Folder.LEAVES,
    Folder.ROOTS,
    Folder.RUNS,
    Folder.SOURCES,
    Folder.POSTINGS,
    Folder.INDICES,
)
_AGAIN = "Erase again after that time: the same call continues."
_NOTHING = dt.timedelta()
_ROUNDS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The result of the deletion.

    Attributes:
        deleted: Number of deleted objects.
        places: Counts of each place.
        left: Objects that could not be deleted yet.
        version: The version that a commit before the deletion made; None if none was necessary.
    """

    deleted: int
    places: tuple[ErasedPlace, ...]
    left: tuple[LeftPlace, ...]
    version: int | None = None


def shown(key: str) -> str:
    """Return a key for a certificate: without the directories of partitions, which hold values."""
    dataset, *inner, name = key.split("/")
    if inner and inner[0] in frozenset(Folder):
        return key
    return "/".join((dataset, *(["…"] if inner else []), name))


def delete_erased(
    store: Store,
    name: str,
    condition: ErasureCondition,
    taken_out: Collection[str] = (),
    *,
    grace: dt.timedelta,
    is_held: bool = False,
    options: CommitOptions | None = None,
) -> Deleted:
    """Delete the objects that held erased rows.

    Args:
        store: The store that holds the dataset.
        name: Name of the dataset.
        condition: The condition on the rows.
        taken_out: Labels that were just taken out; their files may be gone already.
        grace: Time for which objects stay after the commit that took them out.
        is_held: Whether published tables still name them.
        options: Retry settings of a commit that comes before.

    Raises:
        CommitConflictError: The dataset was dropped and created again, or other cleanups came
            between each time; nothing was deleted.

    Cost:
        As the inventory of a cleanup. Files that no version has are searched as well. A commit if a
        stalled writer could still name what is to be deleted.
    """
    inventory = take_inventory(store, name)
    now = dt.datetime.now(dt.UTC)
    of_batches = {batch_id_of(label) for label in taken_out}
    deletion = _Deletion(
        store, inventory, condition, grace, now, options, is_held=is_held, of_batches=of_batches
    )
    return deletion.run()


@dataclass(slots=True)
class _Deletion:
    store: Store
    inventory: Inventory
    condition: ErasureCondition
    grace: dt.timedelta
    now: dt.datetime
    options: CommitOptions | None = None
    is_held: bool = False
    of_batches: Collection[int | None] = ()
    left: list[LeftPlace] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.inventory.state

    def run(self) -> Deleted:
        judged, version = self._refuse_stalled()
        files = self._marked_files()
        strays = self._strays()
        segments = self._segments(judged)
        self._note_writes()
        manifests = self._scrub_manifests(self._batches_of([*files, *strays]))
        logs = self._scrub_logs()
        signals = self._named_signals()
        doomed = [one.key for one in files]
        doomed += [one.key for one in strays]
        doomed += [*(one.key for one in segments), *signals]
        for start in range(0, len(doomed), KEYS_PER_REQUEST):
            self.store.delete(doomed[start : start + KEYS_PER_REQUEST])
        return Deleted(
            deleted=len(doomed),
            places=(
                ErasedPlace(place="old data files", removed=len(files)),
                ErasedPlace(place="files of no version", removed=len(strays)),
                ErasedPlace(place="statistics, history and indices", removed=len(segments)),
                ErasedPlace(place="records of batches", rewritten=manifests),
                ErasedPlace(place="logs of cleanups", rewritten=logs),
                ErasedPlace(place="ready signals", removed=len(signals)),
            ),
            left=tuple(self.left),
            version=version,
        )

    def _refuse_stalled(self) -> tuple[list[JudgedFile], int | None]:
        """Judge the segments of metadata once no stalled commit can name one that will be deleted.

        Returns:
            The segments with verdicts; and the version that a commit has made for it, None if none
            was necessary.
        """
        version = None
        for rounds in itertools.count(1):
            judged = self._judged_segments()
            doomed = {one.key for one in judged if one.reason is Reason.UNREFERENCED}
            if version is not None or not self.inventory.may_be_named(doomed):
                break
            state = self.state
            change = Change(oldest_batch=state.oldest_batch, open_batches=state.open_batches)
            try:
                with Transaction.on(
                    self.store, state, "cleanup", options=self.options
                ) as transaction:
                    version = transaction.commit(change).entry.version
            except CommitConflictError:
                if rounds == _ROUNDS:
                    raise
            now, known, tree = read_history(self.store, state.name)
            check_same_dataset(state, now)
            # What a stalled commit has named before is live by now.
            self.inventory = replace(self.inventory, state=now, history=known, tree=tree)
        return judged, version

    def _due(self, moment: dt.datetime) -> bool:
        return self.grace == _NOTHING or moment + self.grace <= self.now

    def _erasures(self) -> list[tuple[Entry, dt.datetime]]:
        times = self.inventory.times
        return [(one, times[one.version]) for one in self.inventory.entries if one.erased]

    def _needed(self) -> frozenset[str]:
        """Return the keys of the files that a version, a table or a staged batch needs."""
        rules = Rules(now=self.now, retention=self.grace, clock_skew=CLOCK_SKEW)
        kept = self.inventory.judge_by(self.state, rules).kept_labels
        staged = (
            file.label
            for one in self.inventory.reserved.values()
            if one.record is not None
            for file in one.record.files or ()
        )
        return frozenset(map(self.state.layout.key, (*kept, *self.state.labels, *staged)))

    def _marked_files(self) -> list[ObjectInfo]:
        """Return the files that erasures took out and that may be deleted."""
        erased_at: dict[str, dt.datetime] = {}
        for entry, moment in self._erasures():
            erased_at.update(dict.fromkeys(entry.erased, moment))
        if not erased_at:
            return []
        needed = self._needed()
        marked = [
            (info, erased_at[mark])
            for info in self.inventory.objects
            if (mark := mark_of(info.key)) in erased_at and info.key not in needed
        ]
        due = [info for info, moment in marked if self._due(moment)]
        waiting = [moment for _, moment in marked if not self._due(moment)]
        if self.is_held:
            self._hold(len(due))
            due = []
        if waiting:
            self._wait("old data files", counted(len(waiting), "file"), max(waiting))
        return due

    def _hold(self, count: int) -> None:
        if count:
            self.left.append(
                LeftPlace(
                    place="old data files",
                    what=f"{counted(count, 'file')} that a published table still names.",
                    remedy="Bring the table up to date or unpublish it, and erase again.",
                )
            )

    def _wait(self, place: str, what: str, since: dt.datetime) -> None:
        self.left.append(
            LeftPlace(
                place=place,
                what=f"{what} that running readers may still use.",
                remedy=_AGAIN,
                until=since + self.grace,
            )
        )

    def _segments(self, judged: Sequence[JudgedFile]) -> list[JudgedFile]:
        """Return the unnamed segments of metadata that may be deleted; note the others."""
        moments = [moment for _, moment in self._erasures()]
        if not moments:
            return []
        last = moments[-1]
        modified = {one.key: one.modified_at for one in self.inventory.objects}
        dead = [one for one in judged if one.reason is Reason.UNREFERENCED]
        waiting = [
            one
            for one in judged
            if one.reason in (Reason.YOUNG, Reason.RETAINED) and modified[one.key] <= last
        ]
        if waiting and not all(map(self._due, moments)):
            self._wait("statistics, history and indices", counted(len(waiting), "object"), last)
        elif waiting:
            self.left.append(
                LeftPlace(
                    place="statistics, history and indices",
                    what=f"{counted(len(waiting), 'object')} that a running writer may have made.",
                    remedy="Erase again when the writers have ended.",
                )
            )
        return dead

    def _judged_segments(self) -> list[JudgedFile]:
        """Return the segments of metadata with verdicts; none if nothing was ever erased."""
        moments = [moment for _, moment in self._erasures()]
        if not moments:
            return []
        due = [moment for moment in moments if self._due(moment)]
        rules = Rules(
            now=self.now,
            retention=self.grace,
            clock_skew=CLOCK_SKEW,
            settled_at=due[-1] if due else None,
        )
        folders = tuple(f"{folder.of(self.state.name)}/" for folder in _SEGMENTS)
        objects = [one for one in self.inventory.objects if one.key.startswith(folders)]
        return self._judge(rules).judge(objects)

    def _judge(self, rules: Rules) -> Judge:
        return self.inventory.judge_by(self.state, rules)

    def _strays(self) -> list[JudgedFile]:
        """Return files of no version that hold such rows and are dead; note the others."""
        rules = Rules(now=self.now, retention=self.grace, clock_skew=CLOCK_SKEW)
        needed, marks = self._needed(), {m for one, _ in self._erasures() for m in one.erased}
        folders = tuple(f"{self.state.name}/{one}/" for one in (TABLE, Folder.STAGING))
        known = frozenset(Folder)
        judged = {
            one.key: one
            for one in self._judge(rules).judge(
                [
                    info
                    for info in self.inventory.objects
                    if info.key not in needed
                    and mark_of(info.key) not in marks
                    and (info.key.startswith(folders) or info.key.split("/")[1] not in known)
                ]
            )
            if one.reason not in (Reason.LIVE, Reason.PUBLISHED)
            and not one.key.startswith(f"{self.state.name}/{TABLE}/_")
        }
        suffix, prefix = self.state.descriptor.file_suffix, f"{self.state.name}/{TABLE}/"
        labels = {
            key: key.removeprefix(prefix).removesuffix(suffix)
            for key in judged
            if key.startswith(prefix) and key.endswith(suffix)
        }
        schemas = Schemas(self.state, self.inventory.entries)
        holding, readable = set(), set()
        for key, label in labels.items():
            try:
                searched = search(self.store, schemas, self.condition, [label])
            except LakebedError:
                continue  # it does not fit the schema
            if not searched.unreadable:
                readable.add(key)
            if searched.found:
                holding.add(key)
        dead = [one for key, one in judged.items() if one.reason.is_dead and key in holding]
        gone = {one.key for one in dead}
        for key, one in judged.items():
            if key in gone or (key in readable and key not in holding):
                continue
            if one.reason.is_dead and key not in readable:
                dead.append(one)  # nothing needs it, and it may hold such rows
                continue
            self.left.append(_stray(one))
        return dead

    def _note_writes(self) -> None:
        """Note unfinished writes, which no listing shows."""
        keys = self.store.remove_leftovers(f"{self.state.name}/", older_than=_NOTHING, dry_run=True)
        if keys:
            self.left.append(
                LeftPlace(
                    place="unfinished writes",
                    what=f"{counted(len(keys), 'temporary file')} of running or killed writers.",
                    remedy="Erase again when the writers have ended; a cleanup removes those of "
                    "killed ones after a day.",
                )
            )

    def _batches_of(self, files: Iterable[ObjectInfo | JudgedFile]) -> set[int]:
        """Return the batches whose manifests may name files that were taken out.

        Directories of partitions name values, also of files that were deleted long ago. So all
        manifests count if the condition is one on partitions.
        """
        if names_partitions(self.state, self.condition):
            return set(reservation.listed(self.store, self.state.name))
        ids = (batch_id_of(one.key.rpartition(".")[0]) for one in files)
        return {one for one in (*ids, *self.of_batches) if one is not None}

    def _named_signals(self) -> list[str]:
        """Return the ready signals of views that name an erased value."""
        folder = f"{Folder.SIGNALS.of(self.state.name)}/"
        named = {
            (column, format_value(value))
            for column, value in named_values(self.condition.predicate)
        }
        found = []
        for info in self.inventory.objects if named else ():
            if not info.key.startswith(folder):
                continue
            try:
                document = msgspec.json.decode(self.store.get(info.key).data)
                pairs = urllib.parse.parse_qsl(document["constraints"])
            except (*UNREADABLE, KeyError, TypeError, AttributeError, ObjectNotFoundError):
                continue
            if any((column, one) in named for column, text in pairs for one in text.split(",")):
                found.append(info.key)
        return found

    def _scrub_manifests(self, batches: Iterable[int]) -> int:
        """Take the files that will be deleted out of the manifests of their batches."""
        marks = {mark for entry, _ in self._erasures() for mark in entry.erased}
        count = 0
        for batch_id in batches:
            key = reservation.key_of(self.state.name, batch_id)
            try:
                stored = self.store.get(key)
                record = reservation.decode_record(stored.data, key)
            except (ObjectNotFoundError, CorruptMetadataError):
                continue
            if record.staging is not None and self._may_be_committed(batch_id):
                continue
            after = self._without(record, marks)
            if after != record:
                count += self._is_replaced(stored, reservation.encode_record(after))
        return count

    def _may_be_committed(self, batch_id: int) -> bool:
        return batch_id in self.inventory.reserved and self.state.may_commit(batch_id)

    def _without(self, record: BatchRecord, marks: Collection[str]) -> BatchRecord:
        """Return a manifest without files that were taken out, and without samples."""
        files = record.files
        if files is not None:
            key = self.state.layout.key
            files = tuple(file for file in files if mark_of(key(file.label)) not in marks)
        staged = record.staging
        if staged is not None:
            caught, checks = without_values(staged.caught), without_examples(staged.checks)
            staged = msgspec.structs.replace(staged, caught=caught, checks=checks)
        return msgspec.structs.replace(record, files=files, staging=staged)

    def _scrub_logs(self) -> int:
        """Take keys whose directories name the rows out of the logs of cleanups."""
        schemas = Schemas(self.state, self.inventory.entries)
        folder = f"{Folder.CLEANUPS.of(self.state.name)}/"
        prefix = f"{self.state.name}/{TABLE}/"
        suffix = self.state.descriptor.file_suffix
        marks = {mark for entry, _ in self._erasures() for mark in entry.erased}
        count = 0
        for info in self.inventory.objects:
            if not info.key.startswith(folder):
                continue
            try:
                stored = self.store.get(info.key)
            except ObjectNotFoundError:
                continue  # a cleanup keeps the newest logs alone
            try:
                document = msgspec.json.decode(decompress(stored.data, MAX_DOCUMENT_BYTES))
                labels = {
                    one["key"]: one["key"].removeprefix(prefix).removesuffix(suffix)
                    for one in document["files"]
                }
            except (
                *UNREADABLE,
                zstandard.ZstdError,
                MemoryError,
                KeyError,
                TypeError,
                AttributeError,
            ):
                self.left.append(
                    LeftPlace(
                        place="logs of cleanups",
                        what=f"{info.key} cannot be read.",
                        remedy="Delete it: it is a log alone.",
                    )
                )
                continue
            told = told_by_path(schemas, self.condition, labels.values())
            told |= {label for key, label in labels.items() if mark_of(key) in marks}
            if not told:
                continue
            document["files"] = [
                {**one, "key": f"{prefix}…/{_short(one['key'])}"}
                if labels[one["key"]] in told
                else one
                for one in document["files"]
            ]
            data = zstandard.ZstdCompressor().compress(msgspec.json.encode(document))
            count += self._is_replaced(stored, data)
        return count

    def _is_replaced(self, stored: StoredObject, data: bytes) -> bool:
        """Replace an object; return False if a cleanup has deleted it."""
        try:
            self.store.replace(stored.key, data, if_match=stored.etag)
        except PreconditionFailedError:
            try:
                self.store.get(stored.key)
            except ObjectNotFoundError:
                return False
            raise
        return True


def _short(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()


def _stray(one: JudgedFile) -> LeftPlace:
    if one.reason is Reason.UNKNOWN:
        remedy = "Look at it: nothing proves that Lakebed wrote it. Move or delete it yourself."
    else:
        remedy = "Erase again when its writer has ended, or its lease is over and a cleanup ran."
    return LeftPlace(
        place="files of no version",
        what=f"{shown(one.key)} ({one.reason}) holds such rows or cannot be searched. {one.note}",
        remedy=remedy,
    )
