"""Blocks of whole lines of a file, and the rows that are read from them.

A block decides nothing: it vouches for rows, or gives lines to the reader by lines, which alone makes
rejects. So rows, types, rejects and line numbers are the same as if each line was read by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from lakebed.arrow.reading import files
from lakebed.arrow.reading.chunks import (
    Chunk,
    IsCut,
    LineChunk,
    Parse,
    Reject,
    without_mark,
)
from lakebed.arrow.reading.files import Line, RawFile
from lakebed.arrow.reading.unknown import Ignored
from lakebed.errors import InvalidInputError

# Measured: lines of JSON of one layout take a tenth less time than in blocks of 1 MiB, those that a
# decoder reads a twentieth more, and CSV the same from 512 KiB on.
BLOCK_BYTES = 4 * 2**20
NEWLINE = 10
_MASK_BYTES = 64 * 2**10
# Lines in question are read in groups of this size: an error costs the parse of one group. Where few
# parses have found all errors, the next group is twice as large.
_LINES_IN_QUESTION, _MOST_LINES_IN_QUESTION, _FEW_PARSES = 32, 4_096, 2


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines.

    Attributes:
        data: The lines, each with its newline; an open last line of a file has been given one.
        first_number: Number of the first line.
        is_open: True if the file ends in the last line, without a newline.
        after: A line with a problem that follows the lines; None without one.
        line_count: Number of lines.
    """

    data: bytes
    first_number: int
    is_open: bool = False
    after: Line | None = None
    line_count: int = -1

    def __post_init__(self) -> None:
        if self.line_count < 0:
            object.__setattr__(self, "line_count", count_newlines(self.data))

    def lines(self) -> Iterator[Line]:
        """Yield the lines, as the reader by lines has them."""
        parts = self.data.split(b"\n")[:-1]
        last = len(parts) - 1
        for i, part in enumerate(parts):
            yield Line(self.first_number + i, part, is_open=self.is_open and i == last)
        if self.after is not None:
            yield self.after

    def beginning_at(self, start: int, line_count: int) -> Block:
        """Return the block without its first lines.

        Args:
            start: Position of the first byte to keep.
            line_count: Number of lines before it.
        """
        return Block(
            self.data[start:],
            self.first_number + line_count,
            self.is_open,
            self.after,
            self.line_count - line_count,
        )


