"""Erasure: the rows of a condition leave every version, and the objects that held them are deleted.

Each commit takes files out of all versions at once, and names files with the remaining rows in
their place; see `lakebed.state.erasing`. A call that was killed is repeated: what is committed is
found in the history, and everything else is searched again. Only objects that the history proves
to be taken out are deleted.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.archive import Archive
from lakebed.common.grouping import portions
from lakebed.errors import CommitConflictError, InvalidInputError, noting
from lakebed.model.key_rows import named_values
from lakebed.model.predicate import TRUE, Predicate
from lakebed.state import file_table, history, published
from lakebed.state import sources as source_list
from lakebed.state.committing import CommitOptions
from lakebed.state.erased_files import OPERATION, has_samples
from lakebed.state.history import Entry
from lakebed.state.lists import FILES, SOURCES, Edit, postings_of
from lakebed.state.readable import protected_batches, protected_versions
from lakebed.state.reader import read_own_head
from lakebed.state.sources import Sources
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work import certificate, erased_objects
from lakebed.work.certificate import CURRENT, OLDER, STAGED, ErasedPlace, Erasure, LeftPlace
from lakebed.work.erased_batches import (
    StagedBatch,
    StagedFiles,
    erases_of,
    find_staged,
    rewrite_staged,
)
from lakebed.work.erased_raw_files import erase_raw, raw_files_of
from lakebed.work.erased_rows import (
    ErasureCondition,
    HoldingFile,
    Rest,
    Searched,
    search,
    told_by_metadata,
    told_by_path,
    write_rest,
)
from lakebed.work.former_layouts import FormerLayouts
from lakebed.work.indexing import write_index_files
from lakebed.work.ingest.quarantine import quarantines_of
from lakebed.work.inventory import read_history
from lakebed.work.matched_lines import lines_of
from lakebed.work.metadata_compaction import kept_labels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_SHORTEST = 3  # characters; shorter values occur within many words
_ROUNDS = 30  # each is lost to a commit that a cleanup or another erasure made
# No file can have this name. Its mark in the history shows that an erasure was made.
_SAMPLES = "\0samples"
COMMIT_BYTES = 8 * 2**30  # of files that one commit replaces; a kill loses no more work


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureRequest:
    """An erasure that was asked for.

    Attributes:
        predicate: The condition, not bound to types.
        reason: Reason for the erasure.
        by: User and host that ask for it.
        grace: Time for which objects stay after their commit, for readers that still use them.
        includes_protected: Whether rows leave protected versions and batches, too.
        is_dry_run: Whether nothing is changed.
        options: Retry and lease settings of the commits.
        archive: The archive of the raw files, if there is one.
        with_raw_files: Whether raw files are searched, and named if that is not possible.
        spark: Session whose tasks search and rewrite data files; None for threads.
    """

    predicate: Predicate
    reason: str
    by: str
    grace: dt.timedelta
    includes_protected: bool = False
    is_dry_run: bool = False
    options: CommitOptions | None = None
    archive: Archive | None = None
    with_raw_files: bool = True
    spark: SparkSession | None = None


Renew = Callable[[str, int, dt.datetime], Sequence[LeftPlace]]
"""Begins the logs of the published tables of a dataset again, if they are older than an erasure.

