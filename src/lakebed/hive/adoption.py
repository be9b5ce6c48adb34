"""Adopt: take Parquet files that are there as a dataset, where they lie.

A dataset refers to objects in its own directory only. So a table can be adopted in place if its
files lie in a directory of the repository: that one becomes the dataset's, its name the dataset's
name. The head is written beside it, new batches go into it, and no file is moved or opened for
more than its footer.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import urllib.parse
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed import by
from lakebed.arrow.formats.parquet import column_facts
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    LakebedError,
    NotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.hive.directories import root_of
from lakebed.hive.footers import difference, read_footers
from lakebed.hive.metastore import Metastore, plain_location
from lakebed.hive.session import session_of
from lakebed.hive.table import TableName
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import (
    BATCH_ID,
    NULL_VALUE,
    adopted_file_name,
    encode_level,
    encode_path,
)
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import TRUE
from lakebed.model.schema import Field, Kind, Primitive, Schema, Type
from lakebed.model.spark_types import schema_from_spark
from lakebed.model.values import Scalar, parse_value
from lakebed.state import file_table
from lakebed.state.facts import FileFacts, facts_table
from lakebed.state.scope import Unchanged
from lakebed.state.state import Change
from lakebed.state.transaction import CommitOptions, commit_change, read_own_head
from lakebed.store.base import Store, delete_or_leave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BATCH_LEVEL = re.compile(rf"{BATCH_ID}=([0-9]{{1,18}})")
_SEGMENT = re.compile(r"[0-9]{10}-[0-9a-f]{32}\.[a-z.]+")
# Directories of a dataset that are not for the files of others.
_OWN_FOLDERS = frozenset(
    "batches cleanup files history hive indices postings runs signals sources staging".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file to adopt.

    Attributes:
        key: Where it is.
        size_bytes: Its length.
        texts: Of each partition field, its value as text; None for null.
        batch_id: Of the directory that it lies in; None if that names none.
    """

    key: str
    size_bytes: int
    texts: Mapping[str, str | None]
    batch_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What was found to adopt; `lakebed adopt --dry-run` shows it.

    Attributes:
        name: Of the dataset.
        descriptor: What it will be.
        files: In order of key.
        facts: Of the files; see `lakebed.state.facts`.
        batch_id: Of files whose directories name none.
    """

    name: str
    descriptor: DatasetDescriptor
    files: tuple[FoundFile, ...]
    facts: pa.Table
    batch_id: int


def find_adoption(
    store: Store,
    name: str,
    source: str | os.PathLike[str] | None,
    partition_by: Mapping[str, str] | Iterable[str] | str,
    metastore: SparkSession | str | os.PathLike[str] | None,
) -> Adoption:
    """Look at what is to be adopted, and prove that it can be; nothing is written.

    Args:
        store: Of the repository.
        name: Of the dataset, and of its directory.
        source: A table, as `database.table`; the directory; or None for `<repository>/<name>`.
        partition_by: Of a directory: names of partition fields, in order, each perhaps with its
            type, as in `"dt date, carrier"`; strings otherwise.
        metastore: Of a table; see `Dataset.publish`.
    """
    if source is not None and _is_table(source):
        partitions, keys, schema = _partitions_of_table(store, name, str(source), metastore)
    else:
        home = name if source is None else _key_of(store, name, str(os.fspath(source)))
        keys, schema = _parse_keys(partition_by), None
        partitions = [(home, None)]
    files = tuple(
        sorted(
            (file for home, texts in partitions for file in _files(store, home, keys, texts)),
            key=lambda file: file.key,
        )
    )
    if not files:
        raise NotFoundError(
            f"There is no file to adopt in {store.uri}/{name}.",
            hint="Name the directory that holds the partitions, or create a dataset.",
        )
    return _proven(store, name, files, keys, schema)


def _is_table(source: str | os.PathLike[str]) -> bool:
    return isinstance(source, str) and re.fullmatch(r"\w+(\.\w+)?", source) is not None


def _parse_keys(partition_by: Mapping[str, str] | Iterable[str] | str) -> dict[str, Type]:
    if isinstance(partition_by, str):
        partition_by = [part for part in partition_by.split(",") if part.strip()]
    if isinstance(partition_by, Mapping):
        partition_by = [f"{name} {kind}" for name, kind in partition_by.items()]
    found: dict[str, Type] = {}
    for text in partition_by:
        name, _, kind = text.strip().partition(" ")
        try:
            found[name] = Primitive(Kind(kind.strip().lower() or "string"))
        except ValueError as exc:
            raise PartitionSpecError(
                f"Unknown type {kind.strip()!r} of partition field {name!r}.",
                hint=f"Known are: {', '.join(Kind)}.",
            ) from exc
    return found


def _key_of(store: Store, name: str, location: str) -> str:
    """Return the key of a directory that must be the dataset's, or lie in it."""
    root = root_of(store, None)
    if ":" not in location.partition("/")[0]:
        location = f"file://{os.path.abspath(location)}"  # noqa: PTH100 - links in it must stay
    here = re.sub(r"^s3a?://", "s3a://", plain_location(location))
    key = here.removeprefix(f"{root}/")
    if key != here and (key == name or key.startswith(f"{name}/")):
        return key
    parent, _, directory = here.rpartition("/")
    raise InvalidInputError(
        f"{here} cannot be adopted in place as {name!r}: a dataset refers only to files in its own "
        f"directory, {root}/{name}.",
        hint=f"Open the repository {parent} and adopt it there under the name {directory!r}; or "
        "read it in with append.",
    )


