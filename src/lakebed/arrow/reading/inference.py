"""Schemas from the rows of raw files: the narrowest types that hold every inspected row."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.types as pat

from lakebed.arrow.documents import decode_object
from lakebed.arrow.formats.parquet import open_parquet
from lakebed.arrow.formats.submissions import split_line
from lakebed.arrow.reading.binary import avro_file_schema, rows_schema
from lakebed.arrow.reading.blocks import Block, BlockSource
from lakebed.arrow.reading.cells import csv_cells, legal_name
from lakebed.arrow.reading.chunks import text_lines, without_blanks
from lakebed.arrow.reading.column_types import TextColumn, choose_notation
from lakebed.arrow.reading.csv import cells_as_text, csv_records, header_names
from lakebed.arrow.reading.csv_blocks import text_blocks
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions, parts_of
from lakebed.arrow.reading.document_kinds import KnownDocuments, SeenValues
from lakebed.arrow.reading.files import (
    MOST_COLUMNS,
    STDIN,
    FileFormat,
    Line,
    RawFile,
    Watch,
    check_header,
    common_format,
    find_any_files,
    naming,
    reading,
)
from lakebed.arrow.reading.json_records import json_records
from lakebed.arrow.reading.level_columns import with_level_fields
from lakebed.arrow.reading.lines import adapted
from lakebed.arrow.reading.rows import as_written
from lakebed.arrow.reading.sniffing import Recognized, recognize
from lakebed.arrow.reading.texts import (
    DATE_FORMATS,
    NULL_WORDS,
    PLAIN,
    NumberNotation,
)
from lakebed.common import advice
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted, shown
from lakebed.errors import InvalidInputError, InvalidNameError, SchemaMismatchError
from lakebed.model.arrow_types import schema_of_rows
from lakebed.model.descriptor import DOCUMENT, UUID
from lakebed.model.names import check_field_name, nearest
from lakebed.model.schema import Field, Kind, Primitive, Schema

DEFAULT_ROWS = 100_000
_RECORDS_PER_CHUNK = 4_096
_BLOCKS = 16  # of JSON lines in an ordinary block: a line that is new costs little
LINES_PER_GROUP = 1_000
_FIRST_LINES = 50  # read value by value: they show most of what the others hold
_MOST_FILES = 20  # whose first bytes are looked at


def infer_schema(
    paths: object,
    format: FileFormat | None = None,  # noqa: A002 - the word of API.md
    *,
    rows: int = DEFAULT_ROWS,
    require: Collection[str] = (),
    csv: CsvOptions | Mapping[str, Any] | None = None,
    json: JsonOptions | Mapping[str, Any] | None = None,
    name: str = "entity",
    storage_options: Mapping[str, str] | None = None,
    unfit: Literal["report", "error", "skip"] = "report",
    levels: bool = True,
    on_progress: OnProgress = NO_PROGRESS,
) -> Schema:
    r"""Infer a schema that every inspected row fits, without loss.

    CSV: integers of 64 bits are long; other numbers are double, if a double holds all their
    digits; `true` and `false` are boolean; ISO dates and times are date and timestamp. A number
    with leading zeros is text, and so is a column of mixed types. JSON: objects are structs,
    integers and other numbers in one field are double, text stays text, and types that do not go
    together are an error, and dates and times stay text, as Spark and Polars read them: a schema may
    declare them as such. A field without values is text. Avro and Parquet files have a schema,
    which is used. Folders `name=value` are fields too: whole numbers, dates, or text.

    Args:
        paths: As for `Dataset.load`.
        format: As for `Dataset.load`.
        rows: Number of rows of each file to inspect; 0 for all.
        require: Names of fields that must not be nullable; all others are.
        csv: Notation of CSV files, or parts of it by their names; what is not given is found.
        json: Notation of JSON files, or parts of it.
        name: Name of the record, for Avro.
        storage_options: Options for the store of a URL.
        unfit: Effect of a line that is not a row: `report` leaves it out, and warns of the number
            of such lines; `error` refuses it; `skip` leaves it out, as an ingest does that sets such
            lines aside. With `skip` a field has the type of most of its values, and the others are
            left out too; otherwise it has one that holds all of them.
        levels: False to read folders `name=value` as plain folders.
        on_progress: Receives the progress of the inspection.

    Warns:
        LakebedWarning: Lines were left out.

    Raises:
        InvalidNameError: A column has a name that no field may have; a legal one is suggested.
        SchemaMismatchError: Types of a field conflict, with both lines; a required field is
            unknown or null; or half of the lines or more are not rows, or, with `error`, one.
        InvalidInputError: A file cannot be read.

    Cost:
        Reads the inspected rows.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory) / "rows.csv"
    ...     _ = path.write_text("code,n\n007,-1\n,2e3\n", encoding="utf-8")
    ...     print(*(f"{field.name}: {field.type}" for field in infer_schema(path)))
    code: string n: double
    """
    files = find_any_files(paths, format, storage_options=storage_options, levels=levels)
    if format is None and isinstance(csv or json, CsvOptions | JsonOptions):
        format = common_format(files)  # noqa: A001 - the word of the option
    inspection = inspect_files(
        files,
        format,
        csv=parts_of(csv) if isinstance(csv, CsvOptions) else csv,
        json=parts_of(json) if isinstance(json, JsonOptions) else json,
        rows=rows,
        unfit=unfit,
        takes_any=unfit == "skip",
        on_progress=on_progress,
    )
    schema, nulls = inspection.schema, inspection.nulls
    for required in require:
        if required not in schema:
            raise SchemaMismatchError(
                f"Required field {required!r} is not in the files.",
                hint=nearest(required, schema.names) or f"Fields are: {', '.join(schema.names)}.",
            )
        if required in nulls:
            raise SchemaMismatchError(
                f"Required field {required!r} is null or missing: {nulls[required]}.",
                hint="Leave it nullable, or correct the file.",
            )
    schema_fields = (replace(field, nullable=field.name not in require) for field in schema)
    return Schema(fields=tuple(schema_fields), name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """The content of some raw files.

    Attributes:
        format: Their format.
        csv: Notation of CSV.
        json: Notation of JSON.
        schema: A schema that every inspected row fits.
        nulls: Position of the first null of each field that has one.
        notes: Remarks on the values of each field.
        remarks: Remarks on the files.
        days: Days of the dates or times of fields, up to a limit.
        row_count: Number of rows that were inspected.
    """

    format: FileFormat
    csv: CsvOptions
    json: JsonOptions
    schema: Schema
    nulls: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    days: Mapping[str, frozenset[str]] = field(default_factory=dict)
    row_count: int = 0


def inspect_files(
    files: Sequence[RawFile],
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    rows: int = DEFAULT_ROWS,
    unfit: Literal["report", "error", "skip"] = "skip",
    takes_any: bool = True,
    on_progress: OnProgress = NO_PROGRESS,
    recognized: Recognized | None = None,
) -> Inspection:
    """Recognize the notation of files, and infer a schema that every inspected row fits.

    Args:
        files: At least one file.
        format: Their format; None to recognize it.
        csv: Parts of the notation of CSV that are known; the others are found.
        json: Parts of the notation of JSON that are known; the others are found.
        rows: As for `infer_schema`.
        unfit: As for `infer_schema`.
        takes_any: True to repair names of JSON, and to read values of several types as text.
        on_progress: As for `infer_schema`.
        recognized: Result of `recognize_some` for these files and parts of the notation, if it is known.

    Raises:
        InvalidInputError: As for `infer_schema` and `recognize`.

    Cost:
        As for `infer_schema`, and as `recognize_some`, unless the files are recognized already.
    """
    if rows < 0:
        raise InvalidInputError(f"Cannot look at {rows} rows.", hint="Give 0 for all.")
    if unfit not in ("report", "error", "skip"):
        raise InvalidInputError(
            f"unfit is {shown(unfit)}.", hint="Give 'report', 'error' or 'skip'."
        )
    if recognized is None or recognized.is_empty:
        recognized = recognize(_some_of(files), format, csv=csv, json=json)
    return _inspect(files, recognized, csv or {}, rows, unfit, on_progress, takes_any=takes_any)


def recognize_some(
    files: Sequence[RawFile],
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
) -> Recognized:
    """Recognize files, which may all be empty, by some of them.

    Args:
        files: At least one file.
        format: As for `inspect_files`.
        csv: As for `inspect_files`.
        json: As for `inspect_files`.

    Raises:
        InvalidInputError: As for `recognize`.

    Cost:
        The first 256 KiB of up to 20 files.
    """
    return recognize(_some_of(files), format, csv=csv, json=json, is_empty_allowed=True)


def _some_of(files: Sequence[RawFile]) -> list[RawFile]:
    """Return files that stand for all of them."""
    numbers = dict.fromkeys(len(files) * n // _MOST_FILES for n in range(_MOST_FILES))
    return [files[number] for number in numbers]


def _inspect(
    files: Sequence[RawFile],
    recognized: Recognized,
    given: Mapping[str, Any],
    rows: int,
    unfit: Literal["report", "error", "skip"],
    on_progress: OnProgress,
    *,
    takes_any: bool,
) -> Inspection:
    """Infer a schema that every inspected row of recognized files fits; see `inspect_files`."""
    tally = Tally(on_progress, "look at files", {file.location: file.size_bytes for file in files})
    misfits = _Misfits(is_error=unfit == "error")
    look = _Look(
        rows=rows or None,
        csv=recognized.csv,
        json=recognized.json,
        given=given,
        takes_any=takes_any,
        misfits=misfits,
        tally=tally,
    )
    inspection = _INFER[recognized.format](
        [as_written(file, recognized.format, look.csv, look.json) for file in files], look
    )
    tally.finish()
    if unfit == "report":
        misfits.report()
    elif recognized.format == "csv":
        misfits.check_few()
    levels = {
        name: f"the folder of {file.location}"
        for file in files
        for name, text in file.levels.items()
        if text is None
    }
    names = inspection.schema.names
    if len(names) > MOST_COLUMNS:
        raise SchemaMismatchError(
            f"The files have {len(names):,} fields; at most {MOST_COLUMNS:,} are inferred.",
            hint="Give a schema with the fields that you need; unknown, as 'ignore', leaves the "
            "others out.",
        )
    return replace(
        inspection,
        schema=with_level_fields(inspection.schema, files),
        nulls={**inspection.nulls, **levels},
        remarks=(*recognized.notes, *inspection.remarks, *misfits.remarks()),
        row_count=misfits.line_count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Options of an inspection.

    Attributes:
        rows: Number of rows of each file; None for all.
        csv: Notation of CSV files.
        json: Notation of JSON files.
        given: Parts of the notation of CSV that are known.
        takes_any: True to repair names of JSON, and to read values of several types as text.
        misfits: Receives lines that are not rows.
        tally: Receives the progress.
    """

    rows: int | None
    csv: CsvOptions
    json: JsonOptions
    given: Mapping[str, Any]
    takes_any: bool
    misfits: _Misfits
    tally: Tally


