"""Iceberg tables written by other tools: the live files of the newest snapshot."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import types as iceberg
from pyiceberg.exceptions import ValidationError
from pyiceberg.manifest import FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, IdentityTransform, VoidTransform

from lakebed import by
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    NotFoundError,
)
from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.schema import (
    Decimal,
    Field,
    Kind,
    ListOf,
    MapOf,
    Primitive,
    Schema,
    Struct,
    Type,
    check_map_key,
)
from lakebed.model.values import EPOCH, Scalar, from_micros
from lakebed.store.base import Store, validate_key
from lakebed.store.root import key_at
from lakebed.tables.iceberg.iceberg_schema import paths_of
from lakebed.tables.iceberg.library_errors import reading
from lakebed.tables.iceberg.store_io import StoreIO
from lakebed.work.foreign import ForeignFile, ForeignLog, ForeignTable, ForeignVersion, cannot_adopt

FOLDER = "metadata"
METADATA = r"(?:v([0-9]{1,18})|([0-9]{1,18})-[^/]*?)(?:\.gz)?\.metadata\.json(?:\.gz)?"
_FIELD_ID = b"PARQUET:field_id"
_LOOK = "Check whether the newest pyiceberg can read the table."
_REWRITE = "Let its own tool rewrite its files: rewrite_data_files."
_KINDS: Mapping[type[iceberg.IcebergType], Kind] = {
    iceberg.BooleanType: Kind.BOOLEAN,
    iceberg.IntegerType: Kind.INT,
    iceberg.LongType: Kind.LONG,
    iceberg.FloatType: Kind.FLOAT,
    iceberg.DoubleType: Kind.DOUBLE,
    iceberg.StringType: Kind.STRING,
    iceberg.BinaryType: Kind.BYTES,
    iceberg.DateType: Kind.DATE,
    iceberg.TimestampType: Kind.TIMESTAMP_NTZ,
    iceberg.TimestamptzType: Kind.TIMESTAMP,
}
# Types of partition fields; others, such as decimals, stay plain columns.
_OF_PARTITIONS = tuple(kind for kind in _KINDS if kind is not iceberg.BinaryType)


def read_table(
    store: Store, name: str, metadata: str | None, *, with_history: bool = False
) -> ForeignTable:
    """Read the current snapshot of the Iceberg table in a directory.

    Args:
        store: The store that holds the table.
        name: The directory of the table.
        metadata: The table's metadata file, as a location or relative to the directory; None for
            the newest in its folder `metadata`.
        with_history: Whether to read all snapshots that led to the current one.

    Raises:
        NotFoundError: There is no metadata, or no snapshot.
        CorruptMetadataError: The metadata cannot be read.
        InvalidInputError: The rows of the table are not just those of its live files; or several
            metadata files are the newest.

    Cost:
        One LIST, one GET of the metadata, one of the list of manifests, and one for each manifest;
        for the history those of the other snapshots, each manifest once.
    """
    title = f"Iceberg table {name!r}"
    log = ForeignLog.read(store, title, f"{name}/{FOLDER}", METADATA)
    io = _ForeignIO(store, name, title)
    key = _newest(store, log) if metadata is None else _given(store, name, metadata)
    try:
        found = FromInputFile.table_metadata(io.input_of(key))
        current = found.current_snapshot()
        if current is None:
            raise NotFoundError(
                f"{title} cannot be adopted: it has no snapshot.", hint="Create a dataset instead."
            )
        manifests = _Manifests(found, io, title)
        files, notes = manifests.files(current), tuple(_left_out(found))
        history = _history(manifests, current) if with_history else ()
    except (ValueError, ValidationError, EOFError, NotImplementedError) as exc:
        if isinstance(exc, LakebedError):
            raise
        raise CorruptMetadataError(
            f"{key!r} cannot be read as metadata of an Iceberg table: {exc}.",
            hint=_LOOK,
        ) from exc
    schema, mapping = found.schema(), found.name_mapping()
    return ForeignTable(
        title=title,
        version=key.rpartition("/")[2],
        schema=Schema(fields=_fields(schema.fields, title)),
        strategy=PartitionStrategy(tuple(_functions(found))),
        files=files,
        log=log,
        check_footer=lambda footer: (
            _difference(footer, schema.fields, mapping) or _lacking(footer, found)
        ),
        notes=(*notes, *_defaults(schema)),
        remedy=f"Write its rows as another dataset: {_write_call(store, name, key)}.",
        history=history,
        field_ids=paths_of(schema),
        last_field_id=found.last_column_id,
    )


def _write_call(store: Store, name: str, key: str) -> str:
    """Return the call that writes the rows of a table as another dataset."""
    path = store.local_path(key) or f"{store.uri}/{key}"
    table = f"pyiceberg.table.StaticTable.from_metadata({str(path)!r})"
    return f"`repository.write({f'{name}-copy'!r}, {table})`"


def _defaults(schema: IcebergSchema) -> Iterator[str]:
    for member in schema.fields:
        if member.write_default is not None:
            yield (
                f"Column {member.name!r} has the default {member.write_default!r}: new rows that lack "
                "it are null there."
            )


def _lacking(footer: pq.FileMetaData, metadata: TableMetadata) -> str:
    """Return which column of a partition only the metadata holds; empty if files hold all."""
    names, schema = footer.schema.to_arrow_schema().names, metadata.schema()
    for part in _parts(metadata.spec()):
        source = schema.find_column_name(part.source_id)
        is_identity = isinstance(part.transform, IdentityTransform)
        if is_identity and _function(part, schema) is None and source not in names:
            return f"it lacks {source!r}, whose values only the metadata of the table has"
    return ""


def _newest(store: Store, log: ForeignLog) -> str:
    numbers: dict[int, list[str]] = {}
    for name in log.names:
        match = re.fullmatch(METADATA, name)
        assert match is not None  # the log was listed by this pattern
        numbers.setdefault(int(match[1] or match[2]), []).append(name)
    if not numbers:
        raise NotFoundError(
            f"There is no metadata of an Iceberg table in {store.uri}/{log.folder}.",
            hint="Name its file, such as metadata/00007-….metadata.json, by `iceberg` or --iceberg.",
        )
    newest = sorted(numbers[max(numbers)])
    if len(newest) > 1:
        raise InvalidInputError(
            f"{log.title} has several newest metadata files: {', '.join(newest)}.",
            hint="Name the one that its catalog uses by `iceberg` or --iceberg.",
        )
    return f"{log.folder}/{newest[0]}"


def _given(store: Store, name: str, metadata: str) -> str:
    key = _key_at(store, metadata)
    if key is None and ":" not in metadata and not metadata.startswith("/"):
        key = f"{name}/{metadata}"
    if key is None or not key.startswith(f"{name}/"):
        raise InvalidInputError(
            f"Metadata {metadata!r} is not in {store.uri}/{name}.",
            hint="Give the table's newest metadata file, which lies in the directory.",
        )
    return validate_key(key)


def _key_at(store: Store, location: str) -> str | None:
    """Return the key of a location in a table's metadata; None if it is not in the store."""
    scheme, separator, path = location.partition(":")
    if not separator and os.path.isabs(location):  # noqa: PTH117 - a text, not a local file
        location = f"file://{location}"
    elif separator and path.startswith("/") and not path.startswith("//"):
        location = f"{scheme}://{path}"
    return key_at(store, location)


