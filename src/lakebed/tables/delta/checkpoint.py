"""Checkpoints: the state of a Delta log after a commit, as one Parquet file.

Readers can do without one, since the commits hold the same. A checkpoint is therefore written after
its commit, and the commit is valid even if that write fails.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import ObjectNotFoundError
from lakebed.store.base import Store
from lakebed.tables import pointers
from lakebed.tables.delta.log import Log, checkpoint_in

if TYPE_CHECKING:
    from lakebed.tables.delta.sidecars import Sidecar

_TEXTS = pa.map_(pa.string(), pa.string())
_SCHEMA = pa.schema(
    [
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _TEXTS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                    ("stats", pa.string()),
                ]
            ),
        ),
        (
            "remove",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("deletionTimestamp", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("name", pa.string()),
                    ("description", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _TEXTS),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)

_ADD = _SCHEMA.field("add").type
_WITH_SIDECARS = pa.schema(
    [
        *_SCHEMA,
        ("checkpointMetadata", pa.struct([("version", pa.int64()), ("tags", _TEXTS)])),
        (
            "sidecar",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("sizeInBytes", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("tags", _TEXTS),
                ]
            ),
        ),
    ]
)

# Paths and statistics never repeat; a dictionary for them would take most of the time. Column
# bounds are left out because no reader skips rows of a checkpoint by them.
_REPEATED = ["add.partitionValues.key_value.key"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, not yet on storage.

    Attributes:
        data: The Parquet file.
        row_count: Number of actions in it.
        digest: Digest of the file. The commit records it, so that only this file is built upon.
    """

    data: pa.Buffer
    row_count: int
    digest: str


def encode(other_actions: Sequence[Mapping[str, Any]], adds: pa.ChunkedArray) -> Checkpoint:
    """Return a checkpoint.

    Args:
        other_actions: All actions except those of files.
        adds: All files, as `adds_column` returns them.
    """
    others = pa.Table.from_pylist([dict(action) for action in other_actions], schema=_SCHEMA)
    columns = [
        adds if name == "add" else pa.nulls(len(adds), _SCHEMA.field(name).type)
        for name in _SCHEMA.names
    ]
    table = pa.concat_tables([others, pa.table(columns, schema=_SCHEMA)])
    data = _parquet(table)
    return Checkpoint(data, table.num_rows, _digest(data))


def encode_of_sidecars(
    other_actions: Sequence[Mapping[str, Any]], sidecars: Sequence[Sidecar], number: int
) -> Checkpoint:
    """Return a checkpoint whose files are in sidecars.

    Args:
        other_actions: All actions except those of files.
        sidecars: The sidecars, which are on storage.
        number: Number of the commit before the checkpoint.
    """
    actions = [
        {"checkpointMetadata": {"version": number}},
        *(dict(action) for action in other_actions),
        *(sidecar.action() for sidecar in sidecars),
    ]
    data = _parquet(pa.Table.from_pylist(actions, schema=_WITH_SIDECARS))
    count = len(actions) + sum(sidecar.file_count for sidecar in sidecars)
    return Checkpoint(data, count, _digest(data))


def encode_adds(adds: pa.ChunkedArray) -> pa.Buffer:
    """Return the bytes of a sidecar.

    Args:
        adds: Its files, as `adds_column` returns them.
    """
    return _parquet(pa.table({"add": adds}))


def _parquet(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression="snappy", use_dictionary=_REPEATED, write_statistics=False
    )
    return sink.getvalue()


def write(store: Store, log: Log, number: int, checkpoint: Checkpoint) -> None:
    """Write the checkpoint after a commit.

    Cost:
        Two PUTs and one GET.
    """
    store.put(log.checkpoint_key(number), checkpoint.data)
    last = {
        "version": number,
        "size": checkpoint.row_count,
        "sizeInBytes": checkpoint.data.size,
    }
    pointers.point(
        store,
        log.pointer,
        msgspec.json.encode(last),
        is_enough=lambda data: _leads_to(log, data, least=number),
    )


def _leads_to(log: Log, data: bytes, *, least: int) -> bool:
    led_to = checkpoint_in(data)
    return led_to is not None and led_to >= least and log.has_checkpoint(led_to)


def read_adds(
    store: Store, log: Log, number: int, digest: str, *, without: Sequence[str] = ()
) -> pa.ChunkedArray | None:
    """Return the files that a checkpoint names; None if it is missing or has another digest.

    The rows stay in Arrow columns and do not become Python objects.

    Args:
        store: The store that holds the log.
        log: The log of the table.
        number: Number of the commit before the checkpoint.
        digest: Digest of the checkpoint, as the commit records it.
        without: Paths of files to leave out.

    Cost:
        The checkpoint, in memory.
    """
    source = open_known(store, log, number, digest)
    if source is None:
        return None
    adds = pq.ParquetFile(source).read(["add"]).column("add").cast(_ADD)
    adds = adds.slice(adds.null_count)  # rows of other actions come first
    if not without:
        return adds
    removed = pa.array(without, pa.string())
    return pa.chunked_array(
        [
            chunk.filter(pc.invert(pc.is_in(chunk.field("path"), value_set=removed)))
            for chunk in adds.chunks
        ],
        _ADD,
    )


def open_known(store: Store, log: Log, number: int, digest: str) -> pa.BufferReader | None:
    """Return a checkpoint in memory; None if it is missing or has another digest.

    Args:
        store: The store that holds the log.
        log: The log of the table.
        number: Number of the commit before the checkpoint.
        digest: Digest of the checkpoint, as the commit records it.

    Cost:
        The checkpoint.
    """
    try:
        data = store.get(log.checkpoint_key(number)).data
    except ObjectNotFoundError:
        return None
    return pa.BufferReader(data) if _digest(data) == digest else None


def _digest(data: pa.Buffer | bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def adds_column(adds: Sequence[Mapping[str, Any]]) -> pa.ChunkedArray:
    """Return actions that add files as a column, with `dataChange` false in each."""
    columns = []
    for member in _ADD:
        if member.name == "partitionValues":
            values = pa.array([list(add["partitionValues"].items()) for add in adds], _TEXTS)
        elif member.name == "dataChange":
            values = pa.array([False] * len(adds), member.type)
        else:
            values = pa.array([add[member.name] for add in adds], member.type)
        columns.append(values)
    return pa.chunked_array([pa.StructArray.from_arrays(columns, fields=list(_ADD))])
