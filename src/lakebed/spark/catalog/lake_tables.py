"""A dataset at one version, as a table of Spark's planner."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from lakebed.common.redaction import STORAGE_PREFIX
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.predicate import Predicate
from lakebed.model.values import Scalar
from lakebed.plan.plan import ScanPlan
from lakebed.plan.search import plan
from lakebed.spark.catalog.columns import (
    hidden_levels,
    table_columns,
    table_struct,
    transforms_of,
)
from lakebed.spark.catalog.row_operations import RowChange
from lakebed.spark.catalog.scans import FileLists, LakeScanBuilder, find_exact
from lakebed.spark.catalog.session_jvm import Jvm, Made, interfaces, to_dict
from lakebed.spark.catalog.streams import TableStream
from lakebed.spark.catalog.table_constraints import constraints_of
from lakebed.spark.catalog.table_partitions import HasPartitions
from lakebed.spark.catalog.writes import LakeWriteBuilder
from lakebed.spark.decided_rows import IDENTITY, UNCHANGED, RowStatement
from lakebed.state import history
from lakebed.state.snapshot import Source
from lakebed.state.state import State
from lakebed.state.updates import schemas_of

if TYPE_CHECKING:
    from lakebed.store.base import Store

VERSION_PROPERTY = "lakebed.version"  # shown among the properties of a table
_PRESERVE_ON_UPDATE = "__preserve_on_update"  # `MetadataColumn` of Spark


class HasVerbs(Protocol):
    """A view of a dataset, which a statement changes."""

    def delete(self, *, base: int | None = None) -> object:
        """Delete the rows of the view."""


class HasNotes(Protocol):
    """A commit."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the caller: what may not have been meant, with a remedy."""


class HasFacts(Protocol):
    """The facts of a dataset."""

    def partitions(self) -> Iterable[PartitionFacts]:
        """Return the partitions."""

    def quarantines(self) -> tuple[str, ...]:
        """Return the names of the datasets that hold rejects."""


class CatalogDataset(Protocol):
    """A dataset, whose verbs carry out statements."""

    _source: Source

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def inspect(self) -> HasFacts:
        """Its facts."""

    def history(self) -> Iterable[object]:
        """Return the commits."""

    def files(self) -> Iterable[object]:
        """Return the data files."""

    def batches(self) -> Iterable[object]:
        """Return the batches."""

    def at(self, *, version: int | None = None, time: Any = None) -> CatalogDataset:
        """Return an earlier version of it."""

    def changes(
        self, from_version: int, to_version: int | None = None, *, net: bool = False
    ) -> Any:
        """Return the rows that commits changed."""

    def append(self, data: Any, run: str | None = None) -> HasNotes:
        """Add rows."""

    def rerun(self, data: Any, run: str) -> HasNotes:
        """Replace the rows of a run."""

    def overwrite(
        self,
        data: Any,
        view: Any = None,
        *,
        run: str | None = None,
        unknown: Any = "reject",
        types: Any = "strict",
        base: int | None = None,
    ) -> object:
        """Replace the rows of a view."""

    def delete(self, view: Any = None, *, base: int | None = None) -> object:
        """Delete rows."""

    def where(self, predicate: Any) -> HasVerbs:
        """Return a view of some rows."""

    def _change_rows(self, frame: Any, statement: RowStatement) -> object:
        """Carry out a statement that changes rows."""

    def evolve(self, descriptor: Callable[[DatasetDescriptor], DatasetDescriptor]) -> object:
        """Change the descriptor."""


