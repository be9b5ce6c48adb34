"""Checkpoints: all that a Delta log says after a commit, as one Parquet file.

Readers need not have one: the commits tell the same. So it is written after the commit, and if
that fails the commit is as good as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.delta.log import LAST_CHECKPOINT, Log
from lakebed.errors import ObjectNotFoundError
from lakebed.store.base import Store

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


def write(
    store: Store, log: Log, number: int, rest: Sequence[Mapping[str, Any]], adds: pa.StructArray
) -> None:
    """Write the checkpoint after a commit.

    Args:
        store: Where the log is.
        log: Of the table.
        number: Of the commit.
        rest: Actions that are no files.
        adds: All files, as `adds_array` gives them.

    Cost:
        Two PUTs.
    """
    others = pa.Table.from_pylist([dict(action) for action in rest], schema=_SCHEMA)
    columns = [
        adds if name == "add" else pa.nulls(len(adds), _SCHEMA.field(name).type)
        for name in _SCHEMA.names
    ]
    table = pa.concat_tables([others, pa.table(columns, schema=_SCHEMA)])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy")
    data = sink.getvalue()
    store.put(log.checkpoint_key(number), data)
    last = {"version": number, "size": table.num_rows, "sizeInBytes": data.size}
    store.put(f"{log.folder}/{LAST_CHECKPOINT}", msgspec.json.encode(last))


def read_adds(store: Store, log: Log, number: int) -> pa.StructArray | None:
    """Return the files that a checkpoint of ours names; None if it is not there, or not as ours.

    Cost:
        The checkpoint, in memory.
    """
    try:
        data = store.get(log.checkpoint_key(number)).data
        column = pq.read_table(pa.BufferReader(data), columns=["add"]).column("add")
        adds = column.cast(_SCHEMA.field("add").type).combine_chunks()
    except (ObjectNotFoundError, pa.ArrowException, OSError, ValueError, KeyError):
        return None
    return adds.filter(adds.is_valid())


def changed(adds: pa.StructArray, removed: Sequence[str], added: pa.StructArray) -> pa.StructArray:
    """Return files without some, by their paths, and with others."""
    gone = pc.is_in(adds.field("path"), value_set=pa.array(removed, pa.string()))
    return pa.concat_arrays([adds.filter(pc.invert(gone)), added])


def adds_array(adds: Sequence[Mapping[str, Any]]) -> pa.StructArray:
    """Return actions that add files as a column."""
    kind = _SCHEMA.field("add").type
    columns = [
        pa.array([list(add["partitionValues"].items()) for add in adds], _TEXTS)
        if member.name == "partitionValues"
        else pa.array([add[member.name] for add in adds], member.type)
        for member in kind
    ]
    return pa.StructArray.from_arrays(columns, fields=list(kind))
