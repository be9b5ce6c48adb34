"""Base class of everything with rows that can be read, and selections of columns and rows."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from lakebed.commit import File, files_of
from lakebed.common.former_names import RefusesFormerNames
from lakebed.common.given import given_names
from lakebed.common.items import Items
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, MissingDependencyError, SchemaMismatchError
from lakebed.model.names import nearest
from lakebed.model.predicate import Dnf, Predicate
from lakebed.model.values import plain_value
from lakebed.plan.plan import ScanPlan
from lakebed.store.base import Store

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.arrow.as_python import DtypeBackend
    from lakebed.spark.planned_frame import Way

HEAD_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReadPlan(ScanPlan):
    """A plan with its store, so that consumers of Arrow streams can read it.

    Attributes:
        store: The store that holds the files.
        columns: Names of the columns to read, in order; None for all fields.
        limit: Maximum number of rows; None for all.
    """

    store: Store = field(compare=False, repr=False)
    columns: tuple[str, ...] | None = None
    limit: int | None = None

    @classmethod
    def of(cls, store: Store, chosen: ScanPlan) -> Self:
        """Return a plan together with its store."""
        return cls(
            layout=chosen.layout,
            files=chosen.files,
            residual=chosen.residual,
            file_table=chosen.file_table,
            state=chosen.state,
            predicate=chosen.predicate,
            requests=chosen.requests,
            account=chosen.account,
            store=store,
        )

    @property
    def schema(self) -> pa.Schema:
        """Schema of the columns to read."""
        from lakebed.arrow import scan

        return scan.output_schema(self.layout, self.columns)

    def record_batches(self, columns: str | Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches; see `View.record_batches`."""
        from lakebed.arrow import scan

        return self._scan(columns, scan.STREAM_BYTES)

    def _scan(
        self, columns: str | Sequence[str] | None, ahead_bytes: int | None
    ) -> pa.RecordBatchReader:
        from lakebed.arrow import scan

        names = self.columns if columns is None else columns
        return scan.scan(self.store, self, names, limit=self.limit, ahead_bytes=ahead_bytes)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow stream; see `View.__arrow_c_stream__`."""
        return self.record_batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of that stream."""
        return self.schema.__arrow_c_schema__()


