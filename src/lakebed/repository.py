"""Repositories: storage locations that hold datasets."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from lakebed import work
from lakebed.commit import Commit
from lakebed.common import advice
from lakebed.common.former_names import RefusesFormerNames
from lakebed.common.given import check_given, given_names
from lakebed.common.html import facts_to_html
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.redaction import StorageOptions
from lakebed.dataset import Dataset, session_of
from lakebed.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    ObjectExistsError,
    ReadOnlyError,
    noting,
)
from lakebed.groups.namespace_group import NamespaceGroup, names_below, open_below
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.drift import Types, UnknownColumns, check_drift
from lakebed.model.keys import BATCH_ID, BatchIds
from lakebed.model.layout import Folder, is_own_key, schema_key
from lakebed.model.lineage import Lineage
from lakebed.model.locations import shell_address
from lakebed.model.names import check_dataset_name
from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.predicate import TRUE
from lakebed.model.renaming import with_stored_names, without_stored_names
from lakebed.model.table_signs import TableFormat
from lakebed.model.uri import parse_constraints, parse_uri
from lakebed.state import history, reservation, schema_file
from lakebed.state.creation import check_place, create, first_state, is_of_a_namesake
from lakebed.state.head import HeadFormat
from lakebed.state.metadata_provider import MetadataProvider, reporting_provider_errors
from lakebed.state.moving import remove_heads
from lakebed.state.namespaces import is_namespace_name, namespace_exists
from lakebed.state.reader import check_holds_none, list_repository, read_head
from lakebed.state.snapshot import Source
from lakebed.state.state import HeadKind, State, should_be_tree
from lakebed.state.table_pointers import release_name
from lakebed.store import Store, open_store
from lakebed.tables import hive, trees
from lakebed.tables.giving_up import (
    delete_unchanged,
    delete_with_tables,
    etags_of,
    pointers_in,
)
from lakebed.tables.signs import check_plain
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.model.dimensions import DimensionSchema
    from lakebed.state.reader import Head
    from lakebed.tables.trees.telemetry import TelemetryExport, TelemetryOptions
    from lakebed.upkeep.maintenance import MaintenanceReport, UpkeepStep
    from lakebed.upkeep.rules import CleanupRule, LayoutRule
    from lakebed.upkeep.step_report import StepReport
    from lakebed.work.adoption import Adoption

_log = logging.getLogger(__name__)

_HOW_THE_REST_GOES = (
    "Delete them, or create a dataset of this name: its cleanup deletes them after a day, and after "
    "its retention."
)
_RECOMMENDED: set[tuple[str, str]] = set()  # datasets whose move to a tree was recommended


class Repository(RefusesFormerNames):
    """A storage location that holds datasets: a directory, or a bucket and prefix.

    >>> repository = open_repository("memory://doctest-repository")
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = DatasetDescriptor(schema={"type": "record", "name": "flight", "fields": fields})
    >>> flights = repository.create("flights", descriptor)
    >>> repository.list(), repository.exists("flight")
    (['flights'], False)
    """

    def __init__(
        self,
        store: Store,
        *,
        metadata: MetadataProvider | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Use `open_repository` instead, unless you have made a store of your own."""
        self._store = store
        check_given("metadata", metadata, MetadataProvider, "Give a MetadataProvider, opened.")
        self._provider = metadata
        self._storage_options = StorageOptions(storage_options or {})

    def __repr__(self) -> str:
        return f"<Repository {self.uri}>"

    def _repr_html_(self) -> str:
        return facts_to_html("Repository", {"where": self.uri})

    @property
    def uri(self) -> str:
        """The address of the repository."""
        return self._store.uri

    @property
    def repo_uri(self) -> str:
        """The URI of the repository, which `lakebed.open_uri` opens again."""
        return f"repo:{self.uri}"

    @property
    def store(self) -> Store:
        """The store that holds the repository."""
        return self._store

    @property
    def metadata(self) -> MetadataProvider:
        """The provider of descriptors that the repository was opened with, else one of its heads."""
        return HeadProvider(self) if self._provider is None else self._provider

    @property
    def trees(self) -> TreeGroup:
        """Trees of telemetry and descriptors of other tools: `trees.export(view, url)` and others."""
        return TreeGroup(self)

    @property
    def namespaces(self) -> NamespaceGroup[Repository]:
        """Folders that are repositories: `namespaces.create("sales")`, then `lake["sales"]`."""
        return NamespaceGroup(self._store, self._open_folder)

    def _open_folder(self, name: str) -> Repository:
        """Open a folder of the repository as a repository."""
        store = self._opened(f"{self.uri}/{name}")
        return Repository(store, storage_options=self._storage_options)

    def create(
        self,
        name: str,
        schema: object = None,
        if_exists: Literal["error", "open"] = "error",
        *,
        partition_by: PartitionStrategy
        | PartitionFunction
        | Iterable[PartitionFunction | str]
        | str
        | None = None,
        index: Iterable[str] | str | None = None,
        properties: Mapping[str, str] | None = None,
        head_format: Literal["json", "msgpack.zstd"] = "json",
        head: Literal["document", "tree"] = "document",
    ) -> Dataset:
        """Create an empty dataset; `write` creates one with rows.

        Args:
            name: Letters, digits, `+`, `-` and `_`.
            schema: The schema, in any form that `DatasetDescriptor` takes, such as a frame or a
                dataclass; or a `DatasetDescriptor`, which includes the other settings. May be left
                out if the repository's own metadata provider has a descriptor of this name.
            if_exists: `open` returns the existing dataset, whose descriptor must be equal.
            partition_by: Partitions, as for `DatasetDescriptor`, such as `"date(time_hour) as dt"`.
            index: Columns with an inverted index, as for `DatasetDescriptor`.
            properties: Properties of the user, text to text.
            head_format: `json` is human-readable, `msgpack.zstd` is a sixth of the size.
            head: `tree` for a dataset that will have 100,000 files and more: the time of a commit
                or a plan then hardly depends on their number. Other tools and earlier releases
                cannot read it, and `head_format` has no meaning; see `Dataset.compact`.

        Warns:
            LakebedWarning: Partitions repeat, such as those by `hour(ts)` alone, every day: an
                overwrite would replace that hour of all days.

        Raises:
            DatasetExistsError: The name is taken, or the existing dataset has another descriptor.
            InvalidNameError: The name is not legal.
            ReadOnlyError: The store does not support conditional puts, or its service does not
                enforce them.
            SchemaMismatchError: The schema is not of a known form.
            InvalidInputError: No schema is given, and there is no provider to load it from; or a
                descriptor is given together with `partition_by`, `index` or `properties`; or a
                property has an invalid value; or the directory of this name is a repository with
                datasets, or a table of Delta, Iceberg or Hudi; or the location is itself a dataset.
            DatasetNotFoundError: Another process has dropped the dataset at the same moment.
            CommitUnknownError: The store did not report whether the dataset was created.
            MetadataProviderError: The dataset was created, but the repository's own provider
                failed.
            LakebedError: The repository's own provider refused the descriptor; nothing was created.

        Cost:
            Three PUTs, two conditional PUTs, up to twelve GETs and five LISTs; before the first write of
            a process to an object store one request more, see `Store.check_writable`.
        """
        check_dataset_name(name)
        options = {"partition_by": partition_by, "index": index, "properties": properties}
        descriptor = self._described(name, schema, options)
        return self._create(name, descriptor, if_exists, head_format, None, head=_head_kind(head))

    def _create(
        self,
        name: str,
        descriptor: DatasetDescriptor,
        if_exists: Literal["error", "open"],
        head_format: Literal["json", "msgpack.zstd"],
        committed_at: dt.datetime | None,
        lineage: Lineage | None = None,
        *,
        is_adoption: bool = False,
        head: HeadKind = HeadKind.DOCUMENT,
    ) -> Dataset:
        """Create a dataset; `committed_at` is the time of its version 0, None for now."""
        if if_exists not in ("error", "open"):
            raise InvalidInputError(f"if_exists is {if_exists!r}.", hint="Give 'error' or 'open'.")
        format_ = _head_format(head_format)
        BatchIds.named_by(descriptor.properties)
        self._check_by_provider(name, descriptor)
        try:
            created = create(
                self._store,
                name,
                lambda: first_state(
                    name, descriptor, format_, committed_at=committed_at, lineage=lineage, head=head
                ),
                is_adoption=is_adoption,
            )
        except ObjectExistsError:
            return self._existing(self.open(name), descriptor, if_exists)
        self._save_created(name, descriptor)
        # The head is not read again: a lost answer would report a failure, but creation succeeded.
        return self._dataset(created)

    def _described(
        self, name: str, schema: object, options: Mapping[str, Any]
    ) -> DatasetDescriptor:
        """Return the descriptor of a new dataset, from a schema and options."""
        given = {option: value for option, value in options.items() if value is not None}
        descriptor = self._load_descriptor(name) if schema is None else schema
        if not isinstance(descriptor, DatasetDescriptor):
            return without_stored_names(DatasetDescriptor(schema=descriptor, **given))
        if given:
            raise InvalidInputError(
                f"Dataset {name!r} has a descriptor, and {' and '.join(given)} beside it.",
                hint="Give all of it in the descriptor, or a schema in its place.",
            )
        return without_stored_names(descriptor)

    def _check_by_provider(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Let the repository's own provider refuse a dataset before its head is made."""
        if self._provider is not None:
            self._provider.check(name, descriptor)

    def _save_created(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Save the descriptor of a dataset that was created with the repository's own provider."""
        if self._provider is not None:
            remedy = "Update it with the same descriptor to save it to the provider again."
            with reporting_provider_errors(name, "created", remedy):
                self._provider.save(name, descriptor)

    def write(
        self,
        name: str,
        data: object,
        *,
        partition_by: PartitionStrategy
        | PartitionFunction
        | Iterable[PartitionFunction | str]
        | str
        | None = None,
        index: Iterable[str] | str | None = None,
        run: str | None = None,
        replace_all: bool = False,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
    ) -> Commit:
        """Add rows to a dataset, or with `run` replace all rows that this run wrote before.

        So a job can write again: name the run by the period that it covers, such as
        `run="2026-11-01"`. The dataset is created if it does not exist. The dataset is created with its first rows: if the write fails, there is none.

        Args:
            name: Name of the dataset.
            data: As for `Dataset.append`: a frame of Spark, pandas or Polars, Arrow data, a relation
                of DuckDB, a table of deltalake or pyiceberg, or an iterable of dicts or objects. A new
                dataset has its schema; that of dicts is inferred from the first 10,000.
            partition_by: Partitions of a new dataset, as for `DatasetDescriptor`; a dataset that is
                there must have the same. None for those that are there, for those of the dataset
                that `data` is, or for none.
            index: Columns with an inverted index; a dataset that is there must have them. None for
                those of the dataset that `data` is, or for none.
            run: Name of the run, as for `Dataset.rerun`. Without it each call adds the rows.
            replace_all: As for `Dataset.rerun`.
            unknown: As for `Dataset.append`: `keep` adds columns that the dataset lacks.
            types: As for `Dataset.append`: `widen` widens fields where every value stays itself.

        Raises:
            InvalidInputError: As for `Dataset.rerun`; or `replace_all` without `run`; or the dataset has other partitions, or lacks an index; or the schema
                cannot be inferred, as there are no rows; or the directory of this name is a table of
                Delta, Iceberg or Hudi.
            InvalidNameError: The name, or that of a column, is not legal.
            SchemaMismatchError: The rows do not fit the dataset; or the schema cannot be inferred.
            DatasetExistsError: Another writer has just created it with another descriptor.
            LakebedError: As for `create` and `Dataset.append`.

        Cost:
            As for `Dataset.append`; of a new dataset also as for `create`.

        >>> repository = open_repository("memory://doctest-write")
        >>> repository.write("flights", [{"flight": 1, "carrier": "UA"}], run="2026-11-01").row_count
        1
        >>> repository.write("flights", [{"flight": 2, "carrier": "B6"}], run="2026-11-01").row_count
        1
        >>> repository.open("flights").arrow().to_pylist()
        [{'flight': 2, 'carrier': 'B6'}]
        """
        check_dataset_name(name)
        if replace_all and run is None:
            raise InvalidInputError(
                "replace_all is given, but no run: nothing is replaced without one.",
                hint="Name the run, or replace rows with `overwrite`.",
            )
        check_drift(unknown, types)
        try:
            existing = self.open(name)
        except DatasetNotFoundError as missing:
            check_place(self._store, name, missing)  # before any row is read
        else:
            _check_layout(existing, partition_by, index)
            if run is None:
                return existing.append(data, unknown=unknown, types=types)
            return existing.rerun(data, run, replace_all=replace_all, unknown=unknown, types=types)
        options = {"partition_by": partition_by, "index": index}
        if isinstance(data, View):
            options = _layout_like(data, options)
        return self._write_new(name, data, options, run, replace_all=replace_all)

    def _write_new(
        self,
        name: str,
        data: object,
        options: Mapping[str, Any],
        run: str | None,
        *,
        replace_all: bool = False,
    ) -> Commit:
        """Create a dataset with its first rows; the options are those of `create`."""
        from lakebed.arrow.entities import described

        if type(data).__module__.startswith("pyspark."):
            from lakebed.spark.task_kernel import check_frame, find_spark_frame

            frame = find_spark_frame(data)
            if frame is not None:
                check_frame(frame)
        schema, rows = described(data)
        descriptor = self._described(name, schema, options)
        first = first_state(name, descriptor, HeadFormat.JSON)
        self._check_by_provider(name, descriptor)
        commit = self._dataset(first)._write_first(first, rows, run, replace_all=replace_all)
        self._save_created(name, descriptor)
        return commit

    @overload
    def adopt(
        self,
        name: str,
        source: str | os.PathLike[str] | Adoption | None = None,
        *,
        partition_by: Mapping[str, str] | Iterable[str] | str = (),
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        current: Literal["newest", "all"] = "newest",
        batch_level: str = BATCH_ID,
        telemetry: DimensionSchema | str | os.PathLike[str] | None = None,
        kite: bool = False,
        delta: bool = False,
        iceberg: bool | str | os.PathLike[str] = False,
        kartothek: bool = False,
        history: bool = False,
        dry_run: Literal[False] = False,
        head_format: Literal["json", "msgpack.zstd"] = "json",
        spark: SparkSession | Literal[True] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Dataset: ...

    @overload
    def adopt(
        self,
        name: str,
        source: str | os.PathLike[str] | Adoption | None = None,
        *,
        partition_by: Mapping[str, str] | Iterable[str] | str = (),
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        current: Literal["newest", "all"] = "newest",
        batch_level: str = BATCH_ID,
        telemetry: DimensionSchema | str | os.PathLike[str] | None = None,
        kite: bool = False,
        delta: bool = False,
        iceberg: bool | str | os.PathLike[str] = False,
        kartothek: bool = False,
        history: bool = False,
        dry_run: Literal[True],
        head_format: Literal["json", "msgpack.zstd"] = "json",
        spark: SparkSession | Literal[True] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Adoption: ...

    def adopt(
        self,
        name: str,
        source: str | os.PathLike[str] | Adoption | None = None,
        *,
        partition_by: Mapping[str, str] | Iterable[str] | str = (),
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        current: Literal["newest", "all"] = "newest",
        batch_level: str = BATCH_ID,
        telemetry: DimensionSchema | str | os.PathLike[str] | None = None,
        kite: bool = False,
        delta: bool = False,
        iceberg: bool | str | os.PathLike[str] = False,
        kartothek: bool = False,
        history: bool = False,
        dry_run: bool = False,
        head_format: Literal["json", "msgpack.zstd"] = "json",
        spark: SparkSession | Literal[True] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Dataset | Adoption:
        """Make a dataset from existing files; no file is moved or changed.

        The files are in `<repository>/<name>`, laid out as those of a Hive table:
        `<name>/dt=2013-01-01/000000_0`. They become its first version. New batches go to
        `<name>/data/…`, and the files that they replace stay until a cleanup, as usual. Other
        objects in the directory are not touched.

        A directory `batch_id=…` right above files names their batch; other files belong to the
        batch of the adoption. If a partition has several batches, the newest is current. The older
        ones become earlier versions, readable with `at(batch_id=…)`, until a cleanup deletes them.

        Args:
            name: Name of the directory and of the new dataset.
            source: A table of a metastore, as `database.table`, whose partitions must all be in
                the directory; or that directory itself, or one in it; None for the directory. Or
                the result of a `dry_run`, which replaces the other arguments: then exactly that is
                adopted.
            partition_by: Partition fields of a directory, in order, each optionally with its type,
                such as `"dt date, carrier"`; the default type is string. A table defines them
                itself.
            metastore: The metastore of the table; as for `Dataset.publish`.
            current: The current batches of a partition: the newest, or all, if each has added rows
                to earlier ones.
            batch_level: Name of the directory level of batches, such as `batchid` in
                `batchid=1449784608`. New batches always use `batch_id=…`.
            telemetry: A dimension schema, or its path: the files are a telemetry tree of
                submissions, which has a partition field for each dimension, with the texts of the
                paths. Every file is read.
            kite: The files are a dataset of Kite, whose `.metadata` defines schema, format and
                partition strategy. Every file is read, and must be in the directory that the
                strategy gives.
            delta: The files are a Delta table: those that are live in its newest version become the
                dataset. Its log stays as it is.
            iceberg: The files are an Iceberg table: those of its current snapshot become the
                dataset. True for the newest metadata in `<name>/metadata`; or the current metadata
                file according to its catalog.
            kartothek: The files are a dataset of Kartothek or plateau, `<name>.by-dataset-metadata.…`:
                those that its head names become the dataset, with the indices of its columns. The
                head is replaced by one put, in its own format: only Lakebed writes an adopted
                dataset.
            history: Also adopt the older versions of a Delta or Iceberg table, as far back as the log
                holds them and all of their files can be read: each becomes a version with its own
                time, so that `at(time=…)` answers as the table does.
            dry_run: Only return the interpretation of the files, which names each file and its role;
                nothing is written.
            head_format: As for `create`; a dataset of Kartothek keeps its format.
            spark: A session whose tasks read the files; True for the active session, else a local
                one. None for threads of this process.
            on_progress: Callback for progress; receives the number of files read.

        Raises:
            InvalidInputError: The files cannot be adopted in place; the message gives the reason,
                and nothing was written. One reason is a log of Delta, Iceberg or Hudi, or the head
                of a dataset, that defines which of the files are live and was not named as source.
            SchemaMismatchError: The files are not all of one schema, or neither Parquet nor Avro.
            NotFoundError: There is no such table, or no file.
            DatasetExistsError: The name is taken.
            CorruptMetadataError: The log of the table cannot be read.
            MissingDependencyError: The library that reads it is not installed.
            CommitConflictError: Another process adopted it meanwhile, or wrote to the table.
            CommitUnknownError: The store stopped answering; adopt it again.

        Cost:
            Two LISTs of the directory, or one of it and one a partition; up to five LISTs for each
            directory above it; one HEAD and two GETs a file, of Avro all of it; for a table of Delta
            or Iceberg its log; then as `create`, and one commit for any number of versions.

        Source:
            docs/design/006-hive.md
        """
        if isinstance(source, work.adoption.Adoption):
            self._check_adoptable(name, is_kartothek=source.head is not None)
            if source.name != name:
                raise InvalidInputError(
                    f"The adoption of {source.name!r} cannot make a dataset {name!r}.",
                    hint="The dataset has the name of its directory.",
                )
            adoption = source
        else:
            adoption = self._find_adoption(
                name,
                source,
                partition_by=partition_by,
                metastore=metastore,
                current=current,
                batch_level=batch_level,
                telemetry=telemetry,
                kite=kite,
                delta=delta,
                iceberg=iceberg,
                kartothek=kartothek,
                history=history,
                spark=session_of(spark),
                on_progress=on_progress,
            )
        if dry_run:
            return adoption
        if adoption.head is not None:
            return self._take_over(adoption, adoption.head, _head_format(head_format))
        if adoption.log is not None:
            adoption.log.check_unmoved(self._store)
        # An earlier adoption may have failed after this step.
        first_at = min((version.made_at for version in adoption.versions), default=None)
        created = self._create(
            name,
            adoption.descriptor,
            "open",
            head_format,
            first_at,
            adoption.lineage,
            is_adoption=True,
        )
        if first_at is not None:
            self._check_begins(created, first_at)
        with noting(
            f"Dataset {name!r} was created for it, and may be empty: adopt the files again, or "
            "drop it, which leaves the files in place."
        ):
            work.adoption.commit_adoption(self._store, created.name, adoption)
        created._source.invalidate()
        return created

    def _check_begins(self, created: Dataset, first_at: dt.datetime) -> None:
        """Check that a dataset is not younger than the versions that it takes over."""
        created_at = created._source.load().state.committed_at
        if created_at is not None and created_at > first_at:
            raise DatasetExistsError(
                f"Dataset {created.name!r} was created at {created_at.isoformat()}, after the first "
                f"version of the table, of {first_at.isoformat()}.",
                hint="It is empty, from an adoption that came to nothing: drop it, which leaves the "
                "files of the table where they are, and adopt the table again.",
            )

    def _take_over(self, adoption: Adoption, head: Head, head_format: HeadFormat) -> Dataset:
        if head_format not in (HeadFormat.JSON, head.state.head_format):
            raise InvalidInputError(
                f"Dataset {adoption.name!r} keeps its head in {head.state.head_format}, when it is "
                f"adopted; {head_format} was asked for.",
                hint="Leave head_format out, and move the head afterwards: lakebed compact --head.",
            )
        self._check_by_provider(adoption.name, adoption.descriptor)
        taken = work.adoption.take_over_kartothek(self._store, adoption, head)
        self._save_created(adoption.name, taken.descriptor)
        return self._dataset(taken)

    def _find_adoption(
        self,
        name: str,
        source: str | os.PathLike[str] | None = None,
        *,
        partition_by: Mapping[str, str] | Iterable[str] | str = (),
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        current: Literal["newest", "all"] = "newest",
        batch_level: str = BATCH_ID,
        telemetry: DimensionSchema | str | os.PathLike[str] | None = None,
        kite: bool = False,
        delta: bool = False,
        iceberg: bool | str | os.PathLike[str] = False,
        kartothek: bool = False,
        history: bool = False,
        spark: SparkSession | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Adoption:
        """Return the interpretation of the files that `adopt` would use; nothing is written."""
        self._check_adoptable(name, is_kartothek=kartothek)
        alone = (telemetry, kite or None, delta or None, iceberg or None, kartothek or None)
        kinds = sum(one is not None for one in alone)
        others = (source, metastore, partition_by, batch_level != BATCH_ID)
        if kinds and kinds + sum(map(bool, others)) > 1:
            raise InvalidInputError(
                "A tree of telemetry or of Kite, a table of Delta or Iceberg, and a dataset of Kartothek "
                "cannot be combined with other arguments: they define schema and partitions themselves.",
                hint="Give `telemetry`, `kite`, `delta`, `iceberg` or `kartothek` alone.",
            )
        if history and not (delta or iceberg):
            raise InvalidInputError(
                "Only tables of Delta and Iceberg have a history that can be adopted.",
                hint="Leave `history` out, or give `delta` or `iceberg` with it.",
            )
        known = TableFormat.DELTA if delta else TableFormat.ICEBERG if iceberg else None
        check_plain(self._store, name, self._opened, known)
        workers = None
        if spark is not None:
            from lakebed.spark.task_workers import workers_for

            workers = workers_for(spark, self._store, threads=1, purpose=f"adopt {name}")
        if delta:
            return trees.log_tables.find_delta(
                self._store, name, on_progress, with_history=history, workers=workers
            )
        if iceberg:
            metadata_file = None if iceberg is True else os.fspath(iceberg)
            return trees.log_tables.find_iceberg(
                self._store,
                name,
                metadata_file,
                on_progress,
                with_history=history,
                workers=workers,
            )
        if kartothek:
            return trees.kartothek_head.find_kartothek(self._store, name, on_progress, workers)
        if telemetry is not None:
            return trees.telemetry.find_telemetry(
                self._store, name, telemetry, on_progress=on_progress, workers=workers
            )
        if kite:
            metadata = self._opened(f"{self.uri}/{name}/{trees.kite.METADATA}")
            return trees.kite.find_kite(
                self._store, metadata, name, on_progress=on_progress, workers=workers
            )
        table = None
        if hive.from_hive.is_table(source):
            table = partial(hive.from_hive.partitions_of, self._store, name, str(source), metastore)
        return work.adoption.find_adoption(
            self._store,
            name,
            source,
            partition_by,
            table,
            current,
            batch_level,
            on_progress,
            workers,
        )

    def _opened(self, uri: str) -> Store:
        """Open another location with the storage options of this one."""
        return open_store(uri, storage_options=self._storage_options)

    def _check_adoptable(self, name: str, *, is_kartothek: bool) -> None:
        location, _, last = str(name).rstrip("/").rpartition("/")
        if location:
            raise InvalidNameError(
                f"{str(name)!r} is a path, and adopt takes the name of a directory in {self.uri}.",
                hint=f"Open the directory above it: open_repository({location!r}).adopt({last!r}, …).",
            )
        check_dataset_name(name)
        existing = self._find(name)
        if existing is not None and not existing._source.load().state.is_ours:
            if is_kartothek:
                return
            raise DatasetExistsError(
                f"Dataset {name!r} in {self.uri} was created by Kartothek or plateau.",
                hint="Take over the files that its head names: adopt(…, kartothek=True), on the "
                "command line --kartothek. Or read it as it is.",
            )
        if existing is not None and existing.version:
            raise DatasetExistsError(
                f"Dataset {name!r} exists in {self.uri}.",
                hint="Its files are its own; there is nothing to adopt.",
            )

    def _load_descriptor(self, name: str) -> DatasetDescriptor:
        if self._provider is None:
            raise InvalidInputError(
                f"Cannot create dataset {name!r} without a descriptor.",
                hint="Give one, or open the repository with a metadata provider that has one.",
            )
        return self._provider.load(name)

    def _existing(
        self, existing: Dataset, descriptor: DatasetDescriptor, if_exists: str
    ) -> Dataset:
        if if_exists == "error":
            raise DatasetExistsError(
                f"Dataset {existing.name!r} exists in {self.uri}.",
                hint="Open it, choose another name, or let create open it: give it if_exists, on the "
                "command line --if-exists, with the value 'open'.",
            )
        if existing.descriptor != with_stored_names(descriptor, existing.descriptor):
            raise DatasetExistsError(
                f"Dataset {existing.name!r} exists in {self.uri} with another descriptor.",
                hint="Open it without a descriptor, or choose another name.",
            )
        return existing

    def _find(self, name: str) -> Dataset | None:
        try:
            return self.open(name)
        except DatasetNotFoundError:
            return None

    def open(self, name: str) -> Dataset:
        """Open a dataset.

        Args:
            name: Name of the dataset; `DATASET:TABLE` for one of several tables of kartothek.

        Raises:
            DatasetNotFoundError: There is no dataset of this name; the message suggests the
                nearest.
            InvalidNameError: The name is not legal.
            FormatError: Its head cannot be read; or it has several tables, and none is named.

        Cost:
            One GET; two for a msgpack head; one more before the first commit.
        """
        head = read_head(self._store, name)
        self._recommend_tree(head.state)
        return self._dataset(head.state, name)

    def _recommend_tree(self, state: State) -> None:
        """Log once in a process that a tree would be faster for a dataset of very many files."""
        place = (self._store.uri, state.name)
        if should_be_tree(state) and place not in _RECOMMENDED:
            _RECOMMENDED.add(place)
            _log.warning(
                "the head lists many files dataset=%s files=%d: commits and plans are faster if it "
                "becomes a tree: lakebed compact %s --head tree",
                state.name,
                state.live.count,
                shell_address(f"{self._store.uri}/{state.name}"),
            )

    def _dataset(self, state: State, name: str = "") -> Dataset:
        return Dataset(
            Source(self._store, name or state.name, metadata=self._provider, columns_of=state)
        )

    def exists(self, name: str) -> bool:
        """Return whether there is a dataset of this name.

        Raises:
            InvalidNameError: The name is not legal.
            FormatError: Its head cannot be read.
        """
        try:
            return self._find(name) is not None
        except ReadOnlyError:
            return False  # another dataset is published under this name

    def list(self) -> list[str]:
        """Return the names of all datasets, sorted.

        Raises:
            InvalidInputError: The location is the directory of a dataset, not a repository.

        Cost:
            One LIST of the root, not of the datasets; one more if it holds none; a HEAD for each that
            is published to Kartothek.
        """
        return list_repository(self._store)

    def __getitem__(self, name: str) -> Any:  # a dataset has other methods than a repository
        """Open a dataset, as `open`; or a namespace, as `namespaces.open`.

        So `lake["sales"]["orders"]` is the dataset `orders` in the namespace `sales`.

        Raises:
            DatasetNotFoundError: There is neither of this name.
            InvalidNameError: The name is not legal.

        Cost:
            As `open`; for a namespace as for a dataset that does not exist, and a GET.
        """
        try:
            return self.open(name)
        except DatasetNotFoundError:
            if is_namespace_name(name) and namespace_exists(self._store, name):
                return self._open_folder(name)
            raise

    def __contains__(self, name: object) -> bool:
        """Return whether there is a dataset of this name; False for any other object."""
        try:
            return isinstance(name, str) and self.exists(name)
        except InvalidNameError:
            return False

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of all datasets, sorted; as `list`."""
        return iter(self.list())

    def __len__(self) -> int:
        """Return the number of datasets; costs as `list`."""
        return len(self.list())

    def __bool__(self) -> bool:
        """Return True, even for an empty repository, to avoid a LIST."""
        return True

    def sql(
        self,
        query: str,
        spark: SparkSession | None = None,
        tables: Mapping[str, Any] | None = None,
        run: str | None = None,
        *,
        write: bool = False,
        dry_run: bool = False,
    ) -> Any:
        """Run one SQL statement; the datasets are tables by their names.

        A SELECT is run by DuckDB in its dialect. The columns of a table are the fields, then the
        partition fields that are not fields. Only the datasets that the query names are opened, each
        at its current version. Filters are passed to the planner, so files are skipped as for a
        view. A query cannot change anything or name a file. Texts of times without a zone are UTC.
        `batch_id`, `batch_time` and `run` are hidden columns of each dataset, unless it has columns of
        these names: a query that names them gets them, and `SELECT *` leaves them out.

        With `write=True`, MERGE, UPDATE, DELETE, INSERT, CREATE TABLE, ALTER TABLE, DROP TABLE, TRUNCATE, OPTIMIZE,
        VACUUM and RESTORE are read in the dialect of Spark, and each becomes one commit of the verb
        that it stands for; docs/sql.md lists the forms. A form without a verb is refused by name,
        with what can be written instead. `VERSION AS OF` and `TIMESTAMP AS OF` behind a table make
        a SELECT one of Spark's dialect too.

        Args:
            query: One statement. A name with a `-` or `+` needs backticks; in a SELECT of DuckDB
                double quotes.
            spark: A session that runs the queries of the statement over its own views and tables,
                and whose tasks write. None for DuckDB and this process.
            tables: Tables of Arrow, or frames, that the statement can name, by name.
            run: Name of the run, as for `Dataset.append` and the other verbs.
            write: Allow a statement that changes datasets. Otherwise only SELECT, SHOW and DESCRIBE
                run, so that a text of somebody else can read the datasets and do nothing else.
            dry_run: Write nothing; return what the verb reports then. Needs no `write`.

        Returns:
            For SELECT, SHOW and DESCRIBE an Arrow table; else the report of the verb: of MERGE a
            `MergeReport`, of CREATE TABLE without a query the dataset, of DROP whether it was there,
            of OPTIMIZE, VACUUM and RESTORE that of `compact`, `cleanup` and `rollback`, and of the
            others a `Commit`, or None if nothing has changed.

        Raises:
            MissingDependencyError: DuckDB is not installed, and there is no session.
            InvalidInputError: It is not one statement, or one that is not supported, or the engine
                cannot run it. Or it changes something, and neither `write` nor `dry_run` is true.
            PredicateError: A condition or a value cannot be read; the message shows it.
            SchemaMismatchError: The rows do not fit the dataset: values are converted only where
                they stay themselves. Or two columns of a dataset, or two fields of a record in it,
                differ in case only: DuckDB would use another column.
            DuplicateKeyError: Two rows of the source of a MERGE would change the same row.
            DatasetNotFoundError: There is no dataset of a name; the message suggests the nearest.
            CommitConflictError: As for the verb.

        Cost:
            As the reads of the datasets, and as the verb; if pyarrow does not support the format as
            a dataset, such as Avro, all rows are read. Memory: the result, and what DuckDB takes.

        >>> repository = open_repository("memory://doctest-sql")
        >>> descriptor = DatasetDescriptor(schema={"type": "record", "name": "numbers", "fields": [
        ...     {"name": "n", "type": "long"}]})
        >>> commit = repository.create("numbers", descriptor).append([{"n": n} for n in range(10)])
        >>> repository.sql("SELECT sum(n)::INT AS total FROM numbers WHERE n > 7").to_pylist()
        [{'total': 17}]
        >>> repository.sql("UPDATE numbers SET n = n + 100 WHERE n > 7", write=True).updated_row_count
        2
        """
        from lakebed.sql import any_statement
        from lakebed.sql.lake_access import StatementOrder
        from lakebed.sql.statement_source import checked_tables

        order = StatementOrder(
            lake=self,
            spark=spark,
            tables=checked_tables(tables),
            run=run,
            may_write=write,
            is_dry_run=dry_run,
        )
        return any_statement.run(order, query)

    def _on_dry_run(self) -> Repository:
        """Return the repository on a store that keeps all writes in this process."""
        from lakebed.store.dry_run import DryRunStore

        return Repository(DryRunStore(self._store), storage_options=self._storage_options)

    def report(
        self,
        path: str | os.PathLike[str],
        *,
        names: str | Iterable[str] | None = None,
        view: View | None = None,
        rows: int = 0,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> Path:
        """Write a report of the content and history of the lake to one HTML page.

        The page needs no other file, no script and no network. It shows datasets, also those of
        namespaces by their paths, such as `sales/orders`, with commits, files, partitions, batches,
        indices, dead files and the runs of pipelines, and lists what a person
        should mend, each with its command; each plot comes with its table. Details cover only the largest of many datasets, and the newest of many commits
        or the largest of many partitions. A dataset that cannot be read is listed with its error.

        Args:
            path: Path of the HTML file; an existing one is replaced.
            names: Names of the datasets, or paths below namespaces; None for all.
            view: A view whose plan is shown: why files are kept and dropped.
            rows: Number of first rows to show of each dataset shown in detail, up to 200; 0 for
                none.
            on_progress: Callback for progress; receives the number of datasets read.

        Returns:
            The path.

        Raises:
            DatasetNotFoundError: There is no dataset of a name.
            InvalidInputError: A name is not legal, the number of rows is not, or the file cannot be
                written.

        Cost:
            For each dataset the head, the history, the file table, the record of raw files, the notes
            of published tables, its 20 newest runs, and a LIST of its objects; a LIST of the log of
            runs; with `rows` also data files, until there are enough rows. Memory: the files of the
            40 largest datasets, as `Dataset.files`.
        """
        from lakebed.web.build import write_report

        page = Path(path)
        opened: Callable[[str], Dataset] = functools.partial(open_below, self)
        if names is None:
            chosen = [*self.list(), *names_below(self)]
        else:
            # Check that every given name is a dataset before anything is read.
            datasets = {name: opened(name) for name in given_names("names", names)}
            chosen, opened = list(datasets), datasets.__getitem__
        write_report(
            self.uri,
            chosen,
            opened,
            page,
            store=self._store,
            is_whole=names is None,
            view=view,
            rows=rows,
            on_progress=on_progress,
        )
        return page

    def maintain(
        self,
        *,
        names: str | Iterable[str] | None = None,
        only: UpkeepStep | Iterable[UpkeepStep] = (),
        layout: LayoutRule | None = None,
        cleanup: CleanupRule | None = None,
        metastore: SparkSession | str | os.PathLike[str] | None = None,
        dry_run: bool = False,
        fail: bool = True,
        spark: SparkSession | Literal[True] | None = None,
        on_step: Callable[[str, StepReport], None] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> MaintenanceReport:
        """Do what is due for all datasets of the repository, one after the other.

        The steps of a dataset, in order: `retain` deletes the rows that are past the retention that
        its properties `retention.*` declare; `compact` merges the files of partitions with many
        small ones; `index` indexes files that an index does not cover; `metadata` merges long lists
        of metadata; `publish` updates the tables that its properties `publish.*` name; `cleanup`
        deletes dead files, and protections that have expired. Each may be repeated and killed at
        any time: the next call does the rest. Several calls at once are safe.

        A step that fails does not keep the others from running, except that `cleanup` deletes
        nothing of a dataset after a failure in it. Datasets of other tools, of a newer release, and
        others that cannot be written are skipped, with the reason in the report.

        Args:
            names: Names of the datasets; None for all.
            only: Run only these steps.
            layout: The rule of `compact`; None for the defaults.
            cleanup: The rule of `cleanup`; None for the defaults.
            metastore: The metastore of datasets that are published to Hive, as for
                `Dataset.publish`; None for `LAKEBED_METASTORE`, else the active session.
            dry_run: Change nothing; report what each step would do.
            fail: Raise the error of the first step that failed, after all have ended; otherwise the
                report has it.
            spark: A session whose tasks read, merge and delete files; True for the active session,
                else a local one. None does everything in this process.
            on_step: Callback; receives the name of a dataset and each step after its end, or an
                entry without a step for a dataset that is skipped.
            on_progress: Callback for progress.

        Raises:
            DatasetNotFoundError: There is no dataset of a name.
            InvalidInputError: A step is unknown, or a rule is not one.
            ReadOnlyError: The repository cannot be written.
            LakebedError: A step failed, and `fail` is given.

        Cost:
            As `list`; for each dataset a read of the head for each step, the file table for
            `compact`, the footers of its indices for `index`, and the cost of `Dataset.cleanup`;
            of what is due, that of the verbs `Dataset.delete`, `compact`, `indices.build` and
            `publish`.

        >>> repository = open_repository("memory://doctest-maintain-all")
        >>> _ = repository.write("numbers", [{"n": 1}])
        >>> repository.maintain(dry_run=True)
        <MaintenanceReport, a dry run, of memory://doctest-maintain-all: numbers compact nothing,
            metadata nothing, cleanup nothing>
        """
        from lakebed.upkeep import maintenance, rules

        check_given("layout", layout, rules.LayoutRule, "Give a LayoutRule.")
        check_given("cleanup", cleanup, rules.CleanupRule, "Give a CleanupRule.")
        upkeep = maintenance.Upkeep(
            layout=layout or rules.LayoutRule(),
            cleanup=cleanup or rules.CleanupRule(),
            publish=rules.PublishRule(metastore=metastore),
            only=given_names("only", only),  # type: ignore[arg-type]  # checked there
            spark=spark,
            on_progress=on_progress,
        )
        report = maintenance.maintain(
            self._store,
            maintenance.chosen_names(names, self.list()),
            upkeep,
            is_dry_run=dry_run,
            on_step=on_step,
        )
        if fail:
            report.raise_failed()
        return report

    def drop(self, name: str, *, if_missing: Literal["error", "ignore"] = "error") -> bool:
        """Delete a dataset with all its data and history.

        Adopted files are deleted too. Files of other programs in its directory, and the log of a table
        that was adopted, stay: a warning names them. The head is deleted first, so a crash leaves garbage and never a broken dataset. Objects
        that appear after that, such as a new dataset of the same name, are not touched. Commits
        made during the drop are dropped too. A publication to Kartothek is removed before.

        Args:
            name: Name of the dataset.
            if_missing: `ignore` does not raise if there is no such dataset.

        Returns:
            Whether there was something to drop.

        Warns:
            LakebedWarning: Files that are not of the dataset remain in its directory.

        Raises:
            DatasetNotFoundError: There is no dataset of this name, or another process has just
                dropped it.
            CommitConflictError: Another process has just dropped it, and created another one, which
                stays.
            InvalidInputError: There are other datasets in its directory.
            ReadOnlyError: The store cannot be written.
            MetadataProviderError: The dataset was dropped, but the repository's own provider
                failed.

        Cost:
            A LIST of the dataset and one of its reservations, four reads of the head, a GET, a HEAD, and one
            bulk delete for each thousand objects; the history, if there are files of other programs.
        """
        check_dataset_name(name)
        if if_missing not in ("error", "ignore"):
            raise InvalidInputError(
                f"if_missing is {if_missing!r}.", hint="Give 'error' or 'ignore'."
            )
        try:
            self._drop(name)
        except DatasetNotFoundError as exc:
            if if_missing == "ignore":
                return False
            left = next((i.key for i in self._store.list(f"{name}/") if is_own_key(i.key)), None)
            if left is not None:
                exc.add_note(
                    f"Objects of a dataset that was dropped are left under '{name}/', such as "
                    f"'{left}'. {_HOW_THE_REST_GOES}"
                )
            raise
        return True

    def _drop(self, name: str) -> None:
        head = read_head(self._store, name)
        listed = [info.key for info in self._store.list(f"{name}/")]
        check_holds_none(self._store, name, listed)
        held = work.owned.own_keys(self._store, head.state, listed)
        others = sorted({*listed} - {*held})
        # Reservations are listed after the files that they are for: a listing takes time.
        held += [reservation.key_of(name, one) for one in reservation.listed(self._store, name)]
        trees.to_kartothek.drop_with(self._store, name)
        # If it was adopted from a table of the catalog, that must not appear again without its files.
        release_name(self._store, name)
        last = remove_heads(self._store, head)
        # Add what was committed since the listing; a head of another tool may name foreign keys.
        named = work.owned.named_keys(last)
        held += [key for key in named if key.startswith(f"{name}/") and ".." not in key.split("/")]
        with noting(
            f"Dataset {name!r} is dropped. Some of its objects may be left under '{name}/'. "
            f"{_HOW_THE_REST_GOES}"
        ):
            self._delete_rest(held, last)
        if self._provider is not None:
            with reporting_provider_errors(name, "dropped", "Delete it from the provider."):
                self._provider.delete(name)
        # After a failed adoption the files that it found are expected to stay.
        if others and last.version:
            advice.warn(work.owned.remaining(self._store, name, others))

    def _delete_rest(self, held: Iterable[str], last: State) -> None:
        """Delete the remaining objects of a dataset whose head is deleted."""
        # A new dataset of this name would use the key again.
        schema_file_key = schema_key(last.name, last.layout.table)
        doomed = [key for key in held if key != schema_file_key and not is_of_a_namesake(key, last)]
        # A load that creates its dataset stages rows before that: some of these may be meant for a
        # namesake. Without a reservation they cannot be committed any more; so a load that was
        # faster has a head by now.
        if self._find(last.name) is None:
            reservations = f"{Folder.BATCHES.of(last.name)}/"
            self._store.delete(key for key in doomed if key.startswith(reservations))
        # A namesake uses the same keys for its pointers: ours are those that exist before the check.
        pointers = pointers_in(last.name, doomed)
        leading = etags_of(self._store, pointers)
        if self._find(last.name) is not None:
            own = self._keys_of(last)
            doomed, leading = [key for key in doomed if key in own], {}
        delete_unchanged(self._store, leading)
        others = [key for key in doomed if key not in pointers]
        delete_with_tables(self._store, last.name, others)
        if self._find(last.name) is not None:
            return
        self._store.delete([schema_file_key])
        namesake = self._find(last.name)
        if namesake is not None:  # its own schema file may have existed already
            schema_file.put_or_leave(self._store, last.name, namesake.descriptor)

    def _keys_of(self, last: State) -> frozenset[str]:
        """Return the keys that a dataset certainly held, now or before."""
        entries = history.read(self._store, last.lists.history)
        labels = (label for entry in entries for label in entry.added)
        return work.owned.named_keys(last) | frozenset(map(last.layout.naming.key, labels))


class TreeGroup:
    """Exchange of a repository with other tools: trees of telemetry, and descriptors."""

    def __init__(self, repository: Repository) -> None:
        """Use `Repository.trees` instead."""
        self._repository = repository

    def __repr__(self) -> str:
        return f"<trees of {self._repository!r}>"

    def export(
        self,
        view: View,
        url: str | os.PathLike[str],
        schema: DimensionSchema | str | os.PathLike[str] | None = None,
        *,
        options: TelemetryOptions | None = None,
        if_changed: Literal["error", "keep", "replace"] = "error",
        storage_options: Mapping[str, str] | None = None,
        dry_run: bool = False,
        spark: SparkSession | Literal[True] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> TelemetryExport:
        """Write the submissions of a view as a telemetry tree, or add them to one.

        The tree has a level of directories for each dimension, and in these, files of lines
        `<uuid><tab><json>`: `20130612/nightly/winnt/001.gz`. `adopt` accepts such a
        tree. A later export to the same tree writes only the directories that do not exist yet:
        the content of each is recorded beside the tree, where its readers do not look.

        Files appear when all files of the export are written. On a file system a directory
        appears atomically with its content. An export that dies leaves nothing that a reader sees,
        or the next export finishes it.

        Args:
            view: The view or dataset to export.
            url: An empty directory or prefix of a bucket, or a tree of earlier exports.
            schema: A dimension schema, or its path. Its dimensions are the levels, taken from the
                fields or partition fields of these names; values that it does not allow become
                `OTHER`. None for the dataset's own partition fields.
            options: Settings of the tree: dimensions in the names of files, compression, size of
                files.
            if_changed: Action if a directory held other lines when it was exported: `error` writes
                nothing at all and names them, `keep` leaves and names them, `replace` writes them
                again. For a whole dataset this includes directories without remaining rows.
            storage_options: Settings of the object store.
            dry_run: Write nothing; report the files that would be written.
            spark: A session whose tasks read and write, each some whole directories; True for the
                active session, else a local one. None for this process, as in a dry run. Levels
                that are no partition fields leave less to divide.
            on_progress: Callback for progress; receives the number of rows read.

        Returns:
            A report of the written directories, and of those that hold several values: in a tree,
            `_` replaces most characters other than letters and digits.

        Raises:
            AlreadyExistsError: The target holds something that no export has written; or a
                directory has changed.
            ConflictError: Another export writes the tree at the same time.
            InvalidInputError: The tree has other levels; or the view is of another repository.
            SchemaMismatchError: The dataset holds no submissions, or lacks a dimension.
            StorageError: A store failed; the next export completes a partly visible one.

        Cost:
            A read of the view, two for an existing tree. A file is a rename on a file system;
            elsewhere it is put, read and put again. Memory: up to 64 compressed files.
        """
        from lakebed.model.dimensions import DimensionSchema

        if view._source.store.uri != self._repository.uri:
            raise InvalidInputError(
                f"{view!r} is in {view._source.store.uri}, not in {self._repository.uri}.",
                hint="Export it by the repository that it was opened with.",
            )
        if schema is not None and not isinstance(schema, DimensionSchema):
            schema = DimensionSchema.from_json(schema)
        target = open_store(url, storage_options=storage_options)
        return trees.telemetry.export(
            view._source.store,
            view.plan(),
            target,
            schema,
            options,
            if_changed=if_changed,
            is_whole=view.constraint == TRUE,
            storage_options=storage_options,
            is_dry_run=dry_run,
            spark=session_of(spark),
            on_progress=on_progress,
        )

    def follow_metadata(self, names: str | Iterable[str] | None = None) -> tuple[str, ...]:
        """Create and update datasets to match the repository's own metadata provider.

        For a provider that other systems write, such as a catalog. Missing datasets are created;
        datasets with another descriptor are updated, by the rules of evolution. No dataset is ever
        dropped, and the provider is not written. Reads and writes still use the heads.

        Args:
            names: Names of the datasets to match; None for all that the provider lists.

        Returns:
            The names of datasets that were created or updated.

        Raises:
            InvalidInputError: The repository has no provider of its own; or the provider lists
                nothing, and no names are given; or the rules do not allow an update: datasets
                before it, in order of name, are updated, and it is unchanged.
            DatasetNotFoundError: The provider has no descriptor of one of the names.
            LakebedError: As `create` and `Dataset.evolve`.

        Cost:
            A list and a load of each descriptor by the provider, and a read of each head.
        """
        if self._repository._provider is None:
            raise InvalidInputError(
                f"{self._repository!r} has no metadata provider to follow.",
                hint="Give one to `open_repository`, as `metadata`.",
            )
        alone = Repository(
            self._repository.store, storage_options=self._repository._storage_options
        )
        changed = []
        for name in (
            self._repository._provider.list() if names is None else given_names("names", names)
        ):
            wanted = self._repository._provider.load(name)
            existing = alone._find(name)
            if existing is None:
                alone.create(name, wanted)
                changed.append(name)
                continue
            snapshot = existing.snapshot()
            if snapshot.descriptor != with_stored_names(wanted, snapshot.descriptor):
                with noting(f"This concerns dataset {name!r}, which cannot follow its metadata."):
                    existing.evolve(wanted, base=snapshot)
                changed.append(name)
        return tuple(changed)


class HeadProvider(MetadataProvider):
    """A provider of the descriptors in the heads of a repository."""

    def __init__(self, repository: Repository) -> None:
        """Use `Repository.metadata` instead."""
        self._repository = repository

    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Create the dataset, or update it by the rules of evolution."""
        if self._repository.exists(name):
            dataset = self._repository.open(name)
            dataset.evolve(descriptor, base=dataset.snapshot())
        else:
            self._repository.create(name, descriptor)

    def load(self, name: str) -> DatasetDescriptor:
        """Return the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: There is no dataset of this name.
        """
        return self._repository.open(name).descriptor

    def delete(self, name: str) -> bool:
        """Drop the dataset; return False if there is none."""
        return self._repository.drop(name, if_missing="ignore")

    def list(self) -> list[str]:
        """Return the names of all datasets, sorted."""
        return self._repository.list()


def _layout_like(data: View, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a new dataset for the rows of another: its partitions and indices.

    Raises:
        InvalidInputError: The partitions need values that the rows do not have.
    """
    declared = data._source.load().state.descriptor
    partition_by = options["partition_by"]
    if partition_by is None:
        provided = [one.name for one in declared.partition_by if not one.takes_source]
        if provided:
            raise InvalidInputError(
                f"The rows of {data._source.name!r} do not hold its partition field {provided[0]!r}, "
                "which a view provides.",
                hint="Give partition_by: the partitions of the new dataset, or () for none.",
            )
        partition_by = declared.partition_by
    index = options["index"]
    return {"partition_by": partition_by, "index": declared.index if index is None else index}


def _check_layout(
    dataset: Dataset,
    partition_by: PartitionStrategy
    | PartitionFunction
    | Iterable[PartitionFunction | str]
    | str
    | None,
    index: Iterable[str] | str | None,
) -> None:
    """Check that a dataset has the partitions and indices that a writer expects.

    Raises:
        InvalidInputError: It has others.
        PartitionSpecError: The strategy cannot be read.
    """
    descriptor = dataset.descriptor
    if partition_by is not None:
        wanted = PartitionStrategy.of(partition_by)
        if wanted != descriptor.partition_by:
            own, other = (
                f"partitioned by {', '.join(map(str, strategy))}" if strategy else "not partitioned"
                for strategy in (descriptor.partition_by, wanted)
            )
            raise InvalidInputError(
                f"Dataset {dataset.name!r} is {own}, and was to be {other}.",
                hint="Leave partition_by out to write into it as it is, or give another name.",
            )
    missing = [name for name in given_names("index", index or ()) if name not in descriptor.index]
    if missing:
        raise InvalidInputError(
            f"Dataset {dataset.name!r} lacks an index on {', '.join(map(repr, missing))}.",
            hint=f"Build it with `indices.build({missing[0]!r})`, or leave index out.",
        )


def _head_kind(text: str) -> HeadKind:
    try:
        return HeadKind(text)
    except ValueError as exc:
        raise InvalidInputError(
            f"Unknown kind of head {text!r}.", hint="Give 'document' or 'tree'."
        ) from exc


def _head_format(text: str) -> HeadFormat:
    try:
        return HeadFormat(text)
    except ValueError as exc:
        raise InvalidInputError(
            f"Unknown head format {text!r}.", hint="Give 'json' or 'msgpack.zstd'."
        ) from exc


def open_repository(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, str] | None = None,
    metadata: MetadataProvider | None = None,
) -> Repository:
    """Open a storage location.

    Args:
        url: A directory, or `file:///…`, `s3://bucket/prefix`, `gs://…`, `az://…`,
            `memory://name`. It need not exist yet.
        storage_options: Settings of the object store, such as `endpoint` or `region`.
        metadata: A custom provider, which receives descriptors in addition to the heads.

    Raises:
        InvalidInputError: The URL has an unknown scheme.
        MissingDependencyError: The client for it is not installed.

    Cost:
        No request.

    >>> repository = open_repository("memory://doctest")
    >>> repository.list()
    []
    """
    store = open_store(url, storage_options=storage_options)
    return Repository(store, metadata=metadata, storage_options=storage_options)


def open_uri(
    uri: str, *, storage_options: Mapping[str, str] | None = None
) -> Repository | Dataset | View:
    """Open the repository, dataset or view that a URI names.

    Args:
        uri: `repo:LOCATION`, `dataset:LOCATION/NAME`, or `view:LOCATION/NAME?…` with constraints
            such as `carrier=UA,B6` and `time_hour=[2013-06-01T00:00:00Z,)`; LOCATION as for
            `open_repository`.
        storage_options: As for `open_repository`.

    Raises:
        InvalidInputError: It is not such a URI.
        PredicateError: A constraint names an unknown field, or does not fit its field.
        DatasetNotFoundError: There is no such dataset.
        VersionNotFoundError: There is no such version.

    Cost:
        None for a repository, else as `Repository.open`.

    >>> repository = open_repository("memory://doctest-uri")
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = DatasetDescriptor(schema={"type": "record", "name": "flight", "fields": fields})
    >>> view = repository.create("flights", descriptor).where("n >= 3")
    >>> view.kite.uri
    'view:memory://doctest-uri/flights?n=[3,)'
    >>> open_uri(view.kite.uri)
    <View of 'flights': n >= 3>
    """
    address = parse_uri(uri)
    repository = open_repository(address.location, storage_options=storage_options)
    if address.kind == "repo":
        return repository
    dataset = repository.open(address.name)
    if address.version is not None:
        dataset = dataset.at(version=address.version)
    if address.kind == "dataset":
        return dataset
    return dataset.where(parse_constraints(address.constraints, dataset.descriptor.predicate_types))
