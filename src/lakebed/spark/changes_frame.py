"""The changes between two versions as a DataFrame: each task reads some commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.row_changes import ChangeStep, RowChanges, parts_of
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.spark.sized_tasks import in_sized_tasks
from lakebed.spark.through_arrow import to_spark_types
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_TASKS = 4096


def changes_frame(
    spark: SparkSession, changes: RowChanges, steps: Sequence[ChangeStep]
) -> DataFrame:
    """Return the changes of steps as a DataFrame; a commit that rewrote files is one task.

    Args:
        spark: Session of the frame.
        changes: Reader of the changes, on a store that tasks can reach.
        steps: The commits.

    Cost:
        No Spark job until the frame is used.
    """
    schema = struct_type(schema_from_arrow(changes.schema, strict_names=False))
    if not changes.store.is_shared:
        rows = pa.Table.from_batches(changes.batches(steps), changes.schema)
        return spark.createDataFrame(to_spark_types(rows), schema)
    parts = parts_of(steps)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in changes.batches([parts[number]]):
                    yield to_spark_types(pa.Table.from_batches([rows])).to_batches()[0]

    count = len(parts)
    numbers = spark.range(0, count, 1, max(1, min(count, _MOST_TASKS)))
    return in_sized_tasks(numbers, run, schema, None)
