"""The files of all readable versions that hold rows to erase, and files of the remaining rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.rewrite import (
    RewriteJob,
    Routed,
    Work,
    file_partition,
    kept_parts,
    rewrite,
    work_of,
)
from lakebed.arrow.sieve import RowFilter
from lakebed.arrow.workers import gather
from lakebed.errors import CorruptMetadataError, LakebedError
from lakebed.index.segment import file_ids_of, open_segment
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import batch_id_of, file_ids
from lakebed.model.layout import Layout
from lakebed.model.predicate import TRUE, Predicate, any_of, leaves, roots_of
from lakebed.plan.indices import names_values
from lakebed.plan.plan import DataFile, Scan
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state import file_table, runs, sources
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.store.segments import Segment
from lakebed.work.former_layouts import FormerLayouts, LayoutQuestion
from lakebed.work.matched_lines import Lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILES_AT_ONCE = 8  # each holds a few row groups of the columns of the condition
_WRITERS = 4
_WHOLE = 2**50  # bytes; a file is not cut, however large


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureCondition:
    """The condition on the rows to erase.

    Attributes:
        predicate: A condition on fields, not bound to types; TRUE in a dataset of rejects.
        lines: The condition on texts, of a dataset of rejects; None for a dataset of rows.
    """

    predicate: Predicate
    lines: Lines | None = None


LINE_FIELDS = ("line", "text", "reason")
"""Fields of a dataset of rejects that hold a line, or a part of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingFile:
    """A data file that holds rows to erase.

    Attributes:
        label: Name of the file in the history.
        key: Path of the file in the repository.
        row_count: Number of rows to erase.
        size_bytes: Length of the file; 0 if unknown.
        mask: For each row of the file whether it is erased; None for all rows.
    """

    label: str
    key: str
    row_count: int
    size_bytes: int
    mask: np.ndarray | None

    @property
    def is_whole(self) -> bool:
        """True if no row of the file remains."""
        return self.mask is None

    def joined(self, other: HoldingFile | None) -> HoldingFile:
        """Return the same file with the rows of both, which were found by different questions."""
        if other is None or self.mask is None:
            return self
        return other if other.mask is None else _holding(self, self.mask | other.mask)


