"""The files of all readable versions that hold rows to erase, and files of the remaining rows.

A file of an older version is searched with the current schema. If that schema has a field under a
name that other values had before, files of those schemas are searched with their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.kernel import BatchTarget, WriteOptions
from lakebed.arrow.rewrite import (
    RewriteJob,
    Routed,
    file_partition,
    kept_parts,
    rewrite,
    work_of,
)
from lakebed.arrow.sieve import RowFilter
from lakebed.arrow.workers import Threads, gather
from lakebed.errors import CorruptMetadataError, LakebedError, PredicateError, SchemaMismatchError
from lakebed.index.segment import file_ids_of, open_segment
from lakebed.model.allowed import PerhapsAllowed
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import batch_id_of, file_ids, schema_number_of
from lakebed.model.layout import Folder, Layout
from lakebed.model.lineage import Lineage
from lakebed.model.partition import Dimension, PartitionStrategy
from lakebed.model.predicate import TRUE, Predicate, bind, roots_of
from lakebed.plan.plan import DataFile, Scan
from lakebed.plan.search import plan
from lakebed.state import file_table, runs, sources
from lakebed.state.history import Entry
from lakebed.state.state import State, descriptor_from
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.store.segments import Segment
from lakebed.work.matched_lines import Lines

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The result of a search of some files.

    Attributes:
        found: Files that hold rows to erase.
        unreadable: The reason, by key, for each file that cannot be searched.
    """

    found: tuple[HoldingFile, ...]
    unreadable: Mapping[str, str]


@dataclass(frozen=True)
class Schemas:
    """The schemas that files of a dataset were written with, by number.

    Attributes:
        state: The current state.
        entries: The history.
    """

    state: State
    entries: Sequence[Entry]

    @cached_property
    def _by_number(self) -> Mapping[int, tuple[DatasetDescriptor, Lineage]]:
        """The last descriptor of each schema; the current one has the current properties."""
        folder = Folder.HISTORY.of(self.state.name)
        known: dict[int, tuple[DatasetDescriptor, Lineage]] = {}
        for entry in self.entries:
            if entry.descriptor is not None:
                descriptor, lineage = descriptor_from(entry.descriptor, folder)
                known[lineage.number] = (descriptor, lineage)
        known[self.state.lineage.number] = (self.state.descriptor, self.state.lineage)
        return known

    @cached_property
    def _number_at(self) -> Mapping[str, int]:
        """The schema when a file was first added, for files whose names hold none."""
        folder = Folder.HISTORY.of(self.state.name)
        numbers: dict[str, int] = {}
        number = 1
        for entry in self.entries:
            if entry.descriptor is not None:
                number = descriptor_from(entry.descriptor, folder)[1].number
            for label in entry.added:
                numbers.setdefault(label, number)
        return numbers

    def number_of(self, label: str) -> int:
        """Return the number of the schema that a file is written again with."""
        number = schema_number_of(label, newest=self.state.lineage.number)
        return self._number_at.get(label, 1) if number is None else number

    def layout(self, number: int) -> Layout:
        """Return the layout of the dataset under a schema.

        Raises:
            CorruptMetadataError: The history does not hold the schema.
        """
        if number not in self._by_number:
            raise CorruptMetadataError(
                f"The history of {self.state.name!r} does not hold its schema {number}.",
                hint="Run check.",
            )
        descriptor, lineage = self._by_number[number]
        return self.state.layout.as_of(descriptor, lineage)

    def under(self, number: int, labels: Iterable[str]) -> State:
        """Return a state of some files under a schema, to plan reads of them.

        A dimension may have allowed other values when they were written.
        """
        layout = self.layout(number)
        layout = layout.as_of(_with_any_value(layout.descriptor), layout.lineage)
        return replace(self.state.with_labels(labels), layout=layout, indices={})

    def searching(self, predicate: Predicate, number: int) -> tuple[int, Predicate]:
        """Return the schema to search files of a schema with, and the condition under it.

        Raises:
            PredicateError: The condition does not fit the current schema.
        """
        state = self.state
        types = state.layout.predicate_types
        current = bind(predicate, types)
        if any(state.lineage.lacks(root, number) for root in roots_of(current, types)):
            try:
                return number, bind(predicate, self.layout(number).predicate_types)
            except (PredicateError, SchemaMismatchError):
                pass  # the field did not exist then
        return state.lineage.number, current


