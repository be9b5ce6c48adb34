"""Refuse a rerun that would take out rows that its new rows do not stand for.

A rerun replaces all rows of its run. So a name such as `daily`, used each day, would delete the day
before. Two signs show that it is not a job that runs again: the run has rows in partitions that the new
rows do not touch, or no day of its rows is a day of the new rows.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.common.shown import counted, cut
from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import partition_of_label
from lakebed.model.schema import Primitive
from lakebed.model.totals import known_total
from lakebed.state import file_table
from lakebed.state.scope import RunFiles
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.segments import Segment

_MOST_NAMES = 3
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
_FIRST_DAY = dt.date(1970, 1, 1).toordinal()
_HINT = (
    "If the new rows are of another period, name a run for each period, such as "
    "run='2026-11-01'. If they stand for all that the run wrote, give replace_all=True, or "
    "--replace-all."
)

_Days = tuple[int, int]  # the first and the last, as days since 1970


def check_rerun(
    store: Store,
    state: State,
    scope: RunFiles,
    added: Sequence[str],
    facts: pa.Table | Sequence[Segment],
    *,
    is_large: bool,
) -> None:
    """Refuse a rerun that would take out rows that its new rows do not stand for.

    Args:
        store: The store that holds the dataset.
        state: The state that the rerun is applied to.
        scope: Its scope, with the labels of the files of the run.
        added: Labels of the new files.
        facts: Facts of the new files, or the segments that have them.
        is_large: Whether the file table is so large that days are not compared.

    Raises:
        InvalidInputError: The rows of the run in some partitions would go without new ones, or all
            rows of the run are of other days than the new rows.

    Cost:
        The few objects of the file table; nothing for the first rerun of a run.
    """
    if scope.replaces_all or not scope.labels:
        return
    touched = set(map(partition_of_label, added))
    lost = sorted(label for label in scope.labels if partition_of_label(label) not in touched)
    if lost:
        _refuse_lost(store, state, scope, lost)
    if not is_large:
        _check_days(store, state, scope, added, facts)


def _refuse_lost(store: Store, state: State, scope: RunFiles, lost: Sequence[str]) -> None:
    files = Counter(map(partition_of_label, lost))
    partitions = [path or "the whole dataset" for path in sorted(files)]
    raise InvalidInputError(
        f"Rerun of {scope.run!r} in {state.name!r} would remove {_rows_of(store, state, lost)} of "
        f"this run, without new ones, from {_listed(partitions)}.",
        hint=_HINT,
    )


def _check_days(
    store: Store,
    state: State,
    scope: RunFiles,
    added: Sequence[str],
    facts: pa.Table | Sequence[Segment],
) -> None:
    plain = {
        field.name: type_to_arrow(field.type)
        for field in state.layout.stored_schema
        if isinstance(field.type, Primitive)
    }
    kinds = {
        name: kind
        for name, kind in plain.items()
        if pa.types.is_date32(kind) or pa.types.is_timestamp(kind)
    }
    if not kinds:
        return
    labels = sorted(scope.labels)
    before = _days_of(store, state.lists.files, labels, kinds)
    if not before:
        return
    is_read = isinstance(facts, pa.Table)
    after = _days_in(facts, kinds) if is_read else _days_of(store, facts, added, kinds)
    common = before.keys() & after.keys()
    if not common or any(_meet(before[name], after[name]) for name in common):
        return
    name = min(common)
    raise InvalidInputError(
        f"Rerun of {scope.run!r} in {state.name!r} would replace {_rows_of(store, state, labels)} "
        f"of this run, whose {name!r} is in {_period(before[name])}, with rows of other days: "
        f"{_period(after[name])}.",
        hint=_HINT,
    )


def _days_of(
    store: Store,
    segments: Sequence[Segment],
    labels: Sequence[str],
    kinds: Mapping[str, pa.DataType],
) -> dict[str, _Days]:
    known = file_table.find(store, segments, pa.array(labels, pa.large_string()), kinds)
    days = {name: _days_between(bounds.min, bounds.max) for name, bounds in known.columns.items()}
    return {name: between for name, between in days.items() if between is not None}


def _days_in(facts: pa.Table, kinds: Mapping[str, pa.DataType]) -> dict[str, _Days]:
    days = {}
    if "stats" not in facts.column_names:
        return {}
    stats = facts.column("stats")
    for name in kinds.keys() & {stats.type.field(i).name for i in range(stats.type.num_fields)}:
        bounds = pc.struct_field(stats, name)
        between = _days_between(pc.struct_field(bounds, "min"), pc.struct_field(bounds, "max"))
        if between is not None:
            days[name] = between
    return days


def _days_between(lowest: pa.ChunkedArray, highest: pa.ChunkedArray) -> _Days | None:
    """Return the first and the last day of some files; None if the bounds of one are unknown."""
    if not len(lowest) or lowest.null_count or highest.null_count:
        return None
    kind = lowest.type
    per_day = _PER_DAY[kind.unit] if pa.types.is_timestamp(kind) else 1
    first = pc.min(_numbers(lowest)).as_py() // per_day
    last = pc.max(_numbers(highest)).as_py() // per_day
    return first, last


def _numbers(moments: pa.ChunkedArray) -> pa.ChunkedArray:
    narrow = pa.int32() if pa.types.is_date32(moments.type) else pa.int64()
    return moments.cast(narrow)


def _meet(some: _Days, others: _Days) -> bool:
    return some[0] <= others[1] and others[0] <= some[1]


def _period(days: _Days) -> str:
    first, last = map(_day, days)
    return first if first == last else f"{first} to {last}"


def _day(number: int) -> str:
    try:
        return dt.date.fromordinal(_FIRST_DAY + number).isoformat()
    except (ValueError, OverflowError):  # a year that Python does not have
        return f"day {number:,} since 1970"


def _rows_of(store: Store, state: State, labels: Sequence[str]) -> str:
    known = file_table.find(
        store, state.lists.files, pa.array(labels, pa.large_string()), {}
    ).row_count.to_pylist()
    total = known_total(known)
    return f"rows in {counted(len(labels), 'file')}" if total is None else counted(total, "row")


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMES:,} more" if len(listed) > _MOST_NAMES else ""
    return f"{', '.join(cut(name) for name in listed[:_MOST_NAMES])}{more}"
