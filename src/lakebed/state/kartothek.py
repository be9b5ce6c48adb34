"""Datasets that Kartothek or plateau wrote: their schema file, implicit partitions, keys.

Source:
    The Kartothek specification, and facts seen in plateau 4.6.2 and kartothek 5.3.0.
"""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import types as pat

from lakebed.errors import (
    CorruptMetadataError,
    DatasetNotFoundError,
    ObjectNotFoundError,
    SchemaMismatchError,
    UnsupportedVersionError,
)
from lakebed.model.arrow_types import schema_from_arrow, schema_to_arrow, type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import split_label
from lakebed.model.layout import TABLE, Folder, Layout, Naming, schema_key
from lakebed.model.schema import Schema, Type
from lakebed.state.codec import annotations_of, creation_time_of
from lakebed.state.head import (
    UNREAD_FORMATS,
    HeadDocument,
    HeadFormat,
    PartitionEntry,
    checked_labels,
    read_entries,
    unread_format_error,
)
from lakebed.state.state import Listed, State
from lakebed.store.base import Store


def read_foreign(
    store: Store, document: HeadDocument, head_format: HeadFormat, key: str, table: str = ""
) -> State:
    """Read the state of a dataset that another tool created; it can be read, not written.

    Args:
        store: The store that holds the dataset.
        document: The head.
        head_format: Format of the head.
        key: Key of the head.
        table: Name of the table to read; empty for the only one.

    Cost:
        One GET for the schema; a LIST if the head names no partitions.

    Raises:
        CorruptMetadataError: The schema file is missing or cannot be read.
        UnsupportedVersionError: The dataset has several tables, and `table` is empty.
        DatasetNotFoundError: The dataset does not have the table.
    """
    entries = read_entries(document, key)
    if entries is None:
        entries = _list_partitions(store, document.dataset_uuid)
    table = _table_of(entries, store, document.dataset_uuid, table)
    # Leave out the files of the other tables; a label need not have a file in every table.
    own = {
        label: PartitionEntry({name: file for name, file in entry.files.items() if name == table})
        for label, entry in entries.items()
        if table in entry.files or not entry.files
    }
    labels = checked_labels(own, Naming(document.dataset_uuid, table, ".parquet"), key)
    schema = _read_schema(store, schema_key(document.dataset_uuid, table))
    keys = document.partition_keys
    if keys is None:
        keys = _infer_keys(labels)
    for name in keys:
        if name not in schema:
            raise CorruptMetadataError(
                f"Partition key {name!r} of head {key!r} is not in the schema.",
                hint=f"Columns are: {', '.join(schema.names)}.",
            )
    return State(
        layout=Layout(
            name=document.dataset_uuid,
            table=table,
            descriptor=DatasetDescriptor.of_other_tool(schema),
            partition_keys=tuple(keys),
            is_ours=False,
        ),
        head_format=head_format,
        live=Listed(labels),
        created_at=creation_time_of(document),
        annotations=annotations_of(document),
        indices={k: v for k, v in (document.indices or {}).items() if isinstance(v, str)},
    )


def _list_partitions(store: Store, dataset: str) -> dict[str, PartitionEntry]:
    """Return each Parquet file of a table as a partition; files under `indices` are not partitions."""
    partitions: dict[str, PartitionEntry] = {}
    for info in store.list(f"{dataset}/"):
        table, _, rest = info.key.removeprefix(f"{dataset}/").partition("/")
        if rest.endswith(UNREAD_FORMATS) and table != Folder.INDICES:
            raise unread_format_error(dataset, info.key)
        if rest.endswith(".parquet") and table != Folder.INDICES:
            label = rest.removesuffix(".parquet")
            partitions.setdefault(label, PartitionEntry({})).files[table] = info.key
    return partitions


def _table_of(
    entries: Mapping[str, PartitionEntry], store: Store, dataset: str, wanted: str
) -> str:
    """Return the table to read: the wanted one, or the only one."""
    tables = sorted({table for entry in entries.values() for table in entry.files})
    if not tables:
        tables = [table for table in ("table", TABLE) if _has_schema(store, dataset, table)][:1]
    if wanted and wanted not in tables:
        if not _has_schema(store, dataset, wanted):
            raise no_such_table(dataset, wanted, tables)
        return wanted
    if len(tables) > 1 and not wanted:
        named = ", ".join(f"{dataset}:{table}" for table in tables)
        raise UnsupportedVersionError(
            f"Dataset {dataset!r} has several tables: {', '.join(tables)}.",
            hint=f"Open one of them: {named}.",
        )
    return wanted or (tables[0] if tables else "table")


def _has_schema(store: Store, dataset: str, table: str) -> bool:
    try:
        store.size(schema_key(dataset, table))
    except ObjectNotFoundError:
        return False
    return True


