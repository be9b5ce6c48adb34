"""Queries to an archive, and pages of their results."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from lakebed.archive.record import ArchiveRecord
from lakebed.archive.times import to_datetime
from lakebed.errors import InvalidInputError
from lakebed.model.moments import bound_to_epoch_ms

PAGE_LIMIT = 100
MAX_PAGE_LIMIT = 1_000

Position = tuple[int | str, str]  # the end of a page; each index defines its meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveQuery:
    """One of the four queries: by time or by work id, each with or without a place.

    Attributes:
        what: The program or process to search for.
        where: The place or machine; None for all.
        work_id: The work id; None for a query by time.
        start: Start of the time range, in milliseconds since the epoch.
        end: End of the time range, included.
        retracted: Include retracted files.
    """

    what: str
    where: str | None = None
    work_id: str | None = None
    start: int | None = None
    end: int | None = None
    retracted: bool = False

    @classmethod
    def of(
        cls,
        what: str | None,
        *,
        where: str | None = None,
        work_id: str | None = None,
        start: object = None,
        end: object = None,
        now: dt.datetime | None = None,
        retracted: bool = False,
    ) -> Self:
        """Check a query.

        Raises:
            InvalidInputError: `what` is missing; neither or both of time and work id are given;
                one of start and end is missing or is not a time; or they are in the wrong order.
        """
        for name, value in (("what", what), ("where", where), ("work_id", work_id)):
            _check_text(name, value)
        if not what:
            msg = "The query has no 'what'."
            raise InvalidInputError(msg, hint="Give the kind of files, for example 'syslog'.")
        if work_id is None and start is None and end is None:
            msg = "The query has neither a work id nor a time."
            raise InvalidInputError(msg, hint="Give work_id, or start and end.")
        if work_id is not None and not (start is None and end is None):
            msg = "The query has both a work id and a time."
            raise InvalidInputError(msg, hint="Give work_id, or start and end.")
        if work_id is not None:
            return cls(what=what, where=where, work_id=work_id, retracted=retracted)
        if start is None or end is None:
            msg = f"The query has no {'start' if start is None else 'end'}."
            raise InvalidInputError(msg, hint="Give both start and end; end may be 'now'.")
        first, last = bound_to_epoch_ms(start, now=now), bound_to_epoch_ms(end, now=now)
        _check_order(first, last)
        return cls(what=what, where=where, start=first, end=last, retracted=retracted)

    @property
    def interval(self) -> tuple[int, int]:
        """Start and end of a query by time."""
        return self.start or 0, self.end or 0

    def digest(self, kind: str) -> str:
        """Return a digest that binds a cursor to this query and to a kind of index."""
        asked = [kind, self.what, self.where, self.work_id, self.start, self.end]
        asked += [self.retracted] if self.retracted else []
        return hashlib.blake2b(json.dumps(asked).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentQuery:
    """A question for the contents of an archive: of a place and a time, both of which may be open.

    Attributes:
        where: The place or machine; None for all.
        start: Start of the time range, in milliseconds since the epoch; None for no bound.
        end: End of the time range, included; None for no bound.
        retracted: Include retracted files.
    """

    where: str | None = None
    start: int | None = None
    end: int | None = None
    retracted: bool = False

    @classmethod
    def of(
        cls,
        *,
        where: str | None = None,
        start: object = None,
        end: object = None,
        retracted: bool = False,
    ) -> Self:
        """Check a question.

        Raises:
            InvalidInputError: `where` is not text, a bound is not a time, or they are in the wrong
                order.
        """
        _check_text("where", where)
        first = None if start is None else bound_to_epoch_ms(start)
        last = None if end is None else bound_to_epoch_ms(end)
        if first is not None and last is not None:
            _check_order(first, last)
        return cls(where=where, start=first, end=last, retracted=retracted)

    def matches(self, record: ArchiveRecord) -> bool:
        """Return whether a file is of this place and touches this time."""
        return (
            self.where in (None, record.where)
            and (self.start is None or record.last_ms >= self.start)
            and (self.end is None or record.metadata.start <= self.end)
            and (self.retracted or record.retraction is None)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceTotals:
    """Totals of the files of one what and one where.

    Attributes:
        what: The program or process.
        where: The place or machine.
        file_count: Number of files.
        size_bytes: Their total size.
        first_ms: The earliest start, in milliseconds since the epoch.
        last_ms: The latest end, or start of a file of one moment.
    """

    what: str
    where: str
    file_count: int
    size_bytes: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatSummary:
    """The files of one what in an archive.

    Attributes:
        what: The program or process.
        file_count: Number of files.
        size_bytes: Their total size.
        first: The earliest start; aware, UTC.
        last: The latest end, or start of a file of one moment; aware, UTC.
        wheres: The places or machines, sorted.
    """

    what: str
    file_count: int
    size_bytes: int
    first: dt.datetime
    last: dt.datetime
    wheres: tuple[str, ...]

    @classmethod
    def of(cls, totals: Sequence[PlaceTotals]) -> Self:
        """Sum up the totals of all places of one what."""
        return cls(
            what=totals[0].what,
            file_count=sum(place.file_count for place in totals),
            size_bytes=sum(place.size_bytes for place in totals),
            first=to_datetime(min(place.first_ms for place in totals)),
            last=to_datetime(max(place.last_ms for place in totals)),
            wheres=tuple(sorted(place.where for place in totals)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of the records that match a query.

    Attributes:
        records: At most as many as requested; fewer only on the last page.
        next_cursor: Cursor of the next page; None on the last one.
    """

    records: tuple[ArchiveRecord, ...]
    next_cursor: str | None


def _check_text(name: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        msg = f"The query has {name} {value!r}, which is not text."
        raise InvalidInputError(msg, hint="Give text, or leave it out.")


def _check_order(first: int, last: int) -> None:
    if first > last:
        msg = f"The query has start {first} after end {last}."
        raise InvalidInputError(msg, hint="Swap them.")


def encode_cursor(query: ArchiveQuery, kind: str, position: Position) -> str:
    """Encode the end of a page as text that can be part of a URL."""
    text = json.dumps([query.digest(kind), *position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii").rstrip("=")


def decode_cursor(query: ArchiveQuery, kind: str, cursor: str) -> Position:
    """Decode a cursor of `encode_cursor`.

    Raises:
        InvalidInputError: It is not a cursor, or belongs to another query.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        parts = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, AttributeError, RecursionError) as exc:
        raise _bad_cursor(cursor) from exc
    match parts:
        case [str() as digest, (int() | str()) as first, str() as second] if not isinstance(
            first, bool
        ):
            pass
        case _:
            raise _bad_cursor(cursor)
    if digest != query.digest(kind):
        msg = f"Cursor {cursor!r} belongs to another query."
        raise InvalidInputError(
            msg, hint="Repeat the query of the first page exactly; do not use 'now'."
        )
    return first, second


def _bad_cursor(cursor: object) -> InvalidInputError:
    text = repr(cursor)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    msg = f"{shown} is not a cursor."
    return InvalidInputError(msg, hint="Use next_cursor of the page before, unchanged.")
