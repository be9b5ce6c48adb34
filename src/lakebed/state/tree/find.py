"""Reading of a tree from a store: leaves by section, the history, and older versions.

A section is read by one ranged request, checked by its hash, and held in the cache of the process:
leaves are immutable. The facts and the history of a tree take the place of the segments that other
datasets have, so readers of those need not know trees.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import numpy as np
import pyarrow as pa

from lakebed.errors import ObjectNotFoundError
from lakebed.model.keys import partition_of_label
from lakebed.model.layout import Folder
from lakebed.state import file_table, history
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry
from lakebed.state.lists import Segments
from lakebed.state.state import State
from lakebed.state.tree import folded_commits as segment
from lakebed.state.tree import leaf
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.inline import facts_table
from lakebed.state.tree.leaf import FACTS, FILES, PARTITIONS, PartitionFiles, section_hash
from lakebed.state.tree.leaf_files import UNKNOWN, Files
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.tree_files import Leaves, TreeFiles, by_leaf
from lakebed.state.tree.tree_root import Buffered, HistoryRef, Root, RootEntry
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import Segment, read_segment

AT_ONCE = 8
_A_FILE = 120  # approximate bytes of memory of a file of a leaf
_NEEDS_FACTS = ("checksum", "stats")


@dataclass(frozen=True, slots=True)
class StoredLeaves:
    """The leaves of a dataset in a store.

    Attributes:
        store: The store.
        dataset: Name of the dataset.
    """

    store: Store
    dataset: str

    def partitions(self, ref: Ref) -> Sequence[PartitionFiles]:
        """Return the totals of the partitions in a leaf.

        Cost:
            One GET of a range; nothing if the process has it.
        """
        known = PROCESS_CACHE.find(self._name(ref, PARTITIONS), tuple)
        if known is not None:
            return known
        key = ref.key(self.dataset)
        found = tuple(leaf.decode_partitions(self.section(ref, PARTITIONS), key))
        size = sum(len(one.path) + _A_FILE for one in found)
        PROCESS_CACHE.hold(self._name(ref, PARTITIONS), found, size_bytes=size)
        return found

    def files(self, ref: Ref) -> Files:
        """Return the files of a leaf, without their facts.

        Cost:
            One GET of a range; nothing if the process has it.
        """
        known = PROCESS_CACHE.find(self._name(ref, FILES), Files)
        if known is not None:
            return known
        key = ref.key(self.dataset)
        found = leaf.decode_files(self.section(ref, FILES), key)
        if found.count != ref.files:
            raise leaf.unreadable(key, f"it has {found.count} files, and not {ref.files}")
        size = _A_FILE * found.count + sum(map(len, found.directories))
        PROCESS_CACHE.hold(self._name(ref, FILES), found, size_bytes=size)
        return found

    def with_facts(self, ref: Ref) -> Files:
        """Return the files of a leaf.

        Cost:
            Two GETs of a range; nothing for what the process has.
        """
        files = self.files(ref)
        facts = PROCESS_CACHE.find(self._name(ref, FACTS), pa.Table)
        if facts is None:
            key = ref.key(self.dataset)
            facts = leaf.decode_facts(self.section(ref, FACTS), files.count, key)
            PROCESS_CACHE.hold(self._name(ref, FACTS), facts, size_bytes=facts.nbytes)
        return replace(files, facts=facts)

    def is_held(self, ref: Ref, section: int = FILES) -> bool:
        """Return whether the process has a section, so that no request is needed."""
        return PROCESS_CACHE.find(self._name(ref, section), object) is not None

    def fetch(self, refs: Iterable[Ref]) -> int:
        """Read the files of some leaves, several at a time; return the number of requests.

        Raises:
            CorruptMetadataError: A leaf is lost or damaged.
        """
        missing = [ref for ref in refs if not self.is_held(ref)]
        for _ in at_once(self.files, missing, AT_ONCE):
            pass
        return len(missing)

    def _name(self, ref: Ref, section: int) -> tuple[str, ...]:
        return ("leaf", self.store.cache_name, ref.key(self.dataset), str(section))

    def section(self, ref: Ref, section: int) -> bytes:
        """Return the bytes of a section.

        Raises:
            CorruptMetadataError: It is lost or damaged.

        Cost:
            One GET of a range.
        """
        key, start = ref.key(self.dataset), sum(ref.lengths[:section])
        try:
            data = self.store.get_range(key, start, ref.lengths[section])
        except ObjectNotFoundError as exc:
            cause = "it is missing; a cleanup or an erasure deletes leaves of older versions"
            raise leaf.unreadable(key, cause) from exc
        if section_hash(data) != ref.hashes[section]:
            raise leaf.unreadable(key, "it has changed since it was written, or is truncated")
        return data


def stored(store: Store, state: State) -> State:
    """Return the state of a tree with its leaves in a store."""
    assert isinstance(state.live, TreeFiles)
    return replace(state, live=replace(state.live, leaves=StoredLeaves(store, state.name)))


@dataclass(frozen=True, slots=True)
class LeafFacts(file_table.OtherFacts):
    """The facts of the files of a leaf, in place of a segment of the file table."""

    dataset: str
    ref: Ref
    order: DirectoryOrder = field(compare=False)

    def may_hold(self, directories: Collection[str]) -> bool:
        """Return whether its range holds one of some directories."""
        first, last = self.order(self.ref.first), self.order(self.ref.last)
        return any(first <= self.order(directory) <= last for directory in directories)

    def read(self, store: Store, names: Sequence[str]) -> tuple[pa.Table, int]:
        """Return some columns, and the number of requests that it took."""
        leaves = StoredLeaves(store, self.dataset)
        needs_facts = any(name.partition(".")[0] in _NEEDS_FACTS for name in names)
        sections = (FILES, FACTS) if needs_facts else (FILES,)
        requests = sum(not leaves.is_held(self.ref, section) for section in sections)
        files = leaves.with_facts(self.ref) if needs_facts else leaves.files(self.ref)
        return table_of(files), requests


@dataclass(frozen=True, slots=True)
class BufferFacts(file_table.OtherFacts):
    """The facts of the files in the buffer of a root, in place of a segment of the file table."""

    version: int
    root: Root = field(compare=False)
    order: DirectoryOrder = field(compare=False)
    head: str = ""

    def read(self, store: Store, names: Sequence[str]) -> tuple[pa.Table, int]:  # noqa: ARG002 - no I/O
        """Return the columns; it takes no request."""
        return table_of(self.root.held_files(self.order, self.head)), 0


def table_of(files: Files) -> pa.Table:
    """Return the facts of some files, in the form of `lakebed.state.facts`."""
    columns = {
        "label": pa.array(files.labels(), pa.string()),
        "row_count": _numbers(files.rows),
        "size_bytes": _numbers(files.sizes),
    }
    table = pa.table(columns)
    if files.facts is not None:
        for name in files.facts.column_names:
            table = table.append_column(name, files.facts.column(name))
    return table


def table_of_commit(one: Buffered) -> pa.Table:
    """Return the facts of the files that a commit states as labels."""
    counts = {
        "label": pa.array(one.entry.added, pa.string()),
        "row_count": pa.array(one.facts.rows, pa.int64()),
        "size_bytes": pa.array(one.facts.sizes, pa.int64()),
    }
    (table,) = facts_table([one.facts], "history")
    for name in table.column_names:
        counts[name] = table.column(name)
    return pa.table(counts)


def _numbers(values: np.ndarray) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == UNKNOWN)


def facts_of_leaves(
    refs: Iterable[Ref], order: DirectoryOrder, dataset: str
) -> tuple[LeafFacts, ...]:
    """Return the facts of the files of some leaves, gone ones included, as a file table."""
    folder = Folder.LEAVES.of(dataset)
    return tuple(LeafFacts(ref.key_in(folder), ref.files, dataset, ref, order) for ref in refs)


def facts_of(
    root: Root, refs: Iterable[Ref], order: DirectoryOrder, dataset: str
) -> tuple[file_table.OtherFacts, ...]:
    """Return the facts of the files of some leaves and of the buffer, as a file table."""
    return (*facts_of_leaves(refs, order, dataset), *_facts_of_buffer(root, order, dataset))


def _facts_of_buffer(root: Root, order: DirectoryOrder, dataset: str) -> Sequence[BufferFacts]:
    head = HeadFormat.MSGPACK.key(dataset)
    return [BufferFacts("", len(root.held), root.version, root, order, head)] if root.held else []


class TreeFacts(Sequence[Segment]):
    """The facts of all files of a tree, as a file table. A segment is made when it is asked for.

    Most calls ask for none: those that read facts choose the leaves first.
    """

    def __init__(self, root: Root, order: DirectoryOrder, dataset: str) -> None:
        """Take a tree.

        Args:
            root: Its root.
            order: The order of the dataset.
            dataset: Name of the dataset.
        """
        self._root = root
        self._order = order
        self._dataset = dataset

    @cached_property
    def _segments(self) -> tuple[file_table.OtherFacts, ...]:
        return facts_of(self._root, self._root.refs, self._order, self._dataset)

    def __len__(self) -> int:
        return len(self._root.refs) + bool(self._root.held)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> Segments: ...

    def __getitem__(self, place: int | slice) -> Segment | Segments:
        return self._segments[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeFacts | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(self._segments)

    def __reduce__(self) -> tuple[type[tuple[Segment, ...]], tuple[Segments]]:
        return tuple, (self._segments,)


@dataclass(frozen=True, slots=True)
class FoldedHistory(history.OtherEntries):
    """A segment of the history that a fold has written."""

    dataset: str
    segment: HistoryRef

    def read(self, store: Store, *, labels_after: int = -1) -> tuple[Entry, ...]:
        """Return the entries, oldest first."""
        leaves = StoredLeaves(store, self.dataset)
        return _entries(read_commits(store, self.dataset, self.segment), leaves, labels_after)


@dataclass(frozen=True, slots=True)
class BufferedHistory(history.OtherEntries):
    """The commits in the buffer of a root."""

    dataset: str
    version: int
    root: Root = field(compare=False)

    def read(self, store: Store, *, labels_after: int = -1) -> tuple[Entry, ...]:
        """Return the entries, oldest first."""
        return _entries(self.root.buffer, StoredLeaves(store, self.dataset), labels_after)


def facts_holding(state: State, labels: Collection[str]) -> tuple[file_table.OtherFacts, ...]:
    """Return the facts of the leaves that hold some files, and of the buffer if it holds any.

    Cost:
        The labels of the leaves whose range the files touch, from the newest back, until all are
        found; nothing for files of the buffer.
    """
    tree = state.live
    assert isinstance(tree, TreeFiles)
    root, missing = tree.root, {label for label in labels if label not in tree.root.held}
    is_in_buffer = len(missing) < len(labels)
    chosen = []
    touched = sorted(by_leaf(tree.ranges, missing), key=lambda one: one[0].run, reverse=True)
    for ref, some in touched:
        wanted = missing.intersection(some)
        found = tree.leaves.files(ref).find(wanted) if wanted else {}
        missing.difference_update(found)
        chosen += [ref] if found else []
    known = root if is_in_buffer else replace(root, buffer=())
    return facts_of(known, chosen, tree.order, state.name)


def history_of(root: Root, dataset: str) -> tuple[history.OtherEntries, ...]:
    """Return the history of a tree, oldest first."""
    segments: list[history.OtherEntries] = [
        FoldedHistory(one.key(dataset), one.weight, dataset, one) for one in root.history
    ]
    if root.buffer:
        segments.append(BufferedHistory("", len(root.buffer), dataset, root.version, root))
    return tuple(segments)


def read_commits(store: Store, dataset: str, one: HistoryRef) -> tuple[Buffered, ...]:
    """Return the commits of a segment of the history.

    Raises:
        CorruptMetadataError: It is missing or damaged.

    Cost:
        One GET.
    """
    key = one.key(dataset)
    stored = read_segment(store, Segment(key, one.weight), "History", history.LOSS)
    # A fold comes after the commits: so the time of the last one is no later.
    return segment.stamped(segment.decode(stored.data, one, key), stored.modified_at)


def _entries(commits: Iterable[Buffered], leaves: Leaves, labels_after: int) -> tuple[Entry, ...]:
    return tuple(
        expanded(one.entry, leaves, with_leaves=one.entry.version > labels_after) for one in commits
    )


def expanded(entry: RootEntry, leaves: Leaves, *, with_leaves: bool = True) -> Entry:
    """Return an entry, with the labels that it names by leaves if they are wanted."""
    facts = {name: getattr(entry, name) for name in Entry.__struct_fields__}
    if with_leaves and (entry.brought or entry.dropped):
        added = [label for ref in entry.brought for label in leaves.files(ref).labels()]
        removed = [label for ref in entry.dropped for label in leaves.files(ref).labels()]
        facts["added"] = (*entry.added, *added)
        facts["removed"] = (*entry.removed, *removed)
    if not entry.partitions:
        touched = map(partition_of_label, (*facts["removed"], *facts["added"]))
        facts["partitions"] = tuple(dict.fromkeys(touched))
    return Entry(**facts)


class NoLeaves:
    """The leaves of a root that was decoded, before a store is known to read them from."""

    def partitions(self, ref: Ref) -> Sequence[PartitionFiles]:
        """Raise an error: a state gets its store when it is read."""
        raise AssertionError(ref.id.hex())

    def files(self, ref: Ref) -> Files:
        """Raise an error."""
        raise AssertionError(ref.id.hex())

    def with_facts(self, ref: Ref) -> Files:
        """Raise an error."""
        raise AssertionError(ref.id.hex())
