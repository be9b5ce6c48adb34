"""Check an overwrite whose rows are days, months or hours of a zone other than UTC.

Partition functions of times divide by UTC. A day of another zone lies in two such days. Rows of that
day, written over the partitions that they touch, would also remove the rows of the days before and
after it.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import partition_of_label
from lakebed.model.partition.calendar import TimeFunction
from lakebed.model.schema import Kind, Primitive
from lakebed.model.values import Scalar
from lakebed.state import file_table, runs
from lakebed.state.scope import RunFiles, Scope, ThesePartitions
from lakebed.state.state import State
from lakebed.state.written import Written
from lakebed.store.base import Store

_TIMESTAMP = Primitive(Kind.TIMESTAMP)
# Zones of Spark and Arrow that `zoneinfo` does not know by name.
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")

_Bounds = tuple[dt.datetime, dt.datetime]


def check_local_days(store: Store, base: State, written: Written, scope: Scope) -> None:
    """Check that rows of another zone do not remove rows of local days that they do not cover.

    The check is exact. A local day that the rows touch counts as covered, and so does a whole day of
    UTC, since it touches both local days of its partition.

    Args:
        store: The store that holds the dataset.
        base: The state of the dataset.
        written: The new rows, with the zones that they came with.
        scope: The rows to replace. A view is not checked: the caller has named its partitions.

    Raises:
        InvalidInputError: The rows would remove others; or a zone is unknown.

    Cost:
        Nothing for rows in UTC; otherwise the few objects of the file table, and for a run those of
        the list of runs.
    """
    if not written.zones or not isinstance(scope, ThesePartitions | RunFiles):
        return
    partitions = scope.partitions or frozenset()
    kept: Collection[str] = ()  # files of the run itself, which a rerun is to remove
    if isinstance(scope, RunFiles) and partitions and base.lists.runs:
        kept = runs.read(store, base.lists).live_files_of(scope.run, base.live)
    labels = [label for label in base.live.of(partitions) if label not in kept]
    if not labels:
        return
    for source, functions in local_sources(base.descriptor).items():
        name = base.descriptor.schema.stored_name(source)
        new = _bounds_by_partition(written.labels, *_bounds_of(written, name))
        old = _bounds_by_partition(labels, *_known_bounds(store, base, labels, name))
        for zone in sorted(written.zones):
            _check_zone(base.name, source, functions, zone, new, old)


def local_sources(descriptor: DatasetDescriptor) -> Mapping[str, list[TimeFunction]]:
    """Return the time functions of a dataset by their source, for sources with a zone."""
    sources: dict[str, list[TimeFunction]] = {}
    for function in descriptor.partition_by:
        if isinstance(function, TimeFunction):
            field = descriptor.schema.find(function.source)
            if field is not None and field.type == _TIMESTAMP:
                sources.setdefault(function.source, []).append(function)
    return sources


def find_zone(name: str) -> dt.tzinfo:
    """Return a zone by the name that Spark or Arrow gives it.

    Raises:
        InvalidInputError: The zone is unknown.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, *parts = offset.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        delta = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return dt.timezone(-delta if sign == "-" else delta)
    try:
        return ZoneInfo("UTC" if name == "Z" else name)
    except (ValueError, OSError, LookupError) as exc:
        raise InvalidInputError(
            f"The time zone {name!r} of the rows is unknown.",
            hint="Set the zone by its full name, such as America/New_York, or as an offset, such as "
            "+02:00; or overwrite a view, which names the partitions to replace.",
        ) from exc


def _check_zone(
    dataset: str,
    source: str,
    functions: list[TimeFunction],
    zone: str,
    new: Mapping[str, _Bounds],
    old: Mapping[str, _Bounds],
) -> None:
    known = find_zone(zone)

    def units(bounds: _Bounds) -> set[tuple[Scalar, ...]]:
        return {
            tuple(function.value(local, _TIMESTAMP) for function in functions)
            for local in (_as_if_utc(moment, known) for moment in bounds)
        }

    for partition, removed in sorted(old.items()):
        if partition not in new:
            continue
        covered = units(new[partition])
        missing = sorted(units(removed) - covered, key=str)
        if missing:
            names = ", ".join(str(value) for value in missing[0])
            calls = ", ".join(function.call for function in functions)
            raise InvalidInputError(
                f"Cannot overwrite partition {partition!r} of {dataset!r}: by the time zone {zone} it "
                f"also has rows of {calls} = {names}, which the new rows do not cover and which "
                "would be removed. Partitions divide times by UTC.",
                hint=f"Give whole partitions, by {source!r} in UTC. To replace them in spite of it, "
                "name them: overwrite a view, or give replaceWhere. A session whose time zone is "
                "UTC, and data in UTC, is not checked.",
            )


def _as_if_utc(moment: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    try:
        return moment.astimezone(zone).replace(tzinfo=dt.UTC)
    except OverflowError:  # at the ends of the calendar
        return moment


def _bounds_of(written: Written, name: str) -> tuple[list[Any], list[Any]]:
    if "stats" not in written.facts.column_names:
        return [], []
    stats = written.facts.column("stats").combine_chunks()
    column = stats.field(name)
    return column.field("min").to_pylist(), column.field("max").to_pylist()


def _known_bounds(
    store: Store, base: State, labels: list[str], name: str
) -> tuple[list[Any], list[Any]]:
    types = {name: type_to_arrow(_TIMESTAMP)}
    facts = file_table.find(store, base.lists.files, pa.array(labels, pa.large_string()), types)
    bounds = facts.columns[name]
    return bounds.min.to_pylist(), bounds.max.to_pylist()


def _bounds_by_partition(
    labels: Iterable[str], lows: list[Any], highs: list[Any]
) -> dict[str, _Bounds]:
    """Return the bounds of partitions; those of files without bounds are not known."""
    found: dict[str, _Bounds] = {}
    for partition, low, high in _with_bounds(labels, lows, highs):
        known = found.get(partition, (low, high))
        found[partition] = min(known[0], low), max(known[1], high)
    return found


def _with_bounds(
    labels: Iterable[str], lows: list[Any], highs: list[Any]
) -> Iterator[tuple[str, dt.datetime, dt.datetime]]:
    for label, low, high in zip(labels, lows, highs, strict=False):
        if low is not None and high is not None:
            yield partition_of_label(label), low, high
