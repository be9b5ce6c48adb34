"""Avro files, which any Avro reader reads: standard logical types, the writer's schema inside.

Avro has no unsigned 64-bit type; a decimal of 20 digits holds the values. Times are passed on as
numbers, so that years outside Python's calendar survive.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import pyarrow as pa

from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.arrow.formats.file_format import Content, FileWriter, RunningFacts, WrittenFile
from lakebed.errors import (
    CorruptMetadataError,
    LakebedError,
    MissingDependencyError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.avro import has_entries, schema_from_avro, schema_to_avro
from lakebed.model.schema import (
    MISSING,
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    without_limits,
)
from lakebed.model.values import to_micros

# Lakebed's names of the codecs, and Avro's own.
_CODECS = {
    "deflate": "deflate",
    "snappy": "snappy",
    "zstd": "zstandard",
    "bzip2": "bzip2",
    "xz": "xz",
    "uncompressed": "null",
}
_BLOCK_BYTES = 2**18  # uncompressed; small blocks compress badly, large ones cost readers memory
_ROWS_PER_BATCH = 16_384
_UNSIGNED = Decimal(20, 0)
_EPOCH_DAY = dt.date(1970, 1, 1)
_PROBE = {"type": "record", "name": "probe", "fields": [{"name": "n", "type": "int"}]}


class AvroWriter(FileWriter):
    """Writes rows as blocks of one Avro file. Avro has no footer, so facts are counted here."""

    def __init__(self, schema: Schema, compression: str, content: Content | None = None) -> None:
        """Begin a file.

        Args:
            schema: Schema of the rows.
            compression: One of the descriptor's names for Avro.
            content: Takes the bytes; None for memory.

        Raises:
            MissingDependencyError: fastavro, or its package for the codec, is not installed.
        """
        super().__init__(content)
        self._row_count = 0
        self._facts = {
            field.name: RunningFacts()
            for field in schema
            if isinstance(field.type, Primitive | Decimal)
        }
        plain = _plain_schema(schema)
        self._plain = pa.schema([one.with_type(_with_entries(one.type)) for one in plain])
        self._writer = _open_writer(self._sink, schema, compression)

    def write(self, rows: pa.Table) -> None:
        """Write rows as whole blocks."""
        for name, facts in self._facts.items():
            facts.add(rows.column(name))
        try:
            for batch in rows.cast(self._plain).to_batches(max_chunksize=_ROWS_PER_BATCH):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    self._writer.write(row)
        except KeyError as exc:
            raise SchemaMismatchError(
                f"A map has two values under one key, which Avro cannot hold: {exc}",
                hint="Drop one of them, or use Parquet.",
            ) from exc
        self._writer.flush()
        self._row_count += rows.num_rows

    def close(self) -> WrittenFile:
        """End the file."""
        return WrittenFile(
            content=self._sink,
            row_count=self._row_count,
            columns={name: facts.get() for name, facts in self._facts.items()},
        )


def file_schema(schema: Schema) -> dict[str, Any]:
    """Return the Avro schema that files of a schema hold."""
    return schema_to_avro(_portable(schema))


def _open_writer(sink: Content, schema: Schema, compression: str) -> Any:
    fastavro, codec = _fastavro(), _CODECS[compression]
    document = fastavro.parse_schema(file_schema(schema))
    try:
        # A missing package of the codec is reported only at the first block.
        fastavro.writer(io.BytesIO(), _PROBE, [{"n": 0}], codec=codec)
    except ValueError as exc:
        raise MissingDependencyError.for_extra(
            f"for codec {codec!r}", "avro", f"Compression {compression!r} of Avro"
        ) from exc
    return fastavro.write.Writer(sink, document, codec=codec, sync_interval=_BLOCK_BYTES)


class AvroReader:
    """Reads files with the reader's schema, by Avro's rules of resolution."""

    def batches(self, source: pa.NativeFile, wanted: Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `FileReader`.

        Raises:
            CorruptMetadataError: The file is damaged, or does not fit `wanted`.
            MissingDependencyError: fastavro, or its package for the codec, is not installed.
        """
        plain, target = _plain_schema(wanted), schema_to_arrow(wanted)
        with _translating():
            rows = _rows(source, wanted)
            while chunk := list(itertools.islice(rows, _ROWS_PER_BATCH)):
                yield pa.RecordBatch.from_pylist(chunk, schema=plain).cast(target)

    def header(self, source: pa.NativeFile) -> tuple[Schema, str]:
        """Return the schema that a file was written with, and Lakebed's name of its codec.

        Raises:
            CorruptMetadataError: The file is damaged, or not of Avro.
            SchemaMismatchError: It holds an unsupported type.
            MissingDependencyError: fastavro is not installed.
        """
        with _translating():
            entries = _fastavro().block_reader(source).metadata
            written = schema_from_avro(json.loads(entries["avro.schema"]))
            codec = entries.get("avro.codec", "null")
        return written, next((name for name, own in _CODECS.items() if own == codec), codec)

    def count(self, source: pa.NativeFile) -> int:
        """Count the rows from the heads of the blocks.

        Raises:
            CorruptMetadataError: The file is damaged.
            MissingDependencyError: fastavro, or its package for the codec, is not installed.
        """
        with _translating():
            return sum(
                block.num_records for block in _fastavro().block_reader(UncompressedAvro(source))
            )


