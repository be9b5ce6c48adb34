"""The verbs publish, unpublish and adopt: datasets and tables of other formats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lakebed.cli.options import require_published, takes_dataset, takes_metastore, verb
from lakebed.cli.output import Output, OutputFormat
from lakebed.cli.records import (
    automatic_publications,
    dataset_facts,
    dataset_record,
    published_record,
)
from lakebed.common.shown import facts_of
from lakebed.dataset import Dataset
from lakebed.model.keys import BATCH_ID
from lakebed.model.publishing import MODES
from lakebed.repository import Repository
from lakebed.tables.hive.to_hive import Publication
from lakebed.tables.outcome import TablePublication
from lakebed.work.adoption import Adoption

_DRIFT_EXIT_CODE = 1
_NEWEST = "newest"  # metadata of an Iceberg table
_PARTITION_LISTS = ("added", "changed", "dropped")


@verb(
    "publish",
    example="lakebed publish lake/flights --table lake.flights --metastore thrift://hive:9083",
)
@takes_dataset
@takes_metastore
@click.option(
    "--table", metavar="DB.TABLE", help="What to call it in the metastore, or in the catalog."
)
@click.option("--delta", "is_delta", is_flag=True, help="As a Delta table, in its own directory.")
@click.option(
    "--iceberg", "is_iceberg", is_flag=True, help="As an Iceberg table, by itself or of a catalog."
)
@click.option("--catalog", metavar="NAME", help="Of the Iceberg table, as pyiceberg knows it.")
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
@click.option(
    "--print-sql",
    "is_printed",
    is_flag=True,
    help="Ask no metastore: print the statements for a Hive table, to be run elsewhere.",
)
@click.option(
    "--since",
    type=int,
    metavar="VERSION",
    help="With --print-sql: what the table shows, so that only what was touched since is told.",
)
def publish(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str | None,
    is_delta: bool,
    is_iceberg: bool,
    catalog: str | None,
    mode: Any,
    root: str | None,
    is_check: bool,
    is_repair: bool,
    is_dry_run: bool,
    is_printed: bool,
    since: int | None,
) -> None:
    """Bring a Hive, Delta or Iceberg table into step.

    The table is created if it is not there. Later only what commits have touched since is
    changed. No file moves, and none is copied. Without --table, --delta and --iceberg, all tables
    that the properties of the dataset name are brought into step, as by each commit.

    How many partitions were added, changed and dropped is shown; -v and -o json name them.
    """
    if is_check and is_repair:
        raise _misused("Give only one of --check and --repair.")
    if not (table or is_delta or is_iceberg):
        given = (catalog, mode, root, since, is_check, is_repair, is_dry_run, is_printed)
        if any(option not in (None, False) for option in given):
            raise _misused("Give --table for a Hive table, or --delta, or --iceberg.")
        _republish(output, repository.open(name), metastore)
        return
    _check_target(table, is_delta=is_delta, is_iceberg=is_iceberg, catalog=catalog)
    if since is not None and not is_printed:
        raise _misused("--since is for --print-sql.")
    dataset = repository.open(name)
    if is_printed:
        if table is None or metastore or mode or is_check or is_repair or is_dry_run:
            raise _misused("--print-sql goes with --table, --since and --root alone.")
        told = dataset.publish_statements(table=table, since=since, root=root)
        # For a person as for a shell: statements, and nothing around them.
        shown = replace(output, format=OutputFormat.PLAIN) if output.is_table else output
        shown.rows(("statement",), ({"statement": f"{statement};"} for statement in told))
        return
    wish: dict[str, Any] = {"check": is_check, "repair": is_repair, "dry_run": is_dry_run}
    done: Publication | TablePublication
    with output.progress("Publishing") as on_progress:
        wish["on_progress"] = on_progress
        if is_delta:
            _refuse_given(metastore=metastore, mode=mode)
            if root is not None:
                raise _misused(
                    "A Delta table names its files by their paths in it: leave --root out."
                )
            done = dataset.publish_delta(**wish)
        elif is_iceberg:
            _refuse_given(metastore=metastore, mode=mode)
            done = dataset.publish_iceberg(catalog=catalog, table=table, root=root, **wish)
        else:
            assert table is not None  # as was checked
            done = dataset.publish(metastore, table=table, mode=mode, root=root, **wish)
    record = _record(done) if isinstance(done, Publication) else _table_record(done)
    output.record(record, facts=facts_of(record if output.is_verbose else _in_short(record)))
    if not done.is_applied and not done.is_in_step:
        output.note("The table is not in step." if is_check else "Nothing was changed.")
    if is_check and not done.is_in_step:
        click.get_current_context().exit(_DRIFT_EXIT_CODE)


def _republish(output: Output, dataset: Dataset, metastore: str | None) -> None:
    with output.progress("Publishing"):
        failures = dataset.republish(metastore)
    output.rows(
        ("kind", "table", "version", "is_in_step"),
        map(published_record, automatic_publications(dataset)),
    )
    require_published(failures)


def _check_target(
    table: str | None, *, is_delta: bool, is_iceberg: bool, catalog: str | None
) -> None:
    if is_delta and is_iceberg:
        raise _misused("Give only one of --delta and --iceberg.")
    if not (table or is_delta or is_iceberg):
        raise _misused("Give --table for a Hive table, or --delta, or --iceberg.")
    if is_delta and table:
        raise _misused("A Delta table has no name: give --delta without --table.")
    if catalog and not is_iceberg:
        raise _misused("--catalog is for --iceberg.")


def _refuse_given(**options: object) -> None:
    for option, value in options.items():
        if value is not None:
            raise _misused(f"--{option} is for a Hive table.")


def _misused(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


def _table_record(done: TablePublication) -> dict[str, object]:
    return {
        "table": done.table,
        "kind": done.kind,
        "version": done.version,
        "table_version": done.table_version,
        "is_applied": done.is_applied,
        "is_in_step": done.is_in_step,
        "was_in_step": done.was_in_step,
        "created": done.created,
        "schema_changes": list(done.schema_changes),
        "added_count": done.added_count,
        "removed_count": done.removed_count,
        "unchanged_count": done.unchanged_count,
        "foreign": list(done.foreign),
        "damaged": list(done.damaged),
        "seconds": round(done.seconds, 3),
    }


def _in_short(record: dict[str, object]) -> dict[str, object]:
    """Return the record of a publication with numbers of partitions instead of their names."""

    def counted_or_same(name: str, value: object) -> object:
        return len(value) if name in _PARTITION_LISTS and isinstance(value, list) else value

    return {name: counted_or_same(name, value) for name, value in record.items()}


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
@click.option("--table", metavar="DB.TABLE", help="Which one.")
@click.option("--delta", "is_delta", is_flag=True, help="The Delta table.")
@click.option("--iceberg", "is_iceberg", is_flag=True, help="The Iceberg table.")
@click.option("--catalog", metavar="NAME", help="Of the Iceberg table, as pyiceberg knows it.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only say whether there is one.")
def unpublish(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str | None,
    is_delta: bool,
    is_iceberg: bool,
    catalog: str | None,
    is_dry_run: bool,
) -> None:
    """Drop a published table; dataset and files stay."""
    _check_target(table, is_delta=is_delta, is_iceberg=is_iceberg, catalog=catalog)
    dataset = repository.open(name)
    if is_delta:
        _refuse_given(metastore=metastore)
        is_there = dataset.unpublish_delta(dry_run=is_dry_run)
    elif is_iceberg:
        _refuse_given(metastore=metastore)
        is_there = dataset.unpublish_iceberg(catalog=catalog, table=table, dry_run=is_dry_run)
    else:
        assert table is not None  # as was checked
        is_there = dataset.unpublish(metastore, table=table, dry_run=is_dry_run)
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
@click.option(
    "--batch-level",
    default=BATCH_ID,
    show_default=True,
    metavar="NAME",
    help="What the directories of batches are called.",
)
@click.option(
    "--telemetry",
    type=click.Path(path_type=Path),
    metavar="SCHEMA",
    help="A telemetry tree of submissions, with the dimensions of this file.",
)
@click.option("--kite", "is_kite", is_flag=True, help="A dataset of Kite, as its .metadata says.")
@click.option("--delta", "is_delta", is_flag=True, help="The live files of a Delta table.")
@click.option(
    "--iceberg",
    metavar="METADATA",
    is_flag=False,
    flag_value=_NEWEST,
    help="The live files of an Iceberg table, by this file of its metadata, or by the newest.",
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
    batch_level: str,
    telemetry: Path | None,
    is_kite: bool,
    is_delta: bool,
    iceberg: str | None,
    is_dry_run: bool,
    is_sure: bool,
) -> None:
    """Make a dataset of files where they lie.

    The files are in LOCATION/NAME, as those of a Hive table are, and stay there. Their footers are
    read and must be of one schema. Where a partition has several directories batch_id=…, the newest
    is current and the older ones become its history. Then you are asked, unless --yes is given.
    A table of Delta or Iceberg is refused without --delta or --iceberg, which take its live files.

    The result of --dry-run is every file with what it is taken for, and why.
    """
    with output.progress("Reading files") as on_progress:
        adoption = repository.find_adoption(
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
            on_progress=on_progress,
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
