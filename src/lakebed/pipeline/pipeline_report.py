"""The report of one run of a pipeline, with an entry for each step."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal, get_args

from lakebed.common.html import facts_to_html
from lakebed.upkeep.step_report import StepReport, exit_code_of

StepName = Literal["checks", "ingest", "retain", "compact", "publish", "cleanup"]
STEPS: tuple[StepName, ...] = get_args(StepName)
"""The steps of a pipeline, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReport:
    """The outcome of one run of a pipeline, or the plan of a dry run.

    Attributes:
        name: Name of the pipeline.
        dataset: The dataset, as LOCATION/NAME.
        run_id: Id of the run in the log.
        began_at: Start time; aware, UTC.
        duration_s: Duration in seconds.
        steps: An entry for each step that was to run, in order.
        is_dry_run: True if nothing was changed.

    >>> done = StepReport(step="ingest", status="done", summary="3 rows")
    >>> report = PipelineReport(
    ...     name="sales", dataset="lake/sales", run_id="9f", began_at=dt.datetime.now(dt.UTC), steps=(done,)
    ... )
    >>> report["ingest"].summary, report.exit_code
    ('3 rows', 0)
    """

    name: str
    dataset: str
    run_id: str
    began_at: dt.datetime
    duration_s: float = 0.0
    steps: tuple[StepReport, ...]
    is_dry_run: bool = False

    def __getitem__(self, step: StepName) -> StepReport:
        """Return the entry of a step.

        Raises:
            KeyError: The step was not to run.
        """
        for one in self.steps:
            if one.step == step:
                return one
        raise KeyError(step)

    @property
    def is_ok(self) -> bool:
        """True if no step failed."""
        return all(one.error is None for one in self.steps)

    @property
    def exit_code(self) -> int:
        """The exit code of `lakebed run`.

        That of the first error; else 2 if a person has to look at something; else 0.
        """
        return exit_code_of(self.steps)

    def raise_failed(self) -> None:
        """Raise the error of the first step that failed, with notes about the others.

        Raises:
            LakebedError: A step failed.
        """
        failed = [one for one in self.steps if one.error is not None]
        if not failed:
            return
        error = failed[0].error
        assert error is not None
        others = [f"{one.step} {one.status}" for one in self.steps if one is not failed[0]]
        of_others = f" The other steps: {', '.join(others)}." if others else ""
        error.add_note(f"The step {failed[0].step} of pipeline {self.name!r} failed.{of_others}")
        raise error

    def to_records(self) -> list[dict[str, object]]:
        """Return a record for each step."""
        return [one.to_record() for one in self.steps]

    def __repr__(self) -> str:
        kind = "PipelineReport, a dry run," if self.is_dry_run else "PipelineReport"
        steps = ", ".join(f"{one.step} {one.status}" for one in self.steps)
        return f"<{kind} of {self.name!r}: {steps}>"

    def _repr_html_(self) -> str:
        kind = "Plan of pipeline" if self.is_dry_run else "Pipeline"
        facts: dict[str, object] = {
            one.step: f"{one.status}: {one.summary}" if one.summary else one.status
            for one in self.steps
        }
        return facts_to_html(f"{kind} {self.name}", facts)
