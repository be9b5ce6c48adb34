"""Rows that really differ between the data files that a commit removed and those that it added.

A rewritten file holds mostly rows that it held before, in their order. Those are found first, by
their places. The others of both sides are hashed, and equal rows cancel each other out, one for
one. What is left was inserted, deleted or updated.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.aligned_rows import Remaining, unlike_rows
from lakebed.arrow.conform import with_one_zero_and_nan
from lakebed.arrow.digest import row_hashes
from lakebed.model.keys import partition_of_label
from lakebed.model.layout import Layout
from lakebed.plan.plan import DataFile, Scan
from lakebed.store.at_once import at_once
from lakebed.store.base import Store

CHANGE, VERSION, COMMITTED_AT = "_change", "_version", "_committed_at"
INSERT, DELETE = "insert", "delete"
UPDATE_BEFORE, UPDATE_AFTER = "update_before", "update_after"
CHANGE_FIELDS = (
    pa.field(CHANGE, pa.string(), nullable=False),
    pa.field(VERSION, pa.int64(), nullable=False),
    pa.field(COMMITTED_AT, pa.timestamp("us", "UTC"), nullable=False),
)

HELD_ROWS = 2**24  # whose hashes are in memory at a time; with more, files are read several times
HELD_BYTES = 2**28  # of rows that stay in memory, so that they are read once
_THREADS = 4
_LEAST_REMAINING = 1_024  # rows of each partition whose positions are held in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStep:
    """The files that one commit exchanged. Travels to Spark tasks.

    Attributes:
        version: Version that the commit made.
        committed_at: Time of the commit.
        removed: Files that it removed.
        added: Files that it added.
    """

    version: int
    committed_at: dt.datetime
    removed: tuple[DataFile, ...]
    added: tuple[DataFile, ...]

    def parts(self) -> Iterator[ChangeStep]:
        """Yield steps that can be read apart: without files to compare, one for each file."""
        if self.removed and self.added:
            yield self
            return
        for file in self.removed:
            yield replace(self, removed=(file,))
        for file in self.added:
            yield replace(self, added=(file,))


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """Reads the changes of steps. Travels to Spark tasks.

    Attributes:
        store: Store that holds the files.
        layout: Layout of the newest version; older files are read with its schema.
        columns: Columns to return, by which rows are compared.
        on: Key columns that match the two images of an update; empty for none.
    """

    store: Store
    layout: Layout
    columns: tuple[str, ...]
    on: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """Schema of the changes."""
        fields = list(scan.output_schema(self.layout, self.columns))
        return pa.schema([*fields, *CHANGE_FIELDS])

    def batches(self, steps: Sequence[ChangeStep]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of steps, in their order; of each first the removed rows.

        Cost:
            The files; where rows are compared by hashes, 16 bytes for each of up to 16 million
            rows at a time, and a second read of what exceeds 256 MiB.
        """
        for step in steps:
            if step.removed and step.added:
                yield from self._compared(step)
                continue
            yield from self._whole(step, step.removed, DELETE)
            yield from self._whole(step, step.added, INSERT)

    def _read(self, files: Sequence[DataFile], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        whole = tuple(replace(file, is_filtered=False) for file in files)
        with scan.scan(self.store, Scan(layout=self.layout, files=whole), columns) as batches:
            yield from batches

    def _whole(
        self, step: ChangeStep, files: Sequence[DataFile], word: str
    ) -> Iterator[pa.RecordBatch]:
        for batch in self._read(files, self.columns):
            yield self._marked(batch, step, pa.repeat(word, batch.num_rows))

    def _marked(self, batch: pa.RecordBatch, step: ChangeStep, words: pa.Array) -> pa.RecordBatch:
        version = pa.repeat(pa.scalar(step.version, pa.int64()), batch.num_rows)
        moment = pa.repeat(pa.scalar(step.committed_at, CHANGE_FIELDS[2].type), batch.num_rows)
        return pa.RecordBatch.from_arrays(
            [*batch.columns, words, version, moment], schema=self.schema
        )

    def _compared(self, step: ChangeStep) -> Iterator[pa.RecordBatch]:
        held = _Held(self)
        self._leave_out_equal(held, step)
        bucket_count = max(1, -(-held.row_count // HELD_ROWS))
        for bucket in range(bucket_count):
            hashed = [
                self._hashed_side(held, side, bucket, bucket_count)
                for side in (step.removed, step.added)
            ]
            chosen = _differing(*hashed)
            del hashed
            updates = self._updates(held, step, chosen) if self.on else ((), ())
            sides = (
                (step.removed, chosen[0], updates[0], DELETE, UPDATE_BEFORE),
                (step.added, chosen[1], updates[1], INSERT, UPDATE_AFTER),
            )
            for own, positions, of_updates, plain, updated in sides:
                for number, file in enumerate(own):
                    if len(positions[number]):
                        is_update = of_updates[number] if of_updates else None
                        words = _words(len(positions[number]), is_update, plain, updated)
                        for rows, some in held.taken(file, positions[number], self.columns):
                            yield self._marked(rows, step, words.take(pa.array(some)))

    def _leave_out_equal(self, held: _Held, step: ChangeStep) -> None:
        """Leave out rows that are at corresponding places of the files of a partition."""
        partitions: dict[str, tuple[list[DataFile], list[DataFile]]] = {}
        for number, files in enumerate((step.removed, step.added)):
            for file in files:
                pair = partitions.setdefault(partition_of_label(file.label), ([], []))
                pair[number].append(file)

        most = max(_LEAST_REMAINING, HELD_ROWS // max(1, len(partitions)))

        def compare(sides: tuple[list[DataFile], list[DataFile]]) -> None:
            with ExitStack() as stack:
                streams = [
                    stack.enter_context(closing(held.selected(files, self.columns)))
                    for files in sides
                ]
                remaining = unlike_rows(streams[0], streams[1], most)
            for files, of_side in zip(sides, remaining, strict=True):
                held.narrow(files, of_side)

        for _ in at_once(compare, list(partitions.values()), min(_THREADS, os.cpu_count() or 1)):
            pass

    def _hashed_side(
        self, held: _Held, files: Sequence[DataFile], bucket: int, count: int
    ) -> list[_Hashed]:
        def of_file(file: DataFile) -> _Hashed:
            return self._hashed(held, file, bucket, count)

        return list(at_once(of_file, files, min(_THREADS, os.cpu_count() or 1)))

    def _hashed(self, held: _Held, file: DataFile, bucket: int, count: int) -> _Hashed:
        """Return the hashes of the rows of a bucket: equal rows, and equal keys, are in one."""
        hashes, positions = [_NO_HASHES], [_NO_POSITIONS]
        for batch, rows in held.batches(file):
            own = row_hashes(batch.select(self.columns))
            if count > 1:
                by = self._keys(batch)[0] if self.on else own
                is_here = by % np.uint64(count) == bucket
                own, rows = own[is_here], rows[is_here]
            hashes.append(own)
            positions.append(rows)
        return _Hashed(np.concatenate(hashes), np.concatenate(positions))

    def _keys(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Return the hash of each key, and whether it has no null: a null equals nothing."""
        columns = []
        is_whole = np.ones(batch.num_rows, dtype=bool)
        for name in self.on:
            column = batch.column(name)
            is_whole &= np.asarray(column.is_valid())
            whole = with_one_zero_and_nan(pa.chunked_array([column]))
            columns.append(whole.combine_chunks() if len(whole.chunks) != 1 else whole.chunk(0))
        return row_hashes(pa.RecordBatch.from_arrays(columns, list(self.on))), is_whole

    def _updates(
        self, held: _Held, step: ChangeStep, chosen: Sequence[Sequence[np.ndarray]]
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return for the differing rows of each file whether they are an image of an update."""
        keys, are_whole = [], []
        for own, positions in zip((step.removed, step.added), chosen, strict=True):
            parts = [
                self._keys(rows)
                for file, places in zip(own, positions, strict=True)
                if len(places)
                for rows, _ in held.taken(file, places, self.on)
            ]
            keys.append(np.concatenate([_NO_HASHES, *(part for part, _ in parts)]))
            are_whole.append(np.concatenate([np.zeros(0, bool), *(part for _, part in parts)]))
        counted = [
            np.unique(key[is_whole], return_counts=True)
            for key, is_whole in zip(keys, are_whole, strict=True)
        ]
        shared = _common(*counted)
        masks = []
        for key, is_whole, positions in zip(keys, are_whole, chosen, strict=True):
            mask = np.zeros(len(key), dtype=bool)
            places = np.flatnonzero(is_whole)
            mask[places[_first_of(key[places], *shared)]] = True
            ends = np.cumsum([len(places) for places in positions])[:-1]
            masks.append(np.split(mask, ends))
        return masks[0], masks[1]


_NO_HASHES = np.zeros(0, np.uint64)
_NO_POSITIONS = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Hashed:
    """Hashes of some rows of a file, and their positions in it."""

    hashes: np.ndarray
    positions: np.ndarray


class _Held:
    """Rows of files that are compared, some of which stay in memory for the next read."""

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes
        self._columns = tuple(dict.fromkeys((*changes.columns, *changes.on)))
        self._files: dict[str, list[_Rows]] = {}
        self._size_bytes = 0
        self._counts: dict[str, int] = {}
        self._compared: dict[str, Remaining] = {}

    @property
    def row_count(self) -> int:
        """Number of rows that are compared."""
        return sum(
            len(places) + self._counts[label] - rest
            for label, (places, rest) in self._compared.items()
        )

    def selected(
        self, files: Sequence[DataFile], columns: Sequence[str]
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield some columns of the rows of files."""
        for file in files:
            for rows in self.batches(file):
                yield rows.batch.select(list(columns))

    def batches(self, file: DataFile) -> Iterator[_Rows]:
        """Yield the rows of a file that are compared, with their positions."""
        if file.label in self._files:
            yield from self._files[file.label]
            return
        kept: list[_Rows] | None = []
        for rows in self._read(file):
            if kept is not None:
                self._size_bytes += rows.batch.nbytes
                kept.append(rows)
                if self._size_bytes > HELD_BYTES:
                    self._size_bytes -= sum(one.batch.nbytes for one in kept)
                    kept = None
            yield rows
        if kept is not None:
            self._files[file.label] = kept

    def _read(self, file: DataFile) -> Iterator[_Rows]:
        compared, start = self._compared.get(file.label), 0
        for batch in self._changes._read([file], self._columns):
            end = start + batch.num_rows
            whole = _Rows(batch, np.arange(start, end))
            own = None if compared is None else _remaining_in(compared, start, end)
            if own is None or len(own):
                yield whole if own is None else whole.at(own)
            start = end
        self._counts[file.label] = start

    def narrow(self, files: Sequence[DataFile], remaining: Remaining) -> None:
        """Compare only some rows from now on.

        Args:
            files: Files whose rows were read, one after the other.
            remaining: The rows to compare, among those of all the files.
        """
        start = 0
        for file in files:
            end = start + self._count(file)
            places = _within(remaining.places, start, end) - start
            own = Remaining(places, min(max(remaining.rest, start), end) - start)
            self._compared[file.label] = own
            start = end
            held = self._files.get(file.label)
            if held is not None:
                self._size_bytes -= sum(rows.batch.nbytes for rows in held)
                held = [rows.at(_remaining_in(own, *rows.bounds)) for rows in held]
                self._files[file.label] = [rows for rows in held if rows.batch.num_rows]
                self._size_bytes += sum(rows.batch.nbytes for rows in self._files[file.label])

    def _count(self, file: DataFile) -> int:
        """Return the number of rows of a file, from its footer if it was not read to its end."""
        if file.label not in self._counts:
            alone = Scan(layout=self._changes.layout, files=(replace(file, is_filtered=False),))
            self._counts[file.label] = scan.count(self._changes.store, alone)
        return self._counts[file.label]

    def taken(
        self, file: DataFile, positions: np.ndarray, columns: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield rows at ascending positions of a file, and their numbers among these."""
        start = 0
        for rows in self.batches(file):
            own = _within(positions, *rows.bounds)
            if len(own):
                yield rows.at(own).batch.select(list(columns)), np.arange(start, start + len(own))
                start += len(own)


class _Rows(NamedTuple):
    """Some rows of a file, and their ascending positions in it."""

    batch: pa.RecordBatch
    positions: np.ndarray

    @property
    def bounds(self) -> tuple[int, int]:
        """The first position, and the one after the last."""
        return int(self.positions[0]), int(self.positions[-1]) + 1

    def at(self, positions: np.ndarray) -> _Rows:
        """Return the rows at some of the positions."""
        if len(positions) == len(self.positions):
            return self
        places = np.searchsorted(self.positions, positions)
        return _Rows(self.batch.take(pa.array(places)), positions)


def _remaining_in(remaining: Remaining, start: int, end: int) -> np.ndarray:
    """Return the positions of the remaining rows in a range, ascending."""
    some = _within(remaining.places, start, end)
    return np.concatenate([some, np.arange(max(start, remaining.rest), end)])


def _within(positions: np.ndarray, start: int, end: int) -> np.ndarray:
    """Return those of some ascending positions that lie in a range."""
    low, high = np.searchsorted(positions, [start, end])
    within: np.ndarray = positions[low:high]
    return within


def _words(count: int, is_update: np.ndarray | None, plain: str, updated: str) -> pa.Array:
    if is_update is None:
        return pa.repeat(plain, count)
    return pa.array([plain, updated]).take(pa.array(is_update.astype(np.int8)))


def _differing(
    removed: Sequence[_Hashed], added: Sequence[_Hashed]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the positions of the rows that have no equal on the other side, file by file."""
    sides = [
        np.concatenate([_NO_HASHES, *(part.hashes for part in side)]) for side in (removed, added)
    ]
    counts = [np.unique(side, return_counts=True) for side in sides]
    values, shared = _common(*counts)
    chosen = []
    for side, hashed, (own, own_counts) in zip(sides, (removed, added), counts, strict=True):
        left = own_counts.copy()
        left[np.searchsorted(own, values)] -= shared
        rows = _first_of(side, own[left > 0], left[left > 0])
        ends = np.cumsum([len(part.hashes) for part in hashed])
        starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
        bounds = np.searchsorted(rows, ends)
        parts = np.split(rows, bounds[:-1]) if len(ends) else []
        chosen.append(
            [
                part.positions[own_rows - start]
                for part, own_rows, start in zip(hashed, parts, starts, strict=True)
            ]
        )
    return chosen[0], chosen[1]


def _common(
    one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that are in two counted sets, and how often in both."""
    (numbers, counts), (others, other_counts) = one, other
    if not len(others):
        return numbers[:0], counts[:0]
    at = np.minimum(np.searchsorted(others, numbers), len(others) - 1)
    is_common = others[at] == numbers
    return numbers[is_common], np.minimum(counts[is_common], other_counts[at[is_common]])


def _first_of(numbers: np.ndarray, wanted: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the positions of the first `counts` of each wanted number, ascending."""
    if not len(wanted):
        return _NO_POSITIONS
    at = np.minimum(np.searchsorted(wanted, numbers), len(wanted) - 1)
    rows = np.flatnonzero(wanted[at] == numbers)
    if len(rows) == counts.sum():
        return rows
    which = at[rows]
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(len(wanted)))
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(len(rows)) - starts[which[order]]
    return rows[rank < counts[which]]


def parts_of(steps: Sequence[ChangeStep]) -> list[ChangeStep]:
    """Return steps that can be read apart, as by the tasks of Spark."""
    return list(chain.from_iterable(step.parts() for step in steps))