def _holding(file: HoldingFile, mask: np.ndarray) -> HoldingFile:
    count = int(np.count_nonzero(mask))
    return replace(file, row_count=count, mask=None if count == len(mask) else mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The result of a search of some files.

    Attributes:
        found: Files that hold rows to erase.
        unreadable: The reason, by key, for each file that cannot be searched.
    """

    found: tuple[HoldingFile, ...]
    unreadable: Mapping[str, str]


def search(
    store: Store,
    layouts: FormerLayouts,
    condition: ErasureCondition,
    labels: Iterable[str],
    spark: SparkSession | None = None,
) -> Searched:
    """Find the files that hold rows of a condition.

    Args:
        store: The store that holds the files.
        layouts: The layouts that the files were written under.
        condition: The condition on the rows.
        labels: Labels of the files to search.
        spark: Session whose tasks search; None for threads.

    Raises:
        PredicateError: The condition names a partition field that some of the files do not have.

    Cost:
        The file table and the indices, as for a query of all these files; of files that may hold
        such rows, the columns of the condition. Memory: a byte for each row of the files that do.
    """
    counts = file_table.read_counts(store, layouts.state.lists.files)
    found: dict[str, HoldingFile] = {}
    unreadable: dict[str, str] = {}
    for question, asked in layouts.questions(condition.predicate, labels).items():
        state = layouts.holding(question, asked)
        chosen_files = plan(state, question.predicate, requests=0, store=store).files
        one = _Search(store, state.layout, question.predicate, condition.lines)
        workers = workers_for(
            spark, store, threads=_FILES_AT_ONCE, purpose=f"search rows to erase from {state.name}"
        )
        known = [(file, *counts.get(file.label, (None, 0))) for file in chosen_files]
        parts = workers.map(one.inspect, workers.shares(known), _Inspections)
        for result in (result for part in parts for result in part.results):
            if result.problem:
                unreadable[result.key] = result.problem
            elif result.found is not None:
                label = result.found.label
                found[label] = result.found.joined(found.get(label))
    return Searched(found=tuple(found.values()), unreadable=unreadable)


@dataclass(frozen=True, slots=True)
class _Inspected:
    key: str
    found: HoldingFile | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Inspections:
    results: list[_Inspected]


@dataclass(frozen=True, slots=True)
class _Search:
    store: Store
    layout: Layout
    predicate: Predicate
    lines: Lines | None

    def inspect(self, files: Iterable[tuple[DataFile, int | None, int]]) -> _Inspections:
        """Look into files, of which the number of rows and the bytes are known or not."""
        return _Inspections([self._inspect(*one) for one in files])

    def _inspect(self, file: DataFile, rows: int | None, size: int) -> _Inspected:
        try:
            return _Inspected(file.key, self._look(file, rows, size))
        except CorruptMetadataError as exc:
            return _Inspected(file.key, problem=exc.message)

    def _look(self, file: DataFile, rows: int | None, size: int) -> HoldingFile | None:
        alone = Scan(layout=self.layout, files=(replace(file, is_filtered=False),))
        if not file.is_filtered and self.lines is None:
            if rows is None:
                rows = scan.count(self.store, alone)
            return HoldingFile(
                label=file.label, key=file.key, row_count=rows, size_bytes=size, mask=None
            )
        columns, mask_of = self._chooser()
        with scan.scan(self.store, alone, columns) as batches:
            masks = [mask_of(batch) for batch in batches]
        mask = np.concatenate([np.zeros(0, np.bool_), *masks])
        if not mask.any():
            return None
        whole = HoldingFile(
            label=file.label, key=file.key, row_count=len(mask), size_bytes=size, mask=None
        )
        return _holding(whole, mask)

    def _chooser(self) -> tuple[tuple[str, ...], Callable[[pa.RecordBatch], np.ndarray]]:
        """Return the columns that the condition needs, and its mask for rows with them."""
        lines = self.lines
        if lines is not None:
            names = tuple(name for name in LINE_FIELDS if name in self.layout.descriptor.schema)
            return names, lambda batch: lines.mask(batch.columns)
        types = self.layout.predicate_types
        return roots_of(self.predicate, types), RowFilter.of(self.predicate, types).mask


def told_by_path(
    layouts: FormerLayouts, condition: ErasureCondition, labels: Iterable[str]
) -> frozenset[str]:
    """Return the labels of given-up files whose directories show a value of a condition.

    That is one which the condition names by `=` or `IN`, or all rows of the directory meet the
    condition. A file is left out if its directory shows that it has no such row, or is not one that
    Lakebed wrote.
    """
    if condition.lines is not None:
        return frozenset()
    known = [label for label in labels if layouts.knows(label)]
    told: set[str] = set()
    for question, asked in layouts.questions(condition.predicate, known, skips=True).items():
        named = any_of([one for one in leaves(question.predicate) if names_values(one)])
        shown = _by_path(layouts, replace(question, predicate=named), asked)
        told.update(
            file.label
            for file in _by_path(layouts, question, asked).values()
            if not file.is_filtered or (file.label in shown and not shown[file.label].is_filtered)
        )
    return frozenset(told)


def _by_path(
    layouts: FormerLayouts, question: LayoutQuestion, labels: Sequence[str]
) -> dict[str, DataFile]:
    """Return the files that may have such rows, by label, as far as their directories show."""
    try:
        files = plan(layouts.holding(question, labels), question.predicate, requests=0).files
    except CorruptMetadataError:
        if len(labels) == 1:
            return {}
        return {
            label: file
            for one in labels
            for label, file in _by_path(layouts, question, [one]).items()
        }
    return {file.label: file for file in files}


def told_by_metadata(
    store: Store, layouts: FormerLayouts, condition: ErasureCondition, labels: Collection[str]
) -> frozenset[str]:
    """Return the labels for which the head still names values, perhaps of rows of a condition.

    The values are bounds in the file table, and pairs of the indices. The files themselves are not
    read: a cleanup has given up the versions that had them, and may have deleted them.

    Cost:
        The file table and the indices, as for a query of these files; the footer of each segment of
        the indices, unless the process has read it before.
    """
    lists = layouts.state.lists
    if not labels:
        return frozenset()
    known = file_table.with_bounds(store, lists.files, labels) | _indexed_files(
        store, (one for segments in lists.postings.values() for one in segments), labels
    )
    questions = layouts.questions(condition.predicate, known, skips=True)
    told = set(known.difference(*questions.values()))
    for question, asked in questions.items():
        state = layouts.holding(question, asked)
        try:
            files = plan(state, question.predicate, requests=0, store=store).files
        except LakebedError:
            told.update(asked)  # some do not fit the schema any more
            continue
        told.update(file.label for file in files)
    return frozenset(told)


def _indexed_files(
    store: Store, segments: Iterable[Segment], labels: Collection[str]
) -> frozenset[str]:
    """Return those of some files of which an index has pairs; all if it cannot be read."""
    ordered = sorted(labels)
    ids = file_ids(ordered)
    is_covered = np.zeros(len(ordered), np.bool_)
    for segment in segments:
        try:
            covered, _ = file_ids_of(store, open_segment(store, segment)[0])
        except CorruptMetadataError:
            return frozenset(labels)
        is_covered |= np.isin(ids, covered)
    return frozenset(label for label, found in zip(ordered, is_covered, strict=True) if found)


@dataclass(frozen=True, slots=True)
class _Kept:
    """Leaves out the rows of a mask."""

    mask: np.ndarray

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterable[Routed]:
        gone = self.mask[start : start + batch.num_rows]
        return [Routed(file_partition(file), rows) for rows in kept_parts(~gone)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """The files that were written for the remaining rows of some files.

    Attributes:
        by_label: The new files in the place of each file, by its label.
        numbers: The schema of each of these.
    """

    by_label: Mapping[str, Written] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)


def write_rest(
    store: Store,
    layouts: FormerLayouts,
    found: Sequence[HoldingFile],
    spark: SparkSession | None = None,
) -> Rest:
    """Write the remaining rows of files, each to a file of the same batch, partition and schema.

    New files are read back, and compared with the rows that were kept.

    Args:
        store: The store that holds the files.
        layouts: The layouts that the files were written under.
        found: The files.
        spark: Session whose tasks write; None for threads.

    Raises:
        LakebedError: A file cannot be read, or the store failed. The new files are deleted.

    Cost:
        The files, read and written once, and the new ones read once more.
    """
    state = layouts.state
    partly = [(one, one.mask) for one in found if one.mask is not None]
    if not partly:
        return Rest()
    labels = [one.label for one, _ in partly]
    noted = sources.read(store, state.lists.sources)
    known = runs.read(store, state.lists)
    recorded = file_table.read_recorded(store, state.lists.files, labels)
    written_under = {label: layouts.layout_of(label) for label in labels}
    workers = workers_for(
        spark,
        store,
        threads=min(_WRITERS, os.cpu_count() or 1, len(partly)),
        purpose=f"erase rows from {state.name}",
    )
    memory_bytes = workers.share_of(WriteOptions().memory_bytes)

    def job_of(one: HoldingFile, mask: np.ndarray) -> tuple[RewriteJob, Work]:
        layout = written_under[one.label]
        alone = replace(state.with_labels([one.label]), layout=layout, indices={})
        (file,) = plan(alone, TRUE, requests=0).files
        target = BatchTarget(
            dataset=state.name,
            batch_id=batch_id_of(one.label) or 0,
            descriptor=_indexed(layout.descriptor, state.descriptor),
            options=WriteOptions(target_bytes=_WHOLE, memory_bytes=memory_bytes),
            schema_number=layout.lineage.number,
            field_ids=layout.field_ids,
        )
        job = RewriteJob(layout=layout, target=target, route=_Kept(mask), drops_rows=True)
        key = (known.of(one.label), one.label in noted.runs)
        return job, work_of(key, [(file,)], noted, recorded, len(mask))

    def rest_of(item: tuple[RewriteJob, Work]) -> Written:
        # The lists of runs pass on what they know of the old file.
        return replace(rewrite(store, *item), carried={})

    jobs = [job_of(*one) for one in partly]
    written = gather(
        store,
        workers.map(rest_of, jobs, Written),
        lambda part: part.keys(state.layout),
    )
    return Rest(
        by_label=dict(zip(labels, written, strict=True)),
        numbers={label: layout.lineage.number for label, layout in written_under.items()},
    )


def _indexed(older: DatasetDescriptor, current: DatasetDescriptor) -> DatasetDescriptor:
    """Return an older descriptor with the indices that are kept now, as far as its fields allow."""
    columns = []
    for name in current.index:
        now = current.schema.get(name)
        then = older.schema.find_stored(current.schema.stored_name(name))
        if then is not None and then.type == now.type:
            columns.append(then.name)
    return replace(older, index=tuple(columns))
