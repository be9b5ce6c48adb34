"""Copies of datasets whose head is a tree, made from datasets with a document by the pure code.

A copy replays the history of a dataset commit by commit, with folds where the test wants them, and
writes what a commit and a fold would have written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from lakebed.state import file_table, history
from lakebed.state.codec import to_document
from lakebed.state.facts import facts_schema
from lakebed.state.head import HeadFormat, encode_head
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.state import State, descriptor_from
from lakebed.state.tree import planting, stored_folds, tree_commit
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import StoredLeaves, read_commits
from lakebed.state.tree.fold import fold, is_due
from lakebed.state.tree.inline import InlineFacts, facts_table, inline
from lakebed.state.tree.leaf_files import Files, files_of
from lakebed.state.tree.leaf_merge import leaves_of
from lakebed.state.tree.tree_files import TreeFiles, locate
from lakebed.state.tree.tree_root import Ref, Root, RootEntry, Sizes
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE

SMALL = Sizes(leaf=8, buffer=4, inline=6, fanout=2)


@dataclass
class Tree:
    """A tree that grows by commits.

    Attributes:
        store: Store that receives its objects.
        state: The state of the dataset, whose files are those of the tree.
        sizes: The limits of the tree.
    """

    store: Store
    state: State
    sizes: Sizes = SMALL
    root: Root = field(default_factory=Root)

    def __post_init__(self) -> None:
        self.order = DirectoryOrder(self.state.layout.partition_types)
        self.leaves = StoredLeaves(self.store, self.state.name)
        self._copy_head()

    def commit(self, entry: Entry, facts: pa.Table) -> None:
        """Make a commit; `facts` has the added files, in any order."""
        known = {name: getattr(entry, name) for name in Entry.__struct_fields__}
        facts = _rows_of(facts, entry.added)
        files = _files(entry, facts, self.order)
        brought: tuple[Ref, ...] = ()
        if len(entry.added) > self.sizes.inline:
            brought = self._put(files, level=self.sizes.level_of(files.count))
            known["added"], facts = (), facts.slice(0, 0)
        dropped: tuple[Ref, ...] = ()
        # Files in the buffer are always stated as labels.
        stored = [label for label in entry.removed if label not in self.root.held]
        if len(stored) > self.sizes.inline:
            dropped = self._put(files_of(stored, self.order), level=0)
            known["removed"] = tuple(label for label in entry.removed if label in self.root.held)
        if len(entry.partitions) > self.sizes.inline:
            known["partitions"] = ()
        tree_entry = RootEntry(**known, brought=brought, dropped=dropped)
        gone = locate(self.root, tree_entry, self.leaves, self.order)
        self.root = self.root.after(tree_entry, inline(facts), gone)
        self._follow(entry)

    def _put(self, files: Files, *, level: int) -> tuple[Ref, ...]:
        leaves = leaves_of(files, self.order, self.sizes, level=level, run=self.root.runs)
        for leaf in leaves:
            assert leaf.sections is not None
            self.store.put(leaf.ref.key(self.state.name), leaf.sections.data)
        return tuple(leaf.ref for leaf in leaves)

    def _follow(self, entry: Entry) -> None:
        state = self.state
        if entry.descriptor is not None:
            state = state.as_of(*descriptor_from(entry.descriptor, "history"))
        live = TreeFiles(self.root, self.order, self.leaves)
        self.state = replace(
            state,
            live=live,
            digest=live.digest,
            version=entry.version,
            commit_id=entry.commit_id,
            committed_at=entry.committed_at,
        )

    def fold(self) -> None:
        """Fold the buffer, and leave a copy of the head."""
        name = self.state.name
        folded = fold(
            self.root,
            self.leaves.with_facts,
            self.order,
            self.sizes,
            load_segment=lambda one: read_commits(self.store, name, one),
        )
        if folded is None:
            return
        for key, data in folded.objects(name).items():
            self.store.put(key, data)
        self.root = folded.root
        live = TreeFiles(self.root, self.order, self.leaves)
        self.state = replace(self.state, live=live, digest=live.digest)
        self._copy_head()

    def _copy_head(self) -> None:
        key = self.root.copy_key(self.state.name, self.root.version)
        self.store.put(key, self.encoded())

    def encoded(self) -> bytes:
        """Return the bytes of the head."""
        return encode_head(to_document(self.state), HeadFormat.MSGPACK)


def _rows_of(facts: pa.Table, labels: tuple[str, ...]) -> pa.Table:
    """Return the facts of some files, in their order."""
    import pyarrow.compute as pc

    positions = pc.index_in(
        pa.array(labels, pa.string()), value_set=facts.column("label").combine_chunks()
    )
    return facts.take(positions)


def _files(entry: Entry, facts: pa.Table, order: DirectoryOrder) -> Files:
    stated: InlineFacts = inline(facts)
    return files_of(
        entry.added,
        order,
        since=entry.version,
        rows=stated.rows,
        sizes=stated.sizes,
        facts=file_table.joined(facts_table([stated], "test")),
    )


def all_facts(store: Store, state: State) -> pa.Table:
    """Return the whole file table of a dataset."""
    parts = [facts_schema(state.layout.file_schema).empty_table()]
    parts += [
        file_table.decode(store.get(segment.key).data, segment.key) for segment in state.lists.files
    ]
    return file_table.joined(parts)


def to_tree(
    store: Store,
    name: str,
    *,
    sizes: Sizes = SMALL,
    folds: Callable[[int, Root], bool] | None = None,
) -> Tree:
    """Replace the document of a dataset by a tree of the same history.

    Args:
        store: The store that holds the dataset.
        name: Name of the dataset.
        sizes: The limits of the tree.
        folds: Function that returns whether to fold after a version; by default once it is due.
    """
    head = read_head(store, name)
    state = head.state
    facts = all_facts(store, state)
    first, *entries = history.read(store, state.lists.history)
    segment = history.new_segment(name, [first])
    store.put(segment.key, history.encode([first]))
    begun = replace(
        state.as_of(*descriptor_from(first.descriptor or {}, "history")),
        head_format=HeadFormat.MSGPACK,
        version=0,
        commit_id=first.commit_id,
        committed_at=first.committed_at,
        lists=replace(state.lists, files=(), history=(segment,)),
    )
    order = DirectoryOrder(begun.layout.partition_types)
    live = TreeFiles(Root(), order, StoredLeaves(store, name))
    tree = Tree(store, replace(begun, live=live, digest=live.digest), sizes)
    for entry in entries:
        tree.commit(entry, facts)
        if is_due(tree.root, sizes) if folds is None else folds(entry.version, tree.root):
            tree.fold()
    # The facts of the head are those of the dataset by now; a commit sets them one by one.
    tree.state = replace(
        tree.state,
        **{name: getattr(state, name) for name in ("horizon", "protections", "last_batch_id")},
    )
    store.delete([head.key])
    store.put(HeadFormat.MSGPACK.key(name), tree.encoded())
    PROCESS_CACHE.clear()
    return tree


def check_order(live: TreeFiles) -> int:
    """Check that the leaves of each run follow each other; return the number of leaves in the longest.

    A directory is found in a run by bisection.
    """
    runs = [list(refs) for _, refs in itertools.groupby(live.root.refs, lambda ref: ref.run)]
    for refs in runs:
        for one, other in itertools.pairwise(refs):
            assert live.order(one.first) <= live.order(one.last) <= live.order(other.first)
    return max(map(len, runs), default=0)


def shrink(monkeypatch: pytest.MonkeyPatch, sizes: Sizes = SMALL) -> None:
    """Let commits write trees of tiny leaves and buffers, so that few commits show everything."""
    for module in (planting, stored_folds, tree_commit):
        monkeypatch.setattr(module, "SIZES", sizes)
