"""Descriptors in a Hive metastore: a metadata provider whose datasets are tables."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lakebed import by
from lakebed.common.given import check_given
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidNameError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Folder
from lakebed.model.locations import refuse_credentials
from lakebed.model.publishing import TableName
from lakebed.model.spark_types import schema_from_spark
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat
from lakebed.state.metadata_provider import MetadataProvider, not_kept, read_kept
from lakebed.store import open_store
from lakebed.store.root import plain_location
from lakebed.tables.hive.metastore import FoundTable, Metastore
from lakebed.tables.hive.metastore_session import session_of
from lakebed.tables.hive.table import Columns, added_columns, columns_of, schema_differences
from lakebed.tables.hive.to_hive import DATASET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DESCRIPTOR = "lakebed.descriptor"
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")
_S3 = re.compile(r"^s3[an]://")
_PART = 3_900  # characters of a property: many metastores hold 4,000


class HiveMetadataProvider(MetadataProvider):
    """Keeps each descriptor as a table of a Hive metastore, with its columns and partition keys.

    Users of the metastore see the datasets as tables. The properties of a table hold the whole
    descriptor; the columns of a table that another tool has made serve as its descriptor. The
    tables show no rows until `Dataset.publish` to the same name brings them into step.

    Names of datasets are limited to lower-case letters, digits and `_`, and their format to Parquet,
    or to Avro without times in a session with Hive support.
    A metastore has no conditional change: if two processes save one descriptor at once, the last
    one wins.
    """

    def __init__(
        self,
        metastore: SparkSession | str | os.PathLike[str] | None,
        *,
        database: str,
        root: str | os.PathLike[str],
    ) -> None:
        """Keep descriptors in a database.

        Args:
            metastore: As for `Dataset.publish`.
            database: Database of the metastore; it is created when it is first needed.
            root: The URI of the repository, `Repository.uri`, or its path.

        Raises:
            InvalidInputError: `root` is not a location, or contains credentials.
        """
        self._spark = session_of(metastore)
        self._database = TableName.parse(f"{database}.t").database
        self._root = _uri(root)

    def __repr__(self) -> str:
        return f"<HiveMetadataProvider {self._database} of {self._root}>"

    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Save the descriptor of a dataset, in place of an earlier one.

        Raises:
            InvalidInputError: It cannot become a table, or its partitions differ from those of the
                existing table.
            AlreadyExistsError: Another tool has made a table of this name, which stays.
            StorageError: The metastore failed.
        """
        columns = _columns(name, descriptor)
        with self._table(name) as metastore:
            table = metastore.find()
            properties = {
                DATASET: f"{self._root}/{name}",
                **columns.properties,
                **_parts(descriptor),
            }
            if table is None:
                folder = Folder.HIVE.of(name, f"{self._database}.{name}")
                metastore.create(columns, plain_location(f"{self._root}/{folder}"), properties)
                return
            self._check_own(name, table)
            if schema_differences(columns, table.columns):
                new = added_columns(columns, table.columns)
                if new is not None:
                    metastore.add_columns(new)
                elif not _same_keys(columns, table) or not metastore.set_columns(columns):
                    raise self._unchangeable_error(name)
            metastore.set_properties(properties)

    def check(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Check that a descriptor can become a table, or change the existing one.

        Raises:
            InvalidInputError: As for `save`.
            AlreadyExistsError: As for `save`.
            StorageError: The metastore failed.
        """
        columns = _columns(name, descriptor)
        with self._table(name) as metastore:
            table = metastore.find()
            if table is None:
                metastore.check_creatable(columns)
                return
            self._check_own(name, table)
            if not _same_keys(columns, table):
                raise self._unchangeable_error(name)

    def _unchangeable_error(self, name: str) -> InvalidInputError:
        return InvalidInputError(
            f"The columns of table {self._database}.{name} cannot be changed in place.",
            hint="Delete the descriptor, and save it again.",
        )

    def load(self, name: str) -> DatasetDescriptor:
        """Return the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: There is no table of this name.
            CorruptMetadataError: The properties of the table do not describe a dataset.
        """
        with self._table(name) as metastore:
            table = metastore.find()
            if table is None:
                raise not_kept(name, f"Database {self._database!r}")
            text = _joined(table.properties)
            if text is None:
                return self._described(name, table)
        return read_kept(
            text,
            f"The descriptor in the properties of table {self._database}.{name}",
            "Save the descriptor again.",
        )

    def _described(self, name: str, table: FoundTable) -> DatasetDescriptor:
        """Return a descriptor after the columns and partition columns of another tool's table."""
        schema = schema_from_spark(self._spark.table(f"{self._database}.{name}").schema.jsonValue())
        keys = [by.identity(column.name) for column in table.columns.keys]
        return DatasetDescriptor(schema=schema, partition_by=keys)

    def delete(self, name: str) -> bool:
        """Delete the descriptor of a dataset, and drop its table; files stay.

        Raises:
            AlreadyExistsError: Another tool has made the table, which stays.
        """
        with self._table(name) as metastore:
            table = metastore.find()
            if table is None:
                return False
            self._check_own(name, table)
            metastore.drop()
            return True

    def list(self) -> list[str]:
        """Return the names of all tables of the database, sorted."""
        if not self._spark.catalog.databaseExists(self._database):
            return []
        tables = self._spark.catalog.listTables(self._database)
        return sorted(t.name for t in tables if t.tableType != "VIEW" and not t.isTemporary)

    @contextmanager
    def _table(self, name: str) -> Iterator[Metastore]:
        table = TableName.parse(f"{self._database}.{name}")
        if table.table != name:
            raise InvalidNameError(
                f"Dataset {name!r} cannot be a table: a metastore ignores the case of names.",
                hint=f"Call it {table.table!r}.",
            )
        metastore = Metastore(self._spark, table)
        with metastore.settings():
            yield metastore

    def _check_own(self, name: str, table: FoundTable) -> None:
        if _joined(table.properties) is None or not table.is_external:
            raise AlreadyExistsError(
                f"Table {self._database}.{name} was not made by Lakebed.",
                hint="Its descriptor can be loaded. To save, choose another name, or drop the table.",
            )


def _uri(root: str | os.PathLike[str]) -> str:
    """Return the URI of a repository as `Repository.uri` spells it.

    `Dataset.publish` compares it with the repository's own URI.
    """
    check_given("root", root, (str, os.PathLike), "Give `Repository.uri`.", or_none=False)
    text = os.fspath(root)
    if _REMOTE.match(text) is None:
        return open_store(text).uri
    refuse_credentials(text)  # it is written into each table
    return _S3.sub("s3://", text).rstrip("/")


def _columns(name: str, descriptor: DatasetDescriptor) -> Columns:
    return columns_of(first_state(name, descriptor, HeadFormat.JSON), "partitions")


def _same_keys(columns: Columns, table: FoundTable) -> bool:
    """Return whether a table has the partition columns of a dataset."""
    have = [key.identity for key in table.columns.keys]
    return have == [key.identity for key in columns.keys]


def _parts(descriptor: DatasetDescriptor) -> dict[str, str]:
    """Return a descriptor as properties that are short enough for metastores."""
    text = json.dumps(descriptor.to_document())  # in ASCII, because some metastores have no more
    parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
    numbered = {f"{_DESCRIPTOR}.{number}": part for number, part in enumerate(parts)}
    return {_DESCRIPTOR: str(len(parts)), **numbered}


def _joined(properties: Mapping[str, str]) -> str | None:
    count = properties.get(_DESCRIPTOR, "")
    if not count.isascii() or not count.isdecimal():
        return None
    parts = [properties.get(f"{_DESCRIPTOR}.{number}", "") for number in range(int(count[:4]))]
    return "".join(parts)
