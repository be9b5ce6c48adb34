"""Verbs on datasets as a whole: create, show, history, list, drop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import click
import pyarrow as pa

from lakebed.cli.lakes import find_lake, show_lake
from lakebed.cli.output import Output, next_commands
from lakebed.cli.records import (
    COMMIT_COLUMNS,
    HISTORY_COLUMNS,
    automatic_publications,
    commit_record,
    dataset_facts,
    dataset_record,
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
from lakebed.model.descriptor import COMPRESSIONS, FORMATS, DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.keys import BATCH_ID, BATCH_IDS, BatchIds
from lakebed.model.locations import shell_address
from lakebed.model.partition import PartitionStrategy
from lakebed.model.partition.repeating import warn_of_repetition
from lakebed.model.schema import Schema
from lakebed.model.totals import known_total
from lakebed.repository import Repository, open_repository
from lakebed.state import published
from lakebed.state.head import HeadFormat

_TREE_COLUMNS = ("partition", "files", "rows", "bytes", "size")


def read_strategy(text: str) -> PartitionStrategy:
    """Read a partition strategy from its short form, or from a file of Kite's JSON.

    Raises:
        PartitionSpecError: It is neither.
        InvalidInputError: The file cannot be read.
    """
    if text.endswith(".json"):
        from lakebed.arrow.reading.files import read_text

        return PartitionStrategy.from_json(read_text(Path(text)))
    return PartitionStrategy.parse(text)


def read_partitions(text: str | None, dimensions_file: Path | None) -> PartitionStrategy | None:
    """Read the strategy of a dataset that is to be created; None where nothing is said of it.

    Raises:
        PartitionSpecError: It is none.
        InvalidInputError: A file cannot be read.
    """
    if dimensions_file is None:
        return None if text is None else read_strategy(text)
    from lakebed.arrow.reading.files import reading

    with reading(dimensions_file):
        dimensions = DimensionSchema.from_json(dimensions_file)
    functions = () if text is None else read_strategy(text).functions
    return PartitionStrategy((*functions, *dimensions.partition_by()))


def read_schema_file(path: Path) -> str | pa.Schema:
    """Read a schema file as something that a descriptor takes."""
    from lakebed.arrow.reading.files import read_text, reading

    if path.suffix.lower() in (".avsc", ".json"):
        text = read_text(path)
        # A text that begins otherwise would be taken for the path of a file.
        if not text.lstrip().startswith("{"):
            raise InvalidInputError(
                f"{path} holds no Avro record schema.",
                hint='It is a JSON object with "type": "record" and "fields", as `lakebed schema infer '
                "FILE --to SCHEMA` writes it.",
            )
        return text
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        with reading(path):
            return pq.read_schema(path)
    raise InvalidInputError(
        f"{path} is neither an Avro schema nor a Parquet file.",
        hint="Give .avsc, .json or .parquet; `lakebed schema infer FILE --to SCHEMA` makes one of "
        "CSV and JSON lines.",
    )


def _infer_schema(output: Output, path: Path, null_text: str, delimiter: str) -> Schema:
    """Find the schema of rows in a file, and tell a person which types it has."""
    from lakebed.arrow.reading.files import CsvOptions, format_of
    from lakebed.arrow.reading.inference import infer_schema
    from lakebed.cli.inputs import find_inputs

    home = path.absolute()
    if path.is_dir() and (lake := open_repository(home.parent)).exists(home.name):
        output.note(f"Fields of the dataset {path}, of which nothing else is taken.")
        return lake.open(home.name).schema
    if path.is_file() and format_of(str(path)) is None:
        raise InvalidInputError(
            f"Cannot tell the format of {path} by its suffix.",
            hint="Call it .csv or .jsonl; or `lakebed schema infer FILE --format csv --to SCHEMA`, "
            "and --schema here.",
        )
    csv = CsvOptions(delimiter=delimiter.replace("\\t", "\t"), null_text=null_text)
    inputs = find_inputs([str(path)], None, csv)
    schema = infer_schema(inputs.locations, inputs.format, csv=csv)
    width = max((len(field.name) for field in schema), default=0)
    output.note(f"Fields by the first rows of {path}; with --schema you choose them yourself:")
    for field in schema:
        output.note(f"  {visible(field.name):{width}}  {field.type}")
    if levels := _levels(inputs.locations, path):
        output.note(
            f"Directories of {', '.join(levels)} are no fields. To have the files in place, with "
            f"these partitions: lakebed adopt {path} --partition-by {','.join(levels)}"
        )
    return schema


def _levels(locations: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Return the names of directories that tell a value, as Hive has them, without batches."""
    names: dict[str, None] = {}
    for location in locations:
        for level in Path(location).parts[len(folder.parts) : -1]:
            name, sign, _ = level.partition("=")
            if sign and name and name != BATCH_ID:
                names[visible(name)] = None
    return tuple(names)


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
    help="An Avro schema (.avsc, .json), or a Parquet file whose schema is taken.",
)
@click.option(
    "--like",
    "rows_file",
    type=click.Path(path_type=Path),
    help="In place of a schema: a file of such rows, or a directory of them, whose types are found "
    "and told; or a dataset of this machine, whose fields are taken.",
)
@click.option(
    "--null-text", default="", help="With --like: a text that stands for null in CSV, such as NA."
)
@click.option("--delimiter", default=",", help="With --like: between the cells of CSV.")
@click.option(
    "--partition-by",
    metavar="TEXT|FILE",
    help="Such as 'date(time_hour) as dt, hash(user_id, 64)', or a .json file in Kite's form.  "
    "[default: what the Avro schema says under 'partitions']",
)
@click.option(
    "--dimensions",
    "dimensions_file",
    type=click.Path(path_type=Path),
    help="A file such as telemetry_schema.json, whose dimensions are partitions; after --partition-by.",
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(FORMATS),
    default="parquet",
    show_default=True,
    help="Of the data files.",
)
@click.option(
    "--compression",
    type=click.Choice(sorted({name for names in COMPRESSIONS.values() for name in names})),
    help="Of the data files; each format has its own default.",
)
@click.option(
    "--index",
    multiple=True,
    metavar="COLUMN",
    help="A column to find files by, which the data is not sorted by. Repeatable.",
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
    help="What batch ids count, or the date that they are. For good.  [default: milliseconds]",
)
@click.option(
    "--head-format",
    type=click.Choice([head_format.value for head_format in HeadFormat]),
    default="json",
    show_default=True,
    help="json can be read by eye, msgpack.zstd is a sixth of the size.",
)
@click.option(
    "--if-exists",
    type=click.Choice(["error", "open"]),
    default="error",
    show_default=True,
    help="open: fine if it exists with an equal descriptor.",
)
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only check, and tell the types.")
def create(
    output: Output,
    *,
    repository: Repository,
    name: str,
    schema_file: Path | None,
    rows_file: Path | None,
    null_text: str,
    delimiter: str,
    partition_by: str | None,
    dimensions_file: Path | None,
    file_format: str,
    compression: str | None,
    index: tuple[str, ...],
    properties: Mapping[str, str],
    batch_ids: str | None,
    head_format: Literal["json", "msgpack.zstd"],
    if_exists: Literal["error", "open"],
    is_dry_run: bool,
) -> None:
    """Create a dataset, empty.

    Partitions by a part of a time alone, such as hour(ts), come again every day: an overwrite
    replaces that hour of all days. A note warns of it; use 'date(ts), hour(ts)' instead.
    """
    schema: str | pa.Schema | Schema
    if schema_file is not None and rows_file is None:
        schema = read_schema_file(schema_file)
    elif rows_file is not None and schema_file is None:
        schema = _infer_schema(output, rows_file, null_text, delimiter)
    else:
        message = "Give one of --schema and --like."
        raise click.UsageError(message, click.get_current_context())
    if batch_ids is not None:
        properties = {**properties, BATCH_IDS: str(batch_ids)}
    descriptor = DatasetDescriptor(
        schema=schema,
        partition_by=read_partitions(partition_by, dimensions_file),
        format=file_format,
        compression=compression,
        index=index,
        properties=properties,
    )
    if is_dry_run:
        descriptor.check()
        warn_of_repetition(name, descriptor.partition_by, descriptor.schema)
        output.note(f"Would create {repository.uri}/{name}.")
        return
    dataset = repository.create(name, descriptor, if_exists, head_format=head_format)
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
    help="A tree of partitions with what they hold; for programs, a row for each.",
)
def show(output: Output, *, place: Dataset | Repository, is_by_partition: bool) -> None:
    """Show what a lake or a dataset is and holds.

    LOCATION is LOCATION/NAME for a dataset, or a repository: then each dataset is a row.
    """
    if isinstance(place, Dataset):
        _show_dataset(output, place, is_by_partition=is_by_partition)
    elif is_by_partition:
        message = "--partitions is of one dataset: name it, as LOCATION/NAME."
        raise click.UsageError(message, click.get_current_context())
    else:
        show_lake(output, place)


