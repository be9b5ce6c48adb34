"""The live files of a tree, as callers ask for them: each answer reads the leaves that it needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import msgspec
import numpy as np

from lakebed.model.keys import BATCH_ID, batch_id_of, partition_of, split_label
from lakebed.model.predicate import TRUE, Membership, Predicate
from lakebed.state.scope import (
    Nothing,
    RewrittenFiles,
    RunFiles,
    Scope,
    Several,
    TheseFiles,
    ThesePartitions,
    Unchanged,
    WholeView,
)
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.leaf import PartitionFiles, partitions_of
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_ranges import Ranges
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.sums import Totals
from lakebed.state.tree.tree_root import Buffered, Gone, Root, RootEntry


class Leaves(Protocol):
    """The leaves of a tree. Reading one that is lost raises an error: it never lacks files."""

    def partitions(self, ref: Ref) -> Sequence[PartitionFiles]:
        """Return the totals of the partitions in a leaf."""

    def files(self, ref: Ref) -> Files:
        """Return the files of a leaf, without their facts."""

    def with_facts(self, ref: Ref) -> Files:
        """Return the files of a leaf."""


@dataclass(frozen=True)
class TreeFiles:
    """The live files of a tree at a version.

    Attributes:
        root: The root; for an older version the copy before it, with the commits up to it.
        order: The order of the dataset.
        leaves: The leaves.
        hidden: Files of the leaves that these commits removed: by label, the version that did.
        is_past: Whether it is an older version, of which the root only knows the number of files.
    """

    root: Root
    order: DirectoryOrder
    leaves: Leaves = field(compare=False, repr=False)
    hidden: Mapping[str, int] = field(default_factory=dict)
    is_past: bool = False

    @property
    def is_tree(self) -> bool:
        """True: leaves list them."""
        return True

    @property
    def count(self) -> int:
        """Number of the files."""
        return self.root.totals.files

    @property
    def row_count(self) -> int | None:
        """Number of entities in all files; None if the root does not have it."""
        return None if self.is_past or self.root.totals.unknown else self.root.totals.rows

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all files, in the order in which they were added.

        Cost:
            All leaves, one at a time; memory for the labels.
        """
        labels, since = list[str](), list[np.ndarray]()
        for files in self.parts(self.root.refs):
            labels += files.labels()
            since.append(files.since)
        if not labels:
            return ()
        order = np.argsort(np.concatenate(since), kind="stable")
        return tuple(labels[position] for position in order.tolist())

    @property
    def digest(self) -> str:
        """A digest of the files, in any order."""
        return self.root.totals.checksum

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory, without the leaves."""
        return self.root.memory_bytes

    def pieces(self) -> Iterator[Sequence[str]]:
        """Yield the labels of all files leaf by leaf, then those of the buffer."""
        for files in self.parts(self.root.refs):
            if files.count:
                yield files.labels()

    def of(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the labels of the files in some partitions."""
        wanted = frozenset(partitions)
        refs = self.ranges.of_partitions(wanted)
        return self.within(refs, lambda directory: partition_of(directory) in wanted)

    def of_batches(self, batches: Collection[int]) -> tuple[str, ...]:
        """Return the labels of the files in the directories of some batches.

        Cost:
            The leaves whose range holds one of the batches.
        """
        wanted = frozenset(batches)
        has_level = BATCH_ID in self.order.types
        question: Predicate = Membership(BATCH_ID, tuple(sorted(wanted))) if has_level else TRUE
        refs = self.ranges.may([question])
        return self.within(refs, lambda directory: batch_id_of(f"{directory}/x") in wanted)

    def holding(self, labels: Collection[str]) -> frozenset[str]:
        """Return those of some labels whose files are live."""
        held = {label for label in labels if label in self.root.held}
        rest = [label for label in labels if label not in held]
        found = set(held)
        for ref, wanted in by_leaf(self.ranges, rest):
            found.update(self.of_leaf(ref).find(wanted))
        return frozenset(found)

    def removed_by(self, scope: Scope) -> tuple[str, ...]:
        """Return the labels of the files that a commit of a scope removes."""
        match scope:
            case Nothing():
                return ()
            case ThesePartitions():
                return self.of(scope.partitions)
            case TheseFiles() | RewrittenFiles():
                return tuple(sorted(self.holding(scope.labels)))
            case RunFiles():
                of_run = sorted(self.holding(scope.labels))
                return tuple(dict.fromkeys((*of_run, *self.of(scope.partitions or ()))))
            case Several():
                parts = (self.removed_by(part) for part in scope.parts)
                return tuple(dict.fromkeys(label for part in parts for label in part))
            case Unchanged():
                return ()
            case WholeView():
                refs = self.ranges.may([scope.predicate])
                return self.within(refs, lambda directory: scope.holds(partition_of(directory)))
        return tuple(label for piece in self.pieces() for label in piece if scope.removes(label))

    def of_leaf(self, ref: Ref) -> Files:
        """Return the live files of a leaf, without their facts."""
        files = self.leaves.files(ref)
        gone = self.root.gone.get(ref.id)
        places = [] if gone is None else [gone.places]
        if self.hidden:
            # A file that was removed and brought back by a later leaf is live there.
            hidden = files.find(self.hidden)
            since = files.since
            late = [place for label, place in hidden.items() if since[place] < self.hidden[label]]
            places.append(np.array(late, np.int64))
        return files.without(np.concatenate(places)) if places else files

    def among(self, refs: Iterable[Ref]) -> tuple[str, ...]:
        """Return the labels of the live files in some leaves and in the buffer."""
        return tuple(label for files in self.parts(refs) for label in files.labels())

    def within(self, refs: Iterable[Ref], holds: Callable[[str], bool]) -> tuple[str, ...]:
        """Return the labels of the live files in some leaves and in the buffer, by directory.

        Args:
            refs: The leaves.
            holds: Function that returns whether the files of a directory are wanted.
        """
        return tuple(label for files in self.parts(refs) for label in files.within(holds).labels())

    @cached_property
    def ranges(self) -> Ranges:
        """The ranges of the leaves."""
        return Ranges(self.root.leaves, self.order)

    def partitions(self) -> list[PartitionFiles]:
        """Return the totals of each partition that holds a live file.

        Cost:
            The first section of each leaf; of a leaf with gone files also the second.
        """
        totals: dict[str, PartitionFiles] = {}
        for ref in self.root.refs:
            is_whole = ref.id not in self.root.gone and not self.hidden
            parts = self.leaves.partitions(ref) if is_whole else partitions_of(self.of_leaf(ref))
            _add(totals, parts)
        _add(totals, partitions_of(self.root.held_files(self.order, with_facts=False)))
        return list(totals.values())

    def parts(self, refs: Iterable[Ref]) -> Iterator[Files]:
        """Yield the live files of some leaves, one leaf at a time, then those of the buffer."""
        for ref in refs:
            yield self.of_leaf(ref)
        if self.root.held:
            yield self.root.held_files(self.order, with_facts=False)


