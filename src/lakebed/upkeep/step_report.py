"""The outcome of one step of a pipeline, or of the upkeep of a repository."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from lakebed.errors import LakebedError

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

    step: str
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


def exit_code_of(steps: Iterable[StepReport]) -> int:
    """Return the exit code of some steps.

    That of the first error; else 2 if a person has to look at something; else 0.
    """
    needs_attention = False
    for one in steps:
        if one.error is not None:
            return one.error.exit_code
        needs_attention = needs_attention or one.status == "attention"
    return ATTENTION_EXIT_CODE if needs_attention else 0
