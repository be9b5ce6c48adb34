"""Pipelines declared in TOML files.

The tables are structs: the reader, the JSON schema for editors and the page docs/pipeline.md are
made of them. A file is checked as a whole, and all mistakes are reported together, each with its
line.
"""

from __future__ import annotations

import json
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import FILE_FORMATS, without_parents
from lakebed.common.ages import parse_age
from lakebed.common.decoding import from_values
from lakebed.common.given import given_names, read_given
from lakebed.common.sizes import parse_size
from lakebed.errors import FormatError, InvalidInputError, LakebedError, NotFoundError
from lakebed.model.declared import Check, checks_from_table
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.names import nearest
from lakebed.model.partition import PartitionStrategy
from lakebed.model.retention import RetentionRule
from lakebed.pipeline.candidates import FromArchive, FromFiles, check_bound
from lakebed.pipeline.check_rules import creating_with
from lakebed.pipeline.check_tables import SCHEMA_OF_CHECKS
from lakebed.pipeline.checked_rules import problems_of
from lakebed.pipeline.ingest import Ingest
from lakebed.pipeline.table_ingest import FromTable, TableIngest, problems_of_table
from lakebed.pipeline.table_windows import UNITS
from lakebed.pipeline.toml_lines import KeyPath, find_line, lines_of
from lakebed.upkeep.rules import (
    DUE_FILES,
    CleanupRule,
    LayoutRule,
    PublishRule,
)

MAX_DOCUMENT_BYTES = 2**20
SCHEMA_FILE = Path(__file__).with_name("pipeline.schema.json")

_AGE = r"^\s*[0-9]{1,6}\s*[smhdw]\s*$"
_SIZE = r"^\s*([0-9]{1,18}|[0-9]{1,18}(\.[0-9]{1,9})?\s*[kmgtpKMGTP])(i?[bB])?\s*$"


def _about(text: str, **more: object) -> msgspec.Meta:
    return msgspec.Meta(description=text, extra_json_schema=dict(more))


class _Table(msgspec.Struct, forbid_unknown_fields=True):
    pass


_Moment = Annotated[
    Any,
    _about(
        "A day, a time, `now`, or `-7d` for the time so long before each run. With start alone, "
        "end is now.",
        type=["string", "integer"],
    ),
]
_StorageOptions = Annotated[
    dict[str, str],
    _about("Settings of the object store, such as region; better in the environment."),
]


class _Csv(_Table):
    has_header: Annotated[bool, _about("Whether the first line has the names of the columns.")] = (
        True
    )
    delimiter: Annotated[str, _about("Delimiter between cells.")] = ","
    null_text: Annotated[str, _about("Text for null, in every column.")] = ""
    nulls: Annotated[
        list[str], _about("Words for null in columns of numbers, dates, times and booleans.")
    ] = []
    encoding: Annotated[str, _about("Encoding of the text, such as cp1252.")] = "utf-8"
    quote: Annotated[str, _about("Character around cells; empty for none.")] = '"'
    escape: Annotated[
        str, _about("Character before a quote in a cell, besides a second quote; empty for none.")
    ] = ""
    skip: Annotated[int, _about("Lines before the header that are left out.")] = 0
    comment: Annotated[str, _about("Beginning of lines that are left out; empty for none.")] = ""
    trim: Annotated[bool, _about("Whether to leave out blanks around cells.")] = False
    skip_empty: Annotated[bool, _about("Whether to leave out lines whose cells are all empty.")] = (
        False
    )
    ragged: Annotated[
        str,
        _about(
            "Treatment of lines with another number of cells: reject, or fill missing ones with null.",
            enum=["reject", "fill"],
        ),
    ] = "reject"
    decimal: Annotated[str, _about("Decimal separator.", enum=[".", ","])] = "."
    thousands: Annotated[str, _about("Separator between groups of three digits.")] = ""
    line_end: Annotated[
        str, _about("End of lines; a newline includes CRLF.", enum=["\n", "\r"])
    ] = "\n"
    dates: Annotated[
        dict[str, str], _about("Formats of dates and times by field, such as %d.%m.%Y.")
    ] = {}
    time_zone: Annotated[str, _about("Zone of times that have none; empty for UTC.")] = ""
    exact: Annotated[bool, _about("Whether to reject numbers that their types would change.")] = (
        False
    )
    names: Annotated[dict[str, str], _about("Names of fields by the names in the header.")] = {}


