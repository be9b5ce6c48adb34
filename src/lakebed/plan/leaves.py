"""The leaves of a tree that a plan must read: those whose range of partition values may match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.model.predicate import Leaf, Predicate, leaves
from lakebed.plan.statistics import combined, evidence_of
from lakebed.state.state import Listed, State
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import StoredLeaves, facts_of
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Ref


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A state that lists only the files that a plan examines.

    Attributes:
        state: The state, with the facts of these files.
        left_out: Number of the other live files, which cannot match.
        requests: Number of requests that it took.
    """

    state: State
    left_out: int
    requests: int


def narrowed(state: State, questions: Sequence[Predicate]) -> Narrowed:
    """Return a state that lists the files of a tree which a plan examines.

    Args:
        state: The state to plan from, whose head is a tree.
        questions: Predicates on partition fields, of which one is true where rows may match.

    Raises:
        CorruptMetadataError: A leaf that may hold matching files is lost or damaged.

    Cost:
        One GET of a range for each leaf whose range may match, eight at a time; nothing
        for those that the process has read before.
    """
    tree = state.live
    assert isinstance(tree, TreeFiles)
    refs = _chosen(tree, questions)
    requests = tree.leaves.fetch(refs) if isinstance(tree.leaves, StoredLeaves) else 0
    labels = tree.among(refs)
    few = replace(
        state,
        live=Listed(labels),
        lists=replace(state.lists, files=facts_of(tree.root, refs, tree.order, state.name)),
    )
    return Narrowed(few, tree.count - len(labels), requests)


def rows_in_root(state: State) -> int | None:
    """Return the number of entities of a tree; None if its root does not have it."""
    return state.live.row_count if isinstance(state.live, TreeFiles) else None


def _chosen(tree: TreeFiles, questions: Sequence[Predicate]) -> list[Ref]:
    refs = tree.root.refs
    ranges = _Ranges(refs, tree.order)
    may = np.zeros(len(refs), dtype=bool)
    for question in dict.fromkeys(questions):
        may |= ranges.may(question)
    return [refs[position] for position in np.flatnonzero(may).tolist()]


class _Ranges:
    """The ranges of the partition fields in leaves, as bounds of columns in files."""

    def __init__(self, refs: Sequence[Ref], order: DirectoryOrder) -> None:
        self._refs = refs
        self._order = order
        self._files = pa.chunked_array([pa.array([ref.files for ref in refs], pa.int64())])
        self._known: dict[Leaf, np.ndarray] = {}

    def may(self, predicate: Predicate) -> np.ndarray:
        """Return for each leaf whether a file in it may meet a predicate."""
        for leaf in leaves(predicate):
            if leaf not in self._known:
                self._known[leaf] = self._may(leaf)
        return combined(predicate, len(self._refs), self._known.__getitem__)

    def _may(self, leaf: Leaf) -> np.ndarray:
        names = list(self._order.types)
        if leaf.column not in names:  # a partition field of another version
            return np.ones(len(self._refs), dtype=bool)
        position, unknown = names.index(leaf.column), ("", "", 0)
        ranges = [
            (ref.low[position], ref.high[position], ref.nulls[position])
            if len(ref.low) == len(names)
            else unknown
            for ref in self._refs
        ]
        lows = [low for low, _, _ in ranges]
        highs = [high for _, high, _ in ranges]
        nulls = [count for _, _, count in ranges]
        bounds = self._order.bounds(leaf.column, lows, highs, nulls)
        return evidence_of(leaf, bounds, self._files, self._order.types[leaf.column]).may
