"""Reading of raw files into a dataset: the due files become one batch, in one commit.

This is the common engine of `Ingest` and `Dataset.load`. They differ in which files are due: new
and changed files, or all files of a run that has not been loaded.
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
from lakebed.state.state import Change, State, have_same_files
from lakebed.state.transaction import Transaction
from lakebed.state.updates import update
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.ingest.due import Candidate, Due, LeftOut, Why, content_key
from lakebed.work.ingest.load_options import IngestRules, LoadOptions, rule_of
from lakebed.work.ingest.quarantine import Attempt, Quarantine, Rejects, RejectTotals
from lakebed.work.ingest.replacement import check_not_rewritten, files_of, write_others
from lakebed.work.writer import settled_scope, target_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """The raw files to read into a dataset, and the rules.

    Attributes:
        operation: Name of the operation in the history.
        run: Name of the run; None for an unnamed one.
        format: Format of the raw files.
        find_due: Returns the files to read, for a state of the dataset.
        quarantine: The quarantine for rejects.
        options: Options for reading the files.
        replaces_rewritten: Whether to assume that rows of a replaced file were deleted if an
            untracked operation has rewritten their data files.
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
        """True if each raw file is accepted or kept back by itself.

        Then the raw file of each row is recorded, and a file whose header or schema does not fit is
        set aside as a whole. Else such a file is an error, before any row is read.
        """
        return self.quarantine.is_by_file


