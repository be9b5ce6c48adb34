"""Reading a version of a dataset: planned once in a process of the driver, read by tasks."""

from __future__ import annotations

import heapq
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakebed.arrow.formats.file_format import find_reader
from lakebed.arrow.intact import with_recorded
from lakebed.arrow.scan import output_schema, scan
from lakebed.datasource.addresses import Opened, open_to_read
from lakebed.datasource.options import ReadOptions
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.layout import Layout
from lakebed.model.predicate import TRUE, Predicate
from lakebed.model.schema import Field, Schema
from lakebed.model.spark_types import schema_from_spark
from lakebed.plan.plan import DataFile, Scan, ScanPlan, Share
from lakebed.spark.decided_rows import IDENTITY, identity_columns
from lakebed.spark.planned_files import files_table, planned_files
from lakebed.spark.task_results import table_from_bytes, table_to_bytes
from lakebed.spark.through_arrow import to_spark_types
from lakebed.spark.travel import Travels
from lakebed.spark.types import struct_type
from lakebed.state import file_table
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_ALL_FIELDS = "*"
# The module that Spark runs if the session allows filters to be pushed; otherwise Spark refuses
# `pushFilters`.
_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
# Before this release, Spark reused a plan with the filters of one query for other queries of the
# same DataFrame, which then lacked rows (seen with 4.3.0; SPARK-58551).
_SAFE_SINCE = "pushLimit"
_CONSTANT_ROWS = 2**16  # of a batch that is built without reading

MIB = 2**20
# By default: one task for each 64 MiB, or smaller tasks if that would use few cores. The planning
# process does not know the number of cores.
_SPLIT_BYTES = 64 * MIB
_LEAST_SPLIT_BYTES = 4 * MIB
_ENOUGH_TASKS = 32
# Opening a file takes about as long as reading so many bytes.
_OPENING_BYTES = MIB // 2
_MOST_SHARES = 1024


def declared_schema(texts: Mapping[str, str]) -> StructType:
    """Return the columns of a read whose schema the caller has not declared.

    Raises:
        LakebedError: An option cannot be used; see `ReadOptions.parse` and `open_to_read`.
        SchemaMismatchError: A column is unknown, or is named twice.
    """
    return columns_of(ReadOptions.parse(texts))


def columns_of(options: ReadOptions) -> StructType:
    """Return the columns of a read; raises as `declared_schema` does."""
    layout = open_to_read(options).layout
    names = output_schema(layout, _expanded(options.columns, layout)).names
    return struct_type(_schema_of(layout, names))


def reader_for(texts: Mapping[str, str], schema: StructType) -> LakebedReader:
    """Return a reader; one with filters if Spark pushes them, and plans each query by its own.

    Raises:
        LakebedError: See `LakebedReader.choose` and `open_to_read`.
    """
    options = ReadOptions.parse(texts)
    if _is_pushing_worker():
        return PushingReader(options, schema)
    reader = LakebedReader(options, schema)
    reader.choose(open_to_read(options), TRUE)
    return reader


def _is_pushing_worker() -> bool:
    if not hasattr(DataSourceReader, _SAFE_SINCE):
        return False
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _PUSHING_WORKER in sys.modules or (main is not None and main.name == _PUSHING_WORKER)


class LakebedReader(Travels, DataSourceReader):
    """Reader of planned files. Pickled before Spark asks for the partitions."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Keep the options; `choose` plans the read."""
        self._options = options
        self._schema = schema
        self._tasks: ReadTasks | None = None
        self._partitions: list[InputPartition] = []

    def choose(self, opened: Opened, condition: Predicate) -> None:
        """Plan the read.

        Args:
            opened: The view or dataset that the options name.
            condition: Further condition from Spark, in addition to those of the options.

        Raises:
            SchemaMismatchError: A declared column is unknown, or of another type.
            LakebedError: See `View.plan`.

        Cost:
            See `View.plan`; the file table.
        """
        view = opened.view if condition == TRUE else opened.view.where(condition)
        plan = view.plan()
        declared = StructType([f for f in self._schema.fields if f.name not in IDENTITY])
        self._tasks = ReadTasks(
            store=opened.store,
            layout=plan.layout,
            residual=plan.residual,
            names=checked_names(plan.layout, declared),
            schema=arrow_schema(self._schema),
        )
        names_rows = len(declared.fields) < len(self._schema.fields)
        shares = shared_out(
            opened.store, plan, self._options.split_bytes, may_divide=not names_rows
        )
        self._partitions = [InputPartition(table_to_bytes(files_table(files))) for files in shares]

    def __getstate__(self) -> dict[str, object]:
        """Leave out the state of the driver: the reader is sent to each task."""
        return {**self.__dict__, "_partitions": []}

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files of each task."""
        return self._partitions

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task's files."""
        assert self._tasks is not None  # chosen before Spark asks for partitions
        if (
            partition is None or partition.value is None
        ):  # Spark passes None if there are no partitions
            return iter(())
        return self._tasks.read(partition.value)


