"""Raw files into data files: fitting rows are staged, the others are set aside."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.arrow.reading.census import Census
from lakebed.arrow.reading.chunks import Chunk, FormatReader, Reject, RejectKind
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import FileFormat, RawFile, Watch, contents_of, reading
from lakebed.arrow.reading.level_columns import LevelReader
from lakebed.arrow.reading.packs import packs_of
from lakebed.arrow.reading.rejects import WAITING
from lakebed.arrow.reading.rows import is_damage, open_reader
from lakebed.arrow.reading.unknown import Ignored, Unknown
from lakebed.arrow.row_checks import Judged
from lakebed.arrow.workers import Threads, Workers, gather
from lakebed.common.grouping import balanced_groups
from lakebed.common.progress import NO_PROGRESS
from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    InvalidInputError,
    PartitionSpecError,
    ReadOnlyError,
    SchemaMismatchError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import staging_folder
from lakebed.state.sources import RawContent
from lakebed.state.written import Written, joined
from lakebed.store.base import Store, delete_or_leave

# Rejects are gathered up to this size before they are written to a file.
_REJECT_BYTES = 32 * 2**20
# Searching for single lines that do not fit takes long where none fits.
ENOUGH_REJECTS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An ingest of files. Travels to Spark tasks.

    Attributes:
        target: Batch that receives the rows.
        format: Format of the files.
        csv: Notation of CSV files.
        json: Notation of JSON files.
        rejects_files: True if a file whose header or schema does not fit is set aside as a
            whole, instead of being an error.
        stops_early: True if a worker stops at `ENOUGH_REJECTS`, since the result will not be used.
        unknown: Rule for fields that the dataset lacks.
        is_hashing: True if the contents of the files are hashed as they are read.
    """

    target: BatchTarget
    format: FileFormat
    csv: CsvOptions
    json: JsonOptions
    unknown: Unknown = "reject"
    rejects_files: bool = False
    stops_early: bool = False
    is_hashing: bool = False

    def watch(self, file: RawFile) -> Watch:
        """Return a watch for a file that is opened."""
        return Watch(is_hashing=self.is_hashing, first_bytes=file.first_bytes)

    def open_reader(self) -> LevelReader:
        """Return the reader of the files."""
        return open_reader(self.format, self.target.descriptor, self.csv, self.unknown, self.json)

    def new_reject_key(self) -> str:
        """Return a unique key for rejects, in the staging of the batch."""
        return f"{staging_folder(self.target.dataset, self.target.batch_id)}/{uuid.uuid4().hex}.parquet"


@dataclass(frozen=True, slots=True)
class Counts:
    """Result of one file.

    Attributes:
        row_count: Rows that were staged.
        rejected_count: Lines, or rests of damaged files, that were rejected.
        is_damaged: True if its content differs from the stored one, so no row of it was taken.
        rest_count: Number of rejects that are rests of the file, whose extent is unknown.
        unknown_count: Number of rejects for a field that the dataset lacks.
        mismatch_count: Number of rejects for a value that does not fit its field.
        reason: Reason of the first reject; empty if there is none.
        refusal: Reason why the whole file is one reject, as its header or schema does not fit; else
            empty.
        refused_row_count: Rows of a refused file; None where they cannot be counted.
        ignored: Fields that were left out of the rows.
        content: Size and hash of the bytes that were read; None if they were not hashed.
        first_content: The first bytes of it, so many as asked for; None if it has fewer.
    """

    row_count: int
    rejected_count: int
    is_damaged: bool = False
    rest_count: int = 0
    unknown_count: int = 0
    mismatch_count: int = 0
    reason: str = ""
    refusal: str = ""
    refused_row_count: int | None = None
    ignored: Ignored = field(default_factory=Ignored)
    content: RawContent | None = None
    first_content: RawContent | None = None

    @property
    def is_cut(self) -> bool:
        """True if the file could not be read to its end."""
        return self.rest_count > 0

    @property
    def is_whole(self) -> bool:
        """True if one reject stands for the whole file."""
        return self.is_damaged or bool(self.refusal)

    @property
    def line_count(self) -> int:
        """Number of rejects that are lines or rows."""
        return 0 if self.is_whole else self.rejected_count - self.rest_count

    @property
    def rejected_share(self) -> float:
        """Share of the rejects, from 0 to 1."""
        return self._share_of(self.rejected_count)

    @property
    def mismatch_share(self) -> float:
        """Share of the rejects for a value that does not fit its field, from 0 to 1."""
        return self._share_of(self.mismatch_count)

    def _share_of(self, count: int) -> float:
        total = self.row_count + self.rejected_count
        return count / total if total else 0.0


OnFile = Callable[[str, Counts], None]
"""Receives the location of each file that has been read, and its counts."""