def _partitions_of_table(
    store: Store,
    name: str,
    source: str,
    metastore: SparkSession | str | os.PathLike[str] | None,
) -> tuple[list[tuple[str, Mapping[str, str | None] | None]], dict[str, Type], Schema]:
    """Return the directory of each partition of a table, with its values."""
    table = TableName.parse(source)
    spark = session_of(metastore)
    reached = Metastore(spark, table)
    with reached.settings():
        found = reached.find()
        if found is None:
            raise NotFoundError(
                f"There is no table {str(table)!r}.", hint="SHOW TABLES lists what there is."
            )
        schema = schema_from_spark(spark.table(str(table)).schema.jsonValue())
        keys = {one.name: schema.get(one.name).type for one in found.columns.keys}
        if not keys:
            return [(_key_of(store, name, found.location), None)], keys, schema
        locations = reached.locations(found.columns.keys)
    partitions: list[tuple[str, Mapping[str, str | None] | None]] = []
    for spec, location in locations.items():
        texts = spec.values()
        values = {key: texts[key.lower()] for key in keys}
        partitions.append((_key_of(store, name, location), values))
    return partitions, keys, schema


def _files(
    store: Store,
    home: str,
    keys: Mapping[str, Type],
    texts: Mapping[str, str | None] | None,
) -> Iterator[FoundFile]:
    """Yield the files under a directory: of a partition if its values are known, else of a table."""
    levels_of_home = home.split("/")[1:]
    if levels_of_home and levels_of_home[0] in _OWN_FOLDERS:
        raise InvalidInputError(
            f"{home!r} cannot be adopted: {levels_of_home[0]}/ is the dataset's own.",
            hint="Rename the directory.",
        )
    _check_no_links(store, home)
    for info in store.list(f"{home}/"):
        *levels, file = info.key[len(home) + 1 :].split("/")
        if any(level.startswith(("_", ".")) for level in (*levels, file)):
            continue  # as Spark and Hive do
        if not levels_of_home and levels and levels[0] in _OWN_FOLDERS and _SEGMENT.fullmatch(file):
            continue  # of an attempt to adopt it that came to nothing
        batch = levels_of_home[-1] if texts is not None and levels_of_home else ""
        if levels and _BATCH_LEVEL.fullmatch(levels[-1]):
            batch = levels.pop()
        match = _BATCH_LEVEL.fullmatch(batch)
        if texts is not None and levels:
            raise _strange(info.key, "it lies deeper than its partition")
        yield FoundFile(
            key=info.key,
            size_bytes=info.size_bytes,
            texts=_texts(info.key, levels, keys) if texts is None else texts,
            batch_id=int(match[1]) if match else None,
        )


def _check_no_links(store: Store, home: str) -> None:
    """Refuse what a listing leaves out: its rows would be missing without a word."""
    place = store.local_path(home)
    if place is None:
        return
    for directory, folders, names in os.walk(place):
        for name in (*folders, *names):
            path = os.path.join(directory, name)  # noqa: PTH118 - of each file of a table
            if os.path.islink(path):  # noqa: PTH114
                raise InvalidInputError(
                    f"{path!r} is a symbolic link, and cannot be adopted: a dataset refers only to "
                    "files in its own directory.",
                    hint="Put what it leads to in its place, or remove the link.",
                )


def _texts(key: str, levels: Sequence[str], keys: Mapping[str, Type]) -> dict[str, str | None]:
    pairs = [level.partition("=") for level in levels]
    names = [urllib.parse.unquote(name) for name, _, _ in pairs]
    if names != list(keys) or not all(sign for _, sign, _ in pairs):
        wanted = "/".join(f"{one}=…" for one in keys) or "the directory itself"
        raise _strange(key, f"it does not lie in {wanted}")
    return {
        name: None if value == NULL_VALUE else urllib.parse.unquote(value)
        for name, (_, _, value) in zip(names, pairs, strict=True)
    }


