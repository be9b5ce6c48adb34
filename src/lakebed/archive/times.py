"""Times of the archive: anything a user writes becomes milliseconds since the epoch, and days.

A time bucket is a day in UTC, counted from the epoch.
"""

from __future__ import annotations

import datetime as dt
import importlib
import os
import re

from lakebed.errors import InvalidInputError, MissingDependencyError

DAY_MS = 86_400_000
_NAME_HINT = r"Write it as \d{8}, or as 'from-(?P<start>\d+)-to-(?P<end>\d+)'."
_NAME_GROUPS = frozenset({"start", "end"})
_SECONDS_DIGITS = 10
_MILLISECOND = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_GREATEST_SECONDS = 100_000_000_000  # a greater number means milliseconds
_LEAST_MS, _GREATEST_MS = -62_135_596_800_000, 253_402_300_799_999  # the years 1 to 9999

# What everybody writes is read without dateutil, and to the same result.
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ]([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,6})\d*)?)?(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
# As names of files have it, where `:` is seldom: a day, and perhaps a time of day.
_IN_NAME = re.compile(
    r"(\d{4})([-_.]?)(\d\d)\2(\d\d)(?:[-_.T ]?(\d\d)[-_.:]?(\d\d)(?:[-_.:]?(\d\d))?Z?)?", re.ASCII
)
# A smaller number in a name counts something else, or is a year or a month.
_LEAST_SECONDS_IN_NAME = 100_000_000
# What a text leaves out is taken from today: of these two it is not the same.
_TWO_DAYS = (dt.datetime(2001, 2, 3, tzinfo=dt.UTC), dt.datetime(2004, 5, 6, tzinfo=dt.UTC))
_HINT = "Write it as 2015-03-20T12:30:00Z, or as seconds or milliseconds since the epoch."


def to_epoch_ms(value: object, *, now: dt.datetime | None = None) -> int:
    """Return a time as whole milliseconds since the epoch; parts of one are cut off.

    Args:
        value: A `datetime` (without zone it is UTC); a number, or text that `float` reads and that
            has no `_`: up to 100,000,000,000 it is seconds, above milliseconds; `now`; or any other text that
            `dateutil` reads, where 03/04/2015 is March, what is missing is today's, and zones
            other than UTC and offsets are ignored.
        now: What `now` and today are; the clock's time unless given.

    Raises:
        InvalidInputError: It is none of these, or outside the years 1 to 9999.
        MissingDependencyError: The text is neither ISO 8601 nor a number, and dateutil is not
            installed.

    Examples:
        >>> to_epoch_ms("2015-03-20") == to_epoch_ms(1426809600) == to_epoch_ms(1426809600000)
        True
    """
    if isinstance(value, dt.datetime):
        return _ms_of(value)
    if not isinstance(value, str | int | float):
        raise _no_time(value)
    if value == "now":
        return _ms_of(now or dt.datetime.now(dt.UTC))
    if isinstance(value, str) and "_" in value:
        return _ms_of_text(value, now)  # 2015_03_20 is a number to `float`
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _ms_of_text(str(value), now)
    return _ms_of_number(value, number, now)


def times_in_name(pattern: str, path: str | os.PathLike[str]) -> tuple[int, int | None]:
    r"""Return the start that the name of a file tells, and the end if it tells one.

    Args:
        pattern: A regular expression, searched in the name without its folders. The group `start`
            is the start, else the first group, else all of what matches; the group `end` is the
            end. Besides what `to_epoch_ms` reads, `20150320`, `2015_03_20`, `20150320T1030` and
            the like are days and times of day in UTC. A year or a month alone is no time, nor is a
            number below 100,000,000.
        path: Of the file.

    Raises:
        InvalidInputError: The pattern is broken, does not match, or what it finds is no time.

    Examples:
        >>> times_in_name(r"\d{8}", "/logs/sales-20150320.csv") == (to_epoch_ms("2015-03-20"), None)
        True
    """
    name = os.path.basename(os.fspath(path))  # noqa: PTH119 - of a path of any system
    try:
        expression = re.compile(pattern)
        match = expression.search(name)
    except (re.error, OverflowError, RecursionError) as exc:
        msg = f"Pattern '{pattern}' is broken: {exc}."
        raise InvalidInputError(msg, hint=_NAME_HINT) from exc
    unknown = sorted(set(expression.groupindex) - _NAME_GROUPS)
    if unknown:
        msg = f"Pattern '{pattern}' has the group {unknown[0]!r}, which is no time of a file."
        raise InvalidInputError(msg, hint="Groups are named start and end, or have no name.")
    if match is None:
        msg = f"Pattern '{pattern}' is not found in the name {name!r}."
        hint = "Leave the file out, or widen the pattern so that it finds all names."
        raise InvalidInputError(msg, hint=hint)
    groups = match.groupdict()
    start = groups["start"] if "start" in groups else match[1 if match.re.groups else 0]
    end = groups.get("end")
    if start is None:
        msg = f"Pattern '{pattern}' finds no start in the name {name!r}."
        raise InvalidInputError(msg, hint=_NAME_HINT)
    return _ms_in_name(start, name), None if end is None else _ms_in_name(end, name)


def _ms_in_name(text: str, name: str) -> int:
    try:
        return _ms_of_part(text)
    except InvalidInputError as exc:
        msg = f"{text!r} of the name {name!r} is no time."
        hint = "Leave the file out, or let the pattern find a whole date such as 20150320."
        raise InvalidInputError(msg, hint=hint) from exc


def _ms_of_part(text: str) -> int:
    match = _IN_NAME.fullmatch(text)
    if match is None:
        return _ms_of_whole(text)
    year, _, month, day, hour, minute, second = match.groups()
    try:
        day_begin = dt.datetime(int(year), int(month), int(day))
        moment = day_begin.replace(
            hour=int(hour or 0), minute=int(minute or 0), second=int(second or 0)
        )
    except ValueError as exc:
        # Ten digits are seconds. A day that no calendar has is not: it would be a day of 1970.
        if text.isdecimal() and len(text) == _SECONDS_DIGITS:
            return to_epoch_ms(text)
        raise _no_time(text) from exc
    return _ms_of(moment)


def _ms_of_whole(text: str) -> int:
    """Return a time whose text says all of its date: 202601 and 2026-01 are no days."""
    try:
        is_small = float(text) < _LEAST_SECONDS_IN_NAME
    except ValueError:
        is_small = False
    first, second = (to_epoch_ms(text, now=day) for day in _TWO_DAYS)
    if is_small or first != second:
        raise _no_time(text)
    return first


def check_epoch_ms(value: object) -> int:
    """Return milliseconds since the epoch as they are; what is no whole number, by `to_epoch_ms`.

    Raises:
        InvalidInputError: It is no time, or outside the years 1 to 9999.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        return to_epoch_ms(value)
    if not _LEAST_MS <= value <= _GREATEST_MS:
        raise _no_time(value)
    return value


def _ms_of(moment: dt.datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return _whole_ms(moment - _EPOCH)


def _whole_ms(span: dt.timedelta) -> int:
    """Cut towards zero, as `int` does."""
    ms = abs(span) // _MILLISECOND
    return -ms if span < dt.timedelta(0) else ms


def _ms_of_number(value: str | float, number: float, now: dt.datetime | None) -> int:
    is_ms = number > _GREATEST_SECONDS
    try:
        ms = int(number) if is_ms else _whole_ms(dt.timedelta(seconds=number))
    except (ValueError, OverflowError) as exc:
        if isinstance(value, str):
            return _ms_of_text(value, now)
        raise _no_time(value) from exc
    if not _LEAST_MS <= ms <= _GREATEST_MS:
        raise _no_time(value)
    return ms


def _ms_of_text(text: str, now: dt.datetime | None) -> int:
    match = _ISO.fullmatch(text)
    if match is None:
        return _ms_of(_read_by_dateutil(text, now or dt.datetime.now(dt.UTC)))
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        return _ms_of(
            dt.datetime(
                int(year),
                int(month),
                int(day),
                int(hour or 0),
                int(minute or 0),
                int(second or 0),
                int((fraction or "").ljust(6, "0")),
                tzinfo=_zone_of(zone),
            )
        )
    except (ValueError, OverflowError) as exc:
        raise _no_time(text) from exc


def _zone_of(zone: str | None) -> dt.timezone:
    if zone in (None, "Z"):
        return dt.UTC
    digits = zone[1:].replace(":", "")
    offset = dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return dt.timezone(-offset if zone[0] == "-" else offset)


def _read_by_dateutil(text: str, now: dt.datetime) -> dt.datetime:
    try:
        parser = importlib.import_module("dateutil.parser")
    except ImportError as exc:
        purpose = f"Reading the time {text!r}"
        raise MissingDependencyError.for_extra("python-dateutil", "archive", purpose) from exc
    today = now.astimezone(dt.UTC).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    try:
        # A function of our own for zones: theirs warns of unknown ones, and takes the names of
        # the machine's zone for that zone.
        moment = parser.parse(text, default=today, tzinfos=_zone_by_offset)
    except (ValueError, OverflowError, TypeError, AttributeError, IndexError) as exc:
        raise _no_time(text) from exc
    if not isinstance(moment, dt.datetime):
        raise _no_time(text)
    return moment


def _zone_by_offset(name: str | None, offset_s: int | None) -> dt.timezone | None:  # noqa: ARG001 - dateutil's form
    return None if offset_s is None else dt.timezone(dt.timedelta(seconds=offset_s))


def _no_time(value: object) -> InvalidInputError:
    return InvalidInputError(f"{value!r} is no time.", hint=_HINT)


def time_bucket(ms: float) -> int:
    """Return the day of a time in milliseconds, whole or not.

    Days before the epoch count down; the originals put the last of them into day 0.

    Raises:
        InvalidInputError: It is infinite, or not a number.

    Examples:
        >>> time_bucket(1426809600000)
        16514
    """
    try:
        return int(ms // DAY_MS)
    except (OverflowError, ValueError) as exc:
        raise _no_time(ms) from exc


def time_buckets(start: float, end: float | None) -> range:
    """Return the days from `start` to `end`, both included; without `end` the day of `start`.

    Examples:
        >>> list(time_buckets(1430092800000, 1430330070000))
        [16552, 16553, 16554]
    """
    return range(time_bucket(start), time_bucket(start if end is None else end) + 1)


def to_iso(ms: int) -> str:
    """Return a time as `2015-03-20T00:00:00.000`, in UTC and without a zone.

    Raises:
        InvalidInputError: It is outside the years 1 to 9999.
    """
    return to_datetime(ms).replace(tzinfo=None).isoformat(timespec="milliseconds")


def to_datetime(ms: int) -> dt.datetime:
    """Return a time, aware and in UTC.

    Raises:
        InvalidInputError: It is outside the years 1 to 9999.
    """
    try:
        return _EPOCH + dt.timedelta(milliseconds=ms)
    except OverflowError as exc:
        raise _no_time(ms) from exc
