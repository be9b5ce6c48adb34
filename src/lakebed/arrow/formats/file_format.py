"""Interfaces of file formats: writers and readers of data files, and the content of a file in the making."""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Schema
from lakebed.model.values import Scalar, is_nan
from lakebed.state.facts import ColumnFacts
from lakebed.store.base import Store
from lakebed.store.growing import GrowingFile

_MIB = 2**20
_PIECE_BYTES = _MIB // 4  # smaller ones are gathered
_HELD_BYTES = 8 * _MIB  # in memory, before a store that supports it gets a growing file


def _nowhere() -> None:
    return None


class Content(io.RawIOBase):
    """Collects the bytes of a file, and their checksum, as a stream for its writer.

    A few bytes stay in memory until they are put: a buffer that grows is moved whenever it is full,
    and takes up to three times their size. More bytes go to a file of the store, if it supports
    that.
    """

    def __init__(self, begin: Callable[[], GrowingFile | None] = _nowhere) -> None:
        """Start without bytes.

        Args:
            begin: Begins the file; see `Store.begin_file`. It is called once there are many bytes.
        """
        super().__init__()
        self._begin = begin
        self._is_discarded = False
        self._restart()

    def _restart(self) -> None:
        self._file: GrowingFile | None = None
        self._is_asked = False
        self._pieces: list[bytes | bytearray] = []
        self._gathered = bytearray()
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    @property
    def is_on_disk(self) -> bool:
        """True if the bytes are in a file."""
        return self._file is not None

    @property
    def held_bytes(self) -> int:
        """Bytes in memory."""
        return 0 if self.is_on_disk else self.size_bytes

    @property
    def checksum(self) -> str:
        """Checksum of the bytes, in the form of the file table."""
        return f"sha256:{self._digest.hexdigest()}"

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes."""
        return self.size_bytes

    def write(self, data: Any, /) -> int:
        """Add a copy of bytes.

        Raises:
            StorageError: The store failed.
        """
        size = memoryview(data).nbytes
        if self._is_discarded:  # by an abort; writers end their files even so
            return size
        self._digest.update(data)
        self.size_bytes += size
        if size < _PIECE_BYTES:
            self._gathered += data
        if size >= _PIECE_BYTES or len(self._gathered) >= _PIECE_BYTES:
            self._gather()
        if size >= _PIECE_BYTES:
            self._keep(data)
        return size

    def _gather(self) -> None:
        if self._gathered:
            self._keep(self._gathered)
            self._gathered = bytearray()

    def _keep(self, piece: Any) -> None:
        if self._file is not None:
            self._file.write(piece)
            return
        self._pieces.append(piece if isinstance(piece, bytearray) else bytes(piece))
        if self.size_bytes > _HELD_BYTES and not self._is_asked:
            self._is_asked = True
            self._file = self._begin()
            if self._file is not None:
                for waiting in self._pieces:
                    self._file.write(waiting)
                self._pieces.clear()

    def getvalue(self) -> bytes:
        """Return the bytes in memory."""
        self._gather()
        return b"".join(self._pieces)

    def take(self) -> pa.NativeFile:
        """Return the bytes written so far, for reading, and start again without bytes."""
        self._gather()
        if self._file is None:
            source: pa.NativeFile = pa.BufferReader(self.getvalue())
        else:
            self._file.flush()
            source = pa.OSFile(str(self._file.path))
            self._file.discard()  # it stays for as long as it is read
        self._restart()
        return source

    def put(self, store: Store, key: str) -> None:
        """Make an object of the bytes, and discard them.

        Raises:
            StorageError: The store failed.
        """
        self._gather()
        if self._file is not None:
            try:
                self._file.close()
                store.adopt(self._file.path, key)
            except BaseException:
                self._file.discard()
                raise
        elif self.size_bytes <= _HELD_BYTES:
            store.put(key, self.getvalue())
        else:
            store.put_stream(key, self._pieces, size_bytes=self.size_bytes)

    def discard(self) -> None:
        """Discard the bytes, and all that are written later."""
        self._is_discarded = True
        if self._file is not None:
            self._file.discard()
        self._restart()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A data file that is complete.

    Attributes:
        row_count: Number of entities.
        columns: Facts of plain columns, by column name.
    """

    content: Content
    row_count: int
    columns: Mapping[str, ColumnFacts]