OnRows = Callable[[int, int], None]
"""Receives, for a file in progress, the number of further rows and its bytes so far."""

_ROWS_TOLD, _BYTES_TOLD = 100_000, 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """Result of some files. Travels from Spark tasks.

    Attributes:
        written: Staged rows; their origins are locations, if the target is traced.
        reject_keys: Keys of the temporary files that hold the rejects.
        rejected_count: Number of rejects in them.
        counts: Results of the files, by location.
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
        LakebedError: As of `sift`; the files of the workers are deleted.

    Cost:
        As `sift`. Each task of Spark returns some hundred bytes for each file that was written.
    """
    groups = _groups_of(workers, files)
    # Workers cannot see one another: each admits its share of the values that caps leave room for.
    job = replace(job, target=replace(job.target, admitting_writers=len(groups)))
    report_once = _ReportingOnce(on_file)
    report = NO_PROGRESS if on_file is NO_PROGRESS else workers.listening(report_once)
    # Tasks that fail are run again, and would report rows twice.
    report_rows = on_rows if isinstance(workers, Threads) and workers.count == 1 else NO_PROGRESS

    def sift_group(group: Sequence[RawFile]) -> Sifted:
        return sift(store, job, group, report, report_rows)

    parts = gather(
        store, workers.map(sift_group, groups, Sifted), lambda part: part.keys(job.target)
    )
    counts = {location: became for part in parts for location, became in part.counts.items()}
    for location, became in counts.items():
        report_once(location, became)
    empty = Written.nothing(job.target.descriptor.file_schema)
    return Sifted(
        written=joined([empty, *(part.written for part in parts)]),
        reject_keys=tuple(key for part in parts for key in part.reject_keys),
        rejected_count=sum(part.rejected_count for part in parts),
        counts=counts,
    )


def census_of(
    workers: Workers,
    files: Sequence[RawFile],
    format: FileFormat,  # noqa: A002 - the word of the option
    descriptor: DatasetDescriptor,
    csv: CsvOptions,
    json: JsonOptions | None = None,
) -> Census:
    """Return the contents of fields that the dataset lacks, divided among workers.

    A file that cannot be read, or whose header does not fit, adds nothing.

    Cost:
        As `FormatReader.census` for each file.
    """
    groups = _groups_of(workers, files)

    def count(group: Sequence[RawFile]) -> Census:
        reader, census = open_reader(format, descriptor, csv, "keep", json), Census()
        for file in group:
            with contextlib.suppress(InvalidInputError, FormatError), reading(file.location):
                census.add(reader.census(file.looked_at()))
        return census

    whole = Census()
    for part in workers.map(count, groups, Census):
        whole.add(part)
    return whole


def _groups_of(workers: Workers, files: Sequence[RawFile]) -> list[list[RawFile]]:
    """Divide files into groups of about equal size."""
    if workers.count <= 1:
        return [list(files)]
    by_location = {file.location: file for file in files}
    sizes = {file.location: file.size_bytes for file in files}
    return [
        [by_location[location] for location in group]
        for group in balanced_groups(sizes, workers.count_for(sum(sizes.values()), len(sizes)))
    ]


class _ReportingOnce:
    """Passes on each file once, however often it is reported."""

    def __init__(self, on_file: OnFile) -> None:
        self._on_file = on_file
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, location: str, counts: Counts) -> None:
        with self._lock:
            if location not in self._reported:  # a task that failed is run again
                self._reported.add(location)
                self._on_file(location, counts)


def sift(
    store: Store,
    job: Job,
    files: Sequence[RawFile],
    on_file: OnFile = NO_PROGRESS,
    on_rows: OnRows = NO_PROGRESS,
) -> Sifted:
    """Stage the rows that fit, and set the others aside, with the reason.

    A file that cannot be decoded gives the rows before the damage, and one reject for the rest. A
    file without its expected hash gives one reject and no row.

    Raises:
        InvalidInputError: A file cannot be opened, or its header does not fit.
        LakebedError: The store failed. What was written is deleted.

    Cost:
        One pass over the files. Where rows do not fit, their chunks are read a few times more.
    """
    writer, rejects = KernelWriter(store, job.target), _RejectWriter(store, job)
    reader = job.open_reader()
    # Declared checks set single rows aside, with the lines that they come from.
    is_packing = reader.reads_packs and not job.target.descriptor.checks
    one_by_one: Iterator[tuple[Sequence[RawFile], list[bytes]]] = (([file], []) for file in files)
    counts: dict[str, Counts] = {}
    try:
        packs = packs_of(files, is_hashing=job.is_hashing) if is_packing else one_by_one
        for pack, texts in packs:
            for file, became in _sift_pack(
                pack, texts, len(counts), job, reader, writer, rejects, on_rows
            ):
                counts[file.location] = became
                on_file(file.location, became)
                if rejects.is_enough:
                    break
            if rejects.is_enough:
                break
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


