"""Datasets: the widest view, and everything that changes one."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

from lakebed.arrow.entities import to_batches
from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.write import write_batches
from lakebed.commit import Commit, File, Partition
from lakebed.errors import InvalidInputError, PredicateError, ReadOnlyError, VersionNotFoundError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.html import facts_to_html, shortened
from lakebed.model.keys import BATCH_ID, partition_of, split_label
from lakebed.model.predicate import TRUE, bind
from lakebed.model.schema import Schema
from lakebed.state import file_table, history
from lakebed.state.history import Entry
from lakebed.state.scope import Nothing, Scope, WholeView
from lakebed.state.state import State
from lakebed.state.transaction import CommitOptions, Transaction
from lakebed.view import Source, View
from lakebed.writer import EntityWriter, commit_staged


class Dataset(View):
    """A named collection of entities of one schema; the widest view of itself.

    >>> from lakebed.repository import open_repository
    >>> repository = open_repository("memory://doctest-dataset")
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = repository.create("numbers", descriptor)
    >>> numbers.append([{"n": 1}, {"n": 2}]).version
    1
    >>> numbers.overwrite([{"n": 3}]).version
    2
    >>> list(numbers.reader()), list(numbers.at(version=1).reader())
    ([{'n': 3}], [{'n': 1}, {'n': 2}])
    """

    def __init__(self, source: Source) -> None:
        """Use `Repository.open` instead."""
        super().__init__(source, TRUE)

    def __repr__(self) -> str:
        pinned = self._source.pinned
        at = f" at version {pinned.state.version}" if pinned else ""
        return f"<Dataset {self.name!r} in {self._source.store.uri}{at}>"

    def _repr_html_(self) -> str:
        """Show what the last read of the head said; nothing is read for it."""
        state = self._source.seen()
        descriptor = state.descriptor
        return facts_to_html(
            f"Dataset {self.name}",
            {
                "where": self.uri,
                "version": state.version,
                "last commit": state.committed_at or "of another tool",
                "data files": f"{len(state.labels):,}",
                "columns": shortened(f"{f.name}: {f.type}" for f in descriptor.schema),
                "partitioned by": shortened(map(str, descriptor.partition_by)) or "nothing",
                "format": f"{descriptor.format}, {descriptor.compression}",
            },
        )

    @property
    def name(self) -> str:
        """Its name."""
        return self._source.name

    @property
    def uri(self) -> str:
        """Where it is."""
        return f"{self._source.store.uri}/{self.name}"

    @property
    def version(self) -> int:
        """The current version: 0 at creation, then one more a commit. Reads the head."""
        return self._source.load().state.version

    @property
    def descriptor(self) -> DatasetDescriptor:
        """What the dataset is. Reads the head."""
        return self._source.load().state.descriptor

    @property
    def schema(self) -> Schema:
        """The fields of an entity. Reads the head."""
        return self.descriptor.schema

    def at(
        self,
        *,
        version: int | None = None,
        time: dt.datetime | None = None,
        batch_id: int | None = None,
    ) -> Dataset:
        """Return the dataset as it was, to be read only.

        Args:
            version: After the commit that made it.
            time: The last version that was committed by then; without zone it is UTC.
            batch_id: After the commit of this batch.

        Raises:
            VersionNotFoundError: There is no such version.
            InvalidInputError: Not exactly one of the three is given.

        Cost:
            The head and the history, of which there are few objects.
        """
        given = [one is not None for one in (version, time, batch_id)]
        if sum(given) != 1:
            raise InvalidInputError(
                f"at() with {sum(given)} of version, time and batch_id.", hint="Give one."
            )
        if version is None:
            version = self._version_by(time, batch_id)
        return Dataset(self._source.at_version(version))

    def _version_by(self, time: dt.datetime | None, batch_id: int | None) -> int:
        entries = self._entries()
        if time is not None:
            moment = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
            found = [entry.version for entry in entries if entry.committed_at <= moment]
            wanted = f"at {moment.isoformat()}"
            first = entries[0].committed_at.isoformat() if entries else "never"
            hint = f"The dataset was created at {first}."
        else:
            found = [entry.version for entry in entries if entry.batch_id == batch_id]
            wanted = f"with batch {batch_id}"
            hint = "history() lists the batches."
        if not found:
            raise VersionNotFoundError(f"Dataset {self.name!r} has no version {wanted}.", hint=hint)
        return found[-1]

    def _entries(self) -> tuple[Entry, ...]:
        state = self._source.load().state
        entries = history.read(self._source.store, state.history)
        return tuple(entry for entry in entries if entry.version <= state.version)

    def history(self) -> tuple[Commit, ...]:
        """Return all commits, oldest first.

        Cost:
            The head and the history, of which there are few objects.
        """
        state = self._source.load().state
        return tuple(Commit.of(entry, state) for entry in self._entries())

    def partitions(self) -> tuple[Partition, ...]:
        """Return the partitions that hold live files, in order of path.

        Cost:
            The head and the file table, of which there are few objects.
        """
        state = self._source.load().state
        by_path: dict[str, list[File]] = {}
        for file in self._files(state):
            by_path.setdefault(file.partition, []).append(file)
        found = []
        for path, files in sorted(by_path.items()):
            directory = split_label(_label(files[0].key, state))[0]
            values = state.directory_values(directory)
            found.append(
                Partition(
                    path=path,
                    values={n: v for n, v in values.items() if n in state.partition_level_types},
                    file_count=len(files),
                    row_count=_sum([file.row_count for file in files]),
                    size_bytes=_sum([file.size_bytes for file in files]),
                )
            )
        return tuple(found)

    def files(self) -> tuple[File, ...]:
        """Return the live data files, in the order in which they were added.

        Cost:
            The head and the file table, of which there are few objects.
        """
        return self._files(self._source.load().state)

    def _files(self, state: State) -> tuple[File, ...]:
        counts = file_table.read_counts(self._source.store, state.files)
        batches = {
            directory: state.directory_values(directory).get(BATCH_ID)
            for directory in state.directories()
        }
        found = []
        for label in state.labels:
            directory = split_label(label)[0]
            rows, size = counts.get(label, (None, None))
            batch_id = batches[directory]
            found.append(
                File(
                    key=state.key(label),
                    partition=partition_of(directory),
                    batch_id=batch_id if isinstance(batch_id, int) else None,
                    row_count=rows,
                    size_bytes=size,
                )
            )
        return tuple(found)

    def append(
        self,
        data: object,
        run: str | None = None,
        *,
        options: WriteOptions | None = None,
        commit_options: CommitOptions | None = None,
    ) -> Commit:
        """Add a batch.

        Args:
            data: A Spark DataFrame, which is written by its tasks; or a pyarrow Table,
                RecordBatch or RecordBatchReader, a pandas DataFrame, or an iterable of dicts
                or dataclass instances, which are written in this process.
            run: Name of the run, for the history.
            options: How data files are cut.
            commit_options: How long to fight for the head.

        Raises:
            SchemaMismatchError: The data does not fit; nothing became visible.
            PartitionSpecError: The source of a partition function is missing.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            Besides the data files: a read of the head, five small objects, and one Spark job
            for a DataFrame.
        """
        return self._write("append", data, run, Nothing(), options, commit_options)

    def overwrite(
        self,
        data: object,
        view: View | None = None,
        *,
        run: str | None = None,
        options: WriteOptions | None = None,
        commit_options: CommitOptions | None = None,
    ) -> Commit:
        """Replace every partition that the data touches, or a whole view.

        The files that were there stay on storage, and readable by version.

        Args:
            data: As for `append`. With a view it may hold no rows: an explicit empty result.
            view: Of this dataset, aligned with partition boundaries.
            run: Name of the run, for the history.
            options: How data files are cut.
            commit_options: How long to fight for the head.

        Raises:
            CommitConflictError: Another commit touched one of the partitions meanwhile; nothing
                became visible.
            InvalidInputError: The data has no rows and no view is given, data lies outside the
                view, or the view is of another dataset.
            PredicateError: The view is not aligned with partition boundaries.

        Cost:
            As `append`.
        """
        scope = None if view is None else self._scope_of(view)
        return self._write("overwrite", data, run, scope, options, commit_options)

    def _scope_of(self, view: View) -> Scope:
        if not isinstance(view, View) or not view.is_of(self):
            raise InvalidInputError(
                f"{view!r} is no view of {self.name!r}.",
                hint="Narrow the dataset itself, as in dataset.where(\"carrier = 'UA'\").",
            )
        state = self._source.load().state
        exact = state.descriptor.partition_by.exact(
            bind(view.constraint, state.column_types),
            state.descriptor.schema,
            state.partition_level_types,
        )
        if exact is None:
            raise PredicateError(
                f"The view {view.constraint} is not aligned with the partitions of {self.name!r}.",
                hint="Whole partitions are replaced: let its ends fall on partition boundaries.",
            )
        return WholeView(exact, state.partition_level_types)

    def _write(
        self,
        operation: str,
        data: object,
        run: str | None,
        scope: Scope | None,
        options: WriteOptions | None,
        commit_options: CommitOptions | None,
    ) -> Commit:
        transaction = self._begin(operation, run, commit_options)
        base = transaction.base
        target = BatchTarget(
            dataset=self.name,
            batch_id=transaction.batch_id,
            descriptor=base.descriptor,
            options=options or WriteOptions(),
        )
        try:
            facts = self._stage(data, target)
        except BaseException:
            transaction.abort([])
            raise
        return commit_staged(transaction, facts, scope)

    def _begin(
        self, operation: str, run: str | None, commit_options: CommitOptions | None
    ) -> Transaction:
        if self._source.pinned is not None:
            raise ReadOnlyError(
                f"{self!r} is an older state, which can only be read.",
                hint="Open the dataset without at() to write.",
            )
        return Transaction.begin(
            self._source.store, self.name, operation, run=run, options=commit_options
        )

    def _stage(self, data: object, target: BatchTarget) -> pa.Table:
        if type(data).__module__.startswith("pyspark."):
            from lakebed.spark.write import is_spark_frame, write_frame

            if is_spark_frame(data):
                return write_frame(data, self._source.store, target)  # type: ignore[arg-type]  # checked
        return write_batches(self._source.store, target, to_batches(data, target.descriptor))

    def writer(
        self,
        *,
        run: str | None = None,
        options: WriteOptions | None = None,
        commit_options: CommitOptions | None = None,
    ) -> EntityWriter:
        """Return a writer of single entities, for small amounts, in this process.

        It is a context manager: a clean exit commits one batch, an error leaves nothing.

        Raises:
            ReadOnlyError: The dataset cannot be written.
        """
        transaction = self._begin("append", run, commit_options)
        return EntityWriter(self._source, transaction, options or WriteOptions())


def _label(key: str, state: State) -> str:
    return key.removeprefix(f"{state.name}/{state.table}/").removesuffix(
        state.descriptor.file_suffix
    )


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
