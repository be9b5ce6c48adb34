"""Bounded reads of rows for pages: so many rows, columns, bytes and seconds, and no more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.scan import scan
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.schema import Decimal, Primitive
from lakebed.plan.plan import DataFile
from lakebed.plan.search import take_known_rows
from lakebed.selection import ReadPlan
from lakebed.store.at_once import at_once
from lakebed.view import View
from lakebed.web.limits import FEW_ROWS, MAX_COLUMNS, MAX_PAGE_BYTES, MAX_ROWS, READ_SECONDS

_THREADS = 4
_MOST_FILES_AT_ONCE = 16
_FILE = "\0file"  # a column with the number of each row's file; no field has such a name


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of rows.

    Attributes:
        column: Name of the column; empty for no order.
        is_descending: True for the greatest value first; null comes last in both directions.
    """

    column: str = ""
    is_descending: bool = False

    @property
    def direction(self) -> str:
        """The direction, as Arrow calls it."""
        return "descending" if self.is_descending else "ascending"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRows:
    """The first rows of a view.

    Attributes:
        version: Version that was read.
        rows: The rows.
        keys: Key of the data file of each row.
        total: Number of rows of the view; None if rows would have to be read for it.
        has_more: True if the view has more rows than these.
        file_count: Number of data files that may hold rows of the view.
        read_count: Number of data files in which rows were looked for.
        is_late: True if READ_SECONDS passed before all rows were found.
        is_large: True if rows were left out because they have more than MAX_PAGE_BYTES.
        plan: The plan of the read.
    """

    version: int
    rows: pa.Table
    keys: Sequence[str]
    total: int | None
    has_more: bool
    file_count: int
    read_count: int
    is_late: bool
    is_large: bool
    plan: ReadPlan


class Deadline:
    """A time after which a read stops."""

    def __init__(self) -> None:
        """Begin to count READ_SECONDS."""
        self._end = time.monotonic() + READ_SECONDS

    @property
    def is_over(self) -> bool:
        """True if the time is over."""
        return time.monotonic() > self._end


def first_rows(
    view: View, columns: Sequence[str], order: Order | None = None, row_count: int = FEW_ROWS
) -> ShownRows:
    """Return the first rows of a view.

    Args:
        view: The view, best a pinned one.
        columns: Names of the columns, at most MAX_COLUMNS are read.
        order: Order of the rows; None for the order of the files.
        row_count: Number of rows.

    Raises:
        InvalidInputError: `row_count` is not valid, or the column of the order holds lists or
            records.
        SchemaMismatchError: A column is unknown or given twice.
        CorruptMetadataError: A data file is missing or damaged.

    Cost:
        As `View.plan`, and the file table. Without an order, data files until there are enough
        rows. With an order, its column of all files of the plan, then all columns of the files that
        the rows are in. Memory: a few row groups.
    """
    count = checked_count(row_count)
    plan = view.plan()
    names = list(columns)[:MAX_COLUMNS]
    replace(plan, columns=tuple(names)).schema  # noqa: B018 - raises if a column is unknown
    known, rest = take_known_rows(plan.store, plan)
    total = None if rest.files else known
    if order is None or not order.column:
        found = _unsorted(plan, names, count + 1)
    else:
        _check_sortable(plan, order.column)
        found = _sorted(plan, names, order, count + 1)
    rows = found.rows.slice(0, count)
    fitting = _within(rows)
    return ShownRows(
        version=plan.version,
        rows=fitting.select(names),
        keys=[plan.files[number].key for number in fitting.column(_FILE).to_pylist()],
        total=total,
        has_more=found.rows.num_rows > fitting.num_rows or found.is_large,
        file_count=len(plan.files),
        read_count=found.read_count,
        is_late=found.is_late,
        is_large=found.is_large or fitting.num_rows < rows.num_rows,
        plan=plan,
    )


