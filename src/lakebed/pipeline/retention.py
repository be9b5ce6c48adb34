"""Retention: the conditions of the rows that are past it, and their deletion."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import nearest
from lakebed.model.partition import CalendarPart, Date, DateFormat, Identity, PartitionFunction
from lakebed.model.partition.calendar import CALENDAR_UNITS, TimeFunction, as_source
from lakebed.model.predicate import Comparison, Op, Predicate, sql_literal
from lakebed.model.schema import Kind, Primitive, Type, dotted_types
from lakebed.model.values import TIMES
from lakebed.pipeline.upkeep_rules import RetentionRule

_DAY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTime:
    """The time of the partitions of a dataset.

    Attributes:
        source: The field that holds the time.
        kind: Type of that field.
        parts: Number of calendar parts that a partition spans at least: 1 for a year, 3 for a day.
        unit: Unit of a number.
    """

    source: str
    kind: Kind
    parts: int
    unit: str = "ms"

    def condition(self, cutoff: dt.datetime) -> Predicate:
        """Return the condition of the rows whose whole partition is before a moment."""
        begin = cutoff.astimezone(dt.UTC)
        # The first value of each part after those that are kept.
        firsts = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "microsecond": 0}
        finer = list(firsts)[self.parts - 1 :]
        floor = begin.replace(**{name: firsts[name] for name in finer})  # type: ignore[arg-type]  # no zone
        return Comparison(self.source, Op.LT, as_source(floor, Primitive(self.kind), self.unit))


def find_time(descriptor: DatasetDescriptor, by: str | None) -> PartitionTime:
    """Return the time by which partitions are kept.

    Args:
        descriptor: The descriptor of the dataset.
        by: A field or partition field; None for the one that the dataset is partitioned by.

    Raises:
        InvalidInputError: There is no such field, it is not a time, or several could be meant.
    """
    types = dotted_types(descriptor.schema)
    by_source: dict[str, list[PartitionFunction]] = {}
    for function in descriptor.partition_by:
        kind = types.get(function.source)
        if kind is None or by not in (None, function.name, function.source):
            continue
        is_time = isinstance(function, Identity) and _kind(kind) in TIMES
        if is_time or isinstance(function, TimeFunction):
            by_source.setdefault(function.source, []).append(function)
    if len(by_source) > 1:
        raise InvalidInputError(
            f"The partitions have several times: {', '.join(by_source)}.",
            hint="Give by, the field that holds the time to keep by.",
        )
    for source, functions in by_source.items():
        # Another partition field of the same source may cut its partitions finer.
        alike = [one for one in descriptor.partition_by if one.source == source]
        unit = next((one.unit for one in functions if isinstance(one, TimeFunction)), "ms")
        return PartitionTime(
            source=source, kind=_kind(types[source]), parts=_parts_of(alike), unit=unit
        )
    if by is None:
        strategy = descriptor.partition_by
        raise InvalidInputError(
            f"The partitions {strategy} have no time to keep by."
            if strategy
            else "The dataset has no partitions, and so no time to keep them by.",
            hint="Give by, a field that holds a time, or delete_where.",
        )
    if by not in types:
        known = [*types, *(function.name for function in descriptor.partition_by)]
        raise InvalidInputError(
            f"The dataset has no field {by!r}.",
            hint=nearest(by, known) or "Give a field that holds a time.",
        )
    if _kind(types[by]) not in TIMES:
        raise InvalidInputError(
            f"The field {by!r} is a {types[by]}, which is not a time.",
            hint="Give a field that holds a date or a timestamp, or delete_where.",
        )
    return PartitionTime(source=by, kind=_kind(types[by]), parts=_DAY)


def _kind(kind: Type) -> Kind:
    """Return the kind of a primitive type; bytes for all others, which hold no time."""
    return kind.kind if isinstance(kind, Primitive) else Kind.BYTES


def _parts_of(functions: list[PartitionFunction]) -> int:
    """Return the number of calendar parts that bound the partitions of these functions."""
    present = {one.part for one in functions if isinstance(one, CalendarPart)}
    parts = 0
    for unit in CALENDAR_UNITS:
        if unit not in present:
            break
        parts += 1
    for function in functions:
        if isinstance(function, Date):
            # Hours may divide the days of a date, too.
            parts = max(parts, _DAY + ("hour" in present) * (1 + ("minute" in present)))
        elif isinstance(function, DateFormat):
            parts = max(parts, function.part_count)
        elif isinstance(function, Identity):
            parts = max(parts, _DAY)
    return parts or _DAY  # without a year the partitions repeat, and rows are deleted


def conditions_of(
    rule: RetentionRule,
    descriptor: DatasetDescriptor,
    now: dt.datetime,
    parse: Callable[[str], Predicate],
) -> dict[str, Predicate]:
    """Return the conditions of the rows to delete, by the key of the rule that declares them.

    Args:
        rule: The rule.
        descriptor: The descriptor of the dataset.
        now: The moment from which ages count.
        parse: Function that reads a condition in SQL.

    Raises:
        InvalidInputError: The rule does not fit the dataset.
        PredicateError: The condition cannot be read.
    """
    found: dict[str, Predicate] = {}
    if rule.keep is not None:
        found["keep"] = find_time(descriptor, rule.by).condition(now - rule.keep_for)
    if rule.delete_where is not None:
        found["delete_where"] = parse(rule.delete_where)
    return found


def cutoff_of(condition: Predicate) -> str | None:
    """Return the time before which a condition of `keep` deletes, as text."""
    if not isinstance(condition, Comparison):
        return None
    return sql_literal(condition.value).strip("'")
