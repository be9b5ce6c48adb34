"""Verbs on batches: batches, rerun, diff, changes, rollback."""

from __future__ import annotations

import datetime as dt

import click

from lakebed.arrow.as_python import python_rows
from lakebed.batches.diff import Diff
from lakebed.batches.listing import Batch
from lakebed.cli.data import (
    Growth,
    base_option,
    begun_on,
    begun_option,
    rows_of,
    show_commit,
    takes_files,
    takes_growth,
)
from lakebed.cli.inputs import Inputs
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record, no_commit_record
from lakebed.cli.shared_options import dry_run_option, parse_time, takes_dataset, verb
from lakebed.common.shown import counted, facts_of
from lakebed.model.names import split_names
from lakebed.repository import Repository
from lakebed.work.rollback import Restoration

_BATCH_COLUMNS = (
    "batch_id",
    "run",
    "operation",
    "version",
    "started_at",
    "committed_at",
    "superseded_at",
    "row_count",
    "file_count",
    "live_file_count",
    "size_bytes",
    "is_live",
    "is_staged",
    "is_protected",
)
_DIFF_COLUMNS = ("partition", "files_added", "files_removed", "rows_added", "rows_removed")


@verb("batches", example="lakebed batches lake/flights -o csv")
@takes_dataset
def batches(output: Output, *, repository: Repository, name: str) -> None:
    """List when each batch was started, committed and superseded.

    Staged batches, which are not visible yet, come last.
    """
    listed = repository.open(name).batches()
    output.rows(_BATCH_COLUMNS, (_batch_record(batch) for batch in listed))


def _batch_record(batch: Batch) -> dict[str, object]:
    return {column: getattr(batch, column) for column in _BATCH_COLUMNS}


partitions_option = click.option(
    "--partitions",
    is_flag=True,
    help="With a rerun: also replace the partitions that the rows touch, including other runs' rows.",
)

replace_all_option = click.option(
    "--replace-all",
    is_flag=True,
    help="With a rerun: also remove rows of the run in partitions, or of days, that have no new "
    "rows.",
)


@verb("rerun", example="lakebed rerun lake/flights january.csv --run 2013-01")
@takes_dataset
@takes_files(required=False)
@click.option("--run", required=True, help="Name of the run to repeat.")
@click.option("--empty", "is_empty", is_flag=True, help="The run has no rows now.")
@partitions_option
@replace_all_option
@dry_run_option("Only check the rows, and show the commit that would replace them.")
@takes_growth
@base_option
@begun_option
def rerun(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs | None,
    run: str,
    is_empty: bool,
    partitions: bool,
    replace_all: bool,
    is_dry_run: bool,
    growth: Growth,
    base: int | None,
    begun_at: dt.datetime | None,
) -> None:
    """Replace all rows that a run wrote before, in all partitions.

    Name the run by its period, such as 2013-01: a rerun that would remove rows of a partition or a
    day without new ones is refused, unless --replace-all is given. FILES are as for append. Rows of
    other runs stay, also in the same partitions, unless --partitions is given. The first rerun of a run adds its rows; a warning names the runs whose
    partitions it adds to.
    """
    if (inputs is None) is not is_empty:
        message = "Give FILES, or --empty for no rows."
        raise click.UsageError(message, click.get_current_context())
    dataset = begun_on(repository.open(name), begun_at)
    if inputs is None:
        show_commit(output, dataset.rerun([], run, replace_all=True, base=base, dry_run=is_dry_run))
        return
    with (
        output.progress(f"{'Reading' if is_dry_run else 'Writing'} {inputs.label}"),
        rows_of(inputs, dataset, growth) as rows,
    ):
        commit = dataset.rerun(
            rows,
            run,
            partitions=partitions,
            replace_all=replace_all,
            base=base,
            dry_run=is_dry_run,
            **growth,
        )
    show_commit(output, commit)


@verb("diff", example="lakebed diff lake/flights 3 5 --rows -o jsonl")
@takes_dataset
@click.argument("a", type=int)
@click.argument("b", type=int, required=False)
@click.option(
    "--rows", "is_by_row", is_flag=True, help="List the rows that were added and removed."
)
@click.option(
    "--columns", metavar="A,B", help="With --rows: compare and show these fields.  [default: all]"
)
def diff(
    output: Output,
    *,
    repository: Repository,
    name: str,
    a: int,
    b: int | None,
    is_by_row: bool,
    columns: str | None,
) -> None:
    """Compare two versions, partition by partition.

    A and B are versions, or batch ids, which stand for the state after their commit; without B,
    A is compared with the current version. A row in a rewritten file counts as removed and added;
    --rows reads the files and lists only rows that differ.
    """
    difference = repository.open(name).diff(a, b)
    if not is_by_row:
        if columns is not None:
            message = "Give --columns with --rows."
            raise click.UsageError(message, click.get_current_context())
        output.note(_in_words(difference))
        output.rows(_DIFF_COLUMNS, _partition_records(difference))
        return
    wanted = None if columns is None else split_names(columns)
    rows = difference.rows(wanted)
    output.rows(rows.column_names, python_rows(rows), null="null")