def _add(totals: dict[str, PartitionFiles], parts: Iterable[PartitionFiles]) -> None:
    for one in parts:
        before = totals.get(one.path, PartitionFiles(one.path, 0, 0, 0))
        totals[one.path] = PartitionFiles(
            one.path,
            before.files + one.files,
            before.rows + one.rows,
            before.bytes + one.bytes,
            before.unknown + one.unknown,
        )


def by_leaf(ranges: Ranges, labels: Collection[str]) -> Iterator[tuple[Ref, list[str]]]:
    """Yield the leaves that may hold some labels, with those labels."""
    by_directory: dict[str, list[str]] = {}
    for label in labels:
        by_directory.setdefault(split_label(label)[0], []).append(label)
    for ref, directories in ranges.by_directory(by_directory):
        yield ref, [label for directory in directories for label in by_directory[directory]]


def locate(
    root: Root, entry: RootEntry, leaves: Leaves, order: DirectoryOrder
) -> dict[bytes, Gone]:
    """Return the files of leaves that a commit removes, by id of the leaf.

    Args:
        root: The root that the commit is made on.
        entry: The record of the commit.
        leaves: The leaves.
        order: The order of the dataset.

    Cost:
        The leaves whose range the files touch.
    """
    wanted = [label for label in entry.removed if label not in root.held]
    for ref in entry.dropped:
        wanted += leaves.files(ref).labels()
    found: dict[bytes, Gone] = {}
    for ref, some in by_leaf(Ranges(root.leaves, order), wanted):
        files = leaves.files(ref)
        places = set(files.find(some).values())
        if ref.id in root.gone:
            places.difference_update(root.gone[ref.id].places.tolist())
        if places:
            ordered = np.array(sorted(places), np.int64)
            found[ref.id] = Gone.at(ordered, files.take(ordered).totals())
    return found


def scrub(tree: TreeFiles) -> Totals:
    """Return the totals of all live files from the bytes of their leaves.

    They are those of the root, unless a leaf lacks a file, has one twice, or has another one.

    Cost:
        All leaves, one at a time.
    """
    found = Totals()
    for files in tree.parts(tree.root.refs):
        found += files.totals()
    return found


def replayed(
    copy: Root, commits: Sequence[Buffered], order: DirectoryOrder, leaves: Leaves
) -> TreeFiles:
    """Return the files of an older version.

    Args:
        copy: The root that a fold left of the newest version before it; empty if there is none.
        commits: The commits since, up to the version.
        order: The order of the dataset.
        leaves: The leaves.

    Cost:
        The labels of files that a commit removed by the thousand; nothing else.
    """
    held: set[str] = set()
    hidden: dict[str, int] = {}
    brought: list[Ref] = []
    files, buffer, runs = copy.totals.files, [], copy.runs
    for one in commits:
        entry = one.entry
        removed = list(entry.removed)
        for ref in entry.dropped:
            removed += leaves.files(ref).labels()
        # Files that were in leaves by then may be in the buffer of this root.
        whole = msgspec.structs.replace(entry, removed=tuple(removed), dropped=())
        buffer.append(Buffered(whole, one.facts))
        for label in removed:
            if label in held:
                held.discard(label)
            else:
                hidden[label] = entry.version
        held.update(entry.added)
        # As in `Root.after`: a leaf of the copy may have the number that the run was written with.
        brought += (msgspec.structs.replace(ref, run=runs) for ref in entry.brought)
        runs += bool(entry.brought)
        files += len(entry.added) + sum(ref.files for ref in entry.brought) - len(removed)
    root = replace(
        copy,
        version=commits[-1].entry.version if commits else copy.version,
        totals=Totals(files=files),
        runs=runs,
        refs=copy.leaves.changed(brought),
        buffer=tuple(buffer),
    )
    return TreeFiles(root, order, leaves, hidden, is_past=True)
