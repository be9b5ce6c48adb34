"""Parquet and Avro files as data for a dataset."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.arrow.conform import Conformer, check_columns, check_types
from lakebed.arrow.entities import entities_to_batch
from lakebed.arrow.reading.chunks import Chunk, FormatReader, Reject
from lakebed.arrow.reading.files import RawFile
from lakebed.arrow.reasons import reason_of
from lakebed.errors import InvalidInputError, LakebedError, MissingDependencyError
from lakebed.model.avro import schema_from_avro
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Schema

_ROWS_PER_CHUNK = 4_096


class _RowChunk(Chunk):
    """Rows that are typed already; only what the dataset asks of them can fail."""

    def __init__(self, rows: pa.RecordBatch, first_number: int) -> None:
        self._rows = rows
        self._first_number = first_number

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def batch(self) -> pa.RecordBatch:
        return self._rows

    def part(self, start: int, end: int) -> Chunk:
        return _RowChunk(self._rows.slice(start, end - start), self._first_number + start)

    def reject(self, cause: InvalidInputError) -> Reject:
        (row,) = self._rows.to_pylist(maps_as_pydicts="lossy")
        return Reject(cause.message, self._first_number, _row_as_json(row), cause.hint)


def _row_as_json(row: Mapping[str, Any]) -> bytes:
    def plain(value: object) -> object:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

    return json.dumps(row, default=plain, ensure_ascii=False).encode("utf-8", "surrogatepass")


class ParquetReader(FormatReader):
    """Parquet files, whose columns are typed already."""

    def __init__(self, descriptor: DatasetDescriptor) -> None:
        self._descriptor = descriptor

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        with file.open_raw() as raw:
            Conformer(pq.read_schema(raw), self._descriptor)

    def count(self, file: RawFile) -> int | None:
        """Return the rows that the footer of a file tells."""
        with file.open_raw() as raw, pq.ParquetFile(raw) as opened:
            return int(opened.metadata.num_rows)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield all that is in a file, in order."""
        number = 1
        try:
            with (
                file.open_raw() as raw,
                pq.ParquetFile(raw, page_checksum_verification=True) as opened,
            ):
                for rows in opened.iter_batches():
                    yield _RowChunk(rows, number)
                    number += rows.num_rows
        except (pa.ArrowException, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise
            yield _rest_of_rows(number, exc)


def _rest_of_rows(number: int, cause: Exception) -> Reject:
    said = reason_of(cause)
    reason = f"The file cannot be read from row {number} on: {said}."
    return Reject(reason, number, b"", "Look at the file.", "rest")


class AvroRowsReader(FormatReader):
    """Avro files, read by the schema that is in each of them."""

    def __init__(self, descriptor: DatasetDescriptor) -> None:
        _fastavro()
        self._descriptor = descriptor

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        schema = avro_file_schema(file)
        check_columns(schema.names, self._descriptor)
        check_types(schema, self._descriptor)

    def count(self, file: RawFile) -> int | None:
        """Return the rows that the blocks of a file tell; None where one is damaged."""
        with file.open() as stream:
            try:
                blocks = _fastavro().block_reader(UncompressedAvro(stream))
                return sum(int(block.num_records) for block in blocks)
            except Exception:  # noqa: BLE001 - fastavro fails in whatever way the bytes lead it
                return None

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield all that is in a file, in order."""
        number, waiting = 1, []
        with file.open() as stream:
            rows = _AvroRows(stream)
            for row in rows:
                waiting.append(row)
                if len(waiting) == _ROWS_PER_CHUNK:
                    yield _EntityChunk(waiting, number, self._descriptor)
                    number, waiting = number + len(waiting), []
            if waiting:
                yield _EntityChunk(waiting, number, self._descriptor)
            if rows.damage is not None:
                yield _rest_of_rows(number + len(waiting), rows.damage)


def avro_file_schema(file: RawFile) -> Schema:
    """Return the schema that an Avro file was written with.

    Raises:
        SchemaMismatchError: It has a type that datasets have not.
        InvalidInputError: The file is no Avro.
    """
    with file.open() as stream, _translating():
        document = _fastavro().reader(UncompressedAvro(stream)).writer_schema
        return schema_from_avro(_without_marks(document))


def _without_marks(document: Any) -> Any:
    """Return a schema without what fastavro notes in it."""
    return {key: value for key, value in document.items() if not key.startswith("__")}


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (LakebedError, OSError):
        raise
    except Exception as exc:
        # fastavro believes the bytes of a file, and fails in whatever way they lead it.
        raise InvalidInputError(f"This is no Avro file: {exc!r}", hint="Look at the file.") from exc


class _AvroRows:
    """The rows of a file as entities; what ended them early, if anything did, is `damage`."""

    def __init__(self, stream: BinaryIO) -> None:
        self.damage: Exception | None = None
        self._stream = stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows = iter(())
        try:
            rows = _fastavro().reader(UncompressedAvro(self._stream))
        except Exception as exc:  # noqa: BLE001 - whatever the bytes led it to; it is reported
            self.damage = exc
        while True:
            try:
                row = next(rows, None)
            except Exception as exc:  # noqa: BLE001 - same
                self.damage = exc
                return
            if row is None:
                return
            yield {name: _as_text(value) for name, value in row.items()}


def _as_text(value: Any) -> Any:
    """Return a value with its UUIDs as the text that a dataset holds."""
    match value:
        case uuid.UUID():
            return str(value)
        case dict():
            return {name: _as_text(item) for name, item in value.items()}
        case list():
            return [_as_text(item) for item in value]
    return value


class _EntityChunk(Chunk):
    def __init__(
        self, entities: Sequence[Mapping[str, Any]], first: int, descriptor: DatasetDescriptor
    ) -> None:
        self._entities = entities
        self._first = first
        self._descriptor = descriptor

    def __len__(self) -> int:
        return len(self._entities)

    def batch(self) -> pa.RecordBatch:
        return entities_to_batch(self._entities, self._descriptor)

    def part(self, start: int, end: int) -> Chunk:
        return _EntityChunk(self._entities[start:end], self._first + start, self._descriptor)

    def reject(self, cause: InvalidInputError) -> Reject:
        (entity,) = self._entities
        return Reject(cause.message, self._first, _row_as_json(entity), cause.hint)


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as exc:
        raise MissingDependencyError.for_extra("fastavro", "avro", "Reading Avro files") from exc
    return fastavro
