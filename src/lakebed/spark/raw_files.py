"""Content of raw files, as Spark DataFrames that tasks read group by group."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from lakebed.arrow.reading.files import Line, StoredFile, lines_of, reading
from lakebed.common.grouping import balanced_groups
from lakebed.errors import FormatError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.spark.session import default_parallelism
from lakebed.spark.sized_tasks import in_sized_tasks
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Identified = tuple[str, StoredFile]

_LINES = "id string, url string, line_number long, line string, problem string"
_CONTENTS = "id string, url string, content binary"
# A writing task creates a file for each partition: few large groups create fewer files.
_GROUPS_PER_CORE = 2  # a slow last group then delays the end only a little
# Of a cluster whose cores are unknown, or that has few cores as yet, groups follow the bytes.
_GROUP_BYTES = 64 * 2**20
_MOST_GROUPS = 2_000
_FILES_A_GROUP = 100  # of a cluster whose cores are unknown: opening many small files takes long
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*")
_LINES_PER_BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """The number of tasks that a session runs at once.

    Attributes:
        cores: Number of cores; None if the session does not know it.
        is_local: Whether the tasks run in the process of the driver.
        shuffle_partitions: Number of tasks of a shuffle, which the caller has set for the cluster.
    """

    cores: int | None
    is_local: bool
    shuffle_partitions: int

    @classmethod
    def of(cls, spark: SparkSession) -> Self:
        """Return the parallelism of a session.

        Cost:
            A few settings, which on Spark Connect the server is asked for.
        """

        def setting(name: str) -> str:
            return spark.conf.get(name, None) or ""

        def number(name: str) -> int:
            text = setting(name)
            return int(text) if text.isdecimal() else 0

        master = setting("spark.master")
        local = _LOCAL.fullmatch(master)
        cores = number("spark.default.parallelism")
        if not cores:
            cores = default_parallelism(spark) or 0
        if local is not None:
            cores = cores or (os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1))
        elif not setting("spark.default.parallelism"):
            # A cluster that grows begins with few executors.
            executors = max(
                number("spark.executor.instances"), number("spark.dynamicAllocation.maxExecutors")
            )
            cluster = _LOCAL_CLUSTER.fullmatch(master)
            cores = max(
                cores,
                executors * (number("spark.executor.cores") or 1),
                number("spark.cores.max"),
                0 if cluster is None else int(cluster[1]) * int(cluster[2]),
            )
        return cls(
            cores=cores or None,
            is_local=local is not None,
            shuffle_partitions=number("spark.sql.shuffle.partitions") or 200,
        )

    @property
    def task_count(self) -> int:
        """Number of tasks into which work of unknown size is best divided."""
        return self.shuffle_partitions if self.cores is None else _GROUPS_PER_CORE * self.cores

    def tasks_for(self, size_bytes: int, file_count: int) -> int:
        """Return the number of tasks into which some files are best divided."""
        if self.is_local:
            return self.task_count
        count = -(-size_bytes // _GROUP_BYTES)
        if self.cores is None:
            count = max(count, -(-file_count // _FILES_A_GROUP))
        wanted = 1 if self.cores is None else _GROUPS_PER_CORE * self.cores
        return max(wanted, min(count, _MOST_GROUPS))


def grouped_by_size(spark: SparkSession, sizes: Mapping[str, int]) -> list[list[str]]:
    """Divide files into groups of about equal size; see `Parallelism.tasks_for`."""
    count = Parallelism.of(spark).tasks_for(sum(sizes.values()), len(sizes))
    return balanced_groups(sizes, count)


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
    return in_sized_tasks(numbers, run, schema, sum(sizes.values()))


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
