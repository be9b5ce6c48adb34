"""Verbs that rewrite data files: compact, promote."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from lakebed.cli.output import Output
from lakebed.cli.shared_options import takes_dataset, verb
from lakebed.common.ages import parse_age
from lakebed.common.shown import counted, human_size
from lakebed.common.sizes import parse_size
from lakebed.errors import InvalidInputError
from lakebed.model.dimensions import DimensionSchema
from lakebed.repository import Repository
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.state import HeadKind, refuse_tree
from lakebed.work.compaction import CompactionReport
from lakebed.work.defaults import TARGET_BYTES

_HEADS: dict[str, HeadFormat | HeadKind] = {
    "json": HeadFormat.JSON,
    "msgpack": HeadFormat.MSGPACK,
    "tree": HeadKind.TREE,
    "document": HeadKind.DOCUMENT,
}
_COMPACT_COLUMNS = (
    "what",
    "name",
    "run",
    "files_before",
    "files_after",
    "bytes_before",
    "bytes_after",
    "row_count",
)
_MOVE_COLUMNS = ("from", "to", "row_count")


def parse_size_option(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> int | None:
    """Read the size of an option; None if it is not given."""
    if value is None:
        return None
    try:
        return parse_size(value)
    except InvalidInputError as exc:
        message = f"{value!r} is not a size; write 128MB, which is 128 * 1024 * 1024 bytes."
        raise click.BadParameter(message, context, parameter) from exc


across_runs_option = click.option(
    "--across-runs-older-than",
    "across_runs",
    callback=lambda _, __, value: None if value is None else parse_age(value),
    metavar="AGE",
    help="Also merge small files of different runs that are this old, such as 30d; these runs can "
    "then not be rerun by name.",
)


@verb("compact", example="lakebed compact lake/flights --target-size 128MB --dry-run")
@takes_dataset
@click.option("--where", metavar="SQL", help="Only partitions that may hold matching rows.")
@click.option(
    "--target-size",
    "target_bytes",
    callback=parse_size_option,
    metavar="SIZE",
    help="Size of the new files; files of at least half this size stay.  [default: 128MB]",
)
@click.option(
    "--sort-by", multiple=True, metavar="FIELD", help="Sort the rows of new files. Repeatable."
)
@click.option(
    "--gather",
    "is_gathering",
    is_flag=True,
    help="Bring the live files of each partition into one directory of their own, for publish.",
)
@across_runs_option
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
@click.option("--metadata", "is_metadata", is_flag=True, help="Only merge the metadata.")
@click.option(
    "--head",
    "head_format",
    type=click.Choice(tuple(_HEADS)),
    help="Only move the head to another format, or make it a tree or a document.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would be done.")
def compact(
    output: Output,
    *,
    repository: Repository,
    name: str,
    where: str | None,
    target_bytes: int | None,
    sort_by: tuple[str, ...],
    is_gathering: bool,
    across_runs: dt.timedelta | None,
    is_spark: bool,
    is_metadata: bool,
    head_format: str | None,
    is_dry_run: bool,
) -> None:
    """Merge small files while others read and write.

    First the data files of each partition are merged, then the metadata: file table and history
    become one object each, without the facts of data files that a cleanup has deleted. Older
    versions keep their files until a cleanup deletes them.
    """
    flags = (is_spark or None, is_gathering or None)
    data_options = (where, target_bytes, sort_by or None, across_runs, *flags)
    if (is_metadata or head_format) and any(option is not None for option in data_options):
        message = "--metadata and --head take no options for data files."
        raise click.UsageError(message, click.get_current_context())
    if head_format is not None:
        _move_head(output, repository, name, _HEADS[head_format], is_dry_run=is_dry_run)
        return
    dataset = repository.open(name)
    rows: list[dict[str, object]] = []
    if not is_metadata:
        with output.progress("Compacting") as on_progress:
            report = dataset.compact(
                None if where is None else dataset.where(where),
                TARGET_BYTES if target_bytes is None else target_bytes,
                sort_by,
                True if is_spark else None,
                gather=is_gathering,
                across_runs_older_than=across_runs,
                dry_run=is_dry_run,
                on_progress=on_progress,
            )
        _note_report(output, report)
        rows += [
            {"what": "partition", "name": partition.path}
            | {column: getattr(partition, column) for column in _COMPACT_COLUMNS[2:]}
            for partition in report.partitions
        ]
    with output.progress("Merging metadata"):
        lists = dataset.compact(metadata=True, dry_run=is_dry_run)
    rows += [
        dict.fromkeys(_COMPACT_COLUMNS)
        | {
            "what": "metadata",
            "name": entry.name,
            "files_before": entry.segments_before,
            "files_after": entry.segments_after,
        }
        for entry in lists
    ]
    output.rows(_COMPACT_COLUMNS, rows)


def _note_report(output: Output, report: CompactionReport) -> None:
    would = "Would make" if report.is_dry_run else "Made"
    output.note(
        f"{would} {report.files_after:,} of {counted(report.files_before, 'file')}, "
        f"{human_size(report.bytes_before)}, in {counted(len(report.commits), 'commit')}."
        if report.partitions
        else "No partition has small files to merge."
        if not report.notes
        else "No partition has small files of one run to merge."
    )
    for note in report.notes:
        output.note(note)
    for path in report.skipped:
        output.note(f"Skipped {path or report.dataset}: other writers kept changing it.")


def _move_head(
    output: Output,
    repository: Repository,
    name: str,
    head_format: HeadFormat | HeadKind,
    *,
    is_dry_run: bool,
) -> None:
    state = read_head(repository.store, name).state
    before: HeadFormat | HeadKind = state.head_format
    if isinstance(head_format, HeadKind):
        before = HeadKind.TREE if state.is_tree else HeadKind.DOCUMENT
    if before is head_format and (before is not HeadFormat.MSGPACK or not state.is_tree):
        output.note(f"The head is {head_format} already; no new version was made.")
        output.rows(_COMPACT_COLUMNS, ())
        return
    if isinstance(head_format, HeadKind):
        repository.open(name).compact(
            head="tree" if head_format is HeadKind.TREE else "document", dry_run=is_dry_run
        )
    elif not is_dry_run:
        hand_over(repository.store, name, head_format)
    else:
        refuse_tree(state, f"head in {head_format}")
    output.note(
        f"{'Would move' if is_dry_run else 'Moved'} the head from {before} to {head_format}."
    )
    moved = {"what": "head", "name": str(head_format), "files_before": 1, "files_after": 1}
    output.rows(_COMPACT_COLUMNS, (dict.fromkeys(_COMPACT_COLUMNS) | moved,))


@verb("promote", example="lakebed promote lake/pings telemetry_schema.json --dry-run")
@takes_dataset
@click.argument("schema", metavar="SCHEMA", type=click.Path(path_type=Path))
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would move.")
@click.option(
    "--reroute",
    "is_rerouted",
    is_flag=True,
    help="Allow any change of the dimensions: values removed, dimensions added, removed, reordered.",
)
def promote(
    output: Output,
    *,
    repository: Repository,
    name: str,
    schema: Path,
    is_spark: bool,
    is_dry_run: bool,
    is_rerouted: bool,
) -> None:
    """Move values from OTHER to partitions of their own.

    SCHEMA is a dimension schema (telemetry_schema.json). The dimensions and the files change in one
    commit; only files with rows that move are rewritten. Without --reroute a dimension can only
    gain values.
    """
    wanted = DimensionSchema.from_json(schema)
    with output.progress("Promoting") as on_progress:
        report = repository.open(name).dimensions.promote(
            wanted,
            True if is_spark else None,
            reroute=is_rerouted,
            dry_run=is_dry_run,
            on_progress=on_progress,
        )
    if not report.dimensions:
        output.note("The dimensions allow these values already; no new version was made.")
    else:
        would = "Would move" if is_dry_run else "Moved"
        output.note(
            f"{would} {counted(report.row_count, 'row')} of {counted(report.rewritten_file_count, 'file')}; "
            f"{report.read_file_count:,} were read."
        )
    output.rows(
        _MOVE_COLUMNS,
        (
            {"from": move.source, "to": move.target, "row_count": move.row_count}
            for move in report.moves
        ),
    )
