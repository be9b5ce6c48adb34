"""Indices of a dataset: build them for existing files, drop and describe them.

Writers of rows also write their postings, as soon as the descriptor names the column. So a build
names the column first: from then on, only files that were there before, and those of writers that
had started before, lack postings. The build indexes them group by group, one commit each, and
repeats until none is missing. An interrupted build continues where it stopped, since the segments
name the files that they cover.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.intact import with_recorded
from lakebed.arrow.kernel import WriteOptions
from lakebed.arrow.scan import scan
from lakebed.arrow.workers import Workers, gather
from lakebed.commit import Commit
from lakebed.common.grouping import balanced_groups, portions
from lakebed.common.html import facts_to_html
from lakebed.common.progress import NO_PROGRESS, OnFileDone, OnProgress, Tally
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    SchemaMismatchError,
    noting,
)
from lakebed.index import kartothek_file as index_file
from lakebed.index.postings_writer import (
    HomesOf,
    Postings,
    PostingsWriter,
    groups_to_merge,
    joined_postings,
    keys_of_postings,
    merge_segments,
)
from lakebed.index.segment import Footer, file_count_of, file_ids_of, open_segment
from lakebed.index.value_order import rank
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import file_ids, split_label
from lakebed.model.layout import Layout
from lakebed.model.names import nearest
from lakebed.model.predicate import TRUE
from lakebed.plan.plan import DataFile, Scan
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table
from lakebed.state.committing import CommitOptions, Committed
from lakebed.state.history import Entry
from lakebed.state.index_files import put_index_file, text_type
from lakebed.state.lists import Edit, Lists, Segments, postings_of
from lakebed.state.reader import read_own_head
from lakebed.state.state import Change, State, digest_of
from lakebed.state.transaction import Transaction
from lakebed.state.updates import update
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import Segment
from lakebed.work.defaults import INDEX_COMMIT_BYTES
from lakebed.work.metadata_compaction import MergedList, kept_labels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

_ROUNDS = 5  # searches for files of writers that had started before the build
_THREADS = 8
_WRITERS = 4  # threads that index files in this process, each with memory of its own
# Above this share of the files that hold a value on average, few files are ever dropped.
COMMON_SHARE = 0.2
# If at most this many files have bounds that hold a value, an index drops hardly any more files.
_CLUSTERED_FILES = 2.0
_FEW_FILES = 5  # below this, there is no warning
_BY_PATH = (
    "It is a partition field: files are found by its values in their paths. There was nothing to "
    "build, and there is nothing to drop."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvertedIndex:
    """The index of one column.

    Attributes:
        column: Name of the column.
        segment_count: Number of segments, each an object.
        size_bytes: Total size of the segments.
        file_count: Number of live data files.
        covered_count: Number of live data files that it covers; the others are always read.
        indexed_count: Number of files whose postings it has; includes files that are not live.
        value_count: Distinct values, summed over the segments, without null and NaN.
        pair_count: Pairs of a value and a file that holds it, including null and NaN.
        files_per_value: Files of one segment that hold a value, on average; None without values.
            A value may be in several segments, so this grows when segments are merged.
        lost: Segments that cannot be read, with the reason, by key.
        warning: Reason why the index does not help; empty if it does.
        is_dry_run: True if it is the index before a build that was only asked for.
        missing_count: Number of live data files that such a build would read; 0 otherwise.
        missing_bytes: Their total size.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("id", pa.int64())]), index=["id"])
    >>> numbers = open_repository("memory://doctest-indices").create("numbers", descriptor)
    >>> _ = numbers.append([{"id": 1}, {"id": 2}, {"id": 2}])
    >>> (index,) = numbers.indices.list()
    >>> index.covered_count, index.file_count, index.value_count, index.values_per_file
    (1, 1, 2, 2.0)
    """

    column: str
    segment_count: int
    size_bytes: int
    file_count: int
    covered_count: int
    indexed_count: int
    value_count: int
    pair_count: int
    files_per_value: float | None
    lost: Mapping[str, str]
    warning: str
    is_dry_run: bool = False
    missing_count: int = 0
    missing_bytes: int = 0

    @property
    def is_complete(self) -> bool:
        """True if it covers every live file."""
        return self.covered_count == self.file_count

    @property
    def values_per_file(self) -> float | None:
        """Average number of distinct values in a file."""
        return self.pair_count / self.indexed_count if self.indexed_count else None

    @property
    def file_share(self) -> float | None:
        """Average share of the files that hold a value, as a lower bound; None without values."""
        return None if self.files_per_value is None else self.files_per_value / self.indexed_count

    def __repr__(self) -> str:
        return (
            f"<InvertedIndex of {self.column!r}: {self.covered_count:,} of {self.file_count:,} "
            f"files, {self.size_bytes:,} bytes>"
        )

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Index of {self.column}",
            {
                "files covered": f"{self.covered_count:,} of {self.file_count:,}",
                "segments": self.segment_count,
                "bytes": f"{self.size_bytes:,}",
                "values": f"{self.value_count:,}",
                "warning": self.warning or "none",
            },
        )


def describe_indices(store: Store, state: State) -> tuple[InvertedIndex, ...]:
    """Return the indices of a state, in the order of its descriptor; see `Dataset.indices.list`."""
    live = file_ids(state.labels)
    indices = []
    for column in state.descriptor.index:
        coverage = _read_coverage(store, _segments_of(state, column))
        covered = int(np.isin(live[live >= 0], coverage.file_ids).sum())
        values = coverage.value_count
        index = InvertedIndex(
            column=column,
            segment_count=len(_segments_of(state, column)),
            size_bytes=coverage.size_bytes,
            file_count=state.live.count,
            covered_count=covered,
            indexed_count=len(coverage.file_ids),
            value_count=values,
            pair_count=coverage.pair_count,
            files_per_value=coverage.regular_pair_count / values if values else None,
            lost=coverage.lost,
            warning="",
        )
        indices.append(replace(index, warning=_warning(store, state, index)))
    return tuple(indices)


def _segments_of(state: State, column: str) -> Segments:
    """Return the segments of the index of a field."""
    return state.lists.postings.get(state.descriptor.schema.stored_name(column), ())


@dataclass(frozen=True, slots=True)
class _Coverage:
    """Totals over the segments of one column, from their footers.

    Attributes:
        file_ids: Ids of the covered files, ascending.
        value_count: Distinct values, summed over the segments.
        pair_count: Pairs of a value and a file that holds it.
        regular_pair_count: Pairs without null and NaN.
        size_bytes: Total size of the segments.
        lost: Segments that cannot be read, with the reason, by key.
    """

    file_ids: np.ndarray
    value_count: int
    pair_count: int
    regular_pair_count: int
    size_bytes: int
    lost: Mapping[str, str]


def _read_coverage(store: Store, segments: Sequence[Segment]) -> _Coverage:
    def read(segment: Segment) -> tuple[Footer, np.ndarray] | str:
        try:
            footer, _ = open_segment(store, segment)
            return footer, file_ids_of(store, footer)[0]
        except CorruptMetadataError as exc:
            return exc.message

    answers = list(at_once(read, segments, _THREADS))
    known = [answer for answer in answers if not isinstance(answer, str)]
    footers = [footer for footer, _ in known]
    return _Coverage(
        file_ids=np.unique(np.concatenate([np.zeros(0, np.int64), *(ids for _, ids in known)])),
        value_count=sum(footer.value_count for footer in footers),
        pair_count=sum(footer.pair_count for footer in footers),
        regular_pair_count=sum(footer.regular_pair_count for footer in footers),
        size_bytes=sum(footer.size_bytes for footer in footers),
        lost={
            segment.key: answer
            for segment, answer in zip(segments, answers, strict=True)
            if isinstance(answer, str)
        },
    )


def _warning(store: Store, state: State, index: InvertedIndex) -> str:
    """Return the reason why an index does not help; empty if it does."""
    if min(index.file_count, index.indexed_count) < _FEW_FILES:
        return ""
    if index.file_share is not None and index.file_share > COMMON_SHARE:
        return (
            f"A value is in {index.file_share:.0%} of the files on average, so few are ever "
            "dropped. Drop the index, or partition by the column."
        )
    overlap = _overlap(store, state, index.column)
    if overlap is not None and overlap <= _CLUSTERED_FILES:
        return (
            f"The data is sorted by the column: the bounds of {overlap:.1f} files hold a value on "
            "average, so the bounds alone find the files. Drop the index."
        )
    return ""


def _overlap(store: Store, state: State, column: str) -> float | None:
    """Return the average number of files whose bounds hold a value; None if unknown."""
    kind = type_to_arrow(state.descriptor.column_types[column])
    labels = pa.array(state.labels, pa.large_string())
    held = state.descriptor.schema.stored_name(column)
    facts = file_table.find(store, state.lists.files, labels, {held: kind})
    bounds = facts.columns.get(held)
    if bounds is None:
        return None
    lows, highs = bounds.min.combine_chunks(), bounds.max.combine_chunks()
    is_known = pc.and_(lows.is_valid(), highs.is_valid())
    lows, highs = lows.filter(is_known), highs.filter(is_known)
    if len(lows) < _FEW_FILES:
        return None
    ranks = rank(pa.concat_arrays([lows, highs])).ranks
    starts, ends = np.sort(ranks[: len(lows)]), np.sort(ranks[len(lows) :])
    at = ranks[: len(lows)]
    holding = np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "left")
    return float(holding.mean())


def build_index(
    store: Store,
    dataset: str,
    column: str,
    *,
    spark: SparkSession | None = None,
    on_progress: OnProgress = NO_PROGRESS,
    commit_bytes: int = INDEX_COMMIT_BYTES,
    options: CommitOptions | None = None,
) -> InvertedIndex:
    """Index a column of the existing files; see `Dataset.indices.build`."""
    state = read_own_head(store, dataset).state
    if column in state.layout.partition_level_types:
        return _index_by_path(state, column)
    _name_column(store, dataset, column, options)
    purpose = f"index {column} of {dataset}"
    workers = workers_for(
        spark,
        store,
        threads=min(_WRITERS, os.cpu_count() or 1),
        purpose=purpose,
    )
    tally = Tally(on_progress, purpose)
    done = 0

    def note() -> str:
        return (
            f"Writers index {column!r} from now on, and {done} existing files are indexed: build "
            "it again for the remaining ones."
        )

    with noting(note):
        for _ in range(_ROUNDS):
            state = read_own_head(store, dataset).state
            missing = _missing_files(store, state, column)
            if not missing:
                break
            sized = _sized(store, state, missing)
            tally.expect(
                {one.file.label: one.size_bytes for one in sized},
                {one.file.label: one.row_count for one in sized if one.row_count is not None},
            )
            for files in portions(sized, commit_bytes):
                with Transaction.on(store, state, "index", options=options) as transaction:
                    postings = _index_files(store, state, column, files, workers, tally)
                    transaction.commit(Change(edits=Lists(postings=postings).additions()))
                done += len(files)
        compact_indices(store, dataset, columns=(column,), options=options)
    with noting(f"The index of {column!r} is built: `indices.list` describes it."):
        state = read_own_head(store, dataset).state
        described = describe_indices(store, state)
    for index in described:
        if index.column == column:
            return index
    raise CommitConflictError(
        f"The index of {column!r} in {dataset!r} was dropped while it was built.",
        hint="Build it again if you still need it.",
        expected=state.version,
        actual=state.version,
    )


def find_build(
    store: Store, dataset: str, column: str, options: CommitOptions | None = None
) -> InvertedIndex:
    """Return the index of a column before a build, with the data files that the build would read.

    Args:
        store: The store of a dry run: the column is named on it.
        dataset: Name of the dataset.
        column: The column to index.
        options: Options of the commits.

    Raises:
        LakebedError: As for `build_index`, as far as no data file is read.
    """
    state = read_own_head(store, dataset).state
    if column in state.layout.partition_level_types:
        return replace(_index_by_path(state, column), is_dry_run=True)
    _name_column(store, dataset, column, options)
    state = read_own_head(store, dataset).state
    (index,) = (one for one in describe_indices(store, state) if one.column == column)
    missing = _sized(store, state, _missing_files(store, state, column))
    return replace(
        index,
        is_dry_run=True,
        missing_count=len(missing),
        missing_bytes=sum(one.size_bytes for one in missing),
    )


def find_uncovered(store: Store, state: State, column: str) -> tuple[int, int]:
    """Return the number of data files that an index does not cover, and their bytes.

    Cost:
        The footers of the index, and the file table of these files.
    """
    if column in state.layout.partition_level_types:
        return 0, 0
    missing = _sized(store, state, _missing_files(store, state, column))
    return len(missing), sum(one.size_bytes for one in missing)


def _index_by_path(state: State, column: str) -> InvertedIndex:
    """Return the description of a partition field as an index: the paths serve as one."""
    return InvertedIndex(
        column=column,
        segment_count=0,
        size_bytes=0,
        file_count=state.live.count,
        covered_count=state.live.count,
        indexed_count=0,
        value_count=len(
            {state.layout.directory_values(directory)[column] for directory in state.directories()}
        ),
        pair_count=0,
        files_per_value=None,
        lost={},
        warning=_BY_PATH,
    )


def _name_column(store: Store, dataset: str, column: str, options: CommitOptions | None) -> None:
    """Add the column to the descriptor, so that writers index it."""

    def with_column(old: DatasetDescriptor) -> DatasetDescriptor:
        if column in old.index:
            return old
        names = old.schema.names
        if column not in names and column not in old.partition_types and "." not in column:
            raise SchemaMismatchError(
                f"Dataset {dataset!r} has no column {column!r}.",
                hint=nearest(column, names) or f"Columns are: {', '.join(names)}.",
            )
        return replace(old, index=(*old.index, column))

    update(store, dataset, with_column, options)


def drop_index(
    store: Store, dataset: str, column: str, options: CommitOptions | None = None
) -> tuple[Entry | Committed, State]:
    """Drop the index of a column; see `Dataset.indices.drop`."""

    def without_column(old: DatasetDescriptor) -> DatasetDescriptor:
        if column not in old.index:
            raise InvalidInputError(
                f"Dataset {dataset!r} has no index of {column!r}.",
                hint=(_BY_PATH if column in old.partition_types else "")
                or nearest(column, old.index)
                or f"Indexed are: {', '.join(old.index) or 'no columns'}.",
            )
        return replace(old, index=tuple(name for name in old.index if name != column))

    done = update(store, dataset, without_column, options)
    return done.committed or done.entry, done.base


class _Sized(NamedTuple):
    """A data file with its size, and its row count if known."""

    file: DataFile
    size_bytes: int
    row_count: int | None


def _missing_files(store: Store, state: State, column: str) -> list[DataFile]:
    """Return the files without postings in a readable segment, if they can have any."""
    coverage = _read_coverage(store, _segments_of(state, column))
    ids = file_ids(state.labels)
    is_missing = (ids >= 0) & ~np.isin(ids, coverage.file_ids)
    missing = {state.labels[position] for position in np.flatnonzero(is_missing)}
    return [file for file in plan(state, TRUE, requests=0).files if file.label in missing]


def _sized(store: Store, state: State, files: Sequence[DataFile]) -> list[_Sized]:
    counts = file_table.read_counts(store, state.lists.files)
    sized = []
    for file in files:
        row_count, size_bytes = counts.get(file.label, (None, None))
        sized.append(
            _Sized(file, store.size(file.key) if size_bytes is None else size_bytes, row_count)
        )
    return sized


def _index_files(
    store: Store,
    state: State,
    column: str,
    files: Sequence[_Sized],
    workers: Workers,
    tally: Tally,
) -> Postings:
    """Write the postings of files, in groups of about equal size that run in parallel."""
    sizes = {sized.file.label: sized.size_bytes for sized in files}
    # Verify files: wrong postings of a damaged file would remain after its restoration.
    by_label = {
        file.label: file
        for file in with_recorded(store, state.lists.files, (sized.file for sized in files))
    }
    layout, report, is_tree = state.layout, workers.listening(tally.listener), state.is_tree

    def index(labels: list[str]) -> dict[str, tuple[Segment, ...]]:
        return index_group(
            store,
            layout,
            column,
            [by_label[label] for label in labels],
            on_indexed=report,
            is_tree=is_tree,
        )

    groups = balanced_groups(sizes, workers.count_for(sum(sizes.values()), len(sizes)))
    parts = workers.map(index, groups, dict[str, tuple[Segment, ...]])
    postings = joined_postings(gather(store, parts, keys_of_postings))
    tally.add(*sizes)
    return postings


def index_group(
    store: Store,
    layout: Layout,
    column: str,
    files: Sequence[DataFile],
    *,
    on_indexed: OnFileDone = NO_PROGRESS,
    is_tree: bool = False,
) -> dict[str, tuple[Segment, ...]]:
    """Write the postings of some files, from their rows.

    Raises:
        DamagedFileError: A data file is damaged; the new postings are deleted.
        CorruptMetadataError: A data file is missing; the new postings are deleted.

    Cost:
        The whole files, if their checksums were recorded; else, for Parquet, the chunks of the
        column.
    """
    kind = type_to_arrow(layout.column_types[column])
    held = layout.descriptor.schema.stored_name(column)
    writer = PostingsWriter(
        store,
        layout.name,
        {held: kind},
        WriteOptions().memory_bytes // 8,
        with_homes=is_tree,
    )
    try:
        for file in files:
            values = writer.new_file(file.label)
            with scan(store, Scan(layout=layout, files=(file,)), [column]) as batches:
                for batch in batches:
                    values.add(pa.Table.from_batches([batch]).rename_columns([held]))
            writer.add(file.label, values)
            on_indexed(file.label)
        return writer.finish()
    except BaseException:
        writer.abort()
        raise


def compact_indices(
    store: Store,
    dataset: str,
    *,
    columns: Sequence[str] | None = None,
    options: CommitOptions | None = None,
    is_dry_run: bool = False,
) -> tuple[MergedList, ...]:
    """Merge the segments of indices into a few, without files that are in no version.

    If an index then covers every live file, it is also written in the format of other tools.

    Returns:
        The indices that changed, or would change; see `compact_metadata`.

    Raises:
        ReadOnlyError: The dataset cannot be written.
        CommitUnknownError: The store stopped answering.

    Cost:
        The merged segments, read and written once, column by column, and one commit; the segments
        of a complete index once more for other tools. Memory: one new segment.
    """
    state = read_own_head(store, dataset).state
    name_of = state.descriptor.schema.stored_name
    merged_lists: list[MergedList] = []
    edits: list[Edit] = []
    indices: dict[str, str] = {}
    covers: set[str] = set()
    with Transaction.on(store, state, "compact", options=options) as transaction:
        for column in state.descriptor.index if columns is None else columns:
            segments, held = _segments_of(state, column), name_of(column)
            try:
                groups = _groups_of(state, segments)
                merged = tuple(segment for group in groups for segment in group)
                if not is_dry_run:
                    new = _merge_groups(store, transaction, column, groups)
                    edits.append(Edit(name=postings_of(held), removed=merged, added=new))
                    after = edits[-1].of(segments)
                    if state.is_tree and _covers_all(store, state, after):
                        covers.add(held)
                    indices.update(_write_index_file(store, transaction, column))
            except CorruptMetadataError as exc:
                _log.warning("index is left as it is column=%s error=%s", column, exc)
                continue
            if merged or held in indices or (held in covers and held not in state.indexed):
                merged_lists.append(
                    MergedList(
                        name=f"index of {column}",
                        segments_before=len(segments),
                        segments_after=len(segments) - len(merged) + len(groups),
                    )
                )
        if merged_lists and not is_dry_run:
            transaction.commit(
                Change(
                    edits=tuple(edit for edit in edits if edit.added),
                    indices=indices,
                    indices_of="" if state.is_tree else digest_of(state.labels),
                    covers=frozenset(covers),
                )
            )
    return tuple(merged_lists)


def _groups_of(state: State, segments: Sequence[Segment]) -> list[list[Segment]]:
    """Return groups of segments to merge; of a tree also those without directories of files."""
    groups = groups_to_merge(segments)
    if state.is_tree:
        grouped = {segment for group in groups for segment in group}
        rest = (segment for segment in segments if segment not in grouped)
        groups += [[segment] for segment in rest if file_count_of(segment) is None]
    return groups


def _covers_all(store: Store, state: State, segments: Sequence[Segment]) -> bool:
    """Return whether segments cover all live files, each with the directory of its file."""
    if any(file_count_of(segment) is None for segment in segments):
        return False
    covered = _read_coverage(store, segments)
    pieces = (file_ids(piece) for piece in state.live.pieces())
    return not covered.lost and all(np.isin(ids, covered.file_ids).all() for ids in pieces)


def _homes_of(labels: Sequence[str]) -> HomesOf:
    """Return the function that returns the directories of files by their ids."""
    ids = file_ids(labels)
    order = np.argsort(ids, kind="stable")

    def homes(wanted: np.ndarray) -> list[str]:
        places = order[np.searchsorted(ids, wanted, sorter=order)].tolist()
        return [split_label(labels[place])[0] for place in places]

    return homes


def write_index_files(
    store: Store, dataset: str, options: CommitOptions | None = None
) -> Commit | None:
    """Write indices that cover every live file in the format of other tools, and name them.

    Returns:
        The commit; None if there was nothing to write.

    Raises:
        ReadOnlyError: The dataset cannot be written.
        CommitUnknownError: The store stopped answering.

    Cost:
        The head; the segments of each index that is not named yet, read once; and one commit.
    """
    state = read_own_head(store, dataset).state
    indices: dict[str, str] = {}
    with Transaction.on(store, state, "compact", options=options) as transaction:
        for column in state.descriptor.index:
            indices.update(_write_index_file(store, transaction, column))
        if not indices:
            return None
        committed = transaction.commit(Change(indices=indices, indices_of=digest_of(state.labels)))
    return Commit.of(committed, state)


def _merge_groups(
    store: Store, transaction: Transaction, column: str, groups: Sequence[Sequence[Segment]]
) -> tuple[Segment, ...]:
    if not groups:
        return ()
    state = transaction.base
    labels = sorted(kept_labels(store, state))
    kept = file_ids(labels)
    kind = type_to_arrow(state.layout.column_types[column])
    held = state.descriptor.schema.stored_name(column)
    written: list[Segment] = []
    try:
        for group in groups:
            merged = merge_segments(
                store,
                state.name,
                held,
                group,
                kind,
                kept_ids=np.unique(kept[kept >= 0]),
                homes_of=_homes_of(labels) if state.is_tree else None,
            )
            transaction.put(merged.segment.key, merged.data)
            written.append(merged.segment)
    except CorruptMetadataError:
        transaction.discard(keys=[segment.key for segment in written])
        raise
    return tuple(written)


def _write_index_file(store: Store, transaction: Transaction, column: str) -> dict[str, str]:
    """Write the index in the format of other tools, if complete; return its key.

    The key is by the name of the column in data files, which those tools know.
    """
    state = transaction.base
    held = state.descriptor.schema.stored_name(column)
    ids, texts = file_ids(state.labels), text_type(state.descriptor)
    if held in state.indices or texts is None or state.is_tree or (ids < 0).any():
        return {}
    try:
        data = index_file.encode(
            store,
            held,
            _segments_of(state, column),
            state.layout.column_types[column],
            dict(zip(ids.tolist(), state.labels, strict=True)),
            texts,
        )
    except (CorruptMetadataError, pa.ArrowException) as exc:
        _log.warning("index is not written for other tools column=%s error=%s", column, exc)
        return {}
    if data is None:
        return {}
    now = dt.datetime.now(dt.UTC)
    key = put_index_file(store, state.name, held, data, now, digest=state.digest)
    transaction.note(key)
    return {held: key}
