"""Retention: the rule, as a pipeline or properties of a dataset declare it, and its conditions.

The properties are `retention.keep`, `retention.by` and `retention.delete_where`; they mean what the
keys of `[retention]` in a pipeline mean.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lakebed.common.ages import parse_age
from lakebed.common.given import check_given, given_names
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Layout
from lakebed.model.names import nearest
from lakebed.model.partition import CalendarPart, Date, DateFormat, Identity, PartitionFunction
from lakebed.model.partition.calendar import CALENDAR_UNITS, TimeFunction, as_source
from lakebed.model.predicate import Comparison, Op, Predicate, sql_literal
from lakebed.model.schema import Kind, Primitive, Type, dotted_types
from lakebed.model.sql_predicates import parse_sql
from lakebed.model.values import TIMES

PREFIX = "retention."
_KEYS = ("keep", "by", "delete_where")
_DAY = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """The rows that a pipeline deletes; older versions keep them until a cleanup.

    Attributes:
        keep: Keep partitions for this long after their time, such as `400d`; a partition goes when
            all of its time is longer ago.
        by: The field, or partition field, with that time; None for the one that the dataset is
            partitioned by.
        delete_where: Condition in SQL; the rows that meet it are deleted. It may use `now()` and
            intervals.
        raw: Keep the raw files in the archive for this long after their last event, such as
            `730d`; a file goes only if the dataset has read it. Of a pipeline alone.
        raw_read_by: Further datasets of the repository that must have read a raw file before it
            goes.

    >>> RetentionRule(keep="400d").keep_for.days
    400
    """

    keep: str | dt.timedelta | None = None
    by: str | None = None
    delete_where: str | None = None
    raw: str | dt.timedelta | None = None
    raw_read_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "raw_read_by", given_names("raw_read_by", self.raw_read_by))
        if not self.is_of_rows and self.raw is None:
            raise InvalidInputError(
                "The retention has neither keep nor delete_where nor raw.",
                hint='Give keep = "400d", or a condition.',
            )
        if self.keep is None and self.by is not None:
            raise InvalidInputError(
                f"The retention has by = {self.by!r}, but no keep.", hint='Give keep = "400d", too.'
            )
        if self.raw is None and self.raw_read_by:
            raise InvalidInputError(
                "The retention has raw_read_by, but no raw.", hint='Give raw = "730d", too.'
            )
        check_given("by", self.by, str, "Give the name of a field.")
        check_given("delete_where", self.delete_where, str, "Give a condition in SQL.")
        if self.delete_where is not None and not self.delete_where.strip():
            raise InvalidInputError(
                "delete_where is empty.", hint="Give a condition in SQL, or leave it out."
            )
        for name, age in (("keep", self.keep), ("raw", self.raw)):
            if age is not None and not parse_age(age):
                raise InvalidInputError(
                    f"{name} is 0, which would delete everything.",
                    hint='Give an age, such as "400d".',
                )

    def __str__(self) -> str:
        by = "" if self.by is None else f" by {self.by}"
        parts = [] if self.keep is None else [f"keep {_age_text(self.keep)}{by}"]
        parts += [] if self.delete_where is None else [f"delete where {self.delete_where}"]
        parts += [] if self.raw is None else [f"keep raw files {_age_text(self.raw)}"]
        return "; ".join(parts)

    @property
    def keep_for(self) -> dt.timedelta:
        """The age from which on a partition goes; 0 if `keep` is not given."""
        return dt.timedelta() if self.keep is None else parse_age(self.keep)

    @property
    def is_of_rows(self) -> bool:
        """True if it deletes rows, and not raw files alone."""
        return self.keep is not None or self.delete_where is not None

    def deletes_as(self, other: RetentionRule) -> bool:
        """Return whether two rules delete the same rows."""
        mine, others = (
            (one.keep_for, one.by, (one.delete_where or "").strip()) for one in (self, other)
        )
        return mine == others


def _age_text(age: str | dt.timedelta) -> str:
    return age.strip() if isinstance(age, str) else str(age)


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


def declared_in(properties: Mapping[str, str]) -> dict[str, str]:
    """Return those properties of a dataset that declare a retention, also invalid ones.

    >>> declared_in({"retention.keep": "400d", "retention_note": "see the wiki"})
    {'retention.keep': '400d'}
    """
    return {
        name: value
        for name, value in properties.items()
        if name == PREFIX.rstrip(".") or name.startswith(PREFIX)
    }


def rule_in(properties: Mapping[str, str]) -> RetentionRule | None:
    """Return the retention that properties of a dataset declare; None if they declare none.

    Raises:
        InvalidInputError: A property is unknown, or its value is not valid.

    >>> rule_in({"retention.keep": "400d", "owner": "ops"})
    RetentionRule(keep='400d', by=None, delete_where=None, raw=None, raw_read_by=())
    """
    given: dict[str, str] = {}
    for name, value in sorted(declared_in(properties).items()):
        key = name.removeprefix(PREFIX)
        if key not in _KEYS:
            known = [f"{PREFIX}{one}" for one in _KEYS]
            raise InvalidInputError(
                f"Unknown property {name!r}.", hint=f"Known are: {', '.join(known)}."
            )
        given[key] = value
    if not given:
        return None
    keep, by, delete_where = map(given.get, _KEYS)
    if keep is not None:
        with _naming("keep"):
            RetentionRule(keep=keep)
    if delete_where is not None:
        with _naming("delete_where"):
            RetentionRule(delete_where=delete_where)
    with _naming("by"):
        return RetentionRule(keep=keep, by=by, delete_where=delete_where)


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Name the property whose value an error is about."""
    try:
        yield
    except LakebedError as exc:
        raise InvalidInputError(
            f"The property '{PREFIX}{key}' is wrong: {exc.message}", hint=exc.hint
        ) from exc


