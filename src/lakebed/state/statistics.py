"""Evaluate a condition on the bounds and null counts of all files at once.

A file may match unless its facts rule that out, and all its rows surely match if the facts prove
it. Unknown facts neither drop a file nor prove anything. Bounds may be cut (see
`lakebed.state.facts`), so a bound need not be a value of the file. Bounds of floats ignore NaN,
which is greater than every number.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import (
    And,
    Comparison,
    Formula,
    Leaf,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
)
from lakebed.model.schema import Primitive, Type
from lakebed.model.values import FLOATS, Scalar, is_nan
from lakebed.state.file_table import Bounds

_FEW_VALUES = 16  # up to about here, one comparison for each value beats a search for each file
# Number of values for which files with only that value are sought: such files are rare.
_MOST_ONLY = 64


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence on a condition, with one boolean for each file.

    Attributes:
        may: True if some rows of the file may meet the condition.
        surely: True if all rows of the file meet it.
    """

    may: np.ndarray
    surely: np.ndarray

    def also(self, other: Evidence) -> Evidence:
        """Return the combined evidence."""
        return Evidence(self.may & other.may, self.surely | other.surely)

    def of(self, chosen: np.ndarray) -> Evidence:
        """Return the evidence on some of the files."""
        return Evidence(self.may[chosen], self.surely[chosen])


def evidence_of(leaf: Leaf, bounds: Bounds, row_count: pa.ChunkedArray, kind: Type) -> Evidence:
    """Return the evidence from the facts of files on a condition.

    Args:
        leaf: A bound condition on the column.
        bounds: Bounds and null counts of the column in each file.
        row_count: Row count of each file.
        kind: Type of the column.
    """
    facts = _Facts(bounds, row_count, kind)
    may, surely = _judge(leaf, facts)
    # A file without rows cannot match, and trivially all of its rows meet every condition.
    return Evidence(may & ~facts.is_empty, surely | facts.is_empty)


def combined(
    predicate: Predicate, count: int, of: Callable[[Leaf], np.ndarray], *, formulas: bool
) -> np.ndarray:
    """Return for each file whether a predicate is true, from its leaves.

    Args:
        predicate: The predicate.
        count: Number of files.
        of: Function that returns for each file whether a leaf of the predicate is true.
        formulas: Truth that a formula has for each file, since no fact about a file decides it.
    """
    match predicate:
        case And(parts):
            truth = np.ones(count, dtype=bool)
            for part in parts:
                truth &= combined(part, count, of, formulas=formulas)
            return truth
        case Or(parts):
            truth = np.zeros(count, dtype=bool)
            for part in parts:
                truth |= combined(part, count, of, formulas=formulas)
            return truth
        case Formula():
            return np.full(count, formulas)
        case _:
            return of(predicate)


