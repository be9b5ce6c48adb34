"""Promotion: values that a dimension allows from now on move out of `OTHER`."""

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
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store
from lakebed.work.moving_rows import (
    CATCHING_UP,
    ROUNDS,
    THREADS,
    Looked,
    Mover,
    groups_of,
    routed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Allowed = DimensionSchema | Mapping[str, object]
"""A dimension schema; or allowed values, as `by.dimension` takes them, by field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Rows that a promotion moves from one partition to another.

    Attributes:
        source: Path of the partition where they were.
        target: Path of the partition where they are.
        row_count: Entities that move.
    """

    source: str
    target: str
    row_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionReport:
    """What a promotion did, or would do.

    Attributes:
        dataset: Its name.
        is_dry_run: Whether nothing was done.
        dimensions: Partition fields whose dimensions allow more; empty if none does.
        commit: That it made; None in a dry run, or if the dimensions are what they were.
        moves: From which partition to which, in order of path.
        read_file_count: Files of `OTHER` that were looked at, of which only sources of dimensions.
        rewritten_file_count: Those of them that hold entities which move.
        added_file_count: Files that took their place; 0 in a dry run.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, by, open_repository
    >>> descriptor = DatasetDescriptor(
    ...     schema=pa.schema([("carrier", pa.string())]),
    ...     partition_by=[by.dimension("carrier", ["UA"])],
    ... )
    >>> flights = open_repository("memory://doctest-promote").create("flights", descriptor)
    >>> commit = flights.append([{"carrier": "UA"}, {"carrier": "B6"}, {"carrier": "AA"}])
    >>> report = flights.promote({"carrier": ["UA", "B6"]})
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
        """Entities that moved."""
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
                "files looked at": f"{self.read_file_count:,}",
                "files written anew": f"{self.rewritten_file_count:,}",
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
    """Let dimensions allow more, and move what they allow; see `Dataset.promote`.

    Returns:
        The report, and what the dataset is after it, or would be.
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
        looks = promotion.look_at(state, promotion.candidates(state))
        return promotion.report(state, looks, None, is_dry_run=True), new
    for round_ in range(ROUNDS):
        try:
            with Transaction.begin(store, name, "promote", options=options) as transaction:
                # Anew: others may have changed the descriptor.
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
            # Others added to OTHER, or rewrote files of it, at the last moment.
            if round_ == ROUNDS - 1:
                raise
    return PromotionReport(dataset=name, is_dry_run=False), new


def promoted_descriptor(old: DatasetDescriptor, allowed: Allowed) -> DatasetDescriptor:
    """Return what a dataset is when its dimensions allow what is given.

    Raises:
        PartitionSpecError: A dimension would lose values, or the allowed values are of no known
            form.
        InvalidInputError: A name is that of no dimension.
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
                f"Dimension {old_function} would lose values as {new_function}, or it cannot be told.",
                hint="Keep all that it allows, and its cap; or let rows move by reroute=True (--reroute).",
            )
    return new


def rules_of(allowed: Allowed) -> list[tuple[str, object, int | None]]:
    """Return the name, the allowed values and the cap of each dimension that is given.

    Raises:
        InvalidInputError: What is given says nothing of dimensions.
    """
    if isinstance(allowed, DimensionSchema):
        return [(rule.field_name, rule.allowed, rule.cap) for rule in allowed]
    if isinstance(allowed, Mapping):
        return [(name, rule, None) for name, rule in allowed.items()]
    raise InvalidInputError(
        f"{type(allowed).__name__} is no dimension schema.",
        hint='Give DimensionSchema.from_json(path), or {"carrier": ["UA", "B6"]}.',
    )


def dimension_of(dimensions: Sequence[Dimension], name: str) -> Dimension:
    """Return the dimension of a field, of that name, or of a field of that name in a record.

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
        f"No dimension of field {name!r}.",
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
        """The dimensions as they are to be."""
        return tuple(
            function
            for function in self.new.partition_by
            if isinstance(function, Dimension) and function.name in self.grown
        )

    def candidates(self, state: State) -> tuple[DataFile, ...]:
        """Return the files of `OTHER` that may hold rows which move, by what is known of files."""
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

    def look_at(self, state: State, files: Sequence[DataFile]) -> list[Looked]:
        """Read the sources of the grown dimensions, and find what would move."""
        look = _Look(self.functions, state.descriptor.schema)
        store, layout = self.mover.store, state.layout

        def look_at(file: DataFile) -> Looked:
            return look.at(store, layout, replace(file, is_filtered=False))

        return self.mover.look_at(state, files, look_at)

    def admitted(self, state: State, looks: Iterable[Looked]) -> dict[str, frozenset[str]]:
        """Return for each grown dimension that is capped the values that get a partition.

        Those that have one keep it; the most frequent others share the room that is left.
        """
        caps = self.new.partition_by.caps(self.new.schema)
        counts: dict[str, collections.Counter[str]] = {
            name: collections.Counter() for name in self.grown if name in caps
        }
        if not counts:
            return {}
        names = [function.name for function in self.functions]
        for looked in looks:
            for texts, count in looked.groups:
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
        """Write what moves anew and commit it."""
        base = transaction.base
        target = self.mover.target(transaction, self.new)
        looked: list[Looked] = []
        known: set[str] = set()
        state, route = base, None
        # Appends may go on meanwhile: what they add to OTHER is looked at too, until a commit has
        # a chance.
        for _ in range(CATCHING_UP):
            levels = {encode_level(name, OTHER) for name in self.grown}
            new = {
                label for label in state.labels if not levels.isdisjoint(label.split("/"))
            } - known
            files = [file for file in self.candidates(state) if file.label in new]
            looks = self.look_at(state, files)
            known |= new
            if route is None:
                route = _Moving(self.functions, base.descriptor.schema, self.admitted(state, looks))
            moving = {file.label for file in looks if route.moves(file)}
            affected = [file for file in files if file.label in moving]
            transaction.add(*self.mover.rewrite(state, target, route, affected))
            looked += looks
            now = read_head(self.mover.store, base.name).state
            if now.labels == state.labels or now.descriptor != base.descriptor:
                break
            state = now
        assert route is not None  # there is at least one round
        taken_out = frozenset(file.label for file in looked if route.moves(file))
        committed = transaction.commit(
            Change(
                scope=PromotedFiles(taken_out, frozenset(levels), frozenset(known)),
                new_descriptor=self.new,
            )
        )
        commit = Commit.of(committed, base)
        return self.report(base, looked, commit, is_dry_run=False, route=route)

    def report(
        self,
        state: State,
        looked: Sequence[Looked],
        commit: Commit | None,
        *,
        is_dry_run: bool,
        route: _Moving | None = None,
    ) -> PromotionReport:
        """Say what moved, or would."""
        if route is None:
            admitted = self.admitted(state, looked)
            route = _Moving(self.functions, state.descriptor.schema, admitted)
        moved: collections.Counter[tuple[str, str]] = collections.Counter()
        levels = list(state.layout.partition_level_types)
        for file in looked:
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
            read_file_count=len(looked),
            rewritten_file_count=sum(route.moves(file) for file in looked),
            added_file_count=len(commit.files_added) if commit is not None else 0,
        )


