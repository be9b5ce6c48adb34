"""Rollback: makes an older state current again, as a new commit."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError, ObjectNotFoundError, VersionNotFoundError
from lakebed.model.allowed import OTHER
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import check_partitioning, grown_dimensions
from lakebed.model.keys import encode_level, partition_of_label
from lakebed.model.layout import Folder
from lakebed.model.renaming import named_as
from lakebed.state import file_table, history
from lakebed.state import runs as run_list
from lakebed.state import sources as source_list
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.conflicts import Read
from lakebed.state.history import Entry, PastState
from lakebed.state.lists import Segments
from lakebed.state.readable import check_readable
from lakebed.state.runs import Runs
from lakebed.state.scope import TheseFiles, ThesePartitions, WholeView
from lakebed.state.sources import Restored, SourceFile, Sources
from lakebed.state.state import Change, State, descriptor_from
from lakebed.state.transaction import Transaction
from lakebed.state.undone import ROLLBACK
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.work.ingest.holding import hold_of

OPERATION = ROLLBACK
_LOOKS_AT_ONCE = 16
_SHOWN_RUNS = 3
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """The files that a rollback restores and removes.

    Attributes:
        version: The version to restore.
        base: The state that the rollback starts from.
        added: Labels of the restored files.
        removed: Labels of the removed files.
        row_count: Number of entities in the restored files, as far as known.
        is_counted: True if `row_count` is complete, and no file is removed.
        current: The key of the raw file that is current again, by slot of each affected raw file;
            empty if there is none; see `lakebed.state.sources`.
        taken_out: Raw files that the next ingest reads again, since their rows are removed.
        runs: Names of runs whose rows are removed and do not come from raw files, such as loads
            and epochs.
    """

    version: int
    base: State
    added: tuple[str, ...]
    removed: tuple[str, ...]
    row_count: int
    is_counted: bool = False
    current: Mapping[str, str] = field(default_factory=dict)
    taken_out: tuple[SourceFile, ...] = ()
    runs: tuple[str, ...] = ()

    def notes(self, *, hold: bool) -> tuple[str, ...]:
        """Return notes on removed rows that will come back, as sentences.

        Args:
            hold: Whether raw files are held.
        """
        notes = []
        if self.taken_out:
            files = counted(len(self.taken_out), "raw file")
            such_as = f"such as {self.taken_out[0].location}"
            if hold:
                notes.append(f"No ingest reads {files} until released, {such_as}.")
            else:
                notes.append(f"The next ingest reads {files} again, {such_as}.")
        if hold and self.runs:
            notes.append(
                f"Rows of the {'run' if len(self.runs) == 1 else 'runs'} "
                f"{', '.join(map(repr, self.runs[:_SHOWN_RUNS]))}"
                f"{' and others' if len(self.runs) > _SHOWN_RUNS else ''} do not come from a raw "
                "file that could be held: they come back if their writer writes them again."
            )
        return tuple(notes)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The changed partitions, in order of path."""
        return tuple(sorted({partition_of_label(label) for label in (*self.added, *self.removed)}))


