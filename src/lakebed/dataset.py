"""Datasets: the widest view, and everything that changes one."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal

from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.reading.files import FileFormat
from lakebed.commit import Commit, File, Partition, SchemaVersion
from lakebed.errors import InvalidInputError, VersionNotFoundError
from lakebed.loading import LoadOptions, LoadReport, load
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.html import facts_to_html, shortened
from lakebed.model.keys import BATCH_ID, partition_of, split_label
from lakebed.model.predicate import TRUE
from lakebed.model.schema import Schema
from lakebed.provider import telling
from lakebed.source import Source
from lakebed.state import file_table, history, schema_file, transaction
from lakebed.state import sources as source_list
from lakebed.state.history import Entry
from lakebed.state.sources import SourceFile
from lakebed.state.state import State, descriptor_from
from lakebed.state.transaction import CommitOptions
from lakebed.uri import VERSION
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    def dataset_uri(self) -> str:
        """The dataset as a URI, which `lakebed.open_uri` opens again."""
        pinned = self._source.pinned
        return f"dataset:{self.uri}" + (f"?{VERSION}={pinned.state.version}" if pinned else "")

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

    def schemas(self) -> tuple[SchemaVersion, ...]:
        """Return the schemas that the dataset has and had, oldest first, the current one last.

        Cost:
            The head and the history, of which there are few objects.
        """
        state = self._source.load().state
        if not state.is_ours:
            return (
                SchemaVersion(
                    number=1,
                    version=state.version,
                    committed_at=None,
                    schema=state.descriptor.schema,
                ),
            )
        found: dict[int, SchemaVersion] = {}
        for entry in self._entries():
            if entry.descriptor is None:
                continue
            descriptor, lineage = descriptor_from(entry.descriptor, f"{self.name}/history")
            found.setdefault(
                lineage.number,
                SchemaVersion(
                    number=lineage.number,
                    version=entry.version,
                    committed_at=entry.committed_at,
                    schema=descriptor.schema,
                ),
            )
        return tuple(found.values())

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

    def sources(
        self, *, batch_id: int | None = None, file: str | None = None
    ) -> tuple[SourceFile, ...]:
        """Return the raw files that an `Ingest` has read into the dataset, oldest first.

        Also those are among them that others have taken the place of since: the last one of a
        `slot` is the current one.

        Args:
            batch_id: Only what was read into this batch.
            file: Only this one: its location, or its id in the archive.

        Cost:
            The head, and what tells which files were read, of which there are few objects; of an
            older version also the history.
        """
        state = self._source.load().state
        found = source_list.read(self._source.store, state.sources).files
        if self._source.pinned is not None:
            batches = {entry.batch_id for entry in self._entries()}
            found = tuple(one for one in found if one.batch_id in batches)
        return tuple(
            one
            for one in found
            if batch_id in (None, one.batch_id) and file in (None, one.location, one.file_id)
        )

    def load(
        self,
        paths: object,
        format: FileFormat | None = None,  # noqa: A002 - the word of API.md
        *,
        run: str | None = None,
        spark: SparkSession | Literal[True] | None = None,
        quarantine: str | None = None,
        options: LoadOptions | None = None,
    ) -> LoadReport:
        """Read raw files in as one batch; what does not fit goes to quarantine.

        A line that does not parse, a value of another type or outside the bounds of a partition
        function, and the rest of a damaged file are kept in the dataset `<name>_quarantine`, with
        the reason, the file and the line number. It is created when it is first needed. Its
        commit comes before that of the rows, in place of what an earlier attempt of the same run
        set aside: a crash between the two loses no line, and the run can be started again. A
        named run that has been loaded is not loaded twice.

        Args:
            paths: A path, a pattern, a directory, a URL, or several; see `find_files` in
                `lakebed.arrow.reading.files`.
            format: csv, json (JSON lines), submissions, avro or parquet; None to tell it by the
                suffixes.
            run: Name of the run, one at a time.
            spark: A session whose tasks read the files, which all of them must see; True for
                the one that there is, else a local one. None reads in this process.
            quarantine: Name of another dataset for what does not fit.
            options: How the files are read.

        Raises:
            SchemaMismatchError: A header or the schema in a file does not fit; nothing was
                written.
            PartitionSpecError: A file lacks the source of a partition function.
            InvalidInputError: There is no such file, or its format cannot be told.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            One pass over the files and, besides what `append` costs, the history.
        """
        self._check_writable()
        return load(
            self._source.store,
            self.name,
            paths,
            format,
            run=run,
            spark=spark,
            quarantine=quarantine,
            options=options or LoadOptions(),
        )

    def update(
        self, descriptor: DatasetDescriptor, *, commit_options: CommitOptions | None = None
    ) -> Commit:
        """Change what the dataset is: fields, defaults, compression, properties.

        Files that were written stay as they are and read as before: a field that they lack has
        the default with which it was added. An equal descriptor makes no new version.

        Args:
            descriptor: What the dataset shall be.
            commit_options: How long to fight for the head.

        Returns:
            The commit; the last one if the descriptor is what it was.

        Raises:
            SchemaMismatchError: Data of a schema that the dataset has or had could not be read
                as it was; nothing has changed. The message names the field and the reason.
            PartitionSpecError: The partitions differ; nothing has changed.
            InvalidInputError: The format differs; nothing has changed.
            CommitConflictError: Somebody else updated the dataset meanwhile; nothing has changed.
            CommitUnknownError: The store stopped answering; see the error.
            MetadataProviderError: The dataset has changed, but the repository's own provider
                failed.

        Cost:
            Two reads of the head, the history, two PUTs and one conditional PUT. No data file is
            touched.
        """
        self._check_writable()
        store = self._source.store
        entry, base = transaction.update(store, self.name, descriptor, commit_options)
        schema_file.put_or_leave(store, self.name, descriptor)
        self._source.load()  # what was seen before is of the old schema
        if self._source.metadata is not None:
            with telling(
                self.name,
                f"updated to version {entry.version}",
                "Update it again with the same descriptor to tell the provider again.",
            ):
                self._source.metadata.save(self.name, descriptor)
        return Commit.of(entry, base)

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
        if view is not None:
            self._check_own(view)
            widest = View(self._source, view.constraint)
            return widest.overwrite(data, run=run, options=options, commit_options=commit_options)
        return self._write("overwrite", data, run, None, options, commit_options)

    def delete(
        self,
        view: View | None = None,
        *,
        run: str | None = None,
        options: WriteOptions | None = None,
        commit_options: CommitOptions | None = None,
    ) -> Commit | None:
        """Delete the entities of a view; see `View.delete`.

        Args:
            view: Of this dataset. The dataset itself is the view of everything.
            run: Name of the run, for the history.
            options: How files are cut that are written anew.
            commit_options: How long to fight for the head.

        Returns:
            The commit, or None if the view is empty: then there is no new version.

        Raises:
            InvalidInputError: No view is given, or it is of another dataset.
            CommitConflictError: Another commit touched one of the partitions meanwhile; nothing
                became visible.
        """
        if view is None:
            raise InvalidInputError(
                f"Delete of {self.name!r} says not what.",
                hint="Give a view, such as dataset.where(…); to empty it, the dataset itself.",
            )
        self._check_own(view)
        doomed = View(self._source, view.constraint)
        return doomed.delete(run=run, options=options, commit_options=commit_options)

    def _check_own(self, view: View) -> None:
        if not isinstance(view, View) or not view.is_of(self):
            raise InvalidInputError(
                f"{view!r} is no view of {self.name!r}.",
                hint="Narrow the dataset itself, as in dataset.where(\"carrier = 'UA'\").",
            )


def _label(key: str, state: State) -> str:
    return key.removeprefix(f"{state.name}/{state.table}/").removesuffix(
        state.descriptor.file_suffix
    )


def _sum(numbers: list[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None
