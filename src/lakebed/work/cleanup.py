"""Cleanup: commits which files are given up, then deletes them.

The commit raises the horizon, shuts out batches whose writers are considered dead, and removes
expired protections. From then on no commit can make a doomed file visible again, so the deletion
can be interrupted at any time: the next cleanup finds and deletes the remaining files.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from lakebed.arrow.workers import Workers
from lakebed.common.ages import parse_age
from lakebed.common.html import MAX_ITEMS, facts_to_html
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted
from lakebed.errors import (
    CommitConflictError,
    LakebedError,
    StorageError,
    StorageFullError,
    noting,
)
from lakebed.model.layout import Folder
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table, published
from lakebed.state.committing import CommitOptions
from lakebed.state.lists import FILES, Edit, Segments
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store
from lakebed.store.segments import Segment
from lakebed.work import cleanup_log
from lakebed.work.cleanup_log import Observation
from lakebed.work.defaults import CLOCK_SKEW
from lakebed.work.inventory import (
    FOLDERS_OF_LISTS,
    REQUESTS_AT_ONCE,
    AskTables,
    FindDeadMetadata,
    Inventory,
    JudgedFile,
    Reason,
    Rules,
    horizon_of,
    read_history,
    take_inventory,
)
from lakebed.work.known_history import KnownHistory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.state.tree.tree_objects import TreeObjects

_log = logging.getLogger(__name__)

KEYS_PER_REQUEST = 1000  # S3 DeleteObjects limit
_ROUNDS = 20  # each protection is a commit, and may win the race


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """The objects that a cleanup has deleted or would delete, and those that it keeps.

    Attributes:
        dataset: Name of the dataset.
        is_dry_run: True if nothing was deleted.
        version: The version that the cleanup made; None if it had nothing new to give up.
        cutoff: Files that were superseded by this time are dead; aware, UTC.
        horizon: Older versions cannot be read any more, unless they are protected.
        files: Dead objects, each with its reason, in order of key.
        kept: Objects that are kept although no reader of the current version needs them, each with
            its reason.
        kept_counts: Number of objects that are kept, by reason; includes live ones.

    >>> import lakebed
    >>> repository = lakebed.open_repository("memory://doctest-cleanup-report")
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = lakebed.DatasetDescriptor(
    ...     schema={"type": "record", "name": "numbers", "fields": fields}
    ... )
    >>> numbers = repository.create("numbers", descriptor)
    >>> for n in range(3):
    ...     _ = numbers.overwrite([{"n": n}])
    >>> report = numbers.cleanup(older_than="0s")
    >>> [(str(file.reason), file.version) for file in report.files]
    [('superseded', 2), ('superseded', 3)]
    >>> report.is_dry_run, numbers.cleanup(older_than="0s", dry_run=False).horizon
    (True, 3)
    """

    dataset: str
    is_dry_run: bool
    version: int | None
    cutoff: dt.datetime
    horizon: int
    files: tuple[JudgedFile, ...]
    kept: tuple[JudgedFile, ...]
    kept_counts: Mapping[str, int]

    @property
    def size_bytes(self) -> int:
        """Total size of the dead objects, without temporary files, whose size is unknown."""
        return sum(file.size_bytes or 0 for file in self.files)

    @property
    def counts(self) -> dict[str, int]:
        """Number of dead objects, by reason."""
        return dict(sorted(Counter(str(file.reason) for file in self.files).items()))

    def to_table(self) -> pa.Table:
        """Return a row for each object, dead ones first; see `JudgedFile` for the columns."""
        return pa.Table.from_pylist(
            [
                {
                    "key": file.key,
                    "size_bytes": file.size_bytes,
                    "is_dead": file.reason.is_dead,
                    "reason": str(file.reason),
                    "version": file.version,
                    "since": file.since,
                    "note": file.note,
                }
                for file in (*self.files, *self.kept)
            ],
            schema=_TABLE,
        )

    def to_json(self) -> str:
        """Return the report as one JSON document."""
        return msgspec.json.encode(
            {
                "dataset": self.dataset,
                "is_dry_run": self.is_dry_run,
                "version": self.version,
                "cutoff": self.cutoff,
                "horizon": self.horizon,
                "size_bytes": self.size_bytes,
                "counts": self.counts,
                "kept_counts": dict(self.kept_counts),
                "files": [_document(file) for file in self.files],
                "kept": [_document(file) for file in self.kept],
            }
        ).decode()

    def __repr__(self) -> str:
        verb = "would delete" if self.is_dry_run else "deleted"
        return (
            f"<CleanupReport of {self.dataset!r}: {verb} {counted(len(self.files), 'object')} "
            f"of {counted(self.size_bytes, 'byte')}>"
        )

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {
            "would delete" if self.is_dry_run else "deleted": counted(len(self.files), "object"),
            "bytes": f"{self.size_bytes:,}",
            "superseded before": self.cutoff,
            "oldest version that can be read": self.horizon,
            **{f"dead: {reason}": f"{count:,}" for reason, count in self.counts.items()},
            **{f"kept: {reason}": f"{count:,}" for reason, count in self.kept_counts.items()},
        }
        shown = [*self.files[:MAX_ITEMS]]
        facts.update({file.key: f"{file.reason}. {file.note}" for file in shown})
        if len(self.files) > len(shown):
            facts["…"] = f"and {len(self.files) - len(shown)} more"
        return facts_to_html(f"Cleanup of {self.dataset}", facts)


_TABLE = pa.schema(
    [
        ("key", pa.string()),
        ("size_bytes", pa.int64()),
        ("is_dead", pa.bool_()),
        ("reason", pa.string()),
        ("version", pa.int64()),
        ("since", pa.timestamp("us", tz="UTC")),
        ("note", pa.string()),
    ]
)


def _document(file: JudgedFile) -> dict[str, object]:
    return {
        "key": file.key,
        "size_bytes": file.size_bytes,
        "reason": str(file.reason),
        "version": file.version,
        "since": file.since,
        "note": file.note,
    }


def cleanup(
    store: Store,
    dataset: str,
    *,
    older_than: str | dt.timedelta,
    is_dry_run: bool,
    clock_skew: dt.timedelta = CLOCK_SKEW,
    spark: SparkSession | None = None,
    on_progress: OnProgress = NO_PROGRESS,
    options: CommitOptions | None = None,
    ask: AskTables | None = None,
    find_dead_metadata: FindDeadMetadata,
) -> CleanupReport:
    """Delete objects that are proven dead; see `Dataset.cleanup`.

    For `ask` see `take_inventory`. `find_dead_metadata` finds the dead metadata of published
    tables.
    """
    rules = Rules(
        now=dt.datetime.now(dt.UTC),
        retention=parse_age(older_than),
        clock_skew=parse_age(clock_skew),
    )
    workers = workers_for(
        spark, store, threads=REQUESTS_AT_ONCE, purpose=f"delete dead files of {dataset}"
    )

    def inspect() -> Inventory:
        inventory = take_inventory(store, dataset, ask, rules=rules)
        metadata = find_dead_metadata(store, dataset, inventory.objects, rules.cutoff)
        return replace(inventory, metadata=metadata)

    inventory = inspect()
    version = seen = None
    temporary = _remove_leftovers(store, dataset, rules, is_dry_run=is_dry_run)
    freed: list[JudgedFile] = []
    if is_dry_run:
        state, judged = _plan(inventory, rules)
    else:
        try:
            state, judged, version, seen = _give_up(store, inventory, rules, options)
        except StorageFullError as exc:
            freed = _free(store, workers, inventory, rules, on_progress)
            _log.warning("no room to commit a cleanup dataset=%s freed=%d", dataset, len(freed))
            if not freed and not temporary:
                raise _too_full(inventory, exc) from exc
            try:
                inventory = inspect()
                state, judged, version, seen = _give_up(store, inventory, rules, options)
            except StorageFullError as again:
                raise _too_full(inventory, again, (*freed, *temporary)) from again
    dead = [file for file in judged if file.reason.is_dead]
    if not is_dry_run:
        if not any(_to_log(state, dead)) and _is_observation_due(inventory, judged, rules):
            _log_or_leave(store, state, (), seen)
        _delete_logged(store, workers, state, dead, on_progress, seen)
    dead = [*freed, *dead]
    report = CleanupReport(
        dataset=dataset,
        is_dry_run=is_dry_run,
        version=version,
        cutoff=rules.cutoff,
        horizon=state.horizon,
        files=tuple(sorted((*dead, *temporary), key=lambda file: file.key)),
        kept=tuple(
            file for file in judged if not file.reason.is_dead and file.reason != Reason.LIVE
        ),
        kept_counts=dict(
            sorted(Counter(str(file.reason) for file in judged if not file.reason.is_dead).items())
        ),
    )
    if not is_dry_run:
        _log.info(
            "cleaned up dataset=%s objects=%d bytes=%d horizon=%d",
            dataset,
            len(report.files),
            report.size_bytes,
            report.horizon,
        )
    return report


def _plan(inventory: Inventory, rules: Rules) -> tuple[State, list[JudgedFile]]:
    """Return the planned state of the head, and the verdicts under it.

    The horizon is raised no further than needed: to the last version that removed a dead file.
    """
    state = inventory.state
    raised = replace(
        state,
        horizon=horizon_of(state, inventory.times, rules),
        protections=tuple(
            protection for protection in state.protections if not protection.is_expired(rules.now)
        ),
    )
    judge = inventory.judge_by(raised, rules)
    judged = judge.judge(inventory.objects)
    expired = judge.expired_batches
    given_up = (*expired, *judge.spent_batches)
    oldest = max((state.oldest_batch, *(batch_id + 1 for batch_id in given_up)))
    alive = (
        batch_id for batch_id in inventory.reserved if batch_id < oldest and batch_id not in expired
    )
    widest = replace(
        raised,
        oldest_batch=oldest,
        open_batches=tuple(batch_id for batch_id in alive if state.may_commit(batch_id)),
    )
    if (oldest, widest.open_batches) != (state.oldest_batch, state.open_batches):
        judged = inventory.judge_by(widest, rules).judge(inventory.objects)
    superseded = [file.version or 0 for file in judged if file.reason is Reason.SUPERSEDED]
    planned = replace(widest, horizon=max((state.horizon, *superseded)))
    if state.is_tree and planned.horizon != widest.horizon:
        # Versions that stay readable need their copies of the head.
        judged = inventory.judge_by(planned, rules).judge(inventory.objects)
    return planned, judged


def _give_up(
    store: Store, inventory: Inventory, rules: Rules, options: CommitOptions | None
) -> tuple[State, list[JudgedFile], int | None, Observation | None]:
    """Commit which objects are given up, if any are new, and judge by the committed state.

    Returns:
        The state of the head, every object with its verdict, the new version, and the segments that
        the head names.
    """
    is_pruning = True
    for rounds_left in reversed(range(_ROUNDS)):
        planned, judged = _plan(inventory, rules)
        state = inventory.state
        judge = inventory.judge_by(state, rules)
        given_up = judge.judge(inventory.objects)
        wanted = _keys_of_dead(judged)
        if (
            wanted <= _keys_of_dead(given_up)
            and planned.protections == state.protections
            and not _may_be_named(inventory, judged)
        ):
            return state, given_up, None, judge.observe()
        segments = _pruned(store, inventory, planned, rules) if is_pruning else None
        try:
            with Transaction.on(store, state, "cleanup", options=options) as transaction:
                committed = transaction.commit(_change(state, planned, segments))
        except CommitConflictError:
            now, known, tree = _read_again(store, inventory, rules)
            inventory = replace(inventory, state=now, history=known, tree=tree)
            if not rounds_left:
                raise
            continue
        except StorageError as exc:
            if segments is None or not rounds_left or not isinstance(exc, StorageFullError):
                raise
            is_pruning = False  # the pruned file table took the room of the commit
            continue
        with noting(
            f"Version {committed.entry.version} has given up dead files, but none is deleted yet: "
            "run the cleanup again."
        ):
            now, known, tree = _read_again(store, inventory, rules)
            # A publisher that has since recorded an older version may not have seen the commit.
            notes = published.read(store, state.name)
        if now.created_at != state.created_at:
            raise CommitConflictError(
                f"Dataset {state.name!r} was dropped and created again meanwhile.",
                hint="Nothing was deleted.",
                expected=state.version,
                actual=now.version,
            )
        inventory_then = replace(inventory, history=known, published=notes, tree=tree)
        judge = inventory_then.judge_by(now, rules)
        after = judge.judge(inventory.objects)
        # Delete only planned objects: a later cleanup may have given up more by now.
        final = [
            replace(file, reason=Reason.YOUNG, note="Another cleanup has just given it up.")
            if file.reason.is_dead and file.key not in wanted
            else file
            for file in after
        ]
        return now, final, committed.entry.version, judge.observe()
    raise AssertionError  # the last round returned or raised


def _read_again(
    store: Store, inventory: Inventory, rules: Rules
) -> tuple[State, KnownHistory, TreeObjects | None]:
    """Return the state by now, with the history as far back as it was known before."""
    before = inventory.history.oldest
    return read_history(store, inventory.state.name, rules, back_to=before, earlier=inventory)


def _keys_of_dead(judged: Sequence[JudgedFile]) -> set[str]:
    return {file.key for file in judged if file.reason.is_dead}


def _may_be_named(inventory: Inventory, judged: Sequence[JudgedFile]) -> bool:
    """Return whether a stalled commit may still name one of the doomed segments."""
    doomed = {file.key for file in judged if file.reason is Reason.UNREFERENCED}
    logs = f"{Folder.CLEANUPS.of(inventory.state.name)}/"
    doomed = {key for key in doomed if not key.startswith(logs)}
    # No commit of the dataset names metadata of published tables.
    return inventory.may_be_named(doomed - inventory.metadata.dead)


def _change(state: State, planned: State, files: Segments | None) -> Change:
    """Return the change from the current to the planned state.

    Args:
        state: The current state.
        planned: The planned state.
        files: Segments that replace the file table; None to leave it unchanged.
    """
    edit = Edit(
        name=FILES,
        removed=state.lists.files,
        added=files or (),
        is_in_place=True,
        is_for_base=True,
    )
    return Change(
        horizon=planned.horizon if planned.horizon > state.horizon else None,
        oldest_batch=planned.oldest_batch,
        open_batches=planned.open_batches,
        unprotect=tuple(
            protection for protection in state.protections if protection not in planned.protections
        ),
        edits=() if files is None else (edit,),
    )


def _pruned(
    store: Store, inventory: Inventory, planned: State, rules: Rules
) -> tuple[Segment, ...] | None:
    """Return the file table without given-up files, if these are the majority; else None."""
    state = inventory.state
    if state.is_tree:
        return None  # it has no file table
    kept = inventory.judge_by(planned, rules).kept_labels
    total = sum(segment.weight for segment in state.lists.files)
    if total <= 2 * len(kept):
        return None
    return file_table.prune(store, state.lists.files, kept)


def _remove_leftovers(
    store: Store, dataset: str, rules: Rules, *, is_dry_run: bool
) -> list[JudgedFile]:
    age = max(rules.longest_commit, rules.retention)
    keys = store.remove_leftovers(f"{dataset}/", older_than=age, dry_run=is_dry_run)
    return [
        JudgedFile(
            key=key, size_bytes=None, reason=Reason.TEMPORARY, note="An interrupted write left it."
        )
        for key in keys
    ]


def _free(
    store: Store, workers: Workers, inventory: Inventory, rules: Rules, on_progress: OnProgress
) -> list[JudgedFile]:
    """Delete the objects that are dead by the current head, to make room for a cleanup's commit."""
    state = inventory.state
    judged = inventory.judge_by(state, rules).judge(inventory.objects)
    needs_commit = _may_be_named(inventory, judged)
    dead = [
        file
        for file in judged
        if file.reason.is_dead and not (needs_commit and file.reason is Reason.UNREFERENCED)
    ]
    _delete_logged(store, workers, state, dead, on_progress)
    return dead


