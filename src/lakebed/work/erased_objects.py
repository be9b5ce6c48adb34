"""Deletion of the objects that held erased rows, once no head and no reader needs them.

The history keeps a mark of each file that an erasure took out. No commit can bring such a file
back; see `lakebed.state.conflicts`. So every listed object with a mark is dead, in each later call
too, until none is left. Segments that no head names are dead if they were written before the
erasure, or longer ago than a writer may work, and not by a writer that is still at work. If a
stalled commit could name one nevertheless, a commit comes first that refuses it.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lakebed.common.shown import counted
from lakebed.errors import CommitConflictError, LakebedError
from lakebed.model.layout import TABLE, Folder
from lakebed.state.committing import CommitOptions
from lakebed.state.conflicts import check_same_dataset
from lakebed.state.erased_files import mark_of, marks_in
from lakebed.state.history import Entry
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.base import ObjectInfo, Store
from lakebed.work.certificate import ErasedPlace, LeftPlace
from lakebed.work.cleanup import KEYS_PER_REQUEST
from lakebed.work.defaults import CLOCK_SKEW
from lakebed.work.erased_records import Records
from lakebed.work.erased_rows import ErasureCondition, search
from lakebed.work.former_layouts import FormerLayouts
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
    deletion = _Deletion(store, inventory, condition, grace, now, options, is_held=is_held)
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
    left: list[LeftPlace] = field(default_factory=list)

    @property
    def state(self) -> State:
        return self.inventory.state

    def run(self) -> Deleted:
        judged, version = self._refuse_stalled()
        layouts = FormerLayouts(self.state, self.inventory.entries)
        files = self._marked_files()
        strays = self._strays(layouts)
        segments = self._segments(judged)
        self._note_writes()
        records = Records(
            store=self.store,
            inventory=self.inventory,
            layouts=layouts,
            condition=self.condition,
            left=self.left,
        )
        manifests = records.scrub_manifests()
        logs = records.scrub_logs()
        signals = records.named_signals()
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

    def _strays(self, layouts: FormerLayouts) -> list[JudgedFile]:
        """Return files of no version that hold such rows and are dead; note the others."""
        rules = Rules(now=self.now, retention=self.grace, clock_skew=CLOCK_SKEW)
        needed, marks = self._needed(), marks_in(self.inventory.entries)
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
        holding, readable = set(), set()
        for key, label in labels.items():
            try:
                searched = search(self.store, layouts, self.condition, [label])
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
