"""The source of `readStream.format("lakebed")`: commits of a dataset as micro-batches.

In a Python process of its driver, which lives as long as the query, Spark requests the end of each
micro-batch and its data files, and reads these in tasks. It stores the start and end positions of
each micro-batch. A position never changes its meaning, so each row is delivered exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakebed.datasource.addresses import Opened, open_to_read
from lakebed.datasource.frame_source import (
    ReadTasks,
    arrow_schema,
    checked_names,
    columns_of,
    shared_out,
)
from lakebed.datasource.stream_options import StreamReadOptions
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.keys import batch_id_of
from lakebed.model.predicate import TRUE, bind
from lakebed.plan.plan import DataFile
from lakebed.plan.search import plan
from lakebed.spark.planned_files import files_table
from lakebed.spark.task_results import table_to_bytes
from lakebed.spark.travel import Travels
from lakebed.work.commits import CommitStream, Delivery, StreamPosition, check_schema_kept

try:  # since Spark 4.2
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )

    _BASES: tuple[type, ...] = (DataSourceStreamReader, SupportsTriggerAvailableNow)
except ImportError:
    _BASES = (DataSourceStreamReader,)

_CHANGE, _VERSION, _BATCH = "_change", "_version", "_batch_id"
# Columns about the commit of a row: its operation, its version, and its batch.
CHANGE_COLUMNS = StructType(
    [
        StructField(_CHANGE, StringType(), nullable=False),
        StructField(_VERSION, LongType(), nullable=False),
        StructField(_BATCH, LongType()),
    ]
)


def declared_schema(texts: Mapping[str, str]) -> StructType:
    """Return the columns of a streaming read whose schema the caller has not declared.

    Raises:
        LakebedError: An option cannot be used; see `StreamReadOptions.parse` and `open_to_read`.
        SchemaMismatchError: A column is unknown, is named twice, or has the name of a change column.
    """
    options = StreamReadOptions.parse(texts)
    columns = columns_of(options.read)
    if not options.has_change_columns:
        return columns
    for name in CHANGE_COLUMNS.names:
        if name in columns.names:
            raise SchemaMismatchError(
                f"The dataset has a column {name!r} of its own.",
                hint="Leave the option changeColumns out, or this column, with the option columns.",
            )
    return StructType([*columns.fields, *CHANGE_COLUMNS.fields])


@dataclass(frozen=True, slots=True)
class Piece:
    """Some data files that a task reads, of one batch of one version.

    Attributes:
        files: The files in the form of `files_table`, as bytes.
        change: Operation of their commit.
        version: Version that the commit made.
        batch_id: Id of the batch; None for files that another tool wrote.
    """

    files: bytes
    change: str
    version: int
    batch_id: int | None


class StreamPartition(InputPartition):
    """Files that one task reads."""

    def __init__(self, tasks: ReadTasks, pieces: tuple[Piece, ...]) -> None:
        """Keep the settings of all tasks, and the files of this one."""
        super().__init__(pieces)
        self.tasks = tasks
        self.pieces = pieces


class LakebedStreamReader(Travels, *_BASES):  # type: ignore[misc]  # its bases depend on Spark
    """Reader of the commits of a dataset."""

    def __init__(self, texts: dict[str, str], schema: StructType) -> None:
        """Keep the options; nothing is read.

        Args:
            texts: The options of the query.
            schema: Schema of the rows of the query.
        """
        self._texts = texts
        self._schema = schema
        self._last: StreamPosition | None = None  # of Trigger.AvailableNow
        self._snapshots: dict[int, tuple[str, ...]] = {}

    @cached_property
    def _options(self) -> StreamReadOptions:
        return StreamReadOptions.parse(self._texts)

    @cached_property
    def _opened(self) -> Opened:
        """The dataset at the start of the query, whose schema all reads use."""
        return open_to_read(self._options.read)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the state, which tasks do not need."""
        return {"_texts": self._texts, "_schema": self._schema, "_last": None, "_snapshots": {}}

    def _commits(self) -> CommitStream:
        store, began = self._opened.store, self._opened.layout
        commits = CommitStream(store, began.name, self._options.on_change, self._snapshots)
        check_schema_kept(began, commits.state)
        return commits

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start of a new query.

        Raises:
            VersionNotFoundError: The version or batch does not exist.
        """
        options, commits = self._options, self._commits()
        if options.starts_latest:
            position = commits.end()
        elif options.starting_version is not None:
            position = commits.start_at_version(options.starting_version)
        elif options.starting_time is not None:
            position = commits.start_at_time(options.starting_time)
        elif options.starting_batch_id is not None:
            position = commits.start_at_batch(options.starting_batch_id)
        else:
            position = commits.start()
        return position.to_offset()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit of a micro-batch that the options set."""
        options = self._options
        if options.max_files is not None:
            return ReadMaxFiles(options.max_files)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the stream at the current version: later commits are not read."""
        self._last = self._commits().end()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return the end of the next micro-batch.

        Args:
            start: First offset; None from a Spark before 4.2, which has no limits.
            limit: Limit that Spark passes on from `getDefaultReadLimit`.

        Raises:
            LakebedError: The next commits cannot be read; the message names the remedy.
        """
        commits = self._commits()
        end = self._last or commits.end()
        if start is None or limit is None:
            if self._options.is_limited:
                raise InvalidInputError(
                    "A limit of a micro-batch needs Spark 4.2 or later.",
                    hint="Leave maxFilesPerTrigger and maxBytesPerTrigger out.",
                )
            return end.to_offset()
        position = StreamPosition.from_offset(start)
        commits.check_position(position)
        if (position.version, position.file) >= (end.version, end.file):
            return start
        is_limited = not isinstance(limit, ReadAllAvailable)
        return commits.limited(
            position,
            end,
            max_files=self._options.max_files if is_limited else None,
            max_bytes=self._options.max_bytes if is_limited else None,
        ).to_offset()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the current position of the dataset, for the progress of the query."""
        return self._commits().end().to_offset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[StreamPartition]:
        """Return the files of the tasks of a micro-batch.

        Raises:
            LakebedError: The commits cannot be read; the message names the remedy.
        """
        commits = self._commits()
        between = list(
            commits.between(StreamPosition.from_offset(start), StreamPosition.from_offset(end))
        )
        brought = {label: delivery for delivery in between for label in delivery.labels}
        if not brought:
            return []
        state, store = commits.holding(between), self._opened.store
        constraint = bind(self._opened.view.constraint, state.layout.predicate_types)
        planned = plan(state, constraint, requests=0, store=None if constraint == TRUE else store)
        fields = [field for field in self._schema if field.name not in CHANGE_COLUMNS.names]
        columns = StructType(fields)
        tasks = ReadTasks(
            store=store,
            layout=planned.layout,
            residual=planned.residual,
            names=checked_names(planned.layout, columns),
            schema=arrow_schema(columns),
        )
        return [
            StreamPartition(tasks, tuple(_pieces(files, brought)))
            for files in shared_out(store, planned, self._options.read.split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        assert isinstance(partition, StreamPartition)  # of `partitions`
        schema = arrow_schema(self._schema)
        for piece in partition.pieces:
            for batch in partition.tasks.read(piece.files):
                yield _with_changes(batch, piece, schema)


def _pieces(files: Sequence[DataFile], brought: Mapping[str, Delivery]) -> Iterator[Piece]:
    """Yield the files of a task, grouped by batch and version."""
    groups: dict[tuple[str, int, int | None], list[DataFile]] = {}
    for file in files:
        delivery = brought[file.label]
        key = delivery.operation, delivery.version, batch_id_of(file.label)
        groups.setdefault(key, []).append(file)
    for (change, version, batch_id), group in groups.items():
        yield Piece(table_to_bytes(files_table(group)), change, version, batch_id)


def _with_changes(batch: pa.RecordBatch, piece: Piece, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the change columns that Spark expects, in its order."""
    if batch.num_columns == len(schema):
        return batch
    values = {_CHANGE: piece.change, _VERSION: piece.version, _BATCH: piece.batch_id}
    columns = [
        pa.repeat(pa.scalar(values[field.name], field.type), batch.num_rows)
        if field.name in values
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
