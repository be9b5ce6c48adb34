"""Reading of moments in one way everywhere: in calls, files, options and requests."""

from __future__ import annotations

import datetime as dt
import importlib
import re

from lakebed.errors import InvalidInputError, MissingDependencyError

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_MILLISECOND = dt.timedelta(milliseconds=1)
_DAY = dt.timedelta(days=1)
_GREATEST_SECONDS = 100_000_000_000  # a greater number means milliseconds
_LEAST_MS, _GREATEST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999
# A number of an earlier moment is probably a date, or in another unit.
_EARLIEST = dt.datetime(1990, 1, 1, tzinfo=dt.UTC)

# Common forms are read without dateutil, with the same result.
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6})\d*)?)?(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_DIGITS = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T?(\d\d)(\d\d)(\d\d)?Z?)?", re.ASCII)
# Fourteen digits of other years are milliseconds, in the years 2286 to 5138.
_LEAST_YEAR_OF_DIGITS, _GREATEST_YEAR_OF_DIGITS = 1900, 2199
_DAY_DIGITS = 8
_TOO_MANY_DIGITS = 10**14
# Ten digits, as in names of files.
_HOUR = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)", re.ASCII)
# Countries that write points put the day first; dateutil reads the month first.
_POINTED = re.compile(r"\s*(\d\d?)\.(\d\d?)\.(?:\d\d){1,2}(?!\d).*", re.DOTALL)
_MONTHS = 12
# If the days of the results differ and the months do not, the text holds no day.
_TWO_DAYS = (dt.datetime(2001, 1, 3), dt.datetime(2004, 5, 6))
_HINT = (
    "Write it as 2015-03-20T12:30:00Z, as 20150320 or 20150320123000, or as seconds or "
    "milliseconds since the epoch."
)
_CLEAR_HINT = (
    "Write a date as 2015-03-20, 20150320 or 2015-03-20T12:30:00Z. A number is seconds, or above "
    "100,000,000,000 milliseconds since the epoch, and from 1990 on."
)


def to_moment(value: object, *, now: dt.datetime | None = None) -> dt.datetime:
    """Return a time as an aware `datetime`.

    Args:
        value: A `datetime` (UTC if it has no zone); eight digits, `20150320`, for a day, or
            fourteen, `20150320123000`, for a moment in UTC, as text or as a whole number; another
            number, or text that `float` reads and that has no `_`: up to 100,000,000,000 it is
            seconds since the epoch, above milliseconds; `now`; or any other text that `dateutil`
            reads. There 03/04/2015 is in March, 03.04.2015 and a month without a day are refused,
            other missing parts are those of today, and zones other than UTC and offsets are
            ignored.
        now: The moment that `now` and today refer to; by default that of the clock.

    Raises:
        InvalidInputError: The value has none of these forms, or is outside the years 1 to 9999; or
            it is a number before 1990, which is probably a date or in another unit; or it has ten
            digits that are a date with an hour, `2015032012`, and as seconds lie in the future.
        MissingDependencyError: The text is neither ISO 8601 nor a number, and dateutil is not
            installed.

    Examples:
        >>> to_moment("20150320") == to_moment("2015-03-20") == to_moment(1426809600)
        True
    """
    number = _number_in(value)
    if number is None:
        return _written(value, now)
    moment = _counted(value, number)
    if moment < _EARLIEST:
        raise _unclear(value, number)
    hour = _hour_in_digits(value)
    if hour is not None and moment > dt.datetime.now(dt.UTC) + _DAY:
        raise InvalidInputError(
            f"{value!r} is not a clear time: as seconds it is {_shown(moment)}, as a date with an "
            f"hour it is {_shown(hour)}.",
            hint=f"Write the hour as {hour:%Y-%m-%dT%H:%M}Z or {hour:%Y%m%d%H%M}.",
        )
    return moment


def names_zone(text: str) -> bool:
    """Return whether a time as text is the same in every zone: it has a zone, is a number or `now`.

    Examples:
        >>> names_zone("2015-03-20 12:00+01:00"), names_zone("1426809600")
        (True, True)
        >>> names_zone("2015-03-20"), names_zone("20150320"), names_zone("20 March 2015")
        (False, False, False)
    """
    if (
        text == "now"
        or _number_in(text) is not None
        or (text.endswith("Z") and _date_in_digits(text) is not None)
    ):
        return True
    match = _ISO.fullmatch(text)
    return match is not None and match.groups()[-1] is not None


