"""Access to a metastore through a Spark session, with few calls, all of them counted.

SQL does everything, so that Spark Connect works too. In a classic session, the catalog moves all
locations in one call and lists them in one: see `lakebed.tables.hive.jvm`.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.errors import InvalidInputError, LakebedError, StorageError
from lakebed.model.publishing import TableName
from lakebed.spark.session import settings_for
from lakebed.spark.spark_errors import spark_errors
from lakebed.store.root import plain_location
from lakebed.tables.hive.jvm import JvmCatalog
from lakebed.tables.hive.table import Column, Columns, Spec, pairs, quoted

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_log = logging.getLogger(__name__)

_PARTITIONS_A_STATEMENT = 1000
_THREADS = 4  # more would only wait for the metastore
# Under these settings statements are taken literally.
_SQL_SETTINGS = {
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "false",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTable:
    """An existing table.

    Attributes:
        columns: Columns of the table.
        location: Location of the table; if it is unpartitioned, the location of its data.
        properties: Properties of the table, the user's and ours.
        is_external: True if dropping the table or a partition keeps the files.
    """

    columns: Columns
    location: str
    properties: Mapping[str, str]
    is_external: bool


class Metastore:
    """One table of a metastore.

    Attributes:
        calls: Number of statements and catalog calls so far.
        deadline: No call is made after this time, because late calls could do harm.
    """

    def __init__(self, spark: SparkSession, table: TableName) -> None:
        self._spark = spark
        self._table = table
        self._name = f"`{table.database}`.`{table.table}`"
        self._jvm = JvmCatalog.find(spark, table)
        self.calls = 0
        self.deadline: dt.datetime | None = None

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Set the session's settings for statements, and restore them at the end."""
        with settings_for(self._spark, _SQL_SETTINGS):
            yield

    def call(self, what: str, run: Callable[[], _T]) -> _T:
        """Make one call; all calls go through here.

        Raises:
            StorageError: The metastore refused the call or did not answer, or the deadline has
                passed.
        """
        if self.deadline is not None and dt.datetime.now(dt.UTC) >= self.deadline:
            raise StorageError(
                f"Table {str(self._table)!r} was not brought up to date by "
                f"{self.deadline.isoformat(timespec='seconds')}.",
                hint="Changes made so far stay; publish again to go on.",
                retryable=True,
            )
        self.calls += 1
        _log.debug("metastore call table=%s what=%s", self._table, what[:200])
        try:
            return run()
        except LakebedError:
            raise
        except spark_errors() as exc:
            raise StorageError(
                f"The metastore failed on table {str(self._table)!r} ({what[:60]}…): "
                f"{str(exc).splitlines()[0][:300]}",
                hint="Changes made so far stay; publish again to go on.",
                retryable=True,
            ) from exc

    def _sql(self, text: str) -> list[Row]:
        return self.call(text, lambda: self._spark.sql(text).collect())

    def _sql_each(self, texts: Sequence[str]) -> list[list[Row]]:
        """Run statements in a few threads; the first error is raised after all have ended."""
        if len(texts) < 2:
            return [self._sql(text) for text in texts]
        with ThreadPoolExecutor(_THREADS) as pool:
            futures = [pool.submit(self._sql, text) for text in texts]
        return [future.result() for future in futures]

    def find(self) -> FoundTable | None:
        """Return the table; None if it does not exist.

        Raises:
            InvalidInputError: It is a view.
        """
        name = str(self._table)
        catalog = self._spark.catalog
        if not self.call("tableExists", lambda: catalog.tableExists(name)):
            return None
        facts = _facts(self._sql(f"DESCRIBE TABLE EXTENDED {self._name}"))
        if "Location" not in facts:
            raise InvalidInputError(
                f"Table {name!r} is a {facts.get('Type', 'table')} without location.",
                hint="Choose another name.",
            )
        catalog_columns = self.call("listColumns", lambda: catalog.listColumns(name))
        columns = [
            (
                Column(name=column.name, type=column.dataType, doc=column.description or ""),
                column.isPartition,
            )
            for column in catalog_columns
        ]
        rows = self._sql(f"SHOW TBLPROPERTIES {self._name}")
        return FoundTable(
            columns=Columns(
                data=tuple(column for column, is_key in columns if not is_key),
                keys=tuple(column for column, is_key in columns if is_key),
            ),
            location=plain_location(facts["Location"]),
            properties={row[0]: row[1] for row in rows},
            is_external=facts.get("Type") == "EXTERNAL",
        )

    def create(self, columns: Columns, location: str, properties: Mapping[str, str]) -> None:
        """Create the table, and its database if it is missing.

        Raises:
            InvalidInputError: It is a table of avro, and the session has no Hive support.
        """
        self.check_creatable(columns)
        is_avro = columns.format == "avro"
        if not self.call(
            "databaseExists", lambda: self._spark.catalog.databaseExists(self._table.database)
        ):
            self._sql(f"CREATE DATABASE IF NOT EXISTS `{self._table.database}`")
        # Spark's reader of Avro is another package. Hive's own reader is there, and its tables
        # declare the types of the keys beside them.
        listed = ", ".join(map(_ddl, columns.data if is_avro else (*columns.data, *columns.keys)))
        keys = ", ".join(_ddl(key) if is_avro else f"`{key.name}`" for key in columns.keys)
        self._sql(
            ("CREATE EXTERNAL TABLE" if is_avro else "CREATE TABLE")
            + f" {self._name} ({listed})"
            + ("" if is_avro else " USING parquet")
            + (f" PARTITIONED BY ({keys})" if keys else "")
            + (" STORED AS AVRO" if is_avro else "")
            + f" LOCATION {quoted(location)} TBLPROPERTIES ({pairs({**properties, **columns.properties})})"
        )

    def check_creatable(self, columns: Columns) -> None:
        """Check that the session can create a table of these columns.

        Raises:
            InvalidInputError: It is a table of avro, and the session has no Hive support.
        """
        is_hive = self._spark.conf.get("spark.sql.catalogImplementation") == "hive"
        if columns.format == "avro" and not is_hive:
            raise InvalidInputError(
                f"Table {str(self._table)!r} of avro needs Hive's reader, which this session lacks.",
                hint="Build the session with enableHiveSupport(), or name the metastore by its "
                "address or directory.",
            )

    def drop(self) -> None:
        """Drop the table; its files stay."""
        self._sql(f"DROP TABLE IF EXISTS {self._name}")

    def add_columns(self, columns: Iterable[Column]) -> None:
        """Add columns."""
        listed = ", ".join(_ddl(column) for column in columns)
        self._sql(f"ALTER TABLE {self._name} ADD COLUMNS ({listed})")

    def set_columns(self, columns: Columns) -> bool:
        """Replace the data columns; return False if the session cannot do so."""
        jvm = self._jvm
        if jvm is None:
            return False
        self.call("alterTableDataSchema", lambda: jvm.set_columns(columns))
        return True

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set some properties, and keep all others."""
        self._sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs(properties)})")

    def set_location(self, location: str) -> None:
        """Set the location of the table itself."""
        self._sql(f"ALTER TABLE {self._name} SET LOCATION {quoted(location)}")

    def partitions(self) -> set[Spec]:
        """Return the partitions of the table."""
        return {Spec.parse(row[0]) for row in self._sql(f"SHOW PARTITIONS {self._name}")}

    def locations(self, keys: Sequence[Column]) -> dict[Spec, str]:
        """Return all partitions with their locations.

        Cost:
            One call in a classic session; else one for each partition.
        """
        jvm = self._jvm
        if jvm is not None:
            uris = self.call("listPartitions", jvm.locations)
            return {Spec.parse(path): plain_location(where) for path, where in uris.items()}
        specs = sorted(self.partitions(), key=str)
        descriptions = self._sql_each(
            [f"DESCRIBE TABLE EXTENDED {self._name} {spec.sql(keys)}" for spec in specs]
        )
        return {
            spec: plain_location(_facts(rows)["Location"])
            for spec, rows in zip(specs, descriptions, strict=True)
        }

    def add(
        self, locations: Mapping[Spec, str], keys: Sequence[Column], progress: Callable[..., None]
    ) -> None:
        """Add partitions, and report progress.

        Cost:
            One call for each thousand.

        Raises:
            StorageError: A partition exists already, or the metastore failed.
        """
        for chunk in _batched(locations.items(), _PARTITIONS_A_STATEMENT):
            listed = " ".join(
                f"{spec.sql(keys)} LOCATION {quoted(location)}" for spec, location in chunk
            )
            self._sql(f"ALTER TABLE {self._name} ADD {listed}")
            progress(*(str(spec) for spec, _ in chunk))

    def point(
        self, locations: Mapping[Spec, str], keys: Sequence[Column], progress: Callable[..., None]
    ) -> None:
        """Point existing partitions to other locations, and report progress.

        Each partition moves in one step.

        Cost:
            One call for each thousand in a classic session; else one for each partition.
        """
        jvm = self._jvm
        for chunk in _batched(locations.items(), _PARTITIONS_A_STATEMENT):
            # For a single partition, building the arguments of the catalog takes longer than SQL.
            if jvm is not None and len(locations) > 1:
                moved = {spec.path: location for spec, location in chunk}
                self.call("alterPartitions", lambda moved=moved: jvm.point(moved))  # type: ignore[misc]  # a lambda of its own value
            else:
                self._sql_each(
                    [
                        f"ALTER TABLE {self._name} {spec.sql(keys)} SET LOCATION {quoted(location)}"
                        for spec, location in chunk
                    ]
                )
            progress(*(str(spec) for spec, _ in chunk))

    def remove(
        self, specs: Iterable[Spec], keys: Sequence[Column], progress: Callable[..., None]
    ) -> None:
        """Drop partitions, and report progress; their files stay.

        Cost:
            One call for each thousand.
        """
        for chunk in _batched(specs, _PARTITIONS_A_STATEMENT):
            listed = ", ".join(spec.sql(keys) for spec in chunk)
            self._sql(f"ALTER TABLE {self._name} DROP IF EXISTS {listed}")
            progress(*map(str, chunk))


def _facts(rows: Iterable[Any]) -> dict[str, str]:
    """Return the details that DESCRIBE lists after the columns; the first of each name counts."""
    facts: dict[str, str] = {}
    is_detail = False
    for name, value, _ in rows:
        is_detail = is_detail or str(name).startswith("# Detailed")
        if is_detail and value:
            facts.setdefault(name, value)
    return facts


def _ddl(column: Column) -> str:
    comment = f" COMMENT {quoted(column.doc)}" if column.doc else ""
    return f"`{column.name}` {column.type}{comment}"


def _batched(items: Iterable[_T], size: int) -> Iterator[tuple[_T, ...]]:
    waiting = iter(items)  # itertools.batched needs Python 3.12
    return iter(lambda: tuple(islice(waiting, size)), ())
