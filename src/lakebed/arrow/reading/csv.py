"""CSV as data for a dataset."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lakebed.arrow.conform import Conformer, adding, check_columns, unknown_field
from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.chunks import (
    Chunk,
    FormatReader,
    Reject,
    grouped,
    text_lines,
    unread,
    without_blanks,
)
from lakebed.arrow.reading.files import CsvOptions, Line, RawFile, check_header
from lakebed.arrow.reading.texts import MAX_EXACT, kind_of_text
from lakebed.arrow.reading.unknown import Ignored, Unknown, values_of
from lakebed.arrow.reasons import reason_of
from lakebed.common.shown import counted, shown
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import field_to_arrow, type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Decimal, Kind, Primitive, Schema, Type
from lakebed.model.values import text_hint

_ROWS_PER_CHUNK = 16_384  # Arrow's parser is slow to start
_MAX_RECORD_BYTES = 2**20  # limit of the search for the end of a quoted cell


class CsvReader(FormatReader):
    """Reads CSV by the types of the dataset; header and schema agree but for unknown columns."""

    def __init__(
        self, descriptor: DatasetDescriptor, options: CsvOptions, unknown: Unknown = "reject"
    ) -> None:
        check_flat(descriptor.schema)
        self._descriptor = descriptor
        self._options = options
        self._unknown = unknown

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        first = next(csv_records(file, self._options), None)
        if first is not None and first.problem:
            return  # it is rejected later, with the problem
        if self._options.has_header or first is not None:
            self._names(first)

    def _names(self, first: Line | None) -> tuple[str, ...]:
        """Return the column names of a file that begins with this line."""
        cells = () if first is None else csv_cells(first.data, self._options)
        if self._options.has_header:
            names = check_header(cells, self._options)
            known = [name for name in names if name in self._descriptor.schema]
            # With `keep` a column that could not be added may be empty, to be checked by line.
            check_columns(names if self._unknown == "reject" else known, self._descriptor)
            return names
        names = self._descriptor.schema.names
        if self._unknown == "ignore":
            names += tuple(f"column {n}" for n in range(len(names) + 1, len(cells) + 1))
        check_column_count(cells, names)
        return names

    def census(self, file: RawFile) -> Census:
        """Return the kinds of cells in columns that the dataset lacks."""
        census = Census()
        records = csv_records(file, self._options)
        first = next(records, None)
        if first is None or first.problem or not self._options.has_header:
            return census
        names = self._names(first)
        unknown = [name for name in names if name not in self._descriptor.schema]
        lines = (record for record in records if unknown and not record.problem)
        while chunk := list(itertools.islice(lines, _ROWS_PER_CHUNK)):
            table = cells_as_text(chunk, names, self._options, on_misfit=lambda _: None)
            for name in unknown:
                _note_cells(census, name, table.column(name))
        return census

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        records = csv_records(file, self._options)
        first = next(records, None)
        if first is None and not self._options.has_header:
            return
        if first is not None and first.problem:
            yield unread(first)
            return
        names = self._names(first)
        if not self._options.has_header and first is not None:
            records = itertools.chain([first], records)
        # In a file of one column an empty line is a null.
        lines = records if len(names) == 1 else without_blanks(records)
        parse = _CsvParser(names, self._descriptor, self._options, self._unknown)
        yield from grouped(lines, parse, parse.is_cut, _ROWS_PER_CHUNK)

    def count(self, file: RawFile) -> int | None:
        """Return the records of a file, its header aside; None where it is damaged."""
        count = 0
        for record in without_blanks(csv_records(file, self._options)):
            if record.is_rest:
                return None
            count += 1
        return max(0, count - self._options.has_header)


def _note_cells(census: Census, name: str, cells: pa.ChunkedArray) -> None:
    for entry in pc.value_counts(cells.drop_null().combine_chunks()).to_pylist():
        text, count = entry["values"], entry["counts"]
        kind = kind_of_text(text)
        # Cells of several types together are text.
        for noted in ("cell", str(kind)):
            census.note((name,), noted, count)
        if kind is Kind.LONG and abs(int(text)) > MAX_EXACT:
            census.note((name,), "inexact", count)


def cells_as_text(
    chunk: Sequence[Line],
    names: Sequence[str],
    options: CsvOptions,
    *,
    on_misfit: Callable[[SchemaMismatchError], object],
) -> pa.Table:
    """Read cells as text; null where typed reading takes them for null.

    Args:
        chunk: Records to read.
        names: Names of the columns.
        options: Notation of the file.
        on_misfit: Receives the error of each record that has another number of cells; unless it
            raises the error, the record is left out.
    """
    texts = dict.fromkeys(names, pa.string())
    data = b"\n".join(line.data for line in chunk) + b"\n"
    try:
        return pacsv.read_csv(
            io.BytesIO(data),
            pacsv.ReadOptions(
                column_names=list(names), use_threads=False, block_size=len(data) + 1
            ),
            pacsv.ParseOptions(
                delimiter=options.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,
            ),
            pacsv.ConvertOptions(
                column_types=texts,
                null_values=["", options.null_text],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as exc:
        if len(chunk) > 1:
            halves = (chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :])
            tables = [cells_as_text(half, names, options, on_misfit=on_misfit) for half in halves]
            return pa.concat_tables(tables)
        try:
            csv_cells(chunk[0].data, options)
            bad = bad_record(str(exc))
        except SchemaMismatchError as error:  # it is not text at all
            bad = error
        on_misfit(SchemaMismatchError(f"Line {chunk[0].number}: {bad.message}", hint=bad.hint))
        return pa.schema(texts).empty_table()


def check_column_count(cells: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Check that a file without a header has a column for each field.

    Raises:
        SchemaMismatchError: The numbers differ.
    """
    if len(cells) != len(names):
        raise SchemaMismatchError(
            f"The first line has {counted(len(cells), 'column')}, but the dataset has {counted(len(names), 'field')}.",
            hint=f"Without a header the columns are, in this order: {', '.join(names)}.",
        )


