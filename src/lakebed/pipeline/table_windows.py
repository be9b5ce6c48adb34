"""Windows of a table: whole hours, days or months in UTC, each of which is a run of its own.

A window that moves, such as the last seven days, thus has the same parts in each run: a part that
is read again replaces its own rows, and no row is in two parts.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from lakebed.errors import InvalidInputError
from lakebed.model.moments import EPOCH, bound_to_epoch_ms
from lakebed.pipeline.candidates import moment_of

WindowUnit = Literal["hour", "day", "month"]
"""The length of the parts of a window."""

UNITS = get_args(WindowUnit)
MOST_PARTS = 1_000  # of one run: each is a Spark job and a commit

_LABEL = re.compile(r"\d{4}-\d\d(-\d\d(T\d\d)?)?", re.ASCII)
_LABEL_LENGTHS = {"hour": 13, "day": 10, "month": 7}  # of 2026-11-19T05


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPart:
    """A part of a window.

    Attributes:
        label: Its name in that of the run, such as `2026-11-19`; empty for the whole table.
        start: Its start; aware, UTC. None for the whole table.
        end: Its end, which is not included; same.
    """

    label: str = ""
    start: dt.datetime | None = None
    end: dt.datetime | None = None

    def overlaps(self, label: str) -> bool:
        """Return whether it has time in common with the part of a label."""
        return self.label.startswith(label) or label.startswith(self.label)


def label_of(moment: dt.datetime, unit: WindowUnit) -> str:
    """Return the label of the part that a time is in.

    >>> label_of(dt.datetime(2026, 11, 19, 5, 30, tzinfo=dt.UTC), "hour")
    '2026-11-19T05'
    """
    return moment.astimezone(dt.UTC).isoformat()[: _LABEL_LENGTHS[unit]]


def is_label(text: str) -> bool:
    """Return whether a text is the label of a part.

    >>> is_label("2026-11"), is_label("2026-11-19T05"), is_label("returns")
    (True, True, False)
    """
    return _LABEL.fullmatch(text) is not None


def parts_of(start: object, end: object, unit: WindowUnit) -> tuple[WindowPart, ...]:
    """Return the parts that hold any time from a start to an end, both included.

    Args:
        start: A time, or an age such as `-7d`, as for the windows of an archive.
        end: Same.
        unit: Length of the parts.

    Raises:
        InvalidInputError: The end is before the start or in the year 9999, or there are too many
            parts.

    >>> [part.label for part in parts_of("2026-11-29T10:00Z", dt.date(2026, 12, 1), "day")]
    ['2026-11-29', '2026-11-30', '2026-12-01']
    """
    first, last = (
        EPOCH + dt.timedelta(milliseconds=bound_to_epoch_ms(moment_of(bound)))
        for bound in (start, end)
    )
    if last < first:
        raise InvalidInputError(
            f"The window ends at {last.isoformat()}, before its start at {first.isoformat()}.",
            hint="Give start before end.",
        )
    if last.year == dt.MAXYEAR:
        raise InvalidInputError(
            f"The window ends at {last.isoformat()}, in the last year of a calendar.",
            hint="Leave out end: a window without one ends now.",
        )
    found: list[WindowPart] = []
    for part in _from(first, unit):
        assert part.start is not None
        if part.start > last:
            break
        if len(found) == MOST_PARTS:
            raise InvalidInputError(
                f"The window from {first.date()} to {last.date()} has more than {MOST_PARTS:,} "
                f"parts of one {unit}.",
                hint="Give a later start, or a greater length of the parts: every = 'month'.",
            )
        found.append(part)
    return tuple(found)


def _from(moment: dt.datetime, unit: WindowUnit) -> Iterator[WindowPart]:
    start = moment.replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        start = start.replace(hour=0)
    if unit == "month":
        start = start.replace(day=1)
    while True:
        end = _after(start, unit)
        yield WindowPart(label=label_of(start, unit), start=start, end=end)
        start = end


def _after(start: dt.datetime, unit: WindowUnit) -> dt.datetime:
    if unit == "month":
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start + dt.timedelta(hours=1 if unit == "hour" else 24)
