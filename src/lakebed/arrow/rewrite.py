"""Rewriting data files: the rows of some files become other files.

Used by deletes, merges, compactions, promotions and ingests that replace raw files. Rows of
different runs never share a file, and rows that were read from raw files keep their origins. New
files can be read back where they are written, and compared with the rows that were read.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow import scan
from lakebed.arrow.digest import RowDigest, row_hashes
from lakebed.arrow.kernel import MIB, BatchTarget, KernelWriter
from lakebed.arrow.workers import Workers, gather
from lakebed.common.grouping import balanced_groups
from lakebed.common.progress import NO_PROGRESS, OnFileDone
from lakebed.errors import CorruptMetadataError, StorageError
from lakebed.model.keys import partition_of_label, split_label
from lakebed.model.layout import Layout
from lakebed.model.values import Scalar
from lakebed.plan.plan import DataFile, Scan
from lakebed.state import file_table, runs, sources
from lakebed.state.facts import Recorded
from lakebed.state.lists import Lists
from lakebed.state.runs import Runs
from lakebed.state.sources import Origins, Sources
from lakebed.state.written import Written
from lakebed.store.base import Store

_SOURCE = "lakebed.source"  # no field has a dot in its name
_SORTED_ROWS = 2**15  # passed to the writer at once
_SORTED_BYTES = 32 * MIB  # of rows that are sorted at once
_BYTES_AT_ONCE = 2**30  # files of one partition that one writer takes
LEAST_AT_ONCE = 8 * MIB  # of files; less is not worth another writer
_MOST_GAPS = 32  # of a batch, of which the rows between are not copied
_LEAST_RANGE = 1_024  # rows on average; shorter ranges take longer than a copy
_SORTED_LIMIT = 4 * _SORTED_BYTES  # for rows of very different lengths


class Routed(NamedTuple):
    """Some rows of a batch, and the partition that they belong to.

    Attributes:
        partition: Path of the partition; None to compute it from their values.
        rows: Mask, positions or range of the rows in the batch; None for all.
        batch: All rows of the batch as they will be written; None if they are unchanged.
        changed: Positions of the changed rows of the batch, for the declared checks, with the first
            of its parts; None if there are none, or with the other parts.
    """

    partition: str | None
    rows: np.ndarray | slice | None
    batch: pa.RecordBatch | None = None
    changed: np.ndarray | None = None


Route = Callable[[DataFile, pa.RecordBatch, int], Iterable[Routed]]
"""Decides where the rows of a batch go. The number counts the rows of the file before the batch;
it has no meaning where rows are sorted."""


def file_partition(file: DataFile) -> str:
    """Return the path of a file's partition."""
    return partition_of_label(file.label)


def keep(file: DataFile, _: pa.RecordBatch, __: int) -> Iterable[Routed]:
    """Leave rows in their partition."""
    return (Routed(file_partition(file), None),)


