"""Comparisons on partitions that have the order of their source."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from itertools import takewhile

from lakebed.model.partition.calendar import CalendarPart, TimeFunction
from lakebed.model.partition.function import PartitionFunction, kind_of
from lakebed.model.predicate import (
    FALSE,
    Comparison,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
)
from lakebed.model.schema import Kind, Type
from lakebed.model.values import Scalar

Chain = tuple[PartitionFunction, ...]


def chains(functions: Sequence[PartitionFunction], source: Type) -> Iterator[Chain]:
    """Yield chains of functions of one source whose values, as tuples, grow with it.

    A month without its year does not grow, and is in no chain. A date is followed by hour and
    minute.
    """
    for function in functions:
        if not function.is_ordered(source):
            continue
        parts = {
            f.part: f
            for f in functions
            if isinstance(function, TimeFunction)
            and isinstance(f, CalendarPart)
            and f.unit == function.unit
        }
        finer = takewhile(parts.__contains__, function.refined_by)
        yield (function, *(parts[part] for part in finer))


def project_order(
    chain: Chain, leaf: Comparison, source: Type, *, strict: bool
) -> Iterator[Predicate]:
    """Project `source < x` and its like to the tuple of a chain.

    Values are discrete, so `source < x` is `source <= x - 1 step`. The partition of the last value
    that fits may match; it surely matches if the next value is in another partition. The two
    projections are equal exactly where x lies on a boundary.
    """
    upwards = leaf.op in (Op.GT, Op.GE)
    outwards = -1 if upwards else 1
    inclusive = leaf.op in (Op.GE, Op.LE)
    last = leaf.value if inclusive else _step(leaf.value, source, -outwards)
    if last is None:
        return
    limits = [limit for f in chain if (limit := f.limits(source)) is not None]
    if limits:
        low, high = max(low for low, _ in limits), min(high for _, high in limits)  # type: ignore[type-var]  # of one type
        if (last > high) if upwards else (last < low):  # type: ignore[operator]  # of one type
            yield FALSE
            return
        if (last <= low) if upwards else (last >= high):  # type: ignore[operator]  # of one type
            yield NullCheck(chain[0].name, negated=True)
            return
    levels = [(function.name, function.value(last, source)) for function in chain]
    whole = True
    if strict:
        beyond = _step(last, source, outwards)
        whole = beyond is None or levels != [(f.name, f.value(beyond, source)) for f in chain]
    if upwards:
        yield _compare_tuple(levels, Op.GE if whole else Op.GT)
    else:
        yield _compare_tuple(levels, Op.LE if whole else Op.LT)


def _step(value: Scalar, source: Type, direction: int) -> Scalar:
    """Return the next value of a discrete type, or None at the end of the calendar."""
    if not isinstance(value, dt.date):
        assert isinstance(value, int)  # nothing else is ordered and discrete
        return value + direction
    unit = dt.timedelta(days=1) if kind_of(source) is Kind.DATE else dt.timedelta(microseconds=1)
    try:
        return value + direction * unit
    except OverflowError:
        return None


def _compare_tuple(levels: Sequence[tuple[str, Scalar]], op: Op) -> Predicate:
    """Compare a tuple of partition fields with a tuple of values, first level first."""
    (name, value), *inner = levels
    if not inner:
        return Comparison(name, op, value)
    beyond = Comparison(name, Op.GT if op in (Op.GT, Op.GE) else Op.LT, value)
    equal = Comparison(name, Op.EQ, value)
    return any_of([beyond, all_of([equal, _compare_tuple(inner, op)])])
