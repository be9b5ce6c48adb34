"""Python values of primitive types: checking, normalising, reading from text."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError
from lakebed.model.schema import Decimal, Kind, Primitive, Type

Scalar = bool | int | float | str | bytes | dt.date | dt.datetime | decimal.Decimal | None

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
UTC_NAMES = frozenset(("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00", "UTC+00:00"))  # in Spark
INTEGER_LIMITS = {
    Kind.INT: (-(2**31), 2**31 - 1),
    Kind.LONG: (-(2**63), 2**63 - 1),
    Kind.UNSIGNED_LONG: (0, 2**64 - 1),
}
INTEGERS = frozenset(INTEGER_LIMITS)


def integer_limits(kind: Primitive) -> tuple[int, int]:
    """Return the least and the greatest value of a type of whole numbers."""
    if kind.bits is None:
        return INTEGER_LIMITS[kind.kind]
    return -(2 ** (kind.bits - 1)), 2 ** (kind.bits - 1) - 1


FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})
TIMESTAMPS = frozenset({Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ})
TIMES = TIMESTAMPS | {Kind.DATE}


def check_value(value: object, kind: Type, place: str) -> Scalar:
    """Return `value` in the one Python form of its type.

    Strict: a bool is not an int, text is not a date, a float is not an int. But an int fits a float
    or decimal, and a date fits a timestamp as the midnight at its start. A timestamp without
    zone is UTC. A number for a 32-bit float is rounded to the nearest one, as in the column.

    Args:
        value: A value that is not None.
        kind: The declared type.
        place: Name of the column in the error.

    Raises:
        InvalidInputError: The value is not of the type, or outside its range.
    """
    normal = _normalise(value, kind)
    if normal is None and (plain := plain_value(value)) is not value:
        normal = _normalise(plain, kind)
    if normal is None:
        raise InvalidInputError(
            f"Value {shown(value)} ({type(value).__name__}) does not fit column {place!r} "
            f"of type {kind}.",
            hint=_hint(value, kind),
        )
    return normal


def compared_value(value: object, kind: Type, place: str) -> Scalar:
    """Return a value that a column is compared with, in the one Python form of its type.

    As `check_value`, but a whole number may be one that no field of the type holds.

    Raises:
        InvalidInputError: The value is not of the type.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and isinstance(kind, Primitive) and kind.kind in INTEGERS:
        return cast(int, value)
    return check_value(value, kind, place)


def plain_value(value: object) -> object:
    """Return a value of numpy, pyarrow or pandas as one of Python; any other one unchanged.

    Their nulls, such as NaT and NA, become None. A moment with nanoseconds stays as it is, since no
    column holds it.

    >>> import numpy
    >>> plain_value(numpy.int64(3)), plain_value("UA")
    (3, 'UA')
    """
    library = type(value).__module__.partition(".")[0]
    name = type(value).__name__
    if library not in ("numpy", "pyarrow", "pandas"):
        return value
    if name in ("NaTType", "NAType"):
        return None
    if name == "Timestamp":
        return value if value.nanosecond else value.to_pydatetime()  # type: ignore[attr-defined]  # of pandas
    if name == "datetime64":
        return _plain_datetime64(value)
    if library == "pyarrow" and hasattr(value, "as_py"):
        try:
            return plain_value(value.as_py())
        except (OverflowError, ValueError):  # outside of Python's years, or a text not of UTF-8
            return value
    if library == "numpy" and hasattr(value, "item") and not getattr(value, "ndim", 0):
        return plain_value(value.item())
    return value


def _plain_datetime64(value: Any) -> object:
    unit = str(value.dtype).partition("[")[2][:-1]
    if unit in ("Y", "M", "W", "D"):
        return value.item()  # a date, or None
    rounded = value.astype("datetime64[us]")
    is_exact = bool(rounded == value) or value != value  # NaT equals nothing
    plain = rounded.item()
    return plain if is_exact and (plain is None or isinstance(plain, dt.datetime)) else value


