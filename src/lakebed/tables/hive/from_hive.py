"""Tables of a metastore to adopt: the directories of their partitions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakebed.errors import NotFoundError
from lakebed.model.publishing import TableName
from lakebed.model.spark_types import schema_from_spark
from lakebed.store.base import Store
from lakebed.tables.hive.metastore import Metastore
from lakebed.tables.hive.metastore_session import session_of
from lakebed.work.adoption import TablePartitions, key_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_table(source: str | os.PathLike[str] | None) -> bool:
    """Return whether a source to adopt is the name of a table, not of a directory."""
    return isinstance(source, str) and re.fullmatch(r"\w+(\.\w+)?", source) is not None


def partitions_of(
    store: Store,
    name: str,
    source: str,
    metastore: SparkSession | str | os.PathLike[str] | None,
) -> TablePartitions:
    """Return the directory of each partition of a table, with its values.

    Args:
        store: The store of the repository.
        name: Name of the dataset and of its directory.
        source: Name of the table, as `database.table`.
        metastore: As for `Dataset.publish`.

    Raises:
        NotFoundError: There is no such table.
        InvalidInputError: A partition lies outside of the directory.
    """
    table = TableName.parse(source)
    spark = session_of(metastore)
    reached = Metastore(spark, table)
    with reached.settings():
        found = reached.find()
        if found is None:
            raise NotFoundError(
                f"There is no table {str(table)!r}.", hint="SHOW TABLES lists the tables."
            )
        schema = schema_from_spark(spark.table(str(table)).schema.jsonValue())
        keys = {column.name: schema.get(column.name).type for column in found.columns.keys}
        if not keys:
            return TablePartitions([(key_of(store, name, found.location), None)], keys, schema)
        locations = reached.locations(found.columns.keys)
    partitions: list[tuple[str, Mapping[str, str | None] | None]] = []
    for spec, location in locations.items():
        texts = spec.values()
        values = {key: texts[key.lower()] for key in keys}
        partitions.append((key_of(store, name, location), values))
    return TablePartitions(partitions, keys, schema)
