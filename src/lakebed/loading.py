"""Reading raw files into a dataset: good lines become a batch, the others go to quarantine."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.files import CsvOptions, FileFormat, RawFile, find_files
from lakebed.arrow.reading.rows import check_files
from lakebed.arrow.reading.sift import (
    REJECTS,
    Job,
    OnFile,
    Sifted,
    read_rejects,
    sift_all,
    tell_nobody,
)
from lakebed.arrow.write import write_batches
from lakebed.commit import Commit
from lakebed.errors import (
    CommitConflictError,
    DatasetNotFoundError,
    InvalidInputError,
    ObjectExistsError,
    RejectsError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import encode_path, partition_of_label
from lakebed.model.names import check_dataset_name
from lakebed.model.values import Scalar
from lakebed.redaction import StorageOptions
from lakebed.spark.workers import workers_for
from lakebed.state import file_table, history, schema_file
from lakebed.state.commit import CommitOptions
from lakebed.state.creation import create, first_state
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.runs import noted_by
from lakebed.state.scope import Nothing, RunFiles, ThesePartitions
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store, delete_or_leave
from lakebed.writer import commit_staged, target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATION = "load"
MAX_REJECTS = 0.5  # damage spoils nearly all of a file or nearly nothing of it
QUARANTINE_SUFFIX = "_quarantine"
_TOLD_REJECTS = 3
_MAX_RUN_BYTES = 150  # it is a directory, percent-encoded

QUARANTINE = DatasetDescriptor(
    schema=pa.schema(
        [
            pa.field("run", pa.string(), nullable=False),
            *REJECTS,
            pa.field("loaded_at", pa.timestamp("us", tz="UTC"), nullable=False),
        ]
    ),
    partition_by="run",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How raw files are read.

    Attributes:
        csv: How CSV is written.
        storage_options: What the store of a URL needs to know; no display shows what may be secret.
        write: How data files are cut.
        commit: How long the commits fight for the head.
        provided: Values of `provided` partition fields, the same for all rows.
        fail_on_rejects: Whether to commit nothing, neither rows nor quarantine, if something does
            not fit.

    >>> LoadOptions(csv=CsvOptions(delimiter=";")).storage_options
    {}
    """

    csv: CsvOptions = field(default_factory=CsvOptions)
    storage_options: Mapping[str, str] = field(default_factory=dict)
    write: WriteOptions = field(default_factory=WriteOptions)
    commit: CommitOptions = field(default_factory=CommitOptions)
    provided: Mapping[str, Scalar] = field(default_factory=dict)
    fail_on_rejects: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    r"""What became of raw files.

    Attributes:
        commit: Of the rows, one batch.
        quarantine: Name of the dataset that holds what did not fit.
        quarantine_commit: Of what did not fit; None if everything did.
        run: Name of the run, by which the quarantine is partitioned.
        row_count: Rows that were loaded.
        rejected_count: Lines, or rests of damaged files, that were not.
        file_count: Files that were read.
        size_bytes: Of the files, as they lie there.
        is_repeated: Whether the run had been loaded before, so that nothing was done now.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from lakebed import open_repository
    >>> schema = pa.schema([("n", pa.int64())])
    >>> numbers = open_repository("memory://doctest-load").create(
    ...     "numbers", DatasetDescriptor(schema=schema)
    ... )
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory) / "numbers.jsonl"
    ...     _ = path.write_text('{"n": 1}\n{"n": "one"}\n', encoding="utf-8")
    ...     report = numbers.load(path)
    >>> report.row_count, report.rejected_count, report.quarantine
    (1, 1, 'numbers_quarantine')
    """

    commit: Commit
    quarantine: str
    quarantine_commit: Commit | None
    run: str
    row_count: int
    rejected_count: int
    file_count: int
    size_bytes: int
    is_repeated: bool = False


def load(
    store: Store,
    name: str,
    paths: object,
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    run: str | None,
    spark: SparkSession | Literal[True] | None,
    quarantine: str | None,
    options: LoadOptions,
) -> LoadReport:
    """Read files into a dataset; see `Dataset.load`."""
    told, files = find_files(paths, format, storage_options=options.storage_options)
    base = read_head(store, name).state
    run = checked_run(run)
    where = check_dataset_name(quarantine or f"{name}{QUARANTINE_SUFFIX}")
    if where == name:
        raise InvalidInputError(f"{name!r} is its own quarantine.", hint="Give another name.")
    past = _past_load(store, base, run)
    if past.is_there:
        return _repeated(store, past, where, files)
    base.descriptor.partition_by.check_provided(options.provided)
    check_files(files, told, base.descriptor, options.csv)
    started = Transaction.begin(store, name, OPERATION, run=run, options=options.commit)
    try:
        return _load_now(store, started, past, told, files, spark, where, options)
    except CommitConflictError:
        # Perhaps since another load of the run was faster. Then there is nothing left to do.
        past = _past_load(store, read_head(store, name).state, run)
        if not past.is_there:
            raise
        return _repeated(store, past, where, files)