def no_such_table(dataset: str, table: str, known: Iterable[str]) -> DatasetNotFoundError:
    """Return the error for a table that a dataset does not have."""
    named = ", ".join(f"{dataset}:{one}" for one in known)
    return DatasetNotFoundError(
        f"Dataset {dataset!r} has no table {table!r}.", hint=f"There is {named or 'none yet'}."
    )


def _read_schema(store: Store, key: str) -> Schema:
    import pyarrow.parquet as pq

    try:
        data = store.get(key).data
    except ObjectNotFoundError as exc:
        raise _unreadable(key, exc) from exc
    try:
        schema = pq.read_schema(pa.BufferReader(data))
        return schema_from_arrow(_without_null_types(schema), strict_names=False)
    # Arrow raises OSError for most damage of a footer, and ValueError for its texts.
    except (pa.ArrowException, OSError, ValueError, SchemaMismatchError) as exc:
        raise _unreadable(key, exc) from exc


def _unreadable(key: str, exc: Exception) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Schema file {key!r} cannot be read: {exc}",
        hint="Restore the object from a copy; the data files were not touched.",
    )


def _without_null_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with text columns for those that were null in every file so far."""
    fields = [f.with_type(pa.string()) if pat.is_null(f.type) else f for f in schema]
    return pa.schema(fields)


def _infer_keys(labels: Iterable[str]) -> list[str]:
    for label in labels:
        directory = split_label(label)[0]
        names = [level.partition("=")[0] for level in directory.split("/") if level]
        return [urllib.parse.unquote(name) for name in names]
    return []


def encode_schema(schema: Schema, partition_types: Mapping[str, Type]) -> bytes:
    """Return the schema file that plateau and kartothek need to read a dataset of ours.

    Column order and types follow their conventions: partition keys first, the others by name;
    numbers in 64 bits. They cannot read the dataset without the `pandas` entry.

    Args:
        schema: Schema of the entities.
        partition_types: Types of the directory levels in order, `batch_id` last.
    """
    import pyarrow.parquet as pq

    schema = schema.as_stored()  # those tools know the names in data files only
    arrow = schema_to_arrow(schema)
    rest = sorted(name for name in schema.names if name not in partition_types)
    fields = [
        pa.field(name, _key_type(type_to_arrow(kind))) for name, kind in partition_types.items()
    ]
    fields += [pa.field(name, _normalised(arrow.field(name).type)) for name in rest]
    pandas = {
        "index_columns": [],
        "column_indexes": [],
        "columns": [_pandas_column(f) for f in fields],
        "pandas_version": "1.0.0",
    }
    sink = pa.BufferOutputStream()
    pq.write_metadata(
        pa.schema(fields, metadata={"pandas": json.dumps(pandas)}), sink, version="2.6"
    )
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _normalised(kind: pa.DataType) -> pa.DataType:
    if pat.is_signed_integer(kind):
        return pa.int64()
    if pat.is_unsigned_integer(kind):
        return pa.uint64()
    if pat.is_floating(kind):
        return pa.float64()
    if pat.is_list(kind):
        return pa.list_(_normalised(kind.value_type))
    return kind


def _key_type(kind: pa.DataType) -> pa.DataType:
    """Drop the time zone: other tools cannot read a key with one, and the path holds UTC anyway."""
    return pa.timestamp("us") if pat.is_timestamp(kind) else _normalised(kind)


_PANDAS_TYPES = (
    (pat.is_string, ("unicode", "object")),
    (pat.is_binary, ("bytes", "object")),
    (pat.is_boolean, ("bool", "bool")),
    (pat.is_date, ("date", "object")),
    (pat.is_decimal, ("decimal", "object")),
)


def _pandas_column(field: pa.Field) -> dict[str, Any]:
    kind = field.type
    pandas_type, numpy_type = str(kind), str(kind)
    metadata = None
    for matches, names in _PANDAS_TYPES:
        if matches(kind):
            pandas_type, numpy_type = names
    if pat.is_list(kind):
        element = _pandas_column(pa.field("element", kind.value_type))
        pandas_type, numpy_type = f"list[{element['pandas_type']}]", "object"
    elif pat.is_timestamp(kind):
        pandas_type, numpy_type = ("datetimetz" if kind.tz else "datetime"), "datetime64[ns]"
        metadata = {"timezone": kind.tz} if kind.tz else None
    elif pat.is_float64(kind):
        pandas_type = numpy_type = "float64"
    elif pat.is_nested(kind):
        pandas_type, numpy_type = "object", "object"
    elif pat.is_decimal(kind):
        metadata = {"precision": kind.precision, "scale": kind.scale}
    return {
        "name": field.name,
        "field_name": field.name,
        "pandas_type": pandas_type,
        "numpy_type": numpy_type,
        "metadata": metadata,
    }