Receives the dataset, and the version and the time of the erasure; returns the tables that hold on
to old files.
"""


@dataclass(slots=True)
class _Tally:
    """Counts of one place."""

    searched: int = 0
    rows: int = 0
    rewritten: int = 0
    removed: int = 0

    def add(self, found: Iterable[HoldingFile]) -> None:
        for one in found:
            self.rows += one.row_count
            self.rewritten += not one.is_whole
            self.removed += one.is_whole

    def place(self, name: str) -> ErasedPlace:
        return ErasedPlace(
            place=name,
            searched=self.searched,
            row_count=self.rows,
            rewritten=self.rewritten,
            removed=self.removed,
        )


@dataclass(slots=True)
class _Job:
    """The progress of one call in one dataset."""

    store: Store
    name: str
    condition: ErasureCondition
    request: ErasureRequest
    current: _Tally = field(default_factory=_Tally)
    older: _Tally = field(default_factory=_Tally)
    staged: _Tally = field(default_factory=_Tally)
    versions: list[int] = field(default_factory=list)
    left: list[LeftPlace] = field(default_factory=list)
    examined: set[str] = field(default_factory=set)
    # Files of staged batches whose manifests name others now, until a commit marks them.
    unmarked: dict[str, tuple[str, ...]] = field(default_factory=dict)
    had_index_files: bool = False

    def run(self) -> None:
        """Erase rows from all readable versions and staged batches, until none is found."""
        for rounds_left in reversed(range(_ROUNDS)):
            state, known, _ = read_history(self.store, self.name)
            entries = known.entries
            layouts = _layouts(self.store, state, entries)
            self.had_index_files |= bool(state.indices)
            searched = self._search(layouts)
            staged = find_staged(self.store, layouts, self.condition)
            if self.request.is_dry_run:
                self._count(state, searched.found)
                self._count_staged(staged, staged.batches)
                self.left += _held(state, entries, searched.found, self.store)
                break
            _check_protected(state, entries, searched.found, self.request)
            _check_hive(self.store, self.name, searched.found)
            more = {
                **dict.fromkeys(self._told(layouts, searched), ()),
                **self._rewrite_staged(layouts, staged),
            }
            if not searched.found and not more:
                break
            try:
                self._commit_all(layouts, searched, more)
            except CommitConflictError:
                if not rounds_left:
                    raise
                continue

    def note(self) -> str:
        """Return what an error has to report; nothing before the first commit."""
        if not self.versions:
            return ""
        versions = ", ".join(map(str, self.versions))
        return f"Committed so far: version {versions}. Erase again to continue."

    def _search(self, layouts: FormerLayouts) -> Searched:
        state = layouts.state
        notes = published.read(self.store, self.name)
        kept = kept_labels(self.store, state, notes) | frozenset(state.labels)
        new = sorted(kept - self.examined)
        live = frozenset(state.labels)
        searched = search(self.store, layouts, self.condition, new, self.request.spark)
        found = {one.label for one in searched.found}
        self.examined.update(label for label in new if label not in found)
        self.current.searched += sum(label in live for label in new)
        self.older.searched += sum(label not in live for label in new)
        self._note_unreadable(searched.unreadable)
        return searched

    def _note_unreadable(self, keys: Iterable[str]) -> None:
        self.left += [
            LeftPlace(
                place="damaged files",
                what=f"The data file {erased_objects.shown(key)} cannot be searched.",
                remedy="Run check, restore the file or drop its partition, and erase again.",
            )
            for key in keys
        ]

    def _told(self, layouts: FormerLayouts, searched: Searched) -> frozenset[str]:
        """Return files of versions that were given up, of whose rows the head still names values.

        Their directories, the file table or the indices name them. Samples of values may, too: each
        commit of an erasure clears them.
        """
        entries = layouts.entries
        ever = {label for entry in entries for label in (*entry.added, *entry.removed)}
        given_up = ever - self.examined - {one.label for one in searched.found}
        told = told_by_path(layouts, self.condition, given_up)
        told |= told_by_metadata(self.store, layouts, self.condition, given_up)
        return told | {_SAMPLES} if any(map(has_samples, entries)) else told

    def _count(self, state: State, found: Sequence[HoldingFile]) -> None:
        live = state.live.holding(frozenset(one.label for one in found))
        self.current.add(one for one in found if one.label in live)
        self.older.add(one for one in found if one.label not in live)

    def _count_staged(self, staged: StagedFiles, done: Iterable[StagedBatch]) -> None:
        self.staged.searched = max(self.staged.searched, staged.searched)
        for batch in done:
            self.staged.add(batch.found)

    def _rewrite_staged(
        self, layouts: FormerLayouts, staged: StagedFiles
    ) -> dict[str, tuple[str, ...]]:
        """Rewrite staged batches, and return all files of such batches that no commit marks yet."""
        self._note_unreadable(staged.unreadable)
        self.unmarked.update((one.label, ()) for one in staged.orphans)
        self._count_staged(staged, ())
        for batch in staged.batches:
            erases = rewrite_staged(self.store, layouts, batch)
            if erases is not None:
                self.unmarked.update(erases)
                self._count_staged(staged, [batch])
        return dict(self.unmarked)

    def _commit_all(
        self, layouts: FormerLayouts, searched: Searched, more: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Commit the files of the current version at once, then the others, some at a time."""
        live = layouts.state.live.holding(frozenset(one.label for one in searched.found))
        now = [one for one in searched.found if one.label in live]
        before = [one for one in searched.found if one.label not in live]
        base = layouts
        for portion in ([now] if now or not before else []) + list(portions(before, COMMIT_BYTES)):
            self._commit(base, portion, more)
            more = {}
            self.unmarked.clear()
            state, known, _ = read_history(self.store, self.name)
            base = _layouts(self.store, state, known.entries)

    def _commit(
        self,
        layouts: FormerLayouts,
        found: Sequence[HoldingFile],
        more: Mapping[str, tuple[str, ...]],
    ) -> None:
        state, request = layouts.state, self.request
        with Transaction.on(self.store, state, OPERATION, options=request.options) as transaction:
            rest = write_rest(self.store, layouts, found, request.spark)
            for written in rest.by_label.values():
                for key in written.keys(state.layout):
                    transaction.note(key)
            erases = erases_of(found, rest)
            live = state.live.holding(frozenset(erases))
            change = Change(
                erases={**more, **erases},
                edits=_edits(transaction, rest),
                deleted_row_count=sum(one.row_count for one in found if one.label in live),
            )
            committed = transaction.commit(change)
        self.versions.append(committed.entry.version)
        self._count(state, found)
        self.examined.update(label for labels in erases.values() for label in labels)

    def note_rewritten(self, fingerprints: Mapping[str, tuple[str, int]]) -> None:
        """Record that raw files were rewritten, so that no ingest reads them again."""
        state = read_own_head(self.store, self.name).state
        noted = source_list.read(self.store, state.lists.sources)
        mine = {
            file.key: fingerprints[file.fingerprint]
            for file in noted.files
            if file.fingerprint in fingerprints
        }
        if not mine:
            return
        with Transaction.on(
            self.store, state, OPERATION, options=self.request.options
        ) as transaction:
            committed = transaction.commit(Change(rewritten_sources=mine))
        self.versions.append(committed.entry.version)

    def finish(self, renew: Renew | None) -> erased_objects.Deleted:
        """Write index files for other tools, begin published tables again, and delete old objects."""
        if self.had_index_files and self.versions:
            written = write_index_files(self.store, self.name, self.request.options)
            self.versions += [written.version] if written is not None else []
        held = self._renewed(renew) if renew is not None else ()
        self.left += held
        done = erased_objects.delete_erased(
            self.store,
            self.name,
            self.condition,
            grace=self.request.grace,
            is_held=bool(held),
            options=self.request.options,
        )
        self.versions += [] if done.version is None else [done.version]
        self.left += done.left
        return done

    def _renewed(self, renew: Renew) -> tuple[LeftPlace, ...]:
        _, known, _ = read_history(self.store, self.name)
        entries = known.entries
        last = next((entry for entry in reversed(entries) if entry.erased), None)
        if last is None:
            return ()
        moment = history.landing_times(entries)[last.version]
        return tuple(renew(self.name, last.version, moment))

    @property
    def places(self) -> tuple[ErasedPlace, ...]:
        """The places where rows were found."""
        return (
            self.current.place(CURRENT),
            self.older.place(OLDER),
            self.staged.place(STAGED),
        )


