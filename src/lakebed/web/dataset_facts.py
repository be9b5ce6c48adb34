"""The facts of a dataset in a report, as plain values without charts and HTML."""

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
_FEW = 8  # files of a partition that need no compaction
_MANY = 64  # small files of a dataset that need attention, even if no partition has many


class Datasets(Protocol):
    """The datasets to show, such as a `Repository`."""

    @property
    def uri(self) -> str:
        """The URI of the repository."""

    def list(self) -> list[str]:
        """Return the names of the datasets, sorted."""

    def open(self, name: str) -> Dataset:
        """Open a dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A finding that may need attention.

    Attributes:
        text: The finding, as a sentence.
        command: The command that mends it.
    """

    text: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Bytes of each partition by time of writing.

    Attributes:
        partitions: Partitions of the rows, the largest first.
        moments: Times of the columns.
        sizes: Bytes by row and column.
    """

    partitions: tuple[str, ...]
    moments: tuple[str, ...]
    sizes: dict[tuple[int, int], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """The facts of a dataset in a report.

    Attributes:
        name: Name of the dataset.
        address: Address of the dataset on the command line.
        version: Version of the dataset that the facts describe.
        dataset: The dataset itself.
        row_count: Number of rows; None if files of other tools are not counted.
        size_bytes: Size of the data files; None if unknown.
        file_count: Number of data files.
        files: The data files.
        partitions: The partitions with files.
        history: All commits, oldest first.
        batches: All batches, oldest first.
        sources: Raw files that were ingested, newest last.
        holds: Raw files that are held back from ingests.
        indices: The inverted indices.
        protections: Versions and batches that cleanups must keep.
        dead_bytes: Bytes that a cleanup would delete now, with an age of a week; None if unknown,
            with the reason in `dead_note`.
        dead_count: Number of objects that a cleanup would delete.
        waiting_bytes: Superseded bytes that are kept for their week.
        dead_note: Reason why a cleanup is not possible; empty if it is.
        advice: Findings that may need attention.
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
        """Return only the facts for the table of all datasets, without long lists."""
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
    """Return the facts of a dataset, as far as possible of one version.

    Cost:
        The head, history, file table and index segments' footers; a LIST of all objects of the
        dataset, to find dead files.
    """
    pinned = dataset.at(version=dataset.version)
    files = pinned.files()
    indices = pinned.indices.list()
    dead_bytes, dead_count, waiting, note = _dead(dataset)
    address = shell_address(dataset.uri)
    # Computed from the files just read, because reading them again would be expensive.
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
        sources=pinned.sources.list(),
        holds=pinned.sources.holds(),
        indices=indices,
        protections=dataset.protections.list(),
        dead_bytes=dead_bytes,
        dead_count=dead_count,
        waiting_bytes=waiting,
        dead_note=note,
        advice=[
            *_of_files(address, files, partitions),
            *_of_indices(address, indices),
            *_of_the_dead(address, dead_bytes, files),
            *_of_publications(address, dataset.inspect.publications()),
        ],
    )


def _dead(dataset: Dataset) -> tuple[int | None, int, int, str]:
    """Return bytes and count of dead objects, bytes that wait, and why a cleanup is impossible."""
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
                text=f"{counted(len(crowded), 'partition')} with more than {_FEW} small files each, "
                f"{counted(sum(crowded.values()), 'file')} in total.",
                command=f"lakebed compact {address}",
            )
        )
    elif (count := sum(small.values())) >= _MANY and count * 2 > len(files):
        warnings.append(_of_small_files(address, files, partitions, count))
    sizes = [partition.size_bytes for partition in partitions if partition.size_bytes]
    if len(sizes) >= 4 and max(sizes) > _SKEW * median(sizes) and max(sizes) > READ_BEST_BYTES[1]:
        largest = max(partitions, key=lambda partition: partition.size_bytes or 0)
        warnings.append(
            Advice(
                text=f"Partition {largest.path} is {max(sizes) / median(sizes):.0f} times as large "
                "as the median partition.",
                command=f"lakebed show {address} --partitions",
            )
        )
    return warnings


def _of_small_files(
    address: str, files: Sequence[File], partitions: Sequence[Partition], count: int
) -> Advice:
    """Return the advice on many small files of which no partition has many."""
    typical = human_size(int(median(file.size_bytes or 0 for file in files)))
    text = (
        f"{counted(count, 'small file')} of about {typical} each, in {len(partitions):,} partitions"
    )
    if count > 2 * len(partitions):
        return Advice(text=f"{text}.", command=f"lakebed compact {address}")
    return Advice(
        text=f"{text}: the partitions are too small. Coarser ones, such as months for days, have "
        "larger files.",
        command=f"lakebed show {address} --partitions",
    )


def _of_indices(address: str, indices: Sequence[InvertedIndex]) -> list[Advice]:
    warnings = []
    for index in indices:
        if index.lost or index.covered_count < index.file_count:
            left = index.file_count - index.covered_count
            warnings.append(
                Advice(
                    text=f"The index of {index.column} lacks {counted(left, 'file')}.",
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
            text=f"{human_size(dead_bytes)} are dead, and {human_size(live)} are live.",
            command=f"lakebed cleanup {address}",
        )
    ]


def _of_publications(address: str, tables: Sequence[PublishedTable]) -> list[Advice]:
    return [
        Advice(
            text=f"{table}, although each commit should be published to it.",
            command=f"lakebed publish all {address}",
        )
        for table in tables
        if table.is_stale
    ]


def size_bins(files: Sequence[File]) -> list[Bin]:
    """Return the number of files by size, in bins of powers of four."""
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
            count=counts[position],
            is_target=READ_BEST_BYTES[0] <= start < READ_BEST_BYTES[1],
        )
        for position, (label, start) in enumerate(zip(labels, starts, strict=True))
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
    """Return the live bytes of partitions by time of writing."""
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
    is_exact = span < count * 60_000  # in minutes, columns would have equal labels
    moments = tuple(
        _moment(first + span * position // max(count - 1, 1), is_exact=is_exact)
        for position in range(count)
    )
    return HeatMap(partitions=tuple(chosen), moments=moments, sizes=dict(sizes))


def _moment(epoch_ms: int, *, is_exact: bool) -> str:
    try:
        time = dt.datetime.fromtimestamp(epoch_ms / 1000, dt.UTC).replace(tzinfo=None)
        return time.isoformat(" ", "milliseconds" if is_exact else "minutes")
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
