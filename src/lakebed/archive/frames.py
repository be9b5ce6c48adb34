"""Spark DataFrames of archived files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import pyarrow as pa

from lakebed.archive.kept_files import key_of
from lakebed.archive.record import ArchiveRecord
from lakebed.arrow.reading.files import StoredFile
from lakebed.arrow.reading.hashes import can_verify
from lakebed.errors import InvalidInputError
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FrameOf = Literal["records", "lines", "contents"]

_TIME = pa.timestamp("us", tz="UTC")
RECORDS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("what", pa.string()),
        pa.field("where", pa.string()),
        pa.field("work_id", pa.string()),
        pa.field("start", _TIME),
        pa.field("end", _TIME),
        pa.field("path", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("hash", pa.string()),
        pa.field("url", pa.string()),
        pa.field("created_at", _TIME),
        pa.field("metadata", pa.string()),
    ]
)


def stored_file(store: Store, record: ArchiveRecord) -> StoredFile:
    """Return an archived file as one to read directly from the store of the archive.

    Raises:
        InvalidInputError: The record has a URL outside the archive.
    """
    return StoredFile(
        location=record.url,
        size_bytes=record.size_bytes,
        store=store,
        key=key_of(store, record.url),
        name=record.path,
        expected_hash=record.hash if can_verify(record.hash) else None,
    )


def records_table(records: Sequence[ArchiveRecord]) -> pa.Table:
    """Return records as a table; `metadata` is the whole metadata of a file, as JSON."""
    rows = [
        {
            "id": record.id,
            "what": record.what,
            "where": record.where,
            "work_id": record.work_id,
            "start": record.start,
            "end": record.end,
            "path": record.path,
            "size_bytes": record.size_bytes,
            "hash": record.hash,
            "url": record.url,
            "created_at": record.created_at,
            "metadata": record.metadata.to_json(),
        }
        for record in records
    ]
    return pa.Table.from_pylist(rows, RECORDS)


def to_frame(
    spark: SparkSession | None, store: Store, records: Sequence[ArchiveRecord], read: FrameOf
) -> DataFrame:
    """Return records, or the contents of their files, as a DataFrame; see `Archive.spark`."""
    if read not in get_args(FrameOf):
        raise InvalidInputError(
            f"read is {read!r}.", hint=f"Give one of: {', '.join(get_args(FrameOf))}."
        )
    if read != "records" and not store.is_shared:
        raise InvalidInputError(
            f"Spark tasks cannot access {store.uri}.", hint="Keep the archive on shared storage."
        )
    # Spark is imported on use: `import lakebed` must not need it.
    from lakebed.spark.raw_files import contents_frame, lines_frame, table_frame
    from lakebed.spark.session import get_session

    session = get_session(spark)
    match read:
        case "records":
            return table_frame(session, records_table(records))
        case "lines":
            return lines_frame(session, [(r.id, stored_file(store, r)) for r in records])
        case "contents":
            return contents_frame(session, [(r.id, stored_file(store, r)) for r in records])
