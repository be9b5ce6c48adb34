"""Writing data files anew: the rows of some files, as other files.

A delete, a compaction and a promotion do it. Rows of different runs never come together in one
file, and of rows that were read from raw files it stays known from which. What was written can be
read back, and compared with what was read: see `check`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow import scan
from lakebed.arrow.digest import RowDigest, row_hashes
from lakebed.arrow.kernel import MIB, BatchTarget, KernelWriter
from lakebed.errors import CorruptMetadataError, StorageError
from lakebed.index.postings import keys_of, postings_in
from lakebed.model.keys import partition_of, partition_of_label, split_label
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state.caps import concat_facts
from lakebed.state.facts import Recorded, facts_schema
from lakebed.state.lists import Lists
from lakebed.state.runs import Runs
from lakebed.state.sources import Runs as Origins
from lakebed.state.sources import Sources
from lakebed.store.base import Store, delete_or_leave

_SOURCE = "lakebed.source"  # no field has a dot in its name
_SORTED_ROWS = 2**15  # that are given to the writer at once
_SORTED_BYTES = 32 * MIB  # of rows that are put in order at once
_SORTED_LIMIT = 4 * _SORTED_BYTES  # where rows differ much in length


class Routed(NamedTuple):
    """Some rows of a batch, and the partition that they belong to.

    Attributes:
        partition: Its path.
        rows: Which of them, as a mask or as places; None for all.
    """

    partition: str
    rows: np.ndarray | None


Route = Callable[[DataFile, pa.RecordBatch], Iterable[Routed]]


def file_partition(file: DataFile) -> str:
    """Return the path of the partition that a file is in."""
    return partition_of_label(file.label)


def keep(file: DataFile, _: pa.RecordBatch) -> Iterable[Routed]:
    """Leave rows in the partition where they are."""
    return (Routed(file_partition(file), None),)


def light_plan(plan: ScanPlan) -> ScanPlan:
    """Return a plan of no files, with what is needed of the state to read any."""
    state = replace(plan.state, labels=(), lists=Lists(), annotations={}, indices={})
    return replace(plan, state=state, files=(), residual=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one writer writes anew.

    Attributes:
        groups: Files in the order in which they are read; rows are sorted within a group.
        run: Of all the files; None if it has no name.
        origins: By label: of which raw files the rows are. Of all files, or of none.
    """

    groups: tuple[tuple[DataFile, ...], ...]
    run: str | None = None
    origins: Mapping[str, Origins] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How files are written anew. Travels to Spark tasks.

    Attributes:
        everything: A plan of the state that the files are of; its own files do not matter.
        target: Of the batch that the new files are of.
        route: Says where rows go; what it leaves out is gone.
        columns: Besides the fields, what `route` looks at.
        sort_by: Fields that the rows of a group are sorted by; empty to leave them in order.
        is_checked: Whether the new files are read back.
    """

    everything: ScanPlan
    target: BatchTarget
    route: Route = keep
    columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    is_checked: bool = True

    def light(self) -> Job:
        """Return the job without what tasks do not need."""
        return replace(self, everything=light_plan(self.everything))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """What was written anew.

    Attributes:
        facts: Of the new files; see `lakebed.state.facts`.
        carried: By label of a new file: the run whose rows it holds.
        origins: By label of a new file: of which raw files its rows are.
        read: All rows of the old files.
        given: By partition: the rows that were given to the writer.
        found: By partition: the rows of the new files, as they were read back.
    """

    facts: pa.Table
    carried: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, Origins] = field(default_factory=dict)
    read: RowDigest = field(default_factory=RowDigest)
    given: Mapping[str, RowDigest] = field(default_factory=dict)
    found: Mapping[str, RowDigest] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the new files."""
        return tuple(self.facts.column("label").to_pylist())

    @property
    def sources(self) -> Sources | None:
        """What to note of the origins; None if nothing."""
        return Sources(runs=dict(self.origins)) if self.origins else None

    def without(self, labels: frozenset[str]) -> Rewritten:
        """Return the same without some of the new files."""
        is_left = pc.invert(
            pc.is_in(self.facts.column("label"), pa.array(sorted(labels), pa.string()))
        )
        return replace(
            self,
            facts=self.facts.filter(is_left),
            carried={label: run for label, run in self.carried.items() if label not in labels},
            origins={label: one for label, one in self.origins.items() if label not in labels},
        )


