"""Running an ingest: what is new or has changed becomes one batch, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lakebed.arrow.reading.sift import Counts, Job, OnFile, tell_nobody
from lakebed.commit import Commit
from lakebed.loading import LoadOptions, Rejects, sift_files
from lakebed.pipeline.candidates import Candidate, Candidates
from lakebed.pipeline.identity import LeftOut, Work, find_work
from lakebed.pipeline.quarantine import set_aside
from lakebed.pipeline.replacement import OPERATION, check_not_rewritten, files_of, write_others
from lakebed.state import sources as source_list
from lakebed.state.reader import read_head
from lakebed.state.scope import Nothing, TheseFiles
from lakebed.state.sources import Restored, SourceFile, Sources
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.writer import target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestProgress:
    """How far an ingest is.

    Attributes:
        file_count: Files that have been read.
        file_total: Files that are to be read.
        size_bytes: Of the files that have been read.
        size_total_bytes: Of all that are to be read.
        row_count: Rows so far.
        rejected_count: Lines that did not fit, so far.

    >>> IngestProgress(
    ...     file_count=1, file_total=4, size_bytes=10, size_total_bytes=40, row_count=2,
    ...     rejected_count=0,
    ... ).file_total
    4
    """

    file_count: int
    file_total: int
    size_bytes: int
    size_total_bytes: int
    row_count: int
    rejected_count: int


Progress = Callable[[IngestProgress], None]


def NO_PROGRESS(progress: IngestProgress) -> None:  # noqa: N802 - stands for a value
    """Tell nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done.

    Attributes:
        work: What there was to do, without files that turned out to be kept back.
        commit: Of the rows; None if there was nothing to do.
        row_count: Rows that were loaded.
        rejected_count: Lines, or rests of damaged files, that were not.
        carried_count: Rows of other files that were written anew.
    """

    work: Work
    commit: Commit | None = None
    row_count: int = 0
    rejected_count: int = 0
    carried_count: int = 0


def work_of(store: Store, state: State, candidates: Candidates) -> Work:
    """Tell which files are to be read.

    Cost:
        One GET for each segment that tells what was read, of which there are few.
    """
    return find_work(candidates, source_list.read(store, state.lists.sources), state.labels)


def execute(
    store: Store,
    dataset: str,
    candidates: Candidates,
    *,
    run: str,
    quarantine: str,
    spark: SparkSession | Literal[True] | None,
    max_rejects: float,
    replaces_rewritten: bool,
    on_progress: Progress,
    options: LoadOptions,
) -> Done:
    """Read in what is new or has changed."""
    state = read_head(store, dataset).state
    work = work_of(store, state, candidates)
    if not work.files:
        return Done(work=work)
    started = Transaction.begin(store, dataset, OPERATION, run=run, options=options.commit)
    base = started.base
    written: list[Written] = []
    rejects = Rejects(store)
    try:
        if (base.version, base.labels) != (state.version, state.labels):
            work = work_of(store, base, candidates)
        if not work.files:
            started.abort()
            return Done(work=work)
        target = replace(
            target_of(started, options.write), is_traced=True, provided=options.provided
        )
        if not replaces_rewritten:
            check_not_rewritten(store, base, work.known, work.replaced)
        job = Job(target=target, format=candidates.format, csv=options.csv, rejects_files=True)
        looked_at = work.files
        while True:
            files = [one.file for one in work.files]
            on_file = _telling(work.files, on_progress)
            sifted = sift_files(spark, store, job, files, on_file)
            written = [sifted.written]
            rejects.add(sifted)
            if options.fail_on_rejects:
                rejects.refuse()
            kept_back = _kept_back(work, sifted.counts, max_rejects)
            work = work.without(kept_back)
            if not any(sifted.counts[location].row_count for location in kept_back):
                break
            # Its rows lie among those of the other files, which are read again without it.
            started.discard(sifted.written)
            written = []
            rejects.keep_only(kept_back)
        read = _source_files(work.files, sifted.counts, started.batch_id, run)
        labels = files_of(base, work.known, work.replaced)
        others = write_others(store, base, work.known, labels, work.replaced, target, spark)
        written.append(others)
        slots = {file.slot for file in read}
        earlier = [*work.replaced, *(one for one in work.known.files if one.slot in slots)]
        set_aside(
            store,
            quarantine,
            run,
            rejects,
            of_dataset=dataset,
            files=looked_at,
            earlier=earlier,
            options=options,
        )
        if not read:
            started.abort()
            return Done(work=work, rejected_count=rejects.count)
    except BaseException:
        started.abort(*written)
        raise
    finally:
        rejects.delete()
    keys = {file.location: file.key for file in read}
    origins = {
        label: tuple((keys[location], row_count) for location, row_count in runs)
        for label, runs in sifted.written.origins.items()
    }
    entry = started.commit(
        others + replace(sifted.written, origins=origins),
        TheseFiles.of(labels) if labels else Nothing(),
        Sources(files=read, restored=_restored(work, read, started.commit_id)),
    )
    commit = Commit.of(entry, base)
    return Done(
        work=work,
        commit=commit,
        row_count=commit.row_count - others.row_count,
        rejected_count=rejects.count,
        carried_count=others.row_count,
    )


def _kept_back(work: Work, counts: Mapping[str, Counts], max_rejects: float) -> dict[str, LeftOut]:
    """Return the files that are not to be used, by location: what they would replace stays."""
    found: dict[str, LeftOut] = {}
    for one in work.files:
        location = one.file.location
        became = counts[location]
        rows = sum(file.row_count for file in work.replaces.get(one.slot, ()))
        if became.is_damaged:
            detail = "it has not the hash of its record"
            found[location] = LeftOut(location=location, why="damaged", detail=detail)
        elif rows and became.rejected_share > max_rejects:
            end = ", and nobody knows how much comes after" if became.is_cut else ""
            detail = (
                f"{became.rejected_count:,} of its {became.row_count + became.rejected_count:,} "
                f"lines do not fit{end}; the {rows:,} rows that it would replace stay"
            )
            found[location] = LeftOut(location=location, why="rejects", detail=detail)
    return found


def _restored(work: Work, read: Sequence[SourceFile], commit_id: str) -> tuple[Restored, ...]:
    """Note that what has been replaced is not current either where it stood for something else."""
    replaced = {file.key for file in work.replaced}
    slots = {file.slot for file in read}
    current = {
        slot: ""
        for slot, file in work.known.current().items()
        if file.key in replaced and slot not in slots
    }
    if not current:
        return ()
    return (Restored(commit_id=commit_id, current=current, after=len(read)),)


def _source_files(
    files: Sequence[Candidate], counts: Mapping[str, Counts], batch_id: int, run: str
) -> tuple[SourceFile, ...]:
    found = []
    for number, one in enumerate(files):
        became = counts[one.file.location]
        record = one.record
        found.append(
            SourceFile(
                key=f"{batch_id}-{number}",
                location=one.file.location,
                slot=one.slot,
                fingerprint=one.fingerprint,
                size_bytes=one.file.size_bytes,
                batch_id=batch_id,
                run=run,
                row_count=became.row_count,
                rejected_count=became.rejected_count,
                file_id=None if record is None else record.id,
                what=None if record is None else record.what,
                where=None if record is None else record.where,
                work_id=None if record is None else record.work_id,
                start=None if record is None else record.start,
                end=None if record is None else record.end,
                path=None if record is None else record.path,
            )
        )
    return tuple(found)


def _telling(files: Sequence[Candidate], on_progress: Progress) -> OnFile:
    """Return what adds up the files that have been read, and tells of it."""
    sizes = {one.file.location: one.file.size_bytes for one in files}
    total = sum(sizes.values())
    so_far = IngestProgress(
        file_count=0,
        file_total=len(files),
        size_bytes=0,
        size_total_bytes=total,
        row_count=0,
        rejected_count=0,
    )
    if on_progress is NO_PROGRESS:
        return tell_nobody
    on_progress(so_far)

    def on_file(location: str, counts: Counts) -> None:
        nonlocal so_far
        so_far = replace(
            so_far,
            file_count=so_far.file_count + 1,
            size_bytes=so_far.size_bytes + sizes[location],
            row_count=so_far.row_count + counts.row_count,
            rejected_count=so_far.rejected_count + counts.rejected_count,
        )
        on_progress(so_far)

    return on_file
