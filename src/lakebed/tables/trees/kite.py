"""Kite's datasets on a file system: `<namespace>/<name>/userId_hash=15/<uuid>.avro`.

The folder `.metadata` describes a dataset: properties with the partition expression, and all its
schemas, old and new. Kite is lenient with paths: `day=5`, `day=05` and `05` are one partition.
"""

from __future__ import annotations

import json
import math
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.arrow.footers import difference
from lakebed.arrow.formats.avro_files import AvroReader
from lakebed.arrow.older import constant
from lakebed.arrow.workers import Workers
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    ObjectNotFoundError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import encode_level, encode_path
from lakebed.model.kite_forms import parse_expression, parse_properties
from lakebed.model.layout import Layout
from lakebed.model.schema import MISSING, SMALLINT, TINYINT, Kind, Primitive, Schema, Type
from lakebed.model.values import Scalar, parse_value
from lakebed.store.base import Store
from lakebed.tables.trees.found import ForeignTree, TreeFile, adoption_of, check_folder
from lakebed.work.adoption import Adoption, check_all_listed

METADATA = ".metadata"
PROPERTIES = "descriptor.properties"
SCHEMAS, SCHEMA = "schemas", "schema.avsc"
_OWN_PROPERTIES = frozenset(
    {"version", "format", "compressionType", "location", "partitionExpression"}
)
_SCHEMA_FILE = re.compile(r"([0-9]{1,9})\.avsc")
_NUMBER = re.compile(r"[+-]?[0-9]+")
_WHOLE = {TINYINT, SMALLINT, Primitive(Kind.INT), Primitive(Kind.LONG)}
_COMPRESSIONS = {
    ("avro", "deflate"): "deflate",
    ("avro", "bzip2"): "bzip2",
    ("parquet", "deflate"): "gzip",
}


def find_kite(
    store: Store,
    metadata: Store,
    name: str,
    *,
    on_progress: OnProgress = NO_PROGRESS,
    workers: Workers | None = None,
) -> Adoption:
    """Prepare the adoption of a dataset of Kite, and check all its files.

    Args:
        store: The store of the repository.
        metadata: A store for the directory `.metadata` alone, whose name is not a valid key.
        name: Name of the dataset and of its directory.
        on_progress: Callback for progress; receives the number of files read so far.
        workers: Workers that read the files; None for threads.

    Raises:
        NotFoundError: There is no such dataset, or it has no data.
        FormatError: Its metadata cannot be read.
        InvalidInputError: A file lies in the wrong partition, or is a symbolic link.
    """
    descriptor = read_descriptor(metadata, name)
    layout = Layout.of_ours(name, descriptor)
    strategy = descriptor.partition_by
    tree = ForeignTree()
    check_all_listed(store, name)
    for info in store.list(f"{name}/"):
        *levels, file = info.key.removeprefix(f"{name}/").split("/")
        if any(level.startswith((".", "_")) for level in (*levels, file)):
            continue  # Kite hides such files
        if len(levels) != len(strategy):
            tree.left.append((info, f"Kite reads files {len(strategy)} directories deep"))
            continue
        check_folder(info.key, name)
        values = {
            level: _value(text, layout.partition_types[level], level, info.key)
            for level, text in zip(layout.partition_level_types, levels, strict=True)
        }
        tree.files.append(TreeFile(info=info, partition=encode_path(values)))
    return adoption_of(
        store,
        name,
        descriptor,
        tree,
        lambda file, data: _count_rows(layout, file, data),
        on_progress,
        workers,
    )


def read_descriptor(metadata: Store, name: str) -> DatasetDescriptor:
    """Return the descriptor of a dataset of Kite.

    Args:
        metadata: The store of its directory `.metadata`.
        name: Name of the dataset.

    Raises:
        NotFoundError: There is no metadata.
        FormatError: The metadata cannot be read.
        InvalidInputError: The format of the dataset is not supported.
        SchemaMismatchError: The schema is not a record, or a type is not supported.
        PartitionSpecError: The strategy does not fit the schema.

    Cost:
        One LIST and two GETs.
    """
    try:
        text = _text(metadata, PROPERTIES)
    except ObjectNotFoundError as exc:
        raise NotFoundError(
            f"There is no dataset of Kite in {metadata.uri}.",
            hint=f"The metadata must hold {PROPERTIES}; adopt other files without --kite.",
        ) from exc
    properties = parse_properties(text)
    document = _schema_document(metadata)
    written = properties.get("format", "avro")
    if written not in ("avro", "parquet"):
        raise InvalidInputError(
            f"Dataset {name!r} of Kite has the format {written!r}.",
            hint="Avro and Parquet can be adopted; read other files in with import.",
        )
    expression = properties.get("partitionExpression")
    compression = properties.get("compressionType", "snappy")
    return DatasetDescriptor(
        schema=document,
        partition_by=None if expression is None else parse_expression(expression),
        format=written,
        compression=_COMPRESSIONS.get((written, compression), compression),
        properties={key: value for key, value in properties.items() if key not in _OWN_PROPERTIES},
    )


