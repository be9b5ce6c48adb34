"""Columns of dates and times in a format, as of `strptime`, read without a call for each text."""

from __future__ import annotations

import datetime as dt
import functools
import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ZERO, _CASE_BIT = ord("0"), 0x20
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_LENGTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_WIDTHS = {"Y": 4, "m": 2, "d": 2, "H": 2, "I": 2, "M": 2, "S": 2, "f": 6, "b": 3, "p": 2}
_DIRECTIVE = re.compile(r"%(.)")
_SAMPLES = [dt.datetime(2001 + n, 1 + n, 28 - n, 2 * n, 59 - n, 4 * n, 7 * n) for n in range(12)]


def iso_texts(texts: pa.Array, format_: str) -> pa.Array:
    """Return dates and times of a format in that of ISO 8601; others stay as they are."""
    values, is_read = read_dates(texts, format_)
    iso = values.cast(pa.string())
    is_other = pa.array(~is_read & texts.is_valid().to_numpy(zero_copy_only=False))
    others = texts.filter(is_other).dictionary_encode()
    if not len(others):
        return iso
    forms = [iso_text(text, format_) or text for text in others.dictionary.to_pylist()]
    return pc.replace_with_mask(iso, is_other, pa.array(forms, pa.string()).take(others.indices))


def iso_text(text: str, format_: str) -> str | None:
    """Return a date or time of a format as ISO 8601; None if it is not of the format.

    >>> iso_text("1.2.2024", "%d.%m.%Y"), iso_text("2024", "%d.%m.%Y")
    ('2024-02-01', None)
    """
    try:
        moment = dt.datetime.strptime(text, format_)
    except ValueError:
        return None
    if moment.year < 1000:  # fewer digits than the format of dates has
        return None
    return moment.isoformat() if has_time(format_) else moment.date().isoformat()


def has_time(format_: str) -> bool:
    """Return whether a format of `strptime` has a time of the day."""
    return re.search("%[HIMSTXRcfp]", format_) is not None


def read_dates(texts: pa.Array, format_: str) -> tuple[pa.Array, np.ndarray]:
    """Read the texts of usual forms.

    Returns:
        Days, or for a format with a time moments without a zone; and a mask of the texts that were
        read. The others are null.
    """
    if has_time(format_):
        return _read(texts, format_)
    encoded = texts.dictionary_encode()  # there are few days
    values, is_read = _read(encoded.dictionary, format_)
    rows = encoded.indices
    is_row_read = np.zeros(len(texts), bool)
    is_valid = rows.is_valid().to_numpy(zero_copy_only=False)
    is_row_read[is_valid] = is_read[rows.drop_null().to_numpy()]
    return values.cast(pa.date32()).take(rows), is_row_read


def _read(texts: pa.Array, format_: str) -> tuple[pa.Array, np.ndarray]:
    """Return moments, and a mask of the texts that were read."""
    values, is_read = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    layout = _layout_of(format_)
    if layout is not None and len(texts):
        texts, rows = _widened(texts, layout)
        if len(rows):
            values[rows], is_read[rows] = layout.moments(_letters_of(texts, rows, layout.size))
    bits = pa.py_buffer(np.packbits(is_read, bitorder="little"))
    moments = [bits, pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.timestamp("us"), len(values), moments), is_read


def _widened(texts: pa.Array, layout: _Layout) -> tuple[pa.Array, np.ndarray]:
    """Return texts whose parts have their largest width if possible, and the numbers of these."""
    sizes = _sizes_of(texts)
    is_shorter = (sizes < layout.size) & (sizes > 0)
    if not is_shorter.any():
        return texts, np.flatnonzero(sizes == layout.size)
    if "f" not in layout.positions:
        # A digit alone is that of a day, month or hour without its zero.
        texts = pc.replace_substring_regex(texts, r"\b([0-9])\b", r"0\1")
        return texts, np.flatnonzero(_sizes_of(texts) == layout.size)
    if layout.positions["f"] + _WIDTHS["f"] < layout.size:
        return texts, np.flatnonzero(sizes == layout.size)
    texts = pc.utf8_rpad(texts, layout.size, "0")
    has_fraction = sizes > layout.positions["f"]
    return texts, np.flatnonzero(has_fraction & (_sizes_of(texts) == layout.size))


def _sizes_of(texts: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.binary_length(texts), pa.scalar(0, pa.int32())))


def _letters_of(texts: pa.Array, rows: np.ndarray, size: int) -> np.ndarray:
    """Return the bytes of texts of the same size, a row for each."""
    _, ends, data = texts.buffers()
    letters = np.frombuffer(data, np.uint8)
    begins = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts)][rows]
    if int(begins[-1]) - int(begins[0]) == (len(begins) - 1) * size:
        return letters[begins[0] : begins[-1] + size].reshape(-1, size)
    return np.asarray(letters[begins[:, None] + np.arange(size)])