class PartitionFacts(Protocol):
    """The facts of a partition."""

    @property
    def values(self) -> Mapping[str, Scalar]:
        """Typed value of each partition field."""

    @property
    def file_count(self) -> int:
        """Number of data files."""

    @property
    def row_count(self) -> int | None:
        """Number of rows; None if another tool wrote a file."""

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the files; None if another tool wrote a file."""


class HasNamespaces(Protocol):
    """The namespaces of a repository."""

    def list(self) -> list[str]:
        """Return their names."""

    def exists(self, name: str) -> bool:
        """Return whether there is one of a name."""

    def create(self, name: str, *, properties: Mapping[str, str] | None = None) -> object:
        """Create one."""

    def drop(self, name: str) -> bool:
        """Drop an empty one."""

    def properties(self, name: str) -> Mapping[str, str]:
        """Return the properties of one."""

    def update(
        self, name: str, *, properties: Mapping[str, str] | None = None, remove: Iterable[str] = ()
    ) -> object:
        """Set and remove properties of one."""


class CatalogRepository(Protocol):
    """A repository, whose datasets are tables."""

    _storage_options: Mapping[str, str]

    @property
    def store(self) -> Store:
        """The store of the datasets."""

    @property
    def namespaces(self) -> HasNamespaces:
        """Its namespaces."""

    def _open_folder(self, name: str) -> CatalogRepository:
        """Open a folder as a repository."""

    def open(self, name: str) -> CatalogDataset:
        """Open a dataset."""

    def list(self) -> list[str]:
        """Return the names of all datasets."""

    def create(self, name: str, schema: object) -> CatalogDataset:
        """Create an empty dataset."""

    def drop(self, name: str, *, if_missing: Any = "error") -> bool:
        """Delete a dataset."""

    def _write_new(
        self, name: str, data: object, options: Mapping[str, Any], run: str | None
    ) -> object:
        """Create a dataset with its first rows."""


class TableVersion:
    """One version of a dataset, with what Spark's planner asks for made once.

    Attributes:
        dataset: The dataset; pinned if the query names a version.
        lists: Lists of files that Spark has looked at.
        store: The store of the dataset.
        state: The version.
        layout: Its layout.
        uri: Address of the dataset.
        columns: Columns of the table.
        hidden: Columns that `*` leaves out.
        types: Types of all columns that a condition may name.
        schema: The table's columns, as Spark's JVM has them.
    """

    def __init__(
        self,
        jvm: Jvm,
        dataset: CatalogDataset,
        state: State,
        storage: Mapping[str, str],
        lists: FileLists,
    ) -> None:
        """Keep the state of a dataset."""
        source = dataset._source
        self._jvm = jvm
        self.dataset = dataset
        self._storage = storage
        self.lists = lists
        self.is_pinned = source.pinned is not None
        self.store = source.store
        self.state = state
        self.layout = state.layout
        self.uri = f"{self.store.uri}/{dataset.name}"
        self.columns = table_columns(self.layout)
        self.hidden = hidden_levels(self.layout)
        self.types = self.layout.predicate_types
        # Rows of another tool may hold null where we would not.
        is_checked = state.is_ours and not state.is_changed_by_others
        declared = table_struct(self.layout, self.columns, has_required=is_checked)
        self.schema = jvm.to_schema(declared)

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.dataset.name

    @functools.cached_property
    def address(self) -> Mapping[str, str]:
        """The options that lead the format `lakebed` to the dataset."""
        options = {f"{STORAGE_PREFIX}{name}": value for name, value in self._storage.items()}
        return {"path": self.uri, **options}

    @functools.cached_property
    def transforms(self) -> Any:
        """The partitions as Spark's JVM has them."""
        return transforms_of(self._jvm, self.layout)

    @functools.cached_property
    def metadata_columns(self) -> Any:
        """The hidden columns as Spark's JVM has them."""
        struct = table_struct(self.layout, self.hidden)
        for name in IDENTITY:
            struct = struct.add(name, "long")
        schema = self._jvm.to_schema(struct)
        texts = {UNCHANGED: f'{{"{_PRESERVE_ON_UPDATE}": false}}'}
        return self._jvm.to_array(
            self._jvm.connector.catalog.MetadataColumn,
            [
                _metadata_column(self._jvm, name, schema.apply(name).dataType(), texts.get(name))
                for name in struct.names
            ],
        )

    @functools.cached_property
    def constraints(self) -> Any:
        """The checks that are constraints of SQL, as Spark's JVM has them."""
        return constraints_of(self._jvm, self.state)

    @functools.cached_property
    def held_columns(self) -> Mapping[int, frozenset[str]]:
        """Columns of data files by the number of their schema, read from the history."""
        entries = history.read_bare(self.store, self.state.lists.history)
        return {
            number: frozenset(field.stored_name for field in schema)
            for number, schema in schemas_of(entries, self.name).items()
        }

    def choose(self, predicate: Predicate) -> ScanPlan:
        """Choose the files that may have rows for which a predicate is true.

        Cost:
            See `lakebed.plan.search.plan`.
        """
        return plan(self.state, predicate, requests=0, store=self.store)


def _metadata_column(jvm: Jvm, name: str, data_type: Any, metadata: str | None) -> Made:
    return Made(
        jvm,
        "connector.catalog.MetadataColumn",
        name=name,
        dataType=data_type,
        isNullable=True,
        comment=None,
        metadataInJSON=metadata,
        transform=None,
    )