class _Facts:
    """Facts of one column as boolean arrays."""

    def __init__(self, bounds: Bounds, row_count: pa.ChunkedArray, kind: Type) -> None:
        self._bounds = bounds
        self._kind = type_to_arrow(kind)
        self.is_float = isinstance(kind, Primitive) and kind.kind in FLOATS
        self.count = len(row_count)
        self.is_empty = _surely(pc.equal(row_count, 0))
        self.has_nulls = ~_surely(pc.equal(bounds.null_count, 0))
        self.is_all_null = _surely(pc.equal(bounds.null_count, row_count))

    @property
    def nothing(self) -> np.ndarray:
        return np.zeros(self.count, dtype=bool)

    def low(self, compare: Callable[..., pa.Array], value: Scalar) -> np.ndarray:
        """Return for each file whether the lower bound is known and the comparison is true."""
        return _surely(compare(self._bounds.min, pa.scalar(value, self._kind)))

    def high(self, compare: Callable[..., pa.Array], value: Scalar) -> np.ndarray:
        """Return for each file whether the upper bound is known and the comparison is true."""
        return _surely(compare(self._bounds.max, pa.scalar(value, self._kind)))

    def is_outside(self, value: Scalar) -> np.ndarray:
        """Return for each file whether it surely lacks `value`, which is not NaN."""
        outside: np.ndarray = self.low(pc.greater, value) | self.high(pc.less, value)
        return outside

    def is_only(self, value: Scalar) -> np.ndarray:
        """Return for each file whether it has only `value` and null; never known for floats."""
        if self.is_float:
            return self.nothing
        only: np.ndarray = self.low(pc.equal, value) & self.high(pc.equal, value)
        return only

    def is_around(self, values: list[Any]) -> np.ndarray:
        """Return for each file whether a sorted value is within its bounds, or they are unknown."""
        if len(values) <= _FEW_VALUES:
            is_within = self.nothing
            for value in values:
                is_within |= ~self.is_outside(value)
            return is_within
        if _is_number(self._kind):
            sought = _numbers(pa.chunked_array([pa.array(values, self._kind)]))
            first = np.searchsorted(sought, _numbers(self._bounds.min), side="left")
            last = np.searchsorted(sought, _numbers(self._bounds.max), side="right")
            is_known = _valid(self._bounds.min) & _valid(self._bounds.max)
            around: np.ndarray = (first < last) | ~is_known
            return around
        pairs = zip(self._bounds.min.to_pylist(), self._bounds.max.to_pylist(), strict=True)
        truths = (
            low is None
            or high is None
            or bisect.bisect_left(values, low) < bisect.bisect_right(values, high)
            for low, high in pairs
        )
        return np.fromiter(truths, bool, self.count)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    )


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """Return numbers in the order of the values, with an arbitrary number for null."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    numbers: np.ndarray = pc.fill_null(column, 0).to_numpy()
    return numbers


def _valid(column: pa.ChunkedArray) -> np.ndarray:
    is_valid: np.ndarray = column.is_valid().to_numpy()
    return is_valid


def _surely(truths: pa.ChunkedArray) -> np.ndarray:
    is_true: np.ndarray = pc.fill_null(truths, False).to_numpy()  # noqa: FBT003 - Arrow's signature
    return is_true


def _judge(leaf: Leaf, facts: _Facts) -> tuple[np.ndarray, np.ndarray]:
    match leaf:
        case NullCheck(negated=False):
            return facts.has_nulls, facts.is_all_null
        case NullCheck():
            return ~facts.is_all_null, ~facts.has_nulls
        case Comparison(op=op, value=value):
            may, surely = _compare(facts, op, value)
        case Membership(values=values, negated=negated):
            may, surely = _member(facts, values, negated=negated)
        case Like():
            # `like` puts the bounds that a pattern has beside it, as comparisons.
            may, surely = ~facts.nothing, facts.nothing
    # Null meets neither a comparison nor a membership.
    return may & ~facts.is_all_null, surely & ~facts.has_nulls


def _compare(facts: _Facts, op: Op, value: Scalar) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate a comparison for values that are not null."""
    nothing = facts.nothing
    if is_nan(value):
        # NaN is the greatest value: all are at most NaN; which files have NaN is unknown.
        may = nothing if op is Op.GT else ~nothing
        return may, ~nothing if op is Op.LE else nothing
    may_be_nan = facts.is_float
    match op:
        case Op.EQ:
            return ~facts.is_outside(value), facts.is_only(value)
        case Op.NE:
            return ~facts.is_only(value), facts.is_outside(value)
        case Op.LT | Op.LE:
            beyond, within = (
                (pc.greater_equal, pc.less) if op is Op.LT else (pc.greater, pc.less_equal)
            )
            surely = nothing if may_be_nan else facts.high(within, value)
            return ~facts.low(beyond, value), surely
    short, enough = (pc.less_equal, pc.greater) if op is Op.GT else (pc.less, pc.greater_equal)
    may = ~nothing if may_be_nan else ~facts.high(short, value)
    return may, facts.low(enough, value)


def _member(
    facts: _Facts, values: tuple[Scalar, ...], *, negated: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate a list of values for values that are not null."""
    plain: list[Any] = sorted(value for value in values if not is_nan(value))
    names_nan = len(plain) < len(values)
    around = facts.is_around(plain)
    if names_nan:
        around |= True
    only = facts.nothing
    for value in plain[:_MOST_ONLY]:
        only |= facts.is_only(value)
    return (~only, ~around) if negated else (around, only)
