"""Parquet files. Arrow's dataset scan reads them, with pushdown to row groups."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.arrow.formats.base import FileWriter, WrittenFile
from lakebed.state.facts import ColumnFacts

# Rows that are looked at to choose an encoding: enough to meet values again, a part of the whole.
_MIN_SAMPLE, _MAX_SAMPLE = 1_024, 65_536


class ParquetWriter(FileWriter):
    """One row group a write; the facts are those of the footer."""

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        """Begin a file.

        Args:
            schema: Of the rows.
            compression: One of the descriptor's names for Parquet.
        """
        self._schema = schema
        self._compression = "none" if compression == "uncompressed" else compression
        self._sink = pa.BufferOutputStream()
        self._footers: list[pq.FileMetaData] = []
        self._writer: pq.ParquetWriter | None = None

    def _open(self, rows: pa.Table) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._compression,
            use_dictionary=_repetitive_columns(rows),
            write_page_checksum=True,
            metadata_collector=self._footers,
        )

    @property
    def size_bytes(self) -> int:
        """Bytes of the row groups so far."""
        return int(self._sink.tell())

    def write(self, rows: pa.Table) -> None:
        """Write one row group. The first one decides how the columns are encoded."""
        if self._writer is None:
            self._writer = self._open(rows)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def close(self) -> WrittenFile:
        """Write the footer, and take the facts from it."""
        writer = self._writer or self._open(self._schema.empty_table())
        writer.close()
        footer = self._footers[0]
        return WrittenFile(
            data=self._sink.getvalue(), row_count=footer.num_rows, columns=column_facts(footer)
        )


def _repetitive_columns(rows: pa.Table) -> list[str]:
    """Return the columns to encode with a dictionary: those whose values come twice or more.

    Arrow would make one for every column, and give it up at 1 MiB: in files of one partition it
    seldom comes to that, and a dictionary of distinct values costs more time than all else and
    makes the file larger. Columns of nested types have one as ever.
    """
    sample = rows.slice(0, min(_MAX_SAMPLE, max(_MIN_SAMPLE, rows.num_rows // 8)))
    names = []
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if pa.types.is_nested(field.type):
            names += list(_leaves(field.name, field.type))
        elif 2 * pc.count_distinct(column, mode="all").as_py() <= len(column):
            names.append(field.name)
    return names


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

    A bound is None where a row group does not say it, the null count likewise.
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
    except (OverflowError, ValueError):  # a time outside the years that Python knows
        return ColumnFacts(null_count=null_count)
    return ColumnFacts(min=low, max=high, null_count=null_count)
