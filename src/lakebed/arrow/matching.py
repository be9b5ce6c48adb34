"""Matching of the rows of data files with rows of some data, and the changes that follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow import scan
from lakebed.arrow.conform import with_one_zero_and_nan
from lakebed.arrow.constraint import ViewCheck
from lakebed.arrow.held_rows import HeldRows
from lakebed.arrow.pairs import Pairs, met_by, value_of, value_of_term
from lakebed.arrow.rewrite import Routed, file_partition, kept_parts
from lakebed.arrow.sieve import RowFilter
from lakebed.errors import DuplicateKeyError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.assignments import OfColumn
from lakebed.model.layout import Layout
from lakebed.model.merging import Assignment, MergeRules, RowRule, Side
from lakebed.model.predicate import TRUE, Predicate, sql_literal, sql_name
from lakebed.model.schema import path_of
from lakebed.model.values import Scalar
from lakebed.plan.plan import DataFile, Scan
from lakebed.store.base import Store

_NOTHING = np.zeros(0, dtype=np.int64)
_NONE = -1  # no rule fits
_PAIRS_AT_ONCE = 2**16  # for which conditions are evaluated
_LARGE_BYTES = 2**30  # of the texts of one key; Arrow's small arrays end at 2 GiB


class Rows(Protocol):
    """Rows of data that are in this process, or can be brought there: `HeldRows`, `StoredRows`."""

    @property
    def part_counts(self) -> tuple[int, ...]:
        """Number of rows of each part."""
        ...

    def open(self) -> HeldRows:
        """Return the rows in this process."""
        ...

    def part(self, number: int) -> HeldRows:
        """Return the rows of a part in this process."""
        ...


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Summary of the keys of data, known before any is looked up. Travels from Spark tasks.

    Attributes:
        columns: Distinct values of each key column, where these are few; else the smallest and the
            largest, and NaN if it is among them. Null is left out.
        are_listed: For each column, True if all its values are listed.
    """

    columns: list[pa.Table]
    are_listed: list[bool]


