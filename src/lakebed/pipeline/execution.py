"""Running an ingest: what is new or has changed becomes one batch, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lakebed.arrow.reading.sift import Counts, Job, OnFile, tell_nobody
from lakebed.commit import Commit
from lakebed.loading import LoadOptions, sift_files, target_of
from lakebed.pipeline.candidates import Candidate, Candidates, real_slots
from lakebed.pipeline.quarantine import set_aside
from lakebed.pipeline.replacement import OPERATION, check_not_rewritten, take_out
from lakebed.state import sources as source_list
from lakebed.state.caps import concat_facts
from lakebed.state.reader import read_head
from lakebed.state.scope import Nothing, TheseFiles
from lakebed.state.sources import SourceFile, Sources
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store, delete_or_leave

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
class Work:
    """What there is to do, as of one state of the dataset.

    Attributes:
        files: To be read.
        replaced: What was read before in their place and is current, or of which the dataset
            holds rows: after a rollback of some partitions, that can be several of one slot.
        unchanged_count: Files that were read before, as they are.
        known: All that was read before.
    """

    files: tuple[Candidate, ...]
    replaced: tuple[SourceFile, ...]
    unchanged_count: int
    known: Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done.

    Attributes:
        work: What there was to do, without files that turned out to be damaged.
        commit: Of the rows; None if there was nothing to do.
        counts: What became of each file, by location.
        carried_count: Rows of other files that were written anew.
    """

    work: Work
    commit: Commit | None = None
    row_count: int = 0
    rejected_count: int = 0
    carried_count: int = 0


def work_of(store: Store, state: State, candidates: Sequence[Candidate]) -> Work:
    """Tell which files are new or have changed.

    Cost:
        One GET for each segment that tells what was read, of which there are few.
    """
    known = source_list.read(store, state.sources)
    current = known.current()
    # What was noted under another path that leads to the same file keeps its slot.
    noted = real_slots(file.slot for file in known.files)
    slot_of = {real: slot for slot, real in noted.items()}
    real = real_slots(one.slot for one in candidates)
    found = [
        one if one.slot in noted else replace(one, slot=slot_of.get(real[one.slot], one.slot))
        for one in candidates
    ]
    todo = tuple(one for one in found if not one.is_same_as(current.get(one.slot)))
    slots = {one.slot for one in todo}
    held = {key for label in state.labels for key, _ in known.runs.get(label, ())}
    return Work(
        files=todo,
        replaced=tuple(
            file
            for file in known.files
            if file.slot in slots and (file.key in held or current.get(file.slot) == file)
        ),
        unchanged_count=len(candidates) - len(todo),
        known=known,
    )


def execute(
    store: Store,
    dataset: str,
    candidates: Candidates,
    *,
    run: str,
    quarantine: str,
    spark: SparkSession | Literal[True] | None,
    replaces_rewritten: bool,
    on_progress: Progress,
    options: LoadOptions,
) -> Done:
    """Read in what is new or has changed."""
    work = work_of(store, read_head(store, dataset).state, candidates.files)
    if not work.files:
        return Done(work=work)
    started = Transaction.begin(store, dataset, OPERATION, run=run, options=options.commit)
    base = started.base
    staged: list[str] = []
    reject_keys: Sequence[str] = ()
    try:
        work = work_of(store, base, candidates.files)
        if not work.files:
            started.abort([])
            return Done(work=work)
        target = replace(
            target_of(started, options.write), is_traced=True, provided=options.provided
        )
        if not replaces_rewritten:
            check_not_rewritten(store, base, work.known, work.replaced)
        job = Job(target=target, format=candidates.format, csv=options.csv, rejects_files=True)
        files = [one.file for one in work.files]
        on_file = _telling(work.files, on_progress)
        sifted = sift_files(spark, store, job, files, on_file)
        reject_keys = sifted.reject_keys
        staged += sifted.facts.column("label").to_pylist()
        locations = {one.file.location for one in work.files}
        work = _without_damaged(work, sifted.counts)
        removal = take_out(store, base, work.known, work.replaced, target)
        staged += removal.facts.column("label").to_pylist()
        read = _source_files(work.files, sifted.counts, started.batch_id, run)
        slots = {file.slot for file in read}
        earlier = [file for file in work.known.files if file.slot in slots]
        locations.update(file.location for file in earlier)
        set_aside(
            store, quarantine, run, sifted, locations, {file.run for file in earlier}, options
        )
        if not read:
            started.abort([])
            return Done(work=work, rejected_count=sifted.rejected_count)
    except BaseException:
        started.abort([base.key(label) for label in staged])
        raise
    finally:
        delete_or_leave(store, reject_keys)
    keys = {file.location: file.key for file in read}
    runs = {
        label: tuple((keys[location], count) for location, count in found)
        for label, found in sifted.runs.items()
    }
    entry = started.commit(
        concat_facts([removal.facts, sifted.facts]),
        TheseFiles.of(removal.labels) if removal.labels else Nothing(),
        Sources(files=read, runs={**removal.runs, **runs}),
        carried=removal.carried,
    )
    commit = Commit.of(entry, base)
    return Done(
        work=work,
        commit=commit,
        row_count=commit.row_count - removal.carried_count,
        rejected_count=sifted.rejected_count,
        carried_count=removal.carried_count,
    )


def _without_damaged(work: Work, counts: Mapping[str, Counts]) -> Work:
    """Return the work without files that are damaged: what they would replace stays as it is."""
    files = tuple(one for one in work.files if not counts[one.file.location].is_damaged)
    slots = {one.slot for one in files}
    return replace(
        work, files=files, replaced=tuple(one for one in work.replaced if one.slot in slots)
    )


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
