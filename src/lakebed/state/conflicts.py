"""Conflicts: whether what happened since a base stands in the way of a commit. No I/O.

Every rule looks at what happened, as the history tells it, and not at whether things are equal again:
rows that were added and taken out meanwhile may have found their way into what is to be committed.
What other tools did has no entry in the history, or a late one; there the files tell it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    PreconditionFailedError,
    StaleRerunError,
)
from lakebed.model.allowed import OTHER
from lakebed.model.evolution import check_partitioning, check_schema, grown_dimensions
from lakebed.model.keys import encode_level, partition_of, split_label
from lakebed.state import runs as run_list
from lakebed.state.history import Entry
from lakebed.state.runs import Runs
from lakebed.state.scope import (
    Nothing,
    RewrittenFiles,
    RunFiles,
    Scope,
    Several,
    WholePartitions,
    WholeView,
)
from lakebed.state.state import FOREIGN, Change, State

LONGER_LEASE = "Write the data again, with a longer lease: CommitOptions(lease=…)."
_BOTH = "Both change the descriptor."
_AGAIN = "Read the new version, and write again if it still is right."


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a commit rests on beside its own base, and nobody else may have changed since.

    Attributes:
        state: That it was read from; older than the base of the commit, or the same.
        scope: Which part of it.
        runs: Which run wrote what, where the scope is what a run wrote.
    """

    state: State
    scope: Scope
    runs: Runs | None = None


def outlasted(lease: dt.timedelta) -> str:
    """Say what became of a writer that a cleanup has taken for dead."""
    return (
        f"its writer outlasted its lease of {lease}, and a cleanup has taken it for dead. Nothing "
        "became visible."
    )