class Keys:
    """Index of the keys of some data, for lookups of its rows. A key with a null equals none.

    Attributes:
        levels: Distinct values of each column; from the second one on also the distinct numbers of
            the combinations so far.
    """

    def __init__(self, columns: pa.Table, *, is_distinct: bool = True) -> None:
        """Index the keys.

        Args:
            columns: Key columns, with a row for each row of the data.
            is_distinct: Whether a key may appear only once.

        Raises:
            DuplicateKeyError: A key appears twice.
        """
        is_whole = np.ones(columns.num_rows, dtype=bool)
        for column in columns.columns:
            is_whole &= column.is_valid().to_numpy()
        places = np.flatnonzero(is_whole)
        codes = np.zeros(len(places), dtype=np.int64)
        self.levels: list[tuple[pa.Array, np.ndarray | None]] = []
        for column in columns.columns:
            encoded = _plain(column.filter(pa.array(is_whole))).dictionary_encode()
            values, own = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
            if not self.levels:
                self.levels.append((values, None))
                codes = own
                continue
            distinct, codes = np.unique(codes * max(1, len(values)) + own, return_inverse=True)
            self.levels.append((values, distinct))
        count = int(codes.max(initial=-1)) + 1
        self._places = places[np.argsort(codes, kind="stable")]
        self._counts = np.bincount(codes, minlength=count)
        self._has_repeats = count < len(places)
        if self._has_repeats and is_distinct:
            raise _twice(columns, places, codes)

    def find(self, columns: Sequence[pa.ChunkedArray]) -> tuple[np.ndarray, np.ndarray]:
        """Find rows with one of the keys.

        Args:
            columns: Key columns of the rows, in the order of the keys.

        Returns:
            Numbers of the rows, ascending, and for each the position of its key; a row whose key
            is there several times occurs as often.
        """
        rows = codes = _NOTHING
        for column, (values, distinct) in zip(columns, self.levels, strict=True):
            if not len(values):
                return _NOTHING, _NOTHING
            if distinct is None:
                rows, codes = self._in_order(column) or _positions(column, values)
                continue
            of_rows, own = _positions(column.take(pa.array(rows)), values)
            rows, codes = rows[of_rows], codes[of_rows] * len(values) + own
            near = np.minimum(np.searchsorted(distinct, codes), len(distinct) - 1)
            is_known = distinct[near] == codes
            rows, codes = rows[is_known], near[is_known]
        if not self._has_repeats:
            return rows, self._places[codes]
        counts = self._counts[codes]
        begins = (np.cumsum(self._counts) - self._counts)[codes]
        ends = np.cumsum(counts)
        within = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        return np.repeat(rows, counts), self._places[np.repeat(begins, counts) + within]

    def _in_order(self, column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray] | None:
        """Look up the first column in files that are sorted by it, such as by an ascending id.

        Few keys are looked up among many rows. Elsewhere each row is looked up among the keys,
        which takes many times as long.

        Returns:
            As `_positions`; None if the files are not of this kind.
        """
        values, _ = self.levels[0]
        if column.null_count or column.type != values.type or not _is_whole(column.type):
            return None
        keys, order = self._ascending
        rows, codes, start = [], [], 0
        for chunk in column.chunks:
            numbers = _numbers(chunk)
            if not len(numbers):
                continue
            low, high = (
                np.searchsorted(keys, numbers[0]),
                np.searchsorted(keys, numbers[-1], "right"),
            )
            if high - low > len(numbers) or not (numbers[1:] >= numbers[:-1]).all():
                return None
            begins = np.searchsorted(numbers, keys[low:high])
            counts = np.searchsorted(numbers, keys[low:high], "right") - begins
            ends = np.cumsum(counts)
            rows.append(np.arange(counts.sum()) + np.repeat(start + begins - ends + counts, counts))
            codes.append(np.repeat(order[low:high], counts))
            start += len(numbers)
        return np.concatenate([_NOTHING, *rows]), np.concatenate([_NOTHING, *codes])

    @cached_property
    def _ascending(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of the first column in order, and the position of each."""
        numbers = _numbers(self.levels[0][0])
        order = np.argsort(numbers)
        return numbers[order], order


def _positions(column: pa.ChunkedArray, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Find distinct values in a column.

    Returns:
        Positions in the column with one of them, ascending, and for each the position of its value.
    """
    plain = _plain(column)
    own = pc.index_in(plain if plain.type == values.type else plain.cast(values.type), values)
    rows = pc.indices_nonzero(own.is_valid()).to_numpy().astype(np.int64)
    return rows, own.drop_null().to_numpy().astype(np.int64)


def _is_whole(kind: pa.DataType) -> bool:
    """Return whether values of a type are integers, including days or microseconds."""
    is_number = pa.types.is_integer(kind) or pa.types.is_temporal(kind)
    return is_number and not pa.types.is_interval(kind)


def _numbers(column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    numbers: np.ndarray = column.to_numpy()
    return numbers


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """Return a key column as one array in which equal values have equal bytes."""
    kind = column.type
    if column.nbytes > _LARGE_BYTES:
        wide = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(kind, kind)
        column = column.cast(wide)
    plain = with_one_zero_and_nan(column)
    return plain.combine_chunks() if isinstance(plain, pa.ChunkedArray) else plain


def _twice(columns: pa.Table, places: np.ndarray, codes: np.ndarray) -> DuplicateKeyError:
    counts = np.bincount(codes)
    second = next(place for place in np.flatnonzero(counts[codes] > 1))
    row = columns.slice(int(places[second]), 1).to_pylist()[0]
    key = ", ".join(f"{sql_name(name)} = {sql_literal(value)}" for name, value in row.items())
    times, more = int(counts[codes[second]]), int(np.count_nonzero(counts > 1)) - 1
    keys = "key" if more == 1 else "keys"
    others = f", and {more} other {keys} more than once" if more else ""
    return DuplicateKeyError(
        f"The data has the key {key} {times} times{others}.",
        hint="Keep one row of each key, such as the latest, before the merge.",
        key=key,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """Changes to the rows of a data file.

    Attributes:
        row_count: Number of its rows.
        deleted: Positions of rows that are deleted, ascending.
        updated: Positions of rows that match and are updated, ascending.
        sources: For each of these the position of its row of the data.
        rules: For each of these the number of its rule.
        reset: Positions of rows that match none and are updated, ascending.
        reset_rules: For each of these the number of its rule.
        matched: Positions of the rows of the data that match, distinct and ascending.
    """

    label: str
    row_count: int
    deleted: np.ndarray
    updated: np.ndarray
    sources: np.ndarray
    rules: np.ndarray
    reset: np.ndarray
    reset_rules: np.ndarray
    matched: np.ndarray

    @property
    def updated_count(self) -> int:
        """Number of updated rows."""
        return len(self.updated) + len(self.reset)

    @property
    def is_changed(self) -> bool:
        """True if a row of the file is updated or deleted."""
        return bool(len(self.deleted) or self.updated_count)

    @property
    def is_gone(self) -> bool:
        """True if all of its rows are deleted."""
        return len(self.deleted) == self.row_count


@dataclass(frozen=True)  # no slots, for the sake of the cached properties
class Matcher:
    """Decides the changes to the rows of data files. Travels to Spark tasks."""

    rules: MergeRules
    rows: Rows
    layout: Layout

    def __getstate__(self) -> dict[str, object]:
        return {"rules": self.rules, "rows": self.rows, "layout": self.layout}

    @cached_property
    def data(self) -> HeldRows:
        """The data, in this process."""
        return self.rows.open()

    @cached_property
    def keys(self) -> Keys:
        """Index of the data's keys."""
        return Keys(self.data.columns(self.rules.on), is_distinct=self.rules.is_distinct)

    @cached_property
    def _of_data(self) -> tuple[str, ...]:
        return _roots(self.rules.looked_at(Side.SOURCE))

    @property
    def target_columns(self) -> tuple[str, ...]:
        """Columns of data files that decide the changes to their rows."""
        types = self.layout.predicate_types
        named = self.rules.looked_at(Side.TARGET)
        roots = tuple(dict.fromkeys(path_of(name, types)[0] for name in named))
        # Without any, a table of the rows of a file would lose their number.
        return roots or self.layout.descriptor.schema.names[:1]

    def key_values(self, most: int) -> KeyValues:
        """Return a summary of the keys.

        Args:
            most: Number of distinct values up to which a column is listed.

        Raises:
            DuplicateKeyError: A key appears twice.
        """
        columns, are_listed = [], []
        for values, _ in self.keys.levels:
            is_few = len(values) <= most
            if not is_few:
                bounds = pc.min_max(values)  # NaN is left out
                ends = [bounds["min"].as_py(), bounds["max"].as_py()]
                has_nan = pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()
                values = pa.array([*ends, *([math.nan] if has_nan else [])], values.type)
            columns.append(pa.table({"value": values}))
            are_listed.append(is_few)
        return KeyValues(columns, are_listed)

    def look(self, store: Store, files: Sequence[DataFile]) -> list[FileChanges]:
        """Return the changes to the rows of some files.

        Cost:
            The columns that decide; memory for them, and for a table of the keys of the data.
        """
        tables = [self._read(store, file) for file in files]
        columns = [self._key_of(tables, name) for name in self.rules.on]
        rows, places = self.keys.find(columns)
        changes, start = [], 0
        for file, table in zip(files, tables, strict=True):
            low, high = np.searchsorted(rows, [start, start + table.num_rows])
            own = rows[low:high] - start
            changes.append(self._decide(file, table, own, places[low:high]))
            start += table.num_rows
        return changes

    def _key_of(self, tables: Sequence[pa.Table], name: str) -> pa.ChunkedArray:
        """Return the values of a key of the rows of tables."""
        term = self.rules.computed.get(name)
        if term is None:
            kind = type_to_arrow(self.layout.column_types[name])
            parts = [chunk for table in tables for chunk in table.column(name).chunks]
            return pa.chunked_array(parts, kind)
        batches = [batch for table in tables for batch in table.to_batches()]
        kind = type_to_arrow(term.kind)
        return pa.chunked_array(
            [value_of_term(term, kind, {Side.TARGET: batch}) for batch in batches], kind
        )

    def _read(self, store: Store, file: DataFile) -> pa.Table:
        alone = Scan(layout=self.layout, files=(replace(file, is_filtered=False),))
        with scan.scan(store, alone, self.target_columns) as batches:
            return batches.read_all()

    def _decide(
        self, file: DataFile, table: pa.Table, rows: np.ndarray, places: np.ndarray
    ) -> FileChanges:
        rules = self.rules
        is_inside = self._meeting(table, rules.constraint)
        if is_inside is not None:
            rows, places = rows[is_inside[rows]], places[is_inside[rows]]
        rows, places, numbers = self._first_rules(table, rows, places)
        is_deleted = _chooses(numbers, rules.matched, deletes=True)
        is_updated = _chooses(numbers, rules.matched, deletes=False)
        if not rules.is_distinct:
            self._check_once(table, rows[numbers != _NONE], rows[is_updated])
        others = self._of_missing(table, rows, is_inside)
        gone = np.concatenate(
            [rows[is_deleted], np.flatnonzero(_chooses(others, rules.missing, deletes=True))]
        )
        reset = np.flatnonzero(_chooses(others, rules.missing, deletes=False))
        return FileChanges(
            label=file.label,
            row_count=table.num_rows,
            deleted=np.unique(gone),
            updated=rows[is_updated],
            sources=places[is_updated],
            rules=numbers[is_updated],
            reset=reset,
            reset_rules=others[reset],
            matched=np.unique(places),
        )

    def _first_rules(
        self, table: pa.Table, rows: np.ndarray, places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs that match, and for each the number of the first rule that fits."""
        rules = self.rules
        numbers = np.full(len(rows), 0 if rules.matched else _NONE, dtype=np.int16)
        is_match = np.ones(len(rows), dtype=bool)
        for start in range(0, len(rows) if rules.conditions else 0, _PAIRS_AT_ONCE):
            some = slice(start, start + _PAIRS_AT_ONCE)
            target = pa.concat_batches(table.take(pa.array(rows[some])).to_batches())
            sides = {Side.TARGET: target, Side.SOURCE: self.data.take(places[some], self._of_data)}
            if rules.match_where is not None:
                is_match[some] = met_by(rules.match_where, sides)
            numbers[some] = _first_that_fits(rules.matched, sides)
        return rows[is_match], places[is_match], numbers[is_match]

    def _check_once(self, table: pa.Table, changed: np.ndarray, updated: np.ndarray) -> None:
        """Check that no row of the dataset is changed by two rows of the data.

        Two that both delete it agree.

        Raises:
            DuplicateKeyError: One is.
        """
        twice = np.intersect1d(changed[1:][changed[1:] == changed[:-1]], updated)
        if not len(twice):
            return
        row = table.slice(int(twice[0]), 1).select(list(self.rules.plain_keys)).to_pylist()[0]
        key = ", ".join(f"{sql_name(name)} = {sql_literal(value)}" for name, value in row.items())
        times = int(np.count_nonzero(changed == twice[0]))
        raise DuplicateKeyError(
            f"A row of the dataset with the key {key} would be changed by {times} rows of the "
            "data.",
            hint="Keep one row of each key, such as the latest, or narrow the conditions.",
            key=key,
        )

    def _meeting(self, table: pa.Table, predicate: Predicate) -> np.ndarray | None:
        """Return a mask of the rows that meet a predicate; None where all do."""
        if predicate == TRUE:
            return None
        rows = RowFilter.of(predicate, self.layout.predicate_types)
        parts = [rows.mask(batch) for batch in table.to_batches()]
        return np.concatenate([np.zeros(0, dtype=bool), *parts])

    def _of_missing(
        self, table: pa.Table, rows: np.ndarray, is_inside: np.ndarray | None
    ) -> np.ndarray:
        """Return for each row the number of the first rule that fits, if it matches none."""
        numbers = np.full(table.num_rows, _NONE, dtype=np.int16)
        if not self.rules.missing:
            return numbers
        is_left = np.ones(table.num_rows, dtype=bool) if is_inside is None else is_inside.copy()
        is_left[rows] = False
        for number, rule in enumerate(self.rules.missing):
            fits = is_left.copy()
            is_meant = self._meeting(table, rule.target)
            if is_meant is not None:
                fits &= is_meant
            if rule.where is not None:
                parts = [met_by(rule.where, {Side.TARGET: batch}) for batch in table.to_batches()]
                fits &= np.concatenate([np.zeros(0, dtype=bool), *parts])
            numbers[fits] = number
            is_left &= ~fits
        return numbers

    def inserted(self, data: HeldRows, is_matched: np.ndarray) -> np.ndarray:
        """Return a mask of the rows of the data, or of a part of it, that are to be inserted.

        Args:
            data: Rows to decide on.
            is_matched: Mask of the rows that match a row of the dataset.
        """
        rules = self.rules
        if rules.inserted is None:
            return np.zeros(len(is_matched), dtype=bool)
        is_new: np.ndarray = ~is_matched
        if rules.insert_where is not None and is_new.any():
            places = np.flatnonzero(is_new)
            names = _roots((*rules.on, *Side.SOURCE.own(rules.insert_where.names)))
            is_new[places] = met_by(rules.insert_where, {Side.SOURCE: data.take(places, names)})
        return is_new


def _chooses(numbers: np.ndarray, rules: Sequence[RowRule], *, deletes: bool) -> np.ndarray:
    """Return a mask of the rows whose rule deletes, or updates."""
    wanted = [n for n, rule in enumerate(rules) if (rule.updates is None) is deletes]
    chosen: np.ndarray = np.isin(numbers, np.array(wanted, dtype=np.int16))
    return chosen


def _first_that_fits(rules: Sequence[RowRule], sides: Pairs) -> np.ndarray:
    """Return for each pair the number of the first rule that fits."""
    numbers = np.full(next(iter(sides.values())).num_rows, _NONE, dtype=np.int16)
    for number, rule in enumerate(rules):
        fits = numbers == _NONE
        if rule.where is not None:
            fits &= met_by(rule.where, sides)
        numbers[fits] = number
    return numbers


def _roots(names: Iterable[str]) -> tuple[str, ...]:
    """Return the top-level columns of possibly nested names."""
    return tuple(dict.fromkeys(name.split(".")[0] for name in names))


class Merging:
    """Applies the changes of a merge to the rows of data files. Travels to Spark tasks."""

    def __init__(self, matcher: Matcher, store: Store, known: Mapping[str, FileChanges]) -> None:
        """Take the changes that are known already.

        Args:
            matcher: Decides the changes.
            store: Store that holds the files.
            known: Changes decided already, by label; other files are looked at again.
        """
        self.matcher = matcher
        self._store = store
        self._known = known
        self._last: FileChanges | None = None

    @cached_property
    def _moving(self) -> list[str]:
        """Fields that partitions derive from, and that may change."""
        functions = self.matcher.layout.descriptor.partition_by
        sources = {f.source.split(".")[0] for f in functions if f.takes_source}
        return [name for name in self.matcher.rules.changed if name in sources]

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterator[Routed]:
        """Yield the rows that stay in their partition, then those that move."""
        changes = self._changes_of(file)
        end = start + batch.num_rows
        is_kept = np.ones(batch.num_rows, dtype=bool)
        is_kept[_within(changes.deleted, start, end)] = False
        changed, is_moved, places = self._updated(file, batch, changes, start)
        is_kept[is_moved] = False
        for rows in kept_parts(is_kept) if is_kept.any() else ():
            yield Routed(file_partition(file), rows, changed, places)
            places = None
        if is_moved.any():
            yield Routed(None, is_moved, changed, places)

    def _changes_of(self, file: DataFile) -> FileChanges:
        known = self._known.get(file.label)
        if known is not None:
            return known
        if self._last is None or self._last.label != file.label:
            (self._last,) = self.matcher.look(self._store, [file])
        return self._last

    def _updated(
        self, file: DataFile, batch: pa.RecordBatch, changes: FileChanges, start: int
    ) -> tuple[pa.RecordBatch | None, np.ndarray, np.ndarray | None]:
        """Return the batch with its updates, a mask of the rows that must move, and the updated rows.

        Without updates, the batch and the updated rows are None.
        """
        rules, end = self.matcher.rules, start + batch.num_rows
        is_moved = np.zeros(batch.num_rows, dtype=bool)
        low, high = np.searchsorted(changes.updated, [start, end])
        first, last = np.searchsorted(changes.reset, [start, end])
        changed = batch
        for number, rule in enumerate(rules.matched):
            mine = changes.rules[low:high] == number
            rows = changes.updated[low:high][mine] - start
            if rule.updates is not None and len(rows):
                changed = self._set(changed, rows, rule.updates, changes.sources[low:high][mine])
        for number, rule in enumerate(rules.missing):
            mine = changes.reset_rules[first:last] == number
            rows = changes.reset[first:last][mine] - start
            if rule.updates is not None and len(rows):
                changed = self._set(changed, rows, rule.updates, None)
        if changed is batch:
            return None, is_moved, None
        rows = np.concatenate([changes.updated[low:high], changes.reset[first:last]]) - start
        rows.sort()
        if self._moving:
            before, after = (
                side.select(self._moving).take(pa.array(rows)) for side in (batch, changed)
            )
            for name in self._moving:
                is_moved[rows[~surely_equal(before.column(name), after.column(name))]] = True
        names = self.matcher.layout.descriptor.schema.names
        self._check_view(file, changed.select(names), rows[~is_moved[rows]])
        return changed, is_moved, rows

    def _set(
        self,
        batch: pa.RecordBatch,
        rows: np.ndarray,
        assignments: Sequence[Assignment],
        sources: np.ndarray | None,
    ) -> pa.RecordBatch:
        """Return the batch with some fields of some rows assigned."""
        rules, types = self.matcher.rules, self.matcher.layout.column_types
        taken = batch.take(pa.array(rows))
        sides: Pairs = {Side.TARGET: taken}
        if sources is not None:
            names = _roots(rules.taken(Side.SOURCE))
            sides = {Side.TARGET: taken, Side.SOURCE: self.matcher.data.take(sources, names)}
        for assignment in assignments:
            if self._is_equal_anyway(assignment):
                continue
            number = batch.schema.get_field_index(assignment.name)
            new = value_of(assignment, types[assignment.name], sides)
            if is_identical(taken.column(number), new):
                continue  # often the case, and saves copying a long column
            whole = with_rows(batch.column(number), rows, new)
            batch = batch.set_column(number, batch.schema.field(number), whole)
        return batch

    def _is_equal_anyway(self, assignment: Assignment) -> bool:
        """Return whether a field is set to its matching key, which may differ only for floats."""
        own = OfColumn(Side.SOURCE.named(assignment.name))
        kind = type_to_arrow(self.matcher.layout.column_types[assignment.name])
        is_key = assignment.name in self.matcher.rules.on and assignment.term == own
        return is_key and not pa.types.is_floating(kind)

    def _check_view(self, file: DataFile, batch: pa.RecordBatch, rows: np.ndarray) -> None:
        """Check that rows that stay in their partition stay in the view as well."""
        layout, constraint = self.matcher.layout, self.matcher.rules.constraint
        if constraint == TRUE or not len(rows):
            return
        check = ViewCheck(constraint, layout.descriptor)
        levels = layout.partition_level_types
        own: dict[str, Scalar] = {name: file.partition[name] for name in levels}
        columns = {
            name: pa.repeat(pa.scalar(value, type_to_arrow(levels[name])), len(rows))
            for name, value in own.items()
        }
        check.check(batch.take(pa.array(rows)), columns)


def with_rows(column: pa.Array, rows: np.ndarray, new: pa.Array) -> pa.Array:
    """Return a column with other values in some rows, whose positions are ascending."""
    if not pa.types.is_nested(column.type):
        is_new = np.zeros(len(column), dtype=bool)
        is_new[rows] = True
        return pc.replace_with_mask(column, pa.array(is_new), new)
    order = np.arange(len(column))
    order[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, new]).take(pa.array(order))


def is_identical(old: pa.Array, new: pa.Array) -> bool:
    """Return whether plain values are identical; floats are not compared, for zeros and NaN."""
    kind = old.type
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return False
    return bool(old.equals(new))


def _within(places: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return those of some ascending positions that lie in a range, relative to its begin."""
    low, high = np.searchsorted(places, [start, end])
    within: np.ndarray = places[low:high] - start
    return within


def surely_equal(one: pa.Array, other: pa.Array) -> np.ndarray:
    """Return a mask of the pairs of values that are surely equal."""
    if pa.types.is_nested(one.type):
        return np.zeros(len(one), dtype=bool)
    is_equal = pc.fill_null(pc.equal(one, other), fill_value=False)
    both_null = pc.and_(one.is_null(), other.is_null())
    same: np.ndarray = pc.or_(is_equal, both_null).to_numpy(zero_copy_only=False)
    return same
