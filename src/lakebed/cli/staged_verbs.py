"""Verbs on staged batches: list, add, commit, discard."""

from __future__ import annotations

from collections.abc import Sequence

import click

from lakebed import checks
from lakebed.checks import Audit, Check
from lakebed.cli.batch_verbs import partitions_option, replace_all_option
from lakebed.cli.data import (
    Growth,
    base_option,
    rows_of,
    run_option,
    show_commit,
    takes_files,
    takes_growth,
)
from lakebed.cli.group import VerbGroup
from lakebed.cli.inputs import Inputs
from lakebed.cli.output import Output
from lakebed.cli.records import dry_run_text
from lakebed.cli.shared_options import dry_run_option, takes_dataset, verb
from lakebed.common.shown import counted, facts_of
from lakebed.dataset import Dataset
from lakebed.errors import ChecksFailedError
from lakebed.model.names import split_names
from lakebed.repository import Repository

_STAGED_COLUMNS = (
    "batch_id",
    "operation",
    "run",
    "row_count",
    "staged_at",
    "base_version",
    "lease_until",
)
_CHECK_COLUMNS = ("check", "of", "has_passed", "count", "detail")


@click.group(
    "staged",
    cls=VerbGroup,
    epilog="\b\nExample:\n  lakebed staged add lake/flights day.csv --run 2013-01-01",
)
def staged() -> None:
    """Write batches that stay invisible until their commit."""


@verb("add", example="lakebed staged add lake/flights day.csv --operation rerun --run 2013-01-01")
@takes_dataset
@takes_files(required=False)
@click.option(
    "--operation",
    type=click.Choice(["append", "overwrite", "rerun"]),
    default="append",
    show_default=True,
    help="Operation to commit.",
)
@click.option(
    "--where", metavar="SQL", help="The view that the rows belong to, or that they replace."
)
@click.option("--empty", "is_empty", is_flag=True, help="There are no rows.")
@click.option(
    "--lease", default="7d", show_default=True, help="Keep the batch from cleanup: 7d or 12h."
)
@run_option
@partitions_option
@replace_all_option
@takes_growth
@base_option
@dry_run_option("Only check the rows, and show the batch that would be staged.")
def add(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs | None,
    operation: str,
    where: str | None,
    is_empty: bool,
    lease: str,
    run: str | None,
    partitions: bool,
    replace_all: bool,
    growth: Growth,
    base: int | None,
    is_dry_run: bool,
) -> None:
    """Write a batch that stays invisible until its commit.

    FILES are as for append.
    """
    if (inputs is None) is not is_empty:
        message = "Give FILES, or --empty for no rows."
        raise click.UsageError(message, click.get_current_context())
    dataset = repository.open(name)
    view = None if where is None else dataset.where(where)
    verb_shown = "Reading" if is_dry_run else "Writing"
    with (
        output.progress(f"{verb_shown} {inputs.label if inputs else 'nothing'}"),
        rows_of(inputs, dataset, growth) as rows,
    ):
        staged_batch = dataset.staged.add(
            rows,
            operation,  # type: ignore[arg-type]  # a click.Choice
            run=run,
            partitions=partitions,
            replace_all=replace_all,
            view=view,
            base=base,
            lease=lease,
            dry_run=is_dry_run,
            **growth,
        )
    record = {column: getattr(staged_batch, column) for column in _STAGED_COLUMNS}
    if is_dry_run:
        output.note(
            f"Would stage {counted(staged_batch.row_count, 'row')} in "
            f"{counted(staged_batch.file_count, 'file')} of "
            f"{counted(staged_batch.size_bytes, 'byte')}."
        )
        record |= {
            **dict.fromkeys(("batch_id", "staged_at", "lease_until")),
            "file_count": staged_batch.file_count,
            "size_bytes": staged_batch.size_bytes,
            "is_dry_run": True,
        }
    output.record(record, facts=facts_of(record))


@verb("list", example="lakebed staged list lake/flights")
@takes_dataset
def list_(output: Output, *, repository: Repository, name: str) -> None:
    """List the staged batches that are not committed yet."""
    waiting = repository.open(name).staged.list()
    if not waiting:
        output.note("There are no staged batches.")
    output.rows(
        _STAGED_COLUMNS,
        ({column: getattr(batch, column) for column in _STAGED_COLUMNS} for batch in waiting),
    )