def _rows(source: pa.NativeFile, wanted: Schema) -> Iterator[dict[str, Any]]:
    fastavro = _fastavro()
    as_written: Any = None
    as_read: Any = None
    for block in fastavro.block_reader(UncompressedAvro(source)):
        if as_written is None:
            as_written = fastavro.parse_schema(_without_times(block.writer_schema))
            as_read = _reader_schema(wanted, as_written)
        block.writer_schema, block.reader_schema = as_written, as_read
        yield from block


def _reader_schema(wanted: Schema, as_written: Any) -> Any:
    # The enums and fixed are those of the file.
    portable = _portable(replace(wanted, fields=without_limits(wanted)))
    document = _without_times(schema_to_avro(portable))
    _set_defaults(document, portable.fields)
    document = _Named().like(document, as_written)
    return _fastavro().parse_schema(document, _ignore_default_error=True)


class _Named:
    """Gives the named types of a reader's schema the names that they have in a file.

    Resolution matches types by name. Our names derive from the paths of the fields. Those of other
    tools do not, and these tools use enums and fixed where we use texts and bytes.
    """

    def __init__(self) -> None:
        self._written: dict[str, Any] = {}
        self._defined: set[str] = set()

    def like(self, document: Any, written: Any) -> Any:
        """Return the reader's schema of a type, with the names of the file's schema."""
        if isinstance(written, str):
            written = self._written.get(written, written)
        if isinstance(document, list) or isinstance(written, list):
            return self._like_union(document, written)
        if not isinstance(written, Mapping):
            return document
        kind, name = written.get("type"), written.get("name")
        if isinstance(name, str):
            self._written[name] = written
        match kind:
            case "record" if isinstance(document, Mapping):
                return self._once(name, lambda: self._like_record(document, written))
            case "enum" if document == "string":
                return self._once(name, lambda: dict(written))
            case "fixed" if document == "bytes" or isinstance(document, Mapping):
                return self._once(name, lambda: dict(written))
            case "array" if isinstance(document, Mapping) and "items" in document:
                return {**document, "items": self.like(document["items"], written["items"])}
            case "map" if isinstance(document, Mapping) and "values" in document:
                return {**document, "values": self.like(document["values"], written["values"])}
        return document

    def _like_union(self, document: Any, written: Any) -> Any:
        branches = document if isinstance(document, list) else [document]
        others = written if isinstance(written, list) else [written]
        other = next((one for one in others if one != "null"), "null")
        named = [one if one == "null" else self.like(one, other) for one in branches]
        return named if isinstance(document, list) else named[0]

    def _like_record(self, document: Mapping[str, Any], written: Mapping[str, Any]) -> Any:
        of_file = {field["name"]: field["type"] for field in written["fields"]}
        fields = [
            {**field, "type": self.like(field["type"], of_file[field["name"]])}
            if field["name"] in of_file
            else field
            for field in document["fields"]
        ]
        return {**document, "name": written["name"], "fields": fields}

    def _once(self, name: Any, build: Callable[[], Any]) -> Any:
        """Return a definition for the first use of a name, and only the name from then on."""
        if name in self._defined:
            return name
        self._defined.add(name)
        return build()


