"""Erasure: other files in the place of some files, in the current version and in all older ones.

A commit that erases rows names, for each file that held some, the files with its remaining rows.
These take its place in the head and in every entry of the history, so that each version that can be
read shows the same rows as before, without the erased ones. Head and history change by one swap of
the head: a reader sees the old files or the new ones.

All lists of segments are rewritten with the head: the facts, the runs and the origins of the old
files go, and the pairs of the indices that belong to files outside of every readable version. So no
value of an erased row stays in an object that the head names.

The pure part is in `lakebed.state.erased_files`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptMetadataError, LakebedError, ObjectNotFoundError
from lakebed.index.postings_writer import merge_segments
from lakebed.index.segment import file_ids_of, open_segment
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import file_ids
from lakebed.state import file_table, history, runs, sources
from lakebed.state.erased_files import entry_without, replaced
from lakebed.state.history import Entry
from lakebed.state.lists import Lists, Segments
from lakebed.state.readable import kept_files
from lakebed.state.runs import Runs
from lakebed.state.sources import Sources
from lakebed.state.state import Change, State
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import Segment, read_segment

_log = logging.getLogger(__name__)

_LOSS = "Run check."


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """Rewrites the lists of a state; `written` receives the key of each segment before it is put."""

    store: Store
    name: str
    written: list[str]

    def put(self, segment: Segment, data: bytes) -> Segment:
        self.written.append(segment.key)
        self.store.put(segment.key, data)
        return segment

    def each(
        self, segments: Segments, changed: Callable[[StoredObject], tuple[Segment, bytes] | None]
    ) -> Segments:
        """Return a list with its changed segments written again, each in its place."""
        after: list[Segment] = []
        for segment in segments:
            new = changed(read_segment(self.store, segment, "Segment", _LOSS))
            after.append(segment if new is None else self.put(*new))
        return tuple(after)


def lists_without(store: Store, state: State, change: Change, written: list[str]) -> Lists:
    """Return the lists of a state without any trace of the files that a change erases.

    Args:
        store: The store that holds the dataset.
        state: The state after the erasure, with the lists from before it.
        change: The change, with the files that it takes out, and rewritten raw files.
        written: Receives the key of each segment before it is written.

    Cost:
        One GET a segment, and one PUT for each that changes; of an index the segments that hold
        pairs of files outside of every readable version are read and written.
    """
    erases = change.erases
    rewriting = _Rewriting(store, state.name, written)
    lists = state.lists

    def changed_runs(part: StoredObject) -> tuple[Segment, bytes] | None:
        noted = runs.decode(part.data, part.key)
        if erases.keys().isdisjoint(noted.carried):
            return None
        carried = {
            new: run for label, run in noted.carried.items() for new in replaced((label,), erases)
        }
        after = Runs(batches=noted.batches, carried=carried)
        return runs.new_segment(state.name, after), runs.encode(after)

    def changed_sources(part: StoredObject) -> tuple[Segment, bytes] | None:
        noted = sources.decode(part.data, part.key)
        after = _sources_without(noted, change)
        if after is noted:
            return None
        return sources.new_segment(state.name, after), sources.encode(after)

    segments, entries = history_without(store, state, change, written)
    lists = replace(
        lists,
        history=segments,
        runs=rewriting.each(lists.runs, changed_runs),
        sources=rewriting.each(lists.sources, changed_sources),
    )
    kept = kept_files(entries, state).labels
    return replace(
        lists,
        files=lists.files if state.is_tree else _facts_of(rewriting, lists.files, kept),
        postings=_postings_of(rewriting, state, lists, kept),
    )


def history_without(
    store: Store, state: State, change: Change, written: list[str]
) -> tuple[Segments, tuple[Entry, ...]]:
    """Return the history of a state without any trace of the files that a change erases.

    Segments of a tree stay: `lakebed.state.tree.erased_tree` writes them.

    Args:
        store: The store that holds the dataset.
        state: The state, with its history from before the erasure.
        change: The change, with the files that it takes out.
        written: Receives the key of each segment before it is written.

    Returns:
        The segments; and all entries in them, also those of a tree.

    Cost:
        One GET a segment, and one PUT for each that changes.
    """
    entries: list[Entry] = []

    def without(before: Iterable[Entry]) -> list[Entry]:
        after = [entry_without(one, change.erases) for one in before]
        entries.extend(after)
        return after

    def changed(part: StoredObject) -> tuple[Segment, bytes] | None:
        before = history.decode(part.data, part.key, part.modified_at)
        after = without(before)
        if all(new is old for new, old in zip(after, before, strict=True)):
            return None
        return history.new_segment(state.name, after), history.encode(after)

    rewriting, segments = _Rewriting(store, state.name, written), list[Segment]()
    for segment in state.lists.history:
        if isinstance(segment, history.OtherEntries):
            without(segment.read(store))
            segments.append(segment)
        else:
            segments += rewriting.each((segment,), changed)
    return tuple(segments), tuple(entries)


def _sources_without(noted: Sources, change: Change) -> Sources:
    """Return the record of raw files after an erasure; the same object if nothing changes."""
    rewritten, erases = change.rewritten_sources, change.erases
    is_of_files = any(file.key in rewritten for file in noted.files)
    if not is_of_files and erases.keys().isdisjoint(noted.runs):
        return noted
    files = tuple(
        msgspec.structs.replace(
            file, fingerprint=rewritten[file.key][0], size_bytes=rewritten[file.key][1]
        )
        if file.key in rewritten
        else file
        for file in noted.files
    )
    runs_left = {label: origins for label, origins in noted.runs.items() if label not in erases}
    return msgspec.structs.replace(noted, files=files, runs=runs_left)


def _facts_of(rewriting: _Rewriting, segments: Segments, kept: frozenset[str]) -> Segments:
    """Return the file table without the facts of files outside of every readable version.

    A damaged segment is left out: a plan knows nothing of its files then, as before.
    """
    labels = pa.array(sorted(kept), pa.string())

    def of(segment: Segment) -> tuple[Segment, ...]:
        try:
            data = rewriting.store.get(segment.key).data
            facts = file_table.decode(data, segment.key)
        except (CorruptMetadataError, ObjectNotFoundError) as exc:
            return _left_out(segment, exc)
        rest = facts.filter(pc.is_in(facts.column("label"), labels))
        if rest.num_rows == facts.num_rows:
            return (segment,)
        new = file_table.new_segment(rewriting.name, rest)
        return () if new is None else (rewriting.put(new, file_table.encode(rest)),)

    return tuple(new for segment in segments for new in of(segment))


def _postings_of(
    rewriting: _Rewriting, state: State, lists: Lists, kept: frozenset[str]
) -> dict[str, Segments]:
    """Return the indices without the pairs of files outside of every readable version."""
    ids = file_ids(sorted(kept))
    kept_ids = np.unique(ids[ids >= 0])
    types = state.layout.file_column_types

    def of(column: str, segment: Segment) -> tuple[Segment, ...]:
        store, kind = rewriting.store, type_to_arrow(types[column])
        try:
            footer, _ = open_segment(store, segment)
            covered, _ = file_ids_of(store, footer)
            is_kept = np.isin(covered, kept_ids)
            if is_kept.all():
                return (segment,)
            if not is_kept.any():
                return ()
            name = rewriting.name
            new = merge_segments(store, name, column, [segment], kind, kept_ids=kept_ids)
        except CorruptMetadataError as exc:
            return _left_out(segment, exc)
        return (rewriting.put(new.segment, new.data),)

    return {
        column: tuple(new for segment in segments for new in of(column, segment))
        for column, segments in lists.postings.items()
    }


def _left_out(segment: Segment, cause: LakebedError) -> tuple[Segment, ...]:
    _log.warning("damaged segment is left out key=%s: %s", segment.key, cause.message)
    return ()
