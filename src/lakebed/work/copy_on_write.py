"""Rows that another engine has rewritten by copy on write, taken back with their origin.

Such an engine replaces whole files: it hands back the rows that it kept, those that it changed, and
new ones, without a word on which are which. Rows that are equal to those of a replaced file stay
what they are: rows of their run, and of their raw file. So a rerun of that run replaces them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.conform import Conformer
from lakebed.arrow.digest import row_hashes
from lakebed.arrow.kernel import KernelWriter, WriteOptions, write_batches
from lakebed.arrow.partitioning import admitted_values
from lakebed.arrow.rewrite import (
    RewriteJob,
    Routed,
    file_partition,
    kept_parts,
    rewrite_all,
    works_on,
)
from lakebed.arrow.workers import Threads
from lakebed.errors import InvalidInputError
from lakebed.model.predicate import TRUE
from lakebed.plan.plan import DataFile, Scan
from lakebed.plan.search import plan
from lakebed.state import file_table, runs, sources
from lakebed.state.runs import NO_RUN
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.work.writer import target_of

MOST_ROWS = 2**25  # of the replaced files, and of those handed back: some 50 bytes each in memory
_THREADS = 4
_REMEDY = (
    "Change the rows by lake.sql or `lakebed sql --write`, which know the run of each row; "
    "or change rows of one run at a time. If the new rows are not changed ones, as those of an "
    "overwrite, set the property lakebed.overwrite=true on the snapshot."
)

HandedBack = Callable[[], Iterable[pa.RecordBatch]]
"""Returns the rows that were handed back, the same ones each time, with all fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenBack:
    """The result of `take_back`.

    Attributes:
        removed: Labels of the files to remove. Files whose rows were all handed back stay.
        rewritten_row_count: Number of rows that were copied unchanged.
    """

    removed: frozenset[str]
    rewritten_row_count: int


def take_back(
    transaction: Transaction,
    replaced: frozenset[str],
    rows: HandedBack,
    row_count: int,
    are_new: Callable[[int], bool],
) -> TakenBack:
    """Write the rows that an engine has handed back in place of some files.

    The new files are added to the transaction.

    Args:
        transaction: Transaction on the state that the engine has read.
        replaced: Labels of the files that it replaces, which are live.
        rows: The rows that it has handed back.
        row_count: Number of these rows.
        are_new: Receives the number of rows of the replaced files; returns whether rows that these
            do not hold are new ones. Otherwise they may be changed rows.

    Raises:
        InvalidInputError: Rows of several runs, or of raw files, have been changed; or there are
            too many rows.
        LakebedError: Rows do not fit, or the store failed.

    Cost:
        The replaced files, read once and the changed ones once more and written; the rows, read
        twice and the changed ones written. Memory: some 50 bytes a row of both.
    """
    store, base = transaction.store, transaction.base
    counts = file_table.read_counts(store, base.lists.files, sorted(replaced))
    total = max(row_count, sum(count for count, _ in counts.values()))
    if total > MOST_ROWS:
        raise InvalidInputError(
            f"The change rewrites {total:,} rows of {base.name!r}, more than {MOST_ROWS:,}.",
            hint="Change the rows by lake.sql or `lakebed sql --write`, or fewer at a time.",
        )
    files = [
        file for file in plan(base, TRUE, requests=0, store=None).files if file.label in replaced
    ]
    back = _Multiset([row_hashes(batch) for batch in rows()])
    masks = {file.label: _kept(transaction, file, back) for file in files}
    changed = {label: mask for label, mask in masks.items() if not mask.all() or not len(mask)}
    left = [file for file in files if file.label in changed and changed[file.label].any()]
    if left:
        transaction.add(*_rewritten(transaction, left, changed))
    if back.count:
        is_changed = any(not mask.all() for mask in changed.values())
        is_changed = is_changed and not are_new(sum(map(len, masks.values())))
        run = _run_of_changed(transaction, changed) if is_changed else NO_RUN
        transaction.add(_new_rows(transaction, rows(), back, run, is_changed=is_changed))
    return TakenBack(
        removed=frozenset(changed),
        rewritten_row_count=sum(int(np.count_nonzero(changed[file.label])) for file in left),
    )


class _Multiset:
    """Hashes of rows, each as often as there are such rows."""

    def __init__(self, hashes: Sequence[np.ndarray]) -> None:
        every = np.concatenate([np.zeros(0, np.uint64), *hashes])
        self._values, self._counts = np.unique(every, return_counts=True)

    @property
    def count(self) -> int:
        """Number of rows that were not taken."""
        return int(self._counts.sum())

    def take(self, hashes: np.ndarray) -> np.ndarray:
        """Take rows, and return which of them there were."""
        taken = np.zeros(len(hashes), dtype=bool)
        if not len(self._values):
            return taken
        places = np.minimum(np.searchsorted(self._values, hashes), len(self._values) - 1)
        found = np.flatnonzero(self._values[places] == hashes)
        found = found[np.argsort(places[found], kind="stable")]
        of_found = places[found]
        # The number of equal rows before each one.
        starts = np.flatnonzero(np.diff(of_found, prepend=-1))
        lengths = np.diff(np.append(starts, len(of_found)))
        rank = np.arange(len(of_found)) - np.repeat(starts, lengths)
        is_there = rank < self._counts[of_found]
        taken[found[is_there]] = True
        self._counts -= np.bincount(of_found[is_there], minlength=len(self._counts))
        return taken


