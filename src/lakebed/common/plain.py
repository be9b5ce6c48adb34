"""Values as text for people and programs: one form in tables, JSON, CSV and on pages.

- times are ISO 8601, in UTC with a final `Z`; a wall clock without zone has no `Z`; dates are ISO;
- decimals are text, so that no digits are lost; bytes are base64;
- `NaN`, `Infinity` and `-Infinity` are text, since JSON has no such numbers;
- null is `null` in JSON and an empty cell in CSV, where the empty text is `""`;
- lists and records in a cell of CSV or of a table are JSON;
- keys of maps are text, in these forms.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any


def to_plain(value: object) -> Any:
    """Convert a value for JSON, in the forms that the module describes."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _name_of(value)
        case decimal.Decimal():
            return str(value)
        case dt.datetime():
            return _format_time(value)
        case dt.date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case Mapping():
            return {to_text(to_plain(key)): to_plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [to_plain(entry) for entry in value]
    return str(value)


def to_json(value: object) -> str:
    """Return a plain value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False)


def to_text(value: object) -> str:
    """Return a plain value as the text of a cell."""
    match value:
        case str():
            return value
        case bool() | None | Mapping() | list():
            return to_json(value)
    return str(value)


def to_cell(value: object) -> str:
    """Return a plain value as a cell of CSV; the csv module would write null and empty text alike.

    >>> to_cell(None), to_cell(""), to_cell("a, b"), to_cell([True, 1])
    ('', '""', '"a, b"', '"[true, 1]"')
    """
    if value is None:
        return ""
    text = to_text(value)
    if text and not any(letter in text for letter in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _name_of(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _format_time(moment: dt.datetime) -> str:
    if moment.tzinfo is None:
        return moment.isoformat()
    return moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z"