def find_restoration(
    store: Store, base: State, version: int, scope: WholeView | None = None
) -> Restoration:
    """Find the changes that a rollback would make; see `Dataset.rollback`.

    Args:
        store: The store that holds the dataset.
        base: The current state of the dataset.
        version: The version to restore.
        scope: Limits the rollback to the partitions of a view; None for all.

    Raises:
        VersionNotFoundError: There is no such version, or a cleanup has given it up.
        InvalidInputError: A promotion has since moved rows that would come back.

    Cost:
        The history, the list of raw files that were read, and the file table if there are files to
        restore.
    """
    # Without records of raw files, the commits since tell all that changes.
    is_short = base.is_tree and not base.lists.sources
    bare_until = version if is_short else -1
    entries = history.read(store, base.lists.history, labels_after=bare_until)
    past = history.replay(entries, version)
    check_readable(base, entries, version)
    then_described, _ = descriptor_from(past.descriptor, Folder.HISTORY.of(base.name))
    older = named_as(then_described, base.descriptor.schema)
    grown = grown_dimensions(older, base.descriptor)
    promoted = {encode_level(name, OTHER) for name in grown}
    is_rerouted = _is_rerouted(older, base.descriptor, grown)

    if is_short:
        newer = [entry for entry in entries if entry.version > version]
        came, went = history.net_labels(newer)
    else:
        now, then = frozenset(base.labels), frozenset(past.labels)
        came = tuple(label for label in base.labels if label not in then)
        went = tuple(label for label in past.labels if label not in now)
    # Rows of a time when directories had other levels may be in the view.
    added = tuple(
        label for label in went if scope is None or scope.covers(partition_of_label(label))
    )
    for label in added:
        if is_rerouted or not promoted.isdisjoint(label.split("/")):
            raise InvalidInputError(
                f"Cannot roll back {base.name!r} to version {version}: it would restore rows of "
                f"{partition_of_label(label)!r} that a promotion has since moved to "
                f"{'other partitions' if is_rerouted else 'partitions of their own'}.",
                hint="Read that version, and overwrite the partitions with its rows.",
            )
    removed = came if scope is None else tuple(filter(scope.removes, came))
    counts = (
        file_table.read_counts(store, _facts_then(store, base, version, added)) if added else {}
    )
    noted = source_list.read(store, base.lists.sources)
    current = _current_again(noted, base, entries, past, frozenset(added), frozenset(removed))
    return Restoration(
        version=version,
        base=base,
        added=added,
        removed=removed,
        row_count=sum(counts[label][0] for label in added if label in counts),
        is_counted=not removed and all(label in counts for label in added),
        current=current,
        taken_out=_taken_out(noted, current, removed),
        runs=_runs_of(run_list.noted_by(entries), noted, added, removed),
    )


def _facts_then(store: Store, base: State, version: int, labels: Sequence[str]) -> Segments:
    """Return the segments with the facts of some files of an older version; a file table has all."""
    if not base.is_tree:
        return base.lists.files
    from lakebed.state.tree.older_version import facts_then

    return facts_then(store, base, version, labels)


def _taken_out(
    noted: Sources, current: Mapping[str, str], removed: Iterable[str]
) -> tuple[SourceFile, ...]:
    """Return the raw files that the next ingest reads again, since their rows are removed."""
    keys = {key for label in removed for key, _ in noted.runs.get(label, ())}
    keys |= {file.key for slot, file in noted.current().items() if slot in current}
    by_key = {file.key: file for file in noted.files}

    def is_there(file: SourceFile) -> bool:
        now = by_key.get(current.get(file.slot, ""))
        return now is not None and now.fingerprint == file.fingerprint

    missing = (file for file in noted.files if file.key in keys and not is_there(file))
    return tuple({file.name: file for file in missing}.values())


def _runs_of(
    runs: Runs, noted: Sources, added: Iterable[str], removed: Iterable[str]
) -> tuple[str, ...]:
    """Return the runs whose rows a rollback removes, without those of raw files."""
    removed_runs = (runs.of(label) for label in removed if label not in noted.runs)
    restored = {runs.of(label) for label in added}
    return tuple(sorted({run for run in removed_runs if run is not None and run not in restored}))


def _is_rerouted(
    older: DatasetDescriptor, current: DatasetDescriptor, grown: Collection[str]
) -> bool:
    """Return whether dimensions have lost values, or were added, removed or reordered."""
    try:
        check_partitioning(older, current, grown=grown)
    except InvalidInputError:
        return True
    return False


def _current_again(
    noted: Sources,
    base: State,
    entries: Iterable[Entry],
    past: PastState,
    added: frozenset[str],
    removed: frozenset[str],
) -> dict[str, str]:
    """Return the keys of the raw files that are current after a rollback, by affected slot.

    The raw file of the older version is current if its slot has the rows of that version again.
    If only some of its rows were restored or removed, rows in other partitions belong to another
    raw file: then none is current, so the next ingest reads the file of that time.
    """
    if not noted.files:
        return {}
    now = noted.current()
    then = noted.current(entry for entry in entries if entry.version <= past.entry.version)
    labels = (frozenset(base.labels) - removed) | added
    touched = _labels_by_slot(noted, added | removed)
    held, held_then = _labels_by_slot(noted, labels), _labels_by_slot(noted, past.labels)
    is_whole = labels == frozenset(past.labels)
    current = {}
    for slot in {*touched, *(now if is_whole else ()), *(then if is_whole else ())}:
        before, key = _key(now.get(slot)), _key(then.get(slot))
        if key != before and held.get(slot) != held_then.get(slot):
            key = ""
        # Include slots whose file stays current: a concurrent ingest does not know of its rows.
        if slot in touched or key != before:
            current[slot] = key
    return current


