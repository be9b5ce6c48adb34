"""The verb report, which writes a page on a lake."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path

import click

from lakebed.cli.lakes import find_lake
from lakebed.cli.output import Output
from lakebed.cli.shared_options import (
    REPOSITORY_VARIABLE,
    complete_dataset,
    storage_option,
    verb,
)
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError
from lakebed.groups.namespace_group import names_below, open_below
from lakebed.web.build import write_report
from lakebed.web.limits import MAX_ROWS


@verb("report", example="lakebed report s3://bucket/lake --file lake.html")
@click.argument("location", envvar=REPOSITORY_VARIABLE, shell_complete=complete_dataset)
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("lake.html"),
    show_default=True,
    help="The HTML file; an existing one is replaced.",
)
@click.option("--where", help="With one dataset: also show which files match this predicate.")
@click.option(
    "--rows",
    "row_count",
    type=click.IntRange(min=0, max=MAX_ROWS),
    default=0,
    show_default=True,
    metavar="N",
    help=f"Also show the first N rows of each dataset, up to {MAX_ROWS}.",
)
@storage_option
def report(
    output: Output,
    *,
    location: str,
    path: Path,
    where: str | None,
    row_count: int,
    storage_options: Mapping[str, str],
) -> None:
    """Write a report on a lake as one HTML page.

    The report shows what needs attention, the contents and the history. LOCATION is a repository,
    whose namespaces are shown too, or LOCATION/NAME for one dataset. The page is one file without
    scripts that can be opened in a browser, printed or sent by mail. With -o json, the result lists
    the findings, too.
    """
    repository, name = find_lake(location, storage_options)
    names = [*repository.list(), *names_below(repository)] if name is None else [name]
    if where is not None and len(names) != 1:
        raise InvalidInputError(
            "--where needs one dataset.", hint="Give LOCATION/NAME, such as lake/flights."
        )
    open_dataset = functools.partial(open_below, repository)
    view = None if where is None else open_dataset(names[0]).where(where)
    with output.progress("Reading datasets") as on_progress:
        lake = write_report(
            repository.uri,
            names,
            open_dataset,
            path,
            store=repository.store,
            is_whole=name is None,
            view=view,
            rows=row_count,
            on_progress=on_progress,
        )
    findings = [finding.to_record(of) for of, finding in lake.findings]
    output.note(f"Wrote {counted(len(names), 'dataset')} to {path}.")
    if findings:
        verb_shown = "needs" if len(findings) == 1 else "need"
        output.note(f"{counted(len(findings), 'finding')} {verb_shown} attention.")
    if output.is_table:
        click.echo(str(path))
    else:
        output.record({"file": str(path), "dataset_count": len(names), "findings": findings})
