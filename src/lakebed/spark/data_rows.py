"""The rows of a DataFrame in a store, for tasks that look for some of them; and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.conform import Conformer
from lakebed.arrow.held_rows import HeldRows, StoredPart, StoredRows, conformed, put_part
from lakebed.errors import LakebedError
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Schema
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.session import described
from lakebed.spark.task_kernel import check_for_tasks
from lakebed.spark.task_results import ANSWER, answer, refusal, results
from lakebed.spark.through_arrow import to_spark_types
from lakebed.spark.travel import in_tasks
from lakebed.spark.types import struct_type
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def put_frame(
    frame: DataFrame, store: Store, folder: str, descriptor: DatasetDescriptor
) -> StoredRows:
    """Write a DataFrame as objects that tasks can look rows up in. It is evaluated once.

    Args:
        frame: The rows; the frame may have columns that the dataset lacks.
        store: Store that tasks can reach.
        folder: Folder for the objects.
        descriptor: Descriptor of the dataset.

    Raises:
        SchemaMismatchError: A value does not fit its field.
        LakebedError: The store failed. What was written stays in the folder.

    Cost:
        One Spark job, and one object per task.
    """
    check_for_tasks(frame)
    given = schema_to_arrow(schema_from_spark(frame.schema.jsonValue(), descriptor.schema))
    schema = Conformer(given, descriptor, is_partial=True).target

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            # The session may have asked for large texts and bytes.
            rows = (batch.cast(schema) for batch in conformed(batches, descriptor))
            yield answer(put_part(store, folder, schema, rows))
        except LakebedError as exc:
            yield refusal(exc)

    with described(frame.sparkSession, f"keep rows in {folder}"):
        answers = in_tasks(frame, run, ANSWER).collect()
    parts = list(results(answers, StoredPart))
    return StoredRows(store, schema, tuple(part for part in parts if part.row_count))


def frame_of(
    spark: SparkSession,
    rows: StoredRows,
    schema: Schema,
    chosen: Callable[[int, HeldRows], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return some rows as a DataFrame, with one task per part.

    Args:
        spark: Session of the rows.
        rows: Rows to choose from.
        schema: Schema of the chosen columns.
        chosen: Function that receives the number of a part and its rows, and yields the chosen
            rows.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in chosen(number, rows.part(number)):
                    yield to_spark_types(pa.Table.from_batches([part])).to_batches()[0]

    count = len(rows.parts)
    return in_tasks(spark.range(0, count, 1, count), run, struct_type(schema))
