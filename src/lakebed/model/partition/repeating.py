"""Partitions that repeat: parts of a time without the coarser parts.

`hour(ts)` alone has one partition for that hour of all days. An overwrite replaces whole
partitions, so one row of one day would replace the rows of all days.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.common.advice import warn
from lakebed.model.partition.calendar import TimeFunction, as_source
from lakebed.model.partition.function import Identity, PartitionFunction, field_text
from lakebed.model.partition.provided import Provided
from lakebed.model.partition.strategy import PartitionStrategy
from lakebed.model.schema import Kind, Primitive, Schema, Type
from lakebed.model.values import Scalar

# Early enough for 32-bit milliseconds, and on a day that every month has.
_FIRST = dt.datetime(1970, 1, 5, 3, 4, 5, tzinfo=dt.UTC)
_SECOND, _MINUTE, _HOUR = (dt.timedelta(seconds=seconds) for seconds in (1, 60, 3600))
_DAY, _WEEK, _MONTH = (dt.timedelta(days=days) for days in (1, 7, 31))
_PERIODS = {
    "minute": (_MINUTE,),
    "hour": (_HOUR,),
    "half day": (12 * _HOUR,),
    "day": (_DAY,),
    "week": (_WEEK,),
    # The same day in the next month or year, and in one where it is the same day of the week.
    "month": (_MONTH, dt.timedelta(days=273)),
    "year": (dt.timedelta(days=365), dt.timedelta(days=2191)),
}
# The least difference between times in different partitions, and partitions of that granularity
# that do not repeat.
_APART = {
    _SECOND: "date({0}), hour({0}), minute({0})",
    _MINUTE: "date({0}), hour({0}), minute({0})",
    _HOUR: "date({0}), hour({0})",
    12 * _HOUR: "date({0}), hour({0})",
    _DAY: "date({0})",
    _WEEK: "date({0})",
    _MONTH: "date_format({1})",
}


@dataclass(frozen=True, slots=True)
class Repetition:
    """Functions of one time whose partitions repeat.

    Attributes:
        functions: The functions, as text.
        period: The unit of time after which they repeat, such as day.
        is_sure: False if a partition field of another source may separate the times.
        remedy: Functions to use instead, as text.
    """

    functions: str
    period: str
    is_sure: bool
    remedy: str


def warn_of_repetition(name: str, strategy: PartitionStrategy, schema: Schema) -> None:
    """Warn about a new dataset whose partitions repeat.

    Args:
        name: The name of the dataset.
        strategy: The partition functions, which fit the schema.
        schema: The fields of the dataset.
    """
    found = find_repetition(strategy, schema)
    if found is None:
        return
    unless = (
        "" if found.is_sure else f", unless another partition field separates the {found.period}s"
    )
    warn(
        f"Partitions of {name!r} by {found.functions} repeat every {found.period}{unless}: "
        f"an overwrite with rows of one {found.period} also replaces rows of all others. "
        f"Partition by {found.remedy} instead."
    )


def find_repetition(strategy: PartitionStrategy, schema: Schema) -> Repetition | None:
    """Return the functions of a time whose partitions repeat, or None.

    A partition field of type date separates days, for every source.

    Args:
        strategy: The partition functions, which fit the schema.
        schema: The fields of the dataset.
    """
    sources = dict.fromkeys(f.source for f in strategy if isinstance(f, TimeFunction))
    for source in sources:
        functions = [
            f for f in strategy if f.source == source and isinstance(f, TimeFunction | Identity)
        ]
        others = [f for f in strategy if f.takes_source and f.source != source]
        has_date = any(f.result_type(f.source_type(schema)) == Primitive(Kind.DATE) for f in others)
        found = _find_period(functions, functions[0].source_type(schema), has_date=has_date)
        if found is not None:
            period, least = found
            return Repetition(
                functions=", ".join(str(f).removesuffix(f" as {f.name}") for f in functions),
                period=period,
                is_sure=not any(
                    isinstance(f, Identity | Provided | TimeFunction)
                    for f in strategy
                    if f.source != source
                ),
                remedy=_remedy(functions, least),
            )
    return None


def _find_period(
    functions: Sequence[PartitionFunction], source: Type, *, has_date: bool
) -> tuple[str, dt.timedelta] | None:
    """Return the period after which partitions repeat, and the least difference between two."""
    unit = next(f.unit for f in functions if isinstance(f, TimeFunction))

    def partition(after: dt.timedelta) -> tuple[Scalar, ...] | None:
        value = as_source(_FIRST + after, source, unit)
        if not all(function.accepts(value, source) for function in functions):
            return None
        return tuple(function.value(value, source) for function in functions)

    first = partition(dt.timedelta())
    if first is None:
        return None
    least = next((after for after in _APART if partition(after) not in (first, None)), None)
    if least is None:
        return None
    for period, times_after in _PERIODS.items():
        for after in times_after:
            if after > least and partition(after) == first and not (has_date and after >= _DAY):
                return period, least
    return None


def _remedy(functions: Sequence[PartitionFunction], least: dt.timedelta) -> str:
    function = next(f for f in functions if isinstance(f, TimeFunction))
    field = field_text(function.source)
    unit = "" if function.unit == "ms" else f", {function.unit}"
    return _APART[least].format(f"{field}{unit}", f"{field}, 'yyyy-MM'{unit}")