class _Json(_Table):
    records: Annotated[
        str,
        _about(
            "Position of the objects: one on each line, elements of an array, or concatenated.",
            enum=["lines", "array", "concatenated"],
        ),
    ] = "lines"
    inside: Annotated[str, _about("Member of an object that holds the array.")] = ""
    encoding: Annotated[str, _about("Encoding of the text.")] = "utf-8"
    names: Annotated[dict[str, str], _about("Names of fields by the names in the objects.")] = {}
    texts: Annotated[
        list[str], _about("Paths of fields that take a value of any type as its JSON text.")
    ] = []


class _Source(_Table):
    """The source: `paths` of folders or stores, `storage` and `what` of an archive, or a `table`."""

    paths: Annotated[
        str | list[str] | None, _about("Paths, patterns, directories or URLs of raw files.")
    ] = None
    storage: Annotated[str | None, _about("Path or URL of an archive.")] = None
    what: Annotated[str | None, _about("The program or process to search for in the archive.")] = (
        None
    )
    where: Annotated[
        str | None,
        _about(
            "Of an archive, the place or machine; of a table, a condition in Spark's SQL. All if it "
            "is left out."
        ),
    ] = None
    work_id: Annotated[str | None, _about("The work id to search for, in place of a time.")] = None
    index: Annotated[str | None, _about("URL of the index of the archive.")] = None
    table: Annotated[
        str | None, _about("A table or view of Spark, such as shop.sales, in place of raw files.")
    ] = None
    query: Annotated[str | None, _about("A query in Spark's SQL, in place of a table.")] = None
    time: Annotated[
        str | None, _about("Column of the time of a row of the table, for start and end.")
    ] = None
    every: Annotated[
        str | None,
        _about(
            "Length of the parts of the window of a table, each of which is replaced as a whole; by "
            "default day.",
            enum=list(UNITS),
        ),
    ] = None
    format: Annotated[
        str | None,
        _about("Format of the raw files; by suffix if it is left out.", enum=list(FILE_FORMATS)),
    ] = None
    may_be_empty: Annotated[
        bool,
        _about(
            "Allow that there is no file of `paths` yet, or that a table has no rows any more where "
            "it had some."
        ),
    ] = False
    csv: Annotated[_Csv | None, _about("Notation of CSV.")] = None
    json: Annotated[_Json | None, _about("Notation of JSON.")] = None
    levels: Annotated[
        bool | None,
        _about("Whether folders `name=value` of `paths` hold values of the rows; by default true."),
    ] = None
    storage_options: _StorageOptions = {}


class _Dataset(_Table):
    """The dataset. With `schema` it is created if it is missing."""

    into: Annotated[str, _about("The dataset, as LOCATION/NAME.")]
    schema: Annotated[
        str | dict[str, Any] | None,
        _about("Path of an .avsc file, or the schema itself in Avro's form."),
    ] = None
    partition_by: Annotated[
        str | list[str] | None, _about("Partition functions, such as `date(ts) as dt`.")
    ] = None
    dimensions: Annotated[str | None, _about("Path of a file of dimensions.")] = None
    format: Annotated[
        str | None,
        _about("Format of the data files.", enum=["parquet", "avro", "submissions"]),
    ] = None
    compression: Annotated[str | None, _about("Compression of the data files.")] = None
    index: Annotated[str | list[str] | None, _about("Columns with an inverted index.")] = None
    properties: Annotated[dict[str, str] | None, _about("Properties of the dataset.")] = None
    storage_options: _StorageOptions = {}


class _Ingest(_Table):
    """The rules by which raw files are read."""

    start: _Moment = None
    end: _Moment = None
    supersede: Annotated[
        Literal["path", "span", "id"] | None,
        _about(
            "The rule by which an archived file replaces another; of a folder, whether other content "
            "at the path of a file replaces it (path), or is a file of its own (id)."
        ),
    ] = None
    unknown: Annotated[
        Literal["reject", "ignore", "keep"], _about("Handling of fields that the dataset lacks.")
    ] = "reject"
    max_rejects: Annotated[
        float | None,
        _about("Limit for the rejects of a file: a share up to 1, from 2 on a number of lines."),
    ] = None
    allow_truncated: Annotated[bool, _about("Read the readable part of a truncated file.")] = False
    quarantine: Annotated[str | None, _about("Name of the dataset for rejects.")] = None
    provided: Annotated[
        dict[str, str | int | float | bool], _about("Values of `provided` partition fields.")
    ] = {}


