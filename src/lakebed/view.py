"""Views: datasets narrowed by constraints, for reading, writing and deleting."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

import pyarrow as pa

from lakebed import work
from lakebed.commit import Commit
from lakebed.common.given import check_given, given_names
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.shown import cut, shown
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    PredicateError,
    ReadOnlyError,
)
from lakebed.model.drift import Types, UnknownColumns, check_drift, grown
from lakebed.model.merging import (
    IfMatched,
    IfMissing,
    IfNotMatched,
    MergeClauses,
    OrderedClauses,
    RowUpdate,
)
from lakebed.model.predicate import (
    TRUE,
    Dnf,
    Predicate,
    all_of,
    bind,
    columns_of,
    conjuncts,
    from_dnf,
    normalise,
    roots_of,
)
from lakebed.model.refinement import set_of
from lakebed.model.schema import Type
from lakebed.model.sql_predicates import Parameters, parse_sql, plain_parameters
from lakebed.model.values import Scalar
from lakebed.plan.plan import ScanPlan
from lakebed.selection import Readable, ReadPlan, ViewSelection, check_row_count, names_of
from lakebed.state import signals
from lakebed.state.history import MERGE
from lakebed.state.metadata_provider import reporting_provider_errors
from lakebed.state.scope import Nothing, Scope, TheseFiles, Unchanged, WholeView
from lakebed.state.snapshot import Snapshot, Source
from lakebed.state.state import Change, State
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.arrow.kernel import BatchTarget, WriteOptions
    from lakebed.arrow.partition_counts import PartitionCounts
    from lakebed.kite_words import KiteGroup
    from lakebed.model.descriptor import DatasetDescriptor
    from lakebed.model.schema import Schema
    from lakebed.spark.decided_rows import RowStatement
    from lakebed.spark.planned_frame import Way
    from lakebed.state.committing import CommitOptions
    from lakebed.state.transaction import Transaction
    from lakebed.state.updates import DescriptorEdit, Update
    from lakebed.state.written import Written
    from lakebed.store.dry_run import DryRunStore
    from lakebed.work.merge import MergeReport
    from lakebed.work.overwriting import Replacement


_MaybeCommit = TypeVar("_MaybeCommit", Commit, Commit | None)


class View(Readable):
    """A dataset narrowed by constraints. Immutable; every refinement returns another view.

    Every call that reads starts from the current head. So a view shows new commits, and each
    result is of one version. A `snapshot` of a view always shows the same version.

    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-view").create("numbers", descriptor)
    >>> commit = numbers.append([{"n": n} for n in range(10)])
    >>> view = numbers.where("n > 3 AND n <= 6")
    >>> view
    <View of 'numbers': n > 3 AND n <= 6>
    >>> view.count()
    3
    """

    _NOT_OF_PINNED = frozenset(
        (
            "append",
            "delete",
            "merge",
            "overwrite",
            "update_rows",
            "upsert",
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
                "data files of the dataset": f"{state.live.count:,}",
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
        `Dataset.protections.add` keeps them. A pinned view is its own snapshot.

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
    def kite(self) -> KiteGroup:
        """Kite's words: `kite.with_("carrier", "UA")`, `kite.reader()`, `kite.signal_ready()` and others."""
        from lakebed.kite_words import KiteGroup

        return KiteGroup(self)

    def _is_of(self, other: View) -> bool:
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
            parameters = plain_parameters(predicate, parameters)  # read once, used again
            condition = self._bound(lambda types: parse_sql(predicate, types, parameters))
        elif parameters is not None:
            raise PredicateError(
                f"Parameters are given beside {shown(predicate)}.",
                hint="Only SQL text has parameters; give the values in the condition.",
            )
        elif isinstance(predicate, Predicate):
            condition = self._bound(lambda types: normalise(predicate, types))
        elif isinstance(predicate, list | tuple):
            terms = from_dnf(predicate)
            condition = self._bound(lambda types: normalise(terms, types))
        else:
            from lakebed.arrow.expressions import exact_predicate

            condition = self._bound(lambda types: exact_predicate(predicate, types))
        return self._refined_to(all_of([self._constraint, condition]))

    if TYPE_CHECKING:
        filter = where  # an alias

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

        snapshot, constraint = self._asked()
        return plan(snapshot.state, constraint, requests=snapshot.requests, store=store)

    def _asked(self) -> tuple[Snapshot, Predicate]:
        """Return what is read, and the condition on it; the source records the read."""
        snapshot = self._source.load()
        constraint = bind(self._constraint, snapshot.state.layout.predicate_types)
        self._source.record_read(constraint)
        return snapshot, constraint

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
        from lakebed.plan.search import count_known_rows

        store = self._source.store
        snapshot, constraint = self._asked()
        known, remaining = count_known_rows(snapshot.state, constraint, store)
        return known + scan.count(store, remaining)

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

    def _exact(self, state: State) -> Predicate | None:
        return state.layout.sure_strategy.exact(
            bind(self._constraint, state.layout.predicate_types),
            state.descriptor.schema,
            state.layout.partition_level_types,
        )

    def append(
        self,
        data: object,
        run: str | None = None,
        *,
        if_not_empty: Literal["append", "error"] = "append",
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: bool = False,
    ) -> Commit:
        """Append a batch. If the view is narrower than the dataset, every entity must be in it.

        Args:
            data: A Spark DataFrame, which is written by its tasks; or, written in this process, a
                pyarrow Table, RecordBatch or RecordBatchReader, a pandas or Polars DataFrame, a
                relation of DuckDB, a view, or any other object with `__arrow_c_stream__`; or an
                iterable of dicts, dataclass instances or other objects with fields.
            run: Name of the run. If it has rows already, these stay, and `notes` of the commit and a
                warning name the remedy: `rerun` replaces them.
            if_not_empty: `error` refuses the append if the view holds an entity or has been
                signalled ready, for a job that must not run twice; also if another commit fills
                one of its partitions meanwhile.
            unknown: Columns that the dataset lacks: `reject` refuses the data, `keep` adds them as
                nullable fields, by a commit right before that of the rows. Of dicts and objects
                those of the first 10,000 rows are added.
            types: Columns of a wider type than their field: `strict` refuses the data, `widen`
                widens the field in the same way, where every value stays itself: see
                `DatasetDescriptor.change_type`.
            base: The version that the data was made from, or the snapshot, plan or commit that
                was read; see `docs/concurrency.md`. A later commit that has touched a partition of
                the data is a conflict.
            dry_run: Write nothing; return the commit that would be made. All checks are made, and
                the rows are encoded to count files and bytes; those of a DataFrame are only
                counted. An iterator or a reader is consumed: it is refused afterwards.

        Raises:
            SchemaMismatchError: The data does not fit; nothing became visible.
            PartitionSpecError: The source of a partition function is missing.
            InvalidInputError: An entity lies outside the view; or inside `foreachBatch`, the run has
                rows already. Nothing became visible.
            AlreadyExistsError: The view must be empty, but holds an entity or is ready.
            CommitConflictError: The view must be empty, and another commit touched it meanwhile;
                or a commit since the base has touched a partition of the data.
            CommitUnknownError: The store stopped answering; see the error.

        Cost:
            Besides the data files: a read of the head, five small objects, with `run` also the
            list of runs, and one Spark job for a DataFrame. If properties ask for it, the dataset is published after the commit,
            and `Commit.not_published` lists failures: see docs/delta-iceberg.md. For a Hive table
            that is published this way, the touched partitions are also read and written.
        """
        if if_not_empty not in ("append", "error"):
            raise InvalidInputError(
                f"if_not_empty is {if_not_empty!r}.", hint="Give 'append' or 'error'."
            )
        if dry_run:
            return self._dry_run(
                lambda dry: dry.append(
                    data,
                    run,
                    if_not_empty=if_not_empty,
                    unknown=unknown,
                    types=types,
                    base=base,
                )
            )
        data = self._fitted(data, unknown, types)
        if if_not_empty == "append":
            scope: Scope | Callable[[State], Scope] = Nothing()
            if run is not None and _is_of_micro_batch(data):
                scope = functools.partial(self._must_be_new, run)
            return self._write("append", data, run, scope, base)
        return self._write("append", data, run, self._must_be_empty, base)

    def _must_be_new(self, run: str, base: State) -> Scope:
        """Check that a run has no rows yet, for rows that Spark may write twice."""
        from lakebed.state import runs

        if runs.read(self._source.store, base.lists).live_files_of(run, base.live):
            raise InvalidInputError(
                f"Run {run!r} has rows already. Inside foreachBatch, Spark repeats a micro-batch after "
                "a failure, so an append of a named run may add the same rows again.",
                hint="Write by `frame.writeStream.foreachBatch(dataset.sink)`, or repeat the run by "
                "`rerun`, with a name of its own for each epoch. To add rows each time, leave run out.",
            )
        return Nothing()

    def _fitted(self, data: object, unknown: UnknownColumns, types: Types) -> object:
        """Let the schema grow for some data as far as the settings allow; return the rows to write.

        The fields are added to the schema that is current, also if other writers change it
        meanwhile. If the write fails after that, they stay.
        """
        if not check_drift(unknown, types):
            return data
        from lakebed.arrow.entities import find_fields

        self._check_writable()
        given, rows = find_fields(data, self._source.load().state.descriptor.schema)
        if given is not None:
            self._grow(given, unknown, types)
        return rows

    def _grow(self, given: Schema, unknown: UnknownColumns, types: Types) -> None:
        """Let the schema grow for data of some fields as far as the settings allow."""
        from lakebed.arrow.conform import check_columns, check_types

        declared = self._source.load().state.descriptor

        def edit(old: DatasetDescriptor) -> DatasetDescriptor:
            schema = grown(old.schema, given, unknown, types)
            return old if schema is old.schema else replace(old, schema=schema)

        wanted = edit(declared)
        if wanted is not declared:
            check_columns(given.names, wanted)
            check_types(given, wanted)
            self._evolved(edit)

    def _evolved(
        self,
        edit: DescriptorEdit,
        *,
        made_from: State | None = None,
        drop: Sequence[str] = (),
        leaves_unchecked: bool = False,
    ) -> Update:
        """Change the descriptor by an edit; see `Dataset.evolve`."""
        from lakebed.state import schema_file, updates

        store, name = self._source.store, self._source.name
        provider = self._source.metadata

        def accepted(old: DatasetDescriptor) -> DatasetDescriptor:
            new = edit(old)
            if provider is not None:
                provider.check(name, new)
            return new

        done = updates.update(
            store,
            name,
            accepted,
            self._commit_options,
            made_from=made_from,
            drop=drop,
            leaves_unchecked=leaves_unchecked,
        )
        schema_file.put_or_leave(store, name, done.descriptor)
        self._source.invalidate()
        if provider is not None:
            with reporting_provider_errors(
                name,
                f"updated to version {done.entry.version}",
                "Call evolve(lambda old: old) to save it to the provider again.",
            ):
                provider.save(name, done.descriptor)
        return done

    def _must_be_empty(self, base: State) -> Scope:
        """Check that the view is empty and not ready, and return the scope that ensures it."""
        constraint = bind(self._constraint, base.layout.predicate_types)
        from lakebed.plan.search import plan

        is_empty = self._is_empty(plan(base, constraint, requests=0, store=self._source.store))
        if not is_empty or signals.find(self._source.store, self._source.name, self._constraint):
            raise AlreadyExistsError(
                f"{self!r} {'is ready' if is_empty else 'is not empty'}.",
                hint="Append without if_not_empty, or overwrite it.",
            )
        return untouched(constraint, base)

    @overload
    def overwrite(
        self,
        data: object,
        *,
        run: str | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: Literal[False] = False,
    ) -> Commit: ...

    @overload
    def overwrite(
        self,
        data: object,
        *,
        run: str | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: Literal[True],
    ) -> Replacement: ...

    def overwrite(
        self,
        data: object,
        *,
        run: str | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        dry_run: bool = False,
    ) -> Commit | Replacement:
        """Replace the whole view, which must be aligned with partition boundaries.

        The replaced files stay on storage, and readable by version.

        Args:
            data: As for `append`; it may hold no rows: an explicit empty result.
            run: Name of the run, for the history.
            unknown: As for `append`.
            types: As for `append`.
            base: The version that the data was made from, as for `append`. Later rows of other
                writers in the view are a conflict, and are not replaced.
            dry_run: Only find the partitions and rows that would be replaced. An iterator or a
                reader is consumed: it is refused afterwards.

        Returns:
            The commit; with `dry_run` the partitions and rows that an overwrite would replace.

        Raises:
            CommitConflictError: Another commit touched one of the partitions meanwhile, or since
                the base; nothing became visible.
            InvalidInputError: An entity lies outside the view; nothing became visible.
            PredicateError: The view is not aligned with partition boundaries.

        Cost:
            As `append`; for a dataset of up to 100,000 files also the file table, to count the
            replaced rows. With `dry_run` a read of the head, and the file table; a DataFrame takes
            one Spark job, and another one if dimensions have a cap.
        """
        if dry_run:
            return self._find_overwrite(data, self._whole_of, unknown, types)
        scope = self._whole()
        return self._write("overwrite", self._fitted(data, unknown, types), run, scope, base)

    def _find_overwrite(
        self,
        data: object,
        scope: Callable[[State], Scope] | None,
        unknown: UnknownColumns,
        types: Types,
    ) -> Replacement:
        if check_drift(unknown, types):
            before = self._source.load().state.version
            dry, _ = self._on_dry_run()
            rows = dry._fitted(data, unknown, types)
            found = dry._find_overwrite(rows, scope, "reject", "strict")
            return replace(found, version=before)
        from lakebed.arrow.kernel import WriteOptions
        from lakebed.state.reader import read_own_head

        self._check_writable()
        store = self._source.store
        base = read_own_head(store, self._source.name).state
        target = self._narrowed(work.writer.target_in(base, 0, WriteOptions()), base)
        replaced = None if scope is None else scope(base)
        counts = self._count(data, target)
        return work.overwriting.find_replacement(store, base, counts, replaced, target)

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
        dry_run: bool = False,
        spark: SparkSession | Literal[True] | None = None,
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
            dry_run: Write nothing; return the commit that would be made.
            spark: Session whose tasks read and write files; True for the active one; None for
                threads of this process, which also do a dry run.

        Returns:
            The commit, or None if the view is empty: then there is no new version.

        Raises:
            CommitConflictError: Another commit touched one of the partitions meanwhile, or since
                the base; nothing became visible.
            ReadOnlyError: The dataset cannot be written.

        Cost:
            As `append`. Files that may also hold other rows are read: first the columns of the
            constraint, then, if some rows are deleted, the whole file. Up to four threads do this;
            they share the memory of one writer, and each holds one compressed file. With `spark`
            two jobs do it.
        """
        from lakebed.state.conflicts import Read

        if dry_run:
            return self._dry_run(lambda dry: dry.delete(run=run, base=base))
        read = self._base_of(base)
        store = self._source.store
        with self._begin("delete", run) as transaction:
            current = transaction.base
            constraint = bind(self._constraint, current.layout.predicate_types)
            from lakebed.plan.search import plan

            chosen = plan(current, constraint, requests=0, store=store)
            workers = None
            if spark is not None and store.is_shared:
                from lakebed.spark.task_workers import workers_for

                name = f"delete from {current.name}"
                workers = workers_for(spark, store, threads=1, purpose=name)
            deleted = work.deletion.find_deleted(store, chosen, workers)
            if not deleted:
                return None
            target = work.writer.target_of(transaction, self._write_options)
            transaction.add(work.deletion.write_rest(store, chosen, deleted, target, workers))
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
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
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
            unknown: As for `append`; `keep` adds each column that the dataset lacks, also one that
                only a condition or a value names.
            types: As for `append`.
            base: The version that the data was made from, as for `append`: a later commit that may
                have touched one of the keys is a conflict. Without it, the merge applies to the
                state that it is committed to, and is repeated if another writer was faster.
            spark: A session whose tasks do the work, even if the data is not a DataFrame; True for
                the active one. A DataFrame always uses its own session.
            dry_run: Write nothing; report the planned changes. This process then does the work,
                whatever `spark` is, and collects the rows of a DataFrame.

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
        view = self
        if dry_run and check_drift(unknown, types):
            view, _ = self._on_dry_run()
        data = view._fitted(data, unknown, types)
        return view._merged(data, clauses, run=run, base=base, spark=spark, dry_run=dry_run)

    def _merged(
        self,
        data: object,
        clauses: MergeClauses | OrderedClauses,
        *,
        run: str | None,
        base: Base | None = None,
        spark: SparkSession | Literal[True] | None = None,
        dry_run: bool = False,
        operation: str = MERGE,
    ) -> MergeReport:
        """Merge data by clauses, which SQL text gives in order."""
        from lakebed.work.merge import MergeTarget, merge

        self._check_writable()
        target = MergeTarget(
            store=self._source.store,
            name=self._source.name,
            constraint=self._constraint,
            operation=operation,
            provided=self._supplied,
            read=self._base_of(base),
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
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
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
            unknown=unknown,
            types=types,
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
        dry_run: bool = False,
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
            dry_run: Write nothing; return the commit that would be made. This process then does
                the work, whatever `spark` is.

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
        from lakebed.state.history import UPDATE_ROWS
        from lakebed.work.merge import MergeTarget, update_rows

        if dry_run:
            return self._dry_run(lambda dry: dry.update_rows(values, run=run, base=base))
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

    def _change_rows(self, frame: DataFrame, statement: RowStatement) -> Commit | None:
        """Carry out a statement of Spark that changes rows."""
        from lakebed.work.matched_rows import change_rows

        self._check_writable()
        return change_rows(
            self._source.store,
            frame,
            statement,
            options=self._write_options,
            commit_options=self._commit_options,
        )

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

    def _dry_run(self, act: Callable[[Self], _MaybeCommit]) -> _MaybeCommit:
        """Return the commit that a verb makes on a store that keeps all writes in this process."""
        from lakebed.commit import as_dry_run

        dry, store = self._on_dry_run()
        before = self._source.load().state.version
        commit = act(dry)
        if commit is None or commit.version <= before:
            return commit  # nothing would change
        return as_dry_run(commit, store)

    def _on_dry_run(self) -> tuple[Self, DryRunStore]:
        """Return the same view on a store that keeps all writes in this process, and the store."""
        from lakebed.store.dry_run import DryRunStore

        store = DryRunStore(self._source.store)
        other = copy.copy(self)
        other._source = self._source.on(store)
        return other, store

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
        store = self._source.store
        frame = self._find_frame(data, target)
        if frame is not None:
            from lakebed.spark.task_kernel import write_frame

            if store.is_dry_run:
                return work.overwriting.as_if_written(self._count(frame, target), target)
            return write_frame(frame, store, target)
        from lakebed.arrow.entities import to_batches
        from lakebed.arrow.kernel import write_batches

        batches = to_batches(data, target.descriptor, is_dry_run=store.is_dry_run)
        return write_batches(store, target, batches)

    def _count(self, data: object, target: BatchTarget) -> PartitionCounts:
        """Return how many rows `_stage` would write into each partition."""
        store = self._source.store
        frame = self._find_frame(data, target)
        if frame is not None:
            from lakebed.spark.frame_counts import count_frame_by_partition

            return count_frame_by_partition(frame, store, target)
        from lakebed.arrow.entities import to_batches
        from lakebed.arrow.partition_counts import count_by_partition

        return count_by_partition(
            store, target, to_batches(data, target.descriptor, is_dry_run=True)
        )

    def _find_frame(self, data: object, target: BatchTarget) -> DataFrame | None:
        """Return rows of Spark as a frame of Spark; None of other rows."""
        if not type(data).__module__.startswith("pyspark."):
            return None
        from lakebed.spark.task_kernel import find_spark_frame

        return find_spark_frame(data, target.descriptor.schema.names)


ViewCondition = str | Dnf | Predicate | Any
"""What narrows a view: SQL text, lists, a predicate, or an expression of pyarrow or Polars."""

Base = int | View | ReadPlan | Commit
"""The data that a write was derived from: a version, a snapshot or pinned view, a plan, a commit."""


def _is_of_micro_batch(data: object) -> bool:
    """Return whether rows are those of a micro-batch inside `foreachBatch`, as far as is known."""
    if not type(data).__module__.startswith("pyspark."):
        return False
    from lakebed.spark.session import query_of

    return query_of(data) is not None


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
