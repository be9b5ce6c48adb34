"""Renewal: other leaves in the place of some, wherever a tree names them, and other commits.

The root, the copies of the head, and the commits name leaves by their id, and each of these objects
is immutable. So a changed leaf is written under a new id, and so is each copy of the head and each
segment of the history that names it. All that is new is written before the root that names it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec
import numpy as np

from lakebed.state.codec import to_document
from lakebed.state.head import encode_head
from lakebed.state.state import State
from lakebed.state.tree import folded_commits
from lakebed.state.tree.find import read_commits
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_merge import leaves_of
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.older_version import read_copy
from lakebed.state.tree.tree_commit import SIZES, put_leaves, with_root
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_objects import readable_copies
from lakebed.state.tree.tree_root import Buffered, Gone, HistoryRef, Root
from lakebed.store.base import Store


class NewFiles(Protocol):
    """The files and commits that a renewal puts in the place of others."""

    def files(self, ref: Ref) -> Files | None:
        """Return the files of a leaf, with their facts, by now; None if it stays as it is."""

    def commit(self, one: Buffered) -> Buffered:
        """Return a commit with other labels and facts; the same object if it stays as it is."""

    def places(self, ref: Ref, places: np.ndarray, files: Files) -> np.ndarray:
        """Return the positions, among the new files of a leaf, of files at some old positions."""


@dataclass(frozen=True, slots=True)
class _NewLeaf:
    """A leaf in the place of another one; `ref` is None if no file is left."""

    ref: Ref | None
    files: Files

    def at(self, old: Ref) -> Ref | None:
        """Return the reference in the place of an old one, in the same run."""
        if self.ref is None:
            return None
        return msgspec.structs.replace(self.ref, level=old.level, run=old.run)


class Renewal:
    """Writes the changed objects of a tree, each once.

    Attributes:
        state: The state before.
    """

    def __init__(self, store: Store, state: State, changes: NewFiles, written: list[str]) -> None:
        """Take a tree and its changes.

        Args:
            store: The store that holds the dataset.
            state: The state of a tree, with the segments of the history from before it was one that
                its copies shall name.
            changes: The files and commits in the place of others.
            written: Receives the key of each object before it is written.
        """
        assert isinstance(state.live, TreeFiles)
        self.state = state
        self._store = store
        self._tree = state.live
        self._changes = changes
        self._written = written
        self._leaves: dict[bytes, _NewLeaf | None] = {}

    def root(self) -> Root:
        """Return the root of the same version; all that it names is written.

        The newest copy of the head is written last, and in any case: its time is that of the storage.

        Raises:
            CorruptMetadataError: A leaf, a copy of the head or a segment of the history cannot be
                read.

        Cost:
            The whole history and each copy of the head that a readable version needs; the leaves
            that `changes` asks for. A PUT for each object that changes.
        """
        root = self._tree.root
        copies = readable_copies(self.state, root)
        newest = root.copies[-1]
        segments, stale = [], []
        for one in root.history:
            commits = read_commits(self._store, self.state.name, one)
            after = [self._commit(each) for each in commits]
            has_new_copy = self._has_new_copy(one.last, copies)
            is_same = all(new is old for new, old in zip(after, commits, strict=True))
            if not has_new_copy and is_same and one.last != newest:
                segments.append(one)
                continue
            segments.append(self._put_commits(after))
            stale.append(one.last)
        has_first = self._has_new_copy(root.born, copies) or root.born == newest
        origin = uuid.uuid4().bytes if has_first else root.origin
        new = _balanced(
            replace(
                self._root(root),
                buffer=tuple(self._commit(one) for one in root.buffer),
                history=tuple(segments),
                origin=origin,
            )
        )
        for version in (*([root.born] if has_first else []), *stale):
            if version in copies:
                self._put_copy(new, version, copies[version])
        return new

    def _has_new_copy(self, version: int, copies: Mapping[int, str]) -> bool:
        """Return whether a copy of the head is read, and names a leaf that changes."""
        if version not in copies:
            return False
        root = read_copy(self._store, self.state.name, version, copies[version])[1]
        return self._root(root) is not root

    def _put_copy(self, new: Root, version: int, key: str) -> None:
        copied, root = read_copy(self._store, self.state.name, version, key)
        after = _balanced(
            replace(
                self._root(root),
                history=tuple(one for one in new.history if one.last <= version),
                origin=new.origin,
            )
        )
        copied = replace(copied, lists=replace(copied.lists, history=self.state.lists.history))
        live = TreeFiles(after, self._tree.order, self._tree.leaves)
        data = encode_head(to_document(with_root(copied, after, live)), copied.head_format)
        self._put(new.copy_key(self.state.name, version), data)

    def _put_commits(self, commits: Sequence[Buffered]) -> HistoryRef:
        segment = folded_commits.new_segment(commits)
        self._put(segment.key(self.state.name), folded_commits.encode(commits))
        return segment

    def _put(self, key: str, data: bytes) -> None:
        self._written.append(key)
        self._store.put(key, data)

    def _commit(self, one: Buffered) -> Buffered:
        new = self._changes.commit(one)
        brought, dropped = (
            tuple(ref for old in refs if (ref := self._ref(old)) is not None)
            for refs in (one.entry.brought, one.entry.dropped)
        )
        if (brought, dropped) == (one.entry.brought, one.entry.dropped):
            return new
        entry = msgspec.structs.replace(new.entry, brought=brought, dropped=dropped)
        return Buffered(entry, new.facts)

    def _ref(self, ref: Ref) -> Ref | None:
        leaf = self._leaf(ref)
        return ref if leaf is None else leaf.at(ref)

    def _leaf(self, ref: Ref) -> _NewLeaf | None:
        if ref.id not in self._leaves:
            self._leaves[ref.id] = self._new_leaf(ref)
        return self._leaves[ref.id]

    def _new_leaf(self, ref: Ref) -> _NewLeaf | None:
        files = self._changes.files(ref)
        if files is None:
            return None
        bare = replace(files, facts=None)
        if not files.count:
            return _NewLeaf(None, bare)
        sizes = replace(SIZES, leaf=files.count)
        leaves = leaves_of(files, self._tree.order, sizes, level=ref.level, run=ref.run)
        put_leaves(self._store, self.state.name, leaves, self._written)
        return _NewLeaf(leaves[0].ref, bare)

    def _root(self, root: Root) -> Root:
        """Return a root with the new leaves; the same object if none of its leaves changes."""
        if all(self._leaf(ref) is None for ref in root.refs):
            return root
        refs: list[Ref] = []
        gone: dict[bytes, Gone] = {}
        for old in root.refs:
            leaf, lost = self._leaf(old), root.gone.get(old.id)
            ref = old if leaf is None else leaf.at(old)
            if ref is None:
                continue
            if leaf is not None and lost is not None:
                lost = _gone(leaf.files, self._changes.places(old, lost.places, leaf.files))
            if lost is not None and lost.totals.files == ref.files:
                continue  # no file of it is live
            refs.append(ref)
            if lost is not None and lost.totals.files:
                gone[ref.id] = lost
        return replace(root, refs=tuple(refs), gone=gone)


def _gone(files: Files, places: np.ndarray) -> Gone:
    ordered = np.unique(np.asarray(places, np.int64))
    return Gone.at(ordered, files.take(ordered).totals())


def _balanced(root: Root) -> Root:
    """Return a root with the totals of its parts."""
    return replace(root, totals=root.totals_of_parts())
