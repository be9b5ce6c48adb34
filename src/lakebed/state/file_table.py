"""The file table: facts of every data file, as segments of Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptMetadataError
from lakebed.store.base import Store
from lakebed.store.segments import Segment

SUFFIX = ".parquet"
_COUNTS = {"label": pa.string(), "row_count": pa.int64(), "size_bytes": pa.int64()}


def folder(dataset: str) -> str:
    """Return where the segments of a dataset lie."""
    return f"{dataset}/files"


def encode(facts: pa.Table) -> bytes:
    """Return the bytes of a segment."""
    sink = pa.BufferOutputStream()
    pq.write_table(facts, sink, compression="zstd", write_page_checksum=True)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def decode(data: bytes, key: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a segment, or some of its columns.

    Raises:
        CorruptMetadataError: It is truncated, damaged or of a wrong form.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        found = file.read(columns)
        found.validate(full=True)
        missing = [
            f"{name} ({kind})"
            for name, kind in _COUNTS.items()
            if (columns is None or name in columns)
            and (name not in found.column_names or found.schema.field(name).type != kind)
        ]
    except (pa.ArrowException, OSError, ValueError, KeyError) as exc:
        raise _unreadable(key, exc) from exc
    if missing:
        raise _unreadable(key, f"it has no column {', '.join(missing)}")
    return found


def _unreadable(key: str, cause: object) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"File table segment {key!r} cannot be read: {cause}.",
        hint="Data files are not affected; only what is known of them is.",
    )


def merge(parts: Sequence[bytes]) -> bytes:
    """Return several segments as one.

    They may be of files of different schemas: facts of a column that was promoted are promoted
    too, and what one of the segments lacks is null there.
    """
    tables = [decode(part, "file table segment") for part in parts]
    try:
        schemas = [table.schema for table in tables]
        wanted = reduce(_wider, (pa.struct(list(schema)) for schema in schemas))
        return encode(pa.concat_tables([_in_form(table, wanted) for table in tables]))
    except (pa.ArrowException, ValueError) as exc:
        raise _unreadable("file table segments", exc) from exc


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type that holds the facts of both."""
    if one == other:
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field for field in one}
        for field in other:
            have = fields.get(field.name)
            kind = field.type if have is None else _wider(have.type, field.type)
            fields[field.name] = pa.field(field.name, kind)
        return pa.struct(list(fields.values()))
    if pa.types.is_date(one) and pa.types.is_timestamp(other):
        return other  # Arrow promotes numbers by itself, and knows nothing of days
    if pa.types.is_timestamp(one) and pa.types.is_date(other):
        return one
    both = [pa.schema([("fact", kind)]) for kind in (one, other)]
    return pa.unify_schemas(both, promote_options="permissive").field("fact").type


def _in_form(table: pa.Table, wanted: pa.StructType) -> pa.Table:
    rows = table.combine_chunks().to_struct_array()
    chunks = rows.chunks if isinstance(rows, pa.ChunkedArray) else [rows]
    columns = [_cast(chunk, wanted) for chunk in chunks] or [pa.array([], wanted)]
    return pa.Table.from_struct_array(pa.chunked_array(columns))


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(wanted):
        return array.cast(wanted)
    columns = [
        _cast(array.field(field.name), field.type)
        if array.type.get_field_index(field.name) >= 0
        else pa.nulls(len(array), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=array.is_null())


def new_segment(dataset: str, facts: pa.Table) -> Segment | None:
    """Return the segment that the facts of one commit go to; None if there are none."""
    return Segment.new(folder(dataset), facts.num_rows, SUFFIX) if facts.num_rows else None


def read_counts(store: Store, segments: Sequence[Segment]) -> dict[str, tuple[int, int]]:
    """Return row count and size in bytes of every file that the table knows, by label.

    Cost:
        One GET a segment.
    """
    found: dict[str, tuple[int, int]] = {}
    for segment in segments:
        data = store.get(segment.key).data
        table = decode(data, segment.key, list(_COUNTS))
        columns = (table.column(name).to_pylist() for name in _COUNTS)
        found.update({label: (rows, size) for label, rows, size in zip(*columns, strict=True)})
    return found


def labels_and_rows(facts: pa.Table) -> tuple[tuple[str, ...], int]:
    """Return the labels of a facts table, and the sum of their rows."""
    rows = pc.sum(facts.column("row_count")).as_py() or 0
    return tuple(facts.column("label").to_pylist()), rows
