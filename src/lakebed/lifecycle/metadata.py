"""Compaction of metadata: the many segments of a list become one, without what nobody needs.

Commits merge segments too, each within the time of one commit; this does the rest.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CommitUnknownError, LakebedError, noting
from lakebed.lifecycle.inventory import Judge, Rules
from lakebed.state import file_table, history
from lakebed.state.published import Shown
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, State
from lakebed.state.transaction import CommitOptions, commit_and_tell
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment

_ROUNDS = 3
_MIN_HISTORY = 3  # a merged one, that of the commit that merged it, and anything since


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedList:
    """What became of one list of segments, or would.

    Attributes:
        name: `files` (the file table), `history`, or `index of` a column.
        segments_before: Number of segments.
        segments_after: Number of segments that took their place.
        dropped_count: Entries that were left out: facts of data files that no version that can
            be read has.
    """

    name: str
    segments_before: int
    segments_after: int
    dropped_count: int = 0


def compact_metadata(
    store: Store, name: str, options: CommitOptions | None = None, *, is_dry_run: bool = False
) -> tuple[MergedList, ...]:
    """Merge the file table and the history of a dataset, each to one segment.

    Facts of data files are left out that no version has which can be read. The old segments stay
    on storage until a cleanup takes them.

    Returns:
        The lists that changed. One is not among them if there is nothing to do, or if others kept
        changing it.

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
        wanted = (_file_table(store, state), _history(store, state))
        found = [one for one in wanted if one and one.report.name not in done]
        if is_dry_run:
            return tuple(one.report for one in found)
        if not found:
            break
        for one in found:
            for segment in one.new:
                store.put(segment.key, one.data)
        change = Change(
            operation="compact",
            commit_id=uuid.uuid4().hex,
            base_version=state.version,
            merged={one.report.name: (one.old, one.new) for one in found},
        )
        written = {segment.key for one in found for segment in one.new}
        try:
            entry, made = commit_and_tell(store, state, change, options)
        except CommitUnknownError:
            raise
        except LakebedError:
            delete_or_leave(store, sorted(written))
            raise
        # What the commit has named stays, though later ones may name it no more: somebody may
        # have read the head between. If nobody knows what it has named, a cleanup will tell.
        with noting(f"Version {entry.version} has merged lists: do it again for what is left."):
            after = made or read_own_head(store, name).state
        named = {segment.key for segment in (*after.files, *after.history)}
        if made is not None:
            delete_or_leave(store, sorted(written - named))
        for one in found:
            if all(segment.key in named for segment in one.new):
                done[one.report.name] = one.report
        if all(one.report.name in done for one in found):
            break
    return tuple(done.values())


@dataclass(frozen=True, slots=True)
class _Merge:
    report: MergedList
    old: tuple[Segment, ...]
    new: tuple[Segment, ...]
    data: bytes


def _file_table(store: Store, state: State) -> _Merge | None:
    """Return the file table as one segment; None if it is that already, and nothing is to go."""
    kept = kept_labels(store, state)
    known = sum(segment.weight for segment in state.files)
    if len(state.files) < 2 and known <= len(kept):
        return None
    labels = pa.array(sorted(kept), pa.string())
    parts, count = [], 0
    for segment in state.files:
        table = file_table.decode(store.get(segment.key).data, segment.key)
        left = table.filter(pc.is_in(table.column("label"), labels))
        count += left.num_rows
        parts += [file_table.encode(left)] if left.num_rows else []
    report = MergedList(
        name="files",
        segments_before=len(state.files),
        segments_after=1 if count else 0,
        dropped_count=known - count,
    )
    new = (Segment.new(file_table.folder(state.name), count, file_table.SUFFIX),) if count else ()
    return _Merge(report, state.files, new, file_table.merge(parts) if parts else b"")


def kept_labels(store: Store, state: State, shown: Sequence[Shown] = ()) -> frozenset[str]:
    """Return the files of every version that can be read, and those of protected batches.

    Args:
        store: Where the dataset is.
        state: What the head says.
        shown: What tables of a metastore show: their files are kept too.
    """
    rules = Rules(now=dt.datetime.now(dt.UTC), retention=dt.timedelta(), clock_skew=dt.timedelta())
    return Judge(state, history.read(store, state.history), {}, rules, shown).kept_labels


def _history(store: Store, state: State) -> _Merge | None:
    """Return the history as one segment; None if it is that already, but for the last commit."""
    if len(state.history) < _MIN_HISTORY:
        return None
    entries = history.read(store, state.history)
    report = MergedList(name="history", segments_before=len(state.history), segments_after=1)
    new = (Segment.new(history.folder(state.name), len(entries), history.SUFFIX),)
    return _Merge(report, state.history, new, history.encode_entries(entries))