class _ForeignIO(StoreIO):
    """Objects of a store, under the locations in the metadata of another tool's table."""

    def __init__(self, store: Store, name: str, title: str) -> None:
        super().__init__(store, store.uri)
        self._name = name
        self._title = title

    def key(self, location: str) -> str:
        """Return the key of an object.

        Raises:
            InvalidInputError: The object lies outside of the table's directory.
        """
        key = _key_at(self._store, location)
        if key is None or not key.startswith(f"{self._name}/") or ".." in key.split("/"):
            raise cannot_adopt(
                self._title,
                f"{location!r} lies outside of {self._store.uri}/{self._name}",
                "Adopt the table where it was written, under its own location.",
            )
        return key

    def input_of(self, key: str) -> Any:
        """Return an object by its key."""
        return self.new_input(self._store.hadoop_uri(key) or f"{self._store.uri}/{key}")


@dataclass(frozen=True, slots=True)
class _Manifests:
    """The manifests of a table, each of which is read once.

    Attributes:
        metadata: Metadata of the table.
        io: The store that holds them.
        title: Title of the table in messages.
        known: The live files of the manifests that were read.
    """

    metadata: TableMetadata
    io: _ForeignIO
    title: str
    known: dict[str, dict[str, ForeignFile]] = field(default_factory=dict)

    def files(self, snapshot: Snapshot) -> dict[str, ForeignFile]:
        """Return the live files of a snapshot by key.

        Raises:
            InvalidInputError: Its rows are not just those of its live files.
        """
        files: dict[str, ForeignFile] = {}
        with reading(snapshot.manifest_list, "a list of manifests", hint=_LOOK):
            manifests = snapshot.manifests(self.io)
        for manifest in manifests:
            path = manifest.manifest_path
            if path not in self.known:
                self.known[path] = dict(_files(self.metadata, manifest, self.io, self.title))
            files |= self.known[path]
        return files


