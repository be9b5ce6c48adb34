"""Entities and tables as streams of record batches, and back."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.arrow.conform import check_columns
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import schema_to_arrow, type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Decimal, Field, Primitive
from lakebed.model.values import Scalar, check_value

ENTITIES_PER_BATCH = 10_000


def to_batches(data: object, descriptor: DatasetDescriptor) -> Iterator[pa.RecordBatch]:
    """Yield record batches from whatever holds the rows.

    Args:
        data: A pyarrow Table, RecordBatch or RecordBatchReader, a pandas DataFrame, or an
            iterable of dicts, dataclass instances or record batches.
        descriptor: Of the dataset that they go to.

    Raises:
        InvalidInputError: `data` is none of these.
        SchemaMismatchError: An entity does not fit; the message names the field.
    """
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        yield from data.to_batches()
        if not data.num_rows:
            yield pa.RecordBatch.from_pylist([], schema=data.schema)  # its shape is checked too
    elif isinstance(data, pa.RecordBatchReader):
        yield from data
    elif type(data).__module__.startswith("pandas."):
        yield from _from_pandas(data).to_batches()
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        yield from _from_iterable(data, descriptor)
    else:
        raise InvalidInputError(
            f"Cannot write {type(data).__name__}.",
            hint="Give a Spark or pandas DataFrame, a pyarrow Table, RecordBatch or "
            "RecordBatchReader, or an iterable of dicts or dataclass instances.",
        )


def _from_pandas(frame: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as exc:
        raise SchemaMismatchError(
            f"The pandas frame has a column of mixed types: {exc}",
            hint="Give the column one type.",
        ) from exc


def _from_iterable(
    items: Iterable[object], descriptor: DatasetDescriptor
) -> Iterator[pa.RecordBatch]:
    remaining = iter(items)
    while chunk := list(itertools.islice(remaining, ENTITIES_PER_BATCH)):
        if isinstance(chunk[0], pa.RecordBatch):
            yield from chunk  # one kind a stream; the kernel checks each
        else:
            yield entities_to_batch([as_mapping(item) for item in chunk], descriptor)


def as_mapping(entity: object) -> Mapping[str, Any]:
    """Return an entity as a mapping.

    Raises:
        InvalidInputError: It is neither a mapping nor a dataclass instance.
    """
    if isinstance(entity, Mapping):
        return entity
    if dataclasses.is_dataclass(entity) and not isinstance(entity, type):
        return dataclasses.asdict(entity)
    raise InvalidInputError(
        f"An entity of type {type(entity).__name__}: {str(entity)[:80]!r}.",
        hint="Give dicts or dataclass instances.",
    )


def check_entity(entity: Mapping[str, Any], descriptor: DatasetDescriptor) -> None:
    """Check one entity by itself.

    Raises:
        SchemaMismatchError: It has an unknown field, lacks one, or a value does not fit.
        PartitionSpecError: It lacks the source of a partition function.
    """
    entities_to_batch([entity], descriptor)


def entities_to_batch(
    entities: list[Mapping[str, Any]], descriptor: DatasetDescriptor
) -> pa.RecordBatch:
    """Return entities as one record batch of the dataset's schema.

    Raises:
        SchemaMismatchError: An entity has an unknown field, lacks one, or holds a value of
            another type; the message names it.
        PartitionSpecError: An entity lacks the source of a partition function.
    """
    shapes = {tuple(entity) for entity in entities}
    for shape in shapes:
        check_columns(shape, descriptor)
    columns = [_column(entities, field) for field in descriptor.schema]
    for column, field in zip(columns, descriptor.schema, strict=True):
        if column.null_count and not field.nullable:
            raise SchemaMismatchError(
                f"Field {field.name!r} is null, but it is not nullable.",
                hint="Give it a value, or make the field nullable.",
            )
    return pa.RecordBatch.from_arrays(columns, schema=schema_to_arrow(descriptor.schema))


def _column(entities: list[Mapping[str, Any]], field: Field) -> pa.Array:
    values: list[Any] = [entity.get(field.name) for entity in entities]
    target = type_to_arrow(field.type)
    try:
        if isinstance(field.type, Primitive | Decimal):
            # Arrow takes 1.5 for a long and True for a double without a word.
            values = [_checked(value, field) for value in values]
        return pa.array(values, target)
    except InvalidInputError as exc:
        raise SchemaMismatchError(exc.message, hint=exc.hint) from exc
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as exc:
        raise SchemaMismatchError(
            f"Field {field.name!r} of type {field.type} does not take a value: {exc}",
            hint="Correct the entity, or evolve the schema.",
        ) from exc


def _checked(value: Any, field: Field) -> Scalar:
    if value is None:
        return None
    return check_value(
        value.item() if isinstance(value, np.generic) else value, field.type, field.name
    )
