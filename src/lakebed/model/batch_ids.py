"""The forms of batch ids: milliseconds since the epoch, or what other tools of a lake write."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from enum import StrEnum

from lakebed.errors import InvalidInputError
from lakebed.model.keys import DATE_FORMATS, FIRST_YEAR, date_of, is_in_seconds

BATCH_IDS = "batch.ids"
"""The property of a dataset that names the form of its batch ids."""

FIRST_MOMENT = dt.datetime(int(FIRST_YEAR), 1, 1, tzinfo=dt.UTC)
"""Before it ids are ambiguous: milliseconds look like seconds, and dates like milliseconds."""

_DIGITS_OF_MINUTES, _DIGITS_OF_SECONDS = 12, 14


class BatchIds(StrEnum):
    """What a batch id counts. Every one is a whole number, and says when the run began, in UTC.

    >>> moment = dt.datetime(2015, 12, 10, 21, 56, 48, tzinfo=dt.UTC)
    >>> [one.of(moment) for one in BatchIds]
    [1449784608000, 1449784608, 201512102156, 20151210215648]
    """

    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    DATE_MINUTES = "yyyyMMddHHmm"
    DATE_SECONDS = "yyyyMMddHHmmss"

    @classmethod
    def named_by(cls, properties: Mapping[str, str]) -> BatchIds:
        """Return the form that the properties of a dataset name; milliseconds if they name none.

        Raises:
            InvalidInputError: They name one that is not known.
        """
        text = properties.get(BATCH_IDS, str(cls.MILLISECONDS))
        try:
            return cls(text)
        except ValueError as exc:
            raise InvalidInputError(
                f"Property {BATCH_IDS!r} is {text!r}.", hint=f"Known are: {', '.join(cls)}."
            ) from exc

    @classmethod
    def written_as(cls, batch_id: int) -> BatchIds:
        """Return the form that a batch id has, as its number of digits tells.

        >>> BatchIds.written_as(1449784608), BatchIds.written_as(201512102156)
        (<BatchIds.SECONDS: 'seconds'>, <BatchIds.DATE_MINUTES: 'yyyyMMddHHmm'>)
        """
        if date_of(batch_id) is not None:
            is_minutes = len(str(batch_id)) == _DIGITS_OF_MINUTES
            return cls.DATE_MINUTES if is_minutes else cls.DATE_SECONDS
        return cls.SECONDS if is_in_seconds(batch_id) else cls.MILLISECONDS

    @property
    def _digits(self) -> int | None:
        """The length of ids that are dates."""
        return {self.DATE_MINUTES: _DIGITS_OF_MINUTES, self.DATE_SECONDS: _DIGITS_OF_SECONDS}.get(
            self
        )

    @property
    def step(self) -> dt.timedelta:
        """From one id to the next."""
        match self:
            case BatchIds.MILLISECONDS:
                return dt.timedelta(milliseconds=1)
            case BatchIds.DATE_MINUTES:
                return dt.timedelta(minutes=1)
        return dt.timedelta(seconds=1)

    def of(self, moment: dt.datetime) -> int:
        """Return the id of a moment."""
        if self._digits is not None:
            return int(moment.astimezone(dt.UTC).strftime(DATE_FORMATS[self._digits]))
        seconds = moment.timestamp()
        return int(seconds * 1000) if self is BatchIds.MILLISECONDS else int(seconds)

    def after(self, batch_id: int) -> int:
        """Return the next id of this form above another one, of whichever form that is.

        >>> BatchIds.DATE_MINUTES.after(201512312359), BatchIds.SECONDS.after(1449784608)
        (201601010000, 1449784609)
        """
        following = batch_id + 1
        if self._digits is None or len(str(following)) != self._digits:
            return following
        # A limit that a cleanup has drawn may lie between two dates, such as at minute 60.
        moment = date_of(following) or _rounded_up(following, self._digits)
        return following if moment is None else max(self.of(moment), following)


def _rounded_up(number: int, digits: int) -> dt.datetime | None:
    """Return the moment to which the parts of a number add up; None if it has no day."""
    text = str(number)
    day = date_of(int(text[:8].ljust(digits, "0")))
    if day is None:
        return None
    seconds = int(text[12:] or 0)
    return day + dt.timedelta(hours=int(text[8:10]), minutes=int(text[10:12]), seconds=seconds)
