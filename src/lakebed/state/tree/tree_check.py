"""The check of a tree: whether the objects that its root names hold what it states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptMetadataError
from lakebed.state.head import HeadFormat
from lakebed.state.state import State
from lakebed.state.tree.find import (
    AT_ONCE,
    StoredLeaves,
    read_commits,
    table_of,
    table_of_commit,
)
from lakebed.state.tree.leaf import partitions_of
from lakebed.state.tree.leaf_merge import check_totals
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.older_version import read_copy
from lakebed.state.tree.tree_files import TreeFiles, scrub
from lakebed.state.tree.tree_objects import older_leaves, read_all_commits, readable_copies
from lakebed.state.tree.tree_root import Root
from lakebed.store.at_once import at_once
from lakebed.store.base import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An object of a tree that is missing, or that does not hold what the root states.

    Attributes:
        key: Its key.
        what: A sentence on what is wrong.
        is_current: Whether the current version cannot be read completely.
    """

    key: str
    what: str
    is_current: bool


def troubles_of(store: Store, state: State) -> Iterator[Trouble]:
    """Yield what is wrong with a tree.

    Each leaf is read whole: its sections are compared with their hashes, and the totals of its
    bytes with those in the root. The totals of the live files are computed anew, and compared.

    Args:
        store: The store that holds the dataset.
        state: The current state of a tree.

    Cost:
        All leaves, also those of older versions, one GET of a range for each section; a GET for
        each segment of the history and for each copy of the head.
    """
    tree, name = state.live, state.name
    assert isinstance(tree, TreeFiles)
    root = tree.root
    leaves = StoredLeaves(store, name)

    found = at_once(partial(_trouble_of, leaves), root.refs, AT_ONCE)
    is_whole = True
    for ref, what in zip(root.refs, found, strict=True):
        if what:
            is_whole = False
            yield Trouble(key=ref.key(name), what=what, is_current=True)
    what = _error_of(lambda: _check_root(tree)) if is_whole else ""
    if what:
        yield Trouble(key=HeadFormat.MSGPACK.key(name), what=what, is_current=True)
    yield from _past(store, state, root, leaves)


def _past(store: Store, state: State, root: Root, leaves: StoredLeaves) -> Iterator[Trouble]:
    """Yield what is wrong with the history, and with the copies of the head."""
    name = state.name
    of_commits = [*root.buffer]
    for segment in root.history:
        try:
            of_commits += read_commits(store, name, segment)
        except CorruptMetadataError as exc:
            yield Trouble(key=segment.key(name), what=exc.message, is_current=False)
    older = {ref.id: ref for one in of_commits for ref in one.entry.brought}
    older |= {ref.id: ref for one in of_commits for ref in one.entry.dropped}
    for version, key in readable_copies(state, root).items():
        try:
            copy = read_copy(store, name, version, key)[1]
        except CorruptMetadataError as exc:
            yield Trouble(key=key, what=exc.message, is_current=False)
        else:
            older |= {ref.id: ref for ref in copy.refs}
    known = {ref.id for ref in root.refs}
    others = [ref for ref in older.values() if ref.id not in known]
    for ref, what in zip(
        others, at_once(partial(_trouble_of, leaves), others, AT_ONCE), strict=True
    ):
        if what:
            yield Trouble(key=ref.key(name), what=what, is_current=False)


def facts_of_older(store: Store, state: State, labels: Collection[str]) -> Iterator[pa.Table]:
    """Yield the facts of files of older versions, one leaf or one commit at a time.

    A commit has those of the files that it added, or names leaves that have them. Files from before
    the dataset became a tree are in the leaves of a copy of the head.

    Args:
        store: The store that holds the dataset.
        state: The current state of a tree.
        labels: The files.

    Cost:
        Nothing without files. Else a GET for each segment of the history and for each copy of the
        head; the leaves that they name, until all files were found.
    """
    tree, missing = state.live, set(labels)
    assert isinstance(tree, TreeFiles)
    if not missing:
        return
    commits = read_all_commits(store, state.name, tree.root)
    for one in commits:
        found = missing.intersection(one.entry.added)
        if found:
            missing -= found
            yield _rows_of(table_of_commit(one), found)
    leaves = StoredLeaves(store, state.name)
    for ref in older_leaves(store, state, tree.root, commits):
        if not missing:
            return
        found = missing.intersection(leaves.files(ref).find(missing))
        if found:
            missing -= found
            yield _rows_of(table_of(leaves.with_facts(ref)), found)


def _rows_of(facts: pa.Table, labels: Collection[str]) -> pa.Table:
    return facts.filter(
        pc.is_in(facts.column("label"), value_set=pa.array(list(labels), pa.string()))
    )


def _trouble_of(leaves: StoredLeaves, ref: Ref) -> str:
    return _error_of(lambda: _check_leaf(leaves, ref))


def _error_of(act: Callable[[], object]) -> str:
    try:
        act()
    except CorruptMetadataError as exc:
        return exc.message
    return ""


def _check_leaf(leaves: StoredLeaves, ref: Ref) -> None:
    files = leaves.with_facts(ref)
    check_totals(ref, files)
    if list(leaves.partitions(ref)) != partitions_of(files):
        raise CorruptMetadataError(
            f"Leaf {ref.key(leaves.dataset)!r} states other partitions than those of its files.",
            hint="Restore the object from a copy. No data file was touched.",
        )


def _check_root(tree: TreeFiles) -> None:
    """Check the totals of the live files against the bytes of the leaves.

    Raises:
        CorruptMetadataError: The root does not balance, or its leaves hold other files.
    """
    tree.root.check_balance()
    found = scrub(tree)
    if found != tree.root.totals:
        raise CorruptMetadataError(
            f"The root states {tree.root.totals}, and its leaves hold {found}.",
            hint="Restore a copy of the head from the folder roots.",
        )
