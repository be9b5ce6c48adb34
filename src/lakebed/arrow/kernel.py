"""The write kernel: record batches in, data files and their facts out.

The local writer runs it in this process, Spark runs it in every task. It splits batches by
partition, gathers row groups, rolls files at a target size, and takes the facts of a file from
the footer that it has just written.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.conform import Conformer
from lakebed.errors import InvalidInputError, PartitionSpecError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import BATCH_ID, OWN_FILE_PREFIX, TABLE, encode_level, encode_path
from lakebed.model.values import Scalar
from lakebed.state.facts import ColumnFacts, FileFacts, facts_table
from lakebed.store.base import Store, delete_or_leave

MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How data files are cut.

    Attributes:
        target_bytes: Begin another file when one has reached this size.
        row_group_bytes: Uncompressed size of a row group; bounds what a reader must hold.
        memory_bytes: What one writer may hold before it closes its largest file early.

    >>> WriteOptions(target_bytes=32 * MIB).row_group_bytes == 64 * MIB
    True
    """

    target_bytes: int = 128 * MIB
    row_group_bytes: int = 64 * MIB
    memory_bytes: int = 512 * MIB

    def __post_init__(self) -> None:
        for name in ("target_bytes", "row_group_bytes", "memory_bytes"):
            if getattr(self, name) < 1:
                raise InvalidInputError(
                    f"{name} is {getattr(self, name)}.", hint="Give at least 1 byte."
                )

    @property
    def flush_bytes(self) -> int:
        """Uncompressed size at which a row group is written."""
        return min(self.row_group_bytes, self.target_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """Where the files of one batch go. Travels to Spark tasks.

    Attributes:
        dataset: Name of the dataset.
        batch_id: Of the batch.
        descriptor: Of the dataset.
        options: How files are cut.
    """

    dataset: str
    batch_id: int
    descriptor: DatasetDescriptor
    options: WriteOptions = WriteOptions()

    def new_label(self, partition: str) -> str:
        """Return a label that nobody else uses."""
        level = encode_level(BATCH_ID, self.batch_id)
        directory = f"{partition}/{level}" if partition else level
        return f"{directory}/{OWN_FILE_PREFIX}{uuid.uuid4().hex}"

    def key(self, label: str) -> str:
        """Return the key of a data file."""
        return f"{self.dataset}/{TABLE}/{label}{self.descriptor.file_suffix}"


class KernelWriter:
    """Writes one task's share of a batch.

    Call `write` for each record batch, then `finish` once; or `abort`, which deletes what was
    written. Nothing refers to the files until the batch is committed.
    """

    def __init__(self, store: Store, target: BatchTarget) -> None:
        self._store = store
        self._target = target
        self._descriptor = target.descriptor
        self._stored_names = list(target.descriptor.stored_schema.names)
        self._conformer: tuple[pa.Schema, Conformer] | None = None
        self._open: dict[str, _OpenFile] = {}
        self._done: list[FileFacts] = []
        # Also of files whose writing failed: the store may hold them all the same.
        self._labels: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            SchemaMismatchError: The batch does not fit the schema; none of it was written.
            PartitionSpecError: A partition source is missing, or a value makes too long a path;
                none of the batch was written.
        """
        conformed = self._conform(batch)
        for partition, positions in self._split(conformed):
            rows = conformed if positions is None else conformed.take(positions)
            self._add(partition, rows.select(self._stored_names))
        self._stay_in_memory()

    def check(self, batch: pa.RecordBatch) -> None:
        """Raise what `write` would raise, and write nothing."""
        self._split(self._conform(batch))

    def _conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._conformer is None or self._conformer[0] != batch.schema:
            self._conformer = (batch.schema, Conformer(batch.schema, self._descriptor))
        return self._conformer[1].conform(batch)

    def _split(self, batch: pa.RecordBatch) -> list[tuple[str, pa.Array | None]]:
        """Return the partitions of a batch, each with the positions of its rows in their order.

        None stands for all rows.
        """
        strategy, schema = self._descriptor.partition_by, self._descriptor.schema
        if not batch.num_rows:
            return []
        if not len(strategy):
            return [("", None)]
        columns = strategy.arrays(batch, schema)
        names = [function.name for function in strategy]
        groups, firsts = _group(columns)
        partitions = [
            encode_path(
                {
                    name: _value_at(column, first, name)
                    for name, column in zip(names, columns, strict=True)
                }
            )
            for first in firsts.tolist()
        ]
        if len(partitions) == 1:
            return [(partitions[0], None)]
        by_group = np.argsort(groups, kind="stable")
        starts = np.cumsum(np.bincount(groups))[:-1]
        return [
            (partition, pa.array(positions))
            for partition, positions in zip(partitions, np.split(by_group, starts), strict=True)
        ]

    def _add(self, partition: str, rows: pa.RecordBatch) -> None:
        for piece in _pieces(rows, self._target.options.flush_bytes):
            file = self._open.get(partition)
            if file is None:
                file = self._open[partition] = _OpenFile(self._target, partition)
            file.add(piece)
            if file.size_bytes >= self._target.options.target_bytes:
                self._close(partition)

    def _close(self, partition: str) -> None:
        file = self._open.pop(partition)
        self._labels.append(file.label)
        facts = file.close(self._store)
        if facts is not None:
            self._done.append(facts)

    def _stay_in_memory(self) -> None:
        limit = self._target.options.memory_bytes
        while sum(file.memory_bytes for file in self._open.values()) > limit:
            self._close(max(self._open, key=lambda name: self._open[name].memory_bytes))

    def finish(self) -> pa.Table:
        """Write what is left and return the facts of all files; see `lakebed.state.facts`."""
        for partition in list(self._open):
            self._close(partition)
        return facts_table(self._done, self._descriptor.stored_schema)

    def abort(self) -> None:
        """Delete the files that were written; what cannot be deleted stays invisible garbage."""
        self._open.clear()
        delete_or_leave(self._store, [self._target.key(label) for label in self._labels])
        self._labels.clear()
        self._done.clear()


def _group(columns: list[pa.Array]) -> tuple[np.ndarray, np.ndarray]:
    """Number the distinct combinations of some columns.

    Returns:
        The number of each row, and for each number the first row that has it.
    """
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        codes = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        # Renumbering after each column keeps the codes small, however many columns there are.
        _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    return codes, firsts


def _value_at(column: pa.Array, position: int, name: str) -> Scalar:
    try:
        value: Scalar = column[position].as_py()
    except (OverflowError, ValueError) as exc:
        raise PartitionSpecError(
            f"Partition field {name!r} has a value outside the years 1 to 9999.",
            hint="Correct it, or give null.",
        ) from exc
    return value


def _pieces(rows: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut rows so that a piece has about `limit_bytes` at most."""
    count = max(1, min(rows.num_rows, -(-rows.nbytes // limit_bytes)))
    length = -(-rows.num_rows // count)
    for start in range(0, rows.num_rows, length):
        yield rows.slice(start, length)


class _OpenFile:
    """A data file in the making, in memory until it is closed."""

    def __init__(self, target: BatchTarget, partition: str) -> None:
        self._target = target
        self.label = target.new_label(partition)
        self._rows: list[pa.RecordBatch] = []
        self._row_bytes = 0
        self._sink = pa.BufferOutputStream()
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the file so far, without rows that wait for their row group."""
        return int(self._sink.tell())

    @property
    def memory_bytes(self) -> int:
        """Bytes held."""
        return self.size_bytes + self._row_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        limit = self._target.options.flush_bytes
        if self._row_bytes + batch.nbytes > limit:
            self._flush()
        self._rows.append(batch)
        self._row_bytes += batch.nbytes
        if self._row_bytes >= limit:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        table = pa.Table.from_batches(self._rows)
        if self._writer is None:
            compression = self._target.descriptor.compression
            self._writer = pq.ParquetWriter(
                self._sink,
                table.schema,
                compression="none" if compression == "uncompressed" else compression,
                metadata_collector=self._footers,
            )
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))
        self._rows.clear()
        self._row_bytes = 0

    def close(self, store: Store) -> FileFacts | None:
        """Write the file to the store; None if it has no rows."""
        self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        data = self._sink.getvalue()
        store.put(self._target.key(self.label), data)
        footer = self._footers[0]
        return FileFacts(
            label=self.label,
            row_count=footer.num_rows,
            size_bytes=data.size,
            checksum=f"sha256:{hashlib.sha256(data).hexdigest()}",
            columns=column_facts(footer),
        )


def column_facts(footer: pq.FileMetaData) -> dict[str, ColumnFacts]:
    """Return the facts of the plain columns of a file, from its footer.

    A bound is None where a row group does not say it, the null count likewise.
    """
    found: dict[str, ColumnFacts] = {}
    for position in range(footer.num_columns):
        path = footer.schema.column(position).path
        if "." in path:
            continue
        groups = [footer.row_group(i).column(position) for i in range(footer.num_row_groups)]
        stats = [group.statistics if group.is_stats_set else None for group in groups]
        found[path] = _merge_stats(stats, [group.num_values for group in groups])
    return found


def _merge_stats(stats: list[pq.Statistics | None], value_counts: list[int]) -> ColumnFacts:
    known = [one for one in stats if one is not None]
    if len(known) < len(stats) or not all(one.has_null_count for one in known):
        return ColumnFacts()
    null_count = sum(one.null_count for one in known)
    with_values = [
        one for one, count in zip(known, value_counts, strict=True) if one.null_count < count
    ]
    if not with_values or not all(one.has_min_max for one in with_values):
        return ColumnFacts(null_count=null_count)
    try:
        low, high = min(one.min for one in with_values), max(one.max for one in with_values)
    except (OverflowError, ValueError):  # a time outside the years that Python knows
        return ColumnFacts(null_count=null_count)
    return ColumnFacts(min=low, max=high, null_count=null_count)