class BlockSource:
    """Cuts a file into blocks; the end of a block that was not used can be returned to it."""

    def __init__(self, file: RawFile, *, divided_by: int = 1) -> None:
        """Prepare to read a file.

        Args:
            file: The file.
            divided_by: Number of blocks that are as large as an ordinary block.
        """
        self._pieces = files.pieces_of(file)
        # At most a line: a longer one is then seen before a block of its size is gathered.
        self._size_bytes = max(1, min(BLOCK_BYTES // divided_by, files.MAX_LINE_BYTES))
        self._kept = b""
        self._number = 1
        self._is_begun = self._is_over = self._is_in_line = False
        self._damage = ""

    def give_back(self, block: Block, start: int) -> None:
        """Return the end of the last block, from the line that begins at a position."""
        self._number = block.first_number + count_newlines(block.data[:start])
        end = len(block.data) - block.is_open
        self._kept = block.data[start:end] + self._kept

    def next(self, at_least: int = 0) -> Block | None:
        """Return the next lines, more than `at_least` bytes of them if there are; None at the end."""
        data, rest = self._gather(max(self._size_bytes, at_least + 1))
        first = self._number
        if self._is_in_line or not (data or self._is_over):
            return self._next_part_of_line(data + rest)
        count = count_newlines(data)
        self._number += count
        if not self._is_over:
            self._kept = rest
            return Block(data, first, line_count=count)
        self._kept = b""
        if self._damage:
            return Block(data, first, after=self._damaged(rest))
        if rest:
            return Block(data + rest + b"\n", first, is_open=True, line_count=count + 1)
        return Block(data, first, line_count=count) if data else None

    def _gather(self, goal_bytes: int) -> tuple[bytes, bytes]:
        """Return about so many bytes: lines, unless the first is too long, and the begin of another."""
        parts, size_bytes = [self._kept], len(self._kept)
        has_end = b"\n" in self._kept
        while not self._is_over and (size_bytes < goal_bytes or not has_end):
            if not has_end and size_bytes > files.MAX_LINE_BYTES:
                break
            try:
                piece = next(self._pieces, None)
            except files.DamageError as exc:
                piece, self._damage = None, str(exc)
            if piece is None:
                self._is_over = True
                break
            parts.append(piece)
            size_bytes += len(piece)
            has_end = has_end or b"\n" in piece
        # Lines are cut before they are joined: a copy of a block takes memory that the system clears.
        rest = b""
        if has_end:
            while (end := parts[-1].rfind(b"\n") + 1) == 0:
                rest = parts.pop() + rest
            parts[-1], rest = parts[-1][:end], parts[-1][end:] + rest
        else:
            parts, rest = [], b"".join(parts)
        data = b"".join(parts)
        if not self._is_begun:
            self._is_begun = True
            data, rest = (without_mark(data), rest) if data else (data, without_mark(rest))
        return data, rest

    def _next_part_of_line(self, data: bytes) -> Block | None:
        """Return a part of a line that is too long; its last part begins with the data."""
        first, end = self._number, data.find(b"\n")
        if end < 0 and self._is_over:
            self._kept = b""
            if self._damage:
                return Block(b"", first, after=self._damaged(data))
            return Block(b"", first, after=Line(first, data, files.TOO_LONG)) if data else None
        self._is_in_line = end < 0
        self._number += end >= 0
        part, self._kept = (data, b"") if end < 0 else (data[:end], data[end + 1 :])
        return Block(b"", first, after=Line(first, part, files.TOO_LONG))

    def _damaged(self, rest: bytes) -> Line:
        damage, self._damage = self._damage, ""
        return Line(self._number, rest, damage, is_rest=True)


def count_newlines(data: bytes | memoryview) -> int:
    """Return the number of newlines."""
    codes = np.frombuffer(data, np.uint8)
    # Measured: a fifth of the time of `bytes.count`. A mask of a whole block is in memory that the
    # system clears each time, which takes six times as long.
    return sum(
        int(np.count_nonzero(codes[start : start + _MASK_BYTES] == NEWLINE))
        for start in range(0, len(codes), _MASK_BYTES)
    )


class NumberedRecords(Protocol):
    """The records of a block."""

    def line(self, index: int) -> Line:
        """Return a record as a line."""


class BlockRecords:
    """The records of a block; the bytes of one are found when they are asked for."""

    def __init__(
        self, block: Block, ends: np.ndarray | None = None, lines: Sequence[bytes] | None = None
    ) -> None:
        """Prepare to look up records.

        Args:
            block: The block.
            ends: Positions of the newlines that end the records; None if every line is a record.
            lines: The lines of the block, if they are split already.
        """
        self._block, self._ends, self._lines = block, ends, lines
        self._newlines: np.ndarray | None = None

    def line(self, index: int) -> Line:
        """Return a record as a line."""
        block = self._block
        if self._lines is not None:
            is_open = block.is_open and index == len(self._lines) - 1
            return Line(block.first_number + index, self._lines[index], is_open=is_open)
        if self._newlines is None:
            self._newlines = newlines_of(block.data)
        ends = self._newlines if self._ends is None else self._ends
        start, end = int(ends[index - 1]) + 1 if index else 0, int(ends[index])
        number = block.first_number + int(np.searchsorted(self._newlines, start))
        is_open = block.is_open and end == len(block.data) - 1
        return Line(number, block.data[start:end], is_open=is_open)


@dataclass(frozen=True, slots=True)
class LineRecords:
    """NumberedRecords that are lines already."""

    lines: Sequence[Line]

    def line(self, index: int) -> Line:
        """Return a record as a line."""
        return self.lines[index]


def newlines_of(data: bytes) -> np.ndarray:
    """Return the positions of the newlines."""
    return np.flatnonzero(np.frombuffer(data, np.uint8) == NEWLINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRows:
    """Rows of a block.

    Attributes:
        rows: The rows.
        records: Number of the record of each row in the block; None if every record is a row.
        in_question: Numbers of the records that the rows lack, ascending.
        left_out: For each field that the dataset lacks, a mask of the rows that have a value in it.
        is_derived: True if the fields of submissions were read from the documents.
    """

    rows: pa.RecordBatch
    records: np.ndarray | None = None
    in_question: Sequence[int] = ()
    left_out: Mapping[str, np.ndarray] = field(default_factory=dict)
    is_derived: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LineParser:
    """The judge of lines in question.

    Attributes:
        parse: Makes rows of lines.
        is_cut: Returns whether the last line of a file is cut off.
        is_blank: Returns whether a line is left out.
    """

    parse: Parse
    is_cut: IsCut
    is_blank: Callable[[bytes], bool]


class ParsedChunk(Chunk):
    """Rows that are parsed already; only checks of the dataset can fail."""

    def __init__(self, parsed: ParsedRows, records: NumberedRecords, parser: LineParser) -> None:
        self._parsed = parsed
        self._records = records
        self._parser = parser
        self.is_derived = parsed.is_derived

    def __len__(self) -> int:
        return int(self._parsed.rows.num_rows)

    def batch(self) -> pa.RecordBatch:
        """Return the rows as data for the dataset."""
        masks = self._parsed.left_out
        if masks:
            row_count = int(np.count_nonzero(np.logical_or.reduce(list(masks.values()))))
            names = frozenset(name for name, mask in masks.items() if mask.any())
            self.ignored = Ignored(row_count, names)
        return self._parsed.rows

    def part(self, start: int, end: int) -> Chunk:
        """Return the rows from `start` to before `end`."""
        parsed = self._parsed
        records = parsed.records
        part = ParsedRows(
            rows=parsed.rows.slice(start, end - start),
            records=np.arange(start, end) if records is None else records[start:end],
            left_out={name: mask[start:end] for name, mask in parsed.left_out.items()},
            is_derived=parsed.is_derived,
        )
        return ParsedChunk(part, self._records, self._parser)

    def reject(self, cause: InvalidInputError) -> Reject:
        """Return the only row as a reject."""
        records = self._parsed.records
        line = self._records.line(0 if records is None else int(records[0]))
        return LineChunk([line], self._parser.parse, self._parser.is_cut).reject(cause)


def settle(
    parsed: ParsedRows, records: NumberedRecords, parser: LineParser
) -> Iterator[Chunk | Reject]:
    """Yield the rows of a block, and the rejects among its lines in question, which are read by lines."""
    if parsed.in_question:
        lines = [(number, records.line(number)) for number in parsed.in_question]
        lines = [(number, line) for number, line in lines if not parser.is_blank(line.data)]
        accepted: list[_Accepted] = []
        start, count = 0, _LINES_IN_QUESTION
        while start < len(lines):
            rejects, parse_count = _read_lines(lines[start : start + count], parser, accepted)
            yield from rejects
            start += count
            is_cheap = parse_count <= _FEW_PARSES
            count = min(2 * count, _MOST_LINES_IN_QUESTION) if is_cheap else _LINES_IN_QUESTION
        parsed = _merge(parsed, accepted)
    if parsed.rows.num_rows:
        yield ParsedChunk(parsed, records, parser)


@dataclass(frozen=True, slots=True)
class _Accepted:
    """Rows that were read by lines, the numbers of their records, and what was left out of them."""

    rows: pa.RecordBatch
    numbers: Sequence[int]
    ignored: Ignored


def _read_lines(
    lines: Sequence[tuple[int, Line]], parser: LineParser, accepted: list[_Accepted]
) -> tuple[list[Reject], int]:
    """Read lines in question; add the rows of lines that fit.

    Returns:
        The others as rejects, and the number of parses.
    """
    rejects, waiting, parse_count = [], [lines], 0
    while waiting:
        group = waiting.pop()
        parse_count += 1
        chunk = LineChunk([line for _, line in group], parser.parse, parser.is_cut)
        try:
            rows = chunk.batch()
        except InvalidInputError as exc:
            row = 0 if len(group) == 1 else getattr(exc, "row", None)
            others = {} if row is None else {e.row: e for e in getattr(exc, "others", ())}
            if others:
                errors = {row: exc, **others}
                rejects += [chunk.part(i, i + 1).reject(errors[i]) for i in sorted(errors)]
                rest = [entry for i, entry in enumerate(group) if i not in errors]
                waiting += [rest] if rest else []
                continue
            middle = len(group) // 2 if row is None else row
            after = middle if row is None else row + 1
            if row is not None:
                rejects.append(chunk.part(row, after).reject(exc))
            waiting += [part for part in (group[after:], group[:middle]) if part]
            continue
        if chunk.ignored.row_count and len(group) > 1:  # which of the lines has it is asked for
            waiting += [[entry] for entry in reversed(group)]
        else:
            accepted.append(_Accepted(rows, [number for number, _ in group], chunk.ignored))
    return sorted(rejects, key=lambda reject: reject.line_number), parse_count


def _merge(parsed: ParsedRows, accepted: Sequence[_Accepted]) -> ParsedRows:
    """Return all rows in the order of their records."""
    if not accepted:
        return parsed
    count = parsed.rows.num_rows
    numbers = np.arange(count) if parsed.records is None else parsed.records
    numbers = np.concatenate([numbers, *(np.array(part.numbers) for part in accepted)])
    order = np.argsort(numbers, kind="stable")
    schema = parsed.rows.schema
    batches = [
        pa.RecordBatch.from_arrays(rows.columns, schema=schema)
        for rows in (parsed.rows, *(part.rows for part in accepted))
    ]
    names = set(parsed.left_out).union(*(part.ignored.fields for part in accepted))
    left_out = {}
    for name in names:
        masks = [parsed.left_out.get(name, np.zeros(count, bool))]
        masks += [np.full(part.rows.num_rows, name in part.ignored.fields) for part in accepted]
        left_out[name] = np.concatenate(masks)[order]
    return ParsedRows(
        rows=pa.concat_batches(batches).take(pa.array(order)),
        records=numbers[order],
        left_out=left_out,
        is_derived=parsed.is_derived,
    )
