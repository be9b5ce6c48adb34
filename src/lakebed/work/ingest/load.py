"""Loads: a run reads raw files into a dataset, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lakebed.arrow.reading.dialect import parts_of
from lakebed.arrow.reading.files import FileFormat, RawFile, common_format, find_any_files
from lakebed.arrow.reading.inference import find_notation
from lakebed.commit import Commit, as_dry_run
from lakebed.common.given import check_given
from lakebed.common.html import facts_to_html
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import counted
from lakebed.errors import CommitConflictError, DatasetNotFoundError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import check_dataset_name
from lakebed.state import history
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.scope import RunFiles
from lakebed.state.state import State
from lakebed.state.undone import Undone
from lakebed.store.base import Store
from lakebed.store.dry_run import DryRunStore
from lakebed.work.ingest.due import Candidate, Due
from lakebed.work.ingest.execution import Done, Intake, read_in
from lakebed.work.ingest.load_options import LoadOptions
from lakebed.work.ingest.quarantine import Quarantine, checked_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPERATION, _RERUN = "load", "rerun"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    r"""The result of a load.

    Attributes:
        commit: Commit of the rows, one batch.
        quarantine: Name of the dataset that holds the rejects.
        quarantine_commit: Commit of the rejects; None if there are none.
        run: Name of the run, by which the quarantine is partitioned.
        row_count: Number of loaded rows.
        rejected_count: Number of rejected lines and rests of damaged files.
        file_count: Number of files that were read.
        size_bytes: Total size of the files as stored.
        is_repeated: True if the run was loaded before, and this call did nothing.
        rest_count: Number of rests of truncated files among the rejects; 0 if the run is repeated.
        ignored_file_count: Number of files with ignored fields (`unknown="ignore"`).
        ignored_row_count: Number of rows with a value in an ignored field.
        ignored_fields: Paths of the ignored fields.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import pyarrow as pa
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
    rest_count: int = 0
    ignored_file_count: int = 0
    ignored_row_count: int = 0
    ignored_fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows, rejects = counted(self.row_count, "row"), counted(self.rejected_count, "reject")
        files = counted(self.file_count, "file")
        return f"<LoadReport of run {self.run!r}: {rows} of {files}, {rejects}>"

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Load {self.run}",
            {
                "version": self.commit.version,
                "was loaded before": "yes" if self.is_repeated else "no",
                "rows": f"{self.row_count:,}",
                "rejects": f"{self.rejected_count:,}",
                "quarantine": self.quarantine,
                "files": f"{self.file_count:,}",
                "bytes": f"{self.size_bytes:,}",
            },
        )


