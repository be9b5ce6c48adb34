"""Conflicts: decide whether changes since a base prevent a commit.

Every rule looks at the changes that the history records, not at whether two states are equal: rows
that were added and removed meanwhile may have been read into the data that is to be committed.
Changes by other tools have no entry in the history, or a late one; the files show them.

The rules do no I/O. `Terms` reads their inputs.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import pyarrow as pa

from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    PreconditionFailedError,
    StaleRerunError,
)
from lakebed.model.allowed import OTHER
from lakebed.model.evolution import check_partitioning, check_schema, grown_dimensions
from lakebed.model.keys import encode_level, partition_of_label
from lakebed.model.layout import Folder
from lakebed.model.predicate import TRUE, columns_of
from lakebed.model.renaming import named_as
from lakebed.state import history, runs
from lakebed.state import runs as run_list
from lakebed.state import sources as source_list
from lakebed.state.erased_files import mark_of, marks_in
from lakebed.state.history import Entry
from lakebed.state.readable import check_readable, is_readable
from lakebed.state.runs import Runs
from lakebed.state.scope import (
    Nothing,
    RewrittenFiles,
    RunFiles,
    Scope,
    Several,
    TheseFiles,
    ThesePartitions,
    Unchanged,
    WholePartitions,
    WholeView,
)
from lakebed.state.sources import Sources, changed_meanwhile
from lakebed.state.state import (
    FOREIGN,
    Change,
    State,
    descriptor_from,
    find_progress,
    have_same_files,
    is_one_dataset,
)
from lakebed.state.undone import ROLLBACK
from lakebed.store.base import Store

LONGER_LEASE = "Write the data again, with a longer lease."
_BOTH = "Both change the descriptor."
_AGAIN = "Read the new version, and write again if it is still right."
# Operations that write rows again, unchanged; a promotion may write them into other partitions.
_COMPACTING = frozenset({"compact"})
_MOVING = frozenset({"compact", "promote"})

_Changed = dict[str, Entry | None]
"""Changed partitions, each with the last entry that changed it; None for a change by another tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Data that a commit depends on besides its own base, and that must not have changed since.

    Attributes:
        state: The state that was read; older than the base of the commit, or the same.
        scope: The part of the state that was read.
        runs: The runs and what they wrote, if the scope is the output of a run.
    """

    state: State
    scope: Scope
    runs: Runs | None = None


def outlasted(lease: dt.timedelta) -> str:
    """Return the reason why a batch of a writer that a cleanup declared dead is refused."""
    return (
        f"its writer outlasted its lease of {lease}, and a cleanup has declared it dead. Nothing "
        "became visible."
    )


def check_same_dataset(base: State, now: State) -> None:
    """Check that the dataset is that of the base, and not a later one of the same name.

    Raises:
        CommitConflictError: The dataset was dropped and created again.
    """
    if not now.is_ours or not is_one_dataset(base, now):
        raise CommitConflictError(
            f"Dataset {base.name!r} was dropped and created again meanwhile.",
            hint="Write to the new dataset if that is what you want.",
            expected=base.version,
            actual=now.version,
        )


def check_in_time(
    base: State,
    now: State,
    change: Change,
    lease: dt.timedelta,
    staged_until: dt.datetime | None = None,
) -> None:
    """Check that no cleanup has given up the batch that a change would make visible.

    Args:
        base: The state that the change was computed from.
        now: The current state.
        change: The change to commit.
        lease: The lease of the writer.
        staged_until: End of the lease, for a batch that was staged before.

    Raises:
        CommitConflictError: A cleanup has given up the batch.
    """
    batch_id = change.batch_id
    if batch_id is None or now.may_commit(batch_id):
        return
    reason, hint = outlasted(lease), LONGER_LEASE
    if staged_until is not None:
        reason = (
            f"it was discarded, or its lease ended at {staged_until.isoformat(timespec='seconds')} "
            "and a cleanup has given it up. Nothing became visible."
        )
        hint = "Stage the data again, with a longer lease if necessary."
    raise CommitConflictError(
        f"Batch {batch_id} of {base.name!r} comes too late: {reason}",
        hint=hint,
        expected=base.version,
        actual=now.version,
    )


def check_unchanged(expected: State, now: State, change: Change) -> None:
    """Check that the head is in the state that a change is meant for.

    Raises:
        PreconditionFailedError: The head is in another state.
    """
    same_commit = (now.version, now.commit_id) == (expected.version, expected.commit_id)
    if same_commit and have_same_files(now, expected):
        return
    raise PreconditionFailedError(
        f"{change.operation} of {now.name!r} is meant for version {expected.version}, "
        f"and version {now.version} is current, or another tool has changed it.",
        hint="Look at the current version, and try again.",
    )


def check_sources(
    base: State, now: State, change: Change, mine: Sources, known: Sources, latest: Sources
) -> None:
    """Check that no other commit has read in the same raw files: rows would be duplicated.

    Args:
        base: The state that the change was computed from.
        now: The current state.
        change: The change to commit.
        mine: The raw files that the change reads in.
        known: The raw files that had been read in at the base.
        latest: The raw files that are read in now.

    Raises:
        CommitConflictError: A run has read one of the files since; the message names the run.
    """
    rival = changed_meanwhile(known, latest, mine)
    if rival is not None:
        hint = "Run it again: it skips the files that were read in."
        raise _conflict(base, now, change.operation, f"{rival}.", hint)


def _conflict(
    base: State,
    now: State,
    operation: str,
    what: str,
    hint: str,
    partitions: tuple[str, ...] = (),
) -> CommitConflictError:
    return CommitConflictError(
        f"{operation} of {base.name!r}, based on version {base.version}, conflicts with {what}",
        hint=hint,
        expected=base.version,
        actual=now.version,
        partitions=partitions,
    )


def check(
    base: State, now: State, change: Change, since: Sequence[Entry], reads: Sequence[Read] = ()
) -> None:
    """Check that no change since the base conflicts with a change.

    Args:
        base: The state that the change was computed from.
        now: The current state.
        change: The change to commit.
        since: The entries of the history since the base, and since the oldest of the reads.
        reads: Further states that the change depends on.

    Raises:
        CommitConflictError: A commit or another tool has changed data that the change depends on;
            the message names it.
        StaleRerunError: A later rerun of the same run was faster.
    """
    for read in reads:
        check_same_dataset(read.state, now)
    later = after(since, base)
    _check_upkeep(base, now, change, later)
    _check_cleanup(base, now, change, later)
    _check_erased(base, now, change, since, reads)
    _check_descriptor(base, now, change, later, reads)
    _check_progress(base, now, change, later)
    own = Read(state=base, scope=change.scope)
    for read in (own, *reads):
        what = _Since(read.state, now, tuple(after(since, read.state)))
        for scope in _parts(read.scope):
            if isinstance(scope, RunFiles):
                _check_run(read, scope, what, change)
            if not isinstance(scope, Nothing):
                _check_files(scope, what, change, is_own=read is own)


@dataclass(frozen=True)
class _Since:
    """The changes since a state."""

    state: State
    now: State
    entries: tuple[Entry, ...]

    @cached_property
    def changed(self) -> _Changed:
        """Return the changed partitions, each with the last entry that changed it.

        None stands for another tool, whose change has no entry yet.
        """
        return self._touched()

    @cached_property
    def other_rows(self) -> _Changed:
        """Return those partitions whose rows may differ: a compaction leaves rows unchanged."""
        return self._touched(without=_COMPACTING)

    @cached_property
    def changed_rows(self) -> _Changed:
        """Return those partitions where rows came or went, wherever promotions have moved them."""
        return self._touched(without=_MOVING)

    @cached_property
    def is_repartitioned(self) -> bool:
        """Return whether partition functions were others at any time since the state.

        Then the same rows may have had another partition, even if the functions are equal again.
        """
        return _are_repartitioned(self.state, self.now, self.entries)

    @cached_property
    def is_recorded(self) -> bool:
        """Return whether the entries hold all changes, because no other tool has made any.

        Then nothing needs the labels of all files: the entries lead from the one state to the other.
        """
        by_others = any(entry.operation == FOREIGN for entry in self.entries)
        return not (by_others or self.state.is_changed_by_others or self.now.is_changed_by_others)

    def _touched(self, without: frozenset[str] = frozenset()) -> _Changed:
        """Return the partitions that operations touched, without some that only move rows."""
        if not self.entries and have_same_files(self.state, self.now):
            return {}
        if self.is_recorded:
            # Those only move rows that the state had, or that an entry before them added.
            return {
                partition_of_label(label): entry
                for entry in self.entries
                if entry.operation not in without
                for label in (*entry.removed, *entry.added)
            }
        touched: _Changed = {}
        live = set(self.state.labels)
        for entry in self.entries:
            labels: Collection[str] = (*entry.removed, *entry.added)
            if entry.operation == FOREIGN:
                # The state may have shown some of it, before it got its entry.
                labels = [*live.intersection(entry.removed), *set(entry.added).difference(live)]
            elif entry.operation in without:
                # The rows of files that the state did not have are among the new ones.
                strange = {
                    partition_of_label(label) for label in entry.removed if label not in live
                }
                labels = [label for label in labels if partition_of_label(label) in strange]
            touched.update((partition_of_label(label), entry) for label in labels)
            live.difference_update(entry.removed)
            live.update(entry.added)
        late = live.symmetric_difference(self.now.labels)
        touched.update((partition_of_label(label), None) for label in late)
        return touched


def _parts(scope: Scope) -> tuple[Scope, ...]:
    return scope.parts if isinstance(scope, Several) else (scope,)


def _are_repartitioned(state: State, now: State, since: Iterable[Entry]) -> bool:
    """Return whether partition functions differ between two states, or have meanwhile."""
    folder = Folder.HISTORY.of(now.name)
    declared = [now.descriptor]
    declared += (
        descriptor_from(entry.descriptor, folder)[0]
        for entry in since
        if entry.descriptor is not None
    )
    # A field that was renamed since has the partitions that it had.
    schema = now.descriptor.schema
    mine = named_as(state.descriptor, schema).partition_by
    return any(named_as(one, schema).partition_by != mine for one in declared)


def check_base_of_batch(
    base: State, now: State, operation: str, scope: Scope, since: Sequence[Entry]
) -> None:
    """Check that rows have the partitions that they had at a base, before a batch is staged.

    The commit of the batch does not know the state that it was staged on. So it would not notice
    that dimensions have changed and are those of the base again, or that values beyond a cap have a
    partition of their own since.

    Args:
        base: The base.
        now: The state on which the batch is staged.
        operation: Operation of the batch.
        scope: The scope of the batch.
        since: The entries of the history since the base.

    Raises:
        CommitConflictError: Rows may have other partitions since.
    """
    if _are_repartitioned(base, now, ()):
        what = "a change of the partition functions: rows have other partitions since."
        raise _conflict(base, now, operation, what, _AGAIN)
    beyond = _beyond_caps(scope, _Since(base, now, tuple(since)))
    if beyond:
        raise _changed_elsewhere(base, now, operation, beyond)


def after(since: Iterable[Entry], state: State) -> list[Entry]:
    """Return the entries of commits after a state."""
    return [entry for entry in since if entry.version > state.version]


def check_descriptor_kept(base: State, now: State, operation: str, since: Iterable[Entry]) -> None:
    """Check that the descriptor has not changed since the base.

    Raises:
        CommitConflictError: A commit has changed it; the message names the commit.
    """
    updates = [entry for entry in after(since, base) if entry.descriptor is not None]
    if updates:
        raise _descriptor_conflict(base, now, operation, updates, _BOTH)


def _descriptor_conflict(
    base: State, now: State, operation: str, updates: Sequence[Entry], reason: str
) -> CommitConflictError:
    what = named(updates[-1]) if updates else "another update"
    return _conflict(base, now, operation, f"{what}. {reason}", _AGAIN)


def _check_upkeep(base: State, now: State, change: Change, since: Sequence[Entry]) -> None:
    """Check that horizon and protections have not changed since a protection was validated."""
    if not change.protect and not change.unprotect:
        return
    have_changed = (base.horizon, base.protections) != (now.horizon, now.protections)
    if have_changed or any(
        entry.horizon is not None or entry.protected or entry.unprotected for entry in since
    ):
        hint = "Look at the protections, and repeat the call if it is still right."
        raise _conflict(base, now, change.operation, "a cleanup or another protection.", hint)


def _check_cleanup(base: State, now: State, change: Change, since: Sequence[Entry]) -> None:
    """Check that no cleanup may have deleted objects that a change wrote without a reservation.

    A cleanup commits the list of what it gives up, and then deletes it. It also deletes objects
    that no head names and no reservation holds, such as merged segments of a writer that was
    suspended for days. An erasure deletes such objects, too.
    """
    cleanups = [entry for entry in since if entry.operation == "cleanup" or entry.erased]
    if cleanups and change.brings_unreserved:
        what = f"{named(cleanups[-1])}: it may have deleted objects that were written for this."
        raise _conflict(base, now, change.operation, what, "Do it again.")


def _check_erased(
    base: State, now: State, change: Change, since: Sequence[Entry], reads: Sequence[Read]
) -> None:
    """Check that an erasure has not taken out a file that a change would bring back, or has read.

    A state that was read from the history since has other files than those that were read: there
    the partitions decide.
    """
    if not any(entry.erased for entry in since):
        return
    own = Read(state=base, scope=change.scope)
    brought = frozenset(change.erases or change.added)
    for state, labels, scopes in (
        (base, brought, ()),
        *((read.state, _files_read(read), _parts(read.scope)) for read in (own, *reads)),
    ):
        later = [entry for entry in after(since, state) if entry.erased]
        marks = marks_in(later)
        partitions = {path for entry in later for path in entry.partitions}
        if any(mark_of(base.layout.key(label)) in marks for label in labels) or any(
            scope.covers(path) for scope in scopes for path in partitions
        ):
            what = f"{named(later[-1])}: it has erased rows of a file that this depends on."
            raise _conflict(base, now, change.operation, what, _AGAIN, tuple(sorted(partitions)))


def _files_read(read: Read) -> frozenset[str]:
    """Return the files that a change removes or depends on."""
    labels: set[str] = set()
    for scope in _parts(read.scope):
        if isinstance(scope, RewrittenFiles):
            labels |= scope.needed
        elif isinstance(scope, TheseFiles):
            labels |= scope.labels
        elif isinstance(scope, WholePartitions):
            of_state = read.state.labels
            labels.update(label for label in of_state if scope.covers(partition_of_label(label)))
    return frozenset(labels)


def _check_descriptor(
    base: State, now: State, change: Change, since: Sequence[Entry], reads: Sequence[Read]
) -> None:
    """Check again everything that depends on the descriptor, if the descriptor has changed.

    Files keep the number of the schema that they were written with, so they can be read under a
    later schema if the rules of evolution lead from the one to the other.
    """
    if change.new_descriptor is not None:
        check_descriptor_kept(base, now, change.operation, since)
    if (now.descriptor, now.lineage) == (base.descriptor, base.lineage):
        return
    if change.new_descriptor is not None:
        raise _descriptor_conflict(base, now, change.operation, (), _BOTH)
    scopes = [*_parts(change.scope), *(part for read in reads for part in _parts(read.scope))]
    reason = ""
    if base.layout.partition_types != now.layout.partition_types and not all(
        isinstance(scope, Nothing) for scope in scopes
    ):
        reason = "Partition values have another type now."
    else:
        before = named_as(base.descriptor, now.descriptor.schema)
        grown = grown_dimensions(before, now.descriptor)
        try:
            check_partitioning(before, now.descriptor, grown=grown)
            check_schema(before.schema, now.descriptor.schema, base.lineage.number)
        except InvalidInputError as exc:
            reason = exc.message
        reason = reason or _misrouted(grown, scopes, change.added)
    if reason:
        updates = [entry for entry in since if entry.descriptor is not None]
        raise _descriptor_conflict(base, now, change.operation, updates, reason)


def moved_meanwhile(base: State, now: State) -> CommitConflictError:
    """Return the error for a head that another writer has moved to another format."""
    return CommitConflictError(
        f"The head of {base.name!r} was moved to {now.head_format} meanwhile.",
        hint="Move it again if that is still right.",
        expected=base.version,
        actual=now.version,
    )


def check_foreign_loss(now: State, foreign: Entry, change: Change) -> None:
    """Check that no commit goes on from a head whose files another tool has all removed.

    Damage may look the same. The files are on storage until a cleanup finds them superseded, so a
    rollback restores them; a commit that takes the loss over starts that time.

    Raises:
        CommitConflictError: The other tool has removed all files, and the change neither restores
            files nor replaces everything.
    """
    is_lost = bool(foreign.removed) and not now.live.count
    is_meant = (
        change.restores is not None
        or change.operation == ROLLBACK
        or (isinstance(change.scope, WholeView) and change.scope.predicate == TRUE)
    )
    if is_lost and not is_meant:
        raise CommitConflictError(
            f"Another tool has removed all {len(foreign.removed)} files of {now.name!r} from its head "
            f"since version {now.version}. Nothing was written.",
            hint=f"A rollback to version {now.version} restores them. If their removal is meant, an "
            "overwrite of the whole dataset accepts it.",
            expected=now.version,
            actual=foreign.version,
        )


def _check_progress(base: State, now: State, change: Change, since: Sequence[Entry]) -> None:
    """Check that a streaming query has not advanced since its next epoch was determined.

    If the epoch repeats an earlier one, a rollback meanwhile may have restored its rows.
    """
    if change.progress is None:
        return
    rollbacks = [entry for entry in since if entry.operation == ROLLBACK]
    if rollbacks and not isinstance(change.scope, Nothing):
        what = f"{named(rollbacks[-1])}: it may have changed the committed rows of the epoch."
        raise _conflict(base, now, change.operation, what, "Start the query again.")
    before, after_ = (find_progress(state.streams, change.progress.query) for state in (base, now))
    if before != after_ and after_ is not None:
        raise _conflict(
            base,
            now,
            change.operation,
            f"epoch {after_.epoch} of the same streaming query {after_.query!r}, which was "
            "committed meanwhile.",
            "Two drivers run one query: stop one, and restart the other.",
        )


def _misrouted(grown: Sequence[str], scopes: Iterable[Scope], added: Iterable[str]) -> str:
    """Return why files may hold rows in wrong partitions since dimensions allow more values.

    Rows in a partition of their own are right. Rows in `OTHER` may not be, and the partitions of a
    view were computed by the old rules.
    """
    if not grown:
        return ""
    if any(isinstance(scope, WholeView) for scope in scopes):
        return "Dimensions of the view allow more values now."
    others = {encode_level(name, OTHER) for name in grown}
    for label in added:
        if not others.isdisjoint(label.split("/")):
            return f"Rows of {partition_of_label(label)!r} may have partitions of their own now."
    return ""


def _check_files(scope: Scope, since: _Since, change: Change, *, is_own: bool) -> None:
    """Check that the files in a scope are those of the state, and were so throughout."""
    if isinstance(scope, RunFiles) and not scope.partitions:
        return
    if isinstance(scope, RewrittenFiles):
        touched = _lost_or_missed(scope, since)
    else:
        changed = (
            since.other_rows if isinstance(scope, WholePartitions | RunFiles) else since.changed
        )
        touched = {name: entry for name, entry in changed.items() if scope.covers(name)}
        elsewhere: _Changed = {}
        if since.is_repartitioned:
            # The scope is of one time, and paths of another say nothing about its rows.
            elsewhere = since.changed_rows
        elif since.state.version < change.base_version:
            elsewhere = _beyond_caps(scope, since)
        if elsewhere.keys() - touched.keys():
            raise _changed_elsewhere(since.state, since.now, change.operation, elsewhere | touched)
    if touched:
        reason = "both touch {}." if is_own else "it touched {} since."
        raise _touch_conflict(since.state, since.now, change.operation, touched, reason)


def _changed_elsewhere(
    base: State, now: State, operation: str, touched: _Changed
) -> CommitConflictError:
    reason = "it touched {}, and rows have other partitions since."
    return _touch_conflict(base, now, operation, touched, reason)


def _touch_conflict(
    base: State, now: State, operation: str, touched: _Changed, reason: str
) -> CommitConflictError:
    # The newest first; a change without an entry is newer than all.
    last = max(touched.values(), key=lambda entry: float("inf") if entry is None else entry.version)
    partitions = tuple(sorted(touched))
    shown = ", ".join(name or "the whole dataset" for name in partitions[:5])
    what = "a change by another tool" if last is None else named(last)
    return _conflict(base, now, operation, f"{what}: {reason.format(shown)}", _AGAIN, partitions)


def _beyond_caps(scope: Scope, since: _Since) -> _Changed:
    """Return changed partitions whose rows a later state may have in partitions of a scope.

    The cap of a dimension sends values to `OTHER` that may get a partition later, when others have
    lost theirs, and the reverse.
    """
    descriptor = since.now.descriptor
    caps = descriptor.partition_by.caps(descriptor.schema)
    # Partitions that may hold rows of a condition include `OTHER` and those of the values.
    if not caps or isinstance(scope, Nothing | Unchanged):
        return {}
    if isinstance(scope, WholeView) and caps.keys().isdisjoint(columns_of(scope.predicate)):
        return {}
    tokens = frozenset(encode_level(name, OTHER) for name in caps)
    others = {level.partition("=")[0]: level for level in tokens}

    def merged(partition: str) -> str:
        return "/".join(others.get(one.partition("=")[0], one) for one in partition.split("/"))

    def has_others(partition: str) -> bool:
        return not tokens.isdisjoint(partition.split("/"))

    changed = since.changed_rows
    if isinstance(scope, WholeView):
        return {
            name: entry
            for name, entry in changed.items()
            if has_others(name) or scope.covers(merged(name))
        }
    assert isinstance(scope, ThesePartitions | TheseFiles | RunFiles)
    own = frozenset(scope.partitions or ())
    all_merged = {merged(name) for name in own}
    merged_others = {merged(name) for name in own if has_others(name)}
    return {
        name: entry
        for name, entry in changed.items()
        if merged(name) in (all_merged if has_others(name) else merged_others)
    }


def _lost_or_missed(scope: RewrittenFiles, since: _Since) -> _Changed:
    """Return the partitions where files to rewrite are gone, or where new files must be read.

    A file that went and came back holds the same rows, because files are immutable.
    """
    # Another tool may have added a needed file and removed it again, without an entry.
    lost = scope.needed - since.now.live.holding(scope.needed)
    wrong = {*lost, *filter(scope.misses, _new_since(since))}
    touched: _Changed = {partition_of_label(label): None for label in wrong}
    for entry in since.entries:
        for label in wrong.intersection((*entry.added, *entry.removed)):
            touched[partition_of_label(label)] = entry
    return touched


def _new_since(since: _Since) -> Collection[str]:
    """Return the files that are live and that the state lacks."""
    if since.is_recorded:
        return history.net_labels(since.entries)[0]
    before, labels = since.state.labels, since.now.labels
    return () if before == labels else set(labels).difference(before)


def _check_run(read: Read, scope: RunFiles, since: _Since, change: Change) -> None:
    """Check that the repeated run has not written anything meanwhile.

    If the output of the run was read, no other commit may have changed that output either.
    """
    base, now = since.state, since.now
    others = [
        entry
        for entry in run_list.written_by(since.entries, scope.run)
        if entry.batch_id is not None
    ]
    is_of_run = bool(others)
    if not others and read.runs is not None:
        others = [entry for entry in since.entries if _concerns(entry, scope.run, read.runs)]
    if not others:
        return
    newest = max(others, key=lambda entry: entry.batch_id or 0)
    newest_name = named(newest)
    if newest.batch_id is not None:
        newest_name = f"batch {newest.batch_id} of {newest_name}"
    if is_of_run and (newest.batch_id or 0) > (change.batch_id or 0):
        error = StaleRerunError(
            f"Rerun of {scope.run!r} in {base.name!r} is stale: its batch "
            f"{change.batch_id} began before {newest_name}, which it would replace.",
            hint="The newer batch stays. Run it again if that is not right.",
            expected=base.version,
            actual=now.version,
            partitions=newest.partitions,
        )
        error.batch_id, error.commit_id = newest.batch_id, newest.commit_id
        raise error
    if is_of_run:
        reason = "it belongs to the same run"
        hint = "Let one rerun of a run finish before the next begins."
    else:
        reason, hint = "it touched what the run has written", _AGAIN
    raise CommitConflictError(
        f"Rerun of {scope.run!r} in {base.name!r}, based on version {base.version}, conflicts "
        f"with {newest_name}: {reason}.",
        hint=hint,
        expected=base.version,
        actual=now.version,
        partitions=newest.partitions,
    )


def _concerns(entry: Entry, run: str, runs: Runs) -> bool:
    """Return whether a commit removed, restored or rewrote output of a run."""
    if entry.operation == "compact":
        return False
    touched = (*entry.removed, *entry.added)
    return run in entry.carried.values() or any(runs.of(label) == run for label in touched)


def named(entry: Entry) -> str:
    """Return a description of a commit for messages."""
    return f"the {entry.operation} that made version {entry.version} (commit {entry.commit_id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A change and its preconditions.

    Attributes:
        base: The state that the change was computed from.
        change: The change to commit.
        lease: The lease of the writer.
        sources: The raw files in the segment of the change.
        reads: Further states that the change depends on.
        only_on: The only state that the change may be committed on; None for any without conflict.
        staged_until: End of the lease, for a batch that was staged before.
        facts: Facts of the files that the change adds, and of others; None if the object that the
            change names has them.
    """

    base: State
    change: Change
    lease: dt.timedelta
    sources: Sources | None = None
    reads: tuple[Read, ...] = ()
    only_on: State | None = None
    staged_until: dt.datetime | None = None
    facts: pa.Table | None = None

    def with_runs(self, store: Store) -> Self:
        """Return the terms with the output of each run, where a read depends on it."""

        def known(read: Read) -> Read:
            is_of_run = isinstance(read.scope, RunFiles)
            return replace(read, runs=runs.read(store, self.base.lists)) if is_of_run else read

        return replace(self, reads=tuple(map(known, self.reads)))

    @property
    def oldest_version(self) -> int:
        """The version of the base, or of the oldest of the reads."""
        return min((self.base.version, *(read.state.version for read in self.reads)))

    def needs_entries(self, now: State) -> bool:
        """Return whether the check depends on what other commits have done since the base.

        It does not for an append to the same descriptor. A batch that was staged before may be
        erased meanwhile, and objects without a reservation may be cleaned up.
        """
        base, change = self.base, self.change
        is_blind = (
            isinstance(change.scope, Nothing)
            and not (self.reads or change.earlier or change.erases or change.protect)
            and not (change.unprotect or change.brings_unreserved)
            and change.progress is None
            and change.new_descriptor is None
            and self.staged_until is None
            and change.batch_id is not None
        )
        is_same = (base.descriptor, base.lineage) == (now.descriptor, now.lineage)
        return not (is_blind and is_same)

    def check(self, store: Store, now: State, since: Sequence[Entry]) -> None:
        """Check that the change does not conflict with the current state.

        Args:
            store: The store that holds the dataset.
            now: The current state.
            since: The entries since the base, and since the oldest of the reads, if the check
                needs them.

        Raises:
            CommitConflictError: A commit since the base conflicts with the change.
            PreconditionFailedError: The change is meant for another state.
            VersionNotFoundError: A cleanup has given up the version that the change restores.
        """
        base, change = self.base, self.change
        check_in_time(base, now, change, self.lease, self.staged_until)
        if change.restores is not None and not is_readable(now, change.restores):
            check_readable(now, history.read(store, now.lists.history), change.restores)
        if self.sources is not None and base.lists.sources != now.lists.sources:
            known, latest = (source_list.read(store, state.lists.sources) for state in (base, now))
            check_sources(base, now, change, self.sources, known, latest)
        check(base, now, change, since, self.reads)
        if self.only_on is not None:
            check_unchanged(self.only_on, now, change)