def to_epoch_ms(value: object, *, now: dt.datetime | None = None) -> int:
    """Return a time as whole milliseconds since the epoch; fractions are cut off.

    Args:
        value: Any form that `to_moment` reads: a `datetime`, ISO 8601, `20150320`,
            `20150320123000`, seconds, milliseconds, `now`, or a text for `dateutil`.
        now: The moment that `now` and today refer to; by default that of the clock.

    Raises:
        InvalidInputError: As `to_moment`.
        MissingDependencyError: As `to_moment`.

    Examples:
        >>> to_epoch_ms("2015-03-20") == to_epoch_ms(1426809600) == to_epoch_ms(1426809600000)
        True
    """
    return _whole_ms(to_moment(value, now=now))


def bound_to_epoch_ms(value: object, *, now: dt.datetime | None = None) -> int:
    """Return the beginning or the end of a queried interval, as `to_epoch_ms` does.

    In addition, a bound may be 0, or any number that can only be milliseconds, however early.

    Raises:
        InvalidInputError: As `to_moment`.
        MissingDependencyError: As `to_moment`.
    """
    number = _number_in(value)
    if number is not None and (number == 0 or number > _GREATEST_SECONDS):
        return _whole_ms(_counted(value, number))
    return to_epoch_ms(value, now=now)


def stored_to_epoch_ms(value: object) -> int:
    """Return a stored time; a whole number is in milliseconds, however early.

    Raises:
        InvalidInputError: The value is not a time, or outside the years 1 to 9999.
        MissingDependencyError: As `to_moment`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not _LEAST_MS <= value <= _GREATEST_MS:
            raise no_time(value)
        return value
    number = _number_in(value)
    return _whole_ms(_written(value, None) if number is None else _counted(value, number))


def no_time(value: object) -> InvalidInputError:
    """Return the error for a value that is not a time."""
    return InvalidInputError(f"{value!r} is not a time.", hint=_HINT)


def _number_in(value: object) -> float | None:
    """Return a value as a number; None if it is a date in digits, or not a number."""
    if not isinstance(value, str | int | float) or _date_in_digits(value) is not None:
        return None
    if isinstance(value, str) and "_" in value:
        return None  # `float` reads 2015_03_20 as a number
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return float("inf")


def _date_in_digits(value: object) -> tuple[int, ...] | None:
    """Return year, month, day, hour, minute and second of a date in digits, or None.

    The date need not exist in the calendar: 20261301 is a date with a mistake.
    """
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _TOO_MANY_DIGITS:
        value = str(value)
    if not isinstance(value, str):
        return None
    match = _DIGITS.fullmatch(value)
    if match is None:
        return None
    parts = tuple(int(part or 0) for part in match.groups())
    is_usual = _LEAST_YEAR_OF_DIGITS <= parts[0] <= _GREATEST_YEAR_OF_DIGITS
    return parts if is_usual or match.end() == _DAY_DIGITS else None


def _hour_in_digits(value: object) -> dt.datetime | None:
    """Return the hour that ten digits such as 2015032012 may mean."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    match = _HOUR.fullmatch(str(value))
    if match is None or not _LEAST_YEAR_OF_DIGITS <= int(match[1]) <= _GREATEST_YEAR_OF_DIGITS:
        return None
    year, month, day, hour = map(int, match.groups())
    try:
        return dt.datetime(year, month, day, hour, tzinfo=dt.UTC)
    except ValueError:
        return None