def load(
    store: Store,
    name: str,
    paths: object,
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    run: str | None,
    spark: SparkSession | Literal[True] | None,
    quarantine: str | None = None,
    options: LoadOptions,
    overwrites: bool = False,
    create: DatasetDescriptor | None = None,
    on_progress: OnProgress = NO_PROGRESS,
) -> LoadReport:
    """Read files into a dataset; see `Dataset.load`.

    Args:
        store: The store that holds the dataset; that of a dry run for one.
        name: Name of the dataset.
        paths: As for `Dataset.load`.
        format: As for `Dataset.load`.
        run: As for `Dataset.load`.
        spark: As for `Dataset.load`.
        quarantine: As for `Dataset.load`.
        options: As for `Dataset.load`.
        overwrites: Whether the rows replace the partitions that they touch. Such a run may be
            repeated.
        create: Descriptor for a missing dataset. It is created right before the commit, so files
            that do not fit leave nothing behind.
        on_progress: As for `Dataset.load`.

    Raises:
        CommitConflictError: Another writer has created the missing dataset first.
        LakebedError: As for `Dataset.load`.
    """
    check_given("options", options, LoadOptions, "Give LoadOptions, or leave it out.")
    if isinstance(store, DryRunStore):
        spark = None  # tasks have stores of their own, in which this process sees no writes
    files = find_any_files(
        paths, format, storage_options=options.storage_options, levels=options.levels
    )
    found_format, options = _recognized(files, format, options)
    candidates = tuple(map(Candidate.of_file, files))
    first = None
    if create is not None:
        create.check()
        first = first_state(check_dataset_name(name), create, HeadFormat.JSON)

    def find_due(state: State) -> Due:
        if overwrites:
            return Due(files=candidates, scope=None)
        if run is None:
            return Due(files=candidates)
        loaded, is_there = _last_load(store, state, run)
        if is_there:
            return Due(files=(), before=loaded)
        # A first load too: no other writer may load the run at the same time.
        return Due(files=candidates, scope=RunFiles(run, replaces=loaded is not None))

    intake = Intake(
        operation="overwrite" if overwrites else _OPERATION,
        run=None if run is None else checked_run(run),
        format=found_format,
        find_due=find_due,
        quarantine=Quarantine.of(name, quarantine, is_by_file=False),
        options=options,
    )
    try:
        done = read_in(store, name, intake, spark=spark, on_progress=on_progress, first=first)
    except CommitConflictError as conflict:
        # Another load of the run may have been faster. Then there is nothing left to do.
        try:
            due = find_due(read_head(store, name).state)
        except DatasetNotFoundError:
            raise conflict from None  # the dataset is still missing
        if due.files:
            raise
        done = Done(due=due)
    commit, is_repeated = done.commit, done.commit is None
    rejected_count, set_aside = done.rejects.count, done.set_aside
    if commit is None:
        commit = done.due.before
        assert commit is not None  # else there would be files to read
        assert run is not None
        rejected_count, set_aside = intake.quarantine.of_load(store, run)
    elif isinstance(store, DryRunStore):
        commit = as_dry_run(commit, store)
        set_aside = set_aside and as_dry_run(set_aside, store)
    return LoadReport(
        commit=commit,
        quarantine=intake.quarantine.name,
        quarantine_commit=set_aside,
        run=run or done.run,
        row_count=commit.row_count,
        rejected_count=rejected_count,
        file_count=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        is_repeated=is_repeated,
        rest_count=done.rejects.rest_count,
        ignored_file_count=done.ignored.file_count,
        ignored_row_count=done.ignored.row_count,
        ignored_fields=done.ignored.fields,
    )


def _recognized(
    files: Sequence[RawFile],
    format: FileFormat | None,  # noqa: A002 - the word of the option
    options: LoadOptions,
) -> tuple[FileFormat, LoadOptions]:
    """Return the format of files, and the options with what was found in them."""
    csv = None if options.csv is None else parts_of(options.csv)
    json = None if options.json is None else parts_of(options.json)
    known = format if csv is None and json is None else format or common_format(files)
    if known in ("avro", "parquet", "submissions"):
        return known, options
    given: dict[FileFormat, object] = {"csv": options.csv, "json": options.json}
    is_known = {name for name, notation in given.items() if notation is not None}
    found = find_notation(files, known, csv=csv, json=json, is_known=is_known)
    return found.format, replace(
        options, csv=options.csv or found.csv, json=options.json or found.json
    )


def _last_load(store: Store, state: State, run: str) -> tuple[Commit | None, bool]:
    """Return the last load of a run, and whether it still counts; see `_is_taken_out`."""
    entries = history.read(store, state.lists.history)
    loads = (
        entry for entry in reversed(entries) if entry.operation == _OPERATION and entry.run == run
    )
    last = next(loads, None)
    if last is None:
        return None, False
    return Commit.of(last, state), not _is_taken_out(entries, run)


def _is_taken_out(entries: Sequence[Entry], run: str) -> bool:
    """Return whether a rollback or an empty rerun has removed rows of a run, and they are missing.

    Rows that a delete or an overwrite removed do not count: they were removed on purpose. Rows of
    a rerun replace those of the load.

    Args:
        entries: The whole history.
        run: Name of the run.
    """
    undone = Undone(entries)
    for entry in reversed(entries):
        if entry.run == run and entry.operation in (_OPERATION, _RERUN):
            partitions, is_wholly = undone.partitions(entry)
            if not is_wholly:
                return bool(partitions) or (entry.operation == _RERUN and not entry.added)
    return True
