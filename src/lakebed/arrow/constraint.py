"""The check that rows belong to the view that they are written through."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten

import pyarrow as pa

from lakebed.arrow.sieve import RowFilter
from lakebed.errors import InvalidInputError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evaluate import value_of
from lakebed.model.predicate import Predicate, columns_of, sql_literal

_WIDTH = 80  # characters of a value in an error


class ViewCheck:
    """Rejects rows that lie outside a view."""

    def __init__(self, constraint: Predicate, descriptor: DatasetDescriptor) -> None:
        """Prepare the check.

        Args:
            constraint: Condition of the view, bound to the fields and partition fields.
            descriptor: Descriptor of the dataset.
        """
        types = descriptor.predicate_types
        self._constraint = constraint
        self._types = types
        self._named = columns_of(constraint)
        self._inside = RowFilter.of(constraint, types)
        own = descriptor.partition_types
        fields = descriptor.schema
        self.computed = tuple(name for name in self._named if name in own and name not in fields)

    def check(self, batch: pa.RecordBatch, partitions: Mapping[str, pa.Array]) -> None:
        """Check every row.

        Args:
            batch: Columns of the dataset's fields.
            partitions: Values of the partition fields that are computed so far, by name; a missing
                one counts as null, as `batch_id` does until rows are written.

        Raises:
            InvalidInputError: A row lies outside; the message shows the values of the first such
                row that decide.
        """
        for name in self.computed:
            column = partitions.get(name)
            if column is None:
                column = pa.nulls(batch.num_rows, type_to_arrow(self._types[name]))
            batch = batch.append_column(name, column)
        outside = batch.filter(pa.array(~self._inside.mask(batch)))
        if not outside.num_rows:
            return
        first = outside.slice(0, 1).to_pylist(maps_as_pydicts="strict")[0]
        values = ", ".join(
            f"{name} = {shorten(sql_literal(value_of(first, name)), _WIDTH)}"
            for name in self._named
        )
        count = f"{outside.num_rows} of {batch.num_rows} entities lie"
        if batch.num_rows == 1:
            count = "An entity lies"
        raise InvalidInputError(
            f"{count} outside the view {self._constraint}: {values or 'nothing is in it'}.",
            hint="Filter the data, or widen the view.",
        )