def joined(job: Job, parts: Sequence[Rewritten]) -> Rewritten:
    """Return what several writers have written as one."""
    empty = facts_schema(job.target.descriptor.stored_schema).empty_table()
    return Rewritten(
        facts=concat_facts([empty, *(part.facts for part in parts)]),
        carried={label: run for part in parts for label, run in part.carried.items()},
        origins={label: one for part in parts for label, one in part.origins.items()},
        read=sum((part.read for part in parts), RowDigest()),
        given=_sums(part.given for part in parts),
        found=_sums(part.found for part in parts),
    )


def _sums(parts: Iterable[Mapping[str, RowDigest]]) -> dict[str, RowDigest]:
    found: dict[str, RowDigest] = {}
    for part in parts:
        for partition, digest in part.items():
            found[partition] = found.get(partition, RowDigest()) + digest
    return found


def check(dataset: str, rewritten: Rewritten, expected_count: int | None) -> None:
    """Check that the new files hold the rows of the old ones, each of them once.

    Args:
        dataset: Its name.
        rewritten: What was written, and read back.
        expected_count: Rows of the old files, if that is known.

    Raises:
        CorruptMetadataError: They do not.
    """
    if expected_count is not None and rewritten.read.row_count != expected_count:
        raise _differ(
            dataset, f"{rewritten.read.row_count} rows were read where {expected_count} were noted"
        )
    if sum(rewritten.given.values(), RowDigest()) != rewritten.read:
        raise _differ(dataset, "the rows that were divided are not those that were read")
    for partition in rewritten.given.keys() | rewritten.found.keys():
        given = rewritten.given.get(partition, RowDigest())
        found = rewritten.found.get(partition, RowDigest())
        if given != found:
            where = f"partition {partition!r}" if partition else "the dataset"
            how = (
                f"{found.row_count} rows instead of {given.row_count}"
                if found.row_count != given.row_count
                else "rows with other values"
            )
            raise _differ(dataset, f"the new files of {where} hold {how}")


def _differ(dataset: str, how: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Files of {dataset!r} that were written anew are not what they were: {how}.",
        hint="Nothing was committed, and the old files are as they were. Run check.",
    )


def divide(
    groups: Sequence[tuple[DataFile, ...]], runs: Runs, sources: Sources
) -> dict[tuple[str | None, bool], list[tuple[DataFile, ...]]]:
    """Divide groups of files by what must not come together in one file.

    Returns:
        Groups by run, and by whether it is known of which raw files their rows are.
    """
    found: dict[tuple[str | None, bool], list[tuple[DataFile, ...]]] = {}
    for group in groups:
        parts: dict[tuple[str | None, bool], list[DataFile]] = {}
        for file in group:
            key = (runs.of(file.label), file.label in sources.runs)
            parts.setdefault(key, []).append(file)
        for key, files in parts.items():
            found.setdefault(key, []).append(tuple(files))
    return found


def work_of(
    key: tuple[str | None, bool],
    groups: Sequence[tuple[DataFile, ...]],
    sources: Sources,
    recorded: Mapping[str, Recorded],
) -> Work:
    """Return the work of one writer on groups of one key of `divide`.

    Args:
        key: What the groups have in common.
        groups: Of files.
        sources: Of which raw files their rows are.
        recorded: What their content must be, by label: what is damaged would otherwise become
            the true content of a new file.
    """
    run, has_origins = key
    labels = [file.label for group in groups for file in group] if has_origins else []
    return Work(
        groups=tuple(
            tuple(replace(file, recorded=recorded.get(file.label)) for file in group)
            for group in groups
        ),
        run=run,
        origins={label: sources.runs[label] for label in labels},
    )


def rewrite_all(
    store: Store, job: Job, works: Sequence[Work], *, threads: int = 1
) -> list[Rewritten]:
    """Write files anew in this process, several works at a time.

    Returns:
        What each of the works has written.

    Raises:
        DamagedFileError: A file is not what was recorded. What was written is deleted.
        LakebedError: A file cannot be read, or the store failed. What was written is deleted.

    Cost:
        The files, read and written once, and the new ones read once more if they are checked.
        Memory: that of one writer and of one compressed file a thread; see `lakebed.arrow.intact`.
    """
    with ThreadPoolExecutor(max(1, min(threads, len(works)))) as pool:
        futures = [pool.submit(rewrite, store, job, work) for work in works]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            wait(futures)
            discard(store, job.target, (_result(future) for future in futures))
            raise