_SAMPLE_ROWS = 1_000


def find_notation(
    files: Sequence[RawFile],
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    is_known: Container[FileFormat] = (),
    recognized: Recognized | None = None,
) -> Recognized:
    """Recognize files that are read into an existing dataset, by their first rows.

    Args:
        files: At least one file.
        format: As for `inspect_files`.
        csv: As for `inspect_files`.
        json: As for `inspect_files`.
        is_known: Formats whose notation is known already, so that no row is looked at.
        recognized: Result of `recognize_some` for these files; None to call it.

    Raises:
        InvalidInputError: As for `recognize`.

    Cost:
        The first 256 KiB of up to 20 files, and 1,000 rows of each.
    """
    found = recognized or recognize_some(files, format, csv=csv, json=json)
    is_text = found.format in ("csv", "json") and files[0].location != STDIN
    if not is_text or found.format in is_known:
        return found
    with contextlib.suppress(InvalidInputError):  # the reader of the file raises it again
        chosen = _some_of(files)
        seen = _inspect(chosen, found, csv or {}, _SAMPLE_ROWS, "skip", NO_PROGRESS, takes_any=True)
        names = {**seen.json.names, **found.json.names}
        # The types are those of the dataset, which were declared.
        declared = {"ragged": "reject", "exact": False, **(csv or {})}
        csv_ = replace(seen.csv, **{name: declared[name] for name in ("ragged", "exact")})
        return replace(found, csv=csv_, json=replace(found.json, names=names))
    return found