def _too_full(
    inventory: Inventory, cause: StorageFullError, freed: Sequence[JudgedFile] = ()
) -> StorageFullError:
    name = inventory.state.name
    done = sum(file.size_bytes or 0 for file in freed)
    return StorageFullError(
        f"There is no room for the commit by which a cleanup of {name!r} gives files up, and "
        f"without it only {counted(len(freed), 'object')} of {counted(done, 'byte')} could be deleted: "
        f"{cause.message}",
        hint="Free about twice the size of the head and a few KiB outside the dataset, for example "
        "by deleting temporary files of other programs, and run it again. Delete no file of the "
        "dataset by hand.",
    )


def _delete_logged(
    store: Store,
    workers: Workers,
    state: State,
    dead: Sequence[JudgedFile],
    on_progress: OnProgress,
    seen: Observation | None = None,
) -> None:
    """Delete objects and log them: before the deletion, or after it if there was no room before."""
    if not dead:
        return
    logged = list(_to_log(state, dead))
    is_logged = not logged or _could_log(store, state, logged, seen)
    _delete(store, workers, dead, on_progress)
    if not is_logged:
        _log_or_leave(store, state, logged, seen)


def _to_log(state: State, dead: Sequence[JudgedFile]) -> Iterator[dict[str, object]]:
    """Yield what to log of deletions; those of logs are not logged, or there would be no end."""
    logs = f"{Folder.CLEANUPS.of(state.name)}/"
    return (_document(file) for file in dead if not file.key.startswith(logs))