def _written(value: object, now: dt.datetime | None) -> dt.datetime:
    if isinstance(value, dt.datetime):
        return _zoned(value)
    parts = _date_in_digits(value)
    if parts is not None:
        year, month, day, hour, minute, second = parts
        return _moment_of(value, year, month, day, hour, minute, second)
    if not isinstance(value, str):
        raise no_time(value)
    if value == "now":
        return _zoned(now or dt.datetime.now(dt.UTC))
    match = _ISO.fullmatch(value)
    if match is None:
        return _read_by_dateutil(value, now or dt.datetime.now(dt.UTC))
    *parts_of_text, fraction, zone = match.groups()
    year, month, day, hour, minute, second = (int(part or 0) for part in parts_of_text)
    us = int((fraction or "").ljust(6, "0"))
    return _moment_of(value, year, month, day, hour, minute, second, us, zone)


def _moment_of(
    value: object,
    year: int,
    month: int,
    day: int,
    hour: int,
    minute: int,
    second: int,
    us: int = 0,
    zone: str | None = None,
) -> dt.datetime:
    try:
        return dt.datetime(year, month, day, hour, minute, second, us, tzinfo=_zone_of(zone))
    except (ValueError, OverflowError) as exc:
        raise no_time(value) from exc


def _zone_of(zone: str | None) -> dt.timezone:
    if zone in (None, "Z"):
        return dt.UTC
    digits = zone[1:].replace(":", "")
    offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return dt.timezone(-offset if zone[0] == "-" else offset)


def _counted(value: object, number: float) -> dt.datetime:
    """Return the moment of a number of seconds or milliseconds."""
    moment = _since_epoch(number, is_ms=number > _GREATEST_SECONDS)
    if moment is None:
        raise no_time(value)
    return moment


def _since_epoch(number: float, *, is_ms: bool) -> dt.datetime | None:
    try:
        if is_ms:
            return EPOCH + dt.timedelta(milliseconds=int(number))
        return EPOCH + dt.timedelta(seconds=number)
    except (ValueError, OverflowError):
        return None


def _unclear(value: object, number: float) -> InvalidInputError:
    readings = {"seconds": number, "milliseconds": number}
    moments = [
        f"{unit} it is {_shown(_since_epoch(count, is_ms=unit == 'milliseconds'))}"
        for unit, count in readings.items()
    ]
    return InvalidInputError(
        f"{value!r} is not a clear time: as {', as '.join(moments)}.", hint=_CLEAR_HINT
    )


def _shown(moment: dt.datetime | None) -> str:
    if moment is None:
        return "out of range"
    return f"{moment.replace(tzinfo=None).isoformat(timespec='seconds')}Z"


def _whole_ms(moment: dt.datetime) -> int:
    """Return whole milliseconds since the epoch, truncated towards zero like `int`."""
    span = moment - EPOCH
    ms = abs(span) // _MILLISECOND
    return -ms if span < dt.timedelta(0) else ms


def _read_by_dateutil(text: str, now: dt.datetime) -> dt.datetime:
    try:
        parser = importlib.import_module("dateutil.parser")
    except ImportError as exc:
        purpose = f"Reading the time {text!r}"
        raise MissingDependencyError.for_extra("python-dateutil", "archive", purpose) from exc
    today = now.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    moments: list[dt.datetime] = []
    for default in (today, *_TWO_DAYS):
        try:
            # A zone function of our own: that of dateutil warns of unknown zones, and reads names
            # of the machine's zone as that zone.
            moment = parser.parse(text, default=default, tzinfos=_zone_by_offset)
        except (ValueError, OverflowError, TypeError, AttributeError, IndexError) as exc:
            raise no_time(text) from exc
        if not isinstance(moment, dt.datetime):
            raise no_time(text)
        moments.append(moment)
    moment, first, second = moments
    if first.month == second.month and first.day != second.day:
        raise InvalidInputError(f"{text!r} is not a clear time: it lacks the day.", hint=_HINT)
    pointed = _POINTED.fullmatch(text)
    if pointed and pointed[1] != pointed[2] and int(pointed[1]) <= _MONTHS >= int(pointed[2]):
        raise InvalidInputError(
            f"{text!r} is not a clear time: the day or the month may be first.", hint=_HINT
        )
    return _zoned(moment)


def _zoned(moment: dt.datetime) -> dt.datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _zone_by_offset(name: str | None, offset_s: int | None) -> dt.timezone | None:  # noqa: ARG001 - dateutil's form
    return None if offset_s is None else dt.timezone(dt.timedelta(seconds=offset_s))
