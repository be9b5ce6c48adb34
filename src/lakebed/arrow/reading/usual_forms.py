"""Columns of texts that all have the usual form of a type, as their bytes show at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakebed.model.schema import Kind

_ZERO, _ONE, _TWO, _NINE = b"0129"
_MOST_DIGITS = 14  # a double holds all such numbers
_DAY_BYTES, _TIME_BYTES = len("2025-01-01"), len("2025-01-01T00:00:00")
# Characters of a time that are no digits; Arrow's cast checks the digits.
_MARKS = {4: b"-", 7: b"-", 10: b"T ", 13: b":", 16: b":"}
_LETTERS = np.zeros(256, bool)
_LETTERS[[*range(ord("A"), ord("Z") + 1), *range(ord("a"), ord("z") + 1)]] = True
_LETTERS_AND_DIGITS = _LETTERS.copy()
_LETTERS_AND_DIGITS[_ZERO : _NINE + 1] = True


def are_usual(texts: pa.Array, kind: Kind) -> bool:
    """Return whether all texts certainly have the usual form of a type.

    Whole numbers have at most 14 digits, without a sign. Other texts begin with an ASCII letter, and
    end with a letter or a digit.

    Args:
        texts: Texts without nulls.
        kind: The type; of other types than these none is usual.

    Cost:
        Measured: a tenth of the time of a regular expression.
    """
    if kind not in (Kind.LONG, Kind.STRING):
        return False
    codes, ends = _bytes_of(texts)
    sizes = np.diff(ends)
    if not len(sizes) or not sizes.min():
        return False
    first = codes[ends[:-1]]
    if kind is Kind.STRING:
        last = codes[ends[1:] - 1]
        return bool(_LETTERS[first].all() and _LETTERS_AND_DIGITS[last].all())
    if sizes.max() > _MOST_DIGITS or ((first == _ZERO) & (sizes > 1)).any():
        return False
    digits = codes[ends[0] : ends[-1]]
    return bool(digits.min() >= _ZERO and digits.max() <= _NINE)


def usual_days(texts: pa.Array, size: int) -> pa.Array | None:
    """Return the distinct days of texts that all have the usual form of a day or time, in order.

    Args:
        texts: Texts without nulls.
        size: Number of their bytes: 10 for days, 19 for times with seconds, 20 for such with a `Z`.

    Returns:
        The days as texts; None if one is not of the form, of the years 1000 to 2999, or in the
        calendar.

    Cost:
        Measured: a third of the time of a regular expression.
    """
    codes, ends = _bytes_of(texts)
    sizes = np.diff(ends)
    if not len(sizes) or sizes.min() != size or sizes.max() != size:
        return None
    rows = codes[ends[0] : ends[-1]].reshape(-1, size)
    marks = {0: b"12", **_MARKS, _TIME_BYTES: b"Z"}
    if not all(_is_one_of(rows[:, at], mark) for at, mark in marks.items() if at < size):
        return None
    try:
        if size == _DAY_BYTES:
            days = texts.cast(pa.date32())
        else:
            times = texts.cast(pa.timestamp("s", "UTC" if size > _TIME_BYTES else None))
            days = times.cast(pa.timestamp("s")).cast(pa.date32())
    except pa.ArrowInvalid:
        return None
    return days.unique().cast(pa.string())


def _is_one_of(codes: np.ndarray, marks: bytes) -> bool:
    """Return whether all bytes are among one or two."""
    is_mark = codes == marks[0]
    if len(marks) > 1:
        is_mark |= codes == marks[1]
    return bool(is_mark.all())


def _bytes_of(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of texts, and the positions where they begin and the last one ends."""
    _, ends, codes = texts.buffers()
    first = texts.offset
    positions = np.frombuffer(ends, np.int32)[first : first + len(texts) + 1]
    return np.frombuffer(b"" if codes is None else codes, np.uint8), positions