def _show_dataset(output: Output, dataset: Dataset, *, is_by_partition: bool) -> None:
    if not is_by_partition:
        _show(output, dataset)
        if output.is_table:
            output.note(_next_step(dataset))
        return
    if output.is_table:
        output.rows(_TREE_COLUMNS, _tree_rows(dataset.name, dataset.partitions()))
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
        for partition in dataset.partitions()
    )
    output.rows(columns, rows)


def _next_step(dataset: Dataset) -> str:
    """Return the commands that a user may want after a look at a dataset."""
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
    "--last",
    "count",
    type=click.IntRange(min=1),
    help="Only the newest so many.  [default: all]",
)
def history(output: Output, *, repository: Repository, name: str, count: int | None) -> None:
    """List the commits of a dataset, oldest first."""
    dataset = repository.open(name)
    commits = dataset.history()
    if count is not None:
        commits = commits[-count:]
    if output.is_table:
        rows = (commit_record(commit) | {"rows": commit.rows_in_words()} for commit in commits)
        output.rows(HISTORY_COLUMNS, rows)
    else:
        output.rows(COMMIT_COLUMNS, (commit_record(commit) for commit in commits))
    for table in automatic_publications(dataset):
        if table.is_stale:
            output.note(f"Not published: {table}. The next commit tries again.")


