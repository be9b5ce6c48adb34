"""Formats of dates and times, as far as they are computed without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakebed.model.formulas.typed import duck_text

# Runs of one letter, texts in quotes, and all between them.
_PIECES = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>[^A-Za-z'])")
_REFUSED_SIGNS = frozenset("[]{}#")

_TWO = "lpad(CAST({value} AS VARCHAR), 2, '0')"


def _number(value: str) -> dict[int, str]:
    """Return a number as one letter writes it, and as two do."""
    return {1: f"CAST({value} AS VARCHAR)", 2: _TWO.format(value=value)}


_HALF = "((hour({0}) + 11) % 12 + 1)"
# By the letter and how often it stands: what DuckDB writes.
_WRITTEN: dict[str, dict[int, str]] = {
    "y": {
        1: "CAST(year({0}) AS VARCHAR)",
        2: "right('0' || CAST(abs(year({0})) AS VARCHAR), 2)",
        4: "CASE WHEN year({0}) > 9999 THEN '+' WHEN year({0}) < 0 THEN '-' ELSE '' END "
        "|| CASE WHEN abs(year({0})) > 9999 THEN CAST(abs(year({0})) AS VARCHAR) "
        "ELSE lpad(CAST(abs(year({0})) AS VARCHAR), 4, '0') END",
    },
    "M": {**_number("month({0})"), 3: "strftime({0}, '%b')", 4: "strftime({0}, '%B')"},
    "d": _number("day({0})"),
    "D": {**_number("dayofyear({0})"), 3: "lpad(CAST(dayofyear({0}) AS VARCHAR), 3, '0')"},
    "H": _number("hour({0})"),
    "h": _number(_HALF),
    "K": _number("(hour({0}) % 12)"),
    "k": _number("((hour({0}) + 23) % 24 + 1)"),
    "m": _number("minute({0})"),
    "s": _number("second({0})"),
    "a": {1: "CASE WHEN hour({0}) < 12 THEN 'AM' ELSE 'PM' END"},
    "E": {**dict.fromkeys((1, 2, 3), "strftime({0}, '%a')"), 4: "strftime({0}, '%A')"},
    "Q": _number("quarter({0})"),
    "X": dict.fromkeys((1, 2, 3), "'Z'"),
    "S": {
        size: f"left(lpad(CAST(microsecond({{0}}) % 1000000 AS VARCHAR), 6, '0') || '000', {size})"
        for size in range(1, 10)
    },
}  # fmt: skip
del _WRITTEN["D"][2]  # of days of a year with three digits, Java raises an error

# What a part of a text is, by letters of a format.
_READ: dict[str, dict[int, tuple[str, str]]] = {
    "y": {4: ("year", r"[0-9]{4}|\+[0-9]{5,6}|-[0-9]{4,6}")},
    "M": {1: ("month", "[0-9]{1,2}"), 2: ("month", "[0-9]{2}")},
    "d": {1: ("day", "[0-9]{1,2}"), 2: ("day", "[0-9]{2}")},
    "H": {1: ("hour", "[0-9]{1,2}"), 2: ("hour", "[0-9]{2}")},
    "m": {1: ("minute", "[0-9]{1,2}"), 2: ("minute", "[0-9]{2}")},
    "s": {1: ("second", "[0-9]{1,2}"), 2: ("second", "[0-9]{2}")},
    "S": {size: ("fraction", f"[0-9]{{1,{size}}}") for size in range(1, 10)},
}


class UnknownFormatError(ValueError):
    """A format that is not computed without Spark."""


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the letters of a format, with an empty text before them, and the texts between."""
    at = 0
    while at < len(text):
        found = _PIECES.match(text, at)
        if found is None or found["other"] in _REFUSED_SIGNS:
            raise UnknownFormatError(f"{text[at:]!r} in a format")
        at = found.end()
        if found["letters"]:
            yield "", found["letters"]
        elif found["other"]:
            yield found["other"], ""
        else:
            yield found["quoted"].replace("''", "'") or "'", ""


def written_by(text: str) -> str:
    """Return the expression of DuckDB that writes a time `{0}` in a format."""
    parts = []
    for between, letters in _pieces(text):
        if between:
            parts.append(duck_text(between).replace("{", "{{").replace("}", "}}"))
            continue
        template = _WRITTEN.get(letters[0], {}).get(len(letters))
        if template is None:
            raise UnknownFormatError(f"{letters} in a format")
        parts.append(f"({template})")
    # A format without letters gives NULL for NULL, too.
    return "(" + " || ".join(["left(CAST({0} AS VARCHAR), 0)", *parts]) + ")"


def read_by(text: str) -> tuple[str, list[str]]:
    """Return the pattern of texts in a format, and the names of its groups."""
    pattern, names, last = "", [], ""
    for between, letters in _pieces(text):
        if between:
            pattern += re.escape(between)
            last = ""
            continue
        name, part = _READ.get(letters[0], {}).get(len(letters), ("", ""))
        is_adjacent = last and (len(letters) == 1 or last in ("S", "1") or letters[0] == "S")
        if not name or name in names or (is_adjacent and not (last == "s" and letters[0] == "S")):
            raise UnknownFormatError(f"{letters} in a format that is read")
        pattern += f"({part})"
        names.append(name)
        last = "1" if len(letters) == 1 and letters[0] != "S" else letters[0]
    if not {"year", "month"} <= set(names):
        raise UnknownFormatError("a format without year and month")
    return pattern, names
