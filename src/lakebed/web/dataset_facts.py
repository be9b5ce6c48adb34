"""What a report tells of a dataset, as plain values. No picture and no HTML here."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Protocol

from lakebed.batches.listing import Batch
from lakebed.commit import Commit, File, Partition, partitions_of
from lakebed.common.shown import counted, human_size
from lakebed.dataset import Dataset
from lakebed.errors import LakebedError
from lakebed.model.keys import started_ms
from lakebed.model.locations import shell_address
from lakebed.model.schema import Field
from lakebed.model.totals import known_total
from lakebed.state.protections import Protection
from lakebed.state.published import PublishedTable
from lakebed.state.sources import Hold, SourceFile
from lakebed.web.charts import Bar, Bin, Event
from lakebed.work.defaults import READ_BEST_BYTES
from lakebed.work.indexing import InvertedIndex

MIB = 1 << 20
MAX_COMMITS = 200
MAX_BATCHES = 60
MAX_PARTITIONS = 40
MAX_SOURCES = 100
MAX_MOMENTS = 48  # columns of the heat map
_SKEW = 10  # times the median partition
_FEW = 8  # files of a partition that nobody would compact


class Datasets(Protocol):
    """The datasets that are shown, as a `Repository` has them."""

    @property
    def uri(self) -> str:
        """The address of all."""

    def list(self) -> list[str]:
        """Return their names, sorted."""

    def open(self, name: str) -> Dataset:
        """Open one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something that somebody may want to mend.

    Attributes:
        text: What is so.
        command: What mends it.
    """

    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """How much of each partition was written when.

    Attributes:
        partitions: Of the rows, the largest first.
        moments: Of the columns.
        sizes: Bytes, by row and column.
    """

    partitions: tuple[str, ...]
    moments: tuple[str, ...]
    sizes: dict[tuple[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """What a report tells of a dataset.

    Attributes:
        name: Of the dataset.
        address: That the command line takes.
        version: That everything is of.
        dataset: The dataset itself.
        row_count: Of the version; None where files of other tools are not counted.
        size_bytes: Of its data files; None likewise.
        file_count: How many data files it has.
        files: Its data files.
        partitions: That hold files.
        history: All commits, oldest first.
        batches: All batches, oldest first.
        sources: Raw files that were ingested, newest last.
        holds: Raw files that no ingest reads.
        indices: The inverted indices.
        protections: What cleanup leaves alone.
        dead_bytes: What a cleanup would delete now, of files older than a week; None if it cannot
            be told, which `dead_note` then explains.
        dead_count: How many objects that are.
        waiting_bytes: What is superseded, and is waiting for its week.
        dead_note: Why a cleanup cannot tell, or empty.
        advice: What somebody may want to mend.
    """

    name: str
    address: str
    version: int
    dataset: Dataset
    row_count: int | None
    size_bytes: int | None
    file_count: int
    files: Sequence[File]
    partitions: Sequence[Partition]
    history: Sequence[Commit]
    batches: Sequence[Batch]
    sources: Sequence[SourceFile]
    holds: Sequence[Hold]
    indices: Sequence[InvertedIndex]
    protections: Sequence[Protection]
    dead_bytes: int | None
    dead_count: int
    waiting_bytes: int
    dead_note: str
    advice: Sequence[Advice]

    @property
    def fields(self) -> Sequence[Field]:
        """The fields of the schema."""
        return self.dataset.descriptor.schema.fields

    def in_short(self) -> DatasetFacts:
        """Return what the table of all datasets tells, without what is many."""
        return replace(
            self,
            files=(),
            partitions=(),
            history=self.history[-1:],
            batches=(),
            sources=(),
            holds=(),
        )

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit."""
        return self.history[-1] if self.history else None


def gather(dataset: Dataset) -> DatasetFacts:
    """Ask a dataset for everything that a report tells, all of one version where it can be.

    Cost:
        The head, history, file table and index segments' footers; a LIST of what the dataset has
        on storage, to tell what is dead.
    """
    pinned = dataset.at(version=dataset.version)
    files = pinned.files()
    indices = pinned.indices()
    dead_bytes, dead_count, waiting, note = _dead(dataset)
    address = shell_address(dataset.uri)
    # From the files that were read, which are many.
    partitions = partitions_of(files, pinned._source.load().state.layout.partition_level_types)
    return DatasetFacts(
        name=dataset.name,
        address=address,
        version=pinned.version,
        dataset=dataset,
        row_count=known_total([file.row_count for file in files]),
        size_bytes=known_total([file.size_bytes for file in files]),
        file_count=len(files),
        files=files,
        partitions=partitions,
        history=pinned.history(),
        batches=dataset.batches(),
        sources=pinned.sources(),
        holds=pinned.holds(),
        indices=indices,
        protections=dataset.protections(),
        dead_bytes=dead_bytes,
        dead_count=dead_count,
        waiting_bytes=waiting,
        dead_note=note,
        advice=[
            *_of_files(address, files, partitions),
            *_of_indices(address, indices),
            *_of_the_dead(address, dead_bytes, files),
            *_of_publications(address, dataset.publications()),
        ],
    )


def _dead(dataset: Dataset) -> tuple[int | None, int, int, str]:
    """Return bytes and count of what a cleanup would delete, bytes that wait, or why not."""
    try:
        report = dataset.cleanup("7d", dry_run=True, published="noted")
    except LakebedError as error:
        return None, 0, 0, error.message
    waiting = sum(file.size_bytes or 0 for file in report.kept)
    return report.size_bytes, len(report.files), waiting, ""


