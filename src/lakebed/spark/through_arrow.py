"""Reading a plan with Arrow inside Spark tasks, each of which is given its own files as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.formats.registry import find_reader
from lakebed.arrow.intact import with_recorded
from lakebed.arrow.scan import scan
from lakebed.model.keys import split_label
from lakebed.model.layout import Layout
from lakebed.plan.plan import DataFile, Scan
from lakebed.spark.jars import without_jars
from lakebed.state.facts import Recorded
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Up to so many files go to as many tasks as Spark takes by itself; more are shuffled to tasks of 32.
_FEW_FILES = 128
_FILES_A_TASK = 32
_MOST_TASKS = 4096
_FILES = pa.schema(
    [
        ("label", pa.string()),
        ("is_filtered", pa.bool_()),
        ("schema_number", pa.int32()),
        ("size_bytes", pa.int64()),
        ("checksum", pa.string()),
    ]
)


def read_through_arrow(
    spark: SparkSession, store: Store, plan: Scan, names: Sequence[str], schema: StructType
) -> DataFrame:
    """Return some columns of a plan, read by `mapInArrow`.

    Files come to the tasks as rows, so that a task is sent only its own, however many there are.
    """
    if find_reader(plan.layout.descriptor.format) is not None:
        # Here, since tasks know nothing of the file table.
        plan = replace(plan, files=with_recorded(store, plan.file_table, plan.files))
    files, count = spark.createDataFrame(_files(plan)), len(plan.files)
    if count > _FEW_FILES:
        files = files.repartition(min(-(-count // _FILES_A_TASK), _MOST_TASKS))
    return files.mapInArrow(without_jars(reading_task(store, plan, names)), schema)


def reading_task(
    store: Store, plan: Scan, names: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the task that reads the files it is given as rows; it carries none itself."""
    layout, residual = plan.layout, plan.residual

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            files = tuple(_planned(layout, batch))
            for rows in scan(store, Scan(layout=layout, files=files, residual=residual), names):
                yield to_spark_types(pa.Table.from_batches([rows])).to_batches()[0]

    return run


def to_spark_types(table: pa.Table) -> pa.Table:
    """Spark knows no unsigned 64 bits; a decimal holds them."""
    for position, field in enumerate(table.schema):
        if pa.types.is_uint64(field.type):
            column = table.column(position).cast(pa.decimal128(20, 0))
            table = table.set_column(position, field.name, column)
    return table


def _files(plan: Scan) -> pa.Table:
    """Return the files as rows."""
    return pa.table(
        [
            [file.label for file in plan.files],
            [file.is_filtered for file in plan.files],
            [file.schema_number for file in plan.files],
            [file.recorded and file.recorded.size_bytes for file in plan.files],
            [file.recorded and file.recorded.checksum for file in plan.files],
        ],
        schema=_FILES,
    )


def _planned(layout: Layout, batch: pa.RecordBatch) -> Iterator[DataFile]:
    """Yield the files that rows name, as the plan had them."""
    for row in batch.to_pylist():
        number, checksum = row["schema_number"], row["checksum"]
        yield DataFile(
            key=layout.key(row["label"]),
            label=row["label"],
            partition=layout.directory_values(split_label(row["label"])[0]),
            is_filtered=row["is_filtered"],
            schema_number=number,
            constants=layout.lineage.reading(layout.stored_schema, number).constants,
            recorded=None
            if checksum is None
            else Recorded(size_bytes=row["size_bytes"], checksum=checksum),
        )


__all__ = ["read_through_arrow", "reading_task", "to_spark_types"]
