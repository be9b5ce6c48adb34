"""Rerouting: moves rows after dimensions were narrowed, added, removed or reordered.

Any change of dimensions except growth may move rows of any partition. So the sources of the
dimensions are read from every file, and files with rows that move are rewritten, in one commit with
the dimensions. Concurrent writers that used the old dimensions get a conflict.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.rewrite import Routed
from lakebed.commit import Commit
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.model.allowed import OTHER, TOKENS, OneOf, read_allowed
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.dimensions import DimensionRule, DimensionSchema
from lakebed.model.evolution import grown_dimensions
from lakebed.model.keys import BATCH_ID, encode_level, encode_path, split_label
from lakebed.model.layout import Layout
from lakebed.model.partition import Dimension, PartitionFunction, PartitionStrategy
from lakebed.model.predicate import TRUE
from lakebed.plan.plan import DataFile, Scan
from lakebed.plan.search import plan
from lakebed.spark.task_workers import workers_for
from lakebed.state.committing import CommitOptions
from lakebed.state.reader import read_head, read_own_head
from lakebed.state.scope import ReroutedFiles
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
from lakebed.work.promotion import (
    Allowed,
    Move,
    PromotionReport,
    dimension_of,
    promote,
    rules_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reroute(
    store: Store,
    name: str,
    allowed: Allowed,
    *,
    spark: SparkSession | None,
    is_dry_run: bool,
    options: CommitOptions | None,
    on_progress: OnProgress = NO_PROGRESS,
) -> tuple[PromotionReport, DatasetDescriptor]:
    """Give a dataset other dimensions, and move its rows; see `Dataset.dimensions.promote`.

    Returns:
        The report, and the new descriptor of the dataset, or the expected one of a dry run.
    """
    state = read_own_head(store, name).state
    new = rerouted_descriptor(state.descriptor, allowed)
    if _only_grows(state.descriptor, new):
        try:
            return promote(
                store,
                name,
                allowed,
                spark=spark,
                is_dry_run=is_dry_run,
                options=options,
                on_progress=on_progress,
            )
        except InvalidInputError:
            # Another rerouting may have narrowed the dimensions since they were read.
            state = read_own_head(store, name).state
            new = rerouted_descriptor(state.descriptor, allowed)
            if _only_grows(state.descriptor, new):
                raise
    purpose = f"reroute {name}"
    workers = workers_for(spark, store, threads=min(THREADS, os.cpu_count() or 1), purpose=purpose)
    for round_ in range(ROUNDS):
        rerouting = _Rerouting(Mover(store, workers, Tally(on_progress, purpose)), new)
        if is_dry_run:
            results = rerouting.inspect(state)
            return rerouting.report(state, results, rerouting.route(state, results)), new
        try:
            with Transaction.begin(store, name, "promote", options=options) as transaction:
                new = rerouted_descriptor(transaction.base.descriptor, allowed)
                if new == transaction.base.descriptor:
                    break
                return replace(rerouting, new=new).run(transaction), new
        except CommitConflictError:
            if round_ == ROUNDS - 1:
                raise
    return PromotionReport(dataset=name, is_dry_run=False), new


def _only_grows(old: DatasetDescriptor, new: DatasetDescriptor) -> bool:
    grown = grown_dimensions(old, new)
    return len(old.partition_by) == len(new.partition_by) and all(
        before == after or before.name in grown
        for before, after in zip(old.partition_by, new.partition_by, strict=True)
    )


def rerouted_descriptor(old: DatasetDescriptor, allowed: Allowed) -> DatasetDescriptor:
    """Return the descriptor of a dataset with other dimensions.

    The dimensions of a dimension schema replace all dimensions, in the order of the schema; if
    names and order are the same, each keeps its place. Other partition functions stay.

    Raises:
        PartitionSpecError: The dimensions do not fit the schema, or have an unknown form.
        InvalidInputError: A name in a mapping is not that of a dimension.
    """
    before = [function for function in old.partition_by if isinstance(function, Dimension)]
    rules = rules_of(allowed)
    if isinstance(allowed, DimensionSchema):
        wanted = [_dimension(before, rule) for rule in allowed]
    else:
        changed = {
            dimension_of(before, name).name: _with(dimension_of(before, name), rule, cap)
            for name, rule, cap in rules
        }
        wanted = [changed.get(one.name, one) for one in before]
    functions: list[PartitionFunction] = []
    if [one.name for one in wanted] == [one.name for one in before]:
        by_name = {one.name: one for one in wanted}
        functions = [by_name.get(one.name, one) for one in old.partition_by]
    else:
        others = [one for one in old.partition_by if not isinstance(one, Dimension)]
        position = next(
            (n for n, one in enumerate(old.partition_by) if isinstance(one, Dimension)), len(others)
        )
        functions = [*others[:position], *wanted, *others[position:]]
    new = replace(old, partition_by=PartitionStrategy(tuple(functions)))
    new.check()
    return new


def _dimension(before: Sequence[Dimension], rule: DimensionRule) -> Dimension:
    """Return the dimension of a rule: the changed dimension of its field, or a new one."""
    name = rule.field_name
    known = [one for one in before if name in (one.source, one.name)]
    if len(known) == 1:
        return _with(known[0], rule.allowed, rule.cap)
    return Dimension.of(name, rule.allowed, cap=rule.cap)


def _with(before: Dimension, rule: object, cap: int | None) -> Dimension:
    allowed = read_allowed(rule, f"dimension({before.source})")
    kept = None if isinstance(allowed, OneOf) else before.cap
    return replace(before, allowed=allowed, cap=kept if cap is None else cap)


@dataclass(frozen=True, slots=True)
class _Route:
    """Routes rows to their partitions. Sent to Spark tasks.

    Attributes:
        new: The new descriptor of the dataset.
        admitted: The levels that have a partition, for each dimension with a cap; None for all.
    """

    new: DatasetDescriptor
    admitted: Mapping[str, frozenset[str]] | None = None

    def __call__(self, file: DataFile, batch: pa.RecordBatch, start: int) -> Iterable[Routed]:
        groups = ((self.target(levels), rows) for levels, rows in self.groups(file, batch))
        return routed(file, batch, start, _partition_of(file), groups)

    def groups(
        self, file: DataFile, batch: pa.RecordBatch
    ) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
        """Yield each combination of levels of rows of a file, with the positions of its rows."""
        strategy, schema = self.new.partition_by, self.new.schema
        provided = {one.name: file.partition[one.name] for one in strategy if not one.takes_source}
        columns = strategy.arrays(batch, schema, provided)
        names = [one.name for one in strategy]
        for rows in groups_of(columns, batch.num_rows):
            values = [column[int(rows[0])].as_py() for column in columns]
            yield tuple(map(encode_level, names, values)), rows

    def target(self, levels: Sequence[str]) -> str:
        """Return the partition path of rows, by their levels."""
        if self.admitted is None:
            return "/".join(levels)
        names = [one.name for one in self.new.partition_by]
        return "/".join(
            level if self._stays(name, level) else encode_level(name, OTHER)
            for name, level in zip(names, levels, strict=True)
        )

    def _stays(self, name: str, level: str) -> bool:
        admitted = (self.admitted or {}).get(name)
        return admitted is None or level in admitted or level in _tokens(name)

    def moves(self, state: State, inspected: Inspected) -> bool:
        """Return whether rows of a file move to another partition."""
        here = _path(state.layout, inspected.label)
        return any(self.target(levels) != here for levels, _ in inspected.groups)


def _tokens(name: str) -> frozenset[str]:
    return frozenset(encode_level(name, token) for token in TOKENS)


def _partition_of(file: DataFile) -> str:
    return encode_path({name: v for name, v in file.partition.items() if name != BATCH_ID})


def _path(layout: Layout, label: str) -> str:
    values = layout.directory_values(split_label(label)[0])
    return encode_path({name: value for name, value in values.items() if name != BATCH_ID})


@dataclass(frozen=True, slots=True)
class _Rerouting:
    """Moves rows to the partitions of other dimensions."""

    mover: Mover
    new: DatasetDescriptor

    def inspect(self, state: State, known: frozenset[str] = frozenset()) -> list[Inspected]:
        """Read the sources of all partition fields, and find the new partitions of rows.

        Args:
            state: The state whose files are read.
            known: Labels of files that have been inspected already.
        """
        files = [file for file in self._files(state) if file.label not in known]
        store, layout, route = self.mover.store, state.layout, _Route(self.new)
        columns = tuple(
            dict.fromkeys(
                one.source.split(".")[0] for one in self.new.partition_by if one.takes_source
            )
        )

        def inspect(file: DataFile) -> Inspected:
            return _inspect(store, layout, route, file, columns)

        return self.mover.inspect(state, files, inspect)

    def _files(self, state: State) -> tuple[DataFile, ...]:
        return plan(state, TRUE, requests=0, store=self.mover.store).files

    def route(self, state: State, results: Iterable[Inspected]) -> _Route:
        """Choose the values that get a partition, for each dimension with a cap.

        Values that have one keep it; the most frequent others fill the remaining places.
        """
        caps = self.new.partition_by.caps(self.new.schema)
        if not caps:
            return _Route(self.new)
        counts: dict[str, collections.Counter[str]] = {name: collections.Counter() for name in caps}
        for inspected in results:
            for levels, count in inspected.groups:
                for function, level in zip(self.new.partition_by, levels, strict=True):
                    if function.name in counts and level not in _tokens(function.name):
                        counts[function.name][level] += count
        present = {level for directory in state.directories() for level in directory.split("/")}
        admitted = {}
        for name, counter in counts.items():
            wanted = sorted(
                counter, key=lambda level: (level not in present, -counter[level], level)
            )
            admitted[name] = frozenset(wanted[: caps[name]])
        return _Route(self.new, admitted)

    def run(self, transaction: Transaction) -> PromotionReport:
        """Rewrite the files with rows that move, and commit them."""
        base = transaction.base
        target = self.mover.target(transaction, self.new)
        inspected: list[Inspected] = []
        known: frozenset[str] = frozenset()
        state, route = base, None
        # Concurrent appends may continue: inspect their files too, until a commit has a chance.
        for _ in range(CATCHING_UP):
            results = self.inspect(state, known)
            known |= {one.label for one in results}
            route = route or self.route(state, results)
            moving = {one.label for one in results if route.moves(state, one)}
            affected = [file for file in self._files(state) if file.label in moving]
            transaction.add(*self.mover.rewrite(state, target, route, affected))
            inspected += results
            now = read_head(self.mover.store, base.name).state
            if have_same_files(now, state) or now.descriptor != base.descriptor:
                break
            state = now
        assert route is not None  # there is at least one round
        taken_out = frozenset(one.label for one in inspected if route.moves(base, one))
        committed = transaction.commit(
            Change(
                scope=ReroutedFiles(taken_out, known),
                new_descriptor=self.new,
                new_lineage=base.lineage.with_levels(base.descriptor, self.new),
            )
        )
        return self.report(base, inspected, route, Commit.of(committed, base))

    def report(
        self,
        state: State,
        inspected: Sequence[Inspected],
        route: _Route,
        commit: Commit | None = None,
    ) -> PromotionReport:
        """Return a report of the rows that moved, or would move."""
        moved: collections.Counter[tuple[str, str]] = collections.Counter()
        for one in inspected:
            here = _path(state.layout, one.label)
            for levels, count in one.groups:
                if route.target(levels) != here:
                    moved[here, route.target(levels)] += count
        before = set(state.descriptor.partition_by)
        names = [one.name for one in self.new.partition_by if one not in before]
        removed = [one.name for one in before if one.name not in self.new.partition_types]
        order = [one.name for one in self.new.partition_by if isinstance(one, Dimension)]
        return PromotionReport(
            dataset=state.name,
            is_dry_run=commit is None,
            dimensions=tuple(names + sorted(removed)) or tuple(order),
            commit=commit,
            moves=tuple(
                Move(source=source, target=target, row_count=count)
                for (source, target), count in sorted(moved.items())
            ),
            read_file_count=len(inspected),
            rewritten_file_count=sum(route.moves(state, one) for one in inspected),
            added_file_count=len(commit.files_added) if commit is not None else 0,
        )


def _inspect(
    store: Store, layout: Layout, route: _Route, file: DataFile, columns: tuple[str, ...]
) -> Inspected:
    counts: collections.Counter[tuple[str, ...]] = collections.Counter()
    alone = Scan(layout=layout, files=(replace(file, is_filtered=False),))
    # Without a source, any column gives the number of rows.
    names = columns or layout.descriptor.schema.names[:1]
    with scan.scan(store, alone, names) as batches:
        for batch in batches:
            for levels, rows in route.groups(file, batch):
                counts[levels] += len(rows)
    return Inspected(file.label, sorted(counts.items()))