def _with_any_value(descriptor: DatasetDescriptor) -> DatasetDescriptor:
    """Return a descriptor whose dimensions send no value to `OTHER` or its own partition for sure."""
    functions = tuple(
        replace(one, allowed=PerhapsAllowed(), cap=None) if isinstance(one, Dimension) else one
        for one in descriptor.partition_by
    )
    return replace(descriptor, partition_by=PartitionStrategy(functions))


def search(
    store: Store, schemas: Schemas, condition: ErasureCondition, labels: Iterable[str]
) -> Searched:
    """Find the files that hold rows of a condition.

    Args:
        store: The store that holds the files.
        schemas: The schemas of the dataset.
        condition: The condition on the rows.
        labels: Labels of the files to search.

    Cost:
        The file table and the indices, as for a query of all these files; of files that may hold
        such rows, the columns of the condition. Memory: a byte for each row of the files that do.
    """
    counts = file_table.read_counts(store, schemas.state.lists.files)
    found: list[HoldingFile] = []
    unreadable: dict[str, str] = {}
    for (number, bound), of_schema in _by_schema(schemas, condition, labels).items():
        state = schemas.under(number, of_schema)
        chosen_files = plan(state, bound, requests=0, store=store).files
        one = _Search(store, state.layout, bound, counts, condition.lines)
        for result in Threads(_FILES_AT_ONCE).map(one.inspect, chosen_files, _Inspected):
            if result.problem:
                unreadable[result.key] = result.problem
            elif result.found is not None:
                found.append(result.found)
    return Searched(found=tuple(found), unreadable=unreadable)


def _by_schema(
    schemas: Schemas, condition: ErasureCondition, labels: Iterable[str]
) -> Mapping[tuple[int, Predicate], list[str]]:
    """Return files by the schema that they are searched with, and the condition under it."""
    newest = schemas.state.lineage.number
    groups: dict[tuple[int, Predicate], list[str]] = {}
    for label in labels:
        number = schema_number_of(label, newest=newest)
        chosen = schemas.searching(condition.predicate, newest if number is None else number)
        groups.setdefault(chosen, []).append(label)
    return groups


@dataclass(frozen=True, slots=True)
class _Inspected:
    key: str
    found: HoldingFile | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Search:
    store: Store
    layout: Layout
    predicate: Predicate
    counts: Mapping[str, tuple[int, int]]
    lines: Lines | None

    def inspect(self, file: DataFile) -> _Inspected:
        try:
            return _Inspected(file.key, self._look(file))
        except CorruptMetadataError as exc:
            return _Inspected(file.key, problem=exc.message)

    def _look(self, file: DataFile) -> HoldingFile | None:
        rows, size = self.counts.get(file.label, (None, 0))
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
        count = int(np.count_nonzero(mask))
        if not count:
            return None
        return HoldingFile(
            label=file.label,
            key=file.key,
            row_count=count,
            size_bytes=size,
            mask=None if count == len(mask) else mask,
        )

    def _chooser(self) -> tuple[tuple[str, ...], Callable[[pa.RecordBatch], np.ndarray]]:
        """Return the columns that the condition needs, and its mask for rows with them."""
        lines = self.lines
        if lines is not None:
            names = tuple(name for name in LINE_FIELDS if name in self.layout.descriptor.schema)
            return names, lambda batch: lines.mask(batch.columns)
        types = self.layout.predicate_types
        return roots_of(self.predicate, types), RowFilter.of(self.predicate, types).mask


def names_partitions(state: State, condition: ErasureCondition) -> bool:
    """Return whether a condition is about a partition field, or a field that one is made of."""
    if condition.lines is not None:
        return False
    types = state.layout.predicate_types
    roots = set(roots_of(bind(condition.predicate, types), types))
    return any(
        not roots.isdisjoint({one.name, one.source.split(".")[0]})
        for one in state.descriptor.partition_by
    )


