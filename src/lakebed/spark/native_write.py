"""Writing with Spark's own Parquet writer, where it is faster than the kernel for the same files.

Rows need not be sent to Python: for an unpartitioned dataset in a directory, Spark writes into a
staging directory of the batch, and the driver moves the files and records the facts of their
footers.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from lakebed.arrow.formats.footer_seal import seal_file
from lakebed.arrow.formats.parquet import column_facts
from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.utf8 import check_texts, has_text
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.declared import rows_checked
from lakebed.model.keys import BATCH_ID
from lakebed.model.layout import staging_folder
from lakebed.model.names import find_alike
from lakebed.model.predicate import TRUE
from lakebed.model.schema import MISSING, Decimal, Field, Kind, Primitive, Schema, has_limits
from lakebed.model.spark_types import has_void
from lakebed.spark.session import settings_for
from lakebed.spark.types import struct_type
from lakebed.state.check_results import not_checked
from lakebed.state.facts import FileFacts, facts_table
from lakebed.state.written import Written
from lakebed.store.base import Store, delete_or_leave

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_SETTINGS = {
    # INT96, the default, has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # Only Spark can read its other calendar.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.fieldId.write.enabled": "true",
}
_OPTIONS = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # The facts of a file hold its checksum; Hadoop would write another one next to the file.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    # The default of Spark, which the session may have switched off.
    "parquet.page.write-checksum.enabled": "true",
}

_FIELD_ID = "parquet.field.id"  # in the metadata of a field

# Spark's name for Arrow's lz4; Spark's own lz4 is an older frame of Hadoop.
_CODECS = {"lz4": "lz4_raw"}


def can_write_natively(store: Store, target: BatchTarget, given: Schema) -> bool:
    """Return whether Spark's writer would write the same files as the kernel.

    It cannot roll files at a given size, has its own layout of partitions, does not check that
    rows are in a view, and leaves no rows out. Its files must have the types of the schema.

    Args:
        store: The store that holds the dataset.
        target: Target of the batch.
        given: Schema of the frame.
    """
    options, descriptor = target.options, target.descriptor
    return (
        descriptor.format == "parquet"
        and not store.is_dry_run
        and store.local_path(target.dataset) is not None
        and not len(descriptor.partition_by)
        and not descriptor.schema.is_renamed
        and find_alike(descriptor.schema.names) is None  # Spark finds columns in any case
        # Lakebed never sees the rows, so their values would be unknown.
        and not descriptor.index
        and not any(has_limits(field.type) for field in descriptor.schema)
        and target.constraint == TRUE
        # Other failing rows are found when the files are committed, which reads the columns.
        and all(
            check.on_failure in ("refuse", "warn") for check in rows_checked(descriptor).values()
        )
        and options.target_bytes == WriteOptions().target_bytes
        and all(_is_plain(field, given.find(field.name)) for field in descriptor.schema)
    )


def _is_plain(declared: Field, given: Field | None) -> bool:
    if given is None:
        return declared.default in (MISSING, None)
    if isinstance(declared.type, Primitive):
        return declared.type.kind is not Kind.UNSIGNED_LONG
    if isinstance(declared.type, Decimal):
        return True
    # Footers count the nulls of plain columns only.
    return declared.type == given.type and (declared.nullable or not given.nullable)


def write_natively(frame: DataFrame, store: Store, target: BatchTarget, given: Schema) -> Written:
    """Write a frame that `can_write_natively`.

    Raises:
        SchemaMismatchError: A field that is not nullable holds null, or a text is not UTF-8; the
            new files are deleted.

    Cost:
        One Spark job, one footer per file, and a checksum over all bytes on the driver, which also
        reads the columns with text.
    """
    staging = store.local_path(staging_folder(target.dataset, target.batch_id))
    assert staging is not None  # checked by can_write_natively
    columns = _columns(frame, target, given)
    compression = target.descriptor.compression
    try:
        with settings_for(frame.sparkSession, _SETTINGS):
            writer = frame.select(*columns).write.options(**_OPTIONS)
            writer.parquet(f"file://{staging}", compression=_CODECS.get(compression, compression))
        # Hashes are computed while moves wait for the disk.
        with ThreadPoolExecutor() as hashing, ThreadPoolExecutor() as taking:
            paths = sorted(staging.glob("*.parquet"))
            results = taking.map(lambda path: _take(path, store, target, hashing), paths)
            taken = [facts for facts in results if facts is not None]
        _check_nulls(taken, target.descriptor.schema)
    except BaseException:
        # All files there belong to this batch, including those whose facts were lost.
        directory = target.key(target.new_label("")).rpartition("/")[0]
        delete_or_leave(store, [info.key for info in store.list(directory)])
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        with contextlib.suppress(OSError):  # another batch may be staged there too
            staging.parent.rmdir()
    return Written(
        facts=facts_table(taken, target.descriptor.file_schema),
        checks=tuple(not_checked(*one) for one in rows_checked(target.descriptor).items()),
    )


def _columns(frame: DataFrame, target: BatchTarget, given: Schema) -> list[Column]:
    """Return the columns of the files, with ids if Spark can write them for all parts."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    schema = target.descriptor.schema
    all_null = {field.name for field in frame.schema if has_void(field.dataType.jsonValue())}
    columns = {
        field.name: _column(field, given.find(field.name), is_void=field.name in all_null)
        for field in schema
    }
    if BATCH_ID in target.stored_levels():
        columns[BATCH_ID] = F.lit(target.batch_id).cast("long")
    ids = target.field_ids
    if ids is None or not all(isinstance(field.type, Primitive | Decimal) for field in schema):
        # Readers take a part without an id for one that is missing, but map names in files without.
        return [column.alias(name) for name, column in columns.items()]
    return [column.alias(name, metadata={_FIELD_ID: ids[name]}) for name, column in columns.items()]


