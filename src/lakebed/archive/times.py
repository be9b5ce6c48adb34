"""Times in the archive: those in the names of files, and the days that files touch.

A time bucket is a day in UTC, counted from the epoch.
"""

from __future__ import annotations

import datetime as dt
import os
import re

from lakebed.errors import InvalidInputError
from lakebed.model.moments import EPOCH, no_time
from lakebed.model.moments import to_epoch_ms as to_epoch_ms

DAY_MS = 86_400_000
_NAME_HINT = r"Write it as \d{8}, or as 'from-(?P<start>\d+)-to-(?P<end>\d+)'."
_NAME_GROUPS = frozenset({"start", "end"})

# The form in names of files, where `:` is rare: a day, optionally with a time of day.
_IN_NAME = re.compile(
    r"(\d{4})([-_.]?)(\d\d)\2(\d\d)(?:[-_.T ]?(\d\d)[-_.:]?(\d\d)(?:[-_.:]?(\d\d))?Z?)?", re.ASCII
)
# Parts that a text omits come from today: these two days differ in all of them.
_TWO_DAYS = (dt.datetime(2001, 2, 3, tzinfo=dt.UTC), dt.datetime(2004, 5, 6, tzinfo=dt.UTC))


def times_in_name(pattern: str, path: str | os.PathLike[str]) -> tuple[int, int | None]:
    r"""Return the start in the name of a file, and the end if the name contains one.

    Args:
        pattern: A regular expression, searched in the name without its folders. The group `start`
            is the start, else the first group, else the whole match; the group `end` is the end.
            Besides the forms that `to_epoch_ms` reads, `20150320`, `2015_03_20`, `20150320T1030`
            and the like are days and times of day in UTC. A year or a month alone is not a time.
        path: Path of the file.

    Raises:
        InvalidInputError: The pattern is broken or does not match, or its match is not a time.

    Examples:
        >>> times_in_name(r"\d{8}", "/logs/sales-20150320.csv") == (to_epoch_ms("2015-03-20"), None)
        True
    """
    name = os.path.basename(os.fspath(path))  # noqa: PTH119 - the path may be of any system
    try:
        expression = re.compile(pattern)
        match = expression.search(name)
    except (re.error, OverflowError, RecursionError) as exc:
        msg = f"Pattern '{pattern}' is broken: {exc}."
        raise InvalidInputError(msg, hint=_NAME_HINT) from exc
    unknown = sorted(set(expression.groupindex) - _NAME_GROUPS)
    if unknown:
        msg = f"Pattern '{pattern}' has the group {unknown[0]!r}, which is not a time of a file."
        raise InvalidInputError(msg, hint="Name groups start and end, or leave them unnamed.")
    if match is None:
        msg = f"Pattern '{pattern}' does not match the name {name!r}."
        hint = "Leave the file out, or widen the pattern so that it matches all names."
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
        msg = f"{text!r} in the name {name!r} is not a time."
        hint = "Leave the file out, or let the pattern match a whole date such as 20150320."
        raise InvalidInputError(msg, hint=hint) from exc


def _ms_of_part(text: str) -> int:
    match = _IN_NAME.fullmatch(text)
    if match is None:
        return _ms_of_whole(text)
    year, _, month, day, hour, minute, second = match.groups()
    return to_epoch_ms(f"{year}-{month}-{day}T{hour or '00'}:{minute or '00'}:{second or '00'}Z")


def _ms_of_whole(text: str) -> int:
    """Return a time whose text contains the whole date: 2026-01 is not a day."""
    first, second = (to_epoch_ms(text, now=day) for day in _TWO_DAYS)
    if first != second:
        raise no_time(text)
    return first


def time_bucket(ms: float) -> int:
    """Return the day of a time in milliseconds, whole or not.

    Days before the epoch are negative; the originals put the last of them into day 0.

    Raises:
        InvalidInputError: It is infinite, or not a number.

    Examples:
        >>> time_bucket(1426809600000)
        16514
    """
    try:
        return int(ms // DAY_MS)
    except (OverflowError, ValueError) as exc:
        raise no_time(ms) from exc


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
        return EPOCH + dt.timedelta(milliseconds=ms)
    except OverflowError as exc:
        raise no_time(ms) from exc
