"""Segments of the inverted indices by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.store.segments import Segment

Postings = Mapping[str, tuple[Segment, ...]]
"""Segments by indexed column."""


def keys_of(postings: Postings) -> tuple[str, ...]:
    """Return the keys of all segments."""
    return tuple(segment.key for segments in postings.values() for segment in segments)


def joined(parts: Sequence[Postings]) -> dict[str, tuple[Segment, ...]]:
    """Return the segments that several writers added, by column."""
    by_column: dict[str, tuple[Segment, ...]] = {}
    for part in parts:
        for column, segments in part.items():
            by_column[column] = (*by_column.get(column, ()), *segments)
    return by_column