def _history(manifests: _Manifests, current: Snapshot) -> tuple[ForeignVersion, ...]:
    """Return the snapshots that led to the current one, oldest first, as far as they are kept."""
    metadata = manifests.metadata
    line, snapshot = [], current
    while True:
        line.append(snapshot)
        parent = snapshot.parent_snapshot_id
        before = None if parent is None else metadata.snapshot_by_id(parent)
        if before is None:
            break
        snapshot = before
    versions, live = [], dict[str, ForeignFile]()
    for snapshot in reversed(line):
        obstacle = ""
        try:
            files = manifests.files(snapshot)
        except (LakebedError, OSError) as exc:
            obstacle = exc.message.rstrip(".") if isinstance(exc, LakebedError) else str(exc)
            files = {}
        summary = snapshot.summary
        versions.append(
            ForeignVersion(
                name=str(snapshot.snapshot_id),
                operation=f"iceberg {summary.operation.value if summary else 'commit'}",
                made_at=dt.datetime.fromtimestamp(snapshot.timestamp_ms / 1000, dt.UTC),
                added={key: file for key, file in files.items() if key not in live},
                removed=frozenset(live.keys() - files.keys()),
                obstacle=obstacle,
            )
        )
        live = files
    return tuple(versions)


def _files(
    metadata: TableMetadata, manifest: ManifestFile, io: _ForeignIO, title: str
) -> Iterator[tuple[str, ForeignFile]]:
    with reading(manifest.manifest_path, "a manifest", hint=_LOOK):
        entries = manifest.fetch_manifest_entry(io)
    if manifest.content == ManifestContent.DELETES:
        if entries:
            raise cannot_adopt(title, f"{len(entries):,} files mark rows as deleted", _REWRITE)
        return
    _check_spec(metadata, manifest, title)
    for entry in entries:
        file = entry.data_file
        if file.file_format != FileFormat.PARQUET:
            raise cannot_adopt(title, f"{file.file_path!r} has format {file.file_format}", _REWRITE)
        yield (
            io.key(file.file_path),
            ForeignFile(
                size_bytes=file.file_size_in_bytes,
                row_count=file.record_count,
                values=dict(_values(metadata, file.partition)),
            ),
        )


def _parts(spec: PartitionSpec) -> list[PartitionField]:
    return [part for part in spec.fields if not isinstance(part.transform, VoidTransform)]


def _check_spec(metadata: TableMetadata, manifest: ManifestFile, title: str) -> None:
    """Check that the files of a manifest are partitioned as new ones are."""
    wrote = metadata.specs()[manifest.partition_spec_id]
    forms = (
        [(p.source_id, str(p.transform)) for p in spec.fields] for spec in (wrote, metadata.spec())
    )
    if next(forms) != next(forms):
        raise cannot_adopt(
            title, f"some of its files have an older partition spec, {wrote.spec_id}", _REWRITE
        )


def _function(part: PartitionField, schema: IcebergSchema) -> PartitionFunction | None:
    """Return a partition field as a function of Lakebed; None if there is no such function."""
    source, kind = schema.find_column_name(part.source_id), schema.find_type(part.source_id)
    if source is None or "." in source:
        return None
    if isinstance(part.transform, IdentityTransform):
        return by.identity(source) if isinstance(kind, _OF_PARTITIONS) else None
    is_time = isinstance(kind, iceberg.TimestampType | iceberg.TimestamptzType)
    if isinstance(part.transform, DayTransform) and is_time:
        return by.date(source, name=part.name)
    return None


def _functions(metadata: TableMetadata) -> Iterator[PartitionFunction]:
    for part in _parts(metadata.spec()):
        function = _function(part, metadata.schema())
        if function is not None:
            yield function


def _left_out(metadata: TableMetadata) -> Iterator[str]:
    for part in _parts(metadata.spec()):
        if _function(part, metadata.schema()) is None:
            source = metadata.schema().find_column_name(part.source_id)
            yield (
                f"Its partition field {part.name!r}, {part.transform} of {source!r}, does not become "
                "a partition field of the dataset."
            )


def _values(metadata: TableMetadata, record: Any) -> Iterator[tuple[str, Scalar]]:
    schema = metadata.schema()
    for position, part in enumerate(metadata.spec().fields):
        function = None if part not in _parts(metadata.spec()) else _function(part, schema)
        if function is not None:
            yield (
                function.name,
                _typed(
                    record[position], part.transform.result_type(schema.find_type(part.source_id))
                ),
            )


