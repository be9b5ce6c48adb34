"""The file table: facts of every data file, as segments of Parquet."""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError, StorageFullError
from lakebed.model.keys import split_label
from lakebed.model.layout import Folder
from lakebed.state.facts import Recorded
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, StoredObject
from lakebed.store.cache import cached_get, is_cached
from lakebed.store.segments import Segment

_log = logging.getLogger(__name__)

SUFFIX = ".parquet"
_SEGMENTS_AT_ONCE = 8
_BYTES_FOR_THREADS = 2**20
# Rows that differ only in a number take two or three to a byte. A segment that claims more than
# this is made to exhaust the memory: a run of equal values takes no space, however long.
_MAX_ROWS_PER_BYTE = 16
_FEW_OF_MANY = 4  # if the wanted part is this much smaller, filter the whole first
_STATS, _FACTS = "stats", ("min", "max", "null_count")
# Placeholder in a segment while its hash is computed; the hash then replaces it.
_HASH, _NO_HASH = "lakebed.hash", "hash-of-this-segment-comes-here-"
_COUNTS = {"label": pa.string(), "row_count": pa.int64(), "size_bytes": pa.int64()}
_PLAIN = {**_COUNTS, "checksum": pa.string()}  # what every segment holds


def folder(dataset: str) -> str:
    """Return the folder of the segments of a dataset."""
    return Folder.FILES.of(dataset)


def encode(facts: pa.Table) -> bytes:
    """Return the bytes of a segment, which hold a hash of themselves."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        facts.schema,
        compression="zstd",
        write_page_checksum=True,
        # Labels are distinct, so a dictionary of them is useless. Neighbours begin alike.
        use_dictionary=False,
        column_encoding={"label": "DELTA_BYTE_ARRAY"},
    ) as writer:
        writer.write_table(facts)
        writer.add_key_value_metadata({_HASH: _NO_HASH})
    data: bytes = sink.getvalue().to_pybytes()
    position = data.rindex(_NO_HASH.encode())
    return b"".join((data[:position], _hash_of(data, position), data[position + len(_NO_HASH) :]))


def _hash_of(data: bytes, position: int) -> bytes:
    """Return the hash of a segment, computed with the placeholder in the position of the hash."""
    view = memoryview(data)
    digest = hashlib.blake2b(view[:position], digest_size=len(_NO_HASH) // 2)
    digest.update(_NO_HASH.encode())
    digest.update(view[position + len(_NO_HASH) :])
    return digest.hexdigest().encode()


def _check_hash(data: bytes, footer: pq.FileMetaData) -> None:
    """Check the whole of a segment, including the parts without page checksums.

    Raises:
        ValueError: The segment has changed since it was written.
    """
    noted = (footer.metadata or {}).get(_HASH.encode())
    if noted is None:
        return  # written before segments had a hash
    position = data.rfind(noted)
    if len(noted) != len(_NO_HASH) or _hash_of(data, position) != noted:
        message = "its hash does not match its content"
        raise ValueError(message)


def _check_count(data: bytes, footer: pq.FileMetaData) -> None:
    """Check that the number of rows is plausible for the size, before reading them.

    Raises:
        ValueError: There are too many rows.
    """
    if footer.num_rows > len(data) * _MAX_ROWS_PER_BYTE:
        message = f"it claims {footer.num_rows:,} rows in {len(data):,} bytes"
        raise ValueError(message)


def decode(data: bytes, key: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a segment, or some of its columns.

    Raises:
        CorruptMetadataError: It is truncated, damaged or malformed.
    """
    try:
        # The segment is in memory: nothing to fetch ahead, and a small one is not worth threads.
        source = pa.BufferReader(data)
        file = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=False)
        _check_hash(data, file.metadata)
        _check_count(data, file.metadata)
        table = file.read(columns, use_threads=len(data) > _BYTES_FOR_THREADS)
        table.validate(full=True)
        missing = [
            f"{name} ({data_type})"
            for name, data_type in _PLAIN.items()
            if (columns is None or name in columns)
            and (name not in table.column_names or table.schema.field(name).type != data_type)
        ]
    except (pa.ArrowException, OSError, ValueError, KeyError) as exc:
        raise _unreadable(key, exc) from exc
    if missing:
        raise _unreadable(key, f"it has no column {', '.join(missing)}")
    if _STATS in table.column_names and not _is_stats(table.schema.field(_STATS).type):
        raise _unreadable(key, f"{_STATS!r} is not a struct of columns")
    return table


def check_facts(schema: pa.Schema) -> None:
    """Check the columns of facts that are kept without labels and counts.

    Raises:
        ValueError: A column is missing or of another type.
    """
    if "checksum" not in schema.names or schema.field("checksum").type != pa.string():
        message = "it has no column checksum (string)"
        raise ValueError(message)
    if _STATS in schema.names and not _is_stats(schema.field(_STATS).type):
        message = f"{_STATS!r} is not a struct of columns"
        raise ValueError(message)


