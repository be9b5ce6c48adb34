"""Ingests declared in TOML files."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from lakebed.arrow.reading.files import CsvOptions, without_parents
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.given import read_given
from lakebed.errors import FormatError, InvalidInputError, NotFoundError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.names import nearest
from lakebed.model.partition import PartitionStrategy
from lakebed.pipeline.candidates import FromArchive, FromFiles, Supersede

MAX_DOCUMENT_BYTES = 2**20

_PROBLEM = re.compile(r"Object contains unknown field `(?P<key>.*)`")


class _Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    pass


class _Archive(_Table):
    storage: str
    what: str
    index: str | None = None
    # Days, times, numbers and text; the archive decides which are valid times.
    start: Any = None
    end: Any = None
    where: str | None = None
    work_id: str | None = None
    supersede: Supersede | None = None
    storage_options: dict[str, str] = {}


class _Files(_Table):
    paths: str | list[str]
    storage_options: dict[str, str] = {}


class _Create(_Table):
    # The path of an .avsc file, or the schema itself in Avro's form.
    schema: str | dict[str, Any]
    partition_by: str | list[str] = ""
    dimensions: str | None = None
    format: str = "parquet"
    compression: str | None = None
    index: str | list[str] = []
    properties: dict[str, str] = {}


class _Csv(_Table):
    has_header: bool = True
    delimiter: str = ","
    null_text: str = ""


class _Document(_Table):
    name: str
    into: str
    format: str | None = None
    archive: _Archive | None = None
    files: _Files | None = None
    create: _Create | None = None
    csv: _Csv | None = None
    quarantine: str | None = None
    max_rejects: float | None = None
    allow_truncated: bool = False
    unknown: Unknown = "reject"
    provided: dict[str, str | int | float | bool] = {}
    storage_options: dict[str, str] = {}


_TABLES: dict[str, type[_Table]] = {
    "": _Document,
    "archive": _Archive,
    "files": _Files,
    "create": _Create,
    "csv": _Csv,
}


def read_document(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of an `Ingest` that a TOML file declares.

    Raises:
        NotFoundError: There is no such file.
        FormatError: It is not valid TOML.
        InvalidInputError: A key is unknown or missing, or a value is wrong.
    """
    text, where, folder = _read(source)
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise FormatError(f"{where} is not valid TOML: {exc}.", hint="Correct it there.") from exc
    try:
        document = msgspec.convert(parsed, _Document)
    except msgspec.ValidationError as exc:
        raise _wrong(where, str(exc)) from exc
    if (document.archive is None) == (document.files is None):
        raise InvalidInputError(
            f"{where} has {'neither' if document.files is None else 'both'} [archive] "
            f"{'nor' if document.files is None else 'and'} [files].",
            hint="Declare the source of the raw files with exactly one of them.",
        )
    return {
        "name": document.name,
        "into": _resolved(document.into, folder),
        "source": _source(document, folder),
        "format": document.format,
        "create": None if document.create is None else _descriptor(document.create, folder),
        "quarantine": document.quarantine,
        "max_rejects": document.max_rejects,
        "allow_truncated": document.allow_truncated,
        "unknown": document.unknown,
        "csv": _csv(document.csv or _Csv()),
        "provided": document.provided,
        "storage_options": document.storage_options,
    }


def _read(source: str | os.PathLike[str]) -> tuple[str, str, Path]:
    text = os.fspath(source)
    if "\n" in text:
        return text, "The text", Path()
    path = Path(text)
    held = read_given(path, MAX_DOCUMENT_BYTES)
    if held is None:
        raise NotFoundError(f"No file {text[:500]!r}.", hint="Give the path of a TOML file.")
    return held, text, path.parent


def _wrong(document: str, problem: str) -> InvalidInputError:
    what, _, path = problem.partition(" - at `$")
    table = path.strip("`.")
    where = f"{document}, [{table}]" if table else document
    match = _PROBLEM.match(what)
    if match is None:
        return InvalidInputError(f"{where}: {what}.", hint="Correct the value.")
    known = _TABLES[table].__struct_fields__ if table in _TABLES else ()
    return InvalidInputError(
        f"{where}: unknown key {match['key']!r}.",
        hint=nearest(match["key"], known) or f"Known keys: {', '.join(known)}.",
    )


def _resolved(path: str, folder: Path) -> str:
    """Return a path in the file relative to the working directory; URLs stay."""
    return path if "://" in path else without_parents(str(folder / path))


def _source(document: _Document, folder: Path) -> FromArchive | FromFiles:
    if document.files is not None:
        paths = (
            [document.files.paths]
            if isinstance(document.files.paths, str)
            else document.files.paths
        )
        return FromFiles(
            paths=[_resolved(path, folder) for path in paths],
            storage_options=document.files.storage_options,
        )
    assert document.archive is not None  # exactly one of the two is given
    given = msgspec.structs.asdict(document.archive)
    return FromArchive(**{**given, "storage": _resolved(document.archive.storage, folder)})


def _descriptor(table: _Create, folder: Path) -> DatasetDescriptor:
    schema = table.schema
    if isinstance(schema, str) and not schema.lstrip().startswith("{"):
        schema = _resolved(schema, folder)
    text = (
        table.partition_by if isinstance(table.partition_by, str) else ", ".join(table.partition_by)
    )
    functions = PartitionStrategy.parse(text).functions if text.strip() else ()
    if table.dimensions is not None:
        dimensions = DimensionSchema.from_json(_resolved(table.dimensions, folder))
        functions = (*functions, *dimensions.partition_by())
    return DatasetDescriptor(
        schema=schema,
        partition_by=PartitionStrategy(functions),
        format=table.format,
        compression=table.compression,
        index=table.index,
        properties=table.properties,
    )


def _csv(table: _Csv) -> CsvOptions:
    return CsvOptions(
        has_header=table.has_header, delimiter=table.delimiter, null_text=table.null_text
    )