def _layouts(store: Store, state: State, entries: Sequence[Entry]) -> FormerLayouts:
    """Return the layouts of a dataset, with the facts of the files of all readable versions."""
    if state.is_tree:
        from lakebed.state.tree.erased_tree import facts_of_all_versions

        files = facts_of_all_versions(store, state)
        state = replace(state, lists=replace(state.lists, files=files))
    return FormerLayouts(state, entries)


def _edits(transaction: Transaction, rest: Rest) -> tuple[Edit, ...]:
    """Write the facts and origins of new files, and return the edits that name them."""
    name = transaction.base.name
    edits: list[Edit] = []
    by_number: dict[int, list[Written]] = {}
    for label, written in rest.by_label.items():
        by_number.setdefault(rest.numbers[label], []).append(written)
        edits += [
            Edit(name=postings_of(column), added=segments)
            for column, segments in written.postings.items()
        ]
    for parts in by_number.values():
        facts = file_table.encode_joined([part.facts for part in parts])
        segment = file_table.new_segment(name, file_table.decode(facts, name))
        if segment is not None:
            transaction.put(segment.key, facts)
            edits.append(Edit(name=FILES, added=(segment,)))
    origins = {
        label: known
        for written in rest.by_label.values()
        for label, known in written.origins.items()
    }
    if origins:
        noted = Sources(runs=origins)
        segment = source_list.new_segment(name, noted)
        transaction.put(segment.key, source_list.encode(noted))
        edits.append(Edit(name=SOURCES, added=(segment,)))
    return tuple(edits)


