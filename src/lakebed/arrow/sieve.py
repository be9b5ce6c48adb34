"""A fast first look for rows with one of some values, before a condition is evaluated exactly.

Arrow looks each value up in a hash table, which takes most of the time of a condition such as
`id IN (…)`. Few rows have one of the values. So each value is hashed to 16 bits first, and only rows
whose bits are those of a wanted value are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.formulas.computation import with_truths
from lakebed.model.predicate import (
    Comparison,
    Formula,
    KeyList,
    Membership,
    Op,
    Predicate,
    all_of,
    conjuncts,
    formulas_of,
    key_list,
    may_raise,
)
from lakebed.model.schema import Type
from lakebed.plan.expression import to_arrow_expression

_BITS = 16
_MOST_VALUES = 2**_BITS // 16  # of more, too many rows would pass
_LEAST_ROWS = 4_096  # fewer are faster looked up at once
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_PLACE = "lakebed.place"  # no field has a dot in its name


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Finds the rows that have one of some combinations of values.

    Each value has a number. The numbers of a row's first columns, as a pair with that of the next
    one, get a number again, so that numbers stay small whatever the count of columns.

    Attributes:
        columns: The columns.
        steps: For each column its wanted values, and the wanted pairs: the number of the columns
            before, times the count of these values, and the number of the value.
    """

    columns: tuple[str, ...]
    steps: tuple[tuple[pa.Array, pa.Array], ...]

    @classmethod
    def of(cls, keys: KeyList, types: Mapping[str, Type]) -> KeyLookup:
        """Return the lookup of a list of bound values of top-level columns."""
        steps = []
        before = np.zeros(len(keys.rows), np.int64)
        for name, column in zip(keys.columns, zip(*keys.rows, strict=True), strict=True):
            values = _comparable(pa.array(column, type_to_arrow(types[name])))
            distinct = values.unique()
            pairs = pa.array(before * len(distinct) + _numbers(values, distinct))
            wanted = pairs.unique()
            steps.append((distinct, wanted))
            before = _numbers(pairs, wanted)
        return cls(keys.columns, tuple(steps))

    def mask(self, batch: pa.RecordBatch) -> pa.Array:
        """Return for each row whether it has a combination; a null has none."""
        before = np.zeros(batch.num_rows, np.int64)
        is_met = np.ones(batch.num_rows, dtype=bool)
        for name, (distinct, wanted) in zip(self.columns, self.steps, strict=True):
            values = _comparable(batch.column(name).cast(distinct.type))
            numbers = _numbers(values, distinct)
            pairs = _numbers(pa.array(before * len(distinct) + numbers), wanted)
            is_met &= (numbers >= 0) & (pairs >= 0)
            before = pairs
        return pa.array(is_met)


def split_key_lists(
    predicate: Predicate, types: Mapping[str, Type]
) -> tuple[Predicate, list[KeyList]]:
    """Return the conditions that Arrow evaluates, and the lists of combinations."""
    rest, lists = [], []
    for part in conjuncts(predicate):
        keys = key_list(part)
        if keys is None or not all(name in types and "." not in name for name in keys.columns):
            rest.append(part)
        else:
            lists.append(keys)
    return all_of(rest), lists


