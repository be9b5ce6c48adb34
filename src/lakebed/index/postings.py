"""Which segments of the inverted indices belong to which column."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence

from lakebed.store.segments import Segment

Postings = Mapping[str, tuple[Segment, ...]]
"""Segments by indexed column."""


def folder(dataset: str, column: str) -> str:
    """Return where the segments of a column lie."""
    return f"{dataset}/postings/{urllib.parse.quote(column, safe='')}"


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
