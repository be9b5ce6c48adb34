"""Views: datasets narrowed by constraints, for reading, writing and deleting."""

from __future__ import annotations

import copy
import datetime as dt
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from lakebed import work
from lakebed.commit import Commit
from lakebed.common.given import check_given, given_names
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import cut, shown
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    PredicateError,
    ReadOnlyError,
)
from lakebed.model.dataclass_types import builder, constructor_arguments, declared_fields
from lakebed.model.evaluate import matches, value_of
from lakebed.model.merging import IfMatched, IfMissing, IfNotMatched, MergeClauses, RowUpdate
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import (
    TRUE,
    And,
    Comparison,
    Dnf,
    Leaf,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    all_of,
    bind,
    columns_of,
    conjuncts,
    from_dnf,
    roots_of,
)
from lakebed.model.refinement import refine, set_of
from lakebed.model.renaming import with_stored_columns
from lakebed.model.schema import Decimal, Primitive, Type
from lakebed.model.sql_predicates import Parameters, parse_sql
from lakebed.model.uri import VERSION, view_query
from lakebed.model.values import Scalar, check_value
from lakebed.plan.plan import ScanPlan
from lakebed.selection import Readable, ReadPlan, ViewSelection, check_row_count, names_of
from lakebed.state import signals
from lakebed.state.scope import Nothing, Scope, TheseFiles, Unchanged, WholeView
from lakebed.state.snapshot import Source
from lakebed.state.state import Change, State
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.arrow.kernel import BatchTarget, WriteOptions
    from lakebed.model.dimensions import DimensionSchema
    from lakebed.spark.planned_frame import Way
    from lakebed.state.committing import CommitOptions
    from lakebed.state.transaction import Transaction
    from lakebed.state.written import Written
    from lakebed.tables.trees.telemetry import TelemetryExport, TelemetryOptions
    from lakebed.work.merge import MergeReport
    from lakebed.work.overwriting import Replacement
    from lakebed.work.writer import EntityWriter


