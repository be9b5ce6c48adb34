"""Filters of the JVM of a classic session, as predicates."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from lakebed.model.predicate import Predicate, all_of, any_of
from lakebed.model.schema import Type
from lakebed.spark.filters import ColumnFilter, said_by

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
# For earlier times, `java.sql.Timestamp` uses the Julian calendar and historical local times: Spark
# shifts such times by up to some days.
_FIRST_SURE_TIME = dt.datetime(1900, 1, 3, tzinfo=dt.UTC)
# `java.sql.Date` has no days from 1582-10-05 to 14, for which it shows 1582-10-15, and no era.
_FIRST_SURE_DATE = dt.date(1582, 10, 16)
_HALF_DAY_MS = 12 * 3600 * 1000
# A join passed 137,575 keys of its other side while a query ran: one by one they took 118 s.
_MOST_SINGLE_VALUES = 100
# How numbers in JSON are read, by the type of the values.
_READ_FROM_JSON: Mapping[type, Callable[[str], Any]] = {int: int, str: int, Decimal: Decimal}
_REPLACEMENT = "\ufffd"  # what the JVM makes of bytes that are not UTF-8


def said_by_jvm(condition: Any, types: Mapping[str, Type]) -> Predicate | None:
    """Return a predicate that an `org.apache.spark.sql.sources.Filter` implies; None without any.

    Args:
        condition: Filter of Spark's JVM.
        types: Types of the columns that a predicate may name.

    Cost:
        Some calls into the JVM for each column of the filter, of a tenth of a millisecond, and for
        each of up to 100 values. More integers, decimals or texts take a few calls together.
    """
    name = condition.productPrefix()
    if name in ("And", "Or"):
        sides = [said_by_jvm(side, types) for side in (condition.left(), condition.right())]
        known = [side for side in sides if side is not None]
        if name == "And":
            return all_of(known) if known else None
        return any_of(known) if len(known) == len(sides) else None
    is_negated = name == "Not"
    if is_negated:
        condition = condition.child()
        name = condition.productPrefix()
    leaf = _leaf(name, condition)
    return None if leaf is None else said_by(leaf, types, is_negated=is_negated)


def _leaf(kind: str, condition: Any) -> ColumnFilter | None:
    if kind not in _VALUE_OF:
        return None
    column = str(condition.attribute()).replace("`", "")
    try:
        return ColumnFilter(kind, column, _VALUE_OF[kind](condition))
    except (ValueError, OverflowError):
        return None  # a year outside the range of Python, or an ambiguous time


def _value(value: Any) -> Any:
    """Return a value of the JVM as a Python value.

    Raises:
        ValueError: It may stand for another value in Spark, or has no counterpart.
    """
    if isinstance(value, str) and _REPLACEMENT in value:
        message = "the text may have had bytes that are not UTF-8"
        raise ValueError(message)
    if not hasattr(value, "getClass"):
        return value
    name = value.getClass().getName()
    if name == "java.sql.Timestamp":
        # Its milliseconds count from 1970 in UTC, for every time zone that it is shown in.
        seconds = value.getTime() // 1000
        time = _EPOCH + dt.timedelta(seconds=seconds, microseconds=value.getNanos() // 1000)
        if time < _FIRST_SURE_TIME:
            message = f"{time} may be another time"
            raise ValueError(message)
        return time
    if name == "java.time.Instant":
        micros = value.getNano() // 1000
        return _EPOCH + dt.timedelta(seconds=value.getEpochSecond(), microseconds=micros)
    if name == "java.sql.Date":
        return _sure_date(value)
    if name == "java.time.LocalDate":
        return dt.date.fromisoformat(value.toString())
    if name == "java.time.LocalDateTime":
        return dt.datetime.fromisoformat(value.toString())
    message = f"{name} is not a value of a predicate"
    raise ValueError(message)


def _sure_date(value: Any) -> dt.date:
    """Return the date of a `java.sql.Date`, which is a midnight in the zone of the JVM."""
    date = dt.date.fromisoformat(value.toString())
    before = value.clone()
    before.setTime(value.getTime() - _HALF_DAY_MS)
    # Where the zone skipped the day before, the JVM shows this date for both.
    if date < _FIRST_SURE_DATE or before.toString() != (date - dt.timedelta(days=1)).isoformat():
        message = f"{date} may be another date"
        raise ValueError(message)
    return date


def _values(values: Any) -> tuple[Any, ...]:
    """Return values of an array of the JVM as Python values.

    Raises:
        ValueError: A value has no sure counterpart, or they are many dates, times or floats.
    """
    if len(values) <= _MOST_SINGLE_VALUES:
        return tuple(_value(value) for value in values)
    first = next((value for value in values if value is not None), None)
    if type(first) not in _READ_FROM_JSON:
        message = f"{len(values)} values of {type(first).__name__} are not compared one by one"
        raise ValueError(message)
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    text = jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(values)
    to_number = _READ_FROM_JSON[type(first)]
    listed = json.loads(text, parse_int=to_number, parse_float=to_number)
    return tuple(_value(value) for value in listed)


def _single(condition: Any) -> Any:
    return _value(condition.value())


# Functions that return the value of each kind of filter that can be expressed.
_VALUE_OF: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("EqualTo", "EqualNullSafe", "StringStartsWith"), _single),
    **dict.fromkeys(("GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"), _single),
    **dict.fromkeys(("IsNull", "IsNotNull"), lambda _: None),
    "In": lambda condition: _values(condition.values()),
}