class FileWriter(ABC):
    """A data file in the making, which no reader sees until it is put."""

    def __init__(self, content: Content | None) -> None:
        """Begin a file.

        Args:
            content: Takes the bytes; None for memory.
        """
        self._sink = Content() if content is None else content

    @property
    def size_bytes(self) -> int:
        """Bytes written so far; a compressor may hold more."""
        return self._sink.size_bytes

    @abstractmethod
    def write(self, rows: pa.Table) -> None:
        """Add rows of the stored schema, at least one; they become one row group or block run.

        Raises:
            SchemaMismatchError: The format cannot hold a value; the file is lost.
        """

    @abstractmethod
    def close(self) -> WrittenFile:
        """End the file. Call it once, after at least one `write`."""


class RunningFacts:
    """Bounds and null count of one column; NaN does not count for bounds."""

    def __init__(self) -> None:
        self._low: Scalar = None
        self._high: Scalar = None
        self._null_count = 0
        self._is_known = True

    def add(self, column: pa.ChunkedArray) -> None:
        """Take more values into account."""
        self._null_count += column.null_count
        bounds = pc.min_max(column)
        try:
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
        except (OverflowError, ValueError):  # a time outside the years of Python
            self._is_known = False
            return
        if low is None or is_nan(low):  # only nulls and NaN
            return
        self._low = low if self._low is None else min(self._low, low)
        self._high = high if self._high is None else max(self._high, high)

    def get(self) -> ColumnFacts:
        """Return the facts so far."""
        if not self._is_known:
            return ColumnFacts(null_count=self._null_count)
        return ColumnFacts(min=self._low, max=self._high, null_count=self._null_count)


class FileReader(Protocol):
    """Reads the rows of data files whose format Arrow's own scan does not know."""

    def batches(self, source: pa.NativeFile, wanted: Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order.

        The file may have been written with an older schema: it is read by `wanted`, with
        defaults for fields that it lacks.

        Args:
            source: The file; the caller closes it.
            wanted: The fields to read, at least one, in the order of the result.

        Raises:
            CorruptMetadataError: The file is damaged, or does not fit `wanted`.
        """

    def count(self, source: pa.NativeFile) -> int:
        """Count the rows.

        Raises:
            CorruptMetadataError: The file is damaged.
        """


def open_writer(
    descriptor: DatasetDescriptor,
    content: Content | None = None,
    schema: pa.Schema | None = None,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> FileWriter:
    """Begin a data file of a dataset.

    Args:
        descriptor: Descriptor of the dataset.
        content: Takes the bytes; None for memory.
        schema: Schema of a Parquet file, if it is more than that of the rows.
        constants: Values of the columns that only the file has, the same in all its rows.

    Raises:
        MissingDependencyError: The format needs a package that is not installed.
    """
    stored, compression = descriptor.file_schema, descriptor.compression
    match descriptor.format:
        case "avro":
            from lakebed.arrow.formats.avro_files import AvroWriter

            return AvroWriter(stored, compression, content)
        case "submissions":
            from lakebed.arrow.formats.submissions import SubmissionsWriter

            return SubmissionsWriter(stored, compression, content)
        case _:
            from lakebed.arrow.formats.parquet import ParquetWriter

            held = schema_to_arrow(stored) if schema is None else schema
            return ParquetWriter(held, compression, content, constants)


def find_reader(format: str) -> FileReader | None:  # noqa: A002 - the word of the descriptor
    """Return the reader of a format; None for Parquet, which Arrow's dataset scan reads."""
    match format:
        case "avro":
            from lakebed.arrow.formats.avro_files import AvroReader

            return AvroReader()
        case "submissions":
            from lakebed.arrow.formats.submissions import SubmissionsReader

            return SubmissionsReader()
        case _:
            return None
