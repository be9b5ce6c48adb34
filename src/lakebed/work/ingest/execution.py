"""Raw files read into a dataset: what is due becomes one batch, in one commit.

The one engine under `Ingest` and `Dataset.load`, which differ in what is due: files that are new or
have changed, or all files of a run that has not been loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self

from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.reading.census import widened
from lakebed.arrow.reading.files import FileFormat, RawFile
from lakebed.arrow.reading.rows import check_files
from lakebed.arrow.reading.sift import Counts, Job, Sifted, census_of, sift_all
from lakebed.arrow.reading.unknown import Ignored
from lakebed.commit import Commit
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted
from lakebed.errors import CommitConflictError, ObjectExistsError, RejectsError
from lakebed.model.evolution import changes
from lakebed.spark.task_workers import workers_for
from lakebed.state import schema_file
from lakebed.state.creation import create, first_state
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.scope import Scope, TheseFiles
from lakebed.state.sources import FileRefusal, Restored, SourceFile, Sources
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.state.updates import update
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.ingest.due import Candidate, Due, LeftOut, Why
from lakebed.work.ingest.load_options import IngestRules, LoadOptions, rule_of
from lakebed.work.ingest.quarantine import Attempt, Quarantine, Rejects, RejectTotals
from lakebed.work.ingest.replacement import check_not_rewritten, files_of, write_others
from lakebed.work.writer import settled_scope, target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What is to be read into a dataset, and by which rules.

    Attributes:
        operation: For the history.
        run: Name of the run; None for one that has none.
        format: Of the raw files.
        find_due: Tells what is to be read, as of a state of the dataset.
        quarantine: For what does not fit.
        options: How the files are read.
        replaces_rewritten: Whether rows of a replaced file are taken for gone where something else
            has written their data files anew.
    """

    operation: str
    run: str | None
    format: FileFormat
    find_due: Callable[[State], Due]
    quarantine: Quarantine
    options: LoadOptions
    replaces_rewritten: bool = False

    @property
    def is_by_file(self) -> bool:
        """Whether each raw file counts for itself.

        Then it is noted of which of them the rows are, and one whose header or schema does not fit
        is set aside as a whole. Else that is an error, before any row is read.
        """
        return self.quarantine.is_by_file


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredTotals:
    """What was left out of rows, since the dataset has no field for it.

    Attributes:
        file_count: Files that had such a field.
        row_count: Rows that had a value in one.
        fields: Their paths, in order.
    """

    file_count: int = 0
    row_count: int = 0
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Ignored]) -> Self:
        """Add up what was left out of the rows of some files."""
        every = [part for part in parts if part.row_count]
        whole = sum(every, Ignored())
        return cls(
            file_count=len(every), row_count=whole.row_count, fields=tuple(sorted(whole.fields))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done.

    Attributes:
        due: What there was to read, without files that turned out to be kept back.
        run: Name of the run, also of one that was given none.
        commit: Of the rows; None if there was nothing to do.
        set_aside: Commit of what did not fit; None if everything did, or no row was loaded.
        row_count: Rows that were loaded.
        rejects: What did not fit, of files that were read and of those that were kept back.
        carried_count: Rows of other files that were written anew.
        ignored: What was left out of the rows, and of how many files.
        schema_changes: Fields that were added to the schema before.
    """

    due: Due
    run: str = ""
    commit: Commit | None = None
    set_aside: Commit | None = None
    row_count: int = 0
    rejects: RejectTotals = field(default_factory=RejectTotals)
    carried_count: int = 0
    ignored: IgnoredTotals = field(default_factory=IgnoredTotals)
    schema_changes: tuple[str, ...] = ()


def read_in(
    store: Store,
    dataset: str,
    intake: Intake,
    *,
    spark: SparkSession | Literal[True] | None,
    on_progress: OnProgress = NO_PROGRESS,
    first: State | None = None,
) -> Done:
    """Read what is due: rows become a batch, what does not fit goes to quarantine before that.

    Args:
        store: Where the dataset is.
        dataset: Its name.
        intake: What is to be read.
        spark: Whose tasks read the files; None reads in this process.
        on_progress: Is told after each file.
        first: The first state of a dataset that is missing. It is created right before the commit.

    Raises:
        CommitConflictError: Something that was done meanwhile stands in the way; nothing became
            visible, but perhaps what did not fit.
        LakebedError: See `Dataset.load` and `Ingest.run`.
    """
    if first is not None:
        store.check_writable()
    state = first or read_head(store, dataset).state
    due = intake.find_due(state)
    if not due.files:
        return Done(due=due)
    before = state.descriptor.schema
    looked_at: set[str] = set()
    while intake.options.unknown == "keep":
        files = [one.file for one in due.files if one.file.location not in looked_at]
        if not files:
            break
        looked_at.update(file.location for file in files)
        wider = _widen(store, intake, files, state, spark, is_first=first is not None)
        if wider is state:
            break
        # What was refused under the former schema is due now.
        state, first = wider, wider if first is not None else None
        due = intake.find_due(state)
    if not intake.is_by_file:
        _check_fit(intake, due, state)
    with _begin(store, dataset, intake, first) as started, Rejects(store) as rejects:
        base = started.base
        if (base.version, base.labels) != (state.version, state.labels):
            due = intake.find_due(base)
        if not due.files:
            return Done(due=due)
        if not intake.replaces_rewritten:
            check_not_rewritten(store, base, due.known, due.replaced)
        target = replace(
            target_of(started, intake.options.write),
            is_traced=intake.is_by_file,
            provided=intake.options.provided,
        )
        reading = _Reading(
            store=store,
            intake=intake,
            spark=spark,
            started=started,
            target=target,
            rejects=rejects,
        )
        done = reading.finish(due, first, on_progress)
    return replace(done, schema_changes=changes(before, state.descriptor.schema))


def _widen(
    store: Store,
    intake: Intake,
    files: Sequence[RawFile],
    state: State,
    spark: SparkSession | Literal[True] | None,
    *,
    is_first: bool,
) -> State:
    """Add the fields that files have and the dataset lacks to its schema, as one commit.

    Run again after a crash, or by two at once, it finds the fields there, and adds no other.

    Cost:
        One more pass over files of lines; a commit if there is a field to add.
    """
    workers = workers_for(spark, store, threads=1, purpose=f"look for fields of {state.name}")
    descriptor = state.descriptor
    census = census_of(workers, files, intake.format, descriptor, intake.options.csv)
    wider = widened(descriptor, census)
    if wider == descriptor:
        return state
    if is_first:
        return first_state(state.name, wider, HeadFormat.JSON)
    done = update(store, state.name, lambda old: widened(old, census), intake.options.commit)
    schema_file.put_or_leave(store, state.name, done.descriptor)
    _log.info(
        "schema widened dataset=%s version=%d fields=%s",
        state.name,
        done.entry.version,
        ", ".join(changes(descriptor.schema, done.descriptor.schema)),
    )
    return read_head(store, state.name).state


def _check_fit(intake: Intake, due: Due, state: State) -> None:
    """Check of all files together that they can be read into a dataset, before any row is.

    Raises:
        InvalidInputError: A value for a partition field is missing, or a header does not fit.
        LakebedError: As `check_files`.
    """
    options = intake.options
    state.descriptor.partition_by.check_provided(options.provided)
    files = [candidate.file for candidate in due.files]
    check_files(files, intake.format, state.descriptor, options.csv, options.unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A reading whose transaction has begun.

    Attributes:
        store: Where the dataset is.
        intake: What is to be read, and by which rules.
        spark: Whose tasks read.
        started: Takes the rows.
        target: Where these go.
        rejects: Takes what does not fit.
    """

    store: Store
    intake: Intake
    spark: SparkSession | Literal[True] | None
    started: Transaction
    target: BatchTarget
    rejects: Rejects

    @property
    def run(self) -> str:
        """Name of the run, also of one that was given none."""
        return self.intake.run or f"{self.intake.operation}-{self.started.batch_id}"

    def finish(self, due: Due, first: State | None, on_progress: OnProgress) -> Done:
        """Read what is due, set aside what does not fit, and commit the rows."""
        looked_at, base = due.files, self.started.base
        due, sifted = self._sift(due, on_progress)
        labels = files_of(base, due.known, due.replaced)
        others = write_others(
            self.store, base, due.known, labels, due.replaced, self.target, self.spark
        )
        self.started.add(others)
        set_aside = self._set_aside(due, looked_at)
        if not due.files:
            return Done(due=due, run=self.run, rejects=self.rejects.totals)
        scope = settled_scope(
            base.name, sifted.written.partitions, TheseFiles.of(labels) if labels else due.scope
        )
        if first is not None:
            self._create(first)
        commit = self._commit(due, sifted, others, scope)
        return Done(
            due=due,
            run=self.run,
            commit=commit,
            set_aside=set_aside if self.rejects.count else None,
            row_count=commit.row_count - others.row_count,
            rejects=self.rejects.totals,
            carried_count=others.row_count,
            ignored=IgnoredTotals.of(
                sifted.counts[candidate.file.location].ignored for candidate in due.files
            ),
        )

    def _sift(self, due: Due, on_progress: OnProgress) -> tuple[Due, Sifted]:
        """Read files; return what of them is not kept back, and what has become of that."""
        intake, options = self.intake, self.intake.options
        job = Job(
            target=self.target,
            format=intake.format,
            csv=options.csv,
            rejects_files=intake.is_by_file,
            stops_early=options.fail_on_rejects,
            unknown=options.unknown,
        )
        while True:
            files = [candidate.file for candidate in due.files]
            purpose = f"read files into {self.started.base.name}"
            workers = workers_for(
                self.spark if files else None, self.store, threads=1, purpose=purpose
            )
            tally = _TallyOfRawFiles(on_progress, purpose, files)
            sifted = sift_all(workers, self.store, job, files, tally.add_file, tally.add_rows)
            self.started.add(sifted.written)
            self.rejects.add(sifted)
            if options.fail_on_rejects:
                self.rejects.refuse()
            kept_back = _kept_back(due, sifted.counts, options.rules)
            if kept_back and not intake.is_by_file:
                raise _refused(kept_back.values(), self.rejects)
            for left_out in kept_back.values():
                _log.info("raw file kept back location=%s why=%s", left_out.location, left_out.why)
            due = due.without(kept_back)
            if not any(sifted.counts[location].row_count for location in kept_back):
                return due, sifted
            # Its rows lie among those of the other files, which are read again without it.
            self.started.discard(sifted.written)
            self.rejects.keep_only(kept_back)

    def _set_aside(self, due: Due, looked_at: Sequence[Candidate]) -> Commit | None:
        """Commit what does not fit, in place of what was set aside for the same before."""
        slots = {candidate.slot for candidate in due.files}
        earlier = [*due.replaced, *(file for file in due.known.files if file.slot in slots)]
        superseded = [one for slot in slots for one in due.supersedes.get(slot, ())]
        rule = rule_of(self.intake.format, self.intake.options.csv, self.intake.options.rules)
        refusals = {
            left_out.location: self._refusal(left_out.why, rule, left_out.detail)
            for left_out in due.left_out
        }
        attempt = Attempt(
            run=self.run,
            operation=self.intake.operation,
            batch_id=self.started.batch_id,
            files=tuple(looked_at),
            refusals=refusals,
        )
        return self.intake.quarantine.set_aside(
            self.store, attempt, self.rejects, earlier, superseded, self.intake.options
        )

    def _refusal(self, why: str, rule: str, detail: str = "") -> FileRefusal:
        schema = self.started.base.lineage.number
        return FileRefusal(why=why, schema=schema, rule=rule, detail=detail)

    def _create(self, first: State) -> None:
        """Create the dataset for whose first state the rows were staged.

        Raises:
            CommitConflictError: Others were faster; they had as long as it took to read the files.
        """
        try:
            create(self.store, first.name, lambda: first)
        except ObjectExistsError as exc:
            raise CommitConflictError(
                f"Dataset {first.name!r} was just created by another writer.",
                hint="Run it again: it reads the files into what is there.",
                expected=first.version,
                actual=read_head(self.store, first.name).state.version,
            ) from exc

    def _commit(self, due: Due, sifted: Sifted, others: Written, scope: Scope) -> Commit:
        """Commit rows, and others that stay of files that give way, and what was read."""
        started, rows, sources = self.started, sifted.written, None
        if self.intake.is_by_file:
            waiting = self._refusal("unknown", self.intake.options.unknown)
            read = _source_files(due.files, sifted.counts, started.batch_id, self.run, waiting)
            sources = Sources(files=read, restored=_restored(due, read, started.commit_id))
            rows = _of_raw_files(rows, read)
        started.hold(others + rows)
        committed = started.commit(
            Change(scope=scope, rewritten_row_count=others.row_count), sources=sources
        )
        return Commit.of(committed, started.base)


def _begin(store: Store, dataset: str, intake: Intake, first: State | None) -> Transaction:
    operation, run, options = intake.operation, intake.run, intake.options.commit
    if first is None:
        return Transaction.begin(store, dataset, operation, run=run, options=options)
    return Transaction.begin_first(store, first, operation, run=run, options=options)


def _of_raw_files(rows: Written, read: Sequence[SourceFile]) -> Written:
    """Say of which raw files rows are by the keys of these, instead of by their locations."""
    keys = {file.location: file.key for file in read}
    origins = {
        label: tuple((keys[location], row_count) for location, row_count in of_file)
        for label, of_file in rows.origins.items()
    }
    return replace(rows, origins=origins)


def _kept_back(due: Due, counts: Mapping[str, Counts], rules: IngestRules) -> dict[str, LeftOut]:
    """Return the files that are not to be used, by location: what they would replace stays."""
    kept_back: dict[str, LeftOut] = {}
    for candidate in due.files:
        location = candidate.file.location
        replaced = due.replaces.get(candidate.slot, ())
        rows = sum(file.row_count for file in replaced)
        why = _why_kept_back(counts[location], rules, replaces_rows=rows > 0)
        if why is None:
            continue
        detail = _detail(why, counts[location])
        if rows and why != "damaged":
            stay = counted(
                rows, "row that it would replace stays", "rows that it would replace stay"
            )
            detail = f"{detail}; the {stay}"
        kept_back[location] = LeftOut.of(candidate, why, detail)
    return kept_back


def _refused(kept_back: Iterable[LeftOut], rejects: Rejects) -> RejectsError:
    """Return the error for files of a load, which takes all of its files or none."""
    first, *others = kept_back
    more = f" {counted(len(others), 'other file')} as well." if others else ""
    return RejectsError(
        f"{first.location}: {first.detail}.{more} Nothing was committed.",
        hint="Mend it, or take what can be read: max_rejects=1 and allow_truncated, or "
        "--max-rejects 1 and --allow-truncated.",
        rejected_count=rejects.count,
    )


def _why_kept_back(became: Counts, rules: IngestRules, *, replaces_rows: bool) -> Why | None:
    if became.is_damaged:
        return "damaged"
    if became.refusal:
        return "refused"
    if became.is_cut and not rules.allow_truncated:
        return "truncated"
    is_empty = replaces_rows and not became.row_count and not rules.takes_all
    return "rejects" if is_empty or rules.is_too_much(became) else None


def _detail(why: Why, became: Counts) -> str:
    if why == "damaged":
        return "it has not the hash of its record"
    if why == "refused":
        rows = became.refused_row_count
        of_rows = f"its {counted(rows, 'row')} {_not_fitting(rows)}: " if rows else ""
        return f"{of_rows}{became.refusal.rstrip('.')}"
    total = became.row_count + became.line_count
    if why == "truncated":
        lines = became.line_count
        unfit = f", of which {lines:,} {_not_fitting(lines)}" if lines else ""
        return f"it cannot be read to its end, only {counted(total, 'line')}{unfit}"
    count = became.rejected_count
    unfit = f"{count:,} of its {counted(total + became.rest_count, 'line')} {_not_fitting(count)}"
    return f"{unfit}, the first: {became.reason.rstrip('.')}" if became.reason else unfit


def _not_fitting(count: int) -> str:
    return "does not fit" if count == 1 else "do not fit"


def _restored(due: Due, read: Sequence[SourceFile], commit_id: str) -> tuple[Restored, ...]:
    """Note that what has been replaced is not current either where it stood for something else."""
    replaced = {file.key for file in due.replaced}
    slots = {file.slot for file in read}
    current = {
        slot: ""
        for slot, file in due.known.current().items()
        if file.key in replaced and slot not in slots
    }
    if not current:
        return ()
    return (Restored(commit_id=commit_id, current=current, after=len(read)),)


def _source_files(
    files: Sequence[Candidate],
    counts: Mapping[str, Counts],
    batch_id: int,
    run: str,
    waiting: FileRefusal,
) -> tuple[SourceFile, ...]:
    source_files = []
    for number, candidate in enumerate(files):
        became = counts[candidate.file.location]
        record = candidate.record
        source_files.append(
            SourceFile(
                key=f"{batch_id}-{number}",
                location=candidate.file.location,
                slot=candidate.slot,
                fingerprint=candidate.fingerprint,
                size_bytes=candidate.file.size_bytes,
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
                refusal=waiting if became.unknown_count else None,
            )
        )
    return tuple(source_files)


class _TallyOfRawFiles:
    """Tells of raw files, of whose rows nobody knows before they are read."""

    def __init__(self, on_progress: OnProgress, purpose: str, files: Sequence[RawFile]) -> None:
        sizes = {file.location: file.size_bytes for file in files}
        self._tally = Tally(on_progress, purpose, sizes)
        # Of the file that is being read.
        self._told_count = self._told_bytes = 0

    def add_rows(self, row_count: int, position: int) -> None:
        size_bytes = max(0, position - self._told_bytes)
        self._told_count, self._told_bytes = (
            self._told_count + row_count,
            self._told_bytes + size_bytes,
        )
        self._tally.add(row_count=row_count, size_bytes=size_bytes)

    def add_file(self, location: str, counts: Counts) -> None:
        row_count, self._told_count = counts.row_count - self._told_count, 0
        size_bytes, self._told_bytes = -self._told_bytes, 0
        self._tally.add(
            location,
            row_count=row_count,
            rejected_count=counts.rejected_count,
            size_bytes=size_bytes,
        )