def _sift_pack(
    files: Sequence[RawFile],
    texts: Sequence[bytes],
    first: int,
    job: Job,
    reader: LevelReader,
    writer: KernelWriter,
    rejects: _RejectWriter,
    on_rows: OnRows,
) -> Iterator[tuple[RawFile, Counts]]:
    """Stage the rows of files, together where all lines fit; yield each file with its counts.

    Args:
        files: The files.
        texts: Their contents, if they may be read together.
        first: Number of the first file.
        job: The ingest.
        reader: Reader of the files.
        writer: Receives the rows.
        rejects: Receives the lines that do not fit.
        on_rows: Receives the progress within large files.
    """
    if len(texts) > 1:
        row_counts = _write_pack(files, texts, first, reader, writer)
        if row_counts is not None:
            for file, count in zip(files, row_counts, strict=True):
                yield file, _hashed(Counts(count, 0), file)
            return
        middle = len(files) // 2
        for part in (slice(0, middle), slice(middle, len(files))):
            yield from _sift_pack(
                files[part], texts[part], first + part.start, job, reader, writer, rejects, on_rows
            )
        return
    for number, file in enumerate(files, first):
        try:
            looked_at = file.looked_at()
        except FormatError as exc:
            rejects.begin()
            rejects.add(file, Reject(exc.message, 1, b"", exc.hint, "file"))
            yield file, Counts(0, 1, is_damaged=True)
        else:
            watched = replace(looked_at, watch=job.watch(file))
            counts = _sift_file(watched, number, job, reader, writer, rejects, on_rows)
            yield file, _hashed(counts, watched) if job.is_hashing else counts


def _hashed(counts: Counts, file: RawFile) -> Counts:
    """Return counts with the content of a file, which is read once more if it was not read to its end."""
    read = None if file.watch is None else file.watch.bytes_read
    if read is not None and read.is_ended:
        return replace(counts, content=read.content, first_content=read.first)
    if file.watch is None or counts.is_whole:
        return counts
    with reading(file.location):
        size = file.first_bytes
        content, parts = contents_of(replace(file, watch=None), () if size is None else (size,))
    first = None if size is None else parts.get(size)
    return replace(counts, content=content, first_content=first)


def _write_pack(
    files: Sequence[RawFile],
    texts: Sequence[bytes],
    first: int,
    reader: LevelReader,
    writer: KernelWriter,
) -> list[int] | None:
    """Write the rows of files, and return how many each has; None if some row may not fit."""
    try:
        pack = reader.pack_files(files, texts)
        if pack is None:
            return None
        checked = writer.checked(pack.rows, is_derived=pack.is_derived)
    except ReadOnlyError:
        raise
    except InvalidInputError:
        return None
    numbers = np.arange(first, first + len(files), dtype=np.int32)
    writer.write_checked(checked, np.repeat(numbers, pack.row_counts))
    return pack.row_counts


def _sift_file(
    file: RawFile,
    number: int,
    job: Job,
    reader: FormatReader,
    writer: KernelWriter,
    rejects: _RejectWriter,
    on_rows: OnRows,
) -> Counts:
    """Stage the rows of one file; return its counts."""
    rejects.begin()
    refusal = None
    if job.rejects_files and not reader.checks_in_chunks:
        refusal = _refusal(file, reader)
    if refusal is not None:
        return _refuse(file, refusal, rejects)
    row_count = told_count = told_bytes = 0
    ignored = Ignored()
    with reading(file.location):
        pieces = reader.chunks(file)
    try:
        piece = _next_piece(pieces, file)
    except (SchemaMismatchError, PartitionSpecError) as exc:
        if not (job.rejects_files and reader.checks_in_chunks):
            raise
        return _refuse(file, _refusal_for(exc, file, reader), rejects)
    while piece is not None and not rejects.is_enough:
        if isinstance(piece, Reject):
            rejects.add(file, piece)
        else:
            added, left_out = _add(piece, file, number, writer, rejects)
            row_count, ignored = row_count + added, ignored + left_out
            position = 0 if file.watch is None else file.watch.position
            is_far = position - told_bytes >= _BYTES_TOLD
            if is_far or row_count - told_count >= _ROWS_TOLD:
                on_rows(row_count - told_count, position)
                told_count, told_bytes = row_count, position
        piece = None if rejects.is_enough else _next_piece(pieces, file)
    return Counts(
        row_count,
        rejects.of_file["line"] + rejects.of_file["rest"],
        rest_count=rejects.of_file["rest"],
        unknown_count=rejects.unknown_count,
        mismatch_count=rejects.mismatch_count,
        reason=rejects.first_reason,
        ignored=ignored,
    )


