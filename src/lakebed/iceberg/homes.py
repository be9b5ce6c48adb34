"""Where the metadata of an Iceberg table is kept: in a catalog, or in files beside the data.

Both replace one version of the metadata by the next under a condition, so that of two publishers
one is first.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    NotInstalledError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.io import FileIO
from pyiceberg.manifest import read_manifest_list
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    MissingDependencyError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from lakebed.iceberg.store_io import StoreIO
from lakebed.iceberg.unnamed import delete_unnamed
from lakebed.model.layout import Folder
from lakebed.store.base import Store

HINT = "version-hint.text"
_METADATA = re.compile(r"v([0-9]{1,18})\.metadata\.json")


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table, as it is now.

    Attributes:
        metadata: Of the table.
        place: What leads to it again.
        handle: Of the catalog.
    """

    metadata: TableMetadata
    place: str
    handle: Any = None


class TableHome(Protocol):
    """Where the metadata of one table is kept."""

    @property
    def table(self) -> str:
        """Where readers find the table."""

    @property
    def folder(self) -> str | None:
        """Where its metadata lies, if the table need not be asked."""

    @property
    def io(self) -> FileIO:
        """Where its metadata is read and written."""

    def find(self, place: str) -> IcebergTable | None:
        """Return the table; None if it is not there.

        Args:
            place: Of the table when it was seen last; empty if it was not.
        """

    def create(
        self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]
    ) -> IcebergTable | None:
        """Make the table, without files; None if somebody else has."""

    def commit(
        self,
        table: IcebergTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> IcebergTable | None:
        """Make the next version of a table; None if somebody else has."""

    def tidy(self, before: TableMetadata, after: TableMetadata) -> None:
        """Delete what one version of the metadata has named, and the next one does not.

        Where a cleanup of the dataset finds it, it is left to that.
        """

    def drop(self) -> None:
        """Take the table away; data files stay."""

    def close(self) -> None:
        """Let go of connections."""


class FilesBeside:
    """Metadata files in the dataset's own directory, numbered, as Hadoop tables have them.

    A table that is there says itself how its readers spell the repository.
    """

    def __init__(self, store: Store, dataset: str, root: str) -> None:
        self._store = store
        self._home = Folder.ICEBERG.of(dataset)
        self._keys = Folder.ICEBERG.of(dataset, "metadata")
        self._root = root

    @property
    def table(self) -> str:
        """See `TableHome`."""
        return f"{self._root}/{self._home}"

    @property
    def folder(self) -> str | None:
        """See `TableHome`."""
        return f"{self._root}/{self._keys}"

    @property
    def io(self) -> FileIO:
        """See `TableHome`."""
        return StoreIO(self._store, self._root)

    def find(self, place: str) -> IcebergTable | None:
        """See `TableHome`."""
        number = int(place) if place.isascii() and place.isdecimal() else None
        if number is None or not self._exists(number):
            number = max(self._numbers(), default=None)
        if number is None:
            return None
        while self._exists(number + 1):
            number += 1
        return IcebergTable(self._read(number), str(number))

    def _key(self, number: int) -> str:
        return f"{self._keys}/v{number}.metadata.json"

    def _exists(self, number: int) -> bool:
        try:
            self._store.size(self._key(number))
        except ObjectNotFoundError:
            return False
        return True

    def _numbers(self) -> list[int]:
        names = (info.key.rpartition("/")[2] for info in self._store.list(f"{self._keys}/"))
        return [int(match[1]) for match in map(_METADATA.fullmatch, names) if match]

    def _read(self, number: int) -> TableMetadata:
        key = self._key(number)
        try:
            metadata = TableMetadataUtil.parse_raw(bytes(self._store.get(key).data).decode())
            root = metadata.location.removesuffix(f"/{self._home}")
            if root == metadata.location:
                message = f"it says that it lies in {metadata.location!r}"
                raise ValueError(message)
        except ValueError as exc:
            raise CorruptMetadataError(
                f"{key!r} cannot be read as metadata of an Iceberg table: {exc}.",
                hint="Unpublish it and publish it again; the dataset itself is not affected.",
            ) from exc
        self._root = root
        return metadata

    def create(
        self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]
    ) -> IcebergTable | None:
        """See `TableHome`."""
        metadata = new_table_metadata(
            schema=schema,
            partition_spec=spec,
            sort_order=UNSORTED_SORT_ORDER,
            location=self.table,
            properties=dict(properties),
            table_uuid=uuid.uuid4(),
        )
        # It becomes a table with its first snapshot, by the commit that brings it.
        return IcebergTable(metadata, "0")

    def commit(
        self,
        table: IcebergTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> IcebergTable | None:
        """See `TableHome`."""
        number = int(table.place)
        for requirement in requirements:
            requirement.validate(table.metadata)
        before = f"{self.folder}/v{number}.metadata.json" if number else None
        metadata = update_table_metadata(table.metadata, updates, metadata_location=before)
        data = metadata.model_dump_json().encode()
        try:
            self._store.create(self._key(number + 1), data)
        except ObjectExistsError:
            # What repeats a request on its way is refused, though the first one has landed.
            if not self._holds(number + 1, data):
                return None
        self._point_to(number + 1)
        return IcebergTable(metadata, str(number + 1))

    def _holds(self, number: int, data: bytes) -> bool:
        """Whether a version is of these bytes, which no two publishers write."""
        try:
            return bytes(self._store.get(self._key(number)).data) == data
        except ObjectNotFoundError:
            return False

    def _point_to(self, number: int) -> None:
        """Tell readers of a version; if there is a later one by then, of that."""
        self._store.put(f"{self._keys}/{HINT}", str(number).encode())
        if self._exists(number + 1):
            self._point_to(number + 1)

    def tidy(self, before: TableMetadata, after: TableMetadata) -> None:
        """See `TableHome`."""

    def drop(self) -> None:
        """See `TableHome`."""
        keys = [info.key for info in self._store.list(f"{self._keys}/")]
        # What readers begin with goes first, so that they find a whole table or none.
        keys.sort(key=lambda key: (not key.endswith(HINT), not key.endswith(".json"), key))
        self._store.delete(keys)

    def close(self) -> None:
        """See `TableHome`."""


class InCatalog:
    """A table of a catalog that pyiceberg knows by its configuration."""

    def __init__(self, catalog: str, table: str) -> None:
        if not table or "." not in table:
            raise InvalidNameError(
                f"Illegal table name {table!r}.",
                hint="Write namespace.table, as the catalog has it.",
            )
        self._name = catalog
        self._identifier = table
        with _errors_of(catalog):
            try:
                self._catalog: Catalog = load_catalog(catalog)
            except ValueError as exc:
                raise InvalidInputError(
                    f"pyiceberg knows no catalog {catalog!r}: {exc}",
                    hint="Describe it in ~/.pyiceberg.yaml, or by PYICEBERG_CATALOG__… variables.",
                ) from exc
        self._io: FileIO | None = None

    @property
    def table(self) -> str:
        """See `TableHome`."""
        return f"{self._name}.{self._identifier}"

    @property
    def folder(self) -> str | None:
        """See `TableHome`."""
        return None

    @property
    def io(self) -> FileIO:
        """See `TableHome`."""
        assert self._io is not None  # the table was found or made
        return self._io

    def find(self, place: str) -> IcebergTable | None:  # noqa: ARG002 - the catalog knows
        """See `TableHome`."""
        with _errors_of(self._name):
            try:
                table = self._catalog.load_table(self._identifier)
            except NoSuchTableError:
                return None
        return self._as_known(table)

    def _as_known(self, table: Table) -> IcebergTable:
        self._io = table.io
        return IcebergTable(table.metadata, table.metadata_location, table)

    def create(
        self, schema: Schema, spec: PartitionSpec, properties: dict[str, str]
    ) -> IcebergTable | None:
        """See `TableHome`."""
        with _errors_of(self._name):
            namespace = self._identifier.rpartition(".")[0]
            try:
                if not self._catalog.namespace_exists(namespace):
                    self._catalog.create_namespace(namespace)
            except NamespaceAlreadyExistsError:
                pass
            try:
                table = self._catalog.create_table(
                    self._identifier, schema, partition_spec=spec, properties=properties
                )
            except TableAlreadyExistsError:
                return None
        return self._as_known(table)

    def commit(
        self,
        table: IcebergTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> IcebergTable | None:
        """See `TableHome`."""
        with _errors_of(self._name):
            try:
                response = self._catalog.commit_table(table.handle, requirements, updates)
            except CommitFailedException:
                return self._if_landed(updates)
        return IcebergTable(response.metadata, response.metadata_location, table.handle)

    def _if_landed(self, updates: tuple[TableUpdate, ...]) -> IcebergTable | None:
        """Return the table if it has the snapshot of these updates all the same.

        Clients of catalogs repeat a request whose answer was lost, and are refused then.
        """
        table = self.find("")
        added = [one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)]
        if table is None or not added or not all(map(table.metadata.snapshot_by_id, added)):
            return None
        return table

    def tidy(self, before: TableMetadata, after: TableMetadata) -> None:
        """See `TableHome`."""
        delete_unnamed(self.io, before, after)

    def drop(self) -> None:
        """See `TableHome`."""
        table = self.find("")
        with _errors_of(self._name):
            self._catalog.drop_table(self._identifier)
        if table is not None:
            delete_unnamed(self.io, table.metadata, None, also=(table.place,))

    def close(self) -> None:
        """See `TableHome`."""
        with _errors_of(self._name):
            self._catalog.close()


@contextmanager
def _errors_of(catalog: str) -> Iterator[None]:
    """Say what a catalog has raised as one of our errors; its own are of many kinds."""
    try:
        yield
    except (LakebedError, CommitFailedException):
        raise
    except NotInstalledError as exc:
        raise MissingDependencyError(
            f"Catalog {catalog!r} needs a package that is not installed.",
            hint=f"{exc}.",
            extra="iceberg",
        ) from exc
    except (RESTError, OSError) as exc:
        raise StorageError(
            f"Catalog {catalog!r} failed: {exc}",
            hint="Publish again; if it never answers, look at its address in pyiceberg's "
            "configuration.",
            retryable=True,
        ) from exc
    except Exception as exc:
        raise StorageError(
            f"Catalog {catalog!r} failed: {exc}",
            hint="Look at pyiceberg's configuration of it, then publish again.",
        ) from exc


def named_lists(data: bytes) -> list[str]:
    """Return where the lists of manifests are that a metadata file names."""
    document = msgspec.json.decode(data)
    return [snapshot["manifest-list"] for snapshot in document.get("snapshots", ())]


def named_manifests(store: Store, key: str) -> list[str]:
    """Return where the manifests are that a list names."""
    listed = read_manifest_list(StoreIO(store, "").new_input(f"/{key}"))
    return [manifest.manifest_path for manifest in listed]
