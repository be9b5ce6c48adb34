"""The ingest: declared once, checked as a whole, run as often as new files may arrive."""

from __future__ import annotations

import datetime as dt
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal, Self

from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import FILE_FORMATS, FileFormat
from lakebed.arrow.reading.rows import open_reader
from lakebed.arrow.reading.unknown import Unknown
from lakebed.commit import Commit
from lakebed.common.ages import parse_age
from lakebed.common.given import FileNames, given_files
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.redaction import StorageOptions
from lakebed.common.shown import shown
from lakebed.errors import CommitConflictError, DatasetNotFoundError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import nearest
from lakebed.model.values import Scalar
from lakebed.pipeline.attempts import Again, Attempts
from lakebed.pipeline.candidates import (
    Candidates,
    FromArchive,
    FromFiles,
    find_candidates,
    find_candidates_of,
    real_slots,
)
from lakebed.pipeline.declared_dataset import DeclaredDataset
from lakebed.pipeline.following import IngestQuery, IngestRun
from lakebed.pipeline.ingest_report import IngestReport
from lakebed.pipeline.recognition import find_due
from lakebed.state import sources as source_list
from lakebed.state.after import NotPublished, catch_up
from lakebed.state.committing import CommitOptions
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.sources import Hold, SourceFile, Sources
from lakebed.state.state import State
from lakebed.store import Store
from lakebed.work.ingest.due import Due, LeftOut
from lakebed.work.ingest.execution import Done, Intake, read_in
from lakebed.work.ingest.holding import change_holds, find_named
from lakebed.work.ingest.load_options import IngestRules, LoadOptions, rule_of
from lakebed.work.ingest.quarantine import Quarantine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

