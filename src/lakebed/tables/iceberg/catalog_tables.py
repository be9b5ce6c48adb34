"""The tables of a catalog that Lakebed serves itself: their metadata, made when they are loaded.

The metadata of a table is beside its data, if the dataset is published there after each commit;
else in a cache on another store; else it is virtual, and names snapshots without manifests. Then a
version of the dataset is a snapshot of the same number, for clients that let the server plan.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from lakebed.common.recent import Recent
from lakebed.errors import InvalidInputError
from lakebed.model import publishing
from lakebed.model.keys import BATCH_ID
from lakebed.model.layout import Folder
from lakebed.model.publishing import PublicationTarget
from lakebed.model.values import EPOCH
from lakebed.state import history
from lakebed.state.history import Entry
from lakebed.state.readable import is_readable
from lakebed.state.reader import read_own_head
from lakebed.state.state import State, descriptor_from
from lakebed.store.base import Store
from lakebed.store.root import root_of
from lakebed.tables.iceberg import dead_metadata, to_iceberg
from lakebed.tables.iceberg.homes import FilesBeside, IcebergTable
from lakebed.tables.iceberg.iceberg_schema import (
    COMMIT,
    ROOT,
    VERSION,
    columns_of,
    levels_of,
    number_in,
    schema_of,
    spec_of,
)
from lakebed.tables.iceberg.local_folders import make_local_folder
from lakebed.tables.iceberg.metadata_names import (
    UPLOADS,
    metadata_name,
    number_of,
    uploads_folder,
)

MOST_VIRTUAL = 1000  # snapshots of virtual metadata, which is sent whole
_MOST_LEVELS = 6  # besides the batch, of which any may be null: 63 partition specs
_MOST_HELD = 200  # tables whose metadata is in memory
_CACHE_KEPT = dt.timedelta(days=1)  # of metadata that was replaced in the cache
_UPLOADS_KEPT = dt.timedelta(days=7)  # in the cache: a client may take long until it commits
_FOR_WRITERS = {
    "write.format.default": "parquet",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "write.object-storage.enabled": "false",
    # Many writers at once lose races, of which each costs one request.
    "commit.retry.num-retries": "20",
    "commit.retry.min-wait-ms": "100",
    "commit.retry.max-wait-ms": "2000",
}
_NAMESPACE = uuid.UUID("6b1c1d1e-5a57-4c0a-9a3b-0a5f2c8f6f11")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTable:
    """A table as clients load it.

    Attributes:
        name: Name of the dataset.
        metadata: The metadata, as a document.
        location: Location of the metadata; changes with each version of it.
        is_virtual: True if no manifest exists, so that only the server can plan.
        head: Creation time, version and commit of the dataset that it was made for.
        versions: Version of the dataset, and its commit, by id of the snapshot.
        levels: Fields of the partition spec, in order.
        spec_id: Id of the partition spec.
        root: URL of the repository for readers.
        manifest_list: List of the manifests of the current snapshot; None without one.
        home: Store of the metadata, and of what clients upload; None for virtual metadata.
        unwritable: Why clients cannot write to the table, and the remedy; None if they can.
    """

    name: str
    metadata: Mapping[str, Any]
    location: str
    is_virtual: bool
    head: tuple[str, int, str]
    versions: Mapping[int, tuple[int, str]]
    levels: tuple[str, ...]
    spec_id: int
    root: str
    manifest_list: str | None = None
    home: Store | None = None
    unwritable: tuple[str, str] | None = None

    @property
    def level_ids(self) -> tuple[int, ...]:
        """Ids of the columns that the fields of the partition spec are made of, in order."""
        (spec,) = (
            one for one in self.metadata["partition-specs"] if one["spec-id"] == self.spec_id
        )
        return tuple(one["source-id"] for one in spec["fields"])

    @property
    def current(self) -> int | None:
        """Id of the current snapshot; None for a dataset without commits."""
        current = self.metadata.get("current-snapshot-id")
        return current if current in self.versions else None

    def for_writers(self) -> ServedTable:
        """Return the table with the metadata that clients need to write to it.

        They write without partitions, which Lakebed makes itself, to a place of their own, and copy
        files to change rows.
        """
        specs = self.metadata["partition-specs"]
        spec_id = max(int(spec["spec-id"]) for spec in specs) + 1
        uploads = f"{self.metadata['location']}/{UPLOADS}"
        own = {
            "write.data.path": f"{uploads}/data",
            "write.metadata.path": f"{uploads}/metadata",
        }
        metadata = {
            **self.metadata,
            "partition-specs": [*specs, {"spec-id": spec_id, "fields": []}],
            "default-spec-id": spec_id,
            "properties": {**self.metadata["properties"], **_FOR_WRITERS, **own},
        }
        return replace(self, metadata=metadata)

    def without_nulls(self) -> Mapping[str, Any]:
        """Return the metadata for clients that cannot read null as the value of a partition.

        It has partition specs that leave out each combination of the levels that may be null: a
        column that a file lacks, and that is not in its spec, is null.

        Raises:
            InvalidInputError: There are too many levels.
        """
        levels = [level for level in self.levels if level != BATCH_ID]
        if len(levels) > _MOST_LEVELS:
            raise InvalidInputError(
                f"Table {self.name!r} has {len(levels)} partition fields; pyiceberg can read at most "
                f"{_MOST_LEVELS} by this catalog.",
                hint="Read it with another client, or let pyiceberg plan: publish the table, and "
                "open its metadata.",
            )
        specs = list(self.metadata["partition-specs"])
        (spec,) = (one for one in specs if one["spec-id"] == self.spec_id)
        for count in range(1, len(levels) + 1):
            for nulls in itertools.combinations(levels, count):
                fields = [field for field in spec["fields"] if field["name"] not in nulls]
                specs.append({"spec-id": self.spec_without(nulls), "fields": fields})
        return {**self.metadata, "partition-specs": specs}

    def spec_without(self, nulls: Collection[str]) -> int:
        """Return the id of the partition spec that leaves out some levels, in `without_nulls`."""
        if not nulls:
            return self.spec_id
        own = max(int(spec["spec-id"]) for spec in self.metadata["partition-specs"])
        return own + sum(1 << self.levels.index(level) for level in nulls)


class CatalogTables:
    """Makes the metadata of the tables of one repository, and holds what it has made."""

    def __init__(
        self,
        store: Store,
        *,
        cache: Store | None = None,
        root: str | None = None,
        is_writable: bool = False,
    ) -> None:
        """Serve the datasets of a store.

        Args:
            store: The store of the repository.
            cache: The store for metadata that is not beside the data; None for virtual metadata.
            root: URL of the repository for readers; None for the usual one.
            is_writable: Whether clients may write.

        Raises:
            InvalidInputError: The repository or the cache has no URL that readers could use.
        """
        self.store = store
        self._is_writable = is_writable
        self._root = root_of(store, root, s3="s3")
        self._cache = cache
        self._cache_root = None if cache is None else root_of(cache, None, s3="s3")
        self._held = Recent[str, ServedTable](_MOST_HELD)
        self._locks = [threading.Lock() for _ in range(16)]  # each for some of the tables

    def load(self, name: str) -> ServedTable:
        """Return a table that shows the current version of its dataset.

        Raises:
            DatasetNotFoundError: There is no such dataset.
            ReadOnlyError: Another tool created the dataset.
            InvalidInputError: Iceberg cannot express the dataset.
            StorageError: The metadata cannot be written.

        Cost:
            A read of the head, and of metadata on storage two HEADs, if nothing has changed; else as
            `Dataset.publish`, or for virtual metadata a read of the history, and twice the footer
            of each file of another tool.
        """
        with self._locks[hash(name) % len(self._locks)]:
            state = read_own_head(self.store, name).state
            served = self._held.get(name)
            if served is None or served.head != head_of(state) or not _is_newest(served):
                served = self._made(state)
                self._held.put(name, served)
        if self._is_writable and served.unwritable is None and served.home is not None:
            # At each load: a cleanup of uploads removes the folder when it is empty.
            make_local_folder(served.home, f"{uploads_folder(name)}/metadata")
        return served

    def showing(self, name: str, snapshot_id: int | None) -> ServedTable:
        """Return a table that has a snapshot, without a read of the head if it is known.

        Args:
            name: Name of the dataset.
            snapshot_id: Id of the snapshot; None for the current one.

        Raises:
            InvalidInputError: The table has no such snapshot.
            LakebedError: As `load`.
        """
        held = self._held.get(name)
        if held is None or snapshot_id is None or snapshot_id not in held.versions:
            held = self.load(name)
        if snapshot_id is not None and snapshot_id not in held.versions:
            raise InvalidInputError(
                f"Table {name!r} has no snapshot {snapshot_id}: it never existed, or it was cleaned "
                "up.",
                hint="Load the table again.",
            )
        return held

    def _made(self, state: State) -> ServedTable:
        served = self._shown(state)
        if not self._is_writable:
            return served
        unwritable = _unwritable(state, served)
        if unwritable is not None:
            return replace(served, unwritable=unwritable)
        return served.for_writers()

    def _shown(self, state: State) -> ServedTable:
        beside = _table_beside(state)
        if beside is not None:
            to_iceberg.publish(self.store, state.name, root=beside.options.get("root"))
            return self._stored(self.store, state, self._root)
        if self._cache is None or self._cache_root is None:
            return virtual_table(self.store, state, self._root)
        hides = None
        if self._is_writable:
            # Clients cannot give a batch id. A table that shows it stays as it is.
            hides = to_iceberg.published_with(self._cache, state.name)[0] is not False or None
        done = to_iceberg.publish_in(
            self.store,
            state.name,
            self._root,
            cache=self._cache,
            cache_root=self._cache_root,
            hide_batch_id=hides,
        )
        if not done.was_in_step:
            self._tidy(self._cache, state.name)
        return self._stored(self._cache, state, self._cache_root)

    def _stored(self, home_store: Store, state: State, root: str) -> ServedTable:
        """Return a table whose metadata is on storage, and was just brought into step."""
        home = FilesBeside(home_store, state.name, root)
        table = home.find("")
        if table is None:
            raise InvalidInputError(
                f"The Iceberg table of {state.name!r} was unpublished meanwhile.",
                hint="Load it again.",
            )
        return replace(_served(home, table, state), home=home_store)

    def _tidy(self, cache: Store, name: str) -> None:
        """Delete metadata that was replaced a while ago: no cleanup of the lake knows the cache."""
        objects = list(cache.list(f"{Folder.ICEBERG.of(name)}/"))
        cutoff = dt.datetime.now(dt.UTC) - _CACHE_KEPT
        old = dead_metadata.dead_keys(cache, name, objects, cutoff, uploads_kept=_UPLOADS_KEPT)
        cache.delete(old.dead)


_VIRTUAL = "its metadata is virtual, and clients write beside metadata on storage"
_GIVE_PLACE = (
    "Serve with --iceberg-metadata, or set the properties publish.iceberg and "
    "publish.iceberg.hide_batch_id."
)


def _unwritable(state: State, served: ServedTable) -> tuple[str, str] | None:
    """Return why clients cannot write to a table, and the remedy; None if they can."""
    if served.is_virtual:
        return _VIRTUAL, _GIVE_PLACE
    if BATCH_ID in served.levels:
        return (
            f"its column {BATCH_ID!r} cannot be written",
            "Publish it without the column: set publish.iceberg.hide_batch_id, then unpublish and "
            "publish it again; or serve with another place as --iceberg-metadata.",
        )
    provided = [one.name for one in state.descriptor.partition_by if not one.takes_source]
    if provided:
        return (
            f"its partition field {provided[0]!r} is provided by each write",
            "Write to a view by Lakebed: the view gives the value.",
        )
    if state.descriptor.format != "parquet":
        return f"it has the format {state.descriptor.format}", "Write to it by Lakebed."
    return None


def _is_newest(held: ServedTable) -> bool:
    """Return whether metadata on storage is still there, and no newer one is."""
    if held.home is None:
        return True
    number = number_of(held.location)
    assert number is not None  # as `_served` has named it
    home = FilesBeside(held.home, held.name, held.root)
    return home.exists(number) and not home.exists(number + 1)


def head_of(state: State) -> tuple[str, int, str]:
    """Return creation time, version and commit of a state."""
    return state.created_at, state.version, state.commit_id


def _table_beside(state: State) -> PublicationTarget | None:
    """Return the table beside the data that each commit is published to; None if there is none."""
    targets = publishing.targets(state.descriptor.properties)
    return next((one for one in targets if one.kind == "iceberg" and not one.table), None)


def _served(home: FilesBeside, table: IcebergTable, state: State) -> ServedTable:
    versions = {}
    for snapshot in table.metadata.snapshots:
        recorded = {} if snapshot.summary is None else snapshot.summary.additional_properties
        version = number_in(recorded, VERSION, -1)
        if version >= 0:
            versions[snapshot.snapshot_id] = version, recorded.get(COMMIT, "")
    spec, current = table.metadata.spec(), table.metadata.current_snapshot()
    return ServedTable(
        name=state.name,
        metadata=_document(table.metadata),
        location=f"{home.folder}/{metadata_name(int(table.place))}",
        is_virtual=False,
        head=head_of(state),
        versions=versions,
        levels=tuple(part.name for part in spec.fields),
        spec_id=spec.spec_id,
        root=table.metadata.properties.get(ROOT, ""),
        manifest_list=None if current is None else current.manifest_list,
    )


def virtual_table(store: Store, state: State, root: str) -> ServedTable:
    """Return a table whose snapshots are the readable versions of a dataset, the last 1000.

    Raises:
        InvalidInputError: Iceberg cannot express the dataset.

    Cost:
        The history.
    """
    home = _NoMetadata(store, state.name, root)
    columns = to_iceberg.columns_for(store, state, home, root)
    now = columns.schema.model_copy(update={"schema_id": 0})
    schemas: list[Any] = [now]
    snapshots: list[dict[str, Any]] = []
    versions: dict[int, tuple[int, str]] = {}
    for entry, moment, schema in _past_schemas(store, state, now, columns.levels):
        known = next((one for one in schemas if one.as_struct() == schema.as_struct()), None)
        if known is None:
            known = schema.model_copy(update={"schema_id": len(schemas)})
            schemas.append(known)
        parent = snapshots[-1]["snapshot-id"] if snapshots else None
        operation = to_iceberg.operation_of(entry.added, entry.removed, {entry.operation})
        snapshots.append(
            {
                "snapshot-id": entry.version,
                **({} if parent is None else {"parent-snapshot-id": parent}),
                "sequence-number": entry.version,
                "timestamp-ms": int(moment.timestamp() * 1000),
                "manifest-list": f"{home.folder}/virtual-{entry.version}.avro",
                "summary": {"operation": operation, VERSION: str(entry.version)},
                "schema-id": known.schema_id,
            }
        )
        versions[entry.version] = entry.version, entry.commit_id
    spec = spec_of(now, columns.levels)
    last = snapshots[-1] if snapshots else None
    updated = state.committed_at or EPOCH
    document: dict[str, Any] = {
        "format-version": 2,
        "table-uuid": str(uuid.uuid5(_NAMESPACE, f"{root}/{state.name} {state.created_at}")),
        "location": home.table,
        "last-sequence-number": state.version,
        "last-updated-ms": int(updated.timestamp() * 1000),
        "last-column-id": max(schema.highest_field_id for schema in schemas),
        "schemas": [_document(schema) for schema in schemas],
        "current-schema-id": 0,
        "partition-specs": [_document(spec)],
        "default-spec-id": spec.spec_id,
        "last-partition-id": spec.last_assigned_field_id,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": dict(columns.properties),
        "snapshots": snapshots,
        "snapshot-log": [
            {"snapshot-id": one["snapshot-id"], "timestamp-ms": one["timestamp-ms"]}
            for one in snapshots
        ],
        "metadata-log": [],
        "refs": {},
    }
    if last is not None:
        main = {"type": "branch", "snapshot-id": last["snapshot-id"]}
        document |= {"current-snapshot-id": last["snapshot-id"], "refs": {"main": main}}
    return ServedTable(
        name=state.name,
        metadata=document,
        location=f"{home.folder}/virtual-{state.version}-{state.commit_id}.metadata.json",
        is_virtual=True,
        head=head_of(state),
        versions=versions,
        levels=columns.levels,
        spec_id=spec.spec_id,
        root=root,
    )


def _past_schemas(
    store: Store, state: State, now: Any, levels: Sequence[str]
) -> Iterator[tuple[Entry, dt.datetime, Any]]:
    """Yield the versions that can be listed, oldest first, with their times and schemas.

    A version is left out if its files have other ids than the present schema, if its directories
    have other levels, or if Iceberg could not express its schema.
    """
    first = max(1, state.version - MOST_VIRTUAL + 1)
    # Descriptors are in the entries of the commits that changed them.
    after = first - 1 if state.lineage.is_first else -1
    entries = history.read(store, state.lists.history, after=after, labels_after=state.version)
    moments = history.landing_times(entries)
    schema: Any = now if after >= 0 else None
    for entry in entries:
        if entry.descriptor is not None and after < 0:
            schema = _schema_at(state, entry.descriptor, now, levels)
        is_shown = first <= entry.version <= state.version and is_readable(state, entry.version)
        if is_shown and schema is not None:
            yield entry, moments[entry.version], now if entry.version == state.version else schema


def _schema_at(
    state: State, document: Mapping[str, Any], now: Any, levels: Sequence[str]
) -> Any | None:
    """Return the columns under an older descriptor; None if it cannot be shown beside the new one."""
    descriptor, lineage = descriptor_from(document, Folder.HISTORY.of(state.name))
    older = state.as_of(descriptor, lineage)
    own = levels_of(older, hides_batch_id=BATCH_ID not in levels)
    is_same = lineage.number == state.lineage.number and set(own) == set(levels)
    if is_same and descriptor.schema == state.descriptor.schema:
        return now
    ids, new_ids = older.layout.field_ids, state.layout.field_ids
    if ids is None or new_ids is None:
        return None
    if {ids[name] for name in own} != {new_ids[name] for name in levels}:
        return None
    try:
        columns = columns_of(older, own)
    except InvalidInputError:
        return None
    return schema_of(columns, lineage, None, shown=0, used=0, ids=ids)


def _document(model: Any) -> Any:
    return msgspec.json.decode(model.model_dump_json())


class _NoMetadata(FilesBeside):
    """The home of a table without metadata on storage."""

    def find(self, place: str) -> IcebergTable | None:  # noqa: ARG002 - there is none
        """See `TableHome`."""
        return None
