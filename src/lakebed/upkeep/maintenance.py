"""The upkeep of all datasets of a repository: what is due, by rules and by properties."""

from __future__ import annotations

import datetime as dt
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from lakebed.common.given import given_names
from lakebed.common.html import facts_to_html
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import counted, human_size, shown
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    ReadOnlyError,
    UnsupportedVersionError,
)
from lakebed.model import publishing
from lakebed.model.names import nearest
from lakebed.model.retention import declared_in
from lakebed.state.after import recording, wants_publication
from lakebed.state.reader import read_head, read_own_head
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.dry_run import DryRunStore
from lakebed.upkeep.rules import CleanupRule, LayoutRule, PublishRule
from lakebed.upkeep.step_report import StepReport, exit_code_of
from lakebed.upkeep.upkeep_steps import (
    StepOutcome,
    UpkeepSetting,
    attempted,
    clean_up,
    compact_files,
    publish,
    retain,
)
from lakebed.work.indexing import find_uncovered
from lakebed.work.metadata_compaction import object_counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

UpkeepStep = Literal["retain", "compact", "index", "metadata", "publish", "cleanup"]
UPKEEP_STEPS: tuple[UpkeepStep, ...] = get_args(UpkeepStep)
"""The steps of the upkeep of a dataset, in order."""

# Commits merge a list when a level of it has eight objects: more of them all mean that it lags.
DUE_OBJECTS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetUpkeep:
    """The upkeep of one dataset.

    Attributes:
        name: Name of the dataset.
        steps: An entry for each step that was to run, in order.
        skipped: The reason why nothing was done for it; None if it was not skipped.

    >>> DatasetUpkeep(name="flights", skipped="made by Kartothek").steps
    ()
    """

    name: str
    steps: tuple[StepReport, ...] = ()
    skipped: str | None = None

    def __getitem__(self, step: UpkeepStep) -> StepReport:
        """Return the entry of a step.

        Raises:
            KeyError: The step was not to run.
        """
        for one in self.steps:
            if one.step == step:
                return one
        raise KeyError(step)

    def to_records(self) -> list[dict[str, object]]:
        """Return a record for each step; one without a step if the dataset was skipped."""
        if self.skipped is not None:
            step = StepReport(step="", status="skipped", summary=self.skipped)
            return [{"dataset": self.name, **step.to_record(), "step": None}]
        return [{"dataset": self.name, **one.to_record()} for one in self.steps]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """The outcome of the upkeep of a repository, or the plan of a dry run.

    Attributes:
        repository: Address of the repository.
        began_at: Start time; aware, UTC.
        duration_s: Duration in seconds.
        datasets: An entry for each dataset, by name.
        is_dry_run: True if nothing was changed.

    >>> import lakebed
    >>> lakebed.open_repository("memory://doctest-maintain").maintain().exit_code
    0
    """

    repository: str
    began_at: dt.datetime
    duration_s: float = 0.0
    datasets: tuple[DatasetUpkeep, ...]
    is_dry_run: bool = False

    def __getitem__(self, name: str) -> DatasetUpkeep:
        """Return the entry of a dataset.

        Raises:
            KeyError: There is none.
        """
        for one in self.datasets:
            if one.name == name:
                return one
        raise KeyError(name)

    @property
    def steps(self) -> tuple[StepReport, ...]:
        """The steps of all datasets."""
        return tuple(step for one in self.datasets for step in one.steps)

    @property
    def is_ok(self) -> bool:
        """True if no step failed."""
        return all(step.error is None for step in self.steps)

    @property
    def exit_code(self) -> int:
        """The exit code of `lakebed maintain`: that of the first error, else 0."""
        return exit_code_of(self.steps)

    def to_records(self) -> list[dict[str, object]]:
        """Return a record for each step of each dataset."""
        return [record for one in self.datasets for record in one.to_records()]

    def raise_failed(self) -> None:
        """Raise the error of the first step that failed, with notes about the others.

        Raises:
            LakebedError: A step failed.
        """
        failed = [
            (one.name, step)
            for one in self.datasets
            for step in one.steps
            if step.error is not None
        ]
        if not failed:
            return
        (name, first), *others = failed
        error = first.error
        assert error is not None
        error.add_note(f"The step {first.step} of {name!r} failed; the others ran.")
        for other, step in others:
            error.add_note(f"So did the step {step.step} of {other!r}: {step.error}")
        raise error

    def __repr__(self) -> str:
        kind = "MaintenanceReport, a dry run," if self.is_dry_run else "MaintenanceReport"
        return (
            f"<{kind} of {self.repository}: {'; '.join(map(_in_words, self.datasets)) or 'empty'}>"
        )

    def _repr_html_(self) -> str:
        title = "Plan of upkeep" if self.is_dry_run else "Upkeep"
        return facts_to_html(title, {one.name: _in_words(one, name="") for one in self.datasets})


