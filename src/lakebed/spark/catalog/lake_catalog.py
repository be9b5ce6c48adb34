"""A repository as a catalog of Spark: its datasets are the tables of the default namespace."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Mapping
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
        """Return whether there is a dataset of this name."""
        return self._find(identifier) is not None

    def invalidateTable(self, _identifier: Any) -> None:
        """Do nothing: each statement reads the head again."""

    def loadTable(self, identifier: Any, *moment: Any) -> Any:
        """Return a dataset as a table, at its current version or at another one."""
        dataset = self._get(identifier)
        for part in moment:
            dataset = _at(dataset, part)
        return LakeTable(self._jvm, self._title(identifier), self._opened(dataset))

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
        if self._find(identifier) is None:
            return False
        raise InvalidInputError(
            f"DROP TABLE {self._title(identifier)} would delete all rows and the history at once.",
            hint="Write DROP TABLE … PURGE to do that. TRUNCATE TABLE deletes the rows, and keeps "
            "the history.",
        )

    def purgeTable(self, identifier: Any) -> bool:
        """Delete a dataset with its history, as `Repository.drop`."""
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
        """Refuse it."""
        name = identifier.name()
        raise InvalidInputError(
            f"The catalog has no procedure {name!r}.",
            hint="Call the verb of the dataset, such as lake['flights'].compact() or .rollback(…).",
        )

    def listProcedures(self, namespace: Any) -> Any:
        """Return no procedures."""
        self._check_namespace(namespace)
        return self._jvm.to_array(self._jvm.connector.catalog.Identifier, ())

    def _check_namespace(self, namespace: Any) -> None:
        """Raise Spark's own error if a namespace is not the default one."""
        if len(namespace):
            error = self._jvm.sql.catalyst.analysis.NoSuchNamespaceException(namespace)
            raise raised_in_java(error)

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


def _at(dataset: CatalogDataset, moment: Any) -> CatalogDataset:
    """Return a dataset at the moment that Spark names; the dataset itself if it names none."""
    if isinstance(moment, int):
        # Micros since 1970: a float would lose the last of them.
        return dataset.at(time=_EPOCH + dt.timedelta(microseconds=moment))
    if isinstance(moment, str):
        try:
            return dataset.at(version=int(moment))
        except ValueError:
            raise InvalidInputError(
                f"VERSION AS OF {moment!r}: a version is a whole number.",
                hint="lake['flights'].history() lists them.",
            ) from None
    if moment.getClass().getSimpleName() != "TableContext":
        return dataset  # privileges or options
    named = moment.timeTravel().orElse(None)
    if named is None:
        return dataset
    if named.getClass().getSimpleName().endswith("AsOfVersion"):
        return _at(dataset, str(named.version()))
    return _at(dataset, int(named.micros()))


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