class _Layout(_Table):
    """The rule by which small files are merged; an empty table stands for the defaults."""

    target_size: Annotated[
        str | int, _about("Size of the merged files; by default 128MB.", pattern=_SIZE)
    ] = "128MB"
    min_files: Annotated[
        int,
        _about(
            f"Small files from which on a partition is merged; by default {DUE_FILES}.", minimum=2
        ),
    ] = DUE_FILES
    sort_by: Annotated[str | list[str], _about("Fields to sort the rows of merged files by.")] = []
    gather: Annotated[bool, _about("Keep the files of a partition alone in one directory.")] = False
    across_runs_older_than: Annotated[
        str | None,
        _about(
            "Age, such as 30d, from which on small files of different runs are merged.",
            pattern=_AGE,
        ),
    ] = None


class _Iceberg(_Table):
    catalog: Annotated[str | None, _about("Catalog, as in pyiceberg's configuration.")] = None
    table: Annotated[str | None, _about("Name of the table in the catalog.")] = None
    root: Annotated[str | None, _about("URL of the repository for readers of the table.")] = None


class _Hive(_Table):
    table: Annotated[str, _about("Name of the table, as database.table.")]
    mode: Annotated[
        Literal["partitions", "batches"] | None,
        _about("Partitions of the table: those of the dataset, or its batches."),
    ] = None
    root: Annotated[str | None, _about("URL of the repository for readers of the table.")] = None


class _Publish(_Table):
    """Tables of other formats, which show the dataset after each run."""

    delta: Annotated[bool, _about("Publish to a Delta table beside the data.")] = False
    iceberg: Annotated[
        bool | _Iceberg, _about("Publish to an Iceberg table beside the data, or in a catalog.")
    ] = False
    hive: Annotated[
        str | _Hive | None, _about("Publish to a table of a Hive metastore: database.table.")
    ] = None
    metastore: Annotated[
        str | None,
        _about("thrift://HOST:PORT, or a directory for Spark's embedded metastore."),
    ] = None
    require_checks: Annotated[
        bool | None,
        _about("Do not publish versions whose rows may fail a check of the dataset."),
    ] = None


class _Retention(_Table):
    """The rows and raw files that are deleted; older versions have the rows until a cleanup."""

    keep: Annotated[
        str | None,
        _about("Time for which partitions stay after theirs, such as 400d.", pattern=_AGE),
    ] = None
    by: Annotated[
        str | None, _about("Field with that time; by default the one of the partitions.")
    ] = None
    delete_where: Annotated[str | None, _about("Condition in SQL of the rows to delete.")] = None
    raw: Annotated[
        str | None,
        _about(
            "Time for which raw files stay in the archive after their last event, such as 730d, if "
            "the dataset has read them.",
            pattern=_AGE,
        ),
    ] = None
    raw_read_by: Annotated[
        str | list[str],
        _about("Further datasets of the repository that must have read a raw file before it goes."),
    ] = []


class _Cleanup(_Table):
    """The deletion of dead files."""

    older_than: Annotated[
        str,
        _about("Time for which files stay after the commit that removed them.", pattern=_AGE),
    ] = "7d"
    published: Annotated[
        Literal["ask", "noted"],
        _about("Ask the metastore which files its tables show, or use the notes of publications."),
    ] = "ask"


class _Document(_Table, kw_only=True):
    """A pipeline of Lakebed."""

    name: Annotated[
        str | None, _about("Name of the pipeline and of its runs; by default that of the dataset.")
    ] = None
    max_age: Annotated[
        str | None,
        _about(
            "Age from which on the last successful run is too old, such as 26h.",
            pattern=_AGE,
        ),
    ] = None
    source: Annotated[_Source, _about("The raw files, or the table of Spark.")]
    dataset: Annotated[_Dataset, _about("The dataset that they become.")]
    checks: (
        Annotated[
            dict[str, Any],
            _about(
                "All checks of the dataset, by name: every write must pass them.",
                **SCHEMA_OF_CHECKS,
            ),
        ]
        | None
    ) = None
    ingest: Annotated[_Ingest | None, _about("The rules by which they are read.")] = None
    layout: Annotated[_Layout | None, _about("The rule by which small files are merged.")] = None
    publish: Annotated[_Publish | None, _about("Tables of other formats.")] = None
    retention: Annotated[_Retention | None, _about("The rows and raw files that are deleted.")] = (
        None
    )
    cleanup: Annotated[_Cleanup | None, _about("The deletion of dead files.")] = None