def _in_words(one: DatasetUpkeep, name: str | None = None) -> str:
    steps = ", ".join(f"{step.step} {step.status}" for step in one.steps)
    return f"{one.name if name is None else name} {steps or 'skipped'}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The rules of the upkeep of a repository, and the circumstances of one call.

    Attributes:
        layout: The rule by which small files are merged.
        cleanup: The rule by which dead files are deleted.
        publish: The metastore of published tables.
        only: The steps to run; all if it is empty.
        spark: A session whose tasks do the work; None for this process.
        on_progress: Callback for progress.
    """

    layout: LayoutRule
    cleanup: CleanupRule
    publish: PublishRule
    only: tuple[UpkeepStep, ...] = ()
    spark: SparkSession | Literal[True] | None = None
    on_progress: OnProgress = NO_PROGRESS

    def __post_init__(self) -> None:
        for step in self.only:
            if step not in UPKEEP_STEPS:
                raise InvalidInputError(
                    f"{shown(step)} is not a step of the upkeep.",
                    hint=nearest(str(step), UPKEEP_STEPS)
                    or f"Steps are: {', '.join(UPKEEP_STEPS)}.",
                )


OnUpkeepStep = Callable[[str, StepReport], None]


def maintain(
    store: Store,
    names: Sequence[str],
    upkeep: Upkeep,
    *,
    is_dry_run: bool,
    on_step: OnUpkeepStep | None = None,
) -> MaintenanceReport:
    """Do what is due for some datasets; see `Repository.maintain`."""
    began_at, started = dt.datetime.now(dt.UTC), time.monotonic()
    (DryRunStore(store) if is_dry_run else store).check_writable()
    # The step `publish` reports the tables that are behind, not each commit.
    with recording():
        done = tuple(
            _of_dataset(store, name, upkeep, began_at, is_dry_run, on_step) for name in names
        )
    return MaintenanceReport(
        repository=store.uri,
        began_at=began_at,
        duration_s=time.monotonic() - started,
        datasets=done,
        is_dry_run=is_dry_run,
    )


def _of_dataset(
    store: Store,
    name: str,
    upkeep: Upkeep,
    now: dt.datetime,
    is_dry_run: bool,  # noqa: FBT001 - private
    on_step: OnUpkeepStep | None,
) -> DatasetUpkeep:
    """Do what is due for a dataset; its errors end in the report."""
    setting = UpkeepSetting(
        layout=upkeep.layout,
        publish=upkeep.publish,
        retention=None,
        cleanup=upkeep.cleanup,
        store=DryRunStore(store) if is_dry_run else store,
        name=name,
        is_dry_run=is_dry_run,
        spark=upkeep.spark,
        on_progress=upkeep.on_progress,
        now=now,
    )

    def note(step: StepReport) -> StepReport:
        _log_step(name, step)
        if on_step is not None:
            on_step(name, step)
        return step

    try:
        state = read_own_head(store, name).state
    except (ReadOnlyError, UnsupportedVersionError, DatasetNotFoundError) as exc:
        note(StepReport(step="", status="skipped", summary=exc.message))
        return DatasetUpkeep(name=name, skipped=exc.message)
    except LakebedError as exc:
        opening = StepReport(step="open", status="failed", summary=exc.message, error=exc)
        return DatasetUpkeep(name=name, steps=(note(opening),))
    steps: list[StepReport] = []
    for step in _declared(state, upkeep):
        failed = next((one.step for one in steps if one.error is not None), None)
        if step == "cleanup" and failed is not None:
            reason = f"nothing is deleted after the failure of {failed}"
            one = StepReport(step=step, status="skipped", summary=reason)
        else:
            one = _run(step, setting)
        steps.append(note(one))
    return DatasetUpkeep(name=name, steps=tuple(steps))


def _declared(state: State, upkeep: Upkeep) -> Iterator[UpkeepStep]:
    """Yield the steps that may be due for a dataset."""
    descriptor = state.descriptor
    is_declared: Mapping[UpkeepStep, bool] = {
        "retain": bool(declared_in(descriptor.properties)),
        "index": bool(descriptor.index),
        "publish": wants_publication(state) and bool(publishing.targets(descriptor.properties)),
    }
    for step in UPKEEP_STEPS:
        if is_declared.get(step, True) and (not upkeep.only or step in upkeep.only):
            yield step


def _run(step: UpkeepStep, setting: UpkeepSetting) -> StepReport:
    return attempted(step, lambda: _STEPS[step](setting), is_dry_run=setting.is_dry_run)


def _index(setting: UpkeepSetting) -> StepOutcome:
    """Index the files that an index does not cover, such as adopted ones."""
    state = read_head(setting.store, setting.name).state
    found = {
        column: find_uncovered(setting.store, state, column) for column in state.descriptor.index
    }
    uncovered = {column: one for column, one in found.items() if one[0]}
    file_count = sum(count for count, _ in uncovered.values())
    size_bytes = sum(size for _, size in uncovered.values())
    facts: dict[str, object] = {
        "columns": list(uncovered),
        "file_count": file_count,
        "size_bytes": size_bytes,
        "request_count": file_count if setting.is_dry_run else None,
    }
    if not uncovered:
        return StepOutcome(status="nothing", summary="all files are indexed", facts=facts)
    if not setting.is_dry_run:
        dataset = setting.dataset()
        for column in uncovered:
            dataset.indices.build(column, spark=setting.spark, on_progress=setting.on_progress)
    return StepOutcome(
        status="done",
        summary=f"{', '.join(uncovered)}: {counted(file_count, 'file')} of {human_size(size_bytes)}",
        facts=facts,
    )


def _metadata(setting: UpkeepSetting) -> StepOutcome:
    """Merge the objects of the file table, the history and indices, if there are many."""
    counts = object_counts(read_head(setting.store, setting.name).state)
    most = max(counts.values())
    facts: dict[str, object] = {"object_counts": counts}
    if most < DUE_OBJECTS:
        return StepOutcome(status="nothing", summary="lists are short", facts=facts)
    merged = setting.dataset().compact(metadata=True, dry_run=setting.is_dry_run)
    before = sum(one.segments_before for one in merged)
    after = sum(one.segments_after for one in merged)
    facts |= {
        "merged": [one.name for one in merged],
        "objects_before": before,
        "objects_after": after,
        "request_count": before + after if setting.is_dry_run else None,
    }
    if not merged:
        return StepOutcome(status="nothing", summary="lists cannot be merged further", facts=facts)
    return StepOutcome(
        status="done",
        summary=f"{counted(before, 'object')} to {after:,}",
        facts=facts,
        result=merged,
    )


_STEPS: Mapping[UpkeepStep, Callable[[UpkeepSetting], StepOutcome]] = {
    "retain": retain,
    "compact": compact_files,
    "index": _index,
    "metadata": _metadata,
    "publish": publish,
    "cleanup": clean_up,
}


def chosen_names(names: Iterable[str] | str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return the datasets to maintain.

    Raises:
        DatasetNotFoundError: There is no dataset of a name.
    """
    if names is None:
        return tuple(known)
    chosen = given_names("names", names)
    for name in chosen:
        if name not in known:
            raise DatasetNotFoundError(
                f"There is no dataset {name!r}.",
                hint=nearest(name, known) or "`lakebed list` shows the datasets.",
            )
    return chosen


def _log_step(name: str, report: StepReport) -> None:
    level = logging.WARNING if report.error is not None else logging.INFO
    _log.log(
        level,
        "upkeep dataset=%s step=%s status=%s duration_s=%.3f summary=%s",
        name,
        report.step or "all",
        report.status,
        report.duration_s,
        report.summary,
    )
