"""The verb adopt, which makes datasets of other tools' files and of tables in other formats."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from lakebed.cli.output import Output
from lakebed.cli.records import dataset_facts, dataset_record
from lakebed.cli.shared_options import takes_dataset, takes_metastore, verb
from lakebed.model.keys import BATCH_ID
from lakebed.repository import Repository
from lakebed.work.adoption import Adoption

_NEWEST = "newest"  # metadata of an Iceberg table


@verb("adopt", example='lakebed adopt warehouse/flights --partition-by "dt date, carrier"')
@takes_dataset
@takes_metastore
@click.option(
    "--table", metavar="DB.TABLE", help="A Hive table whose partitions are in LOCATION/NAME."
)
@click.option(
    "--partition-by",
    default="",
    metavar="FIELDS",
    help='Partition fields with types, such as "dt date, carrier".',
)
@click.option(
    "--current",
    type=click.Choice(["newest", "all"]),
    default="newest",
    show_default=True,
    help="Which batches of a partition are current.",
)
@click.option(
    "--batch-level",
    default=BATCH_ID,
    show_default=True,
    metavar="NAME",
    help="Name of the directory level that holds the batch.",
)
@click.option(
    "--telemetry",
    type=click.Path(path_type=Path),
    metavar="SCHEMA",
    help="A telemetry tree of submissions, with the dimensions of this file.",
)
@click.option("--kite", "is_kite", is_flag=True, help="A Kite dataset, read by its .metadata.")
@click.option("--delta", "is_delta", is_flag=True, help="The live files of a Delta table.")
@click.option(
    "--iceberg",
    metavar="METADATA",
    is_flag=False,
    flag_value=_NEWEST,
    help="The live files of an Iceberg table, by this metadata file, or by the newest.",
)
@click.option(
    "--kartothek",
    "is_kartothek",
    is_flag=True,
    help="A dataset of Kartothek or plateau, by its head.",
)
@click.option(
    "--history",
    "with_history",
    is_flag=True,
    help="With --delta or --iceberg: its older versions too, as far as their files exist.",
)
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
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
    batch_level: str,
    telemetry: Path | None,
    is_kite: bool,
    is_delta: bool,
    iceberg: str | None,
    is_kartothek: bool,
    with_history: bool,
    is_spark: bool,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Make a dataset of files without moving them.

    The files are in LOCATION/NAME, as those of a Hive table are, and stay there. Their footers are
    read and must have one schema. If a partition has several batch_id=… directories, the newest is
    current and the older ones become its history; the command then asks for confirmation, unless
    --yes is given. A Delta or Iceberg table is refused without --delta or --iceberg, which adopt its
    live files, and a dataset of Kartothek without --kartothek.

    --dry-run lists every file with its role and the reason.
    """
    with output.progress("Reading files") as on_progress:
        adoption = repository.adopt(
            name,
            table,
            partition_by=partition_by,
            metastore=metastore,
            current=current,
            batch_level=batch_level,
            telemetry=telemetry,
            kite=is_kite,
            delta=is_delta,
            iceberg=iceberg == _NEWEST or iceberg or False,
            kartothek=is_kartothek,
            history=with_history,
            spark=True if is_spark else None,
            on_progress=on_progress,
            dry_run=True,
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
