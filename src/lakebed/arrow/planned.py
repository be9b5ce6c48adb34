"""Planned files as a pyarrow Dataset, through which other engines push columns and filters down."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakebed.arrow.filesystem import filesystem_for
from lakebed.arrow.fragments import assembled, grouped, names_in
from lakebed.arrow.older import OlderFiles
from lakebed.arrow.pushed import fields_of, weaker_predicate
from lakebed.arrow.scan import output_schema, scan
from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import TRUE, Predicate, all_of, leaves, roots_of
from lakebed.model.schema import Decimal, Primitive, Struct, Type
from lakebed.model.values import Scalar
from lakebed.plan.expression import for_row_groups, has_truthful_bounds, to_arrow_expression
from lakebed.plan.plan import DataFile, ScanPlan, plan
from lakebed.store.base import Store


def planned_dataset(
    store: Store, chosen: ScanPlan, columns: Sequence[str] | None = None, limit: int | None = None
) -> ds.Dataset:
    """Return the rows of a plan as a pyarrow Dataset.

    Args:
        store: Where the files are.
        chosen: What is to be read, of one version.
        columns: See `output_schema`; a filter can name only these.
        limit: At most so many rows, which are read now; None for all.

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
    """What a dataset gives to whoever asks it.

    Attributes:
        store: Where the files are.
        chosen: The plan, of one version.
        names: The columns that are shown.
        filters: What was filtered since, by pyarrow's own `filter`.
    """

    store: Store
    chosen: ScanPlan
    names: tuple[str, ...]
    filters: tuple[pc.Expression, ...] = ()

    @property
    def residual(self) -> Predicate:
        """What is still to be filtered, for the view itself."""
        return TRUE if self.chosen.residual is None else self.chosen.residual

    @property
    def read_names(self) -> tuple[str, ...]:
        """The columns that may be read: those that are shown, and those of the residual."""
        roots = roots_of(self.residual, self.chosen.layout.predicate_types)
        return tuple(dict.fromkeys((*self.names, *roots)))

    @property
    def schema(self) -> pa.Schema:
        """The columns that are shown."""
        return output_schema(self.chosen.layout, self.names)

    @property
    def _types(self) -> dict[str, Type]:
        """Types of the columns that a filter can name."""
        types = self.chosen.layout.column_types
        return {name: types[name] for name in self.names if "." not in name}

    def files(self) -> ds.FileSystemDataset:
        """Return the files as Arrow's own dataset, without the residual.

        Raises:
            InvalidInputError: See `planned_dataset`.
        """
        chosen = self.chosen
        _check_format(chosen)
        column_types = chosen.layout.column_types
        types = {name: type_to_arrow(column_types[name]) for name in self.read_names}
        files: list[tuple[DataFile, Mapping[str, Scalar]]] = []
        for group in grouped(self.store, chosen, self.read_names):
            constants = group.older.reading.constants
            for file in group.files:
                self._check_told(file, group.older)
                known = {**file.partition, **constants}
                files.append((file, {name: known[name] for name in known if name in types}))
        return assembled(files, types, filesystem_for(self.store))

    def _check_told(self, file: DataFile, older: OlderFiles) -> None:
        """Check that Arrow can be told how the columns of a file read under the current schema."""
        for name in older.reading.rebuilt:
            raise _refused(self.chosen, name, f"older files hold {name!r} in another form")
        types = self.chosen.layout.column_types
        for name, value in older.reading.constants.items():
            if isinstance(types[name], Primitive | Decimal):
                continue
            if value is not None:
                raise _refused(
                    self.chosen, name, f"older files lack {name!r}, and it has a default"
                )
            # Of a field inside of it, Arrow would ask what the file holds under the name.
            if isinstance(types[name], Struct) and name in names_in(self.store, file):
                raise _refused(self.chosen, name, f"older files hold another {name!r}")

    def scanner(
        self, columns: Any, pushed: pc.Expression | None, options: Mapping[str, Any]
    ) -> ds.Scanner:
        """Return a scanner of the rows: of the files that may match what is pushed down.

        Args:
            columns: As pyarrow's `Dataset.scanner` takes them; None for those that are shown.
            pushed: A filter; None for all rows.
            options: Of pyarrow.
        """
        filters = (*self.filters, *(() if pushed is None else (pushed,)))
        files = self._narrowed(filters).files()
        columns = list(self.names) if columns is None else columns
        types, residual = self.chosen.layout.predicate_types, self.residual
        if has_truthful_bounds(residual, types):
            exact = () if residual == TRUE else (to_arrow_expression(residual, types),)
            condition = _joined((*exact, *filters))
            return ds.Scanner.from_dataset(files, columns=columns, filter=condition, **options)
        # By the bounds of floats, Arrow would pass over NaN, or count it as what lies between them.
        weaker = to_arrow_expression(for_row_groups(residual, types), types)
        inner = ds.Scanner.from_dataset(
            files,
            columns=self._needed(columns, filters),
            filter=_joined((weaker, *filters)),
            **options,
        )
        exactly = _joined((to_arrow_expression(residual, types), *filters))
        return ds.Scanner.from_batches(inner.to_reader(), columns=columns, filter=exactly)

    def _narrowed(self, filters: Sequence[pc.Expression]) -> _Rows:
        """Return the same rows, of fewer files where the planner knows which."""
        told = all_of([weaker_predicate(one, self._types) for one in filters])
        if not list(leaves(told)):
            return self
        chosen = self.chosen
        narrower = plan(
            chosen.state, all_of([chosen.predicate, told]), requests=0, store=self.store
        )
        if len(narrower) == len(chosen):
            return self
        # The residual stays what it is: a file may need less of it, but never more.
        return replace(self, chosen=replace(narrower, residual=chosen.residual))

    def _needed(self, columns: Any, filters: Sequence[pc.Expression]) -> list[str]:
        """Return the columns that must be read for those that are asked for, and for filters."""
        asked = [fields_of(one, self._types) for one in filters]
        if isinstance(columns, Mapping) or any(fields is None for fields in asked):
            return list(self.read_names)
        roots = roots_of(self.residual, self.chosen.layout.predicate_types)
        known = [fields for fields in asked if fields is not None]
        wanted = frozenset((*columns, *roots)).union(*known)
        return [name for name in self.read_names if name in wanted]


