"""Rows of input files through Arrow, in this process."""

from __future__ import annotations

import base64
import binascii
import decimal
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from lakebed.arrow.conform import Conformer, check_columns
from lakebed.arrow.entities import ENTITIES_PER_BATCH, entities_to_batch
from lakebed.cli.inputs import (
    STDIN,
    CsvOptions,
    Inputs,
    check_flat,
    open_binary,
    read_header,
    reading,
)
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import field_to_arrow, schema_to_arrow, type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
)
from lakebed.model.values import FLOATS, TIMESTAMPS, parse_value

_FLOAT_NAMES = frozenset({"NaN", "Infinity", "-Infinity"})
_TEXTUAL = TIMESTAMPS | {Kind.DATE}


def read_rows(inputs: Inputs, descriptor: DatasetDescriptor) -> pa.RecordBatchReader:
    """Return the rows of files as a stream in the dataset's schema.

    The headers and schemas of all files are checked first, values as they are read.

    Raises:
        SchemaMismatchError: A file does not fit; the message names the file and the column.
        PartitionSpecError: A file lacks the source of a partition function.
        InvalidInputError: A file cannot be read.

    Cost:
        Memory for some thousand rows.
    """
    check, read = _WAYS[inputs.format]
    for path in inputs.paths:
        if path != STDIN:
            with reading(path):
                check(path, descriptor, inputs.csv)
    batches = itertools.chain.from_iterable(
        _located(path, read(path, descriptor, inputs.csv)) for path in inputs.paths
    )
    return pa.RecordBatchReader.from_batches(schema_to_arrow(descriptor.schema), batches)


