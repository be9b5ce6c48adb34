"""The verb export: a dataset as files for other tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import click

from lakebed.cli.data import where_option
from lakebed.cli.output import Output
from lakebed.cli.shared_options import AttachedOption, takes_state, verb
from lakebed.common.shown import counted
from lakebed.dataset import Dataset
from lakebed.model.descriptor import COMPRESSIONS
from lakebed.tables.trees.telemetry import MAX_BYTES, IfChanged, TelemetryOptions

_TOLD = 5  # directories that are named


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
    help="So many of the last dimensions stand in the names of files; 2 as the finished code has it.",
)
@click.option(
    "--compression",
    type=click.Choice(COMPRESSIONS["submissions"]),
    default="lz4",
    show_default=True,
    help="Of the files.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=MAX_BYTES,
    show_default=True,
    help="Of the lines of a file, before they are compressed.",
)
@click.option(
    "--record-version",
    "record_version",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="With --named: the version of the records, which names tell.",
)
@click.option(
    "--if-changed",
    type=click.Choice(get_args(IfChanged)),
    default="error",
    show_default=True,
    help="What happens where a directory held other lines when it was exported: nothing is written, "
    "it is left as it is, or it is written again.",
)
@where_option
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
) -> None:
    """Write submissions as a tree of files for other tools.

    TARGET is a directory, or a prefix of a bucket, in which there is nothing yet, or a tree of earlier
    exports, to which directories that it lacks are added. A file holds lines of a uuid, a tab and a
    document: 20130612/nightly/winnt/001.lz4. `adopt` takes such a tree.
    """
    view = dataset if where is None else dataset.where(where)
    options = TelemetryOptions(
        named=named, compression=compression, max_bytes=max_bytes, version=record_version
    )
    with output.progress("Writing") as on_progress:
        done = view.export_telemetry(
            target,
            Path(schema_file) if schema_file else None,
            options=options,
            if_changed=if_changed,
            on_progress=on_progress,
        )
    if done.shared:
        output.note(
            f"{counted(len(done.shared), 'directory', 'directories')} of several values, which are "
            f"written alike: {', '.join(done.shared[:_TOLD])}{'; …' * (len(done.shared) > _TOLD)}"
        )
    if done.kept:
        have = "has" if len(done.kept) == 1 else "have"
        output.note(
            f"{counted(len(done.kept), 'directory', 'directories')} {have} changed and were left as "
            f"they were exported: {', '.join(done.kept[:_TOLD])}{'; …' * (len(done.kept) > _TOLD)}"
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
    }
    output.record(record)
