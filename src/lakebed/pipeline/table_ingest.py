"""The ingest from a table of Spark: its rows, or those of a window, become batches of a dataset.

The rows of each part of a window, or of the whole table, have a run of their own, whose name has
the table and the part. A repetition replaces the rows of the run in one commit, so no row is there
twice, however often and from wherever it is repeated.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from lakebed.arrow.conform import check_columns, check_types
from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.unknown import Unknown
from lakebed.common.given import check_given
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.redaction import StorageOptions
from lakebed.common.shown import counted, shown
from lakebed.dataset import Dataset, scope_of_run, session_of
from lakebed.errors import InvalidInputError, LakebedError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import changes
from lakebed.model.names import nearest
from lakebed.model.schema import Schema
from lakebed.pipeline.candidates import check_bound
from lakebed.pipeline.declared_dataset import DeclaredDataset
from lakebed.pipeline.table_report import TableIngestReport, TablePart
from lakebed.pipeline.table_windows import (
    UNITS,
    WindowPart,
    WindowUnit,
    is_label,
    label_of,
    parts_of,
)
from lakebed.spark.source_tables import SourceTable, open_source_table
from lakebed.state import runs
from lakebed.state.after import NotPublished, catch_up
from lakebed.state.committing import CommitOptions
from lakebed.state.reader import read_head
from lakebed.state.runs import Runs
from lakebed.state.state import State
from lakebed.work.ingest.load_options import check_unknown
from lakebed.work.ingest.quarantine import checked_run
from lakebed.work.writer import commit_staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_QUERY = "query"  # in the names of the runs of a query
_LONGEST_LABEL = "2026-11-19T05"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromTable:
    """Rows of a table or view of Spark, or of a query.

    Attributes:
        table: Name of the table or view, as Spark spells it: `shop.sales`, with a catalog before it,
            or a path such as ``parquet.`/data/sales` ``.
        query: A query in Spark's SQL, in place of a table.
        where: Condition in Spark's SQL for the rows to read; None for all.
        time: Column of the time of a row, for a window: a date or a timestamp. Timestamps without
            a zone are in UTC.
        start: Start of the window, as for an archive: a time, or `-7d`. None reads the whole table.
        end: End of the window, included; None for now.
        every: Length of the parts of the window, in UTC: `hour`, `day` or `month`. The first and
            the last part are read as a whole.
        may_be_empty: Allow that rows which were read before are replaced by none.

    >>> FromTable(table="shop.sales", time="sold_at", start="-7d").every
    'day'
    """

    table: str | None = None
    query: str | None = None
    where: str | None = None
    time: str | None = None
    start: object = None
    end: object = None
    every: WindowUnit = "day"
    may_be_empty: bool = False

    def __post_init__(self) -> None:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        for problem in problems_of_table(given).values():
            raise problem

    @property
    def title(self) -> str:
        """Name of the table; `query` for a query."""
        return self.table or _QUERY

    def parts(self) -> tuple[WindowPart, ...]:
        """Return the parts of the window as of now; one part for the whole table."""
        if self.start is None:
            return (WindowPart(),)
        return parts_of(self.start, "now" if self.end is None else self.end, self.every)


def problems_of_table(given: Mapping[str, Any]) -> Mapping[str, LakebedError]:
    """Return what is wrong with the attributes of a `FromTable`, by their names."""
    found: dict[str, LakebedError] = {}
    table, query, start = (given.get(name) for name in ("table", "query", "start"))
    if (table is None) == (query is None):
        words = "neither is" if table is None else "both are"
        found["table"] = InvalidInputError(
            f"The source is a table or a query, and {words} given.", hint="Give one of them."
        )
    for name in ("table", "query", "where", "time"):
        value = given.get(name)
        if value is not None and not (isinstance(value, str) and value.strip()):
            found[name] = InvalidInputError(
                f"{name} is {shown(value)}, which is not a text.", hint="Write it, or leave it out."
            )
    every = given.get("every", "day")
    if every not in UNITS:
        found["every"] = InvalidInputError(
            f"every is {shown(every)}.",
            hint=nearest(str(every), UNITS) or f"Give one of: {', '.join(UNITS)}.",
        )
    found |= _problems_of_window(given)
    if not found and start is not None:
        end = given.get("end")
        try:
            parts_of(start, "now" if end is None else end, every)
        except LakebedError as exc:
            found["start"] = exc
    return found


def _problems_of_window(given: Mapping[str, Any]) -> Mapping[str, LakebedError]:
    found: dict[str, LakebedError] = {}
    time_, start, end = (given.get(name) for name in ("time", "start", "end"))
    if time_ is None and start is not None:
        found["start"] = InvalidInputError(
            "A window of a table needs the column of its time.", hint="Give time, too."
        )
    if time_ is not None and start is None:
        found["time"] = InvalidInputError(
            f"time is {shown(time_)}, and there is no window.", hint="Give start, or leave it out."
        )
    if end is not None and start is None:
        found["end"] = InvalidInputError("The window has no start.", hint="Give start, too.")
    for name, bound in (("start", start), ("end", end)):
        if bound is not None and name not in found:
            try:
                check_bound(bound)
            except LakebedError as exc:
                found[name] = exc
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIngest(DeclaredDataset):
    """A table of Spark, and the dataset that its rows become.

    Attributes:
        name: Name of the ingest, with which the names of its runs begin. Two ingests of one table
            into one dataset need different names.
        into: The dataset, as LOCATION/NAME.
        source: The table.
        create: Descriptor to create a missing dataset with; None if the dataset must exist.
        unknown: Handling of a column that the dataset lacks. `reject`: nothing is read. `ignore`:
            it is left out. `keep`: it is added to the schema of the dataset, nullable, in a commit
            before those of the rows.
        storage_options: Settings of the object store of the dataset; secrets are never displayed.
        write: Sizes and layout of the data files to write.
        commit: Retry and lease settings of the commits.

    >>> import lakebed
    >>> ingest = TableIngest(
    ...     name="sales", into="lake/sales", source=lakebed.FromTable(table="shop.sales")
    ... )
    >>> ingest.run_of("2026-11-19")
    'sales: shop.sales 2026-11-19'
    """

    name: str
    into: str
    source: FromTable
    create: DatasetDescriptor | None = None
    unknown: Unknown = "reject"
    storage_options: Mapping[str, str] = field(default_factory=dict)
    write: WriteOptions = field(default_factory=WriteOptions)
    commit: CommitOptions = field(default_factory=CommitOptions)

    def __post_init__(self) -> None:
        check_given("source", self.source, FromTable, "Give a FromTable.", or_none=False)
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))
        self._check_names()
        check_unknown(self.unknown)
        checked_run(self.run_of("" if self.source.start is None else _LONGEST_LABEL))

    def run_of(self, label: str) -> str:
        """Return the name of the run for a part of the window; an empty label is the whole table."""
        return f"{self.name}: {self.source.title} {label}".rstrip()

    def run(
        self,
        spark: SparkSession | Literal[True] | None = None,
        *,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> TableIngestReport:
        """Read the table or its window, and replace what was read of it before.

        Each part of the window is one batch in one commit: a reader sees its earlier rows or the
        new ones. The rows of a part that is no longer in the window stay. If a run ends in between,
        the parts before are in the dataset, and the next run reads the window again.

        A part is kept back, and its earlier rows stay, if the table has none any more, or if all of
        them fail a check of the dataset. Its report names the reason.

        Args:
            spark: The session that reads the table; None or True for the active one, else a new one by
                the environment.
            dry_run: Write nothing; count the rows that would be written. Sizes are unknown.
            on_progress: Callback for progress; called after each part.

        Raises:
            MissingDependencyError: pyspark or Java is not installed.
            NotFoundError: Spark has no such table.
            DatasetNotFoundError: The dataset does not exist, and `create` is not given.
            InvalidInputError: The condition or the column of the time is wrong, the dataset differs
                from the declared one, or rows of an overlapping window were read before.
            SchemaMismatchError: The columns do not fit the dataset; nothing was written.
            ChecksFailedError: A check of the dataset refuses the rows of a part; parts before it
                are in the dataset.
            CommitConflictError: Another run of the part was faster; run it again.
            StorageError: Spark cannot read the table, or the store failed.

        Cost:
            A Spark job that counts the rows by time, and for each part with rows those of
            `Dataset.rerun`.
        """
        started = time.monotonic()
        source = self.source
        table = open_source_table(
            session_of(spark),
            table=source.table,
            query=source.query,
            where=source.where,
            time=source.time,
        )
        dataset = self._find()
        creates_dataset = dataset is None
        before = self.create if dataset is None else dataset.descriptor
        assert before is not None  # otherwise `_find` raises
        unknown = self._unknown_columns(table, before)
        wider = _widened(before, table, unknown) if self.unknown == "keep" else before
        _check_fit(table, wider)
        if not dry_run:
            dataset = dataset or self._created()
            if wider != before:
                columns = self._unknown_columns(table, dataset.descriptor)
                dataset.evolve(lambda present: _widened(present, table, columns))
        ignored = () if self.unknown == "keep" and not dry_run else unknown
        work = _Work(
            ingest=self,
            table=table,
            dataset=None
            if dataset is None
            else dataset.with_options(write=self.write, commit=self.commit),
            frame=table.without(ignored),
        )
        parts, timeless = work.read(dry_run=dry_run, on_progress=on_progress)
        report = TableIngestReport(
            name=self.name,
            dataset=self._address()[1],
            table=table.title,
            location=table.state.location,
            table_version=table.state.version,
            parts=parts,
            timeless_row_count=timeless,
            ignored_fields=unknown if self.unknown == "ignore" else (),
            schema_changes=changes(before.schema, wider.schema),
            creates_dataset=creates_dataset,
            not_published=() if dry_run else self._not_published(parts),
            is_dry_run=dry_run,
            duration_s=time.monotonic() - started,
        )
        _log_report(report)
        return report

    def _not_published(self, parts: Sequence[TablePart]) -> tuple[NotPublished, ...]:
        """Publish tables that are behind if no commit has done so; return those that stay behind."""
        commits = [part.commit for part in parts if part.commit is not None]
        if commits:
            return commits[-1].not_published
        store = self._store()
        return catch_up(store, read_head(store, self._address()[1]).state)

    def _unknown_columns(
        self, table: SourceTable, descriptor: DatasetDescriptor
    ) -> tuple[str, ...]:
        """Return the columns that the dataset lacks.

        Raises:
            SchemaMismatchError: There are some, and they are to be rejected.
        """
        found = tuple(name for name in table.schema.names if name not in descriptor.schema)
        if found and self.unknown == "reject":
            raise SchemaMismatchError(
                f"{table.title} has columns that the dataset lacks: {', '.join(found)}. Nothing was "
                "read.",
                hint='unknown = "keep" adds them to the schema, "ignore" leaves them out.',
            )
        return found


def _check_fit(table: SourceTable, descriptor: DatasetDescriptor) -> None:
    """Check that the columns of a table that are to be written fit a dataset.

    Raises:
        SchemaMismatchError: A type differs, or a column is missing that the dataset needs.
        PartitionSpecError: The source of a partition function is missing.
    """
    written = tuple(one for one in table.schema if one.name in descriptor.schema)
    check_columns([one.name for one in written], descriptor)
    check_types(Schema(fields=written), descriptor)


def _widened(
    descriptor: DatasetDescriptor, table: SourceTable, names: Sequence[str]
) -> DatasetDescriptor:
    """Return a descriptor with further columns of a table, all of them nullable.

    Raises:
        LakebedError: One of them cannot be added.
    """
    present = {name.lower() for name in descriptor.schema.names}
    new = []
    for name in names:
        if name in descriptor.schema:
            continue
        if name.lower() in present:
            raise InvalidInputError(
                f"Column {name!r} of {table.title} differs from a field of the dataset only in case.",
                hint='Rename it by a query, or give unknown = "ignore".',
            )
        new.append(replace(table.schema.get(name), nullable=True))
    wider = (*descriptor.schema.fields, *new)
    return replace(descriptor, schema=replace(descriptor.schema, fields=wider))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The reading of a table whose dataset is known.

    Attributes:
        ingest: The declaration.
        table: The table.
        dataset: The dataset; None in a dry run of a missing one.
        frame: The rows, with the columns that are written.
    """

    ingest: TableIngest
    table: SourceTable
    dataset: Dataset | None
    frame: DataFrame

    def read(self, *, dry_run: bool, on_progress: OnProgress) -> tuple[tuple[TablePart, ...], int]:
        """Write the parts that have rows; return them, and the number of rows without a time."""
        parts = self.ingest.source.parts()
        known, state = self._known(parts)
        counts, timeless = self._counts(parts)
        due = [part for part in parts if counts[part.label] or self._has_rows(part, known, state)]
        names = {self.ingest.run_of(part.label): 0 for part in due}
        tally = Tally(on_progress, f"read {self.table.title}", names, unit="part")
        done = []
        for part in due:
            count = counts[part.label]
            if not count and not self.ingest.source.may_be_empty:
                one = self._kept_back(part, count, "the table has no row of it any more")
            else:
                one = self._planned(part, count) if dry_run else self._written(part, count)
            done.append(one)
            tally.add(one.run, row_count=one.row_count)
        return tuple(done), timeless

    def _known(self, parts: Sequence[WindowPart]) -> tuple[Runs, State | None]:
        """Return the runs of the dataset, and its state, if no run overlaps a part of another name.

        Raises:
            InvalidInputError: The same rows would be in the dataset twice.
        """
        if self.dataset is None:
            return Runs(), None
        state = self.dataset._source.load().state
        known = runs.read(self.dataset._source.store, state.lists)
        own = {part.label for part in parts}
        for label in self._labels(known):
            overlapped = next((part for part in parts if part.overlaps(label)), None)
            if label in own or overlapped is None:
                continue
            run = self.ingest.run_of(label)
            if known.live_files_of(run, state.live):
                raise InvalidInputError(
                    f"Rows of the run {run!r} are in the dataset, and the run "
                    f"{self.ingest.run_of(overlapped.label)!r} would add rows of the same time again.",
                    hint=f"Keep the window as it was, or remove these rows before: "
                    f"Dataset.rerun([], {run!r}, replace_all=True).",
                )
        return known, state

    def _labels(self, known: Runs) -> Iterator[str]:
        """Yield the labels of the runs that this ingest has written."""
        prefix = self.ingest.run_of("")
        for run in sorted({*known.batches.values(), *known.carried.values()}):
            if run == prefix:
                yield ""
            elif run.startswith(f"{prefix} ") and is_label(run[len(prefix) + 1 :]):
                yield run[len(prefix) + 1 :]

    def _has_rows(self, part: WindowPart, known: Runs, state: State | None) -> bool:
        run = self.ingest.run_of(part.label)
        return state is not None and bool(known.live_files_of(run, state.live))

    def _counts(self, parts: Sequence[WindowPart]) -> tuple[Counter[str], int]:
        """Return the number of rows of each part, and of those without a time."""
        counts: Counter[str] = Counter()
        start, end = parts[0].start, parts[-1].end
        if start is None or end is None:
            counts[""] = self.table.count()
            return counts, 0
        by_hour = self.table.count_by_hour(start, end)
        timeless = by_hour.pop(None, 0)
        for hour, count in by_hour.items():
            assert hour is not None
            counts[label_of(hour, self.ingest.source.every)] += count
        return counts, timeless

    def _rows(self, part: WindowPart, count: int) -> object:
        if not count:
            return []
        if part.start is None or part.end is None:
            return self.frame
        return self.table.within(self.frame, part.start, part.end)

    def _planned(self, part: WindowPart, count: int) -> TablePart:
        """Return what would become of a part, without a write."""
        run = self.ingest.run_of(part.label)
        if self.dataset is None:
            return TablePart(
                run=run, source_row_count=count, row_count=count, file_count=None, size_bytes=None
            )
        with self.table.reading():
            commit = self.dataset.rerun(
                self._rows(part, count), run, replace_all=True, dry_run=True
            )
        return TablePart(
            run=run,
            source_row_count=count,
            row_count=commit.row_count,
            replaced_row_count=commit.deleted_row_count,
            file_count=len(commit.files_added),
            size_bytes=None,
            commit=commit,
        )

    def _written(self, part: WindowPart, count: int) -> TablePart:
        """Write a part as a batch, and commit it if it is whole."""
        run, dataset = self.ingest.run_of(part.label), self.dataset
        assert dataset is not None  # it was created
        with dataset._begin("rerun", run) as transaction:
            with self.table.reading():
                target = dataset._narrow_target(transaction)
                transaction.add(dataset._stage(self._rows(part, count), target))
            written, base = transaction.written, transaction.base
            if not written.row_count and not self.ingest.source.may_be_empty:
                earlier = runs.read(transaction.store, base.lists).live_files_of(run, base.live)
                if earlier:
                    why = (
                        "all of its rows fail a check"
                        if written.has_failures
                        else "it is empty now"
                    )
                    return self._kept_back(part, count, why)
            # The parts of a window share partitions: none is meant to replace another.
            # The name of the run has its period, or stands for the whole table.
            scope = scope_of_run(run, partitions=False, replace_all=True)
            commit = commit_staged(transaction, scope, beside_others=True)
        return TablePart(
            run=run,
            source_row_count=count,
            row_count=commit.row_count,
            replaced_row_count=commit.deleted_row_count,
            file_count=len(commit.files_added),
            size_bytes=sum(file.size_bytes for file in written.manifest),
            commit=commit,
        )

    def _kept_back(self, part: WindowPart, count: int, why: str) -> TablePart:
        return TablePart(
            run=self.ingest.run_of(part.label),
            source_row_count=count,
            kept_back=f"{why}; the rows that were read before stay",
        )