def _located(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while True:
        with reading(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _check_csv(path: Path, descriptor: DatasetDescriptor, options: CsvOptions) -> None:
    check_flat(descriptor.schema)
    if options.has_header:
        check_columns(read_header(path, options), descriptor)


def _read_csv(
    path: Path, descriptor: DatasetDescriptor, options: CsvOptions
) -> Iterator[pa.RecordBatch]:
    schema = descriptor.schema
    names = read_header(path, options) if options.has_header else schema.names
    given = schema.select(names)
    with pacsv.open_csv(
        path,
        read_options=pacsv.ReadOptions(
            column_names=None if options.has_header else list(schema.names)
        ),
        parse_options=pacsv.ParseOptions(
            delimiter=options.delimiter,
            newlines_in_values=True,
            # In a file of one column an empty line is a null.
            ignore_empty_lines=len(names) > 1,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types={field.name: _csv_type(field.type) for field in given},
            null_values=["", options.null_text],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ) as batches:
        typed = pa.schema([field_to_arrow(field) for field in given])
        conformer = Conformer(typed, descriptor)
        for batch in batches:
            columns = [_from_csv(batch.column(name), given.get(name).type) for name in names]
            yield conformer.conform(pa.RecordBatch.from_arrays(columns, names=list(names)))


def _csv_type(kind: Type) -> pa.DataType:
    if kind == Primitive(Kind.TIMESTAMP):
        return pa.string()  # Arrow takes no text without a zone for it
    return type_to_arrow(kind)


def _from_csv(column: pa.Array, kind: Type) -> pa.Array:
    if kind != Primitive(Kind.TIMESTAMP):
        return column
    text = pc.utf8_trim_whitespace(column)
    has_time = pc.match_substring(text, ":")
    text = pc.if_else(has_time, text, pc.binary_join_element_wise(text, "T00:00", ""))
    has_zone = pc.match_substring_regex(text, r"(Z|[+-]\d\d(:?\d\d)?)$")
    text = pc.if_else(has_zone, text, pc.binary_join_element_wise(text, "Z", ""))
    return text.cast(pa.timestamp("us", tz="UTC"))


def _check_parquet(path: Path, descriptor: DatasetDescriptor, options: CsvOptions) -> None:  # noqa: ARG001 - one form for all formats
    Conformer(pq.read_schema(path), descriptor)


def _read_parquet(
    path: Path,
    descriptor: DatasetDescriptor,
    options: CsvOptions,  # noqa: ARG001 - one form for all formats
) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(path) as file:
        conformer = Conformer(file.schema_arrow, descriptor)
        for batch in file.iter_batches():
            yield conformer.conform(batch)


def _check_json(path: Path, descriptor: DatasetDescriptor, options: CsvOptions) -> None:  # noqa: ARG001 - one form for all formats
    """Look whether the file can be read; what it holds shows line by line."""
    with open_binary(path) as file:
        file.peek(1)


def _read_json(
    path: Path,
    descriptor: DatasetDescriptor,
    options: CsvOptions,  # noqa: ARG001 - one form for all formats
) -> Iterator[pa.RecordBatch]:
    if path == STDIN:
        yield from _from_lines(sys.stdin.buffer, descriptor)
        return
    with open_binary(path) as file:
        yield from _from_lines(file, descriptor)


def _from_lines(lines: Iterable[bytes], descriptor: DatasetDescriptor) -> Iterator[pa.RecordBatch]:
    # Decimals keep their digits; a double is made of them where the field is one.
    decoder = msgspec.json.Decoder(float_hook=decimal.Decimal)
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    while chunk := list(itertools.islice(numbered, ENTITIES_PER_BATCH)):
        entities = []
        for number, line in chunk:
            with _at_line(number):
                entities.append(_to_entity(line, decoder, descriptor.schema))
        try:
            batch = entities_to_batch(entities, descriptor)
        except InvalidInputError:
            for (number, _), entity in zip(chunk, entities, strict=True):
                with _at_line(number):
                    entities_to_batch([entity], descriptor)
            raise
        yield batch


@contextmanager
def _at_line(number: int) -> Iterator[None]:
    """Name the line in what goes wrong with it."""
    try:
        yield
    except InvalidInputError as exc:
        exc.message = f"Line {number}: {exc.message}"
        raise


def _to_entity(
    line: bytes, decoder: msgspec.json.Decoder[Any], schema: Schema
) -> Mapping[str, Any]:
    try:
        document = decoder.decode(line)
    except msgspec.DecodeError as exc:
        raise SchemaMismatchError(
            f"This is no JSON: {exc}.", hint="JSON lines hold one object a line."
        ) from exc
    if not isinstance(document, dict):
        raise SchemaMismatchError(
            "This is no JSON object.", hint="JSON lines hold one object a line."
        )
    return _from_object(document, schema.fields, "")


def _from_object(
    document: Mapping[str, Any], fields: Sequence[Field], place: str
) -> dict[str, Any]:
    """Convert the known fields; the library refuses the others, and names the nearest."""
    types = {field.name: field.type for field in fields}
    return {
        name: _from_json(value, types[name], f"{place}{name}") if name in types else value
        for name, value in document.items()
    }


def _from_json(value: Any, kind: Type, place: str) -> Any:
    """Convert what JSON has no type for; the library checks what comes out."""
    match kind, value:
        case ListOf(), list():
            return [_from_json(one, kind.element, f"{place}[]") for one in value]
        case MapOf(), dict():
            return {key: _from_json(one, kind.value, f"{place}{{}}") for key, one in value.items()}
        case Struct(), dict():
            return _from_object(value, kind.fields, f"{place}.")
        case ((Primitive() | Decimal()), str()):
            return _from_text(value, kind, place)
        case Primitive(), decimal.Decimal():
            return float(value)
    return value


def _from_text(text: str, kind: Primitive | Decimal, place: str) -> Any:
    if isinstance(kind, Decimal) or kind.kind in _TEXTUAL:
        return parse_value(text, kind, place)
    if kind.kind in FLOATS and text in _FLOAT_NAMES:
        return float(text)
    if kind.kind is Kind.BYTES:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as exc:
            raise SchemaMismatchError(
                f"Text {text[:40]!r} is no base64 (column {place!r}).",
                hint="Bytes stand in JSON as base64.",
            ) from exc
    return text


_Check = Callable[[Path, DatasetDescriptor, CsvOptions], None]
_Read = Callable[[Path, DatasetDescriptor, CsvOptions], Iterator[pa.RecordBatch]]

_WAYS: Mapping[str, tuple[_Check, _Read]] = {
    "csv": (_check_csv, _read_csv),
    "json": (_check_json, _read_json),
    "parquet": (_check_parquet, _read_parquet),
}
