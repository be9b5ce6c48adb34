"""The verbs run and runs, of pipelines that a TOML file declares."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import click

from lakebed.cli.ingest_verb import as_key, note_report
from lakebed.cli.output import Output, OutputFormat
from lakebed.cli.progress_bar import pause
from lakebed.cli.shared_options import REPOSITORY_VARIABLE, dry_run_option, storage_option, verb
from lakebed.cli.step_lines import line_of, note_error
from lakebed.common.plain import to_plain
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError
from lakebed.pipeline import Ingest, IngestReport, TableIngestReport
from lakebed.pipeline.declaration import SCHEMA_FILE
from lakebed.pipeline.pipeline import MAX_AGE, Pipeline, RunAge
from lakebed.pipeline.pipeline_report import STEPS, PipelineReport, StepName
from lakebed.repository import open_repository
from lakebed.upkeep.step_report import StepReport
from lakebed.work.pipeline_runs import read_runs

OVERDUE_EXIT_CODE = 10

_COLUMNS = ("step", "status", "summary", "attempts", "duration_s", "facts", "error")
_RUN_COLUMNS = (
    "began_at",
    "pipeline",
    "dataset",
    "state",
    "exit_code",
    "duration_s",
    "summary",
    "ended_at",
    "by",
    "run_id",
    "versions",
    "steps",
)
_SHOWN_RUN_COLUMNS = ("began_at", "pipeline", "dataset", "state", "duration_s", "summary")
_WIDTH_OF_STEP = max(map(len, STEPS))
_WIDTH_OF_STATUS = len("attention")


@verb("run", example="lakebed run sales.toml --dry-run")
@click.argument("file", metavar="FILE", required=False)
@dry_run_option("Show the plan: files, bytes and requests of each step.")
@click.option(
    "--only",
    "only",
    type=click.Choice(STEPS),
    multiple=True,
    help="Run only this step. Repeatable.",
)
@click.option("--from", "start_at", type=click.Choice(STEPS), help="Leave out the steps before it.")
@click.option("--spark", "is_spark", is_flag=True, help="Let Spark tasks read and write files.")
@click.option(
    "--check",
    "is_check",
    is_flag=True,
    help="Run nothing; report how old the last successful run is.",
)
@click.option(
    "--max-age",
    metavar="AGE",
    help=f"With --check: the limit, beyond which the exit code is {OVERDUE_EXIT_CODE}.  "
    f"[default: max_age of FILE, or {MAX_AGE}]",
)
@click.option(
    "--schema", "is_schema", is_flag=True, help="Print the JSON schema of FILE, for editors."
)
def run(
    output: Output,
    *,
    file: str | None,
    is_dry_run: bool,
    only: Sequence[str],
    start_at: str | None,
    is_spark: bool,
    is_check: bool,
    max_age: str | None,
    is_schema: bool,
) -> None:
    """Do the due steps of a pipeline, from ingest to cleanup.

    FILE is a TOML file that declares a pipeline: the raw files, the dataset, and the rules of each
    step. A step without a rule is left out. Run it as often as new files may arrive: each step only
    does what is left to do, so a run that was killed is repeated, and several may run at once.

    The exit code is that of the first step that failed; 2 if a raw file was kept back. The run is
    recorded in the repository; see `lakebed runs`.
    """
    context = click.get_current_context()
    if is_schema:
        click.echo(SCHEMA_FILE.read_text(encoding="utf-8"), nl=False)
        return
    if file is None:
        message = "Missing argument 'FILE'."
        raise click.UsageError(message, context)
    if max_age is not None and not is_check:
        message = "Give --max-age with --check."
        raise click.UsageError(message, context)
    if is_check and (is_dry_run or only or start_at or is_spark):
        message = "--check runs nothing: leave the other options out, but for --max-age."
        raise click.UsageError(message, context)
    pipeline = Pipeline.from_toml(file)
    if is_check:
        _show_age(output, pipeline.last_run(max_age))
        return
    report = _run(
        output,
        pipeline,
        only=cast("Sequence[StepName]", only) or None,
        start_at=cast("StepName | None", start_at),
        dry_run=is_dry_run,
        spark=True if is_spark else None,
    )
    for step in report.steps:
        note_error(output, step, step.step)
    if report.exit_code:
        raise click.exceptions.Exit(report.exit_code)


def _run(output: Output, pipeline: Pipeline, **how: Any) -> PipelineReport:
    """Run a pipeline and show each step as it ends."""
    is_streamed = output.format in (OutputFormat.TABLE, OutputFormat.JSONL)

    def show(step: StepReport) -> None:
        pause(on_progress)  # the bar of a terminal would be between the lines
        if isinstance(step.result, IngestReport) and isinstance(pipeline.ingest, Ingest):
            note_report(output, pipeline.ingest, step.result, as_key)
        if isinstance(step.result, TableIngestReport):
            _note_table(output, pipeline, step.result)
        if output.is_table:
            click.echo(line_of(step, _WIDTH_OF_STEP, _WIDTH_OF_STATUS))
        elif is_streamed:
            output.rows(_COLUMNS, [_row(step)])
        sys.stdout.flush()  # a reader of the lines sees each step as it ends

    with output.progress("Running") as on_progress:
        report = pipeline.run(fail=False, on_step=show, on_progress=on_progress, **how)
    if not is_streamed:
        output.rows(_COLUMNS, map(_row, report.steps))
    return report


def _note_table(output: Output, pipeline: Pipeline, report: TableIngestReport) -> None:
    """Note what a run has not read of a table, for a person."""
    for part in report.kept_back:
        output.note(
            f"{part.run} was kept back: {part.kept_back}. If that is right, set may_be_empty."
        )
    if report.timeless_row_count:
        column = getattr(pipeline.ingest.source, "time", None)
        output.note(
            f"{counted(report.timeless_row_count, 'row')} of {report.table} without {column} not read, "
            f"since no window holds them. If that is right, leave them out by `where`."
        )
    if report.ignored_fields:
        output.note(f"Columns left out: {', '.join(report.ignored_fields)}.")
    if report.schema_changes:
        output.note(f"The schema of the dataset has changed: {', '.join(report.schema_changes)}.")


def _row(step: StepReport) -> dict[str, object]:
    record = step.to_record()
    return {**record, "facts": to_plain(record["facts"])}


def _show_age(output: Output, age: RunAge) -> None:
    last, success = age.last_run, age.last_success
    record: dict[str, object] = {
        "pipeline": age.name,
        "is_overdue": age.is_overdue,
        "age_s": None if age.age_s is None else round(age.age_s, 3),
        "max_age_s": age.max_age_s,
        "last_success_at": None if success is None else success.ended_at,
        "last_run_at": None if last is None else last.began_at,
        "last_state": None if last is None else last.state,
        "last_exit_code": None if last is None else last.exit_code,
        "last_summary": None if last is None else last.summary,
    }
    output.record(record)
    if not age.is_overdue:
        return
    if age.age_s is None:
        output.note(f"Pipeline {age.name!r} has no successful run in its log.")
    else:
        ago, limit = (str(dt.timedelta(seconds=round(one))) for one in (age.age_s, age.max_age_s))
        output.note(
            f"The last successful run of pipeline {age.name!r} ended {ago} ago; the limit is {limit}."
        )
    raise click.exceptions.Exit(OVERDUE_EXIT_CODE)


@verb("runs", example="lakebed runs sales.toml --limit 5")
@click.argument("place", metavar="REPOSITORY|FILE", envvar=REPOSITORY_VARIABLE)
@click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Most runs to list."
)
@storage_option
def runs(output: Output, *, place: str, limit: int, storage_options: Mapping[str, str]) -> None:
    """List the last runs of pipelines.

    REPOSITORY is a location, for all pipelines in it; FILE is a TOML file, for that pipeline alone.
    The newest run comes first. A run that has not ended is at work, or was killed.
    """
    if place.endswith(".toml") and (Path(place).is_file() or "://" not in place):
        if storage_options:
            raise InvalidInputError(
                f"{place} declares the repository.", hint="Leave --storage-option out."
            )
        found = Pipeline.from_toml(place).runs(limit)
    else:
        repository = open_repository(place, storage_options=storage_options)
        found = read_runs(repository.store, limit=limit)
    columns = _SHOWN_RUN_COLUMNS if output.is_table else _RUN_COLUMNS
    output.rows(columns, _records(found))


def _records(found: Sequence[Any]) -> Iterator[dict[str, object]]:
    for one in found:
        record = one.to_record()
        yield {**record, "steps": to_plain(record["steps"])}