@verb("list", example="lakebed list s3://bucket/lake --storage-option region=eu-west-1")
@click.argument("repository", envvar=REPOSITORY_VARIABLE)
@storage_option
def list_(output: Output, *, repository: str, storage_options: Mapping[str, str]) -> None:
    """List the datasets of a repository."""
    opened, dataset = find_lake(repository, storage_options)
    if dataset is not None:
        lake = shell_address(opened.uri)
        raise InvalidInputError(
            f"{repository!r} is a dataset, not a repository.",
            hint=f"`lakebed show {lake}/{dataset}` shows it, `lakebed list {lake}` its repository.",
        )
    names = opened.list()
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
    help="ignore: fine if there is none.",
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
    """Delete a dataset and all that it ever held.

    The result is what was deleted, or would be.
    """
    if if_missing == "ignore" and not repository.exists(name):
        output.note(f"There is no dataset {name!r} in {repository.uri}.")
        output.rows(_DROPPED_COLUMNS, ())
        return
    dataset = repository.open(name)
    objects = _objects_of(repository, name)
    total = f"{counted(len(objects), 'object')} of {counted(sum(objects.values()), 'byte')}"
    for _, note in published.read_each(repository.store, name):
        if isinstance(note, published.Shown):
            output.note(
                f"It is published as {note.title}, and queries of that will fail without its "
                "files: unpublish it first."
            )
    if is_dry_run:
        output.note(f"Would delete {total} of {dataset.uri}.")
    else:
        if not is_sure:
            click.confirm(f"Delete {total} of {dataset.uri}?", abort=True, err=True)
        repository.drop(name, if_missing=if_missing)
        output.note(f"Deleted {total} of {dataset.uri}.")
    output.rows(
        _DROPPED_COLUMNS,
        ({"key": key, "size_bytes": size_bytes} for key, size_bytes in objects.items()),
    )


def _objects_of(repository: Repository, name: str) -> dict[str, int]:
    """Return the keys and sizes of everything that belongs to a dataset."""
    store = repository.store
    heads = {head_format.key(name) for head_format in HeadFormat}
    sizes = {info.key: info.size_bytes for info in store.list(recursive=False) if info.key in heads}
    sizes.update((info.key, info.size_bytes) for info in store.list(f"{name}/"))
    return sizes


def _tree_rows(name: str, partitions: Sequence[Partition]) -> Iterator[dict[str, object]]:
    """Yield the dataset, then each directory level with its totals, indented by depth.

    Args:
        name: Of the dataset.
        partitions: In order of path.
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
