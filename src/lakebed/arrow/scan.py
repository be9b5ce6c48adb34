"""The local reader: planned files as record batches."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakebed.arrow.filesystem import filesystem_for
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    ObjectNotFoundError,
    StorageError,
)
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import columns_of
from lakebed.model.schema import Type
from lakebed.model.values import Scalar
from lakebed.plan.expression import for_row_groups, has_truthful_bounds, to_arrow_expression
from lakebed.plan.plan import DataFile, ScanPlan
from lakebed.state.state import State
from lakebed.store.base import Store


def output_schema(state: State, columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of a read: the entity's fields, or the columns asked for, in order.

    Args:
        state: The version to read.
        columns: Fields or partition fields, `batch_id` among them; None for all fields.

    Raises:
        SchemaMismatchError: A column is unknown.
    """
    types = state.column_types
    names = state.descriptor.schema.names if columns is None else columns
    for name in names:
        if name not in types:
            state.descriptor.schema.get(name)  # raises, and names the nearest
    return pa.schema([pa.field(name, type_to_arrow(types[name])) for name in names])


def scan(
    store: Store, plan: ScanPlan, columns: Sequence[str] | None = None
) -> pa.RecordBatchReader:
    """Read the rows of a plan.

    Row groups that cannot match are skipped, columns that are not asked for are not read.

    Args:
        store: Where the files are.
        plan: What to read.
        columns: See `output_schema`.

    Returns:
        Batches of the output schema, files in the order of the plan except that files which
        need no filter come first. Close it, or read it to its end.

    Raises:
        SchemaMismatchError: A column is unknown.
        CorruptMetadataError: A planned file is missing or is no Parquet; while reading.

    Cost:
        The footers and the needed column chunks of the planned files. Memory: a few row groups.
    """
    schema = output_schema(plan.state, columns)
    return pa.RecordBatchReader.from_batches(schema, _batches(store, plan, schema))


def count(store: Store, plan: ScanPlan) -> int:
    """Count the rows of a plan, from footers alone where no filter applies.

    Cost:
        The footers of the planned files, and the columns of the filter where one applies.
    """
    with _translating(plan.state.name):
        return sum(part.count() for part in _parts(store, plan, ()))


def _batches(store: Store, plan: ScanPlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _translating(plan.state.name):
        for part in _parts(store, plan, schema.names):
            for batch in part.batches():
                if batch.num_rows:
                    yield batch.cast(schema) if batch.schema != schema else batch


@dataclass(frozen=True, slots=True)
class _Part:
    """Some files of a plan, and what is filtered in them.

    Attributes:
        dataset: The files.
        names: Columns to read.
        row_groups: Lets Arrow skip row groups, and filters their rows.
        rows: Filters again what `row_groups` left; None if that filter is exact.
        rows_need: Columns that `rows` looks at.
        is_countable: Whether Arrow may count by the bounds of row groups.
    """

    dataset: ds.Dataset
    names: tuple[str, ...]
    row_groups: pc.Expression | None = None
    rows: pc.Expression | None = None
    rows_need: tuple[str, ...] = ()
    is_countable: bool = True

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self.rows is None:
            yield from self._scanner(self.names).to_batches()
            return
        read = tuple(dict.fromkeys((*self.names, *self.rows_need)))
        for batch in self._scanner(read).to_batches():
            yield batch.filter(self.rows).select(self.names)

    def count(self) -> int:
        if self.is_countable:
            rows: int = self._scanner(()).count_rows()
            return rows
        found = self._scanner(self.rows_need).to_batches()
        if self.rows is None:
            return sum(batch.num_rows for batch in found)
        return sum(batch.filter(self.rows).num_rows for batch in found)

    def _scanner(self, names: Sequence[str]) -> ds.Scanner:
        return self.dataset.scanner(columns=list(names), filter=self.row_groups)


def _parts(store: Store, plan: ScanPlan, names: Sequence[str]) -> Iterator[_Part]:
    """Yield the files without a filter, then those with one."""
    types = plan.state.column_types
    plain = [file for file in plan.files if not file.is_filtered]
    filtered = [file for file in plan.files if file.is_filtered]
    if plain:
        yield _Part(_dataset(store, plain, types), tuple(names))
    if filtered:
        assert plan.residual is not None
        weaker = for_row_groups(plan.residual, types)
        is_exact = weaker == plan.residual
        yield _Part(
            _dataset(store, filtered, types),
            tuple(names),
            row_groups=to_arrow_expression(weaker, types),
            rows=None if is_exact else to_arrow_expression(plan.residual, types),
            rows_need=columns_of(plan.residual),
            is_countable=has_truthful_bounds(plan.residual, types),
        )


def _dataset(store: Store, files: Sequence[DataFile], types: Mapping[str, Type]) -> ds.Dataset:
    arrow_types = {name: type_to_arrow(kind) for name, kind in types.items()}
    filesystem = filesystem_for(store)
    format_ = ds.ParquetFileFormat()
    fragments = [
        format_.make_fragment(
            file.key,
            filesystem=filesystem,
            partition_expression=_constants(file.partition, arrow_types),
        )
        for file in files
    ]
    return ds.FileSystemDataset(
        fragments, pa.schema(list(arrow_types.items())), format_, filesystem
    )


def _constants(
    partition: Mapping[str, Scalar], types: Mapping[str, pa.DataType]
) -> pc.Expression | None:
    """Say what a file's path says of its rows; Arrow makes columns and prunings of it."""
    terms = [
        pc.field(name).is_null()
        if value is None
        else pc.field(name) == pc.scalar(pa.scalar(value, types[name]))
        for name, value in partition.items()
    ]
    return reduce(operator.and_, terms) if terms else None


@contextmanager
def _translating(dataset: str) -> Iterator[None]:
    """Translate what Arrow says of missing and damaged files."""
    try:
        yield
    except (ObjectNotFoundError, FileNotFoundError) as exc:
        raise CorruptMetadataError(
            f"A data file of {dataset!r} is missing: {exc}",
            hint="The head names it, so it was deleted from outside.",
        ) from exc
    except PermissionError as exc:
        raise AccessDeniedError(f"A data file of {dataset!r} cannot be read: {exc}") from exc
    except (pa.ArrowException, OSError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise StorageError(
                f"A data file of {dataset!r} cannot be read: {exc}", retryable=True
            ) from exc
        raise CorruptMetadataError(
            f"A data file of {dataset!r} is damaged, or of another type than its column: {exc}",
            hint="The head names it, so it was overwritten from outside.",
        ) from exc


__all__ = ["DataFile", "count", "output_schema", "scan"]
