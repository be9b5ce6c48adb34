"""The verb erase, which removes rows from every version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from lakebed.archive import open_archive
from lakebed.cli.output import Output
from lakebed.cli.shared_options import (
    age_option,
    dry_run_option,
    split_address,
    storage_option,
    verb,
)
from lakebed.common.shown import counted
from lakebed.model.layout import Folder
from lakebed.repository import open_repository
from lakebed.work.certificate import EXIT_CODE, Erasure

_COLUMNS = ("place", "searched", "row_count", "rewritten", "removed", "left")


@verb(
    "erase",
    example="lakebed erase lake/visits --where \"user = 'ada'\" --reason 'request 17' --dry-run",
)
@click.argument("target", metavar="DATASET")
@storage_option
@click.option("--where", metavar="SQL", help="Condition on the rows to erase.")
@click.option(
    "--keys",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A Parquet or CSV file of key columns: rows that have the values of one of its rows.",
)
@click.option(
    "--reason",
    metavar="TEXT",
    required=True,
    help="Reason for the certificate, without the erased values.",
)
@age_option(
    "--grace",
    "1h",
    "Keep old files this long for running readers: a number and s, m, h, d or w.",
)
@click.option(
    "--include-protected",
    is_flag=True,
    help="Erase rows from protected versions and batches, too.",
)
@click.option(
    "--archive",
    "archive_storage",
    metavar="STORAGE",
    help="The archive of the raw files, which are searched and rewritten.",
)
@click.option("--archive-index", metavar="URL", help="Its index, if it is not inside.")
@click.option(
    "--no-raw-files", is_flag=True, help="Leave raw files as they are, and do not name them."
)
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
@dry_run_option("Only count what would be erased.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.pass_context
def erase(
    context: click.Context,
    output: Output,
    *,
    target: str,
    storage_options: Mapping[str, str],
    where: str | None,
    keys: Path | None,
    reason: str,
    grace: dt.timedelta,
    include_protected: bool,
    archive_storage: str | None,
    archive_index: str | None,
    no_raw_files: bool,
    is_spark: bool,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Remove rows from all versions, for good.

    The rows leave the current version, all older versions, staged batches, the quarantine,
    statistics, indices, published Delta and Iceberg tables, and the raw files that they came from.
    Older versions stay, with all other rows. The result counts the rows and files of each place; the
    certificate is stored under DATASET/erasures.

    The exit code is 11 if something is left. The messages name it: for example old files that
    running readers may still use. The same call continues, also after it was killed.
    """
    if (where is None) == (keys is None):
        message = "Give --where or --keys to select the rows."
        raise click.UsageError(message, context)
    location, name = split_address(target)
    dataset = open_repository(location, storage_options=storage_options).open(name)
    archive = None
    if archive_storage is not None:
        archive = context.with_resource(
            open_archive(archive_storage, index=archive_index, storage_options=storage_options)
        )
    chosen: Any = where if keys is None else _read_keys(keys)

    def call(*, dry_run: bool) -> Erasure:
        return dataset.erase(
            chosen,
            reason=reason,
            grace=grace,
            include_protected=include_protected,
            archive=archive,
            raw_files=not no_raw_files,
            dry_run=dry_run,
            spark=True if is_spark else None,
        )

    if is_dry_run or not is_sure:
        with output.progress("Looking for the rows"):
            planned = call(dry_run=True)
        if is_dry_run:
            output.note(f"Would erase {_total(planned)}.")
            _show(output, planned)
            return
        click.confirm(
            f"Erase {_total(planned)}, for good? Nothing can bring them back.",
            abort=True,
            err=True,
        )
    with output.progress("Erasing"):
        done = call(dry_run=False)
    output.note(
        f"Erased {_total(done)}. Certificate: {Folder.ERASURES.of(name, done.erasure_id)}.json"
    )
    _show(output, done)
    if not done.is_finished:
        context.exit(EXIT_CODE)


def _read_keys(path: Path) -> Any:
    import pyarrow.csv
    import pyarrow.parquet

    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    return pyarrow.csv.read_csv(path)


def _total(erasure: Erasure) -> str:
    rows = sum(place.row_count for place in erasure.places)
    files = sum(place.rewritten + place.removed for place in erasure.places if place.row_count)
    return f"{counted(rows, 'row')} in {counted(files, 'file')}"


def _show(output: Output, erasure: Erasure) -> None:
    for one in erasure.left:
        until = "" if one.until is None else f" Until {one.until.isoformat(timespec='seconds')}."
        output.note(f"Left: {one.place}: {one.what} {one.remedy}{until}")
    rows = [
        {**{name: getattr(place, name) for name in _COLUMNS[:-1]}, "left": None}
        for place in erasure.places
    ]
    rows += [
        {**dict.fromkeys(_COLUMNS, 0), "place": one.place, "left": f"{one.what} {one.remedy}"}
        for one in erasure.left
    ]
    output.rows(_COLUMNS, rows)