def _key(file: SourceFile | None) -> str:
    return "" if file is None else file.key


def _labels_by_slot(noted: Sources, labels: Collection[str]) -> dict[str, set[str]]:
    slots = {file.key: file.slot for file in noted.files}
    by_slot: dict[str, set[str]] = {}
    for label in labels:
        for key, _ in noted.runs.get(label, ()):
            if key in slots:
                by_slot.setdefault(slots[key], set()).add(label)
    return by_slot


def restore(
    store: Store,
    restoration: Restoration,
    options: CommitOptions | None = None,
    *,
    base: State | None = None,
    hold: bool = False,
    reason: str = "",
) -> Committed | None:
    """Commit a rollback; return None if it would change nothing.

    Args:
        store: The store that holds the dataset.
        restoration: The changes of the rollback.
        options: Retry and lease settings of the commit.
        base: The state that the caller has approved the rollback for: no commit since then may
            have touched its partitions. None for the state from which it was computed.
        hold: Whether to hold the removed raw files, so that no ingest reads them again.
        reason: Reason of the holds.

    Raises:
        CommitConflictError: Another commit touched one of its partitions or read in one of its
            raw files meanwhile; nothing has changed.
        VersionNotFoundError: A cleanup has given the version up meanwhile, or a file that it
            needs is missing; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A HEAD for each restored file, several at a time; one PUT, or two if rows of raw files are
        affected, and one conditional PUT. No data file is read or written.
    """
    if not restoration.added and not restoration.removed:
        return None
    _check_files(store, restoration.base, restoration.added, restoration.version)
    scope = TheseFiles(frozenset(restoration.removed), frozenset(restoration.partitions))
    touched = ThesePartitions(frozenset(restoration.partitions))
    with Transaction.on(store, restoration.base, OPERATION, options=options) as transaction:
        sources = None
        if restoration.current:
            current = Restored(commit_id=transaction.commit_id, current=dict(restoration.current))
            reason = reason or f"rolled back to version {restoration.version}"
            held = restoration.taken_out if hold else ()
            holds = tuple(hold_of(file, reason, transaction.commit_id) for file in held)
            sources = Sources(restored=(current,), holds=holds)
        committed = transaction.commit(
            Change(
                scope=scope,
                added=restoration.added,
                row_count=restoration.row_count,
                inserted_row_count=restoration.row_count if restoration.is_counted else 0,
                restores=restoration.version,
            ),
            sources=sources,
            reads=() if base is None else (Read(state=base, scope=touched),),
        )
    for note in restoration.notes(hold=hold):
        _log.warning(
            "rollback dataset=%s version=%d: %s",
            restoration.base.name,
            committed.entry.version,
            note,
        )
    return committed


def _check_files(store: Store, base: State, labels: Sequence[str], version: int) -> None:
    """Check that the files exist: the head does not show deletions by other programs."""

    def is_missing(label: str) -> bool:
        try:
            store.size(base.layout.key(label))
        except ObjectNotFoundError:
            return True
        return False

    answers = at_once(is_missing, labels, _LOOKS_AT_ONCE)
    missing = [label for label, is_lost in zip(labels, answers, strict=True) if is_lost]
    if missing:
        raise VersionNotFoundError(
            f"Cannot roll back {base.name!r} to version {version}: "
            f"{counted(len(missing), 'data file is missing', 'data files are missing')}, such as "
            f"{base.layout.key(missing[0])}.",
            hint="Another program deleted them: restore them, or choose another version.",
        )
