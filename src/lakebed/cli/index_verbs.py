"""Verbs on inverted indices: build, drop, show."""

from __future__ import annotations

from collections.abc import Mapping

import click

from lakebed.cli.data import show_commit
from lakebed.cli.group import VerbGroup
from lakebed.cli.output import Output
from lakebed.cli.shared_options import dry_run_option, takes_dataset, verb
from lakebed.common.shown import counted
from lakebed.repository import Repository
from lakebed.work.indexing import InvertedIndex

_COLUMNS = (
    "column",
    "covered_count",
    "file_count",
    "segment_count",
    "size_bytes",
    "value_count",
    "values_per_file",
    "files_per_value",
    "lost",
    "warning",
)


@click.group("index", cls=VerbGroup, epilog="\b\nExample:\n  lakebed index show lake/flights")
def index() -> None:
    """Build, drop and show indices, which find files by values."""


@verb("build", example="lakebed index build lake/flights tailnum")
@takes_dataset
@click.argument("column")
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
@dry_run_option("Only check, and show how many files would be read.")
def build(
    output: Output,
    *,
    repository: Repository,
    name: str,
    column: str,
    is_spark: bool,
    is_dry_run: bool,
) -> None:
    """Index a column, in existing files and in all later ones.

    If a build was interrupted, run it again: it continues with the files that are not indexed yet.
    """
    dataset = repository.open(name)
    with output.progress("Indexing") as on_progress:
        inverted_index = dataset.indices.build(
            column,
            True if is_spark and not is_dry_run else None,
            on_progress=on_progress,
            dry_run=is_dry_run,
        )
    if is_dry_run:
        output.note(
            f"Would index {counted(inverted_index.missing_count, 'file')} of "
            f"{counted(inverted_index.missing_bytes, 'byte')}; "
            f"{inverted_index.covered_count:,} of {inverted_index.file_count:,} are indexed."
        )
    _show(output, [inverted_index])


@verb("drop", example="lakebed index drop lake/flights tailnum")
@takes_dataset
@click.argument("column")
@dry_run_option("Only check, and show the commit that would be made.")
def drop(
    output: Output, *, repository: Repository, name: str, column: str, is_dry_run: bool
) -> None:
    """Drop the index of a column; query results stay the same."""
    commit = repository.open(name).indices.drop(column, dry_run=is_dry_run)
    if is_dry_run:
        output.note(f"Would drop the index of {column}.")
    show_commit(output, commit)


@verb("show", example="lakebed index show lake/flights -o json")
@takes_dataset
@click.argument("column", required=False)
def show(output: Output, *, repository: Repository, name: str, column: str | None) -> None:
    """Show the coverage and the cost of indices, and whether they can help."""
    indices = repository.open(name).indices.list()
    chosen = [entry for entry in indices if column in (None, entry.column)]
    if not chosen:
        output.note(f"There is no index{f' of {column}' if column else ''} in {name}.")
    _show(output, chosen)


def _show(output: Output, indices: list[InvertedIndex]) -> None:
    for entry in indices:
        if entry.warning:
            output.note(f"{entry.column}: {entry.warning}")
        for key, reason in entry.lost.items():
            output.note(f"{key} is lost: {reason}")
    output.rows(_COLUMNS, (_record(entry) for entry in indices))


def _record(entry: InvertedIndex) -> Mapping[str, object]:
    record = {name: getattr(entry, name) for name in _COLUMNS}
    return {**record, "lost": len(entry.lost)}


for _command in (build, drop, show):
    index.add_command(_command)
