"""A repository as a catalog of Spark: its datasets are the tables of the default namespace."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.common.recent import Recent
from lakebed.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import is_dataset_name
from lakebed.spark.catalog.columns import defaults_of, functions_of, schema_of
from lakebed.spark.catalog.java_errors import raised_in_java
from lakebed.spark.catalog.lake_tables import (
    CatalogDataset,
    CatalogRepository,
    LakeTable,
    TableVersion,
)
from lakebed.spark.catalog.metadata_tables import (
    METADATA_TABLES,
    QUARANTINE,
    ReadOnlyTable,
    find_quarantine,
    metadata_error,
    metadata_table,
    no_rejects,
)
from lakebed.spark.catalog.time_travel import NamedMoment
from lakebed.spark.catalog.procedures import PROCEDURES, LakeProcedure
from lakebed.spark.catalog.scans import FileLists
from lakebed.spark.catalog.session_jvm import Jvm, Proxied, interfaces
from lakebed.spark.catalog.table_changes import OF_SPARK, with_changes
from lakebed.spark.catalog.writes import StagedLakeTable, StatementOptions, Wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OPTION = "option."  # prefix of the options of a table among its properties
# `saveAsTable` names the default source of the session, which is parquet.
_PROVIDERS = ("lakebed", "parquet")
_KEPT_VERSIONS = 64  # versions of tables whose objects of the JVM are kept


class LakeCatalog(Proxied):
    """A repository as a catalog."""

    Java = interfaces(
        "connector.catalog.StagingTableCatalog",
        "connector.catalog.SupportsNamespaces",
        "connector.catalog.ProcedureCatalog",
    )

    def __init__(self, spark: SparkSession, name: str, repository: CatalogRepository) -> None:
        """Keep the repository.

        Args:
            spark: A classic session.
            name: Name of the catalog.
            repository: The repository.
        """
        super().__init__(Jvm(spark))
        self._name = name
        self._repository = repository
        self._lists = FileLists()
        self._versions = Recent[tuple[object, ...], TableVersion](_KEPT_VERSIONS)

    def initialize(self, name: str, options: Any) -> None:
        """Do nothing: the catalog is ready when it is made."""

    def name(self) -> str:
        """Return the name of the catalog."""
        return self._name

    def capabilities(self) -> Any:
        """Return that columns may have defaults."""
        kinds = self._jvm.connector.catalog.TableCatalogCapability
        return self._jvm.to_set((kinds.SUPPORT_COLUMN_DEFAULT_VALUE,))

    def defaultNamespace(self) -> Any:
        """Return the namespace without a name."""
        return self._jvm.to_texts(())

    def listNamespaces(self, *parent: Any) -> Any:
        """Return no namespaces."""
        for namespace in parent:
            self._check_namespace(namespace)
        return self._jvm.gateway.new_array(self._jvm.java.lang.String, 0, 0)

    def namespaceExists(self, namespace: Any) -> bool:
        """Return whether the namespace is the default one."""
        return not len(namespace)

    def loadNamespaceMetadata(self, namespace: Any) -> Any:
        """Return the location of the repository."""
        self._check_namespace(namespace)
        return self._jvm.to_map({"location": self._repository.store.uri})

    def createNamespace(self, namespace: Any, _metadata: Any) -> None:
        """Refuse it."""
        raise _namespace_error("CREATE NAMESPACE", namespace)

    def alterNamespace(self, namespace: Any, _changes: Any) -> None:
        """Refuse it."""
        raise _namespace_error("ALTER NAMESPACE", namespace)

    def dropNamespace(self, namespace: Any, _cascade: bool) -> bool:  # noqa: FBT001 - Spark's signature
        """Refuse it."""
        raise _namespace_error("DROP NAMESPACE", namespace)

    def listTables(self, namespace: Any) -> Any:
        """Return the names of the datasets."""
        self._check_namespace(namespace)
        make = self._jvm.connector.catalog.Identifier
        names = self._repository.list()
        return self._jvm.to_array(make, [make.of(namespace, name) for name in names])

    def tableExists(self, identifier: Any) -> bool:
        """Return whether there is a dataset, or a metadata table, of this name."""
        if self._find_owner(identifier) is not None:
            return identifier.name() in METADATA_TABLES
        return self._find(identifier) is not None

    def invalidateTable(self, _identifier: Any) -> None:
        """Do nothing: each statement reads the head again."""

    def loadTable(self, identifier: Any, *moment: Any) -> Any:
        """Return a dataset as a table, at its current version or at another one."""
        title = self._title(identifier)
        owner = self._find_owner(identifier)
        if owner is None:
            dataset = NamedMoment.of(moment).of_dataset(self._get(identifier))
            return LakeTable(self._jvm, title, self._opened(dataset))
        table = identifier.name()
        if table != QUARANTINE:
            return metadata_table(self._jvm, title, owner, table, NamedMoment.of(moment))
        rejects = find_quarantine(self._repository, owner, NamedMoment.of(moment))
        if rejects is None:
            return no_rejects(self._jvm, title)
        return ReadOnlyTable(self._jvm, title, self._opened(rejects))

    def createTable(self, identifier: Any, *description: Any) -> Any:
        """Create an empty dataset."""
        wanted = self._wanted(identifier, description)
        descriptor = DatasetDescriptor(
            schema=schema_of(wanted.schema, defaults_of(description)),
            partition_by=tuple(wanted.partition_by),
            properties=wanted.properties,
        )
        try:
            self._repository.create(identifier.name(), descriptor)
        except DatasetExistsError:
            error = self._jvm.sql.catalyst.analysis.TableAlreadyExistsException(identifier)
            raise raised_in_java(error) from None
        return self.loadTable(identifier)

    def createTableLike(self, identifier: Any, information: Any, _source: Any) -> Any:
        """Create an empty dataset."""
        return self.createTable(identifier, information)

    def stageCreate(self, identifier: Any, *description: Any) -> Any:
        """Return a new table, which becomes visible with its rows."""
        return self._staged(identifier, description, None)

    def stageCreateOrReplace(self, identifier: Any, *description: Any) -> Any:
        """Return a table that replaces another one, if there is one."""
        return self._staged(identifier, description, self._find(identifier))

    def stageReplace(self, identifier: Any, *description: Any) -> Any:
        """Return a table that replaces another one."""
        return self._staged(identifier, description, self._get(identifier))

    def dropTable(self, identifier: Any) -> bool:
        """Refuse it, unless there is no such table: it would delete the history at once."""
        self._refuse_metadata("DROP TABLE", identifier)
        if self._find(identifier) is None:
            return False
        raise InvalidInputError(
            f"DROP TABLE {self._title(identifier)} would delete all rows and the history at once.",
            hint="Write DROP TABLE … PURGE to do that. TRUNCATE TABLE deletes the rows, and keeps "
            "the history.",
        )

    def purgeTable(self, identifier: Any) -> bool:
        """Delete a dataset with its history, as `Repository.drop`."""
        self._refuse_metadata("DROP TABLE", identifier)
        if self._find(identifier) is None:
            return False
        return self._repository.drop(identifier.name(), if_missing="ignore")

    def renameTable(self, old: Any, _new: Any) -> None:
        """Refuse it."""
        raise InvalidInputError(
            f"The dataset {old.name()!r} cannot be renamed: its name is part of the keys of its "
            "files.",
            hint="CREATE TABLE … AS SELECT makes another one.",
        )

    def alterTable(self, identifier: Any, changes: Any) -> Any:
        """Change columns and properties, as `Dataset.evolve`, in one commit."""
        self._refuse_metadata("ALTER TABLE", identifier)
        dataset, changes = self._get(identifier), list(changes)
        dataset.evolve(lambda old: with_changes(self._jvm, old, changes))
        return self.loadTable(identifier)

    def loadChangelog(self, identifier: Any, *_range: Any) -> Any:
        """Refuse it."""
        raise InvalidInputError(
            f"The catalog does not take SELECT … CHANGES of {identifier.name()!r}.",
            hint=f"Call lake[{identifier.name()!r}].changes(from_version, to_version).spark(spark).",
        )

    def loadProcedure(self, identifier: Any) -> Any:
        """Return a procedure: a verb of upkeep.

        Raises:
            InvalidInputError: There is no such procedure.
        """
        namespace = list(identifier.namespace())
        self._check_namespace(identifier.namespace())

        def find_dataset(parts: Sequence[str]) -> CatalogDataset:
            return self._open([*namespace, *parts])

        return LakeProcedure(
            self._jvm, identifier.name(), self._name, self._repository, find_dataset
        )

    def listProcedures(self, namespace: Any) -> Any:
        """Return the procedures, which are the same in each namespace."""
        self._check_namespace(namespace)
        make = self._jvm.connector.catalog.Identifier
        return self._jvm.to_array(make, [make.of(namespace, name) for name in PROCEDURES])

    def _check_namespace(self, namespace: Any) -> None:
        """Raise Spark's own error if a namespace is not the default one."""
        if len(namespace):
            error = self._jvm.sql.catalyst.analysis.NoSuchNamespaceException(namespace)
            raise raised_in_java(error)

    def _open(self, parts: Sequence[str]) -> CatalogDataset:
        """Return a dataset by the parts of its name below the catalog.

        Raises:
            DatasetNotFoundError: There is none.
        """
        if len(parts) == 1:
            return self._repository.open(parts[0])
        make = self._jvm.connector.catalog.Identifier
        return self._get(make.of(self._jvm.to_texts(parts[:-1]), parts[-1]))

    def _title(self, identifier: Any) -> str:
        return ".".join((self._name, *identifier.namespace(), identifier.name()))

    def _find(self, identifier: Any) -> CatalogDataset | None:
        name = identifier.name()
        if len(identifier.namespace()) or not is_dataset_name(name):
            return None
        try:
            return self._repository.open(name)
        except (DatasetNotFoundError, InvalidNameError):
            return None

    def _find_owner(self, identifier: Any) -> CatalogDataset | None:
        """Return the dataset whose metadata table an identifier names; None if it names none."""
        namespace = list(identifier.namespace())
        if len(namespace) != 1:
            return None
        make = self._jvm.connector.catalog.Identifier
        return self._find(make.of(self._jvm.to_texts(()), namespace[0]))

    def _refuse_metadata(self, statement: str, identifier: Any) -> None:
        """Refuse a statement that would change a metadata table.

        Raises:
            InvalidInputError: The identifier names one.
        """
        if self._find_owner(identifier) is not None:
            raise metadata_error(statement, self._title(identifier))

    def _get(self, identifier: Any) -> CatalogDataset:
        """Return a dataset; without it raise Spark's own error, which is for tables to create."""
        dataset = self._find(identifier)
        if dataset is None:
            error = self._jvm.sql.catalyst.analysis.NoSuchTableException(identifier)
            raise raised_in_java(error)
        return dataset

    def _opened(self, dataset: CatalogDataset) -> TableVersion:
        """Return a version, with its objects of the JVM if they are kept."""
        source = dataset._source
        state = source.load().state
        key = (state.name, source.pinned is None, state.version, state.commit_id, state.digest)
        kept = self._versions.get(key)
        if kept is None:
            storage = self._repository._storage_options
            kept = TableVersion(self._jvm, dataset, state, storage, self._lists)
            self._versions.put(key, kept)
        return kept

    def _wanted(self, identifier: Any, description: tuple[Any, ...]) -> Wanted:
        """Return the parts of the description of a new table.

        Raises:
            InvalidInputError: A part has no counterpart in a dataset.
        """
        from pyspark.sql.types import StructType

        self._refuse_metadata("CREATE TABLE", identifier)
        if len(identifier.namespace()):
            raise _namespace_error("CREATE TABLE", identifier.namespace())
        if len(description) == 1:
            (information,) = description
            schema, transforms = information.schema(), information.partitions()
            given = information.properties()
        else:
            schema, transforms, given = description
        properties, options = _split_options(dict(given))
        StatementOptions.parse(options)  # Spark would ignore those of CREATE TABLE
        provider = properties.get("provider", "lakebed")
        if provider not in _PROVIDERS:
            raise InvalidInputError(
                f"The catalog makes no table USING {provider}.", hint="Leave USING out."
            )
        if properties.get("location"):
            raise InvalidInputError(
                f"A dataset lies in its repository, not at {properties['location']}.",
                hint="Leave LOCATION out.",
            )
        return Wanted(
            schema=schema,
            struct=StructType.fromJson(json.loads(schema.json())),
            partition_by=functions_of(transforms),
            properties={n: v for n, v in properties.items() if n not in OF_SPARK},
            write_options=options,
        )

    def _staged(
        self, identifier: Any, description: tuple[Any, ...], existing: CatalogDataset | None
    ) -> StagedLakeTable:
        return StagedLakeTable(
            self._jvm,
            self._title(identifier),
            self._repository,
            identifier.name(),
            self._wanted(identifier, description),
            None if existing is None else self._opened(existing),
        )


def _split_options(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return properties without the options of a write, which Spark lists twice, and these."""
    options = {
        name.removeprefix(_OPTION): value
        for name, value in given.items()
        if name.startswith(_OPTION)
    }
    properties = {
        name: value
        for name, value in given.items()
        if not name.startswith(_OPTION) and options.get(name) != value
    }
    return properties, options


def _namespace_error(statement: str, namespace: Iterable[str]) -> LakebedError:
    return InvalidInputError(
        f"{statement} {'.'.join(namespace)}: the catalog has no namespaces but its own.",
        hint="Open the folder as a repository, and attach it as a catalog with a name of its own.",
    )
