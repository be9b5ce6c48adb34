"""The file table: facts of every data file, as segments of Parquet."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.errors import CorruptMetadataError
from lakebed.state.segments import Segment
from lakebed.store.base import Store

SUFFIX = ".parquet"


def folder(dataset: str) -> str:
    """Return where the segments of a dataset lie."""
    return f"{dataset}/files"


def encode(facts: pa.Table) -> bytes:
    """Return the bytes of a segment."""
    sink = pa.BufferOutputStream()
    pq.write_table(facts, sink, compression="zstd")
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def decode(data: bytes, key: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a segment, or some of its columns.

    Raises:
        CorruptMetadataError: It is truncated or of a wrong form.
    """
    try:
        return pq.read_table(pa.BufferReader(data), columns=columns)
    except (pa.ArrowException, OSError) as exc:
        raise CorruptMetadataError(
            f"File table segment {key!r} cannot be read: {exc}.",
            hint="Data files are not affected; only what is known of them is.",
        ) from exc


def merge(parts: Sequence[bytes]) -> bytes:
    """Return several segments as one; columns that one of them lacks are null there."""
    tables = [decode(part, "file table segment") for part in parts]
    return encode(pa.concat_tables(tables, promote_options="permissive"))


def write(store: Store, dataset: str, facts: pa.Table) -> Segment | None:
    """Write the facts of one commit as a segment; None if there are none.

    Cost:
        One PUT.
    """
    if not facts.num_rows:
        return None
    segment = Segment.new(folder(dataset), facts.num_rows, SUFFIX)
    store.put(segment.key, encode(facts))
    return segment


def read_counts(store: Store, segments: Sequence[Segment]) -> dict[str, tuple[int, int]]:
    """Return row count and size in bytes of every file that the table knows, by label.

    Cost:
        One GET a segment.
    """
    found: dict[str, tuple[int, int]] = {}
    for segment in segments:
        data = store.get(segment.key).data
        table = decode(data, segment.key, ["label", "row_count", "size_bytes"])
        columns = (table.column(name).to_pylist() for name in table.column_names)
        found.update({label: (rows, size) for label, rows, size in zip(*columns, strict=True)})
    return found


def labels_and_rows(facts: pa.Table) -> tuple[tuple[str, ...], int]:
    """Return the labels of a facts table, and the sum of their rows."""
    rows = pc.sum(facts.column("row_count")).as_py() or 0
    return tuple(facts.column("label").to_pylist()), rows
