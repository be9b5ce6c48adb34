"""Datasets: the widest view of the data, and every operation that changes it."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

from lakebed import batches, work
from lakebed.commit import Commit, File, files_of, with_raw_files
from lakebed.common.ages import parse_age
from lakebed.common.given import (
    check_number,
    given_names,
    naming_moment,
)
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.items import Items
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.sizes import Size, parse_size
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    VersionNotFoundError,
    noting,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.drift import Types, UnknownColumns
from lakebed.model.moments import to_moment
from lakebed.model.predicate import TRUE
from lakebed.model.retention import facts_of_retention
from lakebed.model.schema import Schema
from lakebed.model.sql_predicates import Parameters
from lakebed.state import history
from lakebed.state.history import Entry
from lakebed.state.reader import read_own_head
from lakebed.state.scope import Nothing, RunFiles, Scope
from lakebed.state.snapshot import Source
from lakebed.state.state import Epoch, HeadKind, State
from lakebed.tables import hive, iceberg
from lakebed.view import Base, View, ViewCondition
from lakebed.work.defaults import (
    CLOCK_SKEW,
    COMPACTION_COMMIT_BYTES,
    GRACE,
    TARGET_BYTES,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.archive import Archive
    from lakebed.arrow.reading.files import FileFormat
    from lakebed.batches.changes import Changes
    from lakebed.batches.dataset_transaction import DatasetTransaction
    from lakebed.batches.diff import Diff
    from lakebed.batches.listing import Batch
    from lakebed.batches.staged import Staged
    from lakebed.groups.dimension_group import DimensionGroup
    from lakebed.groups.index_group import IndexGroup
    from lakebed.groups.inspect_group import InspectGroup
    from lakebed.groups.protection_group import ProtectionGroup
    from lakebed.groups.source_group import SourceGroup
    from lakebed.groups.staged_group import StagedGroup
    from lakebed.model.publishing import Mode
    from lakebed.state.after import NotPublished
    from lakebed.state.published import OldMetadata
    from lakebed.store.base import ObjectInfo, Store
    from lakebed.tables.outcome import Publication
    from lakebed.tables.targets import TargetName
    from lakebed.work.certificate import Erasure
    from lakebed.work.check import CheckReport
    from lakebed.work.cleanup import CleanupReport
    from lakebed.work.compaction import CompactionReport
    from lakebed.work.ingest.load import LoadReport
    from lakebed.work.ingest.load_options import LoadOptions
    from lakebed.work.inventory import AskTables
    from lakebed.work.metadata_compaction import MergedList
    from lakebed.work.overwriting import Replacement
    from lakebed.work.rollback import Restoration


_log = logging.getLogger(__name__)


class Dataset(View):
    """A named collection of entities of one schema; the widest view of itself.

    >>> import pyarrow as pa
    >>> from lakebed.repository import open_repository
    >>> repository = open_repository("memory://doctest-dataset")
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = repository.create("numbers", descriptor)
    >>> numbers.append([{"n": 1}, {"n": 2}]).version
    1
    >>> numbers.overwrite([{"n": 3}]).version
    2
    >>> numbers.arrow().to_pylist(), numbers.at(version=1).arrow().to_pylist()
    ([{'n': 3}], [{'n': 1}, {'n': 2}])
    """

    _NOT_OF_PINNED = View._NOT_OF_PINNED | {
        "change_type",
        "check",
        "cleanup",
        "compact",
        "dimensions",
        "erase",
        "evolve",
        "load",
        "publish",
        "rerun",
        "rollback",
        "sink",
        "staged",
        "transaction",
        "unpublish",
    }

    def __init__(self, source: Source) -> None:
        """Use `Repository.open` instead."""
        super().__init__(source, TRUE)

    def __repr__(self) -> str:
        return f"<Dataset {self.name!r} in {self._source.store.uri}{self._pin}>"

    def _repr_html_(self) -> str:
        """Show the state as of the last read of the head, without a request."""
        state = self._source.cached()
        descriptor = state.descriptor
        return facts_to_html(
            f"Dataset {self.name}",
            {
                "where": self.uri,
                "version": state.version,
                "last commit": state.committed_at or "of another tool",
                "data files": f"{state.live.count:,}",
                "columns": shortened(f"{f.name}: {f.type}" for f in descriptor.schema),
                "partitioned by": shortened(map(str, descriptor.partition_by)) or "nothing",
                "format": f"{descriptor.format}, {descriptor.compression}",
                **_facts_of_checks(state),
                **facts_of_retention(descriptor),
            },
        )

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self._source.name

    @property
    def uri(self) -> str:
        """The address of the dataset."""
        return f"{self._source.store.uri}/{self.name}"

    @property
    def descriptor(self) -> DatasetDescriptor:
        """The descriptor of the dataset. Reads the head."""
        return self._source.load().state.descriptor

    @property
    def schema(self) -> Schema:
        """The fields of an entity. Reads the head."""
        return self.descriptor.schema

    @naming_moment
    def at(
        self,
        *,
        version: int | None = None,
        time: dt.datetime | str | float | None = None,
        batch_id: int | None = None,
        alone: bool = False,
    ) -> Dataset:
        """Return the dataset as it was at a version, read-only.

        Args:
            version: The version to read.
            time: Read the last version that was committed by this time: a datetime,
                `2026-09-01T12:30:00Z`, `20260901`, or another time that
                `lakebed.archive.to_epoch_ms` reads; without a zone it is UTC.
            batch_id: Read the version that committed this batch. A staged batch is read as if it
                were committed now.
            alone: Read only the rows of the batch itself. A protected batch stays readable this
                way after its version is cleaned up.

        Raises:
            VersionNotFoundError: There is no such version, or it was cleaned up.
            InvalidInputError: Not exactly one of the three is given, or `alone` without a batch.

        Cost:
            The head and the history, which are few objects.
        """
        _check_moment("at", version, time, batch_id)
        if alone:
            if batch_id is None:
                raise InvalidInputError(
                    "at() with alone, but without batch_id.", hint="Give batch_id with alone."
                )
            return Dataset(self._source.at_batch_alone(batch_id))
        if version is None:
            try:
                version = self._version_by(time, batch_id)
            except VersionNotFoundError:
                waiting = None if batch_id is None else self._find_staged(batch_id)
                if waiting is None:
                    raise
                return waiting.dataset
        try:
            return Dataset(self._source.at_version(version))
        except VersionNotFoundError as error:
            if batch_id is None:
                raise
            self._source.at_batch_alone(batch_id)  # raises the same if its files were given up
            raise VersionNotFoundError(
                error.message,
                hint=f"The rows of batch {batch_id} itself are kept; read them with alone=True, or "
                f"with --batch-id {batch_id} --alone.",
            ) from error

    def _find_staged(self, batch_id: int) -> Staged[Dataset] | None:
        if self._source.pinned is not None:
            return None
        try:
            record = work.staging.read(self._source.store, self._source.load().state, batch_id)
        except VersionNotFoundError:
            return None
        return batches.staged.Staged(self._source, record, Dataset, self._commit_options)

    def _version_by(self, time: object, batch_id: int | None) -> int:
        moment = None if time is None else to_moment(time)
        entries = self._entries()
        if moment is not None:
            versions = [entry.version for entry in entries if entry.committed_at <= moment]
            wanted = f"at {moment.isoformat()}"
            first = entries[0].committed_at.isoformat() if entries else "never"
            hint = f"The dataset was created at {first}."
        else:
            versions = [entry.version for entry in entries if entry.batch_id == batch_id]
            wanted = f"with batch {batch_id}"
            hint = "`batches` lists the existing ones."
        if not versions:
            raise VersionNotFoundError(f"Dataset {self.name!r} has no version {wanted}.", hint=hint)
        return versions[-1]

    def _entries(self, state: State | None = None) -> tuple[Entry, ...]:
        """Return the history up to a state, by default the current one."""
        state = self._source.load().state if state is None else state
        store, segments = self._source.store, state.lists.history
        entries = history.read(store, segments, until=state.version)
        return tuple(entry for entry in entries if entry.version <= state.version)

    def _commits(self, state: State | None = None) -> Items[Commit]:
        """Return the commits up to a state, as `history` does, without the raw files."""
        state = self._source.load().state if state is None else state
        return Items(Commit.of(entry, state) for entry in self._entries(state))

    def history(self) -> Items[Commit]:
        """Return all commits, oldest first; those of ingests with the raw files that they have read.

        Cost:
            The head, the history and the record of raw files, which are few objects.
        """
        state = self._source.load().state
        commits = self._commits(state)
        if not state.lists.sources:
            return commits
        from lakebed.state import sources

        try:
            noted = sources.read(self._source.store, state.lists.sources)
        except CorruptMetadataError as exc:
            _log.warning("raw files not named dataset=%s: %s", self.name, exc.message)
            return commits
        return Items(with_raw_files(commits, noted.files))

    def files(self) -> Items[File]:
        """Return the live data files, in the order in which they were added.

        Cost:
            The head and the file table, which are few objects.
        """
        return self._files(self._source.load().state)

    def _files(self, state: State) -> Items[File]:
        from lakebed.state import file_table

        store = self._source.store
        counts = file_table.read_counts(store, state.lists.files)
        return files_of(store, state, state.labels, counts)

    @property
    def indices(self) -> IndexGroup:
        """Inverted indices: `indices.list()`, `indices.build("tailnum")`, `indices.drop("tailnum")`."""
        from lakebed.groups.index_group import IndexGroup

        return IndexGroup(self)

    @property
    def protections(self) -> ProtectionGroup:
        """Protections from cleanup: `protections.list()`, `protections.add(…)`, `.remove(…)`."""
        from lakebed.groups.protection_group import ProtectionGroup

        return ProtectionGroup(self)

    @property
    def staged(self) -> StagedGroup:
        """Batches that wait for their commit: `staged.add(data)`, `staged.list()`, `staged.open(id)`."""
        from lakebed.groups.staged_group import StagedGroup

        return StagedGroup(self)

    @property
    def sources(self) -> SourceGroup:
        """Raw files that were read: `sources.list()`, `sources.hold(file)`, `sources.release(file)`."""
        from lakebed.groups.source_group import SourceGroup

        return SourceGroup(self)

    @property
    def dimensions(self) -> DimensionGroup:
        """Dimensions, which are partition fields with allowed values: `dimensions.promote(…)`."""
        from lakebed.groups.dimension_group import DimensionGroup

        return DimensionGroup(self)

    @property
    def inspect(self) -> InspectGroup:
        """Facts as records and charts: `inspect.partitions()`, `inspect.schemas()`, `inspect.plot`."""
        from lakebed.groups.inspect_group import InspectGroup

        return InspectGroup(self)

    def batches(self) -> Items[Batch]:
        """Return all batches: committed ones, oldest first, then staged ones.

        Cost:
            The head, the history, the file table, a LIST of the manifests, and a GET for each
            batch that is not committed.
        """
        from lakebed.state import file_table

        store, state = self._source.store, self._source.load().state
        entries = self._entries(state)
        committed = batches.listing.committed_batches(
            state, entries, file_table.read_counts(store, state.lists.files)
        )
        if self._source.pinned is not None or not state.is_ours:
            return Items(committed)
        waiting = batches.listing.staged_batches(work.staging.find_all(store, state, entries))
        return Items([*committed, *waiting])

    def diff(
        self, a: int | Commit | Batch | Dataset, b: int | Commit | Batch | Dataset | None = None
    ) -> Diff:
        """Compare two versions: the rows and files that the commits between them added and removed.

        Args:
            a: The first side: a version or a batch id, which stands for the state after its
                commit; a `Commit` or `Batch`; or this dataset as `at` returns it. A staged batch
                stands for the dataset as its commit would leave it.
            b: The second side, given likewise; None for the current version.

        Raises:
            VersionNotFoundError: There is no such version or batch, or it was cleaned up.
            InvalidInputError: A side belongs to another dataset, or is none of these.

        Cost:
            The head, the history and the file table. No data file; see `Diff.rows`.
        """
        states = [self._state_of(side) for side in (a, self if b is None else b)]
        return batches.diff.difference(self._source.store, *states)

    def changes(
        self,
        from_version: int | Commit | Batch | Dataset,
        to_version: int | Commit | Batch | Dataset | None = None,
        *,
        on: str | Sequence[str] | None = None,
        columns: str | Sequence[str] | None = None,
        net: bool = False,
    ) -> Changes:
        """Return the rows that the commits after one version, up to another, changed.

        The changes of each commit come in the order of the commits. A row that was only rewritten,
        such as by a compaction, is left out. An update is a deleted and an inserted row, unless
        `on` names the key by which both are matched.

        ```
        for row in flights.changes(3, 5, on="id"):
            print(row["_version"], row["_change"], row["id"])
        ```

        Args:
            from_version: The version before the first change, given as for `diff`; 0 for the empty
                dataset as it was created.
            to_version: The version after the last change, given likewise; None for the current one.
            on: Key fields. A deleted and an inserted row of one commit with equal keys are the two
                images of an update: `update_before` and `update_after`. Null equals nothing.
            columns: Fields to return, and to compare rows by; None for all of the last version.
            net: True to compare the two versions alone: a row that came and went between them is no
                change, and the versions between them need not exist any more.

        Returns:
            The changes, which are read on demand: as Arrow, pandas, Polars or Spark.

        Raises:
            VersionNotFoundError: There is no such version; or a cleanup took it, or one between them.
            InvalidInputError: `to_version` is before `from_version`, a side belongs to another
                dataset, a key is not a plain field, or the dataset has a column such as `_change`.
            SchemaMismatchError: A column is unknown or named twice.

        Cost:
            The head, the history and the file table. No data file; see `Changes.record_batches`.
        """
        before = self._state_of(from_version)
        after = self._state_of(self if to_version is None else to_version)
        return batches.changes.find_changes(
            self._source.store,
            before,
            after,
            current=self._source.load().state,
            entries=self._entries(),
            on=() if on is None else given_names("on", on),
            columns=None if columns is None else given_names("columns", columns),
            is_net=net,
        )

    def _state_of(self, side: int | Commit | Batch | Dataset) -> State:
        match side:
            case Dataset():
                self._check_own(side)
                return side._source.load().state
            case Commit():
                self._check_base_is_mine(side, side.dataset)
                return self._state_of(side.version)
            case batches.listing.Batch():
                return self.at(batch_id=side.batch_id)._source.load().state
            case int() if not isinstance(side, bool):
                # Batch ids are milliseconds since 1970: far greater than any number of commits.
                is_version = side <= max(self.version, 10**9)
                dataset = self.at(version=side) if is_version else self.at(batch_id=side)
                return dataset._source.load().state
        raise InvalidInputError(
            f"{side!r} is not a version.",
            hint="Give a version or a batch id, or a Commit, Batch or Dataset.",
        )

    @overload
    def rollback(
        self,
        *,
        version: int | None = None,
        time: dt.datetime | str | float | None = None,
        batch_id: int | None = None,
        view: View | None = None,
        hold: bool = False,
        reason: str = "",
        base: Base | None = None,
        dry_run: Literal[False] = False,
    ) -> Commit | None: ...

    @overload
    def rollback(
        self,
        *,
        version: int | None = None,
        time: dt.datetime | str | float | None = None,
        batch_id: int | None = None,
        view: View | None = None,
        hold: bool = False,
        reason: str = "",
        base: Base | None = None,
        dry_run: Literal[True],
    ) -> Restoration: ...

    @naming_moment
    def rollback(
        self,
        *,
        version: int | None = None,
        time: dt.datetime | str | float | None = None,
        batch_id: int | None = None,
        view: View | None = None,
        hold: bool = False,
        reason: str = "",
        base: Base | None = None,
        dry_run: bool = False,
    ) -> Commit | Restoration | None:
        """Make an older state current again, as a new commit.

        The files of that state become live again and all others are removed; both stay readable
        by version. The record of epochs, runs and raw files goes back as well: what was removed
        counts as never written, and is written again if its writer sends it again. The next
        `Ingest` reads such raw files again, unless they are held; `notes` of the commit and a
        warning in the log name them. Schema, partitions and properties of the dataset stay as
        they are now.

        Args:
            version: The version to go back to.
            time: Go back to the last version that was committed by this time: a datetime,
                `2026-09-01T12:30:00Z`, `20260901`, or another time that
                `lakebed.archive.to_epoch_ms` reads; without a zone it is UTC.
            batch_id: Go back to the version that committed this batch.
            view: Roll back only these partitions: a view of this dataset, aligned with partition
                boundaries.
            hold: Also hold the raw files whose rows are removed, in the same commit: no ingest
                reads them until they are released. See `sources.hold`.
            reason: Reason for the hold; by default, that the files were rolled back.
            base: The version that the decision was based on, as for `append`: if a later commit
                touched a partition that would change, that is a conflict; it is not undone too.
            dry_run: Only return the changes; the files that come back are not checked.

        Returns:
            The commit, or None if nothing would change: then there is no new version. With
            `dry_run` the changes that a rollback would make.

        Raises:
            VersionNotFoundError: There is no such version, or some of its files are missing.
            CommitConflictError: Another commit, meanwhile or since the base, touched a partition
                that would change, or read in a raw file whose rows would change; nothing has
                changed.
            InvalidInputError: Not exactly one of the three is given, or the view is of another
                dataset.
            PredicateError: The view is not aligned with partition boundaries.

        Cost:
            The head, the history, the file table, the record of the raw files read, a HEAD for
            each file that comes back, one PUT (two if raw files are affected), and one
            conditional PUT. No data file is read or written.
        """
        read = self._base_of(base)
        restoration = self._find_rollback(version, time, batch_id, view)
        if dry_run:
            return restoration
        made = work.rollback.restore(
            self._source.store,
            restoration,
            self._commit_options,
            base=read,
            hold=hold,
            reason=reason,
        )
        if made is None:
            return None
        return Commit.of(made, restoration.base, restoration.notes(hold=hold))

    def _find_rollback(
        self,
        version: int | None,
        time: dt.datetime | str | float | None,
        batch_id: int | None,
        view: View | None,
    ) -> Restoration:
        self._check_writable()
        _check_moment("rollback", version, time, batch_id)
        if version is None:
            version = self._version_by(time, batch_id)
        scope = None
        if view is not None:
            self._check_own(view)
            scope = self._refined_to(view.constraint)._whole()
        base = read_own_head(self._source.store, self.name).state
        return work.rollback.find_restoration(self._source.store, base, version, scope)

    def load(
        self,
        paths: object,
        format: FileFormat | None = None,  # noqa: A002 - the word of API.md
        *,
        run: str | None = None,
        spark: SparkSession | Literal[True] | None = None,
        quarantine: str | None = None,
        options: LoadOptions | None = None,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> LoadReport:
        """Read raw files in as one batch; rows that do not fit go to quarantine.

        The dataset `<name>_quarantine` keeps each line that does not parse, each value of another
        type or outside the bounds of a partition function, and the remainder of a damaged file,
        with the reason, the file and the line number. It is created when it is first needed. Its
        commit comes before that of the rows, and replaces the quarantined lines of an earlier
        attempt of the same run: a crash between the two commits loses no line, and the run can be
        started again. A named run that has been loaded is not loaded twice, unless a rollback or
        an empty rerun has removed rows of it: then all rows of the run are replaced. Files are
        read whether they are held or not; see `sources.hold`.

        Args:
            paths: A path, a pattern, a directory, a URL, or several; see `find_files` in
                `lakebed.arrow.reading.files`.
            format: csv, json (JSON lines), submissions, avro or parquet; None to infer it from the
                suffixes.
            run: Name of the run; runs of one name must not overlap.
            spark: A session whose tasks read the files, which must be visible to all of them; True
                for the active session, else a local one. None reads in this process.
            quarantine: Name of another dataset for the rows that do not fit.
            options: Settings for reading the files.
            dry_run: Write nothing; report what would be loaded and rejected. This process then
                reads the files, whatever `spark` is.
            on_progress: Callback for progress: called after each file, and for rows within a large
                one; with Spark, when a task has read its group; on Connect, when all have.

        Raises:
            SchemaMismatchError: A header or the schema in a file does not fit; nothing was
                written.
            PartitionSpecError: A file lacks the source of a partition function.
            InvalidInputError: There is no such file, or its format is unknown.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            One pass over the files, the cost of `append`, and the history.
        """
        from lakebed.work.ingest.load import load
        from lakebed.work.ingest.load_options import LoadOptions

        self._check_writable()
        given = options or LoadOptions()
        if isinstance(given, LoadOptions):  # `load` refuses anything else
            given = replace(
                given,
                write=given.write or self._write_options,
                commit=given.commit or self._commit_options,
            )
        return load(
            self._on_dry_run()[1] if dry_run else self._source.store,
            self.name,
            paths,
            format,
            run=run,
            spark=spark,
            quarantine=quarantine,
            options=given,
            on_progress=on_progress,
        )

    def evolve(
        self,
        descriptor: DatasetDescriptor | Callable[[DatasetDescriptor], DatasetDescriptor],
        *,
        base: Base | None = None,
        drop: Iterable[str] | str = (),
        existing: Literal["tested", "unchecked"] = "tested",
        dry_run: bool = False,
    ) -> Commit:
        """Change the descriptor of the dataset: fields, defaults, compression, properties, checks.

        Existing files stay as they are and read as before: a field that they lack has the default
        with which it was added. An equal descriptor makes no new version.

        An update never undoes the update of another writer. A function is applied to the current
        descriptor, and again if another writer was faster. A descriptor needs the `base` that it
        was made from; if another writer has updated the dataset since, that is a conflict.

        ```
        flights.evolve(lambda old: old.add_field("note", "string"))
        flights.evolve(lambda old: old.drop_field("note"))
        flights.evolve(lambda old: old.change_type("delay", "long"))
        flights.evolve(lambda old: dataclasses.replace(old, compression="snappy"))
        flights.evolve(lambda old: old.rename_field("carrier", "airline"))
        snapshot = flights.snapshot()
        flights.evolve(changed(snapshot.descriptor), base=snapshot)
        ```

        Args:
            descriptor: A function that returns the new descriptor for the current one, and may be
                called several times; or, with `base`, the new descriptor itself.
            base: The version that the descriptor was made from, or a snapshot, plan or commit of
                it. With a function, another update since then is a conflict.
            drop: Fields to remove that a function leaves out by returning a schema without them;
                those that `drop_field` has removed need not be named.
            existing: `tested` refuses new checks that existing rows fail; `unchecked` does not read
                these rows, and records the checks as not checked. See docs/checks.md.
            dry_run: Write nothing; return the commit that would be made.

        Returns:
            The commit; the last one if the descriptor is unchanged.

        Raises:
            SchemaMismatchError: Data of a current or former schema could not be read as before;
                nothing has changed. The message names the field and the reason.
            PartitionSpecError: The partitions differ; nothing has changed.
            InvalidInputError: The format differs, or a descriptor is given without `base`; nothing
                has changed.
            ChecksFailedError: Existing rows fail a new check; nothing has changed.
            CommitConflictError: Another writer has updated the dataset since the base, or
                repeatedly; nothing has changed.
            CommitUnknownError: The store stopped answering; see the error.
            MetadataProviderError: The dataset has changed, but the repository's own provider
                failed.

        Cost:
            Three reads of the head, the history, two PUTs and one conditional PUT. No data file is
            touched; new checks read the columns that they name.
        """
        if existing not in ("tested", "unchecked"):
            raise InvalidInputError(
                f"existing is {existing!r}.", hint="Give 'tested' or 'unchecked'."
            )
        if dry_run:
            return self._dry_run(
                lambda dry: dry.evolve(descriptor, base=base, drop=drop, existing=existing)
            )
        self._check_writable()
        made_from = self._base_of(base)
        if isinstance(descriptor, DatasetDescriptor) and made_from is None:
            raise InvalidInputError(
                f"Cannot evolve {self.name!r} with a descriptor alone: updates by other writers "
                "since it was made would be undone.",
                hint="Give a function, such as lambda old: dataclasses.replace(old, index=('id',)); "
                "or name what the descriptor was made from: base=snapshot, a version or a commit.",
            )
        edit = descriptor if callable(descriptor) else lambda _: descriptor
        done = self._evolved(
            edit,
            made_from=made_from,
            drop=given_names("drop", drop),
            leaves_unchecked=existing == "unchecked",
        )
        return Commit.of(done.committed or done.entry, done.base)

    def change_type(self, name: str, type: object, *, dry_run: bool = False) -> Commit:  # noqa: A002
        """Give a field a wider type; as `evolve` with `DatasetDescriptor.change_type`.

        Cost:
            As `evolve`.
        """
        return self.evolve(lambda old: old.change_type(name, type), dry_run=dry_run)

    @overload
    def overwrite(
        self,
        data: object,
        view: View | None = None,
        *,
        run: str | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: Literal[False] = False,
    ) -> Commit: ...

    @overload
    def overwrite(
        self,
        data: object,
        view: View | None = None,
        *,
        run: str | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: Literal[True],
    ) -> Replacement: ...

    def overwrite(
        self,
        data: object,
        view: View | None = None,
        *,
        run: str | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: bool = False,
    ) -> Commit | Replacement:
        """Replace every partition that the data touches, or a whole view.

        The replaced files stay on storage, and readable by version.

        Args:
            data: As for `append`. With a view it may hold no rows: an explicit empty result.
            view: A view of this dataset, aligned with partition boundaries.
            run: Name of the run, for the history.
            unknown: As for `append`.
            types: As for `append`.
            base: The version that the data was made from, as for `append`. Later rows of other
                writers in one of the partitions are a conflict, and are not replaced.
            dry_run: Only find the partitions and rows that would be replaced. An iterator or a
                reader is consumed: it is refused afterwards. A later overwrite with `base=found.version` replaces these and
                nothing else.

        Returns:
            The commit; with `dry_run` the partitions and rows that an overwrite would replace.

        Raises:
            CommitConflictError: Another commit touched one of the partitions meanwhile, or since
                the base; nothing became visible.
            InvalidInputError: The data has no rows and no view is given, data lies outside the
                view, or the view is of another dataset.
            PredicateError: The view is not aligned with partition boundaries.

        Cost:
            As `append`; for a dataset of up to 100,000 files also the file table, to count the
            replaced rows. With `dry_run` a read of the head, and the file table; a DataFrame takes
            one Spark job, and another one if dimensions have a cap.
        """
        if view is not None:
            self._check_own(view)
            widest = self._refined_to(view.constraint)
            if dry_run:
                return widest.overwrite(
                    data, run=run, unknown=unknown, types=types, base=base, dry_run=True
                )
            return widest.overwrite(data, run=run, unknown=unknown, types=types, base=base)
        if dry_run:
            return self._find_overwrite(data, None, unknown, types)
        return self._write("overwrite", self._fitted(data, unknown, types), run, None, base)

    def rerun(
        self,
        data: object,
        run: str,
        *,
        partitions: bool = False,
        replace_all: bool = False,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: bool = False,
    ) -> Commit:
        """Replace all rows that a run wrote before, in all partitions, in one commit.

        Rows of other runs stay, even in the same partitions, unless `partitions` is given. The
        replaced files stay readable by version. The rows of the run include those of its `append`
        and `overwrite` calls, and those that a compaction or a delete has rewritten since. The
        first rerun of a run adds a batch; if its partitions hold rows of other runs, `notes` of
        the commit and a warning in the log name these partitions.

        A name that is used for another period, such as `daily` each day, would delete the period
        before. So a rerun is refused if the run has rows in partitions that the new rows do not
        touch, or if all of its dates and times are of other days (UTC) than those of the new rows.

        Args:
            data: As for `append`. Without rows, and with `replace_all`, the earlier rows of the run
                are removed.
            run: Name of the run: the period that it covers, such as `2026-11-01`, so that it is
                the same each time the run is repeated, and never the same for another period.
            partitions: Also replace the partitions that the data touches as a whole, including rows
                of other runs. A second rerun of the run then replaces all of that.
            replace_all: Allow rows of the run to be removed that the new rows do not stand for.
            unknown: As for `append`.
            types: As for `append`.
            base: The version that the data was made from, as for `append`: a later commit that has
                touched rows of the run, or one of these partitions, is a conflict.
            dry_run: As for `append`.

        Raises:
            StaleRerunError: A later rerun of the run was faster; nothing became visible.
            CommitConflictError: The run has written meanwhile, or since the base another writer
                has touched its rows or a partition that is replaced; nothing became visible.
            InvalidInputError: The run has no name; or its rows in some partitions, or of some days,
                would be removed without new ones, and `replace_all` is not given.
            SchemaMismatchError: The data does not fit; nothing became visible.
            PartitionSpecError: The source of a partition function is missing.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            As `append`, and the records of runs and of files, which are few objects.
        """
        scope = scope_of_run(run, partitions=partitions, replace_all=replace_all)
        if dry_run:
            return self._dry_run(
                lambda dry: dry._write("rerun", dry._fitted(data, unknown, types), run, scope, base)
            )
        return self._write("rerun", self._fitted(data, unknown, types), run, scope, base)

    def _write_first(
        self, first: State, data: object, run: str | None, *, replace_all: bool
    ) -> Commit:
        """Write the rows of a dataset that does not exist yet, create it, and commit them.

        Raises:
            DatasetExistsError: Another writer has created it meanwhile with another descriptor.
            LakebedError: As for `append` and `Repository.create`.
        """
        scope: Scope = Nothing()
        if run is not None:
            scope = scope_of_run(run, partitions=False, replace_all=replace_all)
        stage = functools.partial(self._stage, data)
        return work.writer.write_first(self._source.store, first, stage, scope, run)

    def sink(
        self,
        data: object,
        epoch_id: int,
        *,
        query: str | None = None,
        compact_every: int = 0,
        compact_target_bytes: Size | None = None,
    ) -> Commit | None:
        """Append an epoch of a streaming query, exactly once; made for `foreachBatch`.

        Use it as `frame.writeStream.foreachBatch(flights.sink)`. If the query repeats an epoch
        after a failure, the same rows change nothing, and different rows replace the first ones.
        An epoch that a rollback removed is written again. Through Spark Connect the query must be
        named: `foreachBatch(functools.partial(flights.sink, query="flights"))`.

        Args:
            data: The rows of the epoch; as for `append`.
            epoch_id: Number of the epoch, which only grows.
            query: Name that identifies the query, the same whenever it is restarted; a query with
                a new checkpoint needs a new name. None for Spark's own id of the running query,
                which is stored in its checkpoint.
            compact_every: Compact small files after every so many epochs, in a separate thread;
                0 for never.
            compact_target_bytes: As for `compact`.

        Returns:
            The commit; None for an epoch without rows, or one that was committed before.

        Raises:
            InvalidInputError: The query has no name, and Spark does not provide its id.
            StaleRerunError: The query has committed a later epoch, and no rollback removed this
                one; nothing was written.
            CommitConflictError: Another driver has committed an epoch of the query meanwhile.
            LakebedError: As `append`; nothing became visible.

        Cost:
            As `append`. For a repeated epoch, its earlier and its new rows are read, and the
            history.
        """
        from lakebed.state.transaction import Transaction

        self._check_writable()
        if query is None:
            from lakebed.spark.session import find_query

            query = find_query(data)
        store = self._source.store
        epoch = Epoch(query, epoch_id)
        with Transaction.begin(
            store, self.name, "append", epoch=epoch, options=self._commit_options
        ) as transaction:
            standing = work.epochs.find_standing(store, transaction.base, epoch)
            transaction.add(self._stage(data, self._narrow_target(transaction)))
            return work.epochs.commit_epoch(
                store,
                transaction,
                epoch,
                work.epochs.SinkOptions(
                    compact_every=compact_every,
                    compact_target_bytes=None
                    if compact_target_bytes is None
                    else parse_size(compact_target_bytes, "compact_target_bytes"),
                ),
                standing=standing,
            )

    def transaction(self) -> DatasetTransaction:
        """Return a transaction: one snapshot to read from, and one commit for all writes.

        ```
        with flights.transaction() as t:
            t.overwrite(corrected(t.where("dt = '2013-01-01'").arrow()))
        ```

        Returns:
            The transaction. At the end of `with` it is committed as a whole. If there was an
            error, or another writer has changed the data that was read, nothing is committed.

        Raises:
            ReadOnlyError: The dataset cannot be written.

        Cost:
            A read of the head; then the cost of the reads and writes, and one commit.
        """
        self._check_writable()
        return batches.dataset_transaction.DatasetTransaction(self)

    def delete(
        self,
        view: View | ViewCondition | None = None,
        parameters: Parameters | None = None,
        *,
        run: str | None = None,
        base: Base | None = None,
        dry_run: bool = False,
        spark: SparkSession | Literal[True] | None = None,
    ) -> Commit | None:
        """Delete the entities that meet a condition; see `View.delete`.

        Args:
            view: A condition, as for `where`; or a view of this dataset. The dataset itself is the
                view of everything.
            parameters: Values for the parameters of a condition, as for `where`.
            run: Name of the run, for the history.
            base: The version that the decision was based on; see `View.delete`.
            dry_run: Write nothing; return the commit that would be made.
            spark: Session whose tasks do the work; see `View.delete`.

        Returns:
            The commit, or None if the view is empty: then there is no new version.

        Raises:
            InvalidInputError: No condition is given, or the view is of another dataset.
            PredicateError: The condition cannot be read.
            CommitConflictError: Another commit touched one of the partitions meanwhile, or since
                the base; nothing became visible.
        """
        if view is None:
            raise InvalidInputError(
                f"Cannot delete from {self.name!r} without a condition.",
                hint='Give one, such as "id < 100". To delete every row, pass the dataset itself.',
            )
        doomed = self._refined_to(self._view_of(view, parameters, self.where).constraint)
        return doomed.delete(run=run, base=base, dry_run=dry_run, spark=spark)

    def erase(
        self,
        where: View | ViewCondition | Mapping[str, Any],
        parameters: Parameters | None = None,
        *,
        reason: str,
        grace: str | dt.timedelta = GRACE,
        include_protected: bool = False,
        archive: Archive | None = None,
        raw_files: bool = True,
        dry_run: bool = False,
        spark: SparkSession | Literal[True] | None = None,
    ) -> Erasure:
        """Erase entities from every version, and delete the files that held them.

        A person's rows leave the current version in one commit, and then all older versions that
        can be read: files that held such rows are written again without them, and every version
        names the new ones. Older versions stay, with all other rows. Statistics, indices, the
        history, the records of runs and origins, published Delta and Iceberg tables, staged
        batches, the quarantine and the raw files that the rows came from are cleared, too;
        docs/erase.md lists every place. A call that was interrupted is repeated, and continues.

        Args:
            where: A condition, as for `where`; a view of this dataset; or keys: a mapping of columns
                to a value or to a list of values, or an Arrow table of key columns.
            parameters: Values for the parameters of a condition, as for `where`.
            reason: Reason for the erasure, for the certificate; without the values themselves.
            grace: Time for which old files stay for running readers, such as `1h`, or a timedelta.
                While it lasts, the result names them as left; the same call deletes them later.
                With `0s` they are deleted at once, and queries that still read them fail.
            include_protected: Erase rows from protected versions and batches, too. Otherwise the
                call is refused if one of them holds such rows.
            archive: The archive of the raw files. Those that were read into the dataset are searched,
                and written again without such rows. Without it they are named as left.
            raw_files: False leaves raw files as they are, and does not name them.
            dry_run: Change nothing; count the rows and files of each place.
            spark: A session whose tasks search data files and write them again; True for the active
                session, else a local one. None for threads of this process, which always search
                staged batches and raw files.

        Returns:
            The certificate, which is also stored under `<dataset>/erasures`. `is_finished` is False
            if something is left, and `left` names it.

        Raises:
            InvalidInputError: No condition, no key or no reason is given, or the reason names an
                erased value; a protected version holds such rows; or a Hive table shows them.
            PredicateError: The condition cannot be read; or it names a partition field that some
                versions do not have.
            CommitConflictError: Cleanups or other erasures kept committing meanwhile.
            CommitUnknownError: The store stopped answering; erase again.

        Cost:
            The history, the file table and the indices, as for one query of all versions, and the
            footer of each segment of the indices; of files that may hold such rows, the columns of
            the condition; those that do, read once, written once and read back. A commit for the
            current version, and one for each 8 GiB of older files; each writes the changed segments
            of all lists again. Then the inventory of a cleanup, and one delete request for each
            1,000 objects.
        """
        from lakebed.tables import erased_tables

        self._check_writable()
        view = self._view_of(where, parameters, self._keyed)
        return work.erasure.erase(
            self._source.store,
            self.name,
            work.erasure.ErasureRequest(
                predicate=view.constraint,
                reason=reason,
                by=work.protection.caller(),
                grace=work.cleanup.parse_age(grace),
                includes_protected=include_protected,
                is_dry_run=dry_run,
                options=self._commit_options,
                archive=archive,
                with_raw_files=raw_files,
                spark=session_of(spark),
            ),
            renew=functools.partial(erased_tables.renew, self._source.store),
        )

    def _view_of(
        self,
        given: Any,
        parameters: Parameters | None,
        read: Callable[[Any, Parameters | None], View],
    ) -> View:
        """Return a given view of this dataset, or that of a condition."""
        if not isinstance(given, View):
            view = read(given, parameters)
        elif parameters is None:
            view = given
        else:
            raise InvalidInputError(
                f"Parameters are given beside {given!r}.", hint="Give them to `where`."
            )
        self._check_own(view)
        return view

    def _keyed(self, where: Any, parameters: Parameters | None) -> View:
        """Return the view of a condition, or of rows of keys."""
        from lakebed.model.key_rows import condition_of

        if where is None:
            raise InvalidInputError(
                f"Cannot erase from {self.name!r} without a condition.",
                hint="Give one, such as \"user = 'ada'\", or keys, such as {'user': 'ada'}.",
            )
        if not isinstance(where, Mapping):
            if isinstance(where, str) or not hasattr(where, "__arrow_c_stream__"):
                return self.where(where, parameters)
            import pyarrow as pa

            where = pa.table(where).to_pydict()
        if parameters is not None:
            raise InvalidInputError(
                "Parameters are given beside keys.", hint="Only SQL text has parameters."
            )
        return self.where(condition_of(where))

    def cleanup(
        self,
        older_than: str | dt.timedelta = "7d",
        dry_run: bool = True,  # noqa: FBT001, FBT002 - as API.md writes it
        *,
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        published: Literal["ask", "noted"] = "ask",
        clock_skew: dt.timedelta = CLOCK_SKEW,
        spark: SparkSession | Literal[True] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> CleanupReport:
        """Delete files that are proven dead; by default only report them.

        Dead files are data files that a commit removed longer ago than `older_than`, unless a
        later version or a protection needs them; files of writers that died; segments that the
        head does not name; and unfinished writes. Everything else stays, with the reason in the
        report. First a commit gives up the versions that lose files: they can then no longer be
        read, restored or protected. The next cleanup finishes one that was killed.

        Args:
            older_than: Time for which files stay after the commit that removed them, at least the
                duration of the longest read. Such as `7d`, `12h`, `2w`, or a timedelta.
            dry_run: Only report.
            metastore: The metastore to query if the dataset is published, as for `publish`.
            published: `ask`, the default: files stay that the tables of the metastore show now,
                even if a partition was moved by hand; without a metastore to query, nothing is
                deleted. `noted`: files stay that the tables may show according to the notes of
                publications, and no metastore is queried.
            clock_skew: Largest difference between the clocks of writers and of the storage; for
                this long after its lease, a writer is not treated as dead.
            spark: A session whose tasks delete, if there are many files; True for the active
                session, else a local one. None deletes in this process.
            on_progress: Callback for progress; receives the number of deleted objects, the total,
                and their bytes.

        Raises:
            InvalidInputError: `older_than` or `clock_skew` is not a valid age. Or the dataset is
                published, and there is no metastore to query, or it lacks the table.
            ReadOnlyError: Another tool created the dataset.
            CorruptMetadataError: The history cannot be read, so nothing can be proven dead.
            StorageFullError: There is no room for the commit. Files of versions that were given up
                already are deleted.
            StorageError: Some objects could not be deleted; run the cleanup again. Or the
                metastore failed, and nothing was deleted.

        Cost:
            One LIST for each 1,000 objects, the log of an earlier cleanup, the commits since
            `older_than` and since the last cleanup (all of them for an object that these do not
            explain), one GET for each batch that was not committed; without `dry_run` also a
            commit, and one request for each 1,000 files. If it is published, some calls of the
            metastore for each table.

        Source:
            docs/design/005-cleanup.md
        """
        self._check_writable()
        return work.cleanup.cleanup(
            self._source.store,
            self.name,
            older_than=older_than,
            is_dry_run=dry_run,
            clock_skew=clock_skew,
            spark=session_of(spark),
            on_progress=on_progress,
            options=self._commit_options,
            ask=self._asking(metastore, published),
            find_dead_metadata=_dead_metadata_of_tables,
        )

    def _asking(
        self, metastore: SparkSession | str | os.PathLike[str] | None, published: str
    ) -> AskTables | None:
        match published:
            case "ask":
                return functools.partial(
                    hive.shown_directories.shown_directories,
                    self._source.store,
                    self.name,
                    metastore,
                )
            case "noted" if metastore is None:
                return None
            case "noted":
                problem = "A metastore is given, but published='noted' queries none."
            case _:
                problem = f"published is {published!r}."
        raise InvalidInputError(problem, hint="Give 'ask' or 'noted'.")

    def check(
        self,
        repair: bool = False,  # noqa: FBT001, FBT002 - as API.md writes it
        deep: bool = False,  # noqa: FBT001, FBT002
        spark: SparkSession | Literal[True] | None = None,
        *,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> CheckReport:
        """Compare the metadata of the dataset with the objects on storage.

        Every live data file must exist with the size that it was written with, and so must the
        data files of older readable versions and of protected batches. All metadata about files
        must be readable and match them: facts, history, indices, the schema file of plateau.
        Objects that are not needed are noted, and are not a problem; `cleanup` reports details.

        Args:
            repair: Repair everything that data files and head determine, as commits: rebuild facts
                and postings from data files, drop wrong Kartothek index files, write the schema
                file; rebuild lost leaves of a tree, and copies of its head. Data is never deleted,
                and never made up.
            deep: Also read every data file of a readable version, and compare it with its
                checksum.
            spark: A session whose tasks read the data files and indices of a deep check; True for
                the active session, else a local one. None reads in this process.
            dry_run: With `repair`: write nothing; `is_repaired` then marks what would be repaired.
                This process does the work, whatever `spark` is.
            on_progress: Callback for progress; receives the number of data files that a deep check
                has read, the total, and their bytes; without `deep`, the number listed.

        Raises:
            DatasetNotFoundError: There is no such dataset.
            ReadOnlyError: Another tool created the dataset.

        Cost:
            One LIST for each 1,000 objects, and one GET for each segment; with `deep`, all bytes.
        """
        self._check_writable()
        is_dry_run = dry_run and repair
        return work.check.check(
            self._on_dry_run()[1] if is_dry_run else self._source.store,
            self.name,
            is_repairing=repair,
            is_deep=deep,
            spark=None if is_dry_run else session_of(spark),
            on_progress=on_progress,
        )

    @overload
    def publish(
        self,
        target: None = None,
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        *,
        dry_run: bool = False,
    ) -> tuple[NotPublished, ...]: ...

    @overload
    def publish(
        self,
        target: Literal["delta", "kartothek"],
        *,
        check: bool = False,
        repair: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Publication: ...

    @overload
    def publish(
        self,
        target: Literal["iceberg"],
        *,
        catalog: str | None = None,
        table: str | None = None,
        root: str | None = None,
        hide_batch_id: bool | None = None,
        check: bool = False,
        repair: bool = False,
        dry_run: bool = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Publication: ...

    @overload
    def publish(
        self,
        target: Literal["hive"],
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        *,
        table: str,
        mode: Mode | None = None,
        root: str | None = None,
        check: bool = False,
        repair: bool = False,
        dry_run: bool = False,
        print_sql: Literal[False] = False,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Publication: ...

    @overload
    def publish(
        self,
        target: Literal["hive"],
        *,
        table: str,
        print_sql: Literal[True],
        since: int | None = None,
        root: str | None = None,
    ) -> tuple[str, ...]: ...

    def publish(
        self,
        target: TargetName | None = None,
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        *,
        table: str | None = None,
        mode: Mode | None = None,
        catalog: str | None = None,
        root: str | None = None,
        hide_batch_id: bool | None = None,
        check: bool = False,
        repair: bool = False,
        dry_run: bool = False,
        print_sql: bool = False,
        since: int | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Publication | tuple[NotPublished, ...] | tuple[str, ...]:
        """Bring a table of another format over the data files up to date with the current version.

        No file is copied or moved. Other engines can read the table, and should not write to it: it
        is a copy. After a crash at any point, publish again. With the property `publish.delta`,
        `publish.iceberg` or `publish.hive` set to `true`, each commit publishes.

        A Delta log is in `<dataset>/data/_delta_log`, so that `<dataset>/data` is the table. An
        Iceberg table has its metadata in `<dataset>/iceberg/metadata`, numbered and with a version
        hint, like Hadoop tables: that directory is the table; or it is in a catalog. A publication
        to either is one commit or snapshot, which names the files that were added and removed:
        readers see one whole version or another, and never a mixture.

        A Kartothek dataset, `<dataset>-kartothek`, is a head that leads plateau and kartothek to the
        files. It is written as a whole, so on demand only: no commit publishes to it. `Repository.list`
        leaves it out, and a drop of the dataset drops it.

        A Hive table is created if it does not exist. Then partitions that commits have touched since
        the last publication are added, pointed to their new batch or dropped. Each partition changes
        atomically, several partitions do not: a reader may see one partition of the new version next
        to one of the old. Only a directory that holds exactly the live files of a batch is shown. If
        a partition has several live batches, or a directory holds other files, nothing is published.

        Args:
            target: `delta`, `iceberg`, `hive` or `kartothek`; None for all tables that the
                properties name, as each commit publishes to them.
            metastore: Metastore of a Hive table: a Spark session; `thrift://host:port`; a directory for Spark's
                embedded metastore; or None for the active session. Without a target, None is the one
                that `LAKEBED_METASTORE` names, if it is set.
            table: Name of a Hive table as `database.table`, whose database is created if it does not
                exist; of an Iceberg table as `namespace.table` in the catalog.
            mode: Partitions of a Hive table. `partitions`, the default: the table has the dataset's partitions, and each
                is one live batch. `batches`: each live batch is a partition of its own, with a last
                partition column `batch_id`; then one batch replaces another in two steps.
            catalog: Name of the catalog of an Iceberg table, as in pyiceberg's configuration.
            root: URL of the repository as readers of the table address it, if it differs.
            hide_batch_id: True for an Iceberg table without the column `batch_id`. None for what the property
                `publish.iceberg.hide_batch_id` says, else as the table is. It cannot be changed in
                place.
            check: Change nothing; compare the whole table with the head.
            repair: Compare the whole table and repair it; changes by other writers are reverted.
            dry_run: Change nothing; report the planned changes. Without a target, only check that
                each table can be published to.
            print_sql: Return the SQL that brings a Hive table up to date, to be run elsewhere.
                No metastore is queried and no Spark is started. All statements are idempotent; each
                points one partition atomically to the directory of its current batch. The version
                that such a table shows is not recorded here, so a cleanup does not wait for it: run
                the statements well before the retention is over.
            since: With `print_sql`: the version that the table shows. Only partitions that commits
                have touched since then are added or changed, and removed ones are dropped. None for
                a table that does not exist yet, or whose version is unknown: then all partitions are
                added, and none is dropped.
            on_progress: Callback for progress; receives the files or partitions that were added,
                changed and dropped.

        Returns:
            A report. Without a target, the tables that do not show the current version, each with
            the reason; empty if all do; in a dry run those that could not be published to. With
            `print_sql` statements in the dialect shared by Hive, Spark and Athena, each one line
            without a semicolon; a column of times without zone is created as `timestamp_ntz`, which
            only Spark supports.

        Raises:
            InvalidInputError: The format cannot represent the dataset as it is, or another writer has
                written to the table; the message names the cause and what to do. Nothing has
                changed. Or no property names a table, an argument is of another target, or the
                changes since that version are no longer known.
            AlreadyExistsError: There is such a table, and it does not belong to this dataset.
            CorruptMetadataError: Metadata of the table cannot be read.
            StorageError: Store, metastore or catalog failed, or other processes published
                repeatedly; changes of a Hive table made before the failure stay.
            MissingDependencyError: pyiceberg, pyspark or Java is not installed.

        Cost:
            The head, the history since the last publication, the facts of files added since. Delta:
            three GETs of some KiB and a HEAD; a conditional PUT, and two of a note; each fiftieth
            time also a checkpoint. Iceberg: the table's metadata and list of manifests, both
            rewritten; manifests that name removed files; the hint beside the data. Hive: one LIST a
            changed partition; about five calls of the metastore, one of which lists all partitions,
            and one for each thousand partitions that are added, changed or dropped; without a JVM in
            this process one for each that is changed. A check or repair reads the whole table, as
            does publishing to Hive concurrently with another process or after a failure. Kartothek:
            all labels; a conditional PUT of a head that names all files.

        Source:
            docs/design/006-hive.md, docs/design/007-delta-iceberg.md
        """
        from lakebed.tables import targets

        self._check_writable()
        options = targets.TableOptions(
            metastore=metastore,
            table=table,
            mode=mode,
            catalog=catalog,
            root=root,
            hide_batch_id=hide_batch_id,
            check=check,
            repair=repair,
            dry_run=dry_run,
            print_sql=print_sql,
            since=since,
            on_progress=on_progress,
        )
        if target is not None:
            return targets.publish(self._source.store, self.name, target, options)
        if options != targets.TableOptions(metastore=metastore, dry_run=dry_run):
            targets.check_target(target)
        return self._republish(metastore, is_dry_run=dry_run)

    def _republish(
        self, metastore: SparkSession | str | os.PathLike[str] | None, *, is_dry_run: bool
    ) -> tuple[NotPublished, ...]:
        """Publish to all tables that the properties name, as each commit does.

        A Hive table may need all files of a partition in one directory; a commit then gathers them.
        """
        from lakebed.model import publishing
        from lakebed.tables import automatic

        state = self._source.load().state
        if not publishing.targets(state.descriptor.properties):
            raise InvalidInputError(
                f"No property of {self.name!r} names a table to publish to.",
                hint="Set publish.delta, publish.iceberg or publish.hive to true, or name the target: "
                "publish('delta').",
            )
        return automatic.publish(self._source.store, state, metastore, is_dry_run=is_dry_run)

    @overload
    def unpublish(
        self, target: Literal["delta", "kartothek"], *, dry_run: bool = False
    ) -> bool: ...

    @overload
    def unpublish(
        self,
        target: Literal["iceberg"],
        *,
        catalog: str | None = None,
        table: str | None = None,
        dry_run: bool = False,
    ) -> bool: ...

    @overload
    def unpublish(
        self,
        target: Literal["hive"],
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        *,
        table: str,
        dry_run: bool = False,
    ) -> bool: ...

    def unpublish(
        self,
        target: TargetName,
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        *,
        table: str | None = None,
        catalog: str | None = None,
        dry_run: bool = False,
    ) -> bool:
        """Drop a table that `publish` made; the dataset and its files stay.

        Cleanups then ignore a Hive table, even if it was dropped by other means.

        Args:
            target: `delta`, `iceberg`, `hive` or `kartothek`.
            metastore: As for `publish`.
            table: As for `publish`.
            catalog: As for `publish`.
            dry_run: Only report whether there is a table to drop.

        Returns:
            False if there is no such table.

        Raises:
            AlreadyExistsError: The table does not show this dataset; it was not touched.
            InvalidInputError: A Hive table is no longer external; dropping it would delete files. Or
                an argument is of another target.
            StorageError: Store, metastore or catalog failed; try again.
            MissingDependencyError: pyiceberg, pyspark or Java is not installed.

        Cost:
            Beside the data three LISTs and the note of the publication, which stays; the deletion of
            the table's metadata. With a catalog or a metastore, a call or a few.
        """
        from lakebed.tables import targets

        self._check_writable()
        options = targets.TableOptions(
            metastore=metastore, table=table, catalog=catalog, dry_run=dry_run
        )
        return targets.unpublish(self._source.store, self.name, target, options)

    @overload
    def compact(
        self,
        view: View | None = None,
        target_bytes: Size = TARGET_BYTES,
        sort_by: str | Sequence[str] | None = None,
        spark: SparkSession | Literal[True] | None = None,
        *,
        gather: bool = False,
        across_runs_older_than: str | dt.timedelta | None = None,
        metadata: Literal[False] = False,
        dry_run: bool = False,
        commit_bytes: Size = COMPACTION_COMMIT_BYTES,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> CompactionReport: ...

    @overload
    def compact(
        self, *, metadata: Literal[True], dry_run: bool = False
    ) -> tuple[MergedList, ...]: ...

    @overload
    def compact(
        self, *, head: Literal["document", "tree"], dry_run: bool = False
    ) -> Commit | None: ...

    def compact(
        self,
        view: View | None = None,
        target_bytes: Size = TARGET_BYTES,
        sort_by: str | Sequence[str] | None = None,
        spark: SparkSession | Literal[True] | None = None,
        *,
        gather: bool = False,
        across_runs_older_than: str | dt.timedelta | None = None,
        metadata: bool = False,
        head: Literal["document", "tree"] | None = None,
        dry_run: bool = False,
        commit_bytes: Size = COMPACTION_COMMIT_BYTES,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> CompactionReport | tuple[MergedList, ...] | Commit | None:
        """Rewrite the many small files of a partition as few files of a good size.

        Rows stay in their partitions, and by default rows of different runs in different files;
        older versions stay as they are. Before a commit, the new files are read back and their rows
        compared with the old ones. Appends go on meanwhile. If another writer removes a file that
        is being compacted, its partition is planned again, and skipped if this keeps happening.
        Finally, indices that cover every file are written in the form that other tools read.

        Args:
            view: Compact only the partitions that may hold entities of this view of the dataset.
                None for all.
            target_bytes: Size of the new files, in bytes or as text such as `128MB`. Files of at
                least half of it stay as they are.
            sort_by: Fields to sort the rows of the new files by, null last.
            spark: A session whose tasks do the work; True for the active session, else a local
                one. None for this process.
            gather: Rewrite all files of a partition unless they are alone in one directory, as
                `publish("hive")` needs it, and rewrite adopted files, as `publish("delta")` needs
                it. That takes a LIST a partition.
            across_runs_older_than: Also merge small files of different runs that have not written
                for this long, such as `30d`. These runs can then no longer be replaced by name: a
                rerun of one of them is refused. None keeps the files of each run apart.
            metadata: Merge the many small objects of the file table, of the history and of
                indices into one or few objects each, in place of data files. Commits do so too, as
                far as their time allows. Facts and postings of data files that belong to no
                readable version are dropped.
            head: Only change the kind of the head. With `tree` leaves list the files, so that the
                time of a commit or a plan hardly depends on their number: for 100,000 files and
                more. Other tools and earlier releases then cannot read the dataset. `document`
                reverts that. It is one commit beside readers and writers; a head in JSON first
                moves to msgpack by another.
            dry_run: Only report the planned changes.
            commit_bytes: Old files of about this size become one commit. Committed work is
                not repeated after a crash.
            on_progress: Callback for progress; receives the number of small files read, the total,
                and their bytes.

        Returns:
            A report; with `metadata` the merged lists, which are empty if there is nothing to do;
            with `head` the commit, None if the head is of that kind already or in a dry run.

        Raises:
            InvalidInputError: A size is below 1, a field cannot be sorted by, the view is of
                another dataset, or something about data files is given with `metadata` or `head`.
            SchemaMismatchError: A field to sort by is unknown.
            DamagedFileError: A data file differs from what was written; nothing became visible.
            CorruptMetadataError: Rows differed when they were read back; nothing became visible.
            CommitConflictError: Other writers changed the partitions repeatedly.
            ReadOnlyError: The dataset cannot be written; or its head cannot be a tree, because the
                dataset is published after each commit.

        Cost:
            The head, the file table, and the records of runs and raw files. The small files are
            read and written once, and the new ones read once more. Memory: that of one writer, but
            at least one and a half times `target_bytes`, and a small file and a few batches for
            each of up to four threads; with `sort_by` about 100 MiB more a thread, and temporary
            files. With `metadata` both lists and the segments of indices, read once and written
            once, and a commit; memory: the larger list, or 256 MiB for indices.
        """
        if metadata or head is not None:
            name = "metadata" if metadata else "head"
            value = repr(True if metadata else head)
            is_both = metadata and head is not None
            about_data = view is not None or sort_by or spark or gather or across_runs_older_than
            if about_data or is_both or target_bytes != TARGET_BYTES:
                raise InvalidInputError(
                    f"compact({name}={value}) rewrites no data file.",
                    hint=f"Compact the data files by a call of its own, without {name}.",
                )
            if head is not None:
                return self._change_head(head, is_dry_run=dry_run)
            return self._compact_metadata(is_dry_run=dry_run)
        from lakebed.state.committing import CommitOptions

        self._check_writable()
        if view is not None:
            self._check_own(view)
        return work.compaction.compact(
            self._source.store,
            self.name,
            TRUE if view is None else view.constraint,
            work.compaction.CompactionOptions(
                target_bytes=parse_size(target_bytes, "target_bytes"),
                sort_by=given_names("sort_by", sort_by or ()),
                commit_bytes=parse_size(commit_bytes, "commit_bytes"),
                is_gathering=gather,
                across_runs_older_than=None
                if across_runs_older_than is None
                else parse_age(across_runs_older_than),
                commit=self._commit_options or CommitOptions(),
            ),
            spark=session_of(spark),
            is_dry_run=dry_run,
            on_progress=on_progress,
        )

    def _change_head(self, kind: str, *, is_dry_run: bool) -> Commit | None:
        from lakebed.state.handover import change_head

        if kind not in tuple(HeadKind):
            raise InvalidInputError(f"head is {kind!r}.", hint="Give 'document' or 'tree'.")
        self._check_writable()
        store = self._source.store
        if is_dry_run:
            read_own_head(store, self.name)
            return None
        made = change_head(store, self.name, HeadKind(kind), self._commit_options)
        return None if made is None else Commit.of(made[0], made[1])

    def _compact_metadata(self, *, is_dry_run: bool) -> tuple[MergedList, ...]:
        self._check_writable()
        store = self._source.store
        # The history comes last: it includes the commit of the indices, and its own.
        indices = work.indexing.compact_indices(
            store, self.name, options=self._commit_options, is_dry_run=is_dry_run
        )
        with noting(
            "" if is_dry_run or not indices else "Indices are merged; try again to merge the lists."
        ):
            lists = work.metadata_compaction.compact_metadata(
                store, self.name, self._commit_options, is_dry_run=is_dry_run
            )
        return (*lists, *indices)

    def _check_own(self, view: View) -> None:
        if not isinstance(view, View) or not view._is_of(self):
            raise InvalidInputError(
                f"{view!r} is not a view of {self.name!r}.",
                hint="Narrow the dataset itself, as in dataset.where(\"carrier = 'UA'\").",
            )


def _facts_of_checks(state: State) -> dict[str, object]:
    """Return the declared checks of a dataset for its display, if it has any."""
    if not state.descriptor.checks:
        return {}
    standing = state.standing_of_checks()
    return {"checks": shortened(f"{name}: {outcome}" for name, outcome in standing.items())}


def _check_moment(verb: str, version: int | None, time: object, batch_id: int | None) -> None:
    given = sum(value is not None for value in (version, time, batch_id))
    if given != 1:
        raise InvalidInputError(
            f"{verb}() with {given} of version, time and batch_id.", hint="Give one."
        )
    check_number("version", version)
    check_number("batch_id", batch_id)


def scope_of_run(run: str | None, *, partitions: bool, replace_all: bool) -> RunFiles:
    """Return the scope of a rerun.

    Raises:
        InvalidInputError: The run has no name.
    """
    if not isinstance(run, str) or not run:
        raise InvalidInputError(
            f"Cannot rerun: {run!r} is not a valid name of a run.",
            hint="Name the run with a text, such as '2013-01'.",
        )
    return RunFiles(run, partitions=None if partitions else frozenset(), replaces_all=replace_all)


def session_of(spark: SparkSession | Literal[True] | None) -> SparkSession | None:
    """Return the session that a call names; True stands for the active one, else a local one."""
    if spark is None:
        return None
    from lakebed.spark.session import get_session

    return get_session(None if spark is True else spark)


def _dead_metadata_of_tables(
    store: Store, dataset: str, objects: Sequence[ObjectInfo], cutoff: dt.datetime
) -> OldMetadata:
    """Judge the metadata of Delta and Iceberg tables beside the data."""
    from lakebed.tables.delta.log_names import dead_log_keys
    from lakebed.tables.delta.sidecars import dead_sidecars

    of_log = dead_log_keys(dataset, objects, cutoff)
    of_delta = dead_sidecars(store, dataset, objects, of_log)
    return of_delta | iceberg.dead_metadata.dead_keys(store, dataset, objects, cutoff)