def check(descriptor: DatasetDescriptor, before: DatasetDescriptor | None = None) -> None:
    """Check the properties of retention of a new descriptor: their form, and that they fit it.

    Args:
        descriptor: The new descriptor.
        before: The current one. Unchanged properties are only checked if they fitted it: an older
            release may have accepted others.

    Raises:
        InvalidInputError: A property is unknown, or its value is not valid or does not fit.
    """
    if before is not None and declared_in(before.properties) == declared_in(descriptor.properties):
        try:
            _check(before)
        except LakebedError:
            return
    _check(descriptor)


def _check(descriptor: DatasetDescriptor) -> None:
    rule = rule_in(descriptor.properties)
    for key, problem in ({} if rule is None else misfits_of(rule, descriptor)).items():
        with _naming(key):
            raise problem


def misfits_of(rule: RetentionRule, descriptor: DatasetDescriptor) -> dict[str, LakebedError]:
    """Return the reasons why a rule does not fit a dataset, by the keys that declare them."""
    found: dict[str, LakebedError] = {}
    if rule.keep is not None:
        try:
            find_time(descriptor, rule.by)
        except LakebedError as exc:
            found["keep" if rule.by is None else "by"] = exc
    if rule.delete_where is not None:
        try:
            types = Layout.of_ours("dataset", descriptor).predicate_types
            parse_sql(rule.delete_where, types)
        except LakebedError as exc:
            found["delete_where"] = exc
    return found


def facts_of_retention(descriptor: DatasetDescriptor) -> dict[str, object]:
    """Return the retention that properties declare, for a display; empty if they declare none."""
    try:
        rule = rule_in(descriptor.properties)
    except LakebedError as exc:
        return {"retention": str(exc)}
    return {} if rule is None else {"retention": str(rule)}


def in_force(declared: RetentionRule | None, properties: Mapping[str, str]) -> RetentionRule | None:
    """Return the retention of a dataset: that of its pipeline, or that of its properties.

    Args:
        declared: The rule of the pipeline; None if it has none.
        properties: The properties of the dataset.

    Raises:
        InvalidInputError: Both delete rows, and not the same ones; or a property is wrong.
    """
    own = rule_in(properties)
    if own is None:
        return declared
    if declared is None:
        return own
    if not declared.is_of_rows:
        return replace(own, raw=declared.raw, raw_read_by=declared.raw_read_by)
    if not declared.deletes_as(own):
        raise InvalidInputError(
            f"The pipeline declares '{declared}', and properties of the dataset '{own}'.",
            hint=f"Declare the retention in one place: leave it out of the pipeline, or remove the "
            f"properties {PREFIX}*.",
        )
    return declared


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