class Readable(RefusesFormerNames, ABC):
    """Base class of datasets, views and selections, which have rows to read."""

    @abstractmethod
    def plan(self) -> ReadPlan:
        """Choose the data files to read, of the current version."""

    @abstractmethod
    def limit(self, row_count: int) -> ViewSelection:
        """Return at most `row_count` of the rows."""

    @abstractmethod
    def _read_schema(self) -> pa.Schema:
        """Return the schema of a read. Reads the head."""

    @abstractmethod
    def count(self) -> int:
        """Count the rows.

        Cost:
            See `View.count`.
        """

    def __len__(self) -> int:
        """Return the number of rows; the cost is that of `count`."""
        return self.count()

    def __bool__(self) -> bool:
        """Return True, also without rows: an object is not asked for its rows by a mere test."""
        return True

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that a read returns. Reads the head."""
        return tuple(self._read_schema().names)

    def arrow(self, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return the rows as an Arrow table, read in this process.

        Args:
            columns: Fields or partition fields, including `batch_id`; None for all fields.

        Raises:
            SchemaMismatchError: A column is unknown or given twice, or the list is empty.
            CorruptMetadataError: A data file is missing or damaged.

        Cost:
            A read of the head, then the row groups that can match. Memory: the whole result.
        """
        # All rows are in memory at the end anyway.
        return self._planned(columns)._scan(None, None).read_all()

    def record_batches(self, columns: str | Sequence[str] | None = None) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches; like `arrow`, without all rows in memory.

        Cost:
            As `arrow`. Memory: up to 256 MiB of row groups that are read ahead of the caller, as
            large as they are in the files before compression, and their compressed content. Or one
            row group, if it is larger.
        """
        return self._planned(columns).record_batches()

    def pandas(
        self,
        columns: str | Sequence[str] | None = None,
        *,
        dtype_backend: DtypeBackend | None = None,
    ) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame; like `arrow`.

        By default a column of whole numbers with nulls becomes float64, as usual in pandas: the last
        digits of numbers beyond 2**53 change. A `dtype_backend` keeps them exact.

        Args:
            columns: As for `arrow`.
            dtype_backend: As in pandas' own readers: `numpy_nullable` for dtypes with nulls, such as
                Int64, or `pyarrow` for Arrow's own types; None for the plain ones of NumPy.

        Raises:
            MissingDependencyError: pandas is not installed.
            InvalidInputError: A date is outside the years 1 to 9999, which pandas does not support,
                or the backend is unknown.
        """
        _check_installed("pandas", "View.pandas")
        from lakebed.arrow.as_python import pandas_frame

        return pandas_frame(self.arrow(columns), dtype_backend)

    def polars(self, columns: str | Sequence[str] | None = None) -> pl.DataFrame:
        """Return the rows as a Polars DataFrame; like `arrow`.

        For a LazyFrame, which reads only what its query needs, pass `dataset()` to
        `polars.scan_pyarrow_dataset`.

        Raises:
            MissingDependencyError: Polars is not installed.
        """
        _check_installed("polars", "View.polars")
        import polars

        frame = polars.from_arrow(self.arrow(columns))
        assert isinstance(frame, polars.DataFrame)  # of a table
        return frame

    def head(self, row_count: int = HEAD_ROWS) -> pa.Table:
        """Return some rows as an Arrow table, from as few data files as possible.

        The choice of rows is arbitrary. The result is that of `limit(row_count).arrow()`.
        """
        return self.limit(row_count).arrow()

    def dataset(self) -> ds.Dataset:
        """Return the planned files as a pyarrow Dataset, for DuckDB, Polars and others.

        They push columns and filters down, and files that a filter rules out are not opened: the
        planner applies the filter like that of a view. All reads use the version that is current
        now, which a later cleanup may remove. Partition fields are hidden unless `select` names
        them.

        ```
        trips = flights.where("carrier = 'UA'").dataset()
        duckdb.sql("SELECT dest, count(*) FROM trips WHERE time_hour >= '2013-06-01' GROUP BY dest")
        polars.scan_pyarrow_dataset(trips).filter(polars.col("dest") == "SFO").collect()
        ```

        Raises:
            InvalidInputError: The data files are not Parquet, or a file of an older schema has a
                column in a form that pyarrow does not support; the message names it. `arrow` reads
                these.

        Cost:
            As `plan`, and again for each filter that is pushed down. With a `limit`, its rows are
            read now.
        """
        from lakebed.arrow.planned import planned_dataset

        chosen = self.plan()
        return planned_dataset(chosen.store, chosen, chosen.columns, chosen.limit)

    def files(self) -> Items[File]:
        """Return the data files that must be read, by directory, in the order of the head.

        A file may have rows outside the view, and lacks its partition columns: use `dataset` to
        read rows.

        Cost:
            As `plan`, and the file table, of which there are few objects.
        """
        chosen = self.plan()
        from lakebed.state import file_table

        counts = file_table.read_counts(chosen.store, chosen.file_table)
        labels = [file.label for file in chosen.files]
        return files_of(chosen.store, chosen.state, labels, counts)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow stream, for consumers such as Polars, DuckDB and pandas.

        They are read on demand, a few row groups at a time, all of one version.

        Args:
            requested_schema: A capsule with the schema that the consumer wants; columns are cast
                to its types if no value is lost.
        """
        return self.plan().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of that stream. Reads the head."""
        return self._read_schema().__arrow_c_schema__()

    if TYPE_CHECKING:  # aliases that `dir` does not list; see lakebed.common.former_names
        to_arrow = arrow
        to_pandas = pandas
        to_polars = polars

    def _planned(self, columns: str | Sequence[str] | None) -> ReadPlan:
        """Return the plan for a read of some columns; None for all columns of the selection."""
        names = None if columns is None else given_names("columns", columns)
        chosen = self.plan()
        if names is None:
            return chosen
        if chosen.columns is not None:
            check_selected(names, chosen.columns)
        return replace(chosen, columns=names)


class Selectable(Protocol):
    """The interface of a view that a selection needs."""

    def plan(self) -> ReadPlan:
        """Choose the data files to read."""

    def count(self) -> int:
        """Count the rows."""

    def where(self, predicate: str | Dnf | Predicate) -> Selectable:
        """Keep the rows that meet a condition."""

    def spark(
        self,
        spark: SparkSession | None = None,
        columns: str | Sequence[str] | None = None,
        *,
        way: Way = "auto",
    ) -> DataFrame:
        """Return the rows as a Spark DataFrame."""

    def _read_schema(self, columns: str | Sequence[str] | None = None) -> pa.Schema: ...


