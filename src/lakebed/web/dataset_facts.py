"""The facts of a dataset in a report, as plain values without charts and HTML."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from lakebed.batches.listing import Batch
from lakebed.commit import Commit, File, Partition, partitions_of, with_raw_files
from lakebed.common.shown import human_size
from lakebed.dataset import Dataset
from lakebed.errors import LakebedError
from lakebed.groups.namespace_group import NamespaceGroup
from lakebed.model.keys import started_ms
from lakebed.model.locations import shell_address
from lakebed.model.schema import Field
from lakebed.model.totals import known_total
from lakebed.state.protections import Protection
from lakebed.state.sources import Hold, SourceFile
from lakebed.store.base import Store
from lakebed.web import findings
from lakebed.web.charts import Bar, Bin, Event
from lakebed.web.findings import Advice
from lakebed.web.run_facts import RunFacts, gather_runs
from lakebed.work.cleanup import CleanupReport
from lakebed.work.defaults import READ_BEST_BYTES
from lakebed.work.indexing import InvertedIndex
from lakebed.work.pipeline_runs import RunEntry, list_entries

MAX_COMMITS = 200
MAX_BATCHES = 60
MAX_PARTITIONS = 40
MAX_SOURCES = 100
MAX_MOMENTS = 48  # columns of the heat map


class Datasets(Protocol):
    """The datasets to show, such as a `Repository`."""

    @property
    def uri(self) -> str:
        """The URI of the repository."""

    @property
    def store(self) -> Store:
        """The store of the repository."""

    @property
    def namespaces(self) -> NamespaceGroup[Any]:
        """The folders in the repository that are repositories."""

    def drop(self, name: str) -> bool:
        """Drop a dataset with its files."""

    def list(self) -> list[str]:
        """Return the names of the datasets, sorted."""

    def open(self, name: str) -> Dataset:
        """Open a dataset."""


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
        runs: The recorded runs of its pipelines.
        findings: Findings that may need attention.
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
    runs: RunFacts
    findings: Sequence[Advice]

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
            runs=replace(self.runs, runs=()),
        )

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit."""
        return self.history[-1] if self.history else None


def gather(dataset: Dataset, entries: Sequence[RunEntry] | None = None) -> DatasetFacts:
    """Return the facts of a dataset, as far as possible of one version.

    Args:
        dataset: The dataset.
        entries: The recorded runs of its pipelines, newest first; None to list them.

    Cost:
        The head, history, record of raw files, file table and index segments' footers; a LIST of all
        objects of the dataset, to find dead files; the notes of published tables and the head of
        its quarantine; one GET for each of its newest runs.
    """
    now = dt.datetime.now(dt.UTC)
    pinned = dataset.at(version=dataset.version)
    store, state = pinned._source.store, pinned._source.load().state
    files, past = pinned.files(), pinned._entries(state)
    raw_files = pinned.sources.list()
    commits = [*with_raw_files((Commit.of(one, state) for one in past), raw_files)]
    indices, protections = pinned.indices.list(), dataset.protections.list()
    batches = dataset.batches()
    dead = _dead(dataset)
    address, lake = shell_address(dataset.uri), store.uri
    # Computed from the files just read, because reading them again would be expensive.
    partitions = partitions_of(files, state.layout.partition_level_types)
    runs = gather_runs(store, list_entries(store, dataset.name) if entries is None else entries)
    waiting = dataset.staged.list() if any(batch.is_staged for batch in batches) else ()
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
        history=commits,
        batches=batches,
        sources=raw_files,
        holds=pinned.sources.holds(),
        indices=indices,
        protections=protections,
        dead_bytes=None if isinstance(dead, LakebedError) else dead.size_bytes,
        dead_count=0 if isinstance(dead, LakebedError) else len(dead.files),
        waiting_bytes=0
        if isinstance(dead, LakebedError)
        else sum(file.size_bytes or 0 for file in dead.kept),
        dead_note=dead.message if isinstance(dead, LakebedError) else "",
        runs=runs,
        findings=[
            *runs.findings,
            *findings.of_publications(address, store, state, past),
            *findings.of_checks(
                address, commits, state.descriptor.checks, state.standing_of_checks()
            ),
            *findings.of_quarantine(lake, store, dataset.name, runs.quarantines),
            *findings.of_staged(address, waiting, now),
            *findings.of_protections(address, protections, now),
            *findings.of_files(address, dataset, files, partitions),
            *findings.of_indices(address, indices),
            *findings.of_dead_files(address, dead, files, is_ours=state.is_ours),
            *findings.of_head(address, state),
        ],
    )


def _dead(dataset: Dataset) -> CleanupReport | LakebedError:
    """Return the plan of a cleanup, or the error that prevents one."""
    try:
        return dataset.cleanup("7d", dry_run=True, published="noted")
    except LakebedError as error:
        return error


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
            + (f" of run {run}" if (run := commit.run_in_words()) else "")
            + f", {commit.rows_in_words()}",
        )
        for commit in history[-MAX_COMMITS:]
    ]