class PushingReader(LakebedReader):
    """A reader with filters that Spark pushes down."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Plan by the filters; Spark filters again, so none need be supported in full."""
        # Imported here: Spark 4.0 has no filters, and never calls this.
        from lakebed.spark.filters import predicate_of

        opened = open_to_read(self._options)
        self.choose(opened, predicate_of(filters, opened.layout.predicate_types))
        return filters


@dataclass(frozen=True, slots=True)
class ReadTasks:
    """Settings that all tasks of a read share; pickled with each task.

    Attributes:
        store: The store that holds the files.
        layout: Layout of the dataset.
        residual: Filter for the rows of files that need one.
        names: Columns to return.
        schema: The exact schema that Spark expects: the columns, and those that name the row.
    """

    store: Store
    layout: Layout
    residual: Predicate | None
    names: tuple[str, ...]
    schema: pa.Schema

    def read(self, rows: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files, given in the form of `files_table`."""
        files = tuple(planned_files(self.layout, table_from_bytes(rows)))
        if len(self.schema.names) > len(self.names):
            for file in files:
                yield from self._named_rows(file)
            return
        opened = tuple(file for file in files if not self._is_known(file))
        for file in files:
            if self._is_known(file):
                yield from self._constants(file)
        if opened:
            plan = Scan(layout=self.layout, files=opened, residual=self.residual)
            with scan(self.store, plan, self.names) as batches:
                for batch in batches:
                    yield self._in_form(batch)

    def _named_rows(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a file, with its number and their positions."""
        alone = Scan(layout=self.layout, files=(replace(file, is_filtered=False),))
        names = self.names or self.layout.descriptor.schema.names[:1]
        start = 0
        with scan(self.store, alone, names) as batches:
            for batch in batches:
                identity = identity_columns(file.label, start, batch.num_rows)
                named = [batch.column(name) for name in self.names]
                named += [identity[name] for name in self.schema.names[len(self.names) :]]
                yield self._in_form(pa.RecordBatch.from_arrays(named, self.schema.names))
                start += batch.num_rows

    def _is_known(self, file: DataFile) -> bool:
        """Return whether the plan alone has the requested values of a file."""
        return (
            not file.is_filtered
            and file.row_count is not None
            and file.share is None
            and all(name in file.partition for name in self.names)
        )

    def _constants(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        types = self.layout.column_types
        scalars = [
            pa.scalar(file.partition[name], type_to_arrow(types[name])) for name in self.names
        ]
        for start in range(0, file.row_count or 0, _CONSTANT_ROWS):
            count = min(_CONSTANT_ROWS, (file.row_count or 0) - start)
            columns = [pa.repeat(scalar, count) for scalar in scalars]
            yield self._in_form(pa.RecordBatch.from_arrays(columns, list(self.names)))

    def _in_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        (plain,) = to_spark_types(pa.Table.from_batches([batch])).to_batches()
        columns = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(plain.columns, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _expanded(columns: tuple[str, ...] | None, layout: Layout) -> list[str] | None:
    """Return columns with `*` replaced by all fields; None for all fields."""
    if columns is None:
        return None
    every = layout.descriptor.schema.names
    return [name for one in columns for name in (every if one == _ALL_FIELDS else (one,))]


def _schema_of(layout: Layout, names: Sequence[str]) -> Schema:
    """Return columns as fields; partition fields are always nullable."""
    types, fields = layout.column_types, layout.descriptor.schema
    return Schema(
        fields=tuple(fields.find(name) or Field(name=name, type=types[name]) for name in names)
    )


def checked_names(layout: Layout, declared: StructType) -> tuple[str, ...]:
    """Return the names of the columns that Spark expects.

    Raises:
        SchemaMismatchError: A column is unknown, or has another type than declared.
    """
    names = tuple(output_schema(layout, declared.fieldNames()).names)
    for wanted in schema_from_spark(declared.jsonValue()):
        kind = layout.column_types[wanted.name]
        there = struct_type(Schema(fields=(Field(name=wanted.name, type=kind),))).fields[0].dataType
        asked = declared[wanted.name].dataType
        if there != asked:
            raise SchemaMismatchError(
                f"Column {wanted.name!r} was declared as {asked.simpleString()}, but is "
                f"{there.simpleString()}.",
                hint="Declare its actual type, and cast it afterwards.",
            )
    return names


def arrow_schema(declared: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark compares batches with."""
    # Not public API; but its result must be matched exactly, in each release.
    from pyspark.sql.pandas.types import to_arrow_schema

    is_new = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(declared, timezone="UTC") if is_new else to_arrow_schema(declared)


def shared_out(
    store: Store, plan: ScanPlan, split_bytes: int | None, *, may_divide: bool = True
) -> list[list[DataFile]]:
    """Assign the files of a plan to tasks, with row counts as far as the file table has them."""
    files: Sequence[DataFile] = plan.files
    is_parquet = find_reader(plan.layout.descriptor.format) is None
    if not is_parquet:
        # Here, since tasks do not have the file table.
        files = with_recorded(store, plan.file_table, files)
    labels = pa.array([file.label for file in files], pa.large_string())
    facts = file_table.find(store, plan.file_table, labels, {})
    known = [
        replace(file, row_count=row_count)
        for file, row_count in zip(files, facts.row_count.to_pylist(), strict=True)
    ]
    sizes = facts.size_bytes.to_pylist()
    return split(known, sizes, split_bytes=split_bytes, is_divisible=is_parquet and may_divide)


def split(
    files: Sequence[DataFile],
    sizes: Sequence[int | None],
    *,
    split_bytes: int | None,
    is_divisible: bool,
) -> list[list[DataFile]]:
    """Assign files to tasks.

    Args:
        files: The planned files.
        sizes: Sizes of the files in bytes; None where unknown.
        split_bytes: Approximate number of bytes of a task; None to choose by the files.
        is_divisible: True if a part of a file can be read without the rest.

    Returns:
        The files of each task, or parts of them.
    """
    known = [size for size in sizes if size is not None]
    usual = sum(known) // len(known) if known else _SPLIT_BYTES // 8
    weights = [usual if size is None else size for size in sizes]
    total = sum(weights) + _OPENING_BYTES * len(files)
    target = split_bytes or max(_LEAST_SPLIT_BYTES, min(_SPLIT_BYTES, total // _ENOUGH_TASKS))
    units: list[tuple[int, DataFile]] = []
    for file, weight, size in zip(files, weights, sizes, strict=True):
        count = min(-(-weight // target), _MOST_SHARES)
        if not is_divisible or size is None or count < 2:
            units.append((weight + _OPENING_BYTES, file))
            continue
        units += [
            (weight // count + _OPENING_BYTES, replace(file, share=Share(number, count)))
            for number in range(count)
        ]
    return _balanced(units, -(-total // target))


def _balanced(units: list[tuple[int, DataFile]], count: int) -> list[list[DataFile]]:
    """Repeatedly give the largest remaining unit to the task with the fewest bytes."""
    tasks: list[list[DataFile]] = [[] for _ in range(max(1, min(count, len(units))))]
    loads = [(0, number) for number in range(len(tasks))]
    for weight, file in sorted(units, key=lambda unit: -unit[0]):
        load, number = heapq.heappop(loads)
        tasks[number].append(file)
        heapq.heappush(loads, (load + weight, number))
    return [files for files in tasks if files]
