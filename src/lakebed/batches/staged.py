"""A staged batch: written, invisible, to be looked at and then committed or discarded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from lakebed.checks import Audit, Check, look_at
from lakebed.commit import Commit
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
    """A batch that is written but not committed, so that only who asks for it sees it.

    It lives on storage and survives the process: `Dataset.staged` finds it again, until its lease
    is over.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, checks, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-staged").create("numbers", descriptor)
    >>> staged = numbers.stage([{"n": 1}, {"n": None}])
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
        """Use `Dataset.stage` or `Dataset.staged` instead."""
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
        """Show what the manifest says; nothing is read for it."""
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
        """Its id."""
        return self._record.batch_id

    @property
    def operation(self) -> str:
        """Of the commit that it waits for."""
        return self._record.operation

    @property
    def run(self) -> str | None:
        """Name of the run, if it has one."""
        return self._record.run

    @property
    def row_count(self) -> int:
        """Entities in it."""
        return self._staging.row_count

    @property
    def base_version(self) -> int:
        """The version that it was staged on; conflicts are judged from there."""
        return self._staging.base_version

    @property
    def staged_at(self) -> dt.datetime:
        """When it was staged; aware, UTC."""
        return self._staging.staged_at

    @property
    def lease_until(self) -> dt.datetime:
        """From then on a cleanup may delete it; aware, UTC."""
        return self._record.lease_until

    @property
    def dataset(self) -> _D:
        """The dataset as it would be if the batch were committed now; to be read only.

        Once it is committed, the dataset as it was after that.

        Cost:
            A read of the head, and the history since the batch was staged; for a rerun, what is
            known of runs, of which there are few objects.
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
        return self._build(self._pinned_to(self._as_if_committed(head)))

    def _rows_on(self, head: Snapshot) -> View:
        if staging.find_commit(self._source.store, head.state, self._record) is not None:
            return View(self._pinned_to(head).at_batch_alone(self.batch_id))
        applied = self._as_if_committed(head)
        labels = tuple(file.label for file in self._record.files or ())
        alone = replace(applied.state, labels=labels)
        return View(self._pinned_to(Snapshot(alone, applied.requests)))

    def _as_if_committed(self, head: Snapshot) -> Snapshot:
        state = staging.as_if_committed(self._source.store, head.state, self._record)
        return Snapshot(state, head.requests)

    def _pinned_to(self, snapshot: Snapshot) -> Source:
        return Source(self._source.store, self._source.name, snapshot)

    def check(
        self, *checks: Check | Callable[[View], object], spark: SparkSession | None = None
    ) -> Audit:
        """Look at the batch, and say what was found; nothing changes.

        Args:
            checks: See `lakebed.checks`; also a function, which takes the rows of the batch and
                says True.
            spark: A session that reads the rows, which else are read in this process.

        Raises:
            PredicateError: A condition cannot be read, or names an unknown column.
            SchemaMismatchError: A column is unknown.
            InvalidInputError: A check cannot be made of such a column.

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
    ) -> Commit:
        """Make the batch visible, if it passes all checks.

        Checks of the dataset hold of the version that the commit makes: should another commit come
        in between, they are done again, several times if need be. A second commit does nothing,
        and returns what the first did.

        Args:
            checks: As for `check`.
            spark: As for `check`.

        Raises:
            ChecksFailedError: Says which check failed and what it found. Nothing became visible,
                and the batch stays staged.
            CommitConflictError: A commit since the batch was staged is in its way, or its lease
                is over, or others committed during each of several rounds of checks of the
                dataset. The batch stays staged.
            VersionNotFoundError: It was discarded.
            CommitUnknownError: The store stopped answering; commit it again.

        Cost:
            Besides the checks: the history, two PUTs and one conditional PUT; for a rerun, what is
            known of runs.
        """
        store, name = self._source.store, self._source.name
        todo = tuple(checks)
        # A batch does not change, so that it is checked once.
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
            hint="Commit it while fewer others write, or check the batch alone.",
            expected=self.base_version,
            actual=head.state.version,
        )

    def discard(self) -> None:
        """Give the batch up by a commit, then delete it and its files.

        From that commit on nobody can commit the batch, whoever has begun to.

        Raises:
            InvalidInputError: It is committed, perhaps just now; nothing is deleted.
            VersionNotFoundError: It was discarded before.
            CommitUnknownError: The store stopped answering; discard it again.

        Cost:
            The history, a LIST of the manifests, a commit and bulk deletes.
        """
        staging.discard(self._source.store, self._source.name, self.batch_id)
