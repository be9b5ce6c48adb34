"""The manifests of a snapshot: its data files, in pieces that snapshots share.

A commit writes a manifest of the files that it adds, and rewrites the manifests that name files it
removes. Small manifests of about the same size are merged from time to time. So their number grows
with the logarithm of the commits, and no commit rewrites all of them.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, PrimitiveType

from lakebed.errors import CorruptMetadataError
from lakebed.tables.iceberg.iceberg_schema import bound, internal
from lakebed.tables.iceberg.library_errors import REMEDY, reading
from lakebed.tables.shown_facts import ShownFiles

FILES_A_MANIFEST = 1000
_MERGED_AT_ONCE = 8
_FORMAT_VERSION: Literal[2] = 2
_MOST_DIGITS = 18  # that a decimal of 64 bits holds
_CODEC: AvroCompressionCodec = "deflate"  # every reader supports it

# The values of a file's partition, in the order of the spec.
PartitionKey = tuple[Any, ...]


@dataclass(slots=True)
class FileCounts:
    """Counts of files and rows that were added and removed."""

    added_files: int = 0
    added_rows: int = 0
    removed_files: int = 0
    removed_rows: int = 0


@dataclass(slots=True, kw_only=True)
class ManifestWriter:
    """Writes the manifests and the list of one snapshot.

    Attributes:
        io: Writes the files.
        folder: Folder of the files, as readers of the table spell it.
        schema: Schema of the table.
        spec: Partition spec of the table.
        snapshot_id: Id of the snapshot.
        written: Locations of all files written so far.
        counts: Files and rows added and removed so far.
    """

    io: FileIO
    folder: str
    schema: Schema
    spec: PartitionSpec
    snapshot_id: int
    written: list[str] = field(default_factory=list)
    counts: FileCounts = field(default_factory=FileCounts)
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def add(self, files: Sequence[DataFile]) -> list[ManifestFile]:
        """Write the manifests of new files."""
        return [self.write(self.added(part)) for part in _cut(files, FILES_A_MANIFEST)]

    def added(self, files: Sequence[DataFile]) -> list[ManifestEntry]:
        """Return the entries of new files, which are counted."""
        self.counts.added_files += len(files)
        self.counts.added_rows += sum(file.record_count for file in files)
        return [
            ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=self.snapshot_id, data_file=file
            )
            for file in files
        ]

    def removed(self, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
        """Return entries as those of removed files, which are counted."""
        result = []
        for entry in entries:
            self.counts.removed_files += 1
            self.counts.removed_rows += entry.data_file.record_count
            result.append(with_status(entry, ManifestEntryStatus.DELETED, self.snapshot_id))
        return result

    def remove(
        self, manifests: Sequence[ManifestFile], removed: Mapping[str, PartitionKey]
    ) -> tuple[list[ManifestFile], set[str]]:
        """Return manifests without some files, and the paths of files that were not found.

        Args:
            manifests: Manifests of the snapshot before.
            removed: Paths of the files to remove, each with its partition values.
        """
        missing, result = set(removed), []
        for manifest in manifests:
            if not missing or not self._may_hold(manifest, {removed[path] for path in missing}):
                result.append(manifest)
                continue
            entries = entries_of(manifest, self.io)
            held = {entry.data_file.file_path for entry in entries} & missing
            if not held:
                result.append(manifest)
                continue
            missing -= held
            result.append(self.write(self._without(entries, held)))
        return result, missing

    def _without(
        self, entries: Iterable[ManifestEntry], removed: set[str]
    ) -> Iterator[ManifestEntry]:
        for entry in entries:
            if entry.data_file.file_path in removed:
                yield from self.removed([entry])
            else:
                yield with_status(entry, ManifestEntryStatus.EXISTING)

    def _may_hold(self, manifest: ManifestFile, values: Iterable[PartitionKey]) -> bool:
        """Return whether a manifest may name a file of one of these partitions."""
        summaries = manifest.partitions
        if manifest.partition_spec_id != self.spec.spec_id or not summaries:
            return True
        kinds = [self.schema.find_type(field.source_id) for field in self.spec.fields]
        ranges = []
        for summary, kind in zip(summaries, kinds, strict=True):
            assert isinstance(kind, PrimitiveType)
            low, high = (
                None if data is None else from_bytes(kind, data)
                for data in (summary.lower_bound, summary.upper_bound)
            )
            ranges.append((summary.contains_null, low, high))
        return any(
            all(
                has_null if value is None else low is None or low <= value <= high
                for value, (has_null, low, high) in zip(each, ranges, strict=True)
            )
            for each in values
        )

    def merge(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Return the manifests, with groups of about the same size merged into one."""
        tiers: dict[int, list[ManifestFile]] = {}
        for manifest in manifests:
            tiers.setdefault(_tier(live_count(manifest)), []).append(manifest)
        result = list(manifests)
        for tier, members in sorted(tiers.items()):
            is_full = _MERGED_AT_ONCE ** (tier + 1) >= FILES_A_MANIFEST
            if is_full or len(members) < _MERGED_AT_ONCE:
                continue
            entries = [
                with_status(entry, ManifestEntryStatus.EXISTING)
                for member in members
                for entry in entries_of(member, self.io)
            ]
            merged = set(members)
            result = [manifest for manifest in result if manifest not in merged]
            result += [self.write(part) for part in _cut(entries, FILES_A_MANIFEST)]
        return result

    def write_list(
        self, manifests: Sequence[ManifestFile], parent_id: int | None, sequence_number: int
    ) -> str:
        """Write the list of the manifests, and return its location."""
        location = f"{self.folder}/snap-{self.snapshot_id}-1-{self._id}.avro"
        with write_manifest_list(
            format_version=_FORMAT_VERSION,
            output_file=self.io.new_output(location),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            avro_compression=_CODEC,
        ) as writer:
            writer.add_manifests(list(manifests))
        self.written.append(location)
        return location

    def write(self, entries: Iterable[ManifestEntry], *, name: str = "") -> ManifestFile:
        """Write a manifest.

        Args:
            entries: Its entries.
            name: Beginning of its name, which tells what is in it.
        """
        begin = f"{name}-" if name else ""
        location = f"{self.folder}/{begin}{self._id}-m{len(self.written)}.avro"
        with write_manifest(
            format_version=_FORMAT_VERSION,
            spec=self.spec,
            schema=self.schema,
            output_file=self.io.new_output(location),
            snapshot_id=self.snapshot_id,
            avro_compression=_CODEC,
        ) as writer:
            for entry in entries:
                writer.add_entry(entry)
        self.written.append(location)
        return writer.to_manifest_file()


