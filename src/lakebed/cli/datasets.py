"""Verbs on datasets as a whole: create, show, history, list, drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
import pyarrow as pa

from lakebed.cli.lakes import find_lake, show_lake
from lakebed.cli.notation_options import Notation, takes_notation
from lakebed.cli.output import Output, next_commands
from lakebed.cli.records import (
    HISTORY_COLUMNS,
    HISTORY_RECORD_COLUMNS,
    automatic_publications,
    commit_record,
    dataset_facts,
    dataset_record,
    history_record,
)
from lakebed.cli.shared_options import (
    REPOSITORY_VARIABLE,
    parse_pairs,
    storage_option,
    takes_dataset,
    takes_place,
    verb,
)
from lakebed.commit import Partition
from lakebed.common.shown import counted, human_size, visible
from lakebed.dataset import Dataset
from lakebed.errors import InvalidInputError
from lakebed.groups.namespace_group import names_below
from lakebed.model.descriptor import COMPRESSIONS, DOCUMENT, FORMATS, UUID, DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.keys import BATCH_IDS, BatchIds
from lakebed.model.locations import shell_address
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Field, Kind, Primitive, Schema, Struct
from lakebed.model.totals import known_total
from lakebed.repository import Repository, open_repository
from lakebed.state import published
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.state import HeadKind, should_be_tree
from lakebed.store.dry_run import DryRunStore

_TEXT = Primitive(Kind.STRING)
_TREE_COLUMNS = ("partition", "files", "rows", "bytes", "size")


def read_strategy(text: str) -> PartitionStrategy:
    """Read a partition strategy from its short form, or from a file in Kite's JSON form.

    Raises:
        PartitionSpecError: The text is neither.
        InvalidInputError: The file cannot be read.
    """
    if text.endswith(".json"):
        from lakebed.arrow.reading.files import read_text

        return PartitionStrategy.from_json(read_text(Path(text)))
    return PartitionStrategy.parse(text)


def read_partitions(text: str | None, dimensions_file: Path | None) -> PartitionStrategy | None:
    """Read the strategy of a dataset that is to be created; None if none was given.

    Raises:
        PartitionSpecError: The text is not a partition strategy.
        InvalidInputError: A file cannot be read.
    """
    if dimensions_file is None:
        return None if text is None else read_strategy(text)
    from lakebed.arrow.reading.files import reading

    with reading(dimensions_file):
        dimensions = DimensionSchema.from_json(dimensions_file)
    functions = () if text is None else read_strategy(text).functions
    return PartitionStrategy((*functions, *dimensions.partition_by()))


def submission_schema(partition_by: PartitionStrategy) -> Schema:
    """Return the schema of submissions whose fields are the sources of their partitions, as text."""
    lines = (Field(name=name, type=_TEXT, nullable=False) for name in (UUID, DOCUMENT))
    sources = dict.fromkeys(function.source for function in partition_by if function.takes_source)
    paths = [name.split(".") for name in sources if name not in (UUID, DOCUMENT)]
    return Schema(fields=(*lines, *_text_fields(paths)))


def _text_fields(paths: Sequence[Sequence[str]]) -> tuple[Field, ...]:
    """Return text fields for sources; dotted ones, such as `application.name`, as records."""
    inner: dict[str, list[Sequence[str]]] = {}
    for name, *below in paths:
        inner.setdefault(name, []).extend([below] if below else [])
    return tuple(
        Field(name=name, type=Struct(_text_fields(inner_paths)) if inner_paths else _TEXT)
        for name, inner_paths in inner.items()
    )


def read_schema_file(path: Path) -> str | pa.Schema:
    """Read a schema file into a form that a descriptor takes."""
    from lakebed.arrow.reading.files import read_text, reading

    if path.suffix.lower() in (".avsc", ".json"):
        text = read_text(path)
        # Any other text would be taken for the path of a file.
        if not text.lstrip().startswith("{"):
            raise InvalidInputError(
                f"{path} does not hold an Avro record schema.",
                hint='Give a JSON object with "type": "record" and "fields", as `lakebed schema infer '
                "FILE --to SCHEMA` writes it.",
            )
        return text
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        with reading(path):
            return pq.read_schema(path)
    raise InvalidInputError(
        f"{path} is neither an Avro schema nor a Parquet file.",
        hint="Give .avsc, .json or .parquet; `lakebed schema infer FILE --to SCHEMA` makes a schema "
        "from CSV and JSON lines.",
    )


def _infer_schema(output: Output, path: Path, notation: Notation) -> Schema:
    """Infer the schema from the rows of a file, and print its types as notes."""
    from lakebed.arrow.reading.files import format_of
    from lakebed.arrow.reading.inference import infer_schema
    from lakebed.cli.inputs import find_inputs

    home = path.absolute()
    if path.is_dir() and (lake := open_repository(home.parent)).exists(home.name):
        output.note(f"Copied the fields of dataset {path}, and nothing else of it.")
        return lake.open(home.name).schema
    if path.is_file() and format_of(str(path)) is None:
        raise InvalidInputError(
            f"The suffix of {path} does not name a known format.",
            hint="Rename it to .csv or .jsonl; or run `lakebed schema infer FILE --format csv --to "
            "SCHEMA` and give --schema here.",
        )
    inputs = find_inputs([str(path)], None, notation)
    schema = infer_schema(inputs.files, inputs.format, csv=notation.csv, json=notation.json)
    width = max((len(field.name) for field in schema), default=0)
    output.note(f"Fields inferred from the first rows of {path}; give --schema to choose others:")
    for field in schema:
        output.note(f"  {visible(field.name):{width}}  {field.type}")
    return schema


@verb(
    "create",
    example="lakebed create lake/flights --schema flights.avsc "
    "--partition-by 'date(time_hour) as dt, carrier'",
)
@takes_dataset
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(path_type=Path),
    help="An Avro schema (.avsc, .json), or a Parquet file whose schema is used.",
)
@click.option(
    "--like",
    "rows_file",
    type=click.Path(path_type=Path),
    help="Instead of --schema: a file or directory of rows whose types are inferred and shown, or a "
    "local dataset whose fields are copied.",
)
@takes_notation
@click.option(
    "--partition-by",
    metavar="TEXT|FILE",
    help="Such as 'date(time_hour) as dt, hash(user_id, 64)', or a .json file in Kite's form.  "
    "[default: 'partitions' of the Avro schema]",
)
@click.option(
    "--dimensions",
    "dimensions_file",
    type=click.Path(path_type=Path),
    help="A file such as telemetry_schema.json whose dimensions become partitions, after those of "
    "--partition-by. With --format submissions it needs no --schema: the fields are its text.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="Format of the data files.",
)
@click.option(
    "--compression",
    type=click.Choice(sorted({name for names in COMPRESSIONS.values() for name in names})),
    help="Compression of the data files; each format has its own default.",
)
@click.option(
    "--index",
    multiple=True,
    metavar="COLUMN",
    help="A column to index, by which the data is not sorted. Repeatable.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    callback=parse_pairs,
    metavar="KEY=VALUE",
    help="A property of your own. Repeatable.",
)
@click.option(
    "--batch-ids",
    type=click.Choice([str(form) for form in BatchIds]),
    help="Unit of batch ids, or the date form; fixed at creation.  [default: milliseconds]",
)
@click.option(
    "--head-format",
    type=click.Choice([head_format.value for head_format in HeadFormat]),
    default="json",
    show_default=True,
    help="json is readable text; msgpack.zstd is a sixth of the size.",
)
@click.option(
    "--head",
    "head",
    type=click.Choice([str(kind) for kind in HeadKind]),
    default="document",
    show_default=True,
    help="tree: for 100,000 files and more; other tools cannot read it.",
)
@click.option(
    "--if-exists",
    type=click.Choice(["error", "open"]),
    default="error",
    show_default=True,
    help="open: accept an existing dataset with an equal descriptor.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only check, and show the types.")
def create(
    output: Output,
    *,
    repository: Repository,
    name: str,
    schema_file: Path | None,
    rows_file: Path | None,
    notation: Notation,
    partition_by: str | None,
    dimensions_file: Path | None,
    file_format: str,
    compression: str | None,
    index: tuple[str, ...],
    properties: Mapping[str, str],
    batch_ids: str | None,
    head_format: Literal["json", "msgpack.zstd"],
    head: Literal["document", "tree"],
    if_exists: Literal["error", "open"],
    is_dry_run: bool,
) -> None:
    """Create an empty dataset.

    Partitions by only a part of a time, such as hour(ts), repeat every day: an overwrite replaces
    that hour of all days. A note warns of it; use 'date(ts), hour(ts)' instead.
    """
    strategy = read_partitions(partition_by, dimensions_file)
    schema: str | pa.Schema | Schema
    if schema_file is not None and rows_file is None:
        schema = read_schema_file(schema_file)
    elif rows_file is not None and schema_file is None:
        schema = _infer_schema(output, rows_file, notation)
    elif schema_file is rows_file is None and dimensions_file and file_format == "submissions":
        schema = submission_schema(strategy or PartitionStrategy(()))
    else:
        message = (
            "Give one of --schema and --like; --format submissions may have --dimensions alone."
        )
        raise click.UsageError(message, click.get_current_context())
    if batch_ids is not None:
        properties = {**properties, BATCH_IDS: str(batch_ids)}
    descriptor = DatasetDescriptor(
        schema=schema,
        partition_by=strategy,
        format=file_format,
        compression=compression,
        index=index,
        properties=properties,
    )
    if is_dry_run:
        dry = Repository(DryRunStore(repository.store))
        is_there = dry.exists(name)
        dry.create(name, descriptor, if_exists, head_format=head_format, head=head)
        would = "Would open the existing" if is_there else "Would create"
        output.note(f"{would} {repository.uri}/{name}.")
        return
    dataset = repository.create(name, descriptor, if_exists, head_format=head_format, head=head)
    _show(output, dataset)


def _show(output: Output, dataset: Dataset) -> None:
    record = dataset_record(dataset)
    output.record(record, facts=dataset_facts(dataset, record))


@verb("show", example="lakebed show lake/flights --partitions -o csv")
@takes_place
@click.option(
    "--partitions",
    "is_by_partition",
    is_flag=True,
    help="Show a tree of partitions with their sizes; in other output formats, a row for each.",
)
def show(output: Output, *, place: Dataset | Repository, is_by_partition: bool) -> None:
    """Show a dataset, or all datasets of a lake.

    LOCATION is LOCATION/NAME for a dataset, or a repository, which shows a row for each dataset.
    """
    if isinstance(place, Dataset):
        _show_dataset(output, place, is_by_partition=is_by_partition)
    elif is_by_partition:
        message = "--partitions needs one dataset: give LOCATION/NAME."
        raise click.UsageError(message, click.get_current_context())
    else:
        show_lake(output, place)


def _show_dataset(output: Output, dataset: Dataset, *, is_by_partition: bool) -> None:
    if not is_by_partition:
        _show(output, dataset)
        if output.is_table:
            output.note(_next_step(dataset))
        state = dataset._source.load().state
        if should_be_tree(state):
            output.note(
                f"The head lists {state.live.count:,} files: commits and plans are faster if it "
                f"becomes a tree: lakebed compact {shell_address(dataset.uri)} --head tree"
            )
        return
    if output.is_table:
        output.rows(_TREE_COLUMNS, _tree_rows(dataset.name, dataset.inspect.partitions()))
        return
    columns = ("partition", "values", "file_count", "row_count", "size_bytes")
    rows = (
        {
            "partition": partition.path,
            "values": partition.values,
            "file_count": partition.file_count,
            "row_count": partition.row_count,
            "size_bytes": partition.size_bytes,
        }
        for partition in dataset.inspect.partitions()
    )
    output.rows(columns, rows)


def _next_step(dataset: Dataset) -> str:
    """Return commands that a user may want to run next on a dataset."""
    address = shell_address(dataset.uri)
    if not dataset.files():
        return next_commands(f"append {address} FILE", f"import {address} FILE")
    return next_commands(
        f"query {address} --limit 10", f"history {address} -n 10", f"show {address} --partitions"
    )


@verb("history", example="lakebed history lake/flights -n 10")
@takes_dataset
@click.option(
    "-n",
    "--limit",
    "count",
    type=click.IntRange(min=1),
    help="Number of newest commits to list.  [default: all]",
)
def history(output: Output, *, repository: Repository, name: str, count: int | None) -> None:
    """List the commits of a dataset, oldest first.

    Runs of an ingest are shown with the raw files that they have read, or with their window.
    """
    dataset = repository.open(name)
    commits = dataset.history()
    if count is not None:
        commits = commits[-count:]
    if output.is_table:
        rows = (
            commit_record(commit)
            | {
                "rows": commit.rows_in_words(),
                "run": commit.run_in_words(),
                "checks": ", ".join(map(str, commit.checks)),
            }
            for commit in commits
        )
        is_checked = any(commit.checks for commit in commits)
        output.rows((*HISTORY_COLUMNS, "checks") if is_checked else HISTORY_COLUMNS, rows)
    else:
        output.rows(HISTORY_RECORD_COLUMNS, map(history_record, commits))
    for table in automatic_publications(dataset):
        if table.is_stale:
            output.note(f"Not published: {table}. The next commit tries again.")


@verb("list", example="lakebed list s3://bucket/lake --storage-option region=eu-west-1")
@click.argument("repository", envvar=REPOSITORY_VARIABLE)
@storage_option
def list_(output: Output, *, repository: str, storage_options: Mapping[str, str]) -> None:
    """List the datasets of a repository.

    Those of its namespaces have their paths as names.
    """
    opened, dataset = find_lake(repository, storage_options)
    if dataset is not None:
        lake = shell_address(opened.uri)
        raise InvalidInputError(
            f"{repository!r} is a dataset, not a repository.",
            hint=f"Use `lakebed show {lake}/{dataset}` for it, `lakebed list {lake}` for its repository.",
        )
    names = [*opened.list(), *names_below(opened)]
    if not names:
        output.note(f"There is no dataset in {opened.uri}.")
    output.rows(
        ("name", "location"), ({"name": name, "location": f"{opened.uri}/{name}"} for name in names)
    )


_DROPPED_COLUMNS = ("key", "size_bytes")


@verb("drop", example="lakebed drop lake/flights --dry-run")
@takes_dataset
@click.option("--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only list what would be deleted.")
@click.option(
    "--if-missing",
    type=click.Choice(["error", "ignore"]),
    default="error",
    show_default=True,
    help="ignore: succeed if the dataset is missing.",
)
def drop(
    output: Output,
    *,
    repository: Repository,
    name: str,
    is_sure: bool,
    is_dry_run: bool,
    if_missing: Literal["error", "ignore"],
) -> None:
    """Delete a dataset and its whole history.

    The result lists the objects that were deleted, or would be.
    """
    if if_missing == "ignore" and not repository.exists(name):
        output.note(f"There is no dataset {name!r} in {repository.uri}.")
        output.rows(_DROPPED_COLUMNS, ())
        return
    dataset = repository.open(name)
    objects, others = _objects_of(repository, dataset)
    total = f"{counted(len(objects), 'object')} of {counted(sum(objects.values()), 'byte')}"
    for _, note in published.read_each(repository.store, name):
        if isinstance(note, published.Shown):
            output.note(
                f"It is published as {note.title}, whose queries fail once the files are deleted: "
                "unpublish it first."
            )
    if is_dry_run:
        output.note(f"Would delete {total} of {dataset.uri}.")
        if others:
            from lakebed.work import owned

            output.note(owned.remaining(repository.store, name, others, is_planned=True))
    else:
        if not is_sure:
            click.confirm(f"Delete {total} of {dataset.uri}?", abort=True, err=True)
        repository.drop(name, if_missing=if_missing)
        output.note(f"Deleted {total} of {dataset.uri}.")
    output.rows(
        _DROPPED_COLUMNS,
        ({"key": key, "size_bytes": size_bytes} for key, size_bytes in objects.items()),
    )


def _objects_of(repository: Repository, dataset: Dataset) -> tuple[dict[str, int], list[str]]:
    """Return the keys and sizes of all that belongs to a dataset, and other keys beside them."""
    from lakebed.work import owned

    store, name = repository.store, dataset.name
    heads = {head_format.key(name) for head_format in HeadFormat}
    sizes = {info.key: info.size_bytes for info in store.list(recursive=False) if info.key in heads}
    listed = {info.key: info.size_bytes for info in store.list(f"{name}/")}
    own = owned.own_keys(store, read_head(store, name).state, listed)
    sizes.update((key, listed[key]) for key in own)
    return sizes, sorted(listed.keys() - {*own})


def _tree_rows(name: str, partitions: Sequence[Partition]) -> Iterator[dict[str, object]]:
    """Yield a row of the dataset, then of each directory level with its totals, indented by depth.

    Args:
        name: The name of the dataset.
        partitions: The partitions in order of path.
    """
    yield _tree_row(name, partitions)
    yield from _below_in_tree(partitions, depth=0)


def _below_in_tree(partitions: Sequence[Partition], depth: int) -> Iterator[dict[str, object]]:
    groups: dict[str, list[Partition]] = {}
    for partition in partitions:
        levels = partition.path.split("/") if partition.path else []
        if len(levels) > depth:
            groups.setdefault(levels[depth], []).append(partition)
    for level, inside in groups.items():
        yield _tree_row("  " * (depth + 1) + level, inside)
        yield from _below_in_tree(inside, depth + 1)


def _tree_row(label: str, partitions: Sequence[Partition]) -> dict[str, object]:
    size_bytes = known_total([partition.size_bytes for partition in partitions])
    return {
        "partition": label,
        "files": sum(partition.file_count for partition in partitions),
        "rows": known_total([partition.row_count for partition in partitions]),
        "bytes": size_bytes,
        "size": None if size_bytes is None else human_size(size_bytes),
    }
