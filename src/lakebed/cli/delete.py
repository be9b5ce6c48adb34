"""The verb delete, which deletes the rows of a view."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lakebed.cli.data import base_option, run_option
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record, no_commit_record
from lakebed.cli.shared_options import split_address, storage_option, verb
from lakebed.common.shown import counted, facts_of
from lakebed.model.uri import parse_uri
from lakebed.repository import open_repository, open_uri
from lakebed.spark.task_workers import workers_for
from lakebed.store import Store
from lakebed.view import Base, View
from lakebed.work.deletion import READERS, find_deleted

_COLUMNS = ("partition", "key", "row_count", "is_whole")


@verb("delete", example="lakebed delete lake/flights --where \"carrier = 'UA'\" --dry-run")
@click.argument("target", metavar="DATASET")
@storage_option
@click.option("--where", metavar="SQL", help="Condition on the rows to delete; TRUE for all rows.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would be deleted.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@run_option
@base_option
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
def delete(
    output: Output,
    *,
    target: str,
    storage_options: Mapping[str, str],
    where: str | None,
    is_dry_run: bool,
    is_sure: bool,
    run: str | None,
    base: int | None,
    is_spark: bool,
) -> None:
    """Delete the rows of a view, in one commit.

    DATASET can also be a view: URI, such as 'view:s3://bucket/lake/flights?carrier=UA', which selects
    the rows. Files that also hold other rows are rewritten without the deleted ones. Older versions
    keep everything.

    Exactly the confirmed rows are deleted: if a commit since then has touched a partition of the
    view, nothing is deleted.

    --dry-run lists the files concerned, with the number of rows that would be deleted.
    """
    store, view = open_rows(target, storage_options, where)
    basis: Base | None = base
    if is_dry_run or not is_sure:
        with output.progress("Looking for the rows"):
            chosen = view.plan()
            workers = workers_for(
                True if is_spark else None,
                store,
                threads=READERS,
                purpose="look for rows to delete",
            )
            files = find_deleted(store, chosen, workers)
        row_count = sum(file.row_count for file in files)
        total = (
            f"{counted(row_count, 'row')} in {counted(len(files), 'file')} of "
            f"{counted(len({file.partition for file in files}), 'partition')}"
        )
        if is_dry_run:
            output.note(f"Would delete {total}.")
            output.rows(
                _COLUMNS, ({name: getattr(file, name) for name in _COLUMNS} for file in files)
            )
            return
        if files:
            click.confirm(f"Delete {total}?", abort=True, err=True)
        basis = chosen if base is None else base
    with output.progress("Deleting"):
        commit = view.delete(run=run, base=basis, spark=True if is_spark else None)
    if commit is None:
        output.note("No row matches; no new version was made.")
        record = no_commit_record()
    else:
        record = commit_record(commit)
    output.record(record, facts=facts_of(record))


def open_rows(
    target: str, storage_options: Mapping[str, str], where: str | None
) -> tuple[Store, View]:
    """Return the view of a view: URI, or of the rows of a dataset that meet a condition."""
    if target.startswith("view:"):
        if where is not None:
            message = "A view: URI already selects the rows; leave --where out."
            raise click.UsageError(message, click.get_current_context())
        repository = open_repository(parse_uri(target).location, storage_options=storage_options)
        view = open_uri(target, storage_options=storage_options)
        assert isinstance(view, View)  # a view: URI names a view
        return repository.store, view
    if where is None:
        message = "Give --where to select the rows; TRUE for all rows."
        raise click.UsageError(message, click.get_current_context())
    location, name = split_address(target)
    repository = open_repository(location, storage_options=storage_options)
    return repository.store, repository.open(name).where(where)