def _could_log(
    store: Store, state: State, files: Sequence[object], seen: Observation | None
) -> bool:
    try:
        cleanup_log.write(store, state, files, seen)
    except StorageFullError:
        return False
    return True


def _log_or_leave(
    store: Store, state: State, files: Sequence[object], seen: Observation | None
) -> None:
    try:
        cleanup_log.write(store, state, files, seen)
    except StorageFullError as exc:
        _log.warning(
            "deletions not logged dataset=%s objects=%d reason=%s",
            state.name,
            len(files),
            exc.message,
        )


def _is_observation_due(inventory: Inventory, judged: Sequence[JudgedFile], rules: Rules) -> bool:
    """Return whether segments wait for a log that shows that no head names them."""
    folders = tuple(f"{folder.of(inventory.state.name)}/" for folder in FOLDERS_OF_LISTS)
    if not any(file.reason is Reason.RETAINED and file.key.startswith(folders) for file in judged):
        return False
    logs = cleanup_log.logs_in(inventory.objects, inventory.state.name)
    return not logs or logs[0].modified_at < rules.now - rules.retention / 2


@dataclass(frozen=True, slots=True)
class _Deleted:
    """Result of one bulk delete; an error does not keep other objects from being deleted."""

    error: LakebedError | None = None


def _delete(
    store: Store, workers: Workers, dead: Sequence[JudgedFile], on_progress: OnProgress
) -> None:
    """Delete in bulk; reservations last, since they prove that files are dead."""
    dataset = dead[0].key.partition("/")[0]
    prefix = f"{Folder.BATCHES.of(dataset)}/"
    reservations = [file.key for file in dead if file.key.startswith(prefix)]
    others = [file.key for file in dead if not file.key.startswith(prefix)]
    sizes = {file.key: file.size_bytes or 0 for file in dead}
    tally = Tally(on_progress, f"delete dead files of {dataset}", sizes)
    report = workers.listening(tally.listener)

    def delete_part(keys: Sequence[str]) -> _Deleted:
        try:
            store.delete(keys)
        except LakebedError as exc:
            return _Deleted(exc)
        report(*keys)
        return _Deleted()

    for keys in (others, reservations):
        parts = [
            keys[start : start + KEYS_PER_REQUEST]
            for start in range(0, len(keys), KEYS_PER_REQUEST)
        ]
        results = list(workers.map(delete_part, parts, _Deleted))
        for part, deleted in zip(parts, results, strict=True):
            if deleted.error is None:
                tally.add(*part)
        errors = [deleted.error for deleted in results if deleted.error is not None]
        if errors:
            errors[0].add_note("The cleanup is incomplete; run it again for the remaining files.")
            raise errors[0]


__all__ = ["CleanupReport", "cleanup", "parse_age"]
