"""Partition functions, to be given as `DatasetDescriptor(partition_by=[by.date("ts"), …])`.

>>> from lakebed import by
>>> by.hash("user_id", 64).name
'user_id_hash'
"""

from __future__ import annotations

from lakebed.model.partition import PartitionFunction, build_function

__all__ = ["date", "day", "hash", "hour", "identity", "minute", "month", "year"]


def identity(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the value itself.

    Under its own name the field moves from the data files into the path; with another `name`
    the path holds a copy.
    """
    return build_function("identity", source, name=name)


def hash(source: str, buckets: int, *, name: str | None = None) -> PartitionFunction:  # noqa: A001 - Kite's word
    """Partition by Java's hash code modulo `buckets`; the field is `<source>_hash` by default."""
    return build_function("hash", source, [buckets], name)


def date(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the calendar day in UTC; the field is `<source>_date` by default."""
    return build_function("date", source, name=name)


def year(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the year in UTC; the field is `year` by default."""
    return build_function("year", source, name=name)


def month(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the month, 1 to 12, in UTC; prunes ranges only below its year."""
    return build_function("month", source, name=name)


def day(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the day of the month, 1 to 31, in UTC; prunes ranges only below its month."""
    return build_function("day", source, name=name)


def hour(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the hour, 0 to 23, in UTC; prunes ranges only below its day or date."""
    return build_function("hour", source, name=name)


def minute(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the minute, 0 to 59, in UTC; prunes ranges only below its hour."""
    return build_function("minute", source, name=name)
