"""Partitions as small numbers: batches are split by them, and paths are made once a partition."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakebed.errors import PartitionSpecError
from lakebed.model.keys import encode_path
from lakebed.model.values import Scalar

# Up to this many combinations of values, a table of them is faster than sorting.
_TABLE_SIZE = 2**20


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
            _to_python(column.dictionary, name)
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


def _to_python(values: pa.Array, name: str) -> list[Scalar]:
    try:
        scalars: list[Scalar] = values.to_pylist()
    except (OverflowError, ValueError) as exc:
        raise PartitionSpecError(
            f"Partition field {name!r} has a value outside the years 1 to 9999.",
            hint="Correct it, or give null.",
        ) from exc
    return scalars


def _key(value: Scalar) -> Hashable:
    """Return a key that distinguishes a value: 0.0 equals -0.0, and NaN not even itself."""
    return repr(value) if isinstance(value, float) else value
