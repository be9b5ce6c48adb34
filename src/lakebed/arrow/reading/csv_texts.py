"""Texts of CSV: cells that Arrow's parser and its casts read alike, and the ends of records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.reading.blocks import NEWLINE, newlines_of
from lakebed.arrow.reading.csv import moments_of, to_timestamps
from lakebed.arrow.reading.date_formats import has_time, read_dates
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.schema import TEXT, Decimal, Kind, Primitive, Type
from lakebed.model.values import TIMES

_QUOTE, _RETURN = ord('"'), ord("\r")
_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = "([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?"
_NUMBER = "-?[0-9]+([.][0-9]+)?([eE][+-]?[0-9]+)?"
# Arrow's CSV parser and its casts differ in others, such as blanks around a number.
_PLAIN_FORMS: Mapping[Kind | int, str] = {
    8: "0|-?[1-9][0-9]?",
    16: "0|-?[1-9][0-9]{0,3}",
    Kind.BOOLEAN: "true|false",
    Kind.INT: "0|-?[1-9][0-9]{0,8}",
    Kind.LONG: "0|-?[1-9][0-9]{0,17}",
    Kind.UNSIGNED_LONG: "0|[1-9][0-9]{0,18}",
    Kind.FLOAT: _NUMBER,
    Kind.DOUBLE: _NUMBER,
    Kind.DATE: _DAY,
    Kind.TIMESTAMP: f"{_DAY}([T ]{_CLOCK}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)?",
    Kind.TIMESTAMP_NTZ: f"{_DAY}[T ]{_CLOCK}",
}


def is_utf8(data: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    ends = pa.py_buffer(np.array([0, len(data)], np.int32))
    try:
        text = pa.Array.from_buffers(pa.string(), 1, [None, ends, pa.py_buffer(data)])
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def ends_of_records(data: bytes, delimiter: bytes) -> np.ndarray | None:
    """Return the positions of the newlines that end records; None if some quote is unusual.

    Usual is a quote after a delimiter or newline, one before them, and a pair between these, as in
    RFC 4180.
    """
    array = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    opening, closing = quotes[0::2], quotes[1::2]
    if len(delimiter) != 1:
        return None
    around = np.array([NEWLINE, *delimiter], np.uint8)
    follows_closing = np.zeros(len(opening), bool)  # both stand for a quote in the cell
    follows_closing[1:] = opening[1:] - 1 == closing[: len(opening) - 1]
    if not np.all(np.isin(array[opening - 1], around) | follows_closing | (opening == 0)):
        return None
    after = array[np.minimum(closing + 1, len(array) - 1)]
    precedes_opening = np.zeros(len(closing), bool)
    count = min(len(closing), len(opening) - 1)
    precedes_opening[:count] = opening[1 : count + 1] - 1 == closing[:count]
    if not np.all(np.isin(after, np.append(around, _RETURN)) | precedes_opening):
        return None
    newlines = newlines_of(data)
    return np.asarray(newlines[np.searchsorted(quotes, newlines) % 2 == 0])


def blank_lines(data: bytes, ends: np.ndarray) -> np.ndarray:
    """Return a mask of the records that are empty lines."""
    array = np.frombuffer(data, np.uint8)
    lengths = np.diff(ends, prepend=-1) - 1
    return np.asarray((lengths == 0) | ((lengths == 1) & (array[ends - 1] == _RETURN)))


def has_plain_form(texts: pa.ChunkedArray, kind: Type) -> np.ndarray:
    """Return a mask of the texts that a cast takes as Arrow's CSV parser does; null is one."""
    if kind == TEXT:
        return np.ones(len(texts), bool)
    if isinstance(kind, Decimal):
        form = _plain_form_of(kind)
    else:
        assert isinstance(kind, Primitive)
        form = _PLAIN_FORMS[kind.bits or kind.kind]
    fits = pc.match_substring_regex(texts, f"^({form})$")
    if isinstance(kind, Primitive) and kind.kind in TIMES:
        days = pc.utf8_slice_codeunits(texts, 0, 10)
        real = [day for day in days.unique().to_pylist() if day is not None and _is_day(day)]
        fits = pc.and_(fits, pc.is_in(days, pa.array(real, pa.string())))
    return np.asarray(pc.fill_null(fits, pa.scalar(True)).to_numpy())  # noqa: FBT003 - a value


def _plain_form_of(kind: Decimal) -> str:
    digits = kind.precision - kind.scale
    whole = f"[0-9]{{1,{digits}}}" if digits else "0"
    return f"-?{whole}([.][0-9]{{1,{kind.scale}}})?" if kind.scale else f"-?{whole}"


def _is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def cast_texts(texts: pa.Array, kind: Type, time_zone: str) -> pa.Array:
    """Return texts of a plain form as values.

    Raises:
        pa.ArrowInvalid: A text is out of range, or the clock of the zone skips it.
    """
    if kind == Primitive(Kind.TIMESTAMP):
        return to_timestamps(texts, time_zone)
    return texts.cast(type_to_arrow(kind))


def values_of_dates(texts: pa.Array, kind: Type, format_: str, time_zone: str) -> pa.Array | None:
    """Return texts of a format as values of a type of dates; None for another type or form.

    Raises:
        pa.ArrowInvalid: The clock of the zone skips a time.
    """
    if not format_ or not isinstance(kind, Primitive) or kind.kind not in TIMES:
        return None
    values, is_read = read_dates(texts, format_)
    if np.count_nonzero(is_read) != len(texts) - texts.null_count:
        return None
    if kind == Primitive(Kind.DATE):
        return None if has_time(format_) else values
    local = values.cast(pa.timestamp("us"))
    if kind == Primitive(Kind.TIMESTAMP_NTZ):
        return local
    return moments_of(local, time_zone or "UTC")
