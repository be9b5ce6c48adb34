"""The verb export, which writes a dataset as files for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click

from lakebed.cli.compact import parse_size_option
from lakebed.cli.data import where_option
from lakebed.cli.output import Output
from lakebed.cli.shared_options import AttachedOption, dry_run_option, takes_state, verb
from lakebed.common.shown import counted
from lakebed.dataset import Dataset
from lakebed.model.descriptor import COMPRESSIONS
from lakebed.repository import Repository
from lakebed.tables.trees.telemetry import (
    DEFAULT_COMPRESSION,
    MAX_BYTES,
    IfChanged,
    TelemetryOptions,
)

_MAX_NAMED = 5  # directories in a note


@verb("export", example="lakebed export lake/pings tree --telemetry=telemetry_schema.json")
@takes_state
@click.argument("target", metavar="TARGET")
@click.option(
    "--telemetry",
    "schema_file",
    cls=AttachedOption,
    is_flag=False,
    flag_value="",
    required=True,
    metavar="[=SCHEMA]",
    help="A telemetry tree: its levels are the dimensions of this file.  [default: the partition "
    "fields]",
)
@click.option(
    "--named",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Number of last dimensions that go into file names; the finished code uses 2.",
)
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS["submissions"]),
    default=DEFAULT_COMPRESSION,
    show_default=True,
    help="Compression of the files; Spark does not read lz4 and xz.",
)
@click.option(
    "--max-bytes",
    callback=parse_size_option,
    metavar="SIZE",
    default=str(MAX_BYTES),
    show_default=True,
    help="Greatest size of a file's lines, before compression.",
)
@click.option(
    "--record-version",
    "record_version",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="With --named: version of the records, part of the file names.",
)
@click.option(
    "--if-changed",
    type=click.Choice(get_args(IfChanged)),
    default="error",
    show_default=True,
    help="Action for a directory whose rows have changed since its export: write nothing at all, "
    "keep the directory, or replace it.",
)
@where_option
@click.option("--spark", "is_spark", is_flag=True, help="Run the work in Spark.")
@dry_run_option("Only show the files that would be written.")
def export(
    output: Output,
    *,
    dataset: Dataset,
    target: str,
    schema_file: str,
    named: int,
    compression: str,
    max_bytes: int,
    record_version: int,
    if_changed: IfChanged,
    where: str | None,
    is_spark: bool,
    is_dry_run: bool,
) -> None:
    """Write submissions as a tree of files for other tools.

    TARGET is an empty directory or bucket prefix, or a tree of earlier exports, to which missing
    directories are added. A file, such as 20130612/nightly/winnt/001.gz, holds lines of a uuid, a
    tab and a document. `adopt` takes such a tree.
    """
    view = dataset if where is None else dataset.where(where)
    options = TelemetryOptions(
        named=named, compression=compression, max_bytes=max_bytes, version=record_version
    )
    with output.progress("Writing") as on_progress:
        done = Repository(dataset.plan().store).trees.export(
            view,
            target,
            Path(schema_file) if schema_file else None,
            options=options,
            if_changed=if_changed,
            dry_run=is_dry_run,
            spark=True if is_spark else None,
            on_progress=on_progress,
        )
    if is_dry_run:
        output.note(
            f"Would write {counted(done.row_count, 'row')} in {counted(len(done.files), 'file')} "
            f"of {counted(done.size_bytes, 'byte')}, and replace "
            f"{counted(len(done.replaced), 'directory', 'directories')}."
        )
    for note in done.notes:
        output.note(note)
    if done.shared:
        output.note(
            f"{counted(len(done.shared), 'directory', 'directories')} shared by values whose names "
            f"are spelled alike: {', '.join(done.shared[:_MAX_NAMED])}"
            f"{'; …' * (len(done.shared) > _MAX_NAMED)}"
        )
    if done.kept:
        have = "has" if len(done.kept) == 1 else "have"
        output.note(
            f"{counted(len(done.kept), 'directory', 'directories')} {have} changed and were left as "
            f"they were exported: {', '.join(done.kept[:_MAX_NAMED])}"
            f"{'; …' * (len(done.kept) > _MAX_NAMED)}"
        )
    record: Mapping[str, object] = {
        "target": done.target,
        "version": done.version,
        "row_count": done.row_count,
        "size_bytes": done.size_bytes,
        "file_count": len(done.files),
        "files": list(done.files),
        "shared": list(done.shared),
        "unchanged": list(done.unchanged),
        "replaced": list(done.replaced),
        "kept": list(done.kept),
        "notes": list(done.notes),
    }
    output.record(record)
