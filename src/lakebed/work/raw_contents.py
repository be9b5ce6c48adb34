"""Raw files without some rows, in the form that they had.

Rows of JSON lines, of CSV with a header, of Parquet and of Avro are compared field by field. Other
lines, and rows that lack a field of the condition, are judged as text; see `matched_lines`.
"""

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import io
import json
import lzma
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.arrow.formats.parquet import has_int96, open_parquet
from lakebed.arrow.reading.files import codec_of, uncompressed
from lakebed.errors import MissingDependencyError
from lakebed.model.predicate import And, Comparison, Membership, Op, Or, Predicate
from lakebed.model.values import Scalar, format_value
from lakebed.work.matched_lines import Lines, lines_of

MAX_BYTES = 2**31
"""Raw files that unpack to more are not rewritten: they are held in memory."""
_PIECE_BYTES = 4 * 2**20
_PACK: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda data: zstandard.ZstdCompressor().compress(data),
    "lz4": lambda data: pa.compress(data, codec="lz4", asbytes=True),
}
_DELIMITERS = ",;\t|"
_JSON_STARTS = (b"{", b"[")


_Truth = Callable[[Mapping[str, Any], bytes], bool | None]
"""Decides a condition for a row and its text."""


class UnreadableRowsError(ValueError):
    """A raw file that cannot be divided into rows; the message gives the reason."""


@dataclass(frozen=True)
class RowTest:
    """Decides whether a row is to be erased.

    Attributes:
        predicate: The condition, bound to the types of the dataset.
        lines: The same condition for lines; not None.
    """

    predicate: Predicate
    lines: Lines

    @classmethod
    def of(cls, predicate: Predicate) -> RowTest | None:
        """Return the test of a condition; None if it names no value by which lines can be judged."""
        lines = lines_of(predicate)
        return None if lines is None else cls(predicate, lines)

    def is_met(self, row: Mapping[str, Any], raw: bytes) -> bool:
        """Return whether a row is to be erased.

        Args:
            row: The row by field.
            raw: The row as text, in which values of missing fields are looked for.
        """
        return self._truth(row, raw) is True

    @cached_property
    def _truth(self) -> _Truth:
        return _truth_of(self.predicate)


def _truth_of(predicate: Predicate) -> _Truth:
    """Return what decides whether a condition is true of a row; None if it cannot be decided."""
    match predicate:
        case Comparison(column, Op.EQ, value):
            return _holds(column, (value,))
        case Membership(column, values, negated=False):
            return _holds(column, values)
        case And(parts):
            of_and = [_truth_of(part) for part in parts]

            def is_all(row: Mapping[str, Any], raw: bytes) -> bool | None:
                truths = [one(row, raw) for one in of_and]
                return False if False in truths else True if True in truths else None

            return is_all
        case Or(parts):
            of_or = [_truth_of(part) for part in parts]

            def is_any(row: Mapping[str, Any], raw: bytes) -> bool | None:
                truths = [one(row, raw) for one in of_or]
                return True if True in truths else None if None in truths else False

            return is_any
    return _undecided


def _undecided(row: Mapping[str, Any], raw: bytes) -> None:
    """Return None, for a condition that no raw file can decide."""


def _holds(column: str, values: tuple[Scalar, ...]) -> _Truth:
    if any(isinstance(value, dt.date) for value in values):
        return _undecided  # raw files write times in many ways
    forms = frozenset(map(format_value, values))
    known = frozenset(values)
    lines = lines_of(Membership(column, values))

    def holds(row: Mapping[str, Any], raw: bytes) -> bool | None:
        found = _field(row, column)
        if found is _MISSING:
            return lines is not None and lines.match(raw)
        if found is None:
            return False
        is_known = isinstance(found, Hashable) and found in known
        return is_known or str(found) in forms

    return holds


_MISSING = object()


def _field(row: Mapping[str, Any], column: str) -> Any:
    if column in row:
        return row[column]
    found: Any = row
    for part in column.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _MISSING
        found = found[part]
    return found


def without_rows(data: bytes, test: RowTest) -> tuple[bytes, int]:
    """Return a raw file without the rows to erase, and their number; the same bytes if it is zero.

    Raises:
        ValueError: The file cannot be divided into rows.
    """
    codec = codec_of(data)
    if codec is not None:
        try:
            inner = _unpacked(data, codec)
        except (OSError, EOFError, ValueError, lzma.LZMAError, pa.ArrowException) as exc:
            raise UnreadableRowsError(f"it cannot be unpacked: {exc}") from exc
        rest, count = without_rows(inner, test)
        return (_PACK[codec](rest), count) if count else (data, 0)
    if len(data) > MAX_BYTES:
        raise UnreadableRowsError(f"it has {len(data):,} bytes, and is rewritten in memory")
    if data.startswith(b"PAR1"):
        return _without_in_parquet(data, test)
    if data.startswith(b"Obj\x01"):
        return _without_in_avro(data, test)
    if data.lstrip()[:1] in _JSON_STARTS:
        return _without_in_json(data, test)
    return _without_in_text(data, test)


def _unpacked(data: bytes, codec: str) -> bytes:
    content = io.BytesIO()
    with uncompressed(pa.BufferReader(data), codec) as stream:
        while piece := stream.read(_PIECE_BYTES):
            content.write(piece)
            if content.tell() > MAX_BYTES:
                message = f"it unpacks to more than {MAX_BYTES:,} bytes"
                raise ValueError(message)
    return content.getvalue()


