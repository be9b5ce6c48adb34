"""One snapshot for one publication: manifests, their list, and the change of the table's metadata."""

from __future__ import annotations

import datetime as dt
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lakebed.errors import CorruptMetadataError
from lakebed.iceberg.homes import Found, Home
from lakebed.iceberg.manifests import ManifestWriter, Values, data_files, live_manifests
from lakebed.iceberg.schema import NAME_MAPPING, spec_of
from lakebed.publication.facts import ShownFiles

_log = logging.getLogger(__name__)

MOST_SNAPSHOTS = 100  # the metadata names them all, and is written anew by each commit
LONGEST_AGE = dt.timedelta(days=7)


def commit(
    home: Home,
    found: Found | None,
    *,
    schema: Schema,
    properties: dict[str, str],
    files: ShownFiles,
    locations: Sequence[str],
    removed: Mapping[str, Values],
    operation: str,
    summary: Mapping[str, str],
    levels: tuple[str, ...],
    is_schema_new: bool,
) -> Found | None:
    """Make a snapshot, and the table if it is not there.

    Args:
        home: Of the table.
        found: The table; None if it is not there.
        schema: That it shall have.
        properties: That it shall have.
        files: To add.
        locations: Of these, as the table names them.
        removed: Locations of files to take out, with the values of their partitions.
        operation: What the snapshot is called.
        summary: What it says of itself.
        levels: Columns that the table is partitioned by.
        is_schema_new: Whether schema or properties differ from those of the table.

    Returns:
        The table after it; None if somebody else has changed it meanwhile.
    """
    if found is None:
        found = home.create(schema, spec_of(schema, levels), properties)
        if found is None:
            return None
        schema = found.metadata.schema()  # a catalog gives ids of its own
        mapping = schema.name_mapping.model_dump_json()
        properties, is_schema_new = properties | {NAME_MAPPING: mapping}, True
    metadata = found.metadata
    current = metadata.current_snapshot()
    snapshot_id = uuid.uuid4().int >> 65  # 63 bits, of which none is the sign
    writer = ManifestWriter(
        io=home.io,
        folder=home.folder or f"{metadata.location}/metadata",
        schema=schema,
        spec=metadata.spec(),
        snapshot_id=snapshot_id,
    )
    kept = live_manifests(current, home.io)
    kept, missing = writer.remove(kept, removed)
    if missing:
        raise CorruptMetadataError(
            f"Table {home.table!r} does not name {min(missing)!r}, which it should.",
            hint="Publish with repair, which compares all files.",
        )
    manifests = [
        *writer.add(data_files(files, locations, schema, metadata.spec())),
        *writer.merge(kept),
    ]
    parent_id = None if current is None else current.snapshot_id
    sequence_number = metadata.last_sequence_number + 1
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=sequence_number,
        timestamp_ms=_timestamp_ms(metadata),
        manifest_list=writer.write_list(manifests, parent_id, sequence_number),
        summary=Summary(operation=Operation(operation), **{**summary, **_totals(writer, current)}),
        schema_id=metadata.current_schema_id,
    )
    updates: list[TableUpdate] = []
    if is_schema_new:
        if schema.as_struct() != metadata.schema().as_struct():
            updates += [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)]
            snapshot = snapshot.model_copy(update={"schema_id": schema.schema_id})
        updates.append(SetPropertiesUpdate(updates=properties))
    updates += [
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH, type=SnapshotRefType.BRANCH, snapshot_id=snapshot_id
        ),
    ]
    old = list(_expired(metadata))
    if old:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=old))
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=parent_id),
    )
    committed = home.commit(found, requirements, tuple(updates))
    if committed is None:
        # It is proven that nobody refers to these.
        for location in writer.written:
            home.io.delete(location)
    return committed


def _timestamp_ms(metadata: TableMetadata) -> int:
    """Return the time of a snapshot, which is never before that of the last one."""
    now = int(dt.datetime.now(dt.UTC).timestamp() * 1000)
    return max(now, metadata.last_updated_ms)


def _totals(writer: ManifestWriter, before: Snapshot | None) -> dict[str, str]:
    """Return the counts of a snapshot, as Iceberg calls them."""
    counts = writer.counts
    said: Mapping[str, Any] = {}
    if before is not None and before.summary is not None:
        said = before.summary.additional_properties
    files = int(said.get("total-data-files", "0")) + counts.added_files - counts.removed_files
    rows = int(said.get("total-records", "0")) + counts.added_rows - counts.removed_rows
    told = {
        "added-data-files": counts.added_files,
        "added-records": counts.added_rows,
        "deleted-data-files": counts.removed_files,
        "deleted-records": counts.removed_rows,
    }
    return {name: str(count) for name, count in told.items() if count} | {
        "total-data-files": str(files),
        "total-records": str(rows),
        "total-delete-files": "0",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


def _expired(metadata: TableMetadata) -> Iterator[int]:
    """Yield the snapshots that the metadata need not name any more.

    What they name stays on storage for as long as a cleanup of the dataset says.
    """
    referenced = {ref.snapshot_id for ref in metadata.refs.values()}
    limit = _timestamp_ms(metadata) - int(LONGEST_AGE.total_seconds() * 1000)
    snapshots = sorted(metadata.snapshots, key=lambda one: one.timestamp_ms)
    for place, snapshot in enumerate(snapshots):
        is_many = len(snapshots) - place >= MOST_SNAPSHOTS
        # It was shown until the next one came.
        ended = snapshots[place + 1].timestamp_ms if place + 1 < len(snapshots) else limit
        if snapshot.snapshot_id not in referenced and (is_many or ended < limit):
            yield snapshot.snapshot_id