def _typed(value: Any, kind: iceberg.IcebergType) -> Scalar:
    """Return a partition value in its own type; metadata may hold it as a number."""
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    match kind:
        case iceberg.DateType():
            return EPOCH.date() + dt.timedelta(days=value)
        case iceberg.TimestamptzType():
            return from_micros(value)
        case iceberg.TimestampType():
            return from_micros(value).replace(tzinfo=None)
        case _:
            return value


def _fields(members: Sequence[iceberg.NestedField], title: str) -> tuple[Field, ...]:
    return tuple(
        Field(
            name=member.name,
            type=_type(member.field_type, member.name, title),
            nullable=not member.required,
            doc=member.doc or "",
        )
        for member in members
    )


def _type(kind: iceberg.IcebergType, path: str, title: str) -> Type:
    match kind:
        case iceberg.DecimalType(precision=precision, scale=scale):
            return Decimal(precision, scale)
        case iceberg.ListType():
            element = _type(kind.element_type, f"{path}[]", title)
            return ListOf(element, not kind.element_required)
        case iceberg.MapType() if isinstance(kind.key_type, iceberg.PrimitiveType):
            key = _type(kind.key_type, f"{path}{{key}}", title)
            value = _type(kind.value_type, f"{path}{{}}", title)
            return MapOf(value, not kind.value_required, check_map_key(key, path))
        case iceberg.StructType():
            return Struct(_fields(kind.fields, title))
    found = _KINDS.get(type(kind))
    if found is None:
        raise cannot_adopt(
            title,
            f"its column {path!r} is of type {kind}, which Lakebed does not have",
            "Let its own tool write a copy with another type.",
        )
    return Primitive(found)


def _difference(
    footer: pq.FileMetaData, members: Sequence[iceberg.NestedField], mapping: NameMapping | None
) -> str:
    """Return why the columns of a file, matched by name, differ from those matched by field id."""
    return _mixed_up(footer.schema.to_arrow_schema(), members, mapping, ())


def _mixed_up(
    columns: pa.Schema | pa.StructType,
    members: Sequence[iceberg.NestedField],
    mapping: NameMapping | None,
    path: tuple[str, ...],
) -> str:
    by_id = {member.field_id: member for member in members}
    by_name = {member.name: member for member in members}
    for column in columns:
        here = (*path, column.name)
        number, wanted = _id_of(column, mapping, here), by_name.pop(column.name, None)
        if wanted is None:
            if number in by_id:
                return f"its column {'.'.join(here)!r} was renamed to {by_id[number].name!r}"
            continue
        if number is None:
            return f"its column {'.'.join(here)!r} has no field id, and the table does not map its name"
        if number != wanted.field_id:
            return (
                f"its column {'.'.join(here)!r} was dropped, and its name now means another column"
            )
        reason = _mixed_up_inside(column.type, wanted.field_type, mapping, here)
        if reason:
            return reason
    missing = next((m for m in by_name.values() if m.initial_default is not None), None)
    return "" if missing is None else f"it lacks column {missing.name!r}, which has a default"


def _mixed_up_inside(
    kind: pa.DataType,
    wanted: iceberg.IcebergType,
    mapping: NameMapping | None,
    path: tuple[str, ...],
) -> str:
    match wanted:
        case iceberg.StructType() if pa.types.is_struct(kind):
            return _mixed_up(kind, wanted.fields, mapping, path)
        case iceberg.ListType() if hasattr(kind, "value_type"):
            inner = (*path, "element")
            return _mixed_up_inside(kind.value_type, wanted.element_type, mapping, inner)
        case iceberg.MapType() if pa.types.is_map(kind):
            inner = (*path, "value")
            return _mixed_up_inside(kind.item_type, wanted.value_type, mapping, inner)
        case _:
            return ""


def _id_of(column: pa.Field, mapping: NameMapping | None, path: tuple[str, ...]) -> int | None:
    number = (column.metadata or {}).get(_FIELD_ID)
    if number is not None:
        return int(number)
    return None if mapping is None else _mapped(mapping.root, path)


def _mapped(fields: Iterable[MappedField], path: tuple[str, ...]) -> int | None:
    """Return the field id that a table maps a path of names to; None if the path is not mapped."""
    name, *inner = path
    for mapped in fields:
        if name in mapped.names:
            return _mapped(mapped.fields, tuple(inner)) if inner else mapped.field_id
    return None