class _Misfits:
    """Lines that are not rows.

    Attributes:
        is_error: True if the first one is an error.
        first: Error of the first one, with its file; None without any.
        line_count: Number of lines so far, with and without misfits.
    """

    def __init__(self, *, is_error: bool) -> None:
        self.is_error = is_error
        self._count = self.line_count = 0
        self.first: InvalidInputError | None = None

    def of(self, location: str) -> Callable[[InvalidInputError], None]:
        """Return the function that takes the errors of a file."""

        def add(error: InvalidInputError) -> None:
            if self.is_error:
                raise error
            self._count += 1
            if self.first is None:
                text = error.message
                place = "" if location in text else f"{location}: "
                self.first = SchemaMismatchError(f"{place}{text}", hint=error.hint)

        return add

    def add_lines(self, count: int) -> None:
        """Count lines, with and without misfits."""
        self.line_count += count

    def remarks(self) -> list[str]:
        """Return remarks on lines that are not rows."""
        if self.first is None:
            return []
        return [
            f"{counted(self._count, 'line')} of {self.line_count:,} did not count, since "
            f"{'it is not a row' if self._count == 1 else 'they are not rows'}. The first: "
            f"{self.first.message}"
        ]

    def check_few(self) -> None:
        """Check that more lines are rows than not.

        Raises:
            InvalidInputError: They are not: the error of the first one.
        """
        if self.first is not None and 2 * self._count > self.line_count:
            raise self.first

    def explain(self) -> None:
        """Raise the error of the first line that is not a row, if there is one.

        Raises:
            InvalidInputError: There is one.
        """
        if self.first is not None:
            raise self.first

    def report(self) -> None:
        """Warn of the lines that were left out.

        Raises:
            InvalidInputError: They are half of all lines or more: the error of the first one.
        """
        if self.first is None:
            return
        if 2 * self._count >= self.line_count:
            raise self.first
        counted_lines = f"{counted(self._count, 'line')} of {self.line_count:,}"
        advice.warn(
            f"{counted_lines} {'is not a row' if self._count == 1 else 'are not rows'}, and did not "
            f"count. The first: {self.first.message} `lakebed import` refuses such files, and with "
            "--quarantine sets such lines aside, as `load` and `ingest` do."
        )


