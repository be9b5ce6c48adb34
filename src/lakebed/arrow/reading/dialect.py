"""Notation of text files: how CSV and JSON of a source are written."""

from __future__ import annotations

import codecs
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from lakebed.errors import InvalidInputError
from lakebed.model.names import check_field_name

Ragged = Literal["reject", "fill"]
RecordForm = Literal["lines", "array", "concatenated"]
_LINE_ENDS = ("\n", "\r")
_DECIMALS = (".", ",")
_MOMENT = dt.datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    r"""Notation of a CSV file.

    Attributes:
        has_header: True if the first line, after those that are skipped, names the columns.
        delimiter: Text of one character.
        null_text: Text that stands for null in every column, besides the empty cell.
        nulls: Words that stand for null in columns of numbers, dates, times and booleans; in a
            column of text they are text.
        encoding: Encoding of the text, such as `cp1252`; a byte order mark takes precedence.
        quote: Character around cells that hold a delimiter or a newline; empty for none. Two of
            them inside of such a cell stand for one.
        escape: Character that makes a quote, a delimiter, a newline or itself part of a cell, as
            Spark and MySQL write it; empty for none.
        skip: Number of lines before the header that are left out.
        comment: Beginning of lines that are left out; empty for none.
        trim: True to leave out blanks around cells.
        skip_empty: True to leave out lines whose cells are all empty, as spreadsheets write them.
        ragged: Treatment of lines with another number of cells than the header: `reject`, or `fill`
            missing cells with nulls and leave out empty cells at the end.
        decimal: Decimal separator, `.` or `,`.
        thousands: Separator between groups of three digits; empty for none.
        line_end: End of lines: `\n`, which includes `\r\n`, or `\r`.
        dates: Formats of dates and times by field, as of `strptime`; ISO 8601 needs none.
        time_zone: Zone of times that have none; empty for UTC.
        exact: True to reject a number that its type would change, such as `007`, `0x1F`, or one of
            more digits than a double holds, and `1` for true; False to take what Arrow reads.
        names: Names of fields by the names in the header.

    >>> CsvOptions(delimiter=";").has_header
    True
    """

    has_header: bool = True
    delimiter: str = ","
    null_text: str = ""
    nulls: Sequence[str] = ()
    encoding: str = "utf-8"
    quote: str = '"'
    escape: str = ""
    skip: int = 0
    comment: str = ""
    trim: bool = False
    skip_empty: bool = False
    ragged: Ragged = "reject"
    decimal: str = "."
    thousands: str = ""
    line_end: str = "\n"
    dates: Mapping[str, str] = field(default_factory=dict)
    time_zone: str = ""
    exact: bool = False
    names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nulls", tuple(self.nulls))
        if len(self.delimiter) != 1:
            raise InvalidInputError(
                f"Delimiter {self.delimiter!r} is not one character.", hint="Give one."
            )
        for name, text in {
            "quote": self.quote,
            "escape": self.escape,
            "thousands": self.thousands,
        }.items():
            if len(text) > 1:
                raise InvalidInputError(
                    f"{name} is {text!r}, which is more than one character.",
                    hint="Give one character, or an empty text for none.",
                )
        _check_differs(self)
        check_encoding(self.encoding)
        if self.skip < 0:
            raise InvalidInputError(f"skip is {self.skip}.", hint="Give a number of lines.")
        _check_choice("ragged", self.ragged, get_args(Ragged))
        _check_choice("line_end", self.line_end, _LINE_ENDS)
        _check_choice("decimal", self.decimal, _DECIMALS)
        for format_ in self.dates.values():
            _check_date_format(format_)
        if self.time_zone:
            check_time_zone(self.time_zone)
        for name in self.names.values():
            check_field_name(name)

    @property
    def is_plain(self) -> bool:
        """True if cells are those of RFC 4180 with another delimiter at most, typed as they are."""
        return self.is_split_plainly and not (
            self.nulls
            or self.dates
            or self.time_zone
            or self.thousands
            or self.decimal != "."
            or self.ragged != "reject"
        )

    @property
    def is_split_plainly(self) -> bool:
        """True if lines and cells of a file are those of RFC 4180, with another delimiter at most."""
        return (
            self.quote == '"'
            and self.delimiter.isascii()
            and not (self.escape or self.trim or self.skip or self.comment or self.skip_empty)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonOptions:
    """Notation of a JSON file.

    Attributes:
        records: Position of the objects: one on each of the `lines`, as elements of an `array`, or
            `concatenated`, with or without blanks and newlines between and inside of them.
        inside: Name of the member that holds the array, if an object is around it.
        encoding: Encoding of the text; a byte order mark takes precedence.
        names: Names of fields by the names in the objects, at any depth.
        texts: Paths of fields that take a value of any type as its JSON text, such as `user.id`;
            `[]` stands for the elements of a list.

    >>> JsonOptions(records="array").inside
    ''
    """

    records: RecordForm = "lines"
    inside: str = ""
    encoding: str = "utf-8"
    names: Mapping[str, str] = field(default_factory=dict)
    texts: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "texts", tuple(self.texts))
        _check_choice("records", self.records, get_args(RecordForm))
        check_encoding(self.encoding)
        if self.inside and self.records != "array":
            raise InvalidInputError(
                f"inside is {self.inside!r}, but records is {self.records!r}.",
                hint='Set records = "array", or leave inside out.',
            )
        for name in self.names.values():
            check_field_name(name)

    @property
    def is_plain(self) -> bool:
        """True if each line is an object whose names and values are taken as they are."""
        return self.records == "lines" and not (self.names or self.texts)


