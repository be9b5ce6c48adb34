"""The order of files in leaves: that of the typed partition values, then of the batches.

Files of one partition are then adjacent, and so are those of neighbouring values: a leaf holds a
range of each field, and a plan reads the leaves whose range it touches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed.errors import CorruptMetadataError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import decode_path
from lakebed.model.schema import Type
from lakebed.model.values import Scalar, is_nan
from lakebed.state.file_table import Bounds

_NULL, _VALUE, _NAN, _TEXT = range(4)

Key = tuple[tuple[int, Any], ...]


class DirectoryOrder:
    """The order of the directories of a dataset.

    A directory that does not fit the schema sorts as text, after all others: a plan reports it,
    and an order cannot.
    """

    def __init__(self, types: Mapping[str, Type]) -> None:
        """Take the order of a dataset.

        Args:
            types: The directory levels in order, with their types.
        """
        self.types = dict(types)
        self._levels: dict[tuple[str, str], tuple[int, Any]] = {}
        self._keys: dict[str, tuple[Key, str]] = {}

    def __call__(self, directory: str) -> tuple[Key, str]:
        """Return the sort key of a directory; no two directories have the same."""
        key = self._keys.get(directory)
        if key is None:
            key = self._keys[directory] = (self._key(directory), directory)
        return key

    def __reduce__(self) -> tuple[type[DirectoryOrder], tuple[dict[str, Type]]]:
        return DirectoryOrder, (self.types,)

    def _key(self, directory: str) -> Key:
        levels = self.levels(directory)
        if levels is None:
            return ((_TEXT, directory),)
        return tuple(self.level(name, each) for name, each in zip(self.types, levels, strict=True))

    def levels(self, directory: str) -> list[str] | None:
        """Return the levels of a directory; None if they are not those of the dataset."""
        levels = directory.split("/") if directory else []
        return levels if len(levels) == len(self.types) else None

    def level(self, name: str, level: str) -> tuple[int, Any]:
        """Return the sort key of one level, such as `dt=2013-01-01`."""
        key = self._levels.get((name, level))
        if key is None:
            key = self._levels[name, level] = self._level(name, level)
        return key

    def _level(self, name: str, level: str) -> tuple[int, Any]:
        try:
            value = decode_path(level, {name: self.types[name]})[name]
        except CorruptMetadataError:
            return _TEXT, level
        if value is None:
            return _NULL, 0
        return (_NAN, 0) if is_nan(value) else (_VALUE, value)

    def is_null(self, name: str, level: str) -> bool:
        """Return whether a level stands for null."""
        return self.level(name, level)[0] == _NULL

    def range_of(self, name: str, levels: Sequence[str]) -> tuple[str, str]:
        """Return the lowest and the highest of some levels that have a value.

        They are empty if a level does not fit the schema, since it may then be anything. If none
        has a value, any of the levels stands for both.
        """
        keys = {level: self.level(name, level) for level in levels}
        if any(rank == _TEXT for rank, _ in keys.values()):
            return "", ""
        known = [level for level, (rank, _) in keys.items() if rank == _VALUE] or [levels[0]]
        return min(known, key=keys.__getitem__), max(known, key=keys.__getitem__)

    def bounds(
        self, name: str, lows: list[str], highs: list[str], nulls: Sequence[int | None]
    ) -> Bounds:
        """Return the bounds of a field in some leaves, as those of a column in some files.

        Args:
            name: The partition field.
            lows: The lowest level in each leaf; empty if it is not known.
            highs: The highest level in each leaf; empty if it is not known.
            nulls: Number of files in each leaf that have no value; None if it is not known.
        """
        kind = type_to_arrow(self.types[name])
        arrays = {
            side: pa.chunked_array([pa.array([self._value(name, one) for one in levels], kind)])
            for side, levels in (("min", lows), ("max", highs))
        }
        counts = [count if low else None for count, low in zip(nulls, lows, strict=True)]
        return Bounds(**arrays, null_count=pa.chunked_array([pa.array(counts, pa.int64())]))

    def _value(self, name: str, level: str) -> Scalar:
        """Return the value of a level as a bound; None if it bounds nothing."""
        rank, value = self.level(name, level) if level else (_TEXT, level)
        return value if rank == _VALUE else None