# Keys of ingests as they were declared before there were pipelines, with their present places.
_FORMER: Mapping[str, str] = {
    "into": "[dataset] into",
    "format": "[source] format",
    "archive": "[source] storage and what; supersede, start and end in [ingest]",
    "files": "[source] paths",
    "create": "[dataset], with the same keys",
    "csv": "[source.csv], with the same keys",
    "quarantine": "[ingest] quarantine",
    "unknown": "[ingest] unknown",
    "max_rejects": "[ingest] max_rejects",
    "allow_truncated": "[ingest] allow_truncated",
    "provided": "[ingest] provided",
    "storage_options": "[dataset] storage_options",
}
_OF_ARCHIVES = ("storage", "what", "where", "work_id", "index")
_OF_TABLES = ("table", "query", "time", "every")
_OF_FILES = ("format", "csv", "json", "levels", "storage_options")
_RULES_OF_FILES = ("supersede", "max_rejects", "allow_truncated", "quarantine", "provided")
_SOURCES = "Give paths of folders, storage and what of an archive, or a table of Spark."
_OF_NEW = ("partition_by", "dimensions", "format", "compression", "index", "properties")


@dataclass(slots=True)
class _Mistakes:
    """The mistakes of a document.

    Attributes:
        document: Name of the document in messages.
        lines: Lines of its tables and keys.
        found: The mistakes, each with its place.
    """

    document: str
    lines: dict[KeyPath, int]
    found: list[tuple[KeyPath, LakebedError]] = field(default_factory=list)

    def add(self, place: KeyPath, message: str, hint: str) -> None:
        self.found.append((place, InvalidInputError(message, hint=hint)))

    @contextmanager
    def at(self, *place: str) -> Iterator[None]:
        """Note an error of a block as a mistake at a place."""
        try:
            yield
        except LakebedError as exc:
            self.found.append((place, exc))

    def has(self, *place: str) -> bool:
        """Return whether there is a mistake in a table."""
        return any(where[: len(place)] == place for where, _ in self.found)

    def raise_all(self) -> None:
        """Raise an error with all mistakes, in the order of their lines.

        Raises:
            LakebedError: There is a mistake; of its own class if there is one alone.
        """
        if not self.found:
            return
        self.found.sort(key=lambda one: find_line(self.lines, one[0]) or 0)
        if len(self.found) == 1:
            ((place, error),) = self.found
            is_plain = type(error).__init__ is LakebedError.__init__
            raise (type(error) if is_plain else InvalidInputError)(
                f"{self.document}, {self._where(place)}{error.message}", hint=error.hint
            )
        lines = [f"{self._where(place)}{error}" for place, error in self.found]
        listed = "\n".join(f"- {line}" for line in lines)
        raise InvalidInputError(
            f"{self.document} has {len(lines)} mistakes:\n{listed}", hint="Nothing was done."
        )

    def _where(self, place: KeyPath) -> str:
        line = find_line(self.lines, place)
        parts = ["" if line is None else f"line {line}"]
        if place:
            table = place if _is_table(place) else place[:-1]
            inner = place[len(table) :]
            parts.append(f"[{'.'.join(table)}]" if table else "")
            parts[-1] = " ".join(filter(None, (parts[-1], *inner)))
        shown = ", ".join(filter(None, parts))
        return f"{shown}: " if shown else ""


def _is_table(place: KeyPath) -> bool:
    """Return whether a place is that of a table of the declaration."""
    table: type[_Table] | None = _Document
    for name in place:
        if table is None:
            return False
        kinds = {one.encode_name: one.type for one in msgspec.structs.fields(table)}
        table = _table_in(kinds[name]) if name in kinds else None
    return table is not None


def _table_in(kind: Any) -> type[_Table] | None:
    """Return the struct in the type of a field; None if it has none."""
    if typing.get_origin(kind) is Annotated:
        return _table_in(typing.get_args(kind)[0])
    for part in _members(kind):
        if isinstance(part, type) and issubclass(part, _Table):
            return part
    return None


def _members(kind: Any) -> tuple[Any, ...]:
    is_union = isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union
    return typing.get_args(kind) if is_union else (kind,)


