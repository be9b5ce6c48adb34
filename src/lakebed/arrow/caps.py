"""Keeping the values of dimensions under their caps, in one writer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.model.allowed import OTHER, TOKENS
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.state.caught import MAX_SAMPLE, Caught
from lakebed.state.state import State


def admitted_values(state: State) -> dict[str, frozenset[str]]:
    """Return, for each capped dimension, the values that have a partition.

    Cost:
        No request; time in proportion to the directories of live files, if a dimension is capped.
    """
    strategy, schema = state.descriptor.partition_by, state.descriptor.schema
    values_by_name: dict[str, set[str]] = {name: set() for name in strategy.caps(schema)}
    if values_by_name:
        for directory in state.directories():
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
        """Return the partition fields of some rows, with `OTHER` for what is not admitted.

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
