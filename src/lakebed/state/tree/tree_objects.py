"""The objects of a tree that a cleanup keeps: what its root, its history and its older versions need.

A leaf that was merged into another one is still named by the copies of the head from before. The
history needs the leaves that stand for the labels of a large commit, for as long as it exists.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from lakebed.state.readable import protected_versions
from lakebed.state.state import State
from lakebed.state.tree.find import AT_ONCE, read_commits
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.older_version import read_copy
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Buffered, HistoryRef, Root
from lakebed.store.at_once import at_once
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeObjects:
    """The objects that a tree refers to, besides those of its root.

    Attributes:
        version: The version of the root that they were found from.
        of_commits: Keys of the leaves that commits name.
        copies: Keys of the copies of the head that readable versions need, by version.
        leaves: Keys of the leaves that each copy names, by its version.
    """

    version: int
    of_commits: frozenset[str]
    copies: Mapping[int, str]
    leaves: Mapping[int, frozenset[str]]

    def needed_by(self, horizon: int, versions: Collection[int]) -> frozenset[str]:
        """Return the keys of the objects that some versions need.

        Args:
            horizon: All versions from this one on are needed.
            versions: Further versions.
        """
        keys = set(self.of_commits)
        for start in copies_for(self.copies, horizon, versions):
            keys |= {self.copies[start], *self.leaves[start]}
        return frozenset(keys)


def copies_for(copies: Iterable[int], horizon: int, versions: Iterable[int]) -> list[int]:
    """Return the versions whose copies of the head are needed to read some versions.

    Args:
        copies: The versions that have a copy.
        horizon: All versions from this one on are read.
        versions: Further versions that are read.

    >>> copies_for([0, 4, 9, 12], 10, [5])
    [4, 9, 12]
    """
    known = sorted(copies)
    needed = {copy for copy in known if copy >= horizon}
    for version in (horizon, *versions):
        needed.update([copy for copy in known if copy <= version][-1:])
    return sorted(needed)


def readable_copies(state: State, root: Root) -> dict[int, str]:
    """Return the keys of the copies of the head that readable versions need, by version.

    A cleanup has deleted the others, or will do so.
    """
    needed = copies_for(root.copies, state.horizon, protected_versions(state))
    return {version: root.copy_key(state.name, version) for version in needed}


def find_objects(
    store: Store, state: State, earlier: TreeObjects | None = None
) -> TreeObjects | None:
    """Return the objects that a tree refers to; None if the head is a document.

    Args:
        store: The store that holds the dataset.
        state: The state.
        earlier: The objects of an earlier root, whose copies of the head are not read again.

    Raises:
        CorruptMetadataError: A copy of the head, or a segment of the history, is lost or damaged.

    Cost:
        One GET for each copy of the head, and for each segment of the history that names leaves.
    """
    tree = state.live
    if not isinstance(tree, TreeFiles):
        return None
    root = tree.root
    copies = readable_copies(state, root)
    known = (
        {} if earlier is None else {earlier.copies[at]: earlier.leaves[at] for at in earlier.copies}
    )

    def leaves_of(version: int) -> frozenset[str]:
        if copies[version] in known:
            return known[copies[version]]
        copy = read_copy(store, state.name, version, copies[version])[1]
        return frozenset(ref.key(state.name) for ref in copy.refs)

    leaves = dict(zip(copies, at_once(leaves_of, list(copies), AT_ONCE), strict=True))
    naming = [one for one in root.history if one.has_leaves is not False]
    of_commits = _leaves_of(_read_commits(store, state.name, root, naming), state.name)
    return TreeObjects(
        version=state.version, of_commits=frozenset(of_commits), copies=copies, leaves=leaves
    )


def read_all_commits(store: Store, dataset: str, root: Root) -> list[Buffered]:
    """Return the commits since a dataset became a tree, oldest first.

    Raises:
        CorruptMetadataError: A segment of the history is lost or damaged.

    Cost:
        One GET for each segment of the history.
    """
    return _read_commits(store, dataset, root, root.history)


def _read_commits(
    store: Store, dataset: str, root: Root, history: Sequence[HistoryRef]
) -> list[Buffered]:
    """Return the commits of some segments of the history, and of the buffer."""
    segments = at_once(lambda one: read_commits(store, dataset, one), history, AT_ONCE)
    return [*chain.from_iterable(segments), *root.buffer]


def older_leaves(
    store: Store, state: State, root: Root, commits: Iterable[Buffered]
) -> Iterator[Ref]:
    """Yield the leaves that readable versions need, and that the root does not name any more.

    Args:
        store: The store that holds the dataset.
        state: The current state.
        root: Its root.
        commits: The commits whose leaves may be needed.

    Raises:
        CorruptMetadataError: A copy of the head is lost or damaged.

    Cost:
        One GET for each copy of the head, after the leaves of the commits.
    """
    known = set(root.leaves.files)
    of_commits = (ref for one in commits for ref in one.entry.brought)
    copies = readable_copies(state, root).items()
    of_copies = (
        ref for version, key in copies for ref in read_copy(store, state.name, version, key)[1].refs
    )
    for ref in chain(of_commits, of_copies):
        if ref.id not in known:
            known.add(ref.id)
            yield ref


def _leaves_of(commits: Iterable[Buffered], dataset: str) -> Iterable[str]:
    for one in commits:
        for ref in (*one.entry.brought, *one.entry.dropped):
            yield ref.key(dataset)
