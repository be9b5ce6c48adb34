"""CSV as data for a dataset."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lakebed.arrow.conform import Conformer, adding, check_columns, unknown_field
from lakebed.arrow.reading.cells import (
    as_csv,
    changed_numbers,
    count_error,
    csv_cells,
    field_names,
    is_number,
    normalized,
    rows_as_table,
    split_rows,
)
from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.chunks import (
    Chunk,
    FormatReader,
    Reject,
    grouped,
    is_blank,
    text_lines,
    unread,
    without_blanks,
    without_mark,
)
from lakebed.arrow.reading.dialect import CsvOptions
from lakebed.arrow.reading.files import Line, RawFile, check_header
from lakebed.arrow.reading.texts import MAX_EXACT, kind_of_text
from lakebed.arrow.reading.unknown import Ignored, Unknown, values_of
from lakebed.arrow.reasons import reason_of
from lakebed.common.shown import counted, shown
from lakebed.errors import SchemaMismatchError
from lakebed.model.arrow_types import field_to_arrow, type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Decimal, Kind, Primitive, Schema, Type
from lakebed.model.values import text_hint

ROWS_PER_CHUNK = 16_384  # Arrow's parser is slow to start
_INSTANT = pa.timestamp("us", tz="UTC")
_FIRST, _LAST = -62_167_219_200_000_000, 253_402_300_799_999_999  # of the years 0 to 9999
_MOST_BYTES = 2**31 - 1  # Arrow then reads all bytes as one block, which keeps the order of rows
_BLANKS = b" \t\r\n"
MAX_RECORD_BYTES = 2**20  # limit of the search for the end of a quoted cell


class CsvReader(FormatReader):
    """Reads CSV by the types of the dataset; header and schema agree but for unknown columns."""

    checks_in_chunks = True

    def __init__(
        self, descriptor: DatasetDescriptor, options: CsvOptions, unknown: Unknown = "reject"
    ) -> None:
        check_flat(descriptor.schema)
        self._descriptor = descriptor
        self._options = options
        self._unknown = unknown
        self._last_names: tuple[bytes | None, tuple[str, ...]] | None = None

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        first = next(csv_records(file, self._options), None)
        if first is not None and first.problem:
            return  # it is rejected later, with the problem
        if self._options.has_header or first is not None:
            self._names(first)

    def _names(self, first: Line | None) -> tuple[str, ...]:
        """Return the column names of a file that begins with this line."""
        line = None if first is None else first.data
        if self._last_names is None or self._last_names[0] != line:  # files in a row have the same
            self._last_names = line, self._names_in(first)
        return self._last_names[1]

    def _names_in(self, first: Line | None) -> tuple[str, ...]:
        cells = () if first is None else csv_cells(first.data, self._options)
        if self._options.has_header:
            names = header_names(cells, self._options)
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
        while chunk := list(itertools.islice(lines, ROWS_PER_CHUNK)):
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
        lines = (
            records
            if len(names) == 1
            else without_blanks(records, self._options.delimiter.encode())
        )
        parse = CsvParser(names, self._descriptor, self._options, self._unknown)
        yield from grouped(lines, parse, parse.is_cut, ROWS_PER_CHUNK)

    def count(self, file: RawFile) -> int | None:
        """Return the records of a file, its header aside; None where it is damaged."""
        count = 0
        for record in without_blanks(
            csv_records(file, self._options), self._options.delimiter.encode()
        ):
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
    records = [line.data for line in chunk]
    if options.is_split_plainly:
        try:
            return split_plainly(b"\n".join(records) + b"\n", names, options)
        except pa.ArrowInvalid as exc:
            if options.ragged == "reject":
                return _halves_as_text(chunk, names, options, exc, on_misfit)
    rows: list[list[str | None]] = []
    for line, cells in zip(chunk, split_rows(records, len(names), options), strict=True):
        if isinstance(cells, SchemaMismatchError):
            on_misfit(_at_line(line, cells))
        else:
            rows.append(cells)
    return rows_as_table(rows, names)


def _halves_as_text(
    chunk: Sequence[Line],
    names: Sequence[str],
    options: CsvOptions,
    cause: pa.ArrowInvalid,
    on_misfit: Callable[[SchemaMismatchError], object],
) -> pa.Table:
    if len(chunk) > 1:
        halves = (chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :])
        tables = [cells_as_text(half, names, options, on_misfit=on_misfit) for half in halves]
        return pa.concat_tables(tables)
    try:
        csv_cells(chunk[0].data, options)
        bad = bad_record(str(cause))
    except SchemaMismatchError as error:  # it is not text at all
        bad = error
    on_misfit(_at_line(chunk[0], bad))
    return pa.schema(dict.fromkeys(names, pa.string())).empty_table()


def _at_line(line: Line, bad: SchemaMismatchError) -> SchemaMismatchError:
    return SchemaMismatchError(f"Line {line.number}: {bad.message}", hint=bad.hint)


def split_plainly(data: bytes, names: Sequence[str], options: CsvOptions) -> pa.Table:
    """Return the cells of records, each with a newline, as text by Arrow's parser.

    Raises:
        pa.ArrowInvalid: A record has another number of cells, or is not UTF-8.
    """
    return _parsed(
        data,
        names,
        options.delimiter,
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", options.null_text],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _parsed(
    data: bytes, names: Sequence[str], delimiter: str, converting: pacsv.ConvertOptions
) -> pa.Table:
    return pacsv.read_csv(
        open_text(data),
        pacsv.ReadOptions(column_names=list(names), use_threads=False, block_size=len(data) + 1),
        pacsv.ParseOptions(
            delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1
        ),
        converting,
    )


def header_names(cells: tuple[str, ...], options: CsvOptions) -> tuple[str, ...]:
    """Return the names of the fields for the cells of a header.

    Raises:
        SchemaMismatchError: The header is missing, or uses another delimiter.
    """
    check_header(cells, options)
    return field_names(cells, options)


def open_text(data: bytes) -> pa.BufferReader:
    """Open text from within a file for Arrow, which would leave out a mark at its begin."""
    return pa.BufferReader(data if without_mark(data) is data else b"\xef\xbb\xbf" + data)


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


class _LastRecords:
    """Keeps what was made of the last records: those around a bad one are asked for again."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._made: Any = ()

    def keep(self, records: list[bytes], made: Any) -> None:
        """Keep what records were made into, unless it is the bad one by itself."""
        if len(records) > 1:
            self._records, self._made = records, made

    def find(self, records: list[bytes]) -> Any:
        """Return what the first or the last of the records were made into; None for others."""
        count = len(records)
        if not 0 < count <= len(self._records):
            return None
        if self._records[:count] == records:
            return self._made[:count]
        if self._records[-count:] != records:
            return None
        made = self._made[-count:]
        self.keep(records, made)
        return made