def kept_parts(is_kept: np.ndarray) -> list[np.ndarray | slice | None]:
    """Return the rows to keep in the form of `Routed.rows`; ranges where few rows are left out.

    The rows of a range are not copied.
    """
    gone = np.flatnonzero(~is_kept)
    if not len(gone):
        return [None]
    if len(gone) > min(_MOST_GAPS, len(is_kept) // _LEAST_RANGE):
        return [is_kept]
    starts, ends = [0, *(gone + 1).tolist()], [*gone.tolist(), len(is_kept)]
    return [slice(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Share of a rewrite for one writer.

    Attributes:
        groups: Files in the order in which they are read; rows are sorted within a group.
        run: Run of all the files; None if it has no name.
        origins: Raw files of the rows, by label; of all files, or of none.
        kept: Raw files whose rows are written; None for all.
        row_count: Number of rows to write, if it is known.
    """

    groups: tuple[tuple[DataFile, ...], ...]
    run: str | None = None
    origins: Mapping[str, Origins] = field(default_factory=dict)
    kept: frozenset[str] | None = None
    row_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """Options of a rewrite. Travels to Spark tasks.

    Attributes:
        layout: Layout of the dataset, by which the files are read.
        target: Batch of the new files.
        route: Decides where rows go; rows that it leaves out are dropped.
        columns: Columns that `route` needs besides the fields.
        sort_by: Fields that the rows of a group are sorted by; empty to leave them in order.
        is_checked: True if the new files are read back, and compared with the rows that were read.
        drops_rows: True if `route` may leave rows out; then the new files are compared with the rows
            that it kept.
    """

    layout: Layout
    target: BatchTarget
    route: Route = keep
    columns: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    is_checked: bool = True
    drops_rows: bool = False


def divide(
    groups: Sequence[tuple[DataFile, ...]], runs: Runs, sources: Sources
) -> dict[tuple[str | None, bool], list[tuple[DataFile, ...]]]:
    """Divide groups of files that must not share a new file.

    Returns:
        Groups by run, and by whether the raw files of their rows are known.
    """
    divided: dict[tuple[str | None, bool], list[tuple[DataFile, ...]]] = {}
    for group in groups:
        parts: dict[tuple[str | None, bool], list[DataFile]] = {}
        for file in group:
            key = (runs.of(file.label), file.label in sources.runs)
            parts.setdefault(key, []).append(file)
        for key, files in parts.items():
            divided.setdefault(key, []).append(tuple(files))
    return divided


def work_of(
    key: tuple[str | None, bool],
    groups: Sequence[tuple[DataFile, ...]],
    sources: Sources,
    recorded: Mapping[str, Recorded],
    row_count: int | None = None,
) -> Work:
    """Return the work of one writer on groups of one key of `divide`.

    Args:
        key: Key of the groups.
        groups: Groups of files.
        sources: Raw files of their rows.
        recorded: Recorded facts of the files, by label: a damaged file would otherwise become the
            valid content of a new file.
        row_count: Number of their rows, if it is known.
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
        row_count=row_count,
    )


def works_on(store: Store, lists: Lists, files: Sequence[DataFile], workers: Workers) -> list[Work]:
    """Divide files to rewrite among writers.

    Files of one partition come together, so that their rows make few new files, unless they are of
    different runs, or the raw files of only some of them are known.

    Args:
        store: Store that holds the dataset.
        lists: Lists of the state that the files belong to.
        files: Files in the order in which they are read.
        workers: The workers among which they are divided.

    Cost:
        The file table, and the few objects that record the origins of the files.
    """
    if not files:
        return []
    labels = [file.label for file in files]
    counts = file_table.read_counts(store, lists.files, labels)
    noted = sources.read(store, lists.sources)
    recorded = file_table.read_recorded(store, lists.files, labels)
    sizes = {label: size for label, (_, size) in counts.items()}
    total_bytes = sum(sizes.get(label, 0) for label in labels)
    count = workers.count_for(total_bytes, len(files))
    # So that a dataset of one partition also has work for all writers.
    at_once = min(_BYTES_AT_ONCE, max(LEAST_AT_ONCE, -(-total_bytes // count)))
    works = []
    by_kind = divide(_by_partition(files, sizes, at_once), runs.read(store, lists), noted)
    for kind, of_kind in by_kind.items():
        by_number = {
            f"{number:09d}": sum(sizes.get(file.label, 0) for file in group)
            for number, group in enumerate(of_kind)
        }
        for names in balanced_groups(by_number, count):
            share = [of_kind[int(name)] for name in sorted(names)]
            own = [file.label for group in share for file in group]
            rows = [counts[label][0] for label in own if label in counts]
            row_count = sum(rows) if len(rows) == len(own) else None
            works.append(work_of(kind, share, noted, recorded, row_count))
    return works


def _by_partition(
    files: Sequence[DataFile], sizes: Mapping[str, int], at_once: int
) -> list[tuple[DataFile, ...]]:
    """Group files of one partition, up to some bytes a group."""
    by_partition: dict[str, list[list[DataFile]]] = {}
    room: dict[str, int] = {}
    for file in files:
        partition, size = file_partition(file), sizes.get(file.label, 0)
        if room.get(partition, -1) < size:
            by_partition.setdefault(partition, []).append([])
            room[partition] = max(size, at_once)
        by_partition[partition][-1].append(file)
        room[partition] -= size
    return [tuple(group) for groups in by_partition.values() for group in groups]


def rewrite_all(
    workers: Workers,
    store: Store,
    job: RewriteJob,
    works: Sequence[Work],
    *,
    on_read: OnFileDone = NO_PROGRESS,
) -> list[Written]:
    """Rewrite files, one work for each worker.

    Args:
        workers: Workers that run the works.
        store: Store that holds the files.
        job: Options of the rewrite.
        works: Works to run, as of `works_on`.
        on_read: Receives the label of each file that has been read, as far as workers can report.

    Returns:
        Result of each work.

    Raises:
        DamagedFileError: A file differs from its recorded facts. The new files are deleted.
        CorruptMetadataError: The new files do not hold the rows of the old ones, each of them once.
            The new files are deleted.
        LakebedError: A file cannot be read, or the store failed. The new files are deleted.

    Cost:
        The files, read and written once, and the new ones read once more if they are checked. From
        each task of Spark come some hundred bytes for each new file.
        Memory: that of one writer and of one compressed file a thread; see `lakebed.arrow.intact`.
    """
    report = NO_PROGRESS if on_read is NO_PROGRESS else workers.listening(on_read)

    def work_on(work: Work) -> Written:
        return rewrite(store, job, work, report)

    return gather(
        store, workers.map(work_on, works, Written), lambda written: written.keys(job.target)
    )


def rewrite(
    store: Store, job: RewriteJob, work: Work, on_read: OnFileDone = NO_PROGRESS
) -> Written:
    """Rewrite the files of one work; see `rewrite_all`."""
    target = replace(job.target, is_traced=bool(work.origins))
    sources = _Numbers()
    read, given = RowDigest(), dict[str, RowDigest]()
    writer = KernelWriter(store, target)
    try:
        for group in work.groups:
            rows = _rows(store, job, work, group, sources, on_read)
            for file, batch, numbers, start in _sorted(rows, job) if job.sort_by else rows:
                names = job.layout.descriptor.schema.names
                hashes = row_hashes(batch.select(names)) if job.is_checked else None
                if hashes is not None:
                    read += RowDigest.of(hashes)
                for partition, chosen, changed, places in job.route(file, batch, start):
                    whole = batch if changed is None else changed
                    if places is not None:
                        writer.judge_changed(whole.select(names).take(pa.array(places)))
                    part, part_numbers = _chosen(whole, numbers, chosen)
                    if partition is None:
                        writer.write(
                            part.select(names), part_numbers, _provided(job, file), is_judged=True
                        )
                        continue
                    writer.write_to(partition, part.select(names), part_numbers)
                    if hashes is not None:
                        of_part = hashes if chosen is None else hashes[chosen]
                        before = given.get(partition, RowDigest())
                        given[partition] = before + RowDigest.of(of_part)
        written = writer.finish(sources.names)
        if job.is_checked:
            _check_read(target.dataset, read, work.row_count)
            whole = sum(given.values(), RowDigest()) if job.drops_rows else read
            _check_written(target.dataset, whole, given, _read_back(store, job, written.labels))
    except BaseException:
        writer.abort()
        raise
    carried = {} if work.run is None else dict.fromkeys(written.labels, work.run)
    return replace(written, carried=carried)


def _provided(job: RewriteJob, file: DataFile) -> dict[str, Scalar]:
    """Return the partition fields of a file that cannot be computed from its rows."""
    functions = job.target.descriptor.partition_by
    return {f.name: file.partition[f.name] for f in functions if not f.takes_source}


def _check_read(dataset: str, read: RowDigest, expected_count: int | None) -> None:
    if expected_count is not None and read.row_count != expected_count:
        raise _differ(dataset, f"{read.row_count} rows were read, but {expected_count} recorded")


def _check_written(
    dataset: str, read: RowDigest, given: Mapping[str, RowDigest], now: Mapping[str, RowDigest]
) -> None:
    """Check that the new files hold the rows that were read, each of them once.

    Args:
        dataset: Name of the dataset.
        read: Digest of all rows to write.
        given: Digests of the rows that were passed to the writer, by partition.
        now: Digests of the new files, as they were read back, by partition.

    Raises:
        CorruptMetadataError: They do not hold these rows.
    """
    if sum(given.values(), RowDigest()) != read:
        raise _differ(dataset, "the rows that were divided are not those that were read")
    for partition in given.keys() | now.keys():
        before = given.get(partition, RowDigest())
        after = now.get(partition, RowDigest())
        if before != after:
            where = f"partition {partition!r}" if partition else "the dataset"
            how = (
                f"{after.row_count} rows instead of {before.row_count}"
                if after.row_count != before.row_count
                else "rows with other values"
            )
            raise _differ(dataset, f"the new files of {where} hold {how}")


def _differ(dataset: str, how: str) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Rewritten files of {dataset!r} differ from the old ones: {how}.",
        hint="Nothing was committed, and the old files are unchanged. Run check.",
    )


class _Numbers:
    """Numbers for the keys of raw files, in order of their first use."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._by_name: dict[str, int] = {}

    def of(self, name: str) -> int:
        if name not in self._by_name:
            self._by_name[name] = len(self.names)
            self.names.append(name)
        return self._by_name[name]


_Rows = Iterator[tuple[DataFile, pa.RecordBatch, np.ndarray | None, int]]


def _rows(
    store: Store,
    job: RewriteJob,
    work: Work,
    group: Sequence[DataFile],
    sources: _Numbers,
    on_read: OnFileDone,
) -> _Rows:
    """Yield the rows to write, with the numbers of their raw files if known.

    Also yields the number of rows of their file before them.
    """
    columns = tuple(dict.fromkeys((*job.layout.descriptor.schema.names, *job.columns)))
    for file in group:
        plain = replace(file, is_filtered=False)
        alone = Scan(layout=job.layout, files=(plain,))
        numbers = None
        if work.origins:
            runs = work.origins[file.label]
            known = np.array([sources.of(key) for key, _ in runs], np.int32)
            numbers = np.repeat(known, [count for _, count in runs])
        is_kept = _is_kept(work, numbers, sources)
        start = 0
        with scan.scan(store, alone, columns) as batches:
            for batch in batches:
                end = start + batch.num_rows
                if numbers is None:
                    yield file, batch, None, start
                elif end > len(numbers):
                    raise _disagree(file, f"{end} rows or more", len(numbers))
                elif is_kept[start:end].all():
                    yield file, batch, numbers[start:end], start
                else:
                    rows = is_kept[start:end]
                    yield file, batch.filter(pa.array(rows)), numbers[start:end][rows], start
                start = end
        if numbers is not None and start != len(numbers):
            raise _disagree(file, f"{start} rows", len(numbers))
        on_read(file.label)


def _is_kept(work: Work, numbers: np.ndarray | None, sources: _Numbers) -> np.ndarray:
    """Return a mask of the rows of a file to write, by the numbers of their raw files."""
    if numbers is None or work.kept is None:
        return np.ones(0 if numbers is None else len(numbers), np.bool_)
    kept = [number for number, name in enumerate(sources.names) if name in work.kept]
    return np.isin(numbers, np.array(kept, np.int32))


def _disagree(file: DataFile, rows: str, noted: int) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"Data file {file.key} has {rows}, but {noted} were recorded when it was written.",
        hint="It was replaced from outside: restore it from a copy.",
    )


def _chosen(
    batch: pa.RecordBatch, numbers: np.ndarray | None, rows: np.ndarray | slice | None
) -> tuple[pa.RecordBatch, np.ndarray | int]:
    if rows is None:
        return batch, 0 if numbers is None else numbers
    if isinstance(rows, slice):
        part = batch.slice(rows.start, rows.stop - rows.start)
    else:
        part = batch.filter(pa.array(rows)) if rows.dtype == bool else batch.take(pa.array(rows))
    return part, 0 if numbers is None else numbers[rows]


def _sorted(rows: _Rows, job: RewriteJob) -> _Rows:
    """Yield the rows of a group in order; the sort is stable.

    They wait in a temporary file, which is mapped into memory while it is read.
    """
    first = next(rows, None)
    if first is None:
        return
    file, batch, numbers, _ = first
    schema = batch.schema.append(pa.field(_SOURCE, pa.int32()))
    marked = (_marked(batch, numbers, schema) for _, batch, numbers, _ in chain((first,), rows))
    with _translating(), tempfile.TemporaryDirectory(prefix="lakebed-") as directory:
        path = os.path.join(directory, "rows")  # noqa: PTH118 - pyarrow takes text
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            for batch in _not_tiny(marked):
                writer.write_batch(batch)
        with pa.memory_map(path) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
            for batch in _in_order(table, job.sort_by):
                marks = batch.column(_SOURCE).to_numpy() if numbers is not None else None
                yield file, batch.drop_columns([_SOURCE]), marks, 0
            del table


def _not_tiny(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: sorting rows looks at each batch many times."""
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

    The rows of a column are never joined as a whole: they may not fit into memory, and texts of
    more than 2 GiB do not fit into one array.
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
        part = pa.Table.from_batches(
            [
                batch.take(pa.array(places[low:high] - start))
                for batch, start, low, high in zip(
                    batches, starts, cuts[:-1], cuts[1:], strict=True
                )
                if low < high
            ]
        )
        if part.nbytes > _SORTED_LIMIT and len(rows) > 1:
            todo += [rows[len(rows) // 2 :], rows[: len(rows) // 2]]  # this part holds long texts
            continue
        back = np.empty_like(rows)
        back[ascending] = np.arange(len(rows))
        taken = part.combine_chunks().take(pa.array(back)).combine_chunks()
        yield from taken.to_batches(max_chunksize=_SORTED_ROWS)


def _marked(batch: pa.RecordBatch, numbers: np.ndarray | None, schema: pa.Schema) -> pa.RecordBatch:
    marks = np.zeros(batch.num_rows, np.int32) if numbers is None else numbers
    return pa.RecordBatch.from_arrays([*batch.columns, pa.array(marks, pa.int32())], schema=schema)


class _translating:  # noqa: N801 - a context manager, as a function would be
    """Translate errors of the system for temporary files."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError(
                f"Cannot hold rows in a temporary file in {tempfile.gettempdir()}: {error}",
                hint="Free some room there, or set TMPDIR to another directory.",
            ) from error


def _read_back(store: Store, job: RewriteJob, labels: Sequence[str]) -> dict[str, RowDigest]:
    """Read new files, and return the digest of each partition."""
    target = job.target
    new = job.layout.as_of(target.descriptor)
    digests: dict[str, RowDigest] = {}
    for label in labels:
        file = DataFile(
            key=target.key(label),
            label=label,
            partition=new.directory_values(split_label(label)[0]),
            is_filtered=False,
            schema_number=target.schema_number,
        )
        alone = Scan(layout=new, files=(file,))
        digest = RowDigest()
        with scan.scan(store, alone, target.descriptor.schema.names) as batches:
            for batch in batches:
                digest += RowDigest.of(row_hashes(batch))
        partition = file_partition(file)
        digests[partition] = digests.get(partition, RowDigest()) + digest
    return digests
