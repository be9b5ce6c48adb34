"""How each list of segments is written, read and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lakebed.index.merged_segments import compact_list
from lakebed.model.arrow_types import type_to_arrow
from lakebed.state import file_table, history, runs, sources
from lakebed.state.lists import FILES, HISTORY, RUNS, SOURCES, Lists, Segments, column_of
from lakebed.state.state import State
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import EncodedSegment, Segment, compact


class ListCodec(Protocol):
    """A module that knows what the segments of a list hold."""

    SUFFIX: str  # of a key

    def folder(self, dataset: str) -> str:
        """Return where the segments of a dataset lie."""
        ...

    def decode(self, data: bytes, key: str) -> object:
        """Read a segment; raise `CorruptMetadataError` if it is damaged."""
        ...

    def merge(self, parts: Sequence[StoredObject]) -> bytes:
        """Return several segments as one; raise `CorruptMetadataError` if one is damaged."""
        ...


# Those of postings are of a type, that of their column: `lakebed.index` merges them.
CODECS: Mapping[str, ListCodec] = {
    HISTORY: history,
    FILES: file_table,
    SOURCES: sources,
    RUNS: runs,
}


def merged_ends(store: Store, state: State, written: list[str]) -> Lists:
    """Merge the end of each list whose levels are full, as far as a commit may take the time.

    Args:
        store: Where the dataset is.
        state: That is about to be committed.
        written: Takes the key of each merged segment before it is written.

    Returns:
        The lists to name in the head. What cannot be merged stays as it is.

    Cost:
        Nothing, or one GET a merged segment and one PUT for each list that has become too long.
    """
    types = state.descriptor.column_types

    def merged_end(name: str, segments: Segments) -> Segments:
        column = column_of(name)
        if column is not None:
            kind = type_to_arrow(types[column])
            return compact_list(store, state.name, column, segments, kind, written)
        codec = CODECS[name]

        def merge(tail: Sequence[Segment]) -> EncodedSegment:
            data = codec.merge([store.get(segment.key) for segment in tail])
            weight = sum(segment.weight for segment in tail)
            merged = Segment.new(codec.folder(state.name), weight, codec.SUFFIX)
            return EncodedSegment(merged, data)

        return compact(store, segments, merge, written)

    lists = {name: merged_end(name, segments) for name, segments in state.lists.items()}
    return Lists.by_name(lists)
