"""The calendar of a time: the day it falls on, and its year, month, day, hour and minute.

All in UTC; a timestamp without zone is taken as it is. The calendar is the proleptic Gregorian one,
in integer arithmetic that extends beyond the years of Python and Arrow. It works on Python numbers
and on NumPy columns.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.partition.function import (
    Limits,
    PartitionFunction,
    kind_of,
    primitive_of,
    to_python,
)
from lakebed.model.predicate import Leaf, Predicate
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import TIMES, TIMESTAMPS, Scalar, integer_limits, to_micros

CALENDAR_UNITS = ("year", "month", "day", "hour", "minute")
EPOCH_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # in a second
DAY_S = 86_400
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, as days since 1970-01-01
_EPOCH = dt.date(1970, 1, 1)
_NUMBERS = frozenset({Kind.INT, Kind.LONG})


def as_source(moment: dt.datetime, source: Type, unit: str) -> Scalar:
    """Return a moment as a value of a source: a day, a time, or a number of a unit."""
    kind = kind_of(source)
    if kind is Kind.DATE:
        return moment.date()
    if kind in TIMES:
        return moment if kind is Kind.TIMESTAMP else moment.replace(tzinfo=None)
    return int(moment.timestamp()) * EPOCH_UNITS[unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeFunction(PartitionFunction, ABC):
    """A function of a time: a date, a timestamp, or a number that counts from 1970 on.

    Attributes:
        unit: Unit of a number: s, ms, us or ns.
    """

    unit: str = "ms"

    kinds = TIMES | _NUMBERS
    optional = ("unit",)
    words = frozenset({"unit"})

    def __post_init__(self) -> None:
        super(TimeFunction, self).__post_init__()
        if not isinstance(self.unit, str) or self.unit not in EPOCH_UNITS:
            raise PartitionSpecError(
                f"Unknown unit {self.unit!r} of {self.call}.",
                hint=f"Units are: {', '.join(EPOCH_UNITS)}.",
            )

    def check_unit(self, source: Type) -> None:
        """Check that the unit is the default unless the source is a number.

        Raises:
            PartitionSpecError: A source of another type has a unit.
        """
        if self.unit != "ms" and kind_of(source) not in _NUMBERS:
            raise PartitionSpecError(
                f"{self.call} cannot have unit {self.unit!r}: field {self.source!r} is a {source}.",
                hint="Leave the unit out: only numbers have one.",
            )

    def ticks_a_day(self, source: Type) -> int:
        """Return the number of steps of the source in a day."""
        kind = kind_of(source)
        if kind is Kind.DATE:
            return 1
        return DAY_S * (10**6 if kind in TIMESTAMPS else EPOCH_UNITS[self.unit])

    def ticks(self, value: Scalar) -> int:
        """Return a source value as steps since 1970."""
        if isinstance(value, dt.datetime):
            return to_micros(value)
        return (value - _EPOCH).days if isinstance(value, dt.date) else int(value)  # type: ignore[arg-type]  # a number

    def days(self, value: Scalar, source: Type) -> int:
        """Return the day of a source value, counted from 1970-01-01."""
        return self.ticks(value) // self.ticks_a_day(source)

    def tick_array(self, array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return a column as steps since 1970, with 0 for null."""
        if pa.types.is_date32(array.type):
            array = array.cast(pa.int32())
        ticks = array.cast(pa.int64())
        if ticks.null_count:
            ticks = ticks.fill_null(0)
        return ticks.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types

    def check_years(
        self, array: pa.Array, ticks: np.ndarray[Any, np.dtype[np.int64]], source: Type
    ) -> None:
        """Check that the times of a column, whose steps are given, are in the years 1 to 9999.

        Raises:
            PartitionSpecError: A time is not; the message names it.
        """
        a_day = self.ticks_a_day(source)
        if len(ticks) and not FIRST_DAY <= ticks.min() // a_day <= ticks.max() // a_day <= LAST_DAY:
            to_python(array, self.call)

    def day_limits(self, source: Type, first: int, last: int) -> Limits | None:
        """Return the limits of numbers that fall on some days; None for other types."""
        if kind_of(source) not in _NUMBERS:
            return None
        low, high = integer_limits(primitive_of(source))
        a_day = self.ticks_a_day(source)
        return max(low, first * a_day), min(high, (last + 1) * a_day - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Date(TimeFunction):
    """The calendar day, from 0001-01-01 to 9999-12-31."""

    type_name = "date"
    refined_by = CALENDAR_UNITS[3:]

    def result_type(self, source: Type) -> Type:
        """Return date."""
        self.check_unit(source)
        return Primitive(Kind.DATE)

    def limits(self, source: Type) -> Limits | None:
        """Return the limits of numbers; other types cannot exceed them."""
        return self.day_limits(source, FIRST_DAY, LAST_DAY)

    def is_ordered(self, source: Type) -> bool:  # noqa: ARG002 - see PartitionFunction
        """Return True: later days are greater."""
        return True

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the day."""
        if isinstance(value, dt.datetime):
            return value.date()
        if isinstance(value, dt.date):
            return value
        self.check_value(value, source)
        return _EPOCH + dt.timedelta(days=self.days(value, source))

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the days."""
        if kind_of(source) is Kind.DATE:
            return array
        self.check_array(array, source)
        ticks = self.tick_array(array)
        self.check_years(array, ticks, source)
        days = (ticks // self.ticks_a_day(source)).astype(np.int32)
        return _with_nulls(days, array).cast(pa.date32())

    def project(self, leaf: Leaf, source: Type, *, strict: bool) -> Predicate | None:
        """Project as other functions do; for a date, this function is the identity."""
        if kind_of(source) is Kind.DATE:
            return replace(leaf, column=self.name)
        return super(Date, self).project(leaf, source, strict=strict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarPart(TimeFunction):
    """Year, month (1-12), day (1-31), hour (0-23) or minute (0-59) of a time.

    Attributes:
        part: Name of the part, such as `year`.
    """

    part: str

    _CARDINALITIES: ClassVar[dict[str, int]] = {"month": 12, "day": 31, "hour": 24, "minute": 60}

    def __post_init__(self) -> None:
        if self.part not in CALENDAR_UNITS:
            raise PartitionSpecError(
                f"Unknown calendar part {self.part!r}.",
                hint=f"Parts are: {', '.join(CALENDAR_UNITS)}.",
            )
        super(CalendarPart, self).__post_init__()

    @classmethod
    def from_parameters(
        cls, type_name: str, source: str, name: str | None, parameters: Any
    ) -> CalendarPart:
        """Build the function of the part that the type names."""
        return cls(
            source=source, name=type_name if name is None else name, part=type_name, **parameters
        )

    @property
    def type_name(self) -> str:  # type: ignore[override]  # one class, five names
        """The part."""
        return self.part

    @property
    def refined_by(self) -> tuple[str, ...]:  # type: ignore[override]  # only the year is ordered
        """The parts below the year."""
        return CALENDAR_UNITS[1:] if self.part == "year" else ()

    @property
    def cardinality(self) -> int | None:
        """The number of months, days, hours or minutes."""
        return self._CARDINALITIES.get(self.part)

    def result_type(self, source: Type) -> Type:
        """Return int.

        Raises:
            PartitionSpecError: The source is a date and the part hour or minute, or the type has no
                unit.
        """
        self.check_unit(source)
        if kind_of(source) is Kind.DATE and self.part in ("hour", "minute"):
            raise PartitionSpecError(
                f"{self.call}: field {self.source!r} is a date.", hint="Use year, month or day."
            )
        return Primitive(Kind.INT)

    def limits(self, source: Type) -> Limits | None:
        """Return the limits of numbers; a year must fit in 32 bits."""
        if self.part != "year":
            return self.day_limits(source, -(2**63), 2**63)
        return self.day_limits(source, first_day_of(-(2**31)), first_day_of(2**31) - 1)

    def is_ordered(self, source: Type) -> bool:  # noqa: ARG002 - see PartitionFunction
        """Return True for years, which grow with time; the other parts repeat."""
        return self.part == "year"

    def value(self, value: Scalar, source: Type) -> Scalar:
        """Return the number."""
        self.check_value(value, source)
        return int(self._number(self.ticks(value), source))

    def array(self, array: pa.Array, source: Type) -> pa.Array:
        """Return the numbers."""
        self.check_array(array, source)
        return _with_nulls(self._number(self.tick_array(array), source).astype(np.int32), array)

    def _number(self, ticks: Any, source: Type) -> Any:
        a_day = self.ticks_a_day(source)
        if self.part == "hour":
            return ticks % a_day // (a_day // 24)
        if self.part == "minute":
            return ticks % a_day // (a_day // 1440) % 60
        position = CALENDAR_UNITS.index(self.part)
        return of_days(lambda days: civil(days)[position], ticks // a_day)


def _with_nulls(values: np.ndarray[Any, Any], like: pa.Array) -> pa.Array:
    mask = like.is_null().to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values, mask=mask)


def of_days(compute: Callable[[Any], Any], days: Any) -> Any:
    """Apply a function to days; for a column that spans few days, once per day."""
    if isinstance(days, int) or not len(days):
        return compute(days)
    first, last = int(days.min()), int(days.max())
    if last - first >= len(days):
        return compute(days)
    return compute(np.arange(first, last + 1))[days - first]


def civil(days: Any) -> tuple[Any, Any, Any]:
    """Return year, month and day of days since 1970-01-01, a number or a NumPy column.

    Source:
        Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms": years that begin in March,
        in eras of 400 years.
    """
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 - 12 * (month >= 10)
    return year_of_era + 400 * era + (month <= 2), month, day


def first_day_of(year: Any) -> Any:
    """Return January 1 of a year as days since 1970-01-01."""
    before = year - 1
    return 365 * before + before // 4 - before // 100 + before // 400 - 719_162
