"""The steps of upkeep: each can be repeated at any time, and finds nothing to do if it is done.

A pipeline runs them after its ingest, and `Repository.maintain` for each dataset.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from lakebed.commit import Commit
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import counted, human_size
from lakebed.dataset import Dataset, session_of
from lakebed.errors import (
    ConflictError,
    DatasetNotFoundError,
    LakebedError,
    NotPublishedError,
    StorageError,
)
from lakebed.model import publishing
from lakebed.model.predicate import TRUE, Predicate
from lakebed.model.publishing import PublicationTarget
from lakebed.model.retention import RetentionRule, conditions_of, cutoff_of, in_force
from lakebed.state import file_table
from lakebed.state.after import NotPublished
from lakebed.state.reader import read_head
from lakebed.state.snapshot import Source
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.dry_run import DryRunStore
from lakebed.upkeep.rules import CleanupRule, LayoutRule, PublishRule
from lakebed.upkeep.step_report import StepReport, StepStatus
from lakebed.work.cleanup import KEYS_PER_REQUEST, CleanupReport
from lakebed.work.compaction import compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.tables.automatic import PublishedTo

_log = logging.getLogger(__name__)

_TRIES = 6
_FIRST_WAIT_S = 0.2  # after a lost race or a failure of the store, then twice as long each time
_PUBLICATIONS = 3
_BY_ANOTHER = "another run did it"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The outcome of a step that did not fail.

    Attributes:
        status: As `StepReport`.
        summary: As `StepReport`.
        facts: As `StepReport`.
        result: As `StepReport`.
    """

    status: StepStatus
    summary: str
    facts: Mapping[str, object] = field(default_factory=dict)
    result: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepSetting:
    """The dataset that steps work for, their rules, and the circumstances of the run.

    Attributes:
        layout: The rule of the step `compact`; None to leave it out.
        publish: The rule of the step `publish`.
        retention: The rule of the step `retain`; None for that of the properties of the dataset.
        cleanup: The rule of the step `cleanup`.
        store: The store of the repository; a dry run may have one of its own.
        name: Name of the dataset.
        quarantine: Name of the dataset of its rejects, which is cleaned up with it; None for none.
        is_dry_run: True to change nothing.
        spark: Session whose tasks do the work; None for this process.
        on_progress: Callback for progress.
        now: The moment from which ages count.
    """

    layout: LayoutRule | None
    publish: PublishRule | None
    retention: RetentionRule | None
    cleanup: CleanupRule | None
    store: Store
    name: str
    quarantine: str | None = None
    is_dry_run: bool = False
    spark: SparkSession | Literal[True] | None = None
    on_progress: OnProgress = NO_PROGRESS
    now: dt.datetime

    @property
    def metastore(self) -> Any:
        """The metastore of Hive tables; None for that of the running session."""
        from lakebed.tables.automatic import METASTORE

        named = None if self.publish is None else self.publish.metastore
        return named or os.environ.get(METASTORE)

    def dataset(self) -> Dataset:
        """Open the dataset."""
        return _open(self.store, self.name)

    def targets(self, state: State) -> tuple[PublicationTarget, ...]:
        """Return the tables to publish to: the declared ones, and those of the properties."""
        declared = () if self.publish is None else self.publish.targets()
        titles = {target.title for target in declared}
        properties = publishing.targets(state.descriptor.properties)
        return (*declared, *(one for one in properties if one.title not in titles))


def _open(store: Store, name: str) -> Dataset:
    return Dataset(Source(store, name, columns_of=read_head(store, name).state))


def may_pass(error: LakebedError) -> bool:
    """Return whether a step that failed may succeed when it is run again.

    That includes a commit whose answer was lost: the dataset records what was done.
    """
    return isinstance(error, ConflictError) or (isinstance(error, StorageError) and error.retryable)


def attempted(step: str, work: Callable[[], StepOutcome], *, is_dry_run: bool) -> StepReport:
    """Run a step; try again after a lost race or a failure of the store that may pass.

    Errors of Lakebed end in the report.
    """
    began = time.monotonic()
    attempt = 1
    while True:
        try:
            outcome = work()
        except LakebedError as exc:
            if may_pass(exc) and attempt < _TRIES and not is_dry_run:
                wait_s = _FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1)
                _log.warning("step %s is tried again in %.1f s: %s", step, wait_s, exc.message)
                time.sleep(wait_s)
                attempt += 1
                continue
            return StepReport(
                step=step,
                status="failed",
                summary=exc.message,
                attempts=attempt,
                duration_s=time.monotonic() - began,
                error=exc,
            )
        summary = outcome.summary
        if attempt > 1 and outcome.status == "nothing":
            summary = f"{summary}: {_BY_ANOTHER}"
        return StepReport(
            step=step,
            status=outcome.status,
            summary=summary,
            facts=outcome.facts,
            attempts=attempt,
            duration_s=time.monotonic() - began,
            result=outcome.result,
        )


