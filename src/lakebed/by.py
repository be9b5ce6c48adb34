"""Partition functions, for `DatasetDescriptor(partition_by=[by.date("ts"), …])`.

A source may be a field of a record: `position.latitude`. Time functions take dates, timestamps,
and numbers since 1970 in `unit`: s, ms, us or ns.

>>> from lakebed import by
>>> by.hash("user_id", 64).name
'user_id_hash'
"""

from __future__ import annotations

from collections.abc import Sequence

from lakebed.model.partition import Dimension, PartitionFunction, build_function

__all__ = [
    "bucket",
    "date",
    "date_format",
    "day",
    "days",
    "dimension",
    "fixed_range",
    "hash",
    "hour",
    "hours",
    "identity",
    "minute",
    "month",
    "months",
    "provided",
    "range",
    "values",
    "year",
    "years",
]


def identity(source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by the value itself.

    Under its own name the field moves from the data files into the path; with another `name`
    the path has a copy.
    """
    return build_function("identity", source, name=name)


def hash(source: str, buckets: int, *, name: str | None = None) -> PartitionFunction:  # noqa: A001 - Kite's word
    """Partition by Java's hash code modulo `buckets`; the field is `<source>_hash` by default."""
    return build_function("hash", source, [buckets], name)


def bucket(buckets: int, source: str, *, name: str | None = None) -> PartitionFunction:
    """Partition by a number of buckets, as `hash(source, buckets)`: SQL's name and order.

    The buckets are those of `hash`, not Iceberg's; the field is `<source>_hash` by default.
    """
    return build_function("bucket", source, [buckets], name)


def range(  # noqa: A001 - Kite's word
    source: str, bounds: Sequence[int] | Sequence[str], *, name: str | None = None
) -> PartitionFunction:
    """Partition by the first bound that the value does not exceed; `<source>_bound` by default.

    For numbers the field is the index of the bound, for texts the bound itself. A value above the
    last bound cannot be written.

    Raises:
        PartitionSpecError: The bounds are not ascending, or are not all numbers or all texts.
    """
    return build_function("range", source, {"bounds": bounds}, name)


def fixed_range(source: str, size: int, *, name: str | None = None) -> PartitionFunction:
    """Partition by the multiple of `size` at or below the value; `<source>_range` by default."""
    return build_function("fixed_range", source, [size], name)


def values(
    source: str, sets: Sequence[Sequence[int]] | Sequence[Sequence[str]], *, name: str | None = None
) -> PartitionFunction:
    """Partition by the index of the first set with the value; the field is `<source>_set` by default.

    A value that is in none of the sets cannot be written.

    Raises:
        PartitionSpecError: A set is empty, or the values are not all numbers or all texts.
    """
    return build_function("values", source, {"sets": sets}, name)


def date_format(
    source: str,
    format: str,  # noqa: A002 - the name in the JSON form
    *,
    unit: str = "ms",
    name: str | None = None,
) -> PartitionFunction:
    """Partition by the time as text in UTC, with a pattern of Java's SimpleDateFormat.

    The field is `<source>_date_format` by default. It prunes ranges if the texts sort like the
    times, as with `yyyy-MM`.

    Raises:
        PartitionSpecError: The pattern has a letter that is not supported, or a `/`.
    """
    return build_function("date_format", source, {"format": format, "unit": unit}, name)


def provided(name: str, values: str = "string") -> PartitionFunction:
    """Partition by a value that is given with each write: a string, int or long.

    Raises:
        PartitionSpecError: `values` is another type.
    """
    return build_function("provided", name, {"values": values})


def date(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the calendar day in UTC; the field is `<source>_date` by default."""
    return build_function("date", source, {"unit": unit}, name)


def years(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the year in UTC, as `year`: SQL's name; the field is `<source>_year` by default."""
    return build_function("years", source, {"unit": unit}, name)


def months(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the year and month in UTC, as text: SQL's name for `date_format` of `yyyy-MM`.

    The field is `<source>_month` by default.
    """
    return build_function("months", source, {"unit": unit}, name)


def days(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the calendar day in UTC, as `date`: SQL's name.

    The field is `<source>_day` by default.
    """
    return build_function("days", source, {"unit": unit}, name)


def hours(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by day and hour in UTC, as text: SQL's name for `date_format` of `yyyy-MM-dd-HH`.

    The field is `<source>_hour` by default.
    """
    return build_function("hours", source, {"unit": unit}, name)


def dimension(
    source: str, allowed: object = "*", *, name: str | None = None, cap: int | None = None
) -> Dimension:
    """Partition by the allowed values; the field is `<source>_dimension` by default.

    Every other value goes to `OTHER`, null and missing ones to `UNKNOWN`.

    Args:
        source: Name of the field to partition by.
        allowed: `"*"` for any value, a list, a text as a list of one, a range
            `{"min": …, "max": …, "type": …}`, or `{"regex": …}`.
        name: Name of the partition field.
        cap: Maximum number of values with a partition of their own, if `allowed` does not list
            them; 1,000 if None. Later values go to `OTHER`.

    Raises:
        PartitionSpecError: `allowed` or `cap` is not valid.
    """
    return Dimension.of(source, allowed, name=name, cap=cap)


def year(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the year in UTC; the field is `year` by default."""
    return build_function("year", source, {"unit": unit}, name)


def month(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the month, 1 to 12, in UTC, below its year; else use `date_format` `yyyy-MM`.

    Alone it repeats every year, and `Repository.create` warns: an overwrite with rows of one
    year would also replace those of others. Ranges prune only below the year.
    """
    return build_function("month", source, {"unit": unit}, name)


def day(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the day of the month, 1 to 31, in UTC, below its month; else use `date`.

    Alone it repeats every month, and `Repository.create` warns: an overwrite with rows of one
    month would also replace those of others. Ranges prune only below the month.
    """
    return build_function("day", source, {"unit": unit}, name)


def hour(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the hour, 0 to 23, in UTC, below its day or `date`.

    Alone it repeats every day, and `Repository.create` warns: an overwrite with rows of one
    day would also replace those of others. Ranges prune only below the day or date.
    """
    return build_function("hour", source, {"unit": unit}, name)


def minute(source: str, *, unit: str = "ms", name: str | None = None) -> PartitionFunction:
    """Partition by the minute, 0 to 59, in UTC, below its hour.

    Alone it repeats every hour, and `Repository.create` warns: an overwrite with rows of one
    hour would also replace those of others. Ranges prune only below the hour.
    """
    return build_function("minute", source, {"unit": unit}, name)
