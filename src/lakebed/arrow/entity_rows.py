"""Entities that are checked one by one at once and become record batches later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from lakebed.arrow.conform import default_of
from lakebed.arrow.entities import (
    as_mapping,
    check_field,
    check_sources,
    entities_to_batch,
    plain_values,
)
from lakebed.arrow.kernel import BatchTarget
from lakebed.model.arrow_types import field_to_arrow, schema_to_arrow
from lakebed.model.declared import predicate_of, rows_checked
from lakebed.model.descriptor import DOCUMENT, UUID
from lakebed.model.evaluate import matches
from lakebed.model.keys import encode_path
from lakebed.model.predicate import TRUE, columns_of
from lakebed.model.values import Scalar, is_nan


class EntityRows:
    """Checked entities that wait to become a record batch.

    Where possible, an entity is checked by its Python values: a record batch for each takes many
    times as long.
    """

    def __init__(self, target: BatchTarget, check: Callable[[pa.RecordBatch], None]) -> None:
        """Start without entities.

        Args:
            target: Batch that receives the entities.
            check: Raises the errors that writing a batch would raise.
        """
        descriptor = target.descriptor
        schema = descriptor.schema
        capped = descriptor.partition_by.caps(schema)
        self._target = target
        self._descriptor = descriptor
        self._check = check
        # Fields of documents, and values beyond a cap, are known only to the kernel.
        self._is_submission = descriptor.format == "submissions"
        self._needs_batch = self._is_submission or any(
            name in capped for name in columns_of(target.constraint)
        )
        self._fields = [(field, default_of(field), *plain_values(field.type)) for field in schema]
        self._refusing = [
            predicate_of(check, schema)
            for check in rows_checked(descriptor).values()
            if check.on_failure == "refuse"
        ]
        self._shapes: set[tuple[str, ...]] = set()
        self._partitions: set[tuple[Scalar, ...]] = set()
        self._rows: list[dict[str, Any]] = []
        self._batches: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        """Return the number of waiting entities."""
        return len(self._rows) + len(self._batches)

    def add(self, entity: object) -> None:
        """Check an entity, and keep a copy of it.

        Raises:
            InvalidInputError: It does not fit; no part of it is kept.
        """
        given = as_mapping(entity)
        shape = tuple(given)
        if shape not in self._shapes:
            check_sources(shape, self._descriptor)
            self._shapes.add(shape)
        if self._needs_batch:
            row = entities_to_batch([given], self._descriptor)
            self._check(row)
            # Other fields were only compared with the document, and not all entities have them.
            self._batches.append(row.select([UUID, DOCUMENT]) if self._is_submission else row)
            return
        checked: dict[str, Any] = {}
        for field, default, kind, fits in self._fields:
            value = given.get(field.name, default)
            if type(value) is not kind or not fits(value):
                value = check_field(value, field)
            checked[field.name] = value
        self._check_place(checked, given)
        if not all(matches(predicate, checked) for predicate in self._refusing):
            self._check(entities_to_batch([given], self._descriptor))  # raises the error
        self._rows.append(checked)

    def _check_place(self, checked: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        descriptor, constraint = self._descriptor, self._target.constraint
        values = descriptor.partition_by.values(checked, descriptor.schema, self._target.provided)
        if constraint != TRUE and not matches(constraint, {**checked, **values}):
            self._check(entities_to_batch([given], descriptor))  # raises the error with the reason
        if not values:
            return
        key = tuple(values.values())
        if key not in self._partitions:
            encode_path(values)
            if not any(map(is_nan, key)):
                self._partitions.add(key)

    def take(self) -> pa.RecordBatch:
        """Remove and return all entities."""
        rows, batches = self._rows, self._batches
        self._rows, self._batches = [], []
        if batches:
            return pa.concat_batches(batches)
        columns = [
            pa.array([row[field.name] for row in rows], field_to_arrow(field).type)
            for field, *_ in self._fields
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema_to_arrow(self._descriptor.schema))
