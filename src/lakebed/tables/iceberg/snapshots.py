"""Write the snapshot of a publication: manifests, their list, and the table's new metadata."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import (
    PARTITION_FIELD_ID_START,
    UNPARTITIONED_PARTITION_SPEC,
    PartitionSpec,
)
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakebed.errors import CorruptMetadataError
from lakebed.model.schema import Field
from lakebed.state.state import State
from lakebed.tables.iceberg.homes import IcebergTable, TableHome
from lakebed.tables.iceberg.iceberg_schema import (
    NAME_MAPPING,
    VERSION,
    name_mapping_of,
    number_in,
    spec_of,
)
from lakebed.tables.iceberg.manifests import (
    ManifestWriter,
    PartitionKey,
    data_files,
    live_manifests,
)
from lakebed.tables.shown_facts import ShownFiles

_log = logging.getLogger(__name__)

MOST_SNAPSHOTS = 100  # the metadata names them all, and each commit rewrites it
# In a catalog the files of a snapshot are deleted with it. So a snapshot is kept until its readers
# are done, unless there are too many snapshots.
_READ_BY_MS = 24 * 3600 * 1000
_MOST_IN_A_CATALOG = 500


def commit(
    home: TableHome,
    table: IcebergTable | None,
    *,
    schema: Schema,
    properties: dict[str, str],
    dropped: Sequence[Field],
    renamed: Mapping[str, str],
    files: Callable[[Sequence[str]], ShownFiles],
    added: Sequence[str],
    location: Callable[[str], str],
    state: State,
    removed: Mapping[str, PartitionKey],
    operation: str,
    summary: Mapping[str, str],
    levels: tuple[str, ...],
    is_schema_new: bool,
    horizon: int,
    snapshot_id: int | None = None,
    after: int = 0,
    is_whole: bool = False,
) -> IcebergTable | None:
    """Make a snapshot, and create the table if it does not exist.

    Args:
        home: The home of the table's metadata.
        table: The table; None if it does not exist.
        schema: The schema that the table needs.
        properties: The properties that the table needs.
        dropped: Columns that older files may hold, by their names there.
        renamed: Names that data files have for renamed columns.
        files: Function that returns the facts of files by their labels.
        added: Labels of the files to add.
        location: Function that returns the location of a label, as the table names it.
        state: State of the dataset.
        removed: Locations of files to remove, with their partition values.
        operation: Operation of the snapshot.
        summary: Version and commit of the dataset, for the summary of the snapshot.
        levels: Columns that the table is partitioned by.
        is_schema_new: True if schema or properties differ from those of the table.
        horizon: Version of the dataset; snapshots that show earlier versions can expire.
        snapshot_id: Id of the snapshot, unless the table has it; None for a new one.
        after: Number of the metadata that a new table begins above.
        is_whole: True if `added` are all files of the table; the last snapshot is not read then.

    Returns:
        The table after the commit; None if another writer has changed it meanwhile.
    """
    if table is None:
        # A catalog numbers columns itself: then the table begins with a spec that names none.
        is_fresh = assign_fresh_schema_ids(schema).as_struct() == schema.as_struct()
        is_numbered = is_fresh or home.folder is not None
        spec = spec_of(schema, levels) if is_numbered else UNPARTITIONED_PARTITION_SPEC
        table = home.create(schema, spec, properties, after)
        if table is None:
            return None
        mapping = name_mapping_of(schema, renamed, dropped, None).model_dump_json()
        properties, is_schema_new = properties | {NAME_MAPPING: mapping}, True
    metadata = table.metadata
    current = metadata.current_snapshot()
    is_other_schema = schema.as_struct() != metadata.schema().as_struct()
    if is_other_schema:
        schema_id = max(each.schema_id for each in metadata.schemas) + 1
        schema = schema.model_copy(update={"schema_id": schema_id})
    spec = metadata.spec() if metadata.snapshots else _first_spec(metadata, schema, levels)
    if snapshot_id is None or metadata.snapshot_by_id(snapshot_id) is not None:
        snapshot_id = uuid.uuid4().int >> 65  # 63 bits, so it is never negative
    writer = ManifestWriter(
        io=home.io,
        folder=home.folder or f"{metadata.location}/metadata",
        schema=schema,
        spec=spec,
        snapshot_id=snapshot_id,
    )
    kept = [] if is_whole else live_manifests(current, home.io)

    def entries_of(labels: Sequence[str]) -> list[DataFile]:
        if not labels:
            return []
        return data_files(files(labels), [location(label) for label in labels], schema, spec)

    if state.is_tree:
        from lakebed.tables.iceberg.leaf_manifests import TreeSnapshot, manifests_of

        shown = TreeSnapshot(
            state=state, added=added, removed=removed, location=location, entries_of=entries_of
        )
        manifests = manifests_of(writer, shown, kept)
    else:
        kept, missing = writer.remove(kept, removed)
        if missing:
            raise CorruptMetadataError(
                f"Table {home.table!r} does not name {min(missing)!r}, which should be removed.",
                hint="Publish with repair, which compares all files.",
            )
        manifests = [*writer.add(entries_of(added)), *writer.merge(kept)]
    parent_id = None if current is None else current.snapshot_id
    sequence_number = last_sequence_number(metadata) + 1
    full_summary = Summary(
        operation=Operation(operation),
        **{**summary, **_totals(writer, None if is_whole else current)},
    )
    snapshot = Snapshot.model_validate(
        {
            "snapshot-id": snapshot_id,
            "parent-snapshot-id": parent_id,
            "sequence-number": sequence_number,
            "timestamp-ms": _timestamp_ms(metadata, state if home.folder is not None else None),
            "manifest-list": writer.write_list(manifests, parent_id, sequence_number),
            "summary": full_summary,
            "schema-id": schema.schema_id if is_other_schema else metadata.current_schema_id,
        }
    )
    updates: list[TableUpdate] = []
    if is_other_schema:
        updates += [
            AddSchemaUpdate.model_validate({"schema": schema}),
            SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
        ]
    if spec not in metadata.partition_specs:
        updates += [
            AddPartitionSpecUpdate.model_validate({"spec": spec}),
            SetDefaultSpecUpdate.model_validate({"spec-id": -1}),
        ]
    if is_schema_new:
        updates.append(SetPropertiesUpdate(updates=properties))
    main = {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot_id}
    updates += [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate(main),
    ]
    old = list(_expired(metadata, horizon, is_in_catalog=home.folder is None))
    if old:
        updates.append(RemoveSnapshotsUpdate.model_validate({"snapshot-ids": old}))
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": parent_id}),
    )
    committed = home.commit(table, requirements, tuple(updates))
    if committed is None:
        # The commit has failed, so no metadata names these files.
        for unnamed in writer.written:
            home.io.delete(unnamed)
    else:
        home.tidy(metadata, committed.metadata)
    return committed


def _first_spec(metadata: TableMetadata, schema: Schema, levels: tuple[str, ...]) -> PartitionSpec:
    """Return the partition spec of a table without snapshots: its own, or one to add to it."""
    wanted, own = spec_of(schema, levels), metadata.spec()
    if own.compatible_with(wanted):
        return own
    number = max(spec.spec_id for spec in metadata.partition_specs) + 1
    begin = max(metadata.last_partition_id or 0, PARTITION_FIELD_ID_START - 1) + 1
    fields = [
        part.model_copy(update={"field_id": begin + position})
        for position, part in enumerate(wanted.fields)
    ]
    return PartitionSpec(*fields, spec_id=number)


def _timestamp_ms(metadata: TableMetadata, shown: State | None = None) -> int:
    """Return the time of a snapshot, which is after that of the last one.

    Beside the data it is the time of the commit that the snapshot shows. A catalog may write its
    metadata when a reader loads the table, and some readers, such as DuckDB 1.5, do not see
    snapshots that are younger than their transaction. In a catalog of others it is the present:
    there the snapshot before it is kept for readers from that time on.
    """
    moment = dt.datetime.now(dt.UTC)
    if shown is not None and shown.committed_at is not None:
        moment = min(moment, shown.committed_at)
    earliest = metadata.last_updated_ms + 1 if metadata.snapshots or shown is None else 0
    return max(int(moment.timestamp() * 1000), earliest)


def _totals(writer: ManifestWriter, before: Snapshot | None) -> dict[str, str]:
    """Return the counts of a snapshot under Iceberg's names."""
    counts = writer.counts
    recorded: Mapping[str, Any] = {}
    if before is not None and before.summary is not None:
        recorded = before.summary.additional_properties
    files = number_in(recorded, "total-data-files", 0) + counts.added_files - counts.removed_files
    rows = number_in(recorded, "total-records", 0) + counts.added_rows - counts.removed_rows
    changes = {
        "added-data-files": counts.added_files,
        "added-records": counts.added_rows,
        "deleted-data-files": counts.removed_files,
        "deleted-records": counts.removed_rows,
    }
    return {name: str(count) for name, count in changes.items() if count} | {
        "total-data-files": str(files),
        "total-records": str(rows),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


def _expired(metadata: TableMetadata, horizon: int, *, is_in_catalog: bool) -> Iterator[int]:
    """Yield the snapshots that have expired.

    A cleanup of the dataset has given up their files, or there are too many snapshots. Their
    metadata files stay on storage until a cleanup deletes them. Cleanups do not look into catalogs;
    there the files are deleted with the snapshots.
    """
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    snapshots = sorted(metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    read_by = _timestamp_ms(metadata) - _READ_BY_MS
    for position, (snapshot, following) in enumerate(pairwise(snapshots)):
        recorded = {} if snapshot.summary is None else snapshot.summary.additional_properties
        is_given_up = number_in(recorded, VERSION, horizon) < horizon
        count = len(snapshots) - position
        is_due = is_given_up or count >= MOST_SNAPSHOTS
        if is_in_catalog and following.timestamp_ms > read_by:
            is_due = count >= _MOST_IN_A_CATALOG
        if is_due and snapshot.snapshot_id not in referenced:
            yield snapshot.snapshot_id


def last_sequence_number(metadata: TableMetadata) -> int:
    """Return the number of the last snapshot; tables of the first format have none."""
    return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number
