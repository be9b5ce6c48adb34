"""The verbs publish, unpublish and adopt: datasets and tables of a Hive metastore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from lakebed.cli.options import takes_dataset, takes_metastore, verb
from lakebed.cli.output import Output
from lakebed.cli.records import dataset_facts, dataset_record
from lakebed.hive.adoption import Adoption
from lakebed.hive.publication import Publication
from lakebed.hive.table import MODES
from lakebed.repository import Repository

_DRIFT_EXIT_CODE = 1
_PARTITION_LISTS = ("added", "changed", "dropped")


@verb(
    "publish",
    example="lakebed publish lake/flights --table lake.flights --metastore thrift://hive:9083",
)
@takes_dataset
@takes_metastore
@click.option("--table", required=True, metavar="DB.TABLE", help="What to call it there.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="A partition of the table is one of the dataset, or a batch.  [default: partitions]",
)
@click.option("--root", metavar="URL", help="The repository as readers of the table spell it.")
@click.option(
    "--check", "is_check", is_flag=True, help="Compare all, change nothing; 1 if it drifts."
)
@click.option("--repair", "is_repair", is_flag=True, help="Compare all, and mend the table.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say what would change.")
def publish(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str,
    mode: Any,
    root: str | None,
    is_check: bool,
    is_repair: bool,
    is_dry_run: bool,
) -> None:
    """Bring a Hive table into step with a dataset.

    The table is created if it is not there. Later only what commits have touched since is
    changed: partitions are added, pointed to their new batch, or dropped. No file moves.
    """
    if is_check and is_repair:
        message = "Give only one of --check and --repair."
        raise click.UsageError(message, click.get_current_context())
    with output.progress("Publishing"):
        done = repository.open(name).publish(
            metastore,
            table=table,
            mode=mode,
            root=root,
            check=is_check,
            repair=is_repair,
            dry_run=is_dry_run,
        )
    record = _record(done)
    facts = {key.replace("_", " "): value for key, value in record.items()}
    output.record(record, facts=facts)
    if not done.is_applied and not done.is_in_step:
        output.note("The table is not in step." if is_check else "Nothing was changed.")
    if is_check and not done.is_in_step:
        click.get_current_context().exit(_DRIFT_EXIT_CODE)


def _record(done: Publication) -> dict[str, object]:
    return {
        "table": done.table,
        "version": done.version,
        "mode": done.mode,
        "is_applied": done.is_applied,
        "is_in_step": done.is_in_step,
        "was_in_step": done.was_in_step,
        "created": done.created,
        "schema_changes": list(done.schema_changes),
        **{name: list(getattr(done, name)) for name in _PARTITION_LISTS},
        "unchanged": done.unchanged,
        "damaged": list(done.damaged),
        "calls": done.calls,
        "seconds": round(done.seconds, 3),
    }


@verb("unpublish", example="lakebed unpublish lake/flights --table lake.flights --warehouse hive")
@takes_dataset
@takes_metastore
@click.option("--table", required=True, metavar="DB.TABLE", help="Which one.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say whether there is one.")
def unpublish(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str,
    is_dry_run: bool,
) -> None:
    """Drop the Hive table of a dataset; the dataset and its files stay."""
    is_there = repository.open(name).unpublish(metastore, table=table, dry_run=is_dry_run)
    output.record(
        {"table": table, "was_there": is_there, "is_dropped": is_there and not is_dry_run}
    )


@verb("adopt", example='lakebed adopt warehouse/flights --partition-by "dt date, carrier"')
@takes_dataset
@takes_metastore
@click.option("--table", metavar="DB.TABLE", help="A Hive table whose partitions lie there.")
@click.option("--partition-by", default="", metavar="FIELDS", help='As in "dt date, carrier".')
@click.option(
    "--current",
    type=click.Choice(["newest", "all"]),
    default="newest",
    show_default=True,
    help="Which batches of a partition are current.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would be adopted.")
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
def adopt(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str | None,
    partition_by: str,
    current: Any,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Make a dataset of Parquet files where they lie.

    The files are in LOCATION/NAME, as those of a Hive table are, and stay there. Their footers are
    read and must be of one schema. Where a partition has several directories batch_id=…, the newest
    is current and the older ones become its history. Then you are asked, unless --yes is given.

    The result of --dry-run is every file with what it is taken for, and why.
    """
    with output.progress("Reading footers"):
        adoption = repository.find_adoption(
            name, table, partition_by=partition_by, metastore=metastore, current=current
        )
    output.note(f"Would adopt: {adoption}" if is_dry_run else str(adoption))
    if is_dry_run:
        output.rows(_ADOPTED_COLUMNS, _adopted_records(adoption))
        return
    if not is_sure and any(batch.taken_for != "current" for batch in adoption.batches):
        click.confirm("Adopt them like this?", abort=True, err=True)
    dataset = repository.adopt(name, adoption)
    record = dataset_record(dataset)
    output.record(record, facts=dataset_facts(dataset, record))


_ADOPTED_COLUMNS = ("key", "size_bytes", "row_count", "batch_id", "taken_for", "reason")


def _adopted_records(adoption: Adoption) -> Iterator[dict[str, object]]:
    counts = dict(
        zip(
            (file.key for file in adoption.files),
            adoption.facts.column("row_count").to_pylist(),
            strict=True,
        )
    )
    for batch in adoption.batches:
        for file in batch.files:
            yield {
                "key": file.key,
                "size_bytes": file.size_bytes,
                "row_count": counts.get(file.key),
                "batch_id": adoption.batch_id if file.batch_id is None else file.batch_id,
                "taken_for": batch.taken_for,
                "reason": batch.reason,
            }