@verb("changes", example="lakebed changes lake/flights 3 5 --on flight,time_hour -o jsonl")
@takes_dataset
@click.argument("from_version", type=int)
@click.argument("to_version", type=int, required=False)
@click.option(
    "--on",
    "keys",
    metavar="A,B",
    help="Key fields, by which a deleted and an inserted row are an update.",
)
@click.option("--columns", metavar="A,B", help="Compare and show these fields.  [default: all]")
@click.option(
    "--net", "is_net", is_flag=True, help="Compare the two versions alone, not each commit."
)
def changes(
    output: Output,
    *,
    repository: Repository,
    name: str,
    from_version: int,
    to_version: int | None,
    keys: str | None,
    columns: str | None,
    is_net: bool,
) -> None:
    """List the rows that commits inserted, deleted and updated.

    FROM_VERSION is the version before the first change, TO_VERSION the one after the last, by default
    the current one. Rows that were only rewritten are not listed. The last columns are _change
    (insert, delete, update_before, update_after), _version and _committed_at.
    """
    found = repository.open(name).changes(
        from_version,
        to_version,
        on=None if keys is None else split_names(keys),
        columns=None if columns is None else split_names(columns),
        net=is_net,
    )
    rows = (row for batch in found.record_batches() for row in python_rows(batch))
    output.rows(found.schema.names, rows, null="null")


def _in_words(difference: Diff) -> str:
    return (
        f"Version {difference.from_version} to {difference.to_version}: "
        f"{counted(len(difference.files_added), 'file')} added, {len(difference.files_removed):,} removed."
    )


def _partition_records(difference: Diff) -> list[dict[str, object]]:
    return [
        {
            "partition": partition.path,
            "files_added": partition.files_added,
            "files_removed": partition.files_removed,
            "rows_added": partition.rows_added,
            "rows_removed": partition.rows_removed,
        }
        for partition in difference.partitions
    ]


@verb("rollback", example="lakebed rollback lake/flights --version 3 --dry-run")
@takes_dataset
@click.option("--version", type=int, help="Go back to this version.")
@click.option("--time", callback=parse_time, help="Go back to this time; without zone, UTC.")
@click.option("--batch-id", type=int, help="Go back to the state after the commit of this batch.")
@click.option(
    "--where", metavar="SQL", help="Only this view, which must consist of whole partitions."
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would change.")
@click.option(
    "--hold",
    "is_held",
    is_flag=True,
    help="Keep ingests from reading the raw files of the removed rows again, until `lakebed ingest "
    "--release`.",
)
@click.option(
    "--reason", default="", help="With --hold: the reason.  [default: a note of the rollback]"
)
@base_option
def rollback(
    output: Output,
    *,
    repository: Repository,
    name: str,
    version: int | None,
    time: dt.datetime | None,
    batch_id: int | None,
    where: str | None,
    is_dry_run: bool,
    is_held: bool,
    reason: str,
    base: int | None,
) -> None:
    """Make an older state current again, as a new commit.

    The next ingest reads the raw files of removed rows again, unless --hold is given. --dry-run
    lists the files that would be added and removed.
    """
    if sum(target is not None for target in (version, time, batch_id)) != 1:
        message = "Give one of --version, --time and --batch-id."
        raise click.UsageError(message, click.get_current_context())
    if reason and not is_held:
        message = "Give --reason with --hold."
        raise click.UsageError(message, click.get_current_context())
    dataset = repository.open(name)
    view = None if where is None else dataset.where(where)
    if is_dry_run:
        change = dataset.rollback(
            version=version, time=time, batch_id=batch_id, view=view, dry_run=True
        )
        _show_change(output, change, hold=is_held)
        return
    commit = dataset.rollback(
        version=version,
        time=time,
        batch_id=batch_id,
        view=view,
        hold=is_held,
        reason=reason,
        base=base,
    )
    if commit is None:
        output.note("That is the current state already; no new version was made.")
        if is_held:
            output.note("No raw file is held: use `lakebed ingest --hold` to hold files.")
        record = no_commit_record()
        output.record(record, facts=facts_of(record))
        return
    record = {**commit_record(commit), "notes": list(commit.notes)}
    output.record(record, facts=facts_of(record, hidden=["notes"]))


def _show_change(output: Output, change: Restoration, *, hold: bool) -> None:
    """Show what a rollback would do."""
    output.note(
        f"Would add {counted(len(change.added), 'file')} and remove {len(change.removed):,}, "
        f"in {counted(len(change.partitions), 'partition')}."
    )
    for note in change.notes(hold=hold):
        output.note(note)
    parts = (("added", change.added), ("removed", change.removed))
    output.rows(
        ("operation", "key"),
        (
            {"operation": word, "key": change.base.layout.key(label)}
            for word, labels in parts
            for label in labels
        ),
    )