def _without_in_parquet(data: bytes, test: RowTest) -> tuple[bytes, int]:
    try:
        file = open_parquet(pa.BufferReader(data))
        groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
        exact = pq.ParquetFile(pa.BufferReader(data))  # INT96 to the nanosecond, up to 2262
        in_full = [exact.read_row_group(number) for number in range(file.num_row_groups)]
        if all(a.cast(b.schema, safe=False) == b for a, b in zip(in_full, groups, strict=True)):
            file, groups = exact, in_full
    except (pa.ArrowException, OSError) as exc:
        raise UnreadableRowsError(f"it is not readable as Parquet: {exc}") from exc
    kept, count = [], 0
    for group in groups:
        mask = np.fromiter(
            (test.is_met(row, repr(row).encode()) for row in group.to_pylist()), bool, len(group)
        )
        count += int(mask.sum())
        kept.append(group.filter(pa.array(~mask)))
    if not count:
        return data, 0
    compression = "NONE"
    if file.num_row_groups and file.metadata.num_columns:
        compression = file.metadata.row_group(0).column(0).compression
    sink = io.BytesIO()
    codec = "none" if compression == "UNCOMPRESSED" else compression.lower()
    with pq.ParquetWriter(
        sink,
        file.schema_arrow,
        compression=codec,
        use_deprecated_int96_timestamps=has_int96(file.metadata),
    ) as writer:
        for table in kept:
            writer.write_table(table)
    return sink.getvalue(), count


def _without_in_avro(data: bytes, test: RowTest) -> tuple[bytes, int]:
    try:
        import fastavro
    except ImportError as exc:
        error = MissingDependencyError.for_extra("fastavro", "avro", "Rewriting Avro")
        raise UnreadableRowsError(error.message) from exc
    try:
        stream: Any = UncompressedAvro(io.BytesIO(data))
        reader = fastavro.reader(stream)
        codec = fastavro.reader(io.BytesIO(data)).codec
        rows = list(reader)
    # It trusts the bytes, so that damaged ones can raise any exception.
    except Exception as exc:
        raise UnreadableRowsError(f"it is not readable as Avro: {exc}") from exc
    kept = [row for row in rows if not test.is_met(_mapping(row), repr(row).encode())]
    if len(kept) == len(rows):
        return data, 0
    sink = io.BytesIO()
    schema = fastavro.parse_schema(reader.writer_schema)
    fastavro.writer(sink, schema, kept, codec=codec)
    return sink.getvalue(), len(rows) - len(kept)


def _mapping(row: Any) -> Mapping[str, Any]:
    return row if isinstance(row, Mapping) else {}


def _without_in_json(data: bytes, test: RowTest) -> tuple[bytes, int]:
    """Erase rows of JSON lines, of one array, or of one object."""
    if data.lstrip()[:1] == b"[":
        return _without_in_array(data, test)
    kept, count = [], 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        row = _parsed(line)
        if row is _MISSING:
            if number == 0:
                return _without_in_array(data, test)  # an object of several lines
            is_gone = test.lines.match(line)
        else:
            is_gone = test.is_met(_mapping(row), line)
        count += is_gone
        if not is_gone:
            kept.append(line)
    return (b"".join(kept), count) if count else (data, 0)


def _without_in_array(data: bytes, test: RowTest) -> tuple[bytes, int]:
    document = _parsed(data)
    if document is _MISSING:
        if not test.lines.match(data):
            return data, 0
        raise UnreadableRowsError("it is JSON of several lines that is not one array")
    if isinstance(document, list):
        kept = [row for row in document if not test.is_met(_mapping(row), json.dumps(row).encode())]
        if len(kept) == len(document):
            return data, 0
        return json.dumps(kept).encode(), len(document) - len(kept)
    return (b"", 1) if test.is_met(_mapping(document), data) else (data, 0)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _MISSING


def _without_in_text(data: bytes, test: RowTest) -> tuple[bytes, int]:
    """Erase rows of CSV with a header that names a field of the condition, else lines."""
    columns = _columns_of(test.predicate)
    first = data.split(b"\n", 1)[0].decode(errors="replace")
    for delimiter in _DELIMITERS:
        names = next(csv.reader([first], delimiter=delimiter), [])
        if len(names) > 1 and columns & {name.strip() for name in names}:
            return _without_in_csv(data, test, delimiter)
    if first.strip() in columns:
        return _without_in_csv(data, test, ",")
    lines = data.splitlines(keepends=True)
    kept = [line for line in lines if not test.lines.match(line)]
    return (b"".join(kept), len(lines) - len(kept)) if len(kept) < len(lines) else (data, 0)


def _columns_of(predicate: Predicate) -> frozenset[str]:
    match predicate:
        case Comparison(column, Op.EQ, _) | Membership(column, _, False):
            return frozenset({column})
        case And(parts) | Or(parts):
            return frozenset().union(*map(_columns_of, parts))
    return frozenset()


def _without_in_csv(data: bytes, test: RowTest, delimiter: str) -> tuple[bytes, int]:
    # As the reader of CSV divides it: other separators of Unicode are part of a cell.
    lines = list(io.StringIO(data.decode(errors="surrogateescape"), newline=""))
    reader = csv.reader(iter(lines), delimiter=delimiter)
    names: list[str] = []
    kept, count, start = [], 0, 0
    try:
        for record in reader:
            raw = "".join(lines[start : reader.line_num])
            start = reader.line_num
            if not names:
                names = [name.strip() for name in record]
                kept.append(raw)
                continue
            row = dict(zip(names, record, strict=False))
            if test.is_met(row, raw.encode(errors="surrogateescape")):
                count += 1
            else:
                kept.append(raw)
    except csv.Error as exc:
        raise UnreadableRowsError(f"it is not readable as CSV: {exc}") from exc
    rest = "".join((*kept, *lines[start:]))
    return (rest.encode(errors="surrogateescape"), count) if count else (data, 0)


__all__ = ["MAX_BYTES", "RowTest", "UnreadableRowsError", "without_rows"]
