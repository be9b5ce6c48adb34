"""Tables of the facts of a dataset: `lake.flights.history`, `.files`, `.partitions`, `.runs`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.reading.rejects import QUARANTINED
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.names import nearest
from lakebed.spark.catalog.columns import level_type
from lakebed.spark.catalog.lake_tables import (
    CatalogDataset,
    CatalogRepository,
    LakeTable,
    TableVersion,
)
from lakebed.spark.catalog.session_jvm import Jvm, Proxied, interfaces
from lakebed.spark.catalog.streams import local_rows
from lakebed.spark.raw_files import table_frame
from lakebed.spark.types import struct_type

if TYPE_CHECKING:
    from lakebed.spark.catalog.time_travel import NamedMoment

QUARANTINE = "quarantine"

_TEXT = pa.string()
_TEXTS = pa.list_(pa.string())
_NUMBER = pa.int64()
_TIME = pa.timestamp("us", tz="UTC")

_HISTORY = pa.schema(
    {
        "version": _NUMBER,
        "committed_at": _TIME,
        "operation": _TEXT,
        "run": _TEXT,
        "batch_id": _NUMBER,
        "row_count": _NUMBER,
        "inserted_row_count": _NUMBER,
        "updated_row_count": _NUMBER,
        "deleted_row_count": _NUMBER,
        "rewritten_row_count": _NUMBER,
        "partitions": _TEXTS,
        "files_added": _TEXTS,
        "files_removed": _TEXTS,
        "commit_id": _TEXT,
    }
)
_FILES = pa.schema(
    {
        "key": _TEXT,
        "location": _TEXT,
        "partition": _TEXT,
        "batch_id": _NUMBER,
        "row_count": _NUMBER,
        "size_bytes": _NUMBER,
    }
)
_PARTITIONS = {"file_count": _NUMBER, "row_count": _NUMBER, "size_bytes": _NUMBER}
_RUNS = pa.schema(
    {
        "run": _TEXT,
        "batch_id": _NUMBER,
        "operation": _TEXT,
        "version": _NUMBER,
        "started_at": _TIME,
        "committed_at": _TIME,
        "superseded_at": _TIME,
        "row_count": _NUMBER,
        "file_count": _NUMBER,
        "live_file_count": _NUMBER,
        "size_bytes": _NUMBER,
        "is_live": pa.bool_(),
        "is_staged": pa.bool_(),
        "is_protected": pa.bool_(),
    }
)


def _schema_of_partitions(dataset: CatalogDataset) -> pa.Schema:
    types = dataset._source.load().state.layout.partition_level_types
    values = pa.struct({name: level_type(type_) for name, type_ in types.items()})
    levels = {"values": values} if types else {}
    return pa.schema({"path": _TEXT, **levels, **_PARTITIONS})


_Schema = Callable[[CatalogDataset], pa.Schema]
_Items = Callable[[CatalogDataset], Iterable[object]]
_TABLES: dict[str, tuple[_Schema, _Items]] = {
    "history": (lambda _: _HISTORY, lambda dataset: dataset.history()),
    "files": (lambda _: _FILES, lambda dataset: dataset.files()),
    "partitions": (_schema_of_partitions, lambda dataset: dataset.inspect.partitions()),
    "runs": (lambda _: _RUNS, lambda dataset: dataset.batches()),
}
METADATA_TABLES = (*_TABLES, QUARANTINE)


def metadata_table(
    jvm: Jvm, title: str, dataset: CatalogDataset, table: str, moment: NamedMoment
) -> FactsTable:
    """Return a table of the facts of a dataset.

    Args:
        jvm: The JVM of the session.
        title: Name of the table, for Spark's messages.
        dataset: The dataset.
        table: Name of the metadata table, other than `quarantine`.
        moment: The version to describe.

    Raises:
        InvalidInputError: There is no such metadata table.
        VersionNotFoundError: There is no such version.
    """
    check_metadata_name(dataset.name, table)
    schema_of, items_of = _TABLES[table]
    pinned = moment.of_dataset(dataset)
    return FactsTable(jvm, title, schema_of(pinned), lambda: items_of(pinned))


def check_metadata_name(dataset: str, table: str) -> None:
    """Check that a metadata table exists.

    Raises:
        InvalidInputError: It does not.
    """
    if table not in METADATA_TABLES:
        raise InvalidInputError(
            f"The dataset {dataset!r} has no metadata table {table!r}.",
            hint=nearest(table, METADATA_TABLES) or f"There are {', '.join(METADATA_TABLES)}.",
        )


def find_quarantine(
    repository: CatalogRepository, dataset: CatalogDataset, moment: NamedMoment
) -> CatalogDataset | None:
    """Return the dataset that holds the rejects of a dataset; None if it has no rejects.

    Raises:
        InvalidInputError: Several datasets hold rejects; or a version is named.

    Cost:
        See `InspectGroup.quarantines`.
    """
    names = dataset.inspect.quarantines()
    listed = ", ".join(names)
    if moment.version is not None:
        raise InvalidInputError(
            f"VERSION AS OF {moment.version} of {dataset.name}.{QUARANTINE}: rejects are in a "
            "dataset of their own, with other versions.",
            hint=f"Write TIMESTAMP AS OF, or select from {listed}." if names else "Leave it out.",
        )
    if len(names) > 1:
        raise InvalidInputError(
            f"{len(names)} datasets hold rejects of {dataset.name!r}: {listed}.",
            hint="Select from them by their names.",
        )
    return moment.of_dataset(repository.open(names[0])) if names else None


def no_rejects(jvm: Jvm, title: str) -> FactsTable:
    """Return the quarantine of a dataset that has no rejects."""
    return FactsTable(jvm, title, QUARANTINED, list)


def metadata_error(statement: str, title: str) -> LakebedError:
    """Return the error of a statement that would change a metadata table."""
    return InvalidInputError(
        f"{statement} {title}: the facts of a dataset cannot be changed.",
        hint="Change the dataset itself.",
    )


class FixedTable(Proxied):
    """A table that refuses each change by name."""

    Java = interfaces(
        "connector.catalog.SupportsRead",
        "connector.catalog.SupportsWrite",
        "connector.catalog.SupportsRowLevelOperations",
        "connector.catalog.SupportsDeleteV2",
    )
    _title: str

    def name(self) -> str:
        """Return the name that Spark shows."""
        return self._title

    def capabilities(self) -> Any:
        """Return also the writes, so that Spark asks for them and gets the error."""
        return self._jvm.capabilities(
            "BATCH_READ", "V1_BATCH_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC"
        )

    def newWriteBuilder(self, _info: Any) -> Any:
        """Refuse it."""
        raise metadata_error("INSERT INTO", self._title)

    def newRowLevelOperationBuilder(self, info: Any) -> Any:
        """Refuse it."""
        raise metadata_error(info.command().toString(), self._title)

    def canDeleteWhere(self, _predicates: Any) -> bool:
        """Refuse it."""
        raise metadata_error("DELETE FROM", self._title)

    def deleteWhere(self, _predicates: Any, *_options: Any) -> None:
        """Refuse it."""
        raise metadata_error("DELETE FROM", self._title)

    def truncateTable(self, *_options: Any) -> bool:
        """Refuse it."""
        raise metadata_error("TRUNCATE TABLE", self._title)


class ReadOnlyTable(FixedTable):
    """A dataset that is read under another name."""

    def __init__(self, jvm: Jvm, title: str, opened: TableVersion) -> None:
        """Keep a version.

        Args:
            jvm: The JVM of the session.
            title: Name with the catalog's, for Spark's messages.
            opened: The version.
        """
        super().__init__(jvm)
        self._title = title
        self._table = LakeTable(jvm, title, opened)
        self._key = f"ReadOnlyTable({self._table.toString()}, {title})"

    def schema(self) -> Any:
        """Return the columns."""
        return self._table.schema()

    def partitioning(self) -> Any:
        """Return the partitions."""
        return self._table.partitioning()

    def newScanBuilder(self, options: Any) -> Any:
        """Return the builder of a read."""
        return self._table.newScanBuilder(options)


class FactsTable(FixedTable):
    """A table of facts that the driver computes while Spark plans the query."""

    def __init__(
        self, jvm: Jvm, title: str, schema: pa.Schema, items: Callable[[], Iterable[object]]
    ) -> None:
        """Keep the functions.

        Args:
            jvm: The JVM of the session.
            title: Name with the catalog's, for Spark's messages.
            schema: The columns. Each is an attribute of an item.
            items: Function that returns the items.
        """
        super().__init__(jvm)
        self._title = title
        self._columns = schema
        self._items = items

    def schema(self) -> Any:
        """Return the columns."""
        return self._jvm.to_schema(struct_type(schema_from_arrow(self._columns)))

    def newScanBuilder(self, _options: Any) -> Any:
        """Return the builder of a read."""
        return FactsScanBuilder(self._jvm, self._columns, self._items)


class FactsScanBuilder(Proxied):
    """Reads the columns that a query needs."""

    Java = interfaces("connector.read.SupportsPushDownRequiredColumns")

    def __init__(self, jvm: Jvm, schema: pa.Schema, items: Callable[[], Iterable[object]]) -> None:
        """Begin with all columns."""
        super().__init__(jvm)
        self._schema = schema
        self._items = items

    def pruneColumns(self, required: Any) -> None:
        """Take the columns of the query."""
        names = [field["name"] for field in json.loads(required.json())["fields"]]
        # A frame needs a column to have rows.
        kept = names or self._schema.names[:1]
        self._schema = pa.schema([self._schema.field(name) for name in kept])

    def build(self) -> Any:
        """Return the rows."""
        items = list(self._items())
        columns = [
            pa.array([_plain(getattr(item, field.name)) for item in items], field.type)
            for field in self._schema
        ]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        return local_rows(self._jvm, table_frame(self._jvm.spark, table))


def _plain(value: Any) -> Any:
    """Return a value of Arrow: paths may lie in tuples of their own."""
    return list(value) if isinstance(value, tuple) else value