def _refusal(file: RawFile, reader: FormatReader) -> Reject | None:
    """Return the reason why a whole file does not fit; None if it does, or is damaged."""
    try:
        with reading(file.location):
            reader.check(file)
    except (SchemaMismatchError, PartitionSpecError) as exc:
        return _refusal_for(exc, file, reader)
    except InvalidInputError as exc:
        if not is_damage(exc):
            raise
    return None


def _refusal_for(cause: InvalidInputError, file: RawFile, reader: FormatReader) -> Reject:
    """Return the reject of a whole file."""
    row_count = None
    with contextlib.suppress(InvalidInputError), reading(file.location):
        row_count = reader.count(file)
    reason = cause.message.removeprefix(f"{file.location}: ")
    return Reject(reason, 1, b"", cause.hint, "file", row_count)


def _refuse(file: RawFile, refusal: Reject, rejects: _RejectWriter) -> Counts:
    rejects.add(file, refusal)
    return Counts(0, 1, refusal=refusal.reason, refused_row_count=refusal.row_count)


def _next_piece(pieces: Iterator[Chunk | Reject], file: RawFile) -> Chunk | Reject | None:
    with reading(file.location):
        return next(pieces, None)


def _add(
    chunk: Chunk, file: RawFile, number: int, writer: KernelWriter, rejects: _RejectWriter
) -> tuple[int, Ignored]:
    """Write a chunk, or split it until only the rows that do not fit are left.

    Returns:
        Number of rows that were written, and the fields that were left out of them.
    """
    waiting, row_count, ignored = [chunk], 0, Ignored()
    while waiting and not rejects.is_enough:
        part = waiting.pop()
        try:
            checked = writer.checked(part.batch(), is_derived=part.is_derived)
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
            judged = writer.write_checked(checked, number)
            row_count += checked.rows.num_rows
            ignored += part.ignored
            if judged is not None:
                row_count -= checked.rows.num_rows - int(np.count_nonzero(judged.is_kept))
                _set_aside(part, judged, file, rejects)
    return row_count, ignored


def _set_aside(chunk: Chunk, judged: Judged, file: RawFile, rejects: _RejectWriter) -> None:
    """Reject the rows of a chunk that declared checks send to the quarantine."""
    for row, reason in zip(judged.quarantined.tolist(), judged.reasons, strict=True):
        reject = chunk.part(row, row + 1).reject(InvalidInputError(reason))
        rejects.add(file, replace(reject, is_mismatch=False))


def _row_of(chunk: Chunk, cause: InvalidInputError) -> int | None:
    """Return the row of a chunk that an error is about, if it is known."""
    if len(chunk) == 1:
        return 0
    return cause.row if isinstance(cause, SchemaMismatchError) else None


class _RejectWriter:
    """Writes rejects to files that nothing refers to."""

    def __init__(self, store: Store, job: Job) -> None:
        self._store = store
        self._job = job
        self._rows: list[dict[str, object]] = []
        self._row_bytes = 0
        self.keys: list[str] = []
        self.count = 0
        self.begin()

    @property
    def is_enough(self) -> bool:
        return self._job.stops_early and self.count >= ENOUGH_REJECTS

    def begin(self) -> None:
        """Begin a file."""
        self.of_file: Counter[RejectKind] = Counter()
        self.unknown_count = self.mismatch_count = 0
        self.first_reason = ""

    def add(self, file: RawFile, reject: Reject) -> None:
        self._rows.append(
            {
                "reason": reject.reason,
                "source_file": file.location,
                "line_number": reject.line_number,
                "line": reject.line,
                "kind": reject.kind,
                "row_count": reject.row_count,
                "hint": reject.hint,
            }
        )
        self._row_bytes += len(reject.line) + len(reject.reason)
        self.count += 1
        self.of_file[reject.kind] += 1
        self.first_reason = self.first_reason or reject.reason
        self.unknown_count += reject.is_unknown
        self.mismatch_count += reject.is_mismatch
        if self._row_bytes >= _REJECT_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._rows:
            return
        sink = pa.BufferOutputStream()
        rows = pa.Table.from_pylist(self._rows, WAITING)
        pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
        key = self._job.new_reject_key()
        self.keys.append(key)
        self._store.put(key, sink.getvalue())
        self._rows, self._row_bytes = [], 0


def read_rejects(store: Store, keys: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rejects that `sift` wrote: `REJECTS`, and for each its kind, rows and a hint.

    Raises:
        CorruptMetadataError: A file differs from the one that was written.
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
                hint="They are kept there only during a call: repeat the call.",
            ) from exc