def parts_of(options: CsvOptions | JsonOptions) -> dict[str, Any]:
    """Return all parts of a notation by their names.

    >>> parts_of(JsonOptions())["records"]
    'lines'
    """
    return {entry.name: getattr(options, entry.name) for entry in fields(options)}


def check_encoding(name: str) -> str:
    """Return the name of an encoding of text that Python knows.

    Raises:
        InvalidInputError: Python does not know it, or it is not one of text.
    """
    try:
        is_text = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        is_text = False
    if not is_text:
        raise InvalidInputError(
            f"Unknown encoding {name!r}.",
            hint="Give 'utf-8', 'cp1252' (Western Europe, includes Latin-1), 'utf-16', or another "
            "name of Python's codecs.",
        )
    return name


def check_time_zone(name: str) -> str:
    """Return the name of a time zone.

    Raises:
        InvalidInputError: There is no such zone.
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise InvalidInputError(
            f"Unknown time zone {name!r}.", hint="Give a name such as 'Europe/Berlin' or 'UTC'."
        ) from exc
    return name


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidInputError(
            f"{name} is {value!r}.", hint=f"Give {' or '.join(map(repr, choices))}."
        )


_YEAR = re.compile("(?<!%)(?:%%)*%[YyGcxDF]")


def _check_date_format(format_: str) -> None:
    """Check that `strptime` reads a moment which is written in a format, with its year.

    Raises:
        InvalidInputError: It does not.
    """
    if _YEAR.search(format_) is None:  # `strptime` would take 1900
        raise InvalidInputError(
            f"{format_!r} has no year.",
            hint="Give a format with %Y or %y, or read the field as text.",
        )
    try:
        dt.datetime.strptime(_MOMENT.strftime(format_), format_)
    except (ValueError, re.error) as exc:  # a part that occurs twice fails as an expression
        raise InvalidInputError(
            f"{format_!r} is no format of dates and times.",
            hint="Give one as of strptime in Python, such as '%d.%m.%Y %H:%M:%S'.",
        ) from exc


def _check_differs(options: CsvOptions) -> None:
    """Check that no character has two meanings.

    Raises:
        InvalidInputError: Two of them are the same.
    """
    roles = {
        "delimiter": options.delimiter,
        "quote": options.quote,
        "escape": options.escape,
    }
    used: dict[str, str] = {}
    for name, text in roles.items():
        if text in ("\n", "\r"):
            raise InvalidInputError(f"{name} is a line end.", hint="Give another character.")
        if text and text in used:
            raise InvalidInputError(
                f"{name} and {used[text]} are both {text!r}.", hint="Give another character."
            )
        used[text] = name
    if options.thousands and options.thousands == options.decimal:
        raise InvalidInputError(
            f"thousands and decimal are both {options.decimal!r}.", hint="Give another character."
        )
