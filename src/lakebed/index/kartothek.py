"""Kartothek's index file: one Parquet object a column, which plateau and kartothek look values up in.

They believe that it knows every row. So it is made only where that is so: all files are covered,
and none holds null or NaN in the column, which have no place in it.
"""

from __future__ import annotations

import datetime as dt
import urllib.parse
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types as pat

from lakebed.index.merge import merge_sources, merged_pairs
from lakebed.index.order import is_first
from lakebed.index.segment import GROUP_ROWS, open_segment
from lakebed.model.descriptor import KARTOTHEK_LABELS
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.store.base import Store
from lakebed.store.segments import Segment

SUFFIX = ".by-dataset-index.parquet"
# Every reader of such a file has to hold all of it.
MAX_PAIRS = 5_000_000
MAX_BYTES = 2**30  # of the values and labels of all pairs

# Types that they look up rightly. Times of an index break their updates; they compare 32-bit
# floats in 64 bits; and decimals and bytes have no place in their index.
_TYPES: Mapping[Kind, pa.DataType] = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.LONG: pa.int64(),
    Kind.UNSIGNED_LONG: pa.uint64(),
    Kind.DOUBLE: pa.float64(),
    # As plateau has it: it refuses to update an index of the plain type, which is kartothek's.
    Kind.STRING: pa.large_string(),
    Kind.DATE: pa.date32(),
}


def new_key(dataset: str, column: str, now: dt.datetime) -> str:
    """Return a key for an index file, as Kartothek writes it."""
    names = (urllib.parse.quote(one, safe="") for one in (column, now.isoformat()))
    return f"{dataset}/indices/{'/'.join(names)}{SUFFIX}"


def encode(
    store: Store,
    column: str,
    segments: Sequence[Segment],
    kind: Type,
    labels: Mapping[int, str],
) -> bytes | None:
    """Return the index file of a column; None where there can be none that is right.

    Args:
        store: Where the segments are.
        column: That they are of.
        segments: All of the column.
        kind: Of the column.
        labels: Of all live files, by id.

    Raises:
        CorruptMetadataError: A segment is missing or damaged.

    Cost:
        All segments, read once; memory for `MAX_PAIRS` pairs, of `MAX_BYTES` together.
    """
    wanted = _TYPES.get(kind.kind) if isinstance(kind, Primitive) else None
    if wanted is None:
        return None
    footers = [open_segment(store, segment)[0] for segment in segments]
    ids = np.array(sorted(labels), dtype=np.int64)
    covered = [footer.file_ids for footer in footers]
    if len(ids) and not np.isin(ids, np.concatenate([ids[:0], *covered])).all():
        return None
    merged_as = pa.string() if pat.is_large_string(wanted) else wanted
    sources = merge_sources(store, footers, merged_as, ids)
    if any(len(files) for source in sources for files in source.specials()):
        return None
    values: list[pa.Array] = [pa.array([], merged_as)]
    files = [np.zeros(0, dtype=np.int32)]
    names = [labels[int(number)] for number in ids]
    lengths = np.array([len(name.encode()) for name in names], dtype=np.int64)
    count = size_bytes = 0
    for some, places in merged_pairs(sources, len(ids)):
        count += len(places)
        size_bytes += some.nbytes + int(lengths[places].sum())
        if count > MAX_PAIRS or size_bytes > MAX_BYTES:
            return None
        values.append(some)
        files.append(places)
    return _encode(column, pa.concat_arrays(values).cast(wanted), np.concatenate(files), names)


def _encode(column: str, values: pa.Array, files: np.ndarray, labels: Sequence[str]) -> bytes:
    """Return the file of sorted pairs: a row for each value, with the list of its labels."""
    starts = np.flatnonzero(is_first(values))
    offsets = pa.array(np.append(starts, len(values)), pa.int32())
    texts = pa.array(labels, pa.string()).take(pa.array(files))
    table = pa.table(
        {
            column: values.take(pa.array(starts)),
            KARTOTHEK_LABELS: pa.ListArray.from_arrays(offsets, texts),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, compression="zstd", row_group_size=GROUP_ROWS, write_page_checksum=True
    )
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded
