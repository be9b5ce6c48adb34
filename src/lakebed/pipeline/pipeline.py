"""The pipeline: raw files to a dataset and its tables, and all upkeep, declared once."""

from __future__ import annotations

import datetime as dt
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from lakebed.common.ages import parse_age
from lakebed.common.given import check_given
from lakebed.common.items import Items
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import shown
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
)
from lakebed.model.declared import Check, check_form
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import nearest
from lakebed.model.retention import RetentionRule
from lakebed.pipeline.candidates import FromArchive
from lakebed.pipeline.check_rules import creating_with
from lakebed.pipeline.checked_rules import problems_of
from lakebed.pipeline.declaration import read_pipeline
from lakebed.pipeline.ingest import Ingest
from lakebed.pipeline.pipeline_report import STEPS, PipelineReport, StepName
from lakebed.pipeline.run_log import RunLog
from lakebed.pipeline.steps import Setting, publishes, retains, run_step
from lakebed.pipeline.table_ingest import TableIngest
from lakebed.state.after import recording
from lakebed.state.reader import read_head, read_own_head
from lakebed.store.base import Store
from lakebed.store.dry_run import DryRunStore
from lakebed.upkeep.rules import CleanupRule, LayoutRule, PublishRule
from lakebed.upkeep.step_report import StepReport
from lakebed.work.pipeline_runs import PipelineRun, read_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

