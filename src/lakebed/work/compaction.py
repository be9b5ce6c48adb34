"""Compaction: many small files of a partition become a few of a good size."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.rewrite import (
    RewriteJob,
    Work,
    divide,
    file_partition,
    rewrite_all,
    work_of,
)
from lakebed.commit import Commit
from lakebed.common.grouping import balanced_groups, portions
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted
from lakebed.common.sizes import parse_size
from lakebed.errors import CommitConflictError, InvalidInputError, noting
from lakebed.model.keys import is_adopted, partition_of_label, split_label
from lakebed.model.predicate import TRUE, Predicate, bind
from lakebed.model.schema import Decimal, Primitive
from lakebed.plan.plan import DataFile
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table, history, runs, sources
from lakebed.state.committing import CommitOptions
from lakebed.state.facts import Recorded
from lakebed.state.reader import read_head, read_own_head
from lakebed.state.scope import RewrittenFiles
from lakebed.state.state import Change, State, epoch_of
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.defaults import COMPACTION_COMMIT_BYTES, TARGET_BYTES
from lakebed.work.indexing import write_index_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = 1 / 2  # of the target: larger files stay as they are
_FEWEST = 2  # files that can become one
_TARGETS_AT_ONCE = 8  # larger partitions are compacted piece by piece, side by side
_ROUNDS = 3  # passes over partitions that others have changed meanwhile
_THREADS = 4
_MEMORY_OF_FILE = 3  # a writer keeps open files in a third of its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionOptions:
    """Settings of a compaction.

    Attributes:
        target_bytes: Size of the new files; files of half of it and more stay as they are.
        sort_by: Fields to sort the rows of a partition by, null last; empty to keep their order.
        commit_bytes: Approximate size of the old files of one commit.
        is_gathering: Whether to rewrite all files of a partition, including large ones, unless
            they alone fill one directory of a batch: readers of Hive tables read whole
            directories, and readers of Delta tables do not find adopted files.
        directories: Keys of directories: all files in them are rewritten, and no others; None to
            choose the files by size.
        min_files: Number of small files from which on a partition is compacted, if files are
            chosen by size.
        across_runs_older_than: Age from which on small files of different runs of a partition are
            merged; None to keep runs apart.
        commit: Retry and lease settings of the commits.

    >>> MIB = 2**20
    >>> CompactionOptions(target_bytes=32 * MIB).small_bytes == 16 * MIB
    True
    """

    target_bytes: int = TARGET_BYTES
    sort_by: tuple[str, ...] = ()
    commit_bytes: int = COMPACTION_COMMIT_BYTES
    is_gathering: bool = False
    directories: frozenset[str] | None = None
    min_files: int = _FEWEST
    across_runs_older_than: dt.timedelta | None = None
    commit: CommitOptions = field(default_factory=CommitOptions)

    def __post_init__(self) -> None:
        for name in ("target_bytes", "commit_bytes"):
            object.__setattr__(self, name, parse_size(getattr(self, name), name))
        if self.min_files < _FEWEST:
            raise InvalidInputError(
                f"min_files is {self.min_files}.", hint=f"Give at least {_FEWEST} files."
            )

    @property
    def small_bytes(self) -> float:
        """Size below which files are compacted."""
        return self.target_bytes * _SMALL

    @property
    def gathers(self) -> bool:
        """True if files are chosen by directory, regardless of their size."""
        return self.is_gathering or self.directories is not None

    @property
    def writer_bytes(self) -> int:
        """Memory of a writer that suffices to write files that are not small again."""
        return math.ceil(_MEMORY_OF_FILE * self.small_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedPartition:
    """The compaction of one partition, done or planned.

    Attributes:
        path: Path of the partition; empty if unpartitioned.
        run: Name of the run that wrote the rows, if any: files of different runs stay apart.
        files_before: Number of small files.
        files_after: Number of new files; an estimate in a dry run.
        bytes_before: Size of the small files.
        bytes_after: Size of the new files; None in a dry run.
        row_count: Number of entities in them; None in a dry run if another tool wrote a file.
    """

    path: str
    run: str | None
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int | None
    row_count: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionReport:
    """The result of a compaction, or the expected result of a dry run.

    Attributes:
        dataset: Name of the dataset.
        is_dry_run: True if nothing was changed.
        commits: The commits; empty if there was nothing to do.
        partitions: The rewritten partitions, in order of path. A large partition is compacted in
            pieces; it appears again if small files that the pieces left were joined afterwards.
        skipped: Paths of partitions that others kept changing.
        apart_count: Number of small files that were not merged with others of their partition, as
            they belong to other runs.
        apart_run_count: Number of these runs; rows without a run count as one.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-compact").create("numbers", descriptor)
    >>> commits = [numbers.append([{"n": n}]) for n in range(3)]
    >>> report = numbers.compact()
    >>> report.files_before, report.files_after, report.row_count, numbers.count()
    (3, 1, 3, 3)
    >>> numbers.compact().commits
    ()
    """

    dataset: str
    is_dry_run: bool
    commits: tuple[Commit, ...] = ()
    partitions: tuple[CompactedPartition, ...] = ()
    skipped: tuple[str, ...] = ()
    apart_count: int = 0
    apart_run_count: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons why small files remain, as sentences."""
        if not self.apart_count:
            return ()
        belong = (
            "belongs to a run of its own and stays"
            if self.apart_count == 1
            else (f"belong to {counted(self.apart_run_count, 'run')} and stay")
        )
        return (
            f"{counted(self.apart_count, 'small file')} {belong} apart, so that a rerun finds its "
            "rows. Once old runs need not be replaced by name any more, merge them by "
            "compact(across_runs_older_than='30d'), or --across-runs-older-than 30d.",
        )

    @property
    def files_before(self) -> int:
        """Number of small files."""
        return sum(partition.files_before for partition in self.partitions)

    @property
    def files_after(self) -> int:
        """Number of new files."""
        return sum(partition.files_after for partition in self.partitions)

    @property
    def bytes_before(self) -> int:
        """Size of the small files."""
        return sum(partition.bytes_before for partition in self.partitions)

    @property
    def bytes_after(self) -> int | None:
        """Size of the new files; None in a dry run."""
        return (
            None
            if self.is_dry_run
            else sum(partition.bytes_after or 0 for partition in self.partitions)
        )

    @property
    def row_count(self) -> int | None:
        """Number of rewritten entities; None if unknown."""
        counts = [partition.row_count for partition in self.partitions]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def __repr__(self) -> str:
        verb = "would become" if self.is_dry_run else "became"
        counts = f"{counted(self.files_before, 'file')} {verb} {self.files_after:,}"
        notes = "".join(f". {note}" for note in self.notes).rstrip(".")
        return f"<CompactionReport of {self.dataset!r}: {counts}{notes}>"

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"{'Would compact' if self.is_dry_run else 'Compaction of'} {self.dataset}",
            {
                "versions": shortened([str(commit.version) for commit in self.commits]) or "none",
                "files before": f"{self.files_before:,}",
                "files after": f"{self.files_after:,}",
                "bytes before": f"{self.bytes_before:,}",
                "bytes after": "unknown" if self.bytes_after is None else f"{self.bytes_after:,}",
                "rows": "unknown" if self.row_count is None else f"{self.row_count:,}",
                "partitions": shortened([each.path or "(all)" for each in self.partitions])
                or "none",
                "skipped": shortened(self.skipped) or "none",
                **({"stay apart": " ".join(self.notes)} if self.notes else {}),
            },
        )