def told_by_path(
    schemas: Schemas, condition: ErasureCondition, labels: Iterable[str]
) -> frozenset[str]:
    """Return the labels all of whose rows meet a condition, by their directories alone.

    A label that does not fit the current schema is left out.
    """
    if condition.lines is not None:
        return frozenset()
    state, types = schemas.state, schemas.state.layout.predicate_types
    bound = bind(condition.predicate, types)
    told: set[str] = set()
    by_directory: dict[str, list[str]] = {}
    for label in labels:
        by_directory.setdefault(label.rpartition("/")[0], []).append(label)
    for of_directory in by_directory.values():
        one = schemas.under(state.lineage.number, (of_directory[0],))
        try:
            files = plan(one, bound, requests=0).files
        except LakebedError:
            continue
        if files and not files[0].is_filtered:
            told.update(of_directory)
    return frozenset(told)


def told_by_metadata(
    store: Store, schemas: Schemas, condition: ErasureCondition, labels: Collection[str]
) -> frozenset[str]:
    """Return the labels for which the head still names values, perhaps of rows of a condition.

    The values are bounds in the file table, and pairs of the indices. The files themselves are not
    read: a cleanup has given up the versions that had them, and may have deleted them.

    Cost:
        The file table and the indices, as for a query of these files; the footer of each segment of
        the indices, unless the process has read it before.
    """
    lists = schemas.state.lists
    if not labels:
        return frozenset()
    known = file_table.with_bounds(store, lists.files, labels) | _indexed_files(
        store, (one for segments in lists.postings.values() for one in segments), labels
    )
    told: set[str] = set()
    for (number, bound), of_schema in _by_schema(schemas, condition, known).items():
        try:
            files = plan(schemas.under(number, of_schema), bound, requests=0, store=store).files
        except LakebedError:
            told.update(of_schema)  # some do not fit the schema any more
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


def write_rest(store: Store, schemas: Schemas, found: Sequence[HoldingFile]) -> Rest:
    """Write the remaining rows of files, each to a file of the same batch, partition and schema.

    New files are read back, and compared with the rows that were kept.

    Raises:
        LakebedError: A file cannot be read, or the store failed. The new files are deleted.

    Cost:
        The files, read and written once, and the new ones read once more.
    """
    state = schemas.state
    partly = [one for one in found if one.mask is not None]
    if not partly:
        return Rest()
    labels = [one.label for one in partly]
    noted = sources.read(store, state.lists.sources)
    known = runs.read(store, state.lists)
    recorded = file_table.read_recorded(store, state.lists.files, labels)
    numbers = {label: schemas.number_of(label) for label in labels}
    files = {
        file.label: file
        for number in set(numbers.values())
        for file in plan(
            schemas.under(number, [label for label in labels if numbers[label] == number]),
            TRUE,
            requests=0,
        ).files
    }
    workers = Threads(min(_WRITERS, os.cpu_count() or 1, len(partly)))
    memory_bytes = workers.share_of(WriteOptions().memory_bytes)

    def rest_of(one: HoldingFile) -> Written:
        assert one.mask is not None  # others have no remaining row
        number = numbers[one.label]
        layout = schemas.layout(number)
        target = BatchTarget(
            dataset=state.name,
            batch_id=batch_id_of(one.label) or 0,
            descriptor=_indexed(layout.descriptor, state.descriptor),
            options=WriteOptions(target_bytes=_WHOLE, memory_bytes=memory_bytes),
            schema_number=number,
            field_ids=layout.field_ids,
        )
        job = RewriteJob(layout=layout, target=target, route=_Kept(one.mask), drops_rows=True)
        key = (known.of(one.label), one.label in noted.runs)
        work = work_of(key, [(files[one.label],)], noted, recorded, len(one.mask))
        # The lists of runs pass on what they know of the old file.
        return replace(rewrite(store, job, work), carried={})

    written = gather(
        store,
        workers.map(rest_of, partly, Written),
        lambda part: part.keys(state.layout),
    )
    return Rest(by_label=dict(zip(labels, written, strict=True)), numbers=numbers)


def _indexed(older: DatasetDescriptor, current: DatasetDescriptor) -> DatasetDescriptor:
    """Return an older descriptor with the indices that are kept now, as far as its fields allow."""
    columns = []
    for name in current.index:
        now = current.schema.get(name)
        then = older.schema.find_stored(current.schema.stored_name(name))
        if then is not None and then.type == now.type:
            columns.append(then.name)
    return replace(older, index=tuple(columns))