def _is_stats(data_type: pa.DataType) -> bool:
    return pa.types.is_struct(data_type) and all(
        pa.types.is_struct(field.type) for field in data_type
    )


def _unreadable(key: str, cause: object) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"File table segment {key!r} cannot be read: {cause}.",
        hint="Data files are not affected; only their recorded facts are.",
    )


def merge(parts: Sequence[StoredObject]) -> bytes:
    """Return several segments as one."""
    return encode_joined([decode(part.data, part.key) for part in parts])


def encode_joined(tables: Sequence[pa.Table]) -> bytes:
    """Return the content of several segments as one.

    They may describe files of different schemas: facts of a promoted column are promoted too, and
    a column that one of the segments lacks is null there.
    """
    try:
        return encode(joined(tables))
    except (pa.ArrowException, ValueError) as exc:
        raise _unreadable("file table segments", exc) from exc


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Return several tables of facts as one; see `encode_joined`."""
    schemas = [table.schema for table in tables]
    wanted = reduce(_wider, (pa.struct(list(schema)) for schema in schemas))
    return pa.concat_tables([_in_form(table, wanted) for table in tables])


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds the facts of both."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field for field in one}
        for field in other:
            have = fields.get(field.name)
            data_type = field.type if have is None else _wider(have.type, field.type)
            fields[field.name] = pa.field(field.name, data_type)
        return pa.struct(list(fields.values()))
    if pa.types.is_date(one) and pa.types.is_timestamp(other):
        return other  # Arrow promotes numbers by itself, but not dates
    if pa.types.is_timestamp(one) and pa.types.is_date(other):
        return one
    both = [pa.schema([("fact", data_type)]) for data_type in (one, other)]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field("fact").type
    except pa.ArrowException:
        return other  # the name was given to another field: only the new one is looked up


def _in_form(table: pa.Table, wanted: pa.StructType) -> pa.Table:
    rows = table.combine_chunks().to_struct_array()
    chunks = rows.chunks if isinstance(rows, pa.ChunkedArray) else [rows]
    columns = [_cast(chunk, wanted) for chunk in chunks] or [pa.array([], wanted)]
    return pa.Table.from_struct_array(pa.chunked_array(columns))


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(wanted):
        try:
            return array.cast(wanted)
        except pa.ArrowException:
            return pa.nulls(len(array), wanted)
    columns = [
        _cast(array.field(field.name), field.type)
        if array.type.get_field_index(field.name) >= 0
        else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())


def new_segment(dataset: str, facts: pa.Table) -> Segment | None:
    """Return a new segment for the facts of one commit; None if there are none."""
    return Segment.new(folder(dataset), facts.num_rows, SUFFIX) if facts.num_rows else None


class OtherFacts(Segment, ABC):
    """A segment that is not an object of Parquet, such as a leaf of a tree."""

    __slots__ = ()

    @abstractmethod
    def read(self, store: Store, names: Sequence[str]) -> tuple[pa.Table, int]:
        """Return some columns as a segment has them, and the number of requests that it took.

        Raises:
            CorruptMetadataError: They cannot be read.
        """

    def may_hold(self, directories: Collection[str]) -> bool:  # noqa: ARG002 - see LeafFacts
        """Return whether it may have facts of files in some directories."""
        return True


def segments_of(segments: Sequence[Segment], labels: Collection[str]) -> Sequence[Segment]:
    """Return the segments that may have the facts of some files: of a tree only few leaves do."""
    if not any(isinstance(one, OtherFacts) for one in segments):
        return segments
    directories = {split_label(label)[0] for label in labels}
    return [one for one in segments if not isinstance(one, OtherFacts) or one.may_hold(directories)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Known bounds of one column in some files: one entry a file, null if unknown.

    Attributes:
        min: A value not above the smallest value; see `ColumnFacts`.
        max: A value not below the largest value.
        null_count: Number of nulls.
    """

    min: pa.ChunkedArray
    max: pa.ChunkedArray
    null_count: pa.ChunkedArray

    def slice(self, start: int, count: int) -> Bounds:
        """Return the bounds of some of the files."""
        parts = (array.slice(start, count) for array in (self.min, self.max, self.null_count))
        return Bounds(**dict(zip(_FACTS, parts, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFacts:
    """Facts of some files in the file table: one entry a file, null if unknown.

    Attributes:
        row_count: Number of entities.
        size_bytes: Length of the file.
        columns: Facts of the requested columns that the file table has.
        lost: Unreadable segments, by key, with the reason.
        requests: Number of requests that the lookup took.
    """

    row_count: pa.ChunkedArray
    size_bytes: pa.ChunkedArray
    columns: Mapping[str, Bounds]
    lost: Mapping[str, str] = field(default_factory=dict)
    requests: int = 0


def find(
    store: Store,
    segments: Sequence[Segment],
    labels: pa.LargeStringArray,
    columns: Mapping[str, pa.DataType],
) -> KnownFacts:
    """Look up the facts of some files.

    A segment that is damaged or missing is skipped with a warning: its facts are then unknown.

    Args:
        store: The store that holds the segments.
        segments: Segments of the file table.
        labels: Labels of the files.
        columns: Plain fields to look up, with their current types. Files of older schemas have
            bounds of narrower types, which are widened.

    Cost:
        One GET a segment, eight at a time; none for those that the process has read before. Memory:
        the labels, the counts and these columns, for all files.
    """
    import pyarrow.compute as pc

    schema = _found_schema(columns)
    names = [*_COUNTS, *(f"{_STATS}.{name}" for name in columns)]
    tables, lost, requests = _readable(store, segments, names, lambda table: _flat(table, schema))
    known = pa.concat_tables([schema.empty_table(), *tables])
    known_labels = known.column("label").cast(pa.large_string())
    rows = known.drop_columns(["label"])
    if len(labels) * _FEW_OF_MANY < len(known_labels):
        is_wanted = pc.is_in(known_labels, value_set=labels)
        known_labels, rows = known_labels.filter(is_wanted), rows.filter(is_wanted)
    if not known_labels.equals(pa.chunked_array([labels])):
        rows = rows.take(pc.index_in(labels, value_set=known_labels.combine_chunks()))
    return KnownFacts(
        row_count=rows.column("row_count"),
        size_bytes=rows.column("size_bytes"),
        columns={
            name: Bounds(**{fact: rows.column(_found_name(fact, name)) for fact in _FACTS})
            for name in columns
        },
        lost=lost,
        requests=requests,
    )


def covering(
    store: Store, segments: Sequence[Segment], labels: Collection[str]
) -> tuple[Segment, ...]:
    """Return the newest segments that together know all these files; all if some are unknown.

    Cost:
        One GET for each of them; none for those that the process has read before.
    """
    missing, chosen = set(labels), []
    for segment in reversed(segments):
        if not missing:
            break
        for table in _readable(store, [segment], ["label"], _as_it_is)[0]:
            missing.difference_update(table.column("label").to_pylist())
        chosen.append(segment)
    return tuple(chosen)


def _readable(
    store: Store,
    segments: Sequence[Segment],
    names: Sequence[str],
    shaped: Callable[[pa.Table], pa.Table],
) -> tuple[list[pa.Table], dict[str, str], int]:
    """Return the content of the readable segments, the reason for each other, and the requests."""

    def read(segment: Segment) -> tuple[pa.Table | CorruptMetadataError, int]:
        requests = 1
        try:
            if isinstance(segment, OtherFacts):
                table, requests = segment.read(store, names)
                return shaped(table), requests
            data, requests = _read(store, segment.key)
            return shaped(decode(data, segment.key, names)), requests
        except CorruptMetadataError as exc:
            return exc, requests

    tables, lost, requests = [], {}, 0
    for segment, (table, count) in zip(
        segments, at_once(read, segments, _SEGMENTS_AT_ONCE), strict=True
    ):
        requests += count
        if isinstance(table, CorruptMetadataError):
            lost[segment.key] = table.message
            _log.warning("file table segment is ignored key=%s: %s", segment.key, table.message)
        else:
            tables.append(table)
    return tables, lost, requests


def _read(store: Store, key: str) -> tuple[bytes, int]:
    """Return the bytes of a segment, and the number of requests that it took."""
    requests = int(not is_cached(store, key))
    try:
        return cached_get(store, key), requests
    except ObjectNotFoundError as exc:
        raise _unreadable(key, "it is missing") from exc


def _as_it_is(table: pa.Table) -> pa.Table:
    return table


def _found_schema(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    facts = [
        (_found_name(fact, name), pa.int64() if fact == "null_count" else data_type)
        for name, data_type in columns.items()
        for fact in _FACTS
    ]
    return pa.schema([*_COUNTS.items(), *facts])


def _found_name(fact: str, column: str) -> str:
    return f"{fact} {column}"  # unique, because no field name contains a blank


def _flat(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of `_found_schema`, null where the segment lacks them."""
    columns = [table.column(name) for name in _COUNTS]
    for wanted in list(schema)[len(_COUNTS) :]:
        fact, _, name = wanted.name.partition(" ")
        columns.append(_stored(table, name, fact, wanted.type))
    return pa.table(columns, schema=schema)


def _stored(table: pa.Table, name: str, fact: str, wanted: pa.DataType) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    try:
        return pc.struct_field(table.column(_STATS), [name, fact]).cast(wanted)
    # The column did not exist then, or was another one that was dropped: its facts are not needed.
    except (pa.ArrowException, KeyError, NotImplementedError):
        return pa.chunked_array([pa.nulls(table.num_rows, wanted)])


def read_counts(
    store: Store, segments: Sequence[Segment], labels: Collection[str] | None = None
) -> dict[str, tuple[int, int]]:
    """Return row count and size in bytes of every file in the table, by label.

    A segment that is damaged or missing is skipped with a warning.

    Args:
        store: The store that holds the segments.
        segments: Segments of the file table.
        labels: Files that are needed, if others are not; None for all files.

    Cost:
        One GET a segment, eight at a time; none for those that the process has read before.
    """
    counts: dict[str, tuple[int, int]] = {}
    if labels is not None:
        segments = segments_of(segments, labels)
    for table in _readable(store, segments, list(_COUNTS), _as_it_is)[0]:
        columns = (table.column(name).to_pylist() for name in _COUNTS)
        for label, rows, size in zip(*columns, strict=True):
            if rows is not None and size is not None:  # a tree may know a file without its facts
                counts[label] = (rows, size)
    return counts


def read_recorded(
    store: Store, segments: Sequence[Segment], labels: Collection[str]
) -> dict[str, Recorded]:
    """Return the recorded size and checksum of some files, by label.

    A file that the table does not know is left out. A segment that is damaged or missing is
    skipped with a warning.

    Cost:
        One GET a segment, eight at a time; none for those that the process has read before.
    """
    import pyarrow.compute as pc

    if not labels:
        return {}
    wanted = pa.array(list(labels), pa.string())
    names = ("label", "size_bytes", "checksum")

    def chosen(table: pa.Table) -> pa.Table:
        return table.filter(pc.is_in(table.column("label"), value_set=wanted))

    recorded: dict[str, Recorded] = {}
    for table in _readable(store, segments_of(segments, labels), names, chosen)[0]:
        columns = (table.column(name).to_pylist() for name in names)
        recorded.update(
            (label, Recorded(size_bytes=size, checksum=checksum))
            for label, size, checksum in zip(*columns, strict=True)
            if size is not None and checksum is not None
        )
    return recorded


def with_bounds(
    store: Store, segments: Sequence[Segment], labels: Collection[str]
) -> frozenset[str]:
    """Return those of some files of which the table has bounds, which are values of their rows.

    A segment that is damaged or missing is skipped with a warning.

    Args:
        store: The store that holds the segments.
        segments: Segments of the file table.
        labels: Labels of the files.

    Cost:
        One GET a segment, eight at a time; none for those that the process has read before.
    """
    import pyarrow.compute as pc

    wanted = pa.array(sorted(labels), pa.string())

    def chosen(table: pa.Table) -> pa.Table:
        if _STATS not in table.column_names:
            return table.slice(0, 0)
        has_bounds = pc.is_valid(table.column(_STATS))
        return table.filter(pc.and_(has_bounds, pc.is_in(table.column("label"), wanted)))

    tables = _readable(store, segments_of(segments, labels), ("label", _STATS), chosen)[0]
    return frozenset(label for table in tables for label in table.column("label").to_pylist())


def prune(
    store: Store, segments: Sequence[Segment], keep_labels: Collection[str]
) -> tuple[Segment, ...]:
    """Remove the facts of files that will not be looked up again.

    Args:
        store: The store that holds the segments.
        segments: Segments of the file table.
        keep_labels: Files whose facts are kept.

    Returns:
        The list to name in the head. Segments that lose nothing stay; others are rewritten under
        other keys; those that would be empty are left out. A segment that is damaged or missing
        stays named, and so does one whose successor does not fit on the store.

    Cost:
        One GET a segment, and one PUT for each that loses something.
    """
    import pyarrow.compute as pc

    kept = pa.array(list(keep_labels), pa.string())

    def pruned(segment: Segment) -> Segment | None:
        try:
            data, _ = _read(store, segment.key)
            labels = decode(data, segment.key, ["label"]).column("label")
            is_kept = pc.is_in(labels, value_set=kept)
            count = pc.sum(is_kept, min_count=0).as_py()
            if count == len(labels):
                return segment
            if not count:
                return None
            remaining_facts = decode(data, segment.key).filter(is_kept)
        except CorruptMetadataError as exc:
            _log.warning("file table segment is left as it is key=%s: %s", segment.key, exc.message)
            return segment
        smaller = Segment.new(segment.key.rpartition("/")[0], count, SUFFIX)
        try:
            store.put(smaller.key, encode(remaining_facts))
        except StorageFullError as exc:
            _log.warning("file table segment is left as it is key=%s: %s", segment.key, exc.message)
            return segment
        return smaller

    remaining = (pruned(segment) for segment in segments)
    return tuple(segment for segment in remaining if segment is not None)