@dataclass(frozen=True, slots=True)
class _Layout:
    """Texts of a format whose parts have their largest width.

    Attributes:
        size: Number of bytes.
        positions: Begin of each part, by the letter of its directive.
        literals: Position and byte of what is between the parts.
    """

    size: int
    positions: dict[str, int]
    literals: tuple[tuple[int, int], ...]

    def moments(self, letters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return microseconds since 1970, and a mask of the texts of the format."""
        is_read = np.ones(len(letters), bool)
        for position, byte in self.literals:
            is_read &= letters[:, position] == byte
        parts = {
            name: self._number(letters, name, is_read)
            for name in self.positions
            if name not in "bp"
        }
        if "b" in self.positions:
            parts["m"] = self._month(letters)
        year, month, day = parts["Y"], parts["m"], parts["d"]
        is_read &= (year >= 1000) & (month >= 1) & (month <= 12) & (day >= 1)
        month = np.where(is_read, month, 1)
        is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        is_read &= day <= _MONTH_LENGTHS[month] + ((month == 2) & is_leap)
        hour = parts.get("H", np.int64(0))
        if "I" in self.positions:
            half = letters[:, self.positions["p"]] | _CASE_BIT
            is_read &= (half == ord("a")) | (half == ord("p"))
            is_read &= letters[:, self.positions["p"] + 1] | _CASE_BIT == ord("m")
            is_read &= (parts["I"] >= 1) & (parts["I"] <= 12)
            hour = parts["I"] % 12 + 12 * (half == ord("p"))
        minute, second = parts.get("M", np.int64(0)), parts.get("S", np.int64(0))
        is_read &= (hour < 24) & (minute < 60) & (second < 60)
        seconds = (_days_before(year, month, day) * 24 + hour) * 3600 + minute * 60 + second
        return seconds * 1_000_000 + parts.get("f", np.int64(0)), is_read

    def _number(self, letters: np.ndarray, name: str, is_read: np.ndarray) -> np.ndarray:
        """Return a part as a number; rows where it is none are removed from the mask."""
        begin, number = self.positions[name], np.zeros(len(letters), np.int64)
        for position in range(begin, begin + _WIDTHS[name]):
            digit = letters[:, position] - np.uint8(_ZERO)  # another byte is 10 or more
            is_read &= digit < 10
            number = number * 10 + digit
        return number

    def _month(self, letters: np.ndarray) -> np.ndarray:
        """Return the number of the month of a name; 0 for another text."""
        begin = self.positions["b"]
        name = letters[:, begin : begin + 3].astype(np.int32) | _CASE_BIT
        codes = (name[:, 0] << 16) + (name[:, 1] << 8) + name[:, 2]
        month = np.zeros(len(letters), np.int64)
        for number, text in enumerate(_MONTHS, 1):
            month[codes == int.from_bytes(text.encode(), "big")] = number
        return month


def _days_before(year: np.ndarray, month: np.ndarray, day: np.ndarray) -> np.ndarray:
    """Return the number of days from 1970 to a day."""
    year = year - (month <= 2)  # a year from March on ends in the day that not all have
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return np.asarray(year * 365 + year // 4 - year // 100 + year // 400 + of_year - 719_468)


@functools.lru_cache(maxsize=64)
def _layout_of(format_: str) -> _Layout | None:
    """Return the layout of a format; None if some text of it may be read otherwise."""
    if not format_.isascii():
        return None
    positions: dict[str, int] = {}
    literals: list[tuple[int, int]] = []
    size = at = 0
    while at < len(format_):
        match = _DIRECTIVE.match(format_, at)
        if match is None:
            literals.append((size, ord(format_[at])))
            size, at = size + 1, at + 1
            continue
        name = match[1]
        if name not in _WIDTHS or name in positions:
            return None
        positions[name] = size
        size, at = size + _WIDTHS[name], at + 2
    layout = _Layout(size, positions, tuple(literals))
    has_day = {"Y", "d"} < positions.keys() and ("m" in positions) != ("b" in positions)
    has_clock = ("I" in positions) == ("p" in positions) and not {"H", "I"} <= positions.keys()
    if not (has_day and has_clock) or "%" in _DIRECTIVE.sub("", format_):
        return None
    return layout if _is_as_strptime(layout, format_) else None


def _is_as_strptime(layout: _Layout, format_: str) -> bool:
    """Return whether some texts give the same moments: names depend on the locale."""
    texts = [moment.strftime(format_) for moment in _SAMPLES]
    if any(len(text) != layout.size for text in texts):
        return False
    letters = np.frombuffer("".join(texts).encode(), np.uint8).reshape(-1, layout.size)
    values, is_read = layout.moments(letters)
    expected = [dt.datetime.strptime(text, format_) for text in texts]
    begin = dt.datetime(1970, 1, 1)
    return bool(is_read.all()) and values.tolist() == [
        (moment - begin) // dt.timedelta(microseconds=1) for moment in expected
    ]
