"""The write kernel in Spark tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.conform import check_columns, check_types
from lakebed.arrow.kernel import BatchTarget, KernelWriter, write_batches
from lakebed.arrow.workers import gather
from lakebed.errors import InvalidInputError
from lakebed.model.schema import Kind, ListOf, MapOf, Primitive, Schema, Struct, Type
from lakebed.model.spark_types import schema_from_spark, spark_frame_of
from lakebed.spark.admission import with_admitted
from lakebed.spark.few import FEW_ROWS, giving_few, rows_if_few
from lakebed.spark.native_write import can_write_natively, write_natively
from lakebed.spark.observed_tasks import note_rows_written, observed
from lakebed.spark.session import caller_setting, described, is_stopped, settings_for
from lakebed.spark.task_results import ANSWER, ANSWER_SCHEMA, results, table_from_bytes
from lakebed.spark.tasks import (
    FEW_PARTITIONS,
    PLACED,
    PLACED_SCHEMA,
    ROWS_A_MESSAGE,
    TaskAnswer,
    balanced,
    gathering_task,
    placing_task,
    writing_task,
)
from lakebed.spark.travel import in_tasks
from lakebed.state.written import Written, joined
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_PARTITIONS = 256  # of rows that the driver itself writes
_ROWS_A_MESSAGE = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES_A_MESSAGE = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNMEASURED = str(2**31 - 1)  # the only value for which Spark does not measure
_MEASURED = str(2**26)  # Spark's own default
_ZONE = "spark.sql.session.timeZone"
_IS_CASE_SENSITIVE = "spark.sql.caseSensitive"


def find_spark_frame(data: object, levels: Collection[str] | None = None) -> DataFrame | None:
    """Return rows of Spark, classic, Connect or pandas-on-Spark, as a frame; None of other rows.

    Args:
        data: Rows.
        levels: As for `spark_frame_of`.
    """
    frame: Any = spark_frame_of(data, levels)
    is_frame = type(frame).__module__.startswith("pyspark.sql.") and hasattr(frame, "mapInArrow")
    return frame if is_frame else None


def check_frame(frame: DataFrame) -> None:
    """Check that the rows of a DataFrame can be read.

    Raises:
        InvalidInputError: Its session is stopped, it is a stream, or Spark cannot tell two of its
            columns apart.
    """
    spark = frame.sparkSession
    if is_stopped(spark):
        raise InvalidInputError(
            "The session of the DataFrame is stopped, so its rows cannot be read.",
            hint="Start a session, and make the DataFrame again.",
        )
    if frame.isStreaming:
        raise InvalidInputError(
            "The DataFrame is a stream, which has no end.",
            hint='Write it by frame.writeStream.format("lakebed"), or each of its micro-batches by '
            "frame.writeStream.foreachBatch(dataset.sink).",
        )
    by_lower: dict[str, str] = {}
    for name in frame.columns:
        other = by_lower.setdefault(name.lower(), name)
        if other != name and spark.conf.get(_IS_CASE_SENSITIVE, "false") != "true":
            raise InvalidInputError(
                f"Columns {other!r} and {name!r} of the DataFrame differ in case only, and Spark cannot "
                "tell them apart.",
                hint=f"Rename one of them, or set {_IS_CASE_SENSITIVE} to true.",
            )


def check_for_tasks(frame: DataFrame) -> None:
    """Check that Spark can pass the columns of a DataFrame to tasks.

    Raises:
        InvalidInputError: A column is called `*`, which Spark takes for all columns.
    """
    if "*" in frame.columns:
        raise InvalidInputError(
            "A column of the DataFrame is called '*', and Spark cannot pass it to tasks.",
            hint='Rename it: frame.withColumnRenamed("*", "star").',
        )


def write_frame(frame: DataFrame, store: Store, target: BatchTarget) -> Written:
    """Write a DataFrame as the data files of one batch.

    Few rows are written in this process; see `lakebed.spark.few`. Otherwise each task runs the
    write kernel and writes the partitions of its rows. Rows of many partitions that are scattered
    over the tasks are gathered first; see `WriteOptions.cluster`. If Spark's own writer would write
    the same files, it is used instead, since rows then need not be sent to Python.

    Raises:
        SchemaMismatchError: The frame or a value in it does not fit; the new files are deleted.
        WorkerEnvironmentError: Spark's workers run a Python in which Lakebed cannot work.
        ConflictError: Executors died, and Spark's second attempt produced other rows than the
            first; the new files are deleted.
        LakebedError: The store failed; the new files are deleted.

    Cost:
        One Spark job, with a shuffle of scattered rows, and before it one over the sources of
        dimensions below their cap. The driver receives some hundred bytes per file, and at most
        64 MiB of rows. If the driver asks for a few rows in vain, one more job before, which ends
        after these; see `lakebed.spark.few`.
    """
    check_frame(frame)
    check_columns(tuple(frame.columns), target.descriptor)
    given = schema_from_spark(frame.schema.jsonValue(), target.descriptor.schema)
    check_types(given, target.descriptor)
    if not store.is_shared:
        # Tasks cannot access a store in the memory of this process.
        return write_batches(store, target, frame.toArrow().to_batches())
    with described(frame.sparkSession, f"write batch {target.batch_id} of {target.dataset}"):
        written = _write_shared(frame, store, target, given)
    # Rows that tasks have gathered do not have the zone of the session any more.
    return replace(written, zones=zones_of_frame(frame, given, target))


def _write_shared(frame: DataFrame, store: Store, target: BatchTarget, given: Schema) -> Written:
    """Write a frame, whose columns fit, to a store that tasks can access; see `write_frame`."""
    decides = target.options.cluster is None  # otherwise the caller has chosen the writer
    # The most frequent values of capped dimensions are admitted, which needs all rows.
    is_capped = bool(target.descriptor.partition_by.caps(target.descriptor.schema))
    is_asked = decides and not is_capped and not _is_maybe_large(given)
    is_native = can_write_natively(store, target, given)
    if not is_native:
        check_for_tasks(frame)
    rows = rows_if_few(frame) if is_asked else None
    if rows is not None and not _is_for_many(rows, store, target):
        return write_batches(store, target, rows.to_batches())
    if is_native:
        return write_natively(frame, store, target, given)
    target = with_admitted(frame, target)
    if _may_scatter(target):
        # Tasks of few rows need not import what observes the others.
        place = observed(frame.sparkSession, placing_task(store, target))
        task = giving_few(place, PLACED_SCHEMA) if decides else place
        placed = in_tasks(frame, task, PLACED, is_observed=True).repartition("place")
        answer = in_tasks(placed, gathering_task(store, target), ANSWER)
    else:
        write = observed(frame.sparkSession, writing_task(store, target))
        task = giving_few(write, ANSWER_SCHEMA) if decides else write
        answer = in_tasks(frame, task, ANSWER, is_observed=True)
    spark = frame.sparkSession
    with settings_for(spark, _message_settings(spark, given)):
        answers = answer.collect()
    return _joined(store, target, balanced(results(answers, TaskAnswer)))


def zones_of_frame(frame: DataFrame, given: Schema, target: BatchTarget) -> frozenset[str]:
    """Return the zone of the session if it has one of its own for times that partitions divide."""
    fields = (given.find(function.source) for function in target.descriptor.partition_by)
    if not any(field is not None and field.type == Primitive(Kind.TIMESTAMP) for field in fields):
        return frozenset()
    zone = frame.sparkSession.conf.get(_ZONE)
    return frozenset() if zone in (None, "UTC") else frozenset({zone})


def _is_for_many(rows: pa.Table, store: Store, target: BatchTarget) -> bool:
    """Return whether rows belong to so many partitions that tasks write their files faster."""
    if rows.num_rows <= FEW_ROWS or not len(target.descriptor.partition_by):
        return False
    asked = KernelWriter(store, target)  # it writes nothing
    for batch in rows.to_batches():
        asked.checked(batch)
    return len(asked.partitions) > _MOST_PARTITIONS


def _joined(store: Store, target: BatchTarget, answers: Iterator[TaskAnswer]) -> Written:
    """Write the rows that tasks have sent to the driver, and return these and the tasks' files."""

    def keys(answer: TaskAnswer) -> tuple[str, ...]:
        return () if answer.written is None else answer.written.keys(target)

    def parts() -> Iterator[TaskAnswer]:
        left = []
        for answer in answers:
            if answer.rows is not None:
                left.append(answer.rows)
            else:
                if answer.written is not None:
                    note_rows_written(answer.written.row_count)
                yield answer
        if left:
            table = pa.concat_tables([table_from_bytes(rows) for rows in left]).combine_chunks()
            yield TaskAnswer(written=write_batches(store, target, table.to_batches()))

    written = [
        answer.written for answer in gather(store, parts(), keys) if answer.written is not None
    ]
    return joined([Written.nothing(target.descriptor.file_schema), *written])


