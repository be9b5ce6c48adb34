"""Compaction of metadata: merges the segments of a list into one, without unneeded entries.

Commits merge segments too, each within the time of one commit; this merges the remaining ones.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import noting
from lakebed.state import file_table, history
from lakebed.state.committing import CommitOptions
from lakebed.state.lists import FILES, HISTORY, Edit, Segments
from lakebed.state.published import Shown
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store
from lakebed.store.segments import Segment
from lakebed.work.inventory import Inventory, Rules
from lakebed.work.known_history import KnownHistory

_ROUNDS = 3
# Smallest number of segments that is merged. The history always has a merged segment and that of
# the commit that merged it, so it is worth merging from three on.
_LEAST = {FILES: 2, HISTORY: 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedList:
    """The result of merging one list of segments, or the expected result of a dry run.

    Attributes:
        name: `files` (the file table), `history`, or `index of` a column; `leaves` of a tree.
        segments_before: Number of segments before the merge.
        segments_after: Number of segments after the merge.
        dropped_count: Number of entries that were left out: facts about data files that are not in
            any readable version.
    """

    name: str
    segments_before: int
    segments_after: int
    dropped_count: int = 0


def compact_metadata(
    store: Store, name: str, options: CommitOptions | None = None, *, is_dry_run: bool = False
) -> tuple[MergedList, ...]:
    """Merge the file table and the history of a dataset, each to one segment.

    Facts about data files that are not in any readable version are left out. A history of more than
    four million labels stays as it is. The old segments stay on storage until a cleanup deletes
    them. Of a tree, commits in the root are folded and leaves are merged, without a new version.

    Returns:
        The lists that changed. A list is missing if there was nothing to do, or if other writers
        kept changing it.

    Raises:
        ReadOnlyError: The dataset cannot be written.
        CorruptMetadataError: A segment is damaged; nothing has changed.
        CommitUnknownError: The store stopped answering.

    Cost:
        The history and the file table, read once and written once, and one commit. Memory: the
        larger of the two.
    """
    done: dict[str, MergedList] = {}
    for _ in range(_ROUNDS):
        state = read_own_head(store, name).state
        if state.is_tree:
            return (*done.values(), *_compacted_tree(store, state, is_dry_run=is_dry_run))
        wanted = [_merged(store, state, list_name) for list_name in _LEAST if list_name not in done]
        merges = [merge for merge in wanted if merge is not None]
        if is_dry_run:
            return tuple(merge.report for merge in merges)
        if not merges:
            break
        with Transaction.on(store, state, "compact", options=options) as transaction:
            for merge in merges:
                for segment in merge.edit.added:
                    transaction.put(segment.key, merge.data)
            committed = transaction.commit(Change(edits=tuple(merge.edit for merge in merges)))
        version = committed.entry.version
        with noting(f"Version {version} has merged lists: run it again for the remaining ones."):
            after = committed.state or read_own_head(store, name).state
        named = set(after.lists.keys)
        for merge in merges:
            if all(segment.key in named for segment in merge.edit.added):
                done[merge.report.name] = merge.report
        if all(merge.report.name in done for merge in merges):
            break
    return tuple(done.values())


def object_counts(state: State) -> dict[str, int]:
    """Return the numbers of objects by which it is judged whether a compaction is worth it.

    Of a list they are its segments. Of a tree, whose leaves become more with its files, they are the
    runs of the level that has most; its history becomes shorter by folds alone.
    """
    lists = state.lists
    if state.is_tree:
        from lakebed.state.tree.tree_files import TreeFiles

        assert isinstance(state.live, TreeFiles)
        runs = {(ref.level, ref.run) for ref in state.live.root.refs}
        of_levels = Counter(level for level, _ in runs)
        counts = {"leaves": max(of_levels.values(), default=0)}
    else:
        counts = {"files": len(lists.files), "history": len(lists.history)}
    return counts | {f"index of {name}": len(one) for name, one in lists.postings.items()}


def _compacted_tree(store: Store, state: State, *, is_dry_run: bool) -> tuple[MergedList, ...]:
    """Fold the commits in the root of a tree, and merge all runs of leaves that are due."""
    from lakebed.state.tree.stored_folds import compacted

    counts = compacted(store, state, is_dry_run=is_dry_run)
    if counts is None:
        return ()
    before, after = counts
    return (MergedList(name="leaves", segments_before=before, segments_after=after),)


@dataclass(frozen=True, slots=True)
class _Merge:
    report: MergedList
    edit: Edit
    data: bytes


def _merged(store: Store, state: State, name: str) -> _Merge | None:
    """Return a list as one segment; None if it is one already, and has no entry to drop."""
    return _merged_history(store, state) if name == HISTORY else _merged_files(store, state)


def _merged_history(store: Store, state: State) -> _Merge | None:
    segments = state.lists.history
    if len(segments) < _LEAST[HISTORY] or _weigh(segments) > history.MOST_COMPACTED:
        return None
    entries = history.joined([store.get(segment.key) for segment in segments])
    new = history.new_segment(state.name, entries)
    if new.weight > history.MOST_COMPACTED:  # labels in segments of early releases have no weight
        return None
    return _merge_of(HISTORY, segments, (new,), history.encode(entries))


def _merged_files(store: Store, state: State) -> _Merge | None:
    segments, kept = state.lists.files, kept_labels(store, state)
    known = _weigh(segments)
    if len(segments) < _LEAST[FILES] and known <= len(kept):
        return None
    count, data = _file_table(store, segments, kept)
    folder, suffix = file_table.folder(state.name), file_table.SUFFIX
    new = (Segment.new(folder, count, suffix),) if count else ()
    return _merge_of(FILES, segments, new, data, dropped_count=known - count)


def _weigh(segments: Segments) -> int:
    return sum(segment.weight for segment in segments)


def _merge_of(
    name: str, before: Segments, after: Segments, data: bytes, *, dropped_count: int = 0
) -> _Merge:
    report = MergedList(
        name=name,
        segments_before=len(before),
        segments_after=len(after),
        dropped_count=dropped_count,
    )
    return _Merge(report, Edit(name=name, removed=before, added=after, is_in_place=True), data)


def _file_table(
    store: Store, segments: Sequence[Segment], kept: frozenset[str]
) -> tuple[int, bytes]:
    """Return the number of files that remain in the file table, and their segment."""
    labels = pa.array(sorted(kept), pa.string())
    tables = []
    for segment in segments:
        table = file_table.decode(store.get(segment.key).data, segment.key)
        rows = table.filter(pc.is_in(table.column("label"), labels))
        tables += [rows] if rows.num_rows else []
    count = sum(table.num_rows for table in tables)
    return count, file_table.encode_joined(tables) if tables else b""


def kept_labels(store: Store, state: State, shown: Sequence[Shown] = ()) -> frozenset[str]:
    """Return the files of every readable version, and those of protected batches.

    Args:
        store: The store that holds the dataset.
        state: The current state.
        shown: The versions that tables show; their files are kept too. Files that readers of an
            earlier version of a table may still use are not included: a cleanup with a short
            retention deletes them.
    """
    rules = Rules(now=dt.datetime.now(dt.UTC), retention=dt.timedelta(), clock_skew=dt.timedelta())
    entries = history.read(store, state.lists.history)
    notes = tuple(msgspec.structs.replace(note, left=()) for note in shown)
    known = KnownHistory(entries)
    alone = Inventory(objects=(), state=state, history=known, reserved={}, published=notes)
    return alone.judge_by(state, rules).kept_labels
