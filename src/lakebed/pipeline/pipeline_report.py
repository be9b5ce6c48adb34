"""The report of one run of a pipeline, with an entry for each step."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from lakebed.common.html import facts_to_html
from lakebed.errors import LakebedError

StepName = Literal["checks", "ingest", "retain", "compact", "publish", "cleanup"]
STEPS: tuple[StepName, ...] = get_args(StepName)
"""The steps of a pipeline, in order."""

StepStatus = Literal["done", "nothing", "attention", "failed", "skipped"]
"""The outcome of a step.

`nothing`: there was nothing to do. `attention`: it is done, and a person has to look at something,
such as a raw file that was kept back. `skipped`: it did not run because of an earlier step.
"""

ATTENTION_EXIT_CODE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """The outcome of one step.

    Attributes:
        step: Name of the step.
        status: Its outcome; in a dry run `done` means that there is something to do.
        summary: Its effect, in words.
        facts: Counts and names, with keys that are stable for each step.
        attempts: Number of attempts; more than one after a race or a failure of the store.
        duration_s: Duration in seconds.
        error: The error that ended it; None if it did not fail.
        result: The report of the verb, such as an `IngestReport`; None if there is none.

    >>> StepReport(step="compact", status="nothing", summary="no partition is due").to_record()["step"]
    'compact'
    """

    step: StepName
    status: StepStatus
    summary: str
    facts: Mapping[str, object] = field(default_factory=dict)
    attempts: int = 1
    duration_s: float = 0.0
    error: LakebedError | None = None
    result: object = field(default=None, repr=False)

    def to_record(self) -> dict[str, object]:
        """Return the entry as a record for JSON."""
        error = self.error
        return {
            "step": self.step,
            "status": self.status,
            "summary": self.summary,
            "attempts": self.attempts,
            "duration_s": round(self.duration_s, 3),
            "facts": dict(self.facts),
            "error": None
            if error is None
            else {"code": str(error.code), "message": error.message, "hint": error.hint},
        }


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
        for one in self.steps:
            if one.error is not None:
                return one.error.exit_code
        needs_attention = any(one.status == "attention" for one in self.steps)
        return ATTENTION_EXIT_CODE if needs_attention else 0

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
