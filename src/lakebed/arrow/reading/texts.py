"""Types of texts in raw files."""

from __future__ import annotations

import datetime as dt
import re

from lakebed.model.schema import Kind

MAX_EXACT = 2**53  # up to here a double holds every integer
_MAX_DIGITS = 17  # of a double; more of them are lost

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"-?(?P<digits>(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def kind_of_text(text: str) -> Kind:
    """Return the narrowest type that holds the text without loss."""
    if text in ("true", "false"):
        return Kind.BOOLEAN
    if _WHOLE.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return Kind.LONG
    if _is_double(text):
        return Kind.DOUBLE
    if _DATE.fullmatch(text) and _is_calendar(text):
        return Kind.DATE
    if _TIME.fullmatch(text) and _is_calendar(text):
        return Kind.TIMESTAMP
    return Kind.STRING


def _is_double(text: str) -> bool:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return False
    digits = match["digits"].replace(".", "").lstrip("0")
    if len(digits) > _MAX_DIGITS:
        return False
    number = float(text)
    # Too large becomes infinity, too small zero.
    return abs(number) != float("inf") and (number != 0 or not digits.strip("0"))


def _is_calendar(text: str) -> bool:
    try:
        moment = dt.datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return False
    return True
