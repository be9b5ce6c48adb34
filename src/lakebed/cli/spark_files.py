"""Rows of input files through Spark.

Nothing here imports pyspark: the session comes from `lakebed.spark`, and frames from it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from lakebed.arrow.conform import Conformer, check_columns
from lakebed.arrow.reading.csv import check_column_count, check_flat, first_cells
from lakebed.arrow.reading.files import CsvOptions, RawFile, check_header, reading
from lakebed.cli.inputs import Inputs
from lakebed.errors import InvalidInputError, LakebedError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import nearest
from lakebed.model.schema import ListOf, MapOf, Struct, Type
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.types import struct_type, with_long_integers

# Paths are meant as they are. Without the second, Spark reads files in a directory such as
# `a [1]` as often as there are files.
_PLAIN_PATHS = {"__globPaths__": "false", "recursiveFileLookup": "true"}
# Spark compares the checksums of pages only where it is told to.
_WHOLE_PAGES = {"parquet.page.verify-checksum.enabled": "true"}
# FAILFAST: else Spark makes null of what it cannot read.
_STRICT = {"mode": "FAILFAST", "timeZone": "UTC", **_PLAIN_PATHS}
# Spark reads a quoted empty text as null where the text for null is empty, so it gets one that
# no file holds. An empty cell is null in any case.
_NO_NULL_TEXT = "\ue000null"


def read_frame(session: Any, inputs: Inputs, descriptor: DatasetDescriptor | None) -> Any:
    """Return the rows of files as a Spark DataFrame.

    Args:
        session: The SparkSession.
        inputs: Files on this machine.
        descriptor: Of the dataset that they go to, whose types are then read; else they are
            inferred from all rows.

    Raises:
        SchemaMismatchError: A header or schema does not fit; the message names the column.
        PartitionSpecError: A file lacks the source of a partition function.
        InvalidInputError: A file cannot be read.

    Cost:
        A pass over CSV to infer its types, over JSON always; the headers and footers.
    """
    for path in inputs.paths:
        if path.name.startswith((".", "_")):
            raise InvalidInputError(
                f"Spark passes over files like {path.name!r}.", hint="Rename the file."
            )
    uris = [f"file://{path.absolute()}" for path in inputs.paths]
    with spark_errors(inputs):
        return _READERS[inputs.format](session, inputs, uris, descriptor)


def _read_csv(
    session: Any, inputs: Inputs, uris: list[str], descriptor: DatasetDescriptor | None
) -> Any:
    header = _common_header(inputs.files, inputs.csv) if inputs.csv.has_header else None
    reader = session.read.options(
        **_STRICT,
        header=inputs.csv.has_header,
        sep=inputs.csv.delimiter,
        escape='"',  # as in RFC 4180; Spark's own is a backslash
        nullValue=inputs.csv.null_text or _NO_NULL_TEXT,
        positiveInf="Infinity",
        negativeInf="-Infinity",
    )
    if descriptor is None:
        inferred = reader.options(inferSchema=True).csv(uris).schema
        frame = reader.schema(with_long_integers(inferred)).csv(uris)
        # Spark renames columns that differ only in case.
        return frame if header is None else frame.toDF(*header)
    check_flat(descriptor.schema)
    names = header or descriptor.schema.names
    with reading(inputs.paths[0]):
        check_columns(names, descriptor)
    if header is None:
        for file in inputs.files:
            with reading(file.location):
                check_column_count(first_cells(file, inputs.csv), names)
    # Spark goes by position here: the names were compared above, for each file.
    return reader.schema(struct_type(descriptor.schema.select(names))).csv(uris)


def _common_header(files: Sequence[RawFile], options: CsvOptions) -> tuple[str, ...]:
    first = _header(files[0], options)
    for file in files[1:]:
        names = _header(file, options)
        _compare_names(Path(files[0].location), first, Path(file.location), names)
    return first


def _header(file: RawFile, options: CsvOptions) -> tuple[str, ...]:
    with reading(file.location):
        return check_header(first_cells(file, options), options)


def _compare_names(
    first_path: Path, first: tuple[str, ...], path: Path, names: tuple[str, ...]
) -> None:
    if names == first:
        return
    odd = [name for name in (*names, *first) if (name in names) != (name in first)]
    what = f"column {odd[0]!r} is in one only" if odd else "their order differs"
    raise SchemaMismatchError(
        f"{path} has other columns than {first_path}: {what}.",
        hint="Import files of different columns one after the other.",
    )


def _read_json(
    session: Any, inputs: Inputs, uris: list[str], descriptor: DatasetDescriptor | None
) -> Any:
    reader = session.read.options(**_STRICT)
    frame = reader.json(uris)
    if descriptor is None:
        return frame
    # Spark drops what is not in the schema without a word; so the names are compared first.
    found = schema_from_spark(frame.schema.jsonValue())
    with reading(inputs.paths[0].parent if len(inputs.paths) > 1 else inputs.paths[0]):
        check_columns(found.names, descriptor)
        for field in found:
            _check_nested(field.type, descriptor.schema.get(field.name).type, field.name)
    return reader.schema(struct_type(descriptor.schema.select(found.names))).json(uris)


def _check_nested(given: Type, declared: Type, place: str) -> None:
    match given, declared:
        case ListOf(), ListOf():
            _check_nested(given.element, declared.element, f"{place}[]")
        case Struct(), Struct():
            types = {field.name: field.type for field in declared.fields}
            for field in given.fields:
                if field.name not in types:
                    raise SchemaMismatchError(
                        f"Unknown field {place}.{field.name!r} in the data.",
                        hint=nearest(field.name, types) or f"Fields are: {', '.join(types)}.",
                    )
                _check_nested(field.type, types[field.name], f"{place}.{field.name}")
        case Struct(), MapOf():
            for field in given.fields:
                _check_nested(field.type, declared.value, f"{place}{{}}")


def _read_parquet(
    session: Any, inputs: Inputs, uris: list[str], descriptor: DatasetDescriptor | None
) -> Any:
    # Spark takes the schema of one file for all of them.
    first: tuple[str, ...] = ()
    for path in inputs.paths:
        with reading(path):
            schema = pq.read_schema(path)
            if descriptor is not None:
                Conformer(schema, descriptor)
        first = first or tuple(schema.names)
        _compare_names(inputs.paths[0], first, path, tuple(schema.names))
    return session.read.options(**_PLAIN_PATHS, **_WHOLE_PAGES).parquet(*uris)


_READERS: dict[str, Callable[[Any, Inputs, list[str], DatasetDescriptor | None], Any]] = {
    "csv": _read_csv,
    "json": _read_json,
    "parquet": _read_parquet,
}


@contextmanager
def spark_errors(inputs: Inputs) -> Iterator[None]:
    """Say in a line what Spark says in a hundred.

    Raises:
        InvalidInputError: A file cannot be read, or a row does not fit.
        LakebedError: Something else failed in Spark.
    """
    try:
        yield
    except LakebedError:
        raise
    except Exception as exc:
        if not type(exc).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise _translate(str(exc), inputs) from exc


# Spark's exceptions say `[CONDITION] text SQLSTATE: …`, each of a chain, the first cause last.
_CONDITION = re.compile(r"\[([A-Z][A-Z_.]+)\] (.+?)\s*(?:SQLSTATE|Parse Mode)", re.DOTALL)
_OF_INPUT = ("MALFORMED_", "CANNOT_PARSE_", "FAILED_READ_FILE", "PARQUET_", "CANNOT_MERGE_")
_CAUSE = re.compile(r"^Caused by: [\w.$]+: ([^\[\n].*)", re.MULTILINE)
_FILE = re.compile(r"reading file (?:file:)?/*(/\S.*?)\.\s")


def _translate(text: str, inputs: Inputs) -> LakebedError:
    found = [(name, " ".join(said.split())) for name, said in _CONDITION.findall(text)]
    of_input = [said for name, said in found if name.startswith(_OF_INPUT)]
    if not of_input:
        said = found[-1][1] if found else text.strip().partition("\n")[0]
        return LakebedError(f"Spark failed: {said}", hint="Run it again with -v to see its log.")
    causes = _CAUSE.findall(text)
    why = f" {causes[-1].strip()}" if causes else ""
    file = _FILE.search(text)
    where = file[1] if file else ", ".join(str(path) for path in inputs.paths[:2])
    return InvalidInputError(
        f"{where}: {of_input[-1]}{why}", hint="Correct the file; none of its rows is visible."
    )
