"""Ages, such as `7d`."""

from __future__ import annotations

import datetime as dt
import re

from lakebed.errors import InvalidInputError

_AGE = re.compile(r"([0-9]{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LONGEST_AGE = dt.timedelta(days=366 * 1000)  # keeps all computed times after the year 1


def parse_age(age: str | dt.timedelta) -> dt.timedelta:
    """Parse an age such as `7d`, `12h`, `30m`, `45s` or `2w`.

    Raises:
        InvalidInputError: It has another form, is negative, or is more than a thousand years.

    >>> parse_age("7d")
    datetime.timedelta(days=7)
    """
    if isinstance(age, dt.timedelta):
        duration = age
    else:
        match = _AGE.fullmatch(age.strip()) if isinstance(age, str) else None
        if match is None:
            raise InvalidInputError(
                f"{age!r} is not a valid age.",
                hint="Write a number and s, m, h, d or w, such as '7d'.",
            )
        duration = dt.timedelta(**{_UNITS[match[2]]: int(match[1])})
    if not dt.timedelta() <= duration <= _LONGEST_AGE:
        why = "is negative" if duration < dt.timedelta() else "is more than a thousand years"
        raise InvalidInputError(f"{age} {why}.", hint="Give an age, such as '7d'.")
    return duration
