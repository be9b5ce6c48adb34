"""Interfaces of file formats: writers and readers of data files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.formats.file_content import Content
from lakebed.model.schema import Schema
from lakebed.model.values import Scalar, is_nan
from lakebed.state.facts import ColumnFacts


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
        except (OverflowError, ValueError):  # a time outside the years that Python knows
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
