"""Promotion: newly allowed values of a dimension move out of `OTHER`."""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.partitioning import admitted_values
from lakebed.arrow.rewrite import Routed
from lakebed.commit import Commit
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted
from lakebed.errors import CommitConflictError, InvalidInputError, PartitionSpecError
from lakebed.model.allowed import OTHER, TOKENS, Between, OneOf, read_allowed
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.evolution import grown_dimensions
from lakebed.model.keys import BATCH_ID, encode_level, encode_path
from lakebed.model.layout import Layout
from lakebed.model.names import nearest
from lakebed.model.partition import Dimension, PartitionStrategy
from lakebed.model.predicate import (
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    bind,
)
from lakebed.model.schema import Schema
from lakebed.model.values import Scalar
from lakebed.plan.plan import DataFile, Scan
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state.committing import CommitOptions
from lakebed.state.reader import read_head, read_own_head
from lakebed.state.scope import PromotedFiles
from lakebed.state.state import Change, State, have_same_files
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store
from lakebed.work.moving_rows import (
    CATCHING_UP,
    ROUNDS,
    THREADS,
    Inspected,
    Mover,
    groups_of,
    routed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Allowed = DimensionSchema | Mapping[str, object]
"""A dimension schema; or allowed values, in the form of `by.dimension`, by field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Rows that a promotion moves from one partition to another.

    Attributes:
        source: Path of their old partition.
        target: Path of their new partition.
        row_count: Number of entities that move.
    """

    source: str
    target: str
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionReport:
    """The result of a promotion, or the expected result of a dry run.

    Attributes:
        dataset: Name of the dataset.
        is_dry_run: True if nothing was changed.
        dimensions: Partition fields whose dimensions allow more; empty if none does.
        commit: The commit; None in a dry run, or if the dimensions are unchanged.
        moves: Moves of rows between partitions, in order of path.
        read_file_count: Number of files of `OTHER` that were inspected; only the sources of
            dimensions were read.
        rewritten_file_count: Number of inspected files with entities that move.
        added_file_count: Number of new files; 0 in a dry run.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, by, open_repository
    >>> descriptor = DatasetDescriptor(
    ...     schema=pa.schema([("carrier", pa.string())]),
    ...     partition_by=[by.dimension("carrier", ["UA"])],
    ... )
    >>> flights = open_repository("memory://doctest-promote").create("flights", descriptor)
    >>> commit = flights.append([{"carrier": "UA"}, {"carrier": "B6"}, {"carrier": "AA"}])
    >>> report = flights.dimensions.promote({"carrier": ["UA", "B6"]})
    >>> [(move.source, move.target, move.row_count) for move in report.moves]
    [('carrier_dimension=OTHER', 'carrier_dimension=B6', 1)]
    >>> report.rewritten_file_count, report.commit.operation
    (1, 'promote')
    """

    dataset: str
    is_dry_run: bool
    dimensions: tuple[str, ...] = ()
    commit: Commit | None = None
    moves: tuple[Move, ...] = ()
    read_file_count: int = 0
    rewritten_file_count: int = 0
    added_file_count: int = 0

    @property
    def row_count(self) -> int:
        """Number of entities that moved."""
        return sum(move.row_count for move in self.moves)

    def __repr__(self) -> str:
        verb = "would move" if self.is_dry_run else "moved"
        return f"<PromotionReport of {self.dataset!r}: {counted(self.row_count, 'row')} {verb}>"

    def _repr_html_(self) -> str:
        moves = [f"{move.row_count:,} to {move.target}" for move in self.moves]
        return facts_to_html(
            f"{'Would promote' if self.is_dry_run else 'Promotion of'} {self.dataset}",
            {
                "version": "none" if self.commit is None else self.commit.version,
                "dimensions": shortened(self.dimensions) or "none",
                "rows": f"{self.row_count:,}",
                "moves": shortened(moves) or "none",
                "files inspected": f"{self.read_file_count:,}",
                "files rewritten": f"{self.rewritten_file_count:,}",
            },
        )


def promote(
    store: Store,
    name: str,
    allowed: Allowed,
    *,
    spark: SparkSession | None,
    is_dry_run: bool,
    options: CommitOptions | None,
    on_progress: OnProgress = NO_PROGRESS,
) -> tuple[PromotionReport, DatasetDescriptor]:
    """Let dimensions allow more values, and move their rows; see `Dataset.dimensions.promote`.

    Returns:
        The report, and the new descriptor of the dataset, or the expected one of a dry run.
    """
    state = read_own_head(store, name).state
    new = promoted_descriptor(state.descriptor, allowed)
    grown = grown_dimensions(state.descriptor, new)
    if not grown:
        return PromotionReport(dataset=name, is_dry_run=is_dry_run), new
    purpose = f"promote {name}"
    workers = workers_for(spark, store, threads=min(THREADS, os.cpu_count() or 1), purpose=purpose)
    if is_dry_run:
        promotion = _Promotion(Mover(store, workers, Tally(on_progress, purpose)), new, grown)
        results = promotion.inspect(state, promotion.candidates(state))
        return promotion.report(state, results, None, is_dry_run=True), new
    for round_ in range(ROUNDS):
        try:
            with Transaction.begin(store, name, "promote", options=options) as transaction:
                # Compute it again: others may have changed the descriptor.
                old = transaction.base.descriptor
                new = promoted_descriptor(old, allowed)
                grown = grown_dimensions(old, new)
                if not grown:
                    break
                promotion = _Promotion(
                    Mover(store, workers, Tally(on_progress, purpose)), new, grown
                )
                return promotion.run(transaction), new
        except CommitConflictError:
            # At the last moment, others added files to OTHER, or rewrote files of it.
            if round_ == ROUNDS - 1:
                raise
    return PromotionReport(dataset=name, is_dry_run=False), new


def promoted_descriptor(old: DatasetDescriptor, allowed: Allowed) -> DatasetDescriptor:
    """Return the descriptor of a dataset whose dimensions allow the given values.

    Raises:
        PartitionSpecError: A dimension would lose values, or the allowed values have an unknown
            form.
        InvalidInputError: A name is not that of a dimension.
    """
    dimensions = [function for function in old.partition_by if isinstance(function, Dimension)]
    wanted: dict[str, Dimension] = {}
    for name, rule, cap in rules_of(allowed):
        before = dimension_of(dimensions, name)
        rule = read_allowed(rule, f"dimension({before.source})")
        kept = None if isinstance(rule, OneOf) else before.cap
        wanted[before.name] = replace(before, allowed=rule, cap=kept if cap is None else cap)
    functions = [wanted.get(function.name, function) for function in old.partition_by]
    new = replace(old, partition_by=PartitionStrategy(tuple(functions)))
    grown = grown_dimensions(old, new)
    for old_function, new_function in zip(old.partition_by, new.partition_by, strict=True):
        if old_function != new_function and old_function.name not in grown:
            raise PartitionSpecError(
                f"Cannot change dimension {old_function} to {new_function}: it would lose values, "
                "or may lose some.",
                hint="Keep all values that it allows, and its cap; or let rows move with "
                "reroute=True (--reroute).",
            )
    return new


def rules_of(allowed: Allowed) -> list[tuple[str, object, int | None]]:
    """Return the name, the allowed values and the cap of each given dimension.

    Raises:
        InvalidInputError: The value is neither a dimension schema nor a mapping.
    """
    if isinstance(allowed, DimensionSchema):
        return [(rule.field_name, rule.allowed, rule.cap) for rule in allowed]
    if isinstance(allowed, Mapping):
        return [(name, rule, None) for name, rule in allowed.items()]
    raise InvalidInputError(
        f"{type(allowed).__name__} is not a dimension schema.",
        hint='Give DimensionSchema.from_json(path), or {"carrier": ["UA", "B6"]}.',
    )


def dimension_of(dimensions: Sequence[Dimension], name: str) -> Dimension:
    """Return the dimension with this source field, of this name, or with this field in a record.

    Raises:
        InvalidInputError: There is no such dimension, or there are several.
    """
    for matches in (
        [dimension for dimension in dimensions if dimension.source == name],
        [dimension for dimension in dimensions if dimension.name == name],
        [dimension for dimension in dimensions if dimension.source.rpartition(".")[2] == name],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise InvalidInputError(
                f"{name!r} is the source of several dimensions.",
                hint=f"Name one of them: {', '.join(dimension.name for dimension in matches)}.",
            )
    known = [dimension.source for dimension in dimensions]
    raise InvalidInputError(
        f"There is no dimension of field {name!r}.",
        hint=nearest(name, known) or f"Dimensions are of: {', '.join(known) or 'no field'}.",
    )


@dataclass(frozen=True, slots=True)
class _Promotion:
    """Moves rows of dimensions that allow more."""

    mover: Mover
    new: DatasetDescriptor
    grown: tuple[str, ...]

    @property
    def functions(self) -> tuple[Dimension, ...]:
        """The grown dimensions in their new form."""
        return tuple(
            function
            for function in self.new.partition_by
            if isinstance(function, Dimension) and function.name in self.grown
        )

    def candidates(self, state: State) -> tuple[DataFile, ...]:
        """Return the files of `OTHER` that may hold rows that move, by metadata alone."""
        predicate = bind(self._predicate(state), state.layout.predicate_types)
        return plan(state, predicate, requests=0, store=self.mover.store).files

    def _predicate(self, state: State) -> Predicate:
        before = {function.name: function for function in state.descriptor.partition_by}
        terms = []
        for function in self.functions:
            old = before[function.name]
            assert isinstance(old, Dimension)  # it has grown
            in_other = Comparison(function.name, Op.EQ, OTHER)
            terms.append(all_of([in_other, _newly_allowed(old, function, state.descriptor.schema)]))
        return any_of(terms)

    def inspect(self, state: State, files: Sequence[DataFile]) -> list[Inspected]:
        """Read the sources of the grown dimensions, and find the rows that would move."""
        inspection = _Inspection(self.functions, state.descriptor.schema)
        store, layout = self.mover.store, state.layout

        def inspect(file: DataFile) -> Inspected:
            return inspection.at(store, layout, replace(file, is_filtered=False))

        return self.mover.inspect(state, files, inspect)

    def admitted(self, state: State, results: Iterable[Inspected]) -> dict[str, frozenset[str]]:
        """Return the values that get a partition, for each grown dimension with a cap.

        Values that have one keep it; the most frequent others fill the remaining places.
        """
        caps = self.new.partition_by.caps(self.new.schema)
        counts: dict[str, collections.Counter[str]] = {
            name: collections.Counter() for name in self.grown if name in caps
        }
        if not counts:
            return {}
        names = [function.name for function in self.functions]
        for inspected in results:
            for texts, count in inspected.groups:
                for name, text in zip(names, texts, strict=True):
                    if name in counts and text not in TOKENS:
                        counts[name][text] += count
        present = admitted_values(state.as_of(self.new, state.lineage))
        admitted = {}
        for name, counter in counts.items():
            have = present.get(name, frozenset())
            wanted = sorted(counter.keys() - have, key=lambda text: (-counter[text], text))
            admitted[name] = have | frozenset(wanted[: max(0, caps[name] - len(have))])
        return admitted

    def run(self, transaction: Transaction) -> PromotionReport:
        """Rewrite the files with rows that move, and commit them."""
        base = transaction.base
        target = self.mover.target(transaction, self.new)
        inspected: list[Inspected] = []
        known: set[str] = set()
        state, route = base, None
        # Concurrent appends may continue: inspect their files in OTHER too, until a commit has a
        # chance.
        for _ in range(CATCHING_UP):
            levels = {encode_level(name, OTHER) for name in self.grown}
            new = {
                label
                for piece in state.live.pieces()
                for label in piece
                if not levels.isdisjoint(label.split("/"))
            } - known
            files = [file for file in self.candidates(state) if file.label in new]
            results = self.inspect(state, files)
            known |= new
            if route is None:
                route = _Moving(
                    self.functions, base.descriptor.schema, self.admitted(state, results)
                )
            moving = {file.label for file in results if route.moves(file)}
            affected = [file for file in files if file.label in moving]
            transaction.add(*self.mover.rewrite(state, target, route, affected))
            inspected += results
            now = read_head(self.mover.store, base.name).state
            if have_same_files(now, state) or now.descriptor != base.descriptor:
                break
            state = now
        assert route is not None  # there is at least one round
        taken_out = frozenset(file.label for file in inspected if route.moves(file))
        committed = transaction.commit(
            Change(
                scope=PromotedFiles(taken_out, frozenset(levels), frozenset(known)),
                new_descriptor=self.new,
            )
        )
        commit = Commit.of(committed, base)
        return self.report(base, inspected, commit, is_dry_run=False, route=route)

    def report(
        self,
        state: State,
        inspected: Sequence[Inspected],
        commit: Commit | None,
        *,
        is_dry_run: bool,
        route: _Moving | None = None,
    ) -> PromotionReport:
        """Return a report of the rows that moved, or would move."""
        if route is None:
            admitted = self.admitted(state, inspected)
            route = _Moving(self.functions, state.descriptor.schema, admitted)
        moved: collections.Counter[tuple[str, str]] = collections.Counter()
        levels = list(state.layout.partition_level_types)
        for file in inspected:
            directory = file.label.rpartition("/")[0]
            values = state.layout.directory_values(directory)
            own = {name: values[name] for name in levels}
            for texts, count in file.groups:
                target = route.target(own, texts)
                if target != encode_path(own):
                    moved[encode_path(own), target] += count
        return PromotionReport(
            dataset=state.name,
            is_dry_run=is_dry_run,
            dimensions=self.grown,
            commit=commit,
            moves=tuple(
                Move(source=source, target=target, row_count=count)
                for (source, target), count in sorted(moved.items())
            ),
            read_file_count=len(inspected),
            rewritten_file_count=sum(route.moves(file) for file in inspected),
            added_file_count=len(commit.files_added) if commit is not None else 0,
        )


def _newly_allowed(old: Dimension, new: Dimension, schema: Schema) -> Predicate:
    """Return a predicate that holds for every value that is newly allowed."""
    kind = new.source_type(schema)
    before, after = old.bound(kind), new.bound(kind)
    if after.listed is not None:
        values = tuple(value for value in after.listed if not before.allows(value))
        return Membership(new.source, values)
    terms: list[Predicate] = [NullCheck(new.source, negated=True)]
    if isinstance(after, Between) and after.read_as is None:
        ends = ((Op.GE, after.min), (Op.LE, after.max))
        terms += [Comparison(new.source, op, end) for op, end in ends if end is not None]
    return all_of(terms)


@dataclass(frozen=True, slots=True)
class _Inspection:
    """Finds the new partitions of rows of `OTHER`. Sent to Spark tasks."""

    functions: tuple[Dimension, ...]
    schema: Schema

    def at(self, store: Store, layout: Layout, file: DataFile) -> Inspected:
        columns = tuple(dict.fromkeys(function.source.split(".")[0] for function in self.functions))
        counts: collections.Counter[tuple[str, ...]] = collections.Counter()
        with scan.scan(store, Scan(layout=layout, files=(file,)), columns) as batches:
            for batch in batches:
                texts = texts_of(self.functions, self.schema, file, batch)
                for combination, rows in _combinations(texts, batch.num_rows):
                    counts[combination] += len(rows)
        present = tuple(str(file.partition[function.name]) for function in self.functions)
        counts.pop(present, None)
        return Inspected(file.label, sorted(counts.items()))


def texts_of(
    functions: Sequence[Dimension], schema: Schema, file: DataFile, batch: pa.RecordBatch
) -> list[pa.Array]:
    """Return the partition fields of rows of a file, by dimensions that allow more.

    Rows in a partition of their own keep it; only rows in `OTHER` are assigned again.
    """
    strategy = PartitionStrategy(tuple(functions))
    columns = []
    for function, column in zip(functions, strategy.arrays(batch, schema), strict=True):
        present = file.partition[function.name]
        if present != OTHER:
            column = pa.repeat(pa.scalar(present, pa.string()), batch.num_rows)
        columns.append(column)
    return columns


def _combinations(
    columns: Sequence[pa.Array], row_count: int
) -> list[tuple[tuple[str, ...], np.ndarray]]:
    """Return each combination of texts, and the positions of its rows."""
    return [
        (tuple(column[int(rows[0])].as_py() for column in columns), rows)
        for rows in groups_of(columns, row_count)
    ]


@dataclass(frozen=True, slots=True)
class _Moving:
    """Routes rows of `OTHER` to their partitions. Sent to Spark tasks.

    Attributes:
        functions: The dimensions in their new form.
        schema: Schema of the dataset.
        admitted: The values that have a partition, for each dimension with a cap.
    """

    functions: tuple[Dimension, ...]
    schema: Schema
    admitted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterable[Routed]:
        own = {name: value for name, value in file.partition.items() if name != BATCH_ID}
        texts = texts_of(self.functions, self.schema, file, batch)
        groups = (
            (self.target(own, combination), rows)
            for combination, rows in _combinations(texts, batch.num_rows)
        )
        return routed(file, batch, start, encode_path(own), groups)

    def target(self, own: Mapping[str, Scalar], texts: Sequence[str]) -> str:
        """Return the partition path of rows, by their texts in the dimensions."""
        values = dict(own)
        for function, text in zip(self.functions, texts, strict=True):
            values[function.name] = self._limited(function.name, text)
        return encode_path(values)

    def _limited(self, name: str, text: str) -> str:
        admitted = self.admitted.get(name)
        is_beyond = admitted is not None and text not in TOKENS and text not in admitted
        return OTHER if is_beyond else text

    def moves(self, inspected: Inspected) -> bool:
        """Return whether rows of a file move to another partition."""
        names = [function.name for function in self.functions]
        return any(
            self._limited(name, text) not in TOKENS
            and encode_level(name, text) not in inspected.label.split("/")
            for texts, _ in inspected.groups
            for name, text in zip(names, texts, strict=True)
        )
