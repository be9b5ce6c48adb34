"""The write kernel in Spark tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import errors
from lakebed.arrow.conform import check_columns, check_types
from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.write import write_batches
from lakebed.errors import InvalidInputError
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.native_write import can_write_natively, write_natively
from lakebed.spark.session import settings_for
from lakebed.state.facts import facts_schema
from lakebed.store.base import Store, delete_or_leave

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's default of 10,000 rows makes many small messages between the JVM and Python.
_ROWS_PER_MESSAGE = {"spark.sql.execution.arrow.maxRecordsPerBatch": "100000"}
_ANSWER = "facts binary, error string"


def is_spark_frame(data: object) -> bool:
    """Whether `data` is a Spark DataFrame, classic or Connect, without importing pyspark."""
    return type(data).__module__.startswith("pyspark.sql.") and hasattr(data, "mapInArrow")


def write_frame(frame: DataFrame, store: Store, target: BatchTarget) -> pa.Table:
    """Write a DataFrame as the data files of one batch.

    Each task runs the write kernel and writes the partitions that its rows belong to: for few
    files, let rows of one partition be in one task. Where Spark's own writer gives the same
    files, it serves instead, since rows then need not travel to Python.

    Returns:
        The facts of the files.

    Raises:
        SchemaMismatchError: The frame or a value in it does not fit; what was written is deleted.

    Cost:
        One Spark job without shuffle. The driver receives some hundred bytes a file.
    """
    check_columns(tuple(frame.columns), target.descriptor)
    given = schema_from_spark(frame.schema.jsonValue())
    check_types(given, target.descriptor)
    if not store.is_shared:
        # A store in this process cannot be seen by tasks.
        return write_batches(store, target, frame.toArrow().to_batches())
    if can_write_natively(store, target, given):
        return write_natively(frame, store, target, given)
    with settings_for(frame.sparkSession, _ROWS_PER_MESSAGE):
        answers = frame.mapInArrow(_task(store, target), _ANSWER).collect()
    empty = facts_schema(target.descriptor.stored_schema).empty_table()
    tables = [pa.ipc.open_stream(row.facts).read_all() for row in answers if row.facts]
    facts = pa.concat_tables([empty, *tables])
    for row in answers:
        if row.error is not None:
            labels = facts.column("label").to_pylist()
            delete_or_leave(store, [target.key(label) for label in labels])
            raise _read_error(row.error)
    return facts


def _task(
    store: Store, target: BatchTarget
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        facts, error = b"", None
        try:
            facts = _to_bytes(write_batches(store, target, batches))
        except InvalidInputError as exc:
            # An answer instead of a failure: Spark would only try the same rows again.
            error = _write_error(exc)
        yield pa.record_batch(
            {"facts": pa.array([facts], pa.binary()), "error": pa.array([error], pa.string())}
        )

    return run


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _write_error(exc: InvalidInputError) -> str:
    return json.dumps({"class": type(exc).__name__, "message": exc.message, "hint": exc.hint})


def _read_error(text: str) -> InvalidInputError:
    document: dict[str, Any] = json.loads(text)
    found = getattr(errors, document["class"], InvalidInputError)
    error: InvalidInputError = found(document["message"], hint=document["hint"])
    return error
