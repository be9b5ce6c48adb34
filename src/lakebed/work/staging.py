"""Staged batches: written and recorded, but not committed.

The manifest of a staged batch holds everything that its commit needs, so it survives the process
that wrote it. The batch is committed if and only if the history has its commit id. The head
decides whether it may still be committed: a discard, like a cleanup, shuts the batch out by a
commit before it deletes anything.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    ObjectNotFoundError,
    VersionNotFoundError,
    noting,
)
from lakebed.model.keys import BATCH_ID, check_under, split_label
from lakebed.state import history, reservation, runs
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.history import Entry
from lakebed.state.lists import Lists
from lakebed.state.past import base_as_of
from lakebed.state.reader import read_own_head
from lakebed.state.reservation import BatchRecord, Staging, decode_record
from lakebed.state.scope import RunFiles
from lakebed.state.state import Change, State, apply
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment
from lakebed.work.former_layouts import levels_of
from lakebed.work.writer import notes_of_run

_log = logging.getLogger(__name__)

OPERATION = "discard"


def _read(store: Store, state: State, batch_id: int) -> tuple[BatchRecord, Staging]:
    key = reservation.key_of(state.name, batch_id)
    try:
        stored = store.get(key)
    except ObjectNotFoundError:
        raise _not_staged(state, batch_id) from None
    record = decode_record(stored.data, key)
    if record.staging is None or record.staging.created_at != state.created_at:
        raise _not_staged(state, batch_id)
    return record, record.staging


def _not_staged(state: State, batch_id: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"Dataset {state.name!r} has no staged batch {batch_id}.",
        hint="`staged list` lists the staged batches. A cleanup deletes a batch after its lease.",
    )


def read(store: Store, state: State, batch_id: int) -> BatchRecord:
    """Return the record of a staged batch.

    Raises:
        VersionNotFoundError: There is no such batch, or it was never staged, or was discarded.

    Cost:
        One GET.
    """
    return _read(store, state, batch_id)[0]


def find_all(store: Store, state: State, entries: Sequence[Entry]) -> tuple[BatchRecord, ...]:
    """Return the records of the batches that are staged and not committed, oldest first.

    Args:
        store: The store that holds the dataset.
        state: The current state of the dataset.
        entries: The whole history of the dataset.

    Cost:
        A LIST of the manifests, and one GET for each batch that is not committed.
    """
    committed = {entry.batch_id for entry in entries}
    records = []
    for batch_id in sorted(reservation.listed(store, state.name)):
        # A batch that was given up is about to be deleted.
        if batch_id in committed or not state.may_commit(batch_id):
            continue
        try:
            records.append(read(store, state, batch_id))
        except VersionNotFoundError:
            continue  # still being written, or just discarded
        except CorruptMetadataError as exc:
            # A damaged manifest must not hide the other batches; a check reports it.
            _log.warning("batch left out dataset=%s reason=%s", state.name, exc.message)
    return tuple(sorted(records, key=lambda record: record.batch_id))


def find_commit(store: Store, state: State, record: BatchRecord) -> Entry | None:
    """Return the entry of a staged batch in the history; None if it is not committed.

    The head that shows it survives a loss of power, as after the commit.

    Cost:
        The history since the batch was staged.
    """
    if record.staging is not None and record.staging.base_version == state.version:
        return None
    after = record.staging.base_version if record.staging else -1
    for entry in history.read(store, state.lists.history, after=after, until=state.version):
        if entry.commit_id == record.commit_id:
            store.make_durable(state.head_format.key(state.name))
            return entry
    return None


def change_of(state: State, record: BatchRecord) -> Change:
    """Return the change that the commit of a staged batch makes.

    Args:
        state: A state of the dataset, for its name and its partition fields.
        record: Record of the batch.
    """
    staging = _staging_of(record)
    return Change(
        operation=record.operation,
        commit_id=record.commit_id,
        base_version=staging.base_version,
        batch_id=record.batch_id,
        run=record.run,
        added=_labels(state, record),
        row_count=staging.row_count,
        caught=staging.caught,
        checks=staging.checks,
        edits=_brought(state, staging).additions(),
        scope=staging.scope.scope(state.layout.partition_level_types),
    )


def _staging_of(record: BatchRecord) -> Staging:
    assert record.staging is not None  # `read` ensures it
    return record.staging


def _brought(state: State, staging: Staging) -> Lists:
    """Return the segments that the commit of a staged batch adds to the lists."""
    return Lists(
        files=() if staging.facts is None else (Segment.parse(staging.facts, state.name),),
        postings={
            column: tuple(Segment.parse(key, state.name) for key in keys)
            for column, keys in staging.postings.items()
        },
    )


def _labels(state: State, record: BatchRecord) -> tuple[str, ...]:
    """Return the labels of the files, each of which must lie in its batch's directory."""
    labels = tuple(file.label for file in record.files or ())
    for label in labels:
        check_under(state.layout.key(label), f"{state.name}/{state.layout.table}/")
        if split_label(split_label(label)[0])[1] != f"{BATCH_ID}={record.batch_id}":
            raise CorruptMetadataError(
                f"The manifest of batch {record.batch_id} of {state.name!r} names {label!r}.",
                hint="Discard the batch by hand, and write it again.",
            )
    return labels


