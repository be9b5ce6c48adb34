"""Dates and times that Spark passes to its reader of Parquet as others.

A filter reaches the reader as `java.sql.Date` or `java.sql.Timestamp`, in the zone of the JVM by the
calendar of the time. They have no days from 1582-10-05 to 14. A date is a midnight, so that it cannot
be a day that the zone skipped. Spark then compares the bounds of row groups with a later day, and drops
groups that hold the rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.schema import Kind, Primitive, Struct, Type
from lakebed.plan.plan import Scan
from lakebed.spark.session import is_classic
from lakebed.state import file_table
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_CHANGE_OF_CALENDAR = (dt.date(1582, 10, 5), dt.date(1582, 10, 15))
_CHANGE_IN_ALL_ZONES = (
    dt.datetime(1582, 10, 4, tzinfo=dt.UTC),
    dt.datetime(1582, 10, 17, tzinfo=dt.UTC),
)
_DATE = Primitive(Kind.DATE)
_JUDGED = (_DATE, Primitive(Kind.TIMESTAMP))
_LEAST_GAP_HOURS = 24
_SKIPPED_BY_ZONE: dict[str, list[tuple[dt.date, dt.date]]] = {}  # hundreds of calls into the JVM


def columns_with_uncertain_dates(
    spark: SparkSession, store: Store, plan: Scan, columns: Mapping[str, Type]
) -> frozenset[str]:
    """Return the columns that may hold dates or times which Spark's filters take for others.

    Args:
        spark: Session of the read. Spark Connect passes dates in another form.
        store: Store of the file table.
        plan: Plan of the read.
        columns: Types of columns in the files, by name. Those of dates and times are judged by the
            bounds of the files. Records with such a part have no bounds, and are always uncertain.

    Cost:
        One GET for each segment of the file table, unless the process has read it before; none
        without such columns.
    """
    judged = {name: type_to_arrow(kind) for name, kind in columns.items() if kind in _JUDGED}
    records = {
        name for name, kind in columns.items() if isinstance(kind, Struct) and _has_times(kind)
    }
    if not (judged or records) or not is_classic(spark):
        return frozenset()
    if not judged:
        return frozenset(records)
    of_dates = [_CHANGE_OF_CALENDAR, *_skipped_days(spark._jvm)]
    labels = pa.array([file.label for file in plan.files], pa.large_string())
    facts = file_table.find(store, plan.file_table, labels, judged)
    uncertain = records
    for name, bounds in facts.columns.items():
        is_date = pa.types.is_date(judged[name])
        if _may_hold(bounds, of_dates if is_date else [_CHANGE_IN_ALL_ZONES]):
            uncertain.add(name)
    return frozenset(uncertain)


def unpushed(name: str, kind: Type) -> Column:
    """Return a column as an expression whose dates and times Spark cannot push to row groups."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    return _unpushed(F.col(f"`{name}`"), kind).alias(name)


def _unpushed(column: Column, kind: Type) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    if isinstance(kind, Struct):
        for field in kind.fields:
            if _has_times(field.type):
                inner = _unpushed(column.getField(field.name), field.type)
                column = column.withField(f"`{field.name}`", inner)
        return column
    return F.date_add(column, 0) if kind == _DATE else F.timestamp_micros(F.unix_micros(column))


def _has_times(kind: Type) -> bool:
    """Return whether a type is a date or time, or a record with one; Spark pushes no part of a list."""
    if isinstance(kind, Struct):
        return any(_has_times(field.type) for field in kind.fields)
    return kind in _JUDGED


def _may_hold(bounds: file_table.Bounds, ranges: Sequence[tuple[dt.date, dt.date]]) -> bool:
    """Return whether a value of some file may lie in one of the ranges; unknown bounds may."""
    for first, last in ranges:
        is_outside = pc.or_(pc.greater(bounds.min, last), pc.less(bounds.max, first))
        if not pc.all(pc.fill_null(is_outside, False)).as_py():  # noqa: FBT003 - pyarrow's
            return True
    return False


def _skipped_days(jvm: Any) -> list[tuple[dt.date, dt.date]]:
    """Return the days that the zone of the JVM skipped, each with the day after it."""
    zone = jvm.java.time.ZoneId.systemDefault()
    name = str(zone.getId())
    if name not in _SKIPPED_BY_ZONE:
        days = []
        for transition in zone.getRules().getTransitions():
            if transition.isGap() and transition.getDuration().toHours() >= _LEAST_GAP_HOURS:
                ends = transition.getDateTimeBefore(), transition.getDateTimeAfter()
                before, after = (end.toLocalDate().toString() for end in ends)
                days.append((dt.date.fromisoformat(before), dt.date.fromisoformat(after)))
        _SKIPPED_BY_ZONE[name] = days
    return _SKIPPED_BY_ZONE[name]
