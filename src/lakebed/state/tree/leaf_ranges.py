"""The leaves whose range may hold some directories, or files that meet a predicate.

The leaves of a run hold ranges that follow each other, in the order of the root. So a directory is
found by bisection, and a predicate is judged first for blocks of leaves: of ten million files the
ranges of about sixty leaves are decoded, and not those of six hundred.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.model.predicate import TRUE, Leaf, Predicate, leaves
from lakebed.state.tree.directory_order import DirectoryOrder, Key
from lakebed.state.tree.leaf_refs import Ref, Refs

_FEW = 16  # leaves of a run, which need no blocks


@dataclass(frozen=True, slots=True)
class _Range:
    """The range of the partition fields in one leaf, or in several that follow each other.

    Attributes:
        files: Number of files.
        low: The lowest level of each field; empty if it is not known.
        high: The highest level of each field; empty if it is not known.
        nulls: Number of files without a value, of each field; None if it is not known.
    """

    files: int
    low: tuple[str, ...]
    high: tuple[str, ...]
    nulls: tuple[int | None, ...]


class Ranges:
    """The ranges of some leaves."""

    def __init__(self, refs: Sequence[Ref], order: DirectoryOrder) -> None:
        """Take some leaves.

        Args:
            refs: The leaves, in the order of the root.
            order: The order of the dataset.
        """
        self._refs = Refs.of(refs)
        self._order = order
        self._runs = [_Run(own, order) for own in self._refs.runs()]

    def by_directory(self, directories: Collection[str]) -> Iterator[tuple[Ref, list[str]]]:
        """Yield the leaves whose range holds some directories, with these, in the order of the root."""
        keys = {directory: self._order(directory) for directory in directories}
        for run in self._runs:
            yield from run.by_directory(keys)

    def of_partitions(self, partitions: Iterable[str]) -> list[Ref]:
        """Return the leaves whose range holds a partition, in the order of the root."""
        paths = sorted(partitions)
        return [ref for run in self._runs for ref in run.of_partitions(paths)]

    def may(self, predicates: Iterable[Predicate]) -> list[Ref]:
        """Return the leaves in which a file may meet one of some predicates on partition fields."""
        questions = list(dict.fromkeys(predicates))
        if TRUE in questions:
            return list(self._refs)
        blocks = [block for run in self._runs for block in run.blocks()]
        few = _matching(blocks, questions, self._order)
        return [
            ref
            for (ref,) in _matching(
                [(ref,) for block in few for ref in block], questions, self._order
            )
        ]


def _matching(
    blocks: Sequence[Sequence[Ref]], questions: Sequence[Predicate], order: DirectoryOrder
) -> list[Sequence[Ref]]:
    """Return the blocks of leaves that may hold a match of one of some predicates."""
    if not blocks:
        return []
    may = _Judged([_joined(block) for block in blocks], order).any_of(questions)
    return [blocks[place] for place in np.flatnonzero(may).tolist()]


@dataclass(frozen=True, slots=True)
class _Run:
    """Leaves that follow each other."""

    refs: Refs
    order: DirectoryOrder

    def by_directory(self, keys: dict[str, tuple[Key, str]]) -> Iterator[tuple[Ref, list[str]]]:
        wanted: dict[int, list[str]] = {}
        for directory, key in keys.items():
            for place in self._around(key, self.order):
                wanted.setdefault(place, []).append(directory)
        for place in sorted(wanted):
            yield self.refs[place], wanted[place]

    def of_partitions(self, paths: Iterable[str]) -> list[Ref]:
        places = {place for path in paths for place in self._of_partition(path)}
        # Directories of another form are at the end of a run, whatever their partition is, among
        # those whose first level does not fit the schema.
        for place in reversed(range(len(self.refs))):
            low = self.refs[place].low
            if low and low[0]:
                break
            if not low:
                places.add(place)
        return [self.refs[place] for place in sorted(places)]

    def _of_partition(self, path: str) -> range:
        levels = path.split("/") if path else []
        key = tuple(
            self.order.level(name, level)
            for name, level in zip(self.order.types, levels, strict=False)
        )
        return self._around(key, lambda name: self.order(name)[0][: len(key)])

    def _around(self, key: Any, key_of: Callable[[str], Any]) -> range:
        """Return the positions of the leaves whose range holds a key."""
        begin = bisect.bisect_left(self.refs, key, key=lambda ref: key_of(ref.last))
        end = bisect.bisect_right(self.refs, key, key=lambda ref: key_of(ref.first))
        return range(begin, end)

    def blocks(self) -> list[Sequence[Ref]]:
        """Return the leaves in blocks, of about as many leaves as there are blocks.

        If the edges of the blocks are not in order, another program wrote the root. Then each leaf
        is a block.
        """
        size = math.isqrt(len(self.refs)) if len(self.refs) > _FEW else 1
        blocks = [self.refs[at : at + size] for at in range(0, len(self.refs), size)]
        if size == 1:
            return list(blocks)
        edges = [
            self.order(name)[0][:1] for block in blocks for name in (block[0].first, block[-1].last)
        ]
        is_ordered = all(one <= other for one, other in itertools.pairwise(edges))
        return list(blocks) if is_ordered else [(ref,) for ref in self.refs]


def _joined(block: Sequence[Ref]) -> _Range:
    """Return the range of leaves that follow each other; it is only known of the first field."""
    first, last = block[0], block[-1]
    if len(block) == 1:
        return _Range(first.files, first.low, first.high, first.nulls)
    files = Refs.of(block).file_count
    # Directories of another form are at the end of a run: if any leaf has one, the last one has.
    if not all(ref.low and ref.low[0] for ref in (first, last)):
        return _Range(files, (), (), ())
    return _Range(files, first.low[:1], last.high[:1], (None,))


@dataclass(frozen=True, slots=True)
class _Judged:
    """Ranges as bounds of columns in files, and the conditions that were judged by them."""

    ranges: Sequence[_Range]
    order: DirectoryOrder
    known: dict[Leaf, np.ndarray] = field(default_factory=dict)

    def any_of(self, questions: Sequence[Predicate]) -> np.ndarray:
        """Return for each range whether a file in it may meet one of some predicates."""
        from lakebed.state.statistics import combined  # with the kernels of Arrow

        may = np.zeros(len(self.ranges), dtype=bool)
        for question in questions:
            for leaf in leaves(question):
                if leaf not in self.known:
                    self.known[leaf] = self._may(leaf)
            may |= combined(question, len(self.ranges), self.known.__getitem__, formulas=True)
        return may

    def _may(self, leaf: Leaf) -> np.ndarray:
        from lakebed.state.statistics import evidence_of

        position, unknown = list(self.order.types).index(leaf.column), ("", "", 0)
        ranges = [
            (one.low[position], one.high[position], one.nulls[position])
            if len(one.low) > position
            else unknown
            for one in self.ranges
        ]
        lows, highs, nulls = (list(side) for side in zip(*ranges, strict=True))
        bounds = self.order.bounds(leaf.column, lows, highs, nulls)
        files = pa.chunked_array([pa.array([one.files for one in self.ranges], pa.int64())])
        return evidence_of(leaf, bounds, files, self.order.types[leaf.column]).may
