"""Rows of raw files in chunks, which can be halved down to the one row that does not fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.files import Line, RawFile, lines_of
from lakebed.arrow.reading.unknown import Ignored
from lakebed.errors import InvalidInputError, SchemaMismatchError

_LINES_PER_CHUNK = 1_024
_CHUNK_BYTES = 4 * 2**20
_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\n\r\x0b\f"
_LOOK = "Look at the file."


RejectKind = Literal["line", "rest", "file"]
"""Extent of a reject: one line or row, all that is left of a damaged file, or a whole file."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A line, row or rest of a file that does not fit.

    Attributes:
        line_number: From 1 on; of a row in a binary file its number.
        line: Bytes of the line; for a binary file, the row as JSON.
        hint: Remedy for the user.
        kind: Extent of the reject.
        row_count: Rows of a whole file; None where they cannot be counted.
        is_unknown: True if the dataset lacks a field of the line.
        is_mismatch: True if the line is of its format, but a value of it does not fit its field.
    """

    reason: str
    line_number: int
    line: bytes
    hint: str = ""
    kind: RejectKind = "line"
    row_count: int | None = None
    is_unknown: bool = False
    is_mismatch: bool = False


class Chunk(ABC):
    """Some consecutive rows.

    Attributes:
        ignored: Parts of the rows that `batch` left out.
        is_derived: True if the fields of submissions were read from their documents.
    """

    ignored = Ignored()
    is_derived = False

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def batch(self) -> pa.RecordBatch:
        """Return the rows as data for the dataset.

        Raises:
            InvalidInputError: A row does not fit.
        """

    @abstractmethod
    def part(self, start: int, end: int) -> Chunk:
        """Return the rows from `start` to before `end`."""

    @abstractmethod
    def reject(self, cause: InvalidInputError) -> Reject:
        """Return the only row as a reject."""

    def halves(self) -> tuple[Chunk, Chunk]:
        """Split into two chunks."""
        middle = len(self) // 2
        return self.part(0, middle), self.part(middle, len(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """The rows of some files together.

    Attributes:
        rows: The rows, in the order of the files.
        row_counts: Number of rows of each file.
        is_derived: As in a chunk.
    """

    rows: pa.RecordBatch
    row_counts: list[int]
    is_derived: bool = False


class FormatReader(ABC):
    """Reads the raw files of one format as data for one dataset.

    Attributes:
        checks_in_chunks: True if `chunks` raises what `check` raises, before it yields anything.
        reads_packs: True if `pack` may return rows.
    """

    checks_in_chunks = False
    reads_packs = False

    def pack(self, texts: Sequence[bytes]) -> Pack | None:  # noqa: ARG002 - of some formats
        """Return the rows of small files, if all of their lines certainly fit.

        Args:
            texts: Whole contents of the files, uncompressed, without a byte order mark.

        Returns:
            The rows; None if some line is in question, or fields would be left out.
        """
        return None

    @abstractmethod
    def check(self, file: RawFile) -> None:
        """Compare header or schema of a file with the dataset's.

        Raises:
            SchemaMismatchError: It does not fit.
            PartitionSpecError: The file lacks the source of a partition function.
        """

    @abstractmethod
    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""

    @abstractmethod
    def census(self, file: RawFile) -> Census:
        """Return the contents of fields that the dataset lacks; damage ends the census.

        Cost:
            One pass over a file of lines, for CSV only where the header names such a field; the
            schema of others.
        """

    def count(self, file: RawFile) -> int | None:  # noqa: ARG002 - of a format with a schema
        """Return the rows of a file whose header or schema does not fit; None if unknown.

        Cost:
            One pass over a CSV file, the footer or the block headers of others.
        """
        return None


Parse = Callable[[Sequence[bytes]], tuple[pa.RecordBatch, Ignored]]
IsCut = Callable[[bytes], bool]
"""Returns whether the last line of a file, which has no newline, is cut off."""


class LineChunk(Chunk):
    """Lines, and a parser that makes data of them."""

    def __init__(self, lines: Sequence[Line], parse: Parse, is_cut: IsCut) -> None:
        self._lines = lines
        self._parse = parse
        self._is_cut = is_cut

    def __len__(self) -> int:
        return len(self._lines)

    def batch(self) -> pa.RecordBatch:
        """Return the rows as data for the dataset."""
        rows, self.ignored = self._parse([line.data for line in self._lines])
        return rows

    def part(self, start: int, end: int) -> Chunk:
        """Return the rows from `start` to before `end`."""
        return LineChunk(self._lines[start:end], self._parse, self._is_cut)

    def reject(self, cause: InvalidInputError) -> Reject:
        """Return the only row as a reject."""
        (line,) = self._lines
        is_unknown = isinstance(cause, SchemaMismatchError) and cause.unknown is not None
        if line.is_open and self._is_cut(line.data):
            reason = f"The file ends inside of this line: {cause.message}"
            return Reject(reason, line.number, line.data, _LOOK, "rest", is_unknown=is_unknown)
        is_mismatch = not is_unknown and not getattr(cause, "is_malformed", False)
        return Reject(
            cause.message,
            line.number,
            line.data,
            cause.hint,
            is_unknown=is_unknown,
            is_mismatch=is_mismatch,
        )


def grouped(
    lines: Iterable[Line], parse: Parse, is_cut: IsCut, count: int = _LINES_PER_CHUNK
) -> Iterator[Chunk | Reject]:
    """Gather lines into chunks of up to `count`; a line with a problem is a reject."""
    for group in line_groups(lines, count):
        if group[0].problem:
            yield unread(group[0])
        else:
            yield LineChunk(group, parse, is_cut)


def line_groups(lines: Iterable[Line], count: int = _LINES_PER_CHUNK) -> Iterator[list[Line]]:
    """Yield lines in groups of up to `count`; a line with a problem is a group of its own."""
    waiting: list[Line] = []
    size_bytes = 0
    for line in lines:
        if not line.problem:
            waiting.append(line)
            size_bytes += len(line.data)
            if len(waiting) < count and size_bytes < _CHUNK_BYTES:
                continue
        if waiting:
            yield waiting
            waiting, size_bytes = [], 0
        if line.problem:
            yield [line]
    if waiting:
        yield waiting


def unread(line: Line) -> Reject:
    """Return a line with a problem as a reject."""
    return Reject(line.problem, line.number, line.data, _LOOK, "rest" if line.is_rest else "line")


def text_lines(file: RawFile) -> Iterator[Line]:
    """Yield the lines of a text without a byte order mark."""
    for line in lines_of(file):
        yield replace(line, data=without_mark(line.data)) if line.number == 1 else line


def without_mark(data: bytes) -> bytes:
    """Return the begin of a text without a byte order mark."""
    return data.removeprefix(_BOM)


def without_blanks(lines: Iterable[Line], delimiter: bytes = b"") -> Iterator[Line]:
    """Leave out blank lines; see `is_blank`."""
    return (line for line in lines if line.problem or not is_blank(line.data, delimiter))


def is_blank(line: bytes, delimiter: bytes = b"") -> bool:
    r"""Return whether a line holds no more than white space, and no delimiter of cells.

    NUL bytes are the padding of a block.

    >>> is_blank(b" \t\r"), is_blank(b" \t\r", b"\t")
    (True, False)
    """
    return not line.strip(_BLANK) and not (delimiter and delimiter in line)
