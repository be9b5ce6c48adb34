"""CSV by blocks: Arrow's parser reads whole blocks, where the lines of its rows are certain."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from lakebed.arrow.reading.blocks import (
    Block,
    BlockRecords,
    BlockSource,
    LineParser,
    ParsedRows,
    count_newlines,
    newlines_of,
    settle,
)
from lakebed.arrow.reading.cells import changed_numbers, count_error, is_number, normalized
from lakebed.arrow.reading.chunks import (
    Chunk,
    Pack,
    Reject,
    grouped,
    is_blank,
    without_blanks,
    without_mark,
)
from lakebed.arrow.reading.csv import (
    MAX_RECORD_BYTES,
    ROWS_PER_CHUNK,
    CsvParser,
    CsvReader,
    conversions,
    ends_in_quotes,
    join_records,
    open_text,
    split_plainly,
    values_from_csv,
)
from lakebed.arrow.reading.csv_texts import (
    blank_lines,
    cast_texts,
    ends_of_records,
    has_plain_form,
    is_utf8,
    values_of_dates,
)
from lakebed.arrow.reading.dialect import CsvOptions
from lakebed.arrow.reading.files import Line, RawFile, head_of
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.recent import Recent
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import TEXT, Decimal, Primitive, Type
from lakebed.model.values import TIMES

_KEPT_TEXTS = 4_096  # whose fate is known
_HEADER_BYTES = 16 * 2**10  # a longer one is read by lines


class CsvBlockReader(CsvReader):
    """Reads CSV by blocks."""

    reads_packs = True

    def __init__(
        self, descriptor: DatasetDescriptor, options: CsvOptions, unknown: Unknown = "reject"
    ) -> None:
        super().__init__(descriptor, options, unknown)
        self._parsers: dict[tuple[str, ...], _BlockParser] = {}

    def _parser(self, first_line: bytes) -> _BlockParser:
        """Return the parser of files that begin with a line.

        Raises:
            SchemaMismatchError: The header does not fit the dataset.
        """
        names = self._names(Line(1, first_line))
        if names not in self._parsers:
            parser = _BlockParser(names, self._descriptor, self._options, self._unknown)
            self._parsers = {names: parser}  # files in a row have the same header
        return self._parsers[names]

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        data = without_mark(head_of(file, _HEADER_BYTES))
        end = data.find(b"\n")
        if end >= 0 and not _is_odd_header(data[:end], self._options):
            self._names(Line(1, data[:end]))
        else:
            super().check(file)

    def pack(self, texts: Sequence[bytes]) -> Pack | None:
        """Return the rows of small files that begin with the same header; see `FormatReader`."""
        has_header = self._options.has_header
        end = texts[0].find(b"\n") + 1
        head = texts[0][:end]
        if not end or b'"' in head or b"\r" in head[:-2]:
            return None
        if has_header and not all(text.startswith(head) for text in texts):
            return None
        try:
            parser = self._parser(head[:-1])
        except InvalidInputError:
            return None
        return parser.read_bodies(texts, end if has_header else 0)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        source = BlockSource(file)
        block = source.next()
        end = -1 if block is None else block.data.find(b"\n")
        if block is None or end < 0 or _is_odd_header(block.data[:end], self._options):
            yield from super().chunks(file)
            return
        parse = self._parser(block.data[:end])
        if self._options.has_header:
            block = block.beginning_at(end + 1, 1)
        while block is not None:
            rest_bytes = yield from self._read(block, parse, source)
            block = source.next(at_least=rest_bytes)

    @property
    def _separator(self) -> bytes:
        return self._options.delimiter.encode()

    def _read(
        self, block: Block, parse: _BlockParser, source: BlockSource
    ) -> Generator[Chunk | Reject, None, int]:
        """Yield a block's rows and rejects; return the number of bytes that the next block begins with."""
        read = parse.read_block(block)
        if read is None:
            records = _records_by_lines(block, source, self._separator)
            is_one = len(parse.names) == 1  # where an empty line is a null
            lines = records if is_one else without_blanks(records, self._separator)
            yield from grouped(lines, parse, parse.is_cut, ROWS_PER_CHUNK)
            return 0
        if read.used_bytes < len(block.data):
            source.give_back(block, read.used_bytes)
        yield from settle(read.parsed, BlockRecords(block, read.ends), parse.judge)
        return len(block.data) - read.used_bytes


