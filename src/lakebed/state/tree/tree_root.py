"""The root of a tree: which leaves hold the files, which of them are gone, and the last commits.

The root alone states what is live. All that it names is immutable and was written before it. Its
totals are those of the leaves, without the files that are gone, and of the buffer: each change of
the root proves that (`check_balance`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np

from lakebed.common.decoding import from_msgpack
from lakebed.errors import CorruptMetadataError
from lakebed.model.layout import Folder, copy_key, segment_key
from lakebed.state.head import are_sound
from lakebed.state.history import Entry
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.inline import InlineFacts, facts_table
from lakebed.state.tree.leaf import MAX_FILES, Sections
from lakebed.state.tree.leaf_files import MOST, Files, files_of, totals_of
from lakebed.state.tree.leaf_refs import (
    ID_BYTES,
    Count,
    Id,
    Ref,
    Refs,
    RefStart,
    unreadable_root,
)
from lakebed.state.tree.sums import Totals

SEGMENT_SUFFIX = ".msgpack.zst"
# Of a root or of a segment of the history; a root of ten million files has a hundredth of that.
MOST_BYTES = 2**26


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The limits by which a tree grows. Readers do not depend on them.

    Attributes:
        leaf: Number of files in a leaf.
        buffer: Number of files, or of commits, in the root before they are folded.
        inline: Number of labels, or of partitions, that a commit may state in the root.
        fanout: Number of runs of a level that are merged into one of the next.
        merge: Number of files that a fold merges.
    """

    leaf: int = 16_384
    buffer: int = 512
    inline: int = 256
    fanout: int = 8
    merge: int = 32_000

    def level_of(self, files: int) -> int:
        """Return the level of a run of so many files.

        >>> Sizes().level_of(512), Sizes().level_of(513), Sizes().level_of(4097)
        (0, 1, 2)
        """
        level = 0
        while files > self.buffer:
            files = -(-files // self.fanout)
            level += 1
        return level


class Gone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The files of a leaf that are no longer live.

    Attributes:
        runs: Positions of the files: how many are skipped, and how many are gone, in turns.
        totals: Totals of these files.

    >>> gone = Gone.at([3, 4, 9], Totals(files=3))
    >>> gone.runs, gone.places.tolist()
    ((3, 2, 4, 1), [3, 4, 9])
    """

    runs: tuple[Count, ...]
    totals: Totals

    @classmethod
    def at(cls, places: Sequence[int] | np.ndarray, totals: Totals) -> Gone:
        """Return the files at some positions, which are distinct."""
        ordered = np.unique(np.asarray(places, np.int64))
        if not len(ordered):
            return cls((), totals)
        breaks = np.flatnonzero(np.diff(ordered) > 1) + 1
        starts = ordered[[0, *breaks.tolist()]]
        ends = ordered[[*(breaks - 1).tolist(), len(ordered) - 1]] + 1
        skipped = starts - np.concatenate([[0], ends[:-1]])
        runs = np.stack([skipped, ends - starts], axis=1).ravel()
        return cls(tuple(runs.tolist()), totals)

    @property
    def places(self) -> np.ndarray:
        """Positions of the files."""
        skipped, lengths = np.array(self.runs, np.int64).reshape(-1, 2).T
        starts = np.cumsum(skipped + lengths) - lengths
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places: np.ndarray = np.repeat(starts, lengths) + within
        return places

    def check(self, leaf: bytes, files: int) -> None:
        """Check that the positions are those of a leaf.

        Args:
            leaf: Id of the leaf.
            files: Number of its files.

        Raises:
            ValueError: A position is outside, or their number is wrong.
        """
        count = sum(self.runs[1::2])
        if len(self.runs) % 2 or count != self.totals.files or sum(self.runs) > files:
            message = f"the gone files of leaf {leaf.hex()} are {self.runs[:8]}"
            raise ValueError(message)


class RootEntry(Entry, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a commit on a tree.

    A commit of very many files names leaves instead of their labels: `added`, `removed` and
    `partitions` then lack these. Files of the buffer are always removed by label.

    Attributes:
        brought: Leaves of further files that it added.
        dropped: Objects of the form of leaves, with further files that it removed.
    """

    brought: tuple[Ref, ...] = ()
    dropped: tuple[Ref, ...] = ()


class Buffered(msgspec.Struct, frozen=True, array_like=True):
    """A commit in the buffer.

    Attributes:
        entry: Its record.
        facts: Facts of the files that it states as labels.
    """

    entry: RootEntry
    facts: InlineFacts


class HistoryRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A segment of the history that folds have written.

    Attributes:
        id: Its random id.
        weight: Number of its entries and of the labels in them; a part of its key.
        first: The first version in it.
        last: The last version in it, of which there is a copy of the root.
        has_leaves: True if one of its commits names leaves; None if that is unknown.
    """

    id: Id
    weight: Count
    first: Count
    last: Count
    has_leaves: bool | None = None

    def key(self, dataset: str) -> str:
        """Return the key of the segment."""
        name = f"{self.id.hex()}{SEGMENT_SUFFIX}"
        return segment_key(Folder.HISTORY.of(dataset), self.weight, name)


class _Starts(msgspec.Struct, array_like=True, gc=False):
    """The first fields of each reference of a root; what comes after them is skipped."""

    version: msgspec.Raw
    totals: msgspec.Raw
    folded_at: msgspec.Raw
    runs: msgspec.Raw
    refs: list[RefStart]


class _Stored(msgspec.Struct, array_like=True):
    """The root as it is encoded."""

    version: Count
    totals: Totals
    folded_at: Count
    runs: Count
    refs: list[msgspec.Raw]
    gone: dict[Id, Gone]
    buffer: list[Buffered]
    history: list[HistoryRef]
    origin: Id


@dataclass(frozen=True, kw_only=True)
class Root:
    """The files of a dataset at a version.

    Attributes:
        version: The version.
        totals: Totals of the live files.
        folded_at: The version up to which commits were folded into leaves.
        runs: Number of runs that were ever written; the next run gets the next number.
        refs: The leaves.
        gone: The files that are no longer live, by id of their leaf.
        buffer: The commits since, oldest first.
        history: Segments of the history before, oldest first.
        origin: Random id of the copy of the head at the version at which the dataset became a tree.
    """

    version: int = 0
    totals: Totals = field(default_factory=Totals)
    folded_at: int = 0
    runs: int = 0
    refs: Sequence[Ref] = ()
    gone: Mapping[bytes, Gone] = field(default_factory=dict)
    buffer: tuple[Buffered, ...] = ()
    history: tuple[HistoryRef, ...] = ()
    origin: bytes = bytes(ID_BYTES)

    @cached_property
    def leaves(self) -> Refs:
        """The leaves, most of which need not be decoded."""
        return Refs.of(self.refs)

    @property
    def born(self) -> int:
        """The version at which the dataset became a tree."""
        return self.history[0].first - 1 if self.history else self.folded_at

    @property
    def copies(self) -> tuple[int, ...]:
        """The versions of which there is a copy of the head, ascending."""
        return (self.born, *(segment.last for segment in self.history))

    def copy_key(self, dataset: str, version: int) -> str:
        """Return the key of the copy of the head at one of the versions that have one.

        Several writers may fold the same version. So the id of what a writer has written is a part
        of the key: a fold that lost the race does not replace the copy of the one that won.
        """
        ids = {self.born: self.origin} | {one.last: one.id for one in self.history}
        return copy_key(dataset, version, ids[version].hex())

    @property
    def memory_bytes(self) -> int:
        """Its approximate size in memory."""
        labels = sum(len(one.entry.added) + len(one.entry.removed) for one in self.buffer)
        runs = sum(len(gone.runs) for gone in self.gone.values())
        return 1500 * len(self.refs) + 600 * labels + 1000 * len(self.buffer) + 40 * runs

    @cached_property
    def held(self) -> Mapping[str, tuple[int, int]]:
        """The live files of the buffer: by label, the commit that states it and its position there."""
        held: dict[str, tuple[int, int]] = {}
        for number, one in enumerate(self.buffer):
            for label in one.entry.removed:
                held.pop(label, None)
            for position, label in enumerate(one.entry.added):
                held[label] = (number, position)
        return held

    def held_files(self, order: DirectoryOrder, key: str = "", *, with_facts: bool = True) -> Files:
        """Return the live files of the buffer, in the order of a leaf.

        Args:
            order: The order of the dataset.
            key: Key of the head, for errors.
            with_facts: Whether checksums and bounds are needed, too.

        Raises:
            CorruptMetadataError: The facts in the buffer are not valid.
        """
        held = self.held
        facts = None
        if with_facts and held:
            facts = _facts_of(self.buffer, list(held.values()), key)
        stated = [self.buffer[number].facts for number, _ in held.values()]
        places = [position for _, position in held.values()]
        return files_of(
            list(held),
            order,
            since=[self.buffer[number].entry.version for number, _ in held.values()],
            rows=[each.rows[place] for each, place in zip(stated, places, strict=True)],
            sizes=[each.sizes[place] for each, place in zip(stated, places, strict=True)],
            facts=facts,
        )

    def totals_of(self, labels: Sequence[str]) -> Totals:
        """Return the totals of some files of the buffer."""
        stated = [self.held[label] for label in labels]
        return totals_of(
            labels,
            [self.buffer[number].facts.rows[place] for number, place in stated],
            [self.buffer[number].facts.sizes[place] for number, place in stated],
        )

    def totals_of_parts(self) -> Totals:
        """Return the totals of the leaves, without the gone files, and of the buffer."""
        found = self.leaves.totals
        for gone in self.gone.values():
            found -= gone.totals
        return found + self.totals_of(tuple(self.held))

    def check_balance(self) -> None:
        """Check that the totals are those of the leaves, without the gone files, and of the buffer.

        Raises:
            CorruptMetadataError: They are not: a file would be lost or doubled.
        """
        found = self.totals_of_parts()
        if found != self.totals:
            raise CorruptMetadataError(
                f"The root of version {self.version} does not balance: it states {self.totals}, "
                f"and its parts have {found}.",
                hint="The head was damaged, or another program wrote it. Restore a copy of it: each "
                "fold leaves one in the folder roots.",
            )

    def after(
        self,
        entry: RootEntry,
        facts: InlineFacts,
        gone: Mapping[bytes, Gone],
    ) -> Root:
        """Return the root after a commit.

        Args:
            entry: The record of the commit.
            facts: Facts of the files that it states as labels.
            gone: Files of leaves that it removed, by id of the leaf; without those that were gone.

        Raises:
            CorruptMetadataError: The result does not balance: a removed file is not where it was
                looked for.
        """
        lost = [label for label in entry.removed if label in self.held]
        totals = self.totals - self.totals_of(lost)
        for one in gone.values():
            totals -= one.totals
        _check_removed(entry, len(lost), gone)
        all_gone = joined_gone(self.gone, gone)
        known = self.leaves.files
        empty = {leaf for leaf in gone if all_gone[leaf].totals == known.get(leaf)}
        # A fold may have used the number since that the run had when it was written.
        brought = (msgspec.structs.replace(ref, run=self.runs) for ref in entry.brought)
        for ref in entry.brought:
            totals += ref.totals
        totals += totals_of(entry.added, facts.rows, facts.sizes)
        new = replace(
            self,
            version=entry.version,
            totals=totals,
            runs=self.runs + bool(entry.brought),
            refs=self.leaves.changed(brought, without=empty),
            gone={leaf: one for leaf, one in all_gone.items() if leaf not in empty},
            buffer=(*self.buffer, Buffered(entry, facts)),
        )
        new.check_balance()
        return new


def _check_removed(entry: RootEntry, lost: int, gone: Mapping[bytes, Gone]) -> None:
    wanted = len(entry.removed) + sum(ref.files for ref in entry.dropped)
    found = lost + sum(one.totals.files for one in gone.values())
    if wanted != found:
        raise CorruptMetadataError(
            f"Version {entry.version} removes {wanted} files, of which {found} are live.",
            hint="The head was damaged, or another program wrote it. Nothing was written.",
        )


def _facts_of(buffer: Sequence[Buffered], stated: Sequence[tuple[int, int]], key: str) -> object:
    from lakebed.state import file_table

    used = sorted({number for number, _ in stated})
    starts, start = {}, 0
    for number in used:
        starts[number] = start
        start += buffer[number].facts.count
    table = file_table.joined(facts_table([buffer[number].facts for number in used], key))
    return table.take([starts[number] + place for number, place in stated])


def joined_gone(one: Mapping[bytes, Gone], other: Mapping[bytes, Gone]) -> dict[bytes, Gone]:
    """Return the gone files of both, which have none in common."""
    gone = dict(one)
    for leaf, more in other.items():
        before = gone.get(leaf)
        gone[leaf] = (
            more
            if before is None
            else Gone.at(np.concatenate([before.places, more.places]), before.totals + more.totals)
        )
    return gone


def ref_of(
    leaf_id: bytes, files: Files, sections: Sections, order: DirectoryOrder, *, level: int, run: int
) -> Ref:
    """Return the reference to a leaf that was encoded."""
    low, high, nulls = _range_of(files, order)
    return Ref(
        id=leaf_id,
        level=level,
        run=run,
        totals=files.totals(),
        first=files.directories[0],
        last=files.directories[-1],
        low=low,
        high=high,
        nulls=nulls,
        lengths=sections.lengths,
        hashes=sections.hashes,
        since=int(files.since.max()),
    )


def _range_of(
    files: Files, order: DirectoryOrder
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    """Return the lowest and the highest level of each field, and the number of nulls."""
    low, high, nulls = [], [], []
    rows = [order.levels(directory) for directory in files.directories]
    if not all(levels is not None for levels in rows):
        return (), (), ()
    counts = files.counts.tolist()
    for name, levels in zip(
        order.types, zip(*(row or () for row in rows), strict=True), strict=True
    ):
        bounds = order.range_of(name, levels)
        low.append(bounds[0])
        high.append(bounds[1])
        is_null = [order.is_null(name, level) for level in levels]
        nulls.append(sum(count for count, null in zip(counts, is_null, strict=True) if null))
    return tuple(low), tuple(high), tuple(nulls)


def encode(root: Root) -> bytes:
    """Return the bytes of a root, as an entry of the head."""
    return msgspec.msgpack.encode(
        (
            root.version,
            root.totals,
            root.folded_at,
            root.runs,
            root.leaves.stored,
            dict(root.gone),
            root.buffer,
            root.history,
            root.origin,
        )
    )


def decode(data: bytes, key: str) -> Root:
    """Read a root.

    Args:
        data: The entry of the head.
        key: Key of the head, for errors.

    Raises:
        CorruptMetadataError: It is malformed, or its parts contradict each other.
    """
    try:
        _require(len(data) <= MOST_BYTES, f"it has {len(data)} bytes")
        stored = from_msgpack(data, _Stored)
        starts = from_msgpack(data, _Starts).refs
        refs = Refs(starts, stored.refs, key)
        _check(stored, refs)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as exc:
        raise unreadable_root(key, exc) from exc
    return Root(
        version=stored.version,
        totals=stored.totals,
        folded_at=stored.folded_at,
        runs=stored.runs,
        refs=refs,
        gone=stored.gone,
        buffer=tuple(stored.buffer),
        history=tuple(stored.history),
        origin=stored.origin,
    )


def _check(stored: _Stored, refs: Refs) -> None:
    """Check the parts of a root against each other.

    Raises:
        ValueError: They contradict each other.
    """
    known = refs.files
    _require(len(known) == len(refs), "a leaf is repeated")
    wrong = [leaf for leaf, totals in known.items() if not 0 < totals.files <= MAX_FILES]
    _require(not wrong, f"leaf {wrong and wrong[0].hex()} has too many files, or none")
    for leaf, gone in stored.gone.items():
        _require(leaf in known, f"files of the unknown leaf {leaf.hex()} are gone")
        gone.check(leaf, known[leaf].files)
    check_buffered(stored.buffer, stored.folded_at + 1, stored.version)
    ends = [(segment.first, segment.last) for segment in stored.history]
    _require(
        all(first <= last for first, last in ends)
        and all(one[1] + 1 == other[0] for one, other in itertools.pairwise(ends))
        and (not ends or ends[-1][1] == stored.folded_at),
        f"the history has the versions {ends[:8]}",
    )


def check_buffered(buffer: Sequence[Buffered], first: int, last: int) -> None:
    """Check commits in a buffer or in a segment of the history.

    Raises:
        ValueError: They are not those of the versions, or their parts contradict each other.
    """
    versions = [one.entry.version for one in buffer]
    # A range of hostile numbers must not become a list.
    _require(
        len(versions) == last - first + 1
        and all(version == first + at for at, version in enumerate(versions)),
        f"it has the versions {versions[:8]}, and not {first} to {last}",
    )
    for one in buffer:
        facts, added = one.facts, one.entry.added
        lengths = {len(facts.rows), len(facts.sizes), len(facts.checksums), len(added)}
        for column in facts.columns.values():
            lengths |= {len(column.low), len(column.high), len(column.nulls)}
        _require(len(lengths) == 1, f"version {one.entry.version} has facts of other files")
        numbers = [value for value in (*facts.rows, *facts.sizes) if value is not None]
        _require(all(0 <= value <= MOST for value in numbers), "a number is out of range")
        _require(are_sound(added), f"version {one.entry.version} has an unsound path")


def _require(is_met: bool, problem: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not is_met:
        raise ValueError(problem)


def live_count(refs: Iterable[Ref], gone: Mapping[bytes, Gone]) -> int:
    """Return the number of live files in some leaves."""
    none = Gone((), Totals())
    return sum(ref.files - gone.get(ref.id, none).totals.files for ref in refs)