def parameter_value(value: object, kind: Type) -> object:
    """Return a value that a column is compared with, as a plain one; None for null.

    A decimal number is compared with columns of other numbers, as a number in SQL text is.
    """
    plain = plain_value(value)
    if isinstance(plain, decimal.Decimal) and isinstance(kind, Primitive) and plain.is_finite():
        if kind.kind in INTEGERS and plain == plain.to_integral_value():
            return int(plain)
        if kind.kind in FLOATS:
            return float(plain)
    return plain


def listed_values(value: object) -> list[object] | None:
    """Return the values of a list, a set, a range, an array, a series or a generator, in order.

    Returns:
        The plain values; None for something that is one value, or a table.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return None
    if hasattr(value, "columns") or hasattr(value, "collect_schema"):
        return None  # a table, which would list the names of its columns
    if getattr(value, "ndim", 1) != 1:
        return None
    return [plain_value(one) for one in value]


def _normalise(value: object, kind: Type) -> Scalar:
    if isinstance(kind, Decimal):
        return _normalise_decimal(value, kind)
    if not isinstance(kind, Primitive):
        return None
    name = kind.kind
    if name is Kind.BOOLEAN:
        return value if isinstance(value, bool) else None
    if name in INTEGERS:
        low, high = integer_limits(kind)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and low <= value <= high else None  # type: ignore[operator,return-value]  # narrowed by `whole`
    if name in FLOATS:
        return _normalise_float(value, bits=32 if name is Kind.FLOAT else 64)
    if name is Kind.STRING:
        # Of a subclass, such as one of numpy, the text itself.
        return str.__str__(value) if isinstance(value, str) and is_unicode(value) else None
    if name is Kind.BYTES:
        return value if isinstance(value, bytes) else None
    if name is Kind.DATE:
        is_date = isinstance(value, dt.date) and not isinstance(value, dt.datetime)
        return value if is_date else None  # type: ignore[return-value]  # narrowed by `is_date`
    return _normalise_time(value, zoned=name is Kind.TIMESTAMP)


def _normalise_decimal(value: object, kind: Decimal) -> decimal.Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
        return None
    exact = decimal.Context(prec=kind.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        # Quantizing raises for more digits than the precision; NaN and infinity become NaN.
        quantized = decimal.Decimal(value).quantize(
            decimal.Decimal((0, (1,), -kind.scale)), None, exact
        )
    except (decimal.Inexact, decimal.InvalidOperation):
        return None
    return quantized if quantized.is_finite() else None


def _normalise_float(value: object, *, bits: int) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
        return _round_to_32_bits(number) if bits == 32 else number
    except OverflowError:
        return None


def _round_to_32_bits(number: float) -> float:
    # The form with "<" raises for numbers that are too large.
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded


def is_unicode(text: str) -> bool:
    """Return whether UTF-8 can encode a text, which may hold half a surrogate pair in Python."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _normalise_time(value: object, *, zoned: bool) -> dt.datetime | None:
    if not isinstance(value, dt.date):
        return None
    if not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if getattr(value, "nanosecond", 0):  # pandas has nanoseconds, which no column holds
        return None
    if hasattr(value, "to_pydatetime"):
        value = cast(dt.datetime, value.to_pydatetime())
    if not zoned:
        return None if value.tzinfo else value
    try:
        return value.astimezone(dt.UTC) if value.tzinfo else value.replace(tzinfo=dt.UTC)
    except OverflowError:  # at the ends of the calendar
        return None


def _hint(value: object, kind: Type) -> str:
    if isinstance(kind, Primitive):
        if kind.kind in INTEGERS and isinstance(value, int) and not isinstance(value, bool):
            low, high = integer_limits(kind)
            wider = _wider_hint(value) if kind.kind is Kind.INT else ""
            return f"Values are {low} to {high}.{wider}"
        if kind.kind is Kind.TIMESTAMP_NTZ and isinstance(value, dt.datetime):
            return "The column has no zone: give a datetime without tzinfo."
        if kind.kind is Kind.DATE:
            return "Give a datetime.date."
        if kind.kind in TIMESTAMPS:
            return "Give a datetime.datetime."
    return f"Give a value of type {kind}."


def _wider_hint(value: int) -> str:
    """Return the advice to widen a field to the type that holds a value; empty if none does."""
    for wider in (Primitive(Kind.INT, 16), Primitive(Kind.INT), Primitive(Kind.LONG)):
        low, high = integer_limits(wider)
        if low <= value <= high:
            return f" Widen the field to {wider} for it: types='widen', or change_type."
    return ""


