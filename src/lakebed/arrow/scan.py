"""The local reader: planned files as record batches."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakebed.arrow.filesystem import filesystem_for
from lakebed.errors import CorruptMetadataError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.schema import Type
from lakebed.model.values import Scalar
from lakebed.plan.expression import to_arrow_expression
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
    types = column_types(state)
    names = state.descriptor.schema.names if columns is None else columns
    for name in names:
        if name not in types:
            state.descriptor.schema.get(name)  # raises, and names the nearest
    return pa.schema([pa.field(name, type_to_arrow(types[name])) for name in names])


def column_types(state: State) -> dict[str, Type]:
    """Return all columns that can be asked for or stand in a predicate, with their types."""
    fields = {f.name: f.type for f in state.descriptor.schema.fields}
    return {**fields, **state.partition_types}


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
        return sum(scanner.count_rows() for scanner in _scanners(store, plan, []))


def _batches(store: Store, plan: ScanPlan, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with _translating(plan.state.name):
        for scanner in _scanners(store, plan, schema.names):
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch.cast(schema) if batch.schema != schema else batch


def _scanners(store: Store, plan: ScanPlan, names: Sequence[str]) -> Iterator[ds.Scanner]:
    types = column_types(plan.state)
    arrow_types = {name: type_to_arrow(kind) for name, kind in types.items()}
    schema = pa.schema(list(arrow_types.items()))
    filesystem = filesystem_for(store)
    format_ = ds.ParquetFileFormat()
    for is_filtered in (False, True):
        fragments = [
            format_.make_fragment(
                file.key,
                filesystem=filesystem,
                partition_expression=_constants(file.partition, arrow_types),
            )
            for file in plan.files
            if file.is_filtered is is_filtered
        ]
        if not fragments:
            continue
        residual = plan.residual if is_filtered else None
        dataset = ds.FileSystemDataset(fragments, schema, format_, filesystem)
        yield dataset.scanner(
            columns=list(names),
            filter=None if residual is None else to_arrow_expression(residual, types),
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


class _translating:  # noqa: N801 - used as a function
    """Translate what Arrow says of missing and damaged files."""

    def __init__(self, dataset: str) -> None:
        self._dataset = dataset

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError | pa.ArrowInvalid):
            raise CorruptMetadataError(
                f"A data file of {self._dataset!r} is missing or damaged: {error}",
                hint="The head names it, so it was deleted or overwritten from outside.",
            ) from error


__all__ = ["DataFile", "column_types", "count", "output_schema", "scan"]
