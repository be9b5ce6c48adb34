"""Rows that two sequences have in common, found by their order.

A rewritten file holds its rows in the order in which they were before. So most of its rows are at
the same place as in the old file, or some places further. They are compared there, column by
column, which takes a fraction of the time of hashing all rows and sorting the hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.arrow.digest import row_hashes

ROWS_AT_ONCE = 2**16  # that are compared
ALIKE = 16  # rows in a row that show that two sequences are at corresponding places, or are not
_NEAR, _REACH = 64, 4_096  # rows in which a search looks for the next corresponding places
_TRIES = 8  # candidates for these that a search looks at
# Searches that may be made beyond one for each `_REACH` compared rows. Sequences that need more are
# not alike, and are faster compared as a whole.
_MORE_SEARCHES = 16


class Remaining(NamedTuple):
    """The rows of a sequence that were not left out.

    Attributes:
        places: Positions of some rows, ascending.
        rest: Position from which on all rows remain; after the last one if none do.
    """

    places: np.ndarray
    rest: int


def unlike_rows(
    one: Iterable[pa.RecordBatch], other: Iterable[pa.RecordBatch], most: int
) -> tuple[Remaining, Remaining]:
    """Compare two sequences of rows, and leave out rows that both have at corresponding places.

    Rows are equal if their stored values are: 0.0 and -0.0 differ, null equals null, and NaN equals
    NaN.

    Args:
        one: Rows of a sequence, in their order.
        other: Rows of the other sequence, with the same columns.
        most: Number of remaining rows after which the comparison ends.

    Returns:
        The other rows of each sequence. As many equal rows were left out of both; there may be
        further equal rows among those that remain. Rows from `rest` on need not have been read.

    Cost:
        Time in proportion to the rows; memory for a batch of each sequence, and for the positions
        of up to `most` rows of it.
    """
    left, right = _Sequence(one), _Sequence(other)
    searches = 0
    while max(left.count, right.count) <= most:
        rows, others = left.next(ROWS_AT_ONCE), right.next(ROWS_AT_ONCE)
        count = min(rows.num_rows, others.num_rows)
        if not count:
            break
        is_equal = _equal_rows(rows.slice(0, count), others.slice(0, count))
        end = _begin_of_run(~is_equal)
        if end:
            differing = np.flatnonzero(~is_equal[:end])
            left.take(end, differing)
            right.take(end, differing)
            continue
        searches += 1
        if searches * _REACH > left.position + right.position + _MORE_SEARCHES * _REACH:
            break
        skipped = None
        for reach in (_NEAR, _REACH):
            skipped = skipped or _next_places(left.next_joined(reach), right.next_joined(reach))
        if skipped is None:
            break
        for sequence, number in zip((left, right), skipped, strict=True):
            sequence.take(number, np.arange(number))
    return left.remaining(), right.remaining()


class _Sequence:
    """Rows that are taken one after the other, some of which remain."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches: Iterator[pa.RecordBatch] = iter(batches)
        self._waiting: list[pa.RecordBatch] = []
        self._remaining: list[np.ndarray] = [np.zeros(0, np.int64)]
        self.position = 0
        self.count = 0  # of the rows that remain so far

    def next(self, most: int) -> pa.RecordBatch:
        """Return some of the next rows, at least one if there are any."""
        if not self._waiting:
            self._read()
        return self._waiting[0].slice(0, most) if self._waiting else _NO_ROWS

    def next_joined(self, most: int) -> pa.RecordBatch:
        """Return the next rows, fewer only at the end."""
        while sum(batch.num_rows for batch in self._waiting) < most and self._read():
            pass
        parts, room = [], most
        for batch in self._waiting:
            parts.append(batch.slice(0, room))
            room -= parts[-1].num_rows
            if not room:
                break
        return pa.concat_batches(parts) if parts else _NO_ROWS

    def _read(self) -> bool:
        batch = next((batch for batch in self._batches if batch.num_rows), None)
        if batch is not None:
            self._waiting.append(batch)
        return batch is not None

    def take(self, count: int, remaining: np.ndarray) -> None:
        """Take rows, of which some remain."""
        self._remaining.append(self.position + remaining)
        self.count += len(remaining)
        self.position += count
        while count:
            first = self._waiting[0]
            if count < first.num_rows:
                self._waiting[0] = first.slice(count)
                return
            count -= first.num_rows
            del self._waiting[0]

    def remaining(self) -> Remaining:
        """Return the rows that remain; all that were not taken do."""
        return Remaining(np.concatenate(self._remaining), self.position)


_NO_ROWS = pa.RecordBatch.from_arrays([], names=[])


def _begin_of_run(is_unlike: np.ndarray) -> int:
    """Return the number of rows before the first run of unlike ones."""
    length = min(ALIKE, len(is_unlike))
    sums = np.concatenate([[0], np.cumsum(is_unlike)])
    begins = np.flatnonzero(sums[length:] - sums[:-length] == length)
    return int(begins[0]) if len(begins) else len(is_unlike)


def _next_places(one: pa.RecordBatch, other: pa.RecordBatch) -> tuple[int, int] | None:
    """Return how many rows of each to skip until some are equal again; None if none are."""
    hashes, others = row_hashes(one), row_hashes(other)
    distinct, first = np.unique(others, return_index=True)
    for place in np.flatnonzero(np.isin(hashes, distinct))[:_TRIES].tolist():
        near = int(first[np.searchsorted(distinct, hashes[place])])
        length = min(ALIKE, len(hashes) - place, len(others) - near)
        if (hashes[place : place + length] == others[near : near + length]).all():
            return place, near
    return None


def _equal_rows(one: pa.RecordBatch, other: pa.RecordBatch) -> np.ndarray:
    """Return for each row whether it has the same values as its counterpart."""
    is_equal = np.ones(one.num_rows, dtype=bool)
    for column, counterpart in zip(one.columns, other.columns, strict=True):
        is_equal &= _equal_values(column, counterpart)
    return is_equal


def _equal_values(one: pa.Array, other: pa.Array) -> np.ndarray:
    kind = one.type
    if pat.is_nested(kind):
        of_both = (row_hashes(pa.RecordBatch.from_arrays([part], ["x"])) for part in (one, other))
        hashes, others = of_both
        same: np.ndarray = hashes == others
        return same
    if pat.is_floating(kind):  # by their bits
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        one, other = one.view(whole), other.view(whole)
    is_equal = pc.equal(one, other)
    if one.null_count or other.null_count:
        both_null = pc.and_(one.is_null(), other.is_null())
        is_equal = pc.or_(pc.fill_null(is_equal, fill_value=False), both_null)
    equal: np.ndarray = is_equal.to_numpy(zero_copy_only=False)
    return equal