def checked_count(row_count: int) -> int:
    """Return a number of rows of a page after a check.

    Raises:
        InvalidInputError: It is not a number from 1 to MAX_ROWS.
    """
    is_number = isinstance(row_count, int) and not isinstance(row_count, bool)
    if is_number and 1 <= row_count <= MAX_ROWS:
        return row_count
    raise InvalidInputError(
        f"{shown(row_count)} is not a valid number of rows for a page.",
        hint=f"Give a number from 1 to {MAX_ROWS}; a download has all rows.",
    )


def _check_sortable(plan: ReadPlan, column: str) -> None:
    types = plan.layout.column_types
    if column not in types:
        plan.layout.descriptor.schema.get(column)  # raises an error that names the nearest field
        raise SchemaMismatchError(f"There is no column {column!r} to sort by.")
    if not isinstance(types[column], Primitive | Decimal):
        raise InvalidInputError(
            f"Rows cannot be sorted by column {column!r}, which has the type {types[column]}.",
            hint="Sort by a column of numbers, texts, dates or times.",
        )


@dataclass(slots=True)
class _Found:
    rows: pa.Table
    read_count: int
    is_late: bool
    is_large: bool = False


@dataclass(slots=True)
class _Part:
    """Rows of one file; `is_cut` is True if some were left out because they are too large."""

    rows: pa.Table
    is_late: bool = False
    is_cut: bool = False


def _unsorted(plan: ReadPlan, names: Sequence[str], row_count: int) -> _Found:
    deadline = Deadline()
    parts = [_with_number(_no_rows(plan, names), 0)]
    missing, read, is_late, is_large = row_count, 0, False, False
    for numbers in _growing(len(plan.files)):
        read_file = partial(_first_of, plan, names, missing, deadline)
        for number, part in zip(numbers, at_once(read_file, numbers, _THREADS), strict=True):
            read += 1
            if is_large:
                continue  # rows of a later file are not next to those that were left out
            parts.append(_with_number(part.rows.slice(0, missing), number))
            missing -= parts[-1].num_rows
            is_late |= part.is_late
            is_large = part.is_cut and missing > 0
        if missing == 0 or is_large:
            break
        if deadline.is_over:
            is_late |= read < len(plan.files)
            break
    return _Found(pa.concat_tables(parts), read, is_late and missing > 0, is_large)


def _growing(count: int) -> Iterator[range]:
    """Yield the numbers of files to read at once, more each time."""
    begin, size = 0, 1
    while begin < count:
        yield range(begin, min(begin + size, count))
        begin, size = begin + size, min(size * 2, _MOST_FILES_AT_ONCE)


def _first_of(
    plan: ReadPlan, names: Sequence[str], row_count: int, deadline: Deadline, number: int
) -> _Part:
    rows = _no_rows(plan, names)
    for batch in _batches_of(plan, plan.files[number], names, limit=row_count):
        rows = pa.concat_tables([rows, pa.Table.from_batches([batch])])
        fitting = _within(rows)
        if fitting is not rows:
            return _Part(_copied(fitting), is_cut=True)
        rows = _copied(rows)
        if deadline.is_over and rows.num_rows < row_count:
            return _Part(rows, is_late=True)
    return _Part(rows)


def _sorted(plan: ReadPlan, names: Sequence[str], order: Order, row_count: int) -> _Found:
    # First only the column of the order, to find the files that the rows are in.
    numbers: Sequence[int] = range(len(plan.files))
    best, read, is_late, _ = _best_of(plan, numbers, [order.column], order, row_count)
    numbers = sorted(set(best.column(_FILE).to_pylist()))
    wanted = list(dict.fromkeys([*names, order.column]))
    best, _, is_late_too, is_large = _best_of(plan, numbers, wanted, order, row_count)
    return _Found(best, read, is_late or is_late_too, is_large)


