"""Parquet and Avro files as data for a dataset."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import functools
import itertools
import json
import operator
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType, ModuleType, NoneType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pat

from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.arrow.conform import (
    Conformer,
    check_columns,
    check_nulls,
    check_shapes,
    check_types,
    default_of,
)
from lakebed.arrow.entities import entities_to_batch, to_column
from lakebed.arrow.entities import to_plain as as_plain_rows
from lakebed.arrow.formats.parquet import is_of_spark, open_parquet, with_instants
from lakebed.arrow.reading.census import Census, arrow_schema
from lakebed.arrow.reading.chunks import Chunk, FormatReader, Reject
from lakebed.arrow.reading.files import STDIN, RawFile
from lakebed.arrow.reading.unknown import (
    Ignored,
    Unknown,
    known_part,
    known_schema,
    values_of,
)
from lakebed.arrow.reasons import VALUE_ERRORS, reason_of
from lakebed.arrow.utf8 import python_rows_with_damage
from lakebed.common.plain import to_plain, to_text
from lakebed.errors import InvalidInputError, LakebedError, MissingDependencyError
from lakebed.model.arrow_types import field_to_arrow, plain_schema, type_to_arrow
from lakebed.model.avro import schema_from_avro
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Kind, Primitive, Schema, without_limits

ROWS_PER_CHUNK = 4_096
# Plain types, and those of their values as fastavro decodes them, which Arrow takes unchanged.
_TYPES_OF_VALUES: dict[Kind, type] = {
    Kind.BOOLEAN: bool,
    Kind.INT: int,
    Kind.LONG: int,
    Kind.FLOAT: float,
    Kind.DOUBLE: float,
    Kind.STRING: str,
    Kind.BYTES: bytes,
    Kind.DATE: dt.date,
    Kind.TIMESTAMP: dt.datetime,
}
# Logical types of Avro that are read as numbers, and the Arrow type of the numbers. Measured: Python
# objects for them take a third of the time of the decoder.
UNITS: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST = dt.datetime.max.replace(tzinfo=dt.UTC)


class _RowChunk(Chunk):
    """Rows with types; only checks of the dataset can fail."""

    def __init__(
        self, rows: pa.RecordBatch, first_number: int, left_out: Sequence[str] = ()
    ) -> None:
        self._rows = rows
        self._first_number = first_number
        self._left_out = left_out

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def batch(self) -> pa.RecordBatch:
        if not self._left_out:
            return self._rows
        # By position: a column that is left out may appear twice.
        columns = list(enumerate(self._rows.schema.names))
        self.ignored = values_of(
            (name, self._rows.column(i)) for i, name in columns if name in self._left_out
        )
        return self._rows.select([i for i, name in columns if name not in self._left_out])

    def part(self, start: int, end: int) -> Chunk:
        rows = self._rows.slice(start, end - start)
        return _RowChunk(rows, self._first_number + start, self._left_out)

    def reject(self, cause: InvalidInputError) -> Reject:
        (row,) = python_rows_with_damage(self._rows)
        return Reject(
            cause.message, self._first_number, _row_as_json(row), cause.hint, is_mismatch=True
        )


def _row_as_json(row: Mapping[str, Any]) -> bytes:
    def plain(value: object) -> object:
        return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)

    text = json.dumps(_with_text_keys(row), default=plain, ensure_ascii=False)
    try:
        return text.encode("utf-8", "surrogateescape")  # bytes that are not UTF-8 as they came
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _with_text_keys(value: Any) -> Any:
    """Return a value whose maps have texts as keys, as JSON needs them."""
    match value:
        case Mapping():
            return {to_text(to_plain(key)): _with_text_keys(item) for key, item in value.items()}
        case list():
            return [_with_text_keys(item) for item in value]
    return value


def _without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([column for column in schema if column.name not in names])


class ParquetReader(FormatReader):
    """Parquet files, whose columns are typed already."""

    def __init__(self, descriptor: DatasetDescriptor, unknown: Unknown = "reject") -> None:
        self._descriptor = descriptor
        self._unknown = unknown

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        with file.open_raw() as raw, open_parquet(raw) as opened:
            schema = rows_schema(opened, self._descriptor.schema)
        if self._unknown == "reject":
            Conformer(schema, self._descriptor)
            return
        given = _without(schema, self._left_out(schema))
        if not self._is_nested(given):
            Conformer(given, self._descriptor)
            return
        check_columns(given.names, self._descriptor)
        check_types(known_schema(arrow_schema(given), self._descriptor.schema), self._descriptor)

    def _left_out(self, schema: pa.Schema) -> list[str]:
        """Return the columns of a file that are not read."""
        return [
            column.name
            for column in schema
            if column.name not in self._descriptor.schema
            and (self._unknown == "ignore" or pat.is_null(column.type))
        ]

    def _is_nested(self, given: pa.Schema) -> bool:
        """Return whether records inside of the columns have fields that the dataset lacks."""
        schema = arrow_schema(given)
        known = known_schema(schema, self._descriptor.schema)
        return any(one.name in known and known.get(one.name).type != one.type for one in schema)

    def census(self, file: RawFile) -> Census:
        """Return the types of a file's columns that the dataset lacks."""
        census = Census()
        with file.open_raw() as raw, open_parquet(raw) as opened:
            schema = arrow_schema(rows_schema(opened, self._descriptor.schema))
            census.note_schema(schema, self._descriptor.schema, opened.metadata.num_rows)
        return census

    def count(self, file: RawFile) -> int | None:
        """Return the row count in the footer of a file."""
        with file.open_raw() as raw, pq.ParquetFile(raw) as opened:
            return int(opened.metadata.num_rows)

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        number = 1
        try:
            with (
                file.open_raw() as raw,
                open_parquet(raw) as opened,
            ):
                schema = rows_schema(opened, self._descriptor.schema)
                left_out = [] if self._unknown == "reject" else self._left_out(schema)
                given = _without(schema, left_out)
                is_nested = self._unknown != "reject" and self._is_nested(given)
                is_same = schema == opened.schema_arrow
                for read in opened.iter_batches():
                    rows = read if is_same else as_plain_rows(read).cast(schema)
                    if is_nested:
                        entities = python_rows_with_damage(rows)
                        yield _EntityChunk(entities, number, self._descriptor, self._unknown)
                    else:
                        yield _RowChunk(rows, number, left_out)
                    number += rows.num_rows
        except (pa.ArrowException, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise
            yield _rest_of_rows(number, exc)


def rows_schema(file: pq.ParquetFile, declared: Schema | None = None) -> pa.Schema:
    """Return the Arrow schema for the rows of a file, in plain layouts: a UUID is a text.

    A time in INT96 has no zone in the file. It is an instant if Spark wrote it, or where the dataset
    has instants, as in an adopted file.

    Args:
        file: The open file.
        declared: Schema of the dataset; None for a new one.
    """
    schema = plain_schema(file.schema_arrow)
    instants = with_instants(schema, file.metadata)
    if instants == schema or is_of_spark(file.metadata):
        return instants
    fields = []
    for field, instant in zip(schema, instants, strict=True):
        kind = None if declared is None else declared.find(field.name)
        is_instant = kind is not None and "tz=" in str(type_to_arrow(kind.type))
        fields.append(instant if is_instant else field)
    return pa.schema(fields, schema.metadata)


def _rest_of_rows(number: int, cause: Exception) -> Reject:
    reason = f"The file cannot be read from row {number} on: {reason_of(cause)}."
    return Reject(reason, number, b"", "Look at the file.", "rest")


class AvroRowsReader(FormatReader):
    """Avro files, read by the schema that is in each of them."""

    def __init__(self, descriptor: DatasetDescriptor, unknown: Unknown = "reject") -> None:
        _fastavro()
        self._descriptor = descriptor
        self._unknown = unknown
        self._last: tuple[Any, frozenset[str]] = (None, frozenset())  # of the last file

    def check(self, file: RawFile) -> None:
        """Compare the file with the dataset; see `FormatReader`."""
        schema = avro_file_schema(file)
        if self._unknown == "ignore":
            schema = known_schema(schema, self._descriptor.schema)
        check_columns(schema.names, self._descriptor)
        check_types(schema, self._descriptor)

    def census(self, file: RawFile) -> Census:
        """Return the types of a file's fields that the dataset lacks."""
        census = Census()
        schema = avro_file_schema(file)
        census.note_schema(schema, self._descriptor.schema, self.count(file) or 0)
        return census

    def count(self, file: RawFile) -> int | None:
        """Return the sum of the row counts of a file's blocks; None where one is damaged."""
        with file.open_bytes() as stream:
            try:
                blocks = _fastavro().block_reader(UncompressedAvro(stream))
                return sum(int(block.num_records) for block in blocks)
            except Exception:  # noqa: BLE001 - damaged bytes make fastavro raise any exception
                return None

    def chunks(self, file: RawFile) -> Iterator[Chunk | Reject]:
        """Yield the content of a file, in order."""
        number = 1
        if file.location != STDIN:  # it cannot be opened twice
            with file.open_bytes() as stream:
                numbered = _NumberedRows(stream, self._units_of)
                for waiting in numbered.groups():
                    yield self._chunk(waiting, number, numbered.schema, numbered.units)
                    number += len(waiting)
            if numbered.is_whole:
                return
        with file.open_bytes() as stream:
            rows = _AvroRows(stream)
            remaining = itertools.islice(rows, number - 1, None)
            while waiting := list(itertools.islice(remaining, ROWS_PER_CHUNK)):
                yield self._chunk(waiting, number, rows.schema, {})
                number += len(waiting)
            if rows.damage is not None:
                yield _rest_of_rows(number, rows.damage)

    def _chunk(
        self,
        rows: Sequence[Mapping[str, Any]],
        first: int,
        document: Any,
        units: Mapping[str, pa.DataType],
    ) -> Chunk:
        typed = self._typed_names(document)
        return _EntityChunk(rows, first, self._descriptor, self._unknown, typed, units)

    def _units_of(self, document: Any) -> dict[str, pa.DataType]:
        """Return the units of the fields of a file that are read as numbers."""
        if self._descriptor.format == "submissions":
            return {}
        typed = self._typed_names(document)
        units = {
            field["name"]: _unit_of(field["type"])
            for field in document["fields"]
            if field["name"] in typed
        }
        return {name: unit for name, unit in units.items() if unit is not None}

    def _typed_names(self, document: Any) -> frozenset[str]:
        """Return the fields of a file that have a plain type, which is the dataset's own.

        None are returned if some part of the rows may have to be left out.
        """
        if document is self._last[0]:
            return self._last[1]
        typed: frozenset[str] = frozenset()
        with contextlib.suppress(InvalidInputError):
            schema = _schema_of(document)
            if all(name in self._descriptor.schema for name in schema.names):
                typed = frozenset(
                    field.name
                    for field in schema
                    if isinstance(field.type, Primitive)
                    and field.type.kind in _TYPES_OF_VALUES
                    and field.type == self._descriptor.schema.get(field.name).type
                )
                if self._unknown != "reject" and len(typed) < len(schema.names):
                    typed = frozenset()
        self._last = (document, typed)
        return typed


def avro_file_schema(file: RawFile) -> Schema:
    """Return the schema that an Avro file was written with, with texts and bytes of any value.

    Raises:
        SchemaMismatchError: It has a type that datasets lack.
        InvalidInputError: The file is not Avro.
    """
    with file.open_bytes() as stream, _translating():
        return _schema_of(_fastavro().reader(UncompressedAvro(stream)).writer_schema)


def _schema_of(document: Any) -> Schema:
    schema = schema_from_avro(_without_marks(document))
    # Another file may have other symbols.
    return replace(schema, fields=without_limits(schema))


def _without_marks(document: Any) -> Any:
    """Return a schema without the marks that fastavro adds."""
    return {key: value for key, value in document.items() if not key.startswith("__")}


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (LakebedError, OSError):
        raise
    except Exception as exc:
        # fastavro trusts the bytes of a file, so that damaged ones can raise any exception.
        raise InvalidInputError(
            f"This is not an Avro file: {exc!r}", hint="Look at the file."
        ) from exc


class _AvroRows:
    """The rows of a file as entities.

    Attributes:
        damage: The error that ended them early; None without one.
        schema: The schema of the file, as Avro has it, once a row is read.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.damage: Exception | None = None
        self.schema: Any = None
        self._stream = stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            rows = _fastavro().reader(UncompressedAvro(self._stream))
            self.schema = rows.writer_schema
            yield from rows
        except Exception as exc:  # noqa: BLE001 - damaged bytes raise any exception; it is reported
            self.damage = exc


class _NumberedRows:
    """The rows of a file as entities with numbers for times, as long as nothing is in question.

    Attributes:
        schema: The schema of the file, as Avro has it, once a row is read.
        units: The units of the fields that are numbers.
        is_whole: True if all rows of the file were read.
    """

    def __init__(self, stream: BinaryIO, units_of: Callable[[Any], dict[str, pa.DataType]]) -> None:
        self.schema: Any = None
        self.units: dict[str, pa.DataType] = {}
        self.is_whole = False
        self._stream = stream
        self._units_of = units_of

    def groups(self) -> Iterator[list[dict[str, Any]]]:
        """Yield rows in groups; stop before damage, a time that Python lacks, or rows without times."""
        remaining = self._rows()
        while True:
            try:
                waiting = list(itertools.islice(remaining, ROWS_PER_CHUNK))
            except Exception:  # noqa: BLE001 - damaged bytes raise any exception
                return
            self.is_whole = not waiting and bool(self.units)
            if not waiting or not self._are_times(waiting):
                return
            yield waiting

    def _rows(self) -> Iterator[dict[str, Any]]:
        fastavro = _fastavro()
        blocks = fastavro.block_reader(UncompressedAvro(self._stream))
        self.schema = blocks.writer_schema
        self.units = self._units_of(self.schema)
        if not self.units:
            return
        as_numbers = fastavro.parse_schema(_with_numbers(self.schema, self.units))
        for block in blocks:
            block.writer_schema = as_numbers
            yield from block

    def _are_times(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        for name, unit in self.units.items():
            numbers = [row[name] for row in rows if row[name] is not None]
            if numbers:
                lowest, highest = _numbers_of_python(unit)
                if min(numbers) < lowest or max(numbers) > highest:
                    return False
        return True


def _unit_of(document: Any) -> pa.DataType | None:
    """Return the unit of a plain type of Avro, or of such a one or null; None if it is no time."""
    branches = document if isinstance(document, list) else [document]
    kind = next(branch for branch in branches if branch != "null")
    return UNITS.get(kind.get("logicalType", "")) if isinstance(kind, Mapping) else None


def _with_numbers(document: Any, units: Mapping[str, pa.DataType]) -> Any:
    """Return a schema in which some fields are numbers."""

    def plain(kind: Any) -> Any:
        if isinstance(kind, list):
            return [plain(branch) for branch in kind]
        return kind["type"] if isinstance(kind, Mapping) else kind

    fields = [
        {**field, "type": plain(field["type"])} if field["name"] in units else field
        for field in document["fields"]
    ]
    return {**_without_marks(document), "fields": fields}


def _time_of(number: int, unit: pa.DataType) -> dt.date:
    """Return the day or the instant of a number, as fastavro does."""
    if unit == pa.date32():
        return _EPOCH.date() + dt.timedelta(days=number)
    per_unit = 1_000 if unit.unit == "ms" else 1
    return _EPOCH + dt.timedelta(microseconds=number * per_unit)


@functools.cache
def _numbers_of_python(unit: pa.DataType) -> tuple[int, int]:
    """Return the first and the last number whose day or instant Python has."""
    ends = [pa.scalar(dt.datetime.min, pa.timestamp("us")), pa.scalar(_LAST, pa.timestamp("us"))]
    kind = unit if unit == pa.date32() else pa.timestamp(unit.unit)
    width = pa.int32() if unit == pa.date32() else pa.int64()
    first, last = (end.cast(kind, safe=False).cast(width).as_py() for end in ends)
    return first, last


def _as_text(value: Any) -> Any:
    """Return a value with its UUIDs as text, the type in datasets."""
    match value:
        case uuid.UUID():
            return str(value)
        case dict():
            return {name: _as_text(item) for name, item in value.items()}
        case list():
            return [_as_text(item) for item in value]
    return value


class _EntityChunk(Chunk):
    """Rows as entities.

    The file gives some fields, `typed`, the types of the dataset, so that few of their values need
    a look.
    """

    def __init__(
        self,
        entities: Sequence[Mapping[str, Any]],
        first: int,
        descriptor: DatasetDescriptor,
        unknown: Unknown,
        typed: frozenset[str] = frozenset(),
        units: Mapping[str, pa.DataType] = MappingProxyType({}),
    ) -> None:
        self._typed = typed
        self._units = units
        self._unknown = unknown
        self._entities = entities
        self._first = first
        self._descriptor = descriptor

    def __len__(self) -> int:
        return len(self._entities)

    def batch(self) -> pa.RecordBatch:
        with contextlib.suppress(InvalidInputError, *VALUE_ERRORS):
            if self._typed and self._descriptor.format != "submissions":
                return self._batch_by_columns()
        entities = [_as_text(self._with_times(entity)) for entity in self._entities]
        if self._unknown == "reject":
            return entities_to_batch(entities, self._descriptor)
        fields = self._descriptor.schema.fields
        parts = [known_part(entity, fields, self._unknown) for entity in entities]
        self.ignored = sum((left_out for _, left_out in parts), Ignored())
        return entities_to_batch([entity for entity, _ in parts], self._descriptor)

    def _batch_by_columns(self) -> pa.RecordBatch:
        """Return the rows, without a look at values of typed fields."""
        check_shapes([tuple(self._entities[0])], self._descriptor)
        fields = self._descriptor.schema.fields
        columns = []
        for field in fields:
            if field.name in self._typed:
                assert isinstance(field.type, Primitive)
                values = list(map(operator.itemgetter(field.name), self._entities))
                unit, arrow_type = self._units.get(field.name), type_to_arrow(field.type)
                if unit is not None:
                    width = pa.int32() if unit == pa.date32() else pa.int64()
                    column = pa.array(values, width).cast(unit).cast(arrow_type)
                elif set(map(type, values)) - {_TYPES_OF_VALUES[field.type.kind], NoneType}:
                    raise TypeError  # such as a UUID; the entities are looked at one by one
                else:
                    column = pa.array(values, arrow_type)
                check_nulls(column, field.type, field.name, nullable=field.nullable)
            else:
                default = default_of(field)
                given = [_as_text(entity.get(field.name, default)) for entity in self._entities]
                column = to_column(given, field)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(map(field_to_arrow, fields)))

    def part(self, start: int, end: int) -> Chunk:
        first, entities = self._first + start, self._entities[start:end]
        descriptor, unknown = self._descriptor, self._unknown
        return _EntityChunk(entities, first, descriptor, unknown, self._typed, self._units)

    def _with_times(self, entity: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an entity with Python's values for times."""
        times = {
            name: _time_of(entity[name], unit)
            for name, unit in self._units.items()
            if entity[name] is not None
        }
        return {**entity, **times}

    def reject(self, cause: InvalidInputError) -> Reject:
        (entity,) = self._entities
        row = {name: _as_text(value) for name, value in self._with_times(entity).items()}
        return Reject(cause.message, self._first, _row_as_json(row), cause.hint, is_mismatch=True)


def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as exc:
        raise MissingDependencyError.for_extra("fastavro", "avro", "Reading Avro files") from exc
    return fastavro
