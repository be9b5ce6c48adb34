"""Schemas from the rows of raw files: the narrowest types that hold every inspected row."""

from __future__ import annotations

import decimal
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from lakebed.arrow.documents import decode_object
from lakebed.arrow.formats.parquet import open_parquet
from lakebed.arrow.formats.submissions import split_line
from lakebed.arrow.reading.binary import avro_file_schema, rows_schema
from lakebed.arrow.reading.chunks import text_lines, without_blanks
from lakebed.arrow.reading.csv import cells_as_text, csv_cells, csv_records
from lakebed.arrow.reading.files import (
    CsvOptions,
    FileFormat,
    Line,
    RawFile,
    Watch,
    check_header,
    find_files,
    naming,
    reading,
)
from lakebed.arrow.reading.level_columns import with_level_fields
from lakebed.arrow.reading.texts import MAX_EXACT, kind_of_text
from lakebed.common import advice
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted, shown
from lakebed.errors import InvalidInputError, InvalidNameError, SchemaMismatchError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.avro import MAX_DEPTH
from lakebed.model.descriptor import DOCUMENT, UUID
from lakebed.model.names import check_field_name, nearest
from lakebed.model.schema import Field, Kind, ListOf, MapOf, Primitive, Schema, Struct, Type

DEFAULT_ROWS = 100_000
_RECORDS_PER_CHUNK = 4_096


