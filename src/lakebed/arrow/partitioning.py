"""The partition of each row in one writer: numbers for partitions, and caps on values of dimensions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.allowed import OTHER, TOKENS
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import encode_path, split_label
from lakebed.model.partition.function import to_python
from lakebed.model.values import Scalar
from lakebed.state.caught import MAX_SAMPLE, Caught
from lakebed.state.state import State

# Up to this many combinations of values, a table of them is faster than sorting.
_TABLE_SIZE = 2**20


def admitted_values(state: State, written: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Return, for each capped dimension, the values that have a partition.

    Args:
        state: The state.
        written: Labels of further files.

    Cost:
        No request; time in proportion to the directories of live files, if a dimension is capped.
    """
    strategy, schema = state.descriptor.partition_by, state.descriptor.schema
    values_by_name: dict[str, set[str]] = {name: set() for name in strategy.caps(schema)}
    if values_by_name:
        further = {split_label(label)[0] for label in written}
        for directory in (*state.directories(), *further):
            values = state.layout.directory_values(directory)
            for name, admitted in values_by_name.items():
                value = values[name]
                if isinstance(value, str) and value not in TOKENS:
                    admitted.add(value)
    return {name: frozenset(admitted) for name, admitted in values_by_name.items()}


class _Pending(NamedTuple):
    name: str
    admitted: list[str]
    beyond: list[str]
    row_count: int


class CapKeeper:
    """Admits values of capped dimensions, and sends the others to `OTHER`."""

    def __init__(
        self,
        descriptor: DatasetDescriptor,
        admitted: Mapping[str, frozenset[str]],
        *,
        writers: int,
    ) -> None:
        """Start with the values that have partitions.

        Args:
            descriptor: Descriptor of the dataset.
            admitted: By dimension, the values that have a partition of their own in any case.
            writers: Number of writers that share the room that is left; this one admits its
                share, as values come. With 0, it admits none.
        """
        self._caps = descriptor.partition_by.caps(descriptor.schema)
        self._names = [function.name for function in descriptor.partition_by]
        self._admitted = {name: set(admitted.get(name, ())) for name in self._caps}
        self._room = {
            name: max(0, self._caps[name] - len(known)) // writers if writers else 0
            for name, known in self._admitted.items()
        }
        self._row_counts = dict.fromkeys(self._caps, 0)
        self._samples: dict[str, dict[str, None]] = {name: {} for name in self._caps}
        self._pending: list[_Pending] = []

    def limited(self, columns: list[pa.Array]) -> list[pa.Array]:
        """Return the partition fields of some rows, with `OTHER` for values that are not admitted.

        These admissions count once the rows are accepted.
        """
        self._pending.clear()
        if not self._caps:
            return columns
        return [
            self._limit(name, column) if name in self._caps else column
            for name, column in zip(self._names, columns, strict=True)
        ]

    def _limit(self, name: str, column: pa.Array) -> pa.Array:
        admitted = self._admitted[name]
        values = column.unique().to_pylist()
        new = [value for value in values if value not in admitted and value not in TOKENS]
        room = self._room[name]
        beyond = new[room:]
        is_beyond = pc.is_in(column, pa.array(beyond, column.type)) if beyond else None
        count = 0 if is_beyond is None else pc.sum(is_beyond).as_py()
        self._pending.append(_Pending(name, new[:room], beyond[:MAX_SAMPLE], count))
        return column if is_beyond is None else pc.if_else(is_beyond, OTHER, column)

    def accept(self) -> None:
        """Record that the rows that were limited last are written."""
        for pending in self._pending:
            self._admitted[pending.name].update(pending.admitted)
            self._room[pending.name] -= len(pending.admitted)
            self._row_counts[pending.name] += pending.row_count
            sample = self._samples[pending.name]
            sample.update(dict.fromkeys(pending.beyond[: MAX_SAMPLE - len(sample)]))
        self._pending.clear()

    @property
    def caught(self) -> tuple[Caught, ...]:
        """Rows that went to `OTHER` because of a cap, by dimension."""
        return tuple(
            Caught(
                dimension=name,
                cap=self._caps[name],
                row_count=count,
                values=tuple(self._samples[name]),
            )
            for name, count in self._row_counts.items()
            if count
        )


class PartitionNumbers:
    """Numbers partitions from 0 on, in the order in which they first occur."""

    def __init__(self) -> None:
        """Start without partitions."""
        self.paths: list[str] = []
        self._by_path: dict[str, int] = {}
        self._by_values: dict[tuple[Hashable, ...], int] = {}

    def of_path(self, path: str) -> int:
        """Return the number of a partition."""
        number = self._by_path.setdefault(path, len(self.paths))
        if number == len(self.paths):
            self.paths.append(path)
        return number

    def of_rows(self, columns: Mapping[str, pa.Array]) -> np.ndarray:
        """Return the number of each row.

        Args:
            columns: A column for each level of the partition, by its name; at least one.

        Raises:
            PartitionSpecError: A value has no path, or too long a one.
        """
        encoded = [column.dictionary_encode(null_encoding="encode") for column in columns.values()]
        codes, combinations = _combine(
            [column.indices.to_numpy() for column in encoded],
            [len(column.dictionary) for column in encoded],
        )
        values = [
            to_python(column.dictionary, f"Partition field {name!r}")
            for name, column in zip(columns, encoded, strict=True)
        ]
        keys = [[_key(value) for value in column] for column in values]
        known = self._by_values
        numbers = np.empty(len(combinations[0]), dtype=np.int32)
        for position, places in enumerate(zip(*(c.tolist() for c in combinations), strict=True)):
            key = tuple([column[place] for column, place in zip(keys, places, strict=True)])
            number = known.get(key)
            if number is None:
                level_values = [c[place] for c, place in zip(values, places, strict=True)]
                path = encode_path(dict(zip(columns, level_values, strict=True)))
                number = known[key] = self.of_path(path)
            numbers[position] = number
        row_numbers: np.ndarray = numbers[codes]
        return row_numbers


def _combine(
    codes: Sequence[np.ndarray], sizes: Sequence[int]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Number the distinct combinations of some columns of codes.

    Returns:
        The number of each row, and for each column its code in each combination.
    """
    combined = codes[0]
    combinations = [np.arange(sizes[0])]
    for column, size in zip(codes[1:], sizes[1:], strict=True):
        wide = combined.astype(np.int64) * size + column
        # Renumbering after each column keeps the codes small, however many columns there are.
        possible = len(combinations[0]) * size
        if possible <= max(_TABLE_SIZE, 4 * len(wide)):
            is_there = np.zeros(possible, dtype=bool)
            is_there[wide] = True
            distinct = np.flatnonzero(is_there)
            numbers = np.empty(possible, dtype=np.int32)
            numbers[distinct] = np.arange(len(distinct), dtype=np.int32)
            combined = numbers[wide]
        else:
            distinct, combined = np.unique(wide, return_inverse=True)
        before, own = np.divmod(distinct, size)
        combinations = [column_codes[before] for column_codes in combinations] + [own]
    return combined, combinations


def _key(value: Scalar) -> Hashable:
    """Return a key that distinguishes a value: 0.0 equals -0.0, and NaN not even itself."""
    return repr(value) if isinstance(value, float) else value