def _best_of(
    plan: ReadPlan, numbers: Sequence[int], names: Sequence[str], order: Order, row_count: int
) -> tuple[pa.Table, int, bool, bool]:
    """Return the first rows of some files in an order, and how far the files were read."""
    deadline = Deadline()
    best = _with_number(_no_rows(plan, names), 0)
    read, is_late, is_large = 0, False, False
    for begin in range(0, len(numbers), _MOST_FILES_AT_ONCE):
        some = numbers[begin : begin + _MOST_FILES_AT_ONCE]
        read_file = partial(_best_of_file, plan, names, order, row_count, deadline)
        for number, part in zip(some, at_once(read_file, some, _THREADS), strict=True):
            if part.is_cut:
                # Any row could come after the last row that is left of this file.
                is_large = True
                row_count = min(row_count, part.rows.num_rows)
            both = pa.concat_tables([best, _with_number(part.rows, number)])
            best = _in_order(both, order).slice(0, row_count)
            is_late |= part.is_late
            read += 1
        if deadline.is_over:
            is_late |= read < len(numbers)
            break
    return best, read, is_late, is_large


def _best_of_file(
    plan: ReadPlan,
    names: Sequence[str],
    order: Order,
    row_count: int,
    deadline: Deadline,
    number: int,
) -> _Part:
    best, is_cut = _no_rows(plan, names), False
    for batch in _batches_of(plan, plan.files[number], names):
        rows = pa.Table.from_batches([batch])
        if best.num_rows == row_count:
            rows = _before(rows, best, order)
        if rows.num_rows:
            best = _in_order(pa.concat_tables([best, rows]), order).slice(0, row_count)
            fitting = _within(best)
            if fitting is not best:
                is_cut, row_count = True, fitting.num_rows
            best = _copied(fitting)
        if deadline.is_over:
            return _Part(best, is_late=True, is_cut=is_cut)
    return _Part(best, is_cut=is_cut)


def _before(rows: pa.Table, best: pa.Table, order: Order) -> pa.Table:
    """Return the rows that may come before the last of the best rows."""
    last = best.column(order.column)[-1]
    is_nan = pa.types.is_floating(last.type) and last.is_valid and pc.is_nan(last).as_py()
    if is_nan or not last.is_valid:
        return rows
    column = pc.field(order.column)
    return rows.filter(column > last if order.is_descending else column < last)


def _in_order(rows: pa.Table, order: Order) -> pa.Table:
    keys = [(order.column, order.direction, "at_end")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys))


def _batches_of(
    plan: ReadPlan, file: DataFile, names: Sequence[str], *, limit: int | None = None
) -> Iterator[pa.RecordBatch]:
    alone = replace(plan, files=(file,))
    with scan(plan.store, alone, names, limit=limit, is_frugal=True) as batches:
        yield from batches


def unhurried(view: View, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
    """Return the rows of a view for a reader that may stop or pause.

    Raises:
        SchemaMismatchError: A column is unknown or given twice.
    """
    plan = view.plan()
    return scan(plan.store, plan, columns, is_frugal=True)


def _within(rows: pa.Table) -> pa.Table:
    """Return as many rows as have no more than MAX_PAGE_BYTES, but at least one."""
    fitting = rows
    while fitting.num_rows > 1 and fitting.nbytes > MAX_PAGE_BYTES:
        fitting = fitting.slice(0, fitting.num_rows // 2)
    return fitting


def _copied(rows: pa.Table) -> pa.Table:
    """Return the rows without the rest of the batches that they are slices of."""
    return rows.take(pa.array(range(rows.num_rows), pa.int64()))


def _no_rows(plan: ReadPlan, names: Sequence[str]) -> pa.Table:
    return replace(plan, columns=tuple(names)).schema.empty_table()


def _with_number(rows: pa.Table, number: int) -> pa.Table:
    return rows.append_column(_FILE, pa.repeat(pa.scalar(number, pa.int64()), rows.num_rows))