def _of_files(address: str, files: Sequence[File], partitions: Sequence[Partition]) -> list[Advice]:
    warnings = []
    small = Counter(
        file.partition
        for file in files
        if (file.size_bytes or READ_BEST_BYTES[0]) < READ_BEST_BYTES[0] / 2
    )
    crowded = {path: count for path, count in small.items() if count > _FEW}
    if crowded:
        warnings.append(
            Advice(
                text=f"{counted(len(crowded), 'partition')} of more than {_FEW} small files each, "
                f"{counted(sum(crowded.values()), 'file')} in all.",
                command=f"lakebed compact {address}",
            )
        )
    sizes = [partition.size_bytes for partition in partitions if partition.size_bytes]
    if len(sizes) >= 4 and max(sizes) > _SKEW * median(sizes) and max(sizes) > READ_BEST_BYTES[1]:
        largest = max(partitions, key=lambda partition: partition.size_bytes or 0)
        warnings.append(
            Advice(
                text=f"Partition {largest.path} is {max(sizes) / median(sizes):.0f} times as large "
                "as the middle one.",
                command=f"lakebed show {address} --partitions",
            )
        )
    return warnings


def _of_indices(address: str, indices: Sequence[InvertedIndex]) -> list[Advice]:
    warnings = []
    for index in indices:
        if index.lost or index.covered_count < index.file_count:
            left = index.file_count - index.covered_count
            warnings.append(
                Advice(
                    text=f"The index of {index.column} does not know {counted(left, 'file')}.",
                    command=f"lakebed index build {address} {index.column}",
                )
            )
    return warnings


def _of_the_dead(address: str, dead_bytes: int | None, files: Sequence[File]) -> list[Advice]:
    live = sum(file.size_bytes or 0 for file in files)
    if not dead_bytes or dead_bytes < max(live // 2, MIB):
        return []
    return [
        Advice(
            text=f"{human_size(dead_bytes)} are dead, beside {human_size(live)} that are live.",
            command=f"lakebed cleanup {address}",
        )
    ]


def _of_publications(address: str, tables: Sequence[PublishedTable]) -> list[Advice]:
    return [
        Advice(
            text=f"{table}, though each commit is to be published to it.",
            command=f"lakebed publish all {address}",
        )
        for table in tables
        if table.is_stale
    ]


def size_bins(files: Sequence[File]) -> list[Bin]:
    """Return how many files there are of each size, by powers of four."""
    steps = [1 << power for power in range(10, 33, 2)]
    counts = Counter(
        min(max(int(math.log2(max(file.size_bytes, 1)) - 8) // 2, 0), len(steps))
        for file in files
        if file.size_bytes is not None
    )
    labels = ["< 1 KiB", *(human_size(step).replace(".0", "") for step in steps)]
    starts = [0, *steps]
    return [
        Bin(
            label=label,
            count=counts[place],
            is_target=READ_BEST_BYTES[0] <= start < READ_BEST_BYTES[1],
        )
        for place, (label, start) in enumerate(zip(labels, starts, strict=True))
    ]


def largest(partitions: Sequence[Partition]) -> list[Partition]:
    """Return the largest partitions, the largest first."""
    by_size = sorted(partitions, key=lambda partition: -(partition.size_bytes or 0))
    return by_size[:MAX_PARTITIONS]


def partition_bars(partitions: Sequence[Partition]) -> list[Bar]:
    """Return a bar for each partition."""
    return [
        Bar(
            label=partition.path or "(all)",
            value=partition.size_bytes or 0,
            text=human_size(partition.size_bytes),
        )
        for partition in partitions
    ]


def heat_map(files: Sequence[File], partitions: Sequence[Partition]) -> HeatMap:
    """Return how much of the largest partitions was written when, of what is live."""
    chosen = {partition.path: row for row, partition in enumerate(partitions)}
    written: dict[tuple[str, int], float] = defaultdict(float)
    for file in files:
        if file.partition in chosen and file.batch_id is not None:
            written[file.partition, file.batch_id] += file.size_bytes or 0
    began = {batch_id: started_ms(batch_id) for _, batch_id in written}
    if not began:
        return HeatMap(partitions=tuple(chosen), moments=(), sizes={})
    count = min(MAX_MOMENTS, len(began))
    first = min(began.values())
    span = max(max(began.values()) - first, 1)
    sizes: dict[tuple[int, int], float] = defaultdict(float)
    for (path, batch_id), size in written.items():
        column = min((began[batch_id] - first) * count // span, count - 1)
        sizes[chosen[path], column] += size
    moments = tuple(_moment(first + span * place // max(count - 1, 1)) for place in range(count))
    return HeatMap(partitions=tuple(chosen), moments=moments, sizes=dict(sizes))


def _moment(epoch_ms: int) -> str:
    try:
        return f"{dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC):%Y-%m-%d %H:%M}"
    except (OverflowError, ValueError, OSError):
        return f"batch {epoch_ms}"


def events(history: Sequence[Commit]) -> list[Event]:
    """Return the newest commits as events."""
    return [
        Event(
            lane=commit.operation,
            at=commit.committed_at,
            size=commit.row_count,
            text=f"version {commit.version}: {commit.operation}"
            + (f" of run {commit.run}" if commit.run else "")
            + f", {commit.rows_in_words()}",
        )
        for commit in history[-MAX_COMMITS:]
    ]
