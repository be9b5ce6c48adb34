"""A first declaration, with comments, made by looking at some raw files, or at a table."""

from __future__ import annotations

import datetime as dt
import json as json_codec
import os
import re
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from lakebed.archive import Archive, ArchiveRecord, open_archive
from lakebed.arrow.reading.files import FileFormat, RawFile, find_any_files, find_files, passed_over
from lakebed.arrow.reading.inference import Inspection, inspect_files
from lakebed.common.shown import counted, human_size, visible
from lakebed.errors import InvalidInputError, RecordNotFoundError
from lakebed.model.avro import schema_to_avro
from lakebed.model.names import MAX_DATASET_NAME_LENGTH, check_dataset_name
from lakebed.model.partition.function import field_text
from lakebed.model.schema import Kind, Primitive, Schema
from lakebed.model.values import TIMES
from lakebed.spark.source_tables import open_source_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MOST_FILES = 20  # that are looked at
_MOST_NAMED = 5  # entries of folders that are not read
_RECENT = dt.timedelta(days=30)


_ABOUT_INFERRED = (
    "# Used once, to create the dataset. Every field may be null; correct types now. A text that",
    '# holds dates can be {"type": "int", "logicalType": "date"}, one that holds times',
    '# {"type": "long", "logicalType": "timestamp-micros"}.',
)
_ABOUT_COLUMNS = ("# Used once, to create the dataset. The columns are those of the table.",)
_RULES_OF_FILES = (
    '# A field that the dataset lacks: "reject" the line, "ignore" the field, or "keep" it.',
    'unknown = "reject"',
    "# Keep a file back if more of it does not fit: a share of its lines, or a number from 2 on.",
    "# max_rejects = 0.1",
)
_RULES_OF_TABLES = (
    '# A column that the dataset lacks: "reject" the table, "ignore" the column, or "keep" it.',
    'unknown = "reject"',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A source that was looked at.

    Attributes:
        source: Lines of the table `[source]`.
        window: Lines of the table `[ingest]`, for an archive or a table.
        schema: Schema that the rows fit.
        described: Description of the source, in words.
        inspection: The look at raw files: their notation and fields; None for a table.
        remarks: Further remarks for the head of the declaration.
    """

    source: Sequence[str]
    window: Sequence[str]
    schema: Schema
    described: str
    inspection: Inspection | None = None
    remarks: Sequence[str] = ()

    @property
    def is_of_files(self) -> bool:
        """True for raw files, whose schema is inferred."""
        return self.inspection is not None


def draft_of_files(
    paths: Sequence[str],
    *,
    into: str | None = None,
    format: FileFormat | None = None,  # noqa: A002 - the word of the option
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Return a declaration for raw files of folders or stores.

    Args:
        paths: Paths, patterns, directories or URLs.
        into: The dataset, as LOCATION/NAME; by default `lake/` and a name from the first path.
        format: Format of the files; None to recognize it.
        csv: Parts of the notation of CSV that are known; the others are found.
        json: Parts of the notation of JSON that are known; the others are found.
        storage_options: Options for the store of a URL.

    Raises:
        InvalidInputError: There is no such file, or the format is unknown.

    Cost:
        One stat of each file, or a LIST for each URL; the first rows of up to 20 files.
    """
    files = find_any_files(paths, format, storage_options=storage_options, is_continued=True)
    numbers = dict.fromkeys(len(files) * n // _MOST_FILES for n in range(_MOST_FILES))
    chosen = [files[number] for number in numbers]
    inspection = inspect_files(chosen, format, csv=csv, json=json)
    _check_has_rows(inspection, chosen)
    declared = _paths_of(paths, inspection.format, files, storage_options)
    source = [
        f"paths = {_text(declared[0])}" if len(declared) == 1 else f"paths = {_texts(declared)}",
        f"format = {_text(inspection.format)}",
        *_notation(inspection, csv or {}, json or {}),
    ]
    source += [
        "# An empty folder is an error, unless another job empties it.",
        "# may_be_empty = true",
    ]
    size = human_size(sum(one.size_bytes for one in files))
    looked_at = f"{counted(len(chosen), 'file')} of {len(files):,}, {size}"
    return _drafted(
        _Found(
            source=source,
            window=(
                "# Other content at the path of a file that was read is kept back, unless it goes on with",
                '# the former one. "path": it replaces the rows; "id": it is a file of its own, as is a copy.',
                '# supersede = "path"',
            ),
            schema=inspection.schema,
            described=_of_files(inspection.format, looked_at),
            inspection=inspection,
            remarks=_left_out(paths, files),
        ),
        into or f"lake/{_name_of(paths[0])}",
    )


def _check_has_rows(inspection: Inspection, files: Sequence[RawFile]) -> None:
    """Check that there was a row to look at.

    Raises:
        InvalidInputError: There was none.
    """
    if inspection.format in ("csv", "json") and not inspection.row_count:
        raise InvalidInputError(
            f"{files[0].location} has no row{' below its header' * (inspection.format == 'csv')}.",
            hint="Look at files with rows. If the first line is a row, add --no-header.",
        )


def _paths_of(
    paths: Sequence[str],
    format: FileFormat,  # noqa: A002 - the word of the option
    files: Sequence[RawFile],
    storage_options: Mapping[str, str] | None,
) -> Sequence[str]:
    """Return paths that lead to these files with the declared format.

    A folder leads to the files whose suffix names the format; others need a pattern.
    """
    wanted = {file.location for file in files}
    declared: list[str] = []
    for path in paths:
        try:
            _, found = find_files([path], format, storage_options=storage_options)
        except InvalidInputError:
            found = ()
        if found and {file.location for file in found} <= wanted:
            declared.append(path)
            continue
        below = [file.location for file in find_any_files([path], storage_options=storage_options)]
        suffixes = sorted({PurePosixPath(location).suffix for location in below})
        declared += [f"{path.rstrip('/')}/**/*{suffix}" for suffix in suffixes]
    return declared


# Parts of notations that are declared where they differ from the default, in this order.
_PARTS_OF_CSV = (
    *("has_header", "delimiter", "quote", "escape", "encoding", "line_end", "skip", "comment"),
    *(
        "trim",
        "skip_empty",
        "ragged",
        "null_text",
        "nulls",
        "decimal",
        "thousands",
        "dates",
        "time_zone",
        "exact",
        "names",
    ),
)
_PARTS_OF_JSON = ("records", "inside", "encoding", "names", "texts")
_ABOUT_PARTS = {
    "nulls": "Words for null in columns of numbers, dates, times and booleans; in text they are text.",
    "skip_empty": "Lines whose cells are all empty are left out.",
    "ragged": "Lines with fewer cells end in nulls, and empty cells beyond the header are left out.",
    "dates": "Formats of dates and times, as of Python's strptime; those of ISO 8601 need none.",
    "time_zone": "Some times have no zone. They are read in this one: correct it now.",
    "exact": "Numbers that a type would change, such as 007, are rejected; see the types below.",
    "texts": "Fields with values of several types, which become text.",
    "encoding": "The text is not UTF-8.",
}


def _notation(
    inspection: Inspection, csv: Mapping[str, Any], json: Mapping[str, Any]
) -> Sequence[str]:
    """Return the lines that declare how files are written."""
    options, parts, given = {
        "csv": (inspection.csv, _PARTS_OF_CSV, csv),
        "json": (inspection.json, _PARTS_OF_JSON, json),
    }.get(inspection.format, (None, (), {}))
    if options is None:
        return []
    default = type(options)()
    lines = []
    for name in parts:
        value = getattr(options, name)
        if value != getattr(default, name) or name in given:
            if name in _ABOUT_PARTS:
                lines.append(f"# {_ABOUT_PARTS[name]}")
            lines.append(f"{inspection.format}.{name} = {_value(value)}")
    return lines


def _value(value: object) -> str:
    """Return a value for TOML."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Mapping():
            pairs = (f"{_text(key)} = {_text(text)}" for key, text in value.items())
            return "{" + ", ".join(pairs) + "}"
        case str():
            return _text(value)
        case Sequence():
            return _texts(value)
    raise TypeError(f"A notation has no {type(value).__name__}.")


def draft_of_archive(
    storage: str,
    *,
    what: str,
    format: FileFormat | None = None,  # noqa: A002 - the word of the option
    where: str | None = None,
    index: str | None = None,
    into: str | None = None,
    csv: Mapping[str, Any] | None = None,
    json: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> str:
    """Return a declaration for raw files of an archive.

    Raises:
        RecordNotFoundError: The archive has no such file.

    Cost:
        The query of the index, and the newest files, up to 20.
    """
    with open_archive(storage, index=index, storage_options=storage_options) as archive:
        records = _newest(archive, what, where)
        if not records:
            raise RecordNotFoundError(
                f"The archive {storage} has no file of {what!r}.",
                hint="Give --what as it was pushed, and --where, or leave that out.",
            )
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for number, record in enumerate(records):
                name = record.path.rpartition("/")[2]
                path = Path(folder, f"{number:03d}-{name}"[:200])
                with archive.open_record(record) as content:
                    path.write_bytes(content.read())
                paths.append(path)
            inspection = inspect_files(find_any_files(paths, format), format, csv=csv, json=json)
    source = [
        f"storage = {_text(storage)}",
        f"what = {_text(what)}",
        f"format = {_text(inspection.format)}",
    ]
    if where is not None:
        source.append(f"where = {_text(where)}")
    if index is not None:
        source.append(f"index = {_text(index)}")
    source += _notation(inspection, csv or {}, json or {})
    day = min(record.start for record in records).astimezone(dt.UTC).date()
    window = [
        '# The files of a time; end is now. A window such as "-7d" keeps each search short.',
        f"start = {day}",
        '# Whether a file replaces an earlier one: by "path", by "span", or never ("id").',
        '# supersede = "path"',
    ]
    looked_at = f"the newest {counted(len(records), 'file')}"
    return _drafted(
        _Found(
            source=source,
            window=window,
            schema=inspection.schema,
            described=_of_files(inspection.format, looked_at),
            inspection=inspection,
        ),
        into or f"lake/{_name_of(what)}",
    )


def _newest(archive: Archive, what: str, where: str | None) -> Sequence[ArchiveRecord]:
    """Return the newest files: the recent ones, else those of all time."""
    now = dt.datetime.now(dt.UTC)
    records: deque[ArchiveRecord] = deque(maxlen=_MOST_FILES)
    for start in (now - _RECENT, 0):
        if not records:
            records.extend(archive.list(what, where=where, start=start, end=now))
    return records


def draft_of_table(
    table: str, *, into: str | None = None, spark: SparkSession | None = None
) -> str:
    """Return a declaration for a table or view of Spark.

    Args:
        table: Its name, as Spark spells it.
        into: The dataset, as LOCATION/NAME; by default `lake/` and the last part of the name.
        spark: The session; None for the running one, else a new one.

    Raises:
        NotFoundError: There is no such table.
        SchemaMismatchError: A column has a type that Lakebed lacks.

    Cost:
        Some calls of the catalog.
    """
    found = open_source_table(spark, table=table, query=None, where=None, time=None)
    times = _times_of(found.schema)
    time = _text(next(iter(times), "COLUMN"))
    source = [
        f"table = {_text(table)}",
        "# Rows to read, in Spark's SQL.",
        "# where = \"place <> 'test'\"",
        "# Read a window in place of the whole table: this column, with start in [ingest].",
        f"# time = {time}",
    ]
    window = [
        "# With time in [source]: whole days in UTC, each of which replaces its earlier rows.",
        '# start = "-7d"',
    ]
    return _drafted(
        _Found(
            source=source,
            window=window,
            schema=found.schema,
            described=f"the table {table} of Spark",
        ),
        into or f"lake/{_name_of(table.replace('`', '').rpartition('.')[2])}",
    )


def _of_files(
    format: FileFormat,  # noqa: A002 - the word of the option
    looked_at: str,
) -> str:
    return f"raw files of {format}, drafted by looking at {looked_at}"


def _drafted(found: _Found, into: str) -> str:
    name = into.rstrip("/").rpartition("/")[2]
    check_dataset_name(name)
    schema = json_codec.dumps(
        schema_to_avro(replace(found.schema, name="row")), indent=2, ensure_ascii=False
    )
    literal = f"'''\n{schema}\n'''" if "'''" not in schema else _text(schema)
    lines = [
        f"# A pipeline for {found.described}.",
        *(f"# {_one_line(remark)}" for remark in _remarks(found)),
        "# Plan it:  lakebed run FILE --dry-run      Keys for editors:  lakebed run --schema",
        "",
        "# The age from which on the last successful run is too old, for `lakebed run FILE --check`",
        "# and `lakebed report`.",
        '# max_age = "26h"',
        "",
        "[source]",
        *found.source,
        "",
        "[dataset]",
        f"into = {_text(into)}",
        *(_ABOUT_INFERRED if found.is_of_files else _ABOUT_COLUMNS),
        *_notes(found),
        f"schema = {literal}",
        *_partitions(found),
        "",
        "[ingest]",
        *found.window,
        *(_RULES_OF_FILES if found.is_of_files else _RULES_OF_TABLES),
        "",
        "# Checks that every write of the dataset must pass; see docs/checks.md.",
        "# [checks]",
        '# sane = {rows = "amount >= 0", on_failure = "quarantine"}',
        '# ids = {unique = ["id"]}',
        "",
        "# Merge the small files of a partition when it has so many.",
        "[layout]",
        "min_files = 8",
        "",
        "# Show the dataset to other engines.",
        "# [publish]",
        "# delta = true",
        "# iceberg = true",
        f'# hive = "lake.{name}"',
        "",
        "# Delete what is too old, or not wanted.",
        "# [retention]",
        '# keep = "400d"',
        "# delete_where = \"place = 'test'\"",
        "",
        "# Delete the files of versions that are older; until then each can be read and restored.",
        "[cleanup]",
        'older_than = "7d"',
    ]
    return "".join(f"{line}\n" for line in lines)


def _remarks(found: _Found) -> Sequence[str]:
    seen = () if found.inspection is None else found.inspection.remarks
    return (*seen, *found.remarks)


def _left_out(paths: Sequence[str], files: Sequence[RawFile]) -> Sequence[str]:
    """Name the entries of folders that no run will read."""
    passed = passed_over(paths, files)
    if not passed:
        return ()
    named = ", ".join(f"{path} ({kind})" for path, kind in list(passed.items())[:_MOST_NAMED])
    more = f" and {len(passed) - _MOST_NAMED:,} more" if len(passed) > _MOST_NAMED else ""
    return (f"Not read: {named}{more}.",)


def _notes(found: _Found) -> list[str]:
    """Return what was seen in fields, as comments."""
    if found.inspection is None or not found.inspection.notes:
        return []
    lines = [
        f"#   {_one_line(name)}: {_one_line('; '.join(texts))}"
        for name, texts in found.inspection.notes.items()
    ]
    return ["# What was seen in the fields:", *lines]


def _one_line(text: str) -> str:
    """Return a text for a comment: of one line, without control characters."""
    return visible(" ".join(text.split()))


def _partitions(found: _Found) -> list[str]:
    """Return the lines that partition by a time of arrival, if there is one."""
    times = _times_of(found.schema)
    arrivals = [name for name in times if _is_arrival(name, found)]
    if not arrivals or len(found.schema.names) < 2:
        of_times = (
            f"# These hold dates or times of other kinds, or too many days: {', '.join(times)}."
            if times
            else "# No field is a date or a time."
        )
        return [
            of_times,
            "# With a time of arrival, partitions by day make queries of some days quick, and",
            '# retention cheap: partition_by = "date(FIELD)"',
        ]
    first = arrivals[0]
    others = [name for name in times if name != first]
    of_others = f" Other fields with a time: {', '.join(others)}." if others else ""
    call = field_text(first) if times[first] is Kind.DATE else f"date({field_text(first)})"
    return [
        f"# A directory for each day.{_one_line(of_others) and ' ' + _one_line(of_others)}",
        f"partition_by = {_text(call)}",
    ]


_MOST_DAYS = 400  # partitions of a first run; each has a directory and a file
_OTHER_TIME = re.compile(
    r"birth|born|\bdob\b|_dob|dob_|gebur|naiss|nacim|death|died|expir|valid|due|until|deadline|founded",
    re.IGNORECASE,
)


def _is_arrival(name: str, found: _Found) -> bool:
    """Return whether a field may hold the time at which its row came, and has few enough days."""
    if _OTHER_TIME.search(name):
        return False
    if found.inspection is None or name not in found.inspection.days:
        return True  # of a table, or of a file with a schema
    days = found.inspection.days[name]
    years = [int(day[:4]) for day in days if day[:4].isdecimal()]
    return bool(days) and len(days) <= _MOST_DAYS and min(years, default=0) >= 1970


def _times_of(schema: Schema) -> dict[str, Kind]:
    """Return the types of the fields that hold times, by name."""
    return {
        field.name: field.type.kind
        for field in schema
        if isinstance(field.type, Primitive) and field.type.kind in TIMES
    }


def _text(value: str) -> str:
    """Return a text for TOML, whose escapes are those of JSON."""
    return json_codec.dumps(value, ensure_ascii=False)


def _texts(values: Sequence[str]) -> str:
    return "[" + ", ".join(map(_text, values)) + "]"


def _name_of(path: str) -> str:
    """Return a name for the dataset: that of a folder, or the beginning of that of a file."""
    parts = [part for part in os.fspath(path).split("/") if part and not set(part) & set("*?[")]
    if parts and not parts[-1].strip("."):  # such as "." and "..", seen from the working directory
        parts = str(Path(path).resolve()).split("/")
    name = re.sub(r"[^A-Za-z0-9+_-]+", "_", parts[-1].partition(".")[0]).strip("_") if parts else ""
    if not name:
        raise InvalidInputError(
            f"{path!r} gives no name for the dataset.", hint="Give --into LOCATION/NAME."
        )
    return name[:MAX_DATASET_NAME_LENGTH]