def check_same_dataset(base: State, now: State) -> None:
    """Check that the dataset is the one that the base is of, and no later namesake.

    Raises:
        CommitConflictError: It is another one.
    """
    if not now.is_ours or now.created_at != base.created_at:
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
        now: What the head says.
        change: What is to be committed.
        lease: Of its writer.
        staged_until: When the lease of a batch ends that was staged before.

    Raises:
        CommitConflictError: One has.
    """
    batch_id = change.batch_id
    if batch_id is None or batch_id >= now.oldest_batch or batch_id in now.open_batches:
        return
    told, hint = outlasted(lease), LONGER_LEASE
    if staged_until is not None:
        told = (
            f"its lease ended at {staged_until.isoformat(timespec='seconds')}, and a cleanup has "
            "given it up. Nothing became visible."
        )
        hint = "Stage the data again, with a longer lease: stage(…, lease=…)."
    raise CommitConflictError(
        f"Batch {batch_id} of {base.name!r} comes too late: {told}",
        hint=hint,
        expected=base.version,
        actual=now.version,
    )


def check_unchanged(expected: State, now: State, change: Change) -> None:
    """Check that the head is in the state that a change is meant for.

    Raises:
        PreconditionFailedError: It is not.
    """
    if (now.version, now.commit_id, now.labels) == (
        expected.version,
        expected.commit_id,
        expected.labels,
    ):
        return
    raise PreconditionFailedError(
        f"{change.operation} of {now.name!r} is meant for version {expected.version}, "
        f"and version {now.version} is current, or another tool has changed it.",
        hint="Look at the current version, and try again.",
    )


def check(
    base: State, now: State, since: Sequence[Entry], change: Change, reads: Sequence[Read] = ()
) -> None:
    """Check that nothing that happened since stands in the way of a change.

    Args:
        base: The state that the change was computed from.
        now: What the head says.
        since: The entries of the history since the base, and since the oldest of the reads.
        change: What is to be committed.
        reads: What else it rests on.

    Raises:
        CommitConflictError: A commit or another tool has changed what the change rests on; the
            message names it.
        StaleRerunError: A later rerun of the same run was faster.
    """
    for read in reads:
        check_same_dataset(read.state, now)
    later = after(since, base)
    _check_upkeep(base, now, later, change)
    _check_descriptor(base, now, later, change, reads)
    own = Read(state=base, scope=change.scope)
    for read in (own, *reads):
        for scope in read.scope.parts if isinstance(read.scope, Several) else (read.scope,):
            if isinstance(scope, RunFiles):
                _check_run(read, scope, now, after(since, read.state), change)
            elif not isinstance(scope, Nothing):
                _check_files(read, scope, now, after(since, read.state), change, is_own=read is own)


def after(since: Iterable[Entry], state: State) -> list[Entry]:
    """Return the entries of commits after a state."""
    return [entry for entry in since if entry.version > state.version]


def check_descriptor_kept(base: State, now: State, since: Iterable[Entry], operation: str) -> None:
    """Check that nobody has changed the descriptor since the base.

    Raises:
        CommitConflictError: Somebody has; the message names the commit.
    """
    updates = [entry for entry in after(since, base) if entry.descriptor is not None]
    if updates:
        raise _descriptor_conflict(base, now, updates, operation, _BOTH)


def _descriptor_conflict(
    base: State, now: State, updates: Sequence[Entry], operation: str, reason: str
) -> CommitConflictError:
    return CommitConflictError(
        f"{operation} of {base.name!r}, based on version {base.version}, conflicts with "
        f"{named(updates[-1]) if updates else 'another update'}. {reason}",
        hint=_AGAIN,
        expected=base.version,
        actual=now.version,
    )


def _check_upkeep(base: State, now: State, since: Sequence[Entry], change: Change) -> None:
    """Check that what is kept from cleanup is what it was when a protection was found right."""
    if not change.protect and not change.unprotect:
        return
    have_changed = (base.horizon, base.protections) != (now.horizon, now.protections)
    if have_changed or any(
        entry.horizon is not None or entry.protected or entry.unprotected for entry in since
    ):
        raise CommitConflictError(
            f"{change.operation} of {base.name!r}, based on version {base.version}, conflicts "
            "with a cleanup or another protection.",
            hint="Look at protections(), and do it again if it still is right.",
            expected=base.version,
            actual=now.version,
        )


def _check_descriptor(
    base: State, now: State, since: Sequence[Entry], change: Change, reads: Sequence[Read]
) -> None:
    """Check again what depends on the descriptor, if it is no longer that of the base.

    Files keep the number of the schema that they were written with, so that they read right
    under a later one if the rules of evolution let the one become the other.
    """
    if change.descriptor is not None:
        check_descriptor_kept(base, now, since, change.operation)
    if (now.descriptor, now.lineage) == (base.descriptor, base.lineage):
        return
    if change.descriptor is not None:
        raise _descriptor_conflict(base, now, (), change.operation, _BOTH)
    scopes = [change.scope, *(read.scope for read in reads)]
    scopes = [
        part for one in scopes for part in (one.parts if isinstance(one, Several) else (one,))
    ]
    reason = ""
    if base.partition_types != now.partition_types and not all(
        isinstance(one, Nothing) for one in scopes
    ):
        reason = "Partition values have another type now."
    else:
        grown = grown_dimensions(base.descriptor, now.descriptor)
        try:
            check_partitioning(base.descriptor, now.descriptor, grown=grown)
            check_schema(base.descriptor.schema, now.descriptor.schema, base.lineage.number)
        except InvalidInputError as exc:
            reason = exc.message
        reason = reason or _misrouted(grown, scopes, change.added)
    if reason:
        updates = [entry for entry in since if entry.descriptor is not None]
        raise _descriptor_conflict(base, now, updates, change.operation, reason)


def _misrouted(grown: Sequence[str], scopes: Iterable[Scope], added: Iterable[str]) -> str:
    """Say why files may hold rows that have another partition since dimensions allow more.

    What went to a partition of its own is right there. What went to `OTHER` may not be, and what
    a view says of partitions was told by the old rules.
    """
    if not grown:
        return ""
    if any(isinstance(one, WholeView) for one in scopes):
        return "Dimensions of the view allow more values now."
    others = {encode_level(name, OTHER) for name in grown}
    for label in added:
        if not others.isdisjoint(label.split("/")):
            return f"Rows of {_partition(label)!r} may have partitions of their own now."
    return ""


def _check_files(
    read: Read,
    scope: Scope,
    now: State,
    since: Sequence[Entry],
    change: Change,
    *,
    is_own: bool,
) -> None:
    """Check that the files in a scope are those that were read, and always were."""
    base = read.state
    if isinstance(scope, RewrittenFiles):
        touched = _lost_or_missed(scope, now, since)
    else:
        touched = _touched(base, now, since, scope)
    if not touched:
        return
    # The newest first, and what has no entry yet is newer than all.
    last = max(touched.values(), key=lambda one: float("inf") if one is None else one.version)
    partitions = tuple(sorted(touched))
    shown = ", ".join(one or "the whole dataset" for one in partitions[:5])
    raise CommitConflictError(
        f"{change.operation} of {base.name!r}, based on version {base.version}, conflicts with "
        f"{'a change by another tool' if last is None else named(last)}: "
        + (f"both touch {shown}." if is_own else f"it touched {shown} since."),
        hint=_AGAIN,
        expected=base.version,
        actual=now.version,
        partitions=partitions,
    )


def _lost_or_missed(
    scope: RewrittenFiles, now: State, since: Sequence[Entry]
) -> dict[str, Entry | None]:
    """Return the partitions where files to be rewritten are gone, or others are to be looked at.

    A file that went and came back holds the rows that were read, for files are immutable.
    """
    live = frozenset(now.labels)
    wrong = {*(scope.labels - live), *filter(scope.misses, now.labels)}
    found: dict[str, Entry | None] = {_partition(label): None for label in wrong}
    for entry in since:
        for label in wrong.intersection((*entry.added, *entry.removed)):
            found[_partition(label)] = entry
    return found


def _touched(
    base: State, now: State, since: Sequence[Entry], scope: Scope
) -> dict[str, Entry | None]:
    """Return the partitions of a scope in which something has happened, and who did the last of it.

    None stands for another tool, whose change has no entry yet. A compaction leaves the rows of a
    partition as they are, so that a scope of whole partitions does not mind it.
    """
    if not since and base.labels == now.labels:
        return {}
    found: dict[str, Entry | None] = {}
    live = set(base.labels)
    for entry in since:
        labels: Collection[str] = (*entry.removed, *entry.added)
        if entry.operation == FOREIGN:
            # The base may have shown some of it, before it got its entry.
            labels = [*live.intersection(entry.removed), *set(entry.added).difference(live)]
        elif entry.operation == "compact" and isinstance(scope, WholePartitions):
            # Of files that the base did not have, the rows are among the new ones.
            strange = {_partition(label) for label in entry.removed if label not in live}
            labels = [label for label in labels if _partition(label) in strange]
        found.update(dict.fromkeys(_covered(scope, labels), entry))
        live.difference_update(entry.removed)
        live.update(entry.added)
    found.update(dict.fromkeys(_covered(scope, live.symmetric_difference(now.labels))))
    return found


def _covered(scope: Scope, labels: Iterable[str]) -> Iterator[str]:
    return filter(scope.covers, {_partition(label) for label in labels})


def _check_run(
    read: Read, scope: RunFiles, now: State, since: Sequence[Entry], change: Change
) -> None:
    """Check that the run which is repeated has not written anything meanwhile.

    Where it was read what the run has written, nobody else may have changed that either.
    """
    base = read.state
    others = [
        entry for entry in run_list.written_by(since, scope.run) if entry.batch_id is not None
    ]
    is_of_run = bool(others)
    if not others and read.runs is not None:
        others = [entry for entry in since if _concerns(entry, scope.run, read.runs)]
    if not others:
        return
    newest = max(others, key=lambda entry: entry.batch_id or 0)
    told = named(newest)
    if newest.batch_id is not None:
        told = f"batch {newest.batch_id} of {told}"
    if is_of_run and (newest.batch_id or 0) > (change.batch_id or 0):
        error = StaleRerunError(
            f"Rerun of {scope.run!r} in {base.name!r} is stale: its batch "
            f"{change.batch_id} began before {told}, which it would replace.",
            hint="The newer one stands. Run it again if that is not right.",
            expected=base.version,
            actual=now.version,
            partitions=newest.partitions,
        )
        error.batch_id, error.commit_id = newest.batch_id, newest.commit_id
        raise error
    if is_of_run:
        reason = "it is of the same run"
        hint = "Let one rerun of a run finish before the next begins."
    else:
        reason, hint = "it touched what the run has written", _AGAIN
    raise CommitConflictError(
        f"Rerun of {scope.run!r} in {base.name!r}, based on version {base.version}, conflicts "
        f"with {told}: {reason}.",
        hint=hint,
        expected=base.version,
        actual=now.version,
        partitions=newest.partitions,
    )


def _concerns(entry: Entry, run: str, runs: Runs) -> bool:
    """Whether a commit has changed what a run wrote: taken out, brought back or written anew."""
    if entry.operation == "compact":
        return False
    touched = (*entry.removed, *entry.added)
    return run in entry.carried.values() or any(runs.of(label) == run for label in touched)


def _partition(label: str) -> str:
    return partition_of(split_label(label)[0])


def named(entry: Entry) -> str:
    """Say which commit it is."""
    return f"the {entry.operation} that made version {entry.version} (commit {entry.commit_id})"
