"""Planned files as a pyarrow Dataset, through which other engines push columns and filters down."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakebed.arrow.fragments import assembled, filesystem_for, grouped, names_in, verify_files
from lakebed.arrow.older import OlderFiles
from lakebed.arrow.pushed import fields_of, shallow, weaker_predicate
from lakebed.arrow.scan import count, output_schema, scan
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.lineage import simplify
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Predicate,
    all_of,
    leaves,
    map_leaves,
    roots_of,
    without_formulas,
)
from lakebed.model.schema import Decimal, Primitive, Struct, Type
from lakebed.model.values import Scalar
from lakebed.plan.expression import to_arrow_expression
from lakebed.plan.footprint_columns import with_footprint
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.plan.search import plan
from lakebed.store.base import Store

_NO_COLUMN = "lakebed.renamed."  # begins the names of columns that pyarrow itself must not read


def planned_dataset(
    store: Store, chosen: ScanPlan, columns: Sequence[str] | None = None, limit: int | None = None
) -> ds.Dataset:
    """Return the rows of a plan as a pyarrow Dataset.

    Args:
        store: Store that holds the files.
        chosen: Plan of one version.
        columns: See `output_schema`; a filter can name only these.
        limit: Maximum number of rows, which are read at once; None for all.

    Raises:
        SchemaMismatchError: As of `output_schema`.
        InvalidInputError: The files are not Parquet, or one of an older schema holds a column in
            another form.
        CorruptMetadataError: A data file is missing or damaged; only with a limit.
    """
    names = output_schema(chosen.layout, columns).names
    if limit is not None:
        return ds.dataset(scan(store, chosen, names, limit=limit).read_all())
    return PlannedDataset(_Rows(store=store, chosen=chosen, names=tuple(names)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The rows behind a dataset.

    Attributes:
        chosen: Plan of one version.
        names: Visible columns.
        filters: Filters that were added by pyarrow's own `filter`.
        failures: Receives the errors of reads, which an engine in between turns into texts.
    """

    store: Store
    chosen: ScanPlan
    names: tuple[str, ...]
    filters: tuple[pc.Expression, ...] = ()
    failures: list[LakebedError] = field(default_factory=list)

    @property
    def residual(self) -> Predicate:
        """Remaining filter of the view."""
        return TRUE if self.chosen.residual is None else self.chosen.residual

    @property
    def read_names(self) -> tuple[str, ...]:
        """Columns that may be read: the visible ones, and those of the residual."""
        roots = roots_of(self.residual, self.chosen.layout.predicate_types)
        return tuple(dict.fromkeys((*self.names, *roots)))

    @property
    def is_renamed(self) -> bool:
        """True if files hold some field under another name."""
        return self.chosen.layout.descriptor.schema.is_renamed

    @property
    def schema(self) -> pa.Schema:
        """Schema of the visible columns."""
        return output_schema(self.chosen.layout, self.names)

    @property
    def _types(self) -> dict[str, Type]:
        """Types of the columns that a filter can name."""
        types = self.chosen.layout.column_types
        return {name: types[name] for name in self.names if "." not in name}

    def files(self) -> ds.FileSystemDataset:
        """Return the files as Arrow's own dataset, without the residual.

        If files hold fields under other names, its columns have names that are in no file: Arrow then
        fails, instead of reading a column by the wrong name.

        Raises:
            InvalidInputError: See `planned_dataset`.
        """
        chosen = self.chosen
        _check_format(chosen)
        column_types = chosen.layout.column_types
        mark = _NO_COLUMN if self.is_renamed else ""
        types = {f"{mark}{name}": type_to_arrow(column_types[name]) for name in self.read_names}
        files: list[tuple[DataFile, Mapping[str, Scalar]]] = []
        for group in grouped(self.store, chosen, self.read_names):
            constants = group.older.reading.constants
            for file in group.files:
                self._check_readable(file, group.older)
                known = {**file.partition, **constants}
                # A missing record is null anyway; Arrow cannot know more of its fields.
                constants = {
                    f"{mark}{name}": value
                    for name, value in known.items()
                    if name in self.read_names and not isinstance(column_types[name], Struct)
                }
                files.append((file, constants))
        return assembled(chosen.layout.name, files, types, filesystem_for(self.store))

    def verify(self, keys: Iterable[str]) -> None:
        """Verify the footers of files on this machine, before Arrow reads them by itself."""
        verify_files(self.store, self.chosen.layout.name, keys)

    def _check_readable(self, file: DataFile, older: OlderFiles) -> None:
        """Check that Arrow can read the columns of a file under the current schema."""
        for name in older.reading.rebuilt:
            raise _refused(self.chosen, name, f"older files hold {name!r} in another form")
        types = self.chosen.layout.column_types
        name_of = older.schema.stored_name
        for name, value in older.reading.constants.items():
            if isinstance(types[name], Primitive | Decimal):
                continue
            if value is not None:
                raise _refused(
                    self.chosen, name, f"older files lack {name!r}, and it has a default"
                )
            # For a field inside of it, Arrow would read the column of that name in the file.
            if isinstance(types[name], Struct) and name_of(name) in names_in(self.store, file):
                raise _refused(self.chosen, name, f"older files hold another {name!r}")

    def scanner(self, columns: Any, pushed: pc.Expression | None) -> PlannedScanner:
        """Return a scanner of the rows, over the files that may match the pushed filter.

        Args:
            columns: As pyarrow's `Dataset.scanner` takes them; None for the visible ones.
            pushed: A filter; None for all rows.

        Raises:
            PredicateError: An expression is nested too deeply.
        """
        filters = (*self.filters, *(() if pushed is None else (shallow(pushed),)))
        pushed_down = all_of([weaker_predicate(one, self._types) for one in filters])
        chosen, footprint = self.chosen, self.chosen.layout.footprint
        plannable = map_leaves(pushed_down, lambda leaf: TRUE if leaf.column in footprint else leaf)
        if next(leaves(plannable), None) is not None or plannable == FALSE:
            narrower = all_of([chosen.predicate, plannable])
            chosen = plan(chosen.state, narrower, requests=0, store=self.store)
            if footprint:
                chosen = with_footprint(self.store, chosen, footprint)
        if plannable != pushed_down:
            chosen = _of_footprint(chosen, pushed_down)
        wanted = list(self.names) if columns is None else columns
        if isinstance(wanted, Mapping):
            wanted = {name: shallow(value) for name, value in wanted.items()}
        needed = self._needed(wanted, filters)
        # The columns are bound now, so that a wrong name raises in the caller's own line.
        empty = ds.dataset(output_schema(chosen.layout, needed).empty_table())
        condition = _joined(filters)
        schema = empty.scanner(columns=wanted, filter=condition).projected_schema
        counted = self._needed((), filters)
        return PlannedScanner(
            self.store, chosen, needed, counted, wanted, condition, schema, self.failures
        )

    def _needed(self, columns: Any, filters: Sequence[pc.Expression]) -> list[str]:
        """Return the columns to read for the requested ones and for filters."""
        asked = [fields_of(one, self._types) for one in filters]
        if isinstance(columns, Mapping) or any(fields is None for fields in asked):
            return list(self.names)
        wanted = frozenset(columns).union(*(fields for fields in asked if fields is not None))
        # A batch without columns would lose its row count.
        return [name for name in self.names if name in wanted] or list(self.names[:1])