def as_if_committed(store: Store, state: State, record: BatchRecord) -> State:
    """Return the state after the commit of a staged batch, without committing it.

    Args:
        store: The store that holds the dataset.
        state: The current state, in which the batch is not committed; see `find_commit`.
        record: Record of the batch.

    Raises:
        CommitConflictError: The dataset has other levels of directories since.

    Cost:
        Nothing; for a rerun, the few objects of the list of runs; of a tree, the facts of the batch
        and the leaves whose range the removed files touch.
    """
    if not _has_levels_of(state, record):
        raise CommitConflictError(
            f"Batch {record.batch_id} of {state.name!r} cannot be committed: its directories have "
            f"other levels than {', '.join(state.layout.partition_level_types) or 'none'}.",
            hint="Discard it, and stage it again. Its own rows can still be read.",
            expected=_staging_of(record).base_version,
            actual=state.version,
        )
    change = change_of(state, record)
    if isinstance(change.scope, RunFiles):
        own = runs.read(store, state.lists).live_files_of(change.scope.run, state.live)
        scope = replace(change.scope, labels=frozenset(own))
        change = msgspec.structs.replace(change, scope=scope)
    after, entry = apply(state, change, dt.datetime.now(dt.UTC))
    if not state.is_tree:
        return after
    from lakebed.state.tree.tree_commit import entered

    return entered(store, state, after, change, entry, None, None)[0]


def alone(store: Store, state: State, record: BatchRecord) -> State:
    """Return a state with the files of a staged batch alone, by which they can be read.

    If the dataset has other levels of directories since, they are read as of the base of the batch.

    Args:
        store: The store that holds the dataset.
        state: The current state, in which the batch is not committed; see `find_commit`.
        record: Record of the batch.

    Cost:
        As `as_if_committed`; the history if the levels have changed.
    """
    if not _has_levels_of(state, record):
        state = _base_of(store, state, record)
    after = as_if_committed(store, state, record)
    return after.with_labels(file.label for file in record.files or ())


def _has_levels_of(state: State, record: BatchRecord) -> bool:
    levels = {levels_of(label) for label in _labels(state, record)[:1]}
    return levels <= {state.layout.partition_keys}


def _base_of(store: Store, state: State, record: BatchRecord) -> State:
    """Return the state that a batch was staged on."""
    staging = _staging_of(record)
    return base_as_of(
        store,
        state,
        staging.base_version,
        foreign_added=staging.foreign_added,
        foreign_removed=staging.foreign_removed,
    )