class ViewSelection(Readable):
    """A read-only selection of columns, rows or both of a view or dataset.

    Immutable; every call reads the current version, as with a view.

    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-selection").create("numbers", descriptor)
    >>> commit = numbers.append([{"n": n, "m": -n} for n in range(10)])
    >>> selection = numbers.where("n > 3").select("m").limit(2)
    >>> selection
    <Selection m, limit 2, of <View of 'numbers': n > 3>>
    >>> selection.arrow().to_pydict(), selection.count()
    ({'m': [-4, -5]}, 2)
    """

    def __init__(
        self,
        view: Selectable,
        columns: tuple[str, ...] | None = None,
        row_count: int | None = None,
    ) -> None:
        """Use `View.select` or `View.limit` instead."""
        self._view = view
        self._columns = columns
        self._row_count = row_count

    def __repr__(self) -> str:
        parts = [] if self._columns is None else [", ".join(self._columns)]
        parts += [] if self._row_count is None else [f"limit {self._row_count}"]
        return f"<Selection {', '.join(parts)}, of {self._view!r}>"

    def where(self, predicate: str | Dnf | Predicate) -> ViewSelection:
        """Keep the rows that meet a condition, which may use columns that were not selected.

        Raises:
            PredicateError: As for `View.where`.
            InvalidInputError: The rows are limited already, and a condition must come before that.
        """
        if self._row_count is not None:
            raise InvalidInputError(
                f"Cannot add a condition to {self!r}: it has a limit.",
                hint="Give the condition first, and the limit after it.",
            )
        return ViewSelection(self._view.where(predicate), self._columns)

    if TYPE_CHECKING:
        filter = where  # an alias

    def select(self, *columns: str | Sequence[str]) -> ViewSelection:
        """Return the same rows with some of the columns.

        Raises:
            SchemaMismatchError: A column is not in the selection, or given twice, or the list is
                empty.
        """
        names = names_of(columns)
        if self._columns is not None:
            check_selected(names, self._columns)
        self._view._read_schema(names)
        return ViewSelection(self._view, names, self._row_count)

    def limit(self, row_count: int) -> ViewSelection:
        """Return at most `row_count` of the rows; the choice is arbitrary.

        Raises:
            InvalidInputError: `row_count` is not a valid number of rows.
        """
        fewer = check_row_count(row_count)
        if self._row_count is not None:
            fewer = min(fewer, self._row_count)
        return ViewSelection(self._view, self._columns, fewer)

    def plan(self) -> ReadPlan:
        """Choose the data files to read, as `View.plan`; the plan has the columns and the limit."""
        return replace(self._view.plan(), columns=self._columns, limit=self._row_count)

    def count(self) -> int:
        """Count the rows; the cost is that of `View.count`."""
        total = self._view.count()
        return total if self._row_count is None else min(total, self._row_count)

    def _read_schema(self) -> pa.Schema:
        return self._view._read_schema(self._columns)

    def spark(self, spark: SparkSession | None = None, *, way: Way = "auto") -> DataFrame:
        """Return the rows as a Spark DataFrame of one version; see `View.spark`."""
        frame = self._view.spark(spark, self._columns, way=way)
        return frame if self._row_count is None else frame.limit(self._row_count)


def names_of(columns: Sequence[str | Sequence[str]]) -> tuple[str, ...]:
    """Return names that are given one by one, or in lists.

    Raises:
        InvalidInputError: A name is not a text.
    """
    return tuple(name for given in columns for name in given_names("columns", given))


def check_selected(names: Sequence[str], selected: Sequence[str]) -> None:
    """Check that columns are among those that were selected before.

    Raises:
        SchemaMismatchError: A column was not selected.
    """
    for name in names:
        if name not in selected:
            raise SchemaMismatchError(
                f"Column {name!r} is not in the selection.",
                hint=nearest(name, selected) or f"Selected columns: {', '.join(selected)}.",
            )


def check_row_count(row_count: int) -> int:
    """Return a number of rows after a check.

    Raises:
        InvalidInputError: It is not a valid number of rows.
    """
    row_count = plain_value(row_count)  # type: ignore[assignment]  # of numpy
    if not isinstance(row_count, int) or isinstance(row_count, bool) or row_count < 0:
        raise InvalidInputError(
            f"{shown(row_count)} is not a valid number of rows.", hint="Give 0 or more."
        )
    return row_count


def _check_installed(package: str, purpose: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingDependencyError.for_extra(package, package, purpose)
