"""Lookup of readers by format, and files as one stream of rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from lakebed.arrow.reading.binary import AvroRowsReader, ParquetReader
from lakebed.arrow.reading.chunks import Chunk, FormatReader, Reject
from lakebed.arrow.reading.csv import CsvReader
from lakebed.arrow.reading.csv_blocks import CsvBlockReader
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import FileFormat, RawFile, reading
from lakebed.arrow.reading.level_columns import LevelReader
from lakebed.arrow.reading.lines import JsonReader, SubmissionLinesReader
from lakebed.arrow.reading.transcoding import is_utf8
from lakebed.arrow.reading.unknown import Unknown
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.descriptor import DatasetDescriptor


def open_reader(
    format: FileFormat,  # noqa: A002 - the word of the option
    descriptor: DatasetDescriptor,
    csv: CsvOptions,
    unknown: Unknown = "reject",
    json: JsonOptions | None = None,
) -> LevelReader:
    """Return the reader of a format, which fills in the levels above files.

    Raises:
        SchemaMismatchError: The format cannot hold the dataset's rows.
    """
    json = json or JsonOptions()
    encoding = {"csv": csv.encoding, "json": json.encoding}.get(format, "utf-8")
    return LevelReader(
        lambda rows: _open_plain(format, rows, csv, json, unknown),
        descriptor,
        unknown,
        is_by_position=format == "csv" and not csv.has_header,
        as_written=lambda file: as_written(file, format, csv, json),
        is_plain_text=is_utf8(encoding) and (format != "csv" or csv.line_end == "\n"),
    )


def as_written(
    file: RawFile,
    format: FileFormat,  # noqa: A002 - the word of the option
    csv: CsvOptions,
    json: JsonOptions,
) -> RawFile:
    """Return a file with the encoding and the line ends of its notation."""
    match format:
        case "csv":
            encoding, line_end = csv.encoding, csv.line_end
        case "json":
            encoding, line_end = json.encoding, file.line_end
        case _:
            return file
    if (encoding, line_end) == (file.encoding, file.line_end):
        return file
    return replace(file, encoding=encoding, line_end=line_end)


def _open_plain(
    format: FileFormat,  # noqa: A002 - the word of the option
    descriptor: DatasetDescriptor,
    csv: CsvOptions,
    json: JsonOptions,
    unknown: Unknown,
) -> FormatReader:
    match format:
        case "csv":
            open_csv = CsvBlockReader if csv.is_split_plainly else CsvReader
            return open_csv(descriptor, csv, unknown)
        case "json":
            return JsonReader(descriptor, unknown, json)
        case "submissions":
            return SubmissionLinesReader(descriptor)
        case "avro":
            return AvroRowsReader(descriptor, unknown)
        case "parquet":
            return ParquetReader(descriptor, unknown)


def check_files(
    files: Sequence[RawFile],
    format: FileFormat,  # noqa: A002 - the word of the option
    descriptor: DatasetDescriptor,
    csv: CsvOptions,
    unknown: Unknown = "reject",
    json: JsonOptions | None = None,
) -> None:
    """Compare the headers and schemas of files with a dataset, before any row is read.

    A file that is damaged at its schema passes, and is rejected when it is read.

    Raises:
        SchemaMismatchError: A header or schema does not fit; the message names the file.
        PartitionSpecError: A file lacks the source of a partition function.
        InvalidInputError: A file cannot be opened.

    Cost:
        The first bytes of each file, or its footer.
    """
    reader = open_reader(format, descriptor, csv, unknown, json)
    for file in files:
        try:
            with reading(file.location):
                reader.check(file)
        except InvalidInputError as exc:
            if not is_damage(exc):
                raise


def is_damage(exc: InvalidInputError) -> bool:
    """Return whether an error of a check comes from bytes that cannot be decoded."""
    is_mismatch = type(exc) is not InvalidInputError
    is_storage = isinstance(exc.__cause__, OSError) and exc.__cause__.errno is not None
    return exc.__cause__ is not None and not is_mismatch and not is_storage


def read_rows(
    files: Sequence[RawFile],
    format: FileFormat,  # noqa: A002 - the word of the option
    descriptor: DatasetDescriptor,
    csv: CsvOptions | None = None,
    json: JsonOptions | None = None,
) -> pa.RecordBatchReader:
    """Return the rows of files as one stream; the first that does not fit is an error.

    Headers and schemas of all files are checked first.

    Raises:
        SchemaMismatchError: A file does not fit; the message names the file and the line.
        PartitionSpecError: A file lacks the source of a partition function.
        InvalidInputError: A file cannot be read.

    Cost:
        Memory for some thousand rows.
    """
    reader = open_reader(format, descriptor, csv or CsvOptions(), json=json)
    for file in files:
        with reading(file.location):
            reader.check(file)
    first = next(batches := _strict(reader, files), None)
    if first is None:
        return pa.RecordBatchReader.from_batches(schema_to_arrow(descriptor.schema), [])
    return pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches))


def _strict(reader: FormatReader, files: Sequence[RawFile]) -> Iterator[pa.RecordBatch]:
    for file in files:
        pieces = reader.chunks(file)
        while True:
            with reading(file.location):
                piece = next(pieces, None)
                if piece is None:
                    break
                if isinstance(piece, Reject):
                    message = f"Line {piece.line_number}: {piece.reason}"
                    raise SchemaMismatchError(message, hint=piece.hint)
                batch = _batch_or_place(piece)
            yield batch


def _batch_or_place(chunk: Chunk) -> pa.RecordBatch:
    """Return the rows of a chunk, or raise an error that names the line that does not fit."""
    try:
        return chunk.batch()
    except InvalidInputError as exc:
        if len(chunk) == 1:
            exc.message = f"Line {chunk.reject(exc).line_number}: {exc.message}"
            raise
        for half in chunk.halves():
            _batch_or_place(half)
        raise