_batch_argument = click.argument("batch", type=int)


@verb(
    "commit",
    example="lakebed staged commit lake/flights 1449784608123 --not-null flight --check 'delay >= 0'",
)
@takes_dataset
@_batch_argument
@click.option(
    "--check",
    "conditions",
    multiple=True,
    metavar="SQL",
    help="Condition that every row must meet. Repeatable.",
)
@click.option("--not-null", "not_null", multiple=True, metavar="A,B", help="Columns without null.")
@click.option(
    "--unique",
    "unique",
    multiple=True,
    metavar="A,B",
    help="Columns whose values no two rows share.",
)
@click.option("--min-rows", type=click.IntRange(min=0), help="Least number of rows.")
@click.option("--max-rows", type=click.IntRange(min=0), help="Greatest number of rows.")
@click.option(
    "--whole",
    "is_of_dataset",
    is_flag=True,
    help="Check the dataset as it will be after the commit, not only the rows of the batch.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only check, and list the results.")
def commit(
    output: Output,
    *,
    repository: Repository,
    name: str,
    batch: int,
    conditions: Sequence[str],
    not_null: Sequence[str],
    unique: Sequence[str],
    min_rows: int | None,
    max_rows: int | None,
    is_of_dataset: bool,
    is_dry_run: bool,
) -> None:
    """Make a staged batch visible, if it passes all checks.

    BATCH is the batch id. If a check fails, nothing becomes visible and the batch stays staged.
    """
    of: checks.Of = "dataset" if is_of_dataset else "batch"
    wanted: list[Check] = [checks.condition(condition, of=of) for condition in conditions]
    wanted += [checks.not_null(*split_names(columns), of=of) for columns in not_null]
    wanted += [checks.unique(*split_names(columns), of=of) for columns in unique]
    if (min_rows, max_rows) != (None, None):
        wanted.append(checks.row_count(min=min_rows, max=max_rows, of=of))
    staged_batch = repository.open(name).staged.open(batch)
    if is_dry_run:
        with output.progress("Checking"):
            audit = staged_batch.check(*wanted)
        output.rows(_CHECK_COLUMNS, _check_records(audit))
        if audit.has_passed:
            made = staged_batch.commit(dry_run=True)
            is_there = f"Batch {batch} is committed already, as version {made.version}."
            output.note(dry_run_text(made) if made.is_dry_run else is_there)
        else:
            failed = sum(not result.has_passed for result in audit.results)
            output.note(f"Would not commit: {counted(failed, 'check')} failed.")
            raise click.exceptions.Exit(ChecksFailedError.exit_code)
        return
    try:
        with output.progress("Checking and committing"):
            show_commit(output, staged_batch.commit(checks=wanted))
    except ChecksFailedError as exc:
        for failure in exc.failed:
            output.note(f"failed: {failure}")
        raise


def _check_records(audit: Audit) -> list[dict[str, object]]:
    return [
        {column: getattr(result, column) for column in _CHECK_COLUMNS} for result in audit.results
    ]


@verb("discard", example="lakebed staged discard lake/flights 1449784608123 --dry-run")
@takes_dataset
@_batch_argument
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only show what would be deleted.")
def discard(
    output: Output,
    *,
    repository: Repository,
    name: str,
    batch: int,
    is_sure: bool,
    is_dry_run: bool,
) -> None:
    """Delete a staged batch and its files.

    BATCH is the batch id. The result is the batch that was deleted, or would be.
    """
    dataset: Dataset = repository.open(name)
    staged_batch = dataset.staged.open(batch)
    record = {column: getattr(staged_batch, column) for column in _STAGED_COLUMNS}
    if not is_dry_run:
        if not is_sure:
            question = f"Delete batch {batch} of {counted(staged_batch.row_count, 'row')}?"
            click.confirm(question, abort=True, err=True)
        staged_batch.discard()
    output.record(record, facts=facts_of(record))


for _command in (list_, add, commit, discard):
    staged.add_command(_command)
