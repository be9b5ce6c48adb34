"""The verb init, which prints a first declaration of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from lakebed.arrow.reading.files import FILE_FORMATS, FileFormat
from lakebed.cli.archive_verbs import INDEX_VARIABLE
from lakebed.cli.notation_options import Notation, takes_notation
from lakebed.cli.output import Output
from lakebed.cli.shared_options import storage_option, verb
from lakebed.pipeline.drafting import draft_of_archive, draft_of_files, draft_of_table


@verb("init", example="lakebed init in/*.csv --into lake/sales > sales.toml")
@click.argument("places", nargs=-1, metavar="FOLDER|FILE|ARCHIVE...")
@click.option(
    "--table",
    metavar="NAME",
    help="In place of files: a table or view of Spark, such as shop.sales.",
)
@click.option(
    "--into", metavar="DATASET", help="The dataset, as LOCATION/NAME.  [default: lake/NAME]"
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FILE_FORMATS),
    help="Format of the raw files.  [default: by suffix and content]",
)
@click.option("--what", help="The place is an archive: look at its files of this kind.")
@click.option("--where", help="With --what: only files of this place or machine.")
@click.option(
    "--index",
    envvar=INDEX_VARIABLE,
    metavar="URL",
    help=f"With --what: index of the archive.  [env: {INDEX_VARIABLE}]",
)
@takes_notation
@storage_option
def init(
    output: Output,
    *,
    places: Sequence[str],
    table: str | None,
    into: str | None,
    file_format: FileFormat | None,
    what: str | None,
    where: str | None,
    index: str | None,
    notation: Notation,
    storage_options: Mapping[str, str],
) -> None:
    """Print a pipeline for raw files or a table, to start from.

    It looks at some of the files, finds how they are written and which types hold all of their
    values, and prints a TOML file with comments for `lakebed run`. Of a table it looks at the columns alone. Paths in it are as they are given, relative to the folder that it is saved in.
    Nothing is written.
    """
    context = click.get_current_context()
    if (table is None) == (not places):
        message = "Name files, or a table by --table."
        raise click.UsageError(message, context)
    if table is not None:
        if what is not None or where is not None or file_format is not None or storage_options:
            message = "With --table give only --into: the other options are for files."
            raise click.UsageError(message, context)
        with output.progress("Looking at the table"):
            draft = draft_of_table(table, into=into)
        click.echo(draft, nl=False)
        return
    with output.progress("Looking at files"):
        if what is None:
            if where is not None:
                message = "Give --where with --what."
                raise click.UsageError(message, context)
            draft = draft_of_files(
                places,
                into=into,
                format=file_format,
                csv=notation.csv,
                json=notation.json,
                storage_options=storage_options,
            )
        else:
            if len(places) != 1:
                message = "With --what name one archive."
                raise click.UsageError(message, context)
            draft = draft_of_archive(
                places[0],
                what=what,
                format=file_format,
                where=where,
                index=index,
                into=into,
                csv=notation.csv,
                json=notation.json,
                storage_options=storage_options,
            )
    click.echo(draft, nl=False)