@dataclass(frozen=True, slots=True)
class RowFilter:
    """Chooses the rows for which a predicate is true. Travels to Spark tasks.

    Attributes:
        condition: The predicate, without its lists of combinations and its formulas.
        lookups: The lists of combinations.
        computed: Conditions with formulas: first those that raise for no row, then the others in
            their order, each for rows that meet those before it.
        column: Column of whole numbers whose values are listed; empty if none is.
        kind: Type of these values.
        passes: For each hash, whether a listed value has it.
    """

    condition: pc.Expression
    lookups: tuple[KeyLookup, ...] = ()
    computed: tuple[tuple[Predicate, pc.Expression], ...] = ()
    column: str = ""
    kind: pa.DataType | None = None
    passes: np.ndarray | None = None

    @classmethod
    def of(cls, predicate: Predicate, types: Mapping[str, Type]) -> RowFilter:
        """Return the filter of a bound predicate."""
        rest, lists = split_key_lists(predicate, types)
        formulas = [part for part in conjuncts(rest) if formulas_of(part)]
        together = [part for part in formulas if not may_raise(part)]
        steps = [all_of(together)] if together else []
        steps += [part for part in formulas if may_raise(part)]
        computed = tuple((part, to_arrow_expression(part, types)) for part in steps)
        rest = all_of([part for part in conjuncts(rest) if not formulas_of(part)])
        condition = to_arrow_expression(rest, types)
        lookups = tuple(KeyLookup.of(keys, types) for keys in lists)
        for part in conjuncts(rest):
            listed = _listed(part)
            if listed is None or "." in listed[0] or len(listed[1]) > _MOST_VALUES:
                continue
            column, values = listed
            kind = type_to_arrow(types[column])
            if _is_whole(kind):
                passes = np.zeros(2**_BITS, dtype=bool)
                passes[_hashes(pa.array(values, kind))] = True
                return cls(condition, lookups, computed, column, kind, passes)
        return cls(condition, lookups, computed)

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the predicate is true."""
        places = self._candidates(batch)
        return self._chosen(batch if places is None else batch.take(pa.array(places)))

    def mask(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return for each row whether the predicate is true."""
        is_met = np.zeros(batch.num_rows, dtype=bool)
        places = self._candidates(batch)
        if places is None:
            places = np.arange(batch.num_rows)
        else:
            batch = batch.take(pa.array(places))
        chosen = self._chosen(batch.append_column(_PLACE, pa.array(places)))
        is_met[chosen.column(_PLACE).to_numpy()] = True
        return is_met

    def _chosen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        chosen = batch.filter(self.condition)
        for lookup in self.lookups:
            chosen = chosen.filter(lookup.mask(chosen))
        for predicate, expression in self.computed:
            if not chosen.num_rows:
                break
            own = chosen.schema.names
            whole = with_truths(chosen, predicate)
            if isinstance(predicate, Formula):  # its truth as it is: an expression costs more
                chosen = chosen.filter(whole.column(predicate.name))
            else:
                chosen = whole.filter(expression).select(own)
        return chosen

    def _candidates(self, batch: pa.RecordBatch) -> np.ndarray | None:
        """Return the positions of the rows that may meet the predicate; None for all."""
        if self.passes is None or batch.num_rows < _LEAST_ROWS:
            return None
        column = batch.column(self.column)
        if column.type != self.kind:  # other units, or a dictionary
            return None
        return np.flatnonzero(self.passes[_hashes(column)])


def _listed(predicate: Predicate) -> tuple[str, tuple[object, ...]] | None:
    """Return a column and the only values with which a row can meet a predicate; None if unknown."""
    match predicate:
        case Membership(column, values, negated=False):
            return column, values
        case Comparison(column, Op.EQ, value):
            return column, (value,)
    return None


def _comparable(column: pa.Array) -> pa.Array:
    """Return floats with one zero: Arrow's tables of values distinguish -0.0, but not NaNs."""
    return pc.add(column, 0.0) if pat.is_floating(column.type) else column


def _numbers(column: pa.Array, values: pa.Array) -> np.ndarray:
    """Return the position of each value among some, which are not null; -1 for others."""
    found: np.ndarray = pc.fill_null(pc.index_in(column, value_set=values), -1).to_numpy()
    return found.astype(np.int64)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pat.is_integer(kind) or pat.is_date32(kind) or pat.is_timestamp(kind))


def _hashes(column: pa.Array) -> np.ndarray:
    """Return the hash of each value; that of a null has no meaning."""
    width = column.type.bit_width
    whole = pa.Array.from_buffers(
        {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width],
        len(column),
        [None, column.buffers()[1]],
        offset=column.offset,
    )
    numbers: np.ndarray = whole.to_numpy().astype(np.uint64)
    numbers *= _FACTOR
    numbers >>= np.uint64(64 - _BITS)
    return numbers.view(np.int64)