class PlannedScanner:
    """Reads the rows, as a `pyarrow.dataset.Scanner` does, by the reader of Lakebed.

    Arrow's own scanner holds Python's lock while it waits for files (`to_reader`), and opening the
    files of an object store needs that lock: a deadlock. It also handles NaN differently, and lacks
    the checks of Lakebed.
    """

    def __init__(
        self,
        store: Store,
        chosen: ScanPlan,
        needed: Sequence[str],
        counted: Sequence[str],
        columns: Any,
        condition: pc.Expression | None,
        schema: pa.Schema,
        failures: list[LakebedError],
    ) -> None:
        """Use `PlannedDataset.scanner` instead.

        Args:
            store: Store that holds the files.
            chosen: Plan of one version.
            needed: Columns to read.
            counted: Columns to read where rows are only counted.
            columns: Columns to give, by name, or expressions by name.
            condition: Further filter; None for none.
            schema: Schema of the columns to give.
            failures: Receives the errors of reads.
        """
        self._failures = failures
        self._store = store
        self._chosen = chosen
        self._needed = needed
        self._counted = counted
        self._columns = columns
        self._condition = condition
        self.projected_schema = schema
        self.dataset_schema = output_schema(chosen.layout, needed)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream, which is read on demand."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        try:
            yield from self._read_batches()
        except LakebedError as exc:
            self._failures.append(exc)
            raise

    def _read_batches(self) -> Iterator[pa.RecordBatch]:
        is_plain = not isinstance(self._columns, Mapping)
        with scan(self._store, self._chosen, self._needed) as batches:
            for batch in batches:
                if not is_plain:
                    yield from self._projected(batch)
                    continue
                rows = batch if self._condition is None else batch.filter(self._condition)
                if rows.num_rows:
                    yield rows.select(list(self._columns))

    def _projected(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the projection of a batch by expressions."""
        rows = ds.dataset(pa.Table.from_batches([batch]))
        table = rows.to_table(columns=self._columns, filter=self._condition, use_threads=False)
        yield from table.to_batches()

    def to_table(self) -> pa.Table:
        """Return all rows."""
        return self.to_reader().read_all()

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        batches, missing = [], num_rows
        with self.to_reader() as reader:
            while missing > 0 and (batch := next(reader, None)) is not None:
                batches.append(batch.slice(0, missing))
                missing -= batch.num_rows
        return pa.Table.from_batches(batches, self.projected_schema)

    def count_rows(self) -> int:
        """Count the rows."""
        if self._condition is None:
            return count(self._store, self._chosen)
        with scan(self._store, self._chosen, self._counted) as batches:
            return sum(batch.filter(self._condition).num_rows for batch in batches)

    def take(self, indices: Any) -> pa.Table:
        """Return rows by their number."""
        return self.to_table().take(indices)


class PlannedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow's classes are untyped
    """The planned files of a view, of one version, as pyarrow and other engines see them.

    A reader by `scanner`, `to_batches`, `to_table` or `head`, as DuckDB, Polars and pyarrow itself,
    gets exactly the rows of the view. The planner also uses pushed filters: for partitions,
    including derived ones, for statistics and for indices.
    """

    def __init__(self, rows: _Rows) -> None:
        """Use `View.dataset` instead."""
        files = rows.files()
        super().__init__(list(files.get_fragments()), files.schema, files.format, files.filesystem)
        self._rows = rows
        if rows.residual != TRUE:
            # Stops pyarrow from handing out fragments: they hold rows outside the view.
            plain = without_formulas(rows.residual)
            condition = to_arrow_expression(plain, rows.chosen.layout.predicate_types)
            self._scan_options = {"filter": condition}
        elif rows.is_renamed:
            # Their columns have other names than those of the view.
            self._scan_options = {"filter": to_arrow_expression(TRUE, {})}

    @property
    def failures(self) -> Sequence[LakebedError]:
        """Errors of reads, which an engine in between turns into texts."""
        return self._rows.failures

    @property
    def schema(self) -> pa.Schema:
        """Schema of the visible columns."""
        return self._rows.schema

    def scanner(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's word
        **options: Any,  # sizes of batches and read-ahead, which the reader chooses
    ) -> PlannedScanner | ds.Scanner:
        """Return a scanner; see pyarrow's `Dataset.scanner` for its arguments.

        With `use_threads` as the only argument, as `pyarrow.dataset.write_dataset` calls it, it is
        a scanner of pyarrow's own class, which can be read once: pyarrow writes no other.
        """
        planned = self._rows.scanner(columns, filter)
        is_to_be_written = columns is None and filter is None and options.keys() == {"use_threads"}
        return ds.Scanner.from_batches(planned.to_reader()) if is_to_be_written else planned

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[ds.Fragment]:  # noqa: A002 - pyarrow's word
        """Return the files, which pyarrow itself then reads; their footers are verified.

        Raises:
            DamagedFileError: A footer differs from its checksum.
        """
        fragments = list(super().get_fragments(filter))
        self._rows.verify(fragment.path for fragment in fragments)
        return iter(fragments)

    def replace_schema(self, schema: pa.Schema) -> ds.Dataset:
        """Return the files under another schema, which pyarrow itself then reads.

        Raises:
            InvalidInputError: The files hold a field under another name.
            DamagedFileError: A footer differs from its checksum.
        """
        self._rows.verify(self.files)
        if self._rows.is_renamed:
            raise InvalidInputError(
                f"Dataset {self._rows.chosen.layout.name!r} has a renamed field, and pyarrow would "
                "look for its new name in the files.",
                hint="Read it as an Arrow table, and cast that.",
            )
        return super().replace_schema(schema)

    def join(self, *how: Any, **options: Any) -> ds.InMemoryDataset:
        """Join another dataset; see pyarrow's `Dataset.join`."""
        return self._by_name().join(*how, **options)

    def join_asof(self, *how: Any, **options: Any) -> ds.InMemoryDataset:
        """Join the nearest rows of another dataset; see pyarrow's `Dataset.join_asof`."""
        return self._by_name().join_asof(*how, **options)

    def sort_by(self, *how: Any, **options: Any) -> ds.InMemoryDataset:
        """Sort the rows; see pyarrow's `Dataset.sort_by`."""
        return self._by_name().sort_by(*how, **options)

    def _by_name(self) -> Any:
        """Return a dataset whose files pyarrow itself can read by the names of columns."""
        return ds.dataset(self.to_table()) if self._rows.is_renamed else super()

    def filter(self, expression: pc.Expression) -> PlannedDataset:
        """Return the rows that meet a further condition.

        Raises:
            PredicateError: It is nested too deeply.
        """
        expression = shallow(expression)
        filtered: PlannedDataset = super().filter(expression)
        filtered._rows = replace(self._rows, filters=(*self._rows.filters, expression))
        return filtered


def _of_footprint(chosen: ScanPlan, condition: Predicate) -> ScanPlan:
    """Return the plan without the files whose footprint excludes a condition."""
    names = chosen.layout.footprint
    return replace(
        chosen,
        files=tuple(
            file
            for file in chosen.files
            if simplify(condition, {name: file.partition[name] for name in names}) != FALSE
        ),
    )


def _check_format(chosen: ScanPlan) -> None:
    format_ = chosen.layout.descriptor.format
    if format_ != "parquet":
        raise InvalidInputError(
            f"Dataset {chosen.layout.name!r} is of format {format_}, which pyarrow cannot read "
            "as a dataset.",
            hint="Read it as an Arrow table or stream instead.",
        )


def _refused(chosen: ScanPlan, name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"Dataset {chosen.layout.name!r} cannot be a dataset of pyarrow: {why}.",
        hint=f"Read it as an Arrow table instead, or select columns without {name!r}.",
    )


def _joined(conditions: Sequence[pc.Expression]) -> pc.Expression | None:
    return reduce(operator.and_, conditions) if conditions else None
