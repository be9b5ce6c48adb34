"""Merging runs of leaves: one pass over ranges, with a leaf of each run in memory.

A run is a list of leaves whose ranges follow each other. Several runs become one, without the files
that are gone. A leaf that overlaps none of the others only changes its level: its object stays.
"""

from __future__ import annotations

import bisect
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np

from lakebed.errors import CorruptMetadataError
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.leaf import Sections, decode_facts, decode_files, encode
from lakebed.state.tree.leaf_files import Files, join
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.sums import Totals
from lakebed.state.tree.tree_root import Gone, Root, Sizes, ref_of

Load = Callable[[Ref], Files]
"""Function that returns all files of a leaf, with their facts."""
_NONE = Gone((), Totals())


@dataclass(frozen=True, slots=True)
class LeafOfRun:
    """A leaf of the result of a merge.

    Attributes:
        ref: The reference to it.
        sections: Its bytes; None if the object exists.
    """

    ref: Ref
    sections: Sections | None


def leaves_of(
    files: Files, order: DirectoryOrder, sizes: Sizes, *, level: int, run: int
) -> list[LeafOfRun]:
    """Return files as leaves of about the same size."""
    count = -(-files.count // sizes.leaf)
    edges = np.linspace(0, files.count, count + 1).astype(int).tolist()
    return [
        _leaf(files.slice(start, end), order, level=level, run=run)
        for start, end in itertools.pairwise(edges)
    ]


def proved(leaf: LeafOfRun) -> Sections:
    """Return the bytes of a new leaf, once they were decoded again and hold the files that it states.

    Raises:
        CorruptMetadataError: They do not: the root would balance, and the leaf would lack files.
    """
    sections = leaf.sections
    assert sections is not None
    check_totals(leaf.ref, decoded(leaf))
    return sections


def decoded(leaf: LeafOfRun) -> Files:
    """Return the files of a new leaf, from its bytes."""
    assert leaf.sections is not None
    data, (first, second, _) = leaf.sections.data, leaf.sections.lengths
    name = leaf.ref.id.hex()
    files = decode_files(data[first : first + second], name)
    return replace(files, facts=decode_facts(data[first + second :], files.count, name))


def check_totals(ref: Ref, files: Files) -> None:
    """Check that a leaf holds the files that its reference states.

    Raises:
        CorruptMetadataError: It does not.
    """
    if files.totals() != ref.totals:
        raise CorruptMetadataError(
            f"Leaf {ref.id.hex()} holds {files.totals()}, and the root states {ref.totals}.",
            hint="Restore the object from a copy. No data file was touched.",
        )


def _leaf(files: Files, order: DirectoryOrder, *, level: int, run: int) -> LeafOfRun:
    sections = encode(files, order)
    return LeafOfRun(
        ref_of(uuid.uuid4().bytes, files, sections, order, level=level, run=run), sections
    )


def due_runs(refs: Sequence[Ref], sizes: Sizes) -> frozenset[int]:
    """Return the numbers of the runs of the lowest level that is full; empty if none is."""
    levels: dict[int, set[int]] = {}
    for ref in refs:
        levels.setdefault(ref.level, set()).add(ref.run)
    full = [level for level, runs in levels.items() if len(runs) >= sizes.fanout]
    return frozenset(levels[min(full)]) if full else frozenset()


def merge(
    root: Root, runs: frozenset[int], load: Load, order: DirectoryOrder, sizes: Sizes
) -> Iterator[LeafOfRun | Root]:
    """Merge some runs into one of the next level.

    Args:
        root: The root that has the runs.
        runs: Numbers of the runs.
        load: Function that returns the files of a leaf.
        order: The order of the dataset.
        sizes: The limits of the tree.

    Yields:
        Each leaf of the result once it is known, then the root that refers to them.

    Raises:
        CorruptMetadataError: A leaf cannot be read, or its files are not those that the root states.

    Cost:
        Memory for a leaf of each run, and one of the result.
    """
    refs = [ref for ref in root.refs if ref.run in runs]
    level = max(ref.level for ref in refs) + 1
    merged = _Merge(root.gone, load, order, sizes, level=level, run=root.runs)
    leaves = []
    for leaf in merged.leaves(refs):
        leaves.append(leaf.ref)
        yield leaf
    refs_after = (*(ref for ref in root.refs if ref.run not in runs), *leaves)
    known = {ref.id for ref in refs_after}
    new = replace(
        root,
        runs=root.runs + 1,
        refs=refs_after,
        gone={leaf: gone for leaf, gone in root.gone.items() if leaf in known},
    )
    new.check_balance()
    yield new


class _Merge:
    def __init__(
        self,
        gone: Mapping[bytes, Gone],
        load: Load,
        order: DirectoryOrder,
        sizes: Sizes,
        *,
        level: int,
        run: int,
    ) -> None:
        self._gone = gone
        self._load = load
        self._order = order
        self._sizes = sizes
        self._level = level
        self._run = run
        self._pending: list[Files] = []
        self._remaining = 0  # files that are in no leaf of the result yet

    def leaves(self, refs: Sequence[Ref]) -> Iterator[LeafOfRun]:
        self._remaining = sum(ref.files - self.gone(ref).totals.files for ref in refs)
        by_run: dict[int, list[Ref]] = {}
        for ref in sorted(refs, key=lambda ref: self._order(ref.first)):
            by_run.setdefault(ref.run, []).append(ref)
        cursors = [_Cursor(own, self) for own in by_run.values()]
        while cursors := [cursor for cursor in cursors if cursor.refs]:
            cursors.sort(key=lambda cursor: self._order(cursor.first))
            whole = self._whole(cursors)
            if whole is not None:
                yield from self._flush(at_end=True)
                self._remaining -= whole.files
                yield LeafOfRun(
                    msgspec.structs.replace(whole, level=self._level, run=self._run), None
                )
                continue
            limit = self._order(min((cursor.last for cursor in cursors), key=self._order))
            parts = [part for cursor in cursors if (part := cursor.take(limit)) is not None]
            if parts:
                self._pending.append(join(parts, self._order))
            yield from self._flush(at_end=False)
        yield from self._flush(at_end=True)

    def gone(self, ref: Ref) -> Gone:
        return self._gone.get(ref.id, _NONE)

    def load(self, ref: Ref) -> Files:
        """Return the live files of a leaf."""
        files = self._load(ref)
        check_totals(ref, files)
        return files.without(self.gone(ref).places)

    def order(self, directory: str) -> tuple[Any, str]:
        return self._order(directory)

    def _whole(self, cursors: list[_Cursor]) -> Ref | None:
        """Return the next leaf if it can stay as it is, and take it from its run."""
        lowest, *others = cursors
        ref = lowest.refs[0]
        pending = sum(part.count for part in self._pending)
        if (
            lowest.files is not None
            or ref.id in self._gone
            or ref.files * 2 < self._sizes.leaf
            or 0 < pending * 2 < self._sizes.leaf
            or any(self._order(other.first) <= self._order(ref.last) for other in others)
        ):
            return None
        del lowest.refs[0]
        return ref

    def _flush(self, *, at_end: bool) -> Iterator[LeafOfRun]:
        """Yield leaves of what is pending; the remainder stays unless it is the end."""
        while pending := sum(part.count for part in self._pending):
            # All leaves to come get about the same size.
            size = -(-self._remaining // -(-self._remaining // self._sizes.leaf))
            if pending < size and not at_end:
                return
            files = join(self._pending, self._order)
            chosen = files if pending <= size else files.slice(0, size)
            self._pending = [] if pending <= size else [files.slice(size, files.count)]
            self._remaining -= chosen.count
            yield _leaf(chosen, self._order, level=self._level, run=self._run)


class _Cursor:
    """The remaining files of a run."""

    def __init__(self, refs: list[Ref], merge: _Merge) -> None:
        self.refs = refs
        self.files: Files | None = None
        self._merge = merge

    @property
    def first(self) -> str:
        return self.refs[0].first if self.files is None else self.files.directories[0]

    @property
    def last(self) -> str:
        return self.refs[0].last

    def take(self, limit: tuple[Any, str]) -> Files | None:
        """Return the files of the current leaf up to a directory; None if there are none."""
        order = self._merge.order
        if order(self.first) > limit:
            return None
        files = self._merge.load(self.refs[0]) if self.files is None else self.files
        end = bisect.bisect_right(files.directories, limit, key=order)
        taken, count = int(files.counts[:end].sum()), files.count
        self.files = files.slice(taken, count) if taken < count else None
        if self.files is None:
            del self.refs[0]
        return files.slice(0, taken) if taken else None