def _log_report(report: TableIngestReport) -> None:
    level = logging.WARNING if report.kept_back or report.timeless_row_count else logging.INFO
    _log.log(
        level,
        "table ingest done name=%s dataset=%s table=%s rows=%d parts=%d kept_back=%d timeless=%d",
        report.name,
        report.dataset,
        report.table,
        report.row_count,
        len(report.parts),
        len(report.kept_back),
        report.timeless_row_count,
    )


def summary_of(report: TableIngestReport) -> str:
    """Return the effect of a run, in words."""
    words = [counted(report.row_count, "row")]
    if len(report.parts) > 1:
        words[0] += f" in {len(report.parts):,} parts"
    if report.is_dry_run and report.row_count:
        files = report.file_count
        least = (
            "an unknown number of files" if files is None else f"at least {counted(files, 'file')}"
        )
        words.append(f"{least} of unknown size")
    if report.replaced_row_count:
        words.append(f"{report.replaced_row_count:,} replaced")
    if report.creates_dataset and report.is_dry_run:
        words.append("creates the dataset")
    if report.kept_back:
        words.append(f"{counted(len(report.kept_back), 'part')} kept back")
    if report.timeless_row_count:
        words.append(f"{counted(report.timeless_row_count, 'row')} without a time not read")
    words += [str(one) for one in report.checks if one.outcome != "passed"]
    return ", ".join(words)
