"""A staged batch: written, invisible, to be looked at and then committed or discarded."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from lakebed.checks import Audit, Check, look_at
from lakebed.commit import Commit
from lakebed.model.html import facts_to_html
from lakebed.source import Snapshot, Source
from lakebed.state import staged
from lakebed.state.reservation import BatchRecord, Staging
from lakebed.state.transaction import CommitOptions
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_D = TypeVar("_D", bound=View)


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

    def __init__(self, source: Source, record: BatchRecord, build: Callable[[Source], _D]) -> None:
        """Use `Dataset.stage` or `Dataset.staged` instead."""
        assert record.staging is not None
        self._source = source
        self._record = record
        self._staging: Staging = record.staging
        self._build = build

    def __repr__(self) -> str:
        run = f" of run {self.run!r}" if self.run else ""
        return f"<Staged {self.operation} {self.batch_id}{run} in {self._source.name!r}>"

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

        Cost:
            A read of the head; for a rerun, what is known of runs, of which there are few objects.
        """
        return self._build(self._as_if_committed())

    @property
    def rows(self) -> View:
        """The rows of the batch alone.

        Cost:
            As `dataset`.
        """
        pinned = self._as_if_committed().pinned
        assert pinned is not None
        labels = tuple(file.label for file in self._record.files or ())
        alone = replace(pinned.state, labels=labels)
        return View(Source(self._source.store, self._source.name, Snapshot(alone, 0)))

    def _as_if_committed(self) -> Source:
        store, name = self._source.store, self._source.name
        snapshot = self._source.load()
        state = staged.as_if_committed(store, snapshot.state, self._record)
        return Source(store, name, Snapshot(state, snapshot.requests))

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
        return look_at(self.batch_id, checks, self.rows, self.dataset, spark)

    def commit(
        self,
        *,
        checks: Sequence[Check | Callable[[View], object]] = (),
        spark: SparkSession | None = None,
        commit_options: CommitOptions | None = None,
    ) -> Commit:
        """Make the batch visible, if it passes all checks.

        A second commit does nothing, and returns what the first did.

        Args:
            checks: As for `check`.
            spark: As for `check`.
            commit_options: How long to fight for the head.

        Raises:
            ChecksFailedError: Says which check failed and what it found. Nothing became visible,
                and the batch stays staged.
            CommitConflictError: A commit since the batch was staged is in its way, or its lease
                is over. The batch stays staged.
            VersionNotFoundError: It was discarded.
            CommitUnknownError: The store stopped answering; commit it again.

        Cost:
            Besides the checks: the history, four PUTs and one conditional PUT.
        """
        if checks:
            self.check(*checks, spark=spark).require()
        store, name = self._source.store, self._source.name
        entry, base = staged.commit(store, name, self.batch_id, commit_options)
        return Commit.of(entry, base)

    def discard(self) -> None:
        """Delete the batch and its files.

        Raises:
            InvalidInputError: It is committed.
            VersionNotFoundError: It was discarded before.
            CommitConflictError: A commit of it may be under way.

        Cost:
            The history since it was staged, one PUT, and bulk deletes.
        """
        staged.discard(self._source.store, self._source.name, self.batch_id)