class _Looking:
    """One file under inspection.

    Attributes:
        file: File to read, with a watch of its progress.
    """

    def __init__(self, file: RawFile, tally: Tally) -> None:
        self._watch, self._tally, self._reported_bytes = Watch(), tally, 0
        self.file = replace(file, watch=self._watch)

    def move(self) -> None:
        """Report how much of the file has been read."""
        size_bytes = max(0, self._watch.position - self._reported_bytes)
        self._reported_bytes += size_bytes
        self._tally.add(size_bytes=size_bytes)

    def finish(self) -> None:
        """Report the end of the file."""
        self._tally.add(self.file.location, size_bytes=-self._reported_bytes)


def _from_csv(files: Sequence[RawFile], look: _Look) -> Inspection:
    columns: dict[str, TextColumn] = {}
    cells_by_name: dict[str, str] = {}
    nulls = frozenset(look.csv.nulls) if "nulls" in look.given else NULL_WORDS
    is_open = "dates" not in look.given

    def column_of(name: str) -> TextColumn:
        if name not in columns:
            format_ = look.csv.dates.get(name)
            formats = DATE_FORMATS if format_ is None and is_open else ()
            columns[name] = TextColumn(nulls, (format_,) if format_ is not None else formats)
        return columns[name]

    for file in files:
        looking = _Looking(file, look.tally)
        with reading(file.location):
            records = csv_records(looking.file, look.csv)
            cells, names, records = _names_of(records, look.csv)
            cells_by_name.update(zip(names, cells, strict=False))
            for name in columns.keys() - set(names):
                columns[name].note_null(f"{file.location} lacks it")
            for table, numbers in _texts_of(looking.file, records, names, look):
                for name in names:
                    column_of(name).add(table.column(name), numbers, file.location)
                looking.move()
            for name in names:
                column_of(name)
        looking.finish()
    return _described(columns, cells_by_name, look)


