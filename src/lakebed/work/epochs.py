"""Epochs of streaming queries: each is committed once, however often it is begun."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakebed.arrow import scan
from lakebed.arrow.digest import RowDigest, row_hashes
from lakebed.commit import Commit
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    ObjectNotFoundError,
    StaleRerunError,
)
from lakebed.model.keys import BATCH_ID, partition_of_label
from lakebed.model.predicate import TRUE
from lakebed.plan.plan import plan
from lakebed.state import runs
from lakebed.state.reservation import ManifestFile, key_of, read_record
from lakebed.state.scope import Nothing, RunFiles, Scope, WholeView
from lakebed.state.state import State
from lakebed.state.streams import Epoch, QueryProgress, find_progress, newest
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.beside import compact_beside

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How the epochs of a streaming query are kept from making many small files.

    Attributes:
        compact_every: After so many epochs small files are compacted, beside the query; 0 for
            never.
        compact_target_bytes: Size of the files that the compaction makes; None for that of any
            compaction.
    """

    compact_every: int = 0
    compact_target_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("compact_every", "compact_target_bytes"):
            number = getattr(self, name)
            if number is not None and (number < 0 or (number == 0 and name != "compact_every")):
                raise InvalidInputError(
                    f"{name} is {number}.", hint="Give a number of epochs, or of bytes."
                )


def check_due(store: Store, base: State, epoch: Epoch) -> QueryProgress | None:
    """Check that an epoch may be committed, before its rows are written.

    Returns:
        How far its query has come; None if it begins.

    Raises:
        StaleRerunError: The query has committed a later one.
        InvalidInputError: The query has no name, or too long a one.

    Cost:
        Nothing; of a query that the head does not name, what is known of runs.
    """
    epoch.check()
    last = find_progress(base.streams, epoch.query)
    if last is None:
        # It is new, or has not committed for long, or a release that knows no streams has committed.
        last = newest(runs.read(store, base.lists).batches).get(epoch.query)
    if last is not None and last.epoch > epoch.number:
        error = StaleRerunError(
            f"Epoch {epoch.number} of the streaming query {epoch.query!r} is stale in "
            f"{base.name!r}: its epoch {last.epoch} has been committed, in batch {last.batch_id}. "
            "Nothing was written.",
            hint="If another driver runs the query, this one is to be stopped. If its checkpoint is "
            "new or went back to an older state, start it under a new name or with a new "
            "checkpoint, from where the dataset ends.",
            expected=base.version,
            actual=base.version,
        )
        error.batch_id = last.batch_id
        raise error
    return last


def commit_epoch(
    store: Store,
    transaction: Transaction,
    epoch: Epoch,
    options: SinkOptions | None = None,
    *,
    replaces_all: bool = False,
) -> Commit | None:
    """Commit what was written for an epoch, exactly once.

    An epoch that was committed before is left as it is if it brought the same rows, and what it
    brought is replaced if it did not.

    Args:
        store: Where the dataset is.
        transaction: That holds the rows, begun or resumed with the epoch.
        epoch: Which one.
        options: What happens beside.
        replaces_all: Whether the rows take the place of all that the dataset holds.

    Returns:
        The commit; None if there was nothing to do.

    Raises:
        StaleRerunError: The query has committed a later one; nothing became visible.
        LakebedError: See `Transaction.commit`.

    Cost:
        As an append. Of an epoch that comes again the rows are read, before and now.
    """
    options = options or SinkOptions()
    base = transaction.base
    last = check_due(store, base, epoch)
    commit = None
    if last is not None and last.epoch == epoch.number:
        if _is_same(store, base, last, transaction.written):
            _log.info("epoch is there dataset=%s run=%s", base.name, epoch.run)
        else:
            scope = RunFiles(epoch.run)
            commit = _commit(transaction, epoch, "rerun", _whole(base) if replaces_all else scope)
    elif replaces_all:
        commit = _commit(transaction, epoch, "overwrite", _whole(base))
    elif transaction.written.labels:
        commit = _commit(transaction, epoch, "append", Nothing())
    if options.compact_every and (epoch.number + 1) % options.compact_every == 0:
        compact_beside(store, base.name, options.compact_target_bytes)
    return commit


def _commit(transaction: Transaction, epoch: Epoch, operation: str, scope: Scope) -> Commit:
    committed = transaction.commit(
        operation=operation,
        scope=scope,
        progress=QueryProgress(epoch.query, epoch.number, transaction.batch_id),
    )
    return Commit.of(committed.entry, transaction.base)


def _whole(state: State) -> WholeView:
    return WholeView(TRUE, state.layout.partition_level_types)


def _is_same(store: Store, base: State, last: QueryProgress, written: Written) -> bool:
    """Whether an epoch brings the rows that it brought before, whatever became of them since."""
    try:
        manifest = read_record(store, key_of(base.name, last.batch_id))
    except (ObjectNotFoundError, CorruptMetadataError):
        return False
    before, now = manifest.files or (), written.manifest
    if _contents(before) == _contents(now):
        return True
    if _counts(before) != _counts(now):
        return False
    # The same number of rows: they may have come in another order.
    try:
        return _digest(store, base, before) == _digest(store, base, now)
    except CorruptMetadataError:
        return False  # files of then are gone


def _contents(files: Iterable[ManifestFile]) -> Counter[tuple[str, int, str]]:
    return Counter(
        (partition_of_label(file.label), file.row_count, file.checksum) for file in files
    )


def _counts(files: Iterable[ManifestFile]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for file in files:
        counts[partition_of_label(file.label)] += file.row_count
    return counts


def _digest(store: Store, base: State, files: Sequence[ManifestFile]) -> RowDigest:
    """Return the digest of the rows of some files, with their partitions."""
    chosen = plan(replace(base, labels=tuple(file.label for file in files)), TRUE, requests=0)
    names = [name for name in base.layout.column_types if name != BATCH_ID]
    digest = RowDigest()
    with scan.scan(store, chosen, names) as batches:
        for batch in batches:
            digest += RowDigest.of(row_hashes(batch))
    return digest
