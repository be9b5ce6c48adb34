"""Verbs on rows in this process: append, overwrite, query, explain, files, sql."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, get_args

import click
import pyarrow as pa

from lakebed.arrow.as_python import python_rows
from lakebed.arrow.reading.files import FILE_FORMATS, FileFormat
from lakebed.arrow.reading.inference import infer_schema
from lakebed.arrow.reading.rows import read_rows
from lakebed.cli.inputs import Inputs, find_inputs
from lakebed.cli.notation_options import Notation, takes_notation
from lakebed.cli.output import Output
from lakebed.cli.records import commit_record, dry_run_record, dry_run_text
from lakebed.cli.shared_options import (
    REPOSITORY_VARIABLE,
    Verb,
    dry_run_option,
    parse_time,
    split_address,
    storage_option,
    takes_dataset,
    takes_state,
    verb,
)
from lakebed.commit import Commit
from lakebed.common.shown import facts_of
from lakebed.dataset import Dataset
from lakebed.errors import DatasetNotFoundError, InvalidInputError, LakebedError
from lakebed.model.drift import Types, UnknownColumns, check_drift, grown
from lakebed.model.names import split_names
from lakebed.model.schema import Schema
from lakebed.repository import Repository, open_repository
from lakebed.sql.summaries import as_table
from lakebed.state.committing import CommitOptions
from lakebed.view import View

_REPLACED_COLUMNS = (
    "partition",
    "inserted_row_count",
    "deleted_row_count",
    "removed_file_count",
)
TABLE_LIMIT = 20  # rows of a table; more are for programs


levels_option = click.option(
    "--levels/--no-levels",
    default=True,
    show_default=True,
    help="Whether folders name=value above files are columns of their rows. Of folders batch_id=… "
    "only the newest then counts.",
)


def takes_files(*, required: bool) -> Callable[[Verb], Verb]:
    """Give the function `inputs`: the files that are named, or None."""
    options = (
        click.argument("files", nargs=-1, required=required),
        click.option(
            "--format",
            "file_format",
            type=click.Choice(FILE_FORMATS),
            help="Format of the files.  [default: by suffix and content]",
        ),
        levels_option,
    )

    def decorate(function: Verb) -> Verb:
        @functools.wraps(function)
        def run(
            *arguments: Any,
            files: tuple[str, ...],
            file_format: FileFormat | None,
            notation: Notation,
            levels: bool,
            **others: Any,
        ) -> None:
            inputs = find_inputs(files, file_format, notation, levels=levels) if files else None
            function(*arguments, inputs=inputs, **others)

        decorated: Verb = takes_notation(run)
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


run_option = click.option("--run", help="A name for the run, kept in the history.")
base_option = click.option(
    "--base",
    type=int,
    metavar="VERSION",
    help="Version that the change is based on: refuse if a later commit touched the same partitions.",
)

begun_option = click.option(
    "--begun-at",
    callback=parse_time,
    metavar="TIME",
    help="Start time, encoded in the batch id. Without zone, UTC.  [default: now]",
)


class Growth(TypedDict):
    """Settings for the growth of a schema by the rows of a write."""

    unknown: UnknownColumns
    types: Types


def takes_growth(function: Verb) -> Verb:
    """Give the function `growth`: whether the files may change the schema."""

    @functools.wraps(function)
    def run(*arguments: Any, unknown: UnknownColumns, types: Types, **others: Any) -> None:
        function(*arguments, growth=Growth(unknown=unknown, types=types), **others)

    for option in (
        click.option(
            "--types",
            type=click.Choice(get_args(Types)),
            default="strict",
            show_default=True,
            help="Action for values that a field is too narrow for: strict refuses the files; widen "
            "widens the field to the type of the files, in which whole numbers of text are long and "
            "others double.",
        ),
        click.option(
            "--unknown",
            type=click.Choice(get_args(UnknownColumns)),
            default="reject",
            show_default=True,
            help="Action for columns that the dataset lacks: reject refuses the files; keep adds them "
            "to the schema, nullable.",
        ),
    ):
        run = option(run)
    return run


def begun_on(dataset: Dataset, begun_at: dt.datetime | None) -> Dataset:
    """Return the dataset with the start time of the process, if one is given."""
    return dataset.with_options(commit=commit_options(begun_at))


def commit_options(begun_at: dt.datetime | None) -> CommitOptions | None:
    """Return the commit options for a start time; None for the defaults."""
    return None if begun_at is None else CommitOptions(begun_at=begun_at)


def show_commit(output: Output, commit: Commit) -> None:
    """Show the commit of a write, or the one that a dry run would make."""
    if commit.is_dry_run:
        output.note(dry_run_text(commit))
        for note in commit.notes:
            output.note(note)
    record = dry_run_record(commit) if commit.is_dry_run else commit_record(commit)
    if commit.notes:
        record["notes"] = list(commit.notes)
    output.record(record, facts=facts_of(record, hidden=["commit_id", "notes"]))


@verb("append", example="lakebed append lake/flights january.csv february.csv --null-text NA")
@takes_dataset
@takes_files(required=True)
@dry_run_option("Only check the rows, and show the commit that would add them.")
@run_option
@takes_growth
@base_option
@begun_option
def append(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs,
    is_dry_run: bool,
    run: str | None,
    growth: Growth,
    base: int | None,
    begun_at: dt.datetime | None,
) -> None:
    """Add the rows of files, without Spark.

    FILES are CSV with a header, JSON lines, submissions, Avro or Parquet, or directories of
    them; '-' reads JSON lines from stdin. The types are those of the dataset, and every column must
    be one of its fields, unless --types or --unknown allows others.
    """
    dataset = begun_on(repository.open(name), begun_at)
    with (
        output.progress(f"{'Reading' if is_dry_run else 'Appending'} {inputs.label}"),
        rows_of(inputs, dataset, growth) as rows,
    ):
        commit = dataset.append(rows, run, base=base, dry_run=is_dry_run, **growth)
    show_commit(output, commit)


@verb(
    "overwrite",
    example="lakebed overwrite lake/flights day.jsonl --where \"dt = '2013-06-01'\"",
)
@takes_dataset
@takes_files(required=False)
@click.option(
    "--where",
    metavar="SQL",
    help="Replace all of this view, also with no rows. It must consist of whole partitions.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would be replaced.")
@run_option
@takes_growth
@base_option
@begun_option
def overwrite(
    output: Output,
    *,
    repository: Repository,
    name: str,
    inputs: Inputs | None,
    where: str | None,
    is_dry_run: bool,
    run: str | None,
    growth: Growth,
    base: int | None,
    begun_at: dt.datetime | None,
) -> None:
    """Replace partitions with the rows of files, without Spark.

    This replaces the partitions that the rows touch, or all of a view.

    FILES are as for append. With --where they can be left out: the view is then empty.

    --dry-run lists the partitions concerned, with the numbers of rows that would be added and
    removed.
    """
    if inputs is None and where is None:
        message = "Give FILES, or --where to empty a view."
        raise click.UsageError(message, click.get_current_context())
    dataset = begun_on(repository.open(name), begun_at)
    view = None if where is None else dataset.where(where)
    if is_dry_run:
        with (
            output.progress(f"Reading {inputs.label if inputs else 'the dataset'}"),
            rows_of(inputs, dataset, growth) as rows,
        ):
            found = dataset.overwrite(rows, view, dry_run=True, **growth)
        output.note(f"Would write {found}.")
        output.rows(
            _REPLACED_COLUMNS,
            (
                {name: getattr(partition, name) for name in _REPLACED_COLUMNS}
                for partition in found.partitions
            ),
        )
        return
    if inputs is None:
        show_commit(output, dataset.overwrite([], view, run=run, base=base))
        return
    with (
        output.progress(f"Writing {inputs.label}"),
        rows_of(inputs, dataset, growth) as rows,
    ):
        commit = dataset.overwrite(rows, view, run=run, base=base, **growth)
    show_commit(output, commit)


@contextmanager
def rows_of(
    inputs: Inputs | None, dataset: Dataset, growth: Growth
) -> Iterator[pa.RecordBatchReader | list[object]]:
    """Read the rows of files, if any, with the types of a dataset that may grow for them.

    Cost:
        To let the schema grow, all files are read twice.
    """
    if inputs is None:
        yield []
        return
    descriptor = dataset.descriptor
    if not check_drift(**growth):
        yield read_rows(inputs.files, inputs.format, descriptor, inputs.csv, inputs.json)
        return
    if growth["unknown"] == "keep" and inputs.format == "csv" and not inputs.csv.has_header:
        raise InvalidInputError(
            "Files without a header have no names for columns that the dataset lacks.",
            hint="Leave --unknown out, or add the fields first: lakebed schema add.",
        )
    with as_files(inputs) as files:
        schema = grown(dataset.schema, schema_in(files), **growth)
        wider = dataclasses.replace(descriptor, schema=schema)
        yield read_rows(files.files, files.format, wider, files.csv, files.json)


def schema_in(inputs: Inputs) -> Schema:
    """Infer the schema of all rows of files."""
    return infer_schema(
        inputs.files, inputs.format, rows=0, csv=inputs.csv, json=inputs.json, unfit="error"
    )


@contextmanager
def as_files(inputs: Inputs) -> Iterator[Inputs]:
    """Keep standard input in a file, since its columns are known only at its end."""
    if not inputs.is_stdin:
        yield inputs
        return
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        try:
            yield find_inputs([file.name], "json", inputs.notation)
        except LakebedError as error:
            error.message = error.message.replace(file.name, "standard input")
            error.hint = error.hint.replace(file.name, "standard input")
            raise


def _view(dataset: Dataset, where: str | None) -> View:
    return dataset if where is None else dataset.where(where)


where_option = click.option(
    "--where",
    metavar="SQL",
    help="Condition, such as \"carrier = 'UA' AND time_hour >= '2013-06-01'\".",
)


@verb(
    "query",
    example="lakebed query lake/flights --where \"carrier = 'UA'\" --columns flight,dest -o csv",
)
@takes_state
@where_option
@click.option(
    "--columns",
    metavar="A,B",
    help="Fields, partition fields or batch_id.  [default: all fields]",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    help=f"Greatest number of rows.  [default: {TABLE_LIMIT} in a table, else all]",
)
@click.option("--count", "is_count", is_flag=True, help="Only count the rows.")
def query(
    output: Output,
    *,
    dataset: Dataset,
    where: str | None,
    columns: str | None,
    limit: int | None,
    is_count: bool,
) -> None:
    """Read rows."""
    view = _view(dataset, where)
    if is_count:
        output.record({"count": view.count()})
        return
    wanted = None if columns is None else split_names(columns)
    if limit is None and output.is_table:
        limit = TABLE_LIMIT
        # One row more shows whether the table is cut.
        rows = list(_rows(view, wanted, limit + 1))
        output.rows(_names(dataset, wanted), rows[:limit], null="null")
        if len(rows) > limit:
            output.note(f"First {limit} rows; --limit shows more, -o jsonl all.")
        return
    output.rows(_names(dataset, wanted), _rows(view, wanted, limit), null="null")


def _names(dataset: Dataset, wanted: list[str] | None) -> list[str]:
    return list(dataset.schema.names) if wanted is None else wanted


def _rows(view: View, wanted: list[str] | None, limit: int | None) -> Iterator[dict[str, object]]:
    rows = view if limit is None else view.limit(limit)
    with rows.record_batches(wanted) as batches:
        for batch in batches:
            yield from python_rows(batch)


@verb("explain", example="lakebed explain lake/flights --where \"time_hour < '2013-02-01'\"")
@takes_state
@where_option
def explain(output: Output, *, dataset: Dataset, where: str | None) -> None:
    """Show which data files a query would read, and why."""
    explanation = _view(dataset, where).plan().explain()
    if output.is_table:
        click.echo(str(explanation))
    else:
        output.record(dataclasses.asdict(explanation))


@verb("files", example="lakebed files lake/flights --where \"carrier = 'UA'\" -o plain")
@takes_state
@where_option
def files(output: Output, *, dataset: Dataset, where: str | None) -> None:
    """List the data files that a query would read.

    With -o plain only their paths are printed, for xargs. The files may also hold other rows, and
    lack the partition fields: see the page "Read it from …".
    """
    columns = ("path", "rows", "size_bytes", "partition", "batch_id")
    chosen = _view(dataset, where).files()
    output.rows(
        columns,
        (
            {
                "path": file.location,
                "rows": file.row_count,
                "size_bytes": file.size_bytes,
                "partition": file.partition,
                "batch_id": file.batch_id,
            }
            for file in chosen
        ),
    )


@verb("sql", example='lakebed sql lake "SELECT carrier, count(*) AS n FROM flights GROUP BY ALL"')
@click.argument("location", metavar="REPOSITORY")
@storage_option
@click.argument("query", required=False)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=0),
    help=f"Greatest number of rows.  [default: {TABLE_LIMIT} in a table, else all]",
)
@click.option("--write", "may_write", is_flag=True, help="Allow a statement that changes datasets.")
@run_option
@dry_run_option("the change")
def sql(
    output: Output,
    *,
    location: str,
    storage_options: Mapping[str, str],
    query: str | None,
    limit: int | None,
    may_write: bool,
    run: str | None,
    is_dry_run: bool,
) -> None:
    """Query datasets in SQL, or change them with --write.

    QUERY is one SELECT in DuckDB's dialect. The datasets of the repository are its tables; only
    those that it names are opened, and only files that its conditions select are read. A name with
    - or + needs double quotes. With --write it may be a MERGE, UPDATE, DELETE, INSERT or another
    statement of docs/sql.md, in Spark's dialect, where such names need backticks; it becomes one
    commit. REPOSITORY can be left out if LAKEBED_REPOSITORY is set.
    """
    if query is None:
        location, query = _named_repository(location), location
    with output.progress("Running SQL"):
        try:
            lake = open_repository(location, storage_options=storage_options)
            answer = lake.sql(query, run=run, write=may_write, dry_run=is_dry_run)
        except DatasetNotFoundError as exc:
            raise _naming_repository(exc, location, storage_options) from exc
    if not isinstance(answer, pa.Table):
        output.record(as_table(answer, query, is_dry_run=is_dry_run).to_pylist()[0])
        return
    shown = TABLE_LIMIT if limit is None and output.is_table else limit
    rows = answer if shown is None else answer.slice(0, shown)
    names = _distinct(rows.column_names)
    output.rows(names, _plain_rows(rows.rename_columns(names)), null="null")
    if limit is None and rows.num_rows < answer.num_rows:
        output.note(f"First {shown} rows; --limit shows more, -o jsonl all.")


def _named_repository(query: str) -> str:
    """Return the repository that the environment names, for a query without REPOSITORY."""
    location = os.environ.get(REPOSITORY_VARIABLE, "")
    if not location:
        words = f"REPOSITORY {shlex.quote(query)}" if " " in query else f'{query} "SELECT …"'
        message = f"A repository and a query are needed: lakebed sql {words}"
        raise click.UsageError(message, click.get_current_context())
    return location


def _naming_repository(
    exc: DatasetNotFoundError, location: str, storage_options: Mapping[str, str]
) -> DatasetNotFoundError:
    """Return the error, with a better message if a dataset was given for its repository."""
    try:
        repository, name = split_address(location)
        is_dataset = open_repository(repository, storage_options=storage_options).exists(name)
    except LakebedError:
        is_dataset = False
    if not is_dataset:
        return exc
    return DatasetNotFoundError(
        f"{location!r} is a dataset, not a repository.",
        hint=f'Query its repository: lakebed sql {repository} "SELECT … FROM {name}"',
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, with numbers added to repeated ones, which a join produces."""
    distinct: list[str] = []
    for name in names:
        number, unique = 1, name
        while unique in distinct:
            unique = f"{name}_{number}"
            number += 1
        distinct.append(unique)
    return distinct


def _plain_rows(rows: pa.Table) -> Iterator[dict[str, object]]:
    for batch in rows.to_batches():
        yield from python_rows(batch)