def _is_odd_header(line: bytes, options: CsvOptions) -> bool:
    """Return whether a first line may be more or less than the first record."""
    separator = options.delimiter.encode()
    if options.has_header and is_blank(line, separator):
        return True
    return b"\r" in line[:-1] or ends_in_quotes(line, separator, inside=False)


def _records_by_lines(block: Block, source: BlockSource, separator: bytes) -> Iterator[Line]:
    """Yield the records of a block, the last of which may go on in the next one."""

    def following() -> Iterator[Line]:
        after = source.next()
        return iter(()) if after is None else after.lines()

    return join_records(block.lines(), separator, following)


def text_blocks(
    file: RawFile, names: Sequence[str], options: CsvOptions, *, divided_by: int
) -> Iterator[tuple[int, pa.Table] | Iterator[Line]] | None:
    """Yield the rows of a file as texts, with the number of the line of the first row of each block.

    Every row is a line. Of a block where Arrow's parser may find other rows, the records are yielded;
    they must be read before the next block. None if the whole file must be read by lines.

    Args:
        file: The file.
        names: Names of its columns.
        options: Its notation.
        divided_by: Number of blocks that are as large as an ordinary block.
    """
    if not options.is_split_plainly:
        return None
    source = BlockSource(file, divided_by=divided_by)
    block = source.next()
    end = -1 if block is None else block.data.find(b"\n")
    if block is None or end < 0 or _is_odd_header(block.data[:end], options):
        return None
    first = block.beginning_at(end + 1, 1) if options.has_header else block
    return _text_blocks(first, source, names, options)


def _text_blocks(
    block: Block | None, source: BlockSource, names: Sequence[str], options: CsvOptions
) -> Iterator[tuple[int, pa.Table] | Iterator[Line]]:
    while block is not None:
        table = _texts_of(block, names, options)
        if table is None:
            yield _records_by_lines(block, source, options.delimiter.encode())
        else:
            yield block.first_number, table
        block = source.next()


def _texts_of(block: Block, names: Sequence[str], options: CsvOptions) -> pa.Table | None:
    """Return the rows of a block as texts; None if it is to be read by lines."""
    data, separator = block.data, options.delimiter.encode()
    if not _is_clean(block) or _is_last_open(data, separator):
        return None
    try:
        table = split_plainly(data, names, options)
    except pa.ArrowException:
        return None
    if table.num_rows != block.line_count:
        return None
    if is_blank(separator) and table.num_rows:  # lines of delimiters alone are blank
        is_null = [column.is_null().to_numpy() for column in table.columns]
        if np.logical_and.reduce(is_null).any():
            return None
    return table


def _is_clean(block: Block) -> bool:
    """Return whether a block has lines alone, whose ends are newlines, and is UTF-8."""
    data = block.data
    if not data or block.after is not None or not is_utf8(data):
        return False  # Arrow's handler of ragged rows fails where they are not UTF-8
    return b"\r" not in data or data.count(b"\r") == data.count(b"\r\n")