@dataclass(frozen=True, slots=True)
class _Key:
    """Properties that all rows of a file must share."""

    partition: str
    run: str | None
    has_origins: bool


@dataclass(frozen=True, slots=True)
class _Unit:
    """Small files that are compacted to one or a few."""

    key: _Key
    files: tuple[DataFile, ...]
    sizes: Mapping[str, int]  # by label
    row_counts: Mapping[str, int]  # by label, of those that are counted

    @property
    def row_count(self) -> int | None:
        is_counted = len(self.row_counts) == len(self.files)
        return sum(self.row_counts.values()) if is_counted else None

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes.values())

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(file.label for file in self.files)

    def compacted(
        self, files_after: int, bytes_after: int | None, row_count: int | None
    ) -> CompactedPartition:
        return CompactedPartition(
            path=self.key.partition,
            run=runs.shown_run(self.key.run),
            files_before=len(self.files),
            files_after=files_after,
            bytes_before=self.size_bytes,
            bytes_after=bytes_after,
            row_count=row_count,
        )


def compact(
    store: Store,
    name: str,
    constraint: Predicate,
    options: CompactionOptions,
    *,
    spark: SparkSession | None,
    is_dry_run: bool,
    on_progress: OnProgress = NO_PROGRESS,
) -> CompactionReport:
    """Compact the partitions that may hold entities of a view; see `Dataset.compact`."""
    state = read_own_head(store, name).state
    _check_order(state, options.sort_by)
    apart = _Apart()
    units = _find_units(store, state, constraint, options, apart)
    if is_dry_run:
        planned = (
            unit.compacted(-(-unit.size_bytes // options.target_bytes) or 1, None, unit.row_count)
            for unit in units
        )
        return CompactionReport(
            dataset=name,
            is_dry_run=True,
            partitions=tuple(planned),
            apart_count=apart.file_count,
            apart_run_count=len(apart.runs),
        )
    commits: list[Commit] = []
    done: list[CompactedPartition] = []
    lost: list[_Unit] = []
    tally = Tally(on_progress, f"compact {name}")

    def note() -> str:
        versions = ", ".join(str(commit.version) for commit in commits)
        if not commits:
            return ""
        return f"Compacted in version {versions}: compact again for the remaining files."

    with noting(note):
        for round_ in range(_ROUNDS):
            lost = []
            tally.expect(
                {label: size for unit in units for label, size in unit.sizes.items()},
                {label: rows for unit in units for label, rows in unit.row_counts.items()},
            )
            for portion in _portions(units, options):
                attempt = _Attempt(store, name, options, spark, tally)
                try:
                    commit, compacted, changed = attempt.run(portion)
                except CommitConflictError:
                    if round_ == _ROUNDS - 1:
                        raise
                    lost += portion
                    continue
                commits += [commit] if commit is not None else []
                done += compacted
                lost += changed
            again = {unit.key.partition for unit in lost} | _cut_partitions(units)
            if not again:
                break
            state = read_own_head(store, name).state
            options = replace(options, min_files=_FEWEST)  # such as the rests of pieces
            candidates = _find_units(store, state, constraint, options)
            units = [unit for unit in candidates if unit.key.partition in again]
        if state.descriptor.index:
            written = write_index_files(store, name, options.commit)
            commits += [written] if written is not None else []
    return CompactionReport(
        dataset=name,
        is_dry_run=False,
        commits=tuple(commits),
        partitions=tuple(sorted(done, key=lambda partition: (partition.path, partition.run or ""))),
        skipped=tuple(sorted({unit.key.partition for unit in lost})),
        apart_count=apart.file_count,
        apart_run_count=len(apart.runs),
    )


@dataclass(frozen=True, slots=True)
class _Together:
    """Units that must go into one commit."""

    units: list[_Unit]

    @property
    def size_bytes(self) -> int:
        return sum(unit.size_bytes for unit in self.units)


def _portions(units: Sequence[_Unit], options: CompactionOptions) -> Iterator[list[_Unit]]:
    """Divide units among commits; a gathered partition goes to one batch, so to one commit."""
    things = [_Together([unit]) for unit in units]
    if options.gathers:
        by_partition: dict[str, list[_Unit]] = {}
        for unit in units:
            by_partition.setdefault(unit.key.partition, []).append(unit)
        things = list(map(_Together, by_partition.values()))
    for portion in portions(things, options.commit_bytes):
        yield [unit for together in portion for unit in together.units]


def _check_order(state: State, sort_by: Sequence[str]) -> None:
    for name in sort_by:
        kind = state.descriptor.schema.get(name).type
        if not isinstance(kind, Primitive | Decimal):
            raise InvalidInputError(
                f"Rows cannot be sorted by {name!r} of type {kind}.",
                hint="Sort by fields that hold single values.",
            )


@dataclass(slots=True)
class _Apart:
    """Small files that are alone of their run in a partition.

    Attributes:
        file_count: Their number.
        runs: Their runs, None for rows without a run.
    """

    file_count: int = 0
    runs: set[str | None] = field(default_factory=set)


def _find_units(
    store: Store,
    state: State,
    constraint: Predicate,
    options: CompactionOptions,
    apart: _Apart | None = None,
) -> list[_Unit]:
    """Return the files to compact, in order of path; `apart` receives those that stay apart."""
    chosen = plan(state, bind(constraint, state.layout.predicate_types), requests=0)
    wanted = {file_partition(file) for file in chosen.files}
    counts = file_table.read_counts(store, state.lists.files)
    small: dict[str, list[DataFile]] = {}
    sizes: dict[str, int] = {}
    for file in plan(state, TRUE, requests=0).files:
        if file_partition(file) not in wanted:
            continue
        known = counts.get(file.label)
        if options.directories is not None and split_label(file.key)[0] not in options.directories:
            continue
        size = store.size(file.key) if known is None else known[1]
        if size < options.small_bytes or options.gathers:
            sizes[file.label] = size
            small.setdefault(file_partition(file), []).append(file)
    fewest = 1 if options.gathers else options.min_files
    groups = [tuple(files) for files in small.values() if len(files) >= fewest]
    if options.is_gathering and options.directories is None:
        groups = [files for files in groups if not _is_gathered(store, files)]
    if not groups:
        return []
    known_runs, noted = runs.read(store, state.lists), sources.read(store, state.lists.sources)
    if options.across_runs_older_than is not None:
        closed = _closed_runs(store, state, known_runs, options.across_runs_older_than)
        known_runs = _merged_across(groups, known_runs, closed)
    units = []
    for (run, has_origins), divided in divide(groups, known_runs, noted).items():
        for files in divided:
            if len(files) < fewest:
                if apart is not None:
                    apart.file_count += len(files)
                    apart.runs.add(run)
                continue
            key = _Key(file_partition(files[0]), run, has_origins)
            for piece in _pieces(files, sizes, _TARGETS_AT_ONCE * options.target_bytes):
                labels = [file.label for file in piece]
                row_counts = {label: counts[label][0] for label in labels if label in counts}
                units.append(
                    _Unit(key, piece, {label: sizes[label] for label in labels}, row_counts)
                )
    return sorted(
        units, key=lambda unit: (unit.key.partition, unit.key.run or "", unit.key.has_origins)
    )


def _closed_runs(store: Store, state: State, known: runs.Runs, age: dt.timedelta) -> frozenset[str]:
    """Return the runs that have not written since a time; epochs of a stream are none of them."""
    cutoff = dt.datetime.now(dt.UTC) - age
    entries = history.read(store, state.lists.history)
    recent = {entry.run for entry in entries if entry.committed_at > cutoff}
    names = {*known.batches.values(), *known.carried.values()} - recent
    return frozenset(name for name in names if name and epoch_of(name) is None)


def _merged_across(
    groups: Iterable[Sequence[DataFile]], known: runs.Runs, closed: frozenset[str]
) -> runs.Runs:
    """Return the runs with one name for the files of a partition that are to be merged.

    A closed run that is alone in its partition keeps its name.
    """
    carried = dict(known.carried)
    for files in groups:
        names = {file.label: known.of(file.label) for file in files}
        old = {label: name for label, name in names.items() if name is None or name in closed}
        if len(set(old.values())) > 1:
            carried.update(dict.fromkeys(old, runs.merged_name(old.values())))
    return runs.Runs(batches=known.batches, carried=carried)


def _is_gathered(store: Store, files: Sequence[DataFile]) -> bool:
    """Return whether the files alone fill one directory of a batch.

    Adopted files never do: they are outside the directory of the table, where Delta cannot name
    them.
    """
    if any(is_adopted(file.label) for file in files):
        return False
    directories = {split_label(file.key)[0] for file in files}
    if len(directories) > 1:
        return False
    listed = {info.key for info in store.list(f"{directories.pop()}/")}
    return listed == {file.key for file in files}


def _pieces(
    files: Sequence[DataFile], sizes: Mapping[str, int], limit_bytes: int
) -> Iterator[tuple[DataFile, ...]]:
    """Cut the files of a large partition into pieces of about equal size."""
    total = sum(sizes[file.label] for file in files)
    count = -(-total // limit_bytes) or 1
    piece: list[DataFile] = []
    size_bytes = done = 0
    for file in files:
        piece.append(file)
        size_bytes += sizes[file.label]
        if size_bytes * count >= total * (done + 1) and done + 1 < count:
            yield tuple(piece)
            piece, done = [], done + 1
    if piece:
        yield tuple(piece)


def _cut_partitions(units: Iterable[_Unit]) -> set[str]:
    """Return the partitions that were cut into pieces, each of which may leave a small file."""
    counts = Counter(unit.key for unit in units)
    return {key.partition for key, count in counts.items() if count > 1}


@dataclass(frozen=True, slots=True)
class _Share:
    """The units of one writer, and the files that it wrote."""

    units: tuple[_Unit, ...]
    written: Written

    def without(self, removed: frozenset[str]) -> tuple[_Share, list[_Unit], frozenset[str]]:
        """Leave out the units with a removed file.

        Returns:
            The remaining share, the units that were left out, and the new files with their rows.
        """
        keys = {unit.key for unit in self.units if not unit.labels.isdisjoint(removed)}
        lost = [unit for unit in self.units if unit.key in keys]
        doomed = frozenset(label for label in self.written.labels if self._key(label) in keys)
        kept = tuple(unit for unit in self.units if unit.key not in keys)
        return _Share(kept, self.written.without(doomed)), lost, doomed

    def _key(self, label: str) -> _Key:
        partition = partition_of_label(label)
        return _Key(partition, self.written.carried.get(label), label in self.written.origins)

    def compacted(self) -> list[CompactedPartition]:
        """Return the result for each partition."""
        units: dict[_Key, list[_Unit]] = {}
        for unit in self.units:
            units.setdefault(unit.key, []).append(unit)
        new_files: dict[_Key, list[tuple[int, int]]] = {key: [] for key in units}
        facts = self.written.facts
        columns = (facts.column(name).to_pylist() for name in ("row_count", "size_bytes"))
        for label, rows, size in zip(self.written.labels, *columns, strict=True):
            new_files[self._key(label)].append((rows, size))
        return [
            CompactedPartition(
                path=key.partition,
                run=runs.shown_run(key.run),
                files_before=sum(len(unit.files) for unit in of_key),
                files_after=len(new_files[key]),
                bytes_before=sum(unit.size_bytes for unit in of_key),
                bytes_after=sum(size for _, size in new_files[key]),
                row_count=sum(rows for rows, _ in new_files[key]),
            )
            for key, of_key in units.items()
        ]


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Makes one commit of some units."""

    store: Store
    name: str
    options: CompactionOptions
    spark: SparkSession | None
    tally: Tally

    def run(
        self, units: Sequence[_Unit]
    ) -> tuple[Commit | None, list[CompactedPartition], list[_Unit]]:
        """Compact units.

        Returns:
            The commit, the results, and the units of which others removed files meanwhile.

        Raises:
            CommitConflictError: Others removed files at the last moment; nothing became visible.
        """
        with Transaction.begin(
            self.store, self.name, "compact", options=self.options.commit
        ) as transaction:
            base = transaction.base
            job = self._job(transaction)
            known = frozenset(label for unit in units for label in unit.labels)
            live = base.live.holding(known)
            lost = [unit for unit in units if not unit.labels <= live]
            shares = self._rewrite(job, [unit for unit in units if unit.labels <= live], base)
            transaction.add(*(share.written for share in shares))
            # Leave out units whose files others have removed since, and commit the others now.
            removed = live - read_head(self.store, self.name).state.live.holding(live)
            parts = [share.without(removed) for share in shares]
            transaction.leave_out(frozenset().union(*(doomed for _, _, doomed in parts)))
            shares = [share for share, _, _ in parts]
            lost += [unit for _, more, _ in parts for unit in more]
            labels = frozenset(
                label for share in shares for unit in share.units for label in unit.labels
            )
            if not labels:
                return None, [], lost
            committed = transaction.commit(Change(scope=RewrittenFiles(labels)))
        done = [partition for share in shares for partition in share.compacted()]
        return Commit.of(committed, base), done, lost

    def _job(self, transaction: Transaction) -> RewriteJob:
        base = transaction.base
        options = WriteOptions(target_bytes=self.options.target_bytes)
        target = BatchTarget(
            dataset=base.name,
            batch_id=transaction.batch_id,
            descriptor=base.descriptor,
            options=replace(
                options, memory_bytes=max(options.memory_bytes, self.options.writer_bytes)
            ),
            schema_number=base.lineage.number,
            field_ids=base.layout.field_ids,
            is_tree=base.is_tree,
        )
        return RewriteJob(layout=base.layout, target=target, sort_by=self.options.sort_by)

    def _rewrite(self, job: RewriteJob, units: Sequence[_Unit], base: State) -> list[_Share]:
        # Take the files from the base, whose schema they are read with: it may be newer.
        current = {file.label: file for file in plan(base, TRUE, requests=0).files}
        units = [
            replace(unit, files=tuple(current[file.label] for file in unit.files)) for unit in units
        ]
        noted = sources.read(self.store, base.lists.sources)
        labels = [file.label for unit in units for file in unit.files]
        recorded = file_table.read_recorded(self.store, base.lists.files, labels)
        options = job.target.options
        room = options.memory_bytes // self.options.writer_bytes
        threads = min(_THREADS, os.cpu_count() or 1, room)
        workers = workers_for(
            self.spark, self.store, threads=threads, purpose=f"compact {self.name}"
        )
        shared = replace(options, memory_bytes=workers.share_of(options.memory_bytes))
        job = replace(job, target=replace(job.target, options=shared))
        size_bytes = sum(unit.size_bytes for unit in units)
        parts = _divided(units, workers.count_for(size_bytes, len(labels)))
        works = [_work_of(part, noted, recorded) for part in parts]
        written = rewrite_all(workers, self.store, job, works, on_read=self.tally.listener)
        self.tally.add(*labels)
        return [_Share(tuple(part), share) for part, share in zip(parts, written, strict=True)]


def _divided(units: Sequence[_Unit], count: int) -> list[list[_Unit]]:
    """Divide units among about `count` writers, each with a single run."""
    total = sum(unit.size_bytes for unit in units) or 1
    by_kind: dict[tuple[str | None, bool], list[_Unit]] = {}
    for unit in units:
        by_kind.setdefault((unit.key.run, unit.key.has_origins), []).append(unit)
    groups = []
    for of_kind in by_kind.values():
        size_bytes = sum(unit.size_bytes for unit in of_kind)
        sizes = {f"{number:09d}": unit.size_bytes for number, unit in enumerate(of_kind)}
        parts = balanced_groups(sizes, max(1, round(count * size_bytes / total)))
        groups += [[of_kind[int(name)] for name in sorted(names)] for names in parts]
    return groups


def _work_of(
    units: Sequence[_Unit], noted: sources.Sources, recorded: Mapping[str, Recorded]
) -> Work:
    key = units[0].key
    counts = [unit.row_count for unit in units]
    known = [count for count in counts if count is not None]
    return work_of(
        (key.run, key.has_origins),
        [unit.files for unit in units],
        noted,
        recorded,
        sum(known) if len(known) == len(counts) else None,
    )