@dataclass(frozen=True, slots=True, kw_only=True)
class IgnoredTotals:
    """Totals of fields that were left out of rows, since the dataset lacks them.

    Attributes:
        file_count: Number of files with such a field.
        row_count: Number of rows with a value in such a field.
        fields: Paths of the fields, in order.
    """

    file_count: int = 0
    row_count: int = 0
    fields: tuple[str, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Ignored]) -> Self:
        """Add up the ignored fields of some files."""
        every = [part for part in parts if part.row_count]
        whole = sum(every, Ignored())
        return cls(
            file_count=len(every), row_count=whole.row_count, fields=tuple(sorted(whole.fields))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The result of a reading.

    Attributes:
        due: The files that were due, without those that were kept back during the reading.
        run: Name of the run; a generated one if none was given.
        commit: Commit of the rows; None if there was nothing to do.
        set_aside: Commit of the rejects; None if there were none, or no row was loaded.
        row_count: Number of loaded rows.
        rejects: Totals of rejects, including those of files that were kept back.
        carried_count: Number of rows of other raw files that were rewritten.
        ignored: Totals of fields that were left out of the rows.
        schema_changes: Fields that were added to the schema before the rows were read.
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
    """Read the due files: rejects go to quarantine first, then the rows become a batch.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        intake: The raw files and the rules.
        spark: Session whose tasks read the files; None to read in this process.
        on_progress: Callback for progress; called after each file.
        first: First state of a missing dataset, which is created right before the commit.

    Raises:
        CommitConflictError: A concurrent commit conflicts with this one; nothing became visible,
            except possibly the rejects.
        LakebedError: See `Dataset.load` and `Ingest.run`.
    """
    if first is not None:
        store.check_writable()
    state = first or read_head(store, dataset).state
    due = intake.find_due(state)
    if not due.files:
        return Done(due=due)
    before = state.descriptor.schema
    inspected: set[str] = set()
    while intake.options.unknown == "keep":
        files = [one.file for one in due.files if one.file.location not in inspected]
        if not files:
            break
        inspected.update(file.location for file in files)
        wider = _widen(store, intake, files, state, spark, is_first=first is not None)
        if wider is state:
            break
        # Files that were refused under the former schema are due now.
        state, first = wider, wider if first is not None else None
        due = intake.find_due(state)
    if not intake.is_by_file:
        _check_fit(intake, due, state)
    with _begin(store, dataset, intake, first) as started, Rejects(store) as rejects:
        base = started.base
        if base.version != state.version or not have_same_files(base, state):
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
    """Add fields that the dataset lacks and files have to its schema, as one commit.

    After a crash, or next to a concurrent run, it finds the fields there and adds no others.

    Cost:
        One more pass over line-based files; a commit if there is a field to add.
    """
    workers = workers_for(spark, store, threads=1, purpose=f"look for fields of {state.name}")
    descriptor = state.descriptor
    census = census_of(
        workers,
        files,
        intake.format,
        descriptor,
        intake.options.csv_options,
        intake.options.json_options,
    )
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
    """Check that all files can be read into a dataset, before any row is read.

    Raises:
        InvalidInputError: A value for a partition field is missing, or a header does not fit.
        LakebedError: As `check_files`.
    """
    options = intake.options
    state.descriptor.partition_by.check_provided(options.provided)
    files = [candidate.file for candidate in due.files]
    check_files(
        files,
        intake.format,
        state.descriptor,
        options.csv_options,
        options.unknown,
        options.json_options,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """A reading whose transaction has started.

    Attributes:
        store: The store that holds the dataset.
        intake: The raw files and the rules.
        spark: Session whose tasks read the files; None for this process.
        started: The transaction of the rows.
        target: Target of the rows.
        rejects: Collects the rejects.
    """

    store: Store
    intake: Intake
    spark: SparkSession | Literal[True] | None
    started: Transaction
    target: BatchTarget
    rejects: Rejects

    @property
    def run(self) -> str:
        """Name of the run; a generated one if none was given."""
        return self.intake.run or f"{self.intake.operation}-{self.started.batch_id}"

    def finish(self, due: Due, first: State | None, on_progress: OnProgress) -> Done:
        """Read the due files, set rejects aside, and commit the rows."""
        inspected, base = due.files, self.started.base
        due, sifted = self._sift(due, on_progress)
        labels = files_of(base, due.known, due.replaced)
        others = write_others(
            self.store, base, due.known, labels, due.replaced, self.target, self.spark
        )
        self.started.add(others)
        set_aside = self._set_aside(due, inspected)
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
        """Read files; return the due ones without those kept back, and their results."""
        intake, options = self.intake, self.intake.options
        job = Job(
            target=self.target,
            format=intake.format,
            csv=options.csv_options,
            json=options.json_options,
            rejects_files=intake.is_by_file,
            stops_early=options.fail_on_rejects,
            unknown=options.unknown,
            is_hashing=intake.is_by_file and any(one.record is None for one in due.files),
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
            strange = _not_as_found(due, sifted.counts)
            kept_back = _kept_back(due.without(strange), sifted.counts, options.rules)
            if kept_back and not intake.is_by_file:
                raise _refused(kept_back.values(), self.rejects)
            for left_out in kept_back.values():
                _log.info("raw file kept back location=%s why=%s", left_out.location, left_out.why)
            left_out_now = {**strange, **kept_back}
            due = due.without(left_out_now)
            if not any(
                sifted.counts[location].row_count or location in strange
                for location in left_out_now
            ):
                return due, sifted
            # Its rows share data files with the others, so the others are read again without it.
            self.started.discard(sifted.written)
            self.rejects.keep_only(kept_back)

    def _set_aside(self, due: Due, inspected: Sequence[Candidate]) -> Commit | None:
        """Commit the rejects, in place of earlier rejects of the same files or run."""
        slots = {candidate.slot for candidate in due.files}
        earlier = [*due.replaced, *(file for file in due.known.files if file.slot in slots)]
        superseded = [one for slot in slots for one in due.supersedes.get(slot, ())]
        options = self.intake.options
        rule = rule_of(
            self.intake.format,
            options.csv_options,
            options.json_options,
            options.rules,
            levels=options.levels,
        )
        refusals = {
            left_out.location: self._refusal(left_out.why, rule, left_out.detail)
            for left_out in due.left_out
        }
        attempt = Attempt(
            run=self.run,
            operation=self.intake.operation,
            batch_id=self.started.batch_id,
            files=tuple(inspected),
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
            CommitConflictError: Another writer created it while the files were read.
        """
        try:
            create(self.store, first.name, lambda: first)
        except ObjectExistsError as exc:
            raise CommitConflictError(
                f"Dataset {first.name!r} was just created by another writer.",
                hint="Run it again: it reads the files into the existing dataset.",
                expected=first.version,
                actual=read_head(self.store, first.name).state.version,
            ) from exc

    def _commit(self, due: Due, sifted: Sifted, others: Written, scope: Scope) -> Commit:
        """Commit the rows, the rewritten rows of other raw files, and the list of raw files."""
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
    """Name the raw files of rows by key instead of by location."""
    keys = {file.location: file.key for file in read}
    origins = {
        label: tuple((keys[location], row_count) for location, row_count in of_file)
        for label, of_file in rows.origins.items()
    }
    return replace(rows, origins=origins)


def _not_as_found(due: Due, counts: Mapping[str, Counts]) -> dict[str, LeftOut]:
    """Return files of folders whose content, as it was read, shows that no row of it may be added.

    These are copies that their names and sizes did not show, and files that were rewritten
    between their recognition and their reading.
    """
    strange: dict[str, LeftOut] = {}
    contents = dict(due.contents or {})
    # Files that replace rows come first: a copy of one adds none.
    row_counts = {
        slot: sum(file.row_count for file in files) for slot, files in due.replaces.items()
    }
    for candidate in sorted(due.files, key=lambda one: not row_counts.get(one.slot)):
        location, became = candidate.file.location, counts[candidate.file.location]
        if became.content is None:
            continue
        if candidate.continues is not None and became.first_content != candidate.continues:
            detail = "it was rewritten while it was read; the next run looks at it again"
            strange[location] = LeftOut.of(candidate, "unclear", detail)
            continue
        original = contents.setdefault(content_key(became.content, location), location)
        is_double = original != location and became.content.size_bytes
        if is_double and due.contents is not None and not row_counts.get(candidate.slot):
            strange[location] = LeftOut.of(candidate, "copy", f"a copy of {original}")
    return strange


def _kept_back(due: Due, counts: Mapping[str, Counts], rules: IngestRules) -> dict[str, LeftOut]:
    """Return the files to keep back, by location; the rows that they would replace stay."""
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
    """Return the error for kept-back files of a load, which accepts all of its files or none."""
    first, *others = kept_back
    more = f" {counted(len(others), 'other file')} as well." if others else ""
    return RejectsError(
        f"{first.location}: {first.detail}.{more} Nothing was committed.",
        hint="Repair it, or accept the readable part: max_rejects=1 and allow_truncated, or "
        f"--max-rejects 1 and --allow-truncated.{rejects.hint_for_unknown}",
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
    """Record that replaced raw files are not current in their own slots either."""
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
                content=became.content,
                refusal=waiting if became.unknown_count else None,
            )
        )
    return tuple(source_files)


class _TallyOfRawFiles:
    """Reports progress on raw files, whose row counts are unknown before they are read."""

    def __init__(self, on_progress: OnProgress, purpose: str, files: Sequence[RawFile]) -> None:
        sizes = {file.location: file.size_bytes for file in files}
        self._tally = Tally(on_progress, purpose, sizes)
        # For the file that is being read.
        self._reported_count = self._reported_bytes = 0

    def add_rows(self, row_count: int, position: int) -> None:
        size_bytes = max(0, position - self._reported_bytes)
        self._reported_count, self._reported_bytes = (
            self._reported_count + row_count,
            self._reported_bytes + size_bytes,
        )
        self._tally.add(row_count=row_count, size_bytes=size_bytes)

    def add_file(self, location: str, counts: Counts) -> None:
        row_count, self._reported_count = counts.row_count - self._reported_count, 0
        size_bytes, self._reported_bytes = -self._reported_bytes, 0
        self._tally.add(
            location,
            row_count=row_count,
            rejected_count=counts.rejected_count,
            size_bytes=size_bytes,
        )