def _load_now(
    store: Store,
    started: Transaction,
    past: _Past,
    told: FileFormat,
    files: tuple[RawFile, ...],
    spark: SparkSession | Literal[True] | None,
    quarantine: str,
    options: LoadOptions,
) -> LoadReport:
    """Read the files and commit, unless somebody has loaded the run since `past`."""
    base, run = started.base, past.run
    written: list[Written] = []
    rejects = Rejects(store)
    try:
        if run is not None and base.version != past.version:
            past = _past_load(store, base, run)
        if past.is_there:
            started.abort()
            return _repeated(store, past, quarantine, files)
        # Also what is loaded for the first time: nobody else may load the run at the same time.
        scope = Nothing() if run is None else RunFiles(run, replaces=past.commit is not None)
        run = run or f"load-{started.batch_id}"
        target = replace(target_of(started, options.write), provided=options.provided)
        sifted = sift_files(spark, store, Job(target=target, format=told, csv=options.csv), files)
        written.append(sifted.written)
        rejects.add(sifted)
        if options.fail_on_rejects:
            rejects.refuse()
        rejected = _set_aside(store, quarantine, run, rejects, options)
    except BaseException:
        started.abort(*written)
        raise
    finally:
        rejects.delete()
    commit = commit_staged(started, sifted.written, scope)
    return LoadReport(
        commit=commit,
        quarantine=quarantine,
        quarantine_commit=rejected if rejects.count else None,
        run=run,
        row_count=commit.row_count,
        rejected_count=rejects.count,
        file_count=len(files),
        size_bytes=sum(file.size_bytes for file in files),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Past:
    """What a dataset knows of a run as of a version.

    Attributes:
        run: Its name.
        version: Of the dataset.
        commit: The last load of the run, if there is one.
        is_there: Whether its rows are there, or were meant to go.
    """

    run: str | None
    version: int
    commit: Commit | None = None
    is_there: bool = False


def _past_load(store: Store, state: State, run: str | None) -> _Past:
    if run is None:
        return _Past(run=None, version=state.version)
    entries = history.read(store, state.lists.history)
    done = _last_of(entries, OPERATION, run)
    return _Past(
        run=run,
        version=state.version,
        commit=None if done is None else Commit.of(done, state),
        is_there=done is not None and not _is_taken_out(entries, run),
    )


class Rejects:
    """What did not fit, in files that nothing refers to, until it is in quarantine."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # With the locations that count of each of them; None for all.
        self._parts: list[tuple[Sifted, frozenset[str] | None]] = []

    def add(self, sifted: Sifted) -> None:
        """Take what was set aside along with staged rows."""
        self._parts.append((sifted, None))

    def keep_only(self, locations: Collection[str]) -> None:
        """Let of the last part only what is of some raw files count."""
        sifted, _ = self._parts.pop()
        self._parts.append((sifted, frozenset(locations)))

    @property
    def by_location(self) -> dict[str, int]:
        """How many there are of each raw file."""
        return {
            location: counts.rejected_count
            for sifted, kept in self._parts
            for location, counts in sifted.counts.items()
            if kept is None or location in kept
        }

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(
            sifted.rejected_count
            if kept is None
            else sum(sifted.counts[location].rejected_count for location in kept)
            for sifted, kept in self._parts
        )

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield all of them."""
        for sifted, kept in self._parts:
            wanted = None if kept is None else pa.array(sorted(kept), pa.string())
            for batch in read_rejects(self._store, sifted.reject_keys):
                if wanted is None:
                    yield batch
                else:
                    yield batch.filter(pc.is_in(batch.column("source_file"), wanted))

    def refuse(self) -> None:
        """Raise if there are any.

        Raises:
            RejectsError: It tells the first of them, since there will be no quarantine to look at.
        """
        if not self.count:
            return
        with contextlib.closing(self.batches()) as batches:
            every = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
            rows = list(itertools.islice(every, _TOLD_REJECTS))
        told = "; ".join(
            f"{one['source_file']}, line {one['line_number']}: {one['reason'].rstrip('.')}"
            for one in rows
        )
        files = sum(1 for count in self.by_location.values() if count)
        more = "; …" if self.count > len(rows) else ""
        raise RejectsError(
            f"{self.count:,} lines of {files:,} files do not fit: {told}{more}. "
            "Nothing was committed.",
            hint="Mend them, or let what does not fit go to quarantine.",
            rejected_count=self.count,
        )

    def delete(self) -> None:
        """Delete the files."""
        delete_or_leave(self._store, [key for one, _ in self._parts for key in one.reject_keys])


def checked_run(run: str | None) -> str | None:
    """Return the name of a run if the quarantine can have a directory of that name.

    Raises:
        InvalidInputError: It is empty or too long.
    """
    if run is not None and not 1 <= len(encode_path({"run": run})) <= _MAX_RUN_BYTES:
        raise InvalidInputError(
            f"Run name {run[:40]!r} of {len(run)} characters.",
            hint=f"The quarantine has a directory for each run: use at most {_MAX_RUN_BYTES}.",
        )
    return run


def sift_files(
    spark: SparkSession | Literal[True] | None,
    store: Store,
    job: Job,
    files: Sequence[RawFile],
    on_file: OnFile = tell_nobody,
) -> Sifted:
    """Sift files by tasks of Spark, or by one writer in this process."""
    workers = workers_for(spark if files else None, store, threads=1)
    return sift_all(workers, store, job, files, on_file)


def _last_of(entries: Sequence[Entry], operation: str, run: str) -> Entry | None:
    """Return the entry of the last commit of a run."""
    found = (one for one in reversed(entries) if one.operation == operation and one.run == run)
    return next(found, None)


def _is_taken_out(entries: Sequence[Entry], run: str) -> bool:
    """Whether a rollback or an empty rerun has taken out rows of a run, and they are not back.

    What a delete or an overwrite took out was meant to go. What a rerun brought instead of them is
    the run's, as are files of any form that a rollback brought back.

    Args:
        entries: The whole history.
        run: Its name.
    """
    known = noted_by(entries)

    def own_partitions(labels: Sequence[str]) -> set[str]:
        own = known.files_of(run, labels)
        return {partition_of_label(label) for label in own}

    out: set[str] = set()
    for entry in entries:
        is_rerun = entry.operation == "rerun" and entry.run == run
        if (entry.operation == OPERATION and entry.run == run) or (is_rerun and entry.added):
            out.clear()
        elif is_rerun or entry.operation == "rollback":
            out |= own_partitions(entry.removed)
            out -= own_partitions(entry.added)
    return bool(out)


def find_quarantine(store: Store, name: str) -> State | None:
    """Return the state of a quarantine; None if there is none.

    Raises:
        InvalidInputError: The dataset of that name is something else.
    """
    try:
        state = read_head(store, name).state
    except DatasetNotFoundError:
        return None
    if state.descriptor.schema.names != QUARANTINE.schema.names:
        raise InvalidInputError(
            f"Dataset {name!r} is no quarantine, its fields are others.",
            hint="Give the name of another quarantine.",
        )
    return state


def _labels_of(state: State | None, partition: str) -> list[str]:
    labels = () if state is None else state.labels
    return [label for label in labels if partition_of_label(label) == partition]


def _repeated(store: Store, past: _Past, quarantine: str, files: tuple[RawFile, ...]) -> LoadReport:
    """Report a load that has been done before."""
    done, run = past.commit, past.run
    assert done is not None  # what is there has a commit
    assert run is not None  # and a name
    state = find_quarantine(store, quarantine)
    labels = _labels_of(state, encode_path({"run": run}))
    counts = file_table.read_counts(store, state.lists.files) if state and labels else {}
    return LoadReport(
        commit=done,
        quarantine=quarantine,
        quarantine_commit=_set_aside_before(store, state, run) if state and labels else None,
        run=run,
        row_count=done.row_count,
        rejected_count=sum(counts[label][0] for label in labels),
        file_count=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        is_repeated=True,
    )


def _set_aside_before(store: Store, quarantine: State, run: str) -> Commit | None:
    entry = _last_of(history.read(store, quarantine.lists.history), "overwrite", run)
    return None if entry is None else Commit.of(entry, quarantine)


def _set_aside(
    store: Store, name: str, run: str, rejects: Rejects, options: LoadOptions
) -> Commit | None:
    """Commit what did not fit, in place of what an earlier attempt of the run set aside."""
    state = find_quarantine(store, name)
    partition = encode_path({"run": run})
    if not rejects.count and not _labels_of(state, partition):
        return None
    if state is None:
        create_quarantine(store, name)
    started = Transaction.begin(store, name, "overwrite", run=run, options=options.commit)
    try:
        rows = with_run(rejects.batches(), run)
        written = write_batches(store, target_of(started, options.write), rows)
    except BaseException:
        started.abort()
        raise
    return commit_staged(started, written, ThesePartitions(frozenset([partition])))


def create_quarantine(store: Store, name: str) -> None:
    """Create a quarantine; fine if it is there."""
    schema_file.put(store, name, QUARANTINE)
    try:
        create(store, first_state(name, QUARANTINE, HeadFormat.JSON))
    except ObjectExistsError:
        find_quarantine(store, name)  # somebody else was faster


def with_run(batches: Iterator[pa.RecordBatch], run: str) -> Iterator[pa.RecordBatch]:
    """Complete what was set aside to rows of the quarantine."""
    now = dt.datetime.now(dt.UTC)
    for batch in batches:
        yield batch.append_column("run", pa.array([run] * batch.num_rows)).append_column(
            "loaded_at", pa.array([now] * batch.num_rows, pa.timestamp("us", tz="UTC"))
        )