def read_pipeline(source: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of a `Pipeline` that a TOML file declares.

    Raises:
        NotFoundError: There is no such file.
        FormatError: It is not valid TOML.
        InvalidInputError: It has mistakes; the message lists them, each with its line.
    """
    text, where, folder = _read(source)
    try:
        parsed = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as exc:
        raise FormatError(f"{where} is not valid TOML: {exc}.", hint="Correct it there.") from exc
    mistakes = _Mistakes(where, lines_of(text))
    document = _fill(_Document, parsed, (), mistakes)
    pipeline: dict[str, Any] = {}
    if document is not None:
        pipeline = _Builder(document, folder, mistakes).pipeline()
    mistakes.raise_all()
    return pipeline


def _read(source: str | os.PathLike[str]) -> tuple[str, str, Path]:
    text = os.fspath(source)
    if "\n" in text:
        return text, "The text", Path()
    path = Path(text)
    held = read_given(path, MAX_DOCUMENT_BYTES)
    if held is None:
        raise NotFoundError(f"No file {text[:500]!r}.", hint="Give the path of a TOML file.")
    return held, text, path.parent


def _fill(
    table: type[_Table], given: Mapping[str, Any], place: KeyPath, mistakes: _Mistakes
) -> Any:
    """Return a table as its struct; note every mistake in it, and leave wrong keys out.

    Required keys that are missing are None, so that the other tables are checked, too.
    """
    fields = {one.encode_name: one for one in msgspec.structs.fields(table)}
    values: dict[str, Any] = {}
    for key, value in given.items():
        inner = (*place, key)
        if key in fields:
            _fill_key(fields[key].type, value, inner, mistakes, values)
        elif not place and key in _FORMER:
            mistakes.add(inner, f"{key!r} is declared elsewhere now.", f"Write {_FORMER[key]}.")
        else:
            hint = nearest(key, fields) or f"Known keys: {', '.join(fields)}."
            mistakes.add(inner, f"unknown key {key!r}.", hint)
    for key, one in fields.items():
        if one.required and key not in given:
            what = "table" if _table_in(one.type) else "key"
            mistakes.add(place, f"the required {what} {key!r} is missing.", "Add it.")
            values[key] = None
    return table(**values)


def _fill_key(
    kind: Any, value: object, place: KeyPath, mistakes: _Mistakes, values: dict[str, Any]
) -> None:
    name = place[-1]
    inner = _table_in(kind)
    if inner is not None and isinstance(value, dict):
        values[name] = _fill(inner, value, place, mistakes)
        return
    plain = typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind
    if inner is not None and _members(plain) in ((inner,), (inner, type(None))):
        mistakes.add(place, f"{name!r} is {type(value).__name__}, not a table.", "Write a table.")
        values[name] = None
        return
    try:
        values[name] = from_values(value, kind)
    except msgspec.ValidationError as exc:
        mistakes.add(place, f"{exc}.", "Correct the value.")
        values[name] = None


@dataclass(frozen=True, slots=True)
class _Builder:
    """Makes the objects of a declaration, and notes what they refuse."""

    document: _Document
    folder: Path
    mistakes: _Mistakes

    def pipeline(self) -> dict[str, Any]:
        """Return the arguments of a pipeline; what is in them is whole if there is no mistake."""
        layout, retention, publish = self._layout(), self._retention(), self._publish()
        checks = self._checks()
        ingest = self._ingest()
        if ingest is not None and ingest.create is not None:
            problems = problems_of(retention, layout, checks, ingest.create)
            if problems:
                # The dataset may have gained fields since its schema was declared.
                with suppress(LakebedError):
                    present = ingest.dataset().descriptor
                    problems = problems_of(retention, layout, checks, present)
            self.mistakes.found += problems.items()
            is_required = None if publish is None else publish.require_checks
            ingest = creating_with(ingest, checks, is_required=is_required)
        return {
            "ingest": ingest,
            "layout": layout,
            "publish": publish,
            "retention": retention,
            "cleanup": self._cleanup(),
            "checks": checks,
            "max_age": self._max_age(),
        }

    def _max_age(self) -> str | None:
        age = self.document.max_age
        with self.mistakes.at("max_age"):
            if age is not None and not parse_age(age):
                raise InvalidInputError("the age is 0.", hint="Give an age, such as '26h'.")
        return age

    def _resolved(self, path: str) -> str:
        """Return a path in the file relative to the working directory; URLs stay."""
        return path if "://" in path else without_parents(str(self.folder / path))

    def _ingest(self) -> Ingest | TableIngest | None:
        document, rules = self.document, self.document.ingest or _Ingest()
        source, create = self._source(rules), self._descriptor()
        csv, json = self._csv(), self._json()
        table = document.dataset
        if table is None or table.into is None:
            return None
        given: dict[str, Any] = {"into": self._resolved(table.into), "name": "checked"}
        with self.mistakes.at("dataset", "into"):
            self._checked(given)
        if self.mistakes.has("dataset", "into"):
            return None
        name = given["into"].rstrip("/").rpartition("/")[2]
        given["name"] = name if document.name is None else document.name
        with self.mistakes.at("name"):
            self._checked(given)
        if self.mistakes.has("name") or self.mistakes.has("ingest"):
            return None
        given |= {
            "quarantine": rules.quarantine,
            "max_rejects": rules.max_rejects,
            "allow_truncated": rules.allow_truncated,
            "unknown": rules.unknown,
            "provided": rules.provided,
        }
        with self.mistakes.at("ingest"):
            self._checked(given)
        if source is None or self.mistakes.found:
            return None
        if isinstance(source, FromTable):
            return self._table_ingest(given, source, create)
        with self.mistakes.at():
            return Ingest(
                **given,
                source=source,
                format=document.source.format,  # type: ignore[arg-type]  # checked
                create=create,
                csv=csv,
                json=json,
                storage_options=table.storage_options,
            )
        return None

    def _table_ingest(
        self, given: Mapping[str, Any], source: FromTable, create: DatasetDescriptor | None
    ) -> TableIngest | None:
        chosen = {name: given[name] for name in ("name", "into", "unknown")}
        options = self.document.dataset.storage_options
        with self.mistakes.at("name"):
            return TableIngest(**chosen, source=source, create=create, storage_options=options)
        return None

    def _checked(self, given: Mapping[str, Any]) -> None:
        """Check some of the arguments of an ingest.

        Raises:
            LakebedError: One of them is wrong.
        """
        Ingest(**given, source=FromFiles(paths="in"))

    def _source(self, rules: _Ingest) -> FromArchive | FromFiles | FromTable | None:
        table = self.document.source
        if table is None:
            return None
        self._check_format(table)
        if self.mistakes.has("source"):
            return None
        given = [name for name in _OF_ARCHIVES if getattr(table, name) is not None]
        of_table = [name for name in _OF_TABLES if getattr(table, name) is not None]
        if of_table:
            return self._table(table, rules, of_table, [name for name in given if name != "where"])
        if given == ["where"] and table.paths is None:
            self.mistakes.add(
                ("source", "where"),
                "it is for an archive or a table, and neither is given.",
                _SOURCES,
            )
            return None
        if table.paths is not None and given:
            self.mistakes.add(
                ("source",),
                f"both paths and {', '.join(given)} are given.",
                "Give paths of folders, or storage and what of an archive.",
            )
        elif table.paths is not None:
            return self._files(table, rules)
        elif not given:
            self.mistakes.add(
                ("source",),
                "neither paths nor storage nor table is given.",
                _SOURCES,
            )
        else:
            return self._archive(table, rules)
        return None

    def _table(
        self, table: _Source, rules: _Ingest, of_table: list[str], of_archive: list[str]
    ) -> FromTable | None:
        others = [*(["paths"] if table.paths is not None else []), *of_archive]
        if others:
            self.mistakes.add(
                ("source",),
                f"both {', '.join(of_table)} and {', '.join(others)} are given.",
                _SOURCES,
            )
        for name in _OF_FILES:
            if getattr(table, name) not in (None, {}):
                self.mistakes.add(("source", name), "it is for raw files.", "Leave it out.")
        for name in _RULES_OF_FILES:
            if getattr(rules, name) not in (None, False, {}):
                self.mistakes.add(("ingest", name), "it is for raw files.", "Leave it out.")
        given: dict[str, Any] = {
            "table": table.table,
            "query": table.query,
            "where": table.where,
            "time": table.time,
            "every": table.every or "day",
            "start": rules.start,
            "end": rules.end,
        }
        for name, problem in problems_of_table(given).items():
            place = ("ingest", name) if name in ("start", "end") else ("source", name)
            self.mistakes.found.append((place, problem))
        if self.mistakes.has("source") or self.mistakes.has("ingest"):
            return None
        return FromTable(**given, may_be_empty=table.may_be_empty)

    def _files(self, table: _Source, rules: _Ingest) -> FromFiles | None:
        for name in ("start", "end"):
            if getattr(rules, name) is not None:
                self.mistakes.add(
                    ("ingest", name), "it is for files of an archive.", "Leave it out."
                )
        with self.mistakes.at("ingest", "supersede"):
            FromFiles(paths="in", supersede=rules.supersede)  # type: ignore[arg-type]  # checked
        if self.mistakes.has("ingest", "supersede"):
            return None
        with self.mistakes.at("source", "paths"):
            paths = [table.paths] if isinstance(table.paths, str) else table.paths or []
            return FromFiles(
                paths=[self._resolved(path) for path in paths],
                storage_options=table.storage_options,
                may_be_empty=table.may_be_empty,
                levels=table.levels is not False,
                supersede=rules.supersede,  # type: ignore[arg-type]  # checked
            )
        return None

    def _archive(self, table: _Source, rules: _Ingest) -> FromArchive | None:
        for name in ("storage", "what"):
            if getattr(table, name) is None:
                self.mistakes.add(
                    ("source",), f"the required key {name!r} is missing.", "Add it for an archive."
                )
        if table.may_be_empty:
            self.mistakes.add(
                ("source", "may_be_empty"), "it is for paths.", "Leave it out: an archive may be."
            )
        if table.levels is not None:
            self.mistakes.add(
                ("source", "levels"), "it is for paths.", "Leave it out: an archive has no levels."
            )
        if table.format is None:
            self.mistakes.add(
                ("source",),
                "the format of archived files is missing.",
                f"Give format, one of: {', '.join(FILE_FORMATS)}.",
            )
        if table.storage is None or table.what is None:
            return None
        for name in ("start", "end"):
            if getattr(rules, name) is not None:
                with self.mistakes.at("ingest", name):
                    check_bound(getattr(rules, name))
        if self.mistakes.has("ingest"):
            return None
        end = "now" if rules.end is None and rules.start is not None else rules.end
        with self.mistakes.at("ingest" if rules.start is not None else "source"):
            return FromArchive(
                storage=self._resolved(table.storage),
                what=table.what,
                index=table.index,
                start=rules.start,
                end=end,
                where=table.where,
                work_id=table.work_id,
                supersede=rules.supersede,
                storage_options=table.storage_options,
            )
        return None

    def _check_format(self, table: _Source) -> None:
        if table.format is not None and table.format not in FILE_FORMATS:
            self.mistakes.add(
                ("source", "format"),
                f"unknown file format {table.format!r}.",
                nearest(table.format, FILE_FORMATS) or f"Known: {', '.join(FILE_FORMATS)}.",
            )

    def _csv(self) -> CsvOptions:
        table = (self.document.source.csv if self.document.source else None) or _Csv()
        if not self.mistakes.has("source", "csv"):
            with self.mistakes.at("source", "csv"):
                return CsvOptions(**msgspec.structs.asdict(table))
        return CsvOptions()

    def _json(self) -> JsonOptions:
        table = (self.document.source.json if self.document.source else None) or _Json()
        if not self.mistakes.has("source", "json"):
            with self.mistakes.at("source", "json"):
                return JsonOptions(**msgspec.structs.asdict(table))
        return JsonOptions()

    def _descriptor(self) -> DatasetDescriptor | None:
        table = self.document.dataset
        if table is None or self.mistakes.has("dataset"):
            return None
        if table.schema is None:
            for name in _OF_NEW:
                if getattr(table, name) is not None:
                    self.mistakes.add(
                        ("dataset", name),
                        "it describes a new dataset, whose schema is missing.",
                        "Give schema, too, or leave it out.",
                    )
            return None
        with self.mistakes.at("dataset", "partition_by"):
            functions = self._functions(table)
        with self.mistakes.at("dataset", "schema"):
            DatasetDescriptor(schema=self._schema(table.schema), partition_by=())
        if self.mistakes.has("dataset"):
            return None
        with self.mistakes.at("dataset"):
            return DatasetDescriptor(
                schema=self._schema(table.schema),
                partition_by=PartitionStrategy(functions),
                format=table.format or "parquet",
                compression=table.compression,
                index=table.index or (),
                properties=table.properties,
            )
        return None

    def _schema(self, schema: str | dict[str, Any]) -> object:
        is_path = isinstance(schema, str) and not schema.lstrip().startswith("{")
        return self._resolved(str(schema)) if is_path else schema

    def _functions(self, table: _Dataset) -> tuple[Any, ...]:
        given = table.partition_by or ""
        text = given if isinstance(given, str) else ", ".join(given)
        functions: tuple[Any, ...] = ()
        if text.strip():
            functions = PartitionStrategy.parse(text).functions
        if table.dimensions is not None:
            dimensions = DimensionSchema.from_json(self._resolved(table.dimensions))
            functions = (*functions, *dimensions.partition_by())
        return functions

    def _layout(self) -> LayoutRule | None:
        table = self.document.layout
        if table is None:
            return None
        given: dict[str, Any] = {}
        with self.mistakes.at("layout", "target_size"):
            if table.target_size is not None:
                given["target_bytes"] = parse_size(table.target_size, "target_size")
                LayoutRule(**given)
        with self.mistakes.at("layout", "min_files"):
            if table.min_files is not None:
                LayoutRule(min_files=table.min_files)
                given["min_files"] = table.min_files
        with self.mistakes.at("layout", "across_runs_older_than"):
            if table.across_runs_older_than is not None:
                age = table.across_runs_older_than
                LayoutRule(across_runs_older_than=age)
                given["across_runs_older_than"] = age
        if self.mistakes.has("layout"):
            return None
        sort_by = (table.sort_by,) if isinstance(table.sort_by, str) else tuple(table.sort_by)
        return LayoutRule(**given, sort_by=sort_by, gather=table.gather)

    def _checks(self) -> dict[str, Check] | None:
        table = self.document.checks
        if table is None:
            return None
        for name, one in table.items():
            with self.mistakes.at("checks", name):
                checks_from_table({name: one})
        if self.mistakes.has("checks"):
            return None
        with self.mistakes.at("checks"):
            return checks_from_table(table)
        return None

    def _publish(self) -> PublishRule | None:
        table = self.document.publish
        if table is None:
            return None
        given: dict[str, Any] = {"delta": table.delta is True}
        iceberg = table.iceberg or False
        hive = _set(table.hive) if isinstance(table.hive, _Hive) else table.hive
        given["iceberg"] = iceberg if isinstance(iceberg, bool) else _set(iceberg)
        with self.mistakes.at("publish", "iceberg"):
            PublishRule(iceberg=given["iceberg"])
        if hive is not None and not self.mistakes.has("publish", "hive"):
            with self.mistakes.at("publish", "hive"):
                PublishRule(hive=hive)
        if table.metastore is not None:
            given["metastore"] = self._resolved(table.metastore)
            with self.mistakes.at("publish", "metastore"):
                PublishRule(metastore=given["metastore"])
        given["require_checks"] = table.require_checks
        return None if self.mistakes.has("publish") else PublishRule(**given, hive=hive)

    def _retention(self) -> RetentionRule | None:
        table = self.document.retention
        if table is None:
            return None
        with self.mistakes.at("retention", "keep"):
            if table.keep is not None:
                RetentionRule(keep=table.keep)
        with self.mistakes.at("retention", "delete_where"):
            if table.delete_where is not None:
                RetentionRule(delete_where=table.delete_where)
        if table.raw is not None:
            with self.mistakes.at("retention", "raw"):
                RetentionRule(raw=table.raw)
            source = self.document.source
            if source is not None and (source.paths or source.table or source.query):
                self.mistakes.add(
                    ("retention", "raw"), "it is for files of an archive.", "Leave it out."
                )
        if self.mistakes.has("retention"):
            return None
        with self.mistakes.at("retention"):
            return RetentionRule(
                keep=table.keep,
                by=table.by,
                delete_where=table.delete_where,
                raw=table.raw,
                raw_read_by=given_names("raw_read_by", table.raw_read_by),
            )
        return None

    def _cleanup(self) -> CleanupRule | None:
        table = self.document.cleanup
        if table is None or self.mistakes.has("cleanup"):
            return None
        with self.mistakes.at("cleanup", "older_than"):
            return CleanupRule(older_than=table.older_than, published=table.published)
        return None


def _set(table: _Table) -> dict[str, str]:
    """Return the keys of a table that have a value."""
    return {
        name: value for name, value in msgspec.structs.asdict(table).items() if value is not None
    }


def schema_of_pipelines() -> dict[str, Any]:
    """Return the JSON schema of declarations."""
    (schema,), tables = msgspec.json.schema_components([_Document], ref_template="#/$defs/{name}")
    named = {name.lstrip("_"): _without_underscores(table) for name, table in tables.items()}
    document = named.pop("Document")
    del schema
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **document,
        "title": "Pipeline of Lakebed",
        "$defs": named,
    }


def _without_underscores(node: Any) -> Any:
    """Return a part of the schema with public names, and without nulls, which TOML lacks."""
    if isinstance(node, list):
        return [_without_underscores(item) for item in node]
    if not isinstance(node, dict):
        return node
    changed = {key: _without_underscores(value) for key, value in node.items()}
    if isinstance(changed.get("$ref"), str):
        changed["$ref"] = changed["$ref"].replace("/_", "/")
    if isinstance(changed.get("title"), str):
        changed["title"] = changed["title"].lstrip("_")
    if "anyOf" in changed:
        some = [one for one in changed["anyOf"] if one != {"type": "null"}]
        rest = {key: value for key, value in changed.items() if key != "anyOf"}
        changed = {**rest, **some[0]} if len(some) == 1 else {**rest, "anyOf": some}
    if changed.get("default", ...) is None:
        del changed["default"]
    if isinstance(changed.get("enum"), list):
        changed["enum"] = [value for value in changed["enum"] if value is not None]
    return changed


def schema_text() -> str:
    """Return the JSON schema of declarations as the file that the package ships."""
    return json.dumps(schema_of_pipelines(), indent=2, ensure_ascii=False) + "\n"
