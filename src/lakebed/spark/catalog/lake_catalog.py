"""A repository as a catalog of Spark: its datasets are tables, its folders are namespaces."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.common.recent import Recent
from lakebed.errors import (
    AlreadyExistsError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.spark.catalog.changelog import LakeChangelog
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
from lakebed.spark.catalog.places import NamedPlace, NamedPlaces, find_dataset
from lakebed.spark.catalog.procedures import PROCEDURES, LakeProcedure
from lakebed.spark.catalog.scans import FileLists
from lakebed.spark.catalog.session_jvm import Jvm, Proxied, interfaces, to_dict
from lakebed.spark.catalog.table_changes import OF_SPARK, with_changes
from lakebed.spark.catalog.table_constraints import with_constraint
from lakebed.spark.catalog.time_travel import NamedMoment, asks_to_delete
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
        # Without it, a wrong name of a function is an error about the catalog.
        "connector.catalog.FunctionCatalog",
    )
    _kept = "name capabilities tableStateOptionKeys defaultNamespace"

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
        self._places = NamedPlaces(repository)
        self._lists = FileLists()
        self._versions = Recent[tuple[object, ...], TableVersion](_KEPT_VERSIONS)
        self._tables = Recent[tuple[object, ...], Any](_KEPT_VERSIONS)

    def initialize(self, name: str, options: Any) -> None:
        """Do nothing: the catalog is ready when it is made."""

    def name(self) -> str:
        """Return the name of the catalog."""
        return self._name

    def capabilities(self) -> Any:
        """Return that columns may have defaults, and tables constraints."""
        kinds = self._jvm.connector.catalog.TableCatalogCapability
        wanted = ("SUPPORT_COLUMN_DEFAULT_VALUE", "SUPPORT_TABLE_CONSTRAINT")  # the last since 4.1
        return self._jvm.to_set(kind for kind in kinds.values() if str(kind.name()) in wanted)

    def tableStateOptionKeys(self) -> Any:
        """Return no option: none decides which rows a table has."""
        return self._jvm.no_texts

    def defaultNamespace(self) -> Any:
        """Return the namespace without a name."""
        return self._jvm.to_texts(())

    def listNamespaces(self, *parent: Any) -> Any:
        """Return the namespaces of the default one, or of another one."""
        above = list(parent[0]) if parent else []
        repository = self._repository_of(above)
        text = self._jvm.java.lang.String
        names = [self._jvm.to_texts([*above, name]) for name in repository.namespaces.list()]
        array = self._jvm.gateway.new_array(text, len(names), 0)
        for position, name in enumerate(names):
            self._jvm.java.lang.reflect.Array.set(array, position, name)
        return array

    def namespaceExists(self, namespace: Any) -> bool:
        """Return whether a folder is a namespace."""
        return self._places.find_repository(list(namespace)) is not None

    def loadNamespaceMetadata(self, namespace: Any) -> Any:
        """Return the properties of a namespace, and its location."""
        parts = list(namespace)
        repository = self._repository_of(parts)
        own = self._repository_of(parts[:-1]).namespaces.properties(parts[-1]) if parts else {}
        return self._jvm.to_map({**own, "location": repository.store.uri})

    def createNamespace(self, namespace: Any, metadata: Any) -> None:
        """Create an empty namespace."""
        parts, properties = list(namespace), to_dict(metadata)
        _check_no_location("CREATE NAMESPACE", parts, properties)
        try:
            self._repository_of(parts[:-1]).namespaces.create(parts[-1], properties=properties)
        except AlreadyExistsError as error:
            if not self.namespaceExists(namespace):
                raise error from None  # a dataset has the name
            exceptions = self._jvm.sql.catalyst.analysis
            raise raised_in_java(exceptions.NamespaceAlreadyExistsException(namespace)) from None

    def alterNamespace(self, namespace: Any, changes: Any) -> None:
        """Set and remove properties of a namespace."""
        parts, properties, removed = list(namespace), {}, []
        self._repository_of(parts)
        for change in changes:
            if change.getClass().getSimpleName() == "RemoveProperty":
                removed.append(str(change.property()))
            else:
                properties[str(change.property())] = str(change.value())
        _check_no_location("ALTER NAMESPACE", parts, properties)
        if not parts:
            raise InvalidInputError(
                "ALTER NAMESPACE: the repository itself has no properties.",
                hint="Give them to a namespace in it.",
            )
        above = self._repository_of(parts[:-1])
        above.namespaces.update(parts[-1], properties=properties, remove=removed)

    def dropNamespace(self, namespace: Any, cascade: bool) -> bool:  # noqa: FBT001 - Spark's signature
        """Remove an empty namespace; with CASCADE also only an empty one."""
        parts = list(namespace)
        repository = self._repository_of(parts)
        held = [*repository.list(), *repository.namespaces.list()]
        if held and not cascade:
            exceptions = self._jvm.sql.catalyst.analysis
            error = exceptions.NonEmptyNamespaceException(
                namespace, f"It holds {', '.join(held[:5])}.", self._jvm.none
            )
            raise raised_in_java(error)
        if held:
            raise InvalidInputError(
                f"DROP NAMESPACE {'.'.join(parts)} CASCADE would delete {len(held)} datasets or "
                f"namespaces with their history: {', '.join(held[:5])}.",
                hint="Write DROP TABLE … PURGE for each, and then DROP NAMESPACE.",
            )
        return self._repository_of(parts[:-1]).namespaces.drop(parts[-1])

    def listTables(self, namespace: Any) -> Any:
        """Return the names of the datasets."""
        repository = self._repository_of(list(namespace))
        make = self._jvm.connector.catalog.Identifier
        names = repository.list()
        return self._jvm.to_array(make, [make.of(namespace, name) for name in names])

    def tableExists(self, identifier: Any) -> bool:
        """Return whether there is a dataset, or a metadata table, of this name."""
        place = self._place(identifier)
        if place is not None and place.owner is not None:
            return identifier.name() in METADATA_TABLES
        return self._find(identifier) is not None

    def invalidateTable(self, _identifier: Any) -> None:
        """Do nothing: each statement reads the head again."""

    def loadTable(self, identifier: Any, *moment: Any) -> Any:
        """Return a dataset as a table, at its current version or at another one."""
        *namespace, table = json.loads(self._jvm.parts.names(identifier))
        title = ".".join((self._name, *namespace, table))
        place = self._places.find(namespace)
        if place is None or place.owner is None:
            found = None if place is None else find_dataset(place.repository, table)
            dataset = NamedMoment.of(moment).of_dataset(self._existing(found, identifier))
            is_for_delete = asks_to_delete(moment)
            return self._table(title, self._opened(dataset), is_for_delete=is_for_delete)
        if table != QUARANTINE:
            return metadata_table(self._jvm, title, place.owner, table, NamedMoment.of(moment))
        rejects = find_quarantine(place.repository, place.owner, NamedMoment.of(moment))
        if rejects is None:
            return no_rejects(self._jvm, title)
        return ReadOnlyTable(self._jvm, title, self._opened(rejects))

    def _table(self, title: str, opened: TableVersion, *, is_for_delete: bool) -> Any:
        """Return a version as a table of Java, with its answers if it is kept."""
        key = (title, opened, is_for_delete)
        kept = self._tables.get(key)
        if kept is None:
            table = LakeTable(self._jvm, title, opened, is_for_delete=is_for_delete)
            kept = table.to_java()
            self._tables.put(key, kept)
        return kept

    def createTable(self, identifier: Any, *description: Any) -> Any:
        """Create an empty dataset."""
        wanted = self._wanted(identifier, description)
        descriptor = DatasetDescriptor(
            schema=schema_of(wanted.schema, defaults_of(self._jvm, wanted.columns)),
            partition_by=tuple(wanted.partition_by),
            properties=wanted.properties,
        )
        for constraint in wanted.constraints:
            descriptor = with_constraint(self._jvm, descriptor, constraint, "CREATE TABLE")
        try:
            self._home_of(identifier).create(identifier.name(), descriptor)
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
        return self._home_of(identifier).drop(identifier.name(), if_missing="ignore")

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

    def loadChangelog(self, identifier: Any, context: Any, options: Any) -> Any:
        """Return the rows that commits changed, as `Dataset.changes`."""
        dataset = self._get(identifier)
        return LakeChangelog(self._jvm, self._title(identifier), dataset, context, to_dict(options))

    def loadProcedure(self, identifier: Any) -> Any:
        """Return a procedure: a verb of upkeep, which takes names of a namespace.

        Raises:
            InvalidInputError: There is no such procedure.
        """
        namespace = list(identifier.namespace())
        repository = self._repository_of(namespace)

        def find_named(parts: Sequence[str]) -> CatalogDataset:
            return self._open([*namespace, *parts])

        return LakeProcedure(self._jvm, identifier.name(), self._name, repository, find_named)

    def listProcedures(self, namespace: Any) -> Any:
        """Return the procedures, which are the same in each namespace."""
        self._repository_of(list(namespace))
        make = self._jvm.connector.catalog.Identifier
        return self._jvm.to_array(make, [make.of(namespace, name) for name in PROCEDURES])

    def loadFunction(self, identifier: Any) -> Any:
        """Raise Spark's own error: a repository has no functions."""
        exceptions = self._jvm.sql.catalyst.analysis
        raise raised_in_java(exceptions.NoSuchFunctionException(identifier))

    def listFunctions(self, namespace: Any) -> Any:
        """Return no function."""
        self._repository_of(list(namespace))
        return self._jvm.to_array(self._jvm.connector.catalog.Identifier, ())

    def _repository_of(self, namespace: Sequence[str]) -> CatalogRepository:
        """Return the repository of a namespace; without it raise Spark's own error."""
        repository = self._places.find_repository(namespace)
        if repository is None:
            exceptions = self._jvm.sql.catalyst.analysis
            error = exceptions.NoSuchNamespaceException(self._jvm.to_texts(namespace))
            raise raised_in_java(error)
        return repository

    def _home_of(self, identifier: Any) -> CatalogRepository:
        """Return the repository of a dataset that a statement creates or drops."""
        return self._repository_of(list(identifier.namespace()))

    def _place(self, identifier: Any) -> NamedPlace | None:
        return self._places.find(list(identifier.namespace()))

    def _open(self, parts: Sequence[str]) -> CatalogDataset:
        """Return a dataset by the parts of its name below the catalog.

        Raises:
            DatasetNotFoundError: There is none.
        """
        place = self._places.find(parts[:-1])
        if place is None or place.owner is not None:
            name = ".".join(parts)
            raise DatasetNotFoundError(
                f"Dataset {name!r} not found in catalog {self._name}.",
                hint=f"SHOW TABLES IN {self._name} lists the datasets.",
            )
        return place.repository.open(parts[-1])

    def _title(self, identifier: Any) -> str:
        return ".".join((self._name, *identifier.namespace(), identifier.name()))

    def _find(self, identifier: Any) -> CatalogDataset | None:
        """Return the dataset of an identifier; None if there is none."""
        place = self._place(identifier)
        if place is None or place.owner is not None:
            return None
        return find_dataset(place.repository, identifier.name())

    def _refuse_metadata(self, statement: str, identifier: Any) -> None:
        """Refuse a statement that would change a metadata table.

        Raises:
            InvalidInputError: The identifier names one.
        """
        place = self._place(identifier)
        if place is not None and place.owner is not None:
            raise metadata_error(statement, self._title(identifier))

    def _get(self, identifier: Any) -> CatalogDataset:
        """Return a dataset; without it raise Spark's own error, which is for tables to create."""
        return self._existing(self._find(identifier), identifier)

    def _existing(self, dataset: CatalogDataset | None, identifier: Any) -> CatalogDataset:
        if dataset is None:
            error = self._jvm.sql.catalyst.analysis.NoSuchTableException(identifier)
            raise raised_in_java(error)
        return dataset

    def _opened(self, dataset: CatalogDataset) -> TableVersion:
        """Return a version, with its objects of the JVM if they are kept."""
        source = dataset._source
        state = source.load().state
        key = (
            source.store.uri,
            state.name,
            source.pinned is None,
            state.version,
            state.commit_id,
            state.digest,
        )
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
        if len(description) == 1:
            (information,) = description
            columns, transforms = information.columns(), information.partitions()
            given, constraints = information.properties(), list(information.constraints())
        else:  # Spark 4.0 has no TableInfo, and no constraints
            columns, transforms, given = description
            constraints = []
        schema = self._jvm.connector.catalog.CatalogV2Util.v2ColumnsToStructType(columns)
        properties, options = _split_options(to_dict(given))
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
            columns=tuple(columns),
            struct=StructType.fromJson(json.loads(schema.json())),
            partition_by=functions_of(transforms),
            properties={n: v for n, v in properties.items() if n not in OF_SPARK},
            write_options=options,
            constraints=constraints,
        )

    def _staged(
        self, identifier: Any, description: tuple[Any, ...], existing: CatalogDataset | None
    ) -> StagedLakeTable:
        wanted = self._wanted(identifier, description)
        if wanted.constraints:
            raise InvalidInputError(
                f"REPLACE TABLE {self._title(identifier)}: the statement takes no constraints.",
                hint="Write ALTER TABLE … ADD CONSTRAINT after it. Constraints of the table stay.",
            )
        return StagedLakeTable(
            self._jvm,
            self._title(identifier),
            self._home_of(identifier),
            identifier.name(),
            wanted,
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


def _check_no_location(
    statement: str, namespace: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Check that a namespace gets no location.

    Raises:
        InvalidInputError: It does.
    """
    if "location" in properties:
        raise InvalidInputError(
            f"{statement} {'.'.join(namespace)}: a namespace is a folder of its repository, and has "
            "no other location.",
            hint="Leave LOCATION out.",
        )
