"""Moments that SQL text computes: now, today, and intervals that are added to or taken from a time."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from typing import TYPE_CHECKING

from lakebed.common.shown import shown
from lakebed.errors import PredicateError
from lakebed.model.schema import Kind, Primitive
from lakebed.model.sql_dialect import to_text
from lakebed.model.values import parse_value

if TYPE_CHECKING:
    from sqlglot import expressions as exp

Moment = dt.datetime | dt.date

FIXED = {
    "MICROSECOND": dt.timedelta(microseconds=1),
    "MILLISECOND": dt.timedelta(milliseconds=1),
    "SECOND": dt.timedelta(seconds=1),
    "MINUTE": dt.timedelta(minutes=1),
    "HOUR": dt.timedelta(hours=1),
    "DAY": dt.timedelta(days=1),
    "WEEK": dt.timedelta(weeks=1),
}
MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_AMOUNT = re.compile(r"\s*([+-]?\d+)\s*([A-Za-z]*)")
_DAY_BEFORE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?=[ T])")
_TODAY = ("current_date", "curdate")
_NOW = ("now", "current_timestamp", "localtimestamp", *_TODAY)
_SHIFTS = {"date_add": 1, "dateadd": 1, "date_sub": -1}


def is_now(node: object) -> bool:
    """Return whether a part is a call that gives the current time or date."""
    from sqlglot import expressions as exp

    is_call = isinstance(node, exp.Anonymous) and not node.expressions
    return is_call and node.name.lower() in _NOW  # type: ignore[attr-defined]  # a call


class MistakeError(PredicateError):
    """A condition has a meaning in SQL, which cannot be meant: such as one that is never true."""


class SqlMoments:
    """Reads moments from the tree of a SQL text, all of them at one moment."""

    def __init__(self, now: dt.datetime) -> None:
        """Read moments.

        Args:
            now: The current time, aware.
        """
        from sqlglot import expressions as exp

        self._exp = exp
        self._now = now

    def find(self, node: object) -> Moment | None:
        """Return the moment that an expression computes; None if it computes something else.

        Raises:
            PredicateError: An interval cannot be read, or leads out of the years 1 to 9999.
        """
        exp = self._exp
        match node:
            case exp.Paren():
                return self.find(node.this)
            case exp.CurrentDate():
                return self._now.date()
            case exp.CurrentTimestamp():
                return self._now
            case exp.Anonymous() if is_now(node):
                return self._now.date() if node.name.lower() in _TODAY else self._now
            case exp.Cast(this=exp.Literal(is_string=True)):
                return self.read_literal(node, "the literal")
            case exp.Add() | exp.Sub():
                return self._shifted(node)
            case exp.Anonymous() if node.name.lower() in _SHIFTS and len(node.expressions) == 2:
                return self._moved_by_days(node)
        return None

    def read_literal(self, node: exp.Cast, place: str) -> Moment | None:
        """Return the moment of a literal such as DATE '2013-06-01'; None for another type.

        As in Spark, a date keeps nothing of the time that its text has.

        Args:
            node: A cast of a text.
            place: Name of the column in errors.

        Raises:
            InvalidInputError: The text is not a moment of the type.
        """
        kind = self._kind_of(node)
        if kind is None:
            return None
        text = node.this.name
        if kind is Kind.DATE and (timed := _DAY_BEFORE_TIME.match(text)):
            parse_value(text, Primitive(Kind.TIMESTAMP), place)  # for its error
            text = timed[0]
        value = parse_value(text, Primitive(kind), place)
        assert isinstance(value, dt.date)
        return value

    def _kind_of(self, node: exp.Cast) -> Kind | None:
        """Return the type of dates or times that a cast names; None for another one."""
        names = self._exp.DataType.Type
        if node.to.expressions:  # a number of digits, which would round
            return None
        if node.to.this == names.DATE:
            return Kind.DATE
        if node.to.this == names.TIMESTAMPNTZ:
            return Kind.TIMESTAMP_NTZ
        zoned = (names.TIMESTAMP, names.TIMESTAMPTZ, names.TIMESTAMPLTZ, names.DATETIME)
        return Kind.TIMESTAMP if node.to.this in zoned else None

    def _shifted(self, node: exp.Add | exp.Sub) -> Moment | None:
        exp = self._exp
        base, amount = node.args["this"], node.args["expression"]
        if isinstance(base, exp.Interval) and isinstance(node, exp.Add):
            base, amount = amount, base
        moment = self.find(base)
        if moment is None:
            return None
        sign = -1 if isinstance(node, exp.Sub) else 1
        if isinstance(amount, exp.Interval):
            for count, unit in amounts_of(amount):
                moment = _moved(moment, sign * count, unit, node)
            return moment
        days = _whole(amount)
        if days is None or isinstance(moment, dt.datetime):
            raise PredicateError(
                f"Cannot compute {shown(to_text(node))}.",
                hint="Add or take an interval, such as INTERVAL '7' DAY; of a date also whole days.",
            )
        return _moved(moment, sign * days, "DAY", node)

    def _moved_by_days(self, node: exp.Anonymous) -> Moment | None:
        """Return the date of `date_add` or `date_sub`."""
        moment, days = self.find(node.expressions[0]), _whole(node.expressions[1])
        if moment is None or days is None:
            return None
        date = moment.date() if isinstance(moment, dt.datetime) else moment
        return _moved(date, _SHIFTS[node.name.lower()] * days, "DAY", node)


def amounts_of(interval: exp.Interval) -> list[tuple[int, str]]:
    """Return the amounts of an interval, such as those of '1 day 2 hours'.

    Raises:
        PredicateError: It cannot be read.
    """
    from sqlglot import expressions as exp

    unit = interval.args.get("unit")
    given = interval.this
    sign = 1
    if isinstance(given, exp.Neg):
        given, sign = given.this, -1
    is_plain = isinstance(given, exp.Literal) and not isinstance(unit, exp.IntervalSpan)
    text = given.name if is_plain else ""
    if unit is not None:
        text = f"{text} {unit.name}"
    amounts, position = [], 0
    while found := _AMOUNT.match(text, position):
        name = found[2].upper().removesuffix("S")
        if name not in FIXED and name not in MONTHS:
            break
        amounts.append((sign * int(found[1]), name))
        position = found.end()
    if not amounts or text[position:].strip():
        raise PredicateError(
            f"Cannot read the interval {shown(to_text(interval))}.",
            hint="Write a whole number and a unit, such as INTERVAL '7' DAY; units are "
            f"{', '.join(map(str.lower, (*FIXED, *MONTHS)))}.",
        )
    return amounts


def _whole(node: object) -> int | None:
    """Return the whole number that a literal is; None if it is something else."""
    text = getattr(node, "sql", str)().replace(" ", "")
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None


def _moved(moment: Moment, count: int, unit: str, node: exp.Expr) -> Moment:
    try:
        if unit in MONTHS:
            return _moved_by_months(moment, count * MONTHS[unit])
        is_of_day = unit in ("DAY", "WEEK")
        if not is_of_day and not isinstance(moment, dt.datetime):
            moment = dt.datetime.combine(moment, dt.time(), dt.UTC)
        return moment + count * FIXED[unit]
    except (OverflowError, ValueError) as exc:
        raise MistakeError(
            f"{shown(to_text(node))} lies outside the years 1 to 9999.",
            hint="Give a smaller interval.",
        ) from exc


def _moved_by_months(moment: Moment, months: int) -> Moment:
    """Return the same day of another month, or its last day."""
    count = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(count, 12)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        raise ValueError(year)
    day = min(moment.day, calendar.monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)
