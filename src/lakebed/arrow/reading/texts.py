"""Types of texts in raw files."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable

from lakebed.model.schema import Kind

MAX_EXACT = 2**53  # up to here a double holds every integer
_MAX_DIGITS = 17  # of a double; more of them are lost

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"-?(?P<digits>(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2}| ?UTC| ?GMT)?"
)
# Of a number, a date or a time. Most texts have another one.
_BEGINNINGS = frozenset("-.0123456789")
# Codes such as 1E5 are written like numbers; producers write these with a point or a sign.
_CODE = re.compile(r"[0-9]+E[0-9]+")
BOOLEANS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})


def kind_of_text(text: str) -> Kind:
    """Return the narrowest type that holds the text without loss."""
    if text in BOOLEANS:
        return Kind.BOOLEAN
    if text[:1] not in _BEGINNINGS:
        return Kind.STRING
    if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return Kind.LONG
    if _is_double(text):
        return Kind.DOUBLE
    if _DATE.fullmatch(text) and _is_calendar(text):
        return Kind.DATE
    if _TIME.fullmatch(text) and _is_calendar(text):
        return Kind.TIMESTAMP
    return Kind.STRING


def has_zone(text: str) -> bool:
    """Return whether a time names its zone.

    >>> has_zone("2024-01-01 10:00Z"), has_zone("2024-01-01 10:00")
    (True, False)
    """
    match = _TIME.fullmatch(text)
    return match is not None and match["zone"] is not None


def _is_double(text: str) -> bool:
    match = _NUMBER.fullmatch(text)
    if match is None or _CODE.fullmatch(text):
        return False
    digits = match["digits"].replace(".", "").lstrip("0")
    if len(digits) > _MAX_DIGITS:
        return False
    number = float(text)
    # Too large becomes infinity, too small zero.
    return abs(number) != float("inf") and (number != 0 or not digits.strip("0"))


def _is_calendar(text: str) -> bool:
    if text.endswith(("UTC", "GMT")):
        text = f"{text[:-3].rstrip(' ')}Z"
    try:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return False
    return True


# Words that producers write for "no value"; in columns of text they may be values.
NULL_WORDS = frozenset(
    {
        *("NA", "N/A", "n/a", "na", "#N/A", "<NA>", "NULL", "null", "Null", "(null)", "\\N"),
        *(
            "NaN",
            "nan",
            "-nan",
            "NaT",
            "None",
            "none",
            "nil",
            "-",
            "--",
            "---",
            "*",
            ".",
            "..",
            "?",
        ),
        *("...", "n.a.", "N.A.", "#VALUE!", "#DIV/0!", "#REF!", "#NULL!", "unknown", "missing"),
    }
)

NumberNotation = tuple[str, str]
"""The decimal separator of numbers, and that of their groups of three digits."""

PLAIN: NumberNotation = (".", "")
# In the order of preference, where numbers fit several of them.
NOTATIONS: tuple[NumberNotation, ...] = (
    PLAIN,
    (".", ","),
    (",", ""),
    (",", "."),
    (".", " "),
    (",", " "),
    (".", "'"),
)
_GROUPED = {
    notation: re.compile(
        rf"-?[1-9][0-9]{{0,2}}(?:{re.escape(notation[1])}[0-9]{{3}})+(?:{re.escape(notation[0])}[0-9]*)?"
    )
    for notation in NOTATIONS
    if notation[1]
}
_FORMED = re.compile(r"-?[0-9][0-9.,' ]*")


def kind_of_number(text: str, notation: NumberNotation) -> Kind:
    """Return the type of a number in a notation; text if it is none.

    >>> str(kind_of_number("1.234,5", (",", "."))), str(kind_of_number("1,5", (".", ",")))
    ('double', 'string')
    """
    decimal, thousands = notation
    if thousands and _GROUPED[notation].fullmatch(text):
        text = text.replace(thousands, "")
    if decimal == ",":
        if "." in text:
            return Kind.STRING
        text = text.replace(",", ".", 1)
    kind = kind_of_text(text)
    return kind if kind in (Kind.LONG, Kind.DOUBLE) else Kind.STRING


def needs_notation(text: str, notation: NumberNotation) -> bool:
    """Return whether a number proves a notation: no other one gives it a meaning.

    >>> needs_notation("1,234", (".", ",")), needs_notation("1,234,567", (".", ","))
    (False, True)
    """
    return kind_of_number(text, notation) is not Kind.STRING and all(
        kind_of_number(text, other) is Kind.STRING
        for other in NOTATIONS
        if other != notation and not _includes(notation, other)
    )


def _includes(notation: NumberNotation, other: NumberNotation) -> bool:
    """Return whether two notations differ in groups alone, so that they do not contradict."""
    return notation[0] == other[0]


def is_formed_number(text: str) -> bool:
    """Return whether a text is a number in some notation other than the plain one."""
    return _FORMED.fullmatch(text) is not None and any(
        kind_of_number(text, notation) is not Kind.STRING for notation in NOTATIONS[1:]
    )


_DAYS = {
    "%d.%m.%Y": r"[0-9]{1,2}\.[0-9]{1,2}\.[0-9]{4}",
    "%d/%m/%Y": r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}",
    "%m/%d/%Y": r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}",
    "%d-%m-%Y": r"[0-9]{1,2}-[0-9]{1,2}-[0-9]{4}",
    "%m-%d-%Y": r"[0-9]{1,2}-[0-9]{1,2}-[0-9]{4}",
    "%Y/%m/%d": r"[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}",
    "%Y.%m.%d": r"[0-9]{4}\.[0-9]{1,2}\.[0-9]{1,2}",
    "%d-%b-%Y": r"[0-9]{1,2}-[A-Za-z]{3}-[0-9]{4}",
    "%d %b %Y": r"[0-9]{1,2} [A-Za-z]{3} [0-9]{4}",
    "%b %d, %Y": r"[A-Za-z]{3} [0-9]{1,2}, [0-9]{4}",
    "%b %d %Y": r"[A-Za-z]{3} [0-9]{1,2} [0-9]{4}",
    "%d %B %Y": r"[0-9]{1,2} [A-Za-z]{4,9} [0-9]{4}",
    "%B %d, %Y": r"[A-Za-z]{4,9} [0-9]{1,2}, [0-9]{4}",
}
_CLOCKS = {
    "": "",
    " %H:%M": r" [0-9]{1,2}:[0-9]{2}",
    " %H:%M:%S": r" [0-9]{1,2}:[0-9]{2}:[0-9]{2}",
    " %H:%M:%S.%f": r" [0-9]{1,2}:[0-9]{2}:[0-9]{2}\.[0-9]{1,6}",
    " %I:%M %p": r" [0-9]{1,2}:[0-9]{2} [AaPp][Mm]",
    " %I:%M:%S %p": r" [0-9]{1,2}:[0-9]{2}:[0-9]{2} [AaPp][Mm]",
}
_FORMATS = {
    f"{day}{clock}": re.compile(f"{day_shape}{clock_shape}")
    for day, day_shape in _DAYS.items()
    for clock, clock_shape in _CLOCKS.items()
} | {
    f"%Y-%m-%d{clock}": re.compile(f"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{_CLOCKS[clock]}")
    for clock in (" %I:%M %p", " %I:%M:%S %p")
}
DATE_FORMATS: tuple[str, ...] = tuple(_FORMATS)
# One test in place of one for each format: most texts begin like none of them.
_ANY_DAY = re.compile("|".join([*_DAYS.values(), "[0-9]{4}-[0-9]{2}-[0-9]{2}"]))


def formats_of_date(text: str, formats: Iterable[str] = DATE_FORMATS) -> frozenset[str]:
    """Return those of some formats, as of `strptime`, that a text has.

    >>> sorted(formats_of_date("1/2/2024")), sorted(formats_of_date("13/2/2024"))
    (['%d/%m/%Y', '%m/%d/%Y'], ['%d/%m/%Y'])
    """
    if formats is DATE_FORMATS and not _ANY_DAY.match(text):
        return frozenset()
    return frozenset(
        format_
        for format_ in formats
        if (format_ not in _FORMATS or _FORMATS[format_].fullmatch(text))
        and _has_format(text, format_)
    )


def _has_format(text: str, format_: str) -> bool:
    try:
        return dt.datetime.strptime(text, format_).year >= 1000
    except ValueError:
        return False
