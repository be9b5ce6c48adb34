"""The verbs publish and unpublish, for tables of other engines over the same files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from lakebed.cli.group import VerbGroup
from lakebed.cli.output import Output, OutputFormat
from lakebed.cli.records import automatic_publications, published_record
from lakebed.cli.shared_options import (
    Verb,
    dry_run_option,
    require_published,
    takes_dataset,
    takes_metastore,
    verb,
)
from lakebed.common.shown import counted, facts_of
from lakebed.errors import NotPublishedError
from lakebed.model.publishing import MODES
from lakebed.repository import Repository
from lakebed.tables.outcome import Publication

_DRIFT_EXIT_CODE = 1
_PARTITION_LISTS = ("added", "changed", "dropped")
_OF_HIVE = ("mode", *_PARTITION_LISTS, "calls")
_OF_FILES = ("table_version", "added_count", "removed_count", "foreign")
# Former options of `lakebed publish DATASET`, and the verb that has them now.
_FORMERLY = {"--delta": "delta", "--iceberg": "iceberg", "--catalog": "iceberg", "--table": "hive"}


class _FormatGroup(VerbGroup):
    """Verbs by format; the former spelling, with the dataset first, is refused by name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words before the verb; refuse a dataset in the position of the format."""
        words = [word for word in args if not word.startswith("-")]
        is_help = not args or "--help" in args or "-h" in args
        if not is_help and not {*words[:1], *words[:2]} & {*self.commands, "help"}:
            known = (verb for option, verb in _FORMERLY.items() if option in _names(args))
            target = next(known, "all" if "all" in self.commands else "FORMAT")
            dataset = next((word for word in words if "/" in word), "DATASET")
            ctx.fail(
                f"The format comes first: {ctx.command_path} {target} {dataset}. "
                f"Formats are {', '.join(self.commands)}."
            )
        return super().parse_args(ctx, args)


def _names(args: list[str]) -> set[str]:
    return {word.partition("=")[0] for word in args}


@click.group(
    "publish", cls=_FormatGroup, epilog="\b\nExample:\n  lakebed publish delta lake/flights"
)
def publish() -> None:
    """Create or update a published Hive, Delta or Iceberg table.

    A dataset can also be published to Kartothek, as a dataset of another name.

    Only partitions that commits have touched since the last publication are changed. Files are
    neither moved nor copied.
    """


@click.group(
    "unpublish", cls=_FormatGroup, epilog="\b\nExample:\n  lakebed unpublish delta lake/flights"
)
def unpublish() -> None:
    """Drop a published table; dataset and files stay."""


def _takes_upkeep(function: Verb) -> Verb:
    """Give the function `flags`: the arguments that publications to all formats share."""

    def run(
        output: Output, *, is_check: bool, is_repair: bool, is_dry_run: bool, **arguments: Any
    ) -> None:
        if is_check and is_repair:
            raise _misused("Give only one of --check and --repair.")
        flags = {"check": is_check, "repair": is_repair, "dry_run": is_dry_run}
        function(output, flags=flags, **arguments)

    run.__doc__ = function.__doc__
    for option in (
        click.option("--dry-run", "is_dry_run", is_flag=True, help="Only show the changes."),
        click.option(
            "--repair", "is_repair", is_flag=True, help="Compare everything, and fix the table."
        ),
        click.option(
            "--check",
            "is_check",
            is_flag=True,
            help="Compare everything and change nothing; exit code 1 if the table differs.",
        ),
    ):
        run = option(run)
    return run


_takes_root = click.option(
    "--root", metavar="URL", help="URL of the repository for readers of the table."
)
_takes_catalog = click.option(
    "--catalog", metavar="NAME", help="Catalog of the table, as named in pyiceberg's configuration."
)


@verb("all", example="lakebed publish all lake/flights")
@takes_dataset
@takes_metastore
@dry_run_option("Only check that each table can be published to.")
def publish_all(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    is_dry_run: bool,
) -> None:
    """Publish to all tables named in the properties of the dataset, as a commit does."""
    dataset = repository.open(name)
    with output.progress("Publishing"):
        failures = dataset.publish(None, metastore, dry_run=is_dry_run)
    tables = automatic_publications(dataset)
    if is_dry_run:
        behind = sum(not table.is_in_step for table in tables)
        output.note(
            f"Would publish version {dataset.version} to {counted(behind, 'table')}; "
            f"{len(tables) - behind:,} in step."
        )
        for failure in failures:
            output.note(f"Cannot publish to {failure}")
        output.rows(("kind", "table", "version", "is_in_step"), map(published_record, tables))
        if failures:
            raise click.exceptions.Exit(NotPublishedError.exit_code)
        return
    output.rows(("kind", "table", "version", "is_in_step"), map(published_record, tables))
    require_published(failures)


@verb("delta", example="lakebed publish delta lake/flights --check")
@takes_dataset
@_takes_upkeep
def publish_delta(
    output: Output, *, repository: Repository, name: str, flags: Mapping[str, Any]
) -> None:
    """Create or update the Delta table in the directory of the dataset."""
    dataset = repository.open(name)
    _publish(output, flags, lambda **given: dataset.publish("delta", **given))


@verb("iceberg", example="lakebed publish iceberg lake/flights --catalog prod --table web.flights")
@takes_dataset
@_takes_catalog
@click.option("--table", metavar="DB.TABLE", help="Name of the table in the catalog.")
@_takes_root
@click.option(
    "--hide-batch-id/--show-batch-id",
    "hide_batch_id",
    default=None,
    help="Leave out the column batch_id; only for a new table.",
)
@_takes_upkeep
def publish_iceberg(
    output: Output,
    *,
    repository: Repository,
    name: str,
    catalog: str | None,
    table: str | None,
    root: str | None,
    hide_batch_id: bool | None,
    flags: Mapping[str, Any],
) -> None:
    """Create or update an Iceberg table, standalone or in a catalog."""
    dataset = repository.open(name)
    _publish(
        output,
        flags,
        lambda **given: dataset.publish(
            "iceberg", catalog=catalog, table=table, root=root, hide_batch_id=hide_batch_id, **given
        ),
    )


@verb("kartothek", example="lakebed publish kartothek lake/flights")
@takes_dataset
@_takes_upkeep
def publish_kartothek(
    output: Output, *, repository: Repository, name: str, flags: Mapping[str, Any]
) -> None:
    """Create or update the Kartothek dataset NAME-kartothek, which plateau reads."""
    dataset = repository.open(name)
    _publish(output, flags, lambda **given: dataset.publish("kartothek", **given))


@verb(
    "hive",
    example="lakebed publish hive lake/flights --table lake.flights --metastore thrift://hive:9083",
)
@takes_dataset
@takes_metastore
@click.option(
    "--table", metavar="DB.TABLE", required=True, help="Name of the table in the metastore."
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    help="Map each partition of the table to a partition of the dataset, or to a batch.  [default: "
    "partitions]",
)
@_takes_root
@click.option(
    "--print-sql",
    "is_printed",
    is_flag=True,
    help="Print the statements that change the table, to run them elsewhere; needs no metastore.",
)
@click.option(
    "--since",
    type=int,
    metavar="VERSION",
    help="With --print-sql: version that the table shows; only later changes are printed.",
)
@_takes_upkeep
def publish_hive(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str,
    mode: Any,
    root: str | None,
    is_printed: bool,
    since: int | None,
    flags: Mapping[str, Any],
) -> None:
    """Create or update a table of a Hive metastore.

    The result counts the partitions that were added, changed and dropped; -v and -o json name the
    partitions.
    """
    if since is not None and not is_printed:
        raise _misused("Give --since with --print-sql.")
    dataset = repository.open(name)
    if is_printed:
        if metastore or mode or any(flags.values()):
            raise _misused("--print-sql can be combined only with --table, --since and --root.")
        statements = dataset.publish("hive", table=table, since=since, root=root, print_sql=True)
        # People, too, get bare statements, which a shell can run.
        shown = replace(output, format=OutputFormat.PLAIN) if output.is_table else output
        shown.rows(("statement",), ({"statement": f"{text};"} for text in statements))
        return
    _publish(
        output,
        flags,
        lambda **given: dataset.publish(
            "hive", metastore, table=table, mode=mode, root=root, **given
        ),
    )


def _publish(
    output: Output,
    flags: Mapping[str, Any],
    run_publication: Callable[..., Publication],
) -> None:
    with output.progress("Publishing") as on_progress:
        done = run_publication(**flags, on_progress=on_progress)
    record = _record(done)
    # Text output shows the facts of the format: partitions of Hive, files and versions of others.
    hidden = _OF_FILES if done.kind == "hive" else _OF_HIVE
    facts = facts_of(record if output.is_verbose else _in_short(record), hidden=hidden)
    output.record(record, facts=facts)
    if not done.is_applied and not done.is_in_step:
        output.note("The table is not in step." if flags["check"] else "Nothing was changed.")
    if flags["check"] and not done.is_in_step:
        click.get_current_context().exit(_DRIFT_EXIT_CODE)


def _misused(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


def _record(done: Publication) -> dict[str, object]:
    return {
        "table": done.table,
        "kind": done.kind,
        "version": done.version,
        "table_version": done.table_version,
        "mode": done.mode,
        "is_applied": done.is_applied,
        "is_in_step": done.is_in_step,
        "was_in_step": done.was_in_step,
        "created": done.created,
        "schema_changes": list(done.schema_changes),
        **{name: list(getattr(done, name)) for name in _PARTITION_LISTS},
        "added_count": done.added_count,
        "removed_count": done.removed_count,
        "unchanged_count": done.unchanged_count,
        "foreign": list(done.foreign),
        "damaged": list(done.damaged),
        "calls": done.calls,
        "seconds": round(done.seconds, 3),
    }


def _in_short(record: dict[str, object]) -> dict[str, object]:
    """Return the record of a publication with counts of partitions instead of their names."""

    def counted_or_same(name: str, value: object) -> object:
        return len(value) if name in _PARTITION_LISTS and isinstance(value, list) else value

    return {name: counted_or_same(name, value) for name, value in record.items()}


_takes_dry_run = click.option(
    "--dry-run", "is_dry_run", is_flag=True, help="Only check whether the table exists."
)


@verb("delta", example="lakebed unpublish delta lake/flights")
@takes_dataset
@_takes_dry_run
def unpublish_delta(output: Output, *, repository: Repository, name: str, is_dry_run: bool) -> None:
    """Delete the log of the Delta table; dataset and files stay."""
    dataset = repository.open(name)
    is_there = dataset.unpublish("delta", dry_run=is_dry_run)
    _show_dropped(output, None, is_there=is_there, is_dry_run=is_dry_run)


@verb("iceberg", example="lakebed unpublish iceberg lake/flights")
@takes_dataset
@_takes_catalog
@click.option("--table", metavar="DB.TABLE", help="Name of the table in the catalog.")
@_takes_dry_run
def unpublish_iceberg(
    output: Output,
    *,
    repository: Repository,
    name: str,
    catalog: str | None,
    table: str | None,
    is_dry_run: bool,
) -> None:
    """Drop the Iceberg table and its metadata; dataset and files stay."""
    dataset = repository.open(name)
    is_there = dataset.unpublish("iceberg", catalog=catalog, table=table, dry_run=is_dry_run)
    _show_dropped(output, table, is_there=is_there, is_dry_run=is_dry_run)


@verb("kartothek", example="lakebed unpublish kartothek lake/flights")
@takes_dataset
@_takes_dry_run
def unpublish_kartothek(
    output: Output, *, repository: Repository, name: str, is_dry_run: bool
) -> None:
    """Delete the head of the Kartothek dataset; dataset and files stay."""
    dataset = repository.open(name)
    is_there = dataset.unpublish("kartothek", dry_run=is_dry_run)
    _show_dropped(output, None, is_there=is_there, is_dry_run=is_dry_run)


@verb("hive", example="lakebed unpublish hive lake/flights --table lake.flights --warehouse hive")
@takes_dataset
@takes_metastore
@click.option(
    "--table", metavar="DB.TABLE", required=True, help="Name of the table in the metastore."
)
@_takes_dry_run
def unpublish_hive(
    output: Output,
    *,
    repository: Repository,
    name: str,
    metastore: str | None,
    table: str,
    is_dry_run: bool,
) -> None:
    """Drop the table of a Hive metastore; dataset and files stay."""
    dataset = repository.open(name)
    is_there = dataset.unpublish("hive", metastore, table=table, dry_run=is_dry_run)
    _show_dropped(output, table, is_there=is_there, is_dry_run=is_dry_run)


def _show_dropped(output: Output, table: str | None, *, is_there: bool, is_dry_run: bool) -> None:
    output.record(
        {"table": table, "was_there": is_there, "is_dropped": is_there and not is_dry_run}
    )


for _verb in (publish_all, publish_delta, publish_iceberg, publish_hive, publish_kartothek):
    publish.add_command(_verb)
for _verb in (unpublish_delta, unpublish_iceberg, unpublish_hive, unpublish_kartothek):
    unpublish.add_command(_verb)