def infer_schema(
    paths: object,
    format: FileFormat | None = None,  # noqa: A002 - the word of API.md
    *,
    rows: int = DEFAULT_ROWS,
    require: Collection[str] = (),
    csv: CsvOptions | None = None,
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
    together are an error. A field without values is text. Avro and Parquet files have a schema,
    which is used. Folders `name=value` are fields too: whole numbers, dates, or text.

    Args:
        paths: As for `Dataset.load`.
        format: As for `Dataset.load`.
        rows: Number of rows of each file to inspect; 0 for all.
        require: Names of fields that must not be nullable; all others are.
        csv: Notation of CSV files.
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
    if rows < 0:
        raise InvalidInputError(f"Cannot look at {rows} rows.", hint="Give 0 for all.")
    if unfit not in ("report", "error", "skip"):
        raise InvalidInputError(
            f"unfit is {shown(unfit)}.", hint="Give 'report', 'error' or 'skip'."
        )
    found, files = find_files(paths, format, storage_options=storage_options, levels=levels)
    tally = Tally(on_progress, "look at files", {file.location: file.size_bytes for file in files})
    misfits = _Misfits(is_error=unfit == "error")
    look = _Look(
        rows=rows or None,
        csv=csv or CsvOptions(),
        skips=unfit == "skip",
        misfits=misfits,
        tally=tally,
    )
    schema, nulls = _INFER[found](files, look)
    tally.finish()
    if unfit == "report":
        misfits.report()
    schema = with_level_fields(schema, files)
    nulls = {
        **nulls,
        **{
            name: f"the folder of {file.location}"
            for file in files
            for name, text in file.levels.items()
            if text is None
        },
    }
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
    fields = (replace(field, nullable=field.name not in require) for field in schema)
    return Schema(fields=tuple(fields), name=name)


_Inferred = tuple[Schema, Mapping[str, str]]  # a schema, and the first position of a null by field


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """Options of an inspection.

    Attributes:
        rows: Number of rows of each file; None for all.
        csv: Notation of CSV files.
        skips: True if values vote for a type, and those of other types are skipped.
        misfits: Receives lines that are not rows.
        tally: Receives the progress.
    """

    rows: int | None
    csv: CsvOptions
    skips: bool
    misfits: _Misfits
    tally: Tally


class _Misfits:
    """Lines that are not rows.

    Attributes:
        is_error: True if the first one is an error.
        first: Error of the first one, with its file; None without any.
    """

    def __init__(self, *, is_error: bool) -> None:
        self.is_error = is_error
        self._count = self._line_count = 0
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
        self._line_count += count

    def report(self) -> None:
        """Warn of the lines that were left out.

        Raises:
            InvalidInputError: They are half of all lines or more: the error of the first one.
        """
        if self.first is None:
            return
        if 2 * self._count >= self._line_count:
            raise self.first
        counted_lines = f"{counted(self._count, 'line')} of {self._line_count:,}"
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


def _from_csv(files: Sequence[RawFile], look: _Look) -> _Inferred:
    columns: dict[str, _Column] = {}
    for file in files:
        looking = _Looking(file, look.tally)
        with reading(file.location):
            records = csv_records(looking.file, look.csv)
            names, records = _names_of(records, look.csv)
            for name in columns.keys() - set(names):
                columns[name].note_null(f"{file.location} lacks it")
            for chunk in _chunked(itertools.islice(records, look.rows), look, file.location):
                table = cells_as_text(
                    chunk, names, look.csv, on_misfit=look.misfits.of(file.location)
                )
                for name in names:
                    column = columns.setdefault(name, _Column(votes=look.skips))
                    column.add(table.column(name), chunk, file.location)
                looking.move()
            for name in names:
                columns.setdefault(name, _Column(votes=look.skips))
        looking.finish()
    nulls = {name: column.null_at for name, column in columns.items() if column.null_at}
    fields = (Field(name=name, type=Primitive(column.kind)) for name, column in columns.items())
    return Schema(fields=tuple(fields)), nulls


def _names_of(
    records: Iterator[Line], options: CsvOptions
) -> tuple[tuple[str, ...], Iterator[Line]]:
    first = next(records, None)
    cells = () if first is None else csv_cells(_whole(first).data, options)
    check_header(cells if options.has_header else tuple(map(str, range(len(cells)))), options)
    if options.has_header:
        return tuple(check_field_name(cell) for cell in cells), records
    assert first is not None
    names = tuple(f"field_{number}" for number in range(1, len(cells) + 1))
    return names, itertools.chain([first], records)


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
        whole = [line for line in chunk if not line.problem]
        if whole:
            yield whole


# Types whose values go together in one column.
_FAMILIES = ((Kind.LONG, Kind.DOUBLE), (Kind.DATE, Kind.TIMESTAMP), (Kind.BOOLEAN,))


class _Column:
    """Possible types of the texts in a column of CSV.

    Args:
        votes: True if the type is that of most values; otherwise it holds all of them.
    """

    def __init__(self, *, votes: bool) -> None:
        self._counts: Counter[Kind] = Counter()
        self._votes = votes
        self._is_exact = True
        self.null_at = ""

    def add(self, texts: pa.ChunkedArray, chunk: Sequence[Line], location: str) -> None:
        if texts.null_count and not self.null_at:
            position = texts.is_null().to_pylist().index(True)
            # Empty lines are skipped, so that row numbers and line numbers may differ.
            is_aligned = len(texts) == len(chunk)
            line = f", line {chunk[position].number}" if is_aligned else ""
            self.null_at = f"{location}{line}"
        values = texts.drop_null().value_counts()
        for text, count in zip(*(part.to_pylist() for part in values.flatten()), strict=True):
            kind = kind_of_text(text)
            self._counts[kind] += count
            if kind is Kind.LONG and abs(int(text)) > MAX_EXACT:
                self._is_exact = False

    def note_null(self, place: str) -> None:
        self.null_at = self.null_at or place

    @property
    def kind(self) -> Kind:
        """The type of the column."""
        common = self._common(frozenset(self._counts))
        if common is not Kind.STRING or not self._votes:
            return common
        total = self._counts.total()
        for family in _FAMILIES:
            if 2 * sum(self._counts[kind] for kind in family) > total:
                return self._common(frozenset(kind for kind in family if self._counts[kind]))
        return Kind.STRING

    def _common(self, kinds: frozenset[Kind]) -> Kind:
        """Return the type that holds the values of all these types."""
        if len(kinds) == 1:
            return next(iter(kinds))
        if kinds == {Kind.LONG, Kind.DOUBLE} and self._is_exact:
            return Kind.DOUBLE
        if kinds == {Kind.DATE, Kind.TIMESTAMP}:
            return Kind.TIMESTAMP
        return Kind.STRING


def _from_json(files: Sequence[RawFile], look: _Look) -> _Inferred:
    root = _Node()
    for file in files:
        _add_documents(root, file, look)
    if not root.fields and not look.skips:
        look.misfits.report()
    return _schema_of(root)


def _from_submissions(files: Sequence[RawFile], look: _Look) -> _Inferred:
    root = _Node()
    for file in files:
        _add_documents(root, file, look, is_submission=True)
    for name in (UUID, DOCUMENT):
        root.fields.pop(name, None)  # those of the line come first
    own = tuple(
        Field(name=name, type=Primitive(Kind.STRING), nullable=False) for name in (UUID, DOCUMENT)
    )
    if not root.fields:
        return Schema(fields=own), {}
    schema, nulls = _schema_of(root)
    return Schema(fields=(*own, *schema.fields)), nulls


def _add_documents(root: _Node, file: RawFile, look: _Look, *, is_submission: bool = False) -> None:
    looking = _Looking(file, look.tally)
    add_misfit = look.misfits.of(file.location)
    with reading(file.location):
        lines = itertools.islice(without_blanks(text_lines(looking.file)), look.rows)
        for number, line in enumerate(lines):
            if number % _RECORDS_PER_CHUNK == 0:
                looking.move()
            place = f"{file.location}, line {line.number}"
            look.misfits.add_lines(1)
            try:
                data = _whole(line).data
                with naming(f"Line {line.number}"):
                    document = decode_object(split_line(data)[1] if is_submission else data)
                if (
                    not look.misfits.is_error
                ):  # alone first: a line that does not fit must not count in part
                    _Node().add(document, "", place, depth=0)
            except InvalidInputError as exc:
                # Other lines have the name, too.
                if isinstance(exc, InvalidNameError) and not look.skips:
                    raise
                add_misfit(exc)
            else:
                root.add(document, "", place, depth=0, votes=look.skips)
    looking.finish()


def _schema_of(root: _Node) -> _Inferred:
    if not root.fields:
        raise SchemaMismatchError("No object has a field.", hint="Look at more rows, or others.")
    fields = root.as_fields()
    nulls = {name: node.null_at for name, node in root.fields.items() if node.null_at}
    nulls |= {
        name: "a line lacks it"
        for name, node in root.fields.items()
        if node.count < root.count and name not in nulls
    }
    return Schema(fields=fields), nulls


@dataclass(slots=True)
class _Node:
    """Values seen for a path in JSON, and the position of the first one.

    Where lines vote for a type, values of a kind that conflicts with the first one are in a node of
    their own.
    """

    kind: str = ""
    place: str = ""
    count: int = 0
    value_count: int = 0  # of this kind
    null_at: str = ""
    is_exact: bool = True
    fields: dict[str, _Node] = field(default_factory=dict)
    element: _Node | None = None
    others: dict[str, _Node] = field(default_factory=dict)

    def add(self, value: Any, path: str, place: str, *, depth: int, votes: bool = False) -> None:
        self.count += 1
        if value is None:
            self.null_at = self.null_at or place
            return
        kind = _json_kind(value, path, place)
        if votes and self.kind and _family(kind) != _family(self.kind):
            other = self.others.setdefault(_family(kind), _Node())
            other.add(value, path, place, depth=depth, votes=True)
            return
        self._unify(kind, path, place)
        self.value_count += 1
        if isinstance(value, int) and abs(value) > MAX_EXACT and not votes:
            self.is_exact = False
        if self.kind == "double" and not self.is_exact:
            raise SchemaMismatchError(
                f"Field {path!r} has whole numbers that no double holds, and other numbers: "
                f"{self.place}; {place}.",
                hint="Write a schema by hand, or write the numbers as text.",
            )
        if isinstance(value, list | dict) and depth >= MAX_DEPTH:
            raise SchemaMismatchError(
                f"Field {path!r} is nested more than {MAX_DEPTH} deep: {place}.",
                hint="Flatten it, or read the lines as submissions.",
            )
        if isinstance(value, list):
            self.element = self.element or _Node()
            for element in value:
                self.element.add(element, f"{path}[]", place, depth=depth + 1, votes=votes)
        elif isinstance(value, dict):
            for name, item in value.items():
                with naming(place):
                    check_field_name(name)
                inner = self.fields.setdefault(name, _Node())
                longer = f"{path}.{name}" if path else name
                inner.add(item, longer, place, depth=depth + 1, votes=votes)

    def _unify(self, kind: str, path: str, place: str) -> None:
        if not self.kind:
            self.kind, self.place = kind, place
        elif {self.kind, kind} == {"long", "double"}:
            self.kind = "double"
        elif self.kind != kind:
            raise SchemaMismatchError(
                f"Field {path!r} is {self.kind} and {kind}: {self.place}; {place}.",
                hint="Correct one of the lines, or leave the field out. Or take the type of most "
                "lines: `import --quarantine`, which sets the others aside; in Python it is the value 'skip' of unfit.",
            )

    def as_type(self) -> Type:
        most = max((self, *self.others.values()), key=lambda node: node.value_count)
        if most is not self:
            return most.as_type()
        match self.kind:
            case "":
                return Primitive(Kind.STRING)
            case "list":
                assert self.element is not None
                return ListOf(self.element.as_type())
            case "object":
                if not self.fields:
                    return MapOf(Primitive(Kind.STRING))  # a struct has at least one field
                return Struct(self.as_fields())
        return Primitive(Kind(self.kind))

    def as_fields(self) -> tuple[Field, ...]:
        return tuple(Field(name=name, type=node.as_type()) for name, node in self.fields.items())


def _family(kind: str) -> str:
    """Return the family of a kind of JSON; kinds of one family go together."""
    return "number" if kind in ("long", "double") else kind


def _json_kind(value: object, path: str, place: str) -> str:
    match value:
        case bool():
            return "boolean"
        case int() if -(2**63) <= value < 2**63:
            return "long"
        case decimal.Decimal() if abs(float(value)) != float("inf"):
            return "double"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "object"
    raise SchemaMismatchError(
        f"Field {path!r} has a number that neither long nor double holds: {place}.",
        hint="Write a schema by hand, or write the numbers as text.",
    )


def _from_avro(files: Sequence[RawFile], look: _Look) -> _Inferred:  # noqa: ARG001 - one form for all formats
    return _common([_located(file, avro_file_schema(file)) for file in files])


def _from_parquet(files: Sequence[RawFile], look: _Look) -> _Inferred:  # noqa: ARG001 - one form for all formats
    return _common([_located(file, _parquet_schema(file)) for file in files])


def _located(file: RawFile, schema: Schema) -> tuple[str, Schema]:
    return file.location, schema


def _parquet_schema(file: RawFile) -> Schema:
    with reading(file.location), file.open_raw() as raw, open_parquet(raw) as opened:
        return schema_from_arrow(rows_schema(opened))


def _common(schemas: Sequence[tuple[str, Schema]]) -> _Inferred:
    first_place, first = schemas[0]
    for place, schema in schemas[1:]:
        if schema.fields != first.fields:
            raise SchemaMismatchError(
                f"{first_place} and {place} have different schemas.", hint="Give files of one."
            )
    return first, {}


_INFER = {
    "csv": _from_csv,
    "json": _from_json,
    "submissions": _from_submissions,
    "avro": _from_avro,
    "parquet": _from_parquet,
}
