"""Rows that move between partitions: files are inspected, and rewritten if rows move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.rewrite import (
    RewriteJob,
    Route,
    Routed,
    file_partition,
    keep,
    rewrite_all,
    works_on,
)
from lakebed.arrow.workers import Workers
from lakebed.common.progress import NO_PROGRESS, Tally
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.plan.plan import DataFile
from lakebed.state import file_table
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store

CATCHING_UP = 16  # passes over files that others have added meanwhile
ROUNDS = 4  # attempts, each from the start, if another commit wins the race at the last moment
THREADS = 4
_REWRITTEN = "rewritten/"  # before labels of files that are rewritten
_FILES_AT_ONCE = 32  # that one task inspects


class Inspected(msgspec.Struct, frozen=True):
    """The rows of a file that may move, by their new partition values.

    Attributes:
        label: Label of the file.
        groups: Each combination of partition values, with its number of rows.
    """

    label: str
    groups: list[tuple[tuple[str, ...], int]]


@dataclass(frozen=True, slots=True)
class Mover:
    """Inspects and rewrites files, by workers that report their progress."""

    store: Store
    workers: Workers
    tally: Tally

    def target(self, transaction: Transaction, descriptor: DatasetDescriptor) -> BatchTarget:
        """Return the target of the rows that a transaction moves."""
        memory_bytes = self.workers.share_of(WriteOptions().memory_bytes)
        base = transaction.base
        lineage = base.lineage.with_levels(base.descriptor, descriptor)
        return BatchTarget(
            dataset=base.name,
            batch_id=transaction.batch_id,
            descriptor=descriptor,
            options=WriteOptions(memory_bytes=memory_bytes),
            schema_number=lineage.number,
            field_ids=base.layout.as_of(descriptor, lineage).field_ids,
            is_tree=base.is_tree,
        )

    def inspect(
        self, state: State, files: Sequence[DataFile], inspect: Callable[[DataFile], Inspected]
    ) -> list[Inspected]:
        """Inspect files of a state: workers call `inspect` for each file."""
        labels = [file.label for file in files]
        counts = file_table.read_counts(self.store, state.lists.files, labels)
        known = {file.label: counts.get(file.label, (0, 0)) for file in files}
        self.tally.expect(
            {label: size_bytes for label, (_, size_bytes) in known.items()},
            {label: row_count for label, (row_count, _) in known.items()},
        )
        report = self.workers.listening(self.tally.listener)

        def of_chunk(chunk: Sequence[DataFile]) -> list[Inspected]:
            results = []
            for file in chunk:
                results.append(inspect(file))
                report(file.label)
            return results

        length = max(1, min(_FILES_AT_ONCE, len(files) // self.workers.count))
        chunks = [files[at : at + length] for at in range(0, len(files), length)]
        parts = self.workers.map(of_chunk, chunks, list[Inspected])
        results = [inspected for part in parts for inspected in part]
        self.tally.add(*(inspected.label for inspected in results))
        return results

    def rewrite(
        self, state: State, target: BatchTarget, route: Route, files: Sequence[DataFile]
    ) -> list[Written]:
        """Rewrite files of a state; the route gives the partition of each row."""
        if not files:
            return []
        job = RewriteJob(layout=state.layout, target=target, route=route)
        labels = [file.label for file in files]
        counts = file_table.read_counts(self.store, state.lists.files, labels)
        works = works_on(self.store, state.lists, files, self.workers)
        # Inspected files are read once more here, and count once more.
        again = {_REWRITTEN + file.label: counts.get(file.label, (0, 0))[1] for file in files}
        self.tally.expect(again)
        listener = self.tally.listener

        def on_read(label: str) -> None:
            listener(_REWRITTEN + label)

        written = rewrite_all(
            self.workers,
            self.store,
            job,
            works,
            on_read=NO_PROGRESS if listener is NO_PROGRESS else on_read,
        )
        self.tally.add(*again)
        return written


def routed(
    file: DataFile,
    batch: pa.RecordBatch,
    start: int,
    here: str,
    groups: Iterable[tuple[str, np.ndarray]],
) -> Iterable[Routed]:
    """Send rows of a file to their partitions; rows of its own partition stay in its directory.

    Args:
        file: The file that holds the rows.
        batch: Rows of the file.
        start: Position of the batch in the file.
        here: Path of the file's partition.
        groups: Paths of partitions, each with the positions of its rows in the batch.
    """
    by_target: dict[str, list[np.ndarray]] = {}
    for target, rows in groups:
        path = file_partition(file) if target == here else target
        by_target.setdefault(path, []).append(rows)
    if list(by_target) == [file_partition(file)]:
        return keep(file, batch, start)
    return [Routed(path, np.sort(np.concatenate(rows))) for path, rows in by_target.items()]


def groups_of(columns: Sequence[pa.Array], row_count: int) -> list[np.ndarray]:
    """Return the positions of rows that are equal in all columns, group by group."""
    codes = np.zeros(row_count, np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        _, codes = np.unique(
            codes * len(encoded.dictionary) + encoded.indices.to_numpy(), return_inverse=True
        )
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    return np.split(order, starts[1:]) if row_count else []
