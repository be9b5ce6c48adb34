"""Parquet files. Arrow's dataset scan reads them, with pushdown to row groups."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.arrow.formats.file_format import Content, FileWriter, WrittenFile
from lakebed.arrow.formats.footer_seal import seal
from lakebed.model.arrow_types import has_field_ids
from lakebed.state.facts import ColumnFacts

# INT96 counts nanoseconds of a day. As 64 bits of nanoseconds, times after 2262 would overflow
# without an error, and 9999-12-31 is usual in it.
INT96_UNIT = "us"
_INT96 = "INT96"

# Rows to inspect for the choice of an encoding: enough that values repeat, a part of the whole.
_MIN_SAMPLE, _MAX_SAMPLE = 1_024, 65_536


def open_parquet(source: pa.NativeFile) -> pq.ParquetFile:
    """Open a file of any tool; pages are compared with their checksums, INT96 is in microseconds."""
    return pq.ParquetFile(
        source, page_checksum_verification=True, coerce_int96_timestamp_unit=INT96_UNIT
    )


def footer_schema(footer: pq.FileMetaData) -> pa.Schema:
    """Return the Arrow schema of a file, where only INT96 is a time in nanoseconds."""
    kinds = _leaf_kinds(footer)
    return pa.schema(
        [
            field.with_type(_timed(field.type, kinds, int96=None))
            for field in footer.schema.to_arrow_schema()
        ]
    )


def with_instants(schema: pa.Schema, footer: pq.FileMetaData) -> pa.Schema:
    """Return the schema of an open file, where INT96 is a time in UTC, as Spark means it."""
    kinds, instant = _leaf_kinds(footer), pa.timestamp(INT96_UNIT, "UTC")
    return pa.schema(
        [field.with_type(_timed(field.type, kinds, int96=instant)) for field in schema]
    )


def has_int96(footer: pq.FileMetaData) -> bool:
    """Return whether a file holds times in INT96."""
    return _INT96 in _leaf_kinds(footer)


def is_of_spark(footer: pq.FileMetaData) -> bool:
    """Return whether Spark wrote a file: its times in INT96 are instants."""
    return any(key.startswith(b"org.apache.spark.") for key in footer.metadata or {})


def nanosecond_columns(footer: pq.FileMetaData) -> list[str]:
    """Return the top columns that hold times in nanoseconds, other than INT96."""
    kinds = _leaf_kinds(footer)
    return [
        field.name
        for field in footer.schema.to_arrow_schema()
        if _timed(field.type, kinds, int96=None) != field.type
    ]


def _leaf_kinds(footer: pq.FileMetaData) -> Iterator[str]:
    """Return the physical types of the leaves of a file, in the order of its schema."""
    return iter([footer.schema.column(i).physical_type for i in range(footer.num_columns)])


def _timed(kind: pa.DataType, leaves: Iterator[str], int96: pa.DataType | None) -> pa.DataType:
    """Return a type with other times: those in INT96, or else those in 64 bits of nanoseconds.

    Args:
        kind: Type in Arrow.
        leaves: Physical types of its leaves, and of those that follow.
        int96: Type of INT96; None to have the others in microseconds.
    """
    if isinstance(kind, pa.BaseExtensionType):
        _timed(kind.storage_type, leaves, int96)
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_timed(f.type, leaves, int96)) for f in kind])
    if pa.types.is_map(kind):
        key = _timed(kind.key_type, leaves, int96)
        return pa.map_(key, _timed(kind.item_type, leaves, int96))
    if pa.types.is_nested(kind):
        field = kind.value_field
        element = field.with_type(_timed(field.type, leaves, int96))
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(element, kind.list_size)
        return pa.large_list(element) if pa.types.is_large_list(kind) else pa.list_(element)
    is_int96 = next(leaves) == _INT96
    if int96 is not None:
        return int96 if is_int96 else kind
    is_nanos = not is_int96 and pa.types.is_timestamp(kind) and kind.unit == "ns"
    return pa.timestamp("us", kind.tz) if is_nanos else kind


class _SealedStream(io.RawIOBase):
    """A stream to the content of a file; its last part is held until the footer can be sealed."""

    def __init__(self, content: Content) -> None:
        super().__init__()
        self._content = content
        self._ending: bytearray | None = None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._content.size_bytes + len(self._ending or b"")

    def write(self, data: Any, /) -> int:
        if self._ending is None:
            return self._content.write(data)
        self._ending += memoryview(data).cast("B")
        return memoryview(data).nbytes

    def hold(self) -> None:
        """Hold what is written from here on: the footer, and perhaps more before it."""
        self._ending = bytearray()

    def finish(self) -> None:
        """Write the held bytes with the seal of the footer."""
        assert self._ending is not None
        self._content.write(seal(bytes(self._ending)))
        self._ending = None


class ParquetWriter(FileWriter):
    """Writes one row group per `write`; facts come from the footer and from the values it lacks.

    Arrow's bounds ignore NaN, but NaN is greater than every number for Spark, Hive and other
    readers of bounds. So a column of floats that holds one has no bounds in the whole file, as if
    they had not been computed. Our own facts hold the bounds that are known.
    """

    def __init__(
        self,
        schema: pa.Schema,
        compression: str,
        content: Content | None = None,
        constants: Mapping[str, pa.Scalar] | None = None,
    ) -> None:
        """Begin a file.

        Args:
            schema: Schema of the file: the columns of the rows, then the constants.
            compression: One of the descriptor's names for Parquet.
            content: Takes the bytes; None for memory.
            constants: Values of columns that the rows lack; all rows of the file have the same.
        """
        super().__init__(content)
        self._schema = schema
        self._constants = constants or {}
        self._compression = "none" if compression == "uncompressed" else compression
        self._stream = _SealedStream(self._sink)
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None
        self._repetitive: list[str] = []
        self._floats = [path for path in _paths(schema) if _is_float(schema, path)]
        self._unbounded: frozenset[str] = frozenset()
        self._seen: dict[str, ColumnFacts] = {}  # of columns without bounds in the file

    def _open(self) -> pq.ParquetWriter:
        bounded = [path for path in _paths(self._schema) if path not in self._unbounded]
        return pq.ParquetWriter(
            pa.PythonFile(self._stream, mode="w"),
            self._schema,
            compression=self._compression,
            use_dictionary=self._repetitive,
            write_statistics=bounded if self._unbounded else True,
            write_page_checksum=True,
            # Arrow's copy of the schema adds nothing to our types, and takes 80 bytes a column.
            store_schema=not has_field_ids(self._schema),
            metadata_collector=self._footers,
        )

    def write(self, rows: pa.Table) -> None:
        """Write one row group. The first one decides how the columns are encoded."""
        for name, value in self._constants.items():
            rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        with_nan = frozenset(path for path in self._floats if _holds_nan(rows, path))
        if self._writer is None:
            self._repetitive = _repetitive_columns(rows)
            self._unbounded = with_nan
            self._writer = self._open()
        elif not with_nan <= self._unbounded:
            self._write_again_without_bounds(self._writer)
        self._see(rows, self._unbounded)
        _write_group(self._writer, rows)

    def _see(self, rows: pa.Table, paths: frozenset[str]) -> None:
        """Record facts of columns that have no bounds in the footer."""
        for name in paths.intersection(rows.column_names):
            facts = self._seen.get(name, ColumnFacts(null_count=0))
            self._seen[name] = _with_values(facts, rows.column(name))

    def _write_again_without_bounds(self, writer: pq.ParquetWriter) -> None:
        """Write the row groups so far into a new file, in which no column of floats has bounds.

        The columns with bounds are fixed when a file is begun. So this happens at most once a file.
        """
        writer.close()
        before = self._sink.take()
        bounded = frozenset(self._floats) - self._unbounded
        self._unbounded = frozenset(self._floats)
        self._footers.clear()
        self._writer = self._open()
        with before, pq.ParquetFile(before) as file:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number).cast(self._schema)
                self._see(rows, bounded)
                _write_group(self._writer, rows)

    def close(self) -> WrittenFile:
        """Write the footer, and take the facts from it."""
        if self._writer is None:
            self._repetitive = _repetitive_columns(self._schema.empty_table())
        writer = self._writer or self._open()
        self._stream.hold()
        writer.close()
        self._stream.finish()
        footer = self._footers[0]
        columns = column_facts(footer)
        columns.update((name, self._seen[name]) for name in self._unbounded & self._seen.keys())
        return WrittenFile(content=self._sink, row_count=footer.num_rows, columns=columns)


def _write_group(writer: pq.ParquetWriter, rows: pa.Table) -> None:
    try:
        writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    except BaseException:
        writer.is_open = False  # else it would try to end the file when it is forgotten
        raise


def _is_float(schema: pa.Schema, path: str) -> bool:
    """Return whether Spark uses the bounds of a column: floats, but not inside lists."""
    name, *inner = path.split(".")
    kind = schema.field(name).type
    for part in inner:
        if not pa.types.is_struct(kind):
            return False
        kind = kind.field(part).type
    return bool(pa.types.is_floating(kind))


def _holds_nan(rows: pa.Table, path: str) -> bool:
    name, *inner = path.split(".")
    column = rows.column(name)
    for part in inner:
        column = pc.struct_field(column, part)
    return bool(pc.any(pc.is_nan(column)).as_py())


def _with_values(facts: ColumnFacts, column: pa.ChunkedArray) -> ColumnFacts:
    """Return the facts of a column of floats extended by more values, as in a footer."""
    bounds = pc.min_max(column)  # NaN is left out
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    assert facts.null_count is not None
    null_count = facts.null_count + column.null_count
    if low is None or math.isnan(low):
        return replace(facts, null_count=null_count)
    # Zeros are equal, but a reader of bounds may distinguish them.
    low, high = (-0.0 if low == 0 else low), (0.0 if high == 0 else high)
    return ColumnFacts(
        min=low if facts.min is None else min(facts.min, low),
        max=high if facts.max is None else max(facts.max, high),
        null_count=null_count,
    )


def _paths(schema: pa.Schema) -> list[str]:
    """Return the columns of a file, nested ones with dots, as its footer names them."""
    return [path for field in schema for path in _leaves(field.name, field.type)]


def _repetitive_columns(rows: pa.Table) -> list[str]:
    """Return the columns to encode with a dictionary: those whose values repeat on average.

    Arrow would make one for every column, and give it up at 1 MiB. Files of one partition seldom
    reach that size, and a dictionary of distinct values takes most of the time and makes the file
    larger. Columns of nested types always have one.
    """
    sample = rows.slice(0, min(_MAX_SAMPLE, max(_MIN_SAMPLE, rows.num_rows // 8)))
    names = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            names += list(_leaves(field.name, field.type))
        elif _is_repetitive(column):
            names.append(field.name)
    return names


def _is_repetitive(column: pa.ChunkedArray) -> bool:
    """Return whether at most half of the values of a column are distinct."""
    half = len(column) // 2
    # For distinct values, as of a key, half of them and one more decide.
    return _distinct_count(column.slice(0, half + 1)) <= half and _distinct_count(column) <= half


def _distinct_count(column: pa.ChunkedArray) -> int:
    count: int = pc.count_distinct(column, mode="all").as_py()
    return count


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_nested(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def column_facts(footer: pq.FileMetaData) -> dict[str, ColumnFacts]:
    """Return the facts of the plain columns of a file, from its footer.

    A bound or a null count is None if a row group lacks it.
    """
    facts: dict[str, ColumnFacts] = {}
    for position in range(footer.num_columns):
        path = footer.schema.column(position).path
        if "." in path:
            continue
        groups = [footer.row_group(i).column(position) for i in range(footer.num_row_groups)]
        stats = [group.statistics if group.is_stats_set else None for group in groups]
        facts[path] = _merge_stats(stats, [group.num_values for group in groups])
    return facts


def _merge_stats(stats: list[pq.Statistics | None], value_counts: list[int]) -> ColumnFacts:
    known = [stat for stat in stats if stat is not None]
    if len(known) < len(stats) or not all(stat.has_null_count for stat in known):
        return ColumnFacts()
    null_count = sum(stat.null_count for stat in known)
    with_values = [
        stat for stat, count in zip(known, value_counts, strict=True) if stat.null_count < count
    ]
    if not with_values or not all(stat.has_min_max for stat in with_values):
        return ColumnFacts(null_count=null_count)
    try:
        low, high = min(stat.min for stat in with_values), max(stat.max for stat in with_values)
    except (OverflowError, ValueError):  # a time outside the years of Python
        return ColumnFacts(null_count=null_count)
    return ColumnFacts(min=low, max=high, null_count=null_count)