FilesAgain = FileNames
"""Files to read again: locations, or ids or paths in the archive, or `rejected`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestCheck:
    """The planned effect of an ingest.

    Attributes:
        format: Format of the raw files.
        new: Locations of files that have not been read.
        changed: Locations of files that replace others that have been read.
        unchanged_count: Files that have been read and have not changed.
        left_out: Files that would not be read, with the reasons.
        brought_back: Locations of those files that would be read again because a rollback has
            removed them.
        size_bytes: Size of the files that would be read.
        creates_dataset: True if the dataset would be created.

    >>> IngestCheck(
    ...     format="json", new=("in/a.jsonl",), changed=(), unchanged_count=2, left_out=(),
    ...     size_bytes=9, creates_dataset=False,
    ... ).new
    ('in/a.jsonl',)
    """

    format: FileFormat
    new: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged_count: int
    left_out: tuple[LeftOut, ...]
    size_bytes: int
    creates_dataset: bool
    brought_back: tuple[str, ...] = ()

    def __repr__(self) -> str:
        to_read = f"{len(self.new):,} new, {len(self.changed):,} changed"
        others = f"{self.unchanged_count:,} unchanged, {len(self.left_out):,} left out"
        return f"<IngestCheck of {self.format} files: {to_read}, {others}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest(DeclaredDataset):
    r"""Raw files of an archive or a folder, and the dataset that they become.

    Attributes:
        name: Name of the run. The quarantine is partitioned by it.
        into: The dataset, as LOCATION/NAME.
        source: The source of the raw files.
        format: Format of the raw files; None to infer it from the suffixes. Required for an
            archive.
        create: Descriptor to create a missing dataset with; None if the dataset must exist.
        quarantine: Name of the dataset for rejects; default: `<dataset>_quarantine`.
        max_rejects: Limit for the rejects of a file; a file with more is kept back. Up to 1 it is a
            share of the lines, from 2 on a number of lines. None for a tenth, and for a hundredth
            for lines of the right form with a value that does not fit its field. A file that would
            replace rows by none is kept back unless the limit is 1.
        allow_truncated: Read the readable part of a file whose end is missing or damaged; otherwise
            the file is kept back.
        unknown: Handling of a field that the dataset lacks. `reject`: the line, or the file whose
            header or schema has it, is rejected. `ignore`: it is left out of the rows, and the
            report counts them. `keep`: it is added to the schema of the dataset, nullable, in a
            commit before that of the rows; its type is the most common one of its values, in all
            files that the run reads.
        csv: Notation of CSV files.
        json: Notation of JSON files.
        provided: Values of `provided` partition fields, the same for all rows.
        storage_options: Settings of the object store of the dataset; secrets are never displayed.
        write: Sizes and layout of the data files to write.
        commit: Retry and lease settings of the commits.

    Examples:
        >>> import lakebed, pyarrow as pa
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.jsonl").write_text('{"n": 1}\n{"n": "one"}\n')
        ...     numbers = Ingest(
        ...         name="numbers",
        ...         into="memory://doctest-ingest/numbers",
        ...         source=lakebed.FromFiles(paths=folder),
        ...         create=lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
        ...         max_rejects=0.5,
        ...     )
        ...     first, second = numbers.run(), numbers.run()
        >>> first.row_count, first.rejected_count, first.version
        (1, 1, 1)
        >>> second.file_count, second.unchanged_count, second.version
        (0, 1, 1)
    """

    name: str
    into: str
    source: FromArchive | FromFiles
    format: FileFormat | None = None
    create: DatasetDescriptor | None = None
    quarantine: str | None = None
    max_rejects: float | None = None
    allow_truncated: bool = False
    unknown: Unknown = "reject"
    csv: CsvOptions = field(default_factory=CsvOptions)
    json: JsonOptions = field(default_factory=JsonOptions)
    provided: Mapping[str, Scalar] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict)
    write: WriteOptions = field(default_factory=WriteOptions)
    commit: CommitOptions = field(default_factory=CommitOptions)

    def __post_init__(self) -> None:
        if not isinstance(self.source, FromFiles | FromArchive):
            raise InvalidInputError(
                f"source is {shown(self.source)}, which is not a source.",
                hint="Give FromFiles, with paths or patterns such as 'in/*.csv'; or FromArchive.",
            )
        object.__setattr__(self, "storage_options", StorageOptions(self.storage_options))
        self._check_names()
        self._rules()
        if self.format is not None and self.format not in FILE_FORMATS:
            raise InvalidInputError(
                f"Unknown file format {self.format!r}.",
                hint=nearest(self.format, FILE_FORMATS)
                or f"Known formats: {', '.join(FILE_FORMATS)}.",
            )
        if self.format is None and isinstance(self.source, FromArchive):
            raise InvalidInputError(
                "The format of archived files is missing.",
                hint=f"Give format, one of: {', '.join(FILE_FORMATS)}.",
            )

    @classmethod
    def from_toml(cls, source: str | os.PathLike[str]) -> Self:
        """Read an ingest from a TOML file, which may declare a whole `Pipeline`.

        Args:
            source: The path of a file; relative paths in it are relative to its folder. Or the text
                of such a file, of several lines; its paths are relative to the working directory.

        Raises:
            NotFoundError: There is no such file.
            FormatError: It is not valid TOML.
            InvalidInputError: A key is unknown or missing, or a value is wrong. The message lists
                all mistakes, each with its line.
            PartitionSpecError: The partitions do not fit the schema.
        """
        # Imported here: declarations are of pipelines, which have an ingest.
        from lakebed.pipeline.declaration import read_pipeline

        declared = read_pipeline(source)["ingest"]
        if not isinstance(declared, cls):
            raise InvalidInputError(
                "The declaration has a table of Spark as its source, which is not a source of raw "
                "files.",
                hint="Use Pipeline.from_toml, or `lakebed run FILE`, which read it.",
            )
        return cls(**{one.name: getattr(declared, one.name) for one in fields(declared)})

    def _quarantine(self) -> Quarantine:
        return Quarantine.of(self._address()[1], self.quarantine, is_by_file=True)

    def _rules(self) -> IngestRules:
        return IngestRules(
            max_rejects=self.max_rejects,
            allow_truncated=self.allow_truncated,
            unknown=self.unknown,
        )

    @property
    def _reads_levels(self) -> bool:
        return isinstance(self.source, FromFiles) and self.source.levels

    def check(self, *, again: FilesAgain | None = None) -> IngestCheck:
        """Check everything that is possible before files are read; nothing is written.

        Args:
            again: As for `run`.

        Raises:
            DatasetNotFoundError: The dataset does not exist, and `create` is not given.
            InvalidInputError: Files or times are wrong, or the dataset differs from the declared
                one.
            SchemaMismatchError: The format cannot hold the dataset's rows.
            PartitionSpecError: The partitions do not fit the schema, or the files.
            StorageError: Archive or dataset cannot be reached.

        Cost:
            A read of the head, the record of the files read, and the query of the index or a LIST.
        """
        candidates = self._candidates()
        dataset = self._find()
        named = Again.of(again)
        if dataset is None:
            due = find_due(candidates, Sources(), attempts=Attempts(again=named))
        else:
            store = self._store()
            due = self._due(store, read_head(store, dataset.name).state, candidates, named)
        files = due.files
        changed = {candidate.file.location for candidate in files if candidate.slot in due.replaces}
        return IngestCheck(
            format=candidates.format,
            new=tuple(f.file.location for f in files if f.file.location not in changed),
            changed=tuple(f.file.location for f in files if f.file.location in changed),
            unchanged_count=due.unchanged_count,
            left_out=due.left_out,
            size_bytes=sum(candidate.file.size_bytes for candidate in files),
            creates_dataset=dataset is None,
            brought_back=due.taken_out,
        )

    def _candidates(self) -> Candidates:
        return find_candidates(self.source, self.format)

    def _check_descriptor(self, descriptor: DatasetDescriptor) -> None:
        if self.format is not None:
            open_reader(self.format, descriptor, self.csv, self.unknown, self.json)
        descriptor.partition_by.check_provided(self.provided)

    def run(
        self,
        spark: SparkSession | Literal[True] | None = None,
        *,
        again: FilesAgain | None = None,
        replace_rewritten: bool = False,
        fail_on_rejects: bool = False,
        begun_at: dt.datetime | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> IngestReport:
        """Read new and changed files, as one batch in one commit.

        A file that was read and has not changed is skipped: if there are no others, there is no new
        version. If a file replaces one that was read, one commit removes the old rows and adds the
        new ones, so a reader sees the old or the new. Rejects go to the quarantine, and replace
        earlier rejects of the same files. The quarantine is committed first, so a crash loses
        nothing, and the ingest can be run again.

        A file is kept back, and the rows that it would replace stay, in these cases: an archived
        file does not have the hash of its record; its header or schema does not fit; its end is
        missing or damaged; more than `max_rejects` of it is rejected; it is unclear whether it is
        another state of a file that was read or a file of its own. Every run reports it, and its
        rejects go to the quarantine. It is read again when the file, the schema of the dataset or a
        rule of the ingest has changed. So is a file with lines whose fields the dataset lacked,
        unless rows of it were deleted or changed.

        Args:
            spark: A session whose tasks read the files, which must be visible to all of them; True
                for the active session, else a local one. None reads in this process.
            again: Files to read again, even if they were read or kept back and have not changed:
                locations, or ids or paths in the archive; or `rejected` for all files with rejects.
                Their new rows and rejects replace the earlier ones.
            replace_rewritten: Treat rows of a replaced file as removed if something else has
                rewritten their data files, so that their position is unknown.
            fail_on_rejects: Commit nothing, neither rows nor quarantine, if there are rejects.
            begun_at: Start time of the process, which the batch id encodes; see `CommitOptions`.
            on_progress: Callback for progress: called after each file, and for rows within a large
                one; with Spark, when a task has read its group; on Connect, when all have.

        Raises:
            LakebedError: As `check`.
            InvalidInputError: Rows of a replaced file cannot be found, or a file of `again` does
                not belong to the ingest; nothing was written.
            RejectsError: There are rejects, and `fail_on_rejects` is given; nothing was committed.
            CommitConflictError: Another process read the same files meanwhile, or touched a
                partition in which rows are replaced; nothing became visible.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            As `check` and `Dataset.append`; one Spark job. With `unknown="keep"` files of lines are
            read once more, by another Spark job. If files are replaced, the data files that hold
            their rows are read and written, by this process.
        """
        started = time.monotonic()
        commit = self.commit if begun_at is None else replace(self.commit, begun_at=begun_at)
        candidates, named = self._candidates(), Again.of(again)
        store, name = self._store(), self._address()[1]
        is_first = self._find() is None
        intake = Intake(
            operation="ingest",
            run=self.name,
            format=candidates.format,
            find_due=lambda state: self._due(
                store, state, candidates, named, is_first=is_first and not state.version
            ),
            quarantine=self._quarantine(),
            options=LoadOptions(
                csv=self.csv,
                json=self.json,
                write=self.write,
                commit=commit,
                provided=self.provided,
                fail_on_rejects=fail_on_rejects,
                max_rejects=self.max_rejects,
                allow_truncated=self.allow_truncated,
                unknown=self.unknown,
                levels=self._reads_levels,
            ),
            replaces_rewritten=replace_rewritten,
        )
        first = (
            first_state(name, self.create, HeadFormat.JSON) if is_first and self.create else None
        )
        try:
            done = read_in(store, name, intake, spark=spark, on_progress=on_progress, first=first)
        except CommitConflictError:
            if first is None or self._find() is None:
                raise
            is_first = False  # another run has created it
            done = read_in(store, name, intake, spark=spark, on_progress=on_progress)
        report = self._report(store, name, done, started)
        report.log()
        return report

    def _report(self, store: Store, name: str, done: Done, started: float) -> IngestReport:
        """Report the result of a run; if it committed nothing, publish tables that are behind."""
        due, commit = done.due, done.commit
        brought_back = () if commit is None else due.taken_out
        state: State | None = None
        if commit is None or self.create is not None:
            with suppress(DatasetNotFoundError):  # the first run has loaded nothing
                state = read_head(store, name).state
        not_published: tuple[NotPublished, ...] = ()
        if commit is not None:
            not_published = commit.not_published
        elif state is not None:
            not_published = catch_up(store, state)
        if brought_back:
            _log.warning(
                "ingest brings back files that a rollback removed dataset=%s files=%d first=%s",
                name,
                len(brought_back),
                brought_back[0],
            )
        return IngestReport(
            name=self.name,
            dataset=name,
            version=commit.version if commit else state.version if state else 0,
            commit=commit,
            file_count=len(due.files),
            replaced_count=len({file.slot for file in due.replaced}),
            replaced_row_count=sum(file.row_count for file in due.replaced),
            unchanged_count=due.unchanged_count,
            left_out=due.left_out,
            brought_back=brought_back,
            row_count=done.row_count,
            rejected_count=done.rejects.count,
            rest_count=done.rejects.rest_count,
            rejected_file_count=done.rejects.file_count,
            rejected_file_row_count=done.rejects.file_row_count,
            ignored_file_count=done.ignored.file_count,
            ignored_row_count=done.ignored.row_count,
            ignored_fields=done.ignored.fields,
            schema_changes=done.schema_changes,
            schema_differences=self._schema_differences(state),
            size_bytes=sum(candidate.file.size_bytes for candidate in due.files),
            carried_count=done.carried_count,
            not_published=not_published,
            quarantine=self.quarantine_name,
            duration_s=time.monotonic() - started,
        )

    def _schema_differences(self, state: State | None) -> tuple[str, ...]:
        """Return what the declared schema has in another way than the dataset.

        Fields of the dataset alone do not count: runs may have added them.
        """
        if self.create is None or state is None:
            return ()
        present = state.descriptor.schema
        differences = []
        for declared in self.create.schema:
            field = present.find(declared.name)
            if field is None:
                differences.append(f"{declared.name} is missing in the dataset")
            elif str(field.type) != str(declared.type):
                differences.append(
                    f"{declared.name} is declared as {declared.type}, and {field.type} in the dataset"
                )
        return tuple(differences)

    def _due(
        self,
        store: Store,
        state: State,
        candidates: Candidates,
        again: Again,
        *,
        is_first: bool = False,
    ) -> Due:
        """Choose the files to read.

        Before the dataset exists, files that were kept back are tried too: the declared schema may be
        another one.

        Cost:
            One GET for each segment that records what was read or set aside; there are few. If all
            files are archived, and none replaces another, only their own records are decoded.
        """
        attempts = Attempts(
            schema=state.lineage.number,
            rule=rule_of(
                candidates.format, self.csv, self.json, self._rules(), levels=self._reads_levels
            ),
            unknown=self.unknown,
            set_aside=self._quarantine().notes(store) if candidates.files and not is_first else {},
            again=again,
        )
        segments, labels = state.lists.sources, state.labels
        sought = candidates.sought(labels)
        if sought is not None:
            known = source_list.read_sought(store, segments, sought)
            due = find_due(candidates, known, labels, attempts)
            if not due.replaces:
                return due
        # The rows of a replaced file may share data files with those of any other.
        return find_due(candidates, source_list.read(store, segments), labels, attempts)

    def hold(self, files: FileNames, *, reason: str = "") -> Commit | None:
        """Keep raw files from being read into the dataset, until they are released.

        As `Dataset.sources.hold`, also for files that were never read: the present files of a path, a
        pattern or a directory, or an archived file by its id or URL. A missing dataset is created
        if `create` is given.

        Args:
            files: One or several files.
            reason: Reason for the hold; `holds` and each run show it.

        Returns:
            The commit, or None if all of them were held.

        Raises:
            InvalidInputError: There is no such file.
            RecordNotFoundError: There is no such file in the archive.
            DatasetNotFoundError: The dataset does not exist, and `create` is not given.

        Cost:
            As for `Dataset.sources.hold`, and one stat of each file.
        """
        store, name = self._store(), self._address()[1]
        _ = self._find() or self._created()
        noted = source_list.read(store, read_head(store, name).state.lists.sources)
        holds: list[Hold] = []
        for text in given_files("files", files):
            known = find_named(noted, text, reason)
            holds += [known] if known else self._holds_of(text, reason)
        return change_holds(store, name, "hold", holds, self.commit)

    def _holds_of(self, text: str, reason: str) -> Iterator[Hold]:
        """Yield the holds of files that were never read."""
        for candidate in find_candidates_of(self.source, self.format, text):
            yield Hold(
                name=real_slots([candidate.name])[candidate.name],
                location=candidate.file.location,
                held_at=dt.datetime.now(dt.UTC),
                commit_id="",
                reason=reason,
                fingerprint=candidate.fingerprint,
            )

    def release(self, files: FileNames) -> Commit | None:
        """Release raw files that are held, so that runs read them again; as `Dataset.sources.release`.

        Raises:
            DatasetNotFoundError: The dataset does not exist.
            InvalidInputError: A file is not held.

        Cost:
            As for `Dataset.sources.release`.
        """
        return self.dataset().with_options(commit=self.commit).sources.release(files)

    def batches_of(self, file: str) -> tuple[int, ...]:
        """Return the ids of the batches that a file was read into, oldest first.

        Args:
            file: Location of the file, or its id in the archive.

        Raises:
            DatasetNotFoundError: The dataset does not exist.
        """
        return tuple(source.batch_id for source in self.sources(file=file))

    def sources(
        self, *, batch_id: int | None = None, file: str | None = None
    ) -> tuple[SourceFile, ...]:
        """Return the raw files that were read into the dataset; see `Dataset.sources.list`.

        Raises:
            DatasetNotFoundError: The dataset does not exist.
        """
        return self.dataset().sources.list(batch_id=batch_id, file=file)

    def follow(
        self,
        every: str | dt.timedelta = "10s",
        *,
        spark: SparkSession | Literal[True] | None = None,
        once: bool = False,
        replace_rewritten: bool = False,
        fail_on_rejects: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
        on_run: Callable[[IngestRun], None] | None = None,
    ) -> IngestQuery:
        """Read new and changed files continuously, in a thread, until the query is stopped.

        Each search is a `run`, which reads each file once, even if the run before has failed; a
        search that finds nothing makes no version, and there may be no files yet. After a failure
        of the store or a conflict with another writer it tries again, with growing waits; every
        other error ends the query, and `await_termination` raises it.

        Args:
            every: Time between the starts of two searches, such as `10s` or `5m`; if a search takes
                longer, the next one follows at once.
            spark: As for `run`.
            once: Search once for the present files, and end, like Spark's `availableNow`.
            replace_rewritten: As for `run`.
            fail_on_rejects: As for `run`; rejects then end the query.
            on_progress: As for `run`.
            on_run: Callback; receives each search after its end, in the thread.

        Raises:
            LakebedError: As `check`: errors of the declaration are raised at once.

        Cost:
            As `check`, and as `run` for each search.
        """
        pause = parse_age(every)
        declared = self
        if isinstance(self.source, FromFiles):
            declared = replace(self, source=replace(self.source, may_be_empty=True))
        declared.check()

        def look() -> IngestReport:
            return declared.run(
                spark,
                replace_rewritten=replace_rewritten,
                fail_on_rejects=fail_on_rejects,
                on_progress=on_progress,
            )

        return IngestQuery(
            look, name=self.name, every_s=pause.total_seconds(), once=once, on_run=on_run
        )
