"""The change of a head from a document to a tree, and back. The rows and the versions stay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from lakebed.state import file_table, history
from lakebed.state.codec import to_document
from lakebed.state.head import HeadFormat, encode_head
from lakebed.state.history import Entry
from lakebed.state.state import Listed, State
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import NoLeaves, StoredLeaves
from lakebed.state.tree.leaf_merge import leaves_of
from lakebed.state.tree.tree_commit import (
    FACTS_OF_A_FILE,
    SIZES,
    facts_in_order,
    leaf_files,
    put_leaves,
    with_root,
)
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Root
from lakebed.store.base import Store
from lakebed.store.segments import Segment


def to_tree(store: Store, state: State, written: list[str]) -> State:
    """Return a state whose head is a tree, with the same files as one whose head is a document.

    Args:
        store: The store that holds the dataset.
        state: The state, with the entry of this version in its history.
        written: Receives the key of each object before it is written.

    Raises:
        CorruptMetadataError: The history cannot be read, or a leaf differs from the files.

    Cost:
        The history and the file table; a PUT for each leaf, and one for a copy of the head. Memory
        for the facts of all files.
    """
    order = DirectoryOrder(state.layout.partition_types)
    labels = state.labels
    facts = facts_in_order(_tables(store, state.lists.files), labels)
    added_in: dict[str, int] = {}
    for entry in history.read(store, state.lists.history):
        added_in.update(dict.fromkeys(entry.added, entry.version))
    root = Root(version=state.version, folded_at=state.version, origin=uuid.uuid4().bytes)
    if labels:
        since = [added_in.get(label, state.version) for label in labels]
        files = leaf_files(labels, facts, order, since=since)
        leaves = leaves_of(files, order, SIZES, level=SIZES.level_of(files.count), run=0)
        put_leaves(store, state.name, leaves, written)
        refs = tuple(leaf.ref for leaf in leaves)
        root = replace(root, totals=files.totals(), runs=1, refs=refs)
        root.check_balance()
    live = TreeFiles(root, order, StoredLeaves(store, state.name))
    new = with_root(state, root, live)
    written.append(key_of_copy(new))
    put_copy(store, new)
    return new


def with_origin(first: State, sign: str) -> State:
    """Return the first state of a tree with a new key for the copy of its head.

    Args:
        first: The state.
        sign: 16 hexadecimal digits of the dataset, with which the id of the copy begins.
    """
    tree = first.live
    assert isinstance(tree, TreeFiles)
    root = replace(tree.root, origin=bytes.fromhex(sign) + uuid.uuid4().bytes[:8])
    return with_root(first, root, replace(tree, root=root))


def put_copy(store: Store, state: State) -> None:
    """Write the copy of the first head of a tree, from which later versions are read.

    Cost:
        One PUT.
    """
    store.put(key_of_copy(state), encode_head(to_document(state), HeadFormat.MSGPACK))


def key_of_copy(state: State) -> str:
    """Return the key of the copy of the first head of a tree."""
    assert isinstance(state.live, TreeFiles)
    return state.live.root.copy_key(state.name, state.version)


def first_root(state: State) -> State:
    """Return the first state of a dataset, without files, as a tree; see `with_origin` for its copy."""
    root = Root(version=state.version, folded_at=state.version)
    order = DirectoryOrder(state.layout.partition_types)
    return with_root(
        replace(state, head_format=HeadFormat.MSGPACK), root, TreeFiles(root, order, NoLeaves())
    )


def to_listing(store: Store, state: State, written: list[str]) -> State:
    """Return a state whose head is a document, with the same files as one whose head is a tree.

    The commits of the tree become segments of the history. The facts of its files become the file
    table; facts of files that were merged away are unknown from now on.

    Args:
        store: The store that holds the dataset.
        state: The state, without the entry of this version.
        written: Receives the key of each object before it is written.

    Raises:
        CorruptMetadataError: A leaf or a segment of the history cannot be read.

    Cost:
        The whole tree and its history; a PUT for each segment. Memory for the facts of all files.
    """
    segments: list[Segment] = []
    for segment in state.lists.history:
        if isinstance(segment, history.OtherEntries):
            segments += _history(store, state, segment.read(store), written)
        else:
            segments.append(segment)
    tables = [table for table in _tables(store, state.lists.files) if table.num_rows]
    files = []
    if tables:
        facts = _known(file_table.joined(tables))
        noted = file_table.new_segment(state.name, facts)
        if noted is not None:
            written.append(noted.key)
            store.put(noted.key, file_table.encode(facts))
            files = [noted]
    live = Listed(state.labels)
    lists = replace(state.lists, history=tuple(segments), files=tuple(files))
    return replace(state, live=live, digest=live.digest, lists=lists)


def _history(
    store: Store, state: State, entries: Sequence[Entry], written: list[str]
) -> Iterator[Segment]:
    if not entries:
        return
    # The new segment is stored long after its last entry was: that would pass for the time of it.
    last = msgspec.structs.replace(
        entries[-1], stored_at=entries[-1].stored_at or entries[-1].committed_at
    )
    entries = (*entries[:-1], last)
    segment = history.new_segment(state.name, entries)
    written.append(segment.key)
    store.put(segment.key, history.encode(entries))
    yield segment


def _tables(store: Store, segments: Sequence[Segment]) -> Iterator[pa.Table]:
    for segment in segments:
        if isinstance(segment, file_table.OtherFacts):
            yield segment.read(store, FACTS_OF_A_FILE)[0]
        else:
            yield file_table.decode(store.get(segment.key).data, segment.key)


def _known(facts: pa.Table) -> pa.Table:
    """Return the known facts, with one row for each file: one that came back is in two leaves."""
    for name in ("row_count", "size_bytes", "checksum"):
        facts = facts.filter(facts.column(name).is_valid())
    last = {label: at for at, label in enumerate(facts.column("label").to_pylist())}
    return facts if len(last) == facts.num_rows else facts.take(sorted(last.values()))