def _kept(transaction: Transaction, file: DataFile, back: _Multiset) -> np.ndarray:
    """Return which rows of a replaced file were handed back."""
    base = transaction.base
    alone = Scan(layout=base.layout, files=(replace(file, is_filtered=False),))
    masks = [np.zeros(0, dtype=bool)]
    conformer: Conformer | None = None
    with scan.scan(transaction.store, alone, base.descriptor.schema.names) as batches:
        for batch in batches:
            conformer = conformer or Conformer(batch.schema, base.descriptor)
            masks.append(back.take(row_hashes(conformer.conform(batch))))
    return np.concatenate(masks)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Keeps the rows of a mask in the partition of their file."""

    masks: Mapping[str, np.ndarray]

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterable[Routed]:
        is_kept = self.masks[file.label][start : start + batch.num_rows]
        return [Routed(file_partition(file), rows) for rows in kept_parts(is_kept)]


def _rewritten(
    transaction: Transaction, files: Sequence[DataFile], masks: Mapping[str, np.ndarray]
) -> list[Written]:
    """Write the kept rows of some files again, as rows of their runs and raw files."""
    store, base = transaction.store, transaction.base
    workers = Threads(min(_THREADS, os.cpu_count() or 1))
    works = works_on(store, base.lists, files, workers)
    memory_bytes = Threads(min(workers.count, len(works))).share_of(WriteOptions().memory_bytes)
    target = replace(
        target_of(transaction, WriteOptions(memory_bytes=memory_bytes)),
        admitting_writers=len(works),
    )
    job = RewriteJob(layout=base.layout, target=target, route=_Kept(masks), is_checked=False)
    return [
        # Without an entry, a file would belong to the run of its batch.
        replace(written, carried={**dict.fromkeys(written.labels, NO_RUN), **written.carried})
        for written in rewrite_all(workers, store, job, works)
    ]


def _run_of_changed(transaction: Transaction, masks: Mapping[str, np.ndarray]) -> str:
    """Return the run of rows that no replaced file holds and that may be changed ones, or `NO_RUN`.

    Some of them may be changed rows: then they stay with the run of the rows that are gone, so that
    its rerun replaces them.

    Raises:
        InvalidInputError: The rows that are gone are of several runs, or of raw files.
    """
    store, base = transaction.store, transaction.base
    gone = [label for label, mask in masks.items() if not mask.all()]
    known = runs.read(store, base.lists)
    names = sorted({known.of(label) or NO_RUN for label in gone})
    if len(names) > 1:
        named = ", ".join(repr(name) if name else "no named run" for name in names[:3])
        raise InvalidInputError(
            f"The change rewrites rows of {base.name!r} that several runs have written ({named}"
            f"{', …' if len(names) > 3 else ''}), and does not show which of the new rows belongs "
            "to which run. A later rerun would double rows.",
            hint=_REMEDY,
        )
    noted = sources.read(store, base.lists.sources)
    if any(label in noted.runs for label in gone):
        raise InvalidInputError(
            f"The change rewrites rows of {base.name!r} that were read from raw files, and does not "
            "show which of the new rows belongs to which file. A later ingest would double rows.",
            hint="Change the rows by lake.sql or `lakebed sql --write`, which know the raw file "
            "of each row; or only delete rows.",
        )
    return names[0]


def _new_rows(
    transaction: Transaction,
    rows: Iterable[pa.RecordBatch],
    left: _Multiset,
    run: str,
    *,
    is_changed: bool,
) -> Written:
    """Write the rows that no replaced file holds.

    If they may be changed rows, those that fail a declared check cannot be left out: the rows that
    they were are gone.
    """
    labels = transaction.written.labels
    target = replace(
        target_of(transaction, None), admitted=admitted_values(transaction.base, labels)
    )
    writer = KernelWriter(transaction.store, target)
    try:
        for batch in rows:
            is_new = left.take(row_hashes(batch))
            if not is_new.any():
                continue
            new = batch.filter(pa.array(is_new))
            if is_changed:
                writer.judge_changed(new)
            writer.write(new, is_judged=is_changed)
        written = writer.finish()
    except BaseException:
        writer.abort()
        raise
    return replace(written, carried=dict.fromkeys(written.labels, run))


def append_rows(transaction: Transaction, rows: Iterable[pa.RecordBatch]) -> None:
    """Write new rows that belong to no run, so that compactions can join them with others."""
    written = write_batches(transaction.store, target_of(transaction, None), rows)
    transaction.add(replace(written, carried=dict.fromkeys(written.labels, NO_RUN)))