def _may_scatter(target: BatchTarget) -> bool:
    """Return whether tasks must check the order of their rows, which only they know."""
    if target.options.cluster is not None:
        return target.options.cluster
    count = target.descriptor.partition_by.cardinality
    return count is None or count > FEW_PARTITIONS


def _message_settings(spark: SparkSession, given: Schema) -> dict[str, str]:
    """Return the settings for the messages between the JVM and Python.

    Spark measures a message after each row, which takes longer than everything else in building it.
    So the messages are limited to few rows instead of bytes, unless rows may be large, or the
    caller has set a limit: 2,000 texts fit, if they are shorter than 1 MiB on average.
    """
    measured = _MEASURED if _is_maybe_large(given) else _UNMEASURED
    limit = caller_setting(spark, _BYTES_A_MESSAGE) or measured
    return {_ROWS_A_MESSAGE: str(ROWS_A_MESSAGE), _BYTES_A_MESSAGE: limit}


def _is_maybe_large(given: Schema) -> bool:
    """Return whether a row of a frame may be large."""
    return any(_may_be_large(field.type) for field in given)


def _may_be_large(kind: Type) -> bool:
    if isinstance(kind, Struct):
        return any(_may_be_large(field.type) for field in kind.fields)
    return isinstance(kind, ListOf | MapOf) or kind == Primitive(Kind.BYTES)
