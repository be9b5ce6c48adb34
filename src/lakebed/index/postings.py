"""Which segments of the inverted indices belong to which column.

What a writer adds to them travels in the metadata of its facts, as what caps caught does, so that
values never pass through the driver of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa

from lakebed.store.segments import Segment

_METADATA = b"lakebed.postings"

Postings = Mapping[str, tuple[Segment, ...]]
"""Segments by indexed column."""


def keys_of(postings: Postings) -> tuple[str, ...]:
    """Return the keys of all segments."""
    return tuple(segment.key for segments in postings.values() for segment in segments)


def joined(parts: Sequence[Postings]) -> dict[str, tuple[Segment, ...]]:
    """Return what several writers added, by column."""
    found: dict[str, tuple[Segment, ...]] = {}
    for part in parts:
        for column, segments in part.items():
            found[column] = (*found.get(column, ()), *segments)
    return found


def with_postings(facts: pa.Table, postings: Postings) -> pa.Table:
    """Return facts that carry the segments of their files, beside what they carry already."""
    metadata = dict(facts.schema.metadata or {})
    metadata.pop(_METADATA, None)
    if postings:
        metadata[_METADATA] = encode_postings(postings)
    return facts.replace_schema_metadata(metadata or None)


def postings_in(facts: pa.Table) -> dict[str, tuple[Segment, ...]]:
    """Return the segments that facts carry."""
    data = (facts.schema.metadata or {}).get(_METADATA)
    return {} if data is None else decode_postings(data)


def encode_postings(postings: Postings) -> bytes:
    """Return segments as bytes, for a task's answer."""
    return msgspec.json.encode(
        {
            column: [(segment.key, segment.weight) for segment in segments]
            for column, segments in postings.items()
        }
    )


def decode_postings(data: bytes) -> dict[str, tuple[Segment, ...]]:
    """Read what `encode_postings` gave."""
    found = msgspec.json.decode(data, type=dict[str, list[tuple[str, int]]])
    return {
        column: tuple(Segment(key, weight) for key, weight in segments)
        for column, segments in found.items()
    }
