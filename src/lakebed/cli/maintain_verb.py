"""The verb maintain, which does what is due for all datasets of a repository."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, cast

import click

from lakebed.cli.compact import across_runs_option, parse_size_option
from lakebed.cli.output import Output, OutputFormat
from lakebed.cli.shared_options import (
    REPOSITORY_VARIABLE,
    age_option,
    dry_run_option,
    storage_option,
    takes_metastore,
    verb,
)
from lakebed.cli.step_lines import line_of, note_error
from lakebed.common.plain import to_plain
from lakebed.common.progress import NO_PROGRESS
from lakebed.common.shown import visible
from lakebed.repository import open_repository
from lakebed.upkeep.maintenance import UPKEEP_STEPS, UpkeepStep
from lakebed.upkeep.rules import DUE_FILES, CleanupRule, LayoutRule
from lakebed.upkeep.step_report import StepReport
from lakebed.work.defaults import TARGET_BYTES

_COLUMNS = (
    "dataset",
    "step",
    "status",
    "summary",
    "attempts",
    "duration_s",
    "facts",
    "error",
)
_WIDTH_OF_STEP = max(map(len, UPKEEP_STEPS))
_WIDTH_OF_STATUS = len("skipped")


@verb("maintain", example="lakebed maintain lake --dry-run")
@click.argument("repository", metavar="REPOSITORY", envvar=REPOSITORY_VARIABLE)
@dry_run_option("Show the plan: files, bytes and requests of each step of each dataset.")
@click.option(
    "--dataset", "names", metavar="NAME", multiple=True, help="Only this dataset. Repeatable."
)
@click.option(
    "--only",
    "only",
    type=click.Choice(UPKEEP_STEPS),
    multiple=True,
    help="Run only this step. Repeatable.",
)
@age_option(
    "--older-than",
    "7d",
    "Keep dead files this long after the commit that removed them, as for cleanup.",
)
@click.option(
    "--min-files",
    type=click.IntRange(min=2),
    default=DUE_FILES,
    show_default=True,
    help="Merge partitions with this many small files.",
)
@click.option(
    "--target-size",
    "target_bytes",
    callback=parse_size_option,
    metavar="SIZE",
    help="Size of merged files; files of at least half this size stay.  [default: 128MB]",
)
@across_runs_option
@takes_metastore
@click.option(
    "--published",
    type=click.Choice(("ask", "noted")),
    default="ask",
    show_default=True,
    help="For cleanup of published datasets: ask the metastore which files its tables show, or use "
    "the notes of publications.",
)
@click.option("--spark", "is_spark", is_flag=True, help="Let Spark tasks read and write files.")
@storage_option
def maintain(
    output: Output,
    *,
    repository: str,
    storage_options: Mapping[str, str],
    is_dry_run: bool,
    names: Sequence[str],
    only: Sequence[str],
    older_than: dt.timedelta,
    min_files: int,
    target_bytes: int | None,
    across_runs: dt.timedelta | None,
    metastore: str | None,
    published: Any,
    is_spark: bool,
) -> None:
    """Do what is due for all datasets: retention, merges, cleanup.

    For each dataset: delete the rows that are past the retention that its properties retention.*
    declare, merge small files, index files that an index lacks, merge metadata, update published
    tables, delete dead files and expired protections. Run it as often as you like: each step only
    does what is left to do, and several may run at once.

    The exit code is that of the first step that failed. Datasets that cannot be written are
    skipped.
    """
    _maintain(
        output,
        repository,
        storage_options,
        names=names or None,
        only=cast("Sequence[UpkeepStep]", only),
        layout=LayoutRule(
            min_files=min_files,
            target_bytes=target_bytes or TARGET_BYTES,
            across_runs_older_than=across_runs,
        ),
        cleanup=CleanupRule(older_than=older_than, published=published),
        metastore=metastore,
        dry_run=is_dry_run,
        spark=True if is_spark else None,
    )


def _maintain(
    output: Output, location: str, storage_options: Mapping[str, str], **how: Any
) -> None:
    """Maintain a repository, and show each step as it ends."""
    opened = open_repository(location, storage_options=storage_options)
    is_streamed = output.format in (OutputFormat.TABLE, OutputFormat.JSONL)
    width = max((len(name) for name in opened.list()), default=0)

    def show(name: str, step: StepReport) -> None:
        if output.is_table:
            line = line_of(step, _WIDTH_OF_STEP, _WIDTH_OF_STATUS)
            click.echo(f"{visible(name).ljust(width)}  {line}")
        elif is_streamed:
            output.rows(_COLUMNS, [_row({"dataset": name, **step.to_record()})])
        sys.stdout.flush()  # a reader of the lines sees each step as it ends

    # On a terminal the lines of the steps show the progress; a bar would be between them.
    is_terminal = sys.stderr.isatty()
    showing = nullcontext(NO_PROGRESS) if is_terminal else output.progress("Maintaining")
    with showing as on_progress:
        report = opened.maintain(fail=False, on_step=show, on_progress=on_progress, **how)
    if not is_streamed:
        output.rows(_COLUMNS, map(_row, report.to_records()))
    if not report.datasets:
        output.note(f"There is no dataset in {opened.uri}.")
    for one in report.datasets:
        for step in one.steps:
            note_error(output, step, f"{one.name}, {step.step}")
    if report.exit_code:
        raise click.exceptions.Exit(report.exit_code)


def _row(record: Mapping[str, object]) -> dict[str, object]:
    return {**record, "step": record["step"] or None, "facts": to_plain(record["facts"])}