def _strange(key: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{key!r} cannot be adopted: {reason}.",
        hint="Say how the directory is partitioned, and move other files out of it.",
    )


def _proven(
    store: Store,
    name: str,
    files: tuple[FoundFile, ...],
    keys: Mapping[str, Type],
    schema: Schema | None,
) -> Adoption:
    footers = read_footers(store, [file.key for file in files])
    if schema is None:
        schema = _schema_of(footers, keys)
    strategy = PartitionStrategy(tuple(by.identity(key) for key in keys))
    descriptor = DatasetDescriptor(schema=schema, partition_by=strategy)
    stored = descriptor.stored_schema
    for key, footer in footers.items():
        reason = difference(footer, stored)
        if reason:
            raise SchemaMismatchError(
                f"{key!r} does not fit the schema of the others: {reason}.",
                hint="Nothing was written. Read the files in with append, which converts them.",
            )
    now = dt.datetime.now(dt.UTC)
    batch_id = int(now.timestamp() * 1000)
    facts = [
        FileFacts(
            label=_label(file, keys, batch_id),
            row_count=footers[file.key].num_rows,
            size_bytes=file.size_bytes,
            checksum="",  # nobody has read the whole file
            columns={
                column: known
                for column, known in column_facts(footers[file.key]).items()
                if column in stored and stored.get(column).type not in _UNCERTAIN
            },
        )
        for file in files
    ]
    return Adoption(
        name=name,
        descriptor=descriptor,
        files=files,
        facts=facts_table(facts, stored),
        batch_id=batch_id,
    )


# Bounds of these may be those of another writer's notion of order.
_UNCERTAIN = (Primitive(Kind.STRING), Primitive(Kind.BYTES))


def _schema_of(footers: Mapping[str, pq.FileMetaData], keys: Mapping[str, Type]) -> Schema:
    """Return the fields of the first file, and of later ones those that it lacks; then the keys."""
    fields: dict[str, pa.Field] = {}
    for footer in footers.values():
        for field in footer.schema.to_arrow_schema():
            if field.name not in keys:
                fields.setdefault(field.name, field.with_nullable(True))  # noqa: FBT003 - Arrow's form
    found = schema_from_arrow(pa.schema([_plain(field) for field in fields.values()]))
    own = tuple(Field(name=name, type=kind) for name, kind in keys.items())
    return Schema(fields=(*found.fields, *own))


def _plain(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind):
        # INT96 names no zone, but Spark means an instant by it.
        zone = "UTC" if kind.unit == "ns" else kind.tz
        kind = pa.timestamp("us", zone)
    return field.with_type(kind)


def _label(file: FoundFile, keys: Mapping[str, Type], batch_id: int) -> str:
    values: dict[str, Scalar] = {}
    for name, kind in keys.items():
        text = file.texts[name]
        try:
            values[name] = None if text is None else parse_value(text, kind, name)
        except InvalidInputError as exc:
            raise _strange(file.key, f"{exc.message.rstrip('.')}") from exc
    found = batch_id if file.batch_id is None else file.batch_id
    if found > batch_id:
        raise _strange(file.key, f"its batch {found} has not begun yet")
    path = file.key.partition("/")[2]
    directory = "/".join(filter(None, (encode_path(values), encode_level(BATCH_ID, found))))
    return f"{directory}/{adopted_file_name(path)}"


def commit_adoption(
    store: Store, dataset: str, adoption: Adoption, options: CommitOptions | None = None
) -> None:
    """Make the files that were found the first version of a dataset that was just created.

    Whatever happens, no file of the table is deleted: the commit has no batch of its own.

    Raises:
        CommitConflictError: Somebody has written to the dataset, or adopted the files, meanwhile.
        CommitUnknownError: The store stopped answering.
    """
    created = read_own_head(store, dataset).state
    if created.version:
        raise CommitConflictError(
            f"Dataset {dataset!r} was written to before its files could be adopted.",
            hint="Its files are its own; there is nothing to adopt.",
            expected=0,
            actual=created.version,
        )
    segment = file_table.new_segment(dataset, adoption.facts)
    labels, rows = file_table.labels_and_rows(adoption.facts)
    assert segment is not None  # there is at least one file
    store.put(segment.key, file_table.encode(adoption.facts))
    change = Change(
        operation="adopt",
        commit_id=uuid.uuid4().hex,
        base_version=created.version,
        batch_id=adoption.batch_id,
        added=labels,
        row_count=rows,
        facts=segment,
        # Two adoptions at once find the same files.
        scope=Unchanged(TRUE, created.partition_level_types),
    )
    try:
        commit_change(store, created, change, options)
    except LakebedError as exc:
        if exc.code != "commit-unknown":
            delete_or_leave(store, [segment.key])
        raise