def retain(setting: UpkeepSetting) -> StepOutcome:
    """Delete the rows that are past the retention."""
    dataset = setting.dataset()
    descriptor = dataset.descriptor
    rule = in_force(setting.retention, descriptor.properties)
    if rule is None or not rule.is_of_rows:
        return StepOutcome(status="nothing", summary="no retention of rows is declared")
    conditions = conditions_of(
        rule, descriptor, setting.now, lambda text: dataset.where(text).constraint
    )
    before = _written(setting.store)
    commits = {name: _deleted(setting, dataset, one) for name, one in conditions.items()}
    request_count = len(_written(setting.store) - before)
    done = [found for found in commits.values() if found is not None]
    row_count = sum(commit.deleted_row_count or 0 for commit, _ in done)
    file_count = sum(len(commit.files_removed) for commit, _ in done)
    size_bytes = sum(size for _, size in done)
    partitions = {path for commit, _ in done for path in commit.replaced_partitions}
    facts: dict[str, object] = {
        "cutoff": cutoff_of(conditions["keep"]) if "keep" in conditions else None,
        "conditions": {name: str(one) for name, one in conditions.items()},
        "row_count": row_count,
        "partition_count": len(partitions),
        "file_count": file_count,
        "written_file_count": sum(len(commit.files_added) for commit, _ in done),
        "size_bytes": size_bytes,
        "request_count": request_count or None,
        "protection_count": len(dataset.protections.list()),
        "version": done[-1][0].version if done else None,
    }
    if not done:
        return StepOutcome(status="nothing", summary="no row is past the retention", facts=facts)
    return StepOutcome(
        status="done",
        summary=f"{counted(row_count, 'row')} in {counted(len(partitions), 'partition')}, "
        f"{counted(file_count, 'file')} of {human_size(size_bytes)}",
        facts=facts,
        result=tuple(commit for commit, _ in done),
    )


def _written(store: Store) -> Set[tuple[str, str]]:
    """Return the objects that a dry run has written until now, with their etags."""
    return store.etags.items() if isinstance(store, DryRunStore) else set()


def _deleted(
    setting: UpkeepSetting, dataset: Dataset, condition: Predicate
) -> tuple[Commit, int] | None:
    """Delete the rows of a condition; return the commit, and the size of the removed files."""
    state = read_head(setting.store, setting.name).state
    session = None if setting.is_dry_run else session_of(setting.spark)
    commit = dataset.delete(condition, spark=session)
    if commit is None:
        return None
    counts = file_table.read_counts(setting.store, state.lists.files)
    sizes = {state.layout.key(label): counts[label][1] for label in state.labels if label in counts}
    return commit, sum(sizes.get(key, 0) for key in commit.files_removed)


def compact_files(setting: UpkeepSetting) -> StepOutcome:
    """Merge the files of partitions that have many small ones."""
    rule = setting.layout
    assert rule is not None
    report = compact(
        setting.store,
        setting.name,
        TRUE,
        rule.options(),
        spark=None if setting.is_dry_run else session_of(setting.spark),
        is_dry_run=setting.is_dry_run,
        on_progress=setting.on_progress,
    )
    facts: dict[str, object] = {
        "partition_count": len({one.path for one in report.partitions}),
        "files_before": report.files_before,
        "files_after": report.files_after,
        "bytes_before": report.bytes_before,
        "bytes_after": report.bytes_after,
        "row_count": report.row_count,
        # Each small file is read, and each new one written and read back.
        "request_count": report.files_before + 2 * report.files_after
        if setting.is_dry_run
        else None,
        "skipped": list(report.skipped),
        "version": report.commits[-1].version if report.commits else None,
    }
    if not report.partitions:
        summary = "no partition is due"
        if report.skipped:
            summary = f"{counted(len(report.skipped), 'partition')} left to other writers"
        return StepOutcome(status="nothing", summary=summary, facts=facts, result=report)
    return StepOutcome(
        status="done",
        summary=f"{counted(report.files_before, 'file')} to {report.files_after:,} in "
        f"{counted(len({one.path for one in report.partitions}), 'partition')}",
        facts=facts,
        result=report,
    )


