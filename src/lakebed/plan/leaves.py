"""The leaves of a tree that a plan must read: those whose range of partition values may match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lakebed.index.lookup import find_homes
from lakebed.model.keys import file_ids
from lakebed.model.predicate import TRUE, Leaf, Predicate
from lakebed.plan.paths import Paths
from lakebed.state.state import Listed, State
from lakebed.state.tree.find import StoredLeaves, facts_of
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.store.base import Store

_FEW_LEAVES = 2  # reading so few takes no longer than a lookup


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A state that lists only the files that a plan examines.

    Attributes:
        state: The state, with the facts of these files.
        paths: The paths of these files.
        left_out: Number of the other live files, which cannot match.
        requests: Number of requests that it took.
    """

    state: State
    paths: Paths
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
    refs = tree.ranges.may(questions)
    requests = tree.leaves.fetch(refs) if isinstance(tree.leaves, StoredLeaves) else 0
    paths = Paths(state)
    labels = tree.among(refs) if TRUE in questions else _matching(paths, tree, refs, questions)
    few = _listing(state, tree, refs, labels)
    return Narrowed(few, paths.of(labels), tree.count - len(labels), requests)


def looked_up(
    state: State, questions: Sequence[Predicate], leaf: Leaf, store: Store
) -> Narrowed | None:
    """Return a state that lists the files of a tree in which an index finds a value.

    Args:
        state: The state to plan from, whose head is a tree.
        questions: As for `narrowed`.
        leaf: A condition that each row must meet, and that names values of an indexed column.
        store: The store that holds the index.

    Returns:
        None if the index does not cover all files, or if reading the leaves is less work.

    Raises:
        CorruptMetadataError: A leaf that holds a file with the value is lost or damaged.

    Cost:
        As `find_homes`, and a GET of a range for each leaf that holds a file with the value. It
        depends on these files, and not on their number in the dataset.
    """
    tree, column = state.live, state.descriptor.schema.stored_name(leaf.column)
    assert isinstance(tree, TreeFiles)
    segments = state.lists.postings.get(column, ())
    if tree.is_past or column not in state.indexed or not segments:
        return None
    refs = tree.ranges.may(questions)
    if len(refs) < _FEW_LEAVES:
        return None
    found = find_homes(store, segments, leaf, state.layout.predicate_types[leaf.column])
    if found is None:
        return None
    known = np.unique(found.ids)
    may = {ref.id for ref in refs}
    directories = frozenset(found.directories)
    chosen = [ref for ref, _ in tree.ranges.by_directory(directories) if ref.id in may]
    requests = found.requests
    requests += tree.leaves.fetch(chosen) if isinstance(tree.leaves, StoredLeaves) else 0
    labels = tree.within(chosen, directories.__contains__)
    is_found = np.isin(file_ids(labels), known)
    labels = tuple(labels[place] for place in np.flatnonzero(is_found).tolist())
    few = _listing(state, tree, chosen, labels)
    return Narrowed(few, Paths(few), tree.count - len(labels), requests)


def _listing(state: State, tree: TreeFiles, refs: Sequence[Ref], labels: tuple[str, ...]) -> State:
    """Return a state that lists some files, with the facts in the leaves that hold them."""
    facts = facts_of(tree.root, refs, tree.order, state.name)
    return replace(state, live=Listed(labels), lists=replace(state.lists, files=facts))


def _matching(
    whole: Paths, tree: TreeFiles, refs: Sequence[Ref], questions: Sequence[Predicate]
) -> tuple[str, ...]:
    """Return the labels of the files in some leaves whose directory may match."""
    parts = list(tree.parts(refs))
    # A directory is judged as a file in it is.
    files = [f"{directory}/x" for part in parts for directory in part.directories]
    paths = whole.of(files)
    may = np.zeros(len(files), dtype=bool)
    for question in dict.fromkeys(questions):
        may |= paths.matching(question)
    chosen, start, labels = may.tolist(), 0, list[str]()
    for part in parts:
        end = start + len(part.directories)
        labels += part.choose(chosen[start:end]).labels()
        start = end
    return tuple(labels)


def rows_in_root(state: State) -> int | None:
    """Return the number of entities of a tree; None if its root does not have it."""
    return state.live.row_count if isinstance(state.live, TreeFiles) else None
