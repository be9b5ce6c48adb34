"""Raw files read by blocks and by lines, for comparison."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from nasty_files import NastyFiles

from lakebed.arrow.documents import is_cut_object
from lakebed.arrow.formats.submissions import is_cut_line
from lakebed.arrow.reading.chunks import (
    Chunk,
    FormatReader,
    Reject,
    grouped,
    text_lines,
    without_blanks,
)
from lakebed.arrow.reading.csv import CsvReader
from lakebed.arrow.reading.dialect import JsonOptions
from lakebed.arrow.reading.files import RawFile, find_files
from lakebed.arrow.reading.json_records import json_records
from lakebed.arrow.reading.lines import JsonReader, SubmissionLinesReader
from lakebed.arrow.reading.rows import open_reader
from lakebed.arrow.reading.unknown import Ignored
from lakebed.errors import InvalidInputError, LakebedError, SchemaMismatchError


@dataclass(frozen=True)
class Reading:
    """What a reader made of a file.

    Attributes:
        schema: Schema of its rows; None without any.
        rows: Its rows, in order.
        rejects: Its rejects, by line.
        ignored: What was left out of its rows.
        error: The error that ended the reading; empty without one.
    """

    schema: pa.Schema | None
    rows: list[Any]
    rejects: list[Reject]
    ignored: Ignored
    error: str


def open_line_reader(file_format: str, given: NastyFiles) -> FormatReader:
    """Return the reader by lines of a format."""
    match file_format:
        case "csv":
            return CsvReader(given.descriptor, given.csv, given.unknown)
        case "json":
            return _JsonByLines(given.descriptor, given.unknown)
    return _SubmissionsByLines(given.descriptor)


class _JsonByLines(JsonReader):
    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        return grouped(without_blanks(text_lines(file)), self.parse, is_cut_object)


def open_element_reader(given: NastyFiles, options: JsonOptions) -> FormatReader:
    """Return the reader of JSON that is not lines, which reads elements one by one."""
    return _JsonElements(given.descriptor, given.unknown, options)


class _JsonElements(JsonReader):
    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        return grouped(json_records(file, self._options), self.parse, is_cut_object)


class _SubmissionsByLines(SubmissionLinesReader):
    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        return grouped(without_blanks(text_lines(file)), self.parse, is_cut_line)


def open_block_reader(file_format: str, given: NastyFiles) -> FormatReader:
    """Return the reader that an ingest uses."""
    return open_reader(file_format, given.descriptor, given.csv, given.unknown)


def files_in(folder: Path, file_format: str, given: NastyFiles) -> Sequence[RawFile]:
    """Write files into a folder, and return them as an ingest finds them."""
    for name, content in given.contents.items():
        (folder / name).write_bytes(content)
    _, files = find_files([str(folder / name) for name in given.contents], file_format)
    return files


def read_file(reader: FormatReader, file: RawFile, refused_share: int = 0) -> Reading:
    """Read a file as an ingest does.

    Args:
        reader: The reader.
        file: The file.
        refused_share: One of so many rows is refused by a later check; 0 for none.
    """
    batches: list[pa.RecordBatch] = []
    rejects: list[Reject] = []
    ignored, error = Ignored(), ""
    try:
        for piece in reader.chunks(file):
            for part in [piece] if isinstance(piece, Reject) else _settled(piece, refused_share):
                if isinstance(part, Reject):
                    rejects.append(part)
                else:
                    batches.append(part[0])
                    ignored += part[1]
    except LakebedError as exc:
        error = f"{type(exc).__name__}: {exc.message}"
    return Reading(
        schema=batches[0].schema if batches else None,
        rows=[row for batch in batches for row in plain_rows(batch)],
        rejects=sorted(rejects, key=lambda one: (one.line_number, one.line, one.reason)),
        ignored=ignored,
        error=error,
    )


def check_file(reader: FormatReader, file: RawFile) -> str:
    """Return the error of the check of a file; empty without one."""
    try:
        reader.check(file)
    except LakebedError as exc:
        return f"{type(exc).__name__}: {exc.message}"
    return ""


def _settled(chunk: Chunk, share: int) -> Iterator[Reject | tuple[pa.RecordBatch, Ignored]]:
    waiting = [chunk]
    while waiting:
        part = waiting.pop()
        try:
            batch = part.batch()
            _refuse_some(batch, share)
        except InvalidInputError as exc:
            row = exc.row if isinstance(exc, SchemaMismatchError) else None
            if len(part) == 1:
                yield part.reject(exc)
            elif row is None:
                waiting += reversed(part.halves())
            else:
                parts = (part.part(row + 1, len(part)), part.part(row, row + 1), part.part(0, row))
                waiting += [piece for piece in parts if len(piece)]
        else:
            yield batch, part.ignored


def _refuse_some(batch: pa.RecordBatch, share: int) -> None:
    if share and any(zlib.crc32(row.encode()) % share == 0 for row in plain_rows(batch)):
        raise InvalidInputError("A check refuses a row.")


def plain_rows(batch: pa.RecordBatch) -> list[str]:
    """Return rows as texts: NaN equals itself, and Python lacks some years."""
    columns = []
    for column in batch.columns:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
        columns.append([str(value) for value in column])
    return [repr(row) for row in zip(*columns, strict=True)]