def _newly_allowed(old: Dimension, new: Dimension, schema: Schema) -> Predicate:
    """Return a condition that every value meets which is allowed now and was not before."""
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
class _Look:
    """Finds the partitions that rows of `OTHER` would have. Travels to Spark tasks."""

    functions: tuple[Dimension, ...]
    schema: Schema

    def at(self, store: Store, layout: Layout, file: DataFile) -> Looked:
        columns = tuple(dict.fromkeys(function.source.split(".")[0] for function in self.functions))
        counts: collections.Counter[tuple[str, ...]] = collections.Counter()
        with scan.scan(store, Scan(layout=layout, files=(file,)), columns) as batches:
            for batch in batches:
                texts = texts_of(self.functions, self.schema, file, batch)
                for combination, rows in _combinations(texts, batch.num_rows):
                    counts[combination] += len(rows)
        present = tuple(str(file.partition[function.name]) for function in self.functions)
        counts.pop(present, None)
        return Looked(file.label, sorted(counts.items()))


def texts_of(
    functions: Sequence[Dimension], schema: Schema, file: DataFile, batch: pa.RecordBatch
) -> list[pa.Array]:
    """Return the partition fields that rows of a file have by dimensions that allow more.

    What has a partition of its own keeps it; only `OTHER` is asked anew.
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
    """Says where rows of `OTHER` go. Travels to Spark tasks.

    Attributes:
        functions: Dimensions as they are to be.
        schema: Of the dataset.
        admitted: For those with a cap: the values that have a partition.
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
        """Return the path of rows by the texts that they have in the dimensions."""
        values = dict(own)
        for function, text in zip(self.functions, texts, strict=True):
            values[function.name] = self._limited(function.name, text)
        return encode_path(values)

    def _limited(self, name: str, text: str) -> str:
        admitted = self.admitted.get(name)
        is_beyond = admitted is not None and text not in TOKENS and text not in admitted
        return OTHER if is_beyond else text

    def moves(self, looked: Looked) -> bool:
        """Whether rows of a file go to another partition."""
        names = [function.name for function in self.functions]
        return any(
            self._limited(name, text) not in TOKENS
            and encode_level(name, text) not in looked.label.split("/")
            for texts, _ in looked.groups
            for name, text in zip(names, texts, strict=True)
        )