def _texts_of(
    file: RawFile, records: Iterator[Line], names: tuple[str, ...], look: _Look
) -> Iterator[tuple[pa.Table, Sequence[int]]]:
    """Yield the first rows of CSV as texts, with the numbers of the lines of their records.

    Args:
        file: The file.
        records: Its records after the header, for what is to be read by lines.
        names: Names of the columns.
        look: Options of the inspection.
    """
    remaining = sys.maxsize if look.rows is None else look.rows
    divided_by = 1 if remaining > _RECORDS_PER_CHUNK else 16
    blocks = text_blocks(file, names, look.csv, divided_by=divided_by)
    for part in iter([records]) if blocks is None else blocks:
        if remaining <= 0:
            break
        if isinstance(part, tuple):
            number, table = part
            table = table.slice(0, remaining)
            remaining -= table.num_rows
            look.misfits.add_lines(table.num_rows)
            yield table, range(number, number + table.num_rows)
            continue
        if len(names) > 1:  # in a file of one column an empty line is a null
            part = without_blanks(part)
        for chunk in _chunked(itertools.islice(part, remaining), look, file.location):
            remaining -= len(chunk)
            lines = [line for line in chunk if not line.problem]
            if lines:
                on_misfit = look.misfits.of(file.location)
                table = cells_as_text(lines, names, look.csv, on_misfit=on_misfit)
                yield table, [line.number for line in lines]


def _described(
    columns: Mapping[str, TextColumn], cells: Mapping[str, str], look: _Look
) -> Inspection:
    """Return what columns of CSV hold, and their notation with what was found in it."""
    notation: NumberNotation = (look.csv.decimal, look.csv.thousands)
    if not {"decimal", "thousands"}.intersection(look.given) and notation == PLAIN:
        notation = choose_notation(list(columns.values()))
    kinds = {name: column.kind(notation) for name, column in columns.items()}
    typed = {name: column for name, column in columns.items() if kinds[name] is not Kind.STRING}
    words = Counter[str]()
    for column in typed.values():
        words.update(column.words)
    dates = {
        name: format_
        for name, column in typed.items()
        if (format_ := column.date_format) is not None
    }
    is_local = any(
        column.is_local and kinds[name] is Kind.TIMESTAMP for name, column in typed.items()
    )
    # Types of all rows are exact by themselves.
    has_numbers = any(kind in _NUMERIC for kind in kinds.values())
    csv = replace(
        look.csv,
        decimal=notation[0],
        thousands=notation[1],
        nulls=look.csv.nulls if "nulls" in look.given else sorted(filter(None, words)),
        dates=look.csv.dates if "dates" in look.given else dates,
        time_zone=look.csv.time_zone or ("UTC" if is_local else ""),
        exact=look.csv.exact if "exact" in look.given else look.rows is not None and has_numbers,
    )
    notes = {name: column.notes(kinds[name]) for name, column in columns.items()}
    for name, cell in cells.items():
        if look.csv.has_header and name != cell:
            notes[name].insert(0, f"{shown(cell)} in the header")
    schema_fields = (Field(name=name, type=Primitive(kind)) for name, kind in kinds.items())
    return Inspection(
        format="csv",
        csv=csv,
        json=look.json,
        schema=Schema(fields=tuple(schema_fields)),
        nulls={name: column.null_at for name, column in columns.items() if column.null_at},
        notes={name: texts for name, texts in notes.items() if texts},
        days={
            name: column.days
            for name, column in typed.items()
            if kinds[name] in (Kind.DATE, Kind.TIMESTAMP)
        },
    )


_NUMERIC = frozenset({Kind.LONG, Kind.DOUBLE, Kind.BOOLEAN})


def _names_of(
    records: Iterator[Line], options: CsvOptions
) -> tuple[tuple[str, ...], tuple[str, ...], Iterator[Line]]:
    """Return the cells of the first record, the names of the columns, and the rows."""
    first = next(records, None)
    cells = () if first is None else csv_cells(_whole(first).data, options)
    if options.has_header:
        return cells, tuple(map(check_field_name, header_names(cells, options))), records
    check_header(tuple(map(str, range(len(cells)))), options)
    assert first is not None
    names = tuple(f"field_{number}" for number in range(1, len(cells) + 1))
    return cells, names, itertools.chain([first], records)


def _whole(line: Line) -> Line:
    if line.problem:
        raise _problem_of(line)
    return line


def _problem_of(line: Line) -> SchemaMismatchError:
    return SchemaMismatchError(f"Line {line.number}: {line.problem}", hint="Correct the file.")


