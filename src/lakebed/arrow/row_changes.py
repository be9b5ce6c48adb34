"""Rows that really differ between the data files that a commit removed and those that it added.

A rewritten file holds mostly rows that it held before. So both sides are read and hashed, and equal
rows cancel each other out, one for one. What is left was inserted, deleted or updated.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.conform import with_one_zero_and_nan
from lakebed.arrow.digest import row_hashes
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
            The files; where rows are compared, 16 bytes for each of up to 16 million rows at a
            time, and a second read of what exceeds 256 MiB.
        """
        for step in steps:
            if step.removed and step.added:
                yield from self._compared(step)
                continue
            for file in step.removed:
                yield from self._whole(step, file, DELETE)
            for file in step.added:
                yield from self._whole(step, file, INSERT)

    def _read(self, file: DataFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        alone = Scan(layout=self.layout, files=(replace(file, is_filtered=False),))
        with scan.scan(self.store, alone, columns) as batches:
            yield from batches

    def _whole(self, step: ChangeStep, file: DataFile, word: str) -> Iterator[pa.RecordBatch]:
        for batch in self._read(file, self.columns):
            yield self._marked(batch, step, pa.repeat(word, batch.num_rows))

    def _marked(self, batch: pa.RecordBatch, step: ChangeStep, words: pa.Array) -> pa.RecordBatch:
        version = pa.repeat(pa.scalar(step.version, pa.int64()), batch.num_rows)
        moment = pa.repeat(pa.scalar(step.committed_at, CHANGE_FIELDS[2].type), batch.num_rows)
        return pa.RecordBatch.from_arrays(
            [*batch.columns, words, version, moment], schema=self.schema
        )

    def _compared(self, step: ChangeStep) -> Iterator[pa.RecordBatch]:
        files = (*step.removed, *step.added)
        row_count = scan.count(self.store, Scan(layout=self.layout, files=files))
        held = _Held(self)
        bucket_count = max(1, -(-row_count // HELD_ROWS))
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

    def _hashed_side(
        self, held: _Held, files: Sequence[DataFile], bucket: int, count: int
    ) -> list[_Hashed]:
        def of_file(file: DataFile) -> _Hashed:
            return self._hashed(held, file, bucket, count)

        return list(at_once(of_file, files, min(_THREADS, os.cpu_count() or 1)))

    def _hashed(self, held: _Held, file: DataFile, bucket: int, count: int) -> _Hashed:
        """Return the hashes of the rows of a bucket: equal rows, and equal keys, are in one."""
        hashes, positions, start = [_NO_HASHES], [_NO_POSITIONS], 0
        for batch in held.batches(file):
            own = row_hashes(batch.select(self.columns))
            rows = np.arange(start, start + len(own))
            start += len(own)
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
    """Rows of files, some of which stay in memory for the next read."""

    def __init__(self, changes: RowChanges) -> None:
        self._changes = changes
        self._columns = tuple(dict.fromkeys((*changes.columns, *changes.on)))
        self._files: dict[str, list[pa.RecordBatch]] = {}
        self._size_bytes = 0

    def batches(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a file."""
        if file.label in self._files:
            yield from self._files[file.label]
            return
        kept: list[pa.RecordBatch] | None = []
        for batch in self._changes._read(file, self._columns):
            if kept is not None:
                self._size_bytes += batch.nbytes
                kept.append(batch)
                if self._size_bytes > HELD_BYTES:
                    self._size_bytes -= sum(one.nbytes for one in kept)
                    kept = None
            yield batch
        if kept is not None:
            self._files[file.label] = kept

    def taken(
        self, file: DataFile, positions: np.ndarray, columns: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """Yield rows at ascending positions of a file, and their numbers among these."""
        held = self._files.get(file.label)
        start = 0
        for batch in self._changes._read(file, columns) if held is None else held:
            low, high = np.searchsorted(positions, [start, start + batch.num_rows])
            if low < high:
                rows = batch.select(list(columns)).take(pa.array(positions[low:high] - start))
                yield rows, np.arange(low, high)
            start += batch.num_rows


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