def _result(future: Future[Rewritten]) -> Rewritten | None:
    is_whole = not future.cancelled() and future.exception() is None
    return future.result() if is_whole else None


def discard(store: Store, target: BatchTarget, parts: Iterable[Rewritten | None]) -> None:
    """Delete new files; what cannot be deleted stays invisible garbage."""
    keys: list[str] = []
    for part in parts:
        if part is not None:
            keys += [target.key(label) for label in part.labels]
            keys += keys_of(postings_in(part.facts))
    delete_or_leave(store, keys)


def rewrite(store: Store, job: Job, work: Work) -> Rewritten:
    """Write the files of one work anew; see `rewrite_all`."""
    target = replace(job.target, is_traced=bool(work.origins))
    sources = _Numbers()
    read, given = RowDigest(), dict[str, RowDigest]()
    writer = KernelWriter(store, target)
    try:
        for group in work.groups:
            rows = _rows(store, job, work, group, sources)
            for file, batch, numbers in _sorted(rows, job) if job.sort_by else rows:
                names = job.everything.state.descriptor.schema.names
                hashes = row_hashes(batch.select(names)) if job.is_checked else None
                if hashes is not None:
                    read += RowDigest.of(hashes)
                for partition, chosen in job.route(file, batch):
                    part, part_numbers = _chosen(batch, numbers, chosen)
                    writer.write_to(partition, part.select(names), part_numbers)
                    if hashes is not None:
                        of_part = hashes if chosen is None else hashes[chosen]
                        before = given.get(partition, RowDigest())
                        given[partition] = before + RowDigest.of(of_part)
        facts = writer.finish()
        labels = facts.column("label").to_pylist()
        found = _read_back(store, job, labels) if job.is_checked else {}
    except BaseException:
        writer.abort()
        raise
    return Rewritten(
        facts=facts,
        carried={} if work.run is None else dict.fromkeys(labels, work.run),
        origins={
            label: tuple((sources.names[number], count) for number, count in runs)
            for label, runs in writer.runs.items()
        },
        read=read,
        given=given,
        found=found,
    )


class _Numbers:
    """Numbers for the keys of raw files, in the order in which they are met."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._by_name: dict[str, int] = {}

    def of(self, name: str) -> int:
        if name not in self._by_name:
            self._by_name[name] = len(self.names)
            self.names.append(name)
        return self._by_name[name]


_Rows = Iterator[tuple[DataFile, pa.RecordBatch, np.ndarray | None]]


def _rows(
    store: Store, job: Job, work: Work, group: Sequence[DataFile], sources: _Numbers
) -> _Rows:
    """Yield the rows of files, with the numbers of their raw files if these are known."""
    state = job.everything.state
    columns = tuple(dict.fromkeys((*state.descriptor.schema.names, *job.columns)))
    for file in group:
        plain = replace(file, is_filtered=False)
        alone = replace(job.everything, files=(plain,), residual=None)
        numbers = None
        if work.origins:
            runs = work.origins[file.label]
            known = np.array([sources.of(key) for key, _ in runs], np.int32)
            numbers = np.repeat(known, [count for _, count in runs])
        start = 0
        with scan.scan(store, alone, columns) as batches:
            for batch in batches:
                end = start + batch.num_rows
                yield file, batch, None if numbers is None else numbers[start:end]
                start = end
        if numbers is not None and start != len(numbers):
            raise CorruptMetadataError(
                f"Data file {file.key} has {start} rows, but {len(numbers)} were noted when it "
                "was written.",
                hint="It was replaced from outside: restore it from a copy.",
            )


def _chosen(
    batch: pa.RecordBatch, numbers: np.ndarray | None, rows: np.ndarray | None
) -> tuple[pa.RecordBatch, np.ndarray | int]:
    if rows is None:
        return batch, 0 if numbers is None else numbers
    part = batch.filter(pa.array(rows)) if rows.dtype == bool else batch.take(pa.array(rows))
    return part, 0 if numbers is None else numbers[rows]


def _sorted(rows: _Rows, job: Job) -> _Rows:
    """Yield the rows of a group in order; equal ones as they come.

    They wait in a temporary file, which is mapped into memory for as long as it is read.
    """
    first = next(rows, None)
    if first is None:
        return
    file, batch, numbers = first
    schema = batch.schema.append(pa.field(_SOURCE, pa.int32()))
    marked = (_marked(batch, numbers, schema) for _, batch, numbers in chain((first,), rows))
    with _translating(), tempfile.TemporaryDirectory(prefix="lakebed-") as directory:
        path = os.path.join(directory, "rows")  # noqa: PTH118 - pyarrow takes text
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in _not_tiny(marked):
                writer.write_batch(batch)
        with pa.memory_map(path) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
            for batch in _in_order(table, job.sort_by):
                marks = batch.column(_SOURCE).to_numpy() if numbers is not None else None
                yield file, batch.drop_columns([_SOURCE]), marks
            del table


def _not_tiny(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: putting rows in order looks at each batch again and again."""
    waiting: list[pa.RecordBatch] = []
    row_count = size_bytes = 0
    for batch in batches:
        is_full = row_count >= _SORTED_ROWS or size_bytes + batch.nbytes > _SORTED_BYTES
        if waiting and is_full:
            yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()
            waiting, row_count, size_bytes = [], 0, 0
        waiting.append(batch)
        row_count += batch.num_rows
        size_bytes += batch.nbytes
    if waiting:
        yield from pa.Table.from_batches(waiting).combine_chunks().to_batches()