class View(Readable):
    """A dataset narrowed by constraints. Immutable; every refinement returns another view.

    Every call that reads starts from the current head. So a view shows new commits, and each
    result is of one version. A `snapshot` of a view always shows the same version.

    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-view").create("numbers", descriptor)
    >>> commit = numbers.append([{"n": n} for n in range(10)])
    >>> view = numbers.where("n > 3").to("n", 6)
    >>> view
    <View of 'numbers': n > 3 AND n <= 6>
    >>> view.count()
    3
    """

    _NOT_OF_PINNED = frozenset(
        (
            "append",
            "delete",
            "find_overwrite",
            "merge",
            "overwrite",
            "signal_ready",
            "update_rows",
            "upsert",
            "writer",
        )
    )

    _write_options: WriteOptions | None = None
    _commit_options: CommitOptions | None = None

    def __init__(self, source: Source, constraint: Predicate = TRUE) -> None:
        """Use `Dataset.where` and its like instead."""
        self._source = source
        self._constraint = constraint

    def __repr__(self) -> str:
        return f"<View of {self._source.name!r}{self._pin}: {cut(str(self._constraint))}>"

    def __dir__(self) -> Iterable[str]:
        """List the attributes for completion; a pinned view omits the verbs that it refuses."""
        refused = frozenset[str]() if self._source.pinned is None else self._NOT_OF_PINNED
        return (name for name in super().__dir__() if name not in refused)

    @property
    def _pin(self) -> str:
        """The pinned version as text for `repr`; empty if the view is not pinned."""
        pinned = self._source.pinned
        return "" if pinned is None else f" at version {pinned.state.version}"

    def _repr_html_(self) -> str:
        """Show the state as of the last read of the head, without a request."""
        state = self._source.cached()
        return facts_to_html(
            f"View of {self._source.name}",
            {
                "where": cut(str(self._constraint)),
                "of": f"{self._source.store.uri}/{self._source.name}",
                "version": state.version,
                "data files of the dataset": f"{len(state.labels):,}",
                "columns": shortened(f"{f.name}: {f.type}" for f in state.descriptor.schema),
                "partitioned by": shortened(map(str, state.descriptor.partition_by)) or "nothing",
            },
        )

    @property
    def version(self) -> int:
        """The version that a read returns: the pinned one, else the current one. Reads the head.

        It is 0 at creation, and each commit adds one.
        """
        return self._source.load().state.version

    def snapshot(self) -> Self:
        """Return the same view, pinned to the current version.

        All reads of a snapshot are of this version, in every thread and, since it can be pickled,
        in every process. So it can be the `base` of a write that is derived from the data read. It
        is read-only. A cleanup may delete its files later, as those of any older version;
        `Dataset.protect` keeps them. A pinned view is its own snapshot.

        Cost:
            A read of the head.
        """
        if self._source.pinned is not None:
            return self
        pinned = copy.copy(self)
        pinned._source = self._source.at_head()
        return pinned

    def with_options(
        self, *, write: WriteOptions | None = None, commit: CommitOptions | None = None
    ) -> Self:
        """Return the same dataset or view, whose verbs write and commit with these options.

        The views, transactions, writers and staged batches that are made from it have them too.
        An omitted option stays as it is.

        Args:
            write: Sizes and layout of the data files to write.
            commit: Retries of a commit, lease of its writer, and start time of its process.

        Raises:
            InvalidInputError: An option is of another type.

        >>> from lakebed import CommitOptions, DatasetDescriptor, open_repository
        >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
        >>> numbers = open_repository("memory://doctest-options").create("numbers", descriptor)
        >>> patient = numbers.with_options(commit=CommitOptions(deadline_s=600))
        >>> patient.append([{"n": 1}]).version
        1
        """
        from lakebed.arrow.kernel import WriteOptions
        from lakebed.state.committing import CommitOptions

        check_given("write", write, WriteOptions, "Give WriteOptions, or leave it out.")
        check_given("commit", commit, CommitOptions, "Give CommitOptions, or leave it out.")
        other = copy.copy(self)
        other._write_options = self._write_options if write is None else write
        other._commit_options = self._commit_options if commit is None else commit
        return other

    @property
    def constraint(self) -> Predicate:
        """The constraint that narrows the view; prints as SQL."""
        return self._constraint

    @property
    def view_uri(self) -> str:
        """The URI of the view, which `lakebed.open_uri` opens again."""
        source = self._source
        terms = []
        if self._constraint != TRUE:
            terms.append(view_query(self._constraint, source.cached().layout.predicate_types))
        if source.pinned is not None:
            terms.append(f"{VERSION}={source.pinned.state.version}")
        query = f"?{'&'.join(terms)}" if terms else ""
        # As in Kite: a view without a constraint is the dataset itself.
        kind = "dataset" if self._constraint == TRUE else "view"
        return f"{kind}:{source.store.uri}/{source.name}{query}"

    def is_of(self, other: View) -> bool:
        """Return whether both are views of one dataset, at any version."""
        mine, others = self._source, other._source
        return mine.name == others.name and mine.store.uri == others.store.uri

    def where(self, predicate: ViewCondition, parameters: Parameters | None = None) -> View:
        """Narrow the view.

        Args:
            predicate: SQL text, such as `"carrier = 'UA' AND time_hour >= '2013-06-01'"`; or an
                expression of pyarrow or Polars, such as `pc.field("carrier") == "UA"`; or
                Kartothek's lists, such as `[[("carrier", "==", "UA")]]`, an OR of ANDs; or a
                predicate. It may use fields and partition fields, including `batch_id`.
                docs/views.md lists the functions. `now()` is the moment of this call.
            parameters: Values for each `?` of the text, in order, or for each `:name`, by name. A
                list stands for all of its values after IN.

        Raises:
            PredicateError: It cannot be parsed, names an unknown column, or a value is not of
                its column's type; or a parameter is missing, or is not used in the text.
        """
        if isinstance(predicate, str):
            condition = self._bound(lambda types: parse_sql(predicate, types, None, parameters))
        elif parameters is not None:
            raise PredicateError(
                f"Parameters are given beside {shown(predicate)}.",
                hint="Only SQL text has parameters; give the values in the condition.",
            )
        elif isinstance(predicate, Predicate):
            condition = self._bound(lambda types: bind(predicate, types))
        elif isinstance(predicate, list | tuple):
            terms = from_dnf(predicate)
            condition = self._bound(lambda types: bind(terms, types))
        else:
            from lakebed.arrow.expressions import exact_predicate

            condition = self._bound(lambda types: exact_predicate(predicate, types))
        return self._refined_to(all_of([self._constraint, condition]))

    def _bound(self, bind_to: Callable[[Mapping[str, Type]], Predicate]) -> Predicate:
        """Bind to the cached columns; if these do not fit, to the current ones."""
        cached = self._source.cached().layout.predicate_types
        try:
            return bind_to(cached)
        except PredicateError:
            types = self._source.load().state.layout.predicate_types
            if types == cached:
                raise
            return bind_to(types)

    def with_(self, field: str, *values: Scalar) -> View:
        """Keep entities whose field has one of the values; without values, is not null.

        Raises:
            PredicateError: The field is unknown, or a value is not of its type or is not in
                the view.
        """
        if not values:
            return self._refine(NullCheck(field, negated=True))
        return self._refine(Membership(field, values))

    def from_(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is at least `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.GE, value))

    def from_after(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is greater than `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.GT, value))

    def to(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is at most `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.LE, value))

    def to_before(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is less than `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.LT, value))

    def _refine(self, leaf: Leaf) -> View:
        bound = self._bound(lambda types: bind(leaf, types))
        assert not isinstance(bound, And | Or | Like)  # bind changes empty lists only
        return self._refined_to(refine(self._constraint, bound))

    def _refined_to(self, constraint: Predicate) -> View:
        """Return a view of the same source, with the same options."""
        return View(self._source, constraint)._with_options_of(self)

    def _with_options_of(self, other: View) -> Self:
        self._write_options, self._commit_options = other._write_options, other._commit_options
        return self

    def plan(self) -> ReadPlan:
        """Choose the data files to read.

        Returns:
            The plan. Its `explain()` reports the kept and dropped files, and why. Any consumer of
            Arrow streams accepts a plan.

        Cost:
            A read of the head; if the constraint is not decided by partitions alone, also the file
            table and the indices that can help. The process caches these.
        """
        store = self._source.store
        return ReadPlan.of(store, self._plan(store))

    def _plan(self, store: Store | None) -> ScanPlan:
        """Plan from the head alone if there is no store."""
        from lakebed.plan.search import plan

        snapshot = self._source.load()
        constraint = bind(self._constraint, snapshot.state.layout.predicate_types)
        self._source.record_read(constraint)
        return plan(snapshot.state, constraint, requests=snapshot.requests, store=store)

    def spark(
        self,
        spark: SparkSession | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        way: Way = "auto",
    ) -> DataFrame:
        """Return the view as a Spark DataFrame of one version.

        Args:
            spark: The session; None for the active one, else one started in this process.
            columns: Fields or partition fields, including `batch_id`; None for all fields.
            way: `native` (Spark's own reader, on an object store with the session's connector),
                `arrow` (through mapInArrow), or `auto`. The way to pass the files to Spark's own
                reader can also be given: `paths` of the files, or a `prepared` list, which is not
                possible on Spark Connect.

        Raises:
            MissingDependencyError: pyspark or Java is not installed.
            SchemaMismatchError: A column is unknown or named twice, or there is none.
            InvalidInputError: There is no such way, or it would give a wrong answer here.
            CorruptMetadataError: A planned file is missing; it may also show only when the file
                is read.

        Cost:
            As `plan`; no Spark job until the DataFrame is used.
        """
        # Spark is imported on use: `import lakebed` must not need it.
        from lakebed.spark.planned_frame import read_frame
        from lakebed.spark.session import get_session

        session, store = get_session(spark), self._source.store
        names = None if columns is None else given_names("columns", columns)
        return read_frame(session, store, self._plan(store), names, way=way)

    def select(self, *columns: str | Sequence[str]) -> ViewSelection:
        """Return the same rows with some columns only, for reading.

        Args:
            columns: Fields or partition fields, including `batch_id`: one by one, or as a list.

        Raises:
            SchemaMismatchError: A column is unknown or named twice, or there is none.

        Cost:
            A read of the head.
        """
        names = names_of(columns)
        self._read_schema(names)
        return ViewSelection(self, names)

    def limit(self, row_count: int) -> ViewSelection:
        """Return at most this many of the rows, for reading; the selection is unspecified.

        Raises:
            InvalidInputError: `row_count` is not a valid number of rows.
        """
        return ViewSelection(self, None, check_row_count(row_count))

    def _read_schema(self, columns: str | Sequence[str] | None = None) -> pa.Schema:
        from lakebed.arrow import scan

        return scan.output_schema(self._source.load().state.layout, columns)

    def count(self) -> int:
        """Count the entities.

        Cost:
            As `plan`; then the file table for files whose rows all belong to the view, and for the
            others the columns of the filter. So if whole files are counted, no data file is opened
            except those that the file table does not list.
        """
        from lakebed.arrow import scan
        from lakebed.plan.search import take_known_rows

        chosen = self.plan()
        known, remaining = take_known_rows(self._source.store, chosen)
        return known + scan.count(self._source.store, remaining)

    def reader(self, type: type | None = None) -> EntityReader:  # noqa: A002 - the word of API.md
        """Return an iterator over the entities, as dicts or as instances of a class.

        Args:
            type: A class that declares its fields: a dataclass, or one of attrs, pydantic or msgspec,
                or a named tuple; only its fields are read.

        Raises:
            InvalidInputError: `type` is not such a class; or, during iteration, an entity has a date
                or time outside the years 1 to 9999, which Python cannot represent.
            SchemaMismatchError: It has a field that the dataset lacks.
        """
        if type is None:
            return EntityReader(self.record_batches(), None)
        if declared_fields(type) is None:
            raise InvalidInputError(
                f"{shown(type)} is not a class that declares fields.",
                hint="Give a class, such as one decorated with @dataclass, not an instance of it.",
            )
        names = list(constructor_arguments(type))
        return EntityReader(self.record_batches(names), builder(type))

    def is_empty(self) -> bool:
        """Return whether the view contains no entities.

        Cost:
            A read of the head; then footers, and the columns of the filter, until an entity is
            found.
        """
        return self._is_empty(self.plan())

    def _is_empty(self, chosen: ScanPlan) -> bool:
        from lakebed.arrow import scan

        store = self._source.store
        # First the files whose footers give the answer.
        for file in sorted(chosen.files, key=lambda file: file.is_filtered):
            alone = replace(chosen, files=(file,))
            if not file.is_filtered:
                if scan.count(store, alone) if file.row_count is None else file.row_count:
                    return False
                continue
            assert chosen.residual is not None  # some file is filtered
            needed = roots_of(chosen.residual, chosen.layout.predicate_types)
            with scan.scan(store, alone, needed) as batches:
                if any(batch.num_rows for batch in batches):
                    return False
        return True

    def includes(self, entity: object) -> bool:
        """Return whether an entity belongs to the view.

        Args:
            entity: A dict, or an object with fields, as for a writer. A missing field is null.
                Partition fields are computed; the value of a provided one is taken from the
                entity, else from the view if the view fixes one value. `batch_id` is null, since
                the entity is in no batch.

        Raises:
            SchemaMismatchError: The entity has a field that the dataset lacks.
            InvalidInputError: It is not an entity, or a value that the constraint needs is not of
                its field's type.
            PartitionSpecError: A partition field that the constraint needs has no value.

        Cost:
            Nothing; the fields are those of the last read of the head.
        """
        from lakebed.arrow.entities import as_mapping

        state = self._source.cached()
        given = as_mapping(entity)
        own = state.layout.partition_level_types
        for name in given:
            if name not in own:
                state.descriptor.schema.get(name)
        values = _checked_values(given, state)
        supplied = self._supplied(state)
        named = columns_of(self._constraint)
        functions = [
            function for function in state.descriptor.partition_by if function.name in named
        ]
        provided = {
            function.name: values[function.name]
            if function.name in given
            else supplied.get(function.name)
            for function in functions
            if not function.takes_source
        }
        strategy = PartitionStrategy(tuple(functions))
        computed = strategy.values(values, state.descriptor.schema, provided)
        return matches(self._constraint, {**values, **computed})

    def _supplied(self, state: State) -> dict[str, Scalar]:
        """Return the values that the view fixes for provided partition fields."""
        supplied: dict[str, Scalar] = {}
        for function in state.descriptor.partition_by:
            if function.takes_source:
                continue
            for part in conjuncts(self._constraint):
                values = set_of(part) if columns_of(part) == (function.name,) else None
                if values is not None and len(values) == 1:
                    (supplied[function.name],) = values
        return supplied

    def covering_partitions(self) -> tuple[PartitionView, ...]:
        """Return the partitions that may hold entities of the view, ordered by path.

        They are disjoint, and together contain the whole view.

        Cost:
            A read of the head, and nothing else.
        """
        chosen = self._plan(None)
        levels = chosen.layout.partition_level_types
        by_path: dict[str, Mapping[str, Scalar]] = {}
        for file in chosen.files:
            path = chosen.layout.partition_of(file.label)
            by_path[path] = {name: file.partition[name] for name in levels}
        views: dict[tuple[Scalar, ...], PartitionView] = {}
        for path, values in sorted(by_path.items()):
            # 0.0 and -0.0 are equal, so a view of one holds the rows of both.
            views.setdefault(
                tuple(values.values()),
                PartitionView(self._source, path, values)._with_options_of(self),
            )
        return tuple(views.values())

    def is_aligned(self) -> bool:
        """Return whether the view consists of whole partitions, as `overwrite` requires."""
        return self._exact(self._source.cached()) is not None

    def _exact(self, state: State) -> Predicate | None:
        return state.layout.sure_strategy.exact(
            bind(self._constraint, state.layout.predicate_types),
            state.descriptor.schema,
            state.layout.partition_level_types,
        )

    def signal_ready(self) -> dt.datetime:
        """Signal that the view is complete, for processes that wait for it.

        The signal applies to exactly this view, which may be empty. It stays until the dataset is
        dropped.

        Returns:
            The time of the signal, later than that of any earlier one; aware, UTC.

        Raises:
            ReadOnlyError: The view is of an older state.

        Cost:
            One GET and one PUT.
        """
        self._check_writable()
        return signals.put(self._source.store, self._source.name, self._stored_constraint)

    def is_ready(self) -> bool:
        """Return whether exactly this view has been signalled ready; as `ready_at`."""
        return self.ready_at() is not None

    def ready_at(self) -> dt.datetime | None:
        """Return the time of the last ready signal of exactly this view, aware and UTC, or None.

        Raises:
            CorruptMetadataError: The signal cannot be read.

        Cost:
            One GET.
        """
        return signals.find(self._source.store, self._source.name, self._stored_constraint)

    @property
    def _stored_constraint(self) -> Predicate:
        """The constraint by the names in data files, so that it is the same after a rename."""
        layout = self._source.cached().layout
        return with_stored_columns(
            self._constraint, layout.predicate_types, layout.descriptor.schema
        )

    def append(
        self,
        data: object,
        run: str | None = None,
        *,
        if_not_empty: Literal["append", "error"] = "append",
        base: Base | None = None,
    ) -> Commit:
        """Append a batch. If the view is narrower than the dataset, every entity must be in it.

        Args:
            data: A Spark DataFrame, which is written by its tasks; or, written in this process, a
                pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars DataFrame, a
                relation of DuckDB, a view, or any other object with `__arrow_c_stream__`; or an
                iterable of dicts, dataclass instances or other objects with fields.
            run: Name of the run, for the history.
            if_not_empty: `error` refuses the append if the view holds an entity or has been
                signalled ready, for a job that must not run twice; also if another commit fills
                one of its partitions meanwhile.
            base: The version that the data was made from, or the snapshot, plan or commit that
                was read; see `docs/concurrency.md`. A later commit that has touched a partition of
                the data is a conflict.

        Raises:
            SchemaMismatchError: The data does not fit; nothing became visible.
            PartitionSpecError: The source of a partition function is missing.
            InvalidInputError: An entity lies outside the view; nothing became visible.
            AlreadyExistsError: The view must be empty, but holds an entity or is ready.
            CommitConflictError: The view must be empty, and another commit touched it meanwhile;
                or a commit since the base has touched a partition of the data.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            Besides the data files: a read of the head, five small objects, and one Spark job
            for a DataFrame. If properties ask for it, the dataset is published after the commit,
            and `Commit.not_published` lists failures: see docs/delta-iceberg.md. For a Hive table
            that is published this way, the touched partitions are also read and written.
        """
        if if_not_empty not in ("append", "error"):
            raise InvalidInputError(
                f"if_not_empty is {if_not_empty!r}.", hint="Give 'append' or 'error'."
            )
        if if_not_empty == "append":
            return self._write("append", data, run, Nothing(), base)
        return self._write("append", data, run, self._must_be_empty, base)

    def _must_be_empty(self, base: State) -> Scope:
        """Check that the view is empty and not ready, and return the scope that ensures it."""
        constraint = bind(self._constraint, base.layout.predicate_types)
        from lakebed.plan.search import plan

        is_empty = self._is_empty(plan(base, constraint, requests=0, store=self._source.store))
        if not is_empty or self.is_ready():
            raise AlreadyExistsError(
                f"{self!r} {'is ready' if is_empty else 'is not empty'}.",
                hint="Append without if_not_empty, or overwrite it.",
            )
        return untouched(constraint, base)

    def overwrite(
        self,
        data: object,
        *,
        run: str | None = None,
        base: Base | None = None,
    ) -> Commit:
        """Replace the whole view, which must be aligned with partition boundaries.

        The replaced files stay on storage, and readable by version.

        Args:
            data: As for `append`; it may hold no rows: an explicit empty result.
            run: Name of the run, for the history.
            base: The version that the data was made from, as for `append`. Later rows of other
                writers in the view are a conflict, and are not replaced.

        Raises:
            CommitConflictError: Another commit touched one of the partitions meanwhile, or since
                the base; nothing became visible.
            InvalidInputError: An entity lies outside the view; nothing became visible.
            PredicateError: The view is not aligned with partition boundaries.

        Cost:
            As `append`; for a dataset of up to 100,000 files also the file table, to count the
            replaced rows.
        """
        scope = self._whole()
        return self._write("overwrite", data, run, scope, base)

    def find_overwrite(self, data: object) -> Replacement:
        """Return the partitions and rows that `overwrite` would replace; nothing is written.

        Args:
            data: As for `overwrite`. An iterator or a reader is consumed.

        Raises:
            SchemaMismatchError: The data does not fit.
            InvalidInputError: An entity lies outside the view.
            PredicateError: The view is not aligned with partition boundaries.
            ReadOnlyError: The dataset cannot be written.

        Cost:
            A read of the head, and the file table. The data is read once; a DataFrame takes one
            Spark job, and another one if dimensions have a cap.
        """
        return self._find_overwrite(data, self._whole_of)

    def _find_overwrite(self, data: object, scope: Callable[[State], Scope] | None) -> Replacement:
        from lakebed.arrow.kernel import WriteOptions
        from lakebed.state.reader import read_own_head

        self._check_writable()
        store = self._source.store
        base = read_own_head(store, self._source.name).state
        target = self._narrowed(work.writer.target_in(base, 0, WriteOptions()), base)
        replaced = None if scope is None else scope(base)
        counts = self._count(data, target)
        return work.overwriting.find_replacement(store, base, counts, replaced)

    def _whole(self) -> WholeView:
        """Return the view as a scope: whole partitions."""
        self._check_writable()
        return self._whole_of(self._source.load().state)

    def _whole_of(self, state: State) -> WholeView:
        exact = self._exact(state)
        if exact is None:
            raise PredicateError(
                f"The view {self._constraint} is not aligned with the partitions of "
                f"{self._source.name!r}.",
                hint="Only whole partitions can be replaced: align the view with their boundaries.",
            )
        return WholeView(exact, state.layout.partition_level_types)

    def delete(
        self,
        *,
        run: str | None = None,
        base: Base | None = None,
    ) -> Commit | None:
        """Delete the entities of the view, in one commit.

        If the view consists of whole partitions or whole files, only the head changes. Files that
        hold other rows too are rewritten without the deleted ones, as one batch, each row in the
        partition where it was. Rows stay if the constraint is false or, as for null, unknown. The
        old files stay on storage, and readable by version.

        Args:
            run: Name of the run, for the history.
            base: The version that the decision was based on, as for `append`: a later commit that
                has touched a partition of the view is a conflict.

        Returns:
            The commit, or None if the view is empty: then there is no new version.

        Raises:
            CommitConflictError: Another commit touched one of the partitions meanwhile, or since
                the base; nothing became visible.
            ReadOnlyError: The dataset cannot be written.

        Cost:
            As `append`. Files that may also hold other rows are read: first the columns of the
            constraint, then, if some rows are deleted, the whole file. Memory: that of one writer.
        """
        from lakebed.state.conflicts import Read

        read = self._base_of(base)
        store = self._source.store
        with self._begin("delete", run) as transaction:
            current = transaction.base
            constraint = bind(self._constraint, current.layout.predicate_types)
            from lakebed.plan.search import plan

            chosen = plan(current, constraint, requests=0, store=store)
            deleted = work.deletion.find_deleted(store, chosen)
            if not deleted:
                return None
            target = work.writer.target_of(transaction, self._write_options)
            transaction.add(work.deletion.write_rest(store, chosen, deleted, target))
            scope_read = untouched(constraint, current)
            committed = transaction.commit(
                Change(
                    scope=TheseFiles.of(file.label for file in deleted),
                    deleted_row_count=sum(file.row_count for file in deleted),
                ),
                reads=() if read is None else [Read(state=read, scope=scope_read)],
            )
        return Commit.of(committed, current)

    def merge(
        self,
        data: object,
        on: str | Sequence[str],
        *,
        matched: IfMatched = "update",
        update: str | Sequence[str] | Mapping[str, object] | None = None,
        update_where: str | None = None,
        delete_where: str | None = None,
        not_matched: IfNotMatched = "insert",
        insert_where: str | None = None,
        missing: IfMissing = "keep",
        missing_update: Mapping[str, object] | None = None,
        missing_where: str | None = None,
        run: str | None = None,
        base: Base | None = None,
        spark: SparkSession | Literal[True] | None = None,
        dry_run: bool = False,
    ) -> MergeReport:
        """Update, delete and insert entities by the keys of some data, in one commit.

        A row of the data and an entity match if all fields of `on` are equal: NaN equals itself,
        and null equals nothing, so a row with a null key is always new. If the view is narrower
        than the dataset, only entities in it match or are missing, and updated or inserted
        entities must be in it.

        Conditions are SQL text on `target.x`, a column of the dataset, and `source.x`, a column of
        the data, in the syntax of `where`; two columns can be compared. Values are SQL as well:
        columns, literals, `+`, `-`, `*`, COALESCE, GREATEST, LEAST. See `docs/merge.md`.

        Args:
            data: As for `append`; a key may occur once. It may lack fields, which then stay as they
                are in updated entities. Extra fields must be used in a condition or a value.
            on: Fields of plain types, in both.
            matched: Action for entities that match: `update`, `delete`, or `ignore`.
            update: Columns to copy from the data; or a mapping from field to its new value, as SQL
                text or as another value. None copies all.
            update_where: Update only matching entities for which this is true.
            delete_where: Delete matching entities for which this is true, and do not update them.
            not_matched: Action for rows that match no entity: `insert`, or `ignore`.
            insert_where: Insert only rows for which this is true; on `source.x` alone.
            missing: Action for entities that no row matches: `keep`, `update` or `delete`.
            missing_update: Mapping from field to its new value in these; on `target.x` alone.
            missing_where: Apply the action only to entities for which this is true; on `target.x`
                and literals alone, since it selects files.
            run: Name of the run of the inserted rows. An updated entity stays with the run that
                wrote it, so a rerun of that run replaces it.
            base: The version that the data was made from, as for `append`: a later commit that may
                have touched one of the keys is a conflict. Without it, the merge applies to the
                state that it is committed to, and is repeated if another writer was faster.
            spark: A session whose tasks do the work, even if the data is not a DataFrame; True for
                the active one. A DataFrame always uses its own session.
            dry_run: Only report the planned changes.

        Returns:
            A report; its `commit` is None if no entity changes: then there is no new version.

        Raises:
            DuplicateKeyError: The data has a key twice; the message shows it.
            InvalidInputError: The clauses contradict each other, a field cannot be a key, or an
                entity would lie outside the view; nothing became visible.
            PredicateError: A condition or a value cannot be parsed.
            SchemaMismatchError: The data does not fit; nothing became visible.
            CommitConflictError: A commit since the base may have touched a key; or other writers
                were repeatedly faster. Nothing became visible.
            ReadOnlyError: The dataset cannot be written.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            As `append`. Partitions, bounds and indices select the files that may hold a key; of
            these, the columns that decide are read, and files that hold a changed entity are
            rewritten. Memory: the keys of the data, 256 MiB of its rows (the others go to a
            temporary file), and that of some writers. With Spark: four jobs; a task holds all keys.
        """
        from lakebed.work.merge import MergeTarget, merge

        self._check_writable()
        read = self._base_of(base)
        clauses = MergeClauses(
            on=given_names("on", on),
            matched=matched,
            update=update
            if update is None or isinstance(update, Mapping)
            else given_names("update", update),
            update_where=update_where,
            delete_where=delete_where,
            not_matched=not_matched,
            insert_where=insert_where,
            missing=missing,
            missing_update=missing_update,
            missing_where=missing_where,
        )
        target = MergeTarget(
            store=self._source.store,
            name=self._source.name,
            constraint=self._constraint,
            provided=self._supplied,
            read=read,
            run=run,
        )
        return merge(
            target,
            data,
            clauses,
            spark=spark,
            is_dry_run=dry_run,
            options=self._write_options,
            commit_options=self._commit_options,
        )

    def upsert(
        self,
        data: object,
        on: str | Sequence[str],
        *,
        run: str | None = None,
        base: Base | None = None,
        spark: SparkSession | Literal[True] | None = None,
        dry_run: bool = False,
    ) -> MergeReport:
        """Update the entities that have one of the keys of some data, and insert the other rows.

        Same as `merge` without further clauses; see there for arguments, errors and cost.
        """
        return self.merge(
            data,
            on,
            run=run,
            base=base,
            spark=spark,
            dry_run=dry_run,
        )

    def update_rows(
        self,
        values: Mapping[str, object],
        *,
        run: str | None = None,
        base: Base | None = None,
        spark: SparkSession | Literal[True] | None = None,
    ) -> Commit | None:
        """Set fields of the entities of the view, in one commit: an UPDATE … WHERE.

        ```
        flights.where("carrier = 'ua'").update_rows({"carrier": "upper(carrier)", "checked": True})
        ```

        A text is SQL over the columns of the entity as it was before; so text itself stands in
        quotes, as in `"'UA'"`. Any other value is taken as it is; None is null. SQL can have
        columns, literals, `+`, `-`, `*`, `/`, `||`, CASE, IF, CAST, COALESCE, GREATEST, LEAST,
        UPPER, LOWER, TRIM, LTRIM, RTRIM, CONCAT, ABS and ROUND; see `docs/merge.md`.

        The view only selects: an entity need not be in it afterwards. If the source of a partition
        changes, the entity moves to its new partition. It stays with the run that wrote it. Files
        without an entity of the view stay as they are.

        Args:
            values: New value of each field, by its name.
            run: Name of the run, for the history.
            base: The version that the decision was based on, as for `append`: a later commit that
                has touched a partition of the view is a conflict. Without it, the update applies to
                the state that it is committed to, and is repeated if another writer was faster.
            spark: A session whose tasks do the work; True for the active one.

        Returns:
            The commit, or None if the view is empty: then there is no new version.

        Raises:
            PredicateError: A value cannot be parsed, or names an unknown column.
            SchemaMismatchError: A field is unknown, or a value does not fit it, such as null in a
                field that is not nullable; nothing became visible.
            InvalidInputError: No field is given; nothing became visible.
            CommitConflictError: A commit since the base touched one of the partitions; or other
                writers were repeatedly faster. Nothing became visible.
            ReadOnlyError: The dataset cannot be written.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            As `merge`: of the files that may hold an entity of the view, the columns of the
            condition are read, and files with such an entity are rewritten.
        """
        from lakebed.state.runs import UPDATE_ROWS
        from lakebed.work.merge import MergeTarget, update_rows

        self._check_writable()
        target = MergeTarget(
            store=self._source.store,
            name=self._source.name,
            constraint=self._constraint,
            operation=UPDATE_ROWS,
            provided=self._supplied,
            read=self._base_of(base),
            run=run,
        )
        report = update_rows(
            target,
            RowUpdate(values),
            spark=spark,
            options=self._write_options,
            commit_options=self._commit_options,
        )
        return report.commit

    def export_telemetry(
        self,
        url: str | os.PathLike[str],
        schema: DimensionSchema | str | os.PathLike[str] | None = None,
        *,
        options: TelemetryOptions | None = None,
        if_changed: Literal["error", "keep", "replace"] = "error",
        storage_options: Mapping[str, str] | None = None,
        on_progress: OnProgress = NO_PROGRESS,
    ) -> TelemetryExport:
        """Write the submissions of the view as a telemetry tree, or add them to one.

        The tree has a level of directories for each dimension, and in these, files of lines
        `<uuid><tab><json>`: `20130612/nightly/winnt/001.lz4`. `Repository.adopt` accepts such a
        tree. A later export to the same tree writes only the directories that do not exist yet:
        the content of each is recorded beside the tree, where its readers do not look.

        Files appear when all files of the export are written. On a file system a directory
        appears atomically with its content. An export that dies leaves nothing that a reader sees,
        or the next export finishes it.

        Args:
            url: An empty directory or prefix of a bucket, or a tree of earlier exports.
            schema: A dimension schema, or its path. Its dimensions are the levels, taken from the
                fields or partition fields of these names; values that it does not allow become
                `OTHER`. None for the dataset's own partition fields.
            options: Settings of the tree: dimensions in the names of files, compression, size of
                files.
            if_changed: Action if a directory held other lines when it was exported: `error` writes
                nothing at all and names them, `keep` leaves and names them, `replace` writes them
                again. For a whole dataset this includes directories without remaining rows.
            storage_options: Settings of the object store.
            on_progress: Callback for progress; receives the number of rows read.

        Returns:
            A report of the written directories, and of those that hold several values: in a tree,
            `_` replaces most characters other than letters and digits.

        Raises:
            AlreadyExistsError: The target holds something that no export has written; or a
                directory has changed.
            ConflictError: Another export writes the tree at the same time.
            InvalidInputError: The tree has other levels.
            SchemaMismatchError: The dataset holds no submissions, or lacks a dimension.
            StorageError: A store failed; the next export completes a partly visible one.

        Cost:
            A read of the view, two for an existing tree. A file is a rename on a file system;
            elsewhere it is put, read and put again. Memory: up to 64 compressed files.
        """
        from lakebed.model.dimensions import DimensionSchema
        from lakebed.store import open_store
        from lakebed.tables.trees import telemetry

        if schema is not None and not isinstance(schema, DimensionSchema):
            schema = DimensionSchema.from_json(schema)
        target = open_store(url, storage_options=storage_options)
        return telemetry.export(
            self._source.store,
            self.plan(),
            target,
            schema,
            options,
            if_changed=if_changed,
            is_whole=self._constraint == TRUE,
            storage_options=storage_options,
            on_progress=on_progress,
        )

    def writer(
        self,
        *,
        run: str | None = None,
        base: Base | None = None,
    ) -> EntityWriter:
        """Return a writer of single entities, for small amounts, in this process.

        It is a context manager: a clean exit commits one batch, an error leaves nothing. If the
        view is narrower than the dataset, every entity must be in it.

        Args:
            run: As for `append`.
            base: As for `append`.

        Raises:
            ReadOnlyError: The dataset cannot be written.
        """
        read = self._base_of(base)
        transaction = self._begin("append", run)
        target = self._narrow_target(transaction)
        return work.writer.EntityWriter(self._source.store, transaction, target, read)

    def _write(
        self,
        operation: str,
        data: object,
        run: str | None,
        scope: Scope | Callable[[State], Scope] | None,
        base: Base | None,
    ) -> Commit:
        read = self._base_of(base)
        with self._begin(operation, run) as transaction:
            if callable(scope):
                scope = scope(transaction.base)
            transaction.add(self._stage(data, self._narrow_target(transaction)))
            return work.writer.commit_staged(transaction, scope, read)

    def _begin(self, operation: str, run: str | None) -> Transaction:
        from lakebed.state.transaction import Transaction

        self._check_writable()
        return Transaction.begin(
            self._source.store, self._source.name, operation, run=run, options=self._commit_options
        )

    def _check_writable(self) -> None:
        if self._source.pinned is not None:
            raise ReadOnlyError(
                f"{self!r} is {self._source.read_only[0]}, which can only be read.",
                hint=self._source.read_only[1],
            )

    def _base_of(self, base: Base | None) -> State | None:
        """Return the state that a write is checked against.

        Raises:
            InvalidInputError: The base belongs to another dataset, is a view that is not pinned,
                or has the wrong type.
            VersionNotFoundError: There is no such version.
            CommitConflictError: The base belongs to an earlier dataset of the same name.
        """
        self._check_writable()
        match base:
            case None:
                return None
            case View():
                self._check_base_is_mine(base, base._source.name, base._source.store)
                if base._source.pinned is None:
                    raise InvalidInputError(
                        f"{base!r} is not pinned to a version, so it cannot be the base of a write.",
                        hint="Make a `snapshot` of it before you read, read that, and give it as base.",
                    )
                return self._source.base_state(base._source.pinned)
            case ReadPlan():
                self._check_base_is_mine(base, base.state.name, base.store)
                return base.state
            case Commit():
                self._check_base_is_mine(base, base.dataset)
                return self._source.past_state(base.version, base.commit_id)
            case int() if not isinstance(base, bool):
                return self._source.past_state(base)
        raise InvalidInputError(
            f"{shown(base)} is not a valid base for writing to {self._source.name!r}.",
            hint="Give a version of it, or the snapshot, plan or commit that was read.",
        )

    def _check_base_is_mine(self, base: object, name: str, store: Store | None = None) -> None:
        """Check that a base belongs to this dataset; for a commit only the name can be checked.

        Raises:
            InvalidInputError: It belongs to another one.
        """
        mine = self._source
        if name == mine.name and (store is None or store.uri == mine.store.uri):
            return
        theirs = repr(name) if store is None else f"{name!r} in {store.uri}"
        raise InvalidInputError(
            f"{shown(base)} is of dataset {theirs}, so it cannot be the base of a write to "
            f"{mine.name!r} in {mine.store.uri}.",
            hint="Give a version, snapshot, plan or commit of the dataset that is written.",
        )

    def _narrow_target(self, transaction: Transaction) -> BatchTarget:
        return self._narrowed(
            work.writer.target_of(transaction, self._write_options), transaction.base
        )

    def _narrowed(self, target: BatchTarget, base: State) -> BatchTarget:
        constraint = bind(self._constraint, base.layout.predicate_types)
        return replace(target, constraint=constraint, provided=self._supplied(base))

    def _stage(self, data: object, target: BatchTarget) -> Written:
        if type(data).__module__.startswith("pyspark."):
            from lakebed.spark.task_kernel import is_spark_frame, write_frame

            if is_spark_frame(data):
                return write_frame(data, self._source.store, target)  # type: ignore[arg-type]  # checked
        from lakebed.arrow.entities import to_batches
        from lakebed.arrow.kernel import write_batches

        return write_batches(self._source.store, target, to_batches(data, target.descriptor))

    def _count(self, data: object, target: BatchTarget) -> dict[str, int]:
        """Return how many rows `_stage` would write into each partition."""
        if type(data).__module__.startswith("pyspark."):
            from lakebed.spark.frame_counts import count_frame_by_partition
            from lakebed.spark.task_kernel import is_spark_frame

            if is_spark_frame(data):
                return count_frame_by_partition(data, self._source.store, target)  # type: ignore[arg-type]  # checked
        from lakebed.arrow.entities import to_batches
        from lakebed.arrow.partition_counts import count_by_partition

        batches = to_batches(data, target.descriptor)
        return count_by_partition(self._source.store, target, batches)