def _chunked(lines: Iterable[Line], look: _Look, location: str) -> Iterator[list[Line]]:
    add_misfit = look.misfits.of(location)
    lines = iter(lines)
    while chunk := list(itertools.islice(lines, _RECORDS_PER_CHUNK)):
        look.misfits.add_lines(len(chunk))
        for line in chunk:
            if line.problem:
                add_misfit(_problem_of(line))
        yield chunk


def _from_json(files: Sequence[RawFile], look: _Look) -> Inspection:
    documents = _Documents(look)
    for file in files:
        documents.add_file(file)
    root = documents.root
    if not root.fields:
        look.misfits.explain()
    names = _legal_names(root) if look.takes_any else {}
    schema, nulls = _schema_of(root, names)
    notes: dict[str, list[str]] = {}
    texts: list[str] = []
    root.find_texts("", names, texts, notes)
    for name, legal in names.items():
        if name in root.fields:
            notes.setdefault(legal, []).insert(0, f"{shown(name)} in the objects")
    json = replace(
        look.json,
        names={**names, **look.json.names},
        texts=[*look.json.texts, *(path for path in texts if path not in look.json.texts)],
    )
    return Inspection(
        format="json", csv=look.csv, json=json, schema=schema, nulls=nulls, notes=notes
    )


def _legal_names(root: SeenValues) -> dict[str, str]:
    """Return names for the members of objects that no field may be called."""
    all_names = root.names()
    names: dict[str, str] = {}
    for name in sorted(all_names):
        legal = legal_name(name) or "field"
        if legal == name:
            continue
        base, count = legal, 1
        while legal in all_names or legal in names.values():
            count += 1
            legal = f"{base}_{count}"
        names[name] = legal
    return names


def _from_submissions(files: Sequence[RawFile], look: _Look) -> Inspection:
    documents = _Documents(look, is_submission=True)
    for file in files:
        documents.add_file(file)
    root = documents.root
    for name in (UUID, DOCUMENT):
        root.fields.pop(name, None)  # those of the line come first
    own = tuple(
        Field(name=name, type=Primitive(Kind.STRING), nullable=False) for name in (UUID, DOCUMENT)
    )
    schema, nulls = (Schema(fields=own), {}) if not root.fields else _schema_of(root, {})
    if root.fields:
        schema = Schema(fields=(*own, *schema.fields))
    return Inspection(
        format="submissions", csv=look.csv, json=look.json, schema=schema, nulls=nulls
    )


class _Documents:
    """Documents under inspection.

    Attributes:
        root: The values that they hold.
    """

    def __init__(self, look: _Look, *, is_submission: bool = False) -> None:
        self.root = SeenValues()
        self._look, self._is_submission = look, is_submission
        self._known: KnownDocuments | None = None
        self._remaining = 0

    def add_file(self, file: RawFile) -> None:
        """Add the first rows of a file."""
        look = self._look
        looking = _Looking(file, look.tally)
        self._remaining = sys.maxsize if look.rows is None else look.rows
        with reading(file.location):
            if self._is_submission:
                self._add_lines(without_blanks(text_lines(looking.file)), looking)
            elif look.json.names or look.json.texts:
                self._add_lines(json_records(looking.file, look.json), looking)
            elif look.json.records != "lines":
                self._add_groups(json_records(looking.file, look.json), looking)
            else:
                source = BlockSource(looking.file, divided_by=_BLOCKS)
                while self._remaining > 0 and (block := source.next()) is not None:
                    self._add_block(block, looking)
                    looking.move()
        looking.finish()

    def _add_block(self, block: Block, looking: _Looking) -> None:
        is_within = block.line_count <= self._remaining
        if is_within and self._known and self._known.take(block.data, block.line_count):
            self._count(block.line_count)
            self._add_lines([] if block.after is None else [block.after], looking)
            return
        self._add_groups(without_blanks(block.lines()), looking)

    def _add_groups(self, lines: Iterator[Line], looking: _Looking) -> None:
        """Add lines that are not blank: in each group, first those that are known."""
        while group := list(itertools.islice(lines, min(self._group_size, self._remaining))):
            others = [line for line in group if line.problem]
            whole = [line for line in group if not line.problem]
            numbers: Sequence[int] = range(len(whole))
            if self._known is not None:
                numbers = self._known.take_each([line.data for line in whole])
                self._count(len(whole) - len(numbers))
            others = [*(whole[number] for number in numbers), *others]
            self._add_lines(others, looking)
            if others:
                self._known = KnownDocuments.of(self.root)
            looking.move()

    @property
    def _group_size(self) -> int:
        return LINES_PER_GROUP if self.root.count else min(_FIRST_LINES, LINES_PER_GROUP)

    def _count(self, line_count: int) -> None:
        self._look.misfits.add_lines(line_count)
        self._remaining -= line_count

    def _add_lines(self, lines: Iterable[Line], looking: _Looking) -> None:
        """Add lines that are not blank, one by one."""
        for count, line in enumerate(itertools.islice(lines, self._remaining)):
            if count % _RECORDS_PER_CHUNK == 0:
                looking.move()
            self._count(1)
            self._add_line(line, looking.file.location)

    def _add_line(self, line: Line, location: str) -> None:
        look, place = self._look, f"{location}, line {line.number}"
        takes_any = look.takes_any and not self._is_submission
        try:
            data = _whole(line).data
            with naming(f"Line {line.number}"):
                document = decode_object(split_line(data)[1] if self._is_submission else data)
            if not self._is_submission:
                document = adapted(document, look.json)
            if not look.misfits.is_error:
                # Alone first: a line that does not fit must not count in part.
                SeenValues().add(document, "", place, depth=0, takes_any=takes_any)
        except InvalidInputError as exc:
            # Other lines have the name, too.
            if isinstance(exc, InvalidNameError):
                raise
            look.misfits.of(location)(exc)
        else:
            self.root.add(document, "", place, depth=0, takes_any=takes_any)