def commit(
    store: Store,
    dataset: str,
    batch_id: int,
    options: CommitOptions | None = None,
    *,
    only_on: State | None = None,
) -> tuple[Entry | Committed, State]:
    """Commit a staged batch. A second commit does nothing and returns the entry of the first.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        batch_id: Id of the batch.
        options: Retry and lease settings of the commit.
        only_on: The only state that the batch may be committed on; None for any state without a
            conflict.

    Returns:
        The entry in the history, or the commit that was made; and a state of the dataset.

    Raises:
        VersionNotFoundError: There is no such staged batch.
        CommitConflictError: A commit since the batch was staged conflicts with it, or its lease is
            over; the batch stays staged.
        PreconditionFailedError: The dataset is no longer in the state `only_on`; the batch stays
            staged.
        CommitUnknownError: The store stopped answering; commit it again.

    Cost:
        The history, and the cost of any commit of a batch.
    """
    state = read_own_head(store, dataset).state
    record, _ = _read(store, state, batch_id)
    entry = find_commit(store, state, record)
    if entry is not None:
        return entry, state
    base = _base_of(store, state, record)
    change = change_of(base, record)
    with Transaction.on(store, base, record.operation, options=options) as transaction:
        committed = transaction.commit_staged(change, only_on=only_on, until=record.lease_until)
    return committed, base


def notes_of(
    store: Store, base: State, record: BatchRecord, made: Entry | Committed
) -> tuple[str, ...]:
    """Return notes for the caller about the commit of a staged batch, as sentences.

    Args:
        store: The store that holds the dataset.
        base: A state of the dataset before the commit.
        record: Record of the batch.
        made: Result of the commit; an entry is from an earlier call, which has returned the notes.

    Cost:
        As `notes_of_run`.
    """
    scope = change_of(base, record).scope
    return () if isinstance(made, Entry) else notes_of_run(store, base, scope, made.entry)


def discard(store: Store, dataset: str, batch_id: int) -> None:
    """Give a staged batch up by a commit, then delete it and its files.

    Raises:
        VersionNotFoundError: There is no such staged batch.
        InvalidInputError: It is committed.
        CommitUnknownError: The store stopped answering; discard it again.

    Cost:
        The history, a LIST of the manifests, a commit and bulk deletes.
    """
    state = read_own_head(store, dataset).state
    record, staging = _read(store, state, batch_id)
    labels, brought = _labels(state, record), _brought(state, staging)
    _check_not_committed(state, record, find_commit(store, state, record))
    if state.may_commit(batch_id):
        _shut_out(store, state, batch_id)
        # A faster commit of the batch is in the history by now, and no other can follow.
        with noting(
            f"Batch {batch_id} can no longer be committed: discard it again to delete its files."
        ):
            committed = find_commit(store, read_own_head(store, dataset).state, record)
        _check_not_committed(state, record, committed)
    doomed = [*map(state.layout.naming.key, labels), *brought.keys]
    if delete_or_leave(store, doomed):
        delete_or_leave(store, [reservation.key_of(state.name, batch_id)])


def _check_not_committed(state: State, record: BatchRecord, committed: Entry | None) -> None:
    if committed is not None:
        raise InvalidInputError(
            f"Batch {record.batch_id} of {state.name!r} is committed, as version "
            f"{committed.version}.",
            hint="Undo it with `rollback`; the batch stays readable.",
        )


def _shut_out(store: Store, state: State, batch_id: int) -> None:
    """Shut a batch out by a commit: it can no longer be committed, all others still can."""
    oldest = max(state.oldest_batch, batch_id + 1)
    entries = history.read(store, state.lists.history, until=state.version)
    committed = {entry.batch_id for entry in entries}
    alive = (
        reserved_id
        for reserved_id in sorted(reservation.listed(store, state.name))
        if reserved_id < oldest
        and reserved_id != batch_id
        and reserved_id not in committed
        and state.may_commit(reserved_id)
    )
    with Transaction.on(store, state, OPERATION) as transaction:
        transaction.commit(Change(oldest_batch=oldest, open_batches=tuple(alive)))
