"""Homes of the metadata of an Iceberg table: a catalog, or files beside the data.

Both replace one version of the metadata with the next under a condition, so that only one of two
concurrent publishers succeeds.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
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
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)

from lakebed.common.decoding import from_json
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
from lakebed.model.layout import Folder
from lakebed.state.published import Note, number_at
from lakebed.store.base import Store
from lakebed.tables import pointers
from lakebed.tables.giving_up import give_up
from lakebed.tables.iceberg.iceberg_schema import BEGINS_AT
from lakebed.tables.iceberg.library_errors import reading
from lakebed.tables.iceberg.metadata_names import (
    hint_key,
    metadata_folder,
    metadata_name,
    number_of,
)
from lakebed.tables.iceberg.store_io import StoreIO

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """The present version of a table.

    Attributes:
        metadata: Metadata of the table.
        place: Number or location of the metadata file.
        handle: The catalog's own object for the table.
        is_new: True if the table is not written yet.
    """

    metadata: TableMetadata
    place: str
    handle: Any = None
    is_new: bool = False


class TableHome(Protocol):
    """The home of one table's metadata."""

    @property
    def table(self) -> str:
        """The location or the name under which readers find the table."""

    @property
    def folder(self) -> str | None:
        """The folder of the metadata; None if only the table itself names it."""

    @property
    def io(self) -> FileIO:
        """Reads and writes the metadata."""

    def find(self, place: str) -> IcebergTable | None:
        """Return the table; None if it does not exist.

        Args:
            place: Last known place of the table; empty if unknown or not trusted.
        """

    def last_number(self) -> int:
        """Return the highest number of the metadata; 0 if there is none.

        Raises:
            CorruptMetadataError: The metadata has no numbers, so that a new table cannot begin above it.
        """

    def trouble(self, table: IcebergTable) -> str:
        """Return why readers do not find the present version of the table; empty if they do."""

    def lead(self, table: IcebergTable) -> None:
        """Lead readers to the present version of the table."""

    def create(
        self, schema: Schema, spec: PartitionSpec, properties: dict[str, str], after: int
    ) -> IcebergTable | None:
        """Create the table without files; return None if another writer has created it.

        Args:
            schema: Schema of the table.
            spec: Partition spec of the table.
            properties: Properties of the table.
            after: Number of the metadata that it begins above.
        """

    def commit(
        self,
        table: IcebergTable,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> IcebergTable | None:
        """Make the next version of a table; return None if another writer has made it."""

    def tidy(self, before: TableMetadata, after: TableMetadata) -> None:
        """Delete files that one version of the metadata names and the next one does not.

        Files that a cleanup of the dataset finds are left to the cleanup.
        """

    def drop(self, note: Note) -> None:
        """Drop the table; data files stay.

        Args:
            note: Note of the table. It records the drop first if a new table would reuse keys.
        """

    def close(self) -> None:
        """Close connections."""


class FilesBeside:
    """Numbered metadata files in the dataset's own directory, as of Hadoop tables.

    An existing table records how its readers spell the repository.
    """

    def __init__(self, store: Store, dataset: str, root: str) -> None:
        self._store = store
        self._home = Folder.ICEBERG.of(dataset)
        self._keys = metadata_folder(dataset)
        self._hint = hint_key(dataset)
        self._led_to: bytes | None = None  # content of the hint when the table was found
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
        self._led_to = pointers.read(self._store, self._hint)
        noted, led_to = number_at(place), _hinted(self._led_to)
        if noted is not None:
            # A version whose publisher wrote no note is found by its hint.
            for number in sorted({noted, noted if led_to is None else led_to}, reverse=True):
                with contextlib.suppress(ObjectNotFoundError):
                    return self._newest(number)
        number = self.last_number()
        return self._newest(number) if number else None

    def _newest(self, number: int) -> IcebergTable:
        while self.exists(number + 1):
            number += 1
        return IcebergTable(self._read(number), str(number))

    def trouble(self, table: IcebergTable) -> str:
        """See `TableHome`."""
        if self._led_to is None:
            return f"{self._hint!r} is missing."
        if _hinted(self._led_to) != int(table.place):
            return f"{self._hint!r} does not lead to version {table.place}, the last one."
        return ""

    def lead(self, table: IcebergTable) -> None:
        """See `TableHome`."""
        self._point_to(int(table.place))

    def _key(self, number: int) -> str:
        return f"{self._keys}/{metadata_name(number)}"

    def exists(self, number: int) -> bool:
        """Return whether there is a version of the metadata."""
        try:
            self._store.size(self._key(number))
        except ObjectNotFoundError:
            return False
        return True

    def last_number(self) -> int:
        """See `TableHome`."""
        return max((number for number in map(number_of, self.keys()) if number), default=0)

    def keys(self) -> list[str]:
        """Return the keys of all metadata files: the hint first, then the versions.

        Cost:
            One LIST for each thousand objects.
        """
        keys = [info.key for info in self._store.list(f"{self._keys}/")]
        return sorted(keys, key=lambda key: (key != self._hint, not key.endswith(".json"), key))

    def _read(self, number: int) -> TableMetadata:
        key = self._key(number)
        with reading(key, "metadata of an Iceberg table"):
            metadata = TableMetadataUtil.parse_raw(bytes(self._store.get(key).data).decode())
            root = metadata.location.removesuffix(f"/{self._home}")
            if root == metadata.location:
                message = f"it records the location {metadata.location!r}"
                raise ValueError(message)
        self._root = root
        return metadata

    def create(
        self, schema: Schema, spec: PartitionSpec, properties: dict[str, str], after: int
    ) -> IcebergTable | None:
        """See `TableHome`."""
        if after:
            properties = properties | {BEGINS_AT: str(after + 1)}
        metadata = new_table_metadata(
            schema=schema,
            partition_spec=spec,
            sort_order=UNSORTED_SORT_ORDER,
            location=self.table,
            properties=dict(properties),
            table_uuid=uuid.uuid4(),
        )
        # pyiceberg numbers the columns of a new table itself, but data files may hold other ids.
        own = {
            "schemas": [schema],
            "last_column_id": schema.highest_field_id,
            "partition_specs": [spec],
        }
        metadata = metadata.model_copy(update=own)
        # Nothing is written yet: the commit of the first snapshot writes the table.
        return IcebergTable(metadata, str(after), is_new=True)

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
        before = None if table.is_new else f"{self.folder}/{metadata_name(number)}"
        metadata = update_table_metadata(table.metadata, updates, metadata_location=before)
        data = metadata.model_dump_json().encode()
        try:
            self._store.create(self._key(number + 1), data)
        except ObjectExistsError:
            # A client that repeats its request is refused although the first request succeeded.
            if not self._holds(number + 1, data):
                return None
        self._point_to(number + 1)
        return IcebergTable(metadata, str(number + 1))

    def _holds(self, number: int, data: bytes) -> bool:
        """Return whether a version has these bytes; no two publishers write the same ones."""
        try:
            return bytes(self._store.get(self._key(number)).data) == data
        except ObjectNotFoundError:
            return False

    def _point_to(self, number: int) -> None:
        """Lead readers to a version, or to a later one if there is one by then."""

        def is_enough(data: bytes) -> bool:
            led_to = _hinted(data)
            return led_to == number or (
                led_to is not None and led_to > number and self.exists(led_to)
            )

        pointers.point(self._store, self._hint, str(number).encode(), is_enough=is_enough)
        if self.exists(number + 1):
            self._point_to(number + 1)

    def tidy(self, before: TableMetadata, after: TableMetadata) -> None:
        """See `TableHome`."""

    def drop(self, note: Note) -> None:
        """See `TableHome`."""
        give_up(self._store, note, self.keys, number_of=number_of, first=1, pointers=[self._hint])

    def close(self) -> None:
        """See `TableHome`."""


class InCatalog:
    """A table in a catalog of pyiceberg's configuration."""

    def __init__(self, catalog: str, table: str) -> None:
        if not table or "." not in table:
            raise InvalidNameError(
                f"{table!r} is not a valid table name.",
                hint="Write namespace.table, as in the catalog.",
            )
        self._name = catalog
        self._identifier = table
        with _errors_of(catalog):
            try:
                self._catalog: Catalog = load_catalog(catalog)
            except ValueError as exc:
                raise InvalidInputError(
                    f"pyiceberg does not know the catalog {catalog!r}: {exc}",
                    hint="Define it in ~/.pyiceberg.yaml, or by PYICEBERG_CATALOG__… variables.",
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
        assert self._io is not None  # the table was found or created
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

    def last_number(self) -> int:
        """See `TableHome`."""
        raise CorruptMetadataError(
            f"The metadata of table {self.table!r} cannot be used.",
            hint="Drop the table with the tools of the catalog, and publish it again.",
        )

    def trouble(self, table: IcebergTable) -> str:  # noqa: ARG002 - readers ask the catalog
        """See `TableHome`."""
        return ""

    def lead(self, table: IcebergTable) -> None:
        """See `TableHome`."""

    def create(
        self,
        schema: Schema,
        spec: PartitionSpec,
        properties: dict[str, str],
        after: int,  # noqa: ARG002 - the catalog numbers its metadata itself
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
        """Return the table if it has the snapshot of these updates although they were refused.

        Clients of catalogs repeat a request whose response was lost, and that repetition fails.
        """
        table = self.find("")
        added = [
            update.snapshot.snapshot_id
            for update in updates
            if isinstance(update, AddSnapshotUpdate)
        ]
        if table is None or not added or not all(map(table.metadata.snapshot_by_id, added)):
            return None
        return table

    def tidy(self, before: TableMetadata, after: TableMetadata) -> None:
        """See `TableHome`."""
        delete_unnamed(self.io, before, after)

    def drop(self, note: Note) -> None:
        """See `TableHome`."""
        table = self.find("")
        if table is not None:
            with _errors_of(self._name):
                self._catalog.drop_table(self._identifier)
            delete_unnamed(self.io, table.metadata, None, also=(table.place,))
        note.forget()

    def close(self) -> None:
        """See `TableHome`."""
        with _errors_of(self._name):
            self._catalog.close()


@contextmanager
def _errors_of(catalog: str) -> Iterator[None]:
    """Raise errors of a catalog as our own; catalogs raise many types."""
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
            hint="Publish again; if it never answers, check its address in pyiceberg's "
            "configuration.",
            retryable=True,
        ) from exc
    except Exception as exc:
        raise StorageError(
            f"Catalog {catalog!r} failed: {exc}",
            hint="Check its configuration for pyiceberg, then publish again.",
        ) from exc


def _hinted(data: bytes | None) -> int | None:
    if data is None:
        return None
    try:
        return number_at(bytes(data).decode("ascii").strip())
    except UnicodeDecodeError:
        return None


def named_lists(data: bytes, key: str) -> list[str]:
    """Return the locations of the lists of manifests that a metadata file names.

    Raises:
        CorruptMetadataError: The file cannot be read.
    """
    with reading(key, "metadata of an Iceberg table"):
        document = from_json(data, _Metadata)
        return [snapshot.list for snapshot in document.snapshots]


class _Snapshot(msgspec.Struct):
    list: str = msgspec.field(name="manifest-list")


class _Metadata(msgspec.Struct):
    snapshots: tuple[_Snapshot, ...] = ()


def named_manifests(store: Store, key: str) -> list[str]:
    """Return the locations of the manifests that a list names.

    Raises:
        CorruptMetadataError: The list cannot be read.
    """
    with reading(key, "a list of manifests"):
        listed = read_manifest_list(StoreIO(store, "").new_input(f"/{key}"))
        return [manifest.manifest_path for manifest in listed]


def delete_unnamed(
    io: FileIO, before: TableMetadata, after: TableMetadata | None, *, also: Sequence[str] = ()
) -> None:
    """Delete lists, manifests and metadata files that the next version of a table does not name.

    A cleanup of the dataset does not look into catalogs, and the files of a catalog's tables are
    not listed. So a publisher that removes snapshots from a table also deletes the files that only
    these snapshots name. No data file is deleted. Files that cannot be deleted stay, and a warning
    is logged.

    Args:
        io: Reads and deletes the metadata files.
        before: The version before the change.
        after: The version after the change; None if the table was dropped.
        also: More metadata files to delete.

    Cost:
        Nothing if no snapshot was removed; else the lists of manifests of each removed snapshot
        and of the oldest one that stays.
    """
    kept = () if after is None else tuple(after.snapshots)
    kept_ids = {snapshot.snapshot_id for snapshot in kept}
    removed = [snapshot for snapshot in before.snapshots if snapshot.snapshot_id not in kept_ids]
    logged = set() if after is None else {entry.metadata_file for entry in after.metadata_log}
    unnamed = {entry.metadata_file for entry in before.metadata_log} - logged | set(also)
    try:
        if removed:
            unnamed |= _named(removed, io) - _named(_witnesses(kept, removed), io)
        for location in sorted(unnamed):
            io.delete(location)
    except Exception as exc:  # noqa: BLE001 - any store may fail; the table itself is right
        _log.warning("old metadata of an Iceberg table is left at %s: %s", before.location, exc)


def _named(snapshots: Iterable[Snapshot], io: FileIO) -> set[str]:
    """Return the locations of the lists of snapshots and of the manifests in them."""
    named = set()
    for snapshot in snapshots:
        named.add(snapshot.manifest_list)
        named.update(manifest.manifest_path for manifest in snapshot.manifests(io))
    return named


def _witnesses(kept: Sequence[Snapshot], removed: Sequence[Snapshot]) -> Sequence[Snapshot]:
    """Return kept snapshots that together name all files shared by kept and removed snapshots.

    Once a snapshot leaves out a manifest, no later snapshot names it. So in a linear history the
    first kept snapshot is enough. In other histories, such as with branches of others, all kept
    snapshots are needed.
    """
    line = sorted((*removed, *kept), key=lambda snapshot: snapshot.sequence_number or 0)
    is_one_line = all(
        later.parent_snapshot_id == earlier.snapshot_id for earlier, later in pairwise(line)
    )
    first = line[len(removed) : len(removed) + 1]
    are_removed_before = all(snapshot in removed for snapshot in line[: len(removed)])
    return first if is_one_line and are_removed_before else kept