MAX_AGE = "26h"  # of a daily run, with two hours for delays


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAge:
    """The age of the last successful run of a pipeline.

    Attributes:
        name: Name of the pipeline.
        is_overdue: True if it is older than the limit, or if the log has none.
        last_success: The last run without a failed step; None if the log has none.
        last_run: The last run of any outcome; None if the log has none.
        age_s: Seconds since the end of the last successful run; None if there is none.
        max_age_s: The limit.
    """

    name: str
    is_overdue: bool
    last_success: PipelineRun | None
    last_run: PipelineRun | None
    age_s: float | None
    max_age_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    r"""Everything about a dataset that has to be done again and again, in one declaration.

    The steps, in order: `checks` declares checks of the dataset, `ingest` reads new raw files, or a table of Spark,
    `retain` deletes what is past the retention, `compact` merges the small files of partitions that
    have many, `publish` updates tables of other formats, `cleanup` deletes dead files. A step whose rule is None is left out. Each may be
    repeated at any time, and killed at any point: the next run goes on from the state of the
    dataset. Several runs at once are safe.

    Attributes:
        ingest: The ingest, of raw files or of a table of Spark, which also names the pipeline and the dataset.
        layout: The rule by which small files are merged.
        publish: The tables that are published to. Tables that properties of the dataset name are
            published to as well.
        retention: The rows that are deleted, and the raw files. None for the rows that properties
            of the dataset name, if any.
        cleanup: The rule by which dead files are deleted, of the dataset and of its quarantine.
        checks: All checks that the dataset declares, by name, as of `lakebed.checks`; none of them
            if it is empty. None to leave the checks of the dataset as they are.
        max_age: Limit for the age of the last successful run, such as `26h`: `last_run` and
            `lakebed report` compare with it. None for no limit of its own.
        file: Path of the TOML file that declares it, which the log of runs names; empty for none.

    Examples:
        >>> import lakebed, pyarrow as pa
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
        ...     numbers = Pipeline(
        ...         ingest=lakebed.Ingest(
        ...             name="numbers",
        ...             into="memory://doctest-pipeline/numbers",
        ...             source=lakebed.FromFiles(paths=folder),
        ...             create=lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
        ...         ),
        ...         retention=lakebed.RetentionRule(delete_where="n < 2"),
        ...     )
        ...     first, second = numbers.run(), numbers.run()
        >>> first["ingest"].summary, first["retain"].facts["row_count"]
        ('1 file, 2 rows', 1)
        >>> second
        <PipelineReport of 'numbers': ingest nothing, retain nothing>
    """

    ingest: Ingest | TableIngest
    layout: LayoutRule | None = None
    publish: PublishRule | None = None
    retention: RetentionRule | None = None
    cleanup: CleanupRule | None = None
    checks: Mapping[str, Check] | None = None
    max_age: str | dt.timedelta | None = None
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        kinds = (Ingest, TableIngest)
        check_given("ingest", self.ingest, kinds, "Give an Ingest or a TableIngest.", or_none=False)
        rules = {
            "layout": LayoutRule,
            "publish": PublishRule,
            "retention": RetentionRule,
            "cleanup": CleanupRule,
        }
        for name, kind in rules.items():
            check_given(name, getattr(self, name), kind, f"Give a {kind.__name__}.")
        is_of_raw = self.retention is not None and self.retention.raw is not None
        if is_of_raw and not isinstance(self.ingest.source, FromArchive):
            source = "a table" if isinstance(self.ingest, TableIngest) else "files of a folder"
            raise InvalidInputError(
                f"The retention has raw, which is for files of an archive; the source is {source}.",
                hint="Leave raw out, or push files to an archive.",
            )
        check_given("checks", self.checks, Mapping, "Give a dict that maps names to checks.")
        if self.checks is not None:
            check_form(self.checks)
            object.__setattr__(self, "checks", dict(self.checks))
        if self.max_age is not None and not parse_age(self.max_age):
            raise InvalidInputError(
                "max_age is 0, so every run would be too old.", hint="Give an age, such as '26h'."
            )

    @classmethod
    def from_toml(cls, source: str | os.PathLike[str]) -> Self:
        """Read a pipeline from a TOML file; docs/pipeline.md describes its keys.

        Args:
            source: The path of a file; relative paths in it are relative to its folder. Or the text
                of such a file, of several lines; its paths are relative to the working directory.

        Raises:
            NotFoundError: There is no such file.
            FormatError: It is not valid TOML.
            InvalidInputError: A key is unknown or missing, or a value is wrong. The message lists
                all mistakes, each with its line.
            PartitionSpecError: The partitions do not fit the schema.
        """
        text = os.fspath(source)
        file = "" if "\n" in text else os.path.abspath(text)  # noqa: PTH100 - links in the path must stay
        return cls(**read_pipeline(source), file=file)

    @property
    def name(self) -> str:
        """Name of the pipeline."""
        return self.ingest.name

    @property
    def into(self) -> str:
        """The dataset, as LOCATION/NAME."""
        return self.ingest.into

    @property
    def steps(self) -> tuple[StepName, ...]:
        """The steps that are declared, in order.

        `publish` and `retain` also run if properties of the dataset name tables or a retention.
        """
        rules = {
            "checks": self.checks if self._is_required is None else self._is_required,
            "retain": self.retention,
            "compact": self.layout,
            "publish": self.publish,
            "cleanup": self.cleanup,
        }
        return tuple(step for step in STEPS if step == "ingest" or rules[step] is not None)

    @property
    def _is_required(self) -> bool | None:
        """True if publications wait for checks; None to leave that as it is."""
        return None if self.publish is None else self.publish.require_checks

    def run(
        self,
        *,
        only: StepName | Iterable[StepName] | None = None,
        start_at: StepName | None = None,
        dry_run: bool = False,
        fail: bool = True,
        spark: SparkSession | Literal[True] | None = None,
        on_step: Callable[[StepReport], None] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> PipelineReport:
        """Run the steps in order.

        A step that loses a race against another writer, or meets a failure of the store that may
        pass, is tried again. A step that fails does not keep the later ones from running, except
        that `ingest` reads nothing after a failure of `checks`, and `cleanup` deletes nothing after
        any failure. The run is recorded in the log of the repository, unless it is a dry run.

        Args:
            only: Run only these steps.
            start_at: Leave out the steps before this one.
            dry_run: Change nothing; report what each step would do. Steps after `ingest` are
                planned without the rows that it would read.
            fail: Raise the error of the first step that failed, after all have ended; otherwise
                the report has it.
            spark: A session whose tasks read, merge and delete files; True for the active session,
                else a local one. None does everything in this process, except that a table of Spark
                is read by the active session, else a new one.
            on_step: Callback; receives each step after its end.
            on_progress: Callback for progress.

        Raises:
            InvalidInputError: The rules do not fit the dataset; nothing was changed. Or a step is
                unknown or not declared.
            LakebedError: A step failed, and `fail` is given.

        Cost:
            That of the verbs `Dataset.evolve`, if checks differ, `Ingest.run`, `Dataset.delete`,
            `compact`, `publish` and `cleanup`; a read of the head for each step; two PUTs and a
            LIST of the log.
        """
        began_at, started = dt.datetime.now(dt.UTC), time.monotonic()
        store = self.ingest._store()
        setting = Setting(
            ingest=creating_with(self.ingest, self.checks, is_required=self._is_required),
            checks=self.checks,
            layout=self.layout,
            publish=self.publish,
            retention=self.retention,
            cleanup=self.cleanup,
            store=DryRunStore(store) if dry_run else store,
            name=self._dataset_name,
            quarantine=self.ingest.quarantine_name,
            is_dry_run=dry_run,
            spark=spark,
            on_progress=on_progress,
            now=began_at,
        )
        self._check_dataset(store)
        chosen = self._chosen(setting, only, start_at)
        log = self._log(store)
        run_id = uuid.uuid4().hex[:16]
        if not dry_run:
            log.begin(run_id, began_at)
        done: list[StepReport] = []

        def report() -> PipelineReport:
            return PipelineReport(
                name=self.name,
                dataset=self.into,
                run_id=run_id,
                began_at=began_at,
                duration_s=time.monotonic() - started,
                steps=tuple(done),
                is_dry_run=dry_run,
            )

        # The step `publish` reports the tables that are behind, not each commit of the run.
        with recording():
            for step in chosen:
                reason = _why_skipped(step, done, setting)
                try:
                    one = (
                        run_step(step, setting)
                        if reason is None
                        else StepReport(step=step, status="skipped", summary=reason)
                    )
                except BaseException as exc:
                    done.append(_broken_off(step, exc))
                    if not dry_run:
                        log.end(report())
                    raise
                done.append(one)
                _log_step(self.name, one)
                if on_step is not None:
                    on_step(one)
        finished = report()
        if not dry_run:
            log.end(finished)
        if fail:
            finished.raise_failed()
        return finished

    def _log(self, store: Store) -> RunLog:
        limit = None if self.max_age is None else parse_age(self.max_age).total_seconds()
        return RunLog(
            store=store,
            dataset=self._dataset_name,
            pipeline=self.name,
            file=self.file,
            max_age_s=limit,
        )

    @property
    def _dataset_name(self) -> str:
        return self.ingest._address()[1]

    def _chosen(
        self,
        setting: Setting,
        only: StepName | Iterable[StepName] | None,
        start_at: StepName | None,
    ) -> tuple[StepName, ...]:
        """Return the steps to run.

        Raises:
            InvalidInputError: A step is unknown, or is not declared.
        """
        declared = list(self.steps)
        if "publish" not in declared and publishes(setting):
            declared = [step for step in STEPS if step in (*declared, "publish")]
        if "retain" not in declared and retains(setting):
            declared = [step for step in STEPS if step in (*declared, "retain")]
        named = () if only is None else (only,) if isinstance(only, str) else tuple(only)
        for step in (*named, *([] if start_at is None else [start_at])):
            if step not in STEPS:
                raise InvalidInputError(
                    f"{shown(step)} is not a step of a pipeline.",
                    hint=nearest(str(step), STEPS) or f"Steps are: {', '.join(STEPS)}.",
                )
        for step in named:
            if step not in declared:
                raise InvalidInputError(
                    f"The pipeline {self.name!r} does not declare the step {step}.",
                    hint=f"Its steps are: {', '.join(declared)}.",
                )
        first = 0 if start_at is None else STEPS.index(start_at)
        return tuple(
            step for step in declared if STEPS.index(step) >= first and (not named or step in named)
        )

    def _check_dataset(self, store: Store) -> None:
        """Check the rules against the dataset, or the declared one, before anything is changed.

        Raises:
            InvalidInputError: They do not fit.
            ReadOnlyError: The dataset cannot be written.
        """
        try:
            state = read_own_head(store, self._dataset_name).state
        except DatasetNotFoundError:
            if self.ingest.create is not None:
                self._check_rules(self.ingest.create)
            return  # otherwise the ingest reports that it is missing
        self._check_rules(state.descriptor)

    def _check_rules(self, descriptor: DatasetDescriptor) -> None:
        problems = problems_of(self.retention, self.layout, self.checks, descriptor)
        if not problems:
            return
        (_, first), *others = problems.items()
        for place, other in others:
            first.add_note(f"Also {'.'.join(place)}: {other}")
        raise first

    def last_run(self, max_age: str | dt.timedelta | None = None) -> RunAge:
        """Return how old the last successful run is, as the log records it.

        A run is successful if no step failed; files that were kept back do not count as a failure.

        Args:
            max_age: The limit, such as `26h`; None for that of the pipeline, or 26 hours.

        Cost:
            Two LISTs of the log, and two GETs.
        """
        declared = self.max_age if max_age is None else max_age
        limit = parse_age(MAX_AGE if declared is None else declared)
        log = self._log(self.ingest._store())
        success = log.last_success()
        ended_at = None if success is None else success.ended_at
        age = None if ended_at is None else max(dt.datetime.now(dt.UTC) - ended_at, dt.timedelta())
        return RunAge(
            name=self.name,
            is_overdue=age is None or age > limit,
            last_success=success,
            last_run=log.last(),
            age_s=None if age is None else age.total_seconds(),
            max_age_s=limit.total_seconds(),
        )

    def runs(self, limit: int = 20) -> Items[PipelineRun]:
        """Return the last runs, newest first.

        Cost:
            One LIST for each 1,000 entries of the log, and one GET a run.
        """
        return read_runs(self.ingest._store(), self._dataset_name, self.name, limit=limit)


def _why_skipped(step: StepName, done: list[StepReport], setting: Setting) -> str | None:
    """Return the reason why a step does not run; None if it does."""
    failed = next((one.step for one in done if one.error is not None), None)
    if step == "cleanup" and failed is not None:
        return f"nothing is deleted after the failure of {failed}"
    if step == "ingest":
        is_unchecked = any(one.step == "checks" and one.error is not None for one in done)
        return "the declared checks are not in force" if is_unchecked else None
    if step == "checks" and setting.ingest.create is not None:
        return None  # the ingest creates the dataset with them
    try:
        read_head(setting.store, setting.name)
    except DatasetNotFoundError:
        return "the dataset does not exist yet"
    except LakebedError:
        return None  # the step reports it
    return None


def _broken_off(step: StepName, cause: BaseException) -> StepReport:
    """Return the entry of a step that an interrupt or a defect has ended."""
    problem = f"The step was broken off: {cause!r}."
    return StepReport(step=step, status="failed", summary=problem, error=LakebedError(problem))


def _log_step(name: str, report: StepReport) -> None:
    level = logging.WARNING if report.error is not None else logging.INFO
    _log.log(
        level,
        "pipeline step name=%s step=%s status=%s duration_s=%.3f summary=%s",
        name,
        report.step,
        report.status,
        report.duration_s,
        report.summary,
    )