def publish(setting: UpkeepSetting) -> StepOutcome:
    """Update the tables of other formats."""
    state = read_head(setting.store, setting.name).state
    targets = setting.targets(state)
    done = _published_to(setting, targets)
    tables = [
        {
            "kind": one.kind,
            "table": one.table,
            "version": one.version,
            "created": one.created,
            "added_count": one.added_count,
            "removed_count": one.removed_count,
            "was_in_step": one.was_in_step,
        }
        for one in done.done
    ]
    facts: dict[str, object] = {
        "tables": tables,
        "failures": [{"table": one.table, "reason": one.reason} for one in done.failures],
    }
    if done.failures:
        raise _not_published(done.failures)
    changed = [one for one in done.done if not one.was_in_step]
    if len(done.done) == len(targets) and not changed:
        return StepOutcome(
            status="nothing",
            summary=f"{counted(len(targets), 'table')} in step",
            facts=facts,
            result=done.done,
        )
    summary = ", ".join(
        f"{one.kind} +{one.added_count:,} -{one.removed_count:,}" for one in changed
    )
    return StepOutcome(
        status="done",
        summary=summary or counted(len(targets), "table"),
        facts=facts,
        result=done.done,
    )


def _published_to(setting: UpkeepSetting, targets: Sequence[PublicationTarget]) -> PublishedTo:
    """Publish to tables; try again if other publishers may have been in the way.

    A Hive table is not tried again: a metastore that does not answer has taken its time already.
    """
    # Imported here, since it loads all formats of tables.
    from lakebed.tables.automatic import publish_to

    for tries_left in reversed(range(_PUBLICATIONS)):
        done = publish_to(
            setting.store, setting.name, targets, setting.metastore, is_dry_run=setting.is_dry_run
        )
        of_hive = any(one.table.startswith("hive") for one in done.failures)
        if not done.failures or of_hive or setting.is_dry_run or not tries_left:
            return done
        time.sleep(_FIRST_WAIT_S * random.uniform(0.5, 1))
    raise AssertionError  # the last round returned


def _not_published(failures: Sequence[NotPublished]) -> NotPublishedError:
    first, *others = failures
    error = NotPublishedError(
        f"{first.dataset!r} is not published to {first.table}: {first.reason}",
        hint=f"{first.hint} The next run publishes again.".strip(),
    )
    for other in others:
        error.add_note(f"{other.dataset!r} is not published to {other} either.")
    return error


def clean_up(setting: UpkeepSetting) -> StepOutcome:
    """Delete dead files, and protections that have expired."""
    rule = setting.cleanup
    assert rule is not None
    protections = read_head(setting.store, setting.name).state.protections
    expired = [str(one.target) for one in protections if one.is_expired(setting.now)]
    reports = [_cleaned(setting, setting.dataset(), rule, of_tables=True)]
    quarantine = _find_quarantine(setting)
    if quarantine is not None:
        reports.append(_cleaned(setting, quarantine, rule, of_tables=False))
    object_count = sum(len(report.files) for report in reports)
    size_bytes = sum(report.size_bytes for report in reports)
    facts: dict[str, object] = {
        "object_count": object_count,
        "size_bytes": size_bytes,
        "reasons": reports[0].counts,
        "kept": dict(reports[0].kept_counts),
        "horizon": reports[0].horizon,
        "quarantine_object_count": len(reports[1].files) if len(reports) > 1 else 0,
        "expired_protections": expired,
        "request_count": -(-object_count // KEYS_PER_REQUEST) if setting.is_dry_run else None,
        "version": reports[0].version,
    }
    words = [f"{counted(object_count, 'object')} of {human_size(size_bytes)}"] * bool(object_count)
    if expired:
        words.append(counted(len(expired), "expired protection"))
    if not words:
        return StepOutcome(
            status="nothing", summary="no dead file", facts=facts, result=tuple(reports)
        )
    return StepOutcome(
        status="done",
        summary=", ".join(words),
        facts=facts,
        result=tuple(reports),
    )


def _cleaned(
    setting: UpkeepSetting, dataset: Dataset, rule: CleanupRule, *, of_tables: bool
) -> CleanupReport:
    published_ = rule.published if of_tables else "noted"
    return dataset.cleanup(
        rule.older_than,
        setting.is_dry_run,
        metastore=setting.metastore if published_ == "ask" else None,
        published=published_,
        spark=None if setting.is_dry_run else setting.spark,
        on_progress=setting.on_progress,
    )


def _find_quarantine(setting: UpkeepSetting) -> Dataset | None:
    """Return the dataset of rejects, if there is one: its old versions need a cleanup, too."""
    if setting.quarantine is None:
        return None
    try:
        return _open(setting.store, setting.quarantine)
    except DatasetNotFoundError:
        return None
