"""Making an older state current again, as a new commit."""

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
from lakebed.state import file_table, history
from lakebed.state import runs as run_list
from lakebed.state import sources as source_list
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.conflicts import Read
from lakebed.state.history import Entry, PastState
from lakebed.state.readable import check_readable
from lakebed.state.runs import Runs
from lakebed.state.scope import Scope, TheseFiles, ThesePartitions
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
    """What a rollback brings back and takes out.

    Attributes:
        version: That it goes back to.
        base: The state that it starts from.
        added: Labels of the files that it brings back.
        removed: Labels of the files that it takes out.
        row_count: Entities in the files that it brings back, as far as they are known.
        is_counted: Whether these are all of them, and all that it changes.
        current: By slot of a raw file that it concerns: key of the one that is current again,
            empty where there is none; see `lakebed.state.sources`.
        taken_out: Raw files that the next ingest reads again, since rows of them go.
        runs: Names of runs whose rows go, and that are of no raw file, such as loads and epochs.
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
        """Return what comes back by itself, in sentences.

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
                f"{' and others' if len(self.runs) > _SHOWN_RUNS else ''} are of no raw file "
                "that could be held: they come back if their writer brings them again."
            )
        return tuple(notes)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it changes, in order of path."""
        return tuple(sorted({partition_of_label(label) for label in (*self.added, *self.removed)}))


def find_restoration(
    store: Store, base: State, version: int, scope: Scope | None = None
) -> Restoration:
    """Find what a rollback would change; see `Dataset.rollback`.

    Args:
        store: Where the dataset is.
        base: Its current state.
        version: To go back to.
        scope: Covers the partitions that are meant; None for all.

    Raises:
        VersionNotFoundError: There is no such version, or a cleanup has given it up.
        InvalidInputError: Since then a promotion has moved rows that would come back.

    Cost:
        The history, what tells which raw files were read, and the file table if there is
        something to bring back.
    """
    entries = history.read(store, base.lists.history)
    past = history.replay(entries, version)
    check_readable(base, entries, version)
    older, _ = descriptor_from(past.descriptor, Folder.HISTORY.of(base.name))
    grown = grown_dimensions(older, base.descriptor)
    promoted = {encode_level(name, OTHER) for name in grown}
    is_rerouted = _is_rerouted(older, base.descriptor, grown)

    def is_meant(label: str) -> bool:
        return scope is None or scope.covers(partition_of_label(label))

    now, then = frozenset(base.labels), frozenset(past.labels)
    added = tuple(label for label in past.labels if label not in now and is_meant(label))
    for label in added:
        if is_rerouted or not promoted.isdisjoint(label.split("/")):
            raise InvalidInputError(
                f"Rollback of {base.name!r} to version {version} would bring back rows of "
                f"{partition_of_label(label)!r} that have "
                f"{'other partitions' if is_rerouted else 'partitions of their own'} since "
                "a promotion.",
                hint="Read that version, and overwrite the partitions with its rows.",
            )
    removed = tuple(label for label in base.labels if label not in then and is_meant(label))
    counts = file_table.read_counts(store, base.lists.files) if added else {}
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


def _taken_out(
    noted: Sources, current: Mapping[str, str], removed: Iterable[str]
) -> tuple[SourceFile, ...]:
    """Return the raw files whose content the next ingest reads again, since rows of it go."""
    keys = {key for label in removed for key, _ in noted.runs.get(label, ())}
    keys |= {file.key for slot, file in noted.current().items() if slot in current}
    by_key = {file.key: file for file in noted.files}

    def is_there(file: SourceFile) -> bool:
        now = by_key.get(current.get(file.slot, ""))
        return now is not None and now.fingerprint == file.fingerprint

    gone = (file for file in noted.files if file.key in keys and not is_there(file))
    return tuple({file.name: file for file in gone}.values())


def _runs_of(
    runs: Runs, noted: Sources, added: Iterable[str], removed: Iterable[str]
) -> tuple[str, ...]:
    """Return the runs of which a rollback takes rows out, without those of raw files."""
    gone = (runs.of(label) for label in removed if label not in noted.runs)
    back = {runs.of(label) for label in added}
    return tuple(sorted({run for run in gone if run is not None and run not in back}))


def _is_rerouted(
    older: DatasetDescriptor, current: DatasetDescriptor, grown: Collection[str]
) -> bool:
    """Whether dimensions have lost values, come, gone or changed their order."""
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
    """Return which raw files are current after a rollback, by slot, where it concerns them.

    A raw file is the one of the older version where its slot has the rows of that version again.
    Where only some of them have come back or gone, those of other partitions are of another raw
    file: then none is current, so that the next ingest reads what there is by then.
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
        # Also where the same one stays current: an ingest meanwhile does not know of its rows.
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
    """Commit a rollback; None if it would change nothing.

    Args:
        store: Where the dataset is.
        restoration: What it changes.
        options: How long to fight for the head.
        base: The state by which it was found right: no commit since then may have touched what it
            changes. None for that from which it was computed.
        hold: Whether no ingest shall read the raw files again that it takes out.
        reason: Why they are held.

    Raises:
        CommitConflictError: Another commit touched one of its partitions or read in one of its
            raw files meanwhile; nothing has changed.
        VersionNotFoundError: A cleanup has given the version up meanwhile, or a file that it
            needs is gone; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        A HEAD for each file that is brought back, several at a time; one PUT, two where rows of
        raw files are concerned, and one conditional PUT. No data file is read or written.
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
    """Look whether the files are there: what was deleted from outside is not in the head."""

    def is_gone(label: str) -> bool:
        try:
            store.size(base.layout.key(label))
        except ObjectNotFoundError:
            return True
        return False

    answers = at_once(is_gone, labels, _LOOKS_AT_ONCE)
    gone = [label for label, is_missing in zip(labels, answers, strict=True) if is_missing]
    if gone:
        raise VersionNotFoundError(
            f"Rollback of {base.name!r} to version {version} needs "
            f"{counted(len(gone), 'data file that is gone', 'data files that are gone')}, such as {base.layout.key(gone[0])}.",
            hint="They were deleted from outside: put them back, or choose another version.",
        )
