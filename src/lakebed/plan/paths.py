"""Evaluate predicates on partition fields for the paths of all live files at once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.evaluate import matches_each
from lakebed.model.keys import decode_path, split_label
from lakebed.model.predicate import FALSE, TRUE, And, Predicate, columns_of
from lakebed.model.schema import Type
from lakebed.model.values import Scalar
from lakebed.state.state import State


@lru_cache(maxsize=4096)
def decoded(component: str, name: str, kind: Type) -> Scalar:
    """Return the value of a level; each plan of a dataset meets the same ones."""
    return decode_path(component, {name: kind})[name]


class Paths:
    """The labels of the live files of a state, as an Arrow array.

    There may be a million of them. So only the levels that a predicate names are decoded, and each
    distinct value of a level is decoded and compared once.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._types = state.layout.partition_types
        self._levels: dict[str, tuple[np.ndarray, list[Scalar]]] = {}
        self._read: dict[tuple[str, str], Scalar] = {}
        self._compared: dict[Predicate, dict[tuple[Scalar, ...], bool]] = {}
        self._answers: dict[Predicate, np.ndarray] = {}

    def of(self, labels: Iterable[str]) -> Paths:
        """Return the paths of other files of the dataset; both know the values that either met."""
        others = Paths(self._state.with_labels(labels))
        others._read, others._compared = self._read, self._compared
        return others

    def matching(self, predicate: Predicate) -> np.ndarray:
        """Return for each live file whether the predicate is true of its path.

        Args:
            predicate: A bound predicate on partition fields.

        Raises:
            CorruptMetadataError: A path does not fit the schema.
        """
        if predicate in (TRUE, FALSE):
            return np.full(len(self._state.labels), predicate == TRUE)
        if isinstance(predicate, And):
            # True where each part is: a part names fewer values, and others may ask for it again.
            return reduce(np.logical_and, map(self.matching, predicate.parts))
        if predicate not in self._answers:
            self._answers[predicate] = self._matching(predicate)
        return self._answers[predicate]

    def _matching(self, predicate: Predicate) -> np.ndarray:
        columns = columns_of(predicate)
        # Numbers of the distinct combinations of values, and the combinations themselves.
        codes = np.zeros(len(self._state.labels), dtype=np.int64)
        combinations: list[tuple[Scalar, ...]] = [()]
        for column in columns:
            level, values = self._level(column)
            if len(combinations) == 1:
                codes = level
                combinations = [(*combinations[0], value) for value in values]
                continue
            distinct = pa.array(codes.astype(np.int64) * len(values) + level).dictionary_encode()
            codes = distinct.indices.to_numpy()
            combinations = [
                (*combinations[number // len(values)], values[number % len(values)])
                for number in distinct.dictionary.to_pylist()
            ]
        compared = self._compared.setdefault(predicate, {})
        new = [combination for combination in combinations if combination not in compared]
        for combination, truth in zip(new, matches_each(predicate, columns, new), strict=True):
            compared[combination] = truth
        truths = [compared[combination] for combination in combinations]
        return np.array(truths, dtype=bool)[codes]

    def values(self, directory: str) -> dict[str, Scalar]:
        """Return the typed values of a directory's levels.

        Raises:
            CorruptMetadataError: The directory does not fit the schema.
        """
        components = directory.split("/") if directory else []
        if self._state.layout.has_former_levels or len(components) != len(self._types):
            return self._state.layout.directory_values(directory)
        pairs = zip(self._types, components, strict=True)
        return {name: self._value(name, component) for name, component in pairs}

    def _value(self, name: str, component: str) -> Scalar:
        known = (name, component)
        if known not in self._read:
            self._read[known] = decoded(component, name, self._types[name])
        return self._read[known]

    def _level(self, name: str) -> tuple[np.ndarray, list[Scalar]]:
        """Return for each file the number of its value of a partition field, and the values."""
        if name not in self._levels:
            if self._state.layout.has_former_levels:
                return self._level_of_any(name)
            position = list(self._types).index(name)
            components, lengths = self._runs
            if components is None:
                every = pa.array(self._starts + position)
                encoded = self._components.take(every).dictionary_encode()
                codes = encoded.indices.to_numpy()
            else:
                encoded = pa.array([levels[position] for levels in components]).dictionary_encode()
                codes = np.repeat(encoded.indices.to_numpy(), lengths)
            values = [self._value(name, component) for component in encoded.dictionary.to_pylist()]
            self._levels[name] = (codes, values)
        return self._levels[name]

    def _level_of_any(self, name: str) -> tuple[np.ndarray, list[Scalar]]:
        """Return the same for files in directories of any levels."""
        known: dict[str, Scalar] = {}
        numbers: dict[Scalar, int] = {}
        codes = []
        for label in self._state.labels:
            directory = split_label(label)[0]
            if directory not in known:
                known[directory] = self._state.layout.directory_values(directory)[name]
            codes.append(numbers.setdefault(known[directory], len(numbers)))
        self._levels[name] = (np.array(codes, dtype=np.int64), list(numbers))
        return self._levels[name]

    @cached_property
    def _runs(self) -> tuple[list[list[str]] | None, list[int]]:
        """Return the levels of each run of labels in one directory, and the lengths of the runs.

        The files of a batch are ordered by directory, so that there are few runs. If the directory
        changes too often for that, the levels are None.
        """
        labels, width = self._state.labels, len(self._types) + 1
        begin, starts, components = "", list[int](), list[list[str]]()
        limit = len(labels) // 4 + 1
        for position, label in enumerate(labels):
            if begin and label.startswith(begin):
                continue
            directory = split_label(label)[0]
            begin = f"{directory}/"
            components.append(directory.split("/"))
            starts.append(position)
            if len(components[-1]) != width - 1 or len(starts) > limit:
                return None, []
        # A label with further levels after the directory would not belong to the run.
        if "".join(labels).count("/") != len(labels) * (width - 1):
            return None, []
        return components, np.diff([*starts, len(labels)]).tolist()

    @property
    def _starts(self) -> np.ndarray:
        """Index of the first component of each label."""
        width = len(self._types) + 1  # the levels and the name of the file
        return np.arange(0, len(self._state.labels) * width, width)

    @cached_property
    def _components(self) -> pa.Array:
        """The components of all labels in a row."""
        split = pc.split_pattern(self.labels, "/")
        lengths = pc.list_value_length(split).to_numpy()
        for position in np.flatnonzero(lengths != len(self._types) + 1)[:1].tolist():
            directory = split_label(self._state.labels[position])[0]
            self._state.layout.directory_values(directory)  # raises an error that names it
        return split.flatten()

    @cached_property
    def labels(self) -> pa.LargeStringArray:
        """All labels in the order of the head."""
        text = "".join(self._state.labels)
        if not text.isascii():
            return pa.array(self._state.labels, pa.large_string())
        # Several times as fast as one by one: each ASCII character has one byte.
        lengths = np.fromiter(map(len, self._state.labels), np.int64, len(self._state.labels))
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        return pa.LargeStringArray.from_buffers(
            len(lengths), pa.py_buffer(offsets), pa.py_buffer(text.encode())
        )