class LakeTable(HasPartitions):
    """A dataset as a table: equal across versions, so that Spark refreshes what it has cached.

    Where it would cache the old rows again, versions are different tables.
    """

    Java = interfaces(
        "connector.catalog.SupportsRead",
        "connector.catalog.SupportsWrite",
        "connector.catalog.SupportsRowLevelOperations",
        "connector.catalog.SupportsDeleteV2",
        "connector.catalog.SupportsMetadataColumns",
        "connector.catalog.SupportsAtomicPartitionManagement",
    )
    _kept = (
        "name id version schema columns constraints partitioning partitionSchema properties"
        " capabilities metadataColumns canRenameConflictingMetadataColumns"
    )

    def __init__(
        self, jvm: Jvm, title: str, opened: TableVersion, *, is_for_delete: bool = False
    ) -> None:
        """Keep a version.

        Args:
            jvm: The JVM of the session.
            title: Name with the catalog's, for Spark's messages.
            opened: The version.
            is_for_delete: Whether a DELETE asks for the table. Spark refuses to delete all rows of
                a scan that has its columns in another order than the table.
        """
        super().__init__(jvm)
        self._title = title
        self._opened = opened
        self._is_for_delete = is_for_delete
        is_one_version = opened.is_pinned or not jvm.refreshes_cached_tables
        pin = f"@{opened.state.version}" if is_one_version else ""
        self._key = f"LakeTable({opened.uri}{pin})"

    def name(self) -> str:
        """Return the name that Spark shows."""
        return self._title

    def id(self) -> None:
        """Return no id: a table that was dropped and created again has another history."""

    def version(self) -> str:
        """Return the version."""
        return str(self._opened.state.version)

    def schema(self) -> Any:
        """Return the columns."""
        return self._opened.schema

    def constraints(self) -> Any:
        """Return the checks that are constraints of SQL."""
        return self._opened.constraints

    def partitioning(self) -> Any:
        """Return the partitions."""
        return self._opened.transforms

    def properties(self) -> Any:
        """Return the properties, with what Spark shows of each table."""
        own = {name: str(text) for name, text in self._opened.state.descriptor.properties.items()}
        shown = {
            "provider": "lakebed",
            "location": self._opened.uri,
            "is_managed_location": "true",  # SHOW CREATE TABLE leaves the location out
            VERSION_PROPERTY: self.version(),
        }
        return self._jvm.to_map({**own, **shown})

    def capabilities(self) -> Any:
        """Return the kinds of reads and writes."""
        return self._jvm.capabilities(
            "BATCH_READ",
            "V1_BATCH_WRITE",
            "BATCH_WRITE",
            "TRUNCATE",
            "OVERWRITE_BY_FILTER",
            "OVERWRITE_DYNAMIC",
            "MICRO_BATCH_READ",
            "STREAMING_WRITE",
            "AUTOMATIC_SCHEMA_EVOLUTION",
        )

    def metadataColumns(self) -> Any:
        """Return the columns that a query may name, but `*` leaves out."""
        return self._opened.metadata_columns

    def canRenameConflictingMetadataColumns(self) -> bool:
        """Return False: hidden columns keep their names."""
        return False

    def newScanBuilder(self, options: Any) -> Any:
        """Return the builder of a read, also of a stream."""
        stream = TableStream(self._jvm, self._opened, to_dict(options))
        keeps_order = self._is_for_delete
        return LakeScanBuilder(self._jvm, self._opened, stream, keeps_order=keeps_order)

    def newWriteBuilder(self, info: Any) -> Any:
        """Return the builder of a write."""
        return LakeWriteBuilder(self._jvm, self._opened, info)

    def newRowLevelOperationBuilder(self, info: Any) -> Any:
        """Return the builder of an UPDATE, a MERGE or a DELETE."""
        operation = RowChange(self._jvm, self._opened, info.command())
        return Made(self._jvm, "connector.write.RowLevelOperationBuilder", build=lambda: operation)

    def canDeleteWhere(self, predicates: Any) -> bool:
        """Return whether Lakebed's own DELETE would delete the rows of a condition, and no others."""
        return self._find_condition(predicates) is not None

    def deleteWhere(self, predicates: Any, *_options: Any) -> None:
        """Delete rows, as `View.delete`."""
        condition = self._find_condition(predicates)
        assert condition is not None  # Spark has asked canDeleteWhere
        view = self._opened.dataset.where(condition)
        view.delete(base=self._opened.state.version)

    def truncateTable(self, *_options: Any) -> bool:
        """Delete all rows; the history stays."""
        self._opened.dataset.delete(self._opened.dataset, base=self._opened.state.version)
        return True

    def _find_condition(self, predicates: Any) -> Predicate | None:
        return find_exact(self._jvm.find_filters(predicates), self._opened.types)
