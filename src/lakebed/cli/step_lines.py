"""The display of steps, of a pipeline or of the upkeep, as they end."""

from __future__ import annotations

from lakebed.cli.output import Output, OutputFormat, show_error
from lakebed.common.shown import counted, visible
from lakebed.upkeep.step_report import StepReport


def line_of(step: StepReport, name_width: int, status_width: int) -> str:
    """Return a step as a line of a table for people.

    Args:
        step: The step; its name may be empty.
        name_width: Characters for the name.
        status_width: Characters for the status.
    """
    name, status = (step.step or "-").ljust(name_width), step.status.ljust(status_width)
    again = f" after {step.attempts} attempts" if step.attempts > 1 else ""
    count = step.facts.get("request_count")  # of a plan
    requests = f"; {counted(count, 'request')}" if isinstance(count, int) and count else ""
    return f"{name}  {status}  {visible(step.summary)}{requests}{again} ({step.duration_s:.1f} s)"


def note_error(output: Output, step: StepReport, name: str) -> None:
    """Show the error of a step that failed, under a name; in other formats its record has it."""
    if step.error is not None and (output.is_table or output.format is OutputFormat.CSV):
        show_error(
            step.error.code,
            f"{name}: {step.error.message}",
            step.error.hint,
            as_json=False,
            notes=getattr(step.error, "__notes__", ()),
        )
