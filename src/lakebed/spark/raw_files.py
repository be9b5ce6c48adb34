"""Content of raw files, as Spark DataFrames that tasks read group by group."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.arrow.reading.files import Line, StoredFile, lines_of, reading
from lakebed.common.grouping import balanced_groups
from lakebed.errors import FormatError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.spark.travel import in_tasks
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Identified = tuple[str, StoredFile]

_LINES = "id string, url string, line_number long, line string, problem string"
_CONTENTS = "id string, url string, content binary"
# A writing task creates a file for each partition: few large groups create fewer files.
_GROUPS_PER_CORE = 2
_CORES_OF_A_CLUSTER = 8  # a cluster does not report its number of cores
_LOCAL_MASTER = re.compile(r"local\[(\d+|\*)")
_LINES_PER_BATCH = 10_000


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks run at once, as far as the session's settings show."""
    parallelism = spark.conf.get("spark.default.parallelism", None) or ""
    if parallelism.isdecimal():
        return int(parallelism)
    local = _LOCAL_MASTER.match(spark.conf.get("spark.master", None) or "")
    if local is None:
        return _CORES_OF_A_CLUSTER
    return int(local[1]) if local[1].isdecimal() else os.cpu_count() or 1


def grouped_by_size(spark: SparkSession, sizes: Mapping[str, int]) -> list[list[str]]:
    """Divide files into groups of about equal size, some for each core."""
    return balanced_groups(sizes, _GROUPS_PER_CORE * cores_of(spark))


def table_frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return an Arrow table as a DataFrame."""
    if not table.num_rows:
        # Spark Connect does not read types from a table without rows.
        return spark.createDataFrame([], struct_type(schema_from_arrow(table.schema)))
    return spark.createDataFrame(table)


def lines_frame(spark: SparkSession, files: Sequence[Identified]) -> DataFrame:
    """Return the lines of files: id, url, line_number, line and problem.

    Bytes that are not UTF-8 become U+FFFD. A damaged file has the lines before the damage, and a
    last line with the remaining bytes and the problem, which is null in other lines. A file with a
    wrong hash has only a line with the problem.

    Cost:
        Nothing until the frame is used; then the files, each read by one task.
    """
    return _frame(spark, files, _line_batches, _LINES)


def contents_frame(spark: SparkSession, files: Sequence[Identified]) -> DataFrame:
    """Return the stored contents of files: id, url and content.

    A file with a wrong hash fails the job.

    Cost:
        Nothing until the frame is used; then the files. A task holds one file in memory.
    """
    return _frame(spark, files, _content_batches, _CONTENTS)


_ReadFile = Callable[[str, StoredFile], Iterator[pa.RecordBatch]]


def _frame(
    spark: SparkSession, files: Sequence[Identified], read: _ReadFile, schema: str
) -> DataFrame:
    by_url = {file.location: (file_id, file) for file_id, file in files}
    sizes = {url: file.size_bytes for url, (_, file) in by_url.items()}
    groups = [[by_url[url] for url in group] for group in grouped_by_size(spark, sizes)]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for file_id, file in groups[number]:
                    yield from read(file_id, file)

    numbers = spark.range(0, len(groups), 1, max(1, len(groups)))
    return in_tasks(numbers, run, schema)


def _line_batches(file_id: str, file: StoredFile) -> Iterator[pa.RecordBatch]:
    with reading(file.location):
        try:
            lines = lines_of(file.looked_at())
        except FormatError as exc:
            lines = iter([Line(1, b"", exc.message)])
        while group := list(islice(lines, _LINES_PER_BATCH)):
            yield _line_batch(file_id, file.location, group)


def _line_batch(file_id: str, url: str, lines: Sequence[Line]) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "id": pa.array([file_id] * len(lines), pa.string()),
            "url": pa.array([url] * len(lines), pa.string()),
            "line_number": pa.array([line.number for line in lines], pa.int64()),
            "line": pa.array([line.data.decode(errors="replace") for line in lines], pa.string()),
            "problem": pa.array([line.problem or None for line in lines], pa.string()),
        }
    )


def _content_batches(file_id: str, file: StoredFile) -> Iterator[pa.RecordBatch]:
    with reading(file.location), file.looked_at().open_raw() as raw:
        content = raw.read()
    yield pa.record_batch(
        {
            "id": pa.array([file_id], pa.string()),
            "url": pa.array([file.location], pa.string()),
            "content": pa.array([content], pa.binary()),
        }
    )