def _schema_document(metadata: Store) -> Mapping[str, object]:
    """Return the current Avro schema: the one with the highest number, or that of old datasets."""
    prefix = f"{SCHEMAS}/"
    numbered = {
        int(match[1]): info.key
        for info in metadata.list(prefix)
        if (match := _SCHEMA_FILE.fullmatch(info.key.removeprefix(prefix)))
    }
    key = numbered[max(numbered)] if numbered else SCHEMA
    try:
        document = json.loads(_text(metadata, key))
    except (ValueError, RecursionError) as exc:
        raise FormatError(
            f"The schema {key!r} is not valid JSON: {exc}.", hint="Restore it."
        ) from exc
    except ObjectNotFoundError as exc:
        msg = f"There is no schema {key!r} in {metadata.uri}."
        raise NotFoundError(msg, hint="Restore it, beside descriptor.properties.") from exc
    if not isinstance(document, Mapping):
        raise SchemaMismatchError(
            f"The schema {key!r} is not a record.",
            hint="Adopt datasets of records, whose fields become the columns.",
        )
    return document


def _text(store: Store, key: str) -> str:
    try:
        return store.get(key).data.decode()
    except UnicodeDecodeError as exc:
        raise FormatError(f"{key!r} is not valid UTF-8: {exc}.", hint="Restore it.") from exc


def _value(level: str, kind: Type, name: str, key: str) -> Scalar:
    """Return the value of a directory as Kite reads it: the text after the last `=`."""
    text = urllib.parse.unquote_plus(level.rpartition("=")[2], errors="replace")
    try:
        if kind not in _WHOLE:
            return parse_value(text, kind, name)
        # Python also accepts 1_0 and " 5"; Kite does not.
        return int(text) if _NUMBER.fullmatch(text) else parse_value(text, kind, name)
    except (ValueError, InvalidInputError) as exc:
        raise InvalidInputError(
            f"{key!r} cannot be adopted: {text!r} is not a value of {name!r}, of type {kind}.",
            hint="Nothing was written. Move the file out of the dataset.",
        ) from exc


def _count_rows(layout: Layout, file: TreeFile, data: pa.Buffer) -> int:
    """Return the number of rows of a file, and check that all are in the right partition."""
    descriptor, row_count = layout.descriptor, 0
    types = layout.partition_level_types
    values = layout.directory_values(f"{file.partition}/batch_id=0".lstrip("/"))
    provided = {
        function.name: values[function.name]
        for function in descriptor.partition_by
        if not function.takes_source
    }
    for batch in _batches(layout, data):
        row_count += batch.num_rows
        arrays = descriptor.partition_by.arrays(batch, descriptor.schema, provided)
        for name, array in zip(types, arrays, strict=True):
            value = values[name]
            is_nan = isinstance(value, float) and math.isnan(value)
            same = pc.is_nan(array) if is_nan else pc.equal(array, pa.scalar(value, array.type))
            if not pc.all(pc.fill_null(same, False)).as_py():  # noqa: FBT003 - Arrow's form
                position = pc.index(pc.fill_null(same, False), False).as_py()  # noqa: FBT003
                level = encode_level(name, array[position].as_py())
                raise InvalidInputError(
                    f"it holds a row of {level} in {encode_level(name, value)}", hint=""
                )
    return row_count


def _batches(layout: Layout, data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file under the current schema."""
    names = layout.descriptor.stored_schema.names
    for batch in _stored_batches(layout, data):
        yield batch.rename_columns(list(names))


def _stored_batches(layout: Layout, data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file under the names that data files have."""
    stored = layout.descriptor.file_schema
    if layout.descriptor.format == "avro":
        yield from AvroReader().batches(pa.BufferReader(data), stored)
        return
    try:
        with pq.ParquetFile(pa.BufferReader(data)) as parquet:
            # A file of an older schema may lack fields that have a default now.
            fields = tuple(
                replace(field, nullable=field.nullable or field.default is not MISSING)
                for field in stored
            )
            reason = difference(parquet.metadata, Schema(fields=fields))
            if reason:
                raise SchemaMismatchError(reason, hint="")
            for batch in parquet.iter_batches():
                yield _as_wanted(batch, stored)
    except (pa.ArrowException, OSError) as exc:
        raise InvalidInputError(f"it cannot be read as Parquet: {exc}", hint="") from exc


def _as_wanted(batch: pa.RecordBatch, wanted: Schema) -> pa.RecordBatch:
    columns = [
        batch.column(column.name).cast(column.type)
        if column.name in batch.schema.names
        else constant(
            None if field.default is MISSING else field.default, field.type, batch.num_rows
        )
        for field, column in zip(wanted, schema_to_arrow(wanted), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(wanted.names))