def live_manifests(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    """Return the manifests of a snapshot that name files with rows."""
    return [manifest for manifest in _data_manifests(snapshot, io) if live_count(manifest)]


def _data_manifests(snapshot: Snapshot | None, io: FileIO) -> list[ManifestFile]:
    if snapshot is None:
        return []
    manifests = _manifests(snapshot, io)
    return [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]


def _manifests(snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
    with reading(snapshot.manifest_list, "a list of manifests"):
        return snapshot.manifests(io)


def entries_of(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Return the entries of a manifest, without those of removed files.

    Raises:
        CorruptMetadataError: It cannot be read.
        ObjectNotFoundError: It is missing.
    """
    with reading(manifest.manifest_path, "a manifest"):
        return manifest.fetch_manifest_entry(io)


def live_files(snapshot: Snapshot | None, io: FileIO) -> dict[str, PartitionKey]:
    """Return the paths of all files of a snapshot, each with its partition values.

    Manifests of removed files only are read too, because readers fail if they cannot read one.

    Raises:
        CorruptMetadataError: A manifest cannot be read, or two manifests name the same file.
        ObjectNotFoundError: A manifest is missing.
    """
    files: dict[str, PartitionKey] = {}
    for manifest in _data_manifests(snapshot, io):
        for entry in entries_of(manifest, io):
            path = entry.data_file.file_path
            if path in files:
                raise CorruptMetadataError(
                    f"{manifest.manifest_path!r} names {path!r}, which another manifest names too.",
                    hint=REMEDY,
                )
            files[path] = _values(entry.data_file)
    return files


def has_deletes(snapshot: Snapshot | None, io: FileIO) -> bool:
    """Return whether a snapshot has delete files, which only other writers make."""
    return snapshot is not None and any(
        manifest.content == ManifestContent.DELETES for manifest in _manifests(snapshot, io)
    )


def data_files(
    files: ShownFiles, locations: Sequence[str], schema: Schema, spec: PartitionSpec
) -> list[DataFile]:
    """Return the entries of files in a manifest: partition, size, counts and bounds."""
    names = [schema.find_column_name(part.source_id) for part in spec.fields]
    columns = []
    for column in files.columns:
        member = schema.find_field(column.field.name)
        assert isinstance(member.field_type, PrimitiveType)
        columns.append((member.field_id, member.field_type, column))
    bounded = [column for column in columns if _are_bounds_read(column[1])]
    result = []
    for position, location in enumerate(locations):
        values = files.values[position]
        lower = {i: bound(t, c.min[position]) for i, t, c in bounded if c.min[position] is not None}
        upper = {i: bound(t, c.max[position]) for i, t, c in bounded if c.max[position] is not None}
        rows = files.row_count[position]
        nulls = {
            i: c.null_count[position] for i, _, c in columns if c.null_count[position] is not None
        }
        # DuckDB 1.4 finds no null of a column without a count, although it is in the partition.
        own = {
            part.source_id: 0 if values[str(name)] is not None else rows
            for part, name in zip(spec.fields, names, strict=True)
        }
        nulls = {**own, **nulls}
        result.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=location,
                file_format=FileFormat.PARQUET,
                partition=Record(*(internal(values[str(name)]) for name in names)),
                record_count=rows,
                file_size_in_bytes=files.size_bytes[position],
                column_sizes={},  # pyiceberg cannot list files without it
                value_counts=dict.fromkeys(nulls, rows),
                null_value_counts=nulls,
                lower_bounds=lower,
                upper_bounds=upper,
            )
        )
        result[-1].spec_id = spec.spec_id
    return result


def _are_bounds_read(kind: PrimitiveType) -> bool:
    """Return whether all readers read bounds of this type correctly.

    DuckDB 1.4 misreads bounds of decimals that do not fit into 64 bits, and skips files by them.
    """
    return not (isinstance(kind, DecimalType) and kind.precision > _MOST_DIGITS)


def _values(file: DataFile) -> PartitionKey:
    return tuple(file.partition[position] for position in range(len(file.partition)))


def with_status(
    entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None = None
) -> ManifestEntry:
    """Return an entry for another manifest.

    Args:
        entry: The entry as it was read.
        status: Status of the file in the other manifest.
        snapshot_id: Id of the snapshot that removes it; None to keep that which added it.
    """
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=entry.snapshot_id if snapshot_id is None else snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def live_count(manifest: ManifestFile) -> int:
    """Return the number of files that a manifest names and that have rows."""
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _tier(count: int) -> int:
    tier = 0
    while count >= _MERGED_AT_ONCE:
        count //= _MERGED_AT_ONCE
        tier += 1
    return tier


def _cut(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in itertools.count(0, size):
        if start >= len(items):
            return
        yield items[start : start + size]