def _without_times(document: Any) -> Any:
    """Return a schema without the logical types of times, so that values are read as numbers."""
    if isinstance(document, list):
        return [_without_times(branch) for branch in document]
    if not isinstance(document, Mapping):
        return document
    logical = document.get("logicalType", "")
    if logical.endswith("-millis"):
        raise SchemaMismatchError(
            "Times in milliseconds.", hint="Lakebed's files hold microseconds."
        )
    left_out = {"logicalType"} if logical != "decimal" else set()
    if "__fastavro_parsed__" in document:
        left_out |= {"__fastavro_parsed__", "__named_schemas"}
    return {
        key: [{**field, "type": _without_times(field["type"])} for field in value]
        if key == "fields"
        else _without_times(value)
        if key in ("type", "items", "values")
        else value
        for key, value in document.items()
        if key not in left_out
    }


def _set_defaults(document: Any, fields: tuple[Field, ...]) -> None:
    """Set the defaults of a reader's schema for fields that a file lacks, as Python values.

    A nullable field defaults to null, whether or not the schema declares it. fastavro takes a
    default unchanged, without converting it to its type.
    """
    for inner, field in zip(document["fields"], fields, strict=True):
        if field.default is not MISSING or field.nullable:
            inner["default"] = None if field.default is MISSING else _as_number(field.default)
        _set_inner_defaults(inner["type"], field.type)


def _set_inner_defaults(document: Any, kind: Type) -> None:
    if isinstance(document, list):
        document = next(branch for branch in document if branch != "null")
    match kind:
        case Struct(fields):
            _set_defaults(document, fields)
        case ListOf(element):
            _set_inner_defaults(document["items"], element)
        case MapOf(value):
            is_own = not has_entries(kind)
            entry = document["values"] if is_own else document["items"]["fields"][1]["type"]
            _set_inner_defaults(entry, value)


def _as_number(default: object) -> object:
    match default:
        case dt.datetime():
            return to_micros(default)
        case dt.date():
            return (default - _EPOCH_DAY).days
    return default


def _portable(schema: Schema) -> Schema:
    """Return the schema in types that Avro has, which lacks unsigned numbers."""
    return replace(schema, fields=tuple(_portable_field(field) for field in schema))


def _portable_field(field: Field) -> Field:
    default = field.default
    if field.type == Primitive(Kind.UNSIGNED_LONG) and isinstance(default, int):
        default = decimal.Decimal(default)
    return replace(field, type=_portable_type(field.type), default=default)


def _portable_type(kind: Type) -> Type:
    match kind:
        case Primitive(Kind.UNSIGNED_LONG):
            return _UNSIGNED
        case ListOf(element, nullable):
            return ListOf(_portable_type(element), nullable)
        case MapOf(value, nullable, key):
            is_unsigned = key == Primitive(Kind.UNSIGNED_LONG)
            return MapOf(_portable_type(value), nullable, _UNSIGNED if is_unsigned else key)
        case Struct(fields):
            return Struct(tuple(_portable_field(field) for field in fields))
    return kind


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type with numbers in the place of times."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    return kind


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(_plain_type(field.type))


def _with_entries(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type with lists of entries in the place of maps that Avro does not have."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_entries(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_entries(field.type)) for field in kind])
    if not pa.types.is_map(kind):
        return kind
    item = kind.item_field.with_type(_with_entries(kind.item_type))
    if pa.types.is_string(kind.key_type):
        return pa.map_(kind.key_field, item)
    entry = pa.struct([kind.key_field.with_name("key"), item.with_name("value")])
    return pa.list_(pa.field("element", entry, nullable=False))


def _plain_schema(schema: Schema) -> pa.Schema:
    return pa.schema([_plain_field(field) for field in schema_to_arrow(_portable(schema))])


@cache
def _fastavro() -> ModuleType:
    try:
        import fastavro
    except ImportError as exc:
        raise MissingDependencyError.for_extra("fastavro", "avro", "Format 'avro'") from exc
    return fastavro


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (LakebedError, OSError, pa.ArrowException):
        # Errors of the store, and of Arrow, are translated elsewhere.
        raise
    except Exception as exc:
        # fastavro trusts the bytes of a file, so that damaged ones can raise any exception.
        if isinstance(exc, ValueError) and "install" in str(exc):
            raise MissingDependencyError.for_extra(str(exc), "avro", "Format 'avro'") from exc
        raise CorruptMetadataError(
            f"An Avro file is damaged, or does not fit the schema: {exc!r}",
            hint="It was changed from outside, or written for another schema.",
        ) from exc
