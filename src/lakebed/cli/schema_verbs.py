"""Verbs on schemas and declared checks: show, infer, rename, update, add and drop."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import click

from lakebed.arrow.reading.files import reading
from lakebed.arrow.reading.inference import DEFAULT_ROWS, infer_schema
from lakebed.cli.data import show_commit, takes_files
from lakebed.cli.datasets import read_schema_file
from lakebed.cli.group import VerbGroup
from lakebed.cli.inputs import Inputs
from lakebed.cli.output import Output
from lakebed.cli.records import CHECK_COLUMNS, check_records
from lakebed.cli.shared_options import (
    dry_run_option,
    parse_pairs,
    takes_dataset,
    takes_state,
    verb,
)
from lakebed.common.shown import shown
from lakebed.dataset import Dataset
from lakebed.errors import InvalidInputError
from lakebed.model.avro import schema_to_avro
from lakebed.model.declared import ON_FAILURE, check_from_table
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import changes
from lakebed.model.field_edits import read_default, read_type
from lakebed.model.names import nearest, split_names
from lakebed.model.renaming import with_stored_names
from lakebed.model.schema import MISSING, Schema, dotted_types
from lakebed.repository import Repository

_FIELD_COLUMNS = ("field", "type", "nullable", "default", "since", "doc")
_HISTORY_COLUMNS = ("schema", "version", "committed_at", "field_count", "changes")


def _names(_: click.Context, __: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else split_names(text)


@click.group("schema", cls=VerbGroup, epilog="\b\nExample:\n  lakebed schema show lake/flights")
def schema() -> None:
    """Show and change the schema of a dataset."""


@verb("show", example="lakebed schema show lake/flights --history")
@takes_state
@click.option("--history", "is_history", is_flag=True, help="Show a row for each schema so far.")
def show(output: Output, *, dataset: Dataset, is_history: bool) -> None:
    """Show the fields, or the history of the schema.

    `since` is the number of the schema that introduced a field: rows of older files have its
    default.
    """
    known = dataset.inspect.schemas()
    if not is_history:
        # By the name in data files, which a rename does not change.
        since = {field.stored_name: known[0].number for field in known[0].schema}
        for before, after in itertools.pairwise(known):
            new = {field.stored_name for field in after.schema}
            new -= {field.stored_name for field in before.schema}
            since.update(dict.fromkeys(new, after.number))
        rows = (
            {
                "field": field.name,
                "type": str(field.type),
                "nullable": field.nullable,
                "default": None if field.default is MISSING else field.default,
                "since": since[field.stored_name],
                "doc": field.doc,
            }
            for field in known[-1].schema
        )
        output.rows(_FIELD_COLUMNS, rows)
        return
    befores = (None, *(entry.schema for entry in known))
    output.rows(
        _HISTORY_COLUMNS,
        (
            {
                "schema": entry.number,
                "version": entry.version,
                "committed_at": entry.committed_at,
                "field_count": len(entry.schema.fields),
                "changes": "" if before is None else ", ".join(changes(before, entry.schema)),
            }
            for before, entry in zip(befores, known, strict=False)
        ),
    )


@verb("update", example="lakebed schema update lake/flights --schema flights.avsc")
@takes_dataset
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(path_type=Path),
    help="The complete new schema: Avro (.avsc, .json), or a Parquet file whose schema is used.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=parse_pairs,
    metavar="KEY=VALUE",
    help="A property to add or change. Repeatable.",
)
@click.option(
    "--drop-property",
    "dropped",
    multiple=True,
    metavar="KEY",
    help="A property to remove. Repeatable.",
)
@click.option(
    "--base",
    type=int,
    metavar="VERSION",
    help="Version that the schema was made from: refuse if another writer has updated the dataset "
    "since. Required to remove fields.",
)
@dry_run_option("Only check, and show what would change.")
def update(
    output: Output,
    *,
    repository: Repository,
    name: str,
    schema_file: Path | None,
    properties: Mapping[str, str],
    dropped: Sequence[str],
    base: int | None,
    is_dry_run: bool,
) -> None:
    """Change the schema or the properties of a dataset.

    Existing data stays readable as before; an update that would change it is refused. Without
    --base a schema that lacks a current field is refused, too: another writer may have added it.
    """
    if schema_file is None and not properties and not dropped:
        raise InvalidInputError("Nothing to update.", hint="Give --schema, or a --property.")
    dataset = repository.open(name)
    fields = None if schema_file is None else read_schema_file(schema_file)

    def edit(old: DatasetDescriptor) -> DatasetDescriptor:
        _check_present(dropped, old.properties)
        kept = {key: value for key, value in old.properties.items() if key not in dropped}
        new = DatasetDescriptor(
            schema=old.schema if fields is None else fields,
            partition_by=old.partition_by,
            format=old.format,
            compression=old.compression,
            index=old.index,
            properties={**kept, **properties},
            checks=old.checks,
        )
        if base is None:
            _check_complete(old.schema, new.schema)
        return new

    before = dataset.descriptor
    commit = dataset.evolve(edit, base=base, dry_run=is_dry_run)
    if is_dry_run and commit.is_dry_run:
        for text in _changes_in_words(before, with_stored_names(edit(before), before)):
            output.note(f"Would change {text}.")
    if commit.operation != "update":
        output.note(f"{dataset.uri} has this schema and these properties already.")
    show_commit(output, commit)


def _changes_in_words(old: DatasetDescriptor, new: DatasetDescriptor) -> list[str]:
    """Return the changes of the schema and of the properties."""
    properties = [
        f"property {key}={value}"
        for key, value in new.properties.items()
        if old.properties.get(key) != value
    ]
    gone = sorted(old.properties.keys() - new.properties.keys())
    properties += [f"property {key}: removed" for key in gone]
    return [*(f"schema: {text}" for text in changes(old.schema, new.schema)), *properties]


def _check_present(names: Sequence[str], properties: Mapping[str, str]) -> None:
    """Check that a dataset has the properties to remove.

    Raises:
        InvalidInputError: It lacks one.
    """
    for name in names:
        if name not in properties:
            raise InvalidInputError(
                f"The dataset has no property {name!r}.",
                hint=nearest(name, properties)
                or f"Its properties are: {', '.join(properties) or 'none'}.",
            )


def _check_complete(old: Schema, new: Schema) -> None:
    """Check that a schema has all fields of the current one, also within records.

    Raises:
        InvalidInputError: The schema lacks fields.
    """
    removed = sorted(dotted_types(old).keys() - dotted_types(new).keys())
    if removed:
        raise InvalidInputError(
            f"The schema lacks {shown(', '.join(removed))}, which the dataset has.",
            hint="Add the fields; or, to remove them, use `lakebed schema drop`, or give --base "
            "VERSION, the version that the schema was made from, as `lakebed show` prints it.",
        )


@verb("rename", example="lakebed schema rename lake/flights carrier airline")
@takes_dataset
@click.argument("old")
@click.argument("new")
@dry_run_option("Only check, and show what would change.")
def rename(
    output: Output, *, repository: Repository, name: str, old: str, new: str, is_dry_run: bool
) -> None:
    """Rename a field; no data file is rewritten.

    Data files keep the column under its first name. Partition functions and indices follow the new
    name, and older versions show the old one.
    """
    dataset = repository.open(name)
    commit = dataset.evolve(lambda known: known.rename_field(old, new), dry_run=is_dry_run)
    if is_dry_run and commit.is_dry_run:
        output.note(f"Would change schema: {old} renamed to {new}.")
    if old == new:
        output.note(f"The field of {dataset.uri} has this name already.")
    show_commit(output, commit)


@verb("add", example="lakebed schema add lake/flights note string")
@takes_dataset
@click.argument("field")
@click.argument("type_text", metavar="TYPE")
@click.option("--default", "default_text", help="Value of rows that lack the field.")
@click.option("--not-null", "is_required", is_flag=True, help="No null; needs --default.")
@click.option("--doc", default="", help="Comment on the field.")
@dry_run_option("Only check, and show what would change.")
def add(
    output: Output,
    *,
    repository: Repository,
    name: str,
    field: str,
    type_text: str,
    default_text: str | None,
    is_required: bool,
    doc: str,
    is_dry_run: bool,
) -> None:
    """Add a field; no data file is rewritten.

    TYPE is boolean, tinyint, smallint, int, long, float, double, string, bytes, date, timestamp,
    timestamp_ntz, 'decimal(10, 2)', or a type of Avro as JSON. Rows that lack the field have null, or the default.
    """
    kind = read_type(type_text)
    default = MISSING if default_text is None else read_default(default_text, kind)
    dataset = repository.open(name)
    commit = dataset.evolve(
        lambda known: known.add_field(
            field, kind, nullable=not is_required, default=default, doc=doc
        ),
        dry_run=is_dry_run,
    )
    if is_dry_run:
        output.note(f"Would change schema: +{field}: {kind}.")
    show_commit(output, commit)


@verb("change-type", example="lakebed schema change-type lake/flights delay long")
@takes_dataset
@click.argument("field")
@click.argument("type_text", metavar="TYPE")
@dry_run_option("Only check, and show what would change.")
def change_type(
    output: Output,
    *,
    repository: Repository,
    name: str,
    field: str,
    type_text: str,
    is_dry_run: bool,
) -> None:
    """Give a field a wider type; no data file is rewritten.

    An int may become long or double, a float double, a date timestamp_ntz, and a decimal one of more
    digits: every value stays as it is.
    """
    dataset = repository.open(name)
    before = dataset.schema.get(field).type
    commit = dataset.evolve(lambda known: known.change_type(field, type_text), dry_run=is_dry_run)
    if is_dry_run and commit.is_dry_run:
        output.note(f"Would change schema: {field}: {before} to {type_text}.")
    show_commit(output, commit)


@verb("drop", example="lakebed schema drop lake/flights note")
@takes_dataset
@click.argument("fields", metavar="FIELD...", nargs=-1, required=True)
@dry_run_option("Only check, and show what would change.")
def drop(
    output: Output, *, repository: Repository, name: str, fields: tuple[str, ...], is_dry_run: bool
) -> None:
    """Remove fields and their indices; no data file is rewritten.

    Versions before show the fields as they were.
    """

    def without(known: DatasetDescriptor) -> DatasetDescriptor:
        for field in fields:
            known = known.drop_field(field)
        return known

    commit = repository.open(name).evolve(without, dry_run=is_dry_run)
    if is_dry_run:
        output.note(f"Would change schema: {', '.join(f'-{field}' for field in fields)}.")
    show_commit(output, commit)


@verb("infer", example="lakebed schema infer january.csv february.csv --null-text NA -o json")
@takes_files(required=True)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=DEFAULT_ROWS,
    show_default=True,
    help="Number of rows to read from each file; 0 for all.",
)
@click.option(
    "--require",
    multiple=True,
    metavar="FIELD",
    help="A field that is not nullable; all others are. Repeatable.",
)
@click.option("--name", default="entity", show_default=True, help="Name of the Avro record.")
@click.option(
    "--to",
    "to_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the schema to this file, as Avro JSON.",
)
def infer(
    output: Output,
    *,
    inputs: Inputs,
    rows: int,
    require: tuple[str, ...],
    name: str,
    to_path: Path | None,
) -> None:
    """Infer the schema of files.

    FILES are CSV, JSON lines, submissions, Avro or Parquet, or directories of them. The result is
    an Avro schema; a table shows its fields. Mixed CSV columns are text; incompatible JSON types are
    an error. Lines that are not rows do not count, and a note gives their number.
    """
    fields = infer_schema(
        inputs.files,
        inputs.format,
        rows=rows,
        require=require,
        csv=inputs.notation.csv,
        json=inputs.notation.json,
        name=name,
    )
    document = schema_to_avro(fields)
    if to_path is not None:
        with reading(to_path):
            to_path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if output.is_table:
        columns = ("field", "type", "nullable")
        output.rows(
            columns,
            (
                {"field": field.name, "type": str(field.type), "nullable": field.nullable}
                for field in fields
            ),
        )
        return
    output.record(document)


@verb("checks", example="lakebed schema checks lake/flights")
@takes_state
def checks_(output: Output, *, dataset: Dataset) -> None:
    """List the declared checks, which every write must pass.

    `outcome` is `passed` if all rows pass; else some rows were written before the check was tested
    on them, or with a warning.
    """
    records = check_records(dataset)
    if not records:
        output.note(f"{dataset.uri} declares no checks.")
    output.rows(CHECK_COLUMNS, records)


@verb("add-check", example="lakebed schema add-check lake/flights sane --rows 'delay >= -120'")
@takes_dataset
@click.argument("check")
@click.option("--rows", metavar="SQL", help="Condition that every row must meet.")
@click.option("--not-null", metavar="A,B", callback=_names, help="Columns without null.")
@click.option(
    "--unique", metavar="A,B", callback=_names, help="Columns whose values no two rows share."
)
@click.option(
    "--reference",
    metavar="'COLUMN -> DATASET.COLUMN'",
    help="A column whose values are in a column of another dataset.",
)
@click.option("--min-rows", type=click.IntRange(min=0), help="Least number of rows of a batch.")
@click.option("--max-rows", type=click.IntRange(min=0), help="Greatest number of rows of a batch.")
@click.option(
    "--row-count-within",
    type=float,
    metavar="SHARE",
    help="Share of the mean by which the rows of a batch may differ from the last batches.",
)
@click.option("--of-last", type=click.IntRange(min=1), help="Number of these batches.")
@click.option("--fresh", "column", metavar="COLUMN", help="Times of which the newest is recent.")
@click.option("--within", metavar="AGE", help="With --fresh: its longest age, such as 2h.")
@click.option(
    "--on-failure",
    type=click.Choice(ON_FAILURE),
    default="refuse",
    show_default=True,
    help="What a write does with itself, or with the rows that fail.",
)
@click.option(
    "--existing",
    type=click.Choice(["tested", "unchecked"]),
    default="tested",
    show_default=True,
    help="unchecked: do not read the rows that the dataset has.",
)
@dry_run_option("Only check, and show what would change.")
def add_check(
    output: Output,
    *,
    repository: Repository,
    name: str,
    check: str,
    existing: Literal["tested", "unchecked"],
    is_dry_run: bool,
    **given: object,
) -> None:
    """Declare a check that every write must pass.

    CHECK is its name; a check of that name is replaced. Give one of --rows, --not-null, --unique,
    --reference, --min-rows, --max-rows, --row-count-within and --fresh.
    """
    table = {key: value for key, value in given.items() if value not in (None, ())}
    declared = check_from_table(check, table)
    dataset = repository.open(name)
    commit = dataset.evolve(
        lambda known: known.with_check(check, declared), existing=existing, dry_run=is_dry_run
    )
    if is_dry_run and commit.is_dry_run:
        output.note(f"Would declare {check}: {declared}, {declared.on_failure}.")
    show_commit(output, commit)


@verb("drop-check", example="lakebed schema drop-check lake/flights sane")
@takes_dataset
@click.argument("check")
@dry_run_option("Only check, and show what would change.")
def drop_check(
    output: Output, *, repository: Repository, name: str, check: str, is_dry_run: bool
) -> None:
    """Remove a declared check, named CHECK. Rows stay as they are."""
    dataset = repository.open(name)
    commit = dataset.evolve(lambda known: known.without_check(check), dry_run=is_dry_run)
    if is_dry_run and commit.is_dry_run:
        output.note(f"Would remove the check {check}.")
    show_commit(output, commit)


_COMMANDS = (show, infer, add, drop, rename, change_type, update, checks_, add_check, drop_check)
for _command in _COMMANDS:
    schema.add_command(_command)