def _protected_labels(state: State, entries: Sequence[Entry]) -> dict[str, str]:
    """Return the files of protected versions and batches, each with a protection in words."""
    labels: dict[str, str] = {}
    reasons = {
        (one.version, one.batch_id): f"{one.target} ({one.reason})" for one in state.protections
    }
    for version in protected_versions(state):
        for label in history.labels_of(entries, (version,)):
            labels[label] = reasons[version, None]
    batches = protected_batches(state)
    for entry in entries:
        if entry.batch_id in batches:
            labels.update(dict.fromkeys(entry.added, reasons[None, entry.batch_id]))
    return labels


def _protections_on(
    state: State, entries: Sequence[Entry], found: Sequence[HoldingFile]
) -> tuple[str, ...]:
    if not state.protections:
        return ()
    protected = _protected_labels(state, entries)
    return tuple(sorted({protected[one.label] for one in found if one.label in protected}))


def _check_protected(
    state: State, entries: Sequence[Entry], found: Sequence[HoldingFile], request: ErasureRequest
) -> None:
    held = () if request.includes_protected else _protections_on(state, entries, found)
    if held:
        raise InvalidInputError(
            f"Rows to erase from {state.name!r} are protected: {', '.join(held)}. Nothing more was "
            "erased.",
            hint="Erase them there, too: include_protected=True, on the command line "
            "--include-protected. Or remove the protections.",
        )


def _hive_tables(store: Store, name: str) -> tuple[str, ...]:
    notes = published.read(store, name)
    return tuple(note.table for note in notes if note.kind == "hive" and note.versions)


def _check_hive(store: Store, name: str, found: Sequence[HoldingFile]) -> None:
    tables = _hive_tables(store, name) if found else ()
    if tables:
        raise InvalidInputError(
            f"{name!r} is published as {', '.join(tables)} in a metastore. Such a table shows "
            "directories, so its readers would see new files beside the ones that they replace.",
            hint=f"Unpublish it, erase, and publish again: lakebed unpublish hive, --table {tables[0]}.",
        )


def _held(
    state: State, entries: Sequence[Entry], found: Sequence[HoldingFile], store: Store
) -> list[LeftPlace]:
    """Return what a dry run knows to refuse the call."""
    held = [
        LeftPlace(
            place="protections",
            what=f"Rows are protected: {one}.",
            remedy="Give include_protected (--include-protected), or remove the protection.",
        )
        for one in _protections_on(state, entries, found)
    ]
    tables = _hive_tables(store, state.name) if found else ()
    return held + [
        LeftPlace(
            place="Hive tables",
            what=f"The table {table} shows directories with such rows.",
            remedy="Unpublish it, erase, and publish again.",
        )
        for table in tables
    ]