class _CsvParser:
    """Parses records of CSV by the types of the dataset."""

    def __init__(
        self,
        names: tuple[str, ...],
        descriptor: DatasetDescriptor,
        options: CsvOptions,
        unknown: Unknown,
    ) -> None:
        self._known = tuple(name for name in names if name in descriptor.schema)
        self._others = [name for name in names if name not in descriptor.schema]
        self._unknown = unknown
        given = descriptor.schema.select(self._known)
        self._types = {field.name: field.type for field in given}
        self._names = list(names)
        self._options = options
        self._conformer = Conformer(pa.schema(map(field_to_arrow, given)), descriptor)
        self._parsing = pacsv.ParseOptions(
            delimiter=options.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(names) > 1,
        )
        self._converting = pacsv.ConvertOptions(
            column_types=dict.fromkeys(self._others, pa.string())
            | {field.name: _csv_type(field.type) for field in given},
            null_values=["", options.null_text],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def __call__(self, records: Sequence[bytes]) -> tuple[pa.RecordBatch, Ignored]:
        data = b"\n".join(records) + b"\n"
        reading = pacsv.ReadOptions(
            column_names=self._names, use_threads=False, block_size=len(data) + 1
        )
        try:
            table = pacsv.read_csv(io.BytesIO(data), reading, self._parsing, self._converting)
        except pa.ArrowException as exc:
            raise self._refused(records, str(exc)) from exc
        columns = [
            _from_csv(table.column(name).combine_chunks(), self._types[name], name)
            for name in self._known
        ]
        rows = self._conformer.conform(pa.RecordBatch.from_arrays(columns, names=self._known))
        ignored = values_of((name, table.column(name)) for name in self._others)
        if ignored.row_count and self._unknown == "keep":
            name = min(ignored.fields)
            hint = f"Rename it. {adding(name)}"
            raise unknown_field(name, f"Unknown column {name!r} in the data.", hint)
        return rows, ignored

    def is_cut(self, record: bytes) -> bool:
        """Return whether a record lacks cells."""
        try:
            return len(csv_cells(record, self._options)) < len(self._names)
        except SchemaMismatchError:
            return False

    def _refused(self, records: Sequence[bytes], message: str) -> SchemaMismatchError:
        """Translate Arrow's error, which numbers columns, to the names of the file."""
        column = _BAD_COLUMN.search(message)
        # For many records, the caller searches for the one that does not fit.
        if column and len(records) == 1:
            place = int(column[1])
            text, name = csv_cells(records[0], self._options)[place], self._names[place]
            return _no_value(text, self._types[name], name)
        return bad_record(message)


def bad_record(message: str) -> SchemaMismatchError:
    """Return the error for a record that Arrow cannot split into columns."""
    count = _BAD_COUNT.search(message)
    if count:
        verb = "is" if count["expected"] == "1" else "are"
        columns = counted(int(count["expected"]), "column")
        return SchemaMismatchError(
            f"The line has {counted(int(count['actual']), 'cell')}, but there {verb} {columns}.",
            hint="Correct the file: put a cell with a delimiter or a newline in quotes.",
        )
    return SchemaMismatchError(f"{message.splitlines()[0]}.", hint="Correct the file.")


# Arrow names columns by their numbers, from 0.
_BAD_COLUMN = re.compile(r"In CSV column #(\d+): ")
_BAD_COUNT = re.compile(r"Expected (?P<expected>\d+) columns, got (?P<actual>\d+)")


def _no_value(text: str, kind: Type, column: str) -> SchemaMismatchError:
    hint = text_hint(kind) if isinstance(kind, Primitive | Decimal) else "Correct the file."
    return SchemaMismatchError(
        f"Text {shown(text)} is not a valid {kind} (column {column!r}).", hint=hint
    )


def _csv_type(kind: Type) -> pa.DataType:
    if kind == Primitive(Kind.TIMESTAMP):
        return pa.string()  # Arrow takes no text without a zone for it
    return type_to_arrow(kind)


def _from_csv(column: pa.Array, kind: Type, name: str) -> pa.Array:
    if kind != Primitive(Kind.TIMESTAMP):
        return column
    try:
        return _to_timestamps(column)
    except pa.ArrowInvalid as exc:
        if len(column) > 1:  # the caller searches many rows for the one that fails
            raise SchemaMismatchError(f"Column {name!r}: {reason_of(exc)}.") from exc
        raise _no_value(column[0].as_py(), kind, name) from exc


def _to_timestamps(column: pa.Array) -> pa.Array:
    text = pc.utf8_trim_whitespace(column)
    has_time = pc.match_substring(text, ":")
    text = pc.if_else(has_time, text, pc.binary_join_element_wise(text, "T00:00", ""))
    has_zone = pc.match_substring_regex(text, r"(Z|[+-]\d\d(:?\d\d)?)$")
    text = pc.if_else(has_zone, text, pc.binary_join_element_wise(text, "Z", ""))
    return text.cast(pa.timestamp("us", tz="UTC"))


def check_flat(schema: Schema) -> None:
    """Check that CSV can hold all fields.

    Raises:
        SchemaMismatchError: A field is nested, or bytes; the message names it.
    """
    for field in schema:
        if not isinstance(field.type, Primitive | Decimal) or field.type == Primitive(Kind.BYTES):
            raise SchemaMismatchError(
                f"CSV cannot hold column {field.name!r} of type {field.type}.",
                hint="Give JSON lines or Parquet.",
            )


def csv_cells(record: bytes, options: CsvOptions) -> tuple[str, ...]:
    """Return the cells of one record.

    Raises:
        SchemaMismatchError: The record is not UTF-8.
    """
    try:
        text = record.decode()
    except UnicodeDecodeError as exc:
        raise SchemaMismatchError(
            f"This is not UTF-8: {exc}.",
            hint="Convert the file to UTF-8; if it is Latin-1: iconv -f LATIN1 -t UTF-8.",
        ) from exc
    return tuple(next(csv.reader(io.StringIO(text, newline=""), delimiter=options.delimiter), ()))


def csv_records(file: RawFile, options: CsvOptions) -> Iterator[Line]:
    """Yield the records of a file, header included; a quoted cell may hold newlines.

    A quote that does not end within a megabyte is reported for its line alone.
    """
    delimiter = options.delimiter.encode()
    source = text_lines(file)
    ahead: deque[Line] = deque()  # lines that the search for the end of a quote has read
    while (line := ahead.popleft() if ahead else next(source, None)) is not None:
        if line.problem or not (is_open := _ends_in_quotes(line.data, delimiter, inside=False)):
            yield line
            continue
        seen = [line]
        size_bytes = len(line.data)
        while is_open and size_bytes <= _MAX_RECORD_BYTES:
            following = ahead.popleft() if ahead else next(source, None)
            if following is None:
                break
            seen.append(following)
            if following.problem:
                break
            size_bytes += len(following.data)
            is_open = _ends_in_quotes(following.data, delimiter, inside=True)
        if is_open:
            ahead.extendleft(reversed(seen[1:]))
            # If the last line has no newline, the end of the quote was cut off.
            is_rest = line.is_open
            yield Line(line.number, line.data, "A quote in this line has no end.", is_rest)
        else:
            data = b"\n".join(part.data for part in seen)
            yield Line(line.number, data, is_open=seen[-1].is_open)


def _ends_in_quotes(data: bytes, delimiter: bytes, *, inside: bool) -> bool:
    """Return whether a record continues in the next line.

    A cell is quoted if it begins with a quote, as in RFC 4180; two of them inside stand for one.
    `inside` is True if this line begins in quotes.
    """
    if not inside and b'"' not in data:
        return False
    at = 0
    while True:
        if inside or data[at : at + 1] == b'"':
            at += not inside
            while True:
                at = data.find(b'"', at)
                if at < 0:
                    return True
                if data[at + 1 : at + 2] != b'"':
                    break
                at += 2
            inside = False
        at = data.find(delimiter, at)
        if at < 0:
            return False
        at += len(delimiter)