def _in_order(table: pa.Table, sort_by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order, a few at a time.

    Never are all rows of a column brought together: they may not fit into memory, nor texts of
    more than 2 GiB into one array.
    """
    keys = [(name, "ascending") for name in dict.fromkeys(sort_by)]
    order = pc.sort_indices(table.select([name for name, _ in keys]), keys).to_numpy()
    batches = table.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])[:-1]
    count = max(1, int(_SORTED_BYTES * table.num_rows / max(1, table.nbytes)))
    todo = [order[start : start + count] for start in range(0, len(order), count)][::-1]
    while todo:
        rows = todo.pop().astype(np.int64)
        ascending = np.argsort(rows)
        places = rows[ascending]
        cuts = np.searchsorted(places, [*starts, table.num_rows])
        found = pa.Table.from_batches(
            [
                batch.take(pa.array(places[low:high] - start))
                for batch, start, low, high in zip(
                    batches, starts, cuts[:-1], cuts[1:], strict=True
                )
                if low < high
            ]
        )
        if found.nbytes > _SORTED_LIMIT and len(rows) > 1:
            todo += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]  # long texts are together here
            continue
        back = np.empty_like(rows)
        back[ascending] = np.arange(len(rows))
        taken = found.combine_chunks().take(pa.array(back)).combine_chunks()
        yield from taken.to_batches(max_chunksize=_SORTED_ROWS)


def _marked(batch: pa.RecordBatch, numbers: np.ndarray | None, schema: pa.Schema) -> pa.RecordBatch:
    marks = np.zeros(batch.num_rows, np.int32) if numbers is None else numbers
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(marks, pa.int32())], schema=schema)


class _translating:  # noqa: N801 - a context manager, as a function would be
    """Translate what the system says of temporary files."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError(
                f"Rows could not wait in a temporary file in {tempfile.gettempdir()}: {error}",
                hint="Free some room there, or set TMPDIR to another directory.",
            ) from error


def _read_back(store: Store, job: Job, labels: Sequence[str]) -> dict[str, RowDigest]:
    """Read new files, and return the digest of each partition."""
    target, state = job.target, job.everything.state
    new = replace(state, descriptor=target.descriptor)
    found: dict[str, RowDigest] = {}
    for label in labels:
        directory = split_label(label)[0]
        file = DataFile(
            key=target.key(label),
            label=label,
            partition=new.directory_values(directory),
            is_filtered=False,
            schema_number=target.schema_number,
        )
        alone = replace(job.everything, state=new, files=(file,), residual=None)
        digest = RowDigest()
        with scan.scan(store, alone, target.descriptor.schema.names) as batches:
            for batch in batches:
                digest += RowDigest.of(row_hashes(batch))
        partition = partition_of(directory)
        found[partition] = found.get(partition, RowDigest()) + digest
    return found
