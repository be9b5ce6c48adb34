"""The verb update, which sets fields of the rows of a view."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from lakebed.cli.data import base_option, run_option, show_commit
from lakebed.cli.delete import open_rows
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record, no_commit_record
from lakebed.cli.shared_options import dry_run_option, storage_option, verb
from lakebed.common.shown import facts_of


@verb(
    "update",
    example='lakebed update lake/flights --set "carrier=upper(carrier)" --where "flight = 1545"',
)
@click.argument("target", metavar="DATASET")
@storage_option
@click.option(
    "--set",
    "values",
    multiple=True,
    required=True,
    metavar="FIELD=SQL",
    help='Field and its new value, such as "delay=delay + 1" or "carrier=\'UA\'". Repeatable.',
)
@click.option("--where", metavar="SQL", help="Condition on the rows to update; TRUE for all rows.")
@dry_run_option("Only check, and show the commit that would set the fields.")
@run_option
@base_option
def update(
    output: Output,
    *,
    target: str,
    storage_options: Mapping[str, str],
    values: Sequence[str],
    where: str | None,
    is_dry_run: bool,
    run: str | None,
    base: int | None,
) -> None:
    """Set fields of the rows of a view, in one commit.

    DATASET can also be a view: URI, such as 'view:s3://bucket/lake/flights?carrier=UA', which selects
    the rows. A value is SQL over the columns of the row as it was before. If the source of a
    partition changes, the row moves. Older versions keep the old values.

    To change the schema, see `lakebed schema`.
    """
    assigned = _assigned(values)
    _, view = open_rows(target, storage_options, where)
    with output.progress("Reading" if is_dry_run else "Updating"):
        commit = view.update_rows(assigned, run=run, base=base, dry_run=is_dry_run)
    if commit is not None and is_dry_run:
        show_commit(output, commit)
        return
    if commit is None:
        output.note(f"No row matches; no new version {'would be' if is_dry_run else 'was'} made.")
        record = no_commit_record()
    else:
        record = commit_record(commit)
    output.record(record, facts=facts_of(record))


def _assigned(values: Sequence[str]) -> dict[str, str]:
    assigned: dict[str, str] = {}
    for value in values:
        name, sign, text = value.partition("=")
        name = name.strip().strip("`")
        if not (sign and name and text.strip()):
            message = f"--set takes FIELD=SQL, and {value!r} is not that."
            raise click.UsageError(message, click.get_current_context())
        if name in assigned:
            message = f"--set names {name!r} twice."
            raise click.UsageError(message, click.get_current_context())
        assigned[name] = text
    return assigned