def parse_value(
    text: str,
    kind: Type,
    place: str,
    check: Callable[[object, Type, str], Scalar] = check_value,
) -> Scalar:
    """Read a value of `kind` from text in the form of paths and SQL literals.

    Args:
        text: The text.
        kind: The type.
        place: Name of the column in the error.
        check: Checks the value: `compared_value` for one that a column is compared with.

    Raises:
        InvalidInputError: The text is not a value of this type.
    """
    if isinstance(kind, Primitive) and kind.kind in _PARSERS:
        try:
            value = _PARSERS[kind.kind](text)
        except ValueError as exc:
            raise InvalidInputError(
                f"Text {shown(text)} is not a valid {kind} (column {place!r}).",
                hint=text_hint(kind),
            ) from exc
        return check(value, kind, place)
    if isinstance(kind, Decimal):
        try:
            return check_value(decimal.Decimal(text), kind, place)
        except decimal.InvalidOperation as exc:
            raise InvalidInputError(
                f"Text {shown(text)} is not a valid {kind} (column {place!r}).",
                hint=text_hint(kind),
            ) from exc
    raise InvalidInputError(f"Column {place!r} of type {kind} has no text form.")


def _parse_bool(text: str) -> bool:
    # bool("False") is True: that is how Kartothek reads every boolean key as True.
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _parse_int(text: str) -> int:
    # int() also accepts blanks, underscores and the digits of other scripts.
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def _parse_float(text: str) -> float:
    if not text.isascii() or "_" in text or text != text.strip():
        raise ValueError(text)
    return float(text)


def _parse_time(text: str) -> dt.datetime:
    # fromisoformat() silently drops digits below a microsecond.
    digits = _FRACTION.search(text)
    if digits and digits[1].rstrip("0"):
        raise ValueError(text)
    return dt.datetime.fromisoformat(text)


_WHOLE = re.compile(r"[+-]?[0-9]+")
_FRACTION = re.compile(r"[.,][0-9]{6}([0-9]+)")
_PARSERS: dict[Kind, Callable[[str], Scalar]] = {
    Kind.BOOLEAN: _parse_bool,
    Kind.INT: _parse_int,
    Kind.LONG: _parse_int,
    Kind.UNSIGNED_LONG: _parse_int,
    Kind.FLOAT: _parse_float,
    Kind.DOUBLE: _parse_float,
    Kind.STRING: str,
    Kind.DATE: dt.date.fromisoformat,
    Kind.TIMESTAMP: _parse_time,
    Kind.TIMESTAMP_NTZ: _parse_time,
}


def text_hint(kind: Primitive | Decimal) -> str:
    """Return a hint about the text form of a type."""
    if isinstance(kind, Decimal):
        return f"Write a number of up to {kind.precision} digits, {kind.scale} of them decimals."
    if kind.kind in INTEGERS:
        return "Write a whole number."
    return {
        Kind.BOOLEAN: "Write true or false.",
        Kind.DATE: "Write it as 2013-06-01.",
        Kind.TIMESTAMP: "Write it as 2013-06-01T12:30:00; without a zone it is UTC, and it has "
        "up to six digits of a second.",
        Kind.TIMESTAMP_NTZ: "Write it as 2013-06-01T12:30:00, with up to six digits of a second.",
    }.get(kind.kind, "Write a number.")


def format_value(value: Scalar) -> str:
    """Return a value in the form of paths, which `parse_value` reads."""
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return str(value)


def is_nan(value: object) -> bool:
    """Return whether `value` is the float NaN."""
    return isinstance(value, float) and math.isnan(value)


def from_micros(value: int) -> dt.datetime:
    """Return the moment of a number of microseconds since the epoch, in UTC.

    Raises:
        OverflowError: It lies outside the years 1 to 9999.
    """
    return EPOCH + dt.timedelta(microseconds=value)  # a float would lose the last of them


def to_micros(moment: dt.datetime) -> int:
    """Return microseconds since the epoch; a moment without zone is UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return (moment - EPOCH) // dt.timedelta(microseconds=1)