class PlannedDataset(ds.FileSystemDataset):  # type: ignore[misc]  # pyarrow's classes are untyped
    """The planned files of a view, of one version, as pyarrow and other engines see them.

    Whoever reads it by `scanner`, `to_batches`, `to_table` or `head`, as DuckDB, Polars and pyarrow
    itself do, has the rows of the view and no others. A filter that is pushed down is asked of the
    planner, too: of partitions, also those that a function derives, of statistics and of indices.
    """

    def __init__(self, rows: _Rows) -> None:
        """Use `View.dataset` instead."""
        files = rows.files()
        super().__init__(list(files.get_fragments()), files.schema, files.format, files.filesystem)
        self._rows = rows
        if rows.residual != TRUE:
            # So that pyarrow hands out no fragments: they hold rows that are not of the view.
            condition = to_arrow_expression(rows.residual, rows.chosen.layout.predicate_types)
            self._scan_options = {"filter": condition}

    @property
    def schema(self) -> pa.Schema:
        """The columns that are shown."""
        return self._rows.schema

    def scanner(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,  # noqa: A002 - pyarrow's word
        **options: Any,
    ) -> ds.Scanner:
        """Return a scanner; see pyarrow's `Dataset.scanner` for its arguments."""
        return self._rows.scanner(columns, filter, options)

    def filter(self, expression: pc.Expression) -> PlannedDataset:
        """Return the rows that meet a condition, too."""
        filtered: PlannedDataset = super().filter(expression)
        filtered._rows = replace(self._rows, filters=(*self._rows.filters, expression))
        return filtered


def _check_format(chosen: ScanPlan) -> None:
    format_ = chosen.layout.descriptor.format
    if format_ != "parquet":
        raise InvalidInputError(
            f"Dataset {chosen.layout.name!r} is of format {format_}, of which pyarrow makes no "
            "dataset.",
            hint="Read it with arrow(), polars() or record_batches().",
        )


def _refused(chosen: ScanPlan, name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"Dataset {chosen.layout.name!r} cannot be a dataset of pyarrow: {why}.",
        hint=f"Read it with arrow() or polars(), or select columns without {name!r}.",
    )


def _joined(conditions: Sequence[pc.Expression]) -> pc.Expression | None:
    return reduce(operator.and_, conditions) if conditions else None