class CsvParser:
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
        self._required = [field.name for field in given if not field.nullable]
        self._names = list(names)
        self._options = options
        self._conformer = Conformer(pa.schema(map(field_to_arrow, given)), descriptor)
        self._reading = pacsv.ReadOptions(
            column_names=self._names, use_threads=False, block_size=_MOST_BYTES
        )
        types = dict.fromkeys(self._others, pa.string()) | {
            field.name: _csv_type(field.type) for field in given
        }
        self._converting = conversions(types, options)
        # Null texts are nulls already.
        self._converting_texts = conversions(types, replace(options, null_text=""))
        self._last_texts = _LastRecords()  # as a table of texts
        self._last_rows = _LastRecords()  # as rows of cells, or their errors
        self._exact = {
            name: kind for name, kind in self._types.items() if options.exact and is_number(kind)
        }

    def __call__(self, records: Sequence[bytes]) -> tuple[pa.RecordBatch, Ignored]:
        """Return the rows of records, and the fields that were left out; see `Parse`."""
        records = list(records)
        texts = self._last_texts.find(records)  # if they are known, typed reading has failed before
        if self._options.is_plain and not self._exact and texts is None:
            data = b"\n".join(records) + b"\n"
            # Texts may have other forms, such as a quoted empty cell in a column of numbers or times.
            with contextlib.suppress(pa.ArrowException, SchemaMismatchError):
                table = _parsed(data, self._names, self._options.delimiter, self._converting)
                return self._rows(table, len(records))
        return self._rows(self._table_of_texts(records, texts), len(records))

    def _table_of_texts(self, records: list[bytes], texts: pa.Table | None) -> pa.Table:
        """Return records with typed columns, read as texts first.

        Args:
            records: The records.
            texts: Their texts; None if they are not known.

        Raises:
            SchemaMismatchError: A record does not fit.
        """
        if texts is None:
            texts = normalized(self._texts(records), self._types, self._options)
            self._last_texts.keep(records, texts)
        try:
            table = self._parsed_texts(texts)
        except pa.ArrowException as exc:
            raise self._refused_texts(records, texts, str(exc)) from exc
        for name, kind in self._exact.items():
            column = texts.column(name).combine_chunks()
            rows = np.flatnonzero(changed_numbers(column, kind)).tolist()
            errors = [_changed_error(column[row].as_py(), kind, name, row) for row in rows]
            if errors:
                errors[0].others = errors[1:]
                raise errors[0]
        return table

    def _refused_texts(
        self,
        records: list[bytes],
        texts: pa.Table,  # noqa: ARG002 - of those who look at each
        message: str,
    ) -> SchemaMismatchError:
        """Return the error of records whose texts are not of their types; see `_refused`."""
        return self._refused(records, message)

    def _refused_records(self, records: list[bytes], message: str) -> SchemaMismatchError:
        """Return the error of records that Arrow cannot split into columns; see `_refused`."""
        return self._refused(records, message)

    def _texts(self, records: list[bytes]) -> pa.Table:
        if self._options.is_split_plainly:
            try:
                return split_plainly(b"\n".join(records) + b"\n", self._names, self._options)
            except pa.ArrowException as exc:
                if self._options.ragged == "reject":
                    raise self._refused_records(records, str(exc)) from exc
        rows: list[list[str | None]] = []
        split = self._last_rows.find(records)
        if split is None:
            split = split_rows(records, len(self._names), self._options)
            self._last_rows.keep(records, split)
        for position, cells in enumerate(split):
            if isinstance(cells, SchemaMismatchError):
                cells.row = position
                raise cells
            rows.append(cells)
        return rows_as_table(rows, self._names)

    def _rows(self, table: pa.Table, count: int) -> tuple[pa.RecordBatch, Ignored]:
        if table.num_rows != count:
            raise SchemaMismatchError(
                f"The text gives {counted(table.num_rows, 'row')} for {counted(count, 'line')}.",
                hint="Correct the file: put a cell with a newline in quotes.",
            )
        columns = [
            _from_csv(table.column(name).combine_chunks(), self._types[name], name, self._options)
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
        """Translate Arrow's error, which numbers rows and columns, to the names of the file."""
        column, number = _BAD_COLUMN.search(message), _BAD_ROW.search(message)
        row = int(number[1]) - 1 if number else 0
        error = bad_record(message)
        if column and (number or len(records) == 1):
            error = self._unfit(records[row], int(column[1]))
        # Where Arrow names no row, the caller searches for the record that does not fit.
        error.row = row if number else None
        return error

    def _unfit(self, record: bytes, place: int) -> SchemaMismatchError:
        """Return the error of a cell that is no value of its type."""
        cells, name = csv_cells(record, self._options), self._names[place]
        text = cells[place] if place < len(cells) else ""
        return _no_value(text, self._types[name], name)

    def _parsed_texts(self, texts: pa.Table) -> pa.Table:
        """Return columns of texts in their types.

        Raises:
            pa.ArrowInvalid: A text is no value of its type.
        """
        return _parsed(as_csv(texts), texts.column_names, ",", self._converting_texts)


def conversions(types: Mapping[str, pa.DataType], options: CsvOptions) -> pacsv.ConvertOptions:
    """Return how cells become values of types."""
    words = ("true", "True", "TRUE"), ("false", "False", "FALSE")
    true_words, false_words = words if options.exact else (None, None)
    return pacsv.ConvertOptions(
        column_types=types,
        null_values=["", options.null_text],
        true_values=true_words,
        false_values=false_words,
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _changed_error(text: str, kind: Type, name: str, row: int) -> SchemaMismatchError:
    """Return the error of a number that its type would change."""
    error = SchemaMismatchError(
        f"{kind} does not hold {shown(text)} as it is written (column {name!r}).",
        hint="Declare the field as string; or set exact = false for CSV, to take the nearest number.",
    )
    error.row = row
    return error


def bad_record(message: str) -> SchemaMismatchError:
    """Return the error for a record that Arrow cannot split into columns."""
    count = _BAD_COUNT.search(message)
    if count:
        return count_error(int(count["actual"]), int(count["expected"]))
    return SchemaMismatchError.of_line(f"{message.splitlines()[0]}.", hint="Correct the file.")


# Arrow names columns by their numbers, from 0, and rows from 1.
_BAD_COLUMN = re.compile(r"In CSV column #(\d+): ")
_BAD_ROW = re.compile(r"^(?:In CSV column #\d+|CSV parse error): Row #(\d+): ")
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


def values_from_csv(column: pa.Array, kind: Type, time_zone: str = "") -> pa.Array:
    """Return a column as Arrow's parser has read it as values of a type.

    Raises:
        pa.ArrowInvalid: A value is not of the type.
    """
    if kind == Primitive(Kind.TIMESTAMP):
        return to_timestamps(column, time_zone)
    if isinstance(kind, Decimal):
        column.validate(full=True)  # the parser takes 12 for a decimal(3, 2)
    return column


def _from_csv(column: pa.Array, kind: Type, name: str, options: CsvOptions) -> pa.Array:
    try:
        return values_from_csv(column, kind, options.time_zone)
    except pa.ArrowInvalid as exc:
        if len(column) > 1:  # the caller searches many rows for the one that fails
            raise SchemaMismatchError(f"Column {name!r}: {reason_of(exc)}.") from exc
        text = column[0].as_py()
        raise _no_value(text if isinstance(text, str) else f"{text:f}", kind, name) from exc


def to_timestamps(column: pa.Array, time_zone: str = "") -> pa.Array:
    """Return texts as moments: a date is its midnight, and a time without a zone is in UTC.

    Args:
        column: The texts.
        time_zone: Zone of times that have none, in place of UTC.

    Raises:
        pa.ArrowInvalid: A text is neither, or the clock of the zone skips it.
    """
    # One cast reads a column of the same form, and takes a tenth of the time; one that fails takes as
    # long as all that follows, so the first text decides which of them is tried.
    with contextlib.suppress(pa.ArrowInvalid):
        if _is_castable(column.drop_null().slice(0, 1)):
            if _are_times(column, or_days=False):
                return column.cast(_INSTANT)
        elif _are_times(column, or_days=True):  # perhaps without zones
            return moments_of(column.cast(pa.timestamp("us")), time_zone or "UTC")
    text = pc.utf8_trim_whitespace(column)
    text = pc.replace_substring_regex(text, r" ?(UTC|GMT)$", "Z")
    has_time = pc.match_substring(text, ":")
    text = pc.if_else(has_time, text, _with_end(text, "T00:00"))
    has_zone = pc.match_substring_regex(text, r"(Z|[+-]\d\d(:?\d\d)?)$")
    if time_zone:
        text = pc.if_else(has_zone, text, _in_utc(pc.if_else(has_zone, _NO_TEXT, text), time_zone))
    text = pc.if_else(has_zone, text, _with_end(text, "Z"))
    return text.cast(_INSTANT)


def _are_times(column: pa.Array, *, or_days: bool) -> bool:
    """Return whether all texts that a cast reads have more than the hour, or if allowed no time."""
    sizes = pc.binary_length(column)
    shortest = pc.min_max(sizes)["min"]
    if shortest.is_valid and shortest.as_py() > len("2024-01-01T00+0000"):
        return True
    is_time = pc.match_substring(column, ":")
    if or_days:
        is_time = pc.or_(is_time, pc.equal(sizes, pa.scalar(len("2024-01-01"), pa.int32())))
    return pc.all(is_time).as_py() is not False


def _is_castable(texts: pa.Array) -> bool:
    try:
        texts.cast(_INSTANT)
    except pa.ArrowInvalid:
        return False
    return True


def _with_end(texts: pa.Array, end: str) -> pa.Array:
    # For values of Python, Arrow would import pandas, which takes longer than a small file.
    return pc.binary_join_element_wise(texts, pa.scalar(end), pa.scalar(""))


_NO_TEXT = pa.scalar(None, pa.string())


def _in_utc(texts: pa.Array, time_zone: str) -> pa.Array:
    """Return local times as texts in UTC; see `moments_of`."""
    moments = moments_of(texts.cast(pa.timestamp("us")), time_zone)
    return moments.cast(pa.timestamp("us")).cast(pa.string())


def moments_of(local: pa.Array, time_zone: str) -> pa.Array:
    """Return local times as moments; of a time that a clock shows twice, the first.

    Raises:
        pa.ArrowInvalid: The clock skips a time, or a moment in UTC has no year of four digits.
    """
    moments = pc.assume_timezone(local, time_zone, ambiguous="earliest", nonexistent="raise")
    ends = pc.min_max(moments.cast(pa.int64()))
    if ends["min"].is_valid and not _FIRST <= ends["min"].as_py() <= ends["max"].as_py() <= _LAST:
        raise pa.ArrowInvalid("A moment has no year of four digits.")
    return moments.cast(_INSTANT)


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


def csv_records(file: RawFile, options: CsvOptions) -> Iterator[Line]:
    """Yield the records of a file, header included; see `records_of`."""
    return records_of(text_lines(file), options)


def records_of(lines: Iterable[Line], options: CsvOptions) -> Iterator[Line]:
    """Yield the records of lines; see `join_records`.

    Lines that `skip` and `comment` leave out, and blank lines before a header, are not among them.
    """
    rest = (line for line in lines if line.number > options.skip or line.problem)
    delimiter, comment = options.delimiter.encode(), options.comment.encode()
    records = join_records(rest, delimiter, is_open_after=_quote_test(options), comment=comment)
    if options.skip_empty:
        signs = _BLANKS + delimiter
        records = (line for line in records if line.problem or line.data.strip(signs))
    if not options.has_header:
        return records
    return itertools.dropwhile(
        lambda line: not line.problem and is_blank(line.data, delimiter), records
    )


class QuoteTest(Protocol):
    """A test for the end of a record."""

    def __call__(self, data: bytes, *, inside: bool) -> bool:
        """Return whether a record continues in the next line."""


def join_records(
    lines: Iterable[Line],
    delimiter: bytes,
    more: Callable[[], Iterable[Line]] = tuple,
    *,
    is_open_after: QuoteTest | None = None,
    comment: bytes = b"",
) -> Iterator[Line]:
    """Yield the records of lines; a quoted cell may hold newlines.

    A carriage return outside of quotes ends a record, as it does for Arrow. A quote that does not
    end within a megabyte is reported for its line alone.

    Args:
        lines: The lines.
        delimiter: The delimiter of cells.
        more: Returns some lines that follow, which are read only where a record goes on in them.
        is_open_after: Test for the end of a record; None for that of RFC 4180.
        comment: Beginning of lines that are left out; empty for none.
    """
    is_open_after = is_open_after or functools.partial(ends_in_quotes, delimiter=delimiter)
    source = _split_at_returns(lines)
    ahead: deque[tuple[Line, bytes]] = (
        deque()
    )  # lines that the search for the end of a quote has read
    while (first := ahead.popleft() if ahead else next(source, None)) is not None:
        line, newline = first
        if comment and not line.problem and line.data.startswith(comment):
            continue
        if line.problem or not (is_open := is_open_after(line.data, inside=False)):
            yield line
            continue
        parts, seen = [line.data], []
        size_bytes, is_last_open = len(line.data), line.is_open
        while is_open and size_bytes <= MAX_RECORD_BYTES:
            following = ahead.popleft() if ahead else next(source, None)
            if following is None:
                source = _split_at_returns(more())
                following = next(source, None)
            if following is None:
                break
            seen.append(following)
            part = following[0]
            if part.problem:
                break
            parts += [newline, part.data]
            newline, is_last_open = following[1], part.is_open
            size_bytes += len(part.data)
            is_open = is_open_after(part.data, inside=True)
        if is_open:
            ahead.extendleft(reversed(seen))
            # If the last line has no newline, the end of the quote was cut off.
            is_rest = line.is_open
            yield Line(line.number, line.data, "A quote in this line has no end.", is_rest)
        else:
            yield Line(line.number, b"".join(parts), is_open=is_last_open)


def _split_at_returns(lines: Iterable[Line]) -> Iterator[tuple[Line, bytes]]:
    """Yield lines, split at their carriage returns, with what ended each of them."""
    for line in lines:
        if line.problem or line.data.find(b"\r", 0, -1) < 0:
            yield line, b"\n"
            continue
        *parts, last = line.data[:-1].split(b"\r")
        for part in parts:
            yield replace(line, data=part, is_open=False), b"\r"
        yield replace(line, data=last + line.data[-1:]), b"\n"


def _quote_test(options: CsvOptions) -> QuoteTest:
    """Return the test whether a record continues in the next line."""
    if options.is_split_plainly:
        return functools.partial(ends_in_quotes, delimiter=options.delimiter.encode())
    delimiter, quote, escape = (
        options.delimiter,
        re.escape(options.quote),
        re.escape(options.escape),
    )
    pair = rf"{escape}[\s\S]|" if escape else ""
    if not quote:
        cut = re.compile(rf"(?:{pair}[^{escape}])*" if escape else r"[\s\S]*")
        return lambda data, *, inside: cut.fullmatch(_as_text(data)) is None  # noqa: ARG005
    inner = re.compile(rf"(?:{pair}{quote}{quote}|[^{quote}{escape}])*{quote}(?!{quote})")
    begin = re.compile(rf"[ \t]*{quote}" if options.trim else quote)

    def is_open_after(data: bytes, *, inside: bool) -> bool:
        text, at = _as_text(data), 0
        while True:
            begun = None if inside else begin.match(text, at)
            if inside or begun is not None:
                match = inner.match(text, at if begun is None else begun.end())
                if match is None:
                    return True
                at, inside = match.end(), False
            at = text.find(delimiter, at)
            if at < 0:
                return False
            at += 1

    return is_open_after


def _as_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


@functools.lru_cache(maxsize=64)
def _closed_record(delimiter: bytes) -> re.Pattern[bytes]:
    """Return the form of most records: all quotes in them end. No other record has it."""
    mark = re.escape(delimiter)
    cell = rb'(?:"(?:[^"]++|"")*+"[^%b]*+|[^%b"][^%b]*+|)' % (mark, mark, mark)
    return re.compile(rb"%b(?:%b%b)*+" % (cell, mark, cell))


def ends_in_quotes(data: bytes, delimiter: bytes, *, inside: bool) -> bool:
    """Return whether a record continues in the next line.

    A cell is quoted if it begins with a quote, as in RFC 4180; two of them inside stand for one.
    `inside` is True if this line begins in quotes.
    """
    if not inside and (b'"' not in data or _closed_record(delimiter).fullmatch(data)):
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
