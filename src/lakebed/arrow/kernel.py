"""The write kernel: record batches in, data files and their facts out.

The local writer runs it in this process, Spark runs it in every task. It gathers rows, sorts them
by partition, cuts files near a target size, and takes the facts of a file from its writer.

It is designed for thousands of partitions: rows wait in whole batches, no file is begun before its
rows are there, and rows that do not fit into memory go to temporary files. So each partition has
one file, however many partitions there are.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.arrow.conform import Conformer
from lakebed.arrow.constraint import ViewCheck
from lakebed.arrow.formats.file_format import Content, FileWriter, open_writer
from lakebed.arrow.formats.submissions import with_document_fields
from lakebed.arrow.partitioning import CapKeeper, PartitionNumbers
from lakebed.arrow.row_checks import Judged, RowChecks, RowsAside
from lakebed.arrow.waiting import SortedRows, SpilledRows, WaitingRows
from lakebed.common.sizes import Size, parse_size
from lakebed.errors import InvalidInputError
from lakebed.index.postings_writer import FileValues, PostingsWriter
from lakebed.model import publishing
from lakebed.model.arrow_types import schema_to_arrow, type_to_arrow, with_field_ids
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import BATCH_ID, decode_path, encode_level, new_file_name, split_label
from lakebed.model.layout import TABLE, Naming
from lakebed.model.predicate import TRUE, Predicate
from lakebed.model.values import Scalar
from lakebed.state.check_results import require
from lakebed.state.facts import FileFacts, facts_table
from lakebed.state.written import Written
from lakebed.store.base import Store, delete_or_leave

MIB = 2**20

# A file this near to its target is full: the remainder would be a tiny row group.
_FULL, _AIM = 0.93, 0.98
# Beyond it, a file is mostly overhead of the format, which does not predict the next rows.
_MAX_RATIO = 2.0
# Under memory pressure, this part of a row group is enough to write one.
_SMALL_GROUP = 1 / 8
_MAX_OPEN_FILES = 64  # on disk; systems allow a process some hundreds
_ONE = np.zeros(1, dtype=np.int32)
_SOURCE = "lakebed.source"  # no field has a dot in its name

# A store has a high latency, but serves many requests at a time.
_UPLOAD_THREADS = 8
_MAX_UPLOADS = 64  # that wait


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Sizes at which data files are cut: numbers of bytes, or texts such as `128MB`.

    Attributes:
        target_bytes: Size of a file at which the next one begins.
        row_group_bytes: Uncompressed size of a row group; bounds the memory of readers.
        memory_bytes: Memory of one writer. Rows beyond it go to temporary files, or their
            file is closed early where it is large.
        roll_interval_s: Seconds after which a writer that stays open begins other files; None for
            never.
        cluster: True if Spark brings the rows of a partition together before they are written, so
            that a partition has one file instead of one for each task. It costs a shuffle. None
            decides by the data: few rows come to the driver, which writes them; of the other
            tasks, one whose first rows fall into more than 32 partitions gives its rows on, except
            those of a partition with many of them, and the others write theirs.

    >>> WriteOptions(target_bytes="32MB").target_bytes == 32 * MIB
    True
    """

    target_bytes: int = 128 * MIB
    row_group_bytes: int = 64 * MIB
    memory_bytes: int = 512 * MIB
    roll_interval_s: float | None = None
    cluster: bool | None = None

    if TYPE_CHECKING:  # a size may be given as text

        def __init__(
            self,
            *,
            target_bytes: Size = 128 * MIB,
            row_group_bytes: Size = 64 * MIB,
            memory_bytes: Size = 512 * MIB,
            roll_interval_s: float | None = None,
            cluster: bool | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name in ("target_bytes", "row_group_bytes", "memory_bytes"):
            object.__setattr__(self, name, parse_size(getattr(self, name), name))
        if self.roll_interval_s is not None and not self.roll_interval_s > 0:
            raise InvalidInputError(
                f"roll_interval_s is {self.roll_interval_s}.", hint="Give more than 0 seconds."
            )

    @property
    def flush_bytes(self) -> int:
        """Uncompressed size at which a row group is written."""
        return min(self.row_group_bytes, self.target_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """Destination of the files of one batch. Travels to Spark tasks.

    Attributes:
        dataset: Name of the dataset.
        options: Sizes at which files are cut.
        schema_number: Number of the descriptor's schema, which is part of the files' names.
        constraint: Condition of the view that is written through: every entity must meet it.
        provided: Values of provided partition fields, the same for all entities.
        admitted: For each capped dimension, values that have a partition in any case.
        admitting_writers: Number of writers that share the room that is left under the caps; each
            admits its share of it as values come. With 0, none admits any.
        is_traced: True if writers record the source of each row.
        field_ids: Ids of the columns of Parquet files, by path; None for files without ids.
        is_tree: Whether the head is a tree, so that indices need the directories of files.
    """

    dataset: str
    batch_id: int
    descriptor: DatasetDescriptor
    options: WriteOptions = WriteOptions()
    schema_number: int = 1
    constraint: Predicate = TRUE
    provided: Mapping[str, Scalar] = field(default_factory=dict)
    admitted: Mapping[str, frozenset[str]] = field(default_factory=dict)
    admitting_writers: int = 1
    is_traced: bool = False
    field_ids: Mapping[str, int] | None = None
    is_tree: bool = False

    def new_label(self, partition: str) -> str:
        """Return a unique label."""
        level = encode_level(BATCH_ID, self.batch_id)
        directory = f"{partition}/{level}" if partition else level
        return f"{directory}/{new_file_name(self.schema_number)}"

    def key(self, label: str) -> str:
        """Return the key of a data file."""
        return Naming(self.dataset, TABLE, self.descriptor.file_suffix).key(label)

    def stored_levels(self) -> dict[str, pa.DataType]:
        """Return the levels of directories that data files hold as columns too, with their types."""
        if publishing.ICEBERG not in self.descriptor.properties:
            return {}
        stored, types = self.descriptor.stored_schema, self.descriptor.partition_types
        levels = publishing.levels_in_files(self.descriptor)
        return {name: type_to_arrow(types[name]) for name in levels if name not in stored}

    def file_schema(self) -> pa.Schema:
        """Return the schema of Parquet files: the columns of the rows, then levels; with ids, if any."""
        levels = starmap(pa.field, self.stored_levels().items())
        schema = pa.schema([*schema_to_arrow(self.descriptor.stored_schema), *levels])
        if self.field_ids is not None:
            schema = with_field_ids(schema, self.field_ids)
        name_of = self.descriptor.schema.stored_name
        return pa.schema([field.with_name(name_of(field.name)) for field in schema])


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """Rows that fit, and the numbers of their partitions in one writer.

    Attributes:
        rows: Columns of the stored schema.
        numbers: Number of the partition of each row, or of all.
        entities: All fields, for the declared checks; None without any.
    """

    rows: pa.RecordBatch
    numbers: np.ndarray
    entities: pa.RecordBatch | None = None


def zones_of(schema: pa.Schema, descriptor: DatasetDescriptor) -> frozenset[str]:
    """Return the time zones, other than UTC, in which rows hold the times that partitions divide."""
    sources = {function.source for function in descriptor.partition_by}
    types = (column.type for column in schema if column.name in sources)
    zones = (getattr(type_, "tz", None) for type_ in types)
    return frozenset(zone for zone in zones if zone and zone != "UTC")


class KernelWriter:
    """Writes one task's share of a batch.

    Call `write` for each record batch, then `finish` once; or `abort`, which deletes what was
    written. Nothing refers to the files until the batch is committed.
    """

    def __init__(self, store: Store, target: BatchTarget) -> None:
        self._store = store
        self._target = target
        self._descriptor = target.descriptor
        self._stored = schema_to_arrow(target.descriptor.stored_schema)
        self._levels, self._file_schema = target.stored_levels(), target.file_schema()
        self._conformer: tuple[pa.Schema, Conformer] | None = None
        self._zones: set[str] = set()
        is_narrow = target.constraint != TRUE
        self._view = ViewCheck(target.constraint, target.descriptor) if is_narrow else None
        self._caps = CapKeeper(target.descriptor, target.admitted, writers=target.admitting_writers)
        self._numbers = PartitionNumbers()
        # None without checks of rows.
        self._checks = RowChecks.find(target.descriptor) if target.descriptor.checks else None
        self._aside: RowsAside | None = None  # once a row goes there
        self._seen_count = 0
        carried = self._stored.append(pa.field(_SOURCE, pa.int32()))
        self._waiting = WaitingRows(carried if target.is_traced else self._stored)
        self._spilled = SpilledRows()
        self._open: dict[int, _OpenFile] = {}
        self._uploads = Uploads(store, max(1, self._limit // 2))
        self._columns = self._descriptor.file_schema.names
        name_of = self._descriptor.schema.stored_name
        indexed = {name_of(name): self._stored.field(name).type for name in self._descriptor.index}
        self._postings = PostingsWriter(
            store,
            target.dataset,
            indexed,
            max(1, self._limit // 2),
            with_homes=target.is_tree,
        )
        # Ratio of bytes in the file to bytes in memory, of the last row groups. Small ones compress
        # worse than large ones, so that the worse of the last two predicts the next.
        self._ratios: deque[float] = deque(maxlen=2)
        self._began_at = time.monotonic()
        self._done: list[FileFacts] = []
        # Includes files whose writing failed: the store may hold them all the same.
        self._labels: list[str] = []
        # Sources of the rows of each file, as (source, row count), by label.
        self._runs: dict[str, list[tuple[int, int]]] = {}

    @property
    def partitions(self) -> Sequence[str]:
        """Paths of the partitions seen so far, by the numbers that `checked` returns."""
        return self._numbers.paths

    @property
    def zones(self) -> frozenset[str]:
        """Time zones, other than UTC, of the times seen so far that partition functions divide."""
        return frozenset(self._zones)

    def write(
        self,
        batch: pa.RecordBatch,
        source: int | np.ndarray = 0,
        provided: Mapping[str, Scalar] | None = None,
        *,
        is_judged: bool = False,
    ) -> None:
        """Add rows, except those that a declared check rejects or quarantines.

        Args:
            batch: Rows, which are checked.
            source: Number of the source of all rows, or of each.
            provided: Values of provided partition fields; None for those of the target.
            is_judged: True if `judge_changed` has received the rows.

        Raises:
            SchemaMismatchError: The batch does not fit the schema; none of it was written.
            PartitionSpecError: A partition source is missing, or a value makes too long a path;
                none of the batch was written.
            InvalidInputError: A row lies outside the view that is written through; none of the
                batch was written.
        """
        checked = self.checked(batch, provided)
        if is_judged:
            checked = replace(checked, entities=None)
        judged = self.write_checked(checked, source)
        if judged is not None and len(judged.quarantined):
            assert checked.entities is not None  # it was judged
            rows = checked.entities.take(pa.array(judged.quarantined))
            first = self._seen_count - checked.rows.num_rows + 1
            if self._aside is None:
                self._aside = RowsAside(self._store, self._target.dataset, self._target.batch_id)
            self._aside.add(rows, judged.reasons, (judged.quarantined + first).tolist())

    def checked(
        self,
        batch: pa.RecordBatch,
        provided: Mapping[str, Scalar] | None = None,
        *,
        is_derived: bool = False,
    ) -> CheckedRows:
        """Return rows ready for `write_checked`; write nothing. Raises as `write` does.

        Args:
            batch: Rows, which are checked.
            provided: Values of provided partition fields; None for those of the target.
            is_derived: True if the fields of submissions were read from their documents just now.
        """
        conformed = self._conform(batch, is_derived=is_derived)
        return CheckedRows(
            rows=conformed.select(self._stored.names),
            numbers=self._split(conformed, provided),
            entities=None if self._checks is None else conformed,
        )

    def write_checked(self, checked: CheckedRows, source: int | np.ndarray = 0) -> Judged | None:
        """Add rows that this writer has checked, with one source for all, or one for each.

        Once a declared check refuses the write, further rows are only counted.

        Returns:
            The rows that declared checks leave out, of which the caller sets those for the
            quarantine aside; None if there are none.
        """
        rows, numbers, judged = checked.rows, checked.numbers, self.judge(checked)
        self._seen_count += rows.num_rows
        if self._checks is not None and self._checks.is_refused:
            return None
        if judged is not None:
            is_kept = pa.array(judged.is_kept)
            rows = rows.filter(is_kept)
            numbers = numbers if len(numbers) == 1 else numbers[judged.is_kept]
            source = source[judged.is_kept] if isinstance(source, np.ndarray) else source
        if rows.num_rows:
            self._add(self._marked(rows, source), numbers)
        return judged

    def judge(self, checked: CheckedRows) -> Judged | None:
        """Count rows that fail declared checks; return those that are left out, if there are any."""
        if self._checks is None or checked.entities is None:
            return None
        return self._checks.judge(checked.entities)

    def require_checks(self) -> None:
        """Check that no declared check refuses the rows so far.

        Raises:
            ChecksFailedError: One does.
        """
        if self._checks is not None:
            require(self._target.dataset, self._checks.statuses())

    def judge_changed(self, batch: pa.RecordBatch) -> None:
        """Apply the declared checks to changed rows, which `write_to` or `write` receives.

        Such rows cannot be left out: rows that fail a check refuse the write, unless it only warns.
        """
        if self._checks is not None and batch.num_rows:
            self._checks.judge_changed(self._conform(batch))

    def _marked(self, rows: pa.RecordBatch, source: int | np.ndarray) -> pa.RecordBatch:
        if not self._target.is_traced:
            return rows
        marks = np.broadcast_to(np.asarray(source, dtype=np.int32), rows.num_rows)
        return rows.append_column(_SOURCE, pa.array(marks))

    def write_to(self, partition: str, batch: pa.RecordBatch, source: int | np.ndarray = 0) -> None:
        """Add rows of a known partition, as when files are rewritten.

        Partitions are not computed again: rows stay in the partition that they were in.

        Args:
            partition: Path of the partition.
            batch: Rows of the partition.
            source: Number of the source of all rows, or of each.

        Raises:
            SchemaMismatchError: The batch does not fit the schema; none of it was written.
        """
        if batch.num_rows:
            number = np.array([self._numbers.of_path(partition)], dtype=np.int32)
            rows = self._conform(batch).select(self._stored.names)
            self._add(self._marked(rows, source), number)

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise the errors that `write` would raise, and write nothing.

        Raises:
            ChecksFailedError: A declared check refuses the rows.
        """
        conformed = self._conform(batch)
        self._split(conformed)
        if self._checks is not None:
            require(self._target.dataset, self._checks.refusing(conformed))

    def _conform(self, batch: pa.RecordBatch, *, is_derived: bool = False) -> pa.RecordBatch:
        if self._descriptor.format == "submissions" and not is_derived:
            batch = with_document_fields(batch, self._descriptor)
        if self._conformer is None or self._conformer[0] != batch.schema:
            self._conformer = (batch.schema, Conformer(batch.schema, self._descriptor))
            self._zones |= zones_of(batch.schema, self._descriptor)
        return self._conformer[1].conform(batch)

    def _split(
        self, batch: pa.RecordBatch, provided: Mapping[str, Scalar] | None = None
    ) -> np.ndarray:
        """Return the number of the partition of each row, or one number if all have the same."""
        strategy, schema = self._descriptor.partition_by, self._descriptor.schema
        if not batch.num_rows:
            return _ONE
        if not len(strategy):
            if self._view is not None:
                self._view.check(batch, {})
            return np.array([self._numbers.of_path("")], dtype=np.int32)
        given = self._target.provided if provided is None else provided
        columns = self._caps.limited(strategy.arrays(batch, schema, given))
        names = [function.name for function in strategy]
        if self._view is not None:
            self._view.check(batch, dict(zip(names, columns, strict=True)))
        numbers = self._numbers.of_rows(dict(zip(names, columns, strict=True)))
        self._caps.accept()
        return numbers

    def _add(self, rows: pa.RecordBatch, numbers: np.ndarray) -> None:
        if self.is_roll_due:
            self.roll()
        self._waiting.add(rows, numbers)
        options = self._target.options
        many = options.flush_bytes * self._waiting.partition_count
        if self._waiting.size_bytes >= min(self._limit, many):
            self._relieve()

    @property
    def _limit(self) -> int:
        # Sorting copies the waiting rows, and open files may hold as much again.
        return self._target.options.memory_bytes // 3

    @property
    def is_roll_due(self) -> bool:
        """True if files have been open for longer than `WriteOptions.roll_interval_s`."""
        interval = self._target.options.roll_interval_s
        return interval is not None and time.monotonic() - self._began_at >= interval

    def roll(self) -> None:
        """Write all rows, and close all files; further rows begin others."""
        taken = self._waiting.take()
        in_memory = {number: (start, end) for number, start, end in taken}
        for number in sorted(in_memory.keys() | self._spilled.numbers):
            start, end = in_memory.get(number, (0, 0))
            self._write_groups(number, self._rows_of(number, taken, start, end), is_last=True)
            if number in self._open:
                self._close(number)
        for number in list(self._open):
            self._close(number)
        self._uploads.finish()
        self._began_at = time.monotonic()

    def _rows_of(self, number: int, taken: SortedRows, start: int, end: int) -> pa.Table:
        here = taken.rows.slice(start, end - start)
        before = self._spilled.take(number)
        return pa.concat_tables([*before, here]) if before else here

    def _relieve(self) -> None:
        """Write the row groups that are due, so that the remaining rows fit into memory."""
        taken = self._waiting.take()
        bytes_a_row = taken.rows.nbytes / taken.rows.num_rows
        is_pressed = taken.rows.nbytes >= self._limit
        part = _SMALL_GROUP if is_pressed else 1
        ranges = []
        for number, start, end in taken:
            waiting_bytes = (end - start) * bytes_a_row + self._spilled.size_bytes(number)
            if waiting_bytes >= part * self._due_bytes(self._open.get(number)):
                rows = self._rows_of(number, taken, start, end)
                start = end - self._write_groups(number, rows, is_last=is_pressed)
            if start < end:
                ranges.append((number, start, end))
        self._waiting.put_back(taken, ranges)
        del taken
        if self._waiting.size_bytes > self._limit // 2:
            self._spilled.add(self._waiting.take())
        self._close_largest()

    def _due_bytes(self, file: _OpenFile | None) -> float:
        """Return the target size, in bytes of rows, of a file's next row group."""
        options = self._target.options
        if not self._ratios:
            # The compression of the rows is unknown yet: begin with a part of the file.
            return min(options.row_group_bytes, max(1, options.target_bytes // 4))
        room = _AIM * options.target_bytes - (0 if file is None else file.writer.size_bytes)
        room_for = max(1.0, room / min(max(self._ratios), _MAX_RATIO))
        return room_for / -(-room_for // options.row_group_bytes)

    def _write_groups(self, number: int, rows: pa.Table, *, is_last: bool) -> int:
        """Write rows of a partition as row groups, the last of which may be small if `is_last`.

        Returns:
            Number of rows at the end that were not written.
        """
        while rows.num_rows:
            file = self._open.get(number)
            bytes_a_row = max(rows.nbytes / rows.num_rows, 1 / 8)
            count = max(1, int(self._due_bytes(file) / bytes_a_row))
            if rows.num_rows < count and not is_last:
                break
            if rows.num_rows < 1.05 * count:
                count = rows.num_rows
            if file is None:
                file = self._open[number] = self._new_file(self._numbers.paths[number])
            before = file.writer.size_bytes
            file.write(rows.slice(0, count), self._columns)
            self._ratios.append((file.writer.size_bytes - before) / (count * bytes_a_row))
            rows = rows.slice(count)
            if file.writer.size_bytes >= _FULL * self._target.options.target_bytes:
                self._close(number)
        return int(rows.num_rows)

    def _new_file(self, partition: str) -> _OpenFile:
        label = self._target.new_label(partition)
        content = Content(functools.partial(self._store.begin_file, self._target.key(label)))
        writer = open_writer(self._descriptor, content, self._file_schema, self._constants(label))
        return _OpenFile(label, writer, content, self._postings.new_file(label))

    def _constants(self, label: str) -> dict[str, pa.Scalar]:
        """Return the values of the levels that the file of a label holds."""
        if not self._levels:
            return {}
        values = decode_path(split_label(label)[0], self._descriptor.partition_types)
        return {name: pa.scalar(values[name], kind) for name, kind in self._levels.items()}

    def _close_largest(self) -> None:
        """Close files until the others use little enough memory."""
        files = self._open
        while sum(file.held_bytes for file in files.values()) > self._limit:
            self._close(max(files, key=lambda number: files[number].held_bytes))
        while sum(file.content.is_on_disk for file in files.values()) > _MAX_OPEN_FILES:
            self._close(max(files, key=lambda number: files[number].content.size_bytes))

    def _close(self, number: int) -> None:
        file = self._open[number]
        written = file.writer.close()
        del self._open[number]
        self._labels.append(file.label)
        if self._target.is_traced:
            self._runs[file.label] = file.runs
        self._uploads.put(self._target.key(file.label), written.content)
        self._postings.add(file.label, file.values)
        self._done.append(
            FileFacts(
                label=file.label,
                row_count=written.row_count,
                size_bytes=written.content.size_bytes,
                checksum=written.content.checksum,
                columns=written.columns,
            )
        )

    def finish(self, sources: Sequence[str] = ()) -> Written:
        """Write the remaining rows and return all that was written.

        Args:
            sources: Names of the sources, by their number, if the target is traced.
        """
        self.roll()
        if self._aside is not None:
            self._aside.flush()
        return Written(
            facts=facts_table(self._done, self._descriptor.file_schema),
            postings=self._postings.finish(),
            caught=self._caps.caught,
            origins={
                label: tuple((sources[number], row_count) for number, row_count in runs)
                for label, runs in self._runs.items()
            },
            checks=() if self._checks is None else self._checks.statuses(),
            set_aside=() if self._aside is None else tuple(self._aside.keys),
            zones=self.zones,
        )

    def abort(self) -> None:
        """Delete the files that were written; any that cannot be deleted stay as garbage."""
        for file in self._open.values():
            file.content.discard()
        self._open.clear()
        self._waiting.clear()
        self._spilled.clear()
        self._uploads.abort()
        self._postings.abort()
        keys = [self._target.key(label) for label in self._labels]
        if self._aside is not None:
            keys += self._aside.keys
        delete_or_leave(self._store, keys)
        self._labels.clear()
        self._done.clear()
        self._runs.clear()


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """A data file in the making, which no reader sees until it is closed."""

    label: str
    writer: FileWriter
    content: Content
    values: FileValues
    runs: list[tuple[int, int]] = field(default_factory=list)

    def write(self, rows: pa.Table, names: Sequence[str]) -> None:
        """Write a row group under the names of columns, and record the sources of its rows."""
        if _SOURCE in rows.schema.names:
            sources = rows.column(_SOURCE).to_numpy()
            starts = np.flatnonzero(np.diff(sources, prepend=sources[:1] - 1))
            lengths = np.diff(starts, append=len(sources))
            self.runs.extend(zip(sources[starts].tolist(), lengths.tolist(), strict=True))
            rows = rows.drop_columns([_SOURCE])
        if rows.schema.names != list(names):
            rows = rows.rename_columns(list(names))
        self.values.add(rows)
        self.writer.write(rows)

    @property
    def held_bytes(self) -> int:
        """Bytes that the file holds in memory."""
        return self.content.held_bytes + self.values.size_bytes


def write_batches(store: Store, target: BatchTarget, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write record batches as the data files of one batch.

    Raises:
        LakebedError: The data does not fit, or the store failed. What was written is deleted.
    """
    writer = KernelWriter(store, target)
    try:
        for batch in batches:
            writer.write(batch)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


class Uploads:
    """Puts immutable objects in threads, and holds few bytes at a time."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        """Start without uploads.

        Args:
            store: Store that receives the objects.
            max_bytes: Size of pending objects above which `put` waits for the first of them.
        """
        self._store = store
        self._max_bytes = max_bytes
        self._threads: ThreadPoolExecutor | None = None
        self._waiting: deque[tuple[Future[None], Content, int]] = deque()
        self._size_bytes = 0

    def put(self, key: str, content: Content) -> None:
        """Start to put an object.

        Raises:
            StorageError: An earlier upload failed.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_UPLOAD_THREADS, thread_name_prefix="lakebed-upload")
        size = content.held_bytes
        future = self._threads.submit(content.put, self._store, key)
        self._waiting.append((future, content, size))
        self._size_bytes += size
        while self._size_bytes > self._max_bytes or len(self._waiting) > _MAX_UPLOADS:
            self._wait_for_first()

    def _wait_for_first(self) -> None:
        future, _, size = self._waiting.popleft()
        self._size_bytes -= size
        future.result()

    def finish(self) -> None:
        """Wait for all uploads.

        Raises:
            StorageError: An upload failed.
        """
        while self._waiting:
            self._wait_for_first()
        self._close()

    def abort(self) -> None:
        """Cancel the uploads that have not begun, and wait for the others, ignoring errors."""
        for future, content, _ in self._waiting:
            if future.cancel():
                content.discard()
        self._waiting.clear()
        self._size_bytes = 0
        self._close()

    def _close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
