"""The verb merge, which updates, deletes and inserts rows of files by their keys."""

from __future__ import annotations

import datetime as dt

import click
import pyarrow as pa

from lakebed.arrow.reading.rows import read_rows
from lakebed.cli.data import (
    as_files,
    base_option,
    begun_on,
    begun_option,
    run_option,
    schema_in,
    takes_files,
)
from lakebed.cli.inputs import Inputs
from lakebed.cli.output import Output
from lakebed.cli.shared_options import takes_dataset, verb
from lakebed.common.shown import facts_of
from lakebed.dataset import Dataset
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.merging import IfMatched, IfMissing, IfNotMatched
from lakebed.model.names import split_names
from lakebed.model.schema import Schema
from lakebed.repository import Repository
from lakebed.view import View
from lakebed.work.merge import MergeReport


@verb("merge", example="lakebed merge lake/flights changes.csv --on flight,time_hour --dry-run")
@takes_dataset
@takes_files(required=True)
@click.option("--on", "keys", required=True, metavar="A,B", help="Key fields, by which rows match.")
@click.option(
    "--where", metavar="SQL", help="Only rows of this view can match, be missing or be inserted."
)
@click.option(
    "--matched",
    type=click.Choice(("update", "delete", "ignore")),
    default="update",
    show_default=True,
    help="Action for rows of the dataset that match.",
)
@click.option("--update", metavar="A,B", help="Columns to update.  [default: all in the files]")
@click.option(
    "--update-where",
    metavar="SQL",
    help="Update only where this holds, such as 'source.seen > target.seen'.",
)
@click.option(
    "--delete-where",
    metavar="SQL",
    help="Delete matching rows where this holds, such as \"source.op = 'D'\".",
)
@click.option(
    "--not-matched",
    type=click.Choice(("insert", "ignore")),
    default="insert",
    show_default=True,
    help="Action for rows of the files that match no row.",
)
@click.option(
    "--insert-where",
    metavar="SQL",
    help="Insert only where this holds, such as \"source.op != 'D'\".",
)
@click.option(
    "--missing",
    type=click.Choice(("keep", "delete")),
    default="keep",
    show_default=True,
    help="Action for rows of the dataset that no row of the files matches.",
)
@click.option(
    "--missing-where",
    metavar="SQL",
    help="Delete missing rows only where this holds, such as \"target.dt = '2013-01-01'\".",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only show what would change.")
@run_option
@base_option
@begun_option
def merge(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs,
    keys: str,
    where: str | None,
    matched: IfMatched,
    update: str | None,
    update_where: str | None,
    delete_where: str | None,
    not_matched: IfNotMatched,
    insert_where: str | None,
    missing: IfMissing,
    missing_where: str | None,
    is_dry_run: bool,
    run: str | None,
    base: int | None,
    begun_at: dt.datetime | None,
) -> None:
    """Update, delete and insert rows by keys, in one commit.

    FILES are as for append. Each key can occur once. Fields that the files lack keep their values in
    updated rows; columns that the dataset lacks must occur in a condition, such as
    "source.op = 'D'".
    """
    dataset = begun_on(repository.open(name), begun_at)
    view: View = dataset if where is None else dataset.where(where)
    with as_files(inputs) as files:
        rows = _rows_of(files, dataset)
        with output.progress(f"Merging {files.label}"):
            report = view.merge(
                rows,
                split_names(keys),
                matched=matched,
                update=None if update is None else split_names(update),
                update_where=update_where,
                delete_where=delete_where,
                not_matched=not_matched,
                insert_where=insert_where,
                missing=missing,
                missing_where=missing_where,
                dry_run=is_dry_run,
                run=run,
                base=base,
            )
    _show(output, report)


def _rows_of(inputs: Inputs, dataset: Dataset) -> pa.RecordBatchReader:
    """Read the rows of files with all their columns; known fields get the dataset's types."""
    known = dataset.schema
    given = schema_in(inputs)
    fields = [known.find(field.name) or field for field in given]
    descriptor = DatasetDescriptor(schema=Schema(fields=tuple(fields), name=known.name))
    return read_rows(inputs.files, inputs.format, descriptor, inputs.csv, inputs.json)


def _show(output: Output, report: MergeReport) -> None:
    counts = (
        f"{report.inserted_row_count:,} rows inserted, {report.updated_row_count:,} updated, "
        f"{report.deleted_row_count:,} deleted"
    )
    output.note(
        f"{'Would merge' if report.is_dry_run else 'Merged'}: {counts}. These rows are in "
        f"{report.rewritten_file_count:,} of {report.read_file_count:,} files read."
    )
    if report.commit is None and not report.is_dry_run:
        output.note("Nothing has changed; no new version was made.")
    commit = report.commit
    record = {
        "version": None if commit is None else commit.version,
        "operation": None if commit is None else commit.operation,
        "committed_at": None if commit is None else commit.committed_at,
        "batch_id": None if commit is None else commit.batch_id,
        "run": None if commit is None else commit.run,
        "inserted_row_count": report.inserted_row_count,
        "updated_row_count": report.updated_row_count,
        "deleted_row_count": report.deleted_row_count,
        "rewritten_row_count": report.rewritten_row_count,
        "read_file_count": report.read_file_count,
        "rewritten_file_count": report.rewritten_file_count,
        "added_file_count": report.added_file_count,
        "commit_id": None if commit is None else commit.commit_id,
    }
    output.record(record, facts=facts_of(record, hidden=["commit_id"]))
