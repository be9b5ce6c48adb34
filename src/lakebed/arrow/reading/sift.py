"""Raw files into data files: what fits is staged as rows, what does not is set aside."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.arrow.reading.chunks import Chunk, FormatReader, Reject
from lakebed.arrow.reading.files import CsvOptions, FileFormat, RawFile, reading
from lakebed.arrow.reading.rows import open_reader
from lakebed.arrow.workers import Threads, Workers, gather
from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    InvalidInputError,
    PartitionSpecError,
    ReadOnlyError,
    SchemaMismatchError,
)
from lakebed.model.grouping import balanced_groups
from lakebed.model.layout import staging_folder
from lakebed.model.progress import NO_PROGRESS
from lakebed.state.written import Written, joined
from lakebed.store.base import Store, delete_or_leave

# Rejects are gathered up to this size before they are set aside in a file.
_REJECT_BYTES = 32 * 2**20
# To look for the lines that do not fit one by one takes long where none does.
ENOUGH_REJECTS = 1_000

REJECTS = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("line_number", pa.int64(), nullable=False),
        pa.field("line", pa.binary(), nullable=False),
    ]
)
# While they wait, also what to do about them.
_WAITING = REJECTS.append(pa.field("hint", pa.string(), nullable=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be read, and where it goes. Travels to Spark tasks.

    Attributes:
        target: Where the rows go.
        format: Of the files.
        csv: How CSV is written.
        rejects_files: Whether a file whose header or schema does not fit is set aside as a
            whole, instead of being an error.
        stops_early: Whether a worker stops at `ENOUGH_REJECTS`, since nothing will be used.
    """

    target: BatchTarget
    format: FileFormat
    csv: CsvOptions
    rejects_files: bool = False
    stops_early: bool = False

    def open_reader(self) -> FormatReader:
        """Return what reads the files."""
        return open_reader(self.format, self.target.descriptor, self.csv)

    def new_reject_key(self) -> str:
        """Return a key for rejects that nobody else uses, in the staging of the batch."""
        return f"{staging_folder(self.target.dataset, self.target.batch_id)}/{uuid.uuid4().hex}.parquet"


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of one file.

    Attributes:
        row_count: Rows that were staged.
        rejected_count: Lines, or rests of damaged files, that were not.
        is_damaged: Whether it is not what was stored, so that nothing of it was taken.
        is_cut: Whether it could not be read to its end.
    """

    row_count: int
    rejected_count: int
    is_damaged: bool = False
    is_cut: bool = False

    @property
    def rejected_share(self) -> float:
        """The part that was not loaded; 1 of a file without rows, or whose end nobody knows."""
        if self.is_cut or not self.row_count:
            return 1.0
        return self.rejected_count / (self.row_count + self.rejected_count)


OnFile = Callable[[str, Counts], None]
"""Is told the location of each file that has been read, and what became of it."""


OnRows = Callable[[int], None]
"""Is told of rows of a file that is not read to its end yet, how many more they are."""

_ROWS_TOLD = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """What became of some files. Travels from Spark tasks.

    Attributes:
        written: The rows that were staged; their origins are locations, if the target is traced.
        reject_keys: Of the files that hold the rejects, for a while.
        rejected_count: How many rejects they hold.
        counts: What became of each file, by location.
    """

    written: Written
    reject_keys: tuple[str, ...]
    rejected_count: int
    counts: Mapping[str, Counts] = field(default_factory=dict)

    def keys(self, target: BatchTarget) -> tuple[str, ...]:
        """Return the keys of all objects that were written."""
        return (*self.written.keys(target), *self.reject_keys)


def sift_all(
    workers: Workers,
    store: Store,
    job: Job,
    files: Sequence[RawFile],
    on_file: OnFile = NO_PROGRESS,
    on_rows: OnRows = NO_PROGRESS,
) -> Sifted:
    """Sift files, divided among workers into groups of about equal size; see `sift`.

    `on_file` is called as files are read, or as tasks end; on Spark Connect, when all have.
    `on_rows` is called where one worker reads in this process.

    Raises:
        LakebedError: As of `sift`; what all workers have written is deleted.

    Cost:
        As `sift`. From each task of Spark come some hundred bytes for each file that was written.
    """
    groups = [list(files)]
    if workers.count > 1:
        by_location = {file.location: file for file in files}
        sizes = {file.location: file.size_bytes for file in files}
        groups = [
            [by_location[location] for location in group]
            for group in balanced_groups(sizes, workers.count)
        ]
    # Workers cannot see one another: each admits its part of the values that caps leave room for.
    job = replace(job, target=replace(job.target, admitting_writers=len(groups)))
    tell_once = _TellingOnce(on_file)
    tell = NO_PROGRESS if on_file is NO_PROGRESS else workers.telling(tell_once)
    # Tasks that fail are run again, and would tell of rows twice.
    tell_rows = on_rows if isinstance(workers, Threads) and workers.count == 1 else NO_PROGRESS

    def sift_group(group: Sequence[RawFile]) -> Sifted:
        return sift(store, job, group, tell, tell_rows)

    parts = gather(
        store, workers.map(sift_group, groups, Sifted), lambda part: part.keys(job.target)
    )
    counts = {location: became for part in parts for location, became in part.counts.items()}
    for location, became in counts.items():
        tell_once(location, became)
    empty = Written.nothing(job.target.descriptor.stored_schema)
    return Sifted(
        written=joined([empty, *(part.written for part in parts)]),
        reject_keys=tuple(key for part in parts for key in part.reject_keys),
        rejected_count=sum(part.rejected_count for part in parts),
        counts=counts,
    )


class _TellingOnce:
    """Passes on each file once, however often and from where it is told of it."""

    def __init__(self, on_file: OnFile) -> None:
        self._on_file = on_file
        self._told: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, location: str, counts: Counts) -> None:
        with self._lock:
            if location not in self._told:  # a task that failed is run again
                self._told.add(location)
                self._on_file(location, counts)


def sift(
    store: Store,
    job: Job,
    files: Sequence[RawFile],
    on_file: OnFile = NO_PROGRESS,
    on_rows: OnRows = NO_PROGRESS,
) -> Sifted:
    """Stage the rows of files, and set aside what does not fit, with the reason.

    A file that cannot be decoded gives the rows before the damage, and one reject for the rest;
    one that has not the hash that it shall have gives one reject and no row.

    Raises:
        InvalidInputError: A file cannot be opened, or its header does not fit.
        LakebedError: The store failed. What was written is deleted.

    Cost:
        One pass over the files. Where rows do not fit, their chunks are read some times more.
    """
    writer, rejects = KernelWriter(store, job.target), _RejectWriter(store, job)
    reader = job.open_reader()
    try:
        counts = {}
        for number, file in enumerate(files):
            if rejects.is_enough:
                break
            before = rejects.count
            try:
                looked_at = file.looked_at()
            except FormatError as exc:
                rejects.add(file, Reject(exc.message, 1, b"", exc.hint))
                counts[file.location] = Counts(0, 1, is_damaged=True)
            else:
                rejects.has_rest = False
                row_count = _sift_file(looked_at, number, job, reader, writer, rejects, on_rows)
                counts[file.location] = Counts(
                    row_count, rejects.count - before, is_cut=rejects.has_rest
                )
            on_file(file.location, counts[file.location])
        rejects.flush()
        return Sifted(
            written=writer.finish([file.location for file in files]),
            reject_keys=tuple(rejects.keys),
            rejected_count=rejects.count,
            counts=counts,
        )
    except BaseException:
        writer.abort()
        delete_or_leave(store, rejects.keys)
        raise


def _sift_file(
    file: RawFile,
    number: int,
    job: Job,
    reader: FormatReader,
    writer: KernelWriter,
    rejects: _RejectWriter,
    on_rows: OnRows,
) -> int:
    """Stage the rows of one file; return how many there are."""
    if job.rejects_files:
        try:
            with reading(file.location):
                reader.check(file)
        except (SchemaMismatchError, PartitionSpecError) as exc:
            rejects.add(file, Reject(exc.message, 1, b"", exc.hint))
            return 0
    row_count = told_count = 0
    with reading(file.location):
        pieces = reader.chunks(file)
    while not rejects.is_enough and (piece := _next_piece(pieces, file)) is not None:
        if isinstance(piece, Reject):
            rejects.add(file, piece)
        else:
            row_count += _add(piece, file, number, writer, rejects)
            if row_count - told_count >= _ROWS_TOLD:
                on_rows(row_count - told_count)
                told_count = row_count
    return row_count


def _next_piece(pieces: Iterator[Chunk | Reject], file: RawFile) -> Chunk | Reject | None:
    with reading(file.location):
        return next(pieces, None)


def _add(
    chunk: Chunk, file: RawFile, number: int, writer: KernelWriter, rejects: _RejectWriter
) -> int:
    """Write a chunk, or cut it until only the rows that do not fit are left.

    Returns:
        How many rows were written.
    """
    waiting, row_count = [chunk], 0
    while waiting and not rejects.is_enough:
        part = waiting.pop()
        try:
            checked = writer.checked(part.batch())
        except ReadOnlyError:
            raise
        except InvalidInputError as exc:
            row = _row_of(part, exc)
            if row is None:
                waiting += reversed(part.halves())
            else:
                rejects.add(file, part.part(row, row + 1).reject(exc))
                around = (part.part(row + 1, len(part)), part.part(0, row))
                waiting += [piece for piece in around if len(piece)]
        else:
            writer.write_checked(checked, number)
            row_count += checked.rows.num_rows
    return row_count


def _row_of(chunk: Chunk, cause: InvalidInputError) -> int | None:
    """Return which row of a chunk an error is about, if that is known."""
    if len(chunk) == 1:
        return 0
    return cause.row if isinstance(cause, SchemaMismatchError) else None


class _RejectWriter:
    """Sets rejects aside in files that nothing refers to."""

    def __init__(self, store: Store, job: Job) -> None:
        self._store = store
        self._job = job
        self._rows: list[dict[str, object]] = []
        self._row_bytes = 0
        self.keys: list[str] = []
        self.count = 0
        self.has_rest = False

    @property
    def is_enough(self) -> bool:
        return self._job.stops_early and self.count >= ENOUGH_REJECTS

    def add(self, file: RawFile, reject: Reject) -> None:
        self._rows.append(
            {
                "reason": reject.reason,
                "source_file": file.location,
                "line_number": reject.line_number,
                "line": reject.line,
                "hint": reject.hint,
            }
        )
        self._row_bytes += len(reject.line) + len(reject.reason)
        self.count += 1
        self.has_rest = self.has_rest or reject.is_rest
        if self._row_bytes >= _REJECT_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        sink = pa.BufferOutputStream()
        rows = pa.Table.from_pylist(self._rows, _WAITING)
        pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
        key = self._job.new_reject_key()
        self.keys.append(key)
        self._store.put(key, sink.getvalue())
        self._rows, self._row_bytes = [], 0


def read_rejects(store: Store, keys: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
    """Yield what `sift` has set aside: `REJECTS`, and a hint for each.

    Raises:
        CorruptMetadataError: It is not what was written.
    """
    for key in keys:
        try:
            with (
                store.open_input(key) as source,
                pq.ParquetFile(source, page_checksum_verification=True) as file,
            ):
                yield from file.iter_batches(batch_size=1_024)
        except (pa.ArrowException, OSError) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise
            raise CorruptMetadataError(
                f"Rejects in {key!r} cannot be read: {exc}.",
                hint="They wait there between two steps of a call: make the call again.",
            ) from exc
