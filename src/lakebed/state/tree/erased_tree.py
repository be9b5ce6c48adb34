"""Erasure on a tree: other files in the place of some, in the root, its copies and all commits.

Leaves and commits with a file that is taken out are written again, with the files that take its
place. So are those with facts of a file that no readable version has: its bounds may be values of
erased rows.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptMetadataError
from lakebed.state import file_table
from lakebed.state.erased_files import entry_without, replaced
from lakebed.state.erasing import history_without
from lakebed.state.history import Entry
from lakebed.state.lists import Segments
from lakebed.state.readable import kept_files
from lakebed.state.state import Change, State
from lakebed.state.tree.find import (
    StoredLeaves,
    expanded,
    facts_of_leaves,
    table_of,
    table_of_commit,
)
from lakebed.state.tree.inline import inline
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.renewal import Renewal
from lakebed.state.tree.tree_commit import (
    facts_in_order,
    leaf_files,
    new_facts,
    root_entry,
    with_root,
)
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_objects import older_leaves, read_all_commits
from lakebed.state.tree.tree_root import Buffered
from lakebed.store.base import Store


def erased(
    store: Store, before: State, after: State, change: Change, entry: Entry, written: list[str]
) -> tuple[State, Entry]:
    """Enter an erasure into the root of a tree, and write all that names files it takes out.

    Args:
        store: The store that holds the dataset.
        before: The state before the erasure.
        after: The state after it, with the files of the one before.
        change: The change, with the files that it takes out.
        entry: Its record.
        written: Receives the key of each object before it is written.

    Returns:
        The state after the erasure; and the record, with the time when the storage stored the last
        of these objects, before which nothing was written that depends on it.

    Raises:
        CorruptMetadataError: An object of the tree cannot be read, or the result has other files.

    Cost:
        The whole tree and its history, read once; a PUT for each object that changes. Memory for
        the labels of all files.
    """
    tree = before.live
    assert isinstance(tree, TreeFiles)
    erases = change.erases
    older, entries = history_without(store, before, change, written)
    after = replace(after, lists=replace(after.lists, history=older))
    labels = replaced(before.labels, erases)
    kept = kept_files(entries, replace(after.with_labels(labels), version=before.version)).labels
    changes = _Erased(
        erases=erases,
        kept=kept,
        facts=new_facts(store, change),
        leaves=StoredLeaves(store, before.name),
        tree=tree,
    )
    lists = replace(before.lists, history=older)
    root = Renewal(store, replace(before, lists=lists), changes, written).root()
    if set(replace(tree, root=root).labels) != set(labels):
        raise CorruptMetadataError(
            f"An erasure from {before.name!r} would change other files; nothing was committed.",
            hint="Run check: an object of the tree is damaged.",
        )
    entry = msgspec.structs.replace(entry, stored_at=_now(store, written))
    facts = inline(facts_in_order([], ()))
    root = root.after(root_entry(entry), facts, {})
    return with_root(after, root, TreeFiles(root, tree.order, tree.leaves)), entry


def _now(store: Store, written: Sequence[str]) -> dt.datetime | None:
    """Return the time of the storage when the last of these objects was written."""
    return store.get(written[-1]).modified_at


@dataclass(frozen=True, slots=True, kw_only=True)
class _Erased:
    """The files and commits after an erasure; see `lakebed.state.tree.renewal`."""

    erases: Mapping[str, tuple[str, ...]]
    kept: frozenset[str]
    facts: Sequence[pa.Table]
    leaves: StoredLeaves
    tree: TreeFiles

    def files(self, ref: Ref) -> Files | None:
        files = self.leaves.files(ref)
        labels = files.labels()
        is_held = not self.erases.keys().isdisjoint(labels)
        if not is_held and self.kept.issuperset(labels):
            return None
        files = self.leaves.with_facts(ref)
        table = self._known(table_of(files))
        if not is_held and table is None:
            return None
        known = table_of(files) if table is None else table
        new, since = [], []
        for label, version in zip(labels, files.since.tolist(), strict=True):
            for one in replaced((label,), self.erases):
                new.append(one)
                since.append(version)
        if not new:
            return files.take(np.array([], np.int64))
        return leaf_files(new, self._in_order(known, new), self.tree.order, since=since)

    def commit(self, one: Buffered) -> Buffered:
        entry = one.entry
        whole = expanded(entry, self.leaves)
        after = entry_without(whole, self.erases)
        added = replaced(entry.added, self.erases)
        if after is not whole:
            entry = msgspec.structs.replace(
                entry,
                added=added,
                removed=replaced(entry.removed, self.erases),
                partitions=after.partitions if entry.partitions else (),
                carried=after.carried,
                caught=after.caught,
                checks=after.checks,
            )
        is_held = not self.erases.keys().isdisjoint(one.entry.added)
        table = None
        if is_held or not self.kept.issuperset(one.entry.added):
            before = table_of_commit(one)
            table = self._known(before)
            table = before if is_held and table is None else table
        if table is None:
            return one if entry is one.entry else Buffered(entry, one.facts)
        return Buffered(entry, inline(self._in_order(table, added)))

    def places(self, ref: Ref, places: np.ndarray, files: Files) -> np.ndarray:
        labels = self.leaves.files(ref).labels()
        new = replaced((labels[place] for place in places.tolist()), self.erases)
        return np.array(sorted(files.find(new).values()), np.int64)

    def _known(self, table: pa.Table) -> pa.Table | None:
        """Return facts without checksums and bounds of files that no readable version has.

        None if there are no such facts.
        """
        labels = table.column("label").to_pylist()
        places = [place if label in self.kept else None for place, label in enumerate(labels)]
        lost = [place for place, known in enumerate(places) if known is None]
        names = [name for name in ("checksum", "stats") if name in table.column_names]
        if all(
            table.column(name).take(pa.array(lost, pa.int64())).null_count == len(lost)
            for name in names
        ):
            return None
        kept = pa.array(places, pa.int64())
        for name in names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(name).take(kept))
        return table

    def _in_order(self, table: pa.Table, labels: Sequence[str]) -> pa.Table:
        return facts_in_order([table, *self.facts], labels)


@dataclass(frozen=True, slots=True)
class _Facts(file_table.OtherFacts):
    """Facts of files, in place of a segment of the file table."""

    table: pa.Table = field(compare=False)

    def read(self, store: Store, names: Sequence[str]) -> tuple[pa.Table, int]:  # noqa: ARG002 - no I/O
        """Return the columns; it takes no request."""
        return self.table, 0


def facts_of_all_versions(store: Store, state: State) -> Segments:
    """Return the facts of the files of a tree in all readable versions, as a file table.

    Args:
        store: The store that holds the dataset.
        state: The current state of a tree.

    Raises:
        CorruptMetadataError: A copy of the head, or a segment of the history, is lost or damaged.

    Cost:
        One GET for each copy of the head, and for each segment of the history; what it returns reads
        the leaves. Memory for the facts of the files that commits state as labels.
    """
    tree = state.live
    assert isinstance(tree, TreeFiles)
    commits = read_all_commits(store, state.name, tree.root)
    older = older_leaves(store, state, tree.root, commits)
    leaves = facts_of_leaves(older, tree.order, state.name)
    tables = [table_of_commit(one) for one in commits if one.entry.added]
    stated = [_Facts("", 0, file_table.joined(tables))] if tables else []
    return (*state.lists.files, *stated, *leaves)
