"""Epochs of streaming queries: each is committed once, however often it is started.

A compaction next to a query runs in a thread, so no epoch waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakebed.arrow import scan
from lakebed.arrow.digest import RowDigest, row_hashes
from lakebed.commit import Commit
from lakebed.common.sizes import parse_size
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    ObjectNotFoundError,
    StaleRerunError,
)
from lakebed.model.keys import partition_of_label
from lakebed.model.predicate import TRUE
from lakebed.plan.search import plan
from lakebed.state import history, runs
from lakebed.state.history import Entry
from lakebed.state.reservation import ManifestFile, key_of, read_record
from lakebed.state.scope import Nothing, RunFiles, Scope, TheseFiles, WholeView
from lakebed.state.state import (
    Change,
    Epoch,
    QueryProgress,
    State,
    epoch_of,
    find_progress,
    newest_epochs,
)
from lakebed.state.transaction import Transaction
from lakebed.state.undone import ROLLBACK, Undone
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.compaction import CompactionOptions, compact
from lakebed.work.defaults import TARGET_BYTES

_log = logging.getLogger(__name__)

_running: dict[tuple[str, str], threading.Thread] = {}
_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Settings for the compaction of the small files of a streaming query.

    Attributes:
        compact_every: Number of epochs between compactions, which run next to the query; 0 for
            never.
        compact_target_bytes: Size of the compacted files; None for the usual default.
    """

    compact_every: int = 0
    compact_target_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.compact_every < 0:
            raise InvalidInputError(
                f"compact_every is {self.compact_every}.", hint="Give a number of epochs."
            )
        if self.compact_target_bytes is not None:
            parse_size(self.compact_target_bytes, "compact_target_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStanding:
    """Relation of an epoch to the epochs that were committed before.

    Attributes:
        progress: The newest epoch of the query that is in the dataset; None if there is none.
        before: The commit of the epoch itself that is in effect, as its progress; None if the
            epoch is new, or a rollback removed it.
        is_broken: True if a rollback of some partitions removed a part of that commit.
        is_again: True if the epoch was committed before, even if it was removed since.
    """

    progress: QueryProgress | None = None
    before: QueryProgress | None = None
    is_broken: bool = False
    is_again: bool = False

    @property
    def is_whole(self) -> bool:
        """True if the dataset holds all rows of the epoch, except deleted ones."""
        return self.before is not None and not self.is_broken

    def check(self, base: State, epoch: Epoch, *, replaces_all: bool = False) -> None:
        """Check that the epoch may be committed.

        Raises:
            StaleRerunError: The dataset holds a later epoch, and no rollback removed this one.
        """
        if self.progress is None or epoch.number >= self.progress.epoch:
            return
        # An epoch that was repeated after a rollback may have been written after later ones.
        is_settled = self.before is None or self.before.batch_id < self.progress.batch_id
        is_missing = self.is_again and not self.is_whole
        if replaces_all or (is_settled and not is_missing):
            raise _stale(base, epoch, self.progress)

    def after(self, now: QueryProgress) -> QueryProgress:
        """Return the progress of the query once the epoch is committed.

        An epoch that a rollback removed may be repeated after later ones that are in effect.
        """
        known = self.progress
        return now if known is None or known.epoch <= now.epoch else known


def find_standing(store: Store, base: State, epoch: Epoch) -> EpochStanding:
    """Find the committed epochs that matter for a new one, before its rows are written.

    An epoch that a rollback removed may be committed again, as may a later one.

    Raises:
        StaleRerunError: The query has committed a later epoch, and no rollback removed this one.
        InvalidInputError: The name of the query is missing or too long.

    Cost:
        Nothing for the next epoch; the history for a repeated one. For a query that the head does
        not name, the list of runs, and the history if one of them belongs to the query.
    """
    epoch.check()
    last = find_progress(base.streams, epoch.query)
    if last is not None and epoch.number > last.epoch:
        return EpochStanding(progress=last)
    if last is None and epoch.query not in newest_epochs(runs.read(store, base.lists).batches):
        return EpochStanding()
    # The query has not committed for long, or its last commit is of a release without streams.
    standing = _find_again(history.read(store, base.lists.history), epoch)
    standing.check(base, epoch)
    return standing


def _stale(base: State, epoch: Epoch, last: QueryProgress) -> StaleRerunError:
    error = StaleRerunError(
        f"Epoch {epoch.number} of the streaming query {epoch.query!r} is stale in "
        f"{base.name!r}: its epoch {last.epoch} has been committed, in batch {last.batch_id}. "
        "Nothing was written.",
        hint="If another driver runs the query, stop this one. If its checkpoint is new or was "
        "reset to an older state, start it under a new name or with a new checkpoint, from where "
        "the dataset ends.",
        expected=base.version,
        actual=base.version,
    )
    error.batch_id = last.batch_id
    return error


def _find_again(entries: Sequence[Entry], epoch: Epoch) -> EpochStanding:
    """Find the epochs of a query that are in effect, from the whole history."""
    undone = Undone(entries)
    standing = EpochStanding()
    for entry in reversed(entries):
        written = _epoch_written_by(entry)
        if written is None or written.query != epoch.query:
            continue
        is_own = written == epoch
        standing = replace(standing, is_again=standing.is_again or is_own)
        is_newer = standing.progress is None or standing.progress.epoch < written.number
        if not is_newer and (standing.before is not None or not is_own):
            continue
        partitions, is_wholly = undone.partitions(entry)
        if is_wholly:
            continue
        there = QueryProgress(written.query, written.number, entry.batch_id or 0)
        if is_newer:
            standing = replace(standing, progress=there)
        if is_own and standing.before is None:
            standing = replace(standing, before=there, is_broken=bool(partitions))
    return standing


def _epoch_written_by(entry: Entry) -> Epoch | None:
    return None if entry.operation in history.REWRITING else epoch_of(entry.run)


def commit_epoch(
    store: Store,
    transaction: Transaction,
    epoch: Epoch,
    options: SinkOptions | None = None,
    *,
    replaces_all: bool = False,
    standing: EpochStanding | None = None,
) -> Commit | None:
    """Commit the rows of an epoch, exactly once.

    If the epoch was committed before with the same rows, it is left as it is. If it had other
    rows, or if a rollback removed a part of it, its rows are replaced.

    Args:
        store: The store that holds the dataset.
        transaction: The transaction with the rows, started or resumed for the epoch.
        epoch: The epoch.
        options: Settings of the compaction.
        replaces_all: Whether the rows replace all rows of the dataset.
        standing: Result of `find_standing` for the base; None to find it now.

    Returns:
        The commit; None if there was nothing to do.

    Raises:
        ChecksFailedError: A declared check refuses the rows.
        StaleRerunError: The query has committed a later epoch, or the epoch must be replaced but
            shares files with other rows; nothing became visible.
        LakebedError: See `Transaction.commit`.

    Cost:
        As an append. For a repeated epoch the old and the new rows are read.
    """
    transaction.require_checks()
    options = options or SinkOptions()
    base = transaction.base
    standing = standing or find_standing(store, base, epoch)
    standing.check(base, epoch, replaces_all=replaces_all)
    commit = None
    if (
        standing.is_whole
        and standing.before
        and _is_same(store, base, standing.before, transaction.written)
    ):
        _log.info("epoch is there dataset=%s run=%s", base.name, epoch.run)
        # Spark forgets the epoch now; its writer may have been killed before the head was synced.
        store.make_durable(base.head_format.key(base.name))
    elif replaces_all:
        operation = "rerun" if standing.before else "overwrite"
        commit = _commit(transaction, epoch, standing, operation, _whole(base))
    elif standing.before:
        commit = _commit(transaction, epoch, standing, "rerun", _all_of(store, base, epoch))
    elif transaction.written.labels or transaction.written.has_failures:
        scope = RunFiles(epoch.run, replaces=False) if standing.is_again else Nothing()
        commit = _commit(transaction, epoch, standing, "append", scope)
    if options.compact_every and (epoch.number + 1) % options.compact_every == 0:
        compact_beside(store, base.name, options.compact_target_bytes)
    return commit


def _commit(
    transaction: Transaction, epoch: Epoch, standing: EpochStanding, operation: str, scope: Scope
) -> Commit:
    now = QueryProgress(epoch.query, epoch.number, transaction.batch_id)
    committed = transaction.commit(
        Change(operation=operation, scope=scope, progress=standing.after(now))
    )
    return Commit.of(committed, transaction.base)


def _all_of(store: Store, base: State, epoch: Epoch) -> Scope:
    """Return the scope that replaces all rows of an epoch.

    Raises:
        StaleRerunError: A compaction has joined its rows with those of other epochs, while there
            were later epochs.
    """
    entries = history.read(store, base.lists.history)
    if all(entry.operation != ROLLBACK for entry in entries):
        return RunFiles(epoch.run)  # the last epoch: the list of runs has all its files
    joined = _joined_files(entries, epoch)
    mixed = next(iter(sorted(base.live.holding(joined))), None)
    if mixed is not None:
        raise StaleRerunError(
            f"Epoch {epoch.number} of the streaming query {epoch.query!r} cannot be replaced in "
            f"{base.name!r}: a compaction has joined its rows with others, in {mixed!r}. "
            "Nothing was written.",
            hint="Roll back to the version before the epoch: then the query can repeat it.",
            expected=base.version,
            actual=base.version,
        )
    return TheseFiles.of(runs.noted_by(entries).live_files_of(epoch.run, base.live))


def _joined_files(entries: Sequence[Entry], epoch: Epoch) -> set[str]:
    """Return the files that may hold rows of an epoch together with other rows.

    A rewrite of files joins the rows of an epoch with others once there is a later epoch; see
    `lakebed.state.runs`.
    """
    partitions: set[str] = set()
    joined: set[str] = set()
    is_settled = False
    for entry in entries:
        written = _epoch_written_by(entry)
        if written is not None and written.query == epoch.query:
            is_settled = written.number > epoch.number
        if written == epoch:
            partitions.update(entry.partitions)
        is_rewriting = entry.operation in history.REWRITING
        if is_rewriting or runs.NO_RUN in entry.carried.values():
            sources = {partition_of_label(label) for label in entry.removed if label in joined}
            if is_settled:
                sources |= partitions.intersection(map(partition_of_label, entry.removed))
            if entry.operation == "promote" and sources:
                sources |= set(entry.partitions)
            joined.update(
                label
                for label in entry.added
                if entry.carried.get(label, runs.NO_RUN if is_rewriting else None) == runs.NO_RUN
                and partition_of_label(label) in sources
            )
    return joined


def _whole(state: State) -> WholeView:
    return WholeView(TRUE, state.layout.partition_level_types)


def _is_same(store: Store, base: State, last: QueryProgress, written: Written) -> bool:
    """Return whether an epoch has the same rows as at its last commit."""
    try:
        manifest = read_record(store, key_of(base.name, last.batch_id))
    except (ObjectNotFoundError, CorruptMetadataError):
        return False
    before, now = manifest.files or (), written.manifest
    if _contents(before) == _contents(now):
        return True
    if sum(file.row_count for file in before) != sum(file.row_count for file in now):
        return False
    # The same number of rows: they may be the same in another order, or since a promotion in other
    # partitions.
    try:
        return _digest(store, base, before) == _digest(store, base, now)
    except CorruptMetadataError:
        return False  # files of the last commit were deleted


def _contents(files: Iterable[ManifestFile]) -> Counter[tuple[str, int, str]]:
    return Counter(
        (partition_of_label(file.label), file.row_count, file.checksum) for file in files
    )


def _digest(store: Store, base: State, files: Sequence[ManifestFile]) -> RowDigest:
    """Return the digest of the rows of some files, wherever they lie.

    Nothing else was given: a sink does not write to provided partitions.
    """
    chosen = plan(base.with_labels(file.label for file in files), TRUE, requests=0)
    digest = RowDigest()
    with scan.scan(store, chosen, base.layout.descriptor.schema.names) as batches:
        for batch in batches:
            digest += RowDigest.of(row_hashes(batch))
    return digest


def compact_beside(store: Store, dataset: str, target_bytes: int | None = None) -> None:
    """Start to compact a dataset, unless this process does so already; return at once.

    A failure is logged, and the next call tries again: the epochs do not depend on it. A process
    that ends waits for the thread; a killed one leaves unreferenced files, which a cleanup
    deletes.

    Cost:
        As `Dataset.compact`, in a thread of its own.
    """
    key = (store.uri, dataset)
    with _lock:
        running = _running.get(key)
        if running is not None and running.is_alive():
            _log.info("compaction still running dataset=%s", dataset)
            return
        options = CompactionOptions(target_bytes=target_bytes or TARGET_BYTES)
        thread = threading.Thread(
            target=_compact, args=(store, dataset, options), name=f"lakebed-compact-{dataset}"
        )
        _running[key] = thread
        thread.start()


def wait_for(store: Store, dataset: str) -> None:
    """Wait until no compaction of a dataset is at work in this process."""
    thread = _running.get((store.uri, dataset))
    if thread is not None:
        thread.join()


def _compact(store: Store, dataset: str, options: CompactionOptions) -> None:
    try:
        report = compact(store, dataset, TRUE, options, spark=None, is_dry_run=False)
    except LakebedError as exc:
        _log.warning("compaction failed dataset=%s reason=%s", dataset, exc.message)
    else:
        _log.info(
            "compacted dataset=%s files_before=%d files_after=%d",
            dataset,
            report.files_before,
            report.files_after,
        )
