"""Reading a plan with Arrow inside Spark tasks, each of which receives its own files as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.formats.file_format import find_reader
from lakebed.arrow.intact import with_recorded
from lakebed.arrow.scan import scan
from lakebed.plan.plan import Scan
from lakebed.spark.planned_files import files_table, planned_files
from lakebed.spark.sized_tasks import in_sized_tasks
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Up to so many files are read by the number of tasks that Spark chooses; more are shuffled to tasks
# of 32 files.
_FEW_FILES = 128
_FILES_A_TASK = 32
_MOST_TASKS = 4096


def read_through_arrow(
    spark: SparkSession, store: Store, plan: Scan, names: Sequence[str], schema: StructType
) -> DataFrame:
    """Return some columns of a plan, read by `mapInArrow`.

    Tasks receive files as rows, so each task receives only its own, for any number of files.

    Cost:
        One GET for each segment of the file table, unless the process has read it before.
    """
    if find_reader(plan.layout.descriptor.format) is not None:
        # Here, since tasks do not have the file table.
        plan = replace(plan, files=with_recorded(store, plan.file_table, plan.files))
    count = len(plan.files)
    return in_sized_tasks(
        spark.createDataFrame(files_table(plan.files)),
        reading_task(store, plan, names),
        schema,
        size_of(store, plan),
        task_count=min(-(-count // _FILES_A_TASK), _MOST_TASKS) if count > _FEW_FILES else None,
    )


def size_of(store: Store, plan: Scan) -> int | None:
    """Return the bytes of a plan's files; None if the size of one is not recorded, as of another tool's.

    Cost:
        One GET for each segment of the file table, unless the process has read it before.
    """
    files = with_recorded(store, plan.file_table, plan.files)
    sizes = [file.recorded.size_bytes for file in files if file.recorded is not None]
    return sum(sizes) if len(sizes) == len(files) else None


def reading_task(
    store: Store, plan: Scan, names: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task that reads the files that it receives as rows; it holds none itself."""
    layout, residual = plan.layout, plan.residual

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            files = tuple(planned_files(layout, batch))
            chosen = Scan(layout=layout, files=files, residual=residual)
            with scan(store, chosen, names) as read:
                for rows in read:
                    yield to_spark_types(pa.Table.from_batches([rows])).to_batches()[0]

    return run


def to_spark_types(table: pa.Table) -> pa.Table:
    """Cast unsigned 64-bit integers, which Spark does not have, to decimals."""
    for position, field in enumerate(table.schema):
        if pa.types.is_uint64(field.type):
            column = table.column(position).cast(pa.decimal128(20, 0))
            table = table.set_column(position, field.name, column)
    return table


__all__ = ["read_through_arrow", "reading_task", "size_of", "to_spark_types"]