def erase(store: Store, name: str, request: ErasureRequest, renew: Renew | None = None) -> Erasure:
    """Erase the rows of a condition; see `Dataset.erase`.

    Args:
        store: The store that holds the dataset.
        name: Name of the dataset.
        request: The erasure.
        renew: Begins the logs of published tables again.
    """
    began_at = dt.datetime.now(dt.UTC)
    _check_request(request)
    job = _Job(store, name, ErasureCondition(predicate=request.predicate), request)
    with noting(job.note):
        return _erased(job, began_at, renew)


def _erased(job: _Job, began_at: dt.datetime, renew: Renew | None) -> Erasure:
    store, name, request = job.store, job.name, job.request
    job.run()
    places: list[ErasedPlace] = [*job.places]
    left = job.left
    deleted = 0
    rejects, missed = _rejects(store, name, request)
    left += missed
    for other in rejects:
        other.run()
        places.append(_joined(f"quarantine {other.name}", other.places))
    if request.with_raw_files:
        jobs = [job, *rejects]
        raw = erase_raw(
            raw_files_of(store, [one.name for one in jobs]),
            request.archive,
            request.predicate,
            is_dry_run=request.is_dry_run,
        )
        places.append(raw.place)
        left += raw.left
        for one in jobs if raw.fingerprints else ():
            one.note_rewritten(raw.fingerprints)
    if not request.is_dry_run:
        done = job.finish(renew)
        deleted += done.deleted
        places += done.places
        for other in rejects:
            after = other.finish(renew)
            deleted += after.deleted
            places.append(_joined(f"objects of {other.name}", after.places))
    for other in rejects:
        left += [replace(one, place=f"{one.place} of {other.name}") for one in other.left]
    state = read_own_head(store, name).state
    salt = certificate.new_salt()
    now = dt.datetime.now(dt.UTC)
    erasure = Erasure(
        dataset=name,
        erasure_id="" if request.is_dry_run else certificate.new_id(began_at),
        is_dry_run=request.is_dry_run,
        reason=request.reason,
        by=request.by,
        began_at=began_at,
        ended_at=now,
        condition_hash=certificate.hash_of(str(request.predicate), salt),
        salt=salt,
        version=state.version,
        oldest_version=state.horizon,
        versions=tuple(job.versions),
        places=tuple(places),
        left=tuple(dict.fromkeys(left)),
        deleted=deleted,
    )
    if not request.is_dry_run:
        certificate.put(store, erasure)
        _log.info(
            "erased dataset=%s rows=%d objects=%d finished=%s",
            name,
            erasure.row_count,
            deleted,
            erasure.is_finished,
        )
    return erasure


def _joined(name: str, places: Sequence[ErasedPlace]) -> ErasedPlace:
    """Return several places as one."""
    return ErasedPlace(
        place=name,
        searched=sum(one.searched for one in places),
        row_count=sum(one.row_count for one in places),
        rewritten=sum(one.rewritten for one in places),
        removed=sum(one.removed for one in places),
    )


def _rejects(
    store: Store, name: str, request: ErasureRequest
) -> tuple[list[_Job], list[LeftPlace]]:
    """Return the work on the datasets that hold rejects of a dataset."""
    names = quarantines_of(store, name)
    lines = lines_of(request.predicate)
    if lines is not None:
        condition = ErasureCondition(predicate=TRUE, lines=lines)
        return [_Job(store, one, condition, request) for one in names], []
    return [], [
        LeftPlace(
            place=f"quarantine {one}",
            what="Its lines cannot be searched: the condition names no value by = or IN.",
            remedy="Erase there by a condition on the field text, or give keys.",
        )
        for one in names
    ]


def _check_request(request: ErasureRequest) -> None:
    if not request.reason.strip():
        raise InvalidInputError(
            "An erasure needs a reason.", hint="Name the request or the rule that asks for it."
        )
    values = {str(value) for _, value in named_values(request.predicate)}
    if any(len(value) > _SHORTEST and value in request.reason for value in values):
        raise InvalidInputError(
            "The reason names a value that is to be erased, and the certificate would keep it.",
            hint="Name the request, such as its number, and not the person.",
        )


__all__ = ["Erasure", "ErasureRequest", "Renew", "erase"]
