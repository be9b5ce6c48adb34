"""Folding: the commits in the buffer of a root become a leaf, and a segment of the history.

A fold changes no answer. What it writes depends on the root alone, so it holds for every later root
of the same leaves: `land` puts it under one, with the commits made meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from lakebed.errors import CorruptMetadataError
from lakebed.state import history
from lakebed.state.erased_files import OPERATION as ERASURE
from lakebed.state.tree import folded_commits as segments
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_merge import LeafOfRun, Load, decoded, due_runs, leaves_of, merge
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.tree_files import Leaves, locate
from lakebed.state.tree.tree_root import (
    Buffered,
    HistoryRef,
    Root,
    RootEntry,
    Sizes,
    live_count,
)
from lakebed.store.segments import Segment, count_to_merge, end_within

CLEANUP, REPAIR = "cleanup", "repair"  # operations
# Labels, and bounds of columns, that the buffer may have for each of its files.
_LABELS, _BOUNDS = 2, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The result of a fold.

    Attributes:
        base: The root that was folded.
        root: The root of the same version, with an empty buffer.
        leaves: Leaves to write before it.
        segment: HistoryRef of the history to write before it.
        entries: The bytes of that segment.
    """

    base: Root
    root: Root
    leaves: tuple[LeafOfRun, ...]
    segment: HistoryRef
    entries: bytes

    def objects(self, dataset: str) -> dict[str, bytes]:
        """Return the objects to write, by key."""
        found = {leaf.ref.key(dataset): leaf.sections.data for leaf in self.leaves if leaf.sections}
        return {**found, self.segment.key(dataset): self.entries}


def is_due(root: Root, sizes: Sizes) -> bool:
    """Return whether the buffer is full: of commits, of live files, of labels, or of bounds."""
    labels = history.weight_of(one.entry for one in root.buffer) - len(root.buffer)
    marks = sum(len(one.entry.erased) for one in root.buffer)
    bounds = sum(one.facts.count * len(one.facts.columns) for one in root.buffer)
    return (
        max(len(root.buffer), len(root.held)) >= sizes.buffer
        or labels + marks >= _LABELS * sizes.buffer
        or bounds >= _BOUNDS * sizes.buffer
    )


def fold(
    root: Root,
    load: Load,
    order: DirectoryOrder,
    sizes: Sizes,
    *,
    load_segment: Callable[[HistoryRef], Sequence[Buffered]],
    horizon: int = 0,
) -> Folded | None:
    """Fold the buffer of a root, and merge the runs and the segments of the history that are due.

    Args:
        root: The root.
        load: Function that returns the files of a leaf, with their facts.
        order: The order of the dataset.
        sizes: The limits of the tree.
        load_segment: Function that returns the commits of a segment of the history.
        horizon: The oldest version that can be read.

    Returns:
        The result; None if the buffer is empty.

    Raises:
        CorruptMetadataError: A leaf or a segment cannot be read, or the result does not balance.
    """
    if not root.buffer:
        return None
    files = root.held_files(order)
    level = sizes.level_of(files.count)
    leaves = leaves_of(files, order, sizes, level=level, run=root.runs) if files.count else []
    segment, older, commits = _segment(root, load_segment, horizon)
    folded = replace(
        root,
        folded_at=root.version,
        runs=root.runs + 1,
        refs=(*root.refs, *(leaf.ref for leaf in leaves)),
        buffer=(),
        history=(*older, segment),
    )
    folded.check_balance()
    written = {leaf.ref.id: leaf for leaf in leaves}
    folded = _merged(folded, written, load, order, sizes)
    return Folded(
        root=folded,
        leaves=tuple(written[ref.id] for ref in folded.refs if ref.id in written),
        segment=segment,
        base=root,
        entries=segments.encode(commits),
    )


def _segment(
    root: Root, load_segment: Callable[[HistoryRef], Sequence[Buffered]], horizon: int
) -> tuple[HistoryRef, tuple[HistoryRef, ...], Sequence[Buffered]]:
    """Return the segment of a fold, the segments before it that stay, and the commits in it.

    It takes in the last segments if a level is full, as those of other datasets do. But it leaves
    those up to the horizon: with them the root would lose the copy of the head that later versions
    are read from, and a cleanup may have deleted the copies before that.
    """
    weight = history.weight_of(one.entry for one in root.buffer)
    weighed = [Segment("", one.weight) for one in root.history]
    lightest = end_within(
        [*weighed, Segment("", weight)], lambda one: one.weight, history.MOST_MERGED
    )
    readable = sum(one.last > horizon for one in root.history)
    count = min(max(count_to_merge(lightest) - 1, 0), readable)
    older, taken = root.history[: len(weighed) - count], root.history[len(weighed) - count :]
    commits = (*(commit for one in taken for commit in load_segment(one)), *root.buffer)
    return segments.new_segment(commits), older, commits


def _merged(
    root: Root, written: dict[bytes, LeafOfRun], load: Load, order: DirectoryOrder, sizes: Sizes
) -> Root:
    """Merge the runs that are due; the leaves of the result are added to those written."""

    def load_any(ref: Ref) -> Files:
        leaf = written.get(ref.id)
        return load(ref) if leaf is None else decoded(leaf)

    while runs := due_runs(root.refs, sizes):
        due = [ref for ref in root.refs if ref.run in runs]
        if live_count(due, root.gone) > sizes.merge:
            break
        for step in merge(root, runs, load_any, order, sizes):
            if isinstance(step, Root):
                root = step
            elif step.sections is not None:
                written[step.ref.id] = step
    return root


def land(folded: Folded, now: Root, leaves: Leaves, order: DirectoryOrder) -> Root | None:
    """Return a later root after a fold.

    Args:
        folded: The fold of an earlier root.
        now: The root by now.
        leaves: The leaves, with those that the fold has written.
        order: The order of the dataset.

    Returns:
        The root with the leaves of the fold, and with the later commits in its buffer; None if
        another fold was made meanwhile; or a cleanup, which may have deleted what the fold wrote; or
        an erasure or a repair, which has replaced leaves.

    Raises:
        CorruptMetadataError: A leaf cannot be read, or the result differs from the root by now.

    Cost:
        The leaves whose files were removed meanwhile.
    """
    base = folded.base
    if now.folded_at != base.folded_at or not _begins_with(now.buffer, base.buffer):
        return None
    root, since = folded.root, now.buffer[len(base.buffer) :]
    # Neither may the leaves that an erasure or a repair has replaced come back.
    if any(one.entry.operation in (CLEANUP, ERASURE, REPAIR) for one in since):
        return None
    for one in since:
        root = root.after(one.entry, one.facts, locate(root, one.entry, leaves, order))
    if root.totals != now.totals:
        raise CorruptMetadataError(
            f"A fold of version {folded.root.version} changes the files of version {now.version}: "
            f"{root.totals}, and not {now.totals}.",
            hint="Nothing was committed. Restore a copy of the head from the folder roots.",
        )
    return root


def _begins_with(buffer: Sequence[Buffered], commits: Sequence[Buffered]) -> bool:
    """Return whether a buffer begins with some commits, whose times of storage may be known since."""
    if len(buffer) < len(commits):
        return False
    return all(
        later is one or (later.facts == one.facts and _untimed(later) == _untimed(one))
        for later, one in zip(buffer, commits, strict=False)
    )


def _untimed(one: Buffered) -> RootEntry:
    return msgspec.structs.replace(one.entry, stored_at=None)
