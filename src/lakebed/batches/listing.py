"""Value types that describe the batches of a dataset."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.common.html import facts_to_html
from lakebed.model.footprint import started_at
from lakebed.state.history import Entry, replay
from lakebed.state.readable import protected_batches, protected_versions
from lakebed.state.reservation import BatchRecord
from lakebed.state.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The rows and files that one run wrote.

    Attributes:
        batch_id: Id of the batch, part of the paths of its files.
        run: Name of the run, if it had one.
        operation: Operation of its commit: `append`, `overwrite`, `rerun` and so on.
        version: The version that its commit made; None if it is staged.
        started_at: Start time of the run, taken from the id; aware, UTC. None if the id is not a
            time, as that of an adopted directory may be.
        committed_at: Time when it became visible; None if it is staged.
        superseded_at: Time when the last of its files stopped being live; None while a file is
            live, or if it had none.
        row_count: Number of entities written.
        file_count: Number of data files written.
        live_file_count: Number of its files that are live.
        size_bytes: Bytes of its data files; None if no longer known.
        is_staged: True if it waits for its commit.
        is_protected: True if a protection keeps its files from cleanup.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> repository = open_repository("memory://doctest-batches")
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = repository.create("numbers", descriptor)
    >>> commits = [numbers.rerun([{"n": n}], run="daily") for n in range(2)]
    >>> [(batch.run, batch.row_count, batch.is_live) for batch in numbers.batches()]
    [('daily', 1, False), ('daily', 1, True)]
    """

    batch_id: int
    run: str | None
    operation: str
    version: int | None
    started_at: dt.datetime | None
    committed_at: dt.datetime | None
    superseded_at: dt.datetime | None
    row_count: int
    file_count: int
    live_file_count: int
    size_bytes: int | None
    is_staged: bool
    is_protected: bool

    @property
    def is_live(self) -> bool:
        """True if the current version reads a file of it."""
        return self.live_file_count > 0

    def _row_(self) -> dict[str, object]:
        return {
            "batch_id": self.batch_id,
            "run": self.run,
            "operation": self.operation,
            "version": "staged" if self.is_staged else self.version,
            "committed at": self.committed_at,
            "superseded at": self.superseded_at,
            "rows": f"{self.row_count:,}",
            "live files": f"{self.live_file_count:,} of {self.file_count:,}",
        }

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Batch {self.batch_id}",
            {
                "run": self.run or "none",
                "operation": self.operation,
                "version": "staged" if self.version is None else self.version,
                "started at": self.started_at or "unknown",
                "committed at": self.committed_at or "not yet",
                "superseded at": self.superseded_at or "never",
                "rows": f"{self.row_count:,}",
                "files": f"{self.file_count:,}, of which {self.live_file_count:,} live",
                "bytes": "unknown" if self.size_bytes is None else f"{self.size_bytes:,}",
                "protected": "yes" if self.is_protected else "no",
            },
        )


def committed_batches(
    state: State, entries: Sequence[Entry], counts: Mapping[str, tuple[int, int]]
) -> tuple[Batch, ...]:
    """Return the batches that commits made visible, oldest commit first.

    Args:
        state: The state whose live files and protections count.
        entries: The history up to this state.
        counts: Rows and bytes by label, as far as they are known.
    """
    homes = {
        label: entry.batch_id
        for entry in entries
        if entry.batch_id is not None
        for label in entry.added
    }
    superseded = _superseded(entries, homes)
    live: dict[int, int] = {}
    for label in state.labels:
        if label in homes:
            live[homes[label]] = live.get(homes[label], 0) + 1
    kept = set(protected_batches(state))
    for version in protected_versions(state):
        if version <= state.version:
            kept.update(homes[label] for label in replay(entries, version).labels if label in homes)
    return tuple(
        Batch(
            batch_id=entry.batch_id,
            run=entry.run,
            operation=entry.operation,
            version=entry.version,
            started_at=started_at(entry.batch_id),
            committed_at=entry.committed_at,
            superseded_at=superseded.get(entry.batch_id),
            row_count=entry.row_count,
            file_count=len(entry.added),
            live_file_count=live.get(entry.batch_id, 0),
            size_bytes=_size(entry.added, counts),
            is_staged=False,
            is_protected=entry.batch_id in kept,
        )
        for entry in entries
        if entry.batch_id is not None
    )


def _superseded(entries: Sequence[Entry], homes: Mapping[str, int]) -> dict[int, dt.datetime]:
    """Return, for each batch without live files, the time when the last one was removed."""
    counts: dict[int, int] = {}
    superseded: dict[int, dt.datetime] = {}
    for entry in entries:
        # A rollback may bring files back, so that the batch is live once more.
        for label in entry.added:
            if label in homes:
                counts[homes[label]] = counts.get(homes[label], 0) + 1
                superseded.pop(homes[label], None)
        for label in entry.removed:
            if label in homes:
                counts[homes[label]] -= 1
                if not counts[homes[label]]:
                    superseded[homes[label]] = entry.committed_at
    return superseded


def _size(labels: Sequence[str], counts: Mapping[str, tuple[int, int]]) -> int | None:
    sizes = [counts[label][1] for label in labels if label in counts]
    return sum(sizes) if len(sizes) == len(labels) else None


def staged_batches(records: Iterable[BatchRecord]) -> tuple[Batch, ...]:
    """Return the batches that wait for their commit."""
    return tuple(
        Batch(
            batch_id=record.batch_id,
            run=record.run,
            operation=record.operation,
            version=None,
            started_at=started_at(record.batch_id),
            committed_at=None,
            superseded_at=None,
            row_count=record.staging.row_count,
            file_count=len(record.files or ()),
            live_file_count=0,
            size_bytes=sum(file.size_bytes for file in record.files or ()),
            is_staged=True,
            is_protected=False,
        )
        for record in records
        if record.staging is not None
    )
