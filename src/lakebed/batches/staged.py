"""Staged batches: written but invisible until they are committed; they can be discarded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from lakebed.checks import Audit, Check, look_at
from lakebed.commit import Commit, as_dry_run
from lakebed.common.html import facts_to_html
from lakebed.errors import CommitConflictError, PreconditionFailedError
from lakebed.state.reservation import BatchRecord, Staging
from lakebed.state.snapshot import Snapshot, Source
from lakebed.view import View
from lakebed.work import staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.state.committing import CommitOptions

_D = TypeVar("_D", bound=View)

_ROUNDS_OF_CHECKS = 5  # of one commit, while others commit in between


class Staged(Generic[_D]):
    """A batch that is written but not committed, and so invisible to other readers.

    It is on storage and survives the process: `Dataset.staged.list` finds it again until its lease
    ends.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, checks, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-staged").create("numbers", descriptor)
    >>> staged = numbers.staged.add([{"n": 1}, {"n": None}])
    >>> numbers.count(), staged.dataset.count()
    (0, 2)
    >>> staged.check(checks.not_null("n")).has_passed
    False
    >>> staged.commit(checks=[checks.row_count(min=1)]).version
    1
    """

    def __init__(
        self,
        source: Source,
        record: BatchRecord,
        build: Callable[[Source], _D],
        options: CommitOptions | None = None,
    ) -> None:
        """Use `Dataset.staged.list` instead."""
        assert record.staging is not None
        self._source = source
        self._record = record
        self._staging: Staging = record.staging
        self._build = build
        self._options = options

    def __repr__(self) -> str:
        run = f" of run {self.run!r}" if self.run else ""
        return f"<Staged {self.operation} {self.batch_id}{run} in {self._source.name!r}>"

    def _row_(self) -> dict[str, object]:
        return {
            "batch_id": self.batch_id,
            "run": self.run,
            "operation": self.operation,
            "staged at": self.staged_at,
            "kept until": self.lease_until,
            "rows": f"{self.row_count:,}",
        }

    def _repr_html_(self) -> str:
        """Show the manifest, without a request."""
        return facts_to_html(
            f"Staged batch {self.batch_id}",
            {
                "operation": self.operation,
                "run": self.run or "none",
                "staged at": self.staged_at,
                "based on version": self.base_version,
                "kept until": self.lease_until,
                "rows": f"{self.row_count:,}",
                "files": f"{len(self._record.files or ()):,}",
            },
        )

    @property
    def batch_id(self) -> int:
        """The id of the batch."""
        return self._record.batch_id

    @property
    def operation(self) -> str:
        """The operation of the commit to come."""
        return self._record.operation

    @property
    def run(self) -> str | None:
        """Name of the run, if it has one."""
        return self._record.run

    @property
    def row_count(self) -> int:
        """Number of entities in the batch."""
        return self._staging.row_count

    @property
    def file_count(self) -> int:
        """Number of data files of the batch."""
        return len(self._record.files or ())

    @property
    def size_bytes(self) -> int:
        """Total size of the data files."""
        return sum(file.size_bytes for file in self._record.files or ())

    @property
    def base_version(self) -> int:
        """The version that it was staged on; a conflicting commit after it is an error."""
        return self._staging.base_version

    @property
    def staged_at(self) -> dt.datetime:
        """The time of staging; aware, UTC."""
        return self._staging.staged_at

    @property
    def lease_until(self) -> dt.datetime:
        """The time after which a cleanup may delete the batch; aware, UTC."""
        return self._record.lease_until

    @property
    def dataset(self) -> _D:
        """The dataset as it would be if the batch were committed now; read-only.

        After the commit of the batch, the dataset at the version of that commit.

        Raises:
            CommitConflictError: The dataset has other levels of directories since, so that the batch
                cannot be committed.

        Cost:
            A read of the head, and the history since the batch was staged; for a rerun, the
            record of runs, which is few objects.
        """
        return self._dataset_on(self._source.load())

    @property
    def rows(self) -> View:
        """The rows of the batch alone.

        Cost:
            As `dataset`.
        """
        return self._rows_on(self._source.load())

    def _dataset_on(self, head: Snapshot) -> _D:
        entry = staging.find_commit(self._source.store, head.state, self._record)
        if entry is not None:
            return self._build(self._pinned_to(head).at_version(entry.version))
        state = staging.as_if_committed(self._source.store, head.state, self._record)
        return self._build(self._pinned_to(Snapshot(state, head.requests)))

    def _rows_on(self, head: Snapshot) -> View:
        if staging.find_commit(self._source.store, head.state, self._record) is not None:
            return View(self._pinned_to(head).at_batch_alone(self.batch_id))
        alone = staging.alone(self._source.store, head.state, self._record)
        return View(self._pinned_to(Snapshot(alone, head.requests)))

    def _pinned_to(self, snapshot: Snapshot) -> Source:
        return Source(self._source.store, self._source.name, snapshot)

    def check(
        self, *checks: Check | Callable[[View], object], spark: SparkSession | None = None
    ) -> Audit:
        """Run checks on the batch and report the results; nothing changes.

        Args:
            checks: See `lakebed.checks`; a function also works, which receives the rows of the
                batch and returns True if they pass.
            spark: A session that reads the rows; None reads them in this process.

        Raises:
            PredicateError: A condition cannot be parsed, or names an unknown column.
            SchemaMismatchError: A column is unknown.
            InvalidInputError: A check does not support the type of its column.

        Cost:
            For a count the footers; else the columns that the checks name.
        """
        return self._look(checks, self._source.load(), spark)

    def _look(
        self,
        checks: Sequence[Check | Callable[[View], object]],
        head: Snapshot,
        spark: SparkSession | None,
    ) -> Audit:
        return look_at(self.batch_id, checks, self._rows_on(head), self._dataset_on(head), spark)

    def commit(
        self,
        *,
        checks: Sequence[Check | Callable[[View], object]] = (),
        spark: SparkSession | None = None,
        dry_run: bool = False,
    ) -> Commit:
        """Make the batch visible, if it passes all checks.

        Checks of the dataset hold for the version that the commit makes: if another commit comes
        in between, they run again, up to a limit. A second commit does nothing and returns the
        first one.

        Args:
            checks: As for `check`.
            spark: As for `check`.
            dry_run: Write nothing; return the commit that would be made.

        Raises:
            ChecksFailedError: A check failed; the error names it and its findings. Nothing became
                visible, and the batch stays staged.
            CommitConflictError: A commit since the batch was staged conflicts with it, or its lease
                is over, or other writers committed during each of several rounds of checks of the
                dataset. The batch stays staged.
            VersionNotFoundError: It was discarded.
            CommitUnknownError: The store stopped answering; commit it again.

        Cost:
            Besides the checks: the history, two PUTs and one conditional PUT; for a rerun, the
            record of runs.
        """
        if dry_run:
            return self._dry_run(checks, spark)
        store, name = self._source.store, self._source.name
        todo = tuple(checks)
        # A batch does not change, so its own checks run once.
        again = tuple(check for check in todo if isinstance(check, Check) and check.of == "dataset")
        head = self._source.load()
        for _ in range(_ROUNDS_OF_CHECKS):
            entry = staging.find_commit(store, head.state, self._record)
            if entry is not None:
                return Commit.of(entry, head.state)
            if todo:
                self._look(todo, head, spark).require()
            only_on = head.state if again else None
            try:
                made, base = staging.commit(
                    store, name, self.batch_id, self._options, only_on=only_on
                )
            except PreconditionFailedError:
                todo, head = again, self._source.load()
            else:
                return Commit.of(made, base, staging.notes_of(store, base, self._record, made))
        raise CommitConflictError(
            f"Batch {self.batch_id} of {name!r} passed its checks {_ROUNDS_OF_CHECKS} times, and "
            "each time another commit had changed the dataset meanwhile.",
            hint="Commit it while fewer writers are active, or check the batch alone.",
            expected=self.base_version,
            actual=head.state.version,
        )

    def _dry_run(
        self, checks: Sequence[Check | Callable[[View], object]], spark: SparkSession | None
    ) -> Commit:
        from lakebed.store.dry_run import DryRunStore

        store = DryRunStore(self._source.store)
        dry = Staged(self._source.on(store), self._record, self._build, self._options)
        before = self._source.load().state.version
        commit = dry.commit(checks=checks, spark=spark)
        if commit.version <= before:
            return commit  # it is committed already
        return replace(as_dry_run(commit, store), size_bytes=self.size_bytes)

    def discard(self) -> None:
        """Give up the batch by a commit, then delete it and its files.

        After that commit no process can commit the batch, even one that has already started to.

        Raises:
            InvalidInputError: It is committed, perhaps just now; nothing is deleted.
            VersionNotFoundError: It was discarded before.
            CommitUnknownError: The store stopped answering; discard it again.

        Cost:
            The history, a LIST of the manifests, a commit and bulk deletes.
        """
        staging.discard(self._source.store, self._source.name, self.batch_id)