def _schema_of(root: SeenValues, names: Mapping[str, str]) -> tuple[Schema, Mapping[str, str]]:
    """Return a schema, and the first position of a null by field."""
    if not root.fields:
        said = "No object has a field." if root.count else "There is no object in the files."
        raise SchemaMismatchError(said, hint="Look at more rows, or at other files.")
    schema_fields = root.as_fields(names)
    nulls = {name: node.null_at for name, node in root.fields.items() if node.null_at}
    nulls |= {
        name: "a line lacks it"
        for name, node in root.fields.items()
        if node.count < root.count and name not in nulls
    }
    return Schema(fields=schema_fields), {names.get(name, name): at for name, at in nulls.items()}


def _from_avro(files: Sequence[RawFile], look: _Look) -> Inspection:
    schema = _common([_located(file, avro_file_schema(file)) for file in files])
    return Inspection(format="avro", csv=look.csv, json=look.json, schema=schema)


def _from_parquet(files: Sequence[RawFile], look: _Look) -> Inspection:
    schemas = [(file.location, _arrow_schema(file)) for file in files]
    typed = {
        field.name: field.type
        for _, schema in schemas
        for field in schema
        if not pat.is_null(field.type)
    }
    schema = _common(
        [(place, schema_of_rows(_without_null_types(schema, typed))) for place, schema in schemas]
    )
    notes = {
        name: ["all are null in the files: text"]
        for _, own in schemas
        for name in own.names
        if name not in typed
    }
    return Inspection(format="parquet", csv=look.csv, json=look.json, schema=schema, notes=notes)


def _without_null_types(schema: pa.Schema, typed: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema whose columns of nulls have the type of another file, or else text."""
    return pa.schema(
        field.with_type(typed.get(field.name, pa.string())) if pat.is_null(field.type) else field
        for field in schema
    )


def _located(file: RawFile, schema: Schema) -> tuple[str, Schema]:
    return file.location, schema


def _arrow_schema(file: RawFile) -> pa.Schema:
    with reading(file.location), file.open_raw() as raw, open_parquet(raw) as opened:
        return rows_schema(opened)


def _common(schemas: Sequence[tuple[str, Schema]]) -> Schema:
    first_place, first = schemas[0]
    for place, schema in schemas[1:]:
        if schema.fields != first.fields:
            raise SchemaMismatchError(
                f"{first_place} and {place} have different schemas.", hint="Give files of one."
            )
    return first


_INFER = {
    "csv": _from_csv,
    "json": _from_json,
    "submissions": _from_submissions,
    "avro": _from_avro,
    "parquet": _from_parquet,
}