class PartitionView(View):
    """The view of one partition.

    Attributes:
        path: Directory relative to the table; empty if unpartitioned.
        values: Typed value of each partition field.
    """

    def __init__(self, source: Source, path: str, values: Mapping[str, Scalar]) -> None:
        """Use `View.covering_partitions` instead."""
        terms: list[Predicate] = [
            NullCheck(name) if value is None else Membership(name, (value,))
            for name, value in values.items()
        ]
        super().__init__(source, all_of(terms))
        self.path = path
        self.values = values


ViewCondition = str | Dnf | Predicate | Any
"""What narrows a view: SQL text, lists, a predicate, or an expression of pyarrow or Polars."""

Base = int | View | ReadPlan | Commit
"""The data that a write was derived from: a version, a snapshot or pinned view, a plan, a commit."""


def untouched(constraint: Predicate, state: State) -> Unchanged:
    """Return the partitions that may hold entities of a view, as a scope that is only read.

    Args:
        constraint: Constraint of the view, bound to the columns of the state.
        state: The state that the view is read from.
    """
    levels = state.layout.partition_level_types
    schema = state.descriptor.schema
    return Unchanged(
        state.layout.sure_strategy.project(constraint, schema, levels, strict=False), levels
    )


def _checked_values(entity: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return the values of all columns that a predicate may name, checked against their types."""
    values: dict[str, Any] = {}
    for name, kind in state.layout.predicate_types.items():
        value = value_of(entity, name)
        is_plain = isinstance(kind, Primitive | Decimal)
        values[name] = check_value(value, kind, name) if is_plain and value is not None else value
    return values


class EntityReader:
    """An iterator over entities, open from the start; also a context manager that closes the files.

    It is closed by `close`, at the end of a `with`, or by reading to the end. `open`, `has_next`
    and `read` are Kite's names.
    """

    def __init__(
        self, batches: pa.RecordBatchReader, build: Callable[[dict[str, Any]], Any] | None
    ) -> None:
        """Use `View.reader` instead."""
        self._batches = batches
        self._entities = self._read(build)
        self._ahead: list[Any] = []  # the next entity, if `has_next` has asked for it
        self._is_closed = False
        self._is_at_end = False

    def _read(self, build: Callable[[dict[str, Any]], Any] | None) -> Iterator[Any]:
        from lakebed.arrow.as_python import python_rows

        for batch in self._batches:
            for row in python_rows(batch):
                yield row if build is None else build(row)

    @property
    def is_open(self) -> bool:
        """True if there may be more to read."""
        return not (self._is_closed or self._is_at_end)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next entity.

        Raises:
            InvalidInputError: The reader was closed before the end.
            StopIteration: There are no more entities.
        """
        self._check_open()
        if self._ahead:
            return self._ahead.pop()
        try:
            return next(self._entities)
        except StopIteration:
            self._is_at_end = True
            raise

    def _check_open(self) -> None:
        if self._is_closed and not self._is_at_end:
            raise InvalidInputError("The reader is closed.", hint="Open another one.")

    def open(self) -> Self:
        """Return this reader, which is open from the start; a name of Kite's.

        Raises:
            InvalidInputError: The reader was closed before the end.
        """
        self._check_open()
        return self

    def has_next(self) -> bool:
        """Return whether there is another entity; reads it ahead.

        Raises:
            InvalidInputError: The reader was closed before the end.
        """
        if not self._ahead:
            try:
                self._ahead.append(next(self))
            except StopIteration:
                return False
        self._check_open()
        return True

    def read(self) -> Any:
        """Return the next entity, as `next` does.

        Raises:
            InvalidInputError: There are no more entities, or the reader was closed before the end.
        """
        try:
            return next(self)
        except StopIteration:
            raise InvalidInputError(
                "The reader is at its end.", hint="Call `has_next` before each `read`, or iterate."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._is_closed = True
        self._ahead.clear()
        self._entities = iter(())
        self._batches.close()