def _column(declared: Field, given: Field | None, *, is_void: bool) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    wanted = struct_type(Schema(fields=(declared,))).fields[0].dataType
    if given is None:
        return F.lit(None).cast(wanted)
    column = F.col(f"`{declared.name}`")
    return column if given.type == declared.type and not is_void else column.cast(wanted)


def _take(path: Path, store: Store, target: BatchTarget, hashing: Executor) -> FileFacts | None:
    """Move one file into the dataset, and return its facts; None if it has no rows.

    Spark writes an empty file for an empty frame.
    """
    footer = pq.read_metadata(path)
    if not footer.num_rows:
        return None
    _check_texts(path, target.descriptor.schema)
    seal_file(path)
    label, size_bytes = target.new_label(""), path.stat().st_size
    with path.open("rb") as file:
        digest = hashing.submit(hashlib.file_digest, file, "sha256")
        store.adopt(path, target.key(label))
        checksum = digest.result().hexdigest()
    return FileFacts(
        label=label,
        row_count=footer.num_rows,
        size_bytes=size_bytes,
        checksum=f"sha256:{checksum}",
        columns=column_facts(footer),
    )


def _check_texts(path: Path, schema: Schema) -> None:
    """Check that the texts of a file are UTF-8: Spark does not check texts that it casts from bytes.

    Spark's own `is_valid_utf8` takes five times as long.
    """
    names = [field.name for field in schema_to_arrow(schema) if has_text(field.type)]
    with pq.ParquetFile(path) as file:
        for rows in file.iter_batches(columns=names, use_threads=False) if names else ():
            for name, column in zip(rows.schema.names, rows.columns, strict=True):
                check_texts(column, name)


def _check_nulls(files: list[FileFacts], schema: Schema) -> None:
    for field in schema:
        if field.nullable:
            continue
        for facts in files:
            null_count = facts.columns[field.name].null_count if field.name in facts.columns else 0
            if null_count:
                raise SchemaMismatchError(
                    f"Column {field.name!r} is not nullable, but {null_count} of "
                    f"{facts.row_count} values in a file are null.",
                    hint="Fill or drop them, or make the field nullable.",
                )