def _is_last_open(data: bytes, separator: bytes) -> bool:
    """Return whether the last line ends in quotes, if it begins a record."""
    start = data.rfind(b"\n", 0, -1) + 1
    line = data[start:].removesuffix(b"\n")
    return b'"' in line and ends_in_quotes(line, separator, inside=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadBlock:
    """The rows of a block.

    Attributes:
        parsed: The rows, and the records in question.
        used_bytes: Size of its records; the rest begins the next block.
        ends: Positions of the newlines that end its records; None if each line is one.
    """

    parsed: ParsedRows
    used_bytes: int
    ends: np.ndarray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cells:
    """Rows that Arrow has read of some bytes.

    Attributes:
        rows: Rows for the dataset.
        others: Columns that the dataset lacks, of the same rows.
        ragged: Numbers, from 1 on, of rows with another number of cells, which are left out.
        is_good: Mask of the remaining rows, by what is in `rows`; None for all.
    """

    rows: pa.RecordBatch
    others: pa.Table
    ragged: list[int] = field(default_factory=list)
    is_good: np.ndarray | None = None

    @property
    def count(self) -> int:
        """Number of rows that Arrow found."""
        kept = self.rows.num_rows if self.is_good is None else len(self.is_good)
        return int(kept) + len(self.ragged)


class _BlockParser(CsvParser):
    """The parser of lines, which reads blocks by the same options."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._separator = self._options.delimiter.encode()
        self._ragged: dict[int, int] = {}  # by its number, the number of cells of a row
        self._refused_cells = Recent[tuple[int, str], bool](_KEPT_TEXTS)
        # The text of a number decides whether its type holds it; the parser knows other notations
        # of numbers and dates as texts alone.
        self._noted = {name for name, kind in self._types.items() if self._has_notation(name, kind)}
        by_text = self._noted | self._exact.keys()
        types = dict(self._converting.column_types) | dict.fromkeys(by_text, pa.string())
        known_texts = (name for name, kind in self._types.items() if kind == TEXT)
        self._texts_alone = [*self._others, *known_texts]
        words = [*self._converting.null_values, *self._options.nulls]
        self._converting = conversions(types, self._options)
        self._converting.null_values = words
        self._splitting = pacsv.ParseOptions(
            delimiter=self._options.delimiter,
            newlines_in_values=True,
            ignore_empty_lines=len(self._names) > 1,
            invalid_row_handler=self._note_ragged,
        )
        self._as_text = pacsv.ConvertOptions(
            column_types=dict.fromkeys(self._names, pa.string()),
            null_values=["", self._options.null_text],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def _has_notation(self, name: str, kind: Type) -> bool:
        options = self._options
        if isinstance(kind, Decimal) or is_number(kind):
            return options.decimal != "." or bool(options.thousands)
        return name in options.dates and isinstance(kind, Primitive) and kind.kind in TIMES

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self._names

    @property
    def judge(self) -> LineParser:
        """The judge of lines in question."""
        is_one = len(self._names) == 1
        return LineParser(
            parse=self,
            is_cut=self.is_cut,
            is_blank=lambda line: not is_one and is_blank(line, self._separator),
        )

    def read_block(self, block: Block) -> _ReadBlock | None:
        """Read a block; None if it is to be read by lines."""
        data = block.data
        if not _is_clean(block):
            return None
        cells, line_count = self._read_typed(data), block.line_count
        ends, used_bytes = None, len(data)
        # Each row ends at a newline outside of quotes. So if there are as many rows as newlines, every
        # line is a record, except for the last one, whose quote may be open.
        if b'"' in data and (
            cells is None or cells.count != line_count or _is_last_open(data, self._separator)
        ):
            ends = ends_of_records(data, self._separator)
            if ends is None or not len(ends):
                return None
            used_bytes = int(ends[-1]) + 1
            sizes = np.diff(ends, prepend=-1, append=len(data))
            if sizes.max() > MAX_RECORD_BYTES or (used_bytes < len(data) and block.is_open):
                return None
            if used_bytes < len(data) or cells is None or len(ends) < line_count:
                cells = self._read_typed(data[:used_bytes])
        if cells is None:
            cells = self._read_as_text(data[:used_bytes])
        record_count = line_count if ends is None else len(ends)
        parsed = (
            None if cells is None else self._place(cells, data[:used_bytes], ends, record_count)
        )
        if parsed is None:
            return None
        return _ReadBlock(parsed=parsed, used_bytes=used_bytes, ends=ends)

    def read_bodies(self, texts: Sequence[bytes], start: int) -> Pack | None:
        """Return the rows of some files; None if some line of them is in question.

        Args:
            texts: Contents of the files.
            start: Position after the header, which has no quote; 0 without a header.
        """
        if self._others or any(_is_last_open(text, self._separator) for text in texts):
            return None
        bodies: list[bytes | memoryview] = []
        counts = []
        for text in texts:
            body = memoryview(text)[start:]
            is_open = len(body) > 0 and not text.endswith(b"\n")
            bodies += [body, b"\n"] if is_open else [body]
            counts.append(count_newlines(body) + is_open)
        data = b"".join(bodies)
        read = self.read_block(Block(data, 1, line_count=sum(counts))) if data else None
        if read is None or read.ends is not None or read.parsed.in_question:
            return None
        rows = read.parsed.rows
        return Pack(rows=rows, row_counts=counts) if rows.num_rows == sum(counts) else None

    def _place(
        self, cells: _Cells, data: bytes, ends: np.ndarray | None, record_count: int
    ) -> ParsedRows | None:
        """Return rows with the numbers of their records; None if some rows are not records."""
        left_out = {
            name: column.is_valid().to_numpy()
            for name, column in zip(cells.others.column_names, cells.others.columns, strict=True)
            if column.null_count < len(column)
        }
        numbers = np.arange(cells.count)
        if cells.count != record_count:
            if len(self._names) == 1:
                return None
            is_empty = blank_lines(data, newlines_of(data) if ends is None else ends)
            numbers = np.flatnonzero(~is_empty)
            if cells.count != len(numbers):
                return None
        elif not cells.ragged and cells.is_good is None:
            return ParsedRows(rows=cells.rows, left_out=left_out)
        is_row = np.ones(cells.count, bool)
        is_row[[number - 1 for number in cells.ragged]] = False
        if cells.is_good is not None:
            is_row[np.flatnonzero(is_row)[~cells.is_good]] = False
        return ParsedRows(
            rows=cells.rows,
            records=numbers[is_row],
            in_question=numbers[~is_row].tolist(),
            left_out=left_out,
        )

    def _refused_records(self, records: list[bytes], message: str) -> SchemaMismatchError:
        """Return the error with those of all other records that have too few or too many cells."""
        error = super()._refused_records(records, message)
        data = b"\n".join(records) + b"\n"
        if error.row is None or len(records) == 1 or not is_utf8(data):
            return error
        try:
            table = self._table_of(data, self._as_text)
        except pa.ArrowException:
            return error
        if table.num_rows + len(self._ragged) != len(records):  # some records are not rows
            return error
        others = []
        for number, cell_count in self._ragged.items():
            if number - 1 != error.row:
                other = count_error(cell_count, len(self._names))
                other.row = number - 1
                others.append(other)
        error.others = others
        return error

    def _refused_texts(
        self, records: list[bytes], texts: pa.Table, message: str
    ) -> SchemaMismatchError:
        """Return the error with those of all other records that do not fit: one parse finds them."""
        error = super()._refused_texts(records, texts, message)
        if error.row is not None:
            error.others = self._find_others(records, texts, error.row)
        return error

    def _find_others(
        self, records: list[bytes], texts: pa.Table, row: int
    ) -> Sequence[SchemaMismatchError]:
        places = [place for place, name in enumerate(self._names) if name in self._types]
        masks = {
            place: has_plain_form(texts.column(place), self._types[self._names[place]])
            for place in places
        }
        errors = []
        for number in np.flatnonzero(~np.logical_and.reduce(list(masks.values()))).tolist():
            for place in places if number != row else ():
                if not masks[place][number] and self._is_refused(place, texts, number):
                    error = self._unfit(records[number], place)
                    error.row = number
                    errors.append(error)
                    break
        return errors

    def _is_refused(self, place: int, texts: pa.Table, row: int) -> bool:
        """Return whether the text of a cell is no value; equal texts are asked for once."""
        cell = texts.select([place]).slice(row, 1)
        key = place, cell.column(0)[0].as_py()
        is_refused = self._refused_cells.get(key)
        if is_refused is None:
            try:
                self._parsed_texts(cell)
                is_refused = False
            except pa.ArrowException:
                is_refused = True
            self._refused_cells.put(key, is_refused)
        return is_refused

    def _note_ragged(self, row: Any) -> str:
        self._ragged[row.number] = row.actual_columns
        return "skip"

    def _table_of(self, data: bytes, converting: pacsv.ConvertOptions) -> pa.Table:
        self._ragged = {}
        text = open_text(data)
        return pacsv.read_csv(text, self._reading, self._splitting, converting).combine_chunks()

    def _typed_table_of(self, data: bytes) -> pa.Table:
        """Return the cells of a block, typed where the parser knows the type."""
        table = self._table_of(data, self._converting)
        # The parser takes words for nulls in all columns, but in texts they are texts.
        hidden = [name for name in self._texts_alone if table.column(name).null_count]
        if self._options.nulls and hidden:
            again = conversions(dict.fromkeys(hidden, pa.string()), self._options)
            again.include_columns = hidden
            texts = self._table_of(data, again)
            for name in hidden:
                table = table.set_column(self._names.index(name), name, texts.column(name))
        return table

    def _read_typed(self, data: bytes) -> _Cells | None:
        """Return the rows of a block; None if a text is not of its type."""
        try:
            table = self._typed_table_of(data)
            columns = [self._typed(table, name) for name in self._known]
            rows = self._conformer.conform(pa.RecordBatch.from_arrays(columns, names=self._known))
        except (pa.ArrowException, SchemaMismatchError):
            return None
        others = table.select(self._others)
        if self._unknown == "keep" and any(c.null_count < len(c) for c in others.columns):
            return None
        return _Cells(rows=rows, others=others, ragged=list(self._ragged))

    def _typed(self, table: pa.Table, name: str) -> pa.Array:
        column, kind = _only_chunk(table, name), self._types[name]
        if name in self._noted:
            format_ = self._options.dates.get(name, "")
            values = values_of_dates(column, kind, format_, self._options.time_zone)
            if values is not None:
                return values
            column = _only_chunk(normalized(table.select([name]), self._types, self._options), name)
            if not has_plain_form(column, kind).all():
                raise pa.ArrowInvalid("A text has another form.")
        elif name not in self._exact:
            return values_from_csv(column, kind, self._options.time_zone)
        if name in self._exact and changed_numbers(column, kind).any():
            raise pa.ArrowInvalid("A number is not as its type writes it.")
        return cast_texts(column, kind, self._options.time_zone)

    def _read_as_text(self, data: bytes) -> _Cells | None:
        """Return the rows whose texts have a plain form, and a mask of them."""
        try:
            table = normalized(self._table_of(data, self._as_text), self._types, self._options)
        except pa.ArrowException:
            return None
        is_good = np.ones(table.num_rows, bool)
        for name in self._known:
            is_good &= has_plain_form(table.column(name), self._types[name])
        for name, kind in self._exact.items():
            is_good &= ~changed_numbers(_only_chunk(table, name), kind)
        for name in self._required:
            is_good &= table.column(name).is_valid().to_numpy()
        for name in self._others if self._unknown == "keep" else ():
            is_good &= table.column(name).is_null().to_numpy()
        if table.num_rows and not is_good.any():
            return None
        kept = table.filter(pa.array(is_good)).combine_chunks()
        try:
            columns = [
                cast_texts(_only_chunk(kept, name), self._types[name], self._options.time_zone)
                for name in self._known
            ]
            rows = self._conformer.conform(pa.RecordBatch.from_arrays(columns, names=self._known))
        except (pa.ArrowException, SchemaMismatchError):
            return None
        return _Cells(
            rows=rows, others=kept.select(self._others), ragged=list(self._ragged), is_good=is_good
        )


def _only_chunk(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
