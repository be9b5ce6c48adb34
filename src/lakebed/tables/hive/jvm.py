"""Fast access to a metastore: the catalog of a classic session, through its JVM.

The interface is internal to Spark, so it is used only if all of it is found. SQL can do the same,
with a statement for each partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from lakebed.model.publishing import TableName
from lakebed.spark.spark_errors import spark_errors
from lakebed.tables.hive.table import Columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JvmCatalog:
    """One table in the catalog of a classic session."""

    def __init__(self, spark: Any, table: TableName) -> None:
        """Use `find` instead."""
        session, jvm = spark._jsparkSession, spark._jvm
        self._database, self._table = table.database, table.table
        self._catalog = session.sharedState().externalCatalog()
        catalyst = jvm.org.apache.spark.sql.catalyst.catalog
        self._partition = catalyst.CatalogTablePartition
        self._uris = catalyst.CatalogUtils
        self._paths = jvm.org.apache.spark.sql.execution.datasources.PartitioningUtils
        self._types = jvm.org.apache.spark.sql.types.DataType
        self._option, self._list = jvm.scala.Option, jvm.java.util.ArrayList
        self._as_seq = jvm.PythonUtils.toSeq
        # Defaults for the members of a partition other than its values and its storage.
        self._defaults = [
            getattr(self._partition, f"apply$default${number}")() for number in (3, 4, 5, 6)
        ]

    @classmethod
    def find(cls, spark: SparkSession, table: TableName) -> Self | None:
        """Return the catalog; None if the session has none, or one with another interface."""
        try:
            catalog = cls(spark, table)
            catalog._uris.stringToURI("file:///")
            catalog._paths.parsePathFragment("key=value")
        except spark_errors(AttributeError, TypeError):
            return None
        return catalog

    def locations(self) -> dict[str, str]:
        """Return the location of every partition, by its path as in `SHOW PARTITIONS`."""
        keys = self._catalog.getTable(self._database, self._table).partitionSchema()
        partitions = self._catalog.listPartitions(
            self._database, self._table, self._option.apply(None)
        ).iterator()
        uris = {}
        while partitions.hasNext():
            partition = partitions.next()
            path = self._paths.getPathFragment(partition.spec(), keys)
            uris[path] = self._uris.URIToString(partition.location())
        return uris

    def point(self, locations: Mapping[str, str]) -> None:
        """Move partitions, all in one call of the metastore."""
        storage = self._catalog.getTable(self._database, self._table).storage()
        storage_fields = [
            storage.productElement(number) for number in range(1, storage.productArity())
        ]
        moved = self._list()
        for path, location in locations.items():
            uri = self._option.apply(self._uris.stringToURI(location))
            moved.add(
                self._partition(
                    self._paths.parsePathFragment(path),
                    storage.copy(uri, *storage_fields),
                    *self._defaults,
                )
            )
        self._catalog.alterPartitions(self._database, self._table, self._as_seq(moved))

    def set_columns(self, columns: Columns) -> None:
        """Replace the data columns."""
        listed = ", ".join(f"`{column.name}` {column.type}" for column in columns.data)
        schema = self._types.fromDDL(listed)
        self._catalog.alterTableDataSchema(self._database, self._table, schema)
